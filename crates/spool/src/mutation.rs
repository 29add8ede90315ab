//! Promises broken on purpose, so that the crash tests can show that they notice.

/// One broken promise; none by default, and none can be chosen from a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mutation {
    /// All promises stand.
    #[default]
    None,
    /// Commits are acknowledged without a sync.
    SkipSync,
    /// Recovery goes on behind the unproven tail instead of writing it again.
    KeepTail,
}

impl Mutation {
    pub(crate) fn skips_sync(self) -> bool {
        self == Self::SkipSync
    }

    pub(crate) fn keeps_tail(self) -> bool {
        self == Self::KeepTail
    }
}
