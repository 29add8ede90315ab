//! The commands that the names `sendmail`, `mailq` and `newaliases` need.

use crate::{access, cli};
use accept::{
    Mailboxes,
    expansion::{Expansion, Outcome},
    own_address,
    routes::{self, Routes},
};
use config::Settings;
use control::{CommandError, Exit, Selection};
use mail::{AliasTarget, Destination, ForwardPath, Mailbox, NextHop};
use maps::LookupError;
use policy::Policy;
use rewrite::Expanded;
use rustix::process::geteuid;
use std::{io::Write, path::Path};
use submission::sendmail::{self, Route};

/// The commands of this program.
pub(crate) struct Commands;

impl sendmail::Commands for Commands {
    fn load_config(&self, explicit: Option<&Path>) -> Result<Settings, CommandError> {
        cli::load_for_tools(explicit)
    }

    fn list_queue(&self, settings: &Settings, out: &mut dyn Write) -> Result<Exit, CommandError> {
        cli::queue::mailq(settings, out)
    }

    fn flush(&self, settings: &Settings, selection: Option<&Selection>) -> Result<Exit, CommandError> {
        match selection {
            None => cli::queue::flush(settings).map(|_| Exit::Ok),
            Some(selection) => cli::queue::retry(settings, selection),
        }
    }

    /// As the daemon does with what programs on this machine send.
    fn routes(&self, settings: &Settings, paths: &[ForwardPath]) -> Result<Vec<Route>, CommandError> {
        // What the daemon may not read or write is no route.
        cli::become_owner(settings)?;
        let maps = accept::maps(settings, None);
        let routes = Routes::new(settings, maps.clone());
        let policy = accept::policy(settings, &maps);
        let runtime = cli::map::runtime()?;
        let mailboxes = Mailboxes { settings, routes: &routes, sender: None };
        let Some(expansion) = Expansion::new(settings, maps) else {
            let known = |path| runtime.block_on(known(mailboxes, &policy, path, &mut Vec::new()));
            return Ok(paths.iter().map(known).collect());
        };
        let expanded = |path| runtime.block_on(expanded(mailboxes, &expansion, path, &mut Vec::new()));
        Ok(paths.iter().map(expanded).collect())
    }

    fn check_aliases(&self, settings: &Settings, out: &mut dyn Write) -> Result<Exit, CommandError> {
        cli::map::check_aliases(settings, out)
    }
}

/// The route of an address, where nothing changes addresses. `destinations` gets where the mail goes.
pub(crate) async fn known(
    mailboxes: Mailboxes<'_>,
    policy: &Policy,
    given: &ForwardPath,
    destinations: &mut Vec<Destination>,
) -> Route {
    let settings = mailboxes.settings;
    let own = own_address::resolve(given, settings, None);
    let path = own.as_ref().unwrap_or(given);
    let is_for_postmaster = policy.is_for_postmaster(path) || policy.is_for_absent_root(path);
    if !is_for_postmaster && !policy.knows(path) {
        return Route::NoSuchUser;
    }
    let mailbox = path.mailbox().filter(|_| !is_for_postmaster).unwrap_or(&settings.postmaster);
    let has = mailboxes.has(mailbox).await;
    let expanded = match (has, routes::last_resort(settings).filter(|_| is_for_postmaster)) {
        (Ok(true), _) => Expanded::single(mailbox.clone(), None),
        (Ok(false), Some(last)) => Expanded::single(last, Some(routes::to_last_resort())),
        (Ok(false), None) => return Route::NoSuchUser,
        (Err(error), _) => return Route::Failed(error.to_string()),
    };
    told(&expanded, mailboxes, path, destinations).await
}

/// The recipients of an address by maps, and their routes. `destinations` gets where the mail goes.
pub(crate) async fn expanded(
    mailboxes: Mailboxes<'_>,
    expansion: &Expansion,
    given: &ForwardPath,
    destinations: &mut Vec<Destination>,
) -> Route {
    let settings = mailboxes.settings;
    let own = own_address::resolve(given, settings, None);
    let path = own.as_ref().unwrap_or(given);
    let mailbox = path.mailbox().unwrap_or(&settings.postmaster);
    match expansion.expand_given(mailbox, true, mailboxes).await {
        Outcome::Recipients(expanded) => told(&expanded, mailboxes, path, destinations).await,
        Outcome::NoSuchUser => Route::NoSuchUser,
        // As a client is refused.
        Outcome::Failed(trouble) if trouble.is_lasting() => Route::Refused(trouble.to_string()),
        Outcome::Failed(trouble) => Route::Failed(trouble.to_string()),
    }
}

/// The place where mail for a recipient goes.
struct Told {
    destination: Destination,
    is_held: bool,
    text: String,
}

