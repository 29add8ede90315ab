//! Addresses that maps decide on.

use super::{is_deliverable, own_address, refusal, session_facts};
use crate::{
    expansion::{Expansion, Outcome, recipients},
    serve::pipeline::{LOOKUP_FAILED, REPORT_RETRIES, Rules, View},
};
use engine::accept::{Source, Verdict};
use inbound::Answer;
use mail::{AliasTarget, Enhanced, ForwardPath, Mailbox, Recipient, Reply, ReversePath};
use rewrite::{Expanded, Role, Trouble, passed_on};

/// Aliases or files of this server are wrong.
pub(super) const NOT_EXPANDABLE: Reply =
    Reply::fixed(451, Enhanced(4, 2, 4), "The recipient cannot be expanded now, try again later");

/// Judges and expands a recipient. Relaying is decided by the address that was given; no map permits it.
pub(super) async fn recipient(expansion: &Expansion, view: View<'_>, given: &Recipient) -> Verdict {
    let Rules { settings, .. } = view.rules;
    let connected_to = match &view.facts.source {
        Source::Smtp { local, .. } => Some(local.ip()),
        Source::Local { .. } | Source::Report => None,
    };
    let own = own_address::resolve(&given.path, settings, connected_to);
    let path = own.as_ref().unwrap_or(&given.path);
    if let Err(refused) = may_send(expansion, &view, path).await {
        return refused;
    }
    let mailbox = path.mailbox().unwrap_or(&settings.postmaster).clone();
    let outcome = match expand(expansion, &view, &mailbox).await {
        // Every domain has a postmaster (RFC 5321 §4.5.1), and programs on this machine write to root as well.
        Outcome::NoSuchUser if path.mailbox().is_none() || is_for_postmaster(expansion, &view, &mailbox) => {
            match expansion.expand(settings.postmaster.clone()).await {
                Outcome::NoSuchUser => {
                    let path = ForwardPath::Mailbox(settings.postmaster.clone());
                    if matches!(view.facts.source, Source::Smtp { .. })
                        && let Err(reply) = is_deliverable(&path, &view)
                    {
                        return refusal(&path, reply, &view);
                    }
                    let to = replaced(&view, given, settings.postmaster.clone(), Role::Single);
                    return Verdict::Redirect(vec![to]);
                }
                outcome => outcome,
            }
        }
        outcome => outcome,
    };
    match outcome {
        Outcome::Recipients(expanded) => accepted(&view, given, &expanded),
        Outcome::NoSuchUser => unknown(&view, given, &mailbox),
        // A program that hands mail in waits for no reply: the message is queued, and this recipient is expanded later.
        Outcome::Failed(trouble) if matches!(view.facts.source, Source::Local { .. }) && !view.is_queued => {
            view.note("expansion", || format!("{trouble}; tried again later"));
            tracing::error!("expand {} later: {trouble}", given.path);
            Verdict::Settle(vec![later(given)])
        }
        Outcome::Failed(trouble) => failed(&view, &trouble, given.path.as_str()),
    }
}

/// A recipient that is expanded when its message is delivered.
fn later(given: &Recipient) -> Recipient {
    let mut recipient = given.clone();
    recipient.options.get_or_insert_default().target = Some(AliasTarget::Later);
    recipient
}

/// Checks that the client may send to this domain.
///
/// # Errors
/// The verdict that refuses.
async fn may_send(expansion: &Expansion, view: &View<'_>, path: &ForwardPath) -> Result<(), Verdict> {
    let (Some(session), Some(mailbox)) = (session_facts(view), path.mailbox()) else { return Ok(()) };
    if view.rules.policy.may_send_anywhere(&session) {
        return Ok(());
    }
    match expansion.is_local(&mailbox.domain().key()).await {
        Ok(true) => Ok(()),
        Ok(false) => view.rules.policy.relay(&session, mailbox).map_err(Verdict::Reject),
        Err(error) => Err(failed(view, &Trouble::LookUp(error.to_string().into()), path.as_str())),
    }
}

/// Expands; for a notification of this server, a look-up that fails is repeated.
async fn expand(expansion: &Expansion, view: &View<'_>, mailbox: &Mailbox) -> Outcome {
    let intervals = if view.facts.can_be_refused() { &[] } else { &REPORT_RETRIES[..] };
    for interval in intervals {
        match expansion.expand(mailbox.clone()).await {
            Outcome::Failed(trouble) if trouble.is_look_up() => tokio::time::sleep(*interval).await,
            outcome => return outcome,
        }
    }
    expansion.expand(mailbox.clone()).await
}

