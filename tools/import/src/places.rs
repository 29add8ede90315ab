//! The domains of a server by what becomes of their mail, as keys of `[local]`.

use crate::{Draft, Effect, Files, Report, files::ALL_USERS};

/// Not all domains may have the users of the machine, and the lists of those that have them are files.
pub(crate) const UNLISTED_USERS: &str = "/etc/nsswitch.conf names services with further users of the machine, who are not listed: add \"accounts:nss\" to \
     local.users, if all local domains have them";

/// Returns whether a text is the name of a domain, and no address.
pub(crate) fn is_domain(text: &str) -> bool {
    mail::Domain::parse(text).is_ok() && text.parse::<std::net::IpAddr>().is_err()
}

/// Domains whose mail a server takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// Domains with the users and the aliases of the machine.
    pub(crate) own: Vec<String>,
    /// Domains with virtual addresses only.
    pub(crate) of_addresses: Vec<String>,
    /// Domains whose mail is passed on, with each user; `*.` in front stands for those below.
    pub(crate) relayed: Vec<String>,
}

fn escaped(domain: &str) -> String {
    domain.replace('.', "\\.").replacen('*', ".*", 1)
}

impl Places {
    /// Adds a domain to a list, unless a list that comes before has it.
    pub(crate) fn add_own(&mut self, domain: String) {
        if !self.own.contains(&domain) {
            self.own.push(domain);
        }
    }

    pub(crate) fn add_relayed(&mut self, domain: String) {
        if !self.own.contains(&domain) && !self.relayed.contains(&domain) {
            self.relayed.push(domain);
        }
    }

    /// Adds a domain, and the domains below it.
    pub(crate) fn add_relayed_below(&mut self, domain: String) {
        self.add_relayed(format!("*.{domain}"));
        self.add_relayed(domain);
    }

    /// Leaves out patterns that hold for a domain with users of its own: each of its names would be a user. Tells which, and whose
    /// mail for postmaster is taken.
    pub(crate) fn settle(&mut self, report: &mut Report, name: &str) {
        if !self.of_addresses.is_empty() {
            let text = format!(
                "mail for postmaster in {} is accepted even if there is no such user, and goes to the address in `postmaster`",
                self.of_addresses.join(", ")
            );
            report.effect(Effect::Taken, name, text);
        }
        let own = [&*self.own, &*self.of_addresses].concat();
        self.relayed.retain(|pattern| {
            let end = pattern.strip_prefix('*').unwrap_or("@");
            let is_kept = !own.iter().any(|domain| domain.ends_with(end));
            if !is_kept {
                let text = format!("{pattern}: subdomains are not accepted, because one of them has users here: list each subdomain in local.domains");
                report.effect(Effect::Refused, name, text);
            }
            is_kept
        });
    }

    /// Returns the users of the machine, as `local.users` lists them.
    pub(crate) fn users(&self, files: &dyn Files, report: &mut Report) -> Vec<String> {
        let mut users = files.users();
        if files.has_further_users() {
            if self.has_own_only() {
                users.push(ALL_USERS.to_owned());
            } else {
                report.notes.push(UNLISTED_USERS.to_owned());
            }
        }
        users
    }

    fn has_own_only(&self) -> bool {
        self.of_addresses.is_empty() && self.relayed.is_empty()
    }

    /// Writes `local.domains` and `local.users`. Aliases are for domains that are listed by name only, so that the others are in
    /// files. Without users, each name of the own domains is one.
    pub(crate) fn write(&self, draft: &mut Draft, users: Option<&[String]>, from: (&str, &str)) {
        draft.extend("[local]", "domains", self.own.clone(), from.0);
        if self.has_own_only() {
            if let Some(users) = users {
                let users = std::iter::once("postmaster".to_owned()).chain(users.iter().cloned());
                draft.extend("[local]", "users", users, from.1);
            }
            return;
        }
        let mut refs = Vec::new();
        if !self.of_addresses.is_empty() {
            let text: String = self.of_addresses.iter().map(|domain| format!("{domain} x\n")).collect();
            draft.add_file("virtual-domains", text, false);
            refs.push("text:virtual-domains".to_owned());
        }
        let patterns: Vec<String> = self.relayed.iter().map(|domain| escaped(domain)).collect();
        let mut lists = vec!["text:local-users".to_owned()];
        if !patterns.is_empty() {
            let text: String = patterns.iter().map(|pattern| format!("/^{pattern}$/ x\n")).collect();
            draft.add_file("relay-domains", text, false);
            refs.push("regex:relay-domains".to_owned());
            let text: String = patterns.iter().map(|pattern| format!("/@{pattern}$/ x\n")).collect();
            draft.add_file("relay-users", text, false);
            lists.push("regex:relay-users".to_owned());
        }
        draft.extend("[local]", "domains", refs, from.0);
        let Some(users) = users else {
            // Each name of the own domains exists, and none of those with virtual addresses only.
            if !self.of_addresses.is_empty() {
                let lines = self.own.iter().map(|domain| format!("/@{}$/ x\n", escaped(domain)));
                draft.append_file("relay-users", &lines.collect::<String>());
                draft.extend("[local]", "users", ["regex:relay-users".to_owned()], from.1);
            }
            return;
        };
        let users: Vec<&str> =
            std::iter::once("postmaster").chain(users.iter().map(String::as_str)).collect();
        let lines =
            self.own.iter().flat_map(|domain| users.iter().map(move |user| format!("{user}@{domain} x\n")));
        let mut text: Vec<String> = lines.collect();
        text.dedup();
        draft.add_file("local-users", text.concat(), false);
        draft.extend("[local]", "users", lists, from.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relayed_domains_have_all_users_and_no_aliases() {
        let mut places = Places::default();
        places.add_own("mx.test".to_owned());
        places.add_relayed("p.test".to_owned());
        places.add_relayed_below("q.test".to_owned());
        places.add_relayed("mx.test".to_owned());
        places.of_addresses.push("v.test".to_owned());
        places.add_relayed("*.test".to_owned());
        let mut report = Report::default();
        places.settle(&mut report, "relay");
        assert!(report.to_string().contains("refused  relay: *.test: subdomains"), "{report}");
        let mut draft = Draft::new(&[]);
        places.write(&mut draft, Some(&["joe".to_owned()]), ("w", "users"));
        assert_eq!(
            draft.list("[local]", "domains"),
            ["mx.test", "text:virtual-domains", "regex:relay-domains"]
        );
        assert_eq!(draft.list("[local]", "users"), ["text:local-users", "regex:relay-users"]);
        let file = |name: &str| &*draft.files.iter().find(|file| file.name == name).unwrap().content;
        assert_eq!(file("local-users"), "postmaster@mx.test x\njoe@mx.test x\n");
        assert_eq!(file("relay-domains"), "/^p\\.test$/ x\n/^.*\\.q\\.test$/ x\n/^q\\.test$/ x\n");
        assert_eq!(places.relayed, ["p.test", "*.q.test", "q.test"]);
    }
}
