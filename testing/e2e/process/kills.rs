//! SIGKILL for every process at random while mail of all kinds is on its way, and a list of the test's own: what was acknowledged is
//! delivered or returned, whole, and no more often than the kills explain.
//!
//! `POSTRIDER_TEST_ROUNDS` and `POSTRIDER_TEST_SEED` make it longer and different.

use super::{DAEMON, helpers_of, open_dir};
use crate::common::{BINARY, Postrider, client::Client, free_address, sink::Sink, until};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::{HashMap, HashSet},
    fs::{self, Permissions},
    io::{self, Write as _},
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    sync::{Mutex, mpsc},
};

const SESSIONS: u64 = 4;

/// A generator of random numbers that is always the same for a seed.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }
}

/// Where mail can end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    /// A Maildir that the daemon writes.
    Maildir,
    /// An mbox, which a writer of the helper appends to.
    Mbox,
    /// The mbox of an alias.
    Archive,
    /// The standard input of a program.
    Program,
    /// Another server.
    NextHop,
    /// It failed, and the sender has a notification.
    Sender,
}

/// The recipients of a message, and the places where it must be.
fn recipients(name: &str, random: &mut Random) -> (Vec<String>, Vec<Place>) {
    use Place::{Archive, Maildir, Mbox, NextHop, Program, Sender};
    let (to, places): (&[&str], &[Place]) = match random.below(8) {
        0 => (&["joe@mx.test"], &[Maildir]),
        1 => (&["box@box.test"], &[Mbox]),
        2 => (&["x@pipe.test"], &[Program]),
        3 => (&["list@mx.test"], &[Maildir, Archive, Program]),
        4 => (&["NAME@far.test"], &[NextHop]),
        5 => (&["no-NAME@far.test"], &[Sender]),
        6 => (&["later-NAME@far.test"], &[NextHop]),
        _ => (&["joe@mx.test", "box@box.test", "NAME@far.test"], &[Maildir, Mbox, NextHop]),
    };
    (to.iter().map(|to| to.replace("NAME", name)).collect(), places.to_vec())
}

fn content(name: &str) -> String {
    let lines = name.bytes().map(usize::from).sum::<usize>() % 900;
    format!("Subject: {name}\r\n\r\n{}end of {name}\r\n", "0123456789\r\n".repeat(lines))
}

/// Returns the name of a message that is whole.
fn whole(text: &str) -> Option<String> {
    let text = text.replace("\r\n", "\n");
    let name = text.split_once("Subject: ")?.1.lines().next()?.to_owned();
    let body = content(&name).replace("\r\n", "\n");
    text.ends_with(body.split_once("\n\n")?.1).then_some(name)
}

/// What was acknowledged.
struct Entry {
    name: String,
    round: u64,
    places: Vec<Place>,
}

struct World {
    daemon: Option<Postrider>,
    sink: Sink,
    address: SocketAddr,
    config: String,
    acknowledged: Vec<Entry>,
    /// Kills of each round, and whether the queue was empty before the last of them.
    rounds: Vec<(u64, bool)>,
}

