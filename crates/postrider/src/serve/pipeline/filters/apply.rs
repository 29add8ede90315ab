//! The changes that filters ask for.

use crate::serve::pipeline::{View, rules::redirect::copies};
use bytes::Bytes;
use engine::accept::{Decisions, Stage, Verdict};
use filter::Judged;
use mail::{ForwardPath, HeaderFields, Mailbox, Part, ReceivedContent, Recipient, Reply, ReversePath};
use milter::Edit;
use policy::Targets;

/// Changes of the content.
pub(super) struct Changes {
    fields: Option<HeaderFields>,
    body: Option<Bytes>,
}

impl Changes {
    /// Makes the changes. Returns the parts of a body that was replaced.
    pub(super) fn make(self, content: &mut ReceivedContent) -> Vec<Part> {
        if let Some(fields) = self.fields {
            content.set_fields(&fields);
        }
        self.body.map_or_else(Vec::new, |body| content.replace_body(body))
    }
}

/// Notes what a filter decided of the envelope, and returns its changes of the content. What is no address is left out, and logged.
///
/// # Errors
/// A recipient that the filter adds cannot be expanded now.
pub(super) async fn apply(
    by: &str,
    judged: Judged,
    view: &View<'_>,
    fields: &HeaderFields,
    decisions: &mut Decisions,
) -> Result<Changes, Reply> {
    let given = view.envelope.map(|envelope| &envelope.recipients[..]).unwrap_or_default();
    let (mut changed, mut added) = (None::<HeaderFields>, Vec::<Mailbox>::new());
    for edit in judged.edits {
        match edit {
            Edit::AddHeader { name, value } => {
                changed.get_or_insert_with(|| fields.clone()).append(&name, &value);
            }
            Edit::InsertHeader { index, name, value } => {
                changed.get_or_insert_with(|| fields.clone()).insert(index as usize, &name, &value);
            }
            Edit::ChangeHeader { index, name, value } => {
                changed.get_or_insert_with(|| fields.clone()).change(
                    &name,
                    index.saturating_sub(1) as usize,
                    value.as_deref(),
                );
            }
            Edit::ReplaceBody(_) => {}
            Edit::ChangeSender { sender, .. } => match ReversePath::parse(&sender, true) {
                Ok(sender) => _ = decisions.note(Stage::End, Verdict::ReplaceSender(sender), 0),
                Err(error) => tracing::error!("{by} changes the sender to <{sender}>: {error}"),
            },
            Edit::AddRecipient { recipient, .. } => match Mailbox::parse(&recipient, true) {
                Ok(recipient) => added.push(recipient),
                Err(error) => tracing::error!("{by} adds the recipient <{recipient}>: {error}"),
            },
            Edit::DeleteRecipient { recipient } => {
                let is_meant = |path: &str| path.eq_ignore_ascii_case(&recipient);
                added.retain(|mailbox| !is_meant(mailbox.as_str()));
                decisions.remove_bcc(|bcc: &Recipient| is_meant(bcc.path.as_str()));
                for (at, _) in given.iter().enumerate().filter(|(_, to)| is_meant(to.path.as_str())) {
                    decisions.remove_recipient(at, by.into());
                }
            }
            Edit::Quarantine { reason } => {
                decisions.note(Stage::End, Verdict::Hold(format!("{by}: {reason}").into()), 0);
            }
        }
    }
    // One that the message has already gets no second copy.
    let has = |mailbox: &Mailbox| {
        given.iter().any(|to| matches!(&to.path, ForwardPath::Mailbox(own) if own == mailbox))
    };
    added.retain(|mailbox| !has(mailbox));
    if !added.is_empty() {
        let mut missing = Vec::new();
        let targets = Targets { mailboxes: added, by: by.into() };
        let copies = copies(view, targets, &mut missing).await.map_err(|refused| match refused {
            Verdict::Defer(reply) | Verdict::Reject(reply) => reply,
            _ => smtp::server::replies::LOCAL_ERROR,
        })?;
        decisions.note(Stage::End, Verdict::Missing(missing.into()), 0);
        decisions.note(Stage::End, Verdict::Bcc(copies), 0);
    }
    Ok(Changes { fields: changed, body: judged.body.map(Bytes::from) })
}
