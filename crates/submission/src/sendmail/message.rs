//! The message on standard input: where its header ends, who it is for, and what it lacks.

use super::addresses;
use control::{CommandError, Exit};
use mail::{
    UnixMillis,
    header::{ContentScanner, HeaderLine, field_name, header_line},
};
use std::io::{BufRead, Read};

/// Reads until a lone dot, if that ends it, or the end. More than `max_bytes` is an error.
pub fn read(stdin: &mut dyn BufRead, ignore_dots: bool, max_bytes: u64) -> Result<Vec<u8>, CommandError> {
    let too_large =
        || CommandError::new(Exit::DataErr, format!("the message is larger than {max_bytes} bytes"));
    let mut from = stdin.take(max_bytes.saturating_add(1));
    let mut raw = Vec::new();
    loop {
        let start = raw.len();
        if from.read_until(b'\n', &mut raw)? == 0 {
            break;
        }
        if !ignore_dots && matches!(&raw[start..], b".\n" | b".\r\n" | b".") {
            raw.truncate(start);
            break;
        }
    }
    if raw.len() as u64 > max_bytes { Err(too_large()) } else { Ok(raw) }
}

/// The author of a message, for fields that are missing.
pub struct LocalUser<'a> {
    /// Empty for the null reverse-path.
    pub address: &'a str,
    /// Login name of the user.
    pub user: &'a str,
    /// The user's name among people; may be empty.
    pub full_name: &'a str,
    /// The name of the machine.
    pub hostname: &'a str,
}

/// A message, split for changes of its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedMessage {
    /// Each with its line ends and continuation lines.
    fields: Vec<Vec<u8>>,
    /// Behind the empty line, or from a line on that cannot be in a header.
    body: Vec<u8>,
    /// The body begins with a line that cannot be in a header, and fields follow: an empty line would make text of them.
    is_unseparated: bool,
}

/// Fields that are for us alone, or that delivery writes (RFC 5322 §3.6.3, RFC 5321 §4.4).
const DROPPED: [&str; 4] = ["bcc", "resent-bcc", "return-path", "content-length"];

impl ParsedMessage {
    /// Splits header and body. A line that cannot be in a header begins the body, so that text
    /// without header is all body. Leading mbox lines are dropped.
    pub fn parse(raw: &[u8]) -> Self {
        let all = raw.split_inclusive(|b| *b == b'\n');
        let separators = all.take_while(|line| header_line(line) == HeaderLine::Mbox);
        let raw = &raw[separators.map(<[u8]>::len).sum()..];
        let mut scanner = ContentScanner::default();
        scanner.scan(raw);
        let mut lines = raw.split_inclusive(|b| *b == b'\n').peekable();
        let mut fields: Vec<Vec<u8>> = Vec::new();
        while let Some(line) = lines.peek() {
            match (header_line(line), fields.last_mut()) {
                (HeaderLine::Field, _) => fields.push(line.to_vec()),
                (HeaderLine::Folded, Some(field)) => field.extend_from_slice(line),
                _ => break,
            }
            lines.next();
        }
        // A header's last line may lack its end; what follows must not run into it.
        if let Some(last) = fields.last_mut()
            && last.last() != Some(&b'\n')
        {
            last.push(b'\n');
        }
        let has_end = lines.next_if(|line| matches!(*line, b"\n" | b"\r\n")).is_some();
        let body = lines.collect::<Vec<_>>().concat();
        let is_unseparated = !has_end && !body.is_empty() && !scanner.lacks_separator();
        Self { fields, body, is_unseparated }
    }

    /// Everyone in `To`, `Cc` and `Bcc`; in their `Resent-` forms when there is any.
    pub fn recipients(&self) -> Result<Vec<String>, String> {
        let resent = ["resent-to", "resent-cc", "resent-bcc"];
        let first = ["to", "cc", "bcc"];
        let is_any = |names: &[&str]| self.fields.iter().any(|f| names.iter().any(|name| has_name(f, name)));
        let names = if is_any(&resent) { resent } else { first };
        let mut all = Vec::new();
        for field in self.fields.iter().filter(|f| names.iter().any(|name| has_name(f, name))) {
            // Names in Latin-1 are no news; an address must be UTF-8.
            let text = String::from_utf8_lossy(field);
            let (name, list) = text.split_once(':').unwrap_or_default();
            let bad = |why: String| format!("{}: {why}", name.trim_end());
            let found = addresses::parse(list).map_err(bad)?;
            if let Some(odd) = found.iter().find(|address| address.contains(char::REPLACEMENT_CHARACTER)) {
                return Err(bad(format!("{odd} is not UTF-8")));
            }
            all.extend(found);
        }
        Ok(all)
    }

