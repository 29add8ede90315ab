//! Work on several threads whose results are taken one after the other, as if one had done it.

use crate::SpoolFailure;
use std::{
    any::Any,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

/// Returns the number of threads that read at a start, unless one is configured: one a processor, eight at most,
/// since
/// all of them wait for one disk.
pub(crate) fn default_threads() -> usize {
    thread::available_parallelism().map_or(1, |count| count.get().min(8))
}

/// Starts a thread that works by itself. If `run` panics, the thread calls `on_panic` with the reason: other
/// threads wait for what this one does, and must learn that it does nothing more.
pub(crate) fn start_thread(
    name: &str,
    run: impl FnOnce() + Send + 'static,
    on_panic: impl FnOnce(SpoolFailure) + Send + 'static,
) -> Result<thread::JoinHandle<()>, SpoolFailure> {
    let own_name = name.to_owned();
    let started = thread::Builder::new().name(name.to_owned()).spawn(move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            on_panic(SpoolFailure::Io(format!("the {own_name} thread panicked: {}", panic_text(&*panic))));
        }
    });
    started.map_err(|e| SpoolFailure::Io(format!("start the {name} thread: {e}")))
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// State that the threads and the consumer share.
struct OrderedResults<R> {
    state: Mutex<State<R>>,
    wakeup: Condvar,
}

struct State<R> {
    /// Index of the next item that a thread may begin.
    next: usize,
    /// Items before this index were taken by the consumer.
    taken: usize,
    done: BTreeMap<usize, R>,
    /// A thread has panicked, or the consumer wants no more.
    is_over: bool,
}

impl<R> OrderedResults<R> {
    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next item, once not too many results wait; none when there is no more to do.
    fn begin(&self, count: usize, ahead: usize) -> Option<usize> {
        let mut state = self.lock();
        while !state.is_over && state.next < count && state.next >= state.taken + ahead {
            state = self.wakeup.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_over || state.next >= count {
            return None;
        }
        state.next += 1;
        Some(state.next - 1)
    }

    fn end(&self, number: usize, result: R) {
        self.lock().done.insert(number, result);
        self.wakeup.notify_all();
    }

    fn take(&self, number: usize) -> Option<R> {
        let mut state = self.lock();
        loop {
            if let Some(result) = state.done.remove(&number) {
                state.taken = number + 1;
                drop(state);
                self.wakeup.notify_all();
                return Some(result);
            }
            if state.is_over {
                return None;
            }
            state = self.wakeup.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn stop(&self) {
        self.lock().is_over = true;
        self.wakeup.notify_all();
    }
}

/// Tells the consumer when a thread panics, and the threads when the consumer returns early.
struct Stop<'a, R>(&'a OrderedResults<R>, bool);

impl<R> Drop for Stop<'_, R> {
    fn drop(&mut self) {
        if self.1 || thread::panicking() {
            self.0.stop();
        }
    }
}

/// Does `work` on each item and passes what comes of it to `take`, in the order of the items, on the
/// caller's thread. At most two results a thread wait for it. One thread is none besides the caller's.
///
/// # Errors
/// The first of `take`; what is under way is finished and thrown away.
pub(crate) fn in_order<T: Sync, R: Send, E>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
    mut take: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    let threads = threads.min(items.len());
    if threads <= 1 {
        return items.iter().try_for_each(|item| take(work(item)));
    }
    let state = State { next: 0, taken: 0, done: BTreeMap::new(), is_over: false };
    let results = OrderedResults { state: Mutex::new(state), wakeup: Condvar::new() };
    let run = || {
        let _stop = Stop(&results, false);
        while let Some(number) = results.begin(items.len(), 2 * threads) {
            results.end(number, work(&items[number]));
        }
    };
    thread::scope(|scope| {
        let _stop = Stop(&results, true);
        let spawned: Vec<_> = (0..threads)
            .map(|_| thread::Builder::new().name("spool-read".to_owned()).spawn_scoped(scope, run))
            .collect();
        // Not even one: the caller does it.
        if spawned.iter().all(Result::is_err) {
            return items.iter().try_for_each(|item| take(work(item)));
        }
        for number in 0..items.len() {
            let Some(result) = results.take(number) else { break };
            take(result)?;
        }
        for thread in spawned.into_iter().flatten() {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_an_error_ends_it() {
        let items: Vec<u64> = (0..500).collect();
        for threads in [1, 2, 5] {
            let mut seen = Vec::new();
            let double = |n: &u64| {
                if n.is_multiple_of(7) {
                    thread::yield_now();
                }
                n * 2
            };
            let all = in_order(threads, &items, double, |n| {
                seen.push(n);
                Ok::<(), ()>(())
            });
            assert!(all.is_ok() && seen.iter().copied().eq((0..500).map(|n| n * 2)));
            let ended = in_order(threads, &items, double, |n| if n < 100 { Ok(()) } else { Err(n) });
            assert_eq!(ended, Err(100));
        }
        assert_eq!(in_order(3, &[] as &[u64], |n| *n, |_| Ok::<(), ()>(())), Ok(()));
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        let work = |n: &u64| assert!(*n != 40, "forty");
        let items: Vec<u64> = (0..100).collect();
        let run = || in_order(2, &items, work, |()| Ok::<(), ()>(()));
        assert!(std::panic::catch_unwind(run).is_err());
    }
}
