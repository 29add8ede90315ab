//! The conditions of rules.

use crate::{
    AddressPattern, AddressPatterns, Answers, CertificatePattern, ClientName, DnsList, DomainPattern, Fact,
    Facts, HeaderPattern, Limit, LimitId, Listee, MapId, MapInfo, Question, Stage,
    hello::{fault, name_keys},
};
use ipnet::IpNet;
use mail::{ForwardPath, ListenerKind, Mailbox, ReversePath};
use rewrite::Separator;
use std::borrow::Cow;

/// Networks of clients, and maps of their addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Networks {
    /// Networks of clients.
    pub networks: Vec<IpNet>,
    /// Maps that are asked for the address.
    pub maps: Vec<MapId>,
}

/// `client_name`: names that the client's address leads to, and that lead back to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientNames {
    /// Any of them suffices.
    pub patterns: Vec<DomainPattern>,
    /// True if clients without a verified name are meant, too.
    pub has_none: bool,
    /// Maps that are asked for the name and the domains above it.
    pub maps: Vec<MapId>,
}

/// `hello`: names in EHLO or HELO.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hellos {
    /// Any of them suffices.
    pub patterns: Vec<DomainPattern>,
    /// Maps that are asked for the name and the domains above it.
    pub maps: Vec<MapId>,
}

/// `certificate`: certificates that clients show.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Certificates {
    /// Any of them suffices.
    pub patterns: Vec<CertificatePattern>,
    /// Maps that are asked for the fingerprint, and for the names of a trusted certificate.
    pub maps: Vec<MapId>,
}

/// `login`: names of users that have logged in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Logins {
    /// Names, in lower case.
    pub names: Vec<Box<str>>,
    /// True if every login is meant.
    pub is_any: bool,
    /// Maps that are asked for the name.
    pub maps: Vec<MapId>,
}

/// `from` and `to`: reverse-paths and recipients.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Addresses {
    /// Any of them suffices.
    pub patterns: AddressPatterns,
    /// Maps that are asked for the address, its domain and the domains above it.
    pub maps: Vec<MapId>,
}

/// One condition. A list means any of its items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// The kind of the listener is one of these.
    Listener(Vec<ListenerKind>),
    /// The client's address is in these networks, or in a map.
    Client(Networks),
    /// The client's verified name is one of these.
    ClientName(ClientNames),
    /// The name in EHLO or HELO is one of these.
    Hello(Hellos),
    /// TLS is active, or not.
    Tls(bool),
    /// The client has shown one of these certificates.
    Certificate(Certificates),
    /// The client has logged in as one of these users.
    Login(Logins),
    /// The reverse-path is one of these.
    From(Addresses),
    /// The recipient; at the content one of them, or all.
    To(Addresses),
    /// More octets than this.
    Size(u64),
    /// More recipients than this.
    Recipients(usize),
    /// Some field of the header matches one of these.
    Header(Vec<HeaderPattern>),
    /// An earlier rule has set one of these tags.
    Tagged(Vec<Box<str>>),
    /// Earlier rules have given this score, or a higher one.
    Score(i32),
    /// One of these limits is exceeded.
    Over(Vec<LimitId>),
    /// The name in EHLO cannot be that of a mail server.
    BadHello,
    /// The client's address has no verified name.
    NoReverseName,
    /// DNS does not say now whether the client's address has a verified name.
    ReverseNameUnknown,
    /// One of these lists in DNS has the client's address, or a domain. A list that does not answer has not (reputation, not permission).
    DnsList(Listee, Vec<DnsList>),
}

/// What is known of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// True. With the value of the map that decided.
    Holds(Option<Box<str>>),
    /// The condition does not hold.
    Fails,
    /// Answers are needed.
    Ask(Vec<Question>),
    /// Not known: a look-up failed, for this reason.
    Failed(Box<str>),
}

