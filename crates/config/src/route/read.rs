//! Reads each `[[route]]`: exactly one target, and keys only where they mean something.

use super::{DeliverAs, Route, RouteAddresses, Target, keys::RouteKeys};
use crate::{
    choice::RouteTls,
    section::Reading,
    sought::has_sought_key,
    value::{OrMap, Word},
};
use mail::LmtpServer;
use maps::Reference;
use policy::AddressPattern;
use queue::RouteSchedule;
use rewrite::Separator;
use std::time::Duration;
use toml::{Spanned, de::DeTable};

const DOMAINS: &str = "domains = [\"example.com\"], domains = [\"text:FILE\"] or domains = [\"*\"]";
const TARGETS: [&str; 10] =
    ["smarthost", "lmtp", "next_hop", "maildir", "mbox", "pipe", "mx", "hold", "reject", "discard"];
const ONE_TARGET: &str = "one of smarthost = \"host:port\", lmtp = \"unix:/path\", next_hop = [\"map:NAME\"], maildir = \"/path/{local}\", mbox = \"/path/{local}\", pipe = [\"/program\"], mx = true, hold = true, reject = \"550 5.7.1 text\", discard = true";

/// The key is there and not `false`: a target, or something bad that was noted already.
fn may_be_target(table: &Spanned<&DeTable<'_>>, name: &str) -> bool {
    table.get_ref().get(name).is_some_and(|found| found.get_ref().as_bool() != Some(false))
}

