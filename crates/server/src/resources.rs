//! What the daemon has only so much of: each resource names itself in the log, in `postrider status`, to `postrider doctor` and
//! in the metrics before it is used up.

use super::{Daemon, operator};
use crate::{open_files::Connections, spool_room::SpoolRoom};
use accept::logins::{CHECKS_MAX, STRANGER_CHECKS_MAX};
use control::{ConnectionShare, Resource};
use rustix::{
    io::{Errno, fcntl_dupfd_cloexec},
    process::getrlimit,
};
use std::{collections::HashMap, sync::Arc, time::Duration};

/// As status and metrics name the spool's space.
const SPOOL_SPACE: &str = "spool space";
/// Resources are looked at this often.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Looks until a resource that is scarce is named again, if it was not for a while.
const NAMED_AGAIN_LOOKS: u32 = 60;

impl Daemon {
    /// Returns the use of each resource; that of the shares of the connections is known already.
    pub(super) fn resources(&self, shares: &[ConnectionShare]) -> Vec<Resource> {
        let current = self.driver.current();
        let settings = &current.settings;
        let budget = self.inbound.budget();
        let queued = self.driver.lock().engine.queue().len();
        let one = |name: &str, used: u64, max: u64, key: &str| Resource {
            name: name.to_owned(),
            used,
            max,
            key: key.to_owned(),
        };
        let mut all = vec![
            one(
                "sessions",
                budget.session_count() as u64,
                Connections::possible(settings).inbound as u64,
                "inbound.max_sessions",
            ),
            one(
                "content memory",
                budget.content_bytes() as u64,
                settings.inbound.max_content_memory.0,
                "inbound.max_content_memory",
            ),
            one("queued messages", queued as u64, settings.queue.max_messages as u64, "queue.max_messages"),
        ];
        let checks = self.acceptor.logins().waiting_count() as u64;
        for (name, max) in
            [("password checks of new clients", STRANGER_CHECKS_MAX), ("password checks", CHECKS_MAX)]
        {
            all.push(one(
                name,
                checks.min(max as u64),
                max as u64,
                "cheaper passwords: `postrider auth hash`",
            ));
        }
        for share in shares {
            all.push(one(
                &format!("connections of {}", share.share),
                share.used.into(),
                share.max.into(),
                "delivery.max_connections",
            ));
        }
        let names = ["DNS questions of deliveries", "DNS questions about clients"];
        for (name, count) in names.into_iter().zip(current.sources.dns().question_counts()) {
            all.push(one(name, count.used as u64, count.max as u64, "LimitNOFILE= in the unit"));
        }
        if let Some(greylist) = current.sources.greylist() {
            let (used, max) = greylist.len_and_max();
            all.push(one("greylisted origins", used as u64, max as u64, "a shorter greylist.retry"));
        }
        if let Some(helper) = &self.helper {
            let helper = helper.helper();
            let ((programs, programs_max), (files, files_max)) = (helper.programs(), helper.files());
            all.push(one("programs", programs as u64, programs_max as u64, "programs that end sooner"));
            all.push(one("mailboxes of users", files as u64, files_max as u64, "a faster disk"));
        }
        if let Some(max) = getrlimit(rustix::process::Resource::Nofile).current {
            all.push(one("open files", lowest_free_file(max), max, "LimitNOFILE= in the unit"));
        }
        let (max, key) = spool_space(&settings.spool);
        all.push(one(SPOOL_SPACE, max.saturating_sub(self.driver.spool.room_bytes()), max, key));
        all
    }
}

/// Returns the space of a spool, and the keys that limit it. Without a limit of its own it shares the disk with the files of others,
/// which say nothing about its room: only the last of that counts, so that it is scarce when less than twice `spool.min_free` is
/// free on the disk.
pub(super) fn spool_space(spool: &config::Spool) -> (u64, &'static str) {
    if spool.max_size.0 > 0 {
        return (spool.max_size.0, "spool.max_size, spool.min_free");
    }
    let SpoolRoom { segment_bytes, min_free_bytes } = SpoolRoom::of(spool);
    (min_free_bytes.max(segment_bytes).saturating_mul(5), "spool.min_free")
}

/// The share of the queue and of the spool that strangers leave to mail of this site: one part of so many.
pub(super) const KEPT_SHARE: u64 = 20;

