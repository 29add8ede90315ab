//! The servers of a destination, and the choice of the one that is connected to.

use crate::connect::{Connector, Ready};
use mail::{Enhanced, LmtpServer, NextHop, Outcome};
use route::{Host, Router};
use std::path::Path;

/// The servers of a destination.
pub(crate) enum Hosts<'a> {
    Tcp(Vec<Host>),
    Unix(&'a Path),
}

impl<'a> Hosts<'a> {
    /// Looks up the servers of a next hop.
    ///
    /// # Errors
    /// As for [`Router::host`] and [`Router::exchangers`].
    pub(crate) async fn find(router: &Router, next_hop: &'a NextHop) -> Result<Self, Outcome> {
        let host = match next_hop {
            NextHop::Mx(domain) => return router.exchangers(domain).await.map(Self::Tcp),
            NextHop::Smarthost(host) => host,
            NextHop::Lmtp(server) => match &**server {
                LmtpServer::Tcp(host) => host,
                LmtpServer::Unix(path) => return Ok(Self::Unix(path)),
            },
            NextHop::Maildir(_) | NextHop::Discard => {
                unreachable!("mail for {next_hop} stays on this machine")
            }
        };
        router.host(&host.host, host.port).await.map(Self::Tcp)
    }

    /// Tries each address of each host until one can be used.
    ///
    /// # Errors
    /// The deferral of the last host.
    pub(crate) async fn connect(&self, connector: &Connector<'_>) -> Result<Ready, Outcome> {
        let hosts = match self {
            Self::Tcp(hosts) => hosts,
            Self::Unix(path) => return connector.unix(path).await,
        };
        let mut last = None;
        for host in hosts {
            for address in &host.addresses {
                match Box::pin(connector.tcp(&host.name, *address)).await {
                    Ok(ready) => return Ok(ready),
                    Err(outcome) => last = Some(outcome),
                }
            }
        }
        let none = || Outcome::deferred(Enhanced(4, 4, 4), "no host of the destination has an address");
        Err(last.unwrap_or_else(none))
    }
}
