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
