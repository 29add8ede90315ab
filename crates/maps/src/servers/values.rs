//! One value out of the rows or attributes of an answer.

use crate::Value;

/// Octets of a value, as of a reply of the socketmap protocol.
const VALUE_MAX: usize = 100_000;

/// Values of a key, joined by a comma and a space: a list of addresses in a table with a row for each is one value.
#[derive(Debug, Default)]
pub(super) struct Values {
    text: String,
    count: usize,
}

impl Values {
    /// Adds a value.
    ///
    /// # Errors
    /// The value is not text, or all of them together are too long.
    pub(super) fn add(&mut self, value: &[u8]) -> Result<(), String> {
        let value = std::str::from_utf8(value).map_err(|_| "a value is not UTF-8")?.trim();
        if value.contains(|c: char| c.is_control() && c != '\t') {
            return Err("a value has control characters".to_owned());
        }
        if self.count > 0 {
            self.text.push_str(", ");
        }
        self.text.push_str(value);
        self.count += 1;
        if self.text.len() > VALUE_MAX {
            return Err(format!("the answer is longer than {VALUE_MAX} octets"));
        }
        Ok(())
    }

    /// Returns the value; none without a row.
    pub(super) fn finish(self) -> Option<Value> {
        (self.count > 0).then(|| self.text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_joined_and_no_row_is_no_value() {
        assert_eq!(Values::default().finish(), None);
        let mut values = Values::default();
        for row in ["joe@b.test", " ann@b.test\t", ""] {
            values.add(row.as_bytes()).unwrap();
        }
        assert_eq!(values.finish().as_deref(), Some("joe@b.test, ann@b.test, "));
        let mut empty = Values::default();
        empty.add(b"").unwrap();
        assert_eq!(empty.finish().as_deref(), Some(""));
    }

    #[test]
    fn what_is_not_a_line_of_text_is_an_error() {
        for bad in [&b"a\nb"[..], b"a\0b", b"a\xffb"] {
            assert!(Values::default().add(bad).is_err(), "{bad:?}");
        }
        let mut values = Values::default();
        let most = (0..).map_while(|_| values.add(&[b'x'; 1000]).ok()).take(1000).count();
        assert_eq!(most, VALUE_MAX / 1002);
    }
}
