//! The problems of a file as an operator reads them. The golden text refreshes with `BLESS=1`.

use config::Purpose;
use std::{fs, path::Path};

/// Problems of a file with this text, the folder's name replaced by `DIR`.
fn problems(text: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("postrider.toml");
    fs::write(&path, text).unwrap();
    match config::load(Some(&path)) {
        Ok(settings) => panic!("was taken: {settings:?}"),
        Err(problems) => problems.to_string().replace(&*dir.path().to_string_lossy(), "DIR"),
    }
}

fn golden(name: &str, got: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, got).unwrap();
    }
    let want = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(got, want, "{name}: run with BLESS=1 when the new text is right");
}

#[test]
fn a_route_has_keys_that_fit_its_target() {
    let route = |keys: &str| {
        problems(&format!("hostname = \"mx.test\"\n[[route]]\ndomains = [\"b.test\"]\n{keys}\n"))
    };
    let all = [
        route("smarthost = \"isp.test:465\"\ntls = \"verify\""),
        route("mx = true\ntls = \"implicit\"\nretry = [\"5m\"]\nretry_max = \"1h\""),
        route("maildir = \"/m/{local}\"\nfallback = [\"isp.test:25\"]\nverify = true\nlifetime = 0"),
        route("smarthost = \"isp.test:25\"\nretry_min = \"2h\"\nretry_max = \"1h\""),
        route("smarthost = \"isp.test:25\"\nfallback = [\"192.0.2.1:25\", \"127.0.0.1:2525\"]"),
        route("pipe = [\"prog\", \"--to={recipient}\", \"{what}\", 5]"),
        route("pipe = { argv = [], user = \"nobody at all\", shell = true }"),
        route("pipe = \"/bin/prog joe\"\ntls = \"off\""),
        route("reject = \"450 4.7.1 later\""),
        route("reject = \"550 no status\"\nhold = true"),
    ];
    golden("routes.txt", &all.join("\n"));
}

#[test]
fn a_socket_has_the_keys_of_a_socket() {
    let listen = |keys: &str| problems(&format!("hostname = \"mx.test\"\n[[listen]]\n{keys}\n"));
    let all = [
        listen("address = \"unix:\""),
        listen("address = \"systemd:\""),
        listen("address = \"unix:/etc/passwd\""),
        listen("address = \"unix:/run/s\"\nmode = \"888\"\nowner = \"nobody at all\"\ngroup = \"nor this\""),
        listen("address = \"unix:/run/s\"\ntls = \"starttls\"\nproxy = [\"192.0.2.1\"]"),
        listen("address = \"unix:/run/s\"\nkind = \"submissions\"\n[auth]\nusers = \"dovecot:/run/d\""),
        listen("address = \"unix:/run/s\"\nkind = \"relay\"\n[[listen]]\naddress = \"unix:/run/s\""),
        listen("address = \"127.0.0.1:2525\"\nmode = \"0666\""),
        listen(&format!("address = \"unix:/run/{}\"", "s".repeat(102))),
    ];
    golden("listeners.txt", &all.join("\n"));
}

#[test]
fn the_null_reverse_path_is_no_recipient() {
    for text in [
        "[[route]]\nrecipients = [\"<>\", \"a@b.test\"]\nsmarthost = \"isp.test:25\"\n",
        "[[rule]]\nto = [\"<>\"]\nreject = true\n",
        "[[rule]]\nunless = { to = [\"a@b.test\", \"<>\"] }\nreject = true\n",
    ] {
        let said = problems(&format!("hostname = \"mx.test\"\n{text}"));
        assert!(
            said.contains("no recipient has the address `<>`") && said.contains("postrider.toml:"),
            "{said}"
        );
    }
}

#[test]
fn a_place_has_the_word_of_its_section() {
    for (section, key) in [("spool", "directory"), ("history", "dir"), ("history", "folder")] {
        let said = problems(&format!("hostname = \"mx.test\"\n[{section}]\n{key} = \"/x\"\n"));
        assert!(said.contains("did you mean `path`?"), "{said}");
    }
}

#[test]
fn a_listener_takes_messages_of_a_useful_size() {
    let text =
        "hostname = \"mx.test\"\n[[listen]]\naddress = \"127.0.0.1:2525\"\nmax_message_size = \"1KiB\"\n";
    let said = problems(text);
    assert!(said.contains("postrider.toml:4:") && said.contains("write 64KiB or more"), "{said}");
}

#[test]
fn every_kind_of_problem_is_shown_with_its_place_and_what_would_be_right() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/wrong.toml")).unwrap();
    golden("wrong.txt", &problems(&text));
}

