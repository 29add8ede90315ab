//! The queue as the spool tells of it while the daemon is down.

use crate::ask::Answer;
use accept::routes::Routes;
use config::{Settings, Spool};
use console::CliError;
use control::{Exit, Id, MessageInfo, OptionsInfo, RecipientInfo, Selection, Status};
use mail::UnixMillis;
use server::unnamed_spools;
use spool::{Recovered, RecoveryReport};
use std::{io, os::unix::ffi::OsStrExt as _, path::Path};

/// Passes on each selected message; damage is printed on standard error.
pub fn list(
    settings: &Settings,
    selection: &Selection,
    each: &mut dyn FnMut(MessageInfo) -> io::Result<()>,
) -> Result<Answer, CliError> {
    let now = UnixMillis::now().0;
    let (routes, mut count, mut failed) = (Routes::from(settings), 0, None);
    let is_sound = walk(settings, &mut |recovered| {
        let message = listed(&recovered, &routes);
        if failed.is_none() && selection.matches(&message, now) {
            count += 1;
            failed = each(message).err();
        }
    })?;
    failed.map_or(
        Ok(Answer { count, unchanged: Default::default(), waiting: Default::default(), is_sound }),
        |error| Err(error.into()),
    )
}

/// One message. Its content stays in the spool, so there is no header to show.
pub fn show(settings: &Settings, id: Id) -> Result<Option<MessageInfo>, CliError> {
    let (routes, mut shown) = (Routes::from(settings), None);
    walk(settings, &mut |recovered| {
        if recovered.message.id == id.0 {
            shown = Some(listed(&recovered, &routes));
        }
    })?;
    Ok(shown)
}

/// The spools whose mail can be shown, and reasons why there may be more mail than they have.
pub struct Spools {
    /// The spools that are there.
    pub there: Vec<Spool>,
    /// What is wrong with the others.
    pub faults: Vec<String>,
}

/// Finds the spools of the configuration, and those that it does not name any more.
///
/// # Errors
/// Not permitted, or there is no spool at all.
pub fn spools(settings: &Settings) -> Result<Spools, CliError> {
    let is_missing = |spool: &Spool| is_missing(folder(&spool.path));
    let (missing, there): (Vec<_>, Vec<_>) = settings.spools().into_iter().partition(is_missing);
    there.iter().try_for_each(|spool| permitted(&spool.path))?;
    let faults: Vec<String> = unnamed_spools::find(settings).iter().map(ToString::to_string).collect();
    let missing = missing
        .iter()
        .map(|spool| format!("there is no spool: {}: no such folder", folder(&spool.path).display()));
    if there.is_empty() {
        // No spool is no empty queue: most likely this is the configuration of another daemon.
        faults.iter().for_each(|fault| console::complain("postrider", &format!("error: {fault}")));
        let missing: Vec<String> = missing.collect();
        let text = format!("the daemon is not running, and {}", missing.join("; "));
        return Err(CliError::new(Exit::NoInput, text));
    }
    Ok(Spools { there, faults: faults.into_iter().chain(missing).collect() })
}

/// True when everything could be read.
fn walk(settings: &Settings, found: &mut dyn FnMut(Recovered)) -> Result<bool, CliError> {
    let Spools { there, faults } = spools(settings)?;
    let mut report = RecoveryReport::default();
    for spool in &there {
        report.add(spool::inspect(&spool.path, found).map_err(|failure| {
            let text = format!("the daemon is not running, and its spool says: {failure}");
            CliError::new(Exit::Unavailable, text)
        })?);
    }
    for fault in &faults {
        console::complain("postrider", &format!("error: {fault}"));
    }
    for place in &report.corrupt {
        console::complain("postrider", &format!("corrupt: {place}"));
    }
    for place in &report.unread {
        console::complain("postrider", &format!("cannot be read: {place}"));
    }
    Ok(report.is_complete() && faults.is_empty())
}

/// The folder itself, or the one that queue directories with a pattern are in.
fn folder(path: &Path) -> &Path {
    let is_pattern = path.file_name().is_some_and(|name| name.as_bytes().contains(&b'*'));
    path.parent().filter(|_| is_pattern).unwrap_or(path)
}

