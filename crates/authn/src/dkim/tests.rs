use super::*;
use crate::{Answer, Signer, SigningKey};
use proptest::prelude::*;
use serde_json::Value;

/// The key of RFC 8463 for RSA, which dkimpy uses as well.
const RSA_KEY: &str = "v=DKIM1; g=*; k=rsa; p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDkHlOQoBTzWRiGs5V6NpP3idY6Wk08a5qhdR6wy5bdOKb2jLQiY/J16JYi0Qvx/byYzCNb3W91y3FutACDfzwQ/BC/e/8uBsCR+yz1Lxj+PL6lHvqMKrM3rG4hstT5QjvHO9PzoxZyVYLzBfO2EeC3Ip3G+2kryOTIKT+l/K4w3QIDAQAB";
const ED25519_KEY: &str = "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
/// RFC 6376, appendix C.
const RFC_6376_KEY: &str = "v=DKIM1; p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDwIRP/UC3SBsEmGqZ9ZJW3/DkMoGeLnQg1fWn7/zYtIxN2SnFCjxOCKG9v3b4jYfcTNh5ijSsq631uBItLa7od+v/RtdC2UzJ1lWT947qR+Rcac2gbto/NMqJ0fzfVjH4OuKhitdY9tf6mcwGjaNBcWToIMmPSPDdQPNUYckcQ2QIDAQAB";
const GMAIL_KEY: &str = "k=rsa; p=MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA1Kd87/UeJjenpabgbFwh+eBCsSTrqmwIYYvywlbhbqoo2DymndFkbjOVIPIldNs/m40KF+yzMn1skyoxcTUGCQs8g3FgD2Ap3ZB5DekAo5wMmk4wimDO+U8QzI3SD07y2+07wlNWwIt8svnxgdxGkVbbhzY8i+RQ9DpSVpPbF7ykQxtKXkv/ahW3KjViiAH+ghvvIhkx4xYSIc9oSwVmAl5OctMEeWUwg8Istjqz8BZeTWbf41fbNhte7Y+YqZOwq1Sd0DbvYAD9NOZK9vlfuac0598HY+vtSBczUiKERHv1yRbcaQtZFh5wtiRrN04BLUTD21MycBX5jYchHjPY/wIDAQAB";
const NOW: u64 = 1_700_000_000;

/// What is at the names of keys: a record, nothing, or no answer.
type Keys<'a> = [(&'a str, Option<&'a str>)];

fn crlf(text: &str) -> Vec<u8> {
    text.replace("\r\n", "\n").replace('\n', "\r\n").into_bytes()
}

fn verify_in_pieces(message: &[u8], keys: &Keys<'_>, piece: usize) -> Vec<DkimOutcome> {
    let end = memchr::memmem::find(message, b"\r\n\r\n").map_or(message.len(), |at| at + 2);
    let (header, body) = message.split_at(end);
    let mut verifier = Verifier::new(header);
    body.get(2..).unwrap_or_default().chunks(piece).for_each(|piece| verifier.push(piece));
    let early = verifier.questions();
    let signatures = verifier.finish();
    let mut answers = Answers::default();
    loop {
        match signatures.evaluate(&answers, NOW) {
            Step::Done(outcomes) => return outcomes,
            Step::Ask(questions) => {
                for question in questions {
                    assert!(early.contains(&question));
                    let Question::Txt(name) = &question else { panic!("{question:?}") };
                    let answer = match keys.iter().find(|(key, _)| name.to_string() == *key) {
                        Some((_, Some(record))) => Answer::Txt(vec![record.as_bytes().into()]),
                        Some((_, None)) => Answer::Failed,
                        None => Answer::NoName,
                    };
                    answers.add(question, answer);
                }
            }
        }
    }
}

fn verify(message: &[u8], keys: &Keys<'_>) -> Vec<DkimOutcome> {
    verify_in_pieces(message, keys, 4096)
}

fn results(message: &[u8], keys: &Keys<'_>) -> Vec<(DkimResult, &'static str)> {
    verify(message, keys).into_iter().map(|it| (it.result, it.reason.unwrap_or_default())).collect()
}

