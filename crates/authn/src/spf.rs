//! Sender Policy Framework: may this client send mail of this domain (RFC 7208)?

mod macros;
mod record;
#[cfg(test)]
mod tests;

use crate::{Answer, Answers, Name, Question, Step, question::Failed};
use macros::Piece;
use record::{BadTerm, Directive, Mechanism, Prefixes, Qualifier, Record};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Terms with look-ups in a check (RFC 7208 §4.6.4).
const TERMS_MAX: usize = 10;
/// Look-ups of terms that find nothing (RFC 7208 §4.6.4).
const VOID_MAX: usize = 2;
/// Mail exchangers of a domain, and names of a client, whose addresses are asked for (RFC 7208 §4.6.4).
const HOSTS_MAX: usize = 10;
/// Octets of all records of a check: the bound of the work. The RFC asks for records below 512.
const RECORDS_BYTES_MAX: usize = 65_536;
/// Octets of an explanation: one line of a reply (RFC 5321 §4.5.3.1.5).
const EXPLANATION_BYTES_MAX: usize = 500;

/// The question of SPF: `check_host` for one identity. Evaluate it with the answers that are known, ask the DNS what it asks, and
/// evaluate it again.
#[derive(Debug, Clone, Copy)]
pub struct Spf<'a> {
    /// The client. An IPv4 address in an IPv6 one is an IPv4 address.
    pub client: IpAddr,
    /// The name that the client gave with HELO or EHLO.
    pub hello: &'a str,
    /// The address of MAIL FROM, without angle brackets. None for the identity HELO, which stands for a null reverse-path as well
    /// (RFC 7208 §2.4).
    pub sender: Option<&'a str>,
    /// This server's name, for the macro `r` of explanations.
    pub receiver: &'a str,
    /// The time in seconds since 1970, for explanations.
    pub now: u64,
}

/// What a domain's record says of a client (RFC 7208 §2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpfResult {
    /// There is no domain to check, or it has no record.
    None,
    /// The domain says nothing about the client.
    Neutral,
    /// The client may send mail of the domain.
    Pass,
    /// The client may not.
    Fail,
    /// The client probably may not.
    SoftFail,
    /// A look-up failed: another attempt may succeed.
    TempError,
    /// A record is invalid, or needs too many look-ups.
    PermError,
}

impl SpfResult {
    /// Returns the word for an Authentication-Results field (RFC 8601 §2.7.2), such as `softfail`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Neutral => "neutral",
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::SoftFail => "softfail",
            Self::TempError => "temperror",
            Self::PermError => "permerror",
        }
    }
}

/// What SPF says of a client, and by which term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpfOutcome {
    /// What the domain says of the client (RFC 7208 §2.6).
    pub result: SpfResult,
    /// The domain that was checked: of the sender, or the name of HELO. None if it is not a domain name.
    pub domain: Option<Name>,
    /// The term that decided, as the record has it; `default` if none matched. None if no record was evaluated to its end.
    pub mechanism: Option<String>,
    /// Why the result is an error, in words; `None` for other results.
    pub error: Option<String>,
    /// The domain's explanation of a fail (RFC 7208 §6.2): up to 500 printable octets. Others wrote it: do not trust it.
    pub explanation: Option<String>,
}

