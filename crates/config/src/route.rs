//! Routes: which way mail for some domains goes.

mod addresses;
pub(crate) mod keys;
mod mapped_hop;
mod program;
mod read;

use crate::{
    HostName,
    account::{Group, User},
    choice::{RouteDurability, RouteTls},
    domain::DomainPattern,
    units::show_duration,
    value::{Context, Found, Value, text, text_value},
};
pub use addresses::RouteAddresses;
use auth::Secret;
use mail::{Enhanced, HostPort, LmtpServer, Program, Reply};
pub use mapped_hop::{MappedHop, named_by_map};
use maps::{Reference, SecretPlace};
use queue::RouteSchedule;
use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
};

/// A `[[route]]`. The first route whose domains match is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The number of its section in the file, from 0. `None`: the keys of `[local]` make the route.
    pub number: Option<usize>,
    /// The name of the section, by which rules choose the route.
    pub label: Option<Box<str>>,
    /// The domains of the route.
    pub domains: Vec<DomainPattern>,
    /// Maps whose keys are further domains.
    pub domain_maps: Vec<Reference>,
    /// The senders of the route.
    pub senders: RouteAddresses,
    /// The recipients of the route.
    pub recipients: RouteAddresses,
    /// The target of their mail.
    pub target: Target,
    /// The use of TLS; without effect for a Maildir, a Unix socket and discarding.
    pub tls: RouteTls,
    /// The name and the password to log in with.
    pub login: Option<RouteLogin>,
    /// The address from which connections are made.
    pub source_address: Option<IpAddr>,
    /// The name that is sent in EHLO, if it is not that of all connections.
    pub ehlo_name: Option<HostName>,
    /// True if the next hop is asked whether a recipient exists.
    pub verify: bool,
    /// The time at which mail of the route is acknowledged, if `spool.durability` does not decide.
    pub durability: Option<RouteDurability>,
    /// Hosts for mail whose next hop cannot be reached.
    pub fallback: Vec<HostPort>,
    /// The user as whom files are written, if that is not the daemon's.
    pub deliver_as: Option<DeliverAs>,
    /// The attempts, where they differ from those of the queue group.
    pub schedule: RouteSchedule,
}

/// The name and the password with which a route logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteLogin {
    /// The user name.
    pub user: String,
    /// Where the password is read from.
    pub secret: SecretSource,
}

/// The user and the group as whom a route writes files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliverAs {
    /// The user who owns the files.
    pub user: DeliveryUser,
    /// The group, if it is not the user's own.
    pub group: Option<Group>,
}

/// The user as whom a route writes files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryUser {
    /// `{local}`: the user of this machine that the recipient names.
    Recipient,
    /// One user for all recipients.
    Fixed(User),
}

text_value!(
    DeliveryUser,
    "a user of this machine",
    "the name of a user of this machine, such as \"vmail\", a number in quotes, or \"{local}\"",
    |t, _| match t {
        "{local}" => Ok(DeliveryUser::Recipient),
        name => crate::account::known_user(name).map(DeliveryUser::Fixed),
    },
    ToString::to_string
);

impl fmt::Display for DeliveryUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recipient => f.write_str("{local}"),
            Self::Fixed(user) => user.fmt(f),
        }
    }
}

impl fmt::Display for DeliverAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "as user {}", self.user)?;
        self.group.as_ref().map_or(Ok(()), |group| write!(f, ", group {}", group.name))
    }
}

/// The place of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// `file:FILE`: the first line of a file.
    File(PathBuf),
    /// `credential:NAME`: the first line of a credential of systemd (`LoadCredential=`).
    Credential(String),
    /// `env:NAME`: a variable of the daemon's environment, as containers have it.
    Environment(String),
}

impl SecretSource {
    pub(crate) fn parse(text: &str, base: &Path) -> Option<Self> {
        match text.split_once(':') {
            Some(("file", file)) if !file.is_empty() && !file.contains('\0') => {
                Some(Self::File(base.join(file)))
            }
            Some(("credential", name)) if !name.is_empty() && !name.contains(['/', '\0']) && name != ".." => {
                Some(Self::Credential(name.to_owned()))
            }
            Some(("env", name)) if !name.is_empty() && !name.contains(['=', '\0', ' ']) => {
                Some(Self::Environment(name.to_owned()))
            }
            _ => None,
        }
    }

    /// Returns the place. Without credentials, as in a command that an operator runs, no such file exists.
    pub fn place(&self) -> SecretPlace {
        match self {
            Self::File(path) => SecretPlace::File(path.clone()),
            Self::Credential(name) => {
                let directory = std::env::var_os("CREDENTIALS_DIRECTORY");
                let directory = directory.map_or_else(|| "$CREDENTIALS_DIRECTORY".into(), PathBuf::from);
                SecretPlace::File(directory.join(name))
            }
            Self::Environment(name) => SecretPlace::Environment(name.clone()),
        }
    }

