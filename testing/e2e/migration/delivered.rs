//! Settings of Postfix about addresses and next hops in ever new combinations: the same envelopes end at the same places, with the same
//! senders and recipients, in Postfix and in Postrider with the imported settings.
//!
//! A difference counts as reported if it disappears once the settings named in the report are removed. Any other is reduced and shown.

use super::{
    generated::{Client, Dice, number, seed},
    machine::Machine,
    postfix, tables,
    world::{SERVER, World},
};
use crate::common::{
    databases::{MariaDb, Postgres},
    envelopes::named,
    program,
    session::connect_from,
    until,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::TcpStream,
    path::Path,
};

/// A parameter that a generated site may have.
struct Rule {
    name: &'static str,
    /// The share of sites that have it: one in so many.
    one_in: usize,
    form: Form,
}

enum Form {
    /// Takes one of these values.
    One(&'static [&'static str]),
    /// Takes a list of names, files and tables.
    Names(&'static [&'static str]),
    /// Tables with these keys and values.
    Map(&'static [&'static str], &'static [&'static str]),
    /// Takes a table of some of these networks.
    Networks(&'static [&'static str]),
}
use Form::{Map, Names, Networks, One};

/// Types of tables that are generated.
const KINDS: [&str; 9] =
    ["texthash", "proxy:texthash", "hash", "inline", "regexp", "pcre", "sqlite", "pgsql", "mysql"];

const fn rule(name: &'static str, one_in: usize, form: Form) -> Rule {
    Rule { name, one_in, form }
}

/// Without `:` in front, which is for transport_maps only.
const TRANSPORTS: &[&str] = &[
    "smtp:[203.0.113.22]",
    "smtp:[203.0.113.22]:2525",
    "relay:[hub.example.com]",
    "smtp:[hub.example.com]:2525",
    "smtp:hub.example.com:2525",
    "lmtp:inet:203.0.113.24:24",
    "lmtp:[203.0.113.24]:24",
    "error:5.1.2 closed",
    "error:mailbox moved",
    "error:4.2.0 later",
    "retry:4.3.0 later",
    "discard:",
    "discard:silently",
    "smtp:",
    "relay:",
    "local:",
];
const NEXT_HOPS: &[&str] = &[
    "smtp:[203.0.113.22]",
    "smtp:[203.0.113.22]:2525",
    "relay:[hub.example.com]",
    "lmtp:inet:203.0.113.24:24",
    "error:5.1.2 closed",
    "retry:4.3.0 later",
    "discard:",
    "relay:",
    "local:",
    ":[203.0.113.23]",
    ":",
];
/// Nobody listens at 203.0.113.99.
const HUBS: &[&str] =
    &["[203.0.113.99]", "[203.0.113.22]", "[203.0.113.23]:25", "[hub.example.com]:2525", "hub.example.com"];
const OLD: &[&str] = &[
    "joe@mx.test",
    "ann@mx.test",
    "a@from.example",
    "joe@virt.example",
    "joe@relay.example",
    "joe@far.example",
    "joe",
    "ann",
    "@virt.example",
    "@from.example",
    "@mx.test",
];
const NEW: &[&str] =
    &["ann@mx.test", "ann", "x@far.example", "joe@relay.example", "@example.org", "b@from.example"];

/// For settings that the report always names.
const RARE: usize = 30;

