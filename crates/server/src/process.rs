//! The rights of the process: what root prepares, the change of the user, and the sandbox.

use config::{SandboxMode, Settings};
use control::Exit;
use rustix::{
    fs::{Gid, Mode, OFlags, Uid, fchmod, fchown, fstat, mkdirat, openat},
    io::Errno,
    process::{Resource, Rlimit, geteuid, getrlimit, setrlimit},
};
use sandbox::{Identity, Refusal, Rules, SystemCalls};
use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};
use submission::maildrop;

/// A step of the start that failed, and its exit code.
pub(super) type Failed = (String, Exit);

/// The rights with which the daemon was started, and those that it keeps.
pub(super) struct Process {
    /// The user that the daemon becomes; none if it stays what it is.
    identity: Option<Identity>,
    mode: Option<SandboxMode>,
    /// The files and ports that are permitted; none without Landlock.
    rules: Option<Rules>,
    /// The parts of the sandbox that the kernel does not have, in words.
    lacking: Mutex<Vec<String>>,
}

/// Makes the folders that the daemon needs, for a command that writes them before its first start.
///
/// # Errors
/// The process is neither root nor `process.user`, or a folder or log file cannot be made; the text names it.
pub fn prepare_folders(settings: &Settings) -> Result<(), String> {
    let process = Process::new(settings).map_err(|(text, _)| text)?;
    process.prepare(settings)
}

/// Makes a folder of the daemon for a command, and gives it to the daemon's user.
///
/// # Errors
/// The process is neither root nor `process.user`, or the folder cannot be made; the text names it.
pub fn prepare_folder(settings: &Settings, path: &Path, mode: u32) -> Result<(), String> {
    let process = Process::new(settings).map_err(|(text, _)| text)?;
    let is_new = process.make_dir(path, mode)?;
    // A service manager may start the daemon as its user: then only the folder of the data shows it.
    let owner = settings.data_dir.metadata().ok().filter(|owner| owner.uid() != 0 && geteuid().is_root());
    if let Some(owner) = owner.filter(|_| is_new && process.identity.is_none()) {
        let parent = control::open_parent_directory(path);
        let new = parent.and_then(|parent| open_new_dir(parent, path.file_name().unwrap_or_default()));
        let new = new.map_err(|e| not_prepared(path, &e))?;
        fchown(&new, Some(Uid::from_raw(owner.uid())), Some(Gid::from_raw(owner.gid())))
            .map_err(|e| not_prepared(path, &e.into()))?;
    }
    Ok(())
}

/// Makes a missing folder, and those above it, and opens it. Root follows no link of another user on the way.
fn make_directory(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let opened = match (control::open_parent_directory(path), path.parent()) {
        (Err(e), Some(parent)) if e.kind() == io::ErrorKind::NotFound => make_directory(parent, mode)?,
        (opened, _) => opened?,
    };
    match mkdirat(&opened, name, Mode::from_raw_mode(mode)) {
        // Another process was faster: whose it is, is looked at below.
        Err(Errno::EXIST) => {}
        made => made?,
    }
    // A descriptor that only names the folder above cannot sync it.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    File::from(openat(&opened, ".", flags, Mode::empty())?).sync_all()?;
    open_new_dir(&opened, name)
}

/// Opens a folder that this process made a moment ago. Root makes folders below those of the daemon's user, who could put a link or
/// another folder in its place: that is refused.
fn open_new_dir(parent: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let new = openat(parent, name, flags, Mode::empty())?;
    if fstat(&new)?.st_uid != geteuid().as_raw() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it was replaced while it was made: another user can write to the folder above it",
        ));
    }
    Ok(new)
}

impl Process {
    /// Compares the user of the process with the configuration.
    ///
    /// # Errors
    /// Another user than root cannot become `process.user`.
    pub(super) fn new(settings: &Settings) -> Result<Self, Failed> {
        let (own, wanted) = (geteuid(), &settings.process.user);
        let identity = match wanted {
            Some(user) if own.is_root() => {
                let identity = Identity::of(user, settings.process.group.as_ref());
                Some(identity.map_err(|text| (text, Exit::TempFail))?)
            }
            Some(user) if user.uid != own.as_raw() => {
                let text = format!(
                    "become {user} (`process.user`): only root can become another user; start the daemon as root or as \
                     {user}, or remove the key"
                );
                return Err((text, Exit::NoPerm));
            }
            None if own.is_root() => {
                tracing::warn!(
                    "the daemon runs as root: a security hole in it would expose the whole machine. Write `user = \"postrider\"` in \
                     [process]; see docs/operating/sandbox.md"
                );
                None
            }
            _ => None,
        };
        Ok(Self { identity, mode: settings.process.sandbox, rules: None, lacking: Mutex::default() })
    }

