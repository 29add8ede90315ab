//! The first rule of a mail server: it is no open relay.

use crate::{SessionFacts, Source};
use ipnet::IpNet;
use mail::{Domain, Enhanced, ForwardPath, ListenerKind, Mailbox, Reply, ReversePath};
use rewrite::Separator;
use std::{collections::HashSet, fmt, net::IpAddr, sync::Arc};

/// Who may relay, and which addresses are local.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Domains whose mail is taken from everywhere, as [`mail::Domain::key`] gives them.
    pub local_domains: Vec<String>,
    /// Local parts that exist in local domains, in any case; none: every one does.
    pub users: Option<Vec<String>>,
    /// Clients that may send anywhere.
    pub relay_networks: Vec<IpNet>,
    /// Further clients that may send anywhere, by tables in memory.
    pub relay_tables: Option<ClientTable>,
    /// The character between a user and a detail (RFC 5233); none: local parts have no detail.
    pub separator: Option<Separator>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            local_domains: Vec::new(),
            users: None,
            relay_networks: Vec::new(),
            relay_tables: None,
            separator: Separator::parse("+"),
        }
    }
}

/// Verdicts on clients and recipients.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    local: HashSet<String>,
    users: Option<HashSet<String>>,
    networks: Vec<IpNet>,
    tables: Option<ClientTable>,
    separator: Option<Separator>,
}

/// Tables in memory that tell of a client's address whether they have it.
#[derive(Clone)]
pub struct ClientTable(pub Arc<dyn Fn(IpAddr) -> bool + Send + Sync>);

impl fmt::Debug for ClientTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTable")
    }
}

impl Policy {
    /// Creates the policy from its settings.
    pub fn new(settings: Settings) -> Self {
        let lower =
            |users: Vec<String>| users.into_iter().map(|user| mail::fold(&user).into_owned()).collect();
        Self {
            local: settings.local_domains.into_iter().collect(),
            users: settings.users.map(lower),
            networks: settings.relay_networks,
            tables: settings.relay_tables,
            separator: settings.separator,
        }
    }

    /// Returns whether a client may send to every domain.
    pub fn may_relay(&self, client: IpAddr) -> bool {
        // A dual-stack socket shows IPv4 clients as ::ffff:192.0.2.1.
        let client = client.to_canonical();
        // This address stands for a client on a Unix socket.
        let is_in_tables = || self.tables.as_ref().is_some_and(|tables| tables.0(client));
        !client.is_unspecified()
            && (self.networks.iter().any(|network| network.contains(&client)) || is_in_tables())
    }

    /// Returns whether a session may send to every domain. Programs on this machine and this server itself may.
    pub fn may_send_anywhere(&self, session: &SessionFacts) -> bool {
        let Source::Smtp { peer, listener, .. } = &session.source else { return true };
        *listener != ListenerKind::Lmtp && (session.login.is_some() || self.may_relay(peer.ip()))
    }

    /// Checks whether a session may send to a recipient. What this machine sends to a user that does not exist is returned by a
    /// report.
    ///
    /// # Errors
    /// The refusal to say: 550 5.1.1 for a user that does not exist, 550 5.7.1 for mail that is not
    /// ours to pass on.
    pub fn recipient(&self, session: &SessionFacts, recipient: &ForwardPath) -> Result<(), Reply> {
        let (Some(mailbox), Some(_)) = (recipient.mailbox(), session.client()) else { return Ok(()) };
        let domain = mailbox.domain().key();
        if self.local.contains(domain.as_ref()) {
            return self.user(mailbox);
        }
        self.relay(session, mailbox)
    }

    /// Checks whether a session may send to a recipient that is not local.
    ///
    /// # Errors
    /// The refusal to say: 550 5.7.1.
    pub fn relay(&self, session: &SessionFacts, recipient: &Mailbox) -> Result<(), Reply> {
        if self.may_send_anywhere(session) {
            return Ok(());
        }
        Err(Reply::new(550, Enhanced(5, 7, 1), format!("<{recipient}>: Relay access denied")))
    }

