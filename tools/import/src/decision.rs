//! Who may send what where: lists of restrictions, each with an end of its own, as rules that are read one after the other.
//!
//! A list is open for some clients, until it permits or refuses them. What it permits ends this list and no other: so a permission is an
//! exception (`unless`) of the rules behind it in the list, or a tag, if more than one condition decides.

use crate::draft::{Section, Value};

/// The kinds of listeners that clients come to; mail of local programs comes to none of them.
pub(crate) const LISTENERS: [&str; 4] = ["mx", "relay", "submission", "submissions"];

/// A condition of a rule: its key, and the patterns of which one must match.
pub(crate) type Condition = (&'static str, Vec<String>);

/// The clients whom the rules tell apart.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clients {
    /// Trusted networks of the other server.
    pub(crate) networks: Vec<String>,
    /// These, and no others, are in `relay.networks`.
    pub(crate) are_relayed: bool,
    /// Somebody can log in.
    pub(crate) has_logins: bool,
    /// The kinds of the listeners; none if the rules are for all.
    pub(crate) listeners: Vec<String>,
    /// `None`: the rules run at RCPT.
    pub(crate) stage: Option<&'static str>,
}

/// Clients for whom a list is open.
#[derive(Debug, Clone)]
pub(crate) struct Open {
    pub(crate) networks: bool,
    pub(crate) logins: bool,
    pub(crate) strangers: bool,
    /// Only mail with this tag.
    within: Option<String>,
    /// Conditions of which none may hold.
    unless: Vec<Condition>,
}

impl Open {
    pub(crate) fn new(networks: bool, logins: bool, strangers: bool) -> Self {
        Self { networks, logins, strangers, within: None, unless: Vec::new() }
    }

    pub(crate) fn is_over(&self) -> bool {
        !self.networks && !self.logins && !self.strangers
    }

    /// Returns the same without clients that have logged in.
    pub(crate) fn without_logins(&self) -> Self {
        Self { logins: false, ..self.clone() }
    }

    /// Returns the same without strangers.
    pub(crate) fn trusted(&self) -> Self {
        Self { strangers: false, ..self.clone() }
    }

    /// Leaves out what matches one of these patterns.
    pub(crate) fn except(&mut self, condition: Condition) {
        add(&mut self.unless, condition);
    }
}

/// A condition of a statement: it holds if one of its cases does, or, turned around, if none does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Term {
    pub(crate) is_negated: bool,
    pub(crate) cases: Vec<Case>,
}

/// Patterns of which one must match, and exceptions of which none may.
#[derive(Debug, Clone, Default)]
pub(crate) struct Case {
    pub(crate) only: Option<Condition>,
    pub(crate) excluded: Vec<Condition>,
}

impl Term {
    /// Returns a term with one condition.
    pub(crate) fn of(key: &'static str, patterns: Vec<String>) -> Self {
        Self { is_negated: false, cases: vec![Case { only: Some((key, patterns)), excluded: Vec::new() }] }
    }
}

/// Conditions that all hold, and those of which none does.
pub(crate) type Conditions = (Vec<Condition>, Vec<Condition>);

pub(crate) fn add(conditions: &mut Vec<Condition>, (key, patterns): Condition) {
    match conditions.iter_mut().find(|(other, _)| *other == key) {
        Some((_, known)) => {
            let new: Vec<String> = patterns.into_iter().filter(|new| !known.contains(new)).collect();
            known.extend(new);
        }
        None => conditions.push((key, patterns)),
    }
}

/// Adds a condition to those that must hold. Returns false if a rule cannot say it beside them.
fn narrowed(only: &mut Vec<Condition>, (key, patterns): Condition) -> bool {
    let Some((_, known)) = only.iter_mut().find(|(other, _)| *other == key) else {
        only.push((key, patterns));
        return true;
    };
    // Names at domains are addresses.
    let is_domain = |pattern: &String| !pattern.contains(['@', ':', '*']);
    let (domains, names) =
        if known.iter().all(is_domain) { (&*known, &patterns) } else { (&patterns, &*known) };
    let names: Option<Vec<&str>> = names.iter().map(|name| name.strip_suffix("@*")).collect();
    let Some(names) = names.filter(|_| key == "to" && domains.iter().all(is_domain)) else { return false };
    *known =
        domains.iter().flat_map(|domain| names.iter().map(move |name| format!("{name}@{domain}"))).collect();
    true
}

/// Collects the rules that one decision of the other server becomes.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    pub(crate) clients: Clients,
    pub(crate) rules: Vec<Section>,
    /// Rules that defer mail that no list refuses.
    waiting: Vec<Section>,
    /// Rules that take mail in a special way: nothing refuses it any more.
    late: Vec<Section>,
    /// Tags of the decision begin with it, so that they differ from others.
    pub(crate) tag: String,
    tags: usize,
    /// The lists around the one whose rules are added.
    pub(crate) depth: usize,
}

