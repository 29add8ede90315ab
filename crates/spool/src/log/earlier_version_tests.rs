//! Logs that earlier versions wrote.

use super::{LogSettings, LogSpool};
use crate::{
    Entry, Spool as _, Totals, block_on,
    disk::{Disk as _, RealDisk},
    format::{
        block::{Chain, FIRST_BATCH, HeaderPlace, SegmentHeader, begin_batch, end_batch},
        message::write_message,
        record::{self, Kind},
    },
};
use mail::{
    Content, Enhanced, Envelope, ForwardPath, Message, Outcome, QueueId, Recipient, ReversePath, UnixMillis,
};

const SEGMENT_BYTES: u64 = 1 << 20;

fn message() -> Message {
    let path = |text| ForwardPath::parse(text, false).unwrap();
    let recipients = vec![Recipient::new(path("a@b.test")), Recipient::new(path("c@d.test"))];
    let envelope = Envelope { recipients, ..Envelope::new(ReversePath::Null) };
    let (id, content) = (QueueId(7), Content::from_bytes("x\r\n"));
    Message { id, arrived: UnixMillis(1), origin: "test".into(), envelope, content }
}

/// Writes a segment with one batch, as a version without totals did.
fn write_segment(disk: &RealDisk, version: u32) {
    let header = SegmentHeader { version, ..SegmentHeader::new(1, 9, SEGMENT_BYTES) };
    let (mut batch, mut chain) = (Vec::new(), Chain::default());
    begin_batch(&mut batch);
    let write = |out: &mut Vec<u8>| write_message(out, &message());
    chain.add(record::append(&mut batch, FIRST_BATCH, header.seed, Kind::Message, 7, write));
    end_batch(&mut batch, FIRST_BATCH, header.seed, 1, chain);
    let file = disk.create("0000000000000001.seg").unwrap();
    file.write_at(0, &header.encode(HeaderPlace::First)).unwrap();
    file.write_at(FIRST_BATCH, &batch).unwrap();
    let last = HeaderPlace::Last.offset(SEGMENT_BYTES);
    let copy = if version == 1 { vec![0; 4096] } else { header.encode(HeaderPlace::Last) };
    file.write_at(last, &copy).unwrap();
}

#[test]
fn a_log_of_an_earlier_version_is_read_and_its_totals_begin_with_what_is_left() {
    for version in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        write_segment(&RealDisk::new(dir.path()).unwrap(), version);
        let settings =
            LogSettings { segment_bytes: SEGMENT_BYTES, min_free_bytes: 0, ..LogSettings::default() };
        let open = || {
            let mut found = Vec::new();
            let mut spool = LogSpool::open(dir.path(), settings.clone()).unwrap();
            let report = spool.recover(&mut |one| found.push(one.message)).unwrap();
            assert!(report.is_complete() && report.imbalances.is_empty(), "{report:?}");
            (spool, found, report.totals)
        };
        let (spool, found, totals) = open();
        assert_eq!(found[0].envelope, message().envelope);
        assert_eq!(totals, Totals { accepted: 2, ..Totals::default() });
        let results = vec![(0, Outcome::delivered(Enhanced(2, 0, 0), "ok"))];
        let commit_seq = spool.submit(vec![Entry::Outcome { id: QueueId(7), results, last: false }]).unwrap();
        block_on(spool.durable(commit_seq)).unwrap();
        drop(spool);
        assert_eq!(open().2, Totals { accepted: 2, delivered: 1, ..Totals::default() });
    }
}
