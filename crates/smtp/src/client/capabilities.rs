//! The extensions in a server's reply to EHLO or LHLO.

use mail::{ContentTraits, Reply};

/// The extensions in the reply to EHLO that the client can use.
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
    /// RFC 8689.
    pub requiretls: bool,
    /// RFC 2852: offered at all, and then the least time of BY with the mode R, in seconds.
    pub deliver_by: Option<u32>,
    /// RFC 6710.
    pub mt_priority: bool,
    /// RFC 4954: the names of mechanisms, in capitals.
    pub auth: Vec<Box<str>>,
    /// RFC 1870: offered at all, and the limit if it names one.
    pub size: Option<Option<u64>>,
    /// RFC 9422, RCPTMAX: RCPT commands in one transaction.
    pub recipients_max: Option<usize>,
    /// RFC 9422, MAILMAX: MAIL commands on one connection.
    pub transactions_max: Option<usize>,
}

impl Capabilities {
    /// Returns whether binary content can be sent unchanged.
    pub fn takes_binary(&self) -> bool {
        self.chunking && self.binary
    }

    /// Returns whether this content can be sent unchanged.
    pub fn takes(&self, traits: ContentTraits) -> bool {
        if traits.is_binary { self.takes_binary() } else { self.eight_bit || !traits.is_8bit }
    }

    /// Reads the reply; its first line is the server's name.
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
                "REQUIRETLS" => c.requiretls = true,
                "DELIVERBY" => c.deliver_by = Some(words.next().and_then(|w| w.parse().ok()).unwrap_or(0)),
                "MT-PRIORITY" => c.mt_priority = true,
                "AUTH" => c.auth.extend(words.map(|word| word.to_ascii_uppercase().into())),
                "LIMITS" => words.for_each(|word| c.add_limit(word)),
                _ => {}
            }
        }
        c
    }

    /// Adds one limit of RFC 9422. A limit without a valid value and a limit of another name have no effect. Of
    /// several values of one limit the smallest counts.
    fn add_limit(&mut self, word: &str) {
        let Some((name, value)) = word.split_once('=') else { return };
        let Some(value) = limit_value(value) else { return };
        let limit = match name {
            _ if name.eq_ignore_ascii_case("RCPTMAX") => &mut self.recipients_max,
            _ if name.eq_ignore_ascii_case("MAILMAX") => &mut self.transactions_max,
            _ => return,
        };
        *limit = Some(limit.map_or(value, |before| before.min(value)));
    }
}

/// Parses the value of a limit: one to six digits, of which the first is not zero (RFC 9422).
fn limit_value(value: &str) -> Option<usize> {
    let is_number = value.len() <= 6 && value.bytes().all(|b| b.is_ascii_digit()) && !value.starts_with('0');
    value.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_read_in_any_case() {
        let reply = Reply::new(
            250,
            None,
            "mx PIPELINING\npipelining\nSIZE 100\n8bitmime\nauth plain LOGIN\nLIMITS X=1 RCPTMAX=50\nOTHER",
        );
        let c = Capabilities::parse(&reply);
        assert!(c.pipelining && c.eight_bit && !c.chunking);
        assert_eq!(c.auth, ["PLAIN".into(), "LOGIN".into()]);
        assert_eq!((c.size, c.recipients_max), (Some(Some(100)), Some(50)));
        assert_eq!(Capabilities::parse(&Reply::new(250, None, "mx\nSIZE 0")).size, Some(None));
    }

    #[test]
    fn limits_are_read_in_any_case_and_malformed_limits_are_ignored() {
        for (line, limits) in [
            ("LIMITS RCPTMAX=50", (Some(50), None)),
            ("LIMITS MAILMAX=2", (None, Some(2))),
            ("LIMITS RCPTMAX=50 MAILMAX=999999", (Some(50), Some(999_999))),
            ("limits mailmax=7 RcptMax=1 RCPTDOMAINMAX=3 X", (Some(1), Some(7))),
            ("LIMITS MAILMAX=9 MAILMAX=8\nLIMITS MAILMAX=10 RCPTMAX=4", (Some(4), Some(8))),
            ("LIMITS MAILMAX=x MAILMAX=5", (None, Some(5))),
            ("LIMITS", (None, None)),
            ("LIMITS RCPTMAX MAILMAX=", (None, None)),
            ("LIMITS RCPTMAX=0 MAILMAX=0", (None, None)),
            ("LIMITS RCPTMAX=+5 MAILMAX=-5", (None, None)),
            ("LIMITS RCPTMAX=05 MAILMAX=5x", (None, None)),
            ("LIMITS RCPTMAX=1000000 MAILMAX=99999999999999999999999", (None, None)),
            ("LIMITS RCPTMAX=1=2 MAILMAX=1;2 XMAILMAX=3", (None, None)),
            ("RCPTMAX=5 MAILMAX=5", (None, None)),
        ] {
            let c = Capabilities::parse(&Reply::new(250, None, format!("mx\n{line}")));
            assert_eq!((c.recipients_max, c.transactions_max), limits, "{line}");
        }
    }
}
