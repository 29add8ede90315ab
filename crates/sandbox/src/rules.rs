//! The files and TCP ports that a configuration needs.

use config::{FilterServer, HttpServer, HttpUrl, MappedHop, SecretSource, Settings, Target, UserStore};
use mail::{HostPort, LmtpServer};
use maps::{Kind, Reference, SecretPlace, Server, Source, Trust, text::TextTable};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Files of the system that a daemon reads again while it runs. They are replaced by new files, so the
/// folder is permitted; their own permissions protect those that are secret.
const SYSTEM: [&str; 5] =
    ["/etc", "/usr/share/zoneinfo", "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager"];
/// For a process of root, whom no permissions stop, only the files themselves.
const SYSTEM_OF_ROOT: [&str; 8] = [
    "/etc/passwd",
    "/etc/group",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/run/systemd/resolve",
];
/// CPU time, the process itself, and random numbers. A static binary opens /dev/random before /dev/urandom.
const KERNEL: [&str; 7] = [
    "/proc/stat",
    "/proc/self",
    "/proc/meminfo",
    "/sys/devices/system/cpu",
    "/dev/urandom",
    "/dev/random",
    "/dev/null",
];
/// PostgreSQL's port, if the connection names none.
const POSTGRES: u16 = 5432;

/// Of MySQL and MariaDB.
const MYSQL: u16 = 3306;
/// Ports of other mail servers: SMTP, submission with TLS, submission, and what providers offer besides.
const MAIL_PORTS: [u16; 4] = [25, 465, 587, 2525];

/// The port of LMTP, if the value of a map names none.
const LMTP: u16 = 24;

/// The files and TCP ports that a process may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Files and folders to read.
    pub read: BTreeSet<PathBuf>,
    /// Folders to read and write, and to make files in.
    pub write: BTreeSet<PathBuf>,
    /// TCP ports of other machines to connect to.
    pub connect: BTreeSet<u16>,
    /// Ports of this machine; 0 for one that the kernel chooses.
    pub bind: BTreeSet<u16>,
}

/// Something that settings need, and rules do not permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needed {
    /// To read: a file, or a folder with everything in it.
    Read(PathBuf),
    /// To write and make files in.
    Write(PathBuf),
    /// To connect to, over TCP.
    Port(u16),
}

impl std::fmt::Display for Needed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read(path) => write!(f, "to read {}", path.display()),
            Self::Write(path) => write!(f, "to write in {}", path.display()),
            Self::Port(port) => write!(f, "to connect to port {port}"),
        }
    }
}

impl Rules {
    /// Returns what a daemon with these settings needs. `is_root`: the process keeps the rights of root.
    pub fn of(settings: &Settings, source: Option<&Path>, is_root: bool) -> Self {
        let mut rules = Self::default();
        let system: &[&str] = if is_root { &SYSTEM_OF_ROOT } else { &SYSTEM };
        for path in system.iter().chain(&KERNEL) {
            rules.read.insert(path.into());
        }
        // Where it is a link, the file is replaced in the folder of a program that knows the network.
        let servers = Path::new("/etc/resolv.conf").canonicalize().unwrap_or_default();
        rules.read.extend(servers.parent().filter(|folder| folder.starts_with("/run")).map(Path::to_owned));
        rules.written(settings);
        rules.certificates(settings, source);
        rules.maps(settings);
        rules.ports(settings);
        if settings.acme.is_used() {
            rules.connect.insert(settings.acme.directory.server.port);
        }
        for path in &settings.process.extra_paths {
            rules.write.insert(path.clone());
        }
        rules.connect.extend(&settings.process.extra_ports);
        rules
    }

    fn written(&mut self, s: &Settings) {
        self.write.insert(s.data_dir.clone());
        for spool in s.spools() {
            // Of a pattern, the folder of the queue directories.
            let is_pattern = spool.path.to_string_lossy().contains('*');
            let place = if is_pattern { folder(&spool.path) } else { spool.path };
            self.write.extend(links_in(&place));
            self.write.insert(place);
            self.write.extend(spool.content_path);
        }
        let logs = [&s.log.file, &s.log.postfix_file].into_iter().flatten();
        // A socket is removed at the end.
        let sockets = [&s.control.socket, &s.control.submit_socket].into_iter();
        let listeners = s.listen.iter().filter_map(|listen| match &listen.address {
            config::ListenAt::Unix { path, .. } => Some(path),
            _ => None,
        });
        let metrics = s.metrics.listen.iter().filter_map(|address| match address {
            config::ListenAddress::Unix(path) => Some(path),
            _ => None,
        });
        let files = s.addresses.files.iter();
        let sockets = sockets.chain(listeners).chain(metrics);
        self.write.extend(logs.chain(sockets).chain(files).map(|path| folder(path)));
        self.write.insert(s.control.maildrop.clone());
        if s.history.enabled {
            self.write.insert(s.history.path.clone());
        }
        let own = s.routes.iter().filter(|route| route.deliver_as.is_none());
        let templates = own.filter_map(|route| match &route.target {
            Target::Maildir(template) | Target::Mbox(template) => Some(template),
            _ => None,
        });
        for template in templates.chain([&s.local.maildir]) {
            self.write.insert(fixed_folder(template.as_str()));
        }
    }

