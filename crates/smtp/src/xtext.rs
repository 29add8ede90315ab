//! xtext (RFC 3461 §4): `+` and two hex digits for what a parameter cannot carry.

/// Decodes xtext. `None` where it is malformed, or where a control character would come out: those
/// must never reach queue, log or DSN.
pub fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        match b {
            b'+' => {
                let mut digit = || upper_hex(bytes.next()?);
                out.push(digit()? << 4 | digit()?);
            }
            b'=' | 0..=b' ' | 0x7f => return None,
            _ => out.push(b),
        }
    }
    let out = String::from_utf8(out).ok()?;
    (!out.chars().any(char::is_control)).then_some(out)
}

/// Only upper case is xtext; lower case was a way to smuggle (RFC 3461 §4 "hexchar").
fn upper_hex(b: u8) -> Option<u8> {
    match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'A'..=b'F' => Some(b - b'A' + 10),
        _ => None,
    }
}

/// Appends `text` as xtext.
pub fn encode(text: &str, out: &mut Vec<u8>) {
    for b in text.bytes() {
        match b {
            b'+' | b'=' | 0..=b' ' | 0x7f.. => {
                let hex = b"0123456789ABCDEF";
                out.extend_from_slice(&[b'+', hex[usize::from(b >> 4)], hex[usize::from(b & 15)]]);
            }
            _ => out.push(b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bad_xtext_is_refused() {
        for bad in ["a+0Ab", "+ZZ", "+0", "+", "a+00", "a=b", "a b", "+0d+0a", "x+0D+0AQUIT", "+FF"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
        assert_eq!(decode("a+2Bb+3D").as_deref(), Some("a+b="));
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes(text in "\\PC*") {
            let mut out = Vec::new();
            encode(&text, &mut out);
            prop_assert!(out.iter().all(|b| (33..127).contains(b)));
            prop_assert_eq!(decode(std::str::from_utf8(&out).unwrap()), Some(text));
        }
    }
}
