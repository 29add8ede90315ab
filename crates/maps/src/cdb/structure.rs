//! Compares the tables of a file with its records, before the first look-up.

use super::{Cdb, PAIR_BYTES, Read, TABLES, damaged, hash, numbers};
use std::io;

/// Octets that are read at once.
const BLOCK_BYTES: usize = 64 << 10;
/// Longest key. A damaged file could claim any length.
const KEY_MAX: u32 = 1 << 20;

/// The number of entries, and a sum over them that does not depend on their order.
#[derive(Default, PartialEq, Eq)]
struct Sum {
    count: u64,
    mixed: u64,
}

impl Sum {
    fn add(&mut self, hash: u32, position: u32) {
        self.count += 1;
        // The finisher of splitmix64: pairs that differ in few bits give unrelated numbers.
        let mut x = u64::from(hash) << 32 | u64::from(position);
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.mixed = self.mixed.wrapping_add(x ^ x >> 31);
    }
}

impl Cdb {
    /// Reads the whole file once.
    pub(super) fn check_structure(&self) -> io::Result<()> {
        let end = self.version.size_bytes.min(u32::MAX.into());
        let is_inside = |(at, places): &(u32, u32)| {
            *at >= TABLES * PAIR_BYTES && u64::from(*at) + u64::from(*places) * u64::from(PAIR_BYTES) <= end
        };
        let used = || self.heads.iter().filter(|(_, places)| *places > 0);
        if !used().all(is_inside) {
            return Err(damaged("a table lies behind its end"));
        }
        let Some(records_end) = used().map(|(at, _)| *at).min() else {
            let is_whole = self.version.size_bytes == u64::from(TABLES * PAIR_BYTES);
            return if is_whole { Ok(()) } else { Err(damaged("it has records and no tables")) };
        };
        let mut from_tables = Sum::default();
        for (number, head) in (0..TABLES).zip(&self.heads) {
            self.check_table(number, *head, records_end, &mut from_tables)?;
        }
        if self.records(records_end)? != from_tables {
            return Err(damaged("its tables do not fit its records"));
        }
        Ok(())
    }

    /// Adds the entries of one table. Each must be found from its first place on, without an empty one between.
    fn check_table(
        &self,
        number: u32,
        (begin, places): (u32, u32),
        records_end: u32,
        sum: &mut Sum,
    ) -> io::Result<()> {
        if places == 0 {
            return Ok(());
        }
        let mut table = vec![0; places as usize * PAIR_BYTES as usize];
        self.read_at(&mut table, begin.into(), Read::Waiting)?;
        let entry = |place: u32| numbers(&table[place as usize * PAIR_BYTES as usize..]);
        let Some(empty) = (0..places).find(|place| entry(*place).1 == 0) else {
            return Err(damaged("a table has no empty place"));
        };
        let mut run = 0;
        let mut is_used = false;
        for place in (empty..places).chain(0..empty) {
            let (hash, position) = entry(place);
            if position == 0 {
                run = 0;
                continue;
            }
            let from_first = (place + places - hash / TABLES % places) % places;
            let is_record = position >= TABLES * PAIR_BYTES
                && u64::from(position) + u64::from(PAIR_BYTES) <= u64::from(records_end);
            if hash % TABLES != number || from_first > run || !is_record {
                return Err(damaged("a place of a table is wrong"));
            }
            run += 1;
            is_used = true;
            if !self.is_removed(hash, position)? {
                sum.add(hash, position);
            }
        }
        if is_used { Ok(()) } else { Err(damaged("a table is empty")) }
    }

    /// Returns whether the record has an empty key: tinycdb writes one over a record that was replaced, without a place
    /// in a table, and nothing is looked up by it.
    fn is_removed(&self, found: u32, position: u32) -> io::Result<bool> {
        Ok(found == hash("") && self.read_pair(position, Read::Waiting)?.0 == 0)
    }

    /// Adds the records that have a key, from the first one to the end.
    fn records(&self, end: u32) -> io::Result<Sum> {
        let cut_off = || damaged("a record is cut off");
        let mut sum = Sum::default();
        let mut block = Block { cdb: self, bytes: Vec::new(), begin: 0, end };
        let mut at = TABLES * PAIR_BYTES;
        while at < end {
            let (key_length, value_length) = numbers(block.front(at, PAIR_BYTES)?);
            if key_length > KEY_MAX {
                return Err(damaged("a key is longer than 1 MiB"));
            }
            let before_value = PAIR_BYTES + key_length;
            if key_length > 0 {
                sum.add(hash(&block.front(at, before_value)?[PAIR_BYTES as usize..]), at);
            }
            let next = before_value.checked_add(value_length).and_then(|length| at.checked_add(length));
            at = next.filter(|next| *next <= end).ok_or_else(cut_off)?;
        }
        Ok(sum)
    }
}

/// A part of the records.
struct Block<'a> {
    cdb: &'a Cdb,
    bytes: Vec<u8>,
    begin: u32,
    end: u32,
}

impl Block<'_> {
    /// Returns the first octets of the record at `at`.
    fn front(&mut self, at: u32, wanted: u32) -> io::Result<&[u8]> {
        if at.checked_add(wanted).is_none_or(|record_end| record_end > self.end) {
            return Err(damaged("a record is cut off"));
        }
        if self.bytes.len() < (at - self.begin) as usize + wanted as usize {
            let length = BLOCK_BYTES.max(wanted as usize).min((self.end - at) as usize);
            self.bytes.resize(length, 0);
            self.begin = at;
            self.cdb.read_at(&mut self.bytes, at.into(), Read::Waiting)?;
        }
        Ok(&self.bytes[(at - self.begin) as usize..][..wanted as usize])
    }
}
