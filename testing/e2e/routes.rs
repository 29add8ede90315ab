//! Settings of routes, through the daemon: fallback, retries, lifetime, TLS.

use crate::common::{
    Postrider,
    client::Client,
    free_address,
    names::{NameServer, Record},
    sink::Sink,
    until,
};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, UdpSocket},
    os::unix::net::UnixListener,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const LOG: &str = "[log]\nfile = \"mail.log\"\n";

fn send(daemon: &Postrider, to: &str) {
    let mut client = Client::connect(daemon.address).unwrap();
    let reply = client.send("sender@far.test", &[to], b"Subject: x\r\n\r\nx\r\n").unwrap();
    assert_eq!(reply.0, 250, "{}", reply.1);
}

#[test]
fn mail_takes_the_fallback_while_the_next_hop_cannot_be_reached() {
    let dead = free_address();
    let backup = Sink::start();
    let route = format!(
        "[[route]]\ndomains = [\"*\"]\nsmarthost = \"{dead}\"\ntls = \"off\"\n\
         fallback = [\"{}\", \"{}\"]\n",
        free_address(),
        backup.address
    );
    let daemon = Postrider::start(&format!("{route}{LOG}[delivery]\nreuse_timeout = \"100ms\"\n"));
    send(&daemon, "one@b.test");
    until("the fallback has it", || backup.count() == 1);
    // A next hop that answers gets the mail, also mail that it refuses, and also while mail follows closely enough to keep
    // the connection to the fallback open.
    let main =
        Sink::at(dead, |command| command.starts_with("RCPT TO:<bad@").then(|| "550 5.1.1 no".to_owned()));
    until("the next hop has some", || {
        send(&daemon, "two@b.test");
        main.count() > 0
    });
    send(&daemon, "bad@b.test");
    until("it is returned", || daemon.counter("bounced") == 1);
    assert!(backup.messages().iter().all(|message| message.to != ["bad@b.test"]));
}

#[test]
fn a_greeting_that_refuses_is_no_host_that_can_be_used() {
    let main = Sink::with(|command| (command == "CONNECT").then(|| "554 5.7.1 go away".to_owned()));
    let backup = Sink::start();
    let daemon = Postrider::start(&format!(
        "[[route]]\ndomains = [\"*\"]\nsmarthost = \"{}\"\ntls = \"off\"\nfallback = [\"{}\"]\n",
        main.address, backup.address
    ));
    send(&daemon, "one@b.test");
    until("the fallback has it", || backup.count() == 1);
}

#[test]
fn a_route_has_a_lifetime_and_intervals_of_its_own() {
    let busy = Sink::with(|command| command.starts_with("RCPT").then(|| "450 4.2.1 busy".to_owned()));
    let dead = free_address();
    let daemon = Postrider::start(&format!(
        "[[route]]\ndomains = [\"busy.test\"]\nsmarthost = \"{}\"\ntls = \"off\"\nretry = [\"300ms\"]\nlifetime = \"10s\"\n\
         [[route]]\ndomains = [\"dead.test\"]\nsmarthost = \"{dead}\"\ntls = \"off\"\nlifetime = \"2s\"\n\
         [[route]]\ndomains = [\"slow.test\"]\nsmarthost = \"{}\"\ntls = \"off\"\n{LOG}",
        busy.address, busy.address
    ));
    let begun = Instant::now();
    for to in ["x@busy.test", "x@dead.test", "x@slow.test"] {
        send(&daemon, to);
    }
    until("two are returned", || daemon.counter("expired") == 2);
    assert!(begun.elapsed() >= Duration::from_secs(10) && begun.elapsed() < Duration::from_secs(170));
    // At 0, 0.3, 0.6 and so on, and once for the route without intervals.
    let attempts = daemon.log().iter().filter(|line| line["to"] == "x@busy.test").count();
    assert!((4..=40).contains(&attempts), "{attempts}");
    until("only the third one waits", || daemon.ask(&["queue", "count"]) == "1\n");
}

