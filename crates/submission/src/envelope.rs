//! A message handed in on this machine: how its envelope is written down, for the submit socket and
//! for the drop directory alike. Everything that is read was written by some local user, so it is
//! checked like what comes from the network.

use bytes::Bytes;
use mail::{
    BodyType, Envelope, ForwardPath, Notify, Origin, Recipient, Ret, ReversePath, address::AddressError,
};
use serde::{Deserialize, Serialize};

/// Longest written envelope: [`RECIPIENTS_MAX`] of the longest addresses fit.
pub const HEADER_BYTES_MAX: usize = 1024 * 1024;
/// Recipients in one written envelope; whoever has more writes several.
pub const RECIPIENTS_MAX: usize = 1000;

/// More than that? Operators are shown messages whole, many at a time: others must not fill their screens and
/// the daemon's memory. Root and the daemon's own user may, such as with what was salvaged.
pub fn has_too_many(envelope: &Envelope, uid: u32) -> bool {
    envelope.recipients.len() > RECIPIENTS_MAX && !is_trusted(uid)
}

/// Returns whether the user is root or the daemon's own user.
pub fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// A message, checked, with all that the daemon needs to accept it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// Reverse-path and recipients, as a client of SMTP would give them.
    pub envelope: Envelope,
    /// Header and body; every line ends in CRLF, and there is no other CR or LF, and no NUL, unless it was written
    /// down [verbatim](Header::verbatim).
    pub content: Bytes,
    /// The user whose process handed it in, as the kernel says.
    pub uid: u32,
}

impl Submission {
    /// Returns the origin of the message: the user.
    pub fn origin(&self) -> Origin {
        Origin::Local { uid: self.uid }
    }
}

/// The reason why the daemon refuses a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// True if a new attempt is of no use.
    pub permanent: bool,
    /// One line, best with its codes: `452 4.3.1 Insufficient system storage`.
    pub text: String,
}

impl Refusal {
    /// Creates a permanent refusal: trying again does not help.
    pub fn permanent(text: impl Into<String>) -> Self {
        Self { permanent: true, text: text.into() }
    }

    /// Creates a temporary refusal.
    pub fn temporary(text: impl Into<String>) -> Self {
        Self { permanent: false, text: text.into() }
    }
}

/// The envelope as it is written: one line of JSON, which no address can break out of.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Version of the format: 1, the only one.
    pub postrider: u32,
    /// Bytes of content that follow the line.
    pub size_bytes: u64,
    /// The content is binary MIME (RFC 3030) as it was in a spool, and is kept as it is: NULs and line ends too.
    /// Only a file of root or of the daemon's own user may say so, such as one of `spool salvage`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub verbatim: bool,
    /// Reverse-path without brackets.
    pub sender: String,
    /// At least one.
    pub recipients: Vec<HeaderRecipient>,
    /// `7bit`, `8bitmime` or `binarymime`.
    pub body: String,
    /// `full`, `hdrs`, or not given (RFC 3461 §4.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ret: Option<String>,
    /// ENVID, decoded (RFC 3461 §4.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envid: Option<String>,
}

/// A recipient, as in RCPT.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderRecipient {
    /// Without brackets.
    pub address: String,
    /// `never`, or some of `success`, `failure`, `delay` with commas; not given for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<String>,
    /// ORCPT, decoded (RFC 3461 §4.2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orcpt: Option<String>,
}

/// The version that is written, and the only one that is read.
const VERSION: u32 = 1;

impl Header {
    /// Writes an envelope down.
    pub fn new(envelope: &Envelope, size_bytes: u64) -> Self {
        let recipient = |r: &Recipient| HeaderRecipient {
            address: r.path.as_str().to_owned(),
            notify: r.notify.explicit.then(|| show_notify(r.notify)),
            orcpt: r.orcpt.as_deref().map(str::to_owned),
        };
        Self {
            postrider: VERSION,
            size_bytes,
            verbatim: false,
            sender: envelope.reverse_path.as_str().to_owned(),
            recipients: envelope.recipients.iter().map(recipient).collect(),
            body: show_body(envelope.body).to_owned(),
            ret: envelope.ret.map(|ret| if ret == Ret::Full { "full" } else { "hdrs" }.to_owned()),
            envid: envelope.envid.as_deref().map(str::to_owned),
        }
    }

