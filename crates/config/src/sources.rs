//! The text of a configuration: the file, and those of the folder beside it, which are read as if their sections stood in the file.
//!
//! All texts stand one after the other in one text, and positions count from its beginning. Each file is parsed behind as many
//! newlines as there are octets before it, so that the parser's positions are those of the whole text.

use crate::{
    load::syntax_problem,
    problem::{Code, Problem, Problems, line_and_column},
};
use std::{
    ffi::OsStr,
    fs,
    ops::Range,
    path::{Path, PathBuf},
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// The folder of further files, beside `postrider.toml`; beside another file, that of a second instance, its name is in front:
/// `lists.conf.d` beside `lists.toml`.
const FOLDER: &str = "conf.d";
/// The file to which the folder without a name belongs.
const USUAL_NAME: &str = "postrider.toml";

/// The texts of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sources {
    /// The files with the position where each begins; at least one.
    files: Vec<(PathBuf, usize)>,
    text: String,
    /// Of each file, behind newlines.
    padded: Vec<String>,
}

impl Sources {
    /// Takes one text.
    pub(crate) fn one(path: &Path, text: &str) -> Self {
        Self { files: vec![(path.to_owned(), 0)], text: text.to_owned(), padded: vec![text.to_owned()] }
    }

    /// Reads a file, and those of its folder in the order of their names.
    pub(crate) fn read(path: &Path) -> Result<Self, Problems> {
        let mut sources = Self::one(path, &crate::load::source_of(path)?);
        for file in further(path)? {
            let text = crate::load::source(&file, true)?;
            if !sources.text.ends_with('\n') {
                sources.text.push('\n');
            }
            let start = sources.text.len();
            sources.padded.push("\n".repeat(start) + &text);
            sources.text += &text;
            sources.files.push((file, start));
        }
        Ok(sources)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the main file.
    pub(crate) fn path(&self) -> &Path {
        self.files.first().map_or(Path::new(""), |(path, _)| path)
    }

    /// Returns the file of a position, its text, and where it begins.
    pub(crate) fn file_at(&self, at: usize) -> (&Path, &str, usize) {
        let number = self.files.partition_point(|(_, start)| *start <= at).saturating_sub(1);
        let Some((path, start)) = self.files.get(number) else { return (Path::new(""), &self.text, 0) };
        let end = self.files.get(number + 1).map_or(self.text.len(), |(_, next)| *next);
        (path, &self.text[*start..end], *start)
    }

    /// Returns line and column in the file of a position, both from 1.
    pub(crate) fn place(&self, at: usize) -> (usize, usize) {
        let (_, text, start) = self.file_at(at);
        line_and_column(text, at - start)
    }

    /// Parses all files into one table, and notes what is not TOML, or set twice.
    pub(crate) fn parse(&self) -> (DeTable<'_>, Vec<Problem>) {
        let (mut root, mut problems) = (DeTable::new(), Vec::new());
        for text in &self.padded {
            let (table, errors) = DeTable::parse_recoverable(text);
            problems.extend(errors.iter().map(syntax_problem));
            self.merge(&mut root, table.into_inner(), &mut problems);
        }
        (root, problems)
    }

    /// Adds the keys of another file: sections join, repeated sections follow those that are there.
    fn merge<'t>(&self, root: &mut DeTable<'t>, other: DeTable<'t>, problems: &mut Vec<Problem>) {
        for (key, value) in other {
            let Some(known) = root.get_mut(&key) else {
                root.insert(key, value);
                continue;
            };
            let (span, new) = (value.span(), value.into_inner());
            match (known.get_mut(), new) {
                (DeValue::Table(known), DeValue::Table(new)) => self.merge(known, new, problems),
                (DeValue::Array(known), DeValue::Array(new)) if of_tables(known) && of_tables(&new) => {
                    new.into_iter().for_each(|item| known.push(item));
                }
                _ => problems.push(self.twice(key.get_ref(), key.span(), known.span(), &span)),
            }
        }
    }

