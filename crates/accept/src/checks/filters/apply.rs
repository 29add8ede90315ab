//! The changes that filters ask for.

use crate::{check::View, checks::rules::redirect, decisions::Decisions};
use mail::{ForwardPath, HeaderFields, Mailbox, Notify, ReceivedContent, Recipient, Reply, ReversePath};
use milter::Edit;
use policy::{Stage, Verdict};

/// Notes what a filter decided of the envelope, and returns the fields of the header, if it changes them. What is not an address is left
/// out, and logged.
///
/// # Errors
/// A recipient that the filter adds cannot be expanded now.
pub(super) async fn apply(
    by: &str,
    edits: Vec<Edit>,
    view: View<'_>,
    content: &ReceivedContent,
    decisions: &mut Decisions,
) -> Result<Option<HeaderFields>, Reply> {
    let view = View { header: content.header(), ..view };
    let given = view.envelope.map(|envelope| &envelope.recipients[..]).unwrap_or_default();
    let (mut changed, mut added) = (None::<HeaderFields>, Vec::<(Mailbox, Notify)>::new());
    for edit in edits {
        match edit {
            Edit::AddHeader { name, value } => {
                changed.get_or_insert_with(|| content.fields()).append(&name, &value);
            }
            Edit::InsertHeader { index, name, value } => {
                changed.get_or_insert_with(|| content.fields()).insert(index as usize, &name, &value);
            }
            Edit::ChangeHeader { index, name, value } => {
                changed.get_or_insert_with(|| content.fields()).change(
                    &name,
                    index.saturating_sub(1) as usize,
                    value.as_deref(),
                );
            }
            Edit::ReplaceBody(_) => {}
            Edit::ChangeSender { sender, .. } => match ReversePath::parse(&sender, true) {
                Ok(sender) => _ = decisions.note(Stage::Content, Verdict::ReplaceSender(sender), 0),
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
                decisions.note(Stage::Content, Verdict::Hold(format!("{by}: {reason}").into()), 0);
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
        let recipients = redirect::added(&view, &given, mailbox, by, &mut missing).await;
        decisions.add_recipients(recipients.map_err(|refused| match refused {
            Verdict::Defer(reply) | Verdict::Reject(reply) => reply,
            _ => smtp::server::replies::LOCAL_ERROR,
        })?);
    }
    if !missing.is_empty() {
        decisions.note(Stage::Content, Verdict::Missing(missing.into()), 0);
    }
    Ok(changed)
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
