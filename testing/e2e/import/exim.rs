//! The queue of Exim.

use super::*;
use crate::common::tree::Tree;
use std::{
    process::Child,
    sync::{Arc, Mutex},
};

const USERS: [(&str, &str); 2] = [
    ("passwd", "Debian-exim:x:64323:64323::/nonexistent:/usr/sbin/nologin\n"),
    ("group", "Debian-exim:x:64323:\n"),
];

struct Exim {
    tree: Tree,
    dir: PathBuf,
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Exim {
    fn new(dir: &Path, address: SocketAddr, next_hop: SocketAddr) -> Option<Self> {
        let tree = Tree::new("exim4-daemon-light", dir.join("etc"), &USERS)?;
        fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        for name in ["spool", "log"] {
            fs::create_dir_all(dir.join(name)).unwrap();
            rustix::fs::chown(
                dir.join(name),
                Some(rustix::fs::Uid::from_raw(64323)),
                Some(rustix::fs::Gid::from_raw(64323)),
            )
            .unwrap();
        }
        let at = dir.display();
        fs::create_dir_all(tree.etc().join("exim4")).unwrap();
        let conf = format!(
            "primary_hostname = old.test\nlocal_interfaces = 127.0.0.1\ndaemon_smtp_ports = {}\nspool_directory = {at}/spool\n\
             log_file_path = {at}/log/%slog\npid_file_path = {at}/exim.pid\nkeep_environment =\ntls_advertise_hosts =\n\
             acl_smtp_rcpt = accept\nacl_smtp_data = accept\nhost_lookup =\nrfc1413_query_timeout = 0s\nnever_users =\nqueue_only\n\
             split_spool_directory\nsmtp_accept_max_nonmail = 1000\nsmtp_accept_queue_per_connection = 0\nremote_max_parallel = 4\n\
             dsn_advertise_hosts = *\nbegin routers\n\
             smarthost:\n  driver = manualroute\n  route_list = * 127.0.0.1 byname\n  transport = remote_smtp\n  self = send\n\
             begin transports\nremote_smtp:\n  driver = smtp\n  port = {}\n  allow_localhost\n  hosts_avoid_tls = *\n\
             begin retry\n* * F,100d,1m\n",
            address.port(),
            next_hop.port()
        );
        fs::write(tree.etc().join("exim4/exim4.conf"), conf).unwrap();
        Some(Self { tree, dir: dir.to_owned() })
    }

    fn run(&self, arguments: &[&str]) {
        let output = self.tree.command("/usr/sbin/exim4").args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    }

    fn start(&self, address: SocketAddr) -> Running {
        let mut command = self.tree.command("/usr/sbin/exim4");
        command.arg("-bdf").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = Running(command.spawn().unwrap());
        until("Exim listens", || {
            assert!(running.0.try_wait().unwrap().is_none(), "{}", self.log());
            std::net::TcpStream::connect(address).is_ok()
        });
        running
    }

    fn log(&self) -> String {
        ["mainlog", "paniclog"]
            .map(|name| fs::read_to_string(self.dir.join("log").join(name)).unwrap_or_default())
            .concat()
    }

    /// Returns the ids of messages whose header file has this text.
    fn ids_with(&self, text: &str) -> Vec<String> {
        let files = snapshot(&self.dir.join("spool/input"));
        let has = |file: &[u8]| String::from_utf8_lossy(file).contains(text);
        let headers =
            files.into_iter().filter(|(path, (file, _))| path.to_string_lossy().ends_with("-H") && has(file));
        headers
            .map(|(path, _)| path.file_name().unwrap().to_str().unwrap().trim_end_matches("-H").to_owned())
            .collect()
    }
}

#[test]
fn the_queue_of_exim_arrives_once_and_byte_for_byte() {
    let (address, next_hop) = (free_address(), free_address());
    let dir = tempfile::tempdir().unwrap();
    let Some(exim) = Exim::new(dir.path(), address, next_hop) else { return };
    let running = exim.start(address);
    fill(address);
    let queue = dir.path().join("spool");
    let (config, queue_text) =
        (exim.tree.etc().join("exim4").display().to_string(), queue.display().to_string());
    let arguments = ["import", "exim", &config, "--queue", &queue_text];
    let (refusing, _) = configure(&Sink::start());
    let refused = run(refusing.path(), &arguments);
    assert_eq!(refused.status.code(), Some(75), "{}", said(&refused));
    assert!(said(&refused).contains("Exim is running: stop it first"), "{}", said(&refused));
    drop(running);
    // Some were tried, and some are held.
    exim.run(&["-q"]);
    let held = exim.ids_with("\nheld");
    assert_eq!(held.len(), held_count());
    let held: Vec<&str> = held.iter().map(String::as_str).collect();
    exim.run(&[&["-Mf"], &held[..]].concat());

    let ours = imported(&arguments, &queue);
    let sink = sink_at(next_hop);
    exim.run(&["-qff"]);
    until("Exim delivers what it had", || {
        if arrived_recipients(&sink) < recipient_count() {
            exim.run(&["-qff"]);
        }
        arrived_recipients(&sink) == recipient_count()
    });
    compare(&ours, &arrivals(&sink));
}

/// A recipient that Exim has delivered is not served again, and its parameters for notifications are kept.
#[test]
fn recipients_that_exim_has_finished_are_left_out() {
    let (address, next_hop) = (free_address(), free_address());
    let dir = tempfile::tempdir().unwrap();
    let Some(exim) = Exim::new(dir.path(), address, next_hop) else { return };
    let running = exim.start(address);
    let mut client = Client::connect(address).unwrap();
    for command in [
        "MAIL FROM:<a@src.test> RET=HDRS ENVID=x+2By",
        "RCPT TO:<done@dst.test>",
        "RCPT TO:<left@dst.test> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;list@dst.test",
    ] {
        let reply = client.say(command).unwrap();
        assert_eq!(reply.0, 250, "{}", reply.1);
    }
    assert_eq!(client.say("DATA").unwrap().0, 354);
    client.write(b"Subject: x\r\n\r\nx\r\n.\r\n").unwrap();
    assert_eq!(client.reply().unwrap().0, 250);
    drop(running);
    let first = Sink::at(next_hop, |command| command.contains("left@").then(|| "450 4.2.0 later".to_owned()));
    exim.run(&["-qff"]);
    assert_eq!(arrived_recipients(&first), 1, "{}", exim.log());

    // It offers DSN, and keeps the commands.
    let commands: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = commands.clone();
    let sink = Sink::with(move |command| {
        kept.lock().unwrap().push(command.to_owned());
        command.starts_with("EHLO").then(|| "250-sink.test\r\n250 DSN".to_owned())
    });
    let (own, post) = configure(&sink);
    let (config, queue) =
        (exim.tree.etc().join("exim4").display().to_string(), dir.path().join("spool").display().to_string());
    let text = import(own.path(), &["import", "exim", &config, "--queue", &queue]);
    assert!(text.contains("imported       1 message, 1 recipient"), "{text}");
    let dump = said(&run(own.path(), &["spool", "dump"]));
    assert!(dump.contains("left@dst.test") && !dump.contains("done@dst.test"), "{dump}");
    let toml = fs::read_to_string(own.path().join("postrider.toml")).unwrap();
    let daemon = Postrider::start_from(own, post, &toml);
    until("it arrives", || daemon.counter("delivered") == 1);
    let commands = commands.lock().unwrap().join("\n");
    for part in [
        "RET=HDRS",
        "ENVID=x+2By",
        "RCPT TO:<left@dst.test>",
        "NOTIFY=SUCCESS,FAILURE",
        "ORCPT=rfc822;list@dst.test",
    ] {
        assert!(commands.contains(part), "{part}: {commands}");
    }
    assert!(!commands.contains("done@dst.test"), "{commands}");
}
