//! The interface of a backend to a disk, and the real disk. The simulator has an implementation of its own.

use mail::UnixMillis;
use rustix::{
    buffer::spare_capacity,
    fs::{Advice, AtFlags, FileType, FlockOperation, Mode, OFlags, RawDir},
    io::{Errno, ReadWriteFlags},
};
use std::{
    fs, io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{DirBuilderExt as _, FileExt as _},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// One directory of files. Tests and the simulator put disks with faults in its place.
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
    /// Reads a whole file as [`Disk::read`] does, from the medium, whatever memory holds of it.
    ///
    /// # Errors
    /// As for [`Disk::read`].
    fn read_uncached(&self, name: &str, max_bytes: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        let file = self.open(name)?;
        let length = usize::try_from(file.len()?.min(max_bytes)).unwrap_or(usize::MAX);
        buffer.clear();
        buffer.resize(length, 0);
        let read = file.read_uncached(0, buffer)?;
        buffer.truncate(read);
        Ok(())
    }
    /// Makes a new, empty file. Fails if there is one with this name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Returns the time of the last write to a file.
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
    /// Fails when the directory is not under its name any more: it was removed, renamed, or another one, or a mount,
    /// took its place. What is written then is not found at the next start.
    ///
    /// # Errors
    /// What became of the directory, in words.
    fn check_place(&self) -> io::Result<()> {
        Ok(())
    }
    /// Room that is left for us.
    fn free_bytes(&self) -> io::Result<u64>;
    /// The wall clock, since 1970: whoever has another disk may have another time.
    fn clock(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
    /// 64 random bits, not predictable.
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

/// An open file. Offsets and lengths are in bytes.
pub trait File: Send + Sync {
    /// Writes all of it at an offset; durable after [`File::sync_data`].
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Writes `length` zeros at an offset.
    fn write_zeros(&self, offset: u64, length: u64) -> io::Result<()> {
        each_piece(offset, length, |at, piece| self.write_at(at, piece))
    }
    /// Writes zeros where nothing was written or read yet: whole pages.
    fn fill(&self, offset: u64, length: u64) -> io::Result<()> {
        self.write_zeros(offset, length)
    }
    /// Reads up to the buffer's length; less only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Reads from the page cache only; `WouldBlock` where a disk would have to be waited for.
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
    /// Tells the file that these bytes will be read soon, in order.
    fn will_read(&self, _from: u64, _length: u64) {}
    /// Makes everything written so far durable. After an error nothing is known of it any more.
    fn sync_data(&self) -> io::Result<()>;
    /// Cuts it to a length; durable after [`File::sync_data`].
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Returns the length in bytes, what is written but not synced included.
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
/// The size from which a read is made in steps: a caller that asks for fewer bytes has their number.
const KNOWN_BYTES: usize = 1024 * 1024;

/// Is there no room for it, and nothing worse?
pub(crate) fn lacks_room(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A directory of the file system. It is opened once: all names are looked up in what was opened then, and the
/// lock is on it, so that nothing is written to another directory that takes its place.
#[derive(Debug)]
pub struct RealDisk {
    path: PathBuf,
    dir: fs::File,
}

const OPEN_FLAGS: OFlags = OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const DIR_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl RealDisk {
    /// The directory is made when it is missing, its parents too, readable for its owner only.
    ///
    /// # Errors
    /// What the file system says.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        make_dir(&path, 0o700)?;
        let dir = rustix::fs::open(&path, DIR_FLAGS, Mode::empty())?.into();
        Ok(Self { path, dir })
    }

    /// Returns a warning if a commit is less durable here than on a disk.
    pub(crate) fn durability_warning(&self) -> Option<String> {
        let text = weak_file_system_of(&self.path)?;
        Some(format!("{} is on {text}", self.path.display()))
    }

    /// Returns the device number of the file system that the directory is on.
    pub(crate) fn device(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.dir)?.st_dev)
    }

    /// Passes on each name but `.` and `..`, and whether it is a directory's.
    fn each_entry(&self, each: &mut dyn FnMut(&[u8], bool)) -> io::Result<()> {
        // A descriptor of its own: the position of a reader is the descriptor's.
        let dir = rustix::fs::openat(&self.dir, ".", DIR_FLAGS, Mode::empty())?;
        let mut buffer = Vec::with_capacity(LIST_BYTES);
        let mut entries = RawDir::new(&dir, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                each(name, entry.file_type() == FileType::Directory);
            }
        }
        Ok(())
    }
}

/// Numbers of `statfs(2)`.
const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58f6;
const OVERLAYFS: u32 = 0x794c_7630;

/// Returns the name of the file system of a folder, or of the nearest folder above one that does not exist yet, if it keeps
/// less than it is asked to, with what that means.
pub fn weak_file_system_of(folder: &Path) -> Option<&'static str> {
    let existing = folder.ancestors().find(|path| path.exists())?;
    let kind = rustix::fs::statfs(existing).ok()?.f_type;
    // The type differs between architectures; the numbers have 32 bits.
    weak_file_system(kind as u32)
}

/// The file systems that keep less than they are asked to, by their numbers.
fn weak_file_system(kind: u32) -> Option<&'static str> {
    match kind {
        TMPFS | RAMFS => Some(
            "tmpfs, which is memory: queued mail is lost when the machine stops or loses its power. Put the spool on \
             a disk",
        ),
        OVERLAYFS => Some(
            "overlayfs: queued mail is lost with the container, or with the power if it is mounted \"volatile\" or its \
             upper layer is in memory. Put the spool on a volume of its own",
        ),
        _ => None,
    }
}

