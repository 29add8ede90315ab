//! Queue directories on a file system: a number of them in a folder, or those a pattern names.

use super::{DirSettings, DirSpool, QueueDirectory, SplitDisk};
use crate::{
    SpoolFailure,
    disk::{Disk, RealDisk, make_dir},
};
use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Directories of one level below a queue directory are called `0` to `f`.
const DIGITS: &str = "0123456789abcdef";
/// So many levels.
const LEVELS_MAX: u8 = 2;

/// The queue directories that a spool is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// So many, `q00`, `q01` and so on, made when missing. Not with a pattern: it names them.
    pub directories: usize,
    /// Levels of sixteen directories each below every queue directory; at most 2.
    pub hashed: u8,
}

impl Default for Layout {
    fn default() -> Self {
        Self { directories: 1, hashed: 0 }
    }
}

impl DirSpool {
    /// Opens the queue directories in a folder, which is made when missing, or those that a pattern
    /// names, `/var/spool/q*`, which must be there. Nothing else may have them open.
    ///
    /// # Errors
    /// [`SpoolFailure::Unusable`] when another process has them, there are none, or a log is there.
    pub fn open(path: &Path, layout: Layout, settings: DirSettings) -> Result<Self, SpoolFailure> {
        let failed = |e: io::Error| SpoolFailure::Io(format!("open {}: {e}", path.display()));
        let mut found = existing(path).map_err(failed)?;
        if let Some(log) = found.iter().map(PathBuf::as_path).chain([path]).find(|path| has_log(path)) {
            let text = format!(
                "{} has the files of the backend \"log\"; `postrider spool convert` moves its messages",
                log.display()
            );
            return Err(SpoolFailure::Unusable(text));
        }
        if split_pattern(path).is_none() {
            // The folder's lock keeps the other backend out, too.
            RealDisk::new(path).map_err(failed)?;
            for number in 0..layout.directories.max(1) {
                let queue_dir = path.join(format!("q{number:02}"));
                if !found.contains(&queue_dir) {
                    found.push(queue_dir);
                }
            }
        }
        let content = match &settings.content_path {
            Some(path) => Content::In(std::path::absolute(path).map_err(failed)?),
            None => Content::Beside,
        };
        let is_open = |queue_dir: &Path| {
            split_pattern(path).is_some() || number_of(queue_dir) < layout.directories.max(1)
        };
        let queues: io::Result<Vec<_>> = found
            .iter()
            .map(|queue_dir| queue(queue_dir, is_open(queue_dir).then_some(layout.hashed), &content))
            .collect();
        let queues = queues.map_err(failed)?;
        warn_of_file_systems(&found).map_err(failed)?;
        let mut spool = Self::on(queues, settings)?;
        if split_pattern(path).is_none() {
            spool.lock_folder(path)?;
        }
        Ok(spool)
    }

    fn lock_folder(&mut self, path: &Path) -> Result<(), SpoolFailure> {
        let lock = RealDisk::new(path).and_then(|folder| folder.lock().map(|()| folder));
        self.folder = Some(lock.map_err(|e| {
            let text = format!("lock {}: {e}: is another process using it?", path.display());
            SpoolFailure::Unusable(text)
        })?);
        Ok(())
    }
}

/// Warns of unsuitable file systems, once for each.
fn warn_of_file_systems(queue_dirs: &[PathBuf]) -> io::Result<()> {
    let mut seen = BTreeSet::new();
    for queue_dir in queue_dirs {
        let disk = RealDisk::new(queue_dir)?;
        if seen.insert(disk.device()?) {
            disk.durability_warning().iter().for_each(|warning| tracing::warn!("{warning}"));
        }
    }
    Ok(())
}

/// For a reader that makes and changes nothing.
pub(crate) fn to_inspect(path: &Path) -> io::Result<Vec<QueueDirectory>> {
    existing(path)?.iter().map(|queue_dir| queue(queue_dir, Some(0), &Content::AsLinked)).collect()
}