impl Decision {
    pub(crate) fn new(clients: Clients) -> Self {
        Self { clients, ..Self::default() }
    }

    /// Returns a rule for those for whom a list is open, without a verdict; none if that is nobody.
    pub(crate) fn rule(
        &self,
        open: &Open,
        comment: &str,
        only: &[Condition],
        excluded: &[Condition],
    ) -> Option<Section> {
        let Clients { networks, are_relayed, has_logins, listeners, stage } = &self.clients;
        let (s, mut n) = (open.strangers, open.networks);
        if networks.is_empty() {
            n = s;
        }
        let l = match (has_logins, *are_relayed) {
            (true, _) => open.logins,
            (false, true) => n,
            (false, false) => s,
        };
        let (mut only, mut unless) = (only.to_vec(), open.unless.clone());
        excluded.iter().for_each(|one| add(&mut unless, one.clone()));
        let logins = || ("login", vec!["*".to_owned()]);
        let is_alone = |only: &[Condition], key: &str| !only.iter().any(|(other, _)| *other == key);
        // Whom the words of the configuration tell apart: those who may relay, and the others.
        let audience = match (n, l, s) {
            (false, false, false) => return None,
            (false, false, true) if *are_relayed => "untrusted",
            (true, false, true) if !*are_relayed => "untrusted",
            (true, true, false) if *are_relayed => "users",
            (_, _, true) => {
                if !n {
                    add(&mut unless, ("client", networks.clone()));
                }
                if !l {
                    add(&mut unless, logins());
                }
                "all"
            }
            (true, false, false) if *are_relayed => {
                add(&mut unless, logins());
                "users"
            }
            (true, ..) => {
                if is_alone(&only, "client") {
                    only.push(("client", networks.clone()));
                }
                "all"
            }
            (false, true, false) => {
                if is_alone(&only, "login") {
                    only.push(logins());
                }
                add(&mut unless, ("client", networks.clone()));
                "users"
            }
        };
        let mut section = Section::new("[[rule]]", comment);
        if audience != "untrusted" {
            section = section.with("for", audience);
        }
        section = section.with_some("at", *stage);
        // Without a listener, mail of local programs is meant, too, which no list is for.
        let all = || LISTENERS.map(str::to_owned).to_vec();
        if audience == "all" && listeners.is_empty() {
            section = section.with("listener", all());
        } else if audience != "untrusted" && !listeners.is_empty() {
            section = section.with("listener", listeners.clone());
        }
        // A tag of the list has the tag of the list around it.
        let within = open.within.clone().filter(|_| is_alone(&only, "tagged"));
        for (key, patterns) in only {
            section = match key {
                "tls" => section.with(key, true),
                _ => section.with(key, patterns),
            };
        }
        section = section.with_some("tagged", within.map(|tag| vec![tag]));
        unless.retain(|(_, patterns)| !patterns.is_empty());
        if !unless.is_empty() {
            section = section.with("unless", Value::Table(unless));
        }
        Some(section)
    }

    /// Adds a rule with a verdict, for those for whom the list is open.
    pub(crate) fn add(
        &mut self,
        open: &Open,
        comment: &str,
        only: &[Condition],
        excluded: &[Condition],
        key: &str,
        value: impl Into<Value>,
    ) {
        let Some(rule) = self.rule(open, comment, only, excluded) else { return };
        // Mail that is held, discarded or deferred at the end may still be refused by another rule.
        let (rules, key) = match key {
            "late" => (&mut self.waiting, "defer"),
            "hold" | "discard" => (&mut self.late, key),
            _ => (&mut self.rules, key),
        };
        let rule = rule.with(key, value);
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }

    /// Adds a rule in its place: no list behind it is asked where it decides.
    pub(crate) fn push(
        &mut self,
        open: &Open,
        comment: &str,
        (only, excluded): (&[Condition], &[Condition]),
        key: &str,
        value: impl Into<Value>,
    ) {
        let rule = self.rule(open, comment, only, excluded);
        self.rules.extend(rule.map(|rule| rule.with(key, value)));
    }

    /// The list ends for mail that meets a condition.
    pub(crate) fn permit(
        &mut self,
        open: &mut Open,
        comment: &str,
        condition: Condition,
        excluded: &[Condition],
    ) {
        if excluded.is_empty() {
            return open.except(condition);
        }
        if let Some(tag) = self.tagged(open, comment, &[condition], excluded) {
            open.except(("tagged", vec![tag]));
        }
    }

    /// Returns the tag of mail for which the list is open and that meets conditions.
    fn tagged(
        &mut self,
        open: &Open,
        comment: &str,
        only: &[Condition],
        excluded: &[Condition],
    ) -> Option<String> {
        let rule = self.rule(open, comment, only, excluded)?;
        let tag = self.new_tag();
        self.rules.push(rule.with("tag", vec![tag.clone()]));
        Some(tag)
    }

