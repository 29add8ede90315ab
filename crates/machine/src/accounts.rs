//! Users and groups of this machine: those of `/etc/passwd` and `/etc/group`, and those of the other services that
//! `/etc/nsswitch.conf` names, such as SSSD, LDAP and systemd.
//!
//! The files are asked first. Only for what they lack is `getent` run, and only if a service other than `files` and `compat` is
//! named. A process that may not run programs asks another one ([`ask_through`]).

mod getent;
mod nsswitch;

pub use nsswitch::services_in;

use serde::{Deserialize, Serialize};
use std::{
    fmt, fs, io,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
};

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";
/// LOGIN_NAME_MAX of Linux, without the NUL.
const NAME_MAX: usize = 255;

/// A user, as passwd(5) has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name with which the user logs in, such as `joe`.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Id of the user's own group.
    pub gid: u32,
    /// Such as `Bob Smith`; may be empty.
    pub full_name: String,
    /// Absolute path of the home directory, where `.forward` is.
    pub home: PathBuf,
}

/// A group, as group(5) has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Such as `mail`.
    pub name: String,
    /// Group id.
    pub gid: u32,
}

/// A look-up that failed: whether there is such a user or group is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// `/etc/passwd` or `/etc/group` cannot be read.
    File(String),
    /// A service behind the files does not answer, or `getent` cannot be run.
    Service(String),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::File(why) | Self::Service(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for Failed {}

/// The answer to a question: none if there is no such user or group.
pub type Looked<T> = Result<Option<T>, Failed>;

/// A question to the services behind the files. The answer is a line of `getent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// The user with this name.
    User(String),
    /// The user with this number.
    UserId(u32),
    /// The group with this name.
    Group(String),
    /// The group with this number.
    GroupId(u32),
    /// The groups that have the user with this name as a member.
    GroupsOf(String),
}

impl Question {
    /// The database of `/etc/nsswitch.conf`.
    fn database(&self) -> &'static str {
        match self {
            Self::User(_) | Self::UserId(_) => "passwd",
            Self::Group(_) | Self::GroupId(_) => "group",
            Self::GroupsOf(_) => "initgroups",
        }
    }

    /// Returns what `getent` looks up; none for a name that no user and no group can have.
    fn key(&self) -> Option<String> {
        let name = match self {
            Self::UserId(id) | Self::GroupId(id) => return Some(id.to_string()),
            Self::User(name) | Self::Group(name) | Self::GroupsOf(name) => name,
        };
        is_name(name).then(|| name.clone())
    }
}

/// Returns whether a user or a group can have this name. What looks like a number or an option is none.
pub fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && !name.starts_with(['-', '+', ' '])
        && !name.bytes().all(|b| b.is_ascii_digit())
        && !name.contains(|c: char| c.is_control() || c == ':' || c == '/')
}

type Ask = Arc<dyn Fn(&Question) -> Looked<String> + Send + Sync>;

/// Whom this process asks instead of `getent`.
static OTHER: RwLock<Option<Ask>> = RwLock::new(None);

/// From now on this process asks like this instead of running `getent`, which its sandbox forbids. None: it runs `getent` again.
pub fn ask_through(ask: Option<Ask>) {
    *OTHER.write().unwrap_or_else(PoisonError::into_inner) = ask;
}

/// Returns the services behind the files that can answer here, each with its state: the reason if it does not answer. Runs `getent`.
pub fn check_services() -> Vec<(String, Result<(), String>)> {
    let services = nsswitch::services("passwd").into_iter().filter(|service| nsswitch::is_set_up(service));
    services.map(|service| (service.clone(), getent::check(&service, "passwd"))).collect()
}

/// Looks up what the files of this process do not have, or what it cannot read any more: in another process, if there is one to ask.
/// Blocks for some seconds at most.
///
/// # Errors
/// A service does not answer.
pub fn ask(question: &Question) -> Looked<String> {
    if question.key().is_none() {
        return Ok(None);
    }
    let other = OTHER.read().unwrap_or_else(PoisonError::into_inner).clone();
    other.map_or_else(|| ask_services(question), |ask| ask(question))
}