    fn certificates(&mut self, s: &Settings, source: Option<&Path>) {
        let tls = &s.tls;
        let pairs = [&tls.certificate, &tls.key, &tls.next_hop_certificate, &tls.next_hop_key];
        pairs.into_iter().flatten().for_each(|file| self.readable(file));
        [&tls.ca_file, &tls.client_ca_file].into_iter().flatten().for_each(|file| self.readable(file));
        s.certificates.iter().flat_map(|one| [&one.chain, &one.key]).for_each(|file| self.readable(file));
        s.sign.iter().filter_map(config::Sign::file).for_each(|file| self.readable(file));
        s.routes.iter().filter_map(|route| route.login.as_ref()).for_each(|login| self.secret(&login.secret));
        s.oauth.client_secret.iter().for_each(|secret| self.secret(secret));
        s.oauth.ca_file.iter().for_each(|file| self.readable(file));
        for hook in s.hooks() {
            hook.secret.iter().for_each(|secret| self.secret(secret));
            hook.ca_file.iter().for_each(|file| self.readable(file));
        }
        self.read.extend(s.notifications.templates.clone());
        // With its folder, and so with conf.d in it.
        source.into_iter().for_each(|file| self.readable(file));
        if let Some(UserStore::Passwd(file)) = &s.auth.users {
            self.readable(file);
        }
    }

    fn secret(&mut self, secret: &SecretSource) {
        self.secret_place(&secret.place());
    }

    fn secret_place(&mut self, place: &SecretPlace) {
        if let SecretPlace::File(path) = place {
            self.readable(path);
        }
    }

    fn trust(&mut self, trust: &Trust) {
        trust.secret.iter().for_each(|place| self.secret_place(place));
        trust.ca_file.iter().for_each(|file| self.readable(file));
    }

    fn maps(&mut self, s: &Settings) {
        for (_, reference) in s.map_references() {
            let Reference::File(kind, file) = reference else { continue };
            self.readable(file);
            if *kind == Kind::Aliases {
                included_lists(file).iter().for_each(|list| self.readable(list));
            }
        }
        for map in &s.maps {
            map.source.trust().into_iter().for_each(|trust| self.trust(trust));
            match &map.source {
                // SQLite has files of its own next to the database.
                Source::Sqlite { file, .. } => {
                    self.write.insert(folder(file));
                }
                Source::Socketmap { server, .. } | Source::Redis { server, .. } => self.server(server),
                Source::Ldap(ldap) => self.server(&ldap.server.server),
                Source::Postgres { connection, .. } => self.connect.extend(postgres_ports(connection)),
                Source::MySql { connection, .. } => {
                    self.connect.insert(ports_of_url(connection).next().unwrap_or(MYSQL));
                }
            }
        }
        s.rules.services.iter().for_each(|service| self.server(&service.address));
        for filter in &s.filters {
            match &filter.server {
                FilterServer::Milter(server) | FilterServer::Rspamd(server) => self.server(server),
                FilterServer::Hook(hook) => self.http_server(&hook.url),
            }
        }
    }

    fn http_server(&mut self, url: &HttpUrl) {
        if let HttpServer::Https(host) | HttpServer::Loopback(host) = &url.server {
            self.connect.insert(host.port);
        }
    }

    fn server(&mut self, server: &Server) {
        if let Server::Tcp(host) = server {
            self.connect.insert(host.port);
        }
    }

