//! The check of addresses: who may send where, and which addresses stand for others.

mod expanded;

use super::{Check, Rules, View};
use crate::own_address;
use engine::accept::{Source, Stage, Verdict};
use inbound::Answer;
use mail::{AliasTarget, Destination, Enhanced, ForwardPath, NextHop, Recipient, Reply};
use policy::SessionFacts;

/// Refuses mail of clients that is not ours to take. Redirects mail for address literals of this machine, for the
/// postmaster (RFC 5321 §4.5.1), for a root whose mail is not read, and for aliases. Replaces senders by the addresses
/// that others may see.
pub(crate) struct Addresses;

impl Check for Addresses {
    fn stages(&self) -> Vec<Stage> {
        vec![Stage::Mail, Stage::Rcpt]
    }

    fn judges_addresses(&self) -> bool {
        true
    }

    fn check<'a>(&'a self, view: View<'a>) -> Answer<'a, Verdict> {
        match (view.rules.expansion, view.recipient, view.envelope) {
            (None, Some(recipient), _) => Answer::Ready(judge(&view, recipient)),
            (Some(expansion), Some(recipient), _) => {
                Answer::later(expanded::recipient(expansion, view, recipient))
            }
            (Some(expansion), None, Some(envelope)) => expanded::sender(expansion, &envelope.reverse_path),
            _ => Answer::Ready(Verdict::Pass),
        }
    }
}

/// Returns whether the recipient can be delivered to, where a Maildir or a file is named after it, or a program gets its
/// address.
///
/// # Errors
/// The reply that refuses it. Mail for it would be returned later.
fn is_deliverable(path: &ForwardPath, view: &View<'_>) -> Result<(), Reply> {
    // Where maps decide on routes, the next check says it when they have answered.
    if view.rules.routes.ask_maps() {
        return Ok(());
    }
    has_account(path, None, view)?;
    can_deliver(path, view, || {
        view.rules.routes.recipient(path, view.envelope.map(|envelope| &envelope.reverse_path))
    })
}

/// As [`is_deliverable`], for a recipient whose route is chosen.
pub(super) fn is_deliverable_by(recipient: &Recipient, view: &View<'_>) -> Result<(), Reply> {
    if recipient.is_alias() {
        return Ok(());
    }
    has_account(&recipient.path, recipient.target(), view)?;
    can_deliver(&recipient.path, view, || {
        view.rules.routes.destination(recipient, view.envelope.map(|envelope| &envelope.reverse_path))
    })
}

/// The verdict on a recipient that cannot be delivered to: on one of an alias, a temporary one.
pub(super) fn undeliverable(recipient: &Recipient, reply: Reply) -> Verdict {
    if recipient.expansion().is_none() {
        return Verdict::Reject(reply);
    }
    tracing::error!("{}: no mailbox here can have this name", recipient.path);
    Verdict::Defer(expanded::NOT_EXPANDABLE)
}

/// Returns whether a recipient is a user as whom mail is delivered, where its route writes files as the user that it names. The
/// delivery helper asks the same: users of the system, such as daemon and www-data, have no mailbox.
///
/// # Errors
/// The reply that refuses it.
fn has_account(path: &ForwardPath, target: Option<&AliasTarget>, view: &View<'_>) -> Result<(), Reply> {
    let Rules { settings, routes, .. } = view.rules;
    let sender = view.envelope.map(|envelope| &envelope.reverse_path);
    let Some(mailbox) = path.mailbox().filter(|_| routes.needs_account(path, target, sender)) else {
        return Ok(());
    };
    let local = mailbox.local_name();
    let split = settings.addresses.separator.0.and_then(|separator| separator.split(&local));
    let name = split.map_or(&*local, |(user, _)| user);
    match config::local_user(name) {
        Ok(user) if user.as_ref().is_some_and(|user| settings.process.may_deliver_as(user.uid)) => Ok(()),
        Ok(_) => Err(policy::no_such_user(mailbox)),
        Err(e) => {
            tracing::error!(
                "<{mailbox}> is taken without a look at the users of this machine: read /etc/passwd: {e}"
            );
            Ok(())
        }
    }
}

/// Returns whether this is a postmaster's address, which is never refused for good (RFC 5321 §4.5.1).
fn is_postmaster(path: &ForwardPath, view: &View<'_>) -> bool {
    let separator = view.rules.settings.addresses.separator.0;
    path.mailbox().is_none_or(|mailbox| rewrite::is_named(mailbox, separator, "postmaster"))
}

