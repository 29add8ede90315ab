//! An attempt that is under way, as operators see it.

use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// A silence that is worth a line where an operator has not asked for details.
const NOTABLE_MS: u64 = 5_000;

/// What the connection of a recipient is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AttemptInfo {
    /// The server as in the log; empty while none is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub server: String,
    /// The step: `receiving the initial server greeting`.
    pub step: String,
    /// Time since which nothing was heard, in Unix milliseconds.
    pub since_ms: u64,
    /// The outcome of the server that was tried before, in the same attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<String>,
}

impl AttemptInfo {
    /// Returns whether the server is late, or another one has failed already.
    pub fn is_notable(&self, now_ms: u64) -> bool {
        self.earlier.is_some() || now_ms.saturating_sub(self.since_ms) >= NOTABLE_MS
    }

    /// Says what is being done, with whom, and how long there has been no answer.
    pub fn text(&self, now_ms: u64) -> String {
        let mut text = self.place();
        let seconds = now_ms.saturating_sub(self.since_ms) / 1000;
        if seconds > 0 {
            let _ = write!(text, ", no answer for {seconds} s");
        }
        if let Some(earlier) = &self.earlier {
            let _ = write!(text, "; before: {earlier}");
        }
        text
    }

    /// Says the same without figures, so that recipients can be counted by it.
    pub fn reason(&self) -> String {
        match &self.earlier {
            Some(earlier) => earlier.clone(),
            None => format!("no answer yet: {}", self.place()),
        }
    }

    fn place(&self) -> String {
        if self.server.is_empty() { self.step.clone() } else { format!("{}: {}", self.server, self.step) }
    }
}

/// Connections whose servers do not answer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SilentServers {
    /// Connections without an answer for more than ten seconds.
    pub connections: u64,
    /// Of those connections, the one that has waited longest.
    pub longest: AttemptInfo,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_names_the_server_the_silence_and_the_server_before() {
        let mut attempt = AttemptInfo { step: "looking up the servers".to_owned(), ..AttemptInfo::default() };
        assert_eq!(attempt.text(900), "looking up the servers");
        assert!(!attempt.is_notable(4_999) && attempt.is_notable(5_000));
        attempt.server = "mx.b.test[192.0.2.1]:25".to_owned();
        attempt.step = "connecting".to_owned();
        assert_eq!(attempt.text(40_000), "mx.b.test[192.0.2.1]:25: connecting, no answer for 40 s");
        assert_eq!(attempt.reason(), "no answer yet: mx.b.test[192.0.2.1]:25: connecting");
        attempt.earlier = Some("connect to mx1.b.test: timed out".to_owned());
        assert!(attempt.is_notable(0));
        let said = "mx.b.test[192.0.2.1]:25: connecting; before: connect to mx1.b.test: timed out";
        assert_eq!(attempt.text(0), said);
        assert_eq!(attempt.reason(), "connect to mx1.b.test: timed out");
    }
}
