//! The messages of the load. All that a message shall be follows from its name, so that neither end
//! has to tell the other.

use sim::seed::Rng;

/// How the next hop answers a message; the address says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Course {
    /// Accepted at once.
    Taken,
    /// Takes it at the second attempt.
    Deferred,
    /// Refuses it for good: its sender gets a report.
    Refused,
}

/// A number that is the same wherever the name is known.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// One in sixteen is deferred, one in sixteen is refused.
pub(crate) fn course(name: &str) -> Course {
    match hash(name) % 16 {
        0 => Course::Deferred,
        1 => Course::Refused,
        _ => Course::Taken,
    }
}

/// Half of the messages have another domain, which can have another kind of mailbox.
pub(crate) fn recipient(name: &str) -> &'static str {
    if (hash(name) / 16).is_multiple_of(2) { "x@b.test" } else { "x@box.test" }
}

/// Some lines that only this message has; a few messages are larger than one chunk of the spool.
pub(crate) fn body(name: &str) -> String {
    let mut rng = Rng::new(hash(name));
    let lines = if rng.chance(1) { 4000 + rng.index(2000) } else { rng.index(40) };
    let mut text = format!("Subject: {name}\r\n\r\n");
    for _ in 0..lines {
        text += &format!("{:016x}{:016x}{:016x}{:016x}\r\n", rng.bits(), rng.bits(), rng.bits(), rng.bits());
    }
    text
}
