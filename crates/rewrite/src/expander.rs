//! The expansion of one recipient: a state machine that returns questions, and goes on when they are answered.

mod links;
mod trouble;

use crate::{
    address::{
        CANONICAL_STEPS_MAX, Separator, at_domain, at_domain_of, by_map, is_named, keep_detail, map_keys,
    },
    command::split_command,
    targets::{NULL_DEVICE, Target, TargetList, line_and_column},
};
use links::{LinkId, Links};
use mail::{AliasTarget, Mailbox};
use std::collections::{HashSet, VecDeque};
pub use trouble::Trouble;

/// Aliases that may lead to another, one behind the other.
const DEPTH_MAX: u8 = 10;
/// Targets of one recipient, those of aliases in between included.
const TARGETS_MAX: usize = 1_000;
/// Addresses that wait for answers at once. So the answers for a long list do not fill the memory.
const WAITING_MAX: usize = 1_000;
/// Comparing with so many questions is cheaper than a hash set of them.
const FEW_QUESTIONS: usize = 16;

/// What is configured of expansion; most switches avoid questions that nothing would answer.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The separator of a detail; none: local parts have no detail.
    pub separator: Option<Separator>,
    /// The domain of names without one in virtual aliases and canonical maps.
    pub hostname: Box<str>,
    /// Local domains that are listed by name, as [`mail::Domain::key`] gives them. Only they have aliases.
    pub domains: HashSet<Box<str>>,
    /// True if further local domains are in maps, and are asked for.
    pub has_domain_maps: bool,
    /// Most targets of one recipient; `None`: 1,000.
    pub targets_max: Option<usize>,
    /// True if local users are known, and are asked for.
    pub has_users: bool,
    /// True if it is known which addresses can be delivered to, and is asked.
    pub has_mailboxes: bool,
    /// True if canonical maps are asked.
    pub has_canonical: bool,
    /// True if virtual maps are asked.
    pub has_virtual: bool,
    /// True if alias maps are asked.
    pub has_aliases: bool,
    /// The address that gets the mail of aliases for a postmaster or root who is not a user here, or has no mailbox.
    pub postmaster: Option<Mailbox>,
    /// The mailbox, and the name of its route, that keeps the mail for a postmaster who has no mailbox either.
    pub last_resort: Option<(Mailbox, Box<str>)>,
    /// Paths of the programs that aliases may name.
    pub programs: HashSet<Box<str>>,
    /// Paths of the files that aliases may name.
    pub files: HashSet<Box<str>>,
}

impl Settings {
    /// Returns whether maps may have names of this domain, given as [`mail::Domain::key`], without it.
    pub fn is_own_domain(&self, key: &str) -> bool {
        *self.hostname == *key || self.domains.contains(key)
    }
}

/// What the expander has to know next; the driver asks maps and files.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Question {
    /// The value of this key in the canonical maps: an address, a name without a domain, or a domain behind an `@`.
    Canonical(Box<str>),
    /// The value of this key in the virtual maps, of the same forms.
    Virtual(Box<str>),
    /// The targets of this local part in the alias maps.
    Alias(Box<str>),
    /// Any value if this domain, which is not listed by name, is local.
    Domain(Box<str>),
    /// Any value if this local address, in lower case, is a user's.
    User(Box<str>),
    /// Any value if mail for this address, in lower case, can be delivered: a mailbox on this machine can have its name, or
    /// it goes elsewhere.
    Mailbox(Box<str>),
    /// The text of this `:include:` file.
    Include(Box<str>),
}

/// What the driver has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The value of the key, or the content of the file.
    Value(Box<str>),
    /// The map has no such key, or the file does not exist.
    Absent,
    /// Not known: the look-up failed, for this reason.
    Failed(Box<str>),
}

/// Answers to questions. The expander forgets those that it needs no longer.
#[derive(Debug, Clone, Default)]
pub struct Answers(foldhash::HashMap<Question, Found>);

impl Answers {
    /// Adds an answer, before the next [`Expander::step`].
    pub fn add(&mut self, question: Question, found: Found) {
        self.0.insert(question, found);
    }
}

