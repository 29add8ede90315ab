use super::*;
use crate::Verdict;
use crate::memory_files::MemoryFiles;

fn holds(toml: &str, lines: &[&str]) {
    for line in lines {
        assert!(toml.contains(line), "{line}: {toml}");
    }
}

#[test]
fn debians_answers_are_mapped() {
    let files = MemoryFiles(&[
        ("/etc/passwd", "root:x:0:0::/:\njoe:x:1:1::/:\n"),
        ("/etc/aliases", "a: joe\n"),
        ("/etc/exim4/passwd.client", "# c\n*.isp.example:bob:sec:ret\n"),
    ]);
    let file = b"# c\ndc_eximconfig_configtype='smarthost'\ndc_other_hostnames='a.test;b.test'\n\
        dc_local_interfaces='127.0.0.1 ; ::1'\ndc_relay_nets='192.0.2.0/24'\ndc_smarthost='mail.isp.example::587'\n\
        dc_localdelivery='mail_spool'\ndc_hide_mailname='true'\nother='1'\n";
    let (draft, report) = convert(None, Some(file), &files).unwrap();
    holds(
        &draft.as_toml(),
        &[
            "domains = [\"mx.test\", \"localhost\", \"a.test\", \"b.test\"]",
            "users = [\"postmaster\", \"root\", \"joe\"]",
            "address = \"127.0.0.1:25\"",
            "address = \"[::1]:25\"",
            "networks = [\"192.0.2.0/24\", \"127.0.0.1\", \"::1\"]",
            "mbox = \"/var/mail/{local}\"",
            "smarthost = \"mail.isp.example:587\"",
            "login = { user = \"bob\", secret = \"file:mail.isp.example.secret\" }",
            "aliases = [\"aliases:/etc/aliases\"]",
        ],
    );
    assert_eq!(draft.files[0].content, "sec:ret\n");
    assert!(report.entries.iter().any(|entry| entry.name == "other" && entry.verdict == Verdict::Unknown));
    assert_eq!(names(None, Some(file), &files).qualify_domain, "mx.test");
}

