//! SPF, a signature and DMARC of an incoming message of 10 KiB, and the signing of an outgoing one. What the DNS says is
//! known: its cache is warm.

use authn::{
    Answer, Answers, BodyHasher, Dmarc, DmarcResult, Name, Question, Signer, SigningKey, Spf, Step, Verifier,
    from_domain,
};
use std::{hint::black_box, net::Ipv4Addr};

/// A message with a signature of RSA-2048 by dkimpy, and the record of its key.
const MESSAGE: &str = include_str!("../testdata/signed.eml");
const KEY_RECORD: &str = include_str!("../testdata/key.txt");

/// A private key of Ed25519 in PKCS #8 (RFC 8410), whose octets are its prefix and then all the same.
const PKCS8: &[u8] =
    b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii";

/// 30 November 2026.
const NOW: u64 = 1_796_019_500;

/// As the session has it: with CRLF.
fn message() -> String {
    MESSAGE.replace('\n', "\r\n")
}

fn split(message: &str) -> (&[u8], &[u8]) {
    let (header, body) = message.split_once("\r\n\r\n").expect("the message has a header");
    (&message.as_bytes()[..header.len() + 2], body.as_bytes())
}

fn name(text: &str) -> Name {
    Name::new(text).expect("the text is a domain")
}

fn done<T>(step: Step<T>) -> T {
    match step {
        Step::Done(outcome) => outcome,
        Step::Ask(questions) => panic!("no answer to {questions:?}"),
    }
}

/// Checks a message, whose signature and policy pass, so often.
pub fn verify(count: u64) {
    let mut answers = Answers::default();
    let mut add = |name: Name, text: &str| {
        answers.add(Question::Txt(name), Answer::Txt(vec![text.trim_end().as_bytes().into()]));
    };
    add(name("s1._domainkey.sender.test"), KEY_RECORD);
    add(name("_dmarc.sender.test"), "v=DMARC1; p=reject");
    add(name("sender.test"), "v=spf1 ip4:203.0.113.0/24 -all");
    let message = message();
    let (header, body) = split(&message);
    for _ in 0..count {
        let spf = Spf {
            client: Ipv4Addr::new(203, 0, 113, 9).into(),
            hello: "mail.sender.test",
            sender: Some("joe@sender.test"),
            receiver: "mx.test",
            now: NOW,
        };
        let spf = done(spf.evaluate(&answers));
        let mut verifier = Verifier::new(header);
        verifier.push(body);
        let dkim = done(verifier.finish().evaluate(&answers, NOW));
        let from = from_domain(header).expect("one address");
        let dmarc = done(Dmarc { from: &from, spf: Some(&spf), dkim: &dkim }.evaluate(&answers));
        assert_eq!((dkim[0].reason, dmarc.result), (None, DmarcResult::Pass));
    }
}

/// Signs a message with Ed25519, so often.
pub fn sign(count: u64) {
    let key = SigningKey::from_pkcs8(PKCS8).expect("the key is one of Ed25519");
    let signer = Signer { domain: "sender.test", selector: "s1", key: &key };
    let message = message();
    let (header, body) = split(&message);
    for _ in 0..count {
        let mut hasher = BodyHasher::default();
        hasher.push(body);
        black_box(signer.sign(header, hasher.finish().as_ref(), NOW));
    }
}
