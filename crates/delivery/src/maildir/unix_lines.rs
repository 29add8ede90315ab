//! Line ends of files and of the input of programs: LF.

use std::io;

/// Turns CRLF into LF, also at the border of two pieces. A lone CR or LF stays.
#[derive(Default)]
pub(crate) struct UnixLines {
    ends_in_cr: bool,
}

impl UnixLines {
    pub(crate) fn write(&mut self, bytes: &[u8], out: &mut impl io::Write) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.ends_in_cr) && bytes[0] != b'\n' {
            out.write_all(b"\r")?;
        }
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|b| *b == b'\r') {
            out.write_all(&rest[..at])?;
            match rest.get(at + 1) {
                Some(b'\n') => {}
                Some(_) => out.write_all(b"\r")?,
                None => self.ends_in_cr = true,
            }
            rest = &rest[at + 1..];
        }
        out.write_all(rest)
    }

    pub(crate) fn finish(self, out: &mut impl io::Write) -> io::Result<()> {
        if self.ends_in_cr { out.write_all(b"\r") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn line_ends_are_the_same_at_every_split(text in "[a\r\n]{0,40}", at in 0usize..40) {
            let at = at.min(text.len());
            let mut out = Vec::new();
            let mut lines = UnixLines::default();
            lines.write(&text.as_bytes()[..at], &mut out).unwrap();
            lines.write(&text.as_bytes()[at..], &mut out).unwrap();
            lines.finish(&mut out).unwrap();
            prop_assert_eq!(String::from_utf8(out).unwrap(), text.replace("\r\n", "\n"));
        }
    }
}
