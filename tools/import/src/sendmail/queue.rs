//! Queue files of Sendmail: `qfID` has envelope and header, `dfID` the body; `hfID` is a message in quarantine.

use crate::{
    postfix::queue::temporary,
    queued::{Damage, LastAttempt, QueuedMessage, QueuedRecipient},
    wire,
};
use mail::{BodyType, Enhanced, Notify, Ret, UnixMillis};

/// The byte before the name of a macro that is expanded at delivery.
const MACRO: char = '\u{81}';

/// The flags of the mailer for SMTP: fields with other conditions are not for mail that leaves.
const SMTP_FLAGS: &str = "mDFMuXa8";

/// Reads the files of a message. `is_held`: the name of the control file begins with `hf`. `domain` is added to addresses
/// without one.
///
/// # Errors
/// The files are not a whole message, or have an address that no server can send mail to.
pub fn read(
    control: &[u8],
    data: &[u8],
    id: &str,
    is_held: bool,
    domain: &str,
) -> Result<QueuedMessage, Damage> {
    let mut reader =
        Reader { domain, message: QueuedMessage::new(id), orcpt: None, said: String::new(), tried: 0 };
    reader.message.held = is_held;
    let (mut is_whole, mut has_version) = (false, false);
    for line in logical_lines(control) {
        if line == b"." {
            is_whole = true;
            break;
        }
        let Some((code, value)) = line.split_first() else { continue };
        has_version |= *code == b'V';
        reader.line(*code, value)?;
    }
    if !is_whole {
        return Err(Damage::new("the control file ends before its last line"));
    }
    if !has_version || reader.message.arrived_us == 0 {
        return Err(Damage::new("the control file has no version or no time"));
    }
    if let (true, Some(note)) = (reader.message.recipients.is_empty(), reader.message.notes.first()) {
        return Err(Damage::new(note.clone()));
    }
    Ok(reader.finish(data))
}

/// Returns lines with the lines that continue them: those begin with a space or a tab.
fn logical_lines(text: &[u8]) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        match (line.first(), lines.last_mut()) {
            (Some(b' ' | b'\t'), Some(last)) => {
                last.push(b'\n');
                last.extend_from_slice(line);
            }
            _ => lines.push(line.to_vec()),
        }
    }
    lines
}

struct Reader<'a> {
    domain: &'a str,
    message: QueuedMessage,
    /// `ORCPT=` of the recipient that follows.
    orcpt: Option<Box<str>>,
    /// What the last attempt has brought, in Sendmail's words.
    said: String,
    /// The time of the last attempt, in seconds since 1970.
    tried: u64,
}

