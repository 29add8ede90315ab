//! Files that are right: what they mean, and that what is shown reads back the same.

use config::{DomainPattern, ListenTls, Origin, Problem, Purpose, QueueGroup, RouteTls, Target};
use std::{fs, path::Path, time::Duration};

fn loaded(dir: &Path, text: &str) -> config::Loaded {
    let path = dir.join("postrider.toml");
    fs::write(&path, text).unwrap();
    config::load_with_origins(Some(&path), Purpose::Serve).unwrap_or_else(|problems| panic!("{problems}"))
}

/// A certificate and its key in these files.
fn certify(dir: &Path, certificate: &str, key: &str) {
    let made = rcgen::generate_simple_self_signed(["mx.example.com".to_owned()]).unwrap();
    fs::write(dir.join(certificate), made.cert.pem()).unwrap();
    fs::write(dir.join(key), made.signing_key.serialize_pem()).unwrap();
}

/// Every key set to something that is not its default.
const FULL: &str = include_str!("golden/full.toml");

fn full(dir: &Path) -> config::Loaded {
    certify(dir, "cert.pem", "key.pem");
    fs::copy(dir.join("cert.pem"), dir.join("ca.pem")).unwrap();
    fs::write(dir.join("users"), "jane:{PLAIN}secret\n").unwrap();
    for name in ["isp.secret", "base.secret", "tables.secret", "cache.secret", "people.secret"] {
        fs::write(dir.join(name), "secret\n").unwrap();
    }
    fs::write(dir.join("acme-key"), "c2VjcmV0\n").unwrap();
    let dkim = authn::SigningKey::generate(authn::Algorithm::Ed25519Sha256).unwrap();
    fs::write(dir.join("dkim.pem"), dkim).unwrap();
    fs::write(dir.join("senders"), "jane sales@full.test\n").unwrap();
    fs::write(dir.join("partners"), "198.51.0.0/16 yes\n").unwrap();
    fs::create_dir(dir.join("templates")).unwrap();
    loaded(dir, FULL)
}

#[test]
fn the_embedded_default_serves_loopback_and_this_machine() {
    let s = config::load(None).unwrap();
    assert_eq!(s.listen.len(), 1);
    assert_eq!(
        (s.listen[0].address.to_string().as_str(), s.listen[0].tls),
        ("127.0.0.1:2525", ListenTls::StartTls)
    );
    assert!(s.data_dir.is_absolute() && s.data_dir.ends_with("postrider-data"));
    assert!(s.local.maildir.as_str().ends_with("postrider-data/mail/{local}"));
    assert!(s.is_local("localhost") && s.is_local(&s.hostname) && !s.is_local("example.com"));
    for (client, may) in
        [("127.9.9.9", true), ("::1", true), ("::ffff:127.0.0.1", true), ("192.0.2.1", false)]
    {
        assert_eq!(s.may_relay(client.parse().unwrap()), may, "{client}");
    }
    assert!(s.routes.is_empty());
}

#[test]
fn the_limits_left_out_are_those_of_the_protocol_crate() {
    assert_eq!(config::load(None).unwrap().limits, smtp::Limits::default());
}

#[test]
fn the_keys_benchmarks_write_are_understood() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().display();
    let text = format!(
        "hostname = \"postrider.test\"\ndata_dir = \"{root}/data\"\n\n[[listen]]\naddress = \"127.0.0.1:2529\"\n\n\
         [relay]\nnetworks = [\"127.0.0.0/8\"]\n\n[[route]]\ndomains = [\"*\"]\nsmarthost = \"127.0.0.1:2600\"\n\
         tls = \"off\"\n\n[delivery]\nconnections_per_destination = 50\n\n[log]\nfile = \"{root}/mail.log\"\n"
    );
    let s = loaded(dir.path(), &text).settings;
    assert_eq!(s.hostname, "postrider.test");
    assert_eq!(s.listen[0].address.ip().unwrap().port(), 2529);
    assert_eq!(s.delivery.connections_per_destination, 50);
    assert_eq!(s.log.file.as_deref(), Some(&*dir.path().join("mail.log")));
    let (number, route) = s.route("localhost").unwrap();
    assert_eq!((number, route.tls, &route.domains[..]), (0, RouteTls::Off, &[DomainPattern::Any][..]));
    assert!(matches!(&route.target, Target::Smarthost(host) if host.to_string() == "127.0.0.1:2600"));
}

