//! The keys, section by section. A key's comment is its entry in postrider.toml(5); its type says
//! what it takes; the literal behind `=` is its default, as TOML.

use crate::{
    choice::{
        Backend, BareLf, EhloKeyword, EightBit, ListenTls, LogFormat, Placement, RouteTls, SortOrder,
        TlsVersion,
    },
    domain::DomainPattern,
    group::QueueGroup,
    route::{MaildirTemplate, Route},
    section::section,
    units::ByteSize,
    value::{HostName, HostTable, NameServer, Word},
};
use ipnet::IpNet;
use mail::{HostPort, LmtpServer, Mailbox};
use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

/// The settings of a configuration without problems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The name this server gives itself in greetings, EHLO, trace headers and DSNs; an A-label name.
    pub hostname: String,
    /// Everything that must survive a restart.
    pub data_dir: PathBuf,
    /// Where mail for `<Postmaster>` goes, with a domain too where that is nobody here (RFC 5321 §4.5.1).
    pub postmaster: Mailbox,
    /// Where connections are taken; never empty.
    pub listen: Vec<Listen>,
    /// Clients that may send to every domain.
    pub relay: Relay,
    /// Domains and users whose mail is delivered here.
    pub local: Local,
    /// Explicit routes, in the order of the file.
    pub routes: Vec<Route>,
    /// Certificates.
    pub tls: Tls,
    /// `[limits]` and `[timeouts]`.
    pub limits: smtp::Limits,
    /// Limits of inbound connections.
    pub inbound: Inbound,
    /// How mail leaves.
    pub delivery: Delivery,
    /// When mail is tried again.
    pub queue: Queue,
    /// Mail that is scheduled in a way of its own, in the order of the file.
    pub queue_groups: Vec<QueueGroup>,
    /// Where mail waits.
    pub spool: Spool,
    /// How names are looked up.
    pub dns: Dns,
    /// Names that are not looked up.
    pub hosts: HostTable,
    /// The delivery log.
    pub log: Log,
    /// The sockets for the command line.
    pub control: Control,
    /// Threads.
    pub workers: Workers,
}

impl Settings {
    /// Is mail for this domain, given as [`mail::Domain::key`], for people here?
    pub fn is_local(&self, key: &str) -> bool {
        self.local.domains.iter().any(|domain| domain == key)
    }

    /// May a client at this address send anywhere?
    pub fn may_relay(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.relay.networks.iter().any(|net| net.contains(&client))
    }

    /// The first explicit route for a domain, given as [`mail::Domain::key`]. None: to a Maildir
    /// when it is local, else by MX.
    pub fn route(&self, key: &str) -> Option<(usize, &Route)> {
        self.routes.iter().enumerate().find(|(_, route)| route.matches(key))
    }

    /// Every spool: that of `[spool]`, then those of queue groups in the order of the file.
    pub fn spools(&self) -> Vec<Spool> {
        let own = self.queue_groups.iter().filter_map(|group| group.spool.as_ref());
        std::iter::once(self.spool.clone()).chain(own.map(|own| own.beside(&self.spool))).collect()
    }

    /// Which of [`Settings::spools`] keeps mail of a queue group.
    pub fn spool_of(&self, group: usize) -> usize {
        let groups = &self.queue_groups[..group];
        let is_own = groups.last().is_some_and(|group| group.spool.is_some());
        if is_own { groups.iter().filter(|group| group.spool.is_some()).count() } else { 0 }
    }
}

/// One address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Address and port.
    pub address: SocketAddr,
    /// How TLS is spoken on it.
    pub tls: ListenTls,
    /// The treatment of a bare CR or LF. `None`: the client's network decides.
    pub bare_lf: Option<BareLf>,
    /// Keywords that are left out of EHLO's reply.
    pub discard_ehlo_keywords: Vec<EhloKeyword>,
    /// The largest message, where it differs from that of the limits.
    pub max_message_size: Option<ByteSize>,
}

impl ListenKeys {
    /// The listener that these keys describe.
    pub(crate) fn at(&self, address: SocketAddr) -> Listen {
        Listen {
            address,
            tls: self.tls,
            bare_lf: self.bare_lf,
            discard_ehlo_keywords: self.discard_ehlo_keywords.clone(),
            max_message_size: self.max_message_size,
        }
    }
}

/// Domains and users whose mail is delivered here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// Local domains as [`mail::Domain::key`] gives them.
    pub domains: Vec<String>,
    /// Where their mail goes.
    pub maildir: MaildirTemplate,
    /// Whether symbolic links in Maildirs' paths are followed.
    pub follow_symlinks: bool,
    /// The users that exist; none: every user exists.
    pub users: Option<Vec<String>>,
}

