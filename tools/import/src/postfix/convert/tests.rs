use super::*;
use crate::Verdict;
use crate::memory_files::MemoryFiles;

mod recipients;
mod restrictions;
mod screen;

const MASTER: &[u8] = b"smtp inet n - y - - smtpd\n";

fn converted(main: &str, files: &'static [(&'static str, &'static str)]) -> (String, Report) {
    let (draft, report) = convert(main.as_bytes(), MASTER, "/etc/postfix", &MemoryFiles(files));
    (draft.as_toml(), report)
}

#[test]
fn a_null_client_sends_all_to_its_hub() {
    let (toml, report) =
        converted("relayhost = [hub.example.com]\ninet_interfaces = loopback-only\nmydestination =\n", &[]);
    for line in [
        "address = \"127.0.0.1:25\"",
        "address = \"[::1]:25\"",
        "smarthost = \"hub.example.com:25\"",
        "domains = [\"*\"]",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }
    assert_eq!(report.mapped_count(), 3, "{report}");
}

#[test]
fn a_login_of_the_smarthost_is_a_secret_beside_the_configuration() {
    let (draft, report) = convert(
        b"relayhost = [mail.isp.example]:587\nsmtp_sasl_auth_enable = yes\nmydestination = $myhostname\n\
          smtp_sasl_password_maps = hash:/etc/postfix/sasl\nsmtp_tls_security_level = secure\nlocal_recipient_maps =\n",
        MASTER,
        "/etc/postfix",
        &MemoryFiles(&[("/etc/postfix/sasl", "[mail.isp.example]:587 bob:sec:ret\n")]),
    );
    let toml = draft.as_toml();
    assert!(toml.contains("login = { user = \"bob\", secret = \"file:mail.isp.example.secret\" }"), "{toml}");
    assert!(toml.contains("tls = \"verify\"") && !toml.contains("sec:ret"), "{toml}");
    assert!(toml.find("mbox = ").unwrap() < toml.find("smarthost").unwrap(), "local mail stays here: {toml}");
    assert_eq!((&*draft.files[0].content, draft.files[0].is_secret), ("sec:ret\n", true));
    assert_eq!(report.missing_count(), 0, "{report}");
}

#[test]
fn nothing_is_dropped_silently() {
    let (_, report) = converted(
        "content_filter = smtp-amavis:[127.0.0.1]:10024\nmy_hubs = a\nrelayhost = $my_hubs\ntypo_here = 1\nno parameter\nsmtpd_milters = inet:x:1\nmilter_default_action = accept\n",
        &[],
    );
    let of = |name: &str| report.entries.iter().find(|entry| entry.name == name).map(|entry| &entry.verdict);
    assert!(
        report
            .to_string()
            .contains("accepted main.cf:1 content_filter: Postrider's filters speak the milter protocol"),
        "{report}"
    );
    assert_eq!(of("my_hubs"), Some(&Verdict::Mapped));
    assert_eq!((of("typo_here"), of("no parameter")), (Some(&Verdict::Unknown), Some(&Verdict::Unknown)));
    assert_eq!(report.entries[0].place, "main.cf:1");
}

#[test]
fn classes_of_domains_have_their_users_and_routes() {
    let (draft, report) = convert(
        b"mydestination = $myhostname\nvirtual_mailbox_domains = example.com\nvirtual_mailbox_maps = hash:/etc/postfix/boxes\n\
          virtual_transport = lmtp:unix:private/dovecot-lmtp\nrelay_domains = hash:/etc/postfix/relay\n\
          virtual_alias_maps = hash:/etc/postfix/virtual\ntransport_maps = hash:/etc/postfix/transport\n",
        MASTER,
        "/etc/postfix",
        &MemoryFiles(&[
            ("/etc/passwd", "root:x:0:0::/:\njoe:x:1:1::/:\n"),
            ("/etc/postfix/boxes", "ann@example.com x\n"),
            ("/etc/postfix/relay", "example.org x\n"),
            ("/etc/postfix/virtual", "alias.example x\na@alias.example joe\n"),
            ("/etc/postfix/transport", ".lists.test smtp:[10.0.0.1]:26\njoe@mx.test error:5.2.1 gone\nexample.net :\nclosed.test error:no mail here\n"),
        ]),
    );
    let toml = draft.as_toml();
    for line in [
        "domains = [\"mx.test\", \"regex:relay-domains\", \"regex:mailbox-domains\", \"regex:alias-domains\"]",
        "users = [\"postmaster\", \"text:/etc/postfix/boxes\", \"text:local-users\", \"regex:local-domains-with-all-users\"]",
        "lmtp = \"unix:/var/spool/postfix/private/dovecot-lmtp\"",
        "domains = [\"*.lists.test\"]\nsmarthost = \"10.0.0.1:26\"",
        "reject = \"550 5.1.1 no mail here\"",
        "to = [\"joe@mx.test\"]\nreject = \"550 5.2.1 gone\"",
        "domains = [\"example.net\"]\nmx = true",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }
    let of = |name: &str| &draft.files.iter().find(|file| file.name == name).unwrap().content;
    assert!(of("local-users").contains("joe@mx.test x\n") && !of("local-users").contains("example"));
    assert!(of("local-domains-with-all-users").contains("/@(.*\\.)?example\\.org$/ x\n"));
    assert_eq!(report.missing_count(), 0, "{report}");
}

