//! `postrider config check`: everything that the daemon would find wrong, as text on standard error or as JSON.

use config::{Problems, Purpose, Settings};
use console::{CliError, Ending, complain, settings::show_problems};
use control::Exit;
use mail::UnixMillis;
use serde_json::{Value, json};
use server::{
    access::{self, Checked, Fault},
    destinations::without_user,
    helper, map_warnings, refuse_ephemeral,
    site_warnings::{self, unread_postmaster},
    unnamed_spools,
};
use std::{io::Write, path::Path};

/// Takes what is found.
trait Report {
    /// An error of the configuration itself; returns what ends the command.
    fn problems(&mut self, problems: &Problems) -> CliError;
    /// An error that has no place in the file.
    fn error(&mut self, code: &'static str, text: &str, help: Option<&str>);
    /// A refusal to start; returns what ends the command.
    fn refusal(&mut self, code: &'static str, text: String) -> CliError;
    fn warning(&mut self, text: &str);
    /// A warning of a file that the configuration names.
    fn file_warning(&mut self, name: &str, what: &str);
}

/// Writes to standard error, and counts warnings.
#[derive(Default)]
struct Text {
    warnings: u64,
}

impl Report for Text {
    fn problems(&mut self, problems: &Problems) -> CliError {
        show_problems(problems)
    }

    fn error(&mut self, _: &'static str, text: &str, help: Option<&str>) {
        let help = help.map_or_else(String::new, |help| format!(": {help}"));
        complain("postrider", &format!("error: {text}{help}"));
    }

    fn refusal(&mut self, _: &'static str, text: String) -> CliError {
        CliError::new(Exit::Config, text)
    }

    fn warning(&mut self, text: &str) {
        self.warnings += 1;
        complain("postrider", &format!("warning: {text}"));
    }

    fn file_warning(&mut self, name: &str, what: &str) {
        self.warnings += 1;
        complain("postrider", &format!("{name}: warning: {what}"));
    }
}

/// Collects findings as JSON objects.
struct Objects<'p> {
    file: Option<&'p Path>,
    found: Vec<Value>,
}

impl Report for Objects<'_> {
    fn problems(&mut self, problems: &Problems) -> CliError {
        for problem in problems.list() {
            let (line, column) = problems.place(problem).unzip();
            self.found.push(json!({
                "severity": "error",
                "file": problems.file_of(problem).display().to_string(),
                "line": line,
                "column": column,
                "code": problem.code.as_str(),
                "message": problem.what,
                "help": problem.help,
            }));
        }
        CliError::new(Exit::Config, "")
    }

    fn error(&mut self, code: &'static str, text: &str, help: Option<&str>) {
        self.push("error", code, text, help);
    }

    fn refusal(&mut self, code: &'static str, text: String) -> CliError {
        self.push("error", code, &text, None);
        CliError::new(Exit::Config, "")
    }

    fn warning(&mut self, text: &str) {
        self.push("warning", "warning", text, None);
    }

    fn file_warning(&mut self, name: &str, what: &str) {
        self.push("warning", "map", &format!("{name}: {what}"), None);
    }
}

impl Objects<'_> {
    fn push(&mut self, severity: &str, code: &str, text: &str, help: Option<&str>) {
        let file = self.file.map(|file| file.display().to_string());
        self.found.push(json!({
            "severity": severity, "file": file, "line": null, "column": null, "code": code, "message": text,
            "help": help,
        }));
    }
}

/// Checks a file and what it names, as the daemon would use it, and writes what is wrong to standard error. Returns the number
/// of warnings.
///
/// # Errors
/// The daemon would not start, or not deliver.
pub(in crate::cli) fn check(file: Option<&Path>) -> Result<u64, CliError> {
    let mut text = Text::default();
    run(file, &mut text)?;
    Ok(text.warnings)
}

/// Prints what is wrong as a JSON array; it is empty if nothing is.
pub(super) fn as_json(file: Option<&Path>, out: &mut dyn Write) -> Ending {
    let mut objects = Objects { file, found: Vec::new() };
    let ended = run(file, &mut objects);
    writeln!(out, "{:#}", Value::Array(objects.found))?;
    ended.map(|()| Exit::Ok)
}

fn run(file: Option<&Path>, report: &mut dyn Report) -> Result<(), CliError> {
    let loaded =
        config::load_with_origins(file, Purpose::Serve).map_err(|problems| report.problems(&problems))?;
    let settings = &loaded.settings;
    let (of_files, faults) = map_warnings::warnings_and_faults(settings)?;
    let site = site_warnings::warnings(settings, UnixMillis::now());
    for warning in helper::warnings(settings, access::starter(settings)).into_iter().chain(site) {
        report.warning(&warning);
    }
    for (reference, what) in &of_files {
        report.file_warning(&reference.to_string(), what);
    }
    if !faults.is_empty() {
        return Err(report.problems(&loaded.map_problems(&faults)));
    }
    for warning in without_user(settings)?.into_iter().chain(unread_postmaster(settings)?) {
        report.warning(&warning);
    }
    let mut is_bad = false;
    if file.is_some()
        && let Err(text) = refuse_ephemeral(settings)
    {
        return Err(report.refusal("spool", text));
    }
    let unnamed = unnamed_spools::find(settings).iter().map(ToString::to_string).collect::<Vec<_>>();
    for one in unnamed.into_iter().chain(unnamed_spools::of_other_backend(settings)) {
        report.error("spool", &one, None);
        is_bad = true;
    }
    is_bad |= !may_use_files(settings, file, report)?;
    if is_bad { Err(CliError::new(Exit::Config, "")) } else { Ok(()) }
}

/// Checks, for root, what the user of the daemon may do with the files of the configuration.
fn may_use_files(
    settings: &Settings,
    source: Option<&Path>,
    report: &mut dyn Report,
) -> Result<bool, CliError> {
    if source.is_none() || !access::is_other_user(settings) {
        return Ok(true);
    }
    let checked = access::check(settings, source).map_err(|text| CliError::new(Exit::Unavailable, text))?;
    let Checked::As { faults, .. } = checked else { return Ok(true) };
    for Fault { is_error, text, advice } in &faults {
        if *is_error {
            report.error("access", text, Some(advice));
        } else {
            report.warning(&format!("{text}: {advice}"));
        }
    }
    Ok(!faults.iter().any(|fault| fault.is_error))
}
