//! Notifications, and the reverse-paths that they go to.

use crate::common::{Postrider, client::Client, free_address, sink::Sink, until};
use std::{
    fs,
    sync::{Arc, Mutex},
};

const CONTENT: &[u8] = b"Subject: the plan\r\nMessage-ID: <1@far.test>\r\n\r\nbody of the plan\r\n";

/// Starts a daemon beside some files.
fn start(files: &[(&str, &str)], more: &str) -> Postrider {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    Postrider::start_in(dir, free_address(), more)
}

/// Sends a message whose MAIL and RCPT commands are these.
fn transact(daemon: &Postrider, commands: &[&str], content: &[u8]) {
    let mut client = Client::connect(daemon.address).unwrap();
    for command in commands {
        let (code, said) = client.say(command).unwrap();
        assert_eq!(code, 250, "{command}: {said}");
    }
    client.say("DATA").unwrap();
    client.write(content).unwrap();
    let (code, said) = client.say(".").unwrap();
    assert_eq!(code, 250, "{said}");
}

/// The messages in a mailbox, once there are so many, in the order of their subjects.
fn mail_of(daemon: &Postrider, user: &str, count: usize) -> Vec<String> {
    until(&format!("{user} has {count} messages"), || daemon.mailbox(user).len() >= count);
    let read = |path: std::path::PathBuf| fs::read_to_string(path).unwrap();
    let mut all: Vec<String> = daemon.mailbox(user).into_iter().map(read).collect();
    assert_eq!(all.len(), count, "{all:#?}");
    all.sort_by_key(|text| field(text, "Subject").to_owned());
    all
}

/// Returns the first line of the field's value; empty without the field.
fn field<'t>(text: &'t str, name: &str) -> &'t str {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default()
}

fn is_empty(daemon: &Postrider) {
    until("the queue is empty", || daemon.ask(&["queue", "count"]) == "0\n");
}

type Heard = Arc<Mutex<Vec<String>>>;

/// A next hop that offers DSN, refuses recipients whose name begins with `bad`, and notes MAIL and RCPT.
fn hop() -> (Sink, Heard) {
    let heard = Heard::default();
    let noted = heard.clone();
    let sink = Sink::with(move |line| {
        if line.starts_with("EHLO") {
            return Some("250-sink.test\r\n250-PIPELINING\r\n250-8BITMIME\r\n250 DSN".to_owned());
        }
        if line.starts_with("MAIL") || line.starts_with("RCPT") {
            noted.lock().unwrap().push(line.to_owned());
        }
        line.starts_with("RCPT TO:<bad").then(|| "550 5.1.1 no such user".to_owned())
    });
    (sink, heard)
}

/// The commands that a next hop has heard, in alphabetic order.
fn heard(heard: &Heard) -> Vec<String> {
    let mut all = heard.lock().unwrap().clone();
    all.sort();
    all
}

const LISTS: &str =
    "list: ann@a.test, bad@a.test, max\nowner-list: joe\nstaff: bob, eve@a.test\nsingle: eve@a.test\n";

