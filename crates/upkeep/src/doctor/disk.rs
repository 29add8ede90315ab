//! The disks of the spools: does a sync keep its promise, and is there room?

use super::{Finding, bytes};
use config::Settings;
use machine::disk::{Evidence, Verdict, device::Device};
use mail::counted;
use rustix::fs::{Mode, OFlags, open, statvfs};
use server::{spool_room::SpoolRoom, unnamed_spools};
use std::{
    collections::HashSet,
    fs::{self, File},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const DISK: &str = "disk";
const ROOM: &str = "room";
const SPOOL: &str = "spool";
const DROP: &str = "drop directory";

/// Syncs of one measurement.
const SYNCS: u32 = 50;
/// A disk that is slower than this is measured by fewer syncs.
const LONGEST: Duration = Duration::from_secs(5);
/// A median above this limits the mail of a busy server.
const SLOW_US: f64 = 50_000.0;
/// Less free room than this part is a warning.
const FREE_PART: u64 = 20;

/// Checks each disk once.
pub(super) fn check(settings: &Settings) -> Vec<Finding> {
    let (mut findings, mut seen) = (Vec::new(), HashSet::new());
    for spool in settings.spools() {
        let min_free = SpoolRoom::of(&spool).min_free_bytes;
        for path in [Some(spool.path.clone()), spool.content_path.clone()].into_iter().flatten() {
            let Some(folder) = existing(&path) else { continue };
            if !folder.metadata().is_ok_and(|meta| seen.insert(meta.dev())) {
                continue;
            }
            findings.extend(file_system(&folder));
            findings.push(syncs(&folder));
            findings.extend(room(&folder, min_free));
        }
    }
    findings.extend(left_in_drop_directory(&settings.control.maildrop));
    let unnamed = unnamed_spools::find(settings);
    findings.extend(unnamed.iter().map(|one| Finding::error(SPOOL, one.seen(), one.advice())));
    findings
}

/// Finds what local users or programs have left in the drop directory that never becomes mail.
fn left_in_drop_directory(dir: &Path) -> Option<Finding> {
    // Nobody but the daemon's user and root may list it.
    let tally = submission::maildrop::tally(dir).ok()?;
    let (dir, mut seen, mut advice) = (dir.display(), Vec::new(), Vec::new());
    if tally.set_aside > 0 {
        let files = counted(tally.set_aside, "file");
        seen.push(format!("{files} from which no message could be accepted"));
        advice.push(
            "look at the files that end in `.bad`; the log says why each was set aside. Then remove them"
                .to_owned(),
        );
    }
    if let Some((uid, count)) = tally.most {
        let directories = counted(tally.directories, "directory");
        seen.push(format!("{directories} that cannot be mail, {count} of them of user {uid}"));
        advice.push(format!("ask the user, and remove them: `find {dir} -mindepth 1 -maxdepth 1 -type d`"));
    }
    let seen = (!seen.is_empty()).then(|| format!("{dir} has {}", seen.join(", and ")))?;
    Some(Finding::warning(DROP, seen, advice.join("; ")))
}

/// Returns the folder, or the first one above it that is there.
fn existing(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    path.ancestors().find(|path| path.is_dir()).map(Path::to_owned)
}

/// Finds file systems that keep less than they are asked to.
fn file_system(folder: &Path) -> Option<Finding> {
    let text = spool::disk::weak_file_system_of(folder)?;
    Some(Finding::error(
        DISK,
        format!("{} is on {text}", folder.display()),
        "name another folder in `spool.path`",
    ))
}

fn syncs(folder: &Path) -> Finding {
    let place = folder.display();
    let not_tried = |why: &dyn std::fmt::Display| {
        Finding::warning(
            DISK,
            format!("the syncs of {place} were not tried: {why}"),
            "run this command as root",
        )
    };
    let device = match Device::below(folder) {
        Ok(device) => device,
        Err(why) => return not_tried(&why),
    };
    let file = match nameless(folder) {
        Ok(file) => file,
        Err(why) => return not_tried(&why),
    };
    let until = Instant::now() + LONGEST;
    match Evidence::gather(device, &file, SYNCS, &mut || Instant::now() < until) {
        Ok(evidence) => judged(&place.to_string(), &evidence),
        Err(error) => {
            let seen = format!("writing and syncing a file in {place} failed: {error}");
            Finding::error(DISK, seen, "check the disk and the log of the kernel (`dmesg`)")
        }
    }
}

fn judged(place: &str, evidence: &Evidence) -> Finding {
    let verdict = evidence.verdict();
    let (ms, count) = (evidence.sync_p50_us / 1000.0, evidence.syncs);
    let seen =
        format!("{place} ({}): {count} syncs, median {ms:.2} ms; {}", evidence.device.text(), verdict.text());
    match verdict {
        Verdict::Memory | Verdict::Ignored => Finding::error(
            DISK,
            seen,
            "mail that was accepted is lost when the power fails: put the spool on another disk",
        ),
        Verdict::NeverFlushed | Verdict::TooFast => Finding::warning(
            DISK,
            seen,
            "accepted mail may be lost when the power fails: mount without `nobarrier`, and disable the write cache of the disk \
             or the host, unless it has a battery",
        ),
        Verdict::Plausible | Verdict::Unknown if evidence.sync_p50_us > SLOW_US => {
            Finding::warning(DISK, seen, "each reply 250 waits for a sync: a faster disk accepts more mail")
        }
        Verdict::Plausible => Finding::ok(DISK, seen),
        Verdict::Unknown => Finding::warning(
            DISK,
            seen,
            "whether a sync reaches the disk cannot be seen here: try it with a power cut",
        ),
    }
}

/// Opens a file without a name, so that nothing is left.
fn nameless(folder: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(file) = open(folder, flags, Mode::from_raw_mode(0o600)) {
        return Ok(file.into());
    }
    // A file system without such files.
    let path = folder.join(format!(".postrider-doctor-{}", std::process::id()));
    let file = fs::OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

fn room(folder: &Path, min_free: u64) -> Vec<Finding> {
    let Ok(found) = statvfs(folder) else { return Vec::new() };
    let (free, all) = (found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize);
    let place = folder.display();
    let seen = format!("{place}: {} of {} free", bytes(free), bytes(all));
    let space = if free < min_free {
        let seen = format!("{seen}, less than `spool.min_free` ({}): mail is refused", bytes(min_free));
        Finding::error(ROOM, seen, "free space on this disk")
    } else if free < 2 * min_free || free < all / FREE_PART {
        Finding::warning(ROOM, seen, "free space before mail is refused")
    } else {
        Finding::ok(ROOM, seen)
    };
    let mut findings = vec![space];
    // File systems that make inodes as they need them tell of none.
    if found.f_files > 0 && found.f_favail < found.f_files / FREE_PART {
        let seen = format!("{place}: {} of {} inodes free", found.f_favail, found.f_files);
        findings.push(Finding::warning(ROOM, seen, "remove small files before none can be made"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    fn evidence(device: Device, p50_us: f64, disk: Option<(u64, u64)>) -> Evidence {
        Evidence {
            device,
            syncs: 50,
            sync_p50_us: p50_us,
            sync_p99_us: p50_us,
            syncs_per_second: 1e6 / p50_us,
            writes_per_second_unsynced: 1e6,
            disk_writes: disk.map(|disk| disk.0),
            disk_flushes: disk.map(|disk| disk.1),
        }
    }

    #[test]
    fn what_never_becomes_mail_in_the_drop_directory_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["1.mail", "2.tmp", "1000.names"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert!(left_in_drop_directory(dir.path()).is_none());
        fs::write(dir.path().join("3.mail.bad"), "").unwrap();
        fs::create_dir(dir.path().join("4.mail")).unwrap();
        let found = left_in_drop_directory(dir.path()).unwrap();
        assert!(
            found.level == Level::Warning
                && found.seen.contains("has 1 file from which no message could be accepted, and 1 directory"),
            "{}",
            found.seen
        );
    }

    #[test]
    fn a_disk_that_hears_nothing_of_a_sync_is_an_error() {
        let ext4 =
            || Device { file_system: "ext4".into(), write_cache: "write back".into(), ..Device::default() };
        for (evidence, level) in [
            (evidence(ext4(), 500.0, Some((50, 50))), Level::Ok),
            (evidence(ext4(), 3.0, Some((1, 1))), Level::Error),
            (evidence(ext4(), 100.0, Some((50, 2))), Level::Warning),
            (evidence(ext4(), 80_000.0, Some((50, 50))), Level::Warning),
            (evidence(ext4(), 500.0, None), Level::Warning),
        ] {
            assert_eq!(judged("/spool", &evidence).level, level, "{evidence:?}");
        }
    }

    #[test]
    fn the_place_that_is_measured_is_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let finding = syncs(&existing(&dir.path().join("not/there")).unwrap());
        assert!(finding.seen.contains("syncs"), "{finding:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let levels = |min_free| room(dir.path(), min_free)[0].level;
        assert_eq!(levels(u64::MAX / 4), Level::Error);
    }
}
