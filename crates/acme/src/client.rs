//! The account at the authority, and what the authority says about renewals.

use crate::{Settings, Store, bundle::Bundle, http_client::Https, schedule};
use instant_acme::{
    Account, AccountBuilder, CertificateIdentifier, Error, ExternalAccountKey, NewAccount, Problem,
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The prefix of the kinds of problems (RFC 8555 §6.7).
const PROBLEM: &str = "urn:ietf:params:acme:error:";
/// The least and the longest time between two questions about a renewal (RFC 9773 §4.3.2).
const ASK_AFTER: [Duration; 2] = [Duration::from_secs(3600), Duration::from_secs(86_400)];

/// Why a step of the protocol failed, and what would help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// For the log and the operator, without control characters.
    pub(crate) text: String,
    pub(crate) remedy: Remedy,
}

/// A thing to do before the next attempt, which may be made at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Nothing helps but time.
    Wait,
    /// The authority has refused a nonce, and gave a new one.
    Again,
    /// The authority does not know the account: a new one has to be registered.
    NewAccount,
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self { text: mail::plain_text(&text).into_owned(), remedy: Remedy::Wait }
    }
}

impl Failure {
    pub(crate) fn new(doing: &str, error: &Error) -> Self {
        let remedy = match error {
            Error::Api(problem) if kind(problem) == "badNonce" => Remedy::Again,
            Error::Api(problem) if kind(problem) == "accountDoesNotExist" => Remedy::NewAccount,
            _ => Remedy::Wait,
        };
        Self { text: mail::plain_text(&format!("{doing}: {}", words(error))).into_owned(), remedy }
    }
}

fn words(error: &Error) -> String {
    match error {
        Error::Api(problem) => problem_words(problem),
        Error::Timeout(_) => "the authority did not decide in time".to_owned(),
        Error::Json(_) => "the answer is not one of an ACME server: is `directory` right?".to_owned(),
        other => other.to_string(),
    }
}

fn kind(problem: &Problem) -> &str {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    kind.strip_prefix(PROBLEM).unwrap_or(kind)
}

/// Returns what the authority says, with what it says of single names.
pub(crate) fn problem_words(problem: &Problem) -> String {
    let mut text = problem.detail.clone().unwrap_or_else(|| "the authority gives no reason".to_owned());
    for part in &problem.subproblems {
        if let Some(detail) = &part.detail {
            text = format!("{text}; {detail}");
        }
    }
    match kind(problem) {
        "" => text,
        kind => format!("{text} ({kind})"),
    }
}

/// Speaks ACME (RFC 8555) with one authority.
pub(crate) struct Client {
    pub(crate) settings: Settings,
    pub(crate) store: Store,
    http: Https,
    account: Option<Account>,
}

impl Client {
    pub(crate) fn new(settings: Settings) -> Result<Self, String> {
        let store = Store::new(&settings.folder, &settings.directory);
        let http = Https::new(settings.roots.clone())?;
        Ok(Self { settings, store, http, account: None })
    }

    /// Returns the account; opens one if there is none yet.
    pub(crate) async fn account(&mut self) -> Result<Account, Failure> {
        if let Some(account) = &self.account {
            return Ok(account.clone());
        }
        let builder = || -> AccountBuilder { Account::builder_with_http(Box::new(self.http.clone())) };
        let account = match self.store.read_account()? {
            Some(known) => {
                let opened = builder().from_credentials(known).await;
                opened.map_err(|e| Failure::new("use the account at the authority", &e))?
            }
            None => self.open_account(builder()).await?,
        };
        self.account = Some(account.clone());
        Ok(account)
    }

    async fn open_account(&self, builder: AccountBuilder) -> Result<Account, Failure> {
        let contact = self.settings.contact.as_ref().map(|address| format!("mailto:{address}"));
        let contact: Vec<&str> = contact.as_deref().into_iter().collect();
        let new =
            NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let external = self
            .settings
            .external_account
            .as_ref()
            .map(|own| ExternalAccountKey::new(own.key_id.clone(), &own.key));
        let made = builder.create(&new, self.settings.directory.clone(), external.as_ref()).await;
        let (account, credentials) =
            made.map_err(|e| Failure::new("open an account at the authority", &e))?;
        self.store.write_account(&credentials)?;
        tracing::info!("acme: opened the account {}", account.id());
        Ok(account)
    }

    /// Reads the account again before the next step.
    pub(crate) fn forget_account(&mut self) {
        self.account = None;
    }

    /// Opens a new account at the next step, because the authority does not know the old one.
    pub(crate) fn drop_account(&mut self) -> Result<(), String> {
        tracing::warn!("acme: the authority does not know the account any more: a new one is opened");
        self.account = None;
        self.store.drop_account()
    }

    /// Asks when the authority wants a certificate to be renewed (RFC 9773). Returns the time, in seconds since 1970, and
    /// when to ask again; none if the authority does not say.
    pub(crate) async fn suggested_renewal(&mut self, bundle: &Bundle) -> Option<(u64, Duration)> {
        let id = CertificateIdentifier::try_from(bundle.own()).ok()?;
        let account = self.account().await.ok()?;
        let (info, again) = account.renewal_info(&id).await.ok()?;
        let window = &info.suggested_window;
        let seconds = |time: i64| u64::try_from(time).unwrap_or_default();
        let (start, end) = (seconds(window.start.unix_timestamp()), seconds(window.end.unix_timestamp()));
        let [least, longest] = ASK_AFTER;
        Some((schedule::suggested_seconds(start, end, bundle.spread()), again.clamp(least, longest)))
    }
}

/// Returns the time in seconds since 1970.
pub(crate) fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
