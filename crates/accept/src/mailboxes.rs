//! The addresses that mail can be delivered to, as far as this machine knows: names that a Maildir, a file or a program can
//! have, and users as whom mail is delivered. The check of recipients, `sendmail -bv`, imports and the check of a configuration
//! ask here, so that they know what delivery knows.

use crate::routes::Routes;
use config::Settings;
use mail::{AliasTarget, Answer, Destination, Enhanced, ForwardPath, Mailbox, NextHop, Reply, ReversePath};
use maps::LookupError;

/// Why mail for an address is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// It has no mailbox here: the reply that says so.
    Address(Reply),
    /// Whether it has one is not known.
    Unknown(LookupError),
}

/// The mailboxes that a configuration has for the mail of one sender.
#[derive(Clone, Copy)]
pub struct Mailboxes<'a> {
    /// The settings of the configuration.
    pub settings: &'a Settings,
    /// The routes of the same configuration.
    pub routes: &'a Routes,
    /// None: routes for some senders are left out.
    pub sender: Option<&'a ReversePath>,
}

impl<'a> Mailboxes<'a> {
    /// Returns whether mail for an address can be delivered, also where maps decide on its route.
    ///
    /// # Errors
    /// A map, or the service that knows the users of this machine, does not answer.
    pub async fn has(self, mailbox: &Mailbox) -> Result<bool, LookupError> {
        let path = ForwardPath::Mailbox(mailbox.clone());
        let name =
            if self.routes.ask_maps() { self.routes.stored_name(&path, self.sender).await? } else { None };
        match self.check(&path, name.map(AliasTarget::Route).as_ref()).wait().await {
            Ok(()) => Ok(true),
            Err(Refused::Address(_)) => Ok(false),
            Err(Refused::Unknown(error)) => Err(error),
        }
    }

    /// Checks that mail for an address can be delivered where its route, or this target, leads. The answer is there at once, unless a
    /// service has to be asked for a user of this machine.
    ///
    /// # Errors
    /// Mail for it would be returned later; or whether it would is not known.
    pub fn check(self, path: &ForwardPath, target: Option<&AliasTarget>) -> Answer<'a, Result<(), Refused>> {
        let Some(mailbox) = path.mailbox() else { return Answer::Ready(Ok(())) };
        let named = self.can_have_name(mailbox, || match target {
            None => self.routes.recipient(path, self.sender),
            Some(target) => self.routes.alias_target(target, path),
        });
        if !self.routes.needs_account(path, target, self.sender) {
            return Answer::Ready(named.map_err(Refused::Address));
        }
        self.account(mailbox).map(move |account| account.and_then(|()| named.map_err(Refused::Address)))
    }

    /// Returns a destination as operators read it, with the mailbox file or the words of the program for this recipient:
    /// `mbox:/var/mail/joe as user joe`.
    pub fn place(&self, destination: &Destination, mailbox: &Mailbox) -> String {
        let separator = self.settings.addresses.separator.0;
        let local = |template: &str| delivery::mailbox_path(template, mailbox, separator);
        let (kind, place) = match &destination.next_hop {
            NextHop::Maildir(template) => ("maildir", local(template)),
            NextHop::Mbox(template) => ("mbox", local(template)),
            NextHop::Pipe(program) => ("pipe", Some(delivery::command_line(program, mailbox, separator))),
            _ => return destination.to_string(),
        };
        let place = place.map_or_else(|| destination.to_string(), |place| format!("{kind}:{place}"));
        let user = destination.route.as_deref().and_then(|route| {
            let user = self.routes.deliver_as(route)?;
            local(&user)
        });
        user.map_or(place.clone(), |user| format!("{place} as user {user}"))
    }

    /// Checks that the recipient is a user as whom mail is delivered, where its route writes files as the user that it names.
    /// The delivery helper asks the same: users of the system, such as www-data and nobody, have no mailbox.
    fn account(self, mailbox: &Mailbox) -> Answer<'a, Result<(), Refused>> {
        let settings = self.settings;
        let local = mailbox.local_name();
        let split = settings.addresses.separator.0.and_then(|separator| separator.split(&local));
        let name = split.map_or(&*local, |(user, _)| user).to_owned();
        let mailbox = mailbox.clone();
        self.routes.accounts().user(name).map(move |user| match user {
            Ok(Some(user)) if settings.process.has_mailbox(user.uid) => Ok(()),
            Ok(_) => Err(Refused::Address(policy::no_such_user(&mailbox))),
            Err(error) => Err(Refused::Unknown(error)),
        })
    }

    fn can_have_name(
        &self,
        mailbox: &Mailbox,
        destination: impl FnOnce() -> Destination,
    ) -> Result<(), Reply> {
        let separator = self.settings.addresses.separator.0;
        // Few local parts need to be routed for this.
        if !mailbox.local().contains('-') && delivery::can_have_maildir(mailbox, separator) {
            return Ok(());
        }
        let can = match destination().next_hop {
            // One mailbox for all needs no name of theirs.
            NextHop::Maildir(path) | NextHop::Mbox(path) if !path.contains('{') => true,
            NextHop::Maildir(_) | NextHop::Mbox(_) => delivery::can_have_maildir(mailbox, separator),
            NextHop::Pipe(program) => delivery::can_run(&program, mailbox, separator),
            _ => true,
        };
        if can {
            return Ok(());
        }
        let text = format!("<{mailbox}>: no mailbox here can have this name");
        Err(Reply::new(550, Enhanced(5, 1, 1), text))
    }
}
