use super::*;
use crate::{
    AddressPattern, Addresses, Answers, CertificatePattern, Certificates, ClientName, ClientNames,
    DomainPattern, Fact, Facts, HeaderPattern, Hellos, Line, Listee, Logins, MapId, MapInfo, Modifiers,
    Networks, Next, Program, Question, ReplyClass, ReplyText, ServiceAction, ServiceId, SessionFacts, Source,
    Trace, Verdict,
};
use mail::{ClientCertificate, ForwardPath, ListenerKind, Recipient, ReversePath};
use proptest::{collection::vec, prelude::*, sample::select};
use rewrite::Separator;
use std::{net::SocketAddr, sync::Arc};

fn rule(conditions: Vec<Condition>, action: Option<Action>) -> Rule {
    Rule {
        name: "rule".into(),
        line: Line(1),
        stage: Rule::usual_stage(conditions.iter().map(Condition::earliest_stage)),
        audience: Audience::Untrusted,
        conditions,
        unless: Vec::new(),
        action,
        modifiers: Modifiers::default(),
    }
}

fn reject() -> Option<Action> {
    Some(Action::Reject(ReplyText::parse("no", ReplyClass::Permanent).unwrap()))
}

fn no(conditions: Vec<Condition>) -> Rule {
    rule(conditions, reject())
}

fn addresses(patterns: &[&str]) -> Addresses {
    let patterns = patterns.iter().map(|text| match text.strip_prefix("map:") {
        Some(id) => Err(MapId(id.parse().unwrap())),
        None => Ok(AddressPattern::parse(text).unwrap()),
    });
    let (patterns, maps): (Vec<_>, Vec<_>) = patterns.partition(Result::is_ok);
    Addresses {
        patterns: patterns.into_iter().filter_map(Result::ok).collect::<Vec<_>>().into(),
        maps: maps.into_iter().filter_map(Result::err).collect(),
    }
}

fn from(patterns: &[&str]) -> Condition {
    Condition::From(addresses(patterns))
}

fn to(patterns: &[&str]) -> Condition {
    Condition::To(addresses(patterns))
}

fn domains(patterns: &[&str]) -> Vec<DomainPattern> {
    patterns.iter().map(|text| DomainPattern::parse(text).unwrap()).collect()
}

fn client(networks: &[&str]) -> Condition {
    let networks = networks.iter().map(|text| text.parse().unwrap()).collect();
    Condition::Client(Networks { networks, maps: Vec::new() })
}

fn client_map() -> Condition {
    Condition::Client(Networks { networks: Vec::new(), maps: vec![MapId(0)] })
}

fn names(patterns: &[&str], has_none: bool, maps: &[u16]) -> Condition {
    let maps = maps.iter().map(|id| MapId(*id)).collect();
    Condition::ClientName(ClientNames { patterns: domains(patterns), has_none, maps })
}

fn certificate(patterns: &[&str]) -> Condition {
    let patterns = patterns.iter().map(|text| CertificatePattern::parse(text).unwrap()).collect();
    Condition::Certificate(Certificates { patterns, maps: Vec::new() })
}

fn header(text: &str) -> Condition {
    Condition::Header(vec![HeaderPattern::parse(text).unwrap()])
}

fn tagged(tags: &[&str]) -> Condition {
    Condition::Tagged(tags.iter().map(|tag| (*tag).into()).collect())
}

/// The rules that hide the last one.
fn hidden(rules: &[Rule]) -> Option<Vec<usize>> {
    hidden_by(rules, rules.len() - 1)
}

fn hides(rule: &Rule, other: &Rule) -> bool {
    hidden(&[rule.clone(), other.clone()]).is_some()
}

#[test]
fn a_rule_that_is_hidden_by_one_above_is_found() {
    let wide = no(vec![from(&["*.a.test"])]);
    let narrow = no(vec![from(&["x@b.a.test"]), Condition::Tls(true)]);
    let other = no(vec![from(&["a.test"])]);
    assert!(hides(&wide, &narrow) && !hides(&wide, &other) && !hides(&narrow, &wide));
    let except = Rule { unless: vec![Condition::Tls(true)], ..wide.clone() };
    assert!(!hides(&except, &narrow));
    let content = Rule { stage: Stage::Content, ..narrow.clone() };
    assert!(!hides(&wide, &content));
    for action in [Action::Accept, Action::Hold("x".into()), Action::Discard("x".into())] {
        assert!(hides(&rule(Vec::new(), Some(action)), &narrow));
    }
    assert!(!hides(&rule(Vec::new(), None), &narrow));
    assert!(!hides(&rule(Vec::new(), Some(Action::Ask(ServiceId(0)))), &narrow));
}

