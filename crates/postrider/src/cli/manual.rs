//! Man pages, generated from the definitions of the command line and of the configuration keys.

mod examples;

use super::{CliError, Ending, args::Cli};
use clap::CommandFactory;
use config::{KeyDoc, SectionDoc};
use control::Exit;
use examples::Example;
use std::{
    fs,
    io::{self, Write},
    path::Path,
};
use submission::sendmail::options::DOCS;
use upkeep::replace_file;

/// Writes postrider.1, a page for each command, sendmail.1 under its three names, and postrider.toml.5.
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
    let mut command = Cli::command().version(env!("CARGO_PKG_VERSION")).disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add_pages(command, &mut pages)?;
    complete_pages(&mut pages);
    pages.push(("postrider.toml.5".to_owned(), settings_page()));
    pages.push(("sendmail.1".to_owned(), sendmail_page()));
    pages.extend(
        ["mailq.1", "newaliases.1"].map(|name| (name.to_owned(), ".so man1/sendmail.1\n".to_owned())),
    );
    for (name, page) in &pages {
        replace_file(&dir.join(name), page.as_bytes())?;
    }
    Ok(pages.len())
}

/// File name and text of a manual page.
type Page = (String, String);

/// Adds the pages of a command and of those below it.
fn add_pages(command: clap::Command, pages: &mut Vec<Page>) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add_pages(below.clone(), pages)?;
    }
    let page = clap_mangen::Man::new(command);
    let mut bytes = Vec::new();
    page.render(&mut bytes)?;
    pages.push((page.get_filename(), String::from_utf8_lossy(&bytes).into_owned()));
    Ok(())
}

/// Adds FILES, EXIT STATUS, EXAMPLES and SEE ALSO to each page of a command.
fn complete_pages(pages: &mut [Page]) {
    let mut names: Vec<String> =
        pages.iter().map(|(file, _)| file.strip_suffix(".1").unwrap_or(file).to_owned()).collect();
    names.sort_unstable();
    for (file, page) in pages {
        let name = file.strip_suffix(".1").unwrap_or(file);
        let Some((_, examples)) = examples::EXAMPLES.iter().find(|(page, _)| *page == name) else { continue };
        page.push_str(&files_and_exit_status(name));
        page.push_str(&examples_section(examples));
        page.push_str(&see_also(&related(name, &names)));
    }
}

/// Returns the pages of the command above, of the commands below, and of the configuration file.
fn related<'n>(name: &str, names: &'n [String]) -> Vec<(&'n str, u8)> {
    let depth = name.matches('-').count();
    let is_related = |other: &&String| {
        let is_below = other.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
        let is_above = name.strip_prefix(other.as_str()).is_some_and(|rest| rest.starts_with('-'));
        is_above || (is_below && other.matches('-').count() == depth + 1)
    };
    let found = names.iter().filter(is_related).map(|name| (name.as_str(), 1));
    found.chain([("postrider.toml", 5)]).collect()
}

fn examples_section(examples: &[Example]) -> String {
    let mut section = ".SH EXAMPLES\n".to_owned();
    for (command, about) in examples {
        section.push_str(&format!(".TP\n\\fB{}\\fR\n{}\n", escape(command), escape(about)));
    }
    section
}

/// FILES and EXIT STATUS of a page of `postrider`.
fn files_and_exit_status(name: &str) -> String {
    let own = match name {
        "postrider-map-query" => "\n1: a key is not in the map.",
        "postrider-test" => "\n65: the message is refused for good. 75: it is refused for now.",
        "postrider-spool-check" => "\n65: the spool has a fault.",
        "postrider-doctor" => "\n1: there are warnings. 2: there are errors.",
        "postrider-auth-test" => "\n77: the password or the token is wrong.",
        _ => "",
    };
    format!("{FILES}{EXIT_STATUS}{own}\n")
}

const FILES: &str = "\
.SH FILES
.TP
.I /etc/postrider/postrider.toml
The configuration, unless \\fB\\-\\-config\\fR or the environment variable \\fBPOSTRIDER_CONFIG\\fR names another file.
.TP
.I /var/lib/postrider
The usual \\fBdata_dir\\fR: spool, history, sockets, drop directory, and \\fIlast\\-good.toml\\fR, the configuration of the last start.
";

const EXIT_STATUS: &str = "\
.SH EXIT STATUS
0: done. 64: the command line is wrong. 65: wrong or damaged data. 66: a message or file that was named does not exist. 69: the
daemon is needed and does not run. 70: an internal error. 73: a file cannot be created. 74: reading or writing failed. 75: try
again later. 77: not permitted. 78: the configuration is wrong.";

fn see_also(pages: &[(&str, u8)]) -> String {
    let pages: Vec<String> =
        pages.iter().map(|(name, section)| format!(".BR {} ({section})", escape(name))).collect();
    format!(".SH SEE ALSO\n{}\n", pages.join(",\n"))
}

