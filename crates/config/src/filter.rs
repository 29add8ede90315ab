//! `[filter.NAME]`: programs that judge and change mail while it is accepted.

use crate::{
    oauth::{HttpServer, HttpUrl},
    problem::Code,
    route::SecretSource,
    rules::OnFailure,
    section::{Reading, section},
    server_value::{MilterServer, RspamdServer},
    sought::has_sought_key,
    units::ByteSize,
};
use maps::Server;
use policy::Audience;
use std::{fmt, ops::Range, path::PathBuf, time::Duration};
use toml::de::DeTable;

/// Clients wait for the answer, and hear 451 after 30 seconds at MAIL and RCPT.
const TIMEOUT_MAX: Duration = Duration::from_secs(25);
/// A client waits for 10 minutes behind the content (RFC 5321 §4.5.3.2.6).
const CONTENT_TIMEOUT_MAX: Duration = Duration::from_mins(9);

section! {
    /// A filter that speaks Sendmail's milter protocol (rspamd, OpenDKIM, ClamAV's and SpamAssassin's milters), rspamd over HTTP, or an
    /// HTTP hook of your own. Filters are asked in the order of the file, when all rules have accepted: at MAIL, at each RCPT,
    /// and at the content, where each sees what the one before has changed. rspamd over HTTP and hooks are asked at the content only.
    /// Signatures of `[[sign]]` are added after them. A filter may refuse, discard or hold (quarantine) a message, change its
    /// header, its sender and its recipients; a milter may change its body, too.
    pub(crate) FilterKeys = "filter" named {
        /// Where a milter listens: `unix:/path` or `host:port`. A filter has one of `milter`, `rspamd` and `hook`.
        milter: Option<MilterServer> = "",
        /// Where a worker of rspamd (`normal`) listens, which is asked over HTTP (`/checkv2`): `unix:/path` or `host:port`.
        rspamd: Option<RspamdServer> = "",
        /// The URL of an HTTP hook, which gets each message as JSON: `https://`, or a server on this machine by
        /// `http://127.0.0.1` or `unix:/path`.
        hook: Option<HttpUrl> = "",
        /// The secret by which a hook knows that this server asks (HMAC with SHA-256): `file:FILE`, `credential:NAME` for a systemd
        /// credential, or `env:NAME`. It is required for `https://`.
        secret: Option<SecretSource> = "",
        /// PEM file with the certification authorities to trust for a hook by `https://`. Without this key, Mozilla's are used.
        ca_file: Option<PathBuf> = "",
        /// The first octets of a message that a hook gets; `0` for the header alone. `is_complete` in the request says whether that is all. Default: 1MiB; at most 32MiB.
        max_content: Option<ByteSize> = "",
        /// The clients whose mail it sees: `all`, `untrusted` (neither in `relay.networks` nor logged in), or `users` (the others).
        r#for: Audience = "\"all\"",
        /// Whether it also sees the mail of programs on this machine (`sendmail`).
        local: bool = "false",
        /// Time for connecting, and for each answer of a milter. A progress message from the filter restarts the timeout.
        timeout: Duration = "\"20s\"",
        /// Time for the whole content, from its header to the verdict. Default: 5m, and 1m for `rspamd` and `hook`.
        content_timeout: Option<Duration> = "",
        /// What happens to mail if the filter does not answer or breaks the protocol: `defer` (451 4.7.1), or `pass` (without it).
        on_failure: OnFailure = "\"defer\"",
    }
}

/// A `[filter.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// The name of the section.
    pub name: String,
    /// What it speaks, and where it listens.
    pub server: FilterServer,
    /// The clients whose mail it sees.
    pub audience: Audience,
    /// True if it sees mail of local programs.
    pub is_local: bool,
    /// Time for connecting, and for each answer.
    pub timeout: Duration,
    /// Time for the content.
    pub content_timeout: Duration,
    /// True if mail passes without the filter when it fails.
    pub passes_on_failure: bool,
}

/// What a filter speaks, and where it listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterServer {
    /// The milter protocol, at each command.
    Milter(Server),
    /// rspamd's protocol over HTTP.
    Rspamd(Server),
    /// JSON over HTTP.
    Hook(Hook),
}

/// An HTTP hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// Where messages are sent.
    pub url: HttpUrl,
    /// By which requests are signed.
    pub secret: Option<SecretSource>,
    /// Authorities to trust instead of Mozilla's.
    pub ca_file: Option<PathBuf>,
    /// Octets of a message that it gets; 0 for the header alone.
    pub content_max_bytes: u64,
}

impl fmt::Display for FilterServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Milter(server) | Self::Rspamd(server) => server.fmt(f),
            Self::Hook(hook) => hook.url.fmt(f),
        }
    }
}

