//! Stores and readers: what was written is found, also in a history that is damaged, full, or in use.

use crate::{Addresses, Entry, Folder, Key, MemoryFolder, Page, Problem, Query, Reader, Settings, Store};
use mail::{Enhanced, QueueId, UnixMillis};
use proptest::prelude::*;
use report::{
    Event, Sink, UnixMicros,
    event::{Accepted, Attempted, Notification, Rejected, Status},
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// 2026-11-21 06:25:54 UTC.
const BEGIN: u64 = 1_795_242_354_000_000;
const DAY: u64 = 86_400_000_000;

/// A clock that a test moves.
#[derive(Clone)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicU64::new(BEGIN)))
    }

    pub(crate) fn now(&self) -> UnixMicros {
        UnixMicros(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn pass(&self, micros: u64) -> UnixMicros {
        UnixMicros(self.0.fetch_add(micros, Ordering::Relaxed) + micros)
    }
}

pub(crate) fn settings(addresses: Addresses) -> Settings {
    Settings { keep: Duration::from_secs(30 * 86_400), max_bytes: 1 << 30, addresses }
}

pub(crate) fn store<F: Folder + Clone>(folder: &F, settings: Settings, clock: &Clock) -> Store<F> {
    let clock = clock.clone();
    let mut number = 0;
    let new_key = move || {
        number += 1;
        [number; 32]
    };
    Store::open(folder.clone(), settings, Box::new(move || clock.now()), Box::new(new_key)).unwrap()
}

/// The id of a message that is accepted at a time.
pub(crate) fn id_at(at: UnixMicros) -> QueueId {
    let ids = mail::IdSource::default();
    ids.next(at.0 / 1000)
}

pub(crate) fn accepted<'a>(id: QueueId, from: &'a str, message_id: &'a str) -> Event<'a> {
    Event::Accepted(Accepted {
        id,
        from,
        recipient_count: 1,
        size_bytes: 1000,
        origin: "client=[192.0.2.7] helo=x.test proto=ESMTP",
        message_id,
        login: Some("ann@a.test"),
        requires_tls: false,
        release: None,
        deliver_by: None,
        priority: None,
    })
}

pub(crate) fn attempt<'a>(
    id: QueueId,
    from: &'a str,
    to: &'a str,
    status: Status,
    reply: &'a str,
) -> Event<'a> {
    Event::Attempt(Attempted {
        id,
        from,
        to,
        status,
        dsn: Enhanced(2, 0, 0),
        relay: "mx.b.test[192.0.2.1]:25",
        tls: "",
        reply,
        age_ms: 100,
        queued_ms: 1,
        setup_ms: 2,
        transfer_ms: 3,
        index: Some(0),
    })
}

/// Relays a message, and lets a second pass.
fn relay(store: &mut Store<MemoryFolder>, clock: &Clock, number: u64) -> QueueId {
    let at = clock.pass(1_000_000);
    let id = id_at(at);
    let (from, to) = (format!("s{}@a.test", number % 10), format!("r{}@b{}.test", number, number % 3));
    store.write(at, &accepted(id, &from, &format!("<{number}@a.test>")));
    store.write(UnixMicros(at.0 + 500), &attempt(id, &from, &to, Status::Sent, "250 2.0.0 Ok"));
    store.write(UnixMicros(at.0 + 600), &Event::Completed(id));
    id
}

pub(crate) fn search(folder: &dyn Folder, keys: Vec<Key>) -> Page {
    Reader::open(folder).unwrap().query(&Query::new(keys, 10_000))
}

pub(crate) fn ids(page: &Page) -> Vec<QueueId> {
    let id = |entry: &Entry| match entry {
        Entry::Message(id, _) => Some(*id),
        Entry::Event(_) => None,
    };
    page.entries.iter().filter_map(id).collect()
}

pub(crate) fn files(folder: &dyn Folder) -> Vec<String> {
    folder.list().unwrap().into_iter().map(|(name, _)| name).collect()
}

/// Fills some blocks.
fn filled(folder: &MemoryFolder, clock: &Clock, count: u64) -> Vec<QueueId> {
    let mut store = store(folder, settings(Addresses::Full), clock);
    (0..count).map(|number| relay(&mut store, clock, number)).collect()
}

