//! `postrider doctor`: checks the machine, the configuration and the network for a mail server.

mod clock;
mod disk;
mod kernel;
mod limits;
pub(crate) mod network;
mod ports;
mod site;

pub(crate) use network::host_name;

use clap::Args;
use config::{Purpose, Settings};
use console::{CliError, print::plain, settings::find as find_config};
use mail::counted;
use serde::Serialize;
use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

/// The options of `postrider doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Skip checks that need the network: no look-ups, no connections to other machines
    #[arg(long)]
    pub offline: bool,
    /// The domain whose mail server to look up and connect to
    #[arg(long, value_name = "DOMAIN", default_value = "gmail.com")]
    pub domain: String,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// How serious a finding is; the worst has the highest order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Ok,
    Warning,
    Error,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// A line of the report: what was seen, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    level: Level,
    /// The name of the check; a check may have several findings.
    check: &'static str,
    seen: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, seen: impl Into<String>) -> Self {
        Self { level: Level::Ok, check, seen: seen.into(), advice: None }
    }

    pub(crate) fn warning(check: &'static str, seen: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Warning, check, seen: seen.into(), advice: Some(advice.into()) }
    }

    pub(crate) fn error(check: &'static str, seen: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Error, check, seen: seen.into(), advice: Some(advice.into()) }
    }
}

/// Runs all checks, prints what they have seen, and returns 0, 1 with warnings, or 2 with errors.
pub fn run(args: &DoctorArgs, explicit: Option<&Path>, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    let mut report = Report::new(args.json);
    examine(args, find_config(explicit).as_deref(), &mut |finding| report.take(finding, out))?;
    report.finish(out)?;
    Ok(report.code())
}

/// Runs the checks, and passes on each finding.
fn examine(
    args: &DoctorArgs,
    source: Option<&Path>,
    each: &mut dyn FnMut(Finding) -> io::Result<()>,
) -> io::Result<()> {
    let begun = clock::Watch::start();
    let is_offline = args.offline;
    let (settings, findings) = site::load(source, is_offline);
    findings.into_iter().try_for_each(&mut *each)?;
    let Some(settings) = settings else {
        limits::check(None).into_iter().chain(kernel::check()).try_for_each(&mut *each)?;
        return clock::check(&begun, None).into_iter().try_for_each(each);
    };
    let mut all = |findings: Vec<Finding>| findings.into_iter().try_for_each(&mut *each);
    all(site::certificates(&settings))?;
    all(site::access(&settings, source))?;
    all(site::accounts())?;
    all(site::daemon(&settings))?;
    all(disk::check(&settings))?;
    all(limits::check(Some(&settings)))?;
    all(kernel::check())?;
    all(ports::check(&settings))?;
    if !is_offline {
        all(network::check(&settings, &args.domain))?;
    }
    all(clock::check(&begun, Some(&settings)))
}

/// Returns all findings, for a support bundle.
pub(crate) fn as_text(args: &DoctorArgs, source: Option<&Path>) -> io::Result<String> {
    let mut text = Vec::new();
    let mut report = Report::new(false);
    examine(args, source, &mut |finding| report.take(finding, &mut text))?;
    report.finish(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Prints findings as they come, or keeps them for JSON.
pub(crate) struct Report {
    as_json: bool,
    level: Level,
    counts: [u64; 3],
    findings: Vec<Finding>,
}

impl Report {
    pub(crate) fn new(as_json: bool) -> Self {
        Self { as_json, level: Level::Ok, counts: [0; 3], findings: Vec::new() }
    }

    /// Returns 0, 1 with warnings, or 2 with errors.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.level as u8)
    }

    pub(crate) fn take(&mut self, finding: Finding, out: &mut dyn Write) -> io::Result<()> {
        self.level = self.level.max(finding.level);
        self.counts[finding.level as usize] += 1;
        if self.as_json {
            self.findings.push(finding);
            return Ok(());
        }
        writeln!(out, "{:<8} {:<13} {}", finding.level.as_str(), finding.check, plain(&finding.seen))?;
        if let Some(advice) = &finding.advice {
            writeln!(out, "{:<8} {:<13} -> {}", "", "", plain(advice))?;
        }
        // A check of the network may take a while.
        out.flush()
    }

    pub(crate) fn finish(&self, out: &mut dyn Write) -> io::Result<()> {
        let [ok, warnings, errors] = self.counts;
        if self.as_json {
            let value = serde_json::json!({
                "version": 1, "level": self.level, "ok": ok, "warnings": warnings, "errors": errors,
                "findings": self.findings,
            });
            return writeln!(out, "{value}");
        }
        writeln!(out, "{}, {}, {ok} ok", counted(errors, "error"), counted(warnings, "warning"))
    }
}

/// Returns a size for people: `3.2 GiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{count} bytes") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Returns the settings that need not be readable as a whole.
fn lenient(source: Option<&Path>) -> Option<Settings> {
    config::load_with_origins(source, Purpose::Ask).ok().map(|loaded| loaded.settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_that_of_the_worst_finding() {
        let finding = |level| Finding { level, check: "x", seen: "seen".into(), advice: None };
        for (levels, expected) in [
            (&[Level::Ok, Level::Ok][..], 0),
            (&[Level::Ok, Level::Warning, Level::Ok], 1),
            (&[Level::Error, Level::Warning], 2),
        ] {
            let mut report = Report { as_json: true, level: Level::Ok, counts: [0; 3], findings: vec![] };
            levels.iter().for_each(|level| report.take(finding(*level), &mut io::sink()).unwrap());
            assert_eq!(report.level as u8, expected);
            let mut out = Vec::new();
            report.finish(&mut out).unwrap();
            let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(value["findings"].as_array().unwrap().len(), levels.len());
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!([bytes(17), bytes(2048), bytes(5 << 30)], ["17 bytes", "2.0 KiB", "5.0 GiB"]);
    }
}
