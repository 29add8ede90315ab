//! `postrider map`: look-ups, and checks of the files of maps.

use super::{CliError, Ending, args::MapCommand, complain, load_config};
use crate::serve::wiring;
use config::{Purpose, Settings};
use control::Exit;
use maps::{Checked, Kind, Maps, Reference};
use std::{io::Write, path::Path, process::ExitCode};

/// The exit code when a key was not found, as that of postmap -q.
const NOT_FOUND: u8 = 1;

/// Runs a command.
pub(super) fn run(
    command: &MapCommand,
    explicit: Option<&Path>,
    out: &mut dyn Write,
) -> Result<ExitCode, CliError> {
    match command {
        MapCommand::Query { map, keys } => query(map, keys, explicit, out),
        MapCommand::Check => {
            let settings = load_config(explicit, Purpose::Ask)?;
            let maps = wiring::maps(&settings, None);
            let checked = maps.check();
            print(&checked, out)?;
            let all_answer = print_named(&maps, out)?;
            let exit = exit_of(&checked);
            Ok(if exit == Exit::Ok && !all_answer { Exit::TempFail } else { exit }.into())
        }
    }
}

/// Connects to the servers of named maps. Returns whether all can be used.
fn print_named(maps: &Maps, out: &mut dyn Write) -> Result<bool, CliError> {
    let mut all_answer = true;
    for (map, state) in runtime()?.block_on(maps.check_named()) {
        match state {
            Ok(()) => writeln!(out, "map:{}: {}: can be used", map.name, map.source)?,
            Err(error) => {
                complain("postrider", &format!("map:{}: {}", map.name, error.what));
                all_answer = false;
            }
        }
    }
    Ok(all_answer)
}

/// Looks keys up; a named map needs the configuration.
fn query(
    map: &str,
    keys: &[String],
    explicit: Option<&Path>,
    out: &mut dyn Write,
) -> Result<ExitCode, CliError> {
    let here = std::env::current_dir()?;
    let reference = Reference::parse(map, &here)
        .map_err(|(what, help)| CliError::new(Exit::Usage, format!("`{map}`: {what}; {help}")))?;
    let named = match reference.name() {
        Some(name) => {
            let settings = load_config(explicit, Purpose::Ask)?;
            if settings.maps.iter().all(|map| map.name != name) {
                let text = format!("there is no [map.{name}] in the configuration");
                return Err(CliError::new(Exit::Usage, text));
            }
            settings.maps
        }
        None => Vec::new(),
    };
    let maps = Maps::open([&reference], &named, None);
    let runtime = runtime()?;
    let mut is_missing = false;
    for key in keys {
        match runtime.block_on(maps.get(&reference, key).wait()) {
            Ok(Some(value)) => writeln!(out, "{key}: {value}")?,
            Ok(None) => {
                complain("postrider", &format!("{key}: not in {reference}"));
                is_missing = true;
            }
            Err(error) => return Err(CliError::new(Exit::TempFail, error.to_string())),
        }
    }
    Ok(if is_missing { ExitCode::from(NOT_FOUND) } else { Exit::Ok.into() })
}

/// A runtime for commands that look up.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| CliError::new(Exit::Unavailable, format!("start the runtime: {e}")))
}

/// Checks the files of aliases, as newaliases does.
pub(crate) fn check_aliases(settings: &Settings, out: &mut dyn Write) -> Ending {
    let checked = Maps::open(&settings.addresses.aliases, &[], None).check();
    print(&checked, out)?;
    Ok(exit_of(&checked))
}

/// Checks the files of all maps, and prints only faults.
pub(super) fn has_faults(settings: &Settings) -> bool {
    let mut checked = wiring::maps(settings, None).check();
    checked.retain(|checked| checked.state.is_err());
    // Faults are printed on standard error only.
    print(&checked, &mut std::io::sink()).is_err() || !checked.is_empty()
}

fn print(all: &[Checked], out: &mut dyn Write) -> std::io::Result<()> {
    for Checked { reference, state } in all {
        let noun = match reference {
            Reference::File(Kind::Aliases, _) => "names",
            Reference::File(Kind::Regex, _) => "patterns",
            Reference::File(Kind::Cidr, _) => "networks",
            _ => "keys",
        };
        match state {
            Ok((Some(count), _)) => writeln!(out, "{reference}: {count} {noun}")?,
            Ok((None, _)) => writeln!(out, "{reference}: can be used")?,
            Err(why) => complain("postrider", &format!("{reference}: {why}")),
        }
        for warning in state.iter().flat_map(|(_, warnings)| warnings) {
            complain("postrider", &format!("{reference}: warning: {warning}"));
        }
    }
    Ok(())
}

fn exit_of(all: &[Checked]) -> Exit {
    if all.iter().all(|checked| checked.state.is_ok()) { Exit::Ok } else { Exit::DataErr }
}