#[test]
fn a_message_is_found_by_each_of_its_keys_with_all_its_events() {
    let (folder, clock) = (MemoryFolder::default(), Clock::new());
    let ids_made = filled(&folder, &clock, 1500);
    assert_eq!(files(&folder), ["00000001.events"], "a sealed segment has no plain frames beside it");
    let id = ids_made[1234];
    for (key, count) in [
        (Key::Id(id), 1),
        (Key::MessageId("<1234@a.test>".into()), 1),
        (Key::MessageId("1234@a.test".into()), 1),
        (Key::Recipient("R1234@B1.test".into()), 1),
        (Key::Sender("s4@a.test".into()), 150),
        (Key::Domain("b1.test".into()), 500),
        (Key::Client("192.0.2.7/32".parse().unwrap()), 1500),
        (Key::Login("ann@a.test".into()), 1500),
        (Key::Relay("mx.b.test".into()), 1500),
        (Key::Relay("192.0.2.1".into()), 1500),
        (Key::Recipient("nobody@b1.test".into()), 0),
        (Key::Client("192.0.2.8/32".parse().unwrap()), 0),
    ] {
        let page = search(&folder, vec![key.clone()]);
        assert_eq!((page.entries.len(), page.next), (count, None), "{key:?}");
        assert!(page.problems.is_empty());
        let Some(Entry::Message(found, events)) =
            page.entries.iter().find(|e| matches!(e, Entry::Message(i, _) if *i == id))
        else {
            assert_eq!(count, 0, "{key:?}");
            continue;
        };
        let kinds: Vec<bool> =
            events.iter().map(|stored| matches!(stored.event(), Some(Event::Completed(_)))).collect();
        assert_eq!((*found, kinds), (id, vec![false, false, true]));
    }
    let both = vec![Key::Sender("s4@a.test".into()), Key::Recipient("r1234@b1.test".into())];
    assert_eq!(ids(&search(&folder, both)), [id]);
    let other = vec![Key::Sender("s5@a.test".into()), Key::Recipient("r1234@b1.test".into())];
    assert!(search(&folder, other).entries.is_empty());
    assert_eq!(search(&folder, vec![]).entries.len(), 1500);
}

#[test]
fn events_of_later_days_are_found_by_the_id() {
    let (folder, clock) = (MemoryFolder::default(), Clock::new());
    let mut store = store(&folder, settings(Addresses::Full), &clock);
    let at = clock.now();
    let id = id_at(at);
    store.write(at, &accepted(id, "s@a.test", ""));
    for day in 0..10 {
        let at = clock.pass(DAY / 2);
        store.write(at, &attempt(id, "s@a.test", "r@b.test", Status::Deferred, "450 later"));
        (0..500).for_each(|number| {
            relay(&mut store, &clock, day * 500 + number);
        });
    }
    let bounce = id_at(clock.pass(1000));
    store.write(clock.now(), &Event::Notified { id, notification: bounce, kind: Notification::Failure });
    drop(store);
    assert!(files(&folder).len() > 1, "{:?}", files(&folder));
    let reader = Reader::open(&folder).unwrap();
    let mut problems = BTreeSet::new();
    assert_eq!(reader.timeline(id, &mut problems).len(), 12);
    assert_eq!(reader.timeline(bounce, &mut problems).len(), 1, "the notification names the message");
    assert!(problems.is_empty());
    assert_eq!(ids(&search(&folder, vec![Key::Recipient("r@b.test".into())])), [id], "once");
}

#[test]
fn a_store_in_use_is_read_up_to_the_last_second() {
    let (folder, clock) = (MemoryFolder::default(), Clock::new());
    let mut store = store(&folder, settings(Addresses::Full), &clock);
    assert!(files(&folder).is_empty(), "nothing is written without an event");
    let mut all = Vec::new();
    for number in 0..1000 {
        all.push(relay(&mut store, &clock, number));
        if number % 100 == 0 {
            store.flush();
            let found = search(&folder, vec![Key::Recipient(format!("r{number}@b{}.test", number % 3))]);
            assert_eq!(ids(&found), [*all.last().unwrap()], "{number}");
            assert_eq!(search(&folder, vec![]).entries.len(), all.len());
        }
    }
    clock.pass(5_000_000);
    assert!(!store.flush(), "everything is written and durable");
    let plain = files(&folder).into_iter().filter(|name| name.ends_with(".frames")).count();
    assert!((1..=2).contains(&plain), "{:?}", files(&folder));
    // The process is killed: the next one continues the segment.
    std::mem::forget(store);
    let next = self::store(&folder, settings(Addresses::Full), &clock);
    assert_eq!(search(&folder, vec![]).entries.len(), 1000);
    drop(next);
    assert_eq!(files(&folder), ["00000002.events"], "one segment, sealed");
    let mut found = ids(&search(&folder, vec![]));
    found.reverse();
    assert_eq!(found, all);
}

