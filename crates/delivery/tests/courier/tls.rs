//! TLS towards next hops: when it is used, with which certificates, and when it is given up.

use crate::support::{Queue, Server, TestWork, courier, courier_for_impatient, deliver, lease, tls_server};
use mail::TlsMode;
use rustls::{
    SignatureScheme,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use std::sync::Arc;

#[tokio::test]
async fn tls_is_used_when_offered_and_given_up_only_where_that_is_allowed() {
    let (config, certificate) = tls_server("localhost");
    let good = Server::with_tls(config);
    let mut broken = good.clone();
    broken.answers = vec![("STARTTLS", "454 not now")];
    let plain = Server::new(&[]);
    for (server, mode, is_sent, is_secured) in [
        (&good, TlsMode::Off, true, false),
        (&good, TlsMode::May, true, true),
        (&good, TlsMode::Require, true, true),
        (&good, TlsMode::Verify, false, false),
        (&broken, TlsMode::May, true, false),
        (&broken, TlsMode::Require, false, false),
        (&plain, TlsMode::May, true, false),
        (&plain, TlsMode::Require, false, false),
        (&plain, TlsMode::Verify, false, false),
    ] {
        let work = deliver(server, mode, vec![lease(1, 1)]).await;
        assert_eq!(work.unreachable.lock().unwrap().is_empty(), is_sent, "{mode:?}");
        if is_sent {
            assert_eq!(work.dispositions(1), ["sent"], "{mode:?}");
            assert_eq!(work.attempt(1).tls.starts_with("TLSv1.3:TLS_"), is_secured, "{mode:?}");
        }
    }
    // With its authority the host is who it says it is.
    let port = good.start().await;
    let work = TestWork::with([lease(1, 1)]);
    let (courier, destination) = courier(port, TlsMode::Verify, false, Some(vec![certificate]));
    courier.serve(&destination, &Queue(work.clone())).await;
    assert!(work.attempt(1).tls.ends_with(":verified"), "{}", work.attempt(1).tls);
}

/// A server with this certificate and key, whatever rustls thinks of them.
#[derive(Debug)]
struct Shows(Arc<rustls::sign::CertifiedKey>);

impl rustls::server::ResolvesServerCert for Shows {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<rustls::sign::CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// A key that signs with nothing but zeros.
#[derive(Debug, Clone)]
struct NoKey(SignatureScheme);

impl rustls::sign::SigningKey for NoKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn rustls::sign::Signer>> {
        offered.contains(&self.0).then(|| Box::new(self.clone()) as _)
    }

    fn algorithm(&self) -> rustls::SignatureAlgorithm {
        rustls::SignatureAlgorithm::RSA
    }
}

impl rustls::sign::Signer for NoKey {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        Ok(vec![0; 128])
    }

    fn scheme(&self) -> SignatureScheme {
        self.0
    }
}

/// A certificate of X.509 version 1 with an RSA key of 1,024 bits, which rustls would refuse.
fn small_rsa(scheme: SignatureScheme) -> rustls::sign::CertifiedKey {
    let certificate = CertificateDer::from_pem_slice(include_bytes!("../tls/v1-rsa1024.pem")).unwrap();
    rustls::sign::CertifiedKey::new(vec![certificate], Arc::new(NoKey(scheme)))
}

#[tokio::test]
async fn tls_that_is_not_verified_takes_any_certificate_that_tls_can_use() {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let v1_ec = || {
        let certificate = CertificateDer::from_pem_slice(include_bytes!("../tls/v1-ec.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("../tls/v1-ec.key")).unwrap();
        let key = provider.key_provider.load_private_key(key).unwrap();
        rustls::sign::CertifiedKey::new(vec![certificate], key)
    };
    let (pss, pkcs1) = (SignatureScheme::RSA_PSS_SHA256, SignatureScheme::RSA_PKCS1_SHA256);
    for (shown, version) in [
        (v1_ec(), &rustls::version::TLS13),
        (v1_ec(), &rustls::version::TLS12),
        (small_rsa(pss), &rustls::version::TLS13),
        (small_rsa(pss), &rustls::version::TLS12),
        (small_rsa(pkcs1), &rustls::version::TLS12),
    ] {
        let config = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Shows(Arc::new(shown))));
        let server = Server::with_tls(Arc::new(config));
        let work = deliver(&server, TlsMode::Require, vec![lease(1, 1)]).await;
        let unreachable = work.unreachable.lock().unwrap();
        assert!(unreachable.is_empty(), "{version:?}: {unreachable:?}");
        assert_eq!(work.dispositions(1), ["sent"]);
        let begin = if version.version == rustls::ProtocolVersion::TLSv1_3 { "TLSv1.3:" } else { "TLSv1.2:" };
        assert!(work.attempt(1).tls.starts_with(begin), "{}", work.attempt(1).tls);
    }
}

