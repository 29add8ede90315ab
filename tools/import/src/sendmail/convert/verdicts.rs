//! What settings of Sendmail mean of which no key of Postrider follows.

use crate::{
    Effect::{Addresses, Elsewhere, Refused, Taken},
    Verdict,
    settings::{
        Meanings, Treatment,
        Treatment::{Mapped, MappedOr, Matters, Missing, Note},
        treatment,
    },
};

const NO_SASL: &str = "Cyrus SASL is not used; make a file of users with `postrider auth hash`, and write auth.users = \"passwd:FILE\"; or use Dovecot";
const NO_RATE: &str = "write a [[limit]] with per = \"client\" and connections";
const NO_MAILER: &str = "write `pipe`, `maildir` or `lmtp` in the [[route]] of the local domains";
const NO_SETTING: &str = "see docs/rules.md, docs/addresses.md and [checks]";
const NO_RULES: &str = "rule sets have no counterpart: write routes, rules and maps";

/// How names of `define` are treated.
const DEFINED: &Meanings = &[
    (
        "confDOMAIN_NAME LUSER_RELAY CYRUSV2_MAILER_ARGS ALIAS_FILE confTO_QUEUERETURN confTO_QUEUEWARN confMAX_MESSAGE_SIZE \
         confMAX_RCPTS_PER_MESSAGE confMAX_HOP confMAX_DAEMON_CHILDREN confSERVER_KEY confCLIENT_KEY _USE_ETC_MAIL_ confPID_FILE \
         confLOG_LEVEL confDONT_PROBE_INTERFACES confSERVICE_SWITCH_FILE confDEF_USER_ID confTRUSTED_USER STATUS_FILE \
         HELP_FILE confTO_IDENT confCT_FILE confCW_FILE confDELIVERY_MODE confHOST_STATUS_DIRECTORY \
         confDONT_BLAME_SENDMAIL confUNSAFE_GROUP_WRITES confINPUT_MAIL_FILTERS",
        Mapped,
    ),
    ("SMART_HOST MAIL_HUB confLOCAL_MAILER", MappedOr(Elsewhere)),
    ("confSERVER_CERT", MappedOr(Refused)),
    ("confCLIENT_CERT", MappedOr(Elsewhere)),
    (
        "LOCAL_RELAY",
        Note("addresses that clients give have a domain; local programs get the hostname as the domain"),
    ),
    ("QUEUE_DIR", Note("spool.backend = \"queue-dirs\" has several directories, too")),
    ("confPRIVACY_FLAGS", Note("VRFY and EXPN are for nobody by default; see [extensions]")),
    ("confCACERT confCACERT_PATH", Note("tls.ca_file and tls.client_ca_file name authorities")),
    ("confDEF_AUTH_INFO", Note("the login of the [[route]] to SMART_HOST; other next hops get none")),
    ("confAUTH_MECHANISMS confAUTH_OPTIONS", Matters(Refused, NO_SASL)),
    ("confAUTH_REALM", Missing(NO_SASL)),
    ("confCONNECTION_RATE_THROTTLE", Matters(Taken, NO_RATE)),
    ("confCONNECTION_RATE_WINDOW_SIZE", Missing(NO_RATE)),
    ("confBAD_RCPT_THROTTLE", Note("limits.max_rejected_recipients ends such sessions")),
    (
        "confQUEUE_LA confREFUSE_LA confDELAY_LA",
        Note("limits are connections and memory, not the load; see [inbound]"),
    ),
    ("confSMTP_LOGIN_MSG", Missing("the greeting is the hostname and ESMTP")),
    ("confQUEUE_SORT_ORDER", Note("queue.order")),
    ("confMIN_QUEUE_AGE", Note("queue.retry_min")),
    ("LOCAL_MAILER_PATH LOCAL_MAILER_ARGS", Matters(Elsewhere, NO_MAILER)),
    ("LOCAL_MAILER_FLAGS PROCMAIL_MAILER_PATH", Missing(NO_MAILER)),
    (
        "RELAY_MAILER_ARGS SMTP_MAILER_ARGS ESMTP_MAILER_ARGS SMTP_MAILER_MAX",
        Note("the port of a next hop stands in the route"),
    ),
    ("confTO_*", Note("see [timeouts] and [delivery]")),
    ("confMILTER*", Note("filters name the macros that they want")),
    ("conf*", Missing("see docs/configuration.md for a key")),
];

