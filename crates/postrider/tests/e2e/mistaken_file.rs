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