/// Are there segments of a log?
fn has_log(path: &Path) -> bool {
    let Ok(entries) = fs::read_dir(path) else { return false };
    entries.flatten().any(|entry| Path::new(&entry.file_name()).extension().is_some_and(|kind| kind == "seg"))
}

/// Are there queue directories, or is it a pattern that names some?
pub(crate) fn has_queues(path: &Path) -> bool {
    split_pattern(path).is_some() || existing(path).is_ok_and(|found| !found.is_empty())
}

/// The folder, and what stands before and behind the star in the last part of the path.
fn split_pattern(path: &Path) -> Option<(PathBuf, String, String)> {
    let (before, behind) = path.file_name()?.to_str()?.split_once('*')?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some((folder.to_owned(), before.to_owned(), behind.to_owned()))
}

/// The queue directories there are, sorted by name.
fn existing(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (folder, before, behind) =
        split_pattern(path).unwrap_or_else(|| (path.to_owned(), "q".to_owned(), String::new()));
    let is_pattern = split_pattern(path).is_some();
    let mut found = Vec::new();
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(e) => return Err(e),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let middle = name.strip_prefix(&before).and_then(|rest| rest.strip_suffix(&behind));
        let is_meant = middle.is_some_and(|middle| is_pattern || is_number(middle));
        if is_meant && entry.path().is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn is_number(text: &str) -> bool {
    text.len() >= 2 && text.bytes().all(|b| b.is_ascii_digit())
}

fn number_of(queue_dir: &Path) -> usize {
    let name = queue_dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix('q').and_then(|digits| digits.parse().ok()).unwrap_or(usize::MAX)
}

/// Where the content of new messages is written.
enum Content {
    /// In the directory of the envelopes.
    Beside,
    /// In a directory of this one, which is named as that of the envelopes.
    In(PathBuf),
    /// Wherever an earlier start put it; for a reader.
    AsLinked,
}

/// A link in a directory of envelopes, to that of their content.
const CONTENT_LINK: &str = "content";

/// Opens a directory of a queue directory, with that of its content where it has one.
fn disk_of(dir: &Path, queue_dir: &Path, content: &Content) -> io::Result<Arc<dyn Disk>> {
    let envelopes: Arc<dyn Disk> = Arc::new(RealDisk::new(dir)?);
    let link = dir.join(CONTENT_LINK);
    let linked = match fs::read_link(&link) {
        Ok(target) => Some(target),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(io::Error::other(format!("{} is no link: {e}", link.display()))),
    };
    let target = match (linked, content) {
        (None, Content::Beside | Content::AsLinked) => return Ok(envelopes),
        (Some(target), Content::AsLinked) => target,
        (Some(target), Content::Beside) => {
            return Err(io::Error::other(format!(
                "the content of {} is in {}: set spool.content_path, or convert the spool",
                dir.display(),
                target.display()
            )));
        }
        (linked, Content::In(root)) => {
            let wanted = root.join(dir.strip_prefix(queue_dir.parent().unwrap_or(dir)).unwrap_or(dir));
            match linked {
                None => {
                    // The directory is durable before the link to it is.
                    make_dir(&wanted, 0o700)?;
                    std::os::unix::fs::symlink(&wanted, &link)?;
                    envelopes.sync_dir()?;
                    wanted
                }
                Some(target) if target == wanted => target,
                Some(target) => {
                    return Err(io::Error::other(format!(
                        "the content of {} is in {}, and not in {}: if it was moved, remove {}",
                        dir.display(),
                        target.display(),
                        wanted.display(),
                        link.display()
                    )));
                }
            }
        }
    };
    if !target.is_dir() {
        let (dir, target) = (dir.display(), target.display());
        return Err(io::Error::other(format!(
            "the content of {dir} is in {target}, which is not there: is its file system mounted?"
        )));
    }
    Ok(Arc::new(SplitDisk::new(envelopes, Arc::new(RealDisk::new(target)?))))
}

/// A queue directory with what is below it. With `hashed` it takes new files at that level, whose
/// directories are made.
fn queue(queue_dir: &Path, hashed: Option<u8>, content: &Content) -> io::Result<QueueDirectory> {
    let mut level = vec![queue_dir.to_owned()];
    let mut queue =
        QueueDirectory { name: queue_dir.display().to_string(), disks: Vec::new(), open: Vec::new() };
    for depth in 0..=LEVELS_MAX {
        let mut below = Vec::new();
        for dir in level {
            if hashed == Some(depth) {
                queue.open.push(queue.disks.len());
            }
            queue.disks.push((dir.display().to_string(), disk_of(&dir, queue_dir, content)?));
            let wanted = hashed.is_some_and(|hashed| depth < hashed);
            let names = DIGITS.chars().map(|digit| dir.join(digit.to_string()));
            below.extend(names.filter(|dir| wanted || dir.is_dir()));
        }
        level = below;
    }
    Ok(queue)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(path: &Path, directories: usize, hashed: u8) -> Result<DirSpool, SpoolFailure> {
        DirSpool::open(path, Layout { directories, hashed }, DirSettings::default())
    }

    #[test]
    fn directories_are_made_and_old_ones_are_still_served() {
        let dir = tempfile::tempdir().unwrap();
        drop(opened(dir.path(), 3, 1).unwrap());
        assert_eq!(existing(dir.path()).unwrap().len(), 3);
        assert!(dir.path().join("q02/f").is_dir() && !dir.path().join("q02/f/0").exists());
        let spool = opened(dir.path(), 1, 0).unwrap();
        assert_eq!((spool.shared.queues.queue_count(), spool.shared.queues.dirs.len()), (3, 3 * 17));
        assert!((0..100).all(|id| spool.shared.queues.choose(id, &[0, 0, 0]) == 0));
    }

    #[test]
    fn a_pattern_names_directories_that_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let pattern = dir.path().join("mq*");
        assert!(opened(&pattern, 9, 0).err().unwrap().to_string().contains("no queue directory"));
        for name in ["mqa", "mqb", "other"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let spool = opened(&pattern, 9, 0).unwrap();
        let names: Vec<_> =
            spool.shared.queues.queue_dirs().map(|queue_dir| queue_dir.name.clone()).collect();
        assert!(names[0].ends_with("/mqa") && names[1].ends_with("/mqb") && names.len() == 2, "{names:?}");
        assert!(opened(&pattern, 9, 0).is_err(), "a second process");
    }

    #[test]
    fn content_has_a_directory_of_its_own_and_is_not_looked_for_where_it_is_not() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let open = |content: Option<&Path>| {
            let content_path = content.map(Path::to_owned);
            let settings = DirSettings { content_path, ..DirSettings::default() };
            DirSpool::open(dir.path(), Layout { directories: 2, hashed: 1 }, settings)
        };
        let told = |content| open(content).err().map(|e| e.to_string()).unwrap_or_default();
        drop(open(Some(other.path())).unwrap());
        assert!(other.path().join("q01/f").is_dir());
        assert_eq!(fs::read_link(dir.path().join("q01/f/content")).unwrap(), other.path().join("q01/f"));
        assert!(told(None).contains("set spool.content_path"), "{}", told(None));
        let third = tempfile::tempdir().unwrap();
        assert!(told(Some(third.path())).contains("and not in"), "{}", told(Some(third.path())));
        assert_eq!(to_inspect(dir.path()).unwrap().len(), 2);
        fs::rename(other.path().join("q00"), other.path().join("gone")).unwrap();
        let missing = told(Some(other.path()));
        assert!(missing.contains("is its file system mounted?"), "{missing}");
        assert!(!other.path().join("q00").exists(), "it is not made again");
    }

    #[test]
    fn a_log_is_not_taken_for_queue_directories() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("0000000000000001.seg"), "x").unwrap();
        assert!(opened(dir.path(), 1, 0).err().unwrap().to_string().contains("postrider spool convert"));
    }
}
