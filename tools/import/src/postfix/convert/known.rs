//! Parameters that need no key, and those without a counterpart: what to do instead.

use super::Context;
use crate::{
    Verdict,
    report::Effect,
    settings::{
        Meanings,
        Treatment::{self, Mapped, Matters, Missing, Note},
        is_in, treatment,
    },
};

const NO_FILTER: &str = "Postrider's filters speak the milter protocol ([filter.NAME], docs/filters.md); run an SMTP content filter as a proxy in front of Postrider, or as a smarthost";
const NO_HEADER_CHECKS: &str =
    "write a [[rule]] with `header = [\"Name: /pattern/\"]` for each pattern; the body cannot be searched";
const NO_SCREEN: &str =
    "see greeting_delay in [[listen]], [checks] and [[limit]]; for DNS block lists, use `dnsbl` in [checks]";
const NO_BALANCER: &str =
    "connections from load balancers are closed until `proxy` in [[listen]] lists their addresses";
const NO_QUOTA: &str = "Postrider does not limit the size of mailboxes; use file system quotas";
const NO_CLASSES: &str = "both the reverse-path and the recipients are rewritten, and no header fields";
/// Settings of local(8) that it does not use here.
const NO_LOCAL_MAIL: &str = "not used: mail for all local domains goes to another transport";

/// Parameters that need no key.
const MAPPED: &str = "compatibility_level append_at_myorigin biff readme_directory html_directory manpage_directory \
    sample_directory command_directory daemon_directory data_directory queue_directory config_directory \
    meta_directory shlib_directory mailq_path newaliases_path sendmail_path setgid_group mail_owner \
    debug_peer_level debug_peer_list debugger_command alias_database default_database_type \
    unknown_local_recipient_reject_code program_directory process_id_directory \
    smtpd_tls_session_cache_database smtp_tls_session_cache_database lmtp_tls_session_cache_database \
    smtpd_tls_received_header smtpd_tls_loglevel smtp_tls_loglevel smtp_tls_note_starttls_offer \
    smtpd_tls_dh1024_param_file smtpd_tls_dh512_param_file smtpd_tls_eecdh_grade smtpd_use_tls \
    smtpd_enforce_tls smtpd_tls_security_level smtpd_tls_wrappermode tls_preempt_cipherlist \
    tls_random_source tls_ssl_options smtp_host_lookup smtp_sasl_security_options \
    smtp_sasl_tls_security_options smtp_sasl_type broken_sasl_auth_clients smtpd_delay_reject \
    smtpd_delay_open_until_valid_rcpt allow_percent_hack swap_bangpath show_user_unknown_table_name \
    smtpd_forbid_unauth_pipelining smtpd_data_restrictions local_header_rewrite_clients \
    remote_header_rewrite_domain virtual_mailbox_lock mailbox_delivery_lock owner_request_special \
    expand_owner_alias mynetworks_style proxy_read_maps bounce_notice_recipient error_notice_recipient \
    delay_notice_recipient double_bounce_sender qmgr_message_active_limit qmgr_message_recipient_limit \
    in_flow_delay local_destination_concurrency_limit local_destination_recipient_limit \
    smtp_connection_cache_on_demand smtp_connection_cache_destinations smtp_skip_5xx_greeting \
    smtp_always_send_ehlo smtp_sasl_auth_soft_bounce default_extra_recipient_limit maillog_file_prefixes \
    enable_long_queue_ids smtputf8_enable smtputf8_autodetect_classes import_environment export_environment \
    multi_recipient_bounce_reject_code verp_delimiter_filter undisclosed_recipients_header \
    ignore_mx_lookup_error duplicate_filter_limit empty_address_recipient mail_name mail_version \
    stale_lock_time max_idle max_use plaintext_reject_code trigger_timeout \
    dovecot_destination_recipient_limit";

