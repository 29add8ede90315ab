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

/// Names of aliases that lead to names without a domain.
const ALIASES: [&str; 2] = ["sales", "info"];

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

impl Asked<'_> {
    fn word(&self, at: usize) -> &str {
        self.envelope.split(' ').nth(at).unwrap_or_default().trim_matches(['<', '>'])
    }

    fn client(&self) -> &str {
        self.word(0)
    }

    fn sender(&self) -> &str {
        self.word(1)
    }

    fn recipient(&self) -> &str {
        self.word(3)
    }

    fn name(&self) -> &str {
        self.recipient().split('@').next().unwrap_or_default()
    }

    fn domain(&self) -> &str {
        self.recipient().rsplit_once('@').map_or("", |(_, domain)| domain)
    }

    /// Returns the domain of the recipient, and the one that the table of domains has for it.
    fn domains(&self) -> impl Iterator<Item = &str> {
        let table = self.files.iter().find(|(file, _)| *file == "mail/domaintable");
        let lines = table.map_or("", |(_, text)| text.as_str()).lines();
        let other = lines.filter_map(|line| line.split_once(' ')).find(|(old, _)| *old == self.domain());
        [Some(self.domain()), other.map(|(_, new)| new)].into_iter().flatten()
    }

    /// Returns the words of lines of the report that have a text.
    fn lines<'s>(&'s self, text: &'s str) -> impl Iterator<Item = Vec<&'s str>> {
        let lines = self.said.lines().filter(move |line| line.contains(text));
        lines.map(|line| line.split([' ', ',']).map(|word| word.trim_end_matches([':', ';'])).collect())
    }

    /// Returns whether the client has one of these names, or one below it.
    fn is_named(&self, words: &[&str]) -> bool {
        let names = [
            ("127.0.0.1", "localhost"),
            ("198.51.100.7", "near.example"),
            ("203.0.113.9", "client.far.example"),
            ("192.0.2.66", "bad.net.example"),
        ];
        let name = names.iter().find(|(address, _)| *address == self.client()).map_or("", |(_, name)| name);
        words.iter().any(|word| covers(&format!("*.{}", key(word)), name) || key(word) == name)
    }

    /// Returns whether a key of the access table is for the envelope.
    fn has_key(&self, word: &str) -> bool {
        let key = key(word);
        let mut addresses =
            [self.sender(), self.recipient()].into_iter().chain(self.before.iter().map(|one| &**one));
        !key.is_empty()
            && (addresses.any(|address| address.contains(key))
                || self.client().starts_with(key)
                || self.is_named(&[word]))
    }

    /// Returns the domains that an alias, or the table of virtual users, leads to.
    fn targets(&self) -> Vec<String> {
        let name = self.name();
        let of_aliases = |name: &str| ALIASES.contains(&name).then(|| "far.example".to_owned());
        let mut found: Vec<String> = of_aliases(name).into_iter().collect();
        let table = self.files.iter().find(|(file, _)| *file == "mail/virtusertable");
        for line in table.map_or("", |(_, text)| text.as_str()).lines() {
            let (key, value) = line.split_once(' ').unwrap_or_default();
            if key == self.recipient() || key == format!("@{}", self.domain()) {
                let (user, domain) = value.rsplit_once('@').unwrap_or((value, ""));
                found.push(domain.to_owned());
                found.extend(of_aliases(user.replace("%1", name).as_str()));
            }
        }
        found
    }
}

/// Returns what a word of the report is about: `*.example.com`, or `connect:example.com` of the access table.
fn key(word: &str) -> &str {
    word.rsplit(':').next().unwrap_or_default().trim_start_matches("*.")
}

/// Returns whether a pattern of the configuration has the domain.
fn covers(pattern: &str, domain: &str) -> bool {
    match pattern {
        "*" | "." => true,
        pattern => match pattern.strip_prefix("*.").or_else(|| pattern.strip_prefix('.')) {
            Some(parent) => domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.')),
            None => pattern == domain,
        },
    }
}

/// Returns why replies of Exim and Postrider differ: the report has a line about it, with the domain or the statement.
pub(crate) fn exim(asked: &Asked<'_>) -> Option<&'static str> {
    let Asked { theirs, ours, .. } = asked;
    let is_relay = ours.contains("elay");
    match theirs.as_bytes()[0] {
        b'2' if ours.starts_with("550 5.1.1")
            && asked
                .lines("is refused at once; Exim accepts it")
                .any(|words| words.contains(&asked.domain())) =>
        {
            Some("an unknown user of a domain that the report names: Exim returns the mail")
        }
        b'4' if is_relay => Some("a stranger who wants to relay: both refuse"),
        b'2' if is_relay
            && ["lets other clients relay", "for other domains it is refused"].iter().any(|text| {
                asked.lines(text).any(|words| words.contains(&"accept") || words.contains(&"discard"))
            }) =>
        {
            Some("the report says who may not relay any more, with the statement")
        }
        _ => None,
    }
}

/// Returns why replies of Sendmail and Postrider differ: the report has a line about it, with the domain, the client or the address.
pub(crate) fn sendmail(asked: &Asked<'_>) -> Option<&'static str> {
    let Asked { theirs, ours, .. } = asked;
    let is_relay = ours.contains("elay");
    let is_covered =
        |words: &[&str]| words.iter().any(|word| asked.domains().any(|domain| covers(word, domain)));
    match theirs.as_bytes()[0] {
        b'4' if is_relay => Some("a stranger who wants to relay: both refuse"),
        b'2' if is_relay && asked.lines("subdomains are not accepted").any(|words| is_covered(&words)) => {
            Some("the report says which subdomains are not accepted")
        }
        b'2' if is_relay
            && asked.lines("add the networks of these hosts").any(|words| asked.is_named(&words)) =>
        {
            Some("the report says which hosts relayed by their names")
        }
        _ if ours.starts_with('2') && asked.lines("this mail is held").any(|words| is_covered(&words)) => {
            Some("the report says which mail is held")
        }
        b'2' if (is_relay || ours.starts_with("550 5.1.1"))
            && asked
                .lines("DISCARD applies to one recipient")
                .any(|words| words.iter().any(|word| word.contains(':') && asked.has_key(word))) =>
        {
            Some("the report says what DISCARD is for: unknown users of a message that is discarded")
        }
        _ if asked.lines("applies to this domain, too; Sendmail looks up").any(|words| {
            let addresses = [asked.sender(), asked.recipient()];
            words.iter().any(|word| addresses.iter().any(|one| one.ends_with(&format!("@{word}"))))
        }) =>
        {
            Some("the report says which rules are for other names of a domain, too")
        }
        b'2' if ALIASES.contains(&asked.name())
            && asked
                .lines("does not look up the targets of aliases")
                .any(|words| words.contains(&asked.domain())) =>
        {
            Some("the report says which names of aliases are looked up again")
        }
        _ if (!ours.starts_with('5') || theirs.starts_with('4'))
            && asked.lines("send there is accepted").any(|words| {
                asked.targets().iter().any(|target| words.iter().any(|word| covers(word, target)))
            }) =>
        {
            Some("the report says that aliases lead to domains with an error")
        }
        b'2' if ours.contains("not taken over yet")
            && asked.lines("mail for these is deferred (451)").any(|words| {
                words.contains(&asked.recipient()) || words.contains(&&*format!("@{}", asked.domain()))
            }) =>
        {
            Some("the report says which mail waits")
        }
        _ => None,
    }
}
