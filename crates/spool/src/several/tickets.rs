//! Which tickets of the stores a ticket of the whole covers.

use crate::{Durable, SpoolFailure, Ticket};
use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

pub(super) struct Tickets {
    last: u64,
    /// Of each store: ours and its own for the same transaction, until that is durable. What a store
    /// lets wait is bounded, and so are these.
    given: Vec<VecDeque<(Ticket, Ticket)>>,
}

impl Tickets {
    pub(super) fn new(store_count: usize) -> Self {
        Self { last: 0, given: vec![VecDeque::new(); store_count] }
    }

    /// Ours for one that a store gave.
    pub(super) fn give(&mut self, home: usize, own: Ticket) -> Ticket {
        self.last += 1;
        self.given[home].push_back((Ticket(self.last), own));
        Ticket(self.last)
    }

    /// Lets go of those at the front that are durable.
    pub(super) fn forget(&mut self, home: usize, is_durable: impl Fn(Ticket) -> bool) {
        let given = &mut self.given[home];
        while given.front().is_some_and(|(_, own)| is_durable(*own)) {
            given.pop_front();
        }
    }

    /// Of each store the last ticket that it gave up to this one of ours. Stores without one have made
    /// everything durable that came before it.
    pub(super) fn covered(&self, ticket: Ticket) -> Vec<(usize, Ticket)> {
        let last = |given: &VecDeque<(Ticket, Ticket)>| {
            let count = given.partition_point(|(ours, _)| *ours <= ticket);
            count.checked_sub(1).map(|at| given[at].1)
        };
        self.given.iter().enumerate().filter_map(|(home, given)| Some((home, last(given)?))).collect()
    }
}

/// Resolves when all have, or the first of them fails.
pub(super) struct All(pub(super) Vec<Durable>);

impl Future for All {
    type Output = Result<(), SpoolFailure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut failed = None;
        self.0.retain_mut(|wait| match wait.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => false,
            Poll::Ready(Err(failure)) => {
                failed.get_or_insert(failure);
                false
            }
        });
        match failed {
            Some(failure) => Poll::Ready(Err(failure)),
            None if self.0.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_covers_what_every_store_was_given_before_it() {
        let mut tickets = Tickets::new(2);
        let own = [(0, 5), (1, 7), (0, 6), (1, 9)];
        let ours = own.map(|(home, own)| tickets.give(home, Ticket(own)));
        assert_eq!(ours.map(|ticket| ticket.0), [1, 2, 3, 4]);
        assert_eq!(tickets.covered(ours[0]), [(0, Ticket(5))]);
        assert_eq!(tickets.covered(ours[2]), [(0, Ticket(6)), (1, Ticket(7))]);
        tickets.forget(0, |own| own <= Ticket(6));
        assert_eq!(tickets.covered(ours[3]), [(1, Ticket(9))]);
        tickets.forget(1, |own| own <= Ticket(7));
        assert_eq!((tickets.covered(ours[2]), tickets.covered(ours[3])), (vec![], vec![(1, Ticket(9))]));
    }
}
