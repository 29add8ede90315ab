//! A vector with reusable slots, addressed by `u32` to keep entries small.

#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self.entries[at as usize] = Some(value);
            return at;
        }
        let at = u32::try_from(self.entries.len()).expect("fewer than 2^32 entries");
        self.entries.push(Some(value));
        at
    }

    pub(crate) fn remove(&mut self, at: u32) -> T {
        self.free.push(at);
        self.entries[at as usize].take().expect("entry is there")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().enumerate().filter_map(|(at, e)| Some((at as u32, e.as_ref()?)))
    }

    /// Returns the entries in some slots.
    pub(crate) fn range(&self, from: u32, to: u32) -> impl Iterator<Item = &T> {
        let end = (to as usize).min(self.entries.len());
        self.entries[(from as usize).min(end)..end].iter().filter_map(Option::as_ref)
    }

    pub(crate) fn slot_count(&self) -> u32 {
        self.entries.len() as u32
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, at: u32) -> &T {
        self.entries[at as usize].as_ref().expect("entry is there")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        self.entries[at as usize].as_mut().expect("entry is there")
    }
}
