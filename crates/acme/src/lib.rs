//! Certificates from an authority that speaks ACME (RFC 8555): [`Worker`] obtains one, renews it in time, and hands each
//! one over to its owner. It shows the authority that the names are its own by `http-01`, by `tls-alpn-01` (RFC 8737), or by
//! `dns-01` with a program of the operator.
//!
//! The files are in [`Store`]; when a certificate is renewed is in [`schedule`]; what a new one must be before it is used
//! is in [`bundle`].

pub mod bundle;
mod client;
mod http_client;
mod order;
mod responder;
pub mod schedule;
mod store;
mod worker;

pub use bundle::Bundle;
pub use responder::{Answers, serve_http, serve_tls};
pub use store::Store;
pub use worker::{Handle, Status, Worker};

use rustls::RootCertStore;
use std::{future::Future, path::PathBuf, pin::Pin, sync::Arc};

/// The way in which the authority is shown that a name is this server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// `http-01`: a file at port 80 (RFC 8555 §8.3).
    Http,
    /// `tls-alpn-01`: a certificate at port 443 (RFC 8737).
    TlsAlpn,
    /// `dns-01`: a TXT record, made by the hook (RFC 8555 §8.4).
    Dns,
}

/// An account at the authority's own website, to which the ACME account is bound (RFC 8555 §7.3.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// Identifier of the key, the `kid` of RFC 8555 §7.3.4.
    pub key_id: String,
    /// The MAC key, decoded from base64url.
    pub key: Vec<u8>,
}

/// The certificate that is wanted, and the authority.
#[derive(Debug, Clone)]
pub struct Settings {
    /// URL of the authority's directory (RFC 8555 §7.1.1).
    pub directory: String,
    /// The mail address to which the authority writes.
    pub contact: Option<String>,
    /// Host names that the certificate has to cover.
    pub names: Vec<String>,
    /// The way in which the authority is convinced.
    pub method: Method,
    /// The account at the authority's website, if it wants one.
    pub external_account: Option<ExternalAccount>,
    /// Where keys of accounts and certificates are kept.
    pub folder: PathBuf,
    /// The authorities that are trusted for the HTTPS of the ACME server.
    pub roots: RootCertStore,
}

/// A call of the operator's program, for `dns-01`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookCall {
    /// True if the record is made, false if it is removed.
    pub is_present: bool,
    /// The name of the TXT record, such as `_acme-challenge.example.com`.
    pub name: String,
    /// Text of the TXT record (RFC 8555 §8.4).
    pub value: String,
}

/// The end of a call: the reason in words if it failed.
pub type HookEnd = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Runs the operator's program.
pub type Hook = Arc<dyn Fn(HookCall) -> HookEnd + Send + Sync>;
