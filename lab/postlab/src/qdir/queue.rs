//! Reading and sorting of a queue directory, as Sendmail 8 does it for each of its orders.

use clap::ValueEnum;
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use std::{
    cmp::Reverse,
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::{Duration, Instant},
};

/// sendmail's QueueSortOrder, and some of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Order {
    /// By size and recipients in the file; the default of sendmail
    Priority,
    /// By name; opens no file, but looks each up, as sendmail does
    Filename,
    /// By recipient's host, then priority; hosts with a locked message last. With --mta by next hop, and also named next-hop
    #[value(alias = "next-hop")]
    Host,
    /// By the modification time of the file
    Modification,
    Random,
    /// By the submission time in the file
    Time,
    /// In the order of the directory
    None,
    /// By the size of the content
    Smallest,
    /// Small messages before bulk; with --mta only
    Fair,
    /// By expiry time; with --mta only
    Deadline,
}

impl Order {
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
    }

    /// Has a file of sendmail's what it asks for?
    pub(super) fn is_sendmails(&self) -> bool {
        !matches!(self, Self::Fair | Self::Deadline)
    }

    /// Opens and reads each envelope.
    pub(super) fn opens(self) -> bool {
        matches!(self, Self::Priority | Self::Host | Self::Time)
    }

    /// Asks for the inode of a file of each message. Sendmail 8 does so for each order that opens no file, whether it needs the time
    /// or not: gatherq() looks for work that it can avoid.
    pub(super) fn stats(self) -> bool {
        matches!(self, Self::Filename | Self::Modification | Self::Random | Self::Smallest)
    }
}

/// The facts of a message that an order needs.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Work {
    pub(super) name: String,
    number: u64,
    /// Reversed, so that hosts of a domain lie together.
    host: String,
    is_locked: bool,
}

/// Durations of the parts.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Phases {
    /// Names from the directory.
    pub(super) list: Duration,
    /// Opening, reading or looking up of each file, without the locks.
    pub(super) facts: Duration,
    /// Testing whether other runners hold locks.
    pub(super) locks: Duration,
    pub(super) sort: Duration,
}

impl Phases {
    /// S1's queue-read.
    pub(super) fn read(&self) -> Duration {
        self.list + self.facts + self.locks
    }

    pub(super) fn sum(&self) -> Duration {
        self.read() + self.sort
    }
}

/// Reads the facts that the order needs, of each message, and sorts.
pub(super) fn gather(queue: &Path, order: Order) -> io::Result<(Vec<Work>, Phases)> {
    let mut phases = Phases::default();
    let begin = Instant::now();
    let mut works = list(queue)?;
    phases.list = begin.elapsed();
    let begin = Instant::now();
    // Another runner may have delivered one meanwhile.
    let mut lost = Vec::new();
    for (i, work) in works.iter_mut().enumerate() {
        match work.find_out(queue, order, &mut phases.locks) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => lost.push(i),
            found => found?,
        }
    }
    lost.iter().rev().for_each(|i| drop(works.swap_remove(*i)));
    phases.facts = begin.elapsed().saturating_sub(phases.locks);
    let begin = Instant::now();
    sort(&mut works, order);
    phases.sort = begin.elapsed();
    Ok((works, phases))
}

fn list(queue: &Path) -> io::Result<Vec<Work>> {
    let mut works = Vec::new();
    for entry in fs::read_dir(queue)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("qf") {
            works.push(Work { name, ..Work::default() });
        }
    }
    Ok(works)
}

fn sort(works: &mut [Work], order: Order) {
    match order {
        Order::None | Order::Fair | Order::Deadline => {}
        Order::Filename => works.sort_unstable_by(|a, b| a.name.cmp(&b.name)),
        Order::Host => sort_by_host(works),
        _ => works.sort_unstable_by_key(|work| work.number),
    }
}

/// Sorts by host; locks all messages of a host of which one is locked; and sorts again, locked hosts last: sortq() of
/// Sendmail 8.
fn sort_by_host(works: &mut [Work]) {
    // A locked message first, so that it locks those behind it.
    works.sort_unstable_by(|a, b| {
        (&a.host, !a.is_locked, Reverse(a.number)).cmp(&(&b.host, !b.is_locked, Reverse(b.number)))
    });
    for i in 1..works.len() {
        works[i].is_locked |= works[i - 1].is_locked && works[i - 1].host == works[i].host;
    }
    works.sort_unstable_by(|a, b| {
        (a.is_locked, &a.host, Reverse(a.number)).cmp(&(b.is_locked, &b.host, Reverse(b.number)))
    });
}

