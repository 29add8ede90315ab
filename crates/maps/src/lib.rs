//! Maps: tables of keys and values in files and behind sockets, which decide what exists and where mail goes.
//!
//! The tables themselves are pure modules: they read text and look keys up. [`FileMap`] reloads a table when its file
//! changes; a named map asks a server, a database or a directory. What a value means is the business of `rewrite` and `policy`.
//!
//! A look-up ends with a value, with none, or with an error. An error is never taken for "no such key". Each look-up has
//! a timeout, each table and each reply a largest size.
//!
//! Read first: [`Map`] and [`Maps`].

mod accounts;
pub mod aliases;
mod cache;
pub mod cdb;
pub mod cidr;
mod connection;
mod fault;
mod file;
mod file_map;
mod lines;
mod netstring;
mod patterns;
mod pool;
mod reference;
mod registry;
mod secret;
mod servers;
mod socketmap;
mod source;
mod table;
pub mod text;
mod width;

pub use accounts::Accounts;
pub use cache::Cached;
pub use connection::{Connection, Stream};
pub use fault::FileFault;
pub use file::{is_no_file, open, read_file, read_text};
pub use file_map::FileMap;
pub use lines::checked_text;
pub use netstring::{Netstring, NetstringError};
pub use patterns::Patterns;
pub use reference::{Kind, NamedMap, Reference};
pub use registry::{Checked, Maps, Observed, Purposes, Usable};
pub use secret::{SecretPlace, first_line};
pub use socketmap::SocketmapReply;
pub use source::{KEY, Ldap, LdapServer, Server, Source, SourceFault, Trust};
pub use table::Table;
pub use width::{are_too_wide, mapped_v4};

use mail::Answer;
use std::fmt;

/// What a map has for a key; may be empty.
pub type Value = Box<str>;

/// The answer of a map: the value, `None` if it has no such key, or the reason that it cannot say.
pub type Looked = Result<Option<Value>, LookupError>;

/// Whatever can be asked for the value of a key: a file, a server or a database.
pub trait Map: Send + Sync {
    /// Looks a key up. Tables of addresses and names fold the key to lower case.
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Looked>;

    /// As [`Map::get`], for a key that does not live as long as the answer.
    fn get_owned(&self, key: Box<str>) -> Answer<'_, Looked> {
        Answer::later(async move { self.get(&key).wait().await })
    }

    /// Connects to the server of the map, or opens its database and reads its query.
    fn check(&self) -> Answer<'_, Result<(), LookupError>> {
        Answer::Ready(Ok(()))
    }

    /// Logs in to the server of the map as the entry that a key finds, and returns the value of the key; none if there is no such
    /// entry or the password is wrong. Only directories can do that.
    fn verify<'a>(&'a self, _key: &'a str, _password: &'a str) -> Answer<'a, Looked> {
        Answer::Ready(Err(LookupError::new(&"the map", "it is not a directory, and verifies no password")))
    }
}

/// A look-up that failed: whether the key exists is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupError {
    /// As the configuration names it.
    pub map: Box<str>,
    /// Why it cannot answer, in words.
    pub what: Box<str>,
}

impl LookupError {
    /// A failure of this map; `what` is the reason.
    pub fn new(map: &impl fmt::Display, what: impl fmt::Display) -> Self {
        Self { map: map.to_string().into(), what: what.to_string().into() }
    }
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "look up in {}: {}", self.map, self.what)
    }
}

impl std::error::Error for LookupError {}
