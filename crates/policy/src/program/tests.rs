use super::*;
use crate::{
    AddressPattern, Addresses, ClientName, ClientNames, DnsList, DomainPattern, Line, Listed, Listee, MapId,
    Networks, Per, ReplyClass, SessionFacts, Source,
};
use limits::Rate;
use mail::{ForwardPath, ListenerKind, Recipient, ReversePath};
use proptest::prelude::*;

fn rule(number: usize, conditions: Vec<Condition>, action: Option<Action>) -> Rule {
    Rule {
        name: format!("rule {number}").into(),
        line: Line(number * 10),
        stage: Rule::usual_stage(conditions.iter().map(Condition::earliest_stage)),
        audience: Audience::Untrusted,
        conditions,
        unless: Vec::new(),
        action,
        modifiers: Modifiers::default(),
    }
}

fn reject(text: &str) -> Option<Action> {
    Some(Action::Reject(ReplyText::parse(text, ReplyClass::Permanent).unwrap()))
}

fn from(patterns: &[&str], maps: &[u16]) -> Condition {
    Condition::From(Addresses {
        patterns: patterns.iter().map(|text| AddressPattern::parse(text).unwrap()).collect::<Vec<_>>().into(),
        maps: maps.iter().map(|id| MapId(*id)).collect(),
    })
}

fn client(network: &str) -> Condition {
    Condition::Client(Networks { networks: vec![network.parse().unwrap()], maps: Vec::new() })
}

fn program(rules: Vec<Rule>, limits: Vec<Limit>) -> Program {
    let maps = vec![MapInfo { name: "text:blocked".into(), has_patterns: false }];
    Program::new(rules, limits, maps, vec!["grey".into()], Separator::parse("+"), vec!["mx.own.test".into()])
}

struct Session {
    facts: SessionFacts,
    from: ReversePath,
    to: Vec<Recipient>,
}

impl Session {
    fn new(from: &str, to: &str) -> Self {
        let to = ForwardPath::parse(to, true).unwrap();
        let peer = "203.0.113.7:40000".parse().unwrap();
        let source = Source::Smtp { peer, local: peer, listener: ListenerKind::Mx };
        let facts = SessionFacts { hello: Some("mail.a.test".into()), ..SessionFacts::new(source) };
        Self { facts, from: ReversePath::parse(from, true).unwrap(), to: vec![Recipient::new(to)] }
    }

    fn facts(&self) -> Facts<'_> {
        Facts { from: Some(&self.from), to: &self.to, recipient_count: 1, ..Facts::new(&self.facts) }
    }
}

/// Answers questions from a list of map entries, until the program has decided.
fn run(program: &Program, facts: &Facts<'_>, entries: &[(&str, &str)], answers: &mut Answers) -> Ruling {
    for _ in 0..100 {
        match program.evaluate(Stage::Rcpt, facts, answers, &mut ()) {
            Next::Done(outcome) => return outcome,
            Next::Ask(questions) => {
                for question in questions {
                    let answer = match &question {
                        Question::Map(_, key) => {
                            let found = entries.iter().find(|(known, _)| **known == **key);
                            Fact::Map(Ok(found.map(|(_, value)| (*value).into())))
                        }
                        Question::ClientName => Fact::ClientName(ClientName::Verified("mail.a.test".into())),
                        Question::Spend(..) => Fact::Over(true),
                        Question::Service(_) => Fact::Service(Ok(ServiceAction::Hold("asked".into()))),
                        Question::DnsList(zone, _) => {
                            match entries.iter().find(|(known, _)| **known == **zone) {
                                Some((_, code)) => Fact::DnsList(Ok(Listed {
                                    codes: vec![code.parse().unwrap()],
                                    text: "see {client}".into(),
                                })),
                                None => Fact::DnsList(Err("down".into())),
                            }
                        }
                    };
                    answers.add(program.scope(Stage::Rcpt, &question), question, answer);
                }
            }
        }
    }
    panic!("the program does not end");
}

