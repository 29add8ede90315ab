//! The files of a machine, and the programs that work on them: the other server, the import, and Postrider.

use super::world::SERVER;
use crate::common::{BINARY, envelopes::named, tree::Tree, until};
use std::{
    fs,
    io::Read as _,
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};
use tempfile::TempDir;

/// Content of the aliases that each machine has.
const ALIASES: &str = "mailer-daemon: postmaster\npostmaster: root\nhostmaster: root\nabuse: postmaster\nroot: joe\n\
                       sales: ann, bob@far.example\ninfo: sales\n";

/// A machine with `/etc`, `/var` and `/run` of its own.
pub(crate) struct Machine {
    pub(crate) dir: TempDir,
    pub(crate) tree: Tree,
}

/// Ends a program when it is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

impl Machine {
    /// Returns a machine with the users joe and ann, and those of a package.
    pub(crate) fn new(package: &str, users: &[(&str, u32)]) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (mut passwd, mut group) = (String::new(), String::new());
        for (name, id) in [("joe", 61001), ("ann", 61002)].iter().chain(users) {
            passwd += &format!("{name}:x:{id}:{id}::/:/bin/sh\n");
            group += &format!("{name}:x:{id}:\n");
        }
        let tree = Tree::new(package, at("etc"), &[("passwd", &passwd), ("group", &group)])?
            .with_dir(at("var"), "/var")
            .with_dir(at("run"), "/run")
            .with_usr(at("usr"));
        let machine = Self { dir, tree };
        for name in ["mail", "tmp", "spool", "lib/postrider", "log", "run"] {
            fs::create_dir_all(machine.var(name)).unwrap();
        }
        for name in ["mail", "tmp"] {
            fs::set_permissions(machine.var(name), fs::Permissions::from_mode(0o1777)).unwrap();
        }
        machine.write("aliases", ALIASES);
        machine.write("mailname", "mx.test\n");
        machine.write("resolv.conf", "nameserver 127.0.0.53\n");
        machine.write("hosts", "127.0.0.1 localhost\n198.51.100.1 mx.test mx\n");
        machine.write("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n");
        Some(machine)
    }

    pub(crate) fn etc(&self, name: &str) -> PathBuf {
        self.tree.etc().join(name)
    }

    pub(crate) fn var(&self, name: &str) -> PathBuf {
        self.dir.path().join("var").join(name)
    }

    /// Writes a file below `/etc`.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.etc(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Makes a certificate the only one that programs trust.
    pub(crate) fn trust(&self, certificate: &Path) {
        let text = fs::read_to_string(certificate).unwrap();
        self.write("ssl/certs/ca-certificates.crt", &text);
        fs::write(self.dir.path().join("isp.pem"), text).unwrap();
    }

    /// Makes a directory below `/var` that belongs to a user.
    pub(crate) fn own(&self, name: &str, id: u32) {
        let path = self.var(name);
        fs::create_dir_all(&path).unwrap();
        let (user, group) = (rustix::fs::Uid::from_raw(id), rustix::fs::Gid::from_raw(id));
        rustix::fs::chown(path, Some(user), Some(group)).unwrap();
    }

    /// Runs a program that must succeed, and returns what it says.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let output = self.tree.command(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {}", said(&output));
        output
    }

    /// Starts a daemon and waits until it listens.
    pub(crate) fn start(&self, mut command: Command, address: SocketAddr) -> Running {
        let log = self.dir.path().join("start.log");
        let file = fs::File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let mut running = Running(command.spawn().unwrap());
        until("the server listens", || {
            let more = self.var("log/postfix.log");
            let text = || [&log, &more].map(|log| fs::read_to_string(log).unwrap_or_default()).concat();
            assert!(running.0.try_wait().unwrap().is_none(), "the server has ended: {}", text());
            // A socket may be left from the program before.
            let greets = |mut stream: TcpStream| stream.read(&mut [0]).is_ok_and(|count| count > 0);
            TcpStream::connect(address).is_ok_and(greets)
        });
        running
    }

    /// Imports the configuration of a server, and starts Postrider with it. Returns what the import says, too.
    pub(crate) fn start_imported(&self, server: &str, from: &str) -> (Imported<'_>, String) {
        let file = self.dir.path().join("postrider").join("postrider.toml");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let output = self.run(BINARY, &["import", server, from, "--output", &file.display().to_string()]);
        let toml = fs::read_to_string(&file).unwrap();
        // The certificate of the provider is one of the test, and the spool of a test is small.
        let ca = self.dir.path().join("isp.pem");
        let tls = format!("[tls]\nca_file = \"{}\"\n", ca.display());
        let toml = match toml.contains("[tls]\n") {
            _ if !ca.exists() => toml,
            true => toml.replace("[tls]\n", &tls),
            false => toml + &tls,
        };
        fs::write(&file, toml + "[spool]\nsegment_size = \"4MiB\"\nmin_free = \"16MiB\"\n").unwrap();
        let mut command = self.tree.command(BINARY);
        command.args(["serve", "--config"]).arg(&file);
        (Imported { running: self.start(command, SERVER), machine: self, file }, said(&output))
    }

    /// Removes the mailboxes, and returns the messages that they had: the subject and the delivery.
    pub(crate) fn take_mailboxes(&self) -> Vec<(String, String)> {
        let subject = |message: &str| {
            message.lines().find_map(|line| line.strip_prefix("Subject: ")).map(str::to_owned)
        };
        let messages = self.take_messages().into_iter();
        messages.filter_map(|(arrival, message)| Some((subject(&message)?, arrival))).collect()
    }

    /// Removes the mailboxes, and returns their deliveries, each with the message.
    pub(crate) fn take_messages(&self) -> Vec<(String, String)> {
        let (mut found, mut dirs) = (Vec::new(), vec![self.var("mail")]);
        while let Some(dir) = dirs.pop() {
            for file in fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()) {
                if file.is_dir() {
                    dirs.push(file);
                    continue;
                }
                let user = file.file_name().unwrap().to_string_lossy().into_owned();
                let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
                if dir.ends_with("new") {
                    let path = |line: &str| line.strip_prefix("Return-Path: ").map(str::to_owned);
                    let from = text.lines().find_map(path).unwrap_or_default();
                    let from = named(from.trim_matches(['<', '>'])).to_owned();
                    let place = dir.parent().unwrap().strip_prefix(self.var("mail")).unwrap().display();
                    found.push((format!("{place}: {from}"), text));
                } else {
                    for message in format!("\n\n{text}").split("\n\nFrom ").skip(1) {
                        let arrival = format!("local: {} to {user}", named(&sender_of(message)));
                        found.push((arrival, message.to_owned()));
                    }
                }
                // Postrider would not write a file of another user without `user` in the route.
                fs::remove_file(file).unwrap();
            }
        }
        found
    }
}

