//! Debian's Exim, with configurations that its own tool writes.

use super::{
    Other, SetUp,
    machine::{Machine, Running},
    sendmail::Choices,
    world::SERVER,
};
use std::{
    collections::BTreeSet,
    fs,
    process::Command,
    time::{Duration, Instant},
};

const USER: u32 = 64323;

/// Answers to Debian's questions, as its package writes them; the address of the listener is the test's.
fn answers(kind: &str, more: &[(&str, &str)]) -> String {
    let usual = [
        ("dc_eximconfig_configtype", kind),
        ("dc_other_hostnames", "mx.test"),
        ("dc_local_interfaces", "198.51.100.1"),
        ("dc_readhost", ""),
        ("dc_relay_domains", ""),
        ("dc_minimaldns", "false"),
        ("dc_relay_nets", ""),
        ("dc_smarthost", ""),
        ("CFILEMODE", "644"),
        ("dc_use_split_config", "false"),
        ("dc_hide_mailname", ""),
        ("dc_mailname_in_oh", "true"),
        ("dc_localdelivery", "mail_spool"),
    ];
    let value = |(name, usual): &(&str, &str)| {
        let given = more.iter().find(|(other, _)| other == name).map_or(*usual, |(_, value)| value);
        format!("{name}='{given}'\n")
    };
    usual.iter().map(value).collect()
}

/// A way to virtual domains that many sites of Debian have: a directory with a file for each domain.
const VDOM: &str = "vdom_aliases:\n  driver = redirect\n  allow_defer\n  allow_fail\n  domains = dsearch;/etc/exim4/virtual\n\
                    \x20 data = ${expand:${lookup{$local_part}lsearch*@{/etc/exim4/virtual/$domain_data}}}\n  retry_use_local_part\n\
                    \x20 pipe_transport = address_pipe\n  file_transport = address_file\n";

/// A configuration in one file, as Exim's own example has it, with maps of a hosting site.
const WHOLE: &str = "primary_hostname = mx.test\nqualify_domain = mx.test\n\
    domainlist local_domains = @ : localhost : lsearch;/etc/exim4/virtual-domains\ndomainlist relay_to_domains = lsearch;/etc/exim4/mailertable\n\
    hostlist relay_from_hosts = <; 127.0.0.1 ; ::1 ; 198.51.100.0/24\nlocal_interfaces = 198.51.100.1\n\
    acl_smtp_rcpt = acl_check_rcpt\nacl_smtp_data = acl_check_data\nhost_lookup = *\nnever_users = root\nkeep_environment =\n\
    spool_directory = /var/spool/exim4\nlog_file_path = /var/log/exim4/%slog\npid_file_path = /run/exim4/exim.pid\n\
    tls_advertise_hosts =\nignore_bounce_errors_after = 2d\ntimeout_frozen_after = 7d\nsplit_spool_directory = true\n\
    begin acl\nacl_check_rcpt:\n  accept hosts = :\n  deny message = Restricted characters in address\n       domains = +local_domains\n\
    \x20      local_parts = ^[.] : ^.*[@%!/|]\n  accept local_parts = postmaster\n         domains = +local_domains\n\
    \x20 deny message = $sender_address is not welcome here\n       senders = lsearch*@;/etc/exim4/blocked-senders\n\
    \x20 accept hosts = +relay_from_hosts\n         control = submission\n  accept authenticated = *\n         control = submission\n\
    \x20 require message = relay not permitted\n          domains = +local_domains : +relay_to_domains\n  require verify = recipient\n  accept\n\
    acl_check_data:\n  accept\n\
    begin routers\nmailertable:\n  driver = manualroute\n  domains = lsearch;/etc/exim4/mailertable\n\
    \x20 route_data = ${lookup{$domain}lsearch{/etc/exim4/mailertable}}\n  transport = remote_smtp\n\
    dnslookup:\n  driver = dnslookup\n  domains = ! +local_domains\n  transport = remote_smtp\n  ignore_target_hosts = 0.0.0.0 : 127.0.0.0/8\n  no_more\n\
    virtual:\n  driver = redirect\n  allow_fail\n  allow_defer\n  domains = lsearch;/etc/exim4/virtual-domains\n\
    \x20 data = ${lookup{$local_part@$domain}lsearch*@{/etc/exim4/virtual}}\n\
    virtual_rest:\n  driver = redirect\n  domains = lsearch;/etc/exim4/virtual-domains\n  allow_fail\n  data = :fail: Unknown user\n\
    system_aliases:\n  driver = redirect\n  allow_fail\n  allow_defer\n  data = ${lookup{$local_part}lsearch{/etc/aliases}}\n\
    localuser:\n  driver = accept\n  check_local_user\n  local_part_suffix = +*\n  local_part_suffix_optional\n  transport = local_delivery\n\
    begin transports\nremote_smtp:\n  driver = smtp\nlocal_delivery:\n  driver = appendfile\n  file = /var/mail/$local_part_data\n\
    \x20 delivery_date_add\n  envelope_to_add\n  return_path_add\n  group = mail\n  mode = 0660\n\
    begin retry\n* * F,2h,15m; G,16h,1h,1.5; F,4d,6h\nbegin rewrite\nbegin authenticators\n";

