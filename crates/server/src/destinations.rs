//! Where mail for an address would go, in words and as destinations.

use crate::access;
use accept::{
    Mailboxes,
    expansion::{Expansion, Outcome},
    own_address,
    routes::{self, Routes},
};
use config::Settings;
use console::{CliError, owner::become_owner, runtime};
use mail::{AliasTarget, Destination, ForwardPath, Mailbox, NextHop};
use maps::{Kind, LookupError, Reference, text::TextTable};
use policy::Policy;
use rewrite::Expanded;
use rustix::process::geteuid;
use submission::sendmail::Route;

/// Returns where mail for each address would go, as the daemon decides it for what programs on this machine send. The process becomes
/// the daemon's user first.
///
/// # Errors
/// It cannot, or has no resources.
pub fn routes_of(settings: &Settings, paths: &[ForwardPath]) -> Result<Vec<Route>, CliError> {
    // What the daemon may not read or write is no route.
    become_owner(settings)?;
    let maps = accept::maps(settings, None);
    let routes = Routes::new(settings, maps.clone());
    let policy = accept::policy(settings, &maps);
    let runtime = runtime()?;
    let mailboxes = Mailboxes { settings, routes: &routes, sender: None };
    let Some(expansion) = Expansion::new(settings, maps) else {
        let known = |path| runtime.block_on(known(mailboxes, &policy, path, &mut Vec::new()));
        return Ok(paths.iter().map(known).collect());
    };
    let expanded = |path| runtime.block_on(expanded(mailboxes, &expansion, path, &mut Vec::new()));
    Ok(paths.iter().map(expanded).collect())
}

/// Returns warnings of addresses to which rules and `addresses.bcc` send mail, and which do not exist here: such mail is
/// deferred. A map that does not answer now says nothing.
pub fn without_user(settings: &Settings) -> Result<Vec<String>, CliError> {
    let rules = settings.rules.program.rules().iter();
    let of_rules = rules.flat_map(|rule| {
        let targets = rule.modifiers.bcc.iter().chain(&rule.modifiers.redirect);
        targets.map(|mailbox| (rule.place(), mailbox.clone()))
    });
    let copies = settings.addresses.bcc.iter().map(|mailbox| ("addresses.bcc".to_owned(), mailbox.clone()));
    let all: Vec<(String, Mailbox)> = of_rules.chain(copies).chain(copies_of_maps(settings)).collect();
    let paths: Vec<ForwardPath> =
        all.iter().map(|(_, mailbox)| ForwardPath::Mailbox(mailbox.clone())).collect();
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let routes = routes_of(settings, &paths)?;
    let unknown = all.iter().zip(routes).filter(|(_, route)| *route == Route::NoSuchUser);
    Ok(unknown
        .map(|((place, mailbox), _)| {
            format!("{place} sends mail to {mailbox}, which does not exist here: name a user, or an alias")
        })
        .collect())
}

/// Addresses of copies in text maps that are looked at, of each file.
const COPIES_MAX: usize = 100;

/// Returns the addresses to which text maps send copies, each with its map.
fn copies_of_maps(settings: &Settings) -> impl Iterator<Item = (String, Mailbox)> {
    let is_of_copies = |key: &str| matches!(key, "addresses.sender_bcc" | "addresses.recipient_bcc");
    let maps = settings.map_references().filter(move |(key, _)| is_of_copies(key));
    maps.flat_map(|(_, reference)| {
        let Reference::File(Kind::Text, path) = reference else { return Vec::new() };
        // A file that cannot be read is an error elsewhere.
        let text = maps::read_text(path).unwrap_or_default();
        let addresses = |value: &str| {
            let words = value.split([',', ' ', '\t']);
            words.filter_map(|word| Mailbox::parse(word, true).ok()).collect::<Vec<_>>()
        };
        let copies = TextTable::entries(&text).flat_map(|entry| addresses(&entry.value));
        copies.take(COPIES_MAX).map(|mailbox| (reference.to_string(), mailbox)).collect()
    })
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

/// Where mail for a recipient goes, for the answer to an operator.
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
            let is_held = first.is_some_and(|chosen| chosen.route.target == config::Target::Hold);
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
