use super::*;
use crate::{Content, header::LINE_LENGTH_MAX};
use mail_parser::{MessageParser, MimeHeaders as _, PartType};
use proptest::prelude::*;

fn plan(content: &[u8], size: usize) -> Result<Plan, Unconvertible> {
    let mut scan = Scan::default();
    content.chunks(size.max(1)).for_each(|piece| scan.push(piece));
    scan.finish()
}

fn convert(content: &[u8], size: usize) -> Result<Vec<u8>, Unconvertible> {
    let mut converter = Converter::new(Arc::new(plan(content, size)?));
    let mut out = Vec::new();
    content.chunks(size.max(1)).for_each(|piece| out.extend(converter.push(piece)));
    out.extend(converter.finish());
    Ok(out)
}

fn text(content: &str) -> Result<String, Unconvertible> {
    convert(content.as_bytes(), 7).map(|out| String::from_utf8(out).unwrap())
}

/// Only what RFC 5321 §4.5.3.1.6 and RFC 5322 §2.3 let every server take.
fn assert_seven_bit(converted: &[u8]) {
    let traits = Content::from_bytes(converted.to_vec()).traits;
    assert!(!traits.is_8bit && !traits.is_binary && !traits.lacks_final_crlf, "{traits:?}");
}

/// Returns each part's type, and its text or octets, recursively, as another implementation reads them.
fn read(content: &[u8]) -> Vec<(String, Vec<u8>)> {
    let message = MessageParser::new().parse(content).expect("a message");
    let mut out = Vec::new();
    read_message(&message, &mut out);
    out
}

fn read_message(message: &mail_parser::Message<'_>, out: &mut Vec<(String, Vec<u8>)>) {
    out.push(("subject".to_owned(), message.subject().unwrap_or_default().into()));
    for part in &message.parts {
        let name = part.content_type().map_or(String::new(), |t| format!("{}/{:?}", t.c_type, t.c_subtype));
        match &part.body {
            PartType::Message(inner) => read_message(inner, out),
            PartType::Multipart(parts) => out.push((name, vec![parts.len() as u8])),
            _ => out.push((name, part.contents().to_vec())),
        }
    }
}

#[test]
fn text_becomes_quoted_printable_and_the_rest_base64() {
    let header = "Subject: x\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n";
    let encoded = format!("{header}Content-Transfer-Encoding: quoted-printable\r\n\r\n");
    let body = "\r\nGr\u{fc}\u{df}e an alle, mit Leerzeichen \r\n.dot = \r\n-- \r\nEnde ohne Zeilenende";
    assert_eq!(
        text(&format!("{header}Content-Transfer-Encoding: 8bit\r\n{body}")).unwrap(),
        format!(
            "{encoded}Gr=C3=BC=C3=9Fe an alle, mit Leerzeichen=20\r\n=2Edot =3D=20\r\n=2D-=20\r\nEnde ohne Zeilenende=\r\n"
        )
    );
    let image = "MIME-Version: 1.0\r\nContent-Type: image/png\r\nContent-Transfer-Encoding: binary\r\n\r\n";
    let content = [image.as_bytes(), &[0, 255, 13, 10, 10]].concat();
    let want = image.replace("binary", "base64") + "AP8NCgo=\r\n";
    assert_eq!(String::from_utf8(convert(&content, 3).unwrap()).unwrap(), want);
}

#[test]
fn text_in_other_alphabets_becomes_base64() {
    let header = "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n";
    let converted = text(&format!("{header}\r\n{}", "Привет\r\n".repeat(20))).unwrap();
    assert!(
        converted.starts_with(&format!("{header}Content-Transfer-Encoding: base64\r\n\r\n0J/RgNC4")),
        "{converted}"
    );
    assert!(converted.lines().all(|line| line.len() <= 76));
}

#[test]
fn only_the_parts_that_need_it_are_changed() {
    let content = "Subject: x\r\nMIME-Version: 1.0\r\nContent-Transfer-Encoding: 8bit\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n\
         preamble\r\npr\u{e4}ambel\r\n--b\r\nContent-Type: text/plain\r\n\r\nplain\r\n--b  \r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Transfer-Encoding: 8bit\r\nContent-Id: <x>\r\n\r\n\u{e4}\u{20ac} and enough that is plain ASCII\r\n\r\n\
         --b\r\nContent-Type: message/rfc822\r\nContent-Transfer-Encoding: 8bit\r\n\r\nSubject: inner\r\n\r\n\u{fc} here, and enough ASCII\r\n--b--\r\nepilogue\r\n";
    let want = "Subject: x\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n\
         preamble\r\n--b\r\nContent-Type: text/plain\r\n\r\nplain\r\n--b  \r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Id: <x>\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=C3=A4=E2=82=AC and enough that is plain ASCII\r\n\r\n\
         --b\r\nContent-Type: message/rfc822\r\n\r\nSubject: inner\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Transfer-Encoding: quoted-printable\r\n\r\n=C3=BC here, and enough ASCII\r\n--b--\r\nepilogue\r\n";
    assert_eq!(text(content).unwrap(), want);
    assert_eq!(text(want).unwrap(), want, "nothing is left to do");
    let latin = [&b"Subject: x\r\n\r\n"[..], b"\xe4 in an unknown charset\r\n"].concat();
    let converted = String::from_utf8(convert(&latin, 5).unwrap()).unwrap();
    assert!(
        converted.contains("charset=unknown-8bit\r\n")
            && converted.ends_with("=E4 in an unknown charset\r\n")
    );
}