#[test]
fn pages_have_each_message_once_and_the_newest_first() {
    let (folder, clock) = (MemoryFolder::default(), Clock::new());
    let mut store = store(&folder, settings(Addresses::Full), &clock);
    let mut all: Vec<QueueId> = (0..1500).map(|number| relay(&mut store, &clock, number)).collect();
    // Later events of an earlier message, so that it has matches on several pages.
    store.write(clock.pass(1), &attempt(all[3], "s3@a.test", "x@y.test", Status::Deferred, "450"));
    drop(store);
    let reader = Reader::open(&folder).unwrap();
    let mut query = Query::new(vec![Key::Client("192.0.2.7/32".parse().unwrap())], 7);
    let mut found = Vec::new();
    loop {
        let page = reader.query(&query);
        assert!(page.entries.len() <= 7);
        found.extend(ids(&page));
        query.cursor = page.next;
        if page.next.is_none() {
            break;
        }
    }
    all.reverse();
    assert_eq!(found, all);
    let mut query = Query::new(vec![Key::Sender("s3@a.test".into())], 1);
    assert_eq!(ids(&reader.query(&query)), [all[all.len() - 4]], "its newest event counts");
    (query.from, query.limit) = (UnixMicros(BEGIN + 100_000_000), 1000);
    query.to = UnixMicros(BEGIN + 199_999_999);
    assert_eq!(reader.query(&query).entries.len(), 10);
}

#[test]
fn rejections_and_destinations_are_found_without_a_message() {
    let (folder, clock) = (MemoryFolder::default(), Clock::new());
    let mut store = store(&folder, settings(Addresses::Full), &clock);
    let rejected = Rejected {
        client: "[2001:db8::1]:4000".parse().unwrap(),
        stage: "RCPT",
        login: None,
        from: Some("x@y.test"),
        to: Some("z@w.test"),
        reply: "550 5.7.1 no",
        rule: None,
    };
    store.write(clock.now(), &Event::Rejected(rejected));
    let until = Some(UnixMillis(1));
    let (destination, since) = ("mx:w.test", UnixMillis(0));
    store.write(clock.now(), &Event::Suspended { destination, reason: "refused", until, since });
    store.write(clock.now(), &Event::Connected { client: rejected.client, listener: "mx" });
    drop(store);
    let count = |keys: Vec<Key>| search(&folder, keys).entries.len();
    assert_eq!(count(vec![]), 2, "connections are in the log only");
    assert_eq!(count(vec![Key::Client("2001:db8::1/128".parse().unwrap())]), 1);
    assert_eq!(count(vec![Key::Sender("x@y.test".into()), Key::Recipient("z@w.test".into())]), 1);
    assert_eq!(count(vec![Key::Sender("x@y.test".into()), Key::Recipient("else@w.test".into())]), 0);
    assert_eq!(count(vec![Key::Destination("mx:W.test".into())]), 1);
}

#[test]
fn addresses_are_stored_as_the_mode_says_and_found_nevertheless() {
    for mode in [Addresses::Full, Addresses::Domain, Addresses::Hashed] {
        let (folder, clock) = (MemoryFolder::default(), Clock::new());
        let mut store = store(&folder, settings(mode), &clock);
        let id = id_at(clock.now());
        store.write(clock.now(), &accepted(id, "secret.one@a.test", "<m@a.test>"));
        let reply = "550 <secret.two@b.test>: no such user";
        store.write(
            clock.now(),
            &attempt(id, "secret.one@a.test", "secret.two@b.test", Status::Bounced, reply),
        );
        store.flush();
        let plain = folder.content("00000001.0.frames").unwrap();
        let has_secret = plain.windows(6).any(|window| window == b"secret");
        assert_eq!(has_secret, mode == Addresses::Full, "{mode:?}");
        for is_sealed in [false, true] {
            if is_sealed {
                drop(std::mem::replace(
                    &mut store,
                    self::store(&MemoryFolder::default(), settings(mode), &clock),
                ));
            }
            let page = search(&folder, vec![Key::Recipient("Secret.Two@b.test".into())]);
            let (count, domains) = (page.entries.len(), page.has_domains_only);
            match mode {
                Addresses::Domain => assert_eq!((count, domains), (0, true)),
                Addresses::Full | Addresses::Hashed => assert_eq!((count, domains), (1, false), "{mode:?}"),
            }
            for key in [Key::Domain("b.test".into()), Key::MessageId("m@a.test".into()), Key::Id(id)] {
                assert_eq!(search(&folder, vec![key]).entries.len(), 1, "{mode:?}");
            }
        }
    }
}

