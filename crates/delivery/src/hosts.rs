//! The servers of a destination, and the order in which one attempt tries them.

use crate::{
    connect::{Connector, Ready},
    exchanger_budget::{Exchanger, OF_ADDRESS_MAX, OF_NAMES_MAX, Unproven},
    host_memory::HostMemory,
};
use mail::{Disposition, Enhanced, HostPort, LmtpServer, NextHop, Outcome};
use route::{Host, Router};
use std::{collections::VecDeque, net::SocketAddr, path::Path, sync::Arc, time::Instant};

/// The most servers that one attempt talks to before it turns to the fallback. Each may take minutes to fail, and a
/// large site has dozens.
const SERVERS_MAX: u32 = 5;

/// The servers that an attempt has not tried yet (RFC 5321 §5.1): the addresses of the hosts, best first, and behind them
/// the fallback. Those that failed lately stand behind the others of the same kind, and those that may have taken a
/// message without saying so behind all.
pub(crate) struct Hosts<'a> {
    router: &'a Router,
    memory: &'a HostMemory,
    untried: VecDeque<Server<'a>>,
    fallback: std::slice::Iter<'a, HostPort>,
    /// Servers that are tried behind the fallback.
    last_resort: VecDeque<Server<'a>>,
    current: Option<Server<'a>>,
    /// Servers that greeted us.
    greeted_count: u32,
    /// The outcome of the servers that could not be used.
    outcome: Option<Outcome>,
}

#[derive(Debug, Clone)]
enum Server<'a> {
    Tcp { host: String, address: SocketAddr, names: Arc<str> },
    Unix(&'a Path),
}

