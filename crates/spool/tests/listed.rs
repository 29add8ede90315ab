//! Queue directories by name: no envelope is opened before its turn, and nothing is lost by that.

use mail::{
    Content, Enhanced, Envelope, ForwardPath, Message, Outcome, QueueId, Recipient, ReversePath,
    SharedMessage, UnixMillis,
};
use spool::{ControlOp, DirSettings, DirSpool, Entry, Layout, Recovered, Spool, list};
use std::{fs, path::Path};

fn message(id: u64) -> SharedMessage {
    let mut envelope = Envelope::new(ReversePath::parse("a@b.test", false).unwrap());
    let path = |n| ForwardPath::parse(&format!("r{n}@c.test"), false).unwrap();
    envelope.recipients = (0..2).map(|n| Recipient::new(path(n))).collect();
    let content = Content::from_bytes(format!("Subject: {id}\r\n\r\nhello\r\n"));
    SharedMessage::new(Message {
        id: QueueId(id),
        arrived: UnixMillis(id),
        origin: "test".into(),
        envelope,
        content,
    })
}

fn outcome(id: u64, index: u32, outcome: Outcome) -> Entry {
    Entry::Outcome { id: QueueId(id), results: vec![(index, outcome)], last: false }
}

fn deferred() -> Outcome {
    Outcome::deferred(Enhanced(4, 2, 1), "mailbox busy")
}

fn delivered() -> Outcome {
    Outcome::delivered(Enhanced(2, 0, 0), "ok")
}

fn opened(dir: &Path) -> DirSpool {
    let settings = DirSettings { min_free_bytes: 0, ..DirSettings::default() };
    DirSpool::open(dir, Layout { directories: 3, hashed: 1 }, settings).unwrap()
}

fn recovered(dir: &Path) -> (DirSpool, Vec<Recovered>) {
    let (mut spool, mut found) = (opened(dir), Vec::new());
    assert_eq!(spool.recover(&mut |one| found.push(one)).unwrap().corrupt, [""; 0]);
    (spool, found)
}

/// Forty messages, some deferred, one held; the last is done.
fn fill(dir: &Path) {
    let (spool, _) = recovered(dir);
    for id in 1..=40 {
        spool.submit(vec![Entry::Accept(message(id))]).unwrap();
    }
    for id in [3, 5] {
        spool.submit(vec![outcome(id, 1, deferred())]).unwrap();
    }
    spool.submit(vec![Entry::Control { id: QueueId(7), op: ControlOp::Hold("by root".into()) }]).unwrap();
    spool.submit(vec![Entry::Control { id: QueueId(40), op: ControlOp::Delete }]).unwrap();
    spool.close();
}

fn envelope_file(dir: &Path, id: u64) -> std::path::PathBuf {
    let name = format!("{}.env", QueueId(id));
    let leaves = (0..3).flat_map(|q| "0123456789abcdef".chars().map(move |leaf| format!("q0{q}/{leaf}")));
    leaves.map(|leaf| dir.join(leaf).join(&name)).find(|path| path.exists()).unwrap()
}

fn same(a: &Recovered, b: &Recovered) -> bool {
    a.message == b.message && a.recipients == b.recipients && a.held == b.held
}

#[test]
fn what_is_listed_is_opened_as_recovery_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let (spool, all) = recovered(dir.path());
    drop(spool);
    assert_eq!(all.len(), 39);
    let (looked, _) = list(dir.path(), true).unwrap();
    assert!(looked.iter().all(|one| one.changed.is_some_and(|at| at.0 > 1_700_000_000_000)));

    let mut spool = opened(dir.path());
    let (listed, report) = spool.recover_listed(false).unwrap();
    assert_eq!((report.message_count, report.corrupt.len()), (39, 0));
    assert!(listed.iter().map(|one| one.id).eq(looked.iter().map(|one| one.id)));
    let ids: Vec<QueueId> = listed.iter().map(|one| one.id).collect();
    let (first, rest) = ids.split_at(20);
    let mut found = spool.open_listed(first).unwrap().0;
    found.extend(spool.open_listed(rest).unwrap().0);
    assert!(found.len() == 39 && found.iter().zip(&all).all(|(one, whole)| same(one, whole)));
    assert!(ids.iter().all(|id| spool.read(*id).unwrap().id == *id));
    assert!(spool.open_listed(&[QueueId(40)]).is_err() && spool.recover_listed(false).is_err());
}

#[test]
fn outcomes_of_what_was_opened_late_are_kept_behind_those_before() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let mut spool = opened(dir.path());
    spool.recover_listed(false).unwrap();
    for id in [3, 9] {
        spool.open_listed(&[QueueId(id)]).unwrap();
        spool.submit(vec![outcome(id, 0, delivered())]).unwrap();
    }
    // A report, as failures bring them.
    spool.submit(vec![Entry::Accept(message(50)), outcome(9, 1, delivered())]).unwrap();
    drop(spool);
    let (spool, found) = recovered(dir.path());
    drop(spool);
    let states = |id: u64| &found.iter().find(|one| one.message.id.0 == id).unwrap().recipients;
    assert!(states(3)[0].settled && states(3)[1].attempt_count == 1 && !states(3)[1].settled);
    assert!(states(9).iter().all(|state| state.settled) && found.len() == 40);

    // And once more, over rounds that were numbered by the clock.
    let mut spool = opened(dir.path());
    spool.recover_listed(false).unwrap();
    spool.open_listed(&[QueueId(3)]).unwrap();
    spool.submit(vec![outcome(3, 1, deferred())]).unwrap();
    drop(spool);
    let (_spool, found) = recovered(dir.path());
    assert_eq!(found.iter().find(|one| one.message.id.0 == 3).unwrap().recipients[1].attempt_count, 2);
}

#[test]
fn an_envelope_is_not_looked_into_before_its_turn() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    fs::write(envelope_file(dir.path(), 11), "nothing of ours\n").unwrap();
    let mut spool = opened(dir.path());
    let (listed, report) = spool.recover_listed(true).unwrap();
    assert!(report.corrupt.is_empty() && listed.iter().any(|one| one.id.0 == 11));
    let (found, report) = spool.open_listed(&[QueueId(11), QueueId(12)]).unwrap();
    assert!(found.len() == 1 && report.corrupt[0].contains("wrong checksum"), "{report:?}");
}