#[test]
fn logins_that_cannot_work_are_shown() {
    let listen =
        "hostname = \"mx.test\"\n[[listen]]\naddress = \"127.0.0.1\"\nkind = \"submission\"\ntls = \"off\"\n";
    let no_users = problems(listen);
    let wrong = "[auth]\nusers = \"users\"\nmechanisms = [\"cram-md5\"]\nmax_failures = 0\n";
    let no_store = problems(&format!("{listen}{wrong}"));
    let no_file = problems("hostname = \"mx.test\"\n[auth]\nusers = \"passwd:users\"\nmechanisms = []\n");
    let no_auth = problems(
        "hostname = \"mx.test\"\n[[listen]]\naddress = \"127.0.0.1\"\nkind = \"submission\"\nauth = false\n",
    );
    let bind = |auth: &str, map: &str| {
        problems(&format!("hostname = \"mx.test\"\n[auth]\nusers = \"bind:people\"\n{auth}{map}"))
    };
    let ldap = "[map.people]\nbase = \"dc=b\"\nattribute = \"uid\"\nfilter = \"(uid={key})\"\nldap = ";
    let directories = [
        bind("", ""),
        bind("mechanisms = [\"plain\", \"scram-sha-256\"]\n", &format!("{ldap}\"ldaps://b.test\"\n")),
        bind("", &format!("{ldap}\"ldap://b.test\"\n")),
        bind("", "[map.people]\nredis = \"127.0.0.1:1\"\n"),
    ];
    let all = [no_users, no_store, no_file, no_auth].into_iter().chain(directories);
    golden("logins.txt", &all.collect::<Vec<_>>().join("\n"));
}

#[test]
fn certificates_and_tokens_that_cannot_work_are_shown() {
    let listen =
        |keys: &str| format!("hostname = \"mx.test\"\n[[listen]]\naddress = \"127.0.0.1:25\"\n{keys}\n");
    let all = [
        listen("client_certificates = \"require\""),
        listen("tls = \"off\"\nclient_certificates = \"ask\""),
        listen("[auth]\nmechanisms = [\"external\", \"xoauth2\", \"plain\"]"),
        listen("[oauth]\nintrospection = \"http://id.test/x\"\nclient_id = \"mx\"\ntimeout = \"1m\""),
        listen("[oauth]\nclient_id = \"mx\"\nclient_secret = \"secret\"\nopenid_configuration = \"id.test\""),
        listen("[oauth]\nclient_id = \"mx\"\nclient_secret = \"file:missing\"\ntimeout = 0"),
        listen("[tls]\nclient_ca_file = \"missing.pem\""),
    ];
    golden("certificates-and-tokens.txt", &all.map(|text| problems(&text)).join("\n"));
}

#[test]
fn certificates_of_acme_that_cannot_be_obtained_are_shown() {
    let acme = |keys: &str| format!("hostname = \"mx.test\"\n[acme]\n{keys}\n");
    let named = |keys: &str| acme(&format!("names = [\"mx.test\"]\nagree_to_terms = true\n{keys}"));
    let all = [
        acme("contact = \"me@mx.test\""),
        acme("names = [\"mx.test\"]"),
        acme("names = [\"mx\", \"a b\"]\nagree_to_terms = true\ndirectory = \"http://acme.test/dir\""),
        acme("names = [\"*.mx.test\"]\nagree_to_terms = true"),
        named("challenge = \"dns\""),
        named("challenge = \"dns-01\""),
        named("hook = [\"/bin/true\"]"),
        named("listen = \"unix:acme.sock\"\nca_file = \"missing.pem\""),
        named("listen = \"127.0.0.1:25\"\n[[listen]]\naddress = \"0.0.0.0:25\""),
        named("[[listen]]\naddress = \"[::]:80\""),
        named(
            "listen = \"127.0.0.1:9125\"\n[metrics]\nlisten = \"127.0.0.1:9125\"\n[[listen]]\naddress = \"[::1]:9125\"",
        ),
        named("challenge = \"dns-01\"\nhook = { argv = [\"/bin/true\"], user = \"nosuchuser\" }"),
        named("external_account = \"kid\""),
        named("external_account = \"kid\"\nexternal_key = \"file:missing\""),
    ];
    golden("acme.txt", &all.map(|text| problems(&text)).join("\n"));
}

#[test]
fn a_file_of_users_is_checked_with_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("postrider.toml");
    let check = |users: &str, mechanisms: &str| {
        fs::write(dir.path().join("users"), users).unwrap();
        let auth = format!(
            "hostname = \"mx.test\"\n[auth]\nusers = \"passwd:users\"\nmechanisms = [{mechanisms}]\n"
        );
        fs::write(&path, auth).unwrap();
        config::load(Some(&path)).map(drop).map_err(|problems| problems.to_string())
    };
    assert_eq!(check("jane:{PLAIN}secret\n", "\"scram-sha-1\""), Ok(()));
    let said = check("# users\njane:secret\njoe\n", "\"plain\"").unwrap_err();
    assert!(said.contains("/users:2:6: ") && said.contains("/users:3:1: write USER:PASSWORD"), "{said}");
    assert!(said.contains("postrider.toml:3:9") && !said.contains("secret"), "{said}");
    let digest = "jane:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";
    let said = check(digest, "\"scram-sha-1\"").unwrap_err();
    assert!(said.contains("postrider auth hash --scheme scram-sha-1"), "{said}");
}

#[test]
fn a_broken_line_is_shown_alone() {
    golden("broken.txt", &problems("hostname = \"mx.test\"\n[relay\nnetworks = 3\nx =\n"));
}

#[test]
fn a_key_that_is_set_twice_is_shown() {
    let twice = "hostname = \"a.test\"\nhostname = \"b.test\"\n";
    let sections = "[queue]\nexpire = \"1d\"\n[relay]\n[queue]\norder = \"time\"\n";
    golden("twice.txt", &format!("{}\n{}", problems(twice), problems(sections)));
}

