//! Reads every live message, in the order in which the messages lie on the disk.

use super::{
    Folded, Shared,
    index::MessageEntry,
    read_ahead::ReadAhead,
    recover::Found,
    scan_range::{self, ReadContext},
    segment_index::EnvelopeTable,
};
use crate::{
    Recovered, SpoolFailure, Totals,
    format::{
        message::{read_abridged, read_message, read_totals},
        record::{self, Kind},
        wire::Malformed,
    },
    parallel::in_order,
    totals::open_recipients,
};
use mail::{QueueId, SharedMessage};
use std::convert::Infallible;

/// Records that are closer together than this are read at once, what lies between them too.
const GAP_BYTES: u64 = 32 * 1024;
/// At most so much at once.
const READ_BYTES: u64 = 512 * 1024;
/// The number of messages that a thread decodes before it asks for more.
const PIECE: usize = 512;

/// A queue id with its entry in the index.
type Live = (u64, MessageEntry);
/// Envelopes of a segment that need not be read from it.
#[derive(Clone, Copy)]
struct SegmentEnvelopes<'a> {
    memory: &'a [scan_range::CachedEnvelopes],
    index_file: Option<&'a EnvelopeTable>,
}
/// A message that was read, with the failure to read its notes, if there was one; or why it could not be read.
type Replayed = Result<(Recovered, Option<SpoolFailure>), SpoolFailure>;

impl Shared {
    /// Passes each live message to `visit`, and compares the stored totals with the recipients that are left.
    pub(super) fn replay_with_totals(&self, found: &mut Found, visit: &mut dyn FnMut(Recovered)) {
        let stored = self.stored_totals().unwrap_or_else(|failure| {
            found.report.note(&failure);
            None
        });
        let mut left = 0;
        self.replay_live(found, &mut |recovered| {
            left += open_recipients(&recovered.recipients);
            visit(recovered);
        });
        found.report.note_totals(stored, left);
        *self.totals() = found.report.totals;
    }

    /// Reads the newest totals; `None` if only versions without totals wrote to the log.
    fn stored_totals(&self) -> Result<Option<Totals>, SpoolFailure> {
        let Some((batch, at)) = self.index().totals else { return Ok(None) };
        let body = self.record(at, Kind::Totals, batch)?;
        let bad = |m: Malformed| SpoolFailure::Corrupt(format!("the totals of batch {batch}: {}", m.0));
        read_totals(&body).map(Some).map_err(bad)
    }

    /// Passes each live message to `visit`. Messages that cannot be read are reported.
    fn replay_live(&self, found: &mut Found, visit: &mut dyn FnMut(Recovered)) {
        let mut live: Vec<Live> =
            self.index().messages.iter().map(|(id, entry)| (*id, entry.clone())).collect();
        live.sort_unstable_by_key(|(_, entry)| {
            u64::from(entry.at.segment) << 32 | u64::from(entry.at.offset)
        });
        let (context, report) = (ReadContext::default(), &mut found.report);
        let mut take = |replayed: Replayed| match replayed {
            Ok((recovered, lost)) => {
                lost.iter().for_each(|failure| report.note(failure));
                report.message_count += 1;
                visit(recovered);
            }
            Err(failure) => report.note(&failure),
        };
        let segments = live.chunk_by(|a, b| a.1.at.segment == b.1.at.segment);
        let kept = |segment: &[Live]| SegmentEnvelopes {
            memory: found.kept.get(&segment[0].1.at.segment).map_or(&[], Vec::as_slice),
            index_file: found.envelopes.get(&segment[0].1.at.segment),
        };
        let threads = self.read_threads();
        if threads <= 1 {
            return segments.for_each(|all| self.replay_segment(all, kept(all), &context, &mut take));
        }
        let pieces: Vec<&[Live]> = segments.flat_map(|segment| segment.chunks(PIECE)).collect();
        let read = |piece: &&[Live]| {
            let mut all = Vec::with_capacity(piece.len());
            self.replay_segment(piece, kept(piece), &context, &mut |replayed| all.push(replayed));
            all
        };
        let taken = in_order(threads, &pieces, read, |all: Vec<Replayed>| {
            all.into_iter().for_each(&mut take);
            Ok::<(), Infallible>(())
        });
        let Ok(()) = taken;
    }

