//! The bodies of records: messages with their envelopes, outcomes, totals.

use super::{
    extension,
    wire::{Malformed, Reader, put_text, put_u16, put_u32, put_u64, put_written},
};
use crate::{RecipientState, Totals};
use bytes::Bytes;
use mail::{
    BodyType, Cause, ChunkId, Content, ContentTraits, Disposition, Enhanced, Envelope, ForwardPath, Message,
    Notify, Outcome, Part, QueueId, Recipient, Ret, ReversePath, UnixMillis,
};

/// A remote's longest text that is kept for `why`.
pub(crate) const TEXT_MAX: usize = 1000;

/// Appends the record of a message that was not stored before.
pub(crate) fn write_message(out: &mut Vec<u8>, message: &Message) {
    write_message_again(out, message, None, &[]);
}

/// Writes a message; with `past`, also what became of its recipients and why it is held. `unknown` are the
/// extensions that were skipped when it was read.
pub(crate) fn write_message_again(
    out: &mut Vec<u8>,
    message: &Message,
    past: Option<(&[RecipientState], Option<&str>)>,
    unknown: &[u8],
) {
    let e = &message.envelope;
    put_u64(out, message.arrived.0);
    put_written(out, |out| message.origin.write_to(out));
    put_text(out, e.reverse_path.as_str());
    let body = match e.body {
        BodyType::SevenBit => 0,
        BodyType::EightBit => 1,
        BodyType::Binary => 2,
    };
    let ret = match e.ret {
        None => 0,
        Some(Ret::Full) => 1,
        Some(Ret::Headers) => 2,
    };
    let reason = past.and_then(|(_, held)| held).unwrap_or_default();
    let has_extensions = extension::is_needed(e) || !unknown.is_empty() || !reason.is_empty();
    let follow = u8::from(e.envid.is_some()) << 5 | u8::from(has_extensions) << 6;
    out.push(body | ret << 2 | u8::from(e.smtputf8) << 4 | follow);
    if let Some(envid) = &e.envid {
        put_text(out, envid);
    }
    if has_extensions {
        extension::write(out, e, reason, unknown);
    }
    out.push(traits_byte(message.content.traits));
    put_u32(out, e.recipients.len() as u32);
    e.recipients.iter().for_each(|r| write_recipient(out, r));
    match past {
        None => out.push(0),
        Some((states, held)) => {
            out.push(1 | u8::from(held.is_some()) << 1);
            states.iter().for_each(|s| write_state(out, s));
        }
    }
    write_content(out, &message.content);
}

fn traits_byte(f: ContentTraits) -> u8 {
    let bits =
        [f.has_dot_line, f.is_8bit, f.is_binary, f.lacks_final_crlf, f.has_utf8_header, f.has_long_line];
    bits.iter().enumerate().map(|(i, bit)| u8::from(*bit) << i).sum()
}

fn traits_of(byte: u8) -> ContentTraits {
    let bit = |i: u8| byte >> i & 1 == 1;
    ContentTraits {
        has_dot_line: bit(0),
        is_8bit: bit(1),
        is_binary: bit(2),
        lacks_final_crlf: bit(3),
        has_utf8_header: bit(4),
        has_long_line: bit(5),
    }
}

fn write_recipient(out: &mut Vec<u8>, recipient: &Recipient) {
    put_text(out, recipient.path.as_str());
    let n = recipient.notify;
    let bits = [n.success, n.failure, n.delay, n.explicit, recipient.orcpt.is_some()];
    out.push(bits.iter().enumerate().map(|(i, bit)| u8::from(*bit) << i).sum());
    if let Some(orcpt) = &recipient.orcpt {
        put_text(out, orcpt);
    }
}

fn read_recipient(r: &mut Reader<'_>) -> Result<Recipient, Malformed> {
    let path = ForwardPath::parse(r.text()?, true).map_err(|_| Malformed("forward-path"))?;
    let bits = r.u8()?;
    let bit = |i: u8| bits >> i & 1 == 1;
    let notify = Notify { success: bit(0), failure: bit(1), delay: bit(2), explicit: bit(3) };
    let orcpt = if bit(4) { Some(r.text()?.into()) } else { None };
    Ok(Recipient { notify, orcpt, ..Recipient::new(path) })
}

