//! The set-ups of `examples/`, each on a machine and a network of its own: what their pages promise is delivered.

mod directory;
mod signing;

use crate::{
    common::{
        BINARY, Postrider,
        client::Client,
        databases::MariaDb,
        free_address,
        names::{NameServer, Record},
        program, servers,
        sink::{Received, Sink},
        tls, until,
    },
    migration::{
        machine::{Machine, Running},
        world::is_inside,
    },
};
use std::{
    fs,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const NAMES: &[(&str, Record)] = &[
    ("mx.example.com", Record::A(Ipv4Addr::new(203, 0, 113, 20))),
    ("imap1.example.edu", Record::A(Ipv4Addr::new(203, 0, 113, 41))),
    ("imap2.example.edu", Record::A(Ipv4Addr::new(203, 0, 113, 42))),
    ("mail.isp.example", Record::A(Ipv4Addr::new(203, 0, 113, 30))),
    ("mx.example.net", Record::A(Ipv4Addr::new(203, 0, 113, 21))),
    ("example.net", Record::Mx(10, "mx.example.net")),
];

/// The address of the server that takes mail from outside.
pub(crate) const OUTSIDE: &str = "198.51.100.1:25";
const SUBMISSIONS: &str = "198.51.100.1:465";
const SUBMISSION: &str = "198.51.100.1:587";
/// Sockets of the package's units, and addresses in their place.
pub(crate) const LISTENERS: [(&str, &str); 3] = [
    ("\"systemd:smtp\"", "\"198.51.100.1:25\""),
    ("\"systemd:submissions\"", "\"198.51.100.1:465\""),
    ("\"systemd:submission\"", "\"198.51.100.1:587\""),
];
/// No configuration names this client.
pub(crate) const STRANGER: &str = "203.0.113.9";
/// The user of the systemd unit, and its number.
pub(crate) const USER: (&str, u32) = ("postrider", 61010);

fn names() -> NameServer {
    NameServer::start(UdpSocket::bind("127.0.0.53:53").unwrap(), NAMES)
}

pub(crate) fn sink(address: &str) -> Sink {
    Sink::at(address.parse().unwrap(), |_| None)
}

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// Lays the files of an example where its page says. What is replaced stands in the configuration; `more` is added to it.
fn machine(example: &str, replacements: &[(&str, &str)], more: &str) -> Option<Machine> {
    let machine = Machine::new(".", &[USER])?;
    // Its users have the numbers of people, whom `accounts:/etc/passwd` counts as users.
    for (name, id) in [("passwd", ":61002:61002:"), ("group", ":61002:")] {
        let text = fs::read_to_string(machine.etc(name)).unwrap();
        machine.write(name, &text.replace(id, &id.replace("61002", "1502")));
    }
    machine.own("lib/postrider", USER.1);
    machine.own("log/postrider", USER.1);
    for entry in fs::read_dir(folder(example)).unwrap() {
        let path = entry.unwrap().path();
        let (name, mut text) =
            (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap());
        if name == "postrider.toml" {
            for (from, to) in replacements {
                assert!(text.contains(from), "{from} in {}", path.display());
                text = text.replace(from, to);
            }
            text += "\n[spool]\nsegment_size = \"4MiB\"\nmin_free = \"16MiB\"\n";
            text += more;
        }
        let place = if name == "aliases" { name } else { format!("postrider/{name}") };
        machine.write(&place, &text);
    }
    Some(machine)
}

/// Writes a certificate where certbot keeps that of a host. None where none can be made.
fn certificate(machine: &Machine, host: &str) -> Option<()> {
    let made = tempfile::tempdir().unwrap();
    let certificate = crate::migration::world::certificate(made.path())?;
    for (from, name) in [("pem", "fullchain"), ("key", "privkey")] {
        let text = fs::read_to_string(format!("{certificate}.{from}")).unwrap();
        machine.write(&format!("letsencrypt/live/{host}/{name}.pem"), &text);
    }
    Some(())
}

pub(crate) fn start(machine: &Machine, address: &str) -> Running {
    let mut command = machine.tree.command(BINARY);
    command.args(["serve", "--config", "/etc/postrider/postrider.toml"]);
    machine.start(command, address.parse().unwrap())
}

/// Sends a message, and returns the reply to its recipient, or to its content.
fn send(client: &str, server: &str, from: &str, to: &str) -> (u16, String) {
    send_text(client, server, (from, to), "Hello.")
}

fn send_text(client: &str, server: &str, (from, to): (&str, &str), text: &str) -> (u16, String) {
    let mut client = Client::connect_from(client, server.parse().unwrap()).unwrap();
    client.say("EHLO client.example").unwrap();
    client.say(&format!("MAIL FROM:<{from}>")).unwrap();
    let reply = client.say(&format!("RCPT TO:<{to}>")).unwrap();
    if reply.0 != 250 {
        return reply;
    }
    client.say("DATA").unwrap();
    client.say(&format!("From: <{from}>\r\nTo: <{to}>\r\nSubject: for {to}\r\n\r\n{text}\r\n.")).unwrap()
}

fn accepted(client: &str, server: &str, from: &str, to: &str) {
    let reply = send(client, server, from, to);
    assert_eq!(reply.0, 250, "{to}: {}", reply.1);
}

/// Waits for a message to a recipient at a next hop, from this sender if one is named.
fn until_received(sink: &Sink, from: Option<&str>, to: &str) {
    until(&format!("the message to {to} has arrived"), || {
        let is_it = |message: &Received| message.to == [to] && from.is_none_or(|from| message.from == from);
        sink.messages().iter().any(is_it)
    });
}

/// Waits for a message in a user's mailbox.
fn until_read_by(machine: &Machine, user: &str, subject: &str) {
    until(&format!("{user} has the message {subject}"), || {
        fs::read_to_string(machine.var("mail").join(user))
            .is_ok_and(|text| text.contains(&format!("Subject: {subject}\n")))
    });
}

#[test]
fn the_example_of_postfixs_place_delivers_to_mailboxes_and_virtual_addresses() {
    if !is_inside("examples::the_example_of_postfixs_place_delivers_to_mailboxes_and_virtual_addresses") {
        return;
    }
    let (_names, elsewhere) = (names(), sink("203.0.113.21:25"));
    // There is no certificate authority in this network.
    let acme = "[acme]\nnames = [\"mx.example.com\"]\nagree_to_terms = true\nlisten = \"systemd:acme\"\n";
    let replacements = [("systemd:smtp", OUTSIDE), (acme, "")];
    let Some(machine) = machine("replace-postfix", &replacements, "") else { return };
    let _running = start(&machine, OUTSIDE);
    accepted(STRANGER, OUTSIDE, "x@far.example", "ann@example.com");
    accepted(STRANGER, OUTSIDE, "x@far.example", "info@example.org");
    accepted(STRANGER, OUTSIDE, "x@far.example", "whoever@example.org");
    accepted(STRANGER, OUTSIDE, "x@far.example", "root@mx.example.com");
    let relayed = send(STRANGER, OUTSIDE, "x@far.example", "bob@example.net");
    assert!(relayed.0 == 550 && relayed.1.contains("5.7.1"), "{relayed:?}");
    for to in ["ann@example.com", "info@example.org", "whoever@example.org", "root@mx.example.com"] {
        until_read_by(&machine, "ann", &format!("for {to}"));
    }
    until_received(&elsewhere, None, "bob@example.net");
    // A client of the network may send anywhere.
    accepted("192.0.2.7", OUTSIDE, "ann@example.com", "carol@example.net");
    until_received(&elsewhere, None, "carol@example.net");
}

#[test]
fn the_example_of_a_networks_relay_takes_mail_of_its_senders_only() {
    if !is_inside("examples::the_example_of_a_networks_relay_takes_mail_of_its_senders_only") {
        return;
    }
    let (_names, hub) = (names(), sink("203.0.113.20:25"));
    let Some(machine) = machine("network-relay", &[("systemd:smtp", "127.0.0.1:25")], "") else { return };
    let server = "127.0.0.1:25";
    let _running = start(&machine, server);
    accepted("127.0.0.1", server, "app@example.com", "ann@example.com");
    until_received(&hub, None, "ann@example.com");
    let refused = send("127.0.0.1", server, "app@elsewhere.example", "ann@example.com");
    assert!(refused.0 == 550 && refused.1.contains("This relay sends for example.com"), "{refused:?}");
}

#[test]
fn the_example_of_a_smarthost_at_home_sends_by_the_provider_with_its_address_and_login() {
    if !is_inside(
        "examples::the_example_of_a_smarthost_at_home_sends_by_the_provider_with_its_address_and_login",
    ) {
        return;
    }
    let (_names, beyond) = (names(), sink("203.0.113.31:25"));
    let certificates = tempfile::tempdir().unwrap();
    let Some(certificate) = crate::migration::world::certificate(certificates.path()) else { return };
    let provider = provider(&certificate);
    let tls = "[tls]\nca_file = \"/etc/postrider/isp.pem\"\n";
    let Some(machine) = machine("home-smarthost", &[("systemd:smtp", "127.0.0.1:25")], tls) else { return };
    machine.write("postrider/isp.pem", &fs::read_to_string(format!("{certificate}.pem")).unwrap());
    machine.write("postrider/isp.secret", "secret\n");
    let server = "127.0.0.1:25";
    let _running = start(&machine, server);
    accepted("127.0.0.1", server, "ann@pi.home.arpa", "bob@example.net");
    until_received(&beyond, Some("jane@isp.example"), "bob@example.net");
    // Mail for root goes to the address at the provider, and that of a user into its mailbox.
    accepted("127.0.0.1", server, "cron@pi.home.arpa", "root@localhost");
    until_received(&beyond, None, "jane@isp.example");
    accepted("127.0.0.1", server, "cron@pi.home.arpa", "ann@pi.home.arpa");
    until_read_by(&machine, "ann", "for ann@pi.home.arpa");
    drop(provider);
}

/// A provider that takes mail with TLS from the first octet, for the login and the sender of the example.
fn provider(certificate: &str) -> Postrider {
    let address: SocketAddr = "203.0.113.30:465".parse().unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("users"), "jane@isp.example:{PLAIN}secret\n").unwrap();
    let text = format!(
        "hostname = \"mail.isp.example\"\ndata_dir = \"data\"\n[[listen]]\naddress = \"{address}\"\nkind = \"submissions\"\n\
         [spool]\nsegment_size = \"4MiB\"\nmin_free = \"16MiB\"\n[auth]\nusers = \"passwd:users\"\n\
         [tls]\ncertificate = \"{certificate}.pem\"\nkey = \"{certificate}.key\"\n\
         [[route]]\ndomains = [\"*\"]\nsmarthost = \"203.0.113.31:25\"\ntls = \"off\"\n"
    );
    Postrider::start_from(dir, address, &text)
}

