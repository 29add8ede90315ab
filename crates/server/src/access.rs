//! The access of the daemon's user to the files that a configuration names.
//!
//! The kernel answers: a thread takes on the user, and asks about each path. So groups, access control lists and mounts that
//! are read-only count, too.

mod boxes;

use crate::site_files::{FileUse, site_files};
use config::Settings;
use machine::accounts;
use mail::AliasTarget;
use rustix::{
    fs::{Access, access},
    io::Errno,
    process::{geteuid, getuid},
    thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use sandbox::Identity;
use std::{
    collections::HashSet,
    fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};
use submission::sendmail::user_name;

/// What the daemon does with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Reads the file when it runs as its user.
    Read,
    /// Reads the file as root at its start, and as its user at a reload.
    ReadAtReload,
    /// Makes files in the folder.
    WriteIn,
    Append,
}

/// As whom a path is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// The user of the daemon, or the one of the route.
    Own,
    Recipients,
}

/// Something that the daemon's user may not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The daemon does not start, or mail waits; else something works less well.
    pub is_error: bool,
    /// Who may not do what.
    pub text: String,
    /// What to do about it, mostly a shell command such as `setfacl`.
    pub advice: String,
}

/// What a check of the rights has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// The user, and what it may not do of so many things.
    As {
        /// As whom the daemon would run.
        user: String,
        /// What was looked at.
        count: usize,
        /// What this user may not do.
        faults: Vec<Fault>,
    },
    /// Root may do everything.
    Root,
    /// Only root can find out, for this user.
    NeedsRoot(String),
}

/// Checks the files of a configuration as the user of the daemon.
///
/// # Errors
/// A thread of that user cannot be started, in words.
pub fn check(settings: &Settings, source: Option<&Path>) -> Result<Checked, String> {
    ask(settings, needs(settings, source))
}

/// Returns what keeps the daemon and its helper from writing mailboxes: their mail would wait.
///
/// # Errors
/// As [`check`].
pub fn mailbox_faults(settings: &Settings) -> Result<Vec<Fault>, String> {
    match ask(settings, boxes::own(settings))? {
        Checked::As { faults, .. } => Ok(faults),
        Checked::Root => Ok(boxes::files(settings)),
        Checked::NeedsRoot(_) => Ok(Vec::new()),
    }
}

/// Returns why this process cannot deliver to a file that aliases name, if it cannot: mail for it would wait. Waits for the disk.
fn file_fault(file: &Path) -> Option<String> {
    let user = user_name(getuid().as_raw()).unwrap_or_else(|| "the daemon".to_owned());
    let fault = |need: Needed| need.fault(&user, false);
    boxes::file_fault(file)
        .or_else(|| boxes::of_file(file).into_iter().find_map(fault))
        .map(|fault| format!("{}; {}", fault.text, fault.advice))
}