#[test]
fn a_refusal_of_an_earlier_stage_hides_what_is_for_the_same_clients_or_senders() {
    let at = |stage, conditions, action| Rule { stage, ..rule(conditions, action) };
    let refused = at(Stage::Connect, vec![client(&["203.0.113.0/24"])], reject());
    let narrow = no(vec![client(&["203.0.113.7/32"]), from(&["a.test"])]);
    assert!(hides(&refused, &narrow) && !hides(&narrow, &refused));
    assert!(
        hidden_by(&[narrow.clone(), refused.clone()], 0) == Some(vec![1]),
        "in whatever order they stand"
    );
    assert!(!hides(&refused, &no(vec![from(&["a.test"])])));
    // What is accepted at one stage is judged at the next one, and a recipient is not the whole message.
    let accepted = at(Stage::Connect, vec![client(&["203.0.113.0/24"])], Some(Action::Accept));
    assert!(!hides(&accepted, &narrow));
    let recipient = no(vec![from(&["a.test"])]);
    assert!(!hides(&recipient, &at(Stage::Content, vec![from(&["a.test"])], reject())));
    let users = Rule { audience: Audience::Users, ..narrow.clone() };
    assert!(!hides(&refused, &users));
    // A client that is accepted at the earlier stage does not come to the refusal.
    let friend = at(Stage::Connect, vec![client(&["203.0.113.7/32"])], Some(Action::Accept));
    assert_eq!(hidden(&[friend, refused.clone(), narrow.clone()]), None);
    let other = at(Stage::Connect, vec![client(&["198.51.100.0/24"])], Some(Action::Accept));
    assert_eq!(hidden(&[other, refused.clone(), narrow.clone()]), Some(vec![1]));
    // A client can log in after the first stage.
    let not_logged_in = Rule { audience: Audience::Users, ..refused };
    assert!(!hides(&not_logged_in, &users));
}

#[test]
fn exceptions_and_tls_are_compared() {
    let unless = |unless, conditions| Rule { unless, ..no(conditions) };
    let (tls, clear) = (Condition::Tls(true), Condition::Tls(false));
    let a = || from(&["a.test"]);
    let except_tls = unless(vec![tls.clone()], Vec::new());
    assert!(hides(&except_tls, &unless(vec![tls.clone()], vec![a()])));
    assert!(hides(&except_tls, &unless(Vec::new(), vec![clear.clone()])));
    assert!(!hides(&except_tls, &unless(Vec::new(), vec![a()])));
    let except_a = unless(vec![a()], Vec::new());
    assert!(hides(&except_a, &unless(vec![from(&["*"])], Vec::new())));
    assert!(hides(&except_a, &unless(Vec::new(), vec![from(&["b.test"])])), "what is excepted is for others");
    assert!(!hides(&except_a, &unless(vec![from(&["x@a.test"])], Vec::new())));
    assert!(!hides(&except_a, &unless(Vec::new(), vec![tls.clone()])));
    let (over_tls, in_clear, any) = (no(vec![tls]), no(vec![clear]), no(vec![a()]));
    assert_eq!(hidden(&[over_tls.clone(), in_clear.clone(), any.clone()]), Some(vec![0, 1]));
    assert_eq!(hidden(&[in_clear, except_tls.clone(), any.clone()]), None);
    assert_eq!(hidden(&[over_tls.clone(), except_tls, any.clone()]), Some(vec![0, 1]));
    assert_eq!(hidden(&[over_tls.clone(), over_tls, any]), None);
}

