//! The aliases that were expanded, each with the one that led to it.

/// The place of an alias in [`Links`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinkId(u32);

/// A tree of aliases.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Links(Vec<(Box<str>, Option<LinkId>)>);

impl Links {
    /// Adds an alias that another one led to.
    pub(super) fn add(&mut self, text: Box<str>, from: Option<LinkId>) -> LinkId {
        // The limit of targets keeps the list short.
        let id = LinkId(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        self.0.push((text, from));
        id
    }

    /// The text of an alias.
    pub(super) fn text(&self, id: LinkId) -> &str {
        &self.0[id.0 as usize].0
    }

    /// Returns whether one of the aliases that led to this one has this text.
    pub(super) fn has_above(&self, id: LinkId, text: &str) -> bool {
        self.above(self.0[id.0 as usize].1).any(|above| above == text)
    }

    /// The texts from the first alias to this one.
    pub(super) fn path_to(&self, id: Option<LinkId>) -> Vec<&str> {
        let mut all: Vec<&str> = self.above(id).collect();
        all.reverse();
        all
    }

    fn above(&self, mut id: Option<LinkId>) -> impl Iterator<Item = &str> {
        std::iter::from_fn(move || {
            let (text, from) = &self.0[id?.0 as usize];
            id = *from;
            Some(&**text)
        })
    }
}