#[test]
fn the_first_route_that_matches_decides() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[[route]]\ndomains = [\"a.test\", \"*.a.test\"]\nmx = true\n\
                [[route]]\ndomains = [\"*.test\"]\ndiscard = true\n";
    let s = loaded(dir.path(), text).settings;
    let number = |domain| s.route(domain).map(|(number, _)| number);
    assert_eq!(number("a.test"), Some(0));
    assert_eq!(number("x.y.a.test"), Some(0));
    assert_eq!(number("b.test"), Some(1));
    assert_eq!(number("example.com"), None);
}

#[test]
fn a_file_for_local_mail_comes_before_a_route_for_all_domains_and_after_one_for_the_domain() {
    let dir = tempfile::tempdir().unwrap();
    let text = "hostname = \"mx.test\"\n[local]\nmbox = \"/var/mail/{local}\"\nuser = \"{local}\"\n\
                [[route]]\ndomains = [\"localhost\"]\ndiscard = true\n[[route]]\ndomains = [\"*\"]\nmx = true\n";
    let s = loaded(dir.path(), text).settings;
    let target = |domain| &s.route(domain).unwrap().1.target;
    assert!(matches!(target("mx.test"), Target::Mbox(file) if file.as_str() == "/var/mail/{local}"));
    assert!(matches!(target("localhost"), Target::Discard) && matches!(target("far.test"), Target::Mx));
    let numbers: Vec<_> = s.routes.iter().map(|route| route.number).collect();
    assert_eq!(numbers, [Some(0), None, Some(1)]);
    for (keys, what) in [
        ("user = \"{local}\"", "`user` has no effect without `mbox`"),
        ("mbox = \"/m/{local}\"\ngroup = \"mail\"", "`group` has no effect without `user`"),
    ] {
        let problems = config::load_text(&format!("[local]\n{keys}\n")).unwrap_err().to_string();
        assert!(problems.contains(what), "{problems}");
    }
}

#[test]
fn no_listener_is_added_to_those_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let s =
        loaded(dir.path(), "[[listen]]\naddress = \"127.0.0.1:0\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n")
            .settings;
    assert_eq!(s.listen.len(), 2);
    assert_eq!(
        loaded(dir.path(), "hostname = \"mx.test\"\n").settings.listen[0].address.ip().unwrap().port(),
        2525
    );
}

#[test]
fn relative_paths_start_at_the_files_folder() {
    let dir = tempfile::tempdir().unwrap();
    let s = loaded(dir.path(), "data_dir = \"data\"\n[log]\nfile = \"mail.log\"\n").settings;
    assert_eq!(s.data_dir, dir.path().join("data"));
    assert_eq!(s.log.file, Some(dir.path().join("mail.log")));
    assert_eq!(s.control.socket, dir.path().join("data/control.sock"));
}

#[test]
fn what_is_shown_reads_back_to_the_same_settings() {
    let dir = tempfile::tempdir().unwrap();
    let full = full(dir.path());
    assert_eq!(loaded(dir.path(), &full.as_toml()).settings, full.settings);
    let default = config::load_with_origins(None, Purpose::Serve).unwrap();
    assert_eq!(loaded(dir.path(), &default.as_toml()).settings, default.settings);
}

