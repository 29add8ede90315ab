//! Checks of `[acme]`.

use super::Check;
use crate::{
    acme::{Acme, AcmeChallenge, acme_key},
    certificate,
    listen_address::ListenAddress,
    load::Purpose,
    settings::Settings,
};

/// The most names that authorities put into one certificate.
const NAMES_MAX: usize = 100;

impl Check<'_, '_> {
    pub(super) fn acme(&mut self, s: &Settings) {
        let acme = &s.acme;
        if !acme.is_used() {
            let keys = ["contact", "listen", "hook", "external_account", "external_key", "ca_file"];
            let unused = keys.map(|key| format!("acme.{key}")).into_iter().find(|key| self.is_set(key));
            let unused = unused.or_else(|| acme.agree_to_terms.then(|| "acme.agree_to_terms".to_owned()));
            if let Some(key) = unused.filter(|_| !self.has_failed("acme.names")) {
                let help = format!("add `names = [\"{}\"]` to [acme]", s.hostname);
                self.problem(&key, format!("`{key}` is not used"), "`names` is missing", &help);
            }
            return;
        }
        if !acme.agree_to_terms && !self.has_failed("acme.agree_to_terms") {
            let what = "the authority asks whether you accept its terms of service".to_owned();
            let help = "read them on its website, and write agree_to_terms = true in [acme]";
            self.problem("acme.names", what, "no certificate without this", help);
        }
        if acme.names.len() > NAMES_MAX {
            let what = format!("`acme.names` has {} names", acme.names.len());
            self.problem("acme.names", what, "", "write 100 names at most: no authority signs more");
        }
        self.acme_challenge(acme);
        self.acme_listener(acme);
        self.acme_account(acme);
        self.pem("acme.ca_file", acme.ca_file.as_deref(), certificate::authorities);
    }

    fn acme_challenge(&mut self, acme: &Acme) {
        let is_dns = acme.challenge == AcmeChallenge::Dns;
        let wildcard = acme.names.iter().find(|name| name.0.starts_with("*."));
        if let Some(name) = wildcard.filter(|_| !is_dns) {
            let what = format!("\"{}\" is a wildcard", name.0);
            let help = "write challenge = \"dns-01\" and a `hook`, or name each host";
            self.problem("acme.names", what, "authorities require a DNS record for it", help);
        }
        let keys = ["acme.hook", "acme.hook.argv", "acme.hook.user", "acme.hook.timeout"];
        let has_failed = keys.iter().any(|key| self.has_failed(key));
        if is_dns && acme.hook.is_none() && !has_failed {
            let what = "no program makes the record for dns-01".to_owned();
            let help = "add `hook = [\"/etc/postrider/dns-hook\"]` to [acme]";
            self.problem("acme.challenge", what, "`hook` is missing", help);
        }
        if acme.hook.is_some() && !is_dns {
            let what = format!("`acme.hook` is not used with \"{}\"", acme.challenge.as_str());
            self.problem("acme.hook", what, "only for dns-01", "remove it, or write challenge = \"dns-01\"");
        }
    }

    fn acme_listener(&mut self, acme: &Acme) {
        if let Some(ListenAddress::Unix(_)) = &acme.listen {
            let what = "`acme.listen` cannot be a Unix socket".to_owned();
            let help = "write an address with a port, such as \"127.0.0.1:8080\", or systemd:NAME";
            self.problem("acme.listen", what, "the authority connects by TCP", help);
        }
    }

    fn acme_account(&mut self, acme: &Acme) {
        let account = ("external_account", acme.external_account.is_some());
        self.both_or_none("acme", account, ("external_key", acme.external_key.is_some()));
        if let (Some(source), Purpose::Serve) = (&acme.external_key, self.purpose)
            && let Err(why) = acme_key(source)
        {
            self.problem("acme.external_key", why, "no key", "name a file with the key, in one line");
        }
    }
}