#[test]
fn several_rules_hide_one_together() {
    let of = |networks: &[&str]| no(vec![client(networks)]);
    let halves = [of(&["10.0.0.0/9"]), of(&["192.0.2.0/24"]), of(&["10.128.0.0/10", "10.192.0.0/10"])];
    let rules = |last: Rule| halves.iter().cloned().chain([last]).collect::<Vec<_>>();
    assert_eq!(hidden(&rules(of(&["10.0.0.0/8"]))), Some(vec![0, 2]));
    assert_eq!(hidden(&rules(of(&["10.0.0.0/8", "192.0.2.7/32"]))), Some(vec![0, 1, 2]));
    assert_eq!(hidden(&rules(of(&["10.0.0.0/8", "192.0.3.7/32"]))), None);
    assert_eq!(hidden(&rules(no(vec![client(&["10.0.0.0/8"]), from(&["a.test"])]))), Some(vec![0, 2]));
    let lists =
        [no(vec![from(&["a.test"])]), no(vec![from(&["b.test", "<>"])]), no(vec![from(&["a.test", "<>"])])];
    assert_eq!(hidden(&lists), Some(vec![0, 1]));
    let senders = [no(vec![from(&["<>"])]), no(vec![from(&["*"])]), no(vec![to(&["a.test"])])];
    assert_eq!(hidden(&senders), Some(vec![0, 1]), "each message has a sender, or none");
    let kinds = |kinds: &[ListenerKind]| no(vec![Condition::Listener(kinds.to_vec())]);
    use ListenerKind::{Lmtp, Mx, Relay, Submission, Submissions};
    let all = [kinds(&[Mx, Lmtp]), kinds(&[Relay]), kinds(&[Submission, Submissions]), no(Vec::new())];
    assert_eq!(hidden(&all), Some(vec![0, 1, 2]));
    let for_all = Rule { audience: Audience::All, ..no(Vec::new()) };
    assert_eq!(
        hidden(&[all[0].clone(), all[1].clone(), all[2].clone(), for_all]),
        None,
        "programs on this machine"
    );
    // A rule, and one for what it excepts.
    let but_a = Rule { unless: vec![from(&["a.test"])], ..no(vec![to(&["c.test"])]) };
    let rest = no(vec![from(&["a.test"]), to(&["c.test"])]);
    assert_eq!(hidden(&[but_a, rest, no(vec![to(&["x@c.test"])])]), Some(vec![0, 1]));
    // Two conditions in each of them.
    let [a, b] =
        [Condition::Tls(true), Condition::Tls(false)].map(|tls| no(vec![tls, Condition::Recipients(5)]));
    let few = Rule { unless: vec![Condition::Recipients(5)], ..no(Vec::new()) };
    assert_eq!(hidden(&[a.clone(), b.clone(), few, no(vec![from(&["a.test"])])]), Some(vec![0, 1, 2]));
    assert_eq!(hidden(&[a, b, no(vec![from(&["a.test"])])]), None);
}

#[test]
fn all_of_a_fact_hides_what_a_map_or_an_expression_finds() {
    let any = no(vec![client(&["0.0.0.0/0", "::/0"])]);
    assert!(
        hides(&any, &no(vec![client_map()]))
            && !hides(&no(vec![client(&["0.0.0.0/0"])]), &no(vec![client_map()]))
    );
    assert!(hides(&no(vec![names(&["*"], false, &[])]), &no(vec![names(&["a.test"], false, &[0])])));
    assert!(!hides(&no(vec![names(&["*"], false, &[])]), &no(vec![names(&[], true, &[0])])));
    assert!(hides(&no(vec![from(&["*", "<>"])]), &no(vec![from(&["map:0"])])));
    assert!(!hides(&no(vec![from(&["*"])]), &no(vec![from(&["map:0"])])), "a map can have <>");
    assert!(hides(&no(vec![header("Subject")]), &no(vec![header("subject: /x/")])));
    assert!(!hides(&no(vec![header("Subject: /x/")]), &no(vec![header("Subject")])));
}