/// Returns why nobody can start the program of a command that aliases name, if nobody can: mail for it would wait. Waits for the disk.
fn program_fault(command: &str) -> Option<String> {
    let words = rewrite::split_command(command).ok()?;
    let program = Path::new(&**words.first()?);
    match fs::metadata(program) {
        Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => None,
        Ok(_) => Some(format!("{} is not executable", program.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Some(format!("there is no program {}", program.display()))
        }
        // The user who starts it may see it.
        Err(_) => None,
    }
}

/// Returns why mail for what aliases name would wait, if it is a file or a program.
pub fn target_fault(target: &AliasTarget) -> Option<String> {
    match target {
        AliasTarget::File(path) if **path != *rewrite::NULL_DEVICE => file_fault(Path::new(&**path)),
        AliasTarget::Program(command) => program_fault(command),
        _ => None,
    }
}

/// Asks for these needs as the user of the daemon, and for the places of mailboxes.
fn ask(settings: &Settings, needs: Vec<Needed>) -> Result<Checked, String> {
    let count = needs.len();
    let (user, mut faults) = match asker(settings)? {
        Asker::Root => return Ok(Checked::Root),
        Asker::Unreachable(user) => return Ok(Checked::NeedsRoot(user)),
        Asker::Other { identity, starts_as_root } => {
            (identity.name.to_string(), as_user(&identity, needs, starts_as_root)?)
        }
        Asker::Own => {
            let uid = getuid().as_raw();
            let name = user_name(uid).unwrap_or_else(|| format!("#{uid}"));
            let asked = needs.iter().filter_map(|need| need.fault(&name, false)).collect();
            (name, asked)
        }
    };
    faults.extend(boxes::files(settings));
    faults.extend(boxes::of_users(settings)?);
    Ok(Checked::As { user, count, faults })
}

/// Returns whether the daemon has another user than this process, as whom root can ask.
pub fn is_other_user(settings: &Settings) -> bool {
    matches!(asker(settings), Ok(Asker::Other { .. }))
}

/// Returns the user that starts the daemon: another one than this process, if a service starts it as the owner of its data.
pub fn starter(settings: &Settings) -> Uid {
    match asker(settings) {
        Ok(Asker::Other { identity, starts_as_root: false }) => Uid::from_raw(identity.uid),
        _ => geteuid(),
    }
}

/// Returns the user of the daemon, also where only root could become that user.
pub fn daemon_uid(settings: &Settings) -> u32 {
    let owner = || settings.data_dir.metadata().ok().map(|owner| owner.uid());
    let configured = settings.process.user.as_ref().map(|user| user.uid);
    configured.or_else(owner).unwrap_or_else(|| geteuid().as_raw())
}

/// As whom the check looks at files.
enum Asker {
    Root,
    Own,
    Other {
        identity: Identity,
        starts_as_root: bool,
    },
    /// Only root can become that user.
    Unreachable(String),
}

/// Returns the user of the configuration, or else the owner of the data: a service may start the daemon as another user.
///
/// # Errors
/// The groups of that user cannot be found out now, in words.
fn asker(settings: &Settings) -> Result<Asker, String> {
    let (own, process) = (geteuid(), &settings.process);
    if let Some(user) = &process.user {
        return Ok(if user.uid == own.as_raw() {
            Asker::Own
        } else if own.is_root() {
            let identity = Identity::of(user, process.group.as_ref())?;
            Asker::Other { identity, starts_as_root: true }
        } else {
            Asker::Unreachable(user.name.clone())
        });
    }
    let owner = settings.data_dir.metadata().ok().filter(|owner| owner.uid() != own.as_raw());
    Ok(match owner {
        None if own.is_root() => Asker::Root,
        None => Asker::Own,
        Some(owner) => {
            let known = user_name(owner.uid());
            let name = known.clone().unwrap_or_else(|| format!("#{}", owner.uid()));
            if !own.is_root() {
                return Ok(Asker::Unreachable(name));
            }
            let identity = match known {
                Some(name) => Identity::with_gid(&name, owner.uid(), owner.gid())?,
                None => Identity {
                    name: name.into(),
                    uid: owner.uid(),
                    gid: owner.gid(),
                    groups: vec![owner.gid()],
                },
            };
            Asker::Other { identity, starts_as_root: false }
        }
    })
}

/// Asks from a thread of another user. Only that thread changes; it ends with its question.
fn as_user(identity: &Identity, needs: Vec<Needed>, starts_as_root: bool) -> Result<Vec<Fault>, String> {
    let identity = identity.clone();
    let asking = std::thread::Builder::new().name("access".to_owned()).spawn(move || {
        let groups: Vec<Gid> = identity.groups.iter().copied().map(Gid::from_raw).collect();
        let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
        let become_user = || {
            set_thread_groups(&groups)?;
            set_thread_res_gid(gid, gid, gid)?;
            set_thread_res_uid(uid, uid, uid)
        };
        become_user().map_err(|e: Errno| format!("become {identity}: {}", io::Error::from(e)))?;
        Ok(needs.iter().filter_map(|need| need.fault(&identity.name, starts_as_root)).collect())
    });
    let asking = asking.map_err(|e| format!("start a thread: {e}"))?;
    asking.join().unwrap_or_else(|_| Err("the check of files has panicked".to_owned()))
}

/// A path that the daemon uses, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Needed {
    path: PathBuf,
    /// With its links resolved, as root sees it.
    real: PathBuf,
    /// The daemon makes it.
    is_missing: bool,
    noun: &'static str,
    need: Need,
}

