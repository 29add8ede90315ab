//! The keys of a rule turned into its conditions, verdict and changes.

use super::{
    RuleSet,
    keys::RuleKeys,
    values::{ClientNamePattern, LeastScore, LoginName},
};
use crate::{
    domain::DomainPattern,
    route::{Route, Target},
    section::Reading,
    units::ByteSize,
    value::{Context, Found, OrMap, Value, Word},
};
use ipnet::IpNet;
use mail::ListenerKind;
use maps::{Kind, Reference};
use policy::{
    Action, AddressPattern, Addresses, Audience, CertificatePattern, Certificates, ClientNames, Condition,
    DnsList, HeaderPattern, Hellos, Limit, LimitId, Line, Listee, Logins, MapId, MapInfo, Modifiers,
    Networks, Per, Rule, ServiceId, Stage,
};
use std::{ops::Range, time::Duration};
use toml::{Spanned, de::DeTable};

/// A client waits so long at most because of a rule.
const DELAY_MAX: Duration = Duration::from_secs(20);

/// The keys of verdicts and changes.
const CHANGES: [&str; 13] = [
    "accept",
    "reject",
    "defer",
    "discard",
    "hold",
    "ask",
    "tag",
    "score",
    "delay",
    "add_header",
    "redirect",
    "bcc",
    "route",
];

/// A condition whose maps and names are still as they are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadCondition {
    Listener(Vec<ListenerKind>),
    Client(Vec<OrMap<IpNet>>),
    ClientName(Vec<OrMap<ClientNamePattern>>),
    Hello(Vec<OrMap<DomainPattern>>),
    Tls(bool),
    Certificate(Vec<OrMap<CertificatePattern>>),
    Login(Vec<OrMap<LoginName>>),
    From(Vec<OrMap<AddressPattern>>),
    To(Vec<OrMap<AddressPattern>>),
    Size(ByteSize),
    Recipients(usize),
    Header(Vec<HeaderPattern>),
    Tagged(Vec<Word>),
    Score(LeastScore),
    Over(Vec<Word>),
    DnsList(Listee, Vec<DnsList>),
}

/// The keys of conditions.
const CONDITIONS: [&str; 19] = [
    "listener",
    "client",
    "client_name",
    "hello",
    "tls",
    "certificate",
    "login",
    "from",
    "to",
    "size",
    "recipients",
    "header",
    "tagged",
    "min_score",
    "over",
    "dns_list",
    "client_name_dns_list",
    "hello_dns_list",
    "from_dns_list",
];

/// Reads one condition by its key; also returns how it is shown.
pub(crate) fn condition(
    name: &Found2<'_>,
    found: &Found<'_>,
    cx: &mut Context,
) -> Option<(ReadCondition, toml::Value)> {
    fn of<T: Value>(
        found: &Found<'_>,
        cx: &mut Context,
        make: fn(T) -> ReadCondition,
    ) -> Option<(ReadCondition, toml::Value)> {
        let value = T::read(found, cx)?;
        let shown = value.to_toml()?;
        Some((make(value), shown))
    }
    use ReadCondition as C;
    match &**name.get_ref() {
        "listener" => of(found, cx, C::Listener),
        "client" => of(found, cx, C::Client),
        "client_name" => of(found, cx, C::ClientName),
        "hello" => of(found, cx, C::Hello),
        "tls" => of(found, cx, C::Tls),
        "certificate" => of(found, cx, C::Certificate),
        "login" => of(found, cx, C::Login),
        "from" => of(found, cx, C::From),
        "to" => of(found, cx, C::To),
        "size" => of(found, cx, C::Size),
        "recipients" => of(found, cx, C::Recipients),
        "header" => of(found, cx, C::Header),
        "tagged" => of(found, cx, C::Tagged),
        "min_score" => of(found, cx, C::Score),
        "over" => of(found, cx, C::Over),
        "dns_list" => of(found, cx, |lists| C::DnsList(Listee::Client, lists)),
        "client_name_dns_list" => of(found, cx, |lists| C::DnsList(Listee::ClientName, lists)),
        "hello_dns_list" => of(found, cx, |lists| C::DnsList(Listee::Hello, lists)),
        "from_dns_list" => of(found, cx, |lists| C::DnsList(Listee::From, lists)),
        other => {
            let what = format!("there is no condition `{other}`");
            cx.problem(
                name.span(),
                what,
                "unknown condition",
                format!("conditions: {}", CONDITIONS.join(", ")),
            );
            None
        }
    }
}

