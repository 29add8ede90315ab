//! The server's session, as the inbound crate drives it.

use bytes::Bytes;
use mail::{Content, Envelope, Part, header::ContentScanner};
use smtp::{
    Limits,
    server::{Connection, Profile, Step, replies},
};
use std::sync::Arc;

/// Commands of a transaction, each in a piece of its own, as clients without pipelining send them.
pub const COMMANDS: [&[u8]; 3] =
    [b"MAIL FROM:<sender@source.test> SIZE=1024\r\n", b"RCPT TO:<recipient@sink.test>\r\n", b"DATA\r\n"];

/// Returns a message of 1 KiB with the final dot.
pub fn content() -> Vec<u8> {
    let mut text =
        b"From: <sender@source.test>\r\nTo: <recipient@sink.test>\r\nSubject: what it costs\r\n\r\n".to_vec();
    while text.len() < 1024 {
        text.extend_from_slice(
            b"The quick brown fox jumps over the lazy dog, again and again and again.\r\n",
        );
    }
    text.extend_from_slice(b".\r\n");
    text
}

/// A server session whose client has said EHLO.
pub struct Client {
    connection: Connection,
    scanner: ContentScanner,
    body: Vec<u8>,
    content: Vec<u8>,
}

impl Default for Client {
    fn default() -> Self {
        let profile = Profile::new("mx.test");
        let connection = Connection::new(Arc::<Limits>::default(), Arc::new(profile), false);
        let mut client =
            Self { connection, scanner: ContentScanner::default(), body: Vec::new(), content: content() };
        assert!(client.feed(b"EHLO source.test\r\n").is_none());
        client
    }
}

impl Client {
    /// One transaction up to where its message has to be made durable.
    pub fn transaction(&mut self) -> (Envelope, Content) {
        for command in COMMANDS {
            assert!(self.feed(command).is_none());
        }
        let content = std::mem::take(&mut self.content);
        let envelope = self.feed(&content).expect("the message is complete");
        self.content = content;
        let traits = std::mem::take(&mut self.scanner).traits();
        let body = Bytes::from(std::mem::take(&mut self.body));
        (envelope, Content::new(traits, [Part::Memory(body)]))
    }

    /// Continues the session after its message became durable.
    pub fn accepted(&mut self) {
        self.connection.answer(replies::SENDER_OK);
        assert!(self.feed(b"").is_none());
    }

    fn feed(&mut self, mut input: &[u8]) -> Option<Envelope> {
        let complete = loop {
            match self.connection.step(&mut input) {
                Step::NeedInput => break None,
                Step::JudgeHello => self.connection.answer(replies::OK),
                Step::JudgeSender => self.connection.answer(replies::SENDER_OK),
                Step::JudgeRecipient => self.connection.answer(replies::RECIPIENT_OK),
                Step::StartContent => self.body.reserve(2048),
                Step::Content(bytes) => {
                    self.scanner.scan(bytes);
                    self.body.extend_from_slice(bytes);
                }
                Step::JudgeContent => break Some(self.connection.accept_content()),
                Step::Close
                | Step::StartTls
                | Step::AskTime
                | Step::Query(_)
                | Step::ChangeClient(_)
                | Step::NoteForwarded(_)
                | Step::Authenticate(_)
                | Step::Refused(_)
                | Step::DiscardContent(_) => {
                    unreachable!("the client is well-behaved")
                }
            }
        };
        // Written to the socket.
        self.connection.output().clear();
        complete
    }
}

/// So many transactions of one session.
pub fn run(count: u64) {
    let mut client = Client::default();
    for _ in 0..count {
        let (envelope, content) = client.transaction();
        assert_eq!((envelope.recipients.len(), content.parts().len()), (1, 1));
        client.accepted();
    }
}
