//! Messages by age: those that wait for their delay warning, and those that wait for their expiry.

use crate::{
    Millis,
    list::List,
    message::{NextDeadline, QueuedMessage},
    slab::Slab,
};

/// Two lists, the oldest message of each in front.
#[derive(Debug, Default)]
pub(crate) struct AgeIndex {
    for_warning: List,
    for_expiry: List,
    /// A message came behind a younger one: recovery reads what the disk has first.
    is_disordered: bool,
}

impl AgeIndex {
    /// Moves a message to the end of a list, where the youngest are.
    pub(crate) fn put(&mut self, messages: &mut Slab<QueuedMessage>, message: u32, deadline: NextDeadline) {
        self.take_out(messages, message);
        messages[message].next_deadline = deadline;
        let Some(list) = self.list(deadline) else { return };
        let last = list.tail();
        list.push_back(messages, message);
        self.is_disordered |= last.is_some_and(|last| messages[last].arrived > messages[message].arrived);
    }

    /// A message that was in no list waits for its expiry again, which is most likely over.
    pub(crate) fn put_for_expiry(&mut self, messages: &mut Slab<QueuedMessage>, message: u32) {
        messages[message].next_deadline = NextDeadline::Expiry;
        let first = self.for_expiry.head();
        self.for_expiry.push_front(messages, message);
        self.is_disordered |= first.is_some_and(|first| messages[first].arrived < messages[message].arrived);
    }

    fn take_out(&mut self, messages: &mut Slab<QueuedMessage>, message: u32) {
        if let Some(list) = self.list(messages[message].next_deadline) {
            list.remove(messages, message);
        }
    }

    fn list(&mut self, deadline: NextDeadline) -> Option<&mut List> {
        match deadline {
            NextDeadline::Warning => Some(&mut self.for_warning),
            NextDeadline::Expiry => Some(&mut self.for_expiry),
            NextDeadline::None => None,
        }
    }

    /// Nobody is to be told of a delay any more.
    pub(crate) fn skip_warnings(&mut self, messages: &mut Slab<QueuedMessage>) {
        while let Some(message) = self.for_warning.head() {
            self.put(messages, message, NextDeadline::Expiry);
        }
    }

    /// The oldest of those that wait for their delay warning.
    pub(crate) fn first_for_warning(&self) -> Option<u32> {
        self.for_warning.head()
    }

    /// The oldest of those that wait for their expiry.
    pub(crate) fn first_for_expiry(&self) -> Option<u32> {
        self.for_expiry.head()
    }

    /// How many messages are in each list.
    pub(crate) fn counts(&self, messages: &Slab<QueuedMessage>) -> (usize, usize) {
        (self.for_warning.iter(messages).count(), self.for_expiry.iter(messages).count())
    }

    /// The oldest first, whatever came when. Costs nothing unless something came late.
    pub(crate) fn sort(&mut self, messages: &mut Slab<QueuedMessage>) {
        if !std::mem::take(&mut self.is_disordered) {
            return;
        }
        for list in [&mut self.for_warning, &mut self.for_expiry] {
            let mut all: Vec<(Millis, u32)> = Vec::new();
            while let Some(message) = list.pop_front(messages) {
                all.push((messages[message].arrived, message));
            }
            all.sort_unstable();
            all.iter().for_each(|(_, message)| list.push_back(messages, *message));
        }
    }
}
