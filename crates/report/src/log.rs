//! The text log: events as lines in a file, on standard error, or for the system log. Each line is complete in itself.

mod json;
mod postfix;
mod syslog;
mod time;

pub use postfix::Postfix;
pub use syslog::Syslog;

use crate::{Event, Sink, UnixMicros};
use std::{
    fs::{File, Metadata, OpenOptions, Permissions},
    io::{self, Read as _, Seek as _, SeekFrom, Write},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// How events become lines.
#[derive(Debug, Clone)]
pub enum Format {
    /// One JSON object for each event.
    Json,
    /// Lines as Postfix logs them, which existing tools read.
    Postfix(Postfix),
}

impl Format {
    /// Appends the lines of an event, each with a line feed.
    pub fn append(&self, at: UnixMicros, event: &Event<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Json => json::append(event, at, out),
            Self::Postfix(postfix) => postfix.append(event, at, out),
        }
    }
}

/// `/dev/null`: number 3 of the memory devices.
const NULL_DEVICE: u64 = 1 << 8 | 3;

/// A log file. Lines that the disk cannot take are dropped and counted; the next line that can be written reports the
/// count.
pub struct LogFile {
    /// `None` is standard error.
    path: Option<PathBuf>,
    format: Format,
    target: Target,
    block: Vec<u8>,
    lost_count: u64,
    /// Lost lines that were reported.
    reported_count: u64,
    /// Why lines are lost.
    fault: Option<String>,
    last_at: UnixMicros,
}

impl LogFile {
    /// Opens a log file; `None` is standard error.
    ///
    /// # Errors
    /// A file that cannot be opened, in words.
    pub fn open(path: Option<PathBuf>, format: Format) -> Result<Self, String> {
        let target = Target::open(path.as_ref()).map_err(|e| {
            format!("open the log {}: {e}", path.as_deref().unwrap_or("stderr".as_ref()).display())
        })?;
        Ok(Self {
            path,
            format,
            target,
            block: Vec::new(),
            lost_count: 0,
            reported_count: 0,
            fault: None,
            last_at: UnixMicros::default(),
        })
    }

    /// Returns whether a write can wait until somebody reads: a pipe, a terminal, a socket.
    pub fn may_block(path: Option<&Path>) -> bool {
        let meta = match path {
            Some(path) => path.metadata(),
            None => Path::new("/proc/self/fd/2").metadata(),
        };
        let is_null = |meta: &Metadata| meta.file_type().is_char_device() && meta.rdev() == NULL_DEVICE;
        // A file that is not there yet becomes a regular one.
        path.is_none() && meta.is_err() || meta.is_ok_and(|meta| !meta.is_file() && !is_null(&meta))
    }
}

impl Sink for LogFile {
    fn write(&mut self, at: UnixMicros, event: &Event<'_>) {
        self.format.append(at, event, &mut self.block);
        self.last_at = at;
    }

    fn flush(&mut self) -> bool {
        if self.block.is_empty() {
            return false;
        }
        let lost_count = self.lost_count;
        let line_count = line_count(&self.block);
        if lost_count > self.reported_count {
            let event = Event::Dropped(lost_count - self.reported_count);
            self.format.append(self.last_at, &event, &mut self.block);
        }
        match self.target.write(&mut self.block) {
            Ok(()) => (self.reported_count, self.fault) = (lost_count, None),
            Err((whole_count, e)) => {
                self.lost_count += line_count.saturating_sub(whole_count);
                let name = self.path.as_deref().unwrap_or("stderr".as_ref()).display();
                let text = format!("write the delivery log {name}: {e}");
                if self.fault.is_none() {
                    tracing::error!("{text}");
                }
                self.fault = Some(text);
            }
        }
        self.block.clear();
        false
    }

    fn reopen(&mut self) {
        match Target::open(self.path.as_ref()) {
            Ok(new) => self.target = new,
            Err(e) => tracing::error!("open the delivery log again: {e}"),
        }
    }

    fn lost_count(&self) -> u64 {
        self.lost_count
    }

    fn fault(&self) -> Option<String> {
        self.fault.clone()
    }
}

fn line_count(block: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', block).count() as u64
}

