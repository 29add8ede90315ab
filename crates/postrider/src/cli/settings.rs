//! Finding the configuration, and `postrider config`.

use super::{CliError, Ending, args::ConfigCommand, map};
use config::{Loaded, Origin, Problems, Purpose, Settings};
use control::Exit;
use serde_json::{Map, Value, json};
use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

/// The file used when none is named.
const USUAL: &str = "/etc/postrider/postrider.toml";
/// Names another.
const VARIABLE: &str = "POSTRIDER_CONFIG";

/// Returns the path of the configuration file; none for the embedded default.
pub(crate) fn find(explicit: Option<&Path>) -> Option<PathBuf> {
    let named = explicit
        .map(Path::to_owned)
        .or_else(|| std::env::var_os(VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from));
    // Existing but unreadable is an error to show, not a reason to run on the default.
    named.or_else(|| Path::new(USUAL).symlink_metadata().is_ok().then(|| USUAL.into()))
}

/// Reads and checks it.
pub(crate) fn load(explicit: Option<&Path>, purpose: Purpose) -> Result<Settings, CliError> {
    let loaded = config::load_with_origins(find(explicit).as_deref(), purpose);
    loaded.map(|loaded| loaded.settings).map_err(|problems| show_problems(&problems))
}

fn show_problems(problems: &Problems) -> CliError {
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let _ = writeln!(io::stderr(), "{}", problems.render(colour));
    CliError::new(Exit::Config, "")
}

/// `postrider config …`.
pub(super) fn run(command: &ConfigCommand, explicit: Option<&Path>, out: &mut dyn Write) -> Ending {
    match command {
        ConfigCommand::Check { file } => {
            let found = find(file.as_deref().or(explicit));
            let settings = config::load(found.as_deref()).map_err(|problems| show_problems(&problems))?;
            if map::has_faults(&settings) {
                return Err(CliError::new(Exit::Config, ""));
            }
            let name = found.map_or("the embedded default".to_owned(), |path| path.display().to_string());
            writeln!(out, "{name}: no problems")?;
        }
        ConfigCommand::Show { json } => {
            let loaded = config::load_with_origins(find(explicit).as_deref(), Purpose::Ask);
            let loaded = loaded.map_err(|problems| show_problems(&problems))?;
            if *json {
                writeln!(out, "{}", as_json(&loaded))?;
            } else {
                write!(out, "{}", loaded.as_toml())?;
            }
        }
    }
    Ok(Exit::Ok)
}

/// `{"relay.networks": {"value": […], "origin": "default"}, …}`.
fn as_json(loaded: &Loaded) -> Value {
    let mut all = Map::new();
    for entry in &loaded.effective {
        let value = entry.value.as_ref().map_or(Value::Null, |value| json!(value));
        let described = match &entry.origin {
            Origin::Default => json!({ "value": value, "origin": "default" }),
            Origin::File { line, .. } => {
                json!({ "value": value, "origin": "file", "file": loaded.path, "line": line })
            }
        };
        all.insert(entry.path.clone(), described);
    }
    Value::Object(all)
}
