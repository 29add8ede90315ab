//! Commands and `sendmail` while the configuration file has a mistake.

use crate::common::{Postrider, until};
use std::{fs, process::Output};

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_mistake_in_the_file_stops_no_command_while_the_daemon_runs() {
    let daemon = Postrider::start("");
    let good = fs::read_to_string(daemon.config()).unwrap();
    for mistake in ["[queue\n", "max_messags = 5\n", "[queue]\nmax_messages = \"many\"\n"] {
        fs::write(daemon.config(), format!("{good}{mistake}")).unwrap();
        for arguments in [&["mailq"][..], &["queue", "list"], &["status"], &["queue", "summary"]] {
            let output = daemon.run(arguments, "");
            assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
            assert!(stderr(&output).contains("has a mistake"), "{arguments:?}: {}", stderr(&output));
        }
        let before = daemon.mailbox("joe").len();
        let output = daemon.run(&["sendmail", "joe"], "Subject: x\n\nx\n");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        until("the mail is there", || daemon.mailbox("joe").len() == before + 1);
        // Commands that are about the file say what is wrong with it.
        assert_eq!(daemon.run(&["config", "check"], "").status.code(), Some(78));
        assert_eq!(
            daemon.run(&["reload"], "").status.code(),
            Some(78),
            "the daemon says that it has not changed"
        );
        assert!(daemon.ask(&["status"]).contains("accepted"));
    }
}

#[test]
fn warnings_are_counted_and_what_nobody_sees_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let check = |more: &str| {
        let text = format!(
            "hostname = \"mx.test\"\ndata_dir = \"data\"\n[[listen]]\naddress = \"127.0.0.1:2525\"\n[local]\n\
             domains = [\"mx.test\"]\n{more}"
        );
        fs::write(dir.path().join("postrider.toml"), text).unwrap();
        let mut command = std::process::Command::new(crate::common::BINARY);
        let output = command
            .args(["config", "check", "--config", "postrider.toml"])
            .current_dir(dir.path())
            .output()
            .unwrap();
        String::from_utf8(output.stdout.clone()).unwrap() + &stderr(&output)
    };
    // A copy for somebody who does not exist, and an alias of somebody who does not.
    fs::write(dir.path().join("copies"), "joe@mx.test ann@mx.test, nobody-here@mx.test\n").unwrap();
    fs::write(dir.path().join("aliases"), "postmaster: joe\nlost: nobody-here\n").unwrap();
    let told = check(
        "users = [\"joe\", \"ann\"]\n[addresses]\naliases = [\"aliases:aliases\"]\nrecipient_bcc = [\"text:copies\"]\n",
    );
    let copy = "copies sends mail to nobody-here@mx.test, which does not exist here";
    assert!(told.contains(copy) && !told.contains("to ann@mx.test"), "{told}");
    assert!(told.contains("`lost`") && told.contains("no errors, 2 warnings"), "{told}");
    let told = check("users\u{200b} = [\"joe\"]\n");
    assert!(told.contains("users\\u{200b}") && !told.contains('\u{200b}'), "{told}");
    let rule = "[[rule]]\nheader = [\"Subject: /\u{202e}/\"]\nreject = true\n";
    check(&format!("[addresses]\nvirtual = [\"text:copies\"]\n{rule}"));
    fs::write(dir.path().join("copies"), "joe@mx.test \"a\u{202e}b\"@mx.test\n").unwrap();
    for arguments in [
        &["map", "query", "text:copies", "joe@mx.test"][..],
        &["sendmail", "-bv", "joe@mx.test"],
        &["config", "explain", "rules"],
    ] {
        let mut command = std::process::Command::new(crate::common::BINARY);
        let path = dir.path().join("postrider.toml");
        let output =
            command.args(arguments).env("POSTRIDER_CONFIG", path).current_dir(dir.path()).output().unwrap();
        let told = String::from_utf8(output.stdout.clone()).unwrap() + &stderr(&output);
        assert!(told.contains("\\u{202e}") && !told.contains('\u{202e}'), "{arguments:?}: {told}");
    }
}
