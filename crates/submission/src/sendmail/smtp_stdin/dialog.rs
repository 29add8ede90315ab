//! The dialog of `sendmail -bs`, without I/O: what of the input may be sent, and what the replies mean.
//!
//! A program may write the whole dialog at once, with LF line ends. So command lines get CRLF, and what stands
//! behind DATA is sent as content when 354 has come. A DATA command that ended in LF makes LF `.` LF the end of
//! its content; one that ended in CRLF makes it CRLF `.` CRLF, and its content is sent as it is. No other
//! sequence ends the content, so text that somebody else wrote cannot end it early.

/// Replies that may be awaited at once. The daemon must not wait for us to read them while we wait for it to
/// read.
const AWAITED_MAX: usize = 100;
/// Longer lines are sent in pieces, so that none is in memory as a whole.
const PIECE_BYTES: usize = 8 * 1024;

/// How the program ends its lines, as its DATA command did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEnd {
    Lf,
    CrLf,
}

/// The state of the dialog, which decides how the input is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Waits for the greeting: nothing is sent before.
    Greeting,
    Commands,
    /// Waits for the reply to DATA: what follows depends on it.
    Data(LineEnd),
    /// Waits for the reply to STARTTLS.
    StartTls,
    Content {
        line_end: LineEnd,
        /// The position is behind this line end, or at the start of the content.
        at_line_start: bool,
        /// DATA was refused after a program had sent the content: it is not sent.
        is_skipped: bool,
    },
    /// Octets that BDAT announced.
    Chunk(u64),
    /// TLS: octets are passed on as they are.
    Opaque,
    /// QUIT was sent: no further input is wanted.
    Closing,
}

/// What `sendmail -bs` passes between its standard input and the daemon, without I/O.
#[derive(Debug)]
pub(crate) struct Dialog {
    mode: Mode,
    unsent: Vec<u8>,
    has_ended: bool,
    /// The line whose first piece was sent is not a command of its own.
    is_inside_line: bool,
    /// Replies that have not come.
    awaited: usize,
    /// Some reply was 4yz; some was 5yz.
    refused: (bool, bool),
    /// The greeting was 4yz.
    is_not_served: bool,
}

/// How the dialog ended, for the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// No command was rejected.
    Accepted,
    /// A command got a 4yz, and none a 5yz.
    Deferred,
    /// A command got a 5yz.
    Refused,
    /// The daemon takes no session now: the greeting said so.
    NotServed,
    /// The input ended inside of a message, which was not taken.
    Cut,
    /// The daemon left a command without a reply.
    Unanswered,
}

impl Dialog {
    pub(crate) fn new() -> Self {
        Self {
            mode: Mode::Greeting,
            unsent: Vec::new(),
            has_ended: false,
            is_inside_line: false,
            awaited: 1,
            refused: (false, false),
            is_not_served: false,
        }
    }

    /// Takes the next octets of the input.
    pub(crate) fn input(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
    }

    /// Notes that standard input has ended.
    pub(crate) fn input_ended(&mut self) {
        self.has_ended = true;
    }

    /// More of the input can be used now.
    pub(crate) fn wants_input(&self) -> bool {
        !self.has_ended && self.unsent.len() < 2 * PIECE_BYTES && self.mode != Mode::Closing
    }

    /// The input has been sent to its end, or to QUIT.
    pub(crate) fn is_sent(&self) -> bool {
        match self.mode {
            Mode::Closing => true,
            Mode::Greeting | Mode::Data(_) | Mode::StartTls => false,
            // What is left of the content has no line end.
            Mode::Content { .. } => self.has_ended,
            Mode::Commands | Mode::Chunk(_) | Mode::Opaque => self.has_ended && self.unsent.is_empty(),
        }
    }

    /// The daemon's octets are to be passed on as they are.
    pub(crate) fn is_opaque(&self) -> bool {
        self.mode == Mode::Opaque
    }

    /// Returns true if the caller must tell [`Dialog::reply`] whether input had come.
    pub(crate) fn asks_for_early_input(&self) -> bool {
        matches!(self.mode, Mode::Data(_)) && self.awaited == 1
    }

    /// Octets of input are there that were not sent.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// A whole reply has come. `is_early` tells whether more input had come before the program could read this
    /// reply: then content follows DATA, accepted or not.
    pub(crate) fn reply(&mut self, code: u16, is_early: bool) {
        self.awaited = self.awaited.saturating_sub(1);
        self.is_not_served |= self.mode == Mode::Greeting && (400..500).contains(&code);
        self.refused.0 |= (400..500).contains(&code);
        self.refused.1 |= code >= 500;
        if self.awaited > 0 {
            return;
        }
        self.mode = match self.mode {
            Mode::Greeting => Mode::Commands,
            Mode::Data(line_end) if code == 354 || is_early => {
                Mode::Content { line_end, at_line_start: true, is_skipped: code != 354 }
            }
            Mode::StartTls if code == 220 => Mode::Opaque,
            Mode::Data(_) | Mode::StartTls => Mode::Commands,
            mode => mode,
        };
    }

