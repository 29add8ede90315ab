use super::*;
use proptest::prelude::*;
use serde_json::Value;
use std::collections::HashMap;

/// A DNS that answers from a zone of the test suite.
struct Zone(HashMap<Vec<u8>, Vec<(String, String)>>);

impl Zone {
    fn new(zone: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let records = |value: &Value| -> Vec<(String, String)> {
            value.as_array().unwrap().iter().map(|record| (text(&record[0]), text(&record[1]))).collect()
        };
        Self(
            zone.as_object()
                .unwrap()
                .iter()
                .map(|(name, found)| (name.to_ascii_lowercase().into(), records(found)))
                .collect(),
        )
    }

    fn of(records: &[(&str, &str, &str)]) -> Self {
        let mut zone: HashMap<Vec<u8>, Vec<(String, String)>> = HashMap::new();
        for (name, kind, value) in records {
            zone.entry(name.as_bytes().to_vec()).or_default().push(((*kind).into(), (*value).into()));
        }
        Self(zone)
    }

    fn answer(&self, question: &Question) -> Answer {
        let (name, kind) = match question {
            Question::Txt(name) => (name.as_bytes().to_vec(), "TXT"),
            Question::A(name) => (name.as_bytes().to_vec(), "A"),
            Question::Aaaa(name) => (name.as_bytes().to_vec(), "AAAA"),
            Question::Mx(name) => (name.as_bytes().to_vec(), "MX"),
            Question::Ptr(address @ IpAddr::V4(v4)) => {
                assert!(address.is_ipv4());
                let [a, b, c, d] = v4.octets();
                (format!("{d}.{c}.{b}.{a}.in-addr.arpa").into_bytes(), "PTR")
            }
            Question::Ptr(address) => {
                let reversed: String = dotted(*address).to_ascii_lowercase().chars().rev().collect();
                (format!("{reversed}.ip6.arpa").into_bytes(), "PTR")
            }
        };
        let Some(records) = self.0.get(&name) else { return Answer::NoName };
        if let [(alias, target)] = &records[..]
            && alias == "CNAME"
        {
            let target = Name::new(target).unwrap();
            if target.as_bytes() == name {
                return Answer::Failed;
            }
            return self.answer(&match question {
                Question::A(_) => Question::A(target),
                Question::Aaaa(_) => Question::Aaaa(target),
                _ => Question::Txt(target),
            });
        }
        let found: Vec<&str> =
            records.iter().filter(|(found, _)| found == kind).map(|(_, value)| value.as_str()).collect();
        if found.is_empty() {
            let is_timeout = records.iter().any(|(kind, _)| kind == "TIMEOUT");
            return if is_timeout { Answer::Failed } else { Answer::NoRecords };
        }
        let mut found = found.into_iter();
        match kind {
            // The suite writes each octet as one character.
            "TXT" => Answer::Txt(
                found.map(|text| text.chars().map(|octet| u8::try_from(octet).unwrap()).collect()).collect(),
            ),
            "A" => Answer::A(found.map(|text| text.parse().unwrap()).collect()),
            "AAAA" => Answer::Aaaa(found.map(|text| text.parse().unwrap()).collect()),
            "MX" => Answer::Mx(found.by_ref().map(Name::new).collect()),
            _ => Answer::Ptr(found.filter_map(Name::new).collect()),
        }
    }

    /// Also counts the questions that were asked.
    fn check(&self, spf: &Spf<'_>) -> (SpfOutcome, usize) {
        let mut answers = Answers::default();
        let mut count = 0;
        loop {
            match spf.evaluate(&answers) {
                Step::Done(outcome) => return (outcome, count),
                Step::Ask(questions) => {
                    assert!(!questions.is_empty() && questions.len() <= HOSTS_MAX);
                    for question in questions {
                        assert!(answers.find(&question).is_none(), "{question:?} is asked twice");
                        let answer = self.answer(&question);
                        answers.add(question, answer);
                        count += 1;
                    }
                }
            }
        }
    }
}

fn spf<'a>(client: &str, hello: &'a str, sender: Option<&'a str>) -> Spf<'a> {
    Spf { client: client.parse().unwrap(), hello, sender, receiver: "mx.test", now: 1_700_000_000 }
}

