//! Domain-based Message Authentication, Reporting, and Conformance: does the domain of From stand behind the message, and what does
//! it ask for if not (RFC 9989)?

#[cfg(test)]
mod tests;

use crate::{
    Answer, Answers, DkimOutcome, DkimResult, Name, Question, SpfOutcome, SpfResult, Step, canonical::fields,
    question::Failed, sign::single_address,
};
use std::fmt;

/// Names of a tree walk: those with more labels go on with seven (RFC 9989 §4.10).
const WALK_MAX: usize = 8;

/// What DMARC is asked about one message: the domain in From, and what SPF and DKIM found.
#[derive(Debug, Clone, Copy)]
pub struct Dmarc<'a> {
    /// The domain of the address in From: [`from_domain`].
    pub from: &'a Name,
    /// The outcome of SPF for the reverse-path, or for the name of HELO if it is null.
    pub spf: Option<&'a SpfOutcome>,
    /// Of all signatures, in the order of the message.
    pub dkim: &'a [DkimOutcome],
}

/// A result of DMARC (RFC 8601 §2.7.6, RFC 9989 §9.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DmarcResult {
    /// No record applies to the domain.
    None,
    /// SPF or a signature passed for the domain, or for one that is aligned with it.
    Pass,
    /// Neither SPF nor DKIM passed for an aligned domain.
    Fail,
    /// A look-up failed, and without it nothing passed.
    TempError,
    /// The record that applies has no valid policy.
    PermError,
}

impl DmarcResult {
    /// Returns the word for an Authentication-Results field (RFC 8601), such as `pass`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::TempError => "temperror",
            Self::PermError => "permerror",
        }
    }
}

/// What a domain asks for when its mail fails (RFC 9989 §4.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum DmarcPolicy {
    /// Nothing.
    #[default]
    None,
    /// Treat it as suspicious.
    Quarantine,
    /// Refuse it.
    Reject,
}

impl DmarcPolicy {
    /// Returns the word for the `p=` of a record, such as `quarantine`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Quarantine => "quarantine",
            Self::Reject => "reject",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::None, Self::Quarantine, Self::Reject]
            .into_iter()
            .find(|it| text.eq_ignore_ascii_case(it.as_str()))
    }
}

/// What DMARC says of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DmarcOutcome {
    /// Whether SPF or DKIM passes for the domain in From.
    pub result: DmarcResult,
    /// The policy of the record for this domain; `None` without a record. If it is not known whether the domain exists, the weaker
    /// of both.
    pub policy: DmarcPolicy,
    /// `t=y`: one level less than the policy is wanted.
    pub is_testing: bool,
    /// The domain whose record applies: that of From, or one above.
    pub record_domain: Option<Name>,
    /// SPF passed for an aligned domain. As one is enough to pass, nothing is asked for another that might be aligned as well.
    pub is_spf_aligned: bool,
    /// The index of the first signature that passed for an aligned domain.
    pub aligned_signature: Option<usize>,
    /// The reason of a temporary or permanent error, in words.
    pub error: Option<String>,
}

impl DmarcOutcome {
    fn new(result: DmarcResult) -> Self {
        Self {
            result,
            policy: DmarcPolicy::None,
            is_testing: false,
            record_domain: None,
            is_spf_aligned: false,
            aligned_signature: None,
            error: None,
        }
    }

    /// Returns what the domain wants done with this message: one level less than its policy if it tests it (RFC 9989 §4.7).
    pub fn requested(&self) -> DmarcPolicy {
        match self.policy {
            _ if self.result != DmarcResult::Fail => DmarcPolicy::None,
            DmarcPolicy::Reject if self.is_testing => DmarcPolicy::Quarantine,
            DmarcPolicy::Quarantine if self.is_testing => DmarcPolicy::None,
            policy => policy,
        }
    }
}

