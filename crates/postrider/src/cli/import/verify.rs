//! `--verify`: envelopes from the log of the other server, asked of both servers. Asking the other one sends nothing.

mod dialog;
mod exim;
mod postfix;
mod sendmail;

use super::Server;
use crate::cli::{
    CliError, Ending,
    args::TestArgs,
    rehearse::{self, Disposition},
};
use config::Purpose;
use console::{runtime, settings};
use control::Exit;
use import::{SeenEnvelope, SeenEnvelopes};
use mail::ListenerKind;
use server::{snapshot::ConfigSnapshot, wiring};
use std::{
    collections::BTreeSet,
    fs::File,
    io::{Read as _, Seek as _, SeekFrom, Write},
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

pub(super) use self::{exim::ask as ask_exim, postfix::ask as ask_postfix, sendmail::ask as ask_sendmail};

/// Of each log, the end is read.
const LOG_BYTES_MAX: u64 = 256 << 20;
/// Differences of a kind that are shown.
const EXAMPLES_MAX: usize = 10;

/// What a server says of an envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Refused {
        is_transient: bool,
        text: String,
    },
    Taken(Vec<Resolved>),
    /// It cannot be asked, and why.
    Unknown(String),
}

/// Where a recipient leads once the server has expanded its aliases.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Resolved {
    pub(super) recipient: String,
    pub(super) end: End,
}

/// Where a recipient ends, as far as the server tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    Here,
    /// At another server.
    Elsewhere,
    /// It is returned to its sender: no such user, or no such domain in DNS.
    Nowhere,
    Unknown,
}

/// Asks both servers about envelopes, and prints the differences. The exit code is 65 if there are some.
///
/// # Errors
/// There is no log, or the other server cannot be asked.
pub(super) fn run(
    server: &dyn Server,
    count: usize,
    logs: &[PathBuf],
    file: &Path,
    out: &mut dyn Write,
) -> Ending {
    let envelopes = envelopes(server, logs, count)?;
    if envelopes.is_empty() {
        let text = "the log tells of no mail that a client has sent by SMTP: name another with --log";
        return Err(CliError::new(Exit::NoInput, text));
    }
    writeln!(
        out,
        "asking         {} about {}",
        server.name(),
        mail::counted(envelopes.len() as u64, "envelope")
    )?;
    out.flush()?;
    let answers = server.ask(&envelopes)?;
    let settings = settings::load(Some(file), Purpose::Ask)?;
    let runtime = runtime()?;
    let _guard = runtime.enter();
    let config = wiring::current(settings, None, None).map_err(|why| CliError::new(Exit::Config, why))?;
    let mut differences = Differences::default();
    for (envelope, theirs) in envelopes.iter().zip(answers) {
        let ours = runtime.block_on(Ours { config: &config, envelope }.disposition(&envelope.to));
        match (theirs, ours) {
            (Answer::Unknown(why), _) => differences.not_asked(why),
            (_, Err(error)) => differences.not_asked(error.text),
            (theirs, Ok(ours)) => {
                runtime.block_on(differences.compare(&config, envelope, &theirs, &ours));
            }
        }
    }
    differences.print(server.name(), out)
}

/// Reads the logs.
fn envelopes(server: &dyn Server, named: &[PathBuf], count: usize) -> Result<Vec<SeenEnvelope>, CliError> {
    let (log, usual) = server.log();
    let failed = |path: &Path, error: &std::io::Error| {
        CliError::new(Exit::NoInput, format!("read {}: {error}", path.display()))
    };
    let there: Vec<PathBuf> = usual.iter().map(PathBuf::from).filter(|path| path.exists()).collect();
    let paths = if named.is_empty() { &there[..] } else { named };
    if paths.is_empty() {
        let text = format!("none of {} is there: name the log with --log", usual.join(", "));
        return Err(CliError::new(Exit::NoInput, text));
    }
    let mut seen = SeenEnvelopes::default();
    for path in paths {
        super::refuse_special(path)?;
        let read = || {
            let mut file = File::open(path)?;
            let bytes = file.metadata()?.len();
            file.seek(SeekFrom::Start(bytes.saturating_sub(LOG_BYTES_MAX)))?;
            let mut text = Vec::new();
            file.take(LOG_BYTES_MAX).read_to_end(&mut text)?;
            Ok(text)
        };
        let text = read().map_err(|error| failed(path, &error))?;
        String::from_utf8_lossy(&text).lines().for_each(|line| seen.read(log, line));
    }
    Ok(seen.sample(count))
}