/// Returns whether this process asks another one.
pub fn asks_another() -> bool {
    OTHER.read().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Looks a line up for another process: in the files, and then in the services behind them.
///
/// # Errors
/// A file cannot be read, or a service does not answer.
pub fn look_up(question: &Question) -> Looked<String> {
    let line = match question {
        Question::User(name) => line_of(PASSWD, user_of_line, |user| user.name == *name),
        Question::UserId(uid) => line_of(PASSWD, user_of_line, |user| user.uid == *uid),
        Question::Group(name) => line_of(GROUP, group_of_line, |group| group.name == *name),
        Question::GroupId(gid) => line_of(GROUP, group_of_line, |group| group.gid == *gid),
        Question::GroupsOf(_) => Ok(None),
    };
    match line? {
        None => ask_services(question),
        line => Ok(line),
    }
}

/// Looks up what the files do not have.
fn ask_services(question: &Question) -> Looked<String> {
    if question.key().is_some() && is_asked(question) { getent::ask(question) } else { Ok(None) }
}

fn line_of<T>(path: &str, parse: fn(&str) -> Option<T>, is_it: impl Fn(&T) -> bool) -> Looked<String> {
    Ok(read(path)?.lines().find(|line| parse(line).is_some_and(|found| is_it(&found))).map(str::to_owned))
}

fn is_asked(question: &Question) -> bool {
    nsswitch::has_services(question.database())
}

/// Asks for what a file does not have. Another process may read a file that this one may not.
fn behind<T>(in_file: Looked<T>, question: &Question, parse: fn(&str) -> Option<T>) -> Looked<T> {
    match in_file {
        Ok(None) if is_asked(question) => parsed(ask(question)?, parse),
        Err(_) if asks_another() => parsed(ask(question)?, parse),
        in_file => in_file,
    }
}

/// Returns the user with this name in the file, without asking services: none if a service could have it.
///
/// # Errors
/// The file cannot be read.
pub fn user_named_in_file(name: &str) -> Looked<User> {
    in_file(PASSWD, user_of_line, |user| user.name == name)
}

/// Returns the user with this number in the file, without asking services.
///
/// # Errors
/// The file cannot be read.
pub fn user_numbered_in_file(uid: u32) -> Looked<User> {
    in_file(PASSWD, user_of_line, |user| user.uid == uid)
}

/// Returns whether services are asked for a user whom the file lacks.
pub fn has_services(name: &str) -> bool {
    let question = Question::User(name.to_owned());
    question.key().is_some() && is_asked(&question)
}

/// Finds a user by name; a number is not taken for one.
///
/// # Errors
/// Whether there is one is not known.
pub fn user_named(name: &str) -> Looked<User> {
    behind(user_named_in_file(name), &Question::User(name.to_owned()), user_of_line)
}

/// Finds a user by number.
///
/// # Errors
/// As [`user_named`].
pub fn user_numbered(uid: u32) -> Looked<User> {
    behind(user_numbered_in_file(uid), &Question::UserId(uid), user_of_line)
}

/// Finds a group by name; a number is not taken for one.
///
/// # Errors
/// As [`user_named`].
pub fn group_named(name: &str) -> Looked<Group> {
    let in_file = in_file(GROUP, group_of_line, |group| group.name == name);
    behind(in_file, &Question::Group(name.to_owned()), group_of_line)
}

/// Finds a group by number.
///
/// # Errors
/// As [`user_named`].
pub fn group_numbered(gid: u32) -> Looked<Group> {
    let in_file = in_file(GROUP, group_of_line, |group| group.gid == gid);
    behind(in_file, &Question::GroupId(gid), group_of_line)
}

/// Returns the numbers of the groups that have a user as a member.
///
/// # Errors
/// The services with further groups do not answer. A file that cannot be read names no groups.
pub fn groups_of(user: &str) -> Result<Vec<u32>, Failed> {
    let mut groups = groups_naming(&read(GROUP).unwrap_or_default(), user);
    let question = Question::GroupsOf(user.to_owned());
    // systemd knows the groups of its own users only. Most machines have it, and mail for the others should cost them nothing.
    let services = nsswitch::services(question.database());
    let is_known = || matches!(user_named_in_file(user), Ok(Some(_)));
    if services.iter().all(|service| service == "systemd") && is_known() {
        return Ok(groups);
    }
    let line = ask(&question)?.unwrap_or_default();
    let more = line.strip_prefix(user).unwrap_or_default().split_whitespace();
    for gid in more.filter_map(|number| number.parse().ok()) {
        if !groups.contains(&gid) {
            groups.push(gid);
        }
    }
    Ok(groups)
}

fn read(path: &str) -> Result<String, Failed> {
    let failed = |e: io::Error| Failed::File(format!("read {path}: {e}"));
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).map_err(failed)
}

