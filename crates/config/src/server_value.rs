//! Servers of maps and filters: `unix:/path`, or a host with a port.

use crate::{
    route::parse_lmtp_server,
    value::{Context, Found, Value, bad, text, text_value},
};
use mail::LmtpServer;
use maps::Server;
use std::path::Path;

/// A server that answers look-ups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MapServer(pub(crate) Server);

/// A milter, in the same form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MilterServer(pub(crate) Server);

/// A worker of rspamd, in the same form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RspamdServer(pub(crate) Server);

fn server(text: &str, base: &Path) -> Result<Server, (String, Option<String>)> {
    match parse_lmtp_server(text, base) {
        Ok(LmtpServer::Unix(path)) => Ok(Server::Unix(path)),
        Ok(LmtpServer::Tcp(host)) => Ok(Server::Tcp(host)),
        Err(_) if text.starts_with("inet:") => bad("a host and port stand without `inet:`"),
        Err(_) if text.starts_with("http") => bad("a host and port stand without `http://`"),
        Err(why) => bad(why),
    }
}

macro_rules! server {
    ($ty:ident, $hint:literal) => {
        text_value!($ty, "a server", $hint, |t, base| server(t, base).map($ty), |s| s.0.to_string());
    };
}

server!(MapServer, "\"unix:/run/users.sock\" or \"127.0.0.1:2102\"");
server!(MilterServer, "\"unix:/run/rspamd/milter.sock\" or \"127.0.0.1:11332\"");
server!(RspamdServer, "\"127.0.0.1:11333\" or \"unix:/run/rspamd/worker.sock\"");
