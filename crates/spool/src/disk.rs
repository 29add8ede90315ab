//! What an engine asks of a disk, and the real one. The simulator puts its own in this place.

use mail::UnixMillis;
use rustix::{
    buffer::spare_capacity,
    fs::{Advice, AtFlags, FileType, Mode, OFlags, RawDir},
    io::ReadWriteFlags,
};
use std::{
    fs, io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{FileExt as _, OpenOptionsExt as _},
    },
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// One directory of files.
pub trait Disk: Send + Sync + 'static {
    /// Refuses a second process.
    ///
    /// # Errors
    /// `WouldBlock` when another process has it.
    fn lock(&self) -> io::Result<()>;
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Passes on the name of each file.
    fn each_name(&self, each: &mut dyn FnMut(&str)) -> io::Result<()> {
        self.list()?.iter().for_each(|name| each(name));
        Ok(())
    }
    /// A whole file in place of what the buffer has; at most so many bytes of it.
    fn read(&self, name: &str, max_bytes: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        let file = self.open(name)?;
        let length = usize::try_from(file.len()?.min(max_bytes)).unwrap_or(usize::MAX);
        buffer.clear();
        buffer.resize(length, 0);
        let read = file.read_at(0, buffer)?;
        buffer.truncate(read);
        Ok(())
    }
    /// A new, empty file, which must not exist.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// An existing file.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// When a file was written last.
    fn changed(&self, name: &str) -> io::Result<UnixMillis> {
        let _ = name;
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Gives a file another name, which no file has; durable after [`Disk::sync_dir`], whole or not at all.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file; durable after [`Disk::sync_dir`].
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations and removals durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// Makes everything durable that was written to the file system it lies on, names included.
    fn sync_all(&self) -> io::Result<()>;
    /// Room that is left for us.
    fn free_bytes(&self) -> io::Result<u64>;
    /// The wall clock, since 1970: whoever has another disk may have another time.
    fn clock(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
    /// 64 random bits, which nobody can foresee.
    ///
    /// # Errors
    /// What the system says; there are no random bits then.
    fn random(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
        }
        Ok(u64::from_le_bytes(bytes))
    }
    /// Files that can still be made.
    fn free_files(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

/// Whole pages, at the beginning of one: so the device can take them without a copy.
#[repr(align(4096))]
struct Zeros([u8; ZEROS_BYTES]);

const ZEROS_BYTES: usize = 512 * 1024;
static ZEROS: Zeros = Zeros([0; ZEROS_BYTES]);

/// Passes on so many zeros in pieces, each with its offset.
fn each_piece(from: u64, length: u64, mut write: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut done = 0;
    while done < length {
        let piece = &ZEROS.0[..(length - done).min(ZEROS_BYTES as u64) as usize];
        write(from + done, piece)?;
        done += piece.len() as u64;
    }
    Ok(())
}

/// An open file.
pub trait File: Send + Sync {
    /// Writes all of it at an offset; durable after [`File::sync_data`].
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// The same with so many zeros.
    fn write_zeros(&self, offset: u64, length: u64) -> io::Result<()> {
        each_piece(offset, length, |at, piece| self.write_at(at, piece))
    }
    /// The same where nothing was written or read yet: whole pages.
    fn fill(&self, offset: u64, length: u64) -> io::Result<()> {
        self.write_zeros(offset, length)
    }
    /// Reads up to the buffer's length; less only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// The same of what memory holds of it; `WouldBlock` where a disk would have to be waited for.
    fn read_cached(&self, _offset: u64, _buffer: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
    /// Reads what the medium has, whatever memory holds of it: for bytes that look damaged.
    ///
    /// # Errors
    /// As for [`File::read_at`].
    fn read_uncached(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_at(offset, buffer)
    }
    /// These bytes will be read soon, one after the other.
    fn will_read(&self, _from: u64, _length: u64) {}
    /// Makes everything written so far durable. After an error nothing is known of it any more.
    fn sync_data(&self) -> io::Result<()>;
    /// Cuts it to a length; durable after [`File::sync_data`].
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Its length.
    fn len(&self) -> io::Result<u64>;
    /// No bytes at all?
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// For the names of a directory, as many as one call of the system gives.
const LIST_BYTES: usize = 256 * 1024;
/// A file that is read whole is rarely longer: an envelope.
const SMALL_BYTES: usize = 4096;
/// Who asks for so few bytes knows how many there are.
const KNOWN_BYTES: usize = 1024 * 1024;

/// Is there no room for it, and nothing worse?
pub(crate) fn lacks_room(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A directory of the file system.
#[derive(Debug)]
pub struct RealDisk {
    path: PathBuf,
    lock: OnceLock<fs::File>,
    /// The directory itself, once many of its files are read: their names need not be looked up from
    /// the root then.
    handle: OnceLock<fs::File>,
}

impl RealDisk {
    /// The directory is made when it is missing, its parents too, readable for its owner only.
    ///
    /// # Errors
    /// What the file system says.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        if !path.is_dir() {
            use std::os::unix::fs::DirBuilderExt as _;
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
            // Its own name must survive, too.
            if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
                fs::File::open(parent)?.sync_all()?;
            }
        }
        Ok(Self { path, lock: OnceLock::new(), handle: OnceLock::new() })
    }

    fn handle(&self) -> io::Result<&fs::File> {
        if let Some(handle) = self.handle.get() {
            return Ok(handle);
        }
        let handle = fs::File::open(&self.path)?;
        Ok(self.handle.get_or_init(|| handle))
    }
}

impl Disk for RealDisk {
    fn lock(&self) -> io::Result<()> {
        let file = fs::File::open(&self.path)?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
        // Kept open as long as the disk is: that is the lock.
        let _ = self.lock.set(file);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names =
            fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    fn each_name(&self, each: &mut dyn FnMut(&str)) -> io::Result<()> {
        let dir = fs::File::open(&self.path)?;
        let mut buffer = Vec::with_capacity(LIST_BYTES);
        let mut entries = RawDir::new(&dir, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            // Names of ours are ASCII.
            if let Ok(name) = std::str::from_utf8(name)
                && entry.file_type() != FileType::Directory
            {
                each(name);
            }
        }
        Ok(())
    }

    fn read(&self, name: &str, max_bytes: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.handle()?, name, flags, Mode::empty())?;
        let max = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        buffer.clear();
        buffer.reserve(if max <= KNOWN_BYTES { max + 1 } else { SMALL_BYTES });
        // Until there is no more, without asking for its length: that is one call less.
        while rustix::io::retry_on_intr(|| rustix::io::read(&file, spare_capacity(buffer)))? > 0 {
            if buffer.len() >= max {
                buffer.truncate(max);
                break;
            }
            if buffer.len() == buffer.capacity() {
                buffer.reserve(buffer.len());
            }
        }
        Ok(())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.path.join(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(no_follow)
            .open(self.path.join(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn changed(&self, name: &str) -> io::Result<UnixMillis> {
        let stat = rustix::fs::statat(self.handle()?, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let (seconds, nanos) = (u64::try_from(stat.st_mtime).unwrap_or(0), stat.st_mtime_nsec);
        Ok(UnixMillis(seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        fs::File::open(&self.path)?.sync_all()
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(fs::File::open(&self.path)?)?)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn free_files(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.path)?;
        // File systems that make inodes as they need them say that they have none.
        Ok(if stat.f_files == 0 { u64::MAX } else { stat.f_favail })
    }
}

struct RealFile(fs::File);

impl RealFile {
    /// The same file for writes that go to the device as they are: whole pages.
    fn direct(&self) -> Option<fs::File> {
        let path = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).ok().map(fs::File::from)
    }
}

/// A buffer where a read past the page cache wants it.
#[repr(align(4096))]
struct Aligned([u8; ALIGNED_BYTES]);

const ALIGNED_BYTES: usize = 128 * 1024;
/// Reads past the page cache begin at multiples of this.
const BLOCK_BYTES: usize = 4096;

impl RealFile {
    /// Reads with `O_DIRECT`, block by block: past the page cache.
    ///
    /// # Errors
    /// `InvalidInput` where the file system cannot.
    fn read_direct(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let path = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let file = fs::File::from(file);
        let mut aligned = Box::new(Aligned([0; ALIGNED_BYTES]));
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let skipped = (at % BLOCK_BYTES as u64) as usize;
            let wanted = (skipped + buffer.len() - done).next_multiple_of(BLOCK_BYTES).min(ALIGNED_BYTES);
            let read = file.read_at(&mut aligned.0[..wanted], at - skipped as u64)?;
            let there = read.saturating_sub(skipped).min(buffer.len() - done);
            buffer[done..done + there].copy_from_slice(&aligned.0[skipped..skipped + there]);
            done += there;
            if read < wanted {
                break;
            }
        }
        Ok(done)
    }
}

impl File for RealFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    /// Past the page cache, where the file system can.
    fn fill(&self, offset: u64, length: u64) -> io::Result<()> {
        let direct = self.direct();
        let is_refused = |e: &io::Error| e.kind() == io::ErrorKind::InvalidInput;
        each_piece(offset, length, |at, piece| match &direct {
            Some(file) => match file.write_all_at(piece, at) {
                Err(e) if is_refused(&e) => self.write_at(at, piece),
                written => written,
            },
            None => self.write_at(at, piece),
        })
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.0.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn read_cached(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len();
        let mut into = [io::IoSliceMut::new(buffer)];
        let read = rustix::io::preadv2(&self.0, &mut into, offset, ReadWriteFlags::NOWAIT)?;
        // Less than was asked for: the rest is on the disk, or there is none.
        if read == length { Ok(read) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    fn read_uncached(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        // Pages that were not written back stay in memory, and are what the process wrote.
        let length = std::num::NonZeroU64::new(buffer.len() as u64);
        let _ = rustix::fs::fadvise(&self.0, offset, length, Advice::DontNeed);
        match self.read_direct(offset, buffer) {
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => self.read_at(offset, buffer),
            read => read,
        }
    }

    fn will_read(&self, from: u64, length: u64) {
        // A hint: whether it is taken makes no difference but in time.
        let _ = rustix::fs::fadvise(&self.0, from, std::num::NonZeroU64::new(length), Advice::WillNeed);
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}