/// Parameters by their names, several where they are treated alike.
const NAMES: &Meanings = &[
    (
        "append_dot_mydomain",
        Note("domains without a dot are not completed; local programs must write full addresses"),
    ),
    ("default_privs", Note("programs in aliases run as addresses.program_user")),
    (
        "smtp_tls_CApath",
        Note("tls.ca_file is a single file; without it, Mozilla's certificate authorities are trusted"),
    ),
    ("smtpd_tls_CApath", Note("tls.client_ca_file is a single file")),
    (
        "smtpd_tls_protocols smtpd_tls_mandatory_protocols",
        Note("TLS 1.2 and 1.3 are used; tls.min_version can require 1.3"),
    ),
    ("smtp_tls_protocols smtp_tls_mandatory_protocols", Note("TLS 1.2 and 1.3 are used")),
    (
        "smtpd_tls_mandatory_ciphers smtpd_tls_exclude_ciphers smtpd_tls_mandatory_exclude_ciphers smtpd_tls_ciphers tls_medium_cipherlist tls_high_cipherlist smtp_tls_mandatory_ciphers smtp_tls_exclude_ciphers",
        Note("only modern ciphers are used"),
    ),
    ("smtp_dns_support_level", Note("MX records are looked up even with the level `disabled`")),
    ("smtp_sasl_mechanism_filter", Note("the strongest mechanism that the server offers is used")),
    ("smtp_sender_dependent_authentication", Note("a [[route]] with `senders` can have its own login")),
    (
        "smtpd_sasl_security_options smtpd_sasl_tls_security_options",
        Note("auth.mechanisms lists the mechanisms that are offered"),
    ),
    ("smtpd_sasl_local_domain", Note("no realm is added to the login name")),
    ("smtpd_sasl_authenticated_header", Note("the login is logged, but not written to the Received field")),
    (
        "smtpd_sasl_exceptions_networks",
        Matters(Effect::Opened, "AUTH is offered to all clients of a listener"),
    ),
    ("smtpd_banner", Missing("the greeting is always the hostname and ESMTP")),
    (
        "smtpd_helo_required",
        Note("hello = \"enforce\" in [checks] refuses clients that do not give a valid name"),
    ),
    (
        "strict_rfc821_envelopes",
        Note("limits.loose_paths = \"nobody\" does nearly the same; limits.strict_local_parts is stricter"),
    ),
    (
        "smtpd_reject_unlisted_sender",
        Matters(
            Effect::Taken,
            "sender addresses in local domains are accepted even if they do not exist; users who log in may use only their own addresses",
        ),
    ),
    (
        "smtpd_forbid_bare_newline",
        Note(
            "see bare_lf in [[listen]]: by default, mail with a bare LF is refused, except from relay.networks",
        ),
    ),
    (
        "smtpd_forbid_bare_newline_exclusions",
        Note("a bare LF in mail from relay.networks is replaced with CRLF"),
    ),
    ("smtpd_discard_ehlo_keyword_address_maps", Missing("discard_ehlo_keywords applies to a whole listener")),
    ("smtpd_soft_error_limit", Note("limits.max_errors ends the session")),
    ("smtpd_error_sleep_time", Missing("a [[rule]] can slow clients down with `delay`")),
    (
        "smtpd_client_event_limit_exceptions",
        Note("see `except` in [[limit]], where the import lists the trusted networks"),
    ),
    ("smtpd_proxy_filter content_filter", Matters(Effect::Taken, NO_FILTER)),
    (
        "smtpd_upstream_proxy_protocol postscreen_upstream_proxy_protocol",
        Matters(Effect::Refused, NO_BALANCER),
    ),
    ("postscreen_access_list", Matters(Effect::Taken, NO_SCREEN)),
    ("smtpd_policy_service_timeout", Note("see timeout in [policy_service.NAME]")),
    ("smtpd_policy_service_default_action", Note("see on_failure in [policy_service.NAME]")),
    (
        "smtpd_milter_maps",
        Matters(Effect::Taken, "`for` in [filter.NAME] selects the clients whose mail a filter sees"),
    ),
    ("receive_override_options", Missing(NO_FILTER)),
    (
        "header_checks mime_header_checks nested_header_checks body_checks",
        Matters(Effect::Taken, NO_HEADER_CHECKS),
    ),
    (
        "smtp_header_checks",
        Missing("the header of outgoing mail is not changed; a [[rule]] can add fields when mail arrives"),
    ),
    ("always_add_missing_headers", Note("submission listeners add missing Date and Message-ID fields")),
    ("message_strip_characters", Missing("the content is passed on unchanged")),
    ("header_size_limit", Note("mail whose header exceeds limits.max_header_size is refused, not truncated")),
    ("mailbox_size_limit virtual_mailbox_limit", Matters(Effect::Taken, NO_QUOTA)),
    ("mailbox_command_maps", Matters(Effect::Elsewhere, "to run a program, use `pipe` in a [[route]]")),
    ("forward_path", Matters(Effect::Elsewhere, "only .forward files in home directories are read")),
    ("allow_mail_to_commands", Note("addresses.programs lists the programs that aliases may run")),
    ("allow_mail_to_files", Note("addresses.files lists the files that aliases may append to")),
    ("propagate_unmatched_extensions", Note("docs/addresses.md says when the detail of user+detail is kept")),
    (
        "canonical_classes sender_canonical_classes recipient_canonical_classes",
        Matters(Effect::Addresses, NO_CLASSES),
    ),
    ("masquerade_exceptions", Matters(Effect::Addresses, "masquerading applies to all users")),
    ("masquerade_classes", Matters(Effect::Addresses, "only the reverse-path is rewritten, not the header")),
    ("parent_domain_matches_subdomains", Note("the pattern *.example.com matches subdomains")),
    (
        "proxy_interfaces",
        Note(
            "mail goes only to MX hosts that are preferred to this server; if it loops through the outside address, add that address to [hosts]",
        ),
    ),
    ("bounce_queue_lifetime", Note("bounces stay in the queue as long as other mail: queue.expire")),
    (
        "bounce_size_limit",
        Note(
            "a bounce contains the header of the message, or the whole message if the client asked for it (RET)",
        ),
    ),
    (
        "bounce_template_file",
        Note("for your own texts, see notifications.templates and docs/notifications.md"),
    ),
    ("2bounce_notice_recipient", Note("bounces that cannot be delivered go to the address in `postmaster`")),
    (
        "queue_run_delay",
        Note(
            "there are no queue runs: each message has its own retry time, and queue.retry_min is the shortest interval",
        ),
    ),
    (
        "default_process_limit",
        Note("inbound.max_sessions and delivery.max_connections limit connections instead"),
    ),
    ("smtp_address_preference", Missing("addresses are tried in the order in which DNS returns them")),
    (
        "smtp_bind_address6",
        Missing("delivery.source_address is a single address; a [[route]] can have its own"),
    ),
    ("smtp_discard_ehlo_keywords", Missing("all EHLO keywords that a next hop offers are used")),
    (
        "smtp_destination_rate_delay default_destination_rate_delay",
        Missing("the rate of deliveries cannot be limited yet; queue groups limit connections"),
    ),
    (
        "fast_flush_domains smtpd_etrn_restrictions",
        Note("extensions.etrn says who may flush the queue for a domain"),
    ),
    (
        "rbl_reply_maps maps_rbl_domains",
        Missing(
            "for DNS block lists, use `dnsbl` in [checks]; a [[rule]] with `dns_list` can have its own reply",
        ),
    ),
    ("maillog_file", Note("log.file names the log; log.format = \"postfix\" writes it in Postfix's format")),
    ("syslog_facility syslog_name", Note("the log goes to standard error or to log.file")),
    (
        "authorized_submit_users",
        Matters(
            Effect::Opened,
            "all users of this machine may submit mail; restrict them by the permissions of the submit socket's directory",
        ),
    ),
    (
        "authorized_mailq_users authorized_flush_users",
        Note("root, the daemon's user and members of control.group may do this"),
    ),
    (
        "multi_instance_wrapper multi_instance_enable multi_instance_directories multi_instance_name multi_instance_group",
        Missing("run one daemon for each configuration, with --config"),
    ),
    ("default_verp_delimiters", Note("addresses.verp uses addresses.separator")),
    (
        "address_verify_map",
        Note("`verify = true` in a [[route]] asks the next hop whether the recipient exists"),
    ),
    (
        "disable_dns_lookups",
        Matters(
            Effect::Elsewhere,
            "MX records are looked up: to avoid that, write [[route]]s with `smarthost`",
        ),
    ),
    (
        "mailbox_transport mailbox_transport_maps fallback_transport fallback_transport_maps mailbox_command home_mailbox mail_spool_directory",
        Note(NO_LOCAL_MAIL),
    ),
    (
        "best_mx_transport",
        Matters(
            Effect::Refused,
            "a domain is not local just because its MX records name this server: list such domains in local.domains",
        ),
    ),
    (
        "lmtp_sasl_auth_enable",
        Matters(
            Effect::Refused,
            "Postrider does not log in to LMTP servers: mail for a server that requires it is deferred",
        ),
    ),
    ("lmtp_tls_security_level", Note("see `tls` in the [[route]] with `lmtp`")),
    (
        "lmtp_destination_recipient_limit",
        Note("delivery.recipients_per_transaction applies to all next hops"),
    ),
];

