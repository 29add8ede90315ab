//! The clock: is it synchronised, and does it go evenly?

use super::Finding;
use config::Settings;
use std::{
    fs, io,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

const CLOCK: &str = "clock";

/// The wall clock and the monotonic clock may differ by this while the checks run.
const JUMP: Duration = Duration::from_millis(500);
/// Files of the future are a sign of a clock that was set back.
const FUTURE: Duration = Duration::from_secs(60);
/// A program that tells whether the clock is synchronised may take this long.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(3);

/// Both clocks at the begin of the checks.
pub(super) struct Watch {
    wall: SystemTime,
    monotonic: Instant,
}

impl Watch {
    pub(super) fn start() -> Self {
        Self { wall: SystemTime::now(), monotonic: Instant::now() }
    }

    /// Returns how far the wall clock has jumped, and whether forward.
    fn jump(&self) -> (Duration, bool) {
        self.jump_at(SystemTime::now(), Instant::now())
    }

    fn jump_at(&self, wall: SystemTime, monotonic: Instant) -> (Duration, bool) {
        let expected = self.wall + (monotonic - self.monotonic);
        match wall.duration_since(expected) {
            Ok(forward) => (forward, true),
            Err(back) => (back.duration(), false),
        }
    }
}

/// Checks the clock, with the time since the begin.
pub(super) fn check(begun: &Watch, settings: Option<&Settings>) -> Vec<Finding> {
    let mut findings = vec![synchronised(timedatectl(), chrony())];
    let (jump, is_forward) = begun.jump();
    if jump > JUMP {
        let way = if is_forward { "forward" } else { "back" };
        let seen =
            format!("the clock has jumped {way} by {:.1} s while this command ran", jump.as_secs_f64());
        findings.push(Finding::warning(CLOCK, seen, "let only one program set the clock, and let it slew"));
    }
    findings.extend(settings.and_then(|settings| in_the_future(&settings.data_dir)));
    findings
}

fn synchronised(timedatectl: Option<bool>, chrony: Option<bool>) -> Finding {
    match (timedatectl, chrony) {
        (Some(true), _) | (_, Some(true)) => Finding::ok(CLOCK, "it is synchronised"),
        (Some(false), _) | (_, Some(false)) => Finding::warning(
            CLOCK,
            "it is not synchronised: times of mail and of the log may be wrong, and certificates may seem to have expired",
            "start systemd-timesyncd or chrony",
        ),
        (None, None) => Finding::warning(
            CLOCK,
            "unknown whether it is synchronised: neither timedatectl nor chronyc says so",
            "in a container or virtual machine, check the host; else start systemd-timesyncd or chrony",
        ),
    }
}

fn timedatectl() -> Option<bool> {
    let said = output("timedatectl", &["show", "--property=NTPSynchronized", "--value"])?;
    match said.trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

fn chrony() -> Option<bool> {
    let said = output("chronyc", &["-n", "tracking"])?;
    let line = said.lines().find_map(|line| line.strip_prefix("Leap status"))?;
    Some(!line.contains("Not synchronised"))
}

/// Returns the standard output of a program that succeeds in time.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let until = Instant::now() + PROGRAM_TIMEOUT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break,
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
    let mut said = String::new();
    io::Read::read_to_string(child.stdout.as_mut()?, &mut said).ok()?;
    Some(said)
}

/// Finds files of the daemon that will be written only later, it seems.
fn in_the_future(data_dir: &Path) -> Option<Finding> {
    let now = SystemTime::now();
    let entries = fs::read_dir(data_dir).ok()?.flatten();
    let ahead = entries.filter_map(|entry| {
        let ahead = entry.metadata().ok()?.modified().ok()?.duration_since(now).ok()?;
        (ahead > FUTURE).then(|| (ahead, entry.path()))
    });
    let (ahead, path) = ahead.max()?;
    let seen = format!(
        "{} was written {} s later than now: the clock was set back",
        path.display(),
        ahead.as_secs()
    );
    Some(Finding::warning(
        CLOCK,
        seen,
        "set the clock; times in the queue and in the log come from the wrong clock",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn a_jump_is_the_difference_of_the_clocks() {
        let watch = Watch::start();
        let second = Duration::from_secs(1);
        let later = watch.monotonic + 10 * second;
        assert_eq!(watch.jump_at(watch.wall + 10 * second, later).0, Duration::ZERO);
        assert_eq!(watch.jump_at(watch.wall + 70 * second, later), (60 * second, true));
        assert_eq!(watch.jump_at(watch.wall + 5 * second, later), (5 * second, false));
    }

    #[test]
    fn a_clock_that_nobody_synchronises_is_a_warning() {
        for (said, level) in [
            ((Some(true), None), Level::Ok),
            ((None, Some(true)), Level::Ok),
            ((Some(false), Some(true)), Level::Ok),
            ((Some(false), None), Level::Warning),
            ((None, None), Level::Warning),
        ] {
            assert_eq!(synchronised(said.0, said.1).level, level, "{said:?}");
        }
    }

    #[test]
    fn files_of_the_future_are_found() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("now"), "x").unwrap();
        assert_eq!(in_the_future(dir.path()), None);
        let file = fs::File::create(dir.path().join("later")).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(3600)).unwrap();
        assert!(in_the_future(dir.path()).unwrap().seen.contains("later was written"));
    }
}
