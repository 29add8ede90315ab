//! Addresses as they are stored: whole, without their local part, or with a keyed hash instead.

use crate::Key;
use aws_lc_rs::hmac;
use mail::pattern::has_wildcard;
use report::{
    Event,
    event::{Accepted, Attempted, Changed, Rejected, Waiting},
};
use std::borrow::Cow;

/// How much of an address is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Addresses {
    /// Whole addresses.
    #[default]
    Full,
    /// Without the local part: `*@example.com`.
    Domain,
    /// With a keyed hash instead of the local part. Who knows an address finds its messages; the key is in the segment, and is
    /// deleted with the segment.
    Hashed,
}

/// Stands for a local part that is not stored.
const NO_LOCAL_PART: &str = "*";
/// Bytes of a keyed hash that are stored.
const HASH_BYTES: usize = 10;
/// Octets of the key that a segment's hashes of addresses are made with.
pub(crate) const KEY_BYTES: usize = 32;

/// Changes the addresses of the events of one segment.
#[derive(Debug)]
pub(crate) struct Concealer {
    mode: Addresses,
    key: [u8; KEY_BYTES],
    hmac: hmac::Key,
}

impl Concealer {
    pub(crate) fn new(mode: Addresses, key: [u8; KEY_BYTES]) -> Self {
        Self { mode, key, hmac: hmac::Key::new(hmac::HMAC_SHA256, &key) }
    }

    pub(crate) fn mode(&self) -> Addresses {
        self.mode
    }

    pub(crate) fn key(&self) -> &[u8; KEY_BYTES] {
        &self.key
    }

    fn local_part(&self, address: &str) -> String {
        if self.mode == Addresses::Domain {
            return NO_LOCAL_PART.to_owned();
        }
        let tag = hmac::sign(&self.hmac, address.to_ascii_lowercase().as_bytes());
        data_encoding::BASE32_NOPAD.encode(&tag.as_ref()[..HASH_BYTES]).to_ascii_lowercase()
    }

