//! The disk is full, in bytes or in files: new mail waits with its sender, everything else goes on.

use crate::common::{Postrider, client::Client, free_address, sink::Sink, until};
use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Room that comes back must be used within this: much sooner than by a client's or the queue's next attempt, and
/// late enough for a machine that does much else.
const RESUME: Duration = Duration::from_secs(120);

/// A small file system of its own over a folder, as long as this lives.
struct Small {
    dir: PathBuf,
    _image: Option<TempDir>,
}

impl Small {
    /// `None`, and a word about it, where none can be had.
    fn over(dir: &Path, options: &str) -> Option<Self> {
        let mounted = mount(&["-t", "tmpfs", "-o", options, "tmpfs"], dir);
        if !mounted {
            println!("SKIPPED: a full disk: only root can mount a small one");
        }
        mounted.then(|| Self { dir: dir.to_owned(), _image: None })
    }

    /// Mounts a btrfs in an image.
    fn btrfs(dir: &Path) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        fs::File::create(&image).unwrap().set_len(300 << 20).unwrap();
        let made = Command::new("mkfs.btrfs").arg("-q").arg(&image).output();
        let is_mounted = made.is_ok_and(|made| made.status.success())
            && mount(&["-o", "loop", image.to_str().unwrap()], dir);
        if !is_mounted {
            println!("SKIPPED: a full btrfs: root and mkfs.btrfs are needed");
        }
        is_mounted.then(|| Self { dir: dir.to_owned(), _image: Some(folder) })
    }

    /// Another program takes all room there is.
    fn fill(&self) {
        let mut length = 1 << 20;
        for number in 0.. {
            let bytes = vec![b'x'; length];
            let written = fs::write(self.dir.join(format!("filler{number}")), &bytes)
                .and_then(|()| fs::File::open(self.dir.join(format!("filler{number}")))?.sync_all());
            match written {
                Ok(()) => {}
                Err(_) if length > 4096 => length /= 4,
                Err(_) => return,
            }
        }
    }

    /// Gives back the room that `fill` took.
    fn empty(&self) {
        for entry in fs::read_dir(&self.dir).unwrap().map_while(Result::ok) {
            if entry.file_name().to_string_lossy().starts_with("filler") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }

    fn limit(&self, options: &str) {
        assert!(self.remount(options), "remount with {options}");
    }

    fn remount(&self, options: &str) -> bool {
        mount(&["-o", &format!("remount,{options}")], &self.dir)
    }

    /// Room for two more files. Segments may be in the making, and files that are there cannot be taken away.
    fn limit_files(&self) {
        let limited = || self.remount(&format!("size=1g,nr_inodes={}", self.file_count() + 2));
        assert!((0..100).any(|_| limited()), "no limit for files: {} are there", self.file_count());
    }

    fn file_count(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.dir).unwrap();
        stat.f_files - stat.f_ffree
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.dir).status();
        let _ = std::fs::remove_dir(&self.dir);
    }
}

fn mount(arguments: &[&str], dir: &Path) -> bool {
    let output = Command::new("mount").args(arguments).arg(dir).output();
    output.is_ok_and(|output| output.status.success())
}

/// Phases of the next hop: its answer to recipients in `b.test`. Reports to `a.test` always arrive.
const BUSY: u8 = 0;
const REFUSES_GONE: u8 = 1;
const TAKES: u8 = 2;

fn next_hop(phase: &Arc<AtomicU8>) -> Sink {
    let phase = phase.clone();
    Sink::with(move |command| {
        let command = command.strip_prefix("RCPT TO:<").filter(|rest| rest.contains("@b.test"))?;
        let is_gone = command.starts_with("gone@");
        match phase.load(Ordering::Relaxed) {
            BUSY => Some("450 4.2.1 Mailbox busy".to_owned()),
            _ if is_gone => Some("550 5.1.1 No such user".to_owned()),
            REFUSES_GONE => Some("450 4.2.1 Mailbox busy".to_owned()),
            _ => None,
        }
    })
}

/// The reply to the end of a mail, or to what was refused before.
fn send(client: &mut Client, from: &str, to: &str) -> (u16, String) {
    for line in [format!("MAIL FROM:<{from}>"), format!("RCPT TO:<{to}>"), "DATA".to_owned()] {
        let reply = client.say(&line).unwrap();
        if !matches!(reply.0, 250 | 354) {
            client.say("RSET").unwrap();
            return reply;
        }
    }
    let content = format!("Subject: {from}\r\n\r\n{}.\r\n", format!("{}\r\n", "x".repeat(70)).repeat(1200));
    client.write(content.as_bytes()).unwrap();
    client.reply().unwrap()
}