/// What the driver has to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Answer these questions, and call [`Expander::step`] again.
    Ask(Vec<Question>),
    /// Every target was found.
    Done(Expanded),
    /// The address is local, and there is no such user or alias.
    NoSuchUser,
    /// The recipient cannot be expanded, now or at all: [`Trouble::is_lasting`].
    Failed(Trouble),
}

/// The mailboxes, programs and files that one recipient stands for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expanded {
    recipients: Vec<(Mailbox, Option<LinkId>)>,
    /// By index of the recipient, ascending: programs and files, in place of its mailbox.
    targets: Vec<(usize, AliasTarget)>,
    /// Targets that do not exist.
    missing: Vec<Trouble>,
    links: Links,
}

impl Expanded {
    /// One recipient, or one that has a target in its place, without aliases.
    pub fn single(mailbox: Mailbox, target: Option<AliasTarget>) -> Self {
        let targets = target.into_iter().map(|target| (0, target)).collect();
        Self { recipients: vec![(mailbox, None)], targets, ..Self::default() }
    }

    /// Returns the recipients; each mailbox is in it once.
    pub fn recipients(&self) -> impl ExactSizeIterator<Item = &Mailbox> {
        self.recipients.iter().map(|(mailbox, _)| mailbox)
    }

    /// The program or file that the recipient with this index stands for.
    pub fn target(&self, index: usize) -> Option<&AliasTarget> {
        let at = self.targets.binary_search_by_key(&index, |(of, _)| *of).ok()?;
        Some(&self.targets[at].1)
    }

    /// The targets of aliases that do not exist, each a [`Trouble::NoSuchTarget`]. The other ones are the recipients.
    pub fn missing(&self) -> &[Trouble] {
        &self.missing
    }

    /// The aliases that led to the recipient with this index, the one that was given first.
    pub fn through(&self, index: usize) -> Vec<&str> {
        self.recipients.get(index).map_or_else(Vec::new, |(_, link)| self.links.path_to(*link))
    }

    /// The address `owner-NAME` of the last alias on the way to the recipient with this index that has one: the
    /// reverse-path of what is sent to the recipient. Of lists in lists, the owner of the inner one can remove a member.
    pub fn owner(&self, index: usize) -> Option<&Mailbox> {
        let (_, link) = self.recipients.get(index)?;
        self.links.owner_of((*link)?)
    }
}

/// An address that is not expanded yet.
#[derive(Debug, Clone)]
struct Address {
    mailbox: Mailbox,
    /// [`key`] of the mailbox: an address is expanded once.
    key: Box<str>,
    stage: Stage,
    /// `None` for the address that the client gave.
    from: Option<LinkId>,
    depth: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Canonical,
    Virtual,
    Alias,
    /// No further alias is looked up.
    User,
}

/// A file whose targets are to be added.
#[derive(Debug, Clone)]
struct Include {
    path: Box<str>,
    /// The alias with the `:include:`.
    from: LinkId,
    /// Added to names without a domain.
    domain: Box<str>,
    depth: u8,
}

#[derive(Debug, Clone)]
enum Item {
    Address(Address),
    Include(Include),
}

/// Expands one recipient, step by step; asks the driver what it has to know.
#[derive(Debug, Clone)]
pub struct Expander<'s> {
    settings: &'s Settings,
    /// Items that were begun, and wait for answers.
    waiting: Vec<Item>,
    /// Items that were not begun.
    open: VecDeque<Item>,
    expanded: Expanded,
    /// Keys of the recipients that were found.
    seen: foldhash::HashSet<Box<str>>,
    target_count: usize,
    /// Files of `:include:`.
    file_count: usize,
}

/// Ends an expansion early.
enum Stop {
    NoSuchUser,
    Failed(Trouble),
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        Self::Failed(trouble)
    }
}

