//! The folder with the account and the certificate of one authority.

use instant_acme::AccountCredentials;
use std::{
    fs::{self, File, Permissions},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Only the daemon's user reads keys.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The files of one authority. Another directory has a folder of its own: certificates for tests never take the place of others.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// Names the folder of the authority with this directory, below `folder`.
    pub fn new(folder: &Path, directory: &str) -> Self {
        let address = directory.trim_start_matches("https://");
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        // No part is `..`: a host name stands before each slash, and a slash becomes a hyphen.
        Self { folder: folder.join(address.chars().map(plain).collect::<String>()) }
    }

    /// The file with the certificate, those that signed it, and the key: one file, so that they change at once.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("certificate.pem")
    }

    fn account(&self) -> PathBuf {
        self.folder.join("account.json")
    }

    /// Returns the account; none if there is none yet.
    ///
    /// # Errors
    /// The file cannot be read. It is not replaced: the authority limits the number of accounts.
    pub(crate) fn read_account(&self) -> Result<Option<AccountCredentials>, String> {
        let path = self.account();
        let text = match config::read_state_file(&self.folder, &path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(format!("read the account {}: {e}", path.display())),
        };
        let account = serde_json::from_slice(&text);
        account.map(Some).map_err(|e| {
            format!("read the account {}: {e}; remove the file to open a new account", path.display())
        })
    }

    pub(crate) fn write_account(&self, account: &AccountCredentials) -> Result<(), String> {
        let text = serde_json::to_vec(account).map_err(|e| format!("store the account: {e}"))?;
        self.write(&self.account(), &text)
    }

    /// Keeps an account that is of no use under another name.
    pub(crate) fn drop_account(&self) -> Result<(), String> {
        let path = self.account();
        fs::rename(&path, path.with_extension("json.old"))
            .map_err(|e| format!("rename {}: {e}", path.display()))
    }

    /// Makes the folder, and checks that files can be written there: a certificate that cannot be kept must not be asked for,
    /// because authorities limit their number.
    pub(crate) fn prepare(&self) -> Result<(), String> {
        let failed = |e: io::Error| format!("write in {}: {e}", self.folder.display());
        self.make_folder().map_err(failed)?;
        tempfile::tempfile_in(&self.folder).map(drop).map_err(failed)?;
        // The file is replaced; a folder in its place cannot be.
        let path = self.certificate();
        if path.is_dir() { Err(format!("write {}: it is a folder", path.display())) } else { Ok(()) }
    }

    fn make_folder(&self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        // By a descriptor: the sandbox forbids chmod(2).
        File::open(&self.folder)?.set_permissions(Permissions::from_mode(FOLDER_MODE))
    }

    pub(crate) fn write_certificate(&self, pem: &str) -> Result<(), String> {
        self.write(&self.certificate(), pem.as_bytes())
    }

    /// Replaces a file at once, and survives a power cut with the one or the other.
    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), String> {
        let replace = || {
            self.make_folder()?;
            let mut file = tempfile::Builder::new()
                .permissions(Permissions::from_mode(FILE_MODE))
                .tempfile_in(&self.folder)?;
            file.write_all(bytes)?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            File::open(&self.folder)?.sync_all()
        };
        replace().map_err(|e: io::Error| format!("write {}: {e}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_authority_has_a_folder_of_its_own() {
        let folder = |directory| Store::new(Path::new("/var/lib/postrider/acme"), directory).folder;
        for (directory, name) in [
            ("https://acme-v02.api.letsencrypt.org/directory", "acme-v02.api.letsencrypt.org-directory"),
            ("https://[::1]:14000/dir?a=../b", "---1--14000-dir-a-..-b"),
        ] {
            assert_eq!(folder(directory), Path::new("/var/lib/postrider/acme").join(name));
        }
    }

    #[test]
    fn others_cannot_read_what_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(&dir.path().join("acme"), "https://a.test/dir");
        store.write_certificate("one").unwrap();
        store.write_certificate("two").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(fs::read_to_string(store.certificate()).unwrap(), "two");
        assert_eq!((mode(&store.certificate()), mode(&store.folder)), (0o600, 0o700));
        assert_eq!(fs::read_dir(&store.folder).unwrap().count(), 1);
    }
}
