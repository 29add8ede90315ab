//! The queue of Sendmail.

use super::*;
use crate::common::tree::Tree;
use std::{io::Read as _, process::Child};

const USERS: [(&str, &str); 2] =
    [("passwd", "smmsp:x:64324:64324::/nonexistent:/usr/sbin/nologin\n"), ("group", "smmsp:x:64324:\n")];
const PROGRAM: &str = "/usr/libexec/sendmail/sendmail";

struct Sendmail {
    tree: Tree,
    queue: PathBuf,
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Sendmail {
    fn new(dir: &Path, address: SocketAddr, next_hop: SocketAddr) -> Option<Self> {
        let tree = Tree::new("sendmail-bin", dir.join("etc"), &USERS)?;
        fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let (at, queue) = (dir.display(), dir.join("queue"));
        fs::create_dir_all(&queue).unwrap();
        fs::set_permissions(&queue, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let mail = tree.etc().join("mail");
        fs::create_dir_all(&mail).unwrap();
        fs::write(mail.join("service.switch"), "hosts files\naliases files\n").unwrap();
        fs::write(mail.join("local-host-names"), "").unwrap();
        // Without a full name of the machine, Sendmail waits for a minute and ends.
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        fs::write(tree.etc().join("hosts"), format!("127.0.0.1 localhost old.test {machine}\n")).unwrap();
        let mc = format!(
            "divert(0)dnl\nOSTYPE(`debian')dnl\ndefine(`confDOMAIN_NAME', `old.test')dnl\n\
             define(`confSERVICE_SWITCH_FILE', `/etc/mail/service.switch')dnl\ndefine(`confDONT_PROBE_INTERFACES', `True')dnl\n\
             define(`confTO_IDENT', `0s')dnl\nundefine(`confHOST_STATUS_DIRECTORY')dnl\ndefine(`confDELIVERY_MODE', `queueonly')dnl\n\
             define(`confPID_FILE', `{at}/sendmail.pid')dnl\ndefine(`QUEUE_DIR', `{at}/queue')dnl\n\
             define(`SMART_HOST', `relay:[127.0.0.1]')dnl\ndefine(`RELAY_MAILER_ARGS', `TCP $h {}')dnl\ndefine(`ALIAS_FILE', `')dnl\n\
             define(`confQUEUE_LA', `1000')dnl\ndefine(`confREFUSE_LA', `1000')dnl\ndefine(`confDELAY_LA', `1000')dnl\n\
             define(`confMAX_DAEMON_CHILDREN', `0')dnl\ndefine(`confCONNECTION_RATE_THROTTLE', `0')dnl\nFEATURE(`no_default_msa')dnl\n\
             DAEMON_OPTIONS(`Name=MTA, Family=inet, Addr=127.0.0.1, Port={}, Listen=300')dnl\nFEATURE(`nocanonify')dnl\n\
             FEATURE(`accept_unresolvable_domains')dnl\nFEATURE(`accept_unqualified_senders')dnl\nFEATURE(`promiscuous_relay')dnl\n\
             MAILER(`local')dnl\nMAILER(`smtp')dnl\n",
            next_hop.port(),
            address.port()
        );
        fs::write(mail.join("sendmail.mc"), mc).unwrap();
        let made = tree
            .command("m4")
            .args([
                "-D_CF_DIR_=/usr/share/sendmail/cf/",
                "/usr/share/sendmail/cf/m4/cf.m4",
                "/etc/mail/sendmail.mc",
            ])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", said(&made));
        fs::write(mail.join("sendmail.cf"), made.stdout).unwrap();
        Some(Self { tree, queue })
    }

    fn run(&self, arguments: &[&str]) {
        let mut command = self.tree.command(PROGRAM);
        let output = command.args(["-C", "/etc/mail/sendmail.cf"]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    }

    fn start(&self, address: SocketAddr) -> Running {
        let mut command = self.tree.command(PROGRAM);
        command
            .args(["-C", "/etc/mail/sendmail.cf", "-bD"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut running = Running(command.spawn().unwrap());
        until("Sendmail listens", || {
            if let Some(status) = running.0.try_wait().unwrap() {
                let mut text = String::new();
                let _ = running.0.stderr.take().unwrap().read_to_string(&mut text);
                panic!("Sendmail has ended: {status}: {text}");
            }
            std::net::TcpStream::connect(address).is_ok()
        });
        running
    }

    /// Puts each message into quarantine that is for a recipient with this text.
    fn quarantine(&self, text: &str) {
        self.run(&["-Qwait", &format!("-qR{text}")]);
    }

    /// Takes all messages out of quarantine, as an operator does by hand.
    fn release(&self) {
        for (path, (file, _)) in snapshot(&self.queue) {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if let Some(id) = name.strip_prefix("hf") {
                let text = file.split_inclusive(|byte| *byte == b'\n').filter(|line| line[0] != b'q');
                fs::write(path.with_file_name(format!("qf{id}")), text.collect::<Vec<_>>().concat()).unwrap();
                fs::remove_file(path).unwrap();
            }
        }
    }
}

#[test]
fn the_queue_of_sendmail_arrives_once_and_byte_for_byte() {
    let (address, next_hop) = (free_address(), free_address());
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = Sendmail::new(dir.path(), address, next_hop) else { return };
    let running = server.start(address);
    fill(address);
    let (config, queue_text) =
        (server.tree.etc().join("mail").display().to_string(), server.queue.display().to_string());
    let arguments = ["import", "sendmail", &config, "--queue", &queue_text];
    let (refusing, _) = configure(&Sink::start());
    let refused = run(refusing.path(), &arguments);
    assert_eq!(refused.status.code(), Some(75), "{}", said(&refused));
    assert!(said(&refused).contains("Sendmail is running: stop it first"), "{}", said(&refused));
    drop(running);
    // Some were tried, and some are held.
    server.quarantine("held");
    server.run(&["-qf"]);

    let ours = imported(&arguments, &server.queue);
    let sink = sink_at(next_hop);
    server.release();
    until("Sendmail delivers what it had", || {
        if arrived_recipients(&sink) < recipient_count() {
            server.run(&["-qf"]);
        }
        arrived_recipients(&sink) == recipient_count()
    });
    compare(&ours, &arrivals(&sink));
}
