use super::*;
use crate::memory_files::MemoryFiles;

const FILES: MemoryFiles = MemoryFiles(&[
    ("/etc/passwd", "root:x:0:0::/:\njoe:x:1:1::/:\n"),
    ("/etc/mail/local-host-names", "# c\na.test\nold.test\n"),
    ("/etc/mail/relay-domains", "partner.test\n192.0.2\n"),
    (
        "/etc/mail/access",
        "Connect:10.0.0\tRELAY\nFrom:spam@x.test\tREJECT\nTo:gone@a.test ERROR:5.1.1:550 gone\nSrv_Features:1 x\n198.51.100.7 DISCARD\n",
    ),
    ("/etc/mail/virtusertable", "info@a.test joe\n@old.test %1@a.test\nbad@a.test error:nouser no\n"),
    (
        "/etc/mail/mailertable",
        ".p.test smtp:[hub.test]\nlocal.test local:\nodd.test uucp-new:x\nclosed.test error:5.7.0:550 closed for good\n",
    ),
    ("/etc/mail/aliases", "postmaster: root\n"),
]);

#[test]
fn the_macros_of_a_site_are_mapped() {
    let mc = b"OSTYPE(`debian')dnl\ndefine(`confDOMAIN_NAME', `mx.test')dnl\ndefine(`SMART_HOST', `relay:[mail.isp.example]')dnl\n\
        define(`confMAX_MESSAGE_SIZE', `2000000')dnl\nFEATURE(`use_cw_file')dnl\nFEATURE(`access_db')dnl\nFEATURE(`virtusertable')dnl\n\
        FEATURE(`mailertable')dnl\nDAEMON_OPTIONS(`Family=inet, Name=MTA, Port=smtp, Addr=127.0.0.1')dnl\n\
        DAEMON_OPTIONS(`Name=MSA, Port=submission, M=Ea')dnl\nINPUT_MAIL_FILTER(`x', `S=local:/x')dnl\nFEATURE(`mystery')dnl\nFEATURE(`blocklist_recipients')dnl\n";
    let (draft, report) = convert(Some(mc), None, "/etc/mail", &FILES).unwrap();
    let toml = draft.as_toml();
    for line in [
        "domains = [\"mx.test\", \"localhost\", \"a.test\", \"old.test\", \"regex:relay-domains\"]",
        "networks = [\"127.0.0.1\", \"::1\", \"192.0.2.0/24\", \"10.0.0.0/24\"]",
        "tls = \"off\"\naddress = \"127.0.0.1:25\"",
        "from = [\"spam@x.test\"]\nunless = { from = [\"regex:details\"] }\nreject = \"550 5.7.1 Access denied\"",
        "to = [\"gone@a.test\"]\nunless = { to = [\"regex:details\"] }\nreject = \"550 5.1.1 gone\"",
        "client = [\"198.51.100.7\"]\ndiscard = true",
        "domains = [\"*.p.test\"]\nsmarthost = \"hub.test:25\"",
        "domains = [\"mx.test\", \"localhost\", \"a.test\", \"old.test\"]\nmbox",
        "domains = [\"mx.test\", \"localhost\", \"a.test\", \"old.test\"]\nmbox = \"/var/mail/{local}\"",
        "domains = [\"*\"]\nsmarthost = \"mail.isp.example:25\"",
        "max_message_size = 2000000",
        "domains = [\"closed.test\"]\nreject = \"550 5.7.0 closed for good\"",
        "to = [\"bad@a.test\"]\nreject = \"550 5.1.1 no\"",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }
    let of = |name: &str| &draft.files.iter().find(|file| file.name == name).unwrap().content;
    assert_eq!(of("virtual"), "# From virtusertable\ninfo@a.test joe\n@old.test @a.test\n");
    let text = report.to_string();
    for line in [
        "submission listeners are left out",
        "unknown  sendmail.mc:12 FEATURE mystery",
        "uucp-new:x: this mail is held",
        "srv_features:1",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn the_lines_of_sendmail_cf_say_the_same() {
    let cf = b"Djmx.test\nDSrelay:[mail.isp.example]\nFw/etc/mail/local-host-names\nO PidFile=/run/x.pid\n\
        O DaemonPortOptions=Name=MTA-v4, Family=inet, Port=26, Addr=127.0.0.1\nKaccess hash -o /etc/mail/access\n\
        Mrelay,\t\tP=[IPC], F=mDFMuXa8, S=EnvFromSMTP,\n\t\tT=DNS/RFC822/SMTP,\n\t\tA=TCP $h 2600\nO UnknownThing=1\nXfilter, S=local:/x\n";
    let (draft, _) = convert(None, Some(cf), "/etc/mail", &FILES).unwrap();
    let toml = draft.as_toml();
    for line in [
        "address = \"127.0.0.1:26\"",
        "smarthost = \"mail.isp.example:2600\"",
        "\"a.test\"",
        "from = [\"spam@x.test\"]",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }
    assert_eq!(names(cf, &FILES).pid_file.as_deref(), Some("/run/x.pid"));
}

#[test]
fn a_first_line_that_throws_output_away_throws_no_setting_away() {
    let mc = b"divert(-1)dnl\ninclude(`/usr/share/sendmail-cf/m4/cf.m4')dnl\ndefine(`SMART_HOST', `hub.example.net')dnl\nLOCAL_DOMAIN(`example.org')dnl\n";
    let (draft, report) = convert(Some(mc), None, "/etc/mail", &FILES).unwrap();
    let toml = draft.as_toml();
    assert!(
        toml.contains("domains = [\"*\"]\nsmarthost = \"hub.example.net:25\"")
            && toml.contains("\"example.org\""),
        "{toml}"
    );
    assert_eq!(report.entries.len(), 3, "{report}");
    let (_, report) = convert(Some(b"nothing of m4"), None, "/etc/mail", &FILES).unwrap();
    assert!(report.entries.is_empty(), "{report}");
}

#[test]
fn hubs_and_other_mailers_get_the_local_mail() {
    let toml = |mc: &str| convert(Some(mc.as_bytes()), None, "/etc/mail", &FILES).unwrap().0.as_toml();
    let of_hub = toml("define(`MAIL_HUB', `[hub.test]')dnl\n");
    assert!(
        of_hub.contains("\"localhost\"]\nsmarthost = \"hub.test:25\"") && !of_hub.contains("\nusers"),
        "{of_hub}"
    );
    let of_null_client = toml("FEATURE(`nullclient', `hub.test')dnl\n");
    assert_eq!(of_null_client.matches("smarthost = \"hub.test:25\"").count(), 2, "{of_null_client}");
    let of_cyrus = toml("define(`confLOCAL_MAILER', `cyrusv2')dnl\n");
    assert!(of_cyrus.contains("lmtp = \"unix:/var/imap/socket/lmtp\""), "{of_cyrus}");
    assert!(!of_cyrus.contains("\nusers"), "Cyrus has the list of users: {of_cyrus}");
    let of_others = toml("define(`confLOCAL_MAILER', `mymailer')dnl\ndefine(`SMART_HOST', `suucp:odd')dnl\n");
    assert_eq!(of_others.matches("hold = true").count(), 2, "{of_others}");
    let cf =
        b"Djmx.test\nDH[hub.test]\nDSsmtp:[a.test]:[b.test]\n#####  $Id: relay_hosts_only.m4,v 8 ca Exp $\n";
    let (draft, report) = convert(None, Some(cf), "/etc/mail", &FILES).unwrap();
    let toml = draft.as_toml();
    assert!(toml.contains("smarthost = \"a.test:25\"\nfallback = [\"b.test:25\"]"), "{toml}");
    assert!(draft.files.iter().any(|file| file.content.contains("/^partner\\.test$/ x")), "{report}");
}

#[test]
fn the_longest_key_of_the_access_table_decides_for_hosts_that_may_relay_too() {
    const TABLES: MemoryFiles = MemoryFiles(&[(
        "/etc/mail/access",
        "Connect:10 RELAY\nConnect:10.9 REJECT\nConnect:10.9.9.9 RELAY\nspam.test REJECT\nbad/key REJECT\n",
    )]);
    let mc = b"FEATURE(`access_db')dnl\nFEATURE(`blocklist_recipients')dnl\n";
    let (draft, report) = convert(Some(mc), None, "/etc/mail", &TABLES).unwrap();
    let toml = draft.as_toml();
    for line in [
        "for = \"all\"\nlistener = [\"mx\", \"relay\", \"submission\", \"submissions\"]\nclient = [\"10.9.0.0/16\"]\nunless = { client = [\"10.9.9.9\"] }\nreject",
        "for = \"all\"\nlistener = [\"mx\", \"relay\", \"submission\", \"submissions\"]\nclient_name = [\"spam.test\", \"*.spam.test\"]\nreject",
        "for = \"all\"\nlistener = [\"mx\", \"relay\", \"submission\", \"submissions\"]\nfrom = [\"spam.test\", \"*.spam.test\"]\nreject",
        "for = \"all\"\nlistener = [\"mx\", \"relay\", \"submission\", \"submissions\"]\nto = [\"spam.test\", \"*.spam.test\"]\nreject",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }
    assert!(report.to_string().contains("bad/key is not a domain"), "{report}");
}

#[test]
fn virtual_users_that_cannot_be_read_wait_and_those_of_other_domains_do_nothing() {
    const TABLES: MemoryFiles = MemoryFiles(&[(
        "/etc/mail/virtusertable",
        "info@mx.test joe\n@mx.test %1-%2@far.test\n@localhost %1-x@far.test\nboss@mx.test error:5.7.1:550 no\njoe@elsewhere.test ann\n",
    )]);
    let mc = b"FEATURE(`virtusertable')dnl\n";
    let (draft, report) = convert(Some(mc), None, "/etc/mail", &TABLES).unwrap();
    let file = |name: &str| &*draft.files.iter().find(|file| file.name == name).unwrap().content;
    assert_eq!(file("virtual"), "# From virtusertable\ninfo@mx.test joe\n");
    assert_eq!(file("virtual-patterns"), "/^([^+@]+)@localhost$/ ${1}-x@far.test\n");
    let sender = "from = [\"boss@mx.test\"]\nreject = \"550 5.7.1 no\"";
    assert!(draft.as_toml().contains(sender), "{}", draft.as_toml());
    let rule =
        "to = [\"mx.test\"]\nunless = { to = [\"info@mx.test\", \"boss@mx.test\"] }\ndefer = \"451 4.3.5";
    assert!(draft.as_toml().contains(rule), "{}", draft.as_toml());
    let text = report.to_string();
    assert!(
        text.contains("elsewhere.test is not a local domain") && text.contains("%1-%2@far.test"),
        "{text}"
    );
}

#[test]
fn errors_of_the_mailertable_spare_domains_that_are_found_before() {
    const TABLES: MemoryFiles = MemoryFiles(&[(
        "/etc/mail/mailertable",
        "far.test smtp:[hub.test]\n.far.test error:4.7.0:451 later\n. error:5.7.0:550 closed\n",
    )]);
    let mc = b"FEATURE(`mailertable')dnl\ndefine(`SMART_HOST', `[x.test]')dnl\n";
    let (draft, report) = convert(Some(mc), None, "/etc/mail", &TABLES).unwrap();
    let toml = draft.as_toml();
    for line in [
        "from = [\"*.far.test\"]\ndefer = \"451 4.7.0 later\"",
        "to = [\"*\"]\nunless = { to = [\"mx.test\", \"localhost\", \"far.test\", \"*.far.test\"] }\nreject = \"550 5.7.0 closed\"",
        "domains = [\"*.far.test\"]\nhold = true",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }
    assert!(!toml.contains("x.test:25"), "{toml}");
    let text = report.to_string();
    assert!(text.contains("accepted mailertable: . error:5.7.0:550 closed: mail that aliases"), "{text}");
}

#[test]
fn replies_have_a_code_an_enhanced_code_and_a_text() {
    for (error, expected) in [
        ("5.7.0:550 closed for good", "550 5.7.0 closed for good"),
        ("nouser No such user", "550 5.1.1 No such user"),
        ("5.1.1:gone", "550 5.1.1 gone"),
        ("550 {no} \"quotes\"", "550 5.7.1 no quotes"),
        ("tempfail later", "450 4.0.0 later"),
        ("4.2.1:451 later", "451 4.2.1 later"),
        ("nohost", "550 5.1.2 Access denied"),
    ] {
        assert_eq!(reply(error), expected, "{error}");
    }
}

#[test]
fn entries_of_the_access_table_are_rules_with_the_exact_ones_first() {
    const TABLES: MemoryFiles = MemoryFiles(&[(
        "/etc/mail/access",
        "From:bad.test REJECT\nFrom:joe@bad.test OK\nConnect:192.0.2 REJECT\nConnect:192.0.2.7 OK\nTo:x@mx.test REJECT\nSpam:abuse@ FRIEND\n",
    )]);
    let mc = b"FEATURE(`access_db')dnl\nFEATURE(`delay_checks', `friend')dnl\n";
    let (draft, report) = convert(Some(mc), None, "/etc/mail", &TABLES).unwrap();
    let toml = draft.as_toml();
    for line in [
        "for = \"all\"\nlistener = [\"mx\", \"relay\", \"submission\", \"submissions\"]\nto = [\"abuse@mx.test\", \"abuse@localhost\"]\naccept = true",
        "from = [\"joe@bad.test\"]\nunless = { from = [\"regex:details\"] }\naccept = true",
        "client = [\"192.0.2.0/24\"]\nunless = { client = [\"192.0.2.7\"] }\nreject",
        "for = \"all\"\nlistener = [\"mx\", \"relay\", \"submission\", \"submissions\"]\nfrom = [\"bad.test\", \"*.bad.test\"]\nreject",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }
    assert!(!toml.contains("x@mx.test"), "{toml}");
    assert!(report.to_string().contains("To:x@mx.test REJECT has no effect"), "{report}");
}

#[test]
fn without_delay_checks_clients_come_first_and_what_is_discarded_comes_last() {
    const TABLES: MemoryFiles = MemoryFiles(&[(
        "/etc/mail/access",
        "From:a.test DISCARD\nConnect:192.0.2 REJECT\nTo:mx.test ERROR:5.7.1:550 not here\n",
    )]);
    let mc = b"FEATURE(`access_db')dnl\nFEATURE(`blocklist_recipients')dnl\n";
    let toml = convert(Some(mc), None, "/etc/mail", &TABLES).unwrap().0.as_toml();
    let places = ["client = [", "to = [\"mx.test\"", "discard = true"].map(|text| toml.find(text));
    assert!(places.is_sorted() && places[0].is_some(), "{toml}");
}

#[test]
fn the_envelope_is_masqueraded_only_with_the_feature() {
    const TABLES: MemoryFiles = MemoryFiles(&[("/etc/mail/genericstable", "joe joe.smith@a.test\n")]);
    let text = "MASQUERADE_AS(`a.test')dnl\nFEATURE(`genericstable')dnl\nGENERICS_DOMAIN(`mx.test')dnl\nEXPOSED_USER(`root')dnl\n";
    let (draft, report) = convert(Some(text.as_bytes()), None, "/etc/mail", &TABLES).unwrap();
    assert!(draft.files.is_empty() && report.to_string().contains("not imported"), "{report}");
    let text = format!("{text}FEATURE(`masquerade_envelope')dnl\n");
    let (draft, _) = convert(Some(text.as_bytes()), None, "/etc/mail", &TABLES).unwrap();
    let lines = "joe@mx.test joe.smith@a.test\nroot@mx.test root@mx.test\n@mx.test @a.test\nroot@localhost root@localhost\n@localhost @a.test\n";
    assert_eq!(draft.files[0].content, lines);
}

#[test]
fn the_login_at_the_smarthost_is_a_secret_beside_the_configuration() {
    const TABLES: MemoryFiles = MemoryFiles(&[(
        "/etc/mail/authinfo",
        "AuthInfo:mail.isp.example \"U:bob\" \"P:sec ret\" \"M:PLAIN\"\n",
    )]);
    let mc = b"define(`SMART_HOST', `[mail.isp.example]')dnl\nFEATURE(`authinfo')dnl\n";
    let (draft, _) = convert(Some(mc), None, "/etc/mail", &TABLES).unwrap();
    let toml = draft.as_toml();
    assert!(
        toml.contains(
            "tls = \"verify\"\nlogin = { user = \"bob\", secret = \"file:mail.isp.example.secret\" }"
        ),
        "{toml}"
    );
    assert_eq!((&*draft.files[0].content, draft.files[0].is_secret), ("sec ret\n", true));
}

#[test]
fn a_mailer_without_the_flag_w_takes_each_name() {
    for (flags, has_users) in [("lsDFMAw5:/|@qPn9S", true), ("lsDFMnqXz", false)] {
        let cf = format!("Djmx.test\nMlocal, P=/bin/x, F={flags}, A=x\n");
        let toml = convert(None, Some(cf.as_bytes()), "/etc/mail", &FILES).unwrap().0.as_toml();
        assert_eq!(toml.contains("\nusers"), has_users, "{toml}");
    }
    let cf = b"Djmx.test\nR$+\t\t\t$#cyrusv2 $: $1\t\t\tregular local names\nMcyrusv2, P=[IPC], F=lsDFMnqXz, A=FILE /run/lmtp\nC{VirtHost}v.test\n";
    let (draft, report) = convert(None, Some(cf), "/etc/mail", &FILES).unwrap();
    assert!(draft.as_toml().contains("lmtp = \"unix:/run/lmtp\""), "{}", draft.as_toml());
    assert!(report.to_string().contains("the mailer cyrusv2 decides which users exist"), "{report}");
    // Domains with virtual addresses only have no others.
    let users = &draft.files.iter().find(|file| file.name == "relay-users").unwrap().content;
    assert!(users.contains("/@mx\\.test$/ x\n") && !users.contains("v\\.test"), "{users}");
}

#[test]
fn lines_of_local_config_and_files_of_classes_are_read_without_sendmail_cf() {
    const TABLES: MemoryFiles = MemoryFiles(&[
        ("/etc/mail/more", "c.test\n"),
        ("/etc/mail/auth/isp", "AuthInfo:smtp.isp.example \"U:bob\" \"P:x\"\n"),
    ]);
    let mc = b"LOCAL_CONFIG\nCwa.test b.test\nFEATURE(`use_cw_file')dnl\nMAILER_DEFINITIONS\nVIRTUSER_DOMAIN(`v.test')dnl\n\
        RELAY_DOMAIN_FILE(`/etc/mail/more')dnl\ndefine(`SMART_HOST', `[smtp.isp.example.]')dnl\n\
        define(`RELAY_MAILER_ARGS', `TCP $h 587')dnl\nFEATURE(`authinfo', `hash -o /etc/mail/auth/isp.db')dnl\nFEATURE(`require_rdns')dnl\n";
    let (draft, report) = convert(Some(mc), None, "/etc/mail", &TABLES).unwrap();
    let toml = draft.as_toml();
    for line in [
        "\"a.test\", \"b.test\"",
        "text:virtual-domains",
        "smarthost = \"smtp.isp.example:587\"\ntls = \"verify\"\nlogin",
        "reverse_name = \"enforce\"",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }
    let relayed = &draft.files.iter().find(|file| file.name == "relay-domains").unwrap().content;
    assert!(relayed.contains("c\\.test"), "{relayed}");
    assert!(report.to_string().contains("refused  relay-domains: hosts in c.test may not relay"), "{report}");
}

#[test]
fn a_table_without_its_text_makes_mail_wait() {
    const TABLES: MemoryFiles = MemoryFiles(&[("/etc/mail/access.db", "x")]);
    let mc = b"FEATURE(`access_db')dnl\nFEATURE(`authinfo')dnl\n";
    let (draft, report) = convert(Some(mc), None, "/etc/mail", &TABLES).unwrap();
    assert!(draft.as_toml().contains("temporary = true\ndefer = \"451"), "{}", draft.as_toml());
    assert!(
        report.to_string().contains("refused  access_db: the source text of /etc/mail/access is missing"),
        "{report}"
    );
}

#[test]
fn mail_for_unknown_users_goes_where_luser_relay_says() {
    let mc = |relay: &str| format!("define(`LUSER_RELAY', `{relay}')dnl\n");
    let toml =
        |relay: &str| convert(Some(mc(relay).as_bytes()), None, "/etc/mail", &FILES).unwrap().0.as_toml();
    let rule = "unless = { to = [\"text:accounts\", \"postmaster@*\"] }\n";
    let of_host = toml("relay:[hub.test]");
    assert!(of_host.contains(&format!("{rule}route = \"luser-relay\"")), "{of_host}");
    assert!(of_host.contains("name = \"luser-relay\"\nsmarthost = \"hub.test:25\""), "{of_host}");
    assert!(
        toml("local:joe").contains(&format!("{rule}redirect = [\"joe@mx.test\"]")),
        "{}",
        toml("local:joe")
    );
}

#[test]
fn recipients_that_a_hub_gets_with_the_masqueraded_domain_are_told() {
    let mc = "MASQUERADE_AS(`a.test')dnl\nFEATURE(`masquerade_envelope')dnl\ndefine(`MAIL_HUB', `[hub.test]')dnl\n";
    let report = convert(Some(mc.as_bytes()), None, "/etc/mail", &FILES).unwrap().1.to_string();
    assert!(report.contains("changed  MASQUERADE_AS: recipients in local domains"), "{report}");
}

#[test]
fn domains_with_another_name_are_what_that_one_is() {
    const TABLES: MemoryFiles = MemoryFiles(&[
        ("/etc/mail/domaintable", "old.test mx.test\nsub.partner.test far.test\nodd/ mx.test\n"),
        ("/etc/mail/relay-domains", "partner.test\n"),
        ("/etc/mail/access", "To:joe@mx.test REJECT\n"),
    ]);
    let mc = b"FEATURE(`domaintable')dnl\nFEATURE(`access_db')dnl\nFEATURE(`blocklist_recipients')dnl\n";
    let (draft, report) = convert(Some(mc), None, "/etc/mail", &TABLES).unwrap();
    let toml = draft.as_toml();
    for line in [
        "domains = [\"mx.test\", \"localhost\", \"old.test\", \"regex:relay-domains\"]",
        "canonical = [\"text:domains\"]",
        "to = [\"joe@mx.test\", \"joe@old.test\"]",
        "to = [\"far.test\", \"sub.partner.test\"]\nreject = \"550 5.7.1 Relaying denied\"",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }
    assert!(report.to_string().contains("odd/ mx.test: left out"), "{report}");
}

#[test]
fn a_key_of_the_access_table_with_a_tag_hides_the_same_without() {
    const TABLES: MemoryFiles =
        MemoryFiles(&[("/etc/mail/access", "To:far.test OK\nfar.test RELAY\nConnect:10.1 OK\n10.1 RELAY\n")]);
    let (draft, _) = convert(Some(b"FEATURE(`access_db')dnl\n"), None, "/etc/mail", &TABLES).unwrap();
    assert_eq!(draft.list("[relay]", "networks"), ["127.0.0.1", "::1"]);
    assert_eq!(draft.list("[local]", "domains"), ["mx.test", "localhost"]);
}

#[test]
fn virtual_addresses_that_lead_to_an_error_are_refused_as_senders_too() {
    const TABLES: MemoryFiles = MemoryFiles(&[
        ("/etc/mail/mailertable", "far.test error:5.7.0:550 closed\n"),
        ("/etc/mail/virtusertable", "joe@mx.test bob@far.test\nann@localhost joe\n@localhost %1@far.test\n"),
    ]);
    let mc = b"FEATURE(`mailertable')dnl\nFEATURE(`virtusertable')dnl\n";
    let toml = convert(Some(mc), None, "/etc/mail", &TABLES).unwrap().0.as_toml();
    for of in ["from", "to"] {
        let single = format!("{of} = [\"joe@mx.test\"]\nreject = \"550 5.7.0 closed\"");
        let catch_all = format!(
            "{of} = [\"localhost\"]\nunless = {{ {of} = [\"ann@localhost\"] }}\nreject = \"550 5.7.0"
        );
        assert!(toml.contains(&single) && toml.contains(&catch_all), "{toml}");
    }
}

#[test]
fn the_default_login_is_that_of_the_smarthost() {
    const TABLES: MemoryFiles = MemoryFiles(&[("/etc/mail/auth-info", "bob\nbob\nsecret\n")]);
    let mc =
        b"define(`SMART_HOST', `[isp.test]')dnl\ndefine(`confDEF_AUTH_INFO', `/etc/mail/auth-info')dnl\n";
    let (draft, _) = convert(Some(mc), None, "/etc/mail", &TABLES).unwrap();
    assert!(draft.as_toml().contains("user = \"bob\""), "{}", draft.as_toml());
    assert!(draft.files.iter().any(|file| file.content == "secret\n" && file.is_secret));
}

#[test]
fn the_certificate_for_next_hops_and_its_key_are_mapped_from_both_files() {
    const FILES: MemoryFiles = MemoryFiles(&[("/c", "certificate"), ("/k", "key")]);
    let mc: &[u8] = b"define(`confCLIENT_CERT', `/c')dnl\ndefine(`confCLIENT_KEY', `/k')dnl\n";
    let cf: &[u8] = b"V10/Debian\nO ClientCertFile=/c\nO ClientKeyFile=/k\n";
    for (mc, cf) in [(Some(mc), None), (None, Some(cf))] {
        let (draft, report) = convert(mc, cf, "/etc/mail", &FILES).unwrap();
        let toml = draft.as_toml();
        assert!(
            toml.contains("next_hop_certificate = \"/c\"") && toml.contains("next_hop_key = \"/k\""),
            "{toml}"
        );
        assert!(report.to_string().contains("settings: 2 mapped, 0 with a note, 0 without"), "{report}");
    }
}
