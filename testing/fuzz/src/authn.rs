//! SPF, DKIM and DMARC with a DNS that says anything, and Authentication-Results fields of anybody.

use authn::{
    Answer, Answers, AuthenticationResults, DkimOutcome, DkimResult, Dmarc, DmarcPolicy, DmarcResult, Name,
    Question, Spf, SpfOutcome, SpfResult, Step, Verifier, from_domain, has_server_id,
};

/// The time of all checks, in seconds since 1970.
const NOW: u64 = 1_700_000_000;

/// A DNS whose records are lines: those that begin with a letter in capitals are of the names that begin with it.
struct Dns<'a>(Vec<&'a [u8]>);

impl Dns<'_> {
    fn answer(&self, question: &Question) -> Answer {
        let named = |name: &Name| {
            let first = name.as_bytes()[0].to_ascii_uppercase();
            let lines = self
                .0
                .iter()
                .filter(move |line| !line.first().is_some_and(u8::is_ascii_uppercase) || line[0] == first);
            lines.map(|line| if line.first() == Some(&first) { &line[1..] } else { line }).collect::<Vec<_>>()
        };
        match question {
            Question::Txt(name) => {
                let lines = named(name);
                match lines.first() {
                    None => Answer::NoName,
                    Some(line) if line.first() == Some(&b'!') => Answer::Failed,
                    Some(_) => Answer::Txt(lines.into_iter().map(Into::into).collect()),
                }
            }
            Question::A(name) if named(name).len() % 3 == 2 => {
                Answer::A(vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into()])
            }
            Question::A(_) | Question::Aaaa(_) => Answer::NoRecords,
            Question::Mx(name) => Answer::Mx(named(name).into_iter().map(Name::new).collect()),
            Question::Ptr(_) => Answer::Ptr(self.0.iter().filter_map(Name::new).collect()),
        }
    }

    /// Evaluates a machine to its end. Nothing is asked twice, and no more than `limit` questions.
    fn evaluate<T>(&self, limit: usize, machine: impl Fn(&Answers) -> Step<T>) -> T {
        let (mut answers, mut count) = (Answers::default(), 0);
        loop {
            match machine(&answers) {
                Step::Done(outcome) => return outcome,
                Step::Ask(questions) => {
                    assert!(!questions.is_empty());
                    for question in questions {
                        assert!(answers.find(&question).is_none(), "{question:?} is asked twice");
                        count += 1;
                        let answer = self.answer(&question);
                        answers.add(question, answer);
                    }
                    assert!(count <= limit, "{count} questions");
                }
            }
        }
    }
}

fn lines(bytes: &[u8]) -> Dns<'_> {
    Dns(bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect())
}

/// Records of SPF: the check ends after few look-ups, and an explanation is printable. The first line is HELO and the sender.
pub fn spf_records(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let names = String::from_utf8_lossy(&bytes[..end]);
    let (hello, sender) = names.split_once(' ').unwrap_or((&names, "ann@a.test"));
    for client in [[192, 0, 2, 1].into(), "2001:db8::1".parse().expect("an address")] {
        for sender in [None, Some(sender)] {
            let spf = Spf { client, hello, sender, receiver: "mx.test", now: NOW };
            // 11 terms with a look-up and 10 hosts each, the names of the client, and the explanation.
            let outcome = lines(&bytes[end..]).evaluate(11 * 11 + 11 + 2, |answers| spf.evaluate(answers));
            assert!(
                outcome
                    .explanation
                    .as_ref()
                    .is_none_or(|text| text.bytes().all(|byte| matches!(byte, b' '..=b'~')))
            );
            assert!(outcome.explanation.is_none() || outcome.result == SpfResult::Fail);
            field(&AuthenticationResults::new("mx.test").spf(&spf, &outcome).into_value());
        }
    }
}

/// Signatures and keys: a header, an empty line, and keys. Nothing passes that nobody signed.
pub fn dkim_signatures(bytes: &[u8]) {
    let end = bytes.windows(2).position(|pair| pair == b"\n\n").unwrap_or(bytes.len());
    let header = String::from_utf8_lossy(&bytes[..end]).replace('\n', "\r\n") + "\r\n";
    for header in [header.clone(), format!("DKIM-Signature: {header}")] {
        let mut verifier = Verifier::new(header.as_bytes());
        bytes.chunks(7).for_each(|piece| verifier.push(piece));
        let asked = verifier.questions();
        let signatures = verifier.finish();
        let outcomes =
            lines(&bytes[end..]).evaluate(asked.len(), |answers| signatures.evaluate(answers, NOW));
        assert!(outcomes.len() <= 8 && outcomes.iter().all(|outcome| outcome.result != DkimResult::Pass));
        field(&AuthenticationResults::new("mx.test").dkim(&outcomes).into_value());
        if let Ok(from) = from_domain(header.as_bytes()) {
            assert!(from.as_bytes().is_ascii());
        }
    }
}

/// Records of DMARC: without an authenticated domain nothing passes, and an aligned one shares labels with that of From.
pub fn dmarc_records(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let mut names = bytes[..end].split(|byte| *byte == b' ').filter_map(Name::new);
    let (Some(from), other) = (names.next(), names.next()) else { return };
    let spf = SpfOutcome {
        result: SpfResult::Pass,
        domain: other.clone(),
        mechanism: None,
        error: None,
        explanation: None,
    };
    let (dkim, dns): (&[DkimOutcome], _) = (&[], lines(&bytes[end..]));
    let alone = Dmarc { from: &from, spf: None, dkim };
    assert_ne!(dns.evaluate(17, |answers| alone.evaluate(answers)).result, DmarcResult::Pass);
    let dmarc = Dmarc { from: &from, spf: Some(&spf), dkim };
    let outcome = dns.evaluate(17, |answers| dmarc.evaluate(answers));
    if outcome.result == DmarcResult::Pass {
        let top = |name: &Name| name.labels().last().map(<[u8]>::to_vec);
        assert_eq!(other.as_ref().and_then(top), top(&from));
    }
    assert!(outcome.requested() == DmarcPolicy::None || outcome.result == DmarcResult::Fail);
    field(&AuthenticationResults::new("mx.test").dmarc(&outcome, &from).into_value());
}

/// Fields of anybody: with our name in front, they are ours.
pub fn authentication_results(bytes: &[u8]) {
    has_server_id(bytes, "mx.test");
    assert!(has_server_id(&[b" (x) MX.test ;", bytes].concat(), "mx.test"));
}

/// The value of a field that we add: ASCII, with lines that a header can have, and known as ours.
fn field(value: &str) {
    assert!(value.is_ascii() && has_server_id(value.as_bytes(), "mx.test"), "{value:?}");
    let mut lines = value.split("\r\n");
    assert!(lines.next().is_some_and(|line| !line.is_empty()));
    assert!(lines.all(|line| line.starts_with('\t') && line.len() > 1 && line.len() < 998), "{value:?}");
    assert!(!value.replace("\r\n\t", "").chars().any(char::is_control), "{value:?}");
}
