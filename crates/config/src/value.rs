//! Kinds of values: how each is read from TOML, named in messages, and shown.

use crate::{
    domain::DomainPattern,
    json_schema::Schema,
    listen_address::ip_and_port,
    problem::{Code, Problem},
    route::{MaildirTemplate, RouteLogin, SecretSource, parse_lmtp_server},
    units::{ByteSize, parse_duration, show_duration},
};
use ipnet::IpNet;
use mail::{Domain, HostPort, LmtpServer, Mailbox};
use maps::{LdapServer, Reference, Server};
use rewrite::Separator;
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// A value where it stands in the file.
pub(crate) type Found<'a> = Spanned<DeValue<'a>>;

/// The state of reading a file.
pub(crate) struct Context {
    /// Relative paths in the file are relative to this folder.
    pub(crate) base: PathBuf,
    /// The key being read, for messages: `relay.networks`.
    pub(crate) key: String,
    /// Everything wrong so far.
    pub(crate) problems: Vec<Problem>,
}

impl Context {
    /// Reports a problem at `span`.
    pub(crate) fn problem(
        &mut self,
        span: Range<usize>,
        what: String,
        label: &str,
        help: impl Into<Option<String>>,
    ) {
        self.problem_of(Code::Conflict, span, what, label, help);
    }

    /// Reports a problem of another kind than [`Code::Conflict`].
    pub(crate) fn problem_of(
        &mut self,
        code: Code,
        span: Range<usize>,
        what: String,
        label: &str,
        help: impl Into<Option<String>>,
    ) {
        let (label, help) = (label.to_owned(), help.into());
        self.problems.push(Problem { code, what, label, help, span: Some(span) });
    }

    pub(crate) fn wrong<T: Value>(&mut self, found: &Found<'_>, label: &str, help: Option<String>) {
        let what = format!("`{}` must be {}", self.key, T::kind());
        let help = help.or_else(|| (!T::HINT.is_empty()).then(|| format!("write {}", T::HINT)));
        self.problem_of(Code::Value, found.span(), what, label, help);
    }
}

/// A kind of value.
pub(crate) trait Value: Sized {
    /// The advice of an error message, behind "write".
    const HINT: &'static str;

    /// Returns the name of the kind with its article: `a duration`.
    fn kind() -> String;

    /// Returns the JSON Schema of the values. It may accept more than [`Value::read`] does.
    fn schema() -> Schema {
        Schema::Text
    }

