//! The binary as it is called: names, exit codes, and what works without a daemon.

use mail::{
    Content, Enhanced, Envelope, ForwardPath, Message, Outcome, QueueId, Recipient, ReversePath, UnixMillis,
};
use rustix::net;
use spool::{DirSettings, DirSpool, Entry, Layout, LogSettings, LogSpool, Spool};
use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    os::unix::{
        fs::{MetadataExt, PermissionsExt as _, symlink},
        process::CommandExt as _,
    },
    path::Path,
    process::{Command, Output, Stdio},
};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_postrider");

/// A folder with a configuration whose daemon does not run.
fn site(more: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let text = format!("hostname = \"host.test\"\ndata_dir = \"data\"\n{more}");
    fs::write(dir.path().join("postrider.toml"), text).unwrap();
    fs::create_dir(dir.path().join("data")).unwrap();
    dir
}

fn command(program: &Path, dir: &TempDir) -> Command {
    let mut command = Command::new(program);
    command.env("POSTRIDER_CONFIG", dir.path().join("postrider.toml")).env_remove("NAME");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(program: &Path, dir: &TempDir, arguments: &[&str], stdin: &str) -> Output {
    let mut child = command(program, dir).args(arguments).spawn().unwrap();
    // It may end without reading all of it.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    child.wait_with_output().unwrap()
}

fn postrider(dir: &TempDir, arguments: &[&str]) -> Output {
    run(Path::new(BINARY), dir, arguments, "")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_quick_start_writes_a_configuration_that_can_be_used_and_overwrites_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("site/postrider.toml");
    let start = |more: &[&str]| {
        let mut arguments = vec!["quickstart", "--hostname", "mx.example.com", "--user", "jane"];
        arguments.extend(["--network", "192.0.2.0/24", "--output", file.to_str().unwrap()]);
        arguments.extend(more);
        Command::new(BINARY).args(arguments).stdin(Stdio::null()).output().unwrap()
    };
    let output = start(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stdout(&output);
    let password = said.lines().find_map(|line| line.strip_prefix("The password of jane: ")).unwrap();
    let users = fs::read_to_string(dir.path().join("site/users")).unwrap();
    assert!(users.contains("jane:{ARGON2ID}") && !users.contains(password), "{users}");
    assert_eq!(fs::metadata(dir.path().join("site/users")).unwrap().mode() & 0o7, 0, "others cannot read it");
    let config = file.to_str().unwrap();
    let checked = postrider(&dir, &["config", "check", config]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    let right = ["auth", "test", "jane", "--config", config];
    let tested = run(Path::new(BINARY), &dir, &right, &format!("{password}\n"));
    assert_eq!(tested.status.code(), Some(0), "{}", stdout(&tested));
    // What listeners do not offer helps nobody.
    let other = dir.path().join("site/other.toml");
    let text = fs::read_to_string(&file).unwrap();
    let limited = text.replacen("\nusers = ", "\nmechanisms = [\"scram-sha-256\"]\nusers = ", 1);
    assert_ne!(limited, text);
    fs::write(&other, limited).unwrap();
    let tested = run(
        Path::new(BINARY),
        &dir,
        &["auth", "test", "jane", "--config", other.to_str().unwrap()],
        &format!("{password}\n"),
    );
    assert_eq!(tested.status.code(), Some(77), "{}", stdout(&tested));
    let why = "the password is for PLAIN, LOGIN, and listeners offer SCRAM-SHA-256";
    assert!(stdout(&tested).contains(why), "{}", stdout(&tested));
    let again = start(&[]);
    assert_eq!(again.status.code(), Some(73), "{}", stderr(&again));
    assert!(stderr(&again).contains("--replace"), "{}", stderr(&again));
    let before = fs::read(&file).unwrap();
    let replaced = start(&["--replace", "--domain", "example.org", "--user", "joe"]);
    assert_eq!(replaced.status.code(), Some(0), "{}", stderr(&replaced));
    let said = stdout(&replaced);
    assert!(said.contains("The password of joe: ") && !said.contains("The password of jane: "), "{said}");
    let tested = run(Path::new(BINARY), &dir, &right, &format!("{password}\n"));
    assert_eq!(tested.status.code(), Some(0), "the user that was there stays: {}", stdout(&tested));
    assert_eq!(fs::read(dir.path().join("site/postrider.toml.old")).unwrap(), before);
    assert!(fs::read_to_string(&file).unwrap().contains("example.org"));
}

fn make_maildrop(dir: &TempDir) {
    fs::create_dir(dir.path().join("data/drop")).unwrap();
}

/// The one file in the drop directory: its first line and the rest.
fn dropped(dir: &TempDir) -> (serde_json::Value, String) {
    let files = fs::read_dir(dir.path().join("data/drop")).unwrap().map(|e| e.unwrap().path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end != "names")).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    assert!(file.extension().is_some_and(|e| e == "mail"));
    assert_eq!(fs::metadata(file).unwrap().mode() & 0o777, 0o644);
    let text = fs::read_to_string(file).unwrap();
    let (header, content) = text.split_once('\n').unwrap();
    (serde_json::from_str(header).unwrap(), content.to_owned())
}

#[test]
fn the_version_names_the_commit() {
    let dir = site("");
    let said = stdout(&postrider(&dir, &["--version"]));
    assert!(said.starts_with("postrider 0.1.0 (") && said.ends_with(")\n"), "{said}");
    assert_eq!(stdout(&postrider(&dir, &["version"])), said);
}

#[test]
fn a_good_configuration_is_checked_and_shown_with_its_origins() {
    let dir = site("[queue]\nexpire = \"3d\"\n");
    let output = postrider(&dir, &["config", "check"]);
    assert!(output.status.success() && stdout(&output).ends_with("postrider.toml: no problems\n"));
    // This machine does not have the address, which may come later.
    let warned = site("[delivery]\nsource_address = \"192.0.2.1\"\n");
    let output = postrider(&warned, &["config", "check"]);
    assert!(output.status.success() && stdout(&output).ends_with("postrider.toml: no errors, 1 warning\n"));
    let shown = stdout(&postrider(&dir, &["config", "show"]));
    let line = shown.lines().find(|line| line.starts_with("expire = ")).unwrap();
    assert!(line.starts_with("expire = \"3d\"") && line.ends_with("postrider.toml:4"), "{line}");
    let json: serde_json::Value =
        serde_json::from_slice(&postrider(&dir, &["config", "show", "--json"]).stdout).unwrap();
    assert_eq!(json["queue.expire"]["line"], 4);
    assert_eq!(json["queue.retry_min"], serde_json::json!({ "value": "5m", "origin": "default" }));
}

#[test]
fn a_bad_configuration_stops_every_command_with_78() {
    let dir = site("hostnme = \"x\"\n[limits]\nmax_message_size = \"big\"\n");
    let file = dir.path().join("postrider.toml").display().to_string();
    for arguments in [
        &["config", "check"][..],
        &["config", "check", &file],
        &["queue", "list"],
        &["serve"],
        &["--config", &file, "queue", "count"],
        &["sendmail", "x@y.test"],
        &["mailq"],
    ] {
        let output = postrider(&dir, arguments);
        assert_eq!(output.status.code(), Some(78), "{arguments:?}");
        let said = stderr(&output);
        assert!(said.contains("postrider.toml:3:1") && said.contains("did you mean `hostname`?"), "{said}");
        assert!(said.contains("postrider.toml:5:20") && said.contains("2 problems"), "{said}");
    }
}

#[test]
fn without_a_daemon_the_queue_can_be_looked_at_but_not_changed() {
    let dir = site("");
    fs::create_dir(dir.path().join("data/spool")).unwrap();
    let output = postrider(&dir, &["queue", "list"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "Mail queue is empty\n"));
    assert_eq!(stdout(&postrider(&dir, &["queue", "count"])), "0\n");
    let file = dir.path().join("postrider.toml").display().to_string();
    let output = postrider(&dir, &["queue", "list", "--config", &file, "--ids"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), ""));
    assert_eq!(postrider(&dir, &["why", "0000000000001"]).status.code(), Some(66));
    for arguments in [&["queue", "flush"][..], &["queue", "delete", "all"], &["status"]] {
        let output = postrider(&dir, arguments);
        assert_eq!(output.status.code(), Some(69), "{arguments:?}");
        assert_eq!(
            stderr(&output),
            "postrider: the daemon is not running: start it, or name its configuration with --config\n"
        );
    }
    // A daemon that was started with another folder would not be found either.
    let output = postrider(&dir, &["reload"]);
    assert_eq!(output.status.code(), Some(69));
    let said = stderr(&output);
    assert!(
        said.contains("data/control.sock: where `data_dir`") && said.contains("send it SIGHUP"),
        "{said}"
    );
}

#[test]
fn a_spool_that_is_not_there_is_no_empty_queue() {
    let dir = site("");
    let missing = dir.path().join("data/spool");
    for arguments in [&["mailq"][..], &["queue", "count"], &["why", "0000000000001"]] {
        let output = postrider(&dir, arguments);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(66), ""), "{arguments:?}");
        assert!(stderr(&output).contains(&format!("{}: no such folder", missing.display())), "{arguments:?}");
    }
}

