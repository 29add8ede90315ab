//! A daemon that is given another configuration while it runs.

use crate::common::{BINARY, Postrider, client::Client, until};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

/// `postrider reload`: its exit code, and what it says.
fn reload(daemon: &Postrider) -> (Option<i32>, String) {
    let output = Command::new(BINARY).args(["reload", "--config"]).arg(daemon.config()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

/// The daemon's configuration with these two, which a test's daemon has as `mx.test` and `data`.
fn rename(daemon: &Postrider, hostname: &str, data_dir: &str) {
    let text = format!(
        "hostname = \"{hostname}\"\ndata_dir = \"{data_dir}\"\n[[listen]]\naddress = \"{}\"\n\
         [spool]\nsegment_size = \"4MiB\"\nmin_free = \"16MiB\"\n[control]\nsocket = \"data/control.sock\"\n",
        daemon.address
    );
    fs::write(daemon.config(), text).unwrap();
}

#[test]
fn a_reload_that_is_refused_changes_nothing() {
    let daemon = Postrider::start("");
    fs::write(daemon.dir.path().join("none.pem"), "no certificate\n").unwrap();
    daemon.reconfigure("[relay]\nnetworks = []\n[tls]\nca_file = \"none.pem\"\n");
    let (code, said) = reload(&daemon);
    assert!(code == Some(78) && said.contains("none.pem"), "{said}");
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<a@a.test>").unwrap();
    assert_eq!(client.say("RCPT TO:<x@elsewhere.test>").unwrap().0, 250);
    daemon.reconfigure("unknown_key = 1\n");
    let (code, said) = reload(&daemon);
    assert!(code == Some(78) && said.contains("unknown_key"), "{said}");
    // A key that does not belong to its certificate.
    let authority = crate::common::tls::Authority::new(&daemon.dir.path().join("ca.pem"));
    let [one, other] = ["one.test", "other.test"].map(|name| authority.certify(name, &[], name));
    fs::write(daemon.dir.path().join("cert.pem"), one.pem).unwrap();
    fs::write(daemon.dir.path().join("key.pem"), other.key.serialize_pem()).unwrap();
    daemon.reconfigure("[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n");
    let (code, said) = reload(&daemon);
    assert!(code == Some(78) && said.contains("key.pem"), "{said}");
}

#[test]
fn a_reload_reads_the_files_of_conf_d() {
    let daemon = Postrider::start("");
    let folder = daemon.dir.path().join("conf.d");
    fs::create_dir(&folder).unwrap();
    let route = "[[route]]\ndomains = [\"gone.test\"]\nreject = \"550 5.1.2 gone\"\n";
    fs::write(folder.join("10-gone.toml"), route).unwrap();
    assert_eq!(reload(&daemon), (Some(0), "reloaded\n".to_owned()));
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<a@a.test>").unwrap();
    assert_eq!(client.say("RCPT TO:<x@gone.test>").unwrap().0, 550);
    fs::write(folder.join("20-twice.toml"), "hostname = \"other.test\"\n").unwrap();
    let (code, said) = reload(&daemon);
    assert!(code == Some(78) && said.contains("20-twice.toml") && said.contains("set twice"), "{said}");
    let check = |arguments: &[&str]| {
        Command::new(BINARY).args(["config", "check"]).args(arguments).arg(daemon.config()).output().unwrap()
    };
    let checked = check(&["--json"]);
    assert_eq!(checked.status.code(), Some(78));
    let found: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(
        (&found[0]["line"], &found[0]["column"], &found[0]["code"]),
        (&1.into(), &1.into(), &"conflict".into())
    );
    assert!(found[0]["file"].as_str().unwrap().ends_with("conf.d/20-twice.toml"), "{found}");
    fs::remove_file(folder.join("20-twice.toml")).unwrap();
    let checked = check(&["--json"]);
    assert!(checked.status.success() && checked.stderr.is_empty());
    assert!(serde_json::from_slice::<Vec<serde_json::Value>>(&checked.stdout).is_ok());
}

#[test]
fn a_setting_that_needs_a_restart_is_reported_until_it_is_reverted() {
    let daemon = Postrider::start("");
    rename(&daemon, "other.test", "elsewhere");
    let told = "hostname has changed, which needs a restart\n\
                data_dir has changed, which needs a restart\nreloaded\n";
    for _ in 0..2 {
        assert_eq!(reload(&daemon), (Some(0), told.to_owned()));
    }
    let mut client = Client::connect(daemon.address).unwrap();
    assert!(client.say("HELO client.test").unwrap().1.starts_with("250 mx.test"));
    // Defaults that are made of the two stay, too: who is local, and where Maildirs are.
    client.send("a@a.test", &["x@mx.test"], b"Subject: x\r\n\r\nx\r\n").unwrap();
    until("it is where it was", || daemon.mailbox("x").len() == 1);
    rename(&daemon, "mx.test", "data");
    assert_eq!(reload(&daemon), (Some(0), "reloaded\n".to_owned()));
}

#[test]
fn a_hangup_while_the_daemon_starts_does_not_end_it() {
    let (dir, address) = (tempfile::tempdir().unwrap(), crate::common::free_address());
    let text = format!(
        "hostname = \"mx.test\"\ndata_dir = \"data\"\n[[listen]]\naddress = \"{address}\"\n\
         [spool]\nsegment_size = \"4MiB\"\nmin_free = \"16MiB\"\n[log]\nfile = \"mail.log\"\n"
    );
    fs::write(dir.path().join("postrider.toml"), text).unwrap();
    // The start waits here until somebody reads, behind the listeners and before it is done.
    let log = dir.path().join("mail.log");
    assert!(Command::new("mkfifo").arg(&log).status().unwrap().success());
    let mut serve = Command::new(BINARY);
    serve.args(["serve", "--config", "postrider.toml"]).current_dir(dir.path());
    let mut daemon = serve.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("it listens", || TcpStream::connect(address).is_ok());
    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    // Does not block, even if the daemon has ended.
    let read = File::options().read(true).write(true).open(&log).unwrap();
    let is_served = Client::connect(address).is_ok();
    let ended = daemon.try_wait().unwrap();
    let _ = (daemon.kill(), daemon.wait());
    assert!(is_served, "{ended:?}");
    drop(read);
}

/// Starts `postrider reload` with a copy of the daemon's configuration, which only says where its socket is.
fn begin_reload(copy: &Path) -> std::process::Child {
    let mut command = Command::new(BINARY);
    command
        .args(["reload", "--config"])
        .arg(copy)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Begins two reloads of a configuration that does not answer: whichever of the two comes first waits and is returned, and the
/// other one is told so.
fn reload_that_waits(copy: &Path) -> std::process::Child {
    let mut two = [begin_reload(copy), begin_reload(copy)];
    let mut ended = None;
    until("one of two reloads has answered", || {
        ended = two.iter_mut().position(|reload| reload.try_wait().unwrap().is_some());
        ended.is_some()
    });
    let [first, second] = two;
    let (answered, waiting) = if ended == Some(0) { (first, second) } else { (second, first) };
    let output = answered.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("a reload is under way"), "{said}");
    waiting
}

/// Puts a FIFO where the configuration is, as a disk that does not answer: whoever opens it waits.
fn stall(config: &Path) {
    let fifo = config.with_extension("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    fs::rename(&fifo, config).unwrap();
}

/// Gives a text to the one who waits for the FIFO, and to those who read the file afterwards; returns the exit code of the
/// command, and what it says.
fn answer(config: &Path, text: &str, command: std::process::Child) -> (Option<i32>, String) {
    let (file, mut reader) = (config.with_extension("new"), None);
    fs::write(&file, text).unwrap();
    until("the FIFO is waited for", || {
        // Fails while nobody reads.
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        reader = rustix::fs::open(config, flags, rustix::fs::Mode::empty()).ok();
        reader.is_some()
    });
    fs::rename(&file, config).unwrap();
    File::from(reader.unwrap()).write_all(text.as_bytes()).unwrap();
    let output = command.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn a_reload_with_a_map_that_cannot_be_used_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("virtual");
    fs::write(&path, "info@mx.test joe\n").unwrap();
    // The server of a map may be down at any time.
    let map = format!(
        "[addresses]\nvirtual = [\"text:virtual\", \"map:down\"]\n[map.down]\nsocketmap = \"{}\"\n[log]\nfile = \"mail.log\"\n",
        crate::common::free_address()
    );
    let daemon = Postrider::start_in(dir, crate::common::free_address(), &map);
    assert_eq!(reload(&daemon), (Some(0), "reloaded\n".to_owned()));
    fs::write(&path, "info@mx.test joe\nhalf").unwrap();
    let (code, said) = reload(&daemon);
    assert!(code == Some(78) && said.contains("text:") && said.contains("line 2"), "{said}");
    let is_refusal = |line: &serde_json::Value| {
        line["event"] == "reload_failed" && line["reason"].as_str().unwrap().contains("line 2")
    };
    until("an event tells of it", || daemon.log().iter().any(is_refusal));
    fs::write(&path, "info@mx.test ann\n").unwrap();
    assert_eq!(reload(&daemon), (Some(0), "reloaded\n".to_owned()));
    // A file that can be read, and whose value `config check` refuses.
    fs::write(&path, "info@mx.test ,\n").unwrap();
    let (code, said) = reload(&daemon);
    assert!(code == Some(78) && said.contains("line 1, column 14: info@mx.test: "), "{said}");
    assert!(said.contains("a file of a map that was in use already counts as it is now"), "{said}");
    assert!(daemon.try_ask(&["config", "check"]).unwrap_err().contains("line 1, column 14: info@mx.test: "));
    fs::write(&path, "info@mx.test ann\n").unwrap();
    assert_eq!(reload(&daemon), (Some(0), "reloaded\n".to_owned()));
}

#[test]
fn a_reload_that_waits_for_a_disk_delays_no_session_and_no_stop() {
    let daemon = Postrider::start("");
    let (config, copy) = (daemon.config(), daemon.dir.path().join("copy.toml"));
    let text = fs::read_to_string(&config).unwrap();
    fs::copy(&config, &copy).unwrap();
    stall(&config);
    let mut waiting = reload_that_waits(&copy);
    daemon.signal(rustix::process::Signal::HUP);
    for _ in 0..3 {
        daemon.send("x@mx.test");
    }
    until("they are delivered", || daemon.mailbox("x").len() == 3);
    let other = begin_reload(&copy).wait_with_output().unwrap();
    assert!(!other.status.success() && waiting.try_wait().unwrap().is_none());
    let (code, said) = answer(&config, &format!("{text}unknown_key = 1\n"), waiting);
    assert!(code == Some(78) && said.contains("unknown_key"), "{said}");
    stall(&config);
    let (code, said) = answer(&config, &text, begin_reload(&copy));
    assert!(code == Some(0) && said.ends_with("reloaded\n"), "{said}");
    // A stop ends the daemon, although the file is waited for.
    stall(&config);
    let mut last = reload_that_waits(&copy);
    let (_dir, status) = daemon.stop();
    let _ = (last.kill(), last.wait());
    assert!(status.success(), "{status:?}");
}

#[test]
fn sessions_leave_open_files_for_the_spool() {
    let daemon = Postrider::start("");
    let few = Rlimit { current: Some(200), maximum: Some(200) };
    prlimit(Pid::from_raw(daemon.pid() as i32), Resource::Nofile, few).unwrap();
    assert_eq!(reload(&daemon), (Some(0), "reloaded\n".to_owned()));
    let mut client = Client::connect(daemon.address).unwrap();
    let greeted = |stream: &mut TcpStream| {
        let mut code = [0; 3];
        stream.read_exact(&mut code).unwrap();
        String::from_utf8(code.to_vec()).unwrap()
    };
    let mut streams: Vec<TcpStream> = (0..150).map(|_| TcpStream::connect(daemon.address).unwrap()).collect();
    let codes: Vec<String> = streams.iter_mut().map(greeted).collect();
    let taken = codes.iter().filter(|code| *code == "220").count();
    assert!((1..50).contains(&taken) && codes.contains(&"421".to_owned()), "{codes:?}");
    // The session before goes on, and so does the spool.
    for _ in 0..20 {
        assert_eq!(client.send("a@far.test", &["joe@mx.test"], b"Subject: x\r\n\r\nx\r\n").unwrap().0, 250);
    }
    until("the mail is delivered", || daemon.mailbox("joe").len() == 20);
}

fn listen(address: std::net::SocketAddr, more: &str) -> String {
    format!("[[listen]]\naddress = \"{address}\"\n{more}")
}

/// Whether somebody greets with 220.
fn greets(address: std::net::SocketAddr) -> bool {
    Client::connect(address).is_ok()
}

#[test]
fn a_unix_socket_that_a_reload_adds_has_its_permissions_though_the_sandbox_forbids_chmod() {
    let sandbox = "[process]\nsandbox = \"enforce\"\n";
    let daemon = Postrider::start(sandbox);
    for mode in ["0666", "0600"] {
        let name = format!("lmtp-{mode}.sock");
        let listen =
            format!("[[listen]]\naddress = \"unix:data/{name}\"\nkind = \"lmtp\"\nmode = \"{mode}\"\n");
        daemon.reconfigure(&format!("{listen}{sandbox}"));
        assert_eq!(reload(&daemon), (Some(0), "reloaded\n".to_owned()));
        let socket = daemon.dir.path().join("data").join(name);
        let found = fs::metadata(&socket).unwrap().permissions().mode();
        assert_eq!(found & 0o7777, u32::from_str_radix(mode, 8).unwrap());
        assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
    }
}

#[test]
fn listeners_are_added_changed_and_removed_without_a_restart_and_sessions_go_on() {
    let [second, third] = [crate::common::free_address(), crate::common::free_address()];
    let sandbox = "[process]\nsandbox = \"off\"\n";
    let daemon = Postrider::start(&format!("{}{sandbox}", listen(second, "")));
    let mut session = Client::connect(second).unwrap();
    let socket = daemon.dir.path().join("lmtp.sock");
    let unix = format!("[[listen]]\naddress = \"unix:{}\"\nkind = \"lmtp\"\n", socket.display());
    let is_offered = |address, keyword: &str| crate::common::client::hello(address).contains(keyword);
    assert!(is_offered(second, "PIPELINING"));

    daemon.reconfigure(&format!(
        "{}{}{unix}{sandbox}",
        listen(second, "discard_ehlo_keywords = [\"pipelining\"]\n"),
        listen(third, "")
    ));
    daemon.ask(&["drain", "--listener", &second.to_string()]);
    assert_eq!(reload(&daemon), (Some(0), "reloaded\n".to_owned()));
    assert!(greets(third) && std::os::unix::net::UnixStream::connect(&socket).is_ok());
    assert!(!greets(second), "it stays drained");
    daemon.ask(&["resume"]);
    assert!(!is_offered(second, "PIPELINING"));
    // The session of before has the settings of before, and its mail is delivered.
    session.send("a@a.test", &["one@mx.test"], b"Subject: x\r\n\r\nx\r\n").unwrap();

    daemon.reconfigure(sandbox);
    assert_eq!(reload(&daemon), (Some(0), "reloaded\n".to_owned()));
    until("the sockets are closed", || {
        TcpStream::connect(second).is_err() && TcpStream::connect(third).is_err()
    });
    assert!(!socket.exists() && greets(daemon.address));
    session.send("a@a.test", &["one@mx.test"], b"Subject: x\r\n\r\nx\r\n").unwrap();
    until("both are delivered", || daemon.mailbox("one").len() == 2);

    // What cannot be opened changes nothing at all.
    let taken = std::net::TcpListener::bind(third).unwrap();
    daemon.reconfigure(&format!("{}{}{sandbox}", listen(second, ""), listen(third, "")));
    let (code, said) = reload(&daemon);
    assert!(code == Some(78) && said.contains("the address is in use by e2e"), "{said}");
    assert!(TcpStream::connect(second).is_err() && greets(daemon.address));
    drop(taken);
    assert_eq!(reload(&daemon).0, Some(0));
    assert!(greets(second) && greets(third));
    // At a stop, nobody is left to wait in the queue of a socket.
    let (_, status) = daemon.stop();
    assert!(status.success() && TcpStream::connect(third).is_err());
}

#[test]
fn a_listener_that_the_sandbox_does_not_permit_is_refused_with_what_to_do() {
    let second = crate::common::free_address();
    let daemon = Postrider::start("");
    if daemon.ask(&["status"]).contains("sandbox") {
        println!("SKIPPED: the kernel has no Landlock for ports");
        return;
    }
    daemon.reconfigure(&listen(second, ""));
    let (code, said) = reload(&daemon);
    assert!(
        code == Some(78) && said.contains("Restart the daemon, or let systemd open the socket"),
        "{said}"
    );
    assert!(greets(daemon.address) && TcpStream::connect(second).is_err());
    daemon.reconfigure("[[listen]]\naddress = \"systemd:smtp\"\n");
    let (code, said) = reload(&daemon);
    assert!(code == Some(78) && said.contains("restart the service"), "{said}");
}
