//! Filters that are asked by HTTP: rspamd beside its own milter, the hook of the examples, and hooks that fail.

use super::{cases::shapes, oracle::without_trace};
use crate::{
    common::{BINARY, Postrider, client::Client, free_address, sink::Sink, until},
    examples::{GTUBE, hook, rspamd},
    migration::{machine::Machine, world::is_inside},
};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    process::Command,
    thread,
};

/// Gives each message the action, the changes and the text that its header asks for.
const RULES: &str = r#"
local changes = {
  add = { add_headers = { ['X-One'] = 'a' } },
  two = { add_headers = { ['X-One'] = { { value = 'a', order = 1 }, { value = 'b', order = 0 } } } },
  top = { add_headers = { ['X-One'] = { value = 'a', order = 0 } } },
  first = { add_headers = { ['X-One'] = { value = 'a', order = 1 } } },
  last = { add_headers = { ['X-One'] = { value = 'a', order = -1 } } },
  far = { add_headers = { ['X-One'] = { value = 'a', order = 999 } } },
  gone = { remove_headers = { ['X-A'] = 0 } },
  second = { remove_headers = { ['x-a'] = 2 } },
  end_of = { remove_headers = { ['X-A'] = -1 } },
  beyond = { remove_headers = { ['X-A'] = 9 } },
  unknown = { remove_headers = { ['X-None'] = 1 } },
  folded = { add_headers = { ['X-One'] = 'a\n\tb' } },
  from = { change_from = 'new@a.test' },
  to = { add_rcpt = { 'new@b.test' } },
  not_to = { del_rcpt = { 'c@b.test' } },
  discard = { reject = 'discard' },
  quarantine = { reject = 'quarantine' },
  nothing = { no_action = true },
  spam = { spam_header = 'very' },
  spam_fields = { spam_header = { ['X-A'] = 'spam' } },
}
rspamd_config:register_symbol({
  name = 'TEST_ASKED', type = 'prefilter', priority = 10,
  callback = function(task)
    for word in (task:get_header('X-Test-Changes') or ''):gmatch('%S+') do
      task:set_milter_reply(changes[word])
    end
    local action = task:get_header('X-Test-Action')
    if action then
      task:set_pre_result(action, 'the text of ' .. action)
    end
  end
})
"#;

/// Messages without a wish, and with each of them.
fn messages() -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = shapes().into_iter().map(|(name, content)| (name.to_owned(), content)).collect();
    all.push(("spam".to_owned(), format!("Subject: s\r\n\r\n{GTUBE}\r\n").into_bytes()));
    let actions = [
        "no action",
        "greylist",
        "add header",
        "rewrite subject",
        "soft reject",
        "reject",
        "quarantine",
        "discard",
    ];
    let changes = [
        "",
        "add",
        "two",
        "top",
        "first",
        "last",
        "far",
        "gone",
        "second",
        "end_of",
        "beyond",
        "unknown",
        "folded",
        "from",
        "to",
        "not_to",
        "discard",
        "quarantine",
        "nothing",
        "spam",
        "spam_fields",
        "gone top from to",
    ];
    for action in actions {
        for change in changes {
            let content = format!(
                "X-A: 1\r\nX-Test-Action: {action}\r\nX-Test-Changes: {change}\r\nx-a: 2\r\nX-Spam: before\r\nSubject: s\r\n\
                 X-A: 3\r\n\r\nbody\r\n"
            );
            all.push((format!("{action}, {change}"), content.into_bytes()));
        }
    }
    all
}

/// A server with rspamd, and where its mail goes.
struct Asking {
    daemon: Postrider,
    hop: Sink,
}

impl Asking {
    fn start(section: &str) -> Self {
        let hop = Sink::start();
        let daemon = Postrider::start(&format!("{}[filter.rspamd]\n{section}\n", hop.route()));
        Self { daemon, hop }
    }

    /// Sends a message, and returns the reply without the queue id, and what arrived or is held.
    fn outcome(&self, content: &[u8]) -> String {
        let mut client = Client::connect_from("127.0.0.2", self.daemon.address).unwrap();
        let reply = client.send("joe@a.test", &["b@b.test", "c@b.test"], content).unwrap();
        if reply.0 != 250 {
            return format!("{} {}", reply.0, reply.1);
        }
        until("nothing is under way", || {
            let queued = self.daemon.ask(&["queue", "list", "--json"]);
            queued.lines().all(|line| line.contains("\"held\""))
        });
        let held = self.daemon.ask(&["queue", "list", "--json"]);
        self.daemon.ask(&["queue", "delete", "all"]);
        let mut arrived: Vec<String> = self
            .hop
            .take()
            .iter()
            .map(|mail| {
                let mut to = mail.to.clone();
                to.sort();
                format!("<{}> {to:?} {}", mail.from, without_trace(&mail.content).escape_ascii())
            })
            .collect();
        arrived.sort();
        format!("250, {} held, {}", held.lines().count(), arrived.join("; "))
    }
}

#[test]
fn rspamd_by_http_has_the_effect_of_its_milter() {
    if !is_inside("filters::asked::rspamd_by_http_has_the_effect_of_its_milter") {
        return;
    }
    let Some(machine) = Machine::new(".", &[]) else { return };
    let Some(_rspamd) = rspamd(&machine, RULES) else { return };
    let milter = Asking::start("milter = \"127.0.0.1:11332\"");
    let http = Asking::start("rspamd = \"127.0.0.1:11333\"");
    let mut different = Vec::new();
    let all = messages();
    for (name, content) in &all {
        let [theirs, ours] = [&milter, &http].map(|one| one.outcome(content));
        if theirs != ours {
            let short = |text: &str| text.chars().take(600).collect::<String>();
            different.push(format!("{name}:\n  milter {}\n  HTTP   {}", short(&theirs), short(&ours)));
        }
    }
    assert!(different.is_empty(), "{} of {} differ:\n{}", different.len(), all.len(), different.join("\n"));
}