    /// Returns an address as it is stored. The null path stays what it is.
    fn address<'a>(&self, address: &'a str) -> Cow<'a, str> {
        if self.mode == Addresses::Full || address.is_empty() {
            return Cow::Borrowed(address);
        }
        let local = self.local_part(address);
        Cow::Owned(match address.rsplit_once('@') {
            Some((_, domain)) => format!("{local}@{domain}"),
            None => local,
        })
    }

    /// Returns a text whose addresses are as they are stored: each word with an `@` in it.
    fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.mode == Addresses::Full || !text.contains('@') {
            return Cow::Borrowed(text);
        }
        let ends = |c: char| c.is_whitespace() || c.is_control() || "<>()[],;:\"'`".contains(c);
        let (mut out, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find('@') {
            let (before, after) = rest.split_at(at);
            let begin = match before.strip_suffix('"').and_then(|quoted| quoted.rfind('"')) {
                Some(quote) => quote,
                None => before.char_indices().rfind(|(_, c)| ends(*c)).map_or(0, |(i, c)| i + c.len_utf8()),
            };
            let length = 1 + after[1..].find(|c| ends(c) || c == '@').unwrap_or(after.len() - 1);
            let domain = after[1..length].trim_end_matches(['.', '!', '?']);
            out.push_str(&before[..begin]);
            out.push_str(&self.address(&format!("{}@{domain}", &before[begin..])));
            rest = &after[1 + domain.len()..];
        }
        out.push_str(rest);
        Cow::Owned(out)
    }

    /// Returns a text about a recipient as it is stored: it may name the mailbox, `delivered to Maildir joe`.
    fn text_about<'a>(&self, text: &'a str, recipient: &str) -> Cow<'a, str> {
        let text = self.text(text);
        let local = recipient.rsplit_once('@').map_or(recipient, |(local, _)| local);
        let user = local.split(['+', '-']).next().unwrap_or(local);
        let is_name = |word: &str| {
            !word.is_empty() && (word.eq_ignore_ascii_case(local) || word.eq_ignore_ascii_case(user))
        };
        let ends = [' ', '/'];
        if self.mode == Addresses::Full || !text.split(ends).any(is_name) {
            return text;
        }
        let hidden = self.local_part(recipient);
        let hide = |part: &str| {
            let word = part.trim_end_matches(ends);
            if is_name(word) { format!("{hidden}{}", &part[word.len()..]) } else { part.to_owned() }
        };
        Cow::Owned(text.split_inclusive(ends).map(hide).collect())
    }

    /// Calls `then` with an event as it is stored.
    pub(crate) fn conceal(&self, event: &Event<'_>, then: &mut dyn FnMut(&Event<'_>)) {
        if self.mode == Addresses::Full {
            return then(event);
        }
        match *event {
            Event::Accepted(a) => {
                let (from, login) = (self.address(a.from), a.login.map(|login| self.address(login)));
                let origin = self.text(a.origin);
                then(&Event::Accepted(Accepted {
                    from: &from,
                    login: login.as_deref(),
                    origin: &origin,
                    ..a
                }));
            }
            Event::Attempt(a) => {
                let (from, to, reply) =
                    (self.address(a.from), self.address(a.to), self.text_about(a.reply, a.to));
                then(&Event::Attempt(Attempted { from: &from, to: &to, reply: &reply, ..a }));
            }
            Event::Waiting(w) => {
                let (from, to, reason) =
                    (self.address(w.from), self.address(w.to), self.text_about(w.reason, w.to));
                then(&Event::Waiting(Waiting { from: &from, to: &to, reason: &reason, ..w }));
            }
            Event::Expired { id, from } => then(&Event::Expired { id, from: &self.address(from) }),
            Event::Deleted { id, from, to, index } => {
                let (from, to) = (self.address(from), self.address(to));
                then(&Event::Deleted { id, from: &from, to: &to, index });
            }
            Event::Changed(c) => {
                let (reason, detail) =
                    (c.reason.map(|text| self.text(text)), c.detail.map(|text| self.text(text)));
                then(&Event::Changed(Changed { reason: reason.as_deref(), detail: detail.as_deref(), ..c }));
            }
            Event::NotMailed { id, to, reason, why } => {
                let (to, reason) = (self.address(to), self.text_about(reason, to));
                then(&Event::NotMailed { id, to: &to, reason: &reason, why });
            }
            Event::Held { id, reason } => then(&Event::Held { id, reason: &self.text(reason) }),
            Event::Discarded { id, from, to, reason } => {
                let (from, to, reason) =
                    (self.address(from), to.map(|to| self.address(to)), self.text(reason));
                then(&Event::Discarded { id, from: &from, to: to.as_deref(), reason: &reason });
            }
            Event::Rejected(r) => {
                let (from, to) = (r.from.map(|from| self.address(from)), r.to.map(|to| self.address(to)));
                let (login, reply) = (r.login.map(|login| self.address(login)), self.text(r.reply));
                then(&Event::Rejected(Rejected {
                    login: login.as_deref(),
                    from: from.as_deref(),
                    to: to.as_deref(),
                    reply: &reply,
                    ..r
                }));
            }
            Event::Suspended { destination, reason, until, since } => {
                then(&Event::Suspended { destination, reason: &self.text(reason), until, since });
            }
            _ => then(event),
        }
    }

    /// Returns the key under which a segment has what is searched for; `None` if the segment cannot tell: it has only the domains of
    /// addresses, or hashes that no wildcard matches.
    pub(crate) fn key_of(&self, key: &Key) -> Option<Key> {
        let asks_of_local_part = |text: &str| {
            let local = text.rsplit_once('@').map_or(text, |(local, _)| local);
            !text.is_empty() && local != NO_LOCAL_PART
        };
        let address = |text: &str| match self.mode {
            Addresses::Domain if asks_of_local_part(text) => None,
            Addresses::Hashed if has_wildcard(text) && asks_of_local_part(text) => None,
            Addresses::Hashed if !has_wildcard(text) => Some(self.address(text).into_owned()),
            _ => Some(text.to_owned()),
        };
        Some(match key {
            Key::Sender(text) => Key::Sender(address(text)?),
            Key::Recipient(text) => Key::Recipient(address(text)?),
            Key::Login(text) => Key::Login(address(text)?),
            other => other.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn concealers() -> [Concealer; 3] {
        [Addresses::Full, Addresses::Domain, Addresses::Hashed].map(|mode| Concealer::new(mode, [7; 32]))
    }

    #[test]
    fn an_address_is_stored_in_the_form_of_the_mode() {
        let [full, domain, hashed] = concealers();
        assert_eq!(full.address("Ann@a.test"), "Ann@a.test");
        assert_eq!(domain.address("Ann@a.test"), "*@a.test");
        assert_eq!(domain.address("postmaster"), "*");
        assert_eq!(domain.address("\"x@y\"@a.test"), "*@a.test");
        let hash = hashed.address("Ann@a.test");
        assert!(hash.len() == 16 + "@a.test".len() && hash.ends_with("@a.test"), "{hash}");
        assert_eq!(hashed.address("ann@a.test"), hash, "letter case does not matter");
        assert_ne!(hashed.address("ann@b.test").split('@').next(), hash.split('@').next());
        assert_ne!(Concealer::new(Addresses::Hashed, [8; 32]).address("ann@a.test"), hash);
        assert!(concealers().iter().all(|one| one.address("").is_empty()));
    }

    #[test]
    fn a_text_about_a_recipient_does_not_name_the_mailbox() {
        let domain = Concealer::new(Addresses::Domain, [1; KEY_BYTES]);
        for (recipient, text, stored) in [
            ("Joe@x.test", "delivered to Maildir joe", "delivered to Maildir *"),
            ("joe+lists@x.test", "delivered to mailbox joe", "delivered to mailbox *"),
            ("joe@x.test", "delivered to mailbox /var/mail/joe", "delivered to mailbox /var/mail/*"),
            ("joe@x.test", "delivered to Maildir /home/joe/Maildir", "delivered to Maildir /home/*/Maildir"),
            ("joe@x.test", "delivered to joey", "delivered to joey"),
            ("@x.test", "2.0.0  Ok", "2.0.0  Ok"),
        ] {
            assert_eq!(domain.text_about(text, recipient), stored);
        }
        let hashed = Concealer::new(Addresses::Hashed, [1; KEY_BYTES]);
        assert!(!hashed.text_about("delivered to Maildir joe", "joe@x.test").contains("joe"));
        let full = Concealer::new(Addresses::Full, [1; KEY_BYTES]);
        assert_eq!(full.text_about("delivered to Maildir joe", "joe@x.test"), "delivered to Maildir joe");
    }

    #[test]
    fn a_text_keeps_no_local_part() {
        let [full, domain, hashed] = concealers();
        for (text, stored) in [
            ("550 5.1.1 <bob@x.test>: no such user", "550 5.1.1 <*@x.test>: no such user"),
            ("no bob@x.test.", "no *@x.test."),
            ("bob@x.test,ann@y.test", "*@x.test,*@y.test"),
            ("no \"a b\"@x.test here", "no *@x.test here"),
            ("no address", "no address"),
            ("@", "*@"),
            ("a@b@c d", "*@b*@c d"),
            ("\u{fc}@\u{e4}.test \u{2028}x@y", "*@\u{e4}.test \u{2028}*@y"),
        ] {
            assert_eq!(domain.text(text), stored, "{text}");
            assert_eq!(full.text(text), text);
            assert!(!hashed.text(text).contains("bob"), "{}", hashed.text(text));
        }
    }

    #[test]
    fn what_only_domains_are_stored_of_is_not_searched() {
        let [full, domain, hashed] = concealers();
        let key = Key::Recipient("bob@x.test".into());
        assert_eq!(full.key_of(&key), Some(key.clone()));
        assert_eq!(domain.key_of(&key), None);
        assert_eq!(domain.key_of(&Key::Sender(String::new())), Some(Key::Sender(String::new())));
        assert!(
            matches!(hashed.key_of(&key), Some(Key::Recipient(text)) if text.ends_with("@x.test") && !text.contains("bob"))
        );
        let other = Key::Domain("x.test".into());
        assert_eq!(domain.key_of(&other), Some(other));
    }
}
