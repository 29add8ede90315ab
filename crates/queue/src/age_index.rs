//! Messages by age: those that wait for their delay warning, and those that wait for their expiry.

use crate::{
    Millis,
    list::List,
    message::{NextDeadline, QueuedMessage},
    slab::Slab,
};

/// Two lists of messages, the oldest message of each in front.
#[derive(Debug, Default)]
pub(crate) struct AgeIndex {
    for_warning: List,
    for_expiry: List,
    /// A message was put behind a younger one: recovery reads messages in the order of the disk.
    is_disordered: bool,
}

impl AgeIndex {
    /// Moves a message to the end of a list.
    pub(crate) fn put(&mut self, messages: &mut Slab<QueuedMessage>, message: u32, deadline: NextDeadline) {
        self.take_out(messages, message);
        messages[message].next_deadline = deadline;
        let Some(list) = self.list(deadline) else { return };
        let last = list.tail();
        list.push_back(messages, message);
        self.is_disordered |= last.is_some_and(|last| messages[last].arrived > messages[message].arrived);
    }

    /// Lists a message for its expiry that was in no list. The expiry is most likely due.
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

    /// Moves all messages that wait for a delay warning to those that wait for their expiry.
    pub(crate) fn skip_warnings(&mut self, messages: &mut Slab<QueuedMessage>) {
        while let Some(message) = self.for_warning.head() {
            self.put(messages, message, NextDeadline::Expiry);
        }
    }

    /// Returns the oldest message that waits for its delay warning.
    pub(crate) fn first_for_warning(&self) -> Option<u32> {
        self.for_warning.head()
    }

    /// Returns the oldest message that waits for its expiry.
    pub(crate) fn first_for_expiry(&self) -> Option<u32> {
        self.for_expiry.head()
    }

    /// Returns the lengths of the two lists.
    pub(crate) fn counts(&self, messages: &Slab<QueuedMessage>) -> (usize, usize) {
        (self.for_warning.iter(messages).count(), self.for_expiry.iter(messages).count())
    }

    /// Sorts the lists by age, if a message came out of order.
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
