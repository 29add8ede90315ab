//! Who may send what where: lists of restrictions, each with an end of its own, as rules that are read one after the other.
//!
//! A list is open for some clients, until it permits or refuses them. What it permits ends this list and no other: so a permission is an
//! exception (`unless`) of the rules behind it in the list, or a tag, if more than one condition decides.

use crate::draft::{Section, Value};

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
    /// The stage of the rules, if it is not RCPT.
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
    /// None of these.
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

fn add(conditions: &mut Vec<Condition>, (key, patterns): Condition) {
    match conditions.iter_mut().find(|(other, _)| *other == key) {
        Some((_, known)) => {
            let new: Vec<String> = patterns.into_iter().filter(|new| !known.contains(new)).collect();
            known.extend(new);
        }
        None => conditions.push((key, patterns)),
    }
}

/// The rules of one decision.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    pub(crate) clients: Clients,
    pub(crate) rules: Vec<Section>,
    /// Rules that defer mail that no list refuses.
    waiting: Vec<Section>,
    /// Rules that take mail in a special way: nothing refuses it any more.
    late: Vec<Section>,
    /// The beginning of the names of tags.
    pub(crate) tag: String,
    tags: usize,
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
        let all = || ["mx", "relay", "submission", "submissions"].map(str::to_owned).to_vec();
        if audience == "all" && listeners.is_empty() {
            section = section.with("listener", all());
        } else if audience != "untrusted" && !listeners.is_empty() {
            section = section.with("listener", listeners.clone());
        }
        // A tag of the list has the tag of the list around it.
        let within = open.within.clone().filter(|_| is_alone(&only, "tagged"));
        for (key, patterns) in only {
            section = section.with(key, patterns);
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
        let tag = format!("{}-{}", self.tag, self.tags + 1);
        let rule = self.rule(open, comment, only, excluded)?;
        self.tags += 1;
        self.rules.push(rule.with("tag", vec![tag.clone()]));
        Some(tag)
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
        inner(self, &mut list);
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
