//! Warnings of entries in text maps that no look-up can find, or whose value has no meaning.

use config::{MappedHop, MappedKey, Settings, named_by_map};
use mail::{ClientCertificate, Domain, Mailbox};
use maps::{
    FileFault, Kind, Reference,
    text::{TextEntry, TextTable},
};
use policy::Condition;
use std::net::IpAddr;

/// Entries of one file that are told at once.
const ENTRIES_MAX: usize = 10;

/// The look-ups of a map: its keys and values have to fit them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Logins, with the addresses that each may send from.
    Senders,
    /// Keys are addresses of clients, or their networks.
    Clients,
    /// Keys are verified names of clients.
    ClientNames,
    /// Local domains, and those of routes.
    Domains,
    /// Keys are users, by name or address.
    Users,
    /// Fingerprints and names of certificates.
    Certificates,
    /// Names of aliases.
    Aliases,
    /// Addresses, names and domains behind an `@`.
    Addresses,
    /// Addresses, domains and domains behind an `@`.
    RouteSenders,
    /// Addresses, domains, domains behind a dot, and users in front of an `@`.
    RuleAddresses,
    /// Recipients, with their next hops.
    NextHops,
    /// Domains, with the keys that sign their mail.
    SigningKeys,
}

/// The fault of an entry, and what to write in its place.
type Fault = (String, String);

