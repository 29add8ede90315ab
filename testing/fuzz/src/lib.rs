//! One fuzz target for each parser of untrusted bytes, and one for the message engine, as a function of bytes that
//! panics when an invariant breaks. `cargo test -p fuzz` runs each on its corpus and on random input; with
//! cargo-bolero the same targets run under libFuzzer: `cargo bolero test -p fuzz TARGET`.

mod authn;
mod client;
mod directories;
mod dns;
mod engine;
mod history;
mod import;
mod limits;
mod maps;
mod milter;
mod notices;
mod rules;
mod sasl;
mod settings;
mod seven_bit;
mod store;

pub use self::authn::{authentication_results, dkim_signatures, dmarc_records, spf_records};
pub use self::dns::dns_answers;
pub use self::history::history_segment;
pub use self::limits::limit_files;
pub use self::maps::{alias_targets, aliases_file, cdb_file, map_files, socketmap_reply};
pub use self::milter::{hook_answer, milter_answers, rspamd_answer};
pub use client::{client_conversation, client_replies, client_session};
pub use directories::{spool_envelope, spool_intent, spool_totals};
pub use engine::engine_events;
pub use import::{
    exim_configuration, exim_queue, postfix_configuration, postfix_queue, sendmail_configuration,
    sendmail_queue,
};
pub use notices::notice_templates;
pub use rules::{rule_program, rule_values};
pub use sasl::{introspection_answer, passwd_file, sasl_client, sasl_server};
pub use settings::configuration;
pub use seven_bit::seven_bit_content;
pub use store::{spool_digest, spool_format, spool_recovery};

use mail::{ContentTraits, Edit, Edits, Field, Mailbox, Reply, UnixMillis, header::ContentScanner};
use smtp::{
    Limits, command,
    server::{
        Auth, AuthInput, Connection, Keyword, MechanismNeed, OfferedMechanism, Profile, Step,
        content::{BareLf, ChunkCheck, ChunkNormalizer, DataDecoder, Piece},
        replies,
    },
};
use std::sync::Arc;

/// Command lines: a command or a 2yz or 5yz reply, and whatever is taken prints nothing dangerous.
pub fn command_line(bytes: &[u8]) {
    for utf8 in [false, true] {
        match command::parse(bytes, &Limits::default(), utf8) {
            Ok(command::Command::Mail(envelope, _)) => printable(envelope.reverse_path.as_str()),
            Ok(command::Command::Rcpt(recipient)) => {
                printable(recipient.path.as_str());
                recipient.orcpt.iter().for_each(|orcpt| printable(orcpt));
            }
            Ok(command::Command::XClient(client) | command::Command::XForward(client)) => {
                printable(&format!("{client:?}"));
            }
            Ok(_) => {}
            Err(reply) => assert!(reply.code >= 500 || reply == replies::WRONG_PROTOCOL),
        }
    }
}

fn printable(text: &str) {
    assert!(!text.chars().any(char::is_control), "{text:?}");
}

/// Addresses: what is read prints as it was read, and reads again.
pub fn address(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(mailbox) = Mailbox::parse(text, true) {
        assert_eq!(mailbox.as_str(), text);
        assert_eq!(format!("{}@{}", mailbox.local(), mailbox.domain().as_str()), text);
        assert!(mailbox.domain().key().is_ascii());
        printable(text);
    }
}

/// DATA's decoder against the definition: the content ends at the first CRLF.CRLF, a dot at the
/// start of a CRLF line goes. The first byte says how the input is split.
pub fn data_content(bytes: &[u8]) {
    let Some((split, wire)) = bytes.split_first() else { return };
    let decoded = decode(wire, usize::from(*split).max(1));
    assert_eq!(decoded, decode(wire, wire.len().max(1)));
    let whole = [b"\r\n", wire].concat();
    let end = whole.windows(5).position(|w| w == b"\r\n.\r\n");
    assert_eq!(decoded.is_some(), end.is_some());
    if let (Some((content, _)), Some(end)) = (decoded, end) {
        let stuffed = &whole[2..(end + 2).max(2)];
        let mut want = Vec::new();
        for (i, b) in stuffed.iter().enumerate() {
            let at_start = i == 0 || stuffed[..i].ends_with(b"\r\n");
            if !(at_start && *b == b'.') {
                want.push(*b);
            }
        }
        assert_eq!(content, want);
    }
    let normalizing = || DataDecoder::new(BareLf::Normalize, true);
    let normalized = decode_with(normalizing(), wire, usize::from(*split).max(1));
    assert_eq!(normalized, decode_with(normalizing(), wire, wire.len().max(1)));
    assert_eq!(normalized.is_some(), end.is_some());
    if let Some((content, _)) = normalized {
        assert!(!has_bare_cr_or_lf(&content), "{content:?}");
    }
}

