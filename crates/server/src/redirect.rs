//! Sends recipients of a queued message elsewhere, as an operator wants it.

use super::{Daemon, snapshot::ConfigSnapshot};
use crate::destinations;
use accept::{Mailboxes, NotReplaced, unreadable};
use control::{Failure, Matched, RedirectTo};
use engine::{Command, Redirect};
use mail::{
    AliasTarget, Destination, Disposition, Envelope, ForwardPath, Message, NextHop, QueueId, Recipient,
    RecipientOptions, SharedMessage, content::chunk_ids, pattern::bare_address,
};
use queue::CommandResult;
use std::time::Duration;
use submission::sendmail::Route;
use tokio::time::timeout;

/// The most destinations of one address whose servers are looked up.
const LOOKED_UP_MAX: usize = 5;

/// An operator waits so long until the servers of an address are known.
const SERVERS_TIMEOUT: Duration = Duration::from_secs(10);

/// Where redirected recipients go.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    Address(ForwardPath),
    Route(Box<str>),
}

/// What was done for a message.
#[derive(Debug)]
pub(crate) enum Redirected {
    Missing,
    Unchanged,
    /// The recipients, and the message that took their place.
    Done {
        recipients: String,
        id: QueueId,
    },
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(path) => write!(f, "<{path}>"),
            Self::Route(name) => write!(f, "the route {name:?}"),
        }
    }
}

/// Reads what an operator wants, and looks whether its servers can be found. Returns a warning if they cannot now.
///
/// # Errors
/// Mail for the address or by the route would come back.
pub(crate) async fn check(config: &ConfigSnapshot, to: &RedirectTo) -> Result<Option<String>, Failure> {
    let (target, destinations) = target(config, to).await?;
    for destination in destinations.iter().take(LOOKED_UP_MAX) {
        let why = match timeout(SERVERS_TIMEOUT, config.courier.find_servers(destination)).await {
            Ok(Ok(())) => continue,
            // With other recipients, one that does not exist is a matter of the alias.
            Ok(Err(outcome)) if outcome.disposition == Disposition::Failed && destinations.len() == 1 => {
                return Err(Failure::Bad { text: format!("{target}: {}", outcome.text) });
            }
            Ok(Err(outcome)) => outcome.text.into(),
            Err(_) => format!("DNS did not answer within {SERVERS_TIMEOUT:?}"),
        };
        return Ok(Some(format!("mail for {target} cannot leave now, and waits: {why}")));
    }
    Ok(None)
}

/// Reads what an operator wants, and checks it against the configuration. Returns also where the mail goes, as far as the
/// configuration says that.
///
/// # Errors
/// Mail for the address or by the route would come back.
pub(crate) async fn target(
    config: &ConfigSnapshot,
    to: &RedirectTo,
) -> Result<(Target, Vec<Destination>), Failure> {
    let bad = |text: String| Failure::Bad { text };
    let rules = config.rules();
    match to {
        RedirectTo::Route(name) => {
            let known = rules.routes.names();
            if known.iter().any(|known| known == name) {
                let chosen = AliasTarget::Route(name.as_str().into());
                let path = ForwardPath::Mailbox(rules.settings.postmaster.clone());
                let destination = rules.routes.alias_target(&chosen, &path);
                // Without a server of its own, the route leads to the domain of each recipient.
                let is_of_recipients = matches!(destination.next_hop, NextHop::Mx(_));
                let destinations = if is_of_recipients { Vec::new() } else { vec![destination] };
                return Ok((Target::Route(name.as_str().into()), destinations));
            }
            let holds = |route: &config::Route| {
                route.label.as_deref() == Some(name) && route.target == config::Target::Hold
            };
            if rules.settings.routes.iter().any(holds) {
                let help = "mail stays where it is with `postrider queue hold`";
                return Err(bad(format!("the route {name:?} only holds mail, and leads nowhere; {help}")));
            }
            let help = match &known[..] {
                [] => "no [[route]] has a `name`".to_owned(),
                known => format!("the routes with a `name` are: {}", known.join(", ")),
            };
            Err(bad(format!("no route is called {name:?}; {help}")))
        }
        RedirectTo::Address(text) => {
            let path = ForwardPath::parse(bare_address(text), true);
            let path = path.map_err(|_| bad(format!("{text:?} is not an address: write joe@example.com")))?;
            let mailboxes = Mailboxes { settings: rules.settings, routes: rules.routes, sender: None };
            let mut destinations = Vec::new();
            let route = match rules.expansion {
                Some(expansion) => {
                    destinations::expanded(mailboxes, expansion, &path, &mut destinations).await
                }
                None => destinations::known(mailboxes, rules.policy, &path, &mut destinations).await,
            };
            match route {
                Route::To(_) => Ok((Target::Address(path), destinations)),
                Route::NoSuchUser => Err(bad(format!("<{path}>: there is no such user here"))),
                Route::Refused(reply) => Err(bad(format!("<{path}>: mail for it is refused: {reply}"))),
                Route::Failed(why) => {
                    Err(Failure::Failed { text: format!("<{path}>: it cannot be looked up now: {why}") })
                }
            }
        }
    }
}

