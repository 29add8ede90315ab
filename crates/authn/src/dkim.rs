//! Verifies signatures (RFC 6376 §6, RFC 8301, RFC 8463).

mod public_key;
#[cfg(test)]
mod tests;

use crate::{
    Algorithm, Answers, BodyHasher, Name, Question, Step,
    canonical::{Form, canonical_field, fields},
    key::key_name,
    question::Failed,
    tags::{SPACE, Tags, has_word},
};
use data_encoding::BASE64;
use public_key::{KeyRecord, Unusable};
use std::collections::HashMap;

/// Signatures of a message that are verified; the first ones, which were added last.
const SIGNATURES_MAX: usize = 8;

/// What became of a signature (RFC 8601 §2.7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DkimResult {
    /// The signature is valid: header and body are as the domain signed them.
    Pass,
    /// Header or body are not those that were signed.
    Fail,
    /// The signature is one that this verifier does not accept, right or not.
    Policy,
    /// The signature has errors of syntax, or is of an unknown kind.
    Neutral,
    /// The key could not be looked up now.
    TempError,
    /// The signature cannot be verified, and never will.
    PermError,
}

impl DkimResult {
    /// Returns the word for an Authentication-Results field (RFC 8601 §2.7.1), such as `pass`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Policy => "policy",
            Self::Neutral => "neutral",
            Self::TempError => "temperror",
            Self::PermError => "permerror",
        }
    }
}

/// What became of one signature. Its tags are what others wrote, and mean nothing unless it passes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DkimOutcome {
    /// Whether the signature counts (RFC 8601 §2.7.1).
    pub result: DkimResult,
    /// The reason for it in words; none of a pass.
    pub reason: Option<&'static str>,
    /// The domain that takes responsibility (`d=`), if it is a domain.
    pub domain: Option<Name>,
    /// `s=`, under which the domain has the key; `None` if it is no name.
    pub selector: Option<Name>,
    /// The algorithm as the signature names it (`a=`).
    pub algorithm: Option<String>,
    /// The user or agent for whom the domain signed (`i=`); by default `@` and the domain.
    pub identity: Option<String>,
    /// The first octets of the signature in base64: they tell signatures of a message apart (`header.b`, RFC 6008).
    pub signature_start: String,
    /// Octets of the canonical body that `l=` left unsigned. If there are any, the signature does not pass.
    pub unsigned_bytes: u64,
    /// The domain tests DKIM (`t=y`): a failure is to be seen as no signature. False if the key was not looked up.
    pub is_testing: bool,
}

/// Verifies the signatures of a message while it arrives: header, then body, then [`Verifier::finish`].
#[derive(Debug)]
pub struct Verifier {
    candidates: Vec<Candidate>,
    /// A hash for each form and length that signatures name, so that each is computed once.
    bodies: Vec<(Form, Option<u64>, BodyHasher)>,
}

/// A signature: what is known of it, and what is to be verified unless its result is certain.
#[derive(Debug)]
struct Candidate {
    outcome: DkimOutcome,
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    algorithm: Algorithm,
    question: Question,
    /// What was signed: the header fields in their canonical form, and the signature's own without `b=`.
    data: Vec<u8>,
    signature: Vec<u8>,
    body_hash: Vec<u8>,
    /// Index of its hash in `Verifier::bodies`.
    body: usize,
    length: Option<u64>,
    expires: Option<u64>,
    /// Without it, a key with `t=s` does not count.
    is_own_identity: bool,
}

/// The signatures of a message whose content was hashed; the keys are still to be looked up.
#[derive(Debug)]
pub struct Signatures {
    candidates: Vec<Candidate>,
    /// Hash and octets of each body.
    bodies: Vec<(Vec<u8>, u64)>,
}

/// The fields of a header by their names in lower case, from the bottom.
struct Header<'a> {
    fields: Vec<(&'a [u8], &'a [u8])>,
    by_name: HashMap<Vec<u8>, Vec<usize>>,
}

