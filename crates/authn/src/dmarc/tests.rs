use super::*;
use proptest::prelude::*;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn spf(result: SpfResult, domain: &str) -> Option<SpfOutcome> {
    Some(SpfOutcome { result, domain: Some(name(domain)), mechanism: None, error: None, explanation: None })
}

fn dkim(result: DkimResult, domain: &str) -> DkimOutcome {
    DkimOutcome {
        result,
        reason: None,
        domain: Some(name(domain)),
        selector: None,
        algorithm: None,
        identity: None,
        signature_start: String::new(),
        unsigned_bytes: 0,
        is_testing: false,
    }
}

/// Records by domain, without `_dmarc`; `!` has no answer. Of other names, only `exists.test` and those below it exist, and below
/// `unknown.test` no look-up of addresses has an answer.
type Records<'a> = [(&'a str, &'a str)];

/// Also counts the questions that were asked.
#[expect(clippy::needless_pass_by_value)]
fn check_counted(
    from: &str,
    spf: Option<SpfOutcome>,
    dkim: &[DkimOutcome],
    records: &Records<'_>,
) -> (DmarcOutcome, usize) {
    let from = name(from);
    let dmarc = Dmarc { from: &from, spf: spf.as_ref(), dkim };
    let (mut answers, mut count) = (Answers::default(), 0);
    loop {
        let questions = match dmarc.evaluate(&answers) {
            Step::Done(outcome) => return (outcome, count),
            Step::Ask(questions) => questions,
        };
        assert!(!questions.is_empty());
        for question in questions {
            count += 1;
            assert!(answers.find(&question).is_none(), "{question:?} is asked twice");
            let answer = match &question {
                Question::Txt(asked) => {
                    let is_it = |domain| *asked == name(domain).below("_dmarc").unwrap();
                    let texts: Vec<&str> =
                        records.iter().filter(|(domain, _)| is_it(domain)).map(|(_, text)| *text).collect();
                    match &texts[..] {
                        [] => Answer::NoName,
                        ["!"] => Answer::Failed,
                        texts => Answer::Txt(texts.iter().map(|text| text.as_bytes().into()).collect()),
                    }
                }
                Question::A(asked) if asked.is_within(&name("exists.test")) => Answer::NoRecords,
                Question::A(asked) if asked.is_within(&name("unknown.test")) => Answer::Failed,
                Question::A(_) => Answer::NoName,
                _ => panic!("{question:?}"),
            };
            answers.add(question, answer);
        }
    }
}

fn check(from: &str, spf: Option<SpfOutcome>, dkim: &[DkimOutcome], records: &Records<'_>) -> DmarcOutcome {
    check_counted(from, spf, dkim, records).0
}

const REJECT: &str = "v=DMARC1; p=reject";

#[test]
fn mail_passes_by_spf_or_by_a_signature_of_the_domain() {
    let records = [("a.test", REJECT)];
    let by_spf = check("a.test", spf(SpfResult::Pass, "a.test"), &[], &records);
    assert_eq!((by_spf.result, by_spf.is_spf_aligned), (DmarcResult::Pass, true));
    let signatures = [
        dkim(DkimResult::Fail, "a.test"),
        dkim(DkimResult::Pass, "b.test"),
        dkim(DkimResult::Pass, "a.test"),
    ];
    let by_dkim = check("a.test", spf(SpfResult::Pass, "b.test"), &signatures, &records);
    assert_eq!((by_dkim.result, by_dkim.aligned_signature), (DmarcResult::Pass, Some(2)));
    assert!(!by_dkim.is_spf_aligned);
    let failed = check("a.test", spf(SpfResult::SoftFail, "a.test"), &signatures[..2], &records);
    assert_eq!((failed.result, failed.requested()), (DmarcResult::Fail, DmarcPolicy::Reject));
    assert_eq!(failed.record_domain, Some(name("a.test")));
    let none = check("a.test", spf(SpfResult::Pass, "a.test"), &[], &[]);
    assert_eq!((none.result, none.record_domain), (DmarcResult::None, None));
}

#[test]
fn one_question_is_enough_if_all_domains_are_that_of_from() {
    let signatures = [dkim(DkimResult::Pass, "a.test")];
    let (outcome, count) =
        check_counted("a.test", spf(SpfResult::Pass, "a.test"), &signatures, &[("a.test", REJECT)]);
    assert_eq!((outcome.result, count), (DmarcResult::Pass, 1));
}

