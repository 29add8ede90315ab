//! The expansion of recipients by the maps of the configuration. The daemon, `sendmail -bv` and `newaliases` ask here.

pub mod include;

use crate::{forward, mailboxes::Mailboxes, routes};
use config::Settings;
use mail::{Mailbox, Recipient, RecipientOptions};
use maps::{Looked, LookupError, Maps, Reference};
use rewrite::{
    Answers, CANONICAL_STEPS_MAX, Expanded, Expander, Found, Question, Role, Step, Trouble, by_map, map_keys,
    masquerade,
};
use std::{collections::HashSet, sync::Arc};

/// So often is a recipient expanded whose maps change meanwhile.
const STATES_MAX: u32 = 4;
const UNSTEADY: &str = "the files of the maps change again and again while they are asked";

/// The maps and rules that change addresses.
#[derive(Debug)]
pub struct Expansion {
    maps: Arc<Maps>,
    rules: rewrite::Settings,
    canonical: Vec<Reference>,
    r#virtual: Vec<Reference>,
    aliases: Vec<Reference>,
    domain_maps: Vec<Reference>,
    /// Users that are listed by name, in lower case.
    users: HashSet<String>,
    user_maps: Vec<Reference>,
    masquerade: Vec<String>,
}

/// The result of an expansion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The recipients that take the place of the one that was given.
    Recipients(Expanded),
    /// A local address that no user has, or an address that no mailbox here can have.
    NoSuchUser,
    /// Not known now: a map failed, or the aliases are wrong.
    Failed(Trouble),
}

