//! The keys by section. A key's comment is its entry in postrider.toml(5); the literal behind `=` is its default, as TOML.

use crate::{
    BareLf, ClientCertificates, ListenTls, LoosePaths, Placement, SortOrder,
    account::{Group, SocketMode, User},
    acme::Acme,
    choice::{Backend, Durability, EhloKeyword, SaslMechanism, TlsVersion},
    dns::Dns,
    domain::DomainPattern,
    extensions::Extensions,
    filter::{Filter, FilterServer, Hook},
    group::QueueGroup,
    history::History,
    listen_address::{ListenAddress, ListenAt},
    local::Local,
    log::Log,
    metrics::Metrics,
    notifications::LanguageCode,
    oauth::OAuth,
    outbound::Delivery,
    process::Process,
    route::Route,
    rules::RuleSet,
    section::section,
    sign::{Sign, SignWith},
    units::ByteSize,
    users::UserStore,
    value::{HostName, HostTable, OrMap, SubAddress, Word},
    workers::Workers,
};
use ipnet::IpNet;
use mail::{ListenerKind, Mailbox};
use maps::{NamedMap, Reference};
use policy::AddressPattern;
use std::net::{IpAddr, SocketAddr};
use std::{path::PathBuf, time::Duration};

/// The settings of a configuration without problems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The name this server gives itself in greetings, EHLO, trace headers and DSNs; an A-label name.
    pub hostname: String,
    /// The directory for everything that must survive a restart.
    pub data_dir: PathBuf,
    /// The mailbox that gets mail for `<Postmaster>` (RFC 5321 §4.5.1).
    pub postmaster: Mailbox,
    /// The listeners; never empty.
    pub listen: Vec<Listen>,
    /// Clients that may send to every domain.
    pub relay: Relay,
    /// Domains and users whose mail is delivered here.
    pub local: Local,
    /// Aliases and other changes of addresses.
    pub addresses: Addresses,
    /// Notifications of this server.
    pub notifications: Notifications,
    /// Each `[map.NAME]`, by name.
    pub maps: Vec<NamedMap>,
    /// Explicit routes, in the order of the file.
    pub routes: Vec<Route>,
    /// Rules, checks and limits.
    pub rules: RuleSet,
    /// Certificates.
    pub tls: Tls,
    /// Certificates for some names, in the order of the file.
    pub certificates: Vec<Certificate>,
    /// The certificate that the daemon obtains itself.
    pub acme: Acme,
    /// Filters that see mail, in the order in which they are asked.
    pub filters: Vec<Filter>,
    /// Keys that sign mail, in the order of the file.
    pub sign: Vec<Sign>,
    /// Logins.
    pub auth: Auth,
    /// Logins by token.
    pub oauth: OAuth,
    /// `[limits]` and `[timeouts]`.
    pub limits: smtp::Limits,
    /// Limits of inbound connections.
    pub inbound: Inbound,
    /// SMTP extensions.
    pub extensions: Extensions,
    /// Outbound connections.
    pub delivery: Delivery,
    /// The schedule of attempts.
    pub queue: Queue,
    /// Queue groups, in the order of the file.
    pub queue_groups: Vec<QueueGroup>,
    /// `[spool]`, for mail of no queue group with a spool of its own.
    pub spool: Spool,
    /// DNS lookups.
    pub dns: Dns,
    /// Host names with fixed addresses.
    pub hosts: HostTable,
    /// The delivery log.
    pub log: Log,
    /// Metrics for Prometheus.
    pub metrics: Metrics,
    /// The history of messages.
    pub history: History,
    /// The sockets for the command line.
    pub control: Control,
    /// `[process]`: user, sandbox and files.
    pub process: Process,
    /// Threads.
    pub workers: Workers,
}

impl Settings {
    /// The HTTP hooks among the filters.
    pub fn hooks(&self) -> impl Iterator<Item = &Hook> {
        self.filters.iter().filter_map(|filter| match &filter.server {
            FilterServer::Hook(hook) => Some(hook),
            FilterServer::Milter(_) | FilterServer::Rspamd(_) => None,
        })
    }

    /// All references to maps, each with its key.
    pub fn map_references(&self) -> impl Iterator<Item = (&str, &Reference)> {
        let senders = self.auth.senders.iter().map(|map| ("auth.senders", map));
        let certificates = self.auth.certificates.iter().map(|map| ("auth.certificates", map));
        let senders = senders.chain(certificates);
        let rules = self.rules.references.iter().map(|(key, map)| (key.as_str(), map));
        let users = match &self.auth.users {
            Some(UserStore::Map(map) | UserStore::Bind(map)) => Some(("auth.users", map)),
            _ => None,
        };
        let routes = self.routes.iter().flat_map(Route::maps);
        let addresses = &self.addresses;
        let copies = [
            ("addresses.generic", &addresses.generic),
            ("addresses.sender_bcc", &addresses.sender_bcc),
            ("addresses.recipient_bcc", &addresses.recipient_bcc),
        ];
        let copies = copies.into_iter().flat_map(|(key, maps)| maps.iter().map(move |map| (key, map)));
        let logins = users.into_iter().chain(senders);
        let networks = self.relay.network_maps.iter().map(|map| ("relay.networks", map));
        let signing = self.sign.iter().filter_map(|sign| match &sign.keys {
            SignWith::Map(map) => Some(("sign.keys", map)),
            SignWith::Key { .. } => None,
        });
        let own =
            self.address_maps().chain(logins).chain(signing).chain(routes).chain(copies).chain(networks);
        own.map(|(key, map): (&str, _)| (key, map)).chain(rules)
    }

