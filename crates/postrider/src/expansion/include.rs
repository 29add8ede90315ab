//! Files of `:include:`.

use rewrite::Found;
use rustix::fs::{Mode, OFlags, open};
use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    time::Duration,
};
use tokio::{task::spawn_blocking, time::timeout};

/// Time to read a file.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Largest file: a list of 1,000 addresses is much smaller.
const BYTES_MAX: u64 = 1 << 20;

/// Reads a file of targets; one that others could change is not used.
pub(super) async fn read(path: &str) -> Found {
    let owned = path.to_owned();
    let answer = match timeout(TIMEOUT, spawn_blocking(move || read_blocking(&owned))).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err("the file was not read".to_owned()),
        Err(_) => Err(format!("no answer of the disk in {TIMEOUT:?}")),
    };
    match answer {
        Ok(Some(text)) => Found::Value(text.into()),
        Ok(None) => Found::Absent,
        Err(why) => Found::Failed(why.into()),
    }
}

fn read_blocking(path: &str) -> Result<Option<String>, String> {
    // A FIFO must not block, and a link could lead to a file of somebody else.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => return Err("a symbolic link; name the file itself".to_owned()),
        Err(error) => return Err(io::Error::from(error).to_string()),
    };
    let meta = file.metadata().map_err(|error| error.to_string())?;
    let own = rustix::process::geteuid().as_raw();
    if !meta.is_file() {
        return Err("not a file".to_owned());
    }
    if meta.mode() & 0o022 != 0 || ![0, own].contains(&meta.uid()) {
        return Err("others can change it; let root own it, and nobody else write it".to_owned());
    }
    if meta.len() > BYTES_MAX {
        return Err("larger than 1 MiB".to_owned());
    }
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("the last line has no end; end it with a newline".to_owned());
    }
    // Some editors write a byte order mark. It would be a part of the first target.
    Ok(Some(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[tokio::test]
    async fn only_a_complete_file_that_others_cannot_change_is_read() {
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
        assert!(matches!(read(name).await, Found::Failed(_)), "cut off");
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
}