fn act(program: &Program, session: &Session, entries: &[(&str, &str)]) -> (String, Option<Box<str>>) {
    let outcome = run(program, &session.facts(), entries, &mut Answers::default());
    let text = match outcome.verdict {
        Verdict::Reject(reply) | Verdict::Defer(reply) => reply.to_string(),
        act => format!("{act:?}"),
    };
    (text, outcome.by)
}

#[test]
fn the_first_rule_with_a_verdict_decides() {
    let rules = vec![
        rule(1, vec![client("198.51.100.0/24")], reject("1")),
        rule(2, vec![from(&["*.a.test"], &[])], Some(Action::Accept)),
        rule(3, vec![from(&["a.test"], &[]), Condition::Tls(true)], reject("3")),
        rule(4, vec![from(&["a.test"], &[])], reject("4 {from} {to}")),
        rule(5, Vec::new(), reject("5")),
    ];
    let program = program(rules, Vec::new());
    let of = |from: &str| act(&program, &Session::new(from, "joe@own.test"), &[]);
    assert_eq!(of("x@b.a.test"), ("Accept".into(), Some("rule 2, line 20".into())));
    let rejected = "550 5.7.1 4 x@a.test joe@own.test";
    assert_eq!(of("x@a.test"), (rejected.into(), Some("rule 4, line 40".into())));
    assert_eq!(of("x@c.test").0, "550 5.7.1 5");
}

#[test]
fn a_list_of_dns_decides_by_its_codes_and_lists_nobody_if_it_does_not_answer() {
    let lists = ["dead.test.org", "one.test.org=127.0.0.2-11", "two.test.org"];
    let lists = Condition::DnsList(Listee::Client, lists.map(|list| DnsList::parse(list).unwrap()).to_vec());
    let program = program(vec![rule(1, vec![lists], reject("listed by {text}"))], Vec::new());
    let of = |entries: &[(&str, &str)]| act(&program, &Session::new("x@a.test", "joe@own.test"), entries).0;
    assert_eq!(of(&[]), "Pass");
    assert_eq!(of(&[("one.test.org", "127.0.0.12")]), "Pass");
    let by = |list: &str| format!("550 5.7.1 listed by {list}: see {{client}}");
    assert_eq!(of(&[("one.test.org", "127.0.0.11")]), by("one.test.org"));
    assert_eq!(of(&[("one.test.org", "127.0.0.12"), ("two.test.org", "127.0.0.12")]), by("two.test.org"));
}

#[test]
fn a_list_of_domains_is_asked_about_the_domain_of_its_condition() {
    let lists = |of| {
        vec![rule(1, vec![Condition::DnsList(of, vec![DnsList::parse("l.test").unwrap()])], reject("no"))]
    };
    let mut session = Session::new("x@B\u{dc}CHER.example", "joe@own.test");
    session.facts.hello = Some("Mail.Example".into());
    for (of, asked) in [
        (Listee::From, Some("xn--bcher-kva.example")),
        (Listee::Hello, Some("mail.example")),
        (Listee::Client, None),
    ] {
        let program = program(lists(of), Vec::new());
        let next = program.evaluate(Stage::Rcpt, &session.facts(), &Answers::default(), &mut ());
        let Next::Ask(questions) = next else { panic!("{of:?}: {next:?}") };
        assert_eq!(questions, [Question::DnsList("l.test".into(), asked.map(Into::into))], "{of:?}");
    }
    // The name is asked for first; a client without one is in no list of names.
    let program = program(lists(Listee::ClientName), Vec::new());
    let mut answers = Answers::default();
    let next = program.evaluate(Stage::Rcpt, &session.facts(), &answers, &mut ());
    assert!(matches!(next, Next::Ask(questions) if questions == [Question::ClientName]));
    answers.add(Scope::Session, Question::ClientName, Fact::ClientName(ClientName::None));
    assert!(matches!(program.evaluate(Stage::Rcpt, &session.facts(), &answers, &mut ()), Next::Done(_)));
}

