//! `postrider import --verify` beside the real servers, on the envelopes of their own logs.

use super::{Other, SetUp, envelopes, machine::said};
use crate::common::{BINARY, envelopes::Envelope};
use std::{fs, path::Path};

/// Returns the code and the output of a verification in a machine.
fn verify(machine: &super::Machine, arguments: &[&str]) -> (Option<i32>, String) {
    let output = machine
        .tree
        .command(BINARY)
        .env("TMPDIR", "/var/tmp")
        .arg("import")
        .args(arguments)
        .output()
        .unwrap();
    (output.status.code(), said(&output))
}

/// Sends envelopes to the server, and verifies the import with its log; then with a configuration that decides otherwise.
fn check<S: Other>(set_up: &SetUp, log: &str) {
    let Some(machine) = S::machine(set_up) else { return };
    let envelopes = envelopes::of(1, set_up.domains, 60);
    let log_file = machine.var(log.strip_prefix("/var/").unwrap());
    let running = if S::IMPORT[0] == "sendmail" {
        // It writes to the log of the system, of which a test has none.
        fs::write(&log_file, as_sendmail_logs(&envelopes)).unwrap();
        None
    } else {
        let running = S::start(&machine);
        super::send("old", &envelopes);
        running.wait_until_idle(&machine);
        Some(running)
    };
    let read = || fs::read_to_string(&log_file).unwrap();
    let text = read();
    let [server, dir] = S::IMPORT;
    // The other server may run meanwhile.
    let (code, said) = verify(&machine, &[server, dir, "--verify", "1000", "--log", log]);
    println!("{}: {said}", set_up.name);
    assert!(said.contains(" 0 otherwise"), "{said}\n{text}");
    let asked = |line: &str| {
        line.split("not compared ").nth(1).is_none_or(|rest| rest.trim_start().starts_with(['1', '2', '3']))
    };
    assert!(said.lines().all(asked), "{said}");
    assert_eq!(code, Some(0), "{said}");
    let taken = |text: &str| text.matches(": client=").count() + text.matches(" <= ").count();
    assert_eq!(taken(&text), taken(&read()), "the server took mail");
    drop(running);
    let file = machine.dir.path().join("postrider.toml");
    let named = file.to_str().unwrap();
    let (code, said) = verify(&machine, &[server, dir, "--output", named, "--verify", "1"]);
    // The usual log is not there, or it is the one of the test.
    assert!(matches!(code, Some(0 | 66)), "{said}");
    change(&file);
    let (code, said) = verify(&machine, &["--config", named, server, dir, "--verify", "1000", "--log", log]);
    assert_eq!(code, Some(65), "{said}");
    assert!(said.contains("\nrefused ") && said.contains("joe is not served here"), "{said}");
    assert_eq!(fs::read_dir(machine.var("tmp")).unwrap().count(), 0, "a folder is left");
}

/// Returns lines as Sendmail writes them about envelopes.
fn as_sendmail_logs(envelopes: &[Envelope]) -> String {
    let line = |(id, envelope): (usize, &Envelope)| {
        let relay =
            envelope.client.map_or("localhost [127.0.0.1]".to_owned(), |(name, at)| format!("{name} [{at}]"));
        let from = format!(
            "from=<{}>, size=3, class=0, nrcpts=1, proto=ESMTP, daemon=MTA, relay={relay}",
            envelope.from
        );
        let to =
            |to: &&str| format!("Nov 27 10:00:01 mx sm-mta[8]: {id}: to=<{to}>, delay=00:00:00, stat=Sent\n");
        let to: String = envelope.to.iter().map(to).collect();
        format!("Nov 27 10:00:00 mx sm-mta[7]: {id}: {from}\n{to}")
    };
    // The import names it: Postrider does not ask DNS about senders.
    let exists = |envelope: &&Envelope| !envelope.from.ends_with("@nowhere.example");
    envelopes.iter().filter(exists).enumerate().map(line).collect()
}

/// Adds a rule that the other server does not have.
fn change(file: &Path) {
    let rule = "\n[[rule]]\nto = [\"joe@*\"]\nfor = \"all\"\nreject = \"550 5.7.1 joe is not served here\"\n";
    let text = fs::read_to_string(file).unwrap();
    fs::write(file, text + rule).unwrap();
}

