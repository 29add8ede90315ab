//! One record: length, type, name, body, checksum. The checksum begins with the segment's seed and
//! the record's position, so that neither bytes of the segment's earlier life nor moved ones pass.

use super::wire::{Malformed, Reader, put_u32, put_u64};

/// Length, type and name.
const HEAD_BYTES: usize = 4 + 1 + 8;
/// Number of bytes that a record has besides its body.
pub(crate) const OVERHEAD_BYTES: usize = HEAD_BYTES + 4;

/// What a record says; its number in the log never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// A message, and perhaps what became of its recipients so far. The name is its queue id.
    Message = 1,
    /// Outcomes. The name is the message's queue id.
    Outcome = 2,
    /// Nothing is left of the message.
    Tombstone = 3,
    /// Held or released.
    Hold = 4,
    /// A chunk of content. The name is the id of the chunk.
    Chunk = 5,
    /// The totals behind the batch. The name is the number of the batch.
    Totals = 6,
}

impl Kind {
    /// Is the name of such a record the queue id of a message?
    pub(crate) fn is_of_message(self) -> bool {
        match self {
            Self::Message | Self::Outcome | Self::Tombstone | Self::Hold => true,
            Self::Chunk | Self::Totals => false,
        }
    }

    pub(crate) fn from_u8(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Message,
            2 => Self::Outcome,
            3 => Self::Tombstone,
            4 => Self::Hold,
            5 => Self::Chunk,
            6 => Self::Totals,
            _ => return None,
        })
    }
}

/// A record with a right checksum; `name` is a queue id or a chunk's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) kind: Kind,
    pub(crate) name: u64,
    pub(crate) body: &'a [u8],
}

/// A record up to this length is copied behind its salt: one checksum over both costs less than two.
const SHORT_BYTES: usize = 112;
const SALT_BYTES: usize = 16;

fn checksum(seed: u64, position: u64, bytes: &[u8]) -> u32 {
    let mut salted = [0; SALT_BYTES + SHORT_BYTES];
    salted[..8].copy_from_slice(&seed.to_le_bytes());
    salted[8..SALT_BYTES].copy_from_slice(&position.to_le_bytes());
    match salted.get_mut(SALT_BYTES..SALT_BYTES + bytes.len()) {
        Some(short) => {
            short.copy_from_slice(bytes);
            crc32c::crc32c(&salted[..SALT_BYTES + bytes.len()])
        }
        None => crc32c::crc32c_append(crc32c::crc32c(&salted[..SALT_BYTES]), bytes),
    }
}

/// Appends a record whose body `write` makes. `base` is where `out` begins in the segment. Returns
/// the record's checksum.
pub(crate) fn append(
    out: &mut Vec<u8>,
    base: u64,
    seed: u64,
    kind: Kind,
    name: u64,
    write: impl FnOnce(&mut Vec<u8>),
) -> u32 {
    let start = out.len();
    put_u32(out, 0);
    out.push(kind as u8);
    put_u64(out, name);
    write(out);
    let length = u32::try_from(out.len() + 4 - start).expect("a record is far below 4 GiB");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    let sum = checksum(seed, base + start as u64, &out[start..]);
    put_u32(out, sum);
    sum
}

/// Reads the record at the front of `bytes`, which stands at `position`; it, its length, and its checksum.
pub(crate) fn read(bytes: &[u8], position: u64, seed: u64) -> Result<(Record<'_>, usize, u32), Malformed> {
    let length = Reader(bytes).u32()? as usize;
    if length < OVERHEAD_BYTES || length > bytes.len() {
        return Err(Malformed("record length"));
    }
    let (covered, sum) = bytes[..length].split_at(length - 4);
    let mut reader = Reader(&covered[4..]);
    // Before the checksum: where records are looked for byte by byte, most lengths are chance, and some are long.
    let kind = Kind::from_u8(reader.u8()?).ok_or(Malformed("record type"))?;
    let sum = Reader(sum).u32()?;
    if checksum(seed, position, covered) != sum {
        return Err(Malformed("record checksum"));
    }
    let name = reader.u64()?;
    Ok((Record { kind, name, body: reader.0 }, length, sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_record_is_read_only_where_and_when_it_was_written(
            body: Vec<u8>, name: u64, seed: u64, base in 0u64..1 << 40, flip in any::<(usize, u8)>(),
        ) {
            let mut out = Vec::new();
            append(&mut out, base, seed, Kind::Chunk, name, |o| o.extend_from_slice(&body));
            let (record, length, _) = read(&out, base, seed).unwrap();
            prop_assert_eq!((record, length), (Record { kind: Kind::Chunk, name, body: &body }, out.len()));
            prop_assert!(read(&out, base + 1, seed).is_err());
            prop_assert!(read(&out, base, seed ^ 1).is_err());
            let mut bad = out.clone();
            let at = flip.0 % bad.len();
            bad[at] ^= flip.1 | 1;
            prop_assert!(read(&bad, base, seed).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = read(&bytes, 0, 0);
        }
    }
}