#[test]
fn catch_alls_are_told_with_their_places() {
    let (draft, report) = convert(
        b"mydestination = $myhostname\nvirtual_mailbox_domains = example.com, example.net\n\
          virtual_mailbox_maps = hash:/etc/postfix/boxes\nvirtual_alias_maps = hash:/etc/postfix/virtual\n\
          canonical_maps = inline:{@=joe@example.com}\nsmtp_generic_maps = hash:/etc/postfix/generic\n",
        MASTER,
        "/etc/postfix",
        &MemoryFiles(&[
            ("/etc/passwd", "root:x:0:0::/:\n"),
            ("/etc/postfix/boxes", "ann@example.com x\n# all\n@Example.net x\n"),
            ("/etc/postfix/virtual", "joe@alias.example ann@example.com\n\n@alias.example\n  joe\n@ joe\n"),
            ("/etc/postfix/generic", "@local.test joe@example.com\n"),
        ]),
    );
    let verdict = |name: &str| {
        let entry = report.entries.iter().find(|entry| entry.name == name).unwrap();
        match &entry.verdict {
            Verdict::Missing(text) => format!("missing: {text}"),
            Verdict::Note(text) => format!("note: {text}"),
            other => format!("{other:?}"),
        }
    };
    let told = verdict("virtual_alias_maps");
    assert!(
        told.starts_with("missing: ")
            && told.contains("`@alias.example` (/etc/postfix/virtual:3) is a catch-all"),
        "{told}"
    );
    assert!(told.contains("`@` (/etc/postfix/virtual:5) has no domain"), "{told}");
    assert!(told.contains("write a line such as `@example.com user@example.com` for each domain"), "{told}");
    let told = verdict("canonical_maps");
    assert!(told.contains("`@` (inline) has no domain"), "{told}");
    assert_eq!(verdict("smtp_generic_maps"), "Mapped");
    // In a list of users, such a key is not looked up: a pattern takes its place.
    let told = verdict("virtual_mailbox_maps");
    assert!(
        told.contains("`@example.net` (/etc/postfix/boxes:3)")
            && told.contains("local-domains-with-all-users"),
        "{told}"
    );
    let patterns = draft.files.iter().find(|file| file.name == "local-domains-with-all-users").unwrap();
    assert!(patterns.content.ends_with("/@example\\.net$/ x\n"), "{}", patterns.content);
    assert!(draft.as_toml().contains("\"text:/etc/postfix/boxes\""), "{}", draft.as_toml());
}

#[test]
fn logins_from_mynetworks_are_held_to_the_lists_of_a_submission_listener() {
    let master = |more: &str| {
        format!(
            "smtp inet n - y - - smtpd\nsubmission inet n - y - - smtpd\n  -o smtpd_sasl_auth_enable=yes\n  -o smtpd_sasl_type=dovecot\n\
             \x20 -o smtpd_sasl_path=private/auth\n  -o smtpd_client_restrictions=permit_sasl_authenticated,reject\n\
             \x20 -o smtpd_sender_restrictions={more}check_sender_access,inline:{{{{bad@example.com=REJECT}}}}\n"
        )
    };
    let rule = |more: &str| {
        let main = b"mynetworks = 10.9.0.0/24\n";
        let (draft, _) = convert(main, master(more).as_bytes(), "/etc/postfix", &MemoryFiles(&[]));
        let toml = draft.as_toml();
        let at = toml.find("from = [\"bad@example.com\"]").unwrap_or_else(|| panic!("{toml}"));
        toml[at..].split("\n\n").next().unwrap().to_owned()
    };
    assert!(!rule("").contains("10.9.0.0/24"), "{}", rule(""));
    assert!(rule("permit_mynetworks,").contains("unless = { client = [\"10.9.0.0/24\"] }"));
}

#[test]
fn listeners_of_master_cf_keep_their_purpose() {
    let master = b"smtp inet n - y - - smtpd\n\
        submission inet n - y - - smtpd\n  -o smtpd_tls_security_level=encrypt\n  -o smtpd_sasl_auth_enable=yes\n\
        \x20 -o smtpd_sasl_type=dovecot\n  -o smtpd_sasl_path=private/auth\n  -o smtpd_client_restrictions=permit_sasl_authenticated,reject\n\
        465 inet n - y - - smtpd\n  -o smtpd_tls_wrappermode=yes\n  -o smtpd_sasl_auth_enable=yes\n\
        127.0.0.1:10025 inet n - y - - smtpd\n  -o content_filter=\n628 inet n - y - - qmqpd\n";
    let (draft, report) = convert(b"inet_protocols = ipv4\n", master, "/etc/postfix", &MemoryFiles(&[]));
    let toml = draft.as_toml();
    for line in [
        "kind = \"submission\"\ntls = \"starttls\"\naddress = \"0.0.0.0:587\"",
        "kind = \"submissions\"\naddress = \"0.0.0.0:465\"",
        "users = \"dovecot:/var/spool/postfix/private/auth\"",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }
    assert!(
        !toml.contains("10025") && report.to_string().contains("refused  master.cf:11 127.0.0.1:10025"),
        "{report}"
    );
    assert!(report.to_string().contains("628"), "{report}");
}

/// Returns the targets and domains of the routes, in their order.
fn routes(toml: &str) -> Vec<String> {
    let sections = toml.split("[[route]]").skip(1);
    let line = |section: &str| {
        let lines = section.lines().map(|line| line.split(" # ").next().unwrap_or_default().trim());
        let lines: Vec<&str> =
            lines.take_while(|line| !line.starts_with("[")).filter(|line| !line.is_empty()).collect();
        lines.join("; ")
    };
    sections.map(line).collect()
}