#[test]
fn the_example_with_dovecot_delivers_to_its_users_and_lets_them_send() {
    if !is_inside("examples::the_example_with_dovecot_delivers_to_its_users_and_lets_them_send") {
        return;
    }
    let (_names, elsewhere) = (names(), sink("203.0.113.21:25"));
    let Some(machine) = machine("dovecot", &LISTENERS, "") else { return };
    let Some(()) = certificate(&machine, "mx.example.com") else { return };
    let Some(_dovecot) = dovecot(&machine) else { return };
    let _running = start(&machine, OUTSIDE);
    accepted(STRANGER, OUTSIDE, "x@far.example", "jane@example.com");
    until_stored(&machine, "jane@example.com", "for jane@example.com");
    accepted("127.0.0.1", OUTSIDE, "cron@mx.example.com", "root@localhost");
    until_stored(&machine, "postmaster@example.com", "for root@localhost");
    let unknown = send(STRANGER, OUTSIDE, "x@far.example", "nobody@example.com");
    assert!(unknown.0 == 550 && unknown.1.contains("5.1.1"), "{unknown:?}");
    assert!(has_password(&machine, "secret") && !has_password(&machine, "other"));
    let config = tls::client_config(None);
    let (mut client, _) = tls::Client::implicit(SUBMISSIONS.parse().unwrap(), &config).unwrap();
    log_in_and_send(&mut client, "bob@example.net");
    let (mut client, _) = tls::Client::starttls(SUBMISSION.parse().unwrap(), &config).unwrap();
    log_in_and_send(&mut client, "carol@example.net");
    for to in ["bob@example.net", "carol@example.net"] {
        until_received(&elsewhere, Some("jane@example.com"), to);
    }
}

