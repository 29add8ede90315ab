//! Envelopes that the log of another server tells of: what its clients sent, whether it took it or not.

use regex::Regex;
use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::LazyLock,
};

/// An envelope with one recipient, as a client sent it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeenEnvelope {
    /// Where the client connected from.
    pub client: IpAddr,
    /// The name of the client that the server found for it.
    pub name: Option<String>,
    /// The name in HELO or EHLO, if the log has it.
    pub hello: Option<String>,
    /// `None` if the client did not log in.
    pub login: Option<String>,
    /// True if the client was served by a listener for submission.
    pub is_submission: bool,
    /// The reverse-path without brackets; empty for the null reverse-path.
    pub from: String,
    /// The address in RCPT, before aliases: `orig_to` in Postfix's log.
    pub to: String,
}

/// Which server's log is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogOf {
    /// Lines of syslog, by `postfix/…`.
    Postfix,
    /// Exim's `mainlog`.
    Exim,
    /// Lines of syslog, by `sendmail` or `sm-mta`.
    Sendmail,
}

/// What is known of a message so far.
#[derive(Debug, Clone, Default)]
struct Partial {
    client: Option<IpAddr>,
    name: Option<String>,
    hello: Option<String>,
    login: Option<String>,
    is_submission: bool,
    from: Option<String>,
    to: BTreeSet<String>,
}

/// Envelopes of a log, which is read line by line.
#[derive(Debug, Default)]
pub struct SeenEnvelopes {
    messages: HashMap<String, Partial>,
    seen: BTreeSet<SeenEnvelope>,
}

/// `name[192.0.2.1]` or `name [192.0.2.1]`; `[192.0.2.1]` alone has no name.
static CLIENT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?:^|[=\s])([^\s=\[\]()]*) ?(?:\(([^\s()]*)\) )?\[([0-9a-fA-F.:]+)\]").expect("it is right")
});

impl SeenEnvelopes {
    /// Reads a line. Lines of other programs say nothing.
    pub fn read(&mut self, server: LogOf, line: &str) {
        let _ = match server {
            LogOf::Postfix => self.postfix(line),
            LogOf::Exim => self.exim(line),
            LogOf::Sendmail => self.sendmail(line),
        };
    }

    /// Returns at most a number of envelopes, evenly taken from all that are different.
    pub fn sample(mut self, count: usize) -> Vec<SeenEnvelope> {
        let messages: Vec<Partial> = std::mem::take(&mut self.messages).into_values().collect();
        for message in messages {
            self.end(message);
        }
        let all = self.seen.len();
        let every = self.seen.into_iter().enumerate();
        // The envelopes at i * all / count.
        let is_taken = |at: usize| count >= all || (at * count) / all != ((at + 1) * count) / all;
        every.filter(|(at, _)| is_taken(*at)).map(|(_, one)| one).collect()
    }

    fn end(&mut self, message: Partial) {
        let (Some(client), Some(from)) = (message.client, message.from) else { return };
        let name = message.name.filter(|name| name != "unknown" && !name.is_empty());
        for to in message.to {
            self.seen.insert(SeenEnvelope {
                client,
                name: name.clone(),
                hello: message.hello.clone(),
                login: message.login.clone(),
                is_submission: message.is_submission,
                from: from.clone(),
                to,
            });
        }
    }

    fn client(message: &mut Partial, text: &str) -> Option<()> {
        let found = CLIENT.captures(text)?;
        message.client = Some(found[3].parse().ok()?);
        message.name = Some(found[1].trim_end_matches('.').to_owned());
        message.hello = message.hello.take().or(found.get(2).map(|hello| hello.as_str().to_owned()));
        Some(())
    }

