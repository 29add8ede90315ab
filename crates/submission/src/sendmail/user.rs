//! The user who runs the command.

use std::fs;

/// The names of the user who runs the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    /// Such as `root`; the number when the user has no name.
    pub(crate) name: String,
    /// Such as `Bob Smith`; may be empty.
    pub(crate) full_name: String,
}

impl User {
    /// The real user of this process. NAME in the environment is another way to say the full name.
    pub(crate) fn current() -> Self {
        let uid = rustix::process::getuid().as_raw();
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let mut user =
            find(&passwd, uid).unwrap_or_else(|| Self { name: unknown(uid), full_name: String::new() });
        if let Ok(name) = std::env::var("NAME") {
            user.full_name = name;
        }
        user
    }
}

/// Returns the login name of the user with this id; `None` if there is none.
pub fn name(uid: u32) -> Option<String> {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    find(&passwd, uid).map(|user| user.name)
}

/// A user from a directory service is not in the file: then LOGNAME may say the name. It is only
/// a name; the daemon has the number from the kernel.
fn unknown(uid: u32) -> String {
    let usable = |name: &String| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    std::env::var("LOGNAME").ok().filter(usable).unwrap_or_else(|| format!("uid-{uid}"))
}

/// The first line with this number: passwd(5).
fn find(passwd: &str, uid: u32) -> Option<User> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, number, _, gecos, ..] = fields[..] else { return None };
        if number.parse() != Ok(uid) || name.is_empty() {
            return None;
        }
        // The first part is the name; `&` in it stands for the login name.
        let full_name = gecos.split(',').next().unwrap_or_default().replace('&', name);
        Some(User { name: name.to_owned(), full_name })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_number() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nbad line\nbob:x:7:7:Bob & Smith,Room 1,,:/home/bob:/bin/sh\n";
        let bob = User { name: "bob".to_owned(), full_name: "Bob bob Smith".to_owned() };
        assert_eq!(find(passwd, 7), Some(bob));
        assert_eq!(find(passwd, 8), None);
    }
}
