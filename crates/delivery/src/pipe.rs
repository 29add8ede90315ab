//! Delivery to a program: one process for each recipient, without a shell, with a clean environment and a time limit.

mod arguments;
mod exit;

use crate::{
    helper::{memory_file, seal},
    local::{ContentSource, Parcel},
    maildir::{PIECES_AHEAD, UnixLines},
};
use arguments::arguments;
pub use arguments::{can_run, command_line};
use bytes::Bytes;
use mail::{Enhanced, Outcome, Program};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    ffi::OsStr,
    fs::File,
    io::{self, BufWriter, Seek as _, Write as _},
    process::Stdio,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, Command},
    sync::mpsc,
    time::timeout,
};

/// Octets of the output that are kept; the rest is read and thrown away.
const OUTPUT_MAX_BYTES: usize = 4096;
/// Time for the end of the output once the program has ended: its own children may have it open.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);
/// All that programs get: they inherit no variable of the daemon.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Delivers a message to one recipient.
pub(crate) async fn deliver<S: ContentSource>(program: &Program, parcel: &Parcel<'_, S>) -> Outcome {
    let name = program.name();
    if program.argv.is_empty() {
        let text =
            "the alias names a program or file that `addresses.programs` or `addresses.files` does not have";
        return Outcome::deferred(Enhanced(4, 3, 5), text);
    }
    if let Err(text) = refuse_root(program) {
        return Outcome::deferred(Enhanced(4, 3, 5), text);
    }
    let mut command = match command(program, parcel) {
        Ok(command) => command,
        Err(outcome) => return outcome,
    };
    match whole_input(parcel).await {
        Ok(input) => command.stdin(input),
        Err(outcome) => return outcome,
    };
    let (mut child, group) = match start(command) {
        Ok(begun) => begun,
        Err(e) => return Outcome::deferred(Enhanced(4, 3, 5), format!("start the program {name}: {e}")),
    };
    match timeout(program.time_limit, converse(&mut child)).await {
        Ok(Ok((code, output))) => {
            group.ended();
            exit::outcome(name, code, &output)
        }
        Ok(Err(outcome)) => outcome,
        Err(_) => {
            let text = format!("the program {name} did not end within {:?}", program.time_limit);
            Outcome::deferred(Enhanced(4, 3, 0), text)
        }
    }
}

/// Refuses a program that would have the rights of this process, if that is root.
fn refuse_root(program: &Program) -> Result<(), String> {
    if program.user.is_none() && rustix::process::geteuid().is_root() {
        return Err(format!("the program {} would run as root: set `user`", program.name()));
    }
    Ok(())
}

/// Runs a program with these arguments behind its own, and nothing at its standard input.
///
/// # Errors
/// It would run as root, cannot be started, takes too long, or does not end with 0.
pub(crate) async fn call(program: &Program, arguments: &[String]) -> Result<(), String> {
    let name = program.name();
    refuse_root(program)?;
    let mut argv = program.argv.iter().map(|argument| argument.as_str().to_owned());
    let Some(first) = argv.next() else { return Err("a program without a name".to_owned()) };
    let mut command = command_of(&first, program);
    command.args(argv).args(arguments).stdin(Stdio::null());
    let (mut child, group) = start(command).map_err(|e| format!("start the program {name}: {e}"))?;
    let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
        unreachable!("both are pipes");
    };
    let (mut said, mut complained) = (Vec::new(), Vec::new());
    let work = async {
        let status = child.wait().await;
        // Its own children may have the output open.
        let reading = async { tokio::join!(read(output, &mut said), read(errors, &mut complained)) };
        let _ = timeout(OUTPUT_TIMEOUT, reading).await;
        status
    };
    let ended = timeout(program.time_limit, work).await;
    let ended =
        ended.map_err(|_| format!("the program {name} did not end within {:?}", program.time_limit))?;
    let status = ended.map_err(|e| format!("wait for the program {name}: {e}"))?;
    if status.success() {
        group.ended();
        return Ok(());
    }
    said.extend_from_slice(&complained);
    let text = String::from_utf8_lossy(&said);
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it says nothing");
    Err(format!("the program {name} ended with {status}: {last}"))
}

