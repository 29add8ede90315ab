//! Queue groups: mail that is scheduled in a way of its own, and perhaps kept so.

use crate::{
    Placement, SortOrder,
    choice::Backend,
    domain::DomainPattern,
    section::Reading,
    settings::{QueueGroupKeys, Spool},
};
use std::{
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};
use toml::{Spanned, de::DeTable};

/// More would not fit its number.
const GROUPS_MAX: usize = 255;

/// A `[[queue_group]]`. The first group that matches is used; keys that it leaves out have the values of other mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueGroup {
    /// Unique.
    pub name: String,
    /// Domains of recipients; empty: all.
    pub domains: Vec<DomainPattern>,
    /// Domains of senders; empty: all.
    pub sender_domains: Vec<DomainPattern>,
    /// The order in which messages of a destination are attempted.
    pub order: Option<SortOrder>,
    /// Shortest wait.
    pub retry_min: Option<Duration>,
    /// Longest wait.
    pub retry_max: Option<Duration>,
    /// Connections a destination begins with.
    pub initial_concurrency: Option<usize>,
    /// Connections to one destination.
    pub connections_per_destination: Option<usize>,
    /// Connections of the whole group.
    pub max_connections: Option<usize>,
    /// Higher first.
    pub priority: u32,
    /// The group's own spool, if it has one.
    pub spool: Option<OwnSpool>,
}

/// The settings of a group's own spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnSpool {
    backend: Option<Backend>,
    path: PathBuf,
    directories: Option<usize>,
    placement: Option<Placement>,
    hash_depth: Option<u32>,
}

impl OwnSpool {
    /// Anything but the path makes it one, too: then it is in the folder of the daemon's data.
    fn of(keys: &QueueGroupKeys, data_dir: &Path) -> Option<Self> {
        let QueueGroupKeys { backend, directories, placement, hash_depth, .. } = *keys;
        let is_wanted =
            backend.is_some() || directories.is_some() || placement.is_some() || hash_depth.is_some();
        let name = keys.name.as_ref().map_or("", |name| &name.0);
        let path = keys.path.clone().or_else(|| is_wanted.then(|| data_dir.join(format!("spool-{name}"))))?;
        Some(Self { backend, path, directories, placement, hash_depth })
    }

    /// Returns the complete settings; keys that are left out are those of `other`.
    pub fn beside(&self, other: &Spool) -> Spool {
        Spool {
            backend: self.backend.unwrap_or(other.backend),
            path: self.path.clone(),
            directories: self.directories.unwrap_or(other.directories),
            placement: self.placement.unwrap_or(other.placement),
            hash_depth: self.hash_depth.unwrap_or(other.hash_depth),
            // Names of queue directories repeat from spool to spool.
            content_path: None,
            ..other.clone()
        }
    }
}

impl QueueGroup {
    /// Returns the number of the first group for mail between two domains, each given as [`mail::Domain::key`], counted
    /// from 1; 0 for no group. The null reverse-path has no domain.
    pub fn find(groups: &[Self], recipient: &str, sender: Option<&str>) -> usize {
        groups.iter().position(|group| group.matches(recipient, sender)).map_or(0, |at| at + 1)
    }

    /// Returns whether the group matches mail between two domains, each given as [`mail::Domain::key`]. The null
    /// reverse-path has none.
    fn matches(&self, recipient: &str, sender: Option<&str>) -> bool {
        let any = |patterns: &[DomainPattern], key: Option<&str>| {
            patterns.is_empty()
                || patterns
                    .iter()
                    .any(|p| matches!(p, DomainPattern::Any) || key.is_some_and(|k| p.matches(k)))
        };
        any(&self.domains, Some(recipient)) && any(&self.sender_domains, sender)
    }
}

impl Reading<'_> {
    pub(crate) fn queue_groups(&mut self, root: &DeTable<'_>) -> Vec<QueueGroup> {
        let tables = self.tables(root, "queue_group").unwrap_or_default();
        let mut groups: Vec<QueueGroup> = Vec::new();
        for (number, table) in tables.iter().enumerate() {
            let keys: QueueGroupKeys = self.section(&format!("queue_group[{number}]"), Some(table.get_ref()));
            self.check_group(&keys, &groups, table);
            let spool = OwnSpool::of(&keys, Path::new(&self.placeholders.data_dir));
            self.check_folder(&keys, spool.is_some(), table);
            groups.push(QueueGroup {
                name: keys.name.map(|word| word.0).unwrap_or_default(),
                domains: keys.domains,
                sender_domains: keys.sender_domains,
                order: keys.order,
                retry_min: keys.retry_min,
                retry_max: keys.retry_max,
                initial_concurrency: keys.initial_concurrency,
                connections_per_destination: keys.connections_per_destination,
                max_connections: keys.max_connections,
                priority: keys.priority,
                spool,
            });
        }
        if groups.len() >= GROUPS_MAX {
            let what = format!("there are {} queue groups", groups.len());
            let span = tables[GROUPS_MAX - 1].span();
            self.cx.problem(span, what, "one too many", format!("keep fewer than {GROUPS_MAX}"));
        }
        groups
    }

    /// Checks the name of a group without a path, because the name becomes a part of the path.
    fn check_folder(&mut self, keys: &QueueGroupKeys, is_own: bool, table: &Spanned<&DeTable<'_>>) {
        let Some(name) = keys.name.as_ref().filter(|name| name.0.contains(['/', '*'])) else { return };
        if is_own && keys.path.is_none() && !table.get_ref().contains_key("path") {
            let span = table.get_ref().get("name").map_or(table.span(), Spanned::span);
            let what = format!("no directory can be called spool-{}", name.0);
            let help = "write another name, or add path = \"/var/spool/bulk\"".to_owned();
            self.cx.problem(span, what, "would be part of a path", help);
        }
    }

    fn check_group(&mut self, keys: &QueueGroupKeys, earlier: &[QueueGroup], table: &Spanned<&DeTable<'_>>) {
        let span =
            |name: &str| -> Range<usize> { table.get_ref().get(name).map_or(table.span(), Spanned::span) };
        match &keys.name {
            None if table.get_ref().contains_key("name") => {} // Said already.
            None => self.missing(table.span(), "name", "name = \"bulk\""),
            Some(name) if name.0 == "default" => {
                let what = "\"default\" is the group of all other mail".to_owned();
                self.cx.problem(span("name"), what, "taken", "write another name".to_owned());
            }
            Some(name) if earlier.iter().any(|group| group.name == name.0) => {
                let what = format!("two queue groups are named \"{}\"", name.0);
                self.cx.problem(span("name"), what, "the second", "write another name".to_owned());
            }
            Some(_) => {}
        }
        if keys.domains.is_empty() && keys.sender_domains.is_empty() {
            let given = ["domains", "sender_domains"].iter().any(|key| table.get_ref().contains_key(*key));
            if !given {
                let help = "add domains = [\"example.com\"] or sender_domains = [\"news.example.com\"]";
                let what = "this queue group matches no mail".to_owned();
                self.cx.problem(table.span(), what, "nothing matches", help.to_owned());
            }
        }
        for (key, value) in [
            ("max_connections", keys.max_connections),
            ("connections_per_destination", keys.connections_per_destination),
            ("initial_concurrency", keys.initial_concurrency),
        ] {
            if value == Some(0) {
                let what = format!("`{key}` is too small");
                self.cx.problem(span(key), what, "nothing would ever leave", "write 1 or more".to_owned());
            }
        }
    }
}
