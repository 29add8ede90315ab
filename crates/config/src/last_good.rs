//! The configuration of the daemon's last start. Commands use it while the file has a mistake: nobody's mail has to wait for
//! a typing error.

use crate::{
    choice::did_you_mean,
    load::{self, Purpose},
    settings::Settings,
    sources::Sources,
    state_file::read_state_file,
};
use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Component, Path, PathBuf},
};

/// The name of the copy, in `data_dir`.
const NAME: &str = "last-good.toml";
/// The places of the copy if the file does not say where the data are, or no longer.
const USUAL_DATA_DIRS: [&str; 1] = ["/var/lib/postrider"];
/// The directory in which a daemon may place its sockets, beside `data_dir`. A copy is there, too, while it runs: a file that has
/// lost all its lines does not say where the data are.
const RUNTIME_DIR: &str = "/run/postrider";

/// Begins the last line of a copy: a daemon's copy must not stand in for the file of another, or for one that is not there.
const COPY_OF: &str = "# postrider: a copy of ";

/// Stores a copy of a configuration file with which the daemon starts. Users who may read the file may read the copy.
///
/// # Errors
/// The file cannot be read, or the copy cannot be written.
pub fn keep_last_good(file: &Path, data_dir: &Path) -> io::Result<()> {
    keep_in(file, data_dir, Path::new(RUNTIME_DIR))
}

fn keep_in(file: &Path, data_dir: &Path, runtime_dir: &Path) -> io::Result<()> {
    store(file, data_dir, NAME)?;
    if !USUAL_DATA_DIRS.iter().any(|usual| data_dir == Path::new(usual)) && runtime_dir.is_dir() {
        // Whose daemon has no right there has the copy in `data_dir`.
        let _ = store(file, runtime_dir, &runtime_name(file));
    }
    Ok(())
}

/// `last-good-etc-postrider-postrider.toml`: a machine may have several daemons.
fn runtime_name(file: &Path) -> String {
    format!("last-good{}", absolute(file).to_string_lossy().replace('/', "-"))
}

fn absolute(file: &Path) -> PathBuf {
    std::path::absolute(file).unwrap_or_else(|_| file.to_owned())
}

/// Returns whether a text is the copy of this file.
fn is_copy_of(text: &str, file: &Path) -> bool {
    let Some(named) = text.lines().next_back().and_then(|line| line.strip_prefix(COPY_OF)) else {
        return false;
    };
    let same = || Some(fs::canonicalize(named.trim_matches('"')).ok()? == fs::canonicalize(file).ok()?);
    named == format!("{:?}", absolute(file)) || same() == Some(true)
}

