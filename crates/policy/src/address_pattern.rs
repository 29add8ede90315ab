//! Patterns of addresses.

use crate::DomainPattern;
use mail::{Mailbox, ReversePath};
use rewrite::Separator;
use std::{borrow::Cow, fmt, ops::Deref};

/// A pattern over addresses. Letter case is ignored, in local parts, too.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AddressPattern {
    /// `<>`: the null reverse-path.
    Null,
    /// `user@host`, in lower case, and its domain as [`mail::Domain::key`] gives it.
    Mailbox(Box<str>, Box<str>),
    /// `user@*`, in lower case.
    User(Box<str>),
    /// `host`, `*.host`, and `*` for every address with a domain.
    Domain(DomainPattern),
}

/// Advice for a `*` that would be a character of a name.
const NO_STARS: &str =
    "write the whole name, or a map such as \"regex:FILE\" with a line `/^joe.*@example\\.com$/ x`";

impl AddressPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// The correct form.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORMS: &str =
            "write \"user@example.com\", \"user@*\", \"example.com\", \"*.example.com\", \"*\" or \"<>\"";
        if text == "<>" {
            return Ok(Self::Null);
        }
        let Some((user, domain)) = text.rsplit_once('@') else {
            return DomainPattern::parse(text).map(Self::Domain).map_err(|_| FORMS.to_owned());
        };
        if domain.is_empty() {
            return Err(FORMS.to_owned());
        }
        if user.is_empty() {
            return Err(format!("write \"{domain}\" for all addresses of the domain"));
        }
        if user == "*" && domain != "*" {
            return Err(format!("write \"{domain}\" for all addresses of the domain"));
        }
        if user.contains('*') && !user.starts_with('"') {
            return Err(NO_STARS.to_owned());
        }
        if domain == "*" {
            let mailbox = Mailbox::parse(&format!("{user}@localhost"), true).map_err(|_| FORMS.to_owned())?;
            return Ok(Self::User(mailbox.local_name().into()));
        }
        let mailbox = Mailbox::parse(text, true).map_err(|_| FORMS.to_owned())?;
        let domain = mailbox.domain().key().into_owned();
        Ok(Self::Mailbox(mailbox.local_name().into(), domain.into()))
    }

    /// Returns whether the pattern matches a mailbox, as it is written.
    pub fn matches(&self, mailbox: &Mailbox) -> bool {
        let domain = DomainKey::of(mailbox);
        self.matches_parts(&lower_but_ascii(mailbox.local_unquoted()), None, &domain)
    }

    /// Returns whether the pattern matches one of two local parts at a domain.
    fn matches_parts(&self, whole: &str, user: Option<&str>, domain: &DomainKey<'_>) -> bool {
        let has = |name: &str| {
            whole.eq_ignore_ascii_case(name) || user.is_some_and(|user| user.eq_ignore_ascii_case(name))
        };
        match self {
            Self::Domain(pattern) => domain.matches(pattern),
            Self::Mailbox(user, key) => domain.0.eq_ignore_ascii_case(key) && has(user),
            Self::User(user) => has(user),
            Self::Null => false,
        }
    }

    /// Returns whether the pattern has a local part.
    fn has_user(&self) -> bool {
        matches!(self, Self::Mailbox(..) | Self::User(_))
    }

    /// Returns whether the pattern matches everything that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Domain(DomainPattern::Any), other) => *other != Self::Null,
            (Self::Domain(wide), Self::Domain(narrow)) => wide.covers(narrow),
            (Self::Domain(wide), Self::Mailbox(_, domain)) => wide.matches(domain),
            (Self::User(wide), Self::Mailbox(user, _)) => wide == user,
            _ => self == other,
        }
    }

    /// Returns whether no address matches both patterns.
    pub(crate) fn is_apart_from(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, other) | (other, Self::Null) => *other != Self::Null,
            (Self::Domain(one), Self::Domain(other)) => one.is_apart_from(other),
            (Self::Domain(pattern), Self::Mailbox(_, domain))
            | (Self::Mailbox(_, domain), Self::Domain(pattern)) => !pattern.matches(domain),
            (Self::Domain(_), Self::User(_)) | (Self::User(_), Self::Domain(_)) => false,
            (Self::Mailbox(one, domain), Self::Mailbox(other, other_domain)) => {
                domain != other_domain || are_other_users(one, other)
            }
            (Self::Mailbox(one, _) | Self::User(one), Self::Mailbox(other, _) | Self::User(other)) => {
                are_other_users(one, other)
            }
        }
    }
}