const BLOCKED: &[(&str, &str)] = &[
    ("exim4/local_sender_blacklist", "*@bad.example\nbad@sender.example\n"),
    ("exim4/local_host_blacklist", "192.0.2.0/25\n!192.0.2.10\n192.0.2.0/24\n"),
    ("exim4/local_sender_whitelist", "joe@example.com\n"),
];

/// Returns the set-ups: what `/etc` has in each of them.
pub(crate) fn set_ups() -> Vec<SetUp> {
    let set_up = |name, kind, more: &[(&str, &str)], files: &[(&'static str, &str)], domains| SetUp {
        name,
        files: std::iter::once(("exim4/update-exim4.conf.conf", answers(kind, more)))
            .chain(files.iter().map(|(name, text)| (*name, (*text).to_owned())))
            .collect(),
        domains,
    };
    let relayed = &["example.org", "mx.test", "far.example", "sub.example.org", "localhost"];
    let mut set_ups = vec![
        set_up("Debian: internet site", "internet", &[], &[], super::envelopes::USUAL),
        set_up("Debian: local only", "local", &[], &[], super::envelopes::USUAL),
        set_up(
            "Debian: smarthost with a login",
            "smarthost",
            &[("dc_smarthost", "mail.isp.example::587"), ("dc_other_hostnames", "mx.test;example.com")],
            &[("exim4/passwd.client", "mail.isp.example:bob:secret\n")],
            super::envelopes::USUAL,
        ),
        set_up(
            "Debian: relay for a network",
            "internet",
            &[("dc_relay_nets", "198.51.100.0/24"), ("dc_other_hostnames", "mx.test:example.com")],
            &[("exim4/hubbed_hosts", "partner.example: hub.example.com\n*.example.org: old.example.com\n")],
            &["mx.test", "example.com", "partner.example", "example.org", "sub.example.org", "far.example", "nowhere.example"],
        ),
        set_up(
            "Debian: backup MX",
            "internet",
            &[("dc_relay_domains", "example.org ; partner.example"), ("dc_use_split_config", "true")],
            &[],
            relayed,
        ),
        set_up(
            "Debian: split configuration with virtual domains",
            "internet",
            &[("dc_use_split_config", "true"), ("dc_relay_nets", "198.51.100.0/24"), ("dc_other_hostnames", "mx.test;example.com;catch.example")],
            &[
                ("exim4/conf.d/router/350_local-vdom_aliases", VDOM),
                ("exim4/virtual/example.com", "info: joe, ann@far.example\nsales: sales@mx.test\nboss: :fail: No such person\nabuse: joe@mx.test\n"),
                ("exim4/virtual/catch.example", "joe: ann\n*: joe@far.example\n"),
            ],
            &["mx.test", "example.com", "catch.example", "far.example", "localhost"],
        ),
        set_up(
            "Debian: access lists",
            "internet",
            &[("dc_other_hostnames", "mx.test;example.com"), ("dc_relay_nets", "198.51.100.0/24")],
            BLOCKED,
            &["mx.test", "example.com", "mx.test", "far.example"],
        ),
        SetUp {
            name: "one file: virtual users, mailertable, a list of senders",
            files: [
                ("exim4/exim4.conf", WHOLE),
                ("exim4/virtual-domains", "example.com:\ncatch.example:\n"),
                ("exim4/virtual", "info@example.com: joe@mx.test, ann@far.example\nsales@example.com: sales@mx.test\nabuse@example.com: joe@mx.test\npostmaster@example.com: joe@mx.test\n*@catch.example: joe@far.example\n"),
                ("exim4/mailertable", "partner.example: hub.example.com\nexample.org: old.example.com\n"),
                ("exim4/blocked-senders", "bad@sender.example:\n*@bad.example:\n"),
            ].map(|(name, text)| (name, text.to_owned())).into(),
            domains: &["mx.test", "example.com", "catch.example", "partner.example", "example.org", "sub.example.org", "far.example"],
        },
    ];
    // The variable has seeds, such as `5 6 7`.
    let seeds = std::env::var("POSTRIDER_TEST_SEEDS").unwrap_or_default();
    set_ups.extend(seeds.split_whitespace().map(|seed| generated(seed.parse().unwrap())));
    set_ups
}

const HOSTS: [&str; 8] = [
    "192.0.2.66",
    "203.0.113.0/24",
    "+relay_from_hosts",
    "! +relay_from_hosts",
    "*.far.example",
    "!203.0.113.9 : 203.0.113.0/24",
    "!192.0.2.0/24",
    "192.0.2.66 : ! +friends : 198.51.100.7",
];
const SENDERS: [&str; 7] = [
    "*@bad.example",
    "bad@sender.example",
    ":",
    "! *@from.example",
    "!joe@example.com : *@example.com",
    "+known : mx.test",
    "^.*@[bs]",
];
const DOMAINS: [&str; 6] = [
    "+local_domains",
    "+relay_to_domains",
    "! +local_domains",
    "example.org",
    "!example.com : +local_domains",
    "*.example.org : partner.example",
];
const NAMES: [&str; 5] = ["sales", "info : ann", "! joe : ! ann", "^[ai]", "! ^.*n\\$"];

/// Lists that statements of generated set-ups name.
const NAMED: &str =
    "hostlist friends = 198.51.100.0/25 : 203.0.113.9\naddresslist known = a@from.example : *@bad.example\n";

/// Returns a condition, or a modifier, of a statement.
fn condition(choices: &mut Choices, is_inner: bool) -> String {
    let negation = if choices.below(4) == 0 { "!" } else { "" };
    match choices.below(10) {
        0 | 1 => format!("    {negation}hosts = {}\n", choices.one(&HOSTS)),
        2 | 3 => format!("    {negation}senders = {}\n", choices.one(&SENDERS)),
        4 | 5 => format!("    {negation}domains = {}\n", choices.one(&DOMAINS)),
        6 => format!("    {negation}local_parts = {}\n", choices.one(&NAMES)),
        7 => format!(
            "    {negation}recipients = {}\n",
            choices.one(&["sales@example.com : ann@mx.test", "*@example.org"])
        ),
        8 if !is_inner => format!("    {negation}acl = acl_inner\n"),
        _ => format!(
            "    {negation}{}\n",
            choices.one(&["authenticated = *", "sender_domains = from.example : !mx.test", "encrypted = *"])
        ),
    }
}

/// Returns random statements of an access control list.
fn statements(choices: &mut Choices, count: usize, is_inner: bool) -> String {
    let mut acl = String::new();
    let end = choices.below(count);
    for place in 0..count {
        if place == end && !is_inner {
            acl += "  accept hosts = +relay_from_hosts\n    control = submission\n";
        }
        let verbs = [
            "deny",
            "deny message = no",
            "defer",
            "drop",
            "accept",
            "accept",
            "discard",
            "require",
            "warn add_header = X-Seen: yes",
        ];
        // A list that is asked refuses or accepts.
        let verb = if is_inner {
            choices.one(&["deny", "accept", "accept", "require"])
        } else {
            choices.one(&verbs)
        };
        acl += &format!("  {verb}\n");
        for _ in 0..=choices.below(3) {
            acl += &condition(choices, is_inner);
        }
        if verb == "accept" && choices.below(3) == 0 {
            acl += &format!("    endpass\n{}", condition(choices, is_inner));
        }
    }
    acl
}

/// Returns a set-up with lists of statements that are made by chance.
pub(crate) fn generated(seed: u64) -> SetUp {
    let mut choices = Choices(seed * 7_919 + 12_345);
    let count = 3 + choices.below(3);
    let mut acl = format!("  accept hosts = :\n{}", statements(&mut choices, count, false));
    // Most sites end in this way.
    acl += choices.one(&[
        "  require message = relay not permitted\n    domains = +local_domains : +relay_to_domains\n  require verify = recipient\n  accept\n",
        "  require message = relay not permitted\n    domains = +local_domains : +relay_to_domains\n  require verify = recipient\n  accept\n",
        "  accept domains = +local_domains\n    endpass\n    verify = recipient\n  accept domains = +relay_to_domains\n",
        "  deny !domains = +local_domains : +relay_to_domains\n    !hosts = +relay_from_hosts\n  deny !verify = recipient\n  accept\n",
    ]);
    acl += &format!("acl_inner:\n{}", statements(&mut choices, 2, true));
    let begin = WHOLE.find("  accept hosts = :").unwrap();
    let rest = WHOLE.find("acl_check_data:").unwrap();
    SetUp {
        name: Box::leak(format!("generated, seed {seed}:\n{acl}").into_boxed_str()),
        files: [
            ("exim4/exim4.conf", format!("{NAMED}{}{acl}{}", &WHOLE[..begin], &WHOLE[rest..])),
            ("exim4/virtual-domains", "example.com:\n".to_owned()),
            ("exim4/virtual", "info@example.com: joe@mx.test\nsales@example.com: sales@mx.test\n".to_owned()),
            (
                "exim4/mailertable",
                "partner.example: hub.example.com\nexample.org: old.example.com\n".to_owned(),
            ),
        ]
        .into(),
        domains: &[
            "mx.test",
            "example.com",
            "partner.example",
            "example.org",
            "sub.example.org",
            "far.example",
        ],
    }
}

/// An Exim that runs on a machine.
pub(crate) struct Exim(Running);

impl Other for Exim {
    const IMPORT: [&'static str; 2] = ["exim", "/etc/exim4"];

    fn machine(set_up: &SetUp) -> Option<Machine> {
        let machine = Machine::new("exim4-daemon-light", &[("Debian-exim", USER)])?;
        let package = crate::common::unpacked("exim4-daemon-light")?.join("etc/exim4");
        let copied = Command::new("cp").arg("-r").arg(package).arg(machine.tree.etc()).status().unwrap();
        assert!(copied.success());
        set_up.files.iter().for_each(|(name, text)| machine.write(name, text));
        // The package gives it to Exim's group.
        let group = rustix::fs::Gid::from_raw(USER);
        rustix::fs::chown(machine.etc("exim4/passwd.client"), None, Some(group)).unwrap();
        for name in ["spool/exim4", "log/exim4", "lib/exim4"] {
            machine.own(name, USER);
        }
        fs::create_dir_all(machine.dir.path().join("run/exim4")).unwrap();
        machine.run("/usr/sbin/update-exim4.conf", &[]);
        Some(machine)
    }

    fn start(machine: &Machine) -> Self {
        let mut command = machine.tree.command("/usr/sbin/exim4");
        command.args(["-bdf", "-q30m"]);
        Self(machine.start(command, SERVER))
    }

    fn wait_until_idle(&self, machine: &Machine) {
        let _ = &self.0;
        wait_until_tried(machine);
        // What was deferred for a moment is tried once more, as the queue runner does.
        machine.run("/usr/sbin/exim4", &["-qff"]);
        wait_until_tried(machine);
        if std::env::var_os("POSTRIDER_TEST_LOG").is_some() {
            println!("{}", fs::read_to_string(machine.var("log/exim4/mainlog")).unwrap_or_default());
        }
    }
}

fn wait_until_tried(machine: &Machine) {
    let begun = Instant::now();
    loop {
        let log = fs::read_to_string(machine.var("log/exim4/mainlog")).unwrap_or_default();
        let mut open = BTreeSet::new();
        let lines = log.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        for words in lines.filter(|words| words.len() > 3) {
            if words[3] == "<=" {
                open.insert(words[2]);
            } else if matches!(words[3], "Completed" | "==" | "Frozen") {
                open.remove(words[2]);
            }
        }
        if open.is_empty() {
            return;
        }
        assert!(begun.elapsed() < crate::common::WAIT_TIMEOUT, "Exim has not tried {open:?}: {log}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}
