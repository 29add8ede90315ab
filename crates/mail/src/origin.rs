//! The source of a message. The text form is the one in the spool, in the log and in listings.

use std::{
    fmt::{self, Write as _},
    io::Write as _,
    net::IpAddr,
};

/// The source of a message.
///
/// [`Origin::parse`] and [`Display`](fmt::Display) are inverse: each text that a spool holds is written again as it was
/// read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// An SMTP client: `client=[192.0.2.1] helo=mail.test proto=ESMTPS`.
    Smtp {
        /// Where the connection came from, or what XCLIENT said.
        client: IpAddr,
        /// The name from EHLO or HELO, as one word: see [`Origin::smtp`].
        helo: Box<str>,
        /// `with` of the Received field.
        protocol: TransmissionType,
    },
    /// A user of this machine: `submit uid=1000`.
    Local {
        /// The user id, as the kernel reports it.
        uid: u32,
    },
    /// A DSN that this server composed: `dsn`. Only such messages may use the disk space that is reserved for outcomes
    /// and DSNs.
    Dsn,
    /// A DSN about a DSN of this server that could not be delivered, for the postmaster: `dsn double-bounce`. If it
    /// cannot be delivered, nothing follows.
    DoubleBounce,
    /// What no other variant has written; kept as it was read.
    Other(Box<str>),
}

/// The `with` protocol of a `Received` field (RFC 5321 §4.4, RFC 3848, RFC 6531 §4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransmissionType {
    /// HELO without TLS.
    Smtp,
    /// HELO with TLS; not registered, but in use.
    Smtps,
    /// EHLO without TLS or AUTH.
    Esmtp,
    /// EHLO with TLS.
    Esmtps,
    /// EHLO with AUTH.
    Esmtpa,
    /// EHLO with TLS and AUTH.
    Esmtpsa,
    /// EHLO and SMTPUTF8.
    Utf8Smtp,
    /// EHLO and SMTPUTF8 with TLS.
    Utf8Smtps,
    /// EHLO and SMTPUTF8 with AUTH.
    Utf8Smtpa,
    /// EHLO and SMTPUTF8 with TLS and AUTH.
    Utf8Smtpsa,
    /// LHLO.
    Lmtp,
    /// LHLO with TLS.
    Lmtps,
    /// LHLO and SMTPUTF8.
    Utf8Lmtp,
    /// LHLO and SMTPUTF8 with TLS.
    Utf8Lmtps,
}

impl TransmissionType {
    const ALL: [Self; 14] = [
        Self::Smtp,
        Self::Smtps,
        Self::Esmtp,
        Self::Esmtps,
        Self::Esmtpa,
        Self::Esmtpsa,
        Self::Utf8Smtp,
        Self::Utf8Smtps,
        Self::Utf8Smtpa,
        Self::Utf8Smtpsa,
        Self::Lmtp,
        Self::Lmtps,
        Self::Utf8Lmtp,
        Self::Utf8Lmtps,
    ];

    /// Returns the name as it stands in a `Received` field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Smtp => "SMTP",
            Self::Smtps => "SMTPS",
            Self::Esmtp => "ESMTP",
            Self::Esmtps => "ESMTPS",
            Self::Esmtpa => "ESMTPA",
            Self::Esmtpsa => "ESMTPSA",
            Self::Utf8Smtp => "UTF8SMTP",
            Self::Utf8Smtps => "UTF8SMTPS",
            Self::Utf8Smtpa => "UTF8SMTPA",
            Self::Utf8Smtpsa => "UTF8SMTPSA",
            Self::Lmtp => "LMTP",
            Self::Lmtps => "LMTPS",
            Self::Utf8Lmtp => "UTF8LMTP",
            Self::Utf8Lmtps => "UTF8LMTPS",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }
}

impl fmt::Display for TransmissionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Origin {
    /// An SMTP client that named itself `hello`. Spaces and characters that cannot be printed are escaped in the name,
    /// so that it can neither end a line nor look like another field.
    pub fn smtp(client: IpAddr, hello: &str, protocol: TransmissionType) -> Self {
        let is_word = hello.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
        let helo = if is_word { hello.into() } else { escaped(hello).into() };
        Self::Smtp { client, helo, protocol }
    }