impl World {
    fn new() -> Self {
        let dir = open_dir();
        let at = dir.path().display().to_string();
        for (folder, mode) in [("boxes", 0o777), ("out", 0o777)] {
            fs::create_dir(dir.path().join(folder)).unwrap();
            fs::set_permissions(dir.path().join(folder), Permissions::from_mode(mode)).unwrap();
        }
        let script = format!(
            "#!/bin/sh\nf=$(mktemp {at}/out/tmp.XXXXXX) && cat >$f && sleep 0.02 && chmod 644 $f && mv $f {at}/out/$QUEUE_ID.$$ || exit 75\n"
        );
        fs::write(dir.path().join("program"), script).unwrap();
        fs::set_permissions(dir.path().join("program"), Permissions::from_mode(0o755)).unwrap();
        let aliases = format!("list: \\joe, {at}/boxes/archive, \"|{at}/program\"\n");
        fs::write(dir.path().join("aliases"), aliases).unwrap();
        let deferred = Mutex::new(HashSet::new());
        let sink = Sink::with(move |command| {
            let recipient = command.strip_prefix("RCPT TO:<")?;
            if recipient.starts_with("no-") {
                return Some("550 5.1.1 no such user".to_owned());
            }
            let is_first =
                recipient.starts_with("later-") && deferred.lock().unwrap().insert(command.to_owned());
            is_first.then(|| "450 4.2.1 later".to_owned())
        });
        let is_root = rustix::process::geteuid().is_root();
        let [process, user, program_user] = if is_root {
            [
                &format!("[process]\nuser = \"{DAEMON}\"\n"),
                "user = \"nobody\"\n",
                "program_user = \"nobody\"\n",
            ]
        } else {
            [""; 3]
        };
        let pipe_user = if is_root { ", user = \"nobody\"" } else { "" };
        let config = format!(
            "{process}[queue]\nretry_min = \"1s\"\nretry_max = \"1s\"\n\
             [local]\ndomains = [\"mx.test\"]\nusers = [\"joe\", \"ann\"]\n\
             [addresses]\naliases = [\"aliases:aliases\"]\nprograms = [\"{at}/program\"]\nfiles = [\"{at}/boxes/archive\"]\n{program_user}\
             [[route]]\nname = \"boxes\"\ndomains = [\"box.test\"]\nmbox = \"{at}/boxes/{{local}}\"\n{user}\
             [[route]]\nname = \"pipe\"\ndomains = [\"pipe.test\"]\npipe = {{ argv = [\"{at}/program\"]{pipe_user} }}\n\
             [[route]]\ndomains = [\"far.test\"]\nsmarthost = \"{}\"\ntls = \"off\"\n",
            sink.address
        );
        let address = free_address();
        let daemon = Some(Postrider::start_in(dir, address, &config));
        Self { daemon, sink, address, config, acknowledged: Vec::new(), rounds: Vec::new() }
    }

    fn daemon(&self) -> &Postrider {
        self.daemon.as_ref().unwrap()
    }

    fn dir(&self) -> &Path {
        self.daemon().dir.path()
    }

    /// Sends from several sessions; meanwhile processes of the helper are killed, and in the end the daemon.
    fn round(&mut self, number: u64, random: &mut Random) {
        let (goal, mut is_drained) = (10 + random.below(50), random.below(3) == 0);
        let helper_dies_at = random.below(goal);
        let mut kills = 1;
        let (tell, told) = mpsc::channel();
        let address = self.address;
        let senders: Vec<_> = (0..SESSIONS)
            .map(|session| {
                let (tell, random) = (tell.clone(), Random::new(random.below(u64::MAX)));
                std::thread::spawn(move || {
                    drop(send(address, &format!("r{number}-{session}"), random, &tell));
                })
            })
            .collect();
        drop(tell);
        let mut count = 0;
        while count < goal {
            let Ok((name, places)) = told.recv() else { break };
            self.acknowledged.push(Entry { name, round: number, places });
            if count == helper_dies_at {
                kills += u64::from(self.kill_helper(random));
            }
            // Programs and writers are short-lived: each time there may be one.
            if random.below(3) == 0 {
                kills += u64::from(self.kill_child(random));
            }
            count += 1;
        }
        if is_drained {
            // Senders stop when nobody listens to them any more.
            drop(told);
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            is_drained = self.drain();
            self.kill_daemon();
        } else {
            self.kill_daemon();
            self.acknowledged.extend(told.iter().map(|(name, places)| Entry { name, round: number, places }));
        }
        self.rounds.push((kills, is_drained));
    }

    /// Kills the supervisor, or the process that it has started.
    fn kill_helper(&self, random: &mut Random) -> bool {
        let supervisors = helpers_of(self.daemon().pid());
        let Some(supervisor) = supervisors.first() else { return false };
        let helpers = helpers_of(*supervisor);
        let victim = if random.below(4) == 0 { Some(supervisor) } else { helpers.first() };
        victim.is_some_and(|pid| killed(*pid))
    }

    /// Kills a program or a writer.
    fn kill_child(&self, random: &mut Random) -> bool {
        let supervisors = helpers_of(self.daemon().pid());
        let helpers = supervisors.iter().flat_map(|pid| children_of(*pid));
        let children: Vec<u32> = helpers.flat_map(children_of).collect();
        let grandchildren: Vec<u32> = children.iter().flat_map(|pid| children_of(*pid)).collect();
        let all = [children, grandchildren].concat();
        !all.is_empty() && killed(all[random.below(all.len() as u64) as usize])
    }

