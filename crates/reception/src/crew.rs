//! The runtimes that sessions live on.

use host::{Processors, ThreadTime};
use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::runtime::Handle;

/// So many sessions more than another the first may have, while processors are idle: one that has
/// several at hand is seldom woken in vain, and their mail shares commits; a few cannot fill it.
const COMPANY: usize = 16;
/// The same while all processors are busy, where another thread would only take turns with this one.
/// Those that come and go never are as many; of those that stay, not all are to wake one worker.
const BUSY_COMPANY: usize = 256;

/// Runtimes, one a core: a session stays on the one it began on, so that its data stays in that core's
/// cache and hardly anybody has to be woken. As few as are enough have sessions.
pub struct Crew {
    members: Vec<Member>,
    first: Mutex<First>,
}

#[derive(Debug)]
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

/// What the first has to know before it hands a session over.
struct First {
    time: Option<ThreadTime>,
    processors: Processors,
}

impl Crew {
    /// Connections are accepted on the first.
    ///
    /// # Panics
    /// Without any runtime.
    pub fn new(runtimes: impl IntoIterator<Item = Handle>) -> Self {
        let member = |runtime| Member { runtime, session_count: Arc::default() };
        let members: Vec<Member> = runtimes.into_iter().map(member).collect();
        assert!(!members.is_empty(), "sessions need a runtime");
        Self { members, first: Mutex::new(First { time: None, processors: Processors::new() }) }
    }

    /// Runs it on the first, or where the fewest sessions are. The first accepts, and all on it share
    /// wake-ups and commits; handing one over wakes another thread. Called by the first.
    pub(crate) fn run(&self, session: impl Future<Output = ()> + Send + 'static) {
        let counts = self.members.iter().map(|member| member.session_count.load(Ordering::Relaxed));
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let member = &self.members[first.choose(counts)];
        drop(first);
        member.session_count.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(member.session_count.clone());
        member.runtime.spawn(async move {
            let _counted = counted;
            session.await;
        });
    }
}

impl First {
    /// By the number of everybody's sessions.
    fn choose(&mut self, counts: impl Iterator<Item = usize> + Clone) -> usize {
        let own = counts.clone().next().unwrap_or(0);
        let Some((place, least)) = counts.enumerate().min_by_key(|(_, count)| *count) else { return 0 };
        let stays = own <= least || {
            let is_full = self.time.get_or_insert_default().is_full();
            stays(own, least, is_full, self.processors.are_busy())
        };
        if stays { 0 } else { place }
    }
}

/// Does a session stay on the first, which has more than another?
fn stays(own: usize, least: usize, is_full: bool, are_busy: bool) -> bool {
    !is_full && own < least + if are_busy { BUSY_COMPANY } else { COMPANY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_stay_together_until_one_thread_is_full_or_others_have_time() {
        let cases = [
            // own, least, full, busy
            (1, 0, false, false, true),
            (16, 0, false, false, false),
            (40, 25, false, false, true),
            (41, 25, false, false, false),
            (255, 0, false, true, true),
            (256, 0, false, true, false),
            (2, 1, true, false, false),
            (2, 1, true, true, false),
        ];
        for (own, least, is_full, are_busy, stay) in cases {
            assert_eq!(stays(own, least, is_full, are_busy), stay, "{own} {least} {is_full} {are_busy}");
        }
    }

    #[test]
    fn the_first_has_the_session_when_none_has_fewer() {
        let mut first = First { time: None, processors: Processors::new() };
        assert_eq!([first.choose([3, 3, 3].into_iter()), first.choose([3, 5].into_iter())], [0, 0]);
        assert!(first.time.is_none(), "nothing had to be looked at");
    }
}
