//! The messages a source sends: alike, but for their Message-ID and, where asked, their recipients.

use crate::checksum;
use bytes::Bytes;
use mail::{
    Content, ContentTraits, Envelope, ForwardPath, IdSource, Message, Origin, Part, Recipient, ReversePath,
    SharedMessage, UnixMillis, header::ContentScanner,
};
use std::{
    fs::File,
    io::Read as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// The values of -f, -t, -l, -F, -S, -r, -N and -o.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) from: String,
    pub(crate) to: String,
    /// Recipients, of which each message gets one at random; none: `to`.
    pub(crate) users: Vec<String>,
    /// Senders, of which each message gets one at random; none: `from`.
    pub(crate) senders: Vec<String>,
    pub(crate) hostname: String,
    pub(crate) recipients: u32,
    /// Prepend a number to each recipient that never repeats.
    pub(crate) numbered: bool,
    pub(crate) subject: Option<String>,
    pub(crate) body: Body,
    /// The content goes with BDAT, so it is marked as binary.
    pub(crate) is_chunked: bool,
}

/// Which content messages have.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// A few lines of text.
    Short,
    /// So many octets of payload.
    Length(u64),
    /// Random text of a random length from the first to the second, with its checksum in the header.
    Random(u64, u64),
    /// A whole message, header included, in wire form.
    File(Bytes),
}

/// Makes one message after the other, with ids of their own.
#[derive(Debug)]
pub(crate) struct MessageTemplate {
    options: Options,
    from: ReversePath,
    senders: Vec<ReversePath>,
    /// Recipients that are the same in each message.
    to: Vec<Recipient>,
    users: Vec<Recipient>,
    /// From the Message-ID on to the end; messages take one or the other.
    rests: Vec<Bytes>,
    traits: ContentTraits,
    has_header: bool,
    ids: IdSource,
    sequence: AtomicU64,
    process: u32,
    origin: Origin,
}

/// Payload lines are as long as smtp-source's, CRLF included.
const LINE_BYTES: u64 = 80;
/// Different bodies where they are random: made before the clock starts, and enough to be no pattern.
const VARIANTS: usize = 64;

impl MessageTemplate {
    /// Checks the addresses, and makes what all messages share. Without `has_header` the payload is all.
    pub(crate) fn new(options: Options, has_header: bool) -> Result<Self, String> {
        let from =
            ReversePath::parse(&options.from, true).map_err(|e| format!("sender <{}>: {e}", options.from))?;
        let numbered = options.numbered || options.recipients > 1;
        let to = if options.numbered {
            // Tried once here, so that no message can fail later.
            recipient(Some(u64::MAX), &options.to)?;
            Vec::new()
        } else {
            let number = |i: u32| numbered.then_some(u64::from(i));
            (0..options.recipients)
                .map(|i| recipient(number(i + 1), &options.to))
                .collect::<Result<_, _>>()?
        };
        let users = options.users.iter().map(|to| recipient(None, to)).collect::<Result<_, _>>()?;
        let sender =
            |from: &String| ReversePath::parse(from, true).map_err(|e| format!("sender <{from}>: {e}"));
        let senders = options.senders.iter().map(sender).collect::<Result<_, _>>()?;
        let has_header = has_header && !matches!(options.body, Body::File(_));
        let count = if matches!(options.body, Body::Random(..)) { VARIANTS } else { 1 };
        let rests: Vec<Bytes> = (0..count).map(|_| rest_of(&options, has_header)).collect();
        let mut scan = ContentScanner::default();
        // All are made alike: what is true of one is true of all.
        scan.scan(&rests[0]);
        let origin = "postlab".into();
        let traits = scan.traits();
        let is_binary = traits.is_binary || options.is_chunked;
        let traits = ContentTraits { has_utf8_header: false, is_binary, ..traits };
        Ok(Self {
            options,
            from,
            senders,
            to,
            users,
            rests,
            traits,
            has_header,
            ids: IdSource::default(),
            sequence: AtomicU64::new(1),
            process: std::process::id(),
            origin,
        })
    }