#[test]
fn a_domain_that_the_table_leaves_as_it_is_stays_local_although_all_others_go_to_a_hub() {
    let (toml, report) = converted(
        "mydestination = mx.firma.example, firma.example, localhost\nmyhostname = mx.firma.example\n\
         transport_maps = hash:/etc/postfix/transport\n",
        &[("/etc/postfix/transport", "firma.example :\n.firma.example :\n* smtp:[smart.example]\n")],
    );
    let routes = routes(&toml);
    assert_eq!(routes.len(), 3, "{toml}");
    assert!(routes[0].contains("\"firma.example\"") && routes[0].contains("mbox"), "{routes:?}");
    assert!(routes[1].contains("*.firma.example") && routes[1].contains("mx = true"), "{routes:?}");
    assert!(routes[2].contains("\"*\"") && routes[2].contains("smart.example"), "{routes:?}");
    assert!(!report.to_string().contains("rerouted"), "{report}");
}

#[test]
fn a_domain_that_is_relayed_and_local_is_local() {
    let (toml, _) = converted(
        "myhostname = mx.firma.example\nmydestination = $myhostname, firma.example\nrelay_domains = $mydestination, other.example\n",
        &[],
    );
    let routes = routes(&toml);
    assert!(routes[0].contains("\"firma.example\"") && routes[0].contains("mbox"), "{toml}");
    assert!(
        routes[1].contains("[\"other.example\", \"*.other.example\"]") && routes[1].contains("mx = true"),
        "{toml}"
    );
}

#[test]
fn all_pairs_of_a_table_in_main_cf_are_routes() {
    for table in [
        "inline:{x.example=smtp:[10.1.1.1],z.example=smtp:[10.1.1.3]:2500}",
        "inline:{ x.example=smtp:[10.1.1.1], { z.example = smtp:[10.1.1.3]:2500 } }",
    ] {
        let main: &'static str =
            Box::leak(format!("mydestination =\ntransport_maps = {table}\n").into_boxed_str());
        let (toml, _) = converted(main, &[]);
        assert!(
            toml.contains("smarthost = \"10.1.1.1:25\"") && toml.contains("smarthost = \"10.1.1.3:2500\""),
            "{toml}"
        );
    }
}

#[test]
fn refusals_for_now_stay_refusals_for_now() {
    let (toml, report) = converted("soft_bounce = yes\nmydestination =\n", &[]);
    assert!(toml.contains("soft_bounce = true"), "{toml}");
    assert_eq!(report.missing_count(), 0, "{report}");
}

#[test]
fn a_client_that_mynetworks_excludes_may_not_relay() {
    let (toml, report) = converted("mynetworks = 10.0.0.0/29, !10.0.0.5\n", &[]);
    assert!(toml.contains("networks = [\"10.0.0.0/30\", \"10.0.0.4\", \"10.0.0.6/31\"]"), "{toml}");
    assert!(
        report.to_string().contains("refused  main.cf:1 mynetworks: Postfix ignores !10.0.0.5/32"),
        "{report}"
    );
    let (_, report) = converted("mynetworks = !10.0.0.5, 10.0.0.0/29\n", &[]);
    assert!(report.to_string().contains("note     main.cf:1 mynetworks: the networks are split"), "{report}");
}

#[test]
fn times_of_zero_become_what_the_check_accepts() {
    let (toml, report) = converted(
        "maximal_queue_lifetime = 0\ndelay_warning_time = 4h\nsmtp_connect_timeout = 0s\nsmtp_connection_cache_time_limit = 0\nsmtp_connection_reuse_time_limit = 90s\n",
        &[],
    );
    for line in
        ["expire = \"1s\"", "delay_warning = \"0s\"", "idle_timeout = \"0s\"", "reuse_timeout = \"90s\""]
    {
        assert!(toml.contains(line), "{line}: {toml}");
    }
    assert!(!toml.contains("connect_timeout"), "{toml}");
    for part in ["mail is tried once", "mail is returned before it", "0 is not supported"] {
        assert!(report.to_string().contains(part), "{part}: {report}");
    }
}

#[test]
fn settings_of_local_that_are_not_used_are_no_typing_errors() {
    let (_, report) = converted(
        "transport_maps = hash:/etc/postfix/transport\nmailbox_transport = lmtp:unix:x\nhome_mailbox = Maildir/\n",
        &[("/etc/postfix/transport", "* smtp:[hub.example.com]\n")],
    );
    assert_eq!(report.unknown_count(), 0, "{report}");
}

const HERE: &str = "myhostname = mx.example.com\nmydestination = mx.example.com\nlocal_recipient_maps =\n";

fn relaying(settings: &str) -> String {
    converted(&format!("{HERE}mynetworks = 127.0.0.0/8, 10.1.0.0/16\n{settings}"), &[]).0
}

#[test]
fn a_final_reject_behind_permit_auth_destination_closes_no_door() {
    for lists in [
        "smtpd_relay_restrictions = permit_mynetworks, permit_auth_destination, reject\n",
        "smtpd_relay_restrictions =\nsmtpd_recipient_restrictions = permit_mynetworks, permit_auth_destination, reject\n",
        "smtpd_recipient_restrictions = permit_mynetworks, permit_sasl_authenticated, permit_auth_destination, reject\n",
    ] {
        let toml = relaying(lists);
        assert!(!toml.contains("kind") && !toml.contains("[[rule]]"), "{lists}: {toml}");
        assert!(toml.contains("networks = [\"127.0.0.0/8\", \"10.1.0.0/16\"]"), "{toml}");
    }
    let toml = relaying("smtpd_recipient_restrictions = permit_mynetworks, reject\n");
    assert!(toml.contains("kind = \"relay\""), "{toml}");
}

