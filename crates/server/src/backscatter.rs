//! Warnings about routes of local domains to another server or a program that is not asked who exists there: what strangers send to a name that
//! nobody has is taken, and then returned to a sender who may be forged.

use config::{DomainPattern, Route, Settings, Target};
use mail::{Argument, EnvelopeField, Program};
use maps::{Kind, Reference, text::TextTable};
use policy::{AddressPattern, Audience, Condition, Rule};
use std::collections::{BTreeSet, HashMap};

/// Returns a warning for each such route.
pub(super) fn warnings(settings: &Settings) -> Vec<String> {
    // Behind a balancer or another mail server that names the clients, they come from everywhere, whatever the address is.
    let is_open = |listen: &config::Listen| {
        let names_clients = !(listen.proxy.is_empty() && listen.xclient.is_empty());
        listen.kind == mail::ListenerKind::Mx
            && (names_clients
                || match &listen.address {
                    config::ListenAt::Ip(address) => !address.ip().is_loopback(),
                    config::ListenAt::Unix { .. } => false,
                    config::ListenAt::Systemd(_) => true,
                })
    };
    if settings.local.users.is_some() || !settings.listen.iter().any(is_open) {
        return Vec::new();
    }
    let mut known = DomainsByName { settings, files: HashMap::new() };
    let asks_nobody = |route: &Route| match &route.target {
        Target::Lmtp(_) | Target::Smarthost(_) | Target::Mx => !route.verify,
        Target::Pipe(program) => is_told_the_user(program),
        _ => false,
    };
    let routes = settings.numbered_routes().filter(|(_, route)| asks_nobody(route));
    let told = routes.filter_map(|(number, route)| {
        let domain = known.domain_of(route)?;
        // A program is not asked before it gets the message.
        let (who, advice) = match route.target {
            Target::Pipe(_) => ("program", "name the users in `local.users`, which may be a map"),
            _ => ("next hop", "write `verify = true` in the route, or name the users in `local.users`"),
        };
        Some(format!(
            "`route[{number}]`: mail from everywhere for any name at {domain} is taken, and what the {who} refuses is returned \
             to senders who may be forged: {advice}"
        ))
    });
    told.collect()
}

/// Returns whether a program is told the user, and so may refuse one that does not exist. One that is not takes the mail of a
/// whole domain, such as a ticket system.
fn is_told_the_user(program: &Program) -> bool {
    use EnvelopeField::{Local, Recipient, User};
    let is_user = |argument: &Argument| matches!(argument, Argument::Field(Recipient | Local | User));
    program.argv.iter().any(is_user)
}

/// The local domains and the routes, with the keys of the text maps that both name.
struct DomainsByName<'s> {
    settings: &'s Settings,
    files: HashMap<&'s Reference, BTreeSet<String>>,
}

impl<'s> DomainsByName<'s> {
    /// Returns in words for which local domains a route takes mail from strangers.
    fn domain_of(&mut self, route: &'s Route) -> Option<String> {
        let settings = self.settings;
        let earlier = || settings.routes.iter().take_while(|other| !std::ptr::eq(*other, route));
        let references = settings.routes.iter().flat_map(|route| &route.domain_maps);
        for reference in references.chain(&settings.local.domain_maps) {
            self.read(reference);
        }
        // The first route that matches takes the mail, if it is for all senders.
        let is_taken = |domain: &str| {
            let takes = |other: &&Route| other.number.is_some() && other.is_for_everybody();
            earlier().filter(takes).any(|other| self.route_has(other, domain))
        };
        let of_files = settings.local.domain_maps.iter().filter_map(|map| self.files.get(map)).flatten();
        let names =
            || settings.local.domains.iter().chain(of_files.clone()).filter(|domain| !is_taken(domain));
        let by_name = || names().find(|domain| self.route_has(route, domain)).cloned();
        // A map that only answers questions may have what the other side names.
        let local_maps = || settings.local.domain_maps.iter().filter(|map| !self.files.contains_key(map));
        let route_maps = || route.domain_maps.iter().filter(|map| !self.files.contains_key(map));
        let if_route_has = || Some(format!("{}, if {} has it,", names().next()?, route_maps().next()?));
        let of_route = || {
            let taken = |pattern: &&DomainPattern| pattern_is_taken(pattern, earlier());
            let pattern = route.domains.iter().find(|pattern| !taken(pattern)).map(ToString::to_string);
            let files = || route.domain_maps.iter().filter_map(|map| self.files.get(map)).flatten();
            pattern.or_else(|| files().find(|domain| !is_taken(domain)).cloned())
        };
        let if_local = || Some(format!("{}, if {1} has it,", of_route()?, local_maps().next()?));
        let by_maps = || {
            let (local, own) = (local_maps().next()?, route_maps().next()?);
            if pattern_is_taken(&DomainPattern::Any, earlier()) {
                return None;
            }
            let is_one = local_maps().any(|map| route_maps().any(|other| map == other));
            Some(if is_one {
                format!("the domains of {own}")
            } else {
                format!("domains that {local} and {own} have")
            })
        };
        let by_rule = || {
            let label = route.label.as_deref()?;
            let is_meant = |rule: &&Rule| {
                rule.modifiers.route.as_deref() == Some(label) && may_choose_strangers_mail(rule, settings)
            };
            let rule = settings.rules.program.rules().iter().find(is_meant)?;
            Some(format!("local domains that {} chooses", rule.place()))
        };
        by_name().or_else(if_route_has).or_else(if_local).or_else(by_maps).or_else(by_rule)
    }

