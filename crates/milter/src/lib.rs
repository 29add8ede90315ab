//! The mail server's side of the milter protocol, by which a filter that was written for Sendmail or Postfix sees each SMTP
//! session and judges and changes its messages.
//!
//! Pure: bytes in, bytes out. Whoever drives a [`Session`] opens the socket, reads, writes, and gives up on a filter that takes
//! too long. Read [`Session`], [`Command`] and [`Event`] first.
//!
//! # The protocol
//!
//! No RFC describes it; the references are Sendmail's `libmilter` and what Postfix does. Both sides send packets: a length of four
//! octets (big-endian, not counting itself), one octet that says which packet it is, and its data: numbers of four octets, and
//! strings that end in a NUL.
//!
//! 1. The server offers a version (2 to 6), the *actions* that it lets the filter take, such as adding a header field, and the
//!    *steps* of the protocol that can be left out. The filter answers with the version and the part of both that it wants, and may
//!    list the macros that it wants at each stage.
//! 2. Each stage of the SMTP session is a command: connect, HELO, MAIL, each RCPT, DATA, each header field, the end of the header,
//!    the body in chunks, the end of the message. A packet with macros, such as `{auth_authen}`, may stand before a command.
//! 3. The filter answers each command with one verdict: continue, accept, reject, and so on. It sends none to commands for which
//!    it negotiated that; and to commands that it does not want, the server sends nothing.
//! 4. Before a verdict, a filter may ask for patience ("in progress"); at the end of the message, changes may stand there, too.
//! 5. *Accept* ends the conversation about the message; at connect and HELO, *accept* and *reject* end it for the connection. A
//!    recipient that is rejected leaves the message as it is.
//! 6. *Abort* ends a message early, without an answer. *Quit* ends the conversation; from version 6 on, another command makes the
//!    same socket serve the next SMTP session.
//!
//! ```
//! use milter::{Command, Event, Expect, Offer, Peer, Session, Verdict};
//!
//! let mut out = Vec::new();
//! let mut session = Session::new(&Offer::default(), &mut out);
//! // A driver would write `out`, and read. This filter can do nothing, and answers to commands of all kinds.
//! let mut input: &[u8] = b"\0\0\0\x0dO\0\0\0\x06\0\0\0\0\0\0\0\0";
//! assert_eq!(session.receive(&mut input)?, Some(Event::Negotiated));
//!
//! out.clear();
//! let command = Command::Connect { host: "client.test", peer: Peer::Inet("192.0.2.1:2525".parse()?) };
//! assert_eq!(session.send(&command, &[], &mut out)?, Expect::Answer);
//! assert_eq!(out, b"\0\0\0\x1aCclient.test\x004\x09\xdd192.0.2.1\0");
//! let mut input: &[u8] = b"\0\0\0\x01c";
//! assert_eq!(session.receive(&mut input)?, Some(Event::Verdict(Verdict::Continue)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod command;
mod error;
mod macros;
mod negotiation;
mod reply;
mod session;
mod wire;

pub use answer::{Edit, Event, Verdict};
pub use command::{Command, Peer, Stage};
pub use error::{ProtocolError, SendError};
pub use macros::Macro;
pub use negotiation::{Actions, Offer, Steps};
pub use session::{Expect, Session};