#[test]
fn only_whom_the_lists_permit_may_relay() {
    let toml = relaying("smtpd_relay_restrictions = permit_sasl_authenticated, reject_unauth_destination\n");
    assert!(toml.contains("[relay]\nnetworks = []"), "{toml}");
    let toml = relaying(
        "smtpd_relay_restrictions = check_client_access inline:{192.0.2.7=OK 192.0.2.8=DUNNO}, reject_unauth_destination\n",
    );
    assert!(toml.contains("[relay]\nnetworks = [\"192.0.2.7\"]"), "{toml}");
    let toml = relaying(
        "smtpd_relay_restrictions = permit_mynetworks, reject_unauth_destination\nsmtpd_client_restrictions = check_client_access inline:{192.0.2.7=OK}\n",
    );
    assert!(!toml.contains("192.0.2.7"), "OK in a list that refuses nothing is no right to relay: {toml}");
}

#[test]
fn restrictions_above_a_permission_are_for_its_clients_too() {
    let table = "check_sender_access inline:{bad@example.com=REJECT}";
    let toml = relaying(&format!(
        "smtpd_relay_restrictions = {table}, permit_mynetworks, reject_unauth_destination\n"
    ));
    let all = "for = \"all\"\nlistener = [\"mx\", \"relay\", \"submission\", \"submissions\"]\nfrom = [\"bad@example.com\"]";
    assert!(toml.contains(all), "{toml}");
    let toml = relaying(&format!(
        "smtpd_relay_restrictions = permit_mynetworks, {table}, reject_unauth_destination\n"
    ));
    assert!(toml.contains("[[rule]]\nfrom = [\"bad@example.com\"]\nreject"), "{toml}");
}

#[test]
fn a_permission_ends_its_own_list_only() {
    let toml = relaying(
        "smtpd_client_restrictions = permit_mynetworks, check_client_access inline:{192.0.2.7=OK}, check_client_access inline:{192.0.2=REJECT}\n\
         smtpd_sender_restrictions = check_sender_access inline:{bad.example=REJECT}\n",
    );
    assert!(
        toml.contains("client = [\"192.0.2.0/24\"]\nunless = { client = [\"192.0.2.7\"] }\nreject"),
        "{toml}"
    );
    assert!(toml.contains("from = [\"bad.example\", \"*.bad.example\"]\nreject"), "{toml}");
}

#[test]
fn an_exact_key_without_a_verdict_excepts_from_the_others() {
    let toml = relaying(
        "smtpd_sender_restrictions = check_sender_access inline:{joe@a.example=DUNNO a.example=OK}, reject\n",
    );
    assert!(
        toml.contains("from = [\"a.example\", \"*.a.example\"]\nunless = { from = [\"joe@a.example\"] }\ntag = [\"sender-1\"]"),
        "{toml}"
    );
    assert!(toml.contains("unless = { tagged = [\"sender-1\"] }\nreject"), "{toml}");
}

#[test]
fn an_exact_domain_comes_before_the_dot_of_its_parent() {
    let (toml, _) = converted(
        "parent_domain_matches_subdomains = relay_domains\n\
         smtpd_sender_restrictions = check_sender_access inline:{ {.bad.example=450 later}, {sub.bad.example=OK} }\n",
        &[],
    );
    assert!(toml.contains("from = [\"*.bad.example\"]\nunless = { from = [\"sub.bad.example\"] }"), "{toml}");
}

#[test]
fn a_class_as_an_action_is_a_list_within_the_list() {
    let toml = relaying(
        "smtpd_restriction_classes = strict\nstrict = permit_mynetworks, check_client_access inline:{192.0.2.7=OK}, reject\n\
         smtpd_recipient_restrictions = check_recipient_access inline:{boss@mx.example.com=strict}\n",
    );
    for part in [
        "to = [\"boss@mx.example.com\"]\ntag = [\"recipient-1\"]",
        "tagged = [\"recipient-1\"]\nunless = { client = [\"192.0.2.7\"] }\nreject",
    ] {
        assert!(toml.contains(part), "{part}: {toml}");
    }
}

#[test]
fn a_table_that_cannot_be_read_makes_mail_wait() {
    let (toml, report) = converted(
        &format!(
            "{HERE}smtpd_sender_restrictions = check_sender_access mysql:/etc/postfix/s.cf, reject\nvirtual_alias_maps = mysql:/etc/postfix/v.cf\n"
        ),
        &[],
    );
    assert!(toml.contains("temporary = true\ndefer = \"451"), "{toml}");
    assert!(toml.contains("[map.v]\nsocketmap = \"unix:/run/postrider/v.sock\""), "{toml}");
    assert!(
        report.to_string().lines().nth(1).is_some_and(|line| line.starts_with("refused  main.cf:")),
        "{report}"
    );
    let users = "myhostname = mx.example.com\nmydestination = mx.example.com\nlocal_transport = lmtp:unix:x\nlocal_recipient_maps = mysql:/etc/users.cf\n";
    let toml = converted(users, &[]).0;
    assert!(toml.contains("users = [\"postmaster\", \"map:users\"]"), "{toml}");
}

