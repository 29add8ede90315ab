//! Logins of clients: answers the questions of their SASL exchanges, and slows down those who guess.

mod certificates;
mod checks;
mod directory;
mod dovecot;
mod map_users;
mod tokens;
mod users_file;

pub use certificates::logins_of;
pub use checks::{CHECKS_MAX, STRANGER_CHECKS_MAX};
pub use directory::verify_by_directory;
pub use dovecot::{DovecotAuth, DovecotExchange};
pub use map_users::MapUsers;
pub use tokens::TokenVerifier;
pub use users_file::UsersFile;

use crate::accept_config;
use auth::{
    Answer, ChannelBindings, Counted, Login, Mechanism, Question, Secret, ServerFacts, StoredPassword,
    TokenAdvice, VerifiedPasswords,
};
use checks::Checks;
use config::{ClientCertificates, Settings};
use data_encoding::BASE64_NOPAD;
use maps::{Maps, Reference};
use smtp::server::{MechanismNeed, OfferedMechanism};
use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// State of logins that outlives a reload of the configuration.
pub struct Logins {
    /// The keys of users who do not exist are made of it.
    decoy: Secret,
    verified: Mutex<VerifiedPasswords>,
    checks: Checks,
}

/// The mechanisms that listeners offer, and where users come from.
pub struct LoginSettings {
    /// In the order in which EHLO lists them.
    pub mechanisms: Vec<OfferedMechanism>,
    /// Says who a user is.
    pub store: Store,
    /// Verifies tokens; `None`: the store does, if it can.
    pub tokens: Option<TokenVerifier>,
    /// Failures of a client after which it cannot log in.
    pub failures_max: u32,
}

/// Where logins and passwords are kept; the kind of `[auth]` decides.
pub enum Store {
    /// A file in the format of Dovecot's passwd-file, read again when it changes.
    File(UsersFile),
    /// The value of the map is the hash of the password.
    Map(MapUsers),
    /// Each password is verified by a bind to an LDAP directory.
    Directory(Arc<Maps>, Reference),
    /// Dovecot's authentication socket.
    Dovecot(DovecotAuth),
    /// Logins are by certificate or by token only.
    None,
    /// Every login is right: the mail of a capture goes nowhere.
    Anybody,
}

/// The password that a client's is compared with.
struct Candidate {
    /// The user whom the client named; none if he does not exist.
    login: Option<Login>,
    /// A password of each kind of the store. Those of other kinds than the user's are checked too before a login fails: so it
    /// takes the same time for each user, and for a name that nobody has.
    kinds: Vec<StoredPassword>,
    /// The name for which a verified password is remembered.
    remembered_as: Box<str>,
}

impl LoginSettings {
    /// Returns the users of the settings, and the mechanisms that they can use; `None` if nobody can log in. What is kept open
    /// is taken over from `old`.
    ///
    /// # Errors
    /// The users cannot be read, in words.
    pub fn new(settings: &Settings, maps: &Arc<Maps>, old: Option<&Self>) -> Result<Option<Self>, String> {
        let has_certificates =
            settings.listen.iter().any(|listen| listen.client_certificates != ClientCertificates::Off);
        let tokens = TokenVerifier::new(settings)?;
        let (store, mut usual) = match &settings.auth.users {
            None if !has_certificates && tokens.is_none() => return Ok(None),
            None => (Store::None, Vec::new()),
            Some(config::UserStore::Passwd(path)) => {
                let users = UsersFile::open(path).map_err(|e| e.to_string())?;
                let usual = mechanisms_of(&users);
                (Store::File(users), usual)
            }
            Some(config::UserStore::Dovecot(path)) => {
                let former = old.and_then(|old| match &old.store {
                    Store::Dovecot(former) => Some(former),
                    _ => None,
                });
                let dovecot = DovecotAuth::open(path, former);
                let usual = dovecot.mechanisms().to_vec();
                (Store::Dovecot(dovecot), usual)
            }
            Some(config::UserStore::Anybody) => (Store::Anybody, vec!["PLAIN".into(), "LOGIN".into()]),
            // A client that sees SCRAM chooses it, and fails where the map has another hash for its user.
            Some(config::UserStore::Map(map)) => {
                let users = MapUsers::new(maps.clone(), map.clone());
                (Store::Map(users), vec!["PLAIN".into(), "LOGIN".into()])
            }
            Some(config::UserStore::Bind(map)) => {
                (Store::Directory(maps.clone(), map.clone()), vec!["PLAIN".into(), "LOGIN".into()])
            }
        };
        let own = [
            (Mechanism::External, has_certificates),
            (Mechanism::OauthBearer, tokens.is_some()),
            (Mechanism::Xoauth2, tokens.is_some()),
        ];
        let own = own.into_iter().filter(|(_, is_usual)| *is_usual).map(|(mechanism, _)| mechanism.as_str());
        // Those of Dovecot keep its order.
        let own: Vec<Box<str>> =
            own.filter(|name| !usual.iter().any(|known| **known == **name)).map(Into::into).collect();
        usual.splice(0..0, own);
        if !matches!(store, Store::Dovecot(_)) {
            let strength = |name: &str| Mechanism::all().position(|one| one.as_str() == name);
            usual.sort_by_key(|name| strength(name).unwrap_or(usize::MAX));
        }
        let names = match &settings.auth.mechanisms {
            Some(words) => words.iter().map(|word| word.mechanism().as_str().into()).collect(),
            None => usual,
        };
        let mechanisms = names.into_iter().map(offered_mechanism).collect();
        let failures_max = settings.auth.max_failures;
        Ok(Some(Self { mechanisms, store, tokens, failures_max }))
    }

