//! A block device whose power can be cut: until a flush it may keep what it was asked to
//! write, lose it, or write it in any order, as disks with a cache do.
//!
//! Without power it fails every flush, so that nothing is called durable any more. Writes fail, too, but
//! only so many: XFS tries one for ever while it mounts. After that they come to nothing unnoticed.

use super::image::{Image, PAGE};
use sim::seed::Rng;
use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Writes that fail without power.
const FAILING_WRITES: u32 = 64;

/// When the power is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// With this write or flush, counted from the start.
    At(u64),
    /// Right after this flush: what has just been reported durable is read.
    AfterFlush(u64),
}

struct State {
    /// What a cut leaves in any case.
    durable: Image,
    /// What reads return.
    now: Image,
    /// Writes since the last flush, in order.
    unflushed: Vec<(u64, Vec<u8>)>,
    cut: Cut,
    is_off: bool,
    counts: Counts,
    failed_writes: u32,
}

/// The requests to the device since it was switched on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
}

/// The device; whoever serves it and whoever cuts it share it.
pub(crate) struct Device(Mutex<State>);

impl Device {
    /// A device with something on it, and no power.
    pub(crate) fn new(image: Image) -> Self {
        Self(Mutex::new(State {
            durable: image.clone(),
            now: image,
            unflushed: Vec::new(),
            cut: Cut::At(u64::MAX),
            is_off: true,
            counts: Counts::default(),
            failed_writes: 0,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Power, with this on the medium, until the cut.
    pub(crate) fn switch_on(&self, image: Image, cut: Cut) {
        let now = image.clone();
        let counts = Counts::default();
        let (unflushed, is_off, failed_writes) = (Vec::new(), false, 0);
        *self.state() = State { durable: image, now, unflushed, cut, is_off, counts, failed_writes };
    }

    /// Cuts now, if it has not been cut.
    pub(crate) fn switch_off(&self) {
        self.state().is_off = true;
    }

    pub(crate) fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// Returns the requests until the cut, and true if the cut came right after a flush.
    pub(crate) fn counts(&self) -> (Counts, bool) {
        let state = self.state();
        (state.counts, state.cut == Cut::AfterFlush(state.counts.flushes))
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.state().now.size_bytes()
    }

    /// Returns the medium after the cut: all that was flushed, and of the rest any part. The size of that part
    /// differs from
    /// cut to cut, as there are disks that write everything at once, and disks that write nothing until a flush.
    pub(crate) fn left(&self, rng: &mut Rng) -> Image {
        let state = self.state();
        let mut image = state.durable.clone();
        let kept = match rng.below(5) {
            0 => 0,
            1 => 100,
            2 => 95,
            _ => rng.below(101),
        };
        for (offset, bytes) in &state.unflushed {
            // A write need not begin at a page.
            let head = (PAGE - *offset as usize % PAGE).min(bytes.len());
            let (first, rest) = bytes.split_at(head);
            let mut at = *offset;
            for page in std::iter::once(first).chain(rest.chunks(PAGE)) {
                if rng.chance(kept) {
                    image.write(at, page);
                }
                at += page.len() as u64;
            }
        }
        image
    }

    pub(crate) fn read(&self, offset: u64, length: usize, out: &mut Vec<u8>) {
        self.state().now.read(offset, length, out);
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        if !state.is_off {
            state.counts.writes += 1;
            state.now.write(offset, bytes);
            state.unflushed.push((offset, bytes.to_vec()));
            state.cut_if_due();
        }
        if state.is_off && state.failed_writes < FAILING_WRITES {
            state.failed_writes += 1;
            return Err(io::Error::from_raw_os_error(5));
        }
        if state.is_off {
            state.now.write(offset, bytes);
        }
        Ok(())
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        let mut state = self.state();
        if !state.is_off {
            state.counts.flushes += 1;
            state.cut_if_due();
        }
        if state.is_off {
            return Err(io::Error::from_raw_os_error(5));
        }
        let State { durable, now, unflushed, .. } = &mut *state;
        for (offset, bytes) in unflushed.drain(..) {
            durable.take_over(now, offset, bytes.len());
        }
        state.is_off = state.cut == Cut::AfterFlush(state.counts.flushes);
        Ok(())
    }
}

impl State {
    fn cut_if_due(&mut self) {
        self.is_off = self.cut == Cut::At(self.counts.writes + self.counts.flushes);
    }
}
