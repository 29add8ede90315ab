//! Another file for a daemon that runs: what it can follow, and what has to wait.

use crate::{
    load::{self, Purpose},
    problem::Problems,
    settings::Settings,
    sources::Sources,
};
use std::path::Path;

/// The result of a reload.
#[derive(Debug, Clone)]
pub struct Reloaded {
    /// The settings from now on. Keys that need a restart have their old values, and so has every
    /// default that is made of them.
    pub settings: Settings,
    /// Keys among them whose value in the file differs from the value in use.
    pub waiting: Vec<&'static str>,
    /// The settings that the next start would have.
    pub next: Settings,
}

/// Reads and checks the file of a daemon that was started with these settings. The purpose is [`Purpose::Ask`] for a daemon that
/// has become another user since it read certificates and keys.
pub fn reload(path: &Path, started: &Settings, purpose: Purpose) -> Result<Reloaded, Problems> {
    let sources = Sources::read(path)?;
    // What would stop the next start is told now, when somebody looks.
    let next = load::read(&sources, Some(path), purpose, None)?.settings;
    let read = load::read(&sources, Some(path), purpose, Some(started))?;
    Ok(keep(read.settings, started, next))
}

fn keep(mut settings: Settings, started: &Settings, next: Settings) -> Reloaded {
    let mut waiting = Vec::new();
    let new = &mut settings;
    keep_one("hostname", &mut new.hostname, &started.hostname, &mut waiting);
    keep_one("data_dir", &mut new.data_dir, &started.data_dir, &mut waiting);
    keep_one("[spool]", &mut new.spool, &started.spool, &mut waiting);
    // The groups themselves can change: mail already lies where those of the start put it.
    if stores(new) != stores(started) {
        waiting.push("the choice of a spool by [[queue_group]]");
    }
    keep_one("[acme]", &mut new.acme, &started.acme, &mut waiting);
    keep_one("[log]", &mut new.log, &started.log, &mut waiting);
    keep_one("[metrics]", &mut new.metrics, &started.metrics, &mut waiting);
    keep_one("[history]", &mut new.history, &started.history, &mut waiting);
    keep_one("[control]", &mut new.control, &started.control, &mut waiting);
    keep_one("[process]", &mut new.process, &started.process, &mut waiting);
    keep_one("[workers]", &mut new.workers, &started.workers, &mut waiting);
    Reloaded { settings, waiting, next }
}

fn keep_one<T: PartialEq + Clone>(
    name: &'static str,
    new: &mut T,
    started: &T,
    waiting: &mut Vec<&'static str>,
) {
    if new != started {
        new.clone_from(started);
        waiting.push(name);
    }
}

/// Returns the settings that decide which spool stores a message.
fn stores(settings: &Settings) -> Vec<impl PartialEq> {
    let groups = if settings.spools().len() > 1 { &settings.queue_groups[..] } else { &[] };
    groups.iter().map(|g| (g.spool.clone(), g.domains.clone(), g.sender_domains.clone())).collect()
}