/// Makes a directory that is missing, and its parents, with these permissions, and makes their names durable:
/// mail in a new directory must not be lost with the name of one above it.
///
/// # Errors
/// What the file system says.
pub fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err(io::ErrorKind::NotFound.into()),
    };
    make_dir(parent, mode)?;
    match fs::DirBuilder::new().mode(mode).create(path) {
        // Another process was faster.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    fs::File::open(parent)?.sync_all()
}

impl Disk for RealDisk {
    fn lock(&self) -> io::Result<()> {
        // It lasts as long as the descriptor.
        Ok(rustix::fs::flock(&self.dir, FlockOperation::NonBlockingLockExclusive)?)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        self.each_entry(&mut |name, _| names.push(String::from_utf8_lossy(name).into_owned()))?;
        Ok(names)
    }

    fn each_name(&self, each: &mut dyn FnMut(&str)) -> io::Result<()> {
        self.each_entry(&mut |name, is_dir| {
            // Names of ours are ASCII.
            if let Ok(name) = std::str::from_utf8(name)
                && !is_dir
            {
                each(name);
            }
        })
    }

    fn read(&self, name: &str, max_bytes: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, name, flags, Mode::empty())?;
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
        let flags = OPEN_FLAGS | OFlags::CREATE | OFlags::EXCL;
        let file = rustix::fs::openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Arc::new(RealFile(file.into())))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = rustix::fs::openat(&self.dir, name, OPEN_FLAGS, Mode::empty())?;
        Ok(Arc::new(RealFile(file.into())))
    }

    fn changed(&self, name: &str) -> io::Result<UnixMillis> {
        let stat = rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let (seconds, nanos) = (u64::try_from(stat.st_mtime).unwrap_or(0), stat.st_mtime_nsec);
        Ok(UnixMillis(seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.dir, from, &self.dir, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.dir, name, AtFlags::empty())?)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.dir.sync_all()
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.dir)?)
    }

    fn check_place(&self) -> io::Result<()> {
        let own = rustix::fs::fstat(&self.dir)?;
        let found = match rustix::fs::stat(&self.path) {
            Ok(found) => found,
            Err(e @ (Errno::NOENT | Errno::NOTDIR)) => {
                let text = format!("the directory {} was removed or renamed: {e}", self.path.display());
                return Err(io::Error::other(text));
            }
            Err(e) => return Err(e.into()),
        };
        if (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino) {
            return Ok(());
        }
        let text =
            format!("another directory is at {}: it was replaced or mounted over", self.path.display());
        Err(io::Error::other(text))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn free_files(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.dir)?;
        // File systems that make inodes as they need them say that they have none.
        Ok(if stat.f_files == 0 { u64::MAX } else { stat.f_favail })
    }
}

struct RealFile(fs::File);

impl RealFile {
    /// Opens the file for writes that go to the device directly: whole pages.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_directory_that_was_opened_wherever_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("a/spool"), dir.path().join("moved"));
        let disk = RealDisk::new(&path).unwrap();
        disk.lock().unwrap();
        disk.check_place().unwrap();
        fs::rename(&path, &moved).unwrap();
        let removed = disk.check_place().unwrap_err().to_string();
        assert!(removed.contains("was removed or renamed"), "{removed}");
        fs::create_dir(&path).unwrap();
        let replaced = disk.check_place().unwrap_err().to_string();
        assert!(replaced.contains("another directory is at"), "{replaced}");
        // The other directory is not touched.
        disk.create("one").unwrap().write_at(0, b"x").unwrap();
        disk.rename("one", "two").unwrap();
        disk.create("three").unwrap();
        disk.remove("three").unwrap();
        disk.sync_dir().unwrap();
        assert_eq!(disk.list().unwrap(), ["two"]);
        assert_eq!(
            (fs::read_dir(&path).unwrap().count(), fs::read(moved.join("two")).unwrap()),
            (0, b"x".to_vec())
        );
        assert!(disk.open("two").is_ok() && disk.open("one").is_err());
        RealDisk::new(&path).unwrap().lock().unwrap();
        assert!(
            RealDisk::new(&moved).unwrap().lock().is_err(),
            "the lock is on the directory, not on its name"
        );
    }

    #[test]
    fn file_systems_that_lose_mail_are_named() {
        assert!(weak_file_system(TMPFS).unwrap().contains("tmpfs"));
        assert!(weak_file_system(OVERLAYFS).unwrap().contains("overlayfs"));
        let (ext4, xfs, btrfs) = (0xef53, 0x5846_5342, 0x9123_683e);
        assert_eq!([ext4, xfs, btrfs].map(weak_file_system), [None; 3]);
        let shared_memory = Path::new("/dev/shm");
        if !shared_memory.is_dir() {
            println!("SKIPPED: a spool on tmpfs: there is no /dev/shm");
            return;
        }
        let dir = tempfile::tempdir_in(shared_memory).unwrap();
        let warning = RealDisk::new(dir.path()).unwrap().durability_warning().unwrap();
        assert!(warning.starts_with(&format!("{} is on tmpfs", dir.path().display())), "{warning}");
    }
}
