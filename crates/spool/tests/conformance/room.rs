//! Full spools.

use super::*;

#[test]
fn a_full_spool_refuses_mail_and_takes_outcomes() {
    durable_backends(|backend, dir| {
        let (spool, _, _) = backend.open_with(dir, 5 * 256 * 1024);
        let big = |id| Entry::Accept(message(id, 1, Content::from_bytes(vec![b'x'; 20_000])));
        let mut accepted = 0;
        let refused = loop {
            match spool.submit(vec![big(accepted + 1)]) {
                Ok(commit_seq) => block_on(spool.durable(commit_seq)).unwrap(),
                Err(refused) => break refused,
            }
            accepted += 1;
        };
        assert_eq!(refused, Refused::Full);
        // What is left is too little for one more.
        assert!(spool.pressure().free_bytes < 32 * 1024);
        assert!(accepted >= 20, "{accepted}");
        for id in 1..=accepted {
            commit(
                &*spool,
                vec![Entry::Outcome { id: QueueId(id), results: vec![delivered(0)], last: true }],
            );
        }
        // What is given back is prepared by a thread: until then the refusal stands.
        while spool.submit(vec![big(1000)]) == Err(Refused::Full) {
            std::thread::yield_now();
        }
    });
}

#[test]
fn transfers_that_break_off_take_no_room() {
    durable_backends(|backend, dir| {
        let (spool, _, _) = backend.open_with(dir, 8 * 256 * 1024);
        for _ in 0..400 {
            let chunk_id = soon("no room for a chunk", || spool.store(Bytes::from(vec![b'x'; 20_000])).ok());
            spool.discard_chunks(&[chunk_id]);
        }
    });
}

#[test]
fn what_broke_off_with_the_process_takes_no_room_after_a_start() {
    durable_backends(|backend, dir| {
        let chunk = || Bytes::from(vec![b'x'; 20_000]);
        let (spool, _, _) = backend.open_with(dir, 8 * 256 * 1024);
        soon("the spool is never full", || match spool.store(chunk()) {
            Err(Refused::Full) => Some(()),
            Ok(_) | Err(_) => None,
        });
        drop(spool);
        let (spool, _, _) = backend.open_with(dir, 8 * 256 * 1024);
        soon("no room for a chunk", || spool.store(chunk()).ok());
    });
}

/// A log of ten segments, full of mail; gives how many messages.
fn full_log(dir: &Path) -> (Box<dyn Spool>, u64) {
    let (spool, _, _) = Backend::Log.open_with(dir, 10 * 256 * 1024);
    let mut accepted = 0;
    soon("the log is never full", || match spool.submit(vec![Entry::Accept(filling(accepted + 1))]) {
        Ok(commit_seq) => {
            accepted += 1;
            block_on(spool.durable(commit_seq)).unwrap();
            None
        }
        Err(Refused::Full) => Some(()),
        Err(_) => None,
    });
    (spool, accepted)
}

fn filling(id: u64) -> SharedMessage {
    message(id, 1, Content::from_bytes(vec![b'x'; 10_000]))
}

#[test]
fn a_full_log_of_which_much_has_left_takes_mail_though_its_oldest_message_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, accepted) = full_log(dir.path());
    for id in (2..=accepted).filter(|id| id % 5 < 3) {
        commit(&*spool, vec![Entry::Outcome { id: QueueId(id), results: vec![delivered(0)], last: true }]);
    }
    soon("what has left makes no room", || spool.submit(vec![Entry::Accept(filling(1000))]).ok());
    for id in (1..=accepted).filter(|id| *id == 1 || id % 5 >= 3) {
        assert_eq!(spool.read(QueueId(id)).unwrap().content, filling(id).content);
    }
}

#[test]
fn a_full_log_notes_what_ended_and_not_what_was_deferred() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, _) = full_log(dir.path());
    let outcome = |result| vec![Entry::Outcome { id: QueueId(2), results: vec![result], last: false }];
    assert_eq!(spool.submit(outcome(deferred(0))), Err(Refused::Full));
    commit(&*spool, outcome(delivered(0)));
}

