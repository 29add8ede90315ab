//! What the commands have in common: text for people, the configuration that they read, and the user that they become.
//!
//! Commands print here, and the daemon where it speaks to a terminal or to systemd's journal.

pub mod journal;
pub mod owner;
pub mod print;
pub mod settings;
pub mod timeline;

pub use control::CommandError as CliError;

use control::Exit;
use journal::Priority;
use std::io::{self, Write as _};

/// Hash of the commit that the program was built from.
pub const COMMIT: &str = env!("POSTRIDER_COMMIT");

/// The version and commit that `--version` prints, such as `0.1.0 (abc1234567)`.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("POSTRIDER_COMMIT"), ")");

/// The end of a command: an exit code, whose reason was printed already, or an error to print.
pub type Ending = Result<Exit, CliError>;

/// Writes an error to standard error, behind the program's name.
pub fn complain(who: &str, text: &str) {
    if !text.is_empty() {
        // With standard error gone there is nobody left to tell.
        let line = format!("{who}: {}\n", mail::escape_invisible(&mail::plain_text(text)));
        let is_warning = text.starts_with("warning: ") || text.contains(": warning: ");
        let priority = if is_warning { Priority::Warning } else { Priority::Error };
        let _ = io::stderr().write_all(journal::for_stderr(priority, &line).as_bytes());
    }
}

/// Starts a runtime for a command that waits for others.
///
/// # Errors
/// The system gives no resources.
pub fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| CliError::new(Exit::Unavailable, format!("start the runtime: {e}")))
}
