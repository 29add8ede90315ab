//! The user who runs the command.

use machine::accounts;

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
        // A directory that does not answer now must not cost the mail of a program that runs only once.
        let known = accounts::user_numbered(uid).ok().flatten();
        let mut user = known.map_or_else(
            || Self { name: unknown(uid), full_name: String::new() },
            |user| Self { name: user.name, full_name: user.full_name },
        );
        if let Ok(name) = std::env::var("NAME") {
            user.full_name = name;
        }
        user
    }
}

/// Returns the login name of the user with this id; `None` if there is none, or if that cannot be found out now.
pub fn name(uid: u32) -> Option<String> {
    accounts::user_numbered(uid).ok().flatten().map(|user| user.name)
}

/// LOGNAME may say the name of a user whom no service knows, or of one whose directory does not answer. It is only a name; the daemon
/// has the number from the kernel.
fn unknown(uid: u32) -> String {
    let usable = |name: &String| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    std::env::var("LOGNAME").ok().filter(usable).unwrap_or_else(|| format!("uid-{uid}"))
}
