//! Problems of a configuration, shown where they stand.

use crate::sources::Sources;
use annotate_snippets::{AnnotationKind, Group, Level, Message, Renderer, Snippet};
pub(crate) use rewrite::line_and_column;
use std::{fmt, ops::Range, path::Path};

/// Kinds of problems. Their words are stable: programs compare them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The file cannot be read, or is no UTF-8.
    File,
    /// The file is not TOML, is empty, or is the configuration of another server.
    Syntax,
    /// A key or a section that does not exist.
    UnknownKey,
    /// A key or a section that has a new name.
    FormerName,
    /// A required key is missing.
    MissingKey,
    /// A value of the wrong type or form.
    Value,
    /// Values that do not fit together, or that this machine does not permit.
    Conflict,
    /// A map, or a file that a value names, cannot be used.
    Map,
}

impl Code {
    /// Returns the word for programs, such as `unknown-key`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Syntax => "syntax",
            Self::UnknownKey => "unknown-key",
            Self::FormerName => "former-name",
            Self::MissingKey => "missing-key",
            Self::Value => "value",
            Self::Conflict => "conflict",
            Self::Map => "map",
        }
    }
}

/// A problem of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The kind of problem, for programs.
    pub code: Code,
    /// The problem, in a sentence.
    pub what: String,
    /// A description of the place, in a few words.
    pub label: String,
    /// Advice: the correct form.
    pub help: Option<String>,
    /// Bytes of the source it is about; none when the file itself is the problem.
    pub span: Option<Range<usize>>,
}

/// Everything that is wrong with one configuration, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems {
    sources: Sources,
    list: Vec<Problem>,
}

impl Problems {
    pub(crate) fn new(path: &Path, source: &str, list: Vec<Problem>) -> Self {
        Self::of(&Sources::one(path, source), list)
    }

    pub(crate) fn of(sources: &Sources, mut list: Vec<Problem>) -> Self {
        list.sort_by_key(|p| p.span.clone().map_or((0, 0), |s| (s.start, s.end)));
        list.dedup();
        Self { sources: sources.clone(), list }
    }

    /// The file, or the name of the embedded default.
    pub fn path(&self) -> &Path {
        self.sources.path()
    }

    /// The file of a problem: the file itself, or one of `conf.d`.
    pub fn file_of(&self, problem: &Problem) -> &Path {
        problem.span.as_ref().map_or(self.path(), |span| self.sources.file_at(span.start).0)
    }

    /// Each problem.
    pub fn list(&self) -> &[Problem] {
        &self.list
    }

    /// Line and column of a problem, both from 1; the column counts characters.
    pub fn place(&self, problem: &Problem) -> Option<(usize, usize)> {
        problem.span.as_ref().map(|span| self.sources.place(span.start))
    }

    /// Returns the first problem with its place, and the number of others, in one line.
    pub fn summary(&self) -> String {
        let Some(first) = self.list.first() else { return self.path().display().to_string() };
        let path = self.file_of(first).display();
        let place = self.place(first).map(|(line, column)| format!(":{line}:{column}")).unwrap_or_default();
        let more = match self.list.len() - 1 {
            0 => String::new(),
            1 => " (and 1 more problem)".to_owned(),
            count => format!(" (and {count} more problems)"),
        };
        let what = first.what.replace('\n', " ");
        format!("{path}{place}: {what}{more}")
    }

    /// Formats the problems as text for a terminal (`colour`) or a log.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let mut out = String::new();
        for problem in &self.list {
            out.push_str(&self.render_one(&renderer, problem));
            out.push_str("\n\n");
        }
        let count = self.list.len();
        let plural = if count == 1 { "problem" } else { "problems" };
        let mut files: Vec<_> = self.list.iter().map(|problem| self.file_of(problem)).collect();
        files.dedup();
        let (file, others) = match files[..] {
            [one] => (one, ""),
            _ => (self.path(), " and its conf.d"),
        };
        out.push_str(&format!("{}{others}: {count} {plural}", file.display()));
        // The renderer leaves these as they are; in some terminals U+009B begins a command.
        out.replace(|c| matches!(c, '\u{80}'..='\u{9f}'), "\u{fffd}")
    }

    fn render_one(&self, renderer: &Renderer, problem: &Problem) -> String {
        let mut group = Level::ERROR.primary_title(problem.what.as_str()).elements(None::<Message<'_>>);
        if let Some(span) = problem.span.clone() {
            let (path, text, start) = self.sources.file_at(span.start);
            let (path, span) = (path.to_string_lossy().into_owned(), inside(text, &span, start));
            let annotation = AnnotationKind::Primary.span(span).label(problem.label.as_str());
            group = group.element(Snippet::source(text).path(path).annotation(annotation));
        }
        if let Some(help) = &problem.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        renderer.render(&[group] as &[Group<'_>])
    }
}

/// A span of all files in the text of its file, cut to it and widened to whole characters, so that showing cannot fail.
fn inside(text: &str, span: &Range<usize>, from: usize) -> Range<usize> {
    let mut start = (span.start - from.min(span.start)).min(text.len());
    let mut end = (span.end - from.min(span.end)).clamp(start, text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    while !text.is_char_boundary(end) {
        end += 1;
    }
    start..end
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_without_a_good_place_is_shown_all_the_same() {
        for (source, span) in
            [("", Some(0..0)), ("", None), ("é", Some(1..1)), ("a\n", Some(5..9)), ("a", Some(1..1))]
        {
            let problem = Problem {
                code: Code::Value,
                what: "wrong".to_owned(),
                label: "here".to_owned(),
                help: None,
                span,
            };
            let problems = Problems::new(Path::new("f"), source, vec![problem]);
            for colour in [false, true] {
                assert!(problems.render(colour).contains("wrong"), "{source:?}");
            }
        }
    }

    #[test]
    fn nothing_that_is_shown_commands_a_terminal() {
        let span = Some(0..1);
        let problem = Problem {
            code: Code::Value,
            what: "wrong".to_owned(),
            label: "here".to_owned(),
            help: None,
            span,
        };
        let shown =
            Problems::new(Path::new("f"), "a = \"\u{9b}2J\u{1b}[2J\u{7}\"\n", vec![problem]).render(false);
        assert!(shown.contains("2J") && !shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
    }

    #[test]
    fn lines_and_columns_count_from_one_and_in_characters() {
        assert_eq!(line_and_column("ab\nécd", 6), (2, 3));
        assert_eq!(line_and_column("", 0), (1, 1));
        assert_eq!(line_and_column("a\n", 99), (2, 1));
    }
}