    fn twice(&self, key: &str, at: Range<usize>, known: Range<usize>, value: &Range<usize>) -> Problem {
        let (file, ..) = self.file_at(known.start);
        let (line, _) = self.place(known.start);
        // A section has no place of its own in the parser's table.
        let span = if at.is_empty() { value.clone() } else { at };
        Problem {
            code: Code::Conflict,
            what: format!("`{key}` is set twice"),
            label: format!("also in {}:{line}", file.display()),
            help: Some(
                "keep one of the two; further files add keys and sections, and replace none".to_owned(),
            ),
            span: Some(span),
        }
    }
}

fn of_tables(array: &toml::de::DeArray<'_>) -> bool {
    array.iter().all(|item: &Spanned<DeValue<'_>>| item.get_ref().is_table())
}

/// Returns the folder of the further files of a configuration file.
fn folder_of(path: &Path) -> PathBuf {
    if path.file_name() == Some(OsStr::new(USUAL_NAME)) {
        return path.with_file_name(FOLDER);
    }
    path.with_extension(FOLDER)
}

/// Returns the `*.toml` files of the folder of a file, sorted by name. Hidden files are left out: editors make them.
pub(crate) fn further(path: &Path) -> Result<Vec<PathBuf>, Problems> {
    let folder = folder_of(path);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            let what = format!("read {}: {error}", folder.display());
            let help = Some("let this user list the folder, or remove it".to_owned());
            let problem = Problem { code: Code::File, what, label: String::new(), help, span: None };
            return Err(Problems::new(path, "", vec![problem]));
        }
    };
    let is_read = |file: &PathBuf| {
        let is_hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        file.extension() == Some(OsStr::new("toml")) && !is_hidden
    };
    let mut files: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_read).collect();
    files.sort_unstable();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use crate::{Code, Purpose, load_with_origins};
    use std::{fs, path::Path};

    fn write(dir: &Path, files: &[(&str, &str)]) -> std::path::PathBuf {
        fs::create_dir_all(dir.join("conf.d")).unwrap();
        files.iter().for_each(|(name, text)| fs::write(dir.join(name), text).unwrap());
        dir.join("postrider.toml")
    }

    #[test]
    fn files_of_the_folder_add_keys_and_sections() {
        let dir = tempfile::tempdir().unwrap();
        let file = write(
            dir.path(),
            &[
                // Without its last newline.
                (
                    "postrider.toml",
                    "hostname = \"mx.test\"\n[queue]\nexpire = \"3d\"\n[[route]]\ndomains = [\"a.test\"]\nreject = \"550 5.1.1 no\"",
                ),
                ("conf.d/20-more.toml", "[[route]]\ndomains = [\"c.test\"]\nreject = \"550 5.1.1 no\"\n"),
                (
                    "conf.d/10-first.toml",
                    "data_dir = \"data\"\n[queue]\n\nretry_min = \"7m\"\n[[route]]\ndomains = [\"b.test\"]\nreject = \"550 5.1.1 no\"\n",
                ),
                ("conf.d/.hidden.toml", "hostname = 1\n"),
                ("conf.d/notes.txt", "not TOML"),
            ],
        );
        let loaded =
            load_with_origins(Some(&file), Purpose::Ask).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(loaded.settings.data_dir, dir.path().join("data"));
        let domains: Vec<String> = loaded
            .settings
            .routes
            .iter()
            .flat_map(|route| route.domains.iter().map(ToString::to_string))
            .collect();
        assert_eq!(domains[..3], ["a.test", "b.test", "c.test"]);
        let shown = loaded.as_toml();
        let line = shown.lines().find(|line| line.starts_with("retry_min = ")).unwrap();
        assert!(line.ends_with("conf.d/10-first.toml:4"), "{line}");
        let line = shown.lines().find(|line| line.starts_with("expire = ")).unwrap();
        assert!(line.ends_with("postrider.toml:3"), "{line}");
    }

    #[test]
    fn problems_name_the_file_in_which_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let ours = "data_dir = \"data\"\n[queue]\nexpire = 7.5\n";
        let theirs = "[queue]\nretry_min = false\n";
        let told = |main: &str, further: &str| {
            let file = write(dir.path(), &[("postrider.toml", main), ("conf.d/20.toml", further)]);
            load_with_origins(Some(&file), Purpose::Ask).unwrap_err().to_string()
        };
        assert!(told("", theirs).ends_with("conf.d/20.toml: 1 problem"));
        assert!(told(ours, "").ends_with("/postrider.toml: 1 problem"));
        assert!(told(ours, theirs).ends_with("/postrider.toml and its conf.d: 2 problems"));
        fs::create_dir(dir.path().join("conf.d/30.toml")).unwrap();
        let text = told("", "");
        assert!(
            text.contains("conf.d/30.toml: Is a directory") && text.contains("only files are read here"),
            "{text}"
        );
    }

    #[test]
    fn a_second_instance_has_a_folder_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &[("postrider.toml", ""), ("conf.d/a.toml", "[queue]\nexpire = \"3d\"\n")]);
        fs::create_dir(dir.path().join("lists.conf.d")).unwrap();
        fs::write(dir.path().join("lists.conf.d/a.toml"), "[queue]\nretry_min = \"7m\"\n").unwrap();
        fs::write(dir.path().join("lists.toml"), "data_dir = \"lists\"\n").unwrap();
        let shown = |name: &str| {
            let loaded = load_with_origins(Some(&dir.path().join(name)), Purpose::Ask);
            loaded.unwrap_or_else(|problems| panic!("{problems}")).as_toml()
        };
        let has =
            |name: &str| ["expire", "retry_min"].map(|key| shown(name).contains(&format!("\n{key} = ")));
        let from_file = |name: &str| {
            let text = shown(name);
            ["conf.d/a.toml:2", "lists.conf.d/a.toml:2"].map(|place| text.contains(&format!("/{place}")))
        };
        assert_eq!((has("postrider.toml"), has("lists.toml")), ([true; 2], [true; 2]));
        assert_eq!((from_file("postrider.toml"), from_file("lists.toml")), ([true, false], [false, true]));
    }

    #[test]
    fn a_rule_of_a_further_file_is_named_with_the_file() {
        let rule = |n: u32| format!("[[rule]]\nto = [\"u{n}@mx.test\"]\nreject = true\n");
        let dir = tempfile::tempdir().unwrap();
        let first = format!("hostname = \"mx.test\"\n{}", rule(1));
        let named = rule(3) + "name = \"three\"\n";
        let file = write(
            dir.path(),
            &[("postrider.toml", &first), ("conf.d/a.toml", &format!("{}\n{named}", rule(2)))],
        );
        let loaded =
            load_with_origins(Some(&file), Purpose::Ask).unwrap_or_else(|problems| panic!("{problems}"));
        let places: Vec<String> =
            loaded.settings.rules.program.rules().iter().take(3).map(policy::Rule::place).collect();
        assert_eq!(
            places,
            ["rule 1, line 2", "rule 2 of a.toml, line 1", "rule \"three\" of a.toml, line 5"]
        );
    }

    #[test]
    fn a_problem_is_shown_in_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = write(
            dir.path(),
            &[
                ("postrider.toml", "hostname = \"mx.test\"\n"),
                ("conf.d/a.toml", "# é\n[queue]\nexpire = true\n"),
            ],
        );
        let problems = load_with_origins(Some(&file), Purpose::Ask).unwrap_err();
        let problem = &problems.list()[0];
        assert_eq!(problems.place(problem), Some((3, 10)));
        assert!(problems.file_of(problem).ends_with("conf.d/a.toml"));
        let shown = problems.render(false);
        assert!(shown.contains("conf.d/a.toml:3:10") && shown.contains("3 | expire = true"), "{shown}");
    }

    #[test]
    fn a_key_in_two_files_is_an_error_that_names_both() {
        let dir = tempfile::tempdir().unwrap();
        let file = write(
            dir.path(),
            &[
                ("postrider.toml", "hostname = \"mx.test\"\n"),
                ("conf.d/a.toml", "\nhostname = \"b.test\"\n[queue]\nexpires = \"3d\"\n"),
            ],
        );
        let problems = load_with_origins(Some(&file), Purpose::Ask).unwrap_err();
        assert_eq!(problems.list().len(), 2, "the unknown key is reported at once: {problems}");
        let problem = &problems.list()[0];
        assert_eq!((problem.code, problems.place(problem)), (Code::Conflict, Some((2, 1))));
        assert!(problem.label.ends_with("postrider.toml:1"), "{}", problem.label);
    }
}
