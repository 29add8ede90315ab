//! Where commands get their messages from: the daemon, or the spool while it is down.

use super::{CliError, offline};
use crate::control::{
    Failure, Id, Listed, Request, Response, Selection,
    client::{Client, ClientError},
};
use config::Settings;
use std::io;

/// Passes on each selected message, and returns how many there were. From the daemon when it runs,
/// else from the spool.
pub(super) fn list(
    settings: &Settings,
    selection: &Selection,
    each: &mut dyn FnMut(Listed) -> io::Result<()>,
) -> Result<u64, CliError> {
    match Client::connect(&settings.control.socket) {
        Ok(mut client) => {
            let mut pass = |response| match response {
                Response::Message(message) => each(message),
                _ => Ok(()),
            };
            Ok(client.ask_each(selection, |selection| Request::List { selection }, &mut pass)?)
        }
        Err(ClientError::NotRunning) => offline::list(settings, selection, each),
        Err(other) => Err(other.into()),
    }
}

/// How many are selected.
pub(super) fn count(settings: &Settings, selection: &Selection) -> Result<u64, CliError> {
    match Client::connect(&settings.control.socket) {
        Ok(mut client) => {
            Ok(client.ask_each(selection, |selection| Request::Count { selection }, &mut |_| Ok(()))?)
        }
        Err(ClientError::NotRunning) => offline::list(settings, selection, &mut |_| Ok(())),
        Err(other) => Err(other.into()),
    }
}

/// One message, and its header from a daemon that runs.
pub(super) fn show(settings: &Settings, id: Id) -> Result<(Listed, Option<String>), CliError> {
    let (mut found, mut header) = (None, None);
    match Client::connect(&settings.control.socket) {
        Ok(mut client) => {
            client.ask(&Request::Show { id }, &mut |response| {
                match response {
                    Response::Message(message) => found = Some(message),
                    Response::Header { text } => header = Some(text),
                    _ => {}
                }
                Ok(())
            })?;
        }
        Err(ClientError::NotRunning) => found = offline::show(settings, id)?,
        Err(other) => return Err(other.into()),
    }
    let missing = || Failure::Missing { text: format!("{} is not in the queue", id.0) };
    let message = found.ok_or_else(|| ClientError::Refused(missing()))?;
    Ok((message, header))
}

/// For requests that only the daemon can do.
pub(super) fn ask(
    settings: &Settings,
    request: &Request,
    each: &mut dyn FnMut(Response) -> io::Result<()>,
) -> Result<u64, CliError> {
    Ok(Client::connect(&settings.control.socket)?.ask(request, each)?)
}
