//! `master.cf`: services with their overrides.

use super::main_cf::{closing, logical_lines};

/// A line of `master.cf` with those that continue it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// `smtp`, `10025`, `127.0.0.1:submission`, or the name of a socket.
    pub name: String,
    /// `inet`, `unix`, `pass` and so on.
    pub kind: String,
    /// The program with its first arguments.
    pub command: Vec<String>,
    /// `-o name=value`.
    pub overrides: Vec<(String, String)>,
    /// Counted from 1.
    pub line: usize,
    /// It runs in a chroot: the column says `y`.
    pub is_chrooted: bool,
}

impl Service {
    /// Returns the program, such as `smtpd`.
    pub fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }
}

/// What `master.cf` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MasterCf {
    /// In the order of the file.
    pub services: Vec<Service>,
    /// Lines that are no services.
    pub faults: Vec<(usize, String)>,
}

impl MasterCf {
    /// Reads the file; bytes that are no UTF-8 are replaced.
    pub fn parse(file: &[u8]) -> Self {
        let text = String::from_utf8_lossy(file);
        let mut master = Self::default();
        for (line, text) in logical_lines(&text) {
            let words = words(&text);
            if words.len() < 8 {
                master.faults.push((line, text));
                continue;
            }
            let (mut command, mut overrides) = (Vec::new(), Vec::new());
            let mut rest = words[7..].iter();
            while let Some(word) = rest.next() {
                let given = match word.strip_prefix("-o") {
                    Some("") => rest.next().map(String::as_str),
                    Some(attached) if !command.is_empty() => Some(attached),
                    _ => None,
                };
                match given.and_then(|given| given.split_once('=')) {
                    Some((name, value)) => overrides.push((name.trim().to_owned(), value.trim().to_owned())),
                    None => command.push(word.clone()),
                }
            }
            let (name, kind, is_chrooted) = (words[0].clone(), words[1].clone(), words[4] == "y");
            master.services.push(Service { name, kind, command, overrides, line, is_chrooted });
        }
        master
    }
}

/// Cuts a line at blanks. `{ … }` is one word, without its braces.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut rest) = (Vec::new(), text.trim());
    while !rest.is_empty() {
        // A value in braces may have others in it: tables that stand in place.
        let end = match rest.starts_with('{').then(|| closing(rest, '}')).flatten() {
            Some(at) => {
                words.push(rest[1..at].trim().to_owned());
                at + 1
            }
            None => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                words.push(rest[..end].to_owned());
                end
            }
        };
        rest = rest[end..].trim_start();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_have_overrides_in_all_forms() {
        let master = MasterCf::parse(
            b"smtp inet n - y - - smtpd\n# c\nsubmission inet n - y - - smtpd\n  -o a=b\n  -oc=d -o { e = f inline:{{g = h}} }\n  -v\nbad\n",
        );
        let [smtp, submission] = &master.services[..] else { panic!("two services") };
        assert_eq!((smtp.program(), smtp.overrides.len()), ("smtpd", 0));
        let overrides: Vec<_> = submission.overrides.iter().map(|(a, b)| (&**a, &**b)).collect();
        assert_eq!(overrides, [("a", "b"), ("c", "d"), ("e", "f inline:{{g = h}}")]);
        assert_eq!(submission.command, ["smtpd", "-v"]);
        assert_eq!(master.faults, [(7, "bad".to_owned())]);
    }
}
