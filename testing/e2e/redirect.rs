//! Rules that redirect mail, together with aliases, users, `verify` and the parameters of notifications.

use crate::common::{
    Postrider,
    client::Client,
    free_address,
    names::{NameServer, Record},
    sink::Sink,
    until,
};
use std::{
    fs,
    net::UdpSocket,
    sync::{Arc, Mutex},
};

const FROM: &str = "MAIL FROM:<author@mx.test>";

/// Starts a daemon whose clients are untrusted, with these aliases.
fn start(aliases: Option<&str>, more: &str) -> Postrider {
    let dir = tempfile::tempdir().unwrap();
    let addresses = match aliases {
        Some(text) => {
            fs::write(dir.path().join("aliases"), text).unwrap();
            "[addresses]\naliases = [\"aliases:aliases\"]\n"
        }
        None => "",
    };
    let more = format!("[relay]\nnetworks = []\n[log]\nfile = \"mail.log\"\n{addresses}{more}");
    Postrider::start_in(dir, free_address(), &more)
}

/// The replies to RCPT and to the content, for a message with the field `X-Redirect`.
fn send(daemon: &Postrider, rcpt: &str) -> (String, String) {
    let mut client = Client::connect(daemon.address).unwrap();
    assert_eq!(client.say(FROM).unwrap().0, 250);
    let to = client.say(rcpt).unwrap();
    if to.0 != 250 {
        return (to.1, String::new());
    }
    assert_eq!(client.say("DATA").unwrap().0, 354);
    (to.1, client.say("X-Redirect: 1\r\n\r\nx\r\n.").unwrap().1)
}

#[test]
fn mail_that_is_redirected_at_the_content_keeps_what_its_sender_wants_to_be_told() {
    let sink = Sink::with(|line| line.starts_with("RCPT").then(|| "550 5.1.1 no such user".to_owned()));
    let rule = "[[rule]]\nheader = [\"X-Redirect\"]\nredirect = [\"list@mx.test\"]\n";
    let route = sink.route().replace("\"*\"", "\"members.test\"");
    let daemon = start(Some("list: a@members.test, b@members.test\n"), &format!("{rule}{route}"));
    let never = send(&daemon, "RCPT TO:<joe@mx.test> NOTIFY=NEVER ORCPT=rfc822;joe@mx.test");
    assert!(never.1.starts_with("250"), "{never:?}");
    until("the members have refused", || daemon.counter("bounced") == 2);
    let told = send(&daemon, "RCPT TO:<joe@mx.test> NOTIFY=FAILURE");
    assert!(told.1.starts_with("250"), "{told:?}");
    // The report on the first message would have come before.
    until("the sender is told", || !daemon.mailbox("author").is_empty());
    let reports = daemon.mailbox("author");
    let text = fs::read_to_string(&reports[0]).unwrap();
    assert!(reports.len() == 1 && text.contains("rfc822; a@members.test"), "{text}");
    assert_eq!(daemon.counter("bounced"), 4);
}

#[test]
fn a_list_that_mail_is_redirected_to_has_its_owner() {
    let sink = Sink::start();
    let rule = "[[rule]]\nto = [\"redirect@mx.test\"]\nredirect = [\"list@mx.test\"]\n";
    let route = sink.route().replace("\"*\"", "\"members.test\"");
    let daemon = start(Some("list: a@members.test, joe\nowner-list: joe\n"), &format!("{rule}{route}"));
    assert!(send(&daemon, "RCPT TO:<redirect@mx.test>").1.starts_with("250"));
    until("the member has it", || sink.count() == 1);
    assert_eq!(sink.messages()[0].from, "owner-list@mx.test");
}