    /// Reads one; `None` after a problem was noted.
    fn read(found: &Found<'_>, cx: &mut Context) -> Option<Self>;

    /// The value of a key that is left out and has no default.
    fn absent() -> Option<Self> {
        None
    }

    /// Returns the value as it is written in a file; `None` if the key would be left out.
    fn to_toml(&self) -> Option<toml::Value>;
}

/// Returns the kind of a TOML value in words, for "this is …".
pub(crate) fn this_is(found: &Found<'_>) -> &'static str {
    match found.get_ref() {
        DeValue::String(_) => "this is text",
        DeValue::Integer(_) => "this is a whole number",
        DeValue::Float(_) => "this is a fraction",
        DeValue::Boolean(_) => "this is true or false",
        DeValue::Datetime(_) => "this is a date",
        DeValue::Array(_) => "this is a list",
        DeValue::Table(_) => "this is a table",
    }
}

fn integer(found: &Found<'_>) -> Option<u64> {
    let number = found.get_ref().as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Reads text with `parse`; its error is `(label, help)`.
pub(crate) fn text<T: Value>(
    found: &Found<'_>,
    cx: &mut Context,
    parse: impl FnOnce(&str, &Path) -> Result<T, (String, Option<String>)>,
) -> Option<T> {
    let Some(given) = found.get_ref().as_str() else {
        cx.wrong::<T>(found, this_is(found), None);
        return None;
    };
    match parse(given, &cx.base) {
        Ok(value) => Some(value),
        Err((label, help)) => {
            cx.wrong::<T>(found, &label, help);
            None
        }
    }
}

impl Value for bool {
    const HINT: &'static str = "true or false, without quotes";

    fn kind() -> String {
        "true or false".to_owned()
    }

    fn schema() -> Schema {
        Schema::Boolean
    }

    fn read(found: &Found<'_>, cx: &mut Context) -> Option<Self> {
        let value = found.get_ref().as_bool();
        if value.is_none() {
            cx.wrong::<Self>(found, this_is(found), None);
        }
        value
    }

    fn to_toml(&self) -> Option<toml::Value> {
        Some((*self).into())
    }
}

/// The largest integer of TOML (i64), which is more than any count needs.
const LARGEST: u64 = i64::MAX.cast_unsigned();

macro_rules! whole_number {
    ($($ty:ty),+) => {$(
        impl Value for $ty {
            const HINT: &'static str = "a number without quotes and unit";

            fn kind() -> String {
                "a whole number".to_owned()
            }

            fn schema() -> Schema {
                Schema::Number
            }

            fn read(found: &Found<'_>, cx: &mut Context) -> Option<Self> {
                if !found.get_ref().is_integer() {
                    cx.wrong::<Self>(found, this_is(found), None);
                    return None;
                }
                let value = integer(found).and_then(|n| Self::try_from(n).ok());
                if value.is_none() {
                    cx.wrong::<Self>(found, "out of range", Some(format!("write a number from 0 to {}", u64::try_from(Self::MAX).unwrap_or(LARGEST).min(LARGEST))));
                }
                value
            }

            fn to_toml(&self) -> Option<toml::Value> {
                Some(toml::Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX)))
            }
        }
    )+};
}
whole_number!(u16, u32, usize);

/// Nobody waits longer, and the clock can still count it.
const LONGEST: Duration = Duration::from_secs(5200 * 7 * 24 * 3600);

impl Value for Duration {
    const HINT: &'static str =
        "\"300s\", \"5m\", \"4h\", \"5d\" or \"250ms\"; a number without a unit is seconds";

    fn kind() -> String {
        "a duration".to_owned()
    }

    fn schema() -> Schema {
        Schema::AnyOf(vec![Schema::Number, Schema::Text])
    }

    fn read(found: &Found<'_>, cx: &mut Context) -> Option<Self> {
        let read = match integer(found) {
            Some(seconds) => Self::from_secs(seconds),
            None => {
                let why = |t: &str| if t.starts_with('-') { "shorter than 0" } else { "not a duration" };
                text(found, cx, |t, _| parse_duration(t).ok_or_else(|| (why(t).to_owned(), None)))?
            }
        };
        if read > LONGEST {
            cx.wrong::<Self>(found, "too long", Some("write a hundred years, \"5200w\", or less".to_owned()));
            return None;
        }
        Some(read)
    }

    fn to_toml(&self) -> Option<toml::Value> {
        Some(show_duration(*self).into())
    }
}

impl Value for ByteSize {
    const HINT: &'static str = "\"50MiB\", \"64KiB\" or \"1GB\"; a number without a unit is bytes";

    fn kind() -> String {
        "a size".to_owned()
    }

    fn schema() -> Schema {
        Schema::AnyOf(vec![Schema::Number, Schema::Text])
    }

    fn read(found: &Found<'_>, cx: &mut Context) -> Option<Self> {
        if let Some(bytes) = integer(found) {
            return Some(Self(bytes));
        }
        text(found, cx, |t, _| Self::parse(t).ok_or_else(|| ("not a size".to_owned(), None)))
    }

