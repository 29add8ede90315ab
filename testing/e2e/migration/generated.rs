//! Restriction lists of Postfix in ever new combinations: Postfix and Postrider with the imported lists decide alike about every client,
//! name in EHLO, sender and recipient. A difference is made small before it is shown.
//!
//! `POSTRIDER_TEST_COUNT` and `POSTRIDER_TEST_SEED` ask for more and for others, and `POSTRIDER_TEST_ENVELOPES` for more
//! envelopes with each set. Each week has a seed of its own.

use super::{machine::Machine, postfix, world::SERVER};
use crate::common::{program, session::connect_from, until};
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The port of the first set of lists in Postfix.
const PORT: u16 = 10_000;
/// Sets of lists in one Postfix.
const BATCH: usize = 50;

/// Numbers that only have to differ, from a Lehmer generator.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Self(48_271 * (seed % 40_000 + 1));
        dice.0 = (0..10).fold(dice.0, |state, _| state * 48_271 % 0x7fff_ffff);
        dice
    }

    pub(crate) fn below(&mut self, most: usize) -> usize {
        self.0 = self.0 * 48_271 % 0x7fff_ffff;
        (self.0 >> 8) as usize % most
    }

    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Reads a number from a variable of the environment; `None` without it.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Returns the seed that was asked for, or that of the week, and prints it.
