//! Verdicts about settings of Sendmail that no key of Postrider follows from.

use crate::Verdict;

pub(super) fn define(name: &str) -> Verdict {
    let note = |text: &str| Verdict::Note(text.to_owned());
    match name {
        "confDOMAIN_NAME" | "SMART_HOST" | "MAIL_HUB" | "LUSER_RELAY" | "confLOCAL_MAILER" | "CYRUSV2_MAILER_ARGS" | "ALIAS_FILE" | "confTO_QUEUERETURN" | "confTO_QUEUEWARN" | "confMAX_MESSAGE_SIZE"
        | "confMAX_RCPTS_PER_MESSAGE" | "confMAX_HOP" | "confMAX_DAEMON_CHILDREN" | "confSERVER_CERT" | "confSERVER_KEY"
        | "_USE_ETC_MAIL_" | "confPID_FILE" | "confLOG_LEVEL" | "confDONT_PROBE_INTERFACES" | "confSERVICE_SWITCH_FILE"
        | "confDEF_USER_ID" | "confTRUSTED_USER" | "STATUS_FILE" | "HELP_FILE" | "confTO_IDENT" | "confCT_FILE" | "confCW_FILE"
        | "confDELIVERY_MODE" | "confHOST_STATUS_DIRECTORY" | "confDONT_BLAME_SENDMAIL" | "confUNSAFE_GROUP_WRITES" => Verdict::Mapped,
        "LOCAL_RELAY" => note("addresses that clients give have a domain; local programs get the hostname as the domain"),
        "QUEUE_DIR" => note("spool.backend = \"queue-dirs\" has several directories, too"),
        "confPRIVACY_FLAGS" => note("VRFY and EXPN are for nobody by default; see [extensions]"),
        "confCACERT" | "confCACERT_PATH" | "confCLIENT_CERT" | "confCLIENT_KEY" => note("tls.ca_file and tls.client_ca_file name authorities; no certificate is shown to next hops"),
        "confDEF_AUTH_INFO" => note("the login of the [[route]] to SMART_HOST; other next hops get none"),
        "confAUTH_MECHANISMS" | "confAUTH_OPTIONS" | "confAUTH_REALM" => {
            Verdict::Missing("Cyrus SASL is not used; make a file of users with `postrider auth hash`, and write auth.users = \"passwd:FILE\"; or use Dovecot".to_owned())
        }
        "confCONNECTION_RATE_THROTTLE" | "confCONNECTION_RATE_WINDOW_SIZE" => Verdict::Missing("write a [[limit]] with per = \"client\" and connections".to_owned()),
        "confBAD_RCPT_THROTTLE" => note("limits.max_rejected_recipients ends such sessions"),
        "confQUEUE_LA" | "confREFUSE_LA" | "confDELAY_LA" => note("limits are connections and memory, not the load; see [inbound]"),
        "confSMTP_LOGIN_MSG" => Verdict::Missing("the greeting is the hostname and ESMTP".to_owned()),
        "confQUEUE_SORT_ORDER" => note("queue.order"),
        "confMIN_QUEUE_AGE" => note("queue.retry_min"),
        "confINPUT_MAIL_FILTERS" => Verdict::Mapped,
        "LOCAL_MAILER_PATH" | "LOCAL_MAILER_ARGS" | "LOCAL_MAILER_FLAGS" | "PROCMAIL_MAILER_PATH" => Verdict::Missing("write `pipe`, `maildir` or `lmtp` in the [[route]] of the local domains".to_owned()),
        "RELAY_MAILER_ARGS" | "SMTP_MAILER_ARGS" | "ESMTP_MAILER_ARGS" | "SMTP_MAILER_MAX" => note("the port of a next hop stands in the route"),
        name if name.starts_with("confTO_") => note("see [timeouts] and [delivery]"),
        name if name.starts_with("confMILTER") => {
            Verdict::Note("filters name the macros that they want".to_owned())
        }
        name if name.starts_with("conf") => Verdict::Missing("see docs/configuration.md for a key".to_owned()),
        _ => Verdict::Unknown,
    }
}

