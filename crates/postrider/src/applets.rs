//! The commands that the names `sendmail`, `mailq` and `newaliases` need.

use crate::{
    cli,
    expansion::{Expansion, Outcome},
    own_address,
    routing::Routes,
    serve::wiring,
};
use config::Settings;
use control::{CommandError, Exit, Selection};
use mail::{Destination, ForwardPath, Mailbox, NextHop};
use maps::LookupError;
use policy::Policy;
use rewrite::Expanded;
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
        let maps = wiring::maps(settings, None);
        let routes = Routes::new(settings, maps.clone());
        let policy = wiring::policy(settings, &maps);
        let runtime = cli::map::runtime()?;
        let Some(expansion) = Expansion::new(settings, maps) else {
            let known = |path| runtime.block_on(known(settings, &policy, &routes, path));
            return Ok(paths.iter().map(known).collect());
        };
        let expanded = |path| runtime.block_on(expanded(settings, &expansion, &routes, path));
        Ok(paths.iter().map(expanded).collect())
    }

    fn check_aliases(&self, settings: &Settings, out: &mut dyn Write) -> Result<Exit, CommandError> {
        cli::map::check_aliases(settings, out)
    }
}

/// The route of an address, where nothing changes addresses.
async fn known(settings: &Settings, policy: &Policy, routes: &Routes, path: &ForwardPath) -> Route {
    let own = own_address::resolve(path, settings, None);
    let path = own.as_ref().unwrap_or(path);
    if policy.is_for_postmaster(path) || policy.is_for_absent_root(path) {
        let postmaster = ForwardPath::Mailbox(settings.postmaster.clone());
        return match routes.recipient_by_maps(&postmaster, None).await {
            Ok(destination) => Route::To(format!("{} by {destination}", settings.postmaster)),
            Err(error) => Route::Failed(error.to_string()),
        };
    }
    if !policy.knows(path) {
        return Route::NoSuchUser;
    }
    match held_or_destination(routes, path).await {
        Ok((Destination { next_hop: NextHop::Reject(reply), .. }, false)) => {
            Route::Refused(reply.to_string())
        }
        Ok((destination, is_held)) => Route::To(by(&destination, is_held)),
        Err(error) => Route::Failed(error.to_string()),
    }
}

/// Returns where mail for a recipient goes, and whether a route holds it before.
///
/// # Errors
/// A map does not answer.
async fn held_or_destination(
    routes: &Routes,
    path: &ForwardPath,
) -> Result<(Destination, bool), LookupError> {
    let first = routes.explicit_by_maps(path, None, |_| true).await?;
    let is_held = first.is_some_and(|route| route.target == config::Target::Hold);
    Ok((routes.recipient_by_maps(path, None).await?, is_held))
}

/// `by smarthost:…`, or `held by a route; after a release by smarthost:…`.
fn by(destination: &Destination, is_held: bool) -> String {
    let held = if is_held { "held by its route; after a release " } else { "" };
    format!("{held}by {destination}")
}

/// The recipients of an address by maps, and their routes.
async fn expanded(settings: &Settings, expansion: &Expansion, routes: &Routes, path: &ForwardPath) -> Route {
    let own = own_address::resolve(path, settings, None);
    let mailbox = own.as_ref().unwrap_or(path).mailbox().unwrap_or(&settings.postmaster).clone();
    let is_for_postmaster = ["postmaster", "root"].iter().any(|name| expansion.is_named(&mailbox, name));
    let outcome = match expansion.expand(mailbox).await {
        Outcome::NoSuchUser if is_for_postmaster => expansion.expand(settings.postmaster.clone()).await,
        outcome => outcome,
    };
    match outcome {
        Outcome::Recipients(expanded) => match told(&expanded, routes, path).await {
            Ok(route) => route,
            Err(error) => Route::Failed(error.to_string()),
        },
        Outcome::NoSuchUser => Route::NoSuchUser,
        Outcome::Failed(trouble) => Route::Failed(trouble.to_string()),
    }
}

/// `joe@a.test by maildir:… (through staff@a.test, team@a.test), jane@b.test by mx:b.test`.
async fn told(expanded: &Expanded, routes: &Routes, given: &ForwardPath) -> Result<Route, LookupError> {
    let mut destinations = Vec::new();
    for (index, mailbox) in expanded.recipients().enumerate() {
        destinations.push(match expanded.target(index) {
            None => held_or_destination(routes, &ForwardPath::Mailbox(mailbox.clone())).await?,
            Some(target) => (routes.alias_target(target, given), false),
        });
    }
    // One recipient that is refused is enough: the client is refused.
    let refusing = destinations.iter().find_map(|(destination, is_held)| match &destination.next_hop {
        NextHop::Reject(reply) if !is_held => Some(reply.to_string()),
        _ => None,
    });
    if let Some(reply) = refusing {
        return Ok(Route::Refused(reply));
    }
    let one = |(index, mailbox): (usize, &Mailbox)| {
        let (destination, is_held) = &destinations[index];
        let by = by(destination, *is_held);
        if Some(mailbox) == given.mailbox() {
            return by;
        }
        match &expanded.through(index)[..] {
            [] | [_] => format!("{mailbox} {by}"),
            [_, through @ ..] => format!("{mailbox} {by} (through {})", through.join(", ")),
        }
    };
    let all: Vec<String> = expanded.recipients().enumerate().map(one).collect();
    let mut owners: Vec<&Mailbox> = (0..all.len()).filter_map(|index| expanded.owner(index)).collect();
    owners.dedup();
    let owners: String = owners.iter().map(|owner| format!("; the owner is {owner}")).collect();
    Ok(Route::To(all.join(", ") + &owners))
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
        let maildir = settings.local.maildir.as_str().to_owned();
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
