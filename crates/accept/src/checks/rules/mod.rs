//! The check of the operator's rules: evaluates the program of the configuration with what is known, answers its questions, and
//! evaluates again.

pub(super) mod redirect;
mod state;

use super::addresses;
use crate::{
    check::{Check, LOOKUP_FAILED, View},
    memory::{CheckMemories, CheckMemory, own},
};
use config::Settings;
use inbound::Answer;
use mail::{ClientCertificate, Edit, Recipient, Reply};
use policy::{
    Answers, ClientName, DnsList, Effects, Fact, Facts, Listed, Measure, NamedHost, Next, Question, Ruling,
    ServiceId, Source, Stage, Verdict,
};
use route::dns::Lookup;
use state::{Memory, shown};
use std::{pin::Pin, time::Instant};
use tokio::time::sleep;

/// Evaluations of one stage: each asks something new, so that there are not as many.
const ROUNDS_MAX: usize = 10_000;

/// Asks the rules of the configuration. A rule never permits what other checks refuse.
pub(crate) struct RuleCheck {
    stages: Vec<Stage>,
}

impl RuleCheck {
    /// Returns `None` if there is nothing to evaluate.
    pub(crate) fn new(settings: &Settings) -> Option<Self> {
        let program = &settings.rules.program;
        // Greylisting asks at RCPT whether a rule of any stage has trusted the client.
        let is_asked =
            |stage| program.has(stage) || stage == Stage::Rcpt && settings.rules.greylist.is_some();
        let stages: Vec<_> = Stage::OF_RULES.into_iter().filter(|stage| is_asked(*stage)).collect();
        (!program.is_empty()).then_some(Self { stages })
    }
}

/// What was asked so far, for rules that are judged again with the answers.
type Answered = Vec<(Question, Fact)>;

type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl Check for RuleCheck {
    fn stages(&self) -> Vec<Stage> {
        self.stages.clone()
    }

    /// Tags and trust of a session outlive a reload; answers to the questions of another program mean nothing to this one.
    fn begin(&self, before: &mut CheckMemories) -> Option<Box<dyn CheckMemory>> {
        let mut memory = before.take::<Memory>().unwrap_or_default();
        memory.answers = Answers::default();
        Some(memory)
    }

    fn check<'a>(&'a self, memory: Option<&'a mut dyn CheckMemory>, view: View<'a>) -> Answer<'a, Verdict> {
        let Some(memory) = own::<Memory>(memory) else { return Answer::Ready(Verdict::Pass) };
        let stage = view.stage;
        if view.facts.source == Source::Report {
            return Answer::Ready(Verdict::Pass);
        }
        if stage == Stage::Rcpt {
            memory.begin_recipient(recipient_index(&view));
            view.findings.iter().for_each(|findings| findings.spare(false));
            // Mail that is not ours to relay is refused by the next check, without any look-up for a rule.
            match addresses::is_ours(&view) {
                Some(true) => {}
                Some(false) => return Answer::Ready(Verdict::Pass),
                None => {
                    return Answer::later(async move {
                        if addresses::is_ours_by_maps(&view).await {
                            evaluate(view, memory, stage).wait().await
                        } else {
                            Verdict::Pass
                        }
                    });
                }
            }
        }
        evaluate(view, memory, stage)
    }
}

/// Evaluates until the program has decided. Waits only where an answer has to be waited for.
fn evaluate<'a>(view: View<'a>, memory: &'a mut Memory, stage: Stage) -> Answer<'a, Verdict> {
    for _ in 0..ROUNDS_MAX {
        match step(&view, memory, stage) {
            Next::Done(ruling) => return finish(view, memory, stage, ruling),
            Next::Ask(questions) => {
                let begun = Instant::now();
                while let Some(answered) = answer_next(&view, memory, &questions) {
                    match answered {
                        Answer::Ready(answers) => note_all(&view, memory, stage, answers, begun),
                        Answer::Pending(first) => {
                            return Answer::later(evaluate_later(view, memory, stage, first));
                        }
                    }
                }
            }
        }
    }
    tracing::error!("the rules of the stage {} never end", stage.as_str());
    Answer::Ready(Verdict::Defer(LOOKUP_FAILED))
}

