//! A folder that is there for as long as a comparison takes.

use crate::cli::CliError;
use control::Exit;
use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

/// A folder that only its owner can list, and whose files other users can open if they know their names.
#[derive(Debug)]
pub(super) struct WorkFolder(PathBuf);

impl WorkFolder {
    /// Makes it in the folder for temporary files.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn new() -> Result<Self, CliError> {
        let base = std::env::temp_dir();
        let own = std::process::id();
        for number in 0..1000 {
            let path = base.join(format!("postrider-import-{own}-{number}"));
            // What is there belongs to somebody else.
            match DirBuilder::new().mode(0o711).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(CliError::new(
                        Exit::CantCreate,
                        format!("create {}: {error}", path.display()),
                    ));
                }
            }
        }
        Err(CliError::new(Exit::CantCreate, format!("no name for a folder in {} is free", base.display())))
    }

    /// Removes all of this process, which is about to end.
    pub(super) fn remove_all() {
        let own = format!("postrider-import-{}-", std::process::id());
        for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&own) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
