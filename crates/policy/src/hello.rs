//! The name in EHLO, and the keys of names.

use mail::Domain;
use std::net::IpAddr;

/// Returns why a name in EHLO or HELO cannot be that of a mail server; `None` if it can. RFC 5321 §4.1.1.1 asks for a
/// domain with at least two labels, or for an address literal.
pub(crate) fn fault(
    hello: &str,
    client: Option<IpAddr>,
    is_own: impl Fn(&str) -> bool,
) -> Option<&'static str> {
    if hello.parse::<IpAddr>().is_ok() {
        return Some("an address without brackets");
    }
    if let Some(inner) = hello.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        let inner = inner.strip_prefix("IPv6:").unwrap_or(inner);
        return match inner.parse::<IpAddr>() {
            Ok(_) => None,
            Err(_) => Some("not an address literal"),
        };
    }
    let Ok(domain) = Domain::parse(hello) else { return Some("not a host name") };
    let key = domain.key();
    if !key.contains('.') {
        return Some("a name without a domain");
    }
    let is_local = client.is_some_and(|client| client.to_canonical().is_loopback());
    (!is_local && is_own(&key)).then_some("the name of this server")
}

/// The keys under which a name is looked up: itself, and the domains above it with a dot in front.
pub(crate) fn name_keys(name: &str, whole_only: bool) -> Vec<Box<str>> {
    let name = name.to_ascii_lowercase();
    let mut keys = vec![name.as_str().into()];
    let mut rest = name.as_str();
    while let Some(dot) = rest.find('.').filter(|_| !whole_only) {
        keys.push(rest[dot..].into());
        rest = &rest[dot + 1..];
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_mail_server_has_are_found() {
        let fault = |hello: &str| fault(hello, "192.0.2.1".parse().ok(), |key| key == "mx.own.test");
        for hello in ["mail.a.test", "[192.0.2.9]", "[IPv6:2001:db8::1]", "xn--bcher-kva.example"] {
            assert_eq!(fault(hello), None, "{hello}");
        }
        for hello in
            ["192.0.2.1", "2001:db8::1", "localhost", "MX.own.test", "[x]", "a..b", "a_b c.test", "friend"]
        {
            assert!(fault(hello).is_some(), "{hello}");
        }
    }

    #[test]
    fn a_name_is_looked_up_with_the_domains_above_it() {
        let keys: Vec<String> = name_keys("A.b.test", false).into_iter().map(String::from).collect();
        assert_eq!(keys, ["a.b.test", ".b.test", ".test"]);
        assert_eq!(name_keys("A.b.test", true).len(), 1);
    }
}
