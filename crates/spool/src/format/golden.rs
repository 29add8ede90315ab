//! The bytes in docs/spool-format.md are the bytes we write. Whoever changes one without the other
//! finds out here; whoever changes both must raise [`super::block::VERSION`].

use super::{
    block::{
        ALIGN, Chain, FIRST_BATCH, HeaderPlace, SegmentHeader, VERSION, begin_batch, end_batch, read_batch,
    },
    message::{
        read_message, read_results, read_totals, write_message, write_message_again, write_results,
        write_totals,
    },
    record::{self, Kind},
};
use crate::{RecipientState, Totals};
use bytes::Bytes;
use mail::{
    BodyType, ChunkId, Content, ContentTraits, DeliverBy, DeliverByMode, DeliveryOptions, Enhanced, Envelope,
    Expansion, ForwardPath, Mailbox, Message, Notify, Outcome, Part, Priority, QueueId, Recipient,
    RecipientOptions, Ret, ReturnPath, ReversePath, UnixMillis,
};

const DOCUMENT: &str = include_str!("../../../../docs/spool-format.md");
/// Segments as earlier versions wrote them, with the version.
const EARLIER: [(u32, &str); 2] =
    [(1, include_str!("golden/version-1.txt")), (2, include_str!("golden/version-2.txt"))];
pub(crate) const HEADER: SegmentHeader = SegmentHeader {
    version: VERSION,
    is_freed: false,
    sequence: 7,
    seed: 0x1122_3344_5566_7788,
    size_bytes: 64 * 1024 * 1024,
};
const BATCH: u64 = 42;
const SECOND_BATCH: u64 = FIRST_BATCH + ALIGN as u64;
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

const TOTALS: Totals = Totals { accepted: 21, delivered: 8, bounced: 5, expired: 3, deleted: 2, moved: 1 };

/// A message with each extension.
fn extended() -> Message {
    let mailbox = |text| Mailbox::parse(text, true).unwrap();
    let mut envelope = Envelope::new(ReversePath::Null);
    envelope.options = DeliveryOptions {
        login: Some("al".into()),
        auth: Some(ReversePath::Mailbox(mailbox("a@b.test"))),
        requiretls: true,
        deliver_by: Some(DeliverBy {
            deadline: UnixMillis(1_795_255_260_000),
            mode: DeliverByMode::Return,
            trace: true,
        }),
        release: Some(UnixMillis(1_795_255_230_000)),
        priority: Priority::new(-2),
    }
    .boxed();
    let expansion = Expansion { original: mailbox("l@b.test"), through: vec![mailbox("m@b.test")] };
    let path = ForwardPath::Mailbox(mailbox("d@e.test"));
    let owner = ReturnPath { path: ReversePath::Mailbox(mailbox("o@b.test")), is_list: true };
    let options = RecipientOptions {
        expansion: Some(expansion),
        return_path: Some(owner),
        ..RecipientOptions::default()
    };
    envelope.recipients = vec![Recipient { options: options.boxed(), ..Recipient::new(path) }];
    let content = Content::from_bytes("A: b\r\n");
    let (id, arrived) = (QueueId(ID.0 + 1), UnixMillis(1_795_255_200_000));
    Message { id, arrived, origin: "o".into(), envelope, content }
}

/// The batch behind the first one, with what version 3 added.
fn second_batch() -> Vec<u8> {
    let (mut out, mut chain) = (Vec::new(), Chain::default());
    begin_batch(&mut out);
    let write = |out: &mut Vec<u8>| write_message(out, &extended());
    chain.add(record::append(&mut out, SECOND_BATCH, HEADER.seed, Kind::Message, ID.0 + 1, write));
    let write = |out: &mut Vec<u8>| write_totals(out, &TOTALS);
    chain.add(record::append(&mut out, SECOND_BATCH, HEADER.seed, Kind::Totals, BATCH + 1, write));
    end_batch(&mut out, SECOND_BATCH, HEADER.seed, BATCH + 1, chain);
    out
}

/// One record of each kind that version 2 has, in a batch where a segment's first stands.
pub(crate) fn batch() -> Vec<u8> {
    let (mut out, mut chain) = (Vec::new(), Chain::default());
    begin_batch(&mut out);
    let mut put = |kind: Kind, name: u64, write: &dyn Fn(&mut Vec<u8>)| {
        chain.add(record::append(&mut out, FIRST_BATCH, HEADER.seed, kind, name, write));
    };
    put(Kind::Chunk, 3, &|out| out.extend_from_slice(b"c\r\nd\n"));
    put(Kind::Message, ID.0, &|out| write_message_again(out, &message(), Some((&states(), Some(""))), &[]));
    put(Kind::Outcome, ID.0, &|out| write_results(out, UnixMillis(1_795_255_202_000), &results()));
    put(Kind::Hold, ID.0, &|out| out.push(0));
    put(Kind::Tombstone, ID.0, &|_| {});
    end_batch(&mut out, FIRST_BATCH, HEADER.seed, BATCH, chain);
    out
}

fn documented(from: u64) -> Vec<u8> {
    bytes_of(DOCUMENT, from)
}

/// The bytes of a text's dumps from `from` on: lines of `00001000  50 42  what it is`, each of
/// which goes on where the one before ended.
fn bytes_of(text: &str, from: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
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
fn a_batch_with_what_version_3_added_is_as_documented() {
    check(SECOND_BATCH, &second_batch());
}

#[test]
fn extensions_and_totals_that_are_documented_are_read() {
    let mut bytes = documented(SECOND_BATCH);
    bytes.resize(ALIGN, 0);
    let (_, records) = read_batch(&bytes, SECOND_BATCH, HEADER.seed, true).unwrap();
    assert_eq!(read_message(extended().id, records[0].2.body, true).unwrap().message, extended());
    assert_eq!(read_totals(records[1].2.body), Ok(TOTALS));
}

#[test]
fn segments_of_earlier_versions_are_read() {
    for (version, dump) in EARLIER {
        let mut header = bytes_of(dump, 0);
        header.resize(ALIGN, 0);
        let header = SegmentHeader::decode(&header, HeaderPlace::First).unwrap();
        assert_eq!(header, SegmentHeader { version, ..HEADER });
        let copy = bytes_of(dump, HeaderPlace::Last.offset(HEADER.size_bytes));
        assert_eq!(copy.is_empty(), version == 1);
        if version > 1 {
            assert_eq!(SegmentHeader::decode(&copy, HeaderPlace::Last), Ok(header));
        }
        check_first_batch(bytes_of(dump, FIRST_BATCH));
    }
}

#[test]
fn what_is_documented_is_read() {
    check_first_batch(documented(FIRST_BATCH));
}

fn check_first_batch(mut bytes: Vec<u8>) {
    bytes.resize(ALIGN, 0);
    let (head, records) = read_batch(&bytes, FIRST_BATCH, HEADER.seed, true).unwrap();
    assert_eq!((head.sequence, head.count), (BATCH, 5));
    let stored = read_message(ID, records[1].2.body, true).unwrap();
    assert_eq!(
        (stored.message, stored.states.as_deref(), stored.held.as_deref()),
        (message(), Some(&states()[..]), Some(""))
    );
    assert_eq!(read_results(records[2].2.body).unwrap(), (UnixMillis(1_795_255_202_000), results().to_vec()));
}