impl<'a> Header<'a> {
    fn new(header: &'a [u8]) -> Self {
        let fields = fields(header);
        let mut by_name: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
        for (index, (name, _)) in fields.iter().enumerate().rev() {
            by_name.entry(name.trim_ascii_end().to_ascii_lowercase()).or_default().push(index);
        }
        Self { fields, by_name }
    }

    /// Writes the fields that a signature names, and its own field without the value of `b=` (RFC 6376 §3.7). A name takes the
    /// lowest field that no earlier one has taken; its own field is none of them (§3.5).
    fn canonical(&self, form: Form, names: &[Vec<u8>], own: usize, own_value: &[u8]) -> Vec<u8> {
        let mut data = Vec::new();
        let mut taken: HashMap<&[u8], usize> = HashMap::new();
        for name in names {
            let Some(indices) = self.by_name.get(name) else { continue };
            let next = taken.entry(name).or_default();
            if indices.get(*next) == Some(&own) {
                *next += 1;
            }
            let Some(index) = indices.get(*next) else { continue };
            *next += 1;
            let (name, value) = self.fields[*index];
            canonical_field(form, name, value, &mut data);
        }
        canonical_field(form, self.fields[own].0, own_value, &mut data);
        if data.ends_with(b"\r\n") {
            data.truncate(data.len() - 2);
        }
        data
    }
}

impl Verifier {
    /// Begins with the whole header: all fields, with their line ends.
    pub fn new(header: &[u8]) -> Self {
        let header = Header::new(header);
        let mut verifier = Self { candidates: Vec::new(), bodies: Vec::new() };
        let signatures = header.by_name.get(&b"dkim-signature"[..]).into_iter().flatten();
        for index in signatures.rev().take(SIGNATURES_MAX) {
            let candidate = verifier.read(&header, *index);
            verifier.candidates.push(candidate);
        }
        verifier
    }

    /// Returns whether there is a signature that needs the body.
    pub fn needs_body(&self) -> bool {
        !self.bodies.is_empty()
    }

    /// Returns the questions for keys, to ask them while the body arrives.
    pub fn questions(&self) -> Vec<Question> {
        let mut questions = Vec::new();
        for pending in self.candidates.iter().filter_map(|candidate| candidate.pending.as_ref()) {
            if !questions.contains(&pending.question) {
                questions.push(pending.question.clone());
            }
        }
        questions
    }

    /// Takes the next piece of the body, with its line ends and without dots added for transport.
    pub fn push(&mut self, bytes: &[u8]) {
        for (_, _, hasher) in &mut self.bodies {
            hasher.push(bytes);
        }
    }

    /// Ends the body. The hashes are complete then.
    pub fn finish(self) -> Signatures {
        let hash = |(_, _, hasher): (_, _, BodyHasher)| {
            let (hash, count) = hasher.finish_counted();
            (hash.as_ref().to_vec(), count)
        };
        Signatures { candidates: self.candidates, bodies: self.bodies.into_iter().map(hash).collect() }
    }

    fn read(&mut self, header: &Header<'_>, index: usize) -> Candidate {
        let mut outcome = DkimOutcome {
            result: DkimResult::Neutral,
            reason: None,
            domain: None,
            selector: None,
            algorithm: None,
            identity: None,
            signature_start: String::new(),
            unsigned_bytes: 0,
            is_testing: false,
        };
        let value = std::str::from_utf8(header.fields[index].1).ok();
        let pending = match value.and_then(|value| Some((value, Tags::parse(value)?))) {
            Some((value, tags)) => self.read_tags(header, index, value, &tags, &mut outcome),
            None => Err((DkimResult::Neutral, "the signature is not a list of tags")),
        };
        if let Err((result, reason)) = pending {
            (outcome.result, outcome.reason) = (result, Some(reason));
        }
        Candidate { outcome, pending: pending.ok() }
    }

