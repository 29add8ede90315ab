//! Measures the history: `measure write DIR COUNT` stores relayed messages, and `measure query DIR COUNT LOOKUPS` looks some of them up.
//! The variable `RATE` is the number of messages in a second of the simulated clock (200): files are written and synced by time.
//! The numbers are in docs/results/history.md.

use history::{Addresses, DiskFolder, Key, Query, Reader, Settings, Store};
use mail::{Enhanced, QueueId};
use report::{
    Event, Sink as _, UnixMicros,
    event::{Accepted, Attempted, Status},
};
use rustix::time::{ClockId, clock_gettime};
use std::{
    collections::BTreeSet,
    path::Path,
    sync::LazyLock,
    time::{Duration, Instant},
};

/// 2026-11-21 06:25:54 UTC, in microseconds.
const BEGIN: u64 = 1_795_242_354_000_000;
/// Messages in a second: with 200, ten million are 14 hours.
static RATE: LazyLock<u64> = LazyLock::new(|| {
    let rate = std::env::var("RATE").map_or(Ok(200), |text| text.parse());
    rate.expect("RATE is a number of messages").clamp(10, 1_000_000)
});
/// Messages whose texts are made before they are stored, so that the making is not measured.
const BATCH: u64 = 10_000;

/// Returns the time between two messages, in microseconds.
fn interval_us() -> u64 {
    1_000_000 / *RATE
}

/// Returns the number of messages between two calls of `flush`: ten calls in a second.
fn messages_per_flush() -> u64 {
    *RATE / 10
}

/// A message, the same for each number.
struct Message {
    id: QueueId,
    at: UnixMicros,
    sender: String,
    recipient: String,
    origin: String,
    message_id: String,
    relay: String,
    reply: String,
    number: u64,
}

impl Message {
    fn new(number: u64) -> Self {
        let random = |salt: u64| mixed(number.wrapping_mul(64).wrapping_add(salt));
        // Few write much: the square of a random number.
        let skewed = |salt: u64, count: u64| {
            let part = random(salt) % 1_000_000;
            part * part / 1_000_000 * count / 1_000_000
        };
        let at = BEGIN + number * interval_us() + random(0) % interval_us();
        let (sender, recipient) = (skewed(1, 1_000_000), skewed(2, 3_000_000));
        let (domain, own) = (mixed(recipient) % 20_000, mixed(sender) % 3000);
        let client = skewed(3, 50_000);
        Self {
            id: QueueId(((at / 1000 - 1_704_067_200_000) * 1000 + at % 1000) << 12),
            at: UnixMicros(at),
            sender: format!("{}.{}@firm{own}.example", name(sender), sender % 1000),
            recipient: format!("{}.{}@site{domain}.example", name(recipient), recipient % 1000),
            origin: format!(
                "client=[10.{}.{}.{}] helo=mail{client}.firm.example proto=ESMTPS",
                client >> 16,
                client >> 8 & 255,
                client & 255
            ),
            // 40 bytes, of which 26 are random.
            message_id: format!("<{}{}@mail.example>", text(random(4)), text(random(5))),
            relay: format!(
                "mx{}.site{domain}.example[192.0.{}.{}]:25",
                domain % 2,
                domain >> 8 & 255,
                domain & 255
            ),
            reply: format!("250 2.0.0 Ok: queued as {}", &text(random(6))[..11]),
            number,
        }
    }

    fn write(&self, store: &mut Store<DiskFolder>) {
        store.write(
            self.at,
            &Event::Accepted(Accepted {
                id: self.id,
                from: &self.sender,
                recipient_count: 1,
                size_bytes: 2000 + self.number % 9000,
                origin: &self.origin,
                message_id: &self.message_id,
                login: None,
                requires_tls: false,
                release: None,
                deliver_by: None,
                priority: None,
            }),
        );
        let sent = UnixMicros(self.at.0 + 3000);
        store.write(
            sent,
            &Event::Attempt(Attempted {
                id: self.id,
                from: &self.sender,
                to: &self.recipient,
                status: Status::Sent,
                dsn: Enhanced(2, 0, 0),
                relay: &self.relay,
                tls: "TLSv1.3:TLS_AES_256_GCM_SHA384:verified",
                reply: &self.reply,
                age_ms: 3 + self.number % 50,
                queued_ms: self.number % 3,
                setup_ms: self.number % 30,
                transfer_ms: 2 + self.number % 20,
                index: Some(0),
            }),
        );
        store.write(UnixMicros(sent.0 + 100), &Event::Completed(self.id));
    }
}

fn mixed(number: u64) -> u64 {
    let mut word = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

fn name(number: u64) -> &'static str {
    const NAMES: [&str; 16] = [
        "anna", "ben", "carla", "david", "emma", "frank", "greta", "hugo", "ida", "jonas", "klara", "leo",
        "mia", "nils", "olga", "paul",
    ];
    NAMES[(mixed(number) % 16) as usize]
}

/// Returns 13 characters.
fn text(number: u64) -> String {
    QueueId(number).to_string()
}

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

