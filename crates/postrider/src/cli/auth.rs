//! `postrider auth`: makes lines of a file of users, and tries passwords.

use super::{CliError, Ending, args::HashScheme};
use accept::logins::{DovecotAuth, MapUsers, TokenVerifier, random, verify_by_directory};
use auth::{Introspected, NewScheme, ScramHash, Secret};
use config::{Settings, UserStore, read_passwd};
use console::runtime;
use control::Exit;
use maps::Reference;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::{
    io::{self, BufRead as _, IsTerminal as _, Write},
    path::Path,
};

/// Makes a hash; needs no configuration.
pub(super) fn hash(scheme: HashScheme, user: Option<&str>, out: &mut dyn Write) -> Ending {
    if let Some(user) = user.filter(|user| user.is_empty() || user.contains([':', ' ', '\t', '\n'])) {
        return Err(CliError::new(
            Exit::Usage,
            format!("`{user}` cannot be a user name: it has no colon and no space"),
        ));
    }
    let password = read_password(true)?;
    let scheme = match scheme {
        HashScheme::Argon2id => NewScheme::Argon2id,
        HashScheme::ScramSha256 => NewScheme::ScramSha256,
        HashScheme::ScramSha1 => NewScheme::ScramSha1,
        HashScheme::Sha512Crypt => NewScheme::Sha512Crypt,
        HashScheme::Bcrypt => NewScheme::Bcrypt,
    };
    let hash = scheme.hash(&password, random()).map_err(|why| CliError::new(Exit::DataErr, why))?;
    match user {
        Some(user) => writeln!(out, "{user}:{hash}")?,
        None => writeln!(out, "{hash}")?,
    }
    Ok(Exit::Ok)
}

/// Tries a password, as AUTH PLAIN does.
pub(super) fn test(user: &str, settings: &Settings, out: &mut dyn Write) -> Ending {
    let login = match &settings.auth.users {
        Some(UserStore::Passwd(path)) => {
            let users = read_passwd(path).map_err(|e| CliError::new(Exit::Config, e.to_string()))?;
            users.get(user).cloned().ok_or_else(|| path.display().to_string())
        }
        Some(UserStore::Map(map)) => {
            let users = MapUsers::new(accept::maps(settings, None), map.clone());
            let found = console::runtime()?.block_on(users.get(user));
            let found = found.map_err(|e| CliError::new(Exit::TempFail, e.to_string()))?;
            found.map(|found| found.login).ok_or_else(|| format!("{map}, or locked there"))
        }
        Some(UserStore::Dovecot(path)) => return test_by_dovecot(user, path, settings, out),
        Some(UserStore::Bind(map)) => return test_by_directory(user, map, settings, out),
        // No configuration of a command has the store of the capture mode.
        Some(UserStore::Anybody) | None => {
            let text = "nobody can log in: add `users = \"passwd:FILE\"` to [auth] in the configuration";
            return Err(CliError::new(Exit::Config, text));
        }
    };
    let login = match login {
        Ok(login) => login,
        Err(store) => {
            writeln!(out, "{user}: not in {store}")?;
            return Ok(Exit::NoPerm);
        }
    };
    let password = Secret::new(read_password(false)?);
    if !login.password.is(&password) {
        writeln!(out, "{}: wrong password", login.name)?;
        return Ok(Exit::NoPerm);
    }
    let scram = [(ScramHash::Sha256, "SCRAM-SHA-256"), (ScramHash::Sha1, "SCRAM-SHA-1")];
    let scram = scram.iter().filter(|(hash, _)| login.password.has_scram(*hash)).map(|(_, name)| *name);
    let own: Vec<&str> = ["PLAIN", "LOGIN"].into_iter().chain(scram).collect();
    let offered = offered(settings)?;
    let used: Vec<&str> = own.iter().copied().filter(|name| offered.iter().any(|o| **o == **name)).collect();
    match used.is_empty() {
        false => writeln!(out, "{}: right; can log in with {}", login.name, used.join(", "))?,
        true => writeln!(
            out,
            "{}: right; but cannot log in: the password is for {}, and listeners offer {}",
            login.name,
            own.join(", "),
            offered.join(", ")
        )?,
    }
    Ok(if used.is_empty() { Exit::NoPerm } else { Exit::Ok })
}

