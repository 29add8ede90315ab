//! Addresses: the grammar of RFC 5321 §4.1.2 with RFC 6531 §3.3's UTF-8, and where mail for one goes.

use std::{
    borrow::Cow,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Longest local part in octets that every server has to take (RFC 5321 §4.5.3.1.1). Longer ones exist, since
/// SRS and VERP put a whole address into a local part, and are taken (§4.5.3.1: no limits where possible).
pub const LOCAL_PART_MAX: usize = 64;
/// Longest mailbox in octets, whatever path a server's limits allow.
pub const MAILBOX_MAX: usize = 900;
/// Longest domain in octets (RFC 5321 §4.5.3.1.2).
pub const DOMAIN_MAX: usize = 255;

/// A fault that makes a text no address. Each fault has its own reply (RFC 3463 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressError {
    /// Not `local@domain`.
    Syntax,
    /// The local part is empty, far too long, or has a character it must not have.
    LocalPart,
    /// The domain is not a host name, U-label name or address literal.
    Domain,
    /// The address has UTF-8, and SMTPUTF8 was not asked for (RFC 6531 §3.5).
    NeedsSmtpUtf8,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syntax => "not an address of the form local@domain",
            Self::LocalPart => "bad local part",
            Self::Domain => "bad domain",
            Self::NeedsSmtpUtf8 => "a non-ASCII address needs SMTPUTF8",
        })
    }
}

impl std::error::Error for AddressError {}

/// A domain name or address literal, as it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Domain<'a>(&'a str);

impl<'a> Domain<'a> {
    /// Reads a domain: host name labels, U-labels, or `[192.0.2.1]`, `[IPv6:…]`.
    pub fn parse(text: &'a str) -> Result<Self, AddressError> {
        let good = if let Some(literal) = text.strip_prefix('[') {
            literal.strip_suffix(']').and_then(parse_literal).is_some()
        } else if text.is_ascii() {
            is_host_name(text)
        } else {
            is_u_name(text)
        };
        if good && text.len() <= DOMAIN_MAX { Ok(Self(text)) } else { Err(AddressError::Domain) }
    }

    /// Returns the domain as it was given.
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// The form to compare and look up: A-labels, lower case. Literals stay as they are.
    pub fn key(self) -> Cow<'a, str> {
        // One pass, without an end in the middle: most domains are short, and in lower case.
        let seen = self.0.bytes().fold((false, false), |(is_upper, is_wide), b| {
            (is_upper | b.is_ascii_uppercase(), is_wide | !b.is_ascii())
        });
        match seen {
            (_, true) => idna::domain_to_ascii(self.0).map_or(Cow::Borrowed(self.0), Cow::Owned),
            (true, false) => Cow::Owned(self.0.to_ascii_lowercase()),
            (false, false) => Cow::Borrowed(self.0),
        }
    }

    /// The IP address of an address literal (RFC 5321 §4.1.3); `None` for a name.
    pub fn literal(self) -> Option<IpAddr> {
        parse_literal(self.0.strip_prefix('[')?.strip_suffix(']')?)
    }
}

/// `192.0.2.1` or `IPv6:2001:db8::1` (RFC 5321 §4.1.3).
fn parse_literal(inner: &str) -> Option<IpAddr> {
    match inner.get(..5) {
        Some(tag) if tag.eq_ignore_ascii_case("IPv6:") => inner[5..].parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        _ => inner.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    }
}

/// Letters, digits, hyphens inside labels. Underscores are let through: such hosts exist.
fn is_host_name(text: &str) -> bool {
    let is_label = |b: &[u8]| {
        !b.is_empty()
            && b.len() <= 63
            && b.iter().all(|c| c.is_ascii_alphanumeric() || *c == b'-' || *c == b'_')
            && b[0] != b'-'
            && b[b.len() - 1] != b'-'
            && (!has_ace_prefix(b) || idna::domain_to_ascii_cow(b, idna::AsciiDenyList::EMPTY).is_ok())
    };
    text.as_bytes().split(|b| *b == b'.').all(is_label)
}

