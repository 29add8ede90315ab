//! The daemon and its command line.

use std::{ffi::OsString, process::ExitCode};

/// Threads share the C library's badly: docs/decisions/allocator.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    postrider::run(&arguments)
}
