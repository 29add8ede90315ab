//! Settings that people know from other mail servers, or look for at another place: what they are here, and what to write.

use toml::de::DeTable;

/// A name that does not exist at its place.
struct Sought {
    /// The section, as in `SectionDoc::name`; empty for what stands before the first one.
    section: &'static str,
    /// Separated by spaces.
    names: &'static str,
    /// What it is here.
    label: &'static str,
    /// What to do about it.
    advice: &'static str,
    /// Lines to write; empty where there is nothing to write. `config check` takes them, if the files exist that they name.
    sample: &'static str,
}

const SMARTHOST: &str =
    "[[route]]\ndomains = [\"*\"]\nsmarthost = \"smtp.example.com:587\"\ntls = \"verify\"";
const ONE_ROUTE: &str = "[[route]]\ndomains = [\"example.com\"]\nsmarthost = \"10.0.0.2:25\"\nverify = true";
const NETWORKS: &str = "[relay]\nnetworks = [\"127.0.0.0/8\", \"::1/128\", \"192.0.2.0/24\"]";
const LISTENER: &str = "[[listen]]\naddress = \"0.0.0.0:25\"";
const NO_LOGINS: &str = "[[listen]]\naddress = \"0.0.0.0:25\"\nauth = false";
const LISTEN_TLS: &str = "[[listen]]\naddress = \"0.0.0.0:25\"\ntls = \"starttls\"";
const CERTIFICATE: &str = "[tls]\ncertificate = \"/etc/postrider/mx.pem\"\nkey = \"/etc/postrider/mx.key\"";
const USERS: &str = "[auth]\nusers = \"passwd:/etc/postrider/users\"";
const ALIASES: &str = "[addresses]\naliases = [\"aliases:/etc/postrider/aliases\"]";
const VIRTUAL: &str = "[addresses]\nvirtual = [\"text:/etc/postrider/virtual\"]";
const MAILDIR: &str = "[local]\nmaildir = \"/var/vmail/{local}\"";
const FILTER: &str = "[filter.rspamd]\nmilter = \"unix:/run/rspamd/milter.sock\"";
const POLICY: &str = "[policy_service.filter]\naddress = \"127.0.0.1:10040\"\n[[rule]]\nask = \"filter\"";
const LIMIT: &str = "[[limit]]\nper = \"client\"\nmessages = \"100/h\"";
const RULE: &str = "[[rule]]\nfrom = [\"example.com\"]\nreject = \"550 5.7.1 {from} is not welcome here\"";
const HEADER: &str = "[[rule]]\nheader = [\"Subject: /casino/\"]\nreject = \"550 5.7.1 not here\"";

const TLS_ROUTE: &str = "[[route]]\ndomains = [\"example.com\"]\nmx = true\ntls = \"verify\"";
const DANE_ADVICE: &str = "require TLS on the routes that need it (docs/not.md)";

const LOCAL: &str = "[local]\ndomains = [\"example.com\", \"mx.example.com\"]";

/// Makes rows: section, names, label, advice and sample.
macro_rules! rows {
    ($($section:literal: $names:literal => $label:literal, $advice:expr, $sample:expr;)+) => {
        &[$(Sought {
            section: $section,
            names: $names,
            label: $label,
            advice: $advice,
            sample: $sample,
        },)+]
    };
}

