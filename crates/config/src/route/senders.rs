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
    /// Maps whose keys match: an address, an address without its detail, `@domain` or a domain.
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
        self.match_by_pattern(sender) || self.keys(sender).any(|key| has(&key))
    }

    /// Returns whether a sender matches without the maps.
    pub fn match_by_pattern(&self, sender: &ReversePath) -> bool {
        self.is_all() || self.patterns.iter().any(|pattern| pattern.matches_sender(sender))
    }

    /// Returns the keys of a sender in the maps; none if there are no maps.
    pub fn keys(&self, sender: &ReversePath) -> impl Iterator<Item = String> {
        let mailbox = match sender {
            ReversePath::Mailbox(mailbox) if !self.maps.is_empty() => Some(mailbox),
            _ => None,
        };
        mailbox.into_iter().flat_map(|mailbox| {
            let keys = rewrite::map_keys(mailbox, rewrite::Separator::parse("+"), false);
            keys.chain([mailbox.domain().key().into_owned()])
        })
    }
}
