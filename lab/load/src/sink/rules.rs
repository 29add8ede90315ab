//! The announcements, refusals and delays of a sink: smtp-sink's options, checked.

use super::verb::{COUNT, Verb, VerbSet};
use crate::arguments::seconds_of;
use auth::{Answer, Mechanism, Question, ScramHash, ScramKeys};
use std::{num::NonZeroU32, time::Duration};

/// The behaviour of one sink in every session.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// In the greeting and in HELO's and EHLO's reply.
    pub(crate) hostname: String,
    pub(crate) lmtp: bool,
    pub(crate) offer: Offer,
    /// Mangle the greeting as a Cisco PIX does.
    pub(crate) pix: bool,
    /// Answered with the soft reply, and otherwise ignored.
    pub(crate) soft: VerbSet,
    /// Answered with the hard reply, and otherwise ignored.
    pub(crate) hard: VerbSet,
    /// The connection is closed without a reply.
    pub(crate) drop: VerbSet,
    /// 421, and the connection ends.
    pub(crate) shut: VerbSet,
    /// Commands that are logged.
    pub(crate) log: VerbSet,
    pub(crate) soft_reply: String,
    pub(crate) hard_reply: String,
    /// After the reply to DATA: this long, then 550 and the end.
    pub(crate) abort_data: Option<Duration>,
    /// After the reply to DATA: this long before the content is read.
    pub(crate) read_delay: Option<Duration>,
    /// Before each reply, by verb.
    pub(crate) delays: [Option<Delay>; COUNT],
    /// Content is passed on to be kept.
    pub(crate) keeps_content: bool,
    /// Of 100 RCPT commands, so many are answered with the soft reply.
    pub(crate) defer_percent: u8,
    /// A recipient is answered with the soft reply until its first attempt is so long ago.
    pub(crate) greylist: Option<Duration>,
    /// Each message is compared with its own checksum.
    pub(crate) verifies: bool,
    /// Commands and replies are shown.
    pub(crate) verbose: bool,
    /// The only name and password that AUTH accepts, and mail needs.
    pub(crate) known_user: Option<KnownUser>,
}

/// A user with his password and the keys that are made of it.
#[derive(Debug, Clone)]
pub(crate) struct KnownUser {
    credentials: Credentials,
    keys: Vec<ScramKeys>,
}

/// Iterations for keys of SCRAM, as most servers have (RFC 7677 §4).
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).unwrap();

impl KnownUser {
    /// Makes the keys; of a password with forbidden characters there are none, and SCRAM fails.
    pub(crate) fn new(credentials: Credentials) -> Self {
        let salt = fastrand::u128(..).to_ne_bytes();
        let keys = [ScramHash::Sha256, ScramHash::Sha1].into_iter();
        let keys = keys.filter_map(|hash| ScramKeys::derive(hash, &credentials.password, &salt, ITERATIONS));
        Self { keys: keys.collect(), credentials }
    }

    /// Answers a question of an AUTH exchange; one user exists.
    pub(crate) fn answer(&self, question: &Question) -> Answer {
        let Credentials { user, password } = &self.credentials;
        match question {
            Question::Password { user: given, password: word }
                if **given == **user && word.is(password.as_bytes()) =>
            {
                Answer::Right(given.clone())
            }
            Question::Keys { user: given, hash } if **given == **user => {
                Answer::Keys(self.keys.iter().find(|keys| keys.hash == *hash).cloned().map(Box::new))
            }
            _ => Answer::Wrong,
        }
    }
}

/// The only user that can log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl Credentials {
    /// Reads `user:password`.
    ///
    /// # Errors
    /// There is no colon, or no name before it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some((user, password)) if !user.is_empty() && !text.contains('\0') => {
                Ok(Self { user: user.to_owned(), password: password.to_owned() })
            }
            _ => Err("write USER:PASSWORD".to_owned()),
        }
    }
}

/// Which keywords EHLO's reply has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer {
    pub(crate) esmtp: bool,
    pub(crate) pipelining: bool,
    pub(crate) eight_bit: bool,
    pub(crate) auth: bool,
    pub(crate) xclient: bool,
    pub(crate) xforward: bool,
    pub(crate) enhanced: bool,
    pub(crate) dsn: bool,
    pub(crate) chunking: bool,
    pub(crate) starttls: bool,
}

/// How long a reply is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delay {
    pub(crate) unit: Duration,
    /// Chance of one more unit, in percent, where given.
    pub(crate) odds: Option<u8>,
}

impl Delay {
    /// From `seconds[:odds]`.
    fn parse(text: &str) -> Result<Self, String> {
        let (seconds, odds) = text.split_once(':').map_or((text, None), |(s, o)| (s, Some(o)));
        let odds = odds.map(|o| match o.parse() {
            Ok(odds @ 1..=99) => Ok(odds),
            _ => Err(format!("odds are 1 to 99, not `{o}`")),
        });
        Ok(Self { unit: seconds_of(seconds)?, odds: odds.transpose()? })
    }

    /// Returns the length of this pause; `roll` gives 0 to 99. The die decides at most a thousand times.
    pub(crate) fn draw(self, mut roll: impl FnMut() -> u8) -> Duration {
        let Some(odds) = self.odds else { return self.unit };
        let rolls = (1..1000).take_while(|_| roll() < odds).count() + 1;
        self.unit * u32::try_from(rolls).unwrap_or(u32::MAX)
    }
}

/// Reads `command:delay[:odds]`, as -W takes it.
pub(crate) fn command_delay(text: &str) -> Result<(Verb, Delay), String> {
    let (verb, delay) =
        text.split_once(':').ok_or_else(|| format!("`{text}` is not command:delay[:odds]"))?;
    Ok((Verb::parse(verb)?, Delay::parse(delay)?))
}

