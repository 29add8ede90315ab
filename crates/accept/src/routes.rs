//! Routes and queue groups as the configuration says. The daemon, `sendmail -bv` and listings of a spool ask here.

mod alias_targets;

use alias_targets::AliasTargets;
use config::{
    DeliveryUser, DomainPattern, Durability, MappedHop, QueueGroup, Route, RouteDurability, Settings, Target,
    named_by_map,
};
use mail::{
    AliasTarget, Destination, Envelope, ForwardPath, Mailbox, NextHop, Recipient, ReversePath, TlsMode,
};
use maps::{Accounts, LookupError, Maps};
use queue::GroupId;
use route::{Rule, Table};
use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// The route of mail that the postmaster's mailbox cannot take: the Maildir that the daemon writes itself.
pub const LAST_RESORT: &str = "local.maildir";

/// Returns the target of a recipient whose mail takes [`LAST_RESORT`].
pub fn to_last_resort() -> AliasTarget {
    AliasTarget::Route(LAST_RESORT.into())
}

/// Returns [`LAST_RESORT`] at this host; `None` if the host name is not a domain.
pub fn last_resort(settings: &Settings) -> Option<Mailbox> {
    Mailbox::parse(&format!("postmaster@{}", settings.hostname), true).ok()
}

/// The routes and queue groups of one configuration.
#[derive(Debug)]
pub struct Routes {
    table: Table,
    groups: Vec<QueueGroup>,
    /// Explicit routes, in their order.
    explicit: Vec<Route>,
    maps: Arc<Maps>,
    /// Routes that rules or maps choose, by the names that are stored.
    named: HashMap<Box<str>, Rule>,
    /// Routes whose next hop a map has, by the names that are stored.
    mapped: HashMap<Box<str>, Mapped>,
    targets: AliasTargets,
    /// Mail is offered to its next hop before it is stored, unless its route says otherwise.
    deliver_first: bool,
    /// At least one route may offer mail to its next hop first: without one, envelopes need no look at their
    /// routes.
    may_deliver_first: bool,
    /// The domain of the mailbox that gets mail for the bare postmaster.
    postmaster_key: String,
}

/// What a route says of connections to next hops that a map has.
#[derive(Debug)]
struct Mapped {
    tls: TlsMode,
    route: Option<Arc<str>>,
}

/// The route that has been chosen for a recipient.
#[derive(Debug, Clone)]
pub struct Chosen<'r> {
    /// The route, or the one that the value of its map names.
    pub route: &'r Route,
    /// The name under which the choice is stored, where more than the domain decides.
    pub stored: Option<Box<str>>,
}

/// Between the name of a route and the next hop that its map has, as they are stored.
const VIA: &str = " via ";

impl From<&Settings> for Routes {
    /// Opens the maps of local domains for itself.
    fn from(settings: &Settings) -> Self {
        let of_routes = settings.routes.iter().flat_map(Route::maps).map(|(_, map)| map);
        let files = settings.local.domain_maps.iter().chain(of_routes);
        Self::new(settings, Arc::new(Maps::open(files, &[], None)))
    }
}

