//! Debian's Sendmail, with configurations that m4 makes of `sendmail.mc`.

use super::{
    Other, SetUp,
    machine::{Machine, Running, said},
    world::SERVER,
};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const USERS: [(&str, u32); 2] = [("smmsp", 64324), ("smmta", 64325)];
const PROGRAM: &str = "/usr/libexec/sendmail/sendmail";

/// A program that appends to the mailbox, as Debian's program of this name does without procmail. Its package is another one.
const MAILBOX: &str = "#!/bin/sh\nmail=$(mktemp)\n{ printf 'From %s %s\\n' \"$1\" \"$(date)\"; cat; echo; } >\"$mail\"\n\
                       flock /var/mail/.lock sh -c 'cat \"$0\" >>\"/var/mail/$1\"' \"$mail\" \"$2\"\n";

/// The access table of Debian's package; clients of the test are not slowed down.
const SLOW: &str = "GreetPause:198.51.100\t0\nGreetPause:203.0.113\t0\nGreetPause:192.0.2\t0\nClientRate:198.51.100\t0\n\
                    ClientRate:203.0.113\t0\nClientRate:192.0.2\t0\nClientConn:198.51.100\t0\nClientConn:203.0.113\t0\nClientConn:192.0.2\t0\n";

/// Returns a set-up: lines of `sendmail.mc` before MAILER_DEFINITIONS, and files below `/etc`.
fn set_up(
    name: &'static str,
    more: &str,
    files: &[(&'static str, &str)],
    domains: &'static [&'static str],
) -> SetUp {
    let files = files.iter().map(|(name, text)| (*name, (*text).to_owned()));
    SetUp { name, files: std::iter::once(("mail/more.mc", more.to_owned())).chain(files).collect(), domains }
}

/// Returns the set-ups that are tried.
pub(crate) fn set_ups() -> Vec<SetUp> {
    let relayed =
        &["example.org", "mx.test", "far.example", "sub.example.org", "localhost", "partner.example"];
    let mut set_ups = vec![
        set_up("Debian's sendmail.mc", "", &[], super::envelopes::USUAL),
        set_up(
            "smarthost with a login",
            "define(`SMART_HOST', `[mail.isp.example]')dnl\ndefine(`RELAY_MAILER_ARGS', `TCP $h 587')dnl\n\
             FEATURE(`authinfo', `hash /etc/mail/authinfo')dnl\n",
            &[("mail/authinfo", "AuthInfo:mail.isp.example \"U:bob\" \"P:secret\" \"M:PLAIN\"\n")],
            super::envelopes::USUAL,
        ),
        set_up(
            "relay for a network, masqueraded",
            "MASQUERADE_AS(`example.com')dnl\nFEATURE(`masquerade_envelope')dnl\n",
            &[
                ("mail/access.more", "Connect:198.51.100 RELAY\nTo:partner.example RELAY\n"),
                ("mail/local-host-names", "localhost\nmx.test\nexample.com\n"),
            ],
            &[
                "mx.test",
                "example.com",
                "partner.example",
                "sub.partner.example",
                "far.example",
                "nowhere.example",
                "localhost",
            ],
        ),
        set_up(
            "virtual users, mailertable and genericstable",
            "FEATURE(`virtusertable', `hash /etc/mail/virtusertable')dnl\nFEATURE(`mailertable', `hash /etc/mail/mailertable')dnl\n\
             FEATURE(`genericstable', `hash /etc/mail/genericstable')dnl\nGENERICS_DOMAIN(`mx.test')dnl\nFEATURE(`masquerade_envelope')dnl\n",
            &[
                ("mail/local-host-names", "localhost\nmx.test\nexample.com\ncatch.example\n"),
                (
                    "mail/virtusertable",
                    "info@example.com joe\nsales@example.com bob@far.example\nboss@example.com error:5.7.1:550 No mail for the boss\nunknown@example.com error:nouser No such user here\n@catch.example %1@far.example\n",
                ),
                (
                    "mail/mailertable",
                    "partner.example esmtp:[hub.example.com]\n.example.org relay:[old.example.com]\nclosed.example error:5.7.0:550 closed for good\nexample.org error:nouser No user here\n",
                ),
                ("mail/genericstable", "joe joe.smith@example.com\nann@mx.test ann.jones@example.com\n"),
                (
                    "mail/access.more",
                    "Connect:198.51.100 RELAY\nTo:partner.example RELAY\nTo:example.org RELAY\nTo:closed.example RELAY\n",
                ),
            ],
            &[
                "mx.test",
                "example.com",
                "catch.example",
                "partner.example",
                "sub.example.org",
                "example.org",
                "closed.example",
                "far.example",
            ],
        ),
        set_up("backup MX", "", &[("mail/relay-domains", "example.org\npartner.example\n")], relayed),
        set_up(
            "access lists",
            "FEATURE(`blocklist_recipients')dnl\n",
            &[
                ("mail/local-host-names", "localhost\nmx.test\nexample.com\n"),
                (
                    "mail/access.more",
                    "From:bad.example REJECT\nFrom:bad@sender.example ERROR:5.7.1:550 Not you\nFrom:joe@example.com OK\nConnect:203.0.113.9 OK\nConnect:203.0.113 REJECT\nTo:ann@example.com REJECT\nTo:sales@ ERROR:5.1.1:550 no sales here\nFrom:from.example DISCARD\nConnect:198.51.100 RELAY\n",
                ),
            ],
            &["mx.test", "example.com", "mx.test", "far.example"],
        ),
    ];
    // Seeds of further set-ups, such as `5 6 7`. Some of them still differ.
    let seeds = std::env::var("POSTRIDER_TEST_SEEDS").unwrap_or_default();
    set_ups.extend(seeds.split_whitespace().map(|seed| generated(seed.parse().unwrap())));
    set_ups
}

/// Choices that are always the same for a seed.
pub(crate) struct Choices(pub(crate) u64);

impl Choices {
    pub(crate) fn below(&mut self, count: usize) -> usize {
        // A generator of Lehmer; its numbers only have to differ.
        self.0 = self.0 * 48_271 % 0x7fff_ffff;
        (self.0 >> 8) as usize % count
    }

    pub(crate) fn one<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Returns lines of a table: keys, each once, and values.
    fn table(&mut self, count_max: usize, keys: &[&str], values: &[&str]) -> String {
        let mut lines = BTreeMap::new();
        for _ in 0..self.below(count_max + 1) {
            lines.insert(self.one(keys), self.one(values));
        }
        lines.iter().map(|(key, value)| format!("{key} {value}\n")).collect()
    }
}

const ACTIONS: [&str; 8] = [
    "OK",
    "RELAY",
    "REJECT",
    "DISCARD",
    "ERROR:5.7.1:550 not here",
    "ERROR:4.7.1:451 later",
    "550 no",
    "451 later",
];
const CLIENTS: [&str; 8] = [
    "198.51.100",
    "198.51.100.7",
    "203.0.113",
    "203.0.113.9",
    "192.0.2.66",
    "near.example",
    "far.example",
    "net.example",
];
const SENDERS: [&str; 7] = [
    "from.example",
    "bad.example",
    "bad@sender.example",
    "joe@",
    "joe@example.com",
    "sender.example",
    "example",
];
const RECIPIENTS: [&str; 8] = [
    "ann@example.com",
    "sales@",
    "example.com",
    "mx.test",
    "partner.example",
    "far.example",
    "sub.example.org",
    "example.org",
];

/// Domains that recipients are in.
const DOMAINS: &[&str] = &[
    "mx.test",
    "example.com",
    "catch.example",
    "partner.example",
    "sub.partner.example",
    "example.org",
    "sub.example.org",
    "far.example",
    "nowhere.example",
];

/// Comments: Debian's line with this feature is left out; only `sendmail.cf` is there when it is imported.
const NO_DELAY: &str = "dnl without delay_checks\n";
const NO_MC: &str = "dnl without sendmail.mc\n";

/// Returns a set-up that is made by chance: features, tables and lists of domains.
pub(crate) fn generated(seed: u64) -> SetUp {
    let mut choices = Choices(seed * 7_919 + 12_345);
    let mut mc = "FEATURE(`virtusertable', `hash /etc/mail/virtusertable')dnl\nFEATURE(`mailertable', `hash /etc/mail/mailertable')dnl\n".to_owned();
    for (chance, text) in [
        (2, "FEATURE(`blocklist_recipients')dnl\n"),
        (3, "FEATURE(`delay_checks')dnl\n"),
        (4, "FEATURE(`relay_hosts_only')dnl\n"),
        (6, "define(`MAIL_HUB', `[hub.example.com]')dnl\n"),
        (4, "define(`HUB', `[old.example.com]')dnl\ndefine(`SMART_HOST', HUB)dnl\n"),
        (5, "MASQUERADE_AS(`example.com')dnl\nFEATURE(`masquerade_envelope')dnl\n"),
        (5, "FEATURE(`relay_entire_domain')dnl\n"),
        (6, "define(`LUSER_RELAY', `[hub.example.com]')dnl\n"),
        (5, NO_DELAY),
        (4, NO_MC),
    ] {
        if choices.below(chance) == 0 {
            mc += text;
        }
    }
    let mut access = BTreeMap::new();
    for _ in 0..choices.below(9) {
        let (tag, keys): (&str, &[&str]) = choices.one(&[
            ("Connect:", &CLIENTS[..]),
            ("From:", &SENDERS),
            ("To:", &RECIPIENTS),
            ("", &CLIENTS),
            ("", &SENDERS),
            ("", &RECIPIENTS),
        ]);
        access.insert(format!("{tag}{}", choices.one(keys)), choices.one(&ACTIONS));
    }
    let access: String = access.iter().map(|(key, value)| format!("{key} {value}\n")).collect();
    let mut names = |all: &[&str]| {
        all.iter().filter(|_| choices.below(2) == 0).map(|name| format!("{name}\n")).collect::<String>()
    };
    let (local, relayed) = (
        names(&["example.com", "catch.example"]),
        names(&["example.org", "partner.example", "198.51.100.7"]),
    );
    let virtuals = choices.table(
        6,
        &[
            "info@example.com",
            "sales@example.com",
            "boss@catch.example",
            "unknown@example.com",
            "@catch.example",
            "@example.com",
            "joe@mx.test",
        ],
        &[
            "joe",
            "bob@far.example",
            "error:5.7.1:550 not for the boss",
            "error:nouser no such user",
            "%1@far.example",
            "%1-x@far.example",
            "ann@mx.test",
        ],
    );
    let mailers = choices.table(
        4,
        &["partner.example", ".example.org", "example.org", "far.example", "example.com", "."],
        &[
            "esmtp:[hub.example.com]",
            "relay:[old.example.com]",
            "error:5.7.0:550 closed",
            "error:4.7.0:451 later",
            "[hub.example.com]",
            "smtp:[hub.example.com]:[old.example.com]",
            "local:",
        ],
    );
    // What comes last leaves the other choices of a seed as they were.
    let domains = choices.table(
        2,
        &["nowhere.example", "sub.partner.example", "catch.example"],
        &["mx.test", "example.com", "partner.example", "far.example"],
    );
    if choices.below(3) == 0 {
        mc += "FEATURE(`domaintable', `hash /etc/mail/domaintable')dnl\n";
    }
    SetUp {
        name: Box::leak(format!("generated, seed {seed}").into_boxed_str()),
        files: [
            ("mail/more.mc", mc),
            ("mail/access.more", access),
            ("mail/local-host-names", format!("localhost\nmx.test\n{local}")),
            ("mail/relay-domains", relayed),
            ("mail/virtusertable", virtuals),
            ("mail/mailertable", mailers),
            ("mail/domaintable", domains),
        ]
        .into(),
        domains: DOMAINS,
    }
}

/// A Sendmail that runs on a machine.
pub(crate) struct Sendmail(Running);

impl Other for Sendmail {
    const IMPORT: [&'static str; 2] = ["sendmail", "/etc/mail"];

    fn machine(set_up: &SetUp) -> Option<Machine> {
        let machine = Machine::new("sendmail-bin", &USERS)?;
        let package = crate::common::unpacked("sendmail-bin")?;
        let copied =
            Command::new("cp").arg("-r").arg(package.join("etc/mail")).arg(machine.tree.etc()).status();
        assert!(copied.unwrap().success());
        let program = machine.dir.path().join("usr/sbin/sensible-mda");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, MAILBOX).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mc = package.join("usr/share/sendmail/cf/debian/sendmail.mc");
        let mc = fs::read_to_string(mc).unwrap().replace("Addr=127.0.0.1", "Addr=198.51.100.1");
        let access = fs::read_to_string(package.join("usr/share/sendmail/examples/db/access")).unwrap();
        machine.write("mail/local-host-names", "localhost\nmx.test\n");
        for name in ["mail/m4/dialup.m4", "mail/m4/provider.m4", "mail/trusted-users", "mail/relay-domains"] {
            machine.write(name, "");
        }
        fs::copy(machine.etc("aliases"), machine.etc("mail/aliases")).unwrap();
        set_up.files.iter().for_each(|(name, text)| machine.write(name, text));
        let of = |wanted: &str| {
            let file = set_up.files.iter().find(|(name, _)| *name == wanted);
            file.map_or("", |(_, text)| &**text)
        };
        machine.write("mail/access", &format!("{access}{SLOW}{}", of("mail/access.more")));
        // The load of the real machine is no matter.
        let load = "define(`confQUEUE_LA', `1000')dnl\ndefine(`confREFUSE_LA', `1000')dnl\ndefine(`confDELAY_LA', `1000')dnl\n\
             define(`confBAD_RCPT_THROTTLE', `1000')dnl\n";
        let mc =
            mc.replace("MAILER_DEFINITIONS\n", &format!("{load}{}MAILER_DEFINITIONS\n", of("mail/more.mc")));
        let delay = "FEATURE(`delay_checks', `friend', `n')dnl\n";
        let mc = if mc.contains(NO_DELAY) { mc.replace(delay, "") } else { mc };
        machine.write("mail/sendmail.mc", &mc);
        let made = machine.run("m4", &["/etc/mail/sendmail.mc"]);
        fs::write(machine.etc("mail/sendmail.cf"), made.stdout).unwrap();
        if mc.contains(NO_MC) {
            fs::remove_file(machine.etc("mail/sendmail.mc")).unwrap();
        }
        for (name, id) in [("spool/mqueue", 0), ("spool/mqueue-client", 64324), ("lib/sendmail", 64325)] {
            machine.own(name, id);
        }
        fs::set_permissions(machine.var("spool/mqueue"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::create_dir_all(machine.var("lib/sendmail/host_status")).unwrap();
        for dir in [machine.dir.path().join("run"), machine.var("run")] {
            fs::create_dir_all(dir.join("sendmail/mta")).unwrap();
        }
        // /etc cannot be written by the programs themselves.
        for name in ["access", "virtusertable", "mailertable", "genericstable", "authinfo", "domaintable"] {
            let table = machine.etc(&format!("mail/{name}"));
            let Ok(text) = fs::File::open(&table) else { continue };
            let mut command = machine.tree.command("/usr/libexec/sendmail/makemap");
            let output = command.arg("hash").arg(&table).stdin(text).stderr(Stdio::piped()).output().unwrap();
            assert!(output.status.success(), "{name}: {}", said(&output));
        }
        let aliases = format!("-oA{}", machine.etc("mail/aliases").display());
        machine.run(PROGRAM, &["-C", "/etc/mail/sendmail.cf", &aliases, "-bi"]);
        Some(machine)
    }

    fn start(machine: &Machine) -> Self {
        let mut command = machine.tree.command(PROGRAM);
        command.args(["-C", "/etc/mail/sendmail.cf", "-bD", "-q30m"]);
        Self(machine.start(command, SERVER))
    }

    fn wait_until_idle(&self, machine: &Machine) {
        let _ = &self.0;
        let begun = Instant::now();
        let queue = machine.var("spool/mqueue");
        // A message with several hosts is cut into several control files: it must stay idle for some time.
        let (mut idle_count, mut has_run) = (0, false);
        while idle_count < 50 {
            let names = fs::read_dir(&queue).unwrap().map(|entry| entry.unwrap().file_name());
            let names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
            // A control file that was tried has the time of the attempt.
            let was_tried = |name: &str| {
                let text = fs::read_to_string(queue.join(name)).unwrap_or_default();
                text.lines().any(|line| line.starts_with('K') && line != "K0")
            };
            let is_open =
                |name: &&String| name.starts_with("xf") || name.starts_with("qf") && !was_tried(name);
            let open: Vec<&String> = names.iter().filter(is_open).collect();
            idle_count = if open.is_empty() { idle_count + 1 } else { 0 };
            if !has_run && begun.elapsed() > Duration::from_secs(5) {
                // Under load, Sendmail leaves some mail to the next run of the queue.
                machine.run(PROGRAM, &["-C", "/etc/mail/sendmail.cf", "-q"]);
                has_run = true;
            }
            assert!(begun.elapsed() < crate::common::WAIT_TIMEOUT, "Sendmail has not tried {open:?}");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}
