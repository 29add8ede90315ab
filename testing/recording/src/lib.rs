//! The work of a mail server, without a word of who wrote to whom: `postrider support-bundle` writes such a recording, and
//! the simulator replays it.
//!
//! [`Recorder`] takes events of the history and messages of the queue, and makes a [`Recording`] of them. In the file, the
//! first line is a [`Head`], and each further line is a [`RecordedMessage`], in JSON.

mod recorder;

pub use recorder::{QueuedRecipient, Recorder};

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};

/// Version of the format; others are refused.
pub const FORMAT: u32 = 1;

/// The first line of the file: counts of what follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Has to be [`FORMAT`].
    pub format: u32,
    /// Lines behind this one, a message each.
    pub messages: u64,
    /// Domains of recipients. They are numbered from 0.
    pub destinations: u32,
    /// Recipients of which nothing is known; they are not in the file.
    pub unknown_recipients: u64,
}

/// What one site's mail did over some time, without addresses and texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// The first line of the file.
    pub head: Head,
    /// Messages by their arrival.
    pub messages: Vec<RecordedMessage>,
}

/// When a message came, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedMessage {
    /// Time since the first message arrived.
    pub at_ms: u64,
    /// Octets of the content.
    pub size_bytes: u64,
    /// True for a notification of the server itself.
    #[serde(default)]
    pub is_notification: bool,
    /// True if an operator holds the message.
    #[serde(default)]
    pub is_held: bool,
    /// Those of which anything is known.
    pub recipients: Vec<RecordedRecipient>,
}

/// Attempts for one recipient, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedRecipient {
    /// Number of the recipient's domain.
    pub destination: u32,
    /// Attempts in their order. The last of a recipient that is delivered or bounced is the one that ended it.
    pub attempts: Vec<RecordedAttempt>,
    /// How the recipient had ended when the recording was made.
    pub end: End,
}

/// When an attempt ended, and how long it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedAttempt {
    /// Age of the message at the end of the attempt.
    pub age_ms: u64,
    /// Time that the next hop took, with the connection.
    pub latency_ms: u64,
}

/// How a recipient ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// The next hop or the mailbox has the message.
    Delivered,
    /// Failed, also because the lifetime of the message was over.
    Bounced,
    /// An operator deleted the recipient.
    Deleted,
    /// Not ended: still in the queue.
    Queued,
}

/// Counts of recipients, and of attempts that were deferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Recipients with [`End::Delivered`].
    pub delivered: u64,
    /// Recipients with [`End::Bounced`].
    pub bounced: u64,
    /// Recipients with [`End::Deleted`].
    pub deleted: u64,
    /// Recipients with [`End::Queued`].
    pub queued: u64,
    /// Attempts that ended no recipient.
    pub deferrals: u64,
}

impl RecordedRecipient {
    /// Returns the attempts that did not end the recipient.
    pub fn deferrals(&self) -> usize {
        match self.end {
            End::Delivered | End::Bounced => self.attempts.len().saturating_sub(1),
            End::Deleted | End::Queued => self.attempts.len(),
        }
    }
}

impl Recording {
    /// Counts how recipients ended, and attempts that were deferred.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for recipient in self.messages.iter().flat_map(|message| &message.recipients) {
            *match recipient.end {
                End::Delivered => &mut counts.delivered,
                End::Bounced => &mut counts.bounced,
                End::Deleted => &mut counts.deleted,
                End::Queued => &mut counts.queued,
            } += 1;
            counts.deferrals += recipient.deferrals() as u64;
        }
        counts
    }

    /// Writes the lines of the file.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, &self.head)?;
        writeln!(out)?;
        for message in &self.messages {
            serde_json::to_writer(&mut *out, message)?;
            writeln!(out)?;
        }
        Ok(())
    }

    /// Reads what [`Recording::write`] wrote.
    ///
    /// # Errors
    /// The file cannot be read, or line by line is something else, in words.
    pub fn read(from: impl BufRead) -> Result<Self, String> {
        let mut lines = from.lines().enumerate().map(|(number, line)| (number + 1, line));
        let wrong = |number: usize, why: &dyn std::fmt::Display| format!("line {number}: {why}");
        let (_, first) = lines.next().ok_or("it is empty")?;
        let head = first.map_err(|e| wrong(1, &e))?;
        let head: Head = serde_json::from_str(&head).map_err(|e| wrong(1, &e))?;
        if head.format != FORMAT {
            return Err(wrong(1, &format_args!("the format is {}, and {FORMAT} is understood", head.format)));
        }
        let mut messages = Vec::new();
        for (number, line) in lines {
            let line = line.map_err(|e| wrong(number, &e))?;
            let message: RecordedMessage = serde_json::from_str(&line).map_err(|e| wrong(number, &e))?;
            if message.recipients.iter().any(|recipient| recipient.destination >= head.destinations) {
                return Err(wrong(number, &"it names a destination that does not exist"));
            }
            messages.push(message);
        }
        if messages.len() as u64 != head.messages {
            return Err(format!("it has {} of {} messages", messages.len(), head.messages));
        }
        messages.sort_by_key(|message| message.at_ms);
        Ok(Self { head, messages })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording() -> Recording {
        let attempt = |age_ms| RecordedAttempt { age_ms, latency_ms: 5 };
        let recipient = |destination, attempts: usize, end| RecordedRecipient {
            destination,
            attempts: (0..attempts as u64).map(attempt).collect(),
            end,
        };
        let message = RecordedMessage {
            at_ms: 0,
            size_bytes: 100,
            is_notification: false,
            is_held: false,
            recipients: vec![
                recipient(0, 2, End::Delivered),
                recipient(1, 1, End::Bounced),
                recipient(1, 3, End::Queued),
            ],
        };
        let head = Head { format: FORMAT, messages: 1, destinations: 2, unknown_recipients: 0 };
        Recording { head, messages: vec![message] }
    }

    #[test]
    fn a_recording_is_read_as_it_was_written() {
        let mut file = Vec::new();
        recording().write(&mut file).unwrap();
        assert_eq!(Recording::read(&file[..]).unwrap(), recording());
        let counts = Counts { delivered: 1, bounced: 1, deleted: 0, queued: 1, deferrals: 4 };
        assert_eq!(recording().counts(), counts);
    }

    #[test]
    fn a_cut_file_and_one_of_another_version_are_refused() {
        let mut file = Vec::new();
        recording().write(&mut file).unwrap();
        let text = String::from_utf8(file).unwrap();
        let head = text.lines().next().unwrap();
        let refused = |text: &str| Recording::read(text.as_bytes()).unwrap_err();
        assert!(refused(head).contains("0 of 1 messages"));
        assert!(refused(&text.replace("\"format\":1", "\"format\":9")).contains("the format is 9"));
        assert!(refused(&text.replace("\"destination\":1", "\"destination\":7")).contains("line 2"));
        assert!(refused("").contains("empty") && refused("x\n").contains("line 1"));
    }
}
