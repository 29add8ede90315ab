//! Every limit and timeout of a server session, in one table, with the reply each gives
//! (RFC 5321 §4.5.3). The configuration's `[limits]` and `[timeouts]` set them.

use crate::server::replies;
use mail::{Reply, header::ContentScanner};
use std::time::Duration;

/// The clients whose paths may be written otherwise than RFC 5321 wants: `joe@example.com`, `< joe@example.com >`,
/// `<<joe@example.com>>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoosePaths {
    /// Every path has to have the form of RFC 5321 §4.1.2.
    Nobody,
    /// Those that the driver trusts, and those that have authenticated.
    #[default]
    Trusted,
    /// All clients, strangers too.
    Everybody,
}

/// The resources that one session may use. The doc of each field names the reaction at the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Longest command line in octets, CRLF included; RFC 5321 asks for 512 plus what extensions add
    /// (DSN, SMTPUTF8, AUTH). Longer: `500 5.5.2`, the rest of the line is skipped.
    pub command_line_bytes: usize,
    /// Longest path in octets, brackets included. Longer: `501 5.1.7` (MAIL) or `501 5.1.3` (RCPT).
    pub path_bytes: usize,
    /// Take only local parts that RFC 5321 allows. Others: as for a path that is too long.
    pub strict_local_parts: bool,
    /// The clients that may write paths without brackets, and with more of them.
    pub loose_paths: LoosePaths,
    /// Longest content in octets, announced by SIZE. More: `552 5.3.4`.
    pub message_bytes: u64,
    /// Recipients a transaction. More: `452 4.5.3`, the others stand.
    pub recipients: usize,
    /// Transactions a session. More: `421 4.7.0` and close.
    pub transactions: u32,
    /// Erroneous commands since the last accepted message. More: `421 4.7.0` and close.
    pub errors: u32,
    /// Refused recipients since the last accepted message, against harvesting. More: `421 4.7.0` and close.
    pub refused_recipients: u32,
    /// NOOP, RSET, VRFY, HELP and the like between transactions. More: `421 4.7.0` and close.
    pub junk_commands: u32,
    /// `Received` fields in the content (RFC 5321 §6.3). More: `554 5.4.6`.
    pub hops: u32,
    /// Largest header in octets. Larger: `552 5.3.4`.
    pub header_bytes: usize,
    /// Time for each command to arrive whole, and for replies to be taken; five minutes (RFC 5321
    /// §4.5.3.2.7). Then `421 4.4.2`.
    pub command_timeout: Duration,
    /// The same for clients that are neither trusted nor logged in, while more than half of all sessions are in use.
    pub stress_command_timeout: Duration,
    /// Silence allowed between two reads of content; three minutes (§4.5.3.2.5). Then `421 4.4.2`.
    pub data_timeout: Duration,
    /// Time a TLS handshake may take. Then the connection is closed.
    pub tls_timeout: Duration,
    /// Time a whole transaction may take, or a refused chunk to pass by, against slow drip. Then `421 4.4.2`.
    pub transaction_timeout: Duration,
}

impl Limits {
    /// Checks the header that was scanned so far.
    ///
    /// # Errors
    /// The reply that refuses the message: the header is too large, or has too many `Received` fields.
    pub fn check_header(&self, header: &ContentScanner) -> Result<(), Reply> {
        if header.header_bytes() > self.header_bytes {
            return Err(replies::HEADER_TOO_LARGE);
        }
        if header.summary().received_count > self.hops {
            return Err(replies::TOO_MANY_HOPS);
        }
        Ok(())
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            command_line_bytes: 4096,
            path_bytes: 256,
            strict_local_parts: false,
            loose_paths: LoosePaths::default(),
            message_bytes: 50 * 1024 * 1024,
            recipients: 1000,
            transactions: 100_000,
            errors: 20,
            refused_recipients: 20,
            junk_commands: 100,
            hops: 50,
            header_bytes: 1024 * 1024,
            command_timeout: Duration::from_secs(300),
            stress_command_timeout: Duration::from_secs(10),
            data_timeout: Duration::from_secs(180),
            tls_timeout: Duration::from_secs(60),
            transaction_timeout: Duration::from_secs(3600),
        }
    }
}
