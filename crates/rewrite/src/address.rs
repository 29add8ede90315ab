//! Changes of one address: sub-addressing, canonical and generic maps, masquerading.

use crate::targets::{Target, TargetList};
use mail::Mailbox;

/// Longest address that every server has to take: a path has at most 256 octets with its brackets (RFC 5321 §4.5.3.1.3).
const PATH_MAX_BYTES: usize = 254;

/// The character between a user and a detail in a local part (RFC 5233): `+` in `joe+lists`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Separator(char);

impl Separator {
    /// Reads a separator: one printable ASCII character that a local part can have without quotes.
    pub fn parse(text: &str) -> Option<Self> {
        let mut chars = text.chars();
        let (first, None) = (chars.next()?, chars.next()) else { return None };
        "+-=#_.".contains(first).then_some(Self(first))
    }

    /// Returns the character, such as `+`.
    pub fn as_char(self) -> char {
        self.0
    }

    /// Splits a local part into user and detail. A quoted local part, `owner-…` and `…-request` are not split.
    pub fn split(self, local: &str) -> Option<(&str, &str)> {
        let has_prefix = local.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("owner-"));
        let has_suffix = local.len() > 8
            && local.get(local.len() - 8..).is_some_and(|end| end.eq_ignore_ascii_case("-request"));
        if local.starts_with('"') || self.0 == '-' && (has_prefix || has_suffix) {
            return None;
        }
        local.split_once(self.0).filter(|(user, _)| !user.is_empty())
    }
}

/// The keys under which an address is looked up in a map of addresses, in their order, which is that of Postfix: the
/// address, the address without its detail, for a domain of this server the names without the domain, and the whole domain.
/// Quotes that the address does not need are left out: both forms are the same address (RFC 5321 §4.1.2).
pub fn map_keys(
    mailbox: &Mailbox,
    separator: Option<Separator>,
    is_own_domain: bool,
) -> impl Iterator<Item = String> + use<> {
    let (local, domain) = (mailbox.plain_local().into_owned(), mailbox.domain().key());
    // `"news+a b"` is the user `news` with a detail that needs the quotes: VERP makes such addresses.
    let meaning = if local.starts_with('"') { mailbox.local_name() } else { local.clone() };
    let user = separator.and_then(|s| s.split(&meaning)).map(|(user, _)| user.to_owned());
    let whole = format!("{local}@{domain}");
    // In quotes if the user needs them.
    let written = |user: &String| {
        let as_is = || Some(user.clone()).filter(|_| meaning == local);
        as_is().or_else(|| at_domain(user, &domain).map(|one| one.local().to_owned()))
    };
    let user = user.as_ref().and_then(written);
    let without = user.as_ref().map(|user| format!("{user}@{domain}"));
    let user = user.filter(|user| !user.starts_with('"'));
    // A name in quotes could have an `@`.
    let is_quoted = local.starts_with('"');
    let names =
        [Some(local).filter(|_| !is_quoted), user].into_iter().flatten().filter(move |_| is_own_domain);
    let any = format!("@{domain}");
    std::iter::once(whole).chain(without).chain(names).chain([any])
}

/// Returns whether the local part of an address is this name, which is in lower case, with or without a detail.
pub fn is_named(mailbox: &Mailbox, separator: Option<Separator>, name: &str) -> bool {
    let local = mailbox.local_unquoted();
    let local = mail::fold(&local);
    let user = separator.and_then(|separator| separator.split(&local)).map(|(user, _)| user);
    user.unwrap_or(&local) == name
}

/// Returns the reverse-path that names a recipient (VERP): `news+joe=example.net@example.com` for the sender
/// `news@example.com` and the recipient `joe@example.net`; in quotes if one of the two needs them. `None` where that is no address, is
/// too long, or where the sender has a detail: the sender stays then.
pub fn verp(sender: &Mailbox, recipient: &Mailbox, separator: Separator) -> Option<Mailbox> {
    let (user, joe) = (sender.local_unquoted(), recipient.local_unquoted());
    if recipient.domain().literal().is_some() {
        return None;
    }
    let detail = format!("{joe}={}", recipient.domain().as_str());
    let local = format!("{user}{}{detail}", separator.as_char());
    // A bounce has to be mail for the sender: `owner-list-joe` and `a+b+joe` are not split behind the sender.
    if separator.split(&local) != Some((&*user, &*detail)) {
        return None;
    }
    let path = at_domain(&local, sender.domain().as_str());
    path.filter(|path| path.as_str().len() <= PATH_MAX_BYTES)
}