#[test]
fn a_pattern_of_an_address_is_not_passed_by_with_a_detail() {
    let patterns =
        ["jane@a.test", "news+x@a.test", "abuse@*"].map(|text| AddressPattern::parse(text).unwrap());
    let to = Condition::To(Addresses { patterns: patterns.to_vec().into(), maps: Vec::new() });
    for (condition, is_to) in [(from(&["jane@a.test", "news+x@a.test", "abuse@*"], &[]), false), (to, true)] {
        let program = program(vec![rule(1, vec![condition], reject("no"))], Vec::new());
        let of = |address: &str| {
            let (from, to) = if is_to { ("x@far.test", address) } else { (address, "x@own.test") };
            act(&program, &Session::new(from, to), &[]).0
        };
        for address in
            ["Jane@a.test", "jane+lists@a.test", "news+x@a.test", "abuse+y@b.test", "\"jane+lists\"@a.test"]
        {
            assert_eq!(of(address), "550 5.7.1 no", "{address}");
        }
        for address in ["news@a.test", "news+y@a.test", "\"jane lists\"@a.test", "janet@a.test"] {
            assert_eq!(of(address), "Pass", "{address}");
        }
    }
}

#[test]
fn a_name_in_ehlo_matches_in_any_case_and_in_both_forms() {
    let patterns = ["*.a.test", "b\u{fc}cher.test"].map(|text| DomainPattern::parse(text).unwrap()).to_vec();
    let hellos = Condition::Hello(crate::Hellos { patterns, maps: vec![MapId(0)] });
    let program = program(vec![rule(1, vec![hellos], reject("no"))], Vec::new());
    let mut session = Session::new("x@far.test", "joe@own.test");
    let mut of = |hello: &'static str| {
        session.facts.hello = Some(hello.into());
        let facts = session.facts();
        run(&program, &facts, &[("odd name_", "x")], &mut Answers::default()).verdict != Verdict::Pass
    };
    for hello in ["Mail.A.test", "B\u{dc}CHER.test", "xn--BCHER-kva.test", "ODD name_"] {
        assert!(of(hello), "{hello}");
    }
    assert!(!of("a.test") && !of("mail.a.test.") && !of("[192.0.2.1]"));
}

#[test]
fn a_map_is_asked_for_the_address_its_domain_and_the_domains_above() {
    let program = program(vec![rule(1, vec![from(&[], &[0])], reject("no: {text}"))], Vec::new());
    let session = Session::new("Jane+x@Mail.A.test", "joe@own.test");
    for key in ["jane+x@mail.a.test", "jane@mail.a.test", "mail.a.test", ".a.test", ".test", "jane@"] {
        assert_eq!(act(&program, &session, &[(key, "why")]).0, "550 5.7.1 no: why", "{key}");
    }
    for key in ["a.test", "jane", "@mail.a.test", "x@mail.a.test"] {
        assert_eq!(act(&program, &session, &[(key, "why")]).0, "Pass", "{key}");
    }
    let null = Session::new("", "joe@own.test");
    assert_eq!(act(&program, &null, &[("<>", "null")]).0, "550 5.7.1 no: null");
    // The more special key decides, in whatever order the answers are.
    assert_eq!(
        act(&program, &session, &[("mail.a.test", "domain"), ("jane@mail.a.test", "user")]).0,
        "550 5.7.1 no: user"
    );
}

