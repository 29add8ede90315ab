//! Aliases, virtual domains and maps, through the daemon.

use crate::common::{BINARY, Postrider, client::Client, free_address, sink::Sink, until};
use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Starts a daemon beside files of maps.
fn start(files: &[(&str, &str)], more: &str) -> Postrider {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    Postrider::start_in(dir, free_address(), more)
}

/// The reply to RCPT in a transaction of its own.
fn rcpt(client: &mut Client, recipient: &str) -> String {
    client.say("RSET").unwrap();
    client.say("MAIL FROM:<sender@far.test>").unwrap();
    client.say(&format!("RCPT TO:<{recipient}>")).unwrap().1
}

fn send(daemon: &Postrider, to: &[&str]) {
    let mut client = Client::connect(daemon.address).unwrap();
    let reply = client.send("sender@far.test", to, b"Subject: x\r\n\r\nx\r\n").unwrap();
    assert_eq!(reply.0, 250, "{}", reply.1);
}

/// Hands a message in as a local program does.
fn sendmail(daemon: &Postrider, arguments: &[&str]) -> std::process::ExitStatus {
    send_with(&daemon.config(), arguments)
}

fn send_with(config: &Path, arguments: &[&str]) -> std::process::ExitStatus {
    let mut sendmail = Command::new(BINARY)
        .arg("sendmail")
        .args(arguments)
        .env("POSTRIDER_CONFIG", config)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    sendmail.stdin.take().unwrap().write_all(b"Subject: x\n\nx\n").unwrap();
    sendmail.wait().unwrap()
}

fn has_mail(daemon: &Postrider, users: &[(&str, usize)]) {
    for (user, count) in users {
        until(&format!("{user} has {count} messages"), || daemon.mailbox(user).len() == *count);
    }
}

/// A socketmap server: it answers `users KEY` with OK if the key is `joe`, else with NOTFOUND.
fn socketmap(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut buffer = [0; 1024];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    let request = String::from_utf8_lossy(&buffer[..count]).into_owned();
                    let is_joe = request.ends_with(":users joe,") || request.ends_with(":users joe@mx.test,");
                    let reply: &[u8] = if is_joe { b"4:OK 1," } else { b"9:NOTFOUND ," };
                    if stream.write_all(reply).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

const ALIASES: &str = "root: joe\nstaff: joe, ann\nall: :include:INCLUDE\nloop: loop2\nloop2: loop\n\
                       prog: |/bin/true\nself: self, ann\nMAILER-DAEMON: postmaster\n";

#[test]
fn the_package_names_who_reads_roots_mail_in_a_line_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("aliases");
    let script =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/debian/postinst")).unwrap();
    let from = script.find("name_reader_of_root() {").unwrap();
    let to = from + script[from..].find("\n}\n").unwrap() + 3;
    let function = script[from..to].replace("/etc/aliases", file.to_str().unwrap());
    let accounts = "joe:x:1000:1000::/home/joe:/bin/bash";
    let script = format!("set -e\ngetent() {{ echo '{accounts}'; }}\n{function}name_reader_of_root\n");
    for (before, after) in [
        ("", "root: joe\n"),
        ("postmaster: root\n", "postmaster: root\nroot: joe\n"),
        ("postmaster: root", "postmaster: root\nroot: joe\n"),
        ("postmaster: root\nroot: ann", "postmaster: root\nroot: ann"),
    ] {
        fs::write(&file, before).unwrap();
        let ran = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), after);
    }
}

#[test]
fn aliases_whose_last_line_has_no_newline_are_used() {
    let daemon =
        start(&[("aliases", "staff: ann\nroot: joe")], "[addresses]\naliases = [\"aliases:aliases\"]\n");
    send(&daemon, &["root@mx.test", "staff@mx.test"]);
    has_mail(&daemon, &[("joe", 1), ("ann", 1)]);
}