/// The answers that are there, and the questions that are open.
struct Asking<'k> {
    known: &'k Answers,
    asked: Vec<Question>,
    /// The same as `asked`, once that is longer than [`FEW_QUESTIONS`].
    are_asked: foldhash::HashSet<Question>,
}

impl<'k> Asking<'k> {
    /// Returns the value; `Err` while the answer is not there.
    fn value(&mut self, question: Question) -> Result<Option<&'k str>, Wait> {
        match self.known.0.get(&question) {
            None => {
                if self.is_new(&question) {
                    self.asked.push(question);
                }
                Err(Wait::Answer)
            }
            Some(Found::Value(value)) => Ok(Some(value)),
            Some(Found::Absent) => Ok(None),
            Some(Found::Failed(why)) => Err(Wait::Stop(Trouble::LookUp(why.clone()).into())),
        }
    }

    /// Returns whether the question was not asked in this step, and notes that it is asked now.
    fn is_new(&mut self, question: &Question) -> bool {
        if self.asked.len() < FEW_QUESTIONS {
            return !self.asked.contains(question);
        }
        if self.are_asked.is_empty() {
            self.are_asked.extend(self.asked.iter().cloned());
        }
        self.are_asked.insert(question.clone())
    }
}

/// What became of an address.
enum Advanced {
    /// Targets took the place of the address.
    Replaced,
    /// Nothing replaces it: the address is a recipient.
    Recipient,
}

/// Reasons not to go on with an item.
enum Wait {
    Answer,
    Stop(Stop),
}

impl From<Trouble> for Wait {
    fn from(trouble: Trouble) -> Self {
        Self::Stop(Stop::Failed(trouble))
    }
}

impl<'s> Expander<'s> {
    /// Begins with the recipient that was given.
    pub fn new(settings: &'s Settings, recipient: Mailbox) -> Self {
        let first = Address {
            key: recipient.key().into(),
            mailbox: recipient,
            stage: Stage::Canonical,
            from: None,
            depth: 0,
        };
        Self {
            settings,
            waiting: Vec::new(),
            open: VecDeque::from([Item::Address(first)]),
            expanded: Expanded::default(),
            seen: foldhash::HashSet::default(),
            target_count: 0,
            file_count: 0,
        }
    }

    /// Goes on as far as the answers allow. Each question is asked once; all questions of a step can be answered in
    /// parallel.
    pub fn step(&mut self, known: &mut Answers) -> Step {
        loop {
            if self.waiting.is_empty() {
                // No answer is needed any more.
                known.0.clear();
                let count = self.open.len().min(WAITING_MAX);
                self.waiting.extend(self.open.drain(..count));
            }
            if self.waiting.is_empty() {
                break;
            }
            match self.go_on(known) {
                Ok(asked) if asked.is_empty() => {}
                Ok(asked) => return Step::Ask(asked),
                Err(Stop::NoSuchUser) => return Step::NoSuchUser,
                Err(Stop::Failed(trouble)) => return Step::Failed(trouble),
            }
        }
        let expanded = std::mem::take(&mut self.expanded);
        match expanded.missing.first() {
            Some(missing) if expanded.recipients.is_empty() => Step::Failed(missing.clone()),
            _ => Step::Done(expanded),
        }
    }

    /// Goes on with those that wait. Returns their questions; none if all of them are done.
    fn go_on(&mut self, known: &Answers) -> Result<Vec<Question>, Stop> {
        let mut asking = Asking { known, asked: Vec::new(), are_asked: foldhash::HashSet::default() };
        for mut item in std::mem::take(&mut self.waiting) {
            let advanced = match &mut item {
                Item::Address(address) => self.advance(address, &mut asking),
                Item::Include(include) => self.include(include, &mut asking).map(|()| Advanced::Replaced),
            };
            match (advanced, item) {
                (Ok(Advanced::Recipient), Item::Address(address)) => self.found(address),
                (Ok(_), _) => {}
                (Err(Wait::Answer), item) => self.waiting.push(item),
                // One who has left does not stop the mail of the others.
                (Err(Wait::Stop(Stop::Failed(missing @ Trouble::NoSuchTarget { .. }))), _) => {
                    self.expanded.missing.push(missing);
                }
                (Err(Wait::Stop(stop)), _) => return Err(stop),
            }
        }
        Ok(asking.asked)
    }