#[test]
fn the_origin_is_for_this_host_only() {
    let (draft, report) = convert(
        b"myhostname = mail.example.com\nmydomain = example.com\nmyorigin = $mydomain\nmydestination = mail.example.com\n",
        MASTER,
        "/etc/postfix",
        &MemoryFiles(&[]),
    );
    assert!(!draft.as_toml().contains("masquerade"));
    let file = draft.files.iter().find(|file| file.name == "origin").unwrap();
    assert_eq!(file.content, "@mail.example.com @example.com\n");
    assert!(report.to_string().contains("changed  main.cf:3 myorigin"), "{report}");
}

#[test]
fn a_sender_has_a_smarthost_and_a_login_of_its_own() {
    let (draft, _) = convert(
        format!(
            "{HERE}relayhost = [smtp.two.example]:587\nsender_dependent_relayhost_maps = inline:{{ann@one.example=[smtp.one.example]:587}}\n\
             smtp_sender_dependent_authentication = yes\nsmtp_sasl_auth_enable = yes\nsmtp_sasl_password_maps = hash:/etc/postfix/sasl\n\
             smtp_tls_security_level = encrypt\n"
        )
        .as_bytes(),
        MASTER,
        "/etc/postfix",
        &MemoryFiles(&[("/etc/postfix/sasl", "ann@one.example ann:p1\neve@two.example eve:p3\n[smtp.two.example]:587 bob:p2\n")]),
    );
    let toml = draft.as_toml();
    let routes = routes(&toml);
    for (route, parts) in routes[1..].iter().zip([
        [
            "senders = [\"ann@one.example\"]",
            "smarthost = \"smtp.one.example:587\"",
            "user = \"ann\", secret = \"file:smtp.one.example.secret\"",
        ],
        [
            "senders = [\"eve@two.example\"]",
            "smarthost = \"smtp.two.example:587\"",
            "user = \"eve\", secret = \"file:smtp.two.example.secret\"",
        ],
        [
            "domains = [\"*\"]",
            "smarthost = \"smtp.two.example:587\"",
            "user = \"bob\", secret = \"file:smtp.two.example-2.secret\"",
        ],
    ]) {
        assert!(parts.iter().all(|part| route.contains(part)), "{route}");
    }
}

#[test]
fn the_next_hop_of_a_gateway_comes_before_that_of_its_class_and_has_its_own_policy_of_tls() {
    let (toml, _) = converted(
        "myhostname = mx.example.org\nmydestination = localhost\nrelay_domains = example.net\n\
         transport_maps = inline:{example.net=smtp:[10.0.0.2]:25}\nsmtp_tls_security_level = may\n\
         smtp_tls_policy_maps = inline:{example.net=encrypt [10.0.0.2]:25=verify far.example=encrypt}\n",
        &[],
    );
    let routes = routes(&toml);
    let hub = "domains = [\"example.net\"]; smarthost = \"10.0.0.2:25\"; tls = \"verify\"";
    assert!(routes[0].starts_with(hub), "{routes:?}");
    assert!(routes[2].starts_with("domains = [\"*.example.net\"]; mx = true; tls = \"may\""), "{routes:?}");
    assert!(routes[3].starts_with("domains = [\"far.example\"]; mx = true; tls = \"require\""), "{routes:?}");
    assert_eq!(routes.len(), 4, "{routes:?}");
}

#[test]
fn domains_of_a_database_have_one_route_and_one_map() {
    struct Postgres;
    impl crate::Files for Postgres {
        fn read(&self, path: &std::path::Path) -> Option<Vec<u8>> {
            path.starts_with("/etc/postfix")
                .then(|| b"dbname = m\nquery = SELECT 1 FROM d WHERE n = %s\n".to_vec())
        }
        fn capabilities(&self) -> crate::Capabilities {
            crate::Capabilities { sqlite: true, postgres: true, mysql: true, ldap: true }
        }
    }
    let main = b"myhostname = mx.test\nmydestination = localhost\nvirtual_mailbox_domains = pgsql:/etc/postfix/d.cf\n\
                 virtual_mailbox_maps = pgsql:/etc/postfix/m.cf\nvirtual_transport = lmtp:unix:private/dovecot-lmtp\n";
    let toml = convert(main, MASTER, "/etc/postfix", &Postgres).0.as_toml();
    assert_eq!(toml.matches("[map.").count(), 2, "{toml}");
    assert!(
        toml.contains("domains = [\"map:d\"]\nlmtp = \"unix:/var/spool/postfix/private/dovecot-lmtp\""),
        "{toml}"
    );
    assert!(toml.contains("query = \"SELECT 1 FROM d WHERE n = $1\""), "{toml}");
}

#[test]
fn transports_that_postrider_does_not_have_hold_the_mail() {
    let (toml, report) =
        converted(&format!("{HERE}transport_maps = inline:{{a.test=retry:later b.test=uucp:x}}\n"), &[]);
    assert!(
        toml.contains("domains = [\"a.test\"]\nhold = true")
            && toml.contains("domains = [\"b.test\"]\nhold = true"),
        "{toml}"
    );
    assert!(
        report.to_string().contains("rerouted main.cf:4 transport_maps: b.test: the transport uucp"),
        "{report}"
    );
}

/// Files of a machine with two accounts.
const ACCOUNTS: &[(&str, &str)] = &[
    ("/etc/passwd", "joe:x:1:1::/:\nann:x:2:2::/:\n"),
    ("/etc/aliases", "info: ann\n"),
    ("/etc/postfix/patterns", "/^joe@far\\.example$/ ann\n"),
];

