//! Users whom only a service of `/etc/nsswitch.conf` knows: Debian's libnss-extrausers stands for SSSD and LDAP.

use crate::{
    common::{BINARY, client::Client, until},
    migration::{
        machine::{Machine, Running, said},
        world::is_inside,
    },
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

const SERVER: &str = "198.51.100.1:25";
const CONFIG: &str = "/etc/postrider/postrider.toml";
/// Number of the daemon's user.
const DAEMON: u32 = 61010;
/// Of the first user of the service; the others follow.
const UID: u32 = 70001;
/// A group of the service, which the first user is a member of.
const STUDENTS: u32 = 70100;
const NAMES: [&str; 8] = ["nina", "nora", "nils", "noah", "nele", "nick", "nala", "nemo"];

/// Stands in for getent: a file says what it does.
const GETENT: &str = "#!/bin/sh\nread -r how < /var/lib/getent\ncase $how in\nfail) exit 1 ;;\n\
                      hang) echo \"$*\" >> /var/lib/hanging; exec sleep 1000 ;;\nesac\nexec /usr/bin/getent.own \"$@\"\n";

const KEYS: &str = "[local]\ndomains = [\"mx.test\", \"students.test\"]\nusers = [\"accounts:nss\"]\n\
                    [[route]]\nname = \"homes\"\ndomains = [\"mx.test\"]\nmaildir = \"/var/home/{local}/Maildir\"\nuser = \"{local}\"\n\
                    [[route]]\nname = \"students\"\ndomains = [\"students.test\"]\nmaildir = \"/var/students/{local}\"\nuser = \"{local}\"\n\
                    [addresses]\nforward = true\n[process]\nuser = \"postrider\"\n";

/// Returns a machine whose users only the service knows; `None` where it cannot be made.
fn machine(keys: &str) -> Option<Machine> {
    let machine = Machine::new("libnss-extrausers", &[("postrider", DAEMON)])?;
    let services = "files [SUCCESS=return] extrausers";
    machine.write("nsswitch.conf", &format!("passwd: {services}\ngroup: {services}\nhosts: files\n"));
    let (mut passwd, mut group) = (String::new(), format!("students:x:{STUDENTS}:nina\n"));
    for (id, name) in (UID..).zip(NAMES) {
        passwd += &format!("{name}:x:{id}:{id}:{name} N.,,,:/var/home/{name}:/bin/sh\n");
        group += &format!("{name}:x:{id}:\n");
        let home = machine.var("home").join(name);
        fs::create_dir_all(&home).unwrap();
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&home, Some(id), Some(id)).unwrap();
    }
    fs::create_dir_all(machine.var("lib/extrausers")).unwrap();
    fs::write(machine.var("lib/extrausers/passwd"), passwd).unwrap();
    fs::write(machine.var("lib/extrausers/group"), group).unwrap();
    machine.own("lib/postrider", DAEMON);
    machine.own("log/postrider", DAEMON);
    let configuration = format!(
        "hostname = \"mx.test\"\ndata_dir = \"/var/lib/postrider\"\n[[listen]]\naddress = \"{SERVER}\"\n{keys}\
         [log]\nfile = \"/var/log/postrider/mail.log\"\n[spool]\nsegment_size = \"4MiB\"\nmin_free = \"16MiB\"\n"
    );
    machine.write("postrider/postrider.toml", &configuration);
    Some(machine)
}