#[test]
fn a_list_with_an_owner_sends_its_own_mail_and_the_owner_gets_the_bounces() {
    let (sink, said) = hop();
    let more = format!("[addresses]\naliases = [\"aliases:aliases\"]\n{}", route_far(&sink));
    let daemon = start(&[("aliases", LISTS)], &more);
    transact(
        &daemon,
        &[
            "MAIL FROM:<writer@mx.test> ENVID=e1 RET=HDRS",
            "RCPT TO:<list@mx.test> NOTIFY=SUCCESS,FAILURE",
            "RCPT TO:<zoe@b.test>",
        ],
        CONTENT,
    );
    let bounce = mail_of(&daemon, "joe", 1).remove(0);
    assert_eq!(field(&bounce, "To"), "<owner-list@mx.test>");
    assert!(bounce.contains("because owner-list@mx.test is the owner of a mailing"), "{bounce}");
    assert!(bounce.contains("Final-Recipient: rfc822; bad@a.test\n"), "{bounce}");
    assert!(bounce.contains("body of the plan"), "RET is the writer's: {bounce}");
    assert!(!bounce.contains("Original-Envelope-Id"), "{bounce}");
    // The writer hears that the list has it, and nothing of its members.
    let notice = mail_of(&daemon, "writer", 1).remove(0);
    assert!(
        notice.contains("Action: delivered\n") && notice.contains("Original-Envelope-Id: e1\n"),
        "{notice}"
    );
    assert!(
        notice.contains("Final-Recipient: rfc822; list@mx.test\n") && !notice.contains("a.test"),
        "{notice}"
    );
    is_empty(&daemon);
    let local = mail_of(&daemon, "max", 1).remove(0);
    assert_eq!(
        (field(&local, "Return-Path"), field(&local, "Subject")),
        ("<owner-list@mx.test>", "the plan")
    );
    let mails: Vec<String> = heard(&said).into_iter().filter(|line| line.starts_with("MAIL")).collect();
    assert_eq!(mails.len(), 2, "{mails:?}");
    assert!(
        mails[0].starts_with("MAIL FROM:<owner-list@mx.test>") && !mails[0].contains("ENVID"),
        "{mails:?}"
    );
    assert!(mails[1].starts_with("MAIL FROM:<writer@mx.test>"), "{mails:?}");
    assert!(mails[1].ends_with(" RET=HDRS ENVID=e1"), "{mails:?}");
    let recipients: Vec<String> = heard(&said).into_iter().filter(|line| line.starts_with("RCPT")).collect();
    assert_eq!(recipients, ["RCPT TO:<ann@a.test>", "RCPT TO:<bad@a.test>", "RCPT TO:<zoe@b.test>"]);
    assert_eq!(
        daemon.ask(&["sendmail", "-bv", "list"]).matches("the owner is owner-list@mx.test").count(),
        1
    );
}

/// Returns routes by which everything that is not local goes to the sink.
fn route_far(sink: &Sink) -> String {
    let own = "[[route]]\ndomains = [\"mx.test\", \"localhost\"]\nmaildir = \"data/mail/{local}\"\n";
    format!("{own}{}", sink.route())
}

#[test]
fn mail_without_a_sender_has_none_behind_a_list_either() {
    let (sink, said) = hop();
    let more = format!("[addresses]\naliases = [\"aliases:aliases\"]\n{}", route_far(&sink));
    let daemon = start(&[("aliases", LISTS)], &more);
    transact(&daemon, &["MAIL FROM:<>", "RCPT TO:<list@mx.test>"], CONTENT);
    until("ann has it", || sink.count() == 1);
    is_empty(&daemon);
    assert!(heard(&said)[0].starts_with("MAIL FROM:<>"), "{:?}", heard(&said));
    assert_eq!((daemon.mailbox("joe").len(), daemon.mailbox("postmaster").len()), (0, 0));
    assert_eq!(daemon.counter("bounced"), 1);
}

#[test]
fn several_targets_are_one_expansion_and_a_single_one_is_none() {
    let (sink, said) = hop();
    let more = format!("[addresses]\naliases = [\"aliases:aliases\"]\n{}", route_far(&sink));
    let daemon = start(&[("aliases", LISTS)], &more);
    transact(
        &daemon,
        &[
            "MAIL FROM:<writer@mx.test> ENVID=e2",
            "RCPT TO:<staff@mx.test> NOTIFY=SUCCESS ORCPT=rfc822;all@far.test",
        ],
        CONTENT,
    );
    let notice = mail_of(&daemon, "writer", 1).remove(0);
    for line in [
        "Original-Envelope-Id: e2",
        "Original-Recipient: rfc822;all@far.test",
        "Final-Recipient: rfc822; staff@mx.test",
        "Action: expanded",
        "Status: 2.0.0",
    ] {
        assert!(notice.lines().any(|found| found == line), "{line}: {notice}");
    }
    assert!(!notice.contains("bob@") && !notice.contains("body of the plan"), "{notice}");
    is_empty(&daemon);
    let expected = "RCPT TO:<eve@a.test> NOTIFY=NEVER ORCPT=rfc822;all@far.test";
    assert_eq!(heard(&said)[1], expected);
    assert_eq!((daemon.mailbox("bob").len(), daemon.mailbox("writer").len()), (1, 1));
    transact(&daemon, &["MAIL FROM:<writer@mx.test>", "RCPT TO:<single@mx.test> NOTIFY=SUCCESS"], CONTENT);
    until("eve has both", || sink.count() == 2);
    is_empty(&daemon);
    // The next hop reports.
    let expected = "RCPT TO:<eve@a.test> NOTIFY=SUCCESS ORCPT=rfc822;single@mx.test";
    assert!(heard(&said).iter().any(|line| line == expected), "{:?}", heard(&said));
    assert_eq!(daemon.mailbox("writer").len(), 1);
}

