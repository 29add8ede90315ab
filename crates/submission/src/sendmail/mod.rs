//! The binary under the names `sendmail`, `mailq` and `newaliases`: what every program on a Unix
//! machine that sends mail expects. Exit codes are those of sysexits.h.

pub mod addresses;
pub mod message;
pub mod options;
mod smtp_stdin;
mod user;
pub mod verify;

use crate::{
    envelope::{RECIPIENTS_MAX, wire_form},
    maildrop::{self, Quota},
    submit_client::{self, Submitted},
};
use config::Settings;
use control::{CommandError, Exit, Selection, client::ClientError};
use mail::{BodyType, Envelope, ForwardPath, Recipient, ReversePath};
use message::ParsedMessage;
use options::{Mode, Options};
use std::{
    collections::HashSet,
    ffi::OsString,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};
use user::User;
pub use user::name as user_name;

/// Which command the program was called as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applet {
    /// `sendmail`.
    Sendmail,
    /// `mailq`.
    Mailq,
    /// `newaliases`.
    Newaliases,
}

impl Applet {
    /// By the name it was called under; with the arguments behind the name. `postrider sendmail` is
    /// one too: what is behind it has sendmail's rules, not ours.
    pub fn of(arguments: &[OsString]) -> Option<(Self, &[OsString])> {
        let called = Path::new(arguments.first()?).file_name()?.to_str()?;
        if let Some(applet) = Self::named(called) {
            return Some((applet, &arguments[1..]));
        }
        (arguments.get(1)? == "sendmail").then(|| (Self::Sendmail, &arguments[2..]))
    }

    fn named(name: &str) -> Option<Self> {
        match name {
            "sendmail" | "send-mail" => Some(Self::Sendmail),
            "mailq" => Some(Self::Mailq),
            "newaliases" => Some(Self::Newaliases),
            _ => None,
        }
    }
}

/// The commands of the main program that the interface stands for.
pub trait Commands {
    /// Reads the configuration: the named file, or the one that is found.
    ///
    /// # Errors
    /// It cannot be read, or has errors.
    fn load_config(&self, explicit: Option<&Path>) -> Result<Settings, CommandError>;

    /// Lists the queue, as mailq does.
    ///
    /// # Errors
    /// The queue cannot be read.
    fn list_queue(&self, settings: &Settings, out: &mut dyn Write) -> Result<Exit, CommandError>;

    /// Tries messages now: those that are selected, or all.
    ///
    /// # Errors
    /// The daemon does not run, or refuses.
    fn flush(&self, settings: &Settings, selection: Option<&Selection>) -> Result<Exit, CommandError>;

    /// Returns where mail of this machine for each address goes.
    ///
    /// # Errors
    /// Nothing can be looked up.
    fn routes(&self, settings: &Settings, paths: &[ForwardPath]) -> Result<Vec<Route>, CommandError>;

    /// Checks the files of aliases, and says how many names each has.
    ///
    /// # Errors
    /// A file has a fault.
    fn check_aliases(&self, settings: &Settings, out: &mut dyn Write) -> Result<Exit, CommandError>;
}

/// Where mail for an address would go, as `sendmail -bv` says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// The recipients and their next hops, in words.
    To(String),
    /// The reply with which a route refuses mail for the address.
    Refused(String),
    /// The address is local, and no user has it.
    NoSuchUser,
    /// The reason why the address cannot be expanded now.
    Failed(String),
}

/// Runs the command that the program was called as, and returns its exit code.
pub fn run(applet: Applet, arguments: &[OsString], commands: &dyn Commands) -> ExitCode {
    let ended = Options::parse(arguments).map_err(|text| CommandError::new(Exit::Usage, text)).and_then(
        |mut options| {
            match applet {
                _ if options.mode == Mode::Help => {}
                Applet::Sendmail => {}
                Applet::Mailq => options.mode = Mode::ListQueue,
                Applet::Newaliases => options.mode = Mode::InitAliases,
            }
            perform(&options, commands)
        },
    );
    let exit = ended.unwrap_or_else(|error| {
        complain("sendmail", &error.text);
        error.exit
    });
    exit.into()
}

/// Writes to standard error, behind the name of the program.
fn complain(who: &str, text: &str) {
    if !text.is_empty() {
        // With standard error closed there is no other place to write to.
        let _ = writeln!(io::stderr(), "{who}: {text}");
    }
}