    fn postfix(&mut self, line: &str) -> Option<()> {
        let (program, rest) = line.split_once("postfix")?.1.split_once(": ")?;
        let (id, rest) = rest.split_once(": ")?;
        let is_submission = ["submission", "smtps"].iter().any(|name| program.contains(name));
        if let Some((_, refusal)) = rest.split_once("reject: RCPT from ") {
            let mut message = Partial { is_submission, ..Partial::default() };
            Self::client(&mut message, refusal)?;
            message.hello = between(refusal, " helo=<", ">");
            message.from = between(refusal, "; from=<", ">");
            message.to.extend(between(refusal, " to=<", ">"));
            message.login = word(refusal, "sasl_username=");
            self.end(message);
            return Some(());
        }
        if rest == "removed" {
            let message = self.messages.remove(id)?;
            self.end(message);
            return Some(());
        }
        if rest.starts_with("client=") {
            let message = self.messages.entry(id.to_owned()).or_default();
            message.is_submission = is_submission;
            message.login = word(rest, "sasl_username=");
            return Self::client(message, rest);
        }
        let message = self.messages.get_mut(id)?;
        if let Some(from) = between(rest, "from=<", ">").filter(|_| rest.starts_with("from=<")) {
            message.from = Some(from);
        }
        if rest.starts_with("to=<") {
            message.to.extend(between(rest, ", orig_to=<", ">").or_else(|| between(rest, "to=<", ">")));
        }
        Some(())
    }