#[test]
fn success_is_reported_as_delivered_or_as_relayed() {
    let sink = Sink::start();
    let daemon = start(&[], &route_far(&sink));
    transact(
        &daemon,
        &[
            "MAIL FROM:<writer@mx.test> RET=FULL",
            "RCPT TO:<joe@mx.test> NOTIFY=SUCCESS",
            "RCPT TO:<ann@a.test> NOTIFY=SUCCESS",
        ],
        CONTENT,
    );
    let notices = mail_of(&daemon, "writer", 2);
    assert!(
        notices[0].contains("Action: delivered\n") && notices[0].contains("joe@mx.test"),
        "{}",
        notices[0]
    );
    assert!(notices[1].contains("Action: relayed\n") && notices[1].contains("ann@a.test"), "{}", notices[1]);
    assert!(notices.iter().all(|notice| !notice.contains("body of the plan")));
}

#[test]
fn a_bounce_of_verp_names_the_recipient_and_survives_a_restart() {
    let (sink, said) = hop();
    let more = format!(
        "[addresses]\nverp = [\"news@mx.test\"]\n[relay]\nnetworks = [\"127.0.0.0/8\"]\n{}",
        route_far(&sink)
    );
    let dir = tempfile::tempdir().unwrap();
    let offline = more.replace(&sink.address.to_string(), "127.0.0.1:9");
    let daemon = Postrider::start_in(dir, free_address(), &offline);
    let from = "MAIL FROM:<news@mx.test> ENVID=e3";
    transact(&daemon, &[from, "RCPT TO:<ann@a.test>", "RCPT TO:<bad+x@a.test>"], CONTENT);
    let id = daemon.ask(&["queue", "list", "--json"]);
    assert!(id.contains("\"return_path\":\"news+ann=a.test@mx.test\""), "{id}");
    let (dir, address) = daemon.kill();
    let daemon = Postrider::start_in(dir, address, &more);
    daemon.ask(&["queue", "flush"]);
    // With the separator of sub-addresses, the bounce is the user's own mail.
    let bounce = mail_of(&daemon, "news", 1).remove(0);
    assert_eq!(field(&bounce, "To"), "<news+bad+x=a.test@mx.test>");
    assert!(bounce.contains("Original-Envelope-Id: e3\n"), "{bounce}");
    is_empty(&daemon);
    let mails: Vec<String> = heard(&said).into_iter().filter(|line| line.starts_with("MAIL")).collect();
    assert_eq!(mails.len(), 2, "{mails:?}");
    assert!(mails[0].starts_with("MAIL FROM:<news+ann=a.test@mx.test> "), "{mails:?}");
    assert!(mails[1].starts_with("MAIL FROM:<news+bad+x=a.test@mx.test> "), "{mails:?}");
    assert!(mails.iter().all(|mail| mail.ends_with(" ENVID=e3")), "{mails:?}");
    // Other senders keep their path.
    transact(&daemon, &["MAIL FROM:<joe@mx.test>", "RCPT TO:<ann@a.test>", "RCPT TO:<bob@a.test>"], CONTENT);
    until("both have it", || sink.messages().last().is_some_and(|message| message.to.len() == 2));
    assert_eq!(sink.messages().last().unwrap().from, "joe@mx.test");
}

