//! The protocol of the control socket: one JSON object on each line, in both directions. A connection carries
//! any number of requests, one after the other; each is answered by lines of which the last is
//! [`Response::Done`] or [`Response::Failed`].

use super::{
    attempt_info::{AttemptInfo, SilentServers},
    certificate_info::{CertificateInfo, RenewalInfo},
    copy::CopyEnd,
    options_info::OptionsInfo,
    selection::Selection,
    summary::{DestinationInfo, SummaryBy},
};
use mail::{Disposition, Outcome, QueueId, UnixMillis};
use report::RecipientCounters;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest request line. Clients split long lists of ids into several requests.
pub const REQUEST_BYTES_MAX: u64 = 256 * 1024;
/// Ids a client puts into one request.
pub const IDS_MAX: usize = 1000;
/// Longest response line: a message with many recipients.
pub const RESPONSE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A [`QueueId`] in the form of the protocol: its 13 characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Id(pub QueueId);

impl TryFrom<String> for Id {
    type Error = mail::id::NotAnId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map(Self)
    }
}

impl From<Id> for String {
    fn from(id: Id) -> Self {
        id.0.to_string()
    }
}

/// What a client sends, one JSON object in a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The messages selected: a [`Response::Message`] each, in the order of their acceptance.
    List {
        /// The messages to list.
        selection: Selection,
    },
    /// The number of messages selected, in [`Response::Done`].
    Count {
        /// The messages to count.
        selection: Selection,
    },
    /// One message with its header: [`Response::Message`], [`Response::Header`].
    Show {
        /// Queue id of the message to show.
        id: Id,
    },
    /// Do something to the messages selected.
    Apply {
        /// The change to make.
        action: Action,
        /// The messages, and the recipients of each, to change.
        selection: Selection,
        /// The reason, for the history, listings and notifications.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Selected recipients go elsewhere: another message takes their place.
    Redirect {
        /// Which recipients of which messages.
        selection: Selection,
        /// Where they are sent instead.
        to: RedirectTo,
        /// For the history; `None` if the operator gave none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Only look whether mail can go there, and list the messages: a [`Response::Message`] each.
        #[serde(default)]
        dry_run: bool,
    },
    /// Every destination is tried now, suspended or not.
    Flush,
    /// The queued recipients by destination, sender or reason: a [`Response::Destination`] each.
    Summary {
        /// What the rows are for.
        #[serde(default)]
        by: SummaryBy,
    },
    /// [`Response::Counters`].
    Status,
    /// All metrics: [`Response::Metrics`].
    Metrics,
    /// All queued messages with their content, for root and the daemon's own user only: for each message
    /// [`Response::Copy`], [`Response::Content`] and [`Response::CopyEnd`].
    Backup,
    /// The certificates of listeners: a [`Response::Certificate`] each, and [`Response::Renewal`] if the daemon obtains one.
    Certificates,
    /// A new certificate is asked of the authority now.
    Renew,
    /// The configuration is read again; [`Response::Note`] for each thing that needs a restart.
    Reload,
    /// New sessions are refused with 421; [`Response::Note`] with the address of each listener.
    Drain {
        /// The address, the port or the kind of listeners; all without one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        listener: Option<String>,
    },
    /// New sessions are taken again; [`Response::Note`] with the address of each listener.
    Resume {
        /// The address, the port or the kind of listeners; all without one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        listener: Option<String>,
    },
}

/// Where redirected recipients go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RedirectTo {
    /// To this address.
    Address(String),
    /// By the route with this name.
    Route(String),
}

/// What an operator can do to queued messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Keep, try nothing.
    Hold,
    /// Undo hold.
    Release,
    /// Make the next attempt now.
    Retry,
    /// Give up: failure DSNs go out.
    Bounce,
    /// Forget, without a word to anyone.
    Delete,
}

impl Action {
    /// Can it be done to some of a message's recipients? The others are done to whole messages.
    pub fn is_of_recipients(self) -> bool {
        matches!(self, Self::Bounce | Self::Delete)
    }

    /// Returns the word of the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Release => "release",
            Self::Retry => "retry",
            Self::Bounce => "bounce",
            Self::Delete => "delete",
        }
    }

    /// `3 messages …`.
    pub fn done(self) -> &'static str {
        match self {
            Self::Hold => "held",
            Self::Release => "released",
            Self::Retry => "due now",
            Self::Bounce => "bounced",
            Self::Delete => "deleted",
        }
    }
}

