//! No form of an address, sender, session or proxy makes the mail of a stranger leave for a foreign domain.

use crate::common::{Postrider, client::Client, free_address, sink::Sink, tls, until};
use std::{
    fs,
    io::Write as _,
    net::{SocketAddr, TcpStream},
};

/// Recipients that name a foreign domain beside this server: those of nmap's smtp-open-relay, and others. A server that looks for
/// the wrong part of them is an open relay.
const FORMS: [&str; 24] = [
    "victim@far.example",
    "victim@FAR.example",
    "\"victim@far.example\"",
    "\"victim%far.example\"",
    "victim%far.example",
    "victim%far.example@mx.test",
    "\"victim%far.example\"@[127.0.0.1]",
    "victim%far.example@[127.0.0.1]",
    "victim@far.example@mx.test",
    "victim@far.example@[127.0.0.1]",
    "\"victim@far.example\"@mx.test",
    "\"victim@far.example\"@[127.0.0.1]",
    "@mx.test:victim@far.example",
    "@[127.0.0.1]:victim@far.example",
    "@mx.test,@far.example:victim@far.example",
    "far.example!victim",
    "far.example!victim@mx.test",
    "far.example!victim@[127.0.0.1]",
    "victim@[203.0.113.5]",
    "victim@[IPv6:2001:db8::5]",
    "victim@mx.test@far.example",
    "victim@far.example.",
    "victim@far.examplemx.test",
    "victim@mx.test.far.example",
];

const SENDERS: [&str; 5] = ["", "spammer@far.example", "joe@mx.test", "joe@[127.0.0.1]", "jane@mx.test"];

/// Sessions of clients that may not relay.
#[derive(Debug, Clone, Copy)]
enum Session {
    Plain,
    AfterAFailedLogin,
    /// Commands and headers that name a trusted client, from a peer that may not name any.
    UnlistedXclient,
    UnlistedXforward,
    /// From a peer that may, for a client that may not relay.
    ListedXclient,
    ListedXclientWithALogin,
    ListedProxy,
    /// XFORWARD from a peer that is listed: the source that it names may relay, and that changes no right.
    ListedXforward,
}

const SESSIONS: [Session; 8] = [
    Session::Plain,
    Session::AfterAFailedLogin,
    Session::UnlistedXclient,
    Session::UnlistedXforward,
    Session::ListedXclient,
    Session::ListedXclientWithALogin,
    Session::ListedProxy,
    Session::ListedXforward,
];

/// A server that relays for 192.0.2.0/24 and logins only, to a next hop that takes everything.
struct Server {
    daemon: Postrider,
    /// Listeners whose peers may name a client.
    named: SocketAddr,
    proxied: SocketAddr,
    sink: Sink,
}

fn start() -> Server {
    let (named, proxied, sink) = (free_address(), free_address(), Sink::start());
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("users"), "jane:{PLAIN}secret\n").unwrap();
    let lists = "xclient = [\"127.0.0.1\"]\nxforward = [\"127.0.0.1\"]\n";
    let more = format!(
        "[[listen]]\naddress = \"{named}\"\n{lists}[[listen]]\naddress = \"{proxied}\"\nproxy = [\"127.0.0.1\"]\n\
         [relay]\nnetworks = [\"192.0.2.0/24\"]\n[local]\ndomains = [\"mx.test\", \"localhost\"]\nusers = [\"joe\"]\n\
         [auth]\nusers = \"passwd:users\"\nallow_clear_text = true\n[log]\nfile = \"mail.log\"\n\
         [limits]\nmax_errors = 1000\nmax_rejected_recipients = 1000\nmax_junk_commands = 1000\n\
         [[route]]\ndomains = [\"mx.test\", \"localhost\"]\nmaildir = \"data/mail/{{local}}\"\n{}",
        sink.route()
    );
    Server { daemon: Postrider::start_in(dir, free_address(), &more), named, proxied, sink }
}