impl Reader<'_> {
    fn line(&mut self, code: u8, value: &[u8]) -> Result<(), Damage> {
        if code == b'H' {
            return self.header(value);
        }
        let text = String::from_utf8_lossy(value);
        let message = &mut self.message;
        match code {
            b'T' => {
                let seconds =
                    text.trim().parse::<u64>().map_err(|_| Damage::new("the time is not a number"))?;
                message.arrived_us = seconds.saturating_mul(1_000_000);
            }
            b'K' => self.tried = text.trim().parse().unwrap_or(0),
            b'N' => message.attempt_count = text.trim().parse().unwrap_or(0),
            b'M' => self.said = wire::printable(&text),
            b'S' => message.reverse_path = wire::reverse_path(bare(&text), self.domain)?,
            b'Q' => self.orcpt = wire::parameter(&text),
            b'R' => {
                let (flags, address) = text.split_once(':').unwrap_or(("", &text));
                let orcpt = self.orcpt.take();
                // `\jane` is a user whose aliases are not asked again.
                let address = bare(address).trim_start_matches('\\');
                if address.trim_matches('"').starts_with(['|', '/', ':']) {
                    message.notes.push(format!(
                        "the recipient {} is a program or a file, and is left out: deliver it by hand",
                        wire::printable(address)
                    ));
                } else {
                    let path = wire::forward_path(address, self.domain)?;
                    message.recipients.push(QueuedRecipient::new(path, notify_of(flags), orcpt));
                }
            }
            b'Z' => message.envid = wire::parameter(&text),
            b'B' if text.eq_ignore_ascii_case("8BITMIME") => message.body = BodyType::EightBit,
            b'F' => self.flags(&text),
            b'q' => message.held = true,
            b'A' => {
                let auth = wire::parameter(&text).unwrap_or_default();
                message.options.auth = wire::reverse_path(bare(&auth), "").ok();
            }
            b'!' => message.notes.push("its DELIVERBY deadline is not taken over".to_owned()),
            b'$' => {
                if let Some(login) = text.strip_prefix("{auth_authen}").filter(|login| !login.is_empty()) {
                    message.options.login = Some(wire::printable(login).into());
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn flags(&mut self, flags: &str) {
        let has = |flag| flags.contains(flag);
        if has('n') {
            self.message.ret = Some(Ret::Headers);
        }
        if has('8') {
            self.message.body = BodyType::EightBit;
        }
        self.message.smtputf8 |= has('e');
    }

    /// Reads `?flags?Name: value`. A field with flags is for mailers with one of them only.
    fn header(&mut self, value: &[u8]) -> Result<(), Damage> {
        let bad = || Damage::new("a header field with a damaged condition");
        let field = match value.strip_prefix(b"?") {
            None => value,
            Some(rest) => {
                let end = memchr::memchr(b'?', rest).ok_or_else(bad)?;
                let (flags, field) = (String::from_utf8_lossy(&rest[..end]).into_owned(), &rest[end + 1..]);
                // `${name}` is a condition on a macro, of rules of the site.
                if !flags.is_empty() && !flags.chars().any(|flag| SMTP_FLAGS.contains(flag)) {
                    return Ok(());
                }
                field
            }
        };
        let has_macro = field.contains(&(MACRO as u8)) && std::str::from_utf8(field).is_err();
        if has_macro {
            let text: String = field.iter().map(|byte| char::from(*byte)).collect();
            let sender = self.message.reverse_path.as_str();
            let text = text.replace("\u{81}g", sender);
            if !text.contains(MACRO) {
                let bytes: Vec<u8> = text.chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect();
                wire::append_lines(&mut self.message.content, &bytes);
                return Ok(());
            }
        }
        wire::append_lines(&mut self.message.content, field);
        Ok(())
    }

    fn finish(mut self, data: &[u8]) -> QueuedMessage {
        self.message.content.extend_from_slice(b"\r\n");
        wire::append_lines(&mut self.message.content, data);
        if self.tried > 0 && self.message.attempt_count > 0 {
            self.message.last_attempt = Some(LastAttempt {
                at: UnixMillis(self.tried.saturating_mul(1000)),
                status: status_in(&self.said),
                text: self.said,
            });
        }
        self.message
    }
}

/// Returns the status code that a text has, of the class 4.
fn status_in(text: &str) -> Enhanced {
    let words = text.split([' ', '(', ')', ':']).filter(|word| word.starts_with("4."));
    words.map(temporary).find(|status| *status != Enhanced(4, 0, 0)).unwrap_or(Enhanced(4, 0, 0))
}

/// Returns an address without its angle brackets.
fn bare(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix('<').and_then(|inner| inner.strip_suffix('>')).unwrap_or(text)
}

/// Flags of a recipient: `N` says that NOTIFY was given, `S`, `F` and `D` what it has.
fn notify_of(flags: &str) -> Notify {
    let has = |flag| flags.contains(flag);
    if !has('N') {
        return Notify::default();
    }
    Notify { success: has('S'), failure: has('F'), delay: has('D'), explicit: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROL: &[u8] = b"V8\nT1700000000\nK1700000100\nN3\nP12345\nF8n\nMDeferred: 451 4.7.1 slow down\n\
        $_client [127.0.0.1]\n${auth_authen}jane\nB8BITMIME\nZx+2By\nS<a@src.test>\nQrfc822;list@dst.test\n\
        RPNSF:<b@dst.test>\nRPFD:c@dst.test\nH?P?Return-Path: <\x81g>\nH??Received: from x\n\tby y\n\
        H?x?Full-Name: \x81x\nHSubject: caf\xc3\xa9\n.\n";

    #[test]
    fn the_files_are_a_message() {
        let message = read(CONTROL, b".dot\n\nend\n", "1", true, "mx.test").unwrap();
        assert!(message.held && message.body == BodyType::EightBit && message.ret == Some(Ret::Headers));
        assert_eq!((message.arrived_us, message.attempt_count), (1_700_000_000_000_000, 3));
        let attempt = message.last_attempt.unwrap();
        assert_eq!((attempt.at, attempt.status), (UnixMillis(1_700_000_100_000), Enhanced(4, 7, 1)));
        assert_eq!(message.options.login.as_deref(), Some("jane"));
        assert_eq!(message.envid.as_deref(), Some("x+y"));
        let [of_b, of_c] = &message.recipients[..] else { panic!("two recipients") };
        assert_eq!(of_b.recipient.orcpt.as_deref(), Some("rfc822;list@dst.test"));
        assert!(of_b.recipient.notify.success && !of_b.recipient.notify.delay);
        assert_eq!((of_c.recipient.path.as_str(), of_c.recipient.notify), ("c@dst.test", Notify::default()));
        let expected = "Received: from x\r\n\tby y\r\nSubject: café\r\n\r\n.dot\r\n\r\nend\r\n";
        assert_eq!(String::from_utf8(message.content).unwrap(), expected);
    }

    #[test]
    fn a_recipient_that_is_a_program_or_a_file_is_named_and_the_others_are_imported() {
        let of = |recipients: &str| {
            let control = format!("V8\nT1700000000\nS<a@src.test>\n{recipients}HSubject: x\n.\n");
            read(control.as_bytes(), b"x\n", "1", false, "mx.test")
        };
        let message =
            of("RPFD:\\joe\nRPFD:\"|/bin/vacation jane\"\nRPFD:/var/mail/x\nRPFD:c@dst.test\n").unwrap();
        let paths: Vec<&str> = message.recipients.iter().map(|one| one.recipient.path.as_str()).collect();
        assert_eq!(paths, ["joe@mx.test", "c@dst.test"]);
        assert_eq!(message.notes.len(), 2);
        assert!(of("RPFD:|/bin/vacation jane\n").unwrap_err().0.contains("deliver it by hand"));
    }

    #[test]
    fn each_shorter_control_file_is_damaged() {
        for length in 0..CONTROL.len() - 1 {
            assert!(read(&CONTROL[..length], b"", "1", false, "").is_err(), "{length}");
        }
        assert!(read(b"V8\nS<a@b.test>\n.\n", b"", "1", false, "").is_err());
    }
}