const RULES: &[Rule] = &[
    rule(
        "mynetworks",
        5,
        Networks(&["127.0.0.0/8", "127.0.0.1", "198.51.100.0/24", "198.51.100.7", "192.0.2.0/24"]),
    ),
    rule("compatibility_level", 1, One(&["3.6", "3.6", "2"])),
    rule(
        "mydestination",
        2,
        One(&["mx.test, localhost", "$myhostname, localhost.$mydomain, localhost, home.example", ""]),
    ),
    rule(
        "mydestination",
        3,
        Names(&[
            "mx.test",
            "localhost",
            "home.example",
            "virt.example",
            "!sub.home.example",
            ".home.example",
        ]),
    ),
    rule(
        "relay_domains",
        2,
        Names(&["relay.example", "example.org", "sub.relay.example", "!sub.relay.example", "home.example"]),
    ),
    rule(
        "parent_domain_matches_subdomains",
        4,
        One(&["", "relay_domains", "relay_domains, transport_maps", "smtpd_access_maps"]),
    ),
    rule("relay_recipient_maps", 12, One(&["static:all"])),
    rule(
        "relay_recipient_maps",
        3,
        Map(
            &[
                "joe@relay.example",
                "ann@relay.example",
                "joe@example.org",
                "@example.org",
                "joe@sub.relay.example",
            ],
            &["x", "OK"],
        ),
    ),
    rule("virtual_alias_domains", 3, Names(&["virt.example", "sub.virt.example", "home.example"])),
    rule(
        "virtual_alias_maps",
        2,
        Map(
            &[
                "joe@virt.example",
                "ann@virt.example",
                "@virt.example",
                "virt.example",
                "info@mx.test",
                "joe",
                "unknown",
                "joe+x@virt.example",
                "joe@far.example",
                "joe@box.example",
                "@sub.virt.example",
            ],
            &[
                "joe",
                "ann@mx.test",
                "joe, ann",
                "x@far.example",
                "@example.org",
                "joe@relay.example",
                "joe@virt.example",
                "joe@mx.test, x@far.example",
                "unknown",
            ],
        ),
    ),
    rule("virtual_mailbox_domains", 3, Names(&["box.example", "sub.box.example"])),
    rule(
        "transport_maps",
        2,
        Map(
            &[
                "far.example",
                "example.org",
                ".example.org",
                "sub.example.org",
                "*",
                "joe@far.example",
                "joe@mx.test",
                "mx.test",
                "relay.example",
                ".relay.example",
                "virt.example",
                "box.example",
                "home.example",
                "joe+x@far.example",
            ],
            NEXT_HOPS,
        ),
    ),
    rule("relayhost", 4, One(HUBS)),
    rule("smtp_fallback_relay", RARE, One(&["[203.0.113.22]", "[hub.example.com]:2525"])),
    rule("relay_transport", 6, One(TRANSPORTS)),
    rule("default_transport", 8, One(TRANSPORTS)),
    rule("local_transport", 8, One(TRANSPORTS)),
    rule("virtual_transport", 4, One(TRANSPORTS)),
    rule(
        "sender_dependent_relayhost_maps",
        5,
        Map(&["a@from.example", "@from.example", "joe@mx.test", "@mx.test", "ann+y@mx.test"], HUBS),
    ),
    rule(
        "sender_dependent_default_transport_maps",
        8,
        Map(&["a@from.example", "@from.example", "joe@mx.test", "@mx.test"], TRANSPORTS),
    ),
    rule("canonical_maps", 5, Map(OLD, NEW)),
    rule("sender_canonical_maps", RARE, Map(OLD, NEW)),
    rule("recipient_canonical_maps", RARE, Map(OLD, NEW)),
    rule("smtp_generic_maps", 5, Map(OLD, NEW)),
    rule(
        "masquerade_domains",
        6,
        One(&["mx.test", "from.example", "!host.from.example from.example", "from.example example.org"]),
    ),
    rule("masquerade_exceptions", RARE, One(&["root", "joe"])),
    rule("myorigin", 4, One(&["mx.test", "from.example", "$mydomain", "/etc/mailname"])),
    rule("luser_relay", RARE, One(&["joe", "x@far.example", "$user@far.example"])),
    rule("local_recipient_maps", 3, One(&["", "$alias_maps", "unix:passwd.byname"])),
    rule("local_recipient_maps", 8, Map(&["joe", "ann@mx.test", "@home.example", "info@mx.test"], &["x"])),
    rule("always_bcc", RARE, One(&["ann@mx.test", "archive@far.example", "ann"])),
    rule("sender_bcc_maps", RARE, Map(OLD, &["ann@mx.test", "archive@far.example"])),
    rule("recipient_bcc_maps", RARE, Map(OLD, &["ann@mx.test", "archive@far.example"])),
    rule("recipient_delimiter", 2, One(&["+", "+", "-", "+-"])),
    rule("append_dot_mydomain", 4, One(&["yes"])),
    rule(
        "relocated_maps",
        RARE,
        Map(&["ann@virt.example", "joe@far.example", "unknown"], &["new@far.example"]),
    ),
];