#[test]
fn a_key_in_another_section_is_told_where_it_belongs() {
    let text = "max_sessions = 5\n[relay]\nhostname = \"mx.test\"\n[delivery]\nretry_min = \"5m\"\n\
                [limits]\nlisten = []\n";
    golden("astray.txt", &problems(text));
}

#[test]
fn a_former_name_is_told_with_the_new_one() {
    let text = "[reception]\nmax_sessions = 5\ngrace = \"5s\"\n[tls]\nauthorities = \"ca.pem\"\n[limits]\nhops = 5\n\
                [delivery]\nhelo = \"mx.test\"\n[spool]\nengine = \"directories\"\nbackend = \"directories\"\n\
                [[queue_group]]\nname = \"bulk\"\ndomains = [\"bulk.test\"]\nrunners = 3\n[workers]\ncount = 2\n";
    golden("renamed.txt", &problems(text));
}

#[test]
fn a_queue_group_waits_as_sensibly_as_the_queue() {
    let group = |keys: &str| {
        problems(&format!("[[queue_group]]\nname = \"bulk\"\ndomains = [\"bulk.test\"]\n{keys}\n"))
    };
    let all = [
        group("retry_min = 0\nretry_max = 0"),
        group("retry_min = \"2h\""),
        group("retry_max = \"1m\""),
        group("retry_max = \"3h\"\n[queue]\nretry_min = \"4h\"\nretry_max = \"5h\""),
    ];
    golden("waits.txt", &all.join("\n"));
}

#[test]
fn more_workers_than_a_start_could_make_are_refused() {
    golden("workers.txt", &problems("[workers]\nworker_threads = 1025\n"));
}

#[test]
fn an_open_relay_and_a_loop_are_seen() {
    let text = "[relay]\nnetworks = [\"0.0.0.0/0\"]\n[[listen]]\naddress = \"0.0.0.0:25\"\n\
                [[route]]\ndomains = [\"a\"]\nsmarthost = \"192.0.2.1:25\"\n\
                [[route]]\ndomains = [\"*\"]\nsmarthost = \"127.0.0.1:25\"\n";
    golden("dangerous.txt", &problems(text));
}

#[test]
fn peers_that_speak_for_others_are_not_everybody() {
    for key in ["proxy", "xclient"] {
        let with = |networks: &str| {
            let listen = format!("[[listen]]\naddress = \"127.0.0.1:2525\"\n{key} = [{networks}]\n");
            format!("hostname = \"mx.test\"\n{listen}")
        };
        let said = problems(&with("\"0.0.0.0/1\", \"128.0.0.0/1\""));
        assert!(said.contains("makes this an open relay") && said.contains("postrider.toml:4:"), "{said}");
        config::load_text(&with("\"10.0.0.0/8\"")).unwrap();
    }
    let wide =
        "hostname = \"mx.test\"\n[relay]\nnetworks = [\"16.0.0.0/5\", \"24.0.0.0/5\", \"32.0.0.0/5\"]\n";
    assert!(problems(wide).contains("these networks make this an open relay"), "{}", problems(wide));
    let mapped = "hostname = \"mx.test\"\n[relay]\nnetworks = [\"::ffff:0.0.0.0/96\"]\n";
    assert!(problems(mapped).contains("0.0.0.0/0 makes this an open relay"), "{}", problems(mapped));
    let regex = "hostname = \"mx.test\"\n[relay]\nnetworks = [\"regex:x\"]\n";
    assert!(problems(regex).contains("has no networks"), "{}", problems(regex));
}

#[test]
fn a_server_whose_own_mail_leads_nowhere_is_told() {
    let local = "hostname = \"mx.a.test\"\n[local]\ndomains = [\"a.test\"]\n";
    let postmaster = "hostname = \"a.test\"\npostmaster = \"jane@a.test\"\n[local]\nusers = [\"joe\"]\n";
    golden("own_mail.txt", &format!("{}\n{}", problems(local), problems(postmaster)));
    let is_taken = |text: &str| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("postrider.toml");
        fs::write(&path, text).unwrap();
        config::load(Some(&path)).is_ok()
    };
    for route in ["domains = [\"mx.a.test\"]\nmx = true", "domains = [\"*\"]\nsmarthost = \"b.test:25\""] {
        assert!(is_taken(&format!("{local}[[route]]\n{route}\n")), "{route}");
    }
    for (from, to) in [("joe", "Jane"), ("jane@", "postmaster@"), ("jane@a.test", "jane@b.test")] {
        assert!(is_taken(&postmaster.replace(from, to)), "{to}");
    }
    assert!(is_taken(&local.replace("[\"a.test\"]", "[\"a.test\", \"MX.a.test\"]")));
}