    /// The references to maps that recipients and senders are looked up in, each with its key.
    pub fn address_maps(&self) -> impl Iterator<Item = (&'static str, &Reference)> {
        let (local, addresses) = (&self.local, &self.addresses);
        let lists = [
            ("local.domains", &local.domain_maps),
            ("local.users", &local.user_maps),
            ("addresses.canonical", &addresses.canonical),
            ("addresses.virtual", &addresses.r#virtual),
            ("addresses.aliases", &addresses.aliases),
        ];
        lists.into_iter().flat_map(|(key, maps)| maps.iter().map(move |map| (key, map)))
    }

    /// Returns whether a domain, given as [`mail::Domain::key`], is a local domain that is listed by name.
    pub fn is_local(&self, key: &str) -> bool {
        self.local.domains.iter().any(|domain| domain == key)
    }

    /// Returns whether a client at this address may relay.
    pub fn may_relay(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.relay.networks.iter().any(|net| net.contains(&client))
    }

    /// The first explicit route for a domain, given as [`mail::Domain::key`], whoever the sender is. None: to a Maildir
    /// when it is local, else by MX.
    pub fn route(&self, key: &str) -> Option<(usize, &Route)> {
        let mut matching = self.routes.iter().enumerate().filter(|(_, route)| route.matches(key));
        matching.find(|(_, route)| route.senders.is_all())
    }

    /// The routes that have a `[[route]]` of their own, with its number in the file, from 0.
    pub fn numbered_routes(&self) -> impl Iterator<Item = (usize, &Route)> {
        self.routes.iter().filter_map(|route| Some((route.number?, route)))
    }

    /// Every spool: that of `[spool]`, then those of queue groups in the order of the file.
    pub fn spools(&self) -> Vec<Spool> {
        let own = self.queue_groups.iter().filter_map(|group| group.spool.as_ref());
        std::iter::once(self.spool.clone()).chain(own.map(|own| own.beside(&self.spool))).collect()
    }

    /// Returns the index in [`Settings::spools`] of the spool of a queue group.
    pub fn spool_of(&self, group: usize) -> usize {
        let groups = &self.queue_groups[..group];
        let is_own = groups.last().is_some_and(|group| group.spool.is_some());
        if is_own { groups.iter().filter(|group| group.spool.is_some()).count() } else { 0 }
    }
}

/// A listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The number of its section in the file, from 0.
    pub number: usize,
    /// Where clients connect.
    pub address: ListenAt,
    /// Who connects there, which decides what they may do.
    pub kind: ListenerKind,
    /// The use of TLS.
    pub tls: ListenTls,
    /// The certificates of clients that are asked for.
    pub client_certificates: ClientCertificates,
    /// The treatment of a bare CR or LF. `None`: the client's network decides.
    pub bare_lf: Option<BareLf>,
    /// Keywords that are left out of EHLO's reply.
    pub discard_ehlo_keywords: Vec<EhloKeyword>,
    /// The largest message, where it differs from that of the limits.
    pub max_message_size: Option<ByteSize>,
    /// True if the trace field does not name a client that has logged in.
    pub hide_client: bool,
    /// Load balancers, whose connections begin with a PROXY header.
    pub proxy: Vec<IpNet>,
    /// Time before the greeting of an untrusted client.
    pub greeting_delay: Duration,
    /// Clients can log in, where the kind and the users permit it.
    pub auth: bool,
    /// Concurrent connections of the listener.
    pub max_sessions: Option<usize>,
    /// Peers that may name their clients by XCLIENT.
    pub xclient: Vec<IpNet>,
    /// Peers that may name the sources of mail by XFORWARD.
    pub xforward: Vec<IpNet>,
}

impl ListenKeys {
    /// The listener that these keys describe.
    pub(crate) fn at(&self, number: usize, address: ListenAddress) -> Listen {
        let usual = match self.kind {
            ListenerKind::Submissions => ListenTls::Implicit,
            ListenerKind::Lmtp => ListenTls::Off,
            _ if matches!(address, ListenAddress::Unix(_)) => ListenTls::Off,
            ListenerKind::Mx | ListenerKind::Relay | ListenerKind::Submission => ListenTls::StartTls,
        };
        Listen {
            number,
            address: match address {
                ListenAddress::Ip(ip, port) => {
                    ListenAt::Ip(SocketAddr::new(ip, port.unwrap_or(self.kind.port())))
                }
                ListenAddress::Unix(path) => {
                    let mode = self.mode.unwrap_or(SocketMode(0o660));
                    let (owner, group) = (self.owner.clone(), self.group.clone());
                    ListenAt::Unix { path, mode, owner, group }
                }
                ListenAddress::Systemd(name) => ListenAt::Systemd(name),
            },
            kind: self.kind,
            tls: self.tls.unwrap_or(usual),
            client_certificates: self.client_certificates,
            bare_lf: self.bare_lf,
            discard_ehlo_keywords: self.discard_ehlo_keywords.clone(),
            max_message_size: self.max_message_size,
            hide_client: self.hide_client,
            auth: self.auth,
            proxy: self.proxy.clone(),
            greeting_delay: self.greeting_delay,
            max_sessions: self.max_sessions,
            xclient: self.xclient.clone(),
            xforward: self.xforward.clone(),
        }
    }
}

