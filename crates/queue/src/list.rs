//! Doubly linked lists through the entries of a slab: every entry is in at most one list, and
//! leaves it in constant time.

use crate::slab::Slab;

/// The end of a list, in links and heads.
pub(crate) const NONE: u32 = u32::MAX;

/// Both neighbours in the list; [`NONE`] at an end, or outside of any list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

impl Default for Link {
    fn default() -> Self {
        Self { prev: NONE, next: NONE }
    }
}

/// Entries that can be linked.
pub(crate) trait Linked {
    fn link(&mut self) -> &mut Link;
    fn next(&self) -> u32;
}

/// First in, first out. Entries can be removed anywhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { head: NONE, tail: NONE }
    }
}

impl List {
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    pub(crate) fn head(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    pub(crate) fn tail(&self) -> Option<u32> {
        (self.tail != NONE).then_some(self.tail)
    }

    /// Returns all entries, from the front.
    pub(crate) fn iter<T: Linked>(self, slab: &Slab<T>) -> impl Iterator<Item = u32> {
        std::iter::successors(self.head(), |at| {
            let next = slab[*at].next();
            (next != NONE).then_some(next)
        })
    }

    pub(crate) fn push_back<T: Linked>(&mut self, slab: &mut Slab<T>, at: u32) {
        *slab[at].link() = Link { prev: self.tail, next: NONE };
        match self.tail {
            NONE => self.head = at,
            tail => slab[tail].link().next = at,
        }
        self.tail = at;
    }

    pub(crate) fn push_front<T: Linked>(&mut self, slab: &mut Slab<T>, at: u32) {
        *slab[at].link() = Link { prev: NONE, next: self.head };
        match self.head {
            NONE => self.tail = at,
            head => slab[head].link().prev = at,
        }
        self.head = at;
    }

    pub(crate) fn remove<T: Linked>(&mut self, slab: &mut Slab<T>, at: u32) {
        let Link { prev, next } = std::mem::take(slab[at].link());
        match prev {
            NONE => self.head = next,
            prev => slab[prev].link().next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => slab[next].link().prev = prev,
        }
    }

    pub(crate) fn pop_front<T: Linked>(&mut self, slab: &mut Slab<T>) -> Option<u32> {
        let head = self.head()?;
        self.remove(slab, head);
        Some(head)
    }
}