/// One line of an answer: a JSON object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Response {
    /// A queued message, as listed or shown.
    Message(MessageInfo),
    /// The queued recipients of a destination, or of another row of a summary.
    Destination(DestinationInfo),
    /// A message's header, as far as it was asked for; what is no UTF-8 is replaced.
    Header {
        /// With CRLF line ends.
        text: String,
    },
    /// The number of recipients in each state, since the spool was made.
    Counters(RecipientCounters),
    /// The gauges of the spool and of the queue's lock; behind the counters.
    Gauges(Box<Gauges>),
    /// All metrics at once.
    Metrics {
        /// In the text format of OpenMetrics.
        text: String,
    },
    /// Selected messages that an action left as they were, for example a hold of a held message.
    Unchanged {
        /// The number of messages; they are counted in [`Response::Done`], too.
        count: u64,
        /// Why they were left as they were.
        #[serde(default)]
        reason: String,
    },
    /// Selected messages that an action made due, and that wait nevertheless.
    Waiting {
        /// How many messages wait for that reason.
        count: u64,
        /// What they wait for.
        reason: String,
    },
    /// A copy of a message begins. Its envelope follows behind the line, as raw bytes.
    Copy {
        /// Which message is copied.
        id: Id,
        /// Length of the envelope in bytes.
        length: u64,
    },
    /// A run of the content of the message. It follows behind the line, as raw bytes.
    Content {
        /// Length of the run in bytes.
        length: u64,
    },
    /// The copy that began with [`Response::Copy`] ends.
    CopyEnd {
        /// Whether the copy is whole.
        end: CopyEnd,
    },
    /// One of the certificates that listeners show.
    Certificate(CertificateInfo),
    /// The state of the certificate that the daemon obtains.
    Renewal(RenewalInfo),
    /// Something that the operator should know.
    Note {
        /// A text to print, such as `data_dir needs a restart`.
        text: String,
    },
    /// What is likely to go wrong with something that was asked for, and that is done all the same.
    Warning {
        /// A text to print; the request is carried out all the same.
        text: String,
    },
    /// The request was carried out, and nothing follows.
    Done {
        /// Messages listed, counted, or found for an action.
        count: u64,
    },
    /// The request failed, and nothing follows.
    Failed(Failure),
}

/// The reason why a request was not done, by what the asker does next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "error", rename_all = "kebab-case")]
pub enum Failure {
    /// The user may not do this: another one has to ask.
    Denied {
        /// Who may do this.
        text: String,
    },
    /// There is no such thing: something else has to be asked for.
    Missing {
        /// What was not found. For a listener, the text lists those that exist.
        text: String,
    },
    /// The request is wrong, and has to be changed.
    Bad {
        /// What is wrong with the request, such as `no message was selected`.
        text: String,
    },
    /// Ask again with another configuration.
    Configuration {
        /// What must change in the configuration, in one line or several.
        text: String,
    },
    /// Not possible now: the same request may succeed later.
    Failed {
        /// What failed and why, such as `the daemon obtains no certificate`.
        text: String,
    },
}

impl Failure {
    /// Returns the text to print, of any variant.
    pub fn text(&self) -> &str {
        match self {
            Self::Denied { text }
            | Self::Missing { text }
            | Self::Bad { text }
            | Self::Configuration { text }
            | Self::Failed { text } => text,
        }
    }
}

/// A queued message as operators see it. Times are in Unix milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageInfo {
    /// Queue id of the message.
    pub id: Id,
    /// Octets of header and body.
    pub size_bytes: u64,
    /// Time of its acceptance, in Unix milliseconds.
    pub arrived_ms: u64,
    /// Reverse-path without brackets; empty for the null path, and where it is not known.
    pub sender: String,
    /// Text form of [`mail::Origin`], such as `submit uid=1000`; empty where it is not known.
    pub origin: String,
    /// Delivery options, if the message has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<OptionsInfo>,
    /// Every recipient of its envelope; those that are left where that cannot be read.
    pub recipients: Vec<RecipientInfo>,
    /// Who or what holds the message, and why: `by root: a phishing report`. Empty where a held message has no reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_reason: Option<String>,
    /// The reason why the spool cannot give its envelope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}

