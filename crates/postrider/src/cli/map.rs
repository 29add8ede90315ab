//! `postrider map`: look-ups, and checks of the files of maps.

use super::{CliError, Ending, alias_names, args::MapCommand, complain, load_config, settings};
use crate::{
    access, map_entries,
    map_faults::{self, MapFault, WithLists, with_lists},
};
use accept::expansion::include::{self, ListFault};
use config::{Loaded, Purpose, Settings};
use control::Exit;
use maps::{
    Checked, FileFault, Kind, Maps, Purposes, Reference,
    aliases::{Unpermitted, check_included},
};
use rustix::process::geteuid;
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

/// A runtime for commands that look up.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| CliError::new(Exit::Unavailable, format!("start the runtime: {e}")))
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

/// Checks the files of all maps. Returns the warnings, each with its place, and the faults, each with its correction.
pub(super) fn warnings_and_faults(
    settings: &Settings,
) -> Result<(Vec<FileWarning>, Vec<MapFault>), CliError> {
    let maps = accept::maps(settings, None);
    let (checked, faults) = runtime()?.block_on(map_faults::check(&maps, settings));
    Ok((warnings(&checked, settings), faults))
}

/// A file, and a warning of what is in it.
pub(super) type FileWarning = (Reference, String);

pub(super) fn complain_of(warnings: &[FileWarning]) {
    for (reference, what) in warnings {
        complain("postrider", &format!("{reference}: warning: {what}"));
    }
}

/// Returns the warnings of files.
fn warnings(all: &[WithLists], settings: &Settings) -> Vec<FileWarning> {
    let mut told = Vec::new();
    for (reference, fault) in
        map_entries::warnings(settings).into_iter().chain(alias_names::warnings(settings))
    {
        if all.iter().any(|(checked, _)| checked.reference == reference) {
            told.push((reference, fault.to_string()));
        }
    }
    let addresses = &settings.addresses;
    let is_permitted =
        |path: &str| addresses.programs.iter().chain(&addresses.files).any(|known| known.as_os_str() == path);
    let is_told = |one: &Unpermitted| !one.path.as_deref().is_some_and(is_permitted);
    for (Checked { reference, state }, lists) in all {
        let warnings = state.iter().flat_map(|usable| &usable.warnings);
        for Unpermitted { fault, .. } in warnings.filter(|one| is_told(one)) {
            told.push((reference.clone(), fault.to_string()));
        }
        for (list, Unpermitted { fault, .. }) in lists.refused.iter().filter(|(_, one)| is_told(one)) {
            told.push((reference.clone(), format!(":include:{list}: {fault}")));
        }
    }
    told
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
