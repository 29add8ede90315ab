//! A message's content: header and body in wire form (CRLF line ends, not dot-stuffed), in parts.

use bytes::Bytes;
use std::sync::Arc;

/// Names a chunk of content in a spool. Only the spool that made the id can read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkId(pub u64);

/// A run of content, either in memory or in the spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Bytes that were not written to the spool.
    Memory(Bytes),
    /// A chunk in the spool.
    Stored {
        /// Id under which the spool has the chunk.
        chunk_id: ChunkId,
        /// Length of the chunk in bytes.
        length_bytes: u32,
    },
}

impl Part {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Stored { length_bytes, .. } => u64::from(*length_bytes),
        }
    }

    /// Returns the id of the chunk, or `None` for a part in memory.
    pub fn chunk_id(&self) -> Option<ChunkId> {
        match self {
            Self::Memory(_) => None,
            Self::Stored { chunk_id, .. } => Some(*chunk_id),
        }
    }

    /// No bytes at all?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The ids of the chunks among the parts, in order.
pub fn chunk_ids(parts: &[Part]) -> Vec<ChunkId> {
    parts.iter().filter_map(Part::chunk_id).collect()
}

/// The properties of content that decide how it is transferred, found once while it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContentTraits {
    /// Some line begins with a dot: it must be stuffed for DATA (RFC 5321 §4.5.2).
    pub has_dot_line: bool,
    /// Some byte is above 127: wants 8BITMIME (RFC 6152).
    pub is_8bit: bool,
    /// Has a bare CR or LF, or NUL: only BDAT with BINARYMIME carries it unchanged (RFC 3030).
    pub is_binary: bool,
    /// Has a line over 998 octets (RFC 5322 §2.1.1); sent as it is, as other MTAs do.
    pub has_long_line: bool,
    /// The last line lacks its CRLF; one is added when sent by DATA.
    pub lacks_final_crlf: bool,
    /// Some header byte is above 127: wants SMTPUTF8 (RFC 6531 §3.4).
    pub has_utf8_header: bool,
}

impl ContentTraits {
    /// Everything that one of the two has.
    pub fn union(self, other: Self) -> Self {
        Self {
            has_dot_line: self.has_dot_line | other.has_dot_line,
            is_8bit: self.is_8bit | other.is_8bit,
            is_binary: self.is_binary | other.is_binary,
            has_long_line: self.has_long_line | other.has_long_line,
            lacks_final_crlf: self.lacks_final_crlf | other.lacks_final_crlf,
            has_utf8_header: self.has_utf8_header | other.has_utf8_header,
        }
    }
}

/// Header and body. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Found while the content arrived.
    pub traits: ContentTraits,
    parts: Arc<[Part]>,
    size_bytes: u64,
}

impl Content {
    /// Content made of `parts`, in order.
    pub fn new(traits: ContentTraits, parts: impl Into<Arc<[Part]>>) -> Self {
        let parts = parts.into();
        Self { traits, size_bytes: parts.iter().map(Part::len).sum(), parts }
    }

    /// Content that is all in memory; scans it for its [`ContentTraits`].
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let mut scan = crate::header::ContentScanner::default();
        scan.scan(&bytes);
        Self::new(scan.traits(), [Part::Memory(bytes)])
    }

    /// Returns the parts in the order of the content.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Total length in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// All of it, where every part is in memory; copies only when there are several.
    pub fn in_memory(&self) -> Option<Bytes> {
        match &*self.parts {
            [Part::Memory(bytes)] => Some(bytes.clone()),
            parts => {
                let mut all = Vec::new();
                for part in parts {
                    let Part::Memory(bytes) = part else { return None };
                    all.extend_from_slice(bytes);
                }
                Some(all.into())
            }
        }
    }
}