    /// RFC 6376 §6.1.1.
    fn read_tags(
        &mut self,
        header: &Header<'_>,
        index: usize,
        value: &str,
        tags: &Tags<'_>,
        outcome: &mut DkimOutcome,
    ) -> Result<Pending, (DkimResult, &'static str)> {
        let neutral = |reason| (DkimResult::Neutral, reason);
        let permanent = |reason| (DkimResult::PermError, reason);
        let name = |tag| tags.get(tag).and_then(Name::new).filter(Name::is_host_name);
        let without_space = |text: &str| text.split(SPACE).collect::<String>();
        let signature = without_space(tags.get("b").unwrap_or_default());
        outcome.signature_start = signature.chars().take(8).collect();
        (outcome.domain, outcome.selector) = (name("d"), name("s"));
        outcome.algorithm = tags.get("a").map(str::to_owned);

        if tags.get("v").is_some_and(|version| version != "1") {
            return Err(permanent("the signature has an unknown version"));
        }
        if ["v", "a", "b", "bh", "d", "h", "s"].iter().any(|tag| tags.get(tag).is_none()) {
            return Err(permanent("the signature lacks a tag"));
        }
        let domain = outcome.domain.as_ref().ok_or(permanent("d= is not a domain"))?;
        let selector = outcome.selector.as_ref().ok_or(permanent("s= is not a selector"))?;
        let identity = tags.get("i").map_or_else(|| format!("@{domain}"), without_space);
        let identity_domain = identity.rsplit_once('@').and_then(|(_, domain)| Name::new(domain));
        let identity_domain =
            identity_domain.filter(Name::is_host_name).ok_or(neutral("i= has no domain"))?;
        outcome.identity = Some(identity);
        if !identity_domain.is_within(domain) {
            return Err(permanent("the domain of i= is not within d="));
        }
        let names: Vec<Vec<u8>> = tags
            .get("h")
            .into_iter()
            .flat_map(|names| names.split(':'))
            .map(|name| name.trim_matches(SPACE).to_ascii_lowercase().into_bytes())
            .collect();
        if names.iter().any(|name| name.is_empty() || !name.iter().all(u8::is_ascii_graphic)) {
            return Err(neutral("h= is not a list of fields"));
        }
        if !names.iter().any(|name| name == b"from") {
            return Err(permanent("From is not signed"));
        }
        let algorithm = match tags.get("a") {
            Some("rsa-sha256") => Algorithm::RsaSha256,
            Some("ed25519-sha256") => Algorithm::Ed25519Sha256,
            Some("rsa-sha1") => return Err((DkimResult::Policy, "rsa-sha1 is too weak")), // RFC 8301 §3.1
            _ => return Err(neutral("the algorithm is unknown")),
        };
        let (header_form, body_form) =
            forms(tags.get("c")).ok_or(neutral("the canonical form is unknown"))?;
        if tags.get("q").is_some_and(|methods| !has_word(methods, "dns/txt")) {
            return Err(neutral("the key is not in the DNS"));
        }
        let number = |tag| match tags.get(tag) {
            None => Ok(None),
            Some(digits) => number(digits).map(Some).ok_or(neutral("l=, t= or x= is not a number")),
        };
        let (length, signed, expires) = (number("l")?, number("t")?, number("x")?);
        if signed.zip(expires).is_some_and(|(signed, expires)| expires <= signed) {
            return Err(neutral("x= is not after t="));
        }
        let decode = |text: &str| BASE64.decode(text.as_bytes()).ok().filter(|octets| !octets.is_empty());
        let signature = decode(&signature).ok_or(neutral("b= is not base64"))?;
        let body_hash = decode(&without_space(tags.get("bh").unwrap_or_default()));
        let body_hash = body_hash.ok_or(neutral("bh= is not base64"))?;
        let question = Name::new(key_name(selector, domain)).map(Question::Txt);
        let question = question.ok_or(permanent("s= and d= are too long"))?;

        let own = tags
            .place("b")
            .map_or(value.to_owned(), |place| [&value[..place.start], &value[place.end..]].concat());
        let data = header.canonical(header_form, &names, index, own.as_bytes());
        let body = self.body(body_form, length);
        let is_own_identity = identity_domain == *domain;
        Ok(Pending {
            algorithm,
            question,
            data,
            signature,
            body_hash,
            body,
            length,
            expires,
            is_own_identity,
        })
    }

