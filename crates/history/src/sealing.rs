//! Sealing: an index is written at the end of a segment that is complete, in steps of a few milliseconds. Between the steps
//! the writer goes on with the next segment, and readers use the filters. The trailer is written when everything before it
//! is durable. After a kill, sealing begins anew.

use crate::{
    Folder, ReadAt,
    block::{Content, HEAD_BYTES, Head},
    index, key,
    keys::{self, Run, RunReader},
    plain,
    segment::{self, INDEX_MARK_BYTES, Row},
    sort,
};
use report::event;
use std::{collections::HashMap, io};

/// The most entries of the index that are in memory, and are written in a step: a quarter of a megabyte.
pub(crate) const PART_ENTRIES: usize = 1 << 15;
/// Records of keys that are checked in a step: each takes about 10 µs.
const RECORDS_PER_STEP: usize = 128;
/// The bytes of a file that are removed in a step: the system frees the memory of its pages.
const REMOVED_BYTES: u64 = 8 * 1024 * 1024;
/// The bytes of an index after which it is synced.
const SYNCED_BYTES: u64 = 512 * 1024;
/// Blocks whose keys are made anew in a step: each takes about 2 ms.
const BLOCKS_PER_STEP: usize = 2;

/// What a step has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// There are more steps.
    More,
    /// The segment is sealed, and has so many bytes.
    Sealed(u64),
    /// A block is damaged, so that its keys are not known: the segment stays without an index.
    Damaged,
}

/// The sealing of a segment. It has no open files, so that it can wait as long as needed.
#[derive(Debug)]
pub(crate) struct Sealing {
    pub(crate) number: u64,
    rows: Vec<Row>,
    /// Offset behind the last block, where the index begins.
    end: u64,
    part_entries: usize,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Makes the blocks durable, and removes the files of their plain frames.
    Blocks,
    /// Finds the hashes of each block in the file of keys, up to this place.
    Records { place: u64, runs: Vec<Option<Run>> },
    /// Makes the hashes of blocks that have none.
    Missing { place: u64, runs: Vec<Option<Run>> },
    /// Writes the index, from this offset on.
    Index { place: u64, runs: Vec<RunReader>, index: index::Builder },
    /// Writes the trailer behind the table of blocks.
    Trailer { place: u64, index: index::Place, table: Vec<u8> },
    /// Removes the files that the index replaces. The segment has so many bytes.
    Files(u64),
}

impl Sealing {
    /// Begins with a segment whose blocks are written up to `end`.
    pub(crate) fn new(number: u64, rows: Vec<Row>, end: u64, part_entries: usize) -> Self {
        Self { number, rows, end, part_entries, phase: Phase::Blocks }
    }

