//! dist/project.toml: the addresses of the project. No other file names them, so that publication changes one file.

use crate::{
    files::read,
    shell::{Failure, root},
};
use serde::Deserialize;

/// From the root of the repository.
pub(crate) const FILE: &str = "dist/project.toml";

/// Addresses that are no secret and that change when the project moves.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Project {
    /// Address of the repository for browsers.
    pub(crate) repository: String,
    /// What follows the repository's address before the path of a file, such as `/blob/v{version}/`.
    pub(crate) file_path: String,
    /// Address of the documents as a site.
    pub(crate) site: String,
    /// Name and address, as in a Debian package.
    pub(crate) maintainer: String,
    /// Takes reports about vulnerabilities.
    pub(crate) security: String,
}

impl Project {
    pub(crate) fn load() -> Result<Self, Failure> {
        let text = read(&root().join(FILE))?;
        toml::from_str(&text).map_err(|error| Failure(format!("read {FILE}: {error}")))
    }

    /// Returns the address of a file of the repository, in this version.
    pub(crate) fn file(&self, path: &str) -> String {
        let between = self.file_path.replace("{version}", VERSION);
        format!("{}{between}{path}", self.repository)
    }

    /// Replaces `@repository@` and the others in a file of a package.
    pub(crate) fn fill(&self, text: &str) -> String {
        text.replace("@repository@", &self.repository)
            .replace("@site@", &self.site)
            .replace("@maintainer@", &self.maintainer)
            .replace("@security@", &self.security)
            .replace("@version@", VERSION)
    }
}

/// All crates of the workspace have this version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Names that stand for addresses that the project does not have yet. Spelled in halves, since this file is checked, too.
const PLACEHOLDERS: [&str; 1] = [concat!("postrider", ".example")];
/// A host from which packages are loaded; scripts ask the machine's package manager instead.
const MIRRORS: [&str; 3] =
    [concat!("deb.debian", ".org/"), concat!("archive.ubuntu", ".com/"), concat!("/artifactory", "/")];

/// Returns each placeholder outside of [`FILE`], and each address of a package mirror, as `file:line: what`.
pub(crate) fn faults(name: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let at = |what: &str| format!("{name}:{}: {what}", number + 1);
        if name != FILE {
            let found = PLACEHOLDERS.iter().find(|word| line.contains(**word));
            faults.extend(found.map(|word| at(&format!("`{word}` is a placeholder: it belongs in {FILE}"))));
        }
        let found = MIRRORS.iter().find(|word| line.contains(**word));
        faults
            .extend(found.map(|word| at(&format!("`{word}` is a package mirror: ask the package manager"))));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_complete_and_fills_texts() {
        let project = Project::load().unwrap();
        let text = project.fill("@repository@ @site@ @maintainer@ @security@ @version@");
        assert!(
            !text.contains('@')
                || text.matches('@').count() == text.matches(concat!("@", "postrider")).count()
        );
        assert!(project.file("docs/rfc.tsv").ends_with("/docs/rfc.tsv"));
        assert!(project.maintainer.contains('<') && project.maintainer.ends_with('>'));
    }

    #[test]
    fn placeholders_and_mirrors_are_found_with_their_line() {
        let placeholder = PLACEHOLDERS[0];
        assert_eq!(faults("a.md", &format!("x\nsee {placeholder}\n")).len(), 1);
        assert!(faults("a.md", &format!("x\nsee {placeholder}\n"))[0].starts_with("a.md:2: "));
        assert_eq!(faults(FILE, placeholder), [""; 0]);
        assert_eq!(faults("a.sh", &format!("deb http://{} x", MIRRORS[0])).len(), 1);
        assert_eq!(faults("a.md", "mx.example.com"), [""; 0]);
    }
}
