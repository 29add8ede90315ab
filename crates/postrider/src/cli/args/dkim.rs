//! The arguments of `postrider dkim`.

use clap::Subcommand;
use std::path::PathBuf;

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
    /// Look up the DNS record of each key in the configuration
    ///
    /// The exit code is 0 when each is published, 65 when one is missing or is another key's, and 75 when DNS does not answer.
    Check,
}

/// A kind of signing key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum KeyKind {
    /// RSA with 2048 bits
    Rsa,
    /// Ed25519 (RFC 8463)
    Ed25519,
}
