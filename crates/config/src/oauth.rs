//! `[oauth]`, and its values.

use crate::{
    route::{SecretSource, parse_unix_path},
    section::section,
    value::{Context, Found, Value, Word, text, text_value},
};
use mail::HostPort;
use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

section! {
    /// Logins by token, with the mechanisms OAUTHBEARER (RFC 7628) and XOAUTH2. The server that issued a token is asked
    /// whether it is valid, and whose it is (RFC 7662). A valid token is remembered, as a keyed hash, until it expires,
    /// at most for five minutes. If the server does not answer, the client gets 454 4.7.0.
    pub OAuth = "oauth" {
        /// The URL of the introspection endpoint: `https://`, or a server on this machine by `http://127.0.0.1` or
        /// `unix:/path` (HTTP over a Unix socket). Without this key, there are no logins by token.
        introspection: Option<HttpUrl> = "",
        /// The name by which the authorization server knows this server, sent with `client_secret` as HTTP Basic
        /// authorization.
        client_id: Option<Word> = "",
        /// This server's secret for the authorization server: `file:FILE`, `credential:NAME` for a
        /// systemd credential, or `env:NAME` for a variable of the environment.
        client_secret: Option<SecretSource> = "",
        /// The member of the response that has the login: `username`, `sub`, or another one such as `email`.
        claim: Word = "\"username\"",
        /// Scopes that a token must have, all of them. The error shows them to clients.
        scope: Vec<Word> = "[]",
        /// The audience for which a token must be issued: the member `aud` of the response must contain it.
        audience: Option<Word> = "",
        /// Time for one answer, including connecting. At most 25s.
        timeout: Duration = "\"10s\"",
        /// PEM file with the certification authorities to trust for `https://`. Without this key, Mozilla's are used.
        ca_file: Option<PathBuf> = "",
        /// The URL of the authorization server's metadata (OpenID Connect Discovery). The error shows it to clients.
        openid_configuration: Option<MetadataUrl> = "",
    }
}

/// A resource that is asked by HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl {
    /// The server that is asked.
    pub server: HttpServer,
    /// Path and query of the request.
    pub target: String,
}

/// A server of HTTP to which secrets may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpServer {
    /// `https://host:port`.
    Https(HostPort),
    /// `http://127.0.0.1:port`: a server on this machine.
    Loopback(HostPort),
    /// `unix:/path`.
    Unix(PathBuf),
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            HttpServer::Https(host) => write!(f, "https://{host}{}", self.target),
            HttpServer::Loopback(host) => write!(f, "http://{host}{}", self.target),
            HttpServer::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

text_value!(
    HttpUrl,
    "an HTTP URL",
    "\"https://host.example.com/path\", \"http://127.0.0.1:8080/path\" or \"unix:/run/server.sock\"",
    parse,
    HttpUrl::to_string
);

fn parse(text: &str, base: &Path) -> Result<HttpUrl, (String, Option<String>)> {
    let bad = |label: &str| Err((label.to_owned(), None));
    if let Some(path) = text.strip_prefix("unix:") {
        let path = parse_unix_path(path, base).map_err(|label| (label.to_owned(), None))?;
        return Ok(HttpUrl { server: HttpServer::Unix(path), target: "/".to_owned() });
    }
    let Some((scheme @ ("http" | "https"), rest)) = text.split_once("://") else {
        return bad("not such an address");
    };
    let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return bad("has a user name in it, which is not sent");
    }
    if !target.bytes().all(|b| b.is_ascii_graphic()) || target.contains('#') {
        return bad("has a character that is not allowed there");
    }
    let usual = if scheme == "https" { 443 } else { 80 };
    let ipv6 = authority.starts_with('[') && authority.ends_with(']');
    let has_port = !ipv6 && authority.contains(':');
    let host =
        if has_port { HostPort::parse(authority) } else { HostPort::parse(&format!("{authority}:{usual}")) };
    let host = host.map_err(|label| (label.to_owned(), None))?;
    let is_loopback = host.ip().is_some_and(|ip: IpAddr| ip.is_loopback()) || host.host == "localhost";
    let server = match scheme {
        "https" => HttpServer::Https(host),
        _ if is_loopback => HttpServer::Loopback(host),
        _ => return bad("what is sent would leave this machine in clear text: write \"https://\""),
    };
    let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
    Ok(HttpUrl { server, target })
}

/// The address of the metadata of an authorization server, for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataUrl(pub String);

text_value!(
    MetadataUrl,
    "an https URL",
    "\"https://id.example.com/.well-known/openid-configuration\"",
    |t, _| if t.starts_with("https://") && t.len() > 8 && t.bytes().all(|b| b.is_ascii_graphic()) {
        Ok(MetadataUrl(t.to_owned()))
    } else {
        Err(("not such an address".to_owned(), None))
    },
    |url| url.0.clone()
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_leave_this_machine_by_https_only() {
        let read = |text: &str| parse(text, Path::new("/etc/postrider"));
        for (text, shown) in [
            ("https://id.example.com/introspect?x=1", "https://id.example.com:443/introspect?x=1"),
            ("https://ID.example.com:8443", "https://id.example.com:8443/"),
            ("http://127.0.0.1:8080/a", "http://127.0.0.1:8080/a"),
            ("http://[::1]/a", "http://[::1]:80/a"),
            ("http://localhost", "http://localhost:80/"),
            ("unix:run/v.sock", "unix:/etc/postrider/run/v.sock"),
        ] {
            assert_eq!(read(text).map(|url| url.to_string()), Ok(shown.to_owned()));
        }
        for (bad, label) in [
            (
                "http://id.example.com/x",
                "what is sent would leave this machine in clear text: write \"https://\"",
            ),
            ("https://me:secret@id.example.com/", "has a user name in it, which is not sent"),
            ("id.example.com", "not such an address"),
            ("ftp://id.example.com", "not such an address"),
            ("https://id.example.com/a b", "has a character that is not allowed there"),
            ("https://", "not a host name"),
        ] {
            assert_eq!(read(bad).map_err(|(label, _)| label), Err(label.to_owned()), "{bad}");
        }
    }
}
