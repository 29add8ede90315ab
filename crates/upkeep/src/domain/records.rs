//! Texts of records.

use super::in_time;
use authn::tag_value;
use route::dns::{Dns, Lookup};
use std::{fmt, net::IpAddr};

/// How the key that the DNS has compares with the one that signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyState {
    /// The DNS has the key that signs.
    Published,
    /// Receivers reject the signature.
    Another,
    /// There is a TXT record, and no key in it.
    NoKey,
    /// There is no record.
    Missing,
    /// The DNS gave no answer, for this reason.
    Unknown(String),
}

impl fmt::Display for KeyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Published => f.write_str("published"),
            Self::Another => f.write_str("ANOTHER KEY is published: receivers reject the signature"),
            Self::NoKey => f.write_str("NO KEY is in the TXT record"),
            Self::Missing => f.write_str("NOT PUBLISHED"),
            Self::Unknown(why) => write!(f, "unknown: {why}"),
        }
    }
}

/// Compares the key of `record` with what DNS has under a name, `SELECTOR._domainkey.DOMAIN`.
pub async fn compare_key(dns: &Dns, name: &str, record: &str) -> KeyState {
    let key_of = |found: &[u8]| tag_value(std::str::from_utf8(found).ok()?, "p");
    match in_time(dns.txt(name.split('.').map(str::as_bytes))).await {
        Lookup::Found(records) if records.iter().any(|found| key_of(found) == tag_value(record, "p")) => {
            KeyState::Published
        }
        Lookup::Found(records) if records.iter().any(|found| key_of(found).is_some()) => KeyState::Another,
        Lookup::Found(_) => KeyState::NoKey,
        Lookup::NoData | Lookup::NxDomain => KeyState::Missing,
        Lookup::Unknown(why) => KeyState::Unknown(why),
    }
}

/// The texts that begin with a version, which other words may follow.
pub(super) fn all_of(texts: &[String], version: &str) -> Vec<String> {
    let is_of = |text: &&String| {
        let begin = text.get(..version.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(version));
        begin && !text[version.len()..].starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    texts.iter().filter(is_of).cloned().collect()
}

/// An SPF record that names one more address, before what it says of all others.
pub(super) fn with_address(record: &str, address: IpAddr) -> String {
    let term = match address.to_canonical() {
        IpAddr::V4(address) => format!("ip4:{address}"),
        IpAddr::V6(address) => format!("ip6:{address}"),
    };
    let is_last = |term: &str| {
        let term = term.trim_start_matches(['+', '-', '~', '?']).to_ascii_lowercase();
        term == "all" || term.starts_with("redirect=")
    };
    let mut terms: Vec<&str> = record.split_ascii_whitespace().collect();
    let at = terms.iter().position(|term| is_last(term)).unwrap_or(terms.len());
    terms.insert(at, &term);
    terms.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_stands_before_what_holds_for_all_others() {
        let v4: IpAddr = "192.0.2.1".parse().unwrap();
        for (record, expected) in [
            ("v=spf1 mx -all", "v=spf1 mx ip4:192.0.2.1 -all"),
            ("v=spf1 ALL", "v=spf1 ip4:192.0.2.1 ALL"),
            ("v=spf1  a  redirect=b.test", "v=spf1 a ip4:192.0.2.1 redirect=b.test"),
            ("v=spf1 a", "v=spf1 a ip4:192.0.2.1"),
        ] {
            assert_eq!(with_address(record, v4), expected);
        }
        assert_eq!(
            with_address("v=spf1 ~all", "2001:db8::1".parse().unwrap()),
            "v=spf1 ip6:2001:db8::1 ~all"
        );
    }

    #[test]
    fn only_records_of_the_version_count() {
        let texts = ["v=spf1 -all", "V=SPF1", "v=spf10 a", "v=DMARC1; p=none", "google=1"].map(str::to_owned);
        assert_eq!(all_of(&texts, "v=spf1"), ["v=spf1 -all", "V=SPF1"]);
        assert_eq!(all_of(&texts, "v=DMARC1"), ["v=DMARC1; p=none"]);
    }
}
