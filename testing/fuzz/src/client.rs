//! A server that says anything: its replies, and a whole client connection against it.

use bytes::Bytes;
use mail::seven_bit::Scan;
use mail::{
    ChunkId, Content, ContentTraits, Disposition, Envelope, ForwardPath, Message, Part, QueueId, Recipient,
    ReversePath, SharedMessage, UnixMillis,
};
use smtp::client::{
    ClientSettings, Connection, Event, ExpectedReply, OutputPiece, Protocol, ProtocolViolation,
    RecipientResult, ReplyReader, Transaction,
};
use std::sync::Arc;

type Replies = (Vec<(u16, Vec<u8>)>, Option<ProtocolViolation>);

/// Replies are the same however the bytes are split; each is whole lines of one code, and what is
/// made of it prints nothing dangerous. The first byte says how the input is split.
pub fn client_replies(bytes: &[u8]) {
    let Some((split, wire)) = bytes.split_first() else { return };
    let (replies, error) = read(wire, usize::from(*split).max(1));
    assert_eq!((&replies, error), (&read(wire, wire.len().max(1)).0, read(wire, 1).1));
    let length: usize = replies.iter().map(|reply| reply.1.len()).sum();
    assert!(
        length <= wire.len()
            && wire.starts_with(&replies.iter().flat_map(|r| r.1.clone()).collect::<Vec<_>>())
    );
    for (code, raw) in &replies {
        assert!((200..600).contains(code) && raw.ends_with(b"\n"));
        assert!(
            raw.split_inclusive(|b| *b == b'\n').all(|line| line.starts_with(code.to_string().as_bytes()))
        );
        let reply = smtp::client::replies::to_reply(*code, raw);
        assert_eq!(reply.code, *code);
        reply.text().split('\n').for_each(super::printable);
    }
}

fn read(wire: &[u8], size: usize) -> Replies {
    let (mut reader, mut replies) = (ReplyReader::default(), Vec::new());
    for piece in wire.chunks(size) {
        reader.receive(piece);
        loop {
            match reader.next_raw() {
                Ok(Some((code, raw))) => replies.push((code, raw.to_vec())),
                Ok(None) => break,
                Err(error) => return (replies, Some(error)),
            }
        }
    }
    (replies, None)
}

/// A connection with three messages against a server that says these bytes: every recipient is
/// settled once or left over once, never delivered without a 2yz, and what is reported prints nothing
/// dangerous. The first byte says how the input is split, and which language is spoken.
pub fn client_session(bytes: &[u8]) {
    let Some((choice, wire)) = bytes.split_first() else { return };
    let mut run = Run::new(*choice);
    for piece in wire.chunks(usize::from(choice / 16).max(1)) {
        if run.connection.receive(piece).is_err() {
            break;
        }
        run.follow();
    }
    run.end();
}

/// Runs a client against a server that mostly answers what it was asked: each byte is a reply.
pub fn client_conversation(bytes: &[u8]) {
    let Some((choice, answers)) = bytes.split_first() else { return };
    let mut run = Run::new(*choice);
    run.follow();
    for answer in answers {
        let reply = answer_to(*answer, run.connection.expected_replies().next());
        if run.connection.receive(reply).is_err() {
            break;
        }
        run.follow();
    }
    run.end();
}

fn answer_to(answer: u8, awaited: Option<ExpectedReply>) -> &'static [u8] {
    match (answer % 16, awaited) {
        (0, _) => b"450 4.2.0 later\r\n",
        (1, _) => b"550 5.1.1 no\r\n",
        (2, _) => b"250 Ok\r\n",
        (3, _) => b"421 4.3.2 closing\r\n250 ",
        (4, _) => b"354 go\r\n",
        (_, Some(ExpectedReply::Greeting | ExpectedReply::StartTls)) => b"220 mx\r\n",
        (n, Some(ExpectedReply::Hello)) => match n % 4 {
            0 => b"250 mx\r\n",
            1 => b"250-mx\r\n250-PIPELINING\r\n250-SMTPUTF8\r\n250 8BITMIME\r\n",
            2 => b"250-mx\r\n250-STARTTLS\r\n250-PIPELINING\r\n250 SIZE 10\r\n",
            _ => b"250-mx\r\n250-CHUNKING\r\n250-BINARYMIME\r\n250-PIPELINING\r\n250 SMTPUTF8\r\n",
        },
        (_, Some(ExpectedReply::Data)) => b"354 go\r\n",
        (_, Some(ExpectedReply::Quit)) => b"221 bye\r\n",
        (_, Some(_)) => b"250 2.0.0 Ok\r\n",
        (_, None) => b"",
    }
}

