//! Access tables, lists in DNS and policy servers.

use super::*;

#[test]
fn access_tables_and_policy_servers_are_rules() {
    let (toml, report) = converted(
        "smtpd_recipient_restrictions = permit_mynetworks, reject_unauth_destination,\n\
         \x20 check_client_access cidr:/etc/postfix/clients, check_sender_access hash:/etc/postfix/senders,\n\
         \x20 reject_non_fqdn_helo_hostname, reject_unknown_client_hostname, reject_rbl_client bl.test,\n\
         \x20 reject_rbl_client codes.test=127.0.0.[2..11;14], reject_rbl_client odd.test=127.0.[1;2].3\n\
         \x20 reject_rhsbl_sender dbl.test=127.0.1.[2..99], reject_rhsbl_helo dbl.test, reject_rhsbl_client dbl.test\n\
         \x20 check_policy_service unix:private/greylist\n",
        &[
            ("/etc/postfix/clients", "192.0.2.66/32 REJECT\n198.51.100.0/24 OK\n"),
            (
                "/etc/postfix/senders",
                "bad@sender.example REJECT\n.bad.example REJECT\nslow@ 450 later\n<> DISCARD\n",
            ),
        ],
    );
    for line in [
        "client = [\"192.0.2.66\"]\nreject = \"554 5.7.1 Access denied\"",
        "from = [\"bad@sender.example\"]\nunless = { client = [\"198.51.100.0/24\"] }",
        "from = [\"slow@*\"]\nunless = { client = [\"198.51.100.0/24\"], from = [\"<>\"] }\ndefer = \"450 4.7.1 later\"",
        "from = [\"<>\"]\nunless = { client = [\"198.51.100.0/24\"] }\ndiscard = true",
        "hello = [\"regex:full-host-names\"]",
        "client_name = [\"none\"]",
        "[policy_service.greylist]",
        "ask = \"greylist\"",
        "dns_list = [\"bl.test\"]\nunless = { client = [\"198.51.100.0/24\"] }\nreject = \"554 5.7.1 Service unavailable; Client host [{client}] blocked using {text}\"",
        "from_dns_list = [\"dbl.test=127.0.1.2-99\"]\nunless = { client = [\"198.51.100.0/24\"] }\nreject = \"554 5.7.1 Service unavailable; Sender address [{from}] blocked using {text}\"",
        "hello_dns_list = [\"dbl.test\"]",
        "client_name_dns_list = [\"dbl.test\"]",
        "dns_list = [\"codes.test=127.0.0.2-11\", \"codes.test=127.0.0.14\"]",
    ] {
        assert!(toml.contains(line), "{line}: {toml}");
    }
    assert!(!toml.contains("bad.example"), "a key with a dot in front is not asked");
    assert!(
        report
            .to_string()
            .contains("accepted main.cf:1 smtpd_recipient_restrictions: reject_rbl_client odd.test"),
        "{report}"
    );
}

/// Found among 10,000 sets of generated lists.
#[test]
fn who_may_relay_is_what_all_lists_together_permit() {
    const OUTSIDE: &[(&str, &str)] = &[
        ("/c", "203.0.113.9 OK\n"),
        ("/n", "far.example OK\n"),
        ("/i", "192.0.2.7 OK\n"),
        ("/s", "bad@from.example 554 5.7.1 no far mail\n"),
    ];
    let of = |lists: &str| {
        let main =
            format!("myhostname = mx.test\nmydestination = mx.test\nmynetworks = 192.0.2.0/24\n{lists}\n");
        let (toml, report) = converted(&main, OUTSIDE);
        (toml, report.to_string())
    };
    // One list lets a client pass that the other one lets relay, and nobody else.
    let (toml, report) = of(
        "smtpd_recipient_restrictions = check_client_access texthash:/i, check_recipient_access static:{REJECT}\n\
         smtpd_relay_restrictions = permit_mynetworks, reject",
    );
    assert!(
        toml.contains("networks = [\"192.0.2.7\"]") && report.contains("only 192.0.2.7 may relay"),
        "{toml} {report}"
    );
    // A name in one table, and an address in another.
    let (_, report) = of(
        "smtpd_client_restrictions = check_client_access texthash:/c, check_client_access static:{550 5.7.1 no}\n\
         smtpd_relay_restrictions = check_client_access texthash:/n, reject",
    );
    assert!(report.contains("lets other clients relay"), "{report}");
    // Another list refuses the domains of others to everybody, whether a table says so at once or for some senders only.
    for table in ["static:{reject_unauth_destination}", "texthash:/s"] {
        let (toml, _) = of(&format!(
            "smtpd_sender_restrictions = permit_auth_destination, check_sender_access {table}\n\
             smtpd_relay_restrictions = check_client_access texthash:/c, reject"
        ));
        let is_closed = !toml.contains("networks = [\"203.0.113.9\"]");
        let is_refused = toml.split("[[rule]]").any(|rule| {
            rule.contains("reject_unauth_destination")
                || rule.contains("554 5.7.1 no far mail") && !rule.contains("untrusted")
        });
        assert!(is_closed || is_refused, "{toml}");
    }
    // Others that a table lets relay change nothing for the networks: what refuses their mail to others stays.
    for table in ["/i", "/c"] {
        let (toml, _) = of(&format!(
            "smtpd_relay_restrictions = permit_auth_destination, reject_unknown_client_hostname, check_client_access texthash:{table}, \
             permit_mynetworks, reject"
        ));
        let rule = toml.split("[[rule]]").find(|rule| rule.contains("client_name = [\"none\"]"));
        assert!(
            rule.is_some_and(|rule| rule.contains("unless = { to = [") && rule.contains("450 4.7.25")),
            "{toml}"
        );
    }
}

#[test]
fn a_class_that_asks_itself_ends_and_defers_mail() {
    let main = "myhostname = mx.test\nmydestination = mx.test\nsmtpd_restriction_classes = a\n\
                a = check_sender_access static:{a}\nsmtpd_recipient_restrictions = a, reject_unauth_destination\n";
    let (toml, _) = converted(main, &[]);
    assert!(toml.contains("defer = \"451 4.3.5"), "{toml}");
}