    /// Returns whether a mechanism with channel binding is offered.
    pub fn offers_plus(&self) -> bool {
        self.mechanisms.iter().any(|mechanism| mechanism.name.ends_with("-PLUS"))
    }
}

/// Returns the names of the mechanisms that listeners with this configuration offer.
///
/// # Errors
/// The users cannot be read.
pub fn offered_mechanisms(settings: &Settings) -> Result<Vec<Box<str>>, String> {
    let logins = LoginSettings::new(settings, &accept_config::maps(settings, None), None)?;
    Ok(logins.into_iter().flat_map(|logins| logins.mechanisms).map(|mechanism| mechanism.name).collect())
}

/// Returns the mechanisms that every user of a file can use, the strongest first.
fn mechanisms_of(users: &UsersFile) -> Vec<Box<str>> {
    let known = users.users();
    let is_usable = |mechanism: &Mechanism| match mechanism.scram_hash() {
        Some(hash) => known.all_have_scram(hash),
        None => matches!(mechanism, Mechanism::Plain | Mechanism::Login),
    };
    Mechanism::all().filter(is_usable).map(|mechanism| mechanism.as_str().into()).collect()
}

fn offered_mechanism(name: Box<str>) -> OfferedMechanism {
    let needs = match &*name {
        "EXTERNAL" => MechanismNeed::Certificate,
        name if name.ends_with("-PLUS") => MechanismNeed::Tls,
        _ => MechanismNeed::Nothing,
    };
    OfferedMechanism { name, needs }
}

impl Logins {
    /// Returns the state of a daemon to which nobody has logged in.
    pub(crate) fn new() -> Self {
        Self {
            decoy: Secret::new(random::<32>()),
            verified: Mutex::new(VerifiedPasswords::new(&random())),
            checks: Checks::new(),
        }
    }

    /// Logins whose passwords are checked now or wait for it.
    pub fn waiting_count(&self) -> usize {
        self.checks.count()
    }

    /// Returns the facts for a new exchange.
    pub fn facts(&self, bindings: ChannelBindings, offers_plus: bool) -> ServerFacts {
        let nonce = BASE64_NOPAD.encode(&random::<24>()).into();
        let (certificate, token_advice) = (Vec::new(), TokenAdvice::default());
        ServerFacts { bindings, offers_plus, certificate, token_advice, nonce, decoy: self.decoy.clone() }
    }

    /// Returns whether a client has failed too often of late.
    pub fn is_blocked(&self, client: IpAddr, failures_max: u32) -> bool {
        lock(self.checks.failed()).of_client(client, Instant::now()) >= failures_max
    }

