//! One large file, as a database has it: written, changed, read, and read here and there; several copies at once.

use super::{Options, report::Phase, turns::PhaseStart};
use crate::{rounds::Progress, scratch::Scratch, usage::cpu_time};
use std::{
    fs::{File, OpenOptions},
    hint::black_box,
    io::{self, BufReader, BufWriter, Read, Seek as _, Write},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// The state of the phases with one large file for each copy.
pub(super) struct Bulk<'a> {
    options: &'a Options,
    scratch: &'a Scratch,
    progress: &'a Progress,
    turns: &'a PhaseStart,
    /// One for each copy.
    paths: Vec<PathBuf>,
    longest_ns: AtomicU64,
}

/// One in so many of the blocks found by a seek is written back.
const REWRITTEN: u64 = 10;
/// Octet by octet for so long, where no size is named.
const CHAR_TIME: Duration = Duration::from_secs(1);
/// Between two looks at the clock.
const CHAR_BLOCK: u64 = 1 << 16;

impl<'a> Bulk<'a> {
    /// Runs the six phases in Bonnie++'s order.
    pub(super) fn run(
        options: &'a Options,
        scratch: &'a Scratch,
        progress: &'a Progress,
        turns: &'a PhaseStart,
    ) -> io::Result<[Option<Phase>; 6]> {
        let paths = (0..options.copies).map(|i| scratch.path().join(format!("bulk{i}"))).collect();
        let bulk = Self { options, scratch, progress, turns, paths, longest_ns: AtomicU64::new(0) };
        let (mut put, mut get) = (None, None);
        let kib = options.bytes as f64 / 1024.0;
        let kib_of = |bytes: u64| bytes as f64 / 1024.0;
        if options.char_bytes != Some(0) {
            put = Some(bulk.timed(&|path| bulk.put_chars(path).map(kib_of))?);
        }
        let write = bulk.timed(&|path| bulk.write(path).map(|()| kib))?;
        let rewrite = bulk.timed(&|path| bulk.rewrite(path).map(|()| kib))?;
        if options.char_bytes != Some(0) {
            get = Some(bulk.timed(&|path| bulk.get_chars(path).map(kib_of))?);
        }
        let read = bulk.timed(&|path| bulk.read(path).map(|()| kib))?;
        let seeks = bulk.timed(&|path| bulk.seek(path).map(|()| f64::from(options.seeks)))?;
        bulk.paths.iter().try_for_each(std::fs::remove_file)?;
        Ok([put, Some(write), Some(rewrite), get, Some(read), Some(seeks)])
    }

    /// Does the work on all copies at once; it returns its amount.
    fn timed(&self, work: &(dyn Fn(&Path) -> io::Result<f64> + Sync)) -> io::Result<Phase> {
        self.turns.wait()?;
        self.longest_ns.store(0, Relaxed);
        let (begin, cpu) = (Instant::now(), cpu_time());
        let amounts: Vec<io::Result<f64>> = thread::scope(|scope| {
            let copies: Vec<_> = self.paths.iter().map(|path| scope.spawn(|| work(path))).collect();
            let panicked = || Err(io::Error::other("a copy panicked"));
            copies.into_iter().map(|copy| copy.join().unwrap_or_else(|_| panicked())).collect()
        });
        let seconds = begin.elapsed().as_secs_f64();
        let amount = amounts.into_iter().sum::<io::Result<f64>>()?;
        self.stopped()?;
        self.progress.step();
        let cpu_seconds = cpu_time().saturating_sub(cpu).as_secs_f64();
        Ok(Phase {
            amount,
            seconds,
            cpu_seconds,
            longest: Duration::from_nanos(self.longest_ns.load(Relaxed)),
        })
    }

    /// Notes the duration of an operation.
    fn each<T>(&self, operation: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let begin = Instant::now();
        let done = operation()?;
        self.longest_ns.fetch_max(begin.elapsed().as_nanos() as u64, Relaxed);
        self.stopped()?;
        Ok(done)
    }

