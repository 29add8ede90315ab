//! Look-ups in the history.

use crate::{
    Folder, Key, Problem,
    block::Content,
    frame::Frame,
    key, plain,
    segment::{Name, PartNumber, SEGMENT_HEAD_BYTES, Segment},
};
use mail::QueueId;
use report::{Event, UnixMicros, event};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    rc::Rc,
};

/// Parts that are kept in memory after they were read.
const CACHED_PARTS: usize = 6;

/// A search: messages and other events with all these keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The keys; each of them is a key of some event of a message. Without keys everything is found.
    pub keys: Vec<Key>,
    /// Earliest time of events that are found, inclusive.
    pub from: UnixMicros,
    /// Latest time of events that are found, inclusive.
    pub to: UnixMicros,
    /// Entries on a page.
    pub limit: usize,
    /// The place to go on from: that of another page.
    pub cursor: Option<Cursor>,
}

impl Query {
    /// Returns a search of all times for the newest entries.
    pub fn new(keys: Vec<Key>, limit: usize) -> Self {
        Self { keys, from: UnixMicros(0), to: UnixMicros(u64::MAX), limit, cursor: None }
    }
}

/// A place in the history. The order of places is nearly that of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    segment: u64,
    part: PartNumber,
    frame: u32,
}

/// An event as the history has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// In microseconds since 1970.
    pub at: UnixMicros,
    bytes: Vec<u8>,
    place: Cursor,
}

impl StoredEvent {
    /// Returns the event; `None` if it is one of a later version.
    pub fn event(&self) -> Option<Event<'_>> {
        event::decode(&self.bytes)
    }
}

/// Something that a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A message, with all its events in the order of their times.
    Message(QueueId, Vec<StoredEvent>),
    /// An event that belongs to no message, such as a refused client.
    Event(StoredEvent),
}

/// The newest entries of a search, the newest first.
#[derive(Debug, Default)]
pub struct Page {
    /// Newest first; as many as the query permits.
    pub entries: Vec<Entry>,
    /// Where the next page begins; `None` on the last.
    pub next: Option<Cursor>,
    /// True if a part of the history has only the domains of addresses, and could not be searched for an address.
    pub has_domains_only: bool,
    /// Parts that could not be read.
    pub problems: BTreeSet<Problem>,
}

/// Reads the history. It sees what had been written when it was opened.
pub struct Reader {
    segments: Vec<Segment>,
    problems: BTreeSet<Problem>,
    cache: RefCell<Cache>,
}

/// Parts that were read last, the newest first.
type Cache = VecDeque<((usize, PartNumber), Rc<Content>)>;

impl Reader {
    /// Opens all segments of a folder.
    ///
    /// # Errors
    /// A folder that cannot be listed. A segment that cannot be opened is a problem of each page.
    pub fn open(folder: &dyn Folder) -> io::Result<Self> {
        let mut numbers: BTreeMap<u64, (u64, Vec<plain::Place>)> = BTreeMap::new();
        for (name, bytes) in folder.list()? {
            match Name::parse(&name) {
                Some(Name::Segment(number)) => numbers.entry(number).or_default().0 += bytes,
                Some(Name::Plain(number, place)) => {
                    let (sum, places) = numbers.entry(number).or_default();
                    *sum += bytes;
                    places.push(place);
                }
                Some(Name::Filters(_) | Name::Keys(_)) | None => {}
            }
        }
        // A segment that has no events yet.
        numbers.retain(|_, (bytes, _)| *bytes >= SEGMENT_HEAD_BYTES);
        let (mut segments, mut problems) = (Vec::new(), BTreeSet::new());
        for (number, (_, mut places)) in numbers {
            places.sort_unstable();
            match Segment::open(folder, number, &places) {
                Ok(segment) => {
                    problems.extend(segment.problem.clone());
                    segments.push(segment);
                }
                Err(problem) => drop(problems.insert(problem)),
            }
        }
        Ok(Self { segments, problems, cache: RefCell::default() })
    }

