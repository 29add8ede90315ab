//! `sendmail -bv`: where the configuration sends mail for an address. Maps are asked, DNS is not, and nothing is sent, so
//! the daemon need not run.

use super::{Commands, Route, addresses, data_error, qualified};
use config::Settings;
use control::{CommandError, Exit};
use mail::ForwardPath;
use std::io::Write;

/// A line for each address; 75 when one cannot be expanded now, else 65 when there is no such user for one.
pub fn run(
    given: &[String],
    settings: &Settings,
    commands: &dyn Commands,
    out: &mut dyn Write,
) -> Result<Exit, CommandError> {
    if given.is_empty() {
        return Err(CommandError::new(Exit::Usage, "addresses must be given as arguments"));
    }
    let mut paths = Vec::new();
    for argument in given {
        for address in addresses::parse(argument).map_err(data_error)? {
            let address = qualified(&address, settings);
            let path = ForwardPath::parse(&address, true)
                .map_err(|why| data_error(format!("recipient <{address}>: {why}")))?;
            paths.push(path);
        }
    }
    let (mut has_unknown, mut has_failed) = (false, false);
    for (path, route) in paths.iter().zip(commands.routes(settings, &paths)?) {
        let told = match route {
            Route::To(told) => told,
            Route::Refused(reply) => {
                has_unknown = true;
                format!("refused: {reply}")
            }
            Route::NoSuchUser => {
                has_unknown = true;
                "no such user here".to_owned()
            }
            Route::Failed(why) => {
                has_failed = true;
                why
            }
        };
        writeln!(out, "{}", mail::escape_invisible(&format!("{path}: {told}")))?;
    }
    Ok(match (has_failed, has_unknown) {
        (true, _) => Exit::TempFail,
        (_, true) => Exit::DataErr,
        _ => Exit::Ok,
    })
}
