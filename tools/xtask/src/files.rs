//! Files and folders that chores put together.

use crate::shell::{Done, Failure, output, program, root, run};
use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

/// Says which action on which path failed, and why.
pub(crate) fn failed(doing: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure(format!("{doing} {}: {error}", path.display()))
}

/// Returns the paths in a folder, in order.
pub(crate) fn list(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(dir).map_err(|e| failed("list", dir, &e))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    paths.sort_unstable();
    Ok(paths)
}

/// Returns every file below a folder, in order.
pub(crate) fn walk(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in list(dir)? {
        if path.is_dir() && !path.is_symlink() {
            files.append(&mut walk(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|e| failed("read", path, &e))
}

/// Writes a file, and makes the folders above it.
pub(crate) fn write(path: &Path, text: impl AsRef<[u8]>) -> Done {
    make_parent(path)?;
    fs::write(path, text).map_err(|e| failed("write", path, &e))
}

pub(crate) fn copy(from: &Path, to: &Path, mode: u32) -> Done {
    make_parent(to)?;
    fs::copy(from, to).map_err(|e| failed("copy", from, &e))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).map_err(|e| failed("change", to, &e))
}

/// Copies the tracked files below a folder of the repository; what tests and daemons left there stays behind.
pub(crate) fn copy_tracked(folder: &str, to: &Path) -> Done {
    for name in tracked(folder)? {
        let from = root().join(&name);
        let below = name.strip_prefix(folder).unwrap_or(&name).trim_start_matches('/');
        copy(&from, &to.join(below), mode_of(&from)?)?;
    }
    Ok(())
}

/// Returns the names of the tracked files below a folder of the repository, in order.
pub(crate) fn tracked(folder: &str) -> Result<Vec<String>, Failure> {
    let listed = output(program("git").args(["ls-files", "-z", "--", folder]))?;
    let listed = String::from_utf8(listed).map_err(|_| Failure("git: a file name is not UTF-8".into()))?;
    let exists = |name: &&str| root().join(name).exists();
    Ok(listed.split_terminator('\0').filter(exists).map(str::to_owned).collect())
}

fn mode_of(path: &Path) -> Result<u32, Failure> {
    let mode = fs::metadata(path).map_err(|e| failed("look at", path, &e))?.permissions().mode();
    Ok(if mode & 0o100 == 0 { 0o644 } else { 0o755 })
}

pub(crate) fn make_parent(path: &Path) -> Done {
    make_dir(path.parent().unwrap_or(path))
}

pub(crate) fn make_dir(path: &Path) -> Done {
    fs::create_dir_all(path).map_err(|e| failed("make", path, &e))
}

/// Removes a file or a folder, if it exists.
pub(crate) fn remove(path: &Path) -> Done {
    let is_folder = path.is_dir() && !path.is_symlink();
    let removed = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(failed("remove", path, &e)),
        _ => Ok(()),
    }
}

/// Gives all files below a folder the modes that no umask changes, and one time.
pub(crate) fn normalise(dir: &Path, epoch: u64) -> Done {
    run(Command::new("chmod").args(["--recursive", "u=rwX,go=rX"]).arg(dir))?;
    let mut touch = Command::new("find");
    touch.arg(dir).args(["-exec", "touch", "--no-dereference", "--date", &format!("@{epoch}"), "{}", "+"]);
    run(&mut touch)
}

/// Packs a folder into a tar archive whose octets depend on nothing but its files: sorted, one owner, one time.
pub(crate) fn tar(dir: &Path, names: &[&str], to: &Path, epoch: u64) -> Done {
    make_parent(to)?;
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=gnu", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg(format!("--mtime=@{epoch}")).arg("--file").arg(to).arg("--directory").arg(dir).args(names);
    run(&mut tar)
}

/// Compresses a file without its name and time, and removes the original.
pub(crate) fn gzip(path: &Path) -> Result<PathBuf, Failure> {
    let name = format!("{}.gz", path.display());
    remove(Path::new(&name))?;
    run(Command::new("gzip").args(["--no-name", "--best"]).arg(path))?;
    Ok(name.into())
}

/// Returns the SHA-256 of a file in hexadecimal digits.
pub(crate) fn sha256(path: &Path) -> Result<String, Failure> {
    let printed = output(Command::new("sha256sum").arg("--binary").arg(path))?;
    let printed = String::from_utf8_lossy(&printed).into_owned();
    let digest = printed.trim_start_matches('\\').split(' ').next().unwrap_or_default();
    if digest.len() == 64 {
        Ok(digest.to_owned())
    } else {
        Err(Failure(format!("sha256sum printed {printed:?} for {}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("xtask-files-{name}-{}", std::process::id()));
        remove(&dir).unwrap();
        dir
    }

    #[test]
    fn an_archive_depends_on_its_files_only() {
        let dir = scratch("tar");
        for (tree, order) in [("one", ["b", "a"]), ("two", ["a", "b"])] {
            for name in order {
                write(&dir.join(tree).join("x").join(name), name).unwrap();
            }
            normalise(&dir.join(tree), if tree == "one" { 5 } else { 9_000 }).unwrap();
            tar(&dir.join(tree), &["x"], &dir.join(format!("{tree}.tar")), 1_000_000_000).unwrap();
            gzip(&dir.join(format!("{tree}.tar"))).unwrap();
        }
        let (one, two) = (sha256(&dir.join("one.tar.gz")).unwrap(), sha256(&dir.join("two.tar.gz")).unwrap());
        assert_eq!(one, two);
        remove(&dir).unwrap();
    }

    #[test]
    fn the_digest_is_that_of_the_standard() {
        let file = scratch("digest");
        write(&file, "abc").unwrap();
        assert_eq!(
            sha256(&file).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        remove(&file).unwrap();
    }
}
