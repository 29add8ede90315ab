//! The check of recipients whose next hop says whether they exist.

use crate::{
    check::{Check, View},
    memory::CheckMemory,
    observer::duration,
    verifier::Verifier,
};
use delivery::Existence;
use inbound::Answer;
use mail::{Enhanced, ForwardPath, Mailbox, Recipient, Reply};
use policy::{Source, Stage, Verdict};
use std::{sync::Arc, time::Instant};

/// Refuses recipients that their next hop refuses, where a route says `verify`. Of a list that an alias stands for,
/// no member is asked for: one that left must not stop the mail of the others.
pub(crate) struct KnownToNextHop {
    verifier: Arc<Verifier>,
}

impl KnownToNextHop {
    pub(crate) fn new(verifier: Arc<Verifier>) -> Self {
        Self { verifier }
    }
}

impl Check for KnownToNextHop {
    fn stages(&self) -> Vec<Stage> {
        vec![Stage::Rcpt]
    }

    fn judges_addresses(&self) -> bool {
        true
    }

    fn check<'a>(&'a self, _: Option<&'a mut dyn CheckMemory>, view: View<'a>) -> Answer<'a, Verdict> {
        let Some(recipient) = view.recipient.filter(|_| view.replacement_count == 1) else {
            return Answer::Ready(Verdict::Pass);
        };
        if !is_asked(&view, recipient) {
            return Answer::Ready(Verdict::Pass);
        }
        Answer::later(verify(&self.verifier, view, recipient))
    }
}

/// Returns whether the next hop of a recipient is asked. The postmaster is never refused (RFC 5321 §4.5.1): what the
/// next hop refuses later waits in the queue.
fn is_asked(view: &View<'_>, recipient: &Recipient) -> bool {
    let is_client = matches!(view.facts.source, Source::Smtp { .. });
    let sender = view.envelope.map(|envelope| &envelope.reverse_path);
    is_client
        && !recipient.is_alias()
        && view.rules.routes.is_verified(recipient, sender)
        && recipient.path.mailbox().is_some_and(|to| to.key() != view.rules.settings.postmaster.key())
}

/// Asks the next hop of a recipient, if its route says `verify`.
pub(super) async fn verify(verifier: &Arc<Verifier>, view: View<'_>, recipient: &Recipient) -> Verdict {
    let Some(mailbox) = recipient.path.mailbox().filter(|_| is_asked(&view, recipient)) else {
        return Verdict::Pass;
    };
    let sender = view.envelope.map(|envelope| &envelope.reverse_path);
    let destination = view.rules.routes.destination(recipient, sender);
    let (asked, begun) = (destination.to_string(), Instant::now());
    let existence = verifier.existence(destination, mailbox.clone()).await;
    view.note(&format!("{asked} {mailbox}"), || {
        let text = match &existence {
            Existence::Exists => "accepted".to_owned(),
            Existence::Refused(reply) => format!("refused: {reply}"),
            Existence::Unclear(why) => format!("no answer: {why}"),
        };
        format!("{text}, {}", duration(begun.elapsed()))
    });
    match existence {
        Existence::Exists => Verdict::Pass,
        Existence::Refused(reply) => refused(&view, recipient, mailbox, &reply).await,
        Existence::Unclear(_) => {
            let text = format!("<{mailbox}>: cannot be verified now, try again later");
            Verdict::Defer(Reply::new(451, Enhanced(4, 4, 1), text))
        }
    }
}

/// The verdict on a recipient that the next hop refuses. Every local domain has a postmaster (RFC 5321 §4.5.1).
async fn refused(view: &View<'_>, recipient: &Recipient, mailbox: &Mailbox, reply: &Reply) -> Verdict {
    if is_postmaster(view, mailbox) && is_local(view, mailbox).await {
        let path = ForwardPath::Mailbox(view.rules.settings.postmaster.clone());
        return Verdict::Redirect(vec![Recipient { path, ..recipient.clone() }]);
    }
    Verdict::Reject(match reply.enhanced {
        None | Some(Enhanced(_, 0, _) | Enhanced(_, 1, 1)) => policy::no_such_user(mailbox),
        Some(Enhanced(_, subject, detail)) => {
            Reply::new(550, Enhanced(5, subject, detail), format!("<{mailbox}>: {}", reply.excerpt()))
        }
    })
}

fn is_postmaster(view: &View<'_>, mailbox: &Mailbox) -> bool {
    rewrite::is_named(mailbox, view.rules.settings.addresses.separator.0, "postmaster")
}

async fn is_local(view: &View<'_>, mailbox: &Mailbox) -> bool {
    let key = mailbox.domain().key();
    match view.rules.expansion {
        Some(expansion) => expansion.is_local(&key).await.unwrap_or(false),
        None => view.rules.policy.is_local(&key),
    }
}