async fn evaluate_later<'a>(
    view: View<'a>,
    memory: &'a mut Memory,
    stage: Stage,
    mut pending: Pending<'a, Answered>,
) -> Verdict {
    for _ in 0..ROUNDS_MAX {
        let begun = Instant::now();
        let answers = pending.await;
        note_all(&view, memory, stage, answers, begun);
        loop {
            let questions = match step(&view, memory, stage) {
                Next::Done(ruling) => return finish(view, memory, stage, ruling).wait().await,
                Next::Ask(questions) => questions,
            };
            let begun = Instant::now();
            match answer_next(&view, memory, &questions) {
                None => {}
                Some(Answer::Ready(answers)) => note_all(&view, memory, stage, answers, begun),
                Some(Answer::Pending(later)) => {
                    pending = later;
                    break;
                }
            }
        }
    }
    Verdict::Defer(LOOKUP_FAILED)
}

/// Answers the first question that has no answer yet. Lists in DNS are asked together: one that is silent does not delay the others.
fn answer_next<'a>(view: &View<'a>, memory: &Memory, questions: &[Question]) -> Option<Answer<'a, Answered>> {
    let question = questions.iter().find(|question| memory.lacks(question))?.clone();
    let client = view.facts.client();
    // The list, and the name that says whether the client, or a domain, is listed.
    let name = |question: &Question| match question {
        Question::DnsList(zone, None) => Some((zone.clone(), DnsList::name(zone, client?))),
        Question::DnsList(zone, Some(domain)) => Some((zone.clone(), DnsList::domain_name(zone, domain)?)),
        _ => None,
    };
    if name(&question).is_none() {
        return Some(answer(view, memory, &question).map(|fact| vec![(question, fact)]));
    }
    let open = questions.iter().filter(|question| memory.lacks(question));
    let asked: Vec<_> = open.filter_map(|question| Some((question.clone(), name(question)?))).collect();
    let (lists, dns) = (view.rules.sources.lists.clone(), view.rules.sources.dns().clone());
    Some(Answer::later(async move {
        let answers = lists.ask_all(dns, asked).await;
        answers.into_iter().map(|(question, listed)| (question, Fact::DnsList(listed))).collect()
    }))
}

fn note_all(view: &View<'_>, memory: &mut Memory, stage: Stage, answers: Answered, begun: Instant) {
    for (question, fact) in answers {
        note(view, memory, stage, question, fact, begun);
    }
}

/// Evaluates once with what is known.
fn step(view: &View<'_>, memory: &mut Memory, stage: Stage) -> Next {
    let accepted = recipient_index(view);
    let (mut tags, mut shared_tags) = (memory.tags(stage, accepted), memory.shared_tags(stage, accepted));
    if let (Stage::Content, Some(findings)) = (stage, view.findings) {
        let found = findings.tags();
        tags.extend(found.iter().cloned());
        shared_tags.extend(found);
    }
    let mut facts = facts(view, stage, memory.is_trusted(stage, accepted));
    (facts.tags, facts.shared_tags) = (&tags, &shared_tags);
    (facts.score, facts.least_score) = memory.scores(stage, accepted);
    let (answers, program) = (&mut memory.answers, &view.rules.settings.rules.program);
    match view.observer {
        Some(observer) => {
            observer.with(|mut observed| program.evaluate(stage, &facts, answers, &mut observed))
        }
        None => program.evaluate(stage, &facts, answers, &mut ()),
    }
}