#[test]
fn every_key_is_documented_and_can_be_set() {
    let dir = tempfile::tempdir().unwrap();
    let full = full(dir.path());
    let default = config::load_with_origins(None, Purpose::Serve).unwrap();
    for section in config::schema() {
        assert!(!section.about.trim().is_empty(), "[{}]", section.name);
        for key in section.keys {
            assert!(key.about.trim().ends_with('.'), "{}.{}: {:?}", section.name, key.name, key.about);
            let is_it = |path: &str| {
                let (of, name) = path.rsplit_once('.').unwrap_or(("", path));
                of.split(['[', '.']).next() == Some(section.name) && name == key.name
            };
            let set = full.effective.iter().find(|e| is_it(&e.path) && e.origin != Origin::Default);
            let set = set.unwrap_or_else(|| panic!("full.toml does not set {}.{}", section.name, key.name));
            let left = default
                .effective
                .iter()
                .find(|e| is_it(&e.path) && section.name != "route" && !section.named);
            assert_ne!(
                left.map(|e| &e.value),
                Some(&set.value),
                "full.toml sets {} to its default",
                set.path
            );
        }
    }
}

#[test]
fn a_group_with_one_key_of_a_spool_has_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let s = loaded(
        dir.path(),
        "data_dir = \"/d\"\n[spool]\nmin_free = \"1GiB\"\n\
         [[queue_group]]\nname = \"slow\"\ndomains = [\"slow.test\"]\n\
         [[queue_group]]\nname = \"bulk\"\ndomains = [\"bulk.test\"]\nbackend = \"queue-dirs\"\n\
         [[queue_group]]\nname = \"far\"\ndomains = [\"far.test\"]\npath = \"/e/far\"\n",
    )
    .settings;
    let spools = s.spools();
    let paths: Vec<_> = spools.iter().map(|spool| spool.path.to_str().unwrap()).collect();
    assert_eq!(paths, ["/d/spool", "/d/spool-bulk", "/e/far"]);
    assert_eq!(
        spools.iter().map(|spool| spool.backend.as_str()).collect::<Vec<_>>(),
        ["log", "queue-dirs", "log"]
    );
    assert!(spools.iter().all(|spool| spool.min_free == s.spool.min_free && spool.directories == 1));
    let of = |domain| s.spool_of(QueueGroup::find(&s.queue_groups, domain, None));
    assert_eq!(["else.test", "slow.test", "bulk.test", "far.test"].map(of), [0, 0, 1, 2]);
}

#[test]
fn every_default_is_a_valid_value() {
    // Reading the embedded default reads each default; routes have theirs only beside a route.
    let dir = tempfile::tempdir().unwrap();
    let s = loaded(
        dir.path(),
        "[[route]]\ndomains = [\"a\"]\nmx = true\n[[listen]]\naddress = \"127.0.0.1:1\"\n",
    );
    assert_eq!(s.settings.routes[0].tls, RouteTls::May);
}

#[test]
fn values_name_the_line_they_come_from() {
    let dir = tempfile::tempdir().unwrap();
    let loaded = loaded(dir.path(), "hostname = \"mx.test\"\n\n[queue]\nexpire = \"3d\"\n");
    let origin = |path: &str| loaded.effective.iter().find(|e| e.path == path).unwrap().origin.clone();
    assert!(matches!(origin("hostname"), Origin::File { line: 1, .. }));
    assert!(matches!(origin("queue.expire"), Origin::File { line: 4, .. }));
    assert_eq!(origin("queue.retry_min"), Origin::Default);
    assert_eq!(loaded.settings.queue.expire, Duration::from_secs(3 * 86_400));
    assert!(loaded.as_toml().contains("postrider.toml:4\n"));
}

