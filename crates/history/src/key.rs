//! Keys: the parts of events by which messages are found.

use ipnet::IpNet;
use mail::{
    QueueId,
    pattern::{domain_of, has_wildcard, matches_destination, matches_pattern},
};
use report::{Event, UnixMicros};
use std::{fmt::Write as _, net::IpAddr};

/// Something that messages are searched for. Texts may have the wildcards `*` and `?`; letter case does not matter, except in
/// a Message-ID without wildcards.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// A queue id; that of a notification finds the message that it is about, too.
    Id(QueueId),
    /// A Message-ID, with or without its brackets.
    MessageId(String),
    /// A reverse-path; empty for `<>`.
    Sender(String),
    /// A recipient's address.
    Recipient(String),
    /// The domain of a recipient's address.
    Domain(String),
    /// A client's address, or a network that has it.
    Client(IpNet),
    /// The name of a user who has logged in.
    Login(String),
    /// The host or the address of a next hop, or the words that the log has instead: `maildir`.
    Relay(String),
    /// A destination: `mx:example.com`, or what stands behind the colon, or the domain of a recipient.
    Destination(String),
}

/// The kind of a key: part of its hash, hence stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Id = 1,
    MessageId,
    Sender,
    Recipient,
    Domain,
    Client,
    Login,
    Relay,
    Destination,
}

impl Key {
    /// Returns how many messages a key of this kind finds, roughly: the smallest number for the fewest.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            Self::Id(_) => 0,
            Self::MessageId(_) => 1,
            Self::Recipient(_) => 2,
            Self::Sender(_) => 3,
            Self::Login(_) => 4,
            Self::Client(_) => 5,
            Self::Domain(_) => 6,
            Self::Relay(_) => 7,
            Self::Destination(_) => 8,
        }
    }

    /// Returns whether the index has the key: not one with wildcards, and not one that stands for several.
    pub(crate) fn is_indexed(&self) -> bool {
        let is_plain = |text: &str| text.is_ascii() && !has_wildcard(text);
        match self {
            Self::Id(_) => true,
            Self::Client(network) => network.prefix_len() == network.max_prefix_len(),
            Self::Destination(text) => is_plain(text) && text.contains(':'),
            Self::MessageId(text) => !has_wildcard(text),
            Self::Sender(text) | Self::Recipient(text) | Self::Domain(text) => is_plain(text),
            Self::Login(text) | Self::Relay(text) => is_plain(text),
        }
    }

    /// Returns the hash under which the index has the key, if it [has](Self::is_indexed) it.
    pub(crate) fn hash(&self) -> u64 {
        let lower = |kind: Kind, text: &str| hash_of_lower(kind as u8, text.as_bytes());
        match self {
            Self::Id(id) => hash_of_id(*id),
            Self::MessageId(text) => hash_of(Kind::MessageId as u8, bare_message_id(text).as_bytes()),
            Self::Sender(text) => lower(Kind::Sender, text),
            Self::Recipient(text) => lower(Kind::Recipient, text),
            Self::Domain(text) => lower(Kind::Domain, text),
            Self::Client(network) => lower(Kind::Client, &network.addr().to_string()),
            Self::Login(text) => lower(Kind::Login, text),
            Self::Relay(text) => lower(Kind::Relay, relay_parts(text).next().unwrap_or_default()),
            Self::Destination(text) => lower(Kind::Destination, text),
        }
    }

    /// Returns octets that an event in binary form has if it has the key, whatever its letters' case: in lower case. `None` for a
    /// key that has more than one form.
    pub(crate) fn needle(&self) -> Option<Vec<u8>> {
        let text = match self {
            Self::Id(_) | Self::Client(_) => return None,
            Self::MessageId(text) => bare_message_id(text),
            Self::Sender(text) | Self::Recipient(text) | Self::Domain(text) => text,
            Self::Login(text) | Self::Destination(text) => text,
            Self::Relay(text) => relay_parts(text).next().unwrap_or_default(),
        };
        let literals = text.split(|c: char| !c.is_ascii() || c == '*' || c == '?');
        let longest = literals.max_by_key(|literal| literal.len()).unwrap_or_default();
        (!longest.is_empty()).then(|| longest.to_ascii_lowercase().into_bytes())
    }

    /// Returns whether the event is found under the key.
    pub(crate) fn matches(&self, event: &Event<'_>) -> bool {
        let same = |one: &str, pattern: &str| matches_pattern(pattern, one);
        match self {
            Self::Id(id) => id_of(event) == Some(*id) || notification_of(event) == Some(*id),
            Self::MessageId(text) => {
                let (wanted, is_pattern) = (bare_message_id(text), has_wildcard(text));
                matches!(event, Event::Accepted(a) if !a.message_id.is_empty()
                    && (bare_message_id(a.message_id) == wanted || is_pattern && same(bare_message_id(a.message_id), wanted)))
            }
            Self::Sender(text) => sender_of(event).is_some_and(|from| same(from, text)),
            Self::Recipient(text) => recipient_of(event).is_some_and(|to| same(to, text)),
            Self::Domain(text) => recipient_of(event).is_some_and(|to| same(domain_of(to), text)),
            Self::Client(network) => match event {
                Event::Accepted(a) => client_of(a.origin)
                    .is_some_and(|client| client.parse().is_ok_and(|ip: IpAddr| network.contains(&ip))),
                Event::Rejected(r) => network.contains(&r.client.ip()),
                _ => false,
            },
            Self::Login(text) => login_of(event).is_some_and(|login| same(login, text)),
            Self::Relay(text) => {
                let Event::Attempt(a) = event else { return false };
                let wanted = relay_parts(text).next().unwrap_or_default();
                relay_parts(a.relay).any(|part| same(part, wanted))
            }
            Self::Destination(text) => {
                destination_of(event).is_some_and(|name| matches_destination(text, name))
                    || recipient_of(event).is_some_and(|to| same(domain_of(to), text))
            }
        }
    }
}