#[test]
fn a_map_has_the_keys_of_its_place() {
    let map = |keys: &str| problems(&format!("hostname = \"mx.test\"\n[map.users]\n{keys}\n"));
    let query = "query = \"SELECT a FROM b WHERE c = $1\"\n";
    let ldap = |keys: &str| {
        map(&format!("ldap = \"ldap://127.0.0.1\"\nbase = \"dc=b\"\nattribute = \"mail\"\n{keys}"))
    };
    let all = [
        map("timeout = \"1s\""),
        map("sqlite = \"users.db\"\nredis = \"127.0.0.1:6379\"\nquery = \"SELECT a FROM b WHERE c = ?\""),
        map("sqlite = \"users.db\"\nbind = \"cn=x\"\nremote_name = \"x\""),
        map("sqlite = \"users.db\"\nquery = \"SELECT a FROM b\""),
        map(&format!("postgres = \"host=/run dbname=\"\n{query}")),
        map(&format!("postgres = \"host=/run user=u password=hushhush\"\n{query}")),
        map(&format!("postgres = \"user=u\"\n{query}")),
        map(&format!("postgres = \"host=/run user=u\"\nsecret = \"hushhush\"\n{query}")),
        map("mysql = \"mysql://u:hushhush@db.test/mail\"\nquery = \"SELECT a FROM b WHERE c = ?\""),
        map("mysql = \"db.test:3306\"\nquery = \"SELECT a FROM b WHERE c = '%s'\""),
        map("redis = \"127.0.0.1\"\nkey = \"alias\""),
        map("redis = \"127.0.0.1:1\"\nkey = \"alias\"\nuser = \"joe\""),
        map("redis = \"cache.test:6379\"\nsecret = \"file:absent\""),
        map("redis = \"rediss://unix:/run/s\""),
        map("ldap = \"ldap.test\""),
        map("ldap = \"ldap://ldap.test\""),
        ldap("filter = \"(mail=*)\"\nsecret = \"file:absent\""),
        ldap("filter = \"mail={key})\"\nbind = \"cn=x\""),
    ];
    golden("map-places.txt", &all.join("\n"));
}

#[test]
fn maps_that_cannot_be_are_told_with_their_places() {
    let text = "hostname = \"mx.test\"\n[local]\ndomains = [\"mx.test\", \"hash:/etc/domains\", \"map:Users\"]\n\
                users = [\"joe\", \"aliases:/etc/aliases\"]\n\
                [addresses]\naliases = \"aliases:/etc/aliases\"\nvirtual = [\"virtual\", \"map:a.b\"]\nseparator = \"::\"\n\
                [map.users]\nsocketmap = \"/run/users.sock\"\ntimeout = \"1h\"\n[map.none]\ncache = 5\n\
                [map.\"a b\"]\n[map.slow]\nsocketmap = \"unix:/x\"\ntimeout = \"1h\"\nmax_connections = 0\n";
    golden("maps.txt", &problems(text));
    let domains = |more: &str| {
        problems(&format!(
            "hostname = \"mx.test\"\n[local]\ndomains = [\"mx.test\", \"map:domains\"]\n\
             users = [\"map:user\"]\n[map.domains]\nsocketmap = \"unix:/x\"\n{more}"
        ))
    };
    let routed = domains("[map.user]\nsocketmap = \"unix:/x\"\n");
    golden("map-names.txt", &format!("{}\n{routed}", domains("")));
}

