//! The record of what programs that are not ours did: `cargo xtask interop` makes docs/interop.md of it.

use std::{fs::OpenOptions, io::Write as _, process::Command};

/// Notes what was tried with a program, and what was seen. Called when a test has seen it.
pub fn seen(program: &str, tried: &str, what: &str) {
    let Some(path) = std::env::var_os("POSTRIDER_INTEROP") else { return };
    let version = version(program).unwrap_or_default();
    let line = serde_json::json!({ "program": program, "version": version, "tried": tried, "seen": what });
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    // One write: several tests note at the same time.
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

const DKIMPY_VERSION: &str = "import importlib.metadata; print(importlib.metadata.version('dkimpy'))";
const SCRAMP_VERSION: &str = "import importlib.metadata; print(importlib.metadata.version('scramp'))";

/// Asks a program for its version.
fn version(program: &str) -> Option<String> {
    let (command, arguments): (Command, &[&str]) = match program {
        "Postfix" => (super::program("postconf")?, &["-h", "-d", "mail_version"]),
        "Dovecot" => (super::program_in_place("dovecot")?, &["--version"]),
        "Go net/smtp" => (super::program("go")?, &["version"]),
        "Python smtplib" => (super::program("python3")?, &["--version"]),
        "scramp" => (super::python_with("scramp")?, &["-c", SCRAMP_VERSION]),
        "dkimpy" => (super::python_with("dkim")?, &["-c", DKIMPY_VERSION]),
        "OpenSSL" => (super::program("openssl")?, &["version"]),
        "nullmailer" => return super::unpacked_version("nullmailer"),
        "dma" => return super::unpacked_version("dma"),
        other => (super::program(other)?, &["--version"]),
    };
    let mut command = command;
    let output = command.args(arguments).output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // `GNU SASL 2.2.0`, `curl 7.88.1 (...)`, `go version go1.26 linux/amd64`: the first word with a digit and a dot.
    let is_version = |word: &&str| word.contains('.') && word.chars().any(|letter| letter.is_ascii_digit());
    said.split_whitespace().find(is_version).map(|word| word.trim_start_matches("go").to_owned())
}