/// Returns whether the history has events of this kind. Connections that accept no message and reject no command are in the log
/// only.
pub fn is_of_history(event: &Event<'_>) -> bool {
    !matches!(
        event,
        Event::Connected { .. }
            | Event::Disconnected { .. }
            | Event::SessionBroken { .. }
            | Event::ClientTls { .. }
            | Event::ClientTlsFailed { .. }
            | Event::LoggedIn { .. }
            | Event::ServerTls { .. }
    )
}

/// Calls `found` with the hash of each key of an event, except that of its own id.
fn hashes_of(event: &Event<'_>, found: &mut impl FnMut(u64)) {
    let mut lower = |kind: Kind, text: &str| found(hash_of_lower(kind as u8, text.as_bytes()));
    if let Some(from) = sender_of(event) {
        lower(Kind::Sender, from);
    }
    if let Some(to) = recipient_of(event) {
        lower(Kind::Recipient, to);
        lower(Kind::Domain, domain_of(to));
    }
    if let Some(login) = login_of(event) {
        lower(Kind::Login, login);
    }
    if let Some(name) = destination_of(event) {
        lower(Kind::Destination, name);
    }
    match event {
        Event::Accepted(a) => {
            if let Some(client) = client_of(a.origin) {
                lower(Kind::Client, client);
            }
            if !a.message_id.is_empty() {
                found(hash_of(Kind::MessageId as u8, bare_message_id(a.message_id).as_bytes()));
            }
        }
        Event::Attempt(a) => relay_parts(a.relay).for_each(|part| lower(Kind::Relay, part)),
        Event::Rejected(r) => {
            let mut text = String::new();
            let _ = write!(text, "{}", r.client.ip());
            lower(Kind::Client, &text);
        }
        Event::Notified { notification, .. } => found(hash_of_id(*notification)),
        _ => {}
    }
}

/// Calls `found` with the hash of each key of an event in a block of these times. The block has the id as a key only if
/// the message was made at another time: else the times of the block find it.
pub(crate) fn hashes_within(
    event: &Event<'_>,
    (first, last): (UnixMicros, UnixMicros),
    found: &mut impl FnMut(u64),
) {
    hashes_of(event, found);
    if let Some(id) = id_of(event) {
        let made = id.made_at().0 * 1000;
        if !(first.0..=last.0).contains(&made) {
            found(hash_of_id(id));
        }
    }
}

/// Returns the hash under which the index has a queue id.
pub(crate) fn hash_of_id(id: QueueId) -> u64 {
    hash_of(Kind::Id as u8, &id.0.to_le_bytes())
}

/// Returns the message that an event is about.
pub fn id_of(event: &Event<'_>) -> Option<QueueId> {
    match event {
        Event::Accepted(a) => Some(a.id),
        Event::Attempt(a) => Some(a.id),
        Event::Waiting(w) => Some(w.id),
        Event::Expired { id, .. }
        | Event::Deleted { id, .. }
        | Event::Held { id, .. }
        | Event::Discarded { id, .. }
        | Event::Notified { id, .. }
        | Event::NotMailed { id, .. }
        | Event::Completed(id) => Some(*id),
        Event::Changed(changed) => Some(changed.id),
        _ => None,
    }
}

fn notification_of(event: &Event<'_>) -> Option<QueueId> {
    if let Event::Notified { notification, .. } = event { Some(*notification) } else { None }
}

/// The numbers of [`Event::Changed`] and [`Event::NotMailed`] in binary form.
const LATER_WITH_ID: std::ops::RangeInclusive<u8> = 25..=26;

