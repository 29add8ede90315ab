//! No rule lets a stranger relay.

use crate::{snapshot::ConfigSnapshot, wiring};
use accept::{
    check::View,
    decisions::{Accepted, Decisions},
    pipeline::SessionMemory,
};
use mail::{
    ClientCertificate, Envelope, ForwardPath, ListenerKind, Origin, QueueId, ReceivedContent, Recipient,
    ReversePath, UnixMillis,
};
use policy::{SessionFacts, Source, Stage};
use proptest::prelude::*;
use std::{fmt::Write as _, net::IpAddr};

/// Recipients that strangers try, with everything that once was a route (RFC 821 §3.6, and the tests of relay testers).
const RECIPIENTS: [&str; 14] = [
    "joe@here.test",
    "postmaster",
    "x@far.test",
    "x@sub.here.test",
    "x%far.test@here.test",
    "\"x@far.test\"@here.test",
    "\"x%far.test\"@here.test",
    "far.test!x@here.test",
    "x@far.test%here.test",
    "x%here.test@far.test",
    "\"joe@here.test\"@far.test",
    "x@[192.0.2.1]",
    "x@[127.0.0.1]",
    "alias@here.test",
];

#[derive(Debug, Clone)]
struct Client {
    address: &'static str,
    listener: ListenerKind,
    has_login: bool,
    has_certificate: bool,
    sender: &'static str,
}

impl Client {
    fn is_trusted(&self) -> bool {
        self.listener != ListenerKind::Lmtp && (self.has_login || self.address.starts_with("10."))
    }
}

fn client() -> impl Strategy<Value = Client> {
    let listener = prop::sample::select(vec![ListenerKind::Mx, ListenerKind::Submission, ListenerKind::Lmtp]);
    let address = prop::sample::select(vec!["203.0.113.7", "10.1.2.3", "127.0.0.1", "::ffff:203.0.113.7"]);
    let sender = prop::sample::select(vec!["x@far.test", "joe@here.test", ""]);
    (address, listener, any::<[bool; 2]>(), sender).prop_map(
        |(address, listener, [has_login, has_certificate], sender)| Client {
            address,
            listener,
            has_login,
            has_certificate,
            sender,
        },
    )
}

/// The text of a rule: some conditions, and a verdict or a change.
fn rule() -> impl Strategy<Value = String> {
    let condition = prop::sample::select(vec![
        "",
        "client = [\"0.0.0.0/0\", \"::/0\"]\n",
        "client = [\"203.0.113.0/24\"]\n",
        "from = [\"*\", \"<>\"]\n",
        "from = [\"text:missing\"]\n",
        "to = [\"far.test\"]\n",
        "to = [\"*\"]\n",
        "hello = [\"map:down\"]\n",
        "recipients = 1\n",
        "over = [\"some\"]\n",
        "certificate = [\"*\"]\n",
        "certificate = [\"joe@here.test\", \"map:down\"]\n",
    ]);
    let verdict = prop::sample::select(vec![
        "accept = true\n",
        "hold = true\n",
        "discard = true\n",
        "trust = true\n",
        "tag = [\"x\"]\n",
        "redirect = [\"joe@here.test\"]\n",
        "bcc = [\"alias@here.test\"]\n",
        "ask = \"gone\"\n",
        "route = \"far\"\n",
        "reject = true\n",
    ]);
    let audience = prop::sample::select(vec!["untrusted", "users", "all"]);
    (condition, verdict, audience).prop_map(|(condition, verdict, audience)| {
        format!("[[rule]]\nfor = \"{audience}\"\n{condition}{verdict}")
    })
}

fn snapshot(rules: &[String]) -> Option<ConfigSnapshot> {
    let dir = tempfile::tempdir().unwrap();
    let mut text = String::from(
        "hostname = \"mx.here.test\"\n[local]\ndomains = [\"here.test\", \"mx.here.test\"]\n\
         [relay]\nnetworks = [\"10.0.0.0/8\"]\n[addresses]\nvirtual = [\"text:virtual\"]\n\
         [map.down]\nsocketmap = \"unix:down.sock\"\n[policy_service.gone]\naddress = \"unix:gone.sock\"\non_failure = \"pass\"\n\
         [[route]]\nname = \"far\"\nsmarthost = \"far.test:25\"\n[[limit]]\nname = \"some\"\nper = \"client\"\nrecipients = \"2/h\"\n[checks]\nhello = \"tag\"\n",
    );
    for rule in rules {
        let _ = writeln!(text, "{rule}");
    }
    std::fs::write(dir.path().join("virtual"), "alias@here.test joe@here.test\n").unwrap();
    std::fs::write(dir.path().join("p.toml"), text).unwrap();
    // A rule that another one hides is refused at load.
    let settings = config::load(Some(&dir.path().join("p.toml"))).ok()?;
    wiring::current(settings, None, None).ok()
}