#[test]
fn conditions_that_contradict_each_other_are_found() {
    let never = |conditions| hidden(&[no(conditions)]) == Some(Vec::new());
    assert!(never(vec![certificate(&["*"]), Condition::Tls(false)]));
    assert!(!never(vec![certificate(&["none", "*"]), Condition::Tls(false)]));
    assert!(never(vec![client(&["10.0.0.0/8"]), client(&["192.0.2.0/24"])]));
    assert!(never(vec![from(&["a.test", "<>"]), from(&["x@b.test"])]));
    assert!(
        !never(vec![from(&["a.test"]), from(&["x@*"])]) && !never(vec![from(&["map:0"]), from(&["b.test"])])
    );
    assert!(never(vec![to(&["a.test"]), to(&["b.test"])]));
    let of_content = vec![to(&["a.test"]), to(&["b.test"]), header("X")];
    assert!(!never(of_content), "a message can have both recipients");
    let except = Rule { unless: vec![from(&["*.a.test"])], ..no(vec![from(&["b.a.test"])]) };
    assert_eq!(hidden(&[except]), Some(Vec::new()));
    let within = Rule { unless: vec![Condition::Size(1000)], ..no(vec![Condition::Size(2000)]) };
    assert_eq!(hidden(&[within]), Some(Vec::new()));
}

#[test]
fn tags_and_trust_that_come_in_between_let_a_rule_be_reached() {
    let tag = Rule {
        modifiers: Modifiers { tags: vec!["t".into()], ..Modifiers::default() },
        ..rule(vec![from(&["a.test"])], None)
    };
    let of_tag = no(vec![tagged(&["t"])]);
    assert_eq!(hidden(&[tag.clone(), of_tag.clone(), of_tag.clone()]), Some(vec![1]));
    assert_eq!(hidden(&[tag.clone(), of_tag.clone(), tag, of_tag]), None);
    let trust = Rule {
        modifiers: Modifiers { is_trust: true, ..Modifiers::default() },
        ..rule(vec![from(&["a.test"])], None)
    };
    let score = Rule {
        modifiers: Modifiers { score: 2, ..Modifiers::default() },
        ..rule(vec![from(&["a.test"])], None)
    };
    let of_score = |least| no(vec![Condition::Score(least)]);
    assert_eq!(hidden(&[score.clone(), of_score(2), of_score(3)]), Some(vec![1]));
    assert_eq!(hidden(&[score.clone(), of_score(2), score.clone(), of_score(3)]), None);
    assert_eq!(hidden(&[score, of_score(3), of_score(2)]), None);
    let users = Rule { audience: Audience::Users, ..no(Vec::new()) };
    assert_eq!(hidden(&[users.clone(), users.clone()]), Some(vec![0]));
    assert_eq!(hidden(&[users.clone(), trust.clone(), users]), None);
    let others = no(vec![from(&["x@a.test"])]);
    assert_eq!(hidden(&[trust.clone(), others.clone()]), Some(vec![0]));
    // Trust that a recipient has given is for that one.
    let content = Rule { stage: Stage::Content, ..others.clone() };
    assert_eq!(hidden(&[trust.clone(), content.clone()]), None);
    let of_sender = Rule { stage: Stage::Mail, ..trust };
    assert_eq!(hidden(&[of_sender, content]), Some(vec![0]));
}

#[test]
fn two_hundred_rules_are_compared_at_once() {
    let mut rules: Vec<Rule> = (0..200).map(|n| no(vec![from(&[&format!("a{n}.test")])])).collect();
    rules.push(no(vec![from(&["a199.test", "a7.test"])]));
    rules.push(no(Vec::new()));
    let hidden: Vec<usize> = (0..rules.len()).filter(|number| hidden_by(&rules, *number).is_some()).collect();
    assert_eq!(hidden, [200]);
}

/// The rules that held.
#[derive(Default)]
struct Held(Vec<String>);

impl Trace for Held {
    const IS_ON: bool = true;

    fn begin(&mut self, _: Stage) {}

    fn judged(&mut self, place: &str, text: &str) {
        if text.starts_with("yes") {
            self.0.push(place.to_owned());
        }
    }
}

/// Everything that a session is judged by.
#[derive(Debug, Clone)]
struct World {
    listener: Option<ListenerKind>,
    client: &'static str,
    hello: &'static str,
    has_tls: bool,
    certificate: Option<bool>,
    login: Option<&'static str>,
    from: &'static str,
    to: Vec<&'static str>,
    size: u64,
    header: &'static str,
    name: u8,
    keys: Vec<&'static str>,
    map_fails: bool,
    is_trusted: bool,
    service: u8,
}

