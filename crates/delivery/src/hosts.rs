//! The servers of a destination, and the choice of the one that is connected to.

use crate::connect::{Connector, Ready};
use mail::{Disposition, Enhanced, HostPort, LmtpServer, NextHop, Outcome};
use route::{Host, Router};
use std::path::Path;

/// The servers of a destination, and those that are used when none of them can be reached.
pub(crate) struct Hosts<'a> {
    main: Result<Servers<'a>, Outcome>,
    router: &'a Router,
    fallback: &'a [HostPort],
}

enum Servers<'a> {
    Tcp(Vec<Host>),
    Unix(&'a Path),
}

impl<'a> Hosts<'a> {
    /// Looks up the servers of a next hop.
    ///
    /// # Errors
    /// As for [`Router::host`] and [`Router::exchangers`]. A deferral is no error where there is a fallback.
    pub(crate) async fn find(
        router: &'a Router,
        next_hop: &'a NextHop,
        fallback: &'a [HostPort],
    ) -> Result<Self, Outcome> {
        let main = match next_hop {
            NextHop::Mx(domain) => router.exchangers(domain).await.map(Servers::Tcp),
            NextHop::Smarthost(host) => router.host(&host.host, host.port).await.map(Servers::Tcp),
            NextHop::Lmtp(server) => match &**server {
                LmtpServer::Tcp(host) => router.host(&host.host, host.port).await.map(Servers::Tcp),
                LmtpServer::Unix(path) => Ok(Servers::Unix(path)),
            },
            NextHop::Maildir(_)
            | NextHop::Mbox(_)
            | NextHop::Pipe(_)
            | NextHop::Reject(_)
            | NextHop::Discard
            | NextHop::Expand => {
                unreachable!("mail for {next_hop} stays on this machine")
            }
        };
        match main {
            Err(outcome) if fallback.is_empty() || outcome.disposition == Disposition::Failed => Err(outcome),
            main => Ok(Self { main, router, fallback }),
        }
    }

    /// Tries each address of each host until one can be used, and then the fallback.
    ///
    /// # Errors
    /// The deferral of the last host. A failure, if each host fails for sure.
    pub(crate) async fn connect(&self, connector: &Connector<'_>) -> Result<Ready, Outcome> {
        let connected = match &self.main {
            Ok(Servers::Unix(path)) => connector.unix(path).await,
            Ok(Servers::Tcp(hosts)) => connect_to(hosts, connector).await,
            Err(outcome) => Err(outcome.clone()),
        };
        let mut outcome = match connected {
            Ok(ready) => return Ok(ready),
            Err(outcome) => outcome,
        };
        for host in self.fallback {
            tracing::info!("{host} is used instead: {}", outcome.text);
            let connected = match self.router.host(&host.host, host.port).await {
                Ok(hosts) => connect_to(&hosts, connector).await,
                Err(outcome) => Err(outcome),
            };
            match connected {
                Ok(ready) => return Ok(ready),
                Err(unreached) => outcome = later(Some(outcome), unreached),
            }
        }
        Err(outcome)
    }
}

/// Returns the outcome of two hosts: a failure only if both have one.
fn later(before: Option<Outcome>, outcome: Outcome) -> Outcome {
    match before {
        Some(before) if outcome.disposition == Disposition::Failed => before,
        _ => outcome,
    }
}

async fn connect_to(hosts: &[Host], connector: &Connector<'_>) -> Result<Ready, Outcome> {
    let mut last = None;
    for host in hosts {
        for address in &host.addresses {
            match Box::pin(connector.tcp(&host.name, *address)).await {
                Ok(ready) => return Ok(ready),
                Err(outcome) => last = Some(later(last.take(), outcome)),
            }
        }
    }
    let none = || Outcome::deferred(Enhanced(4, 4, 4), "no host of the destination has an address");
    Err(last.unwrap_or_else(none))
}