    /// Reads a line. The error says what is wrong with it.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let header: Self = serde_json::from_slice(line).map_err(|error| format!("bad envelope: {error}"))?;
        if header.postrider == VERSION {
            Ok(header)
        } else {
            Err(format!("envelope version {}", header.postrider))
        }
    }

    /// Returns the header as one line of JSON, with its LF.
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("strings and numbers are always JSON");
        line.push(b'\n');
        line
    }

    /// The checked envelope. The error says which part is bad.
    pub fn envelope(&self) -> Result<Envelope, String> {
        let bad = |what: &str, text: &str, error: AddressError| {
            format!("{what} <{}>: {error}", text.escape_debug())
        };
        let reverse_path =
            ReversePath::parse(&self.sender, true).map_err(|e| bad("sender", &self.sender, e))?;
        let mut envelope = Envelope::new(reverse_path);
        envelope.smtputf8 = !self.sender.is_ascii();
        for r in &self.recipients {
            let path = ForwardPath::parse(&r.address, true).map_err(|e| bad("recipient", &r.address, e))?;
            envelope.smtputf8 |= !r.address.is_ascii();
            let notify = r.notify.as_deref().map_or(Ok(Notify::default()), parse_notify)?;
            let orcpt = r.orcpt.as_deref().map(|text| parameter("ORCPT", text)).transpose()?;
            envelope.recipients.push(Recipient { notify, orcpt, ..Recipient::new(path) });
        }
        if envelope.recipients.is_empty() {
            return Err("no recipients".to_owned());
        }
        envelope.body = parse_body(&self.body)?;
        envelope.ret = self.ret.as_deref().map(parse_ret).transpose()?;
        envelope.envid = self.envid.as_deref().map(|text| parameter("ENVID", text)).transpose()?;
        Ok(envelope)
    }
}

fn show_body(body: BodyType) -> &'static str {
    match body {
        BodyType::SevenBit => "7bit",
        BodyType::EightBit => "8bitmime",
        BodyType::Binary => "binarymime",
    }
}

/// Reads `7bit`, `8bitmime`, `binarymime` in any letter case.
pub fn parse_body(text: &str) -> Result<BodyType, String> {
    match text.to_ascii_lowercase().as_str() {
        "7bit" => Ok(BodyType::SevenBit),
        "8bitmime" => Ok(BodyType::EightBit),
        "binarymime" => Ok(BodyType::Binary),
        _ => Err(format!("body type {text:?}: 7BIT, 8BITMIME and BINARYMIME are known")),
    }
}

/// Reads `full` or `hdrs` in any letter case.
pub fn parse_ret(text: &str) -> Result<Ret, String> {
    match text.to_ascii_lowercase().as_str() {
        "full" => Ok(Ret::Full),
        "hdrs" => Ok(Ret::Headers),
        _ => Err(format!("return {text:?}: full and hdrs are known")),
    }
}

fn show_notify(notify: Notify) -> String {
    let words = [("success", notify.success), ("failure", notify.failure), ("delay", notify.delay)];
    let set: Vec<&str> = words.iter().filter(|(_, on)| *on).map(|(word, _)| *word).collect();
    if set.is_empty() { "never".to_owned() } else { set.join(",") }
}

/// Reads `never`, or some of `success`, `failure`, `delay` (RFC 3461 §4.1).
pub fn parse_notify(text: &str) -> Result<Notify, String> {
    let mut notify = Notify::NEVER;
    if text.eq_ignore_ascii_case("never") {
        return Ok(notify);
    }
    for word in text.split(',') {
        match word.trim().to_ascii_lowercase().as_str() {
            "success" => notify.success = true,
            "failure" => notify.failure = true,
            "delay" => notify.delay = true,
            _ => return Err(format!("notify {text:?}: never, or some of success, failure, delay")),
        }
    }
    Ok(notify)
}

/// ENVID and ORCPT go on as xtext and into DSNs: no control characters, no excess (RFC 3461 §4).
fn parameter(name: &str, text: &str) -> Result<Box<str>, String> {
    if text.is_empty() || text.len() > 500 || text.contains(char::is_control) {
        return Err(format!("bad {name}"));
    }
    Ok(text.into())
}