/// The processes of a program. They are killed when this is dropped, unless the program has ended by itself.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

fn command<S: ContentSource>(program: &Program, parcel: &Parcel<'_, S>) -> Result<Command, Outcome> {
    let (argv, environment) = arguments(program, parcel)?;
    let Some((first, rest)) = argv.split_first() else {
        return Err(Outcome::deferred(Enhanced(4, 3, 5), "a program without a name"));
    };
    let mut command = command_of(first, program);
    command.args(rest).envs(environment);
    Ok(command)
}

/// Begins the command of a program, with the user and the environment of all.
fn command_of(first: impl AsRef<OsStr>, program: &Program) -> Command {
    let mut command = Command::new(first);
    command.env_clear().env("PATH", PATH).current_dir("/");
    if let Some(user) = &program.user {
        let name = &*user.name;
        command.env("USER", name).env("LOGNAME", name).env("HOME", &*user.home).gid(user.gid).uid(user.uid);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own, so that the children of the program end with it; the process itself in any case.
    command.process_group(0).kill_on_drop(true);
    command
}

fn start(mut command: Command) -> std::io::Result<(Child, ProcessGroup)> {
    let child = command.spawn()?;
    let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    Ok((child, ProcessGroup(leader)))
}

/// Reads what the program prints, until it ends. Returns its exit code, none after a signal.
///
/// # Errors
/// The program cannot be waited for.
async fn converse(child: &mut Child) -> Result<(Option<i32>, Vec<u8>), Outcome> {
    let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
        unreachable!("both are pipes");
    };
    let (mut said, mut complained) = (Vec::new(), Vec::new());
    let code = {
        let reading = async {
            tokio::join!(read(output, &mut said), read(errors, &mut complained));
        };
        let work = async {
            let ended = child.wait().await;
            ended
                .map(|status| status.code())
                .map_err(|e| Outcome::deferred(Enhanced(4, 3, 0), format!("wait for the program: {e}")))
        };
        let (mut reading, mut work) = (std::pin::pin!(reading), std::pin::pin!(work));
        tokio::select! {
            code = &mut work => {
                let code = code?;
                let _ = timeout(OUTPUT_TIMEOUT, reading).await;
                code
            }
            () = &mut reading => work.await?,
        }
    };
    said.extend_from_slice(&complained);
    Ok((code, said))
}

/// Returns a file in memory with the whole message. With a pipe, a program would take a part of the message for all of it if this process
/// was killed meanwhile.
async fn whole_input<S: ContentSource>(parcel: &Parcel<'_, S>) -> Result<File, Outcome> {
    let (pieces, inlet) = mpsc::channel(PIECES_AHEAD);
    let head = parcel.head();
    let (sent, written) = tokio::join!(parcel.content.send_pieces(pieces), write(&head, inlet));
    sent?;
    written
        .map_err(|e| Outcome::deferred(Enhanced(4, 3, 0), format!("copy the message for the program: {e}")))
}

async fn write(head: &str, mut pieces: mpsc::Receiver<Option<Bytes>>) -> io::Result<File> {
    let (mut file, mut lines) = (BufWriter::new(memory_file()?), UnixLines::default());
    file.write_all(head.as_bytes())?;
    loop {
        match pieces.recv().await {
            Some(Some(piece)) => lines.write(&piece, &mut file)?,
            Some(None) => break,
            None => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the content could not be read"));
            }
        }
    }
    lines.finish(&mut file)?;
    let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    seal(&file)?;
    file.rewind()?;
    Ok(file)
}

/// Reads to the end, and keeps the beginning.
async fn read(mut from: impl AsyncRead + Unpin, kept: &mut Vec<u8>) {
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let room = OUTPUT_MAX_BYTES - kept.len();
        kept.extend_from_slice(&buffer[..count.min(room)]);
    }
}