impl Routes {
    /// Explicit routes in their order, then local Maildirs, then MX. Files are looked up in `maps` here; servers are asked
    /// when a recipient is taken, and their choice is the recipient's target.
    pub fn new(settings: &Settings, maps: Arc<Maps>) -> Self {
        let of_route = |route: &Route| rule(route, &maps);
        let explicit: Vec<Rule> = settings.routes.iter().filter_map(of_route).collect();
        let named = |name: fn(&Route) -> Option<Box<str>>| {
            settings.routes.iter().filter_map(move |route| Some((name(route)?, of_route(route)?)))
        };
        // Of two routes with the same domains and senders, the first one is used.
        let mut by_name: HashMap<_, _> = HashMap::new();
        for (name, rule) in named(|route| route.label.clone()).chain(named(Route::stored_name)) {
            by_name.entry(name).or_insert(rule);
        }
        let maildir = || Some(NextHop::Maildir(settings.local.maildir.as_str().into()));
        let last_resort =
            Rule { matches: Box::new(|_, _| false), next_hop: maildir(), tls: TlsMode::Off, route: None };
        by_name.entry(LAST_RESORT.into()).or_insert(last_resort);
        let named = by_name;
        let of_mapped = |route: &Route| {
            let own = Mapped { tls: route.tls.mode(), route: route.name().map(Into::into) };
            (!route.next_hop_maps().is_empty()).then_some(())?;
            Some((route.stored_name()?, own))
        };
        let mapped = settings.routes.iter().rev().filter_map(of_mapped).collect();
        let all_maps = maps.clone();
        let domains: HashSet<String> = settings.local.domains.iter().cloned().collect();
        let domain_maps = settings.local.domain_maps.clone();
        let is_local = move |key: &str, _: Option<&ReversePath>| {
            domains.contains(key) || maps.has_now(&domain_maps, key)
        };
        let local = Rule { matches: Box::new(is_local), next_hop: maildir(), tls: TlsMode::Off, route: None };
        let deliver_first = settings.spool.durability == Durability::DeliverFirst;
        let is_first = |route: &Route| route.durability == Some(RouteDurability::DeliverFirst);
        Self {
            deliver_first,
            may_deliver_first: deliver_first || settings.routes.iter().any(is_first),
            table: Table::new(explicit.into_iter().chain([local]), TlsMode::May),
            groups: settings.queue_groups.clone(),
            explicit: settings.routes.clone(),
            maps: all_maps,
            named,
            mapped,
            targets: AliasTargets::from(settings),
            postmaster_key: settings.postmaster.domain().key().into_owned(),
        }
    }

    /// Returns the names of routes that operators gave.
    pub fn names(&self) -> Vec<&str> {
        let labels = self.explicit.iter().filter_map(|route| route.label.as_deref());
        labels.filter(|label| self.named.contains_key(*label)).collect()
    }

    /// Returns where mail for a recipient goes. Without a sender, routes for some senders are left out.
    pub fn recipient(&self, path: &ForwardPath, sender: Option<&ReversePath>) -> Destination {
        self.table.destination(&self.key(path), sender)
    }

    /// Returns where mail for a domain goes, given as [`mail::Domain::key`], but for routes for some senders.
    pub fn domain(&self, key: &str) -> Destination {
        self.table.destination(key, None)
    }

    /// Returns whether mail for other domains than this one, given as [`mail::Domain::key`], goes to a destination as well.
    pub fn is_shared(&self, destination: &Destination, key: &str) -> bool {
        let leads_there = |route: &Route| {
            let Some(rule) = rule(route, &self.maps) else { return false };
            let by_maps = !route.domain_maps.is_empty() && rule.destination("invalid") == *destination;
            by_maps
                || route.domains.iter().any(|pattern| match pattern {
                    DomainPattern::Exact(other) => other != key && rule.destination(other) == *destination,
                    DomainPattern::Any | DomainPattern::Below(_) => {
                        rule.destination("invalid") == *destination
                    }
                })
        };
        self.explicit.iter().any(leads_there)
    }

    /// Returns where the explicit routes of domains below this one lead.
    pub fn below(&self, key: &str) -> Vec<Destination> {
        let below = DomainPattern::Below(key.to_owned());
        let lead = |route: &Route| {
            let rule = rule(route, &self.maps)?;
            let one = |pattern: &DomainPattern| match pattern {
                DomainPattern::Exact(domain) if below.covers(pattern) => Some(rule.destination(domain)),
                DomainPattern::Below(_) if below.covers(pattern) => Some(rule.destination("invalid")),
                _ => None,
            };
            Some(route.domains.iter().filter_map(one).collect::<Vec<_>>())
        };
        self.explicit.iter().filter_map(lead).flatten().collect()
    }

    /// Returns where mail for a program or file of an alias goes, or mail of a recipient for whom a rule has chosen a route.
    pub fn alias_target(&self, target: &AliasTarget, path: &ForwardPath) -> Destination {
        match target {
            AliasTarget::Program(command) => self.targets.program(command),
            AliasTarget::File(file) => self.targets.file(file),
            AliasTarget::Route(name) => self.named_route(name, &self.key(path)),
            AliasTarget::Later => Destination::new(NextHop::Expand, TlsMode::Off),
        }
    }

