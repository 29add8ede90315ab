//! What is known of the origin of a message from a client that is not trusted: SPF, DKIM and DMARC. It decides nothing: rules and
//! `[checks]` do, by the tags that it sets. A field says what was found (RFC 8601).

use crate::{
    check::{Check, View, is_trusted_client},
    memory::{CheckMemories, CheckMemory, OfTransaction, own},
};
use authn::{
    Answer as Found, Answers, AuthenticationResults, DkimOutcome, DkimResult, Dmarc, DmarcOutcome,
    DmarcPolicy, DmarcResult, Name, Question, Spf, SpfOutcome, Step, Verifier, from_domain, has_server_id,
};
use config::Settings;
use inbound::Answer;
use mail::{Edit, Edits, Envelope, Field, ListenerKind, ReversePath, UnixMillis, header::fields};
use policy::{Source, Stage, Verdict};
use route::dns::{Dns, Lookup};
use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{task::JoinSet, time::timeout};

/// Time for all look-ups of a message. Those that have no answer then have failed, which is no reason to refuse the message.
const LOOKUPS_TIMEOUT: Duration = Duration::from_secs(20);

/// RFC 8601 §2.
const RESULTS_FIELD: &str = "Authentication-Results";

/// Looks up what is configured, and adds a field and tags. Asked before the rules, which see the tags.
pub(crate) struct Authenticated {
    wanted: config::Authentication,
    dns: Arc<Dns>,
}

impl Authenticated {
    /// Returns `None` if nothing is to be looked up.
    pub(crate) fn new(settings: &Settings, dns: &Arc<Dns>) -> Option<Self> {
        let wanted = settings.rules.authentication;
        (wanted.spf || wanted.dkim).then(|| Self { wanted, dns: dns.clone() })
    }
}

/// Verifies signatures while the body arrives.
type Arriving = OfTransaction<Verifier>;

impl Check for Authenticated {
    fn stages(&self) -> Vec<Stage> {
        vec![Stage::Header, Stage::Body, Stage::Content]
    }

    fn begin(&self, _: &mut CheckMemories) -> Option<Box<dyn CheckMemory>> {
        Some(Box::<Arriving>::default())
    }

    fn check<'a>(&'a self, memory: Option<&'a mut dyn CheckMemory>, view: View<'a>) -> Answer<'a, Verdict> {
        let memory = own::<Arriving>(memory);
        let Some(OfTransaction(verifier)) = memory.filter(|_| is_asked(&view)) else {
            return Answer::Ready(Verdict::Pass);
        };
        match view.stage {
            Stage::Header => *verifier = self.wanted.dkim.then(|| Verifier::new(view.header)),
            Stage::Body => verifier.iter_mut().for_each(|verifier| verifier.push(view.body)),
            _ => return Answer::later(self.look_up(view, verifier.take())),
        }
        Answer::Ready(Verdict::Pass)
    }
}

/// Clients that bring mail from elsewhere: what they say of its origin is not to be believed.
pub(super) fn is_asked(view: &View<'_>) -> bool {
    let Source::Smtp { peer, listener, .. } = &view.facts.source else { return false };
    *listener == ListenerKind::Mx
        && *peer != inbound::UNIX_CLIENT
        && !is_trusted_client(view.facts, view.rules.policy)
}

/// The reverse-path as SPF takes it; none for the null one.
pub(super) fn sender_of(envelope: &Envelope) -> Option<String> {
    match &envelope.reverse_path {
        ReversePath::Mailbox(sender) => Some(sender.to_string()),
        ReversePath::Null => None,
    }
}

/// What SPF asks about a client and the sender that it named, at a time in Unix seconds.
pub(super) fn spf<'a>(view: &View<'a>, client: IpAddr, sender: Option<&'a str>, now: u64) -> Spf<'a> {
    let hello = view.facts.hello.as_deref().unwrap_or_default();
    Spf { client, hello, sender, receiver: &view.rules.settings.hostname, now }
}

