//! Checks that concern several keys or the machine: ranges, contradictions, missing files.

mod acme;
mod folders;
mod listeners;
mod logins;
mod maps;
mod notifications;
mod process;
mod rules;
mod spool;

use crate::{
    certificate::{self, Chain, Unusable},
    choice::LogFormat,
    group::QueueGroup,
    listen_address::ListenAddress,
    listing::{Effective, Origin},
    load::Purpose,
    route::Target,
    section::Reading,
    settings::{Queue, Settings},
    units::{ByteSize, show_duration},
};
use mail::{HostPort, LmtpServer};
use std::{
    fmt::Display,
    io,
    net::SocketAddr,
    ops::Range,
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

/// Each has a thread and some descriptors, and one a processor is as fast as it gets. With too many a start
/// fails, and is tried again for ever.
const WORKERS_MAX: usize = 1024;

/// The longest time for a next hop before a message is stored: its client waits meanwhile.
const DELIVER_FIRST_MAX: Duration = Duration::from_secs(300);

/// Clients wait for a greeting; some do not wait longer.
const GREETING_DELAY_MAX: Duration = Duration::from_secs(30);

/// The kernel takes 107 bytes (`sun_path` with its final NUL; unix(7)); the daemon makes a socket
/// under a name that is one longer.
const SOCKET_PATH_MAX: usize = 106;

/// Makes every check, whatever fails.
pub(crate) fn check(reading: &mut Reading<'_>, settings: &Settings, purpose: Purpose) {
    Check { reading, purpose }.all(settings);
}

struct Check<'c, 's> {
    reading: &'c mut Reading<'s>,
    purpose: Purpose,
}

impl Check<'_, '_> {
    fn all(&mut self, s: &Settings) {
        self.listeners(s);
        self.logins(s);
        self.secrets(s);
        self.relay(s);
        self.loops(s);
        self.own_mail(s);
        self.postmaster(s);
        self.tls(s);
        self.sign(s);
        self.acme(s);
        self.limits(&s.limits);
        self.counts(s);
        self.durations(s);
        self.spool(s);
        self.log(s);
        self.metrics(s);
        self.history(s);
        self.sockets(s);
        self.folders(s);
        self.users(s);
        self.process(s);
        self.maps(s);
        self.rules(s);
        self.notifications(s);
    }

    /// A problem with a key. A key that was not set can only be wrong through another key, so it is
    /// shown there if it has a place at all.
    fn problem(&mut self, path: &str, what: String, label: &str, help: &str) {
        let span = match self.reading.origin(path) {
            Some(Origin::File { span, .. }) => span.clone(),
            _ => 0..0,
        };
        self.reading.cx.problem(span, what, label, (!help.is_empty()).then(|| help.to_owned()));
    }

    fn is_set(&self, path: &str) -> bool {
        matches!(self.reading.origin(path), Some(Origin::File { .. }))
    }

    fn at_least<T: PartialOrd + Display>(&mut self, path: &str, value: &T, least: &T) {
        if value < least {
            self.problem(
                path,
                format!("`{path}` is too small"),
                &format!("less than {least}"),
                &format!("write {least} or more"),
            );
        }
    }

    /// The intervals have nine digits in EHLO's reply and in MAIL (RFC 2852 §4, RFC 4865 §4).
    fn extensions(&mut self, s: &Settings) {
        let most = Duration::from_secs(999_999_999);
        let times = [
            ("extensions.max_future_release", s.extensions.max_future_release),
            ("extensions.min_deliver_by", s.extensions.min_deliver_by),
        ];
        for (path, time) in times {
            if time > most {
                self.problem(path, format!("`{path}` is too large"), "", "write \"10000d\" or less");
            }
        }
    }

    /// Rejects networks that let every client relay: spammers find an open relay within hours.
    fn relay(&mut self, s: &Settings) {
        let help = "name the networks that may send anywhere";
        if let Some(net) = s.relay.networks.iter().find(|net| ::maps::are_too_wide(&[**net])) {
            let what = format!("{net} makes this an open relay");
            self.problem("relay.networks", what, "far more than the clients of one site", help);
        } else if ::maps::are_too_wide(&s.relay.networks) {
            let what = "these networks make this an open relay".to_owned();
            self.problem("relay.networks", what, "together far more than the clients of one site", help);
        }
    }

    /// A fixed next hop that is one of our own listeners would take mail round until it has too many hops.
    fn loops(&mut self, s: &Settings) {
        for (number, route) in s.numbered_routes() {
            let main = match &route.target {
                Target::Smarthost(host) => Some(("smarthost", host)),
                Target::Lmtp(LmtpServer::Tcp(host)) => Some(("lmtp", host)),
                _ => None,
            };
            let fallback = route.fallback.iter().map(|host| ("fallback", host));
            for (key, host) in main.into_iter().chain(fallback) {
                let Some(ip) = host.ip() else { continue };
                let next = SocketAddr::new(ip, host.port);
                let ours = |listen: SocketAddr| listen == next || (ip.is_loopback() && clash(listen, next));
                if s.listen.iter().filter_map(|listen| listen.address.ip()).any(ours) {
                    self.loops_back(number, key, host);
                }
            }
        }
    }

    fn loops_back(&mut self, number: usize, key: &str, host: &HostPort) {
        // Routes with problems are not in the settings: the value tells which one it is.
        let shown = toml::Value::from(host.to_string());
        let has = |value: &toml::Value| {
            *value == shown || value.as_array().is_some_and(|items| items.contains(&shown))
        };
        let is_it = |e: &&Effective| e.path.ends_with(key) && e.value.as_ref().is_some_and(has);
        let path = self.reading.effective.iter().find(is_it).map_or(String::new(), |e| e.path.clone());
        let what = format!("route {} leads back to this server", number + 1);
        self.problem(&path, what, "is one of its own listeners", "name another host or port");
    }

    /// Mail for this machine's own name would be looked up by MX, lead back here, and be returned: root's,
    /// that of daemons, and with the default that for postmaster.
    fn own_mail(&mut self, s: &Settings) {
        // A map may have the name.
        let may_lead =
            s.routes.iter().any(|route| !route.domain_maps.is_empty() || !route.next_hop_maps().is_empty());
        let leads_somewhere = s.is_local(&s.hostname) || s.route(&s.hostname).is_some() || may_lead;
        // A route or a domain that is wrong already is not in the settings.
        if leads_somewhere || !self.reading.cx.problems.is_empty() {
            return;
        }
        let hostname = &s.hostname;
        let what = format!(
            "mail for this server itself, `postmaster@{hostname}` or `root@{hostname}`, has no destination"
        );
        let label = format!("without \"{hostname}\"");
        let help = format!("add \"{hostname}\" to `domains`, or a [[route]] that it matches");
        self.problem("local.domains", what, &label, &help);
    }

    /// Nobody would read the Maildir of a user who does not exist. One that is called postmaster is made on
    /// purpose, and where a route leads another server has the list of users.
    fn postmaster(&mut self, s: &Settings) {
        let key = s.postmaster.domain().key();
        // A map may have the address.
        let is_looked_up = s.map_references().next().is_some();
        let Some(users) = s.local.users.as_ref().filter(|_| s.is_local(&key) && s.route(&key).is_none())
        else {
            return;
        };
        let local = s.postmaster.local_name();
        let separator = s.addresses.separator.0;
        let base = separator.and_then(|separator| separator.split(&local)).map_or(&*local, |(user, _)| user);
        if base == "postmaster"
            || is_looked_up
            || users.iter().any(|user| [base, &local].contains(&&*mail::fold(user)))
        {
            return;
        }
        let what = format!("mail for postmaster has no mailbox: `{base}` is not in `local.users`");
        self.problem(
            "postmaster",
            what,
            "no such user",
            "name an existing user, or add this name to `users`",
        );
    }

    fn tls(&mut self, s: &Settings) {
        self.key_pair([("certificate", &s.tls.certificate), ("key", &s.tls.key)]);
        let next_hops =
            [("next_hop_certificate", &s.tls.next_hop_certificate), ("next_hop_key", &s.tls.next_hop_key)];
        self.key_pair(next_hops);
        for certificate in &s.certificates {
            let path = |key: &str| format!("certificate[{}].{key}", certificate.number);
            let (chain_file, key_file) = (Some(&*certificate.chain), Some(&*certificate.key));
            let chain = self.key_and_chain((&path("chain"), chain_file), (&path("key"), key_file));
            if chain.is_some_and(|chain| certificate::names(&chain[0]).is_empty()) {
                let what = format!("{}: the certificate has no host name", certificate.chain.display());
                let help = "name a certificate with names (subjectAltName), or put this one into [tls]";
                self.problem(&path("chain"), what, "no name", help);
            }
        }
        self.pem("tls.client_ca_file", s.tls.client_ca_file.as_deref(), certificate::authorities);
        self.pem("tls.ca_file", s.tls.ca_file.as_deref(), certificate::authorities);
    }

    /// A certificate and its key, by their keys in [tls]: both or none, and they belong together.
    fn key_pair(&mut self, [(certificate, chain_file), (key, key_file)]: [(&str, &Option<PathBuf>); 2]) {
        let [of_certificate, of_key] = [certificate, key].map(|name| format!("tls.{name}"));
        match (chain_file, key_file) {
            (Some(_), None) if !self.has_failed(&of_key) => {
                let what = "a certificate without its key".to_owned();
                self.problem(&of_certificate, what, "", &format!("add `{key}` to [tls]"));
            }
            (None, Some(_)) if !self.has_failed(&of_certificate) => {
                let what = "a key without its certificate".to_owned();
                self.problem(&of_key, what, "", &format!("add `{certificate}` to [tls]"));
            }
            _ => {}
        }
        self.key_and_chain((&of_certificate, chain_file.as_deref()), (&of_key, key_file.as_deref()));
    }

    /// Reads a certificate and its key, each a setting with its file, which must belong together; returns the certificate.
    fn key_and_chain(
        &mut self,
        (chain_path, chain_file): (&str, Option<&Path>),
        (key_path, key_file): (&str, Option<&Path>),
    ) -> Option<Chain> {
        let chain = self.pem(chain_path, chain_file, certificate::chain);
        let key = self.pem(key_path, key_file, certificate::key);
        if let (Some(chain), Some(key), Some(file)) = (&chain, key, key_file)
            && let Err(unusable) = certificate::pair(chain.clone(), key, file)
        {
            self.unusable(key_path, unusable);
        }
        chain
    }

    fn sign(&mut self, s: &Settings) {
        for sign in &s.sign {
            let path = format!("sign[{}].key", sign.number);
            self.pem(&path, sign.file().map(std::path::PathBuf::as_path), crate::signing_key);
        }
    }

    /// Reads a PEM file; its content is checked only for a daemon that is about to use it.
    fn pem<T>(
        &mut self,
        path: &str,
        file: Option<&Path>,
        read: impl FnOnce(&Path) -> Result<T, Unusable>,
    ) -> Option<T> {
        let file = file.filter(|file| self.is_readable(path, file) && self.purpose == Purpose::Serve)?;
        read(file).map_err(|unusable| self.unusable(path, unusable)).ok()
    }

    fn unusable(&mut self, path: &str, unusable: Unusable) {
        self.problem(path, unusable.what, &unusable.label, &unusable.help);
    }

    /// Refuses one of two keys of a section without the other.
    fn both_or_none(&mut self, section: &str, one: (&str, bool), other: (&str, bool)) {
        for ((key, is_given), (missing, has_other)) in [(one, other), (other, one)] {
            if is_given && !has_other && !self.has_failed(&format!("{section}.{missing}")) {
                let help = format!("add `{missing}` to [{section}]");
                self.problem(&format!("{section}.{key}"), format!("`{key}` without `{missing}`"), "", &help);
            }
        }
    }

    /// Was a problem with this key noted while it was read?
    fn has_failed(&self, path: &str) -> bool {
        let name = format!("`{path}`");
        self.reading.cx.problems.iter().any(|p| p.what.starts_with(&name))
    }

    fn is_readable(&mut self, path: &str, file: &Path) -> bool {
        match ::maps::open(file) {
            Ok(_) => return true,
            Err(error) if ::maps::is_no_file(&error) => {
                self.problem(
                    path,
                    format!("open {}: {error}", file.display()),
                    "not a file",
                    "name a PEM file",
                );
            }
            Err(error) if !matters(error.kind(), self.purpose) => {}
            Err(error) => {
                let what = format!("open {}: {error}", file.display());
                self.problem(path, what, "cannot be read", "name a PEM file that this user may read");
            }
        }
        false
    }

    /// The least that RFC 5321 §4.5.3.1 lets a server take.
    fn limits(&mut self, limits: &smtp::Limits) {
        let size = |bytes: usize| ByteSize(bytes as u64);
        self.at_least("limits.max_command_line", &size(limits.command_line_bytes), &ByteSize(512));
        self.at_least("limits.max_path", &size(limits.path_bytes), &ByteSize(256));
        self.at_least("limits.max_message_size", &ByteSize(limits.message_bytes), &ByteSize(64 << 10));
        self.at_least("limits.max_header_size", &size(limits.header_bytes), &ByteSize(64 << 10));
        self.at_least("limits.max_recipients", &limits.recipients, &100);
        self.at_least("limits.max_transactions", &limits.transactions, &1);
        self.at_least("limits.max_errors", &limits.errors, &1);
        self.at_least("limits.max_rejected_recipients", &limits.refused_recipients, &1);
        self.at_least("limits.max_junk_commands", &limits.junk_commands, &1);
        self.at_least("limits.max_hops", &limits.hops, &1);
    }

    fn counts(&mut self, s: &Settings) {
        let d = &s.delivery;
        self.at_least("delivery.connections_per_destination", &d.connections_per_destination, &1);
        self.at_least("delivery.max_connections", &d.max_connections, &1);
        self.at_least("delivery.messages_per_connection", &d.messages_per_connection, &1);
        self.at_least("delivery.recipients_per_transaction", &d.recipients_per_transaction, &1);
        self.at_least("delivery.pipeline_depth", &d.pipeline_depth, &1);
        self.at_least("delivery.mx_port", &d.mx_port, &1);
        self.at_least("queue.initial_concurrency", &s.queue.initial_concurrency, &1);
        self.at_least("queue.max_messages", &s.queue.max_messages, &1);
        self.extensions(s);
        self.at_least("inbound.max_sessions", &s.inbound.max_sessions, &1);
        self.at_least("inbound.max_sessions_per_client", &s.inbound.max_sessions_per_client, &1);
        self.at_least("inbound.max_content_memory", &s.inbound.max_content_memory, &ByteSize(1 << 20));
        self.at_least("dns.attempts", &s.dns.attempts, &1);
        if s.workers.worker_threads > WORKERS_MAX {
            let help = format!("write {WORKERS_MAX} or less, or 0 for one per CPU core");
            self.problem(
                "workers.worker_threads",
                "`workers.worker_threads` is too large".to_owned(),
                "",
                &help,
            );
        }
    }

    fn durations(&mut self, s: &Settings) {
        let zero_is_wrong: [(&str, Duration); 16] = [
            ("spool.commit_timeout", s.spool.commit_timeout),
            ("spool.deliver_first_timeout", s.spool.deliver_first_timeout),
            ("timeouts.command", s.limits.command_timeout),
            ("timeouts.command_under_stress", s.limits.stress_command_timeout),
            ("timeouts.data", s.limits.data_timeout),
            ("timeouts.tls", s.limits.tls_timeout),
            ("timeouts.transaction", s.limits.transaction_timeout),
            ("delivery.connect_timeout", s.delivery.connect_timeout),
            ("delivery.greeting_timeout", s.delivery.greeting_timeout),
            ("delivery.command_timeout", s.delivery.command_timeout),
            ("delivery.data_timeout", s.delivery.data_timeout),
            ("delivery.data_done_timeout", s.delivery.data_done_timeout),
            ("queue.retry_min", s.queue.retry_min),
            ("queue.retry_max", s.queue.retry_max),
            ("queue.expire", s.queue.expire),
            ("dns.timeout", s.dns.timeout),
        ];
        for (path, value) in zero_is_wrong {
            self.not_zero(path, value);
        }
        let path = "spool.deliver_first_timeout";
        if s.spool.deliver_first_timeout > DELIVER_FIRST_MAX {
            let what = format!("`{path}` is too large: clients wait for ten minutes (RFC 5321 §4.5.3.2.6)");
            self.problem(path, what, "longer than many clients wait", "write \"5m\" or less");
        }
        self.ordered(("queue.retry_min", s.queue.retry_min), ("queue.retry_max", s.queue.retry_max));
        self.ordered(("queue.delay_warning", s.queue.delay_warning), ("queue.expire", s.queue.expire));
        for (number, group) in s.queue_groups.iter().enumerate() {
            self.group_waits(number, group, &s.queue);
        }
    }

    fn not_zero(&mut self, path: &str, value: Duration) {
        if value.is_zero() {
            self.problem(path, format!("`{path}` is too small"), "no time at all", "write \"1s\" or more");
        }
    }

    /// Checks the intervals of a group; a key that it leaves out has the value of `[queue]`, and must fit the other one.
    fn group_waits(&mut self, number: usize, group: &QueueGroup, queue: &Queue) {
        let own = |key: &str| format!("queue_group[{number}].{key}");
        let (own_min, own_max) = (own("retry_min"), own("retry_max"));
        for (path, value) in [(&own_min, group.retry_min), (&own_max, group.retry_max)] {
            if let Some(value) = value {
                self.not_zero(path, value);
            }
        }
        let min = group.retry_min.map_or(("queue.retry_min", queue.retry_min), |own| (&own_min, own));
        let max = group.retry_max.map_or(("queue.retry_max", queue.retry_max), |own| (&own_max, own));
        // [queue] was looked at for itself, and zero was told.
        let has_own = group.retry_min.is_some() || group.retry_max.is_some();
        if has_own && !max.1.is_zero() {
            self.ordered(min, max);
        }
    }

    /// The smaller must not be over the larger; the complaint goes to the one that was set.
    fn ordered(&mut self, small: (&str, Duration), large: (&str, Duration)) {
        if small.1 <= large.1 {
            return;
        }
        let path = if self.is_set(small.0) { small.0 } else { large.0 };
        let what = format!("`{}` is larger than `{}`", small.0, large.0);
        let label = format!("{} over {}", show_duration(small.1), show_duration(large.1));
        self.problem(path, what, &label, &format!("`{}` must not be larger than `{}`", small.0, large.0));
    }

    fn no_other_file(&mut self, key: &str, socket: &Path) {
        if is_other_file(socket) {
            let what = format!("{} exists and is not a socket", socket.display());
            self.problem(key, what, "another file", "name a path that is free");
        }
    }

    fn metrics(&mut self, s: &Settings) {
        let metrics = &s.metrics;
        if let Some(ListenAddress::Unix(path)) = &metrics.listen {
            self.no_other_file("metrics.listen", path);
        }
        match &metrics.listen {
            None if !metrics.allow_from.is_empty() => {
                let what = "`metrics.allow_from` is not used".to_owned();
                self.problem("metrics.allow_from", what, "`listen` is missing", "add `listen` to [metrics]");
            }
            Some(ListenAddress::Systemd(_)) => {
                let what = "the metrics cannot use a systemd socket".to_owned();
                let help = "write an address with a port, or unix:/path";
                self.problem("metrics.listen", what, "not for metrics", help);
            }
            Some(ListenAddress::Ip(_, None)) => {
                let what = "the port of the metrics is missing".to_owned();
                self.problem("metrics.listen", what, "no port", "write listen = \"127.0.0.1:9125\"");
            }
            Some(ListenAddress::Ip(ip, Some(_))) if !ip.is_loopback() && metrics.allow_from.is_empty() => {
                let what = "other machines may connect to the metrics, but none may read them".to_owned();
                let help = "name the networks of the monitoring in `allow_from`, or listen on 127.0.0.1";
                self.problem("metrics.listen", what, "not an address of this machine only", help);
            }
            _ => {}
        }
    }

    fn history(&mut self, s: &Settings) {
        self.at_least("history.max_size", &s.history.max_size, &ByteSize(16 << 20));
        if s.history.keep < Duration::from_secs(3600) {
            let what = "`history.keep` is too short".to_owned();
            self.problem(
                "history.keep",
                what,
                "less than an hour",
                "write \"1h\" or more, or enabled = false",
            );
        }
    }

    fn log(&mut self, s: &Settings) {
        match (s.log.format, &s.log.postfix_file) {
            (LogFormat::Both, None) if !self.has_failed("log.postfix_file") => {
                let what = "two formats need two files".to_owned();
                self.problem("log.format", what, "both", "add `postfix_file` to [log]");
            }
            (LogFormat::Json | LogFormat::Postfix | LogFormat::Syslog, Some(_))
                if !self.has_failed("log.format") =>
            {
                let what = "`log.postfix_file` is not used".to_owned();
                self.problem(
                    "log.postfix_file",
                    what,
                    "the format is not \"both\"",
                    "write format = \"both\"",
                );
            }
            (_, Some(second)) if s.log.file.as_ref() == Some(second) => {
                let what = "both logs go to the same file".to_owned();
                self.problem("log.postfix_file", what, "same as `file`", "give each its own file");
            }
            (LogFormat::Syslog, None) if s.log.file.is_some() => {
                let what = "`log.file` is not used".to_owned();
                let why = "the format is \"syslog\"";
                self.problem(
                    "log.file",
                    what,
                    why,
                    "remove `file`, or choose another format and keep `syslog`",
                );
            }
            _ => {}
        }
        for (path, file) in [("log.file", &s.log.file), ("log.postfix_file", &s.log.postfix_file)] {
            if let Some(folder) = file.as_deref().and_then(Path::parent) {
                self.folder(path, folder, &s.data_dir);
            }
        }
    }

    /// Checks that the directory of a file exists; a start creates `data_dir` only.
    fn folder(&mut self, path: &str, folder: &Path, data_dir: &Path) {
        let what = match folder.metadata() {
            Ok(meta) if meta.is_dir() => return,
            Ok(_) => format!("{} is not a folder", folder.display()),
            Err(error) if error.kind() == io::ErrorKind::NotFound && folder != data_dir => {
                format!("the folder {} does not exist", folder.display())
            }
            // Made at the start, or not to be seen by this user.
            Err(_) => return,
        };
        if self.purpose == Purpose::Serve {
            self.problem(path, what, "no such directory", "create the directory, or name another");
        }
    }

    fn sockets(&mut self, s: &Settings) {
        let c = &s.control;
        for (path, socket) in [("control.socket", &c.socket), ("control.submit_socket", &c.submit_socket)] {
            let blamed = if self.is_set(path) { path } else { "data_dir" };
            self.no_other_file(blamed, socket);
            if too_long(socket) {
                let what = format!("{} is too long for a socket", socket.display());
                self.problem(
                    blamed,
                    what,
                    "over 106 bytes",
                    &format!("choose a shorter folder, or set `{path}`"),
                );
            }
        }
        if c.socket == c.submit_socket {
            let what = "two sockets have the same path".to_owned();
            self.problem("control.submit_socket", what, "same as `socket`", "give each its own path");
        }
    }

    fn users(&mut self, s: &Settings) {
        if let Some(pattern) = s.local.users.iter().flatten().find(|user| user.contains(['*', '?'])) {
            let what = format!(
                "`{pattern}` is not a user: names in `local.users` are whole, and there are no wildcards"
            );
            let help = "remove `users` to take mail for every local part, or name each user; for a catch-all mailbox write \
                        `\"@example.com\" = \"alice\"` into a map of `addresses.virtual`";
            self.problem("local.users", what, "one of these", help);
            return;
        }
        let bad = s
            .local
            .users
            .iter()
            .flatten()
            .find(|user| mail::Mailbox::parse(&format!("{user}@localhost"), true).is_err());
        if let Some(user) = bad {
            let what = format!("`{user}` is not a local part");
            let help = match user.strip_prefix('@') {
                Some(domain) => format!(
                    "for all names of a domain, leave `users` out, or send them to one: [addresses] virtual with \
                     `@{domain}` in a map"
                ),
                None => "write the part before the @ only".to_owned(),
            };
            self.problem("local.users", what, "one of these", &help);
        }
    }
}

/// Users may ask the daemon for things without being able to read its keys.
fn matters(error: io::ErrorKind, purpose: Purpose) -> bool {
    purpose == Purpose::Serve || error != io::ErrorKind::PermissionDenied
}

/// Returns whether a file has the name of a socket: the daemon replaces nothing but sockets.
fn is_other_file(socket: &Path) -> bool {
    socket.symlink_metadata().is_ok_and(|found| !found.file_type().is_socket())
}

fn too_long(socket: &Path) -> bool {
    socket.as_os_str().len() > SOCKET_PATH_MAX
}

/// Would the second bind fail? Port 0 is a new one each time; a wildcard takes its whole family.
fn clash(a: SocketAddr, b: SocketAddr) -> bool {
    let wild = a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() == b.port() && a.port() != 0 && a.is_ipv4() == b.is_ipv4() && (a.ip() == b.ip() || wild)
}

/// A folder's name goes into other paths, and those into templates.
pub(crate) fn data_dir(reading: &mut Reading<'_>, data_dir: &Path, span: Option<Range<usize>>) -> String {
    match data_dir.to_str().filter(|text| !text.contains(['{', '}']) && !text.contains(char::is_control)) {
        Some(text) => text.to_owned(),
        None => {
            let what = format!("`data_dir` must not be {}", data_dir.display());
            let help =
                "choose a folder without braces, control characters and bytes that are not UTF-8".to_owned();
            reading.cx.problem(span.unwrap_or(0..0), what, "cannot be part of other paths", help);
            "/".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_only_the_daemon_may_read_stops_only_the_daemon() {
        assert!(matters(io::ErrorKind::PermissionDenied, Purpose::Serve));
        assert!(!matters(io::ErrorKind::PermissionDenied, Purpose::Ask));
        assert!(matters(io::ErrorKind::NotFound, Purpose::Ask));
    }

    #[test]
    fn a_wildcard_takes_the_port_from_its_own_family_only() {
        let clash = |a: &str, b: &str| clash(a.parse().unwrap(), b.parse().unwrap());
        assert!(
            clash("0.0.0.0:25", "127.0.0.1:25")
                && clash("[::]:25", "[::1]:25")
                && clash("1.2.3.4:25", "1.2.3.4:25")
        );
        assert!(!clash("0.0.0.0:25", "[::]:25") && !clash("127.0.0.1:25", "127.0.0.2:25"));
        assert!(!clash("127.0.0.1:0", "127.0.0.1:0") && !clash("127.0.0.1:25", "127.0.0.1:26"));
    }
}