#[test]
fn rules_that_are_never_reached_and_other_slips_are_told() {
    let with = |text: &str| problems(&format!("hostname = \"mx.test\"\n{text}\n"));
    let rule = |keys: &str| format!("[[rule]]\n{keys}\n");
    let all = [
        with(&(rule("trust = true") + &rule("from = [\"a@b.test\"]\nreject = true"))),
        with(&(rule("at = \"mail\"\ntrust = true") + &rule("header = [\"Subject: /x/\"]\nreject = true"))),
        with(&(rule("to = [\"*\"]\naccept = true") + &rule("from = [\"<>\"]\nhold = true"))),
        with(
            &(rule("client = [\"203.0.113.7\"]\nto = [\"a@b.test\"]\ndefer = true")
                + &rule("at = \"connect\"\nclient = [\"203.0.113.0/24\"]\nreject = true")),
        ),
        with(
            &(rule("unless = { tls = true }\ndefer = true")
                + &rule("unless = { tls = true }\nfrom = [\"a@b.test\"]\nreject = true")),
        ),
        with(
            &(rule("tls = true\ndefer = true")
                + &rule("tls = false\nreject = true")
                + &rule("from = [\"a@b.test\"]\nreject = true")),
        ),
        with(
            &(rule("client = [\"10.0.0.0/9\"]\nreject = true")
                + &rule("from = [\"x.test\"]\naccept = true")
                + &rule("client = [\"10.128.0.0/9\", \"192.0.2.0/24\"]\nhold = true")
                + &rule("client = [\"10.0.0.0/8\"]\nfrom = [\"a.test\"]\nreject = true")),
        ),
        with(
            &(rule("from = [\"a.test\"]\nhold = true")
                + &rule("from = [\"b.test\"]\nreject = true")
                + &rule("from = [\"joe@a.test\", \"b.test\"]\naccept = true")),
        ),
        with(
            &(rule("unless = { from = [\"a.test\"] }\nreject = true")
                + &rule("from = [\"b.test\"]\nto = [\"c.test\"]\naccept = true")),
        ),
        with(
            &(rule("header = [\"X-Spam\"]\nreject = true")
                + &rule("header = [\"x-spam: /yes/\"]\nhold = true")),
        ),
        with(
            &("[[listen]]\naddress = \"127.0.0.1:2525\"\nclient_certificates = \"ask\"\n".to_owned()
                + &rule("tls = false\ncertificate = [\"a.test\"]\nreject = true")),
        ),
        with(&(rule("discard = true") + "[checks]\nhello = \"enforce\"")),
        with(
            &(rule("tls = true\ndefer = true")
                + &rule("tls = false\nhold = true")
                + "[checks]\nhello = \"enforce\""),
        ),
        with(&rule("client = [\"127.0.0.1\"]\nreject = true")),
        with(&rule("form = [\"a@b.test\"]\nreject = true")),
        with("[auth]\nusers = \"file:users\""),
        with("[[route]]\ndomains = [\"*\"]\nsenders = [\"a.test\", \"map:none\"]\nmx = true"),
        with("[[route]]\ndomains = [\"a.test\"]\nreject = \"550 5.1.2 {to} closed\""),
        with("[relay]\nnetworks = [\"192.0.2.0/24\", \"cdb:customers\"]"),
    ];
    golden("slips.txt", &all.join("\n"));
    // Rules that are reached.
    for text in [
        rule("for = \"users\"\ntrust = true") + &rule("from = [\"a@b.test\"]\nreject = true"),
        rule("client = [\"192.0.2.1\"]\ntrust = true") + &rule("from = [\"a@b.test\"]\nreject = true"),
        rule("from = [\"*\"]\naccept = true") + &rule("from = [\"<>\"]\nhold = true"),
        rule("for = \"users\"\nclient = [\"127.0.0.1\"]\nreject = true"),
        rule("header = [\"Subject: /x/\"]\ntrust = true") + &rule("from = [\"a@b.test\"]\nreject = true"),
        // An exception at an earlier stage, trust of one recipient, and a tag that is set again.
        rule("at = \"connect\"\nclient = [\"192.0.2.1\"]\naccept = true")
            + &rule("at = \"connect\"\nclient = [\"192.0.2.0/24\"]\nreject = true")
            + &rule("client = [\"192.0.2.1\"]\nfrom = [\"a.test\"]\nreject = true"),
        rule("trust = true") + &rule("header = [\"Subject: /x/\"]\nreject = true"),
        rule("from = [\"a.test\"]\ntag = [\"x\"]")
            + &rule("tagged = [\"x\"]\nreject = true")
            + &rule("from = [\"b.test\"]\ntag = [\"x\"]")
            + &rule("tagged = [\"x\"]\nreject = true"),
        rule("from = [\"joe@a.test\"]\nreject = true") + &rule("from = [\"a.test\"]\naccept = true"),
        rule("client = [\"10.0.0.0/9\"]\nreject = true") + &rule("client = [\"10.0.0.0/8\"]\naccept = true"),
    ] {
        let path = std::env::temp_dir().join(format!("slips-{}.toml", std::process::id()));
        std::fs::write(&path, format!("hostname = \"mx.test\"\n[local]\ndomains = [\"mx.test\"]\n{text}"))
            .unwrap();
        let loaded = config::load(Some(&path));
        std::fs::remove_file(&path).unwrap();
        if let Err(problems) = loaded {
            panic!("{text}: {}", problems.render(false));
        }
    }
}

#[test]
fn all_faults_of_all_templates_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    std::fs::write(dir.path().join("en.txt"), "[failed]\nSubject: {x}\n\n{recipient}\n[reason 5.1]\n{y}\n")
        .unwrap();
    std::fs::write(dir.path().join("de.txt"), "[delayed\n").unwrap();
    let told = problems(&format!(
        "hostname = \"mx.test\"\n[notifications]\nlanguages = [\"en\", \"de\", \"fr\"]\ntemplates = {folder:?}\n"
    ));
    for place in
        ["en.txt:2:10: unknown placeholder {x}", "en.txt:4:1: ", "en.txt:6:1: ", "de.txt:1:1: a section name"]
    {
        assert!(told.contains(&format!("{folder}/{place}")), "{place}: {told}");
    }
    assert!(
        told.contains("5 problems") && told.contains("there are no texts in the language `fr`"),
        "{told}"
    );
}

#[test]
fn a_sender_of_verp_needs_a_domain() {
    let verp = |list: &str| {
        format!(
            "hostname = \"mx.test\"\n[local]\ndomains = [\"mx.test\", \"corp\"]\n[addresses]\nverp = {list}\n"
        )
    };
    let all = ["[\"news\"]", "[\"<>\"]", "[\"@lists.test\"]", "[\"news@\"]", "[\"news*@a.test\"]", "[5]"];
    golden("verp.txt", &all.map(|list| problems(&verp(list))).join("\n"));
    let good = verp("[\"news@a.test\", \"lists.test\", \"*.b.test\", \"corp\", \"news@*\", \"*\"]");
    assert!(config::load_text(&good).is_ok());
}

