//! The work itself: files created, read, appended to and deleted, always the same for the same seed.

use super::config::{Config, Fsync};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, BufWriter, Read, Write},
    path::PathBuf,
    time::{Duration, Instant},
};

/// Files and octets that each kind of operation has dealt with.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) created_alone: u64,
    pub(crate) created: u64,
    pub(crate) read: u64,
    pub(crate) appended: u64,
    pub(crate) deleted: u64,
    pub(crate) deleted_alone: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) transactions: u64,
}

/// And how long it took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Done {
    pub(crate) counts: Counts,
    pub(crate) creating: Duration,
    pub(crate) transacting: Duration,
    pub(crate) deleting: Duration,
    pub(crate) total: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    number: u64,
    bytes: u64,
}

/// The state of one run: its files, and what was done to them.
#[derive(Debug)]
pub(crate) struct Work<'a> {
    config: &'a Config,
    random: fastrand::Rng,
    entries: Vec<Entry>,
    /// Subdirectories made, and so ours to remove.
    directories: usize,
    next_number: u64,
    text: Vec<u8>,
    buffer: Vec<u8>,
    counts: Counts,
}

/// As the C library's for files.
const STREAM_BYTES: usize = 4096;

impl<'a> Work<'a> {
    /// Prepared, and nothing done yet.
    pub(crate) fn new(config: &'a Config) -> Self {
        let mut random = fastrand::Rng::with_seed(config.seed);
        let text = (0..config.high_bytes).map(|_| random.u8(32..127)).collect();
        Self {
            config,
            random,
            entries: Vec::new(),
            directories: 0,
            next_number: 1,
            text,
            buffer: vec![0; config.read_bytes],
            counts: Counts::default(),
        }
    }

    /// Does it all. `say` is called with the progress; `is_stopped` ends it early, and files go all the same.
    pub(crate) fn run(
        mut self,
        mut say: impl FnMut(&str),
        is_stopped: impl Fn() -> bool,
    ) -> Result<Done, String> {
        let begin = Instant::now();
        let done = self.phases(&mut say, &is_stopped);
        let deleting = Instant::now();
        say("Deleting files...");
        let deleted = self.delete_all();
        say("Done\n");
        let deleting = deleting.elapsed();
        let (creating, transacting) = done?;
        deleted?;
        Ok(Done { counts: self.counts, creating, transacting, deleting, total: begin.elapsed() })
    }

    fn phases(
        &mut self,
        say: &mut impl FnMut(&str),
        is_stopped: &impl Fn() -> bool,
    ) -> Result<(Duration, Duration), String> {
        let begin = Instant::now();
        if self.config.subdirectories > 0 {
            say("Creating subdirectories...");
            for i in 0..self.config.subdirectories {
                let path = self.config.location.join(format!("s{i}"));
                fs::create_dir(&path).map_err(|e| format!("create {}: {e}", path.display()))?;
                self.directories += 1;
            }
            say("Done\n");
        }
        say("Creating files...");
        while self.entries.len() < self.config.files && !is_stopped() {
            self.create()?;
        }
        self.counts.created_alone = self.counts.created;
        say("Done\nPerforming transactions");
        let creating = begin.elapsed();
        let begin = Instant::now();
        for i in 1..=self.config.transactions {
            if is_stopped() {
                break;
            }
            self.transact()?;
            if i % self.config.transactions.div_ceil(10) == 0 {
                say(".");
            }
        }
        say("Done\n");
        Ok((creating, begin.elapsed()))
    }

    fn chance(&mut self, bias: u8) -> bool {
        self.random.u8(0..10) < bias
    }

    /// A read or an append, then a creation or a deletion, as the biases have it.
    fn transact(&mut self) -> Result<(), String> {
        if let (Some(bias), false) = (self.config.bias_read, self.entries.is_empty()) {
            let chosen = self.random.usize(..self.entries.len());
            if self.chance(bias) { self.read(chosen)? } else { self.append(chosen)? }
        }
        if let Some(bias) = self.config.bias_create {
            if self.chance(bias) || self.entries.is_empty() {
                self.create()?;
            } else {
                let chosen = self.random.usize(..self.entries.len());
                self.delete(chosen)?;
            }
        }
        self.counts.transactions += 1;
        Ok(())
    }

    fn directory(&self, number: u64) -> PathBuf {
        match self.config.subdirectories {
            0 => self.config.location.clone(),
            n => self.config.location.join(format!("s{}", number % n as u64)),
        }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory(number).join(number.to_string())
    }

    fn create(&mut self) -> Result<(), String> {
        let number = self.next_number;
        self.next_number += 1;
        let bytes = self.random.u64(self.config.low_bytes..=self.config.high_bytes);
        let path = self.path(number);
        // A file that is there already is not ours to write.
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let written = file.and_then(|file| {
            self.entries.push(Entry { number, bytes });
            self.write(file, bytes)
        });
        written.map_err(|e| format!("create {}: {e}", path.display()))?;
        self.sync_directory(number)?;
        self.counts.created += 1;
        Ok(())
    }