/// The recipients of the message that a client gets accepted.
async fn accepted(config: &ConfigSnapshot, client: &Client, recipients: &[&str]) -> Vec<Recipient> {
    let address: IpAddr = client.address.parse().unwrap();
    let source = Source::Smtp {
        peer: (address, 1).into(),
        local: ([127, 0, 0, 1], 25).into(),
        listener: client.listener,
    };
    let facts = SessionFacts {
        hello: Some("mail.far.test".into()),
        certificate: client.has_certificate.then(|| {
            let addresses = vec!["joe@here.test".into()];
            ClientCertificate { is_trusted: true, addresses, ..ClientCertificate::default() }.into()
        }),
        login: client.has_login.then(|| "joe@here.test".into()),
        ..SessionFacts::new(source)
    };
    let mut memory = config.pipeline.begin(SessionMemory::default());
    let mut decisions = Decisions::default();
    let view = |stage| View::new(stage, config.rules(), &facts);
    let mut envelope = Envelope::new(ReversePath::parse(client.sender, true).unwrap());
    for stage in [Stage::Connect, Stage::Hello] {
        if config.pipeline.run(view(stage), &mut memory, &mut decisions).wait().await.is_err() {
            return Vec::new();
        }
    }
    memory.begin_transaction();
    let mail = view(Stage::Mail).with_envelope(&envelope);
    let begun = config.pipeline.run(mail, &mut memory, &mut decisions);
    if begun.wait().await.is_err() {
        return Vec::new();
    }
    for text in recipients {
        let Ok(path) = ForwardPath::parse(text, true) else { continue };
        let recipient = Recipient::new(path);
        let seen = View { recipient: Some(&recipient), ..view(Stage::Rcpt).with_envelope(&envelope) };
        if config.pipeline.run(seen, &mut memory, &mut decisions).wait().await.is_ok() {
            envelope.recipients.push(recipient);
        }
    }
    let content = ReceivedContent::from_bytes("Subject: x\r\n\r\nx\r\n", 0);
    if envelope.recipients.is_empty() {
        return Vec::new();
    }
    let seen = View {
        header: content.header(),
        content: Some(&content),
        ..view(Stage::Content).with_envelope(&envelope)
    };
    if config.pipeline.run(seen, &mut memory, &mut decisions).wait().await.is_err() {
        return Vec::new();
    }
    match decisions.finish(QueueId(1), UnixMillis(1), Origin::Dsn, envelope, content) {
        Accepted::Message { message, .. } => message.envelope.recipients,
        Accepted::Discarded { .. } => Vec::new(),
    }
}

fn is_local(recipient: &Recipient) -> bool {
    let Some(mailbox) = recipient.path.mailbox() else { return true };
    ["here.test", "mx.here.test", "[127.0.0.1]"].contains(&&*mailbox.domain().key())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever the rules say, and whatever fails: mail of an untrusted client leaves for no foreign domain.
    #[test]
    fn no_rule_lets_a_stranger_relay(rules in prop::collection::vec(rule(), 0..6), clients in prop::collection::vec(client(), 1..6)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _guard = runtime.enter();
        let Some(config) = snapshot(&rules) else { return Ok(()) };
        for client in clients {
            let recipients = runtime.block_on(accepted(&config, &client, &RECIPIENTS));
            for recipient in &recipients {
                prop_assert!(client.is_trusted() || is_local(recipient), "{client:?} reaches {}", recipient.path);
            }
        }
    }
}

#[test]
fn a_trusted_client_reaches_what_a_stranger_does_not() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    let config =
        snapshot(&["[[rule]]\nfrom = [\"far.test\"]\naccept = true\ntrust = true\n".to_owned()]).unwrap();
    let to = |address, has_login| {
        let (listener, sender) = (ListenerKind::Mx, "x@far.test");
        let client = Client { address, listener, has_login, has_certificate: true, sender };
        runtime.block_on(accepted(&config, &client, &["x@far.test"])).len()
    };
    assert_eq!([to("10.1.2.3", false), to("203.0.113.7", true), to("203.0.113.7", false)], [1, 1, 0]);
}
