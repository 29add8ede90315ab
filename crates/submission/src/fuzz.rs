//! Fuzz targets for what local users hand in: under `cargo test` on random input, under cargo-bolero
//! with libFuzzer (`cargo bolero test -p submission fuzz::TARGET`).

use crate::{
    envelope::{Header, wire_form},
    sendmail::{
        addresses,
        message::{self, LocalUser, ParsedMessage},
    },
};
use control::Request;

/// Words of address lists and of content: random bytes hardly ever spell one.
const WORDS: [&str; 33] = [
    "To: ",
    "Bcc: ",
    "Resent-Bcc : ",
    "From: ",
    "From ",
    "\n.\n",
    "<",
    ">",
    "@",
    ",",
    ";",
    ":",
    "(",
    ")",
    "\"",
    "\\",
    "[",
    "]",
    ".",
    " ",
    "\t",
    "\r\n ",
    "\r\n",
    "\n",
    "\0",
    "ä",
    "a",
    "a@b.test",
    "undisclosed-recipients:;",
    "A Name <a@b.test>",
    "(comment (nested))",
    "\"quoted, name\"",
    "<@route.test:a@b.test>",
];

fn spell(bytes: &[u8]) -> String {
    let word = |b: &u8| match WORDS.get(usize::from(*b) % (WORDS.len() + 4)) {
        Some(word) => (*word).to_owned(),
        None => char::from(*b).to_string(),
    };
    bytes.iter().map(word).collect()
}

/// Each input as it is, if it is text, and as words.
fn for_each_text(check: fn(&str)) {
    bolero::check!().with_max_len(512).for_each(|bytes: &[u8]| {
        if let Ok(text) = std::str::from_utf8(bytes) {
            check(text);
        }
        check(&spell(bytes));
    });
}

/// A list that is read stays a list with the same addresses when its bare words get a domain, and
/// then none is left without one.
#[test]
fn address_list() {
    for_each_text(|text| {
        let Ok(found) = addresses::parse(text) else {
            assert_eq!(addresses::qualify(text, "host.test"), None);
            return;
        };
        assert!(found.iter().all(|address| !address.is_empty()), "{found:?}");
        let Some(qualified) = addresses::qualify(text, "host.test") else {
            assert!(found.iter().all(|address| addresses::has_domain(address)), "{found:?}");
            return;
        };
        let full = |a: &String| if addresses::has_domain(a) { a.clone() } else { format!("{a}@host.test") };
        let wanted: Vec<String> = found.iter().map(full).collect();
        assert_eq!(addresses::parse(&qualified), Ok(wanted), "{text:?} became {qualified:?}");
    });
}

/// The message that `sendmail` makes of its standard input is complete and stays unchanged when it is read again, and
/// it does not name the recipients of blind copies.
#[test]
fn message_on_standard_input() {
    for_each_text(|text| {
        let raw = message::read(&mut text.as_bytes(), false, 10_000).expect("it is shorter");
        let mut draft = ParsedMessage::parse(&wire_form(raw));
        let _ = draft.recipients();
        draft.complete(&LocalUser { address: "a@b.test", user: "a", full_name: "", hostname: "b.test" });
        let wire = wire_form(draft.into_bytes());
        let again = ParsedMessage::parse(&wire);
        assert_eq!(wire_form(again.clone().into_bytes()), wire);
        for name in ["from", "date", "message-id"] {
            assert!(again.has(name), "no {name} in {wire:?}");
        }
        assert!(!again.has("bcc") && !again.has("resent-bcc"), "{wire:?}");
    });
}