fn has_bare_cr_or_lf(content: &[u8]) -> bool {
    let without_pairs = String::from_utf8_lossy(content).replace("\r\n", "");
    without_pairs.contains(['\r', '\n'])
}

/// The content and whether it has a fault; none when the end did not come.
fn decode(wire: &[u8], size: usize) -> Option<(Vec<u8>, bool)> {
    decode_with(DataDecoder::default(), wire, size)
}

fn decode_with(mut decoder: DataDecoder, wire: &[u8], size: usize) -> Option<(Vec<u8>, bool)> {
    let (mut buffer, mut content) = (Vec::new(), Vec::new());
    for piece in wire.chunks(size) {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.next(&buffer) {
                Piece::Content { skip, length } => {
                    content.extend_from_slice(&buffer[skip..skip + length]);
                    buffer.drain(..skip + length);
                }
                Piece::Instead(replacement) => {
                    content.extend_from_slice(replacement);
                    buffer.remove(0);
                }
                Piece::End(_) => return Some((content, decoder.fault().is_some())),
                Piece::More => break,
            }
        }
        assert!(buffer.len() <= 2);
    }
    None
}

/// BDAT's check and the content scanner agree on what is binary, at any split.
pub fn chunk_content(bytes: &[u8]) {
    let Some((split, content)) = bytes.split_first() else { return };
    let size = usize::from(*split).max(1);
    let (mut check, mut scanner) = (ChunkCheck::default(), ContentScanner::default());
    for piece in content.chunks(size) {
        check.check(piece);
        scanner.scan(piece);
    }
    let traits: ContentTraits = scanner.traits();
    assert_eq!(check.finish().is_some(), traits.is_binary, "{content:?}");
    let (mut normalizer, mut normalized) = (ChunkNormalizer::default(), Vec::new());
    for piece in content.chunks(size) {
        let mut rest = piece;
        while !rest.is_empty() {
            let (text, used) = normalizer.next(rest);
            normalized.extend_from_slice(text);
            rest = &rest[used..];
        }
    }
    normalized.extend_from_slice(normalizer.finish().unwrap_or_default());
    assert!(!has_bare_cr_or_lf(&normalized), "{normalized:?}");
    if !traits.is_binary {
        assert_eq!(normalized, content);
    }
}

/// The keywords of commands and parameters that a site chooses.
const EXTENSIONS: [Keyword; 8] = [
    Keyword::FutureRelease,
    Keyword::DeliverBy,
    Keyword::MtPriority,
    Keyword::Etrn,
    Keyword::Vrfy,
    Keyword::Expn,
    Keyword::XClient,
    Keyword::XForward,
];