/// What all sets have.
const BASE: &str = "inet_interfaces = 198.51.100.1\ninet_protocols = ipv4\nmaillog_file = /var/log/postfix.log\nmyhostname = mx.test\n\
    mynetworks = 127.0.0.0/8, 198.51.100.0/24\nalias_maps = hash:/etc/aliases\nappend_dot_mydomain = no\n\
    smtpd_relay_restrictions = permit_mynetworks, reject_unauth_destination\nsmtp_tls_security_level = none\n\
    virtual_mailbox_base = /var/mail/vhosts\nvirtual_uid_maps = static:61001\nvirtual_gid_maps = static:61001\n\
    smtp_connect_timeout = 2s\nlmtp_connect_timeout = 2s\n";
const BOXES: &str = "joe@box.example box.example/joe/\nann@box.example box.example/ann/\n";

const CLIENTS: &[&str] = &["127.0.0.1", "198.51.100.7", "203.0.113.9"];
const SENDERS: &[&str] = &["a@from.example", "joe@mx.test", "", "joe@host.from.example", "ann+y@mx.test"];
const NAMES: &[&str] = &["joe", "ann", "info", "unknown", "joe+x", "ann-y", "Joe"];
const DOMAINS: &[&str] = &[
    "mx.test",
    "home.example",
    "relay.example",
    "sub.relay.example",
    "virt.example",
    "sub.virt.example",
    "box.example",
    "far.example",
    "example.org",
    "sub.example.org",
    "nowhere.example",
];
/// Envelopes that each site is tried with.
const ENVELOPES: usize = 40;

#[derive(Debug, Clone, PartialEq)]
enum Item {
    Word(&'static str),
    File(Vec<&'static str>),
    Table { kind: &'static str, entries: Vec<(String, &'static str)> },
}

#[derive(Debug, Clone, PartialEq)]
struct Envelope {
    client: &'static str,
    from: &'static str,
    to: String,
}

#[derive(Debug, Clone, PartialEq)]
struct Set {
    settings: Vec<(&'static str, Vec<Item>)>,
    envelopes: Vec<Envelope>,
}

impl Item {
    fn table(dice: &mut Dice, keys: &[&'static str], values: &[&'static str]) -> Self {
        let kind = dice.one(&KINDS);
        let has_patterns = matches!(kind, "regexp" | "pcre");
        let mut entries: Vec<(String, &'static str)> = Vec::new();
        for _ in 0..1 + dice.below(5) {
            let (key, value) = (dice.one(keys), dice.one(values));
            if has_patterns && (!key.contains(['@', '.']) || key.starts_with('.') || value.starts_with('@'))
                || kind == "inline" && value.contains(',')
            {
                continue;
            }
            let key = match kind {
                _ if has_patterns && key.starts_with('@') => format!("/{}$/", key.replace('.', "\\.")),
                _ if has_patterns => format!("/^{}$/", key.replace('.', "\\.").replace('+', "\\+")),
                _ => key.to_owned(),
            };
            if !entries.iter().any(|(known, _)| *known == key) {
                entries.push((key, value));
            }
        }
        if entries.is_empty() {
            return Self::table(dice, keys, values);
        }
        Self::Table { kind, entries }
    }
}

impl Set {
    fn generate(dice: &mut Dice) -> Self {
        let mut settings: Vec<(&str, Vec<Item>)> = Vec::new();
        for Rule { name, one_in, form } in RULES {
            if dice.below(*one_in) != 0 || settings.iter().any(|(known, _)| known == name) {
                continue;
            }
            let items = match form {
                One(values) => vec![Item::Word(dice.one(values))],
                Networks(networks) => {
                    let count = 1 + dice.below(3);
                    let entries = (0..count).map(|_| (dice.one(networks).to_owned(), "x")).collect();
                    vec![Item::Table { kind: "cidr", entries }]
                }
                Map(keys, values) => {
                    (0..1 + dice.below(5) / 4).map(|_| Item::table(dice, keys, values)).collect()
                }
                Names(names) => (0..1 + dice.below(3))
                    .map(|_| match dice.below(5) {
                        0 => Item::File((0..1 + dice.below(3)).map(|_| dice.one(names)).collect()),
                        1 => {
                            let plain: Vec<&str> =
                                names.iter().copied().filter(|name| !name.starts_with('!')).collect();
                            Item::table(dice, &plain, &["x", "OK"])
                        }
                        _ => Item::Word(dice.one(names)),
                    })
                    .collect(),
            };
            settings.push((name, items));
        }
        let envelopes = (0..ENVELOPES).map(|_| Envelope {
            client: dice.one(CLIENTS),
            from: dice.one(SENDERS),
            to: format!("{}@{}", dice.one(NAMES), dice.one(DOMAINS)),
        });
        Self { envelopes: envelopes.collect(), settings }
    }

