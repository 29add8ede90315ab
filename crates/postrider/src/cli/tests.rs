//! Commands against a running daemon, as far as they need no process of their own.

use super::{
    args::{Chosen, Cli, Command},
    explain, queue, status, *,
};
use control::{
    Action, Matched,
    fake::{self, Daemon, Memory},
};
use mail::QueueId;

/// Returns the output of `postrider LINE`, or its exit code and complaint.
fn run_line(daemon: &Daemon, line: &str) -> Result<String, (Exit, String)> {
    let cli = Cli::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{error}"));
    let mut out = Vec::new();
    let settings = &daemon.settings;
    let ending = match cli.command {
        Command::Queue(command) => queue::run(&command, None, settings, &mut out),
        Command::Why(args) => explain::run(&args, settings, &mut out),
        Command::Status { json, .. } => status::run(json, settings, &mut out),
        Command::Reload => status::reload(settings, &mut out),
        other => panic!("{other:?}"),
    };
    let text = String::from_utf8(out).unwrap();
    match ending {
        Ok(Exit::Ok) => Ok(text),
        Ok(exit) => Err((exit, text)),
        Err(error) => Err((error.exit, error.text)),
    }
}

fn ids(text: &str) -> Vec<u64> {
    text.lines().map(|line| line.parse::<QueueId>().unwrap().0).collect()
}

#[test]
fn an_empty_queue_says_so_like_mailq() {
    let daemon = Daemon::serving(Memory::default());
    assert_eq!(run_line(&daemon, "postrider queue list").unwrap(), "Mail queue is empty\n");
    assert_eq!(run_line(&daemon, "postrider queue list --ids").unwrap(), "");
    assert_eq!(run_line(&daemon, "postrider queue count").unwrap(), "0\n");
}

#[test]
fn the_list_looks_like_mailq() {
    let daemon = Daemon::serving(Memory::with(2));
    let list = run_line(&daemon, "postrider queue list").unwrap();
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[0].contains("Queue ID") && lines[0].contains("Sender/Recipient"));
    assert!(lines[1].starts_with("0000000000001!") && lines[1].ends_with("  alice@a.test"), "{list}");
    assert!(
        lines[2].starts_with("    (deferred 4.4.1 (connect to b.test: Connection refused); next attempt ")
    );
    assert_eq!(lines[3].trim(), "bob@b.test");
    assert_eq!(lines.last(), Some(&"-- 3 Kbytes in 2 Requests."));
}

#[test]
fn lists_for_programs_have_one_message_a_line() {
    let daemon = Daemon::serving(Memory::with(3));
    assert_eq!(ids(&run_line(&daemon, "postrider queue list --ids").unwrap()), [1, 2, 3]);
    let json = run_line(&daemon, "postrider queue list --json --recipient CAROL@*").unwrap();
    let rows: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[2]["id"], "0000000000003");
    assert_eq!(rows[2]["recipients"][1]["status"], "held");
    assert_eq!(run_line(&daemon, "postrider queue list --json --recipient nobody@*").unwrap(), "");
}

#[test]
fn a_change_says_how_many_and_touches_nobody_else() {
    let daemon = Daemon::serving(Memory::with(3));
    let said = run_line(&daemon, "postrider queue hold 0000000000002").unwrap();
    assert_eq!(said, "1 message held\n");
    assert_eq!(daemon.done(), [(Action::Hold, Matched::whole(2))]);
    assert_eq!(run_line(&daemon, "postrider queue delete all").unwrap(), "3 messages deleted\n");
    assert_eq!(run_line(&daemon, "postrider queue delete all").unwrap(), "0 messages deleted\n");
}

#[test]
fn a_damaged_message_is_listed_with_what_is_known_and_hides_no_other() {
    let daemon = Daemon::serving(Memory::with(3));
    daemon.target.queue.lock().unwrap().insert(QueueId(2), fake::damaged(2));
    let (exit, list) = run_line(&daemon, "postrider queue list").unwrap_err();
    assert!(exit == Exit::DataErr && list.ends_with("-- 4 Kbytes in 3 Requests.\n"), "{list}");
    let row: Vec<&str> = list.lines().skip_while(|line| !line.starts_with("0000000000002!")).collect();
    assert!(row[0].ends_with("  (unknown)") && row[1].contains("damaged: 0000.seg at 8216"), "{list}");
    assert!(row[3].ends_with(" mx:b.test"), "{list}");
    let (exit, said) = run_line(&daemon, "postrider why 0000000000002").unwrap_err();
    assert!(exit == Exit::DataErr && said.contains("record is damaged"), "{said}");
    assert!(
        run_line(&daemon, "postrider queue show 0000000000002").unwrap_err().1.contains("damaged:  0000")
    );
    assert_eq!(run_line(&daemon, "postrider queue hold 0000000000002").unwrap(), "1 message held\n");
    assert_eq!(run_line(&daemon, "postrider queue delete all").unwrap(), "3 messages deleted\n");
}

