//! Mail from several clients while something fails, and the files that fail.

use super::{Postrider, client::Client, until};
use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

/// Messages that each test sends.
pub const MESSAGES: usize = 1000;
/// Clients that send them.
pub const CLIENTS: usize = 4;

/// Sends the messages from several clients, to the recipients in turn. Returns how many were accepted and how many have to be
/// sent again; another reply is a failure.
pub fn send_all(daemon: &Postrider, recipients: &'static [&'static str]) -> (usize, usize) {
    let (accepted, deferred) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let senders: Vec<JoinHandle<()>> = (0..CLIENTS)
        .map(|number| {
            let (address, accepted, deferred) = (daemon.address, accepted.clone(), deferred.clone());
            thread::spawn(move || {
                let mut client = Client::connect(address).unwrap();
                for message in 0..MESSAGES / CLIENTS {
                    if message % 15 == 14 {
                        // A server ends sessions with too many rejected commands.
                        client = Client::connect(address).unwrap();
                    }
                    let to = recipients[(message + number) % recipients.len()];
                    let mail = client.say("MAIL FROM:<sender@far.test>").unwrap();
                    let rcpt =
                        if mail.0 == 250 { client.say(&format!("RCPT TO:<{to}>")).unwrap() } else { mail };
                    if rcpt.0 == 250 {
                        assert_eq!(client.say("DATA").unwrap().0, 354);
                        client.write(b"Subject: x\r\n\r\nx\r\n.\r\n").unwrap();
                        let end = client.reply().unwrap();
                        assert_eq!(end.0, 250, "{}", end.1);
                        accepted.fetch_add(1, Ordering::SeqCst);
                    } else {
                        assert!(rcpt.1.starts_with("451 4."), "{to}: {}", rcpt.1);
                        deferred.fetch_add(1, Ordering::SeqCst);
                        client.say("RSET").unwrap();
                    }
                }
            })
        })
        .collect();
    for sender in senders {
        sender.join().unwrap();
    }
    (accepted.load(Ordering::SeqCst), deferred.load(Ordering::SeqCst))
}

/// Everything that was accepted is in a mailbox, and nothing was returned.
pub fn all_arrived(daemon: &Postrider, users: &[&str], accepted: usize) {
    let count = || users.iter().map(|user| daemon.mailbox(user).len()).sum::<usize>();
    until(&format!("{accepted} messages arrived"), || count() == accepted);
    // A file is there before the queue knows of it.
    until("the queue is empty", || daemon.counter("queued") == 0);
    assert_eq!(daemon.counter("bounced"), 0);
}

/// Writes files, over and over: half of the text, garbage, nothing, and the whole; and removes them.
pub fn damage(dir: &Path, files: &[(&'static str, Vec<u8>)], done: &Arc<AtomicBool>) -> JoinHandle<usize> {
    let (dir, files, done) = (dir.to_owned(), files.to_vec(), done.clone());
    thread::spawn(move || {
        let mut rounds = 0;
        while !done.load(Ordering::SeqCst) {
            for (name, whole) in &files {
                let path = dir.join(name);
                match rounds % 5 {
                    0 => fs::write(&path, &whole[..whole.len() / 2]).unwrap(),
                    1 => fs::write(&path, b"\x00\xff\n/(/ x\nno colon : : :\n999.0.0.0/77 x\n").unwrap(),
                    2 => fs::write(&path, b"").unwrap(),
                    3 => fs::remove_file(&path).unwrap(),
                    _ => fs::write(&path, whole).unwrap(),
                }
            }
            rounds += 1;
            thread::yield_now();
        }
        for (name, whole) in &files {
            fs::write(dir.join(name), whole).unwrap();
        }
        rounds
    })
}