#[test]
fn alignment_is_strict_or_by_organizational_domain() {
    for (record, spf_domain, is_aligned) in [
        (REJECT, "mail.a.test", true),
        (REJECT, "a.test", true),
        (REJECT, "x.y.a.test", true),
        (REJECT, "b.test", false),
        (REJECT, "xa.test", false),
        (REJECT, "test", false),
        ("v=DMARC1; p=reject; aspf=s", "mail.a.test", false),
        ("v=DMARC1; p=reject; aspf=s", "news.a.test", true),
        ("v=DMARC1; p=reject; adkim=s; aspf=x", "mail.a.test", true),
    ] {
        let records = [("a.test", record)];
        let outcome = check("news.a.test", spf(SpfResult::Pass, spf_domain), &[], &records);
        assert_eq!(outcome.result == DmarcResult::Pass, is_aligned, "{record} {spf_domain}");
    }
    let strict = [("a.test", "v=DMARC1; p=reject; adkim=s")];
    let outcome = check("a.test", None, &[dkim(DkimResult::Pass, "m.a.test")], &strict);
    assert_eq!(outcome.result, DmarcResult::Fail);
}

#[test]
fn the_walk_of_the_rfc_asks_eight_names() {
    // RFC 9989 §4.10.
    let from = "a.b.c.d.e.f.g.h.i.j.mail.example.com";
    let Err(Unknown::Open(questions)) = walk(&Answers::default(), &name(from)) else { panic!() };
    let expected = [
        "_dmarc.a.b.c.d.e.f.g.h.i.j.mail.example.com",
        "_dmarc.g.h.i.j.mail.example.com",
        "_dmarc.h.i.j.mail.example.com",
        "_dmarc.i.j.mail.example.com",
        "_dmarc.j.mail.example.com",
        "_dmarc.mail.example.com",
        "_dmarc.example.com",
        "_dmarc.com",
    ];
    assert_eq!(questions, expected.map(|text| Question::Txt(name(text))));
    let Err(Unknown::Open(questions)) = walk(&Answers::default(), &name("mail.example.com")) else {
        panic!()
    };
    assert_eq!(questions.len(), 3);
}

#[test]
fn public_suffixes_separate_organizations() {
    let suffix = "v=DMARC1; p=quarantine; psd=y; np=reject";
    let pass = |domain| spf(SpfResult::Pass, domain);
    // The record of the suffix applies to those that have none, and does not make them one organization.
    let records = [("co.test", suffix)];
    let outcome = check("a.co.test", pass("b.co.test"), &[], &records);
    assert_eq!((outcome.result, outcome.policy), (DmarcResult::Fail, DmarcPolicy::Reject));
    assert_eq!(outcome.record_domain, Some(name("co.test")));
    assert_eq!(check("a.co.test", pass("m.a.co.test"), &[], &records).result, DmarcResult::Pass);
    // Without psd=y it would.
    let plain = [("co.test", "v=DMARC1; p=quarantine")];
    assert_eq!(check("a.co.test", pass("b.co.test"), &[], &plain).result, DmarcResult::Pass);
    // psd=n makes a domain an organization of its own.
    let own = [("a.test", REJECT), ("b.a.test", "v=DMARC1; p=none; psd=n")];
    assert_eq!(check("a.test", pass("b.a.test"), &[], &own).result, DmarcResult::Fail);
    assert_eq!(check("b.a.test", pass("x.b.a.test"), &[], &own).result, DmarcResult::Pass);
    // A suffix that sends mail itself.
    let outcome = check("co.test", pass("a.co.test"), &[], &records);
    assert_eq!((outcome.result, outcome.policy), (DmarcResult::Fail, DmarcPolicy::Quarantine));
    assert_eq!(
        check("co.test", pass("test"), &[], &[("co.test", suffix), ("test", REJECT)]).result,
        DmarcResult::Fail
    );
    // RFC 9989, appendix B.4.3.
    let bank = [("bank.test", "v=DMARC1; p=reject; psd=y"), ("giant.bank.test", "v=DMARC1; p=quarantine")];
    let mega = [dkim(DkimResult::Pass, "mail.mega.bank.test")];
    assert_eq!(check("giant.bank.test", None, &mega, &bank).result, DmarcResult::Fail);
    let giant = check("giant.bank.test", pass("mail.giant.bank.test"), &mega, &bank);
    assert_eq!((giant.result, giant.aligned_signature), (DmarcResult::Pass, None));
    // An organization with a record of its own below a suffix.
    let both = [("co.test", suffix), ("a.co.test", "v=DMARC1; p=none; sp=quarantine")];
    let outcome = check("m.a.co.test", None, &[], &both);
    assert_eq!((outcome.policy, outcome.record_domain), (DmarcPolicy::Quarantine, Some(name("a.co.test"))));
}

