//! The envelopes.

use crate::common::envelopes::{Envelope, HERE, Parts};

const NEAR: Envelope = Envelope { client: Some(("near.example", "198.51.100.7")), ..HERE };
const FAR: Envelope = Envelope { client: Some(("client.far.example", "203.0.113.9")), ..HERE };
const BAD: Envelope = Envelope { client: Some(("bad.net.example", "192.0.2.66")), ..HERE };

/// Domains of recipients that each server has an opinion about.
pub(crate) const USUAL: &[&str] =
    &["mx.test", "localhost", "example.com", "far.example", "sub.example.org", "nowhere.example", "MX.Test"];

/// Returns `count` envelopes for a set-up.
pub(crate) fn of(set_up: usize, domains: &'static [&'static str], count: usize) -> Vec<Envelope> {
    let parts = Parts {
        clients: &[HERE, NEAR, FAR, FAR, BAD],
        senders: &[
            "a@from.example",
            "",
            "joe@mx.test",
            "joe@example.com",
            "x@bad.example",
            "bad@sender.example",
            "\"odd name\"@from.example",
            "A.B+c@From.Example",
            "a@nowhere.example",
        ],
        names: &[
            "joe",
            "ann",
            "sales",
            "INFO",
            "root",
            "postmaster",
            "unknown",
            "\"joe\"",
            "joe+x",
            "abuse",
            "Ann",
            "boss",
        ],
        domains,
    };
    parts.mixed(set_up, count)
}
