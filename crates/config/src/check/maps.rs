//! Checks of maps: those that are referred to exist, and each look-up ends.

use super::Check;
use crate::{domain::DomainPattern, route::Route, settings::Settings, users::UserStore};
use maps::{Kind, Reference};
use std::time::Duration;

/// A session waits for all look-ups of a recipient together for 30 s.
const TIMEOUT_MAX: Duration = Duration::from_secs(30);

impl Check<'_, '_> {
    pub(super) fn maps(&mut self, s: &Settings) {
        for (key, reference) in s.map_references() {
            if let Some(name) = reference.name() {
                self.is_defined(s, key, name);
            }
            let label = match reference {
                Reference::Named(_) | Reference::Accounts | Reference::File(Kind::Cdb, _) => {
                    "has to be waited for"
                }
                // Nobody can say how many clients a pattern matches.
                Reference::File(Kind::Regex, _) => "has no networks",
                Reference::File(..) => "",
            };
            if key == "relay.networks" && !label.is_empty() {
                let what = format!("`{key}` cannot use \"{reference}\"");
                let help =
                    "write \"cidr:FILE\" or \"text:FILE\": a client's rights are known when it connects";
                self.problem(key, what, label, help);
            }
            if matches!(reference, Reference::File(Kind::Aliases, _)) && key != "addresses.aliases" {
                let what = format!("`{key}` cannot use the format of aliases(5)");
                let help = "write \"text:FILE\", with lines `key value`";
                self.problem(key, what, "aliases: is for `addresses.aliases`", help);
            }
        }
        for map in &s.maps {
            let path = format!("map.{}.timeout", map.name);
            self.not_zero(&path, map.timeout);
            if map.timeout > TIMEOUT_MAX {
                let what = format!("`{path}` is too long");
                self.problem(
                    &path,
                    what,
                    "more than 30s",
                    "write \"30s\" or less: clients wait for the answer",
                );
            }
            self.at_least(&format!("map.{}.max_connections", map.name), &map.connections_max, &1);
        }
        self.local_domains_can_be_routed(s);
        let has_brace = |path: &&std::path::PathBuf| path.as_os_str().as_encoded_bytes().contains(&b'{');
        if let Some(file) = s.addresses.files.iter().find(has_brace) {
            let what = format!("`addresses.files` cannot have {}", file.display());
            self.problem("addresses.files", what, "has a brace", "name the file without placeholders");
        }
    }

    /// Returns the path of the first value of a key that has this reference: `route[1].senders` for `route.senders`.
    fn path_of(&self, key: &str, reference: &str) -> String {
        let is_key = |path: &str| {
            let plain = path
                .split_once('[')
                .and_then(|(section, rest)| Some(format!("{section}{}", rest.split_once(']')?.1)));
            plain.as_deref() == Some(key)
        };
        let has = |value: &toml::Value| match value {
            toml::Value::Array(items) => items.iter().any(|item| item.as_str() == Some(reference)),
            value => value.as_str() == Some(reference),
        };
        let mut all = self.reading.effective.iter();
        let found = all.find(|one| is_key(&one.path) && one.value.as_ref().is_some_and(has));
        found.map_or_else(|| key.to_owned(), |one| one.path.clone())
    }

    fn is_defined(&mut self, s: &Settings, key: &str, name: &str) {
        // A map that has a problem itself is not in the settings.
        let has_failed =
            || self.reading.effective.iter().any(|e| e.path.starts_with(&format!("map.{name}.")));
        if s.maps.iter().any(|map| map.name == name) || has_failed() {
            return;
        }
        let what = format!("`{key}` uses \"map:{name}\", which is not defined");
        let known: Vec<String> = s.maps.iter().map(|map| format!("\"map:{}\"", map.name)).collect();
        let help = match &known[..] {
            _ if key == "auth.users" && matches!(s.auth.users, Some(UserStore::Bind(_))) => {
                format!("add [map.{name}] with ldap = \"ldaps://host\"")
            }
            [] => format!(
                "name a file, as in \"text:/etc/postrider/{name}\", or add [map.{name}], which names a server or database"
            ),
            known => format!("add [map.{name}], write one of {}, or name a file", known.join(", ")),
        };
        let path = self.path_of(key, &format!("map:{name}"));
        self.problem(&path, what, "no such map", &help);
    }

    /// Mail for local domains that a server knows goes where a route says: one for the domains of the same map, or for
    /// every domain.
    fn local_domains_can_be_routed(&mut self, s: &Settings) {
        if !self.reading.cx.problems.is_empty() {
            return;
        }
        let is_served = |reference: &&Reference| reference.name().is_some();
        for reference in s.local.domain_maps.iter().filter(is_served) {
            let takes_them = |route: &Route| {
                route.domains.contains(&DomainPattern::Any) || route.domain_maps.contains(reference)
            };
            if s.routes.iter().any(takes_them) {
                continue;
            }
            let what = format!("mail for the domains of \"{reference}\" has no route");
            let help = format!("add a [[route]] with domains = [\"{reference}\"] and its target");
            self.problem("local.domains", what, "a server is asked for these domains", &help);
        }
    }
}