/// The rows, by section.
const TABLE: &[Sought] = rows! {
    "": "relayhost relay_host smarthost smart_host smarthosts route_list nexthop gateway \
            dc_smarthost" =>
        "a host for outgoing mail is a route",
        "write this, and `login` below it if the host requires a login", SMARTHOST;
    "": "mynetworks mynetworks_style relay_from_hosts relay_networks trusted_networks networks allow_from \
            dc_relay_nets" =>
        "networks that may relay are in [relay]",
        "write", NETWORKS;
    "": "relay_domains relay_to_domains relay_recipient_maps transport_maps mailertable transport \
            dc_relay_domains" =>
        "a domain that goes on to another server is a route",
        "write", ONE_ROUTE;
    "": "mydestination local_domains virtual_mailbox_domains virtual_mailbox_maps local_recipient_maps \
            domains domain dc_other_hostnames" =>
        "local domains and their users are in [local]",
        "write", LOCAL;
    "": "myhostname primary_hostname mydomain myorigin qualify_domain me server_name name" =>
        "the name of this server is `hostname`",
        "write, before the first section", "hostname = \"mx.example.com\"";
    "": "smtpd_banner smtp_banner" =>
        "the greeting has the name of the server",
        "write, before the first section", "hostname = \"mx.example.com\"";
    "": "inet_interfaces inet_protocols local_interfaces daemon_smtp_ports interface interfaces bind \
            bind_address address host port ports smtp_port listen_address listener server smtpd smtp \
            dc_local_interfaces" =>
        "addresses and ports are those of listeners",
        "write one for each address", LISTENER;
    "": "smtp_bind_address smtp_bind_address6 source_address outgoing_address" =>
        "the address of outgoing connections is in [delivery], or in a [[route]]",
        "write", "[delivery]\nsource_address = \"192.0.2.1\"";
    "": "smtp_helo_name helo_name helo_data ehlo_name helo" =>
        "the name in EHLO is in [delivery], or in a [[route]]",
        "write", "[delivery]\nehlo_name = \"out.example.com\"";
    "": "tls_cert tls_key tls_certificate tls_privatekey tls_cert_file tls_key_file smtpd_tls_cert_file \
            smtpd_tls_key_file smtpd_tls_chain_files ssl_cert ssl_key cert ssl pki" =>
        "the certificate is in [tls]",
        "write", CERTIFICATE;
    "": "smtpd_tls_security_level smtpd_use_tls tls_advertise_hosts tls_on_connect_ports smtps starttls" =>
        "the use of TLS is a key of each listener",
        "write", LISTEN_TLS;
    "": "smtp_tls_security_level smtp_use_tls smtp_tls_policy_maps hosts_require_tls" =>
        "outgoing mail uses TLS where it can; a route can require it",
        "write", TLS_ROUTE;
    "": "message_size_limit message_size max_message_size maxmessagesize size_limit" =>
        "the size of messages is in [limits]",
        "write", "[limits]\nmax_message_size = \"50MiB\"";
    "": "smtpd_recipient_limit recipients_max max_recipients" =>
        "the number of recipients is in [limits]",
        "write", "[limits]\nmax_recipients = 1000";
    "": "alias_maps alias_database aliases alias" =>
        "aliases are in [addresses]",
        "write", ALIASES;
    "": "virtual_alias_maps virtual_alias_domains virtual_maps virtusertable virtual" =>
        "virtual aliases are in [addresses]",
        "write", VIRTUAL;
    "": "canonical_maps sender_canonical_maps recipient_canonical_maps smtp_generic_maps masquerade_domains \
            genericstable" =>
        "changes of addresses are `canonical`, `generic` and `masquerade` in [addresses]",
        "write", "[addresses]\nmasquerade = [\"example.com\"]";
    "": "recipient_delimiter" =>
        "the character before a detail is in [addresses]",
        "write", "[addresses]\nseparator = \"+\"";
    "": "always_bcc sender_bcc_maps recipient_bcc_maps" =>
        "copies are in [addresses]",
        "write", "[addresses]\nbcc = [\"archive@example.com\"]";
    "": "home_mailbox mail_spool_directory virtual_mailbox_base mailbox mailbox_command maildir mbox" =>
        "the place of local mail is `maildir` or `mbox` in [local]",
        "write", MAILDIR;
    "": "mailbox_transport virtual_transport local_transport lmtp" =>
        "mail for a server of mailboxes is a route",
        "write", "[[route]]\ndomains = [\"example.com\"]\nlmtp = \"unix:/run/dovecot/lmtp\"\nverify = true";
    "": "smtpd_sasl_auth_enable smtpd_sasl_type smtpd_sasl_path sasl authenticators users passwd" =>
        "users and passwords are in [auth]",
        "write this; `postrider auth hash` makes the lines of the file", USERS;
    "": "smtp_sasl_auth_enable smtp_sasl_password_maps login password username" =>
        "the login at a next hop is a key of its route",
        LOGIN, "";
    "": "smtpd_recipient_restrictions smtpd_relay_restrictions smtpd_sender_restrictions \
            smtpd_client_restrictions smtpd_helo_restrictions smtpd_data_restrictions check_sender_access access \
            access_db acl acl_smtp_rcpt blocklist blacklist" =>
        "what is refused is a rule",
        "relaying is refused without any rule; write for the rest", RULE;
    "": "header_checks mime_header_checks body_checks nested_header_checks" =>
        "checks of the header are rules",
        "the body is left to a filter; write for the header", HEADER;
    "": "smtpd_client_message_rate_limit smtpd_client_connection_rate_limit \
            smtpd_client_connection_count_limit anvil_rate_time_unit rate_limit ratelimit smtp_ratelimit_hosts" =>
        "rates are in [[limit]]",
        "write", LIMIT;
    "": "dnsbl dnsbls rbl dnsrbl rbl_domains dnslists reject_rbl_client postscreen postscreen_dnsbl_sites" =>
        "block lists of DNS are a key of [checks]",
        "write this, or `dns_list` in a [[rule]]", "[checks]\ndnsbl = [\"zen.example.org\"]";
    "": "greylisting postgrey" =>
        "greylisting is a key of [checks]",
        "write this (docs/rules.md)", "[checks]\ngreylist = \"suspects\"";
    "": "check_policy_service" =>
        "a policy service is asked by a rule",
        "write", POLICY;
    "": "maximal_queue_lifetime bounce_queue_lifetime queue_lifetime retry timeout_frozen_after" =>
        "times of the queue are in [queue]",
        "write", "[queue]\nexpire = \"5d\"";
    "": "queue_directory spool_directory data_directory state_dir" =>
        "the directory of the queue is `data_dir`",
        "write, before the first section", "data_dir = \"/var/lib/postrider\"";
    "": "mail_owner setgid_group user group exim_user run_as" =>
        "the user of the daemon is in [process]",
        "write", "[process]\nuser = \"nobody\"";
    "": "maillog_file syslog_facility syslog_name log_file log_file_path log_level syslog logging" =>
        "the log is in [log]",
        "write", "[log]\nformat = \"syslog\"";
    "": "resolver nameserver nameservers dns_servers" =>
        "name servers are in [dns]",
        "write", "[dns]\nnameservers = [\"192.0.2.53\"]";
    "": "notify_classes error_notice_recipient bounce_notice_recipient double_bounce_sender \
            2bounce_notice_recipient admin root" =>
        "the person in charge is `postmaster`",
        "write, before the first section", "postmaster = \"jane@example.com\"";
    "": "default_destination_concurrency_limit smtp_destination_concurrency_limit default_process_limit \
            remote_max_parallel" =>
        "the number of connections is in [delivery]",
        "write", "[delivery]\nconnections_per_destination = 20";
    "": "dkim opendkim arc signing dkim_signing dkim_selector dkim_private_key" =>
        "mail is signed by [[sign]]",
        "write this; `postrider dkim new` makes a key", "[[sign]]\ndomains = [\"example.com\"]\nselector = \"2026\"\nkey = \"/etc/postrider/dkim.pem\"";
    "": "api http rest console web webui" =>
        "there is no API over HTTP besides metrics",
        "use the commands with `--json` (docs/not.md); metrics are in", "[metrics]\nlisten = \"127.0.0.1:9125\"";
    "": "dane mta_sts mtasts tlsrpt" =>
        "Postrider does not look up the TLS policies of domains yet",
        DANE_ADVICE, TLS_ROUTE;
    "": "spf dmarc opendmarc" =>
        "the origin of mail is checked by keys of [checks]",
        "write this (docs/authentication.md)", "[checks]\nspf = \"tag\"\ndmarc = \"enforce\"";
    "": "milter milters smtpd_milters non_smtpd_milters content_filter smtpd_proxy_filter input_mail_filters \
            antivirus spamassassin av_scanner" =>
        "filters are in [filter.NAME], and speak the milter protocol",
        "write this (docs/filters.md)", FILTER;
    "auth": "enabled enable" =>
        "logins exist as soon as `users` is set",
        "leave the key out; a listener without logins has `auth = false`", NO_LOGINS;
    "auth": "backend type file passwd passwords database user password path socket" =>
        "the store of users is `users`",
        "write this; `postrider auth hash` makes the lines of the file", USERS;
    "listen": "port host ip bind interface listen" =>
        "it is a part of `address`",
        "write", LISTENER;
    "listen": "tls_cert tls_key cert certificate key tls_cert_file tls_key_file ssl_cert ssl_key" =>
        "the certificate is in [tls], for all listeners",
        "write", CERTIFICATE;
    "listen": "ssl smtps starttls tls_mode secure" =>
        "it is called `tls` here",
        "write", LISTEN_TLS;
    "listen": "auth_required require_auth login users sasl" =>
        "a listener of `kind` \"submission\" wants a login",
        "write `kind = \"submission\"`, and the users into [auth]", USERS;
    "listen": "relay networks mynetworks allow trusted" =>
        "networks that may relay are in [relay]",
        "write", NETWORKS;
    "listen": "milter milters filter filters" =>
        "filters are in [filter.NAME]; its key `for` says whose mail they see",
        "write this (docs/filters.md)", FILTER;
    "route": "username user_name password secret auth" =>
        "the login at the next hop is `login`",
        LOGIN, "";
    "route": "relayhost relay host hosts server nexthop gateway transport port to" =>
        "the host of a route is its `smarthost`, with the port",
        "write", SMARTHOST;
    "route": "defer" =>
        "what waits for an operator is on hold",
        "write", "[[route]]\ndomains = [\"example.com\"]\nhold = true";
    "rule": "dnsbl rbl dnslists" =>
        "a list in DNS is the condition `dns_list`",
        "write", "[[rule]]\ndns_list = [\"zen.example.org\"]\nreject = true";
    "rule": "rhsbl dbl uribl" =>
        "a list of domains in DNS is a condition on the sender's domain: `from_dns_list`",
        "write", "[[rule]]\nfrom_dns_list = [\"dbl.example.org\"]\nreject = true";
    "rule": "spf dkim dmarc" =>
        "the result of a check is a tag",
        "write this (docs/authentication.md)", "[checks]\nspf = \"tag\"\n[[rule]]\ntagged = [\"spf-fail\"]\nhold = true";
    "rule": "greylist" =>
        "it is a key of [checks]; a rule with `accept` spares a recipient",
        "write", "[checks]\ngreylist = \"suspects\"";
    "rule": "subject" =>
        "it is a field of the header",
        "write", HEADER;
    "rule": "action verdict" =>
        "each verdict is a key of its own",
        "write", RULE;
    "relay": "host relayhost smarthost server port" =>
        "a host for outgoing mail is a route",
        "write", SMARTHOST;
    "relay": "domains relay_domains" =>
        "a domain that goes on to another server is a route",
        "write", ONE_ROUTE;
    "relay": "clients allow mynetworks allow_from" =>
        "it is called `networks` here",
        "write", NETWORKS;
    "delivery": "relayhost smarthost relay host" =>
        "a host for outgoing mail is a route",
        "write", SMARTHOST;
    "delivery": "dane mta_sts mtasts tlsrpt dnssec" =>
        "Postrider does not look up the TLS policies of domains yet",
        DANE_ADVICE, TLS_ROUTE;
    "delivery": "tls tls_security_level" =>
        "outgoing mail uses TLS where it can; a route can require it",
        "write", TLS_ROUTE;
    "tls": "mode level security_level starttls" =>
        "the use of TLS is a key of each listener",
        "write", LISTEN_TLS;
    "local": "aliases alias_maps" =>
        "aliases are in [addresses]",
        "write", ALIASES;
    "local": "home_mailbox mailbox mail_location path" =>
        "it is called `maildir` or `mbox` here",
        "write", MAILDIR;
    "filter": "server address socket url host" =>
        "a filter is a `milter`, `rspamd`, or a `hook`",
        "write this, or rspamd = \"127.0.0.1:11333\", or hook = \"http://127.0.0.1:8080/mail\"", FILTER;
    "filter": "spam_header reject_message" =>
        "a setting of rspamd's proxy worker",
        "let rspamd's rules set the text of refusals; the field is X-Spam (docs/filters.md)", "";
    "map": "file path text hash texthash table type" =>
        "a section is only for servers and databases",
        "name a file where it is used", VIRTUAL;
};