/// The reason why DMARC cannot be asked: the mail is to be refused, or at least never to count as authenticated (RFC 9989 §5.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromError {
    /// The header has no From.
    NoField,
    /// There are several: a reader may see another one than the one that was checked.
    SeveralFields,
    /// The field has several addresses, or none, or breaks the grammar.
    NoSingleAddress,
    /// The domain of the address is not a domain name.
    NoDomain,
}

impl fmt::Display for FromError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoField => "there is no From field",
            Self::SeveralFields => "there are several From fields",
            Self::NoSingleAddress => "the From field does not have exactly one address",
            Self::NoDomain => "the address in From has no valid domain",
        })
    }
}

impl std::error::Error for FromError {}

/// Returns the domain of the only address of the only From field of a header: all fields, with their line ends.
///
/// # Errors
/// There is no such address.
pub fn from_domain(header: &[u8]) -> Result<Name, FromError> {
    let mut from =
        fields(header).into_iter().filter(|(name, _)| name.trim_ascii().eq_ignore_ascii_case(b"From"));
    let (_, value) = from.next().ok_or(FromError::NoField)?;
    if from.next().is_some() {
        return Err(FromError::SeveralFields);
    }
    // Octets that are no UTF-8 may be in a display name; in a domain they make it invalid.
    let address = single_address(&String::from_utf8_lossy(value)).ok_or(FromError::NoSingleAddress)?;
    let domain = address.rsplit_once('@').and_then(|(_, domain)| Name::new(domain));
    domain.filter(Name::is_host_name).ok_or(FromError::NoDomain)
}

/// The text of a DMARC record.
#[derive(Clone, Copy)]
struct Record<'a>(&'a str);

impl<'a> Record<'a> {
    /// Returns the only record of a name; if it has several, none (RFC 9989 §4.10).
    fn find(texts: &'a [Box<[u8]>]) -> Option<Self> {
        let mut records = texts.iter().filter_map(|text| std::str::from_utf8(text).ok()).filter(|text| {
            let version = text.split(';').next().and_then(|tag| tag.split_once('='));
            version.is_some_and(|(name, value)| {
                name.trim().eq_ignore_ascii_case("v") && value.trim() == "DMARC1"
            })
        });
        let record = records.next()?;
        records.next().is_none().then_some(Self(record))
    }

    /// Returns the value of a tag. What breaks the grammar is ignored (RFC 9989 §4.7).
    fn get(self, name: &str) -> Option<&'a str> {
        let mut tags = self.0.split(';').filter_map(|tag| tag.split_once('='));
        tags.find(|(tag, _)| tag.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    fn has(self, name: &str, value: &str) -> bool {
        self.get(name).is_some_and(|found| found.eq_ignore_ascii_case(value))
    }

    /// Returns the policies `p`, `sp` and `np`; `None` if one is invalid, and nobody wants reports of that (RFC 9989 §4.10.1).
    fn policies(self) -> Option<[Option<DmarcPolicy>; 3]> {
        let mut policies = [None; 3];
        for (policy, tag) in policies.iter_mut().zip(["p", "sp", "np"]) {
            let Some(text) = self.get(tag) else { continue };
            *policy = DmarcPolicy::parse(text);
            if policy.is_none() {
                let has_reports = self.get("rua").is_some_and(|uris| uris.split(',').any(is_uri));
                return has_reports.then_some([Some(DmarcPolicy::None); 3]);
            }
        }
        Some(policies)
    }
}

/// Returns whether a text may be a URI: a scheme, a colon, and only octets that a URI can have (RFC 3986).
fn is_uri(text: &str) -> bool {
    let text = text.trim();
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    text.split_once(':').is_some_and(|(scheme, _)| is_scheme(scheme))
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"\\^`{|}".contains(&byte))
}

/// Why the walk cannot go on: questions are open, or a look-up failed.
enum Unknown {
    Open(Vec<Question>),
    Failed(Name),
}

/// What the tree walk found (RFC 9989 §4.10).
struct Walk<'a> {
    organizational: Name,
    /// The record of the organizational domain, or of the public suffix above it.
    record: Option<(Name, Record<'a>)>,
}

