//! Checks of `[auth]` and of the listeners where users log in.

use super::Check;
use crate::{
    ClientCertificates, FilterServer, Hook, ListenTls, Settings, certificate,
    choice::SaslMechanism,
    listen_address::ListenAt,
    listing::Effective,
    load::Purpose,
    route::SecretSource,
    users::{PasswdFileError, UserStore, read_passwd},
    value::Value as _,
};
use maps::{Reference, Source};
use std::time::Duration;

/// A session waits for all look-ups together for 30 s.
const TOKEN_TIMEOUT_MAX: Duration = Duration::from_secs(25);

/// Returns what to do about a secret that cannot be read.
fn help_for(source: &SecretSource) -> &'static str {
    match source {
        SecretSource::File(_) => "name a file that this user may read",
        SecretSource::Credential(_) => "write `LoadCredential=` with this name into the unit",
        SecretSource::Environment(_) => "give this variable a value in the daemon's environment",
    }
}

impl Check<'_, '_> {
    /// Reads the secrets of routes and maps, for a daemon that is about to use them.
    pub(super) fn secrets(&mut self, s: &Settings) {
        if self.purpose != Purpose::Serve {
            return;
        }
        for login in s.routes.iter().filter_map(|route| route.login.as_ref()) {
            if let Err(why) = login.secret.secret() {
                // Routes with problems are not in the settings: the value tells which one it is.
                let shown = login.to_toml();
                let is_it = |e: &&Effective| e.path.ends_with(".login") && e.value == shown;
                let found = self.reading.effective.iter().find(is_it);
                let path = found.map_or(String::new(), |e| e.path.clone());
                self.problem(&path, why, "no secret", help_for(&login.secret));
            }
        }
        for filter in &s.filters {
            if let FilterServer::Hook(Hook { secret: Some(secret), .. }) = &filter.server {
                self.secret(&format!("filter.{}.secret", filter.name), secret);
            }
        }
        for map in &s.maps {
            let Some(file) = map.source.trust().and_then(|trust| trust.secret.as_ref()) else { continue };
            if let Err(why) = file.read() {
                let path = format!("map.{}.secret", map.name);
                self.problem(&path, why, "no secret", "name a file that this user may read");
            }
        }
    }

    pub(super) fn logins(&mut self, s: &Settings) {
        let has_users = s.auth.users.is_some() || self.has_failed("auth.users");
        let has_tokens = s.oauth.introspection.is_some() || self.has_failed("oauth.introspection");
        for listen in s.listen.iter().filter(|listen| listen.kind.needs_login()) {
            let path = |key: &str| format!("listen[{}].{key}", listen.number);
            if !listen.auth {
                let what =
                    "this listener accepts mail only after a login, but nobody can log in to it".to_owned();
                self.problem(&path("auth"), what, "no logins", "remove `auth`, or choose another `kind`");
                continue;
            }
            let has_certificates = listen.client_certificates != ClientCertificates::Off;
            if !has_users && !has_tokens && !has_certificates {
                let what = "nobody can log in to this listener".to_owned();
                let help = "add `users = \"passwd:FILE\"` to [auth]; `postrider auth hash` makes the lines of the file";
                self.problem(&path("kind"), what, "needs logins", help);
            }
            let is_unix = matches!(listen.address, ListenAt::Unix { .. });
            if listen.tls == ListenTls::Off && !s.auth.allow_clear_text && !is_unix {
                let what = "this listener needs TLS: passwords would be sent in clear text".to_owned();
                let help = "remove `tls`, or write `allow_clear_text = true` in [auth]";
                self.problem(&path("tls"), what, "no TLS", help);
            }
        }
        self.at_least("auth.max_failures", &s.auth.max_failures, &1);
        if s.auth.mechanisms.as_ref().is_some_and(Vec::is_empty) {
            let help = "remove the key, or name \"plain\" or another mechanism";
            self.problem("auth.mechanisms", "no mechanism is offered".to_owned(), "empty", help);
        }
        self.unusable_mechanisms(s);
        self.tokens(s);
        for filter in &s.filters {
            let FilterServer::Hook(hook) = &filter.server else { continue };
            self.pem(
                &format!("filter.{}.ca_file", filter.name),
                hook.ca_file.as_deref(),
                certificate::authorities,
            );
        }
        if let Some(UserStore::Bind(map)) = &s.auth.users {
            self.directory_of_users(s, map);
        }
        let Some(UserStore::Passwd(path)) = &s.auth.users else { return };
        if self.purpose != Purpose::Serve {
            return;
        }
        match read_passwd(path) {
            Ok(users) => self.mechanisms(s, &users),
            Err(error) => {
                let help = match &error {
                    PasswdFileError::Io(..) => "name a file that this user may read",
                    PasswdFileError::Lines(..) => "correct the lines of this file",
                };
                self.problem("auth.users", error.to_string(), "cannot be used", help);
            }
        }
    }

    /// Rejects a map that cannot verify passwords, and one that would be sent them in clear text.
    fn directory_of_users(&mut self, s: &Settings, map: &Reference) {
        let Reference::Named(name) = map else { return };
        let found = s.maps.iter().find(|map| *map.name == **name);
        match found.map(|map| &map.source) {
            // A map that does not exist is reported with all others.
            None => {}
            Some(Source::Ldap(ldap)) if ldap.is_encrypted() || ldap.server.server.is_here() => {}
            Some(Source::Ldap(ldap)) => {
                let what = format!("passwords would be sent to {} in clear text", ldap.server);
                let help = format!("write ldap = \"ldaps://host\", or starttls = true, in [map.{name}]");
                self.problem("auth.users", what, "no TLS", &help);
            }
            Some(other) => {
                let what =
                    format!("`map.{name}` is not a directory: `{}` verifies no password", other.word());
                let help = format!("write \"map:{name}\" if its values are hashes of passwords");
                self.problem("auth.users", what, "needs `ldap`", &help);
            }
        }
    }

