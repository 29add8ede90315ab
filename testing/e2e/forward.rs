//! Files `.forward` of users, beside Postfix.

use crate::{
    common::{BINARY, client::Client, sink::Sink, until},
    migration::{
        machine::{Machine, Running},
        postfix::{self, Postfix},
        world::is_inside,
    },
};
use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::Path,
    process::Command,
};

const SERVER: &str = "198.51.100.1:25";
const NEXT_HOP: &str = "203.0.113.21:25";

/// Of the first user; the others follow.
const UID: u32 = 2001;
/// Number of the daemon's user.
const DAEMON: u32 = 61010;

/// A user: the name, and what is in the home: the text of the file, its mode, and who has it if that is somebody else.
struct User {
    name: &'static str,
    text: Option<&'static str>,
    mode: u32,
    owner: Option<u32>,
}

const fn user(name: &'static str, text: &'static str) -> User {
    User { name, text: Some(text), mode: 0o644, owner: None }
}

const USERS: [User; 15] = [
    User { name: "none", text: None, mode: 0, owner: None },
    user("plain", "bob@far.example\n"),
    user("both", "\\both, bob@far.example\n"),
    user("itself", "itself\nbob@far.example\n"),
    user("address", "address@mx.test, bob@far.example\n"),
    user("comments", "# away\n\n  none  \n# the end\nbob@far.example"),
    user("chain", "plain\n"),
    user("empty", ""),
    user("blank", "# nobody\n\n"),
    user("aliased", "bob@far.example\n"),
    User { mode: 0o666, ..user("open", "bob@far.example\n") },
    User { mode: 0o664, ..user("group", "bob@far.example\n") },
    User { mode: 0o600, ..user("closed", "bob@far.example\n") },
    User { owner: Some(UID), ..user("stranger", "bob@far.example\n") },
    User { owner: Some(0), ..user("roots", "bob@far.example\n") },
];

/// Makes the users of a machine, and their homes.
fn make_users(machine: &Machine) {
    let (mut passwd, mut group) = (String::new(), String::new());
    for (id, User { name, text, mode, owner }) in (UID..).zip(&USERS) {
        passwd += &format!("{name}:x:{id}:{id}::/var/home/{name}:/bin/sh\n");
        group += &format!("{name}:x:{id}:\n");
        let home = machine.var("home").join(name);
        fs::create_dir_all(&home).unwrap();
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&home, Some(id), Some(id)).unwrap();
        let Some(text) = text else { continue };
        let file = home.join(".forward");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(*mode)).unwrap();
        let owner = owner.unwrap_or(id);
        chown(&file, Some(owner), Some(owner)).unwrap();
    }
    // A link, a folder, and what never ends.
    for (id, name) in (UID + 100..).zip(["link", "folder", "pipe"]) {
        passwd += &format!("{name}:x:{id}:{id}::/var/home/{name}:/bin/sh\n");
        group += &format!("{name}:x:{id}:\n");
        let home = machine.var("home").join(name);
        fs::create_dir_all(&home).unwrap();
        let file = home.join(".forward");
        match name {
            "link" => {
                fs::write(home.join("targets"), "bob@far.example\n").unwrap();
                symlink("targets", &file).unwrap();
            }
            "folder" => fs::create_dir(&file).unwrap(),
            _ => assert!(Command::new("mkfifo").arg(&file).status().unwrap().success()),
        }
        for path in [home.clone(), file, home.join("targets")] {
            let _ = std::os::unix::fs::lchown(path, Some(id), Some(id));
        }
    }
    passwd += &format!("postrider:x:{DAEMON}:{DAEMON}::/:/bin/false\n");
    group += &format!("postrider:x:{DAEMON}:\nmail:x:8:\n");
    for (name, more) in [("passwd", passwd), ("group", group)] {
        let text = fs::read_to_string(machine.etc(name)).unwrap();
        machine.write(name, &(text + &more));
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    USERS.iter().map(|user| user.name).chain(["link", "folder", "pipe"])
}

