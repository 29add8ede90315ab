//! Targets of routes on this machine: programs, mailbox files, routes that hold and routes that refuse.

use crate::common::{Postrider, client::Client, free_address, until};
use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

const LOG: &str = "[log]\nfile = \"mail.log\"\n";

fn send(daemon: &Postrider, from: &str, to: &[&str], content: &str) {
    let mut client = Client::connect(daemon.address).unwrap();
    let reply = client.send(from, to, content.as_bytes()).unwrap();
    assert_eq!(reply.0, 250, "{}", reply.1);
}

/// The reply to RCPT in a transaction of its own.
fn rcpt(daemon: &Postrider, recipient: &str) -> String {
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<a@far.test>").unwrap();
    client.say(&format!("RCPT TO:<{recipient}>")).unwrap().1
}

/// A folder that programs of other users may write to.
fn open_folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    dir
}

/// A route to a program, as the user who runs the test; nothing runs as root.
fn pipe(domain: &str, argv: &[&str], more: &str) -> String {
    let user = if rustix::process::geteuid().is_root() { ", user = \"nobody\"" } else { "" };
    format!("[[route]]\ndomains = [\"{domain}\"]\npipe = {{ argv = {argv:?}{user}{more} }}\n")
}

/// A route to a shell that does this after it has read the message.
fn shell(domain: &str, script: &str, more: &str) -> String {
    pipe(domain, &["/bin/sh", "-c", &format!("cat >/dev/null; {script}")], more)
}

#[test]
fn a_program_gets_the_message_its_arguments_and_a_clean_environment() {
    let dir = open_folder();
    let at = dir.path().display().to_string();
    let script =
        format!("#!/bin/sh\nprintf '<%s>\\n' \"$@\" >{at}/args\nenv >{at}/env\ncat >{at}/mail\nexit 0\n");
    let program = dir.path().join("program");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let argv = [
        program.to_str().unwrap(),
        "--to",
        "{recipient}",
        "{sender}",
        "{user}",
        "{detail}",
        "{domain}",
        "$(touch /tmp/x)",
        "{local}",
    ];
    let daemon = Postrider::start_in(dir, free_address(), &(pipe("list.test", &argv, "") + LOG));
    send(
        &daemon,
        "me@far.test",
        &["\"joe $(id);x\"+d@list.test".replace("\"+d", "+d\"").as_str()],
        "Subject: s\r\n\r\nFrom x\r\n.dot\r\n",
    );
    until("it is delivered", || daemon.counter("delivered") == 1);
    let read = |name: &str| fs::read_to_string(daemon.dir.path().join(name)).unwrap();
    assert_eq!(
        read("args"),
        "<--to>\n<\"joe $(id);x+d\"@list.test>\n<me@far.test>\n<joe $(id);x>\n<d>\n<list.test>\n<$(touch /tmp/x)>\n<joe $(id);x+d>\n"
    );
    let mail = read("mail");
    assert!(
        mail.starts_with("Return-Path: <me@far.test>\nDelivered-To: \"joe $(id);x+d\"@list.test\n"),
        "{mail}"
    );
    assert!(mail.ends_with("\nSubject: s\n\nFrom x\n.dot\n") && !mail.contains('\r'), "{mail}");
    let environment = read("env");
    assert!(
        environment.contains("SENDER=me@far.test\n") && environment.contains("PATH=/usr/local/bin:"),
        "{environment}"
    );
    assert!(!environment.contains("CARGO") && !environment.contains("POSTRIDER"), "{environment}");
    assert_eq!(daemon.outcome("\"joe $(id);x+d\"@list.test")["relay"], "pipe");
    // No address is an option.
    assert!(rcpt(&daemon, "-rf@list.test").starts_with("550 5.1.1"));
    assert!(rcpt(&daemon, "\"-rf x\"@list.test").starts_with("550 5.1.1"));
    send(&daemon, "-x@far.test", &["ann@list.test"], "Subject: s\r\n\r\nx\r\n");
    assert_eq!(daemon.outcome("ann@list.test")["dsn"], "5.1.7");
}