impl Work {
    fn find_out(&mut self, queue: &Path, order: Order, locks: &mut Duration) -> io::Result<()> {
        if order.opens() {
            let mut text = String::new();
            let mut file = File::open(queue.join(&self.name))?;
            file.read_to_string(&mut text)?;
            self.understand(&text, order);
            if order == Order::Host {
                let begin = Instant::now();
                self.is_locked = !try_lock(&file)?;
                *locks += begin.elapsed();
            }
        } else if order == Order::Smallest {
            self.number = fs::metadata(queue.join(self.name.replacen('q', "d", 1)))?.size();
        } else if order.stats() {
            let meta = fs::metadata(queue.join(&self.name))?;
            self.number = match order {
                Order::Random => fastrand::u64(..),
                _ => meta.mtime().unsigned_abs() * 1_000_000_000 + meta.mtime_nsec().unsigned_abs(),
            };
        }
        Ok(())
    }

    /// Reads the lines of a qf file that matter.
    fn understand(&mut self, text: &str, order: Order) {
        let wanted = if order == Order::Time { 'T' } else { 'P' };
        for line in text.lines() {
            if let Some(number) = line.strip_prefix(wanted) {
                self.number = number.parse().unwrap_or_default();
            } else if order == Order::Host && line.starts_with("RPFD:") {
                self.host = recipient_host(line).chars().rev().collect();
            }
        }
    }
}

/// Returns the domain of the address at the end of a recipient's line.
pub(super) fn recipient_host(line: &str) -> &str {
    line.rsplit('@').next().unwrap_or_default().trim_end_matches('>')
}

/// Locks a file until it is closed; false if another has it.
pub(super) fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        locked => Ok(locked.map(|()| true)?),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::enqueue, *};

    fn names(works: &[Work]) -> Vec<&str> {
        works.iter().map(|w| &w.name[9..]).collect()
    }

    #[test]
    fn each_order_of_sendmail_but_none_looks_at_each_file() {
        let directory = tempfile::tempdir().unwrap();
        enqueue(directory.path(), 1, 1000, 1, false).unwrap();
        // A name that is listed, and whose file is gone when it is asked for.
        std::os::unix::fs::symlink("nowhere", directory.path().join("qf00000002")).unwrap();
        for order in Order::value_variants().iter().filter(|order| order.is_sendmails()) {
            let (works, _) = gather(directory.path(), *order).unwrap();
            assert_eq!(works.len(), if *order == Order::None { 2 } else { 1 }, "{order:?}");
        }
    }

    #[test]
    fn each_order_reads_all_and_puts_them_in_its_order() {
        let directory = tempfile::tempdir().unwrap();
        for number in [5, 3, 9, 1] {
            enqueue(directory.path(), number, 1000, number as usize, false).unwrap();
        }
        for order in Order::value_variants() {
            let (works, phases) = gather(directory.path(), *order).unwrap();
            assert_eq!(works.len(), 4, "{order:?}");
            assert_eq!(phases.locks.is_zero(), *order != Order::Host, "{order:?}");
            match order {
                Order::Priority | Order::Filename | Order::Time | Order::Smallest => {
                    assert_eq!(names(&works), ["1", "3", "5", "9"], "{order:?}");
                }
                Order::Host => assert!(works.is_sorted_by(|a, b| a.host <= b.host)),
                Order::Modification | Order::Random => {
                    assert!(works.is_sorted_by(|a, b| a.number <= b.number));
                }
                Order::None | Order::Fair | Order::Deadline => {}
            }
        }
    }

    #[test]
    fn a_locked_message_puts_all_of_its_host_last() {
        let directory = tempfile::tempdir().unwrap();
        let queue = directory.path();
        (0..9).for_each(|number| enqueue(queue, number, 3, 10, false).unwrap());
        let unlocked = gather(queue, Order::Host).unwrap().0;
        let first = unlocked[0].clone();
        // The host that would be the first, by a message of it that is not its first.
        let last_of_first = unlocked.iter().rfind(|w| w.host == first.host).unwrap();
        let file = File::open(queue.join(&last_of_first.name)).unwrap();
        assert!(try_lock(&file).unwrap());
        let works = gather(queue, Order::Host).unwrap().0;
        let count = works.iter().filter(|w| w.host == first.host).count();
        assert!(count > 1 && count < 9, "{works:?}");
        let (free, locked) = works.split_at(9 - count);
        assert!(locked.iter().all(|w| w.is_locked && w.host == first.host), "{works:?}");
        assert!(free.iter().all(|w| !w.is_locked && w.host != first.host), "{works:?}");
        drop(file);
        assert!(gather(queue, Order::Host).unwrap().0.iter().all(|w| !w.is_locked));
    }
}