fn in_file<T>(path: &str, parse: fn(&str) -> Option<T>, is_it: impl Fn(&T) -> bool) -> Looked<T> {
    Ok(read(path)?.lines().filter_map(parse).find(is_it))
}

fn parsed<T>(line: Option<String>, parse: fn(&str) -> Option<T>) -> Looked<T> {
    let Some(line) = line else { return Ok(None) };
    let bad = || Failed::Service(format!("getent says {line:?}, which is neither passwd(5) nor group(5)"));
    parse(&line).map(Some).ok_or_else(bad)
}

/// Reads a line of passwd(5); none for another one, such as `+` of NIS.
pub fn user_of_line(line: &str) -> Option<User> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, gecos, home, ..] = fields[..] else { return None };
    if name.is_empty() || name.starts_with(['+', '-', '#']) {
        return None;
    }
    // The first part is the name; `&` in it stands for the login name.
    let full_name = gecos.split(',').next().unwrap_or_default().replace('&', name);
    Some(User {
        name: name.to_owned(),
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
        full_name,
        home: home.into(),
    })
}

/// Reads a line of group(5); none for another one.
fn group_of_line(line: &str) -> Option<Group> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty() && !name.starts_with(['+', '-', '#']))?;
    Some(Group { name: name.to_owned(), gid: fields.nth(1)?.parse().ok()? })
}

fn groups_naming(all: &str, user: &str) -> Vec<u32> {
    let group = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, number, members] = fields[..] else { return None };
        members.split(',').find(|member| *member == user).and_then(|_| number.parse().ok())
    };
    all.lines().filter_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_other_forms_are_no_users_and_no_groups() {
        let bob = user_of_line("bob:x:7:8:Bob & Smith,Room 1,,:/home/bob:/bin/sh").unwrap();
        assert_eq!((bob.uid, bob.gid, &*bob.full_name), (7, 8, "Bob bob Smith"));
        assert_eq!(bob.home, PathBuf::from("/home/bob"));
        for line in ["", "bad line", "+::::::", "x:x:-1:0::/:", ":x:7:7::/:", "#x:x:7:7::/:"] {
            assert_eq!(user_of_line(line), None, "{line}");
        }
        assert_eq!(group_of_line("mail:x:8:joe,ann").map(|group| group.gid), Some(8));
        for line in ["", "mail", "mail:x", "mail:x:eight:", "+:::"] {
            assert_eq!(group_of_line(line), None, "{line}");
        }
    }

    #[test]
    fn a_users_groups_are_those_that_name_it() {
        let all = "root:x:0:\nmail:x:8:bob,postrider\nbad line\nbobs:x:9:bobby\ntls:x:10:postrider\n";
        assert_eq!(groups_naming(all, "postrider"), [8, 10]);
        assert!(groups_naming(all, "nobody").is_empty());
    }

    #[test]
    fn names_that_getent_would_take_for_something_else_are_not_asked_for() {
        let key = |name: &str| Question::User(name.to_owned()).key();
        for name in ["joe", "joe.smith", "0x10", "Ärger", "joe smith", "UNI\\joe"] {
            assert_eq!(key(name).as_deref(), Some(name));
        }
        let long = "x".repeat(NAME_MAX + 1);
        for name in ["", "-s", "--help", "+7", " 7", "7", "a:b", "a\nb", "a\0b", "../x", &long] {
            assert_eq!(key(name), None, "{name:?}");
        }
        assert_eq!(Question::UserId(7).key().as_deref(), Some("7"));
    }

    #[test]
    fn root_is_a_user_and_what_has_no_name_is_none() {
        assert_eq!(user_named("root").unwrap().unwrap().uid, 0);
        assert_eq!(user_numbered(0).unwrap().unwrap().name, "root");
        assert_eq!(group_numbered(0).unwrap().unwrap().gid, 0);
        assert_eq!(user_named("0").unwrap(), None);
    }
}
