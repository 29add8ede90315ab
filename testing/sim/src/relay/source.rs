//! A client of ours: it sends in pieces, stops in the middle, asks beside its mail, and gives again the recipients for which it
//! read neither 250 nor a refusal for good. The daemon's session is at the other end of its connection.

use super::{
    attempt::{Attempt, Given},
    driver::Driver,
    oracle::{FEW_DESTINATIONS, Mail, Oracle, is_strangers, recipient, sender},
};
use crate::seed::Rng;
use inbound::{Client, ClientTls, NamedClient};
use mail::{DeliveryOptions, ForwardPath, ListenerKind, Notify, Priority, Recipient};
use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use tokio::io::{AsyncRead as _, AsyncWrite as _, DuplexStream, ReadBuf};

/// The login of clients for whom another server speaks.
const LOGIN: &str = "joe";

/// What the next reply is to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Greeting,
    Hello,
    Mail,
    /// RCPT, by index of the recipient.
    Rcpt(usize),
    /// A command without effect, such as NOOP.
    Other,
    Reset,
    Data,
    Content,
}

/// The client's end of a connection.
struct Line {
    stream: DuplexStream,
    to_send: Vec<u8>,
    unread: Vec<u8>,
    awaited: VecDeque<Awaited>,
    client: Client,
    /// Of the open transaction.
    attempt: u64,
}

/// A client, at most with one connection at a time.
#[derive(Default)]
pub(super) struct Source {
    line: Option<Line>,
}

/// The state of a connection after what the client heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Stays,
    EndsTransaction,
    Breaks,
}

impl Source {
    /// Forgets the connection: either side has closed it.
    pub(super) fn hang_up(&mut self) {
        self.line = None;
    }

    /// Something that clients do.
    pub(super) fn step(&mut self, driver: &mut Driver, oracle: &mut Oracle, rng: &mut Rng) {
        if rng.chance(2) {
            self.hang_up();
        }
        // With many recipients a message the queue would only grow.
        let rounds = if oracle.destinations > FEW_DESTINATIONS { 1 } else { 1 + rng.below(4) };
        for _ in 0..rounds {
            let line = self.line.get_or_insert_with(|| Line::connect(driver, oracle, rng));
            let is_open = line.send(rng);
            driver.run_front(oracle, rng);
            if !line.receive(oracle, rng) || !is_open {
                return self.hang_up();
            }
        }
    }
}

impl Line {
    /// Connects for a new mail, or for one whose sender has no last word on some recipients.
    fn connect(driver: &Driver, oracle: &mut Oracle, rng: &mut Rng) -> Self {
        let n = choose(oracle, None, rng).expect("a client chooses any mail");
        let network = if is_strangers(n) { "203.0.113.1:1025" } else { "192.0.2.1:1025" };
        let tls =
            ClientTls { cipher: "TLSv1.3".into(), key_exchange: None, bindings: None, certificate: None };
        let named = NamedClient { login: Some(LOGIN.into()), ..NamedClient::default() };
        let client = Client {
            peer: network.parse().expect("an address"),
            local: "192.0.2.25:25".parse().expect("an address"),
            listener: ListenerKind::Mx,
            tls: rng.chance(50).then_some(tls),
            named: rng.chance(30).then(|| Box::new(named)),
        };
        let stream = driver.connect(client.clone());
        let awaited = VecDeque::from([Awaited::Greeting]);
        let mut line = Self { stream, to_send: Vec::new(), unread: Vec::new(), awaited, client, attempt: 0 };
        line.begin(n, oracle);
        line
    }

    /// Chooses what a transaction has, which begins with the next EHLO.
    fn begin(&mut self, n: u64, oracle: &mut Oracle) {
        self.attempt = oracle.attempts.len() as u64;
        let mut options = DeliveryOptions::default();
        if self.client.named.is_some() {
            options.login = Some(LOGIN.into());
        }
        if n % 5 == 3 && !is_strangers(n) {
            options.priority = Priority::new((n / 5 % 19) as i8 - 9);
            options.requiretls = self.client.tls.is_some() && n.is_multiple_of(2);
        }
        // Some want to hear of success (RFC 3461 §4.1).
        let notify = Notify { success: true, failure: true, delay: true, explicit: true };
        let notify = if n.is_multiple_of(7) { notify } else { Notify::default() };
        let given = oracle.mails[&n].open.iter().map(|k| {
            let path = recipient((n, *k), oracle.destinations);
            let path = ForwardPath::parse(&path, false).expect("an address");
            Given {
                who: (n, *k),
                recipient: Recipient { notify, ..Recipient::new(path) },
                is_accepted: false,
            }
        });
        let attempt = Attempt::new(n, given.collect(), options);
        oracle.judgments.with(|judgments| judgments.begin(self.attempt, attempt.given.len()));
        oracle.attempts.insert(self.attempt, attempt);
    }

    fn say(&mut self, text: &str, awaited: Awaited) {
        self.to_send.extend_from_slice(text.as_bytes());
        self.to_send.extend_from_slice(b"\r\n");
        self.awaited.push_back(awaited);
    }

    fn say_hello(&mut self) {
        self.say(&format!("EHLO a{}.source.test", self.attempt), Awaited::Hello);
    }

