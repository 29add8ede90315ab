//! Lines `key value`, as postmap(1) reads them, in a table that takes little memory.

use crate::{
    fault::FileFault,
    lines::{key_and_value, logical_lines},
};
use hashbrown::HashTable;
use std::hash::{BuildHasher as _, RandomState};

/// A table of keys and values. Keys are in lower case, and a look-up folds its key.
///
/// All keys and values stand in one text; a key costs 13 octets beside it, at a load of up to 7/8.
#[derive(Debug, Clone, Default)]
pub struct TextTable {
    entries: HashTable<Entry>,
    text: Box<str>,
    hasher: RandomState,
}

/// The place of a key, which its value follows.
#[derive(Debug, Clone, Copy)]
struct Entry {
    at: u32,
    key_bytes: u16,
    value_bytes: u32,
}

impl Entry {
    fn key(self, text: &str) -> &str {
        let at = self.at as usize;
        &text[at..at + usize::from(self.key_bytes)]
    }

    fn value(self, text: &str) -> &str {
        let at = self.at as usize + usize::from(self.key_bytes);
        &text[at..at + self.value_bytes as usize]
    }
}

/// Why an entry is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// An earlier line has the key.
    Twice,
    /// The key is longer than 65,535 octets, or the table longer than 4 GiB.
    TooLarge,
}

/// Collects the entries of a table.
#[derive(Debug, Default)]
pub(crate) struct TextBuilder {
    entries: HashTable<Entry>,
    text: String,
    hasher: RandomState,
}

impl TextBuilder {
    /// Folds the key, and adds it with its value.
    pub(crate) fn add(&mut self, key: &str, value: &str) -> Result<(), Refused> {
        let key = mail::fold(key);
        let (text, hasher) = (&mut self.text, &self.hasher);
        let hash = hasher.hash_one(&*key);
        if self.entries.find(hash, |entry| entry.key(text) == key).is_some() {
            return Err(Refused::Twice);
        }
        let too_large = |_| Refused::TooLarge;
        let entry = Entry {
            at: u32::try_from(text.len()).map_err(too_large)?,
            key_bytes: u16::try_from(key.len()).map_err(too_large)?,
            value_bytes: u32::try_from(value.len()).map_err(too_large)?,
        };
        text.push_str(&key);
        text.push_str(value);
        self.entries.insert_unique(hash, entry, |entry| hasher.hash_one(entry.key(text)));
        Ok(())
    }

    /// Returns the table. No key can be added after that.
    pub(crate) fn finish(mut self) -> TextTable {
        let (text, hasher) = (self.text.into_boxed_str(), self.hasher);
        self.entries.shrink_to_fit(|entry| hasher.hash_one(entry.key(&text)));
        TextTable { entries: self.entries, text, hasher }
    }
}

/// One entry of a file, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextEntry<'f> {
    /// Not folded.
    pub key: Box<str>,
    /// May be empty.
    pub value: Box<str>,
    file: &'f str,
    key_offset: usize,
    value_offset: usize,
}

impl TextEntry<'_> {
    /// Returns the place of the key, without words.
    pub fn key_place(&self) -> FileFault {
        FileFault::at(self.file, self.key_offset, String::new(), String::new())
    }

    /// Returns the place of the value, or of the key if there is no value, without words.
    pub fn place(&self) -> FileFault {
        FileFault::at(self.file, self.value_offset, String::new(), String::new())
    }
}