#[test]
fn newaliases_checks_the_files_of_aliases_and_sendmail_bv_expands_by_them() {
    let dir = site(
        "[local]\ndomains = [\"host.test\", \"text:hosted\"]\nusers = [\"joe\", \"ann\"]\n\
         [addresses]\naliases = [\"aliases:aliases\"]\nvirtual = [\"text:virtual\"]\n",
    );
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write("hosted", "hosted.test\n");
    write("virtual", "info@hosted.test joe, eve@else.test\n@hosted.test ann\n");
    write(
        "aliases",
        "root: joe\nteam: ann, root\nowner-team: joe\nloop: loop2\nloop2: loop\nold: \"|/bin/old\"\n",
    );
    let said = postrider(&dir, &["newaliases"]);
    let found = format!("aliases:{}/aliases: 6 names\n", dir.path().display());
    assert!(stdout(&said).starts_with(&found) && stdout(&said).contains("reads a changed file by itself"));
    assert!(stderr(&said).contains("warning: line 6, column 6: |/bin/old is a program"), "{}", stderr(&said));

    let maildir = format!("maildir:{}/data/mail", dir.path().display());
    let told = |arguments: &[&str]| {
        let output = postrider(&dir, &[&["sendmail", "-bv"], arguments].concat());
        (output.status.code(), stdout(&output).replace(&maildir, "MAILDIR"))
    };
    let lines = "root@host.test: joe@host.test by MAILDIR/joe\n\
                 team@host.test: ann@host.test by MAILDIR/ann, joe@host.test by MAILDIR/joe (through root@host.test); \
                 the owner is owner-team@host.test\n\
                 info@hosted.test: eve@else.test by mx:else.test, joe@host.test by MAILDIR/joe\n\
                 any@hosted.test: ann@host.test by MAILDIR/ann\npostmaster@host.test: joe@host.test by MAILDIR/joe\n";
    let given = ["root", "team", "info@hosted.test", "any@hosted.test"];
    fs::write(
        dir.path().join("postrider.toml"),
        fs::read_to_string(dir.path().join("postrider.toml"))
            .unwrap()
            .replace("data_dir", "postmaster = \"root@host.test\"\ndata_dir"),
    )
    .unwrap();
    assert_eq!(told(&[&given[..], &["postmaster@host.test"]].concat()), (Some(0), lines.to_owned()));
    assert_eq!(told(&["none"]), (Some(65), "none@host.test: no such user here\n".to_owned()));
    let (code, said) = told(&["none", "loop"]);
    // A client is refused for good, too.
    assert!(code == Some(65) && said.contains("loop@host.test leads back to itself"), "{said}");

    write("aliases", "root: joe\nroot: ann\n");
    for arguments in [&["newaliases"][..], &["sendmail", "-bi"], &["map", "check"]] {
        let said = postrider(&dir, arguments);
        assert_eq!(said.status.code(), Some(65), "{arguments:?}");
        assert!(
            stderr(&said).contains("/aliases: line 2, column 1: this name is there already"),
            "{arguments:?}"
        );
    }
    assert_eq!(postrider(&dir, &["config", "check"]).status.code(), Some(78));
    assert_eq!(told(&["root"]).0, Some(75));
}

