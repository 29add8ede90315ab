//! Every live message, read in the order in which they lie on the disk.

use super::{
    Folded, Shared,
    index::{Location, Slot},
    window::Window,
};
use crate::{
    Recovered, RecoveryReport, SpoolFailure,
    format::record::{self, Kind},
};
use mail::{QueueId, SharedMessage};

/// Records that are closer together than this are read at once, what lies between them too.
const GAP_BYTES: u64 = 32 * 1024;
/// At most so much at once.
const READ_BYTES: u64 = 512 * 1024;

/// A live message and its record.
type Live = (Location, u64, Slot);

impl Shared {
    /// Passes on each one; what cannot be read is reported.
    pub(super) fn visit_all(&self, report: &mut RecoveryReport, visit: &mut dyn FnMut(Recovered)) {
        let mut live: Vec<Live> =
            self.index().messages.iter().map(|(id, slot)| (slot.at, *id, slot.clone())).collect();
        live.sort_unstable_by_key(|(at, ..)| (at.segment, at.offset));
        let mut buffer = Vec::new();
        for segment in live.chunk_by(|a, b| a.0.segment == b.0.segment) {
            buffer = self.visit_segment(segment, buffer, report, visit);
        }
    }

    fn visit_segment(
        &self,
        live: &[Live],
        buffer: Vec<u8>,
        report: &mut RecoveryReport,
        visit: &mut dyn FnMut(Recovered),
    ) -> Vec<u8> {
        let place = self.index().segments.get(&live[0].0.segment).map(|s| (s.file.clone(), s.header));
        let Some((file, header)) = place else {
            let lost = live.iter().map(|(_, id, _)| format!("{}: its segment is gone", QueueId(*id)));
            report.corrupt.extend(lost);
            return buffer;
        };
        let mut window = Window::new(file, header.size_bytes, buffer);
        for (number, (at, id, slot)) in live.iter().enumerate() {
            let id = QueueId(*id);
            let whole = self.has_chunks(id, slot).and_then(|()| {
                let read =
                    window.slice_ahead(u64::from(at.offset), at.length as usize, || ahead(&live[number..]));
                let bytes = read.map_err(|e| SpoolFailure::Io(format!("read {id}: {e}")))?;
                let record = record::read(bytes, u64::from(at.offset), header.seed);
                let (record, ..) = record.map_err(|m| SpoolFailure::Corrupt(format!("{id}: {}", m.0)))?;
                if record.kind != Kind::Message || record.name != id.0 {
                    return Err(SpoolFailure::Corrupt(format!("{id}: another record than expected")));
                }
                self.fold_body(id, slot, record.body, false)
            });
            match whole {
                Ok(Folded { message, states, held }) => {
                    report.message_count += 1;
                    visit(Recovered { message: SharedMessage::new(message), recipients: states, held });
                }
                Err(failure) => report.corrupt.push(failure.to_string()),
            }
        }
        window.into_buffer()
    }

    /// Half a message must not be delivered.
    fn has_chunks(&self, id: QueueId, slot: &Slot) -> Result<(), SpoolFailure> {
        let Some(more) = &slot.more else { return Ok(()) };
        let index = self.index();
        match more.chunks.iter().find(|place| !index.chunks.contains_key(place)) {
            Some(place) => {
                Err(SpoolFailure::Corrupt(format!("{id}: chunk {place} of its content is missing")))
            }
            None => Ok(()),
        }
    }
}

/// How far it is worth reading from the first one on.
fn ahead(live: &[Live]) -> usize {
    let start = u64::from(live[0].0.offset);
    let mut end = start;
    for (at, ..) in live {
        let (from, to) = (u64::from(at.offset), u64::from(at.offset) + u64::from(at.length));
        if from > end + GAP_BYTES || to > start + READ_BYTES {
            break;
        }
        end = to;
    }
    (end - start) as usize
}
