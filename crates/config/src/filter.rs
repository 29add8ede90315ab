//! `[filter.NAME]`: programs that judge and change mail while it is accepted.

use crate::{
    rules::OnFailure,
    section::{Reading, section},
    value::MapServer,
};
use maps::Server;
use policy::Audience;
use std::time::Duration;
use toml::de::DeTable;

/// Clients wait for the answer, and hear 451 after 30 seconds at MAIL and RCPT.
const TIMEOUT_MAX: Duration = Duration::from_secs(25);
/// A client waits for 10 minutes behind the content (RFC 5321 §4.5.3.2.6).
const CONTENT_TIMEOUT_MAX: Duration = Duration::from_mins(9);

section! {
    /// A filter that speaks Sendmail's milter protocol: rspamd, OpenDKIM, ClamAV's and SpamAssassin's milters. Filters are asked in the
    /// order of the file, when all rules have accepted: at MAIL, at each RCPT, and at the content, where each sees what the one
    /// before has changed. Signatures of `[[sign]]` are added after them. A filter may refuse, discard or hold (quarantine) a message, change its
    /// header and body, its sender and its recipients.
    pub(crate) FilterKeys = "filter" named {
        /// Where the filter listens: `unix:/path` or `host:port`.
        milter: Option<MapServer> = "",
        /// The clients whose mail it sees: `all`, `untrusted` (neither in `relay.networks` nor logged in), or `users` (the others).
        r#for: Audience = "\"all\"",
        /// Whether it also sees the mail of programs on this machine (`sendmail`).
        local: bool = "false",
        /// Time for connecting, and for each answer. A progress message from the filter restarts the timeout.
        timeout: Duration = "\"20s\"",
        /// Time for the whole content, from its header to the verdict.
        content_timeout: Duration = "\"5m\"",
        /// What happens to mail if the filter does not answer or breaks the protocol: `defer` (451 4.7.1), or `pass` (without it).
        on_failure: OnFailure = "\"defer\"",
    }
}

/// A `[filter.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// The name of the section.
    pub name: String,
    /// Where it listens.
    pub milter: Server,
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

impl Reading<'_> {
    /// Reads `[filter.NAME]`, in the order of the file.
    pub(crate) fn filters(&mut self, root: &DeTable<'_>) -> Vec<Filter> {
        let mut sections: Vec<_> = self.table(root, "filter").into_iter().flatten().collect();
        sections.sort_by_key(|(name, _)| name.span().start);
        let mut filters = Vec::new();
        for (name, found) in sections {
            let Some(table) = self.named_table("filter", name, found) else { continue };
            let (name, span) = (name.get_ref().to_string(), name.span());
            let keys: FilterKeys = self.section(&format!("filter.{name}"), Some(table));
            for (key, time, most, words) in [
                ("timeout", keys.timeout, TIMEOUT_MAX, "25s"),
                ("content_timeout", keys.content_timeout, CONTENT_TIMEOUT_MAX, "9m"),
            ] {
                if time.is_zero() || time > most {
                    let what = format!("`filter.{name}.{key}` must be from 1ms to {words}");
                    let help = format!("write \"{words}\" at most: clients wait for the answer");
                    let of_key = table.get(key).map_or(span.clone(), toml::Spanned::span);
                    self.cx.problem(of_key, what, "", help);
                }
            }
            let Some(milter) = keys.milter else {
                if !table.contains_key("milter") {
                    self.missing(span, "milter", "milter = \"unix:/run/rspamd/milter.sock\"");
                }
                continue;
            };
            filters.push(Filter {
                name,
                milter: milter.0,
                audience: keys.r#for,
                is_local: keys.local,
                timeout: keys.timeout,
                content_timeout: keys.content_timeout,
                passes_on_failure: keys.on_failure == OnFailure::Pass,
            });
        }
        filters
    }
}