    /// Returns whether there is no event at all.
    pub fn is_empty(&self) -> bool {
        self.segments.iter().all(|segment| segment.part_count() == 0)
    }

    /// Returns the time of the oldest event.
    pub fn first(&self) -> Option<UnixMicros> {
        self.segments.iter().find_map(Segment::first)
    }

    /// Returns the events of a message in the order in which they were written; none of a message that the history does not
    /// know. Problems are added to those given.
    pub fn timeline(&self, id: QueueId, problems: &mut BTreeSet<Problem>) -> Vec<StoredEvent> {
        problems.extend(self.problems.iter().cloned());
        let mut found = Vec::new();
        let (made, wanted) = (UnixMicros(id.made_at().0 * 1000), Key::Id(id));
        // The id has the time to the millisecond.
        let until = UnixMicros(made.0 + 999);
        for (number, segment) in self.segments.iter().enumerate() {
            // A block whose times contain that of the id has no key for it.
            let mut parts: BTreeSet<PartNumber> = segment.parts_between(made, until).into_iter().collect();
            let is_older = segment.last().is_some_and(|last| last < made);
            if !is_older {
                match segment.parts_with(wanted.hash()) {
                    Ok(more) => parts.extend(more),
                    Err(problem) => drop(problems.insert(problem)),
                }
            }
            for part in parts {
                let Some(content) = self.part(number, part, problems) else { continue };
                for (frame_number, frame) in content.frames().enumerate() {
                    let is_meant = key::peek_id(frame.event) == Some(id)
                        || (frame.event.first() == Some(&NOTIFIED)
                            && event::decode(frame.event).is_some_and(|event| wanted.matches(&event)));
                    if is_meant {
                        found.push(self.stored(number, part, frame_number, frame));
                    }
                }
            }
        }
        found
    }

    /// Returns the newest entries of a search.
    pub fn query(&self, query: &Query) -> Page {
        let mut page = Page { problems: self.problems.clone(), ..Page::default() };
        let mut keys = query.keys.clone();
        keys.sort_by_key(|key| (!key.is_indexed(), key.rank()));
        for number in (0..self.segments.len()).rev() {
            let segment = &self.segments[number];
            if query.cursor.is_some_and(|cursor| segment.number > cursor.segment) {
                continue;
            }
            let known: Option<Vec<Key>> = keys.iter().map(|key| segment.concealer.key_of(key)).collect();
            let Some(known) = known else {
                page.has_domains_only = true;
                continue;
            };
            for part in self.candidates(segment, &known, query, &mut page).into_iter().rev() {
                self.search_part(number, part, &known, query, &mut page);
                if page.next.is_some() {
                    return page;
                }
            }
        }
        page
    }

    /// Returns the parts of a segment that may have the first key, and are within the times.
    fn candidates(&self, segment: &Segment, keys: &[Key], query: &Query, page: &mut Page) -> Vec<PartNumber> {
        let mut parts = segment.parts_between(query.from, query.to);
        let with_key: Option<BTreeSet<PartNumber>> = match keys.first().filter(|key| key.is_indexed()) {
            None => None,
            Some(key) => match segment.parts_with(key.hash()) {
                Ok(parts) => Some(match key {
                    // Blocks whose times contain that of the id have no key for it.
                    Key::Id(id) => {
                        let made = id.made_at().0 * 1000;
                        let own = segment.parts_between(UnixMicros(made), UnixMicros(made + 999));
                        parts.into_iter().chain(own).collect()
                    }
                    _ => parts.into_iter().collect(),
                }),
                Err(problem) => {
                    page.problems.insert(problem);
                    None
                }
            },
        };
        parts.retain(|part| with_key.as_ref().is_none_or(|with_key| with_key.contains(part)));
        if let Some(cursor) = query.cursor.filter(|cursor| cursor.segment == segment.number) {
            parts.retain(|part| *part <= cursor.part);
        }
        parts
    }

