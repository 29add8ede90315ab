//! Deliveries to one destination: finds its hosts, connects to one, delivers what is due.

use crate::{
    TlsClient, WorkSource,
    active_lease::Unfinished,
    connect::Connector,
    exchanger_budget::ExchangerBudget,
    helper::Helper,
    host_memory::HostMemory,
    hosts::Hosts,
    local::{LocalDelivery, Place},
    recipient_permits::RecipientPermits,
    session::{Session, Usefulness, millis},
    tls::{TlsFault, TlsFaults},
};
use auth::ClientCredentials;
use mail::{Attempt, Destination, Enhanced, HostPort, LmtpServer, NextHop, Outcome, TlsMode};
use rewrite::Separator;
use route::Router;
use smtp::client::Protocol;
use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

/// The most connections that are replaced, one after the other, without progress. A server that closes each connection
/// with "too many recipients" needs this many until 1,000 recipients are halved down to one.
const FRUITLESS_MAX: u32 = 10;

/// The treatment of 8-bit content for a next hop that takes 7 bits only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EightBit {
    /// Convert the content; send content that is signed, or cannot be converted, as it is.
    Auto,
    /// Convert the content; return mail that cannot be converted.
    Convert,
    /// Send the content unchanged.
    Send,
    /// Return the mail as undeliverable.
    Return,
}

/// What the configuration says of connections to next hops.
#[derive(Debug, Clone)]
pub struct DeliverySettings {
    /// The name in EHLO and in the names of files in Maildirs.
    pub hello: Box<str>,
    /// True if a Maildir's symbolic links are followed.
    pub follow_symlinks: bool,
    /// The character between a user and a detail, which is not part of a Maildir's name.
    pub separator: Option<Separator>,
    /// The address from which connections are made, unless a route says otherwise.
    pub source_address: Option<IpAddr>,
    /// By the name in [`mail::Destination::route`].
    pub routes: HashMap<Arc<str>, RouteSettings>,
    /// Messages on one connection before it is replaced.
    pub messages_per_connection: u32,
    /// Recipients of one transaction; a message to more recipients needs several.
    pub recipients_per_transaction: usize,
    /// The treatment of 8-bit content for next hops without 8BITMIME or BINARYMIME.
    pub eight_bit: EightBit,
    /// Transactions on the wire at once.
    pub pipeline_depth: usize,
    /// The time that a connection without work is kept.
    pub idle_timeout: Duration,
    /// The time after which a connection takes no further message and is replaced, so that mail comes back to the best
    /// server.
    pub reuse_timeout: Duration,
    /// The time limit for connecting to one address.
    pub connect_timeout: Duration,
    /// The time limit for the greeting, and for a TLS handshake.
    pub greeting_timeout: Duration,
    /// How long the reply to any other command may take.
    pub command_timeout: Duration,
    /// The time limit for the reply to DATA, and for the server to take a piece of content.
    pub data_timeout: Duration,
    /// The time limit for the reply to the end of the content.
    pub data_done_timeout: Duration,
}

/// Settings of a route that override the general ones for its connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteSettings {
    /// The name and the password to log in with; never sent without TLS.
    pub login: Option<ClientCredentials>,
    /// The address from which connections are made.
    pub source_address: Option<IpAddr>,
    /// The name that is sent in EHLO, if it is not [`DeliverySettings::hello`].
    pub hello: Option<Box<str>>,
    /// True if TLS begins with the first byte, and not with STARTTLS.
    pub is_implicit: bool,
    /// Hosts that are used when none of the destination can be reached.
    pub fallback: Vec<HostPort>,
    /// True if files are written as another user: then the helper writes them.
    pub has_user: bool,
}

/// Delivers to destinations of every kind.
pub struct Courier {
    router: Router,
    settings: DeliverySettings,
    tls: TlsClient,
    pub(crate) tls_faults: TlsFaults,
    host_memory: HostMemory,
    exchanger_budget: ExchangerBudget,
    helper: Option<Arc<Helper>>,
    permits: RecipientPermits,
}

