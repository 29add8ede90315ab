//! The bytes in docs/spool-format.md are the bytes we write. Whoever changes one without the other
//! finds out here; whoever changes both must raise [`super::block::VERSION`].

use super::{
    block::{
        ALIGN, Chain, FIRST_BATCH, HeaderPlace, SegmentHeader, VERSION, begin_batch, end_batch, read_batch,
    },
    message::{read_message, read_results, write_message, write_results},
    record::{self, Kind},
};
use crate::RecipientState;
use bytes::Bytes;
use mail::{
    BodyType, ChunkId, Content, ContentTraits, Enhanced, Envelope, ForwardPath, Message, Notify, Outcome,
    Part, QueueId, Recipient, Ret, ReversePath, UnixMillis,
};

const DOCUMENT: &str = include_str!("../../../../docs/spool-format.md");
pub(crate) const HEADER: SegmentHeader = SegmentHeader {
    version: VERSION,
    is_freed: false,
    sequence: 7,
    seed: 0x1122_3344_5566_7788,
    size_bytes: 64 * 1024 * 1024,
};
const BATCH: u64 = 42;
const ID: QueueId = QueueId(0x0123_4567_89ab_cdef);

/// One of everything: every bit of the flags' bytes that has a meaning is set somewhere.
fn message() -> Message {
    let mut envelope = Envelope::new(ReversePath::parse("a@b.test", true).unwrap());
    envelope.body = BodyType::EightBit;
    envelope.ret = Some(Ret::Headers);
    envelope.smtputf8 = true;
    envelope.envid = Some("e1".into());
    let mut second = Recipient::new(ForwardPath::parse("d@e.test", true).unwrap());
    second.notify = Notify { success: true, failure: false, delay: true, explicit: true };
    second.orcpt = Some("rfc822;x@y".into());
    envelope.recipients = vec![Recipient::new(ForwardPath::Postmaster), second];
    let traits = ContentTraits { has_dot_line: true, has_long_line: true, ..ContentTraits::default() };
    let parts = [
        Part::Memory(Bytes::from_static(b"A: b\r\n")),
        Part::Stored { chunk_id: ChunkId(3), length_bytes: 5 },
    ];
    let content = Content::new(traits, parts);
    Message { id: ID, arrived: UnixMillis(1_795_255_200_000), origin: "o".into(), envelope, content }
}

fn states() -> [RecipientState; 2] {
    let last = Some((UnixMillis(1_795_255_201_000), Outcome::deferred(Enhanced(4, 2, 1), "full")));
    [
        RecipientState { settled: true, attempt_count: 1, last: None },
        RecipientState { settled: false, attempt_count: 2, last },
    ]
}

fn results() -> [(u32, Outcome); 1] {
    [(1, Outcome { from_remote: true, ..Outcome::deferred(Enhanced(4, 2, 2), "later") })]
}

/// One record of each kind, in a batch where a segment's first stands.
pub(crate) fn batch() -> Vec<u8> {
    let (mut out, mut chain) = (Vec::new(), Chain::default());
    begin_batch(&mut out);
    let mut put = |kind: Kind, name: u64, write: &dyn Fn(&mut Vec<u8>)| {
        chain.add(record::append(&mut out, FIRST_BATCH, HEADER.seed, kind, name, write));
    };
    put(Kind::Chunk, 3, &|out| out.extend_from_slice(b"c\r\nd\n"));
    put(Kind::Message, ID.0, &|out| write_message(out, &message(), Some((&states(), true))));
    put(Kind::Outcome, ID.0, &|out| write_results(out, UnixMillis(1_795_255_202_000), &results()));
    put(Kind::Hold, ID.0, &|out| out.push(0));
    put(Kind::Tombstone, ID.0, &|_| {});
    end_batch(&mut out, FIRST_BATCH, HEADER.seed, BATCH, chain);
    out
}

/// The bytes of the document's dumps from `from` on: lines of `00001000  50 42  what it is`, each of
/// which goes on where the one before ended.
fn documented(from: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in DOCUMENT.lines() {
        let mut columns = line.split("  ");
        let offset = columns.next().filter(|offset| offset.len() == 8);
        let offset = offset.and_then(|offset| u64::from_str_radix(offset, 16).ok());
        if offset == Some(from + bytes.len() as u64) {
            let hex = columns.next().expect("bytes stand behind the offset").split(' ');
            bytes.extend(hex.map(|byte| u8::from_str_radix(byte, 16).expect("bytes in hexadecimal")));
        }
    }
    bytes
}

/// As the document has it, with the field's end left to whoever annotates it.
fn dump(from: u64, bytes: &[u8]) -> String {
    let lines = bytes.chunks(16).enumerate().map(|(number, chunk)| {
        let hex: Vec<String> = chunk.iter().map(|b| format!("{b:02x}")).collect();
        format!("{:08x}  {}\n", from as usize + 16 * number, hex.join(" "))
    });
    lines.collect()
}

#[track_caller]
pub(crate) fn check(from: u64, written: &[u8]) {
    let end = written.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
    let documented = documented(from);
    let (told, rest) = written.split_at(documented.len().min(written.len()));
    assert!(
        documented == told && rest.iter().all(|b| *b == 0),
        "docs/spool-format.md does not have what is written:\n{}\nbut\n{}",
        dump(from, &written[..end]),
        dump(from, &documented)
    );
}

#[test]
fn the_segment_header_is_as_documented() {
    check(0, &HEADER.encode(HeaderPlace::First));
}

#[test]
fn the_copy_of_the_segment_header_is_as_documented() {
    let at = HeaderPlace::Last.offset(HEADER.size_bytes);
    check(at, &HEADER.encode(HeaderPlace::Last));
}

#[test]
fn a_batch_with_every_record_is_as_documented() {
    check(FIRST_BATCH, &batch());
}

#[test]
fn what_is_documented_is_read() {
    let mut bytes = documented(FIRST_BATCH);
    bytes.resize(ALIGN, 0);
    let (head, records) = read_batch(&bytes, FIRST_BATCH, HEADER.seed, true).unwrap();
    assert_eq!((head.sequence, head.count), (BATCH, 5));
    let stored = read_message(ID, records[1].2.body, true).unwrap();
    assert_eq!(
        (stored.message, stored.states.as_deref(), stored.held),
        (message(), Some(&states()[..]), true)
    );
    assert_eq!(read_results(records[2].2.body).unwrap(), (UnixMillis(1_795_255_202_000), results().to_vec()));
}