/// The clients' TLS is not compared, and a login that both servers refuse is no difference.
fn check_tls_and_logins() {
    let Some(machine) = super::postfix::Postfix::machine(&super::postfix::set_ups()[0]) else { return };
    let main = fs::read_to_string(machine.etc("postfix/main.cf")).unwrap();
    machine.write("postfix/main.cf", &format!("{main}smtpd_tls_security_level = encrypt\n"));
    let log = "mx postfix/smtpd[9]: NOQUEUE: reject: RCPT from a[203.0.113.5]: 5 x; from=<a@from.example> to=<joe@mx.test> proto=SMTP helo=<q.example>\n\
               mx postfix/smtpd[7]: A1: client=a[203.0.113.5], sasl_method=PLAIN, sasl_username=joe\n\
               mx postfix/qmgr[8]: A1: from=<joe@mx.test>, size=300, nrcpt=1 (queue active)\n\
               mx postfix/smtp[9]: A1: to=<ann@far.example>, relay=none, delay=1, status=sent (250 ok)\n\
               mx postfix/qmgr[8]: A1: removed\n";
    fs::write(machine.var("log/mail.log"), log.replace("mx postfix", "Nov 27 10:00:00 mx postfix")).unwrap();
    let arguments = ["postfix", "/etc/postfix", "--verify", "10", "--log", "/var/log/mail.log"];
    let (code, said) = verify(&machine, &arguments);
    assert!(said.contains("verified       2 envelopes as postfix does, 0 otherwise"), "{said}");
    assert_eq!(code, Some(0), "{said}");
}

/// Interrupts a verification while the second Postfix runs.
fn check_interrupt() {
    let Some(machine) = super::postfix::Postfix::machine(&super::postfix::set_ups()[0]) else { return };
    let line = |n: u32| {
        format!(
            "mx postfix/smtpd[9]: NOQUEUE: reject: RCPT from a[203.0.113.5]: 5 x; from=<> to=<u{n}@x.test> proto=SMTP helo=<q>\n"
        )
    };
    fs::write(machine.var("log/mail.log"), (0..20_000).map(line).collect::<String>()).unwrap();
    let mut command = machine.tree.command(BINARY);
    command.env("TMPDIR", "/var/tmp").args(["import", "postfix", "/etc/postfix", "--verify", "20000"]);
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let log = |name: &str| {
        let folders = fs::read_dir(machine.var("tmp")).unwrap();
        folders
            .filter_map(|folder| fs::read_to_string(folder.unwrap().path().join(name)).ok())
            .collect::<String>()
    };
    crate::common::until("the second Postfix has an answer", || log("log").contains("NOQUEUE: reject"));
    let master = log("queue/pid/master.pid").trim().to_owned();
    assert!(!master.is_empty());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(fs::read_dir(machine.var("tmp")).unwrap().count(), 0, "a folder is left");
    crate::common::until("the second Postfix has ended", || !Path::new("/proc").join(&master).exists());
}

#[test]
fn the_import_is_verified_beside_postfix_by_its_own_log() {
    if super::world::is_inside("migration::verify::the_import_is_verified_beside_postfix_by_its_own_log") {
        let _names = super::world::names();
        for set_up in super::postfix::set_ups() {
            check::<super::postfix::Postfix>(&set_up, "/var/log/postfix.log");
        }
        check_tls_and_logins();
        check_interrupt();
    }
}

#[test]
fn the_import_is_verified_beside_exim_by_its_own_log() {
    if super::world::is_inside("migration::verify::the_import_is_verified_beside_exim_by_its_own_log") {
        let _names = super::world::names();
        check::<super::exim::Exim>(&super::exim::set_ups()[0], "/var/log/exim4/mainlog");
    }
}

#[test]
fn the_import_is_verified_beside_sendmail_by_its_log() {
    if super::world::is_inside("migration::verify::the_import_is_verified_beside_sendmail_by_its_log") {
        let _names = super::world::names();
        check::<super::sendmail::Sendmail>(&super::sendmail::set_ups()[0], "/var/log/mail.log");
    }
}
