//! Warnings about a site that can be served, but not well: its name, its certificates and their keys.

use super::{acme::certificate_file, backscatter, tls::expires_seconds};
use accept::{expansion::Expansion, routes::Routes};
use config::{Settings, Target, certificate};
use console::CliError;
use mail::UnixMillis;
use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// A certificate that expires sooner is one that nobody renews: usual clients renew 30 days before.
const EXPIRES_WITHIN_SECONDS: u64 = 14 * 86_400;

/// Returns what is wrong, in words for the postmaster.
pub fn warnings(settings: &Settings, now: UnixMillis) -> Vec<String> {
    collect(settings, Some(now))
}

/// Returns what [`warnings`] does, but for the times of certificates.
pub fn lasting_warnings(settings: &Settings) -> Vec<String> {
    collect(settings, None)
}

/// Returns the certificates that can be read, of listeners and for next hops, with the warning about the time of each.
pub fn expiries(settings: &Settings, now: UnixMillis) -> Vec<Expiry> {
    let expiry_of = |(chain, _): (PathBuf, PathBuf)| {
        let expires_seconds = expires_seconds(certificate::chain(&chain).ok()?.first()?)?;
        let warning = expiry(&chain, expires_seconds, now);
        Some(Expiry { chain, is_over: expires_seconds * 1000 <= now.0, expires_seconds, warning })
    };
    pairs(settings).chain(shown_pair(settings)).filter_map(expiry_of).collect()
}

/// When a certificate expires.
#[derive(Debug)]
pub struct Expiry {
    /// The file that the certificate is read from.
    pub chain: PathBuf,
    /// `notAfter` of the certificate, in seconds since 1970.
    pub expires_seconds: u64,
    /// True if the certificate has expired.
    pub is_over: bool,
    /// None while there is time left.
    pub warning: Option<String>,
}

/// Returns the certificates of listeners with their keys; the first is that of [tls], if there is one.
fn pairs(settings: &Settings) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let tls = settings.tls.certificate.clone().zip(settings.tls.key.clone());
    let others = settings.certificates.iter().map(|one| (one.chain.clone(), one.key.clone()));
    // There is none before the first start.
    let obtained = certificate_file(settings).filter(|file| file.exists()).map(|file| (file.clone(), file));
    tls.into_iter().chain(others).chain(obtained)
}

/// The certificate that next hops are shown, with its key.
fn shown_pair(settings: &Settings) -> Option<(PathBuf, PathBuf)> {
    settings.tls.next_hop_certificate.clone().zip(settings.tls.next_hop_key.clone())
}

fn collect(settings: &Settings, now: Option<UnixMillis>) -> Vec<String> {
    let mut warnings = Vec::new();
    let host = &settings.hostname;
    if !host.contains('.') {
        warnings.push(format!(
            "hostname \"{host}\" has no dot: other servers refuse such a name in EHLO; write the whole name, \
             \"{host}.example.com\""
        ));
    }
    let tls = settings.tls.certificate.as_deref().zip(settings.tls.key.as_deref());
    let (mut names, mut can_read_all) = (Vec::new(), true);
    let listeners = pairs(settings).map(|pair| (pair, true));
    for ((chain, key), is_listener) in listeners.chain(shown_pair(settings).map(|pair| (pair, false))) {
        // What cannot be read is an error elsewhere.
        let read = certificate::chain(&chain);
        can_read_all &= read.is_ok() || !is_listener;
        if let Ok(read) = read {
            if is_listener {
                names.extend(certificate::names(&read[0]));
            }
            let expires = expires_seconds(&read[0]).zip(now);
            warnings.extend(expires.and_then(|(expires, now)| expiry(&chain, expires, now)));
        }
        warnings.extend(readable_by_all(&key));
    }
    for file in settings.sign.iter().filter_map(config::Sign::file) {
        warnings.extend(readable_by_all(file));
    }
    let acme = &settings.acme;
    if acme.is_used() && tls.is_none() && !acme.names.iter().any(|name| covers(&name.0, host)) {
        let wanted: Vec<&str> = acme.names.iter().map(|name| &*name.0).collect();
        warnings.push(format!(
            "the certificate of [acme] is for {}, not for \"{host}\": clients that verify refuse it",
            wanted.join(", ")
        ));
    }
    if let Some((chain, _)) = tls.filter(|_| can_read_all && !names.iter().any(|name| covers(name, host))) {
        let whose = match &*names.join(", ") {
            // A common name counts for no client (RFC 9525 §2), and an IP address is no name.
            "" => format!("has no DNS name (subjectAltName), and so not \"{host}\""),
            names => format!("is for {names}, not for \"{host}\""),
        };
        warnings.push(format!("the certificate {} {whose}: clients that verify refuse it", chain.display()));
    }
    warnings.extend(settings.rules.warnings.iter().cloned());
    warnings.extend(backscatter::warnings(settings));
    warnings.extend(missing_programs(settings));
    warnings.extend(foreign_source_addresses(settings));
    warnings
}

/// Addresses that no connection can be made from now: mail would wait.
fn foreign_source_addresses(settings: &Settings) -> impl Iterator<Item = String> {
    let routes = settings.numbered_routes();
    let of_routes = routes.filter_map(|(number, route)| {
        Some((format!("route[{number}].source_address"), route.source_address?))
    });
    let general = settings.delivery.source_address.map(|ip| ("delivery.source_address".to_owned(), ip));
    general.into_iter().chain(of_routes).filter(|(_, ip)| !route::is_this_machines(*ip)).map(|(key, ip)| {
        format!("`{key}`: this machine does not have the address {ip}; write one that `ip address` shows")
    })
}