#[test]
fn the_text_for_the_reader_is_in_the_configured_languages_and_can_be_changed() {
    let (sink, _) = hop();
    let ours = "[failed]\nSubject: Pech gehabt bei {hostname}\n\nHallo {sender},\n{recipients}\nGrüße\n\n[reason 5.1.1]\nDiesen Namen {{a}} gibt es nicht.\n";
    let language = |language: &str| format!("[notifications]\nlanguages = {language}\n{}", route_far(&sink));
    let daemon = start(&[("texts/de.txt", ours)], &language("[\"de\"]"));
    let fails = || transact(&daemon, &["MAIL FROM:<writer@mx.test>", "RCPT TO:<bad@a.test>"], CONTENT);
    fails();
    let notice = mail_of(&daemon, "writer", 1).remove(0);
    for line in [
        "Subject: Nachricht unzustellbar",
        "Content-Language: de",
        "Hier ist der Mailserver mx.test.",
        "    Diese Adresse gibt es nicht. Prüfen Sie die Schreibweise, oder fragen Sie",
        "Diagnostic-Code: smtp; 550 5.1.1 no such user (in reply to RCPT TO)",
        "Action: failed",
    ] {
        assert!(notice.lines().any(|found| found == line), "{line}: {notice}");
    }
    let more =
        format!("[notifications]\nlanguages = [\"de\", \"en\"]\ntemplates = \"texts\"\n{}", route_far(&sink));
    daemon.reconfigure(&more);
    daemon.ask(&["reload"]);
    fails();
    let notice = mail_of(&daemon, "writer", 2).remove(1);
    for line in [
        "Subject: Pech gehabt bei mx.test",
        "Content-Language: de, en",
        "Hallo writer@mx.test,",
        "    Diesen Namen {a} gibt es nicht.",
        "    The address does not exist. Check the spelling, or ask the recipient for",
    ] {
        assert!(notice.lines().any(|found| found == line), "{line}: {notice}");
    }
    let check = |language: &str, templates: &str| {
        daemon.reconfigure(&format!("[notifications]\nlanguages = [\"{language}\"]\n{templates}"));
        daemon.try_ask(&["config", "check"]).expect_err("a fault")
    };
    let path = daemon.dir.path().join("texts/fr.txt");
    let said = check("fr", "templates = \"texts\"\n");
    assert!(
        said.contains("there are no texts in the language `fr`") && said.contains("postrider.toml:9:13"),
        "{said}"
    );
    fs::write(&path, "[failed]\nSubject: Échec\n\nBonjour {nom},\n{recipients}\n").unwrap();
    let said = check("fr", "templates = \"texts\"\n");
    let place = format!("{}:4:9: unknown placeholder {{nom}}: write one of {{hostname}}", path.display());
    assert!(said.contains(&place), "{said}");
    let said = check("en", "templates = \"nowhere\"\n");
    assert!(said.contains("nowhere/en.txt: No such file"), "{said}");
}

#[test]
fn a_notification_that_cannot_be_delivered_goes_to_the_postmaster_once() {
    let (sink, _) = hop();
    let daemon = start(&[], &route_far(&sink));
    let commands = ["MAIL FROM:<bad.writer@b.test>", "RCPT TO:<bad@a.test>"];
    transact(&daemon, &commands, CONTENT);
    let notice = mail_of(&daemon, "postmaster", 1).remove(0);
    for line in [
        "Return-Path: <>",
        "To: <postmaster@mx.test>",
        "Subject: A notification could not be delivered",
        "Final-Recipient: rfc822; bad.writer@b.test",
        // The notification, with the message in it.
        "Final-Recipient: rfc822; bad@a.test",
        "body of the plan",
    ] {
        assert!(notice.lines().any(|found| found == line), "{line}: {notice}");
    }
    is_empty(&daemon);
    // A foreign bounce is none of ours.
    transact(&daemon, &["MAIL FROM:<>", "RCPT TO:<bad@a.test>"], CONTENT);
    is_empty(&daemon);
    assert_eq!((daemon.counter("bounced"), daemon.mailbox("postmaster").len()), (3, 1));
    daemon.reconfigure(&format!("[notifications]\ndouble_bounces = false\n{}", route_far(&sink)));
    daemon.ask(&["reload"]);
    transact(&daemon, &commands, CONTENT);
    until("message and notification have failed", || daemon.counter("bounced") == 5);
    is_empty(&daemon);
    assert_eq!((daemon.counter("accepted"), daemon.mailbox("postmaster").len()), (6, 1));
}

