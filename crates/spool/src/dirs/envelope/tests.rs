//! The bytes of an envelope file, as docs/spool-directories.md shows them.

use super::*;
use crate::{
    dirs::note::{self, Append, Note},
    format::extension::tests::any_envelope,
};
use bytes::Bytes;
use mail::{
    ChunkId, Content, DeliverBy, DeliverByMode, DeliveryOptions, Enhanced, Expansion, ForwardPath, Mailbox,
    Outcome, Priority, QueueId, ReturnPath, ReversePath, UnixMillis,
};
use proptest::prelude::*;

const ID: QueueId = QueueId(5);

fn message() -> Message {
    let mut envelope = Envelope::new(ReversePath::parse("ä@b.test", true).unwrap());
    envelope.body = BodyType::EightBit;
    envelope.smtputf8 = true;
    envelope.ret = Some(Ret::Headers);
    envelope.envid = Some("id=1 %".into());
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
    Message { id: ID, arrived: UnixMillis(99), origin: "client=x[192.0.2.1]".into(), envelope, content }
}

/// With three appends: of one line, of two, of one.
fn file() -> (Vec<u8>, Vec<usize>) {
    let mut out = Vec::new();
    write(&mut out, LineChecksum::new(ID.0), &message(), |chunk_id| chunk_id as u32);
    let mut ends = vec![out.len()];
    let deferred = Outcome::deferred(Enhanced(4, 2, 1), "full up");
    let delivered = Outcome { from_remote: true, ..Outcome::delivered(Enhanced(2, 0, 0), "250 ok") };
    let outcomes = Note::Outcomes(UnixMillis(1000), vec![(0, delivered), (1, deferred)]);
    for (batch, notes) in (7..).zip([
        vec![outcomes.clone()],
        vec![outcomes, Note::Held(Some("".into()))],
        vec![Note::Held(None)],
    ]) {
        let base = out.len() as u64;
        let mut append = Vec::new();
        let mut lines = Lines::new(&mut append, LineChecksum::new(ID.0), base);
        notes.iter().for_each(|note| note::write(&mut lines, Append { base, batch }, note));
        out.extend(append);
        ends.push(out.len());
    }
    (out, ends)
}

/// Version 2: with options and an expansion.
fn extended() -> Message {
    let mut message = message();
    message.envelope.options = DeliveryOptions {
        login: Some("al ice".into()),
        auth: Some(ReversePath::parse("a@b.test", true).unwrap()),
        requiretls: true,
        deliver_by: Some(DeliverBy { deadline: UnixMillis(5000), mode: DeliverByMode::Return, trace: true }),
        release: Some(UnixMillis(1000)),
        priority: Priority::new(-4),
    }
    .boxed();
    let mailbox = |text| Mailbox::parse(text, true).unwrap();
    let (original, through) = (mailbox("list@b.test"), vec![mailbox("all@b.test"), mailbox("ä@b.test")]);
    message.envelope.recipients[1].options.get_or_insert_default().expansion =
        Some(Expansion { original, through });
    let owner = ReturnPath { path: ReversePath::parse("owner-list@b.test", true).unwrap(), is_list: true };
    message.envelope.recipients[1].set_return_path(owner);
    message
}

fn written(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out, LineChecksum::new(ID.0), message, |chunk_id| chunk_id as u32);
    out
}

#[test]
fn the_bytes_are_those_of_the_document() {
    let document = include_str!("../../../../../docs/spool-directories.md");
    for bytes in [file().0, written(&extended())] {
        let text = String::from_utf8(bytes).unwrap();
        assert!(document.contains(&text), "{text}");
    }
}

#[test]
fn options_and_expansions_are_read_in_version_2_and_version_1_has_none() {
    for (message, first) in [(message(), "postrider-message 1 "), (extended(), "postrider-message 2 ")] {
        let bytes = written(&message);
        assert!(bytes.starts_with(first.as_bytes()));
        let filed = read(ID, &bytes, LineChecksum::new(ID.0)).unwrap();
        assert_eq!(filed.message.envelope, message.envelope);
    }
}