section! {
    /// Keys before the first section.
    pub(crate) GlobalKeys = "" {
        /// The name this server gives itself: in its greeting, in EHLO, in trace headers and in
        /// reports. The machine's own name unless set.
        hostname: HostName = "\"{machine}\"",
        /// The folder for everything that must survive a restart: the spool, the sockets of the
        /// command line, and local Maildirs. It is made when it is missing.
        data_dir: PathBuf = "\"postrider-data\"",
        /// The address that mail for the bare `<Postmaster>` goes to (RFC 5321 §4.5.1), and that for the
        /// postmaster of each local domain where `local.users` is there and does not name `postmaster`.
        postmaster: Mailbox = "\"postmaster@{hostname}\"",
    }
}

section! {
    /// An address to take connections on. May stand several times. Without any, mail is taken on
    /// 127.0.0.1:2525.
    pub(crate) ListenKeys = "listen" many {
        /// IP address and port. `0.0.0.0` and `[::]` stand for every address of the machine.
        address: Option<SocketAddr> = "",
        /// Whether TLS is offered by STARTTLS (RFC 3207), spoken from the first byte (RFC 8314), or
        /// off. Without a certificate in `[tls]` a self-signed one is made.
        tls: ListenTls = "\"starttls\"",
        /// The treatment of a CR or LF that is not part of a CRLF (RFC 5321 §2.3.8). `reject` refuses the
        /// message with 521 5.5.2 and closes the connection; in a BDAT chunk with 550 5.5.2. `normalize`
        /// replaces a bare LF by CRLF and a bare CR by a space, and what results is stored and relayed; a command
        /// line may end in LF. In both cases only CRLF.CRLF ends the content. When it is left out, clients in
        /// `relay.networks` are normalized and others rejected.
        bare_lf: Option<BareLf> = "",
        /// Keywords that are left out of EHLO's reply here, for clients that use them wrongly. Their commands and
        /// parameters are refused. Without `chunking` there is no `binarymime` either.
        discard_ehlo_keywords: Vec<EhloKeyword> = "[]",
        /// The largest message that is taken here, announced by SIZE, where it differs from that of `[limits]`.
        max_message_size: Option<ByteSize> = "",
    }
}

section! {
    /// Clients that may send to every domain. Others may send to local domains only.
    pub Relay = "relay" {
        /// Networks or addresses of clients that may.
        networks: Vec<IpNet> = "[\"127.0.0.0/8\", \"::1/128\"]",
    }
}

section! {
    /// Local domains and users. Mail for these domains is accepted from everywhere. An explicit
    /// `[[route]]` for a local domain decides where it goes; without one it goes to `maildir`.
    pub(crate) LocalKeys = "local" {
        /// Domains that are local. The hostname must be one of them, or have a route: mail of this machine's
        /// own programs, and reports of what they sent, go there. Mail for an address literal of this machine,
        /// such as `postmaster@[192.0.2.1]`, is for the same user at the hostname.
        domains: Vec<HostName> = "[\"localhost\", \"{hostname}\"]",
        /// The Maildir of a recipient. `{local}` stands for the part before the `@`, in lower case;
        /// `{domain}` for the part behind it.
        maildir: MaildirTemplate = "\"{data_dir}/mail/{local}\"",
        /// Whether mail is delivered through symbolic links in a Maildir's path, from the part that begins with a
        /// placeholder (without one, from the last part), and to `tmp` and `new` in it. Otherwise such mail is
        /// deferred, since a user who can make such a link could have mail written elsewhere. Applies to the
        /// Maildirs of routes, too.
        follow_symlinks: bool = "false",
        /// Local parts that exist; mail for others is refused with 550 5.1.1, and what programs on this
        /// machine send to them is returned, where it would go into a Maildir. Postmaster always exists: where
        /// it is not among these, its mail goes to the address in `postmaster`, as does what programs on this
        /// machine send to `root`. When this is left out, everyone exists.
        users: Option<Vec<Word>> = "",
    }
}