/// A domain that was authenticated, or would be if a look-up had not failed.
struct Identifier<'a> {
    domain: &'a Name,
    has_passed: bool,
    is_strict: bool,
    /// Index of the signature; `None` for SPF.
    signature: Option<usize>,
}

impl Dmarc<'_> {
    /// Evaluates DMARC with the answers that are known so far.
    pub fn evaluate(&self, answers: &Answers) -> Step<DmarcOutcome> {
        let mut outcome = DmarcOutcome::new(DmarcResult::None);
        match self.decide(answers, &mut outcome) {
            Ok(result) => outcome.result = result,
            Err(Unknown::Open(questions)) => return Step::Ask(questions),
            Err(Unknown::Failed(name)) => {
                outcome.result = DmarcResult::TempError;
                outcome.error = Some(format!("the DMARC record of {name} could not be looked up"));
            }
        }
        Step::Done(outcome)
    }

    fn decide(&self, answers: &Answers, outcome: &mut DmarcOutcome) -> Result<DmarcResult, Unknown> {
        let found = match find(answers, self.from)? {
            Some(record) => Some((self.from.clone(), record)),
            None => walk(answers, self.from)?.record,
        };
        let Some((domain, record)) = found else { return Ok(DmarcResult::None) };
        outcome.is_testing = record.has("t", "y");
        outcome.record_domain = Some(domain.clone());
        let Some(policies) = record.policies() else {
            outcome.error = Some(format!("the DMARC record of {domain} has an invalid policy"));
            return Ok(DmarcResult::PermError);
        };
        let existence;
        (outcome.policy, existence) = self.policy(answers, &domain, policies);

        let mut undecided = None;
        let (mut identifiers, mut open) = (self.identifiers(record), Vec::new());
        identifiers.sort_by_key(|identifier| !identifier.has_passed);
        for identifier in &identifiers {
            match self.is_aligned(answers, identifier) {
                Ok(false) => {}
                Ok(true) if !identifier.has_passed => {
                    undecided = Some("SPF or a key could not be looked up".to_owned());
                }
                Ok(true) => match identifier.signature {
                    None => outcome.is_spf_aligned = true,
                    Some(index) => outcome.aligned_signature = outcome.aligned_signature.or(Some(index)),
                },
                Err(Unknown::Open(questions)) => open.extend(questions),
                Err(Unknown::Failed(name)) => {
                    undecided = Some(format!("the DMARC record of {name} could not be looked up"));
                }
            }
        }
        if outcome.is_spf_aligned || outcome.aligned_signature.is_some() {
            return Ok(DmarcResult::Pass);
        }
        // The policy of mail that passes does not matter.
        if let Some(question) = existence {
            match answers.find(&question) {
                None => open.push(question),
                Some(_) => undecided = Some(format!("whether {} exists could not be looked up", self.from)),
            }
        }
        if !open.is_empty() {
            let mut questions: Vec<Question> = Vec::new();
            for question in open {
                if !questions.contains(&question) {
                    questions.push(question);
                }
            }
            return Err(Unknown::Open(questions));
        }
        outcome.error = undecided;
        Ok(if outcome.error.is_some() { DmarcResult::TempError } else { DmarcResult::Fail })
    }

    /// RFC 9989 §4.10.1: `p` is for the domain itself, `np` for names that do not exist, `sp` for others below it. The question is
    /// one that has no answer yet, or that failed; then the policy is the weaker one.
    fn policy(
        &self,
        answers: &Answers,
        domain: &Name,
        [own, below, missing]: [Option<DmarcPolicy>; 3],
    ) -> (DmarcPolicy, Option<Question>) {
        let own = own.unwrap_or_default();
        let below = below.unwrap_or(own);
        let missing = missing.unwrap_or(below);
        if domain == self.from {
            return (own, None);
        }
        if below == missing {
            return (below, None);
        }
        let question = Question::A(self.from.clone());
        match answers.find(&question) {
            None | Some(Answer::Failed) => (below.min(missing), Some(question)),
            Some(Answer::NoName) => (missing, None),
            Some(_) => (below, None),
        }
    }

    fn identifiers(&self, record: Record<'_>) -> Vec<Identifier<'_>> {
        let (is_spf_strict, is_dkim_strict) = (record.has("aspf", "s"), record.has("adkim", "s"));
        let mut identifiers = Vec::new();
        if let Some(SpfOutcome {
            result: result @ (SpfResult::Pass | SpfResult::TempError),
            domain: Some(domain),
            ..
        }) = self.spf
        {
            let has_passed = *result == SpfResult::Pass;
            identifiers.push(Identifier { domain, has_passed, is_strict: is_spf_strict, signature: None });
        }
        for (index, signature) in self.dkim.iter().enumerate() {
            if let DkimOutcome {
                result: result @ (DkimResult::Pass | DkimResult::TempError),
                domain: Some(domain),
                ..
            } = signature
            {
                let has_passed = *result == DkimResult::Pass;
                identifiers.push(Identifier {
                    domain,
                    has_passed,
                    is_strict: is_dkim_strict,
                    signature: Some(index),
                });
            }
        }
        identifiers
    }

    /// RFC 9989 §4.4, §4.10.2.
    fn is_aligned(&self, answers: &Answers, identifier: &Identifier<'_>) -> Result<bool, Unknown> {
        if identifier.domain == self.from || identifier.is_strict {
            return Ok(identifier.domain == self.from);
        }
        let organizational = walk(answers, self.from)?.organizational;
        // The organizational domain of a domain is at or above it.
        Ok(identifier.domain.is_within(&organizational)
            && walk(answers, identifier.domain)?.organizational == organizational)
    }
}

