//! Maps that are stopped, slow, half-written and corrupt while mail comes in: no mail is refused for good, returned or
//! lost because of that, and other deliveries go on.

use crate::common::{
    Postrider,
    client::Client,
    free_address,
    load::{CLIENTS, MESSAGES, all_arrived, damage, send_all},
    until,
};
use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixListener,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

fn start(files: &[(&str, &[u8])], more: &str) -> Postrider {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    let more = format!("[relay]\nnetworks = []\n[log]\nfile = \"mail.log\"\n{more}");
    Postrider::start_in(dir, free_address(), &more)
}

#[test]
fn files_that_are_written_and_damaged_meanwhile_lose_no_mail() {
    let files: Vec<(&'static str, Vec<u8>)> = vec![
        ("aliases", b"staff: joe\nroot: joe\nlong-name-at-the-end: joe\n".to_vec()),
        ("patterns", b"/^no-such-sender@/ other@far.test\n/^second@/ other@far.test\n".to_vec()),
        ("networks", b"198.51.100.0/24 blocked\n192.0.2.0/24 blocked\n".to_vec()),
        ("blocked", b"spam.test no\nother-spam.test no\n".to_vec()),
    ];
    let given: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
    let daemon = start(
        &given,
        "[addresses]\naliases = [\"aliases:aliases\"]\ncanonical = [\"regex:patterns\"]\n\
         [[rule]]\nclient = [\"cidr:networks\"]\nreject = true\n[[rule]]\nfrom = [\"text:blocked\"]\nreject = true\n",
    );
    let done = Arc::new(AtomicBool::new(false));
    let damaging = damage(daemon.dir.path(), &files, &done);
    let (accepted, deferred) = send_all(&daemon, &["joe@mx.test", "ann@mx.test"]);
    done.store(true, Ordering::SeqCst);
    assert!(damaging.join().unwrap() > 5);
    assert_eq!(accepted + deferred, MESSAGES);
    all_arrived(&daemon, &["joe", "ann"], accepted);
    // With whole files everything is taken again.
    until("the alias is back", || {
        let mut client = Client::connect(daemon.address).unwrap();
        client.say("MAIL FROM:<sender@far.test>").unwrap();
        client.say("RCPT TO:<staff@mx.test>").unwrap().0 == 250
    });
}

#[test]
fn a_user_whose_map_is_damaged_is_not_refused_for_good() {
    let mut text = String::new();
    for number in 0..500 {
        text.push_str(&format!("user{number} x\n"));
    }
    text.push_str("joe x\nann x\n");
    let whole = text.into_bytes();
    let daemon = start(&[("users", &whole)], "[local]\nusers = [\"text:users\"]\n");
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<sender@far.test>").unwrap();
    assert_eq!(client.say("RCPT TO:<nobody@mx.test>").unwrap().0, 550);
    // Unreadable: the table in use stays, and who is not in it is still unknown.
    fs::write(daemon.dir.path().join("users"), b"joe x\njoe\xff y\n").unwrap();
    let (accepted, deferred) = send_all(&daemon, &["joe@mx.test", "ann@mx.test"]);
    assert_eq!((accepted, deferred), (MESSAGES, 0));
    all_arrived(&daemon, &["joe", "ann"], accepted);
}

/// A socketmap server that answers after a time; none: never.
fn socketmap(path: &Path, after: Option<Duration>) {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut buffer = [0; 1024];
                while let Ok(1..) = stream.read(&mut buffer) {
                    let Some(after) = after else { continue };
                    thread::sleep(after);
                    if stream.write_all(b"9:NOTFOUND ,").is_err() {
                        return;
                    }
                }
            });
        }
    });
}

#[test]
fn servers_that_are_stopped_silent_or_talk_nonsense_delay_only_who_needs_them() {
    let dir = tempfile::tempdir().unwrap();
    socketmap(&dir.path().join("silent.sock"), None);
    let nonsense = UnixListener::bind(dir.path().join("nonsense.sock")).unwrap();
    thread::spawn(move || {
        for mut stream in nonsense.incoming().map_while(Result::ok) {
            let _ = stream.write_all(b"220 hello\r\n");
        }
    });
    let map = |name: &str| format!("[map.{name}]\nsocketmap = \"unix:{name}.sock\"\ntimeout = \"100ms\"\n");
    let rule =
        |name: &str| format!("[[rule]]\nto = [\"{name}@mx.test\"]\nfrom = [\"map:{name}\"]\nreject = true\n");
    let names = ["stopped", "silent", "nonsense"];
    let more: String = names.iter().map(|name| map(name) + &rule(name)).collect();
    let more = format!("[relay]\nnetworks = []\n{more}");
    let daemon = Postrider::start_in(dir, free_address(), &more);
    let recipients = &[
        "joe@mx.test",
        "stopped@mx.test",
        "ann@mx.test",
        "silent@mx.test",
        "joe@mx.test",
        "nonsense@mx.test",
    ];
    let (accepted, deferred) = send_all(&daemon, recipients);
    assert_eq!(accepted + deferred, MESSAGES);
    // Half of the mail needs no map.
    assert!(accepted.abs_diff(MESSAGES / 2) <= CLIENTS, "{accepted} accepted");
    all_arrived(&daemon, &["joe", "ann"], accepted);
}

#[test]
fn a_cdb_file_that_is_overwritten_in_place_defers_and_refuses_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let pairs: Vec<_> = (0..300).map(|n| (format!("u{n}"), "x".to_owned())).collect();
    maps::cdb::Cdb::create(&dir.path().join("v.cdb"), &pairs).unwrap();
    let path = dir.path().join("v.cdb");
    let whole = fs::read(&path).unwrap();
    let more = "[relay]\nnetworks = []\n[log]\nfile = \"mail.log\"\n[local]\nusers = [\"cdb:v.cdb\"]\n";
    let daemon = Postrider::start_in(dir, free_address(), more);
    let ask = |n: usize| {
        let mut client = Client::connect(daemon.address).unwrap();
        client.say("MAIL FROM:<sender@far.test>").unwrap();
        client.say(&format!("RCPT TO:<u{n}@mx.test>")).unwrap().0
    };
    assert_eq!((ask(1), ask(300)), (250, 550));
    for (round, zeros) in [2048..whole.len(), 0..2048].into_iter().enumerate() {
        let mut bytes = whole.clone();
        bytes[zeros].fill(0);
        let writer = fs::File::options().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&writer, &bytes, 0).unwrap();
        // At once, and when the daemon has looked at the file, which it does once a second.
        let written = Instant::now();
        for n in (0..300).cycle().take_while(|_| written.elapsed() < Duration::from_secs(3)) {
            assert_eq!(ask(n), 451, "round {round}");
        }
        let new = path.with_extension("new");
        fs::write(&new, &whole).unwrap();
        fs::rename(&new, &path).unwrap();
        until("the good file is read", || ask(4) == 250);
    }
}