    /// Returns the owner of sockets that are bound before the user changes.
    pub(super) fn owner(&self) -> Option<(u32, u32)> {
        self.identity.as_ref().map(|own| (own.uid, own.gid))
    }

    /// Returns whether the process has given up rights with which files could be read at the start.
    pub(super) fn has_dropped(&self) -> bool {
        self.identity.is_some()
    }

    /// Makes the folders and files of the daemon that are missing, and gives them to its user.
    pub(super) fn prepare(&self, settings: &Settings) -> Result<(), String> {
        let dir = &settings.data_dir;
        self.make_dir_with(dir, 0o755, |new| {
            // The umask may have taken it from others.
            fchmod(new, Mode::from_raw_mode(0o755))
        })?;
        let elsewhere = |path: &PathBuf| !path.starts_with(dir) && !path.to_string_lossy().contains('*');
        for spool in settings.spools() {
            let paths = [Some(spool.path), spool.content_path].into_iter().flatten().filter(elsewhere);
            paths.map(|path| self.make_dir(&path, 0o700)).collect::<Result<Vec<_>, _>>()?;
        }
        let drop_dir = &settings.control.maildrop;
        if elsewhere(drop_dir) {
            self.make_dir(drop_dir, 0o755)?;
        }
        let past = &settings.history;
        if past.enabled && elsewhere(&past.path) {
            self.make_dir(&past.path, 0o750)?;
        }
        let mut logs = [&settings.log.file, &settings.log.postfix_file].into_iter().flatten();
        logs.try_for_each(|file| self.make_log(file))
    }

    /// Makes a folder. Returns whether it was missing.
    fn make_dir(&self, path: &Path, mode: u32) -> Result<bool, String> {
        self.make_dir_with(path, mode, |_| Ok(()))
    }

    /// As [`Self::make_dir`]; a new folder is also changed before it is given away.
    fn make_dir_with(
        &self,
        path: &Path,
        mode: u32,
        change: impl FnOnce(&OwnedFd) -> Result<(), Errno>,
    ) -> Result<bool, String> {
        if path.is_dir() {
            return Ok(false);
        }
        let new = make_directory(path, mode).map_err(|e| not_prepared(path, &e))?;
        change(&new).map_err(|e| not_prepared(path, &e.into()))?;
        if let Some((uid, gid)) = self.owner() {
            fchown(&new, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
                .map_err(|e| not_prepared(path, &e.into()))?;
        }
        Ok(true)
    }

    /// Makes a log file that is missing. It is opened by the daemon's user, who must be able to do so again at each rotation.
    fn make_log(&self, path: &Path) -> Result<(), String> {
        let Some((uid, gid)) = self.owner() else { return Ok(()) };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let parent = control::open_parent_directory(path).map_err(|e| not_prepared(path, &e))?;
        match openat(&parent, path.file_name().unwrap_or_default(), flags, Mode::from_raw_mode(0o640)) {
            Err(Errno::EXIST) => Ok(()),
            Err(e) => Err(not_prepared(path, &e.into())),
            Ok(file) => fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
                .map_err(|e| not_prepared(path, &e.into())),
        }
    }

    /// Gives up what the start needed: the user, capabilities, huge pages, and all files and ports that the configuration does
    /// not need. No other thread may run yet.
    ///
    /// # Errors
    /// The user cannot be given up, or the sandbox cannot be set up as the mode demands. The daemon must end.
    pub(super) fn confine(&mut self, settings: &Settings, source: Option<&Path>) -> Result<(), Failed> {
        forgo_huge_pages();
        let no_permission = |text| (text, Exit::NoPerm);
        if let Some(identity) = &self.identity {
            sandbox::become_user(identity).map_err(no_permission)?;
            tracing::info!("the daemon is now {identity}, and cannot become root again");
        } else if !geteuid().is_root() {
            // Of CAP_NET_BIND_SERVICE and others, nothing is needed any more.
            let _ = sandbox::drop_capabilities();
        }
        let drop_dir = &settings.control.maildrop;
        maildrop::prepare(&settings.data_dir, drop_dir)
            .map_err(|e| (not_prepared(drop_dir, &e), Exit::Unavailable))?;
        self.restrict_files(settings, source)
    }

    fn restrict_files(&mut self, settings: &Settings, source: Option<&Path>) -> Result<(), Failed> {
        if matches!(self.mode, Some(SandboxMode::Off | SandboxMode::Log)) {
            return Ok(());
        }
        let rules = Rules::of(settings, source, geteuid().is_root());
        for folder in rules.write.iter().filter(|folder| !folder.exists()) {
            // As a delivery would make it; one that cannot be made now is named by the delivery.
            let _ = spool::disk::make_dir(folder, 0o700);
        }
        sandbox::forbid_new_privileges().map_err(|text| (text, Exit::Unavailable))?;
        if let Some(lacking) = sandbox::restrict(&rules).map_err(|text| (text, Exit::Unavailable))? {
            self.lacks(&lacking.text, lacking.is_all)?;
            if lacking.is_all {
                return Ok(());
            }
        }
        self.rules = Some(rules);
        Ok(())
    }

    /// Warns of what the kernel does not have; an operator who asked for all of it does not get less.
    fn lacks(&self, text: &str, is_all: bool) -> Result<(), Failed> {
        if is_all && self.mode == Some(SandboxMode::Enforce) {
            let text = format!("`process.sandbox` is \"enforce\": {text}; remove the key to start with less");
            return Err((text, Exit::Unavailable));
        }
        tracing::warn!("the sandbox is not complete: {text}");
        self.lacking.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned());
        Ok(())
    }

