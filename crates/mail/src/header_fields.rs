//! The fields of a header as a list that is changed step by step, in octets: as filters ask for it.

use crate::{header, header_edit::split};

/// The fields of a header, from the top. Lines that are no fields keep their places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderFields {
    fields: Vec<OneField>,
    /// The empty line behind the header, with what ends it; empty if the content has no body.
    end: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct OneField {
    /// With its folding and line ends.
    bytes: Vec<u8>,
    /// Added by this server, not received.
    is_own: bool,
}

impl OneField {
    fn new(name: &str, value: &[u8]) -> Self {
        let mut bytes = name.as_bytes().to_vec();
        bytes.push(b':');
        for (number, line) in value.split(|byte| *byte == b'\n').enumerate() {
            if number > 0 {
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
        }
        bytes.extend_from_slice(b"\r\n");
        Self { bytes, is_own: false }
    }

    /// The name and the value, without the line end behind it; `None` for a line that is no field.
    fn parts(&self) -> Option<(&[u8], &[u8])> {
        let (name, value) = header::fields(&self.bytes).next()?;
        let value = value.strip_suffix(b"\n").unwrap_or(value);
        Some((name, value.strip_suffix(b"\r").unwrap_or(value)))
    }

    /// Whether this is this server's own `Received` field, which filters do not see: Sendmail and Postfix hide theirs, too.
    fn is_hidden(&self) -> bool {
        self.is_own && self.parts().is_some_and(|(name, _)| name.eq_ignore_ascii_case(b"Received"))
    }
}

impl HeaderFields {
    /// Reads a header. This server added its first `own_bytes`.
    pub(crate) fn read(header: &[u8], own_bytes: usize) -> Self {
        let (own, received) = header.split_at(own_bytes);
        let (own, _) = split(own);
        let (received, end) = split(received);
        let field = |bytes: &[u8], is_own| OneField { bytes: bytes.to_vec(), is_own };
        let own = own.into_iter().map(|bytes| field(bytes, true));
        let received = received.into_iter().map(|bytes| field(bytes, false));
        Self { fields: own.chain(received).collect(), end: end.to_vec() }
    }

    /// Returns the names and values of the fields, from the top, without this server's own `Received`. A value is everything
    /// after the colon, folding included, up to the final line end.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().filter(|field| !field.is_hidden()).filter_map(OneField::parts)
    }

    /// Adds a field below all others. The value is what stands behind the colon; in it, a space or tab follows each line break.
    pub fn append(&mut self, name: &str, value: &[u8]) {
        // The last line of content that is all header may lack its end.
        if let Some(last) = self.fields.last_mut().filter(|last| !last.bytes.ends_with(b"\n")) {
            last.bytes.extend_from_slice(b"\r\n");
        }
        self.fields.push(OneField::new(name, value));
    }

    /// Inserts a field below the first `above` fields, this server's own `Received` included. If there are fewer, it goes to the
    /// bottom.
    pub fn insert(&mut self, above: usize, name: &str, value: &[u8]) {
        if above >= self.fields.len() {
            return self.append(name, value);
        }
        // A field above one that this server added does not count as received either.
        let is_own = self.fields[above].is_own;
        self.fields.insert(above, OneField { is_own, ..OneField::new(name, value) });
    }

