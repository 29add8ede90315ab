//! Warnings of the files of maps, which stop nothing.

use crate::{
    alias_names, map_entries,
    map_faults::{self, MapFault, WithLists},
};
use config::Settings;
use console::{CliError, runtime};
use maps::{Checked, Reference, aliases::Unpermitted};

/// Checks the files of all maps. Returns the warnings, each with its place, and the faults, each with its correction.
pub fn warnings_and_faults(settings: &Settings) -> Result<(Vec<FileWarning>, Vec<MapFault>), CliError> {
    let maps = accept::maps(settings, None);
    let (checked, faults) = runtime()?.block_on(map_faults::check(&maps, settings));
    Ok((warnings(&checked, settings), faults))
}

/// A file that a map reads, and what is wrong in it.
pub type FileWarning = (Reference, String);

/// Returns what in the files would never be found or used.
pub fn warnings(all: &[WithLists], settings: &Settings) -> Vec<FileWarning> {
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