fn write_content(out: &mut Vec<u8>, content: &Content) {
    put_u32(out, content.parts().len() as u32);
    for part in content.parts() {
        match part {
            Part::Memory(bytes) => {
                out.push(0);
                put_u32(out, u32::try_from(bytes.len()).expect("a part is far below 4 GiB"));
                out.extend_from_slice(bytes);
            }
            Part::Stored { chunk_id, length_bytes } => {
                out.push(1);
                put_u32(out, *length_bytes);
                put_u64(out, chunk_id.0);
            }
        }
    }
}

/// The chunks a message's content is in; nothing else of it is looked at or kept.
pub(crate) fn read_places(body: &[u8]) -> Result<Vec<u64>, Malformed> {
    let mut r = content_of(body)?;
    let mut chunk_ids = Vec::new();
    for _ in 0..r.count(5)? {
        let (_, chunk_id) = skip_part(&mut r)?;
        chunk_ids.extend(chunk_id);
    }
    Ok(chunk_ids)
}

/// Reads a message as [`read`] does, and appends everything but the bytes of content to `out`, for [`read_abridged`].
pub(crate) fn abridge(body: &[u8], out: &mut Vec<u8>) -> Result<Vec<u64>, Malformed> {
    let mut r = content_of(body)?;
    let parts = r.count(5)?;
    out.extend_from_slice(&body[..body.len() - r.0.len()]);
    let mut chunk_ids = Vec::new();
    for _ in 0..parts {
        let (head, chunk_id) = skip_part(&mut r)?;
        out.extend_from_slice(head);
        chunk_ids.extend(chunk_id);
    }
    Ok(chunk_ids)
}

/// Behind all that stands before the content.
fn content_of(body: &[u8]) -> Result<Reader<'_>, Malformed> {
    let mut r = Reader(body);
    r.bytes(8)?; // arrived
    r.skip_text()?; // origin
    r.skip_text()?; // reverse-path
    let bits = r.u8()?;
    if bits >> 5 & 1 == 1 {
        r.skip_text()?; // ENVID
    }
    if bits >> 6 & 1 == 1 {
        extension::section(&mut r)?;
    }
    r.u8()?; // traits
    let count = r.count(3)?;
    for _ in 0..count {
        r.skip_text()?;
        if r.u8()? >> 4 & 1 == 1 {
            r.skip_text()?; // ORCPT
        }
    }
    if r.u8()? & 1 == 1 {
        (0..count).try_for_each(|_| read_state(&mut r).map(drop))?;
    }
    Ok(r)
}

/// Skips a part. Returns the part without the bytes that are in the record, and the id of its chunk, if it is in one.
fn skip_part<'a>(r: &mut Reader<'a>) -> Result<(&'a [u8], Option<u64>), Malformed> {
    let from = r.0;
    let (kind, length_bytes) = (r.u8()?, r.u32()?);
    match kind {
        0 => {
            r.bytes(length_bytes as usize)?;
            Ok((&from[..5], None))
        }
        1 => {
            let chunk_id = r.u64()?;
            Ok((&from[..from.len() - r.0.len()], Some(chunk_id)))
        }
        _ => Err(Malformed("part")),
    }
}

/// What a message record says: the message, and its recipients' past if it was moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) message: Message,
    pub(crate) states: Option<Vec<RecipientState>>,
    pub(crate) held: Option<Box<str>>,
    /// Extensions of a later version, which are kept when the message is written again.
    pub(crate) unknown: Box<[u8]>,
}

/// Reads what [`write_message`] wrote. Content in the record is copied only with `with_content`;
/// else its parts name no place.
pub(crate) fn read_message(id: QueueId, body: &[u8], with_content: bool) -> Result<Stored, Malformed> {
    read(id, body, if with_content { Bodies::Copied } else { Bodies::Left })
}

/// Reads what [`abridge`] left of it.
pub(crate) fn read_abridged(id: QueueId, abridged: &[u8]) -> Result<Stored, Malformed> {
    read(id, abridged, Bodies::Gone)
}

/// Whether content in the record is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bodies {
    Copied,
    Left,
    /// The record was abridged: its content is not in it.
    Gone,
}

