//! `postrider dkim`: makes keys that sign mail, and compares them with DNS.

mod rotate;

pub(super) use rotate::run as rotate;

use super::{
    CliError, Ending,
    args::{DkimCommand, KeyKind},
};
use authn::{Algorithm, SigningKey, key_name};
use config::{DomainPattern, Purpose, Settings, Sign, SignWith, is_selector, signing_key};
use console::runtime;
use control::Exit;
use mail::Domain;
use rustix::{
    fs::{Uid, fchown},
    process::geteuid,
};
use server::{access, wiring};
use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};
use upkeep::domain::{KeyState, compare_key};

/// The longest string of a TXT record (RFC 1035 §3.3).
const TXT_STRING_BYTES: usize = 255;

/// Makes a key; needs no configuration. Root gives the file to the user of the daemon, if a configuration names one.
pub(super) fn new(
    domain: &str,
    selector: &str,
    kind: KeyKind,
    file: Option<&Path>,
    explicit: Option<&Path>,
    out: &mut dyn Write,
) -> Ending {
    let usage = |text: String| CliError::new(Exit::Usage, text);
    let domain = match Domain::parse(domain) {
        Ok(parsed) if !domain.starts_with('[') => parsed.key().into_owned(),
        _ => return Err(usage(format!("`{domain}` is not a domain: write one such as example.com"))),
    };
    check_selector(selector)?;
    let file = file.map_or_else(|| PathBuf::from(format!("{domain}.{selector}.pem")), Path::to_owned);
    let (key, made) = make_key(kind.algorithm(), &file)?;
    let full = std::path::absolute(&file).unwrap_or_else(|_| file.clone());
    let loaded = config::load_with_origins(console::settings::find(explicit).as_deref(), Purpose::Ask).ok();
    let owner = loaded.filter(|_| geteuid().is_root()).map(|loaded| access::daemon_uid(&loaded.settings));
    match owner {
        Some(uid) if uid != 0 => {
            fchown(&made, Some(Uid::from_raw(uid)), None)
                .map_err(|e| CliError::new(Exit::CantCreate, format!("give {} away: {e}", full.display())))?;
            writeln!(out, "The private key is in {}, which belongs to the daemon's user.\n", full.display())?;
        }
        _ => writeln!(
            out,
            "The private key is in {}; the daemon's user must be able to read it.\n",
            full.display()
        )?,
    }
    writeln!(out, "1. Publish this record in DNS:\n\n{}\n", zone_line(&domain, selector, &key.record()))?;
    writeln!(out, "2. When other servers can see it, write into the configuration:\n")?;
    writeln!(
        out,
        "[[sign]]\ndomains = [\"{domain}\"]\nselector = \"{selector}\"\nkey = \"{}\"\n",
        full.display()
    )?;
    writeln!(out, "3. `postrider reload`, then `postrider dkim check`.")?;
    Ok(Exit::Ok)
}

fn check_selector(selector: &str) -> Result<(), CliError> {
    if is_selector(selector) {
        return Ok(());
    }
    let text = format!("`{selector}` is not a selector: write letters, digits and hyphens, such as 2026");
    Err(CliError::new(Exit::Usage, text))
}

/// Makes a key in a new file, which only its owner may read.
fn make_key(algorithm: Algorithm, file: &Path) -> Result<(SigningKey, File), CliError> {
    let pem = SigningKey::generate(algorithm).map_err(|why| CliError::new(Exit::Unavailable, why))?;
    let key = SigningKey::from_pem(pem.as_bytes()).expect("a key that was made can be read");
    let failed = |e: std::io::Error| {
        let why = match e.kind() {
            std::io::ErrorKind::AlreadyExists => {
                "it exists already: choose another --selector or --out; `postrider dkim rotate` changes a key that is in use".to_owned()
            }
            _ => e.to_string(),
        };
        CliError::new(Exit::CantCreate, format!("create {}: {why}", file.display()))
    };
    let mut open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(failed)?;
    open.write_all(pem.as_bytes()).and_then(|()| open.sync_all()).map_err(failed)?;
    Ok((key, open))
}