#[test]
fn keys_are_looked_up_in_maps_with_an_exit_code_for_each_end() {
    let dir = site("[map.users]\nsocketmap = \"unix:none.sock\"\n");
    fs::write(dir.path().join("table"), "joe@b.test ann@b.test\n").unwrap();
    let table = format!("text:{}", dir.path().join("table").display());
    let query = |map: &str, keys: &[&str]| postrider(&dir, &[&["map", "query", map], keys].concat());
    let found = query(&table, &["Joe@B.test"]);
    assert_eq!((found.status.code(), stdout(&found).as_str()), (Some(0), "Joe@B.test: ann@b.test\n"));
    let missing = query(&table, &["joe@b.test", "eve@b.test"]);
    assert_eq!((missing.status.code(), stdout(&missing).as_str()), (Some(1), "joe@b.test: ann@b.test\n"));
    assert!(stderr(&missing).contains("eve@b.test: not in text:"));
    let down = query("map:users", &["joe"]);
    assert!(
        down.status.code() == Some(75) && stderr(&down).contains("connect to unix:"),
        "{}",
        stderr(&down)
    );
    let none = query(&format!("{table}.gone"), &["joe"]);
    assert_eq!(none.status.code(), Some(75), "{}", stderr(&none));
    for wrong in ["hash:/etc/aliases", "table", "map:other"] {
        assert_eq!(query(wrong, &["joe"]).status.code(), Some(64), "{wrong}");
    }
    let checked = postrider(&dir, &["map", "check"]);
    assert_eq!(checked.status.code(), Some(75), "{checked:?}");
    assert!(stderr(&checked).contains("map:users (line 4): connect to unix:"), "{checked:?}");
    let _listener = std::os::unix::net::UnixListener::bind(dir.path().join("none.sock")).unwrap();
    let checked = postrider(&dir, &["map", "check"]);
    assert!(checked.status.success() && stdout(&checked).contains("none.sock: can be used"), "{checked:?}");
}