/// Sends a message to each user. Returns where each arrived when the queue is empty.
fn deliver(machine: &Machine, sink: &Sink, is_empty: impl Fn() -> bool) -> BTreeMap<String, Vec<String>> {
    for name in names() {
        let mut client = Client::connect_from("198.51.100.1", SERVER.parse().unwrap()).unwrap();
        let message = format!("Subject: for {name}\r\n\r\nHello.\r\n");
        let reply = client.send("x@mx.test", &[&format!("{name}@mx.test")], message.as_bytes()).unwrap();
        assert_eq!(reply.0, 250, "{name}: {}", reply.1);
    }
    until("the queue is empty", is_empty);
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (subject, arrival) in machine.take_mailboxes() {
        let place = arrival.rsplit(' ').next().unwrap().to_owned();
        found.entry(subject).or_default().push(place);
    }
    for message in sink.take() {
        let text = String::from_utf8_lossy(&message.content).into_owned();
        let subject = text.lines().find_map(|line| line.strip_prefix("Subject: ")).unwrap();
        found.entry(subject.to_owned()).or_default().extend(message.to);
    }
    found.values_mut().for_each(|places| places.sort());
    found
}

fn start(machine: &Machine) -> Running {
    let mut command = machine.tree.command(BINARY);
    command.args(["serve", "--config", "/etc/postrider/postrider.toml"]);
    machine.start(command, SERVER.parse::<SocketAddr>().unwrap())
}

fn mailq_is_empty(machine: &Machine) -> bool {
    let mut command = machine.tree.command("env");
    let output = command.args(["POSTRIDER_CONFIG=/etc/postrider/postrider.toml", BINARY, "mailq"]).output();
    String::from_utf8_lossy(&output.unwrap().stdout).contains("is empty")
}

fn configuration(forward: bool) -> String {
    format!(
        "hostname = \"mx.test\"\ndata_dir = \"/var/lib/postrider\"\n[[listen]]\naddress = \"{SERVER}\"\n\
         [relay]\nnetworks = [\"198.51.100.0/24\"]\n\
         [local]\ndomains = [\"mx.test\"]\nusers = [\"accounts:/etc/passwd\"]\nmbox = \"/var/mail/{{local}}\"\nuser = \"{{local}}\"\ngroup = \"mail\"\n\
         [addresses]\naliases = [\"aliases:/etc/aliases\"]\nforward = {forward}\n\
         [[route]]\ndomains = [\"*\"]\nsmarthost = \"{NEXT_HOP}\"\ntls = \"off\"\n\
         [process]\nuser = \"postrider\"\n[log]\nfile = \"/var/log/postrider/mail.log\"\n[spool]\nsegment_size = \"4MiB\"\nmin_free = \"16MiB\"\n"
    )
}

#[test]
fn the_files_that_count_are_those_of_postfix() {
    if !is_inside("forward::the_files_that_count_are_those_of_postfix") {
        return;
    }
    let main = "compatibility_level = 3.6\nmyhostname = mx.test\nmydestination = mx.test, localhost\n\
                inet_interfaces = 198.51.100.1\nmynetworks = 198.51.100.0/24\nrelayhost = [203.0.113.21]\n\
                alias_maps = hash:/etc/aliases\nmaillog_file = /var/log/postfix.log\nmail_spool_directory = /var/mail\n";
    let files = [("postfix/main.cf", main.to_owned()), ("aliases", "aliased: none\n".to_owned())];
    let Some(machine) = postfix::machine(&files) else { return };
    make_users(&machine);
    let sink = Sink::at(NEXT_HOP.parse().unwrap(), |_| None);
    let theirs = {
        let _postfix = Postfix::listening(&machine, SERVER.parse().unwrap());
        let is_empty = || {
            let output = machine.tree.command("postqueue").arg("-p").output().unwrap();
            String::from_utf8_lossy(&output.stdout).contains("is empty")
        };
        deliver(&machine, &sink, is_empty)
    };
    until("Postfix has ended", || std::net::TcpStream::connect(SERVER).is_err());
    machine.own("lib/postrider", DAEMON);
    machine.own("log/postrider", DAEMON);
    machine.write("postrider/postrider.toml", &configuration(true));
    let running = start(&machine);
    let ours = deliver(&machine, &sink, || mailq_is_empty(&machine));
    assert_eq!(ours, theirs);
    assert_eq!(ours["for both"], ["bob@far.example", "both"]);
    assert_eq!(ours["for open"], ["open"], "others may write it");
    // A program is not started; the mailbox has the message.
    let file = machine.var("home/none/.forward");
    let trace = machine.dir.path().join("trace");
    fs::write(&file, format!("\"|/usr/bin/touch {}\", bob@far.example\n", trace.display())).unwrap();
    chown(&file, Some(UID), Some(UID)).unwrap();
    drop(running);
    let _running = start(&machine);
    let programs = deliver(&machine, &sink, || mailq_is_empty(&machine));
    assert_eq!(programs["for none"], ["bob@far.example", "none"]);
    assert!(!Path::new(&trace).exists());
}