    fn to_toml(&self) -> Option<toml::Value> {
        Some(self.to_string().into())
    }
}

/// Kinds that are written as text, with their own parser and display.
macro_rules! text_value {
    ($ty:ty, $kind:literal, $hint:literal, $parse:expr, $show:expr) => {
        $crate::value::text_value!($ty, $kind, $hint, $parse, $show, $crate::json_schema::Schema::Text);
    };
    ($ty:ty, $kind:literal, $hint:literal, $parse:expr, $show:expr, $schema:expr) => {
        impl Value for $ty {
            const HINT: &'static str = $hint;

            fn kind() -> String {
                $kind.to_owned()
            }

            fn schema() -> $crate::json_schema::Schema {
                $schema
            }

            fn read(found: &Found<'_>, cx: &mut Context) -> Option<Self> {
                text(found, cx, $parse)
            }

            fn to_toml(&self) -> Option<toml::Value> {
                let show: fn(&Self) -> String = $show;
                Some(show(self).into())
            }
        }
    };
}

pub(crate) use text_value;

pub(crate) fn bad<T>(label: &str) -> Result<T, (String, Option<String>)> {
    Err((label.to_owned(), None))
}

/// A domain name that names this machine; not an address literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName(pub String);

text_value!(
    HostName,
    "a host name",
    "a name such as \"mail.example.com\"",
    |t, _| match Domain::parse(t) {
        Ok(_) if t.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit())) => {
            bad("an address, and no name")
        }
        Ok(domain) if !t.starts_with('[') => Ok(HostName(domain.key().into_owned())),
        _ if t.starts_with('@') => bad("a domain is written without the `@`"),
        _ => bad("not a host name"),
    },
    |h| h.0.clone()
);

text_value!(
    Mailbox,
    "a mail address",
    "an address such as \"postmaster@example.com\"",
    |t, _| Mailbox::parse(t, true).map_err(|e| (e.to_string(), None)),
    Mailbox::to_string
);

text_value!(
    PathBuf,
    "a path",
    "a path such as \"/var/lib/postrider\"; a relative one is relative to this file's directory",
    |t, base| if t.is_empty() || t.contains('\0') { bad("not a path") } else { Ok(base.join(t)) },
    |p| p.to_string_lossy().into_owned()
);

text_value!(
    IpAddr,
    "an IP address",
    "an address such as \"192.0.2.1\" or \"2001:db8::1\"",
    |t, _| t.parse().map_err(|_| ("not an IP address".to_owned(), None)),
    IpAddr::to_string
);

/// A name server; port 53 unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NameServer(pub SocketAddr);

text_value!(
    NameServer,
    "a name server's address",
    "\"192.0.2.53\" or \"127.0.0.1:5353\"",
    |t, _| {
        let (ip, port) = ip_and_port(t).map_err(|why| (why.to_owned(), None))?;
        Ok(NameServer(SocketAddr::new(ip, port.unwrap_or(53))))
    },
    |n| n.0.to_string()
);

text_value!(
    IpNet,
    "a network",
    "a network such as \"10.0.0.0/8\" or \"2001:db8::/32\", or one address",
    read_network,
    IpNet::to_string
);

/// A network, or one address. Bits behind the prefix are most likely a slip, so they are refused.
fn read_network(text: &str, _: &Path) -> Result<IpNet, (String, Option<String>)> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(ip.to_canonical().into());
    }
    let net: IpNet = text.parse().map_err(|_| match text.split_once('/').map(|(ip, _)| ip.parse()) {
        Some(Ok(IpAddr::V4(_))) => ("the prefix is not a number from 0 to 32".to_owned(), None),
        Some(Ok(IpAddr::V6(_))) => ("the prefix is not a number from 0 to 128".to_owned(), None),
        Some(Err(_)) | None => ("not a network".to_owned(), None),
    })?;
    // A client has the address of IPv4.
    let net = maps::mapped_v4(net).map_or(net, IpNet::V4);
    if net == net.trunc() {
        return Ok(net);
    }
    Err((format!("has bits set beyond /{}", net.prefix_len()), Some(format!("write \"{}\"", net.trunc()))))
}

text_value!(
    DomainPattern,
    "a domain pattern",
    "\"*\", \"example.com\" or \"*.example.com\"",
    |t, _| DomainPattern::parse(t).map_err(|help| ("not a domain pattern".to_owned(), Some(help))),
    DomainPattern::to_string
);

text_value!(
    HostPort,
    "a host with a port",
    "\"mail.example.com:587\", \"192.0.2.1:25\" or \"[2001:db8::1]:25\"",
    |t, _| HostPort::parse(t).map_err(|why| (why.to_owned(), None)),
    HostPort::to_string
);

