//! Access control lists: who may relay, which domains are taken, and rules.

use super::{
    Draft, Files,
    terms::{List, Reader, existing},
};
use crate::{
    Effect, Report, Verdict,
    decision::{Case, Clients, Condition, Conditions, Decision, Open, Term, covers},
    draft::Value,
    exim::conf::{Conf, Setting},
};

/// The lists, and the stages at which their rules are read; RCPT is the usual one.
const LISTS: [(&str, Option<&str>); 5] = [
    ("acl_smtp_connect", Some("connect")),
    ("acl_smtp_helo", Some("hello")),
    ("acl_smtp_mail", Some("mail")),
    (RCPT, None),
    ("acl_smtp_data", Some("content")),
];
const RCPT: &str = "acl_smtp_rcpt";
/// Lists that ask for one another end at this depth.
const DEPTH_MAX: usize = 5;

/// Modifiers that change nothing that Postrider does otherwise.
const SAME: [&str; 9] = [
    "control",
    "message",
    "log_message",
    "logwrite",
    "log_reject_target",
    "delay",
    "set",
    "continue",
    "queue",
];

/// One statement: its verb, with conditions and modifiers in their order.
#[derive(Debug, Clone, Default)]
struct Statement {
    verb: String,
    place: (usize, String),
    /// As it stands, for people.
    text: String,
    parts: Vec<Part>,
    reply: String,
    header: Option<String>,
    is_frozen: bool,
}

/// A condition or `endpass`; their order matters.
#[derive(Debug, Clone)]
enum Part {
    Known(Term),
    /// Another list, and whether it must not accept.
    List(String, bool),
    /// Whether the recipient exists: Postrider asks for each one. `true` if it must not.
    Recipient(bool),
    Endpass,
    /// What a rule cannot say. True if it excepts something: what is left of the statement holds for too much.
    Unknown(String, bool),
    /// Items of a list that a rule cannot have, beside others that it can.
    Without(String),
}

/// A client and a domain for which a list is asked who may relay.
#[derive(Debug, Clone, Copy)]
struct Point<'a> {
    /// None for a stranger.
    network: Option<ipnet::IpNet>,
    /// None for a domain that nothing names.
    domain: Option<&'a str>,
}

/// Lists of a configuration.
pub(super) struct Acls<'a> {
    reader: Reader<'a>,
    statements: Vec<Statement>,
}

/// Returns the conditions and modifiers of a statement with single blanks.
fn parts(statement: &str) -> Vec<String> {
    let plain = |line: &str| {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let (negation, line) = line.strip_prefix('!').map_or(("", &*line), |rest| ("!", rest.trim_start()));
        match line.split_once('=') {
            Some((name, value)) => format!("{negation}{} = {}", name.trim(), value.trim()),
            None => format!("{negation}{line}"),
        }
    };
    statement.lines().map(str::trim).filter(|line| !line.is_empty()).map(plain).collect()
}

impl<'a> Acls<'a> {
    /// Reads all statements. Tables with many entries become files of the draft.
    pub(super) fn read(conf: &'a Conf, files: &'a dyn Files, hostname: &'a str, draft: &mut Draft) -> Self {
        let has_details =
            conf.routers.iter().any(|router| router.option("local_part_suffix").starts_with('+'));
        let reader = Reader { conf, files, hostname, has_details };
        let statements = conf.acl.iter().filter(|one| !one.value.is_empty());
        let statements = statements.map(|one| statement(&reader, one, draft)).collect();
        Self { reader, statements }
    }

    fn list(&self, name: &str) -> Vec<&Statement> {
        self.statements.iter().filter(|one| one.place.1 == name).collect()
    }

    /// Returns the name of a list that an option names; nothing if it names none.
    fn named(&self, option: &str) -> &str {
        let name = self.reader.conf.option(option);
        if self.reader.conf.acl.iter().any(|one| one.name == name) { name } else { "" }
    }

    /// Returns whether a list of recipients may accept something of a client for a domain.
    fn may(&self, point: Point<'_>) -> bool {
        self.accepting(point).is_some()
    }