fn read(id: QueueId, body: &[u8], bodies: Bodies) -> Result<Stored, Malformed> {
    let mut r = Reader(body);
    let arrived = UnixMillis(r.u64()?);
    let origin = r.text()?.into();
    let reverse_path = ReversePath::parse(r.text()?, true).map_err(|_| Malformed("reverse-path"))?;
    let mut envelope = Envelope::new(reverse_path);
    let bits = r.u8()?;
    envelope.body = match bits & 3 {
        0 => BodyType::SevenBit,
        1 => BodyType::EightBit,
        2 => BodyType::Binary,
        _ => return Err(Malformed("body type")),
    };
    envelope.ret = match bits >> 2 & 3 {
        0 => None,
        1 => Some(Ret::Full),
        2 => Some(Ret::Headers),
        _ => return Err(Malformed("ret")),
    };
    envelope.smtputf8 = bits >> 4 & 1 == 1;
    if bits >> 5 & 1 == 1 {
        envelope.envid = Some(r.text()?.into());
    }
    let section = if bits >> 6 & 1 == 1 { Some(extension::section(&mut r)?) } else { None };
    let traits = traits_of(r.u8()?);
    let count = r.count(3)?;
    envelope.recipients = read_all(count, || read_recipient(&mut r))?;
    let extra = section.map_or(Ok(Default::default()), |section| extension::read(section, &mut envelope))?;
    let past = r.u8()?;
    let states = if past & 1 == 1 { Some(read_all(count, || read_state(&mut r))?) } else { None };
    let content = read_content(&mut r, traits, bodies)?;
    Ok(Stored {
        message: Message { id, arrived, origin, envelope, content },
        states,
        held: (past >> 1 & 1 == 1).then_some(extra.hold_reason),
        unknown: extra.unknown,
    })
}

/// So many, in just their room: a vector that grows has four times that for a single one.
fn read_all<T>(count: usize, mut one: impl FnMut() -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        all.push(one()?);
    }
    Ok(all)
}

/// Stands for content that was not asked for.
pub(crate) const NOWHERE: ChunkId = ChunkId(u64::MAX);

fn read_content(r: &mut Reader<'_>, traits: ContentTraits, bodies: Bodies) -> Result<Content, Malformed> {
    match r.count(5)? {
        1 => Ok(Content::new(traits, [read_part(r, bodies)?])), // mostly, and spared the vector
        count => Ok(Content::new(traits, read_all(count, || read_part(r, bodies))?)),
    }
}

fn read_part(r: &mut Reader<'_>, bodies: Bodies) -> Result<Part, Malformed> {
    let (kind, length_bytes) = (r.u8()?, r.u32()?);
    match kind {
        0 => {
            let bytes = if bodies == Bodies::Gone { &[] } else { r.bytes(length_bytes as usize)? };
            if bodies == Bodies::Copied {
                Ok(Part::Memory(Bytes::copy_from_slice(bytes)))
            } else {
                Ok(Part::Stored { chunk_id: NOWHERE, length_bytes })
            }
        }
        1 => Ok(Part::Stored { chunk_id: ChunkId(r.u64()?), length_bytes }),
        _ => Err(Malformed("part")),
    }
}

fn write_state(out: &mut Vec<u8>, state: &RecipientState) {
    out.push(u8::from(state.settled) | u8::from(state.last.is_some()) << 1);
    put_u32(out, state.attempt_count);
    if let Some((at, outcome)) = &state.last {
        put_u64(out, at.0);
        write_outcome(out, outcome);
    }
}

fn read_state(r: &mut Reader<'_>) -> Result<RecipientState, Malformed> {
    let bits = r.u8()?;
    let attempt_count = r.u32()?;
    let last = if bits & 2 == 2 { Some((UnixMillis(r.u64()?), read_outcome(r)?)) } else { None };
    Ok(RecipientState { settled: bits & 1 == 1, attempt_count, last })
}

fn write_outcome(out: &mut Vec<u8>, outcome: &Outcome) {
    let disposition = match outcome.disposition {
        Disposition::Delivered => 0,
        Disposition::Deferred => 1,
        Disposition::Failed => 2,
    };
    out.push(disposition | u8::from(outcome.from_remote) << 2);
    out.push(outcome.status.0);
    put_u16(out, outcome.status.1);
    put_u16(out, outcome.status.2);
    // What was delivered or failed is told in the log; only what waits has to be explained again.
    let text = if outcome.disposition == Disposition::Deferred { &*outcome.text } else { "" };
    put_text(out, &text[..text.floor_char_boundary(TEXT_MAX)]);
}

