//! Configurations of Debian's Exim, Sendmail and Postfix, and what `postrider import` makes of them: the same envelopes get the same
//! verdicts and arrive at the same places, but for the differences that are explained here.

mod decided;
mod delivered;
mod envelopes;
mod exim;
mod explained;
mod generated;
pub(crate) mod machine;
pub(crate) mod postfix;
mod sendmail;
mod tables;
mod verify;
pub(crate) mod world;

use crate::common::envelopes::{Difference, Envelope, Treatment, only};
use explained::Row;
use machine::Machine;
use std::collections::{BTreeMap, BTreeSet};
use world::{SERVER, World};

/// Envelopes for each set-up.
const COUNT: usize = 125;

/// A configuration of a server, as files below `/etc`.
pub(crate) struct SetUp {
    name: &'static str,
    files: Vec<(&'static str, String)>,
    /// Domains that recipients are in.
    domains: &'static [&'static str],
}

fn send(program: &str, envelopes: &[Envelope]) -> Vec<Vec<String>> {
    let each = envelopes.iter().enumerate();
    each.map(|(index, envelope)| {
        crate::common::session::send_from(SERVER, envelope, &subject(program, index))
    })
    .collect()
}

fn subject(program: &str, index: usize) -> String {
    format!("{program} {index}.")
}

fn is_accepted(reply: &str) -> bool {
    reply.starts_with('2')
}

/// Returns the hops of deliveries with the domain, or the user, of each recipient.
fn kind(arrivals: &str) -> String {
    let short = |line: &str| {
        let (hop, rest) = line.split_once(": ")?;
        let to = rest.rsplit(" to ").next()?;
        Some(format!("{hop} {}", to.rsplit('@').next()?.to_lowercase()))
    };
    let lines: BTreeSet<String> = arrivals.split("; ").filter_map(short).collect();
    if lines.is_empty() { arrivals.to_owned() } else { lines.into_iter().collect::<Vec<_>>().join(", ") }
}

/// Returns what differs: verdicts, and deliveries that no verdict explains.
fn differences(theirs: &Treatment, ours: &Treatment) -> Vec<Difference> {
    let pairs = || theirs.replies.iter().zip(&ours.replies);
    let (rest_theirs, rest_ours) =
        (only(&theirs.arrivals, &ours.arrivals), only(&ours.arrivals, &theirs.arrivals));
    let nothing = "nothing";
    // What was accepted and arrived nowhere was returned to its sender.
    let outcome = |reply: &str, rest: &str| match rest {
        _ if !is_accepted(reply) => reply.to_owned(),
        rest if rest == nothing => format!("{reply}, returned"),
        _ => format!("{reply}, delivered"),
    };
    let mut found: Vec<Difference> = pairs()
        .filter(|(theirs, ours)| theirs.as_bytes().first() != ours.as_bytes().first())
        .map(|(theirs, ours)| Difference::new(&outcome(theirs, &rest_theirs), &outcome(ours, &rest_ours)))
        .collect();
    let more_theirs = pairs().any(|(theirs, ours)| is_accepted(theirs) && !is_accepted(ours));
    let more_ours = pairs().any(|(theirs, ours)| !is_accepted(theirs) && is_accepted(ours));
    let rest_theirs = if more_theirs { nothing } else { &rest_theirs };
    let rest_ours = if more_ours { nothing } else { &rest_ours };
    if rest_theirs != nothing || rest_ours != nothing {
        let (kind_theirs, kind_ours) = (kind(rest_theirs), kind(rest_ours));
        found.push(if kind_theirs == kind_ours {
            Difference::new(rest_theirs, rest_ours)
        } else {
            Difference::new(&kind_theirs, &kind_ours)
        });
    }
    found
}

/// Differences that the comparison of a server found.
#[derive(Default)]
struct Found {
    count: usize,
    recipients: usize,
    different: BTreeMap<Difference, Vec<String>>,
    /// Replies with the same verdict and other codes.
    codes: BTreeMap<Difference, usize>,
}

impl Found {
    fn add(&mut self, set_up: &SetUp, envelope: &Envelope, theirs: &Treatment, ours: &Treatment) {
        self.count += 1;
        self.recipients += envelope.to.len();
        for difference in differences(theirs, ours) {
            let place = format!("{}, {envelope:?}: {theirs:?}, {ours:?}", set_up.name);
            self.different.entry(difference).or_default().push(place);
        }
        for (theirs, ours) in theirs.replies.iter().zip(&ours.replies) {
            if theirs != ours && theirs.as_bytes().first() == ours.as_bytes().first() {
                *self.codes.entry(Difference::new(theirs, ours)).or_default() += 1;
            }
        }
    }
}

impl Found {
    /// Prints the kinds of differences. Returns those that no row explains, and the rows that explain nothing.
    fn check(&self, rows: &[Row]) -> Vec<String> {
        let mut counts = vec![0; rows.len()];
        let mut unexplained = Vec::new();
        let codes = self.codes.iter().map(|(difference, count)| (difference, *count, "the same verdict"));
        let different =
            self.different.iter().map(|(difference, places)| (difference, places.len(), &*places[0]));
        for (difference, count, place) in different.chain(codes) {
            match rows.iter().position(|row| row.explains(difference)) {
                Some(row) => counts[row] += count,
                None => unexplained
                    .push(format!("{count} | {} | {} | {place}", difference.theirs, difference.ours)),
            }
        }
        for (row, count) in rows.iter().zip(&counts) {
            println!("| {count} | {} | {} | {} |", row.theirs, row.ours, row.why);
            if *count == 0 {
                unexplained.push(format!("nothing is like | {} | {} |", row.theirs, row.ours));
            }
        }
        println!("{} envelopes, {} recipients", self.count, self.recipients);
        unexplained
    }
}