#[test]
fn the_hook_of_the_examples_refuses_programs_and_marks_the_rest() {
    let (dir, address, hop) = (tempfile::tempdir().unwrap(), free_address(), Sink::start());
    let secret = dir.path().join("secret");
    fs::write(&secret, "of both\n").unwrap();
    let Some(_hook) = hook(address.port(), &secret) else { return };
    let hook =
        format!("[filter.own]\nhook = \"http://{address}/mail\"\nsecret = \"file:{}\"\n", secret.display());
    let daemon = Postrider::start(&format!("{}{hook}", hop.route()));
    let send = |content: &str| {
        let mut client = Client::connect_from("127.0.0.2", daemon.address).unwrap();
        client.send("joe@a.test", &["x@far.test"], content.as_bytes()).unwrap()
    };
    let large = format!("X-Checked: no\r\nSubject: s\r\n\r\n{}", "some words\r\n".repeat(150_000));
    for content in ["X-Checked: no\r\nSubject: s\r\n\r\nbody\r\n", &large] {
        let reply = send(content);
        assert_eq!(reply.0, 250, "{}", reply.1);
        until("it has arrived", || hop.count() == 1);
        let arrived = String::from_utf8(hop.take().remove(0).content).unwrap();
        assert_eq!(arrived.matches("X-Checked").count(), 1);
        assert!(
            arrived.contains("Subject: s\r\nX-Checked: by the hook, from 127.0.0.2\r\n\r\n"),
            "{}",
            &arrived[..400]
        );
    }
    let reply = send("Content-Disposition: attachment; filename=a.EXE\r\n\r\nMZ\r\n");
    assert!(reply.0 == 550 && reply.1.contains("not accepted here"), "{reply:?}");
    fs::write(&secret, "another\n").unwrap();
    daemon.ask(&["reload"]);
    let reply = send("Subject: s\r\n\r\nbody\r\n");
    assert!(reply.0 == 451 && reply.1.contains("4.7.1"), "another secret: {reply:?}");
    assert!(daemon.ask(&["status"]).contains("it answers 403"));
}

/// A server that reads a request, and writes this.
fn answering(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(&stream);
            let mut size = 0;
            for line in reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()) {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                    size = value.parse().unwrap();
                }
            }
            let _ = std::io::copy(&mut reader.take(size), &mut std::io::sink());
            let _ = (&stream).write_all(answer.as_bytes());
        }
    });
    address
}

#[test]
fn mail_waits_for_filters_by_http_that_fail_and_passes_them_if_it_may() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let failing = [
        ("nobody listens", free_address()),
        ("no answer in", silent.local_addr().unwrap()),
        ("connection closed", answering("")),
        ("it answers 503", answering("HTTP/1.1 503 Full\r\nContent-Length: 0\r\n\r\n")),
        ("answer", answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<html")),
        ("body", answering("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"action\": ")),
        ("expected", answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")),
    ];
    let hop = Sink::start();
    for (why, address) in failing {
        for (key, url) in [("rspamd", address.to_string()), ("hook", format!("http://{address}/"))] {
            for (on_failure, code) in [("defer", 451), ("pass", 250)] {
                let section = format!(
                    "[filter.own]\n{key} = \"{url}\"\non_failure = \"{on_failure}\"\ntimeout = \"2s\"\ncontent_timeout = \"1s\"\n"
                );
                let daemon = Postrider::start(&format!("{}{section}", hop.route()));
                let mut client = Client::connect_from("127.0.0.2", daemon.address).unwrap();
                let reply =
                    client.send("joe@a.test", &["x@far.test"], b"Subject: s\r\n\r\nbody\r\n").unwrap();
                assert_eq!(reply.0, code, "{key}, {why}: {}", reply.1);
                let status = daemon.ask(&["status"]);
                assert!(
                    status.contains(&format!("filter own ({url}")) || key == "hook",
                    "{key}, {why}: {status}"
                );
                if code == 250 {
                    until("it has arrived", || hop.count() == 1);
                    hop.take();
                }
            }
        }
    }
}

#[test]
fn doctor_says_whether_filters_by_http_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let (there, gone) = (answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\npong\n"), free_address());
    let text = format!(
        "hostname = \"mx.test\"\ndata_dir = \"data\"\n[filter.a]\nrspamd = \"{there}\"\n[filter.b]\nrspamd = \"{gone}\"\n\
         [filter.c]\nhook = \"http://{there}/x\"\n[filter.d]\nhook = \"http://{gone}/x\"\non_failure = \"pass\"\n"
    );
    let file = dir.path().join("postrider.toml");
    fs::write(&file, text).unwrap();
    let doctor = Command::new(BINARY).arg("--config").arg(&file).arg("doctor").output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout);
    for expected in [
        format!("a answers at {there}"),
        format!("b ({gone})"),
        format!("c answers at http://{there}/x"),
        format!("d (http://{gone}/x)"),
    ] {
        assert!(said.contains(&expected), "{expected}: {said}");
    }
}
