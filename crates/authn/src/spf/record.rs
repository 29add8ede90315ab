//! Records of SPF: their terms (RFC 7208 §4.6.1, §5, §6, §12).

use super::macros::{self, Piece};
use std::{net::IpAddr, ops::Range};

/// The result that a directive gives when it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Qualifier {
    Pass,
    Fail,
    SoftFail,
    Neutral,
}

/// Lengths of prefixes that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefixes {
    pub(super) v4: u8,
    pub(super) v6: u8,
}

#[derive(Debug)]
pub(super) enum Mechanism<'a> {
    All,
    Include(Vec<Piece<'a>>),
    A(Option<Vec<Piece<'a>>>, Prefixes),
    Mx(Option<Vec<Piece<'a>>>, Prefixes),
    Ptr(Option<Vec<Piece<'a>>>),
    Address(IpAddr, u8),
    Exists(Vec<Piece<'a>>),
}

#[derive(Debug)]
pub(super) struct Directive<'a> {
    /// As in the record, for the log.
    pub(super) text: &'a str,
    pub(super) qualifier: Qualifier,
    pub(super) mechanism: Mechanism<'a>,
}

#[derive(Debug, Default)]
pub(super) struct Record<'a> {
    pub(super) directives: Vec<Directive<'a>>,
    pub(super) redirect: Option<Vec<Piece<'a>>>,
    pub(super) exp: Option<Vec<Piece<'a>>>,
}

/// The term of a record that breaks the grammar.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadTerm<'a>(pub(super) &'a str);

/// Returns whether a TXT record is one of SPF (RFC 7208 §4.5).
pub(super) fn is_record(text: &[u8]) -> bool {
    text.get(..6).is_some_and(|version| version.eq_ignore_ascii_case(b"v=spf1"))
        && matches!(text.get(6), None | Some(b' '))
}

impl<'a> Record<'a> {
    /// Reads the terms of a record after its version. An error anywhere is found before anything is evaluated (RFC 7208 §4.6).
    pub(super) fn parse(terms: &'a str) -> Result<Self, BadTerm<'a>> {
        let mut record = Record::default();
        for term in terms.split(' ').filter(|term| !term.is_empty()) {
            record.push(term).ok_or(BadTerm(term))?;
        }
        Ok(record)
    }

    fn push(&mut self, term: &'a str) -> Option<()> {
        // A modifier has `=` behind its name, and no `:` or `/` before it.
        if let Some(at) = term.find(['=', ':', '/', '%'])
            && term.as_bytes()[at] == b'='
        {
            return self.push_modifier(&term[..at], &term[at + 1..]);
        }
        let (qualifier, text) = match term.as_bytes()[0] {
            b'+' => (Qualifier::Pass, &term[1..]),
            b'-' => (Qualifier::Fail, &term[1..]),
            b'~' => (Qualifier::SoftFail, &term[1..]),
            b'?' => (Qualifier::Neutral, &term[1..]),
            _ => (Qualifier::Pass, term),
        };
        self.directives.push(Directive { text: term, qualifier, mechanism: mechanism(text)? });
        Some(())
    }

    /// Both modifiers stand at most once, and others are checked and ignored (RFC 7208 §6).
    fn push_modifier(&mut self, name: &str, value: &'a str) -> Option<()> {
        let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        let known = match name {
            _ if name.eq_ignore_ascii_case("redirect") => &mut self.redirect,
            _ if name.eq_ignore_ascii_case("exp") => &mut self.exp,
            _ => return (is_name && macros::parse(value, false).is_some()).then_some(()),
        };
        let value = macros::parse_domain(value)?;
        known.replace(value).is_none().then_some(())
    }
}

fn mechanism(text: &str) -> Option<Mechanism<'_>> {
    let end = text.find([':', '/']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let value = rest.strip_prefix(':');
    Some(match name.to_ascii_lowercase().as_str() {
        "all" if rest.is_empty() => Mechanism::All,
        "include" => Mechanism::Include(macros::parse_domain(value?)?),
        "exists" => Mechanism::Exists(macros::parse_domain(value?)?),
        "ptr" if rest.is_empty() => Mechanism::Ptr(None),
        "ptr" => Mechanism::Ptr(Some(macros::parse_domain(value?)?)),
        "a" => {
            let (domain, prefixes) = domain_and_prefixes(rest)?;
            Mechanism::A(domain, prefixes)
        }
        "mx" => {
            let (domain, prefixes) = domain_and_prefixes(rest)?;
            Mechanism::Mx(domain, prefixes)
        }
        "ip4" => network(value?, |address| address.parse().ok().map(IpAddr::V4), 32)?,
        "ip6" => network(value?, |address| address.parse().ok().map(IpAddr::V6), 128)?,
        _ => return None,
    })
}

/// An address with the length of a prefix (RFC 7208 §5.6).
fn network(value: &str, parse: impl Fn(&str) -> Option<IpAddr>, bits: u8) -> Option<Mechanism<'static>> {
    let (address, length) = match value.split_once('/') {
        Some((address, length)) => (address, prefix_length(length, bits)?),
        None => (value, bits),
    };
    Some(Mechanism::Address(parse(address)?, length))
}

/// No zeros before the number, and no number above the bits of an address.
fn prefix_length(digits: &str, bits: u8) -> Option<u8> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let has_zeros = digits.len() > 1 && digits.starts_with('0');
    digits.parse().ok().filter(|length| is_number && !has_zeros && *length <= bits)
}

/// `[":" domain-spec] ["/" length] ["//" length]`. A domain may contain slashes, so the lengths are read from the end.
fn domain_and_prefixes(rest: &str) -> Option<(Option<Vec<Piece<'_>>>, Prefixes)> {
    let mut prefixes = Prefixes { v4: 32, v6: 128 };
    let mut text = rest;
    let trailing_digits = |text: &str| -> Range<usize> {
        text.trim_end_matches(|last: char| last.is_ascii_digit()).len()..text.len()
    };
    let digits = trailing_digits(text);
    if let Some(before) = text[..digits.start].strip_suffix("//").filter(|_| !digits.is_empty()) {
        prefixes.v6 = prefix_length(&text[digits], 128)?;
        text = before;
    }
    let digits = trailing_digits(text);
    if let Some(before) = text[..digits.start].strip_suffix('/').filter(|_| !digits.is_empty()) {
        prefixes.v4 = prefix_length(&text[digits], 32)?;
        text = before;
    }
    let domain = match text {
        "" => None,
        text => Some(macros::parse_domain(text.strip_prefix(':')?)?),
    };
    Some((domain, prefixes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_its_version_alone_or_before_a_space() {
        for (text, is_it) in
            [("v=spf1", true), ("V=SPF1 a", true), ("v=spf10", false), ("v=spf", false), ("", false)]
        {
            assert_eq!(is_record(text.as_bytes()), is_it, "{text}");
        }
    }

    #[test]
    fn terms_that_break_the_grammar_are_named() {
        for term in [
            "all:x",
            "all/8",
            "include",
            "include:",
            "exists",
            "a:",
            "a/33",
            "a/8/8",
            "a//129",
            "a:b",
            "a:b.c/08",
            "mx:/24",
            "ip4",
            "ip4:1.2.3",
            "ip4:1.2.3.04",
            "ip4:1.2.3.4/33",
            "ip4:1.2.3.4//8",
            "ip6:1.2.3.4",
            "ip6:::1/129",
            "ptr:",
            "ptr/8",
            "foo",
            "=x",
            "1=x",
            "x=%",
            "x=%{c}",
            "exp=",
            "redirect=x",
            "+",
            "-",
            "--all",
            "%{d}=x",
        ] {
            assert_eq!(
                Record::parse(&format!("a {term} -all")).err().map(|bad| bad.0.to_owned()).as_deref(),
                Some(term)
            );
        }
        assert!(Record::parse("exp=a.b exp=a.b").is_err());
        assert!(Record::parse("redirect=a.b redirect=a.b").is_err());
    }

    #[test]
    fn prefix_lengths_end_a_domain() {
        let (domain, prefixes) = domain_and_prefixes(":a/b.example/24//64").unwrap();
        assert_eq!(prefixes, Prefixes { v4: 24, v6: 64 });
        assert_eq!(domain.unwrap(), [Piece::Text("a/b.example")]);
        assert_eq!(domain_and_prefixes("/0").unwrap().1, Prefixes { v4: 0, v6: 128 });
        assert_eq!(domain_and_prefixes("//0").unwrap().1, Prefixes { v4: 32, v6: 0 });
    }
}
