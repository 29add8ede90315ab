//! The runtimes that sessions live on.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::runtime::Handle;

/// Runtimes, one a core: a session stays on the one it began on, so that its data stays in that core's
/// cache and hardly anybody has to be woken.
#[derive(Debug)]
pub struct Crew(Vec<Member>);

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

impl Crew {
    /// Connections are accepted on the first.
    ///
    /// # Panics
    /// Without any runtime.
    pub fn new(runtimes: impl IntoIterator<Item = Handle>) -> Self {
        let member = |runtime| Member { runtime, session_count: Arc::default() };
        let members: Vec<Member> = runtimes.into_iter().map(member).collect();
        assert!(!members.is_empty(), "sessions need a runtime");
        Self(members)
    }

    /// Runs it where the fewest sessions are. Handing one over wakes another thread, so that one more
    /// may stay where it was accepted: a client that comes again at once, while its last session ends,
    /// meets the same worker.
    pub(crate) fn run(&self, session: impl Future<Output = ()> + Send + 'static) {
        let count = |(place, member): &(usize, &Member)| {
            member.session_count.load(Ordering::Relaxed).saturating_sub(usize::from(*place == 0))
        };
        let Some((_, member)) = self.0.iter().enumerate().min_by_key(count) else { return };
        member.session_count.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(member.session_count.clone());
        member.runtime.spawn(async move {
            let _counted = counted;
            session.await;
        });
    }
}