    /// Tells of users who do not exist, if a statement accepts mail for them before one asks whether they do.
    pub(super) fn tell_unverified(&self, report: &mut Report, own: &[String]) {
        let is_asked = |one: &&&Statement| one.parts.iter().any(|part| matches!(part, Part::Recipient(_)));
        let list = self.list(self.named(RCPT));
        // What comes from a program of this machine has no host.
        let accepts = |one: &&Statement| one.verb == "accept" && !one.text.ends_with("hosts = :");
        if list.iter().take_while(|one| !is_asked(one)).any(accepts) {
            let text = format!(
                "mail for users that do not exist in {} is refused at once; Exim accepts it by a statement without `verify = recipient`, and returns it",
                own.join(", ")
            );
            report.effect(Effect::Refused, RCPT, text);
        }
    }

    /// Returns the statement that may accept something of a client for a domain.
    fn accepting(&self, point: Point<'_>) -> Option<&Statement> {
        for statement in self.list(self.named(RCPT)) {
            let holds = statement.parts.iter().try_fold(Some(true), |all, part| {
                let holds = match part {
                    Part::Known(term) => point.holds(term),
                    Part::Recipient(is_negated) => Some(!is_negated),
                    Part::Endpass | Part::Without(_) => Some(true),
                    Part::List(..) | Part::Unknown(..) => None,
                };
                match holds {
                    Some(false) => Err(()),
                    holds => Ok(all.and(holds)),
                }
            });
            match (&*statement.verb, holds) {
                ("accept", Ok(_)) => return Some(statement),
                ("require", Err(())) | ("deny" | "drop" | "defer" | "discard", Ok(Some(true))) => {
                    return None;
                }
                _ => {}
            }
        }
        None
    }

    fn patterns(&self, wanted: &str) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        let terms =
            self.list(self.named(RCPT)).into_iter().flat_map(|one| &one.parts).filter_map(
                |part| match part {
                    Part::Known(term) => Some(term),
                    _ => None,
                },
            );
        for case in terms.flat_map(|term| &term.cases) {
            for (key, patterns) in case.only.iter().chain(&case.excluded).filter(|(key, _)| *key == wanted) {
                let new =
                    patterns.iter().filter(|one| !(found.contains(one) || *key == "to" && one.contains('@')));
                let new: Vec<String> = new.cloned().collect();
                found.extend(new);
            }
        }
        found
    }

    /// Returns the networks whose clients may send to domains that strangers may not send to. Rules say to which.
    pub(super) fn relaying(&self) -> Vec<String> {
        let (named, taken) = (self.patterns("to"), self.taken());
        let named = named.iter().filter(|name| !taken.contains(name)).map(|name| Some(&**name));
        let domains: Vec<Option<&str>> = named.chain([None]).collect();
        let mut networks = self.patterns("client");
        networks.retain(|text| {
            let network = network(text).filter(|network| network.prefix_len() > 0);
            network.is_some() && domains.iter().any(|domain| self.may(Point { network, domain: *domain }))
        });
        networks
    }

    /// Returns the domains, or `*.` and a domain, whose mail a list takes from strangers.
    pub(super) fn taken(&self) -> Vec<String> {
        let mut domains = self.patterns("to");
        domains.retain(|domain| {
            !domain.contains(':') && self.may(Point { network: None, domain: Some(domain) })
        });
        domains
    }

    /// Writes the rules, and reports each statement.
    pub(super) fn write(&self, draft: &mut Draft, report: &mut Report, file: &str, taken: &[String]) {
        let networks = draft.list("[relay]", "networks");
        let has_logins = draft.has("[auth]");
        let mut told = Teller { report, file };
        if let Some(statement) = self.accepting(Point { network: None, domain: None }) {
            let text = "this statement (and perhaps others) lets other clients relay, by sender, host name or recipient; in Postrider, only clients in relay.networks and those that log in may relay";
            told.tell(Effect::Refused, statement, text);
        }
        for (option, stage) in LISTS {
            let value = self.reader.conf.option(option);
            if value.is_empty() && option != RCPT {
                continue;
            }
            let name = self.named(option);
            let clients = Clients {
                networks: networks.clone(),
                are_relayed: true,
                has_logins,
                stage,
                ..Clients::default()
            };
            let mut walk = Walk {
                acls: self,
                decision: Decision::new(clients),
                taken: if stage.is_none() { taken } else { &[] },
                is_inner: None,
                depth: 0,
                asked: Vec::new(),
            };
            walk.decision.tag = option.trim_start_matches("acl_smtp_").to_owned();
            let mut open = Open::new(true, true, true);
            if name.is_empty() {
                // Each name of a list is known when the mail comes, or it is a statement of one line.
                let text = format!(
                    "{value} is not the name of an ACL: mail is deferred (451) until you write rules for it"
                );
                let text = if value.is_empty() {
                    "Exim accepts no mail without this ACL, and Postrider defers it (451)".to_owned()
                } else {
                    text
                };
                told.report.effect(Effect::Refused, option, text);
                walk.decision.add(
                    &open,
                    option,
                    &[],
                    &[],
                    "defer",
                    "451 4.3.5 The rules for this mail have not been imported yet",
                );
            } else {
                walk.list(name, &mut open, &mut told);
            }
            let mut rules = walk.decision.finish();
            // A rule that accepts does nothing where no rule is behind it.
            while rules
                .last()
                .is_some_and(|rule| rule.value("accept").is_some() || rule.value("tag").is_some())
            {
                rules.pop();
            }
            rules.into_iter().for_each(|rule| draft.push(rule));
        }
        let names: Vec<&str> = LISTS.iter().map(|(option, _)| self.named(option)).collect();
        for statement in &self.statements {
            let is_read = names.contains(&&*statement.place.1) || self.asks_for(&statement.place.1);
            let verdict = match is_read {
                true => Verdict::Mapped,
                false => Verdict::Note("no ACL that is imported uses it".to_owned()),
            };
            told.report.add(
                format!("{file}:{}", statement.place.0),
                format!("acl {}", statement.place.1),
                verdict,
            );
        }
    }

    fn asks_for(&self, name: &str) -> bool {
        let mut parts = self.statements.iter().flat_map(|one| &one.parts);
        parts.any(|part| matches!(part, Part::List(asked, _) if asked == name))
    }
}

