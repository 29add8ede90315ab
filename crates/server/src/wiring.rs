//! The configuration's terms turned into each part's own.

use super::{snapshot::ConfigSnapshot, terminal::Terminal, tls::ServerTls};
use crate::{
    access,
    open_files::{self, Connections},
    spool_room::SpoolRoom,
    unnamed_spools,
};
use accept::{
    AcceptConfig, CHUNK_BYTES, ForwardFiles, Surroundings, check::LOOKUP_TIMEOUT, logins::LoginSettings,
    routes::Routes,
};
use auth::ClientCredentials;
use config::{Backend, Durability, EhloKeyword, EightBit, ForClients, LogFormat, Settings};
use control::Exit;
use delivery::{Courier, RouteSettings, TlsClient, helper::Helper};
use mail::{Domain, Envelope};
use report::{
    Apart, EventStream, STANDARD_ERROR, Sink, UnixMicros,
    log::{Format, LogFile, Postfix, Syslog},
};
use route::dns::{Dns, DnsSettings};
use route::{Router, RouterSettings};
use rustls::sign::CertifiedKey;
use smtp::server::{Auth, Extensions, Keyword, Profile};
use spool::{DirSpool, EarlySpool, LogSpool, ShardedSpool, Spool};
use std::{collections::HashMap, io::IsTerminal as _, path::PathBuf, sync::Arc, time::Duration};

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
/// Notification templates that are missing or wrong: all faults of all files, separated by `; `.
pub fn engine_settings(settings: &Settings) -> Result<engine::EngineSettings, String> {
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
/// The first part that cannot be set up, such as the resolver, a certificate, a template or a map; one line for the
/// log.
pub fn current(
    settings: Settings,
    old: Option<&ConfigSnapshot>,
    helper: Option<Arc<Helper>>,
) -> Result<ConfigSnapshot, String> {
    let dns = Arc::new(dns(&settings)?);
    let forwards =
        helper.clone().map(|helper| Arc::new(super::helper::Forwards(helper)) as Arc<dyn ForwardFiles>);
    let courier = Arc::new(courier(&settings, dns.clone(), old)?.with_helper(helper));
    let engine = engine_settings(&settings)?;
    let surroundings = Surroundings {
        dns,
        courier: courier.clone(),
        reports: engine.reports.clone(),
        kept_bytes: super::resources::kept_bytes(&settings.spool),
        target_fault: access::target_fault,
        forwards,
    };
    let accept = AcceptConfig::new(settings, old.map(|old| &*old.accept), surroundings)?;
    Ok(ConfigSnapshot { accept: Arc::new(accept), engine, courier })
}

/// Returns what AUTH offers; nothing without logins.
fn offered(logins: Option<&LoginSettings>, settings: &Settings) -> Auth {
    let mechanisms = logins.map_or(Vec::new(), |logins| logins.mechanisms.clone());
    Auth { mechanisms, in_clear_text: settings.auth.allow_clear_text }
}

/// Makes the resolver that the settings describe.
pub fn dns(settings: &Settings) -> Result<Dns, String> {
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

fn courier(settings: &Settings, dns: Arc<Dns>, old: Option<&ConfigSnapshot>) -> Result<Courier, String> {
    let router = Router::new(
        dns,
        RouterSettings {
            hostname: settings.hostname.clone(),
            listening: settings.listen.iter().filter_map(|listen| listen.address.ip()).collect(),
            mx_port: settings.delivery.mx_port,
        },
    );
    let roots = config::certificate::roots(settings.tls.ca_file.as_deref())?;
    let shown = shown_certificate(settings, old)?;
    let client = TlsClient::new(roots, config::certificate::versions(settings), shown)?;
    Ok(Courier::new(router, delivery_settings(settings)?, client))
}

/// Reads the certificate that next hops are shown. One whose key only root can read stays as it was at the start.
fn shown_certificate(
    settings: &Settings,
    old: Option<&ConfigSnapshot>,
) -> Result<Option<Arc<CertifiedKey>>, String> {
    let (Some(certificate), Some(key)) = (&settings.tls.next_hop_certificate, &settings.tls.next_hop_key)
    else {
        return Ok(None);
    };
    match config::certificate::read_pair(certificate, key) {
        Ok(pair) => Ok(Some(Arc::new(pair))),
        Err(why) => match old {
            Some(old) if old.settings.tls == settings.tls => {
                tracing::warn!("the certificate for next hops stays as it was until a restart: {why}");
                Ok(old.courier.tls().shown())
            }
            _ => Err(why.to_string()),
        },
    }
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
        reuse_timeout: d.reuse_timeout,
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

/// Translates a keyword of the configuration.
pub fn keyword(keyword: EhloKeyword) -> Keyword {
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
/// The spool that cannot be opened, and the reason. The exit code is [`Exit::Config`] if a spool has the files of
/// another backend: restarting the daemon would not help.
pub fn spool(settings: &Settings) -> Result<Box<dyn Spool>, NotOpened> {
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
/// The path of the spool and the reason, with [`Exit::IoErr`] if the disk failed and [`Exit::Unavailable`] otherwise.
pub fn store(s: &config::Spool) -> Result<Box<dyn Spool>, NotOpened> {
    match s.backend {
        Backend::Null => Ok(Box::new(spool::NullSpool::default())),
        Backend::QueueDirs => Ok(Box::new(queue_directories(s)?)),
        Backend::Log => {
            let SpoolRoom { segment_bytes, min_free_bytes } = SpoolRoom::of(s);
            let log = spool::LogSettings {
                segment_bytes,
                max_bytes: s.max_size.0,
                min_free_bytes,
                commit_window: super::commit_window::wanted(),
                ..spool::LogSettings::default()
            };
            Ok(Box::new(LogSpool::open(&s.path, log).map_err(|e| not_opened(s, &e))?))
        }
    }
}

/// Opens the spool of a section that must be queue directories.
///
/// # Errors
/// As for [`store`].
pub fn queue_directories(s: &config::Spool) -> Result<DirSpool, NotOpened> {
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
pub struct NotOpened {
    /// Doing what: why.
    pub text: String,
    /// The exit code of a daemon that cannot start for this reason.
    pub exit: Exit,
}

impl NotOpened {
    /// A disk that fails is another matter than a spool that this program cannot use.
    pub fn new(doing: &str, failure: &spool::SpoolFailure) -> Self {
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
pub fn inspect(
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
pub fn history(settings: &Settings) -> Result<Vec<Box<dyn Sink>>, String> {
    let s = &settings.history;
    if !s.enabled {
        return Ok(Vec::new());
    }
    let own = history::Settings { keep: s.keep, max_bytes: s.max_size.0, addresses: s.addresses };
    let new_key = accept::logins::random::<32>;
    let store = history::DiskFolder::make(&s.path)
        .and_then(|folder| history::Store::open(folder, own, Box::new(UnixMicros::now), Box::new(new_key)))
        .map_err(|e| format!("open the history {}: {e}", s.path.display()))?;
    Ok(vec![Box::new(store)])
}

/// # Errors
/// A file that cannot be opened.
pub fn log(settings: &Settings, more: Vec<Box<dyn Sink>>) -> Result<EventStream, String> {
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
pub const DROP_INTERVAL: Duration = Duration::from_secs(10);
