//! Commands of the source that stand between EHLO and mail, and that the product's client session does not have: AUTH
//! (RFC 4954), and XCLIENT of Postfix.

use super::counts::Phase;
use crate::sink::Credentials;
use auth::{ChannelBindings, ClientCredentials, ClientExchange, Mechanism, Secret};
use data_encoding::BASE64;
use std::time::Instant;

/// AUTH or XCLIENT, from its first line to the last reply.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) phase: Phase,
    /// The first line, with CRLF, until it is sent.
    line: String,
    /// Of AUTH: the answers to challenges.
    auth: Option<ClientExchange>,
    /// When the last line was sent.
    pub(super) said: Instant,
}

/// What a reply asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Send this line next.
    Say(String),
    /// The server has accepted the command.
    Done,
    /// The server refused, or its reply does not fit.
    Failed,
}

impl Exchange {
    /// Authenticates with the mechanism that is asked for, or with the first of PLAIN and LOGIN that the server offers.
    ///
    /// # Errors
    /// The server does not offer it, or the credentials do not fit it.
    pub(super) fn auth(
        credentials: &Credentials,
        wanted: Option<Mechanism>,
        offered: &[String],
        now: Instant,
    ) -> Result<Self, String> {
        let Credentials { user, password } = credentials;
        if offered.is_empty() {
            return Err("AUTH is not offered, which --auth needs".to_owned());
        }
        let is_offered = |one: &Mechanism| offers(offered, one.as_str());
        let mechanism = match wanted {
            Some(wanted) => Some(wanted).filter(is_offered).ok_or_else(|| {
                format!("AUTH is offered without {wanted}, which --auth-mechanism asks for")
            })?,
            None => [Mechanism::Plain, Mechanism::Login].into_iter().find(is_offered).ok_or_else(|| {
                "AUTH is offered with neither PLAIN nor LOGIN: choose another with --auth-mechanism"
                    .to_owned()
            })?,
        };
        let credentials =
            ClientCredentials { user: user.as_str().into(), secret: Secret::new(password.as_str()) };
        let nonce = format!("{:032x}", fastrand::u128(..));
        let begun = ClientExchange::begin(mechanism, &credentials, &ChannelBindings::default(), &nonce);
        let (exchange, initial) = begun.map_err(|e| e.to_string())?;
        let line = match initial {
            Some(initial) if initial.is_empty() => format!("AUTH {mechanism} =\r\n"),
            Some(initial) => format!("AUTH {mechanism} {}\r\n", BASE64.encode(&initial)),
            None => format!("AUTH {mechanism}\r\n"),
        };
        Ok(Self { phase: Phase::Auth, line, auth: Some(exchange), said: now })
    }

    /// Tells the server of another client. The attributes are those of the command, such as `ADDR=192.0.2.1`.
    pub(super) fn xclient(attributes: &[String], now: Instant) -> Self {
        let line = format!("XCLIENT {}\r\n", attributes.join(" "));
        Self { phase: Phase::Xclient, line, auth: None, said: now }
    }

    /// Returns the first line.
    pub(super) fn begin(&mut self) -> String {
        std::mem::take(&mut self.line)
    }

    /// Takes code and text of a reply, and returns what follows.
    pub(super) fn reply(&mut self, code: u16, text: &[u8], now: Instant) -> Progress {
        self.said = now;
        match (code, self.phase, &mut self.auth) {
            (334, Phase::Auth, Some(exchange)) => {
                let challenge = BASE64.decode(text.trim_ascii()).ok();
                match challenge.and_then(|challenge| exchange.respond(&challenge).ok()) {
                    Some(response) => Progress::Say(format!("{}\r\n", BASE64.encode(&response))),
                    None => Progress::Failed,
                }
            }
            (235, Phase::Auth, Some(exchange)) if exchange.may_succeed() => Progress::Done,
            (220, Phase::Xclient, _) => Progress::Done,
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
            "`{text}` is not an attribute: write ADDR=192.0.2.1,NAME=mx.example; names are {}",
            NAMES.join(" ")
        )),
    }
}

/// Attributes that XCLIENT of Postfix takes.
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
        let auth = |words: &str| Exchange::auth(&credentials(), None, &offered(words), now);
        let mut plain = auth("LOGIN PLAIN").unwrap();
        assert_eq!(plain.begin(), "AUTH PLAIN AHUAcDpx\r\n");
        assert_eq!(plain.reply(235, b"ok", now), Progress::Done);
        let mut login = auth("CRAM-MD5 login").unwrap();
        assert_eq!(login.begin(), "AUTH LOGIN\r\n");
        assert_eq!(login.reply(334, b"VXNlcm5hbWU6\r\n", now), Progress::Say("dQ==\r\n".into()));
        assert_eq!(login.reply(334, b"", now), Progress::Say("cDpx\r\n".into()));
        assert_eq!(login.reply(334, b"", now), Progress::Failed);
        assert!(auth("CRAM-MD5").unwrap_err().contains("neither"));
        assert!(Exchange::auth(&credentials(), None, &[], now).unwrap_err().contains("not offered"));
        let scram = Some(Mechanism::ScramSha256);
        assert!(
            Exchange::auth(&credentials(), scram, &offered("PLAIN"), now).unwrap_err().contains("without")
        );
        let mut scram = Exchange::auth(&credentials(), scram, &offered("SCRAM-SHA-256"), now).unwrap();
        assert!(scram.begin().starts_with("AUTH SCRAM-SHA-256 "));
        // A server that has not proved itself is not believed.
        assert_eq!(scram.reply(235, b"ok", now), Progress::Failed);
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