#[test]
fn aliases_reach_their_users_from_clients_and_from_local_programs() {
    let list = tempfile::NamedTempFile::new().unwrap();
    fs::write(&list, "# everyone\nstaff\neve\n").unwrap();
    let aliases = ALIASES.replace("INCLUDE", list.path().to_str().unwrap());
    let daemon = start(&[("aliases", &aliases)], "[addresses]\naliases = [\"aliases:aliases\"]\n");
    send(&daemon, &["Staff@mx.test"]);
    has_mail(&daemon, &[("joe", 1), ("ann", 1)]);
    send(&daemon, &["all@mx.test", "self+x@mx.test"]);
    has_mail(&daemon, &[("joe", 2), ("ann", 3), ("eve", 1), ("self", 1)]);
    send(&daemon, &["eve@mx.test", "eve@mx.test"]);
    has_mail(&daemon, &[("eve", 2)]);
    assert!(sendmail(&daemon, &["root"]).success());
    has_mail(&daemon, &[("joe", 3)]);
    let mut client = Client::connect(daemon.address).unwrap();
    // An operator permits the program; nobody repairs the loop for a sender who tries again.
    for (recipient, code) in [("loop@mx.test", "554 5.4.6"), ("prog@mx.test", "451 4.2.4")] {
        let reply = rcpt(&mut client, recipient);
        assert!(reply.starts_with(code), "{recipient}: {reply}");
    }
    // Names in a recipient are names: neither programs nor files nor routes.
    for recipient in ["|/bin/true@mx.test", "/etc/passwd@mx.test", "\":include:/etc/passwd\"@mx.test"] {
        let reply = rcpt(&mut client, recipient);
        assert!(reply.starts_with("250") || reply.starts_with("550 5.1.1"), "{recipient}: {reply}");
    }
    assert_eq!(daemon.counter("bounced"), 0);
}

#[test]
fn virtual_domains_have_addresses_a_catch_all_and_users() {
    let daemon = start(
        &[
            ("domains", "hosted.test\nusers.test\n"),
            ("virtual", "info@hosted.test joe, ann@mx.test\n@hosted.test eve\nx@foreign.test joe\n"),
            ("users", "bob@users.test\njoe\nann\neve\n"),
        ],
        "[local]\ndomains = [\"mx.test\", \"text:domains\"]\nusers = [\"text:users\"]\n\
         [addresses]\nvirtual = [\"text:virtual\"]\n[relay]\nnetworks = []\n",
    );
    send(&daemon, &["info@hosted.test"]);
    has_mail(&daemon, &[("joe", 1), ("ann", 1)]);
    send(&daemon, &["anybody@hosted.test", "Bob+lists@users.test"]);
    has_mail(&daemon, &[("eve", 1), ("bob", 1)]);
    // Two addresses that lead to one mailbox: two copies, each with its original recipient.
    send(&daemon, &["one@hosted.test", "two@hosted.test"]);
    has_mail(&daemon, &[("eve", 3)]);
    let mut client = Client::connect(daemon.address).unwrap();
    for (recipient, reply) in [
        ("nobody@users.test", "550 5.1.1"),
        ("bob@mx.test", "550 5.1.1"),
        ("eve@users.test", "250"),
        ("postmaster@users.test", "250"),
        // A virtual alias is no right to relay.
        ("x@foreign.test", "550 5.7.1"),
        ("x%hosted.test@foreign.test", "550 5.7.1"),
    ] {
        let said = rcpt(&mut client, recipient);
        assert!(said.starts_with(reply), "{recipient}: {said}");
    }
    assert_eq!(daemon.counter("bounced"), 0);
    // Programs wait for no reply: the others get the message, and the sender hears of the one who does not exist.
    let arguments = ["-f", "joe@mx.test", "ann@mx.test", "nobody@users.test"];
    assert!(sendmail(&daemon, &arguments).success());
    has_mail(&daemon, &[("ann", 2), ("joe", 2)]);
    let told = daemon.mailbox("joe").iter().any(|file| {
        let text = fs::read_to_string(file).unwrap();
        text.contains("<nobody@users.test>") && text.contains("Status: 5.1.1")
    });
    assert!(told && daemon.counter("bounced") == 1);
}