/// Returns why a message is held, as listings say it: `held by root: a phishing report`, `held: rule 7`.
pub fn held_text(reason: &str) -> String {
    match reason {
        "" => "held by an operator, a rule or a route".to_owned(),
        reason if reason.starts_with("by ") => format!("held {reason}"),
        reason => format!("held: {reason}"),
    }
}

/// One recipient that is left, and what it waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecipientInfo {
    /// Forward-path without brackets; empty where it is not known.
    pub address: String,
    /// The address that the client gave, if it was expanded to this recipient, and the addresses in between.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expanded_from: Vec<String>,
    /// The reverse-path of the copies for the recipient, if it is not the sender of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_path: Option<String>,
    /// Name of the destination: `mx:example.com`.
    pub destination: String,
    /// Whether the recipient is ready, waits, is held or in flight.
    pub status: Status,
    /// Attempts so far.
    pub attempt_count: u32,
    /// The reply or the error of the last attempt, as the log has it; `None` before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// Time of the last outcome, in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ms: Option<u64>,
    /// Time of the next attempt, in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_ms: Option<u64>,
    /// Why the next attempt is made at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the connection is doing that carries the recipient, or that will.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<AttemptInfo>,
    /// The wait of a recipient that is not finished. None while the daemon is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<WaitInfo>,
}

/// How long a recipient has waited, and how long it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WaitInfo {
    /// Time since which no host of the destination can be reached, in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_since_ms: Option<u64>,
    /// Connections to the destination that are open or being opened.
    #[serde(default)]
    pub connections: u32,
    /// Other messages that are queued for the destination.
    pub others: u64,
    /// Time at which the recipient fails if it is not delivered before, in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// Time at which the sender is warned of the delay, in Unix milliseconds; none if that time is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warns_ms: Option<u64>,
}

impl RecipientInfo {
    /// Returns what [`RecipientInfo::expanded_from`] holds for a recipient.
    pub fn expansion_of(recipient: &mail::Recipient) -> Vec<String> {
        let addresses =
            recipient.expansion().into_iter().flat_map(|e| std::iter::once(&e.original).chain(&e.through));
        addresses.map(|mailbox| mailbox.as_str().to_owned()).collect()
    }

    /// Returns what [`RecipientInfo::return_path`] holds for a recipient.
    pub fn return_path_of(recipient: &mail::Recipient) -> Option<String> {
        recipient.return_path().map(|own| own.path.as_str().to_owned())
    }

    /// One that nothing is left to do for, and how it ended if that is known: the spool keeps which way it
    /// went and the status, the log keeps all.
    pub fn finished(address: String, destination: String, end: Option<(&Outcome, UnixMillis)>) -> Self {
        let said = |outcome: &Outcome| {
            let way = if outcome.disposition == Disposition::Delivered { "delivered" } else { "failed" };
            format!("{way} {}", outcome.status)
        };
        Self {
            address,
            expanded_from: Vec::new(),
            return_path: None,
            destination,
            status: Status::Done,
            attempt_count: 0,
            last: end.map(|(outcome, _)| said(outcome)),
            last_ms: end.map(|(_, at)| at.0),
            next_ms: None,
            reason: None,
            attempt: None,
            wait: None,
        }
    }
}

/// The status of a recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Waits for a connection.
    Ready,
    /// The destination is suspended, since no host of it could be reached.
    Suspended,
    /// Waits for its next attempt.
    Waiting,
    /// An attempt is under way.
    InFlight,
    /// Held by an operator, a rule, a route or a restore.
    Held,
    /// Delivered or returned: nothing is left to do.
    Done,
    /// Waiting or suspended; for selections only.
    Deferred,
}

impl Status {
    /// Returns whether a recipient of another status is selected by this one.
    pub(crate) fn selects(self, of_recipient: Self) -> bool {
        match self {
            Self::Deferred => matches!(of_recipient, Self::Waiting | Self::Suspended),
            status => status == of_recipient,
        }
    }

    /// Returns the word of listings and of JSON, such as `in-flight`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Suspended => "suspended",
            Self::Waiting => "waiting",
            Self::InFlight => "in-flight",
            Self::Held => "held",
            Self::Done => "done",
            Self::Deferred => "deferred",
        }
    }
}

/// The outbound connections to a mail exchanger.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExchangerConnections {
    /// An address, or the names of all exchangers of a domain.
    pub exchanger: String,
    /// Connections that are open or being opened.
    pub used: u32,
    /// Destinations without a connection that wait, because the exchanger has as many as it may.
    pub waiting: u64,
}

