//! The resolver.

use super::{
    questions::{QuestionCount, Questions},
    source::{ResolvConf, Source},
};
use hickory_resolver::{
    ConnectionProvider, Resolver, TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts},
    net::{DnsError, NetError, NoRecords, runtime::TokioRuntimeProvider},
    proto::{
        op::ResponseCode,
        rr::{Name, RData, RecordType, rdata::CNAME},
    },
    system_conf::parse_resolv_conf,
};
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

/// Mail exchangers, and addresses of one, that are looked at; more is an attack or an error.
const RECORDS_MAX: usize = 100;

/// Aliases that are followed from one name to the next. The resolver follows as many by itself.
const ALIASES_MAX: usize = 8;

/// How questions are put to name servers.
#[derive(Debug, Clone)]
pub struct DnsSettings {
    /// The servers; if empty, those of /etc/resolv.conf, also after it has changed.
    pub name_servers: Vec<SocketAddr>,
    /// For one answer; then the question is asked again.
    pub timeout: Duration,
    /// The number of times that a question is asked.
    pub attempts: usize,
    /// Names that are not looked up, in lower case, and their addresses.
    pub hosts: HashMap<String, Vec<IpAddr>>,
    /// The most questions at a time on the way to destinations. Each takes up to two open files.
    pub questions_max: usize,
    /// The most questions at a time about clients.
    pub client_questions_max: usize,
}

/// What the DNS says of a name. A failure is an error and no `Lookup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup<T> {
    /// There are records.
    Found(T),
    /// The name exists, without records of the type.
    NoData,
    /// There is no such name.
    NxDomain,
    /// No sure answer: SERVFAIL, timeout, or an answer that makes no sense.
    Unknown(String),
}

/// A caching resolver. Questions that are asked at the same time are asked once.
pub struct Dns<P: ConnectionProvider = TokioRuntimeProvider> {
    source: Source<P>,
    hosts: HashMap<String, Vec<IpAddr>>,
    questions: Questions,
    client_questions: Questions,
}

impl Dns {
    /// # Errors
    /// The resolver cannot be set up, in words.
    pub fn new(settings: DnsSettings) -> Result<Self, String> {
        let (timeout, attempts) = (settings.timeout, settings.attempts);
        let source = if settings.name_servers.is_empty() {
            let build = move |text: &str| {
                let (config, options) = parse_resolv_conf(text).map_err(|e| e.to_string())?;
                build(config, options, timeout, attempts)
            };
            Source::File(ResolvConf::new("/etc/resolv.conf".into(), Box::new(build)))
        } else {
            let servers = settings.name_servers.iter().map(|address| name_server(*address));
            let config = ResolverConfig::from_name_servers(servers.collect());
            Source::Fixed(Arc::new(build(config, ResolverOpts::default(), timeout, attempts)?))
        };
        Ok(Self {
            source,
            hosts: settings.hosts,
            questions: Questions::of_deliveries(settings.questions_max),
            client_questions: Questions::of_clients(settings.client_questions_max),
        })
    }
}

fn build(
    config: ResolverConfig,
    mut options: ResolverOpts,
    timeout: Duration,
    attempts: usize,
) -> Result<TokioResolver, String> {
    options.timeout = timeout;
    // The resolver's `attempts` does not count the first time.
    options.attempts = attempts.saturating_sub(1);
    options.cache_size = 10_000;
    // The TTL of the zone holds up to a limit, and that of an absence up to a shorter one.
    options.positive_max_ttl = Some(Duration::from_secs(86_400));
    options.negative_max_ttl = Some(Duration::from_secs(900));
    let mut builder = Resolver::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options;
    builder.build().map_err(|e| format!("set up the resolver: {e}"))
}

impl<P: ConnectionProvider> Dns<P> {
    /// Asks a resolver that is set up already.
    pub fn with(resolver: Resolver<P>) -> Self {
        Self {
            source: Source::Fixed(Arc::new(resolver)),
            hosts: HashMap::new(),
            questions: Questions::of_deliveries(100),
            client_questions: Questions::of_clients(100),
        }
    }

