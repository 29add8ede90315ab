//! Recipients and next hops that are mapped as Postfix has them.

use super::*;

/// Returns the configuration, the report and the content of the files whose names begin with a text.
fn with(settings: &str, files: &'static [(&'static str, &'static str)], names: &str) -> [String; 3] {
    let main = format!("myhostname = mx.test\n{settings}");
    let (draft, report) = convert(main.as_bytes(), MASTER, "/etc/postfix", &MemoryFiles(files));
    let found = draft.files.iter().filter(|file| file.name.starts_with(names));
    [draft.as_toml(), report.to_string(), found.map(|file| &*file.content).collect()]
}

#[test]
fn patterns_of_domains_are_routes_and_those_of_addresses_rules() {
    let patterns = &[
        ("/etc/passwd", "joe:x:1:1::/:\n"),
        (
            "/t",
            "/^joe@far\\.test$/ smtp:[10.0.0.1]\n/@(.*\\.)?far\\.test$/ smtp:[10.0.0.2]\n/^ann@far\\.test$/ discard:\n/^far\\.test$/ error:\n",
        ),
    ];
    let settings = "mydestination = mx.test\nrecipient_delimiter = +\ntransport_maps = pcre:/t\n";
    let [toml, report, files] = with(settings, patterns, "transport");
    for line in [
        "to = [\"joe@far.test\"]\nunless = { to = [\"regex:with-details-1\"] }\nroute = \"transport-0\"",
        "domains = [\"regex:transport-1\"]\nsmarthost = \"10.0.0.2:25\"",
        "discard = true",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }
    assert!(files.starts_with("/^(.*\\.)?far\\.test$/ x\n"), "{files}");
    assert!(!toml.contains("Address rejected"), "a text that is no address matches nothing: {toml}");
    assert!(!report.contains("rerouted"), "{report}");
}

#[test]
fn a_next_hop_without_a_transport_keeps_that_of_the_class() {
    let settings = "mydestination = mx.test\nrelay_domains = r.test\nparent_domain_matches_subdomains =\nrelay_transport = lmtp:inet:10.0.0.9:24\n\
                    transport_maps = inline:{ {*=:[10.0.0.1]} {@r.test=error:} }\n";
    let [toml, ..] = with(settings, ACCOUNTS, "");
    for line in [
        "domains = [\"mx.test\"]\nmbox",
        "domains = [\"r.test\"]\nlmtp = \"10.0.0.1:24\"",
        "domains = [\"*\"]\nsmarthost = \"10.0.0.1:25\"",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }
}

#[test]
fn domains_with_another_transport_have_no_aliases_and_those_of_local_have() {
    let settings = "mydestination = mx.test, b.test\nrelay_domains = r.test\nparent_domain_matches_subdomains =\n\
                    transport_maps = inline:{{b.test=smtp:[10.0.0.1]} {r.test=local:}}\n";
    let [toml, report, elsewhere] = with(settings, ACCOUNTS, "domains-elsewhere");
    assert!(toml.contains("domains = [\"mx.test\", \"r.test\", \"regex:domains-elsewhere\"]"), "{toml}");
    assert_eq!(elsewhere, "/^b\\.test$/ x\n");
    assert!(!report.contains("rerouted") && !report.contains("accepted "), "{report}");
}

#[test]
fn a_pattern_of_a_domain_that_is_no_address_leaves_its_mail_here() {
    let files = &[
        ("/etc/passwd", "joe:x:1:1::/:\n"),
        ("/p", "/^mx\\.test$/ smtp:[10.0.0.1]\n/@b\\.test$/ smtp:[10.0.0.1]\n"),
    ];
    let [toml, ..] = with("mydestination = mx.test, b.test\ntransport_maps = pcre:/p\n", files, "");
    assert!(toml.contains("domains = [\"mx.test\", \"regex:domains-elsewhere\"]"), "{toml}");
}

#[test]
fn relocated_addresses_and_unknown_users_are_refused_or_sent_on() {
    let settings = "mydestination = mx.test\nlocal_recipient_maps =\nluser_relay = $user@far.test\n\
                    relocated_maps = inline:{{old@mx.test=new@far.test} {gone=x@far.test}}\n";
    let [toml, report, files] = with(settings, ACCOUNTS, "");
    assert!(toml.contains("reject = \"550 5.1.6 User has moved to {text}\""), "{toml}");
    assert!(toml.contains("virtual = [\"regex:luser-1\"]"), "{toml}");
    for line in [
        "old@mx.test new@far.test\ngone@mx.test x@far.test\n",
        "/^(ann|info|joe|postmaster)()@(mx\\.test)$/ ${1}${2}@${3}\n/^([^@\"]+)()@(mx\\.test)$/ ${1}@far.test\n",
    ] {
        assert!(files.contains(line), "{line}: {files}");
    }
    assert!(!report.contains("accepted ") && !report.contains("rerouted"), "{report}");
    let unknown = format!("{settings}virtual_alias_maps = mysql:/x\n");
    let report = &with(&unknown, ACCOUNTS, "")[1];
    assert!(report.contains("accepted main.cf:5 relocated_maps: left out"), "{report}");
}