    /// Reads the secret.
    ///
    /// # Errors
    /// The secret is missing or empty; the text names the file, the credential or the variable.
    pub fn secret(&self) -> Result<Secret, String> {
        if let Self::Credential(name) = self
            && std::env::var_os("CREDENTIALS_DIRECTORY").is_none()
        {
            return Err(format!(
                "there is no credential {name}: systemd did not start this process with LoadCredential="
            ));
        }
        self.place().read().map(Secret::new)
    }
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Credential(name) => write!(f, "credential:{name}"),
            Self::Environment(name) => write!(f, "env:{name}"),
        }
    }
}

impl Route {
    /// Returns the name of the route in destinations, if its connections or attempts differ from others. Routes with the same name have
    /// the same settings.
    pub fn name(&self) -> Option<String> {
        let login = self.login.as_ref().map(|login| format!("as {} ({})", login.user, login.secret));
        let source = self.source_address.map(|ip| format!("from {ip}"));
        let ehlo = self.ehlo_name.as_ref().map(|name| format!("as host {}", name.0));
        let implicit = (self.tls == RouteTls::Implicit).then(|| "with implicit TLS".to_owned());
        let fallback = list("fallback", &self.fallback);
        let RouteSchedule { intervals, retry_min, retry_max, lifetime } = &self.schedule;
        let intervals: Vec<String> = intervals.iter().copied().map(show_duration).collect();
        let retry = list("retry", &intervals);
        let times = [("retry_min", retry_min), ("retry_max", retry_max), ("lifetime", lifetime)]
            .map(|(key, time)| time.map(|time| format!("{key} {}", show_duration(time))));
        let user = self.deliver_as.as_ref().map(ToString::to_string);
        let parts = [login, source, ehlo, implicit, fallback, user, retry].into_iter().chain(times);
        let parts: Vec<String> = parts.flatten().collect();
        (!parts.is_empty()).then(|| parts.join(" "))
    }
}

/// `retry 5m,1h`; none for an empty list.
fn list(key: &str, items: &[impl fmt::Display]) -> Option<String> {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    (!items.is_empty()).then(|| format!("{key} {}", items.join(",")))
}

impl Route {
    /// Returns the maps that decide whether the route is for a recipient, each with its key in the configuration.
    pub fn maps(&self) -> impl Iterator<Item = (&'static str, &Reference)> {
        let domains = self.domain_maps.iter().map(|map| ("route.domains", map));
        let senders = self.senders.maps.iter().map(|map| ("route.senders", map));
        let recipients = self.recipients.maps.iter().map(|map| ("route.recipients", map));
        let next_hops = self.next_hop_maps().iter().map(|map| ("route.next_hop", map));
        domains.chain(senders).chain(recipients).chain(next_hops)
    }

    /// Returns the maps that have the next hop of each recipient.
    pub fn next_hop_maps(&self) -> &[Reference] {
        if let Target::Mapped(maps) = &self.target { maps } else { &[] }
    }

    /// Returns whether more than the domain of a recipient decides if the route is for it. Such a route is chosen when a recipient is
    /// accepted.
    pub fn is_by_recipient(&self) -> bool {
        !self.recipients.is_all() || matches!(self.target, Target::Mapped(_))
    }

    /// Returns whether the route takes all mail of its domains.
    pub fn is_for_everybody(&self) -> bool {
        self.senders.is_all() && !self.is_by_recipient()
    }

    /// Returns the name under which the choice of this route is stored with a recipient, where maps or the whole address decide: its own
    /// name, or words made of its domains, senders and recipients. `None`: the domain and the sender decide.
    pub fn stored_name(&self) -> Option<Box<str>> {
        if self.maps().next().is_none() && !self.is_by_recipient() {
            return None;
        }
        let domains = self.domains.iter().map(ToString::to_string);
        let domains = domains.chain(self.domain_maps.iter().map(ToString::to_string));
        let senders = self.senders.patterns.iter().map(ToString::to_string);
        let senders = senders.chain(self.senders.maps.iter().map(ToString::to_string));
        let recipients = self.recipients.patterns.iter().map(ToString::to_string);
        let recipients = recipients.chain(self.recipients.maps.iter().map(ToString::to_string));
        let next_hops = self.next_hop_maps().iter().map(ToString::to_string);
        let words = || {
            let all: Vec<String> = domains.chain(["from".to_owned()]).chain(senders).collect();
            let own: Vec<String> = recipients.chain(next_hops).collect();
            let own = if own.is_empty() { String::new() } else { format!(" to {}", own.join(" ")) };
            format!("{}{own}", all.join(" ")).into()
        };
        Some(self.label.clone().unwrap_or_else(words))
    }

    /// Returns whether the route is for all recipients in a domain, given as [`mail::Domain::key`], as far as patterns say that.
    pub fn matches(&self, key: &str) -> bool {
        !self.is_by_recipient() && self.has_domain(key)
    }