/// Most messages are shorter.
const HOOK_CONTENT_BYTES: u64 = 1 << 20;
/// A whole message is in memory while a hook is asked.
const HOOK_CONTENT_MAX_BYTES: u64 = 32 << 20;

const ONE_SERVER: &str = "milter = \"unix:/run/rspamd/milter.sock\", rspamd = \"127.0.0.1:11333\" or hook = \"http://127.0.0.1:8080/mail\"";

impl Reading<'_> {
    /// Returns the server of a filter. What is wrong is reported.
    fn filter_server(
        &mut self,
        name: &str,
        keys: FilterKeys,
        table: &DeTable<'_>,
        span: Range<usize>,
    ) -> Option<FilterServer> {
        let named = |key: &str| table.get_key_value(key).map(|(key, _)| key.span());
        let given: Vec<&str> =
            ["milter", "rspamd", "hook"].into_iter().filter(|key| table.contains_key(*key)).collect();
        match given[..] {
            [] => {
                if !has_sought_key("filter", table) {
                    let what = "`milter`, `rspamd` or `hook` is missing".to_owned();
                    self.cx.problem_of(
                        Code::MissingKey,
                        span,
                        what,
                        "in this section",
                        format!("write {ONE_SERVER}"),
                    );
                }
                return None;
            }
            [_] => {}
            [first, second, ..] => {
                let what = format!("`{second}` and `{first}` contradict each other");
                let at = named(second).unwrap_or(span);
                self.cx.problem(
                    at,
                    what,
                    "a filter speaks one protocol",
                    format!("keep one of {ONE_SERVER}"),
                );
                return None;
            }
        }
        for key in ["secret", "ca_file", "max_content"] {
            if let (Some(at), false) = (named(key), table.contains_key("hook")) {
                let what = format!("`filter.{name}.{key}` is not for `{}`", given[0]);
                self.cx.problem(at, what, "without effect", format!("remove `{key}`; it belongs to `hook`"));
            }
        }
        if let Some(server) = keys.milter {
            return Some(FilterServer::Milter(server.0));
        }
        if let Some(server) = keys.rspamd {
            return Some(FilterServer::Rspamd(server.0));
        }
        let url = keys.hook?;
        if matches!(url.server, HttpServer::Https(_)) && !table.contains_key("secret") {
            self.missing(named("hook").unwrap_or(span), "secret", "secret = \"file:hook.secret\"");
        }
        let content_max_bytes = keys.max_content.map_or(HOOK_CONTENT_BYTES, |most| most.0);
        if content_max_bytes > HOOK_CONTENT_MAX_BYTES {
            let at = named("max_content").unwrap_or(0..0);
            let what = format!("`filter.{name}.max_content` must be from 0 to 32MiB");
            self.cx.problem(
                at,
                what,
                "",
                "write \"32MiB\" at most: this much of a message is in memory".to_owned(),
            );
        }
        Some(FilterServer::Hook(Hook { url, secret: keys.secret, ca_file: keys.ca_file, content_max_bytes }))
    }

    /// Reads `[filter.NAME]`, in the order of the file.
    pub(crate) fn filters(&mut self, root: &DeTable<'_>) -> Vec<Filter> {
        let mut sections: Vec<_> = self.table(root, "filter").into_iter().flatten().collect();
        sections.sort_by_key(|(name, _)| name.span().start);
        let mut filters = Vec::new();
        for (name, found) in sections {
            let Some(table) = self.named_table("filter", name, found) else { continue };
            let (name, span) = (name.get_ref().to_string(), name.span());
            let keys: FilterKeys = self.section(&format!("filter.{name}"), Some(table));
            let usual = if keys.milter.is_some() { Duration::from_mins(5) } else { Duration::from_mins(1) };
            let content_timeout = keys.content_timeout.unwrap_or(usual);
            for (key, time, most, words) in [
                ("timeout", keys.timeout, TIMEOUT_MAX, "25s"),
                ("content_timeout", content_timeout, CONTENT_TIMEOUT_MAX, "9m"),
            ] {
                if time.is_zero() || time > most {
                    let what = format!("`filter.{name}.{key}` must be from 1ms to {words}");
                    let help = format!("write \"{words}\" at most: clients wait for the answer");
                    let of_key = table.get(key).map_or(span.clone(), toml::Spanned::span);
                    self.cx.problem(of_key, what, "", help);
                }
            }
            let (audience, is_local) = (keys.r#for, keys.local);
            let timeout = keys.timeout;
            let passes_on_failure = keys.on_failure == OnFailure::Pass;
            let Some(server) = self.filter_server(&name, keys, table, span) else { continue };
            filters.push(Filter {
                name,
                server,
                audience,
                is_local,
                timeout,
                content_timeout,
                passes_on_failure,
            });
        }
        filters
    }
}
