//! Answers of a filter: each is an event that its stage can have, or the end of the conversation.

use mail::{Field, FieldError};
use milter::{
    Actions, Command, Edit, Event, Expect, Macro, Offer, Peer, ProtocolError, Session, Stage, Steps, Verdict,
};

/// The commands of a connection with two messages.
const COMMANDS: [Command<'_>; 12] = [
    Command::Connect { host: "client.test", peer: Peer::Unix("/run/client") },
    Command::Hello { name: "client.test" },
    Command::Unknown { line: b"XYZZY" },
    Command::Mail { sender: "ann@a.test", parameters: &["SIZE=1"] },
    Command::Recipient { recipient: "bob@b.test", parameters: &[], is_rejected: false },
    Command::Recipient { recipient: "eve@b.test", parameters: &[], is_rejected: true },
    Command::Data,
    Command::Header { name: b"Subject", value: b" a\r\n b\0" },
    Command::EndOfHeaders,
    Command::Body(b"body\r\n"),
    Command::Body(b""),
    Command::EndOfMessage,
];

const MACROS: [Macro<'_>; 2] =
    [Macro { name: "i", value: "ID1" }, Macro { name: "{auth_authen}", value: "a\0b" }];

/// The first octet says how the answers are split, and how two messages end; three are the steps that are negotiated, unless the
/// answers begin with a negotiation.
pub fn milter_answers(bytes: &[u8]) {
    let Some(([split, steps @ ..], wire)) = bytes.split_first_chunk::<4>() else { return };
    let mut out = Vec::new();
    let offer = Offer { version: 2 + u32::from(split % 5), actions: Actions::ALL, steps: Steps::ALL };
    let mut session = Session::new(&offer, &mut out);
    let mut answers = Answers { wire, size: usize::from(split % 16) + 1 };
    if !(wire.starts_with(b"\0\0\0") && wire.get(4) == Some(&b'O')) {
        let [high, middle, low] = *steps;
        let (actions, all) = if offer.version == 2 { (0x3f, 0x7f) } else { (0x1ff, 0x1f_ffff) };
        let steps = u32::from_be_bytes([0, high, middle, low]) & all;
        let numbers = [offer.version, actions, steps].map(u32::to_be_bytes);
        let negotiation = [&b"\0\0\0\x0dO"[..], numbers.as_flattened()].concat();
        let agreed = Answers { wire: &negotiation, size: 3 }.take(&mut session, Stage::Negotiation);
        assert!(agreed.is_some());
    }
    if session.version() == 0 && answers.take(&mut session, Stage::Negotiation).is_none() {
        return;
    }
    for message in 0..2 {
        let skipped = if message == 0 { 0 } else { 3 };
        for command in &COMMANDS[skipped..] {
            let macros = if split % 3 == 0 { &MACROS[..] } else { &[] };
            let before = out.len();
            let expect = session.send(command, macros, &mut out).expect("the order is that of SMTP");
            let stage = command.stage();
            assert!(out.len() == before || session.version() > 2 || stage != Stage::Unknown);
            if expect == Expect::Answer && answers.take(&mut session, stage).is_none() {
                session.quit(&mut out);
                return packets(&out);
            }
        }
        if split % 7 == 0 && session.next_connection(&mut out) == Ok(true) {
            break;
        }
        session.abort(&mut out).expect("no answer is awaited");
    }
    session.quit(&mut out);
    packets(&out);
}

/// An answer of rspamd over HTTP: what it asks for is what a milter could ask for.
pub fn rspamd_answer(bytes: &[u8]) {
    check_judged(filter::rspamd::read_answer(bytes, &names()));
}

/// An answer of an HTTP hook, in the same way.
pub fn hook_answer(bytes: &[u8]) {
    check_judged(filter::hook::read_answer(bytes, &names()));
}

/// The fields of the message that was shown.
fn names() -> Vec<Vec<u8>> {
    ["Received", "X-A", "Subject", "x-a"].map(|name| name.as_bytes().to_vec()).into()
}

fn check_judged(judged: Result<filter::Judged, String>) {
    let Ok(judged) = judged else { return };
    assert!(judged.body.is_none());
    check_verdict(&judged.verdict, Stage::EndOfMessage);
    judged.edits.iter().for_each(|edit| _ = check_edit(edit, Actions::ALL));
}

/// What a filter answers, taken from the input.
struct Answers<'a> {
    wire: &'a [u8],
    size: usize,
}

