//! The keys of `[[route]]`.

use crate::{
    choice::RouteTls,
    domain::DomainPattern,
    route::{MaildirTemplate, RouteLogin},
    section::section,
};
use mail::{HostPort, LmtpServer};
use std::{net::IpAddr, time::Duration};

section! {
    /// The next hop of mail for some domains: exactly one of `smarthost`, `lmtp`, `maildir`, `mx` and
    /// `discard`. The first route that matches is used. Routes come before local Maildirs, and these before MX.
    /// So a route with `domains = ["*"]` also matches local domains, unless a route for the local domains
    /// stands above it.
    pub(crate) RouteKeys = "route" many {
        /// Domains that the route matches: `example.com`, `*.example.com` for its subdomains, `*` for all
        /// domains.
        domains: Vec<DomainPattern> = "[]",
        /// Deliver by SMTP to this host; MX records are ignored.
        smarthost: Option<HostPort> = "",
        /// Deliver by LMTP (RFC 2033) to a socket, `unix:/path`, or to `host:port`.
        lmtp: Option<LmtpServer> = "",
        /// Deliver into Maildirs; `{local}` and `{domain}` as in `[local]`.
        maildir: Option<MaildirTemplate> = "",
        /// Deliver by SMTP to the hosts that the MX records of the domain name.
        mx: bool = "false",
        /// Accept the mail and discard it.
        discard: bool = "false",
        /// The use of TLS: `off`, `may` (if the server offers it), `require`, or `verify` (require a trusted
        /// certificate that names the host). With `may`, mail is sent in clear text if the handshake fails, and
        /// for four hours from the next attempt on if TLS breaks after the handshake. `implicit` is for a smarthost: TLS
        /// from the first byte (RFC 8314), with a certificate as for `verify`. Default: `implicit` for port 465, else
        /// `may`.
        tls: Option<RouteTls> = "",
        /// Log in to the smarthost: `{ user = "bob", secret = "file:isp.secret" }`. The secret is the first line of a
        /// file, or of a credential of systemd, `credential:NAME`. The strongest mechanism that the server offers
        /// is used: SCRAM-SHA-256, SCRAM-SHA-1, PLAIN or LOGIN. A password is never sent without TLS: `tls` must be
        /// `require`, `verify` or `implicit`, and is `verify` if it is left out (`implicit` for port 465). A failed login
        /// defers the mail.
        login: Option<RouteLogin> = "",
        /// The address from which connections of the route are made, if it differs from `delivery.source_address`.
        source_address: Option<IpAddr> = "",
        /// True if the next hop is asked, by RCPT without content, whether a recipient exists before mail of a client is
        /// taken: for `lmtp`, `smarthost` and `mx`. A recipient that it refuses gets 550 5.1.1, or the enhanced code of the
        /// refusal; if it does not answer within 29s, the client gets 451 4.4.1. Answers are kept until the next
        /// reload, at most for an hour, or for five minutes that a recipient does not exist.
        verify: bool = "false",
        /// Hosts that get the mail, the first one that answers, if no host of `smarthost`, `mx` or `lmtp` can be reached:
        /// `["backup.example.com:25"]`. `tls`, `login` and `source_address` apply to them, too. Mail that the next hop
        /// refuses stays refused.
        fallback: Vec<HostPort> = "[]",
        /// The time after each failed attempt, in this order; the last one repeats: `["5m", "15m", "1h"]`. Without this
        /// key, the time grows with the age of the message.
        retry: Vec<Duration> = "[]",
        /// Shortest interval between attempts, if it differs from that of the queue group or `[queue]`.
        retry_min: Option<Duration> = "",
        /// Longest interval.
        retry_max: Option<Duration> = "",
        /// The age at which a message is returned that could not be delivered by this route, if it differs from
        /// `queue.expire`.
        lifetime: Option<Duration> = "",
    }
}
