//! Every fixed reply of the server session, in one table: code, enhanced code (RFC 3463), text.

use mail::{Enhanced, Reply};

/// Declares the replies, so that each stands on one line and [`ALL`] can be checked and documented.
macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident = $code:literal $class:literal.$subject:literal.$detail:literal $text:literal;)*) => {
        $($(#[$doc])* pub const $name: Reply = Reply::fixed($code, Enhanced($class, $subject, $detail), $text);)*
        /// All of them, by name.
        pub const ALL: &[(&str, Reply)] = &[$((stringify!($name), $name)),*];
    };
}

// `5 . 5 . 2` with spaces: without them `5.5` would be read as a float.
replies! {
    /// To MAIL and accepted senders.
    SENDER_OK = 250 2 . 1 . 0 "Ok";
    /// To RCPT.
    RECIPIENT_OK = 250 2 . 1 . 5 "Ok";
    /// To NOOP and RSET.
    OK = 250 2 . 0 . 0 "Ok";
    /// To QUIT.
    BYE = 221 2 . 0 . 0 "Bye";
    /// To VRFY: RFC 5321 §3.5.3 lets a server say neither yes nor no.
    CANNOT_VERIFY = 252 2 . 0 . 0 "Cannot verify the address, but will take mail for it and try to deliver";
    /// To VRFY and EXPN without SMTPUTF8 (RFC 6531 §3.7.4.2).
    NEEDS_SMTPUTF8_REPLY = 252 2 . 6 . 8 "The answer has letters outside of ASCII: repeat the command with SMTPUTF8";
    /// To HELP.
    HELP = 214 2 . 0 . 0 "Commands: EHLO HELO MAIL RCPT DATA RSET NOOP VRFY HELP QUIT (RFC 5321), and what EHLO lists";
    /// To STARTTLS.
    GO_TLS = 220 2 . 0 . 0 "Ready to start TLS";
    /// To the end of data when its driver has nothing of its own to say.
    ACCEPTED = 250 2 . 0 . 0 "Ok: queued";

    /// To MAIL with a priority above what the client may have (RFC 6710 §4.1).
    PRIORITY_LOWERED = 250 2 . 3 . 6 "Ok, with a lower priority";
    /// To XFORWARD.
    XFORWARD_OK = 250 2 . 0 . 0 "Ok";
    /// To ETRN of a domain and its subdomains (RFC 1985 §5.3).
    QUEUING_STARTED = 250 2 . 0 . 0 "Ok, queuing started";
    /// To ETRN.
    NOTHING_QUEUED = 251 2 . 0 . 0 "Ok, no messages are waiting";

    /// No command of ours.
    UNKNOWN_COMMAND = 500 5 . 5 . 2 "Command not recognized";
    /// NUL in a command line.
    NUL_IN_COMMAND = 500 5 . 5 . 2 "NUL characters are not allowed in commands";
    /// Another control character, or a bare CR or LF.
    CONTROL_IN_COMMAND = 500 5 . 5 . 2 "Control characters are not allowed in commands";
    /// Not UTF-8 (RFC 6531 §3.1).
    INVALID_UTF8 = 500 5 . 5 . 2 "Command is not valid UTF-8";
    /// Over [`crate::Limits::command_line_bytes`].
    LINE_TOO_LONG = 500 5 . 5 . 2 "Line too long";
    /// A bare LF ended a command line.
    BARE_LF_IN_COMMAND = 500 5 . 5 . 2 "Lines end in CR LF";
    /// Arguments of the wrong form.
    SYNTAX = 501 5 . 5 . 4 "Syntax: MAIL FROM:<address> or RCPT TO:<address>";
    /// EHLO without a name.
    BAD_HELLO = 501 5 . 5 . 4 "Syntax: EHLO hostname";
    /// VRFY without an address.
    ARGUMENT_NEEDED = 501 5 . 5 . 4 "An argument is needed";
    /// DATA, RSET, QUIT, STARTTLS with one.
    NO_ARGUMENT_ALLOWED = 501 5 . 5 . 4 "No argument is allowed";
    /// Known parameter, bad value, or given twice.
    BAD_PARAMETER = 501 5 . 5 . 4 "Bad parameter value";
    /// ETRN without a domain.
    BAD_NODE = 501 5 . 5 . 4 "Syntax: ETRN domain or ETRN @domain";
    /// HOLDFOR or HOLDUNTIL beyond what EHLO's reply says (RFC 4865 §4).
    HOLD_TOO_LONG = 501 5 . 5 . 4 "Messages are not held for so long";
    /// BY with the mode R that is over, or below what EHLO's reply says (RFC 2852 §4).
    DEADLINE_TOO_SOON = 501 5 . 5 . 4 "The time of BY is too short";
    /// XCLIENT or XFORWARD with an unknown attribute, or a value that is none.
    BAD_ATTRIBUTE = 501 5 . 5 . 4 "Bad attribute";
    /// RFC 5321 §4.1.1.11.
    UNKNOWN_PARAMETER = 555 5 . 5 . 4 "Parameter not recognized";
    /// MAIL's path.
    BAD_SENDER = 501 5 . 1 . 7 "Bad sender address syntax";
    /// MAIL's path without brackets.
    SENDER_WITHOUT_BRACKETS = 501 5 . 1 . 7 "Bad sender address syntax: write MAIL FROM:<user@example.com>";
    /// RCPT's path.
    BAD_RECIPIENT = 501 5 . 1 . 3 "Bad recipient address syntax";
    /// RCPT's path without brackets.
    RECIPIENT_WITHOUT_BRACKETS = 501 5 . 1 . 3 "Bad recipient address syntax: write RCPT TO:<user@example.com>";
    /// RFC 6531 §3.5.
    NEEDS_SMTPUTF8 = 553 5 . 6 . 7 "A non-ASCII address needs the SMTPUTF8 parameter";
    /// A command of the standard that is not offered.
    NOT_OFFERED = 502 5 . 5 . 1 "Command not implemented";
    /// An HTTP client, perhaps made to talk to us (ALPACA): closes.
    WRONG_PROTOCOL = 221 2 . 7 . 0 "This is a mail server. Goodbye";

    /// MAIL before EHLO.
    HELLO_FIRST = 503 5 . 5 . 1 "Send EHLO first";
    /// MAIL inside a transaction.
    NESTED_MAIL = 503 5 . 5 . 1 "A transaction is open already";
    /// RCPT or DATA without MAIL.
    MAIL_FIRST = 503 5 . 5 . 1 "Send MAIL first";
    /// Anything but BDAT, RSET, QUIT or NOOP after the first BDAT (RFC 3030 §2).
    CHUNKS_OPEN = 503 5 . 5 . 1 "A BDAT transaction is open: BDAT or RSET expected";
    /// DATA when every RCPT was refused (RFC 5321 §3.3).
    NO_RECIPIENTS = 554 5 . 5 . 1 "No valid recipients";
    /// DATA for BODY=BINARYMIME (RFC 3030 §3).
    BINARY_NEEDS_BDAT = 503 5 . 5 . 1 "BODY=BINARYMIME needs BDAT";
    /// BDAT without a readable size: the chunk cannot be distinguished from commands. Closes.
    BAD_CHUNK_SIZE = 501 5 . 5 . 4 "Syntax: BDAT size [LAST]; closing, as the chunk cannot be skipped";
    /// A BDAT of no octets that is not the last, which could go on for ever.
    NULL_CHUNK = 551 5 . 7 . 1 "An empty BDAT chunk must be the LAST";
    /// STARTTLS without a certificate.
    NO_TLS = 502 5 . 5 . 1 "TLS is not available";
    /// STARTTLS twice.
    TLS_ACTIVE = 554 5 . 5 . 1 "TLS is already active";
    /// STARTTLS inside a transaction (RFC 3207 §4).
    TLS_IN_TRANSACTION = 503 5 . 5 . 1 "STARTTLS is not allowed in a transaction";

    /// XCLIENT or XFORWARD of a peer that is not listed.
    NOT_LISTED = 550 5 . 7 . 0 "Not permitted for this client";
    /// XCLIENT, XFORWARD or ETRN inside a transaction.
    NOT_IN_TRANSACTION = 503 5 . 5 . 1 "Not allowed in a transaction";
    /// ETRN that cannot be carried out (RFC 1985 §5.3).
    CANNOT_QUEUE = 458 4 . 3 . 0 "Unable to queue messages";
    /// ETRN of a client that may not, or for a domain that is not queued for (RFC 1985 §5.3).
    NODE_NOT_ALLOWED = 459 4 . 7 . 1 "Node not allowed";

    /// AUTH, at the end of an exchange that succeeded (RFC 4954 §6).
    AUTHENTICATED = 235 2 . 7 . 0 "Authentication succeeded";
    /// AUTH without a mechanism, or with too many words.
    AUTH_SYNTAX = 501 5 . 5 . 4 "Syntax: AUTH mechanism [initial-response]";
    /// AUTH inside a transaction (RFC 4954 §4).
    AUTH_IN_TRANSACTION = 503 5 . 5 . 1 "AUTH is not allowed in a transaction";
    /// AUTH after one that succeeded (RFC 4954 §4).
    AUTHENTICATED_ALREADY = 503 5 . 5 . 1 "Already authenticated";
    /// AUTH in clear text where that is not allowed.
    AUTH_NEEDS_TLS = 538 5 . 7 . 11 "Encryption is needed for authentication: send STARTTLS first";
    /// EHLO or HELO where LMTP is spoken (RFC 2033 §4.1).
    USE_LHLO = 500 5 . 5 . 1 "This is LMTP: send LHLO";
    /// A command in clear text on a listener that needs TLS (RFC 3207 §4).
    TLS_FIRST = 530 5 . 7 . 0 "Encryption is needed: send STARTTLS first";
    /// MAIL without a login on a listener that needs one (RFC 4954 §6).
    LOGIN_FIRST = 530 5 . 7 . 0 "Authentication is needed: send AUTH first";
    /// AUTH that failed: no such user, or a wrong secret (RFC 4954 §6).
    BAD_CREDENTIALS = 535 5 . 7 . 8 "Authentication failed: wrong user name or password";
    /// AUTH that failed once too often. Closes.
    TOO_MANY_FAILED_LOGINS = 421 4 . 7 . 0 "Too many failed logins";
    /// A response that is no message of the mechanism.
    BAD_AUTH_MESSAGE = 501 5 . 5 . 2 "Cannot understand the authentication message";
    /// MAIL with a sender that the login may not use (RFC 6409 §6.1).
    NOT_YOUR_ADDRESS = 553 5 . 7 . 1 "Sender address not owned by the login";
    /// A client that may not use the listener. Closes.
    NO_ACCESS = 554 5 . 7 . 1 "Access denied: this server relays for its own networks only";
    /// AUTH with a mechanism that the listener does not have.
    UNKNOWN_MECHANISM = 504 5 . 5 . 4 "Authentication mechanism not supported";
    /// A response that is not base64.
    BAD_BASE64 = 501 5 . 5 . 2 "Cannot decode base64";
    /// A line of an exchange beyond 12,288 octets.
    AUTH_LINE_TOO_LONG = 500 5 . 5 . 6 "Authentication line too long";
    /// `*` in place of a response.
    AUTH_CANCELLED = 501 5 . 7 . 0 "Authentication cancelled";
    /// A question to another program was not answered in time.
    LOOKUP_TIMEOUT = 451 4 . 3 . 0 "Temporary failure: a lookup took too long, try again later";
    /// A question about a connection was not answered in time. Closes.
    LOOKUP_TIMEOUT_CLOSING = 421 4 . 3 . 0 "Temporary failure: a lookup took too long, try again later";
    /// The credentials could not be looked up (RFC 4954 §6).
    AUTH_FAILED_FOR_NOW = 454 4 . 7 . 0 "Temporary authentication failure, try again later";

    /// Talking before the greeting, behind DATA before its 354, or behind STARTTLS. Closes.
    OUT_OF_SYNC = 554 5 . 5 . 0 "SMTP protocol synchronization error";
    /// A bare CR or LF in content (RFC 5321 §2.3.8): the way of SMTP smuggling. Closes.
    BARE_CR_LF = 521 5 . 5 . 2 "Bare CR or LF in the content (RFC 5321 section 2.3.8)";
    /// Rejects a bare CR or LF where the framing is beyond doubt (BDAT).
    BARE_CR_LF_CHUNK = 550 5 . 5 . 2 "Bare CR or LF in the content: BODY=BINARYMIME is needed";
    /// NUL in content that is not BINARYMIME (RFC 6152 §3, RFC 2045 §2.8).
    NUL_IN_CONTENT = 550 5 . 6 . 0 "NUL in the content: BODY=BINARYMIME and BDAT are needed";
    /// Over [`crate::Limits::message_bytes`], declared or found.
    TOO_LARGE = 552 5 . 3 . 4 "Message size exceeds the limit";
    /// Over [`crate::Limits::header_bytes`].
    HEADER_TOO_LARGE = 552 5 . 3 . 4 "Message header exceeds the limit";
    /// Over [`crate::Limits::hops`].
    TOO_MANY_HOPS = 554 5 . 4 . 6 "Too many hops: a mail loop";
    /// Over [`crate::Limits::recipients`] (RFC 5321 §4.5.3.1.10).
    TOO_MANY_RECIPIENTS = 452 4 . 5 . 3 "Too many recipients";
    /// Over [`crate::Limits::errors`].
    TOO_MANY_ERRORS = 421 4 . 7 . 0 "Too many errors";
    /// Over [`crate::Limits::refused_recipients`].
    TOO_MANY_REFUSED = 421 4 . 7 . 0 "Too many rejected recipients";
    /// Over [`crate::Limits::junk_commands`].
    TOO_MUCH_JUNK = 421 4 . 7 . 0 "Too many commands without mail";
    /// Over [`crate::Limits::transactions`].
    TOO_MANY_TRANSACTIONS = 421 4 . 7 . 0 "Too many transactions, reconnect";
    /// Silence beyond a timeout (RFC 5321 §4.5.3.2).
    TIMEOUT = 421 4 . 4 . 2 "Timeout exceeded";
    /// We are stopping (RFC 5321 §3.8).
    SHUTTING_DOWN = 421 4 . 3 . 2 "Service shutting down";
    /// Budgets are used up.
    TOO_BUSY = 421 4 . 3 . 2 "Too many sessions, try again later";
    /// An operator has told the listener to take no sessions.
    DRAINED = 421 4 . 3 . 2 "Closed for maintenance, try again later";
    /// The spool's queue is full for the moment.
    SPOOL_BUSY = 451 4 . 3 . 1 "Too busy to store mail, try again later";
    /// The disk has not said in time that the message is stored; it may be all the same.
    NOT_STORED_YET = 451 4 . 3 . 0 "The disk does not answer, the message may not be stored; try again later";
    /// The disk is full.
    NO_ROOM = 452 4 . 3 . 1 "Insufficient system storage";
    /// A write or sync failed: nothing was promised.
    LOCAL_ERROR = 451 4 . 3 . 0 "Local error, the message was not stored";
    /// Reports a local error in place of a greeting.
    LOCAL_ERROR_CLOSING = 421 4 . 3 . 0 "Local error, no mail can be taken now";
}

/// The go-ahead for DATA; without enhanced code, as RFC 2034 §4 asks.
pub const GO_AHEAD: Reply = Reply::bare(354, "End data with <CR><LF>.<CR><LF>");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_enhanced_code_has_the_class_of_its_reply() {
        for (name, reply) in ALL {
            assert_eq!(u16::from(reply.enhanced.unwrap().0), reply.code / 100, "{name}");
        }
    }
}
