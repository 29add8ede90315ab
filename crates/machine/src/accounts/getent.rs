//! `getent`, which asks the modules of the C library: this program may be built without it, and must not load code of others.

use super::{Failed, Looked, Question, group_of_line, nsswitch, read, user_of_line};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, geteuid, kill_process_group, pidfd_open},
};
use std::{
    io::{self, Read as _},
    os::{fd::AsFd, unix::process::CommandExt as _},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

const PLACES: [&str; 3] = ["/usr/bin/getent", "/bin/getent", "/run/current-system/sw/bin/getent"];
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Octets of an answer. Groups come with all their members.
const ANSWER_MAX: usize = 1024 * 1024;
/// As whom root runs it: the modules are code of others, and answer everybody alike.
const NOBODY: u32 = 65_534;
/// "One or more supplied key could not be found in the database": getent(1).
const NOT_FOUND: i32 = 2;

/// Asks, and makes sure that "not found" is not said for a service that does not answer.
pub(super) fn ask(question: &Question) -> Looked<String> {
    let Some(key) = question.key() else { return Ok(None) };
    let database = question.database();
    let failed = |why: String| Failed::Service(format!("getent {database} {key}: {why}"));
    let line = program().and_then(|program| run(program, &[database, &key], TIME_LIMIT)).map_err(failed)?;
    if line.is_some() {
        return Ok(line);
    }
    let mut services =
        nsswitch::services(database).into_iter().filter(|service| nsswitch::is_set_up(service));
    match services.find_map(|service| check(&service, database).err()) {
        Some(why) => Err(failed(why)),
        None => Ok(None),
    }
}

fn program() -> Result<&'static Path, String> {
    let place = PLACES.iter().map(Path::new).find(|place| place.exists());
    place.ok_or_else(|| format!("there is no {}", PLACES[0]))
}

/// Checks that a service answers. `getent` goes on to the next service when one does not, and says "not found" in the end; so the service
/// is asked alone for what the file has: the file is reached only behind a service that has answered.
pub(super) fn check(service: &str, database: &str) -> Result<(), String> {
    let known = match database {
        "passwd" => first(super::PASSWD, user_of_line)?.name,
        _ => first(super::GROUP, group_of_line)?.name,
    };
    let services = format!("{service} [UNAVAIL=return TRYAGAIN=return] files");
    match run(program()?, &["-s", &services, database, &known], TIME_LIMIT) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(format!("the service {service} of /etc/nsswitch.conf does not answer")),
        Err(why) => Err(format!("ask the service {service} of /etc/nsswitch.conf: {why}")),
    }
}

fn first<T>(path: &str, parse: fn(&str) -> Option<T>) -> Result<T, String> {
    let text = read(path).map_err(|failed| failed.to_string())?;
    text.lines().find_map(parse).ok_or_else(|| format!("{path} has no entry"))
}

/// Runs the program, and returns the first line that it says; none if it finds nothing.
fn run(program: &Path, arguments: &[&str], limit: Duration) -> Result<Option<String>, String> {
    let failed = |e: io::Error| format!("run {}: {e}", program.display());
    let child = start(program, arguments).map_err(failed)?;
    let mut running = Running { child, has_ended: false };
    let until = Instant::now() + limit;
    let (status, said) = running.converse(until).map_err(|e| match e.kind() {
        io::ErrorKind::TimedOut => format!("no answer within {limit:?}"),
        _ => failed(e),
    })?;
    let first = String::from_utf8_lossy(&said).lines().next().map(str::to_owned);
    match (status.code(), first) {
        (Some(0), Some(line)) => Ok(Some(line)),
        (Some(0), None) => Err("it says nothing".to_owned()),
        (Some(NOT_FOUND), _) => Ok(None),
        _ => Err(format!("it ended with {status}")),
    }
}

fn start(program: &Path, arguments: &[&str]) -> io::Result<Child> {
    let command = || {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().current_dir("/").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    };
    if geteuid().is_root() {
        let started = command().uid(NOBODY).gid(NOBODY).spawn();
        // A container may have this user only, or may not become another one.
        let is_alone = |e: &io::Error| {
            [Errno::INVAL, Errno::PERM].iter().any(|errno| e.raw_os_error() == Some(errno.raw_os_error()))
        };
        if !started.as_ref().is_err_and(is_alone) {
            return started;
        }
    }
    command().spawn()
}

/// The program, with whatever it starts: all of them end when this is dropped.
struct Running {
    child: Child,
    has_ended: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended {
            // The number is its own until somebody has waited for it.
            let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            let _ = group.map(|group| kill_process_group(group, Signal::KILL));
            let _ = self.child.wait();
        }
    }
}

impl Running {
    /// Reads all that the program says, and waits for its end.
    fn converse(&mut self, until: Instant) -> io::Result<(ExitStatus, Vec<u8>)> {
        let number = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        let end = pidfd_open(number, PidfdFlags::empty())?;
        let mut stdout = self.child.stdout.take().ok_or(Errno::BADF)?;
        let (mut said, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            wait(&stdout, until)?;
            match stdout.read(&mut piece)? {
                0 => break,
                count => said.extend_from_slice(&piece[..count]),
            }
            if said.len() > ANSWER_MAX {
                return Err(io::Error::other(format!("its answer is longer than {ANSWER_MAX} octets")));
            }
        }
        wait(&end, until)?;
        let status = self.child.wait()?;
        self.has_ended = true;
        Ok((status, said))
    }
}

/// Waits until a descriptor can be read.
fn wait(descriptor: impl AsFd, until: Instant) -> io::Result<()> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Runs a script instead of getent, and returns its answer.
    fn answer(script: &str, limit: Duration) -> Result<Option<String>, String> {
        run(Path::new("/bin/sh"), &["-c", script], limit)
    }

    #[test]
    fn only_not_found_is_no_such_key_and_everything_else_is_a_failure() {
        let minute = Duration::from_secs(60);
        assert_eq!(answer("echo joe:x:1:1::/:; echo more", minute), Ok(Some("joe:x:1:1::/:".to_owned())));
        assert_eq!(answer("exit 2", minute), Ok(None));
        for (script, why) in [
            ("exit 1", "exit status: 1"),
            ("exit 3", "exit status: 3"),
            ("exit 127", "exit status: 127"),
            ("kill -9 $$", "signal: 9"),
            ("true", "says nothing"),
            ("yes", "longer than"),
        ] {
            let failed = answer(script, minute).unwrap_err();
            assert!(failed.contains(why), "{script}: {failed}");
        }
        let failed = run(Path::new("/nonexistent/getent"), &[], minute).unwrap_err();
        assert!(failed.contains("run /nonexistent/getent: No such file"), "{failed}");
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        assert!(Command::new("mkfifo").args(["-m", "666"]).arg(&fifo).status().unwrap().success());
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        // The child holds the FIFO open for writing: its reader sees the end when the child has ended.
        let script = format!("sleep 1000 > {} & wait", fifo.display());
        let reader = std::thread::spawn(move || fs::read(fifo));
        let failed = answer(&script, Duration::from_millis(300)).unwrap_err();
        assert_eq!(failed, "no answer within 300ms");
        assert_eq!(reader.join().unwrap().unwrap(), b"");
    }

    #[test]
    fn the_environment_of_the_caller_is_not_passed_on() {
        let said = answer("echo \"${HOME-none} ${CARGO_MANIFEST_DIR-none}\"", Duration::from_secs(60));
        assert_eq!(said, Ok(Some("none none".to_owned())));
    }
}
