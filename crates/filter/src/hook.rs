//! HTTP hooks: a message as JSON, signed, and what the answer means. docs/filters.md has the members of both.

use crate::{Judged, Transaction, rspamd::Header};
use aws_lc_rs::hmac;
use data_encoding::{BASE64, HEXLOWER};
use mail::Mailbox;
use milter::{Edit, Verdict};
use serde::{Deserialize, Serialize};

/// The field of the request that has its signature.
pub const SIGNATURE: &str = "Postrider-Signature";

#[derive(Serialize)]
struct Request<'a> {
    v: u32,
    id: &'a str,
    server: &'a str,
    client: Client<'a>,
    from: &'a str,
    to: &'a [String],
    size: u64,
    content: String,
    is_complete: bool,
}

#[derive(Serialize)]
struct Client<'a> {
    address: Option<&'a str>,
    name: Option<&'a str>,
    hello: Option<&'a str>,
    login: Option<&'a str>,
    tls: Option<&'a str>,
    listener: &'a str,
}

/// Returns the body of a request. `content`: the beginning of a message of `size` octets.
pub fn request(of: &Transaction, size: u64, content: &[u8]) -> Vec<u8> {
    let client = Client {
        address: of.client.as_deref(),
        name: of.client_name.as_deref(),
        hello: of.hello.as_deref(),
        login: of.login.as_deref(),
        tls: of.tls.as_ref().map(|(version, _)| version.as_str()),
        listener: &of.listener,
    };
    let request = Request {
        v: 1,
        id: &of.id,
        server: &of.server,
        client,
        from: &of.sender,
        to: &of.recipients,
        size,
        content: BASE64.encode(content),
        is_complete: content.len() as u64 == size,
    };
    serde_json::to_vec(&request).unwrap_or_default()
}

