//! The client connection against scripted servers, at every split of what the server says.

use bytes::Bytes;
use mail::{
    BodyType, ChunkId, Content, ContentTraits, DeliverBy, DeliverByMode, DeliveryOptions, Disposition,
    Envelope, ForwardPath, Message, Notify, Part, Priority, QueueId, Recipient, ReversePath, SharedMessage,
    UnixMillis,
};
use proptest::prelude::*;
use smtp::client::{ClientSettings, Connection, Event, OutputPiece, Protocol, Transaction};
use std::sync::Arc;

const EHLO: &str = "250-mx\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SIZE 1000000\r\n250 DSN\r\n";

fn settings(protocol: Protocol, depth: usize) -> ClientSettings {
    ClientSettings { protocol, hello: "me.test".into(), depth, pipelining: true, eight_bit_anyway: true }
}

fn message(to: &[&str], content: Content) -> SharedMessage {
    let mut envelope = Envelope::new(ReversePath::parse("a@b.test", false).unwrap());
    envelope.recipients = to.iter().map(|t| Recipient::new(ForwardPath::parse(t, true).unwrap())).collect();
    Arc::new(Message { id: QueueId(1), arrived: UnixMillis(0), origin: "".into(), envelope, content })
}

fn text(body: &str) -> Content {
    Content::from_bytes(body.to_owned())
}

fn to(name: u64, recipients: &[&str], body: &str) -> Transaction {
    Transaction {
        id: name,
        message: message(recipients, text(body)),
        recipients: (0..recipients.len() as u32).collect(),
        deliver_by_seconds: 0,
    }
}

/// Runs a connection: `script` is what the server says after each write of ours, in turn. Gives
/// what we wrote and what came of the transactions, `name index disposition text`.
struct Run {
    writes: Vec<String>,
    settled: Vec<String>,
    events: Vec<String>,
    error: Option<String>,
    connection: Connection,
}

fn run(settings: ClientSettings, script: &[&str], mut transactions: Vec<Transaction>, size: usize) -> Run {
    transactions.reverse();
    let mut run = Run {
        writes: vec![],
        settled: vec![],
        events: vec![],
        error: None,
        connection: Connection::new(settings),
    };
    for said in script {
        for piece in said.as_bytes().chunks(size) {
            if let Err(error) = run.connection.receive(piece) {
                run.error = Some(error.to_string());
                return run;
            }
        }
        loop {
            while let Some(event) = run.connection.next_event() {
                match event {
                    Event::TransactionEnded(name, results) => {
                        run.settled.extend(results.iter().map(|r| {
                            format!("{name} {} {:?} {}", r.index, r.outcome.disposition, r.outcome.text)
                        }));
                    }
                    Event::StartTls => {
                        run.events.push("StartTls".into());
                        run.connection.secured();
                    }
                    other => run.events.push(format!("{other:?}")),
                }
            }
            if !run.connection.can_begin() {
                break;
            }
            let Some(transaction) = transactions.pop() else { break };
            run.connection.begin(transaction);
        }
        if transactions.is_empty() && run.connection.is_idle() {
            run.connection.quit();
        }
        let mut write = Vec::new();
        while let Some(piece) = run.connection.next_piece() {
            match piece {
                OutputPiece::Text(bytes) => write.extend(bytes),
                OutputPiece::Content(bytes) => write.extend_from_slice(&bytes),
                OutputPiece::Load(chunk_id) => {
                    run.connection.loaded(Bytes::from(format!("chunk {}\r\n", chunk_id.0)));
                }
            }
        }
        run.writes.push(String::from_utf8(write).unwrap());
    }
    run
}