section! {
    /// Keys before the first section.
    pub(crate) GlobalKeys = "" {
        /// The name of this server in its greeting, in EHLO, in trace headers and in delivery status notifications.
        /// Default: the name of the machine.
        hostname: HostName = "\"{machine}\"",
        /// The directory for everything that must survive a restart: the spool, the sockets, local Maildirs, and the drop
        /// directory of local programs. It is created if it does not exist.
        data_dir: PathBuf = "\"postrider-data\"",
        /// The address that gets mail for the bare `<Postmaster>` (RFC 5321 §4.5.1). It also gets mail for the postmaster
        /// of each local domain if `local.users` is set and does not name `postmaster`.
        postmaster: Mailbox = "\"postmaster@{hostname}\"",
    }
}

section! {
    /// An address that the daemon listens on. The section can be repeated. Without it, the daemon listens on
    /// 127.0.0.1:2525.
    pub(crate) ListenKeys = "listen" many {
        /// An IP address and port; `0.0.0.0` and `[::]` are all addresses of the machine. The default port depends on the
        /// kind: 25, 587 for `submission`, 465 for `submissions`, 24 for `lmtp`. `unix:/path` is a Unix socket: its
        /// clients may send to local domains only, unless they log in, for which they need no TLS. `systemd:NAME` means
        /// the sockets that systemd has opened with `FileDescriptorName=NAME`.
        address: Option<ListenAddress> = "",
        /// The permissions of a Unix socket. Anybody who may write to it may send mail. Default: `0660`.
        mode: Option<SocketMode> = "",
        /// The owner of a Unix socket: a name, or a number. Default: the daemon's user.
        owner: Option<User> = "",
        /// The group of a Unix socket: a name, or a number. Default: the daemon's group.
        group: Option<Group> = "",
        /// The purpose of the listener. `mx` accepts mail for local domains from all clients, and mail for all domains
        /// from clients in `relay.networks` and from clients that have logged in. `relay` accepts mail from
        /// `relay.networks` only; other clients get 554 5.7.1. `submission` and `submissions` accept mail only after a
        /// login (RFC 6409, RFC 8314), before which the reply is 530 5.7.0. The sender must be an address of the login,
        /// and missing `Date` and `Message-ID` fields are added. `lmtp` speaks LMTP (RFC 2033) with other mail servers,
        /// and accepts mail for local domains only, with a reply for each recipient.
        kind: ListenerKind = "\"mx\"",
        /// `starttls` offers TLS by STARTTLS (RFC 3207), `required` offers it and refuses all mail without it (530 5.7.0),
        /// `implicit` uses TLS from the first byte (RFC 8314), and `off` uses none. A public mail server must not require
        /// TLS (RFC 3207 §4). Default: `implicit` for `submissions`, `off` for `lmtp` and Unix sockets, `starttls` for others. If
        /// `[tls]` has no certificate, a self-signed one is generated.
        tls: Option<ListenTls> = "",
        /// Use of client certificates. With `ask`, a client may present one and log in with it by EXTERNAL, and rules can
        /// match it by `certificate`. If no authority in `tls.client_ca_file` has signed it, it is not refused, but only
        /// its fingerprint counts, not its names. With `require`, the TLS handshake fails without a certificate of such
        /// an authority, and commands before TLS get 530 5.7.0. With `off`, none is asked for.
        client_certificates: ClientCertificates = "\"off\"",
        /// Treatment of a CR or LF that is not part of a CRLF (RFC 5321 §2.3.8). `reject` rejects the message with 521
        /// 5.5.2 and closes the connection (in a BDAT chunk, 550 5.5.2). `normalize` replaces a bare LF by CRLF and a
        /// bare CR by a space before the message is stored; command lines may then end in LF. In both cases only
        /// CRLF.CRLF ends the content. Default: `normalize` for clients in `relay.networks`, `reject` for others.
        bare_lf: Option<BareLf> = "",
        /// Keywords to leave out of the EHLO reply, for clients that misuse them. Their commands and parameters are
        /// rejected. Leaving out `chunking` leaves out `binarymime` as well.
        discard_ehlo_keywords: Vec<EhloKeyword> = "[]",
        /// The largest message that this listener accepts, announced by SIZE. Default: `limits.max_message_size`.
        max_message_size: Option<ByteSize> = "",
        /// If true, the `Received` field of mail from clients that have logged in does not show their name and address
        /// (RFC 6409 §8). The log does.
        hide_client: bool = "false",
        /// If false, clients cannot log in at this listener: AUTH is not offered, and gets 502 5.5.1. Use it for an `mx`
        /// listener if your users send through another one.
        auth: bool = "true",
        /// Networks or addresses of load balancers. Their connections must begin with a PROXY protocol header, version 1
        /// or 2, that names the client; a connection without it is closed. Other clients connect directly, and must not
        /// send such a header.
        proxy: Vec<IpNet> = "[]",
        /// Delay before the greeting for clients outside `relay.networks`, at most 30s. A client that sends anything
        /// before the greeting is rejected with 554 5.5.0: programs that send spam often do not wait.
        greeting_delay: Duration = "\"0s\"",
        /// Maximum number of concurrent connections of this listener, within `inbound.max_sessions`. Reply: 421 4.3.2.
        max_sessions: Option<usize> = "",
        /// Networks or addresses of peers that may name their clients by XCLIENT (Postfix). The address, name and EHLO
        /// name that they give count as the client's, and the session begins anew. A login that they give is used for the
        /// log and the sender check only, and does not permit relaying. Other clients get 550 5.7.0. A peer in this list
        /// can claim any address, including those in `relay.networks`.
        xclient: Vec<IpNet> = "[]",
        /// Networks or addresses of peers that may name the client that a message came from by XFORWARD (Postfix), for
        /// the log and the `Received` field only. Other clients get 550 5.7.0.
        xforward: Vec<IpNet> = "[]",
    }
}

