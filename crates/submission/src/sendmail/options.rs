//! sendmail's options, read as its getopt does: letters together, values attached or behind, the
//! first word that is no option ends them. What means nothing here but is known is ignored, as
//! other mail systems do; the rest is refused.

use crate::envelope::{parse_body, parse_notify, parse_ret};
use control::{Id, Selection};
use mail::{BodyType, Notify, Ret};
use std::{ffi::OsString, path::PathBuf};

/// What the options ask the program to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `-bm`: take in a message.
    Deliver,
    /// `-bs`: speak SMTP on standard input and output.
    Smtp,
    /// `-bv`: tell where mail for the addresses goes.
    Verify,
    /// `-bp`: mailq.
    ListQueue,
    /// `-bi`, `-I`: newaliases.
    InitAliases,
    /// `-q…`: these now, or all.
    Flush(Selection),
    /// `--help`: tell of these options.
    Help,
    /// Known, and not done here: why.
    Refused(&'static str),
}

/// Everything that was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) mode: Mode,
    /// `-t`: recipients stand in the header.
    pub(crate) from_header: bool,
    /// `-i`: a lone dot does not end the message.
    pub(crate) ignore_dots: bool,
    /// `-v`: what becomes of the message is written to standard error.
    pub(crate) verbose: bool,
    /// `-f` and `-r`: the reverse-path.
    pub(crate) sender: Option<String>,
    /// `-F`: the name in From, where the message has no From.
    pub(crate) full_name: Option<String>,
    /// `-B`: the type of the body.
    pub(crate) body: Option<BodyType>,
    /// `-N`: which DSNs are wanted.
    pub(crate) notify: Notify,
    /// `-R`: what a DSN returns of the message.
    pub(crate) ret: Option<Ret>,
    /// `-V`: the envelope id.
    pub(crate) envid: Option<Box<str>>,
    /// `-C`: the configuration file.
    pub(crate) config: Option<PathBuf>,
    pub(crate) recipients: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::Deliver,
            from_header: false,
            ignore_dots: false,
            verbose: false,
            sender: None,
            full_name: None,
            body: None,
            notify: Notify::default(),
            ret: None,
            envid: None,
            config: None,
            recipients: Vec::new(),
        }
    }
}

/// Options with a value, attached or in the next word.
const WITH_VALUE: &str = "ABCFLNORVXbefhopr";
/// Options whose value, if any, is attached.
const MAYBE_VALUE: &str = "dq";
/// Known and without meaning here.
const IGNORED: &str = "ALOXdehpGUcmnsx";

/// The texts of sendmail(1) on the options: an example, and the effect.
pub const DOCS: [(&str, &str); 22] = [
    (
        "-t",
        "Send to the recipients in To, Cc and Bcc (or their Resent- forms), in addition to those on the command line.",
    ),
    ("-i", "A line with only a dot does not end the message. Also -oi, -O IgnoreDots=true."),
    ("-f address", "The reverse-path; <> for the null reverse-path. Also -r."),
    (
        "-F name",
        "The full name, used if From is missing. Default: the environment variable NAME, or the name of the user.",
    ),
    ("-B 8BITMIME", "The type of the content, 7BIT or 8BITMIME; detected without this option."),
    (
        "-N success,failure",
        "The notifications that the sender requests: never, or some of success, failure, delay (RFC 3461).",
    ),
    ("-R hdrs", "The part of the message that a failure notification returns: full or hdrs."),
    ("-V id", "An envelope id for notifications."),
    ("-v", "Print the queue id on standard error."),
    ("-C file", "The configuration file."),
    ("--help", "Print these options."),
    ("-bm", "Submit a message. The default."),
    (
        "-bs",
        "Run an SMTP session with the daemon on standard input and output. Lines may end in LF, and content may \
         follow DATA at once. Exits with 65 if a command was rejected, with 75 if all rejections were temporary.",
    ),
    (
        "-bv",
        "Print the recipients that mail for the addresses goes to, and their next hops. Maps and aliases are looked up, DNS is not.",
    ),
    ("-bp", "List the queue, as mailq(1)."),
    ("-bi", "Check the files of aliases, as newaliases(1). The daemon reads a changed file by itself."),
    ("-q", "Attempt delivery of all queued messages now. An interval after -q is ignored."),
    ("-qIid", "Attempt delivery of the message with this queue id now."),
    ("-qRtext", "Attempt delivery of messages with a recipient that contains this text."),
    ("-qStext", "Attempt delivery of messages with a sender that contains this text."),
    ("-bd", "Not supported: start the daemon with postrider serve."),
    ("-oem", "Ignored, as other -o options and -A, -G, -L, -O, -U, -X, -h, -m, -n and -p."),
];