/// Returns the recipients that take the place of the one that was given. `replace` makes a recipient for a mailbox, by its
/// role in the expansion. A message without a sender has no owner of a list either.
pub fn recipients(
    given: &Recipient,
    expanded: &Expanded,
    has_sender: bool,
    replace: &dyn Fn(Mailbox, Role<'_>) -> Recipient,
) -> Vec<Recipient> {
    let is_single = expanded.recipients().len() == 1;
    let to = (0..).zip(expanded.recipients()).map(|(index, mailbox)| {
        let role = match expanded.owner(index).filter(|_| has_sender) {
            Some(owner) => Role::OfList(owner),
            None if is_single => Role::Single,
            None => Role::OneOfSeveral,
        };
        let recipient = replace(mailbox.clone(), role);
        let through = aliases(expanded, index);
        let expansion =
            given.path.mailbox().map(|original| mail::Expansion { original: original.clone(), through });
        let target = expanded.target(index).cloned();
        let own = recipient.options.map(|options| *options).unwrap_or_default();
        let options = RecipientOptions { expansion, target, ..own }.boxed();
        Recipient { options, ..recipient }
    });
    to.collect()
}

/// Logs the targets of aliases that do not exist: the other ones get the mail. Returns them, with the reasons.
pub fn missing_targets(given: &Mailbox, expanded: &Expanded) -> Vec<(Box<str>, Box<str>)> {
    let told = expanded.missing().iter().filter_map(|missing| {
        tracing::error!("expand {given}: {missing}; the others get the mail");
        let Trouble::NoSuchTarget { target, .. } = missing else { return None };
        Some((target.clone(), missing.to_string().into()))
    });
    told.collect()
}

/// Returns the addresses between the one that was given and a recipient. A catch-all is not an address.
fn aliases(expanded: &Expanded, index: usize) -> Vec<Mailbox> {
    let between = expanded.through(index).into_iter().skip(1);
    between.filter_map(|alias| Mailbox::parse(alias, true).ok()).collect()
}

impl Expansion {
    /// Returns `None` if nothing is configured that changes addresses.
    pub fn new(settings: &Settings, maps: Arc<Maps>) -> Option<Self> {
        let (local, addresses) = (&settings.local, &settings.addresses);
        // Users of this machine are looked up as those of a map are.
        let needs_accounts = settings.routes.iter().any(|route| {
            route.deliver_as.as_ref().is_some_and(|own| own.user == config::DeliveryUser::Recipient)
        });
        let changes_addresses = settings.address_maps().next().is_some() || !addresses.masquerade.is_empty();
        if !changes_addresses && !needs_accounts && !addresses.forward {
            return None;
        }
        let rules = rewrite::Settings {
            separator: addresses.separator.0,
            hostname: settings.hostname.as_str().into(),
            domains: local.domains.iter().map(|domain| domain.as_str().into()).collect(),
            has_domain_maps: !local.domain_maps.is_empty(),
            targets_max: usize::try_from(addresses.max_list_members).ok(),
            has_users: local.users.is_some(),
            has_mailboxes: true,
            has_canonical: !addresses.canonical.is_empty(),
            has_virtual: !addresses.r#virtual.is_empty(),
            has_aliases: !addresses.aliases.is_empty() || addresses.forward,
            postmaster: Some(settings.postmaster.clone()),
            last_resort: routes::last_resort(settings).map(|mailbox| (mailbox, routes::LAST_RESORT.into())),
            programs: addresses.programs.iter().map(|path| path.to_string_lossy().into()).collect(),
            files: addresses.files.iter().map(|path| path.to_string_lossy().into()).collect(),
        };
        let forward = addresses.forward.then(forward::reference);
        Some(Self {
            maps,
            rules,
            canonical: addresses.canonical.clone(),
            r#virtual: addresses.r#virtual.clone(),
            aliases: addresses.aliases.iter().cloned().chain(forward).collect(),
            domain_maps: local.domain_maps.clone(),
            users: local.users.iter().flatten().map(|user| mail::fold(user).into_owned()).collect(),
            user_maps: local.user_maps.clone(),
            masquerade: addresses.masquerade.iter().map(|domain| domain.0.clone()).collect(),
        })
    }

    /// Returns whether a domain, given as [`mail::Domain::key`], is local.
    ///
    /// # Errors
    /// A map does not say.
    pub async fn is_local(&self, key: &str) -> Result<bool, LookupError> {
        Ok(self.rules.domains.contains(key) || self.maps.first(&self.domain_maps, key).await?.is_some())
    }

    /// Expands a recipient by one state of the files. What cannot be delivered to any of `mailboxes` does not exist.
    pub async fn expand(&self, recipient: Mailbox, mailboxes: Mailboxes<'_>) -> Outcome {
        // An alias of the old file may lead to a name that the new one lacks.
        for _ in 0..STATES_MAX {
            let state = self.maps.replaced_count();
            let outcome = self.expand_once(recipient.clone(), mailboxes).await;
            if self.maps.replaced_count() == state {
                return outcome;
            }
        }
        Outcome::Failed(Trouble::LookUp(UNSTEADY.into()))
    }

    async fn expand_once(&self, recipient: Mailbox, mailboxes: Mailboxes<'_>) -> Outcome {
        let (mut expander, mut answers) = (Expander::new(&self.rules, recipient), Answers::default());
        loop {
            match expander.step(&mut answers) {
                Step::Ask(questions) => {
                    for question in questions {
                        let found = self.answer(&question, mailboxes).await;
                        answers.add(question, found);
                    }
                }
                Step::Done(expanded) => return Outcome::Recipients(expanded),
                Step::NoSuchUser => return Outcome::NoSuchUser,
                Step::Failed(trouble) => return Outcome::Failed(trouble),
            }
        }
    }

    /// Expands a recipient that was given. Every domain here has a postmaster (RFC 5321 §4.5.1): mail for one who is not a user, has no
    /// mailbox, or whose aliases lead nowhere goes to the address in `postmaster`, and at last into a Maildir of the daemon.
    /// `takes_root`: so does mail for root.
    pub async fn expand_given(&self, given: &Mailbox, takes_root: bool, mailboxes: Mailboxes<'_>) -> Outcome {
        let leads_nowhere = |found: &Outcome| match found {
            Outcome::NoSuchUser => true,
            Outcome::Failed(trouble) => trouble.is_lasting(),
            Outcome::Recipients(_) => false,
        };
        let postmaster = &mailboxes.settings.postmaster;
        let is_own = given == postmaster;
        let found = self.expand(given.clone(), mailboxes).await;
        let is_for_postmaster =
            is_own || self.is_named(given, "postmaster") || takes_root && self.is_named(given, "root");
        if !is_for_postmaster || !leads_nowhere(&found) {
            return found;
        }
        let next = if is_own { found } else { self.expand(postmaster.clone(), mailboxes).await };
        if !leads_nowhere(&next) {
            return next;
        }
        if let Outcome::Failed(trouble) = next {
            tracing::error!("mail for {given} stays with the daemon: {trouble}");
        }
        match (mailboxes.has(postmaster).await, routes::last_resort(mailboxes.settings)) {
            (Ok(true), _) | (_, None) => Outcome::Recipients(Expanded::single(postmaster.clone(), None)),
            (Ok(false), Some(last)) => {
                Outcome::Recipients(Expanded::single(last, Some(routes::to_last_resort())))
            }
            (Err(error), _) => Outcome::Failed(Trouble::LookUp(error.to_string().into())),
        }
    }

    /// Returns the sender that replaces a sender: the canonical address, with its host hidden. `None` if it stays.
    ///
    /// # Errors
    /// A map does not answer, or its value is not an address.
    pub async fn sender(&self, sender: &Mailbox) -> Result<Option<Mailbox>, String> {
        for _ in 0..STATES_MAX {
            let state = self.maps.replaced_count();
            let found = self.sender_once(sender).await;
            if self.maps.replaced_count() == state {
                return found;
            }
        }
        Err(UNSTEADY.to_owned())
    }

    async fn sender_once(&self, sender: &Mailbox) -> Result<Option<Mailbox>, String> {
        let mut changed: Option<Mailbox> = None;
        'step: for _ in 0..CANONICAL_STEPS_MAX {
            let before = changed.as_ref().unwrap_or(sender);
            let is_own = self.rules.is_own_domain(&before.domain().key());
            for key in map_keys(before, self.rules.separator, is_own) {
                let looked = self
                    .maps
                    .first_address(&self.canonical, &key)
                    .await
                    .map_err(|error| error.to_string())?;
                let Some(value) = looked else { continue };
                let address = by_map(before, self.rules.separator, &key, &value, &self.rules.hostname);
                let address = address.map_err(|what| format!("{key}: {what}"))?;
                let is_same = address == *before;
                changed = Some(address);
                if is_same {
                    break 'step;
                }
                continue 'step;
            }
            break;
        }
        let hidden = masquerade(changed.as_ref().unwrap_or(sender), &self.masquerade);
        Ok(hidden.or(changed).filter(|changed| changed != sender))
    }

    async fn answer(&self, question: &Question, mailboxes: Mailboxes<'_>) -> Found {
        let looked = match question {
            Question::Canonical(key) => self.maps.first_address(&self.canonical, key).await,
            Question::Virtual(key) => self.maps.first_address(&self.r#virtual, key).await,
            Question::Alias(name) => self.maps.first(&self.aliases, name).await,
            Question::Domain(domain) => self.maps.first(&self.domain_maps, domain).await,
            Question::User(address) => self.user(address).await,
            Question::Mailbox(address) => match Mailbox::parse(address, true) {
                Ok(mailbox) => mailboxes.has(&mailbox).await.map(|has| has.then(Box::default)),
                Err(_) => Ok(None),
            },
            Question::Include(path) => return include::read(path).await,
        };
        match looked {
            Ok(Some(value)) => Found::Value(value),
            Ok(None) => Found::Absent,
            Err(error) => Found::Failed(error.to_string().into()),
        }
    }

    /// Returns whether an address is a user's here, or no address of a local domain whose users are known.
    ///
    /// # Errors
    /// A map does not answer.
    pub async fn is_user(&self, mailbox: &Mailbox) -> Result<bool, LookupError> {
        if !self.rules.has_users || !self.is_local(&mailbox.domain().key()).await? {
            return Ok(true);
        }
        Ok(self.user(&mailbox.key()).await?.is_some())
    }

    /// Looks a user up: the address, then the local part, both also without a detail.
    async fn user(&self, address: &str) -> Looked {
        let Ok(mailbox) = Mailbox::parse(address, true) else { return Ok(None) };
        let (local, domain) = (mailbox.local_unquoted(), mailbox.domain().key());
        let user = self.rules.separator.and_then(|separator| separator.split(&local)).map(|(user, _)| user);
        for name in std::iter::once(&*local).chain(user) {
            if self.users.contains(name) {
                return Ok(Some(Box::default()));
            }
        }
        if self.user_maps.is_empty() {
            return Ok(None);
        }
        for name in std::iter::once(&*local).chain(user) {
            for key in [format!("{name}@{domain}"), name.to_owned()] {
                if let Some(value) = self.maps.first(&self.user_maps, &key).await? {
                    return Ok(Some(value));
                }
            }
        }
        Ok(None)
    }

    /// Returns whether the local part of an address is this name, with or without a detail.
    pub fn is_named(&self, mailbox: &Mailbox, name: &str) -> bool {
        rewrite::is_named(mailbox, self.rules.separator, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Expands a list until a change of its file is seen.
    async fn expand_over_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("aliases");
        let names: Vec<String> = (0..400).map(|n| format!("m{n}")).collect();
        let members: String = names.iter().map(|name| format!("{name}: joe\n")).collect();
        fs::write(&path, format!("list: {}\n{members}", names.join(", "))).unwrap();
        let text = format!(
            "hostname = \"mx.test\"\n[local]\nusers = [\"joe\", \"ann\"]\n[addresses]\naliases = [\"aliases:{}\"]\n",
            path.display()
        );
        let settings = config::load_text(&text).unwrap().settings;
        let references = settings.address_maps().map(|(_, reference)| reference);
        let maps = Arc::new(Maps::open(references, &[], None));
        let expansion = Expansion::new(&settings, maps.clone()).unwrap();
        let routes = routes::Routes::new(&settings, maps);
        let given = Mailbox::parse("list@mx.test", true).unwrap();
        fs::write(&path, "list: ann\n").unwrap();
        loop {
            let mailboxes = Mailboxes { settings: &settings, routes: &routes, sender: None };
            let Outcome::Recipients(found) = expansion.expand(given.clone(), mailboxes).await else {
                panic!("the members exist, in the old file and in the new one")
            };
            assert!(found.missing().is_empty(), "{:?}", found.missing().first());
            if found.recipients().any(|found| found.local_unquoted() == "ann") {
                return;
            }
        }
    }

    /// The file is looked at once a second, by whichever look-up comes then: one of eight is amid an expansion then.
    #[test]
    fn an_expansion_never_mixes_what_a_file_said_before_and_after_a_change() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| runtime().block_on(expand_over_a_change()));
            }
        });
    }
}