#[test]
fn whose_envelope_is_damaged_is_not_chosen_by_its_addresses() {
    let daemon = Daemon::serving(Memory::with(2));
    daemon.target.queue.lock().unwrap().insert(QueueId(2), fake::damaged(2));
    for condition in ["--sender *", "--sender <>", "--recipient *"] {
        let line = format!("postrider queue retry {condition}");
        let (exit, said) = run_line(&daemon, &line).unwrap_err();
        let others = if condition.ends_with('>') { "0 messages" } else { "1 message" };
        assert_eq!((exit, said), (Exit::DataErr, format!("{others} due now\n")), "{condition}");
    }
    let said = run_line(&daemon, "postrider queue retry --destination mx:b.test").unwrap();
    assert_eq!(said, "2 messages due now\n");
    // It can be deleted as a whole, but nobody knows which recipient is which.
    let (exit, said) = run_line(&daemon, "postrider queue delete --destination mx:b.test").unwrap_err();
    assert_eq!((exit, &*said), (Exit::DataErr, "1 message deleted for the selected recipients\n"));
    assert_eq!(daemon.done().last().unwrap().1.id, QueueId(1));
}

#[test]
fn a_preview_changes_nothing() {
    let daemon = Daemon::serving(Memory::with(3));
    let said = run_line(&daemon, "postrider queue bounce --sender alice@a.test --dry-run").unwrap();
    assert!(said.ends_with("3 messages would be bounced, with 6 recipients\n"), "{said}");
    // Whoever chooses by recipient ends those, and holds whole messages.
    let said = run_line(&daemon, "postrider queue delete --recipient bob@b.test -n").unwrap();
    assert!(said.ends_with("3 messages would be deleted, with 3 recipients\n"), "{said}");
    let said = run_line(&daemon, "postrider queue hold --recipient bob@b.test -n").unwrap();
    assert!(said.ends_with("3 messages would be held, with 6 recipients\n"), "{said}");
    let said = run_line(&daemon, "postrider queue delete all -n --ids").unwrap();
    assert_eq!(ids(&said), [1, 2, 3]);
    assert!(daemon.done().is_empty());
}

#[test]
fn no_selection_changes_nothing_but_flush_means_all() {
    let daemon = Daemon::serving(Memory::with(3));
    for verb in ["hold", "release", "retry", "bounce", "delete"] {
        let (exit, said) = run_line(&daemon, &format!("postrider queue {verb}")).unwrap_err();
        assert!(exit == Exit::Usage && said.contains("no message was selected"), "{verb}: {said}");
    }
    assert_eq!(run_line(&daemon, "postrider queue flush").unwrap(), "3 messages due now\n");
    assert!(daemon.done().is_empty());
    assert_eq!(run_line(&daemon, "postrider queue flush --sender *").unwrap(), "3 messages due now\n");
    assert_eq!(daemon.done().len(), 3);
}

#[test]
fn ids_that_are_gone_give_an_exit_code() {
    let daemon = Daemon::serving(Memory::with(1));
    let (exit, said) = run_line(&daemon, "postrider queue list 0000000000001 0000000000009").unwrap_err();
    assert!(exit == Exit::NoInput && said.ends_with("0000000000009"), "{said}");
    let (exit, said) = run_line(&daemon, "postrider queue retry 0000000000001 0000000000009").unwrap_err();
    assert_eq!(
        (exit, said.as_str()),
        (Exit::NoInput, "1 of the named messages are not queued, or not matched by the conditions")
    );
    assert_eq!(daemon.done(), [(Action::Retry, Matched::whole(1))]);
    let (exit, said) = run_line(&daemon, "postrider queue retry 0000000000009").unwrap_err();
    assert!(exit == Exit::NoInput && said.starts_with("0000000000009 is not queued"), "{said}");
    for line in ["postrider queue show 0000000000009", "postrider why 0000000000009"] {
        assert_eq!(run_line(&daemon, line).unwrap_err().0, Exit::NoInput, "{line}");
    }
    assert_eq!(run_line(&daemon, "postrider why nonsense").unwrap_err().0, Exit::Usage);
    assert_eq!(run_line(&daemon, "postrider queue list --older soon").unwrap_err().0, Exit::Usage);
    assert_eq!(run_line(&daemon, "postrider queue delete all 0000000000001").unwrap_err().0, Exit::Usage);
}

#[test]
fn ids_come_from_standard_input_as_lists_print_them() {
    let chosen = Chosen { ids: vec!["-".to_owned()], ..Chosen::default() };
    let list = "0000000000002*  1234 Sat Nov 21\n\n0000000000001! x\n0000000000002\n";
    let selection = queue::selection_from(&chosen, &mut list.as_bytes()).unwrap();
    let ids: Vec<u64> = selection.ids.iter().map(|id| id.0.0).collect();
    assert_eq!(ids, [1, 2]);
    // With nothing on the pipe, `--status held` alone would select too much.
    let chosen = Chosen { status: Some(control::Status::Held), ..chosen };
    assert_eq!(queue::selection_from(&chosen, &mut &b""[..]).unwrap_err().exit, Exit::NoInput);
    assert_eq!(
        queue::selection_from(&chosen, &mut &b"Mail queue is empty\n"[..]).unwrap_err().exit,
        Exit::Usage
    );
}