section! {
    /// Clients that may send to all domains. Other clients may send to local domains only.
    pub(crate) RelayKeys = "relay" {
        /// Networks or addresses of these clients, and files of them: `cidr:FILE` with networks, or `text:FILE` with
        /// addresses; the values do not matter. If such a file is missing, the daemon does not start.
        networks: Vec<OrMap<IpNet>> = "[\"127.0.0.0/8\", \"::1/128\"]",
    }
}

/// Clients that may send to every domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relay {
    /// The networks of the clients.
    pub networks: Vec<IpNet>,
    /// Files that have addresses or networks of clients.
    pub network_maps: Vec<Reference>,
}

section! {
    /// Rewriting of recipients before their mail is stored, in this order: `canonical`, `virtual`, `aliases`. It applies
    /// to mail from clients and from programs on this machine. If a map does not answer, the client gets a temporary
    /// error (451 4.3.0 at RCPT). A loop, or a chain of more than 10 aliases, is refused permanently (554 5.4.6).
    /// docs/addresses.md has examples.
    pub Addresses = "addresses" {
        /// Maps from names to lists of targets, in the format of aliases(5): `aliases:/etc/aliases`. They apply to local
        /// domains that are listed by name. A target is an address, a local name, `\name` (the user, without further
        /// aliases) or `:include:FILE`. A name that is its own target is the user. Mail for a name with a target
        /// `|program` or `/file` is deferred, unless `programs` or `files` lists its path.
        aliases: Vec<Reference> = "[]",
        /// If true, the file `.forward` in the home of a user of this machine is a list of targets for the user's name, if `aliases` has
        /// none: addresses, and `\name` for a mailbox. A helper reads it as the user; needs a daemon that root has started, with
        /// `process.user`. The file is used only if it belongs to the user or root, is not a symbolic link, and is not writable by
        /// others. Programs, files and lists in it are ignored, and the user's mailbox gets the mail instead. Changes take effect within five
        /// seconds.
        forward: bool = "false",
        /// Paths of the programs that aliases may start: `["/usr/bin/vacation"]`. There is no shell: the words after the
        /// path are the arguments. Programs are treated like those of `pipe` in `[[route]]`.
        programs: Vec<PathBuf> = "[]",
        /// The user that runs these programs: a name, or a number. Required if the daemon runs as root.
        program_user: Option<User> = "",
        /// Paths of the mbox files that aliases may append to.
        files: Vec<PathBuf> = "[]",
        /// Maps from addresses to lists of addresses, for all domains. Keys are looked up in this order:
        /// `user@example.com`, the address without its detail, `user` (for domains of this server, in `text:` and `cdb:`
        /// files only), `@example.com`. A target without a domain is at the hostname; the target `@other.example` is the
        /// same user there.
        r#virtual: Vec<Reference> = "[]",
        /// Maximum number of targets to which maps and files may expand one recipient. Mail for a longer list is refused
        /// with 550 5.2.4. A message with more than 50,000 recipients is queued as several messages, all of them or none.
        /// While it is being accepted, the list needs about 100 bytes per member, all in one segment of the spool
        /// (`spool.segment_size`).
        max_list_members: u32 = "250000",
        /// The character between a user and a detail: with `+`, mail for `joe+lists` goes to `joe`. `""` for none.
        separator: SubAddress = "\"+\"",
        /// Domains that hide their hosts: with `example.com`, the sender `root@host.example.com` becomes
        /// `root@example.com`. Only the reverse-path is changed, not the header.
        masquerade: Vec<HostName> = "[]",
        /// Maps from addresses to one address each, for the reverse-path and for recipients. The keys are those of
        /// `virtual`.
        canonical: Vec<Reference> = "[]",
        /// Senders whose mail leaves with a separate reverse-path for each recipient (VERP), so that a bounce shows which
        /// recipient failed: `news@example.com`, or `example.com` for a whole domain. With `news@example.com`, mail for
        /// `joe@example.net` leaves with `news+joe=example.net@example.com`. The `+` is `separator`, so bounces come back
        /// as mail for `news`. Each recipient needs a transaction of its own.
        verp: Vec<AddressPattern> = "[]",
        /// Maps from addresses to one address each, for mail that leaves by SMTP (`smarthost`, `mx`, or without a route).
        /// They change the reverse-path and the recipients on the way out only, and never the header. The keys are those
        /// of `virtual`.
        generic: Vec<Reference> = "[]",
        /// Addresses that get a copy of every message, except for this server's notifications. Other recipients do not
        /// see them, senders get no notification about them, and they are not looked up in `aliases` and `virtual`.
        bcc: Vec<Mailbox> = "[]",
        /// Maps from senders to the addresses that get a copy of their mail. The keys are those of `virtual`.
        sender_bcc: Vec<Reference> = "[]",
        /// Maps from recipients, after all rewriting, to the addresses that get a copy of their mail.
        recipient_bcc: Vec<Reference> = "[]",
    }
}