/// Collects what rules may look at, of the client, the envelope and the content.
fn facts<'a>(view: &View<'a>, stage: Stage, is_trusted: bool) -> Facts<'a> {
    // Another server that delivers by LMTP has checked its clients itself.
    let is_own = view.facts.listener() == Some(mail::ListenerKind::Lmtp);
    let to: &[Recipient] = match (stage, view.recipient, view.envelope) {
        (Stage::Rcpt, Some(recipient), _) => std::slice::from_ref(recipient),
        (Stage::Content, _, Some(envelope)) => &envelope.recipients,
        _ => &[],
    };
    let accepted = view.envelope.map_or(0, |envelope| envelope.recipients.len());
    Facts {
        from: view.envelope.map(|envelope| &envelope.reverse_path),
        to,
        recipient_count: accepted + usize::from(stage == Stage::Rcpt),
        size_bytes: view.content.map(mail::ReceivedContent::size_bytes),
        header: view.header,
        is_trusted: is_trusted || is_own || view.rules.policy.may_send_anywhere(view.facts),
        ..Facts::new(view.facts)
    }
}

fn recipient_index(view: &View<'_>) -> usize {
    view.envelope.map_or(0, |envelope| envelope.recipients.len())
}

fn note(view: &View<'_>, memory: &mut Memory, stage: Stage, question: Question, fact: Fact, begun: Instant) {
    let rules = &view.rules.settings.rules;
    if let Some(observer) = view.observer {
        let what = match &question {
            Question::Map(map, key) => format!("{} {key}", rules.references[usize::from(map.0)].1),
            Question::ClientName => "the name of the client's address".to_owned(),
            Question::DnsList(zone, None) => format!("the list {zone}"),
            Question::DnsList(zone, Some(domain)) => format!("the list {zone} about {domain}"),
            Question::Spend(id, key, amount) => {
                format!("{} of {key}: {amount} more", rules.program.limits()[usize::from(id.0)].name)
            }
            Question::Service(ServiceId(id)) => {
                format!("policy service {}", rules.services[usize::from(*id)].name)
            }
        };
        observer.with(|observed| observed.note(stage, what, shown(&fact, begun.elapsed())));
    }
    let scope = rules.program.scope(stage, &question);
    memory.answers.add(scope, question, fact);
}

/// Answers a question, at once if possible.
fn answer<'a>(view: &View<'a>, memory: &Memory, question: &Question) -> Answer<'a, Fact> {
    let rules = &view.rules.settings.rules;
    match question {
        Question::Map(map, key) => {
            let reference = &rules.references[usize::from(map.0)].1;
            view.rules.maps.get_owned(reference, key.clone()).map(map_fact)
        }
        Question::Spend(id, key, amount) => {
            let limit = &rules.program.limits()[usize::from(id.0)];
            let table = &view.rules.sources.limits;
            let is_over = match limit.measure {
                Measure::Failures => table.is_over(limit, key),
                _ => table.spend(limit, key, *amount),
            };
            Answer::Ready(Fact::Over(is_over))
        }
        Question::ClientName => client_name(view).map(Fact::ClientName),
        // What can be asked is, with all lists at once.
        Question::DnsList(..) => Answer::Ready(Fact::DnsList(Ok(Listed::default()))),
        Question::Service(ServiceId(id)) => {
            let client = &view.rules.sources.services[usize::from(*id)];
            let known = match memory.answers.find(&Question::ClientName) {
                Some(Fact::ClientName(name)) => Some(Fact::ClientName(name.clone())),
                _ => None,
            };
            let name = known.map_or_else(|| answer(view, memory, &Question::ClientName), Answer::Ready);
            let attributes = attributes(view, memory);
            Answer::later(async move {
                let client_name = match name.wait().await {
                    Fact::ClientName(ClientName::Verified(name)) => name.to_string(),
                    _ => "unknown".to_owned(),
                };
                let names = ["client_name", "reverse_client_name"].map(|key| (key, client_name.clone()));
                let attributes: Vec<_> = attributes.into_iter().chain(names).collect();
                Fact::Service(client.ask(&attributes).await)
            })
        }
    }
}