/// Returns the address with another local part, in quotes if it needs them; `None` if that is no address.
pub(crate) fn at_domain(local: &str, domain: &str) -> Option<Mailbox> {
    let plain = Mailbox::parse(&format!("{local}@{domain}"), true);
    if let Some(mailbox) = plain.ok().filter(|mailbox| mailbox.local() == local) {
        return Some(mailbox);
    }
    let escaped = local.replace('\\', "\\\\").replace('"', "\\\"");
    Mailbox::parse(&format!("\"{escaped}\"@{domain}"), true).ok()
}

/// Adds a detail to an address that has none, as a map does with the address that it returns for `user+detail`.
pub fn with_detail(mailbox: Mailbox, separator: Separator, detail: &str) -> Mailbox {
    if mailbox.local().starts_with('"') || separator.split(mailbox.local()).is_some() {
        return mailbox;
    }
    let text = format!("{}{}{detail}@{}", mailbox.local(), separator.0, mailbox.domain().as_str());
    Mailbox::parse(&text, true).unwrap_or(mailbox)
}

/// Steps from one canonical address to the next; a loop ends then.
pub const CANONICAL_STEPS_MAX: usize = 10;

/// Returns the address that a canonical or generic map gives for an address. `value` is the map's answer for `key`, one
/// of [`map_keys`]; a name without a domain is at `domain`.
///
/// # Errors
/// The value is not one address.
pub fn by_map(
    mailbox: &Mailbox,
    separator: Option<Separator>,
    key: &str,
    value: &str,
    domain: &str,
) -> Result<Mailbox, String> {
    let mut list = TargetList::new(value);
    let first = list.next().ok_or("the value is empty; write one address")?;
    if list.next().is_some() {
        return Err("the value has several addresses; write one address".to_owned());
    }
    let changed = match first.map_err(|error| error.to_string())? {
        Target::Mailbox(changed) => Some(changed),
        Target::Domain(domain) => return at_domain_of(mailbox, &domain),
        Target::Local(name) => at_domain(&name, domain),
        _ => None,
    };
    let changed = changed.ok_or_else(|| "the value is not an address; write user@example.com".to_owned())?;
    Ok(keep_detail(mailbox, separator, key, changed))
}

/// Returns the same user at another domain.
///
/// # Errors
/// The address is too long for this domain.
pub(crate) fn at_domain_of(mailbox: &Mailbox, domain: &str) -> Result<Mailbox, String> {
    Mailbox::parse(&format!("{}@{domain}", mailbox.local()), true).map_err(|error| error.to_string())
}

/// Adds the detail of the original address, where the map was asked without it.
pub(crate) fn keep_detail(
    original: &Mailbox,
    separator: Option<Separator>,
    key: &str,
    changed: Mailbox,
) -> Mailbox {
    let Some(separator) = separator else { return changed };
    let Some((user, detail)) = separator.split(original.local()) else { return changed };
    let asked = key.rfind('@').map_or(key, |at| &key[..at]);
    if asked == mail::fold(user) { with_detail(changed, separator, detail) } else { changed }
}