    /// Returns the questions that are asked now on the way to destinations, and those about clients.
    pub fn question_counts(&self) -> [QuestionCount; 2] {
        [self.questions.count(), self.client_questions.count()]
    }

    /// Returns why /etc/resolv.conf cannot be used now, in words, if it cannot and is needed.
    pub fn name_server_fault(&self) -> Option<String> {
        self.source.fault()
    }

    /// Returns the addresses from the configuration's table.
    pub fn fixed(&self, name: &str) -> Option<&[IpAddr]> {
        self.hosts.get(name).map(Vec::as_slice)
    }

    /// Returns the mail exchangers with their preference, lower-case, without the final dot: null MX is `""`.
    pub async fn mx(&self, name: &str) -> Lookup<Vec<(u16, String)>> {
        let read = |data: &RData| match data {
            RData::MX(mx) => {
                let host = mx.exchange.to_ascii().trim_end_matches('.').to_ascii_lowercase();
                Some((mx.preference, host))
            }
            _ => None,
        };
        lookup(&self.source, &self.questions, name, RecordType::MX, read).await
    }

    /// Returns the TXT records of a name, each with its strings joined, for a client's mail. The name is given by its labels, which
    /// may have any octets.
    pub async fn txt<'l>(&self, labels: impl Iterator<Item = &'l [u8]>) -> Lookup<Vec<Box<[u8]>>> {
        let read = |data: &RData| match data {
            RData::TXT(txt) => Some(txt.txt_data.iter().flat_map(|part| part.iter().copied()).collect()),
            _ => None,
        };
        self.of_client(labels, RecordType::TXT, read).await
    }

    /// As [`Self::txt`], for IPv4 addresses.
    pub async fn a<'l>(&self, labels: impl Iterator<Item = &'l [u8]>) -> Lookup<Vec<Ipv4Addr>> {
        let read = |data: &RData| if let RData::A(a) = data { Some(a.0) } else { None };
        self.of_client(labels, RecordType::A, read).await
    }

    /// As [`Self::txt`], for IPv6 addresses.
    pub async fn aaaa<'l>(&self, labels: impl Iterator<Item = &'l [u8]>) -> Lookup<Vec<Ipv6Addr>> {
        let read = |data: &RData| if let RData::AAAA(a) = data { Some(a.0) } else { None };
        self.of_client(labels, RecordType::AAAA, read).await
    }

    /// As [`Self::txt`], for mail exchangers, without their preference: null MX is `""`.
    pub async fn exchangers<'l>(&self, labels: impl Iterator<Item = &'l [u8]>) -> Lookup<Vec<String>> {
        let read = |data: &RData| match data {
            RData::MX(mx) => Some(mx.exchange.to_ascii().trim_end_matches('.').to_owned()),
            _ => None,
        };
        self.of_client(labels, RecordType::MX, read).await
    }

    /// Returns the names of a client's address, as its PTR records have them.
    pub async fn names_of(&self, address: IpAddr) -> Lookup<Vec<String>> {
        let reverse = Name::from(address.to_canonical());
        let read = |data: &RData| match data {
            RData::PTR(name) => Some(name.0.to_ascii().trim_end_matches('.').to_owned()),
            _ => None,
        };
        lookup_name(&self.source, &self.client_questions, reverse, RecordType::PTR, read).await
    }

    async fn of_client<'l, T>(
        &self,
        labels: impl Iterator<Item = &'l [u8]>,
        kind: RecordType,
        read: impl Fn(&RData) -> Option<T>,
    ) -> Lookup<Vec<T>> {
        match Name::from_labels(labels) {
            Ok(name) => lookup_name(&self.source, &self.client_questions, name, kind, read).await,
            Err(e) => Lookup::Unknown(format!("look up {kind}: {e}")),
        }
    }

    /// Returns the addresses of a host, IPv6 first as RFC 6724 prefers it, and then of both kinds in turn (RFC 8305
    /// §4). Found when either kind is found; unknown when neither is found and either is unknown.
    pub async fn addresses(&self, name: &str) -> Lookup<Vec<IpAddr>> {
        self.addresses_within(&self.questions, name).await
    }

    async fn addresses_within(&self, questions: &Questions, name: &str) -> Lookup<Vec<IpAddr>> {
        if let Some(fixed) = self.fixed(name) {
            return if fixed.is_empty() { Lookup::NoData } else { Lookup::Found(fixed.to_vec()) };
        }
        // Never asked of a server (RFC 6761 §6.3).
        if name == "localhost" || name.ends_with(".localhost") {
            return Lookup::Found(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        let v6 = lookup(&self.source, questions, name, RecordType::AAAA, |data| match data {
            RData::AAAA(a) => Some(IpAddr::V6(a.0)),
            _ => None,
        });
        let v4 = lookup(&self.source, questions, name, RecordType::A, |data| match data {
            RData::A(a) => Some(IpAddr::V4(a.0)),
            _ => None,
        });
        match tokio::join!(v6, v4) {
            (Lookup::Found(v6), Lookup::Found(v4)) => Lookup::Found(in_turn(v6, v4)),
            (Lookup::Found(found), _) | (_, Lookup::Found(found)) => Lookup::Found(found),
            (unknown @ Lookup::Unknown(_), _) | (_, unknown @ Lookup::Unknown(_)) => unknown,
            // A server that knows one kind of record for a name knows the name.
            (Lookup::NxDomain, Lookup::NxDomain) => Lookup::NxDomain,
            _ => Lookup::NoData,
        }
    }
}

impl<P: ConnectionProvider> Dns<P> {
    /// Returns the name of an address that leads back to the address: the first such name of its PTR records (RFC 8601
    /// §3, `iprev`). No data if no name does.
    pub async fn verified_name(&self, address: IpAddr) -> Lookup<String> {
        let address = address.to_canonical();
        if let Some((name, _)) = self.hosts.iter().find(|(_, addresses)| addresses.contains(&address)) {
            return Lookup::Found(name.clone());
        }
        let reverse = Name::from(address).to_ascii();
        let names =
            lookup(&self.source, &self.client_questions, &reverse, RecordType::PTR, |data| match data {
                RData::PTR(name) => Some(name.0.to_ascii().trim_end_matches('.').to_ascii_lowercase()),
                _ => None,
            });
        let names = match names.await {
            Lookup::Found(names) => names,
            Lookup::NoData | Lookup::NxDomain => return Lookup::NoData,
            Lookup::Unknown(why) => return Lookup::Unknown(why),
        };
        let mut unknown = None;
        for name in names.into_iter().take(PTR_NAMES_MAX).filter(|name| is_host_name(name)) {
            match self.addresses_within(&self.client_questions, &name).await {
                Lookup::Found(addresses) if addresses.contains(&address) => return Lookup::Found(name),
                Lookup::Unknown(why) => unknown = Some(why),
                _ => {}
            }
        }
        unknown.map_or(Lookup::NoData, Lookup::Unknown)
    }
}

/// Names of an address that are looked at (RFC 7208 §4.6.4 has the same limit).
const PTR_NAMES_MAX: usize = 10;

/// Returns whether a name can be that of a host. Whoever has the address chooses the name, which stands in the log and in
/// `Received`.
fn is_host_name(name: &str) -> bool {
    let is_usual = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !name.is_empty() && name.bytes().all(is_usual)
}

fn in_turn(first: Vec<IpAddr>, second: Vec<IpAddr>) -> Vec<IpAddr> {
    let mut all = Vec::with_capacity(first.len() + second.len());
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    loop {
        let before = all.len();
        all.extend(first.next());
        all.extend(second.next());
        if all.len() == before {
            return all;
        }
    }
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

/// Asks for records of one type, and collects what `read` returns for each.
async fn lookup<P: ConnectionProvider, T>(
    source: &Source<P>,
    questions: &Questions,
    name: &str,
    kind: RecordType,
    read: impl Fn(&RData) -> Option<T>,
) -> Lookup<Vec<T>> {
    match Name::from_ascii(name) {
        Ok(name) => lookup_name(source, questions, name, kind, read).await,
        Err(e) => Lookup::Unknown(format!("look up {name}: {e}")),
    }
}

/// As [`lookup`], for a parsed name.
async fn lookup_name<P: ConnectionProvider, T>(
    source: &Source<P>,
    questions: &Questions,
    mut name: Name,
    kind: RecordType,
    read: impl Fn(&RData) -> Option<T>,
) -> Lookup<Vec<T>> {
    name.set_fqdn(true);
    let resolver = match source.resolver() {
        Ok(resolver) => resolver,
        Err(why) => return Lookup::Unknown(format!("look up {kind} of {name}: {why}")),
    };
    let _permit = match questions.begin().await {
        Ok(permit) => permit,
        Err(why) => return Lookup::Unknown(format!("look up {kind} of {name}: {why}")),
    };
    match resolver.lookup(name.clone(), kind).await {
        Ok(answer) => {
            let found: Vec<T> =
                answer.answers().iter().filter_map(|r| read(&r.data)).take(RECORDS_MAX).collect();
            if found.is_empty() {
                Lookup::Unknown(format!("look up {kind} of {name}: the answer has other records"))
            } else {
                Lookup::Found(found)
            }
        }
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) => match absence(&none, &name) {
            Absence::NxDomain => Lookup::NxDomain,
            Absence::NoData => Lookup::NoData,
            Absence::Doubtful => follow_aliases(&resolver, name, kind).await,
            Absence::Unknown(why) => Lookup::Unknown(format!("look up {kind} of {name}: {why}")),
        },
        Err(e) => Lookup::Unknown(format!("look up {kind} of {name}: {e}")),
    }
}

/// The meaning of an answer without the records that were asked for.
enum Absence {
    /// NXDOMAIN: no record of any type exists.
    NxDomain,
    /// NODATA, as a server says it that is responsible for the name or has asked one (RFC 2308 §2.2).
    NoData,
    /// NODATA behind aliases, or without the SOA record that belongs to it.
    Doubtful,
    /// No answer at all.
    Unknown(String),
}

/// Returns the meaning of an answer without records. Absence needs an authoritative answer.
fn absence(none: &NoRecords, name: &Name) -> Absence {
    match none.response_code {
        ResponseCode::NXDomain => Absence::NxDomain,
        // A referral is no answer (a lame delegation, or no recursion).
        ResponseCode::NoError if none.soa.is_none() && none.ns.is_some() => {
            Absence::Unknown("the name server refers to others".to_owned())
        }
        ResponseCode::NoError if none.soa.is_some() && none.query.name() == name => Absence::NoData,
        ResponseCode::NoError => Absence::Doubtful,
        code => Absence::Unknown(code.to_string()),
    }
}

/// Follows the aliases of a name that has no records of this kind, as far as can be seen. The resolver
/// answers an endless chain, and one that is longer than it follows, like a name without records.
async fn follow_aliases<P: ConnectionProvider, T>(
    resolver: &Resolver<P>,
    name: Name,
    kind: RecordType,
) -> Lookup<Vec<T>> {
    let mut chain = vec![name];
    loop {
        let last = chain.last().expect("it begins with the name");
        let unknown = |why: &str| Lookup::Unknown(format!("look up {kind} of {}: {why}", chain[0]));
        let target = match resolver.lookup(last.clone(), RecordType::CNAME).await {
            Ok(answer) => {
                let own = answer.answers().iter().filter(|record| record.name == *last);
                let mut target = own.filter_map(|record| match &record.data {
                    RData::CNAME(CNAME(target)) => Some(target.clone()),
                    _ => None,
                });
                target.next()
            }
            Err(NetError::Dns(DnsError::NoRecordsFound(none))) => match absence(&none, last) {
                Absence::NxDomain => return Lookup::NxDomain,
                Absence::NoData | Absence::Doubtful => None,
                Absence::Unknown(why) => return unknown(&why),
            },
            Err(e) => return unknown(&e.to_string()),
        };
        match target {
            None => return Lookup::NoData,
            Some(target) if chain.contains(&target) => return unknown("its aliases lead round in a circle"),
            Some(_) if chain.len() > ALIASES_MAX => return unknown("its chain of aliases is too long"),
            Some(target) => chain.push(target),
        }
    }
}