impl Authenticated {
    async fn look_up(&self, view: View<'_>, verifier: Option<Verifier>) -> Verdict {
        let (Source::Smtp { peer, .. }, Some(envelope)) = (&view.facts.source, view.envelope) else {
            return Verdict::Pass;
        };
        let now = UnixMillis::now().0 / 1000;
        let server = &*view.rules.settings.hostname;
        let sender = sender_of(envelope);
        let spf = spf(&view, peer.ip(), sender.as_deref(), now);
        let mut asker = Asker::new(&self.dns, LOOKUPS_TIMEOUT);
        let signatures = verifier.map(Verifier::finish);
        let dkim = match &signatures {
            Some(signatures) => asker.decide(|answers| signatures.evaluate(answers, now)).await,
            None => Vec::new(),
        };
        let mut results = AuthenticationResults::new(server);
        let found =
            if self.wanted.spf { Some(asker.decide(|answers| spf.evaluate(answers)).await) } else { None };
        if let Some(found) = &found {
            results = results.spf(&spf, found);
            note_spf(&view, found);
        }
        if self.wanted.dkim {
            results = results.dkim(&dkim);
            note_dkim(&view, &dkim);
        }
        if self.wanted.dmarc {
            match from_domain(view.header) {
                Ok(from) => {
                    let question = Dmarc { from: &from, spf: found.as_ref(), dkim: &dkim };
                    let outcome = asker.decide(|answers| question.evaluate(answers)).await;
                    results = results.dmarc(&outcome, &from);
                    note_dmarc(&view, &outcome, &from);
                }
                Err(why) => {
                    tag(&view, "dmarc-permerror".to_owned());
                    view.note("dmarc", || format!("permerror: {why}"));
                }
            }
        }
        let removed = forged(view.header, server)
            .into_iter()
            .map(|occurrence| Edit::Remove { name: RESULTS_FIELD.into(), occurrence: Some(occurrence) });
        // Values of others are quoted, and octets that no field can have replaced.
        let added = Field::new(RESULTS_FIELD, &results.into_value()).ok().map(Edit::Prepend);
        Verdict::Edit(removed.chain(added).collect::<Edits>())
    }
}

fn tag(view: &View<'_>, tag: String) {
    if let Some(findings) = view.findings {
        findings.tag(tag);
    }
}

fn note_spf(view: &View<'_>, found: &SpfOutcome) {
    tag(view, format!("spf-{}", found.result.as_str()));
    view.note("spf", || {
        let domain = found.domain.as_ref().map_or("no domain".to_owned(), Name::to_string);
        let why = found.mechanism.as_deref().or(found.error.as_deref()).unwrap_or("no record");
        format!("{}: {domain}, {why}", found.result.as_str())
    });
}

/// One tag for the message: a signature that passes counts, and then one that may pass later.
fn note_dkim(view: &View<'_>, outcomes: &[DkimOutcome]) {
    let has = |result| outcomes.iter().any(|outcome| outcome.result == result);
    let counts = |outcome: &&DkimOutcome| !outcome.is_testing;
    let result = match () {
        () if has(DkimResult::Pass) => "pass",
        () if has(DkimResult::TempError) => "temperror",
        () if outcomes.iter().any(|outcome| counts(&outcome)) => "fail",
        () => "none",
    };
    tag(view, format!("dkim-{result}"));
    for outcome in outcomes {
        view.note("dkim", || {
            let [domain, selector] = [&outcome.domain, &outcome.selector]
                .map(|name| name.as_ref().map_or("?".to_owned(), Name::to_string));
            let why = outcome.reason.map(|why| format!(": {why}")).unwrap_or_default();
            format!("{}: d={domain} s={selector}{why}", outcome.result.as_str())
        });
    }
}