fn has_ace_prefix(label: &[u8]) -> bool {
    label.len() >= 4 && label[..4].eq_ignore_ascii_case(b"xn--")
}

/// U-labels separated by real dots: the look-alike dots and `＠` that mapping would fold are refused,
/// so that what is compared is what was sent (RFC 5890 §2.3.2.1).
fn is_u_name(text: &str) -> bool {
    let folded = ['\u{3002}', '\u{ff0e}', '\u{ff61}', '\u{ff20}'];
    !text.contains(folded)
        && !text.ends_with('.')
        && idna::domain_to_ascii(text).is_ok_and(|a| is_host_name(&a))
}

/// `local@domain`, as it was given; the local part is never interpreted (RFC 5321 §2.3.11).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Mailbox {
    text: Box<str>,
    at: u16,
}

impl Mailbox {
    /// Reads `local@domain`. With `utf8` both sides may have non-ASCII characters (RFC 6531 §3.3).
    ///
    /// Takes local parts that exist although RFC 5321 §4.1.2 does not allow them: over 64 octets, and unquoted
    /// with a dot at an end or with two in a row. [`Mailbox::is_strict`] tells them apart.
    pub fn parse(text: &str, utf8: bool) -> Result<Self, AddressError> {
        let at = split_at(text)?;
        let (local, domain) = (&text[..at], &text[at + 1..]);
        check_local(local)?;
        Domain::parse(domain)?;
        if text.len() > MAILBOX_MAX {
            return Err(AddressError::LocalPart);
        }
        if !utf8 && !text.is_ascii() {
            return Err(AddressError::NeedsSmtpUtf8);
        }
        Ok(Self { text: text.into(), at: at as u16 })
    }

    /// Returns the whole address, such as `user@example.com`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Before the `@`, quotes included.
    pub fn local(&self) -> &str {
        &self.text[..usize::from(self.at)]
    }

    /// The local part's meaning: quotes and backslashes removed.
    pub fn local_unquoted(&self) -> Cow<'_, str> {
        let local = self.local();
        let Some(inner) = local.strip_prefix('"').and_then(|l| l.strip_suffix('"')) else {
            return Cow::Borrowed(local);
        };
        let mut out = String::with_capacity(inner.len());
        let mut chars = inner.chars();
        while let Some(c) = chars.next() {
            out.extend(if c == '\\' { chars.next() } else { Some(c) });
        }
        Cow::Owned(out)
    }

    /// Returns the folded meaning of the local part: the name of a user or of an alias.
    pub fn local_name(&self) -> String {
        crate::fold(&self.local_unquoted()).into_owned()
    }

    /// Returns the folded local part without quotes that it does not need: `"joe"@x` and `joe@x` are one address (RFC 5321
    /// §4.1.2).
    pub fn plain_local(&self) -> Cow<'_, str> {
        let local = self.local();
        if !local.starts_with('"') {
            return crate::fold(local);
        }
        let plain = self.local_unquoted();
        let is_atoms = !plain.split('.').any(|atom| atom.is_empty() || !atom.chars().all(is_atext));
        crate::fold(if is_atoms { &plain } else { local }).into_owned().into()
    }

    /// Does the local part keep to the grammar and the length of RFC 5321?
    pub fn is_strict(&self) -> bool {
        let local = self.local();
        let has_empty_atom = || local.as_bytes().split(|b| *b == b'.').any(<[u8]>::is_empty);
        local.len() <= LOCAL_PART_MAX && (local.starts_with('"') || !has_empty_atom())
    }

    /// The part behind the `@`, as written: a name or an address literal.
    pub fn domain(&self) -> Domain<'_> {
        Domain(&self.text[usize::from(self.at) + 1..])
    }

    /// The form to compare and look up: lower case, without needless quotes, the domain in A-labels. Two mailboxes with one key are one mailbox:
    /// no server in use tells local parts apart by case (RFC 5321 §2.4 would allow it).
    pub fn key(&self) -> String {
        if self.text.is_ascii() && !self.text.starts_with('"') {
            return self.text.to_ascii_lowercase();
        }
        format!("{}@{}", self.plain_local(), self.domain().key())
    }

    /// Non-ASCII anywhere: only a next hop with SMTPUTF8 can take it.
    pub fn needs_smtputf8(&self) -> bool {
        !self.text.is_ascii()
    }
}

