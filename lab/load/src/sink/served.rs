//! A sink that serves in this process.

use super::{Sink, SinkArgs, SinkState};
use std::{
    sync::Arc,
    thread::{self, JoinHandle},
};

/// A sink in a thread of this process, for measurements and tests.
#[derive(Debug)]
pub struct Served {
    /// What it has counted so far.
    pub sink_state: Arc<SinkState>,
    /// Where it listens, with its real port.
    pub address: String,
    thread: JoinHandle<Result<(), String>>,
}

impl Served {
    /// Starts a sink on the address of `args`; port 0 is a free one.
    ///
    /// # Errors
    /// The sink cannot listen.
    pub fn start(args: &SinkArgs) -> Result<Self, String> {
        let sink = Sink::open(args)?;
        let (sink_state, address) = (sink.state(), sink.address()?);
        let (model, threads) = (args.model, args.threads.map(usize::from));
        let thread = thread::spawn(move || sink.serve(model, threads));
        Ok(Self { sink_state, address, thread })
    }

    /// Stops the sink, and waits for its end.
    ///
    /// # Errors
    /// The sink failed.
    pub fn stop(self) -> Result<(), String> {
        self.sink_state.stop();
        let ended = self.thread.join().unwrap_or_else(|_| Err("the sink panicked".into()));
        self.sink_state.close_store();
        ended
    }
}
