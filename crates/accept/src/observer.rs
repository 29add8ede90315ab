//! What an observer sees of the checks, for `postrider test`.

use policy::{Stage, Trace};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Notes what checks find. Without an observer, nothing is noted.
#[derive(Default)]
pub struct Observer(Mutex<Observed>);

#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// Rules of the evaluation that is under way, with what was found.
    rules: Vec<(String, String)>,
    /// Lines of stages that are over: stage, what, and what was found.
    lines: Vec<(Stage, String, String)>,
    stage: Option<Stage>,
}

impl Observer {
    /// Calls a function with what was observed so far.
    pub(crate) fn with<T>(&self, use_it: impl FnOnce(&mut Observed) -> T) -> T {
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns what was observed: stage, what, and what was found.
    pub fn take(&self) -> Vec<(Stage, String, String)> {
        self.with(|observed| std::mem::take(&mut observed.lines))
    }
}

impl Observed {
    /// Notes what a check found.
    pub(crate) fn note(&mut self, stage: Stage, what: String, text: String) {
        self.lines.push((stage, what, text));
    }

    /// Ends the evaluation that is under way: its rules are what is shown.
    pub(crate) fn keep(&mut self) {
        if let Some(stage) = self.stage.take() {
            self.lines.extend(self.rules.drain(..).map(|(place, text)| (stage, place, text)));
        }
    }
}

impl Trace for &mut Observed {
    const IS_ON: bool = true;

    fn begin(&mut self, stage: Stage) {
        self.stage = Some(stage);
        self.rules.clear();
    }

    fn judged(&mut self, place: &str, text: &str) {
        self.rules.push((place.to_owned(), text.to_owned()));
    }
}

/// `120 µs`, `3 ms`.
pub fn duration(took: Duration) -> String {
    match took.as_micros() {
        us @ ..1000 => format!("{us} µs"),
        us => format!("{} ms", us / 1000),
    }
}