/// Postrider with the configuration, and an envelope.
struct Ours<'c> {
    config: &'c ConfigSnapshot,
    envelope: &'c SeenEnvelope,
}

impl Ours<'_> {
    async fn disposition(&self, to: &str) -> Result<Disposition, CliError> {
        let envelope = self.envelope;
        let kinds = || self.config.settings.listen.iter().map(|listen| listen.kind);
        let for_all = kinds().find(|kind| matches!(kind, ListenerKind::Mx | ListenerKind::Relay));
        let for_logins = kinds().find(|kind| kind.needs_login());
        let wanted = if envelope.is_submission { for_logins.or(for_all) } else { for_all.or(for_logins) };
        let hello = envelope.hello.clone().or_else(|| envelope.name.clone());
        let mut args = TestArgs {
            listener: wanted.unwrap_or_default(),
            client: envelope.client,
            hello: hello.unwrap_or_else(|| format!("[{}]", envelope.client)),
            login: envelope.login.clone(),
            tls: envelope.is_submission,
            certificate: None,
            from: envelope.from.clone(),
            to: vec![to.to_owned()],
            file: None,
        };
        let found = rehearse::disposition(self.config, &args).await?;
        // The other server is asked without TLS, and does not ask for it.
        if args.tls || !found.refusal.as_ref().is_some_and(|reply| reply.to_string().starts_with("530")) {
            return Ok(found);
        }
        args.tls = true;
        rehearse::disposition(self.config, &args).await
    }
}

/// Differences by the kind of what changes for a postmaster.
#[derive(Debug, Default)]
struct Differences {
    same_count: usize,
    refused: Vec<String>,
    taken: Vec<String>,
    moved: Vec<String>,
    /// Refused for the same reason, by one of the two for now only, or after the mail was taken.
    code: Vec<String>,
    not_asked: BTreeSet<String>,
    not_asked_count: usize,
}

impl Differences {
    fn not_asked(&mut self, why: String) {
        self.not_asked.insert(why);
        self.not_asked_count += 1;
    }

    async fn compare(
        &mut self,
        config: &ConfigSnapshot,
        envelope: &SeenEnvelope,
        theirs: &Answer,
        ours: &Disposition,
    ) {
        let SeenEnvelope { client, from, to, .. } = envelope;
        let login = envelope.login.as_ref().map(|login| format!(", login {login}")).unwrap_or_default();
        let about = format!("{client}{login}, from <{from}> to <{to}>");
        if let (Some(login), true) = (&envelope.login, config.logins.is_none()) {
            // Both refuse what the other server refused: the client cannot log in.
            match theirs {
                Answer::Taken(_) => self
                    .refused
                    .push(format!("{about}: accepted; now nobody can log in ([auth]), as {login} did")),
                _ => self.same_count += 1,
            }
            return;
        }
        match (theirs, &ours.refusal) {
            (Answer::Taken(resolved), Some(reply))
                if !resolved.is_empty() && resolved.iter().all(|one| one.end == End::Nowhere) =>
            {
                self.code.push(format!("{about}: accepted and then returned; now {reply}"));
            }
            (Answer::Taken(_), Some(reply)) => {
                self.refused.push(format!("{about}: accepted; now {reply}"));
            }
            (Answer::Refused { text, .. }, None) => {
                let kept = ours.kept.first().map_or("accepted", String::as_str);
                self.taken.push(format!("{about}: {text}; now {kept}"));
            }
            (Answer::Refused { is_transient, text }, Some(reply))
                if *is_transient != reply.is_transient() =>
            {
                let now = reply.to_string();
                let list = match *is_transient {
                    _ if reason(text).is_some_and(|why| Some(why) == reason(&now)) => &mut self.code,
                    true => &mut self.refused,
                    false => &mut self.taken,
                };
                list.push(format!("{about}: {text}; now {now}"));
            }
            (Answer::Taken(resolved), None) => {
                let (theirs, own) = (ends_here(config, envelope, resolved, ours).await, ends_of(ours));
                if theirs == own {
                    self.same_count += 1;
                } else {
                    self.moved.push(format!("{about}: {}; now {}", shown(&theirs), shown(&own)));
                }
            }
            _ => self.same_count += 1,
        }
    }