text_value!(
    LmtpServer,
    "an LMTP server",
    "\"unix:/run/dovecot/lmtp\" or \"127.0.0.1:24\"",
    |t, base| parse_lmtp_server(t, base).map_err(|why| (why.to_owned(), None)),
    LmtpServer::to_string
);

text_value!(
    MaildirTemplate,
    "a path to a mailbox",
    "a path such as \"/var/mail/{domain}/{local}\"",
    |t, base| MaildirTemplate::parse(t, base).map_err(|why| (why, None)),
    |m| m.as_str().to_owned()
);

/// Returns a text, unless it is empty or has control characters: then it is `why`.
fn printable(text: &str, why: &str) -> Result<String, (String, Option<String>)> {
    if text.is_empty() || text.contains(char::is_control) { bad(why) } else { Ok(text.to_owned()) }
}

/// Text that is not empty and has no control characters: local parts, names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word(pub String);

text_value!(Word, "a name", "a name such as \"alice\"", |t, _| printable(t, "not a name").map(Word), |w| w
    .0
    .clone());

/// Text that is not empty and has no control characters: what another program reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) String);

text_value!(
    Text,
    "text",
    "text in quotes",
    |t, _| printable(t, "empty, or with control characters").map(Text),
    |t| t.0.clone()
);

/// The name of a priority assignment policy: a word of EHLO's reply (RFC 6710 §3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyName(pub String);

text_value!(
    PolicyName,
    "a name",
    "letters, digits, hyphens and underscores, such as \"MIXER\"",
    |t, _| {
        let is_name_byte = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if t.is_empty() || t.len() > 64 || !t.bytes().all(is_name_byte) {
            bad("not a name of a policy")
        } else {
            Ok(PolicyName(t.to_owned()))
        }
    },
    |name| name.0.clone()
);

text_value!(
    Reference,
    "a map",
    "\"text:FILE\", \"aliases:FILE\", \"regex:FILE\", \"cidr:FILE\", \"cdb:FILE\", \"accounts:/etc/passwd\", \"accounts:nss\" or \"map:NAME\"",
    |t, base| Reference::parse(t, base).map_err(|(label, help)| (label, Some(help))),
    Reference::to_string
);

/// A server of Redis: as [`MapServer`], or with TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RedisServer {
    pub(crate) server: Server,
    pub(crate) is_tls: bool,
}

text_value!(
    RedisServer,
    "a server",
    "\"unix:/run/redis/redis.sock\", \"127.0.0.1:6379\", or \"rediss://host:port\" for TLS",
    |t, base| {
        let (is_tls, rest) = t.strip_prefix("rediss://").map_or((false, t), |rest| (true, rest));
        match parse_lmtp_server(rest, base) {
            Ok(LmtpServer::Unix(path)) if !is_tls => Ok(RedisServer { server: Server::Unix(path), is_tls }),
            Ok(LmtpServer::Tcp(host)) => Ok(RedisServer { server: Server::Tcp(host), is_tls }),
            Ok(LmtpServer::Unix(_)) => bad("a Unix socket has no TLS"),
            Err(why) => bad(why),
        }
    },
    |s| format!("{}{}", if s.is_tls { "rediss://" } else { "" }, s.server)
);

text_value!(
    LdapServer,
    "a directory server",
    "\"ldap://127.0.0.1\", \"ldaps://ldap.example.com\" or \"unix:/run/slapd/ldapi\"",
    |t, base| {
        if t.starts_with("unix:") {
            return match parse_lmtp_server(t, base) {
                Ok(LmtpServer::Unix(path)) => Ok(LdapServer { server: Server::Unix(path), is_tls: false }),
                _ => bad("the path is missing"),
            };
        }
        let (is_tls, rest, port) = match (t.strip_prefix("ldaps://"), t.strip_prefix("ldap://")) {
            (Some(rest), _) => (true, rest, 636),
            (_, Some(rest)) => (false, rest, 389),
            _ => return bad("not an address of a directory"),
        };
        let host = rest.strip_suffix('/').unwrap_or(rest);
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let host = if has_port { host.to_owned() } else { format!("{host}:{port}") };
        match HostPort::parse(&host) {
            Ok(host) => Ok(LdapServer { server: Server::Tcp(host), is_tls }),
            Err(why) => bad(why),
        }
    },
    LdapServer::to_string
);

