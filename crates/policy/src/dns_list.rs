//! Lists of addresses and of domains in DNS (RFC 5782): block lists and allow lists.

use mail::Domain;
use std::{
    fmt,
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr},
};

/// What a list is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listee {
    /// The client's address, with its octets or nibbles reversed (RFC 5782 §2.1).
    Client,
    /// The client's verified name, if it has one.
    ClientName,
    /// The name in EHLO or HELO.
    Hello,
    /// The domain of the reverse-path.
    From,
}

impl Listee {
    /// Returns the key under which the configuration has the condition.
    pub fn key(self) -> &'static str {
        match self {
            Self::Client => "dns_list",
            Self::ClientName => "client_name_dns_list",
            Self::Hello => "hello_dns_list",
            Self::From => "from_dns_list",
        }
    }
}

/// A DNS list (RFC 5782), and which of its answers count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsList {
    zone: Box<str>,
    /// The first and the last one; none: all that mean that an address is listed.
    codes: Option<(Ipv4Addr, Ipv4Addr)>,
}

/// What a list says of an address or a domain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listed {
    /// Addresses that the list answered; empty if it does not list what was asked.
    pub codes: Vec<Ipv4Addr>,
    /// Why it is listed, in the words of the list.
    pub text: Box<str>,
}

/// Octets of a name in DNS without its last dot (RFC 1035 §2.3.4).
const NAME_MAX: usize = 253;

impl DnsList {
    /// Reads `ZONE`, `ZONE=127.0.0.2` or `ZONE=127.0.0.2-11`.
    ///
    /// # Errors
    /// What is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (zone, codes) = text.split_once('=').map_or((text, None), |(zone, codes)| (zone, Some(codes)));
        let zone = zone.strip_suffix('.').unwrap_or(zone);
        let domain = Domain::parse(zone).map_err(|error| format!("{zone}: {error}"))?;
        if !zone.contains('.') || zone.starts_with('[') || zone.parse::<IpAddr>().is_ok() {
            return Err(format!("{zone} is not the domain of a list"));
        }
        let codes = codes.map(|codes| {
            let (first, last) = codes.split_once('-').map_or((codes, None), |(a, b)| (a, Some(b)));
            let bad = || format!("{codes} is not 127.0.0.2 or 127.0.0.2-11");
            let first: Ipv4Addr = first.parse().map_err(|_| bad())?;
            let [a, b, c, d] = first.octets();
            let last = last.map_or(Ok(d), |last| last.parse().map_err(|_| bad()))?;
            if !first.is_loopback() || last < d {
                return Err(bad());
            }
            Ok((first, Ipv4Addr::new(a, b, c, last)))
        });
        Ok(Self { zone: domain.key().into(), codes: codes.transpose()? })
    }

    /// The domain of the list, as [`mail::Domain::key`] gives it.
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// Returns whether a list with these codes lists an address.
    pub fn matches(&self, listed: &Listed) -> bool {
        let counts = |code: &Ipv4Addr| match self.codes {
            Some((first, last)) => (first..=last).contains(code),
            None => true,
        };
        listed.codes.iter().any(counts)
    }

    /// Returns the name whose address says whether an address is listed (RFC 5782 §2.1, §2.4).
    pub fn name(zone: &str, address: IpAddr) -> String {
        let mut name = String::new();
        match address.to_canonical() {
            IpAddr::V4(v4) => {
                v4.octets().iter().rev().for_each(|octet| _ = write!(name, "{octet}."));
            }
            IpAddr::V6(v6) => {
                let nibbles = v6.octets().into_iter().flat_map(|octet| [octet >> 4, octet & 15]);
                nibbles.rev().for_each(|nibble| _ = write!(name, "{nibble:x}."));
            }
        }
        name + zone
    }

    /// Returns the name whose address says whether a domain, in A-labels, is listed (RFC 5782 §3). Returns none for addresses and for what looks
    /// like one: lists of domains answer them with an error or with a listing of everything. Returns none for what cannot be asked in DNS, too.
    pub fn domain_name(zone: &str, domain: &str) -> Option<String> {
        let domain = domain.strip_suffix('.').unwrap_or(domain);
        let is_label = |label: &str| (1..=63).contains(&label.len()) && label.is_ascii();
        let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
        let is_address = domain.starts_with('[')
            || domain.contains(':')
            || domain.rsplit('.').next().is_none_or(is_number);
        let is_asked =
            !is_address && domain.split('.').all(is_label) && domain.len() + 1 + zone.len() <= NAME_MAX;
        is_asked.then(|| format!("{domain}.{zone}"))
    }

    /// Returns whether a code says that an address is listed. Others are errors: lists refuse those who ask too often with
    /// 127.255.255.0/24, and a domain that nobody has any more has some other address for all names.
    pub fn is_code(code: Ipv4Addr) -> bool {
        code.is_loopback() && code.octets()[..3] != [127, 255, 255]
    }
}