impl TextTable {
    /// Reads the names of accounts in passwd(5); the value of each is its home folder.
    ///
    /// # Errors
    /// The first fault with its place: a line with another number of fields than seven.
    pub fn parse_accounts(text: &str) -> Result<Self, FileFault> {
        let mut builder = TextBuilder::default();
        for (number, line) in (1..).zip(text.lines()) {
            // `+` and `-` were for NIS.
            if line.trim().is_empty() || line.starts_with(['#', '+', '-']) {
                continue;
            }
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, _, _, _, home, _] = fields[..] else {
                let what = format!("{} fields, and not seven as in passwd(5)", fields.len());
                return Err(FileFault {
                    line: number,
                    column: 1,
                    what,
                    help: "name a file such as /etc/passwd".into(),
                });
            };
            // Of two accounts with one name, the first is the one that everybody sees.
            if builder.add(name, home) == Err(Refused::TooLarge) {
                let what = "a name that is too long".to_owned();
                return Err(FileFault { line: number, column: 1, what, help: "shorten it".into() });
            }
        }
        Ok(builder.finish())
    }

    /// Reads lines `key value`; the value may be empty.
    ///
    /// # Errors
    /// The first fault with its place: a line without a key, or a key that is there twice.
    pub fn parse(file: &str) -> Result<Self, FileFault> {
        let mut table = TextBuilder::default();
        for line in logical_lines(file) {
            let (key, value, _) = key_and_value(&line.text);
            let fault = |what: &str, help: &str| FileFault::at(file, line.offset(0), what, help);
            if key.is_empty() {
                return Err(fault(
                    "a line that begins with a blank, and none before it",
                    "begin the line with its key",
                ));
            }
            table.add(key, value).map_err(|refused| match refused {
                Refused::Twice => fault("this key is there already", "keep one of the two lines"),
                Refused::TooLarge => fault("the key is too long", "write at most 65,535 octets"),
            })?;
        }
        Ok(table.finish())
    }

    /// Returns the entries of a file of this form, in its order.
    pub fn entries(file: &str) -> impl Iterator<Item = TextEntry<'_>> {
        logical_lines(file).map(move |line| {
            let (key, value, at) = key_and_value(&line.text);
            let at = if value.is_empty() { 0 } else { at };
            let (key_offset, value_offset) = (line.offset(0), line.offset(at));
            TextEntry { key: key.into(), value: value.into(), file, key_offset, value_offset }
        })
    }

    /// The value of a key, in upper or lower case.
    pub fn get(&self, key: &str) -> Option<&str> {
        let key = mail::fold(key);
        let hash = self.hasher.hash_one(&*key);
        let entry = self.entries.find(hash, |entry| entry.key(&self.text) == key)?;
        Some(entry.value(&self.text))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the table has no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Memory of the table in octets.
    pub fn memory_bytes(&self) -> usize {
        self.text.len() + self.entries.allocation_size() + size_of::<Self>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{collections::BTreeMap, fmt::Write as _};

    #[test]
    fn accounts_are_the_first_fields_of_passwd() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\n# x\njoe:x:1000:1000:Joe,,,:/home/joe:/bin/sh\njoe:x:1:1::/:\n+::::::\n\n";
        let table = TextTable::parse_accounts(passwd).unwrap();
        assert_eq!((table.len(), table.get("joe"), table.get("Root")), (2, Some("/home/joe"), Some("/root")));
        assert_eq!((table.get("+"), table.get("")), (None, None));
        let fault = TextTable::parse_accounts("root:x:0:0:root:/root:/bin/bash\njoe\n").unwrap_err();
        assert_eq!((fault.line, fault.column), (2, 1));
    }

    #[test]
    fn a_key_is_found_in_any_case_and_nothing_else_is() {
        let table =
            TextTable::parse("# x\nJoe@B.test  jane@b.test,\n  ann@b.test\nempty\nJÜRGEN x\n\"a b\"@c y\n")
                .unwrap();
        assert_eq!(table.get("joe@b.TEST"), Some("jane@b.test,  ann@b.test"));
        assert_eq!((table.get("empty"), table.get("jürgen")), (Some(""), Some("x")));
        assert_eq!((table.get("\"a b\"@c"), table.get("joe"), table.get("")), (Some("y"), None, None));
        assert_eq!(table.len(), 4);
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused_with_its_place() {
        let fault = TextTable::parse("a 1\nb 2\n# x\nA 3\n").unwrap_err();
        assert_eq!((fault.line, fault.column), (4, 1));
        let fault = TextTable::parse("  a 1\n").unwrap_err();
        assert_eq!((fault.line, fault.column), (1, 1));
    }

    #[test]
    fn a_hundred_thousand_keys_take_at_most_120_octets_each() {
        let mut file = String::new();
        for n in 0..100_000 {
            let _ = writeln!(file, "user{n:08}@example.test joe.user{n:08}@hosts.example.test");
        }
        let table = TextTable::parse(&file).unwrap();
        assert_eq!(table.len(), 100_000);
        let each = table.memory_bytes() / table.len();
        assert!(each <= 120, "{each}");
        assert_eq!(table.get("user00099999@example.test"), Some("joe.user00099999@hosts.example.test"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_found(pairs in proptest::collection::btree_map("[a-z0-9@.]{1,12}", "[a-z@. ]{0,12}", 0..50)) {
            let pairs: BTreeMap<String, String> = pairs;
            let file: String = pairs.iter().map(|(key, value)| format!("{key} {value}\n")).collect();
            let table = TextTable::parse(&file).unwrap();
            prop_assert_eq!(table.len(), pairs.len());
            for (key, value) in &pairs {
                prop_assert_eq!(table.get(key), Some(value.trim()));
            }
        }
    }
}
