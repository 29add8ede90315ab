//! A reverse-path for each recipient (VERP), for the senders of `addresses.verp`.

use config::Addresses;
use mail::{Envelope, ReturnPath, ReversePath};

/// A message with more recipients keeps its reverse-path: if all of them failed together, each would get a notification.
const RECIPIENTS_MAX: usize = 1_000;

/// Gives each recipient a reverse-path of its own, if the message, or the list that the recipient is a member of, is sent
/// by one of these senders.
pub fn apply(settings: &Addresses, envelope: &mut Envelope) {
    let (false, Some(separator)) = (settings.verp.is_empty(), settings.separator.0) else { return };
    let Envelope { reverse_path, recipients, .. } = envelope;
    if recipients.len() > RECIPIENTS_MAX {
        return;
    }
    for recipient in recipients {
        let sender = recipient.return_path().map_or(&*reverse_path, |own| &own.path);
        let (ReversePath::Mailbox(sender), Some(mailbox)) = (sender, recipient.path.mailbox()) else {
            continue;
        };
        if !settings.verp.iter().any(|pattern| pattern.matches(sender)) {
            continue;
        }
        if let Some(path) = rewrite::verp(sender, mailbox, separator) {
            let (path, is_list) = (ReversePath::Mailbox(path), recipient.is_of_list());
            recipient.set_return_path(ReturnPath { path, is_list });
        }
    }
}
