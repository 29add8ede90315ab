//! The users of this machine as a map: those of `/etc/passwd`, and those of the services behind it, such as SSSD and LDAP.

use crate::{Cached, Looked, LookupError, Map, Reference};
use machine::accounts::{self, Question, User};
use mail::Answer;
use std::time::Duration;
use tokio::{sync::Semaphore, task::spawn_blocking};

/// So long is an answer of a service remembered, and that there is no such user.
const TTL: Duration = Duration::from_secs(5);
/// Questions at a time: each costs a process, and strangers choose the names.
const ASKED_MAX: usize = 8;

/// Finds users of this machine. The file is read each time, so that new users have their mail at once.
pub struct Accounts(Cached<Services>);

impl Default for Accounts {
    fn default() -> Self {
        Self(Cached::new(Services(Semaphore::new(ASKED_MAX)), TTL))
    }
}

impl Accounts {
    /// Finds a user by name; a number is not taken for one.
    pub fn user(&self, name: impl Into<Box<str>>) -> Answer<'_, Result<Option<User>, LookupError>> {
        let name = name.into();
        match accounts::user_named_in_file(&name) {
            Ok(Some(user)) => Answer::Ready(Ok(Some(user))),
            Ok(None) if !accounts::has_services(&name) => Answer::Ready(Ok(None)),
            Err(why) if !accounts::asks_another() => Answer::Ready(Err(failed(&why))),
            // The sandbox of a daemon that stays root permits the file of its start, and `useradd` replaces it.
            Ok(None) | Err(_) => self.0.get_owned(name).map(|line| {
                let user = line?.map(|line| accounts::user_of_line(&line).ok_or(line));
                user.transpose().map_err(|line| failed(&format_args!("getent says {line:?}")))
            }),
        }
    }
}

/// The value of a user is the home directory, as in a map of a file.
impl Map for Accounts {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Looked> {
        // An address is no user.
        if key.contains('@') {
            return Answer::Ready(Ok(None));
        }
        self.user(key).map(|user| Ok(user?.map(|user| user.home.to_string_lossy().into())))
    }
}

/// The lines of users that the file does not have.
struct Services(Semaphore);

impl Map for Services {
    fn get<'a>(&'a self, name: &'a str) -> Answer<'a, Looked> {
        let question = Question::User(name.to_owned());
        Answer::later(async move {
            let _permit = self.0.acquire().await.map_err(|e| failed(&e))?;
            let asked = spawn_blocking(move || accounts::ask(&question)).await.map_err(|e| failed(&e))?;
            asked.map(|line| line.map(Into::into)).map_err(|why| failed(&why))
        })
    }
}

fn failed(why: &dyn std::fmt::Display) -> LookupError {
    LookupError::new(&Reference::Accounts, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_user_of_the_file_is_found_at_once_and_an_address_is_none() {
        let users = Accounts::default();
        let Answer::Ready(root) = users.get("root") else { panic!("a service was asked") };
        assert_eq!(root.unwrap().as_deref(), Some("/root"));
        for none in ["root@a.test", "0", "", "-s", "../x"] {
            assert_eq!(users.get(none).wait().await, Ok(None), "{none}");
        }
    }
}
