//! Names of SASL mechanisms.

use crate::scram::ScramHash;
use std::{fmt, str::FromStr};

/// SASL mechanisms that this server offers to clients, or uses to log in to a next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mechanism {
    /// RFC 7677, bound to the TLS connection.
    ScramSha256Plus,
    /// SCRAM-SHA-256 (RFC 7677).
    ScramSha256,
    /// RFC 5802, bound to the TLS connection.
    ScramSha1Plus,
    /// SCRAM-SHA-1 (RFC 5802).
    ScramSha1,
    /// The name in a client certificate (RFC 4422, appendix A).
    External,
    /// A token (RFC 7628).
    OauthBearer,
    /// Google's form of the same.
    Xoauth2,
    /// Name and password in one message (RFC 4616).
    Plain,
    /// The name and the password as two responses; never standardised, used everywhere.
    Login,
}

/// Names, the strongest mechanism first.
const NAMES: [(Mechanism, &str); 9] = [
    (Mechanism::ScramSha256Plus, "SCRAM-SHA-256-PLUS"),
    (Mechanism::ScramSha256, "SCRAM-SHA-256"),
    (Mechanism::ScramSha1Plus, "SCRAM-SHA-1-PLUS"),
    (Mechanism::ScramSha1, "SCRAM-SHA-1"),
    (Mechanism::External, "EXTERNAL"),
    (Mechanism::OauthBearer, "OAUTHBEARER"),
    (Mechanism::Xoauth2, "XOAUTH2"),
    (Mechanism::Plain, "PLAIN"),
    (Mechanism::Login, "LOGIN"),
];

impl Mechanism {
    /// Returns all mechanisms, the strongest first.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.into_iter().map(|(mechanism, _)| mechanism)
    }

    /// Returns the registered name.
    pub fn as_str(self) -> &'static str {
        NAMES.iter().find(|(mechanism, _)| *mechanism == self).map_or("", |(_, name)| name)
    }

    /// Returns the hash of a SCRAM mechanism; `None` for other mechanisms.
    pub fn scram_hash(self) -> Option<ScramHash> {
        match self {
            Self::ScramSha256Plus | Self::ScramSha256 => Some(ScramHash::Sha256),
            Self::ScramSha1Plus | Self::ScramSha1 => Some(ScramHash::Sha1),
            _ => None,
        }
    }

    /// Returns whether the mechanism takes a token instead of a password.
    pub fn takes_token(self) -> bool {
        matches!(self, Self::OauthBearer | Self::Xoauth2)
    }

    /// Returns whether the mechanism needs channel bindings.
    pub fn is_plus(self) -> bool {
        matches!(self, Self::ScramSha256Plus | Self::ScramSha1Plus)
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Mechanism {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(_, name)| name.eq_ignore_ascii_case(text));
        found.map(|(mechanism, _)| *mechanism).ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|(_, name)| *name).collect();
            format!("no mechanism; there are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_read_in_any_case() {
        for mechanism in Mechanism::all() {
            assert_eq!(mechanism.to_string().to_ascii_lowercase().parse(), Ok(mechanism));
            assert_eq!(mechanism.is_plus(), mechanism.as_str().ends_with("-PLUS"));
        }
        assert!("CRAM-MD5".parse::<Mechanism>().unwrap_err().contains("SCRAM-SHA-256"));
    }
}
