//! Addresses that are changed on the way out (`addresses.generic`).

use crate::snapshot::ConfigSnapshot;
use accept::own_address::has_own_domain;
use mail::{Enhanced, Envelope, ForwardPath, Mailbox, Message, Outcome, ReversePath, SharedMessage};
use rewrite::{by_map, map_keys};

/// Returns a message with the addresses that others may see. The stored message keeps its own.
///
/// # Errors
/// A map does not answer, or its value is not an address: the recipients are deferred.
pub(super) async fn changed(
    config: &ConfigSnapshot,
    message: SharedMessage,
) -> Result<SharedMessage, Outcome> {
    if config.settings.addresses.generic.is_empty() {
        return Ok(message);
    }
    let failed = |what: String| {
        tracing::error!("{}: look up the generic addresses: {what}", message.id);
        Outcome::deferred(Enhanced(4, 3, 0), "the addresses of the message cannot be looked up now")
    };
    let envelope = envelope(config, &message.envelope).await.map_err(failed)?;
    if envelope == message.envelope {
        return Ok(message);
    }
    Ok(SharedMessage::new(Message { envelope, ..(*message).clone() }))
}

/// Returns an envelope with the addresses that others may see.
///
/// # Errors
/// A map does not answer, or its value is not an address.
pub async fn envelope(config: &ConfigSnapshot, own: &Envelope) -> Result<Envelope, String> {
    let mut envelope = own.clone();
    if let ReversePath::Mailbox(mailbox) = &mut envelope.reverse_path {
        change(config, mailbox).await?;
    }
    for recipient in &mut envelope.recipients {
        if let ForwardPath::Mailbox(mailbox) = &mut recipient.path {
            change(config, mailbox).await?;
        }
        if let Some(mut path) = recipient.return_path().cloned()
            && let ReversePath::Mailbox(mailbox) = &mut path.path
        {
            change(config, mailbox).await?;
            recipient.set_return_path(path);
        }
    }
    Ok(envelope)
}

async fn change(config: &ConfigSnapshot, mailbox: &mut Mailbox) -> Result<(), String> {
    let addresses = &config.settings.addresses;
    let (separator, is_own) = (addresses.separator.0, has_own_domain(mailbox, &config.settings));
    for key in map_keys(mailbox, separator, is_own) {
        let found = config.maps.first_address(&addresses.generic, &key).await;
        let found = found.map_err(|error| error.to_string())?;
        if let Some(value) = found {
            let hostname = &config.settings.hostname;
            *mailbox = by_map(mailbox, separator, &key, &value, hostname)
                .map_err(|what| format!("{key}: {what}"))?;
            return Ok(());
        }
    }
    Ok(())
}
