//! Frames: events with their times, one after the other. A time is the difference to the one before.

use report::UnixMicros;

/// An event as it is stored, with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) at: UnixMicros,
    /// Encoded by [`report::event::encode`].
    pub(crate) event: &'a [u8],
}

/// Appends a frame. `previous` is the time of the frame before, and becomes that of this one.
pub(crate) fn push(out: &mut Vec<u8>, previous: &mut UnixMicros, at: UnixMicros, event: &[u8]) {
    let difference = at.0.wrapping_sub(previous.0).cast_signed();
    push_varint(out, ((difference << 1) ^ (difference >> 63)).cast_unsigned());
    push_varint(out, event.len() as u64);
    out.extend_from_slice(event);
    *previous = at;
}

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a number of [`push_varint`], and returns the rest.
pub(crate) fn take_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        let part = u64::from(byte & 0x7f);
        value |= part.checked_shl(7 * at as u32)?;
        if byte & 0x80 == 0 {
            return (at < 9 || part < 2).then(|| (value, &bytes[at + 1..]));
        }
    }
    None
}

/// Frames as they are read. Ends at the first that is not whole.
#[derive(Debug, Clone)]
pub(crate) struct Frames<'a> {
    rest: &'a [u8],
    previous: UnixMicros,
}

impl<'a> Frames<'a> {
    pub(crate) fn new(bytes: &'a [u8], previous: UnixMicros) -> Self {
        Self { rest: bytes, previous }
    }

    fn take(&mut self) -> Option<Frame<'a>> {
        let (difference, rest) = take_varint(self.rest)?;
        let (length, rest) = take_varint(rest)?;
        let (event, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        let difference = (difference >> 1) ^ (difference & 1).wrapping_neg();
        self.previous = UnixMicros(self.previous.0.wrapping_add(difference));
        self.rest = rest;
        Some(Frame { at: self.previous, event })
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let frame = self.take();
        if frame.is_none() {
            self.rest = &[];
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_are_read_as_they_were_written(
            begin: u64,
            events in proptest::collection::vec((any::<u64>(), proptest::collection::vec(any::<u8>(), 0..300)), 0..20),
            cut in 0usize..100,
        ) {
            let (mut out, mut previous) = (Vec::new(), UnixMicros(begin));
            for (at, event) in &events {
                push(&mut out, &mut previous, UnixMicros(*at), event);
            }
            let frames = Frames::new(&out, UnixMicros(begin));
            let read: Vec<_> = frames.map(|frame| (frame.at.0, frame.event.to_vec())).collect();
            prop_assert_eq!(&read, &events);
            // A part is a prefix of the events.
            let part: Vec<_> = Frames::new(&out[..out.len().saturating_sub(cut)], UnixMicros(begin))
                .map(|frame| (frame.at.0, frame.event.to_vec()))
                .collect();
            prop_assert_eq!(&part[..], &events[..part.len()]);
        }

        #[test]
        fn any_bytes_are_frames_or_none(bytes: Vec<u8>, begin: u64) {
            let read: usize = Frames::new(&bytes, UnixMicros(begin)).map(|frame| frame.event.len()).sum();
            prop_assert!(read <= bytes.len());
        }
    }
}