#[test]
fn a_relay_host_of_a_sender_is_for_relayed_domains_and_a_transport_with_a_next_hop_is_not_changed() {
    let main = "mydestination = localhost\nrelay_domains = relay.example\nparent_domain_matches_subdomains =\n\
         sender_dependent_relayhost_maps = inline:{@a.example=[10.0.0.1] b@a.example=[10.0.0.2]}\n";
    let toml = converted(main, ACCOUNTS).0;
    let places: Vec<_> = [
        "domains = [\"relay.example\"]\nsenders = [\"b@a.example\"]\nsmarthost = \"10.0.0.2:25\"",
        "domains = [\"relay.example\"]\nsenders = [\"a.example\"]\nsmarthost = \"10.0.0.1:25\"",
        "domains = [\"relay.example\"]\nmx = true",
        "domains = [\"*\"]\nsenders = [\"b@a.example\"]\nsmarthost = \"10.0.0.2:25\"",
    ]
    .map(|text| toml.find(text).unwrap_or_else(|| panic!("{text}: {toml}")))
    .into();
    assert!(places.is_sorted(), "{toml}");
    let main: &'static str = Box::leak(format!("{main}default_transport = lmtp:[10.0.0.3]:24\n").into());
    let toml = converted(main, ACCOUNTS).0;
    let all = "domains = [\"*\"]\nsenders = [\"a.example\"]\nlmtp = \"10.0.0.3:24\"";
    assert!(toml.contains(all), "{toml}");
}

#[test]
fn a_relay_host_is_for_relayed_and_other_domains_only() {
    let main = "myhostname = mx.test\nmydestination = mx.test\nrelay_domains = relay.example\nrelayhost = [10.0.0.1]\n\
         parent_domain_matches_subdomains =\nvirtual_mailbox_domains = box.example\nvirtual_transport = smtp:\n\
         local_transport = smtp:\n";
    let toml = converted(main, ACCOUNTS).0;
    for (domain, next_hop) in [
        ("box.example", "mx = true"),
        ("mx.test", "mx = true"),
        ("relay.example", "smarthost = \"10.0.0.1:25\""),
    ] {
        assert!(toml.contains(&format!("domains = [\"{domain}\"]\n{next_hop}")), "{domain}: {toml}");
    }
}

#[test]
fn the_error_transport_refuses_for_good_and_retry_makes_mail_wait() {
    let toml = converted(
        "mydestination = localhost\ntransport_maps = inline:{a.example=error:4.2.0 b.example=retry:x}\n",
        ACCOUNTS,
    )
    .0;
    assert!(toml.contains("domains = [\"a.example\"]\nreject = \"550 5.2.0 Address rejected\""), "{toml}");
    assert!(toml.contains("domains = [\"b.example\"]\nhold = true"), "{toml}");
    let rule = "to = [\"b.example\"]\nlistener = [\"mx\", \"relay\", \"submission\", \"submissions\"]\ndefer = \"450 4.1.1 x\"";
    assert!(toml.contains(rule), "{toml}");
}

#[test]
fn only_accounts_have_mailboxes_of_local_whatever_the_list_of_recipients_says() {
    for (list, has_rule) in [("", false), ("$alias_maps", true), ("unix:passwd.byname $alias_maps", false)] {
        let main = format!("myhostname = mx.test\nmydestination = mx.test\nlocal_recipient_maps = {list}\n");
        let (toml, report) = converted(&main, ACCOUNTS);
        assert!(toml.contains("users = [\"postmaster\", \"accounts:/etc/passwd\"]"), "{toml}");
        assert_eq!(toml.contains("reject = \"550 5.1.1 User unknown\""), has_rule, "{toml}");
        assert!(!report.to_string().contains("accepted "), "{report}");
    }
    let hub = "myhostname = mx.test\nmydestination = mx.test\nlocal_transport = smtp:[10.0.0.1]\n";
    let (draft, _) = convert(hub.as_bytes(), MASTER, "/etc/postfix", &MemoryFiles(ACCOUNTS));
    let toml = draft.as_toml();
    let known = draft.files.iter().filter(|file| file.name.starts_with("recipients"));
    let known: String = known.map(|file| &*file.content).collect();
    assert!(
        known.contains("info@ x\n") && known.contains("joe@ x\n") && !toml.contains("aliases"),
        "{known}"
    );
    assert!(toml.contains("to = [\"mx.test\"]\nunless") && !toml.contains("users ="), "{toml}");
}

#[test]
fn a_domain_behind_an_exclamation_mark_is_left_out_of_tables_too() {
    let main = "mydestination = localhost\nrelay_domains = !b.example, inline:{a.example=x b.example=x}\n\
         parent_domain_matches_subdomains =\n";
    let toml = converted(main, ACCOUNTS).0;
    assert!(toml.contains("domains = [\"a.example\"]\nmx = true"), "{toml}");
}

#[test]
fn a_domain_in_two_lists_is_of_the_first_that_postfix_asks() {
    let main = "myhostname = mx.test\nmydestination = mx.test\nrelay_domains = a.example, b.example\n\
         parent_domain_matches_subdomains =\nvirtual_alias_domains = a.example\n";
    let toml = converted(main, ACCOUNTS).0;
    assert!(toml.contains("domains = [\"b.example\"]\nmx = true"), "{toml}");
    assert!(toml.contains("domains = [\"mx.test\", \"a.example\"]\nmbox"), "{toml}");
}

