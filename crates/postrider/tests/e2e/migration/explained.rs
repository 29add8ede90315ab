//! The differences that are as they should be. `docs/results/import.md` has the same tables, with counts.

use super::decided::Asked;
use crate::common::envelopes::Difference;

/// A kind of difference; `*` stands for anything.
pub(crate) struct Row {
    pub(crate) theirs: &'static str,
    pub(crate) ours: &'static str,
    pub(crate) why: &'static str,
}

impl Row {
    pub(crate) fn explains(&self, difference: &Difference) -> bool {
        fits(self.theirs, &difference.theirs) && fits(self.ours, &difference.ours)
    }
}

fn fits(pattern: &str, text: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(begin) else { return false };
    (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| fits(rest, &text[at..]))
}

const fn row(theirs: &'static str, ours: &'static str, why: &'static str) -> Row {
    Row { theirs, ours, why }
}

pub(crate) const EXIM: &[Row] = &[
    row(
        "250, returned",
        "550 5.1.1",
        "a host that may relay, and an unknown user: Exim accepts all recipients of such hosts, and returns the mail",
    ),
    row("250, returned", "550 5.1.2", "local mail only: the same for other domains"),
    row("550", "550 5.1.1", "Exim has no enhanced codes: an unknown user"),
    row(
        "550",
        "550 5.7.1",
        "Exim has no enhanced codes: no right to relay, or a sender or a host that is blocked",
    ),
];

pub(crate) const SENDMAIL: &[Row] = &[
    row("553 5.1.8", "250, *", "the domain of the sender does not exist: Postrider does not look senders up"),
    row("553 5.1.8", "550 5.1.1", "the same, and the recipient does not exist"),
    row("553 5.1.8", "550 5.7.1", "the same, and the client may not relay"),
    row("553 5.3.0", "550 5.1.1", "`error:nouser` of mailertable: the code for an unknown user"),
    row(
        "local: joe*@example.com to *",
        "local: joe@mx.test to *",
        "masqueraded senders of local mail: `addresses.generic` is for mail that leaves",
    ),
    row(
        "mx.far: * to joe@far.example",
        "mx.far: * to joe+x@far.example",
        "`@domain %1@other` loses the detail, Postrider keeps it",
    ),
    row(
        "mx.far: * to joe@far.example",
        "mx.far: * to \"joe\"@far.example",
        "quotes that an address does not need stay in Postrider",
    ),
    row(
        "nothing",
        "local joe",
        "DISCARD: Sendmail discards the message, Postrider its recipients but those that a rule above accepts",
    ),
];

pub(crate) const POSTFIX: &[Row] = &[
    row("454 4.7.1", "550 5.7.1", "a stranger wants to relay: both refuse, Postfix for now"),
    row("450 4.7.1", "550 5.7.1", "a stranger wants to relay with a sender that is deferred: both refuse"),
    row("554 5.7.1", "550 5.7.1", "a final reject for a stranger who wants to relay: another code"),
    row("*: * to joe@*", "*: * to \"joe\"@*", "quotes that an address does not need stay in Postrider"),
    row(
        "nothing",
        "mx.org *",
        "Ann@ and ann@ of one message are one recipient in Postfix, and two in Postrider",
    ),
];

/// Returns why replies of Exim and Postrider differ.
pub(crate) fn exim(asked: &Asked<'_>) -> Option<&'static str> {
    let is_relay = asked.ours.contains("elay");
    match asked {
        Asked { theirs, ours, .. } if theirs.starts_with('2') && ours.starts_with("550 5.1.1") => {
            Some("an unknown user that no statement asks about: Exim returns the mail")
        }
        Asked { theirs, .. } if theirs.starts_with('4') && is_relay => {
            Some("a stranger who wants to relay: both refuse")
        }
        Asked { theirs, said, .. } if theirs.starts_with('2') && is_relay => {
            (said.contains("may relay here") || said.contains("for other domains it is refused"))
                .then_some("the report says who may not relay any more")
        }
        _ => None,
    }
}

/// Returns why replies of Sendmail and Postrider differ.
pub(crate) fn sendmail(asked: &Asked<'_>) -> Option<&'static str> {
    let Asked { theirs, ours, said } = asked;
    let is_relay = ours.contains("elay");
    match theirs.as_bytes()[0] {
        b'4' if is_relay => Some("a stranger who wants to relay: both refuse"),
        b'2' if is_relay && said.contains("subdomains are not taken") => {
            Some("the report says which subdomains are not taken")
        }
        b'2' if is_relay && said.contains("write the networks of these hosts") => {
            Some("the report says which hosts relayed by their names")
        }
        b'2' if ours.starts_with("550 5.1.1") && said.contains("mail for unknown users went to") => {
            Some("the report says where mail for unknown users went")
        }
        _ if ours.starts_with('2') && said.contains("this mail is held") => {
            Some("the report says which mail is held")
        }
        b'2' if (is_relay || ours.starts_with("550 5.1.1"))
            && said.contains("DISCARD is for the recipient") =>
        {
            Some("the report says what DISCARD is for: unknown users of a message that is discarded")
        }
        _ if said.contains("send there is taken") && (!ours.starts_with('5') || theirs.starts_with('4')) => {
            Some("the report says that aliases lead to domains with an error")
        }
        b'2' if ours.contains("not taken over yet") && said.contains("waits (451)") => {
            Some("the report says which mail waits")
        }
        _ => None,
    }
}