    fn ports(&mut self, s: &Settings) {
        let name_servers = s.dns.nameservers.iter().map(|server| server.0.port());
        self.connect.extend(name_servers.chain([53, s.delivery.mx_port]));
        // A provider that closes port 25, or a smarthost that fails, is answered by a reload.
        self.connect.extend(MAIL_PORTS);
        for route in &s.routes {
            let host: Option<&HostPort> = match &route.target {
                Target::Smarthost(host) | Target::Lmtp(LmtpServer::Tcp(host)) => Some(host),
                _ => None,
            };
            self.connect.extend(host.into_iter().chain(&route.fallback).map(|host| host.port));
            if !route.next_hop_maps().is_empty() {
                self.connect.insert(LMTP);
            }
            self.connect.extend(route.next_hop_maps().iter().flat_map(mapped_ports));
        }
        s.oauth.introspection.iter().for_each(|url| self.http_server(url));
        // Listeners that a reload adds again, or adds where mail servers have them.
        self.bind
            .extend(s.listen.iter().filter_map(|listen| listen.address.ip()).map(|address| address.port()));
        self.bind.extend(MAIL_PORTS);
        let has_source = s.delivery.source_address.is_some()
            || s.routes.iter().any(|route| route.source_address.is_some());
        if has_source {
            self.bind.insert(0);
        }
    }

    /// Permits the folder of a file, since files are replaced by new ones, and that of the file that a link leads to.
    fn readable(&mut self, file: &Path) {
        for path in [Some(file.to_owned()), file.canonicalize().ok()].into_iter().flatten() {
            let folder = folder(&path);
            self.read.insert(if folder == Path::new("/") { path } else { folder });
        }
    }

    /// Returns what other rules permit and these do not.
    pub fn lacks(&self, other: &Self) -> Vec<Needed> {
        let read = other.read.iter().filter(|path| !permits(&self.read, path) && !permits(&self.write, path));
        let write = other.write.iter().filter(|path| !permits(&self.write, path));
        let ports = other.connect.difference(&self.connect).copied();
        let read = read.cloned().map(Needed::Read);
        read.chain(write.cloned().map(Needed::Write)).chain(ports.map(Needed::Port)).collect()
    }
}

fn permits(paths: &BTreeSet<PathBuf>, path: &Path) -> bool {
    paths.iter().any(|own| path.starts_with(own))
}

fn folder(file: &Path) -> PathBuf {
    file.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("/")).to_owned()
}

/// Returns where the links in a folder lead: queue directories may be on other disks.
fn links_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    links.filter_map(|link| link.path().canonicalize().ok()).collect()
}

/// Returns the folder that the operator named in a template: before the part with the first placeholder, or that of the last part.
pub fn fixed_folder(template: &str) -> PathBuf {
    let fixed = template.split('{').next().unwrap_or_default();
    let fixed = if fixed.len() == template.len() { fixed.trim_end_matches('/') } else { fixed };
    Path::new(&fixed[..fixed.rfind('/').map_or(0, |at| at + 1)]).components().collect()
}

/// Returns the `:include:` files that a file of aliases names, as far as it can be read.
pub fn included_lists(file: &Path) -> Vec<PathBuf> {
    const WORD: &str = ":include:";
    let text = fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let after = text.match_indices(WORD).map(|(at, _)| &text[at + WORD.len()..]);
    let path =
        |rest: &str| rest.split([' ', '\t', '\n', '\r', ',', '"']).next().unwrap_or_default().to_owned();
    after.map(path).filter(|path| path.starts_with('/')).map(PathBuf::from).collect()
}

/// Returns the ports of the next hops that a text map has.
fn mapped_ports(reference: &Reference) -> Vec<u16> {
    let Reference::File(Kind::Text, file) = reference else { return Vec::new() };
    let text = maps::read_text(file).unwrap_or_default();
    let hop = |value: &str| MappedHop::parse(value, |_| false).ok()??.port();
    TextTable::entries(&text).filter_map(|entry| hop(&entry.value)).collect()
}

/// Returns the ports of a connection in the form of libpq: `port=5432,5433`, or `postgresql://host:5433/name`.
fn postgres_ports(connection: &str) -> Vec<u16> {
    let words = connection.split_whitespace().filter_map(|word| word.strip_prefix("port="));
    let listed = words.flat_map(|list| list.trim_matches('\'').split(','));
    let ports: Vec<u16> =
        listed.filter_map(|port| port.parse().ok()).chain(ports_of_url(connection)).collect();
    if ports.is_empty() { vec![POSTGRES] } else { ports }
}

