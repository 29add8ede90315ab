//! Warnings of a daemon that runs: certificates that nobody renews.

use super::{Daemon, site_warnings::date};
use control::CertificateInfo;
use mail::UnixMillis;
use std::{
    collections::HashMap,
    sync::{Arc, PoisonError},
    time::Duration,
};

/// Certificates are looked at this often.
const LOOK_INTERVAL: Duration = Duration::from_secs(3600);
/// A warning is written when so many days are left, and when none is.
const WARN_DAYS: [u64; 4] = [14, 7, 2, 0];
const DAY_SECONDS: u64 = 86_400;

/// Looks at the certificates for ever.
pub(super) async fn watch(daemon: Arc<Daemon>) {
    let mut told = Told::default();
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    loop {
        look.tick().await;
        let shown = daemon.tls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let warnings = told.warnings(&shown.describe(), UnixMillis::now().0 / 1000);
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    }
}

/// The number of warnings that were written about each certificate.
#[derive(Debug, Default)]
struct Told(Option<HashMap<(Vec<String>, u64), usize>>);

impl Told {
    /// Returns the warnings that are new. The first look returns none: the start has warned of what is wrong then.
    fn warnings(&mut self, certificates: &[CertificateInfo], now: u64) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut levels = HashMap::new();
        for one in certificates {
            let left = one.expires_seconds.saturating_sub(now);
            let level = WARN_DAYS.iter().filter(|days| left <= **days * DAY_SECONDS).count();
            let key = (one.names.clone(), one.expires_seconds);
            let before = self.0.as_ref().map(|told| told.get(&key).copied().unwrap_or_default());
            if before.is_some_and(|before| before < level) {
                warnings.push(warning(one, left));
            }
            levels.insert(key, level);
        }
        self.0 = Some(levels);
        warnings
    }
}

fn warning(one: &CertificateInfo, left_seconds: u64) -> String {
    let names = one.names.join(", ");
    let date = date(one.expires_seconds);
    match left_seconds / DAY_SECONDS {
        _ if left_seconds == 0 => format!("the certificate for {names} has expired on {date}"),
        0 => format!("the certificate for {names} expires on {date}, within a day"),
        1 => format!("the certificate for {names} expires on {date}, in a day"),
        days => format!("the certificate for {names} expires on {date}, in {days} days"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::CertificateOrigin;

    /// 2026-03-01.
    const END: u64 = 1_772_323_200;

    fn certificate(expires_seconds: u64) -> CertificateInfo {
        CertificateInfo {
            names: vec!["mx.test".to_owned()],
            expires_seconds,
            origin: CertificateOrigin::File,
        }
    }

    #[test]
    fn a_certificate_that_nobody_renews_is_told_fourteen_seven_and_two_days_before_its_end() {
        let mut told = Told::default();
        let mut days = Vec::new();
        for hours_left in (0..24 * 20).rev() {
            if !told.warnings(&[certificate(END)], END - hours_left * 3600).is_empty() {
                days.push(hours_left as f64 / 24.0);
            }
        }
        assert_eq!(days, [14.0, 7.0, 2.0, 0.0]);
    }

    #[test]
    fn a_start_tells_nothing_twice_and_a_new_certificate_begins_anew() {
        let mut told = Told::default();
        let now = END - 3 * DAY_SECONDS;
        assert!(told.warnings(&[certificate(END)], now).is_empty());
        let renewed = certificate(END + 90 * DAY_SECONDS);
        assert!(told.warnings(std::slice::from_ref(&renewed), now).is_empty());
        let warnings = told.warnings(&[renewed], END + 84 * DAY_SECONDS);
        assert_eq!(warnings, ["the certificate for mx.test expires on 2026-05-30, in 6 days"]);
    }
}
