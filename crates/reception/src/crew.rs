//! The runtimes that sessions live on.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::runtime::Handle;

/// Runtimes, one a core. A session stays on the one it began on, so that its data stays in that core's
/// cache and hardly anybody has to be woken; as few of them as are enough have sessions.
pub struct Crew {
    members: Vec<Member>,
    should_share: Box<dyn Fn() -> bool + Send + Sync>,
}

struct Member {
    runtime: Handle,
    session_count: Arc<AtomicUsize>,
}

/// One session on a member, until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Crew {
    /// Connections are accepted on the first. `should_share` is asked on a member's own thread: has it
    /// hardly any time left, and is there a processor for another?
    ///
    /// # Panics
    /// Without any runtime.
    pub fn new(
        runtimes: impl IntoIterator<Item = Handle>,
        should_share: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        let member = |runtime| Member { runtime, session_count: Arc::default() };
        let members: Vec<Member> = runtimes.into_iter().map(member).collect();
        assert!(!members.is_empty(), "sessions need a runtime");
        Arc::new(Self { members, should_share: Box::new(should_share) })
    }

    /// Where a session begins that was accepted on the first.
    pub(crate) fn first_place(&self) -> usize {
        self.better_than(0, 1).unwrap_or(0)
    }

    /// Where a session should rather be than on the member that asks, which has so many `more` than are
    /// counted.
    pub(crate) fn better_than(&self, place: usize, more: usize) -> Option<usize> {
        if self.members.len() == 1 || !(self.should_share)() {
            return None;
        }
        let count = |place: usize| self.members[place].session_count.load(Ordering::Relaxed);
        let least = (0..self.members.len()).min_by_key(|place| count(*place))?;
        // Equal is good enough: with one more there than here, the next would come back.
        (count(least) + 1 < count(place) + more).then_some(least)
    }

    /// Runs a session on a member.
    pub(crate) fn run(&self, place: usize, session: impl Future<Output = ()> + Send + 'static) {
        let member = &self.members[place];
        member.session_count.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(member.session_count.clone());
        member.runtime.spawn(async move {
            let _counted = counted;
            session.await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn sessions_stay_together_until_their_thread_has_no_time_left() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let is_full = Arc::new(AtomicBool::new(false));
        let told = is_full.clone();
        let crew = Crew::new(vec![runtime.handle().clone(); 3], move || told.load(Ordering::Relaxed));
        for _ in 0..6 {
            assert_eq!(crew.first_place(), 0);
            crew.run(0, std::future::pending());
        }
        is_full.store(true, Ordering::Relaxed);
        assert_eq!((crew.first_place(), crew.better_than(0, 0)), (1, Some(1)));
        for place in [1, 1, 2, 2, 2, 2, 2] {
            crew.run(place, std::future::pending());
        }
        assert_eq!(
            (crew.better_than(0, 0), crew.better_than(2, 0), crew.better_than(1, 0)),
            (Some(1), Some(1), None)
        );
    }

    #[test]
    fn sessions_that_ended_count_no_more() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let crew = Crew::new(vec![runtime.handle().clone(); 2], || true);
        crew.run(0, std::future::ready(()));
        crew.run(0, std::future::ready(()));
        assert_eq!(crew.better_than(0, 0), Some(1));
        runtime.block_on(tokio::task::yield_now());
        assert_eq!(crew.better_than(0, 0), None);
    }
}