    /// Returns whether a domain, given as [`mail::Domain::key`], is local.
    pub fn is_local(&self, key: &str) -> bool {
        self.local.contains(key)
    }

    /// Returns whether the user of a local mailbox is in the list of users; true if there is no list.
    pub fn is_user(&self, mailbox: &Mailbox) -> bool {
        self.user(mailbox).is_ok()
    }

    /// Returns whether a login may use a sender address: its own, or none at all, as reports of mail programs have (RFC
    /// 8098 §3). A login that is an address owns that address; another one owns its name in every local domain. Both with
    /// `+anything` (RFC 5233).
    pub fn owns(&self, login: &str, sender: &ReversePath) -> bool {
        let ReversePath::Mailbox(mailbox) = sender else { return true };
        match login.rsplit_once('@') {
            Some((name, domain)) => {
                self.is_name_of(name, mailbox)
                    && Domain::parse(domain).is_ok_and(|domain| domain.key() == mailbox.domain().key())
            }
            None => self.has_name(login, mailbox) && self.local.contains(mailbox.domain().key().as_ref()),
        }
    }

    /// Returns whether a login without a domain owns the address if its domain is local, which a map may say.
    pub fn has_name(&self, login: &str, mailbox: &Mailbox) -> bool {
        !login.contains('@') && self.is_name_of(login, mailbox)
    }

    /// Returns whether the local part is this name, with or without a detail.
    fn is_name_of(&self, name: &str, mailbox: &Mailbox) -> bool {
        let (local, name) = (mailbox.local_name(), mail::fold(name));
        name.eq_ignore_ascii_case(&local) || name.eq_ignore_ascii_case(self.base(&local))
    }

    /// Returns whether mail for a recipient goes to the configured postmaster. The bare one does (RFC 5321 §4.5.1), and
    /// so is that of a local domain whose users are known and do not include it: it has no mailbox.
    pub fn is_for_postmaster(&self, recipient: &ForwardPath) -> bool {
        recipient.mailbox().is_none_or(|mailbox| self.is_without_user(mailbox, POSTMASTER))
    }

    /// Returns whether the recipient is root of a local domain whose users are known and do not include it. What programs on
    /// this machine send there goes to the postmaster, too.
    pub fn is_for_absent_root(&self, recipient: &ForwardPath) -> bool {
        recipient.mailbox().is_some_and(|mailbox| self.is_without_user(mailbox, ROOT))
    }

    /// Returns whether the recipient exists; users of other domains are not known, and count as existing.
    pub fn knows(&self, recipient: &ForwardPath) -> bool {
        let Some(mailbox) = recipient.mailbox() else { return true };
        !self.local.contains(mailbox.domain().key().as_ref()) || self.user(mailbox).is_ok()
    }

    /// Returns whether the mailbox has this name in a local domain without such a user.
    fn is_without_user(&self, mailbox: &Mailbox, name: &str) -> bool {
        let Some(users) = &self.users else { return false };
        self.base(&mailbox.local_name()) == name
            && !users.contains(name)
            && self.local.contains(mailbox.domain().key().as_ref())
    }

    /// Checks that the user exists. `user+anything` is `user` (RFC 5233); postmaster always exists (RFC 5321
    /// §4.5.1).
    fn user(&self, mailbox: &Mailbox) -> Result<(), Reply> {
        let Some(users) = &self.users else { return Ok(()) };
        let local = mailbox.local_name();
        let base = self.base(&local);
        if base == POSTMASTER || users.contains(&local) || users.contains(base) {
            return Ok(());
        }
        Err(no_such_user(mailbox))
    }

    /// Returns the local part without its detail.
    fn base<'l>(&self, local: &'l str) -> &'l str {
        self.separator.and_then(|separator| separator.split(local)).map_or(local, |(user, _)| user)
    }
}

