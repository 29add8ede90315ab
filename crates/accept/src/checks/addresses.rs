//! The check of addresses: who may send where, and which addresses stand for others.

mod expanded;

use super::targets;
use crate::{
    check::{Check, Rules, View},
    decisions::Decisions,
    mailboxes::Refused,
    memory::CheckMemory,
    own_address, routes,
};
use config::Settings;
use inbound::Answer;
use mail::{ForwardPath, Recipient, Reply};
use policy::{Source, Stage, Verdict};
use smtp::server::replies;

/// Refuses mail of clients that is not ours to take. Redirects mail for address literals of this machine, for the
/// postmaster (RFC 5321 §4.5.1), for a root whose mail is not read, and for aliases. Replaces senders by the addresses
/// that others may see.
pub struct Addresses;

impl Check for Addresses {
    fn stages(&self) -> Vec<Stage> {
        vec![Stage::Mail, Stage::Rcpt]
    }

    fn judges_addresses(&self) -> bool {
        true
    }

    fn check<'a>(&'a self, _: Option<&'a mut dyn CheckMemory>, view: View<'a>) -> Answer<'a, Verdict> {
        match (view.rules.expansion, view.recipient, view.envelope) {
            (None, Some(recipient), _) => judge(view, recipient),
            (Some(expansion), Some(recipient), _) => {
                Answer::later(expanded::recipient(expansion, view, recipient))
            }
            (Some(expansion), None, Some(envelope)) => {
                expanded::sender(view, expansion, &envelope.reverse_path)
            }
            _ => Answer::Ready(Verdict::Pass),
        }
    }
}

/// Returns the recipient for mail that the postmaster's own mailbox cannot take, which is never refused (RFC 5321 §4.5.1).
fn last_resort(given: &Recipient, settings: &Settings) -> Option<Recipient> {
    let path = ForwardPath::Mailbox(routes::last_resort(settings)?);
    let mut recipient = Recipient { path, ..given.clone() };
    recipient.set_route(routes::LAST_RESORT);
    Some(recipient)
}

/// Returns whether the recipient that is judged may be given by this client; `None` if maps have to be waited for.
pub(super) fn is_ours(view: &View<'_>) -> Option<bool> {
    let Some(recipient) = view.recipient else { return Some(true) };
    let Source::Smtp { local, .. } = &view.facts.source else { return Some(true) };
    let own = own_address::resolve(&recipient.path, view.rules.settings, Some(local.ip()));
    let Some(mailbox) = own.as_ref().unwrap_or(&recipient.path).mailbox() else { return Some(true) };
    let policy = view.rules.policy;
    if policy.may_send_anywhere(view.facts) || policy.is_local(&mailbox.domain().key()) {
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

/// Judges a recipient where no map has to be asked.
fn judge<'a>(view: View<'a>, recipient: &'a Recipient) -> Answer<'a, Verdict> {
    let Rules { settings, policy, .. } = view.rules;
    let (client, connected_to) = match &view.facts.source {
        Source::Smtp { peer, local, .. } => (Some(peer.ip()), Some(local.ip())),
        Source::Local { .. } | Source::Report => (None, None),
    };
    let own = own_address::resolve(&recipient.path, settings, connected_to);
    let path = own.as_ref().unwrap_or(&recipient.path);
    if let Err(reply) = policy.recipient(view.facts, path) {
        return Answer::Ready(Verdict::Reject(reply));
    }
    // Programs on this machine write to root as well.
    let is_for_postmaster =
        policy.is_for_postmaster(path) || client.is_none() && policy.is_for_absent_root(path);
    let path = if is_for_postmaster { Some(ForwardPath::Mailbox(settings.postmaster.clone())) } else { own };
    let last = path.as_ref().unwrap_or(&recipient.path);
    // Where maps decide on routes, the next check says it when they have answered.
    let is_checked = (client.is_some() || is_for_postmaster) && !view.rules.routes.ask_maps();
    let checked = if is_checked { view.mailboxes().check(last, None) } else { Answer::Ready(Ok(())) };
    checked.map(move |checked| {
        let last = path.as_ref().unwrap_or(&recipient.path);
        match checked {
            Ok(()) => path.map_or(Verdict::Pass, |path| {
                Verdict::Redirect(vec![Recipient { path, ..recipient.clone() }])
            }),
            Err(Refused::Unknown(error)) => targets::failed(&view, recipient, &error),
            Err(Refused::Address(reply)) => last_resort(recipient, settings)
                .filter(|_| is_for_postmaster || is_postmaster(last, &view))
                .map_or(Verdict::Reject(reply), |kept| Verdict::Redirect(vec![kept])),
        }
    })
}

/// Returns whether this is a postmaster's address.
fn is_postmaster(path: &ForwardPath, view: &View<'_>) -> bool {
    let separator = view.rules.settings.addresses.separator.0;
    path.mailbox().is_none_or(|mailbox| rewrite::is_named(mailbox, separator, "postmaster"))
}

/// Expands a recipient of a message that is queued. Routes by maps are chosen; no other check is asked again. `decisions` note the
/// targets that do not exist.
///
/// # Errors
/// The reply that would refuse the recipient, or ask to try again.
pub(crate) async fn expand(view: View<'_>, decisions: &mut Decisions) -> Result<Vec<Recipient>, Reply> {
    let (view, given) = (View { is_queued: true, ..view }, view.recipient.into_iter().cloned());
    let reply = |verdict| match verdict {
        Verdict::Reject(reply) | Verdict::Defer(reply) => reply,
        // The check of addresses has no other verdict on a recipient.
        _ => replies::LOCAL_ERROR,
    };
    let mut verdict = Addresses.check(None, view).wait().await;
    if let Verdict::All(verdicts) = verdict {
        verdict = Verdict::Pass;
        for one in verdicts {
            match one {
                Verdict::Missing(_) => _ = decisions.note(view.stage, one, 0),
                one => verdict = one,
            }
        }
    }
    let recipients = match verdict {
        Verdict::Pass => given.collect(),
        Verdict::Redirect(recipients) | Verdict::Settle(recipients) => recipients,
        refused => return Err(reply(refused)),
    };
    targets::choose_all(&view, recipients).await.map_err(reply)
}