impl Reading<'_> {
    /// Reads the routes; the separator is that of `addresses.separator`.
    pub(crate) fn routes(&mut self, root: &DeTable<'_>, separator: Option<Separator>) -> Vec<Route> {
        let tables = self.tables(root, "route").unwrap_or_default();
        let mut routes: Vec<Route> = Vec::new();
        for (number, table) in tables.iter().enumerate() {
            let keys: RouteKeys = self.section(&format!("route[{number}]"), Some(table.get_ref()));
            if let Some(route) = self.one_route(keys, separator, table) {
                let route = Route { number: Some(number), ..route };
                self.refuse_same_name(&routes, &route, table);
                self.refuse_unreachable(&routes, &route, table);
                routes.push(route);
            }
        }
        routes
    }

    /// Exactly one target, and `tls` only where it means something.
    #[allow(clippy::too_many_lines)] // a table: a line for each key
    fn one_route(
        &mut self,
        keys: RouteKeys,
        separator: Option<Separator>,
        table: &Spanned<&DeTable<'_>>,
    ) -> Option<Route> {
        let named = |name: &str| table.get_ref().get_key_value(name).map(|(key, _)| key.span());
        if keys.domains.is_empty() {
            let given = table.get_ref().get("domains");
            let is_by_recipient = !keys.recipients.is_empty() || !keys.next_hop.is_empty();
            match given.map(|found| (found.span(), found.get_ref().as_array())) {
                None if ["name", "recipients", "next_hop"]
                    .iter()
                    .any(|key| table.get_ref().contains_key(*key)) => {}
                _ if is_by_recipient => {}
                None => self.missing(table.span(), "domains", DOMAINS),
                Some((span, Some(items))) if items.is_empty() => {
                    let what = "this route matches no domain".to_owned();
                    self.cx.problem(span, what, "empty", format!("write {DOMAINS}"));
                }
                Some(_) => {} // Said already.
            }
        }
        let mut targets = Vec::new();
        targets.extend(keys.smarthost.clone().map(|t| ("smarthost", Target::Smarthost(t))));
        targets.extend(keys.lmtp.clone().map(|t| ("lmtp", Target::Lmtp(t))));
        let next_hop = Some(keys.next_hop.clone()).filter(|maps| !maps.is_empty());
        targets.extend(next_hop.map(|maps| ("next_hop", Target::Mapped(maps))));
        targets.extend(keys.maildir.clone().map(|t| ("maildir", Target::Maildir(t))));
        targets.extend(keys.mbox.clone().map(|t| ("mbox", Target::Mbox(t))));
        targets.extend(keys.pipe.clone().map(|t| ("pipe", Target::Pipe(t))));
        targets.extend(keys.reject.clone().map(|t| ("reject", Target::Reject(t))));
        targets.extend(keys.hold.then_some(("hold", Target::Hold)));
        targets.extend(keys.mx.then_some(("mx", Target::Mx)));
        targets.extend(keys.discard.then_some(("discard", Target::Discard)));
        if let [first, others @ ..] = &targets[..] {
            for (name, _) in others {
                let what = format!("`{name}` and `{}` contradict each other", first.0);
                let span = named(name).unwrap_or(table.span());
                self.cx.problem(span, what, "a route leads to one place", format!("keep {ONE_TARGET}"));
            }
        } else if !TARGETS.iter().any(|name| may_be_target(table, name))
            && !has_sought_key("route", table.get_ref())
        {
            let what = "this route has no target".to_owned();
            self.cx.problem(table.span(), what, "no target", format!("add {ONE_TARGET}"));
        }
        let (name, target) = targets.into_iter().next()?;
        let is_remote =
            matches!(target, Target::Smarthost(_) | Target::Lmtp(_) | Target::Mx | Target::Mapped(_));
        if let (Some(span), false) = (named("tls"), is_remote) {
            let what = format!("`tls` has no effect with `{name}`");
            self.cx.problem(span, what, "no connection is made", "remove it".to_owned());
        }
        let is_smarthost = matches!(target, Target::Smarthost(_));
        if let (Some(span), false) = (named("login"), is_smarthost) {
            let what = format!("`login` has no effect with `{name}`");
            self.cx.problem(span, what, "only a smarthost is logged in to", "remove it".to_owned());
        }
        if let (Some(span), true) = (named("tls"), keys.login.is_some())
            && matches!(keys.tls, Some(RouteTls::Off | RouteTls::May))
        {
            let what = "a password is never sent without TLS".to_owned();
            self.cx.problem(span, what, "does not require TLS", "write \"verify\" or \"require\"".to_owned());
        }
        if let (Some(span), false) =
            (named("source_address"), matches!(target, Target::Smarthost(_) | Target::Mx | Target::Mapped(_)))
        {
            let what = format!("`source_address` has no effect with `{name}`");
            self.cx.problem(span, what, "for `smarthost`, `next_hop` and `mx` only", "remove it".to_owned());
        }
        if let (Some(span), false) = (named("ehlo_name"), is_remote) {
            let what = format!("`ehlo_name` has no effect with `{name}`");
            self.cx.problem(
                span,
                what,
                "for `smarthost`, `next_hop`, `mx` and `lmtp` only",
                "remove it".to_owned(),
            );
        }
        if let (Some(span), true, false) = (named("verify"), keys.verify, is_remote) {
            let what = format!("`verify` has no effect with `{name}`");
            self.cx.problem(span, what, "there is no next hop to ask", "remove it".to_owned());
        }
        if let (Some(span), false) = (named("durability"), is_remote) {
            let what = format!("`durability` has no effect with `{name}`");
            self.cx.problem(span, what, "there is no next hop to wait for", "remove it".to_owned());
        }
        let is_file = matches!(target, Target::Maildir(_) | Target::Mbox(_));
        if let (Some(span), false) = (named("user").or_else(|| named("group")), is_file) {
            let what = format!("`user` and `group` have no effect with `{name}`");
            let help =
                "remove them; the program of `pipe` has its own user: { argv = [...], user = \"vmail\" }";
            self.cx.problem(span, what, "for `maildir` and `mbox` only", help.to_owned());
        } else if let (Some(span), None, None) = (named("group"), &keys.user, named("user")) {
            let what = "`group` has no effect without `user`".to_owned();
            self.cx.problem(span, what, "`user` is missing", "add `user`".to_owned());
        }
        let tls = self.route_tls(&keys, &target, table);
        self.route_fallback(&keys, (name, &target), table);
        let schedule = self.route_schedule(&keys, table);
        let RouteKeys {
            name: label,
            domains,
            senders,
            recipients,
            login,
            source_address,
            ehlo_name,
            verify,
            durability,
            fallback,
            user,
            group,
            ..
        } = keys;
        let deliver_as = user.map(|user| DeliverAs { user, group });
        let (label, senders) = (label.map(|Word(name)| name.into()), RouteAddresses::new(senders, separator));
        let recipients = RouteAddresses::new(recipients, separator);
        if recipients.patterns.contains(&AddressPattern::Null) {
            let span = table.get_ref().get("recipients").map_or(table.span(), Spanned::span);
            let what = "no recipient has the address `<>`".to_owned();
            let help = "remove \"<>\"; the null reverse-path belongs into `senders`".to_owned();
            self.cx.problem(span, what, "a sender only", help);
        }
        let (domains, domain_maps) = OrMap::split(domains);
        Some(Route {
            number: None,
            label,
            domains,
            domain_maps,
            senders,
            recipients,
            target,
            tls,
            login,
            source_address,
            ehlo_name,
            verify,
            durability,
            fallback,
            deliver_as,
            schedule,
        })
    }

    /// Port 465 speaks TLS from the first byte, and other ports of smarthosts mostly do not.
    fn route_tls(&mut self, keys: &RouteKeys, target: &Target, table: &Spanned<&DeTable<'_>>) -> RouteTls {
        let span = table.get_ref().get("tls").map_or(table.span(), Spanned::span);
        let port = if let Target::Smarthost(host) = target { Some(host.port) } else { None };
        match keys.tls {
            Some(RouteTls::Implicit) if port.is_none() => {
                let what = "`tls` cannot be \"implicit\" here".to_owned();
                self.cx.problem(span, what, "for a smarthost only", "write \"verify\"".to_owned());
            }
            Some(tls) if port == Some(465) && tls != RouteTls::Implicit => {
                let what = "port 465 speaks TLS from the first byte (RFC 8314)".to_owned();
                self.cx.problem(
                    span,
                    what,
                    "only STARTTLS or none",
                    "write \"implicit\", or port 587".to_owned(),
                );
            }
            _ => {}
        }
        keys.tls.unwrap_or(match (port, &keys.login) {
            (Some(465), _) => RouteTls::Implicit,
            (_, Some(_)) => RouteTls::Verify,
            (_, None) => RouteTls::May,
        })
    }

    fn route_fallback(
        &mut self,
        keys: &RouteKeys,
        (name, target): (&str, &Target),
        table: &Spanned<&DeTable<'_>>,
    ) {
        let is_possible =
            matches!(target, Target::Smarthost(_) | Target::Mx | Target::Lmtp(LmtpServer::Tcp(_)));
        if keys.fallback.is_empty() || is_possible {
            return;
        }
        let span = table.get_ref().get("fallback").map_or(table.span(), Spanned::span);
        let what = format!("`fallback` has no effect with `{name}`");
        self.cx.problem(span, what, "for hosts only", "remove it".to_owned());
    }

    fn route_schedule(&mut self, keys: &RouteKeys, table: &Spanned<&DeTable<'_>>) -> RouteSchedule {
        let span = |key: &str| table.get_ref().get(key).map_or(table.span(), Spanned::span);
        let RouteKeys { retry, retry_min, retry_max, lifetime, .. } = keys;
        for (key, time) in [
            ("retry", retry.iter().min()),
            ("retry_min", retry_min.as_ref()),
            ("retry_max", retry_max.as_ref()),
            ("lifetime", lifetime.as_ref()),
        ] {
            if time.is_some_and(Duration::is_zero) {
                let what = format!("`{key}` is too small");
                self.cx.problem(span(key), what, "no time at all", "write \"1s\" or more".to_owned());
            }
        }
        if let (false, Some(key)) =
            (retry.is_empty(), retry_min.map(|_| "retry_min").or(retry_max.map(|_| "retry_max")))
        {
            let what = format!("`{key}` and `retry` contradict each other");
            self.cx.problem(span(key), what, "the list has all intervals", "keep one of them".to_owned());
        }
        if let (Some(min), Some(max)) = (retry_min, retry_max)
            && min > max
        {
            let what = "`retry_min` is larger than `retry_max`".to_owned();
            self.cx.problem(
                span("retry_min"),
                what,
                "",
                "`retry_min` must not be larger than `retry_max`".to_owned(),
            );
        }
        let (retry_min, retry_max, lifetime) = (*retry_min, *retry_max, *lifetime);
        RouteSchedule { intervals: retry.clone(), retry_min, retry_max, lifetime }
    }

    /// A rule names one route.
    fn refuse_same_name(&mut self, earlier: &[Route], route: &Route, table: &Spanned<&DeTable<'_>>) {
        let Some(label) = route.label.as_deref() else { return };
        if earlier.iter().any(|other| other.label.as_deref() == Some(label)) {
            let span = table.get_ref().get("name").map_or(table.span(), Spanned::span);
            let what = format!("two routes have the name `{label}`");
            self.cx.problem(span, what, "the second one", "give each its own name".to_owned());
        }
    }

    /// A pattern that an earlier route covers is never reached: most likely the order is wrong.
    fn refuse_unreachable(&mut self, earlier: &[Route], route: &Route, table: &Spanned<&DeTable<'_>>) {
        let Some(items) = table.get_ref().get("domains").and_then(|found| found.get_ref().as_array()) else {
            return;
        };
        let is_pattern =
            |item: &&crate::value::Found<'_>| !item.get_ref().as_str().is_some_and(Reference::is_meant);
        for (pattern, item) in route.domains.iter().zip(items.iter().filter(is_pattern)) {
            let taking = earlier.iter().filter(|r| r.target != Target::Hold && r.is_for_everybody());
            let before = taking.flat_map(|r| &r.domains).find(|other| other.covers(pattern));
            if let Some(other) = before {
                let what = format!("this route never gets mail for \"{pattern}\"");
                let label = format!("an earlier route takes \"{other}\"");
                let help = "the first route that matches decides: move this one above it".to_owned();
                self.cx.problem(item.span(), what, &label, help);
            }
        }
    }
}