#[test]
fn mail_that_was_in_the_line_when_the_log_became_full_leaves_room_for_outcomes() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, _, _) = Backend::Log.open_with(dir.path(), 8 * 256 * 1024);
    let big = |id| Entry::Accept(message(id, 1, Content::from_bytes(vec![b'x'; 100_000])));
    let mut accepted = 0;
    soon("the log is never full", || match spool.submit(vec![big(accepted + 1)]) {
        Ok(commit_seq) => {
            accepted += 1;
            drop(spool.durable(commit_seq));
            None
        }
        Err(Refused::Full) => Some(()),
        Err(_) => None,
    });
    for id in 1..=accepted {
        let done = Entry::Outcome { id: QueueId(id), results: vec![delivered(0)], last: true };
        let commit_seq = spool.submit(vec![done]).unwrap();
        drop(spool.durable(commit_seq));
        soon("an outcome is never stored", || spool.poll_durable(commit_seq)).unwrap();
    }
    soon("what is delivered makes no room", || spool.submit(vec![big(1000)]).ok());
}

#[test]
fn a_log_that_waits_for_room_can_be_closed() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, _, _) = Backend::Log.open_with(dir.path(), 5 * 256 * 1024);
    commit(&*spool, vec![Entry::Accept(small(1))]);
    let noted = || Entry::Outcome {
        id: QueueId(1),
        results: vec![(1, Outcome::deferred(Enhanced(4, 2, 1), "x".repeat(60_000)))],
        last: false,
    };
    // No more than the line holds is taken in once the log stands still.
    let mut refused = 0;
    soon("outcomes are never refused", || {
        refused = if spool.submit(vec![noted()]).is_ok() { 0 } else { refused + 1 };
        (refused == 10_000).then_some(())
    });
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(spool);
        let _ = ended.send(());
    });
    end.recv_timeout(std::time::Duration::from_secs(120)).expect("closing ends");
}

#[test]
fn the_room_of_a_log_is_what_the_disk_has_or_its_limit_leaves() {
    const SEGMENT: u64 = 256 * 1024;
    let room = |max_bytes| {
        let dir = tempfile::tempdir().unwrap();
        let (spool, _, _) = Backend::Log.open_with(dir.path(), max_bytes);
        spool.room_bytes()
    };
    assert!(room(0) > 100 * SEGMENT, "{}", room(0));
    let limited = room(20 * SEGMENT);
    assert!((10 * SEGMENT..=21 * SEGMENT).contains(&limited), "{limited}");
}

#[test]
fn a_wait_for_ready_segments_returns_all_that_there_is_room_for() {
    for (max_bytes, ready) in [(0, 3), (2 * 256 * 1024, 1)] {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = LogSpool::open(dir.path(), LogSettings { max_bytes, ..settings() }).unwrap();
        spool.recover(&mut |_| {}).unwrap();
        spool.make_segments_ready();
        let segments = std::fs::read_dir(dir.path()).unwrap().map_while(Result::ok);
        let segments = segments.filter(|entry| entry.file_name().to_string_lossy().ends_with(".seg"));
        // One is in use.
        assert_eq!(segments.count(), ready + 1, "{max_bytes}");
        spool.close();
    }
}

#[test]
fn a_log_that_was_nearly_full_has_all_its_room_again_when_its_mail_has_left() {
    const SEGMENT: u64 = 256 * 1024;
    let dir = tempfile::tempdir().unwrap();
    let (spool, _, _) = Backend::Log.open_with(dir.path(), 30 * SEGMENT);
    let mut next = 1;
    for _ in 0..3 {
        let first = next;
        while spool.room_bytes() > 10 * SEGMENT {
            commit(&*spool, vec![Entry::Accept(filling(next))]);
            next += 1;
        }
        for id in first..next {
            let ended = Entry::Outcome { id: QueueId(id), results: vec![delivered(0)], last: true };
            commit(&*spool, vec![ended]);
        }
        // All but the segment in use, the ready ones and some that are still to be cleaned.
        soon("the room does not come back", || (spool.room_bytes() >= 20 * SEGMENT).then_some(()));
    }
}
