//! `postrider map`: look-ups, and checks of the files of maps.

use super::{CliError, Ending, args::MapCommand, complain, load_config};
use accept::expansion::include::{self, ListFault};
use config::{Loaded, Purpose, Settings};
use console::{runtime, settings};
use control::Exit;
use maps::{Checked, FileFault, Kind, Maps, Purposes, Reference, aliases::check_included};
use rustix::process::geteuid;
use server::{
    access,
    map_faults::{WithLists, with_lists},
    map_warnings::{FileWarning, warnings},
};
use std::{io::Write, path::Path, process::ExitCode};

/// The exit code when a key was not found, as that of postmap -q.
const NOT_FOUND: u8 = 1;

/// Runs `postrider map`.
pub(super) fn run(
    command: &MapCommand,
    explicit: Option<&Path>,
    out: &mut dyn Write,
) -> Result<ExitCode, CliError> {
    match command {
        MapCommand::Query { map, keys } => query(map, keys, explicit, out),
        MapCommand::Check => {
            let loaded = config::load_with_origins(settings::find(explicit).as_deref(), Purpose::Ask);
            let loaded = loaded.map_err(|problems| settings::show_problems(&problems))?;
            let maps = accept::maps(&loaded.settings, None);
            let checked = with_lists(maps.check(), &loaded.settings);
            print(&checked, &loaded.settings, out)?;
            let all_answer = print_named(&maps, &loaded, out)?;
            let exit = exit_of(&checked);
            Ok(if exit == Exit::Ok && !all_answer { Exit::TempFail } else { exit }.into())
        }
    }
}

/// Connects to the servers of named maps. Returns whether all can be used.
fn print_named(maps: &Maps, loaded: &Loaded, out: &mut dyn Write) -> Result<bool, CliError> {
    let mut all_answer = true;
    for (map, state) in runtime()?.block_on(maps.check_named(|_| true)) {
        match state {
            Ok(()) => writeln!(out, "map:{}: {}: can be used", map.name, map.source)?,
            Err(error) => {
                let place = loaded.line_of_map(&map.name).map(|line| format!(" (line {line})"));
                complain(
                    "postrider",
                    &format!("map:{}{}: {}", map.name, place.unwrap_or_default(), error.what),
                );
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
    let (mut is_missing, mut has_faults) = (false, false);
    for key in keys {
        match runtime.block_on(maps.get(&reference, key).wait()) {
            Ok(Some(value)) => {
                writeln!(out, "{key}: {value}")?;
                if let Reference::File(Kind::Aliases, _) = reference {
                    has_faults |= complain_of_lists(key, &value, explicit);
                }
            }
            Ok(None) => {
                complain("postrider", &format!("{key}: not in {reference}"));
                is_missing = true;
            }
            Err(error) => return Err(CliError::new(Exit::TempFail, error.to_string())),
        }
    }
    Ok(match (is_missing, has_faults) {
        (true, _) => ExitCode::from(NOT_FOUND),
        (_, true) => Exit::DataErr.into(),
        _ => Exit::Ok.into(),
    })
}

/// Tells the faults of the files that the value of an alias includes. Returns whether there are any.
fn complain_of_lists(name: &str, value: &str, explicit: Option<&Path>) -> bool {
    let included = check_included(value).included;
    if included.is_empty() {
        return false;
    }
    // The user of the daemon may own such files. Without a configuration nobody but this user and root may.
    let loaded = config::load_with_origins(settings::find(explicit).as_deref(), Purpose::Ask);
    let owner = loaded.map_or_else(|_| geteuid().as_raw(), |loaded| access::daemon_uid(&loaded.settings));
    let faults = include::check(&included, owner).faults;
    for ListFault { list, fault } in &faults {
        // A place in the value is none in a file.
        let fault = match list {
            Some(list) => format!(":include:{list}: {fault}"),
            None => FileFault { line: 0, ..fault.clone() }.to_string(),
        };
        complain("postrider", &format!("{name}: {fault}"));
    }
    !faults.is_empty()
}

/// Checks the files of aliases, as newaliases does.
pub(crate) fn check_aliases(settings: &Settings, out: &mut dyn Write) -> Ending {
    let files = &settings.addresses.aliases;
    let purposes = Purposes { aliases: files, ..Purposes::default() };
    let checked = with_lists(Maps::open_for(files, purposes, &[], None).check(), settings);
    let has_no_warning = print(&checked, settings, out)?;
    let exit = exit_of(&checked);
    let said = match (&checked[..], exit) {
        ([], _) => {
            "There are no files of aliases: write aliases = [\"aliases:/etc/aliases\"] in [addresses] to use one."
        }
        (_, Exit::Ok) if !has_no_warning => {
            "The daemon uses them as they are, with what the warnings say, and reads a changed file by itself within two seconds."
        }
        (_, Exit::Ok) => "No mistakes. The daemon reads a changed file by itself within two seconds.",
        _ if checked.iter().all(|(one, _)| one.state.is_ok()) => {
            "The daemon defers mail for the names that lead to these files, until the mistakes are repaired."
        }
        _ => "The daemon uses what it read before, until the mistakes are repaired.",
    };
    writeln!(out, "{said}")?;
    Ok(exit)
}

pub(super) fn complain_of(warnings: &[FileWarning]) {
    for (reference, what) in warnings {
        complain("postrider", &format!("{reference}: warning: {what}"));
    }
}

/// Prints the states of files. Returns whether there is no warning.
fn print(all: &[WithLists], settings: &Settings, out: &mut dyn Write) -> std::io::Result<bool> {
    for (one, lists) in all {
        let Checked { reference, state } = one;
        let noun = match reference {
            Reference::File(Kind::Aliases, _) => "name",
            Reference::File(Kind::Regex, _) => "pattern",
            Reference::File(Kind::Cidr, _) => "network",
            Reference::File(Kind::Accounts, _) => "account",
            _ => "key",
        };
        match state.as_ref().map(|usable| usable.count) {
            Ok(Some(1)) => writeln!(out, "{reference}: 1 {noun}")?,
            Ok(Some(count)) => writeln!(out, "{reference}: {count} {noun}s")?,
            Ok(None) => writeln!(out, "{reference}: can be used")?,
            Err(_) => {
                let faults = one.faults();
                faults.iter().for_each(|why| complain("postrider", &format!("{reference}: {why}")));
            }
        }
        for fault in &lists.faults {
            complain("postrider", &format!("{reference}: {fault}"));
        }
    }
    let warnings = warnings(all, settings);
    complain_of(&warnings);
    Ok(warnings.is_empty())
}

fn exit_of(all: &[WithLists]) -> Exit {
    let is_good = |(one, lists): &WithLists| one.state.is_ok() && lists.faults.is_empty();
    if all.iter().all(is_good) { Exit::Ok } else { Exit::DataErr }
}
