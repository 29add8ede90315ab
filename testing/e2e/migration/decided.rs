//! Set-ups that are made by chance: another server and Postrider with what it imports give replies of the same class to each recipient.
//!
//! `POSTRIDER_TEST_SEED` and `POSTRIDER_TEST_COUNT` ask for others and for more. With a count of 1, everything is shown.

use super::{Other, SetUp, generated::number, world::SERVER};
use crate::common::{session::connect_from, until};
use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
};

const CLIENTS: [&str; 4] = ["127.0.0.1", "198.51.100.7", "203.0.113.9", "192.0.2.66"];
const SENDERS: [&str; 6] =
    ["a@from.example", "", "x@bad.example", "bad@sender.example", "joe@example.com", "joe@mx.test"];
const NAMES: [&str; 5] = ["joe", "ann", "sales", "info", "unknown"];

/// A session that is begun anew when the server ends it.
struct Session<'s> {
    client: &'s str,
    sender: &'s str,
    open: Option<(BufReader<TcpStream>, String)>,
}

impl Session<'_> {
    /// Sends RCPT, and returns the reply.
    fn ask(&mut self, recipient: &str) -> String {
        let is_new = self.open.is_none();
        let (stream, begin) = self.open.get_or_insert_with(|| {
            let stream = connect_from(self.client, SERVER);
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(crate::common::WAIT_TIMEOUT)).unwrap();
            let mut stream = BufReader::new(stream);
            let mut begin = reply(&mut stream);
            for line in ["EHLO client.example", &format!("MAIL FROM:<{}>", self.sender)] {
                if begin.starts_with('2') {
                    begin = say(&mut stream, line);
                }
            }
            (stream, begin)
        });
        let answer = if begin.starts_with('2') {
            say(stream, &format!("RCPT TO:<{recipient}>"))
        } else {
            begin.clone()
        };
        let has_ended = answer == "closed" || answer.starts_with("421");
        if has_ended || !begin.starts_with('2') {
            self.open = None;
        }
        if has_ended && !is_new { self.ask(recipient) } else { answer }
    }
}

fn say(stream: &mut BufReader<TcpStream>, line: &str) -> String {
    // Exim writes a refusal in two parts, and the second waits for the acknowledgement of the first.
    rustix::net::sockopt::set_tcp_quickack(stream.get_ref(), true).unwrap();
    let _ = stream.get_mut().write_all(format!("{line}\r\n").as_bytes());
    reply(stream)
}

/// Returns the last line of a reply.
fn reply(stream: &mut BufReader<TcpStream>) -> String {
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).unwrap_or(0) == 0 {
            return "closed".to_owned();
        }
        if line.as_bytes().get(3) != Some(&b'-') {
            return line.trim().to_owned();
        }
    }
}

/// Returns the recipients that a session tries.
fn recipients(set_up: &SetUp) -> impl Iterator<Item = String> {
    let domains = set_up.domains.iter();
    domains.flat_map(|domain| NAMES.iter().map(move |name| format!("{name}@{domain}")))
}

/// Returns the recipients that were named before that of an envelope.
fn before(set_up: &SetUp, envelope: &str) -> Vec<String> {
    recipients(set_up).take_while(|recipient| !envelope.ends_with(&format!("<{recipient}>"))).collect()
}

/// Returns the replies of the server to all envelopes.
fn replies(set_up: &SetUp) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (client, sender) in
        CLIENTS.iter().flat_map(|client| SENDERS.iter().map(move |sender| (*client, *sender)))
    {
        let mut session = Session { client, sender, open: None };
        for recipient in recipients(set_up) {
            let reply = session.ask(&recipient);
            found.insert(format!("{client} <{sender}> to <{recipient}>"), reply);
        }
        if let Some((mut stream, _)) = session.open {
            let _ = stream.get_mut().write_all(b"QUIT\r\n");
        }
    }
    found
}

/// A difference of replies, and what the import said.
pub(crate) struct Asked<'s> {
    pub(crate) theirs: &'s str,
    pub(crate) ours: &'s str,
    pub(crate) said: &'s str,
    /// The address of the client, `<sender>`, `to` and `<recipient>`.
    pub(crate) envelope: &'s str,
    /// The recipients that the client named before, in the same session.
    pub(crate) before: &'s [String],
    /// Files of tables, by name.
    pub(crate) files: &'s [(&'static str, String)],
}

/// Returns the differences that nothing explains, with their set-ups. None where the server cannot be started.
pub(crate) fn check<S: Other>(
    generated: fn(u64) -> SetUp,
    usual_count: u64,
    explain: fn(&Asked<'_>) -> Option<&'static str>,
) -> Option<()> {
    let (seed, count) =
        (number("POSTRIDER_TEST_SEED").unwrap_or(9), number("POSTRIDER_TEST_COUNT").unwrap_or(usual_count));
    let (mut asked, mut told, mut different) = (0, BTreeMap::<&str, usize>::new(), Vec::new());
    for seed in seed..seed + count {
        let set_up = generated(seed);
        let machine = S::machine(&set_up)?;
        let running = S::start(&machine);
        let theirs = replies(&set_up);
        drop(running);
        until("the other server has ended", || TcpStream::connect(SERVER).is_err());
        let [server, dir] = S::IMPORT;
        let (postrider, said) = machine.start_imported(server, dir);
        let ours = replies(&set_up);
        let configuration = postrider.configuration();
        drop(postrider);
        until("Postrider has ended", || TcpStream::connect(SERVER).is_err());
        asked += theirs.len();
        if count == 1 {
            set_up.files.iter().for_each(|(file, text)| println!("{file}:\n{text}"));
            println!("{said}\n{configuration}");
        }
        let mut found = Vec::new();
        for (envelope, theirs) in &theirs {
            let ours = &ours[envelope];
            if theirs.as_bytes()[0] == ours.as_bytes()[0] {
                continue;
            }
            let before = before(&set_up, envelope);
            let files = &set_up.files;
            match explain(&Asked { theirs, ours, said: &said, envelope, before: &before, files }) {
                Some(why) => *told.entry(why).or_default() += 1,
                None => found.push(format!("{envelope}: {theirs} | {ours}")),
            }
        }
        if !found.is_empty() {
            let most = if count == 1 { found.len() } else { 3 };
            different.push(format!(
                "{}\n{} of {} differ:\n{}",
                set_up.name,
                found.len(),
                theirs.len(),
                found[..most.min(found.len())].join("\n")
            ));
        }
    }
    println!("seeds {seed} to {}: {asked} recipients; {told:#?}", seed + count - 1);
    assert!(different.is_empty(), "{} of {count} differ:\n{}", different.len(), different.join("\n"));
    Some(())
}
