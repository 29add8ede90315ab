//! The order and the times of messages. Messages are numbered; a number is its ticket, and at an open-loop rate
//! it says when the message is due, whether a session was free by then or not.

use super::{
    arrivals::{Arrivals, Shape},
    live::LiveTimes,
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// A message that a session may send now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) number: u64,
    /// The time from which the message counts, even if it begins later: a slow server delays the messages behind, and
    /// that is part of what their senders would feel (coordinated omission).
    pub(crate) due: Option<Instant>,
}

/// All messages of a run; shared by the loops.
#[derive(Debug)]
pub struct Plan {
    count: u64,
    begin: Instant,
    /// If messages come at times of their own.
    arrivals: Option<Arrivals>,
    /// No message begins, or is due, later than this after the begin.
    duration: Option<Duration>,
    next: AtomicU64,
    done: AtomicU64,
    stopped: AtomicBool,
    /// Number of messages between two marks; 0: no marks.
    every: u64,
    marks: Mutex<Vec<Duration>>,
    live: Arc<LiveTimes>,
}

/// Later than any run.
const FAR: Duration = Duration::from_secs(100 * 365 * 86400);

impl Plan {
    /// Returns a plan of `count` messages that begin at `begin`, at this rate a second if there is one.
    pub fn new(count: u64, rate: Option<f64>, begin: Instant) -> Self {
        Self {
            count,
            begin,
            arrivals: rate.map(|rate| Arrivals::new(Shape::Constant, rate, count, None)),
            duration: None,
            next: AtomicU64::new(0),
            done: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            every: 0,
            marks: Mutex::default(),
            live: Arc::default(),
        }
    }

    /// Gives messages times of their own.
    pub(crate) fn arriving(self, arrivals: Option<Arrivals>) -> Self {
        Self { arrivals, ..self }
    }

    /// Ends the plan after this time.
    pub(crate) fn lasting(self, duration: Option<Duration>) -> Self {
        Self { duration, ..self }
    }

    /// Remembers when each further `every` messages were done.
    pub fn marking(self, every: u64) -> Self {
        Self { every, ..self }
    }

    /// Returns the times of the marks, from the begin.
    pub fn marks(&self) -> Vec<Duration> {
        self.marks.lock().map(|marks| marks.clone()).unwrap_or_default()
    }

    /// Returns the times of recent messages, for the live view.
    pub(crate) fn live(&self) -> &Arc<LiveTimes> {
        &self.live
    }

    /// Returns the time at which the run began.
    pub fn begin(&self) -> Instant {
        self.begin
    }

    /// The next ticket; none when all are taken, or the run was stopped.
    pub(crate) fn take(&self) -> Option<Ticket> {
        if self.stopped.load(Relaxed) || crate::signals::is_stopped() || self.next.load(Relaxed) >= self.count
        {
            return None;
        }
        let number = self.next.fetch_add(1, Relaxed);
        let after = self.arrivals.as_ref().map(|arrivals| arrivals.due(number));
        let at = || after.unwrap_or_else(|| self.begin.elapsed());
        if number >= self.count || self.duration.is_some_and(|duration| at() >= duration) {
            // Later ones are due later still.
            self.next.store(self.count, Relaxed);
            return None;
        }
        // What no clock can show is never due.
        let due = after.map(|after| self.begin.checked_add(after).unwrap_or_else(|| self.begin + FAR));
        Some(Ticket { number, due })
    }

    /// A message was taken or failed; how many were so far.
    pub(crate) fn done(&self) -> u64 {
        let done = self.done.fetch_add(1, Relaxed) + 1;
        if self.every > 0
            && done.is_multiple_of(self.every)
            && let Ok(mut marks) = self.marks.lock()
        {
            marks.push(self.begin.elapsed());
        }
        done
    }

    /// Returns the number of messages that are done, and the number of all.
    pub fn progress(&self) -> (u64, u64) {
        (self.done.load(Relaxed), self.count)
    }

    /// No further ticket is given; messages that have begun go on to their end.
    pub fn close(&self) {
        self.next.store(self.count, Relaxed);
    }

    /// No further ticket is given, and messages that have begun are given up.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// Was it stopped before its end?
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_due_at_the_rate_whoever_takes_them_when() {
        let begin = Instant::now();
        let plan = Plan::new(3, Some(10.0), begin);
        let due: Vec<_> = std::iter::from_fn(|| plan.take()).map(|t| t.due.unwrap() - begin).collect();
        assert_eq!(due, [0, 100, 200].map(Duration::from_millis));
        assert_eq!(plan.take(), None);
    }

    #[test]
    fn a_plan_ends_with_its_duration_in_both_loops() {
        let begin = Instant::now();
        let plan = Plan::new(u64::MAX, Some(10.0), begin).lasting(Some(Duration::from_secs(1)));
        assert_eq!(std::iter::from_fn(|| plan.take()).count(), 10);
        let closed = Plan::new(u64::MAX, None, begin).lasting(Some(Duration::from_secs(3600)));
        assert!(closed.take().is_some());
        let over = Plan::new(u64::MAX, None, begin).lasting(Some(Duration::from_nanos(1)));
        assert_eq!((over.take(), over.take()), (None, None));
    }

    #[test]
    fn marks_are_made_of_each_further_few() {
        let plan = Plan::new(5, None, Instant::now()).marking(2);
        assert_eq!((0..5).map(|_| plan.done()).last(), Some(5));
        assert_eq!(plan.marks().len(), 2);
    }

    #[test]
    fn a_closed_plan_gives_no_tickets_and_is_not_stopped() {
        let plan = Plan::new(3, None, Instant::now());
        assert!(plan.take().is_some());
        plan.close();
        assert_eq!((plan.take(), plan.take(), plan.is_stopped()), (None, None, false));
    }

    #[test]
    fn a_stopped_plan_gives_no_tickets() {
        let plan = Plan::new(3, None, Instant::now());
        assert_eq!(plan.take(), Some(Ticket { number: 0, due: None }));
        plan.stop();
        assert_eq!(plan.take(), None);
    }
}