/// A whole session on arbitrary bytes: replies are well formed, nothing is accepted without
/// recipients, and the state never takes a wrong turn.
pub fn server_session(bytes: &[u8]) {
    let Some((split, wire)) = bytes.split_first() else { return };
    let limits = Limits { message_bytes: 100, command_line_bytes: 200, ..Limits::default() };
    let mut profile = Profile::new("mx.test");
    if split.is_multiple_of(2) {
        profile = profile.with_starttls();
    }
    if split % 3 == 0 {
        profile = profile.without(if split % 5 == 0 { Keyword::Chunking } else { Keyword::BinaryMime });
    }
    let offers_auth = split % 7 < 3;
    if offers_auth {
        let offered = |name: &str, needs| OfferedMechanism { name: name.into(), needs };
        let mechanisms =
            vec![offered("PLAIN", MechanismNeed::Nothing), offered("SCRAM-SHA-1-PLUS", MechanismNeed::Tls)];
        profile = profile.with_auth(Auth { mechanisms, in_clear_text: split % 7 > 0 });
        profile.needs_login = split % 11 < 4;
        profile.needs_tls = profile.needs_login && split % 7 == 0;
    }
    let is_extended = split % 13 < 5;
    if is_extended {
        profile.extensions.hold_max_seconds = 86_400;
        profile = EXTENSIONS.into_iter().fold(profile, Profile::with);
    }
    let (needs_login, needs_tls) = (profile.needs_login, profile.needs_tls);
    let mut is_tls = false;
    let mut connection = Connection::new(limits.into(), Arc::new(profile), false);
    connection.set_bare_lf(if split % 3 == 0 { BareLf::Normalize } else { BareLf::Reject });
    let (mut unread, mut received, mut open) = (Vec::new(), 0, false);
    for piece in wire.chunks(usize::from(split / 2).max(1)) {
        unread.extend_from_slice(piece);
        let mut input = &unread[..];
        let mut next = None;
        loop {
            match next.take().unwrap_or_else(|| connection.step(&mut input)) {
                Step::NeedInput => break,
                Step::Close => return well_formed(connection.output()),
                Step::AskTime => {
                    assert!(is_extended);
                    next = connection.set_time(UnixMillis(1_795_242_354_000));
                }
                Step::Query(_) | Step::NoteForwarded(_) => {
                    assert!(is_extended);
                    connection.answer(replies::OK);
                }
                Step::ChangeClient(_) => {
                    assert!(is_extended && connection.session().envelope().is_none());
                    connection.restart(None);
                    assert!(!connection.session().is_authenticated());
                }
                Step::JudgeHello => connection.answer(replies::OK),
                Step::Authenticate(AuthInput::Begin { initial: None, .. }) => {
                    assert!(offers_auth);
                    connection.challenge(Vec::new());
                }
                Step::Authenticate(input) => {
                    assert!(!needs_tls || is_tls);
                    let is_begin = matches!(input, AuthInput::Begin { .. });
                    let failed = Reply::fixed(535, mail::Enhanced(5, 7, 8), "Authentication failed");
                    connection.answer(if is_begin { replies::AUTHENTICATED } else { failed });
                }
                Step::JudgeSender => {
                    let options =
                        connection.session().envelope().and_then(|envelope| envelope.options.as_ref());
                    let is_scheduled = |options: &mail::DeliveryOptions| {
                        options.release.is_some()
                            || options.deliver_by.is_some()
                            || options.priority.is_some()
                    };
                    assert!(is_extended || !options.is_some_and(|options| is_scheduled(options)));
                    assert!(!needs_login || connection.session().is_authenticated());
                    assert!(!needs_tls || is_tls);
                    connection.answer(replies::SENDER_OK);
                }
                Step::JudgeRecipient => connection.answer(replies::RECIPIENT_OK),
                Step::StartContent => (open, received) = (true, 0),
                Step::Content(bytes) => {
                    assert!(open);
                    received += bytes.len();
                    assert!(received <= 100);
                }
                Step::Refused(refused) => assert!(refused.envelope.is_some() && !refused.reply.is_positive()),
                Step::DiscardContent(_) => open = false,
                Step::JudgeContent => {
                    assert!(open);
                    open = false;
                    assert!(!connection.accept_content().recipients.is_empty());
                    connection.answer(Reply::new(250, mail::Enhanced(2, 0, 0), "Ok"));
                }
                Step::StartTls => {
                    assert!(input.is_empty(), "nothing sent in clear text survives");
                    is_tls = true;
                    connection.tls_established();
                }
            }
        }
        unread = input.to_vec();
        well_formed(connection.output());
    }
}

/// A header of the PROXY protocol: it is read or refused, whatever its length says.
pub fn proxy_header(bytes: &[u8]) {
    use smtp::proxy::{
        MAX_BYTES, Proxied, SIGNATURE, V1_MAX_BYTES, V2_HEAD_BYTES, parse_v1, parse_v2, v2_rest_bytes,
    };
    if let Ok(Proxied::Client { peer, local }) = parse_v1(bytes) {
        assert!(bytes.len() <= V1_MAX_BYTES && peer.is_ipv4() == local.is_ipv4());
    }
    let Some((head, rest)) = bytes.split_at_checked(V2_HEAD_BYTES) else { return };
    let mut head: [u8; V2_HEAD_BYTES] = head.try_into().expect("16 octets");
    for is_signed in [false, true] {
        if is_signed {
            head[..SIGNATURE.len()].copy_from_slice(&SIGNATURE);
        }
        let Ok(length) = v2_rest_bytes(&head) else { continue };
        assert!(V2_HEAD_BYTES + length <= MAX_BYTES && head[..SIGNATURE.len()] == SIGNATURE);
        let read = parse_v2(&head, rest.get(..length).unwrap_or(rest));
        assert!(length <= rest.len() || read.is_err());
    }
}

