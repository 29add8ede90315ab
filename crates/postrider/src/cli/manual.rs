//! Man pages, made from the same definitions as the help and the configuration's reader.

use super::{CliError, Ending, args::Cli};
use crate::{sendmail::options::DOCS, sysexits::Exit};
use clap::CommandFactory;
use config::{KeyDoc, SectionDoc};
use std::{
    fs,
    io::{self, Write},
    path::Path,
};

/// Writes postrider.1, a page for each subcommand, sendmail.1 under its three names, and postrider.toml.5.
pub(super) fn write(dir: &Path, out: &mut dyn Write) -> Ending {
    let made = fs::create_dir_all(dir).and_then(|()| write_all(dir));
    let count = made.map_err(|error| {
        CliError::new(Exit::CantCreate, format!("write man pages to {}: {error}", dir.display()))
    })?;
    writeln!(out, "{count} man pages in {}", dir.display())?;
    Ok(Exit::Ok)
}

fn write_all(dir: &Path) -> io::Result<usize> {
    // Without the commit: the pages are kept in the repository, and would differ with each.
    clap_mangen::generate_to(Cli::command().version(env!("CARGO_PKG_VERSION")), dir)?;
    fs::write(dir.join("postrider.toml.5"), settings_page())?;
    fs::write(dir.join("sendmail.1"), sendmail_page())?;
    for name in ["mailq.1", "newaliases.1"] {
        fs::write(dir.join(name), ".so man1/sendmail.1\n")?;
    }
    Ok(fs::read_dir(dir)?.filter_map(Result::ok).filter(|entry| is_page(&entry.path())).count())
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "1" || e == "5")
}

const INTRODUCTION: &str = "\
The file is TOML. It is read when the daemon starts and at \\fBpostrider reload\\fR, and checked whole
before anything is done with it; \\fBpostrider config check\\fR does that alone, and \\fBpostrider config
show\\fR lists every value with its origin. Unknown keys are errors. A key that is left out has its
default, also when there is no file at all.
.PP
A \\fIduration\\fR is written with a unit, \"250ms\", \"300s\", \"5m\", \"4h\", \"5d\", \"1w\" or \"1h30m\"; a bare
number is seconds. A \\fIsize\\fR is \"64KiB\", \"50MiB\", \"1GiB\", \"1GB\"; a bare number is bytes. A
relative \\fIpath\\fR in the file starts at the file's folder, one in a default at the current folder.
In defaults, {machine} stands for the machine's own name, {hostname} and {data_dir} for those keys' values.
";

/// postrider.toml(5) in roff.
fn settings_page() -> String {
    let mut page = format!(
        ".TH POSTRIDER.TOML 5 \"\" \"postrider {}\" \"File Formats\"\n.SH NAME\npostrider.toml \\- configuration of \
         \\fBpostrider\\fR(1)\n.SH DESCRIPTION\n{INTRODUCTION}",
        env!("CARGO_PKG_VERSION")
    );
    for section in config::schema() {
        section_of(&section, &mut page);
    }
    page.push_str(".SH FILES\n.I /etc/postrider/postrider.toml\n.SH SEE ALSO\n.BR postrider (1)\n");
    page
}

const SENDMAIL: &str = "\
.SH SYNOPSIS
\\fBsendmail\\fR [\\fIoptions\\fR] [\\fIrecipients\\fR]
.br
\\fBmailq\\fR
.br
\\fBnewaliases\\fR
.SH DESCRIPTION
\\fBsendmail\\fR reads a message on standard input, to its end or to a line with a lone dot, and hands it to
the running daemon. It adds From, Date and Message-ID where they are missing and removes Bcc. While the
daemon is down, or has no room, the message is kept in the drop directory, on disk, and taken in later.
.PP
\\fBmailq\\fR lists the queue: * an attempt is under way, ! an operator holds it.
.SH OPTIONS
";

const SENDMAIL_END: &str = "\
.SH EXIT STATUS
0: the message is on disk. 64: wrong command line. 65: a bad address, or too large. 69: the daemon is needed
and does not run. 75: try again later. 77: not permitted. 78: the configuration is wrong.
.SH ENVIRONMENT
\\fBPOSTRIDER_CONFIG\\fR: the configuration file. \\fBNAME\\fR: the full name.
.SH SEE ALSO
.BR postrider (1),
.BR postrider.toml (5)
";

/// sendmail(1) in roff.
fn sendmail_page() -> String {
    let mut page = format!(
        ".TH SENDMAIL 1 \"\" \"postrider {}\" \"\"\n.SH NAME\nsendmail, mailq, newaliases \\- hand in mail, list the \
         queue\n{SENDMAIL}",
        env!("CARGO_PKG_VERSION")
    );
    for (option, about) in DOCS {
        page.push_str(&format!(".TP\n\\fB{}\\fR\n{}\n", escape(option), escape(about)));
    }
    page + SENDMAIL_END
}

fn section_of(section: &SectionDoc, page: &mut String) {
    let title = match (section.name, section.repeated) {
        ("", _) => "TOP LEVEL".to_owned(),
        (name, true) => format!("[[{name}]]"),
        (name, false) => format!("[{name}]"),
    };
    page.push_str(&format!(".SH \"{title}\"\n{}\n", prose(section.about)));
    for key in section.keys {
        key_of(key, page);
    }
}

fn key_of(key: &KeyDoc, page: &mut String) {
    let default = match key.default {
        "" => "not set".to_owned(),
        value => format!("default \\fB{}\\fR", escape(value)),
    };
    page.push_str(&format!(
        ".TP\n\\fB{}\\fR: {}, {default}\n{}\n",
        key.name,
        escape(&(key.kind)()),
        prose(key.about)
    ));
}

/// A doc comment as roff: its lines without the space in front, code in bold.
fn prose(about: &str) -> String {
    let text = escape(&about.lines().map(str::trim).collect::<Vec<_>>().join("\n"));
    let mut out = String::new();
    for (number, piece) in text.trim_end().split('`').enumerate() {
        if number > 0 {
            out.push_str(if number % 2 == 1 { "\\fB" } else { "\\fR" });
        }
        out.push_str(piece);
    }
    out
}

/// Backslashes are roff's; so are dots and quotes at the start of a line, and hyphens become dashes.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let guard =
        |line: &str| if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() };
    text.split('\n').map(guard).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_tells_of_every_key_its_kind_and_default() {
        let page = settings_page();
        for section in config::schema() {
            for key in section.keys {
                assert!(page.contains(&format!("\n\\fB{}\\fR: ", key.name)), "{}", key.name);
            }
        }
        assert!(page.contains("\\fBretry_min\\fR: a duration, default \\fB\"300s\"\\fR\nShortest wait.\n"));
        assert!(page.contains(".SH \"[[route]]\"") && page.contains(".SH \"[hosts]\""));
    }

    #[test]
    fn the_sendmail_page_tells_of_every_option() {
        let page = sendmail_page();
        assert!(DOCS.iter().all(|(option, _)| page.contains(&format!("\\fB{}\\fR\n", escape(option)))));
    }

    #[test]
    fn no_line_of_prose_is_taken_for_a_roff_request() {
        assert_eq!(prose(" .foo `a\\b`\n 'bar-x\n"), "\\&.foo \\fBa\\eb\\fR\n\\&'bar\\-x");
    }
}
