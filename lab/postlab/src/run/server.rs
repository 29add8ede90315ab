//! The server that a result is of: its name and version, and a hash of its configuration in each variant.

use super::scenario::{Scenario, Variant};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// Name, version and configuration of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Server {
    /// The variant of the scenario; empty where nothing is varied.
    pub(crate) variant: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) configuration: String,
}

const FILE: &str = "servers.json";

impl Server {
    /// `Postfix 3.7.11`
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.name, self.version).trim().to_owned()
    }

    /// With the variant, and the hash of the configuration.
    pub(crate) fn text(&self) -> String {
        let variant = if self.variant.is_empty() { String::new() } else { format!("{}: ", self.variant) };
        format!("{variant}{} (configuration {})", self.title(), self.configuration)
    }
}

/// Asks the scenario's command for the server of each variant; nothing where there is no such command.
pub(super) fn describe(scenario: &Scenario, scripts: &Path) -> Result<Vec<Server>, String> {
    let Some(command) = scenario.mta.as_ref().and_then(|mta| mta.describe.as_deref()) else {
        return Ok(Vec::new());
    };
    scenario.variants().iter().map(|variant| one(command, variant, scripts)).collect()
}

fn one(command: &str, variant: &Variant, scripts: &Path) -> Result<Server, String> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).env("SCENARIOS", scripts).env("SINK_PORT", "0").envs(&variant.env);
    let output = shell.stdin(Stdio::null()).output().map_err(|e| format!("run `{command}`: {e}"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("run `{command}`: {}", error.lines().next().unwrap_or("it failed")));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines().map(|line| line.trim().to_owned());
    let mut next = || lines.next().unwrap_or_default();
    Ok(Server { variant: variant.name.clone(), name: next(), version: next(), configuration: next() })
}

/// Keeps the servers beside the runs.
pub(super) fn keep(directory: &Path, servers: &[Server]) -> Result<(), String> {
    let path = directory.join(FILE);
    let text = serde_json::to_vec_pretty(servers).map_err(|e| format!("write JSON: {e}"))?;
    fs::write(&path, text).map_err(|e| format!("write {}: {e}", path.display()))
}

/// Returns the servers of a result; older results have none.
pub(crate) fn servers(directory: &Path) -> Vec<Server> {
    let text = fs::read_to_string(directory.join(FILE)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}
