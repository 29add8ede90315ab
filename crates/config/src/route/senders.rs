//! The senders of a route.

use crate::value::OrMap;
use mail::ReversePath;
use maps::Reference;
use policy::{AddressPattern, AddressPatterns};
use rewrite::Separator;

/// The senders of a route; empty: all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Senders {
    /// Patterns, one of which matches.
    pub patterns: AddressPatterns,
    /// Maps whose keys match: an address, an address without its detail, `@domain` or a domain.
    pub maps: Vec<Reference>,
    /// The separator of a detail.
    separator: Option<Separator>,
}

impl Senders {
    pub(crate) fn new(list: Vec<OrMap<AddressPattern>>, separator: Option<Separator>) -> Self {
        let (patterns, maps) = OrMap::split(list);
        Self { patterns: patterns.into(), maps, separator }
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
        self.is_all() || self.patterns.match_sender(sender, self.separator)
    }

    /// Returns the keys of a sender in the maps; none if there are no maps.
    pub fn keys(&self, sender: &ReversePath) -> impl Iterator<Item = String> {
        let mailbox = match sender {
            ReversePath::Mailbox(mailbox) if !self.maps.is_empty() => Some(mailbox),
            _ => None,
        };
        let separator = self.separator;
        mailbox.into_iter().flat_map(move |mailbox| {
            let keys = rewrite::map_keys(mailbox, separator, false);
            keys.chain([mailbox.domain().key().into_owned()])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_with_a_detail_matches_as_in_rules() {
        let list = || vec![OrMap::Item(AddressPattern::parse("joe@a.test").unwrap())];
        let matches = |separator: &str, sender: &str| {
            let sender = ReversePath::parse(sender, true).unwrap();
            Senders::new(list(), Separator::parse(separator)).matches(&sender, |_| false)
        };
        assert!(
            matches("+", "Joe+list@a.test") && matches("-", "joe-list@a.test") && matches("", "joe@a.test")
        );
        assert!(!matches("+", "joe-list@a.test") && !matches("", "joe+list@a.test") && !matches("+", ""));
        let map = OrMap::Map(Reference::Named("m".into()));
        let of_map = Senders::new(vec![map], Separator::parse("-"));
        let sender = ReversePath::parse("joe-list@a.test", true).unwrap();
        assert!(
            of_map.matches(&sender, |key| key == "joe@a.test")
                && !of_map.matches(&sender, |key| key == "joe")
        );
    }
}