#[test]
fn a_failed_look_up_defers_only_where_it_decides() {
    let mut guarded = rule(2, vec![client("203.0.113.0/24"), from(&[], &[0])], reject("2"));
    guarded.unless = vec![from(&["friend.test"], &[])];
    let rules = vec![rule(1, vec![client("198.51.100.0/24"), from(&[], &[0])], reject("1")), guarded];
    let program = program(rules, Vec::new());
    let failed = |from: &str| {
        let (session, mut answers) = (Session::new(from, "joe@own.test"), Answers::default());
        loop {
            match program.evaluate(Stage::Rcpt, &session.facts(), &answers, &mut ()) {
                Next::Done(outcome) => return outcome,
                Next::Ask(questions) => {
                    for question in questions {
                        answers.add(Scope::Transaction, question, Fact::Map(Err("map is down".into())));
                    }
                }
            }
        }
    };
    let outcome = failed("x@a.test");
    assert!(matches!(&outcome.verdict, Verdict::Defer(reply) if reply.to_string().starts_with("451 4.3.0")));
    assert!(outcome.by.unwrap().contains("map is down"));
    assert!(matches!(failed("x@friend.test").verdict, Verdict::Defer(_)), "the map is asked before `unless`");
}

#[test]
fn trust_and_tags_act_on_the_rules_below() {
    let mut trust = rule(1, vec![client("203.0.113.0/24")], None);
    trust.modifiers.is_trust = true;
    let mut tag = rule(2, Vec::new(), None);
    tag.audience = Audience::All;
    tag.modifiers.tags = vec!["seen".into()];
    let mut tagged = rule(4, vec![Condition::Tagged(vec!["seen".into()])], reject("4"));
    tagged.audience = Audience::Users;
    let program = program(vec![trust, tag, rule(3, Vec::new(), reject("3")), tagged], Vec::new());
    let session = Session::new("x@a.test", "joe@own.test");
    assert_eq!(act(&program, &session, &[]).0, "550 5.7.1 4");
}

#[test]
fn scores_of_rules_add_up_until_one_asks_for_them() {
    let list = |number, zone: &str, score| {
        let lists = vec![DnsList::parse(zone).unwrap()];
        let mut rule = rule(number, vec![Condition::DnsList(Listee::Client, lists)], None);
        rule.modifiers.score = score;
        rule
    };
    let rules = vec![
        list(1, "one.test.org", 3),
        rule(2, vec![Condition::Score(6)], reject("early")),
        list(3, "two.test.org", 3),
        list(4, "good.test.org", -2),
        rule(5, vec![Condition::Score(4)], reject("late")),
    ];
    let program = program(rules, Vec::new());
    let session = Session::new("x@a.test", "joe@own.test");
    let listed = |zones: &[&str]| {
        let entries: Vec<_> = zones.iter().map(|zone| (*zone, "127.0.0.2")).collect();
        act(&program, &session, &entries).0
    };
    assert_eq!(listed(&["one.test.org"]), "Pass");
    assert_eq!(listed(&["one.test.org", "two.test.org"]), "550 5.7.1 late");
    assert_eq!(listed(&["one.test.org", "two.test.org", "good.test.org"]), "550 5.7.1 late");
    assert_eq!(listed(&["one.test.org", "good.test.org"]), "Pass");
    // Rules of earlier stages have given 3 already.
    let facts = Facts { score: 3, ..session.facts() };
    let one = [("one.test.org", "127.0.0.2")];
    let by = run(&program, &facts, &one, &mut Answers::default()).by;
    assert_eq!(by.as_deref(), Some("rule 2, line 20"));
}

