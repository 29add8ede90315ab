//! The capture mode: mail for every address is taken and shown, and none is sent. For tests of programs that send mail.

use config::{Problems, Settings};
use mail_parser::{Message, MessageParser, MimeHeaders as _};
use report::{Event, Sink, UnixMicros, event::Status};
use std::{
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// All routes lead to one Maildir, so that no message can leave. The networks are the private ones (RFC 1918, RFC 4193).
const CONFIGURATION: &str = "\
data_dir = DATA
[[listen]]
address = \"LISTEN\"
[relay]
networks = [\"127.0.0.0/8\", \"::1/128\", \"10.0.0.0/8\", \"172.16.0.0/12\", \"192.168.0.0/16\", \"fc00::/7\"]
[local]
maildir = CAPTURED
[[route]]
domains = [\"*\"]
maildir = CAPTURED
[log]
file = LOG
";
/// The Maildir, below the data directory.
const FOLDER: &str = "captured";
/// Lines of the text that are shown.
const LINES_MAX: usize = 40;
/// Characters of a line that are shown.
const LINE_MAX_CHARS: usize = 200;
/// More of a message is not read.
const READ_MAX_BYTES: u64 = 1 << 20;

/// The data directory, below the current one.
pub(crate) const DATA_DIR: &str = "postrider-capture";

/// Returns the settings of the capture mode, whose data are in a directory that exists.
///
/// # Errors
/// The address or the directory cannot be used.
pub(crate) fn settings(listen: SocketAddr, data_dir: &Path) -> Result<Settings, Problems> {
    let path = |path: PathBuf| format!("{:?}", path.display().to_string());
    let text = CONFIGURATION
        .replace("LISTEN", &listen.to_string())
        .replace("DATA", &path(data_dir.to_owned()))
        .replace("CAPTURED", &path(data_dir.join(FOLDER)))
        .replace("LOG", &path(data_dir.join("mail.log")));
    config::load_built_in(&text, "serve --capture")
}

/// Shows what arrives in the Maildir on standard output. What was shown is moved from `new` to `cur`.
pub(crate) struct Viewer {
    folder: PathBuf,
    has_new: bool,
    number: u64,
}

impl Viewer {
    pub(crate) fn of(settings: &Settings) -> Self {
        Self { folder: settings.data_dir.join(FOLDER), has_new: true, number: 0 }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn show_new(&mut self) -> io::Result<()> {
        let listed = match fs::read_dir(self.folder.join("new")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            listed => listed?,
        };
        let mut names: Vec<_> = listed.map(|entry| entry.map(|e| e.file_name())).collect::<Result<_, _>>()?;
        names.sort();
        for name in names {
            let file = self.folder.join("new").join(&name);
            let shown = self.folder.join("cur").join(format!("{}:2,", name.display()));
            let text = read(&file)?;
            self.number += 1;
            fs::rename(&file, &shown)?;
            // Who has closed standard output does not want to see it.
            let _ = io::stdout().write_all(describe(self.number, &text, &shown).as_bytes());
        }
        let _ = io::stdout().flush();
        Ok(())
    }
}

impl Sink for Viewer {
    fn write(&mut self, _: UnixMicros, event: &Event<'_>) {
        self.has_new |= matches!(event, Event::Attempt(attempt) if attempt.status == Status::Sent);
    }

    fn flush(&mut self) -> bool {
        if std::mem::take(&mut self.has_new)
            && let Err(error) = self.show_new()
        {
            tracing::warn!("show captured mail in {}: {error}", self.folder.display());
        }
        false
    }
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(fs::File::open(file)?, READ_MAX_BYTES), &mut text)?;
    Ok(text)
}

/// Returns a message as a text for a terminal, without its control characters.
fn describe(number: u64, text: &[u8], file: &Path) -> String {
    let mut shown = format!("\n=== message {number}: {}\n", file.display());
    let Some(message) = MessageParser::new().parse(text) else {
        shown.push_str("(this is no message with a header)\n");
        return shown;
    };
    // Written by the delivery, the innermost one first.
    for name in ["Return-Path", "Delivered-To", "From", "To", "Cc", "Subject", "Date", "Message-ID"] {
        if let Some(value) = value(&message, name) {
            let _ = writeln!(shown, "{name}: {value}");
        }
    }
    shown.push('\n');
    match message.body_text(0) {
        Some(body) => {
            for line in body.lines().take(LINES_MAX) {
                shown.push_str(&plain(line));
                shown.push('\n');
            }
            let left = body.lines().skip(LINES_MAX).count();
            if left > 0 {
                let _ = writeln!(shown, "({left} more lines)");
            }
        }
        None => shown.push_str("(no text)\n"),
    }
    for part in message.attachments() {
        let name = part.attachment_name().unwrap_or("without a name");
        let _ = writeln!(shown, "(attachment {}: {} bytes)", plain(name), part.contents().len());
    }
    shown
}

/// A header field as it is written, or decoded where it is text (RFC 2047).
fn value(message: &Message<'_>, name: &str) -> Option<String> {
    let decoded = match name {
        "Subject" => message.subject().map(str::to_owned),
        _ => message.header_raw(name).map(|raw| raw.split_whitespace().collect::<Vec<_>>().join(" ")),
    };
    decoded.map(|value| plain(&value)).filter(|value| !value.is_empty())
}

fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || *c == '\t').take(LINE_MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_mail_of_the_capture_mode_can_leave() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings("127.0.0.1:2525".parse().unwrap(), dir.path()).unwrap();
        let targets: Vec<_> = settings.routes.iter().map(|route| format!("{:?}", route.target)).collect();
        assert_eq!(targets.len(), 1);
        assert!(targets[0].starts_with("Maildir"), "{targets:?}");
    }

    #[test]
    fn a_message_is_shown_decoded_and_without_control_characters() {
        let text = b"Return-Path: <a@b.test>\nDelivered-To: c@d.test\nSubject: =?utf-8?Q?Gr=C3=BC=C3=9Fe?=\n\
                     Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\n\
                     SGVsbG8gG1sybXd0Cg==\n";
        let shown = describe(1, text, Path::new("captured/cur/x"));
        for part in [
            "message 1: captured/cur/x",
            "Delivered-To: c@d.test\n",
            "Subject: Gr\u{fc}\u{df}e\n",
            "\nHello [2mwt\n",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}
