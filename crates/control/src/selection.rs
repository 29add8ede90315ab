//! The selection of messages and recipients by an operator.

use super::protocol::{Id, MessageInfo, RecipientInfo, Status};
use ipnet::IpNet;
use mail::{
    Origin, QueueId,
    pattern::{bare_address, domain_of, matches_destination, matches_pattern},
};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A selected message with its selected recipients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matched {
    /// Queue id of the selected message.
    pub id: QueueId,
    /// The selected recipients, by their place in the envelope, in order; `None`: all that are left.
    pub recipients: Option<Vec<u32>>,
    /// The operator's reason for what is done to it.
    pub reason: Option<Box<str>>,
}

impl Matched {
    /// Selects the message with all of its recipients.
    #[cfg(any(test, feature = "fake"))]
    pub fn whole(id: u64) -> Self {
        Self { id: QueueId(id), recipients: None, reason: None }
    }
}

/// Messages that meet every condition given; with none, nothing unless `all` is set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Selection {
    /// True if every message is meant.
    pub all: bool,
    /// Messages with one of these queue ids.
    pub ids: Vec<Id>,
    /// The reverse-path; `<>` or the empty text for the null path.
    pub sender: Option<String>,
    /// Messages that are still to be delivered to this address.
    pub recipient: Option<String>,
    /// Messages that are still to be delivered to this domain.
    pub domain: Option<String>,
    /// Messages that came from this address or network.
    pub client: Option<IpNet>,
    /// Messages that this user has submitted.
    pub login: Option<String>,
    /// The destination of a recipient that is left: its domain, `mx:example.com`, or what stands behind the colon.
    pub destination: Option<String>,
    /// Messages accepted longer ago than this, in milliseconds.
    pub older_ms: Option<u64>,
    /// Messages accepted less long ago than this, in milliseconds.
    pub younger_ms: Option<u64>,
    /// Messages with a recipient in this state.
    pub status: Option<Status>,
}

impl Selection {
    /// Selects every message.
    pub fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    /// Returns whether there is no condition.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Drops the conditions for which a message's envelope has to be read.
    pub fn without_addresses(&self) -> Self {
        let mut known =
            Self { sender: None, recipient: None, domain: None, client: None, login: None, ..self.clone() };
        known.all |= known.is_empty() && !self.is_empty();
        known
    }

    /// Returns whether the message meets every condition.
    pub fn matches(&self, message: &MessageInfo, now_ms: u64) -> bool {
        if self.is_empty() || (!self.ids.is_empty() && !self.ids.contains(&message.id)) {
            return false;
        }
        let age_ms = now_ms.saturating_sub(message.arrived_ms);
        let is_whole = message.damaged.is_none();
        let sender = |pattern: &String| is_whole && matches_pattern(bare_address(pattern), &message.sender);
        let login = |pattern: &String| {
            let login = message.options.as_ref().and_then(|options| options.login.as_deref());
            is_whole && login.is_some_and(|login| matches_pattern(pattern, login))
        };
        let client = |network: &IpNet| match Origin::parse(&message.origin) {
            Origin::Smtp { client, .. } => network.contains(&client.to_canonical()),
            _ => false,
        };
        self.older_ms.is_none_or(|least| age_ms > least)
            && self.younger_ms.is_none_or(|most| age_ms < most)
            && self.sender.as_ref().is_none_or(sender)
            && self.login.as_ref().is_none_or(login)
            && self.client.as_ref().is_none_or(client)
            && (!self.asks_of_recipients() || message.recipients.iter().any(|r| self.matches_recipient(r)))
    }

    /// Returns the selected recipients of a message that matches; `None`: all that are left.
    pub fn recipients_meant(&self, message: &MessageInfo) -> Option<Vec<u32>> {
        if !self.asks_of_recipients() {
            return None;
        }
        let left = (0..).zip(&message.recipients).filter(|(_, r)| r.status != Status::Done);
        let (matched, others): (Vec<_>, Vec<_>) = left.partition(|(_, r)| self.matches_recipient(r));
        (!others.is_empty()).then(|| matched.into_iter().map(|(index, _)| index).collect())
    }

    /// Returns whether there is a condition on recipients.
    pub fn asks_of_recipients(&self) -> bool {
        self.recipient.is_some()
            || self.domain.is_some()
            || self.destination.is_some()
            || self.status.is_some()
    }

