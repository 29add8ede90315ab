//! Files of `:include:`: their content, and the check of what they list.

use maps::{
    FileFault,
    aliases::{Included, Unpermitted, check_included},
    checked_text,
};
use rewrite::Found;
use rustix::fs::{Mode, OFlags, open};
use std::{
    collections::HashSet,
    fmt,
    fs::File,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    time::Duration,
};
use tokio::{task::spawn_blocking, time::timeout};

/// Time to read a file.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Largest file. A list of 250,000 addresses is smaller.
const BYTES_MAX: u64 = 32 << 20;

/// Advice for a file that is not there, or cannot be read.
const UNREADABLE: &str = "write the file, or remove the target; the daemon's user has to read it";

/// What the check of a configuration says of files that aliases include.
#[derive(Debug, Default)]
pub struct CheckedLists {
    /// Mail for the names that lead to these targets is deferred.
    pub faults: Vec<ListFault>,
    /// Targets that the configuration has to permit, each with its file.
    pub refused: Vec<(Box<str>, Unpermitted)>,
}

/// A fault of an included file, or of the line that includes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListFault {
    /// The included file; none for the file of aliases itself.
    pub list: Option<Box<str>>,
    /// What is wrong, and where.
    pub fault: FileFault,
}

impl fmt::Display for ListFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(list) = &self.list {
            write!(f, ":include:{list}: ")?;
        }
        self.fault.fmt(f)
    }
}

/// Checks the files that a file of aliases includes, and the files that those include. `owner` is the daemon's user, which
/// may own them beside root.
pub fn check(included: &[Included], owner: u32) -> CheckedLists {
    let (mut checked, mut done) = (CheckedLists::default(), HashSet::new());
    checked.add(None, included, owner, &mut done);
    checked
}

impl CheckedLists {
    /// Adds the files that one file includes. A file that is checked already, or is being checked, is left out.
    fn add(&mut self, list: Option<&str>, included: &[Included], owner: u32, done: &mut HashSet<Box<str>>) {
        for Included { line, column, path } in included {
            if !done.insert(path.clone()) {
                continue;
            }
            let failed = match read_blocking(path, owner) {
                Ok(Some(text)) => {
                    let remarks = check_included(&text);
                    let of_file = |fault| ListFault { list: Some(path.clone()), fault };
                    self.faults.extend(remarks.faults.into_iter().map(of_file));
                    self.refused.extend(remarks.refused.into_iter().map(|one| (path.clone(), one)));
                    self.add(Some(path), &remarks.included, owner, done);
                    continue;
                }
                Ok(None) => fault("no such file", UNREADABLE),
                Err(fault) => fault,
            };
            // A fault without a place is where the file is named.
            self.faults.push(match failed.line {
                0 => {
                    let what = format!(":include:{path}: {}", failed.what);
                    let fault = FileFault { line: *line, column: *column, what, ..failed };
                    ListFault { list: list.map(Box::from), fault }
                }
                _ => ListFault { list: Some(path.clone()), fault: failed },
            });
        }
    }
}

/// A fault that belongs to no line of the file.
fn fault(what: impl Into<String>, help: &str) -> FileFault {
    FileFault { line: 0, column: 0, what: what.into(), help: help.to_owned() }
}

/// Reads a file of targets; one that others could change is not used.
pub(super) async fn read(path: &str) -> Found {
    let owned = path.to_owned();
    let own = rustix::process::geteuid().as_raw();
    match timeout(TIMEOUT, spawn_blocking(move || read_blocking(&owned, own))).await {
        Ok(Ok(Ok(Some(text)))) => Found::Value(text.into()),
        Ok(Ok(Ok(None))) => Found::Absent,
        Ok(Ok(Err(fault))) => Found::Failed(fault.to_string().into()),
        Ok(Err(_)) => Found::Failed("the file was not read".into()),
        Err(_) => Found::Failed(format!("no answer of the disk in {TIMEOUT:?}").into()),
    }
}

fn read_blocking(path: &str, owner: u32) -> Result<Option<String>, FileFault> {
    // A FIFO must not block, and a link could lead to a file of somebody else.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let failed = |error: io::Error| fault(error.to_string(), UNREADABLE);
    let file = match open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => return Err(fault("a symbolic link", "name the file itself")),
        Err(error) => return Err(failed(error.into())),
    };
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err(fault("not a file", "name a regular file"));
    }
    if meta.mode() & 0o022 != 0 || ![0, owner].contains(&meta.uid()) {
        return Err(fault("others can change it", "let root own it, and nobody else write it"));
    }
    if meta.len() > BYTES_MAX {
        return Err(fault("larger than 32 MiB", "use a mailing list program"));
    }
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    // Some editors write a byte order mark, which is taken off. It would be a part of the first target.
    checked_text(&bytes).map(|text| Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[tokio::test]
    async fn only_a_file_that_others_cannot_change_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        let name = path.to_str().unwrap();
        assert_eq!(read(name).await, Found::Absent);
        let write = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        write("joe\n", 0o644);
        assert_eq!(read(name).await, Found::Value("joe\n".into()));
        write("\u{feff}joe\n", 0o644);
        assert_eq!(read(name).await, Found::Value("joe\n".into()), "without the byte order mark");
        write("joe", 0o644);
        assert_eq!(read(name).await, Found::Value("joe".into()), "the last line needs no newline");
        for mode in [0o664, 0o646] {
            write("joe\n", mode);
            assert!(matches!(read(name).await, Found::Failed(_)), "{mode:o}");
        }
        write("joe\n", 0o644);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(read(link.to_str().unwrap()).await, Found::Failed(_)));
        assert!(matches!(read(dir.path().to_str().unwrap()).await, Found::Failed(_)));
    }

    #[test]
    fn a_check_finds_the_faults_of_lists_in_lists_with_their_places() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let write = |name: &str, text: &str| {
            fs::write(dir.path().join(name), text).unwrap();
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o644)).unwrap();
        };
        let (inner, outer, gone, cut) = (path("inner"), path("outer"), path("gone"), path("cut"));
        write("inner", &format!("# c\nann, |/bin/cat\n:include:{outer}\n\u{fc}, a@b@c\n"));
        write("outer", &format!("joe, :include:{gone}\n:include:{inner}\n:fail: no\n"));
        write("cut", "joe\na@b@c");
        let named = |line, path: &str| Included { line, column: 7, path: path.into() };
        let own = rustix::process::geteuid().as_raw();
        let checked = check(&[named(3, &outer), named(4, &cut), named(5, &gone)], own);
        let told: Vec<String> = checked.faults.iter().map(ToString::to_string).collect();
        let starts = [
            format!(":include:{outer}: line 3, column 1: an unknown directive; write user@"),
            format!(":include:{outer}: line 1, column 6: :include:{gone}: no such file; write the file"),
            format!(":include:{inner}: line 4, column 4: not a mail address; write user@"),
            format!(":include:{cut}: line 2, column 1: not a mail address; write user@"),
        ];
        assert_eq!(told.len(), starts.len(), "{told:?}");
        assert!(told.iter().zip(&starts).all(|(told, start)| told.starts_with(start)), "{told:?}");
        let [(file, refused)] = &checked.refused[..] else { panic!("{checked:?}") };
        assert_eq!((&**file, refused.fault.line), (&*inner, 2));
        let told = check(&[named(5, &gone)], own).faults[0].to_string();
        assert!(told.starts_with(&format!("line 5, column 7: :include:{gone}: no such file")), "{told}");
    }
}