#[test]
fn exit_codes_and_words_of_a_program_decide() {
    let routes = shell("nouser.test", "echo no such list >&2; exit 67", "")
        + &shell("later.test", "exit 75", "")
        + &shell("words.test", "echo 5.2.2 mailbox is full; exit 1", "")
        + &shell("crash.test", "kill -9 $$", "")
        + &shell("slow.test", "sleep 61.7 & sleep 61.7", ", timeout = \"1s\"")
        + &shell("fine.test", "echo 5.1.1 does not matter", "")
        + &pipe("deaf.test", &["/bin/true"], "")
        + &pipe("none.test", &["/does/not/exist"], "");
    let daemon = Postrider::start(&(routes + LOG));
    let large = format!("Subject: s\r\n\r\n{}", "x\r\n".repeat(300_000));
    for (domain, status, text) in [
        ("nouser.test", "5.1.1", "no such list"),
        ("later.test", "4.3.0", "temporary failure"),
        ("words.test", "5.2.2", "mailbox is full"),
        ("crash.test", "4.3.0", "signal"),
        ("slow.test", "4.3.0", "did not end within 1s"),
        ("fine.test", "2.0.0", "delivered to the program /bin/sh"),
        ("deaf.test", "2.0.0", "/bin/true"),
        ("none.test", "4.3.5", "No such file"),
    ] {
        send(&daemon, "a@mx.test", &[&format!("joe@{domain}")], &large);
        let outcome = daemon.outcome(&format!("joe@{domain}"));
        assert_eq!(outcome["dsn"], status, "{outcome}");
        assert!(outcome.to_string().contains(text), "{outcome}");
    }
    assert_eq!((daemon.counter("bounced"), daemon.counter("delivered") >= 2), (2, true));
    // Nothing of the program that took too long is left.
    let is_running = || {
        let listed = std::process::Command::new("ps").args(["-eo", "args"]).output().unwrap();
        String::from_utf8_lossy(&listed.stdout).lines().any(|line| line == "sleep 61.7")
    };
    until("its processes have ended", || !is_running());
}

#[test]
fn programs_run_as_their_user_and_never_as_root_by_accident() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can change the user");
        return;
    }
    let route = |domain: &str, user: &str| {
        format!(
            "[[route]]\ndomains = [\"{domain}\"]\npipe = {{ argv = [\"/bin/sh\", \"-c\", \"echo uid $(id -u) groups $(id -G) $HOME; exit 65\"]{user} }}\n"
        )
    };
    let daemon = Postrider::start(&(route("a.test", ", user = \"nobody\"") + &route("b.test", "") + LOG));
    send(&daemon, "", &["joe@a.test"], "Subject: s\r\n\r\nx\r\n");
    send(&daemon, "", &["joe@b.test"], "Subject: s\r\n\r\nx\r\n");
    let said = daemon.outcome("joe@a.test").to_string();
    assert!(said.contains("uid 65534 groups 65534 /nonexistent"), "{said}");
    let said = daemon.outcome("joe@b.test");
    assert!(said["dsn"] == "4.3.5" && said.to_string().contains("would run as root"), "{said}");
}

#[test]
fn mail_for_a_mailbox_that_belongs_to_another_user_waits_until_its_user_has_it() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    const OTHER: u32 = 65_533;
    let dir = open_folder();
    let at = dir.path().display().to_string();
    let (file, folder, closed) = (dir.path().join("bob"), dir.path().join("bob.d"), dir.path().join("eve"));
    fs::write(&file, "").unwrap();
    fs::write(&closed, "").unwrap();
    fs::create_dir(&folder).unwrap();
    for (path, mode) in [(&file, 0o666), (&folder, 0o777), (&closed, 0o600)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(path, Some(OTHER), None).unwrap();
    }
    let routes = format!(
        "[[route]]\ndomains = [\"old.test\"]\nmbox = \"{at}/{{local}}\"\nuser = \"nobody\"\n\
         [[route]]\ndomains = [\"new.test\"]\nmaildir = \"{at}/{{local}}.d\"\nuser = \"nobody\"\n"
    );
    let daemon = Postrider::start_in(dir, free_address(), &(routes + LOG));
    let mut client = Client::connect(daemon.address).unwrap();
    let to = ["bob@old.test", "bob@new.test", "eve@old.test"];
    client.send("a@far.test", &to, b"Subject: x\r\n\r\nx\r\n").unwrap();
    until("the queue list names the owner of each mailbox", || {
        let list = daemon.ask(&["queue", "list"]);
        [&file, &folder, &closed]
            .iter()
            .all(|path| list.contains(&format!("{} belongs to the user {OTHER}, not to ", path.display())))
    });
    assert!(fs::read(&file).unwrap().is_empty() && fs::read_dir(&folder).unwrap().next().is_none());
    // The file has the owner that a new one has.
    client.send("a@far.test", &["new@old.test"], b"Subject: x\r\n\r\nx\r\n").unwrap();
    until("a new file is made", || daemon.counter("delivered") == 1);
    let nobody = fs::metadata(daemon.dir.path().join("new")).unwrap().uid();
    [&file, &folder, &closed]
        .iter()
        .for_each(|path| std::os::unix::fs::chown(path, Some(nobody), None).unwrap());
    daemon.ask(&["queue", "retry", "all"]);
    until("all are delivered", || daemon.counter("delivered") == 4);
}