#[test]
fn notifications_that_fail_beyond_the_limit_are_logged_and_the_postmaster_gets_one_summary() {
    let (sink, _) = hop();
    let limit = "[notifications]\nmax_double_bounces_per_hour = 1\n";
    let more = format!("{limit}{}", route_far(&sink));
    let daemon = start(&[], &more);
    for number in 0..4 {
        let from = format!("MAIL FROM:<bad.writer{number}@b.test>");
        transact(&daemon, &[&from, "RCPT TO:<bad@a.test>"], CONTENT);
        until("message and notification have failed", || daemon.counter("bounced") == 2 * (number + 1));
    }
    mail_of(&daemon, "postmaster", 1);
    is_empty(&daemon);
    // The stop queues the summary, and the next start delivers it.
    let address = daemon.address;
    let (dir, status) = daemon.stop();
    assert!(status.success(), "{status}");
    let daemon = Postrider::start_in(dir, address, &more);
    let all = mail_of(&daemon, "postmaster", 2);
    let summary = all.iter().find(|text| field(text, "Subject").starts_with('3')).expect("a summary");
    assert_eq!(field(summary, "Subject"), "3 notifications could not be delivered");
    let command = summary.lines().find_map(|line| line.strip_prefix("    postrider ")).expect("a command");
    let since = command.split(' ').skip_while(|word| *word != "--since").nth(1).unwrap();
    let found = daemon.ask(&["history", "query", "--sender", "<>", "--since", since, "--json"]);
    let found: Vec<&str> = found.lines().filter(|line| line.contains("not_mailed")).collect();
    assert_eq!(found.len(), 3, "{found:#?}");
    for number in 1..4 {
        let to = format!("<bad.writer{number}@b.test>");
        assert!(summary.contains(&to) && summary.contains("550 5.1.1 no such user"), "{summary}");
        assert!(found.iter().any(|line| line.contains(&to[1..to.len() - 1])), "{found:#?}");
    }
}

#[test]
fn a_notification_for_a_sender_who_is_no_user_here_goes_to_the_postmaster() {
    for users in ["\"joe\", \"postmaster\"", "\"text:users\""] {
        let (sink, _) = hop();
        let local = format!("[local]\nusers = [{users}]\n[addresses]\nvirtual = [\"text:virtual\"]\n");
        let files = [("users", "joe\npostmaster\n"), ("virtual", "info@mx.test joe\n")];
        let daemon = start(&files, &format!("{local}{}", route_far(&sink)));
        transact(&daemon, &["MAIL FROM:<ghost@mx.test>", "RCPT TO:<bad@a.test>"], CONTENT);
        let notice = mail_of(&daemon, "postmaster", 1).remove(0);
        for line in
            ["Subject: A notification could not be delivered", "Final-Recipient: rfc822; ghost@mx.test"]
        {
            assert!(notice.lines().any(|found| found == line), "{users}, {line}: {notice}");
        }
        is_empty(&daemon);
    }
}

#[test]
fn a_postmaster_who_cannot_get_mail_ends_the_matter() {
    let (sink, _) = hop();
    let dir = tempfile::tempdir().unwrap();
    let address = free_address();
    let text = format!(
        "hostname = \"mx.test\"\ndata_dir = \"data\"\npostmaster = \"bad.boss@b.test\"\n[[listen]]\naddress = \"{address}\"\n\
         [spool]\nsegment_size = \"4MiB\"\nmin_free = \"16MiB\"\n{}",
        sink.route()
    );
    let daemon = Postrider::start_in(dir, address, &sink.route());
    fs::write(daemon.config(), text).unwrap();
    daemon.ask(&["reload"]);
    transact(&daemon, &["MAIL FROM:<bad.writer@b.test>", "RCPT TO:<bad@a.test>"], CONTENT);
    until("message, notification and double bounce have failed", || daemon.counter("bounced") == 3);
    is_empty(&daemon);
    assert_eq!(daemon.counter("accepted"), 3);
}

#[test]
fn mail_of_programs_is_returned_and_not_warned_about() {
    let sink = Sink::with(|line| line.starts_with("RCPT TO:<busy").then(|| "451 4.7.1 later".to_owned()));
    let queue = "[queue]\ndelay_warning = \"1s\"\nretry_min = \"1s\"\nretry_max = \"1s\"\n";
    let daemon = start(&[], &format!("{queue}{}", route_far(&sink)));
    let program = b"Subject: nightly\r\nAuto-Submitted: auto-generated\r\n\r\nx\r\n";
    transact(&daemon, &["MAIL FROM:<cron@mx.test>", "RCPT TO:<busy@a.test>"], program);
    transact(&daemon, &["MAIL FROM:<writer@mx.test>", "RCPT TO:<busy@a.test>"], CONTENT);
    let warning = mail_of(&daemon, "writer", 1).remove(0);
    assert!(warning.contains("Action: delayed\n") && warning.contains("THIS IS A WARNING ONLY"), "{warning}");
    transact(&daemon, &["MAIL FROM:<asks@mx.test>", "RCPT TO:<busy@a.test> NOTIFY=DELAY"], program);
    assert!(mail_of(&daemon, "asks", 1)[0].contains("Action: delayed\n"));
    assert_eq!(daemon.mailbox("cron").len(), 0);
    until("the warnings have left", || daemon.ask(&["queue", "count"]) == "3\n");
    daemon.ask(&["queue", "bounce", "--sender", "cron@mx.test"]);
    let bounce = mail_of(&daemon, "cron", 1).remove(0);
    assert!(bounce.contains("An administrator has returned the message to you."), "{bounce}");
}