#[test]
fn subdomains_have_the_policy_for_existing_or_missing_names() {
    for (record, from, policy) in [
        ("v=DMARC1; p=reject", "x.exists.test", DmarcPolicy::Reject),
        ("v=DMARC1; p=reject; sp=none", "exists.test", DmarcPolicy::Reject),
        ("v=DMARC1; p=reject; sp=none", "x.exists.test", DmarcPolicy::None),
        ("v=DMARC1; p=none; np=reject", "x.exists.test", DmarcPolicy::None),
        ("v=DMARC1; p=none; sp=quarantine; np=reject", "x.exists.test", DmarcPolicy::Quarantine),
    ] {
        assert_eq!(check(from, None, &[], &[("exists.test", record)]).policy, policy, "{record} {from}");
    }
    for (record, policy) in [
        ("v=DMARC1; p=none; np=reject", DmarcPolicy::Reject),
        ("v=DMARC1; p=none; sp=quarantine", DmarcPolicy::Quarantine),
    ] {
        assert_eq!(check("x.a.test", None, &[], &[("a.test", record)]).policy, policy, "{record}");
    }
}

#[test]
fn a_domain_that_tests_its_policy_wants_one_level_less() {
    for (record, policy, requested) in [
        ("v=DMARC1;p=reject;t=y;", DmarcPolicy::Reject, DmarcPolicy::Quarantine),
        ("v=DMARC1;p=quarantine;t=Y", DmarcPolicy::Quarantine, DmarcPolicy::None),
        ("v=DMARC1;p=none;t=y", DmarcPolicy::None, DmarcPolicy::None),
        ("v=DMARC1;p=reject;t=yes", DmarcPolicy::Reject, DmarcPolicy::Reject),
    ] {
        let outcome = check("a.test", None, &[], &[("a.test", record)]);
        assert_eq!((outcome.policy, outcome.requested()), (policy, requested), "{record}");
    }
}

#[test]
fn whether_a_name_exists_is_asked_only_if_it_matters() {
    let records = [("unknown.test", "v=DMARC1; p=reject; sp=none; np=quarantine")];
    let pass = spf(SpfResult::Pass, "x.unknown.test");
    let passed = check("x.unknown.test", pass, &[], &records);
    assert_eq!((passed.result, passed.policy), (DmarcResult::Pass, DmarcPolicy::None));
    let failed = check("x.unknown.test", None, &[], &records);
    assert_eq!((failed.result, failed.policy), (DmarcResult::TempError, DmarcPolicy::None));
    assert_eq!(failed.error.as_deref(), Some("whether x.unknown.test exists could not be looked up"));
}

#[test]
fn records_are_read_as_the_rfc_says() {
    use DmarcPolicy::{None, Reject};
    use DmarcResult::{Fail, PermError};
    for (record, result, policy) in [
        (" V = DMARC1 ; P = Reject ", Fail, Reject),
        ("v=DMARC1", Fail, None),
        ("v=DMARC1; rubbish; p=reject; pct=0", Fail, Reject),
        ("v=DMARC1; p=refuse", PermError, None),
        ("v=DMARC1; p=reject; sp=x", PermError, None),
        ("v=DMARC1; p=refuse; rua=mailto:x@a.test", Fail, None),
        ("v=DMARC1; p=refuse; adkim=s; rua=bogus, https://a.test/x!10m", Fail, None),
        ("v=DMARC1; p=refuse; rua=", PermError, None),
        ("v=DMARC1; p=refuse; rua=<mailto:x@a.test>", PermError, None),
        ("v=DMARC1; p=refuse; rua=mailto:x y@a.test", PermError, None),
        ("v=DMARC1x; p=reject", DmarcResult::None, None),
        ("v=dmarc1; p=reject", DmarcResult::None, None),
        ("p=reject; v=DMARC1", DmarcResult::None, None),
        ("", DmarcResult::None, None),
    ] {
        let outcome = check("a.test", Option::None, &[], &[("a.test", record)]);
        assert_eq!((outcome.result, outcome.policy), (result, policy), "{record:?}");
    }
    let two = [("a.test", REJECT), ("a.test", REJECT)];
    assert_eq!(check("a.test", Option::None, &[], &two).result, DmarcResult::None);
    let other = [("a.test", REJECT), ("a.test", "something else")];
    assert_eq!(check("a.test", Option::None, &[], &other).result, Fail);
}