impl fmt::Display for DnsList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.codes {
            None => f.write_str(&self.zone),
            Some((first, last)) if first == last => write!(f, "{}={first}", self.zone),
            Some((first, last)) => write!(f, "{}={first}-{}", self.zone, last.octets()[3]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_the_codes_that_are_written() {
        let listed = |codes: &[[u8; 4]]| Listed {
            codes: codes.iter().map(|code| Ipv4Addr::from(*code)).collect(),
            text: "".into(),
        };
        for (text, code, is_listed) in [
            ("zen.test.org", [127, 0, 0, 2], true),
            ("zen.test.org=127.0.0.2", [127, 0, 0, 2], true),
            ("zen.test.org=127.0.0.2", [127, 0, 0, 3], false),
            ("zen.test.org=127.0.0.2-11", [127, 0, 0, 11], true),
            ("zen.test.org=127.0.0.2-11", [127, 0, 0, 12], false),
            ("zen.test.org=127.0.0.2-11", [127, 0, 1, 4], false),
        ] {
            let list = DnsList::parse(text).unwrap();
            assert_eq!(
                list.matches(&listed(&[[127, 0, 0, 77], code])),
                is_listed || text.ends_with("org"),
                "{text}"
            );
            assert_eq!(list.matches(&listed(&[code])), is_listed, "{text} {code:?}");
            assert_eq!(list.to_string(), text);
            assert!(!list.matches(&listed(&[])), "{text}");
        }
        for wrong in [
            "",
            "zen",
            "192.0.2.1",
            "[192.0.2.1]",
            "a.b=",
            "a.b=2",
            "a.b=10.0.0.2",
            "a.b=127.0.0.4-2",
            "a.b=127.0.0.2-300",
            "a b.c",
        ] {
            assert!(DnsList::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_name_has_the_address_backwards() {
        let name = |address: &str| DnsList::name("l.test", address.parse().unwrap());
        assert_eq!(name("192.0.2.99"), "99.2.0.192.l.test");
        assert_eq!(name("::ffff:192.0.2.99"), "99.2.0.192.l.test");
        // The example of RFC 5782 §2.4.
        assert_eq!(
            name("2001:db8:1:2:3:4:567:89ab"),
            "b.a.9.8.7.6.5.0.4.0.0.0.3.0.0.0.2.0.0.0.1.0.0.0.8.b.d.0.1.0.0.2.l.test"
        );
    }

    #[test]
    fn addresses_are_no_domains_that_a_list_is_asked_about() {
        let name = |domain: &str| DnsList::domain_name("l.test", domain);
        assert_eq!(name("a.example").as_deref(), Some("a.example.l.test"));
        assert_eq!(name("a.example.").as_deref(), Some("a.example.l.test"));
        assert_eq!(name("localhost").as_deref(), Some("localhost.l.test"));
        let long = format!("{}.example", ["a"; 120].join("."));
        let wide = format!("{}.example", "a".repeat(64));
        for address in
            ["", "[192.0.2.1]", "192.0.2.1", "2001:db8::1", "1", "a..b", "bücher.example", &long, &wide]
        {
            assert_eq!(name(address), None, "{address}");
        }
    }

    #[test]
    fn errors_of_lists_are_no_codes() {
        for (code, is_code) in
            [([127, 0, 0, 2], true), ([127, 255, 255, 254], false), ([192, 0, 2, 1], false)]
        {
            assert_eq!(DnsList::is_code(Ipv4Addr::from(code)), is_code);
        }
    }
}
