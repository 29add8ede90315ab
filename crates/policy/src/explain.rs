//! Programs and findings in words.

use crate::{
    Action, Addresses, ClientName, Condition, Fact, Listee, MapId, Program, Question, Rule, condition::Judge,
};
use mail::ReversePath;
use std::fmt::Display;

fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// What a list is asked about, in words.
fn shown(of: Listee) -> &'static str {
    match of {
        Listee::Client => "the client's address",
        Listee::ClientName => "the client's name",
        Listee::Hello => "the name in EHLO",
        Listee::From => "the sender's domain",
    }
}

impl Program {
    fn map_names(&self, maps: &[MapId]) -> Vec<String> {
        maps.iter().filter_map(|map| Some(self.maps().get(usize::from(map.0))?.name.to_string())).collect()
    }

    fn with_maps<T: Display>(&self, items: impl IntoIterator<Item = T>, maps: &[MapId]) -> String {
        let items = items.into_iter().map(|item| item.to_string());
        list(items.chain(self.map_names(maps)))
    }

    /// Returns the items of a condition: `198.51.100.0/24, cidr:customers`.
    pub(crate) fn items(&self, condition: &Condition) -> String {
        let addresses = |of: &Addresses| self.with_maps(&*of.patterns, &of.maps);
        match condition {
            Condition::Listener(kinds) => list(kinds.iter().map(|one| one.as_str())),
            Condition::Client(of) => self.with_maps(&of.networks, &of.maps),
            Condition::ClientName(of) => {
                let none = of.has_none.then(|| "none".to_owned());
                self.with_maps(of.patterns.iter().map(ToString::to_string).chain(none), &of.maps)
            }
            Condition::Hello(of) => self.with_maps(&of.patterns, &of.maps),
            Condition::Tls(wanted) => wanted.to_string(),
            Condition::Certificate(of) => self.with_maps(&of.patterns, &of.maps),
            Condition::Login(of) => {
                let any = of.is_any.then_some("*");
                self.with_maps(of.names.iter().map(|name| &**name).chain(any), &of.maps)
            }
            Condition::From(of) | Condition::To(of) => addresses(of),
            Condition::Size(most) => format!("more than {most} bytes"),
            Condition::Recipients(most) => format!("more than {most}"),
            Condition::Header(patterns) => list(patterns),
            Condition::Tagged(tags) => list(tags),
            Condition::Score(least) => least.to_string(),
            Condition::Over(limits) => list(
                limits.iter().filter_map(|id| self.limits().get(usize::from(id.0))).map(|limit| &limit.name),
            ),
            Condition::BadHello => "not the name of a mail server".to_owned(),
            Condition::NoReverseName => "none".to_owned(),
            Condition::ReverseNameUnknown => "DNS does not answer".to_owned(),
            Condition::DnsList(_, lists) => list(lists),
        }
    }

    /// Returns a condition in words: `client is one of 198.51.100.0/24`.
    pub fn explain_condition(&self, condition: &Condition) -> String {
        let (key, items) = (condition.key(), self.items(condition));
        match condition {
            Condition::Size(_) | Condition::Recipients(_) | Condition::Tls(_) => format!("{key} is {items}"),
            Condition::Over(_) => format!("a limit is exceeded: {items}"),
            Condition::Score(_) => format!("the score is {items} or more"),
            Condition::Header(_) => format!("the header has {items}"),
            Condition::BadHello => "the name in EHLO cannot be that of a mail server".to_owned(),
            Condition::NoReverseName => "the client's address has no name that leads back to it".to_owned(),
            Condition::ReverseNameUnknown => "DNS does not answer about the client's address".to_owned(),
            Condition::DnsList(of, _) => format!("{} is listed by {items}", shown(*of)),
            _ if items.contains(", ") => format!("{key} is one of {items}"),
            _ => format!("{key} is {items}"),
        }
    }

    /// Returns the verdict and the changes of a rule in words.
    pub fn explain_action(&self, rule: &Rule) -> String {
        let mut parts = Vec::new();
        let modifiers = &rule.modifiers;
        if !modifiers.tags.is_empty() {
            parts.push(format!("tag {}", list(&modifiers.tags)));
        }
        if modifiers.score != 0 {
            parts.push(format!("score {:+}", modifiers.score));
        }
        if !modifiers.delay.is_zero() {
            parts.push(format!("wait {:?}", modifiers.delay));
        }
        if !modifiers.fields.is_empty() {
            let lines = modifiers.fields.iter().map(|field| format!("`{field}`"));
            parts.push(format!("add {}", list(lines)));
        }
        if !modifiers.redirect.is_empty() {
            parts.push(format!("redirect to {}", list(&modifiers.redirect)));
        }
        if !modifiers.bcc.is_empty() {
            parts.push(format!("copy to {}", list(&modifiers.bcc)));
        }
        if let Some(route) = &modifiers.route {
            parts.push(format!("by the route {route}"));
        }
        if modifiers.is_trust {
            parts.push("the client counts as trusted below".to_owned());
        }
        parts.extend(rule.action.as_ref().map(|action| match action {
            Action::Accept => format!("accept: nothing below runs at the stage {}", rule.stage.as_str()),
            Action::Reject(reply) => format!("reject: {reply}"),
            Action::Defer(reply) => format!("defer: {reply}"),
            Action::Discard(reason) if reason.is_empty() => "discard".to_owned(),
            Action::Discard(reason) => format!("discard: {reason}"),
            Action::Hold(reason) if reason.is_empty() => "hold".to_owned(),
            Action::Hold(reason) => format!("hold: {reason}"),
            Action::Ask(service) => {
                format!(
                    "ask {}",
                    self.services().get(usize::from(service.0)).map_or("a service", |name| name)
                )
            }
        }));
        if parts.is_empty() { "nothing".to_owned() } else { parts.join("; ") }
    }