    /// Drops what must not go out, adds what must be there (RFC 6409 §8).
    pub fn complete(&mut self, author: &LocalUser<'_>) {
        self.fields.retain(|field| !DROPPED.iter().any(|name| has_name(field, name)));
        for field in &mut self.fields {
            qualify(field, author.hostname);
        }
        let now = UnixMillis::now();
        if !self.has("from") {
            self.fields.push(from_field(author).into_bytes());
        }
        if !self.has("date") {
            self.fields.push(format!("Date: {}\n", now.rfc5322()).into_bytes());
        }
        if !self.has("message-id") {
            // A process sends one message, and no other has its number in the same millisecond.
            let id = format!("{}.{}", now.0, std::process::id());
            self.fields.push(format!("Message-ID: <{id}@{}>\n", author.hostname).into_bytes());
        }
    }

    /// Returns whether there is a field with this name.
    pub fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|field| has_name(field, name))
    }

    /// Header, empty line, body; line ends as they were. The empty line is missing where it would change what the header is.
    pub fn into_bytes(self) -> Vec<u8> {
        let mut out = self.fields.concat();
        if !self.is_unseparated {
            out.extend_from_slice(b"\n");
        }
        out.extend_from_slice(&self.body);
        out
    }
}

/// Fields with addresses that readers elsewhere must be able to use.
const ADDRESS_FIELDS: [&str; 12] = [
    "from",
    "sender",
    "reply-to",
    "to",
    "cc",
    "disposition-notification-to",
    "resent-from",
    "resent-sender",
    "resent-reply-to",
    "resent-to",
    "resent-cc",
    "errors-to",
];

/// Gives bare user names in an address field this machine's name.
fn qualify(field: &mut Vec<u8>, hostname: &str) {
    if !ADDRESS_FIELDS.iter().any(|name| has_name(field, name)) {
        return;
    }
    let Some((name, list)) = str::from_utf8(field).ok().and_then(|text| text.split_once(':')) else { return };
    if let Some(list) = addresses::qualify(list, hostname) {
        *field = format!("{name}:{list}").into_bytes();
    }
}

fn has_name(field: &[u8], name: &str) -> bool {
    field_name(field).is_some_and(|own| own.eq_ignore_ascii_case(name.as_bytes()))
}

fn from_field(author: &LocalUser<'_>) -> String {
    let own = format!("{}@{}", author.user, author.hostname);
    let address = if author.address.is_empty() { &own } else { author.address };
    let name: String = author.full_name.chars().filter(|c| !c.is_control()).collect();
    match name.trim() {
        "" => format!("From: {address}\n"),
        name => format!("From: {} <{address}>\n", phrase(name)),
    }
}

