//! Configurations of Debian's Exim and Sendmail, and what `postrider import` makes of them: the same envelopes get the same
//! verdicts and arrive at the same places, but for the differences that are explained here.

#[path = "../common/mod.rs"]
mod common;
mod envelopes;
mod exim;
mod site;
mod world;

use common::envelopes::{Difference, Envelope, Treatment, only};
use std::collections::BTreeMap;
use world::{SERVER, World};

/// Envelopes for each set-up.
const COUNT: usize = 125;

/// A configuration of a server, as files below `/etc`.
pub(crate) struct SetUp {
    name: &'static str,
    files: Vec<(&'static str, String)>,
    /// Domains of the recipients.
    domains: &'static [&'static str],
}

fn send(program: &str, envelopes: &[Envelope]) -> Vec<Vec<String>> {
    let each = envelopes.iter().enumerate();
    each.map(|(index, envelope)| common::session::send_from(SERVER, envelope, &subject(program, index)))
        .collect()
}

fn subject(program: &str, index: usize) -> String {
    format!("{program} {index}.")
}

fn is_accepted(reply: &str) -> bool {
    reply.starts_with('2')
}

/// Returns what differs: verdicts, and deliveries that no verdict explains.
fn differences(theirs: &Treatment, ours: &Treatment) -> Vec<Difference> {
    let pairs = || theirs.replies.iter().zip(&ours.replies);
    let mut found: Vec<Difference> = pairs()
        .filter(|(theirs, ours)| theirs.as_bytes().first() != ours.as_bytes().first())
        .map(|(theirs, ours)| Difference::new(theirs, ours))
        .collect();
    let (more_theirs, more_ours) = (
        pairs().any(|(theirs, ours)| is_accepted(theirs) && !is_accepted(ours)),
        pairs().any(|(theirs, ours)| !is_accepted(theirs) && is_accepted(ours)),
    );
    let nothing = "nothing".to_owned();
    let rest_theirs = if more_theirs { nothing.clone() } else { only(&theirs.arrivals, &ours.arrivals) };
    let rest_ours = if more_ours { nothing.clone() } else { only(&ours.arrivals, &theirs.arrivals) };
    if rest_theirs != nothing || rest_ours != nothing {
        found.push(Difference::new(&rest_theirs, &rest_ours));
    }
    found
}

/// What the comparison of a server found.
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

#[test]
fn imported_configurations_of_exim_decide_as_exim_does() {
    if !world::is_inside("imported_configurations_of_exim_decide_as_exim_does") {
        return;
    }
    let certificates = tempfile::tempdir().unwrap();
    let Some(world) = World::start(certificates.path()) else { return };
    let mut found = Found::default();
    let wanted = std::env::var("POSTRIDER_TEST_SET_UP").ok().and_then(|text| text.parse::<usize>().ok());
    for (number, set_up) in
        exim::set_ups().iter().enumerate().filter(|(number, _)| wanted.is_none_or(|wanted| wanted == *number))
    {
        println!("set-up {number}: {}", set_up.name);
        let Some(site) = exim::Exim::site(set_up) else { return };
        std::fs::copy(certificates.path().join("isp.pem"), site.dir.path().join("isp.pem")).unwrap();
        let envelopes = envelopes::of(number, set_up.domains, COUNT);
        let exim = exim::Exim::start(&site);
        let (old, new) = (format!("exim {number}"), format!("postrider {number}"));
        let old_replies = send(&old, &envelopes);
        exim.wait_until_idle(&site);
        drop(exim);
        let mut local = site.take_mailboxes();
        let (postrider, said) = site.start_imported("exim", "/etc/exim4");
        println!("{said}");
        println!("{}", std::fs::read_to_string(postrider.configuration()).unwrap());
        let new_replies = send(&new, &envelopes);
        postrider.wait_until_idle();
        common::until("the provider has sent all", || world.isp.counter("queued") == 0);
        local.extend(site.take_mailboxes());
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
    for (difference, places) in &found.different {
        println!("DIFF {:4} | {} | {} | {}", places.len(), difference.theirs, difference.ours, places[0]);
    }
    for (difference, count) in &found.codes {
        println!("CODE {count:4} | {} | {}", difference.theirs, difference.ours);
    }
    println!("{} envelopes, {} recipients", found.count, found.recipients);
}