    /// Reads the text form. A text of no known form becomes [`Origin::Other`].
    pub fn parse(text: &str) -> Self {
        if text == "dsn" {
            return Self::Dsn;
        }
        if text == "dsn double-bounce" {
            return Self::DoubleBounce;
        }
        parse_smtp(text).or_else(|| parse_local(text)).unwrap_or_else(|| Self::Other(text.into()))
    }

    /// Returns a length that the text form does not exceed, in bytes.
    pub fn text_bytes_max(&self) -> usize {
        match self {
            Self::Smtp { helo, .. } => 80 + helo.len(),
            Self::Local { .. } | Self::Dsn | Self::DoubleBounce => 32,
            Self::Other(text) => text.len(),
        }
    }
}

fn parse_smtp(text: &str) -> Option<Origin> {
    let rest = text.strip_prefix("client=[")?;
    let (address, rest) = rest.split_at(memchr::memchr(b']', rest.as_bytes())?);
    let rest = rest.strip_prefix("] helo=")?;
    let (helo, protocol) = rest.split_at(memchr::memrchr(b' ', rest.as_bytes())?);
    let protocol = TransmissionType::parse(protocol.strip_prefix(" proto=")?)?;
    let client = match address.parse::<IpAddr>().ok()? {
        // The standard library reads only one form of an IPv4 address.
        client @ IpAddr::V4(_) => client,
        client @ IpAddr::V6(_) => is_written_as(&client, address).then_some(client)?,
    };
    Some(Origin::Smtp { client, helo: helo.into(), protocol })
}

fn parse_local(text: &str) -> Option<Origin> {
    let digits = text.strip_prefix("submit uid=")?;
    let uid = digits.parse::<u32>().ok()?;
    is_written_as(&uid, digits).then_some(Origin::Local { uid })
}

/// Returns whether `value` is displayed as `text`; does not allocate.
fn is_written_as(value: &dyn fmt::Display, text: &str) -> bool {
    struct Rest<'a>(&'a str);
    impl fmt::Write for Rest<'_> {
        fn write_str(&mut self, s: &str) -> fmt::Result {
            self.0 = self.0.strip_prefix(s).ok_or(fmt::Error)?;
            Ok(())
        }
    }
    let mut rest = Rest(text);
    write!(rest, "{value}").is_ok() && rest.0.is_empty()
}

fn escaped(word: &str) -> String {
    let mut out = String::with_capacity(word.len() + 8);
    for c in word.chars() {
        match c {
            ' ' => out.push_str("\\x20"),
            '\'' | '"' => out.push(c),
            c => out.extend(c.escape_debug()),
        }
    }
    out
}

/// The decimal digits of an IPv4 address with its dots, and their count.
fn ipv4_text(octets: [u8; 4]) -> ([u8; 15], usize) {
    let (mut text, mut len) = ([0; 15], 0);
    let mut push = |byte: u8| {
        text[len] = byte;
        len += 1;
    };
    for (number, octet) in octets.into_iter().enumerate() {
        if number > 0 {
            push(b'.');
        }
        if octet > 99 {
            push(b'0' + octet / 100);
        }
        if octet > 9 {
            push(b'0' + octet / 10 % 10);
        }
        push(b'0' + octet % 10);
    }
    (text, len)
}