/// Reads a reply that -b or -B sets: three digits that refuse, and a text on one line.
pub(crate) fn refusal(text: &str, class: char) -> Result<String, String> {
    let code = text.split(' ').next().unwrap_or_default();
    let good = code.len() == 3 && code.starts_with(class) && code.bytes().all(|b| b.is_ascii_digit());
    if !good || text.contains(['\r', '\n']) {
        return Err(format!("`{text}` is no {class}xx reply on one line"));
    }
    Ok(text.to_owned())
}

impl Default for Offer {
    fn default() -> Self {
        Self {
            esmtp: true,
            pipelining: true,
            eight_bit: true,
            auth: true,
            xclient: true,
            xforward: true,
            enhanced: true,
            dsn: true,
            chunking: true,
            starttls: false,
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            hostname: "postlab-sink".to_owned(),
            lmtp: false,
            offer: Offer::default(),
            pix: false,
            soft: VerbSet::default(),
            hard: VerbSet::default(),
            drop: VerbSet::default(),
            shut: VerbSet::default(),
            log: VerbSet::default(),
            soft_reply: "450 4.3.0 Error: command failed".to_owned(),
            hard_reply: "500 5.3.0 Error: command failed".to_owned(),
            abort_data: None,
            read_delay: None,
            delays: [None; COUNT],
            keeps_content: false,
            defer_percent: 0,
            greylist: None,
            verifies: false,
            verbose: false,
            known_user: None,
        }
    }
}

impl Rules {
    /// Verbs that are answered without looking at them.
    pub(crate) fn special(&self) -> VerbSet {
        self.soft.union(self.hard).union(self.drop).union(self.shut)
    }

    /// Returns the line of the greeting.
    pub(crate) fn greeting(&self) -> String {
        match (self.pix, self.lmtp, self.offer.esmtp) {
            (true, ..) => "220 ********".to_owned(),
            (_, true, _) => format!("220 {} LMTP", self.hostname),
            (_, _, true) => format!("220 {} ESMTP", self.hostname),
            (_, _, false) => format!("220 {}", self.hostname),
        }
    }

    /// Returns the mechanisms of AUTH. Any password cannot be proved by keys of one.
    pub(crate) fn mechanisms(&self) -> &'static [Mechanism] {
        use Mechanism::{Login, Plain, ScramSha1, ScramSha256};
        if self.known_user.is_some() { &[Plain, Login, ScramSha256, ScramSha1] } else { &[Plain, Login] }
    }

    /// Returns the reply to EHLO or LHLO, with CRLF. With TLS STARTTLS is not announced (RFC 3207 §4.2).
    pub(crate) fn hello(&self, is_secure: bool) -> String {
        let o = self.offer;
        let mechanisms: Vec<&str> = self.mechanisms().iter().map(|one| one.as_str()).collect();
        let mechanisms = format!("AUTH {}", mechanisms.join(" "));
        let keywords = [
            (o.pipelining && self.soft.union(self.hard).is_empty(), "PIPELINING"),
            (o.eight_bit, "8BITMIME"),
            (o.auth, mechanisms.as_str()),
            (o.xclient, "XCLIENT NAME HELO"),
            (o.xforward, "XFORWARD NAME ADDR PROTO HELO"),
            (o.enhanced, "ENHANCEDSTATUSCODES"),
            (o.dsn, "DSN"),
            (o.chunking, "CHUNKING"),
            (o.starttls && !is_secure, "STARTTLS"),
            (true, "SMTPUTF8"),
        ];
        let offered: Vec<&str> = keywords.iter().filter(|(yes, _)| *yes).map(|(_, word)| *word).collect();
        let mut lines = vec![self.hostname.as_str()];
        lines.extend(offered);
        let last = lines.len() - 1;
        let line = |(i, l)| format!("250{}{l}\r\n", if i == last { ' ' } else { '-' });
        lines.into_iter().enumerate().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_has_a_verb_seconds_and_perhaps_odds() {
        let two = Delay { unit: Duration::from_secs(2), odds: None };
        assert_eq!(command_delay("rcpt:2"), Ok((Verb::Rcpt, two)));
        assert_eq!(command_delay(".:2:50"), Ok((Verb::Dot, Delay { odds: Some(50), ..two })));
        for bad in ["RCPT", "RCPT:x", "RCPT:1:0", "RCPT:1:100", "WHAT:1", "RCPT:-1", "RCPT:inf", "RCPT:1e19"]
        {
            assert!(command_delay(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn odds_multiply_until_the_die_is_high_enough() {
        let delay = Delay { unit: Duration::from_secs(2), odds: Some(50) };
        let mut rolls = [49, 0, 50].into_iter();
        assert_eq!(delay.draw(|| rolls.next().unwrap()), Duration::from_secs(6));
        assert_eq!(delay.draw(|| 0), Duration::from_secs(2000), "it ends all the same");
    }

    #[test]
    fn only_a_refusal_on_one_line_is_taken_as_one() {
        assert!(refusal("450 4.2.0 later", '4').is_ok());
        for bad in ["250 ok", "45 x", "", "450 a\r\nb", "550 no"] {
            assert!(refusal(bad, '4').is_err(), "{bad}");
        }
    }

    #[test]
    fn refusing_commands_implies_no_pipelining() {
        assert!(Rules::default().hello(false).contains("250-PIPELINING\r\n"));
        let rules = Rules { soft: VerbSet::default().with(Verb::Rcpt), ..Rules::default() };
        assert!(!rules.hello(false).contains("PIPELINING"));
        assert!(rules.hello(false).ends_with("250 SMTPUTF8\r\n"));
    }
}