#[test]
fn nobody_adds_a_recipient_to_get_past_a_rule_for_the_others() {
    let bob = || {
        let patterns = vec![AddressPattern::parse("bob@*").unwrap()];
        Condition::To(Addresses { patterns: patterns.into(), maps: Vec::new() })
    };
    let tagged = || Condition::Tagged(vec!["bobs".into()]);
    let at_content = |number, conditions, unless, action| Rule {
        stage: Stage::Content,
        unless,
        ..rule(number, conditions, action)
    };
    let mut tag = at_content(1, vec![bob()], Vec::new(), None);
    tag.modifiers.tags = vec!["bobs".into()];
    let mut trust = at_content(1, vec![bob()], Vec::new(), None);
    trust.modifiers.is_trust = true;
    let scored = |score, conditions| {
        let mut rule = at_content(1, conditions, Vec::new(), None);
        rule.modifiers.score = score;
        rule
    };
    let (score, of_all) = (|score| scored(score, vec![bob()]), |score| scored(score, Vec::new()));
    let least = || Condition::Score(3);
    let accept = |conditions, unless| at_content(2, conditions, unless, Some(Action::Accept));
    let refuse = |conditions, unless| at_content(3, conditions, unless, reject("550 5.7.1 no"));
    // Rules, and whether they refuse mail for bob, for joe and bob, and for joe.
    let cases = [
        ("unless to", vec![refuse(vec![], vec![bob()])], [false, true, true]),
        ("unless tagged", vec![tag.clone(), refuse(vec![], vec![tagged()])], [false, true, true]),
        ("to", vec![refuse(vec![bob()], vec![])], [true, true, false]),
        ("tagged", vec![tag.clone(), refuse(vec![tagged()], vec![])], [true, true, false]),
        ("accept", vec![accept(vec![bob()], vec![]), refuse(vec![], vec![])], [false, true, true]),
        ("accept unless", vec![accept(vec![], vec![bob()]), refuse(vec![], vec![])], [true, true, false]),
        (
            "accept tagged",
            vec![tag, accept(vec![tagged()], vec![]), refuse(vec![], vec![])],
            [false, true, true],
        ),
        ("trust", vec![trust, refuse(vec![], vec![])], [false, true, true]),
        ("min_score", vec![score(3), refuse(vec![least()], vec![])], [true, true, false]),
        (
            "accept min_score",
            vec![score(3), accept(vec![least()], vec![]), refuse(vec![], vec![])],
            [false, true, true],
        ),
        ("unless min_score", vec![score(3), refuse(vec![], vec![least()])], [false, true, true]),
        ("a lower score", vec![of_all(3), score(-2), refuse(vec![least()], vec![])], [false, true, true]),
        (
            "a lower score for accept",
            vec![of_all(3), score(-2), accept(vec![least()], vec![]), refuse(vec![], vec![])],
            [true, true, false],
        ),
    ];
    let mail_for = |to: &[&str]| Session {
        to: to.iter().map(|to| Recipient::new(ForwardPath::parse(to, true).unwrap())).collect(),
        ..Session::new("x@a.test", "joe@own.test")
    };
    let all = [&["bob@own.test"][..], &["joe@own.test", "bob@own.test"], &["joe@own.test"]].map(mail_for);
    for (what, rules, expected) in cases {
        let program = program(rules, Vec::new());
        let refused = all.each_ref().map(|session| {
            let done = program.evaluate(Stage::Content, &session.facts(), &Answers::default(), &mut ());
            matches!(done, Next::Done(Ruling { verdict: Verdict::Reject(_), .. }))
        });
        assert_eq!(refused, expected, "{what}");
    }
}

#[test]
fn names_of_clients_are_asked_once_and_only_if_needed() {
    let names = |patterns: &[&str], has_none| {
        let patterns = patterns.iter().map(|text| DomainPattern::parse(text).unwrap()).collect();
        Condition::ClientName(ClientNames { patterns, has_none, maps: Vec::new() })
    };
    let rules = vec![
        rule(1, vec![names(&["*.b.test"], true), client("198.51.100.0/24")], reject("1")),
        rule(2, vec![from(&["b.test"], &[]), names(&["*.a.test"], false)], reject("2")),
    ];
    let program = program(rules, Vec::new());
    let session = Session::new("x@a.test", "joe@own.test");
    let mut answers = Answers::default();
    run(&program, &session.facts(), &[], &mut answers);
    assert_eq!(answers.find(&Question::ClientName), None);
    assert_eq!(act(&program, &Session::new("x@b.test", "joe@own.test"), &[]).0, "550 5.7.1 2");
}