#[test]
fn mailbox_files_get_messages_one_behind_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display().to_string();
    let route = format!("[[route]]\ndomains = [\"old.test\"]\nmbox = \"{at}/boxes/{{domain}}/{{local}}\"\n");
    let daemon = Postrider::start_in(dir, free_address(), &(route + LOG));
    let senders: Vec<_> = (0..8)
        .map(|n| {
            let address = daemon.address;
            std::thread::spawn(move || {
                let mut client = Client::connect(address).unwrap();
                for m in 0..5 {
                    let content = format!("Subject: {n}-{m}\r\n\r\nFrom {n}\r\nend {n}-{m}\r\n");
                    let to = ["Joe@old.test", "joe+x@old.test", "ann@old.test"];
                    assert_eq!(client.send("a@far.test", &to, content.as_bytes()).unwrap().0, 250);
                }
            })
        })
        .collect();
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    until("all are delivered", || daemon.counter("delivered") == 120);
    let read = |user: &str| fs::read_to_string(daemon.dir.path().join("boxes/old.test").join(user)).unwrap();
    for (user, count) in [("joe", 80), ("ann", 40)] {
        let text = read(user);
        let messages: Vec<&str> =
            text.split_inclusive("\n\n").collect::<Vec<_>>().chunks(2).map(|c| c[0]).collect();
        assert_eq!(messages.len(), count, "{text}");
        assert!(messages.iter().all(|message| message.starts_with("From a@far.test ")), "{text}");
        assert_eq!(text.matches("\n>From ").count(), count);
    }
    let files = fs::read_dir(daemon.dir.path().join("boxes/old.test")).unwrap().count();
    assert_eq!(files, 2, "no lock is left");
    assert!(rcpt(&daemon, "\"../joe\"@old.test").starts_with("550 5.1.1"));
}

#[test]
fn a_mailbox_file_waits_for_its_lock_and_keeps_its_length_when_the_disk_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display().to_string();
    let route = format!("[[route]]\ndomains = [\"old.test\"]\nmbox = \"{at}/full/joe\"\nretry = [\"1h\"]\n");
    fs::create_dir(dir.path().join("full")).unwrap();
    let mount = |verb: &str, arguments: &[&str], at: &Path| {
        std::process::Command::new(verb).args(arguments).arg(at).status().is_ok_and(|status| status.success())
    };
    if !mount("mount", &["-t", "tmpfs", "-o", "size=256k", "tmpfs"], &dir.path().join("full")) {
        println!("SKIPPED: no file system may be mounted here");
        return;
    }
    let full = dir.path().join("full");
    let file = full.join("joe");
    let before = "From x@y.test Mon Nov 23 10:00:00 2026\nSubject: old\n\nold\n\n";
    fs::write(&file, before).unwrap();
    let daemon = Postrider::start_in(dir, free_address(), &(route + LOG));
    let large = format!("Subject: s\r\n\r\n{}", "0123456789\r\n".repeat(60_000));
    send(&daemon, "a@far.test", &["joe@old.test"], &large);
    let said = daemon.outcome("joe@old.test");
    let unchanged = fs::read_to_string(&file).unwrap() == before;
    // A lock of another program.
    fs::write(full.join("joe.lock"), "1\n").unwrap();
    send(&daemon, "a@far.test", &["joe+2@old.test"], "Subject: two\r\n\r\nx\r\n");
    std::thread::sleep(std::time::Duration::from_millis(500));
    let is_locked = fs::read_to_string(&file).unwrap() == before;
    fs::remove_file(full.join("joe.lock")).unwrap();
    until("the second message is there", || fs::read_to_string(&file).unwrap().contains("Subject: two"));
    drop(daemon.stop());
    assert!(mount("umount", &[], &full));
    assert_eq!(said["dsn"], "4.3.1", "{said}");
    assert!(unchanged && is_locked);
}