#[test]
fn common_routers_and_transports_are_routes() {
    let files = MemoryFiles(&[
        ("/etc/passwd", "joe:x:1:1::/:\n"),
        ("/etc/aliases", "a: joe\n"),
        ("/etc/virtual", "info@a.test: joe\n"),
    ]);
    let file = b"primary_hostname = mx.test\ndomainlist local_domains = @ : a.test\nhostlist relay_from_hosts = 127.0.0.1 : 10.0.0.0/8\n\
        daemon_smtp_ports = 25 : 465\ntls_on_connect_ports = 465\nmessage_size_limit = 20M\nacl_smtp_rcpt = acl_check_rcpt\nav_scanner = x\nmystery = 1\n\
        begin acl\nacl_check_rcpt:\n  accept hosts = :\n  accept hosts = +relay_from_hosts\n    control = submission\n  deny dnslists = bl.test\n  deny message = relay not permitted\n\
        begin routers\npartner:\n  driver = manualroute\n  route_list = p.test hub.test::26 byname ; *.q.test hub.test\n  transport = smart\n\
        virtual:\n  driver = redirect\n  data = ${lookup{$local_part@$domain}lsearch{/etc/virtual}}\n\
        system_aliases:\n  driver = redirect\n  data = ${lookup{$local_part}lsearch{/etc/aliases}}\n\
        dovecot:\n  driver = accept\n  domains = a.test\n  transport = lmtp\nlocal_user:\n  driver = accept\n  check_local_user\n  transport = spool\n\
        rest:\n  driver = manualroute\n  domains = ! +local_domains\n  route_data = mail.isp.example\n  transport = smart\n\
        begin transports\nsmart:\n  driver = smtp\n  port = 587\n  hosts_require_auth = *\n  hosts_require_tls = *\nlmtp:\n  driver = lmtp\n  socket = /run/dovecot/lmtp\n\
        spool:\n  driver = appendfile\n  file = /var/mail/$local_part\nbegin retry\n* * F,2h,15m; G,16h,1h,1.5; F,4d,6h\n\
        begin authenticators\nlogin:\n  driver = plaintext\n  public_name = LOGIN\n  client_send = : user : pass\n";
    let (draft, report) = convert(Some(file), None, &files).unwrap();
    holds(
        &draft.as_toml(),
        &[
            "domains = [\"p.test\"]\nsmarthost = \"hub.test:26\"",
            "domains = [\"*.q.test\"]\nsmarthost = \"hub.test:587\"",
            "domains = [\"a.test\"]\nlmtp = \"unix:/run/dovecot/lmtp\"",
            "domains = [\"mx.test\"]\nmbox = \"/var/mail/{local}\"",
            "domains = [\"*\"]\nsmarthost = \"mail.isp.example:587\"\ntls = \"require\"\nlogin = { user = \"user\"",
            "max_message_size = 20971520",
            "tls = \"implicit\"\naddress = \"0.0.0.0:465\"",
            "retry_min = \"15m\"",
            "expire = \"4d\"",
        ],
    );
    assert!(draft.files.iter().any(|file| file.name == "virtual" && file.content == "info@a.test joe\n"));
    let text = report.to_string();
    for line in [
        "acl_check_rcpt: deny dnslists = bl.test: rules cannot check dnslists = bl.test",
        "av_scanner: write [filter.NAME]",
        "unknown  exim.conf:9 mystery",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn files_of_a_debian_site_are_routes_rules_and_addresses() {
    let files = MemoryFiles(&[
        ("/etc/passwd", "joe:x:1:1::/:\n"),
        ("/etc/exim4/hubbed_hosts", "p.test: hub.test::26\n*.q.test: old.test : other.test\n"),
        ("/etc/exim4/local_sender_blacklist", "*@bad.test\n"),
        ("/etc/exim4/local_host_whitelist", "192.0.2.7\n"),
        (
            "/etc/exim4/conf.d/main/02_options",
            "domainlist local_domains = MAIN_LOCAL_DOMAINS\ndomainlist relay_to_domains = MAIN_RELAY_TO_DOMAINS\n\
             hostlist relay_from_hosts = MAIN_RELAY_NETS\nacl_smtp_rcpt = acl_check_rcpt\n",
        ),
        ("/etc/exim4/conf.d/acl/00_header", "begin acl\n"),
        (
            "/etc/exim4/conf.d/acl/30_rcpt",
            "exceptions:\n  accept hosts = ${if exists{CONFDIR/local_host_whitelist}{CONFDIR/local_host_whitelist}{}}\n\
             acl_check_rcpt:\n  accept hosts = :\n  accept local_parts = postmaster\n    domains = +local_domains : +relay_to_domains\n\
             \x20 accept hosts = +relay_from_hosts\n    control = submission/sender_retain\n  accept authenticated = *\n\
             \x20 require message = relay not permitted\n    domains = +local_domains : +relay_to_domains\n  require verify = recipient\n\
             \x20 deny !acl = exceptions\n    senders = ${if exists{CONFDIR/local_sender_blacklist}{CONFDIR/local_sender_blacklist}{}}\n\
             \x20   message = $sender_address is blocked\n  deny !acl = exceptions\n    hosts = ${if exists{CONFDIR/none}{CONFDIR/none}{}}\n  accept\n",
        ),
        ("/etc/exim4/conf.d/router/00_header", "begin routers\n"),
        (
            "/etc/exim4/conf.d/router/350_vdom",
            "vdom_aliases:\n  driver = redirect\n  domains = dsearch;CONFDIR/virtual\n\
             \x20 data = ${expand:${lookup{$local_part}lsearch*@{CONFDIR/virtual/$domain_data}}}\n",
        ),
        (
            "/etc/exim4/conf.d/router/150_hosts",
            "hubbed_hosts:\n  driver = manualroute\n  domains = \"${if exists{CONFDIR/hubbed_hosts}{partial-lsearch;CONFDIR/hubbed_hosts}fail}\"\n\
             \x20 route_data = ${lookup{$domain}partial-lsearch{CONFDIR/hubbed_hosts}}\n  transport = remote_smtp\n\
             dnslookup:\n  driver = dnslookup\n  domains = ! +local_domains\n  transport = remote_smtp\n",
        ),
        (
            "/etc/exim4/conf.d/router/900_local_user",
            "procmail:\n  driver = accept\n  transport = procmail_pipe\n  require_files = x:+/usr/bin/procmail\n\
             local_user:\n  driver = accept\n  check_local_user\n  transport = LOCAL_DELIVERY\n",
        ),
        (
            "/etc/exim4/conf.d/transport/00_header",
            "begin transports\nremote_smtp:\n  driver = smtp\nmail_spool:\n  driver = appendfile\n  file = /var/mail/$local_part_data\n",
        ),
        ("/etc/exim4/virtual/v.test", "info: joe\nboss: :fail: No such person\n*: rest@far.test\n"),
    ]);
    let file = b"dc_eximconfig_configtype='internet'\ndc_other_hostnames='v.test'\ndc_relay_domains='p.test;r.test'\ndc_use_split_config='true'\n";
    let (draft, report) = convert(None, Some(file), &files).unwrap();
    holds(
        &draft.as_toml(),
        &[
            "domains = [\"p.test\"]\nsmarthost = \"hub.test:26\"",
            "domains = [\"q.test\", \"*.q.test\"]\nsmarthost = \"old.test:25\"\ntls = \"may\"\nfallback = [\"other.test:25\"]",
            "domains = [\"r.test\"]\nmx = true",
            "domains = [\"mx.test\", \"localhost\", \"v.test\", \"regex:relay-domains\"]",
            "networks = [\"127.0.0.1\", \"::1\"]",
            "client = [\"192.0.2.7\"]\nunless = { tagged = [\"rcpt-1\", \"rcpt-2\"] }\ntag = [\"rcpt-1\"]",
            "from = [\"bad.test\"]\nunless = { tagged = [\"rcpt-1\"] }\nreject = \"550 5.7.1 {from} is blocked\"",
            "to = [\"boss@v.test\"]\nreject = \"550 5.1.1 No such person\"",
        ],
    );
    let of = |name: &str| &*draft.files.iter().find(|file| file.name == name).unwrap().content;
    assert_eq!(of("virtual"), "info@v.test joe\n@v.test rest@far.test\n");
    assert!(report.to_string().contains("router procmail: there is no /usr/bin/procmail"), "{report}");
}

/// Returns what is made of statements of `acl_smtp_rcpt`, with some lists.
fn of_statements(acl: &str) -> (String, Report) {
    let files =
        MemoryFiles(&[("/etc/blocked", "*@bad.test:\n"), ("/etc/hosts.deny", "192.0.2.0/24\n!192.0.2.9\n")]);
    let conf = format!(
        "primary_hostname = mx.test\ndomainlist local_domains = mx.test\ndomainlist relay_to_domains = p.test\n\
         hostlist relay_from_hosts = 10.0.0.0/8\nhostlist friends = 10.1.0.0/16\nacl_smtp_rcpt = check\nbegin acl\ncheck:\n{acl}"
    );
    let (draft, report) = convert(Some(conf.as_bytes()), None, &files).unwrap();
    (draft.as_toml(), report)
}

#[test]
fn statements_are_rules_in_their_order() {
    let (toml, report) = of_statements(
        "accept hosts = :\naccept local_parts = postmaster\n domains = +local_domains\n\
         deny message = $sender_address is blocked\n senders = lsearch*@;/etc/blocked\naccept hosts = +relay_from_hosts\n\
         defer hosts = /etc/hosts.deny\nrequire domains = +local_domains : +relay_to_domains\nrequire verify = recipient\naccept\n",
    );
    holds(
        &toml,
        &[
            "networks = [\"10.0.0.0/8\"]",
            "to = [\"postmaster@mx.test\"]\naccept = true",
            "from = [\"bad.test\"]\nreject = \"550 5.7.1 {from} is blocked\"",
            "client = [\"192.0.2.0/24\"]\ndefer = \"450 4.7.1 Access denied\"",
        ],
    );
    assert_eq!(toml.matches("[[rule]]").count(), 3, "{toml}");
    assert_eq!(report.effects.len(), 1, "{report}");
    assert!(report.to_string().contains("users that do not exist in mx.test is refused at once"), "{report}");
}

#[test]
fn conditions_of_one_kind_exceptions_and_inner_lists_hold_together() {
    let (toml, _) = of_statements(
        "deny hosts = !+friends\n domains = +local_domains\n local_parts = boss : staff\n\
         drop hosts = 192.0.2.0/24\n hosts = 192.0.0.0/16\ndeny !acl = inner\n senders = !x@b.test : b.test\n\
         accept domains = +local_domains\n endpass\n senders = :\ninner:\naccept hosts = 10.2.0.0/16\n",
    );
    holds(
        &toml,
        &[
            "to = [\"boss@mx.test\", \"staff@mx.test\"]\nunless = { client = [\"10.1.0.0/16\"] }\nreject",
            "client = [\"192.0.0.0/16\"]\ntag = [\"rcpt-1\"]",
            "client = [\"192.0.2.0/24\"]\ntagged = [\"rcpt-1\"]\nreject",
            "client = [\"10.2.0.0/16\"]\nunless = { tagged = [\"rcpt-2\", \"rcpt-3\"] }\ntag = [\"rcpt-2\"]",
            "from = [\"b.test\"]\nunless = { tagged = [\"rcpt-2\"], from = [\"x@b.test\"] }\nreject",
            "to = [\"mx.test\"]\nfrom = [\"<>\"]\naccept = true",
            "to = [\"mx.test\"]\nreject",
            "# the end of check\n",
        ],
    );
}

#[test]
fn what_cannot_be_read_never_opens_and_is_told() {
    let (toml, report) = of_statements(
        "deny hosts = !+unknown : 192.0.2.0/24\naccept condition = ${if x}\ndeny dnslists = x.test\n\
         accept hosts = 10.0.0.0/8\n senders = x@mx.test\naccept senders = y@mx.test\ndeny\n",
    );
    holds(
        &toml,
        &[
            "\"10.0.0.0/8\"] # hosts that acl_smtp_rcpt accepts",
            "client = [\"192.0.2.0/24\"]\ndefer = \"450 4.7.1 Access denied\"",
            "client = [\"10.0.0.0/8\"]\nfrom = [\"x@mx.test\"]\naccept = true",
        ],
    );
    let text = report.to_string();
    for line in [
        "refused  exim.conf:9 check: deny hosts = !+unknown : 192.0.2.0/24: cannot read the exception in hosts = !+unknown: mail is deferred",
        "refused  exim.conf:10 check: accept condition = ${if x}: rules cannot check condition = ${if x}: the statement accepts nothing",
        "accepted exim.conf:11 check: deny dnslists = x.test",
        "accept condition = ${if x}: this statement (and perhaps others) lets other clients relay",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn statements_and_not_names_of_lists_say_which_domains_are_taken() {
    let taken = |acl: &str| of_statements(acl).0.contains("regex:relay-domains");
    assert!(taken("require domains = +local_domains : +relay_to_domains\naccept\n"));
    assert!(taken("deny senders = a@b.test\naccept domains = +relay_to_domains\n"));
    assert!(!taken(
        "accept domains = +local_domains\naccept hosts = 10.0.0.0/8\n domains = +relay_to_domains\n"
    ));
    assert!(!taken("deny domains = +relay_to_domains\naccept domains = +relay_to_domains\n"));
}

#[test]
fn options_that_nothing_reads_are_told() {
    let file = b"primary_hostname = mx.test\ntls_certificate = /none\nstrip_trailing_dot = true\nbegin routers\n\
        rest:\n  driver = manualroute\n  route_list = * hub.test\n  transport = smart\n  errors_to = x@mx.test\n\
        begin transports\nsmart:\n  driver = smtp\n  headers_remove = received\n";
    let (draft, report) = convert(Some(file), None, &MemoryFiles(&[])).unwrap();
    let text = report.to_string();
    for line in [
        "changed  exim.conf:9 router rest: errors_to = x@mx.test is not used",
        "changed  exim.conf:13 transport smart: headers_remove = received is not used",
        "refused  exim.conf:2 tls_certificate: cannot read the file",
        "missing  exim.conf:3 strip_trailing_dot: Postrider has no such setting",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!draft.as_toml().contains("tls = \"off\""), "{}", draft.as_toml());
}

#[test]
fn senders_of_a_debian_site_get_the_address_and_the_name_that_others_see() {
    let files = MemoryFiles(&[("/etc/email-addresses", "# c\njoe: joe@isp.test\n")]);
    let answers = "dc_eximconfig_configtype='satellite'\ndc_readhost='a.test'\ndc_hide_mailname='true'\ndc_smarthost='hub.test'\n";
    let (draft, report) = convert(None, Some(answers.as_bytes()), &files).unwrap();
    let generic = &draft.files.iter().find(|file| file.name == "generic").unwrap().content;
    for line in ["joe@mx.test joe@isp.test\n", "@mx.test @a.test\n"] {
        assert!(generic.contains(line), "{line}: {generic}");
    }
    assert!(report.to_string().contains("changed  /etc/email-addresses"), "{report}");
}

#[test]
fn a_client_without_a_name_is_in_no_list_behind_a_name() {
    let rule = |list: &str| {
        let toml = of_statements(&format!("deny hosts = {list}\naccept hosts = 10.0.0.0/8\n")).0;
        toml.contains("client = [\"192.0.2.7\"]\nunless = { client_name = [\"none\"] }")
    };
    assert!(rule("*.x.test : 192.0.2.7"));
    assert!(!rule("192.0.2.7 : *.x.test") && !rule("+ignore_unknown : *.x.test : 192.0.2.7"));
}

#[test]
fn what_comes_to_endpass_is_refused_if_the_list_behind_it_accepts_nothing() {
    let acl = "accept domains = p.test\n senders = x@b.test\n endpass\n acl = inner\naccept domains = +relay_to_domains\n\
               inner:\nrequire hosts = 192.0.2.1\n";
    let toml = of_statements(acl).0;
    holds(&toml, &["to = [\"p.test\"]\nfrom = [\"x@b.test\"]\nreject"]);
}