    /// Adds the entries of a part, the newest first.
    fn search_part(&self, number: usize, part: PartNumber, keys: &[Key], query: &Query, page: &mut Page) {
        let Some(content) = self.part(number, part, &mut page.problems) else { return };
        let frames: Vec<Frame<'_>> = content.frames().collect();
        // Most events have other keys: they are not decoded.
        let needle = keys.first().and_then(Key::needle);
        let needle = needle.as_ref().map(memchr::memmem::Finder::new);
        let mut lower = Vec::new();
        for (frame_number, frame) in frames.iter().enumerate().rev() {
            let place = self.place(number, part, frame_number);
            let is_meant = (query.from..=query.to).contains(&frame.at)
                && query.cursor.is_none_or(|cursor| place < cursor);
            if !is_meant {
                continue;
            }
            if let Some(needle) = &needle {
                lower.clear();
                lower.extend_from_slice(frame.event);
                lower.make_ascii_lowercase();
                if needle.find(&lower).is_none() {
                    continue;
                }
            }
            let Some(event) = event::decode(frame.event) else { continue };
            if !keys.first().is_none_or(|key| key.matches(&event)) {
                continue;
            }
            let entry = match key::id_of(&event) {
                Some(id) => self.message(id, place, keys, query, page),
                None if keys.iter().all(|key| key.matches(&event)) => {
                    Some(Entry::Event(self.stored(number, part, frame_number, *frame)))
                }
                None => None,
            };
            let Some(entry) = entry else { continue };
            if page.entries.len() == query.limit {
                // The place before which the next page begins: behind this entry.
                page.next = Some(Cursor { frame: place.frame + 1, ..place });
                return;
            }
            page.entries.push(entry);
        }
    }

    /// Returns a message, if `place` is that of its newest event that has the first key, and its events have all keys.
    fn message(
        &self,
        id: QueueId,
        place: Cursor,
        keys: &[Key],
        query: &Query,
        page: &mut Page,
    ) -> Option<Entry> {
        let events = self.timeline(id, &mut page.problems);
        let is_in_time = |stored: &&StoredEvent| (query.from..=query.to).contains(&stored.at);
        let has = |stored: &StoredEvent, key: &Key| stored.event().is_some_and(|event| key.matches(&event));
        let newest = events
            .iter()
            .filter(is_in_time)
            .filter(|stored| keys.first().is_none_or(|key| has(stored, key)))
            .map(|stored| stored.place)
            .max();
        let has_all = keys.iter().all(|key| events.iter().any(|stored| has(stored, key)));
        (newest == Some(place) && has_all).then_some(Entry::Message(id, events))
    }

    fn place(&self, number: usize, part: PartNumber, frame: usize) -> Cursor {
        Cursor { segment: self.segments[number].number, part, frame: frame as u32 }
    }

    fn stored(&self, number: usize, part: PartNumber, frame_number: usize, frame: Frame<'_>) -> StoredEvent {
        let place = self.place(number, part, frame_number);
        StoredEvent { at: frame.at, bytes: frame.event.to_vec(), place }
    }

    /// Returns a part, from memory if it was read lately.
    fn part(&self, number: usize, part: PartNumber, problems: &mut BTreeSet<Problem>) -> Option<Rc<Content>> {
        let mut cache = self.cache.borrow_mut();
        let name = (number, part);
        if let Some(at) = cache.iter().position(|(cached, _)| *cached == name) {
            let known = cache.remove(at)?;
            let content = known.1.clone();
            cache.push_front(known);
            return Some(content);
        }
        match self.segments[number].part(part) {
            Ok(content) => {
                let content = Rc::new(content);
                cache.push_front((name, content.clone()));
                cache.truncate(CACHED_PARTS);
                Some(content)
            }
            Err(problem) => {
                problems.insert(problem);
                None
            }
        }
    }
}

/// The number of [`Event::Notified`] in the binary form. It has two ids.
const NOTIFIED: u8 = 7;