pub(super) fn feature(name: &str) -> Verdict {
    let note = |text: &str| Verdict::Note(text.to_owned());
    match name {
        "use_cw_file"
        | "access_db"
        | "virtusertable"
        | "mailertable"
        | "no_default_msa"
        | "delay_checks"
        | "nouucp"
        | "smrsh"
        | "use_ct_file"
        | "nocanonify"
        | "always_add_domain"
        | "redirect"
        | "local_no_masquerade"
        | "virtuser_entire_domain"
        | "notsticky"
        | "nopercenthack"
        | "preserve_luser_host" => Verdict::Mapped,
        "greet_pause" => note("greeting_delay in [[listen]]"),
        "conncontrol" | "ratecontrol" => note("inbound.max_sessions_per_client, and a [[limit]]"),
        "masquerade_envelope" => note("addresses.generic changes the reverse-path of mail that leaves"),
        "masquerade_entire_domain" => note("addresses.masquerade hides the hosts below a domain"),
        "allmasquerade" => note("addresses of recipients stay as they are"),
        "nullclient" => Verdict::Mapped,
        "relay_entire_domain" => note("mail to this domain and those below it is taken from all; its hosts may not relay: write their networks into relay.networks"),
        "relay_hosts_only" => Verdict::Mapped,
        "promiscuous_relay" => Verdict::Missing(
            "no setting makes an open relay: write the networks of your clients into relay.networks"
                .to_owned(),
        ),
        "relay_based_on_MX" => Verdict::Missing(
            "mail for domains whose MX records name this host is refused now: list the domains in local.domains, with a [[route]]".to_owned(),
        ),
        "relay_local_from" | "relay_mail_from" => Verdict::Missing(
            "a sender's address lets nobody relay any more: write the networks of your clients into relay.networks, or let them log in".to_owned(),
        ),
        "accept_unresolvable_domains" | "accept_unqualified_senders" => {
            note("domains of senders are not looked up; addresses need a domain")
        }
        "blacklist_recipients" | "blocklist_recipients" => Verdict::Mapped,
        "dnsbl" | "enhdnsbl" | "rhsbl" => {
            Verdict::Missing("block lists of DNS: write dnsbl = [\"ZONE\"] in [checks]".to_owned())
        }
        "genericstable" | "authinfo" | "domaintable" => Verdict::Mapped,
        "generics_entire_domain" => {
            Verdict::Missing("hosts below the domains of addresses.generic: list them one by one".to_owned())
        }
        "local_procmail" | "local_lmtp" => {
            Verdict::Missing("write `pipe` or `lmtp` in the [[route]] of the local domains".to_owned())
        }
        "ldap_routing"
        | "bcc"
        | "check_cert_altnames"
        | "check_other"
        | "domainmap"
        | "drac"
        | "loose_relay_check"
        | "prefixmod"
        | "preserve_local_plus_detail"
        | "tls_failures"
        | "use_client_ptr"
        | "vnet"
        | "lookupdotdomain"
        | "compat_check"
        | "bestmx_is_local"
        | "uucpdomain"
        | "bitdomain"
        | "queuegroup"
        | "mtamark"
        | "msp"
        | "stickyhost"
        | "limited_masquerade"
        | "require_rdns"
        | "block_bad_helo"
        | "badmx"
        | "sts"
        | "tls_session_features" => {
            Verdict::Missing("see docs/rules.md, docs/addresses.md and [checks]".to_owned())
        }
        _ => Verdict::Unknown,
    }
}