fn world() -> impl Strategy<Value = World> {
    use ListenerKind::{Lmtp, Mx, Relay, Submission, Submissions};
    let session = (
        select(vec![None, Some(Mx), Some(Relay), Some(Submission), Some(Submissions), Some(Lmtp)]),
        select(vec!["10.1.0.1", "10.200.0.1", "192.0.2.1", "2001:db8::1"]),
        select(vec!["mail.a.test", "b.test", "friend"]),
        any::<bool>(),
        select(vec![None, Some(false), Some(true)]),
        select(vec![None, Some("joe"), Some("ann")]),
    );
    let mail = (
        select(vec!["", "joe@a.test", "joe+x@a.test", "ann@m.a.test", "\"joe+x\"@b.test"]),
        vec(select(vec!["joe@a.test", "ann+y@b.test", "postmaster", "joe@m.a.test"]), 1..3),
        select(vec![10, 2000, 9000]),
        select(vec!["Subject: x\r\n\r\n", "X: y\r\n\r\n"]),
    );
    let answers = (
        0u8..4,
        vec(
            select(vec!["joe@a.test", "a.test", ".test", "10.1.0.1", "joe", "joe@", "<>", "mail.a.test"]),
            0..4,
        ),
        prop::bool::weighted(0.1),
        any::<bool>(),
        0u8..4,
    );
    (session, mail, answers).prop_map(|(session, mail, answers)| {
        let (listener, client, hello, has_tls, certificate, login) = session;
        let (from, to, size, header) = mail;
        let (name, keys, map_fails, is_trusted, service) = answers;
        let certificate = certificate.filter(|_| has_tls);
        // Programs on this machine are trusted, and so is who has logged in.
        let is_trusted = is_trusted || listener.is_none();
        World {
            listener,
            client,
            hello,
            has_tls,
            certificate,
            login,
            from,
            to,
            size,
            header,
            name,
            keys,
            map_fails,
            is_trusted,
            service,
        }
    })
}

impl World {
    fn answer(&self, question: &Question) -> Fact {
        match question {
            Question::Map(..) if self.map_fails => Fact::Map(Err("down".into())),
            Question::Map(map, key) => {
                let has = self
                    .keys
                    .iter()
                    .zip(0..)
                    .any(|(known, number)| *known == &**key && number % 2 == map.0 % 2);
                Fact::Map(Ok(has.then(Box::default)))
            }
            Question::ClientName => Fact::ClientName(match self.name {
                0 => ClientName::None,
                1 => ClientName::Unknown("later".into()),
                2 => ClientName::Verified("mail.a.test".into()),
                _ => ClientName::Verified("b.test".into()),
            }),
            Question::Spend(..) => Fact::Over(true),
            Question::DnsList(zone, _) => Fact::DnsList(Ok(crate::Listed {
                codes: vec![[127, 0, 0, self.name % 2 + u8::from(zone.starts_with('a'))].into()],
                text: Box::default(),
            })),
            Question::Service(_) => Fact::Service(Ok(match self.service {
                0 => ServiceAction::Pass,
                1 => ServiceAction::Accept,
                2 => ServiceAction::Hold("x".into()),
                _ => ServiceAction::Discard("x".into()),
            })),
        }
    }