#[test]
fn old_segments_are_deleted_and_the_rest_is_found() {
    let (folder, clock) = (MemoryFolder::default(), Clock::new());
    let own = Settings { keep: Duration::from_secs(8 * 86_400), ..settings(Addresses::Full) };
    let mut store = store(&folder, own, &clock);
    let all: Vec<QueueId> = (0..40)
        .map(|number| {
            clock.pass(DAY / 2);
            relay(&mut store, &clock, number)
        })
        .collect();
    drop(store);
    let found = ids(&search(&folder, vec![]));
    // 8 days, and a day more, because segments are deleted as a whole.
    assert!((16..=19).contains(&found.len()), "{}", found.len());
    assert!(found.iter().rev().eq(&all[all.len() - found.len()..]));
    // A start after a long time deletes what is too old, too.
    clock.pass(30 * DAY);
    drop(self::store(&folder, own, &clock));
    assert!(files(&folder).is_empty(), "{:?}", files(&folder));
}

#[test]
fn the_history_stays_within_its_size() {
    let (folder, clock) = (MemoryFolder::default(), Clock::new());
    let own = Settings { max_bytes: 2 << 20, ..settings(Addresses::Full) };
    let mut store = store(&folder, own, &clock);
    let mut random = 1u64;
    for _ in 0..40_000 {
        let at = clock.pass(1000);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        store.write(
            at,
            &accepted(id_at(at), "s@a.test", &format!("<{random:x}.{:x}@a.test>", random.rotate_left(9))),
        );
    }
    store.flush();
    let bytes: u64 = folder.list().unwrap().iter().map(|(_, bytes)| bytes).sum();
    assert!((1 << 20..(2 << 20) + 300_000).contains(&bytes), "{bytes}");
    assert_eq!(store.lost_count(), 0);
}

#[test]
fn a_full_disk_loses_events_that_are_counted_and_nothing_else() {
    let (folder, clock) = (MemoryFolder::default(), Clock::new());
    let mut store = store(&folder, settings(Addresses::Full), &clock);
    let first = relay(&mut store, &clock, 0);
    store.flush();
    folder.set_size(Some(10_000));
    for number in 1..3000 {
        relay(&mut store, &clock, number);
        store.flush();
    }
    assert!(store.lost_count() > 1000, "{}", store.lost_count());
    folder.set_size(None);
    let last = relay(&mut store, &clock, 3000);
    store.flush();
    drop(store);
    let page = search(&folder, vec![]);
    assert!(page.problems.is_empty(), "{:?}", page.problems);
    let found = ids(&page);
    assert_eq!(found.first(), Some(&last));
    let is_kept = found.contains(&first) || found.len() < 3000;
    assert!(is_kept, "{}", found.len());
}

#[test]
fn a_damaged_segment_is_named_and_the_others_are_read() {
    let (folder, clock) = (MemoryFolder::default(), Clock::new());
    let own = Settings { keep: Duration::from_secs(8 * 86_400), ..settings(Addresses::Full) };
    let mut store = store(&folder, own, &clock);
    for number in 0..1600 {
        relay(&mut store, &clock, number);
        if number == 800 {
            clock.pass(2 * DAY);
        }
    }
    drop(store);
    let names = files(&folder);
    assert_eq!(names.len(), 2);
    let (sound, key) =
        (folder.content(&names[0]).unwrap(), vec![Key::Client("192.0.2.7/32".parse().unwrap())]);
    assert_eq!(search(&folder, key.clone()).entries.len(), 1600);
    // The header: nothing of the segment can be read.
    let mut bytes = sound.clone();
    bytes[3] ^= 1;
    folder.put(&names[0], bytes);
    let page = search(&folder, key.clone());
    assert_eq!(page.problems.len(), 1);
    assert!(
        page.problems.iter().any(|problem| problem.to_string().contains(&names[0])),
        "{:?}",
        page.problems
    );
    assert_eq!(page.entries.len(), 799);
    // A block, its header, the trailer: the other blocks are read.
    for place in [200, 70, sound.len() - 10, sound.len() - 100] {
        let mut bytes = sound.clone();
        bytes[place] ^= 1;
        folder.put(&names[0], bytes);
        let page = search(&folder, key.clone());
        assert!(page.entries.len() > 850, "byte {place}: {} {:?}", page.entries.len(), page.problems);
        let is_trailer = place == sound.len() - 10;
        assert_eq!(page.problems.is_empty(), is_trailer, "byte {place}: {:?}", page.problems);
    }
    // A later format.
    let mut bytes = sound;
    bytes[8] = 2;
    let checksum = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
    folder.put(&names[0], bytes);
    let page = search(&folder, key);
    assert_eq!(page.problems, BTreeSet::from([Problem::Unknown { file: names[0].clone(), version: 2 }]));
}

