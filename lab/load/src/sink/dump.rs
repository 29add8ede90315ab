//! Messages written to files as smtp-sink's -d, -D and -S do.

use super::dialog::Dialog;
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::File,
    io::{self, Write as _},
    path::Path,
};

/// The settings of the files, and of the lines before each message.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// For strftime(3).
    pub(crate) template: String,
    /// Append messages to one file; otherwise each has its own, named with a random number.
    pub(crate) appends: bool,
    pub(crate) start: Vec<u8>,
    pub(crate) hostname: String,
}

/// A message on its way to a file. It is written whole at its end: a file with half a message
/// would look like a message.
#[derive(Debug)]
pub(crate) struct Dump {
    settings: Settings,
    id: u32,
    text: Vec<u8>,
}

impl Dump {
    /// A message of `dialog`, with the headers that smtp-sink puts before it.
    pub(crate) fn begin(settings: Option<&Settings>, dialog: &Dialog, peer: &str) -> Self {
        let settings = settings.cloned().unwrap_or_else(|| unreachable!("content is kept for a dump only"));
        let id = fastrand::u32(..);
        let mut text = settings.start.clone();
        let (hello, protocol) = (dialog.hello(), dialog.protocol());
        let mut field = |name: &str, value: &str| {
            text.extend_from_slice(format!("{name}: {value}\n").as_bytes());
        };
        field("X-Client-Addr", peer);
        field("X-Client-Proto", protocol);
        if let Some(hello) = hello {
            field("X-Helo-Args", hello);
        }
        for (i, argument) in dialog.arguments().iter().enumerate() {
            field(if i == 0 { "X-Mail-Args" } else { "X-Rcpt-Args" }, argument);
        }
        let now = jiff::Zoned::now().strftime("%a, %-d %b %Y %H:%M:%S %z").to_string();
        let by = format!("\tby {} (postlab sink) with {protocol} id {id:08x};", settings.hostname);
        field("Received", &format!("from {} ([{peer}])\n{by}\n\t{now}", hello.unwrap_or(peer)));
        Self { settings, id, text }
    }

    /// Adds content of the message.
    pub(crate) fn content(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }

    /// Writes the file; a failure is reported, and the sink continues. True if all is there.
    pub(crate) fn finish(&mut self) -> bool {
        let lines = self.text.split(|b| *b == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l));
        let mut text = lines.collect::<Vec<_>>().join(&b'\n');
        text.push(b'\n');
        let path = self.path();
        let written = self.write(Path::new(&path), &text);
        if let Err(error) = &written {
            eprintln!("postlab: write the message to {path}: {error}");
        }
        written.is_ok()
    }

    fn path(&self) -> String {
        let path = jiff::Zoned::now().strftime(&self.settings.template).to_string();
        if self.settings.appends { path } else { format!("{path}{:08x}", self.id) }
    }

    fn write(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        if !self.settings.appends {
            let written = File::create_new(path)?.write_all(text);
            return written.inspect_err(|_| drop(std::fs::remove_file(path)));
        }
        let mut file = File::options().append(true).create(true).open(path)?;
        // Sessions append one after the other, so that what one leaves unfinished is cut off at its begin.
        flock(&file, FlockOperation::LockExclusive)?;
        let length = file.metadata()?.len();
        file.write_all(text).inspect_err(|_| drop(file.set_len(length)))
    }
}

/// Reads -S: text with the escapes of C.
///
/// # Errors
/// An escape is not known or its number is too large.
pub(crate) fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let (byte, length) = match rest.first() {
            Some(b'a') => (7, 1),
            Some(b'b') => (8, 1),
            Some(b'f') => (12, 1),
            Some(b'n') => (b'\n', 1),
            Some(b'r') => (b'\r', 1),
            Some(b't') => (b'\t', 1),
            Some(b'v') => (11, 1),
            Some(b'\\') => (b'\\', 1),
            Some(b'0'..=b'7') => octal(rest)?,
            _ => return Err(format!("`{text}` has a backslash without a known character behind it")),
        };
        out.push(byte);
        rest = &rest[length..];
    }
    Ok(out)
}

/// Up to three octal digits: the byte, and how many there are.
fn octal(text: &[u8]) -> Result<(u8, usize), String> {
    let length = text.iter().take(3).take_while(|b| matches!(b, b'0'..=b'7')).count();
    let value = text[..length].iter().fold(0u32, |n, digit| n * 8 + u32::from(digit - b'0'));
    let byte = u8::try_from(value).map_err(|_| format!("\\{value:o} is more than one byte"))?;
    Ok((byte, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_those_of_c() {
        assert_eq!(unescape(r"From \t\\x\101\0\n").unwrap(), b"From \t\\xA\0\n");
        assert!(unescape(r"\q").is_err() && unescape("\\").is_err() && unescape(r"\777").is_err());
    }
}
