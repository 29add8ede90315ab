//! The senders and the recipients of a route.

use crate::value::OrMap;
use mail::{ForwardPath, Mailbox, ReversePath};
use maps::Reference;
use policy::{AddressPattern, AddressPatterns};
use rewrite::Separator;

/// The senders or the recipients of a route; empty: all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteAddresses {
    /// Patterns, one of which matches.
    pub patterns: AddressPatterns,
    /// Maps whose keys match: an address, an address without its detail, or `@domain`; for senders, a domain as well.
    pub maps: Vec<Reference>,
    /// The separator of a detail.
    separator: Option<Separator>,
}

impl RouteAddresses {
    pub(crate) fn new(list: Vec<OrMap<AddressPattern>>, separator: Option<Separator>) -> Self {
        let (patterns, maps) = OrMap::split(list);
        Self { patterns: patterns.into(), maps, separator }
    }

    /// Returns whether the route is for all addresses.
    pub fn is_all(&self) -> bool {
        self.patterns.is_empty() && self.maps.is_empty()
    }

    /// Returns whether a sender matches; `has` tells whether the maps have a key.
    pub fn match_sender(&self, sender: &ReversePath, has: impl Fn(&str) -> bool) -> bool {
        self.match_sender_by_pattern(sender) || self.sender_keys(sender).any(|key| has(&key))
    }

    /// Returns whether a sender matches without the maps.
    pub fn match_sender_by_pattern(&self, sender: &ReversePath) -> bool {
        self.is_all() || self.patterns.match_sender(sender, self.separator)
    }

    /// Returns whether a recipient matches without the maps.
    pub fn match_recipient_by_pattern(&self, path: &ForwardPath) -> bool {
        self.is_all()
            || path.mailbox().is_some_and(|mailbox| self.patterns.match_mailbox(mailbox, self.separator))
    }

    /// Returns the keys of a sender in the maps; none if there are no maps.
    pub fn sender_keys(&self, sender: &ReversePath) -> impl Iterator<Item = String> {
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

    /// Returns the keys of a recipient in the maps.
    pub fn recipient_keys(&self, mailbox: &Mailbox) -> impl Iterator<Item = String> {
        rewrite::map_keys(mailbox, self.separator, false)
    }

    /// Returns the keys of a recipient in maps of next hops: the address, the address without its detail, the domain, each domain above
    /// it with a dot in front, and `*` (transport(5) of Postfix).
    pub fn next_hop_keys(&self, mailbox: &Mailbox) -> Vec<String> {
        let domain = mailbox.domain().key().into_owned();
        let mut keys: Vec<String> =
            self.recipient_keys(mailbox).filter(|key| !key.starts_with('@')).collect();
        let above = domain.match_indices('.').map(|(at, _)| domain[at..].to_owned()).collect::<Vec<_>>();
        keys.push(domain);
        keys.extend(above);
        keys.push("*".to_owned());
        keys
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
            RouteAddresses::new(list(), Separator::parse(separator)).match_sender(&sender, |_| false)
        };
        assert!(
            matches("+", "Joe+list@a.test") && matches("-", "joe-list@a.test") && matches("", "joe@a.test")
        );
        assert!(!matches("+", "joe-list@a.test") && !matches("", "joe+list@a.test") && !matches("+", ""));
        let map = OrMap::Map(Reference::Named("m".into()));
        let of_map = RouteAddresses::new(vec![map], Separator::parse("-"));
        let sender = ReversePath::parse("joe-list@a.test", true).unwrap();
        assert!(
            of_map.match_sender(&sender, |key| key == "joe@a.test")
                && !of_map.match_sender(&sender, |key| key == "joe")
        );
    }

    #[test]
    fn maps_of_next_hops_are_asked_as_postfix_asks() {
        let mailbox = Mailbox::parse("Joe+x@a.b.test", true).unwrap();
        let recipients = RouteAddresses::new(Vec::new(), Separator::parse("+"));
        let keys = ["joe+x@a.b.test", "joe@a.b.test", "a.b.test", ".b.test", ".test", "*"];
        assert_eq!(recipients.next_hop_keys(&mailbox), keys);
    }
}
