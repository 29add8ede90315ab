//! Waits of a session: for an answer of the service, and for a deadline.

use crate::stream::Stream;
use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep};

/// The most octets that are read ahead while a session waits for an answer.
const READ_AHEAD_BYTES: usize = 64 * 1024;

/// The parts of a session that are used while it waits for an answer.
pub(super) struct Waiting<'a> {
    /// Replies that have to leave before.
    pub(super) output: &'a mut Vec<u8>,
    pub(super) transaction_ends: Option<Instant>,
    pub(super) stream: &'a mut Stream,
    pub(super) unread: &'a mut Vec<u8>,
    pub(super) sleep: &'a mut Pin<Box<Sleep>>,
}

impl Waiting<'_> {
    /// Waits for an answer; `None` when the time is over. What the client sends meanwhile is read, so that a
    /// connection that was reset is noticed; a client that has only ended its side still gets its replies.
    pub(super) async fn resolve<T>(
        self,
        mut answer: Pin<Box<dyn Future<Output = T> + Send + '_>>,
        limit: Duration,
    ) -> io::Result<Option<T>> {
        let Self { stream, unread, sleep, .. } = self;
        let deadline = Instant::now() + limit;
        let mut may_read = true;
        poll_fn(|cx| {
            if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                return Poll::Ready(Ok(Some(answer)));
            }
            while may_read && unread.len() < READ_AHEAD_BYTES {
                match stream.poll_read(cx, unread) {
                    Poll::Ready(read) => may_read = read? > 0,
                    Poll::Pending => break,
                }
            }
            poll_deadline(sleep, deadline, cx).map(|()| Ok(None))
        })
        .await
    }
}

/// Ready when the deadline has passed. The timer is reset only if it fires too early, so most waits never reset it.
pub(super) fn poll_deadline(
    sleep: &mut Pin<Box<Sleep>>,
    deadline: Instant,
    cx: &mut Context<'_>,
) -> Poll<()> {
    while sleep.as_mut().poll(cx).is_ready() {
        if Instant::now() >= deadline {
            return Poll::Ready(());
        }
        sleep.as_mut().reset(deadline);
    }
    if sleep.deadline() > deadline {
        sleep.as_mut().reset(deadline);
    }
    Poll::Pending
}