#[test]
fn the_messages_of_the_rfcs_pass() {
    let message = crlf(include_str!("../../testdata/dkim/rfc8463.msg"));
    let keys = [
        ("brisbane._domainkey.football.example.com", Some(ED25519_KEY)),
        ("test._domainkey.football.example.com", Some(RSA_KEY)),
    ];
    assert_eq!(results(&message, &keys), [(DkimResult::Pass, ""); 2]);
    let outcome = &verify(&message, &keys)[0];
    assert_eq!(outcome.domain, Name::new("football.example.com"));
    assert_eq!(outcome.selector, Name::new("brisbane"));
    assert_eq!(outcome.algorithm.as_deref(), Some("ed25519-sha256"));
    assert_eq!(outcome.identity.as_deref(), Some("@football.example.com"));
    assert_eq!(outcome.signature_start, "/gCrinpc");

    let message = crlf(include_str!("../../testdata/dkim/rfc6376.msg"));
    let keys = [("brisbane._domainkey.example.com", Some(RFC_6376_KEY))];
    assert_eq!(results(&message, &keys), [(DkimResult::Pass, "")]);
}

#[test]
fn the_messages_of_dkimpy_have_its_results() {
    let keys = [
        ("brisbane._domainkey.football.example.com", Some(ED25519_KEY)),
        ("test._domainkey.football.example.com", Some(RSA_KEY)),
        ("20120113._domainkey.gmail.com", Some(GMAIL_KEY)),
    ];
    let signed = crlf(include_str!("../../testdata/dkim/rfc6376.signed.msg"));
    assert_eq!(results(&signed, &keys), [(DkimResult::Pass, ""); 2]);
    let degenerate = crlf(include_str!("../../testdata/dkim/test2.message"));
    assert_eq!(results(&degenerate, &keys), [(DkimResult::Pass, "")]);
    let no_time = crlf(include_str!("../../testdata/dkim/rfc6376.signed.no_t.msg"));
    assert_eq!(results(&no_time, &keys)[0].0, DkimResult::Fail);
    let bad_domain = crlf(include_str!("../../testdata/dkim/test.message.baddomain"));
    assert_eq!(results(&bad_domain, &keys), [(DkimResult::PermError, "d= is not a domain")]);
    let rsa = crlf(include_str!("../../testdata/dkim/rfc6376.signed.rsa.msg"));
    let changed = |from: &str, to: &str| RSA_KEY.replace(from, to);
    for (record, reason) in [
        (changed("QIDAQAB", "QIDAQA="), "the key is damaged"),
        (changed("v=DKIM1;", "v=DKIM1:"), "the key record has an unknown version"),
        (changed("k=rsa", "k=ed25519-sha256"), "the key is of an unknown type"),
        (changed("k=rsa", "k=rsa; s=tlsrpt"), "the key is not for mail"),
        (changed("k=rsa", "k=rsa; h=sha1"), "the key is not for SHA-256"),
        ("v=DKIM1; p=".to_owned(), "the key is revoked"),
        (
            "v=DKIM1; k=ed25519; p=".to_owned() + &"A".repeat(44),
            "the key is of another type than the signature",
        ),
        ("hello".to_owned(), "the key record is invalid"),
    ] {
        let keys = [("test._domainkey.football.example.com", Some(record.as_str()))];
        assert_eq!(results(&rsa, &keys), [(DkimResult::PermError, reason)], "{record}");
    }
    assert_eq!(results(&rsa, &[]), [(DkimResult::PermError, "there is no key")]);
    let keys = [("test._domainkey.football.example.com", None)];
    assert_eq!(results(&rsa, &keys)[0].0, DkimResult::TempError);
}

#[test]
fn messages_signed_by_dkimpy_pass_in_each_canonical_form_and_in_any_pieces() {
    let signed: Value = serde_json::from_str(include_str!("../../testdata/dkim/dkimpy-signed.json")).unwrap();
    let keys = [("test._domainkey.football.example.com", Some(RSA_KEY))];
    let signed = signed.as_array().unwrap();
    assert_eq!(signed.len(), 24);
    for test in signed {
        let (name, message) = (test["name"].as_str().unwrap(), test["message"].as_str().unwrap());
        for piece in [1, 2, 3, 4096] {
            let outcomes = verify_in_pieces(message.as_bytes(), &keys, piece);
            assert_eq!(outcomes[0].reason, None, "{name} in pieces of {piece}");
            assert_eq!(outcomes[0].result, DkimResult::Pass, "{name}");
        }
        let longer = verify(format!("{message}\r\n.\r\nmore\r\n").as_bytes(), &keys);
        if name.ends_with("-l") {
            assert_eq!(longer[0].result, DkimResult::Policy, "{name}");
            assert!(longer[0].unsigned_bytes > 0, "{name}");
        } else {
            assert_eq!(longer[0].reason, Some("the body was changed"), "{name}");
        }
    }
}

