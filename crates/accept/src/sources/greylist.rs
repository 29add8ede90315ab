//! The origins of mail that have come again, in memory and in a file.

use super::kept::KeptFile;
use crate::logins::random;
use limits::Greylist;
use std::{
    io,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// In `data_dir`.
const FILE: &str = "greylist";
/// Origins that are kept. The file has at most 53 octets for each, and may have 16 MiB.
const ORIGINS_MAX: usize = 250_000;

/// The table. It outlives a reload of the configuration.
pub struct GreylistTable {
    list: Mutex<Greylist>,
    file: KeptFile,
}

impl GreylistTable {
    /// Reads the file of an earlier start. Without it, or if it is damaged, all origins are unknown.
    pub(crate) fn open(data_dir: &Path) -> Self {
        let file = KeptFile::new(data_dir, FILE, "mail that is greylisted has to come again");
        let list = file.read(|bytes| Greylist::from_bytes(bytes, ORIGINS_MAX));
        Self { list: Mutex::new(list.unwrap_or_else(|| Greylist::new(random(), ORIGINS_MAX))), file }
    }

    pub(crate) fn list(&self) -> MutexGuard<'_, Greylist> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many origins are kept, and how many can be.
    pub fn len_and_max(&self) -> (usize, usize) {
        (self.list().len(), ORIGINS_MAX)
    }

    /// Writes the file if something has changed. Waits for the disk.
    pub(super) fn save(&self) -> io::Result<()> {
        let Some(bytes) = self.list().changed_bytes() else { return Ok(()) };
        self.file.write(&bytes).inspect_err(|_| self.list().note_change())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limits::{Greeted, GreylistTimes};
    use std::{fs, net::IpAddr};

    const TIMES: GreylistTimes = GreylistTimes { wait: 300, retry: 3600, keep: 100_000, known_after: 2 };
    const FAR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    #[test]
    fn origins_outlive_a_restart_and_damage_costs_only_them() {
        let dir = tempfile::tempdir().unwrap();
        let table = GreylistTable::open(dir.path());
        assert_eq!(table.list().judge(FAR, "a", "b", 0, TIMES), Greeted::Wait(300));
        table.save().unwrap();
        let table = GreylistTable::open(dir.path());
        assert_eq!(table.list().look(FAR, "a", "b", 300, TIMES), Greeted::Known);
        assert_eq!(table.list().judge(FAR, "a", "b", 300, TIMES), Greeted::Known);
        fs::write(dir.path().join(FILE), "damaged").unwrap();
        let table = GreylistTable::open(dir.path());
        assert_eq!(table.list().look(FAR, "a", "b", 301, TIMES), Greeted::Wait(300));
        table.save().unwrap();
        assert_eq!(fs::read(dir.path().join(FILE)).unwrap(), b"damaged", "nothing has changed");
    }
}
