//! Logins of clients: answers the questions of their SASL exchanges, and slows down those who guess.

mod certificates;
mod dovecot;
mod map_users;
mod tokens;
mod users_file;

pub(crate) use certificates::logins_of;
pub(crate) use dovecot::{DovecotAuth, DovecotExchange};
pub(crate) use map_users::MapUsers;
pub(crate) use tokens::TokenVerifier;
pub(crate) use users_file::UsersFile;

use auth::{
    Answer, ChannelBindings, Counted, FailedLogins, Login, Question, Secret, ServerFacts, TokenAdvice,
    VerifiedPasswords,
};
use data_encoding::BASE64_NOPAD;
use smtp::server::OfferedMechanism;
use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};
use tokio::sync::Semaphore;

/// Hashes that are computed at the same time.
const HASHING_MAX: usize = 2;
/// Logins that wait for that; the next one is told to try again.
const WAITING_MAX: usize = 64;

/// State of logins that outlives a reload of the configuration.
pub(crate) struct Logins {
    /// The keys of users who do not exist are made of it.
    decoy: Secret,
    verified: Mutex<VerifiedPasswords>,
    failed: Mutex<FailedLogins>,
    hashing: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// The mechanisms that listeners offer, and where users come from.
pub(crate) struct LoginSettings {
    pub(crate) mechanisms: Vec<OfferedMechanism>,
    pub(crate) store: Store,
    /// Verifies tokens; `None`: the store does, if it can.
    pub(crate) tokens: Option<TokenVerifier>,
    /// Failures of a client after which it cannot log in.
    pub(crate) failures_max: u32,
}

/// The store of users.
pub(crate) enum Store {
    File(UsersFile),
    Map(MapUsers),
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
    /// Somebody else, who is checked in his place: both take the same time.
    other: Option<Login>,
    /// The name for which a verified password is remembered.
    remembered_as: Box<str>,
}

impl LoginSettings {
    /// Returns whether a mechanism with channel binding is offered.
    pub(crate) fn offers_plus(&self) -> bool {
        self.mechanisms.iter().any(|mechanism| mechanism.name.ends_with("-PLUS"))
    }
}

impl Logins {
    pub(crate) fn new() -> Self {
        Self {
            decoy: Secret::new(random::<32>()),
            verified: Mutex::new(VerifiedPasswords::new(&random())),
            failed: Mutex::default(),
            hashing: Arc::new(Semaphore::new(HASHING_MAX)),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Returns the facts for a new exchange.
    pub(crate) fn facts(&self, bindings: ChannelBindings, offers_plus: bool) -> ServerFacts {
        let nonce = BASE64_NOPAD.encode(&random::<24>()).into();
        let (certificate, token_advice) = (Vec::new(), TokenAdvice::default());
        ServerFacts { bindings, offers_plus, certificate, token_advice, nonce, decoy: self.decoy.clone() }
    }

    /// Returns whether a client has failed too often of late.
    pub(crate) fn is_blocked(&self, client: IpAddr, failures_max: u32) -> bool {
        lock(&self.failed).of_client(client, Instant::now()) >= failures_max
    }

    /// Counts a failed login.
    pub(crate) fn failed(&self, client: IpAddr, user: Option<&str>, in_session: u32) -> Counted {
        lock(&self.failed).count(client, user, in_session, Instant::now())
    }

    /// Answers a question of an exchange.
    pub(crate) async fn answer(&self, store: &Store, question: Question) -> Answer {
        match question {
            Question::Password { user, .. } if matches!(store, Store::Anybody) => Answer::Right(user),
            Question::Password { user, password } => match self.candidate(store, &user).await {
                Some(candidate) => self.check(candidate, password).await,
                None => Answer::Unavailable,
            },
            Question::Keys { user, hash } => match self.candidate(store, &user).await {
                Some(Candidate { login: Some(login), .. }) => {
                    // The salt of a password in clear text stays the same for as long as the process runs.
                    let salt = auth::salt_of(&self.decoy, &login.name);
                    Answer::Keys(login.password.scram_keys(hash, &salt).map(Box::new))
                }
                Some(_) => Answer::Keys(None),
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
                let other = if login.is_none() { users.any().cloned() } else { None };
                Some(Candidate { login, other, remembered_as })
            }
            Store::Map(map) => match map.get(user).await {
                Ok(Some(found)) => {
                    let (login, remembered_as) = (Some(found.login), found.remembered_as);
                    Some(Candidate { login, other: None, remembered_as })
                }
                Ok(None) => {
                    Some(Candidate { login: None, other: Some(map.other()), remembered_as: "".into() })
                }
                Err(error) => {
                    tracing::error!("a user cannot log in: {error}");
                    None
                }
            },
            Store::Dovecot(_) | Store::None | Store::Anybody => None,
        }
    }

    async fn check(&self, candidate: Candidate, password: Secret) -> Answer {
        let Candidate { login, other, remembered_as } = candidate;
        if login.is_some() && lock(&self.verified).knows(&remembered_as, &password, Instant::now()) {
            return login.map_or(Answer::Wrong, |login| Answer::Right(login.name));
        }
        let Some(checked) = login.as_ref().or(other.as_ref()) else { return Answer::Wrong };
        let is_right = if checked.password.is_slow() {
            let Some(is_right) = self.check_slowly(checked.clone(), password.clone()).await else {
                return Answer::Unavailable;
            };
            is_right
        } else {
            checked.password.is(&password)
        };
        match login {
            Some(login) if is_right => {
                lock(&self.verified).remember(&remembered_as, &password, Instant::now());
                Answer::Right(login.name)
            }
            _ => Answer::Wrong,
        }
    }

    /// Computes a hash on a thread of its own; `None` if too many wait for that.
    async fn check_slowly(&self, login: Login, password: Secret) -> Option<bool> {
        let _waiting = Waiting::begin(&self.waiting)?;
        let permit = self.hashing.clone().acquire_owned().await.ok()?;
        // A hash takes its memory until it is done, also for a client who is gone.
        let hash = move || {
            let is_right = login.password.is(&password);
            drop(permit);
            is_right
        };
        tokio::task::spawn_blocking(hash).await.ok()
    }
}

/// One that waits for a hash.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Option<Self> {
        let waiting = Self(count);
        (count.fetch_add(1, Ordering::Relaxed) < WAITING_MAX + HASHING_MAX).then_some(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Octets that nobody can guess.
pub(crate) fn random<const N: usize>() -> [u8; N] {
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
    use auth::{NewScheme, StoredPassword};
    use std::time::Duration;

    #[tokio::test]
    async fn a_client_that_goes_leaves_its_hash_among_those_that_are_counted() {
        let logins = Arc::new(Logins::new());
        let stored = NewScheme::Argon2id.hash("secret", [7; 16]).unwrap();
        let login = Login { name: "jane".into(), password: StoredPassword::parse(&stored).unwrap() };
        for _ in 0..HASHING_MAX {
            let begun = logins.check_slowly(login.clone(), Secret::new("wrong"));
            // Long enough to begin, and too short for the hash.
            assert!(tokio::time::timeout(Duration::ZERO, begun).await.is_err());
        }
        assert_eq!(logins.hashing.available_permits(), 0, "the hashes are still computed");
        assert_eq!(logins.waiting.load(Ordering::Relaxed), 0, "nobody waits for them");
        assert_eq!(logins.check_slowly(login, Secret::new("secret")).await, Some(true));
    }
}