/// Another server, with what the comparison needs of it.
trait Other {
    /// The word for `postrider import`, and the directory that is imported.
    const IMPORT: [&'static str; 2];

    /// Returns a machine with the files of a set-up. None where the server cannot be started.
    fn machine(set_up: &SetUp) -> Option<Machine>;

    fn start(machine: &Machine) -> Self;

    /// Waits until each message was delivered, or deferred.
    fn wait_until_idle(&self, machine: &Machine);
}

/// Sends envelopes to a server with each set-up, and to Postrider with what it imports. None where the server cannot be started.
fn compare<S: Other>(set_ups: &[SetUp]) -> Option<Found> {
    let certificates = tempfile::tempdir().unwrap();
    let world = World::start(certificates.path())?;
    let mut found = Found::default();
    // One set-up alone, for people.
    let wanted = std::env::var("POSTRIDER_TEST_SET_UP").ok().and_then(|text| text.parse::<usize>().ok());
    for (number, set_up) in set_ups.iter().enumerate() {
        if wanted.is_some_and(|wanted| wanted != number) {
            continue;
        }
        let machine = S::machine(set_up)?;
        machine.trust(&certificates.path().join("isp.pem"));
        let envelopes = envelopes::of(number, set_up.domains, COUNT);
        let [server, dir] = S::IMPORT;
        let (old, new) = (format!("{server} {number}"), format!("postrider {number}"));
        let running = S::start(&machine);
        let old_replies = send(&old, &envelopes);
        running.wait_until_idle(&machine);
        drop(running);
        let mut local = machine.take_mailboxes();
        let (postrider, said) = machine.start_imported(server, dir);
        println!("set-up {number}: {}", set_up.name);
        if wanted.is_some() {
            println!("{said}\n{}", postrider.configuration());
        }
        let new_replies = send(&new, &envelopes);
        postrider.wait_until_idle();
        crate::common::until("the provider has sent all", || world.isp.counter("queued") == 0);
        local.extend(machine.take_mailboxes());
        let arrivals = |program: &str, index| {
            let subject = subject(program, index);
            let mut arrivals = world.arrivals(&subject);
            arrivals
                .extend(local.iter().filter(|(of, _)| *of == subject).map(|(_, arrival)| arrival.clone()));
            arrivals
        };
        for (index, (theirs, ours)) in old_replies.into_iter().zip(new_replies).enumerate() {
            let theirs = Treatment { replies: theirs, arrivals: arrivals(&old, index) };
            let ours = Treatment { replies: ours, arrivals: arrivals(&new, index) };
            found.add(set_up, &envelopes[index], &theirs, &ours);
        }
    }
    Some(found)
}

fn check(found: Option<Found>, rows: &[Row]) {
    if let Some(found) = found {
        let unexplained = found.check(rows);
        assert!(unexplained.is_empty(), "not explained:\n{}", unexplained.join("\n"));
    }
}

#[test]
fn imported_configurations_of_exim_decide_as_exim_does() {
    if world::is_inside("migration::imported_configurations_of_exim_decide_as_exim_does") {
        check(compare::<exim::Exim>(&exim::set_ups()), explained::EXIM);
    }
}

#[test]
fn imported_configurations_of_sendmail_decide_as_sendmail_does() {
    if world::is_inside("migration::imported_configurations_of_sendmail_decide_as_sendmail_does") {
        check(compare::<sendmail::Sendmail>(&sendmail::set_ups()), explained::SENDMAIL);
    }
}

#[test]
fn the_imported_defaults_of_postfix_decide_as_postfix_does() {
    if world::is_inside("migration::the_imported_defaults_of_postfix_decide_as_postfix_does") {
        check(compare::<postfix::Postfix>(&postfix::set_ups()), explained::POSTFIX);
    }
}

#[test]
fn imported_restriction_lists_decide_as_postfix_does() {
    if world::is_inside("migration::imported_restriction_lists_decide_as_postfix_does") {
        let _names = world::names();
        generated::check();
    }
}

#[test]
fn imported_addresses_and_next_hops_are_those_of_postfix() {
    if world::is_inside("migration::imported_addresses_and_next_hops_are_those_of_postfix") {
        delivered::check();
    }
}

#[test]
fn generated_lists_of_exim_decide_as_exim_does() {
    if world::is_inside("migration::generated_lists_of_exim_decide_as_exim_does") {
        let _names = world::names();
        decided::check::<exim::Exim>(exim::generated, 10, explained::exim);
    }
}

#[test]
fn generated_tables_of_sendmail_decide_as_sendmail_does() {
    if world::is_inside("migration::generated_tables_of_sendmail_decide_as_sendmail_does") {
        let _names = world::names();
        decided::check::<sendmail::Sendmail>(sendmail::generated, 6, explained::sendmail);
    }
}