    fn kill_daemon(&mut self) {
        let (dir, address) = self.daemon.take().unwrap().kill();
        // A local program does not wait for the next start.
        let name = format!("dropped-{}", self.rounds.len());
        let mut sendmail = Command::new(BINARY)
            .args(["sendmail", "-i", "-f", "ann@mx.test", "joe@mx.test"])
            .env("POSTRIDER_CONFIG", dir.path().join("postrider.toml"))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        sendmail.stdin.take().unwrap().write_all(content(&name).replace('\r', "").as_bytes()).unwrap();
        assert!(sendmail.wait().unwrap().success());
        let round = self.rounds.len() as u64;
        self.acknowledged.push(Entry { name, round, places: vec![Place::Maildir] });
        self.daemon = Some(Postrider::start_in(dir, address, &self.config));
    }

    /// Waits until nothing is queued. Returns whether that is so: if the supervisor was killed, mail waits for the next daemon.
    fn drain(&mut self) -> bool {
        let mut has_no_helper = false;
        until("the queue is empty", || {
            let Ok(said) = self.daemon().try_ask(&["status", "--json"]) else { return false };
            has_no_helper = helpers_of(self.daemon().pid()).is_empty();
            let status: serde_json::Value = serde_json::from_str(&said).unwrap();
            let _ = self.daemon().try_ask(&["queue", "flush"]);
            has_no_helper || (status["spool"]["messages"] == 0 && status["spool"]["dropped"] == 0)
        });
        !has_no_helper
    }

    /// Counts what is whole in each place.
    fn arrivals(&self) -> HashMap<(Place, String), u64> {
        let mut found = HashMap::new();
        let mut add = |place: Place, text: &str| {
            let name = whole(text).unwrap_or_else(|| panic!("{place:?}: not whole: {text:.200}"));
            *found.entry((place, name)).or_default() += 1;
        };
        let texts = |dir: &str| {
            let files = fs::read_dir(self.dir().join(dir)).into_iter().flatten().flatten();
            let files = files.filter(|file| !file.file_name().to_string_lossy().starts_with("tmp."));
            files.map(|file| fs::read_to_string(file.path()).unwrap()).collect::<Vec<_>>()
        };
        texts("data/mail/joe/new").iter().for_each(|text| add(Place::Maildir, text));
        texts("out").iter().for_each(|text| add(Place::Program, text));
        let messages = self.sink.messages();
        messages.iter().for_each(|one| add(Place::NextHop, &String::from_utf8_lossy(&one.content)));
        for text in texts("data/mail/ann/new") {
            let name = text.rsplit_once("Subject: ").unwrap().1.lines().next().unwrap().trim().to_owned();
            *found.entry((Place::Sender, name)).or_default() += 1;
        }
        // A writer that was killed may leave a part of a message, which is separated from the next one.
        for (place, file) in [(Place::Mbox, "boxes/box"), (Place::Archive, "boxes/archive")] {
            let text = fs::read_to_string(self.dir().join(file)).unwrap_or_default();
            for text in text.strip_suffix('\n').unwrap_or_default().split("\nFrom ") {
                whole(text).into_iter().for_each(|name| *found.entry((place, name)).or_default() += 1);
            }
        }
        found
    }

    /// The most copies that the kills explain: one for each between the acknowledgement and the next time that the queue was empty.
    fn most_copies(&self, entry: &Entry) -> u64 {
        let later = &self.rounds[entry.round as usize..];
        let until = later.iter().position(|(_, is_drained)| *is_drained).map_or(later.len(), |at| at + 1);
        1 + later[..until].iter().map(|(kills, _)| kills).sum::<u64>()
    }
}