/// A message that our signer signed, and its keys.
struct Signed {
    message: String,
    names: Vec<String>,
    records: Vec<String>,
}

impl Signed {
    fn new(header: &str, body: &str, algorithms: &[Algorithm]) -> Self {
        let mut hasher = BodyHasher::default();
        hasher.push(body.as_bytes());
        let hash = hasher.finish();
        let mut signed =
            Self { message: format!("{header}\r\n{body}"), names: Vec::new(), records: Vec::new() };
        for (index, algorithm) in algorithms.iter().enumerate() {
            let key = key(*algorithm);
            let selector = format!("s{index}");
            let signer = Signer { domain: "a.test", selector: &selector, key: &key };
            let value = signer.sign(header.as_bytes(), hash.as_ref(), NOW);
            signed.message = format!("DKIM-Signature: {value}\r\n{}", signed.message);
            signed.names.insert(0, format!("{selector}._domainkey.a.test"));
            signed.records.insert(0, key.record());
        }
        signed
    }

    fn results(&self, message: &str) -> Vec<(DkimResult, &'static str)> {
        let records = self.records.iter().map(|record| Some(record.as_str()));
        let keys: Vec<_> = self.names.iter().map(String::as_str).zip(records).collect();
        results(message.as_bytes(), &keys)
    }
}

/// One key of each kind: making one takes long.
fn key(algorithm: Algorithm) -> SigningKey {
    static RSA: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| SigningKey::generate(Algorithm::RsaSha256).unwrap());
    static ED25519: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| SigningKey::generate(Algorithm::Ed25519Sha256).unwrap());
    let pem = if algorithm == Algorithm::RsaSha256 { &RSA } else { &ED25519 };
    SigningKey::from_pem(pem.as_bytes()).unwrap()
}

const HEADER: &str =
    "Received: x\r\nFrom: Ann <ann@a.test>\r\nTo: b@b.test\r\nSubject: one\r\n two\r\nDate: today\r\n";
const BOTH: [Algorithm; 2] = [Algorithm::RsaSha256, Algorithm::Ed25519Sha256];
const FAILED_HEADER: (DkimResult, &str) = (DkimResult::Fail, "the signature is not that of the header");

#[test]
fn each_change_of_a_signed_message_is_found() {
    let signed = Signed::new(HEADER, "Hello\r\n", &BOTH);
    assert_eq!(signed.results(&signed.message), [(DkimResult::Pass, ""); 2]);
    for (from, to) in [
        ("Ann <", "Bob <"),
        ("one", "One"),
        ("To: b@b.test", "To: c@b.test"),
        ("From: Ann", "From: x@y.test\r\nFrom: Ann"),
        ("Date: today\r\n", "Date: today\r\nFrom: x@y.test\r\n"),
        ("Date: today\r\n", "Date: today\r\nReply-To: x@y.test\r\n"),
        ("Subject: one", "Subject: zero\r\nSubject: one"),
        ("t=1700000000", "t=1700000001"),
    ] {
        let changed = signed.message.replace(from, to);
        assert_ne!(changed, signed.message);
        assert_eq!(signed.results(&changed), [FAILED_HEADER; 2], "{from:?} {to:?}");
    }
    let body = signed.message.replace("Hello", "Hullo");
    assert_eq!(signed.results(&body), [(DkimResult::Fail, "the body was changed"); 2]);
    // What the canonical form forgives, and fields that nobody signed.
    for (from, to) in
        [("one\r\n two", "one   two"), ("Hello\r\n", "Hello \t\r\n\r\n"), ("Received: x", "Received: y")]
    {
        assert_eq!(
            signed.results(&signed.message.replace(from, to)),
            [(DkimResult::Pass, ""); 2],
            "{from:?}"
        );
    }
}

