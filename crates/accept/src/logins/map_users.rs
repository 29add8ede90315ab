//! Users whose stored passwords are the values of a map.

use super::lock;
use auth::{Login, StoredPassword};
use maps::{LookupError, Maps, Reference};
use std::sync::{Arc, Mutex};

/// A hash that no password has, with the costs of `postrider auth hash`.
const NOBODY: &str = "{ARGON2ID}$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Users whose passwords stand in a map.
pub struct MapUsers {
    maps: Arc<Maps>,
    reference: Reference,
    /// A password of each kind that was found. A failed login checks one of each.
    kinds: Mutex<Vec<StoredPassword>>,
}

/// A user that was found, with the password to verify.
pub struct MapUser {
    pub login: Login,
    /// Name and value: a verified password is remembered for them, so that a new value counts at once.
    pub remembered_as: Box<str>,
}

impl MapUsers {
    /// No map is asked before a client logs in.
    pub fn new(maps: Arc<Maps>, reference: Reference) -> Self {
        let nobody =
            StoredPassword::parse(NOBODY).expect("a constant hash: `the_hash_of_nobody_can_be_read`");
        Self { maps, reference, kinds: Mutex::new(vec![nobody]) }
    }

    /// Looks a user up. A user whose account is locked does not exist.
    ///
    /// # Errors
    /// The map failed, or its value is no stored password.
    pub async fn get(&self, user: &str) -> Result<Option<MapUser>, LookupError> {
        let name = user.to_lowercase();
        let Some(value) = self.maps.get(&self.reference, &name).wait().await? else { return Ok(None) };
        let login = Login::of_value(&name, &value).map_err(|why| LookupError {
            map: self.reference.to_string().into(),
            what: format!("the password of {name} cannot be used: {why}; `postrider auth hash` makes one")
                .into(),
        })?;
        Ok(login.map(|login| {
            self.learn(&login.password);
            MapUser { login, remembered_as: format!("{name}\0{value}").into() }
        }))
    }

    fn learn(&self, password: &StoredPassword) {
        let (kind, mut kinds) = (password.kind(), lock(&self.kinds));
        if kinds.len() < auth::KINDS_MAX && kinds.iter().all(|known| known.kind() != kind) {
            kinds.push(password.clone());
        }
    }

    /// Returns a password of each kind that was found so far, and one that nobody has.
    pub fn kinds(&self) -> Vec<StoredPassword> {
        lock(&self.kinds).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use auth::Secret;

    fn users(lines: &str) -> (tempfile::TempDir, MapUsers) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("users"), lines).unwrap();
        let reference = Reference::parse("text:users", dir.path()).unwrap();
        let maps = Arc::new(Maps::open([&reference], &[], None));
        (dir, MapUsers::new(maps, reference))
    }

    #[test]
    fn the_hash_of_nobody_can_be_read() {
        let nobody = StoredPassword::parse(NOBODY).unwrap();
        assert!(nobody.is_slow() && !nobody.is(&Secret::new("")));
    }

    #[tokio::test]
    async fn users_are_found_in_any_case_and_locked_ones_do_not_exist() {
        let (_dir, users) = users("joe@b.test {PLAIN}secret:1000:1000\nann !{PLAIN}x\nbob {PLAIN\n");
        let joe = users.get("Joe@B.test").await.unwrap().unwrap();
        assert!(&*joe.login.name == "joe@b.test" && joe.login.password.is(&Secret::new("secret")));
        let kinds: Vec<String> = users.kinds().iter().map(StoredPassword::kind).collect();
        assert_eq!(kinds, ["$argon2id$v=19$m=19456,t=2,p=1", "clear"]);
        assert!(users.get("ann").await.unwrap().is_none() && users.get("eve").await.unwrap().is_none());
        let Err(error) = users.get("bob").await else { panic!("a value without a brace") };
        assert!(error.what.contains("the password of bob cannot be used"), "{error}");
    }
}
