//! Rules of the spool broken on purpose: the crash tests must notice each of them. In no release.
//!
//! Rules that a disk can break are broken there, below this crate. Without the feature `mutants` no rule can be
//! broken: [`ActiveMutant::is`] is the constant `false`.

/// A rule that the spool breaks on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(not(feature = "mutants"), allow(unreachable_pub))]
pub enum Mutant {
    /// The spool as it is.
    #[default]
    None,
    /// Recovery takes what it can read of a batch that is not whole, and forgets intents.
    IgnoreBatchEnd,
    /// Lines of a queue file have the same checksums in each file.
    IgnoreSeed,
    /// Transactions are reported as durable before their batch is written: 250 is sent too early.
    AnswerEarly,
    /// Recovery does not write the tail, or a torn one, again.
    SkipTailRewrite,
    /// A segment is reused, or content removed, before the outcome that permits it is durable.
    ReuseEarly,
    /// Outcomes are acknowledged and never written.
    DropOutcome,
    /// The number of a lost chunk is given to another chunk.
    ReuseChunkId,
    /// A read error ends a start, and does not only set aside what it concerns.
    StopAtDamage,
    /// A segment with a record that cannot be read is never parked.
    KeepDamaged,
    /// Discarded chunks are kept.
    KeepDiscarded,
    /// New mail may use the reserve.
    SpendReserve,
    /// A full log is compacted only where its oldest segments hold few live records.
    SkipRound,
    /// A start that could not read everything continues to count batches, segments and chunks from what it read.
    ReuseNumbers,
    /// A segment whose header is zeros counts as free, whatever batches it has.
    TrustZeroHeader,
    /// The copy of a segment's header is not used.
    IgnoreHeaderCopy,
    /// Tombstones of messages that may come back are freed with their segments.
    DropTombstones,
    /// Only the first batch of a segment, or of a start, has totals.
    StaleTotals,
}

/// The rule that this spool breaks: none in a release.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ActiveMutant {
    #[cfg(feature = "mutants")]
    mutant: Mutant,
}

impl ActiveMutant {
    /// Takes the rule that is broken from now on.
    #[cfg(feature = "mutants")]
    pub(crate) const fn new(mutant: Mutant) -> Self {
        Self { mutant }
    }

    /// Is this rule broken?
    #[inline]
    #[cfg(feature = "mutants")]
    pub(crate) fn is(self, mutant: Mutant) -> bool {
        self.mutant == mutant
    }

    /// Is this rule broken? No rule is.
    #[inline]
    #[cfg(not(feature = "mutants"))]
    pub(crate) const fn is(self, _: Mutant) -> bool {
        false
    }
}
