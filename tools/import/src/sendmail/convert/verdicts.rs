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

const NO_SASL: &str = "Cyrus SASL is not supported; create a password file with `postrider auth hash` and set auth.users = \"passwd:FILE\", or use Dovecot";
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
        Note("clients must give a domain; addresses without one from local programs get the hostname"),
    ),
    ("QUEUE_DIR", Note("spool.backend = \"queue-dirs\" can use several directories, too")),
    ("confPRIVACY_FLAGS", Note("VRFY and EXPN are off by default; see [extensions]")),
    ("confCACERT confCACERT_PATH", Note("see tls.ca_file and tls.client_ca_file")),
    (
        "confDEF_AUTH_INFO",
        Note("used for the login in the [[route]] to SMART_HOST; other next hops get none"),
    ),
    ("confAUTH_MECHANISMS confAUTH_OPTIONS", Matters(Refused, NO_SASL)),
    ("confAUTH_REALM", Missing(NO_SASL)),
    ("confCONNECTION_RATE_THROTTLE", Matters(Taken, NO_RATE)),
    ("confCONNECTION_RATE_WINDOW_SIZE", Missing(NO_RATE)),
    ("confBAD_RCPT_THROTTLE", Note("limits.max_rejected_recipients ends such sessions")),
    (
        "confQUEUE_LA confREFUSE_LA confDELAY_LA",
        Note("Postrider limits connections and memory use, whatever the load; see [inbound]"),
    ),
    ("confSMTP_LOGIN_MSG", Missing("the greeting is always the hostname and ESMTP")),
    ("confQUEUE_SORT_ORDER", Note("see queue.order")),
    ("confMIN_QUEUE_AGE", Note("see queue.retry_min")),
    ("LOCAL_MAILER_PATH LOCAL_MAILER_ARGS", Matters(Elsewhere, NO_MAILER)),
    ("LOCAL_MAILER_FLAGS PROCMAIL_MAILER_PATH", Missing(NO_MAILER)),
    (
        "RELAY_MAILER_ARGS SMTP_MAILER_ARGS ESMTP_MAILER_ARGS SMTP_MAILER_MAX",
        Note("the port of a next hop is in its [[route]]"),
    ),
    ("confTO_*", Note("see [timeouts] and [delivery]")),
    ("confMILTER*", Note("a filter gets the macros that it asks for")),
    ("conf*", Missing("see docs/configuration.md for a similar key")),
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
    ("greet_pause", Note("see greeting_delay in [[listen]]")),
    ("conncontrol ratecontrol", Note("see inbound.max_sessions_per_client and [[limit]]")),
    (
        "masquerade_envelope",
        Note("addresses.generic rewrites the reverse-path of outgoing mail, not the header"),
    ),
    ("masquerade_entire_domain", Note("addresses.masquerade hides the hosts below a domain")),
    ("allmasquerade", Note("recipient addresses are not rewritten")),
    (
        "relay_entire_domain",
        Note(
            "mail for this domain and its subdomains is accepted from everybody; its hosts may not relay: add the networks of these hosts to relay.networks",
        ),
    ),
    (
        "promiscuous_relay",
        Matters(
            Refused,
            "Postrider has no setting for an open relay: add your clients' networks to relay.networks",
        ),
    ),
    (
        "relay_based_on_MX",
        Matters(
            Refused,
            "mail for domains whose MX records name this host is refused: list these domains in local.domains, and write a [[route]] for them",
        ),
    ),
    (
        "relay_local_from relay_mail_from",
        Matters(
            Refused,
            "a sender address no longer lets a client relay: add your clients' networks to relay.networks, or let them log in",
        ),
    ),
    (
        "accept_unresolvable_domains accept_unqualified_senders",
        Note("sender domains are not looked up; addresses need a domain"),
    ),
    (
        "rhsbl",
        Matters(Taken, "for DNS lists of sender domains, write from_dns_list = [\"ZONE\"] in a [[rule]]"),
    ),
    ("dnsbl enhdnsbl", Matters(Taken, "for DNS block lists, write dnsbl = [\"ZONE\"] in [checks]")),
    (
        "generics_entire_domain",
        Matters(
            Addresses,
            "addresses.generic does not include hosts below these domains: list them one by one",
        ),
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
    ("LOCAL_CONFIG", Note("its classes, macros, options and maps are read")),
    ("DOMAIN include sinclude", Note("its settings are read from sendmail.cf")),
    ("CLIENT_OPTIONS", Note("see delivery.source_address")),
    (
        "MASQUERADE_DOMAIN MASQUERADE_DOMAIN_FILE MASQUERADE_EXCEPTION",
        Note("addresses.generic includes these domains if the envelope is masqueraded"),
    ),
    ("VIRTUSER_DOMAIN VIRTUSER_DOMAIN_FILE", Note("local.domains includes these domains")),
    ("TRUST_AUTH_MECH", Matters(Refused, "only clients in relay.networks and those that log in may relay")),
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
    ("DefaultAuthInfo", Note("used for the login in the [[route]] to SMART_HOST; other next hops get none")),
    ("AuthMechanisms AuthOptions", Missing(NO_SASL)),
    ("*", Note("Postrider's default is used; see docs/configuration.md for a similar key")),
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
