//! The envelopes of each set-up.

use crate::common::envelopes::{Envelope, HERE, Parts};

const NEAR: Envelope = Envelope { client: Some(("near.example", "192.0.2.7")), ..HERE };
const FAR: Envelope = Envelope { client: Some(("far.example", "203.0.113.9")), ..HERE };
/// Jane with her password, jane with a wrong one, and joe@mx.test.
const JANE: Envelope = Envelope { login: Some("AGphbmUAc2VjcmV0"), from: "jane@mx.test", ..HERE };
const WRONG: Envelope = Envelope { login: Some("AGphbmUAd3Jvbmc="), ..JANE };
const JOE: Envelope = Envelope { login: Some("AGpvZUBteC50ZXN0AG90aGVy"), from: "joe@mx.test", ..HERE };

const fn to(base: Envelope, to: &'static [&'static str]) -> Envelope {
    Envelope { to, ..base }
}

const fn from(base: Envelope, from: &'static str, to: &'static [&'static str]) -> Envelope {
    Envelope { from, to, ..base }
}

const fn with(base: Envelope, parameters: &'static str, to: &'static [&'static str]) -> Envelope {
    Envelope { parameters, to, ..base }
}

/// Addresses in all forms, from a client, to a domain of the set-up.
macro_rules! forms {
    ($client:expr, $domain:literal) => {
        [
            to($client, &[concat!("joe@", $domain)]),
            to($client, &[concat!("joe@", $domain), concat!("ann@", $domain)]),
            from($client, "", &[concat!("joe@", $domain)]),
            to($client, &[concat!("\"joe\"@", $domain)]),
            to($client, &[concat!("@relay.example:joe@", $domain)]),
            to($client, &[concat!("joe%far.example@", $domain)]),
            to($client, &[concat!("far.example!joe@", $domain)]),
            to($client, &[concat!("\"joe@far.example\"@", $domain)]),
            to($client, &["joe@[127.0.0.1]"]),
            to($client, &["joe@[203.0.113.5]"]),
            to($client, &["postmaster"]),
            to($client, &["joe"]),
            to($client, &[concat!("joe@", $domain, ".")]),
            to($client, &[concat!("joe..x@", $domain)]),
            to($client, &[concat!("jo e@", $domain)]),
            to($client, &[concat!("j\u{f6}rg@", $domain)]),
            to(
                $client,
                &[concat!("aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggg@", $domain)],
            ),
            to($client, &["joe@@far.example", concat!("joe@", $domain)]),
            with($client, "BODY=8BITMIME SIZE=1000", &[concat!("joe@", $domain)]),
            with($client, "SIZE=99999999999", &[concat!("joe@", $domain)]),
            with($client, "FOO=bar", &[concat!("joe@", $domain)]),
        ]
    };
}

const BAD: Envelope = Envelope { client: Some(("bad.net.example", "192.0.2.66")), ..HERE };

/// Returns `count` envelopes of a set-up for a configuration that was imported.
pub(crate) fn mixed(set_up: usize, count: usize) -> Vec<Envelope> {
    let parts = Parts {
        clients: if set_up == 4 { &[JANE, JOE, JANE, HERE] } else { &[HERE, NEAR, FAR, BAD] },
        senders: &[
            "a@from.example",
            "",
            "root@mx.test",
            "joe@example.com",
            "x@bad.example",
            "bad@sender.example",
            "\"odd name\"@from.example",
            "A.B+c@From.Example",
        ],
        names: &["joe", "ann", "sales", "INFO", "nobody", "postmaster", "boss", "\"joe\"", "joe+x"],
        domains: &[
            "example.com",
            "example.org",
            "far.example",
            "mx.test",
            "localhost",
            "catch.example",
            "Sub.Example.org",
        ],
    };
    parts.mixed(set_up, count)
}

/// Returns the envelopes that a set-up is tried with.
pub(crate) fn of(set_up: usize) -> Vec<Envelope> {
    let (forms, special): (_, &[Envelope]) = match set_up {
        1 => (
            forms!(HERE, "far.example"),
            &[
                from(HERE, "root@mx.test", &["admin@example.com"]),
                to(HERE, &["a@one.example", "b@two.example", "c@three.example"]),
                from(HERE, "\"odd name\"@mx.test", &["joe@far.example"]),
                to(HERE, &["joe@localhost"]),
            ],
        ),
        2 => (
            forms!(HERE, "far.example"),
            &[
                from(HERE, "bob@isp.example", &["joe@far.example"]),
                to(HERE, &["a@one.example", "b@two.example"]),
                to(HERE, &["joe@mx.test"]),
                to(HERE, &["joe@localhost", "joe@far.example"]),
            ],
        ),
        3 => (
            forms!(NEAR, "far.example"),
            &[
                to(FAR, &["joe@far.example"]),
                from(FAR, "root@mx.test", &["joe@mx.test"]),
                to(FAR, &["postmaster"]),
                to(NEAR, &["a@one.example", "b@two.example"]),
            ],
        ),
        4 => (
            forms!(JANE, "far.example"),
            &[
                Envelope { tls: false, login: None, ..to(JANE, &["joe@far.example"]) },
                Envelope { login: None, ..to(JANE, &["joe@mx.test"]) },
                to(WRONG, &["joe@far.example"]),
                from(JANE, "joe@mx.test", &["joe@far.example"]),
                to(JANE, &["joe@mx.test", "joe@far.example"]),
                from(JOE, "jane@mx.test", &["joe@far.example"]),
                to(JOE, &["x@far.example"]),
                from(JANE, "", &["x@far.example"]),
            ],
        ),
        5 => (
            forms!(FAR, "example.com"),
            &[
                to(FAR, &["sales@example.com"]),
                to(FAR, &["info@example.com"]),
                to(FAR, &["SALES@Example.COM"]),
                to(FAR, &["sales@example.com", "joe@far.example"]),
                to(HERE, &["sales@example.com", "joe@far.example"]),
                to(FAR, &["boss@example.com"]),
                to(FAR, &["x@catch.example"]),
                to(HERE, &["x@catch.example"]),
            ],
        ),
        6 => (
            forms!(FAR, "example.com"),
            &[
                to(FAR, &["nobody@example.com"]),
                to(FAR, &["joe@example.com", "nobody@example.com", "ann@example.com"]),
                to(FAR, &["JOE@EXAMPLE.COM"]),
                to(FAR, &["joe@far.example"]),
                to(HERE, &["joe@far.example"]),
                to(FAR, &["postmaster@example.com"]),
            ],
        ),
        7 => (
            forms!(FAR, "example.org"),
            &[
                to(FAR, &["nobody@example.org"]),
                to(FAR, &["joe@example.org", "nobody@example.org", "ann@example.org"]),
                to(FAR, &["joe@sub.example.org"]),
                to(FAR, &["joe@far.example"]),
                to(HERE, &["joe@far.example"]),
                to(FAR, &["postmaster@mx.test"]),
            ],
        ),
        8 => (
            forms!(FAR, "mx.test"),
            &[
                Envelope { client: Some(("bad.net.example", "192.0.2.66")), ..to(HERE, &["joe@mx.test"]) },
                Envelope { client: Some(("net.example", "198.51.100.3")), ..to(HERE, &["joe@mx.test"]) },
                from(FAR, "bad@sender.example", &["joe@mx.test"]),
                from(FAR, "good@sender.example", &["joe@mx.test"]),
                from(FAR, "x@bad.example", &["joe@mx.test"]),
                Envelope { hello: "unqualified", ..to(FAR, &["joe@mx.test"]) },
                Envelope { client: Some(("[UNAVAILABLE]", "203.0.113.77")), ..to(HERE, &["joe@mx.test"]) },
                from(FAR, "bad@policy.example", &["joe@mx.test"]),
                from(FAR, "gray@policy.example", &["joe@mx.test"]),
                from(FAR, "odd@policy.example", &["joe@mx.test"]),
                from(HERE, "bad@policy.example", &["joe@mx.test"]),
                to(FAR, &["joe@far.example"]),
                to(HERE, &["joe@far.example"]),
            ],
        ),
        other => panic!("no set-up {other}"),
    };
    forms.into_iter().chain(special.iter().copied()).collect()
}