#[test]
fn a_target_that_does_not_exist_is_a_temporary_error_and_no_bounce() {
    let rules = "[local]\nusers = [\"joe\"]\n\
                 [[rule]]\nto = [\"one@mx.test\"]\nredirect = [\"nobody@mx.test\"]\n\
                 [[rule]]\nto = [\"copy@mx.test\"]\nbcc = [\"nobody@mx.test\"]\n\
                 [[rule]]\nto = [\"two@mx.test\"]\nredirect = [\"joe@mx.test\"]\n";
    let daemon = start(None, rules);
    for recipient in ["one", "copy"] {
        let (reply, _) = send(&daemon, &format!("RCPT TO:<{recipient}@mx.test>"));
        assert!(reply.starts_with("451 4.3.0"), "{recipient}: {reply}");
    }
    assert!(send(&daemon, "RCPT TO:<two@mx.test>").1.starts_with("250"));
    until("joe has it", || daemon.mailbox("joe").len() == 1);
    assert_eq!(daemon.counter("bounced"), 0);
    for rule in ["rule 1, line ", "rule 2, line "] {
        let is_named =
            |entry: &serde_json::Value| entry["rule"].as_str().is_some_and(|by| by.starts_with(rule));
        until("the log names the rule", || daemon.log().iter().any(is_named));
    }
}

#[test]
fn the_next_hop_is_asked_for_a_single_target() {
    let sink =
        Sink::with(|line| line.starts_with("RCPT TO:<nobody@").then(|| "550 5.1.1 who is that".to_owned()));
    let rules = "[[rule]]\nto = [\"gone@mx.test\"]\nredirect = [\"nobody@b.test\"]\n\
                 [[rule]]\nto = [\"here@mx.test\"]\nredirect = [\"joe@b.test\"]\n\
                 [[rule]]\nheader = [\"X-Redirect\"]\nto = [\"late@mx.test\"]\nredirect = [\"nobody@b.test\"]\n";
    let route = sink.route().replace("\"*\"", "\"b.test\"") + "verify = true\n";
    let daemon = start(None, &format!("{rules}{route}"));
    assert!(send(&daemon, "RCPT TO:<gone@mx.test>").0.starts_with("550 5.1.1"));
    assert!(send(&daemon, "RCPT TO:<late@mx.test>").1.starts_with("550 5.1.1"));
    assert!(send(&daemon, "RCPT TO:<here@mx.test>").1.starts_with("250"));
    until("joe has it", || sink.count() == 1);
    assert_eq!(daemon.counter("bounced"), 0);
}

#[test]
fn sendmail_bv_and_test_tell_of_held_mail_and_of_addresses_of_this_machine() {
    let daemon = start(None, "[[route]]\ndomains = [\"hold.test\"]\nhold = true\n");
    let said = daemon.ask(&["sendmail", "-bv", "x@hold.test"]);
    assert!(said.contains("held by its route; after a release by mx:hold.test"), "{said}");
    let test = ["test", "--client", "127.0.0.1", "--from", "a@far.test", "--to", "joe@[127.0.0.1]"];
    let said = daemon.ask(&test);
    assert!(said.contains("this is an address of this machine: joe@mx.test"), "{said}");
    let routed = ["test", "--client", "127.0.0.1", "--from", "a@far.test", "--to", "@far.test:joe@mx.test"];
    let said = daemon.ask(&routed);
    assert!(said.contains("joe@mx.test by maildir:"), "{said}");
}

/// A next hop that takes DSN parameters and notes the RCPT commands.
fn noting(taken: &Arc<Mutex<Vec<String>>>) -> Sink {
    let taken = taken.clone();
    Sink::with(move |line| {
        if line.starts_with("RCPT") {
            taken.lock().unwrap().push(line.to_owned());
        }
        line.starts_with("EHLO").then(|| "250-sink.test\r\n250-8BITMIME\r\n250 DSN".to_owned())
    })
}

/// Routes that take mail nowhere.
const REFUSING: &str = "[[route]]\nname = \"never\"\ndomains = [\"no.test\"]\nreject = \"550 5.7.1 not here\"\n\
    [[route]]\nname = \"later\"\ndomains = [\"later.test\"]\nhold = true\n";

