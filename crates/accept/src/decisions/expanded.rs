//! Reports on recipients that were expanded. Their senders get them when the message is accepted: nothing else happens
//! to the address that they gave.

use engine::ReportSettings;
use mail::{Attempt, Enhanced, Envelope, IdSource, Message, Outcome, Part, Recipient, UnixMillis};
use report::dsn::{self, DsnKind};

/// Given recipients that others took the place of, and whose sender asked for a report of success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expanded {
    /// As the client gave it, with these recipients only.
    given: Envelope,
    /// Which report each recipient of `given` gets, in their order.
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
        let attempt = Attempt::default();
        let context = dsn::DsnContext {
            reporting_mta: hostname,
            postmaster: &settings.postmaster,
            texts: &settings.texts,
            attempt: &attempt,
            earlier: &[],
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::{Accepted, Decisions};
    use mail::{ForwardPath, Mailbox, Notify, Origin, QueueId, ReceivedContent, ReturnPath, ReversePath};

    fn recipient(address: &str) -> Recipient {
        Recipient::new(ForwardPath::parse(address, false).unwrap())
    }

    fn of_list(address: &str) -> Recipient {
        let path = ReversePath::parse("owner-list@a.test", false).unwrap();
        let mut recipient = recipient(address);
        recipient.set_return_path(ReturnPath { path, is_list: true });
        recipient
    }

    /// The reports on a message to three recipients that ask for success, of which these took the place of the first two.
    fn reports(sender: &str, notify: Notify, redirects: [Vec<Recipient>; 2]) -> Vec<String> {
        let mut envelope = Envelope::new(ReversePath::parse(sender, false).unwrap());
        envelope.recipients =
            ["x@a.test", "y@a.test", "z@a.test"].map(|to| Recipient { notify, ..recipient(to) }).into();
        let mut decisions = Decisions::default();
        redirects.into_iter().enumerate().for_each(|(at, to)| decisions.redirect(at, to));
        let content = ReceivedContent::from_bytes("Subject: x\r\n\r\nbody\r\n", 0);
        let (id, now) = (QueueId(1), UnixMillis(1_800_000_000_000));
        let accepted = decisions.finish(id, now, Origin::Local { uid: 1 }, envelope, content);
        let Accepted::Message { message, expanded, .. } = accepted else { panic!("discarded") };
        let settings = ReportSettings::new(Mailbox::parse("postmaster@a.test", false).unwrap());
        let composed = expanded.map_or_else(Vec::new, |expanded| {
            expanded.compose(&message, "mx.test", &settings, &IdSource::default(), now)
        });
        let text = |report: Message| {
            assert_eq!((report.is_report(), report.envelope.recipients[0].path.as_str()), (true, "s@b.test"));
            String::from_utf8(report.content.in_memory().unwrap().to_vec()).unwrap()
        };
        composed.into_iter().map(text).collect()
    }

    #[test]
    fn several_targets_are_an_expansion_and_a_list_is_a_delivery() {
        let success = Notify { success: true, ..Notify::default() };
        let several = || vec![recipient("1@c.test"), recipient("2@c.test")];
        let list = || vec![of_list("3@c.test")];
        let both = reports("s@b.test", success, [several(), list()]);
        assert_eq!(both.len(), 2);
        assert!(both[0].contains("Final-Recipient: rfc822; x@a.test\r\nAction: expanded\r\n"), "{}", both[0]);
        assert!(
            both[1].contains("Final-Recipient: rfc822; y@a.test\r\nAction: delivered\r\n"),
            "{}",
            both[1]
        );
        assert!(both.iter().all(|text| !text.contains("z@a.test") && !text.contains("c.test")));
        // A single target reports for itself, and what is discarded is not reported.
        assert!(reports("s@b.test", success, [vec![recipient("1@c.test")], Vec::new()]).is_empty());
        let mixed = || vec![recipient("1@c.test"), of_list("2@c.test")];
        assert!(reports("s@b.test", success, [mixed(), mixed()])[0].matches("Action: expanded").count() == 2);
        assert!(reports("s@b.test", Notify::default(), [several(), list()]).is_empty(), "nobody asked");
        assert!(reports("", success, [several(), list()]).is_empty(), "there is no sender");
    }
}