/// Rows for sections that are written as keys before the first section.
const NOT_SECTIONS: &[Sought] = rows! {
    "": "auth" =>
        "logins are switched off at a listener",
        "write `auth = false` into the [[listen]] where no client should log in", NO_LOGINS;
    "": "listen" =>
        "a listener is a section",
        "write", LISTENER;
    "": "relay" =>
        "[relay] has the networks that may relay; a host for outgoing mail is a [[route]]",
        "write", NETWORKS;
    "": "tls" =>
        "the use of TLS is a key of each listener",
        "write", LISTEN_TLS;
    "": "certificate" =>
        "the certificate is in [tls]",
        "write", CERTIFICATE;
    "": "route" =>
        "a route is a section",
        "write", SMARTHOST;
    "": "rule" =>
        "a rule is a section",
        "write", RULE;
    "": "limit" =>
        "a limit is a section",
        "write", LIMIT;
    "": "local" =>
        "local domains and their users are in [local]",
        "write", LOCAL;
    "": "dns" =>
        "name servers are in [dns]",
        "write", "[dns]\nnameservers = [\"192.0.2.53\"]";
    "": "log" =>
        "the log is in [log]",
        "write", "[log]\nformat = \"syslog\"";
    "": "metrics" =>
        "metrics have a listener of their own",
        "write", "[metrics]\nlisten = \"127.0.0.1:9125\"";
    "": "history" =>
        "not a section",
        "write", "[history]\nenabled = true";
};

