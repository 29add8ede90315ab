//! Work of later steps that goes on beside the test programs, most of which wait: cargo compiles at the lowest priority. The
//! step itself runs the same command again, and has the results and the messages from cargo's cache.

use crate::shell::{as_first_build, cargo_program, program};
use std::{
    process::Stdio,
    thread::{self, JoinHandle},
};

/// Commands of cargo that run one after the other in the background, once they were started. The value waits for their end when it
/// is dropped.
pub(crate) struct Ahead {
    commands: &'static [&'static [&'static str]],
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    pub(crate) fn new(commands: &'static [&'static [&'static str]]) -> Self {
        Self { commands, thread: None }
    }

    /// Starts the first command.
    pub(crate) fn start(&mut self) {
        let commands = self.commands;
        self.thread.get_or_insert_with(|| thread::spawn(|| commands.iter().for_each(|command| run(command))));
    }
}

fn run(arguments: &[&str]) {
    let mut command = program("nice");
    command.args(["-n", "19"]).arg(cargo_program()).args(arguments);
    as_first_build(&mut command);
    // A failure is reported by the step that runs the command again.
    let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
