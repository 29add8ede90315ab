//! Memory that two processes map: a ring of octets in each direction, with one writer and one reader.

#![allow(unsafe_code)] // the mapping, and copies from and to memory that another process changes

use rustix::{
    fs::{FileType, MemfdFlags, SealFlags},
    io::Errno,
    mm::{MapFlags, ProtFlags, mmap, munmap},
    thread::futex,
};
use std::{
    cell::UnsafeCell,
    hint::spin_loop,
    io::{self, Read, Write},
    os::fd::{AsFd, OwnedFd},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
};

/// Octets that a ring holds: as many as a pipe. A power of two, because positions count modulo 2^32.
pub(crate) const RING_BYTES: usize = 64 * 1024;

/// Looks at a ring before the processor is given to another thread, some microseconds: more than a trip takes while both sides
/// run, and little against a change of threads when they share a processor. With 2,000 a trip then took 106 µs instead of 10.
/// None of them helps where there is one processor.
const SPINS: u32 = 100;

/// Which of the two processes this is: near has begun the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Near,
    Far,
}

/// How a process waits for the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Sleeps in the kernel until the other process wakes it.
    Futex,
    /// Looks again and again, and yields the processor between looks after the first [`SPINS`].
    Spinning,
}

/// A number on a cache line of its own, so that the two sides do not take each other's lines without need.
#[repr(C, align(64))]
struct Line(AtomicU32);

/// A ring of octets in one direction.
#[repr(C)]
struct Ring {
    /// Octets written since the start, modulo 2^32. Only the writer stores it.
    written: Line,
    /// Octets read since the start, modulo 2^32. Only the reader stores it.
    read: Line,
    /// 1 while the reader sleeps or is about to: the word of the futex.
    reader_sleeps: Line,
    /// Counterpart of `reader_sleeps` for the writer.
    writer_sleeps: Line,
    octets: UnsafeCell<[u8; RING_BYTES]>,
}

impl Ring {
    /// Octets that can be read.
    fn filled(&self) -> io::Result<usize> {
        let filled = self.written.0.load(SeqCst).wrapping_sub(self.read.0.load(SeqCst)) as usize;
        if filled <= RING_BYTES {
            Ok(filled)
        } else {
            let why =
                format!("the positions of the ring are {filled} octets apart, {RING_BYTES} are possible");
            Err(io::Error::new(io::ErrorKind::InvalidData, why))
        }
    }

    fn octets(&self) -> *mut u8 {
        self.octets.get().cast()
    }
}

/// The contents of the mapping. Zeros, as in a new file, are two empty rings.
#[repr(C)]
struct Shared {
    /// From the near side to the far side, and back.
    rings: [Ring; 2],
}

const SHARED_BYTES: usize = size_of::<Shared>();

struct Mapping(NonNull<Shared>);

// SAFETY: the mapping has no owner thread. Its numbers are atomic; its octets are only reached through
// `SharedMemory`, which needs `&mut` for each access and gives out one reader and one writer for each ring.
unsafe impl Send for Mapping {}
// SAFETY: as above; `Closer`, which shares the mapping, only touches atomic numbers.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: impl AsFd) -> io::Result<Self> {
        let file = file.as_fd();
        let stat = rustix::fs::fstat(file)?;
        // The seal keeps each page there: an access beyond the end of a file would be SIGBUS.
        let is_sealed = rustix::fs::fcntl_get_seals(file)?.contains(SealFlags::SHRINK);
        let is_file = FileType::from_raw_mode(stat.st_mode).is_file();
        if !is_file || !is_sealed || stat.st_size != SHARED_BYTES as i64 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "map memory: not a file of `create`"));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a free address, so no memory of Rust is replaced.
        let start =
            unsafe { mmap(std::ptr::null_mut(), SHARED_BYTES, protection, MapFlags::SHARED, file, 0) }?;
        NonNull::new(start.cast()).map(Self).ok_or_else(|| io::Error::from(Errno::NOMEM))
    }

    fn shared(&self) -> &Shared {
        // SAFETY: the mapping is as large as `Shared`, aligned to a page, and stays until `drop`. Every pattern of bits is
        // a valid `Shared`. The other process changes it only behind `AtomicU32` and `UnsafeCell`.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping with this length, and no reference to it outlives `self`.
        // It can only fail for a wrong address or length.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), SHARED_BYTES) };
    }
}

/// One side's access to both rings: reads from one and writes to the other.
///
/// There must be one for each side and file: with two readers of a ring each gets some of the octets.
pub(crate) struct SharedMemory {
    mapping: Arc<Mapping>,
    has_ended: Arc<AtomicBool>,
    side: Side,
    waiting: Waiting,
    spins: u32,
}