#[test]
fn an_event_whose_time_steps_back_is_found() {
    let (folder, clock) = (MemoryFolder::default(), Clock::new());
    let mut store = store(&folder, settings(Addresses::Full), &clock);
    let early = clock.now();
    let before: Vec<QueueId> = (0..800).map(|number| relay(&mut store, &clock, number)).collect();
    let id = *before.last().unwrap();
    // An hour back; the id is that of before.
    let back = UnixMicros(early.0 - 3_600_000_000);
    store.write(back, &attempt(id, "s@a.test", "late@b.test", Status::Sent, "250"));
    drop(store);
    let mut problems = BTreeSet::new();
    assert_eq!(Reader::open(&folder).unwrap().timeline(id, &mut problems).len(), 4);
    assert_eq!(ids(&search(&folder, vec![Key::Recipient("late@b.test".into())])), [id]);
}

/// A step of a test.
#[derive(Debug, Clone)]
enum Step {
    Relay(u64),
    Pass(u64),
    Flush,
    Restart,
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0u64..50).prop_map(Step::Relay),
        2 => (0u64..2 * DAY).prop_map(Step::Pass),
        2 => Just(Step::Flush),
        1 => Just(Step::Restart),
        1 => Just(Step::Kill),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_was_written_is_found_after_any_restarts(steps in steps()) {
        let (folder, clock) = (MemoryFolder::default(), Clock::new());
        let own = Settings { keep: Duration::from_secs(400 * 86_400), ..settings(Addresses::Full) };
        let mut store = store(&folder, own, &clock);
        // Messages that are safe, and those that a kill may lose.
        let (mut safe, mut unsafe_ones) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Relay(number) => unsafe_ones.push((relay(&mut store, &clock, number), number)),
                Step::Pass(micros) => drop(clock.pass(micros)),
                Step::Flush => {
                    clock.pass(1_000_000);
                    store.flush();
                    safe.append(&mut unsafe_ones);
                }
                Step::Restart => {
                    drop(store);
                    store = self::store(&folder, own, &clock);
                    safe.append(&mut unsafe_ones);
                }
                Step::Kill => {
                    std::mem::forget(store);
                    store = self::store(&folder, own, &clock);
                    unsafe_ones.clear();
                }
            }
        }
        drop(store);
        safe.append(&mut unsafe_ones);
        let reader = Reader::open(&folder).unwrap();
        let mut problems = BTreeSet::new();
        for (id, number) in &safe {
            let events = reader.timeline(*id, &mut problems);
            prop_assert!(events.len() == 3, "{} events of {}", events.len(), id);
            let found = reader.query(&Query::new(vec![Key::Recipient(format!("r{number}@b{}.test", number % 3))], 1000));
            prop_assert!(ids(&found).contains(id));
        }
        let found = ids(&search(&folder, vec![]));
        prop_assert!(problems.is_empty());
        prop_assert!(safe.iter().all(|(id, _)| found.contains(id)));
    }

    #[test]
    fn no_damage_is_more_than_a_problem(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        is_open: bool,
    ) {
        let (folder, clock) = (MemoryFolder::default(), Clock::new());
        let mut store = store(&folder, settings(Addresses::Hashed), &clock);
        let last = (0..900).map(|number| relay(&mut store, &clock, number)).last();
        store.flush();
        if is_open { std::mem::forget(store) } else { drop(store) }
        for name in files(&folder) {
            let mut bytes = folder.content(&name).unwrap();
            for (place, value) in &changes {
                let place = place.index(bytes.len());
                bytes[place] = *value;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            folder.put(&name, bytes);
        }
        let reader = Reader::open(&folder).unwrap();
        let mut problems = BTreeSet::new();
        reader.timeline(last.unwrap(), &mut problems);
        for key in [vec![], vec![Key::Recipient("r7@b1.test".into())], vec![Key::Relay("192.0.2.1".into())]] {
            prop_assert!(reader.query(&Query::new(key, 5000)).entries.len() <= 900);
        }
        // The next start takes it as it is.
        drop(self::store(&folder, settings(Addresses::Hashed), &clock));
    }
}