    /// Does a part of the work. After an error, the next step begins anew.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn step(&mut self, folder: &mut dyn Folder) -> io::Result<Step> {
        let next = match std::mem::replace(&mut self.phase, Phase::Blocks) {
            Phase::Blocks => self.finish_blocks(folder)?,
            Phase::Records { place, runs } => self.find_records(folder, place, runs)?,
            Phase::Missing { place, runs } => match self.make_missing(folder, place, runs)? {
                Some(next) => next,
                None => return Ok(Step::Damaged),
            },
            Phase::Index { place, runs, index } => self.write_index(folder, place, runs, index)?,
            Phase::Trailer { place, index, table } => self.write_trailer(folder, place, index, &table)?,
            Phase::Files(bytes) => {
                if self.remove_files(folder)? {
                    return Ok(Step::Sealed(bytes));
                }
                Phase::Files(bytes)
            }
        };
        self.phase = next;
        Ok(Step::More)
    }

    fn finish_blocks(&self, folder: &mut dyn Folder) -> io::Result<Phase> {
        let name = segment::segment_name(self.number);
        // A block that was not written as a whole, or the index of an earlier start. The trailer is at the end of the file.
        if folder.open(&name)?.length()? > self.end {
            folder.truncate(&name, self.end)?;
        }
        folder.sync(&name)?;
        for (name, _) in folder.list()? {
            if let Some(segment::Name::Plain(number, place)) = segment::Name::parse(&name)
                && number == self.number
            {
                let bytes = plain::read_all(&*folder.open(&name)?, u64::MAX);
                // A block that could not be written is only there.
                let newest = place.pieces(&bytes).last().map(|piece| piece.block);
                if newest.is_none_or(|newest| (newest as usize) < self.rows.len()) {
                    remove(folder, &name)?;
                }
            }
        }
        Ok(Phase::Records { place: 0, runs: vec![None; self.rows.len()] })
    }

    fn find_records(
        &self,
        folder: &dyn Folder,
        mut place: u64,
        mut runs: Vec<Option<Run>>,
    ) -> io::Result<Phase> {
        let file = match folder.open(&segment::keys_name(self.number)) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Phase::Missing { place, runs }),
            Err(e) => return Err(e),
        };
        let numbers: HashMap<u64, usize> =
            self.rows.iter().enumerate().map(|(number, row)| (row.name(), number)).collect();
        for _ in 0..RECORDS_PER_STEP {
            let Some(record) = keys::read(&*file, place)? else { return Ok(Phase::Missing { place, runs }) };
            if let Some(number) = numbers.get(&record.name)
                && let Some(run) = record.run
            {
                runs[*number] = Some(run);
            }
            place = record.end;
        }
        Ok(Phase::Records { place, runs })
    }

    /// Appends records for blocks that have none; `None` if a block cannot be read.
    fn make_missing(
        &self,
        folder: &mut dyn Folder,
        mut place: u64,
        mut runs: Vec<Option<Run>>,
    ) -> io::Result<Option<Phase>> {
        let missing = runs.iter_mut().enumerate().filter(|(_, run)| run.is_none()).take(BLOCKS_PER_STEP);
        let mut is_complete = true;
        for (number, run) in missing {
            is_complete = false;
            let row = &self.rows[number];
            let file = folder.open(&segment::segment_name(self.number))?;
            let Some(hashes) = hashes_of_block(&*file, row)? else {
                // The file is of no use without this block.
                remove(folder, &segment::keys_name(self.number))?;
                return Ok(None);
            };
            let mut record = Vec::new();
            keys::write(row, &hashes, &mut record);
            folder.write_at(&segment::keys_name(self.number), place, &record)?;
            *run = Some(Run::of_record(place, hashes.len()));
            place += record.len() as u64;
        }
        if !is_complete {
            return Ok(Some(Phase::Missing { place, runs }));
        }
        let index = index::Builder::new(runs.iter().flatten().map(|run| run.count()).sum());
        let runs = runs.into_iter().flatten().map(RunReader::new).collect();
        let mut mark = Vec::new();
        segment::write_index_mark(self.end, &mut mark);
        folder.write_at(&segment::segment_name(self.number), self.end, &mark)?;
        Ok(Some(Phase::Index { place: self.end + INDEX_MARK_BYTES, runs, index }))
    }

    /// Writes some buckets; behind the last one the directory and the table of blocks.
    fn write_index(
        &self,
        folder: &mut dyn Folder,
        place: u64,
        mut runs: Vec<RunReader>,
        mut index: index::Builder,
    ) -> io::Result<Phase> {
        let name = segment::segment_name(self.number);
        let mut out = Vec::new();
        if !index.is_complete() {
            let file = folder.open(&segment::keys_name(self.number))?;
            let (end, mut entries) = (index.end_of_part(self.part_entries), Vec::new());
            for (block, run) in runs.iter_mut().enumerate() {
                run.take(&*file, (end, index.bucket_count()), block as u16, &mut entries)?;
            }
            index.push_buckets(end, &mut entries, &mut out);
            folder.write_at(&name, place, &out)?;
            let next = place + out.len() as u64;
            // In parts, so that no sync takes long.
            if place / SYNCED_BYTES < next / SYNCED_BYTES {
                folder.sync(&name)?;
            }
            return Ok(Phase::Index { place: next, runs, index });
        }
        let (entry_count, bucket_count) = index.finish(&mut out);
        let index = index::Place { offset: self.end + INDEX_MARK_BYTES, entry_count, bucket_count };
        let mut table = Vec::new();
        segment::write_table(&self.rows, &mut table);
        out.extend_from_slice(&table);
        folder.write_at(&name, place, &out)?;
        folder.sync(&name)?;
        Ok(Phase::Trailer { place: place + out.len() as u64, index, table })
    }

    fn write_trailer(
        &self,
        folder: &mut dyn Folder,
        place: u64,
        index: index::Place,
        table: &[u8],
    ) -> io::Result<Phase> {
        let name = segment::segment_name(self.number);
        let mut out = Vec::new();
        segment::write_trailer(index, table, &mut out);
        folder.write_at(&name, place, &out)?;
        folder.sync(&name)?;
        Ok(Phase::Files(place + out.len() as u64))
    }

    /// Removes a part of the files that the index replaces; true if they are gone.
    fn remove_files(&self, folder: &mut dyn Folder) -> io::Result<bool> {
        for name in [segment::filters_name(self.number), segment::keys_name(self.number)] {
            let length = match folder.open(&name) {
                Ok(file) => file.length()?,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(e),
            };
            match length.checked_sub(REMOVED_BYTES) {
                Some(rest) => folder.truncate(&name, rest)?,
                None => remove(folder, &name)?,
            }
            return Ok(false);
        }
        Ok(true)
    }
}

/// Returns the hashes of the keys of a block, each once, in ascending order; `None` if the block is damaged.
fn hashes_of_block(file: &dyn ReadAt, row: &Row) -> io::Result<Option<Vec<u64>>> {
    let mut head = [0; HEAD_BYTES];
    file.read_at(row.offset, &mut head)?;
    let Some(head) = Head::read(&head) else { return Ok(None) };
    let mut body = vec![0; head.body_bytes];
    file.read_at(row.offset + HEAD_BYTES as u64, &mut body)?;
    let Some(content) = Content::read(&head, &body) else { return Ok(None) };
    let mut hashes = Vec::new();
    for frame in content.frames() {
        // An event of a later version has no keys.
        let Some(event) = event::decode(frame.event) else { continue };
        key::hashes_within(&event, (row.first, row.last), &mut |hash| hashes.push(hash));
    }
    sort::sort_hashes(&mut hashes);
    hashes.dedup();
    Ok(Some(hashes))
}

/// Removes a file that may be gone already.
fn remove(folder: &mut dyn Folder, name: &str) -> io::Result<()> {
    match folder.remove(name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