/// Returns the entries that are never used, with their places.
pub(crate) fn warnings(settings: &Settings) -> Vec<(Reference, FileFault)> {
    let mut seen: Vec<(Use, &Reference)> = Vec::new();
    for one in uses(settings) {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen.into_iter().flat_map(|(of, reference)| warnings_of(of, reference, settings)).collect()
}

/// The maps of a configuration, each with what it is looked up for.
fn uses(settings: &Settings) -> Vec<(Use, &Reference)> {
    let of_key = |key: &str| match key {
        "auth.senders" => Some(Use::Senders),
        "relay.networks" => Some(Use::Clients),
        "local.domains" | "route.domains" => Some(Use::Domains),
        "local.users" => Some(Use::Users),
        "auth.certificates" => Some(Use::Certificates),
        "route.senders" => Some(Use::RouteSenders),
        "route.recipients" => Some(Use::Addresses),
        "route.next_hop" => Some(Use::NextHops),
        "sign.keys" => Some(Use::SigningKeys),
        "addresses.aliases" => Some(Use::Aliases),
        "addresses.canonical"
        | "addresses.virtual"
        | "addresses.generic"
        | "addresses.sender_bcc"
        | "addresses.recipient_bcc" => Some(Use::Addresses),
        _ => None,
    };
    let own = settings.map_references().filter_map(|(key, reference)| Some((of_key(key)?, reference)));
    let of_condition = |condition: &Condition| match condition {
        Condition::Client(_) => Some(Use::Clients),
        Condition::ClientName(_) => Some(Use::ClientNames),
        Condition::Certificate(_) => Some(Use::Certificates),
        Condition::From(_) | Condition::To(_) => Some(Use::RuleAddresses),
        _ => None,
    };
    let rules = settings.rules.program.rules().iter();
    let conditions = rules.flat_map(|rule| rule.conditions.iter().chain(&rule.unless));
    let of_rules =
        conditions.filter_map(|one| Some((of_condition(one)?, one.maps()))).flat_map(|(of, maps)| {
            maps.iter().filter_map(move |map| {
                let (_, reference) = settings.rules.references.get(usize::from(map.0))?;
                Some((of, reference))
            })
        });
    own.chain(of_rules).collect()
}

fn warnings_of(of: Use, reference: &Reference, settings: &Settings) -> Vec<(Reference, FileFault)> {
    let Reference::File(Kind::Text, path) = reference else { return Vec::new() };
    // A file that cannot be read is an error elsewhere.
    let text = maps::read_text(path).unwrap_or_default();
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let is_route = |name: &str| named_by_map(&settings.routes, name).is_some();
    let found = TextTable::entries(text).filter_map(|entry| fault_of(of, &entry, &is_route));
    found.take(ENTRIES_MAX).map(|fault| (reference.clone(), fault)).collect()
}

/// Returns why a key is never found, or its value is of no use, with its place.
fn fault_of(of: Use, entry: &TextEntry<'_>, is_route: &dyn Fn(&str) -> bool) -> Option<FileFault> {
    let key = &*mail::fold(&entry.key);
    let fault = match of {
        Use::Senders => {
            let (what, help) = senders(&entry.value)?;
            return Some(FileFault { what, help, ..entry.place() });
        }
        Use::NextHops => {
            let what = MappedHop::parse(&entry.value, is_route).err()?;
            let help = format!("mail for `{}` is deferred until then", entry.key);
            return Some(FileFault { what, help, ..entry.place() });
        }
        Use::SigningKeys => match MappedKey::parse(&entry.value).and_then(|mapped| mapped.read()) {
            Err(why) => {
                let what = format!("mail from {key} cannot be signed: {why}");
                let help =
                    format!("mail from {key} is deferred until then: `postrider dkim new` makes a key");
                return Some(FileFault { what, help, ..entry.place() });
            }
            Ok(_) => listed_domain(key),
        },
        Use::Clients => client(key),
        Use::ClientNames => name(key),
        Use::Domains => listed_domain(key),
        Use::Users => user(key),
        Use::Certificates => certificate(key),
        Use::Aliases => of_alias_file(key),
        Use::Addresses => address(key),
        Use::RouteSenders => match key.strip_prefix('@') {
            _ if key == "<>" => Some((
                "the null reverse-path is not looked up in maps".to_owned(),
                "write \"<>\" into `senders` of the route".to_owned(),
            )),
            Some(domain) => at_domain(domain),
            None if key.contains('@') => address(key),
            None => listed_domain(key),
        },
        Use::RuleAddresses => rule_address(key),
    };
    let (what, help) = fault?;
    Some(FileFault { what: format!("`{}` is never found: {what}", entry.key), help, ..entry.key_place() })
}

/// For domains: each has to be in the map, wildcards mean nothing.
fn listed_domain(key: &str) -> Option<Fault> {
    let (what, help) = domain(key)?;
    Some((
        what,
        help.unwrap_or_else(|| "write each domain on a line, or name a map \"regex:FILE\"".to_owned()),
    ))
}

/// Checks the value for a login: the addresses that it may use.
fn senders(value: &str) -> Option<Fault> {
    let is_sender = |item: &str| match item.strip_prefix('@') {
        Some(domain) => Domain::parse(domain).is_ok(),
        None => item == "*" || Mailbox::parse(item, true).is_ok(),
    };
    let mut items = value.split([',', ' ', '\t']).filter(|item| !item.is_empty()).peekable();
    let what = match items.peek() {
        None => "there is no address behind the login".to_owned(),
        Some(_) => format!(
            "`{}` is not an address, so that nobody may send as it",
            items.find(|item| !is_sender(item))?
        ),
    };
    Some((
        what,
        "write `user@example.com`, `@example.com` for a whole domain, or `*` for every address".to_owned(),
    ))
}

/// The address of a client, as it is looked up.
fn client(key: &str) -> Option<Fault> {
    match key.parse::<IpAddr>() {
        Ok(ip) if ip.to_canonical().to_string() == key => None,
        Ok(ip) => Some((
            "addresses are looked up in their short form".to_owned(),
            format!("write `{}`", ip.to_canonical()),
        )),
        Err(_) if key.contains('/') => Some((
            "a file of text has single addresses, and no networks".to_owned(),
            "name the file \"cidr:FILE\", which has networks and addresses".to_owned(),
        )),
        Err(_) => Some(("not an IP address".to_owned(), "write an address such as `192.0.2.1`".to_owned())),
    }
}

/// The name of a client, or a domain behind a dot.
fn name(key: &str) -> Option<Fault> {
    if let Some(below) = key.strip_prefix("*.") {
        return Some(("a `*` is a character like others".to_owned(), format!("write `.{below}`")));
    }
    if key.parse::<IpAddr>().is_ok() {
        return Some(("an address is not a name".to_owned(), "use the map in `client`".to_owned()));
    }
    let (what, help) = domain(key.strip_prefix('.').unwrap_or(key))?;
    Some((
        what,
        help.unwrap_or_else(|| "write `mail.example.com`, or `.example.com` for the names below".to_owned()),
    ))
}

/// A domain, as it is looked up; a fault may have no advice of its own.
fn domain(key: &str) -> Option<(String, Option<String>)> {
    if let Some(rest) = key.strip_prefix('@').filter(|rest| Domain::parse(rest).is_ok()) {
        return Some(("domains are looked up without an `@`".to_owned(), Some(format!("write `{rest}`"))));
    }
    if key.starts_with("*.") || key.starts_with('.') {
        return Some(("domains are looked up as they are, without those above".to_owned(), None));
    }
    match Domain::parse(key) {
        Ok(domain) if *domain.key() == *key => None,
        Ok(domain) => Some((
            "international domains are looked up in their form of ASCII".to_owned(),
            Some(format!("write `{}`", domain.key())),
        )),
        Err(_) => Some(("not a domain".to_owned(), None)),
    }
}

/// Checks what has to be a domain behind an `@`.
fn at_domain(text: &str) -> Option<Fault> {
    if text.is_empty() {
        return Some((
            "the domain is missing behind the `@`".to_owned(),
            "write `@example.com`, a line for each domain".to_owned(),
        ));
    }
    let (what, _) = domain(text)?;
    let help = match Domain::parse(text) {
        Ok(domain) => format!("write `@{}`", domain.key()),
        Err(_) => "write `@example.com`, a line for each domain".to_owned(),
    };
    Some((what, help))
}

/// Checks for a file in the form of `/etc/aliases`, whose names end with a colon.
fn of_alias_file(key: &str) -> Option<Fault> {
    key.ends_with(':').then(|| {
        let what = "the colon is a part of the key".to_owned();
        (what, "for a file in the form of /etc/aliases, write \"aliases:FILE\"".to_owned())
    })
}

/// An address, a name, or a domain behind an `@`.
fn address(key: &str) -> Option<Fault> {
    if let Some(fault) = of_alias_file(key) {
        return Some(fault);
    }
    if let Some(domain) = key.strip_prefix('@') {
        return at_domain(domain);
    }
    let whole = if key.contains('@') { key.to_owned() } else { format!("{key}@localhost") };
    match Mailbox::parse(&whole, true) {
        Ok(mailbox) if mailbox.local() == "*" => {
            let help = format!("write `@{}` for all addresses of the domain", mailbox.domain().key());
            let help =
                if key == "*" { "write `@example.com`, a line for each domain".to_owned() } else { help };
            Some(("a `*` is a character like others".to_owned(), help))
        }
        Ok(mailbox) if *mailbox.domain().key() == *mailbox.domain().as_str() => None,
        Ok(mailbox) => Some((
            "international domains are looked up in their form of ASCII".to_owned(),
            format!("write `{}@{}`", mailbox.local(), mailbox.domain().key()),
        )),
        Err(_) => {
            Some(("not an address".to_owned(), "write `user@example.com`, or `@example.com`".to_owned()))
        }
    }
}

/// Checks a user: a whole address, or a name alone.
fn user(key: &str) -> Option<Fault> {
    if key.starts_with('@') {
        let help = "write each user on a line; a catch-all is for `addresses.virtual`".to_owned();
        return Some(("users are looked up by their whole address, or by their name".to_owned(), help));
    }
    address(key)
}

/// Checks a fingerprint of a certificate; names need no check.
fn certificate(key: &str) -> Option<Fault> {
    let digits = key.strip_prefix("sha256:").unwrap_or(key);
    let prefixed = format!("sha256:{digits}");
    match ClientCertificate::read_fingerprint(&prefixed) {
        Some(fingerprint) if key == format!("sha256:{fingerprint}") => None,
        Some(fingerprint) => Some((
            "fingerprints are looked up without colons, behind `sha256:`".to_owned(),
            format!("write `sha256:{fingerprint}`"),
        )),
        None if key.starts_with("sha256:") => Some((
            "not a fingerprint of SHA-256, which has 64 digits".to_owned(),
            "take it from `openssl x509 -noout -fingerprint -sha256`, in lower case and without colons"
                .to_owned(),
        )),
        None => None,
    }
}

/// Checks a key for the conditions `from` and `to`.
fn rule_address(key: &str) -> Option<Fault> {
    if let Some(rest) = key.strip_prefix('@').filter(|rest| Domain::parse(rest).is_ok()) {
        return Some(("domains are looked up without an `@` in rules".to_owned(), format!("write `{rest}`")));
    }
    if let Some(below) = key.strip_prefix("*.") {
        return Some(("a `*` is a character like others".to_owned(), format!("write `.{below}`")));
    }
    if let Some(user) = key.strip_suffix("@*").or_else(|| key.strip_suffix('@')) {
        let is_wrong = key.ends_with('*') || Mailbox::parse(&format!("{user}@localhost"), true).is_err();
        return is_wrong.then(|| {
            ("a user at every domain has nothing behind the `@`".to_owned(), "write `user@`".to_owned())
        });
    }
    if key == "<>" {
        return None;
    }
    if key.contains('@') { address(key) } else { name(key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The faults of a file: line, column, and what to write.
    fn faults(of: Use, text: &str) -> Vec<(usize, usize, String)> {
        let found = TextTable::entries(text).filter_map(|entry| fault_of(of, &entry, &|name| name == "hub"));
        found.map(|fault| (fault.line, fault.column, fault.help)).collect()
    }

    /// The lines with faults, with a part of the advice.
    fn are(of: Use, text: &str, expected: &[(usize, usize, &str)]) {
        let found = faults(of, text);
        let places =
            |all: &[(usize, usize, String)]| all.iter().map(|one| (one.0, one.1)).collect::<Vec<_>>();
        let wanted: Vec<_> = expected.iter().map(|one| (one.0, one.1)).collect();
        assert_eq!(places(&found), wanted, "{of:?}: {found:?}");
        for ((_, _, help), (line, _, part)) in found.iter().zip(expected) {
            assert!(help.contains(part), "{of:?}, line {line}: {help}");
        }
    }

    #[test]
    fn keys_of_addresses_that_are_never_found_are_told() {
        let good =
            "info@a.test x\ninfo x\n@a.test x\n\"a b\"@a.test x\ninfo@xn--bcher-kva.test x\nfirst.last x\n";
        are(Use::Addresses, good, &[]);
        let bad = "@ x\n*@a.test x\ninfo@b\u{fc}cher.test x\n@b\u{fc}cher.test x\na@b@c x\n* x\n";
        are(
            Use::Addresses,
            bad,
            &[
                (1, 1, "`@example.com`"),
                (2, 1, "`@a.test`"),
                (3, 1, "`info@xn--bcher-kva.test`"),
                (4, 1, "`@xn--bcher-kva.test`"),
                (5, 1, "user@example.com"),
                (6, 1, "`@example.com`"),
            ],
        );
        are(Use::Users, "joe\njoe@a.test\n@a.test\n", &[(3, 1, "each user")]);
        for of in [Use::Aliases, Use::Addresses, Use::Users] {
            are(of, "joe ann\nroot: ann\n", &[(2, 1, "aliases:FILE")]);
        }
    }

    #[test]
    fn next_hops_that_cannot_be_used_are_told_before_mail_waits_for_them() {
        are(
            Use::NextHops,
            "a.test smtp:[b.test]:26\njoe@a.test hub\n* :\nc.test hop\nd.test smtp:[x\n.e.test error:no\n",
            &[(4, 8, "mail for `c.test`"), (5, 8, "is deferred"), (6, 9, "`.e.test`")],
        );
    }

    #[test]
    fn keys_that_cannot_sign_are_told_before_mail_waits_for_them() {
        let pem = "MC4CAQAwBQYDK2VwBCIEIHcHbQpzGKV9PBbBclGyZkXfTC+H68CZKrF3+6UduSwq";
        are(
            Use::SigningKeys,
            &format!(
                "a.test 2026:{pem}\nb.test {pem}\nc.test 2026:/etc/key.pem\nd.test 2026:AAAA\n@e.test x:{pem}\n"
            ),
            &[(2, 8, "mail from b.test"), (3, 8, "deferred"), (4, 8, "dkim new"), (5, 1, "write `e.test`")],
        );
    }

    #[test]
    fn domains_and_names_that_are_never_found_are_told() {
        are(
            Use::Domains,
            "a.test\nA.test x\n@b.test\n*.c.test\nhttp://d\nuser@e.test\nb\u{fc}cher.test\n",
            &[
                (3, 1, "write `b.test`"),
                (4, 1, "regex:"),
                (5, 1, "each domain"),
                (6, 1, "each domain"),
                (7, 1, "`xn--bcher-kva.test`"),
            ],
        );
        are(
            Use::RouteSenders,
            "a@b.test\n@b.test\nb.test\n*.b.test\n<>\n",
            &[(4, 1, "regex:"), (5, 1, "<>")],
        );
        are(
            Use::RuleAddresses,
            "a@b.test\nb.test\n.b.test\n.test\nabuse@\n<>\n@c.test\n*.d.test\nabuse@*\n",
            &[(7, 1, "`c.test`"), (8, 1, "`.d.test`"), (9, 1, "`user@`")],
        );
        are(
            Use::ClientNames,
            "mx.a.test\n.a.test\n*.a.test\n192.0.2.1\n",
            &[(3, 1, "`.a.test`"), (4, 1, "client")],
        );
    }

    #[test]
    fn clients_certificates_and_senders_that_are_never_found_are_told() {
        are(
            Use::Clients,
            "192.0.2.1 x\n2001:db8::1\n10.0.0.0/8 x\nexample.com z\n2001:db8:0::1\n",
            &[(3, 1, "cidr:"), (4, 1, "192.0.2.1"), (5, 1, "`2001:db8::1`")],
        );
        let (lower, colons) = ("ab".repeat(32), ["AB"; 32].join(":"));
        are(
            Use::Certificates,
            &format!(
                "sha256:{lower} joe\nSHA256:{lower} ann\njoe@a.test joe\nsha256:{colons} bob\n{colons} eve\nsha256:ab x\n"
            ),
            &[(4, 1, &format!("`sha256:{lower}`")), (5, 1, &format!("`sha256:{lower}`")), (6, 1, "openssl")],
        );
        are(
            Use::Senders,
            "jane sales@a.test, @b.test *\njoe @\nann sales@@a.test\nbob not an address\neve\n",
            &[(2, 5, "user@"), (3, 5, "user@"), (4, 5, "user@"), (5, 1, "user@")],
        );
    }
}
