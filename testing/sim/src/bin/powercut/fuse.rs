//! The device as a file: so much of the FUSE protocol (linux/fuse.h, version 7.31) as a loop device
//! needs of the file behind it. No cache lies between: every write and every flush of the file system
//! arrives here, in order.

use super::device::Device;
use rustix::mount::{MountFlags, mount};
use std::{
    ffi::CString,
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::AsRawFd as _,
    path::Path,
    sync::Arc,
};

/// The longest write the kernel may send in one piece.
const WRITE_BYTES_MAX: usize = 1024 * 1024;
/// Room for a write and what stands before it.
const BUFFER_BYTES: usize = WRITE_BYTES_MAX + 4096;

const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const FORGET: u32 = 2;
const BATCH_FORGET: u32 = 42;
const DESTROY: u32 = 38;

/// Reads go past the kernel's cache.
const OPEN_DIRECT: u32 = 1;
/// Writes longer than a page, up to a given number of pages.
const CAPABILITIES: u32 = 1 << 5 | 1 << 22;
const ENOSYS: i32 = 38;
const HEADER_BYTES: usize = 40;

/// Mounts the device over a file, and serves it from a thread until it is unmounted.
pub(crate) fn serve(device: Arc<Device>, at: &Path) -> io::Result<()> {
    let fuse = File::options().read(true).write(true).open("/dev/fuse")?;
    let options = format!("fd={},rootmode=100600,user_id=0,group_id=0,allow_other", fuse.as_raw_fd());
    let options = CString::new(options)?;
    mount("powercut", at, "fuse", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())?;
    std::thread::Builder::new().name("fuse".to_owned()).spawn(move || run(&fuse, &device))?;
    Ok(())
}

fn run(mut fuse: &File, device: &Device) {
    let (mut request, mut reply) = (vec![0; BUFFER_BYTES], Vec::new());
    loop {
        let length = match fuse.read(&mut request) {
            Ok(length) => length,
            // The request was taken back before it was read.
            Err(e) if matches!(e.raw_os_error(), Some(2 | 4)) => continue,
            // Unmounted.
            Err(_) => return,
        };
        let request = Request(&request[..length]);
        if matches!(request.opcode(), FORGET | BATCH_FORGET | INTERRUPT) {
            continue; // nobody waits for an answer
        }
        reply.clear();
        reply.resize(16, 0);
        let error = match answer(&request, device, &mut reply) {
            Ok(()) => 0,
            Err(e) => {
                reply.truncate(16);
                e.raw_os_error().unwrap_or(5)
            }
        };
        let length = reply.len() as u32;
        reply[0..4].copy_from_slice(&length.to_ne_bytes());
        reply[4..8].copy_from_slice(&(-error).to_ne_bytes());
        reply[8..16].copy_from_slice(&request.u64(8).to_ne_bytes());
        // Whoever waited for it may be gone.
        let _ = fuse.write(&reply);
    }
}

struct Request<'a>(&'a [u8]);

impl Request<'_> {
    fn u32(&self, at: usize) -> u32 {
        self.0.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes(b.try_into().expect("four bytes")))
    }

    fn u64(&self, at: usize) -> u64 {
        self.0.get(at..at + 8).map_or(0, |b| u64::from_ne_bytes(b.try_into().expect("eight bytes")))
    }

    fn opcode(&self) -> u32 {
        self.u32(4)
    }
}

fn answer(request: &Request<'_>, device: &Device, out: &mut Vec<u8>) -> io::Result<()> {
    // READ and WRITE: a handle of eight bytes, then offset and length.
    let (offset, length) = (request.u64(HEADER_BYTES + 8), request.u32(HEADER_BYTES + 16) as usize);
    match request.opcode() {
        INIT => init(out),
        GETATTR => attributes(device.size_bytes(), out),
        OPEN => put(out, &[0, 0, OPEN_DIRECT, 0]),
        READ => device.read(offset, length.min(WRITE_BYTES_MAX), out),
        WRITE => {
            let data = request.0.get(HEADER_BYTES + 40..).unwrap_or_default();
            device.write(offset, &data[..length.min(data.len())])?;
            put(out, &[length as u32, 0]);
        }
        FSYNC => device.flush()?,
        STATFS => put(out, &[0; 20]),
        RELEASE | FLUSH | DESTROY => {}
        _ => return Err(io::Error::from_raw_os_error(ENOSYS)),
    }
    Ok(())
}

fn put(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_ne_bytes()));
}

/// Appends the reply to FUSE_INIT.
fn init(out: &mut Vec<u8>) {
    let pages = (WRITE_BYTES_MAX / 4096) as u32;
    // Version, read-ahead, capabilities, requests in the background (two halves), longest write,
    // granularity of times, pages of the longest request, eight words nobody uses.
    put(out, &[7, 31, 0, CAPABILITIES, 16 | 12 << 16, WRITE_BYTES_MAX as u32, 1, pages]);
    put(out, &[0; 8]);
}

/// `fuse_attr_out`: a file of root's, whose attributes stay as they are.
fn attributes(size_bytes: u64, out: &mut Vec<u8>) {
    let u64s = |out: &mut Vec<u8>, values: &[u64]| {
        values.iter().for_each(|value| out.extend_from_slice(&value.to_ne_bytes()));
    };
    u64s(out, &[u64::from(u32::MAX), 0]); // valid for so many seconds
    u64s(out, &[1, size_bytes, size_bytes / 512, 0, 0, 0]); // number, size, blocks, three times
    put(out, &[0, 0, 0, 0o100_600, 1, 0, 0, 0, 4096, 0]); // mode, links, owner, device, block size
}