fn read_outcome(r: &mut Reader<'_>) -> Result<Outcome, Malformed> {
    let bits = r.u8()?;
    let disposition = match bits & 3 {
        0 => Disposition::Delivered,
        1 => Disposition::Deferred,
        2 => Disposition::Failed,
        _ => return Err(Malformed("disposition")),
    };
    let status = Enhanced(r.u8()?, r.u16()?, r.u16()?);
    Ok(Outcome {
        disposition,
        status,
        text: r.text()?.into(),
        from_remote: bits & 4 == 4,
        cause: Cause::Local,
    })
}

/// Appends an outcome record.
pub(crate) fn write_results(out: &mut Vec<u8>, at: UnixMillis, results: &[(u32, Outcome)]) {
    put_u64(out, at.0);
    put_u32(out, results.len() as u32);
    for (index, outcome) in results {
        put_u32(out, *index);
        write_outcome(out, outcome);
    }
}

/// The time at which outcomes were noted, and the outcomes by recipient.
pub(crate) type Results = (UnixMillis, Vec<(u32, Outcome)>);

pub(crate) fn read_results(body: &[u8]) -> Result<Results, Malformed> {
    let mut r = Reader(body);
    let at = UnixMillis(r.u64()?);
    let count = r.count(12)?;
    Ok((at, read_all(count, || Ok((r.u32()?, read_outcome(&mut r)?)))?))
}

/// Writes the body of a totals record.
pub(crate) fn write_totals(out: &mut Vec<u8>, totals: &Totals) {
    let bytes = totals.numbers().map(u64::to_le_bytes);
    out.extend_from_slice(bytes.as_flattened());
}

/// Reads what [`write_totals`] wrote.
pub(crate) fn read_totals(body: &[u8]) -> Result<Totals, Malformed> {
    let (mut r, mut numbers) = (Reader(body), [0; Totals::COUNT]);
    for number in &mut numbers {
        *number = r.u64()?;
    }
    Totals::from_numbers(numbers).filter(|_| r.0.is_empty()).ok_or(Malformed("totals"))
}