#[test]
fn the_first_table_with_an_address_has_its_next_hop() {
    let main = "mydestination = localhost\n\
         transport_maps = inline:{a@b.example=smtp:[10.0.0.1]}, inline:{A@b.example=smtp:[10.0.0.2]}\n";
    let toml = converted(main, ACCOUNTS).0;
    assert!(toml.contains("smarthost = \"10.0.0.1:25\"") && !toml.contains("10.0.0.2"), "{toml}");
}

#[test]
fn a_table_with_each_key_is_for_its_own_domains() {
    let main = "myhostname = mx.test\nmydestination = mx.test\nrelay_domains = relay.example\n\
         relay_recipient_maps = static:x\ndefault_transport = local:\n";
    let (draft, _) = convert(main.as_bytes(), MASTER, "/etc/postfix", &MemoryFiles(ACCOUNTS));
    let toml = draft.as_toml();
    assert!(!toml.contains("regex:static"), "{toml}");
    assert!(toml.contains("regex:local-domains-with-all-users"), "{toml}");
}

#[test]
fn an_open_relay_is_told_and_the_result_passes_the_check() {
    let lists = "mydestination = localhost\nsmtpd_relay_restrictions = check_client_access cidr:/c, reject_unauth_destination\n";
    let (toml, report) = converted(lists, &[("/c", "0.0.0.0/0 OK\n"), ("/etc/passwd", "joe:x:1:1::/:\n")]);
    assert!(!toml.contains("0.0.0.0/0"), "{toml}");
    assert!(report.to_string().contains("0.0.0.0/0 would make an open relay"), "{report}");
}

#[test]
fn what_differs_is_told_with_its_setting() {
    for (setting, told) in [
        ("smtp_generic_maps = regexp:/etc/postfix/patterns, inline:{a@b.example=c@d.example}", "changed"),
        ("canonical_maps = regexp:/etc/postfix/patterns, inline:{a@b.example=c@d.example}", "changed"),
        ("recipient_bcc_maps = inline:{info=c@d.example}", "changed"),
        ("transport_maps = regexp:/etc/postfix/patterns", "rerouted"),
        ("default_transport = local:", "accepted"),
        ("smtp_fallback_relay = [10.0.0.1]", "rerouted"),
        ("recipient_delimiter = +-", "refused"),
        ("smtpd_reject_unlisted_sender = yes", "accepted"),
        ("smtpd_reject_unlisted_recipient = no", "refused"),
        ("mailbox_size_limit = 1000", "accepted"),
        ("postscreen_access_list = permit_mynetworks, cidr:/etc/postfix/clients", "accepted"),
        ("disable_dns_lookups = yes", "rerouted"),
        ("myorigin = other.example", "rerouted"),
        ("fallback_transport = smtp:[10.0.0.1]", "rerouted"),
        ("mailbox_transport_maps = inline:{box=lmtp:unix:x}", "rerouted"),
        ("canonical_classes = envelope_sender", "changed"),
        ("authorized_submit_users = root", "opened"),
        ("smtpd_tls_chain_files = /nonexistent", "refused"),
        ("inet_interfaces = mx.test", "refused"),
        (
            "smtp_sasl_auth_enable = yes\nrelayhost = [10.0.0.1]\nsmtp_sasl_password_maps = hash:/nonexistent",
            "refused",
        ),
    ] {
        let main =
            format!("myhostname = mx.test\nmydestination = mx.test\nrecipient_delimiter = +\n{setting}\n");
        let report = converted(&main, ACCOUNTS).1.to_string();
        let name = setting.lines().last().unwrap().split(' ').next().unwrap();
        let is_it = |line: &str| line.starts_with(told) && line.contains(&format!(" {name}: "));
        assert!(report.lines().any(is_it), "{setting}: {report}");
    }
}

#[test]
fn what_is_switched_off_is_told_no_more_than_what_is_not_there() {
    let (_, report) = converted(
        "mydestination = mx.test\nsmtpd_reject_unlisted_sender = no\nmailbox_size_limit = 0\ncontent_filter =\nmasquerade_domains =\n",
        ACCOUNTS,
    );
    assert_eq!(report.mapped_count(), 5, "{report}");
}

#[test]
fn mail_without_tls_is_refused_where_postfix_wants_tls() {
    let converted = |main: &str, master: &str| {
        let main = format!("{HERE}inet_protocols = ipv4\n{main}");
        let (draft, report) =
            convert(main.as_bytes(), master.as_bytes(), "/etc/postfix", &MemoryFiles(ACCOUNTS));
        assert!(!report.to_string().contains("smtpd_tls_security_level"), "{report}");
        draft.as_toml()
    };
    let services = |level: &str| {
        format!(
            "smtp inet n - y - - smtpd\nsubmission inet n - y - - smtpd\n  -o smtpd_tls_security_level={level}\n"
        )
    };
    let has = |toml: &str, port: u16, tls: &str| {
        toml.contains(&format!("tls = \"{tls}\"\naddress = \"0.0.0.0:{port}\""))
    };
    for (main, at_25, of_587, at_587) in [
        ("smtpd_tls_security_level = encrypt\n", "required", "may", "starttls"),
        ("smtpd_enforce_tls = yes\n", "required", "may", "starttls"),
        ("smtpd_tls_security_level = may\n", "starttls", "encrypt", "required"),
        ("", "off", "encrypt", "required"),
    ] {
        let toml = converted(main, &services(of_587));
        assert!(has(&toml, 25, at_25) && has(&toml, 587, at_587), "{main}{toml}");
    }
}