/// Everything that a condition is judged by.
pub(crate) struct Judge<'a> {
    pub(crate) facts: &'a Facts<'a>,
    pub(crate) answers: &'a Answers,
    /// Tags of rules above, at this stage.
    pub(crate) tags: &'a [Box<str>],
    /// Those of them that were set for all recipients.
    pub(crate) shared_tags: &'a [Box<str>],
    /// What rules above, at this stage, have added to the score.
    pub(crate) score: i32,
    /// The same, where it has to be true of all recipients.
    pub(crate) least_score: i32,
    /// What is said about recipients has to hold for each of them, not for one.
    pub(crate) is_for_each: bool,
    pub(crate) maps: &'a [MapInfo],
    pub(crate) limits: &'a [Limit],
    pub(crate) separator: Option<Separator>,
    pub(crate) own_names: &'a [Box<str>],
}

impl From<bool> for Finding {
    fn from(holds: bool) -> Self {
        if holds { Self::Holds(None) } else { Self::Fails }
    }
}

impl Condition {
    /// Returns the key under which the configuration has the condition.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Listener(_) => "listener",
            Self::Client(_) => "client",
            Self::ClientName(_) => "client_name",
            Self::Hello(_) => "hello",
            Self::Tls(_) => "tls",
            Self::Certificate(_) => "certificate",
            Self::Login(_) => "login",
            Self::From(_) => "from",
            Self::To(_) => "to",
            Self::Size(_) => "size",
            Self::Recipients(_) => "recipients",
            Self::Header(_) => "header",
            Self::Tagged(_) => "tagged",
            Self::Score(_) => "min_score",
            Self::Over(_) => "over",
            Self::BadHello => "hello",
            Self::NoReverseName | Self::ReverseNameUnknown => "reverse_name",
            Self::DnsList(of, _) => of.key(),
        }
    }

    /// The first stage at which the condition has an answer.
    pub fn earliest_stage(&self) -> Stage {
        match self {
            Self::Listener(_) | Self::Client(_) | Self::ClientName(_) | Self::Tagged(_) | Self::Over(_) => {
                Stage::Connect
            }
            Self::Score(_)
            | Self::NoReverseName
            | Self::ReverseNameUnknown
            | Self::DnsList(Listee::Client | Listee::ClientName, _) => Stage::Connect,
            Self::DnsList(Listee::Hello, _) => Stage::Hello,
            Self::DnsList(Listee::From, _) => Stage::Mail,
            Self::Hello(_) | Self::Tls(_) | Self::Certificate(_) | Self::BadHello => Stage::Hello,
            Self::Login(_) | Self::From(_) => Stage::Mail,
            Self::To(_) | Self::Recipients(_) => Stage::Rcpt,
            Self::Header(_) | Self::Size(_) => Stage::Content,
        }
    }

    /// Order of evaluation: facts, files and servers, DNS, and what has an effect.
    pub(crate) fn cost(&self) -> u8 {
        match self {
            Self::Over(_) => 4,
            Self::ClientName(_) | Self::NoReverseName | Self::ReverseNameUnknown | Self::DnsList(..) => 3,
            Self::Header(_) => 1,
            other if other.maps().is_empty() => 0,
            _ => 2,
        }
    }

    /// Returns the maps that the condition asks.
    pub fn maps(&self) -> &[MapId] {
        match self {
            Self::Client(Networks { maps, .. })
            | Self::ClientName(ClientNames { maps, .. })
            | Self::Hello(Hellos { maps, .. })
            | Self::Certificate(Certificates { maps, .. })
            | Self::Login(Logins { maps, .. })
            | Self::From(Addresses { maps, .. })
            | Self::To(Addresses { maps, .. }) => maps,
            _ => &[],
        }
    }

    /// Returns whether the answer is about recipients, which differ.
    pub(crate) fn is_about_recipients(&self) -> bool {
        matches!(self, Self::To(_) | Self::Tagged(_) | Self::Score(_))
    }

    /// Returns whether the answer stays the same at later stages of a transaction.
    pub(crate) fn lasts(&self) -> bool {
        match self {
            Self::Listener(_)
            | Self::Client(_)
            | Self::ClientName(_)
            | Self::NoReverseName
            | Self::DnsList(..)
            | Self::Hello(_)
            | Self::BadHello
            | Self::Tls(_)
            | Self::Certificate(_)
            | Self::Login(_)
            | Self::From(_) => true,
            Self::To(_)
            | Self::Size(_)
            | Self::Recipients(_)
            | Self::Header(_)
            | Self::Tagged(_)
            | Self::Score(_)
            | Self::Over(_)
            | Self::ReverseNameUnknown => false,
        }
    }

    /// Judges the condition by the facts, and by the answers that are known so far.
    pub(crate) fn judge(&self, judge: &Judge<'_>) -> Finding {
        let facts = judge.facts;
        match self {
            Self::Listener(kinds) => {
                facts.session.listener().is_some_and(|kind| kinds.contains(&kind)).into()
            }
            Self::Client(networks) => judge.client(networks),
            Self::ClientName(names) => judge.client_name(names),
            Self::Hello(hellos) => judge.hello(hellos),
            Self::Tls(wanted) => (facts.session.tls.is_some() == *wanted).into(),
            Self::Certificate(certificates) => judge.certificate(certificates),
            Self::Login(logins) => judge.login(logins),
            Self::From(addresses) => match facts.from {
                Some(from) => judge.from(addresses, from),
                None => Finding::Fails,
            },
            Self::To(addresses) => judge.to(addresses),
            Self::Size(most) => facts.size_bytes.is_some_and(|size| size > *most).into(),
            Self::Recipients(most) => (facts.recipient_count > *most).into(),
            Self::Header(patterns) => patterns.iter().any(|pattern| pattern.matches(facts.header)).into(),
            Self::Tagged(wanted) => {
                let (earlier, own) = match judge.is_for_each {
                    true => (facts.shared_tags, judge.shared_tags),
                    false => (facts.tags, judge.tags),
                };
                wanted.iter().any(|tag| earlier.contains(tag) || own.contains(tag)).into()
            }
            Self::Score(least) => (judge.total_score() >= *least).into(),
            Self::Over(limits) => judge.over(limits),
            Self::BadHello => {
                let is_own = |key: &str| judge.own_names.iter().any(|own| **own == *key);
                facts
                    .session
                    .hello
                    .as_deref()
                    .and_then(|hello| fault(hello, facts.session.client(), is_own))
                    .map_or(Finding::Fails, |why| Finding::Holds(Some(why.into())))
            }
            Self::NoReverseName => judge.with_name(|name| *name == ClientName::None),
            Self::ReverseNameUnknown => judge.with_name(|name| matches!(name, ClientName::Unknown(_))),
            Self::DnsList(of, lists) => judge.dns_lists(*of, lists),
        }
    }
}

