//! Values of the keys for notifications, and the files of their texts.

use crate::{
    settings::Notifications,
    value::{Context, Found, Value, text, text_value},
};
use mail::{Domain, Mailbox};
use report::texts::{Language, TemplateError, Texts};
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

/// A language, as in `Content-Language` (RFC 5646): `de`, `pt-br`. In lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanguageCode(pub String);

text_value!(
    LanguageCode,
    "a language",
    "a language such as \"en\", \"de\" or \"pt-br\"",
    |text, _| {
        let is_part =
            |part: &str| (1..=8).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric());
        if !text.split('-').all(is_part) || text.len() > 32 {
            return Err(("not the code of a language".to_owned(), None));
        }
        Ok(LanguageCode(text.to_ascii_lowercase()))
    },
    |code| code.0.clone()
);

/// Senders that a key is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SenderPattern {
    /// `news@example.com`.
    Address(Mailbox),
    /// `@example.com`, as [`Domain::key`] gives the domain.
    Domain(String),
}

text_value!(
    SenderPattern,
    "a sender",
    "\"news@example.com\", or \"@example.com\" for a whole domain",
    |text, _| match text.strip_prefix('@').map(Domain::parse) {
        Some(Ok(domain)) => Ok(SenderPattern::Domain(domain.key().into_owned())),
        Some(Err(error)) => Err((error.to_string(), None)),
        None => Mailbox::parse(text, true).map(SenderPattern::Address).map_err(|e| (e.to_string(), None)),
    },
    |pattern| match pattern {
        SenderPattern::Address(mailbox) => mailbox.to_string(),
        SenderPattern::Domain(domain) => format!("@{domain}"),
    }
);

impl SenderPattern {
    /// Returns whether the pattern is for this sender.
    pub fn matches(&self, sender: &Mailbox) -> bool {
        match self {
            Self::Domain(domain) => sender.domain().key() == *domain,
            Self::Address(address) => {
                let is_same_user = address.local_unquoted().eq_ignore_ascii_case(&sender.local_unquoted());
                is_same_user && address.domain().key() == sender.domain().key()
            }
        }
    }
}

/// The reason why the texts of notifications cannot be used.
#[derive(Debug)]
pub enum TextsError {
    /// Neither the program nor a file has this language.
    Unknown(String),
    /// A file cannot be read.
    Io(PathBuf, io::Error),
    /// A file has a fault.
    Template(PathBuf, TemplateError),
}

impl fmt::Display for TextsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(code) => write!(f, "there are no texts in the language `{code}`"),
            Self::Io(path, error) => write!(f, "read {}: {error}", path.display()),
            Self::Template(path, error) => write!(f, "{}:{error}", path.display()),
        }
    }
}

impl std::error::Error for TextsError {}

impl Notifications {
    /// Returns the texts in the configured languages.
    ///
    /// # Errors
    /// There are no texts in a language, or a file cannot be used.
    pub fn texts(&self) -> Result<Texts, TextsError> {
        let read = |code: &LanguageCode| language(&code.0, self.templates.as_deref());
        self.languages.iter().map(read).collect::<Result<_, _>>().map(Texts::new)
    }
}

fn language(code: &str, templates: Option<&Path>) -> Result<Language, TextsError> {
    if let Some(directory) = templates {
        let path = directory.join(format!("{code}.txt"));
        match fs::read_to_string(&path) {
            Ok(text) => {
                return Language::parse(code, &text).map_err(|error| TextsError::Template(path, error));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && directory.is_dir() => {}
            Err(error) => return Err(TextsError::Io(path, error)),
        }
    }
    Language::embedded(code).ok_or_else(|| TextsError::Unknown(code.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_an_address_or_a_domain() {
        let mailbox = |text: &str| Mailbox::parse(text, true).unwrap();
        let domain = SenderPattern::Domain("b.test".to_owned());
        let address = SenderPattern::Address(mailbox("news@b.test"));
        assert!(domain.matches(&mailbox("x@B.test")) && !domain.matches(&mailbox("x@a.b.test")));
        assert!(address.matches(&mailbox("News@b.test")) && !address.matches(&mailbox("x@b.test")));
    }
}
