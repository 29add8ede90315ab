//! The aliases that were expanded, each with the one that led to it.

use mail::Mailbox;

/// Index in [`Links`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinkId(u32);

/// The aliases that led to each address, back to the one that the client gave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Links {
    all: Vec<(Box<str>, Option<LinkId>)>,
    /// The owners of those that are lists, in no order.
    owners: Vec<(LinkId, Mailbox)>,
}

impl Links {
    /// Adds an alias that another one led to.
    pub(super) fn add(&mut self, text: Box<str>, from: Option<LinkId>) -> LinkId {
        // The limit of targets keeps the list short.
        let id = LinkId(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        self.all.push((text, from));
        id
    }

    /// Notes that the alias is a list with this owner.
    pub(super) fn set_owner(&mut self, id: LinkId, owner: Mailbox) {
        self.owners.push((id, owner));
    }

    /// The owner of the alias, or of the last one on the way to it that has an owner.
    pub(super) fn owner_of(&self, id: LinkId) -> Option<&Mailbox> {
        let mut next = Some(id);
        while let Some(id) = next {
            if let Some((_, owner)) = self.owners.iter().find(|(of, _)| *of == id) {
                return Some(owner);
            }
            next = self.all[id.0 as usize].1;
        }
        None
    }

    /// Returns the alias as it was written.
    pub(super) fn text(&self, id: LinkId) -> &str {
        &self.all[id.0 as usize].0
    }

    /// Returns whether one of the aliases that led to this one has this text.
    pub(super) fn has_above(&self, id: LinkId, text: &str) -> bool {
        self.above(self.all[id.0 as usize].1).any(|above| above == text)
    }

    /// The texts from the first alias to this one.
    pub(super) fn path_to(&self, id: Option<LinkId>) -> Vec<&str> {
        let mut all: Vec<&str> = self.above(id).collect();
        all.reverse();
        all
    }

    fn above(&self, mut id: Option<LinkId>) -> impl Iterator<Item = &str> {
        std::iter::from_fn(move || {
            let (text, from) = &self.all[id?.0 as usize];
            id = *from;
            Some(&**text)
        })
    }
}