#[test]
fn the_example_with_mariadb_has_the_users_of_its_tables_and_rspamd() {
    if !is_inside("examples::the_example_with_mariadb_has_the_users_of_its_tables_and_rspamd") {
        return;
    }
    let (_names, elsewhere) = (names(), sink("203.0.113.21:25"));
    let Some(machine) = machine("mariadb", &LISTENERS, "") else { return };
    let Some(()) = certificate(&machine, "mx.example.com") else { return };
    machine.write("postrider/mysql.secret", "of postrider\n");
    let Some(database) = tables(&machine) else { return };
    let Some(_dovecot) = dovecot_with_tables(&machine) else { return };
    let Some(_rspamd) = rspamd(&machine, "") else { return };
    let running = start(&machine, OUTSIDE);
    for to in ["jane@example.com", "postmaster@example.com", "Jane@Example.ORG", "whoever@catch.example"] {
        accepted(STRANGER, OUTSIDE, "x@far.example", to);
        until_stored(&machine, "vmail/example.com/jane", &format!("for {to}"));
    }
    for to in ["nobody@example.com", "nobody@example.org", "gone@example.com"] {
        let unknown = send(STRANGER, OUTSIDE, "x@far.example", to);
        assert!(unknown.0 == 550 && unknown.1.contains("5.1.1"), "{to}: {unknown:?}");
    }
    let relayed = send(STRANGER, OUTSIDE, "x@far.example", "joe@inactive.example");
    assert!(relayed.0 == 550 && relayed.1.contains("5.7.1"), "{relayed:?}");
    let spam = send_text(STRANGER, OUTSIDE, ("x@far.example", "jane@example.com"), GTUBE);
    assert!(spam.0 == 554 && spam.1.contains("5.7.1"), "{spam:?}");
    assert!(has_password(&machine, "secret") && !has_password(&machine, "other"));
    let config = tls::client_config(None);
    let (mut client, _) = tls::Client::implicit(SUBMISSIONS.parse().unwrap(), &config).unwrap();
    log_in_and_send_as(&mut client, "bob@example.net", ("boss@example.com", "postmaster@example.com"));
    until_received(&elsewhere, Some("postmaster@example.com"), "bob@example.net");
    drop(database);
    let waits = send(STRANGER, OUTSIDE, "x@far.example", "jane@example.com");
    assert!(waits.0 == 451, "{waits:?}");
    drop(running);
}