section! {
    /// Where mail for some domains goes: exactly one of `smarthost`, `lmtp`, `maildir`, `mx` and
    /// `discard`. The first route that matches decides; explicit routes come before the local
    /// Maildirs, and those before MX. So `domains = ["*"]` takes local mail along, unless a route for
    /// the local domains stands above it.
    pub(crate) RouteKeys = "route" many {
        /// Which domains: `example.com`, `*.example.com` for those below it, `*` for every one.
        domains: Vec<DomainPattern> = "[]",
        /// By SMTP to this host, whatever its domain's MX records say.
        smarthost: Option<HostPort> = "",
        /// By LMTP (RFC 2033) to a socket, `unix:/path`, or to `host:port`.
        lmtp: Option<LmtpServer> = "",
        /// Into Maildirs; `{local}` and `{domain}` as in `[local]`.
        maildir: Option<MaildirTemplate> = "",
        /// By SMTP to the hosts that the domain's MX records name.
        mx: bool = "false",
        /// Accept it and throw it away.
        discard: bool = "false",
        /// Whether it leaves by TLS: never, when offered, always, or only to a host with a
        /// certificate that is trusted and names it. With "may" mail goes in clear text where the
        /// handshake fails, and from the next attempt on, for four hours, where TLS breaks after it.
        tls: Option<RouteTls> = "",
    }
}

section! {
    /// Certificates, for listeners and for checking next hops.
    pub Tls = "tls" {
        /// PEM file with the certificate and those that signed it, in that order. When it is left
        /// out, a self-signed certificate for the hostname is made.
        certificate: Option<PathBuf> = "",
        /// PEM file with its private key.
        key: Option<PathBuf> = "",
        /// The oldest version that is spoken.
        min_version: TlsVersion = "\"1.2\"",
        /// PEM file with the authorities that may vouch for a next hop where `tls = "verify"`.
        /// When it is left out, Mozilla's.
        ca_file: Option<PathBuf> = "",
    }
}

section! {
    /// Limits of one session, and the reply when it exceeds one.
    pub(crate) LimitKeys = "limits" {
        /// Longest command line, CRLF included. Longer: 500 5.5.2.
        max_command_line: ByteSize = "\"4KiB\"",
        /// Longest address in MAIL and RCPT, brackets included. Longer: 501 5.1.7 or 501 5.1.3.
        max_path: ByteSize = "256",
        /// Take only addresses whose local part RFC 5321 allows: up to 64 octets and, unless it is quoted, without
        /// a dot at its ends and without two in a row. Others exist (SRS, VERP, some providers) and are taken, kept
        /// and sent as they are when this is false. Refused: 501 5.1.7 or 501 5.1.3.
        strict_local_parts: bool = "false",
        /// Largest message, announced by SIZE. Larger: 552 5.3.4.
        max_message_size: ByteSize = "\"50MiB\"",
        /// Largest header. Larger: 552 5.3.4.
        max_header_size: ByteSize = "\"1MiB\"",
        /// Recipients a transaction. More: 452 4.5.3; the others stand.
        max_recipients: usize = "1000",
        /// Transactions a session. More: 421 4.7.0.
        max_transactions: u32 = "100000",
        /// Erroneous commands since the last accepted message. More: 421 4.7.0.
        max_errors: u32 = "20",
        /// Refused recipients since the last accepted message. More: 421 4.7.0.
        max_rejected_recipients: u32 = "20",
        /// EHLO, NOOP, RSET, VRFY and HELP since the last message. More: 421 4.7.0.
        max_junk_commands: u32 = "100",
        /// `Received` fields in a message. More: 554 5.4.6.
        max_hops: u32 = "50",
    }
}

section! {
    /// How long a client may be silent (RFC 5321 §4.5.3.2).
    pub(crate) TimeoutKeys = "timeouts" {
        /// For each command to arrive whole. Then 421 4.4.2. And for replies to be taken. Then the connection
        /// is closed.
        command: Duration = "\"5m\"",
        /// Between two pieces of content. Then 421 4.4.2.
        data: Duration = "\"3m\"",
        /// In a TLS handshake. Then the connection is closed.
        tls: Duration = "\"1m\"",
        /// For a whole transaction, however lively. Then 421 4.4.2.
        transaction: Duration = "\"1h\"",
    }
}

section! {
    /// Limits of inbound connections.
    pub Inbound = "inbound" {
        /// Connections at a time. More: 421 4.3.2.
        max_sessions: usize = "10000",
        /// Connections from one address at a time; clients that may relay are exempt. More: 421 4.3.2.
        max_sessions_per_client: usize = "50",
        /// Memory for content that is arriving or not yet handed on. When it is used up MAIL is answered
        /// with 452 4.3.1, and what arrives goes to the disk in small pieces.
        max_content_memory: ByteSize = "\"256MiB\"",
        /// At shutdown, how long sessions and deliveries may finish what they have in hand.
        shutdown_timeout: Duration = "\"30s\"",
    }
}

