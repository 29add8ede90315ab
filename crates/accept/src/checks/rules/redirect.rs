//! The recipients that rules put in the place of others, and those who get copies.

use crate::{
    check::{LOOKUP_FAILED, View},
    checks::{existence, targets},
    expansion::{self, Outcome, missing_targets},
};
use mail::{ForwardPath, Mailbox, Notify, Recipient};
use policy::{Targets, Verdict};
use rewrite::{Role, passed_on};

/// Targets of aliases that do not exist, with the reasons.
pub(crate) type Missing = Vec<(Box<str>, Box<str>)>;

/// Returns the recipients of a copy, of which nobody is notified.
///
/// # Errors
/// The verdict, if an address cannot be expanded now.
pub(super) async fn copies(
    view: &View<'_>,
    targets: Targets,
    missing: &mut Missing,
) -> Result<Vec<Recipient>, Verdict> {
    let Targets { mailboxes, by } = targets;
    let mut all = Vec::new();
    for mailbox in mailboxes {
        let given = Recipient::copy(ForwardPath::Mailbox(mailbox.clone()));
        let expanded = expanded(view, &given, mailbox, &by, missing).await?;
        // The owner of a list is not told of copies either.
        all.extend(expanded.into_iter().map(|mut copy| {
            copy.notify = Notify::NEVER;
            copy.options.get_or_insert_default().is_copy = true;
            copy
        }));
    }
    targets::choose_all(view, all).await
}

/// Returns the recipients that an address stands for which a filter adds. `given` has its options.
///
/// # Errors
/// The verdict, if the address cannot be expanded now.
pub(crate) async fn added(
    view: &View<'_>,
    given: &Recipient,
    mailbox: Mailbox,
    by: &str,
    missing: &mut Missing,
) -> Result<Vec<Recipient>, Verdict> {
    let all = expanded(view, given, mailbox, by, missing).await?;
    targets::choose_all(view, all).await
}

/// Returns the recipients that take the place of the judged one; at the content, of all. They are those of an alias: the
/// parameters of RCPT stay (RFC 3461 §5.2.7), and a list has its owner.
///
/// # Errors
/// The verdict, if an address cannot be expanded now, or the next hop of a single target refuses it.
pub(super) async fn targets_of(
    view: &View<'_>,
    targets: Targets,
    missing: &mut Missing,
) -> Result<Vec<Recipient>, Verdict> {
    let given = match (view.recipient, view.envelope) {
        (Some(recipient), _) => Some(recipient.clone()),
        (None, Some(envelope)) => together(&envelope.recipients),
        (None, None) => None,
    };
    let Targets { mailboxes, by } = targets;
    let mut all = Vec::new();
    for mailbox in mailboxes {
        let given = given.clone().unwrap_or_else(|| Recipient::new(ForwardPath::Mailbox(mailbox.clone())));
        all.extend(expanded(view, &given, mailbox, &by, missing).await?);
    }
    if all.len() > 1 {
        all.iter_mut().filter(|to| !to.is_of_list()).for_each(|to| to.notify.success = false);
    }
    let all = targets::choose_all(view, all).await?;
    if let ([single], Some(verifier)) = (&all[..], view.rules.sources.verifier()) {
        match existence::verify(verifier, *view, single).await {
            Verdict::Pass => {}
            Verdict::Redirect(others) => return Ok(others),
            refused => return Err(refused),
        }
    }
    Ok(all)
}

/// Stands for several recipients: what one of them does not want to be reported is not, and a single one keeps its ORCPT.
fn together(recipients: &[Recipient]) -> Option<Recipient> {
    let mut all = recipients.iter();
    let mut one = Recipient { options: None, ..all.next()?.clone() };
    for other in all {
        one.notify = Notify {
            success: one.notify.success && other.notify.success,
            failure: one.notify.failure && other.notify.failure,
            delay: one.notify.delay && other.notify.delay,
            explicit: one.notify.explicit || other.notify.explicit,
        };
        one.orcpt = None;
    }
    Some(one)
}

/// Expands one target by the aliases, as that of a local program.
async fn expanded(
    view: &View<'_>,
    given: &Recipient,
    mailbox: Mailbox,
    by: &str,
    missing: &mut Missing,
) -> Result<Vec<Recipient>, Verdict> {
    let refused = || Verdict::Defer(LOOKUP_FAILED.with_rule(Some(by.into())));
    let unknown = || {
        view.note("redirect", || format!("{mailbox} does not exist"));
        tracing::error!("{by} sends mail to {mailbox}, which does not exist");
        Err(refused())
    };
    let Some(expansion) = view.rules.expansion else {
        let path = ForwardPath::Mailbox(mailbox.clone());
        let policy = view.rules.policy;
        if policy.is_for_postmaster(&path) {
            return Ok(vec![passed_on(given, view.rules.settings.postmaster.clone(), Role::Single)]);
        }
        if !policy.knows(&path) {
            return unknown();
        }
        return Ok(vec![passed_on(given, mailbox, Role::Single)]);
    };
    match expansion.expand(mailbox.clone(), view.mailboxes()).await {
        Outcome::Recipients(expanded) => {
            missing.extend(missing_targets(&mailbox, &expanded));
            let has_sender = view.envelope.is_some_and(|envelope| !envelope.reverse_path.is_null());
            let replace = |mailbox, role: Role<'_>| passed_on(given, mailbox, role);
            Ok(expansion::recipients(given, &expanded, has_sender, &replace))
        }
        Outcome::NoSuchUser => unknown(),
        Outcome::Failed(trouble) => {
            view.failed("redirect", &format_args!("expand {mailbox}, to which {by} sends mail: {trouble}"));
            Err(refused())
        }
    }
}
