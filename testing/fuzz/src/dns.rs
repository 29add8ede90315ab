//! Answers of name servers.

use hickory_resolver::{
    ConnectionProvider, PoolContext, Resolver,
    config::{ConnectionConfig, NameServerConfig, ResolverConfig},
    net::{DnsHandle, NetError, runtime::TokioRuntimeProvider, xfer::DnsResponseStream},
    proto::{
        op::{DnsRequest, DnsResponse, Message, MessageType, OpCode, ResponseCode},
        rr::{
            Name, RData, Record,
            rdata::{A, AAAA, CNAME, MX, NS, PTR, SOA},
        },
    },
};
use route::dns::{Dns, Lookup};
use std::{
    future::{Ready, ready},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
};

/// Names that answers are about. The last one is that of an address.
const NAMES: [&str; 6] = ["a.test.", "b.test.", "MX.a.test.", ".", "x.b.test.", "1.2.0.192.in-addr.arpa."];
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// A name server that answers with the bytes, as messages or as records that fit together.
#[derive(Clone)]
struct Server {
    bytes: Arc<Mutex<Vec<u8>>>,
    runtime: TokioRuntimeProvider,
}

impl Server {
    fn take(&self, count: usize) -> Vec<u8> {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let at = bytes.len().saturating_sub(count);
        bytes.split_off(at)
    }

    fn byte(&self) -> usize {
        self.take(1).first().map_or(0, |byte| usize::from(*byte))
    }

    fn answer(&self, request: &DnsRequest) -> Result<DnsResponse, NetError> {
        let form = self.byte();
        if form % 4 == 3 {
            let count = self.byte() * 2;
            let mut bytes = self.take(count);
            // As the transport does it: an answer to another question is not seen at all.
            bytes.splice(..bytes.len().min(2), request.id.to_be_bytes());
            let mut message = Message::from_vec(&bytes)?;
            message.queries.clone_from(&request.queries);
            return Ok(DnsResponse::from_message(message)?);
        }
        let mut message = Message::new(request.id, MessageType::Response, OpCode::Query);
        message.queries.clone_from(&request.queries);
        message.metadata.authoritative = form & 4 == 0;
        message.metadata.response_code = match form % 4 {
            0 | 1 => ResponseCode::NoError,
            _ => [ResponseCode::NXDomain, ResponseCode::ServFail, ResponseCode::Refused][form / 8 % 3],
        };
        for _ in 0..self.byte() % 8 {
            let record = self.record(request);
            match form / 8 % 8 {
                7 => message.authorities.push(record),
                6 => message.additionals.push(record),
                _ => message.answers.push(record),
            }
        }
        if form & 64 != 0 {
            let name = self.name();
            let soa = SOA::new(Name::root(), Name::root(), 1, 2, 3, 4, 5);
            message.authorities.push(Record::from_rdata(name, 60, RData::SOA(soa)));
        }
        Ok(DnsResponse::from_message(message)?)
    }

    fn name(&self) -> Name {
        Name::from_ascii(NAMES[self.byte() % NAMES.len()]).expect("the names are good")
    }

    /// A record, mostly one of the name that was asked for.
    fn record(&self, request: &DnsRequest) -> Record {
        let (kind, which) = (self.byte(), self.byte());
        let asked = request.queries.first().map(|query| query.name().clone());
        let owner = asked.filter(|_| which % 4 != 0).unwrap_or_else(|| self.name());
        let data = match kind % 7 {
            0 => RData::A(A(Ipv4Addr::new(192, 0, 2, (which % 3) as u8))),
            1 => RData::AAAA(AAAA(Ipv6Addr::LOCALHOST)),
            2 => RData::MX(MX::new(which as u16, self.name())),
            3 => RData::CNAME(CNAME(self.name())),
            4 => RData::PTR(PTR(self.name())),
            5 => RData::NS(NS(self.name())),
            _ => RData::SOA(SOA::new(self.name(), self.name(), 1, 2, 3, 4, 5)),
        };
        Record::from_rdata(owner, 60, data)
    }
}

impl DnsHandle for Server {
    type Response = DnsResponseStream;
    type Runtime = TokioRuntimeProvider;

    fn send(&self, request: DnsRequest) -> Self::Response {
        Box::pin(ready(self.answer(&request))).into()
    }
}

impl ConnectionProvider for Server {
    type Conn = Self;
    type FutureConn = Ready<Result<Self, NetError>>;
    type RuntimeProvider = TokioRuntimeProvider;

    fn new_connection(
        &self,
        _: IpAddr,
        _: &ConnectionConfig,
        _: &PoolContext,
    ) -> Result<Self::FutureConn, NetError> {
        Ok(ready(Ok(self.clone())))
    }

    fn runtime_provider(&self) -> &TokioRuntimeProvider {
        &self.runtime
    }
}

/// Answers of a name server: each look-up ends, hosts are in the form in which they are compared, a name is verified only
/// by an address that leads back, and no answer without sense is taken for an absence.
pub fn dns_answers(bytes: &[u8]) {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
    }
    let server = Server {
        bytes: Arc::new(Mutex::new(bytes.iter().rev().copied().collect())),
        runtime: TokioRuntimeProvider::new(),
    };
    let name_server = NameServerConfig::new(Ipv4Addr::LOCALHOST.into(), true, vec![ConnectionConfig::udp()]);
    let config = ResolverConfig::from_name_servers(vec![name_server]);
    let mut builder = Resolver::builder_with_config(config, server);
    builder.options_mut().attempts = 0;
    let dns = Dns::with(builder.build().expect("the configuration is good"));
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            match dns.mx("a.test").await {
                Lookup::Found(exchangers) => {
                    assert!(!exchangers.is_empty() && exchangers.len() <= 100);
                    for (_, host) in exchangers {
                        assert!(!host.ends_with('.') && host == host.to_ascii_lowercase(), "{host}");
                    }
                }
                Lookup::Unknown(why) => assert!(!why.is_empty()),
                Lookup::NoData | Lookup::NxDomain => {}
            }
            if let Lookup::Found(addresses) = dns.addresses("b.test").await {
                assert!(!addresses.is_empty() && addresses.len() <= 200);
            }
            if let Lookup::Found(name) = dns.verified_name(CLIENT).await {
                let is_usual = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                assert!(!name.is_empty() && !name.ends_with('.') && name.chars().all(is_usual), "{name}");
            }
        });
    });
}
