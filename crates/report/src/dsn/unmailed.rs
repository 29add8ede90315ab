//! The summary of notifications that failed and made no mail of their own.

use super::{
    encoding,
    text::{clean, wrapped},
};
use mail::{
    BodyType, Content, Envelope, ForwardPath, Mailbox, Message, Notify, Origin, QueueId, Recipient,
    ReversePath, UnixMillis,
};
use std::fmt::Write as _;

/// The most failures that a summary lists: the others are in the history.
const LISTED_MAX: usize = 100;
/// Octets of one reason that the summary quotes.
const REASON_MAX_BYTES: usize = 300;

/// Notifications that failed, and about which the postmaster has got no mail.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unmailed {
    count: u64,
    /// When the first of them failed.
    since: UnixMillis,
    listed: Vec<Failure>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Failure {
    id: QueueId,
    to: Box<str>,
    reason: Box<str>,
}

impl Unmailed {
    /// Returns the number of failures.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Adds the failure of a notification for one recipient.
    pub fn add(&mut self, id: QueueId, to: &str, reason: &str, at: UnixMillis) {
        if self.count == 0 {
            self.since = at;
        }
        self.count += 1;
        if self.listed.len() < LISTED_MAX {
            let reason = &reason[..reason.floor_char_boundary(REASON_MAX_BYTES)];
            self.listed.push(Failure { id, to: to.into(), reason: reason.into() });
        }
    }

    /// Composes the summary for the postmaster. If it cannot be delivered, nothing follows.
    pub fn compose(&self, id: QueueId, hostname: &str, postmaster: &Mailbox, now: UnixMillis) -> Message {
        let text = self.text();
        let (date, encoding) = (now.rfc5322(), encoding(text.as_bytes()));
        let content = format!(
            "Received: by {hostname} (Postrider)\r\n\tid {id}; {date}\r\n\
             Date: {date}\r\n\
             From: Mail Delivery System <MAILER-DAEMON@{hostname}>\r\n\
             To: <{postmaster}>\r\n\
             Subject: {count} could not be delivered\r\n\
             Message-ID: <{id}@{hostname}>\r\n\
             Auto-Submitted: auto-generated\r\n\
             MIME-Version: 1.0\r\n\
             Content-Type: text/plain; charset=utf-8\r\n\
             {encoding}\r\n\
             This is the mail server {hostname}.\r\n\r\n{text}",
            count = mail::counted(self.count, "notification"),
        );
        let mut recipient = Recipient::new(ForwardPath::Mailbox(postmaster.clone()));
        recipient.notify = Notify::NEVER;
        let mut envelope = Envelope::new(ReversePath::Null);
        envelope.recipients = vec![recipient];
        envelope.smtputf8 = !postmaster.as_str().is_ascii();
        if !content.is_ascii() {
            envelope.body = BodyType::EightBit;
        }
        let content = Content::from_bytes(content.into_bytes());
        Message { id, arrived: now, origin: Origin::DoubleBounce, envelope, content }
    }

    fn text(&self) -> String {
        let (count, since) = (self.count, self.since.rfc3339());
        let notifications = mail::counted(count, "notification");
        let mut out = String::with_capacity(1024 + 128 * self.listed.len());
        wrapped(
            &mut out,
            &format!(
                "Since {since}, {notifications} (bounces, for example) could not be delivered, in addition to \
                 those that you were sent one by one. An hour has at most \
                 notifications.max_double_bounces_per_hour of these mails."
            ),
        );
        let unlisted = count - self.listed.len() as u64;
        if unlisted > 0 {
            out.push_str("\r\n");
            wrapped(
                &mut out,
                &format!("The first {} are listed below. {unlisted} are not.", self.listed.len()),
            );
        }
        // One line, to be pasted.
        let _ = write!(
            out,
            "\r\nThis command prints them all, from the history:\r\n\r\n    \
             postrider history query --sender '<>' --since {since} --limit 1000000 --json | grep not_mailed\r\n\r\n"
        );
        for failure in &self.listed {
            let _ = write!(out, "{} <{}>\r\n", failure.id, clean(&failure.to));
            wrapped(&mut out, &format!("    {}", clean(&failure.reason)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_all_failures_lists_a_hundred_and_names_the_command_for_the_others() {
        let mut unmailed = Unmailed::default();
        for number in 0..250 {
            let reason = format!("550 5.1.1 no\r\nsuch user {}", "ü".repeat(400));
            unmailed.add(QueueId(number), &format!("u{number}@b.test"), &reason, UnixMillis(5000 + number));
        }
        let postmaster = Mailbox::parse("postmaster@mx.test", false).unwrap();
        let summary = unmailed.compose(QueueId(999), "mx.test", &postmaster, UnixMillis(9_000_000));
        assert_eq!(
            (unmailed.count(), summary.origin, summary.envelope.body),
            (250, Origin::DoubleBounce, BodyType::EightBit)
        );
        assert!(summary.envelope.reverse_path.is_null());
        let text = String::from_utf8(summary.content.in_memory().unwrap().to_vec()).unwrap();
        for part in [
            "Subject: 250 notifications could not be delivered\r\n",
            "Content-Transfer-Encoding: 8bit\r\n\r\nThis is",
            "The first 100 are listed below. 150 are not.\r\n",
            "--since 1970-01-01T00:00:05.000Z --limit",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!((text.matches("@b.test>").count(), text.contains("<u100@")), (100, false));
        assert!(text.split("\r\n").all(|line| line.len() < 998 && !line.contains(['\r', '\n'])), "{text}");
    }
}
