//! Logins by client certificate (EXTERNAL), through the daemon.

use crate::common::{
    Postrider, free_address,
    record::seen,
    tls::{Authority, Certified, Client, client_config},
    until,
};
use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// A daemon with a listener that asks for certificates and has these keys, too, and the address of that listener.
fn daemon(kind: &str, wanted: &str, keys: &str) -> (Postrider, SocketAddr, Authority) {
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    let authority = Authority::new(&dir.path().join("clients.pem"));
    let daemon =
        Postrider::start_in(dir, free_address(), &text(address, kind, &format!("\"{wanted}\"\n{keys}"), ""));
    (daemon, address, authority)
}

fn text(address: SocketAddr, kind: &str, wanted: &str, more: &str) -> String {
    format!(
        "[[listen]]\naddress = \"{address}\"\nkind = \"{kind}\"\nclient_certificates = {wanted}\n\
         [tls]\nclient_ca_file = \"clients.pem\"\n[relay]\nnetworks = [\"192.0.2.0/24\"]\n\
         [log]\nfile = \"mail.log\"\n{more}"
    )
}

fn says(client: &mut Client, line: &str, expected: &str) {
    let reply = client.say(line).unwrap();
    assert!(reply.starts_with(expected), "{line}: {reply}");
}

fn base64(text: &str) -> String {
    data_encoding::BASE64.encode(text.as_bytes())
}

#[test]
fn the_mail_address_in_a_certificate_is_the_login_and_its_only_sender() {
    let (daemon, address, authority) = daemon("submission", "ask", "");
    let jane = authority.certify("Jane", &["jane@mx.test", "sales@mx.test"], "pc.test");
    let (mut client, said) = Client::starttls(address, &client_config(Some(&jane))).unwrap();
    assert!(said.contains("250-AUTH EXTERNAL\r"), "{said}");
    says(&mut client, "MAIL FROM:<jane@mx.test>", "530 5.7.0");
    says(&mut client, "AUTH EXTERNAL =", "235 2.7.0");
    says(&mut client, "MAIL FROM:<joe@mx.test>", "553 5.7.1");
    says(&mut client, "MAIL FROM:<jane@mx.test>", "250");
    says(&mut client, "RCPT TO:<joe@elsewhere.test>", "250");
    says(&mut client, "RCPT TO:<joe@mx.test>", "250");
    says(&mut client, "RSET", "250");
    says(&mut client, "MAIL FROM:<jane@mx.test>", "250");
    says(&mut client, "RCPT TO:<joe@mx.test>", "250");
    says(&mut client, "DATA", "354");
    says(&mut client, "Subject: s\r\n\r\nbody\r\n.", "250");
    until("the mail is in the Maildir", || !daemon.mailbox("joe").is_empty());
    let is_hers = |line: &serde_json::Value| line["event"] == "accepted" && line["login"] == "jane@mx.test";
    until("the log has the login", || daemon.log().iter().any(is_hers));
    // The client chooses among its names, in a response, too.
    let (mut client, _) = Client::starttls(address, &client_config(Some(&jane))).unwrap();
    says(&mut client, "AUTH EXTERNAL", "334");
    says(&mut client, &base64("sales@mx.test"), "235");
    says(&mut client, "MAIL FROM:<sales@mx.test>", "250");
    let (mut client, _) = Client::starttls(address, &client_config(Some(&jane))).unwrap();
    says(&mut client, &format!("AUTH EXTERNAL {}", base64("joe@mx.test")), "535 5.7.8");
    says(&mut client, "AUTH EXTERNAL =", "235");
}

#[test]
fn only_certificates_of_the_authority_that_are_valid_now_have_logins() {
    let (daemon, address, authority) = daemon("submissions", "ask", "");
    let hour = Duration::from_secs(3600);
    let late = authority.certify_until("Late", &["jane@mx.test"], "pc.test", SystemTime::now() - hour);
    let own = Certified::self_signed("Own", &["jane@mx.test"]);
    let nameless = authority.certify("Host", &[], "pc.test");
    for shown in [None, Some(&late), Some(&own), Some(&nameless)] {
        let (mut client, said) = Client::implicit(address, &client_config(shown)).unwrap();
        assert!(!said.contains("AUTH"), "{said}");
        says(&mut client, "AUTH EXTERNAL =", "5");
        says(&mut client, "MAIL FROM:<jane@mx.test>", "530");
    }
    // The other listener asks for none.
    let jane = authority.certify("Jane", &["jane@mx.test"], "pc.test");
    let (_, said) = Client::starttls(daemon.address, &client_config(Some(&jane))).unwrap();
    assert!(!said.contains("EXTERNAL"), "{said}");
}

