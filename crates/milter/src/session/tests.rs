use super::*;
use crate::Peer;
use proptest::{collection::vec, prelude::*};

const CONNECT: Command<'_> = Command::Connect { host: "client.test", peer: Peer::Unknown };
const HELLO: Command<'_> = Command::Hello { name: "client.test" };
const MAIL: Command<'_> = Command::Mail { sender: "ann@a.test", parameters: &[] };
const RCPT: Command<'_> = Command::Recipient { recipient: "bob@b.test", parameters: &[], is_rejected: false };
const REJECTED: Command<'_> =
    Command::Recipient { recipient: "eve@b.test", parameters: &[], is_rejected: true };
const HEADER: Command<'_> = Command::Header { name: b"A", value: b" b" };
const MESSAGE: [Command<'_>; 7] = [
    MAIL,
    RCPT,
    Command::Data,
    HEADER,
    Command::EndOfHeaders,
    Command::Body(b"body\r\n"),
    Command::EndOfMessage,
];
const UNKNOWN: Command<'_> = Command::Unknown { line: b"XYZZY" };

/// A session behind the negotiation.
fn negotiated(steps: Steps) -> Session {
    let offer = Offer { steps: Steps::ALL, ..Offer::default() };
    let mut session = Session::new(&offer, &mut Vec::new());
    let mut answer = b"\0\0\0\x0dO\0\0\0\x06\0\0\x01\xff".to_vec();
    answer.extend_from_slice(&steps.0.to_be_bytes());
    assert_eq!(session.receive(&mut &answer[..]), Ok(Some(Event::Negotiated)));
    session
}

/// Sends a command, and returns the kinds of the packets that it became.
fn send(session: &mut Session, command: &Command<'_>) -> Result<(Expect, String), SendError> {
    let mut out = Vec::new();
    let expect = session.send(command, &[], &mut out)?;
    Ok((expect, kinds(&out)))
}

fn kinds(mut out: &[u8]) -> String {
    let mut kinds = String::new();
    while let Some((length, rest)) = out.split_first_chunk() {
        kinds.push(char::from(rest[0]));
        out = &rest[u32::from_be_bytes(*length) as usize..];
    }
    kinds
}

/// Sends a command that is answered.
fn exchange(session: &mut Session, command: &Command<'_>, answer: &[u8]) -> Option<Event> {
    let (expect, _) = send(session, command).unwrap();
    assert_eq!(expect, Expect::Answer, "{command:?}");
    let length = u32::try_from(answer.len()).unwrap().to_be_bytes();
    session.receive(&mut &[&length, answer].concat()[..]).unwrap()
}

/// Sends a command that is not answered, and returns what it became.
fn unanswered(session: &mut Session, command: &Command<'_>) -> String {
    let (expect, kinds) = send(session, command).unwrap();
    assert_eq!(expect, Expect::Nothing, "{command:?}");
    kinds
}

#[test]
fn commands_out_of_order_are_errors_that_change_nothing() {
    let mut session = negotiated(Steps(0));
    let out_of_order = |session: &mut Session, commands: &[Command<'_>]| {
        for command in commands {
            let before = format!("{session:?}");
            assert_eq!(send(session, command), Err(SendError::OutOfOrder(command.stage())));
            assert_eq!(format!("{session:?}"), before);
        }
    };
    out_of_order(&mut session, &[HELLO, UNKNOWN]);
    out_of_order(&mut session, &MESSAGE);
    exchange(&mut session, &CONNECT, b"c");
    out_of_order(&mut session, &[CONNECT]);
    out_of_order(&mut session, &MESSAGE[1..]);
    exchange(&mut session, &MAIL, b"c");
    out_of_order(&mut session, &[CONNECT, HELLO, MAIL, HEADER, Command::EndOfMessage]);
    exchange(&mut session, &Command::Data, b"c");
    out_of_order(&mut session, &[MAIL, RCPT, UNKNOWN, Command::Body(b""), Command::EndOfMessage]);
    exchange(&mut session, &Command::EndOfHeaders, b"c");
    out_of_order(&mut session, &[HEADER, Command::Data]);
}

