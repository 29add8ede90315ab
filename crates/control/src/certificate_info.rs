//! Certificates, as operators see them.

use serde::{Deserialize, Serialize};

/// Where a certificate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateOrigin {
    /// The files that the configuration names.
    File,
    /// The authority of `[acme]`.
    Acme,
    /// Self-signed: the daemon made it at its start.
    SelfSigned,
}

impl CertificateOrigin {
    /// Returns the word for operators, such as `self-signed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Acme => "acme",
            Self::SelfSigned => "self-signed",
        }
    }
}

/// A certificate that listeners show their clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateInfo {
    /// Host names that the certificate is valid for.
    pub names: Vec<String>,
    /// The last second of its validity, in seconds since 1970.
    pub expires_seconds: u64,
    /// Where the certificate came from.
    pub origin: CertificateOrigin,
}

/// The state of the certificate that the daemon obtains. Times are in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewalInfo {
    /// Host names that the certificate must have.
    pub names: Vec<String>,
    /// The time of the next renewal; none while there is no certificate with these names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_seconds: Option<u64>,
    /// Certificates that were obtained since the start.
    pub obtained: u64,
    /// Attempts that failed since the start.
    pub failed: u64,
    /// Failures since the last certificate.
    pub failures_in_a_row: u32,
    /// The last failure since the last certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<RenewalFailure>,
    /// The time of the next attempt, if one has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_seconds: Option<u64>,
    /// True while the authority is being asked.
    pub is_busy: bool,
}

/// Why the last attempt to obtain a certificate failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewalFailure {
    /// In seconds since 1970.
    pub at_seconds: u64,
    /// The reason in words.
    pub text: String,
}