#[test]
fn a_warning_says_why_the_destination_is_down_also_of_mail_that_was_never_tried() {
    let down = free_address();
    let more = format!(
        "[queue]\ndelay_warning = \"1s\"\n[[route]]\ndomains = [\"down.test\"]\nsmarthost = \"{down}\"\ntls = \"off\"\n"
    );
    let daemon = start(&[], &more);
    transact(&daemon, &["MAIL FROM:<first@mx.test>", "RCPT TO:<x@down.test>"], CONTENT);
    until("it is suspended", || daemon.ask(&["queue", "count", "--status", "deferred"]) == "1\n");
    transact(&daemon, &["MAIL FROM:<second@mx.test>", "RCPT TO:<y@down.test>"], CONTENT);
    for sender in ["first", "second"] {
        let warning = mail_of(&daemon, sender, 1).remove(0);
        assert!(warning.contains("Action: delayed\n") && warning.contains("refused"), "{warning}");
    }
}

#[test]
fn addresses_in_utf8_make_a_global_report_where_the_sender_has_one() {
    let sink =
        Sink::with(|line| line.starts_with("RCPT TO:<bäd").then(|| "550 5.1.1 kein Benutzer".to_owned()));
    let daemon = start(&[], &route_far(&sink));
    transact(&daemon, &["MAIL FROM:<writer@mx.test> SMTPUTF8", "RCPT TO:<bäd@a.test>"], CONTENT);
    let notice = mail_of(&daemon, "writer", 1).remove(0);
    for line in
        ["Content-Type: message/delivery-status", "Final-Recipient: utf-8; b\\x{E4}d@a.test", "<bäd@a.test>"]
    {
        assert!(notice.lines().any(|found| found == line), "{line}: {notice}");
    }
    transact(&daemon, &["MAIL FROM:<jörg@b.test> SMTPUTF8", "RCPT TO:<bäd@a.test>"], CONTENT);
    until("jörg gets it", || sink.count() == 1);
    let message = sink.messages().remove(0);
    let text = String::from_utf8(message.content).unwrap();
    assert_eq!((message.from.as_str(), message.to), ("", vec!["jörg@b.test".to_owned()]));
    for line in [
        "Content-Type: message/global-delivery-status",
        "Final-Recipient: utf-8; bäd@a.test",
        "To: <jörg@b.test>",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
}

#[test]
fn many_bounces_of_one_message_all_arrive() {
    const COUNT: usize = 200;
    let (sink, _) = hop();
    let more = format!("[addresses]\nverp = [\"mx.test\"]\n{}", route_far(&sink));
    let daemon = start(&[], &more);
    let recipients: Vec<String> = (0..COUNT).map(|n| format!("RCPT TO:<bad{n}@a.test>")).collect();
    let commands = std::iter::once("MAIL FROM:<news@mx.test>").chain(recipients.iter().map(String::as_str));
    transact(&daemon, &commands.collect::<Vec<_>>(), CONTENT);
    let bounces = mail_of(&daemon, "news", COUNT);
    let mut addresses: Vec<&str> = bounces.iter().map(|bounce| field(bounce, "To")).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!((addresses.len(), daemon.counter("bounced")), (COUNT, COUNT as u64));
    is_empty(&daemon);
    let (dir, _) = daemon.stop();
    let config = dir.path().join("postrider.toml");
    let mut check = std::process::Command::new(crate::common::BINARY);
    let checked = check.args(["spool", "check"]).env("POSTRIDER_CONFIG", config).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