#[test]
fn signatures_with_wrong_tags_do_not_pass() {
    use DkimResult::{Neutral, PermError, Policy};
    let signed = Signed::new(HEADER, "Hello\r\n", &[Algorithm::Ed25519Sha256]);
    for (from, to, result, reason) in [
        ("v=1", "v=2", PermError, "the signature has an unknown version"),
        ("v=1; ", "", PermError, "the signature lacks a tag"),
        ("v=1", "v=1; v=1", Neutral, "the signature is not a list of tags"),
        ("h=From:From", "h=To", PermError, "From is not signed"),
        ("h=From", "h=:From", Neutral, "h= is not a list of fields"),
        ("d=a.test", "d=a.test; i=x@b.test", PermError, "the domain of i= is not within d="),
        ("d=a.test", "d=a.test; i=x", Neutral, "i= has no domain"),
        ("d=a.test", "d=a.test; i=x@b(.a.test", Neutral, "i= has no domain"),
        ("d=a.test", "d=a..test", PermError, "d= is not a domain"),
        ("d=a.test", "d=a.te\0st", Neutral, "the signature is not a list of tags"),
        ("s=s0", "s=", PermError, "s= is not a selector"),
        ("t=1700000000", "x=1699999999", Policy, "the signature has expired"),
        ("t=1700000000", "t=1700000000; x=1700000000", Neutral, "x= is not after t="),
        ("t=1700000000", "t=-1", Neutral, "l=, t= or x= is not a number"),
        ("t=1700000000", "l=8", PermError, "l= is larger than the body"),
        ("ed25519-sha256", "rsa-sha1", Policy, "rsa-sha1 is too weak"),
        ("ed25519-sha256", "dsa-sha256", Neutral, "the algorithm is unknown"),
        ("ed25519-sha256", "rsa-sha256", PermError, "the key is of another type than the signature"),
        ("relaxed/relaxed", "relaxed/nofws", Neutral, "the canonical form is unknown"),
        ("relaxed/relaxed", "relaxed/relaxed; q=http", Neutral, "the key is not in the DNS"),
        ("bh=", "bh=?", Neutral, "bh= is not base64"),
        ("\tb=", "\tb=;x=\"\"", Neutral, "l=, t= or x= is not a number"),
        ("\tb=", "\tb=?", Neutral, "b= is not base64"),
    ] {
        let changed = signed.message.replacen(from, to, 1);
        assert_ne!(changed, signed.message, "{from}");
        assert_eq!(signed.results(&changed), [(result, reason)], "{from:?} {to:?}");
    }
}

#[test]
fn flags_of_keys_are_obeyed_and_weak_keys_are_refused() {
    let mut signed = Signed::new(HEADER, "Hello\r\n", &[Algorithm::Ed25519Sha256]);
    signed.records[0].push_str("; t=y:s");
    let keys = [(signed.names[0].as_str(), Some(signed.records[0].as_str()))];
    let outcome = &verify(signed.message.as_bytes(), &keys)[0];
    assert!(outcome.is_testing && outcome.result == DkimResult::Pass);
    let below = signed.message.replace("d=a.test", "d=a.test; i=x@b.a.test");
    assert_eq!(signed.results(&below), [(DkimResult::PermError, "the key permits no i= below d=")]);

    // The key of 512 bits of dkimpy's tests.
    signed.records[0] = "p=MFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBANmBe10IgY+u7h3enWTukkqtUD5PR52Tb/mPfjC0QJTocVBq6Za/PlzfV+Py92VaCak19F4WrbVTK5Gg5tW220MCAwEAAQ==".into();
    let rsa = signed.message.replace("ed25519-sha256", "rsa-sha256");
    assert_eq!(signed.results(&rsa), [(DkimResult::Policy, "the key has under 1024 bits")]);
    // A key of 16,384 bits: nobody computes with it.
    let modulus = [&b"\x02\x82\x08\x01\x00"[..], &[0xff; 2048]].concat();
    let der = [&b"\x30\x82\x08\x0a"[..], &modulus, b"\x02\x03\x01\x00\x01"].concat();
    signed.records[0] = format!("p={}", BASE64.encode(&der));
    assert_eq!(signed.results(&rsa), [(DkimResult::PermError, "the key is too long")]);
}