    /// Returns where mail of a recipient goes, which may have a target of its own.
    pub fn destination(&self, recipient: &Recipient, sender: Option<&ReversePath>) -> Destination {
        match recipient.target() {
            None => self.recipient(&recipient.path, sender),
            Some(target) => self.alias_target(target, &recipient.path),
        }
    }

    /// Returns whether there are routes that maps or whole addresses decide on.
    pub fn ask_maps(&self) -> bool {
        self.explicit.iter().any(|route| route.is_by_recipient() || route.maps().next().is_some())
    }

    /// Returns the first explicit route for a recipient, also by maps that have to be waited for.
    ///
    /// # Errors
    /// A map does not answer.
    pub async fn explicit_by_maps(
        &self,
        path: &ForwardPath,
        sender: Option<&ReversePath>,
        is_meant: impl Fn(&Route) -> bool,
    ) -> Result<Option<Chosen<'_>>, LookupError> {
        let key = self.key(path);
        for route in self.explicit.iter().filter(|route| is_meant(route)) {
            let is_for_domain =
                route.has_domain(&key) || self.maps.first(&route.domain_maps, &key).await?.is_some();
            if !is_for_domain
                || !self.is_for_sender_by_maps(route, sender).await?
                || !self.is_for_recipient(route, path).await?
            {
                continue;
            }
            if route.next_hop_maps().is_empty() {
                return Ok(Some(Chosen { route, stored: route.stored_name() }));
            }
            if let Some(chosen) = self.mapped(route, path).await?.filter(|chosen| is_meant(chosen.route)) {
                return Ok(Some(chosen));
            }
        }
        Ok(None)
    }

    async fn is_for_recipient(&self, route: &Route, path: &ForwardPath) -> Result<bool, LookupError> {
        let recipients = &route.recipients;
        if recipients.match_recipient_by_pattern(path) {
            return Ok(true);
        }
        let Some(mailbox) = path.mailbox() else { return Ok(false) };
        for key in recipients.recipient_keys(mailbox) {
            if self.maps.first(&recipients.maps, &key).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the choice of a route whose next hop is the value of a map; none if the maps have no value for the recipient.
    async fn mapped<'r>(
        &'r self,
        route: &'r Route,
        path: &ForwardPath,
    ) -> Result<Option<Chosen<'r>>, LookupError> {
        let Some(mailbox) = path.mailbox() else { return Ok(None) };
        let named = |name: &str| named_by_map(&self.explicit, name);
        for key in route.recipients.next_hop_keys(mailbox) {
            for reference in route.next_hop_maps() {
                let Some(value) = self.maps.first(std::slice::from_ref(reference), &key).await? else {
                    continue;
                };
                let hop = MappedHop::parse(&value, |name| named(name).is_some());
                return Ok(
                    match hop.map_err(|why| LookupError::new(reference, format!("{why} ({key})")))? {
                        None => None,
                        Some(MappedHop::Route(name)) => {
                            named(&name).map(|route| Chosen { route, stored: Some(name) })
                        }
                        Some(hop) => {
                            let stored = route.stored_name().map(|name| format!("{name}{VIA}{hop}").into());
                            Some(Chosen { route, stored })
                        }
                    },
                );
            }
        }
        Ok(None)
    }

    async fn is_for_sender_by_maps(
        &self,
        route: &Route,
        sender: Option<&ReversePath>,
    ) -> Result<bool, LookupError> {
        let senders = &route.senders;
        let Some(sender) = sender else { return Ok(senders.is_all()) };
        if senders.match_sender_by_pattern(sender) {
            return Ok(true);
        }
        for key in senders.sender_keys(sender) {
            if self.maps.first(&senders.maps, &key).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns where mail for a recipient goes, also by maps that have to be waited for.
    ///
    /// # Errors
    /// A map does not answer.
    pub async fn recipient_by_maps(
        &self,
        path: &ForwardPath,
        sender: Option<&ReversePath>,
    ) -> Result<Destination, LookupError> {
        let name = self.stored_name(path, sender).await?;
        let key = self.key(path);
        Ok(name.map_or_else(|| self.table.destination(&key, sender), |name| self.named_route(&name, &key)))
    }

    /// Returns the name of the route for a recipient if maps decide on that route.
    ///
    /// # Errors
    /// A map does not answer.
    pub async fn stored_name(
        &self,
        path: &ForwardPath,
        sender: Option<&ReversePath>,
    ) -> Result<Option<Box<str>>, LookupError> {
        let chosen = self.explicit_by_maps(path, sender, |route| route.target != Target::Hold).await?;
        Ok(chosen.and_then(|chosen| chosen.stored))
    }

    /// Returns where a named route leads. Mail of a route that the configuration does not have any more takes that of its
    /// domain.
    fn named_route(&self, name: &str, key: &str) -> Destination {
        if let Some(rule) = self.named.get(name) {
            return rule.destination(key);
        }
        let mapped = name.rsplit_once(VIA).and_then(|(route, hop)| {
            let hop = MappedHop::parse(hop, |_| false).ok()??;
            let own = self.mapped.get(route)?;
            Some(Destination { next_hop: hop.next_hop()?, tls: own.tls, route: own.route.clone() })
        });
        mapped.unwrap_or_else(|| self.domain(key))
    }

    /// Returns the first explicit route that matches a recipient.
    pub fn explicit(&self, path: &ForwardPath, sender: Option<&ReversePath>) -> Option<&Route> {
        self.first(path, sender, |_| true)
    }

    fn first(
        &self,
        path: &ForwardPath,
        sender: Option<&ReversePath>,
        is_meant: impl Fn(&Route) -> bool,
    ) -> Option<&Route> {
        let key = self.key(path);
        let matches = |route: &Route| {
            is_for_domain(route, &key, &self.maps) && is_for_sender(route, sender, &self.maps)
        };
        self.explicit.iter().find(|route| is_meant(route) && matches(route))
    }

    /// Returns whether the next hop of a recipient is asked if the recipient exists.
    pub fn is_verified(&self, recipient: &Recipient, sender: Option<&ReversePath>) -> bool {
        self.route_of(&recipient.path, recipient.target(), sender).is_some_and(|route| route.verify)
    }

    /// Returns the users of this machine.
    pub fn accounts(&self) -> &Accounts {
        self.maps.accounts()
    }

    /// Returns whether files are written as the user of this machine that the recipient names.
    pub fn needs_account(
        &self,
        path: &ForwardPath,
        target: Option<&AliasTarget>,
        sender: Option<&ReversePath>,
    ) -> bool {
        let writes_as_recipient =
            |route: &Route| route.deliver_as.as_ref().is_some_and(|own| own.user == DeliveryUser::Recipient);
        self.explicit.iter().any(writes_as_recipient)
            && self.route_of(path, target, sender).is_some_and(writes_as_recipient)
    }

    /// Returns whether a message is offered to its next hops before it is stored: all of its routes say so.
    pub fn delivers_first(&self, envelope: &Envelope) -> bool {
        let is_first = |recipient: &Recipient| {
            let sender = Some(&envelope.reverse_path);
            match self.route_of(&recipient.path, recipient.target(), sender).and_then(|own| own.durability) {
                Some(durability) => durability == RouteDurability::DeliverFirst,
                None => self.deliver_first && recipient.target() != Some(&AliasTarget::Later),
            }
        };
        self.may_deliver_first && envelope.recipients.iter().all(is_first)
    }

    /// Returns the user as whom a route, given by its name in destinations, writes files: a name, or `{local}`.
    pub fn deliver_as(&self, name: &str) -> Option<String> {
        let route = self.explicit.iter().find(|route| route.name().as_deref() == Some(name))?;
        route.deliver_as.as_ref().map(|own| own.user.to_string())
    }

    /// Returns the explicit route that mail of a recipient takes.
    fn route_of(
        &self,
        path: &ForwardPath,
        target: Option<&AliasTarget>,
        sender: Option<&ReversePath>,
    ) -> Option<&Route> {
        match target {
            None => self.first(path, sender, |route| route.target != Target::Hold),
            Some(AliasTarget::Route(name)) => {
                let called = |name: &str| {
                    let is_it = |route: &&Route| {
                        route.label.as_deref() == Some(name)
                            || route.stored_name().is_some_and(|own| *own == *name)
                    };
                    self.explicit.iter().find(is_it)
                };
                called(name).or_else(|| called(name.rsplit_once(VIA)?.0))
            }
            Some(AliasTarget::Program(_) | AliasTarget::File(_) | AliasTarget::Later) => None,
        }
    }

    /// Returns the destination and the queue group of each recipient.
    pub fn envelope(&self, envelope: &Envelope) -> impl Iterator<Item = (Destination, GroupId)> {
        let sender = if self.groups.is_empty() { None } else { sender_key(envelope) };
        let requires_tls = envelope.options.as_ref().is_some_and(|options| options.requiretls);
        envelope.recipients.iter().map(move |recipient| {
            let key = self.key(&recipient.path);
            let group = self.group(&key, sender.as_deref());
            let destination = match recipient.target() {
                None => self.table.destination(&key, Some(&envelope.reverse_path)),
                Some(target) => self.alias_target(target, &recipient.path),
            };
            let destination = if requires_tls { destination.requiring_tls() } else { destination };
            // The configuration has at most 255 groups.
            (destination, GroupId(u8::try_from(group).unwrap_or(0)))
        })
    }

    /// Returns the number of the queue group that decides where a message is kept: the group of the first recipient,
    /// counted from 1; 0 for no group.
    pub fn group_of_message(&self, envelope: &Envelope) -> usize {
        let sender = sender_key(envelope);
        let first = envelope.recipients.first();
        first.map_or(0, |first| self.group(&self.key(&first.path), sender.as_deref()))
    }

    fn group(&self, recipient: &str, sender: Option<&str>) -> usize {
        QueueGroup::find(&self.groups, recipient, sender)
    }

    fn key<'a>(&'a self, path: &'a ForwardPath) -> Cow<'a, str> {
        path.mailbox().map_or(Cow::Borrowed(&self.postmaster_key), |mailbox| mailbox.domain().key())
    }
}

/// Returns whether a route is for a domain, without waiting: maps of servers have no keys then.
fn is_for_domain(route: &Route, key: &str, maps: &Maps) -> bool {
    !route.is_by_recipient() && (route.matches(key) || maps.has_now(&route.domain_maps, key))
}

/// Returns whether the route takes mail from this sender. Without one, only a route for all senders does.
fn is_for_sender(route: &Route, sender: Option<&ReversePath>, maps: &Maps) -> bool {
    let senders = &route.senders;
    senders.is_all()
        || sender.is_some_and(|sender| senders.match_sender(sender, |key| maps.has_now(&senders.maps, key)))
}

fn sender_key(envelope: &Envelope) -> Option<Cow<'_, str>> {
    match &envelope.reverse_path {
        ReversePath::Mailbox(mailbox) => Some(mailbox.domain().key()),
        _ => None,
    }
}

