//! The 2002–2005 papers' experiments as commands, and what they found.

use super::{
    Seed,
    read::{before, csv, median, ratio},
};
use std::{fs, ops::Range, path::Path};

/// One command.
pub(super) struct Step {
    pub(super) seed: Seed,
    pub(super) name: &'static str,
    pub(super) words: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    /// The reason why it cannot be run here.
    pub(super) needs: Option<String>,
    pub(super) expects: Vec<Expectation>,
}

/// One figure.
pub(super) struct Expectation {
    pub(super) what: &'static str,
    pub(super) seed: String,
    pub(super) unit: &'static str,
    /// The range of figures that agree with the finding; none where only the machines differ.
    pub(super) agrees: Option<Range<f64>>,
    /// The reason why a figure may not agree.
    pub(super) why: &'static str,
    pub(super) value: Reader,
}

/// Finds a figure in what a command printed.
type Reader = Box<dyn Fn(&str) -> Option<f64>>;

/// Scenarios and their scripts, which a step finds beside its results.
const FILES: [(&str, &str); 5] = [
    ("ceiling.toml", include_str!("../../scenarios/ceiling.toml")),
    ("overload.toml", include_str!("../../scenarios/overload.toml")),
    ("models.toml", include_str!("../../scenarios/models.toml")),
    ("postrider.sh", include_str!("../../scenarios/postrider.sh")),
    ("postfix.sh", include_str!("../../scenarios/postfix.sh")),
];

/// Lays the scenarios where the steps look for them.
pub(super) fn unpack(results: &Path) -> Result<(), String> {
    let directory = results.join("scenarios");
    let say = |e: std::io::Error| format!("write {}: {e}", directory.display());
    fs::create_dir_all(&directory).map_err(say)?;
    FILES.iter().try_for_each(|(name, text)| fs::write(directory.join(name), text).map_err(say))
}

/// All of them, in the 2002–2005 papers' order.
pub(super) fn all(quick: bool, disk: &Path, results: &Path) -> Vec<Step> {
    let make =
        StepFactory { quick, disk: disk.display().to_string(), results: results.display().to_string() };
    let [creation, passes] = make.daemon();
    let mut steps = vec![make.directories(), creation, make.orders(), passes];
    steps.extend([make.syscalls("1"), make.syscalls("10")]);
    steps.extend([make.postmark("disk", disk), make.postmark("memory", Path::new("/dev/shm"))]);
    steps.extend([make.ceiling(), make.relay("postfix"), make.relay("postrider")]);
    steps.extend([make.fsseq(1), make.fsseq(3), make.readwrite(), make.models(), make.net(), make.lookup()]);
    steps.push(make.kv());
    steps
}

pub(super) struct StepFactory {
    quick: bool,
    disk: String,
    results: String,
}

pub(super) fn expect(
    what: &'static str,
    seed: &str,
    agrees: Range<f64>,
    why: &'static str,
    value: impl Fn(&str) -> Option<f64> + 'static,
) -> Expectation {
    Expectation {
        what,
        seed: format!("{seed}×"),
        unit: "×",
        agrees: Some(agrees),
        why,
        value: Box::new(value),
    }
}

/// A figure of today's beside one of another age: there is nothing to agree on.
pub(super) fn beside(
    what: &'static str,
    seed: &str,
    value: impl Fn(&str) -> Option<f64> + 'static,
) -> Expectation {
    Expectation { what, seed: seed.into(), unit: "", agrees: None, why: "", value: Box::new(value) }
}

impl StepFactory {
    pub(super) fn step(
        &self,
        seed: Seed,
        name: &'static str,
        quick: &str,
        full: &str,
        expects: Vec<Expectation>,
    ) -> Step {
        let words = if self.quick { quick } else { full };
        let words = words.split_whitespace().map(|word| word.replace("DISK", &self.disk)).collect();
        Step { seed, name, words, env: Vec::new(), needs: None, expects }
    }

    fn directories(&self) -> Step {
        let shared = "the file system shares one journal commit among senders, where UFS did not";
        self.step(
            Seed::S0,
            "queuedirs",
            // No fewer: the points in the second column have so many.
            "queuedirs -m 500 --rounds 1 DISK",
            "queuedirs -m 10000 --rounds 3 --slope DISK",
            vec![
                expect(
                    "10 senders, 1 directory: time of a message, to 1 sender",
                    "49.4",
                    20.0..100.0,
                    shared,
                    |t| ratio(t, &["10", "1"], &["1", "1"], 2),
                ),
                expect("the same as a rate", "0.2", 0.0..0.5, shared, |t| {
                    ratio(t, &["10", "1"], &["1", "1"], 0)
                }),
                expect("10 senders: 5 directories to 1, rate", "4.8", 2.0..10.0, shared, |t| {
                    ratio(t, &["10", "5"], &["10", "1"], 0)
                }),
                expect("10 senders: 10 directories to 5, rate", "1.2", 0.9..1.5, shared, |t| {
                    ratio(t, &["10", "10"], &["10", "5"], 0)
                }),
                expect("10 senders: 20 directories to 10, rate", "1.0", 0.85..1.15, shared, |t| {
                    ratio(t, &["10", "20"], &["10", "10"], 0)
                }),
            ],
        )
    }