/// Returns the id of an event in binary form without reading the rest of it: the first nine variants begin with theirs, and
/// so do those of an operator's change and of a notification that made no mail.
pub(crate) fn peek_id(event: &[u8]) -> Option<QueueId> {
    let (variant, rest) = event.split_first()?;
    if *variant > 8 && !LATER_WITH_ID.contains(variant) {
        return None;
    }
    crate::frame::take_varint(rest).map(|(id, _)| QueueId(id))
}

fn sender_of<'a>(event: &Event<'a>) -> Option<&'a str> {
    match event {
        Event::Accepted(a) => Some(a.from),
        Event::Attempt(a) => Some(a.from),
        Event::Waiting(w) => Some(w.from),
        Event::Expired { from, .. } | Event::Deleted { from, .. } | Event::Discarded { from, .. } => {
            Some(from)
        }
        Event::Rejected(r) => r.from,
        _ => None,
    }
}

/// Returns the recipient that the event names; `None` for events of a whole message or of none.
pub fn recipient_of<'a>(event: &Event<'a>) -> Option<&'a str> {
    match event {
        Event::Attempt(a) => Some(a.to),
        Event::Waiting(w) => Some(w.to),
        Event::Deleted { to, .. } | Event::NotMailed { to, .. } => Some(to),
        Event::Discarded { to, .. } => *to,
        Event::Rejected(r) => r.to,
        _ => None,
    }
}

fn login_of<'a>(event: &Event<'a>) -> Option<&'a str> {
    match event {
        Event::Accepted(a) => a.login,
        Event::Rejected(r) => r.login,
        _ => None,
    }
}

fn destination_of<'a>(event: &Event<'a>) -> Option<&'a str> {
    match event {
        Event::Waiting(w) => Some(w.destination),
        Event::Suspended { destination, .. } | Event::Resumed { destination } => Some(destination),
        _ => None,
    }
}

/// Returns what is before and behind the first of these octets, which is one of ASCII.
fn split_at(text: &str, octet: u8) -> Option<(&str, &str)> {
    memchr::memchr(octet, text.as_bytes()).map(|at| (&text[..at], &text[at + 1..]))
}

/// Returns the address in the text of an origin: `client=[192.0.2.1] helo=…`.
fn client_of(origin: &str) -> Option<&str> {
    split_at(origin.strip_prefix("client=[")?, b']').map(|(client, _)| client)
}

fn bare_message_id(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).unwrap_or(text)
}

/// Returns host and address of `mx.example.com[192.0.2.1]:25`; other texts as they are.
fn relay_parts(relay: &str) -> impl Iterator<Item = &str> {
    let split = split_at(relay, b'[').and_then(|(host, rest)| Some((host, split_at(rest, b']')?.0)));
    let (host, address) = split.map_or((relay, None), |(host, address)| (host, Some(address)));
    Some(host).into_iter().chain(address).filter(|part| !part.is_empty())
}

/// Returns a hash that never changes: it is stored. Not a cryptographic one; who chooses keys that collide makes his own look-ups
/// slow.
pub(crate) fn hash_of(kind: u8, bytes: &[u8]) -> u64 {
    hash_words(kind, bytes, |word| word)
}

/// Returns the hash of a text in lower case.
fn hash_of_lower(kind: u8, bytes: &[u8]) -> u64 {
    hash_words(kind, bytes, lower_word)
}

#[inline(always)]
fn hash_words(kind: u8, bytes: &[u8], change: impl Fn(u64) -> u64) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(FACTOR);
        (product as u64) ^ (product >> 64) as u64
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = mix(u64::from(kind) << 56 ^ bytes.len() as u64, FACTOR.rotate_left(17));
    for word in words {
        hash = mix(hash, change(u64::from_le_bytes(*word)));
    }
    let last = match bytes.last_chunk::<8>() {
        // Eight octets at once, without those that were in a word already.
        Some(end) => u64::from_le_bytes(*end).checked_shr(64 - 8 * rest.len() as u32).unwrap_or(0),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    hash = mix(hash, change(last));
    mix(hash, hash >> 32 ^ FACTOR)
}