#[test]
fn an_operator_sends_queued_mail_to_another_address_or_by_another_route() {
    let taken = Arc::default();
    let sink = noting(&taken);
    let dead = free_address();
    let relay = sink.route().replace("domains = [\"*\"]", "name = \"relay\"\ndomains = [\"new.test\"]");
    let routes = format!("[[route]]\ndomains = [\"*\"]\nsmarthost = \"{dead}\"\ntls = \"off\"\n");
    let config = format!("[local]\nusers = [\"joe\"]\n{relay}{REFUSING}{routes}[log]\nfile = \"mail.log\"\n");
    let daemon = Postrider::start(&config);
    let send = |rcpts: &[&str], bytes: usize| {
        let mut client = Client::connect(daemon.address).unwrap();
        assert_eq!(client.say("MAIL FROM:<ann@a.test> ENVID=e1").unwrap().0, 250);
        for rcpt in rcpts {
            assert_eq!(client.say(&format!("RCPT TO:{rcpt}")).unwrap().0, 250);
        }
        assert_eq!(client.say("DATA").unwrap().0, 354);
        let said = client.say(&format!("Subject: s\r\n\r\n{}\r\n.", "line\r\n".repeat(bytes / 6))).unwrap().1;
        said.trim().rsplit(' ').next().unwrap().to_owned()
    };
    let one = send(&["<x@old.test> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;orig@a.test", "<y@else.test>"], 6);
    let two = send(&["<z@old.test> NOTIFY=NEVER"], 600_000);
    until("both wait", || {
        [&one, &two].iter().all(|id| daemon.ask(&["queue", "list", id]).contains("refused"))
    });
    // What cannot be delivered is refused, and changes nothing.
    for (target, why) in [
        (["--to", "nobody@mx.test"], "<nobody@mx.test>: there is no such user here"),
        (["--to", "x@no.test"], "<x@no.test>: mail for it is refused: 550 5.7.1 not here"),
        (["--to", "no address"], "is not an address"),
        (["--route", "other"], "no route is called \"other\"; the routes with a `name` are: relay, never"),
        (["--route", "later"], "the route \"later\" only holds mail"),
        (["--route", "never"], "the route \"never\" refuses all mail"),
    ] {
        let said = daemon.try_ask(&[&["queue", "redirect", "all"], &target[..]].concat()).unwrap_err();
        assert!(said.contains(why), "{target:?}: {said}");
    }
    assert!(daemon.try_ask(&["queue", "redirect", "--to", "x@new.test"]).is_err(), "nothing is selected");
    let old = ["queue", "redirect", "--recipient", "*@old.test", "--to", "new@new.test", "--reason", "moved"];
    let said = daemon.ask(&[&old[..], &["-n"]].concat());
    assert!(said.contains("2 messages would be redirected, with 2 recipients"), "{said}");
    assert_eq!(daemon.counter("delivered"), 0);
    let said = daemon.ask(&old);
    assert!(said.contains("2 messages redirected for the selected recipients"), "{said}");
    until("both arrive", || sink.count() == 2);
    until("they are counted", || daemon.counter("delivered") == 2);
    assert_eq!(daemon.counter("moved"), 2, "the old recipients were redirected, and not delivered");
    let is_redirected =
        |entry: &serde_json::Value| entry["to"] == "x@old.test" && entry["status"] == "redirected";
    until("the log says so", || daemon.log().iter().any(is_redirected));
    let rcpts: Vec<String> = taken.lock().unwrap().clone();
    let has = |parts: &[&str]| rcpts.iter().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(has(&["<new@new.test>", "NOTIFY=SUCCESS,FAILURE", "ORCPT=rfc822;orig@a.test"]), "{rcpts:?}");
    assert!(has(&["<new@new.test>", "NOTIFY=NEVER", "ORCPT=rfc822;z@old.test"]), "{rcpts:?}");
    let sizes: Vec<usize> = sink.messages().iter().map(|message| message.content.len()).collect();
    assert!(sizes.iter().any(|size| *size > 600_000), "{sizes:?}");
    // The history has it for both messages, and the other recipient waits on.
    let mut why = String::new();
    until("the history has it", || {
        why = daemon.ask(&["why", &one]);
        why.contains("redirected <x@old.test> to <new@new.test> as ") && why.contains(": moved")
    });
    let list = daemon.ask(&["queue", "list"]);
    assert!(list.contains("y@else.test") && !list.contains("old.test") && !list.contains(&two), "{list}");
    let new = why.split(" as ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    until("and for the new one", || {
        let said = daemon.try_ask(&["why", &new]).unwrap_or_default();
        said.contains(&format!("redirected from {one}: <x@old.test> to <new@new.test> by "))
    });
    // A held message stays held at its new place, also after a kill, and leaves by the route that was chosen.
    let held = ["queue", "list", "--status", "held"];
    assert_eq!(daemon.ask(&held), "No message with the status held\n");
    assert_eq!(daemon.ask(&["queue", "list", "--sender", "nobody@x.test"]), "No message matches\n");
    assert!(!daemon.ask(&["status"]).contains("on hold"));
    assert!(daemon.ask(&["queue", "hold", &one, "--reason", "odd"]).contains("1 message held"));
    assert!(daemon.ask(&["status"]).contains("1 message on hold"));
    assert!(daemon.ask(&["status", "--prometheus"]).contains("postrider_held_messages 1"));
    assert!(daemon.ask(&["queue", "redirect", &one, "--route", "relay"]).contains("1 message redirected"));
    let moved = daemon.ask(&["queue", "list", "--ids"]).trim().to_owned();
    until("the history has the hold under the new id, too", || {
        let why = daemon.ask(&["why", &moved, "--json"]);
        let why: serde_json::Value = serde_json::from_str(&why).unwrap();
        let is_held = |event: &serde_json::Value| {
            event["event"] == "held"
                && event["reason"].as_str().is_some_and(|reason| reason.ends_with(": odd"))
        };
        why["events"].as_array().unwrap().iter().any(is_held)
    });
    let (dir, address) = daemon.kill();
    let daemon = Postrider::start_in(dir, address, &config);
    let moved = daemon.ask(&["queue", "list", "--ids"]).trim().to_owned();
    assert_ne!(moved, one);
    assert!(daemon.ask(&["queue", "list"]).contains(": odd)"));
    assert_eq!(sink.count(), 2);
    daemon.ask(&["queue", "release", &moved]);
    until("it arrives", || sink.count() == 3);
    assert_eq!(sink.messages()[2].to, ["y@else.test"]);
    let events = || {
        let why: serde_json::Value = serde_json::from_str(&daemon.ask(&["why", &moved, "--json"])).unwrap();
        why["events"].as_array().unwrap().clone()
    };
    until("it has ended", || events().iter().any(|event| event["event"] == "completed"));
    let events = events();
    let at = |is: &dyn Fn(&serde_json::Value) -> bool| events.iter().position(is);
    let released = at(&|event| event["action"] == "release");
    assert!(released.is_some() && released < at(&|event| event["event"] == "attempt"), "{events:?}");
}