/// The verdict on a recipient of a client whose mail cannot be delivered.
fn refusal(path: &ForwardPath, reply: Reply, view: &View<'_>) -> Verdict {
    if !is_postmaster(path, view) {
        return Verdict::Reject(reply);
    }
    tracing::error!(
        "mail for {path} cannot be delivered: {}; write an alias, such as `postmaster: jane`, or another `postmaster`",
        reply.text()
    );
    Verdict::Defer(expanded::NOT_EXPANDABLE)
}

fn can_deliver(
    path: &ForwardPath,
    view: &View<'_>,
    destination: impl FnOnce() -> Destination,
) -> Result<(), Reply> {
    let rules = view.rules;
    let separator = rules.settings.addresses.separator.0;
    let Some(mailbox) = path.mailbox() else { return Ok(()) };
    // Few local parts need to be routed for this.
    if !mailbox.local().contains('-') && delivery::can_have_maildir(mailbox, separator) {
        return Ok(());
    }
    let can = match destination().next_hop {
        // One mailbox for all needs no name of theirs.
        NextHop::Maildir(path) | NextHop::Mbox(path) if !path.contains('{') => true,
        NextHop::Maildir(_) | NextHop::Mbox(_) => delivery::can_have_maildir(mailbox, separator),
        NextHop::Pipe(program) => delivery::can_run(&program, mailbox, separator),
        _ => true,
    };
    if can {
        return Ok(());
    }
    let text = format!("<{mailbox}>: no mailbox here can have this name");
    Err(Reply::new(550, Enhanced(5, 1, 1), text))
}

/// Returns whether the recipient that is judged may be given by this client; `None` if maps have to be waited for.
pub(super) fn is_ours(view: &View<'_>) -> Option<bool> {
    let (Some(session), Some(recipient)) = (session_facts(view), view.recipient) else { return Some(true) };
    let Source::Smtp { local, .. } = &view.facts.source else { return Some(true) };
    let own = own_address::resolve(&recipient.path, view.rules.settings, Some(local.ip()));
    let Some(mailbox) = own.as_ref().unwrap_or(&recipient.path).mailbox() else { return Some(true) };
    let policy = view.rules.policy;
    if policy.may_send_anywhere(&session) || policy.is_local(&mailbox.domain().key()) {
        return Some(true);
    }
    if view.rules.settings.local.domain_maps.is_empty() { Some(false) } else { None }
}

/// As [`is_ours`], by the maps of local domains. A map that does not answer is a no: the next check says so to the client.
pub(super) async fn is_ours_by_maps(view: &View<'_>) -> bool {
    let (Some(expansion), Some(recipient)) = (view.rules.expansion, view.recipient) else { return false };
    let Some(mailbox) = recipient.path.mailbox() else { return true };
    expansion.is_local(&mailbox.domain().key()).await.unwrap_or(false)
}

/// The facts of a client's session that decide where it may send; none for programs on this machine.
pub(super) fn session_facts(view: &View<'_>) -> Option<SessionFacts> {
    let Source::Smtp { peer, listener, .. } = view.facts.source else { return None };
    Some(SessionFacts { client: peer.ip(), listener, has_login: view.facts.login.is_some() })
}

/// Judges a recipient where nothing has to be looked up.
fn judge(view: &View<'_>, recipient: &Recipient) -> Verdict {
    let Rules { settings, policy, .. } = view.rules;
    let (client, connected_to) = match &view.facts.source {
        Source::Smtp { peer, local, .. } => (Some(peer.ip()), Some(local.ip())),
        Source::Local { .. } | Source::Report => (None, None),
    };
    let own = own_address::resolve(&recipient.path, settings, connected_to);
    let path = own.as_ref().unwrap_or(&recipient.path);
    let judged = session_facts(view).map_or(Ok(()), |session| policy.recipient(&session, path));
    // What this machine sends to a name that no Maildir can have is returned by a report.
    if let Err(reply) = judged {
        return Verdict::Reject(reply);
    }
    // Programs on this machine write to root as well.
    let is_for_postmaster =
        policy.is_for_postmaster(path) || client.is_none() && policy.is_for_absent_root(path);
    let path = if is_for_postmaster { Some(ForwardPath::Mailbox(settings.postmaster.clone())) } else { own };
    let last = path.as_ref().unwrap_or(&recipient.path);
    if let Some(Err(reply)) = client.map(|_| is_deliverable(last, view)) {
        return refusal(last, reply, view);
    }
    path.map_or(Verdict::Pass, |path| Verdict::Redirect(vec![Recipient { path, ..recipient.clone() }]))
}
