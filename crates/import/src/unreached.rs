//! Rules of a draft that never decide, because rules above them do: the check of a configuration refuses them.

use crate::{Draft, draft::Section, draft::Value};

const VERDICTS: [&str; 5] = ["accept", "reject", "defer", "discard", "hold"];
const CONDITIONS: [&str; 4] = ["from", "to", "client", "client_name"];

/// Removes the rules that never decide.
pub(crate) fn remove(draft: &mut Draft) {
    let mut above: Vec<Section> = Vec::new();
    draft.sections_mut().retain(|rule| {
        if rule.header() != "[[rule]]" || !VERDICTS.iter().any(|key| rule.value(key).is_some()) {
            return true;
        }
        let is_reached = !above.iter().any(|other| decides_before(other, rule));
        if is_reached && rule.value("unless").is_none() {
            above.push(rule.clone());
        }
        is_reached
    });
}

fn decides_before(above: &Section, rule: &Section) -> bool {
    let is_for_as_many = above.value("for").is_some() || rule.value("for").is_none();
    let others = ["login", "tls", "hello", "size", "header"];
    is_for_as_many
        && others.iter().all(|key| above.value(key).is_none())
        && CONDITIONS.iter().all(|key| match (list(above, key), list(rule, key)) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(all), Some(values)) => values.iter().all(|value| all.iter().any(|one| covers(one, value))),
        })
}

fn list<'a>(rule: &'a Section, key: &str) -> Option<&'a [String]> {
    match rule.value(key) {
        Some(Value::List(values)) => Some(values),
        _ => None,
    }
}

/// Returns whether a pattern of addresses, or a network, holds for all that another one holds for.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_others_decide_before_are_removed() {
        let mut draft = Draft::new(&[]);
        let rule = |key: &str, value: &str| Section::new("[[rule]]", "").with(key, vec![value.to_owned()]);
        draft.push(rule("to", "a.test").with("reject", true));
        draft.push(rule("to", "joe@a.test").with("reject", true));
        draft.push(rule("to", "joe@a.test").with("for", "all").with("reject", true));
        draft.push(
            rule("to", "*.a.test")
                .with("unless", Value::Raw("{ tls = true }".to_owned()))
                .with("defer", true),
        );
        draft.push(rule("to", "x.a.test").with("reject", true));
        draft.push(rule("client", "10.0.0.0/8").with("discard", true));
        draft.push(rule("client", "10.1.2.3").with("from", vec!["b.test".to_owned()]).with("reject", true));
        remove(&mut draft);
        let toml = draft.as_toml();
        assert_eq!(toml.matches("[[rule]]").count(), 5, "{toml}");
        assert!(!toml.contains("10.1.2.3") && toml.contains("for = \"all\""), "{toml}");
    }
}
