//! Reading of options.

use clap::Args;
use std::time::Duration;

/// Reads texts as a command line of `T`, split where they have spaces.
///
/// # Errors
/// The first line of clap's message.
pub fn arguments<T: Args>(texts: &[&str]) -> Result<T, String> {
    exactly(texts.iter().flat_map(|text| text.split_whitespace()))
}

/// Reads words as a command line of `T`; one may be empty, or have spaces.
///
/// # Errors
/// The first line of clap's message.
pub fn exactly<'w, T: Args>(words: impl IntoIterator<Item = &'w str>) -> Result<T, String> {
    let command = T::augment_args(clap::Command::new("options").no_binary_name(true));
    let matches = command.try_get_matches_from(words).map_err(first_line)?;
    T::from_arg_matches(&matches).map_err(first_line)
}

#[allow(clippy::needless_pass_by_value)] // as map_err gives it
fn first_line(error: clap::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Reads seconds, fractions allowed.
///
/// # Errors
/// The text is not a number, or more than three years.
pub fn seconds_of(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| *time <= LONGEST);
    time.ok_or_else(|| format!("`{text}` seconds cannot be waited"))
}

/// Three years. A clock that is to show a moment behind this and some more still can.
const LONGEST: Duration = Duration::from_secs(100_000_000);