/// Returns what `--help` prints.
pub(crate) fn help() -> String {
    let mut text = "Usage: sendmail [options] [recipients]\n       mailq\n       newaliases\n\n".to_owned();
    for (option, what) in DOCS {
        text.push_str(&format!("  {option:<20} {what}\n"));
    }
    text
}

impl Options {
    /// Reads the arguments behind the name. The error is for the user.
    pub(crate) fn parse(arguments: &[OsString]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = Vec::new();
        for argument in arguments {
            words.push(argument.to_str().ok_or_else(|| format!("{}: not UTF-8", argument.display()))?);
        }
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word.strip_prefix('-') {
                Some("-help") => return Ok(Self { mode: Mode::Help, ..Self::default() }),
                Some("-") => {
                    options.recipients.extend(words.by_ref().map(str::to_owned));
                }
                Some(cluster) if !cluster.is_empty() => options.cluster(cluster, &mut words)?,
                _ => {
                    options.recipients.push(word.to_owned());
                    options.recipients.extend(words.by_ref().map(str::to_owned));
                }
            }
        }
        if let Some(odd) = options.recipients.iter().find(|r| r.starts_with('-')) {
            return Err(format!("{odd}: options stand before the recipients"));
        }
        Ok(options)
    }

    /// `-it`, `-fme@x`, `-f me@x`.
    fn cluster<'w>(
        &mut self,
        cluster: &'w str,
        words: &mut impl Iterator<Item = &'w str>,
    ) -> Result<(), String> {
        let mut rest = cluster;
        while let Some(letter) = rest.chars().next() {
            rest = &rest[letter.len_utf8()..];
            if WITH_VALUE.contains(letter) {
                let value = if rest.is_empty() { words.next() } else { Some(rest) };
                return self.valued(letter, value.ok_or_else(|| format!("-{letter} takes a value"))?);
            }
            if MAYBE_VALUE.contains(letter) {
                return self.valued(letter, rest);
            }
            self.flag(letter)?;
        }
        Ok(())
    }

    fn flag(&mut self, letter: char) -> Result<(), String> {
        match letter {
            't' => self.from_header = true,
            'i' => self.ignore_dots = true,
            'v' => self.verbose = true,
            'I' => self.mode = Mode::InitAliases,
            letter if IGNORED.contains(letter) => {}
            letter => return Err(format!("-{letter}: no such option")),
        }
        Ok(())
    }

    fn valued(&mut self, letter: char, value: &str) -> Result<(), String> {
        match letter {
            'b' => self.mode = mode(value)?,
            'o' => self.old_option(value),
            'O' => self.long_option(value),
            'q' => {
                let run = queue_run(value)?;
                // Who asks for a daemon that runs the queue must not believe that there is one.
                if !matches!(self.mode, Mode::Refused(_)) {
                    self.mode = Mode::Flush(run);
                }
            }
            'f' | 'r' => self.sender = Some(value.to_owned()),
            'F' => self.full_name = Some(value.to_owned()),
            'B' => self.body = Some(parse_body(value)?),
            'N' => self.notify = parse_notify(value)?,
            'R' => self.ret = Some(parse_ret(value)?),
            'V' if value.len() <= 100 && !value.contains(char::is_control) && !value.is_empty() => {
                self.envid = Some(value.into());
            }
            'V' => return Err("-V: 1 to 100 printable characters".to_owned()),
            'C' => self.config = Some(value.into()),
            _ => {} // Of `IGNORED`.
        }
        Ok(())
    }

    /// `-oi` and its kind; `-o7`, `-oem`, `-oA…` and the rest mean nothing here.
    fn old_option(&mut self, value: &str) {
        match value {
            "i" => self.ignore_dots = true,
            "t" => self.from_header = true,
            "v" => self.verbose = true,
            _ => {}
        }
    }

    /// `-O IgnoreDots=true`; others configure sendmail itself.
    fn long_option(&mut self, value: &str) {
        let (name, value) = value.split_once('=').unwrap_or((value, "true"));
        if name.trim().eq_ignore_ascii_case("IgnoreDots") {
            self.ignore_dots =
                matches!(value.trim().to_ascii_lowercase().as_str(), "true" | "t" | "yes" | "y" | "1");
        }
    }
}

fn mode(value: &str) -> Result<Mode, String> {
    Ok(match value {
        "m" => Mode::Deliver,
        "s" => Mode::Smtp,
        "p" => Mode::ListQueue,
        "i" => Mode::InitAliases,
        "d" | "D" | "l" => Mode::Refused("the daemon is started by `postrider serve`"),
        "v" => Mode::Verify,
        "t" => Mode::Refused("there are no rules to rewrite by: name addresses behind -bv"),
        "h" | "H" => {
            Mode::Refused("there are no host status files; see `postrider queue list --status suspended`")
        }
        "a" => Mode::Refused("ARPANET mode is not supported"),
        other => return Err(format!("-b{other}: no such mode")),
    })
}