pub(crate) fn seed() -> u64 {
    const WEEK_S: u64 = 7 * 24 * 60 * 60;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let seed = number("POSTRIDER_TEST_SEED").unwrap_or(now / WEEK_S);
    println!("POSTRIDER_TEST_SEED={seed}");
    seed
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Word(&'static str),
    Table { check: &'static str, kind: &'static str, entries: Vec<(&'static str, &'static str)> },
}

#[derive(Debug, Clone, PartialEq)]
struct Lists {
    /// Lines of `main.cf`.
    settings: Vec<&'static str>,
    lists: [Vec<Step>; 5],
    /// The first session, and how many come to the next one.
    sessions: (usize, usize),
}

const NAMES: [&str; 5] = [
    "smtpd_client_restrictions",
    "smtpd_helo_restrictions",
    "smtpd_sender_restrictions",
    "smtpd_recipient_restrictions",
    "smtpd_relay_restrictions",
];

const WORDS: &[&str] = &[
    "permit_mynetworks",
    "permit_mynetworks",
    "permit_mynetworks",
    "permit_sasl_authenticated",
    "permit_auth_destination",
    "reject_unauth_destination",
    "defer_unauth_destination",
    "reject_non_fqdn_sender",
    "reject_non_fqdn_recipient",
    "reject_invalid_helo_hostname",
    "reject_non_fqdn_helo_hostname",
    "reject_unknown_client_hostname",
    "reject_rbl_client bl.example",
    "reject_rhsbl_sender dbl.example=127.0.1.[2..9]",
    "reject_rhsbl_helo dbl.example",
    "reject_rhsbl_client dbl.example",
    "reject_unlisted_recipient",
    "warn_if_reject reject",
    "reject_plaintext_session",
    "permit",
    "defer",
    "reject",
];

const ACTIONS: &[&str] = &[
    "OK",
    "OK",
    "REJECT",
    "REJECT",
    "REJECT not you",
    "DUNNO",
    "DUNNO",
    "DEFER",
    "450 later",
    "550 5.7.1 never",
    "421 4.7.0 no",
    "PREPEND X-Seen: yes",
    "HOLD",
    "WARN",
    "DEFER_IF_PERMIT",
    "permit_mynetworks, reject",
    "strict",
    "mild",
    "reject_unauth_destination",
];

const SUBJECTS: &[(&str, &[&str], &[&str])] = &[
    (
        "check_client_access",
        &[
            "198.51.100.7",
            "192.0.2",
            "192.0.2.66",
            "203.0.113.9",
            "near.example",
            "far.example",
            "net.example",
            "bad.net.example",
            ".example",
            "unknown",
            "127.0.0.1",
        ],
        &["/far/", "/^198\\.51/", "/unknown/", "/^203.0.113.9$/", "/EXAMPLE$/"],
    ),
    (
        "check_helo_access",
        &["client.example", "example", "short", "bad.example", "x.bad.example", "[203.0.113.9]"],
        &["/^client/", "/bad/", "/^[^.]*$/", "/^\\[/"],
    ),
    (
        "check_sender_access",
        &[
            "a@from.example",
            "from.example",
            "bad.example",
            "x@sub.bad.example",
            "sub.bad.example",
            "x@",
            "<>",
            ".bad.example",
            "localhost",
            "example",
        ],
        &["/^a@/", "/bad/", "/^<>$/", "/@from\\.example$/", "/localhost/"],
    ),
    (
        "check_recipient_access",
        &[
            "joe@mx.test",
            "mx.test",
            "boss@mx.test",
            "boss@",
            "relay.example",
            "joe@sub.relay.example",
            "sub.relay.example",
            "postmaster@",
            "far.example",
        ],
        &["/^boss/", "/relay/", "/@mx\\.test$/", "/^joe@sub/"],
    ),
];

const NETWORKS: &[&str] =
    &["198.51.100.0/24", "192.0.2.0/25", "192.0.2.66", "203.0.113.8/30", "127.0.0.0/8", "0.0.0.0/0"];

const CLIENTS: &[&str] = &["127.0.0.1", "198.51.100.7", "203.0.113.9", "192.0.2.66", "192.0.2.77"];
const HELLOS: &[&str] = &[
    "client.example",
    "short",
    "x.bad.example",
    "[203.0.113.9]",
    "203.0.113.9",
    "a_b.example",
    "-x.example",
    "12.34",
];
const SENDERS: &[&str] = &["a@from.example", "", "x@sub.bad.example", "y@bad.example", "joe@localhost"];
const RECIPIENTS: &[&str] = &[
    "joe@mx.test",
    "boss@mx.test",
    "joe@relay.example",
    "joe@sub.relay.example",
    "joe@far.example",
    "postmaster@mx.test",
];

impl Lists {
    fn generate(dice: &mut Dice) -> Self {
        let mut settings = vec![dice.one(&[
            "mynetworks = 127.0.0.0/8, 198.51.100.0/24",
            "mynetworks = 127.0.0.0/8, 198.51.100.0/24",
            "mynetworks = 127.0.0.0/8",
            "mynetworks = !192.0.2.66, 127.0.0.0/8, 192.0.2.0/24",
        ])];
        settings.push(dice.one(&[
            "compatibility_level = 3.6",
            "compatibility_level = 3.6",
            "compatibility_level = 2",
        ]));
        if dice.below(8) == 0 {
            settings.push("parent_domain_matches_subdomains = relay_domains");
        }
        settings.push(dice.one(&[
            "strict = reject_non_fqdn_helo_hostname, reject_unknown_client_hostname",
            "strict = permit_mynetworks, reject",
        ]));
        settings.push(dice.one(&[
            "mild = check_sender_access inline:{from.example=OK}, defer",
            "mild = permit_mynetworks, check_helo_access inline:{short=OK}",
        ]));
        let lists = [0, 1, 2, 3, 4].map(|number| {
            let mut list: Vec<Step> = (0..dice.below(5)).map(|_| Step::generate(dice, number)).collect();
            if number == 4 {
                let end: &[&str] = dice.one(&[
                    &["permit_mynetworks", "reject_unauth_destination"] as &[&str],
                    &["permit_mynetworks", "permit_sasl_authenticated", "defer_unauth_destination"],
                    &["permit_mynetworks", "permit_auth_destination", "reject"],
                    &["reject_unauth_destination"],
                    &["permit_mynetworks", "reject"],
                ]);
                list.extend(end.iter().map(|word| Step::Word(word)));
            }
            list
        });
        let every = every();
        Self { settings, lists, sessions: (dice.below(every), every) }
    }

    /// Returns the lists as settings; tables in files are written to a directory.
    fn values(&self, machine: &Machine, dir: &str) -> Vec<(String, String)> {
        let of =
            |text: &&str| text.split_once(" = ").map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut values: Vec<(String, String)> = self.settings.iter().filter_map(of).collect();
        let mut files = 0;
        for (name, list) in NAMES.iter().zip(&self.lists) {
            let mut words = Vec::new();
            for step in list {
                words.push(match step {
                    Step::Word(word) => (*word).to_owned(),
                    Step::Table { check, kind: "inline", entries } => {
                        let pairs: Vec<String> =
                            entries.iter().map(|(key, value)| format!("{{ {key} = {value} }}")).collect();
                        format!("{check} inline:{{ {} }}", pairs.join(", "))
                    }
                    Step::Table { check, kind: "static", entries } => {
                        format!("{check} static:{{{}}}", entries[0].1)
                    }
                    Step::Table { check, kind, entries } => {
                        files += 1;
                        let text: String =
                            entries.iter().map(|(key, value)| format!("{key} {value}\n")).collect();
                        machine.write(&format!("{dir}/table{files}"), &text);
                        format!("{check} {kind}:/etc/{dir}/table{files}")
                    }
                });
            }
            values.push(((*name).to_owned(), words.join(", ")));
        }
        values
    }

    /// Returns the settings with a difference, for people.
    fn show(&self, machine: &Machine, difference: Difference) -> String {
        let [envelope, theirs, ours] = difference.words;
        let values = self.values(machine, "generated/small");
        let lines: String = values.iter().map(|(name, value)| format!("  {name} = {value}\n")).collect();
        let tables = self.lists.iter().flatten().filter_map(|step| match step {
            Step::Table { kind, entries, .. } if !matches!(*kind, "inline" | "static") => {
                Some(format!("  {kind}: {entries:?}\n"))
            }
            _ => None,
        });
        format!("{envelope}: Postfix {theirs}, Postrider {ours}\n{lines}{}", tables.collect::<String>())
    }

    /// Returns the same with one thing less, in each way.
    fn smaller(&self) -> Vec<Self> {
        let mut found = Vec::new();
        for (number, list) in self.lists.iter().enumerate() {
            for (at, step) in list.iter().enumerate() {
                let mut less = self.clone();
                less.lists[number].remove(at);
                let is_still_closed = less.lists[4].iter().any(|step| {
                    matches!(
                        step,
                        Step::Word("reject" | "reject_unauth_destination" | "defer_unauth_destination")
                    )
                });
                if is_still_closed {
                    found.push(less);
                }
                let Step::Table { entries, .. } = step else { continue };
                for entry in 0..if entries.len() > 1 { entries.len() } else { 0 } {
                    let mut less = self.clone();
                    if let Step::Table { entries, .. } = &mut less.lists[number][at] {
                        entries.remove(entry);
                    }
                    found.push(less);
                }
            }
        }
        found
    }
}

impl Step {
    fn generate(dice: &mut Dice, list: usize) -> Self {
        if dice.below(3) == 0 {
            // A list that lets everybody pass or nobody is not worth much.
            let most = if dice.below(4) == 0 { WORDS.len() } else { WORDS.len() - 3 };
            return Self::Word(WORDS[dice.below(most)]);
        }
        let (check, keys, patterns) = if list < 3 && dice.below(2) == 0 {
            SUBJECTS[list]
        } else {
            SUBJECTS[dice.below(SUBJECTS.len())]
        };
        let kind = dice.one(&["texthash", "texthash", "inline", "regexp", "cidr", "static"]);
        let kind = if kind == "cidr" && check != "check_client_access" { "inline" } else { kind };
        let keys = match kind {
            "cidr" => NETWORKS,
            "regexp" => patterns,
            _ => keys,
        };
        let mut entries: Vec<(&str, &str)> = Vec::new();
        for _ in 0..1 + dice.below(4) {
            let (key, action) = (dice.one(keys), dice.one(ACTIONS));
            // A comma ends what stands in main.cf.
            let action =
                if kind == "inline" || kind == "static" { action.split(',').next().unwrap() } else { action };
            if !entries.iter().any(|(known, _)| *known == key) {
                entries.push((key, action));
            }
        }
        Self::Table { check, kind, entries }
    }
}

/// Of so many sessions one is tried.
fn every() -> usize {
    let wanted = number("POSTRIDER_TEST_ENVELOPES").unwrap_or(50) as usize;
    (CLIENTS.len() * HELLOS.len() * SENDERS.len() * RECIPIENTS.len() / wanted.max(1)).max(1)
}

/// A client that asks for replies, and sends nothing.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self(BufReader::new(stream))
    }

    /// Returns the last line of the reply.
    pub(crate) fn say(&mut self, line: &str) -> String {
        let _ = self.0.get_mut().write_all(format!("{line}\r\n").as_bytes());
        self.reply()
    }

    pub(crate) fn reply(&mut self) -> String {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap_or(0) == 0 {
                return "closed".to_owned();
            }
            if line.as_bytes().get(3) != Some(&b'-') {
                return line.trim().to_owned();
            }
        }
    }
}

