//! The vectors of RFC 5802 and RFC 7677, and both sides against each other.

use super::*;
use crate::{
    Answer, ChannelBindings, ClientCredentials, ClientExchange, ClientFailure, Failure, Mechanism, Question,
    ServerExchange, Step, TokenAdvice, server::ServerFacts,
};
use proptest::prelude::*;

const USER: &str = "user";
const PASSWORD: &str = "pencil";

fn iterations(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

fn facts(bindings: ChannelBindings, nonce: &str) -> ServerFacts {
    let offers_plus = bindings.best().is_some();
    ServerFacts {
        bindings,
        offers_plus,
        certificate: Vec::new(),
        token_advice: TokenAdvice::default(),
        nonce: nonce.into(),
        decoy: Secret::new("decoy"),
    }
}

/// An exchange of an RFC: client's first, server's first, client's last, server's last.
fn replay(mechanism: Mechanism, salt: &str, nonces: (&str, &str), lines: [&str; 4]) {
    let hash = mechanism.scram_hash().unwrap();
    let salt = BASE64.decode(salt.as_bytes()).unwrap();
    let keys = ScramKeys::derive(hash, PASSWORD, &salt, iterations(4096)).unwrap();
    let credentials = ClientCredentials { user: USER.into(), secret: Secret::new(PASSWORD) };
    let none = ChannelBindings::default();
    let (mut client, first) = ClientExchange::begin(mechanism, &credentials, &none, nonces.0).unwrap();
    let first = first.unwrap();
    assert_eq!(str::from_utf8(&first).unwrap(), lines[0]);
    let (mut server, step) = ServerExchange::begin(mechanism, facts(none, nonces.1), Some(&first));
    assert_eq!(step, Step::Ask(Question::Keys { user: USER.into(), hash }));
    let Step::Challenge(server_first) = server.answer(Answer::Keys(Some(Box::new(keys)))) else { panic!() };
    assert_eq!(str::from_utf8(&server_first).unwrap(), lines[1]);
    let last = client.respond(&server_first).unwrap();
    assert_eq!(str::from_utf8(&last).unwrap(), lines[2]);
    assert!(!client.may_succeed());
    let Step::Challenge(server_last) = server.respond(&last) else { panic!() };
    assert_eq!(str::from_utf8(&server_last).unwrap(), lines[3]);
    let empty = client.respond(&server_last).unwrap();
    assert!(empty.is_empty() && client.may_succeed());
    assert_eq!(server.respond(&empty), Step::Authenticated(USER.into()));
}

use std::str;

#[test]
fn the_exchange_of_rfc_5802_is_repeated_to_the_octet() {
    replay(
        Mechanism::ScramSha1,
        "QSXCR+Q6sek8bf92",
        ("fyko+d2lbbFgONRv9qkxdawL", "3rfcNHYJY1ZVvWVs7j"),
        [
            "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
            "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        ],
    );
}

#[test]
fn the_exchange_of_rfc_7677_is_repeated_to_the_octet() {
    replay(
        Mechanism::ScramSha256,
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        ("rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"),
        [
            "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ],
    );
}

/// Both sides, with what each has; the step that ends it.
fn meet(
    mechanism: Mechanism,
    (client_has, server_has): (ChannelBindings, ChannelBindings),
    keys: Option<&ScramKeys>,
    password: &str,
) -> Result<Step, ClientFailure> {
    let credentials = ClientCredentials { user: "us=er,1".into(), secret: Secret::new(password) };
    let (mut client, first) = ClientExchange::begin(mechanism, &credentials, &client_has, "abc")?;
    let (mut server, mut step) = ServerExchange::begin(mechanism, facts(server_has, "def"), first.as_deref());
    for _ in 0..6 {
        step = match step {
            Step::Ask(_) => server.answer(Answer::Keys(keys.cloned().map(Box::new))),
            Step::Challenge(challenge) => server.respond(&client.respond(&challenge)?),
            end => return Ok(end),
        };
    }
    panic!("no end");
}

fn keys_of(mechanism: Mechanism, password: &str) -> ScramKeys {
    ScramKeys::derive(mechanism.scram_hash().unwrap(), password, b"0123456789abcdef", iterations(4096))
        .unwrap()
}

fn bound(bytes: &[u8]) -> ChannelBindings {
    ChannelBindings { exporter: Some(bytes.into()), end_point: None }
}

const SCRAM: [Mechanism; 4] =
    [Mechanism::ScramSha256Plus, Mechanism::ScramSha256, Mechanism::ScramSha1Plus, Mechanism::ScramSha1];

#[test]
fn the_right_password_passes_and_a_wrong_one_and_nobody_fail_alike() {
    for mechanism in SCRAM {
        let channel = || (bound(b"x"), bound(b"x"));
        let keys = keys_of(mechanism, PASSWORD);
        let end = |keys: Option<&ScramKeys>, password| meet(mechanism, channel(), keys, password).unwrap();
        assert_eq!(end(Some(&keys), PASSWORD), Step::Authenticated("us=er,1".into()));
        assert_eq!(end(Some(&keys), "pencil2"), Step::Failed(Failure::Wrong));
        assert_eq!(end(None, PASSWORD), Step::Failed(Failure::Wrong));
        let other = if mechanism.scram_hash() == Some(ScramHash::Sha1) { SCRAM[0] } else { SCRAM[2] };
        assert_eq!(end(Some(&keys_of(other, PASSWORD)), PASSWORD), Step::Failed(Failure::Wrong));
    }
}

#[test]
fn the_connection_of_somebody_between_is_refused() {
    let mechanism = Mechanism::ScramSha256Plus;
    let keys = Some(keys_of(mechanism, PASSWORD));
    let end = |client, server| meet(mechanism, (client, server), keys.as_ref(), PASSWORD);
    assert_eq!(end(bound(b"x"), bound(b"y")), Ok(Step::Failed(Failure::Wrong)));
    assert_eq!(end(bound(b"x"), ChannelBindings::default()), Ok(Step::Failed(Failure::Wrong)));
    assert_eq!(end(ChannelBindings::default(), bound(b"x")), Err(ClientFailure::NoChannel));
    let end_point = ChannelBindings { exporter: None, end_point: Some(b"hash"[..].into()) };
    assert_eq!(end(end_point.clone(), end_point), Ok(Step::Authenticated("us=er,1".into())));
}

#[test]
fn a_client_that_was_told_of_no_binding_is_refused_by_a_server_that_has_one() {
    let say = |first: &[u8], offers_plus: bool| {
        let facts = ServerFacts { offers_plus, ..facts(bound(b"x"), "def") };
        ServerExchange::begin(Mechanism::ScramSha256, facts, Some(first)).1
    };
    let hash = ScramHash::Sha256;
    assert_eq!(say(b"y,,n=user,r=abc", true), Step::Failed(Failure::Wrong));
    assert_eq!(say(b"y,,n=user,r=abc", false), Step::Ask(Question::Keys { user: USER.into(), hash }));
    assert_eq!(say(b"p=tls-exporter,,n=user,r=abc", true), Step::Failed(Failure::Wrong));
    for bad in
        [&b"n,,m=x,n=user,r=abc"[..], b"n,,n=user,r=", b"n,,n=us=er,r=abc", b"n,,n=,r=a", b"n,,r=a", b"\xff"]
    {
        assert_eq!(say(bad, true), Step::Failed(Failure::Malformed), "{bad:?}");
    }
}

#[test]
fn nobody_acts_as_somebody_else() {
    let keys = keys_of(Mechanism::ScramSha256, PASSWORD);
    let facts = facts(ChannelBindings::default(), "def");
    let begin = |first: &[u8]| ServerExchange::begin(Mechanism::ScramSha256, facts.clone(), Some(first));
    let (mut server, _) = begin(b"n,a=root,n=user,r=abc");
    let Step::Challenge(server_first) = server.answer(Answer::Keys(Some(Box::new(keys)))) else { panic!() };
    // The proof of the right password, over the messages as they were.
    let (first, _) = client::First::begin(ScramHash::Sha256, (USER, PASSWORD), None, "abc").unwrap();
    let (_, last) = first.prove(&server_first).unwrap();
    let last =
        str::from_utf8(&last).unwrap().replace("c=biws", &format!("c={}", BASE64.encode(b"n,a=root,")));
    assert_eq!(server.respond(last.as_bytes()), Step::Failed(Failure::Wrong));
}

#[test]
fn a_client_refuses_a_server_that_cheats() {
    let begin = || client::First::begin(ScramHash::Sha256, (USER, PASSWORD), None, "abc").unwrap().0;
    for bad in [
        "r=abc,s=AAAA,i=4096",
        "r=xbcdef,s=AAAA,i=4096",
        "r=abcdef,s=AAAA,i=4095",
        "r=abcdef,s=AAAA,i=1000001",
        "r=abcdef,s=*,i=4096",
        "s=AAAA,r=abcdef,i=4096",
        "",
    ] {
        assert!(begin().prove(bad.as_bytes()).is_none(), "{bad}");
    }
    let (last, _) = begin().prove(b"r=abcdef,s=AAAA,i=4096").unwrap();
    assert!(
        !last.is_proved_by(b"v=AAAA") && !last.is_proved_by(b"e=invalid-proof") && !last.is_proved_by(b"")
    );
}

#[test]
fn keys_are_written_and_read() {
    let keys = keys_of(Mechanism::ScramSha1, PASSWORD);
    assert_eq!(ScramKeys::parse(ScramHash::Sha1, &keys.to_text()), Ok(keys.clone()));
    assert!(ScramKeys::parse(ScramHash::Sha256, &keys.to_text()).unwrap_err().contains("20 octets, not 32"));
    assert!(ScramKeys::parse(ScramHash::Sha1, "1,2").is_err());
    assert!(keys.is_of(PASSWORD) && !keys.is_of("pen"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_response_panics(response in proptest::collection::vec(any::<u8>(), 0..60), which in 0usize..4) {
        let mechanism = SCRAM[which];
        let (mut server, _) = ServerExchange::begin(mechanism, facts(bound(b"x"), "def"), Some(&response));
        server.answer(Answer::Keys(None));
        server.respond(&response);
    }
}