/// `-q`, `-q30m`: all; `-qIid`, `-qRrecipient`, `-qSsender`: these. sendmail looks for the text
/// anywhere in the address.
fn queue_run(value: &str) -> Result<Selection, String> {
    let anywhere = |text: &str| Some(format!("*{text}*"));
    let mut selection = Selection::default();
    match (value.chars().next(), value.get(1..).unwrap_or_default()) {
        (Some('I'), id) => selection.ids.push(Id(id.parse().map_err(|why| format!("-qI{id}: {why}"))?)),
        (Some('R'), text) => selection.recipient = anywhere(text),
        (Some('S'), text) => selection.sender = anywhere(text),
        (Some('!' | 'G' | 'Q' | 'L'), _) => return Err(format!("-q{value}: not done here")),
        // An interval is for sendmail's daemon; run by hand it means now.
        _ => {}
    }
    Ok(selection)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_ways_programs_call_sendmail_are_understood() {
        let o = parse("-FCronDaemon -i -odi -oem -oi -t -f root").unwrap(); // cron
        assert!(o.from_header && o.ignore_dots && o.mode == Mode::Deliver);
        assert_eq!((o.sender.as_deref(), o.full_name.as_deref()), (Some("root"), Some("CronDaemon")));
        let o = parse("-oi -fme@x.test -oem -oi -- a@b.test -c@d.test");
        assert!(o.is_err(), "a recipient that looks like an option");
        let o = parse("-o i -o em -A c -e q -b m -t a@b.test").unwrap(); // getopt takes the next word, too
        assert!(o.ignore_dots && o.from_header && o.mode == Mode::Deliver && o.recipients == ["a@b.test"]);
        let o = parse("-it -rme@x.test").unwrap(); // letters together; PHP's default is -t -i
        assert!(o.ignore_dots && o.from_header && o.sender.as_deref() == Some("me@x.test"));
        let o = parse("-bm -G -v -B8BITMIME -Nnever -R full -Venv a@b.test c@d.test").unwrap();
        assert_eq!(o.recipients, ["a@b.test", "c@d.test"]);
        assert_eq!((o.notify, o.ret, o.envid.as_deref()), (Notify::NEVER, Some(Ret::Full), Some("env")));
        assert!(
            parse("-O IgnoreDots=true -OLogLevel=9 -Am -Ac -L tag -X log -h 3 -p ESMTP x")
                .unwrap()
                .ignore_dots
        );
    }

    #[test]
    fn every_option_of_the_manual_is_understood_as_it_says() {
        for (example, about) in DOCS {
            let line = example.replace("-qIid", "-qI0000000000007");
            let options = parse(&line).unwrap_or_else(|why| panic!("{example}: {why}"));
            let changes = options != Options::default();
            let says_so = !about.starts_with("Ignored") && !about.contains("The default.");
            assert!(changes == says_so, "{example}");
            assert_eq!(
                matches!(options.mode, Mode::Refused(_)),
                about.starts_with("Not supported"),
                "{example}"
            );
        }
    }

    #[test]
    fn modes_and_queue_runs_are_told_apart() {
        assert_eq!(parse("-bs").unwrap().mode, Mode::Smtp);
        for line in ["-bp", "-b p", "-Ac -bp"] {
            assert_eq!(parse(line).unwrap().mode, Mode::ListQueue, "{line}");
        }
        assert_eq!(parse("-bi").unwrap().mode, Mode::InitAliases);
        for line in ["-q", "-q30m"] {
            assert_eq!(parse(line).unwrap().mode, Mode::Flush(Selection::default()), "{line}");
        }
        assert!(
            matches!(parse("-qRb.test").unwrap().mode, Mode::Flush(s) if s.recipient.as_deref() == Some("*b.test*"))
        );
        assert!(
            matches!(parse("-qSme").unwrap().mode, Mode::Flush(s) if s.sender.as_deref() == Some("*me*"))
        );
        assert!(matches!(parse("-qI0000000000007").unwrap().mode, Mode::Flush(s) if s.ids.len() == 1));
        for line in ["-bd", "-bd -q15m", "-q15m -bd"] {
            let mode = parse(line).unwrap().mode;
            assert!(matches!(mode, Mode::Refused(why) if why.contains("postrider serve")), "{line}");
        }
    }

    #[test]
    fn what_is_unknown_or_lacks_its_value_is_refused() {
        for line in
            ["-Z", "-bz", "-f", "-N sometimes", "-R half", "-B 9bit", "-qInonsense", "a@b -f c@d", "--"]
        {
            let parsed = parse(line);
            assert!(
                parsed.is_err() || parsed.is_ok_and(|o| line == "--" && o.recipients.is_empty()),
                "{line}"
            );
        }
    }
}