#[test]
fn one_message_is_shown_and_its_story_told() {
    let daemon = Daemon::serving(Memory::with(2));
    let shown = run_line(&daemon, "postrider queue show 0000000000002").unwrap();
    assert!(
        shown.contains("sender:   <alice@a.test>")
            && shown.contains("to:       <carol@c.test>, held, mx:c.test")
    );
    assert!(shown.ends_with("\nSubject: \u{fffd} hi\n\n"), "{shown:?}");
    let json: serde_json::Value =
        serde_json::from_str(&run_line(&daemon, "postrider queue show 0000000000002 --json").unwrap())
            .unwrap();
    assert_eq!(
        (&json["size_bytes"], &json["header"]),
        (&1234.into(), &"Subject: \u{fffd} hi\r\n\r\n".into())
    );
    let story = run_line(&daemon, "postrider queue explain 0000000000002").unwrap();
    assert_eq!(run_line(&daemon, "postrider why 0000000000002").unwrap(), story, "the alias says the same");
    for part in [
        "1234 bytes from alice@a.test",
        "<bob@b.test> via mx:b.test",
        "waiting for the next attempt",
        "status: held; `postrider queue release` ends the hold",
    ] {
        assert!(story.contains(part), "{part}: {story}");
    }
    assert!(story.contains("next:   now: 300 s after the last attempt"), "{story}");
}

#[test]
fn the_counters_are_shown_and_judged() {
    let daemon = Daemon::serving(Memory::with(2));
    let said = run_line(&daemon, "postrider status").unwrap();
    assert!(
        said.contains("accepted              9\n") && said.contains("every recipient is accounted for\n"),
        "{said}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&run_line(&daemon, "postrider status --json").unwrap()).unwrap();
    assert_eq!((&json["queued"], &json["consistent"]), (&4.into(), &true.into()));
    *daemon.target.lost.lock().unwrap() = 1;
    let (exit, said) = run_line(&daemon, "postrider status").unwrap_err();
    assert!(
        exit == Exit::Software
            && said.contains("THE COUNTERS ARE INCONSISTENT: 1 recipient is not accounted for\n"),
        "{said}"
    );
    assert_eq!(run_line(&daemon, "postrider reload").unwrap(), "data_dir needs a restart\nreloaded\n");
}

#[test]
fn status_says_that_the_spool_has_failed() {
    let daemon = Daemon::serving(Memory::with(2));
    *daemon.target.failure.lock().unwrap() = Some("sync the log: Input/output error".to_owned());
    let (exit, said) = run_line(&daemon, "postrider status").unwrap_err();
    let expected = "THE SPOOL HAS FAILED and the daemon ends: sync the log: Input/output error\n";
    assert!(exit == Exit::IoErr && said.contains(expected), "{said}");
    let (exit, said) = run_line(&daemon, "postrider status --json").unwrap_err();
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(exit == Exit::IoErr && json["spool"]["failure"] == "sync the log: Input/output error", "{said}");
}

#[test]
fn hostile_text_cannot_steer_the_terminal() {
    let memory = Memory::with(1);
    {
        let mut queue = memory.queue.lock().unwrap();
        let message = queue.get_mut(&QueueId(1)).unwrap();
        message.sender = "\x1b[2J@a.test".to_owned();
        message.recipients[0].last = Some("450 \r\n0000000000009 evil \u{202e}".to_owned());
    }
    let daemon = Daemon::serving(memory);
    for line in ["postrider queue list", "postrider queue show 0000000000001", "postrider why 0000000000001"]
    {
        let said = run_line(&daemon, line).unwrap();
        assert!(!said.contains(['\x1b', '\r', '\u{202e}']) && !said.contains("\n0000000000009"), "{said:?}");
    }
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn each_command_that_an_alert_names_exists() {
    use clap::CommandFactory as _;
    let rules = include_str!("../../../../dist/prometheus.rules.yml");
    assert!(!rules.contains("postlab"), "the package has no postlab");
    let advice = rules.lines().filter_map(|line| line.trim().strip_prefix("what_to_do: "));
    let mut count = 0;
    for part in advice.flat_map(|text| text.trim_matches('"').split([';', ',', ':'])) {
        let Some((_, words)) = part.split_once("postrider ") else { continue };
        let mut command = args::Cli::command();
        for word in words.split(' ') {
            if !command.has_subcommands() {
                break;
            }
            let found = command.find_subcommand(word).cloned();
            command = found.unwrap_or_else(|| panic!("`postrider {words}`: no command {word}"));
        }
        count += 1;
    }
    assert!(count > 5, "{count}");
}
