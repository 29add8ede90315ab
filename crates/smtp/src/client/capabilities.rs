//! What a server announced in its reply to EHLO or LHLO.

use mail::{Facts, Reply};

/// Keywords that matter to a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// RFC 2920.
    pub pipelining: bool,
    /// RFC 6152.
    pub eight_bit: bool,
    /// RFC 6531.
    pub smtputf8: bool,
    /// RFC 3030.
    pub chunking: bool,
    /// RFC 3030.
    pub binary: bool,
    /// RFC 3461.
    pub dsn: bool,
    /// RFC 3207.
    pub starttls: bool,
    /// RFC 1870: offered at all, and the limit if it names one.
    pub size: Option<Option<u64>>,
    /// RFC 9422: recipients a transaction.
    pub recipients_max: Option<usize>,
}

impl Capabilities {
    /// Can binary content be sent as it is?
    pub fn takes_binary(&self) -> bool {
        self.chunking && self.binary
    }

    /// Can this content be sent as it is?
    pub fn takes(&self, facts: Facts) -> bool {
        if facts.is_binary { self.takes_binary() } else { self.eight_bit || !facts.is_8bit }
    }

    /// From the reply; its first line is the server's name.
    pub fn parse(reply: &Reply) -> Self {
        let mut c = Self::default();
        for line in reply.text().split('\n').skip(1) {
            let mut words = line.split_ascii_whitespace();
            let keyword = words.next().unwrap_or_default().to_ascii_uppercase();
            match keyword.as_str() {
                "PIPELINING" => c.pipelining = true,
                "8BITMIME" => c.eight_bit = true,
                "SMTPUTF8" => c.smtputf8 = true,
                "CHUNKING" => c.chunking = true,
                "BINARYMIME" => c.binary = true,
                "DSN" => c.dsn = true,
                "STARTTLS" => c.starttls = true,
                // Zero means no limit (RFC 1870 §4).
                "SIZE" => c.size = Some(words.next().and_then(|w| w.parse().ok()).filter(|n| *n > 0)),
                "LIMITS" => c.recipients_max = words.find_map(|w| w.strip_prefix("RCPTMAX=")?.parse().ok()),
                _ => {}
            }
        }
        c
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_read_in_any_case() {
        let reply = Reply::new(
            250,
            None,
            "mx PIPELINING\npipelining\nSIZE 100\n8bitmime\nLIMITS X=1 RCPTMAX=50\nOTHER",
        );
        let c = Capabilities::parse(&reply);
        assert!(c.pipelining && c.eight_bit && !c.chunking);
        assert_eq!((c.size, c.recipients_max), (Some(Some(100)), Some(50)));
        assert_eq!(Capabilities::parse(&Reply::new(250, None, "mx\nSIZE 0")).size, Some(None));
    }
}