fn network(text: &str) -> Option<ipnet::IpNet> {
    text.parse().ok().or_else(|| text.parse::<std::net::IpAddr>().ok().map(ipnet::IpNet::from))
}

impl Point<'_> {
    /// Returns whether a term holds; None if that is not sure.
    fn holds(self, term: &Term) -> Option<bool> {
        let and = |one: Option<bool>, other: Option<bool>| match (one, other) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (one, other) => one.and(other),
        };
        let not = |one: Option<bool>| one.map(|holds| !holds);
        let case = |case: &Case| {
            let only = case.only.as_ref().map_or(Some(true), |one| self.matches(one));
            case.excluded.iter().fold(only, |all, one| and(all, not(self.matches(one))))
        };
        let none = term.cases.iter().map(|one| not(case(one))).reduce(and).unwrap_or(Some(true));
        if term.is_negated { none } else { not(none) }
    }

    fn matches(self, (key, patterns): &Condition) -> Option<bool> {
        let all = |sure: bool, maybe: bool| {
            if sure {
                Some(true)
            } else if maybe {
                None
            } else {
                Some(false)
            }
        };
        match *key {
            "client" => {
                let mut networks = patterns.iter().filter_map(|text| network(text));
                match self.network {
                    None => all(networks.any(|one| one.prefix_len() == 0), false),
                    Some(own) => {
                        let networks: Vec<_> = networks.collect();
                        all(
                            networks.iter().any(|one| one.contains(&own)),
                            networks.iter().any(|one| own.contains(one)),
                        )
                    }
                }
            }
            "to" => {
                let (names, domains): (Vec<&String>, Vec<&String>) =
                    patterns.iter().partition(|pattern| pattern.contains(['@', ':']));
                match self.domain {
                    None => all(false, names.iter().any(|name| name.ends_with("@*") || name.contains(':'))),
                    Some(own) => all(domains.iter().any(|one| covers(one, own)), !names.is_empty()),
                }
            }
            "login" => Some(false),
            _ => None,
        }
    }
}

