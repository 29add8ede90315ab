//! All maps of a configuration.

use crate::{
    Accounts, Cached, FileMap, Looked, LookupError, Map,
    aliases::{Included, Unpermitted},
    reference::{NamedMap, Reference},
    servers,
    table::{Purpose, Table},
};
use mail::Answer;
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

/// The maps that a configuration refers to. A new configuration takes over the maps that it shares with the old one,
/// with their tables, connections and kept answers.
#[derive(Default, Clone)]
pub struct Maps {
    files: HashMap<Reference, FileMap>,
    named: HashMap<Box<str>, (NamedMap, Arc<dyn Map>)>,
    /// The users of this machine.
    accounts: Arc<Accounts>,
    /// Maps that the program makes itself.
    own: HashMap<Box<str>, Arc<dyn Map>>,
    /// Empty: nobody looks.
    observed: Arc<OnceLock<Mutex<Vec<Observed>>>>,
}

/// Maps that serve a purpose for which some content is dangerous.
#[derive(Debug, Clone, Copy, Default)]
pub struct Purposes<'a> {
    /// Clients in these maps may relay: half the Internet may not.
    pub relaying: &'a [Reference],
    /// Values of these maps name programs and files: text of an address cannot be a part of one.
    pub aliases: &'a [Reference],
}

impl Purposes<'_> {
    fn of(&self, reference: &Reference) -> Purpose {
        match () {
            () if self.relaying.contains(reference) => Purpose::Relaying,
            () if self.aliases.contains(reference) => Purpose::Aliases,
            () => Purpose::Any,
        }
    }
}

/// A look-up, for whoever traces them.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The map that was asked.
    pub reference: Reference,
    /// As it was asked, before any folding.
    pub key: Box<str>,
    /// The answer of the map, or why there is none.
    pub looked: Looked,
    /// From the question to the answer.
    pub took: Duration,
}

impl fmt::Debug for Maps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.files.keys()).entries(self.named.keys()).finish()
    }
}

/// What the check of one file has found.
#[derive(Debug)]
pub struct Checked {
    /// The map whose file was checked.
    pub reference: Reference,
    /// The content of a file that can be used; or the reason why it cannot.
    pub state: Result<Usable, String>,
}

/// Remarks on a file that can be used.
#[derive(Debug)]
pub struct Usable {
    /// Number of entries, where it is known.
    pub count: Option<usize>,
    /// Targets that the configuration has to permit.
    pub warnings: Vec<Unpermitted>,
    /// Files of targets that aliases include.
    pub included: Vec<Included>,
}

impl Checked {
    /// Returns all reasons why the file cannot be used; none if it can. Reads the file once for each.
    pub fn faults(&self) -> Vec<String> {
        let (Err(first), Reference::File(kind, path)) = (&self.state, &self.reference) else {
            return Vec::new();
        };
        let all: Vec<String> = Table::faults(*kind, path).iter().map(ToString::to_string).collect();
        // Somebody may have repaired the file meanwhile.
        if all.is_empty() { vec![first.clone()] } else { all }
    }
}