section! {
    /// Notifications that this server sends about mail that could not be delivered, is late, or was delivered (RFC 3464).
    /// docs/notifications.md shows them.
    pub Notifications = "notifications" {
        /// The languages of the text for the reader. With several, each notification has the text in all of them, in this
        /// order. Postrider has `en` and `de`; `templates` can add others. The part for programs is the same in every
        /// language.
        languages: Vec<LanguageCode> = "[\"en\"]",
        /// A directory of files with your own texts, one for each language: `en.txt`, `de.txt` and so on. A file replaces
        /// the sections that it contains; for a language that Postrider does not have, it needs all sections.
        templates: Option<PathBuf> = "",
        /// If true, `postmaster` gets notifications that could not be delivered, for example because their recipient does
        /// not exist. If they cannot be delivered to the postmaster either, they are discarded.
        double_bounces: bool = "true",
        /// Maximum number of mails to `postmaster` in an hour about notifications that could not be delivered. Further
        /// ones are in the log and in the history, and one mail an hour summarizes them. With 0 they are in the log and
        /// in the history only.
        max_double_bounces_per_hour: u32 = "20",
    }
}

section! {
    /// The certificate of the listeners, and the verification of next hops.
    pub Tls = "tls" {
        /// PEM file with the certificate, followed by the certificates that signed it. Without this key, a
        /// self-signed certificate for the hostname is generated.
        certificate: Option<PathBuf> = "",
        /// PEM file with the private key of the certificate.
        key: Option<PathBuf> = "",
        /// The oldest TLS version that is accepted.
        min_version: TlsVersion = "\"1.2\"",
        /// PEM file with the certification authorities to trust for `tls = "verify"`. Without this key, Mozilla's are
        /// used.
        ca_file: Option<PathBuf> = "",
        /// PEM file with the certificate that next hops are shown if they ask for one, followed by the certificates that
        /// signed it. Without this key they are shown none.
        next_hop_certificate: Option<PathBuf> = "",
        /// PEM file with the private key of that certificate.
        next_hop_key: Option<PathBuf> = "",
        /// PEM file with the certification authorities that may sign client certificates, for listeners with
        /// `client_certificates`. Anybody with a certificate from one of them can log in: name an authority of your own,
        /// not a public one.
        client_ca_file: Option<PathBuf> = "",
    }
}

section! {
    /// A certificate for clients that ask for one of its names by SNI; other clients get that of `[tls]`. The names are
    /// taken from the certificate; `*.example.com` in it stands for one label. The section can be repeated. `postrider
    /// reload` reads the files again, and open sessions continue.
    pub(crate) CertificateKeys = "certificate" many {
        /// PEM file with the certificate, followed by the certificates that signed it.
        chain: Option<PathBuf> = "",
        /// PEM file with the private key of the certificate.
        key: Option<PathBuf> = "",
    }
}

/// The files of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The number of its section in the file, from 0.
    pub number: usize,
    /// The certificate, and those that signed it.
    pub chain: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