#[test]
fn mail_that_waits_gets_the_schedule_of_a_new_route() {
    let dead = free_address();
    let route =
        |more: &str| format!("[[route]]\ndomains = [\"*\"]\nsmarthost = \"{dead}\"\ntls = \"off\"\n{more}");
    let daemon = Postrider::start(&route(""));
    send(&daemon, "x@b.test");
    until("it was attempted", || daemon.ask(&["queue", "list"]).contains("refused"));
    daemon.reconfigure(&route("lifetime = \"1s\"\n"));
    daemon.ask(&["reload"]);
    until("it is returned", || daemon.counter("expired") == 1);
}

#[test]
fn a_smarthost_can_speak_tls_from_the_first_byte() {
    let made = rcgen::generate_simple_self_signed(["hub.test".to_owned()]).unwrap();
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    fs::write(dir.path().join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(dir.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    fs::write(dir.path().join("users"), "relay:{PLAIN}secret\n").unwrap();
    fs::write(dir.path().join("senders"), "relay *\n").unwrap();
    let hub = Postrider::start_in(
        dir,
        free_address(),
        &format!(
            "[[listen]]\naddress = \"{address}\"\nkind = \"submissions\"\n[auth]\nusers = \"passwd:users\"\n\
             senders = \"text:senders\"\n[local]\ndomains = [\"mx.test\", \"b.test\"]\n\
             [tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n"
        ),
    );
    let smarthost = |host: &str, tls: &str, ca: &str| {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("secret"), "secret\n").unwrap();
        let login = "login = { user = \"relay\", secret = \"file:secret\" }";
        let route = format!(
            "[hosts]\n\"hub.test\" = [\"127.0.0.1\"]\n\"other.test\" = [\"127.0.0.1\"]\n\
             [[route]]\ndomains = [\"*\"]\nsmarthost = \"{host}:{}\"\n{tls}\n{login}\n{ca}{LOG}",
            address.port()
        );
        Postrider::start_in(dir, free_address(), &route)
    };
    let ca = format!("[tls]\nca_file = \"{}\"\n", hub.dir.path().join("cert.pem").display());
    let daemon = smarthost("hub.test", "tls = \"implicit\"", &ca);
    send(&daemon, "jane@b.test");
    until("it is delivered", || hub.mailbox("jane").len() == 1);
    let is_verified = |line: &serde_json::Value| {
        line["tls"].as_str().is_some_and(|tls| tls.starts_with("TLSv1.3:") && tls.ends_with(":verified"))
    };
    until("the log has the TLS version", || daemon.log().iter().any(is_verified));
    // Another name is not in the certificate, and nobody vouches for it: the mail waits.
    for daemon in
        [smarthost("other.test", "tls = \"implicit\"", &ca), smarthost("hub.test", "tls = \"implicit\"", "")]
    {
        send(&daemon, "joe@b.test");
        until("it waits for a trusted certificate", || {
            daemon.ask(&["queue", "list"]).contains("TLS handshake")
        });
    }
    assert!(hub.mailbox("joe").is_empty());
}

/// A socketmap server that has some keys, until it is down.
fn socketmap(path: &std::path::Path, keys: &'static [&'static str], is_down: &Arc<AtomicBool>) {
    let is_down = is_down.clone();
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let is_down = is_down.clone();
            thread::spawn(move || {
                let mut buffer = [0; 1024];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    let asked = String::from_utf8_lossy(&buffer[..length]);
                    let has = keys.iter().any(|key| asked.contains(&format!(" {key},")));
                    let reply: &[u8] = match (is_down.load(Ordering::SeqCst), has) {
                        (true, _) => b"10:TEMP down,",
                        (false, true) => b"4:OK 1,",
                        (false, false) => b"9:NOTFOUND ,",
                    };
                    if stream.write_all(reply).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

#[test]
fn domains_of_maps_take_their_route_and_mail_of_others_goes_on() {
    let (customers, texts, others) = (Sink::start(), Sink::start(), Sink::start());
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("domains"), "text.test x\n").unwrap();
    fs::write(dir.path().join("aliases"), "team: jane@customer.test, joe@text.test, ann@far.test\n").unwrap();
    fs::write(dir.path().join("senders"), "news.test x\n").unwrap();
    let is_down = Arc::default();
    socketmap(&dir.path().join("domains.sock"), &["customer.test"], &is_down);
    let route = |domains: &str, sink: &Sink| {
        format!("[[route]]\ndomains = {domains}\nsmarthost = \"{}\"\ntls = \"off\"\n", sink.address)
    };
    let routes = route("[\"map:domains\"]", &customers)
        + &route("[\"text:domains\", \"listed.test\"]", &texts)
        + &route("[\"*\"]", &others);
    let daemon = Postrider::start_in(
        dir,
        free_address(),
        &format!(
            "[local]\ndomains = [\"mx.test\", \"map:domains\", \"text:domains\"]\n[addresses]\n\
             aliases = [\"aliases:aliases\"]\nbcc = [\"copy@customer.test\"]\n{routes}\
             [map.domains]\nsocketmap = \"unix:domains.sock\"\ntimeout = \"5s\"\n{LOG}"
        ),
    );
    let to = |sink: &Sink| {
        let mut all: Vec<String> = sink.messages().into_iter().flat_map(|message| message.to).collect();
        all.sort();
        all.dedup();
        all
    };
    for address in ["a@customer.test", "b@text.test", "c@far.test", "d@listed.test", "team@mx.test"] {
        send(&daemon, address);
    }
    until("all is delivered", || daemon.counter("queued") == 0);
    assert_eq!(to(&customers), ["a@customer.test", "copy@customer.test", "jane@customer.test"]);
    assert_eq!(to(&texts), ["b@text.test", "d@listed.test", "joe@text.test"]);
    assert_eq!(to(&others), ["ann@far.test", "c@far.test"]);
    // A map that is down: the client waits, and nothing takes another route.
    is_down.store(true, Ordering::SeqCst);
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<x@far.test>").unwrap();
    assert_eq!(client.say("RCPT TO:<b@customer.test>").unwrap().0, 451);
    assert_eq!(daemon.counter("bounced"), 0);
}

#[test]
fn the_choice_of_a_map_is_stored_with_the_message() {
    let address = free_address();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("domains"), "customer.test x\n").unwrap();
    let other = Sink::start();
    let config = format!(
        "[[route]]\ndomains = [\"text:domains\"]\nsenders = [\"far.test\", \"map:senders\"]\nsmarthost = \"{address}\"\n\
         tls = \"off\"\nretry = [\"200ms\"]\n\
         [[route]]\ndomains = [\"*\"]\nsmarthost = \"{}\"\ntls = \"off\"\n\
         [map.senders]\nsocketmap = \"unix:none.sock\"\ntimeout = \"500ms\"\n{LOG}",
        other.address
    );
    let daemon = Postrider::start_in(dir, free_address(), &config);
    send(&daemon, "a@customer.test");
    until("it was attempted", || daemon.ask(&["queue", "list"]).contains("refused"));
    // Without the file, and after a start, the message keeps its route.
    let (dir, listens) = daemon.kill();
    fs::remove_file(dir.path().join("domains")).unwrap();
    let daemon = Postrider::start_in(dir, listens, &config);
    let sink = Sink::at(address, |_| None);
    until("it is delivered", || sink.count() == 1);
    assert_eq!(other.count(), 0);
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<sender@far.test>").unwrap();
    assert_eq!(client.say("RCPT TO:<a@customer.test>").unwrap().0, 451);
}

/// A listener that nobody accepts connections of: clients connect, and hear nothing.
fn silent_at(address: &str, port: u16) -> TcpListener {
    TcpListener::bind(format!("{address}:{port}")).unwrap()
}

#[test]
fn domains_whose_servers_say_nothing_delay_no_other_mail() {
    let route = Sink::start();
    let port = free_address().port();
    let addresses: Vec<String> = (0..60).map(|n| format!("127.72.1.{}", n + 1)).collect();
    let silent: Vec<TcpListener> = addresses.iter().map(|address| silent_at(address, port)).collect();
    // Sixty domains with a server each, and forty more with the same one.
    let hosts = (0..100).map(|n| format!("\"s{n}.test\" = [\"{}\"]\n", addresses[n.min(59)]));
    let good = Sink::listen(silent_at("127.72.2.1", port), |_| None);
    let daemon = Postrider::start(&format!(
        "[[route]]\ndomains = [\"route.test\"]\nsmarthost = \"{}\"\ntls = \"off\"\n\
         [delivery]\nmx_port = {port}\nmax_connections = 40\n[hosts]\n\"good.test\" = [\"127.72.2.1\"]\n{}{LOG}",
        route.address,
        hosts.collect::<String>()
    ));
    let status =
        || -> serde_json::Value { serde_json::from_str(&daemon.ask(&["status", "--json"])).unwrap() };
    let connections = || status()["spool"]["queue_connections"].as_u64().unwrap();
    // One that takes mail, before the others come.
    send(&daemon, "first@good.test");
    until("it arrives", || good.count() == 1);
    for n in 0..100 {
        send(&daemon, &format!("x@s{n}.test"));
    }
    until("their share of the connections is in use", || connections() >= 20);
    send(&daemon, "me@mx.test");
    send(&daemon, "x@route.test");
    send(&daemon, "second@good.test");
    until("local mail, mail of a route and mail for a domain that takes mail arrive", || {
        daemon.counter("delivered") == 4 && route.count() == 1 && good.count() == 2
    });
    let shares = status()["spool"]["shares"].clone();
    let newcomers = shares.as_array().unwrap().iter().find(|one| one["share"] == "newcomers").unwrap();
    assert_eq!((newcomers["used"].as_u64(), newcomers["max"].as_u64()), (Some(20), Some(20)), "{shares}");
    assert!(newcomers["waiting"].as_u64() > Some(0), "{shares}");
    let text = daemon.ask(&["status"]);
    assert!(text.contains("CONNECTIONS ARE SHORT"), "{text}");
    // A connection of a message that is deleted is closed at once, and not when its time limit is over.
    daemon.ask(&["queue", "delete", "--sender", "sender@far.test"]);
    until("the connections are closed", || connections() <= 2);
    drop(silent);
}

#[test]
fn mail_for_many_domains_of_one_exchanger_waits_for_its_first_answer_and_is_not_deferred() {
    const DOMAINS: usize = 30;
    let port = free_address().port();
    let exchanger = silent_at("127.74.1.1", port);
    let hosts: String = (0..DOMAINS).map(|n| format!("\"d{n}.test\" = [\"127.74.1.1\"]\n")).collect();
    let daemon = Postrider::start(&format!("[delivery]\nmx_port = {port}\n[hosts]\n{hosts}{LOG}"));
    for n in 0..DOMAINS {
        send(&daemon, &format!("x@d{n}.test"));
    }
    // More than may be connected before the first delivery.
    until("each has a place among the connections", || {
        let status: serde_json::Value = serde_json::from_str(&daemon.ask(&["status", "--json"])).unwrap();
        status["spool"]["queue_connections"].as_u64() == Some(DOMAINS as u64)
    });
    let sink = Sink::listen(exchanger, |_| None);
    until("all are delivered", || daemon.counter("delivered") == DOMAINS as u64);
    assert_eq!(sink.count(), DOMAINS);
    let deferred: Vec<_> =
        daemon.log().into_iter().filter(|line| line.to_string().contains("deferred")).collect();
    assert!(deferred.is_empty(), "{deferred:?}");
}

#[test]
fn domains_of_one_exchanger_that_took_mail_and_is_silent_now_delay_no_other_mail() {
    const DOMAINS: u64 = 40;
    let port = free_address().port();
    let silence = Arc::new(Mutex::new(()));
    let is_over = silence.clone();
    let bad = Sink::listen(silent_at("127.76.1.1", port), move |_| {
        drop(is_over.lock());
        None
    });
    let good = Sink::listen(silent_at("127.76.2.1", port), |_| None);
    let hosts: String = (0..DOMAINS).map(|n| format!("\"d{n}.test\" = [\"127.76.1.1\"]\n")).collect();
    let daemon = Postrider::start(&format!(
        "[delivery]\nmx_port = {port}\nmax_connections = 40\n[hosts]\n\"new.test\" = [\"127.76.2.1\"]\n{hosts}{LOG}"
    ));
    let send_to_all = || (0..DOMAINS).for_each(|n| send(&daemon, &format!("x@d{n}.test")));
    send_to_all();
    until("each domain has taken mail", || daemon.counter("delivered") == DOMAINS);
    let silent = silence.lock().unwrap();
    send_to_all();
    let busiest = || -> serde_json::Value {
        let status: serde_json::Value = serde_json::from_str(&daemon.ask(&["status", "--json"])).unwrap();
        status["spool"]["busiest_exchanger"].clone()
    };
    until("the exchanger has as many connections as it may", || busiest()["waiting"] == 17);
    assert_eq!(busiest()["used"], 23, "three quarters of those of remote mail");
    send(&daemon, "x@new.test");
    until("mail for another domain arrives", || good.count() == 1);
    let text = daemon.ask(&["status"]);
    assert!(text.contains("23 connections to 127.76.1.1; waiting for it: 17 domains"), "{text}");
    drop(silent);
    until("the others are delivered", || daemon.counter("delivered") == 2 * DOMAINS + 1);
    assert_eq!(bad.count() as u64, 2 * DOMAINS);
}

#[test]
fn mail_that_the_first_mail_exchanger_defers_goes_to_the_second_one_at_once() {
    let names = NameServer::start(
        UdpSocket::bind("127.0.0.1:0").unwrap(),
        &[
            ("two.test", Record::Mx(10, "first.two.test")),
            ("two.test", Record::Mx(20, "second.two.test")),
            ("first.two.test", Record::A(Ipv4Addr::new(127, 73, 0, 2))),
            ("second.two.test", Record::A(Ipv4Addr::new(127, 73, 0, 3))),
        ],
    );
    let (first, second) = ("127.73.0.2", "127.73.0.3");
    for stage in ["EHLO", "MAIL", "RCPT", "DATA", "."] {
        for reply in ["451 4.3.0 not now", "421 4.3.2 closing"] {
            let port = free_address().port();
            let bad = Sink::listen(silent_at(first, port), move |command| {
                command.starts_with(stage).then(|| reply.to_owned())
            });
            let good = Sink::listen(silent_at(second, port), |_| None);
            let daemon = Postrider::start(&format!(
                "[dns]\nnameservers = [\"{}\"]\ntimeout = \"3s\"\n[delivery]\nmx_port = {port}\n{LOG}",
                names.address
            ));
            send(&daemon, "x@two.test");
            until("the second one has it", || daemon.counter("delivered") == 1);
            assert_eq!(good.count(), 1, "{stage} {reply}");
            assert!(bad.connection_count() > 0, "{stage} {reply}: the first one was not asked");
        }
    }
}

#[test]
fn a_route_says_a_name_of_its_own_in_ehlo() {
    let only = |name: &'static str| {
        Sink::with(move |line| {
            let is_other = line.starts_with("EHLO") && line.trim_end() != format!("EHLO {name}");
            is_other.then(|| "550 5.7.1 not this name".to_owned())
        })
    };
    let (named, usual) = (only("mx2.test"), only("mx.test"));
    let routes = format!(
        "{}source_address = \"127.0.0.1\"\nehlo_name = \"mx2.test\"\n{}{LOG}",
        named.route().replace("\"*\"", "\"named.test\""),
        usual.route()
    );
    let daemon = Postrider::start(&routes);
    send(&daemon, "a@named.test");
    send(&daemon, "b@usual.test");
    until("both are delivered", || named.count() == 1 && usual.count() == 1);
}