/// Reads a statement.
fn statement(reader: &Reader<'_>, setting: &Setting, draft: &mut Draft) -> Statement {
    let (verb, rest) = setting.value.split_once(char::is_whitespace).unwrap_or((&setting.value, ""));
    let mut found = Statement {
        verb: verb.to_owned(),
        place: (setting.line, setting.name.clone()),
        text: verb.to_owned(),
        reply: "Access denied".to_owned(),
        ..Statement::default()
    };
    for part in parts(rest) {
        let (name, value) = part.split_once(" = ").unwrap_or((&part, ""));
        let (is_negated, name) = name.strip_prefix('!').map_or((false, name), |name| (true, name));
        let known = |key, patterns: &[&str]| {
            let patterns = patterns.iter().map(|one| (*one).to_owned()).collect();
            Part::Known(Term { is_negated, ..Term::of(key, patterns) })
        };
        if !SAME.contains(&name.split(' ').next().unwrap_or(name)) {
            let said: String = existing(&part, reader.files).chars().take(80).collect();
            found.text.push_str(&format!(" {said}"));
        }
        match (name, value) {
            ("message", text) => found.reply = reply(text),
            ("control", "freeze") => found.is_frozen = true,
            ("add_header", text) if !text.contains('$') => {
                found.header = Some(text.trim_start_matches(':').to_owned());
            }
            ("endpass", _) => found.parts.push(Part::Endpass),
            ("verify", "recipient") => found.parts.push(Part::Recipient(is_negated)),
            ("verify", "reverse_host_lookup") => found.parts.push(Part::Known(Term {
                is_negated: !is_negated,
                ..Term::of("client_name", vec!["none".to_owned()])
            })),
            ("authenticated", "*") => found.parts.push(known("login", &["*"])),
            ("encrypted", "*") => found.parts.push(known("tls", &["true"])),
            ("acl", list) => found.parts.push(Part::List(list.to_owned(), is_negated)),
            (name, _) if SAME.contains(&name.split(' ').next().unwrap_or(name)) => {}
            (name, value) => match reader.list(name, value, draft) {
                Some(List { mut term, others, is_too_wide }) => {
                    term.is_negated = is_negated;
                    let text = format!("{name} = {}", others.join(" : "));
                    let is_exception = is_too_wide || is_negated;
                    let has_none = term.cases.is_empty() && !is_negated;
                    match others.is_empty() {
                        true => {}
                        false if is_exception || has_none => {
                            found.parts.push(Part::Unknown(text, is_exception));
                        }
                        false => found.parts.push(Part::Without(text)),
                    }
                    if others.is_empty() || !has_none {
                        found.parts.push(Part::Known(term));
                    }
                }
                None => found.parts.push(Part::Unknown(part.clone(), false)),
            },
        }
    }
    found
}

/// Reports statements by the place where an administrator finds them.
struct Teller<'a> {
    report: &'a mut Report,
    file: &'a str,
}

impl Teller<'_> {
    /// Returns where the statement is; for a configuration of many files, lines mean nothing.
    fn place(&self, statement: &Statement) -> String {
        let (line, list) = &statement.place;
        let line = if self.file.ends_with(".conf") { format!(":{line}") } else { String::new() };
        format!("{}{line} {list}", self.file)
    }

    fn tell(&mut self, effect: Effect, statement: &Statement, text: &str) {
        self.report.effect(effect, &self.place(statement), format!("{}: {text}", statement.text));
    }
}

/// The way through the statements of a list.
struct Walk<'a> {
    acls: &'a Acls<'a>,
    decision: Decision,
    /// Domains whose mail strangers may send.
    taken: &'a [String],
    /// In a list that another one asks for: the tags of what it accepts and what it does not.
    is_inner: Option<[String; 2]>,
    depth: usize,
    /// Lists that were asked, and what holds where they accept.
    asked: Vec<(String, Term)>,
}

