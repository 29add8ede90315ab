//! The questions that the machines ask of the DNS, and its answers.

use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Octets of a name without the dot at its end (RFC 1035 §2.3.4).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// A name in the DNS, in lower case, without the dot at its end. Its labels may have any octets but dots: a macro of SPF can make
/// names such as `a:b/c.example`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<[u8]>);

impl Name {
    /// Reads a name from text: labels between dots, the last dot left out or not. U-labels become A-labels (RFC 5890). `None` if a
    /// label is empty or has over 63 octets, or if the name has over 253. The root has no labels, and is no name here.
    pub fn new(text: impl AsRef<[u8]>) -> Option<Self> {
        let text = text.as_ref();
        if text.is_ascii() {
            return Self::from_ascii(text);
        }
        if text.len() > 4 * NAME_BYTES_MAX {
            return None;
        }
        let ascii = idna::domain_to_ascii_cow(text, idna::AsciiDenyList::EMPTY).ok()?;
        Self::from_ascii(ascii.as_bytes())
    }

    fn from_ascii(text: &[u8]) -> Option<Self> {
        let text = text.strip_suffix(b".").unwrap_or(text);
        let is_name = text.len() <= NAME_BYTES_MAX
            && text.split(|byte| *byte == b'.').all(|label| (1..=LABEL_BYTES_MAX).contains(&label.len()));
        is_name.then(|| Self(text.to_ascii_lowercase().into()))
    }

    /// Returns the octets: labels between dots.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the labels from the left, without the root.
    pub fn labels(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'.')
    }

    /// Returns whether the name is another one, or below it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.strip_suffix(&*other.0).is_some_and(|rest| rest.is_empty() || rest.ends_with(b"."))
    }

    /// Returns the name that consists of the last labels.
    pub(crate) fn last_labels(&self, count: usize) -> Self {
        let mut begin = self.0.len();
        for _ in 0..count {
            let Some(dot) = memchr::memrchr(b'.', &self.0[..begin.saturating_sub(1)]) else {
                return self.clone();
            };
            begin = dot + 1;
        }
        Self(self.0[begin..].into())
    }

    /// Returns the name below this one, by labels that the caller knows to be right; `None` if it is too long.
    pub(crate) fn below(&self, labels: &str) -> Option<Self> {
        Self::from_ascii(&[labels.as_bytes(), b".", &self.0].concat())
    }

    /// Returns whether each octet can stand in a domain of an address (letters, digits, hyphens; and underscores).
    pub(crate) fn is_host_name(&self) -> bool {
        self.0.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is asked of the DNS. The caller looks it up, and adds the [`Answer`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Question {
    /// The TXT records of a name.
    Txt(Name),
    /// The IPv4 addresses of a name.
    A(Name),
    /// The IPv6 addresses of a name.
    Aaaa(Name),
    /// The mail exchangers of a name.
    Mx(Name),
    /// The names of an address, below `in-addr.arpa` or `ip6.arpa`.
    Ptr(IpAddr),
}

/// What the DNS answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The TXT records, the strings of each one after the other with nothing between them.
    Txt(Vec<Box<[u8]>>),
    /// The IPv4 addresses.
    A(Vec<Ipv4Addr>),
    /// The IPv6 addresses.
    Aaaa(Vec<Ipv6Addr>),
    /// The mail exchangers; `None` is the root, of a domain without mail (RFC 7505).
    Mx(Vec<Option<Name>>),
    /// Names of an address; anybody can set them for his own addresses.
    Ptr(Vec<Name>),
    /// The name exists, and has no records of that type.
    NoRecords,
    /// The name does not exist (NXDOMAIN). One with a CNAME exists, even if that leads nowhere.
    NoName,
    /// There is no answer: a timeout, SERVFAIL, or another error that may pass.
    Failed,
}

/// What the DNS answered so far, by question.
#[derive(Debug, Clone, Default)]
pub struct Answers(HashMap<Question, Answer>);

impl Answers {
    /// Adds an answer, in place of an earlier one.
    pub fn add(&mut self, question: Question, answer: Answer) {
        self.0.insert(question, answer);
    }

    /// Returns the answer; `None` if the question was not asked yet.
    pub fn find(&self, question: &Question) -> Option<&Answer> {
        self.0.get(question)
    }

    /// Returns the TXT records of a name: `None` if it was not asked, an error if there was no answer.
    pub(crate) fn txt(&self, question: &Question) -> Option<Result<&[Box<[u8]>], Failed>> {
        Some(match self.find(question)? {
            Answer::Txt(records) => Ok(records),
            Answer::Failed => Err(Failed),
            _ => Ok(&[]),
        })
    }
}

/// The question was asked and could not be answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failed;

/// What a check needs next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<T> {
    /// Answer these questions, at the same time if possible, and evaluate again.
    Ask(Vec<Question>),
    /// The check is over.
    Done(T),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_by_labels_and_in_lower_case() {
        let name = |text: &str| Name::new(text).unwrap();
        assert_eq!(name("EXAMPLE.com."), name("example.com"));
        assert!(name("a.example.com").is_within(&name("example.com")));
        assert!(name("example.com").is_within(&name("example.com")));
        assert!(!name("badexample.com").is_within(&name("example.com")));
        assert_eq!(name("b\u{fc}cher.example").to_string(), "xn--bcher-kva.example");
        assert_eq!(name("a.b.c.d").last_labels(2), name("c.d"));
        assert_eq!(name("a.b").last_labels(7), name("a.b"));
    }

    #[test]
    fn names_with_empty_or_long_labels_are_none() {
        for text in ["", ".", "a..b", ".a", "a..", &"x".repeat(64), &["x"; 128].join("."), "\u{fffd}.test"] {
            assert_eq!(Name::new(text), None, "{text:?}");
        }
        assert_eq!(Name::new(["x"; 127].join(".")).unwrap().labels().count(), 127);
    }
}