#[test]
fn nothing_is_sent_before_the_answer_or_after_the_end() {
    let mut session = Session::new(&Offer::default(), &mut Vec::new());
    assert_eq!(send(&mut session, &CONNECT), Err(SendError::AnswerAwaited));
    let mut session = negotiated(Steps(0));
    assert_eq!(send(&mut session, &CONNECT).unwrap().0, Expect::Answer);
    let mut out = Vec::new();
    assert_eq!(session.awaited(), Some(Stage::Connect));
    assert_eq!(send(&mut session, &HELLO), Err(SendError::AnswerAwaited));
    assert_eq!(session.abort(&mut out), Err(SendError::AnswerAwaited));
    assert_eq!(session.next_connection(&mut out), Err(SendError::AnswerAwaited));
    session.quit(&mut out);
    session.quit(&mut out);
    assert_eq!(kinds(&out), "Q");
    assert_eq!(send(&mut session, &HELLO), Err(SendError::Closed));
    assert_eq!(session.abort(&mut out), Err(SendError::Closed));
}

#[test]
fn a_filter_is_told_of_no_stage_that_it_left_out() {
    for command in [CONNECT, HELLO, UNKNOWN].iter().chain(&MESSAGE) {
        let stage = command.stage();
        let flags = (0..10).map(|bit| Steps(1 << bit));
        let Some(flag) = flags.clone().find(|flag| !flag.has_command(stage)) else {
            assert_eq!(stage, Stage::EndOfMessage);
            continue;
        };
        let mut session = negotiated(flag);
        assert!(!session.wants(stage));
        for other in [CONNECT, HELLO, UNKNOWN].iter().chain(&MESSAGE) {
            if other.stage() == stage {
                assert_eq!(unanswered(&mut session, other), "");
            } else {
                assert_eq!(exchange(&mut session, other, b"c"), Some(Event::Verdict(Verdict::Continue)));
            }
        }
    }
}

#[test]
fn a_filter_owes_no_answer_where_it_gives_none() {
    let mut session = negotiated(Steps(0xf_f080));
    let commands = [CONNECT, HELLO, UNKNOWN];
    let kinds: String = commands.iter().chain(&MESSAGE[..6]).map(|it| unanswered(&mut session, it)).collect();
    assert_eq!(kinds, "CHUMRTLNB");
    exchange(&mut session, &Command::EndOfMessage, b"r");
    assert_eq!(session.receive(&mut &b"\0\0\0\x01c"[..]), Err(ProtocolError::Unsolicited));
    assert_eq!(send(&mut session, &MAIL), Err(SendError::Closed));
}

#[test]
fn a_verdict_at_connect_or_helo_ends_the_connection_for_the_filter() {
    for verdict in [&b"a"[..], b"r", b"t", b"y451 later\0", b"4", b"f"] {
        for is_hello in [false, true] {
            let mut session = negotiated(Steps(0));
            exchange(&mut session, &CONNECT, if is_hello { b"c" } else { verdict });
            if is_hello {
                exchange(&mut session, &HELLO, verdict);
            }
            for command in [HELLO].iter().chain(&MESSAGE).chain(&MESSAGE) {
                assert_eq!(unanswered(&mut session, command), "", "{verdict:?}");
            }
            let mut out = Vec::new();
            session.abort(&mut out).unwrap();
            assert!(out.is_empty());
            assert_eq!(session.next_connection(&mut out), Ok(false));
        }
    }
}

#[test]
fn a_verdict_ends_the_message_for_the_filter_and_the_next_one_begins_anew() {
    for (last, verdict) in (0..6).flat_map(|last| [&b"a"[..], b"d", b"r", b"t"].map(|it| (last, it))) {
        let (mut session, is_rcpt) = (negotiated(Steps(0)), last == 1);
        exchange(&mut session, &CONNECT, b"c");
        for command in &MESSAGE[..last] {
            exchange(&mut session, command, b"c");
        }
        exchange(&mut session, &MESSAGE[last], verdict);
        if is_rcpt && matches!(verdict, b"r" | b"t") {
            // Only the recipient is refused.
            MESSAGE[1..].iter().for_each(|command| assert!(exchange(&mut session, command, b"c").is_some()));
        } else {
            let rest = &MESSAGE[last + 1..];
            let kinds: String = rest.iter().map(|command| unanswered(&mut session, command)).collect();
            assert_eq!(kinds, "A", "{last} {verdict:?}");
        }
        MESSAGE.iter().for_each(|command| assert!(exchange(&mut session, command, b"c").is_some()));
    }
}

