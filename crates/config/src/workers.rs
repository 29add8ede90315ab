//! `[workers]`: the keys of worker threads.

use crate::section::section;

section! {
    /// Worker threads.
    pub Workers = "workers" {
        /// The number of worker threads, at most 1024; 0 for one per CPU core. Sessions are packed onto as few workers as
        /// can keep up.
        worker_threads: usize = "0",
    }
}
