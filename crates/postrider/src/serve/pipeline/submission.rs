//! Checks of mail from logins (RFC 6409): the sender is the user's own, and the header is complete.

use super::{Check, View};
use engine::accept::{Source, Stage, Verdict};
use inbound::Answer;
use mail::{Edit, Field, UnixMillis, header::ContentScanner};
use smtp::server::replies;
use std::sync::atomic::{AtomicU64, Ordering};

/// Refuses senders that the login does not own (RFC 6409 §6.1).
pub(crate) struct SenderOfLogin;

impl Check for SenderOfLogin {
    fn stages(&self) -> &'static [Stage] {
        &[Stage::Mail]
    }

    fn check<'a>(&'a self, view: View<'a>) -> Answer<'a, Verdict> {
        let (Some(login), Some(envelope)) = (&view.facts.login, view.envelope) else {
            return Answer::Ready(Verdict::Pass);
        };
        let owns = view.rules.policy.owns(login, &envelope.reverse_path);
        Answer::Ready(if owns { Verdict::Pass } else { Verdict::Reject(replies::NOT_YOUR_ADDRESS) })
    }
}

/// Adds the fields that a mail program has left to the server (RFC 6409 §8).
#[derive(Default)]
pub(crate) struct MissingFields {
    count: AtomicU64,
}

impl Check for MissingFields {
    fn stages(&self) -> &'static [Stage] {
        &[Stage::Header]
    }

    fn check<'a>(&'a self, view: View<'a>) -> Answer<'a, Verdict> {
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