fn is_missing(folder: &Path) -> bool {
    folder.metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn listed(recovered: &Recovered, routes: &Routes) -> MessageInfo {
    let message = &recovered.message;
    let recipients = message.envelope.recipients.iter().zip(&recovered.recipients);
    let recipients = recipients.map(|(recipient, state)| {
        let status = match (state.settled, recovered.held.is_some()) {
            (true, _) => Status::Done,
            (false, true) => Status::Held,
            (false, false) => Status::Waiting,
        };
        let (address, destination) = (
            recipient.path.as_str().to_owned(),
            routes.recipient(&recipient.path, Some(&message.envelope.reverse_path)).to_string(),
        );
        let expanded_from = RecipientInfo::expansion_of(recipient);
        let return_path = RecipientInfo::return_path_of(recipient);
        if status == Status::Done {
            let end = state.last.as_ref().map(|(at, outcome)| (outcome, *at));
            let finished = RecipientInfo::finished(address, destination, end);
            return RecipientInfo { expanded_from, return_path, ..finished };
        }
        RecipientInfo {
            address,
            expanded_from,
            return_path,
            destination,
            status,
            attempt_count: state.attempt_count,
            last: state.last.as_ref().map(|(_, outcome)| outcome.to_string()),
            last_ms: state.last.as_ref().map(|(at, _)| at.0),
            next_ms: None,
            reason: (status == Status::Waiting).then(|| "when the daemon is started".to_owned()),
            attempt: None,
            wait: None,
        }
    });
    MessageInfo {
        id: Id(message.id),
        size_bytes: message.content.size_bytes(),
        arrived_ms: message.arrived.0,
        sender: message.envelope.reverse_path.as_str().to_owned(),
        origin: message.origin.to_string(),
        options: message.envelope.options.as_deref().map(OptionsInfo::from),
        recipients: recipients.collect(),
        hold_reason: recovered.held.as_deref().map(str::to_owned),
        damaged: None,
    }
}

/// May this user look into the spool there? What else is wrong with it, who reads it finds out.
pub fn permitted(spool: &Path) -> Result<(), CliError> {
    let dir = folder(spool);
    refused(dir, std::fs::read_dir(dir).map(drop))
}

fn refused(dir: &Path, read: io::Result<()>) -> Result<(), CliError> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let text = "permission denied: only root and the daemon's own user may look into the spool";
            Err(CliError::new(Exit::NoPerm, format!("{}: {text}", dir.display())))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Content, Enhanced, Envelope, ForwardPath, Message, Outcome, QueueId, Recipient, ReversePath};
    use spool::RecipientState;

    fn recovered(held: Option<Box<str>>) -> Recovered {
        let mut envelope = Envelope::new(ReversePath::Null);
        for address in ["a@example.com", "b@localhost", "postmaster"] {
            envelope.recipients.push(Recipient::new(ForwardPath::parse(address, false).unwrap()));
        }
        let message = Message {
            id: QueueId(5),
            arrived: UnixMillis(1000),
            origin: "x".into(),
            envelope,
            content: Content::from_bytes("Subject: x\r\n\r\nbody\r\n"),
        };
        let last = Some((UnixMillis(2000), Outcome::deferred(Enhanced(4, 4, 1), "refused")));
        let recipients = vec![
            RecipientState { settled: false, attempt_count: 3, last },
            RecipientState { settled: true, ..RecipientState::default() },
            RecipientState::default(),
        ];
        Recovered { message: message.into(), recipients, held }
    }

    #[test]
    fn who_may_not_look_into_the_spool_is_told_so_by_the_exit_code() {
        let denied = refused(Path::new("/spool"), Err(io::ErrorKind::PermissionDenied.into())).unwrap_err();
        assert!(denied.exit == Exit::NoPerm && denied.text.starts_with("/spool: permission denied: "));
        assert!(refused(Path::new("/spool"), Err(io::ErrorKind::NotFound.into())).is_ok());
    }

    #[test]
    fn a_recovered_message_is_listed_with_its_routes_and_states() {
        let settings = config::load(None).unwrap();
        let message = listed(&recovered(None), &Routes::from(&settings));
        let seen: Vec<_> = message.recipients.iter().map(|r| (r.destination.as_str(), r.status)).collect();
        let maildir = format!("maildir:{}", settings.local.maildir);
        let expected =
            [("mx:example.com", Status::Waiting), (&maildir, Status::Done), (&maildir, Status::Waiting)];
        assert_eq!(seen, expected);
        assert_eq!(message.recipients[0].last.as_deref(), Some("deferred 4.4.1 (refused)"));
        assert_eq!(
            listed(&recovered(Some("by root".into())), &Routes::from(&settings)).recipients[0].status,
            Status::Held
        );
    }
}
