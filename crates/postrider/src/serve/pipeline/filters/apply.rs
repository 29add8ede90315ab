//! The changes that filters ask for.

use crate::serve::pipeline::{View, rules::redirect};
use bytes::Bytes;
use engine::accept::{Decisions, Stage, Verdict};
use filter::Judged;
use mail::{
    ForwardPath, HeaderFields, Mailbox, Notify, Part, ReceivedContent, Recipient, Reply, ReversePath,
};
use milter::Edit;

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
    let (mut changed, mut added) = (None::<HeaderFields>, Vec::<(Mailbox, Notify)>::new());
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
            Edit::AddRecipient { recipient, parameters } => match Mailbox::parse(&recipient, true) {
                Ok(recipient) => added.push((recipient, notify(parameters.as_deref()))),
                Err(error) => tracing::error!("{by} adds the recipient <{recipient}>: {error}"),
            },
            Edit::DeleteRecipient { recipient } => {
                let is_meant = |path: &str| path.eq_ignore_ascii_case(&recipient);
                added.retain(|(mailbox, _)| !is_meant(mailbox.as_str()));
                decisions.remove_added(|to: &Recipient| is_meant(to.path.as_str()));
                for (at, _) in given.iter().enumerate().filter(|(_, to)| is_meant(to.path.as_str())) {
                    decisions.remove_recipient(at, by.into());
                }
            }
            Edit::Quarantine { reason } => {
                decisions.note(Stage::End, Verdict::Hold(format!("{by}: {reason}").into()), 0);
            }
        }
    }
    // One that the message has already, and still has, gets no second copy.
    let has = |mailbox: &Mailbox, decisions: &Decisions| {
        given.iter().enumerate().any(|(at, to)| {
            matches!(&to.path, ForwardPath::Mailbox(own) if own == mailbox)
                && decisions.redirected(at).is_none_or(|others| !others.is_empty())
        })
    };
    added.retain(|(mailbox, _)| !has(mailbox, decisions));
    let mut missing = Vec::new();
    for (mailbox, notify) in added {
        // As in Postfix and Sendmail, the sender hears of a failure: the filter may have put it in the place of others.
        let given = Recipient { notify, ..Recipient::new(ForwardPath::Mailbox(mailbox.clone())) };
        let recipients = redirect::added(view, &given, mailbox, by, &mut missing).await;
        decisions.add_recipients(recipients.map_err(|refused| match refused {
            Verdict::Defer(reply) | Verdict::Reject(reply) => reply,
            _ => smtp::server::replies::LOCAL_ERROR,
        })?);
    }
    if !missing.is_empty() {
        decisions.note(Stage::End, Verdict::Missing(missing.into()), 0);
    }
    Ok(Changes { fields: changed, body: judged.body.map(Bytes::from) })
}

/// Returns what the sender of the message hears of a recipient with these parameters (RFC 3461 §4.1).
fn notify(parameters: Option<&str>) -> Notify {
    let words = parameters.unwrap_or_default().split(' ').filter_map(|word| word.split_once('='));
    let value = words.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("NOTIFY"));
    match value {
        Some((_, value)) if value.eq_ignore_ascii_case("NEVER") => Notify::NEVER,
        _ => Notify::default(),
    }
}