section! {
    /// How mail leaves.
    pub Delivery = "delivery" {
        /// Connections to one destination at a time, at most.
        connections_per_destination: usize = "20",
        /// Connections to all destinations at a time.
        max_connections: usize = "1000",
        /// Messages on one connection before it is renewed.
        messages_per_connection: u32 = "1000",
        /// Recipients of one transaction. A message to more of them at one destination goes in several
        /// transactions, and the next hop gets its content in each; RFC 5321 §4.5.3.1.8 asks every server to take
        /// 100. A next hop that takes fewer is sent fewer.
        recipients_per_transaction: usize = "100",
        /// Messages sent ahead of their replies on one connection (RFC 2920); 1 waits for each.
        pipeline_depth: usize = "2",
        /// The treatment of 8-bit content for a next hop that does not offer 8BITMIME (RFC 6152). "convert" writes
        /// the parts that need it in quoted-printable or base64, which takes any next hop; the few messages that
        /// cannot be converted are returned with 5.6.3. "send" sends everything as it is, which most servers take.
        /// "return" converts nothing and returns the mail. "auto" converts, but sends as it is what is signed
        /// (DKIM-Signature, multipart/signed), because a conversion would break the signature, and what cannot be
        /// converted. Binary content (BINARYMIME, RFC 3030) cannot be sent as it is: "auto" and "convert" convert
        /// it, signed or not, for a next hop that does not offer BINARYMIME, and with "send" and "return"
        /// BINARYMIME is not offered to clients. Delivery status notifications that this server makes are always
        /// converted for a next hop that does not offer 8BITMIME, because nobody hears of one that is not sent.
        eight_bit: EightBit = "\"auto\"",
        /// How long a connection without work is kept.
        idle_timeout: Duration = "\"5s\"",
        /// To connect to one address.
        connect_timeout: Duration = "\"30s\"",
        /// For the greeting (RFC 5321 §4.5.3.2.1) and for a TLS handshake.
        greeting_timeout: Duration = "\"5m\"",
        /// For the reply to EHLO, MAIL, RCPT and RSET (RFC 5321 §4.5.3.2.2).
        command_timeout: Duration = "\"5m\"",
        /// For the reply to DATA (RFC 5321 §4.5.3.2.4) and for a piece of content to be taken.
        data_timeout: Duration = "\"3m\"",
        /// For the reply to the end of the content (RFC 5321 §4.5.3.2.6).
        data_done_timeout: Duration = "\"10m\"",
        /// The address connections come from. The system's choice when it is left out.
        source_address: Option<IpAddr> = "",
        /// The name given in EHLO.
        ehlo_name: HostName = "\"{hostname}\"",
        /// The port of mail exchangers. Only tests need another.
        mx_port: u16 = "25",
    }
}

section! {
    /// When mail is tried again. The wait is the message's age, at least `retry_min`, at most
    /// `retry_max`, give or take a fifth. A destination that cannot be reached at all is looked for
    /// sooner, by one connection: first after a thirtieth of `retry_min`.
    pub Queue = "queue" {
        /// Shortest wait.
        retry_min: Duration = "\"300s\"",
        /// Longest wait.
        retry_max: Duration = "\"4000s\"",
        /// Age at which a message that could not be delivered goes back. What is found at a start is tried
        /// once before.
        expire: Duration = "\"5d\"",
        /// Age at which its sender is told that it is late; 0 for never.
        delay_warning: Duration = "\"4h\"",
        /// Connections a destination begins with; they grow with success up to
        /// `delivery.connections_per_destination`.
        initial_concurrency: usize = "5",
        /// Messages in the queue, at most. More: 452 4.3.1.
        max_messages: usize = "10000000",
        /// Which of the messages for one destination goes first: `fair` and `none` as they became
        /// ready (`fair` lets small ones overtake bulk), `priority` by Sendmail's formula,
        /// `filename` by queue id, `modification` (unchanged the longest), `random`, `time`
        /// (oldest), `deadline` (soonest to expire), `host` by destination, which within one is no
        /// order. Between destinations it is always fair.
        order: SortOrder = "\"fair\"",
    }
}