/// Returns the bytes of a spool that strangers leave to mail of this site. Room comes in whole segments: the one in use does not count,
/// and what is written at once may leave the end of another one empty.
pub(super) fn kept_bytes(spool: &config::Spool) -> u64 {
    let (max_bytes, _) = spool_space(spool);
    let segments_bytes = SpoolRoom::of(spool).segment_bytes.saturating_mul(3);
    (max_bytes / KEPT_SHARE).max(segments_bytes.min(max_bytes / 8 * 3))
}

/// Returns the lowest number that no open file has: at least so many are open, and hardly more where most numbers are in use. The
/// kernel does not show /proc/self/fd to a process that has changed its user.
fn lowest_free_file(max: u64) -> u64 {
    match fcntl_dupfd_cloexec(std::io::stderr(), 0) {
        Ok(file) => u64::try_from(std::os::fd::AsRawFd::as_raw_fd(&file)).unwrap_or_default(),
        Err(Errno::MFILE) => max,
        Err(_) => 0,
    }
}

/// Looks at the resources for ever, and warns of those that are nearly used up.
pub(super) async fn watch(daemon: Arc<Daemon>) {
    let mut told = Told::default();
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    loop {
        look.tick().await;
        let resources = daemon.resources(&operator::shares(&daemon.driver));
        told.warnings(&resources).iter().for_each(|warning| tracing::warn!("{warning}"));
    }
}

/// What was said about each resource, and how many looks ago.
#[derive(Debug, Default)]
struct Told(HashMap<String, (Level, u32)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Scarce,
    UsedUp,
}

impl Told {
    /// Returns the warnings that are new, or were not given for a while.
    fn warnings(&mut self, resources: &[Resource]) -> Vec<String> {
        let mut warnings = Vec::new();
        for (_, looks) in self.0.values_mut() {
            *looks += 1;
        }
        self.0.retain(|_, (_, looks)| *looks < NAMED_AGAIN_LOOKS);
        for one in resources.iter().filter(|one| one.is_scarce()) {
            let level = if one.is_used_up() { Level::UsedUp } else { Level::Scarce };
            if self.0.get(&one.name).is_some_and(|(before, _)| *before >= level) {
                continue;
            }
            self.0.insert(one.name.clone(), (level, 0));
            warnings.push(format!("{}: {one}", one.scarcity()));
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(used: u64) -> [Resource; 1] {
        let (name, key) = ("sessions".to_owned(), "inbound.max_sessions".to_owned());
        [Resource { name, used, max: 100, key }]
    }

    #[test]
    fn a_resource_is_named_before_it_is_used_up_and_not_all_the_time() {
        let mut told = Told::default();
        assert!(told.warnings(&sessions(79)).is_empty());
        assert_eq!(
            told.warnings(&sessions(80)),
            ["nearly used up: sessions, 80 of 100 (inbound.max_sessions)"]
        );
        assert!(told.warnings(&sessions(85)).is_empty());
        assert_eq!(told.warnings(&sessions(100)), ["used up: sessions, 100 of 100 (inbound.max_sessions)"]);
        assert!(told.warnings(&sessions(90)).is_empty(), "it was worse just now");
        let later = (0..NAMED_AGAIN_LOOKS).map(|_| told.warnings(&sessions(90)).len());
        assert_eq!(later.sum::<usize>(), 1, "once more after a while");
    }

    #[test]
    fn the_space_of_a_spool_is_scarce_before_min_free_is_reached() {
        let of = |text: &str| {
            let text = format!("[spool]\nsegment_size = \"4MiB\"\n{text}");
            let settings = config::load_built_in(&text, "a test").unwrap();
            let (max, key) = spool_space(&settings.spool);
            let at = |room: u64| {
                let used = max.saturating_sub(room << 20);
                Resource { name: "spool space".to_owned(), used, max, key: key.to_owned() }
            };
            [at(81), at(79), at(0)].map(|one| (one.is_scarce(), one.is_used_up()))
        };
        let expected = [(false, false), (true, false), (true, true)];
        assert_eq!(of("min_free = \"80MiB\"\n"), expected, "the room above min_free");
        assert_eq!(of("min_free = \"1MiB\"\nmax_size = \"400MiB\"\n"), expected);
    }

    #[test]
    fn open_files_are_counted_from_below() {
        let before = lowest_free_file(u64::MAX);
        let files: Vec<_> = (0..50).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        assert!(lowest_free_file(u64::MAX) >= before.min(50));
        drop(files);
    }
}