#[test]
fn rules_that_cannot_be_are_told() {
    let with = |text: &str| problems(&format!("hostname = \"mx.test\"\n{text}\n"));
    let rule = |keys: &str| format!("[[rule]]\n{keys}\n");
    let all = [
        with(&rule("from = [\"a b\", \"@c.test\", \"hash:x\", 5]\nto = \"abuse@*\"\nreject = true")),
        with(&rule(
            "client = [\"192.0.2.1/24\"]\nclient_name = [\".a.test\"]\nheader = [\"Subject: x\", \"X: /a(/\"]\nhold = \"\"",
        )),
        with(&rule("reject = \"450 4.7.1 later\"")),
        with(&rule("defer = \"try {who} later\"")),
        with(&rule("reject = false\naccept = true")),
        with(&rule("accept = true\nreject = true")),
        with(&rule("client = []\naccept = true")),
        with(&rule("tls = true")),
        with(&rule("at = \"connect\"\nfrom = [\"a.test\"]\nreject = true")),
        with(&rule("at = \"connect\"\nredirect = [\"a@b.test\"]")),
        with(&rule("over = [\"bulk\"]\nask = \"grey\"")),
        with(&format!(
            "[[limit]]\nname = \"many\"\nper = \"client\"\nrecipients = \"5/h\"\n{}[[limit]]\nname = \"own\"\nper = \"login\"\nmessages = \"5/h\"\n{}",
            rule("at = \"connect\"\nover = [\"many\"]\nreject = true"),
            rule("over = [\"own\"]\nreject = true"),
        )),
        with(&rule("unless = { from = [\"a.test\"], form = [\"b.test\"] }\ndelay = \"1m\"")),
        with(&rule("certificate = [\"sha256:ab\", \"a b\"]\nreject = true")),
        with(&rule("route = \"filter\"")),
        with(&format!(
            "[[route]]\nname = \"a\"\nmx = true\n[[route]]\nname = \"a\"\nhold = true\n[[route]]\nname = \"b\"\nhold = true\n{}{}",
            rule("at = \"mail\"\nroute = \"a\""),
            rule("route = \"b\"")
        )),
        with(&rule("frm = [\"a.test\"]\nfor = \"everyone\"\nreject = true")),
        with(&format!(
            "{}{}",
            rule("from = [\"*.a.test\"]\nreject = true"),
            rule("from = [\"x@b.a.test\"]\ntls = true\naccept = true")
        )),
        with(&format!(
            "[[listen]]\naddress = \"127.0.0.1:25\"\n{}{}{}{}{}",
            rule("listener = [\"submission\", \"lmtp\"]\nreject = true"),
            rule("login = [\"joe\"]\nfrom = [\"a.test\"]\nreject = true"),
            rule("certificate = [\"a.test\"]\nfrom = [\"b.test\"]\naccept = true"),
            rule("tagged = [\"lst\"]\nfrom = [\"c.test\"]\naccept = true"),
            rule("from = [\"d.test\"]\ntag = [\"lst\"]"),
        )),
        with(
            "[[limit]]\nper = \"client\"\nrecipients = \"5/h\"\nover = \"450 4.7.1 later\"\n[[certificate]]\ncertificate = \"x.pem\"\nkey = \"x.key\"",
        ),
        with("[checks]\nhello = \"on\"\n[[limit]]\nper = \"user\"\nrecipients = \"500\""),
        with(
            "[[limit]]\nper = \"client\"\n[[limit]]\nrecipients = \"5/h\"\n[[limit]]\nper = \"login\"\nfailures = \"5/h\"",
        ),
        with(
            "[[limit]]\nname = \"a\"\nper = \"client\"\nrecipients = \"5/h\"\n[[limit]]\nname = \"a\"\nper = \"client\"\nmessages = \"5/h\"\nbytes = \"1MiB/h\"",
        ),
        with(&format!(
            "{}{}",
            rule("from = [\"joe*@a.test\"]\nlogin = [\"*@a.test\"]\nreject = true"),
            rule("client_name = [\"192.0.2.1\"]\nunless = {}\nreject = true"),
        )),
        with(&format!(
            "{}{}{}{}",
            rule("from = [\"x.test\"]\nunless = { from = [\"x.test\"] }\nreject = true"),
            rule("from = [\"y.test\"]\nreject = \"go away {text}\""),
            rule("to = [\"cidr:net\"]\nreject = true"),
            rule("from = [\"z.test\"]\nunless = { to = [\"*\"] }\nreject = true"),
        )),
        with(
            "[checks]\ndnsbl = [\"zen\", \"a.test=127.0.0.9-2\", \"192.0.2.1\"]\n[[rule]]\ndns_list = []\nreject = true",
        ),
        with("[policy_service.grey]\ntimeout = \"0s\"\n[policy_service]\nx = 3"),
        with(
            "[filter.spam]\ntimeout = \"30s\"\n[filter.virus]\nmilter = \"unix:/v\"\ncontent_timeout = \"10m\"\n[filter]\nx = 3",
        ),
        with(
            "[filter.spam]\nmilter = \"inet:localhost:8891\"\nfor = \"strangers\"\non_failure = \"accept\"\naddress = \"unix:/x\"",
        ),
        with(&format!(
            "{}{}{}[checks]\ndmarc = \"tag\"\n",
            rule("tagged = [\"dmarc-fails\"]\nreject = true"),
            rule("tagged = [\"spf-fail\"]\nat = \"rcpt\"\nreject = true"),
            rule("unless = { tagged = [\"dkim-pass\"] }\nhold = true"),
        )),
        with(&rule("tagged = [\"spf-fail\"]\nreject = true")),
    ];
    golden("rules.txt", &all.join("\n"));
}

#[test]
fn queue_directories_that_cannot_be_are_told() {
    let with = |text| problems(&format!("[spool]\nbackend = {text}\n"));
    let all = [
        with("\"null\""),
        with("\"queue-dirs\"\npath = \"/var/spool/q*\"\ndirectories = 20"),
        with("\"queue-dirs\"\npath = \"/var/*/queue\""),
        with("\"queue-dirs\"\nplacement = \"fewst\""),
        with("\"queue-dirs\"\ndirectories = 0"),
        with("\"queue-dirs\"\ndirectories = 1000\nhash_depth = 3"),
    ];
    golden("queue-dirs.txt", &all.join("\n"));
}

