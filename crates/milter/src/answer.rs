//! What a filter answers.

use crate::{
    Actions, ProtocolError, Stage, Steps, reply,
    wire::{Data, Fault, Packet},
};
use mail::Reply;

/// What a filter told the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Both sides agree on how they talk; [`crate::Session`] tells the result.
    Negotiated,
    /// What becomes of the command or the message.
    Verdict(Verdict),
    /// A change to the message, at its end and before the verdict. It holds only if that does not refuse or discard the message.
    Edit(Edit),
    /// The filter is still at work: the time that it has begins anew.
    Progress,
}

/// What a filter decides of a command, or of the message at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No objection: the next command follows.
    Continue,
    /// The filter wants to see no more of this message, or, at connect and HELO, of this connection, and has no objection.
    Accept,
    /// 5yz: refuse the recipient (at RCPT), the command (at an unknown one), the connection (at connect and HELO), else the message.
    Reject,
    /// As `Reject`, with 4yz.
    TempFail,
    /// As `Reject`, with this reply, 4yz or 5yz. Code 421 also asks to close the connection ([`Reply::closes`]).
    Reply(Reply),
    /// Take the message, and deliver it to nobody.
    Discard,
    /// No more chunks of this body, please: the end of the message follows.
    Skip,
    /// Close the connection to the client with 421.
    Shutdown,
    /// Drop the connection to the client.
    DropConnection,
}

/// A change to a message. Names of fields are printable ASCII without a colon; their values are what stands behind the colon, with
/// no NUL, no bare CR, and only such line breaks (LF or CRLF) as a space or tab follows. Lines may be too long, and values
/// need not be UTF-8. Addresses have no angle brackets and no control characters, and are otherwise unchecked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Adds a header field below all others.
    AddHeader {
        /// Without the colon.
        name: Box<str>,
        /// What stands behind the colon.
        value: Box<[u8]>,
    },
    /// Inserts a header field at a position.
    InsertHeader {
        /// The fields that stay above it, of the header as it will be delivered: 0 is on top, also of the server's own
        /// `Received`. With more than there are, the field is added below all others.
        index: u32,
        /// Without the colon.
        name: Box<str>,
        /// What stands behind the colon.
        value: Box<[u8]>,
    },
    /// Changes a header field, or deletes it. The fields that the server added are not counted.
    ChangeHeader {
        /// Which of the fields with that name, from 1. Beyond the last one, a change adds the field below all others, and a
        /// deletion does nothing.
        index: u32,
        /// In any letter case.
        name: Box<str>,
        /// `None` deletes the field.
        value: Option<Box<[u8]>>,
    },
    /// A piece of the new body: the first replaces the old one, others are appended.
    ReplaceBody(Vec<u8>),
    /// Changes the sender of the envelope.
    ChangeSender {
        /// Empty for `<>`.
        sender: Box<str>,
        /// ESMTP parameters, separated by spaces.
        parameters: Option<Box<str>>,
    },
    /// Adds a recipient.
    AddRecipient {
        /// Without angle brackets.
        recipient: Box<str>,
        /// ESMTP parameters, separated by spaces.
        parameters: Option<Box<str>>,
    },
    /// Deletes a recipient, as it was said in RCPT or added before.
    DeleteRecipient {
        /// Without angle brackets.
        recipient: Box<str>,
    },
    /// Holds the message until an operator releases it.
    Quarantine {
        /// Why, for the operator; characters that are not seen are `?`.
        reason: Box<str>,
    },
}

/// Changes and replies that another protocol than milter asks for, checked in the same way. The error says what is wrong.
impl Edit {
    /// Adds a header field below all others.
    ///
    /// # Errors
    /// It is not a header field.
    pub fn adding(name: &str, value: &str) -> Result<Self, &'static str> {
        let (name, value) = field(name, value)?;
        Ok(Self::AddHeader { name, value })
    }

    /// Inserts a header field below so many others.
    ///
    /// # Errors
    /// It is not a header field.
    pub fn inserting(index: u32, name: &str, value: &str) -> Result<Self, &'static str> {
        let (name, value) = field(name, value)?;
        Ok(Self::InsertHeader { index, name, value })
    }

    /// Changes the field of this name and number, from 1; without a value, removes it.
    ///
    /// # Errors
    /// It is not a header field.
    pub fn changing(index: u32, name: &str, value: Option<&str>) -> Result<Self, &'static str> {
        let (name, checked) = field(name, value.unwrap_or_default())?;
        Ok(Self::ChangeHeader { index: index.max(1), name, value: value.map(|_| checked) })
    }

    /// Replaces the sender; an empty one is `<>`.
    ///
    /// # Errors
    /// It has a control character.
    pub fn from(sender: &str) -> Result<Self, &'static str> {
        Ok(Self::ChangeSender { sender: address(sender.as_bytes())?, parameters: None })
    }

    /// Adds a recipient.
    ///
    /// # Errors
    /// It is empty, or has a control character.
    pub fn to(to: &str) -> Result<Self, &'static str> {
        Ok(Self::AddRecipient { recipient: recipient(to.as_bytes())?, parameters: None })
    }

    /// Removes a recipient.
    ///
    /// # Errors
    /// It is empty, or has a control character.
    pub fn not_to(to: &str) -> Result<Self, &'static str> {
        Ok(Self::DeleteRecipient { recipient: recipient(to.as_bytes())? })
    }

    /// Holds the message.
    pub fn holding(reason: &str) -> Self {
        let seen = |c| if mail::is_invisible(c) { '?' } else { c };
        Self::Quarantine { reason: reason.chars().map(seen).collect() }
    }
}