/// Text of a query; it may have several lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query(pub(crate) String);

text_value!(
    Query,
    "a query",
    "a query such as \"SELECT target FROM alias WHERE address = ?\"",
    |t, _| if t.trim().is_empty() || t.contains(|c: char| c.is_control() && c != '\n' && c != '\t') {
        bad("not a query")
    } else {
        Ok(Query(t.to_owned()))
    },
    |q| q.0.clone()
);

/// The character between a user and a detail; none: local parts have no detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubAddress(pub Option<Separator>);

text_value!(
    SubAddress,
    "one character",
    "\"+\", \"-\", \"=\", \"#\", \"_\", \".\", or \"\" for none",
    |t, _| match Separator::parse(t) {
        None if !t.is_empty() => bad("not such a character"),
        separator => Ok(SubAddress(separator)),
    },
    |s| s.0.map(|separator| separator.as_char().to_string()).unwrap_or_default()
);

/// An item of a list in which maps may stand, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OrMap<T> {
    Item(T),
    Map(Reference),
}

impl<T> OrMap<T> {
    /// Returns the items and the maps of a list.
    pub(crate) fn split(list: Vec<Self>) -> (Vec<T>, Vec<Reference>) {
        let (mut items, mut maps) = (Vec::new(), Vec::new());
        for entry in list {
            match entry {
                Self::Item(item) => items.push(item),
                Self::Map(map) => maps.push(map),
            }
        }
        (items, maps)
    }
}

impl<T: Value> Value for OrMap<T> {
    const HINT: &'static str = T::HINT;

    fn kind() -> String {
        format!("{} or a map", T::kind())
    }

    fn schema() -> Schema {
        match T::schema() {
            // A reference to a map is a text, too.
            Schema::Text => Schema::Text,
            other => Schema::AnyOf(vec![other, Schema::Text]),
        }
    }

    fn read(found: &Found<'_>, cx: &mut Context) -> Option<Self> {
        match found.get_ref().as_str() {
            Some(text) if Reference::is_meant(text) => Reference::read(found, cx).map(Self::Map),
            _ => T::read(found, cx).map(Self::Item),
        }
    }

    fn to_toml(&self) -> Option<toml::Value> {
        match self {
            Self::Item(item) => item.to_toml(),
            Self::Map(map) => map.to_toml(),
        }
    }
}

impl<T: Value> Value for Option<T> {
    const HINT: &'static str = T::HINT;

    fn kind() -> String {
        T::kind()
    }

    fn schema() -> Schema {
        T::schema()
    }

    fn read(found: &Found<'_>, cx: &mut Context) -> Option<Self> {
        T::read(found, cx).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }

    fn to_toml(&self) -> Option<toml::Value> {
        self.as_ref().and_then(T::to_toml)
    }
}

impl<T: Value> Value for Vec<T> {
    const HINT: &'static str = "a list in square brackets";

    fn kind() -> String {
        format!("a list, each item {}", T::kind())
    }

    fn schema() -> Schema {
        Schema::List(Box::new(T::schema()))
    }

    fn read(found: &Found<'_>, cx: &mut Context) -> Option<Self> {
        let Some(items) = found.get_ref().as_array() else {
            let help = (found.get_ref().is_str() && !T::HINT.is_empty())
                .then(|| "put it in square brackets: [\"…\"]".to_owned());
            cx.wrong::<Self>(found, this_is(found), help);
            return None;
        };
        // Every item is read, so that each bad one is reported.
        let read: Vec<Option<T>> = items.iter().map(|item| T::read(item, cx)).collect();
        read.into_iter().collect()
    }

    fn to_toml(&self) -> Option<toml::Value> {
        Some(toml::Value::Array(self.iter().filter_map(T::to_toml).collect()))
    }
}

