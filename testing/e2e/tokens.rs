//! Logins by token (RFC 7628), with a small server that introspects them (RFC 7662).

use crate::common::{Postrider, client::Client, free_address, record::seen, until};
use std::{
    collections::HashMap,
    fs,
    io::{BufRead as _, BufReader, Read, Write},
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixListener,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The requests that the server takes; by a Unix socket the path is always the same.
const SERVED: [&str; 2] = ["POST /introspect?a=b HTTP/1.1", "POST / HTTP/1.1"];

/// A server that knows some tokens, and counts the requests.
#[derive(Default)]
struct Issuer {
    asked: AtomicUsize,
}

impl Issuer {
    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Listens on a free port, and answers every request.
    fn listen(self: &Arc<Self>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (own, address) = (self.clone(), listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let own = own.clone();
                std::thread::spawn(move || own.answer(stream));
            }
        });
        address
    }

    /// Reads one request, and answers it.
    fn answer(&self, stream: impl Read + Write) {
        let mut reader = BufReader::new(stream);
        let (mut head, mut line) = (HashMap::new(), String::new());
        let mut request = String::new();
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            match line.trim_end().split_once(": ") {
                Some((name, value)) => drop(head.insert(name.to_lowercase(), value.to_owned())),
                None if line.trim_end().is_empty() => break,
                None => request = line.trim_end().to_owned(),
            }
        }
        let length = head["content-length"].parse().unwrap();
        let mut form = vec![0; length];
        reader.read_exact(&mut form).unwrap();
        self.asked.fetch_add(1, Ordering::SeqCst);
        let form = String::from_utf8(form).unwrap();
        assert_eq!(head["content-type"], "application/x-www-form-urlencoded");
        let is_known = head.get("authorization").is_some_and(|basic| basic == "Basic bXg6c2VjcmV0");
        let token = form.strip_prefix("token=").and_then(|form| form.split('&').next()).unwrap();
        let (status, body) = if !is_known || !SERVED.contains(&&*request) {
            ("401 Unauthorized", String::new())
        } else {
            answer_about(token)
        };
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let _ = reader.get_mut().write_all(answer.as_bytes());
        let _ = reader.get_mut().flush();
    }
}