impl Courier {
    /// Opens no connection yet; the router finds the hosts of destinations.
    pub fn new(router: Router, settings: DeliverySettings, tls: TlsClient) -> Self {
        let (tls_faults, host_memory) = (TlsFaults::default(), HostMemory::default());
        let exchanger_budget = ExchangerBudget::default();
        Self {
            router,
            settings,
            tls,
            tls_faults,
            host_memory,
            exchanger_budget,
            helper: None,
            permits: RecipientPermits::default(),
        }
    }

    /// Returns the TLS client, for a courier that takes this one's place.
    pub fn tls(&self) -> &TlsClient {
        &self.tls
    }

    /// Adds the helper that runs programs, and writes files as other users.
    #[must_use]
    pub fn with_helper(self, helper: Option<Arc<Helper>>) -> Self {
        Self { helper, ..self }
    }

    /// Serves one connection for a destination: delivers leases until there are none for the idle timeout. Each lease
    /// is completed or returned. When the future is dropped, `source` has to return the leases that are open.
    pub async fn serve<J: WorkSource>(&self, destination: &Destination, source: &J) {
        match &destination.next_hop {
            NextHop::Discard => {
                let outcome = Outcome::delivered(Enhanced(2, 0, 0), "discarded, as the route says");
                complete_all(source, "discard", &outcome);
            }
            NextHop::Reject(reply) => complete_all(source, "reject", &rejected(reply)),
            NextHop::Maildir(template) => {
                self.on_this_machine(Place::Maildir(template), destination, source).await;
            }
            NextHop::Mbox(template) => {
                self.on_this_machine(Place::Mbox(template), destination, source).await;
            }
            NextHop::Pipe(program) => {
                self.on_this_machine(Place::Program(program), destination, source).await;
            }
            // The engine has these expanded.
            NextHop::Expand => {}
            NextHop::Mx(_) | NextHop::Smarthost(_) | NextHop::Lmtp(_) => {
                let begun = Instant::now();
                let progress = source.progress();
                progress.turn_to("", "looking up the servers");
                match unless_abandoned(source, self.way(destination)).await {
                    Ok(Ok((connector, hosts))) => {
                        let connector = Connector { progress: Some(progress), ..connector };
                        self.over(&connector, hosts, source).await;
                    }
                    Ok(Err(outcome)) | Err(Some(outcome)) => report(source, outcome, begun),
                    Err(None) => {}
                }
            }
        }
    }

    async fn on_this_machine<J: WorkSource>(&self, place: Place<'_>, destination: &Destination, source: &J) {
        let as_user = match self.route_of(destination) {
            Ok(route) => destination.route.as_deref().filter(|_| route.is_some_and(|own| own.has_user)),
            Err(outcome) => return complete_all(source, "local", &outcome),
        };
        let (settings, helper) = (&self.settings, self.helper.as_deref());
        let permits = &self.permits;
        LocalDelivery { place, as_user, settings, helper, permits }.serve(source).await;
    }

