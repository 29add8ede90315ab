//! Envelopes that go through two programs, and the comparison of what becomes of them.

use std::{collections::BTreeSet, fmt};

/// What one client says from EHLO to its recipients.
#[derive(Clone, Copy)]
pub struct Envelope {
    /// Name and address of the client; none: this machine.
    pub client: Option<(&'static str, &'static str)>,
    pub hello: &'static str,
    pub tls: bool,
    /// The initial response of AUTH PLAIN, in base64.
    pub login: Option<&'static str>,
    pub from: &'static str,
    pub parameters: &'static str,
    pub to: &'static [&'static str],
}

/// A client on this machine without recipients.
pub const HERE: Envelope = Envelope {
    client: None,
    hello: "client.example",
    tls: true,
    login: None,
    from: "a@from.example",
    parameters: "",
    to: &[],
};

impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = self.client.map_or("this machine", |(_, address)| address);
        let login = self.login.map_or("", |_| ", with a login");
        write!(
            f,
            "{client}{login}, hello {}: <{}> {} to {:?}",
            self.hello, self.from, self.parameters, self.to
        )
    }
}

/// Parts that envelopes are made of.
#[derive(Clone, Copy)]
pub struct Parts {
    pub clients: &'static [Envelope],
    pub senders: &'static [&'static str],
    pub names: &'static [&'static str],
    pub domains: &'static [&'static str],
}

impl Parts {
    /// Returns `count` envelopes: clients, senders and recipients in ever new combinations, always the same for the same seed. A
    /// client with a login uses its own sender each second time.
    pub fn mixed(self, seed: usize, count: usize) -> Vec<Envelope> {
        // A generator of Lehmer; its numbers only have to differ.
        let mut state = 48_271 * (seed as u64 + 1);
        let mut next = |below: usize| {
            state = state * 48_271 % 0x7fff_ffff;
            (state >> 8) as usize % below
        };
        let envelopes = (0..count).map(|_| {
            let base = self.clients[next(self.clients.len())];
            let to = (0..1 + next(3)).map(|_| {
                let name = self.names[next(self.names.len())];
                let address = format!("{name}@{}", self.domains[next(self.domains.len())]);
                &*Box::leak(address.into_boxed_str())
            });
            let to: Vec<&'static str> = to.collect();
            let from = if base.login.is_some() && next(2) == 0 {
                base.from
            } else {
                self.senders[next(self.senders.len())]
            };
            Envelope { from, to: Box::leak(to.into_boxed_slice()), ..base }
        });
        envelopes.collect()
    }
}

/// The treatment of an envelope: a reply for each recipient, and its deliveries.
#[derive(Debug, PartialEq, Eq)]
pub struct Treatment {
    pub replies: Vec<String>,
    pub arrivals: BTreeSet<String>,
}

/// A difference between the two programs: replies to a recipient, or deliveries.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    pub theirs: String,
    pub ours: String,
}

impl Difference {
    pub fn new(theirs: &str, ours: &str) -> Self {
        Self { theirs: theirs.to_owned(), ours: ours.to_owned() }
    }

    /// Returns a row for a table, with the places in the last column.
    pub fn row(&self, places: &[String]) -> String {
        format!("| `{}` | `{}` | {} times: {} |", self.theirs, self.ours, places.len(), places.join("; "))
    }
}

/// Returns what only one of two sets of deliveries has.
pub fn only(one: &BTreeSet<String>, other: &BTreeSet<String>) -> String {
    let rest: Vec<&str> = one.difference(other).map(String::as_str).collect();
    if rest.is_empty() { "nothing".to_owned() } else { rest.join("; ") }
}

/// Returns what is different in two treatments: the replies, or else the deliveries.
pub fn differences(theirs: &Treatment, ours: &Treatment) -> Vec<Difference> {
    let replies = theirs.replies.iter().zip(&ours.replies).filter(|(theirs, ours)| theirs != ours);
    let mut found: Vec<Difference> = replies.map(|(theirs, ours)| Difference::new(theirs, ours)).collect();
    if found.is_empty() && theirs.arrivals != ours.arrivals {
        let (old, new) = (&theirs.arrivals, &ours.arrivals);
        found.push(Difference::new(&only(old, new), &only(new, old)));
    }
    found
}

/// Returns the reverse-path of a message for people.
pub fn named(sender: &str) -> &str {
    if sender.is_empty() { "<>" } else { sender }
}

/// Returns whether the header of a message has this subject.
pub fn has_subject(content: &[u8], subject: &str) -> bool {
    let header = String::from_utf8_lossy(content).replace('\r', "");
    let header = header.split("\n\n").next().unwrap_or_default();
    header.lines().any(|line| line == format!("Subject: {subject}"))
}