    /// Appends to `out` what may be sent now.
    pub(crate) fn send(&mut self, out: &mut Vec<u8>) {
        let unsent = std::mem::take(&mut self.unsent);
        let mut rest = &unsent[..];
        while self.send_some(&mut rest, out) {}
        let left = rest.len();
        self.unsent = unsent;
        self.unsent.drain(..self.unsent.len() - left);
    }

    /// One line or piece; false when nothing of `rest` can be sent.
    fn send_some(&mut self, rest: &mut &[u8], out: &mut Vec<u8>) -> bool {
        if rest.is_empty() {
            return false;
        }
        match &mut self.mode {
            Mode::Greeting | Mode::Data(_) | Mode::StartTls | Mode::Closing => false,
            Mode::Opaque => {
                out.extend_from_slice(std::mem::take(rest));
                true
            }
            Mode::Chunk(left) => {
                let count = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= count as u64;
                if *left == 0 {
                    self.mode = Mode::Commands;
                }
                out.extend_from_slice(split_off(rest, count));
                true
            }
            Mode::Commands if self.awaited >= AWAITED_MAX => false,
            Mode::Commands => match take_line(rest, self.has_ended) {
                Some(Piece::Line(line)) => {
                    self.command(line, out);
                    true
                }
                Some(Piece::Part(part)) => {
                    self.is_inside_line = true;
                    out.extend_from_slice(part);
                    true
                }
                None => false,
            },
            // Without its line end a last line may be more, or the end, of the content: it is not sent.
            Mode::Content { .. } => match take_line(rest, false) {
                Some(piece) => {
                    self.content(&piece, out);
                    true
                }
                None => false,
            },
        }
    }

    fn command(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let line_end = if line.ends_with(b"\r\n") { LineEnd::CrLf } else { LineEnd::Lf };
        let text = without_line_end(line);
        out.extend_from_slice(text);
        out.extend_from_slice(b"\r\n");
        self.awaited += 1;
        if std::mem::take(&mut self.is_inside_line) {
            return;
        }
        let mut words = text.split(|b| matches!(b, b' ' | b'\t'));
        let verb = words.next().unwrap_or_default().to_ascii_uppercase();
        self.mode = match &*verb {
            b"DATA" => Mode::Data(line_end),
            b"STARTTLS" => Mode::StartTls,
            b"QUIT" => Mode::Closing,
            b"BDAT" => {
                let size = words.find(|word| !word.is_empty()).and_then(|w| std::str::from_utf8(w).ok());
                // Of another size the daemon cannot know either, and it closes.
                match size.and_then(|size| size.parse().ok()) {
                    Some(0) | None => Mode::Commands,
                    Some(size) => Mode::Chunk(size),
                }
            }
            _ => Mode::Commands,
        };
    }

    fn content(&mut self, piece: &Piece<'_>, out: &mut Vec<u8>) {
        let Mode::Content { line_end, at_line_start, is_skipped } = &mut self.mode else { unreachable!() };
        let was_at_line_start = *at_line_start;
        let from = out.len();
        match (piece, &line_end) {
            (Piece::Part(part), _) => {
                *at_line_start = false;
                out.extend_from_slice(part);
            }
            (Piece::Line(line), LineEnd::CrLf) => {
                *at_line_start = line.ends_with(b"\r\n");
                out.extend_from_slice(line);
            }
            (Piece::Line(line), LineEnd::Lf) => {
                *at_line_start = true;
                let text = without_line_end(line);
                // A dot and CR LF among lines that end in LF does not end the content, and must not do so as
                // dot and CRLF.
                if was_at_line_start && line == b".\r\n" {
                    out.push(b'.');
                }
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
        }
        let is_end = was_at_line_start && out[from..] == *b".\r\n";
        if *is_skipped {
            out.truncate(from);
        } else if is_end {
            self.awaited += 1;
        }
        if is_end {
            self.mode = Mode::Commands;
        }
    }

    /// Returns the result of the dialog, now that the daemon has closed the connection.
    pub(crate) fn end(&self) -> End {
        match (self.refused, self.mode) {
            _ if self.is_not_served => End::NotServed,
            ((_, true), _) => End::Refused,
            ((true, _), _) => End::Deferred,
            (_, Mode::Opaque) => End::Accepted,
            (_, Mode::Content { .. } | Mode::Chunk(_)) => End::Cut,
            _ if self.awaited > 0 || self.has_unsent() && self.mode != Mode::Closing => End::Unanswered,
            _ => End::Accepted,
        }
    }
}

/// A line with its line end, or a part of a long one.
enum Piece<'a> {
    Line(&'a [u8]),
    Part(&'a [u8]),
}

/// `None` when more of the line must come first. A CR at the end of a part stays, as it may belong to the line
/// end.
fn take_line<'a>(rest: &mut &'a [u8], has_ended: bool) -> Option<Piece<'a>> {
    match rest.iter().position(|b| *b == b'\n') {
        Some(at) => Some(Piece::Line(split_off(rest, at + 1))),
        None if has_ended => Some(Piece::Line(std::mem::take(rest))),
        None if rest.len() < PIECE_BYTES => None,
        None => {
            let count = rest.len() - usize::from(rest.ends_with(b"\r"));
            Some(Piece::Part(split_off(rest, count)))
        }
    }
}

