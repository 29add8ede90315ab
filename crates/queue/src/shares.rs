//! Shares of the connections. Strangers choose where their mail goes, and can let every server of theirs hang; so mail for
//! destinations that have not taken anything yet may use some of the connections only, and remote mail leaves a part to the
//! servers that the operator's routes name. Deliveries on this machine are counted by themselves.

use crate::QueueSettings;
use mail::{Destination, NextHop};

/// Below this number of connections there is nothing to share.
const SHARED_FROM: u32 = 16;

/// Each destination counts to one share, so that none can take all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Share {
    /// Deliveries on this machine: Maildirs, mailbox files, programs. They take no connection from the others.
    Local,
    /// Servers that a route of the configuration names: smarthosts and LMTP servers.
    Routes,
    /// Mail exchangers of domains that have taken mail.
    Remote,
    /// Mail exchangers of domains that have not taken mail yet, or not since they last failed.
    Newcomers,
}

/// The number of shares.
pub(crate) const SHARE_COUNT: usize = 4;

impl Share {
    /// All shares.
    pub const ALL: [Self; SHARE_COUNT] = [Self::Local, Self::Routes, Self::Remote, Self::Newcomers];

    /// Returns the share of a destination that has not taken mail yet.
    pub(crate) fn of(destination: &Destination) -> Self {
        match destination.next_hop {
            NextHop::Mx(_) => Self::Newcomers,
            NextHop::Smarthost(_) | NextHop::Lmtp(_) => Self::Routes,
            NextHop::Maildir(_)
            | NextHop::Mbox(_)
            | NextHop::Pipe(_)
            | NextHop::Reject(_)
            | NextHop::Discard
            | NextHop::Expand => Self::Local,
        }
    }

    /// Returns the name of the share: a word of status and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Routes => "routes",
            Self::Remote => "remote",
            Self::Newcomers => "newcomers",
        }
    }

    /// Returns whether the destinations of the share are mail exchangers.
    pub fn is_remote(self) -> bool {
        matches!(self, Self::Remote | Self::Newcomers)
    }

    fn is_network(self) -> bool {
        self != Self::Local
    }
}

/// How one share is used, for status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareView {
    /// Which destinations use it.
    pub share: Share,
    /// Connections that are open or being opened.
    pub used: u32,
    /// The most connections. Newcomers and remote destinations, and remote destinations and routes, share what they may
    /// use together, so that a share can be full before it reaches this number.
    pub max: u32,
    /// Destinations without a connection that wait for one of this share.
    pub waiting: usize,
}

/// Counts for each share, in the order of [`Share::ALL`].
#[derive(Debug, Default)]
pub(crate) struct Shares {
    pub(crate) used: [u32; SHARE_COUNT],
    pub(crate) idle: [u32; SHARE_COUNT],
    #[cfg(feature = "mutants")]
    pub(crate) is_one_budget: bool,
}

impl Shares {
    pub(crate) fn max(settings: &QueueSettings, share: Share) -> u32 {
        let all = settings.connections_max;
        let reserve = if all < SHARED_FROM { 0 } else { all / 4 };
        match share {
            Share::Local => all,
            Share::Routes | Share::Remote => all - reserve,
            Share::Newcomers if all < SHARED_FROM => all,
            Share::Newcomers => (all - reserve) / 3 * 2,
        }
    }

    /// Returns how many connections one address, or one set of mail exchangers, may have: a quarter of those of remote mail is
    /// left to others.
    pub(crate) fn max_of_exchanger(settings: &QueueSettings) -> Option<u32> {
        let all = Self::max(settings, Share::Remote);
        (settings.connections_max >= SHARED_FROM).then(|| all - all / 4)
    }

    /// Returns whether newcomers begin with one connection, because half of theirs are in use.
    pub(crate) fn is_short(&self, settings: &QueueSettings) -> bool {
        let max = Self::max(settings, Share::Newcomers);
        max >= SHARED_FROM && self.used[Share::Newcomers as usize] >= max / 2
    }

    fn remote_count(&self) -> u32 {
        self.used[Share::Remote as usize] + self.used[Share::Newcomers as usize]
    }

    fn is_remote_full(&self, settings: &QueueSettings) -> bool {
        self.remote_count() >= Self::max(settings, Share::Remote)
    }

    fn is_network_full(&self, settings: &QueueSettings) -> bool {
        self.remote_count() + self.used[Share::Routes as usize] >= settings.connections_max
    }

    fn is_itself_full(&self, settings: &QueueSettings, share: Share) -> bool {
        self.used[share as usize] >= Self::max(settings, share)
    }

    /// Returns whether no connection of this share may be opened.
    pub(crate) fn is_full(&self, settings: &QueueSettings, share: Share) -> bool {
        #[cfg(feature = "mutants")]
        if self.is_one_budget {
            return self.used.iter().sum::<u32>() >= settings.connections_max;
        }
        self.is_itself_full(settings, share)
            || (share.is_remote() && self.is_remote_full(settings))
            || (share.is_network() && self.is_network_full(settings))
    }

    /// Returns whether closing a connection of `share` makes room for one of `wanted`, which has none.
    pub(crate) fn makes_room(&self, settings: &QueueSettings, share: Share, wanted: Share) -> bool {
        (share == wanted && self.is_itself_full(settings, wanted))
            || (share.is_remote() && wanted.is_remote() && self.is_remote_full(settings))
            || (share.is_network() && wanted.is_network() && self.is_network_full(settings))
    }

    /// Moves the connections of a destination to another share.
    pub(crate) fn move_to(&mut self, from: Share, to: Share, open: u32, idle: u32) {
        self.used[from as usize] -= open;
        self.used[to as usize] += open;
        self.idle[from as usize] -= idle;
        self.idle[to as usize] += idle;
    }
}
