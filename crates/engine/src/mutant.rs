//! Rules broken on purpose: the simulator's tests must notice each of them. In no release.

/// A rule that the engine breaks on purpose: the simulator has to notice each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mutant {
    /// The engine as it is.
    #[default]
    None,
    /// The number of a destination is kept after the queue has forgotten the destination.
    KeepNumbers,
    /// The ids of recovered messages may be given again.
    ReuseIds,
    /// Recovery believes times of the wall clock that are still to come.
    BelieveClock,
    /// A transaction that a busy spool refused is forgotten.
    ForgetRefused,
    /// A transaction overtakes a refused one of the same message.
    Overtake,
    /// An operator's hold is answered without being stored.
    ForgetHolds,
    /// A message that the accept pipeline holds is delivered.
    DeliverHeld,
    /// A finished message stays in the cache.
    KeepCached,
    /// Queued messages keep their old routes at a reload.
    SkipReroute,
    /// Jobs that end together are reported one by one.
    SplitReports,
    /// A recipient that was cancelled in flight is tried again.
    ForgetCancelled,
    /// The slot of a closed connection is never free again.
    LoseSlot,
    /// A message that is durable after its client was told to try again is forgotten.
    ForgetLate,
    /// All destinations share one budget of connections.
    ShareConnections,
    /// Connections without an answer are kept while other destinations wait.
    KeepSilent,
}

impl Mutant {
    /// Those that let strangers delay other mail.
    pub const OF_CONTENTION: [Self; 2] = [Self::ShareConnections, Self::KeepSilent];

    /// Each other that breaks a rule.
    pub const ALL: [Self; 13] = [
        Self::KeepNumbers,
        Self::ReuseIds,
        Self::BelieveClock,
        Self::ForgetRefused,
        Self::Overtake,
        Self::ForgetHolds,
        Self::DeliverHeld,
        Self::KeepCached,
        Self::SkipReroute,
        Self::SplitReports,
        Self::ForgetCancelled,
        Self::LoseSlot,
        Self::ForgetLate,
    ];
}
