//! Queue directories whose files are lost, damaged, made by others, or cannot be read or written.

use bytes::Bytes;
use mail::{
    Content, Envelope, Facts, ForwardPath, Message, Part, Place, QueueId, Recipient, ReversePath,
    SharedMessage, UnixMillis,
};
use spool::{DirSettings, DirSpool, Entry, Layout, RecoveryReport, Spool, SpoolFailure};
use std::{
    fs,
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll, Waker},
};

fn message(id: u64, content: Content) -> SharedMessage {
    let mut envelope = Envelope::new(ReversePath::parse("a@b.test", false).unwrap());
    envelope.recipients = vec![Recipient::new(ForwardPath::parse("x@c.test", false).unwrap())];
    let (id, arrived) = (QueueId(id), UnixMillis(id));
    SharedMessage::new(Message { id, arrived, origin: "test".into(), envelope, content })
}

fn settings() -> DirSettings {
    DirSettings { min_free_bytes: 0, reserve_bytes: 0, ..DirSettings::default() }
}

fn opened(dir: &Path) -> DirSpool {
    DirSpool::open(dir, Layout { directories: 2, hashed: 0 }, settings()).unwrap()
}

/// The ids of what a start finds.
fn recovered(dir: &Path) -> (DirSpool, Vec<u64>, RecoveryReport) {
    let (mut spool, mut found) = (opened(dir), Vec::new());
    let report = spool.recover(&mut |one| found.push(one.message.id.0)).unwrap();
    (spool, found, report)
}

fn wait<T>(mut future: Pin<Box<dyn Future<Output = T> + Send>>) -> T {
    loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

fn commit(spool: &DirSpool, entry: Entry) {
    let ticket = spool.submit(vec![entry]).unwrap();
    wait(spool.durable(ticket)).unwrap();
}

/// A message whose content is one chunk.
fn commit_chunk(spool: &DirSpool, id: u64, bytes: &'static [u8]) -> Place {
    let place = spool.store(Bytes::from_static(bytes)).unwrap();
    let part = Part::Stored { place, length_bytes: bytes.len() as u32 };
    commit(spool, Entry::Accept(message(id, Content::new(Facts::default(), [part]))));
    place
}

fn ended(id: u64) -> Entry {
    Entry::Outcome { id: QueueId(id), results: vec![], last: true }
}

/// A file in one of the queue directories.
fn file(dir: &Path, name: &str) -> PathBuf {
    let paths = ["q00", "q01"].map(|queue| dir.join(queue).join(name));
    paths.into_iter().find(|path| path.exists()).unwrap()
}

fn chunk_file(dir: &Path, place: Place) -> PathBuf {
    file(dir, &format!("{:016x}.chunk", place.0))
}

fn envelope_file(dir: &Path, id: u64) -> PathBuf {
    file(dir, &format!("{}.env", QueueId(id)))
}

/// Lines with the checksums they have in the envelope file of this message.
fn sealed<'a>(id: u64, mut offset: u64, lines: impl IntoIterator<Item = &'a str>) -> String {
    let mut out = String::new();
    for line in lines {
        let salt = [id.to_le_bytes(), offset.to_le_bytes()].concat();
        let sum = crc32c::crc32c_append(crc32c::crc32c(&salt), line.as_bytes());
        let whole = format!("{line} {sum:08x}\n");
        offset += whole.len() as u64;
        out += &whole;
    }
    out
}

/// Lets an envelope name another chunk, with the right checksums.
fn rename_chunk(dir: &Path, id: u64, from: Place, to: Place) {
    let path = envelope_file(dir, id);
    let text = fs::read_to_string(&path).unwrap();
    let named = text.replace(&format!("{:016x}", from.0), &format!("{:016x}", to.0));
    let lines = named.lines().map(|line| line.rsplit_once(' ').unwrap().0);
    fs::write(&path, sealed(id, 0, lines)).unwrap();
}

#[test]
fn the_number_of_a_lost_chunk_is_not_given_again() {
    for (is_listed, is_damaged) in [(false, false), (true, false), (false, true)] {
        let dir = tempfile::tempdir().unwrap();
        let (spool, ..) = recovered(dir.path());
        let lost = commit_chunk(&spool, 1, b"one's\r\n");
        drop(spool);
        fs::remove_file(chunk_file(dir.path(), lost)).unwrap();
        if is_damaged {
            let path = envelope_file(dir.path(), 1);
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text.replace("\naccepted ", "\nexcepted ")).unwrap();
        }
        let mut spool = opened(dir.path());
        if is_listed {
            spool.recover_listed(false).unwrap();
        } else {
            spool.recover(&mut |_| {}).unwrap();
        }
        let given = commit_chunk(&spool, 2, b"two's\r\n");
        assert!(given.0 > lost.0, "{given:?} after {lost:?}");
        drop(spool);
        let (spool, found, report) = recovered(dir.path());
        assert_eq!((found, report.corrupt.len()), (vec![2], 1), "{report:?}");
        assert_eq!(spool.load(given).unwrap(), &b"two's\r\n"[..]);
    }
}

/// As by a clock that was set back.
#[test]
fn chunks_are_numbered_above_all_that_envelopes_name_but_not_above_what_no_number_can_be() {
    let (far, absurd) = (Place(1 << 54), Place(u64::MAX - 1));
    for (named, is_outbid) in [(far, true), (absurd, false)] {
        let dir = tempfile::tempdir().unwrap();
        let (spool, ..) = recovered(dir.path());
        let place = commit_chunk(&spool, 1, b"one's\r\n");
        drop(spool);
        rename_chunk(dir.path(), 1, place, named);
        fs::write(dir.path().join("q00").join("ffffffffffffffff.chunk"), "a stranger's").unwrap();
        let (spool, found, _) = recovered(dir.path());
        assert!(found.is_empty());
        let given = spool.store(Bytes::from_static(b"x")).unwrap();
        assert!((given.0 > named.0) == is_outbid && given.0 < 1 << 55, "{given:?}");
    }
}

/// What was written while numbers were given again.
#[test]
fn of_two_that_name_a_chunk_the_one_has_it_whose_record_it_fits() {
    for (owner, other) in [(1, 2), (2, 1)] {
        let dir = tempfile::tempdir().unwrap();
        let (spool, ..) = recovered(dir.path());
        let own = commit_chunk(&spool, owner, b"content of the owner\r\n");
        let lost = commit_chunk(&spool, other, b"content that was lost\r\n");
        drop(spool);
        fs::remove_file(chunk_file(dir.path(), lost)).unwrap();
        rename_chunk(dir.path(), other, lost, own);
        let (spool, found, report) = recovered(dir.path());
        assert!(found.contains(&owner) && (found.len() == 2 || report.corrupt.len() == 1), "{report:?}");
        assert!(matches!(spool.read(QueueId(other)), Err(SpoolFailure::Corrupt(_) | SpoolFailure::Missing)));
        commit(&spool, ended(other));
        let content = spool.read(QueueId(owner)).unwrap().content.clone();
        assert_eq!(content.parts()[0].place(), Some(own));
        assert_eq!(spool.load(own).unwrap(), &b"content of the owner\r\n"[..]);
    }
}