impl Verdict {
    /// Refuses with a reply such as `550 5.7.1 not here`.
    ///
    /// # Errors
    /// It is not a reply of 4yz or 5yz.
    pub fn replying(text: &str) -> Result<Self, &'static str> {
        reply::parse(text.replace('%', "%%").as_bytes()).map(Self::Reply)
    }
}

/// The name of an answer in Sendmail's documents.
pub(crate) const fn name_of(answer: u8) -> &'static str {
    match answer {
        b'O' => "OPTNEG",
        b'+' => "ADDRCPT",
        b'-' => "DELRCPT",
        b'2' => "ADDRCPT_PAR",
        b'4' => "SHUTDOWN",
        b'a' => "ACCEPT",
        b'b' => "REPLBODY",
        b'c' => "CONTINUE",
        b'd' => "DISCARD",
        b'e' => "CHGFROM",
        b'f' => "CONN_FAIL",
        b'h' => "ADDHEADER",
        b'i' => "INSHEADER",
        b'm' => "CHGHEADER",
        b'p' => "PROGRESS",
        b'q' => "QUARANTINE",
        b'r' => "REJECT",
        b's' => "SKIP",
        b't' => "TEMPFAIL",
        b'y' => "REPLYCODE",
        _ => "unknown answer",
    }
}

/// The action that a filter must have negotiated for an answer that changes the message.
const fn action_of(answer: u8) -> Option<Actions> {
    Some(match answer {
        b'h' | b'i' => Actions::ADD_HEADERS,
        b'm' => Actions::CHANGE_HEADERS,
        b'b' => Actions::CHANGE_BODY,
        b'e' => Actions::CHANGE_SENDER,
        b'+' => Actions::ADD_RECIPIENTS,
        b'2' => Actions::ADD_RECIPIENTS_WITH_PARAMETERS,
        b'-' => Actions::DELETE_RECIPIENTS,
        b'q' => Actions::QUARANTINE,
        _ => return None,
    })
}

/// Reads an answer to `stage`, which is not the negotiation.
pub(crate) fn parse(
    packet: Packet,
    stage: Stage,
    actions: Actions,
    steps: Steps,
) -> Result<Event, ProtocolError> {
    let answer = packet.kind;
    if let Some(action) = action_of(answer) {
        if stage != Stage::EndOfMessage {
            return Err(ProtocolError::Misplaced { answer, stage });
        }
        if !actions.contains(action) {
            return Err(ProtocolError::NotNegotiated { answer });
        }
        let edit = edit(packet, steps.contains(Steps::LEADING_SPACE));
        return edit.map(Event::Edit).map_err(|fault| ProtocolError::Malformed { answer, fault });
    }
    let mut data = Data(&packet.data);
    let malformed = |fault| ProtocolError::Malformed { answer, fault };
    let verdict = match answer {
        b'c' => Verdict::Continue,
        b'a' => Verdict::Accept,
        b'r' => Verdict::Reject,
        b't' => Verdict::TempFail,
        b'4' => Verdict::Shutdown,
        b'f' => Verdict::DropConnection,
        b'd' if matches!(stage, Stage::Connect | Stage::Hello | Stage::Unknown) => {
            return Err(ProtocolError::Misplaced { answer, stage });
        }
        b'd' => Verdict::Discard,
        b's' if stage != Stage::Body => return Err(ProtocolError::Misplaced { answer, stage }),
        b's' if !steps.contains(Steps::SKIP) => return Err(ProtocolError::NotNegotiated { answer }),
        b's' => Verdict::Skip,
        b'y' => {
            let reply = data.string().and_then(reply::parse).map_err(malformed)?;
            Verdict::Reply(reply)
        }
        b'p' => {
            data.end().map_err(malformed)?;
            return Ok(Event::Progress);
        }
        b'O' => return Err(ProtocolError::Misplaced { answer, stage }),
        _ => return Err(ProtocolError::Unknown { answer }),
    };
    data.end().map_err(malformed)?;
    Ok(Event::Verdict(verdict))
}

