//! Berkeley DB itself, with the access methods that sendmail X compared.

use super::backend::{Backend, Options, StepFactory};
use crate::berkeley::Driver;
use std::{ffi::OsStr, ops::Range, path::Path};

const DURABILITY: &str = "a transaction for each record, log_flush for each group";

pub(super) const BTREE: StepFactory =
    StepFactory { name: "berkeley-btree", durability: DURABILITY, has_own_log: true, open: open_btree };
pub(super) const QUEUE: StepFactory =
    StepFactory { name: "berkeley-queue", durability: DURABILITY, has_own_log: true, open: open_queue };

fn open_btree(path: &Path, options: &Options<'_>) -> Result<Box<dyn Backend>, String> {
    open("btree", path, options)
}

fn open_queue(path: &Path, options: &Options<'_>) -> Result<Box<dyn Backend>, String> {
    open("queue", path, options)
}

fn open(method: &str, path: &Path, options: &Options<'_>) -> Result<Box<dyn Backend>, String> {
    let log = options.log.unwrap_or(path);
    // Its working directory is that of the store, so that relative names would mean others.
    let absolute = |path: &Path| path.canonicalize().map_err(|e| format!("look at {}: {e}", path.display()));
    let (home, log, length) = (absolute(path)?, absolute(log)?, options.length.to_string());
    let arguments = [OsStr::new(method), home.as_os_str(), OsStr::new(&length), log.as_os_str()];
    Ok(Box::new(Driver::start(include_str!("berkeley.py"), &arguments)?))
}

impl Backend for Driver {
    fn put(&mut self, keys: Range<u32>, _: &[u8]) -> Result<(), String> {
        self.ask(&format!("put {} {}", keys.start, keys.end)).map(drop)
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        self.ask("checkpoint").map(drop)
    }
}