/// Returns the replies of a server to some of all envelopes, each with its envelope.
fn replies(server: SocketAddr, (first, step): (usize, usize)) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let all = CLIENTS.iter().flat_map(|client| {
        HELLOS.iter().flat_map(move |hello| SENDERS.iter().map(move |sender| (client, hello, sender)))
    });
    for (client, hello, sender) in all.skip(first).step_by(step) {
        // A session of its own: Postrider ends one with many refusals.
        let mut session = Client::new(connect_from(client, server));
        let first = [
            session.reply(),
            session.say(&format!("EHLO {hello}")),
            session.say(&format!("MAIL FROM:<{sender}>")),
        ];
        if first[0] == "closed" {
            return Vec::new();
        }
        for recipient in RECIPIENTS {
            let refused = first.iter().find(|reply| !reply.starts_with('2')).cloned();
            let reply = refused.unwrap_or_else(|| session.say(&format!("RCPT TO:<{recipient}>")));
            found.push((format!("{client} EHLO {hello} MAIL <{sender}> RCPT <{recipient}>"), reply));
        }
        session.say("QUIT");
    }
    found
}

const BASE: &str = "myhostname = mx.test\nmydestination = mx.test\nlocal_recipient_maps =\nlocal_transport = discard:\nrelay_domains = relay.example\n\
    inet_interfaces = 198.51.100.1\nsmtpd_hard_error_limit = 100000\nsmtpd_soft_error_limit = 100000\nsmtpd_error_sleep_time = 0\n\
    smtpd_restriction_classes = strict, mild\nsmtpd_junk_command_limit = 100000\nmax_idle = 5s\nin_flow_delay = 0\nappend_dot_mydomain = no\n\
    smtpd_recipient_limit = 1000\nsmtpd_client_connection_count_limit = 0\n";