fn answer_about(token: &str) -> (&'static str, String) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let active = |scope: &str, exp: u64| {
        format!(r#"{{"active":true,"username":"jane","scope":"{scope}","exp":{exp},"aud":"mx.test"}}"#)
    };
    match token {
        "good%2B%2F%3D" | "good" => ("200 OK", active("openid mail", now + 3600)),
        "brief" => ("200 OK", active("mail", now + 2)),
        "expired" => ("200 OK", active("mail", now - 1)),
        "reader" => ("200 OK", active("openid", now + 3600)),
        "else" => ("200 OK", active("mail", now + 3600).replace("mx.test", "else.test")),
        "broken" => ("200 OK", "{\"active\":tr".to_owned()),
        "large" => ("200 OK", " ".repeat(100_000) + &active("mail", now + 3600)),
        "down" => ("503 Service Unavailable", String::new()),
        "slow" => {
            std::thread::park_timeout(Duration::from_secs(20));
            ("200 OK", active("mail", now + 3600))
        }
        _ => ("200 OK", r#"{"active":false}"#.to_owned()),
    }
}

/// A daemon whose tokens are introspected there, and the address of its listener for submission.
fn daemon(introspection: &str, more: &str) -> (Postrider, SocketAddr) {
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    fs::write(dir.path().join("id.secret"), "secret\n").unwrap();
    fs::write(dir.path().join("users"), "jane:{PLAIN}secret\n").unwrap();
    let config = config(address, introspection, more);
    (Postrider::start_in(dir, free_address(), &config), address)
}

fn config(address: SocketAddr, introspection: &str, more: &str) -> String {
    format!(
        "[[listen]]\naddress = \"{address}\"\nkind = \"submission\"\n[relay]\nnetworks = [\"192.0.2.0/24\"]\n\
         [log]\nfile = \"mail.log\"\n[auth]\nallow_clear_text = true\n{more}\
         [oauth]\nintrospection = \"{introspection}\"\nclient_id = \"mx\"\nclient_secret = \"file:id.secret\"\n\
         scope = [\"mail\"]\naudience = \"mx.test\"\ntimeout = \"5s\"\n\
         openid_configuration = \"https://id.test/.well-known/openid-configuration\"\n"
    )
}

fn base64(text: &str) -> String {
    data_encoding::BASE64.encode(text.as_bytes())
}

fn bearer(user: &str, token: &str) -> String {
    let authzid = if user.is_empty() { String::new() } else { format!("a={user}") };
    let message = format!("n,{authzid},\x01host=mx.test\x01auth=Bearer {token}\x01\x01");
    format!("AUTH OAUTHBEARER {}", base64(&message))
}

fn xoauth2(user: &str, token: &str) -> String {
    format!("AUTH XOAUTH2 {}", base64(&format!("user={user}\x01auth=Bearer {token}\x01\x01")))
}

fn say(client: &mut Client, line: &str, expected: &str) {
    let (_, reply) = client.say(line).unwrap();
    assert!(reply.starts_with(expected), "{line}: {reply}");
}

#[test]
fn a_token_is_a_login_and_is_asked_about_once() {
    let issuer = Arc::new(Issuer::default());
    let (daemon, address) = daemon(&format!("http://{}/introspect?a=b", issuer.listen()), "");
    for line in [bearer("jane", "good+/="), xoauth2("JANE", "good+/="), bearer("", "good+/=")] {
        let mut client = Client::connect(address).unwrap();
        say(&mut client, "MAIL FROM:<jane@mx.test>", "530 5.7.0");
        say(&mut client, &line, "235 2.7.0");
        say(&mut client, "MAIL FROM:<joe@mx.test>", "553 5.7.1");
        say(&mut client, "MAIL FROM:<jane@mx.test>", "250");
        say(&mut client, "RCPT TO:<x@elsewhere.test>", "250");
    }
    assert_eq!(issuer.asked(), 1);
    // A token expires here, too, though it was remembered.
    let logs_in = || {
        let mut client = Client::connect(address).unwrap();
        client.say(&xoauth2("jane", "brief")).unwrap().0 == 235
    };
    assert!(logs_in() && logs_in());
    until("it is asked about again", || {
        logs_in();
        issuer.asked() > 2
    });
    let text = fs::read_to_string(daemon.dir.path().join("mail.log")).unwrap();
    assert!(!text.contains("good") && !text.contains("Bearer"), "no token is in the log: {text}");
}

#[test]
fn a_refused_token_gets_the_error_of_rfc_7628_and_a_server_that_does_not_answer_454() {
    let issuer = Arc::new(Issuer::default());
    let (daemon, address) = daemon(&format!("http://{}/introspect?a=b", issuer.listen()), "");
    let advice =
        r#""scope":"mail","openid-configuration":"https://id.test/.well-known/openid-configuration"}"#;
    for (line, error) in [
        (bearer("jane", "wrong"), format!(r#"{{"status":"invalid_token",{advice}"#)),
        (bearer("joe", "good"), format!(r#"{{"status":"invalid_token",{advice}"#)),
        (bearer("jane", "expired"), format!(r#"{{"status":"invalid_token",{advice}"#)),
        (bearer("jane", "else"), format!(r#"{{"status":"invalid_token",{advice}"#)),
        (bearer("jane", "reader"), format!(r#"{{"status":"insufficient_scope",{advice}"#)),
        (xoauth2("jane", "wrong"), format!(r#"{{"status":"401","schemes":"bearer",{advice}"#)),
    ] {
        let mut client = Client::connect(address).unwrap();
        say(&mut client, &line, &format!("334 {}", base64(&error)));
        say(&mut client, "AQ==", "535 5.7.8");
        say(&mut client, "MAIL FROM:<jane@mx.test>", "530");
    }
    for token in ["broken", "large", "down", "slow"] {
        let mut client = Client::connect(address).unwrap();
        say(&mut client, &bearer("jane", token), "454 4.7.0");
    }
    say(&mut Client::connect(address).unwrap(), "AUTH OAUTHBEARER eA==", "501 5.5.2");
    let failed = |line: &serde_json::Value| line["stage"] == "AUTH OAUTHBEARER" && line["login"] == "joe";
    until("the log names the login", || daemon.log().iter().any(failed));
    // A wrong secret of this server is no fault of its users.
    fs::write(daemon.dir.path().join("id.secret"), "other\n").unwrap();
    daemon.ask(&["reload"]);
    say(&mut Client::connect(address).unwrap(), &bearer("jane", "good"), "454 4.7.0");
}

#[test]
fn tokens_are_verified_over_a_unix_socket_and_over_https_by_a_trusted_server_only() {
    let dir = tempfile::tempdir().unwrap();
    let (issuer, socket) = (Arc::new(Issuer::default()), dir.path().join("v.sock"));
    let listener = UnixListener::bind(&socket).unwrap();
    let own = issuer.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            own.answer(stream);
        }
    });
    let tls = TlsIssuer::listen(issuer.clone(), dir.path());
    let ahead =
        format!("[process]\nextra_paths = [\"{}\"]\nextra_ports = [{}]\n", dir.path().display(), tls.port());
    let (by_unix, address) = daemon(&format!("unix:{}", socket.display()), &ahead);
    say(&mut Client::connect(address).unwrap(), &bearer("jane", "good"), "235");
    assert_eq!(issuer.asked(), 1);
    let trusted = format!("ca_file = \"{}\"\n", dir.path().join("issuer.pem").display());
    let url = format!("https://localhost:{}/introspect?a=b", tls.port());
    for (more, expected) in [(&*trusted, "235"), ("", "454")] {
        by_unix.reconfigure(&(config(address, &url, "") + more));
        by_unix.ask(&["reload"]);
        say(&mut Client::connect(address).unwrap(), &bearer("jane", "good"), expected);
    }
}

struct TlsIssuer;

impl TlsIssuer {
    /// Listens with TLS; writes the certificate to trust into `dir`.
    fn listen(issuer: Arc<Issuer>, dir: &std::path::Path) -> SocketAddr {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(dir.join("issuer.pem"), made.cert.pem()).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config =
            builder.unwrap().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key);
        let (config, listener) = (Arc::new(config.unwrap()), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let connection = rustls::ServerConnection::new(config.clone()).unwrap();
                issuer.answer(rustls::StreamOwned::new(connection, stream));
            }
        });
        address
    }
}

#[test]
fn auth_test_says_why_a_token_is_refused() {
    let issuer = Arc::new(Issuer::default());
    let (daemon, _) = daemon(&format!("http://{}/introspect?a=b", issuer.listen()), "");
    for (user, token, code, words) in [
        ("jane", "good", 0, "jane: the token is valid; it expires in 3"),
        ("joe", "good", 77, "joe: the token is that of jane"),
        ("jane", "wrong", 77, "the token is refused: it is not active"),
        ("jane", "else", 77, "the token is refused: it is not for the audience mx.test"),
        ("jane", "reader", 77, "the token lacks a scope: mail"),
        ("jane", "down", 75, "it answers 503"),
    ] {
        let output = daemon.run(&["auth", "test", "--token", user], &format!("{token}\n"));
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(words), "{token}: {said}");
    }
}

#[test]
fn passwords_and_tokens_are_offered_side_by_side() {
    let issuer = Arc::new(Issuer::default());
    let url = format!("http://{}/introspect?a=b", issuer.listen());
    let offers = |more: &str| {
        let (_daemon, address) = daemon(&url, more);
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        reader.read_line(&mut String::new()).unwrap();
        stream.write_all(b"EHLO x\r\nQUIT\r\n").unwrap();
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        said.lines().find_map(|line| line.strip_prefix("250-AUTH ")).unwrap_or("").to_owned()
    };
    assert_eq!(offers(""), "OAUTHBEARER XOAUTH2");
    assert_eq!(
        offers("users = \"passwd:users\"\n"),
        "SCRAM-SHA-256 SCRAM-SHA-1 OAUTHBEARER XOAUTH2 PLAIN LOGIN"
    );
    assert_eq!(offers("users = \"passwd:users\"\nmechanisms = [\"xoauth2\", \"plain\"]\n"), "XOAUTH2 PLAIN");
}

#[test]
fn curl_and_msmtp_log_in_with_a_token_over_tls() {
    let issuer = Arc::new(Issuer::default());
    let (daemon, address) = daemon(&format!("http://{}/introspect?a=b", issuer.listen()), "");
    let (mail, mut sent) = (daemon.dir.path().join("mail"), 0);
    fs::write(&mail, "From: jane@mx.test\r\nSubject: s\r\n\r\nbody\r\n").unwrap();
    for mechanism in ["OAUTHBEARER", "XOAUTH2"] {
        let Some(mut curl) = crate::common::program("curl") else { break };
        let output = curl
            .args(["-sS", "-v", "--ssl-reqd", "-k", "--url", &format!("smtp://{address}"), "--user", "jane:"])
            .args(["--oauth2-bearer", "good", "--login-options", &format!("AUTH={mechanism}")])
            .args(["--mail-from", "jane@mx.test", "--mail-rcpt", "joe@mx.test", "-T"])
            .arg(&mail)
            .output()
            .unwrap();
        assert!(output.status.success(), "{mechanism}: {}", String::from_utf8_lossy(&output.stderr));
        seen("curl", &format!("STARTTLS, AUTH {mechanism} with a token"), "delivered");
        sent += 1;
    }
    for mechanism in ["oauthbearer", "xoauth2"] {
        let Some(mut msmtp) = crate::common::program("msmtp") else { break };
        let mut child = msmtp
            .args([
                "--host=127.0.0.1",
                &format!("--port={}", address.port()),
                "--tls=on",
                "--tls-starttls=on",
            ])
            .args(["--tls-certcheck=off", &format!("--auth={mechanism}"), "--user=jane"])
            .args(["--passwordeval=echo good", "--from=jane@mx.test", "joe@mx.test"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&fs::read(&mail).unwrap()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{mechanism}: {}", String::from_utf8_lossy(&output.stderr));
        seen("msmtp", &format!("STARTTLS, AUTH {} with a token", mechanism.to_uppercase()), "delivered");
        sent += 1;
    }
    until("every mail is delivered", || daemon.mailbox("joe").len() == sent);
}