/// Programs that may be installed later: their mail waits until then.
fn missing_programs(settings: &Settings) -> impl Iterator<Item = String> {
    let pipes = settings.numbered_routes().filter_map(|(number, route)| match &route.target {
        Target::Pipe(program) => Some((format!("route[{number}].pipe"), Path::new(program.name()))),
        _ => None,
    });
    let of_aliases = settings.addresses.programs.iter();
    let of_aliases = of_aliases.map(|file| ("addresses.programs".to_owned(), file.as_path()));
    let hook = settings.acme.hook.iter().map(|hook| ("acme.hook".to_owned(), Path::new(hook.name())));
    pipes.chain(of_aliases).chain(hook).filter_map(|(key, file)| {
        let file_text = file.display();
        match fs::metadata(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Some(format!("`{key}`: there is no program {file_text}"))
            }
            Ok(data) if !data.is_file() || data.permissions().mode() & 0o111 == 0 => {
                Some(format!("`{key}`: {file_text} is not a program: `chmod +x`, if it is a script"))
            }
            _ => None,
        }
    })
}

fn expiry(chain: &Path, expires: u64, now: UnixMillis) -> Option<String> {
    let now = now.0 / 1000;
    let date = date(expires);
    if expires <= now {
        Some(format!("the certificate {} has expired on {date}", chain.display()))
    } else if expires - now < EXPIRES_WITHIN_SECONDS {
        let days = (expires - now) / 86_400;
        Some(format!("the certificate {} expires on {date}, in {days} days", chain.display()))
    } else {
        None
    }
}

/// Returns the day of a time in seconds since 1970: `2026-11-25`.
pub fn date(seconds: u64) -> String {
    let time = UnixMillis(seconds.saturating_mul(1000)).rfc3339();
    time.split('T').next().unwrap_or_default().to_owned()
}

fn readable_by_all(key: &Path) -> Option<String> {
    let mode = fs::metadata(key).ok()?.permissions().mode();
    (mode & 0o004 != 0)
        .then(|| format!("every user of this machine can read the key {0}: `chmod o-r {0}`", key.display()))
}

/// Returns whether the name of a certificate, perhaps a wildcard, is that of the host (RFC 9525 §6.3).
fn covers(name: &str, host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    match name.strip_prefix("*.") {
        Some(domain) => host.split_once('.').is_some_and(|(_, rest)| rest == domain),
        None => name == host,
    }
}

/// Returns a warning if nobody reads the mail for the postmaster.
pub fn unread_postmaster(settings: &Settings) -> Result<Option<String>, CliError> {
    let maps = accept::maps(settings, None);
    let (routes, expansion) = (Routes::new(settings, maps.clone()), Expansion::new(settings, maps));
    Ok(console::runtime()?.block_on(accept::unread_postmaster(settings, &routes, expansion.as_ref())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::Permissions, path::PathBuf};

    const DAY_MS: u64 = 86_400_000;

    fn site(host: &str, names: &[&str]) -> (tempfile::TempDir, Settings, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let mut parameters =
            rcgen::CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
                .unwrap();
        parameters.not_before = rcgen::date_time_ymd(2026, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(2026, 3, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let made = parameters.self_signed(&key).unwrap();
        let key_file = dir.path().join("key.pem");
        fs::write(dir.path().join("cert.pem"), made.pem()).unwrap();
        fs::write(&key_file, key.serialize_pem()).unwrap();
        fs::set_permissions(&key_file, Permissions::from_mode(0o640)).unwrap();
        let file = dir.path().join("postrider.toml");
        let text = format!(
            "hostname = \"{host}\"\n[local]\ndomains = [\"{host}\"]\n[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n"
        );
        fs::write(&file, text).unwrap();
        let settings = config::load(Some(&file)).unwrap_or_else(|problems| panic!("{problems}"));
        (dir, settings, key_file)
    }

    fn at(days_after_2026: u64) -> UnixMillis {
        UnixMillis(1_767_225_600_000 + days_after_2026 * DAY_MS)
    }

    #[test]
    fn a_site_as_it_should_be_has_no_warning() {
        for names in [&["mx.example.com"][..], &["other.test", "*.example.com"]] {
            let (_dir, settings, _) = site("mx.example.com", names);
            assert_eq!(warnings(&settings, at(1)), Vec::<String>::new(), "{names:?}");
        }
    }

    #[test]
    fn a_certificate_without_a_dns_name_is_told() {
        // The second has no name at all but the common name that the library makes.
        for names in [&["127.0.0.1"][..], &[]] {
            let (_dir, settings, _) = site("mx.example.com", names);
            let told = warnings(&settings, at(1));
            assert!(told.len() == 1 && told[0].contains("has no DNS name"), "{names:?}: {told:?}");
        }
    }

    #[test]
    fn an_address_that_this_machine_does_not_have_is_told() {
        let (_dir, mut settings, _) = site("mx.example.com", &["mx.example.com"]);
        settings.delivery.source_address = Some("127.0.0.1".parse().unwrap());
        assert_eq!(warnings(&settings, at(1)), Vec::<String>::new());
        settings.delivery.source_address = Some("192.0.2.77".parse().unwrap());
        let told = warnings(&settings, at(1)).join("\n");
        assert!(told.starts_with("`delivery.source_address`") && told.contains("192.0.2.77"), "{told}");
    }

    #[test]
    fn a_short_name_a_certificate_for_another_or_near_its_end_and_an_open_key_are_told() {
        let (_dir, settings, key) = site("mx", &["other.test"]);
        fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
        let told = warnings(&settings, at(50));
        assert_eq!(told.len(), 4, "{told:?}");
        for (text, part) in told.iter().zip([
            "has no dot",
            "on 2026-03-01, in 9 days",
            "can read the key",
            "is for other.test",
        ]) {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(warnings(&settings, at(60))[1].contains("has expired on 2026-03-01"));
    }
}