/// Runs a script in one piece and at every split, and compares the results.
fn at_every_split(settings: &ClientSettings, script: &[&str], transactions: &[Transaction]) -> Run {
    let whole = run(settings.clone(), script, transactions.to_vec(), usize::MAX);
    for size in [1, 2, 3, 7] {
        let split = run(settings.clone(), script, transactions.to_vec(), size);
        assert_eq!((&split.settled, &split.error), (&whole.settled, &whole.error), "in pieces of {size}");
        assert_eq!(split.writes.concat(), whole.writes.concat(), "in pieces of {size}");
    }
    whole
}

#[test]
fn the_next_message_goes_behind_the_last_ones_content() {
    let ok = "250 2.1.0 a\r\n250 2.1.5 b\r\n354 go\r\n";
    let all = [to(1, &["x@c"], "one\r\n"), to(2, &["y@c"], "two\r\n"), to(3, &["z@c"], "three\r\n")];
    let script = [
        "220 mx\r\n",
        EHLO,
        ok,
        &format!("250 1 done\r\n{ok}"),
        &format!("250 2 done\r\n{ok}"),
        "250 3 done\r\n",
    ];
    let run = at_every_split(&settings(Protocol::Smtp, 2), &script, &all);
    assert_eq!(
        run.writes,
        [
            "EHLO me.test\r\n",
            "MAIL FROM:<a@b.test> SIZE=5\r\nRCPT TO:<x@c>\r\nDATA\r\n",
            "one\r\n.\r\nMAIL FROM:<a@b.test> SIZE=5\r\nRCPT TO:<y@c>\r\nDATA\r\n",
            "two\r\n.\r\nMAIL FROM:<a@b.test> SIZE=7\r\nRCPT TO:<z@c>\r\nDATA\r\n",
            "three\r\n.\r\n",
            "QUIT\r\n",
        ]
    );
    assert_eq!(
        run.settled,
        ["1 0 Delivered 250 1 done", "2 0 Delivered 250 2 done", "3 0 Delivered 250 3 done"]
    );
}

#[test]
fn depth_one_waits_for_each_message() {
    let ok = "250 a\r\n250 b\r\n354 go\r\n";
    let script = ["220 mx\r\n", EHLO, ok, "250 done\r\n", ok, "250 done\r\n"];
    let run = at_every_split(
        &settings(Protocol::Smtp, 1),
        &script,
        &[to(1, &["x@c"], "one\r\n"), to(2, &["y@c"], "two\r\n")],
    );
    assert_eq!(run.writes[2], "one\r\n.\r\n");
    assert_eq!(run.settled.len(), 2);
}

#[test]
fn a_server_without_extensions_is_spoken_to_in_lock_step() {
    let script = [
        "220 mx\r\n",
        "502 what\r\n",
        "250 mx\r\n",
        "250 a\r\n",
        "550 5.1.1 no\r\n",
        "250 c\r\n",
        "354 go\r\n",
        "250 done\r\n",
    ];
    let run = at_every_split(&settings(Protocol::Smtp, 2), &script, &[to(1, &["x@c", "y@c"], ".dot\r\nx")]);
    assert_eq!(
        run.writes,
        [
            "EHLO me.test\r\n",
            "HELO me.test\r\n",
            "MAIL FROM:<a@b.test>\r\n",
            "RCPT TO:<x@c>\r\n",
            "RCPT TO:<y@c>\r\n",
            "DATA\r\n",
            "..dot\r\nx\r\n.\r\n",
            "QUIT\r\n",
        ]
    );
    assert_eq!(run.settled, ["1 0 Failed 550 5.1.1 no (in reply to RCPT TO)", "1 1 Delivered 250 done"]);
}