/// Reads a change.
fn edit(packet: Packet, keeps_space: bool) -> Result<Edit, Fault> {
    if packet.kind == b'b' {
        return Ok(Edit::ReplaceBody(packet.data));
    }
    let mut data = Data(&packet.data);
    let edit = match packet.kind {
        b'h' => {
            let (name, value) = (field_name(data.string()?)?, data.string()?);
            Edit::AddHeader { name, value: field_value(value, keeps_space)? }
        }
        b'i' => {
            let (index, name, value) = (data.number()?, field_name(data.string()?)?, data.string()?);
            Edit::InsertHeader { index, name, value: field_value(value, keeps_space)? }
        }
        b'm' => {
            // Sendmail and Postfix take 0 for the first field.
            let index = data.number()?.max(1);
            let (name, value) = (field_name(data.string()?)?, data.string()?);
            let value = (!value.is_empty()).then(|| field_value(value, keeps_space)).transpose()?;
            Edit::ChangeHeader { index, name, value }
        }
        b'e' => Edit::ChangeSender { sender: address(data.string()?)?, parameters: parameters(&mut data)? },
        b'+' => Edit::AddRecipient { recipient: recipient(data.string()?)?, parameters: None },
        b'2' => {
            let recipient = recipient(data.string()?)?;
            Edit::AddRecipient { recipient, parameters: parameters(&mut data)? }
        }
        b'-' => Edit::DeleteRecipient { recipient: recipient(data.string()?)? },
        _ => Edit::holding(&String::from_utf8_lossy(data.string()?)),
    };
    data.end()?;
    Ok(edit)
}

/// Returns a field whose lines are no longer than RFC 5322 §2.1.1 permits: other servers may return mail with longer ones.
fn field(name: &str, value: &str) -> Result<(Box<str>, Box<[u8]>), Fault> {
    let (name, value) = (field_name(name.as_bytes())?, field_value(value.as_bytes(), false)?);
    let mut lines = value.split(|byte| *byte == b'\n').map(<[u8]>::len);
    let first = lines.next().unwrap_or_default() + name.len() + 1;
    if lines.chain([first]).any(|length| length > mail::header::LINE_LENGTH_MAX) {
        return Err("a line of a field is longer than 998 octets");
    }
    Ok((name, value))
}

fn field_name(name: &[u8]) -> Result<Box<str>, Fault> {
    let is_name = !name.is_empty() && name.iter().all(|byte| byte.is_ascii_graphic() && *byte != b':');
    let name = str::from_utf8(name).ok().filter(|_| is_name);
    Ok(name.ok_or("a field name is printable ASCII without a colon")?.into())
}

/// Returns what stands behind the colon. Line breaks at the end, which some filters send, are left out.
fn field_value(value: &[u8], keeps_space: bool) -> Result<Box<[u8]>, Fault> {
    let end = value.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
    let value = &value[..end];
    for (at, byte) in value.iter().enumerate() {
        let next = value.get(at + 1);
        match byte {
            b'\0' => return Err("a NUL in a field value"),
            b'\r' if next != Some(&b'\n') => return Err("a bare CR in a field value"),
            b'\n' if !matches!(next, Some(b' ' | b'\t')) => {
                return Err("a line break in a field value is followed by neither space nor tab");
            }
            _ => {}
        }
    }
    let space: &[u8] = if keeps_space { b"" } else { b" " };
    Ok([space, value].concat().into())
}

fn address(text: &[u8]) -> Result<Box<str>, Fault> {
    let text = str::from_utf8(text).map_err(|_| "an address is not UTF-8")?.trim_matches(' ');
    if text.contains(char::is_control) {
        return Err("a control character in an address");
    }
    Ok(text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).unwrap_or(text).into())
}

fn recipient(text: &[u8]) -> Result<Box<str>, Fault> {
    address(text).and_then(|address| if address.is_empty() { Err("an empty recipient") } else { Ok(address) })
}