    /// Returns what the sandbox does not do, in words; none if it is complete.
    pub(super) fn sandbox_fault(&self) -> Option<String> {
        match self.mode {
            Some(SandboxMode::Off) => Some("`process.sandbox` is \"off\"".to_owned()),
            Some(SandboxMode::Log) => Some("`process.sandbox` is \"log\": it only records".to_owned()),
            Some(SandboxMode::Enforce) | None => {
                let lacking = self.lacking.lock().unwrap_or_else(PoisonError::into_inner);
                (!lacking.is_empty()).then(|| lacking.join("; "))
            }
        }
    }

    /// Restricts the system calls of all threads.
    ///
    /// # Errors
    /// The kernel refuses the filter, and the mode is `enforce`.
    pub(super) fn restrict_calls(&self) -> Result<(), Failed> {
        let refusal = match self.mode {
            Some(SandboxMode::Off) => return Ok(()),
            Some(SandboxMode::Log) => Refusal::Record,
            Some(SandboxMode::Enforce) | None => Refusal::Fail,
        };
        match SystemCalls::new(refusal).and_then(|calls| calls.restrict()) {
            Ok(()) => Ok(()),
            Err(text) => self.lacks(&text, true),
        }
    }

    /// Returns what new settings need that the sandbox of the start does not permit, in words; none if that is nothing.
    pub(super) fn lacking_for(&self, settings: &Settings, source: &Path) -> Option<String> {
        let rules = self.rules.as_ref()?;
        let needed = rules.lacks(&Rules::of(settings, Some(source), geteuid().is_root()));
        let needed: Vec<String> = needed.iter().map(ToString::to_string).collect();
        (!needed.is_empty()).then(|| {
            format!(
                "the sandbox of this process was made for the configuration of its start. The new one needs {}, which \
                 needs a restart",
                needed.join(", ")
            )
        })
    }
}

fn not_prepared(path: &Path, error: &io::Error) -> String {
    format!("prepare {}: {error}", path.display())
}

/// A connection needs a descriptor; the usual soft limit of 1,024 is for programs that use select(2). The thread that syncs the
/// disk asks for the lowest real-time priority.
pub(super) fn raise_limits() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    if geteuid().is_root() {
        let _ = setrlimit(Resource::Rtprio, Rlimit { current: Some(1), maximum: Some(1) });
    }
}

/// Uses pages of 4 KiB from now on. With the huge pages that the allocator asks for, a daemon with a hundred sessions takes twice
/// the memory and no less time (docs/decisions/allocator.md). Children inherit this, so the helper is started before.
fn forgo_huge_pages() {
    // A kernel without huge pages has nothing to forgo.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn a_new_folder_is_given_away_and_not_what_was_put_in_its_place() {
        if !geteuid().is_root() {
            println!("SKIPPED: only root can give folders away");
            return;
        }
        const USER: u32 = 65_534;
        let identity = Identity { name: "x".into(), uid: USER, gid: USER, groups: vec![USER] };
        let process =
            Process { identity: Some(identity), mode: None, rules: None, lacking: Mutex::default() };
        let dir = tempfile::tempdir().unwrap();
        let [new, moved, secret] = ["new", "moved", "secret"].map(|name| dir.path().join(name));
        let owner = |path: &Path| path.metadata().unwrap().uid();
        // In the moment between the folder and its owner.
        let replace_by_link = |_: &OwnedFd| {
            fs::rename(&new, &moved).unwrap();
            fs::create_dir(&secret).unwrap();
            symlink(&secret, &new).unwrap();
            Ok(())
        };
        process.make_dir_with(&new, 0o700, replace_by_link).unwrap();
        assert_eq!((owner(&moved), owner(&secret)), (USER, 0));
        // And in the moment before it is opened.
        let above = control::open_directory(dir.path()).unwrap();
        assert!(
            open_new_dir(&above, "new".as_ref()).is_err() && open_new_dir(&above, "none".as_ref()).is_err()
        );
        let refused = open_new_dir(&above, "moved".as_ref()).unwrap_err();
        assert!(refused.to_string().contains("it was replaced while it was made"), "{refused}");
    }
}
