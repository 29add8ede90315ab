//! Addresses that maps decide on.

use super::own_address;
use crate::{
    check::{LOOKUP_FAILED, REPORT_RETRIES, Rules, View},
    expansion::{Expansion, Outcome, missing_targets, recipients},
};
use inbound::Answer;
use mail::{AliasTarget, Enhanced, ForwardPath, Mailbox, Recipient, Reply, ReversePath};
use policy::{Source, Verdict};
use rewrite::{Expanded, Role, Trouble, passed_on};
use std::time::Duration;
use tokio::{task::spawn_blocking, time::timeout};

/// Time for a look at files of aliases; a disk that answers later is left to the delivery.
const DISK_TIMEOUT: Duration = Duration::from_secs(5);

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
    let outcome = expand(expansion, &view, &mailbox).await;
    match outcome {
        Outcome::Recipients(expanded) => match undeliverable(&view, &expanded).await {
            Some(trouble) => failed(&view, &trouble, given.path.as_str()),
            None => accepted(&view, given, &mailbox, &expanded),
        },
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

/// Returns the trouble of a file to which an alias leads and that cannot be written now, or of a program that cannot be started. The
/// client keeps the mail: taken, it would wait in the queue until it is returned.
async fn undeliverable(view: &View<'_>, expanded: &Expanded) -> Option<Trouble> {
    if !matches!(view.facts.source, Source::Smtp { .. }) || view.is_queued {
        return None;
    }
    let targets = (0..expanded.recipients().len()).filter_map(|index| match expanded.target(index)? {
        found @ (AliasTarget::File(name) | AliasTarget::Program(name)) => Some((name.clone(), found.clone())),
        _ => None,
    });
    let targets: Vec<_> = targets.collect();
    if targets.is_empty() {
        return None;
    }
    let fault = view.rules.target_fault;
    let find = move || targets.into_iter().find_map(|(name, target)| Some((fault(&target)?, name)));
    let (what, key) = timeout(DISK_TIMEOUT, spawn_blocking(find)).await.ok()?.ok()??;
    Some(Trouble::Value { key, what: what.into() })
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
    let Some(mailbox) = path.mailbox() else { return Ok(()) };
    if view.rules.policy.may_send_anywhere(view.facts) {
        return Ok(());
    }
    match expansion.is_local(&mailbox.domain().key()).await {
        Ok(true) => Ok(()),
        Ok(false) => view.rules.policy.relay(view.facts, mailbox).map_err(Verdict::Reject),
        Err(error) => Err(failed(view, &Trouble::LookUp(error.to_string().into()), path.as_str())),
    }
}

/// Expands; for a notification of this server, a look-up that fails is repeated. Programs on this machine write to root as well.
async fn expand(expansion: &Expansion, view: &View<'_>, mailbox: &Mailbox) -> Outcome {
    let takes_root = !matches!(view.facts.source, Source::Smtp { .. });
    let expand = || expansion.expand_given(mailbox, takes_root, view.mailboxes());
    let intervals = if view.facts.can_be_refused() { &[] } else { &REPORT_RETRIES[..] };
    for interval in intervals {
        match expand().await {
            Outcome::Failed(trouble) if trouble.is_look_up() => tokio::time::sleep(*interval).await,
            outcome => return outcome,
        }
    }
    expand().await
}

/// The recipients that were found, or a pass if they are the one that was given.
fn accepted(view: &View<'_>, given: &Recipient, mailbox: &Mailbox, expanded: &Expanded) -> Verdict {
    let is_same = expanded.recipients().len() == 1
        && expanded.recipients().next() == given.path.mailbox()
        && expanded.target(0).is_none();
    let missing = missing_targets(mailbox, expanded);
    let with_missing = |verdict| match missing.is_empty() {
        true => verdict,
        false => Verdict::All(vec![Verdict::Missing(missing.into()), verdict]),
    };
    if is_same {
        return with_missing(Verdict::Pass);
    }
    // A message without a sender keeps that: nobody gets reports on it.
    let has_sender = view.envelope.is_some_and(|envelope| !envelope.reverse_path.is_null());
    let replace = |mailbox, role: Role<'_>| replaced(view, given, mailbox, role);
    with_missing(Verdict::Redirect(recipients(given, expanded, has_sender, &replace)))
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
    // What a program on this machine has handed in waits for the repair, and the queue shows the reason.
    if view.is_queued && !matches!(trouble, Trouble::TooMany { .. }) {
        let reply = if trouble.is_look_up() { LOOKUP_FAILED } else { NOT_EXPANDABLE };
        return Verdict::Defer(Reply::new(reply.code, reply.enhanced, trouble.to_string()));
    }
    tracing::error!("expand {recipient}: {trouble}");
    if trouble.is_lasting() {
        // It would not be different after a while.
        return Verdict::Reject(refusal(trouble, recipient));
    }
    Verdict::Defer(if trouble.is_look_up() { LOOKUP_FAILED } else { NOT_EXPANDABLE })
}

/// The reply to aliases that lead nowhere, and what is wrong with them. Their names are none of the client's business.
fn refusal(trouble: &Trouble, recipient: &str) -> Reply {
    let (code, enhanced, what) = match trouble {
        Trouble::TooMany { limit, .. } => {
            let what = format!("The list has more than {limit} members (addresses.max_list_members)");
            (550, Enhanced(5, 2, 4), what)
        }
        Trouble::Loop(_) => (554, Enhanced(5, 4, 6), "An alias leads back to itself".to_owned()),
        Trouble::TooDeep { limit, .. } => {
            (554, Enhanced(5, 4, 6), format!("More than {limit} aliases lead to one another"))
        }
        _ => (550, Enhanced(5, 1, 1), "No target of this alias exists".to_owned()),
    };
    Reply::new(code, enhanced, format!("<{recipient}>: {what}"))
}

/// Replaces the sender by its canonical address, with its host hidden.
pub(super) fn sender<'a>(
    view: View<'a>,
    expansion: &'a Expansion,
    path: &'a ReversePath,
) -> Answer<'a, Verdict> {
    let ReversePath::Mailbox(mailbox) = path else { return Answer::Ready(Verdict::Pass) };
    Answer::later(async move {
        match expansion.sender(mailbox).await {
            Ok(None) => Verdict::Pass,
            Ok(Some(changed)) => Verdict::ReplaceSender(ReversePath::Mailbox(changed)),
            Err(what) => {
                view.failed("sender", &format_args!("look up the sender {mailbox}: {what}"));
                Verdict::Defer(LOOKUP_FAILED)
            }
        }
    })
}
