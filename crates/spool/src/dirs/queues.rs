//! The queue directories, and which of them the next message goes to.

use crate::{SpoolFailure, disk::Disk};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The rule that chooses a queue directory for the messages that are committed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// Any of them, with equal probability.
    Random,
    /// The one with the fewest live messages.
    LeastUsed,
}

/// One queue directory of the operator's, with the directories below it that hold files.
pub struct QueueDirectory {
    /// For messages to the operator.
    pub name: String,
    /// Every directory that may hold its files; its own is the first. With their names.
    pub disks: Vec<(String, Arc<dyn Disk>)>,
    /// The directories that take new files, by index. Empty: what is in it is served, and nothing goes there.
    pub open: Vec<usize>,
}

impl QueueDirectory {
    /// Returns a queue directory that holds all files itself.
    pub fn flat(name: impl Into<String>, disk: Arc<dyn Disk>) -> Self {
        let name = name.into();
        Self { disks: vec![(name.clone(), disk)], name, open: vec![0] }
    }
}

/// One directory in which files are made.
pub(super) struct Dir {
    pub(super) name: String,
    pub(super) disk: Arc<dyn Disk>,
    /// By index in the operator's list.
    pub(super) queue: usize,
}

/// All directories of the spool, and which of them takes the next message.
pub(super) struct Queues {
    pub(super) dirs: Vec<Dir>,
    /// Of each queue directory, the directories that take new files.
    open: Vec<Vec<u16>>,
    /// Of each queue directory, its own directory.
    queue_dirs: Vec<u16>,
    placement: Placement,
    turn: AtomicUsize,
}

impl Queues {
    /// Refuses a second process in any of them.
    pub(super) fn new(queues: Vec<QueueDirectory>, placement: Placement) -> Result<Self, SpoolFailure> {
        let mut all = Self {
            dirs: Vec::new(),
            open: Vec::new(),
            queue_dirs: Vec::new(),
            placement,
            turn: AtomicUsize::new(0),
        };
        for (number, queue) in queues.into_iter().enumerate() {
            let first = all.dirs.len();
            if first + queue.disks.len() > usize::from(u16::MAX) {
                return Err(SpoolFailure::Unusable("there are more than 65,000 directories".to_owned()));
            }
            all.queue_dirs.push(first as u16);
            all.open.push(queue.open.iter().map(|index| (first + index) as u16).collect());
            all.dirs.extend(queue.disks.into_iter().map(|(name, disk)| Dir { name, disk, queue: number }));
        }
        if all.open.iter().all(Vec::is_empty) {
            return Err(SpoolFailure::Unusable("there is no queue directory".to_owned()));
        }
        Ok(all)
    }

    pub(super) fn lock(&self) -> Result<(), SpoolFailure> {
        self.queue_dirs().try_for_each(|dir| {
            dir.disk.lock().map_err(|e| {
                let text = format!("lock {}: {e}: is another process using it?", dir.name);
                SpoolFailure::Unusable(text)
            })
        })
    }

    /// Returns the operator's directories, without those below them.
    pub(super) fn queue_dirs(&self) -> impl Iterator<Item = &Dir> {
        self.queue_dirs.iter().map(|queue_dir| self.dir(*queue_dir))
    }

    pub(super) fn queue_count(&self) -> usize {
        self.queue_dirs.len()
    }

    pub(super) fn dir(&self, dir: u16) -> &Dir {
        &self.dirs[usize::from(dir)]
    }

    /// Returns the directory for the totals: the first queue directory itself.
    pub(super) fn root(&self) -> u16 {
        self.queue_dirs.first().copied().unwrap_or_default()
    }

    /// Returns the directory for intents: the first that takes new files.
    pub(super) fn first(&self) -> u16 {
        self.open.iter().flatten().next().copied().unwrap_or_default()
    }

    /// The queue directory for a batch that begins with `number`, a queue id or a place. `pending`
    /// counts what each has.
    pub(super) fn choose(&self, number: u64, pending: &[u64]) -> usize {
        let open: Vec<usize> = (0..self.open.len()).filter(|queue| !self.open[*queue].is_empty()).collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        match self.placement {
            Placement::RoundRobin => open[turn % open.len()],
            Placement::Random => open[(mix(number) >> 32) as usize % open.len()],
            // Of those with equally few the next in turn, so that the first is not always it.
            Placement::LeastUsed => {
                let rotated = (0..open.len()).map(|n| open[(turn + n) % open.len()]);
                rotated.min_by_key(|queue| pending[*queue]).unwrap_or_default()
            }
        }
    }

    /// Returns the directory for the files of `number` in a queue directory that takes new ones.
    pub(super) fn dir_in(&self, queue: usize, number: u64) -> u16 {
        let leaves = &self.open[queue];
        leaves[mix(number) as u32 as usize % leaves.len()]
    }
}

/// Spreads numbers that grow with time evenly.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Disk for Nothing {
        fn lock(&self) -> std::io::Result<()> {
            Ok(())
        }
        fn list(&self) -> std::io::Result<Vec<String>> {
            Ok(Vec::new())
        }
        fn create(&self, _: &str) -> std::io::Result<Arc<dyn crate::disk::File>> {
            Err(std::io::ErrorKind::Unsupported.into())
        }
        fn open(&self, _: &str) -> std::io::Result<Arc<dyn crate::disk::File>> {
            Err(std::io::ErrorKind::Unsupported.into())
        }
        fn rename(&self, _: &str, _: &str) -> std::io::Result<()> {
            Ok(())
        }
        fn remove(&self, _: &str) -> std::io::Result<()> {
            Ok(())
        }
        fn sync_dir(&self) -> std::io::Result<()> {
            Ok(())
        }
        fn sync_all(&self) -> std::io::Result<()> {
            Ok(())
        }
        fn free_bytes(&self) -> std::io::Result<u64> {
            Ok(0)
        }
    }

    fn queues(placement: Placement) -> Queues {
        let mut all: Vec<_> =
            (0..3).map(|n| QueueDirectory::flat(format!("q{n}"), Arc::new(Nothing))).collect();
        all[1].open.clear();
        Queues::new(all, placement).unwrap()
    }

    #[test]
    fn messages_go_round_by_chance_or_to_the_shortest_queue_and_never_to_a_closed_one() {
        let chosen = |placement, pending: &[u64]| -> Vec<u16> {
            let queues = queues(placement);
            (0..6).map(|id| queues.dir_in(queues.choose(id, pending), id)).collect()
        };
        assert_eq!(chosen(Placement::RoundRobin, &[9, 0, 0]), [0, 2, 0, 2, 0, 2]);
        assert_eq!(chosen(Placement::LeastUsed, &[4, 0, 3]), [2; 6]);
        assert_eq!(chosen(Placement::LeastUsed, &[3, 0, 3]), [0, 2, 0, 2, 0, 2]);
        let random = chosen(Placement::Random, &[9, 0, 0]);
        assert!(random.contains(&0) && random.contains(&2) && !random.contains(&1), "{random:?}");
    }
}
