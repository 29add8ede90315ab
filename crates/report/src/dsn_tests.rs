use super::*;
use crate::texts::Language;
use mail::{Enhanced, Expansion, Notify, Origin, Ret, ReturnPath, ReversePath, seven_bit::Scan};
use std::sync::LazyLock;

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

/// An attempt at this server.
fn by(relay: &str) -> Attempt {
    Attempt { relay: relay.into(), ..Attempt::default() }
}

fn context(content: &[u8]) -> DsnContext<'_> {
    static FIXED: LazyLock<(Mailbox, Texts, Attempt)> = LazyLock::new(|| {
        let postmaster = Mailbox::parse("postmaster@mx.here.test", false).unwrap();
        (postmaster, Texts::default(), by("mx.b.test[192.0.2.1]:25"))
    });
    DsnContext {
        reporting_mta: "mx.here.test",
        postmaster: &FIXED.0,
        texts: &FIXED.1,
        attempt: &FIXED.2,
        earlier: &[],
        now: UnixMillis(1_795_242_355_000),
        gives_up: UnixMillis(1_795_642_355_000),
        content,
    }
}

fn bounce(kind: DsnKind, original: &Message) -> Option<(Message, String)> {
    let content = original.content.in_memory().unwrap();
    let context = context(&content);
    let mut outcome = Outcome::failed(Enhanced(5, 1, 1), "550 5.1.1 no such\x1buser");
    outcome.from_remote = true;
    let affected: Vec<_> = (0..3).map(|index| (index, outcome.clone())).collect();
    let report = compose(kind, original, &affected, &context, QueueId(9))?;
    let text = String::from_utf8(report.content.in_memory().unwrap().to_vec()).unwrap();
    Some((report, text))
}

#[test]
fn a_report_on_success_names_no_path_of_this_machine() {
    let notify = Notify { success: true, failure: false, delay: false, explicit: true };
    let message = original(notify);
    let content = message.content.in_memory().unwrap();
    for (said, told) in [
        ("delivered to mailbox /var/mail/one", "delivered to mailbox"),
        ("delivered to the program /usr/bin/x", "delivered to the program"),
    ] {
        let affected = [(0, Outcome::delivered(Enhanced(2, 0, 0), said))];
        let report =
            compose(DsnKind::Delivered, &message, &affected, &context(&content), QueueId(9)).unwrap();
        let text = String::from_utf8(report.content.in_memory().unwrap().to_vec()).unwrap();
        assert!(text.contains(told) && !text.contains("/var/mail") && !text.contains("/usr/bin"), "{text}");
    }
}