impl Spf<'_> {
    /// Evaluates the check with the answers that are known so far. Asks at most 10 questions at a time.
    pub fn evaluate(&self, answers: &Answers) -> Step<SpfOutcome> {
        // RFC 7208 §4.3: without a local part, it is `postmaster`.
        let (local, domain) = match self.sender {
            Some(sender) => sender.rsplit_once('@').unwrap_or(("", sender)),
            None => ("", self.hello),
        };
        let local = if local.is_empty() { "postmaster" } else { local };
        let domain = Name::new(domain).filter(|name| !domain.starts_with('[') && name.labels().count() > 1);
        let done = |result, mechanism, error, explanation| {
            Step::Done(SpfOutcome { result, domain: domain.clone(), mechanism, error, explanation })
        };
        let Some(name) = domain.clone() else { return done(SpfResult::None, None, None, None) };
        let mut check = Check {
            spf: self,
            local,
            domain: &name,
            answers,
            client: self.client.to_canonical(),
            terms: 0,
            voids: 0,
            bytes: 0,
        };
        match check.host(name.clone()) {
            Ok(Checked { result, mechanism, explanation }) => {
                done(result, Some(mechanism), None, explanation)
            }
            Err(Stop::Ask(questions)) => Step::Ask(questions),
            Err(Stop::NoRecord(_)) => done(SpfResult::None, None, None, None),
            Err(Stop::Temporary(error)) => done(SpfResult::TempError, None, Some(error), None),
            Err(Stop::Permanent(error)) => done(SpfResult::PermError, None, Some(error), None),
        }
    }
}

/// The reason why there is no result of a record.
enum Stop {
    Ask(Vec<Question>),
    NoRecord(Name),
    Temporary(String),
    Permanent(String),
}

impl From<BadTerm<'_>> for Stop {
    fn from(BadTerm(term): BadTerm<'_>) -> Self {
        Self::Permanent(format!("the term {term:?} is invalid"))
    }
}

struct Checked {
    result: SpfResult,
    mechanism: String,
    explanation: Option<String>,
}

struct Check<'a> {
    spf: &'a Spf<'a>,
    local: &'a str,
    /// The domain of `local`, for macros.
    domain: &'a Name,
    answers: &'a Answers,
    client: IpAddr,
    terms: usize,
    voids: usize,
    bytes: usize,
}

impl<'a> Check<'a> {
    /// `check_host` for a domain (RFC 7208 §4), and for those that its record redirects to.
    fn host(&mut self, mut domain: Name) -> Result<Checked, Stop> {
        let mut is_redirected = false;
        loop {
            let text = match self.record(&domain) {
                Err(Stop::NoRecord(name)) if is_redirected => {
                    return Err(Stop::Permanent(format!("{name}, the target of redirect, has no record")));
                }
                text => text?,
            };
            let record = Record::parse(text)?;
            for directive in &record.directives {
                if self.matches(directive, &domain)? {
                    return self.matched(directive, &record, &domain);
                }
            }
            let Some(redirect) = &record.redirect else {
                let mechanism = "default".to_owned();
                return Ok(Checked { result: SpfResult::Neutral, mechanism, explanation: None });
            };
            self.count_term()?;
            domain = self
                .target(redirect, &domain)?
                .ok_or_else(|| Stop::Permanent("the target of redirect is not a domain name".to_owned()))?;
            is_redirected = true;
        }
    }