impl Server {
    fn session(&self, session: Session) -> Client {
        let said = |client: &mut Client, line: &str, expected: char| {
            let (_, reply) = client.say(line).unwrap();
            assert!(reply.starts_with(expected), "{line}: {reply}");
        };
        match session {
            Session::Plain => Client::connect(self.daemon.address).unwrap(),
            Session::AfterAFailedLogin => {
                let mut client = Client::connect(self.daemon.address).unwrap();
                // jane, with a wrong password.
                said(&mut client, "AUTH PLAIN AGphbmUAd3Jvbmc=", '5');
                client
            }
            Session::UnlistedXclient | Session::UnlistedXforward => {
                let mut client = Client::connect(self.daemon.address).unwrap();
                let verb = if matches!(session, Session::UnlistedXclient) { "XCLIENT" } else { "XFORWARD" };
                said(&mut client, &format!("{verb} ADDR=192.0.2.1 NAME=friend.test"), '5');
                client
            }
            Session::ListedXclient | Session::ListedXclientWithALogin => {
                let mut client = Client::connect(self.named).unwrap();
                let login = if matches!(session, Session::ListedXclient) { "" } else { " LOGIN=jane" };
                said(&mut client, &format!("XCLIENT ADDR=203.0.113.9 NAME=spam.test{login}"), '2');
                said(&mut client, "EHLO spam.test", '2');
                client
            }
            Session::ListedXforward => {
                let mut client = Client::connect(self.named).unwrap();
                said(&mut client, "XFORWARD ADDR=192.0.2.1 NAME=friend.test", '2');
                client
            }
            Session::ListedProxy => {
                let mut client = Client::begin(self.proxied).unwrap();
                client.write(b"PROXY TCP4 203.0.113.9 192.0.2.1 1000 25\r\n").unwrap();
                client.reply().unwrap();
                said(&mut client, "EHLO spam.test", '2');
                client
            }
        }
    }
}

#[test]
fn no_form_of_an_address_relays_in_any_session() {
    let server = start();
    let mut tried = 0;
    for session in SESSIONS {
        let mut client = server.session(session);
        for from in SENDERS {
            for form in FORMS {
                tried += 1;
                let (_, reply) = client.say(&format!("MAIL FROM:<{from}>")).unwrap();
                // A login may use its own addresses only.
                if reply.starts_with("553 5.7.1") && matches!(session, Session::ListedXclientWithALogin) {
                    continue;
                }
                assert!(reply.starts_with("250"), "{session:?}: {from}: {reply}");
                let (_, reply) = client.say(&format!("RCPT TO:<{form}>")).unwrap();
                let is_refused =
                    ["550 5.7.1", "501 5.1.3", "553 5.1.3", "550 5.1.1", "501 5.5.2", "501 5.5.4"]
                        .iter()
                        .any(|refusal| reply.starts_with(refusal));
                assert!(is_refused, "{session:?}, from <{from}> to <{form}>: {reply}");
                client.say("RSET").unwrap();
            }
        }
        // The session still takes what is ours to take.
        let (code, reply) =
            client.send("jane@mx.test", &["joe@mx.test"], b"Subject: x\r\n\r\nx\r\n").unwrap();
        assert_eq!(code, 250, "{session:?}: {reply}");
    }
    assert_eq!(tried, SESSIONS.len() * SENDERS.len() * FORMS.len());
    until("the local mail has arrived", || server.daemon.mailbox("joe").len() == SESSIONS.len());
    until("nothing else waits", || server.daemon.counter("queued") == 0);
    assert_eq!(server.sink.count(), 0);
}

