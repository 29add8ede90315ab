//! System calls of a daemon that fail on command: a library that is loaded before the others stands in place of
//! `fdatasync`, `fsync`, `write`, `pwrite64` and `accept4`, and looks for an order in a directory at each call.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// An order is a file with the name of the call: the number of an error, or `more` for a call that claims to
/// have written more than it was given, and the name of the one thread it is for, or `*`; behind it may stand which files
/// it is for. Or it is `skip` for a
/// sync that says it was done and was not, and how the path of what is synced ends, or behind a `*` what the path
/// contains.
const SOURCE: &str = include_str!("faults.c");

/// The library, and the directory of its orders.
pub struct Faults(TempDir);

impl Faults {
    /// Compiles the library; `None` and a word about it where no C compiler is.
    pub fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("orders")).unwrap();
        fs::write(dir.path().join("faults.c"), SOURCE).unwrap();
        let faults = Self(dir);
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(faults.library())
            .arg(faults.0.path().join("faults.c"));
        match cc.output() {
            Ok(output) if output.status.success() => Some(faults),
            Ok(output) => panic!("cc: {}", String::from_utf8_lossy(&output.stderr)),
            Err(_) => {
                println!("SKIPPED: failing system calls: there is no C compiler");
                None
            }
        }
    }

    fn library(&self) -> PathBuf {
        self.0.path().join("faults.so")
    }

    fn orders(&self) -> PathBuf {
        self.0.path().join("orders")
    }

    /// Returns the variables that a process needs in its environment.
    pub fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        vec![("LD_PRELOAD", self.library()), ("POSTRIDER_TEST_FAULTS", self.orders())]
    }

    /// Returns the section of the configuration by which the sandbox permits the orders to be read.
    pub fn permitted(&self) -> String {
        format!("[process]\nextra_paths = [\"{}\"]\n", self.0.path().display())
    }

    /// From now on this call fails so, in this thread or in all (`*`).
    pub fn order(&self, call: &str, how: &str, thread: &str) {
        let (unfinished, order) = (self.0.path().join("order"), self.orders().join(call));
        fs::write(&unfinished, format!("{how} {thread}\n")).unwrap();
        fs::rename(unfinished, order).unwrap();
    }

    /// Is there an order for this call?
    pub fn has(&self, call: &str) -> bool {
        self.orders().join(call).exists()
    }

    /// Lets the call work again.
    pub fn withdraw(&self, call: &str) {
        fs::remove_file(Path::new(&self.orders()).join(call)).unwrap();
    }
}