    fn exim(&mut self, line: &str) -> Option<()> {
        if let Some((before, after)) = line.split_once(" rejected RCPT ") {
            let mut message = Partial::default();
            Self::client(&mut message, &before[before.find(" H=")?..])?;
            message.from = between(before, " F=<", ">");
            message.login = login_of(before);
            message.to.extend(between(after, "<", ">"));
            self.end(message);
            return Some(());
        }
        // The date, the time, perhaps the zone and the process, and the id.
        let mut words = line.split(' ');
        let id = words.by_ref().take(5).find(|word| is_exim_id(word))?;
        let kind = words.next()?;
        if kind == "Completed" {
            let message = self.messages.remove(id)?;
            self.end(message);
            return Some(());
        }
        // A failure has a colon behind the address.
        let address = words.next()?.trim_end_matches(':');
        match kind {
            "<=" => {
                let message = self.messages.entry(id.to_owned()).or_default();
                // A quoted local part may have a blank.
                let from = between(line, " <= ", " H=")?;
                message.from = Some(if from == "<>" { String::new() } else { from });
                message.login = login_of(line);
                return Self::client(message, &line[line.find(" H=")?..]);
            }
            "=>" | "->" | "==" | "**" | ">>" => {
                let message = self.messages.get_mut(id)?;
                let original = words.next().and_then(|next| next.strip_prefix('<')?.strip_suffix('>'));
                let to = original.unwrap_or(address);
                if to.contains('@') {
                    message.to.insert(to.to_owned());
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn sendmail(&mut self, line: &str) -> Option<()> {
        let (_, rest) = line.split_once("]: ")?;
        let (id, rest) = rest.split_once(": ")?;
        if rest.starts_with("ruleset=check_rcpt") {
            let to = between(rest, "arg1=<", ">")?;
            let message = self.messages.entry(id.to_owned()).or_default();
            message.to.insert(to);
            return Self::client(message, &rest[rest.find("relay=")?..]);
        }
        if rest.starts_with("AUTH=server") {
            self.messages.entry(id.to_owned()).or_default().login = word(rest, "authid=");
        } else if rest.starts_with("from=") {
            let message = self.messages.entry(id.to_owned()).or_default();
            message.from = Some(between(rest, "from=<", ">").or_else(|| word(rest, "from="))?);
            return Self::client(message, &rest[rest.find("relay=")?..]);
        } else if rest.starts_with("to=<") && !rest.contains("ctladdr=") {
            let list = rest.split(", delay=").next()?;
            let to = list.trim_start_matches("to=").split(',').filter_map(|one| between(one, "<", ">"));
            self.messages.get_mut(id)?.to.extend(to);
        }
        Some(())
    }
}

/// Returns the text between two others.
fn between(text: &str, from: &str, to: &str) -> Option<String> {
    let (_, rest) = text.split_once(from)?;
    Some(rest.split_once(to)?.0.to_owned())
}

/// Returns the word that follows `from` in the text.
fn word(text: &str, from: &str) -> Option<String> {
    let (_, rest) = text.split_once(from)?;
    Some(rest.split([',', ' ']).next()?.to_owned()).filter(|word| !word.is_empty())
}

/// Returns the login of a line of Exim: `A=authenticator:login`.
fn login_of(line: &str) -> Option<String> {
    Some(word(line, " A=")?.split_once(':')?.1.to_owned())
}

/// `1abcDE-000123-AB`, and the longer ones of 4.97.
fn is_exim_id(word: &str) -> bool {
    let parts: Vec<&str> = word.split('-').collect();
    matches!(parts[..], [a, b, c] if a.len() == 6 && b.len() >= 6 && c.len() >= 2)
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(server: LogOf, log: &str) -> Vec<String> {
        let mut seen = SeenEnvelopes::default();
        log.lines().for_each(|line| seen.read(server, line));
        let shown = |one: SeenEnvelope| {
            let more = [("name", one.name), ("hello", one.hello), ("login", one.login)];
            let more: String =
                more.into_iter().filter_map(|(what, text)| Some(format!(" {what}={}", text?))).collect();
            let submission = if one.is_submission { " submission" } else { "" };
            format!("{} <{}> <{}>{more}{submission}", one.client, one.from, one.to)
        };
        seen.sample(usize::MAX).into_iter().map(shown).collect()
    }

    #[test]
    fn the_log_of_postfix_has_envelopes_that_were_taken_and_refused() {
        let log = "\
            Nov 27 10:00:00 mx postfix/smtpd[7]: 4FxQ: client=a.example[192.0.2.1]\n\
            Nov 27 10:00:00 mx postfix/cleanup[7]: 4FxQ: message-id=<x@y>\n\
            Nov 27 10:00:00 mx postfix/qmgr[7]: 4FxQ: from=<Jo@a.example>, size=3, nrcpt=2 (queue active)\n\
            Nov 27 10:00:00 mx postfix/local[7]: 4FxQ: to=<joe@mx.test>, orig_to=<info@mx.test>, relay=local, status=sent (x)\n\
            Nov 27 10:00:00 mx postfix/smtp[7]: 4FxQ: to=<b@far.example>, relay=none, status=deferred (to=<no>)\n\
            Nov 27 10:00:01 mx postfix/qmgr[7]: 4FxQ: removed\n\
            2026-11-27T10:00:02+01:00 mx postfix/submission/smtpd[8]: 4FxR: client=unknown[2001:db8::1]:3, sasl_method=PLAIN, sasl_username=bob\n\
            2026-11-27T10:00:02+01:00 mx postfix/qmgr[7]: 4FxR: from=<>, size=3, nrcpt=1 (queue active)\n\
            2026-11-27T10:00:02+01:00 mx postfix/smtp[7]: 4FxR: to=<c@far.example>, relay=x[192.0.2.3]:25, status=sent (250)\n\
            Nov 27 10:00:03 mx postfix/smtpd[9]: NOQUEUE: reject: RCPT from unknown[203.0.113.5]: 554 5.7.1 <d@x.example>: Relay access denied; from=<e@y.example> to=<d@x.example> proto=ESMTP helo=<h>\n\
            Nov 27 10:00:03 mx postfix/smtpd[9]: 4FxS: reject: RCPT from q.example[203.0.113.6]: 450 4.7.1 no; from=<> to=<f@x.example> proto=SMTP helo=<q>\n\
            Nov 27 10:00:04 mx postfix/pickup[9]: 4FxT: uid=0 from=<root>\n\
            Nov 27 10:00:04 mx postfix/qmgr[9]: 4FxT: from=<root@mx.test>, size=3, nrcpt=1 (queue active)\n\
            Nov 27 10:00:04 mx postfix/local[9]: 4FxT: to=<joe@mx.test>, relay=local, status=sent (x)\n";
        assert_eq!(
            read(LogOf::Postfix, log),
            [
                "192.0.2.1 <Jo@a.example> <b@far.example> name=a.example",
                "192.0.2.1 <Jo@a.example> <info@mx.test> name=a.example",
                "203.0.113.5 <e@y.example> <d@x.example> hello=h",
                "203.0.113.6 <> <f@x.example> name=q.example hello=q",
                "2001:db8::1 <> <c@far.example> login=bob submission",
            ]
        );
    }

    #[test]
    fn the_log_of_exim_has_envelopes_that_were_taken_and_refused() {
        let log = "\
            2026-11-27 10:00:00 1tGabc-0000Ab-1Z <= \"j o\"@a.example H=a.example (hey) [192.0.2.1] P=esmtpa A=plain:bob S=1 id=x@y\n\
            2026-11-27 10:00:00 1tGabc-0000Ab-1Z => joe <info@mx.test> R=local T=mail\n\
            2026-11-27 10:00:00 1tGabc-0000Ab-1Z => b@far.example R=dns T=smtp H=x [192.0.2.9]\n\
            2026-11-27 10:00:00 1tGabc-0000Ab-1Z Completed\n\
            2026-11-27 10:00:00 +0100 [77] 1tGabd-00000000Ab-1Z0a <= <> H=(h) [203.0.113.5]:99 P=smtp S=1\n\
            2026-11-27 10:00:00 +0100 [77] 1tGabd-00000000Ab-1Z0a ** c@far.example: Unrouteable address\n\
            2026-11-27 10:00:01 H=(h) [203.0.113.5] F=<e@y.example> rejected RCPT <d@x.example>: relay not permitted\n\
            2026-11-27 10:00:02 1tGabe-0000Ab-1Z <= root@mx.test U=root P=local S=1\n\
            2026-11-27 10:00:02 1tGabe-0000Ab-1Z => joe <root@mx.test> R=local T=mail\n";
        assert_eq!(
            read(LogOf::Exim, log),
            [
                "192.0.2.1 <\"j o\"@a.example> <b@far.example> name=a.example hello=hey login=bob",
                "192.0.2.1 <\"j o\"@a.example> <info@mx.test> name=a.example hello=hey login=bob",
                "203.0.113.5 <> <c@far.example> hello=h",
                "203.0.113.5 <e@y.example> <d@x.example> hello=h",
            ]
        );
    }

    #[test]
    fn the_log_of_sendmail_has_envelopes_that_were_taken_and_refused() {
        let log = "\
            Nov 27 10:00:00 mx sm-mta[7]: AUTH=server, relay=x [192.0.2.1], authid=nobody, mech=PLAIN, bits=0\n\
            Nov 27 10:00:00 mx sm-mta[7]: 5A1: from=<jo@a.example>, size=3, class=0, nrcpts=2, proto=ESMTP, daemon=MTA, relay=a.example [192.0.2.1]\n\
            Nov 27 10:00:00 mx sm-mta[8]: 5A1: to=<b@far.example>,<c@far.example>, delay=00:00:01, mailer=esmtp, relay=x. [192.0.2.9], stat=Sent\n\
            Nov 27 10:00:00 mx sm-mta[8]: 5A1: to=joe, ctladdr=<info@mx.test> (8/0), delay=00:00:01, mailer=local, stat=Sent\n\
            Nov 27 10:00:01 mx sm-mta[9]: 5A2: ruleset=check_rcpt, arg1=<d@x.example>, relay=[203.0.113.5], reject=550 5.7.1 <d@x.example>... Relaying denied\n\
            Nov 27 10:00:01 mx sm-mta[9]: 5A2: from=<e@y.example>, size=0, class=0, nrcpts=0, proto=ESMTP, daemon=MTA, relay=[203.0.113.5]\n";
        assert_eq!(
            read(LogOf::Sendmail, log),
            [
                "192.0.2.1 <jo@a.example> <b@far.example> name=a.example",
                "192.0.2.1 <jo@a.example> <c@far.example> name=a.example",
                "203.0.113.5 <e@y.example> <d@x.example>",
            ]
        );
    }

    #[test]
    fn a_sample_is_taken_evenly() {
        let log: String = (0..100)
            .map(|n| format!("mx postfix/smtpd[9]: NOQUEUE: reject: RCPT from a[203.0.113.5]: 5 x; from=<> to=<u{n:03}@x> proto=SMTP helo=<q>\n"))
            .collect();
        let sample = |count| {
            let mut seen = SeenEnvelopes::default();
            log.lines().for_each(|line| seen.read(LogOf::Postfix, line));
            let to: Vec<String> = seen.sample(count).into_iter().map(|one| one.to).collect();
            to
        };
        assert_eq!(sample(4), ["u024@x", "u049@x", "u074@x", "u099@x"]);
        assert_eq!(
            (sample(0).len(), sample(7).len(), sample(100).len(), sample(1000).len()),
            (0, 7, 100, 100)
        );
    }

    proptest::proptest! {
        #[test]
        fn no_line_is_a_fault(line in "[ -~é]{0,200}") {
            for server in [LogOf::Postfix, LogOf::Exim, LogOf::Sendmail] {
                SeenEnvelopes::default().read(server, &line);
            }
        }
    }
}
