//! The store of users who may log in.

use crate::value::{Context, Found, Value, text, text_value};
use auth::{LineProblem, PasswdFile};
use maps::{NamedMap, Reference};
use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// The place of users and their passwords.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserStore {
    /// `passwd:FILE`, in Dovecot's passwd-file format.
    Passwd(PathBuf),
    /// `dovecot:SOCKET`, Dovecot's auth socket for clients.
    Dovecot(PathBuf),
    /// A map from logins to stored passwords.
    Map(Reference),
    /// `bind:NAME`, a directory that verifies passwords.
    Bind(Reference),
    /// Every login is right, with any password: the capture mode, which sends nothing. No configuration can say so.
    Anybody,
}

text_value!(
    UserStore,
    "a user store",
    "\"passwd:/etc/postrider/users\", \"dovecot:/run/dovecot/auth-client\", \"map:NAME\" or \"bind:NAME\"",
    parse,
    |store| match store {
        UserStore::Passwd(path) => format!("passwd:{}", path.display()),
        UserStore::Dovecot(path) => format!("dovecot:{}", path.display()),
        UserStore::Map(map) => map.to_string(),
        UserStore::Bind(map) => map.to_string().replacen("map:", "bind:", 1),
        UserStore::Anybody => "anybody".to_owned(),
    }
);

fn parse(text: &str, base: &Path) -> Result<UserStore, (String, Option<String>)> {
    match text.split_once(':') {
        Some(("passwd", file)) if !file.is_empty() && !file.contains('\0') => {
            Ok(UserStore::Passwd(base.join(file)))
        }
        Some(("dovecot", socket)) if !socket.is_empty() && !socket.contains('\0') => {
            Ok(UserStore::Dovecot(base.join(socket)))
        }
        Some(("bind", name)) if NamedMap::is_name(name) => Ok(UserStore::Bind(Reference::Named(name.into()))),
        Some(("passwd" | "dovecot" | "bind", _)) | None => Err(("not a user store".to_owned(), None)),
        Some(_) => Reference::parse(text, base).map(UserStore::Map).map_err(|(what, help)| {
            let is_kind = !what.starts_with("there is no kind");
            if is_kind { (what, Some(help)) } else { ("not a user store".to_owned(), None) }
        }),
    }
}

/// The reason why a file of users cannot be used.
#[derive(Debug)]
pub enum PasswdFileError {
    /// The file cannot be read.
    Io(PathBuf, io::Error),
    /// Lines of the file cannot be used; never empty.
    Lines(PathBuf, Vec<LineProblem>),
}

impl fmt::Display for PasswdFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "read {}: {error}", path.display()),
            Self::Lines(path, problems) => {
                for (number, LineProblem { line, column, text }) in problems.iter().enumerate() {
                    let separator = if number == 0 { "" } else { "\n" };
                    write!(f, "{separator}{}:{line}:{column}: {text}", path.display())?;
                }
                Ok(())
            }
        }
    }
}

/// Reads a file of users.
///
/// # Errors
/// The file cannot be read, or has lines that cannot be used.
pub fn read_passwd(path: &Path) -> Result<PasswdFile, PasswdFileError> {
    let text = ::maps::read_text(path).map_err(|e| PasswdFileError::Io(path.to_owned(), e))?;
    PasswdFile::parse(&text).map_err(|problems| PasswdFileError::Lines(path.to_owned(), problems))
}
