//! The mbox format: a line `From sender date` in front of each message, and an empty line behind it. Lines of the content
//! that look like that line, with any number of `>` in front, get one `>` more (mboxrd).

use crate::maildir::UnixLines;
use mail::{ReversePath, UnixMillis};
use std::io;

/// Returns the line in front of a message: `From a@b.test Mon Nov 23 10:00:00 2026`. The time is UTC.
pub(super) fn from_line(sender: &ReversePath, now: UnixMillis) -> String {
    let sender = match sender {
        ReversePath::Null => "MAILER-DAEMON".to_owned(),
        // A quoted local part may have blanks, which separate the date.
        ReversePath::Mailbox(mailbox) => mailbox.as_str().replace([' ', '\t'], "-"),
    };
    // `Mon, 23 Nov 2026 10:00:00 +0000`
    let date = now.rfc5322();
    let words: Vec<&str> = date.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    match words[..] {
        [weekday, day, month, year, time, ..] => {
            format!("From {sender} {weekday} {month} {day:>2} {time} {year}\n")
        }
        _ => format!("From {sender} {date}\n"),
    }
}

/// Writes content with LF as line end, and quotes lines that begin with `From `.
pub(super) struct Quoted<W> {
    out: LineStarts<W>,
    lines: UnixLines,
}

impl<W: io::Write> Quoted<W> {
    pub(super) fn new(out: W) -> Self {
        Self {
            out: LineStarts { out, start: Some(Vec::new()), is_at_line_start: true },
            lines: UnixLines::default(),
        }
    }

    /// Writes octets that are no content.
    pub(super) fn plain(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.out.write_all(bytes)
    }

    /// Writes a piece of the content.
    pub(super) fn content(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.lines.write(bytes, &mut self.out)
    }

    /// Ends the last line, and adds the empty line that separates messages. An empty line at the end of the content stays.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.lines.finish(&mut self.out)?;
        self.out.finish()
    }
}

/// Looks at the beginning of each line.
struct LineStarts<W> {
    out: W,
    /// The beginning of a line that may be `>>From `; none behind the decision.
    start: Option<Vec<u8>>,
    /// The next octet begins a line: `From ` there has to be quoted.
    is_at_line_start: bool,
}

const FROM: &[u8] = b"From ";

impl<W: io::Write> LineStarts<W> {
    fn emit(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(last) = bytes.last() {
            self.is_at_line_start = *last == b'\n';
        }
        self.out.write_all(bytes)
    }

    /// Decides on the beginning of a line that has this octet next.
    fn push(&mut self, mut start: Vec<u8>, next: u8) -> io::Result<()> {
        start.push(next);
        let word = start.iter().position(|b| *b != b'>').map_or(&[][..], |at| &start[at..]);
        if word == FROM {
            self.emit(b">")?;
        } else if FROM.starts_with(word) {
            self.start = Some(start);
            return Ok(());
        }
        self.emit(&start)?;
        self.start = (next == b'\n').then(Vec::new);
        Ok(())
    }

    fn finish(mut self) -> io::Result<W> {
        if let Some(start) = self.start.take() {
            self.emit(&start)?;
        }
        let end: &[u8] = if self.is_at_line_start { b"\n" } else { b"\n\n" };
        self.out.write_all(end)?;
        Ok(self.out)
    }
}

impl<W: io::Write> io::Write for LineStarts<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if let Some(start) = self.start.take() {
                self.push(start, *first)?;
                rest = &rest[1..];
                continue;
            }
            let end = rest.iter().position(|b| *b == b'\n').map_or(rest.len(), |at| at + 1);
            self.emit(&rest[..end])?;
            if rest[end - 1] == b'\n' {
                self.start = Some(Vec::new());
            }
            rest = &rest[end..];
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quoted(pieces: &[&str]) -> String {
        let mut out = Quoted::new(Vec::new());
        pieces.iter().for_each(|piece| out.content(piece.as_bytes()).unwrap());
        String::from_utf8(out.finish().unwrap()).unwrap()
    }

    #[test]
    fn the_first_line_has_sender_and_time() {
        let line =
            |text: &str| from_line(&ReversePath::parse(text, true).unwrap(), UnixMillis(1_795_242_354_048));
        assert_eq!(line("a@b.test"), "From a@b.test Sat Nov 21 06:25:54 2026\n");
        assert_eq!(line("\"a b\"@c.test"), "From \"a-b\"@c.test Sat Nov 21 06:25:54 2026\n");
        assert!(line("").starts_with("From MAILER-DAEMON Sat "));
    }

    proptest! {
        #[test]
        fn a_reader_gets_the_lines_back_at_every_split(
            lines in prop::collection::vec("[>]{0,3}(From |Fro|From:|F|x)?[a >]{0,3}", 1..6),
            at in 0usize..80,
        ) {
            let text = lines.join("\r\n") + "\r\n";
            let at = at.min(text.len());
            let file = quoted(&[&text[..at], &text[at..]]);
            // The line before the content ends with a line end, too.
            let whole = format!("\n{file}");
            prop_assert!(whole.ends_with("\n\n"));
            prop_assert!(!file.lines().any(|line| line.starts_with("From ")), "{}", file);
            let unquoted: Vec<&str> = file
                .strip_suffix('\n')
                .unwrap()
                .lines()
                .map(|line| {
                    let is_quoted = line.starts_with('>') && line.trim_start_matches('>').starts_with("From ");
                    if is_quoted { &line[1..] } else { line }
                })
                .collect();
            let (unquoted, expected) = (unquoted.join("\n"), text.replace("\r\n", "\n"));
            prop_assert_eq!(unquoted + "\n", expected);
        }
    }

    #[test]
    fn empty_lines_at_the_end_of_a_message_are_kept() {
        for (content, file) in [
            ("A: b\r\n\r\nx\r\n", "A: b\n\nx\n\n"),
            ("A: b\r\n\r\nx\r\n\r\n", "A: b\n\nx\n\n\n"),
            ("A: b\r\n\r\nx\r\n\r\n\r\n", "A: b\n\nx\n\n\n\n"),
            ("A: b\r\n\r\nx", "A: b\n\nx\n\n"),
            ("A: b\r\n\r\n", "A: b\n\n\n"),
            ("", "\n"),
        ] {
            assert_eq!(quoted(&[content]), file, "{content:?}");
        }
    }
}