    /// Writes the configuration and its tables.
    fn write(&self, Bench { machine, postgres, mariadb, .. }: &Bench) {
        let mut text = String::new();
        let mut files = 0;
        for (name, items) in &self.settings {
            let words: Vec<String> = items
                .iter()
                .map(|item| {
                    files += 1;
                    let place = format!("postfix/table{files}");
                    match item {
                        Item::Word(word) => (*word).to_owned(),
                        Item::File(names) => {
                            machine.write(
                                &place,
                                &names.iter().map(|name| format!("{name}\n")).collect::<String>(),
                            );
                            format!("/etc/{place}")
                        }
                        Item::Table { kind: "inline", entries } => {
                            let pairs: Vec<String> =
                                entries.iter().map(|(key, value)| format!("{{{key} = {value}}}")).collect();
                            format!("inline:{{ {} }}", pairs.join(", "))
                        }
                        Item::Table { kind: kind @ "sqlite", entries } => {
                            tables::sqlite(machine, &place, entries);
                            format!("{kind}:/etc/{place}")
                        }
                        Item::Table { kind: kind @ "pgsql", entries } => {
                            let postgres = postgres.as_ref().expect("sets without it are left out");
                            tables::pgsql(machine, postgres, &place, entries);
                            format!("{kind}:/etc/{place}")
                        }
                        Item::Table { kind: kind @ "mysql", entries } => {
                            let mariadb = mariadb.as_ref().expect("sets without it are left out");
                            tables::mysql(machine, mariadb, &place, entries);
                            format!("{kind}:/etc/{place}")
                        }
                        Item::Table { kind, entries } => {
                            let lines = entries.iter().map(|(key, value)| format!("{key} {value}\n"));
                            machine.write(&place, &lines.collect::<String>());
                            if *kind == "hash" {
                                machine.run(
                                    "postmap",
                                    &[
                                        "-c",
                                        "/etc/postfix",
                                        &format!("hash:{}", machine.etc(&place).display()),
                                    ],
                                );
                            }
                            format!("{kind}:/etc/{place}")
                        }
                    }
                })
                .collect();
            text += &format!("{name} = {}\n", words.join(", "));
        }
        if self.settings.iter().any(|(name, _)| *name == "virtual_mailbox_domains") {
            text += "virtual_mailbox_maps = texthash:/etc/postfix/boxes\n";
        }
        let of_set = |name: &str| self.settings.iter().any(|(known, _)| *known == name);
        let base = BASE.lines().filter(|line| !of_set(line.split(" = ").next().unwrap()));
        let base: String = base.map(|line| format!("{line}\n")).collect();
        machine.write("postfix/main.cf", &format!("{base}{text}"));
    }

