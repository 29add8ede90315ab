//! The check that adds recipients who get a copy (`bcc`).

use super::targets;
use crate::{
    check::{Check, LOOKUP_FAILED, View},
    memory::CheckMemory,
    own_address::has_own_domain,
};
use inbound::Answer;
use mail::{ForwardPath, Mailbox, Recipient, ReversePath};
use maps::Reference;
use policy::{Source, Stage, Verdict};
use rewrite::{Target, TargetList, map_keys};

/// Adds the addresses of `addresses.bcc` and of the maps beside it. It is asked last, so that a recipient who is refused
/// has no copy.
pub(crate) struct Copies;

impl Check for Copies {
    fn stages(&self) -> Vec<Stage> {
        vec![Stage::Rcpt]
    }

    fn check<'a>(&'a self, _: Option<&'a mut dyn CheckMemory>, view: View<'a>) -> Answer<'a, Verdict> {
        let (Some(recipient), Some(envelope)) = (view.recipient, view.envelope) else {
            return Answer::Ready(Verdict::Pass);
        };
        if view.facts.source == Source::Report {
            return Answer::Ready(Verdict::Pass);
        }
        Answer::later(async move {
            match copies(&view, recipient, &envelope.reverse_path).await {
                Ok(copies) if copies.is_empty() => Verdict::Pass,
                Ok(copies) => {
                    let chosen = targets::choose_all(&view, copies).await;
                    chosen.map_or_else(|refused| refused, Verdict::Bcc)
                }
                Err(what) => {
                    view.failed(
                        "copies",
                        &format_args!("look up the copies of mail for {}: {what}", recipient.path),
                    );
                    Verdict::Defer(LOOKUP_FAILED)
                }
            }
        })
    }
}

async fn copies(
    view: &View<'_>,
    recipient: &Recipient,
    sender: &ReversePath,
) -> Result<Vec<Recipient>, String> {
    let addresses = &view.rules.settings.addresses;
    let mut to = addresses.bcc.clone();
    if let ReversePath::Mailbox(sender) = sender {
        to.extend(found(view, &addresses.sender_bcc, sender).await?);
    }
    if let Some(mailbox) = recipient.path.mailbox() {
        to.extend(found(view, &addresses.recipient_bcc, mailbox).await?);
    }
    // A copy for somebody who gets the mail anyway would be a second one.
    to.retain(|mailbox| recipient.path.mailbox().map(Mailbox::key) != Some(mailbox.key()));
    Ok(to.into_iter().map(|mailbox| Recipient::copy(ForwardPath::Mailbox(mailbox))).collect())
}

/// Returns the addresses that maps have for an address.
async fn found(view: &View<'_>, maps: &[Reference], mailbox: &Mailbox) -> Result<Vec<Mailbox>, String> {
    if maps.is_empty() {
        return Ok(Vec::new());
    }
    let settings = view.rules.settings;
    for key in map_keys(mailbox, settings.addresses.separator.0, has_own_domain(mailbox, settings)) {
        let value = view.rules.maps.first_address(maps, &key).await.map_err(|error| error.to_string())?;
        let Some(value) = value else { continue };
        let address = |target| match target {
            Ok(Target::Mailbox(mailbox)) => Ok(mailbox),
            Ok(_) => Err(format!("{key}: the value is not an address; write user@example.com")),
            Err(error) => Err(format!("{key}: {error}")),
        };
        return TargetList::new(&value).map(address).collect();
    }
    Ok(Vec::new())
}