/// Families of parameters.
const PREFIXES: &[(&str, Treatment)] = &[
    ("postscreen_", Missing(NO_SCREEN)),
    ("dnsblog_", Missing(NO_SCREEN)),
    (
        "address_verify_",
        Note("`verify = true` in a [[route]] asks the next hop whether the recipient exists"),
    ),
    (
        "virtual_alias_",
        Note("aliases may be chained 10 deep; addresses.max_list_members limits the number of targets"),
    ),
    ("unknown_", Note("reply codes are fixed; a [[rule]] can have its own reply")),
    ("smtpd_tls_", Note("see [tls] and [[listen]]")),
    ("smtp_tls_", Note("see `tls` in the [[route]]")),
    ("lmtp_tls_", Note("see `tls` in the [[route]] with `lmtp`")),
    ("lmtp_", Note("the settings in [delivery] apply to LMTP, too")),
    ("tls_", Mapped),
    ("tlsproxy_", Mapped),
    ("smtpd_timeout", Mapped),
    ("qmqpd_", Missing("QMQP is not supported; use SMTP")),
    ("smtp_sasl_", Note("see `login` in the [[route]]")),
];

/// Endings of names that are treated alike.
const SUFFIXES: &[(&str, Treatment)] = &[
    ("_reject_code", Note("reply codes are fixed; a [[rule]] can have its own reply")),
    ("_service_name", Mapped),
    ("_destination_concurrency_limit", Note("a queue group can have its own connections_per_destination")),
    ("_destination_recipient_limit", Note("delivery.recipients_per_transaction applies to all next hops")),
    (
        "_destination_rate_delay",
        Missing("the rate of deliveries cannot be limited yet; queue groups limit connections"),
    ),
    ("_time_limit", Note("see `timeout` of `pipe` in the [[route]]")),
    ("_directory", Mapped),
];