    /// Takes an address through the stages that are left.
    fn advance(&mut self, address: &mut Address, asking: &mut Asking<'_>) -> Result<Advanced, Wait> {
        if address.stage == Stage::Canonical {
            if self.settings.has_canonical {
                self.canonical(address, asking)?;
            }
            address.stage = Stage::Virtual;
        }
        if address.stage == Stage::Virtual {
            if self.settings.has_virtual && self.virtual_alias(address, asking)? {
                return Ok(Advanced::Replaced);
            }
            address.stage = Stage::Alias;
        }
        let Settings { has_aliases, has_users, has_mailboxes, .. } = *self.settings;
        if !has_aliases && !has_users && !has_mailboxes {
            return Ok(Advanced::Recipient);
        }
        let at = address.key.rfind('@').map_or(0, |at| at + 1);
        let domain = address.key[at..].to_owned();
        let is_named = self.settings.domains.contains(domain.as_str());
        if address.stage == Stage::Alias {
            if has_aliases && is_named && self.alias(address, &domain, asking)? {
                return Ok(Advanced::Replaced);
            }
            address.stage = Stage::User;
        }
        let is_user = !has_users
            || !self.is_local(&domain, is_named, asking)?
            || asking.value(Question::User(address.key.clone()))?.is_some();
        if is_user && Self::has_mailbox(has_mailboxes, &address.key, asking)? {
            return Ok(Advanced::Recipient);
        }
        let Some(postmaster) = self.postmaster_for(address) else {
            return Err(self.no_such_user(address));
        };
        let key: Box<str> = postmaster.key().into();
        let leads_back = self.expanded.links.path_to(address.from).contains(&&*key);
        if *key != *address.key && !leads_back {
            let from = self.link(address)?;
            self.push(postmaster, key, Stage::Virtual, from, address.depth, false)?;
            return Ok(Advanced::Replaced);
        }
        // There is nobody else: the postmaster is a recipient, whether he is a user or not.
        if Self::has_mailbox(has_mailboxes, &key, asking)? {
            (address.mailbox, address.key) = (postmaster, key);
            return Ok(Advanced::Recipient);
        }
        let (Some((mailbox, route)), Some(from)) = (&self.settings.last_resort, address.from) else {
            return Err(self.no_such_user(address));
        };
        let last = Address { mailbox: mailbox.clone(), ..address.clone() };
        self.found_target(AliasTarget::Route(route.clone()), Some(&last), &key, from, address.depth)?;
        Ok(Advanced::Replaced)
    }

    fn has_mailbox(is_asked: bool, key: &str, asking: &mut Asking<'_>) -> Result<bool, Wait> {
        Ok(!is_asked || asking.value(Question::Mailbox(key.into()))?.is_some())
    }
    /// Adds a recipient, unless it was found before.
    fn found(&mut self, address: Address) {
        if self.seen.insert(address.key) {
            self.expanded.recipients.push((address.mailbox, address.from));
        }
    }

    fn is_local(&self, domain: &str, is_named: bool, asking: &mut Asking<'_>) -> Result<bool, Wait> {
        if is_named || !self.settings.has_domain_maps {
            return Ok(is_named);
        }
        Ok(asking.value(Question::Domain(domain.into()))?.is_some())
    }

    /// Returns whether maps may have the name of the address without its domain.
    fn is_own(&self, address: &Address) -> bool {
        let at = address.key.rfind('@').map_or(0, |at| at + 1);
        self.settings.is_own_domain(&address.key[at..])
    }

    /// Returns the mailbox for a postmaster or root that an alias leads to: every domain has a postmaster (RFC 5321 §4.5.1), and the
    /// aliases of most systems say `postmaster: root`.
    fn postmaster_for(&self, address: &Address) -> Option<Mailbox> {
        let postmaster = self.settings.postmaster.as_ref().filter(|_| address.from.is_some())?;
        let is_it = ["postmaster", "root"]
            .iter()
            .any(|name| is_named(&address.mailbox, self.settings.separator, name));
        is_it.then(|| postmaster.clone())
    }

