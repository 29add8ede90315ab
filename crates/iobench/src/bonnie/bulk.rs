//! One large file, as a data base has it: written, changed, read, and read here and there.

use super::{Options, report::Phase};
use crate::{rounds::Progress, scratch::Scratch, usage::cpu_time};
use std::{
    fs::{File, OpenOptions},
    hint::black_box,
    io::{self, BufReader, BufWriter, Read, Seek as _, Write},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::Instant,
};

/// See the module's text.
pub(super) struct Bulk<'a> {
    options: &'a Options,
    scratch: &'a Scratch,
    progress: &'a Progress,
    path: PathBuf,
}

/// One in so many of the blocks found by a seek is written back.
const REWRITTEN: u64 = 10;

impl<'a> Bulk<'a> {
    /// The six phases in Bonnie++'s order.
    pub(super) fn run(
        options: &'a Options,
        scratch: &'a Scratch,
        progress: &'a Progress,
    ) -> io::Result<[Option<Phase>; 6]> {
        let bulk = Self { options, scratch, progress, path: scratch.path().join("bulk") };
        let chars = options.char_bytes.map(|bytes| bytes.min(options.bytes));
        let put =
            chars.map(|bytes| bulk.timed(bytes as f64 / 1024.0, || bulk.put_chars(bytes))).transpose()?;
        let kib = options.bytes as f64 / 1024.0;
        let write = bulk.timed(kib, || bulk.write())?;
        let rewrite = bulk.timed(kib, || bulk.rewrite())?;
        let get =
            chars.map(|bytes| bulk.timed(bytes as f64 / 1024.0, || bulk.get_chars(bytes))).transpose()?;
        let read = bulk.timed(kib, || bulk.read())?;
        let seeks = bulk.timed(f64::from(options.seeks), || bulk.seek())?;
        std::fs::remove_file(&bulk.path)?;
        Ok([put, Some(write), Some(rewrite), get, Some(read), Some(seeks)])
    }

    fn timed(&self, amount: f64, work: impl FnOnce() -> io::Result<()>) -> io::Result<Phase> {
        let (begin, cpu) = (Instant::now(), cpu_time());
        work()?;
        let seconds = begin.elapsed().as_secs_f64();
        if self.scratch.is_stopped() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        self.progress.step();
        Ok(Phase { amount, seconds, cpu_seconds: (cpu_time().saturating_sub(cpu)).as_secs_f64() })
    }

    fn open(&self, options: &mut OpenOptions) -> io::Result<File> {
        if self.options.direct {
            options.custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed());
        }
        options.open(&self.path)
    }

    fn put_chars(&self, bytes: u64) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(&self.path)?);
        for i in 0..bytes {
            file.write_all(black_box(&[i as u8]))?;
            if i % (1 << 20) == 0 && self.scratch.is_stopped() {
                break;
            }
        }
        file.flush()?;
        file.get_ref().sync_all()
    }

    fn get_chars(&self, bytes: u64) -> io::Result<()> {
        let file = BufReader::new(File::open(&self.path)?);
        for byte in file.bytes().take(bytes as usize) {
            black_box(byte?);
        }
        Ok(())
    }

    fn write(&self) -> io::Result<()> {
        let mut file = self.open(OpenOptions::new().write(true).create(true).truncate(true))?;
        let block = aligned(self.options.chunk);
        for _ in 0..self.blocks() {
            file.write_all(block.as_ref())?;
            self.after_write(&file)?;
        }
        file.sync_all()
    }

    fn rewrite(&self) -> io::Result<()> {
        let mut file = self.open(OpenOptions::new().read(true).write(true))?;
        let mut block = aligned(self.options.chunk);
        for i in 0..self.blocks() {
            file.read_exact(block.as_mut())?;
            block.as_mut()[0] = block.as_ref()[0].wrapping_add(1);
            file.seek(io::SeekFrom::Start(i * self.options.chunk as u64))?;
            file.write_all(block.as_ref())?;
            self.after_write(&file)?;
        }
        file.sync_all()
    }

    fn read(&self) -> io::Result<()> {
        let mut file = self.open(OpenOptions::new().read(true))?;
        let mut block = aligned(self.options.chunk);
        for _ in 0..self.blocks() {
            file.read_exact(block.as_mut())?;
            black_box(block.as_ref());
            self.stopped()?;
        }
        Ok(())
    }

    /// Seekers take turns at random places.
    fn seek(&self) -> io::Result<()> {
        let next = AtomicU64::new(0);
        let work = |seeker: u64| -> io::Result<()> {
            let file = self.open(OpenOptions::new().read(true).write(true))?;
            let mut block = aligned(self.options.chunk);
            let mut random = fastrand::Rng::with_seed(self.options.seed.wrapping_add(seeker));
            while next.fetch_add(1, Relaxed) < u64::from(self.options.seeks) {
                let at = random.u64(..self.blocks()) * self.options.chunk as u64;
                file.read_exact_at(block.as_mut(), at)?;
                if random.u64(..REWRITTEN) == 0 {
                    file.write_all_at(block.as_ref(), at)?;
                    self.after_write(&file)?;
                }
                self.stopped()?;
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
        self.stopped()?;
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