#[test]
fn a_folder_with_quotes_and_spaces_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let s = loaded(dir.path(), "data_dir = 'a \"b\\ c'\n").settings;
    assert_eq!(s.spool.path, dir.path().join("a \"b\\ c/spool"));
    let path = dir.path().join("braces.toml");
    fs::write(&path, "data_dir = \"/tmp/{local}\"\n").unwrap();
    assert!(config::load(Some(&path)).unwrap_err().to_string().contains("cannot be part of other paths"));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_reading_panic(text in "(\\[?\\[[a-z]{1,7}\\]?\\]?\n|[a-z_]{1,9} = (\"[ -~é]{0,9}\"|[0-9-]{1,21}|\\[\"[a-z.*:/0-9]{0,9}\"\\]|true)\n){0,9}") {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        fs::write(&path, text).unwrap();
        if let Err(problems) = config::load(Some(&path)) {
            proptest::prop_assert!(!problems.list().is_empty() && !problems.to_string().is_empty());
        }
    }
}

#[test]
fn every_task_in_the_manual_is_a_valid_file() {
    let tasks = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/tasks");
    for task in fs::read_dir(tasks).unwrap() {
        let dir = tempfile::tempdir().unwrap();
        // Certificates are read and folders looked for when a file is checked; the paths in it are not of this machine.
        fs::create_dir_all(dir.path().join("log/postrider")).unwrap();
        let text = fs::read_to_string(task.unwrap().path()).unwrap();
        let text =
            text.replace("/etc/postrider/", "").replace("/var/", &format!("{}/", dir.path().display()));
        certify(dir.path(), "mx.example.com.pem", "mx.example.com.key");
        loaded(dir.path(), &text);
    }
}

/// The folders of docs/guides. Neither the package's user and folders nor the certificates are on this machine.
#[test]
fn every_set_up_of_the_guides_is_a_valid_file() {
    let set_ups = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let set_ups: Vec<_> = fs::read_dir(set_ups).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(set_ups.len() >= 5, "{set_ups:?}");
    for set_up in set_ups {
        let dir = tempfile::tempdir().unwrap();
        for file in fs::read_dir(&set_up).unwrap().map(Result::unwrap) {
            fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
        }
        for folder in ["log/postrider", "lib/postrider", "mail"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        certify(dir.path(), "fullchain.pem", "privkey.pem");
        fs::copy(dir.path().join("fullchain.pem"), dir.path().join("ldap-ca.pem")).unwrap();
        for name in ["mysql.secret", "ldap.secret", "hook.secret", "dkim-keys", "domains"] {
            fs::write(dir.path().join(name), "example.com x\n").unwrap();
        }
        let text = fs::read_to_string(set_up.join("postrider.toml")).unwrap();
        let mut text = text.replace("/etc/aliases", "aliases").replace("/etc/postrider/", "");
        for host in ["mx.example.com", "mx.example.edu"] {
            text = text.replace(&format!("/etc/letsencrypt/live/{host}/"), "");
        }
        let text = text.replace("user = \"postrider\"", "user = \"nobody\"");
        loaded(dir.path(), &text.replace("/var/", &format!("{}/", dir.path().display())));
    }
}

/// Pages with examples of other files in TOML: scenarios of Postlab, rows of tables.
const OTHER_TOML: [&str; 2] = ["docs/postlab.md", "docs/seeds.md"];

/// Returns every Markdown file below a folder.
fn pages(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let own = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "md"));
    own.chain(folders.iter().flat_map(|folder| pages(folder))).collect()
}

/// The examples of a page, with the line of each.
fn examples(document: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in document.lines().enumerate() {
        match &mut open {
            Some((_, text)) if line.trim_start().starts_with("```") => {
                text.push('\n');
                found.extend(open.take());
            }
            Some((_, text)) => *text += &format!("{}\n", line.trim_start()),
            None if line.trim() == "```toml" => open = Some((number + 2, String::new())),
            None => {}
        }
    }
    found
}

