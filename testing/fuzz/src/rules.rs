//! Rules: what is read shows itself as it is read, and every program ends.

use mail::{ClientCertificate, ForwardPath, ListenerKind, Recipient, ReversePath};
use policy::{
    AddressPattern, Answers, ClientName, Fact, Facts, HeaderPattern, Listed, Next, Program, Question,
    ReplyClass, ReplyText, ServiceAction, SessionFacts, Source, Stage, Verdict, parse_action,
};
use std::{net::SocketAddr, sync::Arc};

/// Patterns, replies and rates of a rule, one on each line, and then the actions of policy servers.
pub fn rule_values(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for line in text.lines() {
        if let Ok(pattern) = AddressPattern::parse(line) {
            assert_eq!(AddressPattern::parse(&pattern.to_string()).as_ref(), Ok(&pattern), "{line:?}");
            assert!(pattern.covers(&pattern));
        }
        if let Ok(pattern) = HeaderPattern::parse(line) {
            assert_eq!(HeaderPattern::parse(&pattern.to_string()).as_ref(), Ok(&pattern), "{line:?}");
            pattern.matches(bytes);
        }
        if let Some(rate) = limits::Rate::parse(line) {
            assert_eq!(limits::Rate::parse(&rate.to_string()), Some(rate), "{line:?}");
        }
        for class in [ReplyClass::Permanent, ReplyClass::Transient] {
            let Ok(reply) = ReplyText::parse(line, class) else { continue };
            assert_eq!(ReplyText::parse(&reply.to_string(), class).as_ref(), Ok(&reply), "{line:?}");
            let session =
                SessionFacts { hello: Some(text.into()), ..SessionFacts::new(Source::Local { uid: 0 }) };
            let filled = reply.fill(&Facts::new(&session), text);
            assert_eq!(filled.is_transient(), class == ReplyClass::Transient);
            super::printable(&filled.to_string());
        }
        match parse_action(line) {
            Ok(ServiceAction::Reject(reply)) => assert!((500..600).contains(&reply.code)),
            Ok(ServiceAction::Defer(reply)) => assert!(reply.is_transient()),
            _ => {}
        }
    }
}

/// A configuration whose program is evaluated, with answers and facts of the bytes behind its text. The text ends with a NUL.
pub fn rule_program(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |b| *b == 0);
    let (text, answers) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Ok(text) = std::str::from_utf8(text) else { return };
    let with_maps =
        format!("{text}\n[map.m]\nsocketmap = \"unix:/m\"\n[policy_service.p]\naddress = \"unix:/p\"\n");
    for text in [text, &with_maps] {
        if let Ok(loaded) = config::load_text(text) {
            evaluate(&loaded.settings.rules.program, answers);
        }
    }
}

fn evaluate(program: &Program, bytes: &[u8]) {
    let mut bytes = bytes.iter().copied().chain(std::iter::repeat(7));
    let mut byte = move || bytes.next().unwrap_or_default();
    let sender = ReversePath::parse("a+b@c.test", false).expect("an address");
    let to = [Recipient::new(ForwardPath::parse("joe@x.example.com", false).expect("an address"))];
    let certificate = Arc::new(ClientCertificate {
        fingerprint: "ab".repeat(32).into(),
        is_trusted: byte().is_multiple_of(2),
        addresses: vec!["a@c.test".into()],
        hosts: vec!["mx.c.test".into()],
        ..ClientCertificate::default()
    });
    let mut answers = Answers::default();
    for stage in Stage::OF_RULES {
        let peer = SocketAddr::from(([192, 0, 2, byte()], 40_000));
        let session = SessionFacts {
            hello: Some("mail.c.test".into()),
            tls: byte().is_multiple_of(2).then(|| "TLSv1.3:x".into()),
            certificate: byte().is_multiple_of(2).then(|| certificate.clone()),
            login: byte().is_multiple_of(2).then(|| "Jane".into()),
            ..SessionFacts::new(Source::Smtp { peer, local: peer, listener: ListenerKind::Mx })
        };
        let facts = Facts {
            from: (stage >= Stage::Mail).then_some(&sender),
            to: if stage >= Stage::Rcpt { &to } else { &[] },
            recipient_count: 1,
            size_bytes: (stage == Stage::Content).then_some(5),
            header: b"Subject: x\r\n\r\n",
            is_trusted: byte() % 2 == 0,
            ..Facts::new(&session)
        };
        let mut rounds = 0;
        let outcome = loop {
            match program.evaluate(stage, &facts, &answers, &mut ()) {
                Next::Done(outcome) => break outcome,
                Next::Ask(questions) => {
                    assert!(!questions.is_empty() && rounds < 100_000, "a program does not end");
                    rounds += 1;
                    for question in questions {
                        assert!(answers.find(&question).is_none(), "{question:?} is asked again");
                        let answer = answer(&question, byte());
                        answers.add(program.scope(stage, &question), question, answer);
                    }
                }
            }
        };
        if let Verdict::Reject(reply) | Verdict::Defer(reply) = outcome.verdict {
            assert!(!reply.is_positive() && outcome.by.is_some());
        }
    }
}

fn answer(question: &Question, byte: u8) -> Fact {
    match question {
        Question::Map(..) => Fact::Map(match byte % 4 {
            0 => Ok(Some("value".into())),
            1 => Err("down".into()),
            _ => Ok(None),
        }),
        Question::ClientName => Fact::ClientName(match byte % 3 {
            0 => ClientName::Verified("mail.c.test".into()),
            1 => ClientName::None,
            _ => ClientName::Unknown("down".into()),
        }),
        Question::DnsList(..) => Fact::DnsList(match byte % 3 {
            0 => Ok(Listed { codes: vec![[127, 0, 0, byte].into()], text: "text {client}".into() }),
            1 => Ok(Listed::default()),
            _ => Err("down".into()),
        }),
        Question::Spend(..) => Fact::Over(byte.is_multiple_of(2)),
        Question::Service(_) => Fact::Service(match byte % 4 {
            0 => Ok(ServiceAction::Pass),
            1 => Ok(ServiceAction::Accept),
            2 => Ok(ServiceAction::Hold("x".into())),
            _ => Err("down".into()),
        }),
    }
}