    /// Returns whether Postfix has all kinds of tables here: each is a package of its own.
    fn can_run(&self, bench: &Bench) -> bool {
        let has = |kind: &str| {
            let library = format!("usr/lib/postfix/postfix-{kind}.so");
            let unpacked = crate::common::unpacked(".").map(|tree| tree.join(&library));
            let is_there =
                unpacked.is_some_and(|file| file.exists()) || Path::new("/").join(library).exists();
            is_there
                && (kind != "sqlite" || program("sqlite3").is_some())
                && (kind != "pgsql" || bench.postgres.is_some() && program("psql").is_some())
                && (kind != "mysql" || bench.mariadb.is_some() && program("mariadb").is_some())
        };
        let items = self.settings.iter().flat_map(|(_, items)| items);
        items
            .filter_map(|item| match item {
                Item::Table { kind: kind @ ("pcre" | "sqlite" | "pgsql" | "mysql"), .. } => Some(*kind),
                _ => None,
            })
            .all(has)
    }

    /// Returns the settings, for people.
    fn show(&self) -> String {
        self.settings.iter().map(|(name, items)| format!("  {name} = {items:?}\n")).collect()
    }

    /// Returns the same with one thing less, in each way.
    fn smaller(&self) -> Vec<Self> {
        let mut found = Vec::new();
        for at in 0..self.settings.len() {
            let mut less = self.clone();
            less.settings.remove(at);
            found.push(less);
        }
        for (at, (_, items)) in self.settings.iter().enumerate() {
            for (number, item) in items.iter().enumerate() {
                if items.len() > 1 {
                    let mut less = self.clone();
                    less.settings[at].1.remove(number);
                    found.push(less);
                }
                let count = match item {
                    Item::Word(_) => 0,
                    Item::File(names) => names.len(),
                    Item::Table { entries, .. } => entries.len(),
                };
                for entry in 0..if count > 1 { count } else { 0 } {
                    let mut less = self.clone();
                    match &mut less.settings[at].1[number] {
                        Item::Word(_) => {}
                        Item::File(names) => drop(names.remove(entry)),
                        Item::Table { entries, .. } => drop(entries.remove(entry)),
                    }
                    found.push(less);
                }
            }
        }
        found
    }

    /// Returns the lines of a report about mail that is treated in another way, by the settings that they name.
    fn told<'r>(&self, report: &'r str) -> Vec<(&'static str, &'r str)> {
        let named = |line: &'r str| {
            let mut words = line.split_whitespace();
            let kind = words.next().unwrap_or_default();
            let name = words.nth(1)?.trim_end_matches(':');
            let is_told =
                matches!(kind, "refused" | "accepted" | "rerouted" | "changed" | "opened" | "missing");
            let (setting, _) = self.settings.iter().find(|(setting, _)| *setting == name)?;
            is_told.then_some((*setting, line))
        };
        report.lines().filter_map(named).collect()
    }

