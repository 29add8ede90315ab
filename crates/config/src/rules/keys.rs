//! The keys of rules, checks, limits and policy services.

use super::values::{
    CheckMode, ClientNamePattern, DeferVerb, Fields, LoginName, OnFailure, Reason, RejectVerb, Unless,
};
use crate::{
    domain::DomainPattern,
    section::section,
    units::ByteSize,
    value::{MapServer, OrMap, Word},
};
use ipnet::IpNet;
use limits::Rate;
use mail::{ListenerKind, Mailbox};
use policy::{AddressPattern, Audience, CertificatePattern, HeaderPattern, Per, Stage};
use std::time::Duration;

section! {
    /// A rule for mail from clients. The section can be repeated; rules are read in the order of the file. All
    /// conditions of a rule must hold; a list means any of its items, and a map may stand in a list. The first rule with
    /// a verdict decides: `accept`, `reject`, `defer`, `discard`, `hold` or `ask`. Other keys change something, and the
    /// rules below are read as well. No rule lets a client relay: `[relay]` and logins decide that before. A map that
    /// does not answer is a temporary error (451 4.3.0). docs/rules.md has examples; `postrider test` shows which rule
    /// decides about a message, and why.
    pub(crate) RuleKeys = "rule" many {
        /// The name of the rule in the log. Default: its number.
        name: Option<Word> = "",
        /// The clients of the rule: `untrusted` (clients outside of `relay.networks` that have not logged in; not those of
        /// `lmtp` listeners), `users` (the others), or `all`.
        r#for: Audience = "\"untrusted\"",
        /// The stage at which the rule is read: `connect`, `hello`, `mail`, `rcpt` or `content`. Default: `rcpt`, so that
        /// the log names sender and recipient; `content` for rules with `size` or `header`.
        at: Option<Stage> = "",
        /// Condition: kinds of listeners.
        listener: Option<Vec<ListenerKind>> = "",
        /// Condition: the client's address is in one of these networks, or in one of these maps.
        client: Option<Vec<OrMap<IpNet>>> = "",
        /// Condition: the name of the client that DNS confirms in both directions: `mail.example.com`,
        /// `*.example.com`, or `none` for a client without such a name. A map is asked for the name, and for the
        /// domains above it with a dot in front (`.example.com`).
        client_name: Option<Vec<OrMap<ClientNamePattern>>> = "",
        /// Condition: the name in EHLO. Maps as for `client_name`.
        hello: Option<Vec<OrMap<DomainPattern>>> = "",
        /// Condition: the connection is encrypted, or is not.
        tls: Option<bool> = "",
        /// Condition: the client's certificate, where `client_certificates` in `[[listen]]` asks for one:
        /// `sha256:FINGERPRINT`; or in a certificate that an authority of `tls.client_ca_file` has signed an e-mail address
        /// (`jane@example.com`, `jane@*`), a host name (`mx.example.com`, `*.example.com`), or the common name (`cn:NAME`);
        /// `*` for every such certificate, and `none` for a client that has shown none. A map is asked for `sha256:` with
        /// the digits in lower case, and for the names, all in lower case.
        certificate: Option<Vec<OrMap<CertificatePattern>>> = "",
        /// Condition: the login, in any letter case; `*` for every login.
        login: Option<Vec<OrMap<LoginName>>> = "",
        /// Condition: the sender: `user@example.com`, `user@*`, `example.com`, `*.example.com`, `*`, or `<>` for
        /// the null reverse-path. An address also means the address with a detail. A map is asked for `user@example.com`, then without the detail, then for `example.com`, the domains above
        /// it with a dot in front (`.com`), and `user@`.
        from: Option<Vec<OrMap<AddressPattern>>> = "",
        /// Condition: the recipient, in the same forms. At the content, one of the recipients; every one where the rule or
        /// `unless` exempts the message.
        to: Option<Vec<OrMap<AddressPattern>>> = "",
        /// Condition: the message is larger.
        size: Option<ByteSize> = "",
        /// Condition: the message has more recipients.
        recipients: Option<usize> = "",
        /// Condition: a field of the header: `Name`, or `Name: /regular expression/`. Letter case is ignored.
        header: Option<Vec<HeaderPattern>> = "",
        /// Condition: a rule above, or a check, has set one of these tags. At the content, for one of the recipients, as with `to`.
        tagged: Option<Vec<Word>> = "",
        /// Condition: one of these limits, by name, is exceeded. The limit then refuses nothing by itself.
        over: Option<Vec<Word>> = "",
        /// Conditions of which none may hold: `{ client = ["192.0.2.0/24"] }`.
        unless: Option<Unless> = "",
        /// Verdict: no rule below is read at this stage.
        accept: bool = "false",
        /// Verdict: reject, with `true` or with a reply such as `"550 5.7.1 {from} is not welcome"`. `{client}`,
        /// `{from}`, `{to}`, `{login}` and `{hello}` stand for these facts, `{text}` for the value of the map that decided.
        reject: Option<RejectVerb> = "",
        /// Verdict: a temporary error, with `true` or with a reply that begins with 4.
        defer: Option<DeferVerb> = "",
        /// Verdict: accept and do not deliver, with `true` or with a reason for the log. At RCPT this is for one recipient.
        discard: Option<Reason> = "",
        /// Verdict: accept and hold until an operator releases the message, with `true` or with a reason for the log.
        hold: Option<Reason> = "",
        /// Verdict: that of a policy service, by name; see `[policy_service.NAME]`.
        ask: Option<Word> = "",
        /// Set tags, for rules below.
        tag: Vec<Word> = "[]",
        /// Wait before the reply, at most 20s.
        delay: Duration = "\"0s\"",
        /// Add fields to the header: `"X-Checked: yes"`.
        add_header: Fields = "[]",
        /// Deliver to these addresses in place of the recipient; at the content, in place of all recipients. Aliases apply to
        /// them.
        redirect: Vec<Mailbox> = "[]",
        /// Deliver a copy to these addresses, too; nobody is notified about it.
        bcc: Vec<Mailbox> = "[]",
        /// Deliver by the route with this `name`, whatever the domain is; at the content, all recipients that no rule at RCPT has
        /// given a route. Copies of `bcc`, and programs and files of aliases, are not meant. If the configuration does
        /// not have the route any more, queued mail takes the route of its domain.
        route: Option<Word> = "",
        /// True if the rule is there for a while only. Rules below it that are never reached because of it are a warning, and not
        /// an error. So it is without this key for a rule without conditions with `defer` or `hold`.
        temporary: bool = "false",
        /// True if the client counts as trusted for the rules and checks below. This gives no right to relay.
        trust: bool = "false",
    }
}

