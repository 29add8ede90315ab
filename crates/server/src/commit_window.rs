//! A fixed commit window, for the laboratory: what would each choice of it cost, beside the one that the log makes by itself?
//!
//! With `POSTRIDER_COMMIT_WINDOW_US` in the environment of a build with `--features lab`, a commit begins so many microseconds after the
//! first message that waits for it.

use std::time::Duration;

/// The variable that a build for the laboratory obeys.
const VARIABLE: &str = "POSTRIDER_COMMIT_WINDOW_US";

/// Microseconds; clients wait for it.
const US_MAX: u64 = 1_000_000;

/// Returns the window that is wanted. Never in a normal build.
pub(super) fn wanted() -> Option<Duration> {
    if cfg!(feature = "lab") { given().ok().flatten() } else { None }
}

fn given() -> Result<Option<Duration>, String> {
    let Some(value) = std::env::var_os(VARIABLE) else { return Ok(None) };
    let us = value.to_str().and_then(|text| text.parse().ok()).filter(|us| *us <= US_MAX);
    let us = us.ok_or_else(|| format!("{VARIABLE} is not a number of microseconds up to {US_MAX}"))?;
    Ok(Some(Duration::from_micros(us)))
}

/// Warns at a start with a fixed window.
///
/// # Errors
/// The value is none, or this is a normal build, which has no such mode: a measurement would be wrong.
pub(super) fn check_start() -> Result<(), String> {
    let Some(window) = given()? else { return Ok(()) };
    if !cfg!(feature = "lab") {
        return Err(format!(
            "{VARIABLE} is set, and this build chooses its window itself: build with --features lab"
        ));
    }
    tracing::warn!("{VARIABLE} is set: commits wait for {window:?}, for the laboratory only");
    Ok(())
}
