//! Reports on recipients that were expanded. Their senders get them when the message is accepted: nothing else happens
//! to the address that they gave.

use crate::settings::ReportSettings;
use mail::{Enhanced, Envelope, IdSource, Message, Outcome, Part, Recipient, UnixMillis};
use report::dsn::{self, DsnKind};

/// Given recipients that others took the place of, and whose sender asked for a report of success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expanded {
    /// As the client gave it, with these recipients only.
    given: Envelope,
    /// Of each of them.
    kinds: Vec<DsnKind>,
}

impl Expanded {
    /// Returns the recipients whose expansion has to be reported; `None` if there are none. `redirects` says who takes the
    /// place of recipients of the envelope.
    pub(super) fn of(redirects: &[(usize, Vec<Recipient>)], envelope: &Envelope) -> Option<Box<Self>> {
        if envelope.reverse_path.is_null() || !envelope.recipients.iter().any(|r| r.notify.success) {
            return None;
        }
        let (mut recipients, mut kinds) = (Vec::new(), Vec::new());
        for (at, to) in redirects {
            let given = &envelope.recipients[*at];
            if let Some(kind) = kind(to).filter(|_| given.notify.success) {
                recipients.push(given.clone());
                kinds.push(kind);
            }
        }
        let given = Envelope { recipients, ..envelope.clone() };
        (!kinds.is_empty()).then(|| Box::new(Self { given, kinds }))
    }

    /// Composes the reports on an accepted message. A driver takes them through the accept pipeline, and stores them in one
    /// transaction with the message.
    pub fn compose(
        &self,
        accepted: &Message,
        hostname: &str,
        settings: &ReportSettings,
        ids: &IdSource,
        now: UnixMillis,
    ) -> Vec<Message> {
        let original = Message { envelope: self.given.clone(), ..accepted.clone() };
        let header = accepted.content.parts().first();
        let content = header.map_or(&[][..], |part| if let Part::Memory(bytes) = part { bytes } else { &[] });
        let context = dsn::DsnContext {
            reporting_mta: hostname,
            postmaster: &settings.postmaster,
            texts: &settings.texts,
            relay: "",
            now,
            gives_up: now,
            content,
        };
        let report = |kind: DsnKind| {
            let rows = (0..).zip(&self.kinds).filter(|(_, one)| **one == kind);
            let affected: Vec<(u32, Outcome)> = rows.map(|(index, _)| (index, outcome(kind))).collect();
            dsn::compose(kind, &original, &affected, &context, ids.next(now.0))
        };
        [DsnKind::Expanded, DsnKind::Delivered]
            .into_iter()
            .filter(|kind| self.kinds.contains(kind))
            .filter_map(report)
            .collect()
    }
}

/// Returns the kind of report on a recipient that these took the place of: a list is a delivery (RFC 3461 §5.2.7.1), and
/// so is not reported by the next hop; several targets are an expansion (§5.2.7.3); a single one reports for itself
/// (§5.2.7.2).
fn kind(to: &[Recipient]) -> Option<DsnKind> {
    if !to.is_empty() && to.iter().all(Recipient::is_of_list) {
        return Some(DsnKind::Delivered);
    }
    (to.len() > 1).then_some(DsnKind::Expanded)
}

fn outcome(kind: DsnKind) -> Outcome {
    let text = match kind {
        DsnKind::Delivered => "the mailing list has the message",
        _ => "the address stands for several others",
    };
    Outcome::delivered(Enhanced(2, 0, 0), text)
}