    fn print(&self, server: &str, out: &mut dyn Write) -> Ending {
        let Self { same_count, refused, taken, moved, code, not_asked, not_asked_count } = self;
        let lists = [
            ("refused", refused, EXAMPLES_MAX),
            ("accepted", taken, EXAMPLES_MAX),
            ("rerouted", moved, EXAMPLES_MAX),
            ("code", code, 1),
        ];
        for (word, list, most) in lists {
            for line in list.iter().take(most) {
                writeln!(out, "{word:<14} {}", mail::plain_text(line))?;
            }
            if let Some(more) = list.len().checked_sub(most).filter(|more| *more > 0) {
                writeln!(out, "{word:<14} and {more} more")?;
            }
        }
        let different = refused.len() + taken.len() + moved.len();
        let same = mail::counted(*same_count as u64, "envelope");
        write!(out, "verified       {same} as {server} does")?;
        if !code.is_empty() {
            write!(out, ", {} refused by both with another code", code.len())?;
        }
        writeln!(out, ", {different} otherwise")?;
        if *not_asked_count > 0 {
            writeln!(out, "not compared   {}:", mail::counted(*not_asked_count as u64, "envelope"))?;
            for why in not_asked {
                writeln!(out, "               {}", mail::plain_text(why))?;
            }
        }
        Ok(match different {
            0 if *same_count + code.len() == 0 => Exit::Unavailable,
            0 => Exit::Ok,
            _ => Exit::DataErr,
        })
    }
}

/// Returns where Postrider would deliver the recipients that the other server has found: that one expands some aliases at delivery
/// only.
async fn ends_here(
    config: &ConfigSnapshot,
    envelope: &SeenEnvelope,
    resolved: &[Resolved],
    ours: &Disposition,
) -> BTreeSet<Resolved> {
    let leaves = |recipient: &str| {
        ours.recipients.iter().any(|goal| goal.leaves && goal.recipient.eq_ignore_ascii_case(recipient))
    };
    // Rules for the client and the sender have been asked about the recipient that was given.
    let nobody = SeenEnvelope { from: String::new(), client: Ipv4Addr::LOCALHOST.into(), ..envelope.clone() };
    let mut ends = BTreeSet::new();
    for one in resolved {
        let recipient = match one.end {
            // A local name of Sendmail is one of this machine.
            End::Here if !one.recipient.contains('@') => {
                format!("{}@{}", one.recipient, config.settings.hostname)
            }
            _ => one.recipient.clone(),
        };
        // DNS may say at the delivery that there is no such domain.
        if one.end != End::Here && leaves(&recipient) {
            ends.insert(Resolved { recipient, end: End::Elsewhere });
            continue;
        }
        let mut expanded = None;
        for envelope in [envelope, &nobody].into_iter().filter(|_| one.end != End::Elsewhere) {
            // What the other server says instead of an address is not an address here either.
            let disposition = Ours { config, envelope }.disposition(&recipient).await.ok();
            expanded = disposition.filter(|disposition| disposition.refusal.is_none());
            if expanded.is_some() {
                break;
            }
        }
        match expanded {
            Some(disposition) => ends.extend(ends_of(&disposition)),
            None => drop(ends.insert(Resolved { recipient, end: one.end })),
        }
    }
    ends
}

/// Returns the subject and the detail of an enhanced code: `7.1` of `454 4.7.1 Relay access denied`.
fn reason(reply: &str) -> Option<&str> {
    let code = reply.get(4..)?.split(' ').next()?;
    let (class, rest) = code.split_once('.')?;
    (matches!(class, "4" | "5") && rest.contains('.')).then_some(rest)
}

fn ends_of(disposition: &Disposition) -> BTreeSet<Resolved> {
    let goals = disposition.recipients.iter().map(|goal| match goal.leaves {
        true => Resolved { recipient: goal.recipient.to_lowercase(), end: End::Elsewhere },
        false => Resolved { recipient: goal.place.clone(), end: End::Here },
    });
    // Held mail has its recipients, and what is discarded goes nowhere, as at the other server.
    let is_elsewhere = |kept: &&String| !kept.starts_with("discarded") && disposition.recipients.is_empty();
    let kept = disposition
        .kept
        .iter()
        .filter(is_elsewhere)
        .map(|kept| Resolved { recipient: kept.clone(), end: End::Unknown });
    goals.chain(kept).collect()
}

fn shown(resolved: &BTreeSet<Resolved>) -> String {
    let one = |one: &Resolved| match one.end {
        End::Elsewhere => format!("{} at another server", one.recipient),
        End::Here => format!("{} here", one.recipient),
        End::Nowhere => format!("{}, returned", one.recipient),
        End::Unknown => one.recipient.clone(),
    };
    if resolved.is_empty() {
        "nowhere".to_owned()
    } else {
        resolved.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}