    /// Returns the value by which a condition holds or does not: `client: 203.0.113.7 is not in 198.51.100.0/24`.
    pub(crate) fn explain_finding(&self, condition: &Condition, judge: &Judge<'_>, holds: bool) -> String {
        let (facts, items) = (judge.facts, self.items(condition));
        let domain = match condition {
            Condition::DnsList(of, _) => judge.listed_domain(*of).ok().flatten(),
            _ => None,
        };
        let value = match condition {
            Condition::Listener(_) => facts.session.listener().map(|one| one.as_str().to_owned()),
            Condition::Client(_) => facts.session.client().map(|client| client.to_canonical().to_string()),
            Condition::ClientName(_) | Condition::NoReverseName | Condition::ReverseNameUnknown => {
                match judge.answers.find(&Question::ClientName) {
                    Some(Fact::ClientName(ClientName::Verified(name))) => Some(name.to_string()),
                    Some(Fact::ClientName(ClientName::Unknown(why))) => Some(format!("unknown ({why})")),
                    _ => Some("no verified name".to_owned()),
                }
            }
            Condition::Hello(_) | Condition::BadHello => facts.session.hello.as_deref().map(str::to_owned),
            Condition::Tls(_) => Some(facts.session.tls.is_some().to_string()),
            Condition::Certificate(_) => facts.session.certificate.as_deref().map(|shown| {
                let trust = if shown.is_trusted { "" } else { " (not trusted)" };
                list(shown.keys()) + trust
            }),
            Condition::Login(_) => facts.session.login.as_deref().map(str::to_owned),
            Condition::From(_) => facts.from.map(|from| match from {
                ReversePath::Null => "<>".to_owned(),
                ReversePath::Mailbox(mailbox) => mailbox.to_string(),
            }),
            Condition::To(_) => Some(list(facts.to.iter().map(|to| to.path.as_str()))),
            Condition::Size(_) => facts.size_bytes.map(|size| format!("{size} bytes")),
            Condition::Recipients(_) => Some(facts.recipient_count.to_string()),
            Condition::Header(_) => Some("the header".to_owned()),
            Condition::Tagged(_) => match judge.is_for_each {
                true => Some(list(facts.shared_tags.iter().chain(judge.shared_tags))),
                false => Some(list(facts.tags.iter().chain(judge.tags))),
            },
            Condition::Score(_) => Some(judge.total_score().to_string()),
            Condition::Over(_) => Some("the rate".to_owned()),
            Condition::DnsList(_, lists) => Some(list(lists.iter().map(|one| {
                let zone = one.zone();
                match judge.answers.dns_list(zone, domain.as_deref()) {
                    Some(Ok(listed)) if listed.codes.is_empty() => format!("not by {zone}"),
                    Some(Ok(listed)) => format!("by {zone} ({})", list(&listed.codes)),
                    Some(Err(why)) => format!("{zone} does not answer ({why})"),
                    None => format!("{zone} was not asked"),
                }
            }))),
        };
        let value = value.filter(|value| !value.is_empty()).unwrap_or_else(|| "nothing".to_owned());
        let is = match (holds, items.contains(", ")) {
            (true, false) => "is",
            (true, true) => "is one of",
            (false, false) => "is not",
            (false, true) => "is none of",
        };
        match condition {
            Condition::Header(_) => {
                format!("header: it has {} {items}", if holds { "a field" } else { "no field" })
            }
            Condition::Over(_) => format!("over: {items} is {}exceeded", if holds { "" } else { "not " }),
            Condition::Score(_) => {
                format!(
                    "min_score: the score is {value}, {} {items}",
                    if holds { "at least" } else { "below" }
                )
            }
            Condition::Tls(_) => format!("tls: {value}"),
            Condition::BadHello => {
                let can = if holds { "cannot" } else { "can" };
                format!("hello: {value} {can} be the name of a mail server")
            }
            Condition::NoReverseName | Condition::ReverseNameUnknown => format!("reverse_name: {value}"),
            Condition::DnsList(of, _) => {
                let listee = match of {
                    Listee::Client => facts.session.client().map(|client| client.to_canonical().to_string()),
                    _ => domain.map(Into::into),
                };
                let listee = listee.unwrap_or_else(|| "nothing".to_owned());
                format!("{}: {listee} is {}listed: {value}", condition.key(), if holds { "" } else { "not " })
            }
            _ => format!("{}: {value} {is} {items}", condition.key()),
        }
    }
}
