//! Fuzz targets for what local users hand in: under `cargo test` on random input, under cargo-bolero
//! with libFuzzer (`cargo bolero test -p postrider fuzz::TARGET`).

use crate::{
    control::{
        Request,
        submission::{Header, wire_form},
    },
    sendmail::addresses,
};

/// Words of address lists and of envelope lines: random bytes hardly ever spell one.
const WORDS: [&str; 40] = [
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
    "\n",
    "\0",
    "ä",
    "a",
    "a@b.test",
    "root",
    "undisclosed-recipients:;",
    "A Name <a@b.test>",
    "(comment (nested))",
    "\"quoted, name\"",
    "<@route.test:a@b.test>",
    "[127.0.0.1]",
    "{",
    "}",
    "\"postrider\":1",
    "\"size_bytes\":5",
    "\"sender\":\"a@b.test\"",
    "\"recipients\":[{\"address\":\"c@d.test\"}]",
    "\"body\":\"7bit\"",
    "\"notify\":\"never\"",
    "\"list\"",
    "\"selection\"",
    "\"ids\":[\"0abqxsh585000\"]",
    "null",
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

/// An envelope that is taken is written down as the same envelope.
#[test]
fn envelope_line() {
    for_each_text(|text| {
        let as_object = format!("{{{}}}", text.replace(['{', '}'], ""));
        for line in [text, &as_object] {
            let Ok(header) = Header::parse(line.as_bytes()) else { continue };
            assert_eq!(Header::parse(&header.to_line()), Ok(header.clone()));
            if let Ok(envelope) = header.envelope() {
                let again = Header::new(&envelope, header.size_bytes).envelope();
                assert_eq!(
                    again.map(|e| (e.reverse_path, e.recipients)),
                    Ok((envelope.reverse_path, envelope.recipients))
                );
            }
        }
    });
}

/// A request that is read is written as one line that reads as the same.
#[test]
fn control_line() {
    for_each_text(|text| {
        let Ok(request) = serde_json::from_str::<Request>(text) else { return };
        let line = serde_json::to_string(&request).expect("requests are JSON");
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Request>(&line).expect("it was just written"), request);
    });
}

/// In wire form there is no CR or LF but in CRLF, and doing it again changes nothing.
#[test]
fn content_to_wire_form() {
    for_each_text(|text| {
        let wire = wire_form(text.as_bytes().to_vec());
        let lone = String::from_utf8_lossy(&wire).replace("\r\n", "");
        assert!(!lone.contains(['\r', '\n']), "{wire:?}");
        assert_eq!(wire_form(wire.clone()), wire);
    });
}