pub(super) fn call_verdict(name: &str) -> Verdict {
    match name {
        "VERSIONID"
        | "OSTYPE"
        | "MAILER"
        | "MAILER_DEFINITIONS"
        | "DAEMON_OPTIONS"
        | "LOCAL_DOMAIN"
        | "RELAY_DOMAIN"
        | "RELAY_DOMAIN_FILE"
        | "MASQUERADE_AS"
        | "EXPOSED_USER"
        | "EXPOSED_USER_FILE"
        | "GENERICS_DOMAIN"
        | "GENERICS_DOMAIN_FILE"
        | "CANONIFY_DOMAIN"
        | "CANONIFY_DOMAIN_FILE"
        | "undefine"
        | "changequote"
        | "LOCAL_NET_CONFIG" => Verdict::Mapped,
        "LOCAL_CONFIG" => Verdict::Note("classes, macros, options and maps of it are read".to_owned()),
        "DOMAIN" | "include" | "sinclude" => {
            Verdict::Note("the file was read as far as it is in sendmail.cf".to_owned())
        }
        "CLIENT_OPTIONS" => Verdict::Note("delivery.source_address".to_owned()),
        "MASQUERADE_DOMAIN" | "MASQUERADE_DOMAIN_FILE" | "MASQUERADE_EXCEPTION" => {
            Verdict::Note("addresses.generic has these domains, if the envelope is changed at all".to_owned())
        }
        "VIRTUSER_DOMAIN" | "VIRTUSER_DOMAIN_FILE" => {
            Verdict::Note("local.domains has these domains".to_owned())
        }
        "INPUT_MAIL_FILTER" | "MAIL_FILTER" => Verdict::Mapped,
        "TRUST_AUTH_MECH" => Verdict::Missing("only [auth] and relay.networks let a client relay".to_owned()),
        "QUEUE_GROUP" => Verdict::Missing("write [[queue_group]]".to_owned()),
        "HACK" | "SITE" | "SITECONFIG" | "UUCPSMTP" | "MODIFY_MAILER_FLAGS" => {
            Verdict::Missing("Postrider has no such setting".to_owned())
        }
        name if name.starts_with("LOCAL_") || name.starts_with("LDAPROUTE_") => {
            Verdict::Missing("rule sets have no counterpart: write routes, rules and maps".to_owned())
        }
        _ => Verdict::Unknown,
    }
}

/// An option of `sendmail.cf`.
pub(super) fn cf_option(name: &str) -> Verdict {
    const MAPPED: [&str; 12] = [
        "AliasFile",
        "MaxMessageSize",
        "MaxRecipientsPerMessage",
        "MaxHopCount",
        "MaxDaemonChildren",
        "DaemonPortOptions",
        "Timeout.queuereturn",
        "Timeout.queuewarn",
        "ServerCertFile",
        "ServerKeyFile",
        "QueueDirectory",
        "PidFile",
    ];
    match name {
        name if MAPPED.contains(&name) => Verdict::Mapped,
        "InputMailFilters" => Verdict::Mapped,
        "DefaultAuthInfo" => define("confDEF_AUTH_INFO"),
        "AuthMechanisms" | "AuthOptions" => {
            Verdict::Missing("make a file of users with `postrider auth hash`, and write auth.users = \"passwd:FILE\"; or use Dovecot".to_owned())
        }
        _ => Verdict::Note("see docs/configuration.md for a key; the default of Postrider is used".to_owned()),
    }
}

/// Returns what becomes of mail where a setting has no counterpart.
pub(super) fn effect_of(name: &str) -> Option<crate::Effect> {
    use crate::Effect::{Addresses, Elsewhere, Refused, Taken};
    Some(match name {
        "promiscuous_relay"
        | "relay_based_on_MX"
        | "relay_local_from"
        | "relay_mail_from"
        | "TRUST_AUTH_MECH"
        | "confAUTH_MECHANISMS"
        | "confAUTH_OPTIONS"
        | "DAEMON_OPTIONS"
        | "bestmx_is_local"
        | "access_db"
        | "relay-domains"
        | "virtusertable"
        | "authinfo"
        | "confSERVER_CERT"
        | "ldap_routing" => Refused,
        "dnsbl"
        | "enhdnsbl"
        | "rhsbl"
        | "require_rdns"
        | "block_bad_helo"
        | "badmx"
        | "confCONNECTION_RATE_THROTTLE" => Taken,
        "mailertable" | "SMART_HOST" | "MAIL_HUB" | "confLOCAL_MAILER" | "domaintable" | "uucpdomain"
        | "bitdomain" | "local_procmail" | "local_lmtp" | "LOCAL_MAILER_PATH" | "LOCAL_MAILER_ARGS" => {
            Elsewhere
        }
        "MASQUERADE_AS" | "genericstable" | "generics_entire_domain" | "limited_masquerade" | "domainmap" => {
            Addresses
        }
        name if name.starts_with("LOCAL_R") || name.starts_with("LDAPROUTE_") => Elsewhere,
        _ => return None,
    })
}
