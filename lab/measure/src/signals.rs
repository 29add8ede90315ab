//! Ctrl-C, SIGTERM and SIGHUP: what was measured so far is kept, and the exit code is [`STOPPED`].

use std::{
    io,
    process::{Child, ExitStatus},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};
use tokio::signal::unix::{SignalKind, signal};

/// The exit code of a command that a signal stopped: 128 and the number of SIGINT, as shells show it, for SIGTERM too.
pub const STOPPED: u8 = 130;

/// Set at the first signal.
static IS_STOPPED: AtomicBool = AtomicBool::new(false);

/// Did a signal stop the command?
pub fn is_stopped() -> bool {
    IS_STOPPED.load(Relaxed)
}

/// Signals within this time after the first are the same request: `timeout` sends SIGTERM to a process and to its group, and
/// whoever started the process passes on what it got itself.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// Returns true if the program was started to go on after its terminal (nohup(1)).
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or_default();
    // Signal 1 is the lowest bit (proc_pid_status(5)).
    u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 1 == 1)
}

/// Calls `end` at the first signal; one more than a second later ends the process at once.
pub fn on_end(end: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("watch for signals: {e}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    // One of nohup stays ignored: a handler of ours would replace that.
    let hangup = if is_hangup_ignored() { SignalKind::terminate() } else { SignalKind::hangup() };
    let (mut interrupt, mut terminate, mut hangup) = {
        let _entered = runtime.enter();
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), hangup].map(signal);
        (interrupt.map_err(failed)?, terminate.map_err(failed)?, hangup.map_err(failed)?)
    };
    std::thread::spawn(move || {
        let next = async || {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {}, _ = hangup.recv() => {} }
        };
        let mut next = next;
        runtime.block_on(next());
        IS_STOPPED.store(true, Relaxed);
        end();
        runtime.block_on(async {
            let _ = tokio::time::timeout(SAME_REQUEST, async {
                loop {
                    next().await;
                }
            })
            .await;
            next().await;
        });
        std::process::exit(STOPPED.into());
    });
    Ok(())
}

/// Asks a program of ours to end, as Ctrl-C does.
pub fn end(child: &Child) {
    if let Some(pid) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
        // It may be gone already.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

/// Between two looks at whether a program has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Waits for a program of ours. Ctrl-C reaches it with us, SIGTERM only us: once `stop` says so, it is asked to end.
pub fn wait(child: &mut Child, stop: &AtomicBool) -> io::Result<ExitStatus> {
    let mut is_told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if stop.load(Relaxed) && !std::mem::replace(&mut is_told, true) {
            end(child);
        }
        thread::sleep(LOOK);
    }
}
