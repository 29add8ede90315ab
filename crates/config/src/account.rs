//! Users and groups of this machine, by name or number.

use crate::value::{Context, Found, Value, text, text_value};
use std::{fmt, fs, path::PathBuf};

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
    "a name in /etc/passwd, such as \"vmail\", or a number in quotes",
    |t, _| known_user(t),
    |user| user.name.clone()
);

text_value!(
    Group,
    "a group of this machine",
    "a name in /etc/group, such as \"mail\", or a number in quotes",
    |t, _| group(t, &read("/etc/group")).map_err(|error| unreadable("/etc/group").unwrap_or(error)),
    |group| group.name.clone()
);

/// Finds a user of this machine by name or number.
pub(crate) fn known_user(text: &str) -> Result<User, (String, Option<String>)> {
    user(text, &read("/etc/passwd")).map_err(|error| unreadable("/etc/passwd").unwrap_or(error))
}

/// Returns the error of a file that this process may not read. The sandbox of a daemon that stays root permits the file of its
/// start, and `useradd` replaces the file.
fn unreadable(path: &str) -> Option<(String, Option<String>)> {
    let error = fs::File::open(path).err()?;
    let help = "restart the daemon: its sandbox does not permit a file that was replaced since its start";
    Some((format!("read {path}: {error}"), Some(help.to_owned())))
}

/// Returns the user of this machine with a name; a number is not taken. None if there is none.
pub fn user_by_name(name: &str) -> Option<User> {
    let is_number = name.bytes().all(|b| b.is_ascii_digit());
    if is_number { None } else { known_user(name).ok() }
}

/// Finds a user of this machine by name, as [`user_by_name`].
///
/// # Errors
/// The file of users cannot be read: whether there is such a user is not known.
pub fn local_user(name: &str) -> std::io::Result<Option<User>> {
    let is_number = name.bytes().all(|b| b.is_ascii_digit());
    let passwd = fs::read("/etc/passwd")?;
    Ok(if is_number { None } else { user(name, &String::from_utf8_lossy(&passwd)).ok() })
}

/// Returns the numbers of the groups that name a user: group(5).
pub fn groups_of(user: &str) -> Vec<u32> {
    groups_naming(&read("/etc/group"), user)
}

fn groups_naming(all: &str, user: &str) -> Vec<u32> {
    let group = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, number, members] = fields[..] else { return None };
        members.split(',').find(|member| *member == user).and_then(|_| number.parse().ok())
    };
    all.lines().filter_map(group).collect()
}

/// Returns an empty text for a file that cannot be read: then only numbers are known.
fn read(path: &str) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn user(text: &str, passwd: &str) -> Result<User, (String, Option<String>)> {
    let lines = passwd.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, _, home, ..] = fields[..] else { return None };
        Some((name, uid.parse().ok()?, gid.parse().ok()?, home))
    });
    let number: Option<u32> = text.parse().ok();
    let mut known = lines.filter(|(name, uid, ..)| *name == text || Some(*uid) == number);
    match (known.next(), number) {
        (Some((_, uid, gid, home)), _) => Ok(User { name: text.to_owned(), uid, gid, home: home.into() }),
        (None, Some(uid)) => Ok(User { name: text.to_owned(), uid, gid: uid, home: "/".into() }),
        (None, None) => Err((format!("there is no user {text}"), None)),
    }
}

fn group(text: &str, groups: &str) -> Result<Group, (String, Option<String>)> {
    let named = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(text)).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    match named.or_else(|| text.parse().ok()) {
        Some(gid) => Ok(Group { name: text.to_owned(), gid }),
        None => Err((format!("there is no group {text}"), None)),
    }
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
    fn a_file_of_accounts_that_cannot_be_read_is_named() {
        assert_eq!(unreadable("/etc/passwd"), None);
        let (why, help) = unreadable("/nonexistent/passwd").unwrap();
        assert!(why.starts_with("read /nonexistent/passwd: No such file") && help.is_some(), "{why}");
    }

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\nbad line\nvmail:x:150:8:Mail:/var/vmail:/bin/false\n";

    #[test]
    fn a_user_has_a_name_or_a_number() {
        let vmail = user("vmail", PASSWD).unwrap();
        assert_eq!((vmail.uid, vmail.gid, &*vmail.home.to_string_lossy()), (150, 8, "/var/vmail"));
        let by_number = user("150", PASSWD).unwrap();
        assert_eq!((by_number.uid, by_number.gid), (150, 8));
        assert_eq!(user("4711", PASSWD).unwrap().gid, 4711);
        assert!(user("nobody", PASSWD).is_err() && user("", PASSWD).is_err() && user("-1", PASSWD).is_err());
    }

    #[test]
    fn a_users_groups_are_those_that_name_it() {
        let all = "root:x:0:\nmail:x:8:bob,postrider\nbad line\nbobs:x:9:bobby\ntls:x:10:postrider\n";
        assert_eq!(groups_naming(all, "postrider"), [8, 10]);
        assert!(groups_naming(all, "nobody").is_empty());
    }

    #[test]
    fn a_group_has_a_name_or_a_number() {
        let groups = "root:x:0:\nmail:x:8:joe,ann\n";
        assert_eq!((group("mail", groups).unwrap().gid, group("77", groups).unwrap().gid), (8, 77));
        assert!(group("users", groups).is_err());
    }
}
