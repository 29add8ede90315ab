//! The queue by destination, sender or reason: recipients, their ages, and why they wait.

use crate::{MessageInfo, RecipientInfo, Status, held_text};
use mail::pattern::domain_of;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The upper ends of the columns of ages, in minutes, as qshape of Postfix has them. The last column is for all that is older.
pub const AGE_MINUTES: [u64; 9] = [5, 10, 20, 40, 80, 160, 320, 640, 1280];
/// Different reasons that are counted of a destination.
const REASONS_MAX: usize = 64;
/// Different names that are counted: senders can be as many as messages. The rest is counted together.
const NAMES_MAX: usize = 50_000;
/// The row that counts all names beyond [`NAMES_MAX`].
const OTHERS: &str = "(others)";

/// What the rows of a summary are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum SummaryBy {
    /// Destinations.
    #[default]
    Destination,
    /// Reverse-paths.
    Sender,
    /// The domains of reverse-paths.
    SenderDomain,
    /// Reasons for which recipients wait.
    Reason,
}

impl SummaryBy {
    /// Returns the name of the field in JSON.
    pub fn field(self) -> &'static str {
        match self {
            Self::Destination => "destination",
            Self::Sender => "sender",
            Self::SenderDomain => "sender_domain",
            Self::Reason => "reason",
        }
    }

    /// Returns the name of the row in which a recipient is counted.
    fn row<'a>(
        self,
        message: &'a MessageInfo,
        recipient: &'a RecipientInfo,
        reason: Option<&'a str>,
    ) -> &'a str {
        match self {
            Self::Destination => &recipient.destination,
            Self::Reason => reason.unwrap_or(NO_REASON),
            _ if message.damaged.is_some() => "(unknown)",
            _ if message.sender.is_empty() => "<>",
            Self::Sender => &message.sender,
            Self::SenderDomain => domain_of(&message.sender),
        }
    }
}

/// The row of recipients that nothing was tried for.
pub const NO_REASON: &str = "no attempt yet";

/// The queued recipients of a destination, or of another row.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DestinationInfo {
    /// `mx:example.com`; the sender, its domain or the reason where the rows are for these.
    pub destination: String,
    /// Recipients that are not finished.
    pub recipients: u64,
    /// The recipients by age: one column for each of [`AGE_MINUTES`], and one for older messages.
    pub ages: [u64; AGE_MINUTES.len() + 1],
    /// The most frequent reason for which recipients wait, as in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time since which no host can be reached, in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_since_ms: Option<u64>,
    /// Time of the next probe of a suspended destination, in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// True while a connection to the suspended destination is being tried.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_probing: bool,
}

/// Counts recipients by destination.
#[derive(Debug, Default)]
pub struct Summary {
    by_name: HashMap<String, (DestinationInfo, HashMap<String, u64>)>,
}

impl Summary {
    /// Counts recipients of a message with this age.
    pub fn add(&mut self, destination: &str, age_ms: u64, reasons: impl Iterator<Item = Option<String>>) {
        let is_known = self.by_name.contains_key(destination);
        let destination = if is_known || self.by_name.len() < NAMES_MAX { destination } else { OTHERS };
        if !self.by_name.contains_key(destination) {
            let info = DestinationInfo { destination: destination.to_owned(), ..DestinationInfo::default() };
            self.by_name.insert(destination.to_owned(), (info, HashMap::new()));
        }
        let Some((info, counted)) = self.by_name.get_mut(destination) else { return };
        let column = AGE_MINUTES.partition_point(|minutes| age_ms >= minutes * 60_000);
        for reason in reasons {
            info.recipients += 1;
            info.ages[column] += 1;
            let Some(reason) = reason else { continue };
            if counted.len() < REASONS_MAX || counted.contains_key(&reason) {
                *counted.entry(reason).or_default() += 1;
            }
        }
    }

    /// Counts the recipients of a message that are not finished.
    pub fn add_message(&mut self, by: SummaryBy, message: &MessageInfo, now_ms: u64) {
        let age_ms = now_ms.saturating_sub(message.arrived_ms);
        let held = message.hold_reason.as_deref().map(held_text);
        for recipient in message.recipients.iter().filter(|r| r.status != Status::Done) {
            let reason = held.clone().or_else(|| recipient.last.clone());
            let row = by.row(message, recipient, reason.as_deref()).to_owned();
            let reason = reason.filter(|_| by != SummaryBy::Reason);
            self.add(&row, age_ms, std::iter::once(reason));
        }
    }

    /// Notes that no host of a destination can be reached: since when, and whether it is being probed or when it will be.
    pub fn suspended(
        &mut self,
        destination: &str,
        since_ms: Option<u64>,
        (is_probing, until_ms): (bool, Option<u64>),
        reason: &str,
    ) {
        if let Some((info, counted)) = self.by_name.get_mut(destination) {
            (info.down_since_ms, info.until_ms, info.is_probing) = (since_ms, until_ms, is_probing);
            // The cause of all, unless its mail waits for something else, such as an operator.
            if is_probing || until_ms.is_some() {
                *counted = HashMap::from([(reason.to_owned(), info.recipients)]);
            }
        }
    }

    /// Returns the destinations, those with the most recipients first.
    pub fn finish(self) -> Vec<DestinationInfo> {
        let mut all: Vec<DestinationInfo> = Vec::with_capacity(self.by_name.len());
        for (info, counted) in self.by_name.into_values() {
            let most = counted.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
            all.push(DestinationInfo { reason: most.map(|(reason, _)| reason), ..info });
        }
        all.sort_by(|a, b| b.recipients.cmp(&a.recipients).then_with(|| a.destination.cmp(&b.destination)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipients_are_counted_by_destination_and_age_with_the_most_frequent_reason() {
        let mut summary = Summary::default();
        let text = |text: &str| Some(text.to_owned());
        let minutes = |minutes: u64| minutes * 60_000;
        summary.add("mx:a", 0, [text("busy"), text("full"), text("full")].into_iter());
        summary.add("mx:a", minutes(5), [None].into_iter());
        summary.add("mx:a", minutes(1280), [text("busy")].into_iter());
        summary.add("mx:a", minutes(1279), [text("busy")].into_iter());
        summary.add("mx:b", minutes(39), (0..10).map(|_| None));
        summary.suspended("mx:b", Some(5), (false, Some(9)), "refused");
        summary.suspended("mx:unknown", None, (false, Some(9)), "refused");
        let all = summary.finish();
        let names: Vec<_> = all.iter().map(|one| (one.destination.as_str(), one.recipients)).collect();
        assert_eq!(names, [("mx:b", 10), ("mx:a", 6)]);
        assert_eq!(all[1].ages, [3, 1, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(all[0].ages[3], 10);
        assert_eq!((all[1].reason.as_deref(), all[0].reason.as_deref()), (Some("busy"), Some("refused")));
        assert_eq!((all[0].down_since_ms, all[0].until_ms), (Some(5), Some(9)));
    }
}