const RECIPIENTS: usize = 3;

struct Run {
    connection: Connection,
    /// Messages whose transactions were begun.
    begun: u64,
    /// Number of outcomes that were reported for each recipient of each message.
    settled: Vec<u32>,
}

impl Run {
    fn new(choice: u8) -> Self {
        let protocol = if choice.is_multiple_of(2) { Protocol::Smtp } else { Protocol::Lmtp };
        let depth = usize::from(choice / 2 % 3) + 1;
        let settings = ClientSettings {
            protocol,
            hello: "me.test".into(),
            depth,
            pipelining: choice & 16 == 0,
            eight_bit_anyway: choice & 8 == 0,
        };
        Self { connection: Connection::new(settings), begun: 0, settled: vec![0; 3 * RECIPIENTS] }
    }

    /// The connection is gone: what was not settled is left over.
    fn end(mut self) {
        self.follow_events();
        for lost in self.connection.lost() {
            lost.refused.iter().for_each(|result| self.count(lost.id, result.index));
            lost.open.iter().for_each(|index| self.count(lost.id, *index));
        }
        let (begun, rest) = self.settled.split_at(self.begun as usize * RECIPIENTS);
        assert!(begun.iter().all(|count| *count == 1), "{begun:?}");
        assert!(rest.iter().all(|count| *count == 0), "{rest:?}");
    }

    fn count(&mut self, name: u64, index: u32) {
        self.settled[name as usize * RECIPIENTS + index as usize] += 1;
    }

    fn follow_events(&mut self) {
        while let Some(event) = self.connection.next_event() {
            match event {
                Event::TransactionEnded(name, results) => {
                    for RecipientResult { index, outcome, .. } in results {
                        self.count(name, index);
                        outcome.text.split('\n').for_each(super::printable);
                        assert!(outcome.disposition != Disposition::Delivered || outcome.status.0 == 2);
                    }
                }
                Event::Hello if self.begun == 0 && self.connection.capabilities().starttls => {
                    self.connection.start_tls();
                }
                Event::StartTls => self.connection.secured(),
                _ => {}
            }
        }
    }

    /// As a driver does.
    fn follow(&mut self) {
        self.follow_events();
        while self.begun < 3 && self.connection.can_begin() {
            let transaction = transaction(self.begun);
            // As if all that the server does not take were to be converted.
            let takes = self.connection.capabilities().takes(transaction.message.content.traits);
            let plan =
                (!takes).then(|| Arc::new(Scan::default().finish().expect("nothing can be converted")));
            self.connection.begin_converted(transaction, plan);
            self.begun += 1;
            self.follow_events();
        }
        if self.begun == 3 && self.connection.is_idle() && !self.connection.is_closing() {
            self.connection.quit();
        }
        while let Some(piece) = self.connection.next_piece() {
            match piece {
                OutputPiece::Text(text) => assert!(!text.is_empty()),
                OutputPiece::Content(_) => {}
                OutputPiece::Load(_) => self.connection.loaded(Bytes::from_static(b"chunk\r\n")),
            }
        }
    }
}

fn transaction(name: u64) -> Transaction {
    let mut envelope = Envelope::new(ReversePath::parse("a@b.test", false).expect("an address"));
    let paths = ["c@d.test", "postmaster", "ä@e.test"];
    let recipient = |path: &str| Recipient::new(ForwardPath::parse(path, true).expect("an address"));
    // The first one asks for nothing that a server may lack.
    let last = if name == 0 { "f@e.test" } else { paths[2] };
    envelope.recipients = [paths[0], paths[1], last].map(recipient).into();
    envelope.smtputf8 = name > 0;
    let traits = ContentTraits {
        has_dot_line: true,
        is_8bit: name == 2,
        lacks_final_crlf: true,
        ..ContentTraits::default()
    };
    let stored = Part::Stored { chunk_id: ChunkId(1), length_bytes: 7 };
    let content = Content::new(traits, [stored, Part::Memory(Bytes::from_static(b".x\r\n.\r\nend"))]);
    let (id, arrived) = (QueueId(name), UnixMillis(0));
    let message: SharedMessage = Arc::new(Message { id, arrived, origin: "".into(), envelope, content });
    Transaction { id: name, message, recipients: (0..RECIPIENTS as u32).collect(), deliver_by_seconds: 0 }
}