#[test]
fn an_unknown_option_is_skipped_and_an_unknown_requirement_is_refused() {
    let with = |first: &str, word: &str| {
        let mut out = Vec::new();
        let mut to = Lines::new(&mut out, LineChecksum::new(ID.0), 0);
        to.line(MAGIC, |w| {
            w.word(VERSION).word(ID);
        });
        to.line(first, |w| {
            w.word(word);
        });
        to.line("accepted", |_| {});
        let offset = 1 + out.iter().position(|b| *b == b'\n').unwrap() as u64;
        (read(ID, &out, LineChecksum::new(ID.0)), offset)
    };
    assert_eq!(with("options", "colour=red").0.unwrap().message.envelope.options, None);
    let (refused, offset) = with("require", "colour=red");
    assert_eq!(refused, Err(Unreadable::Damaged(offset, "a requirement of a later version")));
    for (word, why) in [("priority=10", "priority"), ("auth=x", "auth"), ("priority=x", "number")] {
        let (refused, offset) = with("options", word);
        assert_eq!(refused, Err(Unreadable::Damaged(offset, why)), "{word}");
    }
    for word in ["by=5", "by=5,later", "by=5,return,trace,trace", "by=x,return", "release=", "tls=no"] {
        assert!(with("require", word).0.is_err(), "{word}");
    }
}

#[test]
fn what_was_written_is_read() {
    let (bytes, _) = file();
    let filed = read(ID, &bytes, LineChecksum::new(ID.0)).unwrap();
    let message = message();
    assert_eq!(filed.message.envelope, message.envelope);
    assert_eq!((filed.message.origin, filed.message.arrived), (message.origin, message.arrived));
    assert_eq!(filed.message.content.traits, message.content.traits);
    let sum = crc32c::crc32c(b"tail\r\n");
    let chunk = Piece::Chunk { chunk_id: 7, length_bytes: 9, sum: 7 };
    assert_eq!(filed.pieces, [chunk, Piece::Here { length_bytes: 6, sum }]);
    assert_eq!((filed.end, filed.torn_bytes, filed.held), (bytes.len() as u64, 0, None));
    let named = |bytes: &[u8]| chunk_ids(bytes, LineChecksum::new(ID.0)).collect::<Vec<_>>();
    assert_eq!((named(&bytes), named(&bytes[1..])), (vec![7], vec![]));
    assert!(filed.states[0].settled && filed.states[1].attempt_count == 2);
    assert_eq!(&*filed.states[1].last.as_ref().unwrap().1.text, "full up");
    assert_eq!(&*filed.states[0].last.as_ref().unwrap().1.text, "");
}

#[test]
fn an_append_cut_anywhere_leaves_the_appends_before_it() {
    let (bytes, ends) = file();
    for cut in 0..bytes.len() {
        match read(ID, &bytes[..cut], LineChecksum::new(ID.0)) {
            Err(_) => assert!(cut < ends[0], "cut at {cut}"),
            Ok(filed) => {
                let whole = *ends.iter().rfind(|end| **end <= cut).unwrap() as u64;
                assert!(filed.end >= whole && filed.damaged.is_empty(), "cut at {cut}: {filed:?}");
                assert_eq!(filed.end + filed.torn_bytes, cut as u64);
            }
        }
    }
}

#[test]
fn a_hole_in_the_last_append_is_torn_and_one_before_it_is_damage() {
    let (mut bytes, ends) = file();
    bytes.truncate(ends[2]);
    bytes[ends[1] + 3] ^= 1;
    let filed = read(ID, &bytes, LineChecksum::new(ID.0)).unwrap();
    assert_eq!((filed.end, filed.held, filed.damaged), (ends[1] as u64, None, vec![]));
    assert_eq!(filed.torn_bytes, (ends[2] - ends[1]) as u64);

    let (mut bytes, ends) = file();
    bytes[ends[0] + 3] ^= 1;
    bytes[ends[1] + 3] ^= 1;
    let filed = read(ID, &bytes, LineChecksum::new(ID.0)).unwrap();
    assert_eq!((filed.end, filed.torn_bytes), (bytes.len() as u64, 0));
    assert_eq!(filed.damaged, [ends[0] as u64, ends[1] as u64]);
    assert_eq!(filed.states[0].attempt_count, 0);
}