fn is_for_postmaster(expansion: &Expansion, view: &View<'_>, mailbox: &Mailbox) -> bool {
    let is_client = matches!(view.facts.source, Source::Smtp { .. });
    expansion.is_named(mailbox, "postmaster") || !is_client && expansion.is_named(mailbox, "root")
}

/// The recipients that were found, or a pass if they are the one that was given.
fn accepted(view: &View<'_>, given: &Recipient, expanded: &Expanded) -> Verdict {
    let is_client = matches!(view.facts.source, Source::Smtp { .. });
    let is_same = expanded.recipients().len() == 1
        && expanded.recipients().next() == given.path.mailbox()
        && expanded.target(0).is_none();
    if is_client {
        let all = expanded.recipients().enumerate();
        for (_, mailbox) in all.filter(|(index, _)| expanded.target(*index).is_none()) {
            let path = ForwardPath::Mailbox(mailbox.clone());
            if let Err(reply) = is_deliverable(&path, view) {
                if is_same {
                    return refusal(&path, reply, view);
                }
                tracing::error!("expand {}: {mailbox} cannot be delivered to: {}", given.path, reply.text());
                return Verdict::Defer(NOT_EXPANDABLE);
            }
        }
    }
    if is_same {
        return Verdict::Pass;
    }
    // A message without a sender keeps that: nobody gets reports on it.
    let has_sender = view.envelope.is_some_and(|envelope| !envelope.reverse_path.is_null());
    let replace = |mailbox, role: Role<'_>| replaced(view, given, mailbox, role);
    Verdict::Redirect(recipients(given, expanded, has_sender, &replace))
}

/// Returns the recipient that takes the place of another one.
fn replaced(view: &View<'_>, given: &Recipient, mailbox: Mailbox, role: Role<'_>) -> Recipient {
    let is_report = !view.facts.can_be_refused();
    match is_report {
        true => Recipient { path: ForwardPath::Mailbox(mailbox), ..given.clone() },
        false => passed_on(given, mailbox, role),
    }
}

/// The verdict on a local address that no user has.
fn unknown(view: &View<'_>, given: &Recipient, mailbox: &Mailbox) -> Verdict {
    match view.facts.source {
        // Delivery asks the list of users again, and returns the mail by a report.
        Source::Local { .. }
            if !view.is_queued && !view.rules.policy.knows(&ForwardPath::Mailbox(mailbox.clone())) =>
        {
            Verdict::Pass
        }
        // It fails in the queue, so that the sender or the postmaster hears of it: programs wait for no reply, and the other
        // recipients get the message.
        Source::Report | Source::Local { .. } if !view.is_queued => Verdict::Settle(vec![later(given)]),
        Source::Report | Source::Local { .. } | Source::Smtp { .. } => {
            Verdict::Reject(policy::no_such_user(mailbox))
        }
    }
}

fn failed(view: &View<'_>, trouble: &Trouble, recipient: &str) -> Verdict {
    view.note("expansion", || trouble.to_string());
    if let Trouble::TooMany { limit, .. } = trouble {
        // It would not be shorter after a while.
        tracing::error!("expand {recipient}: {trouble}");
        let text =
            format!("<{recipient}>: The list has more than {limit} members (addresses.max_list_members)");
        return Verdict::Reject(Reply::new(550, Enhanced(5, 2, 4), text));
    }
    let reply = if trouble.is_look_up() { LOOKUP_FAILED } else { NOT_EXPANDABLE };
    if view.is_queued {
        // The queue shows the reason.
        return Verdict::Defer(Reply::new(reply.code, reply.enhanced, trouble.to_string()));
    }
    tracing::error!("expand {recipient}: {trouble}");
    Verdict::Defer(reply)
}

/// Replaces the sender by its canonical address, with its host hidden.
pub(super) fn sender<'a>(expansion: &'a Expansion, path: &'a ReversePath) -> Answer<'a, Verdict> {
    let ReversePath::Mailbox(mailbox) = path else { return Answer::Ready(Verdict::Pass) };
    Answer::later(async move {
        match expansion.sender(mailbox).await {
            Ok(None) => Verdict::Pass,
            Ok(Some(changed)) => Verdict::ReplaceSender(ReversePath::Mailbox(changed)),
            Err(what) => {
                tracing::error!("look up the sender {mailbox}: {what}");
                Verdict::Defer(LOOKUP_FAILED)
            }
        }
    })
}
