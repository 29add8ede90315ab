//! Stages of the accept pipeline as sessions ask them: order, deadlines, refusals, keywords and authentication.

use super::*;

#[tokio::test]
async fn every_stage_is_passed_in_order_whether_it_is_answered_now_or_later() {
    const ALL: &[&str] = &["connect", "hello", "mail", "rcpt", "header", "body", "content"];
    for slow in [&[][..], ALL] {
        let service = TestService { slow, gate: watch::Sender::new(true), ..TestService::default() };
        let server = start(service, Limits::default(), ListenTls::Off, 10).await;
        let mut c = greeted(&server).await;
        c.expect("MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nRCPT TO:<e@f>\r\nDATA\r\n", "250 2.1.0").await;
        for code in ["250 2.1.5", "250 2.1.5", "354"] {
            assert!(c.reply().await.starts_with(code));
        }
        c.expect("Subject: x\r\n\r\nbody\r\n.\r\n", "250 2.0.0").await;
        assert_eq!(
            server.service.seen(),
            [
                "connect",
                "hello c.test",
                "mail c.test a@b",
                "rcpt 0 c@d",
                "rcpt 1 e@f",
                "header Subject: x\r\n\r\n".trim_end(),
                "body",
                "content"
            ],
            "{slow:?}"
        );
        assert_eq!(server.service.messages.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn replies_leave_before_a_session_waits_and_other_sessions_go_on() {
    let server = start(
        TestService { slow: &["rcpt"], ..TestService::default() },
        Limits::default(),
        ListenTls::Off,
        10,
    )
    .await;
    let mut c = greeted(&server).await;
    // Pipelined: the reply to MAIL does not wait for that to RCPT.
    c.expect("MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\n", "250 2.1.0").await;
    until(|| server.service.waiting.load(Ordering::Relaxed) == 1).await;
    // What comes meanwhile is answered afterwards, in order.
    c.0.get_mut().write_all(b"NOOP\r\nRSET\r\nVRFY x\r\n").await.unwrap();
    let mut other = greeted(&server).await;
    other.expect("MAIL FROM:<a@b>\r\n", "250 2.1.0").await;
    server.service.gate.send_replace(true);
    for code in ["250 2.1.5", "250 2.0.0", "250 2.0.0", "252"] {
        assert!(c.reply().await.starts_with(code));
    }
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_a_temporary_failure() {
    for (slow, code) in [
        (&["hello"][..], "451 4.3.0"),
        (&["mail"], "451 4.3.0"),
        (&["rcpt"], "451 4.3.0"),
        (&["header"], "451 4.3.0"),
        (&["body"], "451 4.3.0"),
        (&["content"], "451 4.3.0"),
        (&["connect"], "421 4.3.0"),
    ] {
        let server =
            start(TestService { slow, ..TestService::default() }, Limits::default(), ListenTls::Off, 10)
                .await;
        let settings = settings(Limits::default(), 10);
        server.inbound.reconfigure(Settings { lookup_timeout: Duration::from_millis(20), ..settings }, None);
        let mut c = connect(&server).await;
        let mut replies = vec![c.reply().await];
        for line in ["EHLO c\r\n", "MAIL FROM:<>\r\n", "RCPT TO:<a@b>\r\n", "DATA\r\n", "x\r\n\r\ny\r\n.\r\n"]
        {
            if replies.last().unwrap().as_bytes()[0] == b'4' {
                break;
            }
            replies.push(c.say(line).await);
        }
        let last = replies.last().unwrap();
        assert!(last.starts_with(code), "{slow:?}: {replies:?}");
        assert_eq!(server.service.waiting.load(Ordering::Relaxed), 0, "{slow:?}: nothing is asked any more");
        assert!(server.service.messages.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_wait_ends_with_its_session() {
    let service = TestService { slow: &["mail"], ..TestService::default() };
    let server = start(service, Limits::default(), ListenTls::Off, 10).await;
    let mut c = greeted(&server).await;
    c.0.get_mut().write_all(b"MAIL FROM:<a@b>\r\n").await.unwrap();
    until(|| server.service.waiting.load(Ordering::Relaxed) == 1).await;
    // Closed with a reset, not with FIN: a client that only ended its side may still read.
    c.0.get_mut().set_zero_linger().unwrap();
    drop(c);
    until(|| server.service.waiting.load(Ordering::Relaxed) == 0).await;
    until(|| server.inbound.budget().session_count() == 0).await;
}

#[tokio::test]
async fn a_client_that_ends_its_side_gets_its_replies_all_the_same() {
    let service = TestService { slow: &["mail", "content"], ..TestService::default() };
    let server = start(service, Limits::default(), ListenTls::Off, 10).await;
    let mut c = greeted(&server).await;
    let all = b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nBDAT 3 LAST\r\nx\r\nQUIT\r\n";
    c.0.get_mut().write_all(all).await.unwrap();
    c.0.get_mut().shutdown().await.unwrap();
    until(|| server.service.waiting.load(Ordering::Relaxed) == 1).await;
    server.service.gate.send_replace(true);
    for code in ["250 2.1.0", "250 2.1.5", "250 2.0.0", "221"] {
        assert!(c.reply().await.starts_with(code));
    }
    assert_eq!(server.service.messages.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_refusal_of_header_body_or_content_is_given_at_the_end_and_leaves_no_chunk() {
    let body = "0123456789abcdef\r\n".repeat(1000);
    for refused in [&["header"][..], &["body"], &["content"]] {
        for slow in [&[][..], &["header", "body", "content"]] {
            let gate = watch::Sender::new(true);
            let service = TestService { refused, slow, gate, ..TestService::default() };
            let server = start(service, Limits::default(), ListenTls::Off, 10).await;
            let mut c = connect_up_to_data(&server).await;
            c.expect(&format!("Subject: x\r\n\r\n{body}.\r\n"), "550 5.7.1 refused by the test").await;
            assert!(server.service.chunks.lock().unwrap().is_empty(), "{refused:?}");
            assert!(server.service.messages.lock().unwrap().is_empty());
            assert_eq!(server.inbound.budget().content_bytes(), 0);
            c.expect("MAIL FROM:<>\r\n", "250").await;
        }
    }
}

#[tokio::test]
async fn a_header_larger_than_a_chunk_stays_in_one_part() {
    let server = start(TestService::default(), Limits::default(), ListenTls::Off, 10).await;
    let mut c = connect_up_to_data(&server).await;
    let header: String = (0..100).map(|n| format!("X-{n}: {}\r\n", "v".repeat(60))).collect();
    let body = "0123456789abcdef\r\n".repeat(1000);
    c.expect(&format!("{header}\r\n{body}.\r\n"), "250").await;
    let seen = server.service.seen();
    assert!(seen.contains(&format!("header {}", header.trim_end())), "the whole header was judged");
    assert!(server.service.messages.lock().unwrap()[0].1.ends_with(format!("{header}\r\n{body}").as_bytes()));
    assert_eq!(server.inbound.budget().content_bytes(), 0);
}

#[tokio::test]
async fn content_without_an_empty_line_is_all_header() {
    let server = start(TestService::default(), Limits::default(), ListenTls::Off, 10).await;
    let mut c = connect_up_to_data(&server).await;
    c.expect("Subject: x\r\n.\r\n", "250").await;
    let seen = server.service.seen();
    assert_eq!(seen[seen.len() - 2..], ["header Subject: x", "content"]);
}

#[tokio::test]
async fn a_body_without_an_empty_line_gets_one_in_memory_and_in_the_spool() {
    for line_count in [1, 1000] {
        let server = start(TestService::default(), Limits::default(), ListenTls::Off, 10).await;
        let mut c = connect_up_to_data(&server).await;
        let body = "no field\r\n".repeat(line_count);
        c.expect(&format!("Subject: x\r\n{body}.\r\n"), "250").await;
        assert!(server.service.seen().contains(&"header Subject: x".to_owned()));
        let message = &server.service.messages.lock().unwrap()[0].1;
        assert!(message.ends_with(format!("\r\nSubject: x\r\n\r\n{body}").as_bytes()));
        assert_eq!(server.service.chunks.lock().unwrap().is_empty(), line_count == 1);
        assert_eq!(server.inbound.budget().content_bytes(), 0);
    }
}

#[tokio::test]
async fn behind_starttls_the_service_starts_anew() {
    let server = start(TestService::default(), Limits::default(), ListenTls::StartTls, 10).await;
    let mut c = greeted(&server).await;
    c.expect("STARTTLS\r\n", "220").await;
    let mut c = secure(&server, c.0.into_inner()).await;
    c.expect("MAIL FROM:<>\r\n", "503 5.5.1").await;
    c.expect("HELO other.test\r\n", "250").await;
    c.expect("MAIL FROM:<>\r\n", "250").await;
    assert_eq!(server.service.seen()[2..], ["hello other.test", "mail other.test"]);
}

#[tokio::test]
async fn a_listener_has_its_own_keywords_and_size() {
    let mut server = start(TestService::default(), Limits::default(), ListenTls::Off, 10).await;
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let own_port = std::mem::replace(&mut server.port, socket.local_addr().unwrap().port());
    let (withheld, message_bytes) = (vec![Keyword::Chunking, Keyword::Dsn], Some(1000));
    let options = ListenerOptions { withheld, message_bytes, ..ListenerOptions::default() };
    let listener = Listener { label: String::new(), socket: socket.into(), options, is_drained: false };
    tokio::spawn(server.inbound.clone().listen(listener));
    let mut c = connect(&server).await;
    c.reply().await;
    let hello = c.say("EHLO c\r\n").await;
    assert!(hello.contains("SIZE 1000\r\n"), "{hello}");
    assert!(
        !hello.contains("DSN") && !hello.contains("CHUNKING") && !hello.contains("BINARYMIME"),
        "{hello}"
    );
    c.expect("MAIL FROM:<> SIZE=1001\r\n", "552 5.3.4").await;
    // A reload keeps what is the listener's own, and changes the rest.
    let changed = Settings { profile: Arc::new(Profile::new("new.test")), ..settings(Limits::default(), 10) };
    server.inbound.reconfigure(changed, None);
    let mut c = connect(&server).await;
    assert!(c.reply().await.starts_with("220 new.test "));
    assert!(c.say("EHLO c\r\n").await.contains("SIZE 1000\r\n"));
    server.port = own_port;
    let mut c = connect(&server).await;
    c.reply().await;
    assert!(c.say("EHLO c\r\n").await.contains("DSN"));
}

#[tokio::test]
async fn an_authentication_exchange_asks_the_service() {
    for slow in [&[][..], &["auth"]] {
        let service = TestService { slow, gate: watch::Sender::new(true), ..TestService::default() };
        let server = start(service, Limits::default(), ListenTls::Off, 10).await;
        let mechanism = OfferedMechanism { name: "X-TEST".into(), needs: MechanismNeed::Nothing };
        let auth = Auth { mechanisms: vec![mechanism], in_clear_text: true };
        let settings = settings(Limits::default(), 10);
        server.inbound.reconfigure(Settings { auth: auth.into(), ..settings }, None);
        let mut c = greeted(&server).await;
        c.expect("AUTH X-TEST\r\n", "334 d2hvPw==").await;
        c.expect("bm8=\r\n", "535 5.7.8").await;
        c.expect("AUTH X-TEST c2VjcmV0\r\n", "235 2.7.0").await;
        send_one(&mut c, "").await;
        let (origin, content) = server.service.messages.lock().unwrap().pop().unwrap();
        assert!(origin.ends_with("proto=ESMTPA"), "{origin}");
        assert!(String::from_utf8(content).unwrap().contains("with ESMTPA id "));
    }
}