fn split_off<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (front, behind) = rest.split_at(count);
    *rest = behind;
    front
}

fn without_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Finds whole replies in what the daemon sends.
#[derive(Debug, Default)]
pub(crate) struct Replies(Vec<u8>);

impl Replies {
    /// Takes octets up to the end of the next reply: how many, and the code if the reply is whole.
    pub(crate) fn next(&mut self, bytes: &[u8]) -> (usize, Option<u16>) {
        let mut used = 0;
        while let Some(at) = bytes[used..].iter().position(|b| *b == b'\n') {
            self.0.extend_from_slice(&bytes[used..=used + at]);
            used += at + 1;
            let line = std::mem::take(&mut self.0);
            if line.get(3) != Some(&b'-') {
                let code = line.get(..3).and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
                return (used, Some(code.unwrap_or(0)));
            }
        }
        // Only the code is looked at.
        self.0.extend_from_slice(&bytes[used..]);
        self.0.truncate(4);
        (bytes.len(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives the input in pieces of `size`, and answers each line of what is sent outside of content. Returns
    /// what was sent, and how the dialog ended.
    fn talk(input: &str, size: usize, answer: impl Fn(&str) -> u16, is_early: bool) -> (String, End) {
        let mut dialog = Dialog::new();
        let (mut sent, mut answered, mut in_content) = (String::new(), 0, false);
        dialog.reply(220, false);
        let mut pieces = input.as_bytes().chunks(size).peekable();
        loop {
            let mut out = Vec::new();
            dialog.send(&mut out);
            sent.push_str(std::str::from_utf8(&out).unwrap());
            while let Some(length) = sent[answered..].find("\r\n") {
                let line = &sent[answered..answered + length];
                answered += length + 2;
                if in_content && line != "." {
                    continue;
                }
                let code = answer(line);
                in_content = code == 354;
                dialog.reply(code, is_early);
            }
            let is_stuck = out.is_empty();
            match pieces.next() {
                Some(piece) => dialog.input(piece),
                None if dialog.is_sent() => break,
                None if is_stuck => dialog.input_ended(),
                None => {}
            }
        }
        (sent, dialog.end())
    }

    fn usual(line: &str) -> u16 {
        match line {
            "DATA" => 354,
            "RCPT TO:<no@b>" => 550,
            "RCPT TO:<later@b>" => 451,
            "QUIT" => 221,
            _ => 250,
        }
    }

    const SIZES: [usize; 5] = [1, 2, 3, 7, 1000];

    #[test]
    fn a_dialog_with_lf_line_ends_that_is_written_at_once_is_spoken() {
        let input = "EHLO x\nMAIL FROM:<a@b>\nRCPT TO:<c@d>\nDATA\nSubject: s\n\n..dot\n.\nQUIT\n";
        for size in SIZES {
            let (sent, end) = talk(input, size, usual, true);
            assert_eq!(sent, input.replace('\n', "\r\n"), "{size}");
            assert_eq!(end, End::Accepted);
        }
    }

    #[test]
    fn only_the_line_end_of_the_data_command_ends_its_content() {
        let early = ["\n.\r\nRSET\n", "\r\n.\r\nRSET\n", "\r.\nRSET\n", "\n.\rRSET\n", "\r\n.\rRSET\n"];
        for (size, text) in SIZES.iter().flat_map(|size| early.map(|text| (*size, text))) {
            let (sent, end) = talk(&format!("DATA\nbody{text}.\nQUIT\n"), size, usual, true);
            assert_eq!(sent.matches("\r\n.\r\n").count(), 1, "{text:?} {size}: {sent:?}");
            assert!(sent.ends_with("RSET\r\n.\r\nQUIT\r\n"), "{text:?} {size}: {sent:?}");
            assert_eq!(end, End::Accepted);
        }
        let early = ["\n.\nRSET", "\n.\r\nRSET", "\r\n.\nRSET", "\r.\r\nRSET", "\r\r\n.\r\r\nRSET"];
        for (size, text) in SIZES.iter().flat_map(|size| early.map(|text| (*size, text))) {
            let input = format!("DATA\r\nbody{text}\r\n.\r\nQUIT\r\n");
            assert_eq!(talk(&input, size, usual, true).0, input, "{text:?} {size}");
        }
    }

    #[test]
    fn content_behind_a_refused_data_is_not_read_as_commands() {
        let input = "RCPT TO:<no@b>\nDATA\nbody\nRSET\nMAIL FROM:<evil@b>\n.\nQUIT\n";
        let refuse = |line: &str| if line == "DATA" { 554 } else { usual(line) };
        let (sent, end) = talk(input, 1000, refuse, true);
        assert_eq!(sent, "RCPT TO:<no@b>\r\nDATA\r\nQUIT\r\n");
        assert_eq!(end, End::Refused);
        let (sent, _) = talk("DATA\nRSET\nQUIT\n", 1000, refuse, false);
        assert_eq!(sent, "DATA\r\nRSET\r\nQUIT\r\n", "a program that waited for the reply");
    }

    #[test]
    fn the_end_tells_what_was_refused_and_what_was_cut_off() {
        for (input, end) in [
            ("RCPT TO:<c@d>\nQUIT\n", End::Accepted),
            ("RCPT TO:<c@d>\n", End::Accepted),
            ("QUIT", End::Accepted),
            ("RCPT TO:<later@b>\nQUIT\n", End::Deferred),
            ("RCPT TO:<later@b>\nRCPT TO:<no@b>\nQUIT\n", End::Refused),
            ("DATA\nbody\n", End::Cut),
            ("DATA\nbody\n.", End::Cut),
            ("DATA\r\nbody\r\n.\n", End::Cut),
            ("BDAT 5\nabc", End::Cut),
        ] {
            assert_eq!(talk(input, 1000, usual, true).1, end, "{input:?}");
        }
        let mut dialog = Dialog::new();
        assert_eq!(dialog.end(), End::Unanswered, "no greeting");
        dialog.reply(220, false);
        dialog.input(b"NOOP\n");
        dialog.send(&mut Vec::new());
        assert_eq!(dialog.end(), End::Unanswered);
    }

    #[test]
    fn chunks_and_tls_are_passed_on_as_they_are() {
        let mut dialog = Dialog::new();
        let mut out = Vec::new();
        dialog.input(b"BDAT 7 LAST\nDATA\na\nSTARTTLS\n\x16\x03\n");
        dialog.send(&mut out);
        assert!(out.is_empty(), "the greeting comes first");
        dialog.reply(220, false);
        dialog.send(&mut out);
        assert_eq!(out, b"BDAT 7 LAST\r\nDATA\na\nSTARTTLS\r\n");
        dialog.reply(250, false);
        assert!(!dialog.is_opaque());
        dialog.reply(220, false);
        out.clear();
        dialog.send(&mut out);
        assert!(dialog.is_opaque());
        assert_eq!(out, b"\x16\x03\n");
    }

    #[test]
    fn a_long_line_goes_in_pieces_and_is_one_line() {
        let long = "x".repeat(5 * PIECE_BYTES);
        for size in [100, 5000, 100_000] {
            for input in [format!("NOOP {long}\nDATA\n{long}\n.\n"), format!("DATA\r\n{long}\r\n.\r\n")] {
                let (sent, end) = talk(&input, size, usual, true);
                assert!(sent == input.replace("\r\n", "\n").replace('\n', "\r\n"), "{size}");
                assert_eq!(end, End::Accepted);
            }
        }
    }

    proptest::proptest! {
        /// The splits of a pipe do not change how the text of a program is read.
        #[test]
        fn any_split_is_spoken_the_same(
            words in proptest::collection::vec("DATA|NOOP|[a. ]{0,3}|\\.", 0..12),
            ends in proptest::collection::vec("\n|\r\n|\r|", 12),
        ) {
            let input: String = words.iter().zip(&ends).map(|(word, end)| format!("{word}{end}")).collect();
            let whole = talk(&input, 1000, usual, true);
            for size in SIZES {
                proptest::prop_assert_eq!(&talk(&input, size, usual, true), &whole, "{}", size);
            }
        }
    }

    #[test]
    fn replies_are_found_at_every_split() {
        let text = b"220 a\r\n250-b\r\n250-c\r\n250 d\r\n354\r\n";
        for size in 1..text.len() {
            let (mut replies, mut codes) = (Replies::default(), Vec::new());
            for piece in text.chunks(size) {
                let mut rest = piece;
                while !rest.is_empty() {
                    let (used, code) = replies.next(rest);
                    codes.extend(code);
                    rest = &rest[used..];
                }
            }
            assert_eq!(codes, [220, 250, 354], "{size}");
        }
    }
}
