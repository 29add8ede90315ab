//! The control socket, from one end to the other.

use super::{
    client::{Client, ClientError},
    fake::{Daemon, Memory, message},
    protocol::REQUEST_BYTES_MAX,
    *,
};
use report::RecipientCounters;
use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
};

fn client(daemon: &Daemon) -> Client {
    Client::connect(&daemon.settings.control.socket).unwrap()
}

fn ask(client: &mut Client, request: &Request) -> (u64, Vec<Response>) {
    let mut answer = Vec::new();
    let count = client.ask(request, &mut |response| {
        answer.push(response);
        Ok(())
    });
    (count.unwrap(), answer)
}

#[test]
fn a_long_queue_is_listed_whole_and_in_order() {
    let daemon = Daemon::serving(Memory::with(1000));
    let (count, answer) = ask(&mut client(&daemon), &Request::List { selection: Selection::all() });
    let expected: Vec<Response> = (1..=1000).map(|n| Response::Message(message(n))).collect();
    assert!(count == 1000 && answer == expected);
}

#[test]
fn one_connection_carries_many_requests_and_survives_a_bad_one() {
    let daemon = Daemon::serving(Memory::with(3));
    let mut client = client(&daemon);
    assert_eq!(ask(&mut client, &Request::Count { selection: Selection::all() }).0, 3);
    let missing = client.ask(&Request::Show { id: message(9).id }, &mut |_| Ok(()));
    assert!(matches!(missing, Err(ClientError::Refused(Failure::Missing { .. }))));
    let nothing = Request::Apply { action: Action::Delete, selection: Selection::default(), reason: None };
    assert!(matches!(client.ask(&nothing, &mut |_| Ok(())), Err(ClientError::Refused(Failure::Bad { .. }))));
    let (_, answer) = ask(&mut client, &Request::Show { id: message(2).id });
    let header = Response::Header { text: "Subject: \u{fffd} hi\r\n\r\n".to_owned() };
    assert_eq!(answer, [Response::Message(message(2)), header]);
    assert_eq!(ask(&mut client, &Request::Flush).0, 3);
    let note = Response::Note { text: "data_dir needs a restart".to_owned() };
    assert_eq!(ask(&mut client, &Request::Reload), (0, vec![note]));
    let counters =
        RecipientCounters { accepted: 11, delivered: 5, queued: 6, ..RecipientCounters::default() };
    assert_eq!(
        ask(&mut client, &Request::Status),
        (0, vec![Response::Counters(counters), Response::Gauges(Box::default())])
    );
}

#[test]
fn a_change_reaches_the_selected_messages_only() {
    let daemon = Daemon::serving(Memory::with(300));
    let selection =
        Selection { ids: vec![message(7).id, message(7).id, message(999).id], ..Selection::default() };
    let request = Request::Apply { action: Action::Hold, selection, reason: None };
    assert_eq!(ask(&mut client(&daemon), &request).0, 1);
    assert_eq!(daemon.done(), [(Action::Hold, Matched::whole(7))]);
    let selection = Selection { sender: Some("alice@*".to_owned()), ..Selection::default() };
    let request = Request::Apply { action: Action::Delete, selection, reason: None };
    assert_eq!(ask(&mut client(&daemon), &request).0, 300);
    assert!(daemon.target.queue.lock().unwrap().is_empty());
}

#[test]
fn messages_that_an_action_leaves_as_they_were_are_counted_by_themselves() {
    let daemon = Daemon::serving(Memory::with(300));
    let request = Request::Apply { action: Action::Release, selection: Selection::all(), reason: None };
    assert_eq!(
        ask(&mut client(&daemon), &request),
        (300, vec![Response::Unchanged { count: 300, reason: "not held".to_owned() }])
    );
}

#[test]
fn recipients_are_ended_one_by_one_and_held_only_with_their_message() {
    let daemon = Daemon::serving(Memory::with(1));
    let selection = Selection { recipient: Some("carol@*".to_owned()), ..Selection::default() };
    for action in [Action::Bounce, Action::Hold, Action::Delete] {
        let request = Request::Apply {
            action,
            selection: selection.clone(),
            reason: (action == Action::Bounce).then(|| "closed".to_owned()),
        };
        assert_eq!(ask(&mut client(&daemon), &request).0, 1);
    }
    let carol = Matched { id: message(1).id.0, recipients: Some(vec![1]), reason: None };
    let bounced = Matched { reason: Some("closed".into()), ..carol.clone() };
    let done = [(Action::Bounce, bounced), (Action::Hold, Matched::whole(1)), (Action::Delete, carol)];
    assert_eq!(daemon.done(), done);
}