/// Puts a message for two into the spool of a daemon that does not run; the first recipient was
/// deferred once.
fn queue_one(dir: &TempDir, id: u64, in_directories: bool) {
    let mut envelope = Envelope::new(ReversePath::parse("alice@a.test", false).unwrap());
    for address in ["bob@b.test", "carol@localhost"] {
        envelope.recipients.push(Recipient::new(ForwardPath::parse(address, false).unwrap()));
    }
    let content = Content::from_bytes("Subject: kept\r\n\r\nbody\r\n");
    let (id, arrived) = (QueueId(id), UnixMillis::now());
    let message = Message { id, arrived, origin: "test".into(), envelope, content };
    let deferred = Outcome::deferred(Enhanced(4, 4, 1), "connection refused");
    let path = dir.path().join("data/spool");
    let mut spool: Box<dyn Spool> = if in_directories {
        let settings = DirSettings { min_free_bytes: 0, ..DirSettings::default() };
        Box::new(DirSpool::open(&path, Layout { directories: 2, hashed: 1 }, settings).unwrap())
    } else {
        let settings = LogSettings { segment_bytes: 1 << 20, min_free_bytes: 0, ..LogSettings::default() };
        Box::new(LogSpool::open(&path, settings).unwrap())
    };
    spool.recover(&mut |_| ()).unwrap();
    spool.submit(vec![Entry::Accept(message.into())]).unwrap();
    spool.submit(vec![Entry::Outcome { id, results: vec![(0, deferred)], last: false }]).unwrap();
    spool.close();
}

