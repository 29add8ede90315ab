//! The files of `[tls]`: what is in them, and whether it can be used. A check reads them, and the
//! daemon by the same functions, so that what was checked starts.

use crate::{Settings, TlsVersion};
use rustls::{
    RootCertStore, SupportedProtocolVersion,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
    server::ParsedCertificate,
    sign::{CertifiedKey, SigningKey},
};
use std::{fmt, path::Path, sync::Arc};

/// A certificate and those that signed it, in that order.
pub type Chain = Vec<CertificateDer<'static>>;

/// The reason why a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    /// Doing what, to what: why.
    pub what: String,
    /// The reason in a few words.
    pub label: String,
    /// Advice: what to write or do instead.
    pub help: String,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

fn unusable(doing: &str, path: &Path, label: impl Into<String>, help: impl Into<String>) -> Unusable {
    let label = label.into();
    Unusable { what: format!("{doing} {}: {label}", path.display()), label, help: help.into() }
}

/// Returns the one cryptography that everything with TLS uses.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Returns the TLS versions for inbound and outbound connections.
pub fn versions(settings: &Settings) -> &'static [&'static SupportedProtocolVersion] {
    static FROM_12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12, &rustls::version::TLS13];
    static FROM_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
    match settings.tls.min_version {
        TlsVersion::V12 => FROM_12,
        TlsVersion::V13 => FROM_13,
    }
}

/// Returns the authorities of a file, or those of Mozilla.
///
/// # Errors
/// The file cannot be read or has no usable certificate; the text names it.
pub fn roots(file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match file {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            for authority in authorities(path).map_err(|e| e.to_string())? {
                roots.add(authority).map_err(|e| format!("use {}: {e}", path.display()))?;
            }
        }
    }
    Ok(roots)
}

/// The certificates of a PEM file; never none.
///
/// # Errors
/// When it cannot be read, or has no certificate, or one that is none.
pub fn chain(path: &Path) -> Result<Chain, Unusable> {
    chain_in(&::maps::read_file(path).map_err(|e| bad_chain(path, e.to_string()))?, path)
}

/// The certificates of a PEM file with this content; never none.
///
/// # Errors
/// When it has no certificate, or one that is none.
pub fn chain_in(bytes: &[u8], path: &Path) -> Result<Chain, Unusable> {
    let read: Result<Chain, pem::Error> = CertificateDer::pem_slice_iter(bytes).collect();
    let chain = read.map_err(|e| bad_chain(path, damage(&e)))?;
    if chain.is_empty() {
        return Err(bad_chain(path, lacks(bytes, "certificate")));
    }
    for certificate in &chain {
        ParsedCertificate::try_from(certificate)
            .map_err(|_| bad_chain(path, "a certificate in it is broken".to_owned()))?;
    }
    Ok(chain)
}

fn bad_chain(path: &Path, label: String) -> Unusable {
    let help = "name a file with `-----BEGIN CERTIFICATE-----` in it; \
                `openssl x509 -inform der -in FILE` converts one from DER";
    unusable("read the certificate", path, label, help)
}

/// Describes the damage of a PEM file in words; the texts of the library have the octets as numbers.
fn damage(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!(
                "the line -----END {}----- is missing: the file is cut or damaged",
                String::from_utf8_lossy(end_marker)
            )
        }
        pem::Error::IllegalSectionStart { line } => {
            format!("this is not PEM: the line {:?} is damaged", String::from_utf8_lossy(line))
        }
        error => format!("this is not PEM: {error}"),
    }
}

/// Describes a file that lacks the PEM section that was looked for.
fn lacks(bytes: &[u8], what: &str) -> String {
    let has = |text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    if !has("-----BEGIN ") {
        "this is not PEM".to_owned()
    } else if what == "certificate" && has("PRIVATE KEY-----") {
        "no certificate is in it, but a private key".to_owned()
    } else if what == "private key" && has("BEGIN ENCRYPTED PRIVATE KEY-----") {
        "the private key in it is encrypted".to_owned()
    } else if what == "private key" && has("BEGIN CERTIFICATE-----") {
        "no private key is in it, but a certificate".to_owned()
    } else {
        format!("no {what} is in it")
    }
}

/// Returns the host names of a certificate in lower case, wildcards among them.
pub fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else { return Vec::new() };
    certificate.valid_dns_names().map(str::to_ascii_lowercase).collect()
}

/// The private key of a PEM file.
///
/// # Errors
/// When it cannot be read, or has no key that can be used.
pub fn key(path: &Path) -> Result<Arc<dyn SigningKey>, Unusable> {
    key_in(&::maps::read_file(path).map_err(|e| bad_key(path, e.to_string()))?, path)
}

/// The private key of a PEM file with this content.
///
/// # Errors
/// When it has no key that can be used.
pub fn key_in(bytes: &[u8], path: &Path) -> Result<Arc<dyn SigningKey>, Unusable> {
    let key = PrivateKeyDer::from_pem_slice(bytes).map_err(|e| match e {
        pem::Error::NoItemsFound => bad_key(path, lacks(bytes, "private key")),
        e => bad_key(path, damage(&e)),
    })?;
    let provider = aws_lc_rs::default_provider();
    let loaded = provider.key_provider.load_private_key(key);
    loaded.map_err(|e| bad_key(path, format!("this key cannot be used: {e}")))
}

fn bad_key(path: &Path, label: String) -> Unusable {
    let help = "name a file with `-----BEGIN PRIVATE KEY-----` in it; \
                `openssl pkey -in FILE` decrypts an encrypted key";
    unusable("read the private key", path, label, help)
}

/// A certificate and its key, from their files.
///
/// # Errors
/// When a file cannot be read or used, or the key is another certificate's.
pub fn read_pair(certificate: &Path, key_file: &Path) -> Result<CertifiedKey, Unusable> {
    pair(chain(certificate)?, key(key_file)?, key_file)
}

/// Both, if they belong together; `path` is the key's.
///
/// # Errors
/// When the key is another certificate's.
pub fn pair(chain: Chain, key: Arc<dyn SigningKey>, path: &Path) -> Result<CertifiedKey, Unusable> {
    let fits = |certificate: &CertificateDer<'static>| {
        let one = CertifiedKey::new(vec![certificate.clone()], key.clone());
        // Of a key that does not tell its public half nothing is known, which is no reason against it.
        !matches!(
            one.keys_match(),
            Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch))
        )
    };
    let doing = "use the private key";
    match chain.iter().position(fits) {
        Some(0) => Ok(CertifiedKey::new(chain, key)),
        Some(at) => {
            let label = format!("it belongs to certificate {} of the file", at + 1);
            Err(unusable(
                doing,
                path,
                label,
                "put the server's own certificate first, then those that signed it",
            ))
        }
        None => {
            let label = "it is the key of another certificate";
            Err(unusable(doing, path, label, "name the key that the certificate was made with"))
        }
    }
}

/// The certificates of a PEM file with authorities.
///
/// # Errors
/// As for [`chain`], and when one cannot be an authority's.
pub fn authorities(path: &Path) -> Result<Chain, Unusable> {
    let authorities = chain(path)?;
    for certificate in &authorities {
        RootCertStore::empty().add(certificate.clone()).map_err(|e| {
            let label = format!("this is no authority's certificate: {e}");
            unusable("read the authorities", path, label, "name a file with certificates of authorities")
        })?;
    }
    Ok(authorities)
}
