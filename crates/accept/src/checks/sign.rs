//! The check that signs mail of own domains (DKIM, RFC 6376).

use super::submission::owns_by_maps;
use crate::{
    check::{Check, View, is_trusted_client},
    memory::{CheckMemories, CheckMemory, OfTransaction, own},
};
use authn::{BodyHasher, Signer, SigningKey, from_mailbox, has_signature};
use config::{MappedKey, Settings, Sign, SignWith, signing_key};
use inbound::Answer;
use mail::{Edit, Enhanced, Field, Mailbox, Part, ReceivedContent, Reply, ReversePath, UnixMillis};
use policy::{Source, Stage, Verdict};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// A map or the spool does not answer, or there is no key: the mail is not sent without its signature.
const CANNOT_SIGN: Reply =
    Reply::fixed(451, Enhanced(4, 7, 5), "The message cannot be signed now, try again later");

/// Keys of maps that are kept ready for use; reading one takes as long as signing.
const READY_KEYS_MAX: usize = 4096;

/// Signs mail whose From is an address of a domain of `[[sign]]`, when its client may send as that domain.
pub(crate) struct Signatures {
    sections: Vec<(Sign, Option<SigningKey>)>,
    /// Parsed keys of maps, by their text: a key is parsed once, not for each message.
    ready: Mutex<HashMap<Box<str>, Arc<SigningKey>>>,
}

/// A signing key with its name, from a configured file or from a map.
enum Found<'a> {
    OfFile(&'a str, &'a SigningKey),
    OfMap(String, Arc<SigningKey>),
}

impl Signatures {
    /// Reads the keys of the configuration; `None` if it signs nothing.
    ///
    /// # Errors
    /// A key cannot be read; the text names the file.
    pub(crate) fn new(settings: &Settings) -> Result<Option<Self>, String> {
        let mut sections = Vec::new();
        for sign in &settings.sign {
            let key = sign.file().map(|file| signing_key(file)).transpose().map_err(|e| e.to_string())?;
            sections.push((sign.clone(), key));
        }
        Ok((!sections.is_empty()).then(|| Self { sections, ready: Mutex::default() }))
    }

    /// The sections for a domain, given as [`mail::Domain::key`].
    fn of<'a>(&'a self, domain: &'a str) -> impl Iterator<Item = &'a (Sign, Option<SigningKey>)> {
        self.sections.iter().filter(move |(sign, _)| sign.domains.is_empty() || sign.matches(domain))
    }

    /// Returns a key and its selector; none for a domain that only a map could have.
    async fn find<'a>(
        &'a self,
        view: &View<'_>,
        (sign, key): &'a (Sign, Option<SigningKey>),
        domain: &str,
    ) -> Result<Option<Found<'a>>, Verdict> {
        let map = match (&sign.keys, key) {
            (SignWith::Key { selector, .. }, Some(key)) => return Ok(Some(Found::OfFile(selector, key))),
            (SignWith::Key { .. }, None) => return Err(Verdict::Defer(CANNOT_SIGN)),
            (SignWith::Map(map), _) => map,
        };
        let value =
            view.rules.maps.get(map, domain).wait().await.map_err(|error| {
                deferred(view, &format_args!("look up the signing key of {domain}: {error}"))
            })?;
        match value {
            Some(value) => {
                let read = self.of_map(&value);
                let failed = |why| deferred(view, &format_args!("{map}: the signing key of {domain}: {why}"));
                read.map(Some).map_err(failed)
            }
            None if sign.domains.is_empty() => Ok(None),
            None => Err(deferred(view, &format_args!("{map} has no signing key of {domain}"))),
        }
    }

    /// Reads `SELECTOR:KEY`.
    ///
    /// # Errors
    /// It is none: why.
    fn of_map<'a>(&self, value: &str) -> Result<Found<'a>, String> {
        let mapped = MappedKey::parse(value)?;
        let selector = mapped.selector.to_owned();
        let ready = || self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = ready().get(mapped.key).cloned() {
            return Ok(Found::OfMap(selector, known));
        }
        let read = mapped.read()?;
        let (mut ready, read) = (ready(), Arc::new(read));
        if ready.len() >= READY_KEYS_MAX {
            ready.clear();
        }
        ready.insert(mapped.key.into(), read.clone());
        Ok(Found::OfMap(selector, read))
    }

    /// Returns why [`Check::signs`] is false for a message.
    fn why_not(&self, view: &View<'_>) -> String {
        match from(view) {
            _ if !is_trusted(view) => "the client is neither logged in nor in relay.networks".to_owned(),
            None => "it has no From with a single address".to_owned(),
            Some(from) => format!("no [[sign]] is for {}", from.domain().key()),
        }
    }

    async fn sign(&self, view: View<'_>, from: Mailbox, streamed: Option<BodyHasher>) -> Verdict {
        match may_sign(&view, &from).await {
            Ok(true) => {}
            Ok(false) => {
                view.note("dkim", || format!("not signed: the client may not send as {from}"));
                return Verdict::Pass;
            }
            Err(()) => return Verdict::Defer(CANNOT_SIGN),
        }
        let (domain, mut found) = (from.domain().key().into_owned(), Vec::new());
        for section in self.of(&domain) {
            match self.find(&view, section, &domain).await {
                Ok(None) => {}
                Ok(Some(key)) => found.push((section.0.domain.as_deref().unwrap_or(&domain), key)),
                Err(refused) => return refused,
            }
        }
        if found.is_empty() {
            view.note("dkim", || format!("not signed: no map has a key of {domain}"));
            return Verdict::Pass;
        }
        let name = |found: &Found<'_>| match found {
            Found::OfFile(selector, _) => (*selector).to_owned(),
            Found::OfMap(selector, _) => selector.clone(),
        };
        // A message that comes back to this server keeps its signature.
        found.retain(|(domain, key)| !has_signature(view.header, domain, &name(key)));
        if found.is_empty() {
            view.note("dkim", || format!("not signed again: it has the signature of {domain}"));
            return Verdict::Pass;
        }
        let Some(content) = view.content else { return Verdict::Pass };
        let Some(body) = hash(content, streamed) else {
            return deferred(&view, &"sign: the body is not in memory, and was not hashed as it came");
        };
        let (mut edits, now) = (Vec::new(), UnixMillis::now().0 / 1000);
        for (domain, found) in &found {
            let (selector, key) = match found {
                Found::OfFile(selector, key) => (*selector, *key),
                Found::OfMap(selector, key) => (selector.as_str(), &**key),
            };
            let value = Signer { domain, selector, key }.sign(view.header, &body, now);
            let Ok(field) = Field::new("DKIM-Signature", &value) else {
                return deferred(&view, &format_args!("sign for {domain}: the signature is no header field"));
            };
            view.note("dkim", || format!("signed: d={domain} s={selector} a={}", key.algorithm().as_str()));
            edits.push(Edit::Prepend(field));
        }
        Verdict::Edit(edits.into_iter().collect())
    }
}