#[test]
fn names_without_an_account_go_to_the_fallback_transport_by_a_rule() {
    let main = format!(
        "{HERE}fallback_transport = smtp:[10.0.0.1]\nvirtual_alias_maps = inline:{{sales@mx.example.com=joe}}\n\
         mailbox_transport_maps = inline:{{box=lmtp:[10.0.0.2]:24, x@mx.example.com=smtp:[10.0.0.3]}}\n"
    );
    let (draft, _) = convert(main.as_bytes(), MASTER, "/etc/postfix", &MemoryFiles(ACCOUNTS));
    let toml = draft.as_toml();
    for line in [
        "to = [\"box@mx.example.com\"]\nroute = \"mailbox-transport-maps-box\"",
        "name = \"mailbox-transport-maps-box\"\nlmtp = \"10.0.0.2:24\"",
        "to = [\"mx.example.com\"]\nunless = { to = [\"postmaster@*\", \"text:recipients-1\", \"text:recipients-2\", \"text:recipients-3\"] }\nroute = \"fallback-transport\"",
        "name = \"fallback-transport\"\nsmarthost = \"10.0.0.1:25\"",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }
    assert!(!toml.contains("10.0.0.3"), "local(8) asks for names without a domain: {toml}");
    let known = draft.files.iter().filter(|file| file.name.starts_with("recipients"));
    let known: Vec<&str> = known.map(|file| &*file.content).collect();
    assert_eq!(known, ["joe@ x\nann@ x\n", "info@ x\n", "sales@mx.example.com x\n"]);
}

#[test]
fn only_what_postfix_does_not_know_is_unknown() {
    let (_, report) = converted(
        "mydestination = localhost\nmy_hub = x\nrelayhost = $my_hub\naddress_verify_poll_count = 3\nslow_delivery_slot_cost = 5\ntypo = 1\n",
        ACCOUNTS,
    );
    let unknown: Vec<_> = report.entries.iter().filter(|entry| entry.verdict == Verdict::Unknown).collect();
    assert_eq!(unknown.len(), 1, "{report}");
    assert_eq!(unknown[0].name, "typo");
}

#[test]
fn local_domains_of_a_map_have_a_route_and_the_accounts_of_the_machine() {
    let main = "myhostname = mx.test\nmydestination = proxy:mysql:/etc/postfix/d.cf\n";
    let (toml, report) = converted(main, ACCOUNTS);
    assert!(toml.contains("domains = [\"map:d\", \"mx.test\"]\nmbox"), "{toml}");
    assert!(toml.contains("users = [\"postmaster\", \"accounts:/etc/passwd\"]"), "{toml}");
    let text = report.to_string();
    assert!(text.contains("refused  main.cf:2 mydestination: aliases apply only to domains"), "{text}");
}

#[test]
fn the_accounts_of_a_machine_with_a_directory_are_those_of_all_services() {
    let main = "myhostname = mx.test\nmydestination = mx.test\n";
    for (services, map) in [("files sss", "accounts:nss"), ("files systemd", "accounts:/etc/passwd")] {
        let switch = format!("passwd: {services}\n").leak();
        let files = [ACCOUNTS, &[("/etc/nsswitch.conf", &*switch)]].concat();
        let toml = converted(main, files.leak()).0;
        assert!(toml.contains(&format!("users = [\"postmaster\", \"{map}\"]")), "{toml}");
    }
}

#[test]
fn a_transport_has_the_address_the_name_and_the_tls_of_its_service() {
    let master = b"smtp inet n - y - - smtpd\nout unix - - n - - smtp\n  -o smtp_bind_address=10.0.0.9\n  -o smtp_helo_name=out.test\n  -o smtp_tls_security_level=encrypt\n";
    let main = "mydestination = localhost\nsmtp_tls_security_level = may\ntransport_maps = inline:{far.example=out:}\n";
    let (draft, report) = convert(main.as_bytes(), master, "/etc/postfix", &MemoryFiles(ACCOUNTS));
    let route = "source_address = \"10.0.0.9\"\nehlo_name = \"out.test\"\nmx = true\ntls = \"require\"";
    assert!(draft.as_toml().contains(route), "{}", draft.as_toml());
    assert!(!report.to_string().contains("master.cf"), "{report}");
}

#[test]
fn mail_for_a_program_of_a_user_who_is_not_there_is_held() {
    let toml = |user: &str| {
        let master = format!("smtp inet n - y - - smtpd\nbox unix - n n - - pipe user={user} argv=/bin/x\n");
        let main = b"mydestination = mx.test\ntransport_maps = inline:{far.example=box:}\n";
        convert(main, master.as_bytes(), "/etc/postfix", &MemoryFiles(ACCOUNTS)).0.as_toml()
    };
    assert!(toml("joe").contains("user = \"joe\""), "{}", toml("joe"));
    assert!(toml("vmail").contains("domains = [\"far.example\"]\nhold = true"), "{}", toml("vmail"));
}

#[test]
fn next_hops_see_the_certificate_of_the_smtp_client() {
    let two = "smtp_tls_cert_file = /mx.pem\nsmtp_tls_key_file = /mx.key\n";
    for main in [two, "smtp_tls_chain_files = /mx.key, /mx.pem\n"] {
        let toml = converted(main, &[("/mx.pem", "x"), ("/mx.key", "x")]).0;
        assert!(toml.contains("p_key = \"/mx.key\"") && toml.contains("te = \"/mx.pem\""), "{toml}");
    }
}