/// The use of a share of the outbound connections.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConnectionShare {
    /// `local`, `routes`, `remote` or `newcomers`.
    pub share: String,
    /// Connections that are open or being opened.
    pub used: u32,
    /// The most connections of this share; a share can be full before, because several have a common limit.
    pub max: u32,
    /// Destinations without a connection that wait for one.
    pub waiting: u64,
}

/// Health, speed and room of the spool; the numbers are what a monitor can draw.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Gauges {
    /// The reason why the spool failed, if it did: the daemon stores nothing more, and ends.
    pub failure: Option<String>,
    /// Faults of stored bytes: what cannot be read, what is quarantined, why no room is given back.
    #[serde(default)]
    pub faults: Vec<String>,
    /// Messages in the spool.
    pub messages: u64,
    /// Transactions that became durable since the start.
    pub transactions: u64,
    /// Commits, each with one sync of the log, that made them so.
    pub commits: u64,
    /// Duration of the last sync, in microseconds.
    pub last_sync_us: u64,
    /// Bytes that wait for the next commit.
    pub queued_bytes: u64,
    /// Bytes that can be accepted before 452 4.3.1.
    pub free_bytes: u64,
    /// Messages handed to the spool by sessions.
    pub accept_latency_count: u64,
    /// Time from there until they were durable, on average, in microseconds.
    pub accept_latency_mean_us: u64,
    /// The longest of these times, in microseconds.
    pub accept_latency_max_us: u64,
    /// Times somebody had to wait for the queue's lock.
    pub lock_conflicts: u64,
    /// Connections that the delivery client has open or is opening.
    #[serde(default)]
    pub client_connections: u32,
    /// Outbound connections as the queue counts them.
    #[serde(default)]
    pub queue_connections: u32,
    /// The use of the shares of the outbound connections.
    #[serde(default)]
    pub shares: Vec<ConnectionShare>,
    /// Outbound connections whose servers have not answered for a while; none if all answer.
    #[serde(default)]
    pub silent: Option<SilentServers>,
    /// The mail exchanger with the most outbound connections.
    #[serde(default)]
    pub busiest_exchanger: Option<ExchangerConnections>,
    /// Descriptors, memory, space and other limited resources, each with its use.
    #[serde(default)]
    pub resources: Vec<Resource>,
    /// Events after which the two differed: 0, or the daemon has a fault.
    #[serde(default)]
    pub connection_drift: u64,
    /// Time in which the start read the spool and queued its messages.
    #[serde(default)]
    pub start_read_us: u64,
    /// Messages that their next hops took before they were stored, since the start.
    #[serde(default)]
    pub unwritten: u64,
    /// `spool.durability`, as configured.
    #[serde(default)]
    pub durability: String,
    /// The largest number of messages that shared a commit.
    #[serde(default)]
    pub commit_messages_max: u64,
    /// Messages in commits since the start.
    #[serde(default)]
    pub added_wait_count: u64,
    /// The time that they were held back so that others share their commit: all together.
    #[serde(default)]
    pub added_wait_sum_us: u64,
    /// Half of them were held back for no longer.
    #[serde(default)]
    pub added_wait_p50_us: u64,
    /// 99 of 100 were held back for no longer.
    #[serde(default)]
    pub added_wait_p99_us: u64,
    /// The longest time that one was held back, in microseconds.
    #[serde(default)]
    pub added_wait_max_us: u64,
    /// The process that delivers as other users; none if no route needs one.
    #[serde(default)]
    pub delivery_helper: Option<DeliveryHelper>,
    /// The part of its work that the sandbox of the daemon does not do; none if it is complete.
    #[serde(default)]
    pub sandbox_fault: Option<String>,
    /// Messages of local programs that wait in the drop directory.
    #[serde(default)]
    pub dropped: u64,
    /// Why the last of them waits: the reply that it got.
    #[serde(default)]
    pub dropped_reason: Option<String>,
    /// Directories that local users have left in the drop directory, and that cannot be removed.
    #[serde(default)]
    pub dropped_directories: u64,
    /// Id of the user who has most of them.
    #[serde(default)]
    pub dropped_directories_of: Option<u32>,
    /// Why /etc/resolv.conf cannot be used now, if it cannot.
    #[serde(default)]
    pub name_server_fault: Option<String>,
    /// Messages in the queue that are held.
    #[serde(default)]
    pub held: u64,
    /// Notifications that could not be delivered, and that the next summary tells the postmaster.
    #[serde(default)]
    pub unsummarized: u64,
    /// The addresses of listeners that refuse new sessions, since an operator drains them.
    #[serde(default)]
    pub drained_listeners: Vec<String>,
    /// The maps whose files cannot be used now, and why.
    #[serde(default)]
    pub map_faults: Vec<String>,
    /// Filters that fail now, each with what is wrong.
    #[serde(default)]
    pub filter_faults: Vec<String>,
    /// Lists in DNS that do not answer now, each with the reason.
    #[serde(default)]
    pub list_faults: Vec<String>,
    /// Why the delivery log or the history loses events now, if it does.
    #[serde(default)]
    pub log_faults: Vec<String>,
    /// Events and lines that were lost since the start.
    #[serde(default)]
    pub log_lost: u64,
}

