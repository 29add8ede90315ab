//! Patterns of domains.

use mail::Domain;
use std::fmt;

/// A pattern over domains: `*` every one, `example.com` that one, `*.example.com` those below it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DomainPattern {
    /// Every domain.
    Any,
    /// A domain, as [`Domain::key`] returns it.
    Exact(String),
    /// Domains below this one, but not itself.
    Below(String),
}

impl DomainPattern {
    /// Reads a pattern. The error says what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let (below, name) = text.strip_prefix("*.").map_or((false, text), |name| (true, name));
        match Domain::parse(name) {
            Ok(domain) if below => Ok(Self::Below(domain.key().into_owned())),
            Ok(domain) => Ok(Self::Exact(domain.key().into_owned())),
            Err(_) => Err(match text.strip_prefix('.').filter(|name| Domain::parse(name).is_ok()) {
                Some(name) => format!("write \"*.{name}\" for the domains below {name}"),
                None => "write \"*\", \"example.com\" or \"*.example.com\"".to_owned(),
            }),
        }
    }

    /// Returns whether the pattern matches a domain, given as [`Domain::key`].
    pub fn matches(&self, key: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(name) => name == key,
            Self::Below(name) => {
                key.strip_suffix(name.as_str()).is_some_and(|front| front.len() > 1 && front.ends_with('.'))
            }
        }
    }

    /// Returns whether the pattern matches everything that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (_, Self::Any) => false,
            (_, Self::Exact(name)) => self.matches(name),
            (Self::Exact(_), Self::Below(_)) => false,
            (Self::Below(_), Self::Below(name)) => self == other || self.matches(name),
        }
    }

    /// Returns whether no domain matches both patterns.
    pub(crate) fn is_apart_from(&self, other: &Self) -> bool {
        !self.covers(other) && !other.covers(self)
    }
}

impl fmt::Display for DomainPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(name) => f.write_str(name),
            Self::Below(name) => write!(f, "*.{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_in_front_means_below_and_never_the_domain_itself() {
        let below = DomainPattern::parse("*.Example.COM").unwrap();
        assert!(below.matches("a.example.com") && below.matches("a.b.example.com"));
        for other in ["example.com", ".example.com", "notexample.com", "example.com.evil"] {
            assert!(!below.matches(other), "{other}");
        }
    }

    #[test]
    fn u_labels_match_their_a_labels() {
        assert!(DomainPattern::parse("bücher.example").unwrap().matches("xn--bcher-kva.example"));
    }

    #[test]
    fn a_wide_pattern_covers_a_narrow_one() {
        let p = |text| DomainPattern::parse(text).unwrap();
        assert!(p("*").covers(&p("*")) && p("*").covers(&p("*.a")) && p("*.a").covers(&p("b.a")));
        assert!(p("*.a").covers(&p("*.b.a")) && p("*.a").covers(&p("*.a")) && p("a.b").covers(&p("a.b")));
        assert!(!p("*.a").covers(&p("a")) && !p("a").covers(&p("*.a")) && !p("*.a").covers(&p("*")));
    }

    #[test]
    fn patterns_that_share_no_domain_are_apart() {
        let apart = |a, b| DomainPattern::parse(a).unwrap().is_apart_from(&DomainPattern::parse(b).unwrap());
        assert!(apart("a.b", "c.b") && apart("*.a", "*.b") && apart("*.a", "a") && apart("a", "*.a"));
        assert!(!apart("*", "a") && !apart("*.a", "b.a") && !apart("*.a", "*.b.a") && !apart("*.b.a", "*.a"));
    }

    #[test]
    fn a_leading_dot_is_answered_with_the_right_form() {
        assert_eq!(DomainPattern::parse(".a.b"), Err("write \"*.a.b\" for the domains below a.b".to_owned()));
        assert!(DomainPattern::parse("a.*").is_err() && DomainPattern::parse("").is_err());
    }
}
