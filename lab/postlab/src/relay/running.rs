//! Version and configuration of a server that runs on this machine, as its own programs tell them.

use super::{owner::Processes, target::About};
use rustix::process::geteuid;
use std::{
    fs,
    io::Write as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// A server, by the program that listens. Its commands are lines of a shell, with `$FILE` for the configuration file that the
/// program was started with, and `$EXE` for the program.
struct Known {
    program: &'static str,
    /// The option before the file, in each way in which it is written.
    file_options: &'static [&'static str],
    /// Variables of the program's environment that name the configuration.
    variables: &'static [&'static str],
    version: &'static str,
    configuration: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        program: "master",
        file_options: &["-c"],
        variables: &["MAIL_CONFIG"],
        version: "postconf -h mail_version | sed 's/^/Postfix /'",
        configuration: "postconf -n && postconf -M",
    },
    Known {
        program: "exim4",
        file_options: &["-C"],
        variables: &[],
        version: "\"$EXE\" -bV | sed -n '1{s/ version / /;s/ #.*//;p}'",
        configuration: "\"$EXE\" ${FILE:+-C \"$FILE\"} -bP config",
    },
    Known {
        program: "smtpd",
        file_options: &["-f"],
        variables: &[],
        version: "\"$EXE\" -h 2>&1 | sed -n 's/^version: //p'",
        configuration: "cat \"${FILE:-/etc/smtpd.conf}\"",
    },
    Known {
        program: "sendmail",
        file_options: &["-C"],
        variables: &[],
        version: "\"$EXE\" -d0.1 -bt < /dev/null | sed -n '1s/^Version /Sendmail /p'",
        configuration: "cat \"${FILE:-/etc/mail/sendmail.cf}\"",
    },
    Known {
        program: "postrider",
        file_options: &["--config", "-c"],
        variables: &["POSTRIDER_CONFIG"],
        version: "\"$EXE\" --version | sed -n '1s/^postrider /Postrider /p'",
        configuration: "\"$EXE\" ${FILE:+--config \"$FILE\"} config show",
    },
];

/// For a command, in seconds.
const TIMEOUT: &str = "10";

/// Returns the facts about the server that listens at an endpoint; what cannot be found is empty.
pub(super) fn about(endpoint: &str) -> About {
    let Some(pid) = Processes::listener(endpoint) else { return About::default() };
    let Some(server) = Server::of(pid) else { return About::default() };
    About {
        version: server.run(server.known.version).unwrap_or_default(),
        config_hash: server.run(server.known.configuration).and_then(|text| hash(&text)).unwrap_or_default(),
        durability: String::new(),
    }
}

/// A process that was recognized as a mail server.
struct Server {
    pid: u32,
    known: &'static Known,
    /// In the root directory of the server.
    exe: PathBuf,
    file: Option<String>,
}

impl Server {
    /// Recognizes a process; none if another user could have made the program that would be run for it.
    fn of(pid: u32) -> Option<Self> {
        let exe = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let name = exe.file_name()?.to_str()?;
        // Debian's Sendmail is sendmail-mta.
        let known = KNOWN
            .iter()
            .find(|known| name == known.program || name.starts_with(&format!("{}-", known.program)))?;
        let owner = fs::metadata(format!("/proc/{pid}/exe")).ok()?.uid();
        let is_trusted = owner == 0 || owner == geteuid().as_raw();
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let arguments: Vec<&str> =
            arguments.split(|b| *b == 0).filter_map(|word| str::from_utf8(word).ok()).collect();
        let root = fs::read_link(format!("/proc/{pid}/root")).unwrap_or_default();
        let exe = exe.strip_prefix(root).map_or(exe.clone(), |inner| Path::new("/").join(inner));
        let file = file_in(&arguments, known.file_options);
        (is_trusted && has_own_users(pid)).then_some(Self { pid, known, exe, file })
    }

    /// Returns the output of a command that sees the files of the server, whatever root directory that has.
    fn run(&self, line: &str) -> Option<String> {
        let mut command = Command::new("timeout");
        command.arg(TIMEOUT);
        if geteuid().is_root() {
            command
                .args(["nsenter", "--mount", "--root", "--wd", "--target"])
                .arg(self.pid.to_string())
                .arg("--");
        }
        command
            .args(["sh", "-c", line])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C");
        command.env("EXE", &self.exe).env("FILE", self.file.as_deref().unwrap_or_default());
        command.envs(self.variables());
        if !geteuid().is_root() {
            command.current_dir(fs::read_link(format!("/proc/{}/cwd", self.pid)).ok()?);
        }
        let Output { status, stdout, .. } = command.stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&stdout).trim().to_owned();
        (status.success() && !text.is_empty()).then_some(text)
    }

    fn variables(&self) -> Vec<(String, String)> {
        let environment = fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        let pairs =
            environment.split(|b| *b == 0).filter_map(|pair| str::from_utf8(pair).ok()?.split_once('='));
        let wanted = pairs.filter(|(name, _)| self.known.variables.contains(name));
        wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

/// Returns true if a process has the users of this one: in a user namespace anybody can choose the root directory.
fn has_own_users(pid: u32) -> bool {
    let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).ok();
    of(&pid.to_string()).is_some_and(|users| Some(users) == of("self"))
}

/// Returns the file behind one of the options: `-C FILE`, `-CFILE`, `--config=FILE`.
fn file_in(arguments: &[&str], options: &[&str]) -> Option<String> {
    let (at, rest) = arguments.iter().enumerate().skip(1).find_map(|(i, word)| {
        let rest = options.iter().find_map(|option| word.strip_prefix(option))?;
        Some((i, rest.trim_start_matches('=')))
    })?;
    let file = if rest.is_empty() { arguments.get(at + 1)? } else { rest };
    Some(file.to_owned())
}

/// Returns the first 16 digits of SHA-256, as the scripts of the peers do.
fn hash(text: &str) -> Option<String> {
    let mut child = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    // The input is closed here, so that it ends.
    let written = child.stdin.take()?.write_all(text.as_bytes());
    let output = child.wait_with_output().ok()?;
    written.ok()?;
    Some(String::from_utf8_lossy(output.stdout.get(..16)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_the_configuration_is_that_of_the_command_line() {
        let file = |line: &str, options| file_in(&line.split(' ').collect::<Vec<_>>(), options);
        assert_eq!(file("exim4 -bd -q30m", &["-C"]), None);
        assert_eq!(file("exim4 -C /e/exim.conf -bd", &["-C"]).as_deref(), Some("/e/exim.conf"));
        assert_eq!(file("sendmail -C/e/a.cf", &["-C"]).as_deref(), Some("/e/a.cf"));
        assert_eq!(file("postrider serve --config=a.toml", &["--config", "-c"]).as_deref(), Some("a.toml"));
        assert_eq!(file("smtpd -f", &["-f"]), None);
    }

    #[test]
    fn a_configuration_has_the_hash_that_sha256sum_prints() {
        assert_eq!(hash("").as_deref(), Some("e3b0c44298fc1c14"));
    }

    #[test]
    fn nothing_is_run_for_a_program_that_is_not_known() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert_eq!(Processes::listener(&address), Some(std::process::id()));
        assert_eq!(about(&address), About::default());
        assert_eq!(about("192.0.2.1:25"), About::default());
    }
}