#[test]
fn without_a_daemon_the_spool_tells_what_is_queued() {
    told_without_a_daemon("", false);
}

#[test]
fn without_a_daemon_queue_directories_tell_what_is_queued() {
    told_without_a_daemon("[spool]\nbackend = \"queue-dirs\"\ndirectories = 2\n", true);
}

fn told_without_a_daemon(more: &str, in_directories: bool) {
    let dir = site(more);
    queue_one(&dir, 7, in_directories);
    let list = stdout(&postrider(&dir, &["queue", "list"]));
    assert!(
        list.contains("\n0000000000007 ") && list.contains("(deferred 4.4.1 (connection refused))"),
        "{list}"
    );
    assert!(list.ends_with("-- 1 Kbytes in 1 Request.\n"), "{list}");
    let counted = |arguments: &[&str]| stdout(&postrider(&dir, &[&["queue", "count"], arguments].concat()));
    assert_eq!(counted(&["--recipient", "BOB@*", "--status", "waiting"]), "1\n");
    assert_eq!(counted(&["--destination", "maildir:*"]), "1\n");
    assert_eq!(counted(&["--older", "1h"]), "0\n");
    let shown = stdout(&postrider(&dir, &["queue", "show", "0000000000007"]));
    assert!(
        shown.contains("sender:   <alice@a.test>") && shown.contains("attempts: 1\n          deferred 4.4.1"),
        "{shown}"
    );
    let story = stdout(&postrider(&dir, &["why", "0000000000007"]));
    assert!(
        story.contains("<bob@b.test> via mx:b.test") && story.contains("when the daemon is started"),
        "{story}"
    );
}

#[test]
fn a_daemon_does_not_start_on_the_spool_of_the_other_engine() {
    let dir = site("[[listen]]\naddress = \"127.0.0.1:0\"\n");
    queue_one(&dir, 7, true);
    let output = postrider(&dir, &["serve"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(stderr(&output).contains("postrider spool convert"), "{}", stderr(&output));
}

#[test]
fn wrong_command_lines_exit_with_64() {
    let dir = site("");
    for arguments in
        [&["nonsense"][..], &["queue", "delete"], &["queue", "show", "x"], &["queue", "list", "--older", "x"]]
    {
        assert_eq!(postrider(&dir, arguments).status.code(), Some(64), "{arguments:?}");
    }
    assert!(postrider(&dir, &["--help"]).status.success());
}

#[test]
fn man_pages_and_completions_are_written() {
    let dir = site("");
    let pages = dir.path().join("man");
    assert!(postrider(&dir, &["man", pages.to_str().unwrap()]).status.success());
    for page in ["postrider.1", "postrider-queue-list.1", "postrider.toml.5", "sendmail.1"] {
        let text = fs::read_to_string(pages.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".TH"), "{page}");
    }
    // Most people type this to read the manual.
    let asked = postrider(&dir, &["man"]);
    assert_eq!(asked.status.code(), Some(64));
    assert!(stderr(&asked).contains("to read the manual: `man postrider`"), "{}", stderr(&asked));
    for shell in ["bash", "zsh", "fish"] {
        assert!(stdout(&postrider(&dir, &["completions", shell])).contains("postrider"));
    }
}

#[test]
fn the_binary_is_known_by_its_other_names() {
    let dir = site("");
    fs::create_dir(dir.path().join("data/spool")).unwrap();
    for name in ["sendmail", "mailq", "newaliases"] {
        symlink(BINARY, dir.path().join(name)).unwrap();
    }
    let called = |name: &str, arguments: &[&str]| run(&dir.path().join(name), &dir, arguments, "");
    for output in [called("mailq", &[]), called("sendmail", &["-bp"]), postrider(&dir, &["mailq"])] {
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "Mail queue is empty\n"));
    }
    for output in [called("newaliases", &[]), called("sendmail", &["-bi"]), postrider(&dir, &["newaliases"])]
    {
        assert!(output.status.success() && output.stderr.is_empty());
        assert!(stdout(&output).starts_with("There are no files of aliases"), "{}", stdout(&output));
    }
    for output in [called("sendmail", &["--help"]), called("mailq", &["--help"])] {
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && said.starts_with("Usage: sendmail ") && said.contains("  -qRtext ")
        );
    }
    let output = called("sendmail", &["-bd", "-v"]);
    assert!(output.status.code() == Some(64) && stderr(&output).contains("postrider serve"));
    assert_eq!(called("sendmail", &["-q"]).status.code(), Some(69));
}