#[test]
fn without_pipelining_each_command_waits_for_the_reply_to_the_last() {
    let script = [
        "220 mx\r\n",
        "250 mx\r\n",
        "250 a\r\n",
        "250 b\r\n",
        "354 go\r\n",
        "250 1 done\r\n",
        "250 a\r\n",
        "550 5.1.1 no\r\n",
        "250 reset\r\n",
        "250 a\r\n",
    ];
    let all = [to(1, &["x@c"], "one\r\n"), to(2, &["y@c"], "two\r\n"), to(3, &["z@c"], "three\r\n")];
    let run = at_every_split(&settings(Protocol::Smtp, 2), &script, &all);
    assert_eq!(
        run.writes,
        [
            "EHLO me.test\r\n",
            "MAIL FROM:<a@b.test>\r\n",
            "RCPT TO:<x@c>\r\n",
            "DATA\r\n",
            "one\r\n.\r\n",
            "MAIL FROM:<a@b.test>\r\n",
            "RCPT TO:<y@c>\r\n",
            "RSET\r\n",
            "MAIL FROM:<a@b.test>\r\n",
            "RCPT TO:<z@c>\r\n",
        ]
    );
    assert_eq!(run.settled, ["1 0 Delivered 250 1 done", "2 0 Failed 550 5.1.1 no (in reply to RCPT TO)"]);
}

#[test]
fn refused_recipients_and_refused_data_get_their_own_reply() {
    let script = [
        "220 mx\r\n",
        EHLO,
        "250 a\r\n451 4.2.0 later\r\n250 b\r\n451 4.3.0 no data\r\n",
        "250 reset\r\n550 5.7.1 not you\r\n503 x\r\n503 x\r\n",
        "250 a\r\n550 5.1.1 no\r\n554 no recipients\r\n",
        "250 reset\r\n250 a\r\n550 no\r\n354 anyway\r\n",
        "554 nothing\r\n",
    ];
    let all = [
        to(1, &["x@c", "y@c"], "m\r\n"),
        to(2, &["z@c"], "m\r\n"),
        to(3, &["w@c"], "m\r\n"),
        to(4, &["v@c"], "m\r\n"),
    ];
    let run = at_every_split(&settings(Protocol::Smtp, 2), &script, &all);
    assert_eq!(
        run.settled,
        [
            "1 0 Deferred 451 4.2.0 later (in reply to RCPT TO)",
            "1 1 Deferred 451 4.3.0 no data (in reply to DATA)",
            "2 0 Failed 550 5.7.1 not you (in reply to MAIL FROM)",
            "3 0 Failed 550 5.1.1 no (in reply to RCPT TO)",
            "4 0 Failed 550 no (in reply to RCPT TO)",
        ]
    );
    assert!(run.writes[2].starts_with("RSET\r\nMAIL"), "{:?}", run.writes);
    assert!(run.writes[3].starts_with("MAIL"), "MAIL was refused: nothing to reset");
    assert_eq!(run.writes[5], ".\r\n");
}

#[test]
fn of_an_endless_reply_little_is_kept() {
    let long = format!("{}550 no\r\n", format!("550-{}\r\n", "y".repeat(2000)).repeat(198));
    let rcpt = format!("250 a\r\n{long}554 none\r\n");
    let script = ["220 mx\r\n", EHLO, &rcpt];
    let run = run(settings(Protocol::Smtp, 2), &script, vec![to(1, &["x@c"], "m\r\n")], usize::MAX);
    assert!(run.settled[0].starts_with("1 0 Failed 550 yyy"));
    assert!(run.settled[0].ends_with(" ... (in reply to RCPT TO)") && run.settled[0].len() < 1100);
}

#[test]
fn lmtp_answers_for_each_recipient() {
    let lhlo = "250-mx\r\n250 PIPELINING\r\n";
    let script = [
        "220 mx\r\n",
        lhlo,
        "250 a\r\n250 b\r\n550 no\r\n250 c\r\n354 go\r\n",
        "250 x ok\r\n452 4.2.2 full\r\n",
    ];
    let run =
        at_every_split(&settings(Protocol::Lmtp, 2), &script, &[to(1, &["x@c", "y@c", "z@c"], "m\r\n")]);
    assert!(run.writes[0].starts_with("LHLO"));
    assert_eq!(
        run.settled,
        [
            "1 0 Delivered 250 x ok",
            "1 1 Failed 550 no (in reply to RCPT TO)",
            "1 2 Deferred 452 4.2.2 full (in reply to end of DATA)",
        ]
    );
}

