//! Queue groups and sort orders, seen from the next hop.

use crate::common::{Postrider, client::Client, free_address, sink::Sink, until};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

/// One connection at a time to a next hop that does not listen yet.
fn config(address: SocketAddr, more: &str) -> String {
    format!(
        "[[route]]\ndomains = [\"else.test\"]\nsmarthost = \"{address}\"\ntls = \"off\"\n\
         [delivery]\nconnections_per_destination = 1\n{more}"
    )
}

fn queue_sizes(daemon: &Postrider, sizes: &[usize]) {
    let mut client = Client::connect(daemon.address).unwrap();
    for size in sizes {
        let content = format!("Subject: {size}\r\n\r\n{}\r\n", "x".repeat(*size));
        assert_eq!(client.send("a@news.test", &["x@else.test"], content.as_bytes()).unwrap().0, 250);
    }
    until("the next hop is known to be down", || daemon.ask(&["queue", "list"]).contains("refused"));
}

/// The subjects in the order in which they came.
fn subjects(sink: &Sink) -> Vec<String> {
    let subject = |content: &[u8]| {
        let text = String::from_utf8_lossy(content).into_owned();
        text.lines().find_map(|line| line.strip_prefix("Subject: ").map(str::to_owned)).unwrap()
    };
    sink.messages().iter().map(|message| subject(&message.content)).collect()
}

#[test]
fn the_sort_order_of_a_group_decides_which_message_goes_first_after_an_outage() {
    let address = free_address();
    let group = "[[queue_group]]\nname = \"news\"\nsender_domains = [\"news.test\"]\norder = \"priority\"\n";
    let daemon = Postrider::start(&config(address, group));
    queue_sizes(&daemon, &[9000, 100, 5000, 3000, 7000]);
    let sink = Sink::at(address, |_| None);
    daemon.ask(&["queue", "flush"]);
    until("all have arrived", || sink.count() == 5);
    assert_eq!(subjects(&sink), ["100", "3000", "5000", "7000", "9000"]);
}

#[test]
fn a_queue_run_delivers_in_its_order_and_says_what_it_took() {
    let address = free_address();
    let daemon = Postrider::start(&config(address, ""));
    queue_sizes(&daemon, &[3000, 9000, 100]);
    let said = daemon.try_ask(&["queue", "run"]).unwrap_err();
    assert!(said.contains("the daemon is running"), "{said}");
    let sorted: serde_json::Value =
        serde_json::from_str(&daemon.ask(&["queue", "run", "--dry-run", "--json"])).unwrap();
    assert_eq!((&sorted["messages"], &sorted["time_to_empty_us"]), (&3.into(), &serde_json::Value::Null));
    let (dir, _) = daemon.kill();

    let sink = Sink::at(address, |command| command.contains("RCPT").then(|| "450 4.2.0 not yet".to_owned()));
    let ran = run_queue(dir.path(), "time");
    assert_eq!((&ran["deferred"], &ran["delivered"]), (&3.into(), &0.into()));
    drop(sink);
    let sink = Sink::at(address, |_| None);
    let ran = run_queue(dir.path(), "priority");
    assert_eq!(
        (&ran["messages"], &ran["delivered"], &ran["order"]),
        (&3.into(), &3.into(), &"priority".into())
    );
    assert!(ran["time_to_first_delivery_us"].as_u64() <= ran["time_to_empty_us"].as_u64());
    assert_eq!(subjects(&sink), ["100", "3000", "9000"]);
    assert_eq!(run_queue(dir.path(), "host")["messages"], 0);
}

#[test]
fn a_run_over_queue_directories_opens_each_envelope_in_its_turn() {
    let address = free_address();
    // The configuration begins with the keys of [spool].
    let daemon = Postrider::start(&format!("backend = \"queue-dirs\"\n{}", config(address, "")));
    queue_sizes(&daemon, &[300, 100, 200]);
    let (dir, _) = daemon.kill();
    let sink = Sink::at(address, |command| command.contains("RCPT").then(|| "450 4.2.0 not yet".to_owned()));
    for order in ["modification", "random", "none"] {
        assert_eq!(run_queue(dir.path(), order)["deferred"], 3, "{order}");
    }
    drop(sink);
    let sink = Sink::at(address, |_| None);
    let ran = run_queue(dir.path(), "filename");
    assert_eq!((&ran["messages"], &ran["delivered"]), (&3.into(), &3.into()));
    assert_eq!(subjects(&sink), ["300", "100", "200"]);
    assert_eq!(run_queue(dir.path(), "filename")["messages"], 0);
}

fn run_queue(dir: &std::path::Path, order: &str) -> serde_json::Value {
    let output = std::process::Command::new(crate::common::BINARY)
        .args(["queue", "run", "--json", "--order", order])
        .env("POSTRIDER_CONFIG", dir.join("postrider.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_group_never_has_more_connections_than_runners() {
    let (open, most) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
    let (opened, peak) = (open.clone(), most.clone());
    let sink = Sink::with(move |command| {
        let verb = command.get(..4).unwrap_or_default().to_ascii_uppercase();
        if verb == "MAIL" {
            *opened.lock().unwrap() += 1;
            let mut peak = peak.lock().unwrap();
            *peak = (*peak).max(*opened.lock().unwrap());
        }
        if verb == "DATA" {
            *opened.lock().unwrap() -= 1;
        }
        None
    });
    let more = "[delivery]\npipeline_depth = 1\n[[queue_group]]\nname = \"slow\"\ndomains = [\"*\"]\nmax_connections = 1\n";
    let daemon = Postrider::start(&format!("{}{more}", sink.route()));
    let mut client = Client::connect(daemon.address).unwrap();
    for n in 0..50 {
        let content = format!("Subject: {n}\r\n\r\nhi\r\n");
        client.send("a@b.test", &[&format!("x@d{n}.test")], content.as_bytes()).unwrap();
    }
    until("all have arrived", || sink.count() == 50);
    assert_eq!((*most.lock().unwrap(), *open.lock().unwrap()), (1, 0));
}
