//! The senders of a route.

use crate::value::OrMap;
use mail::ReversePath;
use maps::Reference;
use policy::AddressPattern;

/// The senders of a route; empty: all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Senders {
    /// Patterns, one of which matches.
    pub patterns: Vec<AddressPattern>,
    /// Files whose keys match: an address, an address without its detail, `@domain` or a domain.
    pub maps: Vec<Reference>,
}

impl Senders {
    pub(crate) fn new(list: Vec<OrMap<AddressPattern>>) -> Self {
        let (patterns, maps) = OrMap::split(list);
        Self { patterns, maps }
    }

    /// Returns whether the route is for all senders.
    pub fn is_all(&self) -> bool {
        self.patterns.is_empty() && self.maps.is_empty()
    }

    /// Returns whether a sender matches; `has` tells whether the maps have a key.
    pub fn matches(&self, sender: &ReversePath, has: impl Fn(&str) -> bool) -> bool {
        if self.is_all() || self.patterns.iter().any(|pattern| pattern.matches_sender(sender)) {
            return true;
        }
        let ReversePath::Mailbox(mailbox) = sender else { return false };
        let keys = rewrite::map_keys(mailbox, rewrite::Separator::parse("+"));
        !self.maps.is_empty() && keys.chain([mailbox.domain().key().into_owned()]).any(|key| has(&key))
    }
}
