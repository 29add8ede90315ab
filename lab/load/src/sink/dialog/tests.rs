use super::{super::rules::*, super::verb::*, *};

fn shared(rules: Rules) -> Shared {
    Shared::new(Arc::new(rules))
}

/// Returns the output of the sink for `input`, with pauses shown as `[seconds]`, and the events of the dialog.
fn dialog(rules: Rules, input: &[u8], piece_length: usize) -> (String, Vec<String>) {
    let mut dialog = Dialog::new(&shared(rules));
    let (mut said, mut events, mut buffer) = (String::new(), Vec::new(), Vec::new());
    let mut pieces = input.chunks(piece_length);
    loop {
        let mut rest = &buffer[..];
        let next = dialog.step(&mut rest);
        let used = buffer.len() - rest.len();
        match next {
            Next::Content(bytes) => events.push(String::from_utf8_lossy(bytes).into_owned()),
            Next::Dropped => events.push("dropped".to_owned()),
            Next::Message(e) => events.push(format!("message to {}", e.recipients.len())),
            Next::StartTls => unreachable!("it is not offered"),
            Next::Read | Next::Pause(_) | Next::Close => {
                said.push_str(std::str::from_utf8(dialog.output()).unwrap());
                dialog.output().clear();
                match next {
                    Next::Pause(d) => said.push_str(&format!("[{}]", d.as_secs_f32())),
                    Next::Close => return (said + "[close]", events),
                    _ => match pieces.next() {
                        Some(piece) => {
                            buffer.drain(..used);
                            buffer.extend_from_slice(piece);
                            continue;
                        }
                        None => return (said, events),
                    },
                }
            }
        }
        buffer.drain(..used);
    }
}

fn set(list: &str) -> VerbSet {
    VerbSet::parse(list).unwrap()
}

/// Returns the codes of all replies to the input.
fn codes(rules: Rules, input: &[u8]) -> String {
    let (said, _) = dialog(rules, input, 4096);
    let code = |l: &str| l.get(3..4).filter(|c| *c == " ").map(|_| l[..3].to_owned());
    let words: Vec<String> = said.lines().map(|l| code(l).unwrap_or_else(|| l.to_owned())).collect();
    words.join(" ")
}

const MAIL: &[u8] = b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nRCPT TO:<e@f>\r\nDATA\r\nhi\r\n..\r\n.\r\nQUIT\r\n";

#[test]
fn mail_without_hello_is_taken_at_any_split() {
    for length in [1, 2, 3, 7, 16, 4096] {
        let (said, events) = dialog(Rules { keeps_content: true, ..Rules::default() }, MAIL, length);
        let content: String = events.iter().filter(|e| !e.contains("to 2")).map(String::as_str).collect();
        assert_eq!(content, "hi\r\n.\r\n", "{length}");
        assert_eq!(events.last().unwrap(), "message to 2");
        assert!(said.starts_with("220 postlab-sink ESMTP\r\n250 2.1.0 Ok\r\n250 2.1.5 Ok\r\n"), "{said}");
        assert!(said.ends_with("250 2.0.0 Ok\r\n221 2.0.0 Bye\r\n[close]"), "{said}");
    }
}

#[test]
fn any_address_is_taken_where_one_is_due() {
    let input = b"RCPT TO:<x>\r\nMAIL FROM:a@b FOO=1\r\nMAIL FROM:x\r\nRCPT TO:<x>\r\nRCPT TO:|sh\r\nDATA\r\nhi\r\n.\r\n";
    assert_eq!(codes(Rules::default(), input), "220 503 250 503 250 250 354 250");
    let (_, events) = dialog(Rules::default(), input, 7);
    assert_eq!(events, ["message to 2"]);
}