/// Returns the signature of a body at a time, in seconds since 1970: HMAC with SHA-256 (RFC 2104) of `TIME.BODY`.
pub fn signature(secret: &[u8], now: u64, body: &[u8]) -> String {
    let mut tag = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
    tag.update(format!("{now}.").as_bytes());
    tag.update(body);
    format!("t={now},v1={}", HEXLOWER.encode(tag.sign().as_ref()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    action: Action,
    reply: Option<String>,
    reason: Option<String>,
    from: Option<String>,
    #[serde(default)]
    remove_headers: Vec<String>,
    #[serde(default)]
    add_headers: Vec<Field>,
    #[serde(default)]
    add_recipients: Vec<String>,
    #[serde(default)]
    remove_recipients: Vec<String>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Action {
    Accept,
    Reject,
    Defer,
    Discard,
    Hold,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Field {
    name: String,
    value: String,
}

/// Reads an answer. `names`: those of the header fields of the message.
///
/// # Errors
/// It is not such an answer, or asks for what is not a header field, a reply or an address.
pub fn read_answer(answer: &[u8], names: &[Vec<u8>]) -> Result<Judged, String> {
    let text = answer.trim_ascii();
    if text.is_empty() {
        return Err("its answer is empty: 204 accepts, or 200 with JSON".to_owned());
    }
    if !text.starts_with(b"{") {
        return Err("its answer is not a JSON object such as {\"action\": \"accept\"}".to_owned());
    }
    let answer: Answer = serde_json::from_slice(text).map_err(|e| format!("its answer: {e}"))?;
    let is_refusal = matches!(answer.action, Action::Reject | Action::Defer);
    if answer.reply.is_some() && !is_refusal {
        return Err("its `reply` is for `reject` and `defer`".to_owned());
    }
    if answer.reason.is_some() && answer.action != Action::Hold {
        return Err("its `reason` is for `hold`".to_owned());
    }
    let address = |text: &str| match Mailbox::parse(text, true) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("its address `{}`: {error}", text.escape_debug())),
    };
    answer.add_recipients.iter().chain(&answer.remove_recipients).try_for_each(|to| address(to))?;
    answer.from.iter().filter(|from| !from.is_empty()).try_for_each(|from| address(from))?;
    let mut edits = Vec::new();
    for name in &answer.remove_headers {
        // Also of a field that is not there.
        Edit::changing(1, name, None)?;
        Header(names).remove(name, 0, &mut edits)?;
    }
    for Field { name, value } in &answer.add_headers {
        if !value.is_ascii() {
            return Err(format!("its field `{name}` is not ASCII: write encoded words (RFC 2047)"));
        }
        edits.push(Edit::adding(name, value)?);
    }
    edits.extend(answer.from.as_deref().map(Edit::from).transpose()?);
    for to in &answer.remove_recipients {
        edits.push(Edit::not_to(to)?);
    }
    for to in &answer.add_recipients {
        edits.push(Edit::to(to)?);
    }
    let verdict = match (answer.action, answer.reply.as_deref()) {
        (Action::Reject, None) => Verdict::Reject,
        (Action::Defer, None) => Verdict::TempFail,
        (action @ (Action::Reject | Action::Defer), Some(reply)) => {
            let first = if action == Action::Reject { '5' } else { '4' };
            if !reply.starts_with(first) || !reply.is_ascii() || reply.contains(['\r', '\n']) {
                return Err(format!(
                    "its `reply` is not one line of ASCII such as {first}50 {first}.7.1 text"
                ));
            }
            Verdict::replying(reply)?
        }
        (Action::Discard, _) => Verdict::Discard,
        (Action::Hold, _) => {
            edits.push(Edit::holding(answer.reason.as_deref().unwrap_or("held by its hook")));
            Verdict::Accept
        }
        (Action::Accept, _) => Verdict::Accept,
    };
    Ok(Judged { verdict, edits, body: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(answer: &str) -> Result<Judged, String> {
        read_answer(answer.as_bytes(), &[b"X".to_vec(), b"x".to_vec()])
    }

    #[test]
    fn a_request_has_the_envelope_and_as_much_of_the_content_as_is_given() {
        let of = Transaction {
            id: "1".to_owned(),
            server: "mx.test".to_owned(),
            listener: "mx".to_owned(),
            client: Some("192.0.2.1".to_owned()),
            recipients: vec!["a@b.test".to_owned()],
            ..Transaction::default()
        };
        let text = String::from_utf8(request(&of, 9, b"Subject")).unwrap();
        assert_eq!(
            text,
            "{\"v\":1,\"id\":\"1\",\"server\":\"mx.test\",\"client\":{\"address\":\"192.0.2.1\",\"name\":null,\"hello\":null,\
             \"login\":null,\"tls\":null,\"listener\":\"mx\"},\"from\":\"\",\"to\":[\"a@b.test\"],\"size\":9,\
             \"content\":\"U3ViamVjdA==\",\"is_complete\":false}"
        );
    }

    /// The tag is that of `printf '1700000000.{}' | openssl dgst -sha256 -hmac key`.
    #[test]
    fn the_signature_is_that_of_other_programs() {
        assert_eq!(
            signature(b"key", 1_700_000_000, b"{}"),
            "t=1700000000,v1=9d713ed406bb7076d4123f0dc2c39d2df5c654ed4b0cd56b52c8b4c940bd63ae"
        );
    }

    #[test]
    fn answers_decide_and_change() {
        let verdict = |answer: &str| match judged(answer).unwrap().verdict {
            Verdict::Reply(reply) => reply.to_string().trim_end().to_owned(),
            other => format!("{other:?}"),
        };
        for (answer, expected) in [
            ("{\"action\": \"accept\"}", "Accept"),
            ("{\"action\": \"reject\"}", "Reject"),
            ("{\"action\": \"reject\", \"reply\": \"550 5.7.1 not 100% here\"}", "550 5.7.1 not 100% here"),
            ("{\"action\": \"defer\", \"reply\": \"450 4.7.1 later\"}", "450 4.7.1 later"),
            ("{\"action\": \"defer\"}", "TempFail"),
            ("{\"action\": \"discard\"}", "Discard"),
            ("{\"action\": \"hold\", \"reason\": \"why\"}", "Accept"),
        ] {
            assert_eq!(verdict(answer), expected);
        }
        let changes = "{\"action\": \"accept\", \"remove_headers\": [\"X\", \"None\"], \
             \"add_headers\": [{\"name\": \"Z\", \"value\": \"1\"}], \"from\": \"\", \"add_recipients\": [\"a@b.test\"], \
             \"remove_recipients\": [\"c@d.test\"]}";
        let gone = |number| Edit::changing(number, "X", None).unwrap();
        let expected = [
            gone(2),
            gone(1),
            Edit::adding("Z", "1").unwrap(),
            Edit::from("").unwrap(),
            Edit::not_to("c@d.test").unwrap(),
            Edit::to("a@b.test").unwrap(),
        ];
        assert_eq!(judged(changes).unwrap().edits, expected);
        assert_eq!(
            judged("{\"action\": \"hold\", \"reason\": \"why\"}").unwrap().edits,
            [Edit::holding("why")]
        );
    }

    #[test]
    fn answers_that_are_not_understood_are_failures() {
        for (answer, expected) in [
            ("", "is empty"),
            ("[]", "not a JSON object"),
            ("{\"action\": \"accept\", \"reply\": \"550 5.7.1 no\"}", "for `reject`"),
            ("{\"action\": \"accept\", \"reason\": \"why\"}", "for `hold`"),
            ("{\"action\": \"accept\", \"add_recipients\": [\"joe\"]}", "its address `joe`"),
            ("{\"action\": \"accept\", \"from\": \"a b\"}", "its address `a b`"),
            ("{\"action\": \"accept\", \"remove_headers\": [\"X:\"]}", "a field name"),
            (
                "{\"action\": \"accept\", \"add_headers\": [{\"name\": \"X\", \"value\": \"gr\u{fc}n\"}]}",
                "not ASCII",
            ),
            ("{\"action\": \"reject\", \"reply\": \"550 5.7.1 a\\r\\n250 b\"}", "not one line"),
            ("{}", "missing field `action`"),
            ("{\"action\": \"maybe\"}", "unknown variant `maybe`"),
            ("{\"action\": \"accept\", \"add_header\": []}", "unknown field `add_header`"),
            ("{\"action\": \"reject\", \"reply\": \"450 4.7.1 later\"}", "such as 550 5.7.1"),
            ("{\"action\": \"reject\", \"reply\": \"5 no\"}", "code"),
            (
                "{\"action\": \"accept\", \"add_headers\": [{\"name\": \"a:\", \"value\": \"\"}]}",
                "a field name",
            ),
        ] {
            let told = judged(answer).unwrap_err();
            assert!(told.contains(expected), "{answer}: {told}");
        }
    }
}
