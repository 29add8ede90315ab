//! Ctrl-C and SIGTERM: what was measured so far is kept.

use tokio::signal::unix::{SignalKind, signal};

/// Calls `end` at the first signal; a second one ends the process at once.
pub(crate) fn on_end(end: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("watch for signals: {e}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt()).map_err(failed)?, signal(SignalKind::terminate()).map_err(failed)?)
    };
    std::thread::spawn(move || {
        let next = async || tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} };
        let mut next = next;
        runtime.block_on(next());
        end();
        runtime.block_on(next());
        std::process::exit(130);
    });
    Ok(())
}