section! {
    /// Users who may log in with AUTH (RFC 4954), on listeners of the kinds `mx`, `submission` and `submissions`.
    pub Auth = "auth" {
        /// The users and their passwords. `passwd:FILE` is a file in Dovecot's passwd-file format, with lines
        /// `user:{SCHEME}hash` as `postrider auth hash` prints them; a changed file is reread at the next login, once it has
        /// been unchanged for a second. `dovecot:SOCKET` is Dovecot's auth socket for clients, such as
        /// `dovecot:/run/dovecot/auth-client`. `map:NAME`, `cdb:FILE` and other maps lead from a login in lower case to
        /// `{SCHEME}hash`; a colon and what follows are ignored. `bind:NAME` has an LDAP directory verify passwords: the
        /// `filter` of `[map.NAME]` finds the entry of a user, Postrider binds to the server as that entry with the client's
        /// password, and the value of `attribute` is the name of the login. A map or directory that fails is a temporary
        /// error (454 4.7.0).
        /// Without this key nobody can log in.
        users: Option<UserStore> = "",
        /// The logins of client certificates, for the mechanism EXTERNAL: a map from `sha256:FINGERPRINT` (hexadecimal
        /// digits in lower case, without colons) to a login. If an authority in `tls.client_ca_file` has signed the
        /// certificate, its e-mail addresses, its host names, and `cn:` with its common name are looked up as well, all
        /// in lower case; the first key found decides. Without this key, the e-mail addresses in such a certificate are
        /// its logins.
        certificates: Option<Reference> = "",
        /// A map from a login to the sender addresses that it may use, separated by spaces or commas: `user@example.com`,
        /// `@example.com` for a whole domain, `*` for all. A login that is not in the map may use its own address only;
        /// without this key, so may every login.
        senders: Option<Reference> = "",
        /// SASL mechanisms to offer. Default with `dovecot:`: those that Dovecot offers. Default with a map: `plain` and
        /// `login`; add others if all passwords in the map work with them. Default with `passwd:`: `plain` and `login`,
        /// and `scram-sha-256`, `scram-sha-256-plus`, `scram-sha-1` and `scram-sha-1-plus` if the passwords of all users
        /// work with them, being in clear text or in the scheme of this name. `external` is added if a listener asks for
        /// certificates; only clients with a certificate see it. `oauthbearer` and `xoauth2` are added with `[oauth]`.
        mechanisms: Option<Vec<SaslMechanism>> = "",
        /// If true, clients may log in without TLS. Anybody on the network path can then read their passwords.
        allow_clear_text: bool = "false",
        /// Failed logins of a client (an IPv4 address or an IPv6 /64 network) in ten minutes. After that, all its logins
        /// get 454 4.7.0, even with the right password.
        max_failures: u32 = "20",
    }
}

section! {
    /// Limits of a session, and the reply when each of them is exceeded.
    pub(crate) LimitKeys = "limits" {
        /// Maximum length of a command line with its CRLF. Reply: 500 5.5.2.
        max_command_line: ByteSize = "\"4KiB\"",
        /// Maximum length of an address in MAIL and RCPT with its brackets. Reply: 501 5.1.7 or 501 5.1.3.
        max_path: ByteSize = "256",
        /// If true, only local parts that RFC 5321 permits are accepted: up to 64 octets and, unless quoted, without a
        /// dot at the beginning, at the end, or next to another dot. If false, others are accepted and passed on
        /// unchanged, because they do occur (SRS, VERP, some providers). Reply: 501 5.1.7 or 501 5.1.3.
        strict_local_parts: bool = "false",
        /// The clients that may write an address in MAIL and RCPT in ways that RFC 5321 does not permit but Postfix
        /// accepts by default (`strict_rfc821_envelopes = no`): without brackets, with two pairs of them, or with blanks
        /// between bracket and address. `nobody`, `trusted` (clients in `relay.networks`, and those that have logged in)
        /// or `everybody`. Others get 501 5.1.7 or 501 5.1.3.
        loose_paths: LoosePaths = "\"trusted\"",
        /// Maximum size of a message, announced by SIZE. At least 64KiB. Reply: 552 5.3.4.
        max_message_size: ByteSize = "\"50MiB\"",
        /// Maximum size of the header. At least 64KiB. Reply: 552 5.3.4.
        max_header_size: ByteSize = "\"1MiB\"",
        /// Maximum number of recipients in a transaction. At least 100 (RFC 5321 §4.5.3.1.8). Reply: 452 4.5.3; those
        /// already accepted stay accepted.
        max_recipients: usize = "1000",
        /// Maximum number of transactions in a session. Reply: 421 4.7.0.
        max_transactions: u32 = "100000",
        /// Maximum number of erroneous commands since the last accepted message. Reply: 421 4.7.0.
        max_errors: u32 = "20",
        /// Maximum number of rejected recipients since the last accepted message. Reply: 421 4.7.0.
        max_rejected_recipients: u32 = "20",
        /// Maximum number of EHLO, NOOP, RSET, VRFY and HELP commands since the last message. Reply: 421 4.7.0.
        max_junk_commands: u32 = "100",
        /// Maximum number of `Received` fields of a message. Reply: 554 5.4.6.
        max_hops: u32 = "50",
    }
}

section! {
    /// How long the daemon waits for a client (RFC 5321 §4.5.3.2).
    pub(crate) TimeoutKeys = "timeouts" {
        /// Time for a complete command to arrive. After that, the reply is 421 4.4.2. Also the time for a client to
        /// receive a reply, after which the connection is closed.
        command: Duration = "\"5m\"",
        /// Time for a complete command or a TLS handshake while more than half of `inbound.max_sessions` are in use. It
        /// applies to clients that are neither in `relay.networks` nor logged in. If `timeouts.command` is shorter, it is
        /// used instead.
        command_under_stress: Duration = "\"10s\"",
        /// Time between two pieces of content. Reply: 421 4.4.2.
        data: Duration = "\"3m\"",
        /// Time for a TLS handshake, after which the connection is closed.
        tls: Duration = "\"1m\"",
        /// Time for a complete transaction, however much data arrives. Reply: 421 4.4.2.
        transaction: Duration = "\"1h\"",
    }
}