impl Judge<'_> {
    pub(crate) fn total_score(&self) -> i32 {
        match self.is_for_each {
            true => self.facts.least_score.saturating_add(self.least_score),
            false => self.facts.score.saturating_add(self.score),
        }
    }

    fn client(&self, networks: &Networks) -> Finding {
        let Some(client) = self.facts.session.client().map(|client| client.to_canonical()) else {
            return Finding::Fails;
        };
        if networks.networks.iter().any(|network| network.contains(&client)) {
            return Finding::Holds(None);
        }
        self.look_up(&networks.maps, |_| vec![client.to_string().into()])
    }

    fn with_name(&self, holds: impl FnOnce(&ClientName) -> bool) -> Finding {
        if self.facts.session.client().is_none() {
            return Finding::Fails;
        }
        match self.answers.find(&Question::ClientName) {
            Some(Fact::ClientName(name)) => holds(name).into(),
            _ => Finding::Ask(vec![Question::ClientName]),
        }
    }

    /// Returns the domain that lists are asked about; none for the client's address.
    pub(crate) fn listed_domain(&self, of: Listee) -> Result<Option<Box<str>>, Finding> {
        let session = self.facts.session;
        match of {
            Listee::Client | Listee::ClientName if session.client().is_none() => Err(Finding::Fails),
            Listee::Client => Ok(None),
            Listee::ClientName => match self.answers.find(&Question::ClientName) {
                Some(Fact::ClientName(ClientName::Verified(name))) => Ok(Some(name.clone())),
                Some(_) => Err(Finding::Fails),
                None => Err(Finding::Ask(vec![Question::ClientName])),
            },
            Listee::Hello => {
                session.hello.as_deref().map(|name| Some(hello_key(name).into())).ok_or(Finding::Fails)
            }
            Listee::From => match self.facts.from {
                Some(ReversePath::Mailbox(mailbox)) => Ok(Some(mailbox.domain().key().into())),
                _ => Err(Finding::Fails),
            },
        }
    }

    fn dns_lists(&self, of: Listee, lists: &[DnsList]) -> Finding {
        let domain = match self.listed_domain(of) {
            Ok(domain) => domain,
            Err(finding) => return finding,
        };
        let mut open: Vec<Question> = Vec::new();
        for list in lists {
            match self.answers.dns_list(list.zone(), domain.as_deref()) {
                Some(Ok(listed)) if list.matches(listed) => {
                    let colon = if listed.text.is_empty() { "" } else { ": " };
                    return Finding::Holds(Some(format!("{}{colon}{}", list.zone(), listed.text).into()));
                }
                Some(_) => {}
                None => {
                    let question = Question::DnsList(list.zone().into(), domain.clone());
                    if !open.contains(&question) {
                        open.push(question);
                    }
                }
            }
        }
        if open.is_empty() { Finding::Fails } else { Finding::Ask(open) }
    }

    fn client_name(&self, names: &ClientNames) -> Finding {
        if self.facts.session.client().is_none() {
            return Finding::Fails;
        }
        match self.answers.find(&Question::ClientName) {
            Some(Fact::ClientName(ClientName::Verified(name))) => {
                if names.patterns.iter().any(|pattern| pattern.matches(name)) {
                    return Finding::Holds(None);
                }
                self.look_up(&names.maps, |whole_only| name_keys(name, whole_only))
            }
            Some(Fact::ClientName(ClientName::None)) => names.has_none.into(),
            // A name that DNS does not tell now is no reason to refuse (reputation, not permission).
            Some(_) => Finding::Fails,
            None => Finding::Ask(vec![Question::ClientName]),
        }
    }

    fn hello(&self, hellos: &Hellos) -> Finding {
        let Some(hello) = self.facts.session.hello.as_deref() else { return Finding::Fails };
        let key = hello_key(hello);
        if hellos.patterns.iter().any(|pattern| pattern.matches(&key)) {
            return Finding::Holds(None);
        }
        self.look_up(&hellos.maps, |whole_only| name_keys(&key, whole_only))
    }

    fn certificate(&self, certificates: &Certificates) -> Finding {
        let shown = self.facts.session.certificate.as_deref();
        if certificates.patterns.iter().any(|pattern| pattern.matches(shown)) {
            return Finding::Holds(None);
        }
        match shown {
            // Keys are not parts of each other: a map of patterns is asked for each, too.
            Some(shown) => self.look_up_each(&certificates.maps, &shown.keys()),
            None => Finding::Fails,
        }
    }

    fn login(&self, logins: &Logins) -> Finding {
        let Some(login) = self.facts.session.login.as_deref() else { return Finding::Fails };
        let login = login.to_lowercase();
        if logins.is_any || logins.names.iter().any(|name| **name == *login) {
            return Finding::Holds(None);
        }
        self.look_up(&logins.maps, |_| vec![login.as_str().into()])
    }

    fn from(&self, addresses: &Addresses, from: &ReversePath) -> Finding {
        if addresses.patterns.match_sender(from, self.separator) {
            return Finding::Holds(None);
        }
        self.look_up(&addresses.maps, |whole_only| match from {
            ReversePath::Null => vec!["<>".into()],
            ReversePath::Mailbox(mailbox) => self.address_keys(mailbox, whole_only),
        })
    }

    fn to(&self, addresses: &Addresses) -> Finding {
        let (mut finding, mut held) = (Finding::Fails, None);
        for recipient in self.facts.to {
            let judged = match &recipient.path {
                ForwardPath::Mailbox(mailbox) => self.address(addresses, mailbox),
                // The bare postmaster has no domain.
                _ => {
                    let is_it = |pattern: &AddressPattern| {
                        matches!(pattern, AddressPattern::User(user) if &**user == "postmaster")
                            || *pattern == AddressPattern::Domain(DomainPattern::Any)
                    };
                    addresses.patterns.iter().any(is_it).into()
                }
            };
            match judged {
                Finding::Holds(text) if self.is_for_each => held = held.or(Some(text)),
                Finding::Holds(text) => return Finding::Holds(text),
                Finding::Fails if self.is_for_each => return Finding::Fails,
                Finding::Fails => {}
                judged => finding = judged,
            }
        }
        match (held, finding) {
            (Some(text), Finding::Fails) => Finding::Holds(text),
            (_, finding) => finding,
        }
    }

    fn address(&self, addresses: &Addresses, mailbox: &Mailbox) -> Finding {
        if addresses.patterns.match_mailbox(mailbox, self.separator) {
            return Finding::Holds(None);
        }
        self.look_up(&addresses.maps, |whole_only| self.address_keys(mailbox, whole_only))
    }

    /// The keys of an address: itself, without its detail, its domain, the domains above that, and the user alone.
    fn address_keys(&self, mailbox: &Mailbox, whole_only: bool) -> Vec<Box<str>> {
        let whole: Box<str> = mailbox.key().into();
        if whole_only {
            return vec![whole];
        }
        let (local, domain) = (mailbox.plain_local(), mailbox.domain().key());
        let user = self.separator.and_then(|separator| separator.split(&local)).map(|(user, _)| user);
        let without = user.map(|user| format!("{user}@{domain}").into());
        let alone = format!("{}@", user.unwrap_or(&local)).into();
        [whole].into_iter().chain(without).chain(name_keys(&domain, false)).chain([alone]).collect()
    }

    /// Looks each of these keys up in maps, also in maps of patterns.
    fn look_up_each(&self, maps: &[MapId], keys: &[Box<str>]) -> Finding {
        let findings = keys.iter().map(|key| self.look_up(maps, |_| vec![key.clone()]));
        // A value behind a look-up that is still open does not decide yet.
        findings.into_iter().find(|finding| *finding != Finding::Fails).unwrap_or(Finding::Fails)
    }

    /// Looks keys up in maps, in their order; the first value decides.
    fn look_up(&self, maps: &[MapId], keys: impl FnOnce(bool) -> Vec<Box<str>>) -> Finding {
        if maps.is_empty() {
            return Finding::Fails;
        }
        let info = |map: &MapId| self.maps.get(usize::from(map.0));
        let keys = keys(maps.iter().all(|map| info(map).is_some_and(|map| map.has_patterns)));
        for map in maps {
            let has_patterns = info(map).is_some_and(|map| map.has_patterns);
            let asked = &keys[..if has_patterns { 1 } else { keys.len() }];
            let mut open = Vec::new();
            for key in asked {
                match self.answers.map(*map, key) {
                    // A value behind a key that is still open does not decide yet.
                    Some(Ok(Some(value))) if open.is_empty() => return Finding::Holds(Some(value.clone())),
                    Some(Ok(_)) => {}
                    Some(Err(why)) => return Finding::Failed(why.clone()),
                    None => open.push(Question::Map(*map, key.clone())),
                }
            }
            if !open.is_empty() {
                return Finding::Ask(open);
            }
        }
        Finding::Fails
    }

    fn over(&self, limits: &[LimitId]) -> Finding {
        let mut open = Vec::new();
        for id in limits {
            match self.spend(*id) {
                Finding::Holds(text) => return Finding::Holds(text),
                Finding::Ask(questions) => open.extend(questions),
                _ => {}
            }
        }
        if open.is_empty() { Finding::Fails } else { Finding::Ask(open) }
    }

    /// Holds if a limit is exceeded.
    pub(crate) fn spend(&self, id: LimitId) -> Finding {
        let Some(limit) = self.limits.get(usize::from(id.0)) else { return Finding::Fails };
        let Some(key) = limit.key(self.facts, self.separator) else { return Finding::Fails };
        let question = Question::Spend(id, key, limit.amount(self.facts));
        match self.answers.find(&question) {
            Some(Fact::Over(is_over)) => (*is_over).into(),
            _ => Finding::Ask(vec![question]),
        }
    }
}

/// Returns the form of a name in EHLO in which it is compared. The key of a domain in ASCII is its lower case, and so is that of a
/// name that is no domain.
fn hello_key(hello: &str) -> Cow<'_, str> {
    if hello.is_ascii() {
        lower_case(hello)
    } else {
        mail::Domain::parse(hello).map_or_else(|_| hello.to_lowercase().into(), mail::Domain::key)
    }
}

/// Returns a text of ASCII in lower case; one that is in lower case is not copied.
fn lower_case(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        text.to_ascii_lowercase().into()
    } else {
        text.into()
    }
}
