//! The measurements of a source: times by phase, and failures by kind. Each loop has its own; they are added
//! at the end.

use super::live::LiveTimes;
use super::pause::PauseCounts;
use hdrhistogram::Histogram;
use smtp::client::ExpectedReply;
use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// A part of a session whose times are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Phase {
    /// TCP's handshake.
    Connect,
    /// From the connection to the greeting.
    Banner,
    /// HELO, EHLO or LHLO.
    Hello,
    /// From STARTTLS to its reply.
    Starttls,
    /// The TLS handshake.
    Tls,
    /// From XCLIENT to its reply.
    Xclient,
    /// From each line of AUTH to its reply.
    Auth,
    /// From MAIL to its reply.
    Mail,
    /// From each RCPT to its reply.
    Rcpt,
    /// DATA up to 354.
    Data,
    /// From the end of the content to its reply.
    Final,
    /// From RSET to its reply.
    Rset,
    /// From QUIT to its reply.
    Quit,
    /// A whole message that was taken, from when it was due. Without a rate that is when its session was free for it,
    /// before the connection if it needs one. QUIT is behind it.
    Message,
}

impl Phase {
    /// In the order a session walks them.
    pub const ALL: [Self; 14] = [
        Self::Connect,
        Self::Banner,
        Self::Hello,
        Self::Starttls,
        Self::Tls,
        Self::Xclient,
        Self::Auth,
        Self::Mail,
        Self::Rcpt,
        Self::Data,
        Self::Final,
        Self::Rset,
        Self::Quit,
        Self::Message,
    ];
}

impl From<ExpectedReply> for Phase {
    fn from(awaited: ExpectedReply) -> Self {
        match awaited {
            ExpectedReply::Greeting => Self::Banner,
            ExpectedReply::Hello => Self::Hello,
            ExpectedReply::StartTls => Self::Starttls,
            ExpectedReply::Auth => Self::Auth,
            ExpectedReply::Question | ExpectedReply::Mail => Self::Mail,
            ExpectedReply::Rcpt => Self::Rcpt,
            ExpectedReply::Data => Self::Data,
            ExpectedReply::Final => Self::Final,
            ExpectedReply::Reset => Self::Rset,
            ExpectedReply::Quit => Self::Quit,
        }
    }
}

impl Phase {
    /// Returns the name in tables and files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Banner => "banner",
            Self::Hello => "EHLO",
            Self::Starttls => "STARTTLS",
            Self::Tls => "TLS",
            Self::Xclient => "XCLIENT",
            Self::Auth => "AUTH",
            Self::Mail => "MAIL",
            Self::Rcpt => "RCPT",
            Self::Data => "DATA",
            Self::Final => "content",
            Self::Rset => "RSET",
            Self::Quit => "QUIT",
            Self::Message => "message",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why something failed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A reply with this code, 400 or more.
    Refused(u16),
    /// The connection broke, or the server has closed it.
    Lost,
    /// Nobody listens, or the queue of the one who does is full.
    Reset,
    /// No answer in time.
    Timeout,
    /// Connecting to this one of several servers failed.
    At(String, Box<Fault>),
    /// Connecting failed, by the system's word for it.
    System(String),
    /// The server does not speak SMTP, or offers too little for the message.
    Protocol(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(code) => write!(f, "{code}"),
            Self::Lost => f.write_str("lost connection"),
            Self::Reset => f.write_str("connection refused"),
            Self::Timeout => f.write_str("timeout"),
            Self::At(server, fault) => write!(f, "{server}: {fault}"),
            Self::System(why) | Self::Protocol(why) => f.write_str(why),
        }
    }
}

/// Times by phase, and failures by kind, of one loop or of several added together.
#[derive(Debug)]
pub(crate) struct SourceCounts {
    times: Vec<Histogram<u64>>,
    pub(crate) faults: BTreeMap<(Phase, Fault), u64>,
    pub(crate) connections: u64,
    /// Messages the server took, for one recipient at least.
    pub(crate) sent: u64,
    pub(crate) failed: u64,
    /// Connections that one server did not take, and that were tried at another.
    pub(crate) server_failures: u64,
    /// The time of the last message that was taken.
    pub(crate) last_sent: Option<Instant>,
    /// Sessions to which the server owed a reply when the run was stopped.
    pub(crate) unanswered_sessions: u64,
    pub(crate) recipients: u64,
    /// Of messages that were taken for others.
    pub(crate) recipients_refused: u64,
    pub(crate) bytes_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) pauses: PauseCounts,
    /// The times of messages for the view of the run.
    pub(crate) live: Option<Arc<LiveTimes>>,
}