/// Reads ESMTP parameters, if there are any.
fn parameters(data: &mut Data<'_>) -> Result<Option<Box<str>>, Fault> {
    if data.is_empty() {
        return Ok(None);
    }
    let text = str::from_utf8(data.string()?).map_err(|_| "parameters are not UTF-8")?.trim_matches(' ');
    if text.contains(char::is_control) {
        return Err("a control character in parameters");
    }
    Ok((!text.is_empty()).then(|| text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(stage: Stage, packet: &[u8]) -> Result<Event, ProtocolError> {
        let packet = Packet { kind: packet[0], data: packet[1..].to_vec() };
        parse(packet, stage, Actions::ALL, Steps::ALL.without(Steps::LEADING_SPACE))
    }

    fn edit(packet: &[u8]) -> Result<Edit, Fault> {
        match answer(Stage::EndOfMessage, packet) {
            Ok(Event::Edit(edit)) => Ok(edit),
            Err(ProtocolError::Malformed { fault, .. }) => Err(fault),
            other => panic!("{other:?}"),
        }
    }

    const CHANGES: [&[u8]; 9] = [
        b"hA\0b\0",
        b"i\0\0\0\0A\0b\0",
        b"m\0\0\0\x01A\0b\0",
        b"bbody",
        b"ea@b\0",
        b"+a@b\0",
        b"2a@b\0X=1\0",
        b"-a@b\0",
        b"qwhy\0",
    ];

    #[test]
    fn changes_stand_at_the_end_of_the_message_only() {
        for packet in CHANGES {
            assert!(edit(packet).is_ok());
            for stage in [Stage::Connect, Stage::Mail, Stage::Body, Stage::Unknown] {
                let error = ProtocolError::Misplaced { answer: packet[0], stage };
                assert_eq!(answer(stage, packet), Err(error));
            }
        }
    }

    #[test]
    fn changes_need_an_action_that_was_negotiated() {
        for packet in CHANGES {
            let answer = packet[0];
            let actions = Actions::ALL.without(action_of(answer).unwrap());
            let packet = Packet { kind: answer, data: packet[1..].to_vec() };
            let parsed = parse(packet, Stage::EndOfMessage, actions, Steps::ALL);
            assert_eq!(parsed, Err(ProtocolError::NotNegotiated { answer }));
        }
    }

    #[test]
    fn changes_that_are_cut_off_or_too_long_are_faults() {
        for packet in CHANGES.iter().filter(|packet| packet[0] != b'b') {
            for length in 1..packet.len() {
                let cut = edit(&packet[..length]);
                // A recipient without the parameters is one.
                assert!(cut.is_err() || packet[0] == b'2' && length == 5, "{packet:?} {length}");
            }
            let more = [packet, &b"x\0x\0"[..]].concat();
            assert!(edit(&more).is_err(), "{packet:?}");
        }
    }

    #[test]
    fn no_field_becomes_two_or_ends_the_header() {
        for value in ["b\nC: d", "b\r\n\r\nbody", "b\rc", "b\r\n.\r\n", "\nX: y"] {
            assert!(edit(format!("hA\0{value}\0").as_bytes()).is_err(), "{value:?}");
        }
        for name in ["", "A:", "A b", "A\n", "\u{e4}"] {
            assert!(edit(format!("h{name}\0b\0").as_bytes()).is_err(), "{name:?}");
        }
        let folded = edit(b"hA\0b\r\n\tc\n d\xff\r\n\0").unwrap();
        let value = b" b\r\n\tc\n d\xff"[..].into();
        assert_eq!(folded, Edit::AddHeader { name: "A".into(), value });
    }

    #[test]
    fn a_field_that_is_changed_to_nothing_is_deleted_and_the_index_0_is_the_first() {
        let deleted = Edit::ChangeHeader { index: 1, name: "A".into(), value: None };
        assert_eq!(edit(b"m\0\0\0\0A\0\0"), Ok(deleted));
        let value = Some(b" b"[..].into());
        assert_eq!(edit(b"m\0\0\0\x07A\0b\0"), Ok(Edit::ChangeHeader { index: 7, name: "A".into(), value }));
    }

    #[test]
    fn addresses_lose_their_angle_brackets_and_have_no_control_characters() {
        assert_eq!(edit(b"-<a@b>\0"), Ok(Edit::DeleteRecipient { recipient: "a@b".into() }));
        assert_eq!(edit(b"e<>\0\0"), Ok(Edit::ChangeSender { sender: "".into(), parameters: None }));
        for packet in [&b"+a@b\r\nDATA\0"[..], b"+<>\0", b"+\xff\0", b"2a@b\0A=1\nB\0", b"ea\x7f@b\0"] {
            assert!(edit(packet).is_err(), "{packet:?}");
        }
    }

    #[test]
    fn a_verdict_that_the_stage_does_not_have_is_an_error() {
        for (stage, packet) in [
            (Stage::Connect, &b"d"[..]),
            (Stage::Hello, b"d"),
            (Stage::Unknown, b"d"),
            (Stage::Header, b"s"),
            (Stage::EndOfMessage, b"s"),
            (Stage::Mail, b"O"),
        ] {
            assert_eq!(answer(stage, packet), Err(ProtocolError::Misplaced { answer: packet[0], stage }));
        }
        for packet in [&b"cx"[..], b"p\0", b"y550 5.7.1 x", b"y550 x\0y\0", b"y250 2.0.0 ok\0"] {
            let answer = answer(Stage::Mail, packet);
            assert!(matches!(answer, Err(ProtocolError::Malformed { .. })), "{packet:?}");
        }
        assert_eq!(answer(Stage::Mail, b"l"), Err(ProtocolError::Unknown { answer: b'l' }));
    }
}