    /// Returns whether the route is for recipients in a domain, given as [`mail::Domain::key`], as far as patterns say that.
    pub fn has_domain(&self, key: &str) -> bool {
        let is_for_all = self.is_by_recipient() && self.domains.is_empty() && self.domain_maps.is_empty();
        is_for_all || self.domains.iter().any(|pattern| pattern.matches(key))
    }
}

/// The target of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// SMTP to this host; MX records are ignored.
    Smarthost(HostPort),
    /// LMTP (RFC 2033).
    Lmtp(LmtpServer),
    /// Into Maildirs here.
    Maildir(MaildirTemplate),
    /// SMTP to the MX hosts of the domain.
    Mx,
    /// Into mailbox files here.
    Mbox(MaildirTemplate),
    /// To a program here.
    Pipe(Program),
    /// Back to the sender, with this reply.
    Reject(RejectText),
    /// To the next route that matches, when an operator has released the message.
    Hold,
    /// Nowhere: taken and thrown away.
    Discard,
    /// Where one of these maps says for the recipient.
    Mapped(Vec<Reference>),
}

/// The reply of a route that rejects, `550 5.7.1 text`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectText(String);

impl RejectText {
    /// The reply as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns what clients get.
    pub fn reply(&self) -> Reply {
        let (code, words) = self.0.split_at(3);
        let found = Enhanced::parse_prefix(words.trim_start());
        let (enhanced, text) =
            found.map_or((None, words.trim_start()), |(status, text)| (Some(status), text));
        Reply::new(code.parse().unwrap_or(550), enhanced, text)
    }
}

text_value!(
    RejectText,
    "a reply that rejects permanently",
    "\"550 5.7.1 Mail for this domain is not accepted\"",
    |t, _| {
        let bad = |label: &str| Err((label.to_owned(), None));
        let Some((code, words)) = t.split_once(' ') else { return bad("no text") };
        let is_code = code.len() == 3 && code.starts_with('5') && code.bytes().all(|b| b.is_ascii_digit());
        match Enhanced::parse_prefix(words) {
            _ if !is_code => bad("the reply code is not 5yz"),
            _ if t.contains(['{', '}']) => Err((
                "a reply of a route has no placeholders".to_owned(),
                Some("write the text without braces; `reject` of a [[rule]] has placeholders".to_owned()),
            )),
            Some((Enhanced(5, ..), text))
                if !text.trim().is_empty() && !t.contains(char::is_control) && t.is_ascii() =>
            {
                Ok(RejectText(t.to_owned()))
            }
            _ => bad("not such a reply"),
        }
    },
    |reply| reply.0.clone()
);

/// Longest socket path the kernel takes (`sun_path` with its final NUL; unix(7)).
const SOCKET_PATH_MAX: usize = 107;

/// Reads `unix:/path`, relative to `base`, or `host:port`.
pub(crate) fn parse_lmtp_server(text: &str, base: &Path) -> Result<LmtpServer, &'static str> {
    let Some(path) = text.strip_prefix("unix:") else {
        return HostPort::parse(text).map(LmtpServer::Tcp);
    };
    parse_unix_path(path, base).map(LmtpServer::Unix)
}

/// Reads the path of a socket, relative to `base`.
pub(crate) fn parse_unix_path(path: &str, base: &Path) -> Result<PathBuf, &'static str> {
    let full = base.join(path);
    if path.is_empty() || path.contains('\0') {
        return Err("the socket's path is missing");
    }
    if full.as_os_str().len() > SOCKET_PATH_MAX {
        return Err("longer than a socket's path may be (107 bytes)");
    }
    Ok(full)
}

/// An absolute path with `{local}` and `{domain}` in it. Whoever fills them in must keep a
/// recipient from naming another folder: it is not this type's business.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MaildirTemplate(String);

impl MaildirTemplate {
    pub(crate) fn parse(text: &str, base: &Path) -> Result<Self, String> {
        if text.is_empty() || text.contains('\0') {
            return Err("not a path".to_owned());
        }
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let name = rest[at..].strip_prefix('{').and_then(|inner| inner.split_once('}'));
            match name {
                Some(("local" | "domain", behind)) => rest = behind,
                Some((other, _)) => {
                    return Err(format!("{{{other}}} is not a placeholder: {{local}} and {{domain}} are"));
                }
                None => return Err("a brace without its partner".to_owned()),
            }
        }
        let full = base.join(text);
        full.into_os_string().into_string().map(Self).map_err(|_| "not UTF-8".to_owned())
    }

    /// Returns the text, with its placeholders.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MaildirTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maildir_templates_know_their_placeholders() {
        let base = Path::new("/etc/postrider");
        assert_eq!(
            MaildirTemplate::parse("mail/{local}", base).unwrap().as_str(),
            "/etc/postrider/mail/{local}"
        );
        assert!(MaildirTemplate::parse("/m/{domain}/{local}/x", base).is_ok());
        for junk in ["", "/m/{user}", "/m/{local", "/m/local}", "/m/{}"] {
            assert!(MaildirTemplate::parse(junk, base).is_err(), "{junk}");
        }
    }
}
