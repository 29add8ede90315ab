use super::*;
use mail::{Enhanced, Notify};

fn original(notify: Notify) -> Message {
    let mut envelope = Envelope::new(ReversePath::parse("jane@a.test", false).unwrap());
    envelope.envid = Some("QQ314159".into());
    for (name, notify) in [("one", notify), ("two", Notify::NEVER), ("three", notify)] {
        let mut recipient = Recipient::new(ForwardPath::parse(&format!("{name}@b.test"), false).unwrap());
        recipient.notify = notify;
        recipient.orcpt = Some(format!("rfc822;{name}@orig.test").into());
        envelope.recipients.push(recipient);
    }
    let content = Content::from_bytes("Subject: hello\r\nMessage-Id: <1@a.test>\r\n\r\nbody\r\n".to_owned());
    Message { id: QueueId(7), arrived: UnixMillis(1_795_242_354_048), origin: "".into(), envelope, content }
}

fn facts(content: &[u8]) -> Facts<'_> {
    Facts {
        reporting_mta: "mx.here.test",
        relay: "mx.b.test[192.0.2.1]:25",
        now: UnixMillis(1_795_242_355_000),
        gives_up: UnixMillis(1_795_642_355_000),
        content,
    }
}

fn bounce(kind: Kind, original: &Message) -> Option<(Message, String)> {
    let content = original.content.in_memory().unwrap();
    let facts = facts(&content);
    let mut outcome = Outcome::failed(Enhanced(5, 1, 1), "550 5.1.1 no such\x1buser");
    outcome.from_remote = true;
    let affected: Vec<_> = (0..3).map(|index| (index, outcome.clone())).collect();
    let report = compose(kind, original, &affected, &facts, QueueId(9))?;
    let text = String::from_utf8(report.content.in_memory().unwrap().to_vec()).unwrap();
    Some((report, text))
}

#[test]
fn a_failure_names_each_recipient_who_wanted_to_know() {
    let (report, text) = bounce(Kind::Failed, &original(Notify::default())).unwrap();
    assert!(report.envelope.reverse_path.is_null());
    assert_eq!(report.envelope.recipients[0].path.as_str(), "jane@a.test");
    for line in [
        "Content-Type: multipart/report; report-type=delivery-status;",
        "Reporting-MTA: dns; mx.here.test",
        "Original-Envelope-Id: QQ314159",
        "Original-Recipient: rfc822;one@orig.test",
        "Final-Recipient: rfc822; three@b.test",
        "Action: failed",
        "Status: 5.1.1",
        "Remote-MTA: dns; mx.b.test",
        "Diagnostic-Code: smtp; 550 5.1.1 no such?user",
        "References: <1@a.test>",
        "Auto-Submitted: auto-replied",
        "body",
    ] {
        assert!(text.lines().any(|l| l.trim_end() == line), "{line}\n{text}");
    }
    assert!(!text.contains("two@b.test") && !text.contains('\x1b'));
    assert!(text.lines().all(|line| line.len() < 998));
    assert_eq!(text.matches('\n').count(), text.matches("\r\n").count());
}

#[test]
fn nobody_is_told_who_did_not_ask_or_cannot_be() {
    let mut message = original(Notify::NEVER);
    assert!(bounce(Kind::Failed, &message).is_none());
    message = original(Notify::default());
    assert!(bounce(Kind::Delivered, &message).is_none(), "success is reported only on request");
    message.envelope.reverse_path = ReversePath::Null;
    assert!(bounce(Kind::Failed, &message).is_none(), "a report on a report would never end");
}

#[test]
fn only_the_header_goes_back_when_asked_or_when_there_is_too_much() {
    let mut message = original(Notify::default());
    message.envelope.ret = Some(Ret::Headers);
    let (_, text) = bounce(Kind::Failed, &message).unwrap();
    assert!(
        text.contains("text/rfc822-headers") && text.contains("Subject: hello") && !text.contains("body")
    );
    let mut message = original(Notify::default());
    message.content = Content::from_bytes(format!("Subject: x\r\n\r\n{}", "y".repeat(RETURNED_MAX_BYTES)));
    let (report, _) = bounce(Kind::Failed, &message).unwrap();
    assert!(report.content.size_bytes() < 8192);
}