#[test]
fn a_proxy_header_of_an_unlisted_peer_is_no_command() {
    let server = start();
    let mut stream = TcpStream::connect(server.daemon.address).unwrap();
    let header = "PROXY TCP4 192.0.2.1 192.0.2.1 1000 25\r\nEHLO friend.test\r\nMAIL FROM:<a@far.example>\r\n\
                  RCPT TO:<victim@far.example>\r\nDATA\r\nSubject: x\r\n\r\nx\r\n.\r\nQUIT\r\n";
    stream.write_all(header.as_bytes()).unwrap();
    let mut said = String::new();
    let _ = std::io::Read::read_to_string(&mut stream, &mut said);
    assert!(!said.contains("354"), "{said}");
    assert_eq!((server.sink.count(), server.daemon.counter("queued")), (0, 0));
}

#[test]
fn nmap_finds_no_open_relay() {
    let Some(mut nmap) = crate::common::program("nmap") else { return };
    let server = start();
    let port = server.daemon.address.port().to_string();
    nmap.args(["-Pn", "-n", "-p", &port, "--script", "+smtp-open-relay", "127.0.0.1"]);
    let output = nmap.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("doesn't seem to be an open relay, all tests failed"), "{said}");
    assert_eq!(server.sink.count(), 0);
}

/// The peers are themselves in `relay.networks`, as by default.
#[test]
fn a_client_never_gets_the_rights_of_the_peer_that_speaks_for_it() {
    let (named, proxied, sink) = (free_address(), free_address(), Sink::start());
    let more = format!(
        "[[listen]]\naddress = \"{named}\"\nxclient = [\"127.0.0.1\"]\n\
         [[listen]]\naddress = \"{proxied}\"\nproxy = [\"127.0.0.1\"]\n{}",
        sink.route()
    );
    let _daemon = Postrider::start_in(tempfile::tempdir().unwrap(), free_address(), &more);
    let xclient = |line: &str| {
        let mut client = Client::connect(named).unwrap();
        assert_eq!(client.say(line).unwrap().0, 220, "{line}");
        client.say("EHLO spam.test").unwrap();
        client
    };
    // STARTTLS forgets what was said, but not whose the connection is.
    for line in ["XCLIENT ADDR=203.0.113.9", "XCLIENT ADDR=[UNAVAILABLE] NAME=[UNAVAILABLE]"] {
        let (mut client, hello) =
            tls::Client::starttls_after(xclient(line), &tls::client_config(None)).unwrap();
        assert!(!hello.contains("XCLIENT"), "{hello}");
        assert!(client.say("MAIL FROM:<x@spam.test>").unwrap().starts_with("250"));
        let reply = client.say("RCPT TO:<joe@far.test>").unwrap();
        assert!(reply.starts_with("550 5.7.1"), "{line}: {reply}");
        assert!(client.say("XCLIENT ADDR=127.0.0.1").unwrap().starts_with('5'));
    }
    let mut client = xclient("XCLIENT ADDR=203.0.113.9");
    assert_eq!(client.say("XCLIENT ADDR=127.0.0.1").unwrap().0, 550);
    client.say("MAIL FROM:<x@spam.test>").unwrap();
    assert_eq!(client.say("RCPT TO:<joe@far.test>").unwrap().0, 550);
    // Of a client that the load balancer does not know, nothing is known.
    let v2 = |head: [u8; 4]| [&b"\r\n\r\n\0\r\nQUIT\n"[..], &head].concat();
    for (header, code) in [
        (b"PROXY UNKNOWN\r\n".to_vec(), 550),
        (v2([0x21, 0, 0, 0]), 550),
        // Its own connection.
        (v2([0x20, 0, 0, 0]), 250),
    ] {
        let mut client = Client::begin(proxied).unwrap();
        client.write(&header).unwrap();
        client.reply().unwrap();
        client.say("EHLO spam.test").unwrap();
        client.say("MAIL FROM:<x@spam.test>").unwrap();
        assert_eq!(client.say("RCPT TO:<joe@far.test>").unwrap().0, code, "{header:?}");
    }
    assert_eq!(sink.count(), 0);
}
