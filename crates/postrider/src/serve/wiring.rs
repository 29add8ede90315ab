//! The configuration's terms turned into each part's own.

use super::{
    acceptor::CHUNK_BYTES,
    pipeline::{LOOKUP_TIMEOUT, Pipeline},
    snapshot::ConfigSnapshot,
    tls,
};
use crate::{expansion::Expansion, routing::Routes};
use config::{Backend, Durability, EhloKeyword, EightBit, LogFormat, Settings};
use control::Exit;
use delivery::{Courier, TlsClient};
use mail::{Domain, Envelope};
use maps::{Maps, Reference};
use policy::Policy;
use report::{Format, Log, LogSettings, line::Postfix};
use route::{Dns, DnsSettings, Router, RouterSettings};
use smtp::server::{Keyword, Profile};
use spool::{DirSpool, EarlySpool, LogSpool, ShardedSpool, Spool};
use std::{path::PathBuf, sync::Arc, time::Duration};

pub(crate) fn policy(settings: &Settings) -> Policy {
    // Which users of a map exist is known at RCPT, and not asked again at delivery.
    let users = settings.local.users.clone().filter(|_| settings.local.user_maps.is_empty());
    Policy::new(policy::Settings {
        local_domains: settings.local.domains.clone(),
        users,
        relay_networks: settings.relay.networks.clone(),
        separator: settings.addresses.separator.0,
    })
}

/// Opens the maps of the settings, and takes over those of `old` that have not changed.
pub(crate) fn maps(settings: &Settings, old: Option<&Maps>) -> Arc<Maps> {
    let references = settings.map_references().map(|(_, reference)| reference);
    Arc::new(Maps::open(references, &settings.maps, old))
}

/// Checks that files of local domains can be used: without them mail for these domains would go elsewhere.
fn has_local_domains(settings: &Settings, maps: &Maps) -> Result<(), String> {
    let is_used = |reference: &Reference| settings.local.domain_maps.contains(reference);
    for checked in maps.check().into_iter().filter(|checked| is_used(&checked.reference)) {
        checked.state.map_err(|why| format!("read the local domains of {}: {why}", checked.reference))?;
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
        expire: queue.expire,
        delay_warning: queue.delay_warning,
        connections_max: count(delivery.max_connections),
        ..queue::QueueSettings::default()
    };
    if super::unscheduled::is_wanted() { super::unscheduled::without(&scheduled) } else { scheduled }
}

/// The engine's settings.
pub(crate) fn engine_settings(settings: &Settings) -> engine::EngineSettings {
    engine::EngineSettings {
        queue: queue_settings(settings),
        // What of the memory for content accepted messages may keep until their first attempt.
        cache_bytes: settings.inbound.max_content_memory.0 / 4,
        hostname: settings.hostname.as_str().into(),
        retry_at: engine::RetryAt::Recorded,
    }
}

/// Everything a reload replaces at once.
///
/// # Errors
/// In words.
pub(crate) fn current(settings: Settings, old: Option<&Maps>) -> Result<ConfigSnapshot, String> {
    let maps = maps(&settings, old);
    has_local_domains(&settings, &maps)?;
    let routes = Routes::new(&settings, maps.clone());
    let expansion = Expansion::new(&settings, maps.clone());
    let courier = Arc::new(courier(&settings)?);
    let policy = policy(&settings);
    let engine = engine_settings(&settings);
    Ok(ConfigSnapshot {
        settings,
        engine,
        routes,
        courier,
        policy,
        expansion,
        maps,
        pipeline: Pipeline::new(Vec::new()),
    })
}

fn courier(settings: &Settings) -> Result<Courier, String> {
    let lower = |(name, addresses): (&String, &Vec<_>)| {
        let key = Domain::parse(name).map_or_else(|_| name.clone(), |domain| domain.key().into_owned());
        (key, addresses.clone())
    };
    let dns = Dns::new(DnsSettings {
        name_servers: settings.dns.nameservers.iter().map(|server| server.0).collect(),
        timeout: settings.dns.timeout,
        attempts: settings.dns.attempts,
        hosts: settings.hosts.iter().map(lower).collect(),
    })?;
    let router = Router::new(
        dns,
        RouterSettings {
            hostname: settings.hostname.clone(),
            listening: settings.listen.iter().map(|listen| listen.address).collect(),
            mx_port: settings.delivery.mx_port,
        },
    );
    let authorities = settings.tls.ca_file.as_deref().map(config::certificate::authorities);
    let authorities = authorities.transpose().map_err(|e| e.to_string())?;
    let client = TlsClient::new(authorities, tls::versions(settings))?;
    Ok(Courier::new(router, delivery_settings(settings), client))
}

fn delivery_settings(settings: &Settings) -> delivery::DeliverySettings {
    let d = &settings.delivery;
    delivery::DeliverySettings {
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
    }
}

pub(crate) fn inbound_settings(settings: &Settings) -> inbound::Settings {
    let mut profile = Profile::new(settings.hostname.clone());
    if !matches!(settings.delivery.eight_bit, EightBit::Auto | EightBit::Convert) {
        // Binary content could not be passed on to a next hop that does not take it.
        profile = profile.without(Keyword::BinaryMime);
    }
    inbound::Settings {
        limits: Arc::new(settings.limits.clone()),
        profile: Arc::new(profile),
        chunk_bytes: CHUNK_BYTES,
        memory_bytes: memory(settings),
        lookup_timeout: LOOKUP_TIMEOUT,
        sessions_max: settings.inbound.max_sessions,
        sessions_per_client: settings.inbound.max_sessions_per_client,
    }
}

/// The keyword of EHLO's reply.
pub(crate) fn keyword(keyword: EhloKeyword) -> Keyword {
    match keyword {
        EhloKeyword::EightBitMime => Keyword::EightBitMime,
        EhloKeyword::BinaryMime => Keyword::BinaryMime,
        EhloKeyword::Chunking => Keyword::Chunking,
        EhloKeyword::Dsn => Keyword::Dsn,
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
    let mut stores = settings.spools().iter().map(served).collect::<Result<Vec<_>, _>>()?;
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
        Durability::Durable | Durability::AfterChecks => store,
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
            let log = spool::LogSettings {
                segment_bytes: s.segment_size.0,
                max_bytes: s.max_size.0,
                min_free_bytes: s.min_free.0,
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
        min_free_bytes: s.min_free.0,
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

/// # Errors
/// A file that cannot be opened.
pub(crate) fn log(settings: &Settings) -> Result<Log, String> {
    let host = settings.hostname.split('.').next().unwrap_or("localhost").to_owned();
    let postfix = || Format::Postfix(Postfix { host: host.clone(), pid: std::process::id() });
    let l = &settings.log;
    let one = |file: &Option<PathBuf>, format| LogSettings { file: file.clone(), format };
    Log::open(match l.format {
        LogFormat::Json => vec![one(&l.file, Format::Json)],
        LogFormat::Postfix => vec![one(&l.file, postfix())],
        LogFormat::Both => vec![one(&l.file, Format::Json), one(&l.postfix_file, postfix())],
    })
}

/// Old drops are looked for this often.
pub(crate) const DROP_INTERVAL: Duration = Duration::from_secs(10);