    fn append(&mut self, chosen: usize) -> Result<(), String> {
        let Entry { number, bytes } = self.entries[chosen];
        let room = self.config.high_bytes.saturating_sub(bytes);
        if room == 0 {
            return Ok(());
        }
        let more = self.random.u64(1..=room);
        let path = self.path(number);
        let file = OpenOptions::new().append(true).open(&path);
        file.and_then(|file| self.write(file, more))
            .map_err(|e| format!("append to {}: {e}", path.display()))?;
        self.entries[chosen].bytes += more;
        self.counts.appended += 1;
        Ok(())
    }

    fn write(&mut self, file: File, bytes: u64) -> io::Result<()> {
        let text = &self.text[..bytes as usize];
        let file = if self.config.buffered {
            let mut stream = BufWriter::with_capacity(STREAM_BYTES, file);
            text.chunks(self.config.write_bytes).try_for_each(|block| stream.write_all(block))?;
            stream.into_inner().map_err(io::IntoInnerError::into_error)?
        } else {
            let mut file = file;
            text.chunks(self.config.write_bytes).try_for_each(|block| file.write_all(block))?;
            file
        };
        self.counts.bytes_written += bytes;
        if self.config.fsync == Fsync::Nothing { Ok(()) } else { file.sync_all() }
    }

    fn read(&mut self, chosen: usize) -> Result<(), String> {
        let path = self.path(self.entries[chosen].number);
        let say = |e: io::Error| format!("read {}: {e}", path.display());
        let file = File::open(&path).map_err(say)?;
        let mut stream: Box<dyn Read> = if self.config.buffered {
            Box::new(BufReader::with_capacity(STREAM_BYTES, file))
        } else {
            Box::new(file)
        };
        loop {
            match stream.read(&mut self.buffer).map_err(say)? {
                0 => break,
                length => self.counts.bytes_read += length as u64,
            }
        }
        self.counts.read += 1;
        Ok(())
    }

    fn delete(&mut self, chosen: usize) -> Result<(), String> {
        let number = self.entries.swap_remove(chosen).number;
        let path = self.path(number);
        fs::remove_file(&path).map_err(|e| format!("delete {}: {e}", path.display()))?;
        self.sync_directory(number)?;
        self.counts.deleted += 1;
        Ok(())
    }

    fn sync_directory(&self, number: u64) -> Result<(), String> {
        if self.config.fsync != Fsync::Directory {
            return Ok(());
        }
        let path = self.directory(number);
        let synced = File::open(&path).and_then(|directory| directory.sync_all());
        synced.map_err(|e| format!("sync {}: {e}", path.display()))
    }

    fn delete_all(&mut self) -> Result<(), String> {
        let before = self.counts.deleted;
        while !self.entries.is_empty() {
            self.delete(self.entries.len() - 1)?;
        }
        self.counts.deleted_alone = self.counts.deleted - before;
        for i in 0..self.directories {
            let path = self.config.location.join(format!("s{i}"));
            fs::remove_dir(&path).map_err(|e| format!("remove {}: {e}", path.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(config: &Config) -> Result<Done, String> {
        Work::new(config).run(|_| {}, || false)
    }

    fn config(directory: &tempfile::TempDir) -> Config {
        Config { files: 50, transactions: 300, location: directory.path().into(), ..Config::default() }
    }

    #[test]
    fn the_same_seed_does_the_same_and_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let base = config(&directory);
        let first = run(&base).unwrap().counts;
        for variant in [
            Config { fsync: Fsync::Directory, ..base.clone() },
            Config { buffered: false, subdirectories: 7, ..base.clone() },
        ] {
            assert_eq!(run(&variant).unwrap().counts, first);
        }
        assert_ne!(run(&Config { seed: 43, ..base.clone() }).unwrap().counts, first);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert_eq!((first.created_alone, first.transactions), (50, 300));
        assert_eq!((first.created, first.read + first.appended), (first.deleted, 300));
    }

    #[test]
    fn biases_decide_and_may_be_off() {
        let directory = tempfile::tempdir().unwrap();
        let base = config(&directory);
        let counts = run(&Config { bias_read: Some(10), bias_create: None, ..base.clone() }).unwrap().counts;
        assert_eq!((counts.read, counts.appended, counts.created), (300, 0, 50));
        let counts = run(&Config { bias_read: None, bias_create: Some(0), ..base }).unwrap().counts;
        assert_eq!((counts.read, counts.appended), (0, 0));
    }

    #[test]
    fn a_file_that_was_there_is_neither_written_nor_deleted() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("3"), "mine").unwrap();
        let error = run(&config(&directory)).unwrap_err();
        assert!(error.starts_with("create ") && error.ends_with("File exists (os error 17)"), "{error}");
        assert_eq!(fs::read_to_string(directory.path().join("3")).unwrap(), "mine");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
