//! The source of messages for commands: the daemon, or the spool while it is down.

use crate::offline;
use config::Settings;
use console::{CliError, print};
use control::Exit;
use control::{
    DestinationInfo, Failure, Id, MessageInfo, Request, Response, Selection, Summary, SummaryBy,
    client::{Client, ClientError},
};
use mail::UnixMillis;
use std::{collections::BTreeMap, io};

/// What the daemon, or the spools, said to a request for many messages.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Number of messages.
    pub count: u64,
    /// Messages among them that an action left as they were, by the reason.
    pub unchanged: BTreeMap<String, u64>,
    /// Messages that an action made due, and that wait nevertheless, by the reason.
    pub waiting: BTreeMap<String, u64>,
    /// Nothing was damaged; else the damage was printed on standard error.
    pub is_sound: bool,
}

impl Answer {
    /// The command's end if nothing else is wrong.
    pub fn exit(&self) -> Exit {
        if self.is_sound { Exit::Ok } else { Exit::DataErr }
    }
}

/// Asks for each part of a selection, and tells on standard error what was damaged.
pub fn ask_each(
    client: &mut Client,
    selection: &Selection,
    request: impl Fn(Selection) -> Request,
    each: &mut dyn FnMut(MessageInfo) -> io::Result<()>,
) -> Result<Answer, CliError> {
    let (mut is_sound, mut unchanged, mut waiting) = (true, BTreeMap::new(), BTreeMap::new());
    let mut complain = |text: &str| {
        is_sound = false;
        console::complain("postrider", &print::plain(text));
    };
    let count = client.ask_each(selection, request, &mut |response| match response {
        Response::Message(message) => {
            if let Some(why) = &message.damaged {
                complain(&damage(message.id, why));
            }
            each(message)
        }
        Response::Note { text } => {
            complain(&text);
            Ok(())
        }
        Response::Warning { text } => {
            console::complain("postrider: warning", &print::plain(&text));
            Ok(())
        }
        Response::Unchanged { count, reason } => {
            *unchanged.entry(reason).or_default() += count;
            Ok(())
        }
        Response::Waiting { count, reason } => {
            *waiting.entry(reason).or_default() += count;
            Ok(())
        }
        _ => Ok(()),
    })?;
    Ok(Answer { count, unchanged, waiting, is_sound })
}

/// Returns the text about a damaged message.
pub fn damage(id: Id, why: &str) -> String {
    format!("{}: its record is damaged: {why} (it can be held and deleted, not delivered)", id.0)
}

/// Passes on each selected message, from the daemon when it runs, else from the spool.
pub fn list(
    settings: &Settings,
    selection: &Selection,
    each: &mut dyn FnMut(MessageInfo) -> io::Result<()>,
) -> Result<Answer, CliError> {
    match Client::connect(&settings.control.socket) {
        Ok(mut client) => ask_each(&mut client, selection, |selection| Request::List { selection }, each),
        Err(ClientError::NotRunning) => offline::list(settings, selection, each),
        Err(other) => Err(other.into()),
    }
}

/// Counts the selected messages, in the daemon or in the spools if it does not run.
pub fn count(settings: &Settings, selection: &Selection) -> Result<Answer, CliError> {
    let nobody = &mut |_| Ok(());
    match Client::connect(&settings.control.socket) {
        Ok(mut client) => ask_each(&mut client, selection, |selection| Request::Count { selection }, nobody),
        Err(ClientError::NotRunning) => offline::list(settings, selection, nobody),
        Err(other) => Err(other.into()),
    }
}

/// Returns the destinations of the queue, from the daemon when it runs, else from the spool.
pub fn summary(settings: &Settings, by: SummaryBy) -> Result<(Vec<DestinationInfo>, Exit), CliError> {
    match Client::connect(&settings.control.socket) {
        Ok(mut client) => {
            let mut all = Vec::new();
            client.ask(&Request::Summary { by }, &mut |response| {
                if let Response::Destination(destination) = response {
                    all.push(destination);
                }
                Ok(())
            })?;
            Ok((all, Exit::Ok))
        }
        Err(ClientError::NotRunning) => {
            let (mut summary, now) = (Summary::default(), UnixMillis::now().0);
            let answer = offline::list(settings, &Selection::all(), &mut |message| {
                summary.add_message(by, &message, now);
                Ok(())
            })?;
            Ok((summary.finish(), answer.exit()))
        }
        Err(other) => Err(other.into()),
    }
}

/// One message, and its header from a daemon that runs.
pub fn show(settings: &Settings, id: Id) -> Result<(MessageInfo, Option<String>), CliError> {
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
pub fn ask(
    settings: &Settings,
    request: &Request,
    each: &mut dyn FnMut(Response) -> io::Result<()>,
) -> Result<u64, CliError> {
    Ok(Client::connect(&settings.control.socket)?.ask(request, each)?)
}