/// Folds one attempt's outcome into a recipient's state.
pub(crate) fn fold(state: &mut RecipientState, at: UnixMillis, outcome: Outcome) {
    state.attempt_count += 1;
    state.settled |= outcome.disposition != Disposition::Deferred;
    state.last = Some((at, outcome));
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::DeliveryOptions;
    use proptest::prelude::*;

    fn message() -> Message {
        let mut envelope = Envelope::new(ReversePath::parse("ä@b.test", true).unwrap());
        envelope.body = BodyType::EightBit;
        envelope.smtputf8 = true;
        envelope.ret = Some(Ret::Headers);
        envelope.envid = Some("id=1".into());
        let mut second = Recipient::new(ForwardPath::parse("c@d.test", true).unwrap());
        second.notify = Notify { success: true, failure: false, delay: true, explicit: true };
        second.orcpt = Some("rfc822;x@y".into());
        envelope.recipients = vec![Recipient::new(ForwardPath::Postmaster), second];
        let traits = ContentTraits { has_dot_line: true, has_long_line: true, ..ContentTraits::default() };
        let parts = [
            Part::Stored { chunk_id: ChunkId(7), length_bytes: 9 },
            Part::Memory(Bytes::from_static(b"tail\r\n")),
        ];
        let content = Content::new(traits, parts);
        Message { id: QueueId(5), arrived: UnixMillis(99), origin: "test".into(), envelope, content }
    }

    fn states() -> Vec<RecipientState> {
        let last = Some((UnixMillis(7), Outcome::deferred(Enhanced(4, 2, 1), "full")));
        vec![
            RecipientState { settled: true, attempt_count: 1, last: None },
            RecipientState { settled: false, attempt_count: 2, last },
        ]
    }

    #[test]
    fn messages_and_their_past_are_read_as_written() {
        for past in [None, Some((&states()[..], Some("by a rule")))] {
            let mut out = Vec::new();
            write_message_again(&mut out, &message(), past, &[]);
            let stored = read_message(QueueId(5), &out, true).unwrap();
            assert_eq!(stored.message, message());
            assert_eq!(read_places(&out), Ok(vec![7]));
            let mut abridged = b"before".to_vec();
            assert_eq!(abridge(&out, &mut abridged), Ok(vec![7]));
            assert_eq!(
                read_abridged(QueueId(5), &abridged[6..]).unwrap(),
                read_message(QueueId(5), &out, false).unwrap()
            );
            assert_eq!(
                (stored.states.as_deref(), stored.held.as_deref()),
                (past.map(|p| p.0), past.and_then(|p| p.1))
            );
            for cut in 0..out.len() {
                assert!(read_message(QueueId(5), &out[..cut], true).is_err(), "cut at {cut}");
                assert!(read_places(&out[..cut]).is_err(), "cut at {cut}");
                assert!(abridge(&out[..cut], &mut Vec::new()).is_err(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn outcomes_are_read_as_written() {
        let results = vec![(3, Outcome::deferred(Enhanced(4, 0, 0), "x".repeat(5000)))];
        let mut out = Vec::new();
        write_results(&mut out, UnixMillis(1), &results);
        let (at, read) = read_results(&out).unwrap();
        assert_eq!((at, read[0].0, read[0].1.text.len()), (UnixMillis(1), 3, TEXT_MAX));
    }

    #[test]
    fn a_message_without_options_is_written_as_before_there_were_any() {
        let mut out = Vec::new();
        write_message(&mut out, &message());
        let flags = 8 + 2 + "test".len() + 2 + "ä@b.test".len();
        assert_eq!(out[flags] >> 6, 0);
        let mut with_options = message();
        with_options.envelope.options =
            DeliveryOptions { requiretls: true, ..DeliveryOptions::default() }.boxed();
        let mut longer = Vec::new();
        write_message(&mut longer, &with_options);
        // The flag, and a section with one extension that has no bytes.
        let at = flags + 1 + 2 + "id=1".len();
        assert_eq!(longer[at..at + 9], [5, 0, 0, 0, 128, 0, 0, 0, 0]);
        longer.drain(at..at + 9);
        longer[flags] &= !(1 << 6);
        assert_eq!(longer, out);
    }

    #[test]
    fn an_extension_of_a_later_version_stays_when_a_message_is_written_again() {
        let unknown = [99, 2, 0, 0, 0, b'x', b'y'];
        let mut out = Vec::new();
        write_message_again(&mut out, &message(), None, &unknown);
        let stored = read_message(QueueId(5), &out, true).unwrap();
        assert_eq!(stored.message, message());
        let mut again = Vec::new();
        write_message_again(&mut again, &stored.message, None, &stored.unknown);
        assert_eq!(again, out);
    }

    proptest! {
        #[test]
        fn any_options_and_expansions_are_read_as_written(envelope in extension::tests::any_envelope()) {
            let message = Message { envelope, ..message() };
            let mut out = Vec::new();
            write_message(&mut out, &message);
            let stored = read_message(QueueId(5), &out, true).unwrap();
            prop_assert_eq!(&stored.message, &message);
            let mut abridged = Vec::new();
            prop_assert_eq!(abridge(&out, &mut abridged), read_places(&out));
            let short = read_abridged(QueueId(5), &abridged).unwrap();
            prop_assert_eq!(short.message.envelope, message.envelope);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = read_message(QueueId(0), &bytes, true);
            let _ = (read_places(&bytes), read_results(&bytes), read_abridged(QueueId(0), &bytes));
            let mut out = Vec::new();
            if abridge(&bytes, &mut out).is_ok() {
                let (short, whole) = (read_abridged(QueueId(0), &out), read_message(QueueId(0), &bytes, false));
                prop_assert_eq!(short, whole);
            }
        }

        #[test]
        fn damaged_messages_never_panic(at in any::<usize>(), flip in 1u8..) {
            let mut out = Vec::new();
            write_message_again(&mut out, &message(), Some((&states(), None)), &[]);
            let at = at % out.len();
            out[at] ^= flip;
            let _ = read_message(QueueId(5), &out, true);
        }
    }
}
