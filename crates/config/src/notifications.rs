//! Values of the keys for notifications, and the files of their texts.

use crate::{
    settings::Notifications,
    state_file::read_regular_file,
    value::{Context, Found, Value, text, text_value},
};
use report::texts::{Language, TemplateError, Texts};
use std::{
    fmt, io,
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
    /// There are no texts in a language, or a file cannot be used: all faults of all files.
    pub fn texts(&self) -> Result<Texts, Vec<TextsError>> {
        let (mut languages, mut faults) = (Vec::new(), Vec::new());
        for code in &self.languages {
            match language(&code.0, self.templates.as_deref()) {
                Ok(language) => languages.push(language),
                Err(more) => faults.extend(more),
            }
        }
        if faults.is_empty() { Ok(Texts::new(languages)) } else { Err(faults) }
    }
}

/// No template is larger.
const TEMPLATE_BYTES_MAX: u64 = 1 << 20;

fn language(code: &str, templates: Option<&Path>) -> Result<Language, Vec<TextsError>> {
    if let Some(directory) = templates {
        let path = directory.join(format!("{code}.txt"));
        match read_regular_file(&path, TEMPLATE_BYTES_MAX) {
            Ok(file) => {
                let of_file = |error| TextsError::Template(path.clone(), error);
                return Language::parse(code, file).map_err(|all| all.into_iter().map(of_file).collect());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && directory.is_dir() => {}
            Err(error) => return Err(vec![TextsError::Io(path, error)]),
        }
    }
    Language::embedded(code).ok_or_else(|| vec![TextsError::Unknown(code.to_owned())])
}