/// Returns the place of mail for a mailbox, or for the target in its place.
///
/// # Errors
/// A map does not answer.
async fn place(
    mailboxes: Mailboxes<'_>,
    mailbox: &Mailbox,
    target: Option<&AliasTarget>,
) -> Result<Told, LookupError> {
    let path = ForwardPath::Mailbox(mailbox.clone());
    let (destination, is_held) = match target {
        Some(target) => (mailboxes.routes.alias_target(target, &path), false),
        None => {
            let first = mailboxes.routes.explicit_by_maps(&path, None, |_| true).await?;
            let is_held = first.is_some_and(|route| route.target == config::Target::Hold);
            (mailboxes.routes.recipient_by_maps(&path, None).await?, is_held)
        }
    };
    let held = if is_held { "held by its route; after a release " } else { "" };
    let text = format!("{held}by {}", mailboxes.place(&destination, mailbox));
    Ok(Told { destination, is_held, text })
}

/// `joe@a.test by maildir:… (through staff@a.test, team@a.test), jane@b.test by mx:b.test`.
async fn told(
    expanded: &Expanded,
    mailboxes: Mailboxes<'_>,
    given: &ForwardPath,
    destinations: &mut Vec<Destination>,
) -> Route {
    let mut all = Vec::with_capacity(expanded.recipients().len());
    for (index, mailbox) in expanded.recipients().enumerate() {
        let Told { destination, is_held, text: by } =
            match place(mailboxes, mailbox, expanded.target(index)).await {
                Ok(told) => told,
                Err(error) => return Route::Failed(error.to_string()),
            };
        // One recipient that is refused is enough: the client is refused.
        if let (NextHop::Reject(reply), false) = (&destination.next_hop, is_held) {
            return Route::Refused(reply.to_string());
        }
        if let Some(fault) = target_fault(mailboxes.settings, expanded.target(index)) {
            return Route::Failed(fault);
        }
        destinations.push(destination);
        let through = expanded.through(index);
        all.push(match through.get(1..).unwrap_or_default() {
            _ if Some(mailbox) == given.mailbox() => by,
            [] => format!("{mailbox} {by}"),
            through => format!("{mailbox} {by} (through {})", through.join(", ")),
        });
    }
    let mut owners: Vec<&Mailbox> = (0..all.len()).filter_map(|index| expanded.owner(index)).collect();
    owners.dedup();
    let owners: String = owners.iter().map(|owner| format!("; the owner is {owner}")).collect();
    let missing: String = expanded.missing().iter().map(|missing| format!("; {missing}")).collect();
    Route::To(all.join(", ") + &owners + &missing)
}

/// Returns why the daemon cannot deliver to the file or the program of an alias; none where another user asks, who does not know.
fn target_fault(settings: &Settings, target: Option<&AliasTarget>) -> Option<String> {
    let target @ (AliasTarget::File(name) | AliasTarget::Program(name)) = target? else { return None };
    let is_daemon = geteuid().as_raw() == access::daemon_uid(settings);
    let fault = is_daemon.then(|| access::target_fault(target));
    fault.flatten().map(|fault| format!("{name}: {fault}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_with_its_route_and_a_stranger_by_the_exit_code() {
        let mut settings = config::load(None).unwrap();
        settings.hostname = "host.test".to_owned();
        settings.postmaster = mail::Mailbox::parse("jane@host.test", true).unwrap();
        settings.local.domains = vec!["host.test".to_owned()];
        settings.local.users = Some(vec!["jane".to_owned()]);
        let maildir = settings.local.maildir.as_str().replace("{local}", "jane");
        let ask = |given: &[&str]| {
            let mut out = Vec::new();
            let given: Vec<String> = given.iter().map(|&text| text.to_owned()).collect();
            let exit = sendmail::verify::run(&given, &settings, &Commands, &mut out).unwrap();
            (exit, String::from_utf8(out).unwrap())
        };
        let (exit, said) = ask(&["jane+x, root", "Bob <bob@b.test>"]);
        assert_eq!(exit, Exit::Ok);
        assert_eq!(
            said,
            format!(
                "jane+x@host.test: by maildir:{maildir}\nroot@host.test: jane@host.test by maildir:{maildir}\n\
                 bob@b.test: by mx:b.test\n"
            )
        );
        assert_eq!(ask(&["jane@[127.0.0.1]"]).1, format!("jane@[127.0.0.1]: by maildir:{maildir}\n"));
        let nobody = "joe@host.test: no such user here\nbob@b.test: by mx:b.test\n";
        assert_eq!(ask(&["joe", "bob@b.test"]), (Exit::DataErr, nobody.to_owned()));
        assert_eq!(
            sendmail::verify::run(&[], &settings, &Commands, &mut Vec::new()).unwrap_err().exit,
            Exit::Usage
        );
    }
}