    /// Returns the next message, with an id that no other has.
    pub(crate) fn next(&self) -> SharedMessage {
        let arrived = UnixMillis::now();
        let id = self.ids.next(arrived.0);
        let rest = if self.rests.len() > 1 { fastrand::usize(..self.rests.len()) } else { 0 };
        let mut parts = vec![Part::Memory(self.rests[rest].clone())];
        if self.has_header {
            let line = format!("Message-ID: <{id}.{}@{}>\r\n", self.process, self.options.hostname);
            parts.insert(0, Part::Memory(line.into()));
        }
        let from = fastrand::choice(&self.senders).unwrap_or(&self.from);
        let mut envelope = Envelope::new(from.clone());
        envelope.recipients = match fastrand::choice(&self.users) {
            Some(user) => vec![user.clone()],
            None if self.options.numbered => self.numbered(),
            None => self.to.clone(),
        };
        let content = Content::new(self.traits, parts);
        Arc::new(Message { id, arrived, origin: self.origin.clone(), envelope, content })
    }

    fn numbered(&self) -> Vec<Recipient> {
        let first = self.sequence.fetch_add(u64::from(self.options.recipients), Relaxed);
        let made =
            (0..self.options.recipients).map(|i| recipient(Some(first + u64::from(i)), &self.options.to));
        made.filter_map(Result::ok).collect()
    }
}

fn recipient(number: Option<u64>, to: &str) -> Result<Recipient, String> {
    let address = number.map_or_else(|| to.to_owned(), |n| format!("{n}{to}"));
    let path = ForwardPath::parse(&address, true).map_err(|e| format!("recipient <{address}>: {e}"))?;
    Ok(Recipient::new(path))
}

/// Header behind the Message-ID, and body.
fn rest_of(options: &Options, has_header: bool) -> Bytes {
    let mut text = Vec::new();
    let body = match &options.body {
        Body::Short => {
            (1..=4).flat_map(|n| format!("This is line {n} of a postlab message.\r\n").into_bytes()).collect()
        }
        Body::Length(length) => payload(*length, || b'X'),
        // A dot may not begin a line, so that no variant differs in how it travels.
        Body::Random(least, most) => payload(fastrand::u64(least..=most), || fastrand::alphanumeric() as u8),
        Body::File(bytes) => return bytes.clone(),
    };
    if has_header {
        let mut field = |name: &str, value: &str| {
            text.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        };
        field("From", &format!("<{}>", options.from));
        field("To", &format!("<{}>", options.to));
        field("Date", &UnixMillis::now().rfc5322());
        if let Some(subject) = &options.subject {
            field("Subject", subject);
        }
        if matches!(options.body, Body::Random(..)) {
            text.extend_from_slice(checksum::field(&body).as_bytes());
        }
        text.extend_from_slice(b"\r\n");
    }
    text.extend(body);
    text.into()
}

/// Exactly `length` octets in lines. The last line is shorter; a single octet is left for none.
fn payload(length: u64, mut message: impl FnMut() -> u8) -> Vec<u8> {
    let mut out = Vec::new();
    let mut left = length;
    while left > 1 {
        let line = left.min(LINE_BYTES);
        let line = if left - line == 1 { line - 1 } else { line };
        out.extend((2..line).map(|_| message()));
        out.extend_from_slice(b"\r\n");
        left -= line;
    }
    out.extend((0..left).map(|_| message()));
    out
}

/// The largest file that -F, --users and --senders read, in octets.
const FILE_MAX_BYTES: u64 = 256 << 20;

/// Reads a whole file of at most 256 MiB; devices without an end are refused by their size too.
///
/// # Errors
/// The file cannot be read, or is larger.
pub(crate) fn read_bounded(path: &Path) -> Result<Vec<u8>, String> {
    read_at_most(path, FILE_MAX_BYTES)
}

fn read_at_most(path: &Path, max_bytes: u64) -> Result<Vec<u8>, String> {
    let failed = |e: std::io::Error| format!("read {}: {e}", path.display());
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    let too_large = || format!("read {}: it has more than {max_bytes} octets", path.display());
    if file.metadata().map_err(failed)?.len() > max_bytes {
        return Err(too_large());
    }
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > max_bytes { Err(too_large()) } else { Ok(bytes) }
}