/// Hides the hosts of a domain: `root@host.example.com` becomes `root@example.com`, where `domains` has `example.com`.
/// The first domain that matches decides. Domains are as [`mail::Domain::key`] gives them. Returns `None` for addresses
/// that stay.
pub fn masquerade(mailbox: &Mailbox, domains: &[String]) -> Option<Mailbox> {
    let key = mailbox.domain().key();
    let is_below = |domain: &&String| {
        key.strip_suffix(domain.as_str()).is_some_and(|host| host.len() > 1 && host.ends_with('.'))
    };
    // The domain itself stays, also when it is below another one of the list.
    if domains.iter().any(|domain| *domain == *key) {
        return None;
    }
    at_domain_of(mailbox, domains.iter().find(is_below)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox(text: &str) -> Mailbox {
        Mailbox::parse(text, true).unwrap()
    }

    #[test]
    fn quotes_that_an_address_does_not_need_are_not_looked_up() {
        let keys = |text: &str| map_keys(&mailbox(text), Some(Separator('+')), false).collect::<Vec<_>>();
        assert_eq!(keys("\"Joe\"@b.test"), ["joe@b.test", "@b.test"]);
        assert_eq!(keys("\"joe+x\"@b.test"), ["joe+x@b.test", "joe@b.test", "@b.test"]);
        assert_eq!(keys("\"a b\"@b.test"), ["\"a b\"@b.test", "@b.test"]);
        assert_eq!(keys("\"a..b\"@b.test"), ["\"a..b\"@b.test", "@b.test"]);
        assert_eq!(keys("joe+x@b.test"), ["joe+x@b.test", "joe@b.test", "@b.test"]);
    }

    #[test]
    fn a_sender_that_would_not_get_the_bounces_keeps_its_reverse_path() {
        let verp = |sender: &str| {
            let [sender, recipient] = [sender, "joe@b.test"].map(|text| Mailbox::parse(text, true).unwrap());
            super::verp(&sender, &recipient, Separator('-')).map(|path| path.to_string())
        };
        assert_eq!(verp("news@a.test").as_deref(), Some("news-joe=b.test@a.test"));
        assert_eq!((verp("owner-list@a.test"), verp("my-news@a.test")), (None, None));
    }

    #[test]
    fn a_reverse_path_names_the_recipient_and_its_bounces_come_back() {
        let verp = |sender: &str, recipient: &str| {
            let [sender, recipient] = [sender, recipient].map(|text| Mailbox::parse(text, true).unwrap());
            super::verp(&sender, &recipient, Separator('+')).map(|path| path.to_string())
        };
        let path = verp("news@a.test", "joe+x@b.test").unwrap();
        assert_eq!(path, "news+joe+x=b.test@a.test");
        let local = path.split('@').next().unwrap();
        assert_eq!(Separator('+').split(local), Some(("news", "joe+x=b.test")));
        assert_eq!(Separator('+').split("owner-list+joe=b.test").map(|(user, _)| user), Some("owner-list"));
        assert_eq!(verp("news@a.test", "jörg@b.test").as_deref(), Some("news+jörg=b.test@a.test"));
        let quoted = verp("news@a.test", "\"a b\"@b.test").unwrap();
        assert_eq!(quoted, "\"news+a b=b.test\"@a.test");
        assert_eq!(verp("news@a.test", "\"joe\"@b.test").as_deref(), Some("news+joe=b.test@a.test"));
        let keys: Vec<_> = map_keys(&mailbox(&quoted), Some(Separator('+')), true).collect();
        assert_eq!(keys, [&*quoted, "news@a.test", "news", "@a.test"]);
        let quoted = verp("\"a b\"@a.test", "joe@b.test").unwrap();
        assert_eq!(quoted, "\"a b+joe=b.test\"@a.test");
        let keys: Vec<_> = map_keys(&mailbox(&quoted), Some(Separator('+')), true).collect();
        assert!(keys.contains(&"\"a b\"@a.test".into()), "{keys:?}");
        assert_eq!(verp("\"news\"@a.test", "joe@b.test").as_deref(), Some("news+joe=b.test@a.test"));
        for (sender, recipient) in [("news@a.test", "joe@[192.0.2.1]"), ("news+x@a.test", "joe@b.test")] {
            assert_eq!(verp(sender, recipient), None, "{sender} {recipient}");
        }
        assert_eq!(verp("news@a.test", &format!("{}@b.test", "x".repeat(240))), None, "too long");
    }

    #[test]
    fn a_local_part_is_split_at_the_first_separator() {
        let plus = Separator::parse("+").unwrap();
        assert_eq!(plus.split("joe+a+b"), Some(("joe", "a+b")));
        for whole in ["joe", "+joe", "\"joe+a\""] {
            assert_eq!(plus.split(whole), None, "{whole}");
        }
        let hyphen = Separator::parse("-").unwrap();
        assert_eq!(hyphen.split("joe-a"), Some(("joe", "a")));
        for whole in ["owner-list", "OWNER-list", "list-request", "owner-"] {
            assert_eq!(hyphen.split(whole), None, "{whole}");
        }
        for bad in ["", "++", "@", "a", "\"", "é"] {
            assert_eq!(Separator::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_address_is_looked_up_from_the_narrowest_key_to_the_widest() {
        let keys = |text: &str, separator| map_keys(&mailbox(text), separator, false).collect::<Vec<_>>();
        let plus = Separator::parse("+");
        assert_eq!(keys("Joe+X@B.test", plus), ["joe+x@b.test", "joe@b.test", "@b.test"]);
        assert_eq!(keys("Joe+X@B.test", None), ["joe+x@b.test", "@b.test"]);
        assert_eq!(keys("joe@bücher.test", plus), ["joe@xn--bcher-kva.test", "@xn--bcher-kva.test"]);
    }

    #[test]
    fn names_without_a_domain_are_keys_for_domains_of_this_server() {
        let keys = |text: &str| map_keys(&mailbox(text), Some(Separator('+')), true).collect::<Vec<_>>();
        assert_eq!(keys("Joe@B.test"), ["joe@b.test", "joe", "@b.test"]);
        assert_eq!(keys("joe+X@b.test"), ["joe+x@b.test", "joe@b.test", "joe+x", "joe", "@b.test"]);
        assert_eq!(keys("\"joe\"@b.test"), ["joe@b.test", "joe", "@b.test"]);
        assert_eq!(keys("\"a@c.test\"@b.test"), ["\"a@c.test\"@b.test", "@b.test"]);
    }

    #[test]
    fn a_canonical_map_gives_one_address_and_the_detail_stays() {
        let plus = Separator::parse("+");
        let by = |key: &str, value: &str| by_map(&mailbox("joe+x@b.test"), plus, key, value, "here.test");
        for (key, value, changed) in [
            ("joe@b.test", "Joe.Smith@c.test", "Joe.Smith+x@c.test"),
            ("joe+x@b.test", "Joe.Smith@c.test", "Joe.Smith@c.test"),
            ("joe@b.test", "smith", "smith+x@here.test"),
            ("joe", "smith", "smith+x@here.test"),
            ("joe+x", "smith", "smith@here.test"),
            ("@b.test", "@c.test", "joe+x@c.test"),
            ("@b.test", "all@c.test", "all@c.test"),
            ("joe@b.test", "joe+y@c.test", "joe+y@c.test"),
        ] {
            assert_eq!(by(key, value).unwrap().as_str(), changed, "{key} {value}");
        }
        for bad in ["", "a@b.test, c@d.test", "|x", "/x", "a@b@c"] {
            assert!(by("joe@b.test", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn hosts_are_hidden_and_the_domain_itself_stays() {
        let domains = ["example.com".to_owned(), "lab.example.org".to_owned()];
        let hide = |text: &str| masquerade(&mailbox(text), &domains).map(|m| m.as_str().to_owned());
        assert_eq!(hide("root@host.example.com").as_deref(), Some("root@example.com"));
        assert_eq!(hide("\"a b\"@x.y.EXAMPLE.com").as_deref(), Some("\"a b\"@example.com"));
        assert_eq!(hide("a@b.lab.example.org").as_deref(), Some("a@lab.example.org"));
        for stays in ["a@example.com", "a@notexample.com", "a@example.org", "a@lab.example.org"] {
            assert_eq!(hide(stays), None, "{stays}");
        }
    }

    #[test]
    fn a_name_that_needs_quotes_gets_them() {
        assert_eq!(at_domain("a b", "c.test").unwrap().as_str(), "\"a b\"@c.test");
        assert_eq!(at_domain("a@b", "c.test").unwrap().as_str(), "\"a@b\"@c.test");
        assert_eq!(at_domain("joe", "c.test").unwrap().as_str(), "joe@c.test");
        assert_eq!(at_domain("a\u{1}b", "c.test"), None);
    }
}