    /// Returns the index of the hash for this form and length, a new one if there is none.
    fn body(&mut self, form: Form, length: Option<u64>) -> usize {
        let known = self.bodies.iter().position(|(known, limit, _)| (*known, *limit) == (form, length));
        known.unwrap_or_else(|| {
            self.bodies.push((form, length, BodyHasher::new(form, length)));
            self.bodies.len() - 1
        })
    }
}

impl Signatures {
    /// Evaluates the signatures with the answers that are known so far. `now` is the time in seconds since 1970. Asks only for
    /// keys, and only those of signatures whose body is right. Returns one outcome for each signature, from the top.
    pub fn evaluate(&self, answers: &Answers, now: u64) -> Step<Vec<DkimOutcome>> {
        let (mut outcomes, mut open) = (Vec::new(), Vec::new());
        for Candidate { outcome, pending } in &self.candidates {
            let mut outcome = outcome.clone();
            if let Some(pending) = pending {
                let (hash, count) = &self.bodies[pending.body];
                outcome.unsigned_bytes = pending.length.map_or(0, |length| count.saturating_sub(length));
                match pending.verify(hash, *count, answers, now, &mut outcome.is_testing) {
                    Some(Ok(())) => outcome.result = DkimResult::Pass,
                    Some(Err((result, reason))) => (outcome.result, outcome.reason) = (result, Some(reason)),
                    None if open.contains(&pending.question) => {}
                    None => open.push(pending.question.clone()),
                }
            }
            outcomes.push(outcome);
        }
        if open.is_empty() { Step::Done(outcomes) } else { Step::Ask(open) }
    }
}

impl Pending {
    /// Returns the result; `None` if the key was not asked for.
    fn verify(
        &self,
        hash: &[u8],
        count: u64,
        answers: &Answers,
        now: u64,
        is_testing: &mut bool,
    ) -> Option<Result<(), (DkimResult, &'static str)>> {
        let permanent = |reason| Some(Err((DkimResult::PermError, reason)));
        if self.expires.is_some_and(|expires| now > expires) {
            return Some(Err((DkimResult::Policy, "the signature has expired")));
        }
        if self.length.is_some_and(|length| length > count) {
            return permanent("l= is larger than the body");
        }
        if hash != self.body_hash {
            return Some(Err((DkimResult::Fail, "the body was changed")));
        }
        let record = match answers.txt(&self.question)? {
            Err(Failed) => return Some(Err((DkimResult::TempError, "the key could not be looked up"))),
            Ok(records) => KeyRecord::find(records),
        };
        let usable = record.and_then(|record| {
            *is_testing = record.is_testing;
            record.check(self.algorithm).map(|()| record)
        });
        let record = match usable {
            Ok(record) => record,
            Err(Unusable::Weak) => return Some(Err((DkimResult::Policy, "the key has under 1024 bits"))),
            Err(Unusable::Invalid(reason)) => return permanent(reason),
        };
        if record.is_strict && !self.is_own_identity {
            return permanent("the key permits no i= below d=");
        }
        if !record.verifies(&self.data, &self.signature) {
            return Some(Err((DkimResult::Fail, "the signature is not that of the header")));
        }
        if self.length.is_some_and(|length| length < count) {
            return Some(Err((DkimResult::Policy, "l= leaves a part of the body unsigned")));
        }
        Some(Ok(()))
    }
}

/// Reads `c=`: the forms of header and body; `None` if one is unknown.
fn forms(text: Option<&str>) -> Option<(Form, Form)> {
    let form = |name| match name {
        "simple" => Some(Form::Simple),
        "relaxed" => Some(Form::Relaxed),
        _ => None,
    };
    let (header, body) =
        text.map_or(("simple", "simple"), |text| text.split_once('/').unwrap_or((text, "simple")));
    Some((form(header)?, form(body)?))
}

/// An unsigned number. One that is too large for us is as large as we can count.
fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}