#[test]
fn spools_of_queue_groups_that_cannot_be_are_told() {
    let with = |text: &str| problems(&format!("data_dir = \"/d\"\n{text}"));
    let group = |name: &str, keys: &str| {
        format!("[[queue_group]]\nname = \"{name}\"\ndomains = [\"bulk.test\"]\n{keys}\n")
    };
    let directories = "backend = \"queue-dirs\"";
    let all = [
        with(&group("bulk", "backend = \"null\"")),
        with(&group("bulk", "directories = 5")),
        with(&group("bulk", &format!("{directories}\npath = \"/e/q*\"\ndirectories = 5\nhash_depth = 3"))),
        with(&group("a/b", directories)),
        with(&format!("{}{}", group("a", "path = \"/e/q\""), group("b", "path = \"/e/q\""))),
        with(&group("a", "path = \"/d/spool/a\"")),
        with(&format!(
            "{}[spool]\n{directories}\npath = \"/e/q*\"\n",
            group("a", "path = \"/e/qbulk\"\nplacement = \"fewst\"")
        )),
        with(&format!("{}[spool]\npath = \"/d/spool-a\"\n", group("a", directories))),
    ];
    golden("groups.txt", &all.join("\n"));
}

#[test]
fn certificates_that_cannot_be_used_are_told_before_anybody_starts_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let make = || rcgen::generate_simple_self_signed(["mx.test".to_owned()]).unwrap();
    let (own, other) = (make(), make());
    let file = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    file("own.pem", &own.cert.pem());
    file("own.key", &own.signing_key.serialize_pem());
    file("other.key", &other.signing_key.serialize_pem());
    file("turned.pem", &format!("{}{}", other.cert.pem(), own.cert.pem()));
    file("text.pem", "no certificate\n");
    file("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    file("cut.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    file("locked.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n");
    let path = dir.path().join("postrider.toml");
    let with = |keys: &str| {
        fs::write(&path, format!("data_dir = \"/d\"\n[tls]\n{keys}\n")).unwrap();
        assert!(config::load_with_origins(Some(&path), Purpose::Ask).is_ok(), "only who serves looks inside");
        config::load(Some(&path)).map_err(|p| p.to_string().replace(&*dir.path().to_string_lossy(), "DIR"))
    };
    let pair =
        |certificate: &str, key: &str| with(&format!("certificate = \"{certificate}\"\nkey = \"{key}\""));
    assert!(pair("own.pem", "own.key").is_ok());
    let all = [
        pair("text.pem", "own.key"),
        pair("own.key", "own.pem"),
        pair("broken.pem", "own.key"),
        pair("cut.pem", "own.key"),
        pair("own.pem", "other.key"),
        pair("turned.pem", "own.key"),
        pair("own.pem", "locked.key"),
        with("ca_file = \"text.pem\""),
    ];
    golden("certificates.txt", &all.map(Result::unwrap_err).join("\n"));
}

#[test]
fn times_that_no_clock_can_count_are_refused() {
    for time in ["18446744073709551615", "\"5201w\"", "\"9999999999w\""] {
        let told = problems(&format!("[timeouts]\ncommand = {time}\n"));
        assert!(
            told.contains("`timeouts.command` must be a duration") && told.contains("too long"),
            "{told}"
        );
    }
}

#[test]
fn a_log_in_a_folder_that_is_not_there_is_told_before_a_start_fails_by_it() {
    let told =
        problems("[log]\nfile = \"none/mail.log\"\nformat = \"both\"\npostfix_file = \"postrider.toml/x\"\n");
    assert!(told.contains("the folder DIR/none does not exist"), "{told}");
    assert!(told.contains("DIR/postrider.toml is not a folder") && told.contains("2 problems"), "{told}");
    // This one is made.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("postrider.toml");
    fs::write(&path, "data_dir = \"data\"\n[log]\nfile = \"data/mail.log\"\n").unwrap();
    assert!(config::load(Some(&path)).is_ok());
    fs::write(&path, "[log]\nfile = \"none/mail.log\"\n").unwrap();
    assert!(config::load_with_origins(Some(&path), Purpose::Ask).is_ok(), "others can do without");
}

#[test]
fn a_missing_file_is_named() {
    let problems = config::load(Some(Path::new("/nonexistent/postrider.toml"))).unwrap_err();
    golden("missing.txt", &problems.to_string());
}

#[test]
fn a_file_that_is_no_text_is_told_by_its_line_and_a_folder_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("postrider.toml");
    fs::write(&path, b"# one\nhostname = \"b\xfccher.test\"\n").unwrap();
    let said = |path: &Path| {
        config::load(Some(path)).unwrap_err().to_string().replace(&*dir.path().to_string_lossy(), "DIR")
    };
    golden("no_text.txt", &format!("{}\n{}", said(&path), said(dir.path())));
}