/// The test is the other program: locks of fcntl(2) belong to processes.
#[test]
fn a_mailbox_file_that_another_program_has_locked_by_fcntl_is_appended_to_behind_what_that_program_writes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("joe");
    let route = format!("[[route]]\ndomains = [\"old.test\"]\nmbox = \"{}\"\n", file.display());
    let mut mailbox = fs::File::create(&file).unwrap();
    rustix::fs::fcntl_lock(&mailbox, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let daemon = Postrider::start_in(dir, free_address(), &(route + LOG));
    send(&daemon, "a@far.test", &["joe@old.test"], "Subject: two\r\n\r\nx\r\n");
    let has_written = || mailbox.metadata().unwrap().len() > 0;
    let delivering = || daemon.ask(&["queue", "list", "--json"]).contains("\"in-flight\"");
    until("the delivery waits for the lock", || delivering() || has_written());
    assert!(!has_written());
    let own = "From x@y.test Mon Nov 23 10:00:00 2026\nSubject: one\n\nx\n\n";
    std::io::Write::write_all(&mut mailbox, own.as_bytes()).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), own);
    drop(mailbox);
    assert_eq!(daemon.outcome("joe@old.test")["status"], "sent");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with(&format!("{own}From a@far.test ")), "{text}");
}

#[test]
fn a_mailbox_that_its_owner_keeps_locked_does_not_delay_the_mail_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let boxes = dir.path().join("boxes");
    fs::create_dir(&boxes).unwrap();
    let route = format!("[[route]]\ndomains = [\"old.test\"]\nmbox = \"{}/{{local}}\"\n", boxes.display());
    let joe = fs::File::create(boxes.join("joe")).unwrap();
    rustix::fs::fcntl_lock(&joe, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let daemon = Postrider::start_in(dir, free_address(), &(route + LOG));
    let subjects = (0..60).map(|number| format!("Subject: {number}\r\n\r\nx\r\n"));
    subjects.for_each(|mail| send(&daemon, "a@far.test", &["joe@old.test"], &mail));
    send(&daemon, "a@far.test", &["ann@old.test"], "Subject: hers\r\n\r\nx\r\n");
    assert_eq!(daemon.outcome("ann@old.test")["status"], "sent");
    let gave_up =
        daemon.log().iter().any(|line| line["reply"].as_str().is_some_and(|text| text.contains("holds")));
    assert!(!gave_up, "no delivery had to give up the lock first");
    drop(joe);
    until("his mail comes, too", || !fs::read(boxes.join("joe")).unwrap().is_empty());
}

#[test]
fn a_program_that_locks_in_the_other_order_gets_both_locks_of_a_mailbox_file() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display().to_string();
    let route = format!("[[route]]\ndomains = [\"old.test\"]\nmbox = \"{at}/boxes/joe\"\n");
    fs::create_dir(dir.path().join("boxes")).unwrap();
    let (path, lock) = (dir.path().join("boxes/joe"), dir.path().join("boxes/joe.lock"));
    let file = fs::File::create(&path).unwrap();
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let daemon = Postrider::start_in(dir, free_address(), &(route + LOG));
    send(&daemon, "a@far.test", &["joe@old.test"], "Subject: s\r\n\r\nx\r\n");
    let delivering = || daemon.ask(&["queue", "list", "--json"]).contains("\"in-flight\"");
    until("the delivery waits for the file", delivering);
    until("the other lock is free", || fs::File::create_new(&lock).is_ok());
    let has_given_up = daemon.log().iter().any(|line| line["event"] == "attempt");
    assert!(!has_given_up, "the lock is free while the delivery goes on");
    assert_eq!(fs::read_to_string(&path).unwrap(), "");
    drop(file);
    fs::remove_file(&lock).unwrap();
    until("the message is there", || fs::read_to_string(&path).unwrap().contains("Subject: s"));
    assert_eq!(daemon.outcome("joe@old.test")["dsn"], "2.0.0");
}

