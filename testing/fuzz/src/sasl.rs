//! SASL exchanges with a peer that says anything.

use auth::{
    Answer, ChannelBindings, ClientCredentials, ClientExchange, Introspected, Mechanism, PasswdFile,
    Question, ScramHash, ScramKeys, Secret, ServerExchange, ServerFacts, Step, TokenAdvice, TokenDemands,
    read_answer,
};
use std::{num::NonZeroU32, sync::OnceLock};

/// A client that says anything, a line for each message: it asks the store at most once, and nobody is authenticated whom the
/// store or the certificate does not know. The first byte chooses mechanism, store and certificate.
pub fn sasl_server(bytes: &[u8]) {
    let Some((choice, lines)) = bytes.split_first() else { return };
    let mechanism = mechanism(*choice);
    let (is_known, has_certificate) = (choice & 16 != 0, choice & 32 != 0);
    let facts = ServerFacts {
        bindings: ChannelBindings { exporter: Some(b"exporter"[..].into()), end_point: None },
        offers_plus: choice & 64 != 0,
        certificate: has_certificate.then(|| "certificate".into()).into_iter().collect(),
        token_advice: TokenAdvice::default(),
        nonce: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".into(),
        decoy: Secret::new("decoy"),
    };
    let mut lines = lines.split(|b| *b == b'\n');
    let (mut exchange, mut step) = ServerExchange::begin(mechanism, facts, lines.next());
    let mut is_asked = false;
    loop {
        step = match step {
            Step::Ask(question) => {
                assert!(!std::mem::replace(&mut is_asked, true), "{mechanism} asks twice");
                exchange.answer(answer(question, is_known))
            }
            Step::Challenge(challenge) => {
                assert!(!challenge.contains(&b'\n') && std::str::from_utf8(&challenge).is_ok());
                let Some(line) = lines.next() else { return };
                exchange.respond(line)
            }
            Step::Authenticated(login) => {
                let by_certificate = mechanism == Mechanism::External;
                assert!(if by_certificate { has_certificate } else { is_known && is_asked });
                return assert!(!login.is_empty());
            }
            Step::Failed(_) => return,
        };
    }
}

/// A server that says anything, a line for each challenge: a client of SCRAM never takes a success before the server's proof.
pub fn sasl_client(bytes: &[u8]) {
    let Some((choice, lines)) = bytes.split_first() else { return };
    let mechanism = mechanism(*choice);
    let credentials = ClientCredentials { user: "user".into(), secret: Secret::new("pencil") };
    let bindings = ChannelBindings { exporter: None, end_point: Some(b"hash"[..].into()) };
    let begun = ClientExchange::begin(mechanism, &credentials, &bindings, "rOprNGfwEbeRWgbNEkqO");
    let (mut client, _) = begun.expect("good credentials");
    for (count, line) in lines.split(|b| *b == b'\n').take(4).enumerate() {
        assert!(mechanism.scram_hash().is_none() || count >= 2 || !client.may_succeed());
        if client.respond(line).is_err() {
            return assert!(!client.may_succeed());
        }
    }
}

fn mechanism(choice: u8) -> Mechanism {
    let all: Vec<Mechanism> = Mechanism::all().collect();
    all[usize::from(choice & 15) % all.len()]
}

fn answer(question: Question, is_known: bool) -> Answer {
    static KEYS: OnceLock<[ScramKeys; 2]> = OnceLock::new();
    let keys = || {
        let salt = [91, 109, 153, 104, 157, 18, 53, 142, 236, 160, 75, 20, 18, 54, 250, 129];
        [ScramHash::Sha1, ScramHash::Sha256].map(|hash| {
            ScramKeys::derive(hash, "pencil", &salt, NonZeroU32::new(4096).expect("4096")).expect("pencil")
        })
    };
    match question {
        _ if !is_known => Answer::Wrong,
        Question::Password { user, .. } => Answer::Right(user),
        Question::Token { .. } => Answer::Right("somebody".into()),
        Question::Keys { hash, .. } => {
            let keys = KEYS.get_or_init(keys).iter().find(|keys| keys.hash == hash);
            Answer::Keys(keys.cloned().map(Box::new))
        }
    }
}

/// The answer of a server that introspects tokens: only one that says that the token is active makes a login, which is no text for
/// two lines of a log, and the token is remembered for no longer than it is valid.
pub fn introspection_answer(bytes: &[u8]) {
    const NOW: u64 = 1_800_000_000;
    let demands = TokenDemands { claim: "username".into(), scopes: vec!["mail".into()], audience: None };
    for audience in [None, Some("mx.test")] {
        let demands = TokenDemands { audience: audience.map(Into::into), ..demands.clone() };
        if let Ok(Introspected::Active { token, expires_in }) = read_answer(bytes, &demands, NOW) {
            let text = std::str::from_utf8(bytes).expect("JSON is UTF-8");
            assert!(text.contains("true") && text.contains('{'), "{text}");
            assert!(!token.login.is_empty() && !token.login.contains(char::is_control));
            assert!(expires_in.is_none_or(|time| !time.is_zero()));
        }
    }
}

/// A file of users: it is read or refused with the places of the bad lines, and no password shows in a message.
pub fn passwd_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match PasswdFile::parse(text) {
        Ok(users) => {
            let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
            assert_eq!(users.count(), lines.count());
            assert_eq!(users.kinds().is_empty(), users.count() == 0);
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            for problem in problems {
                let line = text.lines().nth(problem.line - 1).expect("the line is one of the file");
                assert!(
                    problem.column >= 1 && problem.column <= line.chars().count() + 1,
                    "{line:?}: {problem:?}"
                );
            }
        }
    }
}