    /// Reads live messages that lie in one segment.
    fn replay_segment(
        &self,
        live: &[Live],
        kept: SegmentEnvelopes<'_>,
        context: &ReadContext,
        take: &mut dyn FnMut(Replayed),
    ) {
        let place = self.index().segment(live[0].1.at.segment).map(|s| (s.file.clone(), s.header));
        let Some((file, header)) = place else {
            let gone =
                |id: &u64| Err(SpoolFailure::Corrupt(format!("{}: its segment is gone", QueueId(*id))));
            return live.iter().for_each(|(id, _)| take(gone(id)));
        };
        let mut window = ReadAhead::new(file, header.size_bytes, context.buffer());
        let mut index_file = kept.index_file.map(|index_file| index_file.open(context.buffer()));
        let last = live.last().map_or(0, |(_, entry)| entry.at.offset);
        for (number, (id, entry)) in live.iter().enumerate() {
            let (id, at) = (QueueId(*id), entry.at);
            let bad = |m: Malformed| SpoolFailure::Corrupt(format!("{id}: {}", m.0));
            let stored = self.has_chunks(id, entry).and_then(|()| {
                let in_memory = kept.memory.iter().find_map(|kept| kept.get(at.offset));
                let abridged = in_memory.or_else(|| index_file.as_mut()?.get(at.offset, last));
                if let Some(envelope) = abridged {
                    return read_abridged(id, envelope).map_err(bad);
                }
                let read =
                    window.slice_ahead(u64::from(at.offset), at.length as usize, || ahead(&live[number..]));
                let record = read.ok().and_then(|b| record::read(b, u64::from(at.offset), header.seed).ok());
                match record {
                    Some((record, ..)) if record.kind == Kind::Message && record.name == id.0 => {
                        read_message(id, record.body, false).map_err(bad)
                    }
                    // By itself it may be readable, or is read a second time.
                    _ => read_message(id, &self.record(at, Kind::Message, id.0)?, false).map_err(bad),
                }
            });
            take(stored.map(|stored| {
                let Folded { message, states, held, lost, .. } = self.fold_stored(id, entry, stored);
                (Recovered { message: SharedMessage::new(message), recipients: states, held }, lost)
            }));
        }
        index_file.into_iter().for_each(|index_file| context.return_buffer(index_file.into_buffer()));
        context.return_buffer(window.into_buffer());
    }

    fn read_threads(&self) -> usize {
        if self.allocator.is_single_stepped() { 1 } else { self.settings.read_threads }
    }

    /// Fails when a part of a message's content is lost: the message must not be delivered without that part.
    /// Such a message comes back when its tombstone is damaged and the chunks were freed long before.
    fn has_chunks(&self, id: QueueId, entry: &MessageEntry) -> Result<(), SpoolFailure> {
        let Some(more) = &entry.extras else { return Ok(()) };
        let index = self.index();
        match more.chunks.iter().find(|chunk_id| !index.chunks.contains_key(chunk_id)) {
            // Perhaps it lies where nothing can be read now.
            Some(chunk_id) if !index.parked.is_empty() || index.retention.up_to > 0 => {
                Err(SpoolFailure::Io(format!("{id}: chunk {chunk_id} of its content cannot be read")))
            }
            Some(chunk_id) => Err(SpoolFailure::Corrupt(format!(
                "{id}: its content is lost (chunk {chunk_id} is missing): the message is kept out of the queue"
            ))),
            None => Ok(()),
        }
    }
}

/// Returns the number of bytes that are worth reading at once, from the first message on.
fn ahead(live: &[Live]) -> usize {
    let start = u64::from(live[0].1.at.offset);
    let mut end = start;
    for (_, MessageEntry { at, .. }) in live {
        let (from, to) = (u64::from(at.offset), u64::from(at.offset) + u64::from(at.length));
        if from > end + GAP_BYTES || to > start + READ_BYTES {
            break;
        }
        end = to;
    }
    (end - start) as usize
}