/// Puts a program in the place of getent, which does what [`getent_will`] says.
fn replace_getent(machine: &Machine) {
    let bin = machine.dir.path().join("usr/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::copy("/usr/bin/getent", bin.join("getent.own")).unwrap();
    fs::write(bin.join("getent"), GETENT).unwrap();
    fs::set_permissions(bin.join("getent"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(machine.var("lib/hanging"), "").unwrap();
    fs::set_permissions(machine.var("lib/hanging"), fs::Permissions::from_mode(0o666)).unwrap();
    getent_will(machine, "work");
}

fn getent_will(machine: &Machine, how: &str) {
    fs::write(machine.var("lib/getent"), format!("{how}\n")).unwrap();
}

fn start(machine: &Machine) -> Running {
    let mut command = machine.tree.command(BINARY);
    command.args(["serve", "--config", CONFIG]);
    machine.start(command, SERVER.parse::<SocketAddr>().unwrap())
}

fn postrider(machine: &Machine, arguments: &[&str]) -> Output {
    let mut command = machine.tree.command("env");
    command.args([&format!("POSTRIDER_CONFIG={CONFIG}"), BINARY]).args(arguments).output().unwrap()
}

fn connect() -> Client {
    Client::connect_from("203.0.113.9", SERVER.parse().unwrap()).unwrap()
}

/// Returns the reply to a recipient.
fn rcpt(name: &str) -> (u16, String) {
    let mut client = connect();
    assert_eq!(client.say("MAIL FROM:<bob@far.example>").unwrap().0, 250);
    client.say(&format!("RCPT TO:<{name}@mx.test>")).unwrap()
}

fn send(name: &str, subject: &str) {
    let content = format!("Subject: {subject}\r\n\r\nHello.\r\n");
    let to = format!("{name}@mx.test");
    let reply = connect().send("bob@far.example", &[&to], content.as_bytes()).unwrap();
    assert_eq!(reply.0, 250, "{}", reply.1);
}

/// Returns the messages in the Maildir of a user.
fn messages(machine: &Machine, name: &str) -> Vec<PathBuf> {
    let new = machine.var("home").join(name).join("Maildir/new");
    fs::read_dir(new).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

/// Waits for the only message of a user.
fn message(machine: &Machine, name: &str) -> PathBuf {
    until("the message is delivered", || !messages(machine, name).is_empty());
    let [message] = &messages(machine, name)[..] else { panic!("{name} has more than one message") };
    message.clone()
}

#[test]
fn users_whom_only_a_service_knows_get_forward_and_send_mail() {
    if !is_inside("accounts::users_whom_only_a_service_knows_get_forward_and_send_mail") {
        return;
    }
    let Some(machine) = machine(KEYS) else { return };
    let _running = start(&machine);
    send("nina", "hello");
    let found = fs::metadata(message(&machine, "nina")).unwrap();
    assert_eq!((found.uid(), found.gid()), (UID, UID));
    let (code, text) = rcpt("nobody.here");
    assert!(code == 550 && text.contains("5.1.1"), "{code} {text}");
    // A number is no user, and neither is an option of getent.
    for name in ["70001", "-s"] {
        assert_eq!(rcpt(name).0, 550, "{name}");
    }
    // The folder is open to the members of a group of the service.
    let folder = machine.var("students");
    fs::create_dir(&folder).unwrap();
    chown(&folder, Some(0), Some(STUDENTS)).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
    let reply =
        connect().send("bob@far.example", &["nina@students.test"], b"Subject: x\r\n\r\nHello.\r\n").unwrap();
    assert_eq!(reply.0, 250, "{}", reply.1);
    until("the message is in the folder", || {
        folder.join("nina/new").read_dir().is_ok_and(|mut new| new.next().is_some())
    });
    // nora's mail goes to nils.
    let file = machine.var("home/nora/.forward");
    fs::write(&file, "nils@mx.test\n").unwrap();
    chown(&file, Some(UID + 1), Some(UID + 1)).unwrap();
    send("nora", "forwarded");
    assert_eq!(fs::metadata(message(&machine, "nils")).unwrap().uid(), UID + 2);
    assert!(messages(&machine, "nora").is_empty());
    let told = said(&postrider(&machine, &["map", "query", "accounts:nss", "nora"]));
    assert!(told.contains("/var/home/nora"), "{told}");
    // noah writes to nele; his address and his name are those of the service.
    let mut sendmail = machine.tree.command("setpriv");
    let noah = (UID + 3).to_string();
    sendmail.args(["--reuid", &noah, "--regid", &noah, "--clear-groups", "env", "-i"]);
    sendmail.args([&format!("POSTRIDER_CONFIG={CONFIG}"), BINARY, "sendmail", "nele@mx.test"]);
    sendmail.stdin(Stdio::from(fs::File::open(own_message(&machine)).unwrap()));
    let output = sendmail.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let text = fs::read_to_string(message(&machine, "nele")).unwrap();
    assert!(
        text.contains("Return-Path: <noah@mx.test>") && text.contains("From: \"noah N.\" <noah@mx.test>"),
        "{text}"
    );
}

fn own_message(machine: &Machine) -> PathBuf {
    let file = machine.dir.path().join("message");
    fs::write(&file, "Subject: from noah\n\nHello.\n").unwrap();
    file
}

#[test]
fn a_service_that_does_not_answer_defers_mail_and_refuses_and_returns_none() {
    if !is_inside("accounts::a_service_that_does_not_answer_defers_mail_and_refuses_and_returns_none") {
        return;
    }
    let Some(machine) = machine(KEYS) else { return };
    replace_getent(&machine);
    let _running = start(&machine);
    let deferred = |name: &str| {
        let (code, text) = rcpt(name);
        assert!(code == 451 && text.contains("4.3.0"), "{name}: {code} {text}");
    };
    getent_will(&machine, "fail");
    deferred("nina");
    deferred("nobody.here");
    // A user of the file needs no service.
    assert_eq!(rcpt("joe").0, 550, "the accounts above max_uid have no mailbox");
    getent_will(&machine, "hang");
    deferred("nora");
    let hanging = fs::read_to_string(machine.var("lib/hanging")).unwrap();
    assert!(hanging.contains("passwd nora"), "{hanging}");
    getent_will(&machine, "work");
    // A failure is not remembered.
    for name in ["nina", "nora"] {
        assert_eq!(rcpt(name).0, 250, "{name}");
    }
    assert_eq!(rcpt("nobody.here").0, 550);
    // getent says "not found" for a module without its file; mail must not be refused for that.
    let file = machine.var("lib/extrausers/passwd");
    let kept = file.with_extension("kept");
    fs::rename(&file, &kept).unwrap();
    deferred("nils");
    deferred("nobody.there");
    let told = said(&postrider(&machine, &["doctor", "--offline"]));
    assert!(told.contains("the service extrausers of /etc/nsswitch.conf does not answer"), "{told}");
    fs::rename(&kept, &file).unwrap();
    assert_eq!(rcpt("nils").0, 250);
    assert_eq!(rcpt("nobody.there").0, 550);
    // The service fails between the acceptance and the delivery.
    let mut client = connect();
    for line in ["MAIL FROM:<bob@far.example>", "RCPT TO:<nele@mx.test>"] {
        assert_eq!(client.say(line).unwrap().0, 250, "{line}");
    }
    getent_will(&machine, "fail");
    assert_eq!(client.say("DATA").unwrap().0, 354);
    let reply = client.say("Subject: late\r\n\r\nHello.\r\n.").unwrap();
    assert_eq!(reply.0, 250, "{}", reply.1);
    until("the delivery is deferred", || {
        String::from_utf8_lossy(&postrider(&machine, &["queue", "list", "--json"]).stdout)
            .contains("exit status: 1")
    });
    assert!(messages(&machine, "nele").is_empty());
    getent_will(&machine, "work");
    let output = postrider(&machine, &["queue", "flush"]);
    assert!(output.status.success(), "{}", said(&output));
    let text = fs::read_to_string(message(&machine, "nele")).unwrap();
    assert!(text.contains("Subject: late"), "{text}");
}

#[test]
fn the_daemons_user_is_found_by_a_service_and_a_failure_is_told_from_a_missing_user() {
    let test = "accounts::the_daemons_user_is_found_by_a_service_and_a_failure_is_told_from_a_missing_user";
    if !is_inside(test) {
        return;
    }
    let keys =
        KEYS.replace("user = \"postrider\"", "user = \"nemo\"").replace("users = [\"accounts:nss\"]\n", "");
    let Some(machine) = machine(&keys) else { return };
    replace_getent(&machine);
    for name in ["lib/postrider", "log/postrider"] {
        machine.own(name, UID + 7);
    }
    getent_will(&machine, "fail");
    let told = said(&postrider(&machine, &["config", "check"]));
    assert!(told.contains("getent passwd nemo: it ended with exit status: 1"), "{told}");
    assert!(!told.contains("there is no user"), "{told}");
    getent_will(&machine, "work");
    let running = start(&machine);
    let status = fs::read_to_string(daemon_status(&running)).unwrap();
    assert!(status.contains(&format!("Uid:\t{0}\t{0}", UID + 7)), "{status}");
    // Without a list of users, whoever has an account has a mailbox.
    send("nina", "hello");
    assert_eq!(fs::metadata(message(&machine, "nina")).unwrap().uid(), UID);
    assert_eq!(rcpt("nobody.here").0, 550);
    // The confined daemon reads the configuration again, and asks the helper for the user.
    let file = machine.etc("postrider/postrider.toml");
    let text = fs::read_to_string(&file).unwrap();
    let with_route = |user: &str| {
        format!(
            "{text}[[route]]\nname = \"one\"\ndomains = [\"one.test\"]\nmaildir = \"/var/home/nina/Maildir\"\nuser = \"{user}\"\n"
        )
    };
    for (user, is_found) in [("nobody.here", false), ("nina", true)] {
        fs::write(&file, with_route(user)).unwrap();
        let output = postrider(&machine, &["reload"]);
        assert_eq!(output.status.success(), is_found, "{user}: {}", said(&output));
    }
    // What was found stays found while the service does not answer. The command would ask by itself; the signal does not.
    getent_will(&machine, "fail");
    let log = || fs::read_to_string(machine.dir.path().join("start.log")).unwrap();
    let count = || log().matches("the configuration was read again").count();
    let before = count();
    let daemon = Pid::from_raw(running.0.id().try_into().unwrap()).unwrap();
    kill_process(daemon, Signal::HUP).unwrap();
    until("the daemon has read the configuration again", || count() > before);
}

/// The program of a tree keeps its number when it starts another in its place.
fn daemon_status(running: &Running) -> PathBuf {
    Path::new("/proc").join(running.0.id().to_string()).join("status")
}

#[test]
fn a_user_of_the_file_is_found_without_any_service() {
    if !is_inside("accounts::a_user_of_the_file_is_found_without_any_service") {
        return;
    }
    let Some(machine) = machine(KEYS) else { return };
    replace_getent(&machine);
    machine.write("nsswitch.conf", "passwd: files\ngroup: compat\n");
    // Whoever runs it fails.
    getent_will(&machine, "fail");
    fs::create_dir_all(machine.var("home/joe")).unwrap();
    chown(machine.var("home/joe"), Some(61001), Some(61001)).unwrap();
    machine.write("postrider/postrider.toml", &{
        let text = fs::read_to_string(machine.etc("postrider/postrider.toml")).unwrap();
        text.replace("[process]\n", "[process]\nmax_uid = 61005\n")
    });
    let _running = start(&machine);
    send("joe", "hello");
    assert_eq!(fs::metadata(message(&machine, "joe")).unwrap().uid(), 61001);
    assert_eq!(rcpt("nina").0, 550);
}