    /// Returns the same without settings that a report says more of than that they are mapped. None if there are none.
    fn without_told(&self, report: &str) -> Option<Self> {
        let told = self.told(report);
        let mut less = self.clone();
        less.settings.retain(|(name, _)| !told.iter().any(|(other, _)| other == name));
        (less.settings.len() < self.settings.len()).then_some(less)
    }
}

/// What the sets are tried with.
struct Bench {
    machine: Machine,
    world: World,
    postgres: Option<Postgres>,
    mariadb: Option<MariaDb>,
    /// Comparisons so far.
    round: usize,
}

/// What became of the envelopes in both programs.
struct Comparison {
    /// The number of an envelope, and what became of it in Postfix and in Postrider.
    different: Option<(usize, String, String)>,
    report: String,
}

/// Sends the envelopes. Returns the last reply to each.
fn send(envelopes: &[Envelope], subject: &str) -> Vec<String> {
    let each = envelopes.iter().enumerate();
    each.map(|(number, envelope)| {
        let mut client = Client::new(connect_from(envelope.client, SERVER));
        let mut reply = client.reply();
        for line in [
            "EHLO client.example".to_owned(),
            format!("MAIL FROM:<{}>", envelope.from),
            format!("RCPT TO:<{}>", envelope.to),
            "DATA".to_owned(),
            format!("From: a@b.example\r\nSubject: {subject} {number}.\r\n\r\nbody\r\n."),
        ] {
            if reply.starts_with(['2', '3']) {
                reply = client.say(&line);
            }
        }
        client.say("QUIT");
        reply
    })
    .collect()
}

/// Returns the places where the messages of a set have arrived, by the numbers of their envelopes.
fn arrivals(machine: &Machine, world: &World, subject: &str) -> BTreeMap<usize, BTreeSet<String>> {
    let mut found: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    let mut add = |content: &str, place: String| {
        let begin = format!("Subject: {subject} ");
        let Some((before, rest)) = content.split_once(&begin) else { return };
        let number = rest.split('.').next().unwrap().parse().unwrap();
        // A notification has the header of the message in its content.
        let place = if before.contains("\n\n") { "refused".to_owned() } else { place };
        found.entry(number).or_default().insert(place);
    };
    for (hop, message) in world.take() {
        let content = String::from_utf8_lossy(&message.content).replace('\r', "");
        for to in &message.to {
            add(&content, format!("{hop}: {} to {to}", named(&message.from)));
        }
    }
    for (place, message) in machine.take_messages() {
        add(&message, place);
    }
    found
}

/// Returns what became of each envelope.
fn outcomes(
    replies: &[String],
    arrivals: &BTreeMap<usize, BTreeSet<String>>,
    is_queued: impl Fn(usize, &str) -> bool,
) -> Vec<String> {
    let outcome = |(number, reply): (usize, &String)| {
        let mut places = arrivals.get(&number).cloned().unwrap_or_default();
        match reply.chars().next() {
            Some('5') => drop(places.insert("refused".to_owned())),
            Some('2') if !is_queued(number, reply) => {}
            _ => drop(places.insert("waits".to_owned())),
        }
        if places.is_empty() {
            "nothing".to_owned()
        } else {
            places.into_iter().collect::<Vec<_>>().join("; ")
        }
    };
    replies.iter().enumerate().map(outcome).collect()
}

/// Adds the subjects of the messages in a queue of Postfix. Copies that local(8) sends on have ids of their own.
fn subjects(dir: &Path, found: &mut BTreeSet<String>) {
    for path in fs::read_dir(dir).into_iter().flatten().map_while(Result::ok).map(|entry| entry.path()) {
        if path.is_dir() {
            subjects(&path, found);
            continue;
        }
        let content = String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned();
        let subject = content.split("Subject: ").nth(1).and_then(|rest| rest.split('.').next());
        found.extend(subject.map(str::to_owned));
    }
}

/// Replies that differ, with a part of Postfix's and of Postrider's, and of what the report says of them: aliases in a loop are
/// refused for good (docs/addresses.md), and unknown users are, also where other mail of the domain waits.
const REPORTED: &[[&str; 3]] = &[
    ["Alias expansion error", "An alias leads back to itself", "where Postfix defers it"],
    ["Recipient address rejected: later", "User unknown", "is refused at once"],
];

/// Returns whether an envelope ends in the same way: each outcome stands before its reply.
fn are_alike(envelope: &Envelope, [theirs, ours]: [(&str, &str); 2], report: &str) -> bool {
    // Where a notification to another sender arrives does not matter here, nor whether it can be sent.
    let parts = |outcome: &str| -> Vec<String> {
        let is_returned = outcome.contains("refused");
        let is_known = |part: &&str| {
            envelope.from == "a@from.example"
                || !(matches!(*part, "refused" | "nothing") || is_returned && *part == "waits")
        };
        outcome.split("; ").filter(is_known).map(str::to_owned).collect()
    };
    // Postfix does not run with these settings.
    theirs.1 == "closed"
        || parts(theirs.0) == parts(ours.0)
        || REPORTED
            .iter()
            .any(|[old, new, told]| theirs.1.contains(old) && ours.1.contains(new) && report.contains(told))
}

/// Sends the envelopes of a set to both programs.
fn compare(bench: &mut Bench, set: &Set) -> Comparison {
    bench.round += 1;
    set.write(bench);
    let Bench { machine, world, round, .. } = &*bench;
    let _ = fs::remove_dir_all(machine.var("mail/vhosts"));
    let _ = fs::remove_file(machine.var("log/postfix.log"));
    machine.own("mail/vhosts", 61001);
    for queue in ["deferred", "defer", "hold"] {
        let _ = fs::remove_dir_all(machine.var("spool/postfix").join(queue));
    }
    let running = <postfix::Postfix as super::Other>::start(machine);
    let subject = format!("old {round}");
    let their_replies = send(&set.envelopes, &subject);
    super::Other::wait_until_idle(&running, machine);
    let mut deferred = BTreeSet::new();
    subjects(&machine.var("spool/postfix/deferred"), &mut deferred);
    let is_deferred = |number, _: &str| deferred.contains(&format!("{subject} {number}"));
    // The notification may go nowhere.
    let log = fs::read_to_string(machine.var("log/postfix.log")).unwrap_or_default();
    let bounced: Vec<&str> = log.lines().filter(|line| line.contains("status=bounced")).collect();
    let mut arrived = arrivals(machine, world, &subject);
    for (number, reply) in their_replies.iter().enumerate().filter(|(_, reply)| reply.starts_with('2')) {
        let id = reply.split_whitespace().last().unwrap_or_default();
        let is_of = |line: &&str, id: &str| line.contains(&format!(" {id}:"));
        // local(8) sends what aliases lead to as another message.
        let others = log.lines().filter(|line| is_of(line, id));
        let others =
            others.filter_map(|line| Some(line.split_once("forwarded as ")?.1.trim_end_matches(')')));
        let ids: Vec<&str> = others.chain([id]).collect();
        if bounced.iter().any(|line| ids.iter().any(|id| is_of(line, id))) {
            arrived.entry(number).or_default().insert("refused".to_owned());
        }
    }
    let theirs = outcomes(&their_replies, &arrived, is_deferred);
    drop(running);
    until("Postfix has ended", || TcpStream::connect(SERVER).is_err());
    let _ = fs::remove_dir_all(machine.var("mail/vhosts"));
    machine.own("mail/vhosts", 0);
    let _ = fs::remove_dir_all(machine.dir.path().join("postrider"));
    let _ = fs::remove_dir_all(machine.var("lib/postrider"));
    fs::create_dir_all(machine.var("lib/postrider")).unwrap();
    let (postrider, report) = machine.start_imported("postfix", "/etc/postfix");
    let subject = format!("new {round}");
    let replies = send(&set.envelopes, &subject);
    let mut queue = String::new();
    until("Postrider has tried all", || {
        queue = postrider.queue();
        !["\"ready\"", "\"in-flight\""].iter().any(|status| queue.contains(status))
    });
    let is_queued = |_, reply: &str| queue.contains(reply.split_whitespace().last().unwrap_or_default());
    let ours = outcomes(&replies, &arrivals(machine, world, &subject), is_queued);
    drop(postrider);
    until("Postrider has ended", || TcpStream::connect(SERVER).is_err());
    let differ = (0..theirs.len()).find(|at| {
        let both = [(&*theirs[*at], &*their_replies[*at]), (&*ours[*at], &*replies[*at])];
        !are_alike(&set.envelopes[*at], both, &report)
    });
    let shown = |outcome: &str, reply: &str| format!("{outcome} ({reply})");
    let different =
        differ.map(|at| (at, shown(&theirs[at], &their_replies[at]), shown(&ours[at], &replies[at])));
    Comparison { different, report }
}

/// Compares a set. Returns a difference that the report does not tell; `told` gets the settings that it tells of, where there is one.
fn silent(
    bench: &mut Bench,
    set: &Set,
    told: &mut BTreeSet<&'static str>,
) -> Option<(Set, usize, String, String)> {
    let mut set = set.clone();
    loop {
        // An import whose result is refused is a difference, too.
        let compared = std::panic::AssertUnwindSafe(|| compare(bench, &set));
        let Ok(Comparison { different, report }) = std::panic::catch_unwind(compared) else {
            return Some((set, 0, "runs".to_owned(), "does not start".to_owned()));
        };
        let (envelope, theirs, ours) = different?;
        match set.without_told(&report) {
            Some(less) => {
                if std::env::var_os("POSTRIDER_TEST_TOLD").is_some() {
                    println!("{:?}: Postfix {theirs}, Postrider {ours}", set.envelopes[envelope]);
                    set.told(&report).iter().for_each(|(_, line)| println!("  {line}"));
                }
                let is_left = |name: &str| less.settings.iter().any(|(other, _)| *other == name);
                told.extend(set.settings.iter().map(|(name, _)| *name).filter(|name| !is_left(name)));
                set = less;
            }
            None => return Some((set, envelope, theirs, ours)),
        }
    }
}

/// Compares sets. Returns the small ones that differ.
pub(crate) fn check() -> Option<()> {
    program("postfix")?;
    let certificates = tempfile::tempdir().unwrap();
    let world = World::start(certificates.path())?;
    let files = [("postfix/main.cf", BASE.to_owned()), ("postfix/boxes", BOXES.to_owned())];
    let machine = postfix::machine(&files)?;
    let (postgres, mariadb) = (Postgres::start(""), MariaDb::start(&[]));
    let mut bench = Bench { machine, world, postgres, mariadb, round: 0 };
    let (seed, count) = (seed(), number("POSTRIDER_TEST_COUNT").unwrap_or(5));
    let most = number("POSTRIDER_TEST_SMALL").unwrap_or(1);
    let mut dice = Dice::new(seed);
    let (mut found, mut told, mut tally) = (Vec::new(), 0, BTreeMap::<&str, usize>::new());
    let mut skipped = 0;
    for _ in 0..count {
        let set = Set::generate(&mut dice);
        if !set.can_run(&bench) {
            skipped += 1;
            continue;
        }
        let mut names = BTreeSet::new();
        let different = silent(&mut bench, &set, &mut names);
        told += usize::from(!names.is_empty());
        names.iter().for_each(|name| *tally.entry(name).or_default() += 1);
        let Some((mut set, mut envelope, mut theirs, mut ours)) = different else { continue };
        if (found.len() as u64) < most {
            loop {
                // One envelope is enough.
                set.envelopes = vec![set.envelopes[envelope].clone()];
                let next = set.smaller().into_iter().find_map(|set| silent(&mut bench, &set, &mut names));
                match next {
                    Some((less, _, old, new)) => (set, envelope, theirs, ours) = (less, 0, old, new),
                    None => break,
                }
            }
        }
        let text = format!(
            "{:?}: Postfix {theirs}, Postrider {ours}\n{}",
            set.envelopes[envelope.min(set.envelopes.len() - 1)],
            set.show()
        );
        println!("{text}");
        found.push(text);
    }
    println!(
        "seed {seed}: {count} sets, {ENVELOPES} envelopes each; {skipped} not run; {told} of them alike without settings that the report names: {tally:?}"
    );
    assert!(found.is_empty(), "seed {seed}: {} of {count} sets differ:\n{}", found.len(), found.join("\n"));
    Some(())
}
