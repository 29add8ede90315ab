//! Lists of senders and hosts, as rules.

use super::networks;
use crate::{
    Draft,
    draft::{Section, Value, quoted},
};

/// A condition of a rule: its name and its values.
pub(super) type Condition = (&'static str, Vec<String>);

/// The items of a list, in runs of those that match and those that are excluded.
#[derive(Debug, Default)]
pub(super) struct Items {
    /// Conditions, each with what is excluded in front of it.
    pub(super) conditions: Vec<(Condition, Vec<Condition>)>,
    /// All that is excluded.
    excluded: Vec<Condition>,
    /// Items without a counterpart.
    pub(super) others: Vec<String>,
}

impl Items {
    pub(super) fn of(name: &'static str, values: Vec<String>) -> Self {
        Self { conditions: vec![((name, values), Vec::new())], ..Self::default() }
    }

    /// Returns the same items as another condition.
    pub(super) fn with_name(mut self, name: &'static str) -> Self {
        for ((of, _), excluded) in &mut self.conditions {
            *of = name;
            excluded.iter_mut().for_each(|(of, _)| *of = name);
        }
        self.excluded.iter_mut().for_each(|(of, _)| *of = name);
        self
    }

    fn add(&mut self, condition: Option<Condition>, item: &str, excluded: &mut Vec<Condition>) {
        match (condition, item.strip_prefix('!')) {
            (None, _) => self.others.push(item.to_owned()),
            (Some(condition), Some(_)) => merge(excluded, condition),
            (Some((name, values)), None) => match self.conditions.last_mut() {
                Some(((last, all), of)) if *last == name && of == excluded => all.extend(values),
                _ => self.conditions.push(((name, values), excluded.clone())),
            },
        }
    }

    /// Adds what is not excluded: a list whose last item is excluded holds for all others.
    pub(super) fn add_rest(&mut self, name: &'static str) {
        let all = match name {
            "client" => all_networks(),
            "from" => vec!["*".to_owned(), "<>".to_owned()],
            _ => vec!["*".to_owned()],
        };
        self.conditions.push(((name, all), std::mem::take(&mut self.excluded)));
    }

    /// Returns the rules that these items make, without verdicts.
    pub(super) fn rules(&self, comment: &str) -> Vec<Section> {
        let rules = self.conditions.iter();
        rules.map(|(condition, excluded)| rule(comment, std::slice::from_ref(condition), excluded)).collect()
    }
}

/// Returns a rule with conditions, without a verdict.
pub(super) fn rule(comment: &str, conditions: &[Condition], excluded: &[Condition]) -> Section {
    let mut section = Section::new("[[rule]]", comment);
    // What holds for all is no condition.
    let all = |(_, values): &&Condition| {
        *values == all_networks() || values.contains(&"*".to_owned()) && values.contains(&"<>".to_owned())
    };
    let is_total = |condition: &&Condition| all(condition) || condition.0 == "to" && condition.1 == ["*"];
    let conditions: Vec<&Condition> = conditions.iter().filter(|one| !is_total(one)).collect();
    for (name, values) in &conditions {
        section = section.with(name, condition_value(name, values));
    }
    if excluded.is_empty() {
        return section;
    }
    let parts = excluded.iter().map(|(name, values)| match *name {
        "tls" => "tls = true".to_owned(),
        _ => {
            let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
            format!("{name} = [{}]", values.join(", "))
        }
    });
    let parts: Vec<String> = parts.collect();
    // Rules below that decide about nothing more are no fault of the import.
    if conditions.is_empty() {
        section = section.with("temporary", true);
    }
    section.with("unless", Value::Raw(format!("{{ {} }}", parts.join(", "))))
}

/// `tls` is a switch, and the others are lists.
fn condition_value(name: &str, values: &[String]) -> Value {
    if name == "tls" { true.into() } else { values.to_vec().into() }
}

fn all_networks() -> Vec<String> {
    vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()]
}

pub(super) fn merge(excluded: &mut Vec<Condition>, (name, values): Condition) {
    match excluded.iter_mut().find(|(other, _)| *other == name) {
        Some((_, all)) => all.extend(values),
        None => excluded.push((name, values)),
    }
}

/// Reads a list of addresses: `user@domain`, `*@domain`, `domain`, and `!` in front of what is excluded.
pub(super) fn senders(items: &[String]) -> Items {
    let (mut found, mut excluded) = (Items::default(), Vec::new());
    for item in items {
        let plain = item.strip_prefix('!').unwrap_or(item).trim().to_lowercase();
        let pattern = plain.strip_prefix("*@").unwrap_or(&plain).to_owned();
        let is_plain = !pattern.is_empty() && !pattern.contains(['^', '$', '{', ';', '+', '/']);
        let condition = match &*plain {
            "" => None,
            ":" | "<>" => Some(("from", vec!["<>".to_owned()])),
            _ => is_plain.then(|| ("from", vec![pattern])),
        };
        found.add(condition, item, &mut excluded);
    }
    found.excluded = excluded;
    found
}

/// Reads a list of hosts: addresses, networks and names.
pub(super) fn hosts(items: &[String]) -> Items {
    let (mut found, mut excluded) = (Items::default(), Vec::new());
    for item in items {
        let plain = item.strip_prefix('!').unwrap_or(item).trim().to_owned();
        let (network, _) = networks(std::slice::from_ref(&plain));
        let is_name =
            plain.contains('.') && plain.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.*".contains(&b));
        let condition = match network.first() {
            Some(network) => Some(("client", vec![network.clone()])),
            None if plain == "*" => Some(("client", all_networks())),
            None => is_name.then(|| ("client_name", vec![plain.to_lowercase()])),
        };
        found.add(condition, item, &mut excluded);
    }
    found.excluded = excluded;
    found
}

/// Returns the items of a file that stands in a list: one on each line.
pub(super) fn lines(text: &str) -> Vec<String> {
    let plain = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    plain.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Writes rules with a verdict.
pub(super) fn write(
    draft: &mut Draft,
    items: &Items,
    comment: &str,
    (key, value): (&str, &Value),
    for_all: bool,
) {
    for rule in items.rules(comment) {
        let rule = if for_all { rule.with("for", "all") } else { rule };
        draft.push(rule.with(key, value.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_excluded_counts_for_the_items_behind_it() {
        let items = ["10.1.0.0/16", "!192.0.2.10", "192.0.2.0/24", "*.dial.test", "^bad"].map(str::to_owned);
        let found = hosts(&items);
        assert_eq!(found.others, ["^bad"]);
        let mut draft = Draft::new(&[]);
        write(&mut draft, &found, "hosts", ("reject", &"550 5.7.1 no".into()), false);
        let toml = draft.as_toml();
        for line in [
            "client = [\"10.1.0.0/16\"]\nreject",
            "client = [\"192.0.2.0/24\"]\nunless = { client = [\"192.0.2.10\"] }\nreject",
            "client_name = [\"*.dial.test\"]\nunless = { client = [\"192.0.2.10\"] }",
        ] {
            assert!(toml.contains(line), "{line}: {toml}");
        }
        let found = senders(&["*@bad.test", "joe@x.test", "other.test"].map(str::to_owned));
        assert_eq!(
            found.conditions[0].0,
            ("from", ["bad.test", "joe@x.test", "other.test"].map(str::to_owned).into())
        );
    }
}
