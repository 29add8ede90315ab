//! `[local]`: the domains and users whose mail is delivered here, and where it goes.

use crate::{
    account::Group,
    choice::RouteTls,
    domain::DomainPattern,
    route::{DeliverAs, DeliveryUser, MaildirTemplate, Route, RouteAddresses, Target},
    section::{Reading, section},
    value::{HostName, OrMap, Word},
};
use maps::Reference;
use queue::RouteSchedule;
use std::collections::HashSet;
use toml::{Spanned, de::DeTable};

/// Domains and users whose mail is delivered here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// Local domains that are listed by name, as [`mail::Domain::key`] gives them.
    pub domains: Vec<String>,
    /// Maps of further local domains.
    pub domain_maps: Vec<Reference>,
    /// The target of their mail.
    pub maildir: MaildirTemplate,
    /// True if mail is delivered through symbolic links in Maildirs' paths.
    pub follow_symlinks: bool,
    /// The users that exist; none: every user exists.
    pub users: Option<Vec<String>>,
    /// Maps of further users. Without a list of users there are none.
    pub user_maps: Vec<Reference>,
}

section! {
    /// Local domains and users. Mail for local domains is accepted from all clients, and delivered to `maildir` unless a
    /// `[[route]]` matches the domain.
    pub(crate) LocalKeys = "local" {
        /// Local domains, and maps such as `text:domains` whose keys are domains. The hostname must be listed by name, or
        /// must match a route, because mail from programs on this machine and its notifications go there.
        /// `addresses.aliases` applies only to domains that are listed by name. Mail for an address literal of this
        /// machine, such as `postmaster@[192.0.2.1]`, is delivered to the same user at the hostname.
        domains: Vec<OrMap<HostName>> = "[\"localhost\", \"{hostname}\"]",
        /// The Maildir of a recipient. `{local}` stands for the part before the `@` in lower case, `{domain}` for the
        /// part after it.
        maildir: MaildirTemplate = "\"{data_dir}/mail/{local}\"",
        /// The mbox file of a recipient, instead of `maildir`: `/var/mail/{local}`. Everything about `mbox` in
        /// `[[route]]` applies here, too. Mail for local domains then takes a `[[route]]` that names the domain, or else
        /// this file; a `[[route]]` for all domains (`*`) comes last.
        mbox: Option<MaildirTemplate> = "",
        /// With `mbox`: the user as whom files are written, as in `[[route]]`; `{local}` is the user of the machine that
        /// the recipient names. Then users below `process.min_uid` or above `process.max_uid`, and the daemon's own, have
        /// no mailbox.
        user: Option<DeliveryUser> = "",
        /// With `mbox`: the group, as in `[[route]]`. For files in /var/mail, use `mail`.
        group: Option<Group> = "",
        /// If true, mail is delivered through symbolic links in the path of a Maildir, from the part that begins with a
        /// placeholder (without a placeholder: from the last part), and in `tmp` and `new`. If false, such mail is
        /// deferred, because a user who can create the link could redirect mail to other files. Applies to the Maildirs
        /// of routes, too. If a link leads to a directory outside these paths, add that directory to
        /// `process.extra_paths`.
        follow_symlinks: bool = "false",
        /// Local parts that exist, and maps of them; `accounts:nss` has the users of this machine. In a map,
        /// `joe@example.com` is looked up first, then `joe`, both also without a detail (`addresses.separator`). Mail from
        /// clients for other local parts is rejected with 550 5.1.1, and mail from local programs for them is returned, if
        /// it would go to a Maildir. The list applies to all local domains, including those that a `[[route]]` sends
        /// elsewhere, whether or not it has `verify`; for users of one domain, write `joe@example.com` in a map. Postmaster
        /// always exists: if `users` does not name it, its mail goes to the address in `postmaster`, as does mail from
        /// local programs to `root`. Without this key, every local part exists.
        users: Option<Vec<OrMap<Word>>> = "",
    }
}

impl From<&LocalKeys> for Local {
    fn from(keys: &LocalKeys) -> Self {
        let (names, domain_maps) = OrMap::split(keys.domains.clone());
        let mut seen = HashSet::new();
        let domains =
            names.into_iter().map(|domain| domain.0).filter(|name| seen.insert(name.clone())).collect();
        let (users, user_maps) = keys.users.clone().map(OrMap::split).unzip();
        let users = users.map(|users| users.into_iter().map(|Word(name)| name).collect());
        Self {
            domains,
            domain_maps,
            maildir: keys.maildir.clone(),
            follow_symlinks: keys.follow_symlinks,
            users,
            user_maps: user_maps.unwrap_or_default(),
        }
    }
}

impl Reading<'_> {
    /// Adds the route that `local.mbox` stands for: in front of those for all domains.
    pub(crate) fn add_local_route(&mut self, keys: &LocalKeys, root: &DeTable<'_>, routes: &mut Vec<Route>) {
        let Some(template) = &keys.mbox else {
            for key in ["user", "group"] {
                let table = root.get("local").and_then(|found| found.get_ref().as_table());
                if let Some((key, _)) = table.and_then(|table| table.get_key_value(key)) {
                    let what = format!("`{}` has no effect without `mbox`", key.get_ref());
                    let help = "add mbox = \"/var/mail/{local}\"; for Maildirs of other users, write a [[route]] with `maildir` and `user`";
                    self.cx.problem(key.span(), what, "no file is written as another user", help.to_owned());
                }
            }
            return;
        };
        if keys.user.is_none() && keys.group.is_some() {
            let span = root.get("local").map_or(0..0, Spanned::span);
            let what = "`group` has no effect without `user`".to_owned();
            self.cx.problem(span, what, "`user` is missing", "add `user`".to_owned());
        }
        let (domains, domain_maps) = OrMap::split(keys.domains.clone());
        let deliver_as = keys.user.clone().map(|user| DeliverAs { user, group: keys.group.clone() });
        let route = Route {
            number: None,
            label: None,
            domains: domains.into_iter().map(|domain| DomainPattern::Exact(domain.0)).collect(),
            domain_maps,
            senders: RouteAddresses::default(),
            recipients: RouteAddresses::default(),
            target: Target::Mbox(template.clone()),
            tls: RouteTls::Off,
            login: None,
            source_address: None,
            ehlo_name: None,
            verify: false,
            durability: None,
            fallback: Vec::new(),
            deliver_as,
            schedule: RouteSchedule::default(),
        };
        let is_for_all = |route: &Route| route.domains.contains(&DomainPattern::Any);
        let at = routes.iter().position(is_for_all).unwrap_or(routes.len());
        routes.insert(at, route);
    }
}