/// A key and what it may say; the empty text leaves it out.
type Choices = (&'static str, &'static [&'static str]);

const ENVELOPE: [Choices; 7] = [
    ("postrider", &["1", "1", "1", "2"]),
    ("size_bytes", &["0", "5", "-1"]),
    ("sender", &[r#""a@b.test""#, r#""""#, r#""ä@b.test""#, r#""a b@c""#]),
    (
        "recipients",
        &[
            r#"[{"address":"c@d.test"}]"#,
            r#"[{"address":"postmaster","notify":"success,delay","orcpt":"rfc822;x"},{"address":"ä@d.test"}]"#,
            r#"[{"address":"c@d.test","notify":"never","orcpt":"\u0000"}]"#,
            "[]",
        ],
    ),
    ("body", &[r#""7bit""#, r#""8BITMIME""#, r#""binarymime""#, r#""9bit""#]),
    ("ret", &["", r#""full""#, r#""HDRS""#, "null"]),
    ("envid", &["", r#""x""#, r#""""#]),
];

const SELECTION: [Choices; 6] = [
    ("all", &["", "true", "1"]),
    ("ids", &["", r#"["0abqxsh585000"]"#, r#"["0ABQXSH585000","x"]"#]),
    ("sender", &["", r#""<>""#, r#""*@b\n""#]),
    ("older_ms", &["", "1", "-1"]),
    ("status", &["", r#""held""#, r#""gone""#]),
    ("destination", &["", r#""mx:*""#]),
];

const ASKS: [&str; 8] = ["list", "count", "apply", "show", "flush", "status", "reload", "shout"];
const ACTIONS: [&str; 6] = ["hold", "release", "retry", "bounce", "delete", "love"];

fn object(choices: &[Choices], next: &mut dyn FnMut() -> u8) -> String {
    let fields = choices.iter().filter_map(|(key, values)| {
        let value = values[usize::from(next()) % values.len()];
        (!value.is_empty()).then(|| format!("\"{key}\":{value}"))
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

/// As [`for_each_text`], and what `make` makes of the bytes; it gets the bytes one by one, then zeros.
fn for_each_line(make: fn(&mut dyn FnMut() -> u8) -> String, check: fn(&str)) {
    bolero::check!().with_max_len(512).for_each(|bytes: &[u8]| {
        if let Ok(text) = std::str::from_utf8(bytes) {
            check(text);
        }
        let mut rest = bytes.iter().copied();
        check(&make(&mut || rest.next().unwrap_or_default()));
    });
}

/// An envelope that is taken is written down as the same envelope.
#[test]
fn envelope_line() {
    for_each_line(
        |next| object(&ENVELOPE, next),
        |line| {
            let Ok(header) = Header::parse(line.as_bytes()) else { return };
            assert_eq!(Header::parse(&header.to_line()), Ok(header.clone()));
            if let Ok(envelope) = header.envelope() {
                assert_eq!(Header::new(&envelope, header.size_bytes).envelope(), Ok(envelope));
            }
        },
    );
}

/// A request that is read is written as one line that reads as the same.
#[test]
fn control_line() {
    let make = |next: &mut dyn FnMut() -> u8| {
        let ask = ASKS[usize::from(next()) % ASKS.len()];
        let more = match ask {
            "list" | "count" => format!(",\"selection\":{}", object(&SELECTION, next)),
            "apply" => {
                let action = ACTIONS[usize::from(next()) % ACTIONS.len()];
                format!(",\"action\":\"{action}\",\"selection\":{}", object(&SELECTION, next))
            }
            "show" => ",\"id\":\"0abqxsh585000\"".to_owned(),
            _ => String::new(),
        };
        format!("{{\"op\":\"{ask}\"{more}}}")
    };
    for_each_line(make, |line| {
        let Ok(request) = serde_json::from_str::<Request>(line) else { return };
        let written = serde_json::to_string(&request).expect("requests are JSON");
        assert!(!written.contains('\n'));
        assert_eq!(serde_json::from_str::<Request>(&written).expect("it was just written"), request);
    });
}

/// In wire form there is no CR or LF but in CRLF, and no NUL, and doing it again changes nothing.
#[test]
fn content_to_wire_form() {
    for_each_text(|text| {
        let wire = wire_form(text.as_bytes().to_vec());
        let lone = String::from_utf8_lossy(&wire).replace("\r\n", "");
        assert!(!lone.contains(['\r', '\n', '\0']), "{wire:?}");
        assert_eq!(wire_form(wire.clone()), wire);
    });
}
