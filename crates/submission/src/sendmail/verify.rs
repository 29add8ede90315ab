//! `sendmail -bv`: where the configuration sends mail for an address. No name is looked up, and nothing
//! is sent, so the daemon need not run.

use super::{Commands, addresses, data_error, qualified};
use config::Settings;
use control::{CommandError, Exit};
use mail::ForwardPath;
use std::io::Write;

/// A line for each address; 65 when there is no such user for one.
pub fn run(
    given: &[String],
    settings: &Settings,
    commands: &dyn Commands,
    out: &mut dyn Write,
) -> Result<Exit, CommandError> {
    if given.is_empty() {
        return Err(CommandError::new(Exit::Usage, "addresses must be given as arguments"));
    }
    let mut exit = Exit::Ok;
    for argument in given {
        for address in addresses::parse(argument).map_err(data_error)? {
            let address = qualified(&address, settings);
            let path = ForwardPath::parse(&address, true)
                .map_err(|why| data_error(format!("recipient <{address}>: {why}")))?;
            let verdict = commands.route(settings, &path);
            writeln!(out, "{address}: {}", verdict.as_deref().unwrap_or("no such user here"))?;
            if verdict.is_none() {
                exit = Exit::DataErr;
            }
        }
    }
    Ok(exit)
}
