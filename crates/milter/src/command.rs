//! What the server tells a filter.

use crate::{Steps, wire::push_string};
use std::{fmt, net::SocketAddr};

/// A stage of the conversation: the kind of a command, and what an answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// OPTNEG: versions, actions and stages.
    Negotiation,
    /// A connection.
    Connect,
    /// HELO, EHLO or LHLO.
    Hello,
    /// MAIL.
    Mail,
    /// RCPT.
    Recipient,
    /// DATA, or the first BDAT.
    Data,
    /// A header field.
    Header,
    /// The end of the header.
    EndOfHeaders,
    /// A chunk of the body.
    Body,
    /// The end of the message.
    EndOfMessage,
    /// A command that the server does not know.
    Unknown,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Negotiation => "the negotiation",
            Self::Connect => "the connection",
            Self::Hello => "HELO",
            Self::Mail => "MAIL",
            Self::Recipient => "RCPT",
            Self::Data => "DATA",
            Self::Header => "a header field",
            Self::EndOfHeaders => "the end of the header",
            Self::Body => "a chunk of the body",
            Self::EndOfMessage => "the end of the message",
            Self::Unknown => "an unknown command",
        })
    }
}

/// The peer of an SMTP session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer<'a> {
    /// An address and port. An IPv4 address in IPv6 (`::ffff:192.0.2.1`) is sent as IPv4.
    Inet(SocketAddr),
    /// A Unix socket: its path, which may be empty.
    Unix(&'a str),
    /// The peer is not known.
    Unknown,
}

/// What happened in the SMTP session. Texts have no NUL: the protocol cannot say it, and a space is sent for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command<'a> {
    /// A client connected.
    Connect {
        /// Its verified name, or its address in square brackets.
        host: &'a str,
        /// Its address.
        peer: Peer<'a>,
    },
    /// HELO, EHLO or LHLO.
    Hello {
        /// The name that the client gave.
        name: &'a str,
    },
    /// MAIL.
    Mail {
        /// The sender, without angle brackets; empty for `<>`.
        sender: &'a str,
        /// ESMTP parameters, such as `SIZE=1000`.
        parameters: &'a [&'a str],
    },
    /// RCPT.
    Recipient {
        /// The recipient, without angle brackets.
        recipient: &'a str,
        /// ESMTP parameters, such as `NOTIFY=NEVER`.
        parameters: &'a [&'a str],
        /// The server has rejected the recipient. Few filters ask for these; the macros `{rcpt_mailer}` `error`,
        /// `{rcpt_host}` (enhanced status code) and `{rcpt_addr}` (text) tell them why, and the verdict is of no use.
        is_rejected: bool,
    },
    /// DATA, or the first BDAT.
    Data,
    /// A header field.
    Header {
        /// What stands before the colon.
        name: &'a [u8],
        /// What stands between the colon and the CRLF at the end of the field, folded or not.
        value: &'a [u8],
    },
    /// The end of the header.
    EndOfHeaders,
    /// A chunk of the body, of at most [`crate::Session::chunk_max_bytes`]; an empty chunk is not sent. Chunks may be split
    /// anywhere.
    Body(&'a [u8]),
    /// The end of the message.
    EndOfMessage,
    /// A command that the server does not know, without CRLF.
    Unknown {
        /// The whole line, without CRLF.
        line: &'a [u8],
    },
}

impl Command<'_> {
    /// Returns the command's stage.
    pub const fn stage(&self) -> Stage {
        match self {
            Self::Connect { .. } => Stage::Connect,
            Self::Hello { .. } => Stage::Hello,
            Self::Mail { .. } => Stage::Mail,
            Self::Recipient { .. } => Stage::Recipient,
            Self::Data => Stage::Data,
            Self::Header { .. } => Stage::Header,
            Self::EndOfHeaders => Stage::EndOfHeaders,
            Self::Body(_) => Stage::Body,
            Self::EndOfMessage => Stage::EndOfMessage,
            Self::Unknown { .. } => Stage::Unknown,
        }
    }

    /// The octet that says which packet it is (`SMFIC_*`).
    pub(crate) const fn kind(&self) -> u8 {
        match self {
            Self::Connect { .. } => b'C',
            Self::Hello { .. } => b'H',
            Self::Mail { .. } => b'M',
            Self::Recipient { .. } => b'R',
            Self::Data => b'T',
            Self::Header { .. } => b'L',
            Self::EndOfHeaders => b'N',
            Self::Body(_) => b'B',
            Self::EndOfMessage => b'E',
            Self::Unknown { .. } => b'U',
        }
    }

    /// Appends the data of the packet.
    pub(crate) fn push(&self, steps: Steps, out: &mut Vec<u8>) {
        match self {
            Self::Connect { host, peer } => {
                push_string(out, host.as_bytes());
                peer.push(out);
            }
            Self::Hello { name } => push_string(out, name.as_bytes()),
            Self::Mail { sender: address, parameters }
            | Self::Recipient { recipient: address, parameters, .. } => {
                push_string(out, format!("<{address}>").as_bytes());
                parameters.iter().for_each(|parameter| push_string(out, parameter.as_bytes()));
            }
            Self::Header { name, value } => {
                push_string(out, name);
                // Sendmail takes off a space, and only one; and lines end in LF.
                let keeps_space = steps.contains(Steps::LEADING_SPACE);
                let value = value.strip_prefix(b" ").filter(|_| !keeps_space).unwrap_or(value);
                let is_break = |at: usize| value[at..].starts_with(b"\r\n");
                let bytes = value.iter().enumerate().filter(|(at, _)| !is_break(*at));
                push_string(out, &bytes.map(|(_, byte)| *byte).collect::<Vec<_>>());
            }
            Self::Body(chunk) => out.extend_from_slice(chunk),
            Self::Unknown { line } => push_string(out, line),
            Self::Data | Self::EndOfHeaders | Self::EndOfMessage => {}
        }
    }
}

impl Peer<'_> {
    fn push(self, out: &mut Vec<u8>) {
        let (family, port, address) = match self {
            Self::Inet(address) => {
                let ip = address.ip().to_canonical();
                (if ip.is_ipv4() { b'4' } else { b'6' }, address.port(), ip.to_string())
            }
            Self::Unix(path) => (b'L', 0, path.to_owned()),
            Self::Unknown => return out.push(b'U'),
        };
        out.push(family);
        out.extend_from_slice(&port.to_be_bytes());
        push_string(out, address.as_bytes());
    }
}