    /// Rejects mechanisms that no client could use.
    fn unusable_mechanisms(&mut self, s: &Settings) {
        let names = |one: SaslMechanism| s.auth.mechanisms.iter().flatten().any(|named| *named == one);
        let asks = s.listen.iter().any(|listen| listen.client_certificates != ClientCertificates::Off);
        let by_dovecot = matches!(s.auth.users, Some(UserStore::Dovecot(_)));
        let tokens = s.oauth.introspection.is_some() || self.has_failed("oauth.introspection") || by_dovecot;
        let key = "auth.mechanisms";
        let scram = s
            .auth
            .mechanisms
            .iter()
            .flatten()
            .find(|one| one.as_str().to_ascii_lowercase().starts_with("scram"));
        if let (Some(UserStore::Bind(_)), Some(scram)) = (&s.auth.users, scram) {
            let what = format!("no directory verifies passwords of {}", scram.as_str());
            self.problem(
                key,
                what,
                "it needs the password itself",
                "write [\"plain\", \"login\"], or remove the key",
            );
        }
        if names(SaslMechanism::External) && !asks {
            let help = "write client_certificates = \"ask\" in a [[listen]], or remove it";
            self.problem(key, "no listener asks for certificates".to_owned(), "\"external\" needs one", help);
        }
        if (names(SaslMechanism::OauthBearer) || names(SaslMechanism::Xoauth2)) && !tokens {
            let help = "add `introspection` to [oauth], or remove it";
            self.problem(key, "no server is asked about tokens".to_owned(), "for tokens", help);
        }
        let of_users = s.auth.mechanisms.iter().flatten().find(|one| {
            !matches!(one, SaslMechanism::External | SaslMechanism::OauthBearer | SaslMechanism::Xoauth2)
        });
        if let (Some(mechanism), None, false) = (of_users, &s.auth.users, self.has_failed("auth.users")) {
            let what = format!("there are no users for {}", mechanism.as_str());
            self.problem(key, what, "needs passwords", "add `users` to [auth], or remove it");
        }
    }

    /// Checks of `[oauth]`.
    fn tokens(&mut self, s: &Settings) {
        let oauth = &s.oauth;
        // Keys with a default may be shown though nothing is asked.
        let keys = ["client_id", "client_secret", "audience", "ca_file", "openid_configuration"];
        let unused = keys.map(|key| format!("oauth.{key}")).into_iter().find(|key| self.is_set(key));
        if let (None, Some(key), false) =
            (&oauth.introspection, unused, self.has_failed("oauth.introspection"))
        {
            let help = "add `introspection = \"https://id.example.com/introspect\"` to [oauth]";
            self.problem(&key, format!("`{key}` is not used"), "no server is asked about tokens", help);
        }
        self.not_zero("oauth.timeout", oauth.timeout);
        if oauth.timeout > TOKEN_TIMEOUT_MAX {
            let what = "`oauth.timeout` is too large".to_owned();
            self.problem(
                "oauth.timeout",
                what,
                "more than 25s",
                "write \"25s\" or less: clients wait for it",
            );
        }
        let id = ("client_id", oauth.client_id.is_some());
        self.both_or_none("oauth", id, ("client_secret", oauth.client_secret.is_some()));
        self.pem("oauth.ca_file", oauth.ca_file.as_deref(), certificate::authorities);
        if let Some(source) = &oauth.client_secret {
            self.secret("oauth.client_secret", source);
        }
    }

    /// Reports a secret that cannot be read.
    fn secret(&mut self, path: &str, source: &SecretSource) {
        if let (Purpose::Serve, Err(why)) = (self.purpose, source.secret()) {
            self.problem(path, why, "no secret", help_for(source));
        }
    }

    /// A mechanism that a user cannot use makes his client fail, since clients choose the strongest that is offered.
    fn mechanisms(&mut self, s: &Settings, users: &auth::PasswdFile) {
        let unusable = s.auth.mechanisms.iter().flatten().find_map(|mechanism| {
            let hash = mechanism.mechanism().scram_hash()?;
            (!users.all_have_scram(hash)).then_some((mechanism.as_str(), hash))
        });
        let Some((word, hash)) = unusable else { return };
        let scheme = match hash {
            auth::ScramHash::Sha1 => "scram-sha-1",
            auth::ScramHash::Sha256 => "scram-sha-256",
        };
        let what = format!("not every user in the file can log in with {word}");
        let help =
            format!("remove it, or store all passwords for it: `postrider auth hash --scheme {scheme}`");
        self.problem("auth.mechanisms", what, "one of these", &help);
    }
}

impl SaslMechanism {
    /// Returns the mechanism as `auth` knows it.
    pub fn mechanism(self) -> auth::Mechanism {
        match self {
            Self::ScramSha256Plus => auth::Mechanism::ScramSha256Plus,
            Self::ScramSha256 => auth::Mechanism::ScramSha256,
            Self::ScramSha1Plus => auth::Mechanism::ScramSha1Plus,
            Self::ScramSha1 => auth::Mechanism::ScramSha1,
            Self::External => auth::Mechanism::External,
            Self::OauthBearer => auth::Mechanism::OauthBearer,
            Self::Xoauth2 => auth::Mechanism::Xoauth2,
            Self::Plain => auth::Mechanism::Plain,
            Self::Login => auth::Mechanism::Login,
        }
    }
}
