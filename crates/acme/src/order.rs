//! One order: the names are shown to be this server's, one after the other, and the authority signs.

use crate::{
    Answers, Hook, HookCall, Method,
    bundle::Bundle,
    client::{Client, Failure, Remedy, now_seconds, problem_words},
};
use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeStatus, ChallengeType, Identifier,
    NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use std::time::Duration;

/// The time that the authority has to look at all names, and to sign.
const DECIDE_TIMEOUT: Duration = Duration::from_secs(180);
/// Whole orders that are begun again at once.
const ATTEMPTS: u32 = 8;

fn patience() -> RetryPolicy {
    RetryPolicy::new().initial_delay(Duration::from_millis(500)).backoff(1.5).timeout(DECIDE_TIMEOUT)
}

/// What proves control of the names: answers of our own, or records that the hook makes.
pub(crate) struct Proof {
    pub(crate) answers: Answers,
    pub(crate) hook: Option<Hook>,
    /// Records that were made and have to be removed.
    records: Vec<HookCall>,
}

impl Proof {
    pub(crate) fn new(answers: Answers, hook: Option<Hook>) -> Self {
        Self { answers, hook, records: Vec::new() }
    }

    async fn call(&self, call: HookCall) -> Result<(), String> {
        match &self.hook {
            Some(hook) => hook(call).await,
            None => Err("there is no program for dns-01".to_owned()),
        }
    }

    /// Answers a challenge.
    async fn show(
        &mut self,
        method: Method,
        challenge: &instant_acme::ChallengeHandle<'_>,
    ) -> Result<(), String> {
        let Identifier::Dns(name) = challenge.identifier().identifier else {
            return Err("the authority asks for something that is not a name".to_owned());
        };
        let authorization = challenge.key_authorization();
        match method {
            Method::Http => self.answers.add_file(&challenge.token, authorization.as_str()),
            Method::TlsAlpn => self.answers.add_certificate(name, authorization.digest().as_ref())?,
            Method::Dns => {
                let name = format!("_acme-challenge.{name}");
                let call = HookCall { is_present: true, name, value: authorization.dns_value() };
                // A program that failed may have made the record all the same.
                self.records.push(HookCall { is_present: false, ..call.clone() });
                self.call(call).await?;
            }
        }
        Ok(())
    }

    async fn withdraw(&mut self) {
        self.answers.clear();
        for record in std::mem::take(&mut self.records) {
            let name = record.name.clone();
            if let Err(why) = self.call(record).await {
                tracing::warn!("acme: the record {name} was not removed: {why}");
            }
        }
    }
}

impl Client {
    /// Obtains a certificate in place of `former`, if that is one of this authority. It has been checked and stored.
    pub(crate) async fn obtain(
        &mut self,
        proof: &mut Proof,
        former: Option<&Bundle>,
    ) -> Result<Bundle, Failure> {
        self.store.prepare()?;
        let mut attempt = 1;
        loop {
            let ended = self.obtain_once(proof, former).await;
            proof.withdraw().await;
            match ended {
                Err(failure) if failure.remedy == Remedy::Again && attempt < ATTEMPTS => attempt += 1,
                Err(failure) if failure.remedy == Remedy::NewAccount && attempt < ATTEMPTS => {
                    self.drop_account()?;
                    attempt = ATTEMPTS;
                }
                Err(failure) => {
                    self.forget_account();
                    return Err(failure);
                }
                obtained => return obtained,
            }
        }
    }

    async fn obtain_once(&mut self, proof: &mut Proof, former: Option<&Bundle>) -> Result<Bundle, Failure> {
        let account = self.account().await?;
        let names: Vec<Identifier> =
            self.settings.names.iter().map(|name| Identifier::Dns(name.clone())).collect();
        let mut order = begin(&account, &names, former).await?;
        self.prove(&mut order, proof).await?;
        let (chain, key) = self.sign(&mut order).await?;
        let pem = format!("{}\n{}\n", chain.trim_end(), key.trim_end());
        let bundle = Bundle::of(pem.as_bytes(), &self.store.certificate())?;
        bundle.check(&self.settings.names, now_seconds())?;
        if let Err(why) = self.store.write_certificate(&pem) {
            // It is good until the next start.
            tracing::error!("acme: the new certificate is used, and not stored: {why}");
        }
        Ok(bundle)
    }

