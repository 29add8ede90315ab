//! `postrider check DOMAIN`: the records by which others send to a domain and judge its mail, compared with this server.

mod encryption;
mod records;

use crate::doctor::{
    self, Finding, Report,
    network::{LOOKUP_TIMEOUT, in_time},
};
use accept::{ask_dns, routes::Routes};
use authn::{
    Answer, Answers, Dmarc, DmarcOutcome, DmarcPolicy, DmarcResult, Name, Spf, SpfOutcome, SpfResult, Step,
};
use clap::Args;
use config::{Settings, Sign, SignWith, signing_key};
use console::CliError;
use control::Exit;
use mail::{Domain, NextHop, UnixMillis};
use records::{all_of, with_address};
use route::dns::{Dns, Lookup};
use server::wiring;
use std::{io::Write, net::IpAddr, process::ExitCode};
use tokio::time::timeout;

pub use records::{KeyState, compare_key};

const MX: &str = "MX";
const SPF: &str = "SPF";
const DKIM: &str = "DKIM";
const DMARC: &str = "DMARC";

/// Mail exchangers that are looked at.
const EXCHANGERS_MAX: usize = 5;
/// Addresses from which this server may send.
const ADDRESSES_MAX: usize = 8;
const TRY_AGAIN: &str = "check the resolver, and try again";

/// The options of `postrider check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The part of your addresses after the @
    #[arg(value_name = "DOMAIN")]
    pub domain: String,
    /// Look only at records: do not connect to the domain's mail exchangers
    #[arg(long)]
    pub records: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Looks at the records, prints what was seen and which record to write, and returns 0, 1 with warnings, or 2 with errors.
///
/// # Errors
/// The name is not a domain, or there is no resolver.
pub fn run(args: &CheckArgs, settings: &Settings, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    let domain = match Domain::parse(&args.domain) {
        Ok(parsed) if !args.domain.starts_with('[') => parsed.key().into_owned(),
        _ => return Err(CliError::new(Exit::Usage, format!("`{}` is not a domain", args.domain))),
    };
    let runtime = console::runtime()?;
    let mut report = Report::new(args.json);
    let findings = runtime.block_on(async {
        let dns = wiring::dns(settings).map_err(|why| CliError::new(Exit::Config, why))?;
        let check = Check { dns: &dns, settings, domain: &domain };
        Ok::<_, CliError>(check.all(args.records).await)
    })?;
    findings.into_iter().try_for_each(|finding| report.take(finding, out))?;
    report.finish(out)?;
    Ok(report.code())
}

/// Which domain is checked, and with what.
struct Check<'a> {
    dns: &'a Dns,
    settings: &'a Settings,
    /// As [`Domain::key`].
    domain: &'a str,
}

