//! Checks of mail from logins (RFC 6409): the sender is the user's own, and the header is complete.

use crate::{
    check::{Check, LOOKUP_FAILED, Rules, View},
    memory::CheckMemory,
};
use inbound::Answer;
use mail::{Domain, Edit, Field, Mailbox, ReversePath, UnixMillis, header::ContentScanner};
use policy::{Source, Stage, Verdict};
use smtp::server::replies;
use std::sync::atomic::{AtomicU64, Ordering};

/// Refuses senders that the login does not own (RFC 6409 §6.1).
pub(crate) struct SenderOfLogin;

impl Check for SenderOfLogin {
    fn stages(&self) -> Vec<Stage> {
        vec![Stage::Mail]
    }

    fn check<'a>(&'a self, _: Option<&'a mut dyn CheckMemory>, view: View<'a>) -> Answer<'a, Verdict> {
        let login = view.facts.login.as_ref().or(view.facts.named_login.as_ref());
        let (Some(login), Some(envelope)) = (login, view.envelope) else {
            return Answer::Ready(Verdict::Pass);
        };
        let sender = &envelope.reverse_path;
        if view.rules.policy.owns(login, sender) {
            return Answer::Ready(Verdict::Pass);
        }
        let ReversePath::Mailbox(sender) = sender else {
            return Answer::Ready(Verdict::Reject(replies::NOT_YOUR_ADDRESS));
        };
        owns_by_maps(view.rules, login, sender).map(|owns| match owns {
            Ok(true) => Verdict::Pass,
            Ok(false) => Verdict::Reject(replies::NOT_YOUR_ADDRESS),
            Err(()) => Verdict::Defer(LOOKUP_FAILED),
        })
    }
}

/// Returns whether maps give an address to a login that does not own it by its name.
///
/// # Errors
/// A map does not answer; the log says why.
pub(super) fn owns_by_maps<'a>(
    rules: Rules<'a>,
    login: &'a str,
    sender: &'a Mailbox,
) -> Answer<'a, Result<bool, ()>> {
    let Rules { settings, policy, expansion, .. } = rules;
    // A domain that no map has to be asked for has been looked at.
    let domains =
        expansion.filter(|_| !settings.local.domain_maps.is_empty() && policy.has_name(login, sender));
    if domains.is_none() && settings.auth.senders.is_none() {
        return Answer::Ready(Ok(false));
    }
    Answer::later(async move {
        if let Some(expansion) = domains {
            match expansion.is_local(&sender.domain().key()).await {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => {
                    tracing::error!("look up the domain of {sender}, the sender of {login}: {error}");
                    return Err(());
                }
            }
        }
        let Some(map) = &settings.auth.senders else { return Ok(false) };
        // Keys of maps are in lower case.
        match rules.maps.get(map, &login.to_lowercase()).wait().await {
            Ok(Some(addresses)) => Ok(has_address(&addresses, sender)),
            Ok(None) => Ok(false),
            Err(error) => {
                tracing::error!("look up the senders of {login}: {error}");
                Err(())
            }
        }
    })
}

/// Returns whether a sender is in a list of addresses, or in a domain of it.
fn has_address(list: &str, sender: &Mailbox) -> bool {
    list.split([',', ' ', '\t']).filter(|item| !item.is_empty()).any(|item| match item.strip_prefix('@') {
        Some(domain) => Domain::parse(domain).is_ok_and(|domain| domain.key() == sender.domain().key()),
        None if item == "*" => true,
        None => Mailbox::parse(item, true).is_ok_and(|own| own.key() == sender.key()),
    })
}

/// Adds the fields that a mail program has left to the server (RFC 6409 §8).
#[derive(Default)]
pub(crate) struct MissingFields {
    count: AtomicU64,
}

impl Check for MissingFields {
    fn stages(&self) -> Vec<Stage> {
        vec![Stage::Header]
    }

    fn check<'a>(&'a self, _: Option<&'a mut dyn CheckMemory>, view: View<'a>) -> Answer<'a, Verdict> {
        let is_submission =
            matches!(&view.facts.source, Source::Smtp { listener, .. } if listener.needs_login());
        if !is_submission {
            return Answer::Ready(Verdict::Pass);
        }
        let mut scanner = ContentScanner::default();
        scanner.scan(view.header);
        let (found, now) = (scanner.summary(), UnixMillis::now());
        let date = (!found.date).then(|| ("Date", now.rfc5322()));
        let id = (!found.message_id).then(|| {
            // No other message of this process has the number, and no other process its id in this millisecond.
            let number = self.count.fetch_add(1, Ordering::Relaxed);
            let host = &view.rules.settings.hostname;
            ("Message-ID", format!("<{}.{}.{number}@{host}>", now.0, std::process::id()))
        });
        let fields = [date, id].into_iter().flatten();
        let edits: Vec<Edit> =
            fields.filter_map(|(name, value)| Field::new(name, &value).ok().map(Edit::Append)).collect();
        Answer::Ready(if edits.is_empty() {
            Verdict::Pass
        } else {
            Verdict::Edit(edits.into_iter().collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_addresses_and_domains() {
        let has = |list: &str, sender: &str| has_address(list, &Mailbox::parse(sender, true).unwrap());
        for (list, sender) in [
            ("jane@a.test", "Jane@A.test"),
            ("x@b.test, jane@a.test", "jane@a.test"),
            ("x@b.test\t@a.test", "anybody@a.test"),
            ("*", "x@y.test"),
        ] {
            assert!(has(list, sender), "{list}: {sender}");
        }
        for (list, sender) in [
            ("", "jane@a.test"),
            ("jane@a.test", "joe@a.test"),
            ("@a.test", "jane@b.a.test"),
            ("a.test jane", "jane@a.test"),
            ("jane@a.test", "\"jane@a.test\"@b.test"),
        ] {
            assert!(!has(list, sender), "{list}: {sender}");
        }
    }
}