fn note_dmarc(view: &View<'_>, outcome: &DmarcOutcome, from: &Name) {
    tag(view, format!("dmarc-{}", outcome.result.as_str()));
    match outcome.requested() {
        DmarcPolicy::None => {}
        policy => tag(view, format!("dmarc-{}", policy.as_str())),
    }
    view.note("dmarc", || {
        let aligned = match (outcome.is_spf_aligned, outcome.aligned_signature) {
            _ if outcome.result != DmarcResult::Pass => String::new(),
            (true, Some(_)) => ", by SPF and DKIM".to_owned(),
            (true, None) => ", by SPF".to_owned(),
            (false, _) => ", by DKIM".to_owned(),
        };
        let why = outcome.error.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        format!("{}: {from}, p={}{aligned}{why}", outcome.result.as_str(), outcome.policy.as_str())
    });
}

/// Returns the occurrences of fields that claim to be of this server. None can be: it adds its own now.
fn forged(header: &[u8], server: &str) -> Vec<usize> {
    let results =
        fields(header).filter(|(name, _)| name.eq_ignore_ascii_case(RESULTS_FIELD.as_bytes())).enumerate();
    results.filter(|(_, (_, value))| has_server_id(value, server)).map(|(occurrence, _)| occurrence).collect()
}

/// Answers the questions of one message.
pub(super) struct Asker<'a> {
    dns: &'a Arc<Dns>,
    answers: Answers,
    until: Instant,
}

impl<'a> Asker<'a> {
    /// All look-ups together have so much time; those that have no answer then have failed.
    pub(super) fn new(dns: &'a Arc<Dns>, time: Duration) -> Self {
        Self { dns, answers: Answers::default(), until: Instant::now() + time }
    }

    /// Evaluates a machine until it has decided. Each round asks something new, and each machine bounds what it asks.
    pub(super) async fn decide<T>(&mut self, evaluate: impl Fn(&Answers) -> Step<T>) -> T {
        loop {
            let questions = match evaluate(&self.answers) {
                Step::Done(decided) => return decided,
                Step::Ask(questions) => questions,
            };
            let mut asked = JoinSet::new();
            for question in &questions {
                let (dns, question) = (self.dns.clone(), question.clone());
                asked.spawn(async move {
                    let found = ask_dns(&dns, &question).await;
                    (question, found)
                });
            }
            let answers = &mut self.answers;
            let collect = async {
                while let Some(answered) = asked.join_next().await {
                    if let Ok((question, found)) = answered {
                        answers.add(question, found);
                    }
                }
            };
            let left = self.until.saturating_duration_since(Instant::now());
            let _ = timeout(left, collect).await;
            for question in questions {
                if self.answers.find(&question).is_none() {
                    self.answers.add(question, Found::Failed);
                }
            }
        }
    }
}

/// Asks the DNS what a check of [`authn`] asks.
pub async fn ask_dns(dns: &Dns, question: &Question) -> Found {
    match question {
        Question::Txt(name) => found(dns.txt(name.labels()).await, Found::Txt),
        Question::A(name) => found(dns.a(name.labels()).await, Found::A),
        Question::Aaaa(name) => found(dns.aaaa(name.labels()).await, Found::Aaaa),
        Question::Mx(name) => found(dns.exchangers(name.labels()).await, |hosts| {
            Found::Mx(hosts.into_iter().map(Name::new).collect())
        }),
        Question::Ptr(address) => found(dns.names_of(*address).await, |names| {
            Found::Ptr(names.into_iter().filter_map(Name::new).collect())
        }),
    }
}

fn found<T>(lookup: Lookup<T>, records: impl FnOnce(T) -> Found) -> Found {
    match lookup {
        Lookup::Found(found) => records(found),
        Lookup::NoData => Found::NoRecords,
        Lookup::NxDomain => Found::NoName,
        Lookup::Unknown(_) => Found::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_claim_to_be_of_this_server_are_found() {
        let header =
            b"Authentication-Results: mx.test; spf=pass\r\nSubject: x\r\nauthentication-results :\r\n \
                       other.test; dkim=pass\r\nAuthentication-Results: (c) \"MX.test\" 1;\r\n none\r\n\r\n";
        assert_eq!(forged(header, "mx.test"), [0, 2]);
    }
}