    /// Counts the failure for the client's address and for the user, and says what follows from it.
    pub fn failed(&self, client: IpAddr, user: Option<&str>, in_session: u32) -> Counted {
        lock(self.checks.failed()).count(client, user, in_session, Instant::now())
    }

    /// Remembers that somebody has logged in from there.
    pub fn succeeded(&self, client: IpAddr) {
        lock(self.checks.known()).remember(client, Instant::now());
    }

    /// Answers a question of a client's exchange.
    pub async fn answer(&self, store: &Store, client: IpAddr, question: Question) -> Answer {
        if let (Store::Directory(maps, map), Question::Password { user, password }) = (store, &question) {
            return match verify_by_directory(maps, map, user, password).await {
                Ok(name) => name.map_or(Answer::Wrong, Answer::Right),
                Err(error) => {
                    tracing::error!("a user cannot log in: {error}");
                    Answer::Unavailable
                }
            };
        }
        match question {
            Question::Password { user, .. } if matches!(store, Store::Anybody) => Answer::Right(user),
            Question::Password { user, password } => match self.candidate(store, &user).await {
                Some(candidate) => self.check(candidate, client, password).await,
                None => Answer::Unavailable,
            },
            Question::Keys { user, hash } => match self.candidate(store, &user).await {
                Some(Candidate { login, kinds, .. }) => {
                    // The salt of a password in clear text stays the same for as long as the process runs.
                    let name = login.as_ref().map_or(&*user, |login| &*login.name);
                    let salt = auth::salt_of(&self.decoy, name);
                    let keys = login.as_ref().and_then(|login| login.password.scram_keys(hash, &salt));
                    // Keys of a password in clear text are made here, which takes time.
                    let own = login.map(|login| login.password.kind());
                    for other in kinds.iter().filter(|other| Some(other.kind()) != own) {
                        std::hint::black_box(other.scram_keys(hash, &salt));
                    }
                    Answer::Keys(keys.map(Box::new))
                }
                None => Answer::Unavailable,
            },
            // A file has none.
            Question::Token { .. } => Answer::Wrong,
        }
    }

    /// Finds the password of a user; none if the store cannot be asked, which was logged.
    async fn candidate(&self, store: &Store, user: &str) -> Option<Candidate> {
        match store {
            Store::File(file) => {
                let (users, has_changed) = file.current().await;
                if has_changed {
                    lock(&self.verified).clear();
                }
                let login = users.get(user).cloned();
                let remembered_as = login.as_ref().map_or("".into(), |login| login.name.clone());
                Some(Candidate { login, kinds: users.kinds().to_vec(), remembered_as })
            }
            Store::Map(map) => match map.get(user).await {
                Ok(Some(found)) => {
                    let (login, remembered_as) = (Some(found.login), found.remembered_as);
                    Some(Candidate { login, kinds: map.kinds(), remembered_as })
                }
                Ok(None) => Some(Candidate { login: None, kinds: map.kinds(), remembered_as: "".into() }),
                Err(error) => {
                    tracing::error!("a user cannot log in: {error}");
                    None
                }
            },
            Store::Directory(..) | Store::Dovecot(_) | Store::None | Store::Anybody => None,
        }
    }

    async fn check(&self, candidate: Candidate, client: IpAddr, password: Secret) -> Answer {
        let Candidate { login, mut kinds, remembered_as } = candidate;
        if login.is_some() && lock(&self.verified).knows(&remembered_as, &password, Instant::now()) {
            return login.map_or(Answer::Wrong, |login| Answer::Right(login.name));
        }
        let own = login.as_ref().map(|login| login.password.clone());
        if let Some(own) = &own {
            let kind = own.kind();
            kinds.retain(|other| other.kind() != kind);
        }
        let is_quick = own.as_ref().is_some_and(|own| !own.is_slow() && own.is(&password));
        let Some(is_right) = (if is_quick || !own.iter().chain(&kinds).any(StoredPassword::is_slow) {
            Some(is_quick || is_right_of(own.as_ref(), &kinds, &password))
        } else {
            self.check_slowly(client, own, kinds, password.clone()).await
        }) else {
            return Answer::Unavailable;
        };
        match login {
            Some(login) if is_right => {
                lock(&self.verified).remember(&remembered_as, &password, Instant::now());
                Answer::Right(login.name)
            }
            _ => Answer::Wrong,
        }
    }

