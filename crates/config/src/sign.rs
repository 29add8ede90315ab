//! `[[sign]]`: the keys that sign mail (DKIM, RFC 6376).

use crate::{
    certificate::Unusable,
    domain::DomainPattern,
    section::{Reading, section},
    value::{HostName, Word},
};
use authn::SigningKey;
use data_encoding::BASE64;
use maps::Reference;
use std::path::{Path, PathBuf};
use toml::de::DeTable;

section! {
    /// A DKIM signature (RFC 6376) for mail of your own domains. Mail is signed when its From field has one address whose domain is
    /// in `domains`, and when its client may send as that domain: local programs, clients in `relay.networks`, logins that own the
    /// address (see `auth.senders`), and this server's own notifications. Strangers' mail is never signed. The section can be
    /// repeated: each one that matches adds a signature, so that a domain can sign with RSA and with Ed25519. All signatures are
    /// `relaxed/relaxed` with SHA-256, and cover the header fields once more than they occur, so that nobody can add a second
    /// Subject. `postrider dkim new` makes a key and prints its DNS record. `postrider reload` reads the keys again.
    pub(crate) SignKeys = "sign" many {
        /// Domains of From: `example.com`, `*.example.com` for those below it, `*` for all.
        domains: Vec<DomainPattern> = "[]",
        /// The domain that signs (`d=`). Default: the domain of From. DMARC accepts a parent domain of it, too.
        domain: Option<HostName> = "",
        /// The name of the key in DNS (`s=`): the public key is the TXT record of `SELECTOR._domainkey.DOMAIN`.
        selector: Option<Word> = "",
        /// PEM file with the private key: RSA with 2048 bits or more, or Ed25519.
        key: Option<PathBuf> = "",
        /// Instead of `selector` and `key`: a map from the domain of From to `SELECTOR:KEY`, where `KEY` is the private key
        /// in PKCS #8 as base64, on one line: what stands between the first and the last line of the PEM file. If the map does not
        /// answer, or has no key for a domain that `domains` names, the mail gets 451 4.7.5 and is not sent without a signature.
        /// Without `domains`, all domains that the map has are signed.
        keys: Option<Reference> = "",
    }
}

/// A `[[sign]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sign {
    /// The number of its section in the file, from 0.
    pub number: usize,
    /// Domains of From; empty: all that the map of keys has.
    pub domains: Vec<DomainPattern>,
    /// The domain that signs. None: that of From.
    pub domain: Option<String>,
    /// One key for all of the domains, or a map with a key for each.
    pub keys: SignWith,
}

/// The place of the keys that sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignWith {
    /// One key.
    Key {
        /// Its name in DNS.
        selector: String,
        /// A PEM file with the private key, PKCS #8.
        file: PathBuf,
    },
    /// A map from a domain to a selector and a key.
    Map(Reference),
}

impl Sign {
    /// Returns whether mail from a domain, given as [`mail::Domain::key`], is to be signed.
    pub fn matches(&self, domain: &str) -> bool {
        self.domains.iter().any(|pattern| pattern.matches(domain))
    }

    /// Returns the file of the key.
    pub fn file(&self) -> Option<&PathBuf> {
        match &self.keys {
            SignWith::Key { file, .. } => Some(file),
            SignWith::Map(_) => None,
        }
    }
}

/// Returns whether a text can be the name of a key in DNS: labels of letters, digits, hyphens and underscores.
pub fn is_selector(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_octet = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'-' || octet == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(is_octet)
    };
    text.len() <= 200 && text.split('.').all(is_label)
}

/// The value of a map in [`SignWith::Map`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappedKey<'v> {
    /// The name of the key in DNS.
    pub selector: &'v str,
    /// The private key, PKCS #8 in base64.
    pub key: &'v str,
}

impl<'v> MappedKey<'v> {
    /// Reads `SELECTOR:KEY`, but not the key, which takes as long as signing.
    ///
    /// # Errors
    /// What to write instead.
    pub fn parse(value: &'v str) -> Result<Self, String> {
        let parts = value.split_once(':').filter(|(selector, _)| is_selector(selector));
        let (selector, key) = parts.ok_or("write SELECTOR:KEY")?;
        Ok(Self { selector, key: key.trim() })
    }

    /// Reads the private key.
    ///
    /// # Errors
    /// It is not a key that signs: why.
    pub fn read(&self) -> Result<SigningKey, String> {
        let der = BASE64.decode(self.key.as_bytes()).map_err(|_| "the key is not base64 on one line")?;
        SigningKey::from_pkcs8(&der).map_err(|error| error.to_string())
    }
}

/// Reads a private key that signs.
///
/// # Errors
/// The file cannot be read, or has no key that signs.
pub fn signing_key(path: &Path) -> Result<SigningKey, Unusable> {
    let help = "`postrider dkim new` makes a key; `openssl pkey -in FILE` decrypts one";
    let unusable = |label: String| Unusable {
        what: format!("read the signing key {}: {label}", path.display()),
        label,
        help: help.to_owned(),
    };
    let bytes = maps::read_file(path).map_err(|e| unusable(e.to_string()))?;
    SigningKey::from_pem(&bytes).map_err(|e| unusable(e.to_string()))
}

impl Reading<'_> {
    pub(crate) fn sign(&mut self, root: &DeTable<'_>) -> Vec<Sign> {
        let tables = self.tables(root, "sign").unwrap_or_default();
        let mut all = Vec::new();
        for (number, table) in tables.iter().enumerate() {
            let keys: SignKeys = self.section(&format!("sign[{number}]"), Some(table.get_ref()));
            let (has, span) = (|key: &str| table.get_ref().contains_key(key), table.span());
            let with = if has("keys") {
                for key in ["selector", "key"].into_iter().filter(|key| has(key)) {
                    let what = format!("`{key}` and `keys` say twice where the key is");
                    self.cx.problem(
                        span.clone(),
                        what,
                        "in this section",
                        format!("remove `{key}` or `keys`"),
                    );
                }
                keys.keys.map(SignWith::Map)
            } else {
                let examples = [
                    ("selector", "selector = \"2026\""),
                    ("key", "key = \"dkim/example.com.pem\""),
                    ("domains", "domains = [\"example.com\"]"),
                ];
                for (key, example) in examples.into_iter().filter(|(key, _)| !has(key)) {
                    self.missing(span.clone(), key, example);
                }
                keys.selector
                    .zip(keys.key)
                    .map(|(selector, file)| SignWith::Key { selector: selector.0, file })
            };
            if let Some(SignWith::Key { selector, .. }) = &with
                && !is_selector(selector)
            {
                let what = format!("`{selector}` is not a selector");
                let help = "write letters, digits and hyphens, such as \"2026\" or \"mail\"".to_owned();
                self.cx.problem(span, what, "not a name in DNS", help);
            }
            if let Some(keys_at) = with {
                let domain = keys.domain.map(|name| name.0);
                all.push(Sign { number, domains: keys.domains, domain, keys: keys_at });
            }
        }
        all
    }
}