impl Walk<'_> {
    /// Adds the rules of a list, with its end, which refuses.
    fn list(&mut self, name: &str, open: &mut Open, told: &mut Teller<'_>) {
        for statement in self.acls.list(name) {
            if open.is_over() {
                return;
            }
            self.statement(statement, open, told);
        }
        if self.is_inner.is_none() && !open.is_over() {
            let nobody = (Vec::new(), Vec::new());
            self.refuse(
                open,
                &format!("the end of {name}"),
                nobody,
                "reject",
                "550 5.7.1 Access denied".into(),
            );
        }
    }

    #[allow(clippy::too_many_lines)] // one verb after the other
    fn statement(&mut self, statement: &Statement, open: &mut Open, told: &mut Teller<'_>) {
        let text = &*statement.text;
        let (mut terms, mut endpass, mut unknown, mut excepts) = (Vec::new(), None, Vec::new(), false);
        let (mut lists, is_require) = (Vec::new(), statement.verb == "require");
        for part in &statement.parts {
            match part {
                // Nothing meets it.
                Part::Known(Term { is_negated: false, cases }) if cases.is_empty() && !is_require => return,
                // Recipients that do not exist are refused without a rule.
                Part::Recipient(true) if !is_require => return,
                Part::Known(term) => terms.push(term.clone()),
                Part::List(name, is_negated) => {
                    lists.push((terms.len(), name, *is_negated));
                    terms.push(Term::default());
                }
                Part::Recipient(_) => {}
                Part::Endpass => endpass = Some(terms.len()),
                Part::Unknown(what, is_exception) => {
                    excepts |= is_exception;
                    unknown.push(what.clone());
                }
                Part::Without(what) => {
                    let effect = if statement.verb == "accept" { Effect::Refused } else { Effect::Taken };
                    told.tell(effect, statement, &format!("{what} is left out: write a [[rule]]"));
                    excepts |= is_require;
                }
            }
        }
        let unknown = unknown.join(", ");
        let is_known = unknown.is_empty();
        let left_out = match &*statement.verb {
            "accept" => {
                Some((Effect::Refused, "the statement accepts nothing; write a [[rule]] with `accept`"))
            }
            "warn" => Some((Effect::Taken, "the statement has no effect"))
                .filter(|_| statement.header.is_some() || statement.is_frozen),
            "require" => None,
            _ => Some((
                Effect::Taken,
                "mail that it refuses in Exim is accepted; see docs/rules.md and [checks]",
            ))
            .filter(|_| !excepts),
        };
        if !is_known {
            match left_out {
                Some((effect, what)) => {
                    return told.tell(effect, statement, &format!("rules cannot check {unknown}: {what}"));
                }
                None if is_require => {
                    told.tell(
                        Effect::Taken,
                        statement,
                        &format!("{unknown} is not checked; see docs/rules.md and [checks]"),
                    );
                }
                None => {}
            }
        }
        for (at, name, is_negated) in lists {
            terms[at] = Term { is_negated, ..self.inner(name, open, told) };
        }
        let waits = || Value::from(format!("450 4.7.1 {}", statement.reply));
        let refusal = || Value::from(format!("550 5.7.1 {}", statement.reply));
        match &*statement.verb {
            "accept" => {
                if !is_known {
                    let what = format!(
                        "rules cannot check {unknown}: the statement accepts nothing; write a [[rule]] with `accept`"
                    );
                    return told.tell(Effect::Refused, statement, &what);
                }
                match self.decision.all_of(open, text, &terms) {
                    Some(conditions) if statement.is_frozen => {
                        self.refuse(open, text, conditions, "hold", true.into());
                    }
                    Some(conditions) => self.accept(open, text, conditions),
                    // Nothing is accepted; what comes to `endpass` is refused nevertheless.
                    None => {}
                }
                if let Some(conditions) =
                    endpass.and_then(|end| self.decision.all_of(open, text, &terms[..end]))
                {
                    self.refuse(open, text, conditions, "reject", refusal());
                }
            }
            "require" => {
                // All must hold: what has no tag is refused.
                let negated = match &mut *terms {
                    [] => return,
                    [term] => vec![Term { is_negated: !term.is_negated, ..term.clone() }],
                    _ => match self.decision.all_of(open, text, &terms) {
                        None => Vec::new(),
                        Some((only, excluded)) => {
                            let tag = self.decision.new_tag();
                            self.decision.push(open, text, (&only, &excluded), "tag", vec![tag.clone()]);
                            vec![Term { is_negated: true, ..Term::of("tagged", vec![tag]) }]
                        }
                    },
                };
                let Some(conditions) = self.decision.all_of(open, text, &negated) else { return };
                match excepts {
                    true => self.refuse(open, text, conditions, "defer", waits()),
                    false => self.refuse(open, text, conditions, "reject", refusal()),
                }
            }
            "deny" | "drop" | "defer" | "discard" => {
                let Some(conditions) = self.decision.all_of(open, text, &terms) else { return };
                let (key, value) = match &*statement.verb {
                    _ if excepts => ("defer", waits()),
                    "defer" => ("defer", waits()),
                    "discard" => ("discard", true.into()),
                    _ => ("reject", refusal()),
                };
                if excepts {
                    let what = format!(
                        "cannot read the exception in {unknown}: mail is deferred (451) instead of refused, even mail that the exception covers; write a [[rule]]"
                    );
                    told.tell(Effect::Refused, statement, &what);
                }
                if statement.verb == "drop" && self.is_inner.is_none() {
                    told.tell(
                        Effect::Taken,
                        statement,
                        "the connection stays open, so other recipients of the message are still accepted",
                    );
                }
                if statement.verb == "discard" {
                    told.tell(
                        Effect::Refused,
                        statement,
                        "mail is discarded only for domains that the client may send to; for other domains it is refused",
                    );
                }
                self.refuse(open, text, conditions, key, value);
            }
            _ => {
                let header = statement.header.clone().map(|header| ("add_header", Value::from(vec![header])));
                let change = header.or(statement.is_frozen.then(|| ("hold", true.into())));
                let Some((key, value)) = change else { return };
                if let Some((only, excluded)) = self.decision.all_of(open, text, &terms) {
                    self.decision.add(open, text, &only, &excluded, key, value);
                }
            }
        }
    }

    /// Whom a statement accepts, the list ends for.
    fn accept(&mut self, open: &mut Open, text: &str, (only, excluded): Conditions) {
        if let Some([accepted, _]) = &self.is_inner {
            self.decision.push(open, text, (&only, &excluded), "tag", vec![accepted.clone()]);
        }
        if only.is_empty() && excluded.is_empty() {
            *open = Open::new(false, false, false);
        } else if self.is_inner.is_some() {
        } else {
            let networks = &self.decision.clients.networks;
            match &*only {
                [("client", found)]
                    if excluded.is_empty()
                        && networks.iter().all(|one| found.iter().any(|wide| covers(wide, one))) =>
                {
                    open.networks = false;
                    if found.iter().all(|one| networks.contains(one)) {
                        return;
                    }
                }
                [("login", _)] if excluded.is_empty() => return open.logins = false,
                _ => {}
            }
            self.decision.add(open, text, &only, &excluded, "accept", true);
        }
    }

    fn refuse(
        &mut self,
        open: &mut Open,
        text: &str,
        (only, excluded): Conditions,
        key: &'static str,
        value: Value,
    ) {
        let is_all = only.is_empty() && excluded.is_empty();
        if let Some([_, refused]) = &self.is_inner {
            self.decision.push(open, text, (&only, &excluded), "tag", vec![refused.clone()]);
            if is_all {
                *open = Open::new(false, false, false);
            }
            return;
        }
        // Strangers are refused for other domains without a rule.
        let is_done = match &*excluded {
            [("to", domains)] if only.is_empty() && !self.taken.is_empty() => {
                self.taken.iter().all(|domain| domains.iter().any(|wide| covers(wide, domain)))
            }
            _ => false,
        };
        let trusted = open.trusted();
        let open_for = if is_done && key == "reject" { &trusted } else { &*open };
        // Order counts: what is discarded or held is not refused by a statement behind it.
        self.decision.push(open_for, text, (&only, &excluded), key, value);
        if is_all {
            *open = Open::new(false, false, false);
        }
    }

    /// Returns a term that holds for what another list accepts.
    fn inner(&mut self, name: &str, open: &Open, told: &mut Teller<'_>) -> Term {
        if let Some((_, term)) = self.asked.iter().find(|(asked, _)| asked == name) {
            return term.clone();
        }
        if self.depth >= DEPTH_MAX {
            return Term::default();
        }
        let tags = [self.decision.new_tag(), self.decision.new_tag()];
        let mut inner = open.clone();
        inner.except(("tagged", tags.to_vec()));
        let count = self.decision.rules.len();
        let outer = self.is_inner.replace(tags.clone());
        self.depth += 1;
        self.list(name, &mut inner, told);
        self.depth -= 1;
        self.is_inner = outer;
        let accepted = Value::from(vec![tags[0].clone()]);
        let is_set = self.decision.rules[count..].iter().any(|rule| rule.value("tag") == Some(&accepted));
        let [accepted, _] = tags;
        let term = if is_set { Term::of("tagged", vec![accepted]) } else { Term::default() };
        // Its tags hold for all statements behind: fewer clients come there.
        if self.is_inner.is_none() {
            self.asked.push((name.to_owned(), term.clone()));
        }
        term
    }
}

/// Returns the text of a message with the variables of a rule.
fn reply(message: &str) -> String {
    let known = [
        ("$sender_address", "\u{1}"),
        ("$sender_host_address", "\u{2}"),
        ("$local_part@$domain", "\u{3}"),
        ("$sender_helo_name", "\u{4}"),
    ];
    let text = known.iter().fold(message.to_owned(), |text, (name, mark)| text.replace(name, mark));
    if text.contains('$') {
        return "Access denied".to_owned();
    }
    let marks = [("\u{1}", "{from}"), ("\u{2}", "{client}"), ("\u{3}", "{to}"), ("\u{4}", "{hello}")];
    let plain: String = text.chars().filter(|c| c.is_ascii() && !"{}\"".contains(*c)).collect();
    let text = marks.iter().fold(plain, |text, (mark, name)| text.replace(mark, name));
    text.chars().filter(|c| !c.is_control()).collect()
}