impl fmt::Display for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// The position of the `@` that separates local part and domain.
fn split_at(text: &str) -> Result<usize, AddressError> {
    let from =
        if text.starts_with('"') { closing_quote(text).ok_or(AddressError::LocalPart)? + 1 } else { 0 };
    let at = from + text.as_bytes()[from..].iter().position(|b| *b == b'@').ok_or(AddressError::Syntax)?;
    if from > 0 && at != from { Err(AddressError::LocalPart) } else { Ok(at) }
}

/// Returns the index of the quote that closes the quoted string at the beginning of `text`.
fn closing_quote(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut i = 1;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' => i += 1,
            b'"' => return Some(i),
            _ => {}
        }
        i += 1;
    }
    None
}

fn check_local(local: &str) -> Result<(), AddressError> {
    let good = if local.starts_with('"') { is_quoted_string(local) } else { is_dot_string(local) };
    if good { Ok(()) } else { Err(AddressError::LocalPart) }
}

/// Atoms and dots, in any order, and one atom at least.
fn is_dot_string(local: &str) -> bool {
    local.chars().all(|c| c == '.' || is_atext(c)) && local.bytes().any(|b| b != b'.')
}

/// RFC 5322 §3.2.3, and any printable non-ASCII character (RFC 6531 §3.3).
fn is_atext(c: char) -> bool {
    match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' => true,
        c if c.is_ascii() => "!#$%&'*+-/=?^_`{|}~".contains(c),
        c => !c.is_control() && !c.is_whitespace() && c != '\u{ff20}',
    }
}

fn is_quoted_string(local: &str) -> bool {
    closing_quote(local) == Some(local.len() - 1)
        && local.chars().all(|c| !c.is_control() && c != '\u{2028}' && c != '\u{2029}')
}

/// MAIL's argument: where DSNs go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ReversePath {
    /// `<>`: never answered by a DSN (RFC 5321 §4.5.5).
    Null,
    /// A mailbox, which a DSN may be sent to.
    Mailbox(Mailbox),
}

impl ReversePath {
    /// `<>`?
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The address without brackets; empty for the null path.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Null => "",
            Self::Mailbox(mailbox) => mailbox.as_str(),
        }
    }

    /// Reads what [`ReversePath::as_str`] gives.
    pub fn parse(text: &str, utf8: bool) -> Result<Self, AddressError> {
        if text.is_empty() { Ok(Self::Null) } else { Mailbox::parse(text, utf8).map(Self::Mailbox) }
    }
}

impl fmt::Display for ReversePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// RCPT's argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ForwardPath {
    /// `<Postmaster>` without a domain: this server's own (RFC 5321 §4.5.1).
    Postmaster,
    /// A mailbox.
    Mailbox(Mailbox),
}

impl ForwardPath {
    /// As in RCPT, without the brackets; `postmaster` for the bare postmaster.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Postmaster => "postmaster",
            Self::Mailbox(mailbox) => mailbox.as_str(),
        }
    }

    /// Reads what [`ForwardPath::as_str`] gives.
    pub fn parse(text: &str, utf8: bool) -> Result<Self, AddressError> {
        if text.eq_ignore_ascii_case("postmaster") {
            return Ok(Self::Postmaster);
        }
        Mailbox::parse(text, utf8).map(Self::Mailbox)
    }

    /// The form to compare: [`Mailbox::key`], or `postmaster`.
    pub fn key(&self) -> String {
        self.mailbox().map_or_else(|| self.as_str().to_owned(), Mailbox::key)
    }

    /// The mailbox, unless it is the bare postmaster.
    pub fn mailbox(&self) -> Option<&Mailbox> {
        match self {
            Self::Postmaster => None,
            Self::Mailbox(mailbox) => Some(mailbox),
        }
    }
}