    /// Returns the settings of connections to a destination, and its hosts.
    ///
    /// # Errors
    /// A deferral, or the failure that DNS says for sure.
    pub(crate) async fn way<'a>(
        &'a self,
        destination: &'a Destination,
    ) -> Result<(Connector<'a>, Hosts<'a>), Outcome> {
        let route = self.route_of(destination)?;
        let (protocol, tls) = match &destination.next_hop {
            NextHop::Lmtp(server) if matches!(**server, LmtpServer::Unix(_)) => {
                (Protocol::Lmtp, TlsMode::Off)
            }
            NextHop::Lmtp(_) => (Protocol::Lmtp, destination.tls),
            _ => (Protocol::Smtp, destination.tls),
        };
        let fallback = route.map_or(&[][..], |route| &route.fallback);
        let hosts = Hosts::find(&self.router, &self.host_memory, &destination.next_hop, fallback).await?;
        let is_mx = matches!(destination.next_hop, NextHop::Mx(_));
        Ok((self.connector(tls, protocol, route, is_mx), hosts))
    }

    /// Looks up the servers of a destination, without a connection to one.
    ///
    /// # Errors
    /// Failed when mail would come back for sure, else deferred.
    pub async fn find_servers(&self, destination: &Destination) -> Result<(), Outcome> {
        match destination.next_hop {
            NextHop::Mx(_) | NextHop::Smarthost(_) | NextHop::Lmtp(_) => {
                self.way(destination).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Returns the settings of the route of a destination, if it has any.
    ///
    /// # Errors
    /// A reload has taken the route away, and mail is being routed again.
    fn route_of(&self, destination: &Destination) -> Result<Option<&RouteSettings>, Outcome> {
        let Some(name) = &destination.route else { return Ok(None) };
        match self.settings.routes.get(name) {
            Some(route) => Ok(Some(route)),
            None => {
                let text = format!("the route {name} is not in the configuration any more");
                Err(Outcome::deferred(Enhanced(4, 3, 5), text))
            }
        }
    }

    fn connector<'a>(
        &'a self,
        mode: TlsMode,
        protocol: Protocol,
        route: Option<&'a RouteSettings>,
        is_mx: bool,
    ) -> Connector<'a> {
        Connector {
            settings: &self.settings,
            login: route.and_then(|route| route.login.as_ref()),
            source_address: route.and_then(|route| route.source_address).or(self.settings.source_address),
            hello: route.and_then(|route| route.hello.as_deref()).unwrap_or(&self.settings.hello),
            is_implicit: route.is_some_and(|route| route.is_implicit),
            tls: &self.tls,
            tls_faults: &self.tls_faults,
            host_memory: &self.host_memory,
            exchanger_budget: &self.exchanger_budget,
            is_mx,
            mode: mode.min(TlsMode::Verify),
            is_requiretls: mode == TlsMode::RequireTls,
            protocol,
            progress: None,
        }
    }

    /// Serves leases over one connection, and over others that replace it: to the same server if it closes before a lease
    /// is finished, and to the next server for what this one defers (RFC 5321 §5.1).
    async fn over<J: WorkSource>(&self, connector: &Connector<'_>, mut hosts: Hosts<'_>, source: &J) {
        let mut unfinished = Unfinished::default();
        let mut fruitless_count = 0;
        let mut begun = Instant::now();
        let mut connected = unless_abandoned(source, hosts.next(connector)).await;
        // A server that answered and deferred is no reason to suspend the destination.
        let mut has_deferred = false;
        // TLS is tried again once, where a server refuses clear text.
        let mut may_retry_tls = true;
        loop {
            let ready = match connected {
                Ok(Ok(ready)) => ready,
                Ok(Err(outcome)) | Err(Some(outcome)) => {
                    unfinished.fail(source, &outcome);
                    if !has_deferred {
                        report(source, outcome, begun);
                    }
                    return;
                }
                Err(None) => return unfinished.fail(source, &withdrawn()),
            };
            source.connected(&ready.relay, &ready.tls);
            if let Some(unproven) = &ready.unproven {
                source.connected_to_exchanger(unproven.exchangers());
            }
            let (relay, address, is_opportunistic, is_secured) =
                (ready.relay.clone(), ready.address, ready.is_opportunistic, !ready.tls.is_empty());
            let has_next = hosts.has_next() && !source.should_close();
            let session = Session::new(source, &self.settings, ready, begun.elapsed(), unfinished, has_next)
                .may_retry_tls(
                    may_retry_tls && !address.is_some_and(|server| self.tls_faults.is_confirmed(server)),
                );
            let ended = Box::pin(session.run()).await;
            if let Some(server) = address {
                match &ended.broken {
                    Some(why) if is_opportunistic && is_secured => {
                        connector.tls_broke(&relay, server, TlsFault::Later, &why.text);
                    }
                    // Clear text does not work either: try TLS next.
                    Some(_) if is_opportunistic => self.tls_faults.remove(server),
                    None if ended.wants_tls => {
                        tracing::info!("{relay}: refuses clear text: trying TLS again");
                        may_retry_tls = false;
                        self.tls_faults.retry(server, Instant::now());
                    }
                    _ => {}
                }
                self.learn(&relay, server, ended.usefulness);
            }
            let Some(mut next) = ended.unfinished else { return };
            begun = Instant::now();
            if next.leases.is_empty() {
                (fruitless_count, has_deferred) = (0, true);
                next.turn_to_next_server();
                connected = unless_abandoned(source, hosts.next(connector)).await;
            } else {
                fruitless_count = if next.has_progress { 0 } else { fruitless_count + 1 };
                if fruitless_count > FRUITLESS_MAX {
                    let text = format!("{relay} closes each connection before the content");
                    return next.fail(source, &Outcome::deferred(Enhanced(4, 4, 2), text));
                }
                connected = unless_abandoned(source, hosts.again(connector)).await;
                if matches!(&connected, Ok(Ok(ready)) if ready.address != address) {
                    next.turn_to_next_server();
                }
            }
            unfinished = next;
        }
    }

    fn learn(&self, relay: &str, server: SocketAddr, usefulness: Usefulness) {
        let now = Instant::now();
        match usefulness {
            Usefulness::Useful => self.host_memory.worked(server),
            Usefulness::Unknown => {}
            Usefulness::Useless => self.host_memory.failed(server, now),
            Usefulness::LostAfterContent => self.host_memory.lost_after_content(server, now),
            Usefulness::LostCommands => {
                if self.host_memory.lost_commands(server, now) {
                    tracing::warn!(
                        "{relay} offers PIPELINING and does not answer pipelined commands: commands are sent one by one from now on"
                    );
                }
            }
        }
    }
}