/// Patterns of addresses, one of which has to match. A pattern with a local part also matches an address with a detail behind it
/// (RFC 5233), as keys of maps do: mail for both goes to one user.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddressPatterns {
    list: Vec<AddressPattern>,
    /// True if a pattern has a local part. Most patterns are domains: they need no local part to be prepared.
    has_users: bool,
}

impl From<Vec<AddressPattern>> for AddressPatterns {
    fn from(list: Vec<AddressPattern>) -> Self {
        let has_users = list.iter().any(AddressPattern::has_user);
        Self { list, has_users }
    }
}

impl Deref for AddressPatterns {
    type Target = [AddressPattern];

    fn deref(&self) -> &[AddressPattern] {
        &self.list
    }
}

impl<'a> IntoIterator for &'a AddressPatterns {
    type Item = &'a AddressPattern;
    type IntoIter = std::slice::Iter<'a, AddressPattern>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

impl AddressPatterns {
    /// Returns whether any pattern matches. A pattern of a user also matches addresses with a detail behind
    /// the separator.
    pub fn match_mailbox(&self, mailbox: &Mailbox, separator: Option<Separator>) -> bool {
        let domain = DomainKey::of(mailbox);
        if !self.has_users {
            return self.list.iter().any(|pattern| pattern.matches_parts("", None, &domain));
        }
        let written = mailbox.local();
        let whole = lower_but_ascii(mailbox.local_unquoted());
        // Most addresses have no detail.
        let has_detail =
            |separator: &Separator| written.bytes().any(|byte| char::from(byte) == separator.as_char());
        let user = separator.filter(has_detail).and_then(|separator| separator.split(&whole));
        let user = user.map(|(user, _)| user);
        self.list.iter().any(|pattern| pattern.matches_parts(&whole, user, &domain))
    }

    /// Returns whether one of the patterns matches a reverse-path.
    pub fn match_sender(&self, sender: &ReversePath, separator: Option<Separator>) -> bool {
        match sender {
            ReversePath::Null => self.list.contains(&AddressPattern::Null),
            ReversePath::Mailbox(mailbox) => self.match_mailbox(mailbox, separator),
        }
    }
}

/// Returns whether no address has both names, also with details: a name with a detail begins with the name.
fn are_other_users(one: &str, other: &str) -> bool {
    !one.starts_with(other) && !other.starts_with(one)
}

/// Returns a text that is folded if it is not ASCII: it can be compared without the case of ASCII.
fn lower_but_ascii(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.is_ascii() { text } else { mail::fold(&text).into_owned().into() }
}

/// The domain of a mailbox: its key, but for the case of ASCII. Comparisons that end at the length need no copy in lower case.
struct DomainKey<'a>(Cow<'a, str>);

impl<'a> DomainKey<'a> {
    fn of(mailbox: &'a Mailbox) -> Self {
        let domain = mailbox.domain();
        let text = domain.as_str();
        Self(if text.is_ascii() { text.into() } else { domain.key() })
    }

    fn matches(&self, pattern: &DomainPattern) -> bool {
        match pattern {
            DomainPattern::Any => true,
            DomainPattern::Exact(name) => self.0.eq_ignore_ascii_case(name),
            DomainPattern::Below(name) => {
                let (key, name) = (self.0.as_bytes(), name.as_bytes());
                let front = key.len().checked_sub(name.len()).filter(|front| *front > 1);
                front.is_some_and(|front| key[front - 1] == b'.' && key[front..].eq_ignore_ascii_case(name))
            }
        }
    }
}

impl fmt::Display for AddressPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("<>"),
            Self::Mailbox(user, domain) => write!(f, "{}@{domain}", local_part(user)),
            Self::User(user) => write!(f, "{}@*", local_part(user)),
            Self::Domain(pattern) => pattern.fmt(f),
        }
    }
}