/// Returns the ports that a URL names: `postgresql://user@host:5433,other:5434/name`.
fn ports_of_url(url: &str) -> impl Iterator<Item = u16> {
    let hosts = url.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?']).next().unwrap_or(""));
    let hosts = hosts.rsplit('@').next().unwrap_or_default().split(',');
    hosts.filter_map(|host| host.rsplit_once(':').and_then(|(_, port)| port.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Rules {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("postrider.toml");
        fs::write(&file, format!("hostname = \"mx.test\"\ndata_dir = \"/srv/mail\"\n{text}")).unwrap();
        Rules::of(&config::load(Some(&file)).unwrap(), Some(Path::new("/opt/postrider/main.toml")), false)
    }

    #[test]
    fn what_the_configuration_names_is_permitted_and_nothing_else() {
        let rules = rules(
            "[log]\nfile = \"/var/log/a.json\"\n[history]\npath = \"/srv/past\"\n\
             [[route]]\ndomains = [\"a.test\"]\nmaildir = \"/srv/boxes/{domain}/{local}\"\n\
             [[route]]\ndomains = [\"b.test\"]\nsmarthost = \"192.0.2.1:2626\"\nfallback = [\"192.0.2.2:2727\"]\n",
        );
        for path in ["/srv/mail", "/var/log", "/srv/boxes", "/srv/past"] {
            assert!(rules.write.contains(Path::new(path)), "{path}: {rules:?}");
        }
        assert!(rules.read.contains(Path::new("/opt/postrider")), "{rules:?}");
        assert!(!permits(&rules.write, Path::new("/srv")) && !permits(&rules.write, Path::new("/etc")));
        assert_eq!(rules.connect, BTreeSet::from([25, 53, 465, 587, 2525, 2626, 2727]));
        assert_eq!(rules.bind, BTreeSet::from(MAIL_PORTS));
    }

    #[test]
    fn a_reload_that_needs_more_is_noticed() {
        let before = rules("");
        assert_eq!(before.lacks(&before), []);
        let after = rules(
            "[[route]]\ndomains = [\"a.test\"]\nmbox = \"/srv/other/{local}\"\n\
             [[route]]\ndomains = [\"b.test\"]\nsmarthost = \"192.0.2.1:2626\"\n",
        );
        assert_eq!(before.lacks(&after), [Needed::Write("/srv/other".into()), Needed::Port(2626)]);
        for port in MAIL_PORTS {
            let relay = rules(&format!("[[route]]\ndomains = [\"*\"]\nsmarthost = \"192.0.2.1:{port}\"\n"));
            assert_eq!(before.lacks(&relay), [], "a smarthost is reached without a restart");
        }
        // A folder below a permitted one needs nothing.
        let below = rules("[[route]]\ndomains = [\"a.test\"]\nmbox = \"/srv/mail/more/{local}\"\n");
        assert_eq!(before.lacks(&below), []);
    }

    #[test]
    fn queue_directories_may_be_links_to_other_disks() {
        let (spool, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(disk.path(), spool.path().join("q01")).unwrap();
        fs::create_dir(spool.path().join("q00")).unwrap();
        assert_eq!(links_in(spool.path()), [disk.path().canonicalize().unwrap()]);
        assert!(links_in(Path::new("/does/not/exist")).is_empty());
    }

    #[test]
    fn ports_of_databases_are_found_in_each_form() {
        for (connection, ports) in [
            ("host=db.test user=a", vec![5432]),
            ("host=a,b port=5433,5434", vec![5433, 5434]),
            ("postgresql://a@db.test:6000/x", vec![6000]),
        ] {
            assert_eq!(postgres_ports(connection), ports, "{connection}");
        }
        assert_eq!(ports_of_url("mysql://a@[2001:db8::1]:3307/x?y=z:1").collect::<Vec<_>>(), [3307]);
        assert_eq!(ports_of_url("mysql://a@[2001:db8::1]/x").next(), None);
    }

    #[test]
    fn lists_of_aliases_are_readable() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("aliases");
        fs::write(&file, "a: :include:/srv/lists/a, joe\nb: \":include:/srv/b\"\n").unwrap();
        assert_eq!(included_lists(&file), [PathBuf::from("/srv/lists/a"), PathBuf::from("/srv/b")]);
    }

    #[test]
    fn the_operators_part_of_a_template_ends_before_the_first_placeholder() {
        for (template, folder) in [
            ("/m/{domain}/{local}", "/m"),
            ("/m/box-{local}/x", "/m"),
            ("/m/shared/box/", "/m/shared"),
            ("/m/shared", "/m"),
        ] {
            assert_eq!(fixed_folder(template), Path::new(folder), "{template}");
        }
    }
}
