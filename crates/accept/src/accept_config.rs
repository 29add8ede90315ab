//! The configuration of a site, and what is made of it to accept mail.

use crate::{
    check::{Check, Rules},
    checks::{
        Addresses, Authenticated, Copies, Filters, Greylisted, KnownToNextHop, MapsChooseRoute,
        MissingFields, RouteDecides, RuleCheck, SenderOfLogin, Signatures,
    },
    expansion::Expansion,
    forward::{self, ForwardFiles},
    logins::{LoginSettings, Store},
    pipeline::Pipeline,
    routes::Routes,
    sources::RuleSources,
    verifier::Verifier,
};
use config::{Settings, Target};
use delivery::Courier;
use engine::ReportSettings;
use mail::AliasTarget;
use maps::{Maps, Purposes};
use policy::{ClientTable, Policy};
use route::dns::Dns;
use std::{net::IpAddr, sync::Arc};

/// The settings, and everything made of them by which mail is accepted.
pub struct AcceptConfig {
    /// What the operator wrote.
    pub settings: config::Settings,
    /// How notifications are written.
    pub reports: ReportSettings,
    /// Where mail for an address goes.
    pub routes: Routes,
    /// Who may relay, and which addresses are local.
    pub policy: Policy,
    /// None: nothing is configured that changes addresses.
    pub expansion: Option<Expansion>,
    /// The tables that settings refer to.
    pub maps: Arc<Maps>,
    /// The checks, and the filters.
    pub pipeline: Pipeline,
    /// What rules ask outside of the configuration.
    pub sources: RuleSources,
    /// None: nobody can log in.
    pub logins: Option<LoginSettings>,
    /// Of the spool's space, what strangers leave to mail of this site.
    pub kept_bytes: u64,
    target_fault: fn(&AliasTarget) -> Option<String>,
}

/// What a site is given by the program around it.
pub struct Surroundings {
    /// The resolver, which deliveries use, too.
    pub dns: Arc<Dns>,
    /// Asks next hops whether recipients exist.
    pub courier: Arc<Courier>,
    /// How notifications are written.
    pub reports: ReportSettings,
    /// Of the spool's space, what strangers leave to mail of this site.
    pub kept_bytes: u64,
    /// Returns why mail for a file or a program that aliases name would wait, if it would. Waits for the disk.
    pub target_fault: fn(&AliasTarget) -> Option<String>,
    /// Reads the files `.forward` of users; none where nobody may.
    pub forwards: Option<Arc<dyn ForwardFiles>>,
}

impl AcceptConfig {
    /// Makes everything of the settings. What outlives a reload is taken over from `old`.
    ///
    /// # Errors
    /// A file or a key that the settings name cannot be used: doing what, to what, and why.
    pub fn new(settings: Settings, old: Option<&Self>, surroundings: Surroundings) -> Result<Self, String> {
        let Surroundings { dns, courier, reports, kept_bytes, target_fault, forwards } = surroundings;
        let maps = maps_with(&settings, old.map(|old| &*old.maps), forwards);
        has_needed_files(&settings, &maps)?;
        let routes = Routes::new(&settings, maps.clone());
        let expansion = Expansion::new(&settings, maps.clone());
        let verify = settings.routes.iter().any(|route| route.verify);
        let verifier = verify.then(|| Arc::new(Verifier::new(courier)));
        let sources = RuleSources::new(&settings, dns, verifier.clone(), old.map(|old| &old.sources));
        let policy = policy(&settings, &maps);
        let logins = LoginSettings::new(&settings, &maps, old.and_then(|old| old.logins.as_ref()))?;
        let mut checks: Vec<Box<dyn Check>> = Vec::new();
        // What rules ask for, the rules, and then the checks that every draft passes.
        checks.extend(Authenticated::new(&settings, sources.dns()).map(boxed));
        checks.extend(RuleCheck::new(&settings).map(boxed));
        checks.push(Box::new(Addresses));
        if logins.as_ref().is_some_and(|logins| !matches!(logins.store, Store::Anybody)) {
            checks.push(Box::new(SenderOfLogin));
        }
        if settings.listen.iter().any(|listen| listen.kind.needs_login()) {
            checks.push(Box::<MissingFields>::default());
        }
        if settings.routes.iter().any(|route| matches!(route.target, Target::Hold | Target::Reject(_))) {
            checks.push(Box::new(RouteDecides));
        }
        if routes.ask_maps() {
            checks.push(Box::new(MapsChooseRoute));
        }
        // Behind what refuses without asking others. What is refused anyway is not greylisted.
        checks.extend(verifier.map(KnownToNextHop::new).map(boxed));
        checks.extend(Greylisted::new(&settings, sources.greylist(), sources.dns()).map(boxed));
        let addresses = &settings.addresses;
        if !addresses.bcc.is_empty()
            || !addresses.sender_bcc.is_empty()
            || !addresses.recipient_bcc.is_empty()
        {
            checks.push(Box::new(Copies));
        }
        checks.extend(Signatures::new(&settings)?.map(boxed));
        let pipeline = Pipeline::new(checks, Filters::new(&settings)?);
        Ok(Self {
            settings,
            reports,
            routes,
            policy,
            expansion,
            maps,
            pipeline,
            sources,
            logins,
            kept_bytes,
            target_fault,
        })
    }