/// Returns the verified name of the client, as a listed peer gave it or as DNS has it.
pub(crate) fn client_name<'a>(view: &View<'a>) -> Answer<'a, ClientName> {
    let Source::Smtp { peer, .. } = view.facts.source else { return Answer::Ready(ClientName::None) };
    match &view.facts.named_host {
        NamedHost::NotGiven => {}
        NamedHost::None => return Answer::Ready(ClientName::None),
        NamedHost::Name(name) => return Answer::Ready(ClientName::Verified(name.clone())),
    }
    let dns = view.rules.sources.dns();
    Answer::later(async move {
        match dns.verified_name(peer.ip()).await {
            Lookup::Found(name) => ClientName::Verified(name.into()),
            Lookup::NoData | Lookup::NxDomain => ClientName::None,
            Lookup::Unknown(why) => ClientName::Unknown(why.into()),
        }
    })
}

fn map_fact(looked: maps::Looked) -> Fact {
    Fact::Map(looked.map_err(|error| {
        tracing::error!("look up for a rule: {error}");
        error.to_string().into()
    }))
}

/// The attributes of a question to a policy server, but for the name of the client.
fn attributes(view: &View<'_>, memory: &Memory) -> Vec<(&'static str, String)> {
    let facts = view.facts;
    let stage = match view.stage {
        Stage::Connect => "CONNECT",
        Stage::Hello => "EHLO",
        Stage::Mail => "MAIL",
        Stage::Rcpt => "RCPT",
        _ => "END-OF-MESSAGE",
    };
    let (client, local) = match &facts.source {
        Source::Smtp { peer, local, .. } => (Some(*peer), Some(*local)),
        Source::Local { .. } | Source::Report => (None, None),
    };
    let address = |address: Option<std::net::SocketAddr>| {
        address.map_or_else(String::new, |address| address.ip().to_canonical().to_string())
    };
    let port =
        |address: Option<std::net::SocketAddr>| address.map_or_else(String::new, |a| a.port().to_string());
    let (version, cipher) = facts.tls.as_deref().and_then(|tls| tls.split_once(':')).unwrap_or_default();
    let recipients = match view.recipient {
        Some(_) => recipient_index(view) + 1,
        None => recipient_index(view),
    };
    let size = view.content.map_or(0, mail::ReceivedContent::size_bytes);
    let login = facts.login.as_deref().unwrap_or_default();
    let shown = facts.certificate.as_deref();
    // As Postfix has it: names of certificates that are trusted, and fingerprints of all, with colons.
    let name = |of: fn(&ClientCertificate) -> Option<&str>| {
        let trusted = shown.filter(|certificate| certificate.is_trusted);
        trusted.and_then(of).unwrap_or_default().to_owned()
    };
    let fingerprint = shown.map_or_else(String::new, |certificate| with_colons(&certificate.fingerprint));
    vec![
        ("protocol_state", stage.to_owned()),
        ("protocol_name", "ESMTP".to_owned()),
        ("client_address", address(client)),
        ("client_port", port(client)),
        ("server_address", address(local)),
        ("server_port", port(local)),
        ("helo_name", facts.hello.as_deref().unwrap_or_default().to_owned()),
        ("sender", view.envelope.map_or_else(String::new, |e| e.reverse_path.as_str().to_owned())),
        ("recipient", view.recipient.map_or_else(String::new, |to| to.path.as_str().to_owned())),
        ("recipient_count", recipients.to_string()),
        ("queue_id", String::new()),
        ("instance", format!("{:x}.{:p}.{:x}", std::process::id(), memory, memory.instance)),
        ("size", size.to_string()),
        ("etrn_domain", String::new()),
        ("stress", String::new()),
        ("sasl_method", if login.is_empty() { String::new() } else { "AUTH".to_owned() }),
        ("sasl_username", login.to_owned()),
        ("sasl_sender", String::new()),
        ("ccert_subject", name(|certificate| certificate.common_name.as_deref())),
        ("ccert_issuer", name(|certificate| certificate.issuer.as_deref())),
        ("ccert_fingerprint", fingerprint),
        ("encryption_protocol", version.to_owned()),
        ("encryption_cipher", cipher.to_owned()),
        ("encryption_keysize", "0".to_owned()),
        ("policy_context", String::new()),
    ]
}

