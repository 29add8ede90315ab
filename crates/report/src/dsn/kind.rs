//! Kinds of reports.

use mail::{Notify, Origin};

/// What a report (DSN) tells its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DsnKind {
    /// Delivery has failed, and no attempt follows.
    Failed,
    /// The message is late; attempts go on.
    Delayed,
    /// The message was delivered, and the sender asked for a report.
    Delivered,
    /// The message went to a host that sends no DSNs, and the sender asked for a report.
    Relayed,
    /// The message has a deadline (RFC 2852), and went to a host that does not keep deadlines; or the sender wants to be
    /// told by each relay.
    DeadlineRelayed,
    /// The message was forwarded to several addresses, and the sender asked for a report (RFC 3461 §5.2.7.3).
    Expanded,
    /// A report could not be delivered: the postmaster gets it.
    DoubleBounce,
}

impl DsnKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Failed,
        Self::Delayed,
        Self::Delivered,
        Self::Relayed,
        Self::DeadlineRelayed,
        Self::Expanded,
        Self::DoubleBounce,
    ];

    /// Returns the value of `Action` (RFC 3464 §2.3.3).
    pub(super) fn action(self) -> &'static str {
        match self {
            Self::Failed | Self::DoubleBounce => "failed",
            Self::Delayed => "delayed",
            Self::Delivered => "delivered",
            Self::Relayed | Self::DeadlineRelayed => "relayed",
            Self::Expanded => "expanded",
        }
    }

    /// Returns the name of its section in files of templates.
    pub(crate) fn section(self) -> &'static str {
        match self {
            Self::DoubleBounce => "double-bounce",
            Self::DeadlineRelayed => "deadline-relayed",
            kind => kind.action(),
        }
    }

    /// Does the sender of a message to a recipient with this NOTIFY want it?
    pub(super) fn is_wanted(self, notify: Notify) -> bool {
        match self {
            Self::Failed => notify.failure,
            Self::Delayed => notify.delay,
            Self::Delivered | Self::Relayed | Self::Expanded => notify.success,
            Self::DeadlineRelayed => notify != Notify::NEVER,
            Self::DoubleBounce => true,
        }
    }

    /// Of a message that is late or delivered the header is enough.
    pub(super) fn returns_content(self) -> bool {
        matches!(self, Self::Failed | Self::DoubleBounce)
    }

    /// Returns the origin of a report of this kind: a double bounce must not bounce again.
    pub(super) fn origin(self) -> Origin {
        if self == Self::DoubleBounce { Origin::DoubleBounce } else { Origin::Dsn }
    }
}
