//! Mail for the postmaster, which every server takes: whether somebody reads it.

use crate::{
    expansion::{Expansion, Outcome},
    mailboxes::Mailboxes,
    routes::{self, Routes},
};
use config::Settings;
use mail::{ForwardPath, Mailbox, NextHop};
use rewrite::Expanded;

/// Returns a warning if nobody reads the mail for the postmaster: it is not refused (RFC 5321 §4.5.1). A map that does not answer
/// now says nothing.
pub async fn unread_postmaster(
    settings: &Settings,
    routes: &Routes,
    expansion: Option<&Expansion>,
) -> Option<String> {
    let (mailboxes, postmaster) = (Mailboxes { settings, routes, sender: None }, &settings.postmaster);
    let expanded = match expansion {
        Some(expansion) => match expansion.expand_given(postmaster, true, mailboxes).await {
            Outcome::Recipients(expanded) => expanded,
            Outcome::NoSuchUser | Outcome::Failed(_) => return None,
        },
        None if mailboxes.has(postmaster).await.ok()? => Expanded::single(postmaster.clone(), None),
        None => Expanded::single(routes::last_resort(settings)?, Some(routes::to_last_resort())),
    };
    let mut unread = Vec::new();
    for (index, mailbox) in expanded.recipients().enumerate() {
        let destination = match expanded.target(index) {
            None => routes.recipient(&ForwardPath::Mailbox(mailbox.clone()), None),
            Some(target) => routes.alias_target(target, &ForwardPath::Mailbox(mailbox.clone())),
        };
        let is_user = match expansion {
            Some(expansion) => expansion.is_user(mailbox).await.ok()?,
            None => !settings.is_local(&mailbox.domain().key()) || is_listed(settings, mailbox),
        };
        let is_here = matches!(&destination.next_hop, NextHop::Maildir(_) | NextHop::Mbox(_));
        if is_here && (!is_user || expanded.target(index).is_some()) {
            unread.push(mailboxes.place(&destination, mailbox));
        }
    }
    if unread.is_empty() || unread.len() < expanded.recipients().len() {
        return None;
    }
    let aliases = settings
        .addresses
        .aliases
        .first()
        .map_or_else(String::new, |map| format!(", or `postmaster: jane` into {map}"));
    Some(format!(
        "nobody reads the mail for postmaster: it goes to {}, which belongs to no user; write the address of a person into `postmaster`, \
         such as postmaster = \"jane@{}\"{aliases}",
        unread.join(", "),
        settings.hostname
    ))
}

/// Returns whether the users that are listed by name have a mailbox among them; all exist where none is listed.
fn is_listed(settings: &Settings, mailbox: &Mailbox) -> bool {
    let separator = settings.addresses.separator.0;
    let is_it = |user: &String| rewrite::is_named(mailbox, separator, &mail::fold(user));
    settings.local.users.as_ref().is_none_or(|users| users.iter().any(is_it))
}