/// The form of fingerprints in Postfix's policy protocol: `AB:CD:EF`.
fn with_colons(digits: &str) -> String {
    let pairs: Vec<&str> =
        digits.as_bytes().chunks(2).filter_map(|pair| std::str::from_utf8(pair).ok()).collect();
    pairs.join(":").to_uppercase()
}

/// Carries out what the rules decided: the verdict, with everything else that they ask for.
fn finish<'a>(view: View<'a>, memory: &mut Memory, stage: Stage, ruling: Ruling) -> Answer<'a, Verdict> {
    let Ruling { verdict, by, effects } = ruling;
    if let Some(observer) = view.observer {
        observer.with(crate::observer::Observed::keep);
    }
    memory.add_tags(stage, recipient_index(&view), &effects.tags);
    memory.add_score(stage, recipient_index(&view), effects.score);
    if effects.is_trusted {
        memory.trust(stage, recipient_index(&view));
    }
    if stage == Stage::Rcpt
        && let Some(findings) = view.findings
    {
        let is_trusted = effects.is_trusted || memory.is_trusted(stage, 0);
        findings.spare(is_trusted || verdict == Verdict::Accept);
    }
    let verdict = with_rule(verdict, by, stage);
    let Effects { delay, fields, redirect, bcc, route, .. } = effects;
    let is_refused = verdict.is_refusal();
    let changes_nothing = fields.is_empty() && redirect.is_none() && bcc.is_empty() && route.is_none();
    if delay.is_zero() && (is_refused || changes_nothing) {
        return Answer::Ready(verdict);
    }
    Answer::later(async move {
        if !delay.is_zero() {
            sleep(delay).await;
        }
        if is_refused {
            return verdict;
        }
        let (mut all, mut missing) = (Vec::new(), redirect::Missing::new());
        if !fields.is_empty() {
            all.push(Verdict::Edit(fields.into_iter().map(Edit::Append).collect()));
        }
        all.extend(route.map(Verdict::Route));
        for targets in bcc {
            match redirect::copies(&view, targets, &mut missing).await {
                Ok(copies) => all.push(Verdict::Bcc(copies)),
                Err(refused) => return refused,
            }
        }
        let mut settled = None;
        if let Some(targets) = redirect {
            match redirect::targets_of(&view, *targets, &mut missing).await {
                Ok(to) => settled = Some(Verdict::Settle(to)),
                Err(refused) => return refused,
            }
        }
        if !missing.is_empty() {
            all.push(Verdict::Missing(missing.into()));
        }
        // The verdict before the redirection: that ends the stage.
        all.push(verdict);
        all.extend(settled);
        Verdict::All(all)
    })
}

/// Names the rule that decided, for the log.
fn with_rule(verdict: Verdict, by: Option<Box<str>>, stage: Stage) -> Verdict {
    // A greeting has one of two codes (RFC 5321 §3.1, §3.8).
    let greeting = |mut reply: Reply, code: u16| {
        if stage == Stage::Connect {
            reply.code = code;
        }
        reply
    };
    let reason = |text: Box<str>, by: Option<Box<str>>| -> Box<str> {
        let by = by.unwrap_or_default();
        if text.is_empty() { by } else { format!("{text} ({by})").into() }
    };
    match verdict {
        // No rule decides that another check is not made.
        Verdict::Accept => Verdict::Pass,
        Verdict::Reject(reply) => Verdict::Reject(greeting(reply, 554).with_rule(by)),
        Verdict::Defer(reply) => Verdict::Defer(greeting(reply, 421).with_rule(by)),
        Verdict::Discard(text) => Verdict::Discard(reason(text, by)),
        Verdict::Hold(text) => Verdict::Hold(reason(text, by)),
        other => other,
    }
}