#[test]
fn a_test_shows_each_look_up_and_why_an_address_has_no_answer() {
    let daemon = start(
        &[("virtual", "info@hosted.test joe\nbad@hosted.test foo bar@\n"), ("users", "joe\n")],
        "[local]\ndomains = [\"mx.test\", \"hosted.test\"]\nusers = [\"text:users\"]\n\
         [addresses]\nvirtual = [\"text:virtual\"]\n",
    );
    let test = |to: &str| {
        let output = Command::new(crate::common::BINARY)
            .args(["test", "--client", "203.0.113.7", "--from", "a@b.test", "--to", to])
            .env("POSTRIDER_CONFIG", daemon.config())
            .output()
            .unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let has = |text: &str, what: &str, found: &str| {
        let is_meant = |line: &str| line.starts_with("rcpt") && line.contains(what) && line.contains(found);
        assert!(text.lines().any(is_meant), "{what}, {found}: {text}");
    };
    let (code, text) = test("info@hosted.test");
    assert_eq!(code, 0, "{text}");
    has(&text, "virtual info@hosted.test ", "\"joe\", ");
    has(&text, "users joe@mx.test ", "not in it, ");
    has(&text, "users joe ", "found, ");
    let (code, text) = test("bad@hosted.test");
    assert_eq!(code, 75, "{text}");
    has(&text, "expansion ", "bad@hosted.test: not a mail address");
}

#[test]
fn a_virtual_alias_without_a_domain_is_for_the_domains_of_this_server() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("users.sock");
    socketmap(&socket);
    let keys = format!(
        "[local]\ndomains = [\"mx.test\", \"here.test\", \"text:domains\"]\n\
         [addresses]\nvirtual = [\"map:users\", \"text:virtual\"]\n[map.users]\nsocketmap = \"unix:{}\"\n",
        socket.display()
    );
    let files =
        [("virtual", "info ann\nsales bob\n@here.test eve\n"), ("domains", "hosted.test\nother.test\n")];
    let daemon = start(&files, &keys);
    send(&daemon, &["info@mx.test", "Sales+x@here.test", "other@here.test"]);
    has_mail(&daemon, &[("ann", 1), ("bob", 1), ("eve", 1)]);
    let test = |to: &str| {
        let mut test = Command::new(BINARY);
        test.args(["test", "--client", "203.0.113.7", "--from", "a@b.test", "--to", to]);
        let output = test.env("POSTRIDER_CONFIG", daemon.config()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let text = test("info@here.test");
    let asked: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("rcpt     ")).collect();
    let has = |what: &str| asked.iter().any(|line| line.contains(what));
    assert!(has("virtual info ") && has("map:users info@here.test "), "{text}");
    assert!(!has("map:users info "), "a server is asked for addresses only: {text}");
    let text = test("info@hosted.test");
    assert!(!text.contains("virtual info "), "a domain of a map: {text}");
}

#[test]
fn entries_of_maps_that_are_never_found_are_warned_of_with_their_places() {
    let files = [
        ("domains", "hosted.test\n@other.test\n"),
        ("virtual", "info@hosted.test joe\n# all\n@ joe\n"),
        ("senders", "joe joe@\n"),
        ("networks", "192.0.2.1\n10.0.0.0/8\n"),
    ];
    let daemon = start(
        &files,
        "[local]\ndomains = [\"mx.test\", \"text:domains\"]\n[addresses]\nvirtual = [\"text:virtual\"]\n\
         [auth]\nsenders = \"text:senders\"\n[[rule]]\nclient = [\"text:networks\"]\nreject = true\n",
    );
    let check = || {
        let output = daemon.run(&["config", "check"], "");
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = check();
    assert_eq!(code, Some(0), "{said}");
    for (file, place, help) in [
        ("domains", "line 2, column 1", "write `other.test`"),
        ("virtual", "line 3, column 1", "write `@example.com`"),
        ("senders", "line 1, column 5", "write `user@example.com`"),
        ("networks", "line 2, column 1", "\"cidr:FILE\""),
    ] {
        let begin = format!("/{file}: warning: {place}: ");
        let is_it = |line: &str| line.contains(&begin) && line.contains(help);
        assert!(said.lines().any(is_it), "{file}: {said}");
    }
    for target in ["|/bin/cat", "/etc/passwd", ":include:/etc/passwd"] {
        fs::write(daemon.dir.path().join("virtual"), format!("info@hosted.test {target}\n")).unwrap();
        let (code, said) = check();
        assert_eq!(code, Some(78), "{said}");
        assert!(
            said.contains("line 1, column 18") && said.contains("`addresses.aliases`"),
            "{target}: {said}"
        );
    }
}

#[test]
fn aliases_whose_mail_would_wait_for_ever_are_warned_of_with_their_lines() {
    let aliases = "a: b\nb: a\ngone: nobody\nx@mx.test: joe\nhash: joe # sales\nteam: joe, ann@far.test\n";
    let daemon = start(
        &[("aliases", aliases)],
        "[local]\nusers = [\"joe\"]\n[addresses]\naliases = [\"aliases:aliases\"]\n",
    );
    for command in [&["config", "check"][..], &["map", "check"]] {
        let output = daemon.run(command, "");
        let said = String::from_utf8(output.stderr).unwrap();
        for (line, name) in [(1, "a"), (2, "b"), (3, "gone"), (4, "x@mx.test"), (5, "hash")] {
            let begin = format!("/aliases: warning: line {line}, column 1: `{name}`");
            assert!(said.contains(&begin), "{name}: {said}");
        }
        assert!(output.status.success() && !said.contains("team"), "{said}");
    }
}

#[test]
fn members_without_a_mailbox_are_warned_of_and_each_message_has_an_event_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("list");
    fs::write(&list, "gone\njoe\n").unwrap();
    let aliases = format!("team: joe, nosuch2, nosuch3\nall: team\nlist: joe, :include:{}\n", list.display());
    fs::write(dir.path().join("aliases"), aliases).unwrap();
    let daemon = Postrider::start_in(
        dir,
        free_address(),
        "[local]\nusers = [\"joe\"]\n[addresses]\naliases = [\"aliases:aliases\"]\n[log]\nfile = \"mail.log\"\n\
         [[rule]]\nfor = \"all\"\nto = [\"old@mx.test\"]\nredirect = [\"team@mx.test\"]\n",
    );
    for command in [&["config", "check"][..], &["sendmail", "-bi"], &["doctor", "--offline"]] {
        let output = daemon.run(command, "");
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        for (line, member) in
            [(1, "`team`: nosuch2@mx.test"), (1, "`team`: nosuch3@mx.test"), (3, "`list`: gone@mx.test")]
        {
            let warning = format!("line {line}, column 1: {member} does not exist");
            assert_eq!(said.matches(&warning).count(), 1, "{command:?}: {said}");
        }
        assert!(!said.contains("No mistakes") && !said.contains("`all`"), "{command:?}: {said}");
    }
    let dropped = |lines: &[serde_json::Value]| -> Vec<String> {
        let dropped = lines.iter().filter(|line| line["event"] == "discarded");
        dropped.map(|line| format!("{} {}", line["to"], line["reason"])).collect()
    };
    for (count, to) in [(1, "team@mx.test"), (2, "old@mx.test")] {
        send(&daemon, &[to]);
        has_mail(&daemon, &[("joe", count)]);
        until("both members have an event", || dropped(&daemon.log()).len() == 2 * count);
        for (event, member) in dropped(&daemon.log())[2 * count - 2..].iter().zip(["nosuch2", "nosuch3"]) {
            let why = format!("\"{member}@mx.test\" \"team@mx.test: {member}@mx.test does not exist");
            assert!(event.starts_with(&why), "{event}");
        }
    }
    let query = ["history", "query", "--recipient", "nosuch2@mx.test"];
    let why = "team@mx.test: nosuch2@mx.test does not exist";
    until("the history has it", || daemon.try_ask(&query).is_ok_and(|found| found.contains(why)));
}

#[test]
fn while_a_map_is_down_mail_waits_and_none_is_lost() {
    let daemon = start(
        &[],
        "[local]\nusers = [\"map:users\"]\n[map.users]\nsocketmap = \"unix:users.sock\"\ntimeout = \"5s\"\n",
    );
    let mut client = Client::connect(daemon.address).unwrap();
    for recipient in ["joe@mx.test", "eve@mx.test", "postmaster@mx.test"] {
        let reply = rcpt(&mut client, recipient);
        assert!(reply.starts_with("451 4.3.0"), "{recipient}: {reply}");
    }
    assert!(rcpt(&mut client, "x@far.test").starts_with("250"), "others are not concerned");
    // The message of a local program waits in the queue.
    assert!(sendmail(&daemon, &["joe"]).success());
    let path = daemon.dir.path().join("users.sock");
    let silent = UnixListener::bind(&path).unwrap();
    let reply = rcpt(&mut client, "joe@mx.test");
    assert!(reply.starts_with("451 4.3.0"), "a server that does not answer: {reply}");
    drop(silent);
    fs::remove_file(&path).unwrap();
    socketmap(&path);
    assert!(rcpt(&mut client, "joe+x@mx.test").starts_with("250"));
    assert!(rcpt(&mut client, "eve@mx.test").starts_with("550 5.1.1"));
    daemon.ask(&["queue", "flush"]);
    has_mail(&daemon, &[("joe", 1)]);
    assert_eq!((daemon.counter("bounced"), daemon.mailbox("eve").len()), (0, 0));
}

#[test]
fn both_forms_of_a_letter_outside_of_ascii_are_one_user() {
    let local = "[local]\nusers = [\"jörg\"]\n[addresses]\naliases = [\"aliases:aliases\"]\n";
    let daemon = start(&[("aliases", "m\u{fc}ller: j\u{f6}rg\n")], local);
    let mut client = Client::connect(daemon.address).unwrap();
    for recipient in ["jo\u{308}rg@mx.test", "JO\u{308}RG@mx.test", "mu\u{308}ller@mx.test"] {
        client.say("RSET").unwrap();
        client.say("MAIL FROM:<sender@far.test> SMTPUTF8").unwrap();
        let (code, reply) = client.say(&format!("RCPT TO:<{recipient}>")).unwrap();
        assert_eq!(code, 250, "{recipient}: {reply}");
        assert_eq!(client.say("DATA").unwrap().0, 354);
        assert_eq!(client.say("Subject: x\r\n\r\nx\r\n.").unwrap().0, 250);
    }
    has_mail(&daemon, &[("jörg", 3)]);
}

#[test]
fn a_target_whose_route_refuses_mail_does_not_stop_the_others() {
    let config = "[addresses]\nvirtual = [\"text:virtual\"]\n\
                  [[route]]\ndomains = [\"closed.test\"]\nreject = \"550 5.1.2 closed\"\n";
    let virtual_map = "both@mx.test x@closed.test, joe@mx.test\none@mx.test x@closed.test\n";
    let daemon = start(&[("virtual", virtual_map)], config);
    let mut client = Client::connect(daemon.address).unwrap();
    assert!(rcpt(&mut client, "one@mx.test").starts_with("550 5.1.2"));
    send(&daemon, &["both@mx.test"]);
    has_mail(&daemon, &[("joe", 1)]);
    // The report goes to a domain that does not exist.
    until("the other is returned", || daemon.counter("bounced") >= 1);
    assert!(sendmail(&daemon, &["-f", "joe@mx.test", "ann@mx.test", "x@closed.test"]).success());
    has_mail(&daemon, &[("ann", 1), ("joe", 2)]);
}

#[test]
fn mail_that_is_refused_when_the_daemon_starts_again_goes_back_to_its_sender() {
    let rule = "[[rule]]\nfor = \"all\"\nto = [\"never@far.test\"]\nreject = \"550 5.7.1 never\"\n";
    let daemon = start(&[], rule);
    let address = daemon.address;
    let (dir, _) = daemon.stop();
    let arguments = ["-f", "joe@mx.test", "never@far.test"];
    assert!(send_with(&dir.path().join("postrider.toml"), &arguments).success());
    let daemon = Postrider::start_in(dir, address, rule);
    has_mail(&daemon, &[("joe", 1)]);
    let text = fs::read_to_string(&daemon.mailbox("joe")[0]).unwrap();
    assert!(text.contains("never@far.test") && text.contains("550 5.7.1 never"), "{text}");
    until("the file is gone", || fs::read_dir(daemon.dir.path().join("data/drop")).unwrap().count() == 0);
}

#[test]
fn mail_whose_route_cannot_be_chosen_is_seen_in_the_drop_directory() {
    let daemon = start(
        &[],
        "[[route]]\ndomains = [\"*\"]\nsenders = [\"map:senders\"]\ndiscard = true\n[map.senders]\nsocketmap = \"unix:no.sock\"\n",
    );
    sendmail(&daemon, &["x@far.test"]);
    let waits = "drop directory: 1 message of local programs cannot be queued now: 451 4.3.0";
    until("status tells of it", || daemon.ask(&["status"]).contains(waits));
    let listed = daemon.ask(&["queue", "list"]);
    assert!(listed.contains("Mail queue is empty\n") && listed.contains(waits), "{listed}");
    assert!(daemon.ask(&["status", "--prometheus"]).contains("postrider_dropped_messages 1"));
}

#[test]
fn a_changed_file_is_used_and_a_bad_one_is_not() {
    let daemon = start(&[("aliases", "list: joe\n")], "[addresses]\naliases = [\"aliases:aliases\"]\n");
    let path = daemon.dir.path().join("aliases");
    send(&daemon, &["list@mx.test"]);
    has_mail(&daemon, &[("joe", 1)]);
    let write = |text: &str| {
        let new = daemon.dir.path().join("aliases.new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &path).unwrap();
    };
    write("list: joe, nobody at all@\n");
    let goes_to = |user: &str| {
        let before = daemon.mailbox(user).len();
        until(&format!("{user} gets mail"), || {
            send(&daemon, &["list@mx.test"]);
            until("the queue is empty", || daemon.ask(&["queue", "count"]) == "0\n");
            daemon.mailbox(user).len() > before
        });
    };
    // Well over the second between two looks at the file.
    let begun = std::time::Instant::now();
    while begun.elapsed() < std::time::Duration::from_millis(2500) {
        goes_to("joe");
    }
    write("list: ann\n");
    goes_to("ann");
    fs::remove_file(&path).unwrap();
    goes_to("ann");
    assert_eq!(daemon.counter("bounced"), 0);
}

#[test]
fn senders_get_their_canonical_address_without_the_host() {
    let sink = Sink::start();
    let daemon = start(
        &[("canonical", "j.smith@mx.test joe.smith@mx.test\nold@far.test new@far.test\n")],
        &format!(
            "{}[addresses]\ncanonical = [\"text:canonical\"]\nmasquerade = [\"example.test\"]\n",
            sink.route()
        ),
    );
    let mut client = Client::connect(daemon.address).unwrap();
    for (from, to) in
        [("root@host.example.test", "old@far.test"), ("j.smith@mx.test", "x@far.test"), ("", "x@far.test")]
    {
        assert_eq!(client.send(from, &[to], b"Subject: x\r\n\r\nx\r\n").unwrap().0, 250);
    }
    assert!(sendmail(&daemon, &["-f", "ann@a.example.test", "old@far.test"]).success());
    until("all have arrived", || sink.count() == 4);
    let mut arrived: Vec<_> =
        sink.messages().into_iter().map(|message| (message.from, message.to.concat())).collect();
    arrived.sort();
    let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let expected = [
        pair("", "x@far.test"),
        pair("ann@example.test", "new@far.test"),
        pair("joe.smith@mx.test", "x@far.test"),
        pair("root@example.test", "new@far.test"),
    ];
    assert_eq!(arrived, expected);
}

#[test]
fn mail_for_hosted_domains_keeps_its_way_over_a_restart() {
    let maildirs = |dir: &Path| -> PathBuf { dir.join("data/mail/joe") };
    let daemon =
        start(&[("domains", "hosted.test\n")], "[local]\ndomains = [\"mx.test\", \"text:domains\"]\n");
    // Mail for a Maildir that cannot be made waits.
    fs::create_dir_all(daemon.dir.path().join("data/mail")).unwrap();
    fs::write(maildirs(daemon.dir.path()), "a file in its place").unwrap();
    send(&daemon, &["joe@hosted.test"]);
    until("it was attempted", || daemon.ask(&["queue", "list"]).contains("Not a directory"));
    let (dir, address) = daemon.kill();
    fs::remove_file(maildirs(dir.path())).unwrap();
    let more = "[local]\ndomains = [\"mx.test\", \"text:domains\"]\n";
    let daemon = Postrider::start_in(dir, address, more);
    daemon.ask(&["queue", "flush"]);
    has_mail(&daemon, &[("joe", 1)]);
}

#[test]
fn the_bare_postmaster_exists_whatever_the_map_of_users_has() {
    let (dir, address) = (tempfile::tempdir().unwrap(), crate::common::free_address());
    fs::write(dir.path().join("mailboxes"), "jane x\n").unwrap();
    let text = format!(
        "hostname = \"mx.test\"\ndata_dir = \"data\"\npostmaster = \"pm@mx.test\"\n[[listen]]\naddress = \"{address}\"\n\
         [local]\nusers = [\"joe\", \"text:mailboxes\"]\n[spool]\nsegment_size = \"4MiB\"\nmin_free = \"16MiB\"\n"
    );
    let daemon = Postrider::start_from(dir, address, &text);
    let mut client = Client::connect(daemon.address).unwrap();
    for (to, code) in
        [("postmaster", 250), ("postmaster@[127.0.0.1]", 250), ("jane@mx.test", 250), ("nix@mx.test", 550)]
    {
        assert_eq!(client.say("MAIL FROM:<>").unwrap().0, 250);
        assert_eq!(client.say(&format!("RCPT TO:<{to}>")).unwrap().0, code, "{to}");
        client.say("RSET").unwrap();
    }
    client.send("", &["postmaster"], b"Subject: x\r\n\r\nx\r\n").unwrap();
    until("it is delivered", || daemon.mailbox("pm").len() == 1);
}

#[test]
fn local_mail_waits_in_the_queue_for_one_recipient_that_cannot_be_expanded() {
    let sink = Sink::start();
    let route = sink.route().replace("\"*\"", "\"far.test\"");
    let aliases = "ring: gnir\ngnir: ring\nteam: joe, x@far.test\n";
    let daemon = start(
        &[("aliases", aliases)],
        &format!("[addresses]\naliases = [\"aliases:aliases\"]\n[log]\nfile = \"mail.log\"\n{route}"),
    );
    assert!(sendmail(&daemon, &["-f", "ann@mx.test", "-N", "success,failure", "joe", "ring"]).success());
    until("the other recipient has it", || daemon.mailbox("joe").len() == 1);
    let listed = || daemon.ask(&["queue", "list"]);
    until("the reason is listed", || {
        listed().contains("ring@mx.test") && listed().contains("leads back to itself")
    });
    until("the other recipient is not listed", || !listed().contains("joe@mx.test"));
    let id = daemon.outcome("joe@mx.test")["id"].as_str().unwrap().to_owned();
    let why = daemon.ask(&["why", &id]);
    assert!(why.contains("leads back to itself"), "{why}");
    // Nothing is told to the sender but the delivery to joe, and no file is left behind.
    until("the report on joe", || daemon.mailbox("ann").len() == 1);
    assert_eq!(fs::read_dir(daemon.dir.path().join("data/drop")).map_or(0, Iterator::count), 0);
    // A file is read when it has not changed for a second.
    fs::write(daemon.dir.path().join("aliases"), "ring: team, joe\nteam: joe, x@far.test\n").unwrap();
    until("the recipients have it", || {
        let _ = daemon.try_ask(&["queue", "retry", &id]);
        daemon.mailbox("joe").len() == 2 && sink.count() == 1
    });
    until("the queue is empty", || !listed().contains("ring@mx.test"));
    let of_ring = |line: &serde_json::Value| {
        line["to"] == "ring@mx.test" && line.to_string().contains("expanded, queued as")
    };
    until("the log says what became of it", || daemon.log().iter().any(of_ring));
    // RFC 3461 §5.2.7: the sender is told that the alias was expanded, and not that it was delivered.
    until("the report on the alias", || daemon.mailbox("ann").len() == 2);
    let reports: Vec<String> =
        daemon.mailbox("ann").iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let on_ring = reports.iter().find(|report| report.contains("rfc822; ring@mx.test")).unwrap();
    assert!(on_ring.contains("Action: expanded"), "{on_ring}");
}

#[test]
fn a_list_of_any_length_is_queued_as_several_messages_all_or_none_of_which_survive_a_crash() {
    const MEMBERS: u64 = 50_001;
    let dir = tempfile::tempdir().unwrap();
    let list = |name: &str, count: u64| {
        let file = dir.path().join(name);
        fs::write(&file, (0..count).map(|n| format!("m{n}@far.test\n")).collect::<String>()).unwrap();
        format!("{name}: :include:{}\n", file.display())
    };
    let aliases = list("all", MEMBERS) + &list("most", 150_000) + "few: joe, ann\n";
    let keys = "segment_size = \"8MiB\"\n[addresses]\naliases = [\"aliases:aliases\"]\n[[route]]\ndomains = [\"far.test\"]\n";
    let held = format!("{keys}hold = true\n");
    let daemon = start(&[("aliases", &aliases)], &held);
    let mut client = Client::connect(daemon.address).unwrap();
    // A part of the content is in the spool before the message ends.
    let body = format!("Subject: s\r\n\r\n{}", "0123456789abcdef\r\n".repeat(30_000));
    let to = ["all@mx.test", "joe@mx.test"];
    let reply = client.send("a@far.test", &to, body.as_bytes()).unwrap();
    assert_eq!(reply.0, 250, "{}", reply.1);
    // The segments of this spool are smaller than this list.
    let reply = client.send("a@far.test", &["most@mx.test"], b"Subject: s\r\n\r\nx\r\n").unwrap();
    assert!(reply.0 == 550 && reply.1.contains("spool.segment_size"), "{}", reply.1);
    let (dir, address) = daemon.kill();
    let daemon = Postrider::start_in(dir, address, &held);
    assert_eq!(daemon.counter("queued"), MEMBERS + 1);
    assert_eq!(daemon.ask(&["queue", "count"]), "2\n");
    daemon.reconfigure(&format!("{keys}discard = true\n"));
    daemon.ask(&["reload"]);
    daemon.ask(&["queue", "release", "all"]);
    until("all are delivered", || daemon.counter("queued") == 0);
    assert_eq!((daemon.counter("delivered"), daemon.counter("bounced")), (MEMBERS + 1, 0));
    let text = fs::read_to_string(&daemon.mailbox("joe")[0]).unwrap();
    assert_eq!(text.lines().count(), text.lines().position(|line| line == "Subject: s").unwrap() + 30_002);
    // What one list needs is no reason to refuse it together with a short one before it.
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<a@far.test>").unwrap();
    assert!(client.say("RCPT TO:<all@mx.test>").unwrap().1.starts_with("250"));
    assert!(client.say("RCPT TO:<few@mx.test>").unwrap().1.starts_with("452 4.5.3"));
}

#[test]
fn a_list_that_is_too_long_is_refused_for_good_and_the_reply_names_the_key() {
    let list: Vec<String> = (0..1500).map(|n| format!("user{n}@mx.test")).collect();
    let aliases = format!("all: {}\nfew: joe, ann, bob\n", list.join(", "));
    let addresses = "[addresses]\naliases = [\"aliases:aliases\"]\n";
    let daemon = start(&[("aliases", &aliases)], addresses);
    let mut client = Client::connect(daemon.address).unwrap();
    assert!(rcpt(&mut client, "all@mx.test").starts_with("250"), "more than 1,000 members");
    drop((client, daemon));
    let daemon = start(&[("aliases", &aliases)], &format!("{addresses}max_list_members = 2\n"));
    let mut client = Client::connect(daemon.address).unwrap();
    let reply = rcpt(&mut client, "few@mx.test");
    assert!(reply.starts_with("550 5.2.4 ") && reply.contains("addresses.max_list_members"), "{reply}");
}