    /// Evaluates all stages as a session does, and returns the rules that held.
    fn run(&self, program: &Program) -> Vec<String> {
        let from = ReversePath::parse(self.from, true).unwrap();
        let all: Vec<Recipient> =
            self.to.iter().map(|to| Recipient::new(ForwardPath::parse(to, true).unwrap())).collect();
        let certificate = self.certificate.map(|is_trusted| ClientCertificate {
            is_trusted,
            hosts: vec!["a.test".into()],
            ..ClientCertificate::default()
        });
        let (mut held, mut tags, mut accepted) = (Held::default(), Vec::new(), Vec::new());
        let (mut trusted_since, mut shared_tags) = (None, Vec::new());
        let (mut score, mut least_score) = (0, 0);
        let mut answers = Answers::default();
        for stage in Stage::OF_RULES {
            let rounds: Vec<Vec<Recipient>> = match stage {
                Stage::Rcpt => all.iter().map(|one| vec![one.clone()]).collect(),
                Stage::Content => vec![std::mem::take(&mut accepted)],
                _ => vec![Vec::new()],
            };
            let (mut new_tags, mut of_each, mut scores) = (Vec::new(), Vec::new(), Vec::new());
            for to in rounds {
                if stage == Stage::Rcpt {
                    trusted_since = trusted_since.filter(|since| *since < Stage::Rcpt);
                    answers.forget(crate::Scope::Recipient);
                }
                // Nobody has logged in before MAIL.
                let login = self.login.filter(|_| stage >= Stage::Mail && self.listener.is_some());
                let source = match self.listener {
                    Some(listener) => {
                        let peer = SocketAddr::new(self.client.parse().unwrap(), 40_000);
                        Source::Smtp { peer, local: peer, listener }
                    }
                    None => Source::Local { uid: 0 },
                };
                let is_greeted = stage >= Stage::Hello;
                let session = SessionFacts {
                    hello: is_greeted.then(|| self.hello.into()),
                    tls: (self.has_tls && is_greeted).then(|| "TLSv1.3:x".into()),
                    certificate: certificate.clone().filter(|_| is_greeted).map(Arc::new),
                    login: login.map(Into::into),
                    ..SessionFacts::new(source)
                };
                let facts = Facts {
                    session: &session,
                    from: (stage >= Stage::Mail).then_some(&from),
                    to: &to,
                    recipient_count: to.len(),
                    size_bytes: (stage == Stage::Content).then_some(self.size),
                    header: if stage == Stage::Content { self.header.as_bytes() } else { b"" },
                    tags: &tags,
                    shared_tags: &shared_tags,
                    score,
                    least_score,
                    is_trusted: self.is_trusted || login.is_some() || trusted_since.is_some(),
                };
                let outcome = loop {
                    match program.evaluate(stage, &facts, &answers, &mut held) {
                        Next::Done(outcome) => break outcome,
                        Next::Ask(questions) => {
                            for question in questions {
                                let answer = self.answer(&question);
                                answers.add(program.scope(stage, &question), question, answer);
                            }
                        }
                    }
                };
                new_tags.extend(outcome.effects.tags.iter().cloned());
                if outcome.effects.is_trusted && trusted_since.is_none() {
                    trusted_since = Some(stage);
                }
                if matches!(outcome.verdict, Verdict::Reject(_) | Verdict::Defer(_)) {
                    if stage != Stage::Rcpt {
                        return held.0;
                    }
                    continue;
                }
                of_each.push(outcome.effects.tags);
                scores.push(outcome.effects.score);
                accepted.extend(to);
            }
            tags.extend(new_tags);
            score += scores.iter().max().unwrap_or(&0);
            least_score += scores.iter().min().unwrap_or(&0);
            if let Some((first, others)) = of_each.split_first() {
                shared_tags
                    .extend(first.iter().filter(|tag| others.iter().all(|one| one.contains(tag))).cloned());
            }
            if stage == Stage::Rcpt && accepted.is_empty() {
                break;
            }
        }
        held.0
    }
}