section! {
    /// Limits of all inbound connections together.
    pub Inbound = "inbound" {
        /// Maximum number of concurrent connections; fewer if the limit of open files is too low for them, which is
        /// logged. A fifth is reserved for clients in `relay.networks` and for listeners where clients log in, and half
        /// of that for clients in `relay.networks` alone. Clients of Unix sockets can use at most half of all. Reply: 421
        /// 4.3.2.
        max_sessions: usize = "10000",
        /// Maximum number of concurrent connections from one IPv4 address or one IPv6 /64 network; clients in
        /// `relay.networks` are exempt. Reply: 421 4.3.2.
        max_sessions_per_client: usize = "50",
        /// Memory for content that is arriving or not delivered yet. When it is used up, the reply to MAIL is
        /// 452 4.3.1, and arriving content is written to disk in small chunks.
        max_content_memory: ByteSize = "\"256MiB\"",
        /// Time for sessions and deliveries to finish after a stop is requested.
        shutdown_timeout: Duration = "\"30s\"",
    }
}

section! {
    /// Retries of deferred mail. The time until the next attempt is the age of the message, but at least `retry_min` and
    /// at most `retry_max`, varied at random by up to a fifth. A destination that cannot be reached at all is probed
    /// sooner, by one connection: first after a thirtieth of `retry_min`.
    pub Queue = "queue" {
        /// Shortest interval.
        retry_min: Duration = "\"300s\"",
        /// Longest interval.
        retry_max: Duration = "\"4000s\"",
        /// Maximum lifetime: the age at which a message that could not be delivered is returned. A message found in the
        /// spool at the start is attempted once before it is returned.
        expire: Duration = "\"5d\"",
        /// The age at which the sender gets a delay warning; 0 for never.
        delay_warning: Duration = "\"4h\"",
        /// If true, nothing is permanently refused or returned, so that you can try a new configuration: clients get 4yz
        /// instead of 5yz for senders, recipients and content, and mail that the next hop refuses stays in the queue.
        /// Mail that is older than `expire` is still returned, and wrong commands still get 5yz.
        soft_bounce: bool = "false",
        /// Number of connections to a destination at first. Each success permits more, up to
        /// `delivery.connections_per_destination`.
        initial_concurrency: usize = "5",
        /// Maximum number of messages in the queue. Reply when exceeded: 452 4.3.1. The last twentieth is kept for mail of
        /// local programs, logins and `relay.networks`; other clients get this reply earlier, also when a
        /// twentieth of the spool's space, or what three segments hold, is left.
        max_messages: usize = "10000000",
        /// Order of the due messages for one destination. `fair` and `none` keep the order in which they became due, and
        /// `fair` lets small messages overtake bulk mail. `priority` uses Sendmail's formula, and `filename` the queue
        /// id. `modification` begins with the message that has been unchanged for the longest time, `time` with the
        /// oldest, `deadline` with the one that expires soonest, `smallest` with the smallest; `random` chooses at
        /// random. `host` sorts by destination, which is the next hop, so it has no effect within one destination.
        /// Destinations always take turns.
        order: SortOrder = "\"fair\"",
    }
}

section! {
    /// Mail with a schedule of its own. The first group that matches is used. Mail that matches no group is scheduled by
    /// `[queue]` and `[delivery]`, which also supply the keys that a group leaves out. If several groups use a
    /// destination, each of them counts it separately.
    pub(crate) QueueGroupKeys = "queue_group" many {
        /// The name of the group in listings.
        name: Option<Word> = "",
        /// Domains of recipients, as in `[[route]]`. Without this key, all.
        domains: Vec<DomainPattern> = "[]",
        /// Domains of senders. Without this key, all, and the null reverse-path.
        sender_domains: Vec<DomainPattern> = "[]",
        /// Order of the due messages for one destination.
        order: Option<SortOrder> = "",
        /// Shortest interval between attempts.
        retry_min: Option<Duration> = "",
        /// Longest interval.
        retry_max: Option<Duration> = "",
        /// Number of connections to a destination at first.
        initial_concurrency: Option<usize> = "",
        /// Maximum number of concurrent connections to one destination.
        connections_per_destination: Option<usize> = "",
        /// Maximum number of concurrent connections of the whole group.
        max_connections: Option<usize> = "",
        /// When connections are scarce, the group with the highest priority goes first. Mail without a group
        /// has 100.
        priority: u32 = "100",
        /// The backend that stores the mail of the group. With this key or one of those below, the group has a spool of
        /// its own; keys that are left out, and sizes, are those of `[spool]`. The group of the first recipient decides
        /// where a message is stored, and a delivery status notification is stored with its message. Needs a restart. The
        /// daemon does not start if a spool that no key names any more still has mail.
        backend: Option<Backend> = "",
        /// The directory of the spool, or a pattern, as in `[spool]`. Default: `{data_dir}/spool-NAME`.
        path: Option<PathBuf> = "",
        /// Number of queue directories, as in `[spool]`.
        directories: Option<usize> = "",
        /// How a queue directory is chosen, as in `[spool]`.
        placement: Option<Placement> = "",
        /// Levels of sixteen subdirectories in each queue directory.
        hash_depth: Option<u32> = "",
    }
}