/// An envelope that the two programs answer differently.
struct Difference {
    /// Counted from the first session.
    session: usize,
    /// The envelope, Postfix's reply, and Postrider's.
    words: [String; 3],
}

/// Asks both programs about each set of lists. Returns the first difference of each.
fn differences(machine: &Machine, all: &[Lists]) -> Vec<Option<Difference>> {
    let master = fs::read_to_string(machine.etc("postfix/master.cf")).unwrap();
    let mut services: String = master
        .lines()
        .filter(|line| !line.starts_with("smtp ") || !line.contains(" inet "))
        .map(|line| format!("{line}\n"))
        .collect();
    machine.write("postfix/main.cf", BASE);
    for (number, lists) in all.iter().enumerate() {
        let (port, dir) = (usize::from(PORT) + number, format!("generated/{number}"));
        let values = lists.values(machine, &dir);
        services += &format!("198.51.100.1:{port} inet n - n - - smtpd\n");
        services.extend(values.iter().map(|(name, value)| format!("  -o {{ {name} = {value} }}\n")));
        let settings: String = values.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
        machine.write(&format!("{dir}/main.cf"), &format!("{BASE}{settings}"));
        machine.write(&format!("{dir}/master.cf"), "smtp inet n - n - - smtpd\n");
    }
    machine.write("postfix/master.cf", &services);
    // It opens its ports one after the other.
    let last = SocketAddr::new(SERVER.ip(), PORT + all.len() as u16 - 1);
    let running = postfix::Postfix::listening(machine, last);
    let theirs: Vec<_> = (PORT..)
        .zip(all)
        .map(|(port, lists)| replies(SocketAddr::new(SERVER.ip(), port), lists.sessions))
        .collect();
    drop(running);
    until("Postfix has ended", || TcpStream::connect(last).is_err());
    machine.write("postfix/master.cf", &master);
    let mut found = Vec::new();
    for (number, theirs) in theirs.iter().enumerate() {
        let _ = fs::remove_dir_all(machine.dir.path().join("postrider"));
        let (postrider, said) = machine.start_imported("postfix", &format!("/etc/generated/{number}"));
        let ours = replies(SERVER, all[number].sessions);
        drop(postrider);
        // Its helper may have the socket for a moment.
        until("Postrider has ended", || TcpStream::connect(SERVER).is_err());
        if theirs.is_empty() {
            println!("Postfix does not answer with set {number}");
            found.push(None);
            continue;
        }
        assert!(!ours.is_empty(), "Postrider does not answer");
        let class = |reply: &str| reply.chars().next();
        // Strangers who want to relay are refused by both, by Postrider for good.
        // And so are they by a listener that is for its own networks.
        let is_relayed = |envelope: &str, ours: &str| {
            envelope.contains("far.example>") || ours.contains("its own networks only")
        };
        // The report says so.
        let tells = |what: &&str| said.contains(*what);
        let is_told = |ours: &str| {
            ours.contains("Relay access denied")
                && [
                    "may relay only if a table permits it",
                    "lets other clients relay",
                    "let everybody relay",
                    "would make an open relay",
                ]
                .iter()
                .any(tells)
        };
        let differ = theirs.iter().zip(&ours).position(|((envelope, theirs), (_, ours))| {
            let are_refusals = !theirs.starts_with('2') && !ours.starts_with('2');
            class(theirs) != class(ours)
                // Postfix closes the connection behind a 421.
                && theirs != "closed"
                && !(are_refusals && is_relayed(envelope, ours))
                && !(theirs.starts_with('2') && is_told(ours))
        });
        found.push(differ.map(|at| {
            let (first, step) = all[number].sessions;
            let session = first + at / RECIPIENTS.len() * step;
            Difference { session, words: [&theirs[at].0, &theirs[at].1, &ours[at].1].map(Clone::clone) }
        }));
    }
    found
}

