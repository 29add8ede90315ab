//! The queue's index with many messages: memory a message, and what each operation costs. Prints a
//! table; `docs/scaling.md` shows one.

use mail::{Destination, Disposition, QueueId};
use queue::{Arrival, ArrivingRecipient, DestinationId, Lease, Millis, Queue, QueueSettings};
use std::{fs, process::ExitCode, time::Instant};

/// Domains that mail goes to, a destination each.
const SITES: u32 = 1000;
/// The longest wait between two attempts, by default.
const RETRY: Millis = 4_000_000;
const MINUTE: Millis = 60_000;

/// Resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or_default() * 4096
}

/// Times `count` operations and prints what each took.
fn timed<T>(what: &str, count: u64, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = work();
    let each = begun.elapsed().as_nanos() as f64 / count.max(1) as f64;
    println!("{what:<44} {count:>12} {each:>9.0} ns");
    result
}

fn main() -> ExitCode {
    match std::env::args().nth(1).map_or(Ok(10_000_000), |text| text.parse()) {
        Ok(count) if count >= 1000 => measure(count),
        _ => {
            eprintln!("usage: scale [MESSAGES]    (at least 1000; 10000000 unless given)");
            return ExitCode::from(64);
        }
    }
    ExitCode::SUCCESS
}

fn measure(count: u64) {
    let mut queue = Queue::new(QueueSettings { connections_max: u32::MAX, ..QueueSettings::default() }, 1, 0);
    let destination = |number| Destination::mx(format!("d{number}.test"), mail::TlsMode::May);
    let destinations: Vec<DestinationId> =
        (0..SITES).map(|number| queue.destination(&destination(number))).collect();
    let before = resident_bytes();
    println!("{:<44} {:>12} {:>12}", "operation", "times", "each");
    timed("insert a message that waits", count, || fill(&mut queue, &destinations, count));
    let bytes = resident_bytes().saturating_sub(before) as f64 / count as f64;
    println!("{:<44} {:>12} {bytes:>9.1} bytes", "memory a message", "");
    let due_count = (count as f64 * MINUTE as f64 * 5.0 / RETRY as f64) as u64;
    let mut now = 0;
    timed("advance 5 minutes, a tenth of a second each", due_count, || {
        while now < 5 * MINUTE {
            now += 100;
            queue.advance(now);
        }
    });
    let leases = timed("take what is due", due_count, || take_all(&mut queue, &destinations, now));
    timed("complete it: half delivered, half deferred", leases.len() as u64, || {
        for (number, lease) in leases.iter().enumerate() {
            let disposition = if number % 2 == 0 { Disposition::Delivered } else { Disposition::Deferred };
            queue.complete(lease.job, &[(0, disposition)], true, now);
        }
    });
    timed("hold one by its id", count / 100, || {
        (1..=count / 100).for_each(|number| _ = queue.hold(QueueId((number * 97) << 8)));
    });
    let left = queue.len() as u64;
    timed("list all, sorted by id", left, || {
        let mut ids = queue.ids();
        ids.sort_unstable();
        assert_eq!(ids.len() as u64, left);
    });
    timed("make all due at once (flush)", left, || queue.flush(now));
    println!("{:<44} {left:>12} messages, {SITES} destinations", "at the end");
}

/// Messages that were tried once and are due again within the longest wait between two attempts.
fn fill(queue: &mut Queue, destinations: &[DestinationId], count: u64) {
    for number in 1..=count {
        let due = (number * 104_729 % RETRY as u64) as Millis;
        let to = destinations[(number * 7919) as usize % destinations.len()];
        let tried = ArrivingRecipient { attempt_count: 1, due: Some(due), ..ArrivingRecipient::new(0, to) };
        let recipients = [tried];
        let id = QueueId(number << 8);
        queue.insert(
            &Arrival {
                id,
                arrived: 0,
                size_bytes: 4096,
                held: false,
                recipients: &recipients,
                schedule: None,
            },
            0,
        );
    }
}

fn take_all(queue: &mut Queue, destinations: &[DestinationId], now: Millis) -> Vec<Lease> {
    while queue.next_connection_request(now).is_some() {}
    destinations
        .iter()
        .flat_map(|destination| {
            std::iter::from_fn(|| queue.lease_next(*destination, now)).collect::<Vec<_>>()
        })
        .collect()
}