#[test]
fn held_mail_waits_for_an_operator_and_then_takes_the_next_route() {
    let routes = "[[route]]\ndomains = [\"mx.test\"]\nhold = true\n[[route]]\ndomains = [\"far.test\"]\ndiscard = true\n";
    let daemon = Postrider::start(&format!("{routes}{LOG}"));
    send(&daemon, "a@far.test", &["joe@mx.test", "x@far.test"], "Subject: s\r\n\r\nx\r\n");
    send(&daemon, "a@far.test", &["x@far.test"], "Subject: s\r\n\r\nx\r\n");
    until("the other one has left", || daemon.counter("delivered") == 1);
    let listed = daemon.ask(&["queue", "list"]);
    assert!(listed.contains("held") || listed.contains('!'), "{listed}");
    assert!(daemon.mailbox("joe").is_empty());
    let mut id = None;
    until("the log has the hold", || {
        id = daemon.log().iter().find(|line| line["event"] == "held").map(|line| line["id"].clone());
        id.is_some()
    });
    let id = id.unwrap();
    // Held mail survives a crash.
    let (dir, address) = daemon.kill();
    let daemon = Postrider::start_in(dir, address, &format!("{routes}{LOG}"));
    // What left just before the crash may be delivered again.
    until("it alone waits", || daemon.ask(&["queue", "count"]) == "1\n");
    assert!(daemon.mailbox("joe").is_empty());
    daemon.ask(&["queue", "release", id.as_str().unwrap()]);
    until("it is in the Maildir", || daemon.mailbox("joe").len() == 1);
}

#[test]
fn a_route_that_refuses_says_so_at_rcpt_and_to_programs() {
    let routes =
        "[[route]]\ndomains = [\"gone.test\"]\nreject = \"550 5.1.2 gone.test has no mail any more\"\n";
    let daemon = Postrider::start(&format!("{routes}{LOG}"));
    assert_eq!(rcpt(&daemon, "joe@gone.test"), "550 5.1.2 gone.test has no mail any more");
    // What was queued before the route was written is returned.
    let dead = format!("[[route]]\ndomains = [\"*\"]\nsmarthost = \"{}\"\ntls = \"off\"\n", free_address());
    let daemon = Postrider::start(&format!("{dead}{LOG}"));
    send(&daemon, "", &["joe@gone.test"], "Subject: s\r\n\r\nx\r\n");
    daemon.reconfigure(&format!("{routes}{LOG}"));
    daemon.ask(&["reload"]);
    until("it is refused", || {
        daemon.ask(&["queue", "flush"]);
        daemon.counter("bounced") == 1
    });
    until("the log has the status", || daemon.log().iter().any(|line| line["dsn"] == "5.1.2"));
}