impl Value for RouteLogin {
    const HINT: &'static str = "{ user = \"bob\", secret = \"file:isp.secret\" }";

    fn kind() -> String {
        "a login".to_owned()
    }

    fn schema() -> Schema {
        Schema::Table(vec![("user", Schema::Text, true), ("secret", Schema::Text, true)])
    }

    fn read(found: &Found<'_>, cx: &mut Context) -> Option<Self> {
        let Some(table) = found.get_ref().as_table() else {
            cx.wrong::<Self>(found, this_is(found), None);
            return None;
        };
        let of = cx.key.clone();
        for (name, _) in table.iter().filter(|(name, _)| !["user", "secret"].contains(&&**name.get_ref())) {
            let what = format!("there is no key `{}` in `{of}`", name.get_ref());
            cx.problem_of(
                Code::UnknownKey,
                name.span(),
                what,
                "unknown key",
                format!("write {}", Self::HINT),
            );
        }
        let mut key = |name: &str| {
            let value = table.get(name);
            if value.is_none() {
                let what = format!("`{of}` lacks `{name}`");
                cx.problem_of(
                    Code::MissingKey,
                    found.span(),
                    what,
                    "incomplete",
                    format!("write {}", Self::HINT),
                );
            }
            value
        };
        let (user, secret) = (key("user"), key("secret"));
        cx.key = format!("{of}.user");
        let user = user.and_then(|user| Word::read(user, cx));
        cx.key = format!("{of}.secret");
        let secret = secret.and_then(|secret| SecretSource::read(secret, cx));
        cx.key = of;
        Some(Self { user: user?.0, secret: secret? })
    }

    fn to_toml(&self) -> Option<toml::Value> {
        let user = ("user".to_owned(), self.user.clone().into());
        let secret = ("secret".to_owned(), self.secret.to_string().into());
        Some(toml::Value::Table([user, secret].into_iter().collect()))
    }
}

text_value!(
    SecretSource,
    "a reference to a secret",
    "\"file:isp.secret\", \"credential:NAME\" or \"env:NAME\"",
    |t, base| SecretSource::parse(t, base)
        .ok_or_else(|| ("secrets must not be in this file".to_owned(), None)),
    SecretSource::to_string
);

/// `[hosts]`: any host name as key.
pub(crate) type HostTable = BTreeMap<String, Vec<IpAddr>>;

impl Value for HostTable {
    const HINT: &'static str = "\"mx.example.com\" = [\"192.0.2.1\"]";

    fn kind() -> String {
        "a table of host names".to_owned()
    }

    fn schema() -> Schema {
        Schema::FreeTable(Box::new(Vec::<IpAddr>::schema()))
    }

    fn read(found: &Found<'_>, cx: &mut Context) -> Option<Self> {
        let Some(table) = found.get_ref().as_table() else {
            cx.wrong::<Self>(found, this_is(found), None);
            return None;
        };
        Some(read_hosts(table, cx))
    }

    fn to_toml(&self) -> Option<toml::Value> {
        Some(toml::Value::Table(
            self.iter().filter_map(|(name, ips)| Some((name.clone(), ips.to_toml()?))).collect(),
        ))
    }
}

fn read_hosts(table: &DeTable<'_>, cx: &mut Context) -> HostTable {
    let mut hosts = HostTable::new();
    for (name, value) in table {
        cx.key = format!("hosts.{}", name.get_ref());
        let Ok(domain) = Domain::parse(name.get_ref()) else {
            let what = format!("`{}` is not a host name", name.get_ref());
            cx.problem(name.span(), what, "not a host name", format!("write {}", HostTable::HINT));
            continue;
        };
        if value.get_ref().is_table() {
            // An unquoted mx.example.com is a table in a table for TOML.
            let what = format!("`{}` is a table, not a list of addresses", cx.key);
            cx.problem(
                name.span(),
                what,
                "put the whole name in quotes",
                format!("write {}", HostTable::HINT),
            );
        } else if let Some(addresses) = Vec::read(value, cx) {
            hosts.insert(domain.key().into_owned(), addresses);
        }
    }
    hosts
}