#[test]
fn the_test_suite_of_rfc_7208_passes() {
    let suite: Value = serde_json::from_str(include_str!("../../testdata/rfc7208-tests.json")).unwrap();
    let (mut count, mut failed) = (0, Vec::new());
    for scenario in suite.as_array().unwrap() {
        let zone = Zone::new(&scenario["zone"]);
        for test in scenario["tests"].as_array().unwrap() {
            count += 1;
            let text = |key: &str| test[key].as_str().unwrap();
            let sender = Some(text("mailfrom")).filter(|sender| !sender.is_empty());
            let (outcome, _) = zone.check(&spf(text("host"), text("helo"), sender));
            let expected: Vec<&str> =
                test["result"].as_array().unwrap().iter().flat_map(Value::as_str).collect();
            // `DEFAULT` stands for no explanation of the domain's.
            let explanation = test["explanation"].as_str().filter(|text| *text != "DEFAULT");
            let has_explanation =
                test["explanation"].is_null() || outcome.explanation.as_deref() == explanation;
            if !expected.contains(&outcome.result.as_str()) || !has_explanation {
                failed.push(format!("{}: {expected:?} {explanation:?}, not {outcome:?}", text("name")));
            }
        }
    }
    assert_eq!(count, 203);
    assert!(failed.is_empty(), "{} of {count} failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn the_outcome_names_domain_mechanism_and_error() {
    let zone = Zone::of(&[
        ("a.test", "TXT", "v=spf1 ip4:192.0.2.1 include:b.test -ALL exp=why.%{d}"),
        ("why.a.test", "TXT", "%{i} is none of %{d}, says %{r} at %{t}"),
        ("b.test", "TXT", "v=spf1 a:c.test -all"),
        ("c.test", "TIMEOUT", ""),
        ("d.test", "TXT", "v=spf1 ip4:192.0.2.1"),
        ("e.test", "TXT", "v=spf1 ip4:1.2.3.4.5 -all"),
    ]);
    let check = |client, hello, sender| zone.check(&spf(client, hello, sender)).0;
    let pass = check("::ffff:192.0.2.1", "h.test", Some("x@A.test"));
    assert_eq!((pass.result, pass.mechanism.as_deref()), (SpfResult::Pass, Some("ip4:192.0.2.1")));
    assert_eq!(pass.domain, Name::new("a.test"));
    let temporary = check("192.0.2.2", "h.test", Some("x@a.test"));
    assert_eq!(temporary.result, SpfResult::TempError);
    assert_eq!(temporary.error.as_deref(), Some("addresses of c.test: no answer"));
    // A null reverse-path, and the identity HELO.
    let neutral = check("192.0.2.2", "D.test", None);
    assert_eq!((neutral.result, neutral.mechanism.as_deref()), (SpfResult::Neutral, Some("default")));
    assert_eq!(neutral.domain, Name::new("d.test"));
    let broken = check("192.0.2.2", "e.test", None);
    assert_eq!(broken.error.as_deref(), Some("the term \"ip4:1.2.3.4.5\" is invalid"));
    assert_eq!(check("192.0.2.2", "[192.0.2.2]", None).result, SpfResult::None);
}

#[test]
fn a_fail_is_explained_in_the_words_of_the_domain() {
    let zone = Zone::of(&[
        ("a.test", "TXT", "v=spf1 -all exp=why.%{d}"),
        ("why.a.test", "TXT", "%{i} is none of %{d}, says %{r} at %{t} (%{p})"),
    ]);
    let (outcome, _) = zone.check(&spf("192.0.2.2", "h.test", Some("x@a.test")));
    let expected = "192.0.2.2 is none of a.test, says mx.test at 1700000000 (unknown)";
    assert_eq!(outcome.explanation.as_deref(), Some(expected));
    assert_eq!((outcome.result, outcome.mechanism.as_deref()), (SpfResult::Fail, Some("-all")));
}

#[test]
fn exchangers_without_ipv6_addresses_are_no_void_look_ups_of_a_client_with_ipv6() {
    let mut records = vec![("a.test", "TXT", "v=spf1 mx ip6:2001:db8::/32 -all")];
    for host in ["m1.test", "m2.test", "m3.test", "m4.test"] {
        records.extend([("a.test", "MX", host), (host, "A", "192.0.2.1")]);
    }
    let (outcome, count) = Zone::of(&records).check(&spf("2001:db8::1", "h.test", Some("x@a.test")));
    assert_eq!((outcome.result, count), (SpfResult::Pass, 6));
}

#[test]
fn a_failed_look_up_of_one_exchanger_matters_only_if_no_other_matches() {
    let records = [
        ("a.test", "TXT", "v=spf1 mx -all"),
        ("a.test", "MX", "m1.test"),
        ("a.test", "MX", "m2.test"),
        ("m1.test", "TIMEOUT", ""),
        ("m2.test", "A", "192.0.2.1"),
    ];
    let result = |client| Zone::of(&records).check(&spf(client, "h.test", Some("x@a.test"))).0.result;
    assert_eq!(result("192.0.2.1"), SpfResult::Pass);
    assert_eq!(result("192.0.2.2"), SpfResult::TempError);
}

#[test]
fn ten_times_ten_look_ups_are_the_most_that_a_domain_can_cause() {
    let hosts: Vec<String> = (0..100).map(|host| format!("h{host}.test")).collect();
    let names: Vec<String> = (0..11).map(|name| format!("n{name}.test")).collect();
    let terms: Vec<String> = names.iter().map(|name| format!("mx:{name}")).collect();
    let record = format!("v=spf1 {} -all", terms.join(" "));
    let mut records = vec![("a.test", "TXT", record.as_str())];
    for (name, hosts) in names.iter().zip(hosts.chunks(10)) {
        for host in hosts {
            records.extend([(name.as_str(), "MX", host.as_str()), (host, "A", "192.0.2.9")]);
        }
    }
    let (outcome, count) = Zone::of(&records).check(&spf("192.0.2.1", "h.test", Some("x@a.test")));
    assert_eq!((outcome.result, count), (SpfResult::PermError, 111));
}

#[test]
fn names_and_explanations_made_of_many_macros_stay_short() {
    let long = format!("v=spf1 exists:{}b.test -all exp={}e.test", "%{s}".repeat(10_000), "%{d}.".repeat(60));
    let sender = format!("{}@a.test", "l.".repeat(30));
    let explanation = "%{s}".repeat(100);
    let mut records = vec![("a.test", "TXT", long.as_str())];
    let name = {
        let text = format!("{}e.test", "a.test.".repeat(60));
        text[text.len() - 251..].trim_start_matches("est.").to_owned()
    };
    records.push((&name, "TXT", &explanation));
    let (outcome, _) = Zone::of(&records).check(&spf("192.0.2.1", "h.test", Some(&sender)));
    assert_eq!((outcome.result, outcome.explanation), (SpfResult::Fail, None));
    let many = format!("v=spf1 {}", "ip4:192.0.2.9 ".repeat(5000));
    let zone = Zone::of(&[("a.test", "TXT", many.as_str())]);
    let (outcome, _) = zone.check(&spf("192.0.2.1", "h.test", Some("x@a.test")));
    assert_eq!(outcome.result, SpfResult::PermError);
}

proptest! {
    #[test]
    fn whatever_a_record_says_the_check_ends(
        terms in prop::collection::vec(
            prop::sample::select(vec![
                "a", "mx", "ptr", "include:b.test", "include:a.test", "exists:%{ir}.%{p2}.%{l1r-}.test", "redirect=b.test",
                "exp=%{h}.%{d}", "-all", "?all", "ip6:::/0", "a:%{H}.x.test//64", "mx:b.test/8", "exp=b.test", "%", "\u{e4}",
            ]),
            0..12,
        ),
        other in prop::collection::vec(prop::sample::select(vec!["a", "mx", "redirect=a.test", "ptr:test", "-all"]), 0..4),
        client in prop::sample::select(vec!["192.0.2.1", "2001:db8::1"]),
        hello in "[a-z.%\u{e4}]{0,20}",
    ) {
        let (record, other) = (format!("v=spf1 {}", terms.join(" ")), format!("v=spf1 {}", other.join(" ")));
        let records = [
            ("a.test", "TXT", record.as_str()),
            ("a.test", "A", "192.0.2.2"),
            ("a.test", "MX", "b.test"),
            ("b.test", "TXT", &other),
            ("b.test", "AAAA", "2001:db8::2"),
            ("b.test", "MX", "a.test"),
            ("1.2.0.192.in-addr.arpa", "PTR", "a.test"),
        ];
        let (_, count) = Zone::of(&records).check(&spf(client, &hello, Some("l-x@a.test")));
        prop_assert!(count <= 40, "{}", count);
    }
}