#[test]
fn signatures_are_found() {
    let is_signed = |content: &str| plan(content.as_bytes(), 9).unwrap().is_signed();
    assert!(is_signed("DKIM-Signature: v=1\r\n\r\n\u{e4}\r\n"));
    let signed = "Content-Type: multipart/signed; boundary=s\r\n\r\n--s\r\n\r\n\u{e4}\r\n--s--\r\n";
    assert!(is_signed(signed));
    assert!(is_signed(&format!("Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n{signed}--b--\r\n")));
    let forwarded = "Content-Type: message/rfc822\r\n\r\nDKIM-Signature: v=1\r\n\r\n\u{e4}\r\n";
    assert!(!is_signed(forwarded) && !is_signed("Subject: x\r\n\r\nDKIM-Signature: no\r\n"));
}

#[test]
fn what_might_change_its_meaning_is_not_converted() {
    use Unconvertible::*;
    let multipart = |body: &str| format!("Content-Type: multipart/mixed; boundary=b\r\n\r\n{body}");
    for (content, why) in [
        ("Subject: \u{e4}\r\n\r\nx\r\n".to_owned(), Header),
        ("Subject: x\ny: z\r\n\r\nx\r\n".to_owned(), Header),
        ("no field\r\nSubject: x\r\n\r\n\u{e4}\r\n".to_owned(), Syntax),
        ("Subject: x\r\nno field\r\nTo: a@b.test\r\n\r\n\u{e4}\r\n".to_owned(), Syntax),
        ("Subject: x\r\n y\r\nno field\r\n z\r\n\r\n\u{e4}\r\n".to_owned(), Syntax),
        ("Subject: x\r\nno field\r\nMIME-Version: 1.0\r\n\r\n\u{e4}\r\n".to_owned(), Syntax),
        ("Subject: x\r\nno field\r\nContent-Type: text/html\r\n\r\n\u{e4}\r\n".to_owned(), Syntax),
        ("Content-Type: text/plain\r\nContent-Type: text/html\r\n\r\n\u{e4}\r\n".to_owned(), Syntax),
        ("Content-Transfer-Encoding: quoted-printable\r\n\r\n\u{e4}\r\n".to_owned(), Encoded),
        ("Content-Transfer-Encoding: x-uuencode\r\n\r\n\u{e4}\r\n".to_owned(), Encoded),
        ("Content-Type: message/partial; id=x; number=1\r\n\r\n\u{e4}\r\n".to_owned(), Encoded),
        ("Content-Type: multipart/mixed\r\n\r\n\u{e4}\r\n".to_owned(), Encoded),
        (multipart("no parts: \u{e4}\r\n"), Boundary),
        (multipart("--b\r\n\r\n\u{e4}\r\n--bc\r\n\r\nx\r\n--b--\r\n"), Boundary),
        (multipart("--b\r\n\r\n\u{e4}\n--b\r\n\r\nx\r\n--b--\r\n"), Boundary),
        (multipart("--b\r\n\r\n\u{e4}\r\n--b\n\r\nx\r\n--b--\r\n"), Boundary),
        (multipart("--b\r\n\r\n\u{e4}\r\n--b--\r\n--b\r\n\r\nx\r\n"), Boundary),
        (multipart(&format!("--b\r\n{}--b--\r\n", multipart("--b\r\n\r\n\u{e4}\r\n--b--\r\n"))), Boundary),
    ] {
        assert_eq!(text(&content).err(), Some(why), "{content}");
    }
    let deep = |levels: usize| -> String {
        let part = |n| format!("Content-Type: multipart/mixed; boundary=\"{n}.\"\r\n\r\n--{n}.\r\n");
        (0..levels).map(part).collect::<String>() + "\r\n\u{e4}\r\n"
    };
    assert!(text(&deep(100)).is_ok());
    assert_eq!(text(&deep(101)).err(), Some(Size));
    assert_eq!(text(&format!("A: {}\r\n\r\n", "x".repeat(2 << 20))).err(), Some(Size));
}

#[test]
fn lines_that_are_too_long_are_encoded_too() {
    let content = format!("MIME-Version: 1.0\r\n\r\nshort\r\n{}\r\n", "x".repeat(LINE_LENGTH_MAX + 1));
    let converted = text(&content).unwrap();
    assert!(converted.lines().all(|line| line.len() <= 76), "{converted}");
    let kept = format!("MIME-Version: 1.0\r\n\r\nshort\r\n{}\r\n", "x".repeat(LINE_LENGTH_MAX));
    assert_eq!(text(&kept).unwrap(), kept);
}