/// Returns the sender in the first line of a message in a mailbox, which has a date behind it. Postrider writes `-` for a blank,
/// which would end the sender for readers of mailboxes.
fn sender_of(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let end = ["Mon ", "Tue ", "Wed ", "Thu ", "Fri ", "Sat ", "Sun "]
        .into_iter()
        .filter_map(|day| line.rfind(day))
        .max();
    let sender = line[..end.unwrap_or(line.len())].trim();
    if matches!(sender, "MAILER-DAEMON" | "<>") { String::new() } else { sender.replace(' ', "-") }
}

/// Postrider with an imported configuration.
pub(crate) struct Imported<'s> {
    #[allow(dead_code)] // it ends with this value
    running: Running,
    machine: &'s Machine,
    file: PathBuf,
}

impl Imported<'_> {
    /// Waits until the queue is empty.
    pub(crate) fn wait_until_idle(&self) {
        let file = self.file.display().to_string();
        until("Postrider has delivered all", || {
            let output =
                self.machine.run("env", &[&format!("POSTRIDER_CONFIG={file}"), BINARY, "status", "--json"]);
            let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            status["queued"].as_u64() == Some(0)
        });
    }

    /// Returns the messages in the queue, as JSON.
    pub(crate) fn queue(&self) -> String {
        let config = format!("POSTRIDER_CONFIG={}", self.file.display());
        let output = self.machine.run("env", &[&config, BINARY, "queue", "list", "--json"]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the configuration that the import wrote.
    pub(crate) fn configuration(&self) -> String {
        fs::read_to_string(&self.file).unwrap()
    }
}
