//! The expansion of recipients by the maps of the configuration. The daemon, `sendmail -bv` and `newaliases` ask here.

pub(crate) mod include;

use config::Settings;
use mail::{Mailbox, Recipient, RecipientOptions};
use maps::{Looked, LookupError, Maps, Reference};
use rewrite::{
    Answers, Expanded, Expander, Found, Question, Role, Step, Trouble, by_map, map_keys, masquerade,
};
use std::{collections::HashSet, sync::Arc};

/// The maps and rules that change addresses.
#[derive(Debug)]
pub(crate) struct Expansion {
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
pub(crate) enum Outcome {
    /// The recipients that take the place of the one that was given.
    Recipients(Expanded),
    /// A local address that no user has.
    NoSuchUser,
    /// No answer now.
    Failed(Trouble),
}

/// Returns the recipients that take the place of the one that was given. `replace` makes a recipient for a mailbox, by its
/// role in the expansion. A message without a sender has no owner of a list either.
pub(crate) fn recipients(
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

/// Returns the addresses between the one that was given and a recipient. A catch-all is no address.
fn aliases(expanded: &Expanded, index: usize) -> Vec<Mailbox> {
    let between = expanded.through(index).into_iter().skip(1);
    between.filter_map(|alias| Mailbox::parse(alias, true).ok()).collect()
}

impl Expansion {
    /// Returns `None` if nothing is configured that changes addresses.
    pub(crate) fn new(settings: &Settings, maps: Arc<Maps>) -> Option<Self> {
        let (local, addresses) = (&settings.local, &settings.addresses);
        if settings.address_maps().next().is_none() && addresses.masquerade.is_empty() {
            return None;
        }
        let rules = rewrite::Settings {
            separator: addresses.separator.0,
            hostname: settings.hostname.as_str().into(),
            domains: local.domains.iter().map(|domain| domain.as_str().into()).collect(),
            has_domain_maps: !local.domain_maps.is_empty(),
            targets_max: usize::try_from(addresses.max_list_members).ok(),
            has_users: local.users.is_some(),
            has_canonical: !addresses.canonical.is_empty(),
            has_virtual: !addresses.r#virtual.is_empty(),
            has_aliases: !addresses.aliases.is_empty(),
            postmaster: Some(settings.postmaster.clone()),
            programs: addresses.programs.iter().map(|path| path.to_string_lossy().into()).collect(),
            files: addresses.files.iter().map(|path| path.to_string_lossy().into()).collect(),
        };
        Some(Self {
            maps,
            rules,
            canonical: addresses.canonical.clone(),
            r#virtual: addresses.r#virtual.clone(),
            aliases: addresses.aliases.clone(),
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
    pub(crate) async fn is_local(&self, key: &str) -> Result<bool, LookupError> {
        Ok(self.rules.domains.contains(key) || self.maps.first(&self.domain_maps, key).await?.is_some())
    }

    /// Expands a recipient.
    pub(crate) async fn expand(&self, recipient: Mailbox) -> Outcome {
        let (mut expander, mut answers) = (Expander::new(&self.rules, recipient), Answers::default());
        loop {
            match expander.step(&answers) {
                Step::Ask(questions) => {
                    for question in questions {
                        let found = self.answer(&question).await;
                        answers.add(question, found);
                    }
                }
                Step::Done(expanded) => return Outcome::Recipients(expanded),
                Step::NoSuchUser => return Outcome::NoSuchUser,
                Step::Failed(trouble) => return Outcome::Failed(trouble),
            }
        }
    }

    /// Returns the sender that replaces a sender: the canonical address, with its host hidden. `None` if it stays.
    ///
    /// # Errors
    /// A map does not answer, or its value is not an address.
    pub(crate) async fn sender(&self, sender: &Mailbox) -> Result<Option<Mailbox>, String> {
        let mut changed = None;
        let is_own = self.rules.is_own_domain(&sender.domain().key());
        for key in map_keys(sender, self.rules.separator, is_own) {
            let looked =
                self.maps.first_address(&self.canonical, &key).await.map_err(|error| error.to_string())?;
            if let Some(value) = looked {
                let address = by_map(sender, self.rules.separator, &key, &value, &self.rules.hostname);
                changed = Some(address.map_err(|what| format!("{key}: {what}"))?);
                break;
            }
        }
        let hidden = masquerade(changed.as_ref().unwrap_or(sender), &self.masquerade);
        Ok(hidden.or(changed).filter(|changed| changed != sender))
    }

    async fn answer(&self, question: &Question) -> Found {
        let looked = match question {
            Question::Canonical(key) => self.maps.first_address(&self.canonical, key).await,
            Question::Virtual(key) => self.maps.first_address(&self.r#virtual, key).await,
            Question::Alias(name) => self.maps.first(&self.aliases, name).await,
            Question::Domain(domain) => self.maps.first(&self.domain_maps, domain).await,
            Question::User(address) => self.user(address).await,
            Question::Include(path) => return include::read(path).await,
        };
        match looked {
            Ok(Some(value)) => Found::Value(value),
            Ok(None) => Found::Absent,
            Err(error) => Found::Failed(error.to_string().into()),
        }
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
    pub(crate) fn is_named(&self, mailbox: &Mailbox, name: &str) -> bool {
        rewrite::is_named(mailbox, self.rules.separator, name)
    }
}