/// What rspamd takes for spam wherever it stands.
pub(crate) const GTUBE: &str = "XJS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X";

/// MariaDB with the tables of the example, and users of them.
fn tables(machine: &Machine) -> Option<MariaDb> {
    let schema = fs::read_to_string(folder("mariadb").join("schema.sql")).unwrap();
    let schema: String = schema.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join(" ");
    let rows = [
        "INSERT INTO domain (domain, active) VALUES ('example.com', 1), ('catch.example', 1), ('inactive.example', 0)",
        "INSERT INTO alias_domain (alias_domain, target_domain) VALUES ('example.org', 'example.com')",
        "INSERT INTO mailbox (username, password, maildir, domain) VALUES \
         ('jane@example.com', '{PLAIN}secret', 'example.com/jane/', 'example.com'), \
         ('boss@example.com', '{PLAIN}other', 'example.com/boss/', 'example.com')",
        "INSERT INTO alias (address, goto, domain, active) VALUES ('jane@example.com', 'jane@example.com', 'example.com', 1), \
         ('boss@example.com', 'boss@example.com', 'example.com', 1), \
         ('postmaster@example.com', 'jane@example.com', 'example.com', 1), \
         ('@catch.example', 'jane@example.com', 'catch.example', 1), \
         ('gone@example.com', 'jane@example.com', 'example.com', 0)",
        "CREATE USER postrider@localhost IDENTIFIED BY 'of postrider', dovecot@localhost IDENTIFIED BY 'CHANGE-ME'",
        "GRANT SELECT ON postfixadmin.* TO postrider@localhost, dovecot@localhost",
    ];
    let begin = ["CREATE DATABASE postfixadmin", "USE postfixadmin"];
    let statements: Vec<&str> = begin
        .into_iter()
        .chain(schema.split(';').map(str::trim).filter(|one| !one.is_empty()))
        .chain(rows)
        .collect();
    let folder = machine.dir.path().join("run/mysqld");
    fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::chown(&folder, Some(65534), Some(65534)).unwrap();
    MariaDb::start_in(tempfile::tempdir().unwrap(), folder.join("mysqld.sock"), &statements)
}