#[test]
fn a_failure_names_each_recipient_with_notify_failure() {
    let (report, text) = bounce(DsnKind::Failed, &original(Notify::default())).unwrap();
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
fn no_report_is_made_for_a_null_sender_or_without_notify() {
    let mut message = original(Notify::NEVER);
    assert!(bounce(DsnKind::Failed, &message).is_none());
    message = original(Notify::default());
    assert!(bounce(DsnKind::Delivered, &message).is_none(), "success is reported only on request");
    message.envelope.reverse_path = ReversePath::Null;
    assert!(bounce(DsnKind::Failed, &message).is_none(), "a report on a report would never end");
}

#[test]
fn only_the_header_goes_back_when_asked_or_when_there_is_too_much() {
    let mut message = original(Notify::default());
    message.envelope.ret = Some(Ret::Headers);
    let (_, text) = bounce(DsnKind::Failed, &message).unwrap();
    assert!(
        text.contains("text/rfc822-headers") && text.contains("Subject: hello") && !text.contains("body")
    );
    let mut message = original(Notify::default());
    message.content = Content::from_bytes(format!("Subject: x\r\n\r\n{}", "y".repeat(RETURNED_MAX_BYTES)));
    let (report, _) = bounce(DsnKind::Failed, &message).unwrap();
    assert!(report.content.size_bytes() < 8192);
}

#[test]
fn the_content_of_a_message_that_requires_tls_stays_here() {
    let mut message = original(Notify::default());
    message.envelope.ret = Some(Ret::Full);
    let options = mail::DeliveryOptions { requiretls: true, ..mail::DeliveryOptions::default() };
    message.envelope.options = options.boxed();
    let (_, text) = bounce(DsnKind::Failed, &message).unwrap();
    assert!(text.contains("text/rfc822-headers") && text.contains("Subject: hello"), "{text}");
    assert!(!text.contains("body"), "{text}");
}

#[test]
fn a_notification_about_a_deadline_says_when_it_was_and_what_to_do() {
    let text = |kind, mode, deadline_ms, cause| {
        let mut message = original(Notify { delay: true, ..Notify::default() });
        let deliver_by = Some(mail::DeliverBy { deadline: UnixMillis(deadline_ms), mode, trace: false });
        message.envelope.options = mail::DeliveryOptions { deliver_by, ..Default::default() }.boxed();
        let content = message.content.in_memory().unwrap();
        let languages = ["en", "de"].map(|code| Language::embedded(code).unwrap());
        let texts = Texts::new(languages.into());
        let context = DsnContext { texts: &texts, ..context(&content) };
        let outcome = Outcome::failed(Enhanced(5, 4, 7), "the deadline of the sender (DELIVERBY) is over");
        let report = compose(kind, &message, &[(0, outcome.because(cause))], &context, QueueId(9)).unwrap();
        let text = String::from_utf8(report.content.in_memory().unwrap().to_vec()).unwrap();
        text.split("message/delivery-status\r\n").next().unwrap().replace("\r\n", " ")
    };
    use mail::{
        Cause,
        DeliverByMode::{Notify as Tell, Return},
    };
    let (past, future) = (1_795_242_354_500, 1_795_242_400_000);
    let date = UnixMillis(past).rfc5322();
    let failed = text(DsnKind::Failed, Return, past, Cause::Expired);
    for words in [
        format!("Your message asked for delivery by {date} and not later (DELIVERBY). That time has passed"),
        "send it again without such a time or with a later one".to_owned(),
        format!("Ihre Nachricht sollte bis {date} zugestellt werden und nicht später"),
    ] {
        assert!(failed.contains(&words), "{words}: {failed}");
    }
    assert_eq!(text(DsnKind::Failed, Return, past, Cause::Local), failed, "also after a restart");
    let delayed = text(DsnKind::Delayed, Tell, past, Cause::Expired);
    assert!(delayed.contains(&format!(
        "asked for delivery by {date} (DELIVERBY). That time has passed. This server keeps"
    )));
    let relayed = text(DsnKind::DeadlineRelayed, Tell, future, Cause::Expired);
    let date = UnixMillis(future).rfc5322();
    assert!(relayed.contains(&format!("asked for delivery by {date}. It was passed on")), "{relayed}");
    // Notifications for another reason say nothing of it.
    for other in [
        text(DsnKind::Failed, Return, future, Cause::Expired),
        text(DsnKind::Failed, Return, past, Cause::Returned),
        text(DsnKind::Failed, Tell, past, Cause::Expired),
        text(DsnKind::Delayed, Tell, future, Cause::Expired),
    ] {
        assert!(!other.contains("asked for delivery by") && !other.contains("DELIVERBY). That"), "{other}");
    }
}

#[test]
fn what_is_returned_of_binary_content_can_go_to_any_server() {
    let mut message = original(Notify::default());
    for header in ["Subject: a\nX-Odd: b\0c\rd\n\nbody\n", "Subject: a\r\nX-Odd: b\0c\rd\r\n\r\nbody\n\0"] {
        message.content = Content::from_bytes(header.to_owned());
        let (report, text) = bounce(DsnKind::Failed, &message).unwrap();
        assert!(!report.content.traits.is_binary, "{text:?}");
        assert!(text.contains("\r\n\r\nSubject: a\r\nX-Odd: b c d\r\n\r\n--"), "{text:?}");
    }
}

#[test]
fn a_report_on_a_thousand_recipients_is_bounded_whatever_was_said_of_them() {
    let mut message = original(Notify::default());
    message.envelope.recipients = vec![message.envelope.recipients[0].clone(); 1000];
    let (id, context) = (QueueId(9), context(&[]));
    let outcome = Outcome::failed(Enhanced(5, 1, 1), "é".repeat(200_000));
    let affected: Vec<_> = (0..1000).map(|index| (index, outcome.clone())).collect();
    let report = compose(DsnKind::Failed, &message, &affected, &context, id).unwrap();
    assert!(report.content.size_bytes() < 1024 * 1024, "{}", report.content.size_bytes());
    let report = compose(DsnKind::Failed, &message, &affected[..1], &context, id).unwrap();
    assert!(report.content.size_bytes() < 8192, "{}", report.content.size_bytes());
}

#[test]
fn a_delay_says_how_long_it_is_tried() {
    let (_, text) = bounce(DsnKind::Delayed, &original(Notify::default())).unwrap();
    assert!(
        text.contains("Will-Retry-Until: ") && text.contains("Action: delayed") && !text.contains("body")
    );
}

#[test]
fn what_contains_8_bits_says_so_at_each_level_and_nothing_else_does() {
    let encoding = "Content-Transfer-Encoding: 8bit\r\n";
    let (report, text) = bounce(DsnKind::Failed, &original(Notify::default())).unwrap();
    assert!(!text.contains(encoding) && report.envelope.body == mail::BodyType::SevenBit, "{text}");
    let mut message = original(Notify::default());
    message.content = Content::from_bytes("Subject: hello\r\n\r\nGrüße\r\n".to_owned());
    let (report, text) = bounce(DsnKind::Failed, &message).unwrap();
    assert_eq!(report.envelope.body, mail::BodyType::EightBit);
    let heads: Vec<&str> = text.split("\r\n\r\n").filter(|head| head.contains(encoding.trim())).collect();
    assert_eq!(heads.len(), 2, "{text}");
    assert!(heads[0].contains("multipart/report") && heads[1].contains("message/rfc822"), "{text}");
}

#[test]
fn an_original_recipient_in_utf8_stays_ascii_in_a_report_that_any_server_takes() {
    let mut message = original(Notify::default());
    message.envelope.recipients[0].orcpt = Some("utf-8;jörg@b.test".into());
    let (report, text) = bounce(DsnKind::Failed, &message).unwrap();
    let (_, status) = text.split_once("message/delivery-status").unwrap();
    assert!(status.is_ascii() && !report.envelope.smtputf8, "{text}");
    assert!(text.contains("    You wrote to: jörg@b.test\r\n"), "{text}");
    assert!(in_seven_bits(&report).contains("You wrote to: j=C3=B6rg@b.test\r\n"));
    assert!(text.contains("Original-Recipient: utf-8;j\\x{F6}rg@b.test\r\n"), "{text}");
}

#[test]
fn utf8_addresses_make_the_report_a_global_one() {
    let mut message = original(Notify::default());
    message.envelope.reverse_path = ReversePath::parse("jörg@a.test", true).unwrap();
    message.envelope.recipients[0].path = ForwardPath::parse("zoë@b.test", true).unwrap();
    let (report, text) = bounce(DsnKind::Failed, &message).unwrap();
    assert!(report.envelope.smtputf8 && text.contains("message/global-delivery-status"));
    assert!(text.contains("Final-Recipient: utf-8; zoë@b.test"));
}

/// The report on the first recipient, of which a relay said this.
fn report_on(message: &Message, relay: &str, said: &str) -> (Message, String) {
    let content = message.content.in_memory().unwrap();
    let attempt = by(relay);
    let context = DsnContext { attempt: &attempt, ..context(&content) };
    let mut outcome = Outcome::failed(Enhanced(5, 1, 1), said);
    outcome.from_remote = true;
    let report = compose(DsnKind::Failed, message, &[(0, outcome)], &context, QueueId(9)).unwrap();
    let text = String::from_utf8_lossy(&report.content.in_memory().unwrap()).into_owned();
    (report, text)
}

#[test]
fn a_remote_host_is_named_by_its_name_or_its_address_literal() {
    for (relay, field) in [
        ("mx.b.test[192.0.2.1]:25", Some("dns; mx.b.test")),
        ("192.0.2.1[192.0.2.1]:25", Some("dns; [192.0.2.1]")),
        ("2001:db8::1[2001:db8::1]:25", Some("dns; [IPv6:2001:db8::1]")),
        ("unix:/run/lmtp", None),
        ("", None),
    ] {
        let (_, text) = report_on(&original(Notify::default()), relay, "550 no");
        let found = text.lines().find_map(|line| line.strip_prefix("Remote-MTA: "));
        assert_eq!(found.map(str::trim_end), field, "{relay}");
    }
}

#[test]
fn the_answer_to_an_earlier_attempt_is_that_of_its_server_and_of_its_recipient() {
    let message = original(Notify::default());
    let content = message.content.in_memory().unwrap();
    let attempt = |index, answer| EarlierAttempt { index, at: UnixMillis(0), answer };
    let earlier = [
        attempt(0, Some(("mx.b.test[192.0.2.1]:25", "451 4.7.1 greylisted"))),
        attempt(1, None),
        attempt(2, Some(("", "452 4.2.2 full"))),
    ];
    let nobody = by("");
    let context = DsnContext { attempt: &nobody, earlier: &earlier, ..context(&content) };
    let affected: Vec<_> = (0..3)
        .map(|index| {
            (index, Outcome::failed(Enhanced(5, 4, 7), "too late; the last attempt: 451 greylisted"))
        })
        .collect();
    let report = compose(DsnKind::Failed, &message, &affected, &context, QueueId(9)).unwrap();
    let text = String::from_utf8(report.content.in_memory().unwrap().to_vec()).unwrap();
    let of = |address: &str| {
        let told = text.split_once(&format!("<{address}>")).unwrap().1.split("\r\n\r\n").next().unwrap();
        let field = format!("Final-Recipient: rfc822; {address}");
        (told.to_owned(), text.split_once(&field).unwrap().1.split("\r\n\r\n").next().unwrap().to_owned())
    };
    let (told, fields) = of("one@b.test");
    assert!(told.contains("mx.b.test[192.0.2.1]:25 replied: 451 4.7.1 greylisted"), "{told}");
    assert!(!told.contains("Remark"), "{told}");
    assert!(fields.contains("Status: 5.4.7\r\nRemote-MTA: dns; mx.b.test\r\n"), "{fields}");
    assert!(fields.contains("Diagnostic-Code: smtp; 451 4.7.1 greylisted"), "{fields}");
    let (told, fields) = of("three@b.test");
    assert!(told.contains("b.test replied: 452 4.2.2 full"), "{told}");
    assert!(!fields.contains("Remote-MTA") && fields.contains("smtp; 452 4.2.2 full"), "{fields}");
    let attempted = format!("Last-Attempt-Date: {}\r\n", UnixMillis(0).rfc5322());
    assert_eq!(text.matches(&attempted).count(), 2, "{text}");
}

#[test]
fn a_report_without_an_attempt_names_no_time_of_one_and_blames_no_server() {
    let message = original(Notify::default());
    let content = message.content.in_memory().unwrap();
    let text = |kind, outcome| {
        let report = compose(kind, &message, &[(0, outcome)], &context(&content), QueueId(9)).unwrap();
        String::from_utf8(report.content.in_memory().unwrap().to_vec()).unwrap()
    };
    let waits = text(DsnKind::Delayed, Outcome::deferred(Enhanced(4, 4, 7), "no attempt has been made yet"));
    assert!(waits.contains("has not been tried yet") && !waits.contains("could not be reached"), "{waits}");
    let expired = Outcome::failed(Enhanced(5, 4, 7), "too late").because(Cause::Expired);
    let returned = Outcome::failed(Enhanced(5, 7, 0), "returned").because(Cause::Returned);
    for told in [waits, text(DsnKind::Failed, expired), text(DsnKind::Failed, returned)] {
        assert!(!told.contains("Last-Attempt-Date"), "{told}");
    }
    let refused = text(DsnKind::Failed, Outcome::failed(Enhanced(5, 1, 1), "550 no"));
    assert!(refused.contains("Last-Attempt-Date"), "{refused}");
}

#[test]
fn what_was_said_is_folded_at_its_spaces() {
    let said = format!("550 5.7.1 {} see  https://b.test/{} ", "one two three ".repeat(20), "x".repeat(1500));
    let (_, text) = report_on(&original(Notify::default()), "mx.b.test[192.0.2.1]:25", &said);
    assert!(text.lines().all(|line| line.len() <= 78 || line.contains("xxx") && line.len() < 950), "{text}");
    let (_, field) = text.split_once("Diagnostic-Code: ").unwrap();
    let (field, _) = field.split_once("\r\nLast-Attempt-Date:").unwrap();
    assert!(field.split("\r\n").skip(1).all(|line| line.starts_with(' ') && !line.trim().is_empty()));
    let words = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(words(field), format!("smtp;{}", words(&said)));
}

#[test]
fn long_lines_of_the_original_are_cut_between_words_or_characters() {
    let mut message = original(Notify::default());
    let header = format!("Subject: {}\r\nX-Long: {}\r\n", "word ".repeat(400), "ü".repeat(2000));
    let body = format!("short\r\n{}\r\n{}\r\n", "<td>x</td> ".repeat(500), "ä".repeat(1700));
    message.content = Content::from_bytes(format!("{header}\r\n{body}"));
    let (report, text) = report_on(&message, "", "550 no");
    assert!(!report.content.traits.has_long_line && !report.content.traits.is_binary);
    let (_, returned) = text.split_once("Content-Type: message/global\r\n").unwrap();
    assert!(returned.lines().all(|line| line.len() <= 998) && returned.contains("\r\nshort\r\n"));
    assert!(!returned.contains('\u{fffd}'));
    let letters = |text: &str| text.split_whitespace().collect::<String>();
    assert!(letters(returned).contains(&letters(&format!("{header}{body}"))));
}

#[test]
fn a_sender_in_ascii_gets_a_report_that_a_server_without_smtputf8_takes() {
    let mut message = original(Notify::default());
    message.envelope.recipients[0].path = ForwardPath::parse("zoë+x@b.test", true).unwrap();
    message.envelope.recipients[0].orcpt = None;
    let (report, text) = report_on(&message, "mx.b.test[192.0.2.1]:25", "550 Postfach zoë unbekannt");
    assert!(!report.envelope.smtputf8 && !report.content.traits.has_utf8_header);
    assert!(text.contains("Content-Type: message/delivery-status\r\n"), "{text}");
    assert!(text.contains("\r\nFinal-Recipient: utf-8; zo\\x{EB}\\x{2B}x@b.test\r\n"), "{text}");
    assert!(text.contains("\r\nDiagnostic-Code: smtp; 550 Postfach zo? unbekannt\r\n"), "{text}");
    message.envelope.reverse_path = ReversePath::parse("jörg@a.test", true).unwrap();
    let (report, text) = report_on(&message, "mx.b.test[192.0.2.1]:25", "550 Postfach zoë unbekannt");
    assert!(report.envelope.smtputf8 && text.contains("Final-Recipient: utf-8; zoë+x@b.test\r\n"), "{text}");
    assert!(text.contains("\r\nDiagnostic-Code: smtp; 550 Postfach zoë unbekannt\r\n"), "{text}");
}

#[test]
fn only_a_header_in_utf8_makes_what_is_returned_global() {
    let mut message = original(Notify::default());
    for (header, ret, media) in [
        (&b"Subject: a"[..], None, "message/rfc822"),
        (b"Subject: a", Some(Ret::Headers), "text/rfc822-headers"),
        ("Subject: ä".as_bytes(), None, "message/global"),
        ("Subject: ä".as_bytes(), Some(Ret::Headers), "message/global-headers"),
        (b"Subject: \xe4", None, "text/rfc822-headers"),
        (b"Subject: \xe4", Some(Ret::Headers), "text/rfc822-headers"),
    ] {
        message.envelope.ret = ret;
        message.content = Content::from_bytes([header, b"\r\n\r\nGr\xfc\xdfe\r\n"].concat());
        let (_, text) = report_on(&message, "", "550 no");
        assert!(text.contains(&format!("\r\nContent-Type: {media}\r\n")), "{media}: {text}");
    }
}

/// The report in 7 bits, as a next hop without 8BITMIME gets it.
fn in_seven_bits(report: &Message) -> String {
    let content = report.content.in_memory().unwrap();
    let mut scan = Scan::default();
    scan.push(&content);
    let plan = scan.finish().expect("each report can be converted");
    let mut converter = mail::seven_bit::Converter::new(plan.into());
    let mut converted = converter.push(&content);
    converted.extend(converter.finish());
    assert!(converted.is_ascii(), "{}", String::from_utf8_lossy(&converted));
    String::from_utf8(converted).unwrap()
}

#[test]
fn every_report_for_an_address_in_ascii_can_be_written_in_7_bits() {
    let mixed = "Content-Type: multipart/mixed; boundary=b\r\n\r\n";
    let utf8 = "Content-Transfer-Encoding: 8bit\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nGrüße an alle, die dies lesen\r\n";
    for (content, returned, words) in [
        // Part by part.
        (
            format!("Subject: a\r\nMIME-Version: 1.0\r\n{utf8}"),
            "message/rfc822",
            "\r\n\r\nGr=C3=BC=C3=9Fe an alle",
        ),
        (format!("{mixed}--b\r\n{utf8}--b--\r\n"), "message/rfc822", "\r\n\r\nGr=C3=BC=C3=9Fe an alle"),
        // As a whole: RFC 6532 §3.7 allows it.
        (format!("Subject: ü\r\n{utf8}"), "message/global", "Subject: =C3=BC\r\n"),
        // What cannot be encoded is left out.
        (format!("{mixed}--b\r\n{utf8}--bb\r\n--b--\r\n"), "text/rfc822-headers", "boundary=b\r\n"),
        (
            format!("Content-Transfer-Encoding: base64\r\nX: y\r\n\r\nü{utf8}"),
            "text/rfc822-headers",
            "X: y\r\n",
        ),
    ] {
        let mut message = original(Notify::default());
        message.content = Content::from_bytes(content.clone());
        let (report, _) = report_on(&message, "mx.b.test[192.0.2.1]:25", "550 Postfach unzulässig");
        let text = in_seven_bits(&report);
        assert!(text.contains(&format!("\r\nContent-Type: {returned}\r\n")), "{content}: {text}");
        assert!(text.contains(words) && text.contains("\r\nStatus: 5.1.1\r\n"), "{content}: {text}");
        assert!(text.contains("550 Postfach unzul=C3=A4ssig\r\n"), "{text}");
    }
    // A header in another encoding.
    let mut message = original(Notify::default());
    message.content = Content::from_bytes(&b"Subject: \xfc\r\n\r\nGr\xfc\xdfe\r\n"[..]);
    let (report, _) = report_on(&message, "", "550 no");
    assert!(
        in_seven_bits(&report)
            .contains("Content-Transfer-Encoding: quoted-printable\r\n\r\nSubject: =FC\r\n")
    );
}

#[test]
fn a_report_is_in_the_languages_that_are_configured() {
    let message = original(Notify::default());
    let content = message.content.in_memory().unwrap();
    let mut outcome = Outcome::failed(Enhanced(5, 2, 2), "552 5.2.2 over quota");
    outcome.from_remote = true;
    let texts = Texts::new(["de", "en"].map(|code| Language::embedded(code).unwrap()).into());
    let context = DsnContext { texts: &texts, ..context(&content) };
    let report = compose(DsnKind::Failed, &message, &[(0, outcome)], &context, QueueId(9)).unwrap();
    let text = String::from_utf8(report.content.in_memory().unwrap().to_vec()).unwrap();
    assert!(text.contains("\r\nSubject: Nachricht unzustellbar\r\n"), "{text}");
    assert!(text.contains("\r\nContent-Language: de, en\r\n"), "{text}");
    for line in [
        "    Das Postfach ist voll. Versuchen Sie es später wieder, oder erreichen Sie",
        "    Antwort von mx.b.test[192.0.2.1]:25: 552 5.2.2 over quota",
        "    The mailbox is full. Try again later, or contact the recipient in another",
        "    You wrote to: one@orig.test",
    ] {
        assert!(text.contains(&format!("\r\n{line}\r\n")), "{line}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 78), "{text}");
    assert_eq!(text.matches("Action: failed").count(), 1);
    assert!(in_seven_bits(&report).contains("sp=C3=A4ter"));
}

#[test]
fn the_owner_of_a_list_gets_its_reports_and_not_the_parameters_of_the_sender() {
    let mut message = original(Notify::default());
    let path = ReversePath::parse("owner-list@here.test", false).unwrap();
    message.envelope.recipients[0].set_return_path(ReturnPath { path, is_list: true });
    message.envelope.ret = Some(Ret::Headers);
    let (report, text) = report_on(&message, "", "550 no");
    assert_eq!(report.envelope.recipients[0].path.as_str(), "owner-list@here.test");
    assert!(text.contains("\r\nTo: <owner-list@here.test>\r\n") && !text.contains("QQ314159"), "{text}");
    assert!(text.contains("Content-Type: message/rfc822"), "RET is the sender's: {text}");
    assert!(text.contains("because owner-list@here.test is the owner of a\r\nmailing list."), "{text}");
    assert!(!text.contains("You wrote to:"), "{text}");
    message.envelope.recipients[0].options = None;
    assert!(!report_on(&message, "", "550 no").1.contains("mailing list"));
}

#[test]
fn the_postmaster_gets_a_report_that_cannot_be_delivered() {
    let mut message = original(Notify::NEVER);
    message.envelope.reverse_path = ReversePath::Null;
    message.origin = Origin::Dsn;
    let (report, text) = bounce(DsnKind::DoubleBounce, &message).unwrap();
    assert_eq!(report.origin, Origin::DoubleBounce);
    assert!(report.envelope.reverse_path.is_null() && report.is_report());
    assert_eq!(report.envelope.recipients[0].path.as_str(), "postmaster@mx.here.test");
    assert!(text.contains("A notification of this server could not be delivered"), "{text}");
    assert_eq!(text.matches("Action: failed").count(), 3);
}

#[test]
fn an_expansion_is_reported_on_request() {
    let success = Notify { success: true, failure: false, delay: false, explicit: true };
    let (_, text) = bounce(DsnKind::Expanded, &original(success)).unwrap();
    assert!(text.contains("\r\nAction: expanded\r\n") && !text.contains("\r\nbody"), "{text}");
    assert!(bounce(DsnKind::Expanded, &original(Notify::default())).is_none());
}

#[test]
fn mail_that_a_program_sends_is_not_warned_about_unless_it_asks() {
    let warned = |field: &str, notify: Notify| {
        let mut message = original(notify);
        message.content = Content::from_bytes(format!("Subject: x\r\n{field}\r\n\r\nbody\r\n"));
        bounce(DsnKind::Failed, &message).expect("a failure is always reported");
        bounce(DsnKind::Delayed, &message).is_some()
    };
    let asked = Notify { success: false, failure: true, delay: true, explicit: true };
    assert!(warned("X: y", Notify::default()) && warned("Auto-Submitted: No (by hand)", Notify::default()));
    for field in ["Auto-Submitted: auto-generated", "auto-submitted:auto-replied; x=y"] {
        assert!(!warned(field, Notify::default()) && warned(field, asked), "{field}");
    }
}

#[test]
fn the_address_that_was_expanded_is_named() {
    let mut message = original(Notify::default());
    message.envelope.recipients[0].orcpt = None;
    let original = Mailbox::parse("staff@here.test", false).unwrap();
    message.envelope.recipients[0].options.get_or_insert_default().expansion =
        Some(Expansion { original, through: vec![] });
    let (_, text) = report_on(&message, "", "550 no");
    assert!(text.contains("You wrote to: staff@here.test\r\n"), "{text}");
}

#[test]
fn the_subject_is_told_as_its_reader_knows_it() {
    let told = |header: &str| {
        let mut message = original(Notify::default());
        message.content = Content::from_bytes(format!("{header}\r\n\r\nbody\r\n"));
        let (_, text) = report_on(&message, "", "550 no");
        assert!(!text.contains("\r\n\r\n\r\n"), "{text}");
        let (text, _) = text.split_once("Content-Description: Delivery report").unwrap();
        text.lines().find_map(|line| line.strip_prefix("    Subject: ")).map(str::to_owned)
    };
    assert_eq!(told("Subject: Hello you").as_deref(), Some("Hello you"));
    let folded = "X: y\r\nsubject: =?utf-8?q?Gr=C3=BC?=\r\n =?utf-8?q?=C3=9Fe?=\r\n\tan alle\r\nY: z";
    assert_eq!(told(folded).as_deref(), Some("Grüße\u{20}an alle"));
    assert_eq!(told("Subject: =?utf-8?q?a=0D=0AX:_y?=").as_deref(), Some("a  X: y"));
    assert_eq!((told("X: y"), told("Subject: ")), (None, None));
}
