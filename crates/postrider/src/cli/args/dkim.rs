//! The arguments of `postrider dkim`.

use authn::Algorithm;
use clap::Subcommand;
use std::{path::PathBuf, time::Duration};

#[derive(Debug, Subcommand)]
pub(crate) enum DkimCommand {
    /// Make a private key, and print its DNS record and the section for the configuration
    New {
        /// The domain that signs
        domain: String,
        /// The name of the key in DNS. Use a new one for each key, such as the year and month
        #[arg(long, value_name = "SELECTOR")]
        selector: String,
        /// The kind of the key. All receivers know rsa; some do not know ed25519, so use it next to an RSA key
        #[arg(long, value_name = "KIND", default_value = "rsa")]
        kind: KeyKind,
        /// The file to create, readable by its owner only [default: DOMAIN.SELECTOR.pem]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Print the DNS records of the keys in the configuration
    Show,
    /// Change the key of a domain: make one, wait until its DNS record can be seen, then sign with it
    ///
    /// The new key is made next to the old one, with its owner. When the record can be seen, `selector` and `key` of the [[sign]] section are
    /// changed in the configuration, and the daemon reloads it. Until then the old key signs. The exit code is 75 if the record
    /// cannot be seen in time; run the same command again to go on waiting.
    Rotate(RotateArgs),
    /// Look up the DNS record of each key in the configuration
    ///
    /// The exit code is 0 when each is published, 65 when one is missing or is another key's, and 75 when DNS does not answer.
    Check,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RotateArgs {
    /// The domain that signs
    pub(crate) domain: String,
    /// The name of the new key in DNS
    #[arg(long, value_name = "SELECTOR")]
    pub(crate) selector: String,
    /// The kind of the key to change, if the domain has one of each
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<KeyKind>,
    /// How long to wait for the record
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    pub(crate) wait: Duration,
    /// How often to look at DNS
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) interval: Duration,
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    config::parse_duration(text).ok_or("write a time such as 30s or 1h")
}

/// A kind of signing key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum KeyKind {
    /// RSA with 2048 bits
    Rsa,
    /// Ed25519 (RFC 8463)
    Ed25519,
}

impl KeyKind {
    pub(crate) fn algorithm(self) -> Algorithm {
        match self {
            Self::Rsa => Algorithm::RsaSha256,
            Self::Ed25519 => Algorithm::Ed25519Sha256,
        }
    }
}