#[tokio::test]
async fn an_opportunistic_handshake_that_fails_goes_on_in_clear_text() {
    // Offers STARTTLS, says go, and then has no certificate to show.
    let mut server = Server::new(&[("STARTTLS", "220 go")]);
    server.extensions.push("STARTTLS");
    let mut no_tls = server;
    no_tls.tls = Some(Arc::new(
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new())),
    ));
    let work = deliver(&no_tls, TlsMode::May, vec![lease(1, 1)]).await;
    assert_eq!(work.dispositions(1), ["sent"]);
    assert_eq!(&*work.attempt(1).tls, "");
    let work = deliver(&no_tls, TlsMode::Require, vec![lease(1, 1)]).await;
    assert_eq!(work.unreachable.lock().unwrap()[0].status, mail::Enhanced(4, 7, 4));
}

#[tokio::test]
async fn opportunistic_tls_that_breaks_after_the_handshake_is_clear_text_in_the_next_attempt() {
    let (config, _) = tls_server("localhost");
    // Within TLS every connection breaks at once, or at the first message.
    for breaks_at in ["EHLO", "MAIL", "DATA", "."] {
        let server = Server { tls_breaks: Some((breaks_at, "CLOSE")), ..Server::with_tls(config.clone()) };
        let port = server.start().await;
        for (mode, falls_back) in [(TlsMode::May, true), (TlsMode::Require, false)] {
            let (courier, destination) = courier(port, mode, false, None);
            let mut ends = Vec::new();
            for id in 1..=3 {
                let work = TestWork::with([lease(id, 1)]);
                courier.serve(&destination, &Queue(work.clone())).await;
                let is_sent =
                    work.unreachable.lock().unwrap().is_empty() && work.dispositions(id) == ["sent"];
                assert!(!is_sent || work.attempt(id).tls.is_empty());
                ends.push(is_sent);
            }
            assert_eq!(ends, [false, falls_back, falls_back], "{breaks_at} {mode:?}");
        }
    }
}

#[tokio::test]
async fn starttls_that_is_answered_by_a_close_or_by_silence_is_clear_text_in_the_next_attempt() {
    let (config, _) = tls_server("localhost");
    for (command, how) in [
        ("STARTTLS", "CLOSE"),
        ("STARTTLS", "SILENT"),
        ("STARTTLS", "421 4.3.0 closing"),
        // TLS that stops in the middle, as over a path that loses large packets.
        ("DATA", "SILENT"),
    ] {
        let mut server = Server::with_tls(config.clone());
        match command {
            "STARTTLS" => server.answers = vec![(command, how)],
            _ => server.tls_breaks = Some((command, how)),
        }
        let port = server.start().await;
        let (courier, destination) = courier_for_impatient(port);
        let mut ends = Vec::new();
        for id in 1..=3 {
            let work = TestWork::with([lease(id, 1)]);
            courier.serve(&destination, &Queue(work.clone())).await;
            ends.push(work.unreachable.lock().unwrap().is_empty() && work.dispositions(id) == ["sent"]);
        }
        assert_eq!(ends, [false, true, true], "{command} {how}");
    }
}

#[tokio::test]
async fn a_server_that_wants_tls_which_broke_is_no_reason_to_return_mail() {
    let (config, _) = tls_server("localhost");
    for refusal in [
        "530 5.7.0 Must issue a STARTTLS command first",
        "550 5.7.10 Encryption required",
        "554 5.7.1 Must use TLS",
        "550 encryption please",
        "451 4.7.1 TLS please",
    ] {
        let mut server = Server { tls_breaks: Some(("DATA", "CLOSE")), ..Server::with_tls(config.clone()) };
        server.clear_text_answer = Some(("MAIL", refusal));
        let port = server.start().await;
        let (courier, destination) = courier(port, TlsMode::May, false, None);
        for id in 1..=3 {
            let work = TestWork::with([lease(id, 1)]);
            courier.serve(&destination, &Queue(work.clone())).await;
            assert_eq!(work.dispositions(id), ["deferred"], "{id} {refusal}");
        }
    }
}