impl Answers<'_> {
    /// Takes the answer to a stage; `None` if there is none, or the filter breaks the protocol.
    fn take(&mut self, session: &mut Session, stage: Stage) -> Option<()> {
        let mut edit_bytes = 0;
        loop {
            let (mut piece, _) = self.wire.split_at(self.size.min(self.wire.len()));
            let before = piece.len();
            let event = session.receive(&mut piece);
            self.wire = &self.wire[before - piece.len()..];
            match event {
                Ok(None) if self.wire.is_empty() => return None,
                Ok(None) => assert!(before > 0 && piece.is_empty()),
                Ok(Some(Event::Negotiated)) => {
                    assert_eq!(stage, Stage::Negotiation);
                    assert!((2..=6).contains(&session.version()));
                    return Some(());
                }
                Ok(Some(Event::Progress)) => assert_eq!(session.awaited(), Some(stage)),
                Ok(Some(Event::Verdict(verdict))) => {
                    assert_eq!(session.awaited(), None);
                    check_verdict(&verdict, stage);
                    return Some(());
                }
                Ok(Some(Event::Edit(edit))) => {
                    assert_eq!(stage, Stage::EndOfMessage);
                    edit_bytes += check_edit(&edit, session.actions());
                    assert!(edit_bytes <= Session::EDITS_MAX_BYTES);
                }
                Err(error) => {
                    assert_eq!(
                        session.receive(&mut &b"\0\0\0\x01c"[..]),
                        Err::<Option<Event>, ProtocolError>(error)
                    );
                    return None;
                }
            }
        }
    }
}

fn check_verdict(verdict: &Verdict, stage: Stage) {
    match verdict {
        Verdict::Reply(reply) => {
            assert!((400..600).contains(&reply.code));
            assert!(reply.enhanced.is_none_or(|enhanced| u16::from(enhanced.0) == reply.code / 100));
            let mut wire = Vec::new();
            reply.write_to(&mut wire);
            super::well_formed(&wire);
        }
        Verdict::Skip => assert_eq!(stage, Stage::Body),
        Verdict::Discard => assert!(!matches!(stage, Stage::Connect | Stage::Hello | Stage::Unknown)),
        _ => {}
    }
}

/// Checks a change, and returns its size unless that is of a body.
fn check_edit(edit: &Edit, actions: Actions) -> usize {
    let field = |name: &str, value: &[u8]| {
        let field = Field::new(name, &String::from_utf8_lossy(value).replace('\0', "?"));
        assert!(matches!(field, Ok(_) | Err(FieldError::TooLong)), "{name:?} {value:?}");
        name.len() + value.len()
    };
    let address = |text: &str, parameters: &Option<Box<str>>| {
        let parameters = parameters.as_deref().unwrap_or_default();
        assert!(!text.contains(char::is_control) && !parameters.contains(char::is_control));
        text.len() + parameters.len()
    };
    let (action, bytes) = match edit {
        Edit::AddHeader { name, value } | Edit::InsertHeader { name, value, .. } => {
            (Actions::ADD_HEADERS, field(name, value))
        }
        Edit::ChangeHeader { index, name, value } => {
            assert!(*index > 0);
            (Actions::CHANGE_HEADERS, field(name, value.as_deref().unwrap_or_default()))
        }
        Edit::ReplaceBody(_) => (Actions::CHANGE_BODY, 0),
        Edit::ChangeSender { sender, parameters } => (Actions::CHANGE_SENDER, address(sender, parameters)),
        Edit::AddRecipient { recipient, parameters } => {
            assert!(!recipient.is_empty());
            let with = Actions::ADD_RECIPIENTS_WITH_PARAMETERS;
            let is_plain = parameters.is_none() && actions.contains(Actions::ADD_RECIPIENTS);
            (if is_plain { Actions::ADD_RECIPIENTS } else { with }, address(recipient, parameters))
        }
        Edit::DeleteRecipient { recipient } => (Actions::DELETE_RECIPIENTS, address(recipient, &None)),
        Edit::Quarantine { reason } => (Actions::QUARANTINE, reason.len()),
    };
    assert!(actions.contains(action), "{edit:?}");
    bytes
}

/// What is sent consists of whole packets.
fn packets(mut out: &[u8]) {
    while let Some((length, rest)) = out.split_first_chunk() {
        let length = u32::from_be_bytes(*length) as usize;
        assert!((1..=65_536).contains(&length));
        assert!(b"OCDHMRTLNBEUAQK".contains(&rest[0]));
        out = &rest[length..];
    }
    assert!(out.is_empty());
}