/// Bodies with everything that encodings stumble over.
fn body() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-z .=\\t-]{0,30}".prop_map(String::from),
        2 => "[äöü€日]{1,10}".prop_map(String::from),
        3 => Just("\r\n".to_owned()),
        1 => Just("-".repeat(80)),
        1 => "x{60,90} ".prop_map(String::from),
        1 => Just("x".repeat(1100)),
        1 => Just("--b".to_owned()),
        1 => Just(" \r\n.\r\n".to_owned()),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn entity(depth: u32) -> BoxedStrategy<String> {
    let encoding = prop_oneof![
        Just(""),
        Just("Content-Transfer-Encoding: 8bit\r\n"),
        Just("content-transfer-encoding: 7BIT (not so)\r\n"),
        Just("Content-Transfer-Encoding:\r\n binary\r\n")
    ];
    let kind = prop_oneof![
        Just("text/plain; charset=utf-8"),
        Just("text/html;\r\n\tcharset=\"utf-8\""),
        Just("application/octet-stream; name=x"),
    ];
    let leaf = (kind, encoding.clone(), body())
        .prop_map(|(kind, encoding, body)| format!("Content-Type: {kind}\r\n{encoding}\r\n{body}"))
        .boxed();
    if depth == 0 {
        return leaf;
    }
    let parts = proptest::collection::vec(entity(depth - 1), 1..4);
    let multipart = (parts, encoding, any::<bool>())
        .prop_map(move |(parts, encoding, has_preamble)| {
            let boundary = format!("level_{depth}");
            let mut out = format!("Content-Type: multipart/mixed; boundary=\"{boundary}\"\r\n{encoding}\r\n");
            if has_preamble {
                out += "preamble\r\n\u{e4}\r\n";
            }
            for part in parts {
                out += &format!("--{boundary}\r\n{part}\r\n");
            }
            out + &format!("--{boundary}--\r\n")
        })
        .boxed();
    // The other implementation does not read a message that is all there is of a message.
    let inner = prop_oneof![leaf.clone(), multipart.clone()];
    let message = inner.prop_map(|inner| {
        format!("Content-Type: message/rfc822\r\n\r\nSubject: inner\r\nMIME-Version: 1.0\r\n{inner}")
    });
    prop_oneof![2 => leaf, 3 => multipart, 1 => message].boxed()
}

proptest! {
    #[test]
    fn another_implementation_reads_the_same_before_and_after(inner in entity(3), size in 1usize..100) {
        let content = format!("Subject: outer\r\nMIME-Version: 1.0\r\n{inner}");
        let converted = convert(content.as_bytes(), size).unwrap();
        assert_seven_bit(&converted);
        prop_assert!(!Content::from_bytes(converted.clone()).traits.has_long_line);
        let before = if content.ends_with("\r\n") { content.clone() } else { content.clone() + "\r\n" };
        let (was, is) = (read(content.as_bytes()), read(&converted));
        prop_assert!(was == is || read(before.as_bytes()) == is, "{content}\n=====\n{}\n{was:?}\n{is:?}", String::from_utf8_lossy(&converted));
        prop_assert_eq!(convert(&converted, size).unwrap(), converted);
    }

    #[test]
    fn binary_parts_come_out_octet_by_octet(
        body in proptest::collection::vec(prop_oneof![Just(0), Just(b'\r'), Just(b'\n'), Just(b'a'), Just(255)], 0..200),
        kind in prop_oneof![Just("application/octet-stream"), Just("image/png")],
        size in 1usize..50,
    ) {
        let head = format!("MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: {kind}\r\nContent-Transfer-Encoding: binary\r\n\r\n");
        let content = [head.as_bytes(), &body, b"\r\n--b--\r\n"].concat();
        let converted = convert(&content, size).unwrap();
        assert_seven_bit(&converted);
        let has_all = read(&converted).iter().any(|(_, octets)| *octets == body);
        prop_assert!(has_all, "{}", String::from_utf8_lossy(&converted));
    }

    #[test]
    fn any_split_converts_the_same(inner in entity(2), size in 1usize..2000) {
        let content = format!("Subject: outer\r\nMIME-Version: 1.0\r\n{inner}");
        prop_assert_eq!(convert(content.as_bytes(), size), convert(content.as_bytes(), usize::MAX));
    }

    #[test]
    fn arbitrary_octets_never_panic(body: Vec<u8>, is_message: bool) {
        let header: &[u8] = if is_message { b"Subject: x\r\n\r\n" } else { b"" };
        if let Ok(converted) = convert(&[header, &body].concat(), 11) {
            assert_seven_bit(&converted);
        }
    }
}
