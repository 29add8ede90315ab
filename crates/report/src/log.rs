//! The writer of the delivery log. Lines are formatted by the thread that has the event, and gathered in memory; a
//! thread writes them in blocks, so that no session and no delivery waits for the log's disk. Lines that the disk
//! cannot take are dropped and counted.

use crate::line::{self, Event, Postfix};
use mail::UnixMillis;
use std::{
    cell::RefCell,
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// The longest time that a line waits for others.
const GATHER: Duration = Duration::from_millis(100);
/// The size at which a block is written at once.
const BLOCK_BYTES: usize = 64 * 1024;
/// The most bytes that wait while the disk is busy; above, lines are dropped.
const WAITING_MAX_BYTES: usize = 16 * 1024 * 1024;

/// The format of lines.
#[derive(Debug, Clone)]
pub enum Format {
    /// One JSON object a line.
    Json,
    /// The lines of Postfix.
    Postfix(Postfix),
}

/// The settings of one log file.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// The file; none: standard error.
    pub file: Option<PathBuf>,
    /// The format of lines.
    pub format: Format,
}

/// Writes events. When it is dropped, waiting lines are written.
pub struct Log {
    outputs: Vec<Output>,
    lost: Arc<AtomicU64>,
}

struct Output {
    format: Format,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    waiting: Mutex<Waiting>,
    change: Condvar,
    file: Option<PathBuf>,
    lost: Arc<AtomicU64>,
}

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    line_count: u64,
    reopen: bool,
    closing: bool,
}

