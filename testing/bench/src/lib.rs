//! The cost of the parts of a message's way, without sockets, disks and other processes: each part is run
//! in memory, so often, and nothing else. `cargo xtask bench` counts the instructions of each and
//! compares them with `baseline.txt`; `cargo bench --package bench` measures their time.

pub mod authentication;
pub mod commit;
pub mod expand;
pub mod log_lines;
pub mod maps;
pub mod memory;
pub mod relay;
pub mod rules;
pub mod schedule;
pub mod session;

/// A part of the daemon whose CPU time is measured.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// As the baseline names it.
    pub name: &'static str,
    /// What one round does, for the report.
    pub what: &'static str,
    /// Runs so many rounds.
    pub run: fn(u64),
}

/// Every part that is measured.
pub const PARTS: [Part; 15] = [
    Part { name: "session", what: "a transaction of 1 KiB at a server session", run: session::run },
    Part { name: "commit", what: "a message written to the log and ended, 20 a commit", run: commit::run },
    Part {
        name: "schedule",
        what: "a durable message queued, leased and delivered by the engine",
        run: schedule::deliver,
    },
    Part {
        name: "defer",
        what: "a durable message deferred, due again and delivered by the engine",
        run: schedule::defer,
    },
    Part { name: "log", what: "the three lines of a message in the delivery log", run: log_lines::run },
    Part { name: "relay", what: "a message of 1 KiB from the first command to the end", run: relay::run },
    Part { name: "map-text", what: "100 keys of 100,000 in a text map", run: maps::text },
    Part {
        name: "map-file",
        what: "100 keys in the map of a file, as the daemon looks them up",
        run: maps::file,
    },
    Part { name: "map-cidr", what: "100 addresses in 10,000 networks", run: maps::cidr },
    Part { name: "map-cdb", what: "100 keys of 100,000 in a cdb file", run: maps::cdb },
    Part { name: "rules", what: "20 rules without look-ups", run: rules::run },
    Part { name: "limit", what: "100 times one of the rate of one of 100,000 clients", run: rules::limit },
    Part { name: "verify", what: "SPF, a signature and DMARC of 10 KiB", run: authentication::verify },
    Part { name: "sign", what: "10 KiB signed with Ed25519", run: authentication::sign },
    Part { name: "expand", what: "an alias with 10 addresses", run: expand::run },
];

/// Returns the part with this name.
pub fn part(name: &str) -> Option<Part> {
    PARTS.into_iter().find(|part| part.name == name)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_part_runs() {
        for part in super::PARTS {
            (part.run)(50);
        }
    }
}