impl fmt::Display for ForwardPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needless_quotes_make_no_other_key() {
        let key = |text: &str| Mailbox::parse(text, true).unwrap().key();
        assert_eq!(key("\"Joe+x\"@B.test"), "joe+x@b.test");
        assert_eq!(key("\"j\\oe\"@b.test"), "joe@b.test");
        for kept in ["\"a b\"@b.test", "\"a..b\"@b.test", "\"a@b\"@b.test", "\"\"@b.test"] {
            assert_eq!(key(kept), kept);
        }
    }

    #[test]
    fn usual_and_odd_addresses_are_read() {
        for good in [
            "a@b",
            "A.b+c@Example.COM",
            "\"a b\"@c",
            "\"a@b\"@c",
            "\"\\\"\"@c",
            "a@[127.0.0.1]",
            "a@[IPv6:::1]",
            "user%other@d",
            "a!b@c",
            "{}@c",
            "a@x_y.z",
            "a@xn--bcher-kva.example",
        ] {
            assert!(Mailbox::parse(good, false).is_ok(), "{good}");
        }
        let m = Mailbox::parse("\"a\\\"@b\"@Example.com", false).unwrap();
        assert_eq!((m.local(), m.domain().key().as_ref()), ("\"a\\\"@b\"", "example.com"));
        assert_eq!(m.local_unquoted(), "a\"@b");
    }

    #[test]
    fn bad_addresses_say_what_is_bad() {
        use AddressError::*;
        for (bad, why) in [
            ("a", Syntax),
            ("", Syntax),
            ("@b", LocalPart),
            ("a@", Domain),
            ("a@b.", Domain),
            ("a@b..c", Domain),
            ("a@-b", Domain),
            ("a@b@c", Domain),
            (".@b", LocalPart),
            ("..@b", LocalPart),
            ("a b@c", LocalPart),
            (";sleep 66;@c", LocalPart),
            ("\"a@b", LocalPart),
            ("\"a\"b@c", LocalPart),
            ("a@[1.2.3]", Domain),
            ("a@[IPv6:g]", Domain),
            ("a@xn---", Domain),
            ("a@b c", Domain),
            ("a@b\0", Domain),
            ("a\0@b", LocalPart),
        ] {
            assert_eq!(Mailbox::parse(bad, true).err(), Some(why), "{bad:?}");
        }
        let (long_local, long_label) = ("x".repeat(MAILBOX_MAX - 1), "x".repeat(64));
        assert_eq!(Mailbox::parse(&format!("{long_local}@b"), false).err(), Some(LocalPart));
        assert!(Mailbox::parse(&format!("{}@b", &long_local[1..]), false).is_ok());
        assert_eq!(Mailbox::parse(&format!("a@{long_label}"), false).err(), Some(Domain));
    }

    #[test]
    fn local_parts_that_only_rfc_5321_forbids_are_kept_as_they_are_and_told_apart() {
        let long = "x".repeat(65);
        for odd in [".a", "a.", "a..b", "..a..", long.as_str()] {
            let text = format!("{odd}@b.test");
            let mailbox = Mailbox::parse(&text, false).unwrap();
            assert_eq!((mailbox.as_str(), mailbox.local()), (text.as_str(), odd));
            assert!(!mailbox.is_strict(), "{odd}");
        }
        for usual in ["a", "a.b", "\"a..b\"", "\".\"", &long[1..]] {
            assert!(Mailbox::parse(&format!("{usual}@b.test"), false).unwrap().is_strict(), "{usual}");
        }
    }

    #[test]
    fn utf8_addresses_need_smtputf8_and_compare_as_a_labels() {
        assert_eq!(Mailbox::parse("ä@bücher.example", false), Err(AddressError::NeedsSmtpUtf8));
        let m = Mailbox::parse("ä@Bücher.example", true).unwrap();
        assert_eq!(m.domain().key(), "xn--bcher-kva.example");
        for trick in ["a@b\u{3002}c", "a@b\u{ff0e}c", "a\u{ff20}b@c", "a@b\u{ff20}c"] {
            assert!(Mailbox::parse(trick, true).is_err(), "{trick}");
        }
    }
}