/// Waits, unless the connection is given up first: then returns the deferral, or none if its mail is not wanted any more.
async fn unless_abandoned<J: WorkSource, T>(
    source: &J,
    work: impl Future<Output = T>,
) -> Result<T, Option<Outcome>> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        why = source.abandoned() => Err(why),
    }
}

/// The outcome of an attempt that nobody wants any more. Recipients that were cancelled end as the operator said.
pub(crate) fn withdrawn() -> Outcome {
    Outcome::deferred(Enhanced(4, 3, 0), "the attempt was given up, because the message was held or deleted")
}

fn report<J: WorkSource>(source: &J, outcome: Outcome, begun: Instant) {
    let attempt = Attempt { setup_ms: millis(begun.elapsed()), ..Attempt::default() };
    source.unreachable(outcome, &attempt);
}

/// Completes all jobs with the same outcome.
fn complete_all<J: WorkSource>(source: &J, relay: &str, outcome: &Outcome) {
    let attempt = Attempt { relay: relay.into(), ..Attempt::default() };
    while let Some(lease) = source.next_lease() {
        let results = lease.recipients.iter().map(|index| (*index, outcome.clone())).collect();
        let queued_ms = lease.queued_ms;
        source.complete(lease, results, &Attempt { queued_ms, ..attempt.clone() });
    }
}

/// The outcome of a route that rejects: its reply is `550 5.7.1 text`.
fn rejected(reply: &str) -> Outcome {
    let words = reply.split_once(' ').map_or(reply, |(_, rest)| rest);
    match Enhanced::parse_prefix(words) {
        Some((status @ Enhanced(5, ..), text)) => Outcome::failed(status, text),
        _ => Outcome::failed(Enhanced(5, 7, 1), words),
    }
}