/// How names of `FEATURE` are treated.
const FEATURES: &Meanings = &[
    (
        "use_cw_file no_default_msa delay_checks nouucp smrsh use_ct_file nocanonify always_add_domain redirect \
         local_no_masquerade virtuser_entire_domain notsticky nopercenthack preserve_luser_host nullclient \
         relay_hosts_only blacklist_recipients blocklist_recipients",
        Mapped,
    ),
    ("access_db virtusertable authinfo", MappedOr(Refused)),
    ("mailertable domaintable", MappedOr(Elsewhere)),
    ("genericstable", MappedOr(Addresses)),
    ("greet_pause", Note("greeting_delay in [[listen]]")),
    ("conncontrol ratecontrol", Note("inbound.max_sessions_per_client, and a [[limit]]")),
    ("masquerade_envelope", Note("addresses.generic changes the reverse-path of mail that leaves")),
    ("masquerade_entire_domain", Note("addresses.masquerade hides the hosts below a domain")),
    ("allmasquerade", Note("addresses of recipients stay as they are")),
    (
        "relay_entire_domain",
        Note(
            "mail to this domain and those below it is taken from all; its hosts may not relay: write their networks into relay.networks",
        ),
    ),
    (
        "promiscuous_relay",
        Matters(
            Refused,
            "no setting makes an open relay: write the networks of your clients into relay.networks",
        ),
    ),
    (
        "relay_based_on_MX",
        Matters(
            Refused,
            "mail for domains whose MX records name this host is refused now: list the domains in local.domains, with a [[route]]",
        ),
    ),
    (
        "relay_local_from relay_mail_from",
        Matters(
            Refused,
            "a sender's address lets nobody relay any more: write the networks of your clients into relay.networks, or let them log in",
        ),
    ),
    (
        "accept_unresolvable_domains accept_unqualified_senders",
        Note("domains of senders are not looked up; addresses need a domain"),
    ),
    ("rhsbl", Matters(Taken, "lists of domains in DNS: write from_dns_list = [\"ZONE\"] in a [[rule]]")),
    ("dnsbl enhdnsbl", Matters(Taken, "block lists of DNS: write dnsbl = [\"ZONE\"] in [checks]")),
    (
        "generics_entire_domain",
        Matters(Addresses, "hosts below the domains of addresses.generic: list them one by one"),
    ),
    (
        "local_procmail local_lmtp",
        Matters(Elsewhere, "write `pipe` or `lmtp` in the [[route]] of the local domains"),
    ),
    ("ldap_routing bestmx_is_local", Matters(Refused, NO_SETTING)),
    ("require_rdns block_bad_helo badmx", Matters(Taken, NO_SETTING)),
    ("uucpdomain bitdomain", Matters(Elsewhere, NO_SETTING)),
    ("limited_masquerade domainmap", Matters(Addresses, NO_SETTING)),
    (
        "bcc check_cert_altnames check_other drac loose_relay_check prefixmod preserve_local_plus_detail tls_failures \
         use_client_ptr vnet lookupdotdomain compat_check queuegroup mtamark msp stickyhost sts tls_session_features",
        Missing(NO_SETTING),
    ),
];

/// How other macros are treated.
const MACROS: &Meanings = &[
    (
        "VERSIONID OSTYPE MAILER MAILER_DEFINITIONS LOCAL_DOMAIN RELAY_DOMAIN RELAY_DOMAIN_FILE EXPOSED_USER \
         EXPOSED_USER_FILE GENERICS_DOMAIN GENERICS_DOMAIN_FILE CANONIFY_DOMAIN CANONIFY_DOMAIN_FILE undefine \
         changequote LOCAL_NET_CONFIG INPUT_MAIL_FILTER MAIL_FILTER",
        Mapped,
    ),
    ("DAEMON_OPTIONS", MappedOr(Refused)),
    ("MASQUERADE_AS", MappedOr(Addresses)),
    ("LOCAL_CONFIG", Note("classes, macros, options and maps of it are read")),
    ("DOMAIN include sinclude", Note("the file was read as far as it is in sendmail.cf")),
    ("CLIENT_OPTIONS", Note("delivery.source_address")),
    (
        "MASQUERADE_DOMAIN MASQUERADE_DOMAIN_FILE MASQUERADE_EXCEPTION",
        Note("addresses.generic has these domains, if the envelope is changed at all"),
    ),
    ("VIRTUSER_DOMAIN VIRTUSER_DOMAIN_FILE", Note("local.domains has these domains")),
    ("TRUST_AUTH_MECH", Matters(Refused, "only [auth] and relay.networks let a client relay")),
    ("QUEUE_GROUP", Missing("write [[queue_group]]")),
    ("HACK SITE SITECONFIG UUCPSMTP MODIFY_MAILER_FLAGS", Missing("Postrider has no such setting")),
    ("LOCAL_R* LDAPROUTE_*", Matters(Elsewhere, NO_RULES)),
    ("LOCAL_*", Missing(NO_RULES)),
];

/// Options of `sendmail.cf`.
const OPTIONS: &Meanings = &[
    (
        "AliasFile MaxMessageSize MaxRecipientsPerMessage MaxHopCount MaxDaemonChildren DaemonPortOptions \
         Timeout.queuereturn Timeout.queuewarn ServerCertFile ServerKeyFile ClientCertFile ClientKeyFile QueueDirectory PidFile InputMailFilters",
        Mapped,
    ),
    ("DefaultAuthInfo", Note("the login of the [[route]] to SMART_HOST; other next hops get none")),
    (
        "AuthMechanisms AuthOptions",
        Missing(
            "make a file of users with `postrider auth hash`, and write auth.users = \"passwd:FILE\"; or use Dovecot",
        ),
    ),
    ("*", Note("see docs/configuration.md for a key; the default of Postrider is used")),
];

fn verdict(meanings: &Meanings, name: &str) -> Verdict {
    treatment(meanings, name).map_or(Verdict::Unknown, Treatment::verdict)
}

pub(super) fn define(name: &str) -> Verdict {
    verdict(DEFINED, name)
}

pub(super) fn feature(name: &str) -> Verdict {
    verdict(FEATURES, name)
}

pub(super) fn call_verdict(name: &str) -> Verdict {
    verdict(MACROS, name)
}

pub(super) fn cf_option(name: &str) -> Verdict {
    verdict(OPTIONS, name)
}

/// Returns what becomes of mail where a setting has no counterpart.
pub(super) fn effect_of(name: &str) -> Option<crate::Effect> {
    let tables = [DEFINED, FEATURES, MACROS];
    tables.into_iter().find_map(|meanings| treatment(meanings, name)?.effect())
}