    fn no_such_user(&self, address: &Address) -> Wait {
        let Some(from) = address.from else { return Wait::Stop(Stop::NoSuchUser) };
        let alias = self.expanded.links.text(from).into();
        Trouble::NoSuchTarget { alias, target: address.mailbox.as_str().into() }.into()
    }

    /// Replaces the address that was given by the one in the canonical maps, and that by its own, as Postfix does.
    fn canonical(&self, given: &mut Address, asking: &mut Asking<'_>) -> Result<(), Wait> {
        // Behind an answer that is still missing, the steps begin anew.
        let mut address = given.clone();
        self.canonical_steps(&mut address, asking)?;
        *given = address;
        Ok(())
    }

    fn canonical_steps(&self, address: &mut Address, asking: &mut Asking<'_>) -> Result<(), Wait> {
        let (separator, hostname) = (self.settings.separator, &self.settings.hostname);
        'step: for _ in 0..CANONICAL_STEPS_MAX {
            for map_key in map_keys(&address.mailbox, separator, self.is_own(address)) {
                let Some(value) = asking.value(Question::Canonical(map_key.as_str().into()))? else {
                    continue;
                };
                let changed = by_map(&address.mailbox, separator, &map_key, value, hostname);
                address.mailbox =
                    changed.map_err(|what| Trouble::Value { key: map_key.into(), what: what.into() })?;
                let key = address.mailbox.key().into();
                if std::mem::replace(&mut address.key, key) == address.key {
                    return Ok(());
                }
                continue 'step;
            }
            break;
        }
        Ok(())
    }

    /// Returns true if virtual maps have the address.
    fn virtual_alias(&mut self, address: &mut Address, asking: &mut Asking<'_>) -> Result<bool, Wait> {
        let separator = self.settings.separator;
        for map_key in map_keys(&address.mailbox, separator, self.is_own(address)) {
            let Some(value) = asking.value(Question::Virtual(map_key.as_str().into()))? else { continue };
            let from = self.link(address)?;
            let mut count = 0;
            for target in TargetList::new(value) {
                count += 1;
                let (mailbox, stage) = self.virtual_target(address, &map_key, target)?;
                let target_key: Box<str> = mailbox.key().into();
                // The address itself: the user is meant, and other look-ups of the domain do not apply.
                let is_self = target_key == address.key;
                let stage = if is_self { stage.max(Stage::Alias) } else { stage };
                self.push(mailbox, target_key, stage, from, address.depth, is_self)?;
            }
            if count == 0 {
                return Err(Trouble::value(&map_key, "the value is empty; write one address at least").into());
            }
            return Ok(true);
        }
        Ok(false)
    }

    fn virtual_target(
        &self,
        address: &Address,
        map_key: &str,
        target: Result<Target, crate::TargetError>,
    ) -> Result<(Mailbox, Stage), Trouble> {
        let target = target.map_err(|error| Trouble::value(map_key, error.to_string()))?;
        let bad = |what: &str| Trouble::value(map_key, what);
        let at_host = |name: &str| {
            at_domain(name, &self.settings.hostname).ok_or_else(|| bad("a name that is no local part"))
        };
        let detailed = |mailbox| keep_detail(&address.mailbox, self.settings.separator, map_key, mailbox);
        match target {
            Target::Mailbox(mailbox) => Ok((detailed(mailbox), Stage::Virtual)),
            Target::Local(name) => Ok((detailed(at_host(&name)?), Stage::Virtual)),
            Target::Final(name) => Ok((at_host(&name)?, Stage::User)),
            Target::Domain(domain) => {
                let moved = at_domain_of(&address.mailbox, &domain).map_err(|what| bad(&what))?;
                Ok((moved, Stage::Virtual))
            }
            Target::Include(_) | Target::Command(_) | Target::File(_) => {
                Err(bad("a virtual alias has addresses only; write files and programs as aliases"))
            }
        }
    }

    /// Returns true if alias maps have the local part.
    fn alias(&mut self, address: &mut Address, domain: &str, asking: &mut Asking<'_>) -> Result<bool, Wait> {
        let whole = address.mailbox.local_name();
        let user = self.settings.separator.and_then(|s| s.split(&whole)).map(|(user, _)| user);
        for name in std::iter::once(whole.as_str()).chain(user) {
            let Some(value) = asking.value(Question::Alias(name.into()))? else { continue };
            let owner = format!("owner-{name}");
            let has_owner = !name.starts_with("owner-")
                && asking.value(Question::Alias(owner.as_str().into()))?.is_some();
            let from = self.link(address)?;
            if has_owner && let Some(owner) = at_domain(&owner, domain) {
                self.expanded.links.set_owner(from, owner);
            }
            let mut count = 0;
            for target in TargetList::new(value) {
                count += 1;
                let target = target.map_err(|error| Trouble::value(name, error.to_string()))?;
                self.alias_target(target, Some(address), name, domain, from, address.depth)?;
            }
            if count == 0 {
                return Err(Trouble::value(name, "the value is empty; write one target at least").into());
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Adds a target of the alias `name`, or of a file that it includes.
    fn alias_target(
        &mut self,
        target: Target,
        address: Option<&Address>,
        name: &str,
        domain: &str,
        from: LinkId,
        depth: u8,
    ) -> Result<(), Trouble> {
        let bad = |what: &str| Trouble::value(name, what);
        let local = |text: &str| at_domain(text, domain).ok_or_else(|| bad("a name that is no local part"));
        let (mailbox, stage) = match target {
            // `joe: joe, jane` means the user joe, with the detail that was given.
            Target::Local(same) if mail::fold(&same) == name && address.is_some() => {
                let address = address.expect("checked by the pattern");
                return self.push(
                    address.mailbox.clone(),
                    address.key.clone(),
                    Stage::User,
                    from,
                    depth,
                    true,
                );
            }
            Target::Local(text) => (local(&text)?, Stage::Virtual),
            Target::Final(text) => (local(&text)?, Stage::User),
            Target::Mailbox(mailbox) => (mailbox, Stage::Virtual),
            Target::Include(path) => {
                let depth = self.deeper_by_file(depth, name)?;
                self.open.push_back(Item::Include(Include { path, from, domain: domain.into(), depth }));
                return Ok(());
            }
            Target::Domain(_) => return Err(bad("@domain is for virtual aliases; write an address")),
            Target::Command(command) => {
                let words = split_command(&command).map_err(bad)?;
                if !self.settings.programs.contains(&words[0]) {
                    return Err(Trouble::NotAllowed {
                        alias: name.into(),
                        target: format!("|{command}").into(),
                    });
                }
                return self.found_target(AliasTarget::Program(command), address, name, from, depth);
            }
            Target::File(path) => {
                if *path != *NULL_DEVICE && !self.settings.files.contains(&path) {
                    return Err(Trouble::NotAllowed { alias: name.into(), target: path });
                }
                return self.found_target(AliasTarget::File(path), address, name, from, depth);
            }
        };
        let target_key: Box<str> = mailbox.key().into();
        let is_self = address.is_some_and(|address| address.key == target_key);
        let stage = if is_self { Stage::User } else { stage };
        self.push(mailbox, target_key, stage, from, depth, is_self)
    }

    /// Adds a program or a file as the recipient that the alias is.
    fn found_target(
        &mut self,
        target: AliasTarget,
        address: Option<&Address>,
        name: &str,
        from: LinkId,
        depth: u8,
    ) -> Result<(), Trouble> {
        self.deeper(depth, name)?;
        // In a file, the alias that includes it.
        let mailbox = match address {
            Some(address) => address.mailbox.clone(),
            None => {
                let alias = self.expanded.links.path_to(Some(from)).into_iter().rev().skip(1);
                let mut addresses = alias.filter_map(|text| Mailbox::parse(text, true).ok());
                addresses.next().ok_or_else(|| Trouble::value(name, "no alias leads to this file"))?
            }
        };
        let what = match &target {
            AliasTarget::Program(command) => format!("|{command}"),
            AliasTarget::File(path) | AliasTarget::Route(path) => path.to_string(),
            AliasTarget::Later => String::new(),
        };
        // Once for all aliases that lead to it; no address has a key like this.
        if self.seen.insert(what.into()) {
            self.expanded.targets.push((self.expanded.recipients.len(), target));
            self.expanded.recipients.push((mailbox, Some(from)));
        }
        Ok(())
    }

    /// Reads the targets of an `:include:` file.
    fn include(&mut self, include: &mut Include, asking: &mut Asking<'_>) -> Result<(), Wait> {
        let Include { path, from, domain, depth } = include;
        let content = match asking.value(Question::Include(path.clone())) {
            Err(Wait::Stop(Stop::Failed(Trouble::LookUp(why)))) => {
                return Err(Trouble::Include { path: path.clone(), why }.into());
            }
            content => content?,
        };
        let Some(content) = content else {
            return Err(Trouble::Include { path: path.clone(), why: "no such file".into() }.into());
        };
        let link = self.expanded.links.add(path.clone(), Some(*from));
        if self.expanded.links.has_above(link, path) {
            return Err(Trouble::Loop(path.clone()).into());
        }
        for target in TargetList::of_file(content) {
            let (at, added) = match target {
                Ok((at, target)) => (at, self.alias_target(target, None, path, domain, link, *depth)),
                Err(error) => (error.at, Err(Trouble::value(path, error.to_string()))),
            };
            added.map_err(|trouble| trouble.in_file(path, line_and_column(content, at)))?;
        }
        Ok(())
    }

    /// Notes that the address is an alias.
    ///
    /// # Errors
    /// The address was expanded on the way to itself.
    fn link(&mut self, address: &Address) -> Result<LinkId, Trouble> {
        let link = self.expanded.links.add(address.key.clone(), address.from);
        if self.expanded.links.has_above(link, &address.key) {
            // An address that stands in its own virtual list goes on to its aliases: one step, which ends.
            let is_next_stage = address.stage == Stage::Alias
                && address.from.is_some_and(|from| {
                    self.expanded.links.text(from) == &*address.key
                        && !self.expanded.links.has_above(from, &address.key)
                });
            if !is_next_stage {
                return Err(Trouble::Loop(address.key.clone()));
            }
        }
        Ok(link)
    }

    fn deeper(&mut self, depth: u8, alias: &str) -> Result<u8, Trouble> {
        self.target_count += 1;
        self.within_limits(self.target_count, depth, alias)
    }

    /// As [`Self::deeper`], for a file: its targets are counted, and not the file.
    fn deeper_by_file(&mut self, depth: u8, alias: &str) -> Result<u8, Trouble> {
        self.file_count += 1;
        self.within_limits(self.file_count, depth, alias)
    }

    fn within_limits(&self, count: usize, depth: u8, alias: &str) -> Result<u8, Trouble> {
        let limit = self.settings.targets_max.unwrap_or(TARGETS_MAX);
        if count > limit {
            return Err(Trouble::TooMany { alias: alias.into(), limit });
        }
        if depth >= DEPTH_MAX {
            return Err(Trouble::TooDeep { alias: alias.into(), limit: DEPTH_MAX });
        }
        Ok(depth + 1)
    }

    /// Adds an address that an alias names. A target that is the alias itself is no step deeper.
    fn push(
        &mut self,
        mailbox: Mailbox,
        key: Box<str>,
        stage: Stage,
        from: LinkId,
        depth: u8,
        is_self: bool,
    ) -> Result<(), Trouble> {
        let deeper = self.deeper(depth, &key)?;
        let depth = if is_self { depth } else { deeper };
        self.open.push_back(Item::Address(Address { mailbox, key, stage, from: Some(from), depth }));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