/// Returns a file in memory with two empty rings, which another process can inherit.
pub(crate) fn create() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("postlab-ipc", flags)?;
    rustix::fs::ftruncate(&file, SHARED_BYTES as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

impl SharedMemory {
    /// Maps a file of [`create`].
    pub(crate) fn open(file: impl AsFd, side: Side, waiting: Waiting) -> io::Result<Self> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let spins = if processors > 1 { SPINS } else { 0 };
        let mapping = Arc::new(Mapping::new(file)?);
        Ok(Self { mapping, has_ended: Arc::default(), side, waiting, spins })
    }

    /// Returns what to call when the other process has ended.
    pub(crate) fn closer(&self) -> Closer {
        Closer { mapping: self.mapping.clone(), has_ended: self.has_ended.clone() }
    }

    fn incoming(&self) -> &Ring {
        &self.mapping.shared().rings[usize::from(self.side == Side::Near)]
    }

    fn outgoing(&self) -> &Ring {
        &self.mapping.shared().rings[usize::from(self.side == Side::Far)]
    }

    /// Waits until `count` is not 0 and returns it; 0 if the other process has ended.
    fn wait(&self, sleeps: &Line, count: impl Fn() -> io::Result<usize>) -> io::Result<usize> {
        let mut turns = 0;
        loop {
            // In this order: the last octets may arrive just before the end.
            let has_ended = self.has_ended.load(SeqCst);
            let count = count()?;
            if count > 0 || has_ended {
                return Ok(count);
            }
            match self.waiting {
                Waiting::Spinning if turns < self.spins => {
                    turns += 1;
                    spin_loop();
                }
                Waiting::Spinning => thread::yield_now(),
                // Announce the sleep first and look again: the other side looks at the word after it has changed the ring.
                Waiting::Futex if sleeps.0.swap(1, SeqCst) == 0 => {}
                Waiting::Futex => match futex::wait(&sleeps.0, futex::Flags::empty(), 1, None) {
                    Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(e) => return Err(e.into()),
                },
            }
        }
    }

    /// Wakes the other side if it sleeps.
    fn wake(&self, sleeps: &Line) -> io::Result<()> {
        if self.waiting == Waiting::Futex && sleeps.0.swap(0, SeqCst) != 0 {
            futex::wake(&sleeps.0, futex::Flags::empty(), 1)?;
        }
        Ok(())
    }
}

/// The length of the part up to the end of the ring, when `length` octets begin at `position`.
fn first_part(position: u32, length: usize) -> (usize, usize) {
    let at = position as usize % RING_BYTES;
    (at, length.min(RING_BYTES - at))
}

impl Read for SharedMemory {
    /// Returns at least one octet; 0 when the other process has ended.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let ring = self.incoming();
        let length = self.wait(&ring.reader_sleeps, || ring.filled())?.min(buffer.len());
        let position = ring.read.0.load(Relaxed);
        let (at, first) = first_part(position, length);
        let target = buffer.as_mut_ptr();
        // SAFETY: `at + first` and `length - first` are at most RING_BYTES, and `length` is at most the buffer's length.
        // `written` was loaded after these octets were stored, and the writer changes them only after `read` has
        // grown. A process that breaks the protocol can change the octets meanwhile, but not the lengths.
        unsafe {
            target.copy_from_nonoverlapping(ring.octets().add(at), first);
            target.add(first).copy_from_nonoverlapping(ring.octets(), length - first);
        }
        ring.read.0.store(position.wrapping_add(length as u32), SeqCst);
        self.wake(&ring.writer_sleeps)?;
        Ok(length)
    }
}

