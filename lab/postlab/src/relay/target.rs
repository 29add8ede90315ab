//! A thing to measure: a peer that a script starts, or a server that runs already.

use crate::{Failure, address::Endpoint};
use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    net::{Ipv4Addr, TcpListener},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// What is measured: a server that runs, or one that a script starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// The profile is the configuration, by a name that the script knows: `stock`, `tuned`.
    Peer {
        name: String,
        profile: String,
        script: PathBuf,
    },
    Address(String),
}

/// Facts about a target that do not change from run to run. Empty: not known.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct About {
    pub(crate) version: String,
    pub(crate) config_hash: String,
    pub(crate) durability: String,
}

impl About {
    /// Returns version and configuration in a line, as far as they are known.
    pub(super) fn text(&self) -> String {
        let version = if self.version.is_empty() { "version not known" } else { &self.version };
        let hash = if self.config_hash.is_empty() { "not known" } else { &self.config_hash };
        format!("{version}, configuration {hash}")
    }
}

impl Target {
    /// Reads `postfix`, `postfix:tuned` or `HOST:PORT`; the scripts of peers lie in `peers`.
    pub(super) fn parse(text: &str, peers: &Path) -> Result<Self, String> {
        let (name, profile) = match text.rsplit_once(':') {
            // Behind the name of a host is a number.
            Some((name, profile)) if profile.starts_with(|c: char| c.is_ascii_lowercase()) => (name, profile),
            _ => (text, "stock"),
        };
        let script = peers.join(format!("{name}.sh"));
        let is_name = !name.is_empty() && name != "lib" && name.chars().all(|c| c.is_ascii_alphanumeric());
        if is_name && script.is_file() {
            return Ok(Self::Peer { name: name.to_owned(), profile: profile.to_owned(), script });
        }
        // The name of a peer has none of these.
        if text.contains([':', '[', '.']) && name == text {
            return Ok(Self::Address(Endpoint::parse(text, Some(25))?.to_string()));
        }
        let known = names(peers);
        let known = if known.is_empty() {
            format!("{} has no scripts: name their directory with --peers", peers.display())
        } else {
            format!("{} has {}", peers.display(), known.join(", "))
        };
        Err(format!("`{text}` is neither HOST:PORT nor a peer: {known}"))
    }

    /// The name in tables: `postfix:stock`, `127.0.0.1:25`.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Peer { name, profile, .. } => format!("{name}:{profile}"),
            Self::Address(address) => address.clone(),
        }
    }

    /// Returns the facts that the script prints.
    pub(super) fn about(&self) -> Result<About, Failure> {
        let Self::Peer { script, profile, .. } = self else { return Ok(About::default()) };
        let say = |verb: &str| printed(script, &[verb, profile]);
        Ok(About {
            version: say("version")?,
            config_hash: say("config-hash")?,
            durability: say("durability")?,
        })
    }

    /// Returns the difference between the stock and the tuned configuration; none for a server that runs already.
    pub(super) fn difference(&self) -> Result<Option<(String, String)>, Failure> {
        let Self::Peer { name, script, .. } = self else { return Ok(None) };
        Ok(Some((name.clone(), printed(script, &["diff"])?)))
    }
}

/// Returns the names of the peers that have a script here.
fn names(peers: &Path) -> Vec<String> {
    let files = std::fs::read_dir(peers).into_iter().flatten().flatten();
    let names = files.filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".sh")?.to_owned()));
    let mut names: Vec<String> = names.filter(|name| name != "lib" && !name.contains('-')).collect();
    names.sort();
    names
}

/// Runs a script and returns its output.
fn printed(script: &Path, words: &[&str]) -> Result<String, Failure> {
    let shown = || format!("run `{} {}`", script.display(), words.join(" "));
    let output = Command::new(script).args(words).env(OWNER, owner()).stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("{}: {e}", shown()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    let why = why.trim();
    let error = if why.is_empty() { format!("{}: {}", shown(), output.status) } else { why.to_owned() };
    // That it has no such profile.
    Err(if output.status.code() == Some(64) { Failure::Usage(error) } else { Failure::Failed(error) })
}

/// A server that takes mail now; a peer is stopped, and its queue emptied, when this is dropped.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) endpoint: String,
    pub(super) cgroup: Option<PathBuf>,
    pub(super) queue: Option<PathBuf>,
    pub(super) log: Option<PathBuf>,
    peer: Option<(PathBuf, File)>,
}