/// Returns a record as zone files have it.
fn zone_line(domain: &str, selector: &str, record: &str) -> String {
    let strings: Vec<String> = record
        .as_bytes()
        .chunks(TXT_STRING_BYTES)
        .map(|part| format!("\"{}\"", String::from_utf8_lossy(part)))
        .collect();
    format!("{}. IN TXT ( {} )", key_name(selector, domain), strings.join(" "))
}

/// Runs a command that reads the configuration.
pub(super) fn run(command: &DkimCommand, settings: &Settings, out: &mut dyn Write) -> Ending {
    if settings.sign.is_empty() {
        let text = "nothing is signed: `postrider dkim new DOMAIN --selector NAME` makes a key for [[sign]]";
        return Err(CliError::new(Exit::Config, text));
    }
    match command {
        DkimCommand::Check => check(settings, out),
        _ => show(settings, out),
    }
}

/// The names of a section under which its key has to be published; none of a pattern.
fn published(sign: &Sign) -> Vec<&str> {
    if let Some(domain) = &sign.domain {
        return vec![domain];
    }
    let exact = |pattern: &'_ DomainPattern| matches!(pattern, DomainPattern::Exact(_));
    let exact = sign.domains.iter().filter(|pattern| exact(pattern));
    exact
        .filter_map(
            |pattern| if let DomainPattern::Exact(name) = pattern { Some(name.as_str()) } else { None },
        )
        .collect()
}

fn show(settings: &Settings, out: &mut dyn Write) -> Ending {
    for sign in &settings.sign {
        match &sign.keys {
            SignWith::Key { selector, file } => {
                let key = signing_key(file).map_err(|e| CliError::new(Exit::NoInput, e.to_string()))?;
                for domain in published(sign) {
                    writeln!(out, "{}", zone_line(domain, selector, &key.record()))?;
                }
            }
            SignWith::Map(map) => writeln!(out, "; the keys of {map} are in the map")?,
        }
    }
    Ok(Exit::Ok)
}

/// Asks DNS for each key.
fn check(settings: &Settings, out: &mut dyn Write) -> Ending {
    let mut keys = Vec::new();
    for sign in &settings.sign {
        let SignWith::Key { selector, file } = &sign.keys else { continue };
        let key = signing_key(file).map_err(|e| CliError::new(Exit::NoInput, e.to_string()))?;
        for domain in published(sign) {
            keys.push((key_name(selector, domain), key.record()));
        }
    }
    let runtime = runtime()?;
    let _guard = runtime.enter();
    let dns = wiring::dns(settings).map_err(|why| CliError::new(Exit::Config, why))?;
    let mut exit = Exit::Ok;
    for (name, record) in keys {
        let state = runtime.block_on(compare_key(&dns, &name, &record));
        let found = match state {
            KeyState::Published => Exit::Ok,
            KeyState::Unknown(_) => Exit::TempFail,
            KeyState::Another | KeyState::NoKey | KeyState::Missing => Exit::DataErr,
        };
        writeln!(out, "{name}: {state}")?;
        // A wrong record is the news, whatever else is only unknown.
        if found == Exit::DataErr || exit == Exit::Ok {
            exit = found;
        }
    }
    Ok(exit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use authn::tag_value;

    #[test]
    fn a_long_record_is_written_in_strings_that_dns_can_carry() {
        let line = zone_line("a.test", "s1", &"x".repeat(600));
        let strings: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        assert_eq!(strings.iter().map(|one| one.len()).collect::<Vec<_>>(), [255, 255, 90]);
        assert!(line.starts_with("s1._domainkey.a.test. IN TXT ( \""));
    }

    #[test]
    fn tags_are_compared_without_white_space() {
        assert_eq!(tag_value("v=DKIM1; p=AB\tC D=", "p").as_deref(), Some("ABCD="));
        assert_eq!(tag_value("v=DKIM1", "p"), None);
    }
}