/// Every line end becomes CRLF. A CR elsewhere becomes a space, as Postfix does: on the way out it
/// could end a line where another server sees none (RFC 5321 §2.3.8). NUL, which programs print and no
/// mail may have (RFC 5322 §4), goes: hardly a server would take it. Nothing is copied when all is well.
pub fn wire_form(content: Vec<u8>) -> Vec<u8> {
    let is_wire = |at: usize| match content[at] {
        b'\r' => content.get(at + 1) == Some(&b'\n'),
        b'\n' => at > 0 && content[at - 1] == b'\r',
        0 => false,
        _ => true,
    };
    if (0..content.len()).all(is_wire) {
        return content;
    }
    let mut out = Vec::with_capacity(content.len() + content.len() / 32);
    for (at, byte) in content.iter().enumerate() {
        match byte {
            b'\n' if at > 0 && content[at - 1] == b'\r' => out.push(b'\n'),
            b'\n' => out.extend_from_slice(b"\r\n"),
            b'\r' if content.get(at + 1) != Some(&b'\n') => out.push(b' '),
            0 => {}
            byte => out.push(*byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn envelope() -> Envelope {
        let mut e = Envelope::new(ReversePath::parse("ä@a.test", true).unwrap());
        for (address, notify) in [("\"b\\\"\"@b.test", "success,delay"), ("postmaster", "never")] {
            let path = ForwardPath::parse(address, true).unwrap();
            let notify = parse_notify(notify).unwrap();
            let orcpt = Some("rfc822;x@y".into());
            e.recipients.push(Recipient { notify, orcpt, ..Recipient::new(path) });
        }
        e.recipients.push(Recipient::new(ForwardPath::parse("c@c.test", true).unwrap()));
        e.smtputf8 = true;
        e.body = BodyType::EightBit;
        e.ret = Some(Ret::Headers);
        e.envid = Some("QQ 314+=".into());
        e
    }

    #[test]
    fn an_envelope_reads_back_as_written() {
        let line = Header::new(&envelope(), 5).to_line();
        assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
        let header = Header::parse(&line).unwrap();
        assert_eq!((header.size_bytes, header.envelope().unwrap()), (5, envelope()));
    }

    #[test]
    fn only_root_and_the_daemon_write_envelopes_of_any_length() {
        let own = rustix::process::geteuid().as_raw();
        let mut long = envelope();
        long.recipients.resize(RECIPIENTS_MAX, long.recipients[0].clone());
        assert!(!has_too_many(&long, own + 1));
        long.recipients.push(long.recipients[0].clone());
        assert!(has_too_many(&long, own + 1) && !has_too_many(&long, own) && !has_too_many(&long, 0));
    }

    #[test]
    fn the_longest_envelope_fits() {
        let address = format!("\"{}\"@{}.test", "\\\"".repeat(31), vec!["y".repeat(60); 4].join("."));
        let mut longest = Envelope::new(ReversePath::parse(&address, false).unwrap());
        for _ in 0..RECIPIENTS_MAX {
            let path = ForwardPath::parse(&address, false).unwrap();
            let notify = parse_notify("success,failure,delay").unwrap();
            let orcpt = Some("o".repeat(500).into());
            longest.recipients.push(Recipient { notify, orcpt, ..Recipient::new(path) });
        }
        assert!(Header::new(&longest, u64::MAX).to_line().len() <= HEADER_BYTES_MAX);
    }

    #[test]
    fn each_bad_part_of_an_envelope_is_refused() {
        let good = Header::new(&envelope(), 5);
        let bad = |change: fn(&mut Header)| {
            let mut header = good.clone();
            change(&mut header);
            header.envelope().unwrap_err()
        };
        assert!(bad(|h| h.sender = "x\nRCPT TO:<y>@z".to_owned()).contains("sender <x\\n"));
        assert!(bad(|h| h.recipients[2].address = "nobody".to_owned()).contains("recipient <nobody>"));
        assert!(bad(|h| h.recipients.clear()).contains("no recipients"));
        assert!(bad(|h| h.recipients[0].notify = Some("never,success".to_owned())).contains("notify"));
        assert!(bad(|h| h.recipients[0].orcpt = Some("a\r\nb".to_owned())).contains("ORCPT"));
        assert!(bad(|h| h.envid = Some(String::new())).contains("ENVID"));
        assert!(bad(|h| h.ret = Some("some".to_owned())).contains("return"));
        assert!(bad(|h| h.body = "9bit".to_owned()).contains("body"));
        assert!(
            Header::parse(br#"{"postrider":2,"size_bytes":1,"sender":"","recipients":[],"body":""}"#)
                .is_err()
        );
        assert!(Header::parse(b"\xff").is_err());
    }

    #[test]
    fn line_ends_become_crlf_stray_crs_spaces_and_nul_nothing() {
        for (given, wire) in [
            ("a\0b\0\n\r\0\n", "ab\r\n \r\n"),
            ("\r\n\0", "\r\n"),
            ("a\nb\n", "a\r\nb\r\n"),
            ("a\r\nb", "a\r\nb"),
            ("a\rb\r\r\n\n", "a b \r\n\r\n"),
            ("\n.\r", "\r\n. "),
            ("", ""),
        ] {
            assert_eq!(wire_form(given.into()), wire.as_bytes(), "{given:?}");
        }
    }

    proptest! {
        #[test]
        fn wire_form_has_no_lone_cr_or_lf_and_no_nul_and_stays_as_it_is(text in "[a\r\n.\0]{0,30}") {
            let wire = wire_form(text.into_bytes());
            let without = String::from_utf8(wire.clone()).unwrap().replace("\r\n", "");
            prop_assert!(!without.contains(['\r', '\n', '\0']));
            prop_assert_eq!(wire_form(wire.clone()), wire);
        }
    }
}