section! {
    /// Mail that is scheduled in a way of its own: a queue group. The first that matches decides; mail
    /// that none matches is scheduled by `[queue]` and `[delivery]`, which also stand in for every key
    /// that is left out. A destination that several groups use is counted in each by itself.
    pub(crate) QueueGroupKeys = "queue_group" many {
        /// The group's name, for people.
        name: Option<Word> = "",
        /// Domains of recipients, as in `[[route]]`. Every one when it is left out.
        domains: Vec<DomainPattern> = "[]",
        /// Domains of senders. Every one, and the null reverse-path, when it is left out.
        sender_domains: Vec<DomainPattern> = "[]",
        /// Which of the messages for one destination goes first.
        order: Option<SortOrder> = "",
        /// Shortest wait before the next attempt.
        retry_min: Option<Duration> = "",
        /// Longest wait.
        retry_max: Option<Duration> = "",
        /// Connections a destination begins with.
        initial_concurrency: Option<usize> = "",
        /// Connections to one destination at a time, at most.
        connections_per_destination: Option<usize> = "",
        /// Connections of the whole group at a time.
        max_connections: Option<usize> = "",
        /// Where connections are scarce the group with the highest goes first. Other mail has 100.
        priority: u32 = "100",
        /// The backend that keeps the group's mail. With this key or one of those below it has a spool of its own, and
        /// what is not written here is as in `[spool]`, sizes too, each for itself. The first recipient's
        /// group decides where a message lies, for all its recipients; reports lie beside the message they
        /// tell of. Takes a restart; what is left in a spool that no key names any more is not seen.
        backend: Option<Backend> = "",
        /// The spool's folder, or a pattern, as in `[spool]`. `{data_dir}/spool-NAME` when it is left out.
        path: Option<PathBuf> = "",
        /// Queue directories, as in `[spool]`.
        directories: Option<usize> = "",
        /// How one of them is chosen.
        placement: Option<Placement> = "",
        /// Levels of sixteen directories each below every queue directory.
        hash_depth: Option<u32> = "",
    }
}

section! {
    /// Where mail waits.
    pub Spool = "spool" {
        /// The backend that keeps mail: `log`, which writes one log for all messages; `directories`, which keeps files
        /// for every message in queue directories as Sendmail does, to look at and to compare with. `null`
        /// keeps nothing, and is for the laboratory's own builds. `postrider spool convert` moves mail
        /// from one to the other.
        backend: Backend = "\"log\"",
        /// The spool's folder. With `backend = "queue-dirs"` also a pattern with one `*` in its last part,
        /// `"/var/spool/postrider/q*"`: the queue directories are those it names, which must be there,
        /// perhaps on several disks.
        path: PathBuf = "\"{data_dir}/spool\"",
        /// Size of one file of the log.
        segment_size: ByteSize = "\"64MiB\"",
        /// Queue directories, `q00`, `q01` and so on, made when missing. With fewer than before the
        /// others are emptied, and can be removed when they are.
        directories: usize = "1",
        /// How a queue directory is chosen for what is committed together: one after the other, by chance,
        /// or the one with the fewest messages.
        placement: Placement = "\"round-robin\"",
        /// Levels of sixteen directories each below every queue directory: 0, 1 or 2. For file systems
        /// that are slow with many files in one directory.
        hash_depth: u32 = "0",
        /// Room it may take. More: 452 4.3.1. 0: what the disk has.
        max_size: ByteSize = "0",
        /// Room that must stay free on its disk. Less: 452 4.3.1.
        min_free: ByteSize = "\"256MiB\"",
        /// How long a client waits while the disk does not say that its message is stored; then 451 4.3.0,
        /// and new mail gets 451 4.3.1 until the disk answers. What it stores after all is delivered, so
        /// that a client that tries again makes a second copy.
        commit_timeout: Duration = "\"1m\"",
    }
}

section! {
    /// How names are looked up.
    pub Dns = "dns" {
        /// Name servers to ask; those of /etc/resolv.conf when the list is empty.
        nameservers: Vec<NameServer> = "[]",
        /// For one answer. What may have been lost is sent again meanwhile.
        timeout: Duration = "\"5s\"",
        /// Times a question is asked.
        attempts: usize = "3",
    }
}

section! {
    /// The delivery log: what was accepted, tried, delivered and returned.
    pub Log = "log" {
        /// Where it is written; to standard error when it is left out.
        file: Option<PathBuf> = "",
        /// The format of the log.
        format: LogFormat = "\"json\"",
        /// The second file, where `format = "both"`.
        postfix_file: Option<PathBuf> = "",
    }
}

section! {
    /// The sockets that `postrider queue`, `sendmail` and their like talk to.
    pub Control = "control" {
        /// For operators: root and the daemon's own user.
        socket: PathBuf = "\"{data_dir}/control.sock\"",
        /// A group (its number) that may use it too.
        group: Option<u32> = "",
        /// For everyone: takes mail in, nothing else.
        submit_socket: PathBuf = "\"{data_dir}/submit.sock\"",
        /// Where local mail is dropped while the daemon is down.
        drop_dir: PathBuf = "\"{data_dir}/drop\"",
    }
}

section! {
    /// Threads.
    pub Workers = "workers" {
        /// How many, 1024 at most; 0 for one each processor. As few of them as are enough have sessions.
        worker_threads: usize = "0",
    }
}