    /// Returns the parts of the configuration that checks and drafts ask.
    pub fn rules(&self) -> Rules<'_> {
        Rules {
            settings: &self.settings,
            policy: &self.policy,
            routes: &self.routes,
            expansion: self.expansion.as_ref(),
            maps: &self.maps,
            sources: &self.sources,
            target_fault: self.target_fault,
        }
    }
}

fn boxed(check: impl Check + 'static) -> Box<dyn Check> {
    Box::new(check)
}

/// Returns who may relay, and which addresses are local, by the settings.
pub fn policy(settings: &Settings, maps: &Arc<Maps>) -> Policy {
    // Which users of a map exist is known at RCPT, and not asked again at delivery.
    let users = settings.local.users.clone().filter(|_| settings.local.user_maps.is_empty());
    Policy::new(policy::Settings {
        local_domains: settings.local.domains.clone(),
        users,
        relay_networks: settings.relay.networks.clone(),
        relay_tables: relay_tables(settings, maps),
        separator: settings.addresses.separator.0,
    })
}

/// Returns the clients of `relay.networks` that maps list; `None` if the setting names no map.
fn relay_tables(settings: &Settings, maps: &Arc<Maps>) -> Option<ClientTable> {
    let references = settings.relay.network_maps.clone();
    let maps = maps.clone();
    let has = move |client: IpAddr| maps.has_now_fresh(&references, &client.to_string());
    (!settings.relay.network_maps.is_empty()).then(|| ClientTable(Arc::new(has)))
}

/// Opens the maps of the settings, and takes over those of `old` that have not changed.
pub fn maps(settings: &Settings, old: Option<&Maps>) -> Arc<Maps> {
    maps_with(settings, old, None)
}

fn maps_with(settings: &Settings, old: Option<&Maps>, forwards: Option<Arc<dyn ForwardFiles>>) -> Arc<Maps> {
    let references = settings.map_references().map(|(_, reference)| reference);
    let purposes = Purposes { relaying: &settings.relay.network_maps, aliases: &settings.addresses.aliases };
    let mut maps = Maps::open_for(references, purposes, &settings.maps, old);
    if settings.addresses.forward {
        forward::add_to(&mut maps, forwards);
    }
    Arc::new(maps)
}

/// Checks that files of local domains and of `relay.networks` can be used: without them mail would go elsewhere, and
/// clients would be refused.
fn has_needed_files(settings: &Settings, maps: &Maps) -> Result<(), String> {
    let used = [("local domains", &settings.local.domain_maps), ("networks", &settings.relay.network_maps)];
    for checked in maps.check() {
        let Some((what, _)) = used.iter().find(|(_, maps)| maps.contains(&checked.reference)) else {
            continue;
        };
        checked.state.map_err(|why| format!("read the {what} of {}: {why}", checked.reference))?;
    }
    Ok(())
}