impl Check for Signatures {
    fn stages(&self) -> Vec<Stage> {
        vec![Stage::Header, Stage::Body, Stage::Seal]
    }

    fn begin(&self, _: &mut CheckMemories) -> Option<Box<dyn CheckMemory>> {
        Some(Box::<Streamed>::default())
    }

    fn signs(&self, view: &View<'_>) -> bool {
        from(view).is_some_and(|from| self.of(&from.domain().key()).next().is_some()) && is_trusted(view)
    }

    fn check<'a>(&'a self, memory: Option<&'a mut dyn CheckMemory>, view: View<'a>) -> Answer<'a, Verdict> {
        let memory = own::<Streamed>(memory);
        let Some(OfTransaction(body)) = memory else { return Answer::Ready(Verdict::Pass) };
        match view.stage {
            Stage::Header => *body = self.signs(&view).then(BodyHasher::default),
            Stage::Body => body.iter_mut().for_each(|body| body.push(view.body)),
            _ => {
                let streamed = body.take();
                if let Some(from) = from(&view).filter(|_| self.signs(&view)) {
                    return Answer::later(self.sign(view, from, streamed));
                }
                view.note("dkim", || format!("not signed: {}", self.why_not(&view)));
            }
        }
        Answer::Ready(Verdict::Pass)
    }
}

/// Defers a message that cannot be signed.
fn deferred(view: &View<'_>, why: &dyn fmt::Display) -> Verdict {
    view.failed("dkim", why);
    Verdict::Defer(CANNOT_SIGN)
}

/// Returns the mailbox in From; `None` unless there is exactly one.
fn from(view: &View<'_>) -> Option<Mailbox> {
    Mailbox::parse(&from_mailbox(view.header)?, true).ok()
}

/// Returns whether the client may send as any domain at all.
fn is_trusted(view: &View<'_>) -> bool {
    match view.facts.source {
        Source::Smtp { .. } => is_trusted_client(view.facts, view.rules.policy),
        Source::Local { .. } | Source::Report => true,
    }
}

/// Returns whether a trusted client may send as an address.
async fn may_sign(view: &View<'_>, from: &Mailbox) -> Result<bool, ()> {
    let Some(login) = view.facts.login.as_ref().or(view.facts.named_login.as_ref()) else { return Ok(true) };
    if view.rules.policy.owns(login, &ReversePath::Mailbox(from.clone())) {
        return Ok(true);
    }
    owns_by_maps(view.rules, login, from).wait().await
}

/// The hash of a body that comes in pieces: those that are in the spool may not be readable yet when the content is complete.
type Streamed = OfTransaction<BodyHasher>;

/// Hashes the body. One that is not in memory was hashed as it came, and nothing has changed it since; `None` if it was not.
fn hash(content: &ReceivedContent, streamed: Option<BodyHasher>) -> Option<Vec<u8>> {
    if content.parts().iter().any(|part| matches!(part, Part::Stored { .. })) {
        return streamed.map(|body| body.finish().as_ref().to_vec());
    }
    let mut hasher = BodyHasher::default();
    content.body_in_memory().for_each(|piece| hasher.push(piece));
    Some(hasher.finish().as_ref().to_vec())
}