#[test]
fn a_redirect_says_that_its_target_has_no_server() {
    let names = NameServer::start(
        UdpSocket::bind(("127.0.0.1", 0)).unwrap(),
        &[("here.test", Record::Mx(10, "mx.here.test")), ("mx.here.test", Record::A([127, 0, 0, 9].into()))],
    );
    let routes = format!(
        "[[route]]\ndomains = [\"old.test\"]\nsmarthost = \"{}\"\ntls = \"off\"\n\
         [[route]]\nname = \"lost\"\ndomains = [\"lost.test\"]\nsmarthost = \"relay.gone.test:25\"\n",
        free_address()
    );
    let config = format!("[dns]\nnameservers = [\"{}\"]\n{routes}", names.address);
    let daemon = Postrider::start(&config);
    let mut client = Client::connect(daemon.address).unwrap();
    client.send("ann@a.test", &["x@old.test"], b"Subject: s\r\n\r\nx\r\n").unwrap();
    until("it waits", || daemon.ask(&["queue", "list"]).contains("refused"));
    let redirect = |target: [&str; 2]| {
        let output = daemon.run(&[&["queue", "redirect", "all", "-n"], &target[..]].concat(), "");
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (is_done, said) = redirect(["--to", "x@gone.test"]);
    assert!(!is_done && said.contains("<x@gone.test>: "), "{said}");
    let (is_done, said) = redirect(["--route", "lost"]);
    let warning =
        "warning: mail for the route \"lost\" cannot leave now, and waits: the next hop relay.gone.test ";
    assert!(is_done && said.contains(warning), "{said}");
    assert_eq!(redirect(["--to", "x@here.test"]), (true, String::new()));
}
