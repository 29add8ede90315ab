//! The configuration file that a command reads.

use crate::{
    CliError, complain,
    journal::{self, Priority},
};
use config::{Problems, Purpose, Settings};
use control::Exit;
use std::{
    borrow::Cow,
    io::{self, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
};

/// The file used when none is named.
const USUAL: &str = "/etc/postrider/postrider.toml";
/// The variable of the environment that names another file.
const VARIABLE: &str = "POSTRIDER_CONFIG";

/// Returns the path of the configuration file; none for the embedded default.
pub fn find(explicit: Option<&Path>) -> Option<PathBuf> {
    let named = explicit
        .map(Path::to_owned)
        .or_else(|| std::env::var_os(VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from));
    // Existing but unreadable is an error to show, not a reason to run on the default.
    named.or_else(|| Path::new(USUAL).symlink_metadata().is_ok().then(|| USUAL.into()))
}

/// Warns of a configuration file in the current folder, which is read only if it is named.
pub fn warn_of_other_file(used: Option<&Path>) {
    let here = Path::new("postrider.toml");
    let is_used = used.is_some_and(|file| file.canonicalize().ok() == here.canonicalize().ok());
    if here.is_file() && !is_used {
        let used = used.map_or("the embedded default".to_owned(), |file| file.display().to_string());
        let text = format!(
            "warning: ./postrider.toml is not read: {used} is in use; to use the file, write `--config postrider.toml`"
        );
        complain("postrider", &text);
    }
}

/// Reads and checks the configuration. Problems are printed before the error is returned.
pub fn load(explicit: Option<&Path>, purpose: Purpose) -> Result<Settings, CliError> {
    let loaded = config::load_with_origins(find(explicit).as_deref(), purpose);
    loaded.map(|loaded| loaded.settings).map_err(|problems| show_problems(&problems))
}

/// Reads the configuration for a command that asks the daemon, or hands it mail. While the file has a mistake, the values of
/// the daemon's last start are used.
pub fn load_for_tools(explicit: Option<&Path>) -> Result<Settings, CliError> {
    let found = find(explicit);
    let problems = match config::load_with_origins(found.as_deref(), Purpose::Ask) {
        Ok(loaded) if found.is_some() => return Ok(loaded.settings),
        Ok(loaded) => return Ok(without_file(&loaded.settings).unwrap_or(loaded.settings)),
        Err(problems) => problems,
    };
    let good = found.and_then(|file| config::last_good(&file).map(|settings| (file, settings)));
    let Some((file, settings)) = good else {
        return Err(show_problems(&problems));
    };
    complain(
        "postrider",
        &format!(
            "warning: {} has a mistake, so the values of the daemon's last start are used; \
             `postrider config check` shows it",
            file.display()
        ),
    );
    Ok(settings)
}

/// Returns the values of the daemon's last start, if the usual file has gone away since, and nothing here is of the embedded default.
fn without_file(embedded: &Settings) -> Option<Settings> {
    let is_used = embedded.data_dir.exists();
    let settings = if is_used { None } else { config::last_good(Path::new(USUAL)) }?;
    complain(
        "postrider",
        &format!("warning: there is no {USUAL}: the values of the daemon's last start are used"),
    );
    Some(settings)
}

/// Prints the mistakes of a configuration. Returns the error that ends the command, whose text is printed already.
pub fn show_problems(problems: &Problems) -> CliError {
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let told = problems.render(false);
    // Colours are control characters, too; whoever has invisible ones in the file sees them instead.
    let told = match mail::escape_invisible(&told) {
        Cow::Borrowed(_) if colour => problems.render(true),
        escaped => escaped.into_owned(),
    };
    let text = format!("{}\n", mail::plain_text(&told));
    let _ = io::stderr().write_all(journal::for_stderr(Priority::Error, &text).as_bytes());
    CliError::new(Exit::Config, "")
}