impl Maps {
    /// Opens maps; files that cannot be used are logged, and their look-ups fail.
    pub fn open<'r>(
        references: impl IntoIterator<Item = &'r Reference>,
        named: &[NamedMap],
        old: Option<&Self>,
    ) -> Self {
        Self::open_for(references, Purposes::default(), named, old)
    }

    /// As [`Self::open`], where files that are dangerous for their purpose cannot be used.
    pub fn open_for<'r>(
        references: impl IntoIterator<Item = &'r Reference>,
        purposes: Purposes<'_>,
        named: &[NamedMap],
        old: Option<&Self>,
    ) -> Self {
        let accounts = old.map(|old| old.accounts.clone()).unwrap_or_default();
        let mut maps = Self { accounts, ..Self::default() };
        for reference in references {
            let Reference::File(kind, path) = reference else { continue };
            let purpose = purposes.of(reference);
            let kept = old.and_then(|old| old.files.get(reference));
            let kept = kept.filter(|map| map.purpose() == purpose).cloned();
            maps.files
                .entry(reference.clone())
                .or_insert_with(|| kept.unwrap_or_else(|| FileMap::open_for(purpose, *kind, path)));
        }
        for settings in named {
            let name: Box<str> = settings.name.as_str().into();
            let kept = old.and_then(|old| old.named.get(&name)).filter(|(known, _)| known == settings);
            let map = kept.map_or_else(|| open_named(settings), |(_, map)| map.clone());
            maps.named.insert(name, (settings.clone(), map));
        }
        maps
    }

    /// Adds a map that the program makes, under a name that no configuration has.
    pub fn add(&mut self, name: &str, map: Arc<dyn Map>) {
        self.own.insert(name.into(), map);
    }

    /// Returns the users of this machine.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Reads all files that have changed, and returns the faults of those that cannot be used. Waits for the disk.
    pub fn read_files(&self) -> Vec<String> {
        let mut faults: Vec<String> = self.files.values().filter_map(FileMap::read_now).collect();
        faults.sort();
        faults
    }

    /// Returns the faults of files that could not be used when a look-up or a reload last read them. Does not wait for the disk.
    pub fn file_faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = self.files.values().filter_map(FileMap::fault).collect();
        faults.sort();
        faults
    }

    /// Returns how often a changed file was read. Look-ups between two calls with the same result saw one state of the files.
    pub fn replaced_count(&self) -> u64 {
        self.files.values().map(FileMap::replaced_count).sum()
    }

    /// Looks a key up in a map.
    pub fn get<'a>(&'a self, reference: &Reference, key: &'a str) -> Answer<'a, Looked> {
        match self.map(reference) {
            Ok(map) => map.get(key),
            Err(error) => Answer::Ready(Err(error)),
        }
    }

    /// Has the server of a map verify a password ([`Map::verify`]).
    pub fn verify<'a>(
        &'a self,
        reference: &Reference,
        key: &'a str,
        password: &'a str,
    ) -> Answer<'a, Looked> {
        match self.map(reference) {
            Ok(map) => map.verify(key, password),
            Err(error) => Answer::Ready(Err(error)),
        }
    }

    /// As [`Maps::get`], for a key that does not live as long as the answer.
    pub fn get_owned(&self, reference: &Reference, key: Box<str>) -> Answer<'_, Looked> {
        match self.map(reference) {
            Ok(map) => map.get_owned(key),
            Err(error) => Answer::Ready(Err(error)),
        }
    }

    fn map(&self, reference: &Reference) -> Result<&dyn Map, LookupError> {
        let map: Option<&dyn Map> = match reference {
            Reference::File(..) => self.files.get(reference).map(|map| map as &dyn Map),
            Reference::Accounts => Some(&*self.accounts),
            Reference::Named(name) => match self.named.get(name) {
                Some((_, map)) => Some(&**map),
                None => self.own.get(name).map(|map| &**map),
            },
        };
        // The configuration refers to maps that it has only; otherwise this is a fault of the caller.
        map.ok_or_else(|| LookupError::new(reference, "the map is not open"))
    }

    /// Looks a key up without waiting; a named map always fails.
    ///
    /// # Errors
    /// The look-up failed.
    pub fn get_now(&self, reference: &Reference, key: &str) -> Looked {
        match self.files.get(reference) {
            Some(map) => map.get_now(key),
            None => Err(LookupError::new(reference, "the map has to be waited for")),
        }
    }

    /// Returns the first value of a key in several maps.
    pub async fn first(&self, references: &[Reference], key: &str) -> Looked {
        self.first_of(references.iter(), key).await
    }

    /// As [`Maps::first`], for maps of addresses: a name without a domain is looked up where
    /// [`Reference::has_bare_names`] says so.
    pub async fn first_address(&self, references: &[Reference], key: &str) -> Looked {
        let is_asked = |reference: &&Reference| key.contains('@') || reference.has_bare_names();
        self.first_of(references.iter().filter(is_asked), key).await
    }

    async fn first_of(&self, references: impl Iterator<Item = &Reference>, key: &str) -> Looked {
        for reference in references {
            let begun = self.observed.get().map(|observed| (observed, Instant::now()));
            let looked = self.get(reference, key).wait().await;
            if let Some((observed, begun)) = begun {
                let (reference, looked, took) = (reference.clone(), looked.clone(), begun.elapsed());
                let one = Observed { reference, key: key.into(), looked, took };
                observed.lock().unwrap_or_else(PoisonError::into_inner).push(one);
            }
            if let Some(value) = looked? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Returns the look-ups of [`Maps::first`] since this was called the last time. With the first call it begins to
    /// observe them.
    pub fn observe(&self) -> Vec<Observed> {
        let observed = self.observed.get_or_init(Mutex::default);
        std::mem::take(&mut *observed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether one of several maps has a key, without waiting. Maps that fail have no keys.
    pub fn has_now(&self, references: &[Reference], key: &str) -> bool {
        references.iter().any(|reference| matches!(self.get_now(reference, key), Ok(Some(_))))
    }

    /// As [`Maps::has_now`], for maps that no other look-up keeps up to date: changed files are read for the look-ups
    /// that follow.
    pub fn has_now_fresh(&self, references: &[Reference], key: &str) -> bool {
        for map in references.iter().filter_map(|reference| self.files.get(reference)) {
            map.refresh_later();
        }
        self.has_now(references, key)
    }

    /// Connects to the servers of the named maps that are meant, opens their databases, and reads their queries.
    pub async fn check_named(
        &self,
        is_meant: impl Fn(&NamedMap) -> bool,
    ) -> Vec<(NamedMap, Result<(), LookupError>)> {
        let mut all = Vec::new();
        for (settings, map) in self.named.values().filter(|(settings, _)| is_meant(settings)) {
            all.push((settings.clone(), map.check().wait().await));
        }
        all.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        all
    }

    /// Returns the state of each map that is a file.
    pub fn check(&self) -> Vec<Checked> {
        let state = |map: &FileMap| {
            let table = map.table().map_err(|error| error.what.to_string())?;
            Ok(Usable {
                count: table.len(),
                warnings: table.warnings().to_vec(),
                included: table.included().to_vec(),
            })
        };
        let mut all: Vec<Checked> = self
            .files
            .iter()
            .map(|(reference, map)| Checked { reference: reference.clone(), state: state(map) })
            .collect();
        all.sort_by(|a, b| a.reference.cmp(&b.reference));
        all
    }
}

fn open_named(settings: &NamedMap) -> Arc<dyn Map> {
    let map = servers::open(settings);
    if settings.cache_ttl.is_zero() { map } else { Arc::new(Cached::new(map, settings.cache_ttl)) }
}
