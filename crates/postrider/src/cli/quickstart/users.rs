//! The file of users who log in. Users that it has already stay.

use super::{CliError, Machine, cannot_write};
use accept::logins::random;
use auth::{NewScheme, PasswdFile};
use control::Exit;
use rustix::fs::OFlags;
use std::{
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, fchown},
    path::PathBuf,
};

/// Letters and digits that nobody confuses with others.
const PASSWORD_LETTERS: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz234567899";
const PASSWORD_LENGTH: usize = 20;
/// No file of users that this command has written is larger.
const USERS_BYTES_MAX: u64 = 16 << 20;

/// The file of users that is written, or added to if it exists.
pub(super) struct UsersFile {
    pub(super) path: PathBuf,
    /// The users of the file, in lower case and in the order of the file.
    pub(super) names: Vec<String>,
    exists: bool,
    /// A newline has to be written in front of new lines.
    lacks_newline: bool,
}

impl UsersFile {
    /// Reads the users who are there.
    pub(super) fn read(path: PathBuf) -> Result<Self, CliError> {
        let refused = |why: String| {
            let text = format!("{}: {why}; repair the file or move it away", path.display());
            CliError::new(Exit::CantCreate, text)
        };
        // Another kind of file, such as a FIFO, could block the read.
        let text = match fs::metadata(&path) {
            Ok(data) if data.is_file() => {
                let bytes = config::read_regular_file(&path, USERS_BYTES_MAX);
                let text = bytes.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
                text.map_err(|e| refused(e.to_string()))?
            }
            Ok(_) => return Err(refused("it is not a file".to_owned())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path, names: Vec::new(), exists: false, lacks_newline: false });
            }
            Err(e) => return Err(refused(e.to_string())),
        };
        if let Err(problems) = PasswdFile::parse(&text) {
            let first = problems.first().map(|problem| format!("line {}: {}", problem.line, problem.text));
            return Err(refused(first.unwrap_or_default()));
        }
        // In the order of the file: the first user gets the postmaster's mail.
        let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let names = lines.filter_map(|line| line.split(':').next()).map(str::to_lowercase).collect();
        let lacks_newline = !text.is_empty() && !text.ends_with('\n');
        Ok(Self { path, names, exists: true, lacks_newline })
    }

    /// Adds users with new passwords, which it returns. Only the daemon's user can read a new file.
    pub(super) fn add(
        &self,
        users: Vec<String>,
        machine: &Machine,
    ) -> Result<Vec<(String, String)>, CliError> {
        let passwords: Vec<_> = users.into_iter().map(|user| (user, new_password())).collect();
        if passwords.is_empty() {
            return Ok(passwords);
        }
        let mut text = String::new();
        if !self.exists {
            text += "# Users who may log in, a line each; `postrider auth hash NAME` prints such a line.\n";
        }
        if self.lacks_newline {
            text.push('\n');
        }
        for (user, password) in &passwords {
            let hash = NewScheme::Argon2id.hash(password, random());
            let hash = hash.map_err(|why| CliError::new(Exit::Software, why))?;
            let _ = writeln!(text, "{user}:{hash}");
        }
        let group = machine.user.filter(|_| machine.is_root && !self.exists);
        let mode = if group.is_some() { 0o640 } else { 0o600 };
        let failed = |e: io::Error| cannot_write(&self.path, &e);
        let mut options = fs::OpenOptions::new();
        options.append(true).create_new(!self.exists).mode(mode);
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let mut opened = options.open(&self.path).map_err(failed)?;
        opened.write_all(text.as_bytes()).map_err(failed)?;
        if let Some(group) = group {
            fchown(&opened, None, Some(group)).map_err(failed)?;
        }
        Ok(passwords)
    }
}

fn new_password() -> String {
    let octets: [u8; PASSWORD_LENGTH] = random();
    octets
        .iter()
        .map(|octet| char::from(PASSWORD_LETTERS[usize::from(*octet) % PASSWORD_LETTERS.len()]))
        .collect()
}