fn write(dir: &Path, count: u64) {
    let flush = messages_per_flush();
    let settings =
        Settings { keep: Duration::from_secs(30 * 86_400), max_bytes: 16 << 30, addresses: Addresses::Full };
    let folder = DiskFolder::make(dir).expect("the folder can be made");
    let clock = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(BEGIN));
    let own_clock = clock.clone();
    let now = move || UnixMicros(own_clock.load(std::sync::atomic::Ordering::Relaxed));
    let mut store = Store::open(folder, settings, Box::new(now), Box::new(|| [7; 32])).expect("a new store");
    let (mut used, mut longest, mut longest_cpu) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let (mut count_above_20, mut count_above_100) = (0, 0);
    for batch in 0..count.div_ceil(BATCH) {
        let messages: Vec<Message> =
            (batch * BATCH..count.min((batch + 1) * BATCH)).map(Message::new).collect();
        let before = cpu(ClockId::ProcessCPUTime);
        let mut begun_cpu = cpu(ClockId::ThreadCPUTime);
        for part in messages.chunks(flush as usize) {
            let begun = Instant::now();
            part.iter().for_each(|message| message.write(&mut store));
            clock.store(part[part.len() - 1].at.0, std::sync::atomic::Ordering::Relaxed);
            store.flush();
            // The other work of the machine is in the first, and not in the second.
            let elapsed = begun.elapsed();
            longest = longest.max(elapsed);
            let ended_cpu = cpu(ClockId::ThreadCPUTime);
            longest_cpu = longest_cpu.max(ended_cpu - begun_cpu);
            begun_cpu = ended_cpu;
            count_above_20 += u32::from(elapsed > Duration::from_millis(20));
            count_above_100 += u32::from(elapsed > Duration::from_millis(100));
        }
        used += cpu(ClockId::ProcessCPUTime) - before;
    }
    let before = cpu(ClockId::ProcessCPUTime);
    let lost = report::Sink::lost_count(&store);
    drop(store);
    used += cpu(ClockId::ProcessCPUTime) - before;
    let sizes = std::fs::read_dir(dir).expect("the folder is there").flatten();
    let bytes: u64 = sizes.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum();
    println!("{count} messages, {lost} events lost");
    println!("{:.1} bytes each, {bytes} together", bytes as f64 / count as f64);
    println!("{:.2} us of CPU each", used.as_secs_f64() * 1e6 / count as f64);
    println!("{:.1} ms: the longest time for {flush} messages", longest.as_secs_f64() * 1e3);
    println!("{:.1} ms: the most CPU for {flush} messages", longest_cpu.as_secs_f64() * 1e3);
    println!("{count_above_20} of {} times above 20 ms, {count_above_100} above 100 ms", count / flush);
    println!("{} KiB of memory at most", peak_kib());
}

/// A kind of look-up: its name, and the key of a message.
type Lookup = (&'static str, fn(&Message) -> Key);

const LOOKUPS: [Lookup; 8] = [
    ("id", |m| Key::Id(m.id)),
    ("Message-ID", |m| Key::MessageId(m.message_id.clone())),
    ("sender", |m| Key::Sender(m.sender.clone())),
    ("recipient", |m| Key::Recipient(m.recipient.clone())),
    ("domain", |m| Key::Domain(m.recipient.split('@').nth(1).unwrap_or_default().to_owned())),
    ("client", |m| Key::Client(m.origin[8..m.origin.find(']').unwrap_or(8)].parse().expect("an address"))),
    ("relay", |m| Key::Relay(m.relay.clone())),
    ("nobody", |m| Key::Recipient(format!("{}@nowhere.example", m.number))),
];

fn query(dir: &Path, count: u64, lookups: u64) {
    println!("key          p50 ms  p95 ms  max ms  found  opened p95 ms");
    for (name, key) in LOOKUPS {
        let (mut whole, mut alone, mut found) = (Vec::new(), Vec::new(), 0);
        for number in 0..lookups {
            let message = Message::new(mixed(number) % count);
            let begun = Instant::now();
            let reader = Reader::open(&DiskFolder::new(dir)).expect("a history");
            let opened = begun.elapsed();
            let page = reader.query(&Query::new(vec![key(&message)], 50));
            whole.push(begun.elapsed());
            alone.push(begun.elapsed() - opened);
            assert!(
                page.problems.is_empty() && (name == "nobody") == page.entries.is_empty(),
                "{name} {number}"
            );
            found += page.entries.len();
        }
        whole.sort_unstable();
        alone.sort_unstable();
        let ms =
            |times: &[Duration], percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e3;
        println!(
            "{name:<12} {:>6.2}  {:>6.2}  {:>6.2}  {:>5.1}  {:>6.2}",
            ms(&whole, 50),
            ms(&whole, 95),
            ms(&whole, 100),
            found as f64 / lookups as f64,
            ms(&alone, 95)
        );
    }
    let reader = Reader::open(&DiskFolder::new(dir)).expect("a history");
    let begun = Instant::now();
    let events: usize = (0..lookups)
        .map(|number| reader.timeline(Message::new(mixed(number) % count).id, &mut BTreeSet::new()).len())
        .sum();
    println!(
        "{:.2} ms for a timeline on average, {events} events",
        begun.elapsed().as_secs_f64() * 1e3 / lookups as f64
    );
    println!("{} KiB of memory at most", peak_kib());
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse().expect("a number");
    match words[..] {
        ["write", dir, count] => write(Path::new(dir), number(count)),
        ["query", dir, count, lookups] => query(Path::new(dir), number(count), number(lookups)),
        _ => eprintln!("measure write DIR COUNT | measure query DIR COUNT LOOKUPS"),
    }
}