#[test]
fn details_are_treated_as_postfix_treats_them() {
    let files = &[("/etc/passwd", "joe:x:1:1::/:\n"), ("/p", "/^joe@mx\\.test$/ ann@mx.test\n")];
    let settings = "mydestination = mx.test\nrecipient_delimiter = +\nvirtual_alias_maps = regexp:/p\n\
                    smtp_generic_maps = inline:{joe@mx.test=j.smith@far.test}\n";
    let [toml, report, found] = with(settings, files, "");
    assert!(toml.contains("virtual = [\"regex:/p\", \"regex:details-1\"]"), "{toml}");
    assert!(found.contains("/^joe[+][^@]*@(mx\\.test)$/ j.smith@far.test\n"), "{found}");
    assert!(!report.contains("changed"), "{report}");
}

#[test]
fn the_fallback_is_for_each_route_by_smtp_and_names_are_at_the_origin() {
    let settings = "mydestination = b.test\nmyorigin = o.test\nsmtp_fallback_relay = [10.0.0.9]\n\
                    virtual_alias_maps = inline:{info@b.test=joe}\nrelayhost = [10.0.0.1]\ntransport_maps = inline:{far.test=smtp:[10.0.0.2]}\n";
    let [toml, _, found] = with(settings, ACCOUNTS, "virtual-alias-maps");
    assert_eq!(toml.matches("fallback = [\"10.0.0.9:25\"]").count(), 2, "{toml}");
    assert_eq!(found, "info@b.test joe@o.test\n");
}

#[test]
fn a_domain_that_the_table_leaves_as_it_is_has_the_relay_hosts_of_senders() {
    let settings = "mydestination = mx.test\ntransport_maps = inline:{far.test=:}\n\
                    sender_dependent_relayhost_maps = inline:{a@from.test=[10.0.0.1]}\n";
    let [toml, ..] = with(settings, ACCOUNTS, "");
    let route = "domains = [\"far.test\"]\nsenders = [\"a@from.test\"]\nsmarthost = \"10.0.0.1:25\"";
    assert!(toml.find(route).unwrap() < toml.find("domains = [\"far.test\"]\nmx = true").unwrap(), "{toml}");
}

#[test]
fn patterns_of_one_domain_are_names_without_subdomains() {
    let files = &[("/etc/passwd", "joe:x:1:1::/:\n"), ("/p", "/^r\\.test$/ x\n")];
    let [_, _, domains] =
        with("mydestination = mx.test\nrelay_domains = pcre:/p, s.test\n", files, "relay-domains");
    assert_eq!(domains, "/^r\\.test$/ x\n/^(.*\\.)?s\\.test$/ x\n");
    let both = "mydestination = mx.test\nrelay_domains = pcre:/p, r.test\n";
    assert_eq!(with(both, files, "relay-domains")[2], "/^(.*\\.)?r\\.test$/ x\n");
}

#[test]
fn rules_are_for_clients_that_a_table_lets_relay_too() {
    let settings = "mydestination = mx.test\nmynetworks = 127.0.0.0/8\nsmtpd_recipient_restrictions = check_recipient_access inline:{a@mx.test=REJECT}\n\
                    smtpd_relay_restrictions = check_client_access inline:{192.0.2=OK}, permit_mynetworks, reject\n";
    let [toml, ..] = with(settings, ACCOUNTS, "");
    assert!(toml.contains("networks = [\"127.0.0.0/8\", \"192.0.2.0/24\"]"), "{toml}");
    let rule = &toml[toml.find("to = [\"a@mx.test\"]").unwrap()..];
    assert!(!rule[..rule.find("reject").unwrap()].contains("client"), "{toml}");
}

#[test]
fn addresses_to_which_aliases_lead_must_be_listed() {
    let settings =
        "mydestination = mx.test\nrelay_domains = r.test\nrelay_recipient_maps = inline:{a@r.test=x}\n";
    let of = |target: &str| {
        let settings = format!("{settings}virtual_alias_maps = inline:{{info@mx.test={target}}}\n");
        with(&settings, ACCOUNTS, "")[1].clone()
    };
    let told = "refused  main.cf:4 relay_recipient_maps: this list must also have b@r.test";
    assert!(of("b@r.test").contains(told), "{}", of("b@r.test"));
    assert!(!of("a@r.test").contains("relay_recipient_maps:"), "{}", of("a@r.test"));
}

#[test]
fn where_every_name_of_other_domains_exists_a_rule_has_the_accounts_and_aliases() {
    let main = "myhostname = mx.test\nmydestination = mx.test\nrelay_domains = mysql:/etc/postfix/d.cf\n";
    let (draft, _) = convert(main.as_bytes(), MASTER, "/etc/postfix", &MemoryFiles(ACCOUNTS));
    let toml = draft.as_toml();
    assert!(!toml.contains("users =") && toml.contains("to = [\"mx.test\"]\nunless = { to = [\"postmaster@*\", \"text:recipients-1\", \"text:recipients-2\"] }"), "{toml}");
    let known = draft.files.iter().filter(|file| file.name.starts_with("recipients"));
    let known: String = known.map(|file| &*file.content).collect();
    assert!(known.contains("joe@ x\n") && known.contains("info@ x\n"), "{known}");
    let (draft, _) = convert(main.as_bytes(), MASTER, "/etc/postfix", &MemoryFiles(&[]));
    assert!(
        !draft.as_toml().contains("User unknown"),
        "accounts that cannot be read are no reason to refuse"
    );
}

#[test]
fn a_key_without_its_certificate_is_no_setting_without_counterpart() {
    let keys = "smtpd_tls_key_file = /k\nsmtp_tls_key_file = /k\n";
    let [toml, report, _] = with(keys, &[("/k", "key")], "");
    assert!(!toml.contains("/k") && report.contains("0 without a counterpart"), "{toml}{report}");
}