/// Compares sets of lists. Returns the small ones that differ.
pub(crate) fn check() -> Option<()> {
    program("postfix")?;
    let machine = postfix::machine(&[("postfix/main.cf", BASE.to_owned())])?;
    let (seed, count) = (seed(), number("POSTRIDER_TEST_COUNT").unwrap_or(200) as usize);
    let mut dice = Dice::new(seed);
    let all: Vec<Lists> = (0..count).map(|_| Lists::generate(&mut dice)).collect();
    let mut found = Vec::new();
    for batch in all.chunks(BATCH) {
        let different = differences(&machine, batch);
        found.extend(
            batch.iter().cloned().zip(different).filter_map(|(lists, difference)| Some((lists, difference?))),
        );
    }
    let total = found.len();
    for (_, Difference { words: [envelope, theirs, ours], .. }) in &found {
        println!("{envelope}: Postfix {theirs}, Postrider {ours}");
    }
    // To make them small takes a while.
    let most = number("POSTRIDER_TEST_SMALL").unwrap_or(1) as usize;
    let shown: Vec<String> =
        found
            .into_iter()
            .take(if most == 0 { usize::MAX } else { most })
            .map(|(lists, difference)| {
                if most == 0 { lists.show(&machine, difference) } else { small(&machine, lists, difference) }
            })
            .collect();
    assert!(shown.is_empty(), "seed {seed}: {total} of {count} sets of lists differ:\n{}", shown.join("\n"));
    println!(
        "seed {seed}: {count} sets of lists, {} envelopes each",
        CLIENTS.len() * HELLOS.len() * SENDERS.len() * RECIPIENTS.len() / every()
    );
    Some(())
}

/// Returns the smallest set of lists that still differs, with the difference.
fn small(machine: &Machine, mut lists: Lists, mut difference: Difference) -> String {
    // One session is enough.
    lists.sessions = (difference.session, usize::MAX);
    loop {
        let smaller = lists.smaller();
        let next = smaller.chunks(BATCH).find_map(|batch| {
            let different = differences(machine, batch);
            batch.iter().cloned().zip(different).find_map(|(lists, difference)| Some((lists, difference?)))
        });
        match next {
            Some(next) => (lists, difference) = next,
            None => break,
        }
    }
    lists.show(machine, difference)
}