const INTRODUCTION: &str = "\
The file is in TOML format. The daemon reads it when it starts and at \\fBpostrider reload\\fR, and checks the whole file
first. \\fBpostrider config check\\fR only checks a file; \\fBpostrider config show\\fR prints every value with its
origin. Unknown keys are errors. A key that is not in the file has its default.
.PP
A \\fIduration\\fR has a unit: \"250ms\", \"300s\", \"5m\", \"4h\", \"5d\", \"1w\" or \"1h30m\"; a number without a unit
is seconds. A \\fIsize\\fR is \"64KiB\", \"50MiB\", \"1GiB\" or \"1GB\"; a number without a unit is bytes. A relative
\\fIpath\\fR in the file is relative to the directory of the file, one in a default to the current directory.
In defaults, {machine} stands for the name of the machine, {hostname} and {data_dir} for the values of these keys.
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
    page.push_str(".SH FILES\n.I /etc/postrider/postrider.toml\n.SH EXAMPLES\n.nf\n");
    page.push_str(&escape(examples::SETTINGS));
    page.push_str(".fi\n");
    page.push_str(&see_also(&[
        ("postrider", 1),
        ("postrider-config-check", 1),
        ("postrider-config-show", 1),
    ]));
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
\\fBsendmail\\fR reads a message from standard input, up to the end of the input or a line with only a dot, and submits it
to the running daemon. It adds From, Date and Message-ID if they are missing, and removes Bcc. While the daemon is down or
has no space, the message is stored in the drop directory, and the daemon accepts it later.
.PP
\\fBmailq\\fR lists the queue. After the queue id, * means that an attempt is under way, and ! that an operator holds the message.
.SH OPTIONS
";

const SENDMAIL_END: &str = "\
.SH EXIT STATUS
0: the message is stored. 64: the command line is wrong. 65: a bad address, or the message is too large. 69: the daemon is
needed and does not run. 75: temporary failure, try again later. 77: not permitted. 78: the configuration is wrong.
.SH ENVIRONMENT
\\fBPOSTRIDER_CONFIG\\fR: the configuration file. \\fBNAME\\fR: the full name.
";

/// sendmail(1) in roff.
fn sendmail_page() -> String {
    let mut page = format!(
        ".TH SENDMAIL 1 \"\" \"postrider {}\" \"\"\n.SH NAME\nsendmail, mailq, newaliases \\- submit mail, list the \
         queue\n{SENDMAIL}",
        env!("CARGO_PKG_VERSION")
    );
    for (option, about) in DOCS {
        page.push_str(&format!(".TP\n\\fB{}\\fR\n{}\n", escape(option), escape(about)));
    }
    page.push_str(SENDMAIL_END);
    page.push_str(FILES);
    page.push_str(&examples_section(examples::SENDMAIL));
    page + &see_also(&[("postrider", 1), ("postrider.toml", 5)])
}

fn section_of(section: &SectionDoc, page: &mut String) {
    let title = if section.name.is_empty() { "TOP LEVEL".to_owned() } else { section.header() };
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
        assert!(
            page.contains("\\fBretry_min\\fR: a duration, default \\fB\"300s\"\\fR\nShortest interval.\n")
        );
        assert!(page.contains(".SH \"[[route]]\"") && page.contains(".SH \"[hosts]\""));
    }

    #[test]
    fn every_page_has_examples_files_and_exit_status() {
        let dir = tempfile::tempdir().unwrap();
        write_all(dir.path()).unwrap();
        let mut count = 0;
        for entry in fs::read_dir(dir.path()).unwrap() {
            let path = entry.unwrap().path();
            let page = fs::read_to_string(&path).unwrap();
            if page.starts_with(".so ") {
                continue; // Another name of a page.
            }
            // The pages of sendmail and of the configuration have no use for one of them.
            let is_command =
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("postrider"))
                    && path.extension().is_some_and(|end| end == "1");
            let titles = ["EXAMPLES", "SEE ALSO", "FILES", "EXIT STATUS"];
            for title in &titles[..if is_command { 4 } else { 2 }] {
                assert_eq!(
                    page.matches(&format!("\n.SH {title}\n")).count(),
                    1,
                    "{title} in {}",
                    path.display()
                );
            }
            count += 1;
        }
        assert_eq!(count, examples::EXAMPLES.len() + 2, "each page is written, and each example has a page");
    }

    #[test]
    fn every_example_is_a_command_line_that_is_understood() {
        for (_, examples) in examples::EXAMPLES {
            for (line, _) in *examples {
                if let Err(error) = Cli::command().try_get_matches_from(line.split(' ')) {
                    panic!("{line}: {error}");
                }
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("postrider.toml");
        let inside = examples::SETTINGS.replace("/var/log", &dir.path().to_string_lossy());
        fs::create_dir(dir.path().join("postrider")).unwrap();
        fs::write(&path, inside).unwrap();
        config::load_with_origins(Some(&path), config::Purpose::Ask).unwrap();
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