    /// The envelope and DATA, in one group (RFC 2920).
    fn say_envelope(&mut self, oracle: &Oracle, rng: &mut Rng) {
        let attempt = &oracle.attempts[&self.attempt];
        let mut mail = format!("MAIL FROM:<{}>", sender(attempt.n));
        if let Some(priority) = attempt.options.priority {
            mail += &format!(" MT-PRIORITY={}", priority.value());
        }
        if attempt.options.requiretls {
            mail += " REQUIRETLS";
        }
        self.say(&mail, Awaited::Mail);
        for (index, given) in attempt.given.iter().enumerate() {
            let notify = if given.recipient.notify.success { " NOTIFY=SUCCESS,FAILURE,DELAY" } else { "" };
            self.say(&format!("RCPT TO:<{}>{notify}", given.recipient.path), Awaited::Rcpt(index));
            if rng.below(20 * (attempt.given.len() as u64 / 10).max(1)) == 0 {
                self.say("VRFY postmaster", Awaited::Other);
            }
        }
        match rng.below(20) {
            0 => self.say("RSET", Awaited::Reset),
            _ => self.say("DATA", Awaited::Data),
        }
    }

    /// Sends a piece. False: nobody is there.
    fn send(&mut self, rng: &mut Rng) -> bool {
        if self.to_send.is_empty() {
            return true;
        }
        let count = 1 + rng.index(self.to_send.len());
        let mut waker = Context::from_waker(Waker::noop());
        match Pin::new(&mut self.stream).poll_write(&mut waker, &self.to_send[..count]) {
            Poll::Ready(Ok(count)) => _ = self.to_send.drain(..count),
            Poll::Ready(Err(_)) => return false,
            Poll::Pending => {}
        }
        true
    }

    /// Reads what has come, and acts on it. False: the connection ends.
    fn receive(&mut self, oracle: &mut Oracle, rng: &mut Rng) -> bool {
        let (mut waker, mut is_open) = (Context::from_waker(Waker::noop()), true);
        let mut room = [0; 2048];
        loop {
            let mut buffer = ReadBuf::new(&mut room);
            match Pin::new(&mut self.stream).poll_read(&mut waker, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.unread.extend_from_slice(buffer.filled());
                }
                Poll::Ready(_) => {
                    is_open = false;
                    break;
                }
                Poll::Pending => break,
            }
        }
        while let Some(reply) = self.next_reply() {
            match self.hear(&reply, oracle, rng) {
                Next::Stays => {}
                Next::EndsTransaction => {
                    let of_strangers = is_strangers(oracle.attempts[&self.attempt].n);
                    match choose(oracle, Some(of_strangers), rng).filter(|_| is_open) {
                        Some(n) => self.begin(n, oracle),
                        None => return false,
                    }
                    self.say_hello();
                }
                Next::Breaks => return false,
            }
        }
        is_open
    }

    /// The last line of the next reply that is complete.
    fn next_reply(&mut self) -> Option<String> {
        loop {
            let end = self.unread.iter().position(|b| *b == b'\n')?;
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            let line = String::from_utf8(line).expect("replies are text");
            if line.as_bytes().get(3) != Some(&b'-') {
                return Some(line.trim_end().to_owned());
            }
        }
    }

    fn hear(&mut self, reply: &str, oracle: &mut Oracle, rng: &mut Rng) -> Next {
        // 421 is about the connection, whatever was asked.
        let Some(awaited) = self.awaited.pop_front().filter(|_| !reply.starts_with("421")) else {
            return Next::Breaks;
        };
        let attempt = oracle.attempts.get_mut(&self.attempt).expect("it was begun");
        match (awaited, &reply[..1]) {
            (Awaited::Greeting, "2") => self.say_hello(),
            (Awaited::Hello, "2") => self.say_envelope(oracle, rng),
            (Awaited::Mail, "2") | (Awaited::Other, _) => {}
            (Awaited::Rcpt(index), "2") => attempt.given[index].is_accepted = true,
            (Awaited::Rcpt(index), class) => {
                oracle.refused_count += 1;
                let (n, k) = attempt.given[index].who;
                if class == "5" {
                    oracle.mails.get_mut(&n).expect("it is there").open.remove(&k);
                }
            }
            (Awaited::Data, "3") => {
                attempt.content_sent = true;
                self.to_send = oracle.mails[&attempt.n].content.to_vec();
                self.say(".", Awaited::Content);
            }
            (Awaited::Content, _) => {
                oracle.told(self.attempt, reply);
                return if rng.chance(60) { Next::EndsTransaction } else { Next::Breaks };
            }
            (Awaited::Reset, "2") | (Awaited::Data, _) => return Next::EndsTransaction,
            (Awaited::Greeting | Awaited::Hello | Awaited::Mail | Awaited::Reset, _) => return Next::Breaks,
        }
        Next::Stays
    }
}

/// Chooses one of the newest mails that have open recipients, or a new one; of such clients.
fn choose(oracle: &mut Oracle, of_strangers: Option<bool>, rng: &mut Rng) -> Option<u64> {
    let is_meant = |n: &u64| of_strangers.is_none_or(|of_strangers| is_strangers(*n) == of_strangers);
    let newest = oracle.mails.iter().rev().take(12);
    let open = newest.filter(|(_, mail)| !mail.open.is_empty()).map(|(n, _)| *n).find(is_meant);
    if let Some(n) = open.filter(|_| rng.chance(50)) {
        return Some(n);
    }
    let next = oracle.mails.len() as u64;
    is_meant(&next).then(|| new_mail(next, oracle, rng))
}

fn new_mail(n: u64, oracle: &mut Oracle, rng: &mut Rng) -> u64 {
    let lines = if rng.chance(10) { rng.index(120) } else { rng.index(8) };
    let mut text = format!("Subject: mail {n}\r\n\r\n");
    (0..lines).for_each(|_| text += &format!("{:x}{:x}{:x}\r\n", rng.bits(), rng.bits(), rng.bits()));
    let mut recipient_count = 1 + rng.below(4) as u32;
    if oracle.destinations > FEW_DESTINATIONS && rng.chance(80) && !is_strangers(n) {
        recipient_count = 500 + rng.below(400) as u32;
    }
    oracle.mails.insert(n, Mail { open: (0..recipient_count).collect(), content: text.into() });
    n
}
