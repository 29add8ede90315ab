//! Packets: a length of four octets, one octet that says which packet it is, and its data.

use crate::ProtocolError;

/// Octets of the length in front of a packet.
const LENGTH_BYTES: usize = 4;

/// Appends a packet. Data of more than `max` octets are too long: then nothing is appended.
pub(crate) fn push_packet(
    out: &mut Vec<u8>,
    kind: u8,
    max: usize,
    fill: impl FnOnce(&mut Vec<u8>),
) -> Option<()> {
    let begin = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    out.push(kind);
    fill(out);
    let length = out.len() - begin - LENGTH_BYTES;
    if length - 1 > max {
        out.truncate(begin);
        return None;
    }
    let length = u32::try_from(length).ok()?;
    out[begin..begin + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    Some(())
}

/// Appends a string and its NUL. The protocol has no way to say a NUL within a string, which would begin another string: a
/// space takes its place.
pub(crate) fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(text.iter().map(|byte| if *byte == 0 { b' ' } else { *byte }));
    out.push(0);
}

/// One packet of the filter.
pub(crate) struct Packet {
    pub(crate) kind: u8,
    pub(crate) data: Vec<u8>,
}

/// Octets that have arrived and are no whole packet yet.
#[derive(Debug, Default)]
pub(crate) struct Unread(Vec<u8>);

impl Unread {
    /// The memory that is held, in octets.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Takes octets from `input` up to the end of a packet, and returns that; `None` if it takes more.
    ///
    /// # Errors
    /// The length is 0, or more than `max`.
    pub(crate) fn next(&mut self, input: &mut &[u8], max: usize) -> Result<Option<Packet>, ProtocolError> {
        if !self.fill(input, LENGTH_BYTES) {
            return Ok(None);
        }
        let (length, _) = self.0.split_first_chunk().expect("four octets are there");
        let bytes = u32::from_be_bytes(*length);
        let length = usize::try_from(bytes).ok().filter(|length| *length <= max);
        let length = length.ok_or(ProtocolError::TooLong { bytes })?;
        if length == 0 {
            return Err(ProtocolError::Empty);
        }
        if !self.fill(input, LENGTH_BYTES + length) {
            return Ok(None);
        }
        let mut data = std::mem::take(&mut self.0);
        let kind = data[LENGTH_BYTES];
        data.drain(..=LENGTH_BYTES);
        Ok(Some(Packet { kind, data }))
    }

    /// Takes octets until there are `wanted`; returns whether there are.
    fn fill(&mut self, input: &mut &[u8], wanted: usize) -> bool {
        let missing = wanted.saturating_sub(self.0.len()).min(input.len());
        let (taken, rest) = input.split_at(missing);
        self.0.extend_from_slice(taken);
        *input = rest;
        self.0.len() >= wanted
    }
}

/// Reads the fields of a packet from the front.
pub(crate) struct Data<'a>(pub(crate) &'a [u8]);

/// What is wrong with data.
pub(crate) type Fault = &'static str;

impl<'a> Data<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn number(&mut self) -> Result<u32, Fault> {
        let (number, rest) = self.0.split_first_chunk().ok_or("it ends within a number")?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*number))
    }

    pub(crate) fn string(&mut self) -> Result<&'a [u8], Fault> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or("a string has no end")?;
        let string = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(string)
    }

    pub(crate) fn end(&self) -> Result<(), Fault> {
        if self.is_empty() { Ok(()) } else { Err("more follows than belongs to it") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_arrives_in_pieces() {
        let mut wire = Vec::new();
        push_packet(&mut wire, b'h', 9, |out| push_string(out, b"a\0b")).unwrap();
        assert_eq!(wire, b"\0\0\0\x05ha b\0");
        let mut unread = Unread::default();
        for piece in wire[..8].chunks(3) {
            assert!(unread.next(&mut &*piece, 5).unwrap().is_none());
        }
        let mut rest: &[u8] = b"\0next";
        let packet = unread.next(&mut rest, 5).unwrap().unwrap();
        assert_eq!((packet.kind, &packet.data[..], rest), (b'h', &b"a b\0"[..], &b"next"[..]));
    }

    #[test]
    fn a_packet_of_a_wrong_length_is_an_error() {
        let next = |mut bytes: &[u8]| Unread::default().next(&mut bytes, 5).map(|it| it.is_some());
        assert_eq!(next(b"\0\0\0\0"), Err(ProtocolError::Empty));
        assert_eq!(next(b"\0\0\0\x06"), Err(ProtocolError::TooLong { bytes: 6 }));
        assert_eq!(next(b"\xff\xff\xff\xff"), Err(ProtocolError::TooLong { bytes: u32::MAX }));
    }

    #[test]
    fn a_packet_that_is_too_long_leaves_the_output_as_it_was() {
        let mut out = b"before".to_vec();
        assert!(push_packet(&mut out, b'B', 3, |out| out.extend_from_slice(b"four")).is_none());
        assert_eq!(out, b"before");
    }
}
