//! The texts of notifications, for their readers: templates in one or several languages. Templates of English and German
//! are a part of the program; an operator can change them, or add languages.
//!
//! A file has sections, `[failed]` and so on, each with its text up to the next one. Lines that begin with `#` are
//! comments.

mod parse;
mod template;

use crate::dsn::DsnKind;
use mail::Enhanced;
use std::{collections::BTreeMap, fmt};
pub(crate) use template::{Line, Placeholder};

const ENGLISH: &str = include_str!("texts/en.txt");
const GERMAN: &str = include_str!("texts/de.txt");

/// Languages whose templates are a part of the program.
pub const LANGUAGES: [&str; 2] = ["en", "de"];

/// The texts of notifications, in the languages that each notification has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texts(Vec<Language>);

/// All templates of one language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Language {
    /// As in `Content-Language` (RFC 3282): `en`.
    code: Box<str>,
    kinds: [Notice; DsnKind::ALL.len()],
    recipient: Vec<Line>,
    /// By status, or by its first numbers.
    reasons: BTreeMap<Box<str>, Box<str>>,
}

/// Subject and text of one kind of notification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Notice {
    pub(crate) subject: Line,
    pub(crate) lines: Vec<Line>,
}

/// What is wrong in a file of templates, for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateError {
    /// Counts from 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// What is wrong, in a few words.
    pub what: String,
    /// What would be right.
    pub help: String,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.line, self.column, self.what, self.help)
    }
}

impl std::error::Error for TemplateError {}

impl Default for Texts {
    /// The English texts that are part of the program.
    fn default() -> Self {
        Self(Language::embedded("en").into_iter().collect())
    }
}

impl Texts {
    /// Texts in these languages, in the order in which a notification has them; in English if there are none.
    pub fn new(languages: Vec<Language>) -> Self {
        if languages.is_empty() { Self::default() } else { Self(languages) }
    }

    pub(crate) fn languages(&self) -> &[Language] {
        &self.0
    }
}

impl Language {
    /// The templates of this language that are a part of the program.
    pub fn embedded(code: &str) -> Option<Self> {
        let text = match code {
            "en" => ENGLISH,
            "de" => GERMAN,
            _ => return None,
        };
        // A test reads both.
        parse::language(code, text, None).ok()
    }

    /// Reads the templates in a file. Sections that the file does not have are those of the program, if the program has
    /// the language.
    ///
    /// # Errors
    /// The faults, each with its place, in the order of the file.
    pub fn parse(code: &str, file: impl AsRef<[u8]>) -> Result<Self, Vec<TemplateError>> {
        let text = parse::text(file.as_ref()).map_err(|error| vec![error])?;
        parse::language(code, text, Self::embedded(code))
    }

    pub(crate) fn code(&self) -> &str {
        &self.code
    }

    pub(crate) fn notice(&self, kind: DsnKind) -> &Notice {
        &self.kinds[kind as usize]
    }

    pub(crate) fn recipient(&self) -> &[Line] {
        &self.recipient
    }

    /// Returns the sentences about a status: those for the status itself, for its class and subject, or for its class;
    /// empty if there are none.
    pub(crate) fn reason(&self, status: Enhanced) -> &str {
        let Enhanced(class, subject, detail) = status;
        let keys = [format!("{class}.{subject}.{detail}"), format!("{class}.{subject}"), class.to_string()];
        keys.iter().find_map(|key| self.reasons.get(key.as_str())).map_or("", |reason| reason)
    }
}

#[cfg(test)]
mod tests;