#[test]
fn a_problem_knows_its_line_and_column() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.toml");
    fs::write(&path, "# ü\n[relay]\nnetworks = [\"10.0.0.1/8\"]\n").unwrap();
    let problems = config::load(Some(&path)).unwrap_err();
    let [problem] = problems.list() else { panic!("{problems}") };
    assert_eq!(problems.place(problem), Some((3, 13)));
    assert_eq!(problem.help.as_deref(), Some("write \"10.0.0.0/8\""));
}

#[test]
fn users_as_whom_nothing_should_run_are_refused() {
    golden(
        "process.txt",
        &problems(
            "[process]\nuser = \"0\"\nsandbox = \"on\"\n\
             [addresses]\nprogram_user = \"0\"\n\
             [[route]]\ndomains = [\"a.test\"]\npipe = { argv = [\"/bin/x\"], user = \"0\" }\n\
             [[route]]\ndomains = [\"b.test\"]\nmaildir = \"/m/{local}\"\nuser = \"77\"\n\
             [[route]]\ndomains = [\"c.test\"]\nmaildir = \"/m/{local}\"\ngroup = \"8\"\n\
             [[route]]\ndomains = [\"d.test\"]\nmx = true\nuser = \"4711\"\n",
        ),
    );
    golden("process-group.txt", &problems("[process]\ngroup = \"8\"\n"));
}

#[test]
fn the_configuration_of_another_server_gets_one_clear_line() {
    for (text, server) in [
        ("# main.cf\nmyhostname = mx.example.com\nmydestination = $myhostname, localhost\n", "postfix"),
        ("primary_hostname = mx.example.com\nacl_smtp_rcpt = acl_check_rcpt\nbegin acl\n", "exim"),
        ("divert(-1)\nFEATURE(`access_db')dnl\nMAILER(`smtp')dnl\n", "sendmail"),
    ] {
        let said = problems(text);
        assert_eq!(said.matches("error: ").count(), 1, "{said}");
        assert!(said.contains(&format!("`postrider import {server} FOLDER`")), "{said}");
    }
    let own = problems("hostname = mx.example.com\nmyhostname_of = 1\n");
    assert!(own.contains("this is not TOML"), "{own}");
}

#[test]
fn what_people_look_for_is_told_in_the_sentence_that_they_need() {
    let route = "[[route]]\ndomains = [\"*\"]\nsmarthost = \"hub.test:587\"\n";
    for (text, needed) in [
        ("[local]\nusers = [\"alice\", \"*\"]", "`*` is not a user"),
        (
            &format!("{route}username = \"jane\"\n"),
            "write `login = { user = \"NAME\", secret = \"file:FILE\" }`",
        ),
        (&format!("{route}password = \"hushhush\"\n"), "and the password into FILE"),
        ("[dkim]\nselector = \"s1\"", "`postrider dkim new` makes a key"),
        ("[milter]\naddress = \"unix:/x\"", "[filter.rspamd]"),
    ] {
        let said = problems(&format!("hostname = \"mx.test\"\n{text}\n"));
        assert!(said.contains(needed), "{text}: {said}");
    }
}

#[test]
fn settings_of_other_servers_are_answered_with_what_to_write_here() {
    let all = [
        "auth = false",
        "[auth]\nenabled = true",
        "relayhost = \"smtp.example.com\"",
        "[spf]\nenabled = true",
        "[[rule]]\nreject = \"450 4.7.1 later\"",
        "[[rule]]\ndefer = \"550 5.7.1 never\"",
        "mynetworks = [\"10.0.0.0/8\"]",
        "[[listen]]\naddress = \"127.0.0.1\"\nport = 2525",
        "[metrics]\nenabled = true",
    ];
    golden("sought.txt", &all.map(|text| problems(&format!("{text}\n"))).join("\n"));
}

#[test]
fn what_stands_in_the_place_of_a_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (source, data) = (dir.path().join("postrider.toml"), dir.path().join("data"));
    let problems = |more: &str, purpose| {
        fs::write(&source, format!("hostname = \"mx.test\"\ndata_dir = \"data\"\n{more}")).unwrap();
        config::load_with_origins(Some(&source), purpose).err().map(|problems| problems.to_string())
    };
    let is_told = |name: &str, what: &str| {
        let told = problems("[history]\nenabled = true\n", Purpose::Serve).unwrap_or_default();
        assert!(
            told.contains(&format!("{name} is {what}")) && told.contains("help: remove "),
            "{name}: {told}"
        );
        let asked = problems("", Purpose::Ask);
        assert_eq!(asked, None, "a command that only asks goes on");
    };
    std::os::unix::fs::symlink("nowhere", &data).unwrap();
    is_told("data", "a symbolic link to nowhere, where no directory is");
    fs::remove_file(&data).unwrap();
    fs::create_dir(&data).unwrap();
    for name in ["drop", "spool", "history"] {
        let place = data.join(name);
        std::os::unix::fs::symlink("nowhere", &place).unwrap();
        is_told(name, "a symbolic link to nowhere, where no directory is");
        fs::remove_file(&place).unwrap();
        fs::write(&place, "x").unwrap();
        is_told(name, "a file");
        fs::remove_file(&place).unwrap();
    }
    // The daemon does not open a directory behind a link to everybody.
    std::os::unix::fs::symlink(dir.path(), data.join("drop")).unwrap();
    is_told("drop", "a symbolic link");
    fs::remove_file(data.join("drop")).unwrap();
    assert_eq!(problems("", Purpose::Serve), None);
}