#[test]
fn aliases_name_programs_and_files_that_the_configuration_lists() {
    let dir = open_folder();
    let at = dir.path().display().to_string();
    let script = format!("#!/bin/sh\nprintf '<%s>\\n' \"$RECIPIENT\" \"$@\" >>{at}/args\ncat >/dev/null\n");
    fs::write(dir.path().join("program"), script).unwrap();
    fs::set_permissions(dir.path().join("program"), fs::Permissions::from_mode(0o755)).unwrap();
    let aliases = format!(
        "vacation: \\joe, \"|{at}/program -a 'x y' $1\"\nprog: \"|{at}/program -a 'x y' '$1'\"\n\
         archive: {at}/archive, prog\nother: |/bin/true\nfile: {at}/elsewhere\nnoreply: /dev/null\n"
    )
    .replace("vacation: \\joe, \"|", "shell: \\joe, \"|");
    fs::write(dir.path().join("aliases"), aliases).unwrap();
    let user = if rustix::process::geteuid().is_root() { "program_user = \"nobody\"\n" } else { "" };
    let addresses = format!(
        "[addresses]\naliases = [\"aliases:aliases\"]\nprograms = [\"{at}/program\"]\nfiles = [\"{at}/archive\"]\n{user}"
    );
    let users = "[local]\ndomains = [\"mx.test\"]\nusers = [\"joe\"]\n";
    let daemon = Postrider::start_in(dir, free_address(), &format!("{addresses}{users}{LOG}"));
    send(&daemon, "a@far.test", &["archive@mx.test", "prog+x@mx.test"], "Subject: s\r\n\r\nFrom x\r\n");
    until("all are delivered", || daemon.counter("queued") == 0);
    let read = |name: &str| fs::read_to_string(daemon.dir.path().join(name)).unwrap_or_default();
    until("the program ran", || read("args").contains("<prog@mx.test>\n<-a>\n<x y>\n<$1>\n"));
    until("the file has it", || read("archive").ends_with("\n>From x\n\n"));
    for recipient in ["other@mx.test", "file@mx.test", "shell@mx.test"] {
        assert!(rcpt(&daemon, recipient).starts_with("451 4.2.4"), "{recipient}");
    }
    let before = daemon.counter("delivered");
    send(&daemon, "a@far.test", &["noreply@mx.test"], "Subject: s\r\n\r\nx\r\n");
    until("mail for /dev/null is discarded", || daemon.counter("delivered") == before + 1);
    let shown = std::process::Command::new(crate::common::BINARY)
        .args(["sendmail", "-bv", "archive@mx.test"])
        .env("POSTRIDER_CONFIG", daemon.config())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.contains(&format!("by mbox:{at}/archive")) && shown.contains(&format!("by pipe:{at}/program")),
        "{shown}"
    );
    assert_eq!(daemon.counter("bounced"), 0);
}

#[test]
fn mail_for_a_program_that_nobody_can_start_is_left_with_the_client() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display().to_string();
    fs::write(dir.path().join("aliases"), format!("prog: |{at}/program\n")).unwrap();
    let addresses = format!("[addresses]\naliases = [\"aliases:aliases\"]\nprograms = [\"{at}/program\"]\n");
    let daemon = Postrider::start_in(dir, free_address(), &addresses);
    let program = daemon.dir.path().join("program");
    assert!(rcpt(&daemon, "prog@mx.test").starts_with("451 4.2.4"), "it is missing");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(rcpt(&daemon, "prog@mx.test").starts_with("451 4.2.4"), "it is not executable");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(rcpt(&daemon, "prog@mx.test").starts_with("250"));
}

#[test]
fn what_an_alias_names_is_kept_over_a_crash_and_waits_when_it_is_not_allowed_any_more() {
    for spool in ["", "backend = \"queue-dirs\"\n"] {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display().to_string();
        fs::write(dir.path().join("aliases"), format!("archive: {at}/archive\n")).unwrap();
        let config = |files: &str| {
            format!(
                "{spool}[addresses]\naliases = [\"aliases:aliases\"]\n{files}[queue]\nretry_min = \"1s\"\n{LOG}"
            )
        };
        let files = format!("files = [\"{at}/archive\"]\n");
        // A directory in the place of the file: mail waits.
        fs::create_dir(dir.path().join("archive")).unwrap();
        let daemon = Postrider::start_in(dir, free_address(), &config(&files));
        // Clients keep theirs; programs cannot.
        assert!(rcpt(&daemon, "archive@mx.test").starts_with("451 4.2.4"));
        let sent = daemon.run(&["sendmail", "archive@mx.test"], "Subject: s\n\nx\n");
        assert!(sent.status.success(), "{sent:?}");
        assert_eq!(daemon.outcome("archive@mx.test")["dsn"], "4.3.0");
        let (dir, address) = daemon.kill();
        fs::remove_dir(dir.path().join("archive")).unwrap();
        let daemon = Postrider::start_in(dir, address, &config(""));
        daemon.ask(&["queue", "flush"]);
        until("it is not allowed any more", || daemon.log().iter().any(|line| line["dsn"] == "4.3.5"));
        assert!(!daemon.dir.path().join("archive").exists());
        daemon.reconfigure(&config(&files));
        daemon.ask(&["reload"]);
        until("it is delivered", || {
            daemon.ask(&["queue", "flush"]);
            daemon.counter("delivered") == 1
        });
        assert!(fs::read_to_string(daemon.dir.path().join("archive")).unwrap().contains("Subject: s"));
    }
}