    /// Replaces one occurrence of a name, or removes it if there is no value. Occurrences are counted from 0, and the trace field of
    /// this server is not counted. If there is no such occurrence, a value is appended.
    pub fn change(&mut self, name: &str, occurrence: usize, value: Option<&[u8]>) {
        let is_meant = |field: &OneField| {
            !field.is_hidden()
                && field.parts().is_some_and(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
        };
        let mut meant = self.fields.iter().enumerate().filter(|(_, field)| is_meant(field)).map(|(at, _)| at);
        match (meant.nth(occurrence), value) {
            (Some(at), Some(value)) => {
                let is_own = self.fields[at].is_own;
                self.fields[at] = OneField { is_own, ..OneField::new(name, value) };
            }
            (Some(at), None) => _ = self.fields.remove(at),
            (None, Some(value)) => self.append(name, value),
            (None, None) => {}
        }
    }

    /// Returns the header, and the length of the part at its beginning that this server added.
    pub(crate) fn write(&self) -> (Vec<u8>, usize) {
        let own = self.fields.iter().rposition(|field| field.is_own).map_or(0, |at| at + 1);
        let length = |fields: &[OneField]| fields.iter().map(|field| field.bytes.len()).sum();
        let mut header: Vec<u8> = self.fields.iter().flat_map(|field| field.bytes.iter().copied()).collect();
        header.extend_from_slice(&self.end);
        (header, length(&self.fields[..own]))
    }
}

#[cfg(test)]
mod tests {
    use crate::ReceivedContent;
    use proptest::prelude::*;

    const OWN: &str = "Received: from x\r\n\tby y\r\n";
    const GIVEN: &str = "Received: from z\r\nSubject: a\r\n b\r\nX: 1\r\nx : 2\r\nX: 3\r\n\r\nbody\r\n";

    fn content() -> ReceivedContent {
        ReceivedContent::from_bytes(format!("{OWN}{GIVEN}"), OWN.len())
    }

    fn text(content: ReceivedContent) -> String {
        String::from_utf8(content.into_content().in_memory().unwrap().to_vec()).unwrap()
    }

    #[test]
    fn each_change_sees_those_before_it_and_not_the_trace_field_of_this_server() {
        let mut content = content();
        let mut fields = content.fields();
        let names: Vec<_> =
            fields.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect();
        assert_eq!(names, ["Received", "Subject", "X", "x", "X"]);
        assert_eq!(fields.iter().nth(1), Some((&b"Subject"[..], &b" a\r\n b"[..])));
        fields.change("x", 0, None);
        fields.change("X", 0, None);
        fields.change("X", 0, Some(b" four\n five"));
        fields.change("Received", 0, Some(b" nobody"));
        fields.change("New", 4, Some(b"\xe9"));
        fields.change("Nothing", 0, None);
        fields.insert(0, "Top", b" 0");
        fields.insert(2, "Second", b"s");
        fields.insert(99, "Last", b" l");
        content.set_fields(&fields);
        assert_eq!(content.header(), "Second:s\r\nReceived: nobody\r\nSubject: a\r\n b\r\nX: four\r\n five\r\nNew:\u{e9}\r\nLast: l\r\n\r\n".chars().map(|c| c as u8).collect::<Vec<u8>>());
        let whole = content.into_content().in_memory().unwrap();
        assert!(whole.starts_with(format!("Top: 0\r\n{OWN}Second:s\r\n").as_bytes()));
        assert!(whole.ends_with(b"\r\n\r\nbody\r\n"));
    }

    #[test]
    fn content_that_is_all_header_or_all_body_keeps_its_end() {
        for (given, changed) in [
            ("A: 1\r\n", "A: 1\r\nB: 2\r\n"),
            ("A: 1", "A: 1\r\nB: 2\r\n"),
            ("\r\nbody", "B: 2\r\n\r\nbody"),
            ("", "B: 2\r\n"),
            ("body\r\n", "B: 2\r\n\r\nbody\r\n"),
        ] {
            let mut content = ReceivedContent::from_bytes(given, 0);
            let mut fields = content.fields();
            fields.append("B", b" 2");
            content.set_fields(&fields);
            assert_eq!(text(content), changed, "{given:?}");
        }
    }

    proptest! {
        #[test]
        fn fields_that_are_not_changed_are_the_same_octets(given in "([A-C]?[: \r\n]{1,3}){0,8}", own in any::<bool>()) {
            let own = if own { OWN } else { "" };
            let mut content = ReceivedContent::from_bytes(format!("{own}{given}"), own.len());
            content.separate_body();
            let before = text(content.clone());
            let header = content.header().to_vec();
            content.set_fields(&content.fields());
            prop_assert_eq!(content.header(), &header[..]);
            prop_assert_eq!(text(content), before);
        }
    }
}