fn perform(options: &Options, commands: &dyn Commands) -> Result<Exit, CommandError> {
    match &options.mode {
        Mode::Deliver => {}
        Mode::Help => {
            io::stdout().write_all(options::help().as_bytes())?;
            return Ok(Exit::Ok);
        }
        Mode::Refused(why) => return Err(CommandError::new(Exit::Usage, *why)),
        Mode::Smtp | Mode::Verify | Mode::ListQueue | Mode::Flush(_) | Mode::InitAliases => {}
    }
    let settings = commands.load_config(options.config.as_deref())?;
    match &options.mode {
        Mode::ListQueue => {
            let mut out = io::BufWriter::new(io::stdout().lock());
            let exit = commands.list_queue(&settings, &mut out)?;
            out.flush()?;
            Ok(exit)
        }
        Mode::Flush(selection) => {
            commands.flush(&settings, Some(selection).filter(|selection| !selection.is_empty()))
        }
        Mode::InitAliases => commands.check_aliases(&settings, &mut io::stdout().lock()),
        Mode::Smtp => smtp_stdin::run(&settings),
        Mode::Verify => verify::run(&options.recipients, &settings, commands, &mut io::stdout().lock()),
        _ => deliver(options, &settings),
    }
}

/// Reads a message and hands it in.
fn deliver(options: &Options, settings: &Settings) -> Result<Exit, CommandError> {
    if options.recipients.is_empty() && !options.from_header {
        return Err(CommandError::new(
            Exit::Usage,
            "recipients must be given as arguments or, with -t, in the header",
        ));
    }
    let (envelope, content) = compose(options, settings, &mut io::stdin().lock())?;
    for part in split(envelope) {
        submit(options, settings, &part, &content)?;
    }
    Ok(Exit::Ok)
}

/// Splits an envelope with more recipients than one transaction takes.
fn split(mut envelope: Envelope) -> Vec<Envelope> {
    let recipients = std::mem::take(&mut envelope.recipients);
    let with = |part: &[Recipient]| Envelope { recipients: part.to_vec(), ..envelope.clone() };
    recipients.chunks(RECIPIENTS_MAX).map(with).collect()
}

/// The message on standard input with its envelope.
fn compose(
    options: &Options,
    settings: &Settings,
    stdin: &mut dyn io::BufRead,
) -> Result<(Envelope, Vec<u8>), CommandError> {
    let user = User::current();
    let reverse_path = sender(options, settings, &user)?;
    let mut recipients = Vec::new();
    for argument in &options.recipients {
        recipients.extend(addresses::parse(argument).map_err(data_error)?);
    }
    // What a line is, and where the header ends, is decided on what will leave.
    let raw = wire_form(message::read(stdin, options.ignore_dots, settings.limits.message_bytes)?);
    let mut draft = ParsedMessage::parse(&raw);
    if options.from_header {
        recipients.extend(draft.recipients().map_err(data_error)?);
    }
    let author = message::LocalUser {
        address: reverse_path.as_str(),
        user: &user.name,
        full_name: options.full_name.as_deref().unwrap_or(&user.full_name),
        hostname: &settings.hostname,
    };
    draft.complete(&author);
    let content = wire_form(draft.into_bytes());
    let mut envelope = envelope_for(reverse_path, &recipients, options, settings)?;
    envelope.body = match options.body {
        Some(body) => body,
        None if content.is_ascii() => BodyType::SevenBit,
        None => BodyType::EightBit,
    };
    Ok((envelope, content))
}

fn data_error(text: String) -> CommandError {
    CommandError::new(Exit::DataErr, text)
}

fn sender(options: &Options, settings: &Settings, user: &User) -> Result<ReversePath, CommandError> {
    let text = match options.sender.as_deref() {
        Some("" | "<>") => return Ok(ReversePath::Null),
        // As an address in a header, so that `Name <a@b>` is understood.
        Some(given) => match &addresses::parse(given).map_err(data_error)?[..] {
            [one] => one.clone(),
            _ => return Err(data_error(format!("{given:?} is not one sender"))),
        },
        None => user.name.clone(),
    };
    ReversePath::parse(&qualified(&text, settings), true)
        .map_err(|why| data_error(format!("sender <{text}>: {why}")))
}

/// Adds the host name to a user name without a domain.
fn qualified(address: &str, settings: &Settings) -> String {
    if addresses::has_domain(address) {
        address.to_owned()
    } else {
        format!("{address}@{}", settings.hostname)
    }
}

fn envelope_for(
    reverse_path: ReversePath,
    recipients: &[String],
    options: &Options,
    settings: &Settings,
) -> Result<Envelope, CommandError> {
    let mut envelope = Envelope::new(reverse_path);
    let mut seen = HashSet::new();
    for address in recipients {
        let address = qualified(address, settings);
        let path = ForwardPath::parse(&address, true)
            .map_err(|why| CommandError::new(Exit::DataErr, format!("recipient <{address}>: {why}")))?;
        // Named on the command line and in two header fields, it is still one copy.
        if seen.insert(path.clone()) {
            envelope.recipients.push(Recipient { notify: options.notify, ..Recipient::new(path) });
        }
    }
    if envelope.recipients.is_empty() {
        return Err(CommandError::new(Exit::Usage, "no recipient addresses found in the header"));
    }
    envelope.smtputf8 =
        !envelope.reverse_path.as_str().is_ascii() || recipients.iter().any(|r| !r.is_ascii());
    envelope.ret = options.ret;
    envelope.envid.clone_from(&options.envid);
    Ok(envelope)
}