impl Write for SharedMemory {
    /// Waits for room, and writes at least one octet.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let ring = self.outgoing();
        let room = self.wait(&ring.writer_sleeps, || ring.filled().map(|filled| RING_BYTES - filled))?;
        if room == 0 {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the other process has ended"));
        }
        let length = room.min(bytes.len());
        let position = ring.written.0.load(Relaxed);
        let (at, first) = first_part(position, length);
        // SAFETY: as in `read`; the reader does not look at these octets before `written` has grown.
        unsafe {
            ring.octets().add(at).copy_from_nonoverlapping(bytes.as_ptr(), first);
            ring.octets().copy_from_nonoverlapping(bytes.as_ptr().add(first), length - first);
        }
        ring.written.0.store(position.wrapping_add(length as u32), SeqCst);
        self.wake(&ring.reader_sleeps)?;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Ends the waiting of this process.
pub(crate) struct Closer {
    mapping: Arc<Mapping>,
    has_ended: Arc<AtomicBool>,
}

impl Closer {
    /// Lets reads return 0 once the ring is empty, and writes fail once it is full.
    pub(crate) fn close(&self) {
        self.has_ended.store(true, SeqCst);
        for ring in &self.mapping.shared().rings {
            for sleeps in [&ring.reader_sleeps, &ring.writer_sleeps] {
                sleeps.0.store(0, SeqCst);
                // Fails for a wrong address only.
                let _ = futex::wake(&sleeps.0, futex::Flags::empty(), u32::MAX >> 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs::File;

    fn sides(waiting: Waiting) -> [SharedMemory; 2] {
        let file = create().unwrap();
        [Side::Near, Side::Far].map(|side| SharedMemory::open(&file, side, waiting).unwrap())
    }

    /// Sends parts of these lengths from one mapping to the other, and all of them back.
    fn echo(waiting: Waiting, lengths: &[usize], seed: u64) {
        let [mut near, mut far] = sides(waiting);
        let total: usize = lengths.iter().sum();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut octets = vec![0; total];
                far.read_exact(&mut octets).unwrap();
                far.write_all(&octets).unwrap();
            });
            let mut random = fastrand::Rng::with_seed(seed);
            let sent: Vec<u8> = (0..total).map(|_| random.u8(..)).collect();
            let mut rest = &sent[..];
            for length in lengths {
                let (part, after) = rest.split_at(*length);
                near.write_all(part).unwrap();
                rest = after;
            }
            let mut heard = vec![0; total];
            near.read_exact(&mut heard).unwrap();
            assert!(heard == sent, "{waiting:?}: octets changed on their way");
        });
    }

    #[test]
    fn octets_arrive_below_at_and_above_the_size_of_the_ring() {
        for waiting in [Waiting::Futex, Waiting::Spinning] {
            for length in [1, RING_BYTES - 1, RING_BYTES, RING_BYTES + 1, 3 * RING_BYTES + 7] {
                echo(waiting, &[length], length as u64);
                echo(waiting, &[5, length, length], length as u64);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn octets_arrive_in_order_in_parts_of_any_length(
            lengths in prop::collection::vec(prop_oneof![1_usize..600, 1_usize..200_000], 1..12),
            seed: u64,
        ) {
            echo(Waiting::Futex, &lengths, seed);
            echo(Waiting::Spinning, &lengths, seed);
        }
    }

    #[test]
    fn positions_may_pass_two_to_the_32() {
        let [mut near, mut far] = sides(Waiting::Futex);
        let start = u32::MAX - 10;
        let ring = near.outgoing();
        ring.written.0.store(start, SeqCst);
        ring.read.0.store(start, SeqCst);
        near.write_all(b"octets across the end of the number").unwrap();
        let mut heard = [0; 35];
        far.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"octets across the end of the number");
    }

    #[test]
    fn the_end_of_the_other_process_ends_both_kinds_of_waiting() {
        for waiting in [Waiting::Futex, Waiting::Spinning] {
            let [mut near, _far] = sides(waiting);
            let [mut writer, mut far] = sides(waiting);
            let closers = [near.closer(), writer.closer()];
            writer.write_all(&[1; RING_BYTES]).unwrap();
            let reader = thread::spawn(move || near.read(&mut [0; 4]).unwrap());
            let writer = thread::spawn(move || writer.write(&[2; 4]).unwrap_err().kind());
            closers.iter().for_each(Closer::close);
            assert_eq!(reader.join().unwrap(), 0);
            assert_eq!(writer.join().unwrap(), io::ErrorKind::BrokenPipe);
            // What was written before the end can still be read.
            far.closer().close();
            let mut octets = Vec::new();
            far.read_to_end(&mut octets).unwrap();
            assert_eq!(octets, [1; RING_BYTES]);
        }
    }

    #[test]
    fn positions_out_of_range_are_an_error_and_no_copy() {
        let [mut near, far] = sides(Waiting::Spinning);
        far.outgoing().written.0.store(RING_BYTES as u32 + 1, SeqCst);
        assert_eq!(near.read(&mut [0; 4]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_file_that_could_shrink_is_not_mapped() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(SHARED_BYTES as u64).unwrap();
        assert!(SharedMemory::open(&file, Side::Near, Waiting::Futex).is_err());
        let short: File = rustix::fs::memfd_create("short", MemfdFlags::ALLOW_SEALING).unwrap().into();
        rustix::fs::fcntl_add_seals(&short, SealFlags::SHRINK).unwrap();
        assert!(SharedMemory::open(&short, Side::Near, Waiting::Futex).is_err());
    }
}