    /// Computes hashes on a thread of their own; `None` if too many wait for that.
    async fn check_slowly(
        &self,
        client: IpAddr,
        own: Option<StoredPassword>,
        others: Vec<StoredPassword>,
        password: Secret,
    ) -> Option<bool> {
        let admitted = self.checks.admit(client)?;
        let running = self.checks.begin(&admitted).await;
        let hash = move || {
            let is_right = is_right_of(own.as_ref(), &others, &password);
            drop(running);
            is_right
        };
        tokio::task::spawn_blocking(hash).await.ok()
    }
}

/// Returns whether a password is the user's own. If it is not, those of the other kinds are checked as well, for the time
/// that it takes.
fn is_right_of(own: Option<&StoredPassword>, others: &[StoredPassword], password: &Secret) -> bool {
    if own.is_some_and(|own| own.is(password)) {
        return true;
    }
    for other in others {
        std::hint::black_box(other.is(password));
    }
    false
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Octets that nobody can guess.
pub fn random<const N: usize>() -> [u8; N] {
    let mut octets = [0; N];
    let mut filled = 0;
    while filled < N {
        // Only a kernel before 3.17 does not have it, and an interrupted call is made again.
        match rustix::rand::getrandom(&mut octets[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => panic!("no random numbers: {e}"),
        }
    }
    octets
}

#[cfg(test)]
mod tests {
    use super::*;
    use auth::NewScheme;
    use std::time::Duration;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 9));

    #[tokio::test]
    async fn a_client_that_goes_leaves_its_hash_among_those_that_are_counted() {
        let logins = Logins::new();
        let stored = NewScheme::Argon2id.hash("secret", [7; 16]).unwrap();
        let stored = Some(StoredPassword::parse(&stored).unwrap());
        for client in [1, 2] {
            let client = IpAddr::from([192, 0, 2, client]);
            let begun = logins.check_slowly(client, stored.clone(), Vec::new(), Secret::new("wrong"));
            // Long enough to begin, and too short for the hash.
            assert!(tokio::time::timeout(Duration::ZERO, begun).await.is_err());
        }
        assert_eq!(logins.checks.running_count(), 2, "the hashes are still computed");
        assert_eq!(logins.waiting_count(), 0, "nobody waits for them");
        let right = logins.check_slowly(CLIENT, stored, Vec::new(), Secret::new("secret")).await;
        assert_eq!(right, Some(true));
    }

    /// The kinds of passwords that a failed login checks, for each user and for a name that nobody has.
    #[tokio::test]
    async fn a_failed_login_checks_the_same_kinds_for_every_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users");
        let slow = NewScheme::Bcrypt.hash("secret", [7; 16]).unwrap();
        std::fs::write(&path, format!("plain:{{PLAIN}}secret\nslow:{slow}\n")).unwrap();
        let store = Store::File(UsersFile::open(&path).unwrap());
        let logins = Logins::new();
        for name in ["plain", "slow", "nobody"] {
            let candidate = logins.candidate(&store, name).await.unwrap();
            let own = candidate.login.as_ref().map(|login| login.password.kind());
            let mut checked: Vec<String> = candidate.kinds.iter().map(StoredPassword::kind).collect();
            assert!(own.is_none_or(|own| checked.contains(&own)), "{name}");
            checked.sort();
            assert_eq!(checked, ["$2y$12", "clear"], "{name}");
        }
        // All slots for hashes are taken: every name waits for one, and a right password that needs none does not.
        let all = logins.checks.begin_all(CLIENT).await;
        for name in ["plain", "slow", "nobody"] {
            let question = Question::Password { user: name.into(), password: Secret::new("wrong") };
            let answer =
                tokio::time::timeout(Duration::from_millis(1), logins.answer(&store, CLIENT, question)).await;
            assert!(answer.is_err(), "{name}");
        }
        let question = Question::Password { user: "plain".into(), password: Secret::new("secret") };
        assert!(matches!(logins.answer(&store, CLIENT, question).await, Answer::Right(_)));
        drop(all);
    }
}