/// Returns the rule of a route; `None` for one that only holds mail, and for one whose next hop a map has.
fn rule(route: &Route, maps: &Arc<Maps>) -> Option<Rule> {
    let (own, maps) = (route.clone(), maps.clone());
    Some(Rule {
        matches: Box::new(move |key, sender| {
            is_for_domain(&own, key, &maps) && is_for_sender(&own, sender, &maps)
        }),
        next_hop: next_hop(&route.target)?,
        tls: route.tls.mode(),
        route: route.name().map(Into::into),
    })
}

/// Returns the next hop of a target; `None` within for the mail exchangers of the recipient's domain, and `None` for a
/// route that only holds mail: released mail takes the next route that matches. Nor does a map say where all mail of a domain goes.
fn next_hop(target: &Target) -> Option<Option<NextHop>> {
    Some(Some(match target {
        Target::Smarthost(host) => NextHop::Smarthost(host.clone().into()),
        Target::Lmtp(server) => NextHop::Lmtp(server.clone().into()),
        Target::Maildir(template) => NextHop::Maildir(template.as_str().into()),
        Target::Mbox(template) => NextHop::Mbox(template.as_str().into()),
        Target::Pipe(program) => NextHop::Pipe(program.clone().into()),
        Target::Reject(reply) => NextHop::Reject(reply.as_str().into()),
        Target::Discard => NextHop::Discard,
        Target::Mx => return Some(None),
        Target::Hold | Target::Mapped(_) => return None,
    }))
}