/// Returns the names of the mechanisms that listeners offer.
fn offered(settings: &Settings) -> Result<Vec<Box<str>>, CliError> {
    accept::logins::offered_mechanisms(settings).map_err(|why| CliError::new(Exit::Config, why))
}

/// Tries a token, as AUTH OAUTHBEARER does.
pub(super) fn test_token(user: &str, settings: &Settings, out: &mut dyn Write) -> Ending {
    let bad = |why: String| CliError::new(Exit::Config, why);
    let Some(verifier) = TokenVerifier::new(settings).map_err(bad)? else {
        return Err(bad("no server is asked about tokens: add `introspection` to [oauth]".to_owned()));
    };
    let token = Secret::new(read_password(false)?);
    let asked = runtime()?.block_on(verifier.introspect(&token));
    let asked =
        asked.map_err(|why| CliError::new(Exit::TempFail, format!("ask {}: {why}", verifier.url())))?;
    let fault = match asked {
        Introspected::Refused(why) => format!("the token is refused: {why}"),
        Introspected::Active { token, .. } if token.login.to_lowercase() != user.to_lowercase() => {
            format!("the token is that of {}", token.login)
        }
        Introspected::Active { token, .. } if !token.is_for_mail => {
            format!("the token lacks a scope: {}", verifier.advice().scope.as_deref().unwrap_or_default())
        }
        Introspected::Active { token, expires_in } => {
            let until =
                expires_in.map_or_else(String::new, |time| format!("; it expires in {} s", time.as_secs()));
            writeln!(out, "{}: the token is valid{until}", token.login)?;
            return Ok(Exit::Ok);
        }
    };
    writeln!(out, "{user}: {fault}")?;
    Ok(Exit::NoPerm)
}

fn test_by_directory(user: &str, map: &Reference, settings: &Settings, out: &mut dyn Write) -> Ending {
    let password = Secret::new(read_password(false)?);
    let maps = accept::maps(settings, None);
    let verified = console::runtime()?.block_on(verify_by_directory(&maps, map, user, &password));
    match verified.map_err(|e| CliError::new(Exit::TempFail, e.to_string()))? {
        Some(name) => writeln!(out, "{name}: right; listeners offer {}", offered(settings)?.join(", "))?,
        None => {
            writeln!(out, "{user}: wrong password, or no such user")?;
            return Ok(Exit::NoPerm);
        }
    }
    Ok(Exit::Ok)
}

fn test_by_dovecot(user: &str, path: &Path, settings: &Settings, out: &mut dyn Write) -> Ending {
    let dovecot = DovecotAuth::new(path);
    let unavailable = |why: String| CliError::new(Exit::TempFail, why);
    dovecot.ask_mechanisms().map_err(unavailable)?;
    let mechanisms = offered(settings)?.join(", ");
    match dovecot.test(user, &read_password(false)?).map_err(unavailable)? {
        Some(user) => writeln!(out, "{user}: right; listeners offer {mechanisms}")?,
        None => {
            writeln!(out, "{user}: wrong password, or no such user")?;
            return Ok(Exit::NoPerm);
        }
    }
    Ok(Exit::Ok)
}

/// Reads a password: from a terminal without showing it, twice if it is new; else the first line of standard input.
fn read_password(is_new: bool) -> Result<String, CliError> {
    let stdin = io::stdin();
    let password = if stdin.is_terminal() {
        let first = hidden_line("Password: ")?;
        if is_new && hidden_line("Again: ")? != first {
            return Err(CliError::new(Exit::DataErr, "the passwords differ"));
        }
        first
    } else {
        line()?
    };
    if password.is_empty() {
        return Err(CliError::new(Exit::DataErr, "there is no password: write it to standard input"));
    }
    Ok(password)
}

fn line() -> Result<String, CliError> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

fn hidden_line(prompt: &str) -> Result<String, CliError> {
    let stdin = io::stdin();
    let failed = |e: rustix::io::Errno| CliError::from(io::Error::from(e));
    let shown = tcgetattr(&stdin).map_err(failed)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    let mut err = io::stderr();
    write!(err, "{prompt}")?;
    err.flush()?;
    tcsetattr(&stdin, OptionalActions::Flush, &hidden).map_err(failed)?;
    let line = line();
    let restored = tcsetattr(&stdin, OptionalActions::Now, &shown);
    writeln!(err)?;
    restored.map_err(failed)?;
    line
}