/// Dovecot with the files of the example.
fn dovecot_with_tables(machine: &Machine) -> Option<servers::Running> {
    let driver = "usr/lib/dovecot/modules/libdriver_mysql.so";
    let unpacked = crate::common::unpacked(".").map(|tree| tree.join(driver));
    if !unpacked.is_some_and(|file| file.exists()) && !Path::new("/").join(driver).exists() {
        println!("SKIPPED: dovecot-mysql is not installed");
        return None;
    }
    for (name, line) in [("passwd", "vmail:x:1503:1503::/:/bin/false\n"), ("group", "vmail:x:1503:\n")] {
        let text = fs::read_to_string(machine.etc(name)).unwrap();
        machine.write(name, &(text + line));
    }
    machine.own("mail/vmail", 1503);
    let place = folder("mariadb");
    for (name, to) in [("99-postrider.conf", "dovecot/conf.d"), ("dovecot-sql.conf.ext", "dovecot")] {
        machine.write(&format!("{to}/{name}"), &fs::read_to_string(place.join(name)).unwrap());
    }
    start_dovecot(machine, "")
}

/// Starts the hook of the examples; `None` without Python.
pub(crate) fn hook(port: u16, secret: &Path) -> Option<servers::Running> {
    let mut python = program("python3")?;
    python.arg(folder("hook").join("hook.py")).arg(port.to_string()).arg(secret);
    let running = servers::Running(python.spawn().unwrap());
    until("the hook listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    Some(running)
}

/// Starts rspamd with the configuration of its package, and with rules in Lua; `None` if it is not installed.
pub(crate) fn rspamd(machine: &Machine, rules: &str) -> Option<servers::Running> {
    let program = "/usr/bin/rspamd";
    if !machine.tree.command("test").args(["-x", program]).status().unwrap().success() {
        println!("SKIPPED: rspamd is not installed");
        return None;
    }
    let unpacked =
        crate::common::unpacked(".").map(|tree| tree.join("etc/rspamd")).filter(|tree| tree.is_dir());
    let from = unpacked.unwrap_or_else(|| "/etc/rspamd".into());
    let copied = Command::new("cp").arg("-r").arg(from).arg(machine.etc("rspamd")).status().unwrap();
    assert!(copied.success());
    machine.write("rspamd/rspamd.local.lua", rules);
    for name in ["lib/rspamd", "log/rspamd"] {
        fs::create_dir_all(machine.var(name)).unwrap();
    }
    fs::create_dir_all(machine.dir.path().join("run/rspamd")).unwrap();
    let mut command = machine.tree.command(program);
    command
        .args(["-f", "--insecure", "-c", "/etc/rspamd/rspamd.conf"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let running = servers::Running(command.spawn().unwrap());
    until("rspamd listens", || std::net::TcpStream::connect("127.0.0.1:11332").is_ok());
    Some(running)
}

/// Dovecot with two users, as the page of the example expects it, and with the file of the example. None where it is not installed.
fn dovecot(machine: &Machine) -> Option<servers::Running> {
    let program = "/usr/sbin/dovecot";
    if !machine.tree.command("test").args(["-x", program]).status().unwrap().success() {
        println!("SKIPPED: dovecot is not installed");
        return None;
    }
    let users = "jane@example.com:{PLAIN}secret\npostmaster@example.com:{PLAIN}other\n";
    machine.write("dovecot/users", users);
    let name = "99-postrider.conf";
    let text = fs::read_to_string(folder("dovecot").join(name)).unwrap();
    machine.write(&format!("dovecot/conf.d/{name}"), &text);
    start_dovecot(
        machine,
        "mail_location = maildir:/var/mail/%u\n\
         passdb {\n  driver = passwd-file\n  args = /etc/dovecot/users\n}\n\
         userdb {\n  driver = static\n  args = uid=1502 gid=1502 home=/var/mail/%u\n}\n",
    )
}

/// Starts Dovecot with these settings and those of `conf.d`.
fn start_dovecot(machine: &Machine, settings: &str) -> Option<servers::Running> {
    machine.write(
        "dovecot/dovecot.conf",
        &format!(
            "log_path = /var/log/dovecot.log\nprotocols = lmtp\nssl = no\nauth_mechanisms = plain login\n\
             auth_failure_delay = 0\ndefault_internal_user = nobody\ndefault_internal_group = nogroup\n\
             default_login_user = nobody\n{settings}!include conf.d/*.conf\n"
        ),
    );
    let program = "/usr/sbin/dovecot";
    let mut command = machine.tree.command(program);
    let running = servers::Running(command.args(["-F", "-c", "/etc/dovecot/dovecot.conf"]).spawn().unwrap());
    let sockets = machine.dir.path().join("run/dovecot");
    until("Dovecot listens", || {
        ["lmtp", "auth-client"].iter().all(|name| UnixStream::connect(sockets.join(name)).is_ok())
    });
    Some(running)
}

/// Waits until Dovecot has stored a message for a user.
fn until_stored(machine: &Machine, user: &str, subject: &str) {
    let new = machine.var("mail").join(user).join("new");
    until(&format!("{user} has the message {subject}"), || {
        let files = fs::read_dir(&new).into_iter().flatten();
        let mut texts = files.filter_map(|file| fs::read_to_string(file.ok()?.path()).ok());
        texts.any(|text| text.contains(&format!("Subject: {subject}\n")))
    });
}

/// Returns whether `postrider auth test` says that this is the password of jane.
fn has_password(machine: &Machine, password: &str) -> bool {
    let mut command = machine.tree.command("env");
    command.args([
        "POSTRIDER_CONFIG=/etc/postrider/postrider.toml",
        BINARY,
        "auth",
        "test",
        "jane@example.com",
    ]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{password}").unwrap();
    child.wait().unwrap().success()
}

/// Logs in as jane and sends a message. She may not send with the address of another user.
fn log_in_and_send(client: &mut tls::Client, to: &str) {
    log_in_and_send_as(client, to, ("postmaster@example.com", "jane@example.com"));
}

/// The same with one of two addresses; the other is not hers.
fn log_in_and_send_as(client: &mut tls::Client, to: &str, (other, own): (&str, &str)) {
    let plain = data_encoding::BASE64.encode(b"\0jane@example.com\0secret");
    for (line, code) in [
        (format!("AUTH PLAIN {plain}"), "235"),
        (format!("MAIL FROM:<{other}>"), "553 5.7.1"),
        (format!("MAIL FROM:<{own}>"), "250"),
        (format!("RCPT TO:<{to}>"), "250"),
        ("DATA".to_owned(), "354"),
        (format!("From: {own}\r\nSubject: hello\r\n\r\nHello.\r\n."), "250"),
    ] {
        let reply = client.say(&line).unwrap();
        assert!(reply.starts_with(code), "{line}: {reply}");
    }
}

#[test]
fn the_example_of_lists_has_those_of_aliases_and_those_of_mailman() {
    if !is_inside("examples::the_example_of_lists_has_those_of_aliases_and_those_of_mailman") {
        return;
    }
    let (_names, elsewhere, mailman) = (names(), sink("203.0.113.21:25"), sink("127.0.0.1:8024"));
    let Some(machine) = machine("lists", &[("systemd:smtp", OUTSIDE)], "") else { return };
    // As Mailman writes it.
    let addresses = machine.var("lib/mailman3/data");
    fs::create_dir_all(&addresses).unwrap();
    let text = "# AUTOMATICALLY GENERATED BY MAILMAN ON 2026-11-28 10:00:00\n#\n# This file is generated by Mailman.\n\n\
                # Aliases which are visible only in the @lists.example.com domain.\n\
                talk@lists.example.com               lmtp:[127.0.0.1]:8024\n\
                talk-bounces@lists.example.com       lmtp:[127.0.0.1]:8024\n";
    fs::write(addresses.join("postfix_lmtp"), text).unwrap();
    let _running = start(&machine, OUTSIDE);
    accepted(STRANGER, OUTSIDE, "x@far.example", "talk@lists.example.com");
    until_received(&mailman, None, "talk@lists.example.com");
    // One is not a list, the other a user of this machine.
    for to in ["unknown@lists.example.com", "ann@lists.example.com"] {
        let refused = send(STRANGER, OUTSIDE, "x@far.example", to);
        assert!(refused.0 == 550 && refused.1.contains("5.1.1"), "{to}: {refused:?}");
    }
    accepted("127.0.0.1", OUTSIDE, "talk-bounces+bob=example.net@lists.example.com", "bob@example.net");
    accepted(STRANGER, OUTSIDE, "talk@far.example", "talk-bounces+bob=example.net@lists.example.com");
    let refused = send(STRANGER, OUTSIDE, "x@far.example", "news@example.com");
    assert!(refused.0 == 550 && refused.1.contains("Only ann writes"), "{refused:?}");
    accepted("127.0.0.1", OUTSIDE, "ann@example.com", "news@example.com");
    until_read_by(&machine, "ann", "for news@example.com");
    for from in ["talk-bounces+bob=example.net@lists.example.com", "owner-news@example.com"] {
        until_received(&elsewhere, Some(from), "bob@example.net");
    }
    accepted(STRANGER, OUTSIDE, "", "owner-news@example.com");
    until_read_by(&machine, "ann", "for owner-news@example.com");
}

#[test]
fn the_example_of_a_server_for_tests_answers_as_each_address_says() {
    let address = free_address();
    let text = fs::read_to_string(folder("test-mail").join("postrider.toml")).unwrap();
    let mut text = text.replace("127.0.0.1:2525", &address.to_string());
    // Programs do not run as root, as whom the tests may run; the example is meant for a developer.
    if rustix::process::geteuid().is_root() {
        let (_, program) = text.split_once("pipe = ").unwrap();
        let program = program.lines().next().unwrap().to_owned();
        text = text.replace(&program, &format!("{{ argv = {program}, user = \"nobody\" }}"));
    }
    let spool = "\n[spool]\nsegment_size = \"4MiB\"\nmin_free = \"16MiB\"\n";
    let daemon = Postrider::start_from(tempfile::tempdir().unwrap(), address, &(text + spool));
    let server = address.to_string();
    for (to, code) in
        [("full@x.test", 452), ("unknown@x.test", 550), ("spam@x.test", 554), ("ann@x.test", 250)]
    {
        assert_eq!(send("127.0.0.1", &server, "shop@example.com", to).0, code, "{to}");
    }
    let new = daemon.dir.path().join("mail/x.test/ann/new");
    until("ann has the message", || fs::read_dir(&new).is_ok_and(|files| files.count() == 1));
    // A message that is accepted and cannot be delivered comes back.
    accepted("127.0.0.1", &server, "shop@example.com", "bob@bounce.test");
    let returned = daemon.dir.path().join("mail/example.com/shop/new");
    until("the message has come back to its sender", || {
        fs::read_dir(&returned).is_ok_and(|files| files.count() == 1)
    });
}

#[test]
fn the_script_for_tests_shows_what_a_program_has_sent() {
    if !is_inside("examples::the_script_for_tests_shows_what_a_program_has_sent") || program("curl").is_none()
    {
        return;
    }
    let mut script = Command::new("sh");
    script.arg(folder("test-mail").join("test.sh")).env("POSTRIDER", BINARY).stdin(Stdio::null());
    let output = script.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("messages: 1") && said.contains("Subject: Your order"), "{output:?}");
}