#[test]
fn limits_and_services_decide_after_the_conditions() {
    let limit = |is_for_rules| Limit {
        name: "limit 1".into(),
        line: Line(5),
        per: Per::Client,
        measure: Measure::Recipients,
        rate: Rate::parse("5/h").unwrap(),
        reply: ReplyText::parse("too much from {client}", ReplyClass::Transient).unwrap(),
        except: Vec::new(),
        is_for_rules,
    };
    let session = Session::new("x@a.test", "joe@own.test");
    let alone = program(Vec::new(), vec![limit(false)]);
    let (reply, by) = act(&alone, &session, &[]);
    assert_eq!(
        (reply.as_str(), by.as_deref()),
        ("450 4.7.1 too much from 203.0.113.7", Some("limit 1, line 5"))
    );
    for verdict in [Action::Accept, Action::Hold("x".into()), Action::Discard("x".into())] {
        let (reply, by) =
            act(&program(vec![rule(1, vec![], Some(verdict))], vec![limit(false)]), &session, &[]);
        assert_eq!(
            (&reply[..3], by.as_deref()),
            ("450", Some("limit 1, line 5")),
            "no verdict lifts a limit"
        );
    }
    let refused = program(vec![rule(1, vec![], reject("no"))], vec![limit(false)]);
    let next = refused.evaluate(Stage::Rcpt, &session.facts(), &Answers::default(), &mut ());
    assert!(matches!(next, Next::Done(_)), "what is refused does not count: {next:?}");
    let over = rule(1, vec![Condition::Over(vec![LimitId(0)])], reject("over"));
    assert_eq!(act(&program(vec![over], vec![limit(true)]), &session, &[]).0, "550 5.7.1 over");
    let ask = rule(1, vec![from(&["a.test"], &[])], Some(Action::Ask(crate::ServiceId(0))));
    assert_eq!(act(&program(vec![ask], Vec::new()), &session, &[]).0, "Hold(\"asked\")");
}

proptest! {
    /// No question is asked twice, so that every evaluation ends; and the same answers give the same result.
    #[test]
    fn evaluations_end_and_are_the_same_again(
        kinds in proptest::collection::vec((0u8..7, any::<bool>(), 0u8..4), 0..20),
        entries in proptest::collection::vec(prop::sample::select(vec!["x@a.test", "a.test", ".test", "x@"]), 0..3),
    ) {
        let condition = |kind: u8| match kind {
            0 => client("203.0.113.0/24"),
            1 => from(&["a.test"], &[]),
            2 => from(&[], &[0]),
            3 => Condition::ClientName(ClientNames { patterns: Vec::new(), has_none: true, maps: vec![MapId(0)] }),
            4 => Condition::Tagged(vec!["t".into()]),
            5 => Condition::BadHello,
            _ => Condition::NoReverseName,
        };
        let rules = kinds.iter().enumerate().map(|(number, (kind, is_unless, action))| {
            let action = match action { 0 => None, 1 => Some(Action::Accept), 2 => reject("no"), _ => Some(Action::Ask(crate::ServiceId(0))) };
            let mut rule = rule(number, vec![condition(*kind)], action);
            if *is_unless {
                std::mem::swap(&mut rule.conditions, &mut rule.unless);
            }
            rule.modifiers.tags = vec!["t".into()];
            rule
        });
        let program = program(rules.collect(), Vec::new());
        let session = Session::new("x@a.test", "joe@own.test");
        let entries: Vec<(&str, &str)> = entries.iter().map(|key| (*key, "v")).collect();
        let mut answers = Answers::default();
        let first = run(&program, &session.facts(), &entries, &mut answers);
        prop_assert_eq!(program.evaluate(Stage::Rcpt, &session.facts(), &answers, &mut ()), Next::Done(first));
    }
}