fn needs(settings: &Settings, source: Option<&Path>) -> Vec<Needed> {
    let mut all = Vec::new();
    for file in site_files(settings, source) {
        let need = match file.file_use {
            FileUse::Configuration | FileUse::Certificates | FileUse::Key => Need::ReadAtReload,
            _ => Need::Read,
        };
        all.push((file.path, file.file_use.as_str(), need));
    }
    let s = settings;
    let mut write = |path: &Path, noun| all.push((path.to_owned(), noun, Need::WriteIn));
    write(&s.data_dir, "folder of the data");
    for spool in s.spools() {
        let is_pattern = spool.path.to_string_lossy().contains('*');
        write(if is_pattern { folder_of(&spool.path) } else { &spool.path }, "spool");
        spool.content_path.iter().for_each(|path| write(path, "spool's content"));
    }
    write(&s.control.maildrop, "drop directory");
    if s.history.enabled {
        write(&s.history.path, "history");
    }
    for log in [&s.log.file, &s.log.postfix_file].into_iter().flatten() {
        all.push((log.clone(), "log", Need::Append));
    }
    let all = all.into_iter().map(|(path, noun, need)| Needed::new(path, noun, need));
    let mut seen = HashSet::new();
    let is_new = |needed: &Needed| seen.insert((needed.path.clone(), needed.need as u8));
    all.chain(boxes::own(settings)).filter(is_new).collect()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Needed {
    fn new(path: PathBuf, noun: &'static str, need: Need) -> Self {
        let found = path.canonicalize();
        let is_missing = found.is_err();
        Self { real: found.unwrap_or_else(|_| path.clone()), path, is_missing, noun, need }
    }

    /// Asks the kernel for the user of the calling thread. `starts_as_root`: the daemon makes missing folders and logs before it
    /// changes its user.
    fn fault(&self, user: &str, starts_as_root: bool) -> Option<Fault> {
        let wanted = match self.need {
            Need::Read | Need::ReadAtReload if self.real.is_dir() => Access::READ_OK | Access::EXEC_OK,
            Need::Read | Need::ReadAtReload => Access::READ_OK,
            Need::WriteIn => Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK,
            Need::Append => Access::WRITE_OK,
        };
        let path = match access(&self.path, wanted) {
            Ok(()) => return None,
            Err(Errno::NOENT) if matches!(self.need, Need::Read | Need::ReadAtReload) => {
                return Some(self.missing());
            }
            Err(Errno::NOENT) if starts_as_root => return None,
            Err(Errno::NOENT) => {
                // The daemon makes it in the first folder that is there.
                let there = self.path.ancestors().skip(1).find(|path| path.exists())?;
                if access(there, Access::WRITE_OK | Access::EXEC_OK).is_ok() {
                    return None;
                }
                there
            }
            Err(Errno::ROFS) => {
                let text =
                    format!("the {} {} is on a file system that is read-only", self.noun, self.shown());
                let advice = "mount it for writing, or name another place".to_owned();
                return Some(Fault { is_error: true, text, advice });
            }
            Err(_) => &self.path,
        };
        Some(self.denied(user, path, starts_as_root))
    }

    fn missing(&self) -> Fault {
        let text = format!("the {} {} does not exist", self.noun, self.shown());
        Fault {
            is_error: true,
            text,
            advice: "create it, or remove its name from the configuration".to_owned(),
        }
    }

    /// Finds the first place on the way that does not let the user pass.
    fn denied(&self, user: &str, path: &Path, starts_as_root: bool) -> Fault {
        let real = if path == self.path { &self.real } else { path };
        let mut way: Vec<&Path> = path.ancestors().chain(real.ancestors()).collect();
        way.sort_by_key(|path| path.as_os_str().len());
        let folders = way.into_iter().filter(|one| *one != path && *one != real && one.is_dir());
        let closed = folders.into_iter().find(|one| access(*one, Access::EXEC_OK).is_err());
        let does = match self.need {
            Need::Read | Need::ReadAtReload => "read",
            Need::WriteIn => "write in",
            Need::Append => "write to",
        };
        // What is missing is made in its folder.
        let is_made_in = |folder: &Path| self.is_missing && path.parent() == Some(folder);
        let (at, may_not, bits) = match (closed, self.need) {
            (Some(folder), Need::WriteIn | Need::Append) if is_made_in(folder) => {
                (folder, format!("enter {}", described(folder)), "g+wx")
            }
            (Some(folder), _) => (folder, format!("enter {}", described(folder)), "g+x"),
            (None, Need::Read | Need::ReadAtReload) if real.is_dir() => (path, described(path), "g+rx"),
            (None, Need::Read | Need::ReadAtReload) => (path, described(path), "g+r"),
            (None, Need::WriteIn) => (path, described(path), "u+rwx"),
            (None, Need::Append) => (path, described(path), "u+rw"),
        };
        let may_not = if closed.is_some() { may_not } else { format!("{does} it: it is {may_not}") };
        let mut text = format!("{user} may not {does} the {} {}: may not {may_not}", self.noun, self.shown());
        let only_reload = self.need == Need::ReadAtReload && starts_as_root;
        if only_reload {
            text.push_str("; it is read at the start, but not at `postrider reload`");
        }
        let shown = at.display();
        let advice = if closed.is_some() && is_home(at) {
            // To open a home directory to the daemon would show it more than this.
            format!("{shown} is a home directory: move the {} to a folder such as /etc/postrider", self.noun)
        } else if let Some(group) = self.open_group(at, closed.is_some(), bits) {
            format!("`usermod -aG {group} {user}`, and start the daemon again")
        } else if at != self.path && closed.is_none() {
            // A folder of the system stays the system's.
            format!("`install -d -o {user} -g {} {}`", group_of(user), self.shown())
        } else if bits.starts_with('u') && is_of_system(at) {
            // It stays root's: whoever owns /etc owns the machine.
            format!("name a place below a folder of {user}, such as /var/lib/postrider")
        } else if bits.starts_with('u') {
            format!("`chown {user} {shown}`, and `chmod {bits} {shown}`")
        } else if is_shared(&group_of(user)) {
            // The group would let in more than the daemon.
            format!("`setfacl -m u:{user}:{} {shown}`", &bits[2..])
        } else {
            format!("`chgrp {} {shown}`, and `chmod {bits} {shown}`", group_of(user))
        };
        Fault { is_error: !only_reload, text, advice }
    }

    /// Returns the group of a place whose members may do what is needed, unless it is root's.
    fn open_group(&self, at: &Path, is_way: bool, needed: &str) -> Option<String> {
        let meta = at.metadata().ok()?;
        let bits = match self.need {
            _ if is_way && needed == "g+wx" => 0o030,
            _ if is_way => 0o010,
            Need::Read | Need::ReadAtReload if meta.is_dir() => 0o050,
            Need::Read | Need::ReadAtReload => 0o040,
            Need::WriteIn => 0o070,
            Need::Append => 0o020,
        };
        let is_open = meta.permissions().mode() & bits == bits && meta.gid() != 0;
        group_name(meta.gid()).filter(|_| is_open)
    }

    fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

/// Returns whether a folder is the home directory of root or of a person.
fn is_home(folder: &Path) -> bool {
    folder == Path::new("/root") || folder.parent() == Some(Path::new("/home"))
}

/// Returns whether a folder is one of the system's, which belongs to nobody else: those of hier(7), and what is above a folder of a
/// daemon.
fn is_of_system(folder: &Path) -> bool {
    const ABOVE_DAEMONS: [&str; 9] = [
        "/var",
        "/var/lib",
        "/var/log",
        "/var/spool",
        "/var/mail",
        "/var/spool/mail",
        "/var/cache",
        "/srv",
        "/opt",
    ];
    const SYSTEM: [&str; 11] =
        ["/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/dev", "/proc", "/sys", "/root"];
    const OF_ALL: [&str; 9] =
        ["/", "/run", "/tmp", "/var/tmp", "/home", "/media", "/mnt", "/var/run", "/var/backups"];
    let is_any = |names: &[&str]| names.iter().any(|name| folder == Path::new(name));
    let is_own = folder.starts_with("/etc/postrider");
    is_any(&ABOVE_DAEMONS) || is_any(&OF_ALL) || !is_own && SYSTEM.iter().any(|name| folder.starts_with(name))
}

/// `/etc/postrider/key.pem (mode 0600, owner root:root)`.
fn described(path: &Path) -> String {
    match path.metadata() {
        Ok(meta) => {
            let owner = user_name(meta.uid()).unwrap_or_else(|| meta.uid().to_string());
            let group = group_name(meta.gid()).unwrap_or_else(|| meta.gid().to_string());
            format!(
                "{} (mode {:04o}, owner {owner}:{group})",
                path.display(),
                meta.permissions().mode() & 0o7777
            )
        }
        Err(_) => path.display().to_string(),
    }
}

/// Returns the name of the own group of a user, for advice.
fn group_of(user: &str) -> String {
    let known = config::local_user(user).ok().flatten();
    known.and_then(|user| group_name(user.gid)).unwrap_or_else(|| format!("GROUP_OF_{user}"))
}

/// Returns whether a group has other members than the daemon, on most machines.
fn is_shared(group: &str) -> bool {
    matches!(group, "root" | "users" | "staff" | "nogroup" | "nobody" | "daemon")
}

fn group_name(gid: u32) -> Option<String> {
    accounts::group_numbered(gid).ok().flatten().map(|group| group.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    /// Changes its user; so only root can run it.
    fn is_root() -> bool {
        let is_root = geteuid().is_root();
        if !is_root {
            println!("SKIPPED: this test is for root");
        }
        is_root
    }

    fn needed(path: &Path, need: Need) -> Needed {
        Needed::new(path.to_owned(), "map", need)
    }

    fn nobody(groups: Vec<u32>) -> Identity {
        Identity { name: "nobody".into(), uid: 65534, gid: 65534, groups }
    }

    #[test]
    fn a_file_that_another_user_may_not_read_is_found_with_the_place_on_the_way() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let (inner, file) = (dir.path().join("inner"), dir.path().join("inner/file"));
        fs::create_dir(&inner).unwrap();
        fs::write(&file, "x").unwrap();
        let ask = |inner_mode, file_mode, groups: Vec<u32>| {
            fs::set_permissions(&inner, Permissions::from_mode(inner_mode)).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(file_mode)).unwrap();
            as_user(&nobody(groups), vec![needed(&file, Need::Read)], true).unwrap()
        };
        assert_eq!(ask(0o755, 0o644, vec![65534]), []);
        let closed = ask(0o700, 0o644, vec![65534]).remove(0);
        assert!(closed.is_error && closed.text.contains("may not enter"), "{closed:?}");
        assert!(closed.text.contains("inner (mode 0700, owner root:root)"), "{closed:?}");
        // The group of `nobody` is everybody's who has none.
        assert_eq!(closed.advice, format!("`setfacl -m u:nobody:x {}`", inner.display()));
        // A file that has to be made needs more of its folder.
        let made = vec![needed(&inner.join("log"), Need::Append), needed(&file, Need::Append)];
        fs::set_permissions(&inner, Permissions::from_mode(0o700)).unwrap();
        let advice = as_user(&nobody(vec![65534]), made, true).unwrap().into_iter().map(|fault| fault.advice);
        let expected = ["wx", "x"].map(|bits| format!("`setfacl -m u:nobody:{bits} {}`", inner.display()));
        assert_eq!(advice.collect::<Vec<_>>(), expected);
        let unreadable = ask(0o755, 0o600, vec![65534]).remove(0);
        assert!(unreadable.text.contains("file (mode 0600, owner root:root)"), "{unreadable:?}");
        // A further group opens it: the file belongs to group 0.
        assert_eq!(ask(0o750, 0o640, vec![65534, 0]), []);
        assert!(geteuid().is_root(), "only the thread has changed its user");
    }

    #[test]
    fn a_missing_folder_is_made_and_the_one_above_it_stays_as_it_is() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let path = dir.path().join("history");
        let need = Needed::new(path.clone(), "history", Need::WriteIn);
        let fault = as_user(&nobody(vec![65534]), vec![need], false).unwrap().remove(0);
        assert!(fault.advice.starts_with("`install -d -o nobody -g "), "{fault:?}");
        assert!(fault.advice.ends_with(&format!(" {}`", path.display())), "{fault:?}");
    }

    #[test]
    fn a_folder_of_the_system_is_never_given_away() {
        for (folder, is_systems) in [
            ("/", true),
            ("/etc", true),
            ("/etc/ssl/private", true),
            ("/usr/local/mail", true),
            ("/var/mail", true),
            ("/var/spool", true),
            ("/home", true),
            ("/etc/postrider", false),
            ("/var/lib/postrider", false),
            ("/srv/mail", false),
            ("/home/joe/mail", false),
        ] {
            assert_eq!(is_of_system(Path::new(folder)), is_systems, "{folder}");
        }
        let need = Needed {
            noun: "folder of a file",
            need: Need::WriteIn,
            ..needed(Path::new("/etc"), Need::WriteIn)
        };
        let fault = need.denied("joe", Path::new("/etc"), true);
        assert!(
            fault.advice.starts_with("name a place below a folder of joe") && !fault.advice.contains("chown"),
            "{fault:?}"
        );
    }

    #[test]
    fn nobody_is_advised_to_open_a_home_directory() {
        let home = Path::new("/root");
        if !is_root() || !home.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o001 == 0) {
            return;
        }
        let dir = tempfile::tempdir_in(home).unwrap();
        let file = dir.path().join("ca.pem");
        fs::write(&file, "x").unwrap();
        let fault = as_user(&nobody(vec![65534]), vec![needed(&file, Need::Read)], true).unwrap().remove(0);
        assert!(fault.text.contains("may not enter /root "), "{fault:?}");
        assert!(fault.advice.contains("move the ") && !fault.advice.contains("chmod"), "{fault:?}");
    }

    #[test]
    fn what_is_read_at_the_start_as_root_is_a_warning_only() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let file = dir.path().join("key.pem");
        fs::write(&file, "x").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        let needs = vec![needed(&file, Need::ReadAtReload), needed(dir.path(), Need::WriteIn)];
        let faults = as_user(&nobody(vec![65534]), needs, true).unwrap();
        let levels: Vec<bool> = faults.iter().map(|fault| fault.is_error).collect();
        assert_eq!(levels, [false, true], "{faults:?}");
        assert!(faults[0].text.contains("not at `postrider reload`"), "{faults:?}");
        assert!(faults[1].advice.starts_with("`chown nobody "), "{faults:?}");
    }

    #[test]
    fn a_missing_folder_is_no_fault_of_a_daemon_that_makes_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let needed = Needed::new(path, "spool", Need::WriteIn);
        assert_eq!((needed.fault("x", true), needed.fault("x", false)), (None, None));
        let missing = Needed { need: Need::Read, ..needed }.fault("x", true).unwrap();
        assert!(missing.text.ends_with("a/b does not exist"), "{missing:?}");
    }
}
