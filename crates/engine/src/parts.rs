//! The end of recipients with many reports, in several transactions: a spool takes no transaction that is larger than a
//! segment. Each has the outcomes of some recipients together with the reports on them, so that after a crash neither exists
//! without the other.

use mail::{Outcome, QueueId, SharedMessage};
use std::collections::HashSet;

/// Reports beyond this size are split.
const PART_MAX_BYTES: u64 = 256 * 1024;

/// The planned reports, and the recipients that each of them names.
pub(crate) type ReportedRecipients = Vec<(QueueId, Vec<u32>)>;

/// Outcomes of recipients, and the reports on them.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) results: Vec<(u32, Outcome)>,
    pub(crate) reports: Vec<SharedMessage>,
}

/// Splits a result whose reports are too large for one transaction; none: they are not. The last part has the recipients
/// that no report names.
pub(crate) fn split(
    results: &[(u32, Outcome)],
    reports: &[SharedMessage],
    planned: &ReportedRecipients,
) -> Option<Vec<Part>> {
    if reports.len() < 2 || size_bytes(reports) <= PART_MAX_BYTES {
        return None;
    }
    let (mut parts, mut left) = (Vec::new(), results.to_vec());
    let (mut open, mut recipients, mut size_bytes) = (Vec::new(), HashSet::<u32>::new(), 0);
    for report in reports {
        if !open.is_empty() && size_bytes + report.content.size_bytes() > PART_MAX_BYTES {
            let (own, others) = left.into_iter().partition(|(index, _)| recipients.contains(index));
            parts.push(Part { results: own, reports: std::mem::take(&mut open) });
            (left, size_bytes) = (others, 0);
            recipients.clear();
        }
        size_bytes += report.content.size_bytes();
        open.push(report.clone());
        recipients.extend(planned.iter().filter(|(id, _)| *id == report.id).flat_map(|(_, named)| named));
    }
    parts.push(Part { results: left, reports: open });
    Some(parts)
}

fn size_bytes(reports: &[SharedMessage]) -> u64 {
    reports.iter().map(|report| report.content.size_bytes()).sum()
}

/// Splits reports that no outcome goes with.
pub(crate) fn split_warnings(reports: Vec<SharedMessage>) -> Vec<Vec<SharedMessage>> {
    let mut parts: Vec<Vec<SharedMessage>> = Vec::new();
    let mut size_bytes = 0;
    for report in reports {
        size_bytes += report.content.size_bytes();
        match parts.last_mut() {
            Some(open) if size_bytes <= PART_MAX_BYTES => open.push(report),
            _ => {
                size_bytes = report.content.size_bytes();
                parts.push(vec![report]);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Content, Enhanced, Envelope, Message, Origin, ReversePath, UnixMillis};

    fn report(id: u64, size_bytes: usize) -> SharedMessage {
        let content = Content::from_bytes("x".repeat(size_bytes));
        let envelope = Envelope::new(ReversePath::Null);
        let (id, arrived, origin) = (QueueId(id), UnixMillis(0), Origin::Dsn);
        SharedMessage::new(Message { id, arrived, origin, envelope, content })
    }

    fn shown(sizes: &[usize]) -> Vec<(Vec<u32>, Vec<u64>)> {
        let reports: Vec<_> = (0..).zip(sizes).map(|(id, size)| report(id, *size)).collect();
        // Each report names two recipients; the last recipient is named by none.
        let planned = (0..sizes.len() as u64).map(|id| (QueueId(id), vec![2 * id as u32, 2 * id as u32 + 1]));
        let outcome = Outcome::failed(Enhanced(5, 1, 1), "no");
        let results: Vec<_> = (0..=2 * sizes.len() as u32).map(|index| (index, outcome.clone())).collect();
        let parts = split(&results, &reports, &planned.collect()).unwrap_or_default();
        let show = |part: Part| {
            let indexes = part.results.iter().map(|result| result.0).collect();
            (indexes, part.reports.iter().map(|report| report.id.0).collect())
        };
        parts.into_iter().map(show).collect()
    }

    #[test]
    fn each_recipient_ends_once_and_with_its_report() {
        let k = 1024;
        assert_eq!(shown(&[100 * k, 100 * k]), []);
        assert_eq!(shown(&[900 * k]), []);
        assert_eq!(
            shown(&[200 * k, 100 * k, 100 * k, 300 * k]),
            [(vec![0, 1], vec![0]), (vec![2, 3, 4, 5], vec![1, 2]), (vec![6, 7, 8], vec![3])]
        );
        assert_eq!(shown(&[]), []);
    }

    #[test]
    fn warnings_are_split_by_size() {
        let k = 1024;
        let reports = (0..).zip([200, 100, 100, 300, 1]).map(|(id, size)| report(id, size * k));
        let counts: Vec<usize> = split_warnings(reports.collect()).iter().map(Vec::len).collect();
        assert_eq!(counts, [1, 2, 1, 1]);
        assert!(split_warnings(Vec::new()).is_empty());
    }
}