    fn orders(&self) -> Step {
        let why = "what a file costs to open has changed against what it costs to list";
        let order = |what, name: &'static str, seed: &str, agrees| {
            expect(what, seed, agrees, why, move |t: &str| ratio(t, &[name], &["priority"], 2))
        };
        self.step(
            Seed::S1,
            "queuerun",
            "queuerun -m 10000 --rounds 5 DISK",
            "queuerun -m 30000 --rounds 10 DISK",
            vec![
                order("filename, to priority", "filename", "0.36", 0.1..0.6),
                order("host, to priority", "host", "1.06", 0.9..1.3),
                order("modification, to priority", "modification", "0.33", 0.1..0.6),
                order("random, to priority", "random", "0.33", 0.1..0.6),
                order("time, to priority", "time", "1.00", 0.85..1.15),
                beside("priority, ms for 30,000", "461", |t| median(t, &["priority"], 2)),
            ],
        )
    }

    fn syscalls(&self, senders: &'static str) -> Step {
        let quick = format!("syscalls --csv -- postlab queuedirs -q 1 -s {senders} -m 100 --rounds 1 DISK");
        let full = format!("syscalls --csv -- postlab queuedirs -q 1 -s {senders} -m 5000 --rounds 1 DISK");
        let (name, what, seed) = match senders {
            "1" => ("syscalls-1", "1 sender: average fsync, µs", "1000"),
            _ => ("syscalls-10", "10 senders: average fsync, µs (19 times as long in the seed)", "19000"),
        };
        let mut step = self.step(
            Seed::S2,
            name,
            &quick,
            &full,
            vec![beside(what, seed, |t| csv(t, "command,fsync,", 4))],
        );
        // What is watched is this program too.
        if let Ok(path) = std::env::current_exe() {
            step.words.iter_mut().filter(|w| *w == "postlab").for_each(|w| *w = path.display().to_string());
        }
        step
    }

    fn postmark(&self, place: &'static str, path: &Path) -> Step {
        let (name, seed) = match place {
            "disk" => ("postmark-disk", "72 to 149"),
            _ => ("postmark-memory", "490 to 980"),
        };
        let what =
            if place == "disk" { "PostMark 1, transactions/s on disk" } else { "PostMark 1, in memory" };
        let mut step = self.step(
            Seed::S3,
            name,
            "",
            "",
            vec![beside(what, seed, |t| t.split_whitespace().nth(2)?.parse().ok())],
        );
        let transactions = if self.quick { "transactions 10000" } else { "transactions 50000" };
        let location = format!("location {}", path.display());
        let words = [
            "postmark",
            "--preset",
            "t1",
            "--set",
            transactions,
            "--set",
            &location,
            "--set",
            "report terse",
            "--run",
        ];
        step.words = words.map(str::to_owned).to_vec();
        step.needs = (!path.is_dir()).then(|| format!("there is no {}", path.display()));
        step
    }

    fn scenario(&self, name: &str, quick: &str, full: &str) -> String {
        let arguments = if self.quick { quick } else { full };
        format!("run scenarios/{name}.toml --results {}/runs {arguments}", self.results)
    }

    fn ceiling(&self) -> Step {
        let words = self.scenario("ceiling", "--repeats 2 --messages 5000", "");
        self.step(
            Seed::S3,
            "ceiling",
            &words,
            &words,
            vec![
                beside("source into sink, 1 session, messages/s", "5.00", |t| {
                    median(t, &["1", "ceiling"], 0)
                }),
                beside("source into sink, 100 sessions", "208", |t| median(t, &["100", "ceiling"], 0)),
            ],
        )
    }

    fn relay(&self, mta: &'static str) -> Step {
        let words = self.scenario(
            "overload",
            "--repeats 1 --messages 500 --sessions 50",
            "--sessions 10,50,100,1000",
        );
        let (name, what, seed) = match mta {
            "postfix" => ("relay-postfix", "Postfix, share of its ceiling, %", "27"),
            _ => ("relay-postrider", "Postrider, share of its ceiling, % (Postfix in the seed)", "27"),
        };
        let mut step = self.step(
            Seed::S3,
            name,
            &words,
            &words,
            vec![beside(what, seed, |t| before(t.split_once("50 sessions, relay:")?.1, " % of its ceiling"))],
        );
        step.env = vec![("MTA".into(), mta.into())];
        let is_there = match mta {
            "postrider" => has_postrider(),
            _ => Path::new("/usr/sbin/postfix").exists() && rustix::process::geteuid().is_root(),
        };
        step.needs = (!is_there).then(|| format!("{mta} is not installed, or we are not root"));
        step
    }

    fn fsseq(&self, which: u8) -> Step {
        let why = "an honest disk gains at least 20 times; less is a sync that waits for nothing, or a busy machine";
        match which {
            1 => self.step(
                Seed::S4,
                "fsseq1",
                "fsseq1 -C 100,1 --limit 2 --rounds 2 DISK",
                "fsseq1 --limit 60 DISK",
                vec![expect("fsseq1: 100 lines a sync to 1", "38 to 103", 20.0..150.0, why, |t| {
                    before(t, " times C=1\n")
                })],
            ),
            _ => self.step(
                Seed::S4,
                "fsseq3",
                "fsseq3 -C 100,1 -s 512,4096 --limit 2 --rounds 2 DISK",
                "fsseq3 --limit 30 DISK",
                vec![expect(
                    "fsseq3, 512 octets: 100 records a sync to 1",
                    "13 to 116",
                    13.0..150.0,
                    why,
                    |t| before(t, " times C=1\n"),
                )],
            ),
        }
    }

    fn readwrite(&self) -> Step {
        self.step(
            Seed::S4,
            "readwrite",
            "readwrite -s -f 20 -p 10 --rounds 2 DISK",
            "readwrite -s -f 100 -p 10 DISK",
            vec![beside("t-readwrite, 10 writers that sync: files/s", "45 to 71", |t| {
                median(t, &["files", "a", "second:"], 0)
            })],
        )
    }

    fn models(&self) -> Step {
        let words = self.scenario("models", "--repeats 1 --messages 2000", "");
        let why = "the 2002–2005 papers' machines differed among each other by as much";
        let model = |what, name: &'static str, seed: &str| {
            expect(what, seed, 0.3..3.0, why, move |t: &str| {
                ratio(t, &["50", "ceiling,", name], &["50", "ceiling,", "event"], 0)
            })
        };
        self.step(
            Seed::S4,
            "models",
            &words,
            &words,
            vec![
                model("sinks: a thread a connection to event, 1 KB", "thread", "0.5"),
                model("sinks: pool of threads to event", "pool", "1.05"),
                model("sinks: tasks to event (state threads in the seed)", "async", "0.64"),
            ],
        )
    }

    fn net(&self) -> Step {
        let why = "TCP on the loopback has lost most of what it cost more";
        self.step(
            Seed::S4,
            "net",
            "ipc -R 5000 -c 32,1024 --rounds 2",
            "ipc",
            vec![
                expect("t-net-0, 32 octets: LOCAL to INET", "1.5", 1.1..3.0, why, |t| {
                    ratio(t, &["LOCAL", "32"], &["INET", "32"], 0)
                }),
                expect("t-net-0, 1024 octets: LOCAL to INET", "1.04", 0.8..1.3, why, |t| {
                    ratio(t, &["LOCAL", "1024"], &["INET", "1024"], 0)
                }),
            ],
        )
    }

    fn lookup(&self) -> Step {
        self.step(
            Seed::S4,
            "lookup",
            "map-lookup -m 20000 --rounds 2 DISK",
            "map-lookup DISK",
            vec![expect(
                "lookup: in process to over TCP, one at a time",
                "100",
                30.0..300.0,
                "a wake-up takes less of the machine, or two cores take it on",
                |t| ratio(t, &["hash", "map"], &["TCP", "socket"], 0),
            )],
        )
    }

    fn kv(&self) -> Step {
        self.step(
            Seed::S4,
            "kv",
            "kv -n 20000 -T 20000,100 --limit 2 --rounds 2 DISK",
            "kv DISK",
            vec![
                beside("a B-tree, synced every 100, records/s (Berkeley DB; SQLite here)", "1417", |t| {
                    median(t, &["sqlite", "100"], 3)
                }),
                beside("a log, synced every 100 (DB Queue; ours here)", "1455", |t| {
                    median(t, &["log", "100"], 3)
                }),
            ],
        )
    }
}

pub(super) fn has_postrider() -> bool {
    std::env::var_os("POSTRIDER").is_some() || on_path("postrider")
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
