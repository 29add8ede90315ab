//! The configuration's terms turned into each part's own.

use super::{
    acceptor::CHUNK_BYTES,
    logins::{DovecotAuth, LoginSettings, MapUsers, Store, TokenVerifier, UsersFile},
    pipeline::{
        Authenticated, Check, Copies, Filters, KnownToNextHop, LOOKUP_TIMEOUT, MapsChooseRoute,
        MissingFields, Pipeline, RouteDecides, RuleCheck, RuleSources, SenderOfLogin, Signatures,
    },
    site::Site,
    snapshot::ConfigSnapshot,
    terminal::Terminal,
    tls::ServerTls,
    verifier::Verifier,
};
use crate::{
    expansion::Expansion,
    open_files::{self, Connections},
    routing::Routes,
    spool_room::SpoolRoom,
    unnamed_spools,
};
use auth::{ClientCredentials, Mechanism};
use config::{
    Backend, ClientCertificates, Durability, EhloKeyword, EightBit, ForClients, LogFormat, Settings, Target,
};
use control::Exit;
use delivery::{Courier, RouteSettings, TlsClient, helper::Helper};
use dns::{Dns, DnsSettings};
use mail::{Domain, Envelope};
use maps::{Maps, Purposes};
use policy::{ClientTable, Policy};
use report::{
    Apart, EventStream, STANDARD_ERROR, Sink, UnixMicros,
    log::{Format, LogFile, Postfix, Syslog},
};
use route::{Router, RouterSettings};
use smtp::server::{Auth, Extensions, Keyword, MechanismNeed, OfferedMechanism, Profile};
use spool::{DirSpool, EarlySpool, LogSpool, ShardedSpool, Spool};
use std::{collections::HashMap, io::IsTerminal as _, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

pub(crate) fn policy(settings: &Settings, maps: &Arc<Maps>) -> Policy {
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

/// The files of `relay.networks`.
fn relay_tables(settings: &Settings, maps: &Arc<Maps>) -> Option<ClientTable> {
    let references = settings.relay.network_maps.clone();
    let maps = maps.clone();
    let has = move |client: IpAddr| maps.has_now_fresh(&references, &client.to_string());
    (!settings.relay.network_maps.is_empty()).then(|| ClientTable(Arc::new(has)))
}

/// Opens the maps of the settings, and takes over those of `old` that have not changed.
pub(crate) fn maps(settings: &Settings, old: Option<&Maps>) -> Arc<Maps> {
    let references = settings.map_references().map(|(_, reference)| reference);
    let purposes = Purposes { relaying: &settings.relay.network_maps, aliases: &settings.addresses.aliases };
    Arc::new(Maps::open_for(references, purposes, &settings.maps, old))
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

pub(crate) fn queue_settings(settings: &Settings) -> queue::QueueSettings {
    let (queue, delivery) = (&settings.queue, &settings.delivery);
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let other = queue::Group {
        name: "default".to_owned(),
        order: queue.order,
        priority: 100,
        connections_max: u32::MAX,
        retry_min: queue.retry_min,
        retry_max: queue.retry_max,
        initial_concurrency: count(queue.initial_concurrency),
        concurrency_limit: count(delivery.connections_per_destination),
    };
    let group = |group: &config::QueueGroup| queue::Group {
        name: group.name.clone(),
        order: group.order.unwrap_or(other.order),
        priority: i32::try_from(group.priority).unwrap_or(i32::MAX),
        connections_max: group.max_connections.map_or(u32::MAX, count),
        retry_min: group.retry_min.unwrap_or(other.retry_min),
        retry_max: group.retry_max.unwrap_or(other.retry_max),
        initial_concurrency: group.initial_concurrency.map_or(other.initial_concurrency, count),
        concurrency_limit: group.connections_per_destination.map_or(other.concurrency_limit, count),
    };
    let scheduled = queue::QueueSettings {
        groups: std::iter::once(other.clone()).chain(settings.queue_groups.iter().map(group)).collect(),
        routes: schedules(settings),
        expire: queue.expire,
        delay_warning: queue.delay_warning,
        connections_max: count(Connections::possible(settings).outbound),
        ..queue::QueueSettings::default()
    };
    if super::unscheduled::is_wanted() { super::unscheduled::without(&scheduled) } else { scheduled }
}

/// Returns the schedules of the routes that have one, by the names of the routes.
fn schedules(settings: &Settings) -> HashMap<Arc<str>, queue::RouteSchedule> {
    let own = settings.routes.iter().filter(|route| route.schedule != queue::RouteSchedule::default());
    own.filter_map(|route| Some((route.name()?.into(), route.schedule.clone()))).collect()
}

/// The engine's settings.
///
/// # Errors
/// In words.
pub(crate) fn engine_settings(settings: &Settings) -> Result<engine::EngineSettings, String> {
    let notifications = &settings.notifications;
    let texts = notifications.texts().map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        faults.join("; ")
    })?;
    let reports = engine::ReportSettings {
        texts: Arc::new(texts),
        postmaster: settings.postmaster.clone(),
        double_bounces: notifications.double_bounces,
        max_double_bounces_per_hour: notifications.max_double_bounces_per_hour,
    };
    Ok(engine::EngineSettings {
        queue: queue_settings(settings),
        // What of the memory for content accepted messages may keep until their first attempt.
        cache_bytes: settings.inbound.max_content_memory.0 / 4,
        hostname: settings.hostname.as_str().into(),
        retry_at: engine::RetryAt::Recorded,
        reports,
        soft_bounce: settings.queue.soft_bounce,
    })
}

/// Everything a reload replaces at once.
///
/// # Errors
/// In words.
pub(crate) fn current(
    settings: Settings,
    old: Option<&ConfigSnapshot>,
    helper: Option<Arc<Helper>>,
) -> Result<ConfigSnapshot, String> {
    let maps = maps(&settings, old.map(|old| &*old.maps));
    has_needed_files(&settings, &maps)?;
    let routes = Routes::new(&settings, maps.clone());
    let expansion = Expansion::new(&settings, maps.clone());
    let dns = Arc::new(dns(&settings)?);
    let sources = RuleSources::new(&settings, dns.clone(), old.map(|old| &old.sources));
    let courier = Arc::new(courier(&settings, dns)?.with_helper(helper));
    let policy = policy(&settings, &maps);
    let engine = engine_settings(&settings)?;
    let logins = logins(&settings, &maps, old.and_then(|old| old.logins.as_ref()))?;
    let mut checks: Vec<Box<dyn Check>> = Vec::new();
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
    // The last at RCPT: what refuses without asking others comes first.
    let verify = settings.routes.iter().any(|route| route.verify);
    let verifier = verify.then(|| Arc::new(Verifier::new(courier.clone())));
    let sources = sources.with_verifier(verifier.clone());
    checks.extend(verifier.map(|verifier| Box::new(KnownToNextHop::new(verifier)) as Box<dyn Check>));
    let addresses = &settings.addresses;
    if !addresses.bcc.is_empty() || !addresses.sender_bcc.is_empty() || !addresses.recipient_bcc.is_empty() {
        checks.push(Box::new(Copies));
    }
    checks.extend(Signatures::new(&settings)?.map(|signatures| Box::new(signatures) as Box<dyn Check>));
    let authenticated = Authenticated::new(&settings, sources.dns());
    let pipeline = Pipeline::new(authenticated, RuleCheck::new(&settings), checks, Filters::new(&settings));
    let site = Site {
        kept_bytes: super::resources::kept_bytes(&settings.spool),
        settings,
        reports: engine.reports.clone(),
        routes,
        policy,
        expansion,
        maps,
        pipeline,
        sources,
        logins,
    };
    Ok(ConfigSnapshot { site: Arc::new(site), engine, courier })
}

/// Returns the users of the settings, and the mechanisms that they can use; `None` if nobody can log in.
fn logins(
    settings: &Settings,
    maps: &Arc<Maps>,
    old: Option<&LoginSettings>,
) -> Result<Option<LoginSettings>, String> {
    let has_certificates =
        settings.listen.iter().any(|listen| listen.client_certificates != ClientCertificates::Off);
    let tokens = TokenVerifier::new(settings)?;
    let (store, mut usual) = match &settings.auth.users {
        None if !has_certificates && tokens.is_none() => return Ok(None),
        None => (Store::None, Vec::new()),
        Some(config::UserStore::Passwd(path)) => {
            let users = UsersFile::open(path).map_err(|e| e.to_string())?;
            let usual = mechanisms_of(&users);
            (Store::File(users), usual)
        }
        Some(config::UserStore::Dovecot(path)) => {
            let former = old.and_then(|old| match &old.store {
                Store::Dovecot(former) => Some(former),
                _ => None,
            });
            let dovecot = DovecotAuth::open(path, former);
            let usual = dovecot.mechanisms().to_vec();
            (Store::Dovecot(dovecot), usual)
        }
        Some(config::UserStore::Anybody) => (Store::Anybody, vec!["PLAIN".into(), "LOGIN".into()]),
        // A client that sees SCRAM chooses it, and fails where the map has another hash for its user.
        Some(config::UserStore::Map(map)) => {
            let users = MapUsers::new(maps.clone(), map.clone());
            (Store::Map(users), vec!["PLAIN".into(), "LOGIN".into()])
        }
    };
    let own = [
        (Mechanism::External, has_certificates),
        (Mechanism::OauthBearer, tokens.is_some()),
        (Mechanism::Xoauth2, tokens.is_some()),
    ];
    let own = own.into_iter().filter(|(_, is_usual)| *is_usual).map(|(mechanism, _)| mechanism.as_str());
    // Those of Dovecot keep its order.
    let own: Vec<Box<str>> =
        own.filter(|name| !usual.iter().any(|known| **known == **name)).map(Into::into).collect();
    usual.splice(0..0, own);
    if !matches!(store, Store::Dovecot(_)) {
        let strength = |name: &str| Mechanism::all().position(|one| one.as_str() == name);
        usual.sort_by_key(|name| strength(name).unwrap_or(usize::MAX));
    }
    let names = match &settings.auth.mechanisms {
        Some(words) => words.iter().map(|word| word.mechanism().as_str().into()).collect(),
        None => usual,
    };
    let mechanisms = names.into_iter().map(offered_mechanism).collect();
    let failures_max = settings.auth.max_failures;
    Ok(Some(LoginSettings { mechanisms, store, tokens, failures_max }))
}

/// Returns the names of the mechanisms that listeners with this configuration offer.
///
/// # Errors
/// The users cannot be read.
pub(crate) fn offered_mechanisms(settings: &Settings) -> Result<Vec<Box<str>>, String> {
    let logins = logins(settings, &maps(settings, None), None)?;
    Ok(logins.into_iter().flat_map(|logins| logins.mechanisms).map(|mechanism| mechanism.name).collect())
}

/// Returns the mechanisms that every user of a file can use, the strongest first.
fn mechanisms_of(users: &UsersFile) -> Vec<Box<str>> {
    let known = users.users();
    let is_usable = |mechanism: &Mechanism| match mechanism.scram_hash() {
        Some(hash) => known.all_have_scram(hash),
        None => matches!(mechanism, Mechanism::Plain | Mechanism::Login),
    };
    Mechanism::all().filter(is_usable).map(|mechanism| mechanism.as_str().into()).collect()
}

fn offered_mechanism(name: Box<str>) -> OfferedMechanism {
    let needs = match &*name {
        "EXTERNAL" => MechanismNeed::Certificate,
        name if name.ends_with("-PLUS") => MechanismNeed::Tls,
        _ => MechanismNeed::Nothing,
    };
    OfferedMechanism { name, needs }
}

/// AUTH as listeners offer it.
fn offered(logins: Option<&LoginSettings>, settings: &Settings) -> Auth {
    let mechanisms = logins.map_or(Vec::new(), |logins| logins.mechanisms.clone());
    Auth { mechanisms, in_clear_text: settings.auth.allow_clear_text }
}

/// The resolver of the settings.
pub(crate) fn dns(settings: &Settings) -> Result<Dns, String> {
    let lower = |(name, addresses): (&String, &Vec<_>)| {
        let key = Domain::parse(name).map_or_else(|_| name.clone(), |domain| domain.key().into_owned());
        (key, addresses.clone())
    };
    let [questions_max, client_questions_max] = open_files::dns_questions();
    Dns::new(DnsSettings {
        name_servers: settings.dns.nameservers.iter().map(|server| server.0).collect(),
        timeout: settings.dns.timeout,
        attempts: settings.dns.attempts,
        hosts: settings.hosts.iter().map(lower).collect(),
        questions_max,
        client_questions_max,
    })
}

fn courier(settings: &Settings, dns: Arc<Dns>) -> Result<Courier, String> {
    let router = Router::new(
        dns,
        RouterSettings {
            hostname: settings.hostname.clone(),
            listening: settings.listen.iter().filter_map(|listen| listen.address.ip()).collect(),
            mx_port: settings.delivery.mx_port,
        },
    );
    let authorities = settings.tls.ca_file.as_deref().map(config::certificate::authorities);
    let authorities = authorities.transpose().map_err(|e| e.to_string())?;
    let client = TlsClient::new(authorities, config::certificate::versions(settings))?;
    Ok(Courier::new(router, delivery_settings(settings)?, client))
}

/// Returns the settings of the routes whose connections differ from others, by their names.
fn route_settings(settings: &Settings) -> Result<HashMap<Arc<str>, RouteSettings>, String> {
    let named = settings.routes.iter().filter_map(|route| Some((route, route.name()?)));
    let of = |(route, name): (&config::Route, String)| {
        let login = |login: &config::RouteLogin| {
            Ok::<_, String>(ClientCredentials {
                user: login.user.as_str().into(),
                secret: login.secret.secret()?,
            })
        };
        let login = route.login.as_ref().map(login).transpose()?;
        let (source_address, fallback) = (route.source_address, route.fallback.clone());
        let hello = route.ehlo_name.as_ref().map(|name| name.0.as_str().into());
        let is_implicit = route.tls == config::RouteTls::Implicit;
        let has_user = route.deliver_as.is_some();
        Ok((name.into(), RouteSettings { login, source_address, hello, is_implicit, fallback, has_user }))
    };
    named.map(of).collect()
}

fn delivery_settings(settings: &Settings) -> Result<delivery::DeliverySettings, String> {
    let d = &settings.delivery;
    Ok(delivery::DeliverySettings {
        routes: route_settings(settings)?,
        hello: d.ehlo_name.0.clone().into(),
        follow_symlinks: settings.local.follow_symlinks,
        separator: settings.addresses.separator.0,
        source_address: d.source_address,
        messages_per_connection: d.messages_per_connection,
        recipients_per_transaction: d.recipients_per_transaction,
        pipeline_depth: d.pipeline_depth,
        eight_bit: d.eight_bit,
        idle_timeout: d.idle_timeout,
        connect_timeout: d.connect_timeout,
        greeting_timeout: d.greeting_timeout,
        command_timeout: d.command_timeout,
        data_timeout: d.data_timeout,
        data_done_timeout: d.data_done_timeout,
    })
}

pub(crate) fn inbound_settings(
    settings: &Settings,
    logins: Option<&LoginSettings>,
    server_tls: &ServerTls,
) -> inbound::Settings {
    let mut profile = Profile::new(settings.hostname.clone());
    if !matches!(settings.delivery.eight_bit, EightBit::Auto | EightBit::Convert) {
        // Binary content could not be passed on to a next hop that does not take it.
        profile = profile.without(Keyword::BinaryMime);
    }
    let profile = extended(profile, &settings.extensions);
    inbound::Settings {
        limits: Arc::new(settings.limits.clone()),
        profile: Arc::new(profile),
        auth: Arc::new(offered(logins, settings)),
        end_points: server_tls.end_points.clone(),
        certificates: Some(server_tls.certificates.clone()),
        chunk_bytes: CHUNK_BYTES,
        memory_bytes: memory(settings),
        lookup_timeout: LOOKUP_TIMEOUT,
        sessions_max: Connections::possible(settings).inbound,
        sessions_per_client: settings.inbound.max_sessions_per_client,
    }
}

/// The profile with the extensions that a site chooses.
fn extended(mut profile: Profile, chosen: &config::Extensions) -> Profile {
    let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    profile.extensions = Extensions {
        hold_max_seconds: seconds(chosen.max_future_release),
        deliver_by_min_seconds: seconds(chosen.min_deliver_by),
        priority_policy: chosen.priority_policy.as_ref().map(|name| name.0.as_str().into()),
    };
    let commands = [(Keyword::Etrn, chosen.etrn), (Keyword::Vrfy, chosen.vrfy), (Keyword::Expn, chosen.expn)];
    let allowed = commands.into_iter().filter(|(_, clients)| *clients != ForClients::Nobody);
    let keywords = allowed.map(|(keyword, _)| keyword);
    keywords.fold(profile.with(Keyword::DeliverBy).with(Keyword::MtPriority), Profile::with)
}

/// The keyword of EHLO's reply.
pub(crate) fn keyword(keyword: EhloKeyword) -> Keyword {
    match keyword {
        EhloKeyword::EightBitMime => Keyword::EightBitMime,
        EhloKeyword::BinaryMime => Keyword::BinaryMime,
        EhloKeyword::Chunking => Keyword::Chunking,
        EhloKeyword::DeliverBy => Keyword::DeliverBy,
        EhloKeyword::Dsn => Keyword::Dsn,
        EhloKeyword::FutureRelease => Keyword::FutureRelease,
        EhloKeyword::Limits => Keyword::Limits,
        EhloKeyword::MtPriority => Keyword::MtPriority,
        EhloKeyword::RequireTls => Keyword::RequireTls,
        EhloKeyword::Pipelining => Keyword::Pipelining,
        EhloKeyword::Size => Keyword::Size,
        EhloKeyword::SmtpUtf8 => Keyword::SmtpUtf8,
    }
}

fn memory(settings: &Settings) -> usize {
    usize::try_from(settings.inbound.max_content_memory.0).unwrap_or(usize::MAX)
}

/// Every spool as one, still to be recovered.
///
/// # Errors
/// In words.
pub(crate) fn spool(settings: &Settings) -> Result<Box<dyn Spool>, NotOpened> {
    let opened = settings.spools().iter().map(served).collect::<Result<Vec<_>, _>>();
    // Another start would not help: the configuration names the wrong backend.
    let is_of_other = || !unnamed_spools::of_other_backend(settings).is_empty();
    let mut stores = opened.map_err(|why| match why.exit {
        Exit::Unavailable if is_of_other() => NotOpened { exit: Exit::Config, ..why },
        _ => why,
    })?;
    if stores.len() == 1 {
        return Ok(stores.remove(0));
    }
    let names = settings.spools().iter().map(|spool| spool.path.display().to_string()).collect();
    let (settings, routes) = (settings.clone(), Routes::from(settings));
    let choose = move |envelope: &Envelope| settings.spool_of(routes.group_of_message(envelope));
    Ok(Box::new(ShardedSpool::new(stores, Box::new(choose)).with_names(names)))
}

/// Opens a spool for the daemon, which may reply before a message is durable.
fn served(s: &config::Spool) -> Result<Box<dyn Spool>, NotOpened> {
    let store = store(s)?;
    Ok(match s.durability {
        Durability::Durable | Durability::AfterChecks | Durability::DeliverFirst => store,
        Durability::None => Box::new(EarlySpool::new(store)),
    })
}

/// Opens a spool, before recovery.
///
/// # Errors
/// In words.
pub(crate) fn store(s: &config::Spool) -> Result<Box<dyn Spool>, NotOpened> {
    match s.backend {
        Backend::Null => Ok(Box::new(spool::NullSpool::default())),
        Backend::QueueDirs => Ok(Box::new(queue_directories(s)?)),
        Backend::Log => {
            let SpoolRoom { segment_bytes, min_free_bytes } = SpoolRoom::of(s);
            let log = spool::LogSettings {
                segment_bytes,
                max_bytes: s.max_size.0,
                min_free_bytes,
                ..spool::LogSettings::default()
            };
            Ok(Box::new(LogSpool::open(&s.path, log).map_err(|e| not_opened(s, &e))?))
        }
    }
}

/// Opens the spool of a section that must be queue directories.
///
/// # Errors
/// In words.
pub(crate) fn queue_directories(s: &config::Spool) -> Result<DirSpool, NotOpened> {
    let layout = spool::Layout { directories: s.directories, hashed: s.hash_depth as u8 };
    let directories = spool::DirSettings {
        max_bytes: s.max_size.0,
        min_free_bytes: SpoolRoom::of(s).min_free_bytes,
        placement: s.placement,
        content_path: s.content_path.clone(),
        ..spool::DirSettings::default()
    };
    DirSpool::open(&s.path, layout, directories).map_err(|e| not_opened(s, &e))
}

/// A spool that cannot be opened or recovered.
#[derive(Debug)]
pub(crate) struct NotOpened {
    /// Doing what: why.
    pub(crate) text: String,
    /// The exit code of a daemon that cannot start for this reason.
    pub(crate) exit: Exit,
}

impl NotOpened {
    /// A disk that fails is another matter than a spool that this program cannot use.
    pub(crate) fn new(doing: &str, failure: &spool::SpoolFailure) -> Self {
        let exit = match failure {
            spool::SpoolFailure::Io(_) => Exit::IoErr,
            _ => Exit::Unavailable,
        };
        Self { text: format!("{doing}: {failure}"), exit }
    }
}

impl From<NotOpened> for String {
    fn from(why: NotOpened) -> Self {
        why.text
    }
}

fn not_opened(spool: &config::Spool, failure: &spool::SpoolFailure) -> NotOpened {
    NotOpened::new(&format!("open the spool {}", spool.path.display()), failure)
}

/// Reads the content of all spools without opening them.
///
/// # Errors
/// As for [`spool::inspect`].
pub(crate) fn inspect(
    settings: &Settings,
    found: &mut dyn FnMut(spool::Recovered),
) -> Result<spool::RecoveryReport, spool::SpoolFailure> {
    let mut report = spool::RecoveryReport::default();
    for spool in settings.spools() {
        report.add(spool::inspect(&spool.path, found)?);
    }
    Ok(report)
}

/// Returns the sink of the history; none if it is switched off.
///
/// # Errors
/// A folder that cannot be made or listed.
pub(crate) fn history(settings: &Settings) -> Result<Vec<Box<dyn Sink>>, String> {
    let s = &settings.history;
    if !s.enabled {
        return Ok(Vec::new());
    }
    let own = history::Settings { keep: s.keep, max_bytes: s.max_size.0, addresses: s.addresses };
    let new_key = super::random::<32>;
    let store = history::DiskFolder::make(&s.path)
        .and_then(|folder| history::Store::open(folder, own, Box::new(UnixMicros::now), Box::new(new_key)))
        .map_err(|e| format!("open the history {}: {e}", s.path.display()))?;
    Ok(vec![Box::new(store)])
}

/// # Errors
/// A file that cannot be opened.
pub(crate) fn log(settings: &Settings, more: Vec<Box<dyn Sink>>) -> Result<EventStream, String> {
    let host = settings.hostname.split('.').next().unwrap_or("localhost").to_owned();
    let postfix = || Format::Postfix(Postfix { host: host.clone(), pid: std::process::id() });
    let l = &settings.log;
    let files = match l.format {
        LogFormat::Json => vec![(&l.file, Format::Json)],
        LogFormat::Postfix => vec![(&l.file, postfix())],
        LogFormat::Both => vec![(&l.file, Format::Json), (&l.postfix_file, postfix())],
        LogFormat::Syslog => Vec::new(),
    };
    let mut sinks = more;
    for (path, format) in files {
        // A program reads JSON, and a person at a terminal does not.
        if path.is_none() && std::io::stdout().is_terminal() {
            sinks.push(apart(STANDARD_ERROR.to_owned(), Box::new(Terminal))?);
            continue;
        }
        let file = Box::new(LogFile::open(path.clone(), format)?);
        let name = path
            .as_ref()
            .map_or_else(|| STANDARD_ERROR.to_owned(), |path| format!("the delivery log {}", path.display()));
        sinks.push(if LogFile::may_block(path.as_deref()) { apart(name, file)? } else { file });
    }
    let default = (l.format == LogFormat::Syslog).then(|| PathBuf::from("/dev/log"));
    if let Some(path) = l.syslog.clone().or(default) {
        let name = format!("the system log {}", path.display());
        sinks.push(apart(name, Box::new(Syslog::open(path, std::process::id())))?);
    }
    EventStream::start(sinks).map_err(|e| format!("start the thread of the events: {e}"))
}

/// Gives a sink that may block a thread of its own. `name`: what somebody should read.
fn apart(name: String, sink: Box<dyn Sink>) -> Result<Box<dyn Sink>, String> {
    match Apart::start(name, sink) {
        Ok(apart) => Ok(Box::new(apart)),
        Err(e) => Err(format!("start the thread of a log: {e}")),
    }
}

/// Old drops are looked for this often.
pub(crate) const DROP_INTERVAL: Duration = Duration::from_secs(10);