impl Check<'_> {
    async fn all(&self, only_records: bool) -> Vec<Finding> {
        let (mut findings, exchangers) = self.exchangers().await;
        if !only_records {
            for host in exchangers.iter().take(EXCHANGERS_MAX) {
                findings.push(encryption::check(self.dns, self.settings, host).await);
            }
        }
        findings.extend(doctor::host_name(self.dns, self.settings).await);
        findings.extend(self.spf().await);
        findings.extend(self.dkim().await);
        findings.extend(self.dmarc().await);
        findings
    }

    /// A record of the domain, as a zone file has it.
    fn record(&self, below: &str, kind_and_data: &str) -> String {
        format!("write this record: {below}{}. IN {kind_and_data}", self.domain)
    }

    /// Where mail for the domain goes. Returns the hosts, too.
    async fn exchangers(&self) -> (Vec<Finding>, Vec<String>) {
        let (domain, own) = (self.domain, self.settings.hostname.to_ascii_lowercase());
        let advice = || self.record("", &format!("MX 10 {own}."));
        let mut hosts = match in_time(self.dns.mx(domain)).await {
            Lookup::Found(hosts) => hosts,
            Lookup::NoData => {
                let seen = format!(
                    "{domain} has no MX record: others send its mail to the addresses of {domain} itself"
                );
                return (vec![Finding::warning(MX, seen, advice())], Vec::new());
            }
            Lookup::NxDomain => {
                let seen = format!("the domain {domain} does not exist");
                return (
                    vec![Finding::error(MX, seen, "correct the name, or register the domain")],
                    Vec::new(),
                );
            }
            Lookup::Unknown(why) => return (vec![Finding::warning(MX, why, TRY_AGAIN)], Vec::new()),
        };
        hosts.sort();
        let names: Vec<String> = hosts.iter().map(|(_, host)| host.clone()).collect();
        if names.iter().any(String::is_empty) {
            let seen = format!("{domain} says that it takes no mail (a null MX, RFC 7505)");
            return (vec![Finding::error(MX, seen, advice())], Vec::new());
        }
        let listed: Vec<String> =
            hosts.iter().map(|(preference, host)| format!("{host} ({preference})")).collect();
        let seen = format!("mail for {domain} goes to {}", listed.join(", "));
        let mut findings = Vec::new();
        if names.contains(&own) {
            // It would come in here, and go out again to this server.
            let leads_away = matches!(Routes::from(self.settings).domain(domain).next_hop, NextHop::Mx(_));
            findings.push(if leads_away && self.settings.local.domain_maps.is_empty() {
                let seen = format!("{seen}, and this server does not know the domain: it refuses the mail");
                Finding::error(
                    MX,
                    seen,
                    format!("add \"{domain}\" to `domains` in [local], or give it a route"),
                )
            } else {
                Finding::ok(MX, seen)
            });
        } else {
            let seen = format!("{seen}, and not to this server ({own})");
            findings.push(Finding::warning(MX, seen, format!("if it is to arrive here, {}", advice())));
        }
        for host in names.iter().take(EXCHANGERS_MAX) {
            match in_time(self.dns.addresses(host)).await {
                Lookup::Found(_) => {}
                Lookup::NoData | Lookup::NxDomain => {
                    let seen = format!("the mail exchanger {host} has no address");
                    let advice = "add A or AAAA records for it, or remove it from the MX records";
                    findings.push(Finding::error(MX, seen, advice));
                }
                Lookup::Unknown(why) => findings.push(Finding::warning(MX, why, TRY_AGAIN)),
            }
        }
        (findings, names)
    }

    /// The addresses that others see when this server sends.
    async fn own_addresses(&self) -> Vec<IpAddr> {
        if let Some(address) = self.settings.delivery.source_address {
            return vec![address];
        }
        let host = self.settings.hostname.to_ascii_lowercase();
        let mut addresses = match in_time(self.dns.addresses(&host)).await {
            Lookup::Found(addresses) => addresses,
            _ => Vec::new(),
        };
        addresses.retain(|address| !address.is_loopback());
        addresses.truncate(ADDRESSES_MAX);
        addresses
    }

    /// Whether the domain says that this server may send its mail (RFC 7208).
    async fn spf(&self) -> Vec<Finding> {
        let (domain, own) = (self.domain, self.settings.hostname.to_ascii_lowercase());
        let records = match self.texts(domain).await {
            Ok(texts) => all_of(&texts, "v=spf1"),
            Err(why) => return vec![Finding::warning(SPF, why, TRY_AGAIN)],
        };
        let record = match &records[..] {
            [record] => record,
            [] => {
                let seen = format!(
                    "{domain} has no SPF record: Gmail and others reject its mail or put it into spam"
                );
                return vec![Finding::error(
                    SPF,
                    seen,
                    self.record("", &format!("TXT \"v=spf1 a:{own} -all\"")),
                )];
            }
            several => {
                let seen = format!("{domain} has {} SPF records, and so none counts", several.len());
                return vec![Finding::error(SPF, seen, "make one record of them")];
            }
        };
        let mut findings = Vec::new();
        if record.split_ascii_whitespace().any(|term| matches!(term, "all" | "+all")) {
            let seen = format!("\"{record}\" permits the whole Internet to send as {domain}");
            findings.push(Finding::error(SPF, seen, "end it with -all"));
        }
        let addresses = self.own_addresses().await;
        if addresses.is_empty() {
            let advice = "give the host an address in DNS, or set `delivery.source_address`";
            findings.push(Finding::warning(SPF, format!("the addresses of {own} are not known"), advice));
        }
        for address in addresses {
            findings.push(self.spf_of(address, record).await);
        }
        findings
    }

    async fn spf_of(&self, address: IpAddr, record: &str) -> Finding {
        let (hello, sender) = (&self.settings.hostname, format!("postmaster@{}", self.domain));
        let now = UnixMillis::now().0 / 1000;
        let spf = Spf { client: address, hello, sender: Some(&sender), receiver: hello, now };
        let SpfOutcome { result, error, .. } = decide(self.dns, |answers| spf.evaluate(answers)).await;
        let why = error.map(|error| format!(" ({error})")).unwrap_or_default();
        let seen = format!("{address} may send as {}: {}{why}: \"{record}\"", self.domain, result.as_str());
        match result {
            SpfResult::Pass => Finding::ok(SPF, seen),
            SpfResult::TempError => Finding::warning(SPF, seen, TRY_AGAIN),
            SpfResult::PermError => {
                Finding::error(SPF, seen, "correct the record: an invalid one counts as none, or worse")
            }
            SpfResult::None | SpfResult::Neutral | SpfResult::SoftFail | SpfResult::Fail => {
                let better = with_address(record, address);
                Finding::error(SPF, seen, self.record("", &format!("TXT \"{better}\"")))
            }
        }
    }

    /// Whether its mail is signed, and the keys are published (RFC 6376).
    async fn dkim(&self) -> Vec<Finding> {
        let signs = |sign: &&Sign| sign.domains.is_empty() || sign.matches(self.domain);
        let signing: Vec<&Sign> = self.settings.sign.iter().filter(signs).collect();
        if signing.is_empty() {
            let seen = format!("mail from {} is not signed", self.domain);
            return vec![Finding::error(
                DKIM,
                seen,
                format!("make a key: postrider dkim new {} --selector mail", self.domain),
            )];
        }
        let mut findings = Vec::new();
        for sign in signing {
            let SignWith::Key { selector, file } = &sign.keys else {
                findings.push(Finding::ok(
                    DKIM,
                    format!("mail from {} is signed with keys of a map", self.domain),
                ));
                continue;
            };
            let domain = sign.domain.as_deref().unwrap_or(self.domain);
            let name = authn::key_name(selector, domain);
            let key = match signing_key(file) {
                Ok(key) => key.record(),
                Err(why) => {
                    findings.push(Finding::error(DKIM, why.to_string(), "let this user read the key"));
                    continue;
                }
            };
            let advice = format!("write this record: {name}. IN TXT \"{key}\"");
            findings.push(match compare_key(self.dns, &name, &key).await {
                KeyState::Published => Finding::ok(DKIM, format!("the key {name} is published")),
                KeyState::Unknown(why) => Finding::warning(DKIM, why, TRY_AGAIN),
                state => Finding::error(DKIM, format!("{name}: {state}"), advice),
            });
        }
        findings
    }

    /// The domain's wish for mail that neither SPF nor DKIM passes (RFC 9989).
    async fn dmarc(&self) -> Vec<Finding> {
        let Some(from) = Name::new(self.domain) else { return Vec::new() };
        let texts = match self.texts(&format!("_dmarc.{}", self.domain)).await {
            Ok(texts) => texts,
            Err(why) => return vec![Finding::warning(DMARC, why, TRY_AGAIN)],
        };
        let own = all_of(&texts, "v=DMARC1");
        if own.len() > 1 {
            let seen = format!("{} has {} DMARC records, and so none counts", self.domain, own.len());
            return vec![Finding::error(DMARC, seen, "keep one of them")];
        }
        let dmarc = Dmarc { from: &from, spf: None, dkim: &[] };
        let DmarcOutcome { result, policy, record_domain, error, .. } =
            decide(self.dns, |answers| dmarc.evaluate(answers)).await;
        let why = error.map(|error| format!(": {error}")).unwrap_or_default();
        let reports = format!("rua=mailto:{}", self.settings.postmaster);
        vec![match (result, record_domain) {
            (DmarcResult::PermError, _) => {
                let seen = format!("the DMARC record is invalid{why}");
                Finding::error(
                    DMARC,
                    seen,
                    self.record("_dmarc.", &format!("TXT \"v=DMARC1; p=none; {reports}\"")),
                )
            }
            (DmarcResult::TempError, _) => Finding::warning(DMARC, format!("unknown{why}"), TRY_AGAIN),
            (_, None) => {
                let seen = format!(
                    "{} has no DMARC record: Gmail and Yahoo require one from bulk senders",
                    self.domain
                );
                Finding::error(
                    DMARC,
                    seen,
                    self.record("_dmarc.", &format!("TXT \"v=DMARC1; p=none; {reports}\"")),
                )
            }
            (_, Some(at)) if policy == DmarcPolicy::None => {
                let seen = format!("the record of {at} says p=none: others deliver mail that was forged");
                let advice =
                    "when the reports show that your own mail passes, write p=quarantine, and later p=reject";
                Finding::warning(DMARC, seen, advice)
            }
            (_, Some(at)) => Finding::ok(DMARC, format!("the record of {at} says p={}", policy.as_str())),
        }]
    }

    /// The TXT records of a name; none if there are none.
    async fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        let labels = name.split('.').map(str::as_bytes);
        match in_time(self.dns.txt(labels)).await {
            Lookup::Found(found) => {
                Ok(found.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect())
            }
            Lookup::NoData | Lookup::NxDomain => Ok(Vec::new()),
            Lookup::Unknown(why) => Err(why),
        }
    }
}

/// Asks what a machine asks, until it has decided. Each bounds what it asks.
async fn decide<T>(dns: &Dns, evaluate: impl Fn(&Answers) -> Step<T>) -> T {
    let mut answers = Answers::default();
    loop {
        let questions = match evaluate(&answers) {
            Step::Done(decided) => return decided,
            Step::Ask(questions) => questions,
        };
        for question in questions {
            let answer = timeout(LOOKUP_TIMEOUT, ask_dns(dns, &question)).await.unwrap_or(Answer::Failed);
            answers.add(question, answer);
        }
    }
}