/// Returns the DMARC record at a domain; `None` if it has none.
fn find<'a>(answers: &'a Answers, domain: &Name) -> Result<Option<Record<'a>>, Unknown> {
    let Some(name) = domain.below("_dmarc") else { return Ok(None) };
    let question = Question::Txt(name);
    match answers.txt(&question) {
        None => Err(Unknown::Open(vec![question])),
        Some(Err(Failed)) => Err(Unknown::Failed(domain.clone())),
        Some(Ok(texts)) => Ok(Record::find(texts)),
    }
}

/// Finds the organizational domain of a domain (RFC 9989 §4.10, §4.10.2). Asks for all records at once.
fn walk<'a>(answers: &'a Answers, domain: &Name) -> Result<Walk<'a>, Unknown> {
    let labels = domain.labels().count();
    let above = (1..labels.min(WALK_MAX)).rev().map(|count| (count, domain.last_labels(count)));
    let (mut open, mut top) = (Vec::new(), None);
    for (count, name) in std::iter::once((labels, domain.clone())).chain(above) {
        let record = match find(answers, &name) {
            Ok(None) => continue,
            Ok(Some(record)) => record,
            Err(Unknown::Open(questions)) => {
                open.extend(questions);
                continue;
            }
            Err(failed) => {
                // It counts only if no record below ends the walk: those are asked first.
                return Err(if open.is_empty() { failed } else { Unknown::Open(open) });
            }
        };
        let is_suffix = record.has("psd", "y");
        // A public suffix that sends mail itself is its own organization.
        if (record.has("psd", "n") || is_suffix && count == labels) && open.is_empty() {
            return Ok(Walk { organizational: name.clone(), record: Some((name, record)) });
        }
        if is_suffix && open.is_empty() {
            let organizational = domain.last_labels(count + 1);
            let own = top.filter(|(found, _)| *found == organizational);
            return Ok(Walk { organizational, record: own.or(Some((name, record))) });
        }
        top = Some((name, record));
    }
    if !open.is_empty() {
        return Err(Unknown::Open(open));
    }
    let organizational = top.as_ref().map_or_else(|| domain.clone(), |(name, _)| name.clone());
    Ok(Walk { organizational, record: top })
}
