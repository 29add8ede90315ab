//! Delivery options and expansions of a message survive whatever the message survives.

use super::{BACKENDS, commit, deferred, message};
use mail::{
    Content, DeliverBy, DeliverByMode, DeliveryOptions, Expansion, Mailbox, Message, Priority, QueueId,
    RecipientOptions, ReversePath, SharedMessage, UnixMillis,
};
use proptest::{option, prelude::*};
use spool::{ControlOp, Entry, LogSettings, LogSpool, Spool as _, WorkStep, disk::RealDisk};
use std::sync::Arc;

fn mailbox(text: &str) -> Mailbox {
    Mailbox::parse(text, true).unwrap()
}

/// The message with each option, whose last recipient was expanded.
pub(super) fn extended(message: &SharedMessage) -> SharedMessage {
    let mut message = Message::clone(message);
    message.envelope.options = DeliveryOptions {
        login: Some("älice".into()),
        auth: Some(ReversePath::Null),
        requiretls: true,
        deliver_by: Some(DeliverBy { deadline: UnixMillis(5), mode: DeliverByMode::Notify, trace: true }),
        release: Some(UnixMillis(7)),
        priority: Priority::new(9),
    }
    .boxed();
    let (original, through) = (mailbox("list@b.test"), vec![mailbox("all@b.test")]);
    let last = message.envelope.recipients.last_mut().unwrap();
    last.options.get_or_insert_default().expansion = Some(Expansion { original, through });
    Arc::new(message)
}

fn any_options() -> impl Strategy<Value = DeliveryOptions> {
    let auth = prop_oneof![Just(ReversePath::Null), Just(ReversePath::Mailbox(mailbox("\"a b\"@c.test")))];
    let by = (any::<u64>(), any::<(bool, bool)>()).prop_map(|(deadline, (returns, trace))| {
        let mode = if returns { DeliverByMode::Return } else { DeliverByMode::Notify };
        DeliverBy { deadline: UnixMillis(deadline), mode, trace }
    });
    let login = option::of(any::<String>().prop_map(Into::into));
    let release = option::of(any::<u64>().prop_map(UnixMillis));
    let priority = (-9i8..=9).prop_map(Priority::new);
    (login, option::of(auth), any::<bool>(), option::of(by), release, priority).prop_map(
        |(login, auth, requiretls, deliver_by, release, priority)| DeliveryOptions {
            login,
            auth,
            requiretls,
            deliver_by,
            release,
            priority,
        },
    )
}

fn any_message(id: u64) -> impl Strategy<Value = SharedMessage> {
    let address = || "[a-z]{1,9}@[a-z]{1,9}\\.test".prop_map(|text| mailbox(&text));
    let expansion = (address(), prop::collection::vec(address(), 0..4))
        .prop_map(|(original, through)| Expansion { original, through });
    (any_options(), prop::collection::vec(option::of(expansion), 1..5)).prop_map(move |(options, all)| {
        let mut message = Message::clone(&message(id, all.len(), Content::from_bytes("x: y\r\n\r\nz\r\n")));
        message.envelope.options = options.boxed();
        for (recipient, expansion) in message.envelope.recipients.iter_mut().zip(all) {
            recipient.options = RecipientOptions { expansion, ..RecipientOptions::default() }.boxed();
        }
        Arc::new(message)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_options_and_expansions_are_recovered_and_read_as_accepted(one in any_message(1), two in any_message(2)) {
        for backend in BACKENDS {
            let dir = tempfile::tempdir().unwrap();
            let (spool, ..) = backend.open(dir.path());
            commit(&*spool, vec![Entry::Accept(one.clone()), Entry::Accept(two.clone())]);
            prop_assert_eq!(&spool.read(QueueId(1)).unwrap().envelope, &one.envelope);
            commit(&*spool, vec![Entry::Outcome { id: QueueId(2), results: vec![deferred(0)], last: false }]);
            drop(spool);
            let (spool, found, report) = backend.open(dir.path());
            prop_assert!(report.is_complete(), "{:?}", report);
            prop_assert_eq!(found.len(), 2);
            for (found, sent) in found.iter().zip([&one, &two]) {
                prop_assert_eq!(&found.message.envelope, &sent.envelope);
                prop_assert_eq!(&spool.read(sent.id).unwrap().envelope, &sent.envelope);
            }
        }
    }
}

#[test]
fn compaction_keeps_options_and_expansions() {
    let dir = tempfile::tempdir().unwrap();
    let segment_bytes = 64 * 1024;
    let settings = LogSettings { segment_bytes, min_free_bytes: 0, ..LogSettings::default() };
    let open = || {
        let disk = Arc::new(RealDisk::new(dir.path()).unwrap());
        LogSpool::single_stepped(disk, settings.clone()).unwrap()
    };
    let kept = extended(&message(1, 2, Content::from_bytes("x\r\n")));
    let mut spool = open();
    spool.recover(&mut |_| {}).unwrap();
    let commit = |transaction| {
        while spool.step(WorkStep::Prepare) {}
        spool.submit(transaction).unwrap();
        assert!(spool.step(WorkStep::Commit));
    };
    commit(vec![Entry::Accept(kept.clone())]);
    let first = std::fs::read_dir(dir.path()).unwrap().count();
    for id in 2..200 {
        commit(vec![Entry::Accept(message(id, 1, Content::from_bytes(vec![b'x'; 20_000])))]);
        commit(vec![Entry::Control { id: QueueId(id), op: ControlOp::Delete }]);
        while spool.step(WorkStep::Compact) || spool.step(WorkStep::Commit) {}
    }
    // 4 MB went through: without compaction the log has 60 segments.
    let last = std::fs::read_dir(dir.path()).unwrap().count();
    assert!(last < first + 20, "{first} files, then {last}");
    drop(spool);
    let mut found = Vec::new();
    open().recover(&mut |one| found.push(one.message)).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].envelope, kept.envelope);
}
