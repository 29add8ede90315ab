//! Promises broken on purpose, so that the crash tests can show that they notice.

/// One broken promise; none by default, and none can be chosen from a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mutation {
    /// All promises stand.
    #[default]
    None,
    /// Commits are acknowledged without a sync.
    SkipSync,
    /// The directory is not synced when a segment is made, nor at the start.
    SkipDirSync,
    /// Recovery takes what it can read of a batch that is not whole, and forgets intents.
    IgnoreBatchEnd,
    /// All lives of a segment have the same seed, so that checksums of one pass in the next.
    IgnoreSeed,
    /// Tickets are durable before their batch is written: 250 comes early.
    AnswerEarly,
    /// Recovery goes on behind the unproven tail, or a torn one, instead of writing it again.
    KeepTail,
    /// A segment is given back, or content removed, before the outcome that permits it is durable.
    ReuseEarly,
    /// Outcomes are acknowledged and never written.
    DropOutcome,
    /// A sync that failed is tried again, and believed.
    RetrySync,
    /// The number of a chunk that is lost is given to another.
    GiveAgain,
    /// A read error ends a start.
    StopAtDamage,
    /// A segment with a record that cannot be read is never done with.
    KeepDamaged,
    /// Damage is not reported.
    HushDamage,
    /// Chunks of messages that were abandoned are kept.
    KeepAbandoned,
    /// Mail may use what is left for outcomes.
    SpendReserve,
    /// A full log is compacted only where its oldest segments hold little that lives.
    SkipRound,
    /// A start that could not read everything goes on counting batches, segments and chunks from what it read.
    ReuseNumbers,
    /// A segment whose header is zeros counts as free, whatever batches it has.
    TrustZeroHeader,
    /// The copy of a segment's header is not used.
    IgnoreHeaderCopy,
    /// A read error counts as damage.
    ReadErrorIsDamage,
    /// Bytes that look damaged are not read a second time, past the page cache.
    SkipSecondRead,
    /// Records that end messages which may come back are freed with their segments.
    DropTombstones,
}

impl Mutation {
    /// Every promise that is broken while synced bytes stay as they are.
    pub const ALL: [Self; 9] = [
        Self::SkipSync,
        Self::SkipDirSync,
        Self::IgnoreBatchEnd,
        Self::IgnoreSeed,
        Self::AnswerEarly,
        Self::KeepTail,
        Self::ReuseEarly,
        Self::DropOutcome,
        Self::RetrySync,
    ];

    /// Every promise on what becomes of the rest when some go bad.
    pub const OF_DAMAGE: [Self; 4] =
        [Self::GiveAgain, Self::StopAtDamage, Self::KeepDamaged, Self::HushDamage];

    /// Every promise on reads that fail, or give back something else, for a moment.
    pub const OF_READING: [Self; 6] = [
        Self::ReuseNumbers,
        Self::TrustZeroHeader,
        Self::IgnoreHeaderCopy,
        Self::ReadErrorIsDamage,
        Self::SkipSecondRead,
        Self::DropTombstones,
    ];

    /// Every promise on a spool that is full.
    pub const OF_ROOM: [Self; 2] = [Self::KeepAbandoned, Self::SpendReserve];
}
