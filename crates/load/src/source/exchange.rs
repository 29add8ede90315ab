//! Commands of the source that stand between EHLO and mail, and that the product's client session does not have: AUTH
//! (RFC 4954) with PLAIN or LOGIN, and XCLIENT of Postfix.

use super::counts::Phase;
use crate::sink::Credentials;
use data_encoding::BASE64;
use std::{collections::VecDeque, time::Instant};

/// A command whose replies are awaited, with the lines that follow its challenges.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) phase: Phase,
    /// The lines still to be sent, with CRLF.
    lines: VecDeque<String>,
    /// The time of the last line.
    pub(super) said: Instant,
}

/// The meaning of a reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Send this line next.
    Say(String),
    /// The command succeeded.
    Done,
    /// The server refused, or its reply does not fit.
    Failed,
}

impl Exchange {
    /// Authenticates with a mechanism of those that the server offers: PLAIN, or else LOGIN.
    ///
    /// # Errors
    /// The server offers neither.
    pub(super) fn auth(credentials: &Credentials, offered: &[String], now: Instant) -> Result<Self, String> {
        let Credentials { user, password } = credentials;
        let lines = if offers(offered, "PLAIN") {
            vec![format!("AUTH PLAIN {}\r\n", BASE64.encode(format!("\0{user}\0{password}").as_bytes()))]
        } else if offers(offered, "LOGIN") {
            let line = |text: &str| format!("{}\r\n", BASE64.encode(text.as_bytes()));
            vec!["AUTH LOGIN\r\n".to_owned(), line(user), line(password)]
        } else if offered.is_empty() {
            return Err("AUTH is not offered, which --auth needs".to_owned());
        } else {
            return Err("AUTH is offered with neither PLAIN nor LOGIN, which --auth needs".to_owned());
        };
        Ok(Self { phase: Phase::Auth, lines: lines.into(), said: now })
    }

    /// Tells the server of another client. The attributes are those of the command, such as `ADDR=192.0.2.1`.
    pub(super) fn xclient(attributes: &[String], now: Instant) -> Self {
        let line = format!("XCLIENT {}\r\n", attributes.join(" "));
        Self { phase: Phase::Xclient, lines: VecDeque::from([line]), said: now }
    }

    /// Returns the first line.
    pub(super) fn begin(&mut self) -> String {
        self.lines.pop_front().unwrap_or_default()
    }

    /// Takes the code of a reply.
    pub(super) fn reply(&mut self, code: u16, now: Instant) -> Progress {
        self.said = now;
        match (code, self.phase) {
            (334, Phase::Auth) => self.lines.pop_front().map_or(Progress::Failed, Progress::Say),
            (235, Phase::Auth) | (220, Phase::Xclient) => Progress::Done,
            _ => Progress::Failed,
        }
    }
}

fn offers(offered: &[String], mechanism: &str) -> bool {
    offered.iter().any(|one| one.eq_ignore_ascii_case(mechanism))
}

/// Returns the parameters of a keyword in the reply to EHLO; none if it is not offered.
pub(super) fn parameters(reply: &[u8], keyword: &str) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(reply);
    text.lines().skip(1).find_map(|line| {
        // `AUTH=PLAIN` is an old form.
        let mut words = line.get(4..)?.split([' ', '=']).filter(|word| !word.is_empty());
        words.next()?.eq_ignore_ascii_case(keyword).then(|| words.map(str::to_owned).collect())
    })
}

/// The attributes of XCLIENT, checked: `ADDR=192.0.2.1,NAME=mx.example`.
///
/// # Errors
/// An attribute has no name, no value, or characters that end it.
pub(super) fn attributes_of(text: &str) -> Result<String, String> {
    let good = |value: &str| !value.is_empty() && value.bytes().all(|b| b.is_ascii_graphic());
    match text.split_once('=') {
        Some((name, value)) if good(value) && NAMES.iter().any(|one| one.eq_ignore_ascii_case(name)) => {
            Ok(format!("{}={value}", name.to_ascii_uppercase()))
        }
        _ => Err(format!(
            "`{text}` is no attribute: write ADDR=192.0.2.1,NAME=mx.example; names are {}",
            NAMES.join(" ")
        )),
    }
}

/// The attributes that Postfix has.
const NAMES: [&str; 8] = ["ADDR", "NAME", "PORT", "PROTO", "HELO", "LOGIN", "DESTADDR", "DESTPORT"];

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials() -> Credentials {
        Credentials::parse("u:p:q").unwrap()
    }

    #[test]
    fn plain_is_one_line_and_login_has_three() {
        let offered =
            |words: &str| parameters(format!("250-x\r\n250 AUTH {words}\r\n").as_bytes(), "AUTH").unwrap();
        let now = Instant::now();
        let mut plain = Exchange::auth(&credentials(), &offered("LOGIN PLAIN"), now).unwrap();
        assert_eq!(plain.begin(), "AUTH PLAIN AHUAcDpx\r\n");
        assert_eq!(plain.reply(235, now), Progress::Done);
        let mut login = Exchange::auth(&credentials(), &offered("CRAM-MD5 login"), now).unwrap();
        assert_eq!(login.begin(), "AUTH LOGIN\r\n");
        assert_eq!(login.reply(334, now), Progress::Say("dQ==\r\n".into()));
        assert_eq!(login.reply(334, now), Progress::Say("cDpx\r\n".into()));
        assert_eq!(login.reply(334, now), Progress::Failed);
        assert!(Exchange::auth(&credentials(), &offered("CRAM-MD5"), now).unwrap_err().contains("neither"));
        assert!(Exchange::auth(&credentials(), &[], now).unwrap_err().contains("not offered"));
    }

    #[test]
    fn parameters_stand_behind_their_keyword() {
        let reply = b"250-AUTH PLAIN\r\n250-auth=LOGIN\r\n250 CHUNKING\r\n";
        assert_eq!(parameters(reply, "AUTH"), Some(vec!["LOGIN".to_owned()]));
        assert_eq!(parameters(reply, "CHUNKING"), Some(Vec::new()));
        assert_eq!(parameters(reply, "XCLIENT"), None);
    }

    #[test]
    fn attributes_have_a_known_name_and_a_value() {
        assert_eq!(attributes_of("addr=192.0.2.1").unwrap(), "ADDR=192.0.2.1");
        for bad in ["ADDR", "ADDR=", "WHO=x", "NAME=a b", "=x"] {
            assert!(attributes_of(bad).is_err(), "{bad}");
        }
    }
}