    /// Reads the keys of a text map. Of a file that cannot be read there is an error elsewhere.
    fn read(&mut self, reference: &'s Reference) {
        let Reference::File(Kind::Text, path) = reference else { return };
        self.files.entry(reference).or_insert_with(|| {
            let text = maps::read_text(path).unwrap_or_default();
            TextTable::entries(&text).map(|entry| mail::fold(&entry.key).into_owned()).collect()
        });
    }

    fn route_has(&self, route: &Route, domain: &str) -> bool {
        let has = |map| self.files.get(map).is_some_and(|keys| keys.contains(domain));
        route.matches(domain) || route.domain_maps.iter().any(has)
    }
}

/// Returns whether an earlier route takes all mail of a pattern's domains, whoever the sender is.
fn pattern_is_taken<'r>(pattern: &DomainPattern, mut earlier: impl Iterator<Item = &'r Route>) -> bool {
    earlier.any(|other| {
        other.number.is_some()
            && other.is_for_everybody()
            && other.domains.iter().any(|taken| taken.covers(pattern))
    })
}

/// Returns whether a rule may choose the route of mail from strangers for names in local domains that nobody has looked up.
fn may_choose_strangers_mail(rule: &Rule, settings: &Settings) -> bool {
    let local = &settings.local;
    // Of a user who is named, somebody knows.
    let may_be_local = |pattern: &AddressPattern| match pattern {
        AddressPattern::Domain(pattern) => {
            !local.domain_maps.is_empty() || local.domains.iter().any(|domain| pattern.matches(domain))
        }
        AddressPattern::Null | AddressPattern::Mailbox(..) | AddressPattern::User(_) => false,
    };
    let may_hold = |condition: &Condition| match condition {
        Condition::To(to) => !to.maps.is_empty() || to.patterns.iter().any(may_be_local),
        Condition::Login(_) => false,
        _ => true,
    };
    rule.audience != Audience::Users && rule.conditions.iter().all(may_hold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_next_hop_that_nobody_asks_who_exists_is_told() {
        let warned = |more: &str| {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("postrider.toml");
            let text = format!(
                "hostname = \"mx.example.com\"\n[local]\ndomains = [\"a.test\", \"mx.example.com\"]\n{more}"
            );
            fs::write(&file, text).unwrap();
            let settings = config::load(Some(&file)).unwrap_or_else(|problems| panic!("{problems}"));
            !warnings(&settings).is_empty()
        };
        let open = "[[listen]]\naddress = \"0.0.0.0:25\"\n";
        for target in ["lmtp = \"127.0.0.1:24\"", "smarthost = \"in.a.test:25\"", "mx = true"] {
            let route = format!("[[route]]\ndomains = [\"a.test\"]\n{target}\n");
            assert!(warned(&format!("{open}{route}")), "{target}");
            assert!(!warned(&format!("{open}{route}verify = true\n")), "asked");
            assert!(!warned(&format!("users = [\"joe\"]\n{open}{route}")), "the users are known");
            let at_loopback = |key: &str| format!("[[listen]]\naddress = \"127.0.0.1:2525\"\n{key}{route}");
            assert!(!warned(&at_loopback("")), "for this machine");
            for key in ["proxy", "xclient"] {
                assert!(warned(&at_loopback(&format!("{key} = [\"127.0.0.1\"]\n"))), "{key}");
            }
            assert!(
                !warned(&format!("{open}{}", route.replace("a.test\"]", "far.test\"]"))),
                "not taken from strangers"
            );
        }
    }

    #[test]
    fn a_program_that_may_refuse_a_user_is_told_and_one_that_does_not_know_the_user_is_not() {
        let route = |argv: &str| {
            format!(
                "[local]\ndomains = [\"mx.example.com\", \"a.test\"]\nusers = [\"joe\"]\n[[route]]\n\
                 domains = [\"a.test\"]\npipe = {{ argv = [{argv}], user = \"nobody\" }}\n"
            )
        };
        for (argv, is_told) in [
            ("\"/bin/cat\", \"{user}\"", true),
            ("\"/bin/cat\", \"-d\", \"{recipient}\"", true),
            ("\"/bin/cat\", \"{local}\"", true),
            ("\"/bin/cat\"", false),
            ("\"/bin/cat\", \"{domain}\", \"{sender}\", \"{id}\", \"{detail}\"", false),
        ] {
            assert_eq!(warned(&route(argv)), None, "the users are known");
            let told = warned(&route(argv).replace("users = [\"joe\"]\n", ""));
            assert_eq!(told.is_some(), is_told, "{argv}: {told:?}");
            let told = told.unwrap_or_default();
            assert_eq!(told.contains("what the program refuses is returned"), is_told, "{told}");
            assert!(!told.contains("verify"), "a program cannot be asked: {told}");
        }
    }

    /// The mail of the server itself.
    const OWN: &str = "[[route]]\ndomains = [\"mx.example.com\"]\nmaildir = \"mail/{local}\"\n";

    fn warned(more: &str) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("domains"), "d.test x\n").unwrap();
        for regex in ["patterns", "others"] {
            fs::write(dir.path().join(regex), "/^d/ x\n").unwrap();
        }
        let file = dir.path().join("postrider.toml");
        let text =
            format!("hostname = \"mx.example.com\"\n[[listen]]\naddress = \"0.0.0.0:25\"\n{OWN}{more}");
        fs::write(&file, text).unwrap();
        let settings = config::load(Some(&file)).unwrap_or_else(|problems| panic!("{problems}"));
        warnings(&settings).into_iter().next()
    }

    #[test]
    fn a_next_hop_of_domains_in_maps_is_told_too() {
        let smarthost = "smarthost = \"127.0.0.1:26\"\ntls = \"off\"\n";
        let site = |local: &str, route: &str| {
            format!(
                "[local]\ndomains = [\"mx.example.com\", {local}]\n[[route]]\ndomains = [{route}]\n{smarthost}"
            )
        };
        let (text, sql) = ("\"text:domains\"", "\"regex:patterns\"");
        for (local, route, told) in [
            (text, "\"d.test\"", "at d.test is"),
            ("\"d.test\"", text, "at d.test is"),
            (text, text, "at d.test is"),
            (text, "\"other.test\"", ""),
            ("\"e.test\"", text, ""),
            ("\"e.test\"", sql, "at e.test, if regex:"),
            (text, sql, "at d.test, if regex:"),
            (sql, "\"other.test\"", "at other.test, if regex:"),
            (sql, text, "at d.test, if regex:"),
            (sql, sql, "at the domains of regex:"),
            (sql, "\"regex:others\"", "patterns and regex:"),
        ] {
            let (site, case) = (site(local, route), format!("{local} {route}"));
            let warned_of = warned(&site).unwrap_or_default();
            assert!(
                warned_of.contains(told) && warned_of.is_empty() == told.is_empty(),
                "{case}: {warned_of}"
            );
            assert_eq!(warned(&format!("{site}verify = true\n")), None, "{case}");
            let earlier = format!("[[route]]\ndomains = [\"*\"]\n{smarthost}verify = true\n[[route]]\n");
            let taken = site.replace("[[route]]\n", &earlier);
            // A route by name that never gets mail is an error.
            if route.contains(':') {
                assert_eq!(warned(&taken), None, "{case}: {taken}");
            }
        }
    }

    #[test]
    fn a_rule_that_strangers_reach_is_told_and_no_other() {
        let route = "[local]\ndomains = [\"mx.example.com\", \"a.test\"]\n[[route]]\nname = \"a\"\nlmtp = \"127.0.0.1:24\"\n[[rule]]\nroute = \"a\"\n";
        for (conditions, is_told) in [
            ("to = [\"*\"]", true),
            ("to = [\"a.test\"]", true),
            ("to = [\"text:domains\"]", true),
            ("from = [\"b.test\"]", true),
            ("for = \"all\"\nto = [\"*\"]", true),
            ("for = \"users\"\nto = [\"*\"]", false),
            ("for = \"all\"\nto = [\"*\"]\nlogin = [\"*\"]", false),
            ("to = [\"far.test\"]", false),
            ("to = [\"joe@a.test\", \"joe@*\"]", false),
        ] {
            let told = warned(&format!("{route}{conditions}\n"));
            assert_eq!(told.is_some(), is_told, "{conditions}: {told:?}");
        }
        assert_eq!(
            warned(&format!("{}to = [\"*\"]\n", route.replace("route = \"a\"", "tag = [\"a\"]"))),
            None
        );
    }
}