fn store(file: &Path, dir: &Path, name: &str) -> io::Result<()> {
    let (mut text, target) = (fs::read(file)?, dir.join(name));
    writeln!(text, "\n{COPY_OF}{:?}", absolute(file))?;
    let permissions = fs::Permissions::from_mode(fs::metadata(file)?.mode() & 0o644);
    let new = dir.join(format!("{name}.new"));
    // The folder may belong to another user than root, who starts the daemon: no link is followed.
    let _ = fs::remove_file(&new);
    let write = || {
        let mut copy = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        copy.write_all(&text)?;
        copy.set_permissions(permissions)?;
        fs::rename(&new, &target)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

/// Returns the settings of the last start of the daemon of this file, which has mistakes now; `None` if there is no copy, or
/// none that can be trusted.
pub fn last_good(file: &Path) -> Option<Settings> {
    last_good_in(file, Path::new(RUNTIME_DIR))
}

fn last_good_in(file: &Path, runtime_dir: &Path) -> Option<Settings> {
    let named = load::data_dir_of(file).into_iter().chain(nearly_named(file));
    let dirs = named.chain(USUAL_DATA_DIRS.map(PathBuf::from));
    let mut copies = dirs.map(|dir| dir.join(NAME)).chain([runtime_dir.join(runtime_name(file))]);
    copies.find_map(|copy| read_copy(file, &copy))
}

/// Returns the folder of a key that was meant to be `data_dir`: before the first section, and nearly of this name.
fn nearly_named(file: &Path) -> Option<PathBuf> {
    let text = String::from_utf8_lossy(&fs::read(file).ok()?).into_owned();
    let mut lines = text.lines().map(str::trim).take_while(|line| !line.starts_with('['));
    let value = lines.find_map(|line| {
        let (key, value) = line.split_once('=')?;
        did_you_mean(key.trim(), ["data_dir"])?;
        Some(value.trim().trim_matches(['"', '\'']).to_owned())
    })?;
    Some(file.parent()?.join(value))
}

fn read_copy(file: &Path, copy: &Path) -> Option<Settings> {
    let owner = fs::symlink_metadata(copy).ok().filter(fs::Metadata::is_file)?.uid();
    let bytes = read_state_file(copy.parent()?, copy).ok()?;
    let text = String::from_utf8(bytes).ok().filter(|text| is_copy_of(text, file))?;
    // Paths in it are relative to the folder of the file itself.
    let settings = load::read(&Sources::one(file, &text), Some(file), Purpose::Ask, None).ok()?.settings;
    let (data_dir, control) = (&settings.data_dir, &settings.control);
    let is_plain = |path: &Path| path.components().all(|part| part != Component::ParentDir);
    let is_below =
        |path: &Path| is_plain(path) && (path.starts_with(data_dir) || path.starts_with(RUNTIME_DIR));
    let used = [&control.socket, &control.submit_socket, &control.maildrop];
    // The daemon's user must not lead the commands of root to the folders of others.
    let is_own = || fs::metadata(data_dir).is_ok_and(|dir| dir.uid() == owner);
    let is_safe = owner == 0 || (is_own() && used.iter().all(|path| is_below(path)));
    is_safe.then_some(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("data")).unwrap();
        let file = dir.path().join("postrider.toml");
        fs::write(&file, text).unwrap();
        (dir, file)
    }

    const NO_DIR: &str = "/nonexistent";
    const GOOD: &str = "hostname = \"mx.test\"\ndata_dir = \"data\"\n";

    #[test]
    fn a_file_with_a_mistake_has_the_values_of_the_last_start() {
        let (dir, file) = folder(GOOD);
        keep_in(&file, &dir.path().join("data"), NO_DIR.as_ref()).unwrap();
        for bad in [
            "hostname = mx.test\ndata_dir = \"data\"\n",
            "hostnam = \"mx.test\"\ndata_dir = \"data\"\n",
            "data_dir = \"data\"\n[queue\nmax_messages = 1\n",
            "hostname = \"mx.test\"\ndata_dri = \"data\"\n",
        ] {
            fs::write(&file, bad).unwrap();
            let settings = last_good_in(&file, NO_DIR.as_ref()).unwrap_or_else(|| panic!("{bad}"));
            assert_eq!(settings.hostname, "mx.test");
            assert_eq!(settings.data_dir, dir.path().join("data"));
        }
        fs::write(&file, b"# f\xfcr uns\nhostname = \"mx.test\"\ndata_dir = \"data\"\n").unwrap();
        assert_eq!(last_good_in(&file, NO_DIR.as_ref()).unwrap().hostname, "mx.test");
        fs::remove_file(dir.path().join("data/last-good.toml")).unwrap();
        assert!(last_good_in(&file, NO_DIR.as_ref()).is_none());
    }

    #[test]
    fn a_file_that_lost_all_its_lines_has_the_values_of_the_last_start() {
        let (dir, file) = folder(GOOD);
        let runtime = dir.path().join("run");
        fs::create_dir(&runtime).unwrap();
        keep_in(&file, &dir.path().join("data"), &runtime).unwrap();
        for bad in ["", "# nothing\n"] {
            fs::write(&file, bad).unwrap();
            assert!(load::load_with_origins(Some(&file), Purpose::Ask).is_err());
            assert_eq!(last_good_in(&file, &runtime).unwrap().data_dir, dir.path().join("data"));
        }
        let other = dir.path().join("other.toml");
        fs::write(&other, "").unwrap();
        assert!(last_good_in(&other, &runtime).is_none(), "the copy of another file");
    }

    #[test]
    fn a_copy_does_not_stand_in_for_another_file() {
        let (dir, file) = folder(GOOD);
        keep_in(&file, &dir.path().join("data"), NO_DIR.as_ref()).unwrap();
        let other = dir.path().join("other.toml");
        assert!(last_good_in(&other, NO_DIR.as_ref()).is_none(), "not there");
        fs::write(&other, "hostnam = \"mx.test\"\ndata_dir = \"data\"\n").unwrap();
        assert!(last_good_in(&other, NO_DIR.as_ref()).is_none(), "a mistake");
        fs::remove_file(&other).unwrap();
        std::os::unix::fs::symlink(&file, &other).unwrap();
        assert!(last_good_in(&other, NO_DIR.as_ref()).is_some(), "another name of the file");
        fs::remove_file(&file).unwrap();
        // Whose data are not where the daemon's usually are is not found without the file, but for the copy in /run.
        let runtime = dir.path().join("run");
        fs::create_dir(&runtime).unwrap();
        fs::write(&file, GOOD).unwrap();
        keep_in(&file, &dir.path().join("data"), &runtime).unwrap();
        fs::remove_file(&file).unwrap();
        assert!(last_good_in(&file, &runtime).is_some(), "the file has gone");
    }

    #[test]
    fn the_copy_is_as_secret_as_the_file_and_replaced_by_the_next_start() {
        let (dir, file) = folder(GOOD);
        let (data, mode) =
            (dir.path().join("data"), |path: &Path| fs::metadata(path).unwrap().mode() & 0o777);
        let copy = data.join(NAME);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        keep_in(&file, &data, NO_DIR.as_ref()).unwrap();
        assert_eq!(mode(&copy), 0o640);
        fs::write(&file, format!("{GOOD}# changed\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        keep_in(&file, &data, NO_DIR.as_ref()).unwrap();
        assert!(fs::read_to_string(&copy).unwrap().contains("# changed\n") && mode(&copy) == 0o644);
        assert_eq!(fs::read_dir(&data).unwrap().count(), 1);
    }
}
