//! The routing table: the first rule that matches a domain decides.

use mail::{Destination, NextHop, ReversePath, TlsMode};
use std::{fmt, sync::Arc};

/// Says of a domain, given as [`mail::Domain::key`], and of a sender, if it is known, whether a rule is for them.
pub type DomainMatcher = Box<dyn Fn(&str, Option<&ReversePath>) -> bool + Send + Sync>;

/// Where the mail of some domains goes.
pub struct Rule {
    /// Whether the rule is for a domain and a sender.
    pub matches: DomainMatcher,
    /// The next hop; `None` is the mail exchangers of the recipient's domain.
    pub next_hop: Option<NextHop>,
    /// How TLS is used towards the next hop.
    pub tls: TlsMode,
    /// The name of the route, if it has settings of its own for connections.
    pub route: Option<Arc<str>>,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("next_hop", &self.next_hop)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// Rules in order. Mail for domains that no rule matches goes to their mail exchangers.
#[derive(Debug)]
pub struct Table {
    rules: Vec<Rule>,
    mx_tls: TlsMode,
}

impl Table {
    /// A table of these rules. `mx_tls` is for mail that no rule matches.
    pub fn new(rules: impl IntoIterator<Item = Rule>, mx_tls: TlsMode) -> Self {
        Self { rules: rules.into_iter().collect(), mx_tls }
    }

    /// Returns where mail for a domain goes, given as [`mail::Domain::key`].
    pub fn destination(&self, key: &str, sender: Option<&ReversePath>) -> Destination {
        let found = self.rules.iter().find(|rule| (rule.matches)(key, sender));
        found.map_or_else(|| Destination::mx(key, self.mx_tls), |rule| rule.destination(key))
    }
}

impl Rule {
    /// Returns where the rule sends mail for a domain, whether it matches the domain or not.
    pub fn destination(&self, key: &str) -> Destination {
        let next_hop = self.next_hop.clone().unwrap_or_else(|| NextHop::Mx(key.into()));
        Destination { next_hop, tls: self.tls, route: self.route.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::HostPort;

    #[test]
    fn the_first_rule_that_matches_decides() {
        let smarthost =
            |host: &str| Some(NextHop::Smarthost(HostPort { host: host.into(), port: 25 }.into()));
        let rule = |matches: fn(&str) -> bool, next_hop| Rule {
            matches: Box::new(move |key, _| matches(key)),
            next_hop,
            tls: TlsMode::Require,
            route: None,
        };
        let rules = [
            rule(|key| key.ends_with(".a.test"), smarthost("one")),
            rule(|key| key == "x.a.test" || key == "b.test", smarthost("two")),
            rule(|key| key == "d.test", None),
        ];
        let table = Table::new(rules, TlsMode::May);
        for (key, name, tls) in [
            ("x.a.test", "smarthost:one:25", TlsMode::Require),
            ("b.test", "smarthost:two:25", TlsMode::Require),
            ("c.test", "mx:c.test", TlsMode::May),
            ("d.test", "mx:d.test", TlsMode::Require),
        ] {
            let destination = table.destination(key, None);
            assert_eq!((&*destination.to_string(), destination.tls), (name, tls));
        }
    }
}