/// Fills the disk, bounces while it is full, makes room; every message answered 250 must be accounted for.
fn story(
    spool: &str,
    over: impl Fn(&Path) -> Option<Small>,
    limit: impl Fn(&Small),
    room: impl Fn(&Small),
    reports_when_full: bool,
) {
    let dir: TempDir = tempfile::tempdir().unwrap();
    let Some(small) = over(dir.path()) else { return };
    let phase = Arc::new(AtomicU8::new(BUSY));
    let sink = next_hop(&phase);
    let config = format!("{spool}{}[queue]\nretry_min = \"1s\"\nretry_max = \"1s\"\n", sink.route());
    let daemon = Postrider::start_in(dir, free_address(), &config);
    let mut client = Client::connect(daemon.address).unwrap();
    let (mut taken, mut bounced) = (HashSet::new(), HashSet::new());
    let refused;
    let refusal = loop {
        let n = taken.len() + bounced.len();
        if n == 20 {
            limit(&small);
        }
        let (from, is_gone) = (format!("s{n}@a.test"), n % 10 == 9);
        let to = if is_gone { "gone@b.test" } else { "x@b.test" };
        let reply = send(&mut client, &from, to);
        if reply.0 != 250 {
            refused = from;
            break reply.1;
        }
        if is_gone {
            bounced.insert(from)
        } else {
            taken.insert(from)
        };
        assert!(n < 2000, "the disk never fills");
    };
    assert!(refusal.starts_with("452 4.3.1 "), "{refusal}");
    println!("full after {} messages: {refusal}", taken.len() + bounced.len());
    let status = daemon.ask(&["status"]);
    assert!(status.contains("USED UP: spool space, "), "{status}");

    phase.store(REFUSES_GONE, Ordering::Relaxed);
    daemon.ask(&["queue", "flush"]);
    let reported = || -> HashSet<String> {
        sink.messages().into_iter().filter(|m| m.from.is_empty()).flat_map(|m| m.to).collect()
    };
    if reports_when_full {
        until("failures are reported while the disk is full", || reported().len() >= bounced.len());
        assert_eq!(reported(), bounced);
    }

    phase.store(TAKES, Ordering::Relaxed);
    room(&small);
    let begun = Instant::now();
    // A client with many refusals is disconnected, so each attempt uses another client.
    let ask = || send(&mut Client::connect(daemon.address).unwrap(), "late@a.test", "x@b.test");
    until("new mail is taken", || ask().0 == 250);
    println!("taken again after {:?}", begun.elapsed());
    assert!(begun.elapsed() < RESUME, "new mail had to wait for {:?}", begun.elapsed());
    taken.insert("late@a.test".to_owned());
    daemon.ask(&["queue", "flush"]);
    until("the queue is empty", || daemon.counter("queued") == 0);
    assert_eq!(reported(), bounced);
    let mut arrived: HashSet<String> =
        sink.messages().into_iter().filter(|m| !m.from.is_empty()).map(|m| m.from).collect();
    // It may have been in the commit that found no room, and be stored after all.
    if !taken.contains(&refused) {
        arrived.remove(&refused);
    }
    assert_eq!(arrived, taken);
}

fn tmpfs(dir: &Path) -> Option<Small> {
    Small::over(dir, "size=64m,nr_inodes=1000")
}

#[test]
fn a_disk_without_bytes_takes_no_mail_and_loses_none() {
    story("", tmpfs, |_| {}, |small| small.limit("size=128m"), true);
}

#[test]
fn a_disk_without_files_takes_no_mail_and_loses_none() {
    story("", tmpfs, Small::limit_files, |small| small.limit("nr_inodes=1000"), true);
}

#[test]
fn a_btrfs_that_another_program_fills_takes_no_mail_and_loses_none() {
    // There is no room for outcomes either: what is written in place takes new blocks.
    story("", Small::btrfs, Small::fill, Small::empty, false);
}

#[test]
fn queue_directories_on_a_btrfs_that_another_program_fills_take_no_mail_and_lose_none() {
    story("backend = \"queue-dirs\"\n", Small::btrfs, Small::fill, Small::empty, false);
}

#[test]
fn a_disk_of_64_mib_is_enough_for_a_daemon_without_settings_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_small) = Small::over(dir.path(), "size=64m") else { return };
    let address = free_address();
    let text = format!("hostname = \"mx.test\"\ndata_dir = \"data\"\n[[listen]]\naddress = \"{address}\"\n");
    let daemon = Postrider::start_from(dir, address, &text);
    for _ in 0..20 {
        daemon.send("joe@mx.test");
    }
    until("all is delivered", || daemon.mailbox("joe").len() == 20);
    let room = daemon.run(&["doctor", "--offline"], "");
    let room = String::from_utf8(room.stdout).unwrap();
    assert!(!room.contains("mail is refused"), "{room}");
    drop(daemon.kill());
}