/// Reads -F's file: its lines get CRLF ends, as smtp-source gives them.
pub(crate) fn read_file(path: &Path) -> Result<Bytes, String> {
    let text = read_bounded(path)?;
    let mut out = Vec::with_capacity(text.len() + text.len() / 32);
    for line in text.split_inclusive(|b| *b == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        out.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
        out.extend_from_slice(b"\r\n");
    }
    Ok(out.into())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Short messages from a to c.
    pub(in super::super) fn template() -> MessageTemplate {
        let (from, to) = ("a@b.example".into(), "c@d.example".into());
        MessageTemplate::new(Options { from, to, ..options() }, true).unwrap()
    }

    fn options() -> Options {
        Options {
            from: "foo@h.example".into(),
            to: "bar@h.example".into(),
            users: Vec::new(),
            senders: Vec::new(),
            hostname: "h.example".into(),
            recipients: 1,
            numbered: false,
            subject: None,
            body: Body::Short,
            is_chunked: false,
        }
    }

    fn paths(message: &Message) -> Vec<String> {
        message.envelope.recipients.iter().map(|r| r.path.as_str().to_owned()).collect()
    }

    #[test]
    fn a_payload_has_exactly_its_length_and_only_whole_lines() {
        for length in [2, 3, 79, 80, 81, 82, 160, 161, 1000] {
            let text = payload(length, || b'X');
            assert_eq!(text.len() as u64, length);
            let bare = |w: &[u8]| (w[1] == b'\n') != (w[0] == b'\r');
            assert!(text.ends_with(b"\r\n") && !text.windows(2).any(bare), "{length}: {text:?}");
        }
    }

    #[test]
    fn recipients_are_numbered_when_there_are_many_and_never_again_with_capital_n() {
        let three = MessageTemplate::new(Options { recipients: 3, ..options() }, true).unwrap();
        assert_eq!(paths(&three.next()), ["1bar@h.example", "2bar@h.example", "3bar@h.example"]);
        assert_eq!(paths(&three.next())[0], "1bar@h.example");
        let ever =
            MessageTemplate::new(Options { recipients: 2, numbered: true, ..options() }, true).unwrap();
        assert_eq!(paths(&ever.next()), ["1bar@h.example", "2bar@h.example"]);
        assert_eq!(paths(&ever.next()), ["3bar@h.example", "4bar@h.example"]);
    }

    #[test]
    fn each_message_has_an_id_of_its_own_unless_it_has_no_header() {
        let template =
            MessageTemplate::new(Options { subject: Some("hi".into()), ..options() }, true).unwrap();
        let texts: Vec<_> = (0..2).map(|_| template.next().content.in_memory().unwrap()).collect();
        assert!(texts[0].starts_with(b"Message-ID: <") && texts[0] != texts[1]);
        assert!(String::from_utf8_lossy(&texts[0]).contains("\r\nSubject: hi\r\n\r\nThis is"));
        let old = MessageTemplate::new(options(), false).unwrap();
        assert!(old.next().content.in_memory().unwrap().starts_with(b"This is line 1"));
    }

    #[test]
    fn a_file_is_read_up_to_its_bound_and_a_device_without_an_end_is_refused() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, b"12345").unwrap();
        assert_eq!(read_at_most(file.path(), 5).unwrap(), b"12345");
        for (path, max_bytes) in [(file.path(), 4), (Path::new("/dev/zero"), 1 << 16)] {
            let error = read_at_most(path, max_bytes).unwrap_err();
            assert!(error.ends_with(&format!("it has more than {max_bytes} octets")), "{error}");
        }
    }

    #[test]
    fn a_bad_address_is_told_before_anything_is_sent() {
        let error = MessageTemplate::new(Options { to: "no at".into(), ..options() }, true).unwrap_err();
        assert!(error.starts_with("recipient <no at>: "), "{error}");
    }
}