/// A display name: atoms as they are, else quoted, else encoded (RFC 5322 §3.2.5, RFC 2047 §5).
fn phrase(name: &str) -> String {
    if !name.is_ascii() {
        return mail::encoded_word::encoded_words(name, "\n ");
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || " !#$%&'*+-/=?^_`{|}~".contains(c);
    if name.chars().all(plain) && !name.contains("=?") {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields(raw: &str) -> usize {
        ParsedMessage::parse(raw.as_bytes()).fields.len()
    }

    #[test]
    fn the_header_ends_at_the_first_line_that_cannot_be_in_it() {
        for (raw, count, body) in [
            ("A: b\nC: d\n\nbody\n", 2, "body\n"),
            ("A: b\r\n c\r\n\r\nbody", 1, "body"),
            ("A: b\nno field\n", 1, "no field\n"),
            ("hello: is a field\n", 1, ""),
            ("hello world: is none\n", 0, "hello world: is none\n"),
            (" starts folded\nA: b\n\nx", 0, " starts folded\nA: b\n\nx"),
            ("A: b\n \nC: d\n", 2, ""),
            (">From me\nFrom you\nA: b\n\nx", 1, "x"),
            ("From me Sat Nov 21\nA: b\n\nx", 1, "x"),
            ("A : b\n\nx", 1, "x"),
            ("From : a@b\n\nx", 1, "x"),
            (": b\n", 0, ": b\n"),
            ("\nA: b\n", 0, "A: b\n"),
            ("A: b", 1, ""),
        ] {
            let draft = ParsedMessage::parse(raw.as_bytes());
            assert_eq!(
                (fields(raw), String::from_utf8_lossy(&draft.body).as_ref()),
                (count, body),
                "{raw:?}"
            );
        }
    }

    #[test]
    fn a_line_that_is_no_field_gets_an_empty_line_only_where_no_field_follows_it() {
        for (raw, text) in [
            ("A: b\nno field\nC: d\n\nbody\n", "A: b\nno field\nC: d\n\nbody\n"),
            ("A: b\nFrom me\nC: d\n", "A: b\nFrom me\nC: d\n"),
            ("A: b\nbody\n\nC: d\n", "A: b\n\nbody\n\nC: d\n"),
            (" folded\nC: d\n", "\n folded\nC: d\n"),
        ] {
            let text_of = |message: ParsedMessage| String::from_utf8(message.into_bytes()).unwrap();
            assert_eq!(text_of(ParsedMessage::parse(raw.as_bytes())), text);
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_in_goes_out_as_one_message(raw in "([A-Za-z]{0,3}[: ]{0,2}[a-z<>@]{0,3}\r?\n){0,6}[a-z. \n]{0,8}") {
            let author = LocalUser { address: "a@b", user: "u", full_name: "", hostname: "h" };
            let mut draft = ParsedMessage::parse(raw.as_bytes());
            let body = draft.body.clone();
            draft.complete(&author);
            let again = ParsedMessage::parse(&draft.clone().into_bytes());
            // What was added ends up in the header, and the body is the same.
            prop_assert_eq!(&again, &draft);
            prop_assert_eq!(again.body, body);
            prop_assert_eq!(again.fields.iter().filter(|f| has_name(f, "from")).count(), draft.fields.iter().filter(|f| has_name(f, "from")).count());
            prop_assert!(again.fields.iter().any(|f| has_name(f, "date")));
        }
    }

    #[test]
    fn an_address_must_be_utf8_and_the_name_beside_it_need_not() {
        let recipients = |raw: &[u8]| ParsedMessage::parse(raw).recipients();
        let bad = Err("To: b\u{fffd}b@b.test is not UTF-8".to_owned());
        assert_eq!(recipients(b"To: b\xf6b@b.test\n\n"), bad);
        let named = b"To: J\xf6rg <j@b.test>, \"\xc4, B.\" <a@b.test> (\xfc)\n\n";
        assert_eq!(recipients(named), Ok(vec!["j@b.test".to_owned(), "a@b.test".to_owned()]));
        assert_eq!(recipients("To: jörg@b.test\n\n".as_bytes()), Ok(vec!["jörg@b.test".to_owned()]));
    }

    #[test]
    fn a_message_over_the_limit_is_refused_not_cut() {
        let read = |text: &str, max| read(&mut text.as_bytes(), true, max);
        assert_eq!(read("12345", 5).unwrap(), b"12345");
        assert_eq!(read("123456", 5).unwrap_err().exit, Exit::DataErr);
    }

    #[test]
    fn names_are_written_so_that_they_stay_names() {
        assert_eq!(phrase("Bob Smith"), "Bob Smith");
        assert_eq!(phrase("Smith, <x@y>"), "\"Smith, <x@y>\"");
        assert_eq!(phrase("Jörg ="), "=?utf-8?q?J=C3=B6rg_=3D?=");
        let long = phrase(&"ä".repeat(40));
        assert!(long.split("\n ").all(|word| word.len() <= 75 && word.ends_with("?=")), "{long}");
        let read = mail_parser::MessageParser::new();
        let raw = format!("From: {} <a@b>\r\n\r\n", long.replace('\n', "\r\n"));
        let parsed = read.parse(raw.as_bytes()).unwrap();
        assert_eq!(parsed.from().unwrap().first().unwrap().name(), Some(&*"ä".repeat(40)));
    }
}
