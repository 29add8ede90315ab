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
use maps::Reference;
use policy::AddressPattern;
use std::{net::IpAddr, time::Duration};

section! {
    /// The next hop of mail for some domains: exactly one of `smarthost`, `lmtp`, `next_hop`, `maildir`, `mbox`, `pipe`,
    /// `mx`, `hold`, `reject` and `discard`. The first route that matches is used. Routes come before local Maildirs, and local
    /// Maildirs before MX look-ups. So a route with `domains = ["*"]` also matches local domains, unless a route for the
    /// local domains stands above it.
    pub(crate) RouteKeys = "route" many {
        /// The name of the route, for `route` in `[[rule]]`.
        name: Option<Word> = "",
        /// Domains that the route matches: `example.com`, `*.example.com` for its subdomains, `*` for all domains, and
        /// maps whose keys are domains, `text:FILE` or `map:NAME`; the values do not matter. A map is asked when a
        /// recipient is accepted, and the choice is stored with the message; while it does not answer, clients get 451
        /// 4.3.0. A route with a name can do without domains: then only rules use it.
        domains: Vec<OrMap<DomainPattern>> = "[]",
        /// Senders that the route matches: `joe@example.com`, `example.com`, `*.example.com`, `<>` for notifications, and
        /// maps such as `text:senders`, in which `joe@example.com`, `@example.com` and `example.com` are looked up. An
        /// address also matches with a detail (`addresses.separator`), as in `joe+lists@example.com`. Without this key,
        /// all.
        senders: Vec<OrMap<AddressPattern>> = "[]",
        /// Recipients that the route matches, as addresses and maps like those of `senders`. Such a route can do without
        /// `domains`. It is chosen when a recipient is accepted, after aliases, and the choice is stored with the message.
        /// Without this key, all recipients in `domains`.
        recipients: Vec<OrMap<AddressPattern>> = "[]",
        /// Deliver by SMTP to this host; MX records are ignored.
        smarthost: Option<HostPort> = "",
        /// Deliver by LMTP (RFC 2033) to a socket, `unix:/path`, or to `host:port`.
        lmtp: Option<LmtpServer> = "",
        /// Maps that have the next hop of each recipient: `["map:transport", "text:/etc/postrider/transport"]`. The address is looked up, then
        /// without a detail, then its domain, `.example.com` for the domains above it, and `*`. The value is `smtp:HOST`, `relay:HOST` or
        /// `lmtp:HOST`, each with `:PORT` if you like and with brackets around the host or without; `lmtp:unix:/path`; a host alone; or the
        /// `name` of a route. `smtp:` and `relay:` with a name alone mean its MX records, which are ignored otherwise. A recipient without
        /// a value takes the next route that matches. Without `domains`, for all domains. The choice is made when a recipient is accepted
        /// and stored with the message; while a map does not answer, or its value is none of these, clients get 451 4.3.0. If the map can
        /// return a port that the configuration does not mention, add it to `process.extra_ports`.
        next_hop: Vec<Reference> = "[]",
        /// Deliver into Maildirs; `{local}` and `{domain}` as in `[local]`.
        maildir: Option<MaildirTemplate> = "",
        /// Append to an mbox file; `{local}` and `{domain}` as in `[local]`. The file is locked by `FILE.lock` and by
        /// fcntl(2). Lines of a message that begin with `From `, also after one or more `>`, get another `>` in front
        /// (mboxrd). If a message cannot be written, the file is truncated to its previous length, and the mail is
        /// deferred.
        mbox: Option<MaildirTemplate> = "",
        /// With `maildir` and `mbox`: the user as whom files are written, a name or a number, or `{local}` for the user of
        /// the machine that the recipient names. Needs a daemon that root has started, with `process.user`: a helper that
        /// keeps the right to become other users writes the mail, after checks. It follows no symbolic links at all, and
        /// refuses root, users below `process.min_uid`, and files with hard links. Without this key, the daemon writes as
        /// itself. The program of `pipe` has its own `user`.
        user: Option<DeliveryUser> = "",
        /// The group for `user`. Default: the user's own group. For files in /var/mail, use `mail`.
        group: Option<Group> = "",
        /// Start a program for each recipient, with the message as its standard input: a list of the program and its
        /// arguments, or `{ argv = [...], user = "vmail", timeout = "5m" }`. There is no shell. `{sender}`,
        /// `{recipient}`, `{local}`, `{user}`, `{detail}`, `{domain}` or `{id}` can be an argument, but not a part of
        /// one; mail for an address that would make an argument begin with `-` is refused. The environment has `PATH`,
        /// `SENDER`, `RECIPIENT`, `LOCAL`, `DETAIL`, `DOMAIN` and `QUEUE_ID`, and with `user` also `USER`, `LOGNAME` and
        /// `HOME`. A daemon that runs as root needs `user`. Exit codes are those of sysexits.h: 0 means delivered; 71, 74
        /// and 75 defer; other codes from 64 to 78 return the mail; any other code defers. If a program fails and its
        /// output begins with `4.x.x` or `5.x.x`, this status decides. A program that runs for longer than `timeout`
        /// (default: 5m) is killed, and the mail is deferred.
        pipe: Option<Program> = "",
        /// Hold messages until an operator releases them (`postrider queue release`); then the next route that matches is
        /// used. If one recipient of a message has this route, the whole message is held.
        hold: bool = "false",
        /// Refuse the mail with this reply: `"550 5.7.1 No mail for this domain"`.
        reject: Option<RejectText> = "",
        /// Deliver by SMTP to the MX hosts of the domain.
        mx: bool = "false",
        /// Accept the mail and discard it.
        discard: bool = "false",
        /// Use of TLS: `off`, `may` (if the server offers it), `require`, or `verify` (require a trusted certificate that
        /// names the host). With `may`, mail is sent in clear text if the handshake fails. If the server does not answer
        /// STARTTLS, or the EHLO after it, later attempts use clear text for four hours. If TLS breaks later in the session
        /// (other than at RCPT), they do so for ten minutes. If the server refuses clear text in that time, TLS is tried again in the
        /// same attempt. `implicit` is for a smarthost: TLS from the first byte (RFC 8314), with a certificate as for
        /// `verify`. Default: `implicit` for port 465, else `may`.
        tls: Option<RouteTls> = "",
        /// Log in to the smarthost: `{ user = "bob", secret = "file:isp.secret" }`. The secret is the first line of a
        /// file, a systemd credential, `credential:NAME`, or a variable of the environment, `env:NAME`. The strongest mechanism that the server offers is used:
        /// SCRAM-SHA-256, SCRAM-SHA-1, PLAIN or LOGIN. A password is never sent without TLS: `tls` must be `require`,
        /// `verify` or `implicit`; its default is then `verify` (`implicit` for port 465). If the login fails, the mail
        /// is deferred.
        login: Option<RouteLogin> = "",
        /// The local address of the route's connections. Default: `delivery.source_address`.
        source_address: Option<IpAddr> = "",
        /// The name to send in EHLO, usually that of `source_address`. Default: `delivery.ehlo_name`.
        ehlo_name: Option<HostName> = "",
        /// If true, Postrider asks the next hop, by RCPT without content, whether a recipient exists before it accepts mail
        /// from a client: with `lmtp`, `smarthost` and `mx`. If it refuses the recipient, the client gets 550 5.1.1, or the
        /// enhanced code of the refusal; if it does not answer within 29s, 451 4.4.1. Answers are cached until the next
        /// reload, but no longer than an hour, or five minutes if the recipient does not exist.
        verify: bool = "false",
        /// When mail of this route is acknowledged with 250: `durable`, or `deliver-first` as in `spool.durability`, with
        /// `lmtp`, `smarthost` and `mx`. Mail for recipients of several routes is delivered first only if all of them say
        /// so. Default: `spool.durability`.
        durability: Option<RouteDurability> = "",
        /// Hosts for mail that no host of `smarthost`, `mx` or `lmtp` accepts, because none can be reached or each
        /// answers with a temporary error: `["backup.example.com:25"]`. `tls`, `login` and `source_address` apply to
        /// them, too. Mail that the next hop refuses permanently stays refused.
        fallback: Vec<HostPort> = "[]",
        /// The time to wait after each failed attempt, in this order; the last one repeats: `["5m", "15m", "1h"]`.
        /// Without this key, the time grows with the age of the message.
        retry: Vec<Duration> = "[]",
        /// Shortest interval between attempts. Default: that of the queue group or `[queue]`.
        retry_min: Option<Duration> = "",
        /// Longest interval between attempts. Default: that of the queue group or `[queue]`.
        retry_max: Option<Duration> = "",
        /// The age at which a message that could not be delivered by this route is returned. Default: `queue.expire`.
        lifetime: Option<Duration> = "",
    }
}