/// A key where it stands in the file.
pub(crate) type Found2<'a> = toml::Spanned<toml::de::DeString<'a>>;

impl RuleKeys {
    fn conditions(&mut self) -> Vec<ReadCondition> {
        use ReadCondition as C;
        [
            self.listener.take().map(C::Listener),
            self.client.take().map(C::Client),
            self.client_name.take().map(C::ClientName),
            self.hello.take().map(C::Hello),
            self.tls.take().map(C::Tls),
            self.certificate.take().map(C::Certificate),
            self.login.take().map(C::Login),
            self.from.take().map(C::From),
            self.to.take().map(C::To),
            self.size.take().map(C::Size),
            self.recipients.take().map(C::Recipients),
            self.header.take().map(C::Header),
            self.tagged.take().map(C::Tagged),
            self.min_score.take().map(C::Score),
            self.over.take().map(C::Over),
            self.dns_list.take().map(|lists| C::DnsList(Listee::Client, lists)),
            self.client_name_dns_list.take().map(|lists| C::DnsList(Listee::ClientName, lists)),
            self.hello_dns_list.take().map(|lists| C::DnsList(Listee::Hello, lists)),
            self.from_dns_list.take().map(|lists| C::DnsList(Listee::From, lists)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl ReadCondition {
    fn key(&self) -> &'static str {
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
            Self::DnsList(of, _) => of.key(),
        }
    }

    /// Returns whether recipients are compared with the null reverse-path.
    fn has_null_recipient(&self) -> bool {
        matches!(self, Self::To(list) if list.contains(&OrMap::Item(AddressPattern::Null)))
    }

    /// A list without items never holds.
    fn is_empty(&self) -> bool {
        match self {
            Self::Listener(list) => list.is_empty(),
            Self::Client(list) => list.is_empty(),
            Self::ClientName(list) => list.is_empty(),
            Self::Hello(list) => list.is_empty(),
            Self::Certificate(list) => list.is_empty(),
            Self::Login(list) => list.is_empty(),
            Self::From(list) | Self::To(list) => list.is_empty(),
            Self::Header(list) => list.is_empty(),
            Self::Tagged(list) | Self::Over(list) => list.is_empty(),
            Self::DnsList(_, list) => list.is_empty(),
            Self::Tls(_) | Self::Size(_) | Self::Recipients(_) | Self::Score(_) => false,
        }
    }
}

/// Makes rules of their keys.
pub(super) struct Compiler<'c, 's> {
    pub(super) reading: &'c mut Reading<'s>,
    pub(super) set: &'c mut RuleSet,
    pub(super) maps: Vec<MapInfo>,
    pub(super) limits: Vec<NamedLimit>,
    pub(super) routes: &'c [Route],
    /// Names of limits that rules ask for.
    pub(super) asked_limits: Vec<LimitId>,
    /// Tags that the rules so far set.
    pub(super) own_tags: Vec<Box<str>>,
}

/// A limit that rules can ask for.
pub(super) struct NamedLimit {
    name: Box<str>,
    /// The first stage at which events are counted and their owner is known.
    stage: Stage,
    is_of_logins: bool,
}

impl From<&Limit> for NamedLimit {
    fn from(limit: &Limit) -> Self {
        let owner_known = match limit.per {
            Per::Client => Stage::Connect,
            Per::Login | Per::Sender | Per::SenderDomain => Stage::Mail,
            Per::RecipientDomain => Stage::Rcpt,
        };
        let stage = limit.measure.stage().max(owner_known);
        Self { name: limit.name.clone(), stage, is_of_logins: limit.per == Per::Login }
    }
}

impl Compiler<'_, '_> {
    /// Returns ` of 10-lists.toml` for a place in a further file, whose lines say nothing without its name.
    fn further_file(&self, at: usize) -> String {
        let sources = &self.reading.sources;
        let (file, ..) = sources.file_at(at);
        match file.file_name().filter(|_| file != sources.path()) {
            Some(name) => format!(" of {}", name.display()),
            None => String::new(),
        }
    }

    /// Makes one rule; `span` is its section.
    pub(super) fn rule(&mut self, number: usize, mut keys: RuleKeys, table: &Spanned<&DeTable<'_>>) -> Rule {
        let span = table.span();
        let (line, _) = self.reading.sources.place(span.start);
        let has_change = CHANGES.iter().any(|key| table.get_ref().contains_key(*key));
        let path = format!("rule[{number}]");
        let read = keys.conditions();
        let unless_read = keys.unless.take().map(|unless| unless.conditions).unwrap_or_default();
        let conditions = self.resolve_all(&path, None, read, &span);
        let unless = self.resolve_all(&path, Some("unless"), unless_read, &span);
        let stage = keys.at.unwrap_or_else(|| {
            Rule::usual_stage(conditions.iter().chain(&unless).map(|one| self.earliest_stage(one)))
        });
        self.check_stage(&path, stage, &conditions, &unless, &span);
        self.check_logins(&path, keys.r#for, &conditions, &span);
        let action = self.action(&path, &keys, &span);
        let route = keys.route.take().and_then(|Word(name)| self.route(&path, &name, &span));
        let modifiers = Modifiers {
            tags: keys.tag.iter().map(|tag| tag.0.as_str().into()).collect(),
            score: keys.score.0,
            delay: keys.delay,
            fields: keys.add_header.0.iter().map(|added| added.field.clone()).collect(),
            redirect: keys.redirect,
            bcc: keys.bcc,
            route,
            is_trust: keys.trust,
        };
        self.own_tags.extend(modifiers.tags.iter().cloned());
        self.check_modifiers(&path, stage, &modifiers, &span);
        // A change that could not be read was reported already.
        if action.is_none() && modifiers == Modifiers::default() && !has_change {
            let help = "add a verdict, such as reject = true, or a change, such as tag = [\"name\"]";
            self.problem(&path, &span, "this rule does nothing".to_owned(), "no verdict and no change", help);
        }
        let name = match keys.name {
            Some(name) => format!("rule \"{}\"", name.0),
            None => format!("rule {}", number + 1),
        } + &self.further_file(span.start);
        Rule {
            name: name.into(),
            line: Line(line),
            stage,
            audience: keys.r#for,
            conditions,
            unless,
            action,
            modifiers,
        }
    }

    fn problem(&mut self, path: &str, span: &Range<usize>, what: String, label: &str, help: &str) {
        let span = match self.reading.origin(path) {
            Some(crate::listing::Origin::File { span, .. }) => span.clone(),
            _ => span.clone(),
        };
        self.reading.cx.problem(span, what, label, (!help.is_empty()).then(|| help.to_owned()));
    }

    fn resolve_all(
        &mut self,
        path: &str,
        inner: Option<&str>,
        read: Vec<ReadCondition>,
        span: &Range<usize>,
    ) -> Vec<Condition> {
        let mut conditions = Vec::new();
        for one in read {
            let key = format!("{path}.{}", inner.unwrap_or(one.key()));
            if one.is_empty() {
                let what = format!("`{}` is empty, so it never holds", one.key());
                self.problem(&key, span, what, "empty", "say what it should match, or leave it out");
                continue;
            }
            if one.has_null_recipient() {
                let what = "no recipient has the address `<>`".to_owned();
                self.problem(&key, span, what, "never matches", "remove \"<>\"; `from` matches senders");
                continue;
            }
            conditions.push(self.resolve(&key, one, span));
        }
        conditions
    }

    fn resolve(&mut self, key: &str, read: ReadCondition, span: &Range<usize>) -> Condition {
        match read {
            ReadCondition::Listener(kinds) => Condition::Listener(kinds),
            ReadCondition::Client(list) => {
                let (networks, maps) = self.split(key, list);
                Condition::Client(Networks { networks, maps })
            }
            ReadCondition::ClientName(list) => {
                let (names, maps) = self.split(key, list);
                let has_none = names.contains(&ClientNamePattern::None);
                let pattern = |name| match name {
                    ClientNamePattern::None => None,
                    ClientNamePattern::Name(pattern) => Some(pattern),
                };
                let patterns = names.into_iter().filter_map(pattern).collect();
                Condition::ClientName(ClientNames { patterns, has_none, maps })
            }
            ReadCondition::Hello(list) => {
                let (patterns, maps) = self.split(key, list);
                Condition::Hello(Hellos { patterns, maps })
            }
            ReadCondition::Tls(wanted) => Condition::Tls(wanted),
            ReadCondition::DnsList(of, lists) => Condition::DnsList(of, lists),
            ReadCondition::Certificate(list) => {
                let (patterns, maps) = self.split(key, list);
                Condition::Certificate(Certificates { patterns, maps })
            }
            ReadCondition::Login(list) => {
                let (names, maps) = self.split(key, list);
                let is_any = names.iter().any(|name| &*name.0 == "*");
                let names =
                    names.into_iter().map(|LoginName(name)| name).filter(|name| &**name != "*").collect();
                Condition::Login(Logins { names, is_any, maps })
            }
            ReadCondition::From(list) => {
                let (patterns, maps) = self.split(key, list);
                Condition::From(Addresses { patterns: patterns.into(), maps })
            }
            ReadCondition::To(list) => {
                let (patterns, maps) = self.split(key, list);
                Condition::To(Addresses { patterns: patterns.into(), maps })
            }
            ReadCondition::Size(most) => Condition::Size(most.0),
            ReadCondition::Recipients(most) => Condition::Recipients(most),
            ReadCondition::Header(patterns) => Condition::Header(patterns),
            ReadCondition::Tagged(tags) => {
                Condition::Tagged(tags.into_iter().map(|tag| tag.0.into()).collect())
            }
            ReadCondition::Score(least) => Condition::Score(least.0),
            ReadCondition::Over(names) => {
                let found = names.iter().filter_map(|name| self.limit(key, &name.0, span)).collect();
                Condition::Over(found)
            }
        }
    }

    fn split<T>(&mut self, key: &str, list: Vec<OrMap<T>>) -> (Vec<T>, Vec<MapId>) {
        let (items, references) = OrMap::split(list);
        let maps = references.into_iter().map(|reference| self.map(key, reference)).collect();
        (items, maps)
    }

    fn map(&mut self, key: &str, reference: Reference) -> MapId {
        let known = self.set.references.iter().position(|(_, known)| *known == reference);
        let at = known.unwrap_or_else(|| {
            let has_patterns = matches!(reference, Reference::File(Kind::Regex | Kind::Cidr, _));
            self.maps.push(MapInfo { name: reference.to_string().into(), has_patterns });
            self.set.references.push((key.to_owned(), reference));
            self.set.references.len() - 1
        });
        MapId(at as u16)
    }

    /// Returns the first stage at which a condition can be judged: a limit counts nothing before that of its events.
    fn earliest_stage(&self, condition: &Condition) -> Stage {
        match condition {
            Condition::Over(limits) => {
                let stages = limits.iter().map(|id| self.limits[usize::from(id.0)].stage);
                stages.max().unwrap_or_else(|| condition.earliest_stage())
            }
            Condition::Tagged(tags) if tags.iter().any(|tag| self.is_of_content(tag)) => Stage::Content,
            _ => condition.earliest_stage(),
        }
    }

    /// Refuses limits of logins in a rule for clients that have none.
    fn check_logins(
        &mut self,
        path: &str,
        audience: Audience,
        conditions: &[Condition],
        span: &Range<usize>,
    ) {
        let of_logins = |condition: &Condition| matches!(condition, Condition::Over(limits) if limits.iter().all(|id| self.limits[usize::from(id.0)].is_of_logins));
        if audience == Audience::Untrusted && conditions.iter().any(of_logins) {
            let what = "the rule is for untrusted clients, who have no login to count".to_owned();
            self.problem(
                &format!("{path}.over"),
                span,
                what,
                "never exceeded",
                "write for = \"users\" or for = \"all\"",
            );
        }
    }

    fn limit(&mut self, key: &str, name: &str, span: &Range<usize>) -> Option<LimitId> {
        let Some(at) = self.limits.iter().position(|known| *known.name == *name) else {
            let known: Vec<&str> = self.limits.iter().map(|known| &*known.name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let what = format!("there is no limit `{name}`");
            let help = format!("add [[limit]] with name = \"{name}\"; limits with a name: {known}");
            self.problem(key, span, what, "unknown limit", &help);
            return None;
        };
        let id = LimitId(at as u16);
        self.asked_limits.push(id);
        Some(id)
    }

    /// Finds a route by its name. Routes that take no mail anywhere are verdicts of rules.
    fn route(&mut self, path: &str, name: &str, span: &Range<usize>) -> Option<Box<str>> {
        let key = format!("{path}.route");
        let found = self.routes.iter().find(|route| route.label.as_deref() == Some(name));
        let verdict = match found.map(|route| &route.target) {
            None => {
                let known: Vec<&str> =
                    self.routes.iter().filter_map(|route| route.label.as_deref()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let what = format!("there is no route `{name}`");
                let help = format!("add [[route]] with name = \"{name}\"; routes with a name: {known}");
                self.problem(&key, span, what, "unknown route", &help);
                return None;
            }
            Some(Target::Hold) => "hold = true",
            Some(Target::Reject(_)) => "reject = \"550 5.7.1 text\"",
            Some(Target::Discard) => "discard = true",
            Some(_) => return Some(name.into()),
        };
        let what = format!("the route `{name}` delivers no mail");
        self.problem(&key, span, what, "not a delivery route", &format!("write {verdict} in the rule"));
        None
    }

    /// Reports conditions that have no answer yet at a stage.
    fn check_stage(
        &mut self,
        path: &str,
        stage: Stage,
        conditions: &[Condition],
        unless: &[Condition],
        span: &Range<usize>,
    ) {
        for condition in conditions.iter().chain(unless) {
            let earliest = self.earliest_stage(condition);
            if earliest > stage {
                let what =
                    format!("`{}` is not known yet at the stage \"{}\"", condition.key(), stage.as_str());
                let help = format!("write at = \"{}\" or later, or leave `at` out", earliest.as_str());
                self.problem(&format!("{path}.at"), span, what, "too early", &help);
            }
        }
    }

    fn action(&mut self, path: &str, keys: &RuleKeys, span: &Range<usize>) -> Option<Action> {
        let mut verdicts: Vec<(&str, Action)> = Vec::new();
        verdicts.extend(keys.accept.then_some(("accept", Action::Accept)));
        verdicts.extend(keys.reject.as_ref().map(|verb| ("reject", Action::Reject(verb.0.clone()))));
        verdicts.extend(keys.defer.as_ref().map(|verb| ("defer", Action::Defer(verb.0.clone()))));
        verdicts.extend(keys.discard.as_ref().map(|reason| ("discard", Action::Discard(reason.0.clone()))));
        verdicts.extend(keys.hold.as_ref().map(|reason| ("hold", Action::Hold(reason.0.clone()))));
        if let Some(Word(name)) = &keys.ask {
            let key = format!("{path}.ask");
            let known: Vec<&str> = self.set.services.iter().map(|service| service.name.as_str()).collect();
            match known.iter().position(|known| known == name) {
                Some(at) => verdicts.push(("ask", Action::Ask(ServiceId(at as u16)))),
                None => {
                    let what = format!("there is no policy service `{name}`");
                    let help = format!("add [policy_service.{name}] with address = \"unix:/path\"");
                    self.problem(&key, span, what, "unknown service", &help);
                }
            }
        }
        let mut verdicts = verdicts.into_iter();
        let (first, action) = verdicts.next()?;
        for (other, _) in verdicts {
            let what = format!("`{other}` and `{first}` contradict each other");
            let help = "keep one of accept, reject, defer, discard, hold and ask";
            self.problem(&format!("{path}.{other}"), span, what, "a rule has one verdict", help);
        }
        Some(action)
    }

    fn check_modifiers(&mut self, path: &str, stage: Stage, modifiers: &Modifiers, span: &Range<usize>) {
        if modifiers.delay > DELAY_MAX {
            let key = format!("{path}.delay");
            let help = "write \"20s\" or less: honest clients do not wait longer";
            self.problem(&key, span, format!("`{key}` is too large"), "more than 20s", help);
        }
        for (name, is_used, least) in [
            ("redirect", !modifiers.redirect.is_empty(), Stage::Rcpt),
            ("bcc", !modifiers.bcc.is_empty(), Stage::Mail),
            ("route", modifiers.route.is_some(), Stage::Rcpt),
            ("add_header", !modifiers.fields.is_empty(), Stage::Mail),
        ] {
            if is_used && stage < least {
                let what = format!("`{name}` has no message yet at the stage \"{}\"", stage.as_str());
                let help = format!("write at = \"{}\" or later", least.as_str());
                self.problem(&format!("{path}.at"), span, what, "too early", &help);
            }
        }
    }
}