const LOGIN: &str = "write `login = { user = \"NAME\", secret = \"file:FILE\" }` below the [[route]], and the password into FILE";

/// Returns the label and the advice about a key that does not exist in a section, but that people look for; `path` is a section
/// such as `route[1]` or `map.users`.
pub fn about_key(path: &str, key: &str) -> Option<(&'static str, String)> {
    let section = path.split(['[', '.']).next().unwrap_or_default();
    if let Some(row) = find(TABLE, section, key) {
        return Some(row);
    }
    // Each section works as soon as its keys are set.
    let is_switch = ["enabled", "enable", "active", "disabled"].contains(&key) && !section.is_empty();
    is_switch.then(|| {
        ("there is no such switch", "leave it out: a section is used because it is there".to_owned())
    })
}

/// Returns whether a section has a key that is reported with what to write, which may be what the section lacks.
pub(crate) fn has_sought_key(section: &str, table: &DeTable<'_>) -> bool {
    table.keys().any(|key| about_key(section, key.get_ref()).is_some())
}

/// Returns the label and the advice about a section that is written as a key.
pub(crate) fn about_value(name: &str) -> Option<(&'static str, String)> {
    find(NOT_SECTIONS, "", name)
}

fn find(table: &'static [Sought], section: &str, key: &str) -> Option<(&'static str, String)> {
    let fits = |row: &&Sought| {
        row.section == section && row.names.split(' ').any(|name| name.eq_ignore_ascii_case(key))
    };
    let row = table.iter().find(fits)?;
    let help = if row.sample.is_empty() {
        row.advice.to_owned()
    } else {
        format!("{}:\n{}", row.advice, row.sample)
    };
    Some((row.label, help))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::schema;

    #[test]
    fn what_is_sought_is_no_key_of_its_section_and_stands_in_one_row() {
        for (at, row) in TABLE.iter().enumerate() {
            for name in row.names.split(' ') {
                let is_key = match row.section {
                    "" => schema().iter().any(|section| {
                        section.name == name
                            || section.name.is_empty() && section.keys.iter().any(|key| key.name == name)
                    }),
                    of => schema()
                        .iter()
                        .any(|section| section.name == of && section.keys.iter().any(|key| key.name == name)),
                };
                assert!(!is_key, "{}.{name}", row.section);
                let again = |other: &Sought| {
                    other.section == row.section && other.names.split(' ').any(|other| other == name)
                };
                assert!(!TABLE[at + 1..].iter().any(again), "{}.{name} stands in two rows", row.section);
            }
        }
        for row in NOT_SECTIONS {
            assert!(
                row.names.split(' ').all(|name| schema().iter().any(|section| section.name == name)),
                "{:?}",
                row.names
            );
        }
    }

    #[test]
    fn every_sample_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display();
        for name in ["aliases", "virtual", "users"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let made = rcgen::generate_simple_self_signed(["mx.example.com".to_owned()]).unwrap();
        std::fs::write(dir.path().join("mx.pem"), made.cert.pem()).unwrap();
        std::fs::write(dir.path().join("mx.key"), made.signing_key.serialize_pem()).unwrap();
        let dkim = authn::SigningKey::generate(authn::Algorithm::Ed25519Sha256).unwrap();
        std::fs::write(dir.path().join("dkim.pem"), dkim).unwrap();
        let path = dir.path().join("postrider.toml");
        let (rows, mut refused) = (TABLE.iter().chain(NOT_SECTIONS), Vec::new());
        for sample in rows.map(|row| row.sample).filter(|sample| !sample.is_empty()) {
            let first = if sample.starts_with("hostname") { "" } else { "hostname = \"mx.example.com\"\n" };
            let text = format!("{first}{}\n", sample.replace("/etc/postrider", &at.to_string()));
            std::fs::write(&path, &text).unwrap();
            if let Err(problems) = crate::load(Some(&path)) {
                refused.push(format!("{text}{problems}"));
            }
        }
        assert!(refused.is_empty(), "{}", refused.join("\n"));
    }
}
