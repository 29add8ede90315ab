//! Things by number, where a number is never given twice: an event for something that is gone must
//! not meet what came in its place.

/// Values by number. A number's low half is the place, its high half how often the place was used.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// Returns the number of things.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Puts one in, and names it.
    pub(crate) fn insert(&mut self, thing: T) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            (self.places.len() - 1) as u32
        });
        let slot = &mut self.places[place as usize];
        slot.1 = Some(thing);
        u64::from(slot.0) << 32 | u64::from(place)
    }

    /// The one of that name, if it is still there.
    pub(crate) fn get(&mut self, name: u64) -> Option<&mut T> {
        let slot = self.places.get_mut(name as u32 as usize)?;
        if u64::from(slot.0) == name >> 32 { slot.1.as_mut() } else { None }
    }

    /// Takes out the value with this number; `None` if it is gone.
    pub(crate) fn remove(&mut self, name: u64) -> Option<T> {
        self.get(name)?;
        let slot = &mut self.places[name as u32 as usize];
        // The highest numbers name other things than slots.
        slot.0 = (slot.0 + 1) & 0x7fff_ffff;
        self.free.push(name as u32);
        slot.1.take()
    }

    /// Returns all values with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.places.iter().enumerate().filter_map(|(i, (used, thing))| {
            thing.as_ref().map(|thing| (u64::from(*used) << 32 | i as u64, thing))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_name_does_not_find_what_came_after() {
        let mut slots = Slots::default();
        let first = slots.insert('a');
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.insert('b');
        assert_eq!((slots.get(first).copied(), slots.get(second).copied()), (None, Some('b')));
        assert_eq!((slots.remove(first), slots.len()), (None, 1));
        assert_eq!(slots.iter().collect::<Vec<_>>(), [(second, &'b')]);
    }
}