#[test]
fn what_is_returned_of_binary_content_can_go_to_any_server() {
    let mut message = original(Notify::default());
    for header in ["Subject: a\nX-Odd: b\0c\rd\n\nbody\n", "Subject: a\r\nX-Odd: b\0c\rd\r\n\r\nbody\n\0"] {
        message.content = Content::from_bytes(header.to_owned());
        let (report, text) = bounce(Kind::Failed, &message).unwrap();
        assert!(!report.content.facts.is_binary, "{text:?}");
        assert!(text.contains("\r\n\r\nSubject: a\r\nX-Odd: b c d\r\n\r\n--"), "{text:?}");
    }
}

#[test]
fn a_report_on_a_thousand_recipients_is_bounded_whatever_was_said_of_them() {
    let mut message = original(Notify::default());
    message.envelope.recipients = vec![message.envelope.recipients[0].clone(); 1000];
    let (id, facts) = (QueueId(9), facts(&[]));
    let outcome = Outcome::failed(Enhanced(5, 1, 1), "é".repeat(200_000));
    let affected: Vec<_> = (0..1000).map(|index| (index, outcome.clone())).collect();
    let report = compose(Kind::Failed, &message, &affected, &facts, id).unwrap();
    assert!(report.content.size_bytes() < 1024 * 1024, "{}", report.content.size_bytes());
    let report = compose(Kind::Failed, &message, &affected[..1], &facts, id).unwrap();
    assert!(report.content.size_bytes() < 8192, "{}", report.content.size_bytes());
}

#[test]
fn a_delay_says_how_long_it_is_tried() {
    let (_, text) = bounce(Kind::Delayed, &original(Notify::default())).unwrap();
    assert!(
        text.contains("Will-Retry-Until: ") && text.contains("Action: delayed") && !text.contains("body")
    );
}

#[test]
fn what_contains_8_bits_says_so_at_each_level_and_nothing_else_does() {
    let encoding = "Content-Transfer-Encoding: 8bit\r\n";
    let (report, text) = bounce(Kind::Failed, &original(Notify::default())).unwrap();
    assert!(!text.contains(encoding) && report.envelope.body == mail::BodyType::SevenBit, "{text}");
    let mut message = original(Notify::default());
    message.content = Content::from_bytes("Subject: hello\r\n\r\nGrüße\r\n".to_owned());
    let (report, text) = bounce(Kind::Failed, &message).unwrap();
    assert_eq!(report.envelope.body, mail::BodyType::EightBit);
    let heads: Vec<&str> = text.split("\r\n\r\n").filter(|head| head.contains(encoding.trim())).collect();
    assert_eq!(heads.len(), 2, "{text}");
    assert!(heads[0].contains("multipart/report") && heads[1].contains("message/rfc822"), "{text}");
}

#[test]
fn an_original_recipient_in_utf8_stays_ascii_in_a_report_that_any_server_takes() {
    let mut message = original(Notify::default());
    message.envelope.recipients[0].orcpt = Some("utf-8;jörg@b.test".into());
    let (report, text) = bounce(Kind::Failed, &message).unwrap();
    assert!(text.is_ascii() && !report.envelope.smtputf8, "{text}");
    assert!(text.contains("Original-Recipient: utf-8;j\\x{F6}rg@b.test\r\n"), "{text}");
}

#[test]
fn utf8_addresses_make_the_report_a_global_one() {
    let mut message = original(Notify::default());
    message.envelope.reverse_path = ReversePath::parse("jörg@a.test", true).unwrap();
    message.envelope.recipients[0].path = ForwardPath::parse("zoë@b.test", true).unwrap();
    let (report, text) = bounce(Kind::Failed, &message).unwrap();
    assert!(report.envelope.smtputf8 && text.contains("message/global-delivery-status"));
    assert!(text.contains("Final-Recipient: utf-8; zoë@b.test"));
}