/// Longer times are counted as this.
const LONGEST: Duration = Duration::from_secs(3600);
/// Nanoseconds that histograms tell apart.
const FINEST_NS: u64 = 100;

impl Default for SourceCounts {
    fn default() -> Self {
        let empty = || {
            let made = Histogram::new_with_bounds(FINEST_NS, LONGEST.as_nanos() as u64, 3);
            made.unwrap_or_else(|_| unreachable!("the bounds are constant and good"))
        };
        Self {
            times: Phase::ALL.iter().map(|_| empty()).collect(),
            faults: BTreeMap::new(),
            connections: 0,
            sent: 0,
            failed: 0,
            server_failures: 0,
            last_sent: None,
            unanswered_sessions: 0,
            recipients: 0,
            recipients_refused: 0,
            bytes_out: 0,
            bytes_in: 0,
            pauses: PauseCounts::default(),
            live: None,
        }
    }
}

impl SourceCounts {
    /// Empty counts, of which `live` gets the times of messages too.
    pub(crate) fn seen_by(live: &Arc<LiveTimes>) -> Self {
        Self { live: Some(live.clone()), ..Self::default() }
    }

    /// Counts a time of this phase.
    pub(crate) fn took(&mut self, phase: Phase, time: Duration) {
        self.times[phase as usize].saturating_record(time.as_nanos() as u64);
        if phase == Phase::Message
            && let Some(live) = &self.live
        {
            live.took(time);
        }
    }

    /// Counts a failure in this phase.
    pub(crate) fn failed_in(&mut self, phase: Phase, fault: Fault) {
        *self.faults.entry((phase, fault)).or_default() += 1;
    }

    /// Returns the histogram of this phase, in nanoseconds.
    pub(crate) fn times(&self, phase: Phase) -> &Histogram<u64> {
        &self.times[phase as usize]
    }

    /// Returns the histograms that have times, with the names of their phases.
    pub(crate) fn histograms(&self) -> impl Iterator<Item = (&'static str, &Histogram<u64>)> {
        let all = Phase::ALL.iter().map(|phase| (phase.name(), self.times(*phase)));
        all.filter(|(_, histogram)| !histogram.is_empty())
    }

    /// Adds another loop's.
    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.times.iter_mut().zip(&other.times) {
            // Both have the same bounds.
            let _ = mine.add(theirs);
        }
        for (kind, count) in &other.faults {
            *self.faults.entry(kind.clone()).or_default() += count;
        }
        self.connections += other.connections;
        self.sent += other.sent;
        self.failed += other.failed;
        self.server_failures += other.server_failures;
        self.last_sent = self.last_sent.max(other.last_sent);
        self.unanswered_sessions += other.unanswered_sessions;
        self.recipients += other.recipients;
        self.recipients_refused += other.recipients_refused;
        self.bytes_out += other.bytes_out;
        self.bytes_in += other.bytes_in;
        self.pauses.add(&other.pauses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_loops_add_up() {
        let (mut a, mut b) = (SourceCounts::default(), SourceCounts::default());
        a.took(Phase::Mail, Duration::from_micros(10));
        b.took(Phase::Mail, Duration::from_micros(30));
        b.failed_in(Phase::Rcpt, Fault::Refused(450));
        a.failed_in(Phase::Rcpt, Fault::Refused(450));
        b.sent = 2;
        a.add(&b);
        assert_eq!((a.times(Phase::Mail).len(), a.sent), (2, 2));
        assert_eq!(a.faults[&(Phase::Rcpt, Fault::Refused(450))], 2);
        assert!((29_900..30_100).contains(&a.times(Phase::Mail).max()));
    }
}