/// Changes to a header: what is not changed stays, and no text becomes more than one field.
pub fn header_edit(bytes: &[u8]) {
    let Some((at, rest)) = bytes.split_first() else { return };
    let (value, header) = rest.split_at(usize::from(*at).min(rest.len()));
    assert_eq!(Edits::default().apply(header, 0), header);
    let mut scanner = ContentScanner::default();
    scanner.scan(header);
    let header = &header[..scanner.final_header_bytes()];
    let Ok(field) = Field::new("X-Fuzz", &String::from_utf8_lossy(value)) else { return };
    let count = |header: &[u8]| {
        let mut scanner = ContentScanner::default();
        scanner.scan(header);
        (scanner.final_header_bytes() == header.len(), scanner.summary().received_count)
    };
    for edit in [
        Edit::Prepend(field.clone()),
        Edit::Append(field.clone()),
        Edit::Replace { occurrence: 0, field: field.clone() },
    ] {
        let is_added = matches!(edit, Edit::Prepend(_) | Edit::Append(_));
        let edited = [edit].into_iter().collect::<Edits>().apply(header, 0);
        assert_eq!(count(&edited), count(header), "{header:?}: {edited:?}");
        if is_added {
            let removed: Edits =
                [Edit::Remove { name: "x-fuzz".into(), occurrence: None }].into_iter().collect();
            let (back, before) = (removed.apply(&edited, 0), removed.apply(header, 0));
            assert!(back == before || back == [&before[..], b"\r\n"].concat(), "{header:?}: {edited:?}");
        }
    }
}

/// Checks that every line of the replies has a code and ends in CRLF.
fn well_formed(output: &[u8]) {
    let text = std::str::from_utf8(output).expect("replies are UTF-8");
    for line in text.split_inclusive("\r\n") {
        let line = line.strip_suffix("\r\n").expect("a whole line");
        assert!(line.len() >= 4 && line.as_bytes()[..3].iter().all(u8::is_ascii_digit), "{line:?}");
        printable(line);
    }
}

/// Words of the language: random bytes hardly ever spell one.
const WORDS: &[&str] = &[
    "\r\n",
    ".",
    "\r\n.\r\n",
    "\r",
    "\n",
    "\0",
    " ",
    "<",
    ">",
    "@",
    "\"",
    "\\",
    ":",
    "+",
    "=",
    ";",
    ",",
    "[127.0.0.1]",
    "EHLO c\r\n",
    "HELO c\r\n",
    "MAIL FROM:<a@b>\r\n",
    "RCPT TO:<c@d>\r\n",
    "DATA\r\n",
    "BDAT 3 LAST\r\n",
    "BDAT 2\r\n",
    "RSET\r\n",
    "STARTTLS\r\n",
    "AUTH PLAIN\r\n",
    "AUTH PLAIN AGEAYg==\r\n",
    "AGEAYg==\r\n",
    "QUIT\r\n",
    "NOOP\r\n",
    "MAIL FROM:",
    "RCPT TO:",
    "BDAT ",
    "<a@b>",
    " SIZE=",
    " BODY=BINARYMIME",
    " SMTPUTF8",
    " RET=FULL",
    " ENVID=",
    " NOTIFY=",
    " ORCPT=rfc822;",
    "+2B",
    "ä",
    "xn--",
    "a",
    "1",
    "abc",
    "..",
    "LAST",
    "220 mx\r\n",
    "250-mx\r\n",
    "250-PIPELINING\r\n",
    "250-STARTTLS\r\n",
    "250-CHUNKING\r\n",
    "250-SMTPUTF8\r\n",
    "250 8BITMIME\r\n",
    "250 2.0.0 Ok\r\n",
    "250 ",
    "354 go\r\n",
    "421 4.3.2 closing\r\n",
    "450 4.2.0 later\r\n",
    "550 5.1.1 no\r\n",
];

/// Spells the bytes as words, and a few as themselves.
pub fn spell(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.first().map(|b| vec![*b]).unwrap_or_default();
    for b in bytes.iter().skip(1) {
        match WORDS.get(usize::from(*b) % (WORDS.len() + 8)) {
            Some(word) => out.extend_from_slice(word.as_bytes()),
            None => out.push(*b),
        }
    }
    out
}
