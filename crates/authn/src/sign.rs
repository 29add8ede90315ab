//! Makes signatures (RFC 6376 §5).

use crate::{
    SigningKey,
    canonical::{fields, relaxed_field},
    tags::tag_value,
};
use data_encoding::BASE64;
use std::fmt::Write as _;

/// Fields that are signed, and once more than they stand there: nobody can add one. `true`: also where there is none. The fields
/// that mailing lists and forwarders add are not among those.
const SIGNED: [(&str, bool); 26] = [
    ("From", true),
    ("Sender", false),
    ("Reply-To", true),
    ("Subject", true),
    ("Date", true),
    ("Message-ID", false),
    ("To", true),
    ("Cc", true),
    ("MIME-Version", false),
    ("Content-Type", false),
    ("Content-Transfer-Encoding", false),
    ("Content-ID", false),
    ("Content-Description", false),
    ("In-Reply-To", false),
    ("References", false),
    ("Auto-Submitted", false),
    ("Feedback-ID", false),
    ("List-Id", false),
    ("List-Help", false),
    ("List-Unsubscribe", false),
    ("List-Unsubscribe-Post", false),
    ("List-Subscribe", false),
    ("List-Post", false),
    ("List-Owner", false),
    ("List-Archive", false),
    ("Resent-From", false),
];

/// Length of the lines of a signature.
const LINE_BYTES: usize = 76;

/// Signs for one domain with one key.
#[derive(Debug, Clone, Copy)]
pub struct Signer<'a> {
    /// The domain that takes responsibility (`d=`), as an A-label name in lower case.
    pub domain: &'a str,
    /// The name of the key below the domain (`s=`).
    pub selector: &'a str,
    /// Its public half is in the DNS at `selector._domainkey.domain`.
    pub key: &'a SigningKey,
}

impl Signer<'_> {
    /// Returns the value of a DKIM-Signature field for a message, folded with CRLF. `header` has all fields, with their line ends;
    /// `body` is what [`crate::BodyHasher::finish`] returned; `now` is the time in seconds since 1970.
    pub fn sign(&self, header: &[u8], body: &[u8], now: u64) -> String {
        let body_hash = BASE64.encode(body);
        let fields = fields(header);
        let (mut names, mut data) = (Vec::new(), Vec::new());
        for (name, is_always) in SIGNED {
            let is_it =
                |field: &&&(&[u8], &[u8])| field.0.trim_ascii_end().eq_ignore_ascii_case(name.as_bytes());
            let mut count = 0;
            // The last one is the first to be signed (RFC 6376 §5.4.2).
            for (_, value) in fields.iter().rev().filter(|field| is_it(&field)) {
                relaxed_field(name.as_bytes(), value, &mut data);
                data.extend_from_slice(b"\r\n");
                names.push(name);
                count += 1;
            }
            if is_always || count > 0 {
                names.push(name);
            }
        }
        let mut value = format!(
            "v=1; a={}; c=relaxed/relaxed; d={};\r\n\ts={}; t={now};",
            self.key.algorithm().as_str(),
            self.domain,
            self.selector
        );
        folded(&mut value, " h=", &names.join(":"), |text, end| text[..end].rfind(':').map(|at| at + 1));
        // Writing to a string cannot fail.
        let _ = write!(value, ";\r\n\tbh={body_hash};\r\n\tb=");
        relaxed_field(b"DKIM-Signature", value.as_bytes(), &mut data);
        let signature = BASE64.encode(&self.key.sign(&data));
        let mut line = "\tb=".len();
        for octet in signature.chars() {
            if line == LINE_BYTES {
                value.push_str("\r\n\t");
                line = 1;
            }
            value.push(octet);
            line += 1;
        }
        value
    }
}

/// Appends a tag, and breaks its lines where `cut` permits it.
fn folded(value: &mut String, tag: &str, text: &str, cut: impl Fn(&str, usize) -> Option<usize>) {
    value.push_str("\r\n\t");
    value.push_str(tag.trim_start());
    let mut rest = text;
    let mut room = LINE_BYTES - tag.len();
    while rest.len() > room {
        let Some(at) = cut(rest, room) else { break };
        value.push_str(&rest[..at]);
        value.push_str("\r\n\t");
        rest = &rest[at..];
        room = LINE_BYTES - 1;
    }
    value.push_str(rest);
}

/// Returns the address in the From field of a header: `None` unless there is exactly one field with exactly one address, since a
/// reader could see another one than the one that is signed for.
pub fn from_mailbox(header: &[u8]) -> Option<String> {
    let mut from =
        fields(header).into_iter().filter(|(name, _)| name.trim_ascii_end().eq_ignore_ascii_case(b"From"));
    let (Some((_, value)), None) = (from.next(), from.next()) else { return None };
    single_address(std::str::from_utf8(value).ok()?)
}

/// Returns whether a header has a signature of a domain by a selector.
pub fn has_signature(header: &[u8], domain: &str, selector: &str) -> bool {
    let is_it = |value: &[u8]| {
        std::str::from_utf8(value).is_ok_and(|value| {
            let has = |name: &str, wanted: &str| {
                tag_value(value, name).is_some_and(|found| found.eq_ignore_ascii_case(wanted))
            };
            has("d", domain) && has("s", selector)
        })
    };
    let mut fields = fields(header).into_iter();
    fields.any(|(name, value)| name.trim_ascii_end().eq_ignore_ascii_case(b"DKIM-Signature") && is_it(value))
}