#[test]
fn shutdown_at_the_end_of_a_message_ends_the_connection() {
    let mut session = negotiated(Steps(0));
    exchange(&mut session, &CONNECT, b"c");
    MESSAGE[..6].iter().for_each(|command| assert!(exchange(&mut session, command, b"c").is_some()));
    assert_eq!(exchange(&mut session, &MESSAGE[6], b"4"), Some(Event::Verdict(Verdict::Shutdown)));
    assert_eq!(unanswered(&mut session, &MAIL), "");
}

#[test]
fn a_body_is_skipped_to_its_end_and_no_further() {
    let mut session = negotiated(Steps::SKIP);
    exchange(&mut session, &CONNECT, b"c");
    for _ in 0..2 {
        MESSAGE[..5].iter().for_each(|command| assert!(exchange(&mut session, command, b"c").is_some()));
        assert_eq!(exchange(&mut session, &MESSAGE[5], b"s"), Some(Event::Verdict(Verdict::Skip)));
        assert!(!session.wants(Stage::Body) && session.wants(Stage::EndOfMessage));
        assert_eq!(unanswered(&mut session, &MESSAGE[5]), "");
        exchange(&mut session, &MESSAGE[6], b"c");
    }
    let mut session = negotiated(Steps(0));
    exchange(&mut session, &CONNECT, b"c");
    MESSAGE[..5].iter().for_each(|command| assert!(exchange(&mut session, command, b"c").is_some()));
    assert_eq!(send(&mut session, &MESSAGE[5]).unwrap().0, Expect::Answer);
    let error = ProtocolError::NotNegotiated { answer: b's' };
    assert_eq!(session.receive(&mut &b"\0\0\0\x01s"[..]), Err(error));
    assert_eq!(session.receive(&mut &b"\0\0\0\x01c"[..]), Err(error));
}

#[test]
fn rejected_recipients_are_sent_to_filters_that_ask_for_them() {
    for (steps, is_sent) in [(Steps(0), false), (Steps::REJECTED_RECIPIENTS, true)] {
        let mut session = negotiated(steps);
        exchange(&mut session, &CONNECT, b"c");
        exchange(&mut session, &MAIL, b"c");
        assert_eq!(send(&mut session, &REJECTED).unwrap().1 == "R", is_sent);
    }
}

#[test]
fn abort_tells_the_filter_once_and_only_of_a_message() {
    let (mut session, mut out) = (negotiated(Steps(0)), Vec::new());
    session.abort(&mut out).unwrap();
    exchange(&mut session, &CONNECT, b"c");
    session.abort(&mut out).unwrap();
    assert!(out.is_empty());
    exchange(&mut session, &MAIL, b"r");
    session.abort(&mut out).unwrap();
    session.abort(&mut out).unwrap();
    assert_eq!(kinds(&out), "A");
    exchange(&mut session, &MAIL, b"c");
}

#[test]
fn what_is_too_long_for_the_filter_is_an_error_that_changes_nothing() {
    let (mut session, mut out) = (negotiated(Steps(0)), Vec::new());
    exchange(&mut session, &CONNECT, b"c");
    MESSAGE[..3].iter().for_each(|command| assert!(exchange(&mut session, command, b"c").is_some()));
    let long = vec![b'x'; session.chunk_max_bytes() + 1];
    let header = Command::Header { name: b"A", value: &long };
    let before = format!("{session:?}");
    assert_eq!(session.send(&header, &[], &mut out), Err(SendError::TooLong(Stage::Header)));
    let value = String::from_utf8(long.clone()).unwrap();
    let macros = [Macro { name: "i", value: &value }];
    let end = Command::EndOfHeaders;
    assert_eq!(session.send(&end, &macros, &mut out), Err(SendError::TooLong(Stage::EndOfHeaders)));
    assert_eq!((format!("{session:?}"), out.len()), (before, 0));
    exchange(&mut session, &end, b"c");
    assert_eq!(send(&mut session, &Command::Body(&long)), Err(SendError::TooLong(Stage::Body)));
    exchange(&mut session, &Command::Body(&long[1..]), b"c");
}

