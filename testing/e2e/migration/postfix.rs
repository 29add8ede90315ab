//! Debian's Postfix as its package configures it. Set-ups of sites are in the test `from_postfix`.

use super::{
    Other, SetUp,
    machine::{Machine, Running},
    world::SERVER,
};
use crate::common::postfix::DEBIAN_MAIN;
use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

const USERS: [(&str, u32); 2] = [("postfix", 64321), ("postdrop", 64322)];

/// Returns the set-ups that are tried.
pub(crate) fn set_ups() -> Vec<SetUp> {
    // The address of the listener and the log are those of the test.
    let own = "inet_interfaces = 198.51.100.1\nmaillog_file = /var/log/postfix.log\n";
    let files = vec![("postfix/main.cf", format!("{DEBIAN_MAIN}{own}"))];
    let site = format!(
        "{own}compatibility_level = 3.6\nmyhostname = mx.test\nmydestination = mx.test, localhost\nmynetworks = 127.0.0.0/8, 198.51.100.0/24\n\
         alias_maps = hash:/etc/aliases\nrelay_domains = partner.example, example.org\ntransport_maps = texthash:/etc/postfix/transport\n\
         virtual_alias_maps = texthash:/etc/postfix/virtual\nrecipient_delimiter = +\nsmtp_tls_security_level = may\n\
         smtpd_relay_restrictions = check_sender_access texthash:/etc/postfix/senders, permit_mynetworks, permit_auth_destination, reject\n"
    );
    let tables = [
        ("postfix/transport", "partner.example smtp:[203.0.113.22]:25\nnowhere.example discard:\n"),
        (
            "postfix/virtual",
            "example.com x\ninfo@example.com joe, ann@far.example\n@example.com sales@mx.test\n",
        ),
        ("postfix/senders", "bad@sender.example REJECT\nbad.example 450 later\n"),
    ];
    let tables = tables.into_iter().map(|(name, text)| (name, text.to_owned()));
    let gateway = SetUp {
        name: "a gateway with relay domains, transports, virtual aliases and a list of senders",
        files: std::iter::once(("postfix/main.cf", site)).chain(tables).collect(),
        domains: &[
            "mx.test",
            "partner.example",
            "example.org",
            "sub.example.org",
            "example.com",
            "far.example",
            "nowhere.example",
        ],
    };
    vec![SetUp { name: "Debian: internet site", files, domains: super::envelopes::USUAL }, gateway]
}

/// A Postfix that runs on a machine.
pub(crate) struct Postfix {
    stop: Command,
    _running: Running,
}

impl Drop for Postfix {
    fn drop(&mut self) {
        // Its processes do not end with the first one.
        let _ = self.stop.output();
    }
}

/// Returns a machine with Postfix's package and further files.
pub(crate) fn machine(files: &[(&'static str, String)]) -> Option<Machine> {
    crate::common::program("postfix")?;
    let machine = Machine::new(".", &USERS)?;
    let package = crate::common::unpacked(".")?;
    if package.join("etc/postfix").is_dir() {
        let mut copy = Command::new("cp");
        copy.arg("-r").arg(package.join("etc/postfix")).arg(machine.tree.etc());
        assert!(copy.status().unwrap().success());
    }
    files.iter().for_each(|(name, text)| machine.write(name, text));
    let shared = |name: &str| {
        let text = fs::read_to_string(package.join("usr/share/postfix").join(name));
        text.or_else(|_| fs::read_to_string(Path::new("/usr/share/postfix").join(name))).unwrap()
    };
    // No root directory of its own: it would need copies of files of /etc.
    let master: String = shared("master.cf.dist")
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_service = words.len() > 7 && !line.starts_with(['#', ' ']);
            if is_service && words[4] == "y" {
                let (head, tail) = (words[..4].join(" "), words[5..].join(" "));
                format!("{head} n {tail}\n")
            } else {
                format!("{line}\n")
            }
        })
        .collect();
    machine.write("postfix/master.cf", &master);
    machine.write("postfix/dynamicmaps.cf", &shared("dynamicmaps.cf"));
    machine.own("lib/postfix", USERS[0].1);
    machine.own("spool/postfix", 0);
    machine.run("postalias", &["-c", "/etc/postfix", &format!("hash:{}", machine.etc("aliases").display())]);
    Some(machine)
}

impl Postfix {
    /// Starts Postfix, and waits until it listens at an address.
    pub(crate) fn listening(machine: &Machine, address: SocketAddr) -> Self {
        let mut command = machine.tree.command("postfix");
        command.arg("start-fg");
        let mut stop = machine.tree.command("postfix");
        stop.arg("stop");
        Self { _running: machine.start(command, address), stop }
    }
}

impl Other for Postfix {
    const IMPORT: [&'static str; 2] = ["postfix", "/etc/postfix"];

    fn machine(set_up: &SetUp) -> Option<Machine> {
        machine(&set_up.files)
    }

    fn start(machine: &Machine) -> Self {
        Self::listening(machine, SERVER)
    }

    fn wait_until_idle(&self, machine: &Machine) {
        let begun = Instant::now();
        let count = |name: &str| files(&machine.var("spool/postfix").join(name));
        while ["maildrop", "incoming", "active"].into_iter().map(count).sum::<usize>() > 0 {
            assert!(begun.elapsed() < crate::common::WAIT_TIMEOUT, "Postfix has not tried all");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

fn files(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().map_while(Result::ok);
    entries.map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { 1 }).sum()
}