    fn open(&self, path: &Path, options: &mut OpenOptions) -> io::Result<File> {
        if self.options.direct {
            options.custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed());
        }
        options.open(path)
    }

    /// Calls `block` with octets until it is enough; returns their number.
    fn chars(&self, mut block: impl FnMut(u64) -> io::Result<u64>) -> io::Result<u64> {
        let begin = Instant::now();
        let most = self.options.char_bytes.unwrap_or(self.options.bytes).min(self.options.bytes);
        let mut done = 0;
        while done < most && (self.options.char_bytes.is_some() || begin.elapsed() < CHAR_TIME) {
            let wanted = CHAR_BLOCK.min(most - done);
            let part = self.each(|| block(wanted))?;
            done += part;
            if part < wanted {
                break;
            }
        }
        Ok(done)
    }

    fn put_chars(&self, path: &Path) -> io::Result<u64> {
        let mut file = BufWriter::new(File::create(path)?);
        let done = self.chars(|count| {
            for i in 0..count {
                file.write_all(black_box(&[i as u8]))?;
            }
            Ok(count)
        })?;
        file.flush()?;
        file.get_ref().sync_all()?;
        Ok(done)
    }

    fn get_chars(&self, path: &Path) -> io::Result<u64> {
        let mut bytes = BufReader::new(File::open(path)?).bytes();
        self.chars(|count| {
            let mut seen = 0;
            for byte in bytes.by_ref().take(count as usize) {
                black_box(byte?);
                seen += 1;
            }
            Ok(seen)
        })
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = self.open(path, OpenOptions::new().write(true).create(true).truncate(true))?;
        let block = aligned(self.options.chunk);
        for _ in 0..self.blocks() {
            self.each(|| {
                file.write_all(block.as_ref())?;
                self.after_write(&file)
            })?;
        }
        file.sync_all()
    }

    fn rewrite(&self, path: &Path) -> io::Result<()> {
        let mut file = self.open(path, OpenOptions::new().read(true).write(true))?;
        let mut block = aligned(self.options.chunk);
        for i in 0..self.blocks() {
            self.each(|| {
                file.read_exact(block.as_mut())?;
                block.as_mut()[0] = block.as_ref()[0].wrapping_add(1);
                file.seek(io::SeekFrom::Start(i * self.options.chunk as u64))?;
                file.write_all(block.as_ref())?;
                self.after_write(&file)
            })?;
        }
        file.sync_all()
    }

    fn read(&self, path: &Path) -> io::Result<()> {
        let mut file = self.open(path, OpenOptions::new().read(true))?;
        let mut block = aligned(self.options.chunk);
        for _ in 0..self.blocks() {
            self.each(|| file.read_exact(block.as_mut()))?;
            black_box(block.as_ref());
        }
        Ok(())
    }

    /// Seekers take turns at random places.
    fn seek(&self, path: &Path) -> io::Result<()> {
        let next = AtomicU64::new(0);
        let work = |seeker: u64| -> io::Result<()> {
            let file = self.open(path, OpenOptions::new().read(true).write(true))?;
            let mut block = aligned(self.options.chunk);
            let mut dice = self.options.dice.part(seeker);
            while next.fetch_add(1, Relaxed) < u64::from(self.options.seeks) {
                let at = dice.below(self.blocks()) * self.options.chunk as u64;
                self.each(|| {
                    file.read_exact_at(block.as_mut(), at)?;
                    if dice.below(REWRITTEN) == 0 {
                        file.write_all_at(block.as_ref(), at)?;
                        self.after_write(&file)?;
                    }
                    Ok(())
                })?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let seekers: Vec<_> =
                (0..u64::from(self.options.seekers)).map(|i| scope.spawn(move || work(i))).collect();
            let panicked = || Err(io::Error::other("a seeker panicked"));
            seekers.into_iter().try_for_each(|s| s.join().unwrap_or_else(|_| panicked()))
        })
    }

    fn blocks(&self) -> u64 {
        (self.options.bytes / self.options.chunk as u64).max(1)
    }

    fn after_write(&self, file: &File) -> io::Result<()> {
        if self.options.syncs { file.sync_all() } else { Ok(()) }
    }

    fn stopped(&self) -> io::Result<()> {
        if self.scratch.is_stopped() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }
}

/// Memory that begins where direct I/O wants it to.
struct Aligned {
    memory: Vec<u8>,
    begin: usize,
    length: usize,
}

const ALIGNMENT: usize = 4096;

fn aligned(length: usize) -> Aligned {
    let memory = vec![b'b'; length + ALIGNMENT];
    let begin = memory.as_ptr().align_offset(ALIGNMENT);
    Aligned { memory, begin, length }
}

impl Aligned {
    fn as_ref(&self) -> &[u8] {
        &self.memory[self.begin..self.begin + self.length]
    }

    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.begin..self.begin + self.length]
    }
}
