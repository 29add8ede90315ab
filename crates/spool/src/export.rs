//! A message outside of a spool, without its content: for copies that a backup keeps.

use crate::{Recovered, SpoolFailure, format::message};
use mail::{Content, Message, QueueId};

/// Writes everything of a message but its content: a record of docs/spool-format.md whose content has no parts, with what
/// became of the recipients.
pub fn export_envelope(found: &Recovered) -> Vec<u8> {
    let content = Content::new(found.message.content.traits, []);
    let message = Message { content, ..Message::clone(&found.message) };
    let mut out = Vec::new();
    message::write_message_again(&mut out, &message, Some((&found.recipients, found.held.as_deref())), &[]);
    out
}

/// Reads what [`export_envelope`] wrote. The content of the message has no parts, and the traits that were written.
///
/// # Errors
/// [`SpoolFailure::Corrupt`] when the bytes are something else.
pub fn import_envelope(id: QueueId, bytes: &[u8]) -> Result<Recovered, SpoolFailure> {
    let corrupt = |what: &str| SpoolFailure::Corrupt(format!("the envelope of {id}: {what}"));
    let stored = message::read_message(id, bytes, false).map_err(|malformed| corrupt(malformed.0))?;
    let count = stored.message.envelope.recipients.len();
    let states = stored.states.filter(|states| states.len() == count);
    let recipients = states.ok_or_else(|| corrupt("it does not say what became of the recipients"))?;
    if count == 0 || !stored.message.content.parts().is_empty() {
        return Err(corrupt("it has no recipients, or content"));
    }
    Ok(Recovered { message: stored.message.into(), recipients, held: stored.held })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecipientState;
    use mail::{
        DeliveryOptions, Enhanced, Envelope, ForwardPath, Outcome, Recipient, ReversePath, UnixMillis,
    };

    fn found() -> Recovered {
        let mut envelope = Envelope::new(ReversePath::Null);
        for address in ["a@example.com", "b@example.com"] {
            envelope.recipients.push(Recipient::new(ForwardPath::parse(address, false).unwrap()));
        }
        envelope.options = DeliveryOptions { requiretls: true, ..DeliveryOptions::default() }.boxed();
        let content = Content::from_bytes("Subject: x\r\n\r\n.\r\n\u{fc}\r\n");
        let message =
            Message { id: QueueId(7), arrived: UnixMillis(9), origin: "x".into(), envelope, content };
        let last = Some((UnixMillis(10), Outcome::deferred(Enhanced(4, 4, 1), "refused")));
        let recipients = vec![
            RecipientState { settled: false, attempt_count: 3, last },
            RecipientState { settled: true, ..RecipientState::default() },
        ];
        Recovered { message: message.into(), recipients, held: Some("by root".into()) }
    }

    #[test]
    fn an_envelope_comes_back_as_it_was_and_without_content() {
        let found = found();
        let read = import_envelope(QueueId(7), &export_envelope(&found)).unwrap();
        assert_eq!((&read.recipients, read.held.as_deref()), (&found.recipients, Some("by root")));
        assert_eq!(read.message.envelope, found.message.envelope);
        assert_eq!(
            (read.message.arrived, &read.message.origin),
            (found.message.arrived, &found.message.origin)
        );
        assert_eq!(read.message.content.traits, found.message.content.traits);
        assert!(read.message.content.parts().is_empty());
    }

    #[test]
    fn a_cut_envelope_and_one_without_states_are_corrupt() {
        let (found, id) = (found(), QueueId(7));
        let whole = export_envelope(&found);
        for length in 0..whole.len() {
            let read = import_envelope(id, &whole[..length]);
            assert!(matches!(read, Err(SpoolFailure::Corrupt(_))), "{length} bytes: {read:?}");
        }
        let mut without = Vec::new();
        message::write_message(&mut without, &found.message);
        assert!(import_envelope(id, &without).is_err());
    }
}