#[test]
fn strangers_leave_a_part_of_the_queue_to_mail_of_this_site() {
    // Nobody listens there, so that mail stays in the queue.
    let nowhere = free_address();
    let daemon = Postrider::start(&format!(
        "[queue]\nmax_messages = 40\n[relay]\nnetworks = [\"127.0.0.2/32\"]\n\
         [[route]]\ndomains = [\"mx.test\"]\nlmtp = \"{nowhere}\"\n"
    ));
    let send_from = |client: &str| {
        let mut client = Client::connect_from(client, daemon.address).unwrap();
        send(&mut client, "a@far.test", "joe@mx.test")
    };
    let replies: Vec<u16> = (0..40).map(|_| send_from("127.0.0.9").0).collect();
    assert_eq!(replies, [[250; 38].as_slice(), &[452; 2]].concat());
    assert_eq!(send_from("127.0.0.2").0, 250);
    let local = daemon.run(&["sendmail", "-f", "a@mx.test", "joe@mx.test"], "Subject: x\n\nx\n");
    assert!(local.status.success(), "{}", String::from_utf8_lossy(&local.stderr));
    until("the queue is full", || daemon.counter("queued") == 40);
    assert_eq!((send_from("127.0.0.2").0, send_from("127.0.0.9").0), (452, 452));
}

#[test]
fn many_sessions_at_once_take_no_more_than_the_queue_holds() {
    let nowhere = free_address();
    let daemon = Postrider::start(&format!(
        "[queue]\nmax_messages = 10\n[relay]\nnetworks = [\"127.0.0.2/32\"]\n\
         [[route]]\ndomains = [\"mx.test\"]\nlmtp = \"{nowhere}\"\n"
    ));
    // All have passed MAIL before the first content comes.
    let mut clients: Vec<Client> = (0..30)
        .map(|number| {
            let mut client =
                Client::connect_from(&format!("127.0.0.{}", 10 + number), daemon.address).unwrap();
            for command in ["EHLO a.test", "MAIL FROM:<a@far.test>", "RCPT TO:<joe@mx.test>", "DATA"] {
                assert!(client.say(command).unwrap().0 < 400);
            }
            client
        })
        .collect();
    clients.iter_mut().for_each(|client| client.write(b"Subject: x\r\n\r\nx\r\n.\r\n").unwrap());
    let replies: Vec<u16> = clients.iter_mut().map(|client| client.reply().unwrap().0).collect();
    let taken = replies.iter().filter(|code| **code == 250).count();
    assert!(taken <= 9 && replies.iter().all(|code| [250, 452].contains(code)), "{replies:?}");
    let mut own = Client::connect_from("127.0.0.2", daemon.address).unwrap();
    assert_eq!(send(&mut own, "a@mx.test", "joe@mx.test").0, 250);
}

#[test]
fn strangers_leave_space_to_mail_of_this_site_whatever_the_size_of_their_mail() {
    for (size, kib, step) in [("12MiB", 200, 40), ("64MiB", 300, 60), ("64MiB", 6000, 3)] {
        let nowhere = free_address();
        let segment = if size == "12MiB" { "1MiB" } else { "4MiB" };
        let daemon = Postrider::start(&format!(
            "segment_size = \"{segment}\"\nmax_size = \"{size}\"\n[relay]\nnetworks = [\"127.0.0.2/32\"]\n\
             [[route]]\ndomains = [\"mx.test\"]\nlmtp = \"{nowhere}\"\n"
        ));
        let mut content = b"Subject: x\r\n\r\n".to_vec();
        (0..kib * 16).for_each(|_| content.extend([&[b'x'; 62][..], b"\r\n"].concat()));
        content.extend(b".\r\n");
        let send_from = |client: &str| {
            let mut client = Client::connect_from(client, daemon.address).unwrap();
            let commands = ["MAIL FROM:<a@far.test>", "RCPT TO:<joe@mx.test>", "DATA"];
            let refused =
                commands.iter().map(|command| client.say(command).unwrap().0).find(|code| *code >= 400);
            refused.unwrap_or_else(|| {
                client.write(&content).unwrap();
                client.reply().unwrap().0
            })
        };
        // Room is made by and by: it is used up when strangers are refused again and again.
        let mut refused = 0;
        for _ in 0..step * 20 {
            refused = if send_from("127.0.0.9") == 250 { 0 } else { refused + 1 };
            if refused == 20 {
                break;
            }
        }
        assert_eq!(refused, 20, "{size}, {kib} KiB");
        let mut own = Client::connect_from("127.0.0.2", daemon.address).unwrap();
        assert_eq!(send(&mut own, "a@mx.test", "joe@mx.test").0, 250, "{size}, {kib} KiB");
        let local = daemon.run(&["sendmail", "-f", "a@mx.test", "joe@mx.test"], "Subject: x\n\nx\n");
        assert!(local.status.success(), "{}", String::from_utf8_lossy(&local.stderr));
        drop(daemon.kill());
    }
}