#[tokio::test]
async fn a_server_that_refuses_clear_text_gets_tls_again_in_the_same_attempt() {
    let (config, _) = tls_server("localhost");
    for (command, refusal, disposition) in [
        ("MAIL", "530 5.7.0 Must issue a STARTTLS command first", "sent"),
        ("MAIL", "550 5.7.10 Encryption required", "sent"),
        ("MAIL", "550 encryption please", "sent"),
        ("MAIL", "451 4.7.1 TLS please", "sent"),
        ("RCPT", "554 5.7.1 Must use TLS", "sent"),
        ("DATA", "554 5.7.1 Must use TLS", "sent"),
        ("MAIL", "503 5.5.1 STARTTLS first", "sent"),
        ("MAIL", "555 5.5.4 not so", "sent"),
        ("RCPT", "550 TLS required", "sent"),
        ("RCPT", "550 5.0.0 not so", "sent"),
        ("DATA", "554 TLS required", "sent"),
        // A verdict on the mailbox, whoever asks.
        ("RCPT", "550 5.1.1 no such user", "bounced"),
    ] {
        let mut server = Server { tls_breaks: Some(("MAIL", "CLOSE")), ..Server::with_tls(config.clone()) };
        server.clear_text_answer = Some((command, refusal));
        server.tls_breaks_once = Some(Arc::default());
        let port = server.start().await;
        let (courier, destination) = courier(port, TlsMode::May, false, None);
        let mut ends = Vec::new();
        for id in 1..=2 {
            let work = TestWork::with([lease(id, 2)]);
            courier.serve(&destination, &Queue(work.clone())).await;
            ends.push(work.dispositions(id));
        }
        assert_eq!(ends, [["deferred"; 2], [disposition; 2]], "{command} {refusal}");
    }
}

#[tokio::test]
async fn a_refusal_without_a_reason_is_believed_when_tls_breaks_again() {
    let (config, _) = tls_server("localhost");
    let mut server = Server { tls_breaks: Some(("MAIL", "CLOSE")), ..Server::with_tls(config) };
    server.clear_text_answer = Some(("RCPT", "550 no such user"));
    let port = server.start().await;
    let (courier, destination) = courier(port, TlsMode::May, false, None);
    let mut ends = Vec::new();
    for id in 1..=4 {
        let work = TestWork::with([lease(id, 1)]);
        courier.serve(&destination, &Queue(work.clone())).await;
        ends.extend(work.dispositions(id));
    }
    assert!(ends.contains(&"bounced"), "{ends:?}");
}

#[tokio::test]
async fn a_recipient_at_whom_a_server_goes_away_takes_tls_from_nobody() {
    let (config, _) = tls_server("localhost");
    let server = Server { tls_breaks: Some(("RCPT", "CLOSE")), ..Server::with_tls(config) };
    let port = server.start().await;
    let (courier, destination) = courier(port, TlsMode::May, false, None);
    for id in 1..=3 {
        let work = TestWork::with([lease(id, 1)]);
        courier.serve(&destination, &Queue(work.clone())).await;
        assert_eq!(work.dispositions(id), ["deferred"]);
        assert!(!work.attempt(id).tls.is_empty(), "{id}");
    }
}

#[tokio::test]
async fn a_server_that_breaks_in_clear_text_too_is_tried_by_tls_again() {
    let (config, _) = tls_server("localhost");
    let mut server = Server::with_tls(config);
    server.answers.push(("MAIL", "CLOSE"));
    let port = server.start().await;
    let (courier, destination) = courier(port, TlsMode::May, false, None);
    let mut secured = Vec::new();
    for id in 1..=4 {
        let work = TestWork::with([lease(id, 1)]);
        courier.serve(&destination, &Queue(work.clone())).await;
        secured.push(!work.attempt(id).tls.is_empty());
    }
    assert_eq!(secured, [true, false, true, false]);
}

#[tokio::test]
async fn a_server_that_closes_behind_its_limit_of_recipients_is_not_taken_for_broken_tls() {
    let (config, _) = tls_server("localhost");
    let server = Server { too_many: Some((3, "CLOSE")), ..Server::with_tls(config.clone()) };
    let work = deliver(&server, TlsMode::May, vec![lease(1, 7)]).await;
    assert_eq!(work.dispositions(1), ["sent"; 7]);
    assert_eq!((server.count("STARTTLS"), work.attempt(1).tls.is_empty()), (2, false));
    let refuses_larger = Some((3, "DATA", "CLOSE"));
    let server = Server { refuses_larger, ..Server::with_tls(config.clone()) };
    let work = deliver(&server, TlsMode::May, vec![lease(1, 7)]).await;
    assert_eq!(work.dispositions(1), ["sent"; 7]);
    assert_eq!((server.count("STARTTLS"), work.attempt(1).tls.is_empty()), (2, false));
    // The server refuses a transaction for its number of recipients, and closes when the next one begins.
    let refuses_larger = Some((3, "DATA", "552 5.5.3 too many"));
    let server = Server { refuses_larger, transactions_max: 1, ..Server::with_tls(config) };
    let work = deliver(&server, TlsMode::May, vec![lease(1, 3 + 3)]).await;
    assert_eq!(work.dispositions(1), ["sent"; 6]);
    assert_eq!((server.count("STARTTLS"), work.attempt(1).tls.is_empty()), (3, false));
}