#[test]
fn rsa_keys_are_read_in_both_forms() {
    // RSAPublicKey alone, from the RFC's key: what follows the algorithm and the head of the bit string.
    let der = BASE64.decode(RSA_KEY.split_once("p=").unwrap().1.as_bytes()).unwrap();
    let bare = format!("p={}", BASE64.encode(&der[22..]));
    let message = crlf(include_str!("../../testdata/dkim/rfc6376.signed.rsa.msg"));
    let keys = [("test._domainkey.football.example.com", Some(bare.as_str()))];
    assert_eq!(results(&message, &keys), [(DkimResult::Pass, "")]);
}

#[test]
fn only_the_first_eight_signatures_are_verified() {
    let signed = Signed::new(HEADER, "Hello\r\n", &[Algorithm::Ed25519Sha256]);
    let many = "DKIM-Signature: v=1\r\n".repeat(20) + &signed.message;
    let results = signed.results(&many);
    assert_eq!(results.len(), 8);
    assert!(results.iter().all(|(result, _)| *result == DkimResult::PermError));
    assert_eq!(signed.results(HEADER), []);
    assert!(!Verifier::new(HEADER.as_bytes()).needs_body());
}

#[test]
fn a_signature_that_names_signature_fields_does_not_mean_itself() {
    // A second signer covers the first one's field, and one more that there is not.
    let first = Signed::new(HEADER, "Hello\r\n", &[Algorithm::Ed25519Sha256]);
    let header = first.message.split_once("\r\n\r\n").unwrap().0.to_owned() + "\r\n";
    let parsed = Header::new(header.as_bytes());
    let names = [b"dkim-signature".to_vec(), b"dkim-signature".to_vec(), b"from".to_vec()];
    let data = parsed.canonical(Form::Relaxed, &names, 0, b" v=1");
    assert_eq!(String::from_utf8(data).unwrap(), "from:Ann <ann@a.test>\r\ndkim-signature:v=1");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_our_signer_signs_passes_and_no_changed_octet_does(
        subject in "[a-z \\t]{0,30}",
        body in "([a-z .\\t]{0,20}\r\n){0,6}",
        at in 0..10_000usize,
        is_rsa in any::<bool>(),
    ) {
        let header = format!("From: <a@a.test>\r\nSubject: {subject}\r\nX: y\r\n");
        let algorithm = if is_rsa { Algorithm::RsaSha256 } else { Algorithm::Ed25519Sha256 };
        let signed = Signed::new(&header, &body, &[algorithm]);
        prop_assert_eq!(signed.results(&signed.message), [(DkimResult::Pass, "")]);
        let signed_part = signed.message.find("From:").unwrap();
        let mut changed = signed.message.clone().into_bytes();
        let at = signed_part + at % (changed.len() - signed_part);
        if changed[at].is_ascii_alphanumeric() && !signed.message[..at].ends_with("X: ") && !signed.message[..at].ends_with("\r\n") {
            changed[at] = if changed[at] == b'q' { b'r' } else { b'q' };
            let changed = String::from_utf8(changed).unwrap();
            let results = signed.results(&changed);
            prop_assert!(results.iter().all(|(result, _)| *result != DkimResult::Pass), "{:?}", changed);
        }
    }

    #[test]
    fn any_header_and_any_key_have_an_outcome(
        value in prop::collection::vec(
            prop::sample::select(vec![
                "v=1;", "a=rsa-sha256;", "a=ed25519-sha256;", "d=a.test;", "s=s;", "h=from;", "h=from:x:", "bh=AA==;", "b=AA==",
                "b=AA==;", "l=0;", "l=99999999999999999999;", ";", "=", "c=simple;", "x=0;", "i=@;", "\r\n ", "\u{e4}",
            ]),
            0..14,
        ),
        record in prop::collection::vec(
            prop::sample::select(vec!["v=DKIM1;", "k=rsa;", "p=MIGf;", "p=;", "t=y;", "p=MAA=;", "p=MIMwMDA=;", ";", "k=ed25519;"]),
            0..5,
        ),
    ) {
        let message = format!("From: a@a.test\r\nDKIM-Signature: {}\r\n\r\nx", value.concat());
        let record = record.concat();
        let outcomes = verify(message.as_bytes(), &[("s._domainkey.a.test", Some(&record))]);
        prop_assert_eq!(outcomes.len(), 1);
        prop_assert!(outcomes[0].result != DkimResult::Pass);
    }
}