impl Daemon {
    /// Queues another message for recipients of a queued one. It is durable, and they have ended, when this returns.
    ///
    /// # Errors
    /// The mail cannot go there, or cannot be stored now.
    pub(super) async fn redirect_message(
        &self,
        meant: &Matched,
        target: &Target,
        user: &str,
    ) -> Result<Redirected, Failure> {
        let (config, failed) = (self.driver.current(), |text: String| Failure::Failed { text });
        let left = self.driver.lock().engine.queue().recipients(meant.id);
        let is_meant = |index: &u32| meant.recipients.as_ref().is_none_or(|some| some.contains(index));
        let recipients: Vec<u32> = left.into_iter().filter(is_meant).collect();
        let message = match self.driver.read(meant.id).await {
            Ok(message) => message,
            Err(spool::SpoolFailure::Missing) => return Ok(Redirected::Missing),
            Err(failure) => return Err(failed(failure.to_string())),
        };
        if recipients.is_empty() {
            return Ok(Redirected::Missing);
        }
        let envelope = redirected_envelope(&config, &message, &recipients, target)?;
        let is_expanded = matches!(target, Target::Address(_));
        let made = self.acceptor.replacement(&config, &message, envelope, is_expanded).await;
        let made = made.map_err(|why| match why {
            NotReplaced::Refused(reply) => failed(format!("mail for {target}: {reply}")),
            NotReplaced::Discarded => failed(format!("mail for {target} is discarded")),
            NotReplaced::NoRoom(reply) => failed(reply.to_string()),
            NotReplaced::Unreadable(failure) => failed(unreadable(&failure).text.to_string()),
        })?;
        let (id, parts) = (made.message.id, made.message.content.parts().to_vec());
        let names: Vec<_> = recipients
            .iter()
            .map(|index| format!("<{}>", message.envelope.recipients[*index as usize].path))
            .collect();
        let text = format!("redirected to {target} by {user}, queued as {id}").into();
        let replacement = SharedMessage::new(made.message);
        let redirect = Redirect { message, recipients, replacement, reports: made.reports, text };
        let answer = self.driver.request(Command::Redirect(Box::new(redirect))).await;
        let result = answer.map_err(|_| failed("the daemon ends".to_owned()))?;
        match result.map_err(|failure| failed(failure.to_string()))? {
            CommandResult::Changed => Ok(Redirected::Done { recipients: names.join(", "), id }),
            unchanged => {
                self.driver.spool.discard_chunks(&chunk_ids(&parts));
                let is_missing = unchanged == CommandResult::Missing;
                Ok(if is_missing { Redirected::Missing } else { Redirected::Unchanged })
            }
        }
    }
}

/// Returns the envelope of the message that takes the place of these recipients. NOTIFY and ORCPT stay what the sender wrote
/// (RFC 3461 §5.2.7); without ORCPT the address that was given becomes it.
fn redirected_envelope(
    config: &ConfigSnapshot,
    message: &Message,
    recipients: &[u32],
    target: &Target,
) -> Result<Envelope, Failure> {
    let mut envelope = Envelope { recipients: Vec::new(), ..message.envelope.clone() };
    for index in recipients {
        let old = &message.envelope.recipients[*index as usize];
        match target {
            Target::Route(name) => {
                let mut recipient = old.clone();
                if old.is_alias() {
                    let text = format!("{}: <{}> is a program or a file of an alias", message.id, old.path);
                    return Err(Failure::Bad { text });
                }
                recipient.set_route(name);
                let next_hop =
                    config.rules().routes.destination(&recipient, Some(&envelope.reverse_path)).next_hop;
                if let NextHop::Reject(reply) = next_hop {
                    return Err(Failure::Bad { text: format!("{target} refuses all mail: {reply}") });
                }
                envelope.recipients.push(recipient);
            }
            Target::Address(path) => {
                if let Some(known) = envelope.recipients.first_mut() {
                    // One copy is enough, and tells of all that was wanted.
                    known.notify.success |= old.notify.success;
                    known.notify.failure |= old.notify.failure;
                    known.notify.delay |= old.notify.delay;
                    continue;
                }
                envelope.recipients.push(moved(old, path));
            }
        }
    }
    Ok(envelope)
}

/// Returns a recipient with another address.
fn moved(old: &Recipient, path: &ForwardPath) -> Recipient {
    let given = old.expansion().map_or(old.path.as_str(), |expansion| expansion.original.as_str());
    let own = || given.is_ascii().then(|| format!("rfc822;{given}").into());
    let orcpt = old.orcpt.clone().or_else(own);
    // The owner of a list hears of its members.
    let return_path = old.return_path().filter(|own| own.is_list).cloned();
    let options = RecipientOptions { return_path, ..RecipientOptions::default() }.boxed();
    Recipient { path: path.clone(), notify: old.notify, orcpt, options }
}
