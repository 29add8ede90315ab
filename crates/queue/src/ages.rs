//! Messages by age: those that wait for their delay warning, and those that wait for their expiry.

use crate::{
    Millis,
    list::List,
    message::{Age, Entry},
    slab::Slab,
};

/// Two lists, the oldest message of each in front.
#[derive(Debug, Default)]
pub(crate) struct Ages {
    young: List,
    old: List,
    /// A message came behind a younger one: recovery reads what the disk has first.
    is_disordered: bool,
}

impl Ages {
    /// Moves a message to the end of a list, where the youngest are.
    pub(crate) fn put(&mut self, messages: &mut Slab<Entry>, message: u32, age: Age) {
        self.take_out(messages, message);
        messages[message].age = age;
        let Some(list) = self.list(age) else { return };
        let last = list.tail();
        list.push_back(messages, message);
        self.is_disordered |= last.is_some_and(|last| messages[last].arrived > messages[message].arrived);
    }

    /// A message that was in no list waits for its expiry again, which is most likely over.
    pub(crate) fn put_again(&mut self, messages: &mut Slab<Entry>, message: u32) {
        messages[message].age = Age::Old;
        let first = self.old.head();
        self.old.push_front(messages, message);
        self.is_disordered |= first.is_some_and(|first| messages[first].arrived < messages[message].arrived);
    }

    fn take_out(&mut self, messages: &mut Slab<Entry>, message: u32) {
        if let Some(list) = self.list(messages[message].age) {
            list.remove(messages, message);
        }
    }

    fn list(&mut self, age: Age) -> Option<&mut List> {
        match age {
            Age::Young => Some(&mut self.young),
            Age::Old => Some(&mut self.old),
            Age::Unlisted => None,
        }
    }

    /// Nobody is to be told of a delay any more.
    pub(crate) fn all_are_old(&mut self, messages: &mut Slab<Entry>) {
        while let Some(message) = self.young.head() {
            self.put(messages, message, Age::Old);
        }
    }

    /// The oldest of those that wait for their delay warning.
    pub(crate) fn oldest_young(&self) -> Option<u32> {
        self.young.head()
    }

    /// The oldest of those that wait for their expiry.
    pub(crate) fn oldest_old(&self) -> Option<u32> {
        self.old.head()
    }

    /// How many messages are in each list.
    pub(crate) fn counts(&self, messages: &Slab<Entry>) -> (usize, usize) {
        (self.young.iter(messages).count(), self.old.iter(messages).count())
    }

    /// The oldest first, whatever came when. Costs nothing unless something came late.
    pub(crate) fn sort(&mut self, messages: &mut Slab<Entry>) {
        if !std::mem::take(&mut self.is_disordered) {
            return;
        }
        for list in [&mut self.young, &mut self.old] {
            let mut all: Vec<(Millis, u32)> = Vec::new();
            while let Some(message) = list.pop_front(messages) {
                all.push((messages[message].arrived, message));
            }
            all.sort_unstable();
            all.iter().for_each(|(_, message)| list.push_back(messages, *message));
        }
    }
}