/// Returns a name as a pattern has it, in quotes where it needs them.
fn local_part(user: &str) -> Cow<'_, str> {
    let plain = Mailbox::parse(&format!("{user}@localhost"), true);
    if !user.contains('*') && plain.is_ok_and(|mailbox| mailbox.local_unquoted() == user) {
        return user.into();
    }
    format!("\"{}\"", user.replace('\\', "\\\\").replace('"', "\\\"")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> AddressPattern {
        AddressPattern::parse(text).unwrap()
    }

    #[test]
    fn patterns_show_the_quotes_that_they_need() {
        for (text, shown) in [
            ("\"Jane\"@a.test", "jane@a.test"),
            ("\"\"@a.test", "\"\"@a.test"),
            ("\"*\"@a.test", "\"*\"@a.test"),
            ("\"a b\"@*", "\"a b\"@*"),
            (r#""a\\\"b"@a.test"#, r#""a\\\"b"@a.test"#),
        ] {
            assert_eq!(pattern(text).to_string(), shown);
            assert_eq!(pattern(shown), pattern(text));
        }
        assert!(pattern("\"jane\"@*").matches(&Mailbox::parse("Jane@a.test", true).unwrap()));
    }

    #[test]
    fn patterns_match_addresses_users_and_domains() {
        let matches = |text: &str, address: &str| {
            let patterns = AddressPatterns::from(vec![pattern(text)]);
            patterns.match_sender(&ReversePath::parse(address, true).unwrap(), None)
        };
        for (text, address) in [
            ("Jane@Example.com", "jane@EXAMPLE.com"),
            ("abuse@*", "Abuse@a.test"),
            ("example.com", "x@example.com"),
            ("*.example.com", "x@a.example.com"),
            ("*", "x@y.test"),
            ("<>", ""),
            ("jürgen@a.test", "JÜRGEN@a.test"),
        ] {
            assert!(matches(text, address), "{text} {address}");
        }
        for (text, address) in [
            ("jane@example.com", "jane@a.example.com"),
            ("abuse@*", "abuse+x@a.test"),
            ("example.com", "x@a.example.com"),
            ("*", ""),
            ("<>", "x@y.test"),
            ("jane@example.com", "\"jane@example.com\"@evil.test"),
        ] {
            assert!(!matches(text, address), "{text} {address}");
        }
    }

    #[test]
    fn a_pattern_with_a_local_part_matches_an_address_with_a_detail() {
        let list = ["joe@a.test", "news+x@a.test", "abuse@*", "b.test"].map(pattern).to_vec();
        let patterns = AddressPatterns::from(list);
        let matches = |address: &str, separator| {
            patterns.match_mailbox(&Mailbox::parse(address, true).unwrap(), separator)
        };
        let plus = Separator::parse("+");
        for address in [
            "Joe+list@A.test",
            "joe@a.test",
            "news+x@a.test",
            "Abuse+y@c.test",
            "any+x@b.test",
            "\"joe+list\"@a.test",
        ] {
            assert!(matches(address, plus), "{address}");
        }
        for address in
            ["news@a.test", "news+y@a.test", "\"joe list\"@a.test", "joey@a.test", "joe-list@a.test"]
        {
            assert!(!matches(address, plus), "{address}");
        }
        assert!(matches("joe-list@a.test", Separator::parse("-")) && !matches("joe+list@a.test", None));
        assert!(!AddressPatterns::default().match_sender(&ReversePath::Null, plus));
    }

    #[test]
    fn the_case_of_a_domain_does_not_matter_to_any_pattern() {
        for domain in [
            "a.test",
            "A.Test",
            "b.A.test",
            "xa.test",
            ".a.test",
            "test",
            "b\u{fc}cher.test",
            "B\u{dc}CHER.test",
        ] {
            let Ok(mailbox) = Mailbox::parse(&format!("joe@{domain}"), true) else { continue };
            for text in ["*", "a.test", "*.a.test", "*.test", "b\u{fc}cher.test", "*.b.a.test"] {
                let wanted = DomainPattern::parse(text).unwrap().matches(&mailbox.domain().key());
                assert_eq!(pattern(text).matches(&mailbox), wanted, "{text} {domain}");
            }
        }
    }

    #[test]
    fn wide_patterns_cover_narrow_ones() {
        let covers = |wide: &str, narrow: &str| pattern(wide).covers(&pattern(narrow));
        assert!(covers("*", "a@b.test") && covers("b.test", "a@b.test") && covers("a@*", "a@b.test"));
        assert!(!covers("*", "<>") && !covers("a@*", "b@b.test") && !covers("a@b.test", "b.test"));
    }

    #[test]
    fn patterns_that_share_no_address_are_apart() {
        let apart = |one: &str, other: &str| pattern(one).is_apart_from(&pattern(other));
        assert!(apart("a@b.test", "c.test") && apart("a@b.test", "a@c.test") && apart("<>", "*"));
        assert!(apart("a@b.test", "c@b.test") && apart("a@*", "c@b.test") && apart("b.test", "*.b.test"));
        // With a detail, `a@b.test` is also `ab@b.test` where `b` separates.
        assert!(!apart("a@b.test", "ab@b.test") && !apart("a@*", "a@b.test") && !apart("a@*", "b.test"));
    }

    #[test]
    fn other_text_is_answered_with_the_right_form() {
        for (text, help) in [
            ("@a.test", "\"a.test\""),
            ("*@a.test", "\"a.test\""),
            ("a b", "\"*\""),
            ("joe*@a.test", "regex:"),
            ("j*@*", "regex:"),
            ("a@b@*", "user@*"),
        ] {
            let error = AddressPattern::parse(text).unwrap_err();
            assert!(error.contains(help), "{text}: {error}");
        }
    }
}