/// Something of which the daemon has only so much.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Resource {
    /// In the plural, such as `open files`.
    pub name: String,
    /// What is in use. Memory and space are in octets.
    pub used: u64,
    /// How much there can be, in the same unit.
    pub max: u64,
    /// The key of the configuration that permits more, or what else helps.
    pub key: String,
}

impl Resource {
    /// Returns whether less than a fifth is left.
    pub fn is_scarce(&self) -> bool {
        self.used >= self.max - self.max / 5
    }

    /// Returns whether nothing is left.
    pub fn is_used_up(&self) -> bool {
        self.used >= self.max
    }

    /// Says how scarce it is: `nearly used up` or `used up`.
    pub fn scarcity(&self) -> &'static str {
        if self.is_used_up() { "used up" } else { "nearly used up" }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} of {} ({})", self.name, self.used, self.max, self.key)
    }
}

/// The process that runs programs and writes files of other users.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeliveryHelper {
    /// Times that it has ended before the daemon.
    pub failure_count: u64,
    /// The reason why it does not run; none if it runs.
    pub fault: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    fn round_trip<T>(value: &T) -> T
    where
        T: Serialize + for<'de> Deserialize<'de>,
    {
        let line = serde_json::to_string(value).unwrap();
        assert!(!line.contains('\n'), "{line}");
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn every_request_and_response_survives_the_wire() {
        let selection = Selection { sender: Some("a\n*".to_owned()), ..Selection::default() };
        let id = fake::message(7).id;
        for request in [
            Request::List { selection: selection.clone() },
            Request::Count { selection: Selection::all() },
            Request::Show { id },
            Request::Apply { action: Action::Bounce, selection, reason: Some("closed".to_owned()) },
            Request::Redirect {
                selection: Selection::all(),
                to: RedirectTo::Route("relay".to_owned()),
                reason: None,
                dry_run: true,
            },
            Request::Flush,
            Request::Summary { by: SummaryBy::Reason },
            Request::Status,
            Request::Reload,
            Request::Drain { listener: Some("mx".to_owned()) },
            Request::Resume { listener: None },
        ] {
            assert_eq!(round_trip(&request), request);
        }
        for response in [
            Response::Message(fake::message(7)),
            Response::Destination(DestinationInfo { destination: "mx:a".to_owned(), ..Default::default() }),
            Response::Header { text: "Subject: ä\r\n".to_owned() },
            Response::Counters(RecipientCounters { accepted: 3, queued: 3, ..RecipientCounters::default() }),
            Response::Gauges(Box::new(Gauges { commits: 3, ..Gauges::default() })),
            Response::Unchanged { count: 2, reason: "held".to_owned() },
            Response::Note { text: "restart".to_owned() },
            Response::Warning { text: "no such domain".to_owned() },
            Response::Done { count: 3 },
            Response::Failed(Failure::Denied { text: "no".to_owned() }),
        ] {
            assert_eq!(round_trip(&response), response);
        }
    }

    #[test]
    fn a_request_with_an_unknown_field_or_a_bad_id_is_refused() {
        for line in [
            r#"{"op":"show","id":"nonsense"}"#,
            r#"{"op":"list","selection":{"sendr":"x"}}"#,
            r#"{"op":"erase"}"#,
            "[]",
        ] {
            assert!(serde_json::from_str::<Request>(line).is_err(), "{line}");
        }
    }
}
