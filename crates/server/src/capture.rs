//! The capture mode: mail for every address is taken and shown, and none is sent. For tests of programs that send mail.

use crate::sockets::try_address;
use config::{Problems, Settings, UserStore};
use mail::QueueId;
use mail_parser::{Message, MessageParser, MimeHeaders as _};
use report::{Event, Sink, UnixMicros};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
};

/// All routes lead to one Maildir, so that no message can leave. The networks are the private ones (RFC 1918, RFC 4193).
const CONFIGURATION: &str = "\
data_dir = DATA
[[listen]]
address = \"LISTEN\"
LISTEN6[auth]
allow_clear_text = true
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
/// Below the data directory: a Maildir for all mail.
const FOLDER: &str = "captured";
/// Lines of the text that are shown.
const LINES_MAX: usize = 40;
/// The rest of a longer line is not shown.
const LINE_MAX_CHARS: usize = 200;
/// More of a message is not read.
const READ_MAX_BYTES: u64 = 1 << 20;

/// The address to listen at, unless another one is given.
pub const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2525);

/// Below the current directory.
pub const DATA_DIR: &str = "postrider-capture";

/// Returns the settings of the capture mode, whose data are in a directory that exists.
///
/// # Errors
/// The address or the directory cannot be used.
pub fn settings(listen: SocketAddr, data_dir: &Path) -> Result<Settings, Problems> {
    let path = |path: PathBuf| format!("{:?}", path.display().to_string());
    // A client that looks `localhost` up may come by IPv6.
    let second = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), listen.port());
    let has_second = listen.ip() == Ipv4Addr::LOCALHOST && listen.port() != 0 && try_address(second).is_ok();
    let second = if has_second { format!("[[listen]]\naddress = \"{second}\"\n") } else { String::new() };
    let text = CONFIGURATION
        .replace("LISTEN6", &second)
        .replace("LISTEN", &listen.to_string())
        .replace("DATA", &path(data_dir.to_owned()))
        .replace("CAPTURED", &path(data_dir.join(FOLDER)))
        .replace("LOG", &path(data_dir.join("mail.log")));
    let mut settings = config::load_built_in(&text, "serve --capture")?;
    settings.auth.users = Some(UserStore::Anybody);
    Ok(settings)
}

/// Shows each message that has arrived in the Maildir once, on standard output, and keeps it as one file `ID.eml` beside the
/// folders of the Maildir.
pub struct Viewer {
    folder: PathBuf,
    /// Messages all of whose recipients are delivered, and those that an earlier run has left.
    completed: BTreeSet<QueueId>,
    /// Nothing was shown yet.
    is_first: bool,
    number: u64,
}

/// A file of the Maildir: the copy of one recipient.
struct Copy {
    file: PathBuf,
    text: Vec<u8>,
}

impl Viewer {
    pub(crate) fn of(settings: &Settings) -> Self {
        let folder = settings.data_dir.join(FOLDER);
        // Now: later, copies of a message that is being delivered would count as left.
        let left = copies_in(&folder).unwrap_or_default();
        let completed = left.iter().filter_map(|copy| id_of(&copy.text)).collect();
        Self { folder, completed, is_first: true, number: 0 }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn show_new(&mut self) -> io::Result<()> {
        self.is_first = false;
        let mut messages: BTreeMap<Option<QueueId>, Vec<Copy>> = BTreeMap::new();
        for copy in copies_in(&self.folder)? {
            messages.entry(id_of(&copy.text)).or_default().push(copy);
        }
        let completed = std::mem::take(&mut self.completed);
        for (id, copies) in messages {
            match id {
                Some(id) if completed.contains(&id) => {
                    self.show(&format!("{id}.eml"), &copies)?;
                }
                Some(_) => {}
                None => {
                    for copy in copies {
                        let name = format!("{}.eml", copy.file.file_name().unwrap_or_default().display());
                        self.show(&name, &[copy])?;
                    }
                }
            }
        }
        let _ = io::stdout().flush();
        Ok(())
    }

    /// Shows a message, and makes one file of its copies.
    fn show(&mut self, name: &str, copies: &[Copy]) -> io::Result<()> {
        let Some((first, others)) = copies.split_first() else { return Ok(()) };
        let kept = self.folder.join(name);
        let further: Vec<&[u8]> = others.iter().filter_map(|copy| delivered_to(&copy.text)).collect();
        if further.is_empty() {
            fs::rename(&first.file, &kept)?;
        } else {
            // In `tmp` until it is whole, as in every Maildir.
            let whole = self.folder.join("tmp").join(name);
            let mut to = fs::File::create(&whole)?;
            further.iter().try_for_each(|line| to.write_all(line))?;
            io::copy(&mut fs::File::open(&first.file)?, &mut to)?;
            fs::rename(&whole, &kept)?;
            copies.iter().try_for_each(|copy| fs::remove_file(&copy.file))?;
        }
        self.number += 1;
        let mut text = further.concat();
        text.extend_from_slice(&first.text);
        // Who has closed standard output does not want to see it.
        let _ = io::stdout().write_all(describe(self.number, &text, &kept).as_bytes());
        Ok(())
    }
}

impl Sink for Viewer {
    fn write(&mut self, _: UnixMicros, event: &Event<'_>) {
        if let Event::Completed(id) = event {
            self.completed.insert(*id);
        }
    }