section! {
    /// Checks of untrusted clients, in this order, after all rules. `off`; `tag`: a failed check sets a tag with its
    /// name for rules at the content; `enforce`: it rejects.
    pub(crate) Checks = "checks" {
        /// The name in EHLO must be that of a mail server: a domain with a dot, or an address in brackets, and not a name of
        /// this server. Reply: 550 5.7.1.
        hello: CheckMode = "\"off\"",
        /// The client's address must have a name that leads back to it. Reply: 550 5.7.25, and 450 4.7.25 if DNS
        /// does not answer.
        reverse_name: CheckMode = "\"off\"",
    }
}

section! {
    /// A limit of what one client, login, sender or recipient domain may do in a time. The section can be repeated. It
    /// has one of the keys `connections`, `messages`, `recipients`, `bytes` and `failures`, each a rate such as `500/h`,
    /// `100/10min` or `1GiB/d`: so much may come at once, and then it fills up evenly. Limits are for all clients, trusted ones, too. A restart
    /// of the daemon begins anew.
    pub(crate) LimitRateKeys = "limit" many {
        /// The name, for `over` of rules and for the log. Default: its number.
        name: Option<Word> = "",
        /// The owner of the events that are counted together: `client` (an IPv4 address or an IPv6 network /64), `login`, `sender`,
        /// `sender-domain` or `recipient-domain`.
        per: Option<Per> = "",
        /// Connections. With `per = "client"`.
        connections: Option<Rate> = "",
        /// MAIL commands.
        messages: Option<Rate> = "",
        /// Recipients.
        recipients: Option<Rate> = "",
        /// Octets of content.
        bytes: Option<Rate> = "",
        /// Rejected commands and failed logins. With `per = "client"`; then new connections are refused.
        failures: Option<Rate> = "",
        /// The reply when it is exceeded. `{client}`, `{from}`, `{to}` and `{login}` stand for these facts. Default:
        /// `450 4.7.1 Too much mail, try again later`; for `connections`, too many connections from `{client}`, and for
        /// `failures`, too many rejected commands or failed logins from `{client}`. A greeting has the code 421.
        reply: Option<DeferVerb> = "",
        /// Clients without the limit.
        except: Vec<IpNet> = "[]",
    }
}

section! {
    /// A policy server that rules ask with `ask = "NAME"`, in the protocol of Postfix's policy servers
    /// (SMTPD_POLICY_README), such as those for greylisting.
    pub(crate) PolicyServiceKeys = "policy_service" named {
        /// The server: `unix:/path` or `host:port`.
        address: Option<MapServer> = "",
        /// Time for one answer, with connecting.
        timeout: Duration = "\"10s\"",
        /// The verdict if the server does not answer: `defer` (451 4.3.0), or `pass` (the rules below are read).
        on_failure: OnFailure = "\"defer\"",
    }
}