/// Returns 550 5.1.1 for an address that no user has.
pub fn no_such_user(mailbox: &Mailbox) -> Reply {
    Reply::new(550, Enhanced(5, 1, 1), format!("<{mailbox}>: Recipient address rejected: User unknown"))
}

/// Exists in every domain (RFC 5321 §4.5.1).
const POSTMASTER: &str = "postmaster";
/// The user that gets mail from cron and similar programs.
const ROOT: &str = "root";

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn policy() -> Policy {
        Policy::new(Settings {
            local_domains: vec!["here.test".into()],
            users: Some(vec!["Jane".into(), "a+b".into()]),
            relay_networks: vec!["127.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
            ..Settings::default()
        })
    }

    fn session(client: &str, listener: ListenerKind, has_login: bool) -> SessionFacts {
        let peer = SocketAddr::new(client.parse().unwrap(), 40_000);
        let login = has_login.then(|| "jane".into());
        SessionFacts { login, ..SessionFacts::new(Source::Smtp { peer, local: peer, listener }) }
    }

    #[test]
    fn lmtp_is_for_local_domains_whoever_the_client_is() {
        for client in ["127.0.0.1", "192.0.2.1"] {
            let to = |recipient: &str| {
                let path = ForwardPath::parse(recipient, true).unwrap();
                policy().recipient(&session(client, ListenerKind::Lmtp, false), &path).is_ok()
            };
            assert!(to("jane@here.test") && !to("jane@elsewhere.test"), "{client}");
        }
    }

    fn verdict(client: &str, recipient: &str) -> u16 {
        let path = ForwardPath::parse(recipient, true).unwrap();
        let verdict = policy().recipient(&session(client, ListenerKind::Mx, false), &path);
        verdict.map_or_else(|reply| reply.enhanced.unwrap().1 * 10 + reply.enhanced.unwrap().2, |()| 0)
    }

    #[test]
    fn mail_for_a_postmaster_whom_nobody_reads_goes_to_the_one_who_was_named() {
        let is_for = |users: Option<&[&str]>, recipient: &str| {
            let users = users.map(|users| users.iter().map(|user| (*user).to_owned()).collect());
            let local_domains = vec!["here.test".to_owned()];
            let policy = Policy::new(Settings { local_domains, users, ..Settings::default() });
            policy.is_for_postmaster(&ForwardPath::parse(recipient, true).unwrap())
        };
        let jane: Option<&[&str]> = Some(&["jane"]);
        for recipient in
            ["postmaster", "postmaster@here.test", "PostMaster@HERE.test", "postmaster+x@here.test"]
        {
            assert!(is_for(jane, recipient), "{recipient}");
        }
        for recipient in ["jane@here.test", "postmaster@elsewhere.test"] {
            assert!(!is_for(jane, recipient), "{recipient}");
        }
        // Where it is a user, or everyone is, its own mailbox is meant.
        assert!(!is_for(Some(&["Postmaster"]), "postmaster@here.test"));
        assert!(!is_for(None, "postmaster@here.test") && is_for(None, "postmaster"));
    }

    #[test]
    fn root_is_the_postmaster_where_it_is_no_user_and_users_elsewhere_are_not_ours_to_know() {
        let path = |text: &str| ForwardPath::parse(text, true).unwrap();
        for recipient in ["root@here.test", "ROOT+cron@Here.test"] {
            assert!(policy().is_for_absent_root(&path(recipient)), "{recipient}");
        }
        for recipient in ["root@else.test", "jane@here.test", "postmaster"] {
            assert!(!policy().is_for_absent_root(&path(recipient)), "{recipient}");
        }
        assert!(!Policy::default().is_for_absent_root(&path("root@here.test")));
        for (recipient, known) in
            [("jane+x@here.test", true), ("joe@here.test", false), ("joe@else.test", true)]
        {
            assert_eq!(policy().knows(&path(recipient)), known, "{recipient}");
        }
    }

    #[test]
    fn strangers_reach_local_users_and_nobody_else() {
        for (recipient, expected) in [
            ("jane@here.test", 0),
            ("JANE@HERE.TEST", 0),
            ("jane+list@here.test", 0),
            ("a+b@here.test", 0),
            ("postmaster@here.test", 0),
            ("postmaster", 0),
            ("a@here.test", 11),
            ("joe@here.test", 11),
            ("x@elsewhere.test", 71),
            ("x@sub.here.test", 71),
            // The tricks of open-relay testers: what stands before the @ is never interpreted.
            ("x%elsewhere.test@here.test", 11),
            ("\"x@elsewhere.test\"@here.test", 11),
            ("elsewhere.test!x@here.test", 11),
            ("x%here.test@elsewhere.test", 71),
            ("\"jane@here.test\"@elsewhere.test", 71),
            ("x@[192.0.2.1]", 71),
            ("x@[127.0.0.1]", 71),
            ("x@[IPv6:::1]", 71),
        ] {
            assert_eq!(verdict("192.0.2.1", recipient), expected, "{recipient}");
        }
    }

    #[test]
    fn relay_networks_reach_everybody_but_unknown_local_users() {
        for client in ["127.0.0.1", "::ffff:127.9.9.9", "2001:db8::5"] {
            assert_eq!(verdict(client, "x@elsewhere.test"), 0, "{client}");
            assert_eq!(verdict(client, "joe@here.test"), 11, "{client}");
        }
        for client in ["::1", "128.0.0.1", "::ffff:192.0.2.1"] {
            assert_eq!(verdict(client, "x@elsewhere.test"), 71, "{client}");
        }
    }

    #[test]
    fn a_client_on_a_unix_socket_is_in_no_network() {
        let networks = vec!["::/1".parse().unwrap(), "0.0.0.0/1".parse().unwrap()];
        let policy = Policy::new(Settings { relay_networks: networks, ..Settings::default() });
        assert!(policy.may_relay("::1".parse().unwrap()) && policy.may_relay("127.0.0.1".parse().unwrap()));
        assert!(!policy.may_relay("::".parse().unwrap()) && !policy.may_relay("0.0.0.0".parse().unwrap()));
    }

    #[test]
    fn logins_reach_everybody_but_unknown_local_users() {
        let to = |recipient: &str| {
            let path = ForwardPath::parse(recipient, true).unwrap();
            policy().recipient(&session("192.0.2.1", ListenerKind::Mx, true), &path).is_ok()
        };
        assert!(to("x@elsewhere.test") && to("jane@here.test") && !to("joe@here.test"));
    }

    #[test]
    fn a_login_owns_its_own_addresses() {
        let owns = |login: &str, sender: &str| {
            let path = ReversePath::parse(sender, true).unwrap();
            policy().owns(login, &path)
        };
        for (login, sender) in [
            ("jane@here.test", "jane@here.test"),
            ("Jane@Here.test", "JANE+list@HERE.TEST"),
            ("jane@elsewhere.test", "jane@elsewhere.test"),
            ("jane", "jane@here.test"),
            ("a+b", "a+b@here.test"),
            ("jane", ""),
        ] {
            assert!(owns(login, sender), "{login} {sender}");
        }
        for (login, sender) in [
            ("jane@here.test", "joe@here.test"),
            ("jane@here.test", "jane@sub.here.test"),
            ("jane@here.test", "jane@elsewhere.test"),
            ("jane", "jane@elsewhere.test"),
            ("jane+list", "jane@here.test"),
            ("jane", "\"jane@here.test\"@elsewhere.test"),
        ] {
            assert!(!owns(login, sender), "{login} {sender}");
        }
    }

    #[test]
    fn without_a_list_of_users_everyone_exists() {
        let open = Policy::new(Settings { local_domains: vec!["here.test".into()], ..Settings::default() });
        let path = ForwardPath::parse("anyone@here.test", false).unwrap();
        assert!(open.recipient(&session("192.0.2.1", ListenerKind::Mx, false), &path).is_ok());
    }
}