    /// Returns the terms of the only record of a domain (RFC 7208 §4.4, §4.5).
    fn record(&mut self, domain: &Name) -> Result<&'a str, Stop> {
        let question = Question::Txt(domain.clone());
        let answers = self.answers;
        let texts = match answers.txt(&question) {
            None => return Err(Stop::Ask(vec![question])),
            Some(Err(Failed)) => return Err(Stop::Temporary(format!("TXT records of {domain}: no answer"))),
            Some(Ok(texts)) => texts,
        };
        let mut records = texts.iter().filter(|text| record::is_record(text));
        let Some(record) = records.next() else { return Err(Stop::NoRecord(domain.clone())) };
        if records.next().is_some() {
            return Err(Stop::Permanent(format!("{domain} has several records")));
        }
        self.bytes += record.len();
        if self.bytes > RECORDS_BYTES_MAX {
            return Err(Stop::Permanent(format!("the records have over {RECORDS_BYTES_MAX} octets")));
        }
        let terms = std::str::from_utf8(&record[6..]).ok().filter(|terms| terms.is_ascii());
        terms.ok_or_else(|| Stop::Permanent(format!("the record of {domain} is not ASCII")))
    }

    /// Returns what the qualifier of a matching directive says, with the explanation of a fail.
    fn matched(
        &self,
        directive: &Directive<'_>,
        record: &Record<'_>,
        domain: &Name,
    ) -> Result<Checked, Stop> {
        let mut explanation = None;
        let result = match directive.qualifier {
            Qualifier::Pass => SpfResult::Pass,
            Qualifier::SoftFail => SpfResult::SoftFail,
            Qualifier::Neutral => SpfResult::Neutral,
            Qualifier::Fail => {
                if let Some(exp) = &record.exp {
                    explanation = self.explanation(exp, domain)?;
                }
                SpfResult::Fail
            }
        };
        Ok(Checked { result, mechanism: directive.text.to_owned(), explanation })
    }

    fn matches(&mut self, directive: &Directive<'_>, domain: &Name) -> Result<bool, Stop> {
        match &directive.mechanism {
            Mechanism::All => return Ok(true),
            Mechanism::Address(network, bits) => return Ok(is_in_network(self.client, *network, *bits)),
            _ => self.count_term()?,
        }
        let target = match &directive.mechanism {
            Mechanism::Include(spec) | Mechanism::Exists(spec) => self.target(spec, domain)?,
            Mechanism::A(Some(spec), _) | Mechanism::Mx(Some(spec), _) | Mechanism::Ptr(Some(spec)) => {
                self.target(spec, domain)?
            }
            _ => Some(domain.clone()),
        };
        // A name that the DNS cannot have does not exist (RFC 7208 §4.8).
        let Some(target) = target else {
            return match &directive.mechanism {
                Mechanism::Include(_) => {
                    Err(Stop::Permanent("the target of include is not a domain name".to_owned()))
                }
                _ => Ok(false),
            };
        };
        match &directive.mechanism {
            Mechanism::Include(_) => self.include(target),
            Mechanism::A(_, prefixes) => {
                let question = self.address_question(target);
                let answer = self.ask(question)?;
                Ok(self.has_client(answer, *prefixes))
            }
            Mechanism::Mx(_, prefixes) => self.is_exchanger(target, *prefixes),
            Mechanism::Ptr(_) => Ok(self.verified_names()?.iter().any(|name| name.is_within(&target))),
            Mechanism::Exists(_) => {
                Ok(matches!(self.ask(Question::A(target))?, Answer::A(found) if !found.is_empty()))
            }
            Mechanism::All | Mechanism::Address(..) => Ok(false),
        }
    }

    /// RFC 7208 §5.2: a fail of the other domain does not match, and its explanation is not used.
    fn include(&mut self, target: Name) -> Result<bool, Stop> {
        match self.host(target) {
            Ok(checked) => Ok(checked.result == SpfResult::Pass),
            Err(Stop::NoRecord(name)) => {
                Err(Stop::Permanent(format!("{name}, the target of include, has no record")))
            }
            Err(stop) => Err(stop),
        }
    }

    /// Mechanism `mx` (RFC 7208 §5.4).
    fn is_exchanger(&mut self, target: Name, prefixes: Prefixes) -> Result<bool, Stop> {
        let name = target.to_string();
        let Answer::Mx(hosts) = self.ask(Question::Mx(target))? else { return Ok(false) };
        if hosts.len() > HOSTS_MAX {
            return Err(Stop::Permanent(format!("{name} has over {HOSTS_MAX} mail exchangers")));
        }
        let questions: Vec<Question> =
            hosts.iter().flatten().map(|host| self.address_question(host.clone())).collect();
        let answers = self.ask_all(&questions)?;
        if answers.iter().any(|answer| self.has_client(answer, prefixes)) {
            return Ok(true);
        }
        if answers.contains(&&Answer::Failed) {
            return Err(Stop::Temporary(format!("addresses of the mail exchangers of {name}: no answer")));
        }
        Ok(false)
    }

    /// The names of the client whose addresses include it (RFC 7208 §5.5). Look-ups that fail name nothing.
    fn verified_names(&self) -> Result<Vec<&'a Name>, Stop> {
        let question = Question::Ptr(self.client);
        let Some(answer) = self.answers.find(&question) else { return Err(Stop::Ask(vec![question])) };
        let Answer::Ptr(names) = answer else { return Ok(Vec::new()) };
        let names = &names[..names.len().min(HOSTS_MAX)];
        let questions: Vec<Question> = names.iter().map(|name| self.address_question(name.clone())).collect();
        let answers = self.ask_all(&questions)?;
        let exact = Prefixes { v4: 32, v6: 128 };
        Ok(names
            .iter()
            .zip(answers)
            .filter(|(_, answer)| self.has_client(answer, exact))
            .map(|(name, _)| name)
            .collect())
    }

    fn address_question(&self, name: Name) -> Question {
        if self.client.is_ipv4() { Question::A(name) } else { Question::Aaaa(name) }
    }

    fn has_client(&self, answer: &Answer, prefixes: Prefixes) -> bool {
        match answer {
            Answer::A(found) => {
                found.iter().any(|it| is_in_network(self.client, IpAddr::V4(*it), prefixes.v4))
            }
            Answer::Aaaa(found) => {
                found.iter().any(|it| is_in_network(self.client, IpAddr::V6(*it), prefixes.v6))
            }
            _ => false,
        }
    }

    /// Asks for the target of a term: it is one of the look-ups that may find nothing only twice.
    fn ask(&mut self, question: Question) -> Result<&'a Answer, Stop> {
        let Some(answer) = self.answers.find(&question) else { return Err(Stop::Ask(vec![question])) };
        let is_void = match answer {
            Answer::Failed => return Err(Stop::Temporary(format!("{}: no answer", Asked(&question)))),
            Answer::NoRecords | Answer::NoName => true,
            Answer::A(found) => found.is_empty(),
            Answer::Aaaa(found) => found.is_empty(),
            Answer::Mx(found) => found.is_empty(),
            Answer::Txt(_) | Answer::Ptr(_) => false,
        };
        self.voids += usize::from(is_void);
        if self.voids > VOID_MAX {
            return Err(Stop::Permanent(format!("over {VOID_MAX} look-ups found nothing")));
        }
        Ok(answer)
    }

    /// Returns the answers to several questions, or asks for all that are open.
    fn ask_all(&self, questions: &[Question]) -> Result<Vec<&'a Answer>, Stop> {
        let (mut known, mut open) = (Vec::new(), Vec::new());
        for question in questions {
            match self.answers.find(question) {
                Some(answer) => known.push(answer),
                None if open.contains(question) => {}
                None => open.push(question.clone()),
            }
        }
        if open.is_empty() { Ok(known) } else { Err(Stop::Ask(open)) }
    }

    fn count_term(&mut self) -> Result<(), Stop> {
        self.terms += 1;
        if self.terms > TERMS_MAX {
            return Err(Stop::Permanent(format!("over {TERMS_MAX} terms need look-ups")));
        }
        Ok(())
    }

    /// Expands a `domain-spec` to a name: labels at its left end are removed until it has at most 253 octets (RFC 7208 §7.3).
    /// `None` if it is no name.
    fn target(&self, spec: &[Piece<'_>], domain: &Name) -> Result<Option<Name>, Stop> {
        const KEPT_BYTES: usize = 1024;
        let mut text = Vec::new();
        for piece in spec {
            self.expand(piece, domain, &mut text)?;
            // Only the end counts, whatever the number of macros.
            if text.len() > 4 * KEPT_BYTES {
                text.drain(..text.len() - KEPT_BYTES);
            }
        }
        let mut name = text.strip_suffix(b".").unwrap_or(&text);
        while name.len() > 253 {
            let Some(dot) = memchr::memchr(b'.', name) else { return Ok(None) };
            name = &name[dot + 1..];
        }
        Ok(if name.is_ascii() { Name::new(name) } else { None })
    }

    /// The explanation of a fail (RFC 7208 §6.2). Whatever is wrong with it, there is none then.
    fn explanation(&self, exp: &[Piece<'_>], domain: &Name) -> Result<Option<String>, Stop> {
        let Some(target) = self.target(exp, domain)? else { return Ok(None) };
        let question = Question::Txt(target);
        let text = match self.answers.txt(&question) {
            None => return Err(Stop::Ask(vec![question])),
            Some(Ok([text])) => text,
            Some(_) => return Ok(None),
        };
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= EXPLANATION_BYTES_MAX);
        let Some(pieces) = text.and_then(|text| macros::parse(text, true)) else { return Ok(None) };
        let mut out = Vec::new();
        for piece in &pieces {
            self.expand(piece, domain, &mut out)?;
            if out.len() > EXPLANATION_BYTES_MAX {
                return Ok(None);
            }
        }
        let is_printable = |byte: &u8| matches!(byte, b' '..=b'~');
        Ok(String::from_utf8(out).ok().filter(|text| text.as_bytes().iter().all(is_printable)))
    }

    fn expand(&self, piece: &Piece<'_>, domain: &Name, out: &mut Vec<u8>) -> Result<(), Stop> {
        let it = match piece {
            Piece::Text(text) => {
                out.extend_from_slice(text.as_bytes());
                return Ok(());
            }
            Piece::Macro(it) => it,
        };
        match it.letter {
            b's' => it.expand(&[self.local.as_bytes(), b"@", self.domain.as_bytes()].concat(), out),
            b'l' => it.expand(self.local.as_bytes(), out),
            b'o' => it.expand(self.domain.as_bytes(), out),
            b'd' => it.expand(domain.as_bytes(), out),
            b'i' => it.expand(dotted(self.client).as_bytes(), out),
            b'c' => it.expand(self.client.to_string().as_bytes(), out),
            b'p' => it.expand(self.client_name(domain)?, out),
            b'v' => it.expand(if self.client.is_ipv4() { b"in-addr" } else { b"ip6" }, out),
            b'h' => it.expand(self.spf.hello.as_bytes(), out),
            b'r' => it.expand(self.spf.receiver.as_bytes(), out),
            b't' => it.expand(self.spf.now.to_string().as_bytes(), out),
            _ => {}
        }
        Ok(())
    }

    /// A verified name of the client: the domain, a name below it, or any (RFC 7208 §7.3).
    fn client_name(&self, domain: &Name) -> Result<&'a [u8], Stop> {
        let names = self.verified_names()?;
        let best = names.iter().find(|name| **name == domain);
        let best = best.or_else(|| names.iter().find(|name| name.is_within(domain))).or(names.first());
        Ok(best.map_or(b"unknown", |name| name.as_bytes()))
    }
}

/// An address with dots: of IPv6, one digit each, in capital letters, as the test suite has them.
fn dotted(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let digits = format!("{:032X}", address.to_bits());
            digits.split("").filter(|digit| !digit.is_empty()).collect::<Vec<_>>().join(".")
        }
    }
}

/// Returns whether both have the same first bits. Addresses of different families never match.
fn is_in_network(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let (differing, width): (u128, u32) = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => ((a.to_bits() ^ b.to_bits()).into(), Ipv4Addr::BITS),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits(), Ipv6Addr::BITS),
        _ => return false,
    };
    differing.checked_shr(width - u32::from(bits)).unwrap_or(0) == 0
}

struct Asked<'a>(&'a Question);

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Question::Txt(name) => write!(f, "TXT records of {name}"),
            Question::A(name) | Question::Aaaa(name) => write!(f, "addresses of {name}"),
            Question::Mx(name) => write!(f, "mail exchangers of {name}"),
            Question::Ptr(address) => write!(f, "names of {address}"),
        }
    }
}