/// Where lines are written to.
struct Target {
    to: Box<dyn Write + Send>,
    /// A write was cut off: the next one begins with a line feed.
    is_torn: bool,
}

impl Target {
    /// Readable for its owner and group only, because it has addresses of people.
    fn open(file: Option<&PathBuf>) -> io::Result<Self> {
        let Some(path) = file else { return Ok(Self { to: Box::new(io::stderr()), is_torn: false }) };
        let new = OpenOptions::new().append(true).create_new(true).mode(0o640).open(path);
        let file: File = match new {
            Ok(file) => {
                // The umask may have taken it from the group, such as adm.
                file.set_permissions(Permissions::from_mode(0o640))?;
                file
            }
            // A pipe that is open for reading, too, needs nobody at its other end yet.
            Err(_) => {
                let is_pipe = path.metadata().is_ok_and(|meta| meta.file_type().is_fifo());
                OpenOptions::new().read(is_pipe).append(true).create(!is_pipe).mode(0o640).open(path)?
            }
        };
        let is_torn = file.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > 0)
            && last_byte(path).is_ok_and(|byte| byte != b'\n');
        Ok(Self { to: Box::new(file), is_torn })
    }

    /// Writes whole lines. Behind one that was cut off they begin on a line of their own: else it would
    /// spoil the first of them, too.
    ///
    /// # Errors
    /// Says how many of the lines are there all the same.
    fn write(&mut self, block: &mut Vec<u8>) -> Result<(), (u64, io::Error)> {
        if self.is_torn {
            block.insert(0, b'\n');
        }
        let mut written = 0;
        let result = self.write_some(block, &mut written);
        let done = &block[..written];
        let line_count = line_count(done).saturating_sub(u64::from(self.is_torn));
        if let Some(last) = done.last() {
            self.is_torn = *last != b'\n';
        }
        result.map_err(|e| (line_count, e))
    }

    fn write_some(&mut self, block: &[u8], written: &mut usize) -> io::Result<()> {
        while *written < block.len() {
            match self.to.write(&block[*written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => *written += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.to.flush()
    }
}

fn last_byte(path: &Path) -> io::Result<u8> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut byte = [0];
    file.read_exact(&mut byte)?;
    Ok(byte[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        EventStream,
        event::{Accepted, Attempted, Notification, Rejected, SessionBreak, Status, Waiting},
    };
    use mail::{Enhanced, QueueId, UnixMillis};
    use std::{
        fs,
        sync::{Arc, Mutex},
    };

    /// Returns an event of most kinds.
    pub(super) fn samples() -> Vec<Event<'static>> {
        let (id, client) = (QueueId(1), "192.0.2.1:1234".parse().unwrap());
        let accepted = Accepted {
            id,
            from: "a@b.test",
            recipient_count: 1,
            size_bytes: 29,
            origin: "client=[192.0.2.1] helo=x proto=ESMTP",
            message_id: "<m@b.test>",
            login: None,
            requires_tls: false,
            release: None,
            deliver_by: None,
            priority: None,
        };
        let attempt = Attempted {
            id,
            from: "a@b.test",
            to: "\"q\\\"x\"@c.test",
            status: Status::Deferred,
            dsn: Enhanced(4, 2, 1),
            relay: "mx[192.0.2.2]:25",
            tls: "",
            reply: "450 4.2.1 \"busy\" \u{e9}",
            age_ms: 1000,
            queued_ms: 10,
            setup_ms: 20,
            transfer_ms: 30,
            index: Some(0),
        };
        let rejected = Rejected {
            client,
            stage: "RCPT",
            login: None,
            from: Some("x@y"),
            to: Some("z@w"),
            reply: "550 5.7.1 no",
            rule: Some("rule 3, line 20"),
        };
        let waiting = Waiting {
            id,
            from: "a@b.test",
            to: "z@w",
            dsn: Enhanced(4, 4, 1),
            destination: "mx:w",
            reason: "connect: refused",
            age_ms: 1000,
            until: Some(UnixMillis(1)),
            index: Some(0),
        };
        let cipher = "TLSv1.3:TLS_AES_256_GCM_SHA384";
        vec![
            Event::Accepted(accepted),
            Event::Attempt(attempt),
            Event::Waiting(waiting),
            Event::Expired { id, from: "a@b.test" },
            Event::Notified { id, notification: QueueId(2), kind: Notification::Failure },
            Event::Completed(id),
            Event::Rejected(rejected),
            Event::Deleted { id, from: "a@b.test", to: "\"q\\\"x\"@c.test", index: Some(0) },
            Event::Connected { client, listener: "mx" },
            Event::ClientTls { client, cipher, is_trusted: false, key_exchange: None },
            Event::LoggedIn { client, user: "ann", mechanism: "PLAIN" },
            Event::SessionBroken { client, cause: SessionBreak::Lost, after: "RCPT" },
            Event::Disconnected { client, commands: " ehlo=1 quit=1 commands=2" },
            Event::Dropped(3),
            Event::Listeners { action: "drain", listeners: "192.0.2.1:25" },
            Event::ReloadFailed { reason: "key.pem: no private key" },
        ]
    }

    fn log_to(path: &Path) -> EventStream {
        let file = LogFile::open(Some(path.to_owned()), Format::Json).unwrap();
        EventStream::start(vec![Box::new(file)]).unwrap()
    }

    #[test]
    fn each_line_of_each_thread_is_written_by_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = log_to(&path);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let log = &log;
                scope.spawn(move || {
                    (0..1000).for_each(|n| log.write(&Event::Completed(QueueId(thread * 1000 + n))));
                });
            }
        });
        drop(log);
        let text = fs::read_to_string(&path).unwrap();
        let mut ids: Vec<&str> = text.lines().map(|line| line.split('"').nth(11).unwrap()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 4000);
    }

    #[test]
    fn a_rotated_log_goes_on_in_a_new_file() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("log"), dir.path().join("log.1"));
        let log = log_to(&path);
        log.write(&Event::Dropped(1));
        fs::rename(&path, &old).unwrap();
        log.reopen();
        while !path.exists() {
            std::thread::yield_now();
        }
        log.write(&Event::Dropped(2));
        drop(log);
        let count = |path| fs::read_to_string(path).unwrap().lines().count();
        assert_eq!((count(&old), count(&path)), (1, 1));
    }

    #[test]
    fn lines_the_disk_refuses_are_counted() {
        let log = log_to(Path::new("/dev/full"));
        log.write(&Event::Dropped(1));
        while log.lost_count() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(log.lost_count(), 1);
    }

    /// A disk that has so much room, and then none until somebody made some.
    #[derive(Clone, Default)]
    struct Full(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock().unwrap();
            let count = bytes.len().min(disk.1);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            disk.0.extend_from_slice(&bytes[..count]);
            disk.1 -= count;
            Ok(count)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn after_a_line_that_was_cut_off_the_next_begins_on_its_own() {
        let disk = Full::default();
        let mut target = Target { to: Box::new(disk.clone()), is_torn: false };
        let mut write = |room: usize, text: &str| {
            disk.0.lock().unwrap().1 = room;
            target.write(&mut text.into()).map_err(|(whole_count, _)| whole_count)
        };
        assert_eq!(write(10, "one\ntwo\nthree\n"), Err(2));
        assert_eq!(write(0, "lost\n"), Err(0));
        assert_eq!(write(3, "lost\n"), Err(0));
        assert_eq!(write(1, "lost\n"), Err(0));
        assert_eq!(write(4, "lost\n"), Err(0), "no room for the end of the line");
        assert_eq!(write(100, "four\n"), Ok(()));
        assert_eq!(write(5, "five\nlost\n"), Err(1));
        assert_eq!(write(100, "six\n"), Ok(()));
        let text = String::from_utf8(disk.0.lock().unwrap().0.clone()).unwrap();
        assert_eq!(text, "one\ntwo\nth\nlo\nlost\nfour\nfive\nsix\n");
    }

    #[test]
    fn a_log_that_ends_within_a_line_goes_on_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for (before, line_count) in [("", 1), ("whole\n", 2), ("half", 2)] {
            fs::write(&path, before).unwrap();
            let log = log_to(&path);
            log.write(&Event::Dropped(1));
            drop(log);
            let text = fs::read_to_string(&path).unwrap();
            let last = text.lines().last().unwrap();
            assert!(text.lines().count() == line_count && last.starts_with('{'), "{text}");
        }
    }
}