    /// Returns a tag that no rule sets so far.
    pub(crate) fn new_tag(&mut self) -> String {
        self.tags += 1;
        format!("{}-{}", self.tag, self.tags)
    }

    /// Returns the conditions of a rule for mail that meets all terms, with tags for what one rule cannot say. None if no mail does.
    pub(crate) fn all_of(&mut self, open: &Open, comment: &str, terms: &[Term]) -> Option<Conditions> {
        let (mut only, mut excluded): Conditions = Default::default();
        for Term { is_negated, cases } in terms {
            let is_always = cases.iter().any(|case| case.only.is_none() && case.excluded.is_empty());
            if is_always || cases.is_empty() {
                match is_always == *is_negated {
                    true => return None,
                    false => continue,
                }
            }
            match &**cases {
                // All but some.
                [Case { only: None, excluded: but }] if !is_negated => {
                    but.iter().for_each(|one| add(&mut excluded, one.clone()));
                    continue;
                }
                [Case { only: None, excluded: but }] => {
                    if let [(key, patterns)] = &**but
                        && narrowed(&mut only, (key, patterns.clone()))
                    {
                        continue;
                    }
                }
                [Case { only: Some(condition), excluded: but }]
                    if !is_negated && narrowed(&mut only, condition.clone()) =>
                {
                    but.iter().for_each(|one| add(&mut excluded, one.clone()));
                    continue;
                }
                cases if *is_negated && cases.iter().all(|case| case.excluded.is_empty()) => {
                    cases.iter().filter_map(|case| case.only.clone()).for_each(|one| add(&mut excluded, one));
                    continue;
                }
                _ => {}
            }
            // A rule for each case sets a tag; the tag of the terms before is one of its conditions.
            let tag = self.new_tag();
            let before = only.iter().position(|(key, _)| *key == "tagged").filter(|_| !is_negated);
            // A rule asks for one tag: what has the first and not the second is left out.
            if let ([Case { only: Some(second @ ("tagged", _)), .. }], Some(at)) = (&**cases, before) {
                let conditions = (&only[at..=at], std::slice::from_ref(second));
                self.push(open, comment, conditions, "tag", vec![tag.clone()]);
                add(&mut excluded, ("tagged", vec![tag]));
                continue;
            }
            let before = before.map(|at| only.remove(at));
            for case in cases {
                let conditions: Vec<Condition> =
                    case.only.iter().cloned().chain(before.iter().cloned()).collect();
                self.push(open, comment, (&conditions, &case.excluded), "tag", vec![tag.clone()]);
            }
            match is_negated {
                true => add(&mut excluded, ("tagged", vec![tag])),
                false => only.push(("tagged", vec![tag])),
            }
        }
        Some((only, excluded))
    }

    /// A list within a list, for mail that meets a condition: what the inner list permits ends the outer one.
    pub(crate) fn within(
        &mut self,
        open: &mut Open,
        comment: &str,
        (only, excluded): (&[Condition], &[Condition]),
        inner: impl FnOnce(&mut Self, &mut Open),
    ) {
        let Some(tag) = self.tagged(open, comment, only, excluded) else { return };
        let mut list = Open { within: Some(tag), unless: Vec::new(), ..open.clone() };
        let before = list.clone();
        self.depth += 1;
        inner(self, &mut list);
        self.depth -= 1;
        // Whom the inner list is over for: only what a rule refused does not come here.
        let ended = Open {
            networks: before.networks && !list.networks,
            logins: before.logins && !list.logins,
            strangers: before.strangers && !list.strangers,
            ..before.clone()
        };
        let mut permitted = Vec::new();
        permitted.extend(self.tagged(&ended, comment, &[], &[]));
        for condition in list.unless {
            permitted.extend(self.tagged(&before, comment, &[condition], &[]));
        }
        if !permitted.is_empty() {
            open.except(("tagged", permitted));
        }
    }

    /// Returns all rules in their order.
    pub(crate) fn finish(self) -> Vec<Section> {
        self.rules.into_iter().chain(self.waiting).chain(self.late).collect()
    }
}

/// Returns whether an address pattern, or a network, holds for all that another one holds for.
pub(crate) fn covers(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    if one == other || one == "*" && other != "<>" {
        return true;
    }
    let network = |text: &str| {
        let address = || text.parse::<std::net::IpAddr>().ok().map(ipnet::IpNet::from);
        text.parse::<ipnet::IpNet>().ok().or_else(address)
    };
    if let (Some(one), Some(other)) = (network(&one), network(&other)) {
        return one.contains(&other);
    }
    let (local, domain) =
        other.rsplit_once('@').map_or((None, &*other), |(local, domain)| (Some(local), domain));
    match (one.rsplit_once('@'), one.strip_prefix("*.")) {
        (Some((name, "*")), _) => local == Some(name),
        (Some(_), _) => false,
        (None, Some(parent)) => domain.trim_start_matches("*.").ends_with(&format!(".{parent}")),
        (None, None) => local.is_some() && domain == one,
    }
}