    /// One recipient must meet all the conditions on recipients: "held for example.com" is not
    /// met by one that is held and another for example.com.
    fn matches_recipient(&self, r: &RecipientInfo) -> bool {
        let domain = domain_of(&r.address);
        let destination = |pattern: &String| {
            matches_pattern(pattern, domain) || matches_destination(pattern, &r.destination)
        };
        // What is settled is not in the queue any more, unless one asks for it.
        (r.status != Status::Done || self.status == Some(Status::Done))
            && self.status.is_none_or(|status| status.selects(r.status))
            && self.recipient.as_ref().is_none_or(|pattern| {
                !r.address.is_empty() && matches_pattern(bare_address(pattern), &r.address)
            })
            && self.domain.as_ref().is_none_or(|pattern| {
                !domain.is_empty() && matches_pattern(pattern.trim_start_matches('@'), domain)
            })
            && self.destination.as_ref().is_none_or(destination)
    }
}

/// Reads the address of a client, or a network of clients: `192.0.2.7`, `192.0.2.0/24`, `2001:db8::/32`.
///
/// # Errors
/// It is neither; the text says what to write.
pub fn parse_clients(text: &str) -> Result<IpNet, String> {
    let of_address = || text.parse::<IpAddr>().map(|address| IpNet::from(address.to_canonical()));
    let network = text.parse::<IpNet>().map(|network| network.trunc());
    network.or_else(|_| of_address()).map_err(|_| {
        format!(
            "{text:?} is neither an address nor a network: write 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    #[test]
    fn nothing_is_selected_by_no_condition() {
        assert!(!Selection::default().matches(&fake::message(1), 0));
        assert!(Selection::all().matches(&fake::message(1), 0));
    }

    #[test]
    fn every_condition_must_be_met() {
        let message = fake::message(1); // accepted at 1000 ms, alice@a.test → bob@b.test (waiting), carol@c.test (held)
        let met = |change: fn(&mut Selection)| {
            let mut selection = Selection::default();
            change(&mut selection);
            selection.matches(&message, 11_000)
        };
        assert!(met(|s| s.sender = Some("alice@*".to_owned())));
        assert!(!met(|s| s.sender = Some("<>".to_owned())));
        assert!(met(|s| s.recipient = Some("BOB@b.test".to_owned())));
        for name in ["b.test", "mx:b.test", "mx:*", "*.test"] {
            let selection = Selection { destination: Some(name.to_owned()), ..Selection::default() };
            assert!(selection.matches(&message, 11_000), "{name}");
        }
        assert!(
            met(|s| s.domain = Some("@B.TEST".to_owned())) && !met(|s| s.domain = Some("test".to_owned()))
        );
        assert!(met(|s| s.client = parse_clients("127.0.0.0/8").ok()));
        assert!(!met(|s| s.client = parse_clients("127.0.0.2").ok()));
        assert!(!met(|s| s.login = Some("*".to_owned())), "nobody logged in");
        assert!(met(|s| s.older_ms = Some(9_999)) && !met(|s| s.older_ms = Some(10_000)));
        assert!(met(|s| s.younger_ms = Some(10_001)) && !met(|s| s.younger_ms = Some(10_000)));
        assert!(Status::Deferred.selects(Status::Waiting) && Status::Deferred.selects(Status::Suspended));
        assert!(met(|s| s.status = Some(Status::Held)) && !met(|s| s.status = Some(Status::Ready)));
        assert!(!met(|s| {
            s.all = true;
            s.recipient = Some("nobody@x".to_owned());
        }));
    }

    #[test]
    fn conditions_on_recipients_are_met_by_one_and_the_same() {
        let mut selection = Selection { status: Some(Status::Held), ..Selection::default() };
        selection.destination = Some("c.test".to_owned());
        assert!(selection.matches(&fake::message(1), 0));
        selection.destination = Some("b.test".to_owned());
        assert!(!selection.matches(&fake::message(1), 0));
    }

    #[test]
    fn conditions_on_recipients_mean_those_that_meet_them_and_others_mean_all() {
        let held = Selection { status: Some(Status::Held), ..Selection::default() };
        let mut message = fake::message(1);
        assert_eq!(held.recipients_meant(&message), Some(vec![1]));
        assert_eq!(Selection::all().recipients_meant(&message), None);
        message.recipients[0].status = Status::Done;
        assert_eq!(held.recipients_meant(&message), None, "all that are left");
    }

    #[test]
    fn settled_recipients_are_no_longer_found() {
        let mut message = fake::message(1);
        message.recipients[0].status = Status::Done;
        let selection = Selection { recipient: Some("bob@*".to_owned()), ..Selection::default() };
        assert!(!selection.matches(&message, 0));
    }
}