/// Changes eight octets to lower case, as [`u8::to_ascii_lowercase`] does with each.
fn lower_word(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let low = word & (EACH * 0x7f);
    // The highest bit of each octet says whether it is beyond `Z`, and not below `A`.
    let (beyond, within) = (low + EACH * (0x7f - u64::from(b'Z')), low + EACH * (0x80 - u64::from(b'A')));
    let upper = (within ^ beyond) & !word & (EACH * 0x80);
    word | upper >> 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::event::{Accepted, Attempted, Changed, Status};

    const ID: QueueId = QueueId(7 << 40);

    proptest::proptest! {
        #[test]
        fn a_hash_in_lower_case_is_that_of_the_text_in_lower_case(bytes: Vec<u8>, text in "[@-\\[`-{]{0,40}") {
            for bytes in [&bytes[..], text.as_bytes()] {
                let mut padded = [0; 8];
                padded[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
                let lower = u64::from_le_bytes(padded.map(|byte| byte.to_ascii_lowercase()));
                proptest::prop_assert_eq!(lower_word(u64::from_le_bytes(padded)), lower);
                proptest::prop_assert_eq!(hash_of_lower(3, bytes), hash_of(3, &bytes.to_ascii_lowercase()));
            }
        }
    }

    /// Hashes are in files that were written before.
    #[test]
    fn hashes_never_change() {
        let texts =
            ["", "a", "seven77", "eight888", "joe@example.com", "0123456789abcdef", "0123456789abcdefg"];
        let hashes = texts.map(|text| hash_of(2, text.as_bytes()));
        assert_eq!(
            format!("{hashes:x?}"),
            "[80b5b51fcf67370a, b1cde00b0bfcc0bb, f161de91132b2126, 3793e677f18e485f, bc5fc554287ca3c4, f36ee513e64db976, a07edc00edbc0ec]"
        );
    }

    fn accepted() -> Event<'static> {
        Event::Accepted(Accepted {
            id: ID,
            from: "Ann@A.test",
            recipient_count: 1,
            size_bytes: 1,
            origin: "client=[2001:db8::1] helo=x proto=ESMTP",
            message_id: "<M.1@a.test>",
            login: Some("ann"),
            requires_tls: false,
            release: None,
            deliver_by: None,
            priority: None,
        })
    }

    fn attempt(relay: &str) -> Event<'_> {
        Event::Attempt(Attempted {
            id: ID,
            from: "",
            to: "\"x@y\"@B.test",
            status: Status::Sent,
            dsn: mail::Enhanced(2, 0, 0),
            relay,
            tls: "",
            reply: "250",
            age_ms: 0,
            queued_ms: 0,
            setup_ms: 0,
            transfer_ms: 0,
            index: None,
        })
    }

    fn hashes(event: &Event<'_>) -> Vec<u64> {
        let mut all = Vec::new();
        hashes_of(event, &mut |hash| all.push(hash));
        all
    }

    #[test]
    fn what_matches_is_in_the_index_and_nothing_else() {
        let keys = [
            Key::MessageId("M.1@a.test".into()),
            Key::Sender("ann@a.TEST".into()),
            Key::Client("2001:db8::1/128".parse().unwrap()),
            Key::Login("ANN".into()),
            Key::Sender(String::new()),
            Key::Recipient("\"x@y\"@b.test".into()),
            Key::Domain("b.test".into()),
            Key::Relay("MX.b.test".into()),
            Key::Relay("192.0.2.1".into()),
            Key::MessageId("m.1@a.test".into()),
            Key::Domain("a.test".into()),
            Key::Relay("mx".into()),
        ];
        for (event, matched) in [(accepted(), 0..4), (attempt("mx.b.test[192.0.2.1]:25"), 4..9)] {
            let hashes = hashes(&event);
            for (number, key) in keys.iter().enumerate() {
                assert_eq!(key.matches(&event), matched.contains(&number), "{key:?}");
                assert_eq!(hashes.contains(&key.hash()), matched.contains(&number), "{key:?}");
            }
        }
        assert!(Key::Relay("maildir".into()).matches(&attempt("maildir")));
        let whole = Key::Relay("mx.b.test[192.0.2.9]:25".into());
        assert!(whole.matches(&attempt("mx.b.test[192.0.2.1]:25")), "the host counts");
    }

    #[test]
    fn the_id_of_an_event_is_found_without_reading_it() {
        for event in [
            accepted(),
            attempt("x"),
            Event::Completed(ID),
            Event::Held { id: ID, reason: "r" },
            Event::Changed(Changed {
                id: ID,
                action: "hold",
                user: "root",
                uid: 0,
                reason: None,
                detail: None,
            }),
            Event::NotMailed { id: ID, to: "a@b", reason: "r", why: report::event::NotMailed::Limit },
            Event::Reloaded,
            Event::Resumed { destination: "mx:x" },
        ] {
            let mut bytes = Vec::new();
            report::event::encode(&event, &mut bytes);
            assert_eq!(peek_id(&bytes), id_of(&event), "{event:?}");
        }
        assert_eq!(peek_id(&[]), None);
    }

    #[test]
    fn stored_hashes_stay_as_they_are() {
        assert_eq!(Key::Sender("a@b.test".into()).hash(), 3_139_938_572_122_310_553);
    }
}
