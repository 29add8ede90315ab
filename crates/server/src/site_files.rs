//! The files that a configuration names, with what each of them is for.

use config::{SecretSource, Settings, UserStore};
use maps::{Kind, Reference, SecretPlace, Source};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// What a file is for, and so who may read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileUse {
    /// The file with the settings.
    Configuration,
    /// Certificates of listeners, or authorities for their clients.
    Certificates,
    /// Authorities that other servers are verified by.
    Authorities,
    /// A private key, which nobody else may read.
    Key,
    /// A password or token for another server, which nobody else may read.
    Secret,
    /// Users with hashes of their passwords.
    Users,
    /// A file of a map, or a list that it includes.
    Map,
    /// A database of SQLite, which other programs write.
    Database,
    /// Templates of notifications.
    Text,
}

impl FileUse {
    /// Returns the noun for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Certificates => "certificates",
            Self::Authorities => "authorities",
            Self::Key => "private key",
            Self::Secret => "password for another server",
            Self::Users => "users",
            Self::Map => "map",
            Self::Database => "database",
            Self::Text => "text of notifications",
        }
    }

    /// Must nobody but the daemon and root read it?
    pub fn is_private(self) -> bool {
        matches!(self, Self::Key | Self::Secret)
    }
}

/// A file that the daemon reads because the configuration names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteFile {
    /// As the configuration names it, made absolute.
    pub path: PathBuf,
    /// Decides who may read it, and what a backup does with it.
    pub file_use: FileUse,
}

/// Returns each file once, in the order of the configuration; the configuration first. Credentials of systemd are not among
/// them: they exist only in a service.
pub fn site_files(settings: &Settings, source: Option<&Path>) -> Vec<SiteFile> {
    let mut found = Found(Vec::new());
    if let Some(source) = source {
        found.add(source, FileUse::Configuration);
        found.add_all(&config::further_files(source), FileUse::Configuration);
    }
    let (tls, auth) = (&settings.tls, &settings.auth);
    let chains = settings.certificates.iter().map(|one| &one.chain);
    let keys = settings.certificates.iter().map(|one| &one.key);
    let certificates =
        [&tls.certificate, &tls.next_hop_certificate, &tls.client_ca_file].into_iter().flatten();
    found.add_all(certificates.chain(chains), FileUse::Certificates);
    let authorities = tls.ca_file.iter().chain(&settings.oauth.ca_file).chain(&settings.acme.ca_file);
    let authorities = authorities.chain(settings.hooks().filter_map(|hook| hook.ca_file.as_ref()));
    found.add_all(authorities, FileUse::Authorities);
    found.add_all(tls.key.iter().chain(&tls.next_hop_key).chain(keys), FileUse::Key);
    found.add_all(settings.sign.iter().filter_map(config::Sign::file), FileUse::Secret);
    let logins = settings.routes.iter().filter_map(|route| route.login.as_ref());
    let secrets = logins.map(|login| &login.secret).chain(&settings.oauth.client_secret);
    let secrets = secrets.chain(&settings.acme.external_key);
    let secrets = secrets.chain(settings.hooks().filter_map(|hook| hook.secret.as_ref()));
    found.add_all(secrets.filter_map(file_of), FileUse::Secret);
    if let Some(UserStore::Passwd(file)) = &auth.users {
        found.add(file, FileUse::Users);
    }
    for (_, reference) in settings.map_references() {
        let Reference::File(kind, file) = reference else { continue };
        found.add(file, FileUse::Map);
        if *kind == Kind::Aliases {
            found.add_all(&sandbox::included_lists(file), FileUse::Map);
        }
    }
    for map in &settings.maps {
        if let Some(trust) = map.source.trust() {
            if let Some(SecretPlace::File(file)) = &trust.secret {
                found.add(file, FileUse::Secret);
            }
            found.add_all(&trust.ca_file, FileUse::Authorities);
        }
        if let Source::Sqlite { file, .. } = &map.source {
            found.add(file, FileUse::Database);
        }
    }
    if let Some(folder) = &settings.notifications.templates {
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        files.retain(|path| path.is_file());
        files.sort_unstable();
        found.add_all(&files, FileUse::Text);
    }
    found.0
}

fn file_of(secret: &SecretSource) -> Option<&PathBuf> {
    match secret {
        SecretSource::File(path) => Some(path),
        SecretSource::Credential(_) | SecretSource::Environment(_) => None,
    }
}

struct Found(Vec<SiteFile>);

impl Found {
    fn add(&mut self, path: &Path, file_use: FileUse) {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // A file that is a certificate and a key is a key.
        match self.0.iter_mut().find(|file| file.path == path) {
            Some(file) if file_use.is_private() => file.file_use = file_use,
            Some(_) => {}
            None => self.0.push(SiteFile { path, file_use }),
        }
    }

    fn add_all<'p>(&mut self, paths: impl IntoIterator<Item = &'p PathBuf>, file_use: FileUse) {
        paths.into_iter().for_each(|path| self.add(path, file_use));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_a_configuration_names_is_found_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        for (name, text) in [
            ("aliases", "staff: :include:/srv/lists/staff\n"),
            ("users", ""),
            ("secret", "s3cret\n"),
            ("list", "a@a.test\n"),
        ] {
            fs::write(file(name), text).unwrap();
        }
        let made = rcgen::generate_simple_self_signed(vec!["mx.test".to_owned()]).unwrap();
        fs::write(file("both.pem"), made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
        let text = "hostname = \"mx.test\"\ndata_dir = \"data\"\n[tls]\ncertificate = \"both.pem\"\nkey = \"both.pem\"\n\
                    [auth]\nusers = \"passwd:users\"\n[addresses]\naliases = [\"aliases:aliases\"]\n\
                    canonical = [\"text:list\"]\n[[route]]\ndomains = [\"a.test\"]\nsmarthost = \"192.0.2.1:25\"\n\
                    tls = \"require\"\nlogin = { user = \"u\", secret = \"file:secret\" }\n";
        fs::write(file("postrider.toml"), text).unwrap();
        let source = file("postrider.toml");
        let settings = config::load(Some(&source)).unwrap_or_else(|problems| panic!("{problems}"));
        let found = site_files(&settings, Some(&source));
        let uses = |file_use| {
            let paths = found.iter().filter(|file| file.file_use == file_use).map(|file| file.path.clone());
            paths.collect::<Vec<_>>()
        };
        assert_eq!(uses(FileUse::Configuration), [source]);
        assert_eq!(uses(FileUse::Key), [file("both.pem")], "{found:?}");
        assert!(uses(FileUse::Certificates).is_empty());
        assert_eq!(uses(FileUse::Secret), [file("secret")]);
        assert_eq!(uses(FileUse::Users), [file("users")]);
        let mut maps = uses(FileUse::Map);
        maps.sort_unstable();
        let mut wanted = vec![PathBuf::from("/srv/lists/staff"), file("aliases"), file("list")];
        wanted.sort_unstable();
        assert_eq!(maps, wanted);
    }
}
