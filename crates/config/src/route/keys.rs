//! The keys of `[[route]]`.

use crate::{
    HostName,
    account::Group,
    choice::{RouteDurability, RouteTls},
    domain::DomainPattern,
    route::{DeliveryUser, MaildirTemplate, RejectText, RouteLogin},
    section::section,
    value::{OrMap, Word},
};
use mail::{HostPort, LmtpServer, Program};
use policy::AddressPattern;
use std::{net::IpAddr, time::Duration};

section! {
    /// The next hop of mail for some domains: exactly one of `smarthost`, `lmtp`, `maildir`, `mbox`, `pipe`, `mx`, `hold`,
    /// `reject` and `discard`. The first route that matches is used. Routes come before local Maildirs, and these before MX.
    /// So a route with `domains = ["*"]` also matches local domains, unless a route for the local domains
    /// stands above it.
    pub(crate) RouteKeys = "route" many {
        /// The name of the route, for `route` in `[[rule]]`.
        name: Option<Word> = "",
        /// Domains that the route matches: `example.com`, `*.example.com` for its subdomains, `*` for all
        /// domains, and maps whose keys are domains, `text:FILE` or `map:NAME`; the values do not matter. Maps are asked when a
        /// recipient is taken, and the choice is stored with the message; while a map does not answer, the client gets 451 4.3.0.
        /// A route with a name need not have any domains: then it is used by rules only.
        domains: Vec<OrMap<DomainPattern>> = "[]",
        /// Senders that the route is for: `joe@example.com`, `example.com`, `*.example.com`, `<>` for notifications, and maps such as
        /// `text:senders`, in which `joe@example.com`, `@example.com` and `example.com` are looked up. An address also matches with
        /// a detail (`addresses.separator`): `joe+lists@example.com`. Without this key: all.
        senders: Vec<OrMap<AddressPattern>> = "[]",
        /// Deliver by SMTP to this host; MX records are ignored.
        smarthost: Option<HostPort> = "",
        /// Deliver by LMTP (RFC 2033) to a socket, `unix:/path`, or to `host:port`.
        lmtp: Option<LmtpServer> = "",
        /// Deliver into Maildirs; `{local}` and `{domain}` as in `[local]`.
        maildir: Option<MaildirTemplate> = "",
        /// Append to a file in the mbox format; `{local}` and `{domain}` as in `[local]`. The file is locked by `FILE.lock` and by
        /// fcntl(2). Lines of a message that begin with `From ` get a `>` in front, also behind other `>` (mboxrd). If
        /// a message cannot be written, the file gets its length of before, and the mail is deferred.
        mbox: Option<MaildirTemplate> = "",
        /// For `maildir` and `mbox`: the user as whom files are written, a name in /etc/passwd or a number, or `{local}` for the user
        /// of the machine that the recipient names. Needs a daemon that root has started, with `process.user`: a helper that keeps
        /// the right to become other users writes the mail, after checks. It follows no symbolic links at all, and
        /// refuses root, users below `process.min_uid`, and files with hard links. Without this key,
        /// the daemon writes as itself. The program of `pipe` has a `user` of its own.
        user: Option<DeliveryUser> = "",
        /// The group for `user`. Default: the user's own group. For files in /var/mail, `mail`.
        group: Option<Group> = "",
        /// Start a program for each recipient, with the message as its input: a list of the program and its arguments, or
        /// `{ argv = [...], user = "vmail", timeout = "5m" }`. There is no shell. An argument can be `{sender}`,
        /// `{recipient}`, `{local}`, `{user}`, `{detail}`, `{domain}` or `{id}`, and nothing beside it; mail for an
        /// address that would make an argument begin with `-` is refused. The environment has `PATH`, `SENDER`, `RECIPIENT`,
        /// `LOCAL`, `DETAIL`, `DOMAIN` and `QUEUE_ID`, and with `user` also `USER`, `LOGNAME` and `HOME`. A daemon that runs
        /// as root needs `user`. Exit codes are those of sysexits.h: 0 is a delivery, 71, 74 and 75 defer, other codes
        /// from 64 to 78 return the mail, and each further code defers. If the output of a program that fails begins with
        /// `4.x.x` or `5.x.x`, this status decides. A program that runs for longer than `timeout` (default: 5m) is killed, and
        /// the mail is deferred.
        pipe: Option<Program> = "",
        /// Hold each message with such a recipient, all of it, until an operator releases it (`postrider queue release`). Then the next
        /// route that matches is used.
        hold: bool = "false",
        /// Refuse the mail with this reply: `"550 5.7.1 No mail for this domain"`.
        reject: Option<RejectText> = "",
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
        /// The name that connections of the route send in EHLO, if it differs from `delivery.ehlo_name`: that of `source_address`,
        /// as a rule.
        ehlo_name: Option<HostName> = "",
        /// True if the next hop is asked, by RCPT without content, whether a recipient exists before mail of a client is
        /// taken: for `lmtp`, `smarthost` and `mx`. A recipient that it refuses gets 550 5.1.1, or the enhanced code of the
        /// refusal; if it does not answer within 29s, the client gets 451 4.4.1. Answers are kept until the next
        /// reload, at most for an hour, or for five minutes that a recipient does not exist.
        verify: bool = "false",
        /// The time of the 250 for mail of this route: `durable`, or `deliver-first` as in `spool.durability`, for `lmtp`, `smarthost`
        /// and `mx`. Mail for recipients of several routes is delivered first if all of them say so. Without this key,
        /// `spool.durability` decides.
        durability: Option<RouteDurability> = "",
        /// Hosts that get the mail that no host of `smarthost`, `mx` or `lmtp` takes, because none can be reached or
        /// each answers with a temporary error: `["backup.example.com:25"]`. `tls`, `login` and `source_address` apply
        /// to them, too. Mail that the next hop refuses for good stays refused.
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