    /// Answers the challenge of each name, and waits until the authority has looked.
    async fn prove(&self, order: &mut Order, proof: &mut Proof) -> Result<(), Failure> {
        let kind = match self.settings.method {
            Method::Http => ChallengeType::Http01,
            Method::TlsAlpn => ChallengeType::TlsAlpn01,
            Method::Dns => ChallengeType::Dns01,
        };
        let mut authorizations = order.authorizations();
        while let Some(next) = authorizations.next().await {
            let mut authorization = next.map_err(|e| Failure::new("ask what to prove", &e))?;
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let name = authorization.identifier().to_string();
            let Some(mut challenge) = authorization.challenge(kind.clone()) else {
                let text =
                    format!("{name}: the authority does not offer {}", method_name(self.settings.method));
                return Err(text.into());
            };
            proof.show(self.settings.method, &challenge).await.map_err(|why| format!("{name}: {why}"))?;
            challenge.set_ready().await.map_err(|e| Failure::new(&name, &e))?;
        }
        let decided = order.poll_ready(&patience()).await;
        if matches!(decided, Ok(OrderStatus::Ready)) {
            return Ok(());
        }
        // The order says no more than that something failed.
        match failed_challenge(order).await {
            Some(text) => Err(text.into()),
            None => Err(match decided {
                Ok(_) => "the authority refuses the order and gives no reason".to_owned().into(),
                Err(e) => Failure::new("wait for the authority", &e),
            }),
        }
    }

    /// Sends a new key's request, and returns the chain and the key.
    async fn sign(&self, order: &mut Order) -> Result<(String, String), Failure> {
        let failed = |e: rcgen::Error| format!("make the request for the certificate: {e}");
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(self.settings.names.clone()).map_err(failed)?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key).map_err(failed)?;
        order.finalize_csr(request.der()).await.map_err(|e| Failure::new("ask the authority to sign", &e))?;
        let chain = order.poll_certificate(&patience()).await;
        let chain = chain.map_err(|e| Failure::new("fetch the certificate", &e))?;
        Ok((chain, key.serialize_pem()))
    }
}

/// Begins an order, which replaces the former certificate where the authority knows that (RFC 9773 §5).
async fn begin(account: &Account, names: &[Identifier], former: Option<&Bundle>) -> Result<Order, Failure> {
    if let Some(id) = former.and_then(|bundle| CertificateIdentifier::try_from(bundle.own()).ok())
        && let Ok(order) = account.new_order(&NewOrder::new(names).replaces(id)).await
    {
        return Ok(order);
    }
    account.new_order(&NewOrder::new(names)).await.map_err(|e| Failure::new("order a certificate", &e))
}

/// Returns what the authority says of the names that it did not accept.
async fn failed_challenge(order: &mut Order) -> Option<String> {
    let mut texts = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        if authorization.refresh().await.is_err() {
            continue;
        }
        let name = authorization.identifier().to_string();
        let failed = authorization.challenges.iter().filter(|one| one.status == ChallengeStatus::Invalid);
        texts.extend(
            failed.filter_map(|challenge| {
                Some(format!("{name}: {}", problem_words(challenge.error.as_ref()?)))
            }),
        );
    }
    (!texts.is_empty()).then(|| texts.join("; "))
}

fn method_name(method: Method) -> &'static str {
    match method {
        Method::Http => "http-01",
        Method::TlsAlpn => "tls-alpn-01",
        Method::Dns => "dns-01",
    }
}