#[test]
fn mail_for_a_daemon_that_is_down_waits_in_the_drop_directory() {
    let dir = site("");
    make_maildrop(&dir);
    let text = "To: Bob <bob@b.test>, root\nBcc: eve@e.test\nSubject: Grüße\n\nhello\n.\nignored\n";
    let output = run(Path::new(BINARY), &dir, &["sendmail", "-t", "-v", "-f", "me@a.test"], text);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("the daemon is not running: the message waits in"),
        "{}",
        stderr(&output)
    );
    let (header, content) = dropped(&dir);
    assert_eq!((&header["sender"], &header["body"]), (&"me@a.test".into(), &"8bitmime".into()));
    let addresses: Vec<&str> =
        header["recipients"].as_array().unwrap().iter().map(|r| r["address"].as_str().unwrap()).collect();
    assert_eq!(addresses, ["bob@b.test", "root@host.test", "eve@e.test"]);
    assert_eq!(header["size_bytes"], content.len());
    assert!(
        content.starts_with("To: Bob <bob@b.test>, root@host.test\r\nSubject: Grüße\r\nFrom: "),
        "{content}"
    );
    assert!(content.ends_with("\r\n\r\nhello\r\n"), "{content}");
}

#[test]
fn a_user_has_so_many_messages_in_the_drop_directory_and_the_next_one_is_refused_with_the_reason() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can run a command as another user");
        return;
    }
    let dir = site("[control]\nmaildrop_max_messages = 2\nmaildrop_max_size = \"1MiB\"\n");
    make_maildrop(&dir);
    for (path, mode) in [("", 0o755), ("data", 0o755), ("data/drop", 0o1733)] {
        fs::set_permissions(dir.path().join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let drop_mail = |uid: u32, text: &str| {
        let mut command = command(Path::new(BINARY), &dir);
        let mut child = command.uid(uid).args(["sendmail", "-i", "x@y.test"]).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    const NOBODY: u32 = 65534;
    let refused = drop_mail(NOBODY, &"x\n".repeat(600_000));
    assert!(
        stderr(&refused).contains("a user may have 1048576 (`control.maildrop_max_size`)"),
        "{refused:?}"
    );
    for (uid, code) in [(NOBODY, 0), (NOBODY, 0), (NOBODY, 75), (1, 0), (0, 0), (0, 0), (0, 0)] {
        let output = drop_mail(uid, "Subject: x\n\n");
        assert_eq!(output.status.code(), Some(code), "{uid}: {}", stderr(&output));
        let says_why = stderr(&output).contains("a user may have 2 (`control.maildrop_max_messages`)");
        assert_eq!(says_why, code == 75, "{}", stderr(&output));
    }
}

#[test]
fn without_daemon_and_drop_directory_the_message_is_given_back() {
    let dir = site("");
    let output = run(Path::new(BINARY), &dir, &["sendmail", "x@y.test"], "Subject: x\n\n");
    assert_eq!(output.status.code(), Some(75));
    assert!(stderr(&output).contains("the daemon is not running, and writing to"), "{}", stderr(&output));
    let file = dir.path().join("postrider.toml").display().to_string();
    let named = ["--config", &file, "sendmail", "-i", "x@y.test"];
    assert_eq!(run(Path::new(BINARY), &site(""), &named, "").status.code(), Some(75));
    // No directory is made at an unexpected place.
    assert!(!dir.path().join("data/drop").exists());
}

#[test]
fn sendmail_exits_as_sysexits_says() {
    let dir = site("[limits]\nmax_message_size = \"64KiB\"\n");
    make_maildrop(&dir);
    let large = "x".repeat(70_000);
    for (arguments, stdin, code) in [
        (&["sendmail"][..], "", 64),
        (&["sendmail", "-t"], "Subject: x\n\n", 64),
        (&["sendmail", "-Z", "x@y.test"], "", 64),
        (&["sendmail", "a b"], "x\n", 65),
        (&["sendmail", "-f", "not an address", "x@y.test"], "x\n", 65),
        (&["sendmail", "x@y.test"], &large, 65),
    ] {
        let output = run(Path::new(BINARY), &dir, arguments, stdin);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).starts_with("sendmail: "));
    }
    assert_eq!(fs::read_dir(dir.path().join("data/drop")).unwrap().count(), 0);
}

