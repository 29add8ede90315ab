//! Next hops that accept a connection and fall silent: operators see what is waited for, while the first attempt lasts.

use crate::common::{Postrider, client::Client, sink::Sink, until};
use std::{
    net::TcpListener,
    sync::{Mutex, mpsc},
};

fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// Accepts a message, and returns its id.
fn submit(daemon: &Postrider, to: &str) -> String {
    let mut client = Client::connect(daemon.address).unwrap();
    let reply = client.send("a@far.test", &[to], b"Subject: s\r\n\r\nbody\r\n").unwrap().1;
    reply.split_whitespace().last().unwrap().to_owned()
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_server_that_says_nothing_is_named_during_the_first_attempt() {
    let ((_first, first), (_second, second)) = (listen(), listen());
    let daemon = Postrider::start(&format!(
        "[delivery]\ngreeting_timeout = \"7s\"\n[[route]]\ndomains = [\"*\"]\nsmarthost = \"{first}\"\n\
         tls = \"off\"\nfallback = [\"{second}\"]\n"
    ));
    let id = submit(&daemon, "joe@far.test");
    let why = || daemon.ask(&["why", &id]);
    let (_, first_port) = first.split_once(':').unwrap();
    let place = format!("127.0.0.1[127.0.0.1]:{first_port}: receiving the initial server greeting");
    until("the silence is told", || why().contains(&format!("  now:    {place}, no answer for ")));
    assert!(why().contains("  next:   when the connection that is being opened is ready"), "{}", why());
    let explained = json(&daemon.ask(&["why", &id, "--json"]));
    let attempt = &explained["recipients"][0]["attempt"];
    assert_eq!(attempt["step"], "receiving the initial server greeting");
    assert!(attempt["silent_since"].is_string(), "{attempt}");
    let summary = daemon.ask(&["queue", "summary"]);
    assert!(summary.contains(&format!("no answer yet: {place}")), "{summary}");
    until("the listing names it", || {
        daemon.ask(&["queue", "list"]).contains(&format!("({place}, no answer for "))
    });
    // The outcome of the first server stays in sight while the second is tried.
    let (_, second_port) = second.split_once(':').unwrap();
    let next = format!("now:    127.0.0.1[127.0.0.1]:{second_port}: receiving the initial server greeting");
    let before = format!("; before: conversation with 127.0.0.1[127.0.0.1]:{first_port} timed out while");
    until("the second server is tried", || {
        let said = why();
        said.contains(&next) && said.contains(&before)
    });
    until("the destination is suspended", || why().contains("destination suspended"));
}

#[test]
fn a_server_that_falls_silent_within_a_transaction_is_named() {
    let (end, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let sink = Sink::with(move |line| {
        let is_silent = line.starts_with("DATA");
        is_silent.then(|| _ = ended.lock().unwrap().recv());
        is_silent.then(|| "CLOSE".to_owned())
    });
    let daemon = Postrider::start(&sink.route());
    let id = submit(&daemon, "joe@far.test");
    until("the command is named", || {
        let said = daemon.ask(&["why", &id]);
        said.contains("an attempt is under way") && said.contains("sending DATA command, no answer for ")
    });
    until("the status names it", || {
        let said = daemon.ask(&["status"]);
        said.contains("no answer from the other side: 1 connection, the longest ")
    });
    drop((daemon, end));
}