fn condition(kind: u8, choice: usize) -> Condition {
    let pick = |all: &[&'static str]| all[choice % all.len()];
    match kind {
        0 => client(&[pick(&[
            "10.0.0.0/8",
            "10.0.0.0/9",
            "10.128.0.0/9",
            "0.0.0.0/0",
            "::/0",
            "192.0.2.0/24",
        ])]),
        1 => client_map(),
        2 => match choice % 4 {
            0 => from(&["*", "<>"]),
            1 => from(&["joe@*", "a.test"]),
            2 => from(&["map:0", "joe@a.test"]),
            _ => from(&["joe@a.test", "joe+x@a.test", "m.a.test"]),
        },
        3 => from(&[pick(&[
            "<>",
            "*",
            "a.test",
            "*.a.test",
            "joe@a.test",
            "joe+x@a.test",
            "joe@*",
            "map:0",
            "map:1",
        ])]),
        4 => to(&[pick(&["*", "a.test", "joe@a.test", "joe@*", "postmaster@*", "ann@b.test", "map:0"])]),
        5 => Condition::Tls(choice.is_multiple_of(2)),
        6 => names(
            &[pick(&["*", "*.a.test", "b.test"])],
            choice.is_multiple_of(2),
            if choice.is_multiple_of(3) { &[1] } else { &[] },
        ),
        7 => Condition::Hello(Hellos {
            patterns: domains(&[pick(&["*", "mail.a.test", "*.a.test", "b.test"])]),
            maps: Vec::new(),
        }),
        8 => certificate(&[pick(&["*", "none", "a.test", "*.test"])]),
        9 => Condition::Login(Logins {
            names: vec![pick(&["joe", "ann"]).into()],
            is_any: choice.is_multiple_of(3),
            maps: Vec::new(),
        }),
        10 => Condition::Size([100, 5000][choice % 2]),
        11 => Condition::Recipients(choice % 3),
        12 => header(pick(&["Subject", "subject: /x/", "X"])),
        13 if choice.is_multiple_of(2) => Condition::Score([1, 3, -2][choice % 3]),
        13 => tagged(&[pick(&["t", "u"])]),
        14 => {
            let lists =
                |text: &str| Condition::DnsList(Listee::Client, vec![crate::DnsList::parse(text).unwrap()]);
            [
                Condition::BadHello,
                Condition::NoReverseName,
                Condition::ReverseNameUnknown,
                lists("a.list=127.0.0.1"),
                lists("b.list=127.0.0.1"),
            ][choice % 5]
                .clone()
        }
        _ => Condition::Listener(
            [
                vec![ListenerKind::Mx],
                vec![ListenerKind::Relay, ListenerKind::Lmtp],
                vec![ListenerKind::Submission, ListenerKind::Submissions, ListenerKind::Mx],
            ][choice % 3]
                .clone(),
        ),
    }
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let conditions = vec((0u8..16, 0usize..12), 0..3);
    let unless = prop_oneof![2 => Just(Vec::new()), 1 => vec((0u8..16, 0usize..12), 1..2)];
    (conditions, unless, 0u8..9, 0u8..5, 0u8..3, 0u8..8).prop_map(
        |(conditions, unless, action, at, audience, change)| {
            let all = |kinds: Vec<(u8, usize)>| {
                kinds.into_iter().map(|(kind, choice)| condition(kind, choice)).collect()
            };
            let (conditions, unless): (Vec<Condition>, Vec<Condition>) = (all(conditions), all(unless));
            let earliest = conditions.iter().chain(&unless).map(Condition::earliest_stage).max();
            let stage = if at == 4 {
                earliest.unwrap_or(Stage::Connect)
            } else {
                Rule::usual_stage(conditions.iter().chain(&unless).map(Condition::earliest_stage))
            };
            let action = match action {
                0 | 1 => None,
                2 => Some(Action::Accept),
                3 => Some(Action::Hold("x".into())),
                4 => Some(Action::Discard("x".into())),
                5 => Some(Action::Ask(ServiceId(0))),
                _ => reject(),
            };
            let audience = [Audience::Untrusted, Audience::Users, Audience::All][usize::from(audience)];
            let mut modifiers = Modifiers { is_trust: change == 0, ..Modifiers::default() };
            match change {
                1 => modifiers.tags = vec!["t".into()],
                2 => modifiers.score = 2,
                3 => modifiers.score = -2,
                _ => {}
            }
            Rule { unless, stage, audience, modifiers, ..rule(conditions, action) }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// A rule that is never reached holds in no session, whatever the client does and the maps answer.
    #[test]
    fn no_rule_that_is_called_unreachable_ever_holds(
        mut rules in vec(any_rule(), 1..8),
        worlds in vec(world(), 64),
    ) {
        for (number, rule) in rules.iter_mut().enumerate() {
            rule.name = format!("rule {number}").into();
            rule.line = Line(0);
        }
        let unreachable: Vec<String> =
            (0..rules.len()).filter(|number| hidden_by(&rules, *number).is_some()).map(|number| format!("rule {number}")).collect();
        let map = |name: &str| MapInfo { name: name.into(), has_patterns: false };
        let maps = vec![map("text:a"), map("text:b")];
        let program = Program::new(rules.clone(), Vec::new(), maps, vec!["grey".into()], Separator::parse("+"), Vec::new());
        for world in worlds {
            let held = world.run(&program);
            let wrong = unreachable.iter().find(|name| held.contains(name));
            prop_assert!(wrong.is_none(), "{wrong:?} held with {world:?}\n{rules:#?}");
        }
    }
}
