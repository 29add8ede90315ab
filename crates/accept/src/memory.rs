//! The memory of checks: each check that needs one has a memory of its own for each session.

use std::any::Any;

/// What one check remembers of a session, from its first stage to its last. Two stages never use it at once.
pub trait CheckMemory: Any + Send + Sync {
    /// EHLO, or a TLS handshake: what the client said before does not count any more (RFC 3207 §4.2).
    fn begin_hello(&mut self) {}

    /// MAIL: the transaction before is over.
    fn begin_transaction(&mut self) {}
}

/// What a check remembers from one stage of a transaction to another.
pub(crate) struct OfTransaction<T>(pub(crate) Option<T>);

impl<T> Default for OfTransaction<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Send + Sync + 'static> CheckMemory for OfTransaction<T> {
    fn begin_transaction(&mut self) {
        self.0 = None;
    }
}

/// Casts the memory to the type that the check has made; `None` if it has none, or another type.
pub(crate) fn own<T: CheckMemory>(memory: Option<&mut dyn CheckMemory>) -> Option<&mut T> {
    memory.and_then(|memory| (memory as &mut dyn Any).downcast_mut())
}

type Slot = Option<Box<dyn CheckMemory>>;

/// The memories of a session, or of a draft, in the order of the pipeline's checks. Empty where no check needs one.
#[derive(Default)]
pub struct CheckMemories(Vec<Slot>);

impl CheckMemories {
    /// Begins the memories of `count` checks: each may take over what is its own from those before a reload.
    pub(crate) fn renewed(
        mut self,
        count: usize,
        begin: impl Fn(usize, &mut Self) -> Option<Box<dyn CheckMemory>>,
    ) -> Self {
        let mut slots: Vec<Slot> = Vec::new();
        for index in 0..count {
            if let Some(memory) = begin(index, &mut self) {
                slots.resize_with(index + 1, || None);
                slots[index] = Some(memory);
            }
        }
        Self(slots)
    }

    /// Takes the first memory of a kind out.
    pub fn take<T: CheckMemory>(&mut self) -> Option<Box<T>> {
        let is_meant =
            |slot: &&mut Slot| slot.as_deref().is_some_and(|memory| (memory as &dyn Any).is::<T>());
        let memory: Box<dyn Any> = self.0.iter_mut().find(is_meant)?.take()?;
        memory.downcast().ok()
    }

    pub(crate) fn begin_hello(&mut self) {
        self.0.iter_mut().flatten().for_each(|memory| memory.begin_hello());
    }

    pub(crate) fn begin_transaction(&mut self) {
        self.0.iter_mut().flatten().for_each(|memory| memory.begin_transaction());
    }

    pub(crate) fn lend(&mut self) -> Memories<'_> {
        Memories { from: 0, left: &mut self.0 }
    }
}

/// The memories of the checks from one on, for one stage: they are asked in their order, and each once.
#[derive(Default)]
pub(crate) struct Memories<'a> {
    from: usize,
    left: &'a mut [Slot],
}

impl<'a> Memories<'a> {
    /// Takes the memory of the check with this index, and leaves those behind it.
    pub(crate) fn next(&mut self, index: usize) -> Option<&'a mut dyn CheckMemory> {
        let left = std::mem::take(&mut self.left);
        let (own, behind) = left.split_at_mut_checked(index - self.from)?.1.split_first_mut()?;
        (self.from, self.left) = (index + 1, behind);
        own.as_deref_mut()
    }
}