/// Names of all parameters of Postfix 3.7.
const PARAMETERS: &str = include_str!("../parameters.txt");

/// Judges what no other part has judged.
pub(super) fn judge(context: &mut Context<'_>) {
    let parameters = context.main.parameters.clone();
    for parameter in &parameters {
        let name = &*parameter.name;
        if context.has_verdict(name) {
            continue;
        }
        let exact = treatment(NAMES, name).or_else(|| is_in(MAPPED, name).then_some(Mapped));
        let suffix = || SUFFIXES.iter().find(|(end, _)| name.ends_with(end)).map(|(_, treatment)| *treatment);
        let prefix =
            || PREFIXES.iter().find(|(begin, _)| name.starts_with(begin)).map(|(_, treatment)| *treatment);
        // A filter that is set to nothing filters nothing.
        let is_off = is_off(&context.main.value(name));
        let verdict = match exact.or_else(suffix).or_else(prefix) {
            Some(Missing(_) | Matters(..)) if is_off => Verdict::Mapped,
            Some(Note(_)) if context.main.value(name).is_empty() => Verdict::Mapped,
            Some(Matters(effect, text)) => {
                context.effect(effect, name, text);
                context.missing(name, "");
                continue;
            }
            Some(treatment) => treatment.verdict(),
            None if is_variable(context, name) => Verdict::Mapped,
            None if is_parameter(name) && is_off => Verdict::Mapped,
            None if is_parameter(name) => Verdict::Missing("Postrider has no such setting".to_owned()),
            None => Verdict::Unknown,
        };
        context.set_verdict(name, verdict);
    }
}

/// Returns whether Postfix has a parameter, or has it for each transport: `slow_delivery_slot_cost`.
fn is_parameter(name: &str) -> bool {
    let of_transport = |known: &str| {
        known.strip_prefix("default").is_some_and(|end| end.starts_with('_') && name.ends_with(end))
    };
    is_in(PARAMETERS, name) || PARAMETERS.split_whitespace().any(of_transport)
}

/// Returns the parameter that an unknown name may be meant for.
pub(super) fn near(name: &str) -> Option<&'static str> {
    let scored = PARAMETERS.split_whitespace().map(|known| (strsim::damerau_levenshtein(name, known), known));
    scored.filter(|(edits, _)| *edits <= 2).min().map(|(_, known)| known)
}

/// Returns whether a value switches its parameter off.
pub(super) fn is_off(value: &str) -> bool {
    matches!(value, "" | "no" | "0")
}

/// Returns what becomes of mail because of a parameter without a counterpart.
pub(super) fn effect(name: &str) -> Option<(Effect, &'static str)> {
    match treatment(NAMES, name)? {
        Matters(effect, text) => Some((effect, text)),
        _ => None,
    }
}

/// Returns whether other values use the parameter: it is a name of the site's own.
fn is_variable(context: &Context<'_>, name: &str) -> bool {
    let uses = |value: &str| {
        ["$", "${", "$("].iter().any(|begin| {
            let word = format!("{begin}{name}");
            value.match_indices(&word).any(|(at, _)| {
                !value[at + word.len()..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            })
        })
    };
    let in_main = context.main.parameters.iter().any(|other| other.name != name && uses(&other.value));
    let in_master =
        context.master.services.iter().flat_map(|service| &service.overrides).any(|(_, value)| uses(value));
    in_main || in_master
}