#[test]
fn a_resumed_tls_session_has_the_certificate_of_its_first_handshake_as_long_as_it_is_valid() {
    let (daemon, address, authority) = daemon("submissions", "ask", "");
    let certify = |name: &str, user: &str, seconds: u64| {
        let end = SystemTime::now() + Duration::from_secs(seconds);
        (client_config(Some(&authority.certify_until(name, &[user], "pc.test", end))), end)
    };
    let has_logged_in = |config: &Arc<rustls::ClientConfig>, is_resumed: bool| {
        let (mut client, said) = Client::implicit(address, config).unwrap();
        assert_eq!(client.is_resumed(), is_resumed);
        let is_offered = said.contains("AUTH EXTERNAL");
        let is_in = is_offered && client.say("AUTH EXTERNAL =").unwrap().starts_with("235");
        says(&mut client, "QUIT", "221");
        is_in
    };
    let (jane, _) = certify("Jane", "jane@mx.test", 86400);
    assert!(has_logged_in(&jane, false) && has_logged_in(&jane, true));
    // On a machine that is busy, a certificate may expire before its two sessions.
    let mut lifetimes = [4, 16, 64].into_iter();
    let (brief, end) = loop {
        let (brief, end) =
            certify("Brief", "joe@mx.test", lifetimes.next().expect("two sessions take a minute"));
        let both = [has_logged_in(&brief, false), has_logged_in(&brief, true)];
        if SystemTime::now() <= end {
            assert_eq!(both, [true, true]);
            break (brief, end);
        }
    };
    until("the certificate has expired", || SystemTime::now() > end + Duration::from_secs(1));
    let (client, said) = Client::implicit(address, &brief).unwrap();
    assert!(client.is_resumed() && !said.contains("EXTERNAL"), "{said}");
    // A reload that takes the authority away ends what was trusted by it.
    Authority::new(&daemon.dir.path().join("clients.pem"));
    daemon.ask(&["reload"]);
    let (client, said) = Client::implicit(address, &jane).unwrap();
    assert!(!client.is_resumed() && !said.contains("EXTERNAL"), "{said}");
}

#[test]
fn a_listener_that_requires_a_certificate_has_no_session_without_one() {
    let (_daemon, address, authority) = daemon("mx", "require", "");
    let mut plain = crate::common::client::Client::connect(address).unwrap();
    assert!(plain.say("MAIL FROM:<a@b.test>").unwrap().1.starts_with("530 5.7.0"));
    let own = Certified::self_signed("Own", &["jane@mx.test"]);
    for shown in [None, Some(&own)] {
        assert!(Client::starttls(address, &client_config(shown)).is_err());
    }
    let host = client_config(Some(&authority.certify("Host", &[], "pc.test")));
    for _ in 0..2 {
        let (mut client, said) = Client::starttls(address, &host).unwrap();
        assert!(!said.contains("AUTH"), "{said}");
        says(&mut client, "MAIL FROM:<a@b.test>", "250");
        says(&mut client, "RCPT TO:<jane@mx.test>", "250");
        says(&mut client, "RCPT TO:<jane@elsewhere.test>", "550 5.7.1");
        says(&mut client, "QUIT", "221");
    }
}

#[test]
fn a_map_gives_certificates_their_logins_by_fingerprint_and_by_name() {
    let map =
        |dir: &Path| format!("[auth]\ncertificates = \"text:{}\"\n", dir.join("certificates").display());
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    let authority = Authority::new(&dir.path().join("clients.pem"));
    let own = Certified::self_signed("Printer", &["jane@mx.test"]);
    let host = authority.certify("Host", &["x@mx.test"], "Scanner.test");
    let listed = format!("sha256:{} printer@mx.test\nscanner.test scanner@mx.test\n", own.fingerprint());
    fs::write(dir.path().join("certificates"), listed).unwrap();
    let more = map(dir.path());
    let daemon = Postrider::start_in(dir, free_address(), &text(address, "submission", "\"ask\"", &more));
    for (shown, login) in [(&own, "printer@mx.test"), (&host, "scanner@mx.test")] {
        let (mut client, _) = Client::starttls(address, &client_config(Some(shown))).unwrap();
        says(&mut client, "AUTH EXTERNAL =", "235");
        says(&mut client, &format!("MAIL FROM:<{login}>"), "250");
    }
    // With a map, nothing else makes a login.
    let other = authority.certify("Other", &["jane@mx.test"], "pc.test");
    let (mut client, _) = Client::starttls(address, &client_config(Some(&other))).unwrap();
    says(&mut client, "AUTH EXTERNAL =", "535 5.7.8");
    // A map that does not answer refuses nobody for good.
    let down = "[auth]\ncertificates = \"map:down\"\n[map.down]\nsocketmap = \"unix:nobody\"\n";
    daemon.reconfigure(&text(address, "submission", "\"ask\"", down));
    daemon.ask(&["reload"]);
    let (mut client, _) = Client::starttls(address, &client_config(Some(&own))).unwrap();
    says(&mut client, "AUTH EXTERNAL =", "454 4.7.0");
}