#[test]
fn bs_carries_smtp_to_the_listener_and_back() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let dir = site(&format!("[[listen]]\naddress = \"{address}\"\n"));
    let mut child = command(Path::new(BINARY), &dir).args(["sendmail", "-bs"]).spawn().unwrap();
    let (mut session, _) = server.accept().unwrap();
    session.write_all(b"220 host.test\r\n").unwrap();
    child.stdin.take().unwrap().write_all(b"QUIT\r\n").unwrap();
    let mut said = String::new();
    session.read_to_string(&mut said).unwrap(); // To the end: the end of input is passed on.
    assert_eq!(said, "QUIT\r\n");
    session.write_all(b"221 Bye\r\n").unwrap();
    drop(session);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "220 host.test\r\n221 Bye\r\n"));
}

#[test]
fn bs_without_a_daemon_says_so_in_smtp() {
    // The socket is bound and not listening, so no other process can take the port meanwhile.
    let silent = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None).unwrap();
    net::bind(&silent, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = SocketAddr::try_from(net::getsockname(&silent).unwrap()).unwrap();
    let dir = site(&format!("[[listen]]\naddress = \"{address}\"\n"));
    let output = run(Path::new(BINARY), &dir, &["sendmail", "-bs"], "QUIT\r\n");
    assert_eq!(output.status.code(), Some(69));
    assert!(stdout(&output).starts_with("421 4.3.0 "));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let dir = site("");
    let mut child = command(Path::new(BINARY), &dir).args(["config", "show"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn config_check_tells_faults_of_maps_with_their_places() {
    let dir = site(
        "[addresses]\nvirtual = [\"text:virtual\"]\naliases = [\"aliases:aliases\"]\nprograms = [\"/bin/ok\"]\n",
    );
    let check = || {
        let file = dir.path().join("postrider.toml");
        let output =
            Command::new(env!("CARGO_BIN_EXE_postrider")).args(["config", "check"]).arg(&file).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let file = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    file("aliases", "ok: |/bin/ok now\nother: |/bin/other\nshell: |/bin/ok > file\n");
    let (code, said) = check();
    assert_eq!(code, Some(78));
    assert!(
        said.contains("No such file")
            && said.contains("postrider.toml:")
            && said.contains("= help: name a file"),
        "{said}"
    );
    file("virtual", "a@b.test c@d.test, e\nx@y.test\n");
    let (code, said) = check();
    assert_eq!(code, Some(78));
    assert!(said.contains("line 2, column 1: x@y.test: there is no address"), "{said}");
    assert!(
        said.contains("\"text:virtual\"") && said.contains("write `x@y.test user@example.com`"),
        "{said}"
    );
    file("virtual", "a@b.test c@d.test, e\n");
    let (code, said) = check();
    assert_eq!(code, Some(0), "{said}");
    // The program that the configuration permits causes no warning.
    assert!(said.contains("|/bin/other is a program") && said.contains("there is no shell"), "{said}");
    assert!(!said.contains("|/bin/ok now"), "{said}");
}

#[test]
fn faults_of_included_lists_are_told_with_file_line_and_column() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = site("[addresses]\naliases = [\"aliases:aliases\"]\nprograms = [\"/bin/ok\"]\n");
    let list = dir.path().join("list").to_str().unwrap().to_owned();
    let file = |name: &str, text: &str| {
        fs::write(dir.path().join(name), text).unwrap();
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o644)).unwrap();
    };
    file("aliases", &format!("root: joe\nall: ann, :include:{list}\n"));
    file("list", "# readers\njoe, Ann <ann@b.test>\n|/bin/ok now\n|/bin/other\n");
    let configuration = dir.path().join("postrider.toml");
    let check = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command.args(["config", "check"]).arg(&configuration).output().unwrap()
    };
    let aliases = format!("aliases:{}/aliases", dir.path().display());
    let place = format!(":include:{list}: line 2, column 10: not a mail address");
    let said = check();
    assert_eq!(said.status.code(), Some(78), "{}", stderr(&said));
    assert!(stderr(&said).contains(&format!("{aliases}: {place}")), "{}", stderr(&said));
    assert!(stderr(&said).contains("= help: write user@example.com"), "{}", stderr(&said));
    assert!(stderr(&said).contains(&format!(":include:{list}: line 4, column 1: |/bin/other is a program")));
    assert!(!stderr(&said).contains("|/bin/ok now"), "{}", stderr(&said));
    for (arguments, code) in [
        (&["newaliases"][..], 65),
        (&["map", "check"], 65),
        (&["map", "query", &aliases, "all"], 65),
        (&["map", "query", &aliases, "root"], 0),
    ] {
        let said = postrider(&dir, arguments);
        assert_eq!(said.status.code(), Some(code), "{arguments:?}: {}", stderr(&said));
        let is_told = stderr(&said).contains(&format!("{place}; write user@example.com"));
        assert_eq!(is_told, code != 0, "{arguments:?}: {}", stderr(&said));
    }
    // What is told about the list as a whole stands at the line that includes it.
    fs::remove_file(&list).unwrap();
    let said = postrider(&dir, &["newaliases"]);
    let place = format!("{aliases}: line 2, column 11: :include:{list}: no such file; write the file");
    assert!(stderr(&said).contains(&place) && said.status.code() == Some(65), "{}", stderr(&said));
    file("list", "joe\nann@b.test\n");
    assert_eq!(check().status.code(), Some(0));
    assert_eq!(postrider(&dir, &["newaliases"]).status.code(), Some(0));
}

