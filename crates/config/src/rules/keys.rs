//! The keys of rules, checks, limits and policy services.

use super::values::{
    CheckMode, ClientNamePattern, DeferVerb, Fields, GreylistMode, LeastScore, LoginName, OnFailure, Reason,
    RejectVerb, Score, Unless,
};
use crate::{
    domain::DomainPattern,
    section::section,
    server_value::MapServer,
    units::ByteSize,
    value::{OrMap, Word},
};
use ipnet::IpNet;
use limits::Rate;
use mail::{ListenerKind, Mailbox};
use policy::{AddressPattern, Audience, CertificatePattern, DnsList, HeaderPattern, Per, Stage};
use std::time::Duration;

section! {
    /// A rule for mail from clients. The section can be repeated, and rules are read in the order of the file. All
    /// conditions of a rule must hold; a list means any of its items, and can contain maps. The first rule with a verdict
    /// decides: `accept`, `reject`, `defer`, `discard`, `hold` or `ask`. Other keys change something, and the rules below
    /// are read as well. No rule lets a client relay: that is decided before, by `[relay]` and logins. If a map does not
    /// answer, the client gets a temporary error (451 4.3.0). docs/rules.md has examples; `postrider test` shows which
    /// rule decides about a message, and why.
    pub(crate) RuleKeys = "rule" many {
        /// The name of the rule in the log. Default: its number.
        name: Option<Word> = "",
        /// The clients that the rule applies to: `untrusted` (clients outside `relay.networks` that have not logged in,
        /// except at `lmtp` listeners), `users` (the others), or `all`.
        r#for: Audience = "\"untrusted\"",
        /// The stage at which the rule is read: `connect`, `hello`, `mail`, `rcpt` or `content`. Default: `rcpt`, so that
        /// the log names sender and recipient, and `content` for rules with `size` or `header`.
        at: Option<Stage> = "",
        /// Condition: kinds of listeners.
        listener: Option<Vec<ListenerKind>> = "",
        /// Condition: the client's address is in one of these networks, or in one of these maps.
        client: Option<Vec<OrMap<IpNet>>> = "",
        /// Condition: the client's name, if forward and reverse DNS agree: `mail.example.com`, `*.example.com`, or `none`
        /// for a client without such a name. In a map, the name is looked up, and then its parent domains with a leading
        /// dot (`.example.com`).
        client_name: Option<Vec<OrMap<ClientNamePattern>>> = "",
        /// Condition: the name in EHLO. Maps are used as for `client_name`.
        hello: Option<Vec<OrMap<DomainPattern>>> = "",
        /// Condition: the connection is encrypted (true) or not (false).
        tls: Option<bool> = "",
        /// Condition: the client's certificate, if `client_certificates` in `[[listen]]` asks for one.
        /// `sha256:FINGERPRINT` matches any certificate. If an authority in `tls.client_ca_file` has signed it, an e-mail
        /// address (`jane@example.com`, `jane@*`), a host name (`mx.example.com`, `*.example.com`) or the common name
        /// (`cn:NAME`) match as well, and `*` matches every such certificate. `none` matches a client without a
        /// certificate. In a map, `sha256:` with the digits in lower case and the names are looked up, all in lower case.
        certificate: Option<Vec<OrMap<CertificatePattern>>> = "",
        /// Condition: the login, ignoring case; `*` for every login.
        login: Option<Vec<OrMap<LoginName>>> = "",
        /// Condition: the sender: `user@example.com`, `user@*`, `example.com`, `*.example.com`, `*`, or `<>` for the null
        /// reverse-path. An address also matches with a detail. In a map, `user@example.com` is looked up first, then the
        /// same without the detail, then `example.com`, its parent domains with a leading dot (`.com`), and `user@`.
        from: Option<Vec<OrMap<AddressPattern>>> = "",
        /// Condition: the recipient, in the same forms. At `content`, one matching recipient is enough, unless the
        /// match would exempt the message: then all must match.
        to: Option<Vec<OrMap<AddressPattern>>> = "",
        /// Condition: one of these lists in DNS has the client's address (RFC 5782): `zen.example.org`, with
        /// `=127.0.0.2` or `=127.0.0.2-11` if only these answers count. A list that does not answer, or that answers
        /// with an error such as 127.255.255.254, does not have it; the log says so once an hour.
        dns_list: Option<Vec<DnsList>> = "",
        /// Condition: one of these lists of domains has the client's verified name, in the form of `dns_list`. Lists of domains are
        /// never asked about addresses.
        client_name_dns_list: Option<Vec<DnsList>> = "",
        /// Condition: one of these lists of domains has the name in EHLO.
        hello_dns_list: Option<Vec<DnsList>> = "",
        /// Condition: one of these lists of domains has the sender's domain.
        from_dns_list: Option<Vec<DnsList>> = "",
        /// Condition: the message is larger than this.
        size: Option<ByteSize> = "",
        /// Condition: the message has more recipients than this.
        recipients: Option<usize> = "",
        /// Condition: a header field: `Name`, or `Name: /regular expression/`. Case is ignored.
        header: Option<Vec<HeaderPattern>> = "",
        /// Condition: a rule above, or a check, has set one of these tags. At the content, for one of the recipients, as
        /// with `to`.
        tagged: Option<Vec<Word>> = "",
        /// Condition: rules above have given at least this score. At the content, a recipient's own score counts as with `to`.
        min_score: Option<LeastScore> = "",
        /// Condition: one of these limits, given by name, is exceeded. The limit then refuses nothing by itself.
        over: Option<Vec<Word>> = "",
        /// Exceptions: the rule does not apply if one of these conditions holds: `{ client = ["192.0.2.0/24"] }`.
        unless: Option<Unless> = "",
        /// Verdict: no rule below is read at this stage.
        accept: bool = "false",
        /// Verdict: reject, with `true` or with a reply such as `"550 5.7.1 {from} is not welcome"`. The reply can use
        /// `{client}`, `{from}`, `{to}`, `{login}` and `{hello}`, and `{text}` for the value found in the map that
        /// decided.
        reject: Option<RejectVerb> = "",
        /// Verdict: a temporary error, with `true` or with a reply that begins with 4.
        defer: Option<DeferVerb> = "",
        /// Verdict: accept and do not deliver, with `true` or with a reason for the log. At RCPT it applies to that
        /// recipient only.
        discard: Option<Reason> = "",
        /// Verdict: accept and hold until an operator releases the message, with `true` or with a reason for the log.
        hold: Option<Reason> = "",
        /// Verdict: whatever a policy service decides, given by name; see `[policy_service.NAME]`.
        ask: Option<Word> = "",
        /// Set tags for rules below.
        tag: Vec<Word> = "[]",
        /// Add to the score of the mail, for `min_score` in rules below: from -1000 to 1000.
        score: Score = "0",
        /// Wait before the reply, at most 20s.
        delay: Duration = "\"0s\"",
        /// Add fields to the header: `"X-Checked: yes"`.
        add_header: Fields = "[]",
        /// Deliver to these addresses instead of the recipient; at the content, instead of all recipients. Aliases apply
        /// to them.
        redirect: Vec<Mailbox> = "[]",
        /// Deliver a copy to these addresses as well; nobody gets a notification about it.
        bcc: Vec<Mailbox> = "[]",
        /// Deliver by the route with this `name`, whatever the domain is; at the content, this applies to all recipients
        /// that no rule at RCPT has given a route. It does not apply to copies of `bcc`, or to programs and files of
        /// aliases. If the route is removed from the configuration, queued mail takes the route of its domain.
        route: Option<Word> = "",
        /// If true, the rule is there only for a while, so rules below it that can never be reached because of it are a
        /// warning and not an error. This is the default for a rule with `defer` or `hold` and no conditions.
        temporary: bool = "false",
        /// If true, the client counts as trusted for the rules and checks below. It still may not relay.
        trust: bool = "false",
    }
}