/// To the daemon; to the drop directory when it is down, or cannot take the message now: nobody
/// calls sendmail a second time.
fn submit(
    options: &Options,
    settings: &Settings,
    envelope: &Envelope,
    content: &[u8],
) -> Result<Exit, CommandError> {
    let say = |text: &str| {
        if options.verbose {
            complain("sendmail", text);
        }
    };
    let trouble = match submit_client::submit(&settings.control.submit_socket, envelope, content) {
        Ok(Submitted::Accepted(id)) => {
            say(&format!("queued as {id}"));
            return Ok(Exit::Ok);
        }
        Ok(Submitted::Refused(refusal)) if refusal.permanent => {
            return Err(CommandError::new(Exit::DataErr, refusal.text));
        }
        Ok(Submitted::Refused(refusal)) => refusal.text,
        Err(ClientError::NotRunning) => "the daemon is not running".to_owned(),
        Err(ClientError::Refused(failure)) => failure.text().to_owned(),
        Err(ClientError::Broken(text)) => text,
        Err(ClientError::NotTaken(error)) => error.to_string(),
    };
    let control = &settings.control;
    let quota = Quota { messages: control.maildrop_max_messages.into(), bytes: control.maildrop_max_size.0 };
    match maildrop::write(&settings.data_dir, &control.maildrop, quota, envelope, content) {
        Ok(()) => {
            say(&format!("{trouble}: the message waits in {}", settings.control.maildrop.display()));
            Ok(Exit::Ok)
        }
        Err(error) => {
            let dir = settings.control.maildrop.display();
            let text = format!("{trouble}, and writing to {dir}: {error}");
            Err(CommandError::new(Exit::TempFail, mail::plain_text(&text).into_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let mut settings = config::load(None).unwrap();
        settings.hostname = "host.test".to_owned();
        settings
    }

    fn compose_with(arguments: &[&str], stdin: &str) -> Result<(Envelope, String), CommandError> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let options = Options::parse(&arguments).unwrap();
        let (envelope, content) = compose(&options, &settings(), &mut stdin.as_bytes())?;
        Ok((envelope, String::from_utf8(content).unwrap()))
    }

    fn recipients(envelope: &Envelope) -> Vec<&str> {
        envelope.recipients.iter().map(|r| r.path.as_str()).collect()
    }

    #[test]
    fn recipients_come_from_the_header_and_bcc_is_removed() {
        let text = "From: a@a.test\nTo: Bob <bob@b.test>, root\nCc: team: c@c.test,\n (hi) d@d.test;\nBcc: e@e.test\n\
                    Subject: x\n\nTo: not@this\n";
        let (envelope, content) = compose_with(&["-t", "bob@b.test"], text).unwrap();
        assert_eq!(
            recipients(&envelope),
            ["bob@b.test", "root@host.test", "c@c.test", "d@d.test", "e@e.test"]
        );
        assert!(
            !content.contains("e@e.test") && content.contains("Cc: team: c@c.test,\r\n (hi) d@d.test;\r\n")
        );
        assert!(content.ends_with("\r\n\r\nTo: not@this\r\n"));
    }

    #[test]
    fn resent_fields_take_the_place_of_the_first_ones() {
        let text = "To: first@x.test\nResent-To: second@x.test\nResent-Bcc: third@x.test\n\n";
        let (envelope, content) = compose_with(&["-t"], text).unwrap();
        assert_eq!(recipients(&envelope), ["second@x.test", "third@x.test"]);
        assert!(!content.contains("third@"));
    }

    #[test]
    fn missing_fields_are_added_and_present_ones_left() {
        let (_, content) =
            compose_with(&["-f", "me@a.test", "-F", "M. \"E\"", "x@y.test"], "Subject: s\n\nb\n").unwrap();
        assert!(content.starts_with("Subject: s\r\n"));
        assert!(content.contains("\r\nFrom: \"M. \\\"E\\\"\" <me@a.test>\r\n"), "{content}");
        for field in ["\r\nDate: ", "\r\nMessage-ID: <"] {
            assert_eq!(content.matches(field).count(), 1, "{content}");
        }
        let text = "from: a@b\nDATE: now\nmessage-Id: <1@2>\n\nb\n";
        let (_, content) = compose_with(&["x@y.test"], text).unwrap();
        assert_eq!(content, text.replace('\n', "\r\n"));
    }

    #[test]
    fn users_of_this_machine_can_be_answered_from_elsewhere() {
        let text = "From: root (Cron Daemon)\nTo: Bob <bob>,\n eve\nSubject: root\n\nFrom: root\n";
        let (envelope, content) = compose_with(&["-t"], text).unwrap();
        assert_eq!(recipients(&envelope), ["bob@host.test", "eve@host.test"]);
        assert!(content.starts_with(
            "From: root@host.test (Cron Daemon)\r\nTo: Bob <bob@host.test>,\r\n eve@host.test\r\nSubject: root\r\n"
        ));
        assert!(content.ends_with("\r\n\r\nFrom: root\r\n"));
    }

    #[test]
    fn text_without_a_header_gets_one() {
        let (_, content) = compose_with(&["x@y.test"], "hello\nworld\n").unwrap();
        assert!(content.ends_with("\r\n\r\nhello\r\nworld\r\n") && content.contains("From: "));
        let (_, content) = compose_with(&["x@y.test"], "").unwrap();
        assert!(content.ends_with("\r\n\r\n"));
    }

    #[test]
    fn what_is_taken_out_leaves_no_header_in_two() {
        let (_, content) = compose_with(&["x@y.test"], "A: b\n \0\nSubject: s\n\nb\n").unwrap();
        assert!(
            content.starts_with("A: b\r\n \r\nSubject: s\r\n") && content.ends_with("\r\n\r\nb\r\n"),
            "{content:?}"
        );
    }

    #[test]
    fn a_lone_dot_ends_the_message_unless_told_otherwise() {
        let text = "a: b\n\none\n.\ntwo\n";
        assert!(!compose_with(&["x@y.test"], text).unwrap().1.contains("two"));
        for flag in ["-i", "-oi"] {
            assert!(compose_with(&[flag, "x@y.test"], text).unwrap().1.ends_with("one\r\n.\r\ntwo\r\n"));
        }
    }

    #[test]
    fn the_null_sender_and_dsn_options_reach_the_envelope() {
        let arguments =
            ["-f", "<>", "-N", "success,failure", "-R", "hdrs", "-V", "id 1", "-B", "8BITMIME", "x@y.test"];
        let (envelope, content) = compose_with(&arguments, "a: b\n\n").unwrap();
        assert!(envelope.reverse_path.is_null());
        assert!(envelope.recipients[0].notify.success && !envelope.recipients[0].notify.delay);
        assert_eq!((envelope.ret, envelope.envid.as_deref()), (Some(mail::Ret::Headers), Some("id 1")));
        assert_eq!(envelope.body, BodyType::EightBit);
        assert!(content.contains("@host.test>\r\n") || content.contains("@host.test\r\n"), "{content}");
    }

    #[test]
    fn nothing_that_is_no_address_becomes_a_recipient() {
        for (arguments, text, exit) in [
            (&["-t"][..], "Subject: x\n\n", Exit::Usage),
            (&["-t"], "To: undisclosed-recipients:;\n\n", Exit::Usage),
            (&["-t"], "To: John Smith\n\n", Exit::DataErr),
            (&["a b@c.test"], "\n", Exit::DataErr),
            (&["<a@b.test"], "\n", Exit::DataErr),
            (&["-f", "a@b.test, c@d.test", "x@y.test"], "\n", Exit::DataErr),
        ] {
            assert_eq!(compose_with(arguments, text).unwrap_err().exit, exit, "{arguments:?} {text:?}");
        }
    }

    #[test]
    fn very_many_recipients_go_in_parts_that_keep_everything_else() {
        let list: Vec<String> = (0..2500).map(|n| format!("u{n}@x.test")).collect();
        let (envelope, _) = compose_with(&["-f", "me@a.test", "-R", "full", &list.join(",")], "\n").unwrap();
        let parts = split(envelope);
        assert_eq!(parts.iter().map(|p| p.recipients.len()).collect::<Vec<_>>(), [1000, 1000, 500]);
        assert!(parts.iter().all(|p| p.reverse_path.as_str() == "me@a.test" && p.ret.is_some()));
        assert_eq!(recipients(&parts[2])[499], "u2499@x.test");
    }

    #[test]
    fn eight_bit_text_and_addresses_are_declared() {
        let (envelope, _) = compose_with(&["ä@y.test"], "Subject: x\n\nä\n").unwrap();
        assert_eq!((envelope.body, envelope.smtputf8), (BodyType::EightBit, true));
        let (envelope, _) = compose_with(&["a@y.test"], "Subject: x\n\na\n").unwrap();
        assert_eq!((envelope.body, envelope.smtputf8), (BodyType::SevenBit, false));
    }
}