thread_local! {
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Log {
    /// Opens the files and starts writing.
    ///
    /// # Errors
    /// A file that cannot be opened, in words.
    pub fn open(settings: Vec<LogSettings>) -> Result<Self, String> {
        let lost = Arc::new(AtomicU64::new(0));
        let mut outputs = Vec::new();
        for LogSettings { file, format } in settings {
            let target = Target::open(file.as_ref()).map_err(|e| {
                format!("open the log {}: {e}", file.as_deref().unwrap_or("stderr".as_ref()).display())
            })?;
            let shared = Arc::new(Shared {
                waiting: Mutex::default(),
                change: Condvar::new(),
                file,
                lost: lost.clone(),
            });
            let writing = shared.clone();
            let write_format = format.clone();
            let thread = std::thread::Builder::new()
                .name("log".to_owned())
                .spawn(move || writing.run(target, &write_format))
                .map_err(|e| format!("start the log's thread: {e}"))?;
            outputs.push(Output { format, shared, thread: Some(thread) });
        }
        Ok(Self { outputs, lost })
    }

    /// Logs an event. Never waits for a disk.
    pub fn write(&self, event: &Event<'_>) {
        let now = UnixMillis::now();
        LINE.with_borrow_mut(|text| {
            for output in &self.outputs {
                text.clear();
                format_line(&output.format, event, now, text);
                output.shared.add(text);
            }
        });
    }

    /// Returns the number of dropped lines.
    pub fn lost_count(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Opens the files again, after a log rotation.
    pub fn reopen(&self) {
        for output in &self.outputs {
            output.shared.lock().reopen = true;
            output.shared.change.notify_one();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        for output in &mut self.outputs {
            output.shared.lock().closing = true;
            output.shared.change.notify_one();
            if let Some(thread) = output.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

fn format_line(format: &Format, event: &Event<'_>, now: UnixMillis, out: &mut Vec<u8>) {
    match format {
        Format::Json => line::json(event, now, out),
        Format::Postfix(postfix) => postfix.write(event, now, out),
    }
}

/// The file of a log.
struct Target {
    to: Box<dyn Write + Send>,
    /// The last line of the file is not whole.
    is_torn: bool,
}

impl Target {
    /// Readable for its owner and group only, because it has addresses of people.
    fn open(file: Option<&PathBuf>) -> io::Result<Self> {
        let Some(path) = file else { return Ok(Self { to: Box::new(io::stderr()), is_torn: false }) };
        let file: File = OpenOptions::new().append(true).create(true).mode(0o640).open(path)?;
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
        let line_count = done.iter().filter(|byte| **byte == b'\n').count() as u64;
        let line_count = line_count.saturating_sub(u64::from(self.is_torn));
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

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, text: &[u8]) {
        let mut waiting = self.lock();
        if waiting.bytes.len() + text.len() > WAITING_MAX_BYTES {
            drop(waiting);
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let before = waiting.bytes.len();
        waiting.bytes.extend_from_slice(text);
        waiting.line_count += 1;
        let full = before < BLOCK_BYTES && waiting.bytes.len() >= BLOCK_BYTES;
        drop(waiting);
        // The writer is woken for the first line and for a full block, not for each.
        if before == 0 || full {
            self.change.notify_one();
        }
    }

    /// Waits for a block; none at the end.
    fn next_block(&self, spare: Vec<u8>) -> Option<(Vec<u8>, u64, bool)> {
        let mut waiting = self.lock();
        while waiting.bytes.is_empty() && !waiting.reopen {
            if waiting.closing {
                return None;
            }
            waiting = self.change.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let gathers = |w: &mut Waiting| w.bytes.len() < BLOCK_BYTES && !w.closing && !w.reopen;
        waiting = self
            .change
            .wait_timeout_while(waiting, GATHER, gathers)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
        let block = std::mem::replace(&mut waiting.bytes, spare);
        Some((block, std::mem::take(&mut waiting.line_count), std::mem::take(&mut waiting.reopen)))
    }

    fn run(&self, mut target: Target, format: &Format) {
        let (mut spare, mut told, mut failing) = (Vec::new(), 0, false);
        while let Some((mut block, line_count, reopen)) = self.next_block(std::mem::take(&mut spare)) {
            let lost = self.lost.load(Ordering::Relaxed);
            if lost > told {
                format_line(format, &Event::DroppedLines(lost - told), UnixMillis::now(), &mut block);
            }
            match target.write(&mut block) {
                Ok(()) => (told, failing) = (lost, false),
                Err((whole_count, e)) => {
                    self.lost.fetch_add(line_count.saturating_sub(whole_count), Ordering::Relaxed);
                    if !std::mem::replace(&mut failing, true) {
                        tracing::error!("write the delivery log: {e}");
                    }
                }
            }
            if reopen {
                match Target::open(self.file.as_ref()) {
                    Ok(new) => target = new,
                    Err(e) => tracing::error!("open the delivery log again: {e}"),
                }
            }
            block.clear();
            spare = block;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::QueueId;
    use std::fs;

    fn log_to(path: &Path) -> Log {
        Log::open(vec![LogSettings { file: Some(path.to_owned()), format: Format::Json }]).unwrap()
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
        let mut ids: Vec<&str> = text.lines().map(|line| line.split('"').rev().nth(1).unwrap()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 4000);
    }

    #[test]
    fn a_rotated_log_goes_on_in_a_new_file() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("log"), dir.path().join("log.1"));
        let log = log_to(&path);
        log.write(&Event::DroppedLines(1));
        fs::rename(&path, &old).unwrap();
        log.reopen();
        while !path.exists() {
            std::thread::yield_now();
        }
        log.write(&Event::DroppedLines(2));
        drop(log);
        let count = |path| fs::read_to_string(path).unwrap().lines().count();
        assert_eq!((count(&old), count(&path)), (1, 1));
    }

    #[test]
    fn lines_the_disk_refuses_are_counted() {
        let log = log_to(Path::new("/dev/full"));
        log.write(&Event::DroppedLines(1));
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
            log.write(&Event::DroppedLines(1));
            drop(log);
            let text = fs::read_to_string(&path).unwrap();
            let last = text.lines().last().unwrap();
            assert!(text.lines().count() == line_count && last.starts_with('{'), "{text}");
        }
    }
}