/// A server that answers a stage in its own way, and one that takes everything, at two addresses with one port.
struct Pair {
    first: Sink,
    second: Sink,
}

impl Pair {
    fn listen(net: u8, number: usize, stage: &'static str, how: &'static str) -> Self {
        let at = |last: u8| format!("127.{net}.{number}.{last}");
        let script = move |command: &str| command.starts_with(stage).then(|| how.to_owned());
        // A port that is free at both addresses.
        let (first, second) = loop {
            let first = TcpListener::bind((at(2), 0)).unwrap();
            let port = first.local_addr().unwrap().port();
            if let Ok(second) = TcpListener::bind((at(3), port)) {
                break (first, second);
            }
        };
        Self { first: Sink::listen(first, script), second: Sink::listen(second, |_| None) }
    }

    fn arrivals(&self) -> (usize, usize) {
        (self.first.count(), self.second.count())
    }
}

/// The arrivals at both servers, and what became of the recipient.
type Seen = ((usize, usize), String);

/// Postfix and Postrider send each of these messages, and both do the same with it.
#[test]
fn the_next_server_is_asked_where_postfix_asks_it() {
    let stages = ["CONNECT", "EHLO", "MAIL", "RCPT", "DATA", "."];
    let replies = [
        "451 4.3.0 not now",
        "421 4.3.2 closing",
        "450 4.2.1 greylisted",
        "452 4.3.1 full",
        "550 5.7.1 no",
        "CLOSE",
    ];
    let cases = || stages.into_iter().flat_map(|stage| replies.map(|how| (stage, how)));
    let listen = |net| cases().enumerate().map(move |(n, (stage, how))| Pair::listen(net, n, stage, how));
    let (ours, theirs): (Vec<Pair>, Vec<Pair>) = (listen(74).collect(), listen(75).collect());

    let transports = theirs.iter().enumerate().map(|(n, pair)| {
        let ([first, second], port) = (["2", "3"], pair.first.address.port());
        format!("c{n}.test smtp:[127.75.{n}.{first}]:{port},[127.75.{n}.{second}]:{port}\n")
    });
    let tables = tempfile::tempdir().unwrap();
    let table = tables.path().join("transport");
    std::fs::write(&table, transports.collect::<String>()).unwrap();
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(tables.path(), permissions).unwrap();
    let main = format!("transport_maps = texthash:{}\nsmtp_tls_security_level = none\n", table.display());
    let Some(postfix) = crate::common::servers::Postfix::start(&main) else { return };

    let routes = ours.iter().enumerate().map(|(n, pair)| {
        let port = pair.first.address.port();
        format!("[[route]]\ndomains = [\"c{n}.test\"]\nsmarthost = \"site{n}.test:{port}\"\ntls = \"off\"\n")
    });
    let hosts = (0..ours.len()).map(|n| format!("\"site{n}.test\" = [\"127.74.{n}.2\", \"127.74.{n}.3\"]\n"));
    let text = format!("{LOG}{}[hosts]\n{}", routes.collect::<String>(), hosts.collect::<String>());
    let daemon = Postrider::start(&text);

    for (n, _) in cases().enumerate() {
        for address in [postfix.address, daemon.address] {
            let to = format!("x@c{n}.test");
            Client::connect(address).unwrap().send("", &[&to], b"Subject: x\r\n\r\nx\r\n").unwrap();
        }
    }
    let log = || std::fs::read_to_string(postfix.dir.path().join("log")).unwrap_or_default();
    let status_of = |n: usize| {
        let (to, log) = (format!("to=<x@c{n}.test>"), log());
        let line = log.lines().find(|line| line.contains(&to))?.to_owned();
        Some(line.split_once("status=")?.1.split(' ').next()?.to_owned())
    };
    let mut differences = Vec::new();
    for (n, (stage, how)) in cases().enumerate() {
        until("Postfix has tried it", || status_of(n).is_some());
        let is_attempt = |line: &serde_json::Value| {
            let is_it = line["to"] == format!("x@c{n}.test");
            is_it && (line["event"] == "attempt" || line["event"] == "waiting")
        };
        until("Postrider has tried it", || daemon.log().iter().any(is_attempt));
        let log = daemon.log();
        let line = log.iter().find(|line| is_attempt(line)).unwrap();
        let status = line["status"].as_str().unwrap_or("deferred").to_owned();
        let (postfix, postrider): (Seen, Seen) =
            ((theirs[n].arrivals(), status_of(n).unwrap()), (ours[n].arrivals(), status));
        let is_known = match (stage, how) {
            // Postfix gives the message to the next server, although the first one may have it.
            (".", "CLOSE") => {
                postfix == ((0, 1), "sent".to_owned()) && postrider == ((0, 0), "deferred".to_owned())
            }
            // Postfix tries HELO after any refusal of EHLO, Postrider after 5yz only; the mail arrives once all the same.
            ("EHLO", how) if how.starts_with("45") => {
                postfix == ((1, 0), "sent".to_owned()) && postrider == ((0, 1), "sent".to_owned())
            }
            _ => false,
        };
        if postfix != postrider && !is_known {
            differences.push((stage, how, postfix, postrider));
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}