section! {
    /// Checks of untrusted clients. With `off`, nothing is checked; with `enforce`, a failed check rejects, unless a rule has
    /// decided before; with `tag`, it only sets a tag for rules at the content. The tag of `hello` and `reverse_name` is
    /// their name. `spf`, `dkim` and `dmarc` are checked when the content has arrived. They add an
    /// `Authentication-Results` field (RFC 8601), and set tags such as `spf-fail`, `dkim-pass` and `dmarc-none`, also with
    /// `enforce` (docs/authentication.md).
    pub(crate) Checks = "checks" {
        /// The name in EHLO must be that of a mail server: a domain with a dot, or an address in brackets, and not a name of
        /// this server. Reply: 550 5.7.1.
        hello: CheckMode = "\"off\"",
        /// The client's address must have a name that leads back to it. Reply: 550 5.7.25, or 450 4.7.25 if DNS does not
        /// answer.
        reverse_name: CheckMode = "\"off\"",
        /// Lists in DNS that must not have the client's address, in the form of `dns_list` in `[[rule]]`:
        /// `["zen.example.org"]`. Reply: 550 5.7.1, with the list and its reason.
        dnsbl: Vec<DnsList> = "[]",
        /// The client must not be one that the sender's domain refuses (SPF, RFC 7208): its record says `-all` or the
        /// like about the client. Reply: 550 5.7.23. A domain without a record, and one whose look-up fails, is not
        /// rejected.
        spf: CheckMode = "\"off\"",
        /// If the message has DKIM signatures (RFC 6376), one of them must be valid. Reply: 550 5.7.20. A message without
        /// signatures, and one whose keys cannot be looked up now, is not rejected. Mailing lists break signatures:
        /// prefer `dmarc`.
        dkim: CheckMode = "\"off\"",
        /// The domain in From must not ask to reject the message (DMARC, RFC 9989): it fails, and the domain's policy is
        /// `p=reject`. Reply: 550 5.7.26. If the policy is `p=quarantine`, the tag `dmarc-quarantine` is set, which a rule
        /// with `hold` can use. SPF and DKIM are looked up for it, also when their own keys say `off`.
        dmarc: CheckMode = "\"off\"",
        /// Mail from an unknown origin must be retried (RFC 6647), which programs that send spam often do not do.
        /// `suspects`: the mail of clients whose address the sender's domain does not permit (SPF), or whose address has
        /// no name that leads back to it; `all`: that of every client. `[greylist]` has the times. Recipients are
        /// greylisted only if no other check refuses them, no rule at RCPT says `accept`, and no rule has trusted the client.
        /// Reply: 451 4.7.1.
        greylist: GreylistMode = "\"off\"",
    }
}