#[test]
fn a_spool_in_memory_is_refused_unless_the_configuration_permits_it() {
    let memory = Path::new("/dev/shm");
    let found = Command::new("stat").args(["-f", "-c", "%T", "/dev/shm"]).output();
    if !found.is_ok_and(|output| stdout(&output) == "tmpfs\n") {
        return println!("SKIPPED: /dev/shm is no tmpfs");
    }
    let spool = tempfile::tempdir_in(memory).unwrap();
    let path = spool.path().join("spool");
    let start = |more: &str, permitted: &str| {
        let dir =
            site(&format!("[[listen]]\naddress = \"unix:smtp.sock\"\n[spool]\npath = {path:?}\n{more}"));
        let mut daemon = command(Path::new(BINARY), &dir);
        let mut daemon = daemon.arg("serve").env("POSTRIDER_EPHEMERAL", permitted).spawn().unwrap();
        // It runs until it is stopped, or ends by itself.
        let is_ready = || postrider(&dir, &["status"]).status.success();
        while daemon.try_wait().unwrap().is_none() && !is_ready() {
            std::thread::yield_now();
        }
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&daemon),
            rustix::process::Signal::TERM,
        );
        daemon.wait_with_output().unwrap()
    };
    let refused = start("", "");
    assert_eq!(refused.status.code(), Some(78), "{}", stderr(&refused));
    let said = stderr(&refused);
    assert!(said.contains("is on tmpfs") || said.contains("be on tmpfs"), "{said}");
    assert!(said.contains("`ephemeral = true` in [spool]") && !path.exists(), "{said}");
    assert_eq!(start("ephemeral = true\n", "").status.code(), Some(0));
    assert_eq!(start("", "true").status.code(), Some(0));
}