#[test]
fn a_reason_is_one_line_of_some_words() {
    let daemon = Daemon::serving(Memory::with(1));
    let ask_with = |reason: &str| {
        let request = Request::Apply {
            action: Action::Bounce,
            selection: Selection::all(),
            reason: Some(reason.to_owned()),
        };
        let mut client = client(&daemon);
        client.ask(&request, &mut |_| Ok(())).map_err(|error| format!("{error:?}"))
    };
    for (reason, why) in [
        (" ", "is empty"),
        ("a\nBcc: x", "more than one line"),
        ("a\rb", "more than one line"),
        ("a\u{2028}b", "more than one line"),
        ("\u{7}", "control characters"),
        (&*"x".repeat(201), "longer than 200"),
    ] {
        let error = ask_with(reason).unwrap_err();
        assert!(error.contains(why), "{reason:?}: {error}");
    }
    assert_eq!(ask_with("die Liste ist geschlossen – ü").unwrap(), 1);
}

#[test]
fn long_lists_of_ids_go_in_parts_that_the_server_takes() {
    let daemon = Daemon::serving(Memory::with(5000));
    let ids = (1..=5000).map(|n| message(n).id).collect();
    let selection = Selection { ids, ..Selection::default() };
    let counted =
        client(&daemon).ask_each(&selection, |selection| Request::Count { selection }, &mut |_| Ok(()));
    assert_eq!(counted.unwrap(), 5000);
}

#[test]
fn a_request_without_end_ends_the_connection() {
    let daemon = Daemon::serving(Memory::with(1));
    let mut stream = UnixStream::connect(&daemon.settings.control.socket).unwrap();
    let mut answer = Vec::new();
    // The server hangs up behind the longest line it takes; writing on may fail then.
    let _ = stream.write_all(&vec![b'x'; usize::try_from(REQUEST_BYTES_MAX).unwrap() + 1]);
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty());
    assert_eq!(ask(&mut client(&daemon), &Request::Flush).0, 1);
}

#[test]
fn junk_is_answered_and_does_no_harm() {
    let daemon = Daemon::serving(Memory::with(1));
    let mut stream = UnixStream::connect(&daemon.settings.control.socket).unwrap();
    for junk in [&b"\n"[..], b"GET / HTTP/1.1\r\n", b"\xff\0\n", b"{\"op\":\"show\",\"id\":5}\n"] {
        stream.write_all(junk).unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        assert!(line.contains("bad request"), "{line}");
    }
}

#[test]
fn nobody_listens_is_told_apart_from_no() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none");
    assert!(matches!(Client::connect(&path), Err(ClientError::NotRunning)));
    drop(socket::bind(&path, 0o600, None).unwrap());
    assert!(matches!(Client::connect(&path), Err(ClientError::NotRunning)));
}

#[test]
fn a_backup_has_every_message_once_and_what_took_the_place_of_those_that_ended_meanwhile() {
    let memory = Memory::with(4);
    memory.queue.lock().unwrap().insert(QueueId(5), super::fake::damaged(5));
    let daemon = Daemon::serving(memory);
    let (mut client, mut items) = (client(&daemon), Vec::new());
    let count = client.backup(&mut |item| {
        items.push(item);
        Ok(())
    });
    assert_eq!(count.unwrap(), 4);
    let whole = |number: u64| {
        let (id, content) = (QueueId(number), b"Subject: x\r\n\r\nbody\n".to_vec());
        BackupItem::Message(Copied { id, envelope: format!("envelope {id}").into_bytes(), content })
    };
    let damaged = BackupItem::Damaged(QueueId(5), "0000.seg at 8216: record checksum".to_owned());
    // The third has left the queue; the last one came in its place.
    assert_eq!(items, [whole(1), whole(2), whole(4), damaged, whole(1002)]);
    assert_eq!(
        ask(&mut client, &Request::Count { selection: Selection::all() }).0,
        5,
        "the connection goes on"
    );
}

#[test]
fn a_daemon_that_hangs_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("control.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let mut client = Client::connect(&socket).unwrap();
    let waited = client.wait_for_life(std::time::Duration::from_millis(20));
    assert!(
        matches!(&waited, Err(ClientError::Broken(why)) if why.contains("does not answer")),
        "{waited:?}"
    );
}