section! {
    /// The times of `greylist` in `[checks]`. An origin is the client's network (an IPv4 /24 or an IPv6 /64) with the
    /// sender and the recipient. What is known is kept in a file in `data_dir`, and outlives restarts.
    pub(crate) GreylistKeys = "greylist" {
        /// How long mail from an unknown origin has to wait. A retry before that does not count.
        wait: Duration = "\"5m\"",
        /// A retry later than this counts as a first attempt.
        retry: Duration = "\"2d\"",
        /// An origin that sends nothing for this long is forgotten.
        keep: Duration = "\"35d\"",
        /// When mail of this many origins in a network has come again, the network is known, and none of its mail waits.
        /// With 0, no network ever is.
        known_after: usize = "5",
    }
}

section! {
    /// A limit on how much one client, login, sender or recipient domain may do in a given time. The section can be
    /// repeated. It has one of the keys `connections`, `messages`, `recipients`, `bytes` and `failures`, each a rate such
    /// as `500/h`, `100/10min` or `1GiB/d`: this much may come at once, and is then replenished evenly. Limits apply to
    /// all clients, including trusted ones.
    pub(crate) LimitRateKeys = "limit" many {
        /// The name of the limit, for `over` in rules and for the log. Default: its number.
        name: Option<Word> = "",
        /// Whose events are counted together: those of a `client` (an IPv4 address or an IPv6 /64 network), a `login`, a
        /// `sender`, a `sender-domain` or a `recipient-domain`.
        per: Option<Per> = "",
        /// Connections. Needs `per = "client"`.
        connections: Option<Rate> = "",
        /// MAIL commands.
        messages: Option<Rate> = "",
        /// Recipients.
        recipients: Option<Rate> = "",
        /// Octets of content.
        bytes: Option<Rate> = "",
        /// Rejected commands and failed logins; beyond the limit, new connections are refused. Needs `per = "client"`.
        failures: Option<Rate> = "",
        /// The reply when the limit is exceeded. It can use `{client}`, `{from}`, `{to}` and `{login}`. Default: `450
        /// 4.7.1 Too much mail, try again later`; with `connections`, too many connections from `{client}`; with
        /// `failures`, too many rejected commands or failed logins from `{client}`. Instead of a greeting, the code is
        /// 421.
        reply: Option<DeferVerb> = "",
        /// Clients that the limit does not apply to.
        except: Vec<IpNet> = "[]",
    }
}

section! {
    /// A policy server that rules ask with `ask = "NAME"`, by the protocol of Postfix's policy servers
    /// (SMTPD_POLICY_README), such as postfwd.
    pub(crate) PolicyServiceKeys = "policy_service" named {
        /// The server: `unix:/path` or `host:port`.
        address: Option<MapServer> = "",
        /// Time for one answer, including connecting.
        timeout: Duration = "\"10s\"",
        /// The verdict if the server does not answer: `defer` (451 4.3.0), or `pass` (the rules below are read).
        on_failure: OnFailure = "\"defer\"",
    }
}
