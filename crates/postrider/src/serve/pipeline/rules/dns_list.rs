//! Questions to lists of addresses in DNS (RFC 5782).

use dns::{Dns, Lookup};
use policy::{DnsList, Listed};
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::time::timeout;

/// A list that takes longer is passed over: a client that waits for all look-ups would get 451.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A list that does not answer is logged at most so often.
const WARNING_INTERVAL: Duration = Duration::from_hours(1);
/// Of the reason that a list gives, so much goes into a reply.
const TEXT_MAX_BYTES: usize = 200;

/// What is known of the lists of a configuration.
#[derive(Default)]
pub(crate) struct DnsLists {
    /// When a failure of a list was logged.
    warned: Mutex<HashMap<Box<str>, Instant>>,
}

impl DnsLists {
    /// Asks a list about an address, and why, if it is listed.
    ///
    /// # Errors
    /// The list does not answer, or with an error.
    pub(super) async fn ask(&self, dns: &Dns, zone: &str, address: IpAddr) -> Result<Listed, Box<str>> {
        let asked = timeout(TIMEOUT, ask(dns, zone, address)).await;
        let answer = asked.unwrap_or_else(|_| Err(format!("no answer in {TIMEOUT:?}")));
        answer.map_err(|why| {
            let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
            if warned.get(zone).is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
                warned.insert(zone.into(), Instant::now());
                tracing::warn!("the DNS list {zone}: {why}: it lists nobody until it answers (not logged again for an hour)");
            }
            why.into()
        })
    }
}

async fn ask(dns: &Dns, zone: &str, address: IpAddr) -> Result<Listed, String> {
    let name = DnsList::name(zone, address);
    let labels = || name.split('.').map(str::as_bytes);
    let codes = match dns.a(labels()).await {
        Lookup::Found(codes) => codes,
        Lookup::NoData | Lookup::NxDomain => return Ok(Listed::default()),
        Lookup::Unknown(why) => return Err(why),
    };
    if let Some(other) = codes.iter().find(|code| !DnsList::is_code(**code)) {
        return Err(format!("it answers {other}, which is an error and no listing"));
    }
    let text = match dns.txt(labels()).await {
        Lookup::Found(texts) => texts.first().map(|text| String::from_utf8_lossy(text).into_owned()),
        Lookup::NoData | Lookup::NxDomain | Lookup::Unknown(_) => None,
    };
    let seen = |c: &char| !mail::is_invisible(*c) && c.is_ascii();
    let text: String = text.unwrap_or_default().chars().filter(seen).take(TEXT_MAX_BYTES).collect();
    Ok(Listed { codes, text: text.into() })
}