impl<'a> Hosts<'a> {
    /// Looks up the servers of a next hop.
    ///
    /// # Errors
    /// As for [`Router::host`] and [`Router::exchangers`]. A deferral is no error where there is a fallback.
    pub(crate) async fn find(
        router: &'a Router,
        memory: &'a HostMemory,
        next_hop: &'a NextHop,
        fallback: &'a [HostPort],
    ) -> Result<Self, Outcome> {
        let mut hosts = Self {
            router,
            memory,
            untried: VecDeque::new(),
            fallback: fallback.iter(),
            last_resort: VecDeque::new(),
            current: None,
            greeted_count: 0,
            outcome: None,
        };
        let found = match next_hop {
            NextHop::Mx(domain) => router.exchangers(domain).await,
            NextHop::Smarthost(host) => router.host(&host.host, host.port).await,
            NextHop::Lmtp(server) => match &**server {
                LmtpServer::Tcp(host) => router.host(&host.host, host.port).await,
                LmtpServer::Unix(path) => {
                    hosts.untried.push_back(Server::Unix(path));
                    return Ok(hosts);
                }
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
        match found {
            Ok(found) => hosts.add(found),
            Err(outcome) if fallback.is_empty() || outcome.disposition == Disposition::Failed => {
                return Err(outcome);
            }
            Err(outcome) => hosts.outcome = Some(outcome),
        }
        Ok(hosts)
    }

    fn add(&mut self, hosts: Vec<Host>) {
        let names = names_of(&hosts);
        let addresses = |host: Host| {
            let Host { name, addresses } = host;
            addresses.into_iter().map(move |address| (name.clone(), address))
        };
        let mut found: Vec<(String, SocketAddr)> = hosts.into_iter().flat_map(addresses).collect();
        let now = Instant::now();
        self.memory.order(&mut found, |(_, address)| *address, now);
        for (host, address) in found {
            let servers = match self.memory.is_last_resort(address, now) {
                true => &mut self.last_resort,
                false => &mut self.untried,
            };
            servers.push_back(Server::Tcp { host, address, names: names.clone() });
        }
    }

    /// Returns whether there is a server that was not tried. A fallback counts, although its address is not known yet.
    pub(crate) fn has_next(&self) -> bool {
        !self.untried.is_empty() || !self.fallback.as_slice().is_empty() || !self.last_resort.is_empty()
    }

    /// Connects to the current server again, or else to the next that can be used.
    ///
    /// # Errors
    /// As for [`Hosts::next`].
    pub(crate) async fn again(&mut self, connector: &Connector<'_>) -> Result<Ready, Outcome> {
        if let Some(current) = self.current.take() {
            self.untried.push_front(current);
            self.greeted_count -= 1;
        }
        self.next(connector).await
    }

    /// Connects to the next server that can be used: each address of each host, and then the fallback.
    ///
    /// # Errors
    /// No server is left: the deferral of the last one, or a failure if each server failed for sure.
    pub(crate) async fn next(&mut self, connector: &Connector<'_>) -> Result<Ready, Outcome> {
        loop {
            let Some(server) = self.untried.pop_front() else {
                self.turn_to_fallback().await?;
                continue;
            };
            let connected = match &server {
                Server::Unix(path) => connector.unix(path).await,
                Server::Tcp { host, address, names } => {
                    let mut unproven = match connector.unproven(*address, names).await {
                        Ok(unproven) => unproven,
                        Err(full) => {
                            let outcome = crowded(host, &full);
                            connector.progress.inspect(|progress| progress.failed(&outcome));
                            self.failed(outcome);
                            continue;
                        }
                    };
                    let connected = Box::pin(connector.tcp(host, *address)).await;
                    if connected.is_ok() {
                        unproven.iter_mut().for_each(Unproven::answered);
                    }
                    connected.map(|ready| Ready { unproven, ..ready })
                }
            };
            match connected {
                Ok(ready) => {
                    self.current = Some(server);
                    self.greeted_count += 1;
                    if self.greeted_count >= SERVERS_MAX {
                        self.untried.clear();
                    }
                    return Ok(ready);
                }
                Err(outcome) => {
                    if let Server::Tcp { address, .. } = server {
                        self.memory.failed(address, Instant::now());
                    }
                    connector.progress.inspect(|progress| progress.failed(&outcome));
                    self.failed(outcome);
                }
            }
        }
    }

    async fn turn_to_fallback(&mut self) -> Result<(), Outcome> {
        let none = || Outcome::deferred(Enhanced(4, 4, 4), "no host of the destination has an address");
        let Some(host) = self.fallback.next() else {
            if !self.last_resort.is_empty() {
                self.untried.append(&mut self.last_resort);
                return Ok(());
            }
            return Err(self.outcome.take().unwrap_or_else(none));
        };
        match &self.outcome {
            Some(outcome) => tracing::info!("using {host} instead: {}", outcome.text),
            None => tracing::info!("using {host} instead: the servers before it deferred the mail"),
        }
        match self.router.host(&host.host, host.port).await {
            Ok(found) => self.add(found),
            Err(outcome) => self.failed(outcome),
        }
        Ok(())
    }

    /// Notes the outcome of a server. Together they are a failure only if each is one.
    fn failed(&mut self, outcome: Outcome) {
        let has_deferral = self.outcome.as_ref().is_some_and(|o| o.disposition != Disposition::Failed);
        if !(has_deferral && outcome.disposition == Disposition::Failed) {
            self.outcome = Some(outcome);
        }
    }
}

/// The outcome of a server that has as many connections as it may before it takes mail.
/// The names of all exchangers. The order of equal preferences changes with each look-up.
fn names_of(hosts: &[Host]) -> Arc<str> {
    let mut names: Vec<String> = hosts.iter().map(|host| host.name.to_ascii_lowercase()).collect();
    names.sort_unstable();
    names.join(",").into()
}

fn crowded(host: &str, full: &Exchanger) -> Outcome {
    let text = match full {
        Exchanger::Address(ip) => format!(
            "{OF_ADDRESS_MAX} connections to {host}[{ip}] wait for an answer already, and it has not taken mail lately"
        ),
        Exchanger::Names(_) => format!(
            "{OF_NAMES_MAX} connections to {host} and the other exchangers of its domains wait for an answer already, \
             and none of them has taken mail lately"
        ),
    };
    Outcome::deferred(Enhanced(4, 4, 1), text)
}
