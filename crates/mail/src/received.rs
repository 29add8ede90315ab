//! Content on its way in: the header is a part of its own, so that it can be read and changed while the body stays
//! where it is, in memory or in a spool.

use crate::{
    content::{Content, ContentTraits, Part},
    header::ContentScanner,
    header_edit::Edits,
};
use bytes::Bytes;

/// Content that was received and is not yet accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedContent {
    traits: ContentTraits,
    /// The first part is in memory and has the whole header, and perhaps the beginning of the body.
    parts: Vec<Part>,
    header_bytes: usize,
}

impl ReceivedContent {
    /// Content whose first part begins with the header, `header_bytes` with the empty line that ends it.
    ///
    /// # Panics
    /// When the first part does not have the whole header in memory.
    pub fn new(traits: ContentTraits, header_bytes: usize, parts: Vec<Part>) -> Self {
        let has_header = match parts.first() {
            Some(Part::Memory(first)) => first.len() >= header_bytes,
            Some(Part::Stored { .. }) => false,
            None => header_bytes == 0,
        };
        assert!(has_header, "the first part of received content has its header");
        Self { traits, parts, header_bytes }
    }

    /// Content that is all in memory; scans it.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let mut scanner = ContentScanner::default();
        scanner.scan(&bytes);
        Self::new(scanner.traits(), scanner.header_bytes(), vec![Part::Memory(bytes)])
    }

    /// The header, with the empty line that ends it unless the content ends before.
    pub fn header(&self) -> &[u8] {
        match self.parts.first() {
            Some(Part::Memory(first)) => &first[..self.header_bytes],
            _ => &[],
        }
    }

    /// The parts, in order. The first one begins with the header.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Total length in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.parts.iter().map(Part::len).sum()
    }

    /// Changes the header. The body is not copied.
    pub fn edit(&mut self, edits: &Edits) {
        if edits.is_empty() {
            return;
        }
        let header = edits.apply(self.header());
        let mut scanner = ContentScanner::default();
        scanner.scan(&header);
        let new = scanner.traits();
        let (has_utf8_header, lacks_final_crlf) = (new.has_utf8_header, self.traits.lacks_final_crlf);
        self.traits = self.traits.union(new);
        self.traits.has_utf8_header = has_utf8_header;
        let first = match self.parts.first() {
            Some(Part::Memory(first)) => first.clone(),
            _ => Bytes::new(),
        };
        let body = first.slice(self.header_bytes..);
        let is_all = body.is_empty() && self.parts.len() <= 1;
        self.traits.lacks_final_crlf = if is_all { new.lacks_final_crlf } else { lacks_final_crlf };
        self.header_bytes = header.len();
        let front = [Part::Memory(header.into()), Part::Memory(body)];
        self.parts.splice(..self.parts.len().min(1), front.into_iter().filter(|part| !part.is_empty()));
    }

    /// The content as it is stored and sent.
    pub fn into_content(self) -> Content {
        Content::new(self.traits, self.parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        content::ChunkId,
        header_edit::{Edit, Field},
    };

    fn add(name: &str, value: &str) -> Edits {
        [Edit::Append(Field::new(name, value).unwrap())].into_iter().collect()
    }

    #[test]
    fn a_change_of_the_header_leaves_the_body_where_it_is() {
        let bytes = Bytes::from_static(b"Subject: x\r\n\r\nbody\r\n");
        let mut content = ReceivedContent::from_bytes(bytes.clone());
        assert_eq!(content.header(), b"Subject: x\r\n\r\n");
        content.edit(&add("X-A", "b"));
        assert_eq!(content.header(), b"Subject: x\r\nX-A: b\r\n\r\n");
        let [_, Part::Memory(body)] = content.parts() else { panic!("header and body") };
        assert_eq!(body.as_ptr(), bytes[14..].as_ptr());
        content.edit(&add("X-C", "d"));
        let whole = content.into_content().in_memory().unwrap();
        assert_eq!(&whole[..], b"Subject: x\r\nX-A: b\r\nX-C: d\r\n\r\nbody\r\n");
    }

    #[test]
    fn a_body_in_the_spool_stays_there() {
        let stored = Part::Stored { chunk_id: ChunkId(7), length_bytes: 1000 };
        let parts = vec![Part::Memory(Bytes::from_static(b"A: b\r\n\r\n")), stored.clone()];
        let mut content = ReceivedContent::new(ContentTraits::default(), 8, parts);
        content.edit(&add("C", "d"));
        assert_eq!(content.parts(), [Part::Memory(Bytes::from_static(b"A: b\r\nC: d\r\n\r\n")), stored]);
        assert_eq!(content.size_bytes(), 1014);
    }

    #[test]
    fn the_traits_follow_the_header() {
        let mut content = ReceivedContent::from_bytes("A: b");
        content.edit(&add("C", "\u{e4}"));
        let edited = content.clone().into_content();
        assert!(edited.traits.has_utf8_header && edited.traits.is_8bit && !edited.traits.lacks_final_crlf);
        let remove = Edit::Remove { name: "c".into(), occurrence: None };
        content.edit(&[remove].into_iter().collect());
        assert!(!content.into_content().traits.has_utf8_header);
        let mut content = ReceivedContent::from_bytes("A: b\r\n\r\nbody");
        content.edit(&add("C", "d"));
        assert!(content.into_content().traits.lacks_final_crlf);
    }

    #[test]
    fn content_without_a_header_takes_one() {
        let mut content = ReceivedContent::from_bytes("\r\nbody\r\n");
        content.edit(&add("A", "b"));
        assert_eq!(&content.into_content().in_memory().unwrap()[..], b"A: b\r\n\r\nbody\r\n");
        let mut content = ReceivedContent::new(ContentTraits::default(), 0, Vec::new());
        content.edit(&add("A", "b"));
        assert_eq!(&content.into_content().in_memory().unwrap()[..], b"A: b\r\n");
    }
}
