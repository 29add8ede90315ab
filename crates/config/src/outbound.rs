//! `[delivery]`: connections to next hops.

use crate::{EightBit, section::section, value::HostName};
use std::{net::IpAddr, time::Duration};

section! {
    /// Outbound connections.
    pub Delivery = "delivery" {
        /// Maximum number of concurrent connections to one destination.
        connections_per_destination: usize = "20",
        /// Maximum number of concurrent connections to all destinations; fewer if the limit of open files is too low for
        /// them, which is logged. Domains that have not accepted mail lately use at most half of them. Deliveries on this
        /// machine are counted separately.
        max_connections: usize = "1000",
        /// Messages on one connection before it is replaced by a new one.
        messages_per_connection: u32 = "1000",
        /// Recipients in one transaction. A message with more recipients at one destination is sent in several
        /// transactions, each with the content. RFC 5321 §4.5.3.1.8 requires servers to accept 100. A next hop that
        /// accepts fewer recipients gets fewer.
        recipients_per_transaction: usize = "100",
        /// Messages sent ahead of their replies on one connection (RFC 2920). With 1, each message waits for the reply to
        /// the previous one.
        pipeline_depth: usize = "2",
        /// Treatment of 8-bit content if the next hop does not offer 8BITMIME (RFC 6152). `convert` writes the parts that
        /// need it in quoted-printable or base64, which every next hop accepts; the few messages that cannot be converted
        /// are returned with 5.6.3. `send` sends everything unchanged, which most servers accept. `return` converts
        /// nothing and returns the mail. `auto` converts, except for messages that cannot be converted and for signed
        /// ones (DKIM-Signature, multipart/signed), whose signature a conversion would break: these are sent unchanged.
        /// Binary content (BINARYMIME, RFC 3030) cannot be sent unchanged: `auto` and `convert` convert it, signed or
        /// not, if the next hop does not offer BINARYMIME; with `send` and `return`, BINARYMIME is not offered to
        /// clients. Notifications of this server are always converted if the next hop does not offer 8BITMIME, because
        /// nobody is told about a lost notification.
        eight_bit: EightBit = "\"auto\"",
        /// How long an idle connection stays open.
        idle_timeout: Duration = "\"5s\"",
        /// How long a connection takes further messages before it is replaced. A new connection begins with the best
        /// server again, so this is how soon steady mail leaves the fallback, or the second mail exchanger, for a next hop
        /// that is back.
        reuse_timeout: Duration = "\"5m\"",
        /// Time to connect to one address.
        connect_timeout: Duration = "\"30s\"",
        /// Time for the greeting (RFC 5321 §4.5.3.2.1) and for a TLS handshake.
        greeting_timeout: Duration = "\"5m\"",
        /// Time for the reply to EHLO, MAIL, RCPT and RSET (RFC 5321 §4.5.3.2.2).
        command_timeout: Duration = "\"5m\"",
        /// Time for the reply to DATA (RFC 5321 §4.5.3.2.4), and for the server to receive a piece of content.
        data_timeout: Duration = "\"3m\"",
        /// Time for the reply to the end of the content (RFC 5321 §4.5.3.2.6).
        data_done_timeout: Duration = "\"10m\"",
        /// The local address of outbound connections. Without this key, the operating system chooses one.
        source_address: Option<IpAddr> = "",
        /// The name to send in EHLO.
        ehlo_name: HostName = "\"{hostname}\"",
        /// The port of MX hosts. Only tests need another one.
        mx_port: u16 = "25",
    }
}