/// Sends until the daemon, or whoever listens here, is gone.
fn send(
    address: SocketAddr,
    prefix: &str,
    mut random: Random,
    tell: &mpsc::Sender<(String, Vec<Place>)>,
) -> io::Result<()> {
    let mut client = Client::connect(address)?;
    for number in 0.. {
        let name = format!("{prefix}-{number}");
        let (to, places) = recipients(&name, &mut random);
        for command in std::iter::once("MAIL FROM:<ann@mx.test>".to_owned())
            .chain(to.iter().map(|to| format!("RCPT TO:<{to}>")))
            .chain(["DATA".to_owned()])
        {
            client.say(&command)?;
        }
        let (code, text) = client.say(&format!("{}.", content(&name)))?;
        assert_eq!(code, 250, "{text}");
        if tell.send((name, places)).is_err() {
            break;
        }
    }
    Ok(())
}

pub(super) fn children_of(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// It may have ended meanwhile.
fn killed(pid: u32) -> bool {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).is_ok()
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn what_was_acknowledged_is_delivered_or_returned_whatever_process_is_killed() {
    let (rounds, seed) = (number("POSTRIDER_TEST_ROUNDS", 5), number("POSTRIDER_TEST_SEED", 1));
    let (mut world, mut random) = (World::new(), Random::new(seed));
    for round in 0..rounds {
        world.round(round, &mut random);
    }
    // The last daemon has all its helpers.
    world.rounds.push((0, true));
    assert!(world.drain());
    let arrivals = world.arrivals();
    let (mut places, mut copies, mut faults) = (0, 0, Vec::new());
    for entry in &world.acknowledged {
        for place in &entry.places {
            let count = arrivals.get(&(*place, entry.name.clone())).copied().unwrap_or(0);
            let most = world.most_copies(entry);
            if count == 0 || count > most {
                faults.push(format!("{} has {count} copies at {place:?}, of 1 to {most}", entry.name));
            }
            places += 1;
            copies += count;
        }
    }
    let kills: u64 = world.rounds.iter().map(|(kills, _)| kills).sum();
    println!(
        "seed {seed}: {rounds} rounds, {kills} kills, {} messages acknowledged for {places} places, {} copies more",
        world.acknowledged.len(),
        copies.saturating_sub(places)
    );
    assert!(faults.is_empty(), "seed {seed}: {faults:#?}");
}

#[test]
fn a_program_whose_helper_is_killed_never_takes_a_part_of_a_message_for_all_of_it() {
    let dir = open_dir();
    let at = dir.path().display().to_string();
    fs::create_dir(dir.path().join("out")).unwrap();
    fs::set_permissions(dir.path().join("out"), Permissions::from_mode(0o777)).unwrap();
    // It waits until the test opens the other end.
    assert!(Command::new("mkfifo").args(["-m", "666", &format!("{at}/fifo")]).status().unwrap().success());
    let script = format!("read -r word <{at}/fifo; cat >{at}/out/tmp && mv {at}/out/tmp {at}/out/done");
    let is_root = rustix::process::geteuid().is_root();
    let user = if is_root { ", user = \"nobody\"" } else { "" };
    let process = if is_root { format!("[process]\nuser = \"{DAEMON}\"\n") } else { String::new() };
    let config = format!(
        "{process}[queue]\nretry_min = \"1h\"\nretry_max = \"1h\"\n\
         [[route]]\ndomains = [\"pipe.test\"]\npipe = {{ argv = [\"/bin/sh\", \"-c\", \"{script}\"]{user} }}\n"
    );
    let daemon = Postrider::start_in(dir, free_address(), &config);
    let mut client = Client::connect(daemon.address).unwrap();
    // More than a pipe holds.
    let text = format!("Subject: x\r\n\r\n{}", "0123456789\r\n".repeat(100_000));
    assert_eq!(client.send("a@far.test", &["x@pipe.test"], text.as_bytes()).unwrap().0, 250);
    let helper = super::next_helper(helpers_of(daemon.pid())[0], None);
    until("the program runs", || !children_of(helper).is_empty());
    assert!(killed(helper));
    until("the mail waits", || daemon.ask(&["status"]).contains("has ended 1 time"));
    fs::write(daemon.dir.path().join("fifo"), "go\n").unwrap();
    let out = daemon.dir.path().join("out/done");
    until("the program has ended", || out.exists());
    let body = text.split_once("\r\n\r\n").unwrap().1.replace("\r\n", "\n");
    assert!(fs::read_to_string(out).unwrap().ends_with(&body));
}