section! {
    /// The storage of queued mail.
    pub Spool = "spool" {
        /// `log` writes one log for all messages. `queue-dirs` writes two files for each message into queue directories,
        /// as Sendmail does. `null` stores nothing and exists only in builds for the laboratory. `postrider spool
        /// convert` copies mail from one backend to another.
        backend: Backend = "\"log\"",
        /// The directory of the spool. With `backend = "queue-dirs"` it can also be a pattern with one `*` in its last
        /// part, such as `"/var/spool/postrider/q*"`, that matches the queue directories. These must exist, and may be on
        /// several disks.
        path: PathBuf = "\"{data_dir}/spool\"",
        /// When a message is acknowledged with 250, and so what a crash can lose. `durable`: when the message is synced;
        /// nothing is lost. `after-checks`: a synonym of `durable`.
        /// `deliver-first`: when the next hop has the message; or when it is synced, if the next hop defers it, refuses
        /// it, or has not answered within `deliver_first_timeout`. Nothing is lost, and mail that leaves at once is never
        /// written. `none`: before the message is written; it is written and synced in the background. A crash of the
        /// daemon or of the machine then loses acknowledged mail, so use it only for tests and for mail that may be lost.
        /// The daemon warns about it at each start and in `postrider status`.
        durability: Durability = "\"durable\"",
        /// With `deliver-first`, here or in a route: how long to wait for the next hop. After that, the message is synced
        /// and the client gets its 250, while the delivery continues.
        deliver_first_timeout: Duration = "\"1s\"",
        /// If true, the spool may be on a file system in memory (tmpfs) or of a container (overlayfs). If false, the
        /// daemon refuses to start there, because accepted mail would be lost with the power or with the container. The
        /// environment variable `POSTRIDER_EPHEMERAL=true` means the same, for tests. The embedded default and
        /// `--capture` only warn.
        ephemeral: bool = "false",
        /// With `backend = "queue-dirs"`: a separate directory for the content of messages, for example on another disk
        /// than their envelopes. Content is synced before its envelope. Each queue directory has a link `content` to it,
        /// so that other commands find it. Mail that is already queued when you add the key stays where it is; to remove
        /// the key, convert the spool. Without this key, content is stored next to its envelope.
        content_path: Option<PathBuf> = "",
        /// Size of one segment file of the log.
        segment_size: ByteSize = "\"64MiB\"",
        /// Number of queue directories `q00`, `q01` and so on, which are created if they are missing. If you lower the
        /// number, the other directories are emptied, and can then be removed.
        directories: usize = "1",
        /// How a queue directory is chosen for the messages of a commit: in turn, at random, or the one with the fewest
        /// messages.
        placement: Placement = "\"round-robin\"",
        /// Levels of sixteen subdirectories in each queue directory: 0, 1 or 2. Useful on file systems that are slow with
        /// many files in one directory.
        hash_depth: u32 = "0",
        /// Maximum size of the spool; 0 for no limit. Reply when exceeded: 452 4.3.1.
        max_size: ByteSize = "0",
        /// Space to keep free on the disk of the spool. Reply when there is less: 452 4.3.1.
        min_free: ByteSize = "\"256MiB\"",
        /// How long a client waits for a disk that does not respond. After that it gets 451 4.3.0, and new mail gets 451
        /// 4.3.1 until the disk responds. If the message is stored after all, it is delivered, so a client that tries
        /// again creates a second copy.
        commit_timeout: Duration = "\"1m\"",
    }
}

section! {
    /// The sockets that `postrider queue`, `sendmail` and other commands use.
    pub Control = "control" {
        /// The socket for operators: root and the daemon's own user.
        socket: PathBuf = "\"{data_dir}/control.sock\"",
        /// A group whose members may use the operators' socket as well: a name, or a number.
        group: Option<Group> = "",
        /// The socket through which all users submit mail. Nothing else can be done through it.
        submit_socket: PathBuf = "\"{data_dir}/submit.sock\"",
        /// The drop directory, where local mail waits while the daemon is down.
        maildrop: PathBuf = "\"{data_dir}/drop\"",
        /// Maximum number of messages that one user other than root may have in the drop directory. Beyond it, `sendmail`
        /// fails with exit code 75. What a user writes there without `sendmail` is removed beyond twice this number or
        /// twice `maildrop_max_size`, and so is anything that is not a file; directories that are not empty are skipped.
        maildrop_max_messages: u32 = "1000",
        /// Maximum size in octets of the messages that one user other than root may have in the drop directory.
        maildrop_max_size: ByteSize = "\"256MiB\"",
    }
}