    fn flush(&mut self) -> bool {
        if (self.is_first || !self.completed.is_empty())
            && let Err(error) = self.show_new()
        {
            tracing::warn!("show captured mail in {}: {error}", self.folder.display());
        }
        false
    }
}

/// Returns what is in the Maildir, in the order of arrival; nothing if there is none yet.
fn copies_in(folder: &Path) -> io::Result<Vec<Copy>> {
    let listed = match fs::read_dir(folder.join("new")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed?,
    };
    let mut files: Vec<_> = listed.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    files.sort();
    files.into_iter().map(|file| Ok(Copy { text: read(&file)?, file })).collect()
}

/// Returns the queue id, which stands in the first `Received` field.
fn id_of(text: &[u8]) -> Option<QueueId> {
    let text = String::from_utf8_lossy(text);
    let (_, received) = text.split_once("Received: ")?;
    let words: Vec<&str> = received.split_ascii_whitespace().take(40).collect();
    let (_, id) = words.iter().zip(words.iter().skip(1)).find(|(word, _)| **word == "id")?;
    id.trim_end_matches(';').parse().ok()
}

/// Returns the line `Delivered-To` that the delivery has written.
fn delivered_to(text: &[u8]) -> Option<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').take(5).find(|line| line.starts_with(b"Delivered-To: "))
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
        if name == "Delivered-To" {
            let all = text.split_inclusive(|byte| *byte == b'\n').take_while(|line| line.len() > 1);
            for line in all.filter(|line| line.starts_with(b"Delivered-To: ")) {
                let _ = writeln!(shown, "{}", plain(String::from_utf8_lossy(line).trim_end()));
            }
        } else if let Some(value) = value(&message, name) {
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
    let text: String = text.chars().filter(|c| !c.is_control() || *c == '\t').take(LINE_MAX_CHARS).collect();
    mail::escape_invisible(&text).into_owned()
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
    fn a_message_is_shown_when_all_copies_are_there_or_when_an_earlier_run_left_it() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings("127.0.0.1:2525".parse().unwrap(), dir.path()).unwrap();
        let folder = dir.path().join(FOLDER);
        for name in ["new", "tmp"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        let deliver = |id: u64, to: &str| {
            let id = QueueId(id);
            let text = format!("Delivered-To: {to}\nReceived: from x by y with ESMTP id {id}; now\n\nx\n");
            fs::write(folder.join("new").join(to), text).unwrap();
        };
        let kept = |id: u64| fs::read_to_string(folder.join(format!("{}.eml", QueueId(id)))).ok();
        deliver(1, "left@a.test");
        let mut viewer = Viewer::of(&settings);
        deliver(2, "a@b.test");
        viewer.flush();
        assert!(kept(1).is_some() && kept(2).is_none());
        deliver(2, "c@d.test");
        viewer.write(UnixMicros(0), &Event::Completed(QueueId(2)));
        viewer.flush();
        assert_eq!(kept(2).unwrap().matches("Delivered-To: ").count(), 2);
    }

    #[test]
    fn the_queue_id_is_that_of_the_first_received_field() {
        let id = QueueId(7);
        let text = format!(
            "Delivered-To: a@b.test\nReceived: from x ([127.0.0.1])\n\tby y with ESMTP id {id};\n\tnow\n\n"
        );
        assert_eq!(id_of(text.as_bytes()), Some(id));
        assert_eq!(id_of(b"Subject: x\n\nid 5\n"), None);
        assert_eq!(delivered_to(text.as_bytes()), Some(&b"Delivered-To: a@b.test\n"[..]));
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