impl Started {
    /// Starts a peer with an empty queue, on a free port, as a relay to the sink. `output` takes what it prints.
    pub(crate) fn peer(script: &Path, profile: &str, sink_port: &str, output: &Path) -> Result<Self, String> {
        let file = OpenOptions::new().create(true).append(true).open(output);
        let file = file.map_err(|e| format!("write {}: {e}", output.display()))?;
        let port = free_port()?.to_string();
        let started = Self {
            endpoint: format!("127.0.0.1:{port}"),
            cgroup: path(script, "cgroup").filter(|path| path.parent().is_some_and(Path::is_dir)),
            queue: path(script, "queue"),
            log: path(script, "log"),
            peer: Some((script.to_owned(), file)),
        };
        started.command("reset", profile, &port, sink_port, output)?;
        started.command("start", profile, &port, sink_port, output)?;
        Ok(started)
    }

    /// Returns true for a peer: its queue was empty when it was started.
    pub(super) fn is_fresh(&self) -> bool {
        self.peer.is_some()
    }

    /// Describes a server that runs already.
    pub(super) fn running(endpoint: &str, queue: Option<PathBuf>, log: Option<PathBuf>) -> Self {
        Self { endpoint: endpoint.to_owned(), cgroup: None, queue, log, peer: None }
    }

    fn command(
        &self,
        verb: &str,
        profile: &str,
        port: &str,
        sink: &str,
        output: &Path,
    ) -> Result<(), String> {
        let Some((script, file)) = &self.peer else { return Ok(()) };
        let shown = format!("run `{} {verb} {profile}`", script.display());
        let copy = || file.try_clone().map_err(|e| format!("write {}: {e}", output.display()));
        let mut command = Command::new(script);
        command.args([verb, profile]).env("PEER_PORT", port).env("SINK_PORT", sink).env(OWNER, owner());
        // A daemon that keeps its standard output open would keep a pipe open, too. Ctrl-C is for us.
        command.stdin(Stdio::null()).stdout(copy()?).stderr(copy()?).process_group(0);
        let status = command.status().map_err(|e| format!("{shown}: {e}"))?;
        if status.success() {
            return Ok(());
        }
        let said = std::fs::read_to_string(output).unwrap_or_default();
        let last = said.trim().lines().last().unwrap_or("it printed nothing").to_owned();
        let log = self.log.as_ref().map(|log| format!("; its log: {}", log.display())).unwrap_or_default();
        Err(format!("{shown}: it ended with {status}: {last} (all output: {}{log})", output.display()))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some((script, _)) = &self.peer
            && let Err(error) = printed(script, &["reset"])
        {
            // No `eprintln!`: a panic in a destructor can abort the process.
            let _ = writeln!(std::io::stderr(), "postlab: {error}");
        }
    }
}

fn path(script: &Path, verb: &str) -> Option<PathBuf> {
    printed(script, &[verb]).ok().filter(|text| !text.is_empty()).map(PathBuf::from)
}

/// The variable with the owner by which the script knows whose peer it is: it does not stop that of another run.
pub(crate) const OWNER: &str = "PEER_OWNER";

/// Returns the owner: this process, or the `postlab reproduce` that started it and has peers of its own.
fn owner() -> String {
    std::env::var(OWNER).unwrap_or_else(|_| std::process::id().to_string())
}

/// Below those that the kernel gives to whoever asks for any: it would give one of them to another process before the peer
/// listens.
const PORTS: std::ops::Range<u16> = 3_000..10_000;

/// Returns a port on which nobody listens now.
fn free_port() -> Result<u16, String> {
    let mut ports = std::iter::repeat_with(|| fastrand::u16(PORTS)).take(1_000);
    let port = ports.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    port.ok_or_else(|| format!("find a free port: none of 1000 in {PORTS:?} is free"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_peer_with_a_profile_or_an_address() {
        let peers = tempfile::tempdir().unwrap();
        for name in ["lib.sh", "postfix.sh", "sendmail-queue.sh"] {
            std::fs::write(peers.path().join(name), "").unwrap();
        }
        let parse = |text| Target::parse(text, peers.path());
        assert_eq!(parse("postfix").unwrap().label(), "postfix:stock");
        assert_eq!(parse("postfix:tuned").unwrap().label(), "postfix:tuned");
        assert_eq!(parse("postfix:queue-dirs").unwrap().label(), "postfix:queue-dirs");
        assert_eq!(parse("postfix:25").unwrap(), Target::Address("postfix:25".into()));
        assert_eq!(parse("[::1]:25").unwrap(), Target::Address("[::1]:25".into()));
        assert_eq!(parse("[127.0.0.1]2626").unwrap(), Target::Address("127.0.0.1:2626".into()));
        assert_eq!(parse("mail.example.com").unwrap(), Target::Address("mail.example.com:25".into()));
        let error = parse("exim").unwrap_err();
        assert!(
            error.starts_with("`exim` is neither HOST:PORT nor a peer: ") && error.ends_with(" has postfix")
        );
        assert!(parse("exim:tuned").is_err() && parse("lib").is_err() && parse("host:x").is_err());
    }
}
