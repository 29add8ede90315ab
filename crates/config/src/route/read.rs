//! Reads each `[[route]]`: exactly one target, and keys only where they mean something.

use super::{Route, Target, keys::RouteKeys};
use crate::{TlsMode, section::Reading};
use toml::{Spanned, de::DeTable};

const DOMAINS: &str = "domains = [\"example.com\"] or domains = [\"*\"]";
const TARGETS: [&str; 5] = ["smarthost", "lmtp", "maildir", "mx", "discard"];
const ONE_TARGET: &str = "one of smarthost = \"host:port\", lmtp = \"unix:/path\", maildir = \"/path/{local}\", mx = true, discard = true";

/// The key is there and not `false`: a target, or something bad that was noted already.
fn may_be_target(table: &Spanned<&DeTable<'_>>, name: &str) -> bool {
    table.get_ref().get(name).is_some_and(|found| found.get_ref().as_bool() != Some(false))
}

impl Reading<'_> {
    pub(crate) fn routes(&mut self, root: &DeTable<'_>) -> Vec<Route> {
        let tables = self.tables(root, "route").unwrap_or_default();
        let mut routes: Vec<Route> = Vec::new();
        for (number, table) in tables.iter().enumerate() {
            let keys: RouteKeys = self.section(&format!("route[{number}]"), Some(table.get_ref()));
            if let Some(route) = self.one_route(keys, table) {
                self.refuse_unreachable(&routes, &route, table);
                routes.push(route);
            }
        }
        routes
    }

    /// Exactly one target, and `tls` only where it means something.
    fn one_route(&mut self, keys: RouteKeys, table: &Spanned<&DeTable<'_>>) -> Option<Route> {
        let named = |name: &str| table.get_ref().get_key_value(name).map(|(key, _)| key.span());
        if keys.domains.is_empty() {
            let given = table.get_ref().get("domains");
            match given.map(|found| (found.span(), found.get_ref().as_array())) {
                None => self.missing(table.span(), "domains", DOMAINS),
                Some((span, Some(items))) if items.is_empty() => {
                    let what = "this route is for no domain".to_owned();
                    self.cx.problem(span, what, "empty", format!("write {DOMAINS}"));
                }
                Some(_) => {} // Said already.
            }
        }
        let mut targets = Vec::new();
        targets.extend(keys.smarthost.map(|t| ("smarthost", Target::Smarthost(t))));
        targets.extend(keys.lmtp.map(|t| ("lmtp", Target::Lmtp(t))));
        targets.extend(keys.maildir.map(|t| ("maildir", Target::Maildir(t))));
        targets.extend(keys.mx.then_some(("mx", Target::Mx)));
        targets.extend(keys.discard.then_some(("discard", Target::Discard)));
        if let [first, others @ ..] = &targets[..] {
            for (name, _) in others {
                let what = format!("`{name}` and `{}` contradict each other", first.0);
                let span = named(name).unwrap_or(table.span());
                self.cx.problem(span, what, "a route leads to one place", format!("keep {ONE_TARGET}"));
            }
        } else if !TARGETS.iter().any(|name| may_be_target(table, name)) {
            let what = "this route has no target".to_owned();
            self.cx.problem(table.span(), what, "no target", format!("add {ONE_TARGET}"));
        }
        let (name, target) = targets.into_iter().next()?;
        if let (Some(span), Target::Maildir(_) | Target::Discard) = (named("tls"), &target) {
            let what = format!("`tls` means nothing beside `{name}`");
            self.cx.problem(span, what, "no connection is made", "remove it".to_owned());
        }
        let is_smarthost = matches!(target, Target::Smarthost(_));
        if let (Some(span), false) = (named("login"), is_smarthost) {
            let what = format!("`login` means nothing beside `{name}`");
            self.cx.problem(span, what, "only a smarthost is logged in to", "remove it".to_owned());
        }
        if let (Some(span), true) = (named("tls"), keys.login.is_some())
            && matches!(keys.tls, Some(TlsMode::Off | TlsMode::May))
        {
            let what = "a password is never sent without TLS".to_owned();
            self.cx.problem(span, what, "does not require TLS", "write \"verify\" or \"require\"".to_owned());
        }
        if let (Some(span), false) =
            (named("source_address"), matches!(target, Target::Smarthost(_) | Target::Mx))
        {
            let what = format!("`source_address` means nothing beside `{name}`");
            self.cx.problem(span, what, "for `smarthost` and `mx` only", "remove it".to_owned());
        }
        let is_asked = matches!(target, Target::Smarthost(_) | Target::Lmtp(_) | Target::Mx);
        if let (Some(span), true, false) = (named("verify"), keys.verify, is_asked) {
            let what = format!("`verify` means nothing beside `{name}`");
            self.cx.problem(span, what, "there is no next hop to ask", "remove it".to_owned());
        }
        let usual = if keys.login.is_some() { TlsMode::Verify } else { TlsMode::May };
        let tls = keys.tls.unwrap_or(usual);
        let RouteKeys { domains, login, source_address, verify, .. } = keys;
        Some(Route { domains, target, tls, login, source_address, verify })
    }

    /// A pattern that an earlier route covers is never reached: most likely the order is wrong.
    fn refuse_unreachable(&mut self, earlier: &[Route], route: &Route, table: &Spanned<&DeTable<'_>>) {
        let Some(items) = table.get_ref().get("domains").and_then(|found| found.get_ref().as_array()) else {
            return;
        };
        for (pattern, item) in route.domains.iter().zip(items.iter()) {
            let before = earlier.iter().flat_map(|r| &r.domains).find(|other| other.covers(pattern));
            if let Some(other) = before {
                let what = format!("this route never gets mail for \"{pattern}\"");
                let label = format!("an earlier route takes \"{other}\"");
                let help = "the first route that matches decides: move this one above it".to_owned();
                self.cx.problem(item.span(), what, &label, help);
            }
        }
    }
}