#[test]
fn what_a_server_does_not_offer_is_not_asked_of_it() {
    let mut m = (*message(&["ü@c"], text("x\r\n"))).clone();
    m.envelope.smtputf8 = true;
    let utf8 = Transaction { id: 1, message: Arc::new(m), recipients: vec![0], deliver_by_seconds: 0 };
    let binary = Transaction {
        id: 2,
        message: message(&["x@c"], text("a\nb")),
        recipients: vec![0],
        deliver_by_seconds: 0,
    };
    let large = to(3, &["x@c"], &"x".repeat(1_000_001));
    let run = at_every_split(&settings(Protocol::Smtp, 2), &["220 mx\r\n", EHLO], &[utf8, binary, large]);
    let codes: Vec<_> =
        run.settled.iter().map(|s| s.split(' ').take(3).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(codes, ["1 0 Failed", "2 0 Failed", "3 0 Failed"]);
    assert_eq!(run.writes[1], "QUIT\r\n");
}

#[test]
fn an_address_that_cannot_be_said_keeps_no_other_from_its_mail() {
    let mut m = (*message(&["ü@c", "x@c", "y@c", "ä@c"], text("x\r\n"))).clone();
    m.envelope.smtputf8 = true;
    let mixed = |name, content: Content| {
        let message = Arc::new(Message { content, ..m.clone() });
        Transaction { id: name, message, recipients: vec![0, 1, 2, 3], deliver_by_seconds: 0 }
    };
    let settled =
        ["1 0 Failed the next", "1 1 Delivered 250 done", "1 2 Delivered 250 done", "1 3 Failed the next"];
    let begin = |run: &Run| -> Vec<String> {
        run.settled.iter().map(|s| s.split(' ').take(5).collect::<Vec<_>>().join(" ")).collect()
    };
    let all = "MAIL FROM:<a@b.test>\r\nRCPT TO:<x@c>\r\nRCPT TO:<y@c>\r\n";
    let script = ["220 mx\r\n", EHLO, "250 a\r\n250 b\r\n250 c\r\n354 go\r\n", "250 done\r\n"];
    let run = at_every_split(&settings(Protocol::Smtp, 2), &script, &[mixed(1, text("x\r\n"))]);
    assert_eq!((begin(&run), run.error), (settled.map(String::from).to_vec(), None));
    assert_eq!(run.writes[1].replace(" SIZE=3", ""), format!("{all}DATA\r\n"));
    let script =
        ["220 mx\r\n", "250 mx\r\n", "250 a\r\n", "250 b\r\n", "250 c\r\n", "354 go\r\n", "250 done\r\n"];
    let run = at_every_split(&settings(Protocol::Smtp, 2), &script, &[mixed(1, text("x\r\n"))]);
    assert_eq!((begin(&run), run.error), (settled.map(String::from).to_vec(), None));
    assert_eq!(run.writes[1..4].concat(), all);
    let bdat = "250-mx\r\n250-PIPELINING\r\n250-CHUNKING\r\n250 BINARYMIME\r\n";
    let script = ["220 mx\r\n", bdat, "250 a\r\n250 b\r\n250 c\r\n", "250 done\r\n"];
    let run = at_every_split(&settings(Protocol::Smtp, 2), &script, &[mixed(1, text("a\nb"))]);
    assert_eq!((begin(&run), run.error), (settled.map(String::from).to_vec(), None));
    assert_eq!(run.writes[2], "BDAT 3 LAST\r\na\nb");
    // MAIL that is refused is refused for those that could be named, too, each reply in its turn.
    let script = ["220 mx\r\n", bdat, "450 no\r\n503 b\r\n503 c\r\n", "221 bye\r\n"];
    let run = at_every_split(&settings(Protocol::Smtp, 2), &script, &[mixed(1, text("a\nb"))]);
    assert_eq!((run.settled.len(), &run.settled[1][..16], run.error), (4, "1 1 Deferred 450", None));
}

#[test]
fn binary_content_goes_by_bdat() {
    let ehlo = "250-mx\r\n250-PIPELINING\r\n250-CHUNKING\r\n250-BINARYMIME\r\n250 SMTPUTF8\r\n";
    let mut m = (*message(&["x@c"], text("a\nb.\n"))).clone();
    m.envelope.body = BodyType::Binary;
    let t = Transaction { id: 1, message: Arc::new(m), recipients: vec![0], deliver_by_seconds: 0 };
    let run = at_every_split(
        &settings(Protocol::Smtp, 2),
        &["220 mx\r\n", ehlo, "250 a\r\n250 b\r\n", "250 done\r\n"],
        &[t],
    );
    assert_eq!(run.writes[1], "MAIL FROM:<a@b.test> BODY=BINARYMIME\r\nRCPT TO:<x@c>\r\n");
    assert_eq!(run.writes[2], "BDAT 5 LAST\r\na\nb.\n");
    assert_eq!(run.settled, ["1 0 Delivered 250 done"]);
}

#[test]
fn content_that_is_converted_goes_as_text_of_7_bits() {
    let head = "Content-Type: text/plain; charset=utf-8\r\nMIME-Version: 1.0\r\n";
    let (first, second) = (format!("{head}\r\nenough ASCII \u{e4}\r"), "\n.dot");
    let stored = Part::Stored { chunk_id: ChunkId(3), length_bytes: 6 };
    let parts = [Part::Memory(first.clone().into()), stored, Part::Memory(second.into())];
    let mut scan = mail::seven_bit::Scan::default();
    [first.as_bytes(), b"chunk 3\r\n", second.as_bytes()].into_iter().for_each(|piece| scan.push(piece));
    let plan = Arc::new(scan.finish().unwrap());
    let traits =
        ContentTraits { is_8bit: true, is_binary: true, lacks_final_crlf: true, ..ContentTraits::default() };
    for ehlo in [
        "250-mx\r\n250-SIZE 10000\r\n250 PIPELINING\r\n",
        "250-mx\r\n250-PIPELINING\r\n250-CHUNKING\r\n250 8BITMIME\r\n",
    ] {
        let mut m = (*message(&["x@c"], Content::new(traits, parts.clone()))).clone();
        m.envelope.body = BodyType::Binary;
        let mut c = Connection::new(settings(Protocol::Smtp, 2));
        c.receive(format!("220 mx\r\n{ehlo}").as_bytes()).unwrap();
        assert!(!c.capabilities().takes(traits));
        c.begin_converted(
            Transaction { id: 1, message: Arc::new(m), recipients: vec![0], deliver_by_seconds: 0 },
            Some(plan.clone()),
        );
        let mut written = Vec::new();
        for said in ["250 a\r\n250 b\r\n354 go\r\n", ""] {
            while let Some(piece) = c.next_piece() {
                match piece {
                    OutputPiece::Text(bytes) => written.extend(bytes),
                    OutputPiece::Content(bytes) => written.extend_from_slice(&bytes),
                    OutputPiece::Load(chunk_id) => c.loaded(Bytes::from(format!("chunk {}\r\n", chunk_id.0))),
                }
            }
            c.receive(said.as_bytes()).unwrap();
        }
        let want = format!(
            "EHLO me.test\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<x@c>\r\nDATA\r\n{head}\
             Content-Transfer-Encoding: quoted-printable\r\n\r\nenough ASCII =C3=A4=0Dchunk 3\r\n=0A.dot=\r\n.\r\n"
        );
        assert_eq!(String::from_utf8(written).unwrap(), want);
    }
}

#[test]
fn dsn_parameters_go_where_they_are_understood() {
    let mut m = (*message(&["x@c"], text("m\r\n"))).clone();
    m.envelope.envid = Some("a b".into());
    m.envelope.ret = Some(mail::Ret::Headers);
    m.envelope.recipients[0].notify = Notify::NEVER;
    m.envelope.recipients[0].orcpt = Some("rfc822;x+y@c".into());
    let t = Transaction { id: 1, message: Arc::new(m), recipients: vec![0], deliver_by_seconds: 0 };
    let run = at_every_split(&settings(Protocol::Smtp, 2), &["220 mx\r\n", EHLO], &[t]);
    assert_eq!(
        run.writes[1],
        "MAIL FROM:<a@b.test> SIZE=3 RET=HDRS ENVID=a+20b\r\nRCPT TO:<x@c> NOTIFY=NEVER ORCPT=rfc822;x+2By@c\r\nDATA\r\n"
    );
}

fn scheduled(mode: DeliverByMode, seconds: i32) -> Transaction {
    let mut m = (*message(&["x@c"], text("m\r\n"))).clone();
    let deliver_by = Some(DeliverBy { deadline: UnixMillis(1), mode, trace: seconds > 100 });
    let (release, priority) = (Some(UnixMillis(1)), Priority::new(-3));
    m.envelope.options =
        DeliveryOptions { deliver_by, release, priority, ..DeliveryOptions::default() }.boxed();
    Transaction { id: 1, message: Arc::new(m), recipients: vec![0], deliver_by_seconds: seconds }
}

#[test]
fn deadlines_and_priorities_go_where_they_are_understood() {
    let offers =
        "250-mx\r\n250-PIPELINING\r\n250-DELIVERBY 60\r\n250-FUTURERELEASE 9 x\r\n250 MT-PRIORITY MIXER\r\n";
    for (mode, seconds, by) in [
        (DeliverByMode::Return, 61, "61;R"),
        (DeliverByMode::Return, 101, "101;RT"),
        (DeliverByMode::Notify, -5, "-5;N"),
    ] {
        let script = ["220 mx\r\n", offers];
        let run = at_every_split(&settings(Protocol::Smtp, 2), &script, &[scheduled(mode, seconds)]);
        let mail = format!("MAIL FROM:<a@b.test> BY={by} MT-PRIORITY=-3\r\nRCPT TO:<x@c>\r\nDATA\r\n");
        assert_eq!(run.writes[1], mail);
    }
    let run = at_every_split(
        &settings(Protocol::Smtp, 2),
        &["220 mx\r\n", EHLO],
        &[scheduled(DeliverByMode::Notify, 5)],
    );
    assert_eq!(run.writes[1], "MAIL FROM:<a@b.test> SIZE=3\r\nRCPT TO:<x@c>\r\nDATA\r\n");
}

#[test]
fn a_deadline_with_return_does_not_go_where_it_is_not_kept() {
    for (ehlo, seconds, status) in [
        (EHLO, 500, "5.3.3"),
        ("250-mx\r\n250 DELIVERBY 600\r\n", 599, "5.4.7"),
        ("250-mx\r\n250 DELIVERBY\r\n", 0, "5.4.7"),
    ] {
        let mut c = Connection::new(settings(Protocol::Smtp, 2));
        c.receive(format!("220 mx\r\n{ehlo}").as_bytes()).unwrap();
        assert_eq!(c.next_event(), Some(Event::Hello));
        c.begin(scheduled(DeliverByMode::Return, seconds));
        let Some(Event::TransactionEnded(1, results)) = c.next_event() else { panic!("{ehlo}") };
        let outcome = &results[0].outcome;
        assert_eq!((outcome.disposition, outcome.status.to_string().as_str()), (Disposition::Failed, status));
    }
    // LMTP delivers.
    let script = ["220 mx\r\n", "250 mx\r\n", "250 a\r\n"];
    let run = at_every_split(&settings(Protocol::Lmtp, 1), &script, &[scheduled(DeliverByMode::Return, 5)]);
    assert_eq!(run.writes[1], "MAIL FROM:<a@b.test>\r\n");
}

#[test]
fn stored_parts_are_loaded_in_order_and_stuffed_across_their_borders() {
    let traits = ContentTraits { has_dot_line: true, ..ContentTraits::default() };
    let parts = [
        Part::Memory(".a\r\n".into()),
        Part::Stored { chunk_id: ChunkId(7), length_bytes: 9 },
        Part::Memory(".b\r\n".into()),
    ];
    let t = Transaction {
        id: 1,
        message: message(&["x@c"], Content::new(traits, parts)),
        recipients: vec![0],
        deliver_by_seconds: 0,
    };
    let run = at_every_split(
        &settings(Protocol::Smtp, 2),
        &["220 mx\r\n", EHLO, "250 a\r\n250 b\r\n354 go\r\n"],
        &[t],
    );
    assert_eq!(run.writes[2], "..a\r\nchunk 7\r\n..b\r\n.\r\n");
}

#[test]
fn tls_forgets_what_was_said_before_and_refuses_injected_replies() {
    let mut c = Connection::new(settings(Protocol::Smtp, 2));
    c.receive(b"220 mx\r\n250-mx\r\n250-PIPELINING\r\n250 STARTTLS\r\n").unwrap();
    assert_eq!((c.next_event(), c.capabilities().starttls), (Some(Event::Hello), true));
    c.start_tls();
    assert!(!c.can_begin());
    c.receive(b"220 go\r\n").unwrap();
    assert_eq!(c.next_event(), Some(Event::StartTls));
    c.secured();
    assert!(!c.capabilities().pipelining && !c.can_begin());
    c.receive(b"250 mx\r\n").unwrap();
    assert!(c.can_begin());

    let mut c = Connection::new(settings(Protocol::Smtp, 2));
    c.receive(b"220 mx\r\n250-mx\r\n250 STARTTLS\r\n").unwrap();
    c.start_tls();
    assert!(c.receive(b"220 go\r\n250-evil\r\n250 AUTH LOGIN\r\n").is_err());
}

#[test]
fn a_reply_to_content_that_was_not_sent_is_a_violation() {
    for protocol in [Protocol::Smtp, Protocol::Lmtp] {
        let script = ["220 mx\r\n", EHLO, "250 a\r\n250 b\r\n354 go\r\n250 taken\r\n"];
        let mut run = run(settings(protocol, 2), &script, vec![to(1, &["x@c"], "one\r\n")], usize::MAX);
        assert_eq!(run.error.as_deref(), Some("the server sent a reply that does not fit the command"));
        assert!(run.settled.is_empty() && run.connection.lost()[0].open == [0], "{:?}", run.settled);
    }
    // But it may be refused unseen.
    let script = ["220 mx\r\n", EHLO, "250 a\r\n250 b\r\n354 go\r\n552 no room\r\n"];
    let run = run(settings(Protocol::Smtp, 2), &script, vec![to(1, &["x@c"], "one\r\n")], usize::MAX);
    assert_eq!(run.settled, ["1 0 Failed 552 no room (in reply to end of DATA)"]);
}

#[test]
fn a_lost_connection_tells_how_far_each_message_had_come() {
    let ok = "250 a\r\n250 b\r\n550 no\r\n354 go\r\n";
    let mut run = run(
        settings(Protocol::Smtp, 2),
        &["220 mx\r\n", EHLO, ok, "421 4.3.2 bye\r\n"],
        vec![to(1, &["x@c", "y@c"], "m\r\n"), to(2, &["z@c"], "m\r\n")],
        usize::MAX,
    );
    assert!(run.events.iter().any(|event| event.starts_with("Closing")), "{:?}", run.events);
    assert!(run.settled[0].starts_with("1 0 Deferred 421"), "{:?}", run.settled);
    assert!(run.connection.next_event().is_none());
    let lost = run.connection.lost();
    assert_eq!((lost.len(), lost[0].id, lost[0].content_sent, &lost[0].open[..]), (1, 2, false, &[0][..]));
}

#[test]
fn idle_servers_may_only_say_that_they_close() {
    let mut c = Connection::new(settings(Protocol::Smtp, 2));
    c.receive(b"220 mx\r\n250 mx\r\n").unwrap();
    c.next_event();
    c.receive(b"421 bye\r\n").unwrap();
    let closing = Event::Closing(mail::Reply::new(421, None, "bye"));
    assert_eq!((c.next_event(), c.can_begin()), (Some(closing), false));
    let mut c = Connection::new(settings(Protocol::Smtp, 2));
    c.receive(b"220 mx\r\n250 mx\r\n").unwrap();
    assert!(c.receive(b"250 hello?\r\n").is_err());
}

proptest! {
    #[test]
    fn whatever_a_server_says_every_recipient_has_one_end(
        said in proptest::collection::vec("(220 |250 |250-|354 |421 |450 |550 |x)(PIPELINING|a|)(\r\n|\r\n\r\n|)", 0..30),
        protocol in prop_oneof![Just(Protocol::Smtp), Just(Protocol::Lmtp)],
    ) {
        let script: Vec<&str> = said.iter().map(String::as_str).collect();
        let all: Vec<_> = (0..5).map(|n| to(n, &["x@c", "y@c"], "m\r\n")).collect();
        let mut run = run(settings(protocol, 2), &script, all, usize::MAX);
        let lost = run.connection.lost();
        for name in 0..5u64 {
            for index in 0..2u32 {
                let prefix = format!("{name} {index} ");
                let settled = run.settled.iter().filter(|s| s.starts_with(&prefix)).count();
                let lost: usize = lost.iter().filter(|l| l.id == name)
                    .map(|l| l.open.iter().filter(|i| **i == index).count() + l.refused.iter().filter(|r| r.index == index).count()).sum();
                prop_assert!(settled + lost <= 1, "{prefix}: {:?}", run.settled);
            }
        }
    }
}

/// Returns the output for a message whose recipients have this return path, to a server that offers all it needs.
fn with_return_path(path: &str, is_list: bool) -> Vec<String> {
    let mut message = (*message(&["c@d.test"], text("Subject: x\r\n\r\n"))).clone();
    message.envelope.envid = Some("e1".into());
    message.envelope.ret = Some(mail::Ret::Headers);
    let path = ReversePath::parse(path, true).unwrap();
    message.envelope.recipients[0].set_return_path(mail::ReturnPath { path, is_list });
    let transaction =
        Transaction { id: 1, message: Arc::new(message), recipients: vec![0], deliver_by_seconds: 0 };
    let ehlo = "250-mx\r\n250-PIPELINING\r\n250-SMTPUTF8\r\n250-8BITMIME\r\n250 DSN\r\n";
    run(settings(Protocol::Smtp, 1), &["220 mx\r\n", ehlo], vec![transaction], 100).writes
}

#[test]
fn copies_leave_with_the_reverse_path_of_their_recipients() {
    let written = |path: &str, is_list: bool| with_return_path(path, is_list).concat();
    let verp = written("news+c=d.test@b.test", false);
    assert!(verp.contains("MAIL FROM:<news+c=d.test@b.test> RET=HDRS ENVID=e1\r\n"), "{verp}");
    let list = written("owner-list@b.test", true);
    assert!(list.contains("MAIL FROM:<owner-list@b.test>\r\n"), "{list}");
    let utf8 = written("owner-bücher@b.test", true);
    assert!(utf8.contains("MAIL FROM:<owner-bücher@b.test> SMTPUTF8\r\n"), "{utf8}");
}
