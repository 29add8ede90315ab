//! Users and groups of this machine, by name or number.

use crate::value::{Context, Found, Value, text, text_value};
use machine::accounts::{self, Failed, Looked};
use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

/// A user of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct User {
    /// The name; the number, where it has none.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Id of the user's own group.
    pub gid: u32,
    /// The home directory.
    pub home: PathBuf,
}

/// A group of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The name, or the number, as it was written.
    pub name: String,
    /// Group id.
    pub gid: u32,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

text_value!(
    User,
    "a user of this machine",
    "the name of a user of this machine, such as \"vmail\", or a number in quotes",
    |t, _| known_user(t),
    |user| user.name.clone()
);

text_value!(
    Group,
    "a group of this machine",
    "the name of a group of this machine, such as \"mail\", or a number in quotes",
    |t, _| known_group(t),
    |group| group.name.clone()
);

impl From<accounts::User> for User {
    fn from(user: accounts::User) -> Self {
        Self { name: user.name, uid: user.uid, gid: user.gid, home: user.home }
    }
}

/// Finds a user of this machine by name or number. A number need not be that of an account, and services are not asked for it.
pub(crate) fn known_user(text: &str) -> Result<User, (String, Option<String>)> {
    if let Some(uid) = number(text) {
        // A container may have no such file.
        let account = accounts::user_numbered_in_file(uid).ok().flatten().map(User::from);
        let without = User { name: String::new(), uid, gid: uid, home: "/".into() };
        return Ok(User { name: text.to_owned(), ..account.unwrap_or(without) });
    }
    static FOUND: FoundBefore<User> = FoundBefore::new();
    let user = |user: accounts::User| User { name: text.to_owned(), ..user.into() };
    let found = FOUND.or_before(text, accounts::user_named(text).map(|found| found.map(user)));
    found.map_err(|failed| unknown(&failed))?.ok_or_else(|| (format!("there is no user {text}"), None))
}

fn known_group(text: &str) -> Result<Group, (String, Option<String>)> {
    if let Some(gid) = number(text) {
        return Ok(Group { name: text.to_owned(), gid });
    }
    static FOUND: FoundBefore<Group> = FoundBefore::new();
    let group = |group: accounts::Group| Group { name: text.to_owned(), gid: group.gid };
    let found = FOUND.or_before(text, accounts::group_named(text).map(|found| found.map(group)));
    found.map_err(|failed| unknown(&failed))?.ok_or_else(|| (format!("there is no group {text}"), None))
}

/// Users or groups of the configuration that this process has found. While a service does not answer, or may not be asked any more, a
/// reload takes them as they were.
struct FoundBefore<T>(Mutex<BTreeMap<String, T>>);

impl<T: Clone> FoundBefore<T> {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Remembers what was looked up, or returns what was found before if the look-up failed.
    fn or_before(&self, name: &str, looked: Looked<T>) -> Looked<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match looked {
            Ok(Some(found)) => {
                all.insert(name.to_owned(), found.clone());
                Ok(Some(found))
            }
            Err(Failed::Service(why)) => all.get(name).cloned().map(Some).ok_or(Failed::Service(why)),
            looked => looked,
        }
    }
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns the error of a look-up that failed. The sandbox of a daemon that stays root permits the file of its start, and `useradd`
/// replaces the file.
fn unknown(failed: &Failed) -> (String, Option<String>) {
    let help = match failed {
        Failed::File(_) => {
            "restart the daemon: its sandbox does not permit a file that was replaced since its start"
        }
        Failed::Service(_) => {
            "try `getent passwd NAME` and `getent group NAME`; for a number, no service is asked"
        }
    };
    (failed.to_string(), Some(help.to_owned()))
}

/// Finds a user of this machine by name; a number is not taken for one.
///
/// # Errors
/// Whether there is such a user is not known.
pub fn local_user(name: &str) -> Result<Option<User>, Failed> {
    Ok(accounts::user_named(name)?.map(User::from))
}

/// The permissions of a socket: octal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketMode(pub u32);

text_value!(
    SocketMode,
    "octal permissions",
    "\"0600\", \"0660\" or \"0666\"",
    |t, _| match u32::from_str_radix(t, 8) {
        Ok(mode) if mode <= 0o777 && t.bytes().all(|b| b.is_ascii_digit()) => Ok(SocketMode(mode)),
        _ => Err(("not such permissions".to_owned(), None)),
    },
    |mode| format!("{:04o}", mode.0)
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_up_that_failed_is_no_missing_user() {
        let (why, help) = unknown(&Failed::File("read /etc/passwd: No such file".to_owned()));
        assert!(why.starts_with("read /etc/passwd: ") && help.unwrap().starts_with("restart"), "{why}");
        let (why, help) = unknown(&Failed::Service("no answer".to_owned()));
        assert!(why == "no answer" && help.unwrap().contains("getent"), "{why}");
    }

    #[test]
    fn what_was_found_stays_found_while_its_service_does_not_answer() {
        let (found, failed) = (FoundBefore::<u32>::new(), || Err(Failed::Service("no answer".to_owned())));
        assert_eq!(found.or_before("joe", failed()), failed());
        assert_eq!(found.or_before("joe", Ok(Some(7))), Ok(Some(7)));
        assert_eq!(found.or_before("joe", failed()), Ok(Some(7)));
        assert_eq!(found.or_before("ann", failed()), failed());
        assert_eq!(found.or_before("joe", Ok(None)), Ok(None));
    }

    #[test]
    fn a_user_and_a_group_have_a_name_or_a_number() {
        let root = known_user("root").unwrap();
        assert_eq!((root.uid, root.gid, &*root.home.to_string_lossy()), (0, 0, "/root"));
        assert_eq!(known_user("0").unwrap(), User { name: "0".to_owned(), ..root });
        assert_eq!(known_user("4711").unwrap().gid, 4711);
        for text in ["there.is.no.such.user", "", "-1", "+1"] {
            assert!(known_user(text).is_err() && known_group(text).is_err(), "{text}");
        }
        assert_eq!((known_group("root").unwrap().gid, known_group("77").unwrap().gid), (0, 77));
    }
}
