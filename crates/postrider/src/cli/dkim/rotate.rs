//! `postrider dkim rotate`: a domain signs with a new key once others can see its record.

use super::{check_selector, make_key, published, zone_line};
use crate::cli::{CliError, Ending, args::RotateArgs, status};
use authn::{Algorithm, key_name};
use config::{Loaded, Purpose, SignWith, signing_key};
use console::{
    runtime,
    settings::{find, show_problems},
};
use control::{
    Exit,
    client::{Client, ClientError},
};
use rustix::fs::{Gid, Mode, Uid, fchmod, fchown};
use server::wiring;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::Instant,
};
use upkeep::domain::{KeyState, compare_key};

/// A key that the configuration signs with now.
struct Current {
    /// Of its section in the configuration.
    number: usize,
    selector: String,
    algorithm: Algorithm,
    file: PathBuf,
    /// The domains under which a key has to be published.
    domains: Vec<String>,
}

/// Makes a key, waits for its record, writes it into the configuration, and reloads. A later call goes on where this one was ended.
pub(in crate::cli) fn run(args: &RotateArgs, explicit: Option<&Path>, out: &mut dyn Write) -> Ending {
    check_selector(&args.selector)?;
    let loaded = load(explicit)?;
    let current = current(&loaded, args)?;
    let file = current.file.with_file_name(format!("{}.{}.pem", args.domain, args.selector));
    let key = match signing_key(&file) {
        Ok(key) => {
            writeln!(out, "The new key is in {} already.\n", file.display())?;
            key
        }
        Err(_) if !file.exists() => {
            let (key, made) = make_key(current.algorithm, &file)?;
            // One that the daemon cannot read is none.
            like(&made, &current.file).map_err(|e| {
                let _ = fs::remove_file(&file);
                cannot("give the owner of the old key to", &file, &e)
            })?;
            writeln!(out, "The new key is in {}, with the owner of the old one.\n", file.display())?;
            key
        }
        Err(error) => return Err(CliError::new(Exit::NoInput, error.to_string())),
    };
    writeln!(out, "Publish in DNS:\n")?;
    for domain in &current.domains {
        writeln!(out, "{}", zone_line(domain, &args.selector, &key.record()))?;
    }
    writeln!(out)?;
    out.flush()?;
    if !wait_for_record(args, &loaded, &current.domains, &key.record(), out)? {
        let text =
            "the record cannot be seen yet, so the old key still signs; the same command goes on waiting";
        return Err(CliError::new(Exit::TempFail, text));
    }
    // It may have been edited meanwhile.
    let loaded = load(explicit)?;
    let now = self::current(&loaded, args)?;
    let place = |key: &str| format!("sign[{}].{key}", now.number);
    let key_file = file.display().to_string();
    let values = [(place("selector"), &*args.selector), (place("key"), &*key_file)];
    let (path, text) = loaded.with_values(&values).map_err(|why| CliError::new(Exit::Config, why))?;
    // A name that leads elsewhere stays.
    let path = fs::canonicalize(&path).map_err(|e| cannot("find", &path, &e))?;
    let before = fs::read_to_string(&path).map_err(|e| cannot("read", &path, &e))?;
    replace(&path, &text).map_err(|e| cannot("write", &path, &e))?;
    if let Err(error) = load(explicit) {
        replace(&path, &before).map_err(|e| cannot("write", &path, &e))?;
        return Err(error);
    }
    writeln!(out, "{} signs with {} now: {}", args.domain, args.selector, path.display())?;
    match Client::connect(&loaded.settings.control.socket) {
        Err(ClientError::NotRunning) => {
            writeln!(out, "the daemon does not run; it signs with the new key when it starts")?;
        }
        _ => _ = status::reload(&loaded.settings, out)?,
    }
    writeln!(
        out,
        "Leave the record of {} in DNS for a week, for mail that is on its way. Then remove it, and {}.",
        now.selector,
        now.file.display()
    )?;
    Ok(Exit::Ok)
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> CliError {
    CliError::new(Exit::CantCreate, format!("cannot {what} {}: {error}", path.display()))
}

fn load(explicit: Option<&Path>) -> Result<Loaded, CliError> {
    let found = find(explicit);
    config::load_with_origins(found.as_deref(), Purpose::Ask).map_err(|problems| show_problems(&problems))
}

/// Finds the key of a domain, and of a kind where it has one of each.
fn current(loaded: &Loaded, args: &RotateArgs) -> Result<Current, CliError> {
    let of_domain = loaded.settings.sign.iter().filter_map(|sign| match &sign.keys {
        SignWith::Key { selector, file } if published(sign).contains(&&*args.domain) => {
            let algorithm = signing_key(file).ok()?.algorithm();
            let domains = published(sign).into_iter().map(str::to_owned).collect();
            let (selector, file) = (selector.clone(), file.clone());
            let current = Current { number: sign.number, selector, algorithm, file, domains };
            args.kind.is_none_or(|kind| kind.algorithm() == algorithm).then_some(current)
        }
        _ => None,
    });
    let mut of_domain: Vec<Current> = of_domain.collect();
    let error = |text: String| Err(CliError::new(Exit::Config, text));
    match of_domain.len() {
        1 if of_domain[0].selector == args.selector => {
            error(format!("{} signs with {} already: name a new selector", args.domain, args.selector))
        }
        1 => Ok(of_domain.remove(0)),
        0 => error(format!(
            "no [[sign]] with a `key` that can be read names {}: see `postrider dkim show`; keys in a map are changed there",
            args.domain
        )),
        _ => error(format!("{} has several keys: add --kind rsa or --kind ed25519", args.domain)),
    }
}

/// Looks for the record until it is there; false if the time is over.
fn wait_for_record(
    args: &RotateArgs,
    loaded: &Loaded,
    domains: &[String],
    record: &str,
    out: &mut dyn Write,
) -> Result<bool, CliError> {
    let (begun, mut told) = (Instant::now(), Vec::new());
    let runtime = runtime()?;
    let _guard = runtime.enter();
    loop {
        // A cache would keep the answer that there is none.
        let dns = wiring::dns(&loaded.settings).map_err(|why| CliError::new(Exit::Config, why))?;
        let names = domains.iter().map(|domain| key_name(&args.selector, domain));
        let states: Vec<(String, KeyState)> = names
            .map(|name| {
                let state = runtime.block_on(compare_key(&dns, &name, record));
                (name, state)
            })
            .collect();
        let lines: Vec<String> = states.iter().map(|(name, state)| format!("{name}: {state}")).collect();
        if lines != told {
            lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
            out.flush()?;
            told = lines;
        }
        if states.iter().all(|(_, state)| matches!(state, KeyState::Published)) {
            return Ok(true);
        }
        let left = args.wait.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(false);
        }
        thread::sleep(left.min(args.interval));
    }
}

/// Gives a file the owner and the mode of another one.
fn like(file: &File, other: &Path) -> io::Result<()> {
    let (old, new) = (fs::metadata(other)?, file.metadata()?);
    if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
        fchown(file, Some(Uid::from_raw(old.uid())), Some(Gid::from_raw(old.gid())))?;
    }
    fchmod(file, Mode::from_raw_mode(old.mode() & 0o777))?;
    Ok(())
}

/// Replaces a file; a power cut leaves the one or the other.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = like(&file, path)
        .and_then(|()| file.write_all(text.as_bytes()))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    File::open(folder)?.sync_all()
}