impl Origin {
    /// Appends the text form. Of each message it is stored and logged, and the formatting machinery costs more than the
    /// text.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Smtp { client, helo, protocol } => {
                out.extend_from_slice(b"client=[");
                match client {
                    IpAddr::V4(ip) => {
                        let (text, len) = ipv4_text(ip.octets());
                        out.extend_from_slice(&text[..len]);
                    }
                    IpAddr::V6(ip) => {
                        let _ = write!(out, "{ip}");
                    }
                }
                out.extend_from_slice(b"] helo=");
                out.extend_from_slice(helo.as_bytes());
                out.extend_from_slice(b" proto=");
                out.extend_from_slice(protocol.as_str().as_bytes());
            }
            Self::Local { uid } => {
                let _ = write!(out, "submit uid={uid}");
            }
            Self::Dsn => out.extend_from_slice(b"dsn"),
            Self::DoubleBounce => out.extend_from_slice(b"dsn double-bounce"),
            Self::Other(text) => out.extend_from_slice(text.as_bytes()),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(self.text_bytes_max());
        self.write_to(&mut text);
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl From<&str> for Origin {
    fn from(text: &str) -> Self {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_word_of_a_client_is_one_word_of_one_line() {
        for (text, word) in [
            ("mail.test", "mail.test"),
            ("my pc proto=ESMTPS", "my\\x20pc\\x20proto=ESMTPS"),
            ("O'Brien\\x", "O'Brien\\\\x"),
            ("b\u{fc}\u{fffd}", "b\u{fc}\u{fffd}"),
            ("a\u{2028}b\u{202e}c\u{85}", "a\\u{2028}b\\u{202e}c\\u{85}"),
        ] {
            let origin = Origin::smtp("192.0.2.1".parse().unwrap(), text, TransmissionType::Esmtp);
            let line = format!("client=[192.0.2.1] helo={word} proto=ESMTP");
            assert_eq!(origin.to_string(), line, "{text:?}");
            assert_eq!(Origin::parse(&line), origin);
        }
    }

    #[test]
    fn each_form_has_its_type() {
        let helo = |text: &str| match Origin::parse(text) {
            Origin::Smtp { helo, .. } => helo.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(helo("client=[2001:db8::1] helo=a proto=UTF8SMTPS"), "a");
        assert_eq!(helo("client=[192.0.2.1] helo= proto=SMTP"), "");
        assert_eq!(helo("client=[192.0.2.1] helo=a b proto=SMTPS"), "a b", "before names were escaped");
        assert_eq!(Origin::parse("submit uid=0"), Origin::Local { uid: 0 });
        assert_eq!(Origin::parse("dsn"), Origin::Dsn);
        assert_eq!(Origin::parse("dsn double-bounce"), Origin::DoubleBounce);
    }

    #[test]
    fn a_text_of_no_known_form_is_kept_as_it_is() {
        for text in [
            "",
            "test",
            "dsn ",
            "submit uid=",
            "submit uid=+1",
            "submit uid=007",
            "submit uid=4294967296",
            "client=[192.0.2.1]",
            "client=[192.0.2.1] helo=a proto=QMTP",
            "client=[2001:DB8::1] helo=a proto=SMTP",
            "client=mail.test[192.0.2.1] helo=a proto=SMTP",
        ] {
            assert_eq!(Origin::parse(text), Origin::Other(text.into()));
        }
    }

    #[test]
    fn addresses_are_written_as_the_standard_library_writes_them() {
        for client in ["0.0.0.0", "1.10.100.255", "192.0.2.1", "::1", "2001:db8::a", "::ffff:192.0.2.1"] {
            let origin = Origin::smtp(client.parse().unwrap(), "x", TransmissionType::Smtp);
            assert_eq!(origin.to_string(), format!("client=[{client}] helo=x proto=SMTP"));
            assert_eq!(Origin::parse(&origin.to_string()), origin);
        }
    }

    proptest! {
        #[test]
        fn each_text_is_written_as_it_was_read(
            text in "(client=\\[)?(192\\.0\\.2\\.1|2001:db8::[0-9A-Fa-f]{1,4}|::|.{0,8})(\\] helo=)?.{0,6}( proto=)?(ESMTPS|SMTP|[a-z]*)|submit uid=[0-9]{0,11}|dsn.?|.*"
        ) {
            let origin = Origin::parse(&text);
            prop_assert_eq!(origin.to_string(), text);
            prop_assert!(origin.text_bytes_max() >= origin.to_string().len());
        }
    }
}