#[test]
fn failed_look_ups_are_temporary_errors_unless_something_else_passed() {
    let failed = check("a.test", spf(SpfResult::Pass, "a.test"), &[], &[("a.test", "!")]);
    assert_eq!(failed.result, DmarcResult::TempError);
    assert_eq!(failed.error.as_deref(), Some("the DMARC record of a.test could not be looked up"));
    let records = [("a.test", REJECT)];
    let no_key = [dkim(DkimResult::TempError, "a.test")];
    let undecided = check("a.test", None, &no_key, &records);
    assert_eq!((undecided.result, undecided.policy), (DmarcResult::TempError, DmarcPolicy::Reject));
    assert_eq!(undecided.requested(), DmarcPolicy::None);
    assert_eq!(check("a.test", spf(SpfResult::Pass, "a.test"), &no_key, &records).result, DmarcResult::Pass);
    let foreign = [dkim(DkimResult::TempError, "b.test")];
    assert_eq!(check("a.test", None, &foreign, &records).result, DmarcResult::Fail);
    // The top level does not answer, and only the alignment of another name needs it.
    let records = [("a.test", REJECT), ("test", "!")];
    let own = [dkim(DkimResult::Pass, "a.test")];
    assert_eq!(check("a.test", None, &own, &records).result, DmarcResult::Pass);
    let below = [dkim(DkimResult::Pass, "m.a.test")];
    assert_eq!(check("a.test", None, &below, &records).result, DmarcResult::TempError);
}

#[test]
fn only_one_address_in_one_from_field_has_a_domain() {
    for (header, expected) in [
        ("From: a@B.test\r\n", Ok("b.test")),
        ("From: =?x?q?y?= <a@b\u{fc}cher.test>\r\n", Ok("xn--bcher-kva.test")),
        ("Subject: x\r\n", Err(FromError::NoField)),
        ("From: a@b.test\r\nFROM : a@b.test\r\n", Err(FromError::SeveralFields)),
        (" From: a@b.test\r\nFrom: c@d.test\r\n", Err(FromError::SeveralFields)),
        ("From\r\n : a@b.test\r\nFrom: c@d.test\r\n", Err(FromError::SeveralFields)),
        ("From: <@x.test:a@b.test>\r\n", Err(FromError::NoSingleAddress)),
        ("From: a@b.test, c@b.test\r\n", Err(FromError::NoSingleAddress)),
        ("From: a@b.test <c@d.test>, <e@f.test>\r\n", Err(FromError::NoSingleAddress)),
        ("From: nobody\r\n", Err(FromError::NoSingleAddress)),
        ("From: a@[192.0.2.1]\r\n", Err(FromError::NoDomain)),
        ("From: a@b..test\r\n", Err(FromError::NoDomain)),
        ("From: <a@b.test\0.c.test>\r\n", Err(FromError::NoDomain)),
    ] {
        assert_eq!(from_domain(header.as_bytes()), expected.map(name), "{header:?}");
    }
    assert_eq!(from_domain(b"From: M\xfcller <a@b.test>\r\n"), Ok(name("b.test")));
}

proptest! {
    #[test]
    fn whatever_the_records_say_the_evaluation_ends(
        from in prop::sample::select(vec!["a.b.c.test", "c.test", "test", "a.a.a.a.a.a.a.b.c.test"]),
        spf_domain in prop::sample::select(vec!["b.c.test", "x.test", "test", "y.a.b.c.test"]),
        dkim_domain in prop::sample::select(vec!["c.test", "z.b.c.test", "d.test"]),
        records in prop::collection::vec(
            (
                prop::sample::select(vec!["a.b.c.test", "b.c.test", "c.test", "test", "z.b.c.test", "x.test"]),
                prop::sample::select(vec![
                    "!", REJECT, "v=DMARC1; psd=y", "v=DMARC1; psd=n; np=none; p=reject", "v=DMARC1; p=", "x",
                ]),
            ),
            0..8,
        ),
    ) {
        let signatures = [dkim(DkimResult::Pass, dkim_domain), dkim(DkimResult::TempError, "c.test")];
        let (_, count) = check_counted(from, spf(SpfResult::Pass, spf_domain), &signatures, &records);
        prop_assert!(count <= 4 * WALK_MAX + 1, "{}", count);
    }
}