/// Lines that remain behind a cut whose sync failed may fit behind a new line.
#[test]
fn a_line_of_an_earlier_round_behind_a_later_one_does_not_count() {
    let mut out = Vec::new();
    write(&mut out, LineChecksum::new(ID.0), &message(), |_| 0);
    let base = out.len() as u64;
    for (batch, held) in [(9, None), (8, Some("".into()))] {
        let (mut line, at) = (Vec::new(), out.len() as u64);
        note::write(
            &mut Lines::new(&mut line, LineChecksum::new(ID.0), at),
            Append { base, batch },
            &Note::Held(held),
        );
        out.extend(line);
    }
    let filed = read(ID, &out, LineChecksum::new(ID.0)).unwrap();
    assert!(filed.held.is_none() && filed.torn_bytes > 0 && filed.damaged.is_empty());
}

#[test]
fn another_version_is_told() {
    let mut out = Vec::new();
    Lines::new(&mut out, LineChecksum::new(ID.0), 0).line(MAGIC, |w| {
        w.word(9).word(ID);
    });
    assert_eq!(read(ID, &out, LineChecksum::new(ID.0)), Err(Unreadable::Version(9)));
}

proptest! {
    #[test]
    fn any_options_and_expansions_are_read_as_written(envelope in any_envelope()) {
        let message = Message { envelope, ..message() };
        let filed = read(ID, &written(&message), LineChecksum::new(ID.0)).unwrap();
        prop_assert_eq!(filed.message.envelope, message.envelope);
    }

    #[test]
    fn any_texts_are_read_as_written(origin: String, envid: String, orcpt: String, text: String, at: u64) {
        let mut message = message();
        (message.origin, message.arrived) = (origin.as_str().into(), UnixMillis(at));
        message.envelope.envid = Some(envid.into());
        message.envelope.recipients[0].orcpt = Some(orcpt.into());
        let mut out = Vec::new();
        write(&mut out, LineChecksum::new(ID.0), &message, |_| 0);
        let note = Note::Outcomes(UnixMillis(at), vec![(1, Outcome::deferred(Enhanced(4, 0, 0), text.clone()))]);
        let base = out.len() as u64;
        let mut append = Vec::new();
        note::write(&mut Lines::new(&mut append, LineChecksum::new(ID.0), base), Append { base, batch: 1 }, &note);
        out.extend(append);
        let filed = read(ID, &out, LineChecksum::new(ID.0)).unwrap();
        prop_assert_eq!(&filed.message.envelope, &message.envelope);
        prop_assert_eq!((filed.message.origin, filed.message.arrived), (message.origin, message.arrived));
        let last = filed.states[1].last.clone().unwrap();
        prop_assert_eq!((last.0, &*last.1.text), (UnixMillis(at), &*text));
    }

    #[test]
    fn damaged_files_never_panic_and_never_say_something_else(at in any::<usize>(), flip in 1u8..) {
        let (mut bytes, ends) = file();
        let at = at % bytes.len();
        bytes[at] ^= flip;
        match read(ID, &bytes, LineChecksum::new(ID.0)) {
            Err(_) => prop_assert!(at < ends[0]),
            Ok(filed) => {
                prop_assert!(at >= ends[0] && filed.message.envelope == message().envelope);
                prop_assert!(!filed.damaged.is_empty() || filed.torn_bytes > 0);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        let _ = read(ID, &bytes, LineChecksum::new(ID.0));
    }
}