#[test]
fn a_certificate_of_a_peer_is_not_that_of_the_client_it_names() {
    let (_daemon, address, authority) = daemon("submission", "ask", "xclient = [\"127.0.0.0/8\"]\n");
    let peer = authority.certify("Peer", &["peer@mx.test"], "pc.test");
    let (mut client, said) = Client::starttls(address, &client_config(Some(&peer))).unwrap();
    assert!(said.contains("AUTH EXTERNAL"), "{said}");
    says(&mut client, "XCLIENT ADDR=203.0.113.7", "220");
    let said = client.hello().unwrap();
    assert!(!said.contains("AUTH"), "{said}");
    says(&mut client, "AUTH EXTERNAL =", "5");
}

#[test]
fn openssl_and_gsasl_log_in_with_a_certificate() {
    let (daemon, address, authority) = daemon("submission", "ask", "");
    let jane = authority.certify("Jane", &["jane@mx.test"], "pc.test");
    let (certificate, key) = (daemon.dir.path().join("jane.pem"), daemon.dir.path().join("jane.key"));
    jane.write(&certificate, &key);
    if let Some(mut openssl) = crate::common::program("openssl") {
        let mut child = openssl
            .args(["s_client", "-starttls", "smtp", "-quiet", "-crlf", "-connect", &address.to_string()])
            .arg("-cert")
            .arg(&certificate)
            .arg("-key")
            .arg(&key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let dialog = b"EHLO client.test\nAUTH EXTERNAL =\nMAIL FROM:<jane@mx.test>\nQUIT\n";
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), dialog).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            said.contains("AUTH EXTERNAL") && said.contains("235 2.7.0") && said.contains("250 2.1.0"),
            "{said}"
        );
        seen(
            "OpenSSL",
            "s_client, STARTTLS with a client certificate, AUTH EXTERNAL",
            "235, and its sender is taken",
        );
    }
    if let Some(mut gsasl) = crate::common::program("gsasl") {
        let output = gsasl
            .args(["--client", "--smtp", &format!("--connect={address}"), "--starttls", "--x509-ca-file="])
            .args(["--mechanism=EXTERNAL", "--authorization-id=jane@mx.test"])
            .arg(format!("--x509-cert-file={}", certificate.display()))
            .arg(format!("--x509-key-file={}", key.display()))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("235 2.7.0"), "{said}");
        seen("gsasl", "STARTTLS with a client certificate, AUTH EXTERNAL", "235");
    }
}

/// A next hop that requires a certificate gets the one of [tls], and after a reload the new one.
#[test]
fn a_next_hop_that_asks_is_shown_the_certificate_for_next_hops() {
    let (partner, address, authority) =
        daemon("mx", "require", "[local]\ndomains = [\"mx.test\", \"partner.test\"]\n");
    let route = |keys: &str| {
        format!(
            "[relay]\nnetworks = [\"127.0.0.0/8\"]\n[log]\nfile = \"mail.log\"\n\
             [[route]]\ndomains = [\"partner.test\"]\nsmarthost = \"{address}\"\ntls = \"require\"\n{keys}"
        )
    };
    let us = Postrider::start(&route(""));
    let write = |shown: &Certified| {
        fs::write(us.dir.path().join("mx.pem"), &shown.pem).unwrap();
        fs::write(us.dir.path().join("mx.key"), shown.key.serialize_pem()).unwrap();
    };
    let mut client = crate::common::client::Client::connect(us.address).unwrap();
    assert_eq!(client.send("a@mx.test", &["jane@partner.test"], b"Subject: s\r\n\r\nx\r\n").unwrap().0, 250);
    let refused = || us.log().iter().filter(|line| line["event"] == "suspended").count();
    until("the partner refuses a client without a certificate", || refused() == 1);
    // That of a stranger does not help.
    write(&Certified::self_signed("Own", &["mx@mx.test"]));
    us.reconfigure(&route("[tls]\nnext_hop_certificate = \"mx.pem\"\nnext_hop_key = \"mx.key\"\n"));
    us.ask(&["reload"]);
    us.ask(&["queue", "flush"]);
    until("the partner refuses a client with a certificate of its own", || refused() == 2);
    assert!(partner.mailbox("jane").is_empty());
    // A reload reads the files again.
    write(&authority.certify("Us", &["mx@mx.test"], "mx.test"));
    us.ask(&["reload"]);
    us.ask(&["queue", "flush"]);
    until("the mail is at the partner's", || !partner.mailbox("jane").is_empty());
    let is_trusted = |line: &serde_json::Value| line["event"] == "client_tls" && line["trusted"] == true;
    until("the partner trusts it", || partner.log().iter().any(is_trusted));
}