#[test]
fn no_text_is_more_than_one_string() {
    let (mut session, mut out) = (negotiated(Steps(0)), Vec::new());
    let hello = Command::Hello { name: "a\0b" };
    exchange(&mut session, &CONNECT, b"c");
    assert_eq!(session.send(&hello, &[], &mut out), Ok(Expect::Answer));
    assert_eq!(out, b"\0\0\0\x05Ha b\0");
}

#[test]
fn changes_without_end_are_an_error_and_bodies_are_not_counted() {
    let mut session = negotiated(Steps(0));
    exchange(&mut session, &CONNECT, b"c");
    MESSAGE[..6].iter().for_each(|command| assert!(exchange(&mut session, command, b"c").is_some()));
    assert_eq!(send(&mut session, &MESSAGE[6]).unwrap().0, Expect::Answer);
    let body = [&65_536u32.to_be_bytes(), &b"b"[..], &[b'x'; 65_535]].concat();
    for _ in 0..100 {
        assert!(matches!(session.receive(&mut &body[..]), Ok(Some(Event::Edit(_)))));
    }
    let field = [&65_536u32.to_be_bytes(), &b"hA\0"[..], &[b'x'; 65_532], b"\0"].concat();
    let taken = (0..100).take_while(|_| session.receive(&mut &field[..]).is_ok()).count();
    assert_eq!(taken, 63);
    assert_eq!(session.receive(&mut &b""[..]), Err(ProtocolError::TooManyEdits));
}

/// Events of a session at the end of a message, until it needs no more or breaks.
fn events(wire: &[u8], sizes: &[usize]) -> (Vec<Event>, Option<ProtocolError>) {
    let mut session = negotiated(Steps::SKIP);
    exchange(&mut session, &CONNECT, b"c");
    MESSAGE[..6].iter().for_each(|command| assert!(exchange(&mut session, command, b"c").is_some()));
    assert_eq!(send(&mut session, &MESSAGE[6]).unwrap().0, Expect::Answer);
    let (mut events, mut rest, mut sizes) = (Vec::new(), wire, sizes.iter().cycle());
    while !rest.is_empty() {
        let (mut piece, behind) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
        rest = behind;
        loop {
            match session.receive(&mut piece) {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => return (events, Some(error)),
            }
        }
        assert!(piece.is_empty() && session.unread.capacity() <= 2 * Session::ANSWER_MAX_BYTES + 8);
    }
    (events, None)
}

/// Packets, mostly of kinds that exist, and a last one that may be cut off.
fn packets() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![9 => proptest::sample::select(b"+-24abcdefhimpqrsty".to_vec()), 1 => any::<u8>()];
    let data = prop_oneof![
        3 => Just(Vec::new()),
        3 => vec(proptest::sample::select(b"\0\0\0aA:<@>\n 5".to_vec()), 0..24),
        1 => Just(b"X-A\0b\0".to_vec()),
        1 => Just(b"\0\0\0\x01X-A\0b\0".to_vec()),
        1 => Just(b"550-5.7.1 a\r\n550 5.7.1 b\0".to_vec()),
    ];
    let packet = (kind, data).prop_map(|(kind, data)| {
        let mut packet = Vec::new();
        push_packet(&mut packet, kind, DATA_MAX_BYTES, |out| out.extend_from_slice(&data)).unwrap();
        packet
    });
    (vec(packet, 0..8), 0..5usize).prop_map(|(packets, cut)| {
        let mut wire = packets.concat();
        wire.truncate(wire.len().saturating_sub(cut));
        wire
    })
}

proptest! {
    #[test]
    fn any_split_of_the_answers_gives_the_same_events(wire in packets(), sizes in vec(1..20usize, 1..5)) {
        prop_assert_eq!(events(&wire, &sizes), events(&wire, &[wire.len().max(1)]));
    }

    #[test]
    fn any_octets_are_events_or_an_error(wire in vec(any::<u8>(), 0..200)) {
        events(&wire, &[7]);
    }

    #[test]
    fn any_negotiation_is_one_or_an_error(data in vec(any::<u8>(), 0..40), version in 0..9u32) {
        let mut out = Vec::new();
        let mut session = Session::new(&Offer { version, ..Offer::default() }, &mut out);
        let length = u32::try_from(data.len() + 1).unwrap().to_be_bytes();
        let wire = [&length, &b"O"[..], &data].concat();
        if session.receive(&mut &wire[..]).is_ok() {
            prop_assert!((2..=6).contains(&session.version()));
        }
    }
}