#[test]
fn refused_commands_change_nothing() {
    let soft = Rules { soft: set("rcpt"), ..Rules::default() };
    assert_eq!(codes(soft, b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n"), "220 250 450 503");
    let hard = Rules { hard: set("."), ..Rules::default() };
    assert_eq!(codes(hard, MAIL), "220 250 250 250 354 500 221 [close]");
    let greylist = Rules { greylist: Some(Duration::from_secs(3600)), ..Rules::default() };
    assert_eq!(codes(greylist, b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n"), "220 250 450 503");
    let greylist = Rules { greylist: Some(Duration::ZERO), ..Rules::default() };
    assert_eq!(codes(greylist, b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n"), "220 250 250 354");
    let greeting = Rules { hard: set("CONNECT"), ..Rules::default() };
    assert_eq!(codes(greeting, b"NOOP\r\n"), "500 250");
}

#[test]
fn drop_closes_without_a_word_and_shut_says_421() {
    let drop = Rules { drop: set("RCPT"), ..Rules::default() };
    assert_eq!(codes(drop, MAIL), "220 250 [close]");
    let shut = Rules { shut: set("RCPT"), ..Rules::default() };
    assert_eq!(codes(shut, MAIL), "220 250 421 [close]");
    assert_eq!(codes(Rules { drop: set("CONNECT"), ..Rules::default() }, MAIL), "[close]");
    assert_eq!(codes(Rules { drop: set("."), ..Rules::default() }, MAIL), "220 250 250 250 354 [close]");
}

#[test]
fn lmtp_answers_for_each_recipient() {
    let lmtp = Rules { lmtp: true, ..Rules::default() };
    assert_eq!(codes(lmtp.clone(), MAIL), "220 250 250 250 354 250 250 221 [close]");
    assert!(dialog(lmtp.clone(), b"LHLO x\r\n", 99).0.contains("250-postlab-sink\r\n250-PIPELINING"));
    assert_eq!(codes(lmtp, b"EHLO x\r\n"), "220 500");
    assert_eq!(codes(Rules::default(), b"LHLO x\r\n"), "220 500");
}

#[test]
fn delays_stand_before_the_reply_and_an_abort_behind_354() {
    let mut rules = Rules { abort_data: Some(Duration::from_secs(3)), ..Rules::default() };
    rules.delays[Verb::Data as usize] = Some(Delay { unit: Duration::from_secs(2), odds: None });
    let (said, _) = dialog(rules, MAIL, 4096);
    assert!(said.ends_with(
        "[2]354 End data with <CR><LF>.<CR><LF>\r\n[3]550 5.3.0 Error: command failed\r\n[close]"
    ));
    let slow = Rules { read_delay: Some(Duration::from_secs(1)), ..Rules::default() };
    let (said, events) = dialog(slow, MAIL, 4096);
    assert!(said.contains("<LF>\r\n[1]250 2.0.0 Ok") && events == ["message to 2"], "{said}");
}

#[test]
fn chunks_are_framed_by_their_size_and_options_see_the_line_behind() {
    let input = b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nBDAT 6\r\nQUIT\r\nNOOP\r\nBDAT 4 LAST\r\nab\r\nBDAT 0 LAST\r\nQUIT\r\n";
    for length in [1, 5, 4096] {
        let rules = Rules { keeps_content: true, soft: set("NOOP"), ..Rules::default() };
        let (said, events) = dialog(rules, input, length);
        assert_eq!(events.concat(), "QUIT\r\nab\r\nmessage to 1", "{length}: {said}");
        assert!(said.contains("450 4.3.0") && said.ends_with("221 2.0.0 Bye\r\n[close]"), "{said}");
    }
}

#[test]
fn what_is_not_offered_is_not_said() {
    let old = Rules { offer: Offer { esmtp: false, ..Offer::default() }, ..Rules::default() };
    assert_eq!(codes(old.clone(), b"EHLO x\r\nHELO x\r\n"), "220 500 250");
    assert_eq!(dialog(old, b"MAIL FROM:<a@b>\r\n", 99).0, "220 postlab-sink\r\n250 Ok\r\n");
}

#[test]
fn anybody_may_log_in() {
    assert_eq!(codes(Rules::default(), b"AUTH PLAIN\r\nAGEAYg==\r\nNOOP\r\n"), "220 334 235 250");
    assert_eq!(codes(Rules::default(), b"AUTH LOGIN\r\nYQ==\r\nYg==\r\nAUTH X\r\n"), "220 334 334 235 504");
}

#[test]
fn an_endless_line_ends_the_session() {
    assert_eq!(codes(Rules::default(), &[b'x'; 5000]), "220 500 [close]");
}