/// Returns the only address of a field's value (RFC 5322 §3.4): within angle brackets, or alone.
pub(crate) fn single_address(value: &str) -> Option<String> {
    let (mut plain, mut bracketed) = (String::new(), None);
    let (mut depth, mut is_quoted, mut in_brackets) = (0_usize, false, false);
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        let has_brackets = bracketed.is_some();
        let target = if in_brackets { bracketed.get_or_insert_with(String::new) } else { &mut plain };
        match character {
            '\\' if is_quoted || depth > 0 => {
                let escaped = characters.next()?;
                if depth == 0 {
                    target.extend(['\\', escaped]);
                }
            }
            '"' if depth == 0 && (in_brackets || !has_brackets) => {
                is_quoted = !is_quoted;
                target.push('"');
            }
            _ if is_quoted => target.push(character),
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            _ if depth > 0 => {}
            '<' if !has_brackets => {
                in_brackets = true;
                bracketed = Some(String::new());
            }
            '>' if in_brackets => in_brackets = false,
            // More than one address, or a group.
            ',' | ';' | '<' | '>' => return None,
            character if in_brackets && character.is_whitespace() => {}
            // Some readers would take what follows the brackets for the address.
            character if has_brackets && !in_brackets && !character.is_whitespace() => return None,
            character => target.push(character),
        }
    }
    if is_quoted || depth > 0 || in_brackets {
        return None;
    }
    let address = bracketed.unwrap_or_else(|| plain.split_whitespace().collect());
    let (local, domain) = address.rsplit_once('@')?;
    // No route, and no second address that white space or quotes hide (RFC 5322 §4.4).
    let is_local = match local.strip_prefix('"') {
        Some(rest) => rest
            .strip_suffix('"')
            .is_some_and(|inner| !inner.replace("\\\\", "").replace("\\\"", "").contains('"')),
        None => !local.is_empty() && !local.contains(['@', ':', '"', '\\', '[', ']']),
    };
    (is_local && !domain.is_empty()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, BodyHasher};

    #[test]
    fn only_a_single_address_of_a_single_field_is_signed_for() {
        for (header, from) in [
            ("From: a@b.test\r\n", Some("a@b.test")),
            ("FROM : Ann <a@b.test>\r\n", Some("a@b.test")),
            ("From: \"a, b\" (x@y.test) <a@b.test>\r\n", Some("a@b.test")),
            ("From: \"<x@y.test>\" <a@b.test>\r\n", Some("a@b.test")),
            ("From:\r\n Ann\r\n <a@b.test>\r\n", Some("a@b.test")),
            ("From: a@b.test (Ann \\) <x@y.test>)\r\n", Some("a@b.test")),
            ("From: \"a\\\"b\"@b.test\r\n", Some("\"a\\\"b\"@b.test")),
            ("From: x@y.test <a@b.test> (c@d.test)\r\n", Some("a@b.test")),
            ("From: a@b.test, c@d.test\r\n", None),
            // Forms in which readers disagree about the address.
            ("From: <@x.test:a@b.test>\r\n", None),
            ("From: <@x.test,@y.test:a@b.test>\r\n", None),
            ("From: <a@b.test> c@d.test\r\n", None),
            ("From: <a@b.test> \"c\"@d.test\r\n", None),
            ("From: a@b.test c@d.test\r\n", None),
            ("From: a@b.test\\,<c@d.test>\r\n", None),
            ("From: \"a@b.test>\"x\"@c.test\r\n", None),
            ("From: =?utf-8?B?YUBiLnRlc3Q=?=\r\n", None),
            ("From: <a@b.test> <c@d.test>\r\n", None),
            ("From: friends: a@b.test;\r\n", None),
            ("From: a@b.test\r\nFrom: a@b.test\r\n", None),
            ("From: Ann\r\n", None),
            ("From: <a@b.test\r\n", None),
            ("Subject: x\r\n", None),
        ] {
            assert_eq!(from_mailbox(header.as_bytes()).as_deref(), from, "{header:?}");
        }
    }

    #[test]
    fn lines_of_a_signature_are_short_and_fields_are_signed_once_more_than_they_stand_there() {
        for algorithm in [Algorithm::RsaSha256, Algorithm::Ed25519Sha256] {
            let key = SigningKey::from_pem(SigningKey::generate(algorithm).unwrap().as_bytes()).unwrap();
            assert_eq!(key.algorithm(), algorithm);
            let signer = Signer { domain: "b.test", selector: "s1", key: &key };
            let header =
                b"Received: x\r\nTo: c@d.test\r\nFrom: a@b.test\r\nTo: e@f.test\r\nList-Unsubscribe: <x>\r\n";
            let value = signer.sign(header, BodyHasher::default().finish().as_ref(), 1_700_000_000);
            assert!(value.split("\r\n").all(|line| line.len() <= 78), "{value}");
            let names = value.split_once("h=").unwrap().1.split_once(';').unwrap().0.replace("\r\n\t", "");
            assert_eq!(
                names,
                "From:From:Reply-To:Subject:Date:To:To:To:Cc:List-Unsubscribe:List-Unsubscribe"
            );
        }
    }
}