#[test]
fn every_example_in_the_documents_is_a_valid_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut count, mut faults) = (0, Vec::new());
    for page in pages(&root.join("docs")).into_iter().chain([root.join("README.md")]) {
        let name = page.strip_prefix(&root).unwrap().display().to_string();
        if OTHER_TOML.contains(&name.as_str()) {
            continue;
        }
        for (line, example) in examples(&fs::read_to_string(&page).unwrap()) {
            count += 1;
            let has_name = example.lines().any(|line| line.starts_with("hostname"));
            let example =
                if has_name { example } else { format!("hostname = \"mx.example.com\"\n{example}") };
            let Err(problems) = config::load_text(&example) else { continue };
            // Certificates and users of the reader's machine.
            let is_of_machine = |problem: &Problem| {
                problem.label == "cannot be read" || problem.label.starts_with("there is no user ")
            };
            if !problems.list().iter().all(is_of_machine) {
                faults.push(format!("{name}:{line}:\n{}", problems.render(false)));
            }
        }
    }
    assert!(count >= 80, "{count} examples");
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// The sections and the addresses of the listeners in the examples of a document.
fn listeners(document: &str) -> Vec<(String, String)> {
    let examples = document.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let sections = examples.flat_map(|example| example.split("[[listen]]\n").skip(1));
    let address = |section: &str| {
        let line = section.lines().find_map(|line| line.strip_prefix("address = "))?;
        Some((section.split("\n\n").next()?.to_owned(), line.trim_matches('"').to_owned()))
    };
    sections.filter_map(address).collect()
}

#[test]
fn every_listener_in_the_documents_works_with_the_units_of_the_package() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let units = fs::read_dir(root.join("dist")).unwrap().map(|entry| entry.unwrap().path());
    let sockets = units.filter(|path| path.extension().is_some_and(|extension| extension == "socket"));
    let name = |path| {
        let unit = fs::read_to_string(path).unwrap();
        unit.lines().find_map(|line| line.strip_prefix("FileDescriptorName=").map(str::to_owned)).unwrap()
    };
    let sockets: Vec<String> = sockets.map(name).collect();
    let mut count = 0;
    for name in
        ["addresses", "configuration", "extensions", "from-postfix", "install", "rules", "submission", "tls"]
    {
        let document = fs::read_to_string(root.join(format!("docs/{name}.md"))).unwrap();
        for (section, address) in listeners(&document) {
            count += 1;
            let is_open = match address.split_once(':') {
                Some(("systemd", socket)) => sockets.iter().any(|known| known == socket),
                Some(("unix", _)) => true,
                // The unit gives no right to open a port of the system.
                _ => address
                    .rsplit(':')
                    .next()
                    .and_then(|port| port.parse().ok())
                    .is_some_and(|port: u16| port >= 1024),
            };
            assert!(is_open, "docs/{name}.md: {address}");
            let auth = "[auth]\nusers = \"dovecot:/run/dovecot/auth-client\"";
            let text = format!("hostname = \"mx.example.com\"\n[[listen]]\n{section}\n{auth}\n");
            if let Err(problems) = config::load_text(&text) {
                panic!("docs/{name}.md: {}", problems.render(false));
            }
        }
    }
    assert!(count >= 12, "{count} listeners");
}

#[test]
fn rules_that_a_temporary_rule_hides_are_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let rest = "[[rule]]\nfrom = [\"a.test\"]\nreject = true\n[checks]\nhello = \"enforce\"\n";
    for verdict in ["defer = true", "hold = true", "reject = true\ntemporary = true"] {
        let loaded = loaded(dir.path(), &format!("hostname = \"mx.test\"\n[[rule]]\n{verdict}\n{rest}"));
        let warnings = &loaded.settings.rules.warnings;
        assert_eq!(
            warnings[0],
            format!(
                "rule 2, line {} is not reached while rule 1, line 2 is there: remove that rule when its time is over",
                3 + verdict.lines().count()
            )
        );
        assert!(
            warnings[1].starts_with("the check `checks.hello` is not reached while rule 1"),
            "{warnings:?}"
        );
    }
}
