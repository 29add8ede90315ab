//! A message's whole way, from a client's first command to the outcome in the log: the parts of the
//! daemon that decide and write, without what waits for sockets.

use crate::{
    commit::Log,
    schedule::{Driver, delivered},
    session::Client,
};
use mail::{Disposition, Message, Origin, QueueId, SharedMessage, TransmissionType, UnixMillis};
use queue::Millis;
use smtp::client::{ClientSettings, Connection, Event, OutputPiece, Protocol, Transaction};
use spool::Entry;
use std::net::Ipv4Addr;

const GREETING: &[u8] = b"220 sink.test ESMTP\r\n";
const HELLO: &[u8] = b"250-sink.test\r\n250-PIPELINING\r\n250-8BITMIME\r\n250 ENHANCEDSTATUSCODES\r\n";
/// To MAIL, RCPT and DATA, which come together.
const BEGINNING: &[u8] = b"250 2.1.0 Ok\r\n250 2.1.5 Ok\r\n354 End data with <CR><LF>.<CR><LF>\r\n";
const END: &[u8] = b"250 2.0.0 Ok: queued as 42\r\n";

/// A connection to a next hop that answers as Postfix does.
struct Out(Connection);

impl Out {
    fn connect() -> Self {
        let (hello, depth) = ("mx.test".into(), 2);
        let settings = ClientSettings {
            protocol: Protocol::Smtp,
            hello,
            depth,
            pipelining: true,
            eight_bit_anyway: true,
        };
        let mut out = Self(Connection::new(settings));
        for line in [GREETING, HELLO] {
            out.write();
            out.0.receive(line).expect("the hop behaves");
        }
        assert_eq!(out.0.next_event(), Some(Event::Hello));
        out
    }

    /// Takes the bytes that are to be written, and returns their number.
    fn write(&mut self) -> usize {
        let mut bytes = 0;
        while let Some(piece) = self.0.next_piece() {
            bytes += match piece {
                OutputPiece::Text(text) => text.len(),
                OutputPiece::Content(content) => content.len(),
                OutputPiece::Load(_) => unreachable!("the content is in memory"),
            };
        }
        bytes
    }

    fn deliver(&mut self, name: u64, message: SharedMessage) {
        self.0.begin(Transaction { id: name, message, recipients: vec![0], deliver_by_seconds: 0 });
        for answer in [BEGINNING, END] {
            assert!(self.write() > 0);
            self.0.receive(answer).expect("the hop behaves");
        }
        let Some(Event::TransactionEnded(settled, results)) = self.0.next_event() else {
            panic!("it is settled")
        };
        assert_eq!((settled, results[0].outcome.disposition), (name, Disposition::Delivered));
    }
}

/// So many messages, one after another.
pub fn run(count: u64) {
    let (mut client, log, mut driver, mut out) =
        (Client::default(), Log::default(), Driver::default(), Out::connect());
    for number in 1..=count {
        let now = number as Millis / 10;
        let (envelope, content) = client.transaction();
        let (id, arrived) = (QueueId(number), UnixMillis(number));
        let origin = Origin::smtp(Ipv4Addr::LOCALHOST.into(), "source.test", TransmissionType::Esmtp);
        let message = SharedMessage::new(Message { id, arrived, origin, envelope, content });
        log.commit(log.submit(Entry::Accept(message.clone())));
        client.accepted();
        driver.accept(message, now);
        let (connection, lease, message) = driver.lease(now).expect("there is work");
        let message = message.expect("it is cached");
        out.deliver(number, message.clone());
        driver.finish((connection, lease), message, delivered(), now);
        assert!(driver.lease(now).is_none());
        for transaction in driver.submitted() {
            log.submit_all(transaction);
        }
    }
}
