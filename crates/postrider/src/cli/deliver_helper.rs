//! The hidden command that the daemon starts for deliveries: the supervisor, the helper, and the writer of one message.

use super::{CliError, Ending, find_config, load_config};
use config::Purpose;
use control::Exit;
use delivery::helper::{ForwardJob, Job, Task, serve, supervise};
use mail::{Enhanced, Outcome};
use rustix::{net::sockopt::socket_type, process::geteuid};
use sandbox::{Identity, Rules};
use server::helper;
use std::{
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};
use tokio::signal::unix::{SignalKind, signal};

/// Serves the daemon at the other end of standard input, writes one message, or supervises the process that serves.
pub(super) fn run(serves: bool, is_writer: bool, explicit: Option<&Path>) -> Ending {
    let input = std::io::stdin().as_fd().try_clone_to_owned()?;
    if socket_type(&input) != Ok(rustix::net::SocketType::SEQPACKET) {
        let text = "the daemon starts this command; operators do not need it";
        return Err(CliError::new(Exit::Usage, text));
    }
    // Else `ps` and `top` show the name of the link that was executed: exe.
    let _ = rustix::thread::set_name(c"deliver-helper");
    if is_writer {
        return write(&input);
    }
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false);
    log.log_internal_errors(false).init();
    if geteuid().is_root() {
        // It becomes other users and ends their processes; files of root are none of its business.
        sandbox::keep_user_capabilities().map_err(|text| CliError::new(Exit::NoPerm, text))?;
    }
    // The daemon's end is that of both: its deliveries may take as long as those of the daemon.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _received: Vec<_> = {
        let _context = runtime.enter();
        let kinds = [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()];
        kinds.into_iter().map(signal).collect()
    };
    let source = find_config(explicit);
    if !serves {
        runtime.block_on(supervise(input, &helper::program(source.as_deref())))?;
        return Ok(Exit::Ok);
    }
    let load = || {
        let settings = load_config(source.as_deref(), Purpose::Ask).map_err(|error| error.text)?;
        Ok(helper::permitted(&settings))
    };
    let served = runtime.block_on(serve(input, load));
    // Programs that still run are killed: the daemon has ended, and delivers again.
    drop(runtime);
    served.map_err(|text| CliError::new(Exit::Unavailable, text))?;
    Ok(Exit::Ok)
}

/// Becomes the user of the task, and does it.
fn write(input: &OwnedFd) -> Ending {
    match Task::receive(input)? {
        (Task::Write(job), Some(content)) => {
            let outcome =
                match Identity::with_gid(&job.user, job.uid, job.gid).and_then(|own| confine(&own, &job)) {
                    Ok(()) => job.write(&content),
                    Err(text) => Outcome::deferred(Enhanced(4, 3, 0), text),
                };
            Job::answer(input, &outcome)?;
        }
        (Task::Write(_), None) => {}
        (Task::Forward(job), _) => {
            let own = Identity::with_gid(&job.user, job.uid, job.gid);
            let read = own.and_then(|own| sandbox::become_user(&own)).and_then(|()| job.read());
            ForwardJob::answer(input, &read)?;
        }
    }
    Ok(Exit::Ok)
}

/// Becomes the user, who may only write where mail is.
fn confine(identity: &Identity, job: &Job) -> Result<(), String> {
    sandbox::become_user(identity)?;
    let folder = sandbox::fixed_folder(&job.template);
    if folder.is_dir() {
        let write = [folder, "/dev/null".into()].into();
        // A kernel without Landlock has the permissions of the user all the same.
        sandbox::restrict(&Rules { write, ..Rules::default() })?;
    }
    Ok(())
}
