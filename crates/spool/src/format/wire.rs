//! Little-endian integers and length-prefixed strings.

/// Stored bytes that are not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Reads from the front of a slice.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(Malformed("cut short"))?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(self.bytes(N)?.try_into().expect("N bytes were read"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Malformed> {
        let length = usize::from(self.u16()?);
        std::str::from_utf8(self.bytes(length)?).map_err(|_| Malformed("not UTF-8"))
    }

    pub(crate) fn skip_text(&mut self) -> Result<(), Malformed> {
        let length = usize::from(self.u16()?);
        self.bytes(length).map(drop)
    }

    /// A count of things of at least `size` bytes each, so that no count makes us allocate more
    /// than is there.
    pub(crate) fn count(&mut self, size: usize) -> Result<usize, Malformed> {
        let count = self.u32()? as usize;
        if count.saturating_mul(size) > self.0.len() {
            Err(Malformed("count beyond the end"))
        } else {
            Ok(count)
        }
    }
}

pub(crate) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Writes what `write` appends as [`put_text`] would write a text, without an allocation for the text.
pub(crate) fn put_written(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    put_u16(out, 0);
    write(out);
    let mut end = out.len() - at - 2;
    if end > usize::from(u16::MAX) {
        let text = str::from_utf8(&out[at + 2..]);
        end = text.map_or(0, |text| text.floor_char_boundary(usize::from(u16::MAX)));
        out.truncate(at + 2 + end);
    }
    out[at..at + 2].copy_from_slice(&(end as u16).to_le_bytes());
}

/// Writes a length and at most 65,535 bytes of `text`, cut between characters.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(usize::from(u16::MAX));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put_u16(out, end as u16);
    out.extend_from_slice(&text.as_bytes()[..end]);
}
