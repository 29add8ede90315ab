//! The notes of a release: its section of CHANGELOG.md, how to install each file, and how to check them.

use crate::{
    files::read,
    package::deb,
    project::{Project, VERSION},
    shell::{Done, Failure, root},
};

const CHANGELOG: &str = "CHANGELOG.md";

/// Fails unless CHANGELOG.md has a section for this version.
pub(crate) fn check() -> Done {
    section(&read(&root().join(CHANGELOG))?, VERSION).map(drop)
}

/// Returns the notes as Markdown.
pub(crate) fn text() -> Result<String, Failure> {
    let changelog = read(&root().join(CHANGELOG))?;
    let changes = section(&changelog, VERSION)?;
    let (arch, deb) = (std::env::consts::ARCH, deb::architecture());
    // Its links are relative to the repository.
    let changes = changes.replace("](docs/", &format!("]({}", Project::load()?.file("docs/")));
    super::fill(&format!(
        "# Postrider {VERSION}\n\n{changes}\n\n## Files\n\n| file | for |\n|---|---|\n\
         | `postrider-{VERSION}-{arch}-linux.tar.gz` | every Linux: unpack it, and run `./postrider serve` |\n\
         | `postlab-{VERSION}-{arch}-linux.tar.gz` | the laboratory |\n\
         | `postrider_{VERSION}-1_{deb}.deb`, `postlab_{VERSION}-1_{deb}.deb` | Debian: `apt install ./FILE` |\n\
         | `postrider-{VERSION}-{arch}.oci.tar`, `postlab-{VERSION}-{arch}.oci.tar` | containers: `podman load --input FILE` |\n\
         | `postrider-{VERSION}-source.tar.gz` | the source |\n\
         | `postrider-{VERSION}-site.tar.gz` | the documents, also at @site@ |\n\
         | `*.cdx.json` | the list of all libraries (CycloneDX) |\n\n\
         Check what you have downloaded with `sha256sum --check --ignore-missing SHA256SUMS`. The files can be built again, bit for bit: \
         `cargo xtask release --verify` from the tag v{VERSION} of @repository@.\n\n\
         Report vulnerabilities in private to @security@.\n"
    ))
}

/// Returns the section of a version without its heading. Its links are relative to the repository.
fn section<'t>(changelog: &'t str, version: &str) -> Result<&'t str, Failure> {
    let heading = format!("\n## [{version}]");
    let after = changelog.split_once(&heading).map(|(_, rest)| rest);
    let body = after.and_then(|rest| rest.split_once('\n')).map(|(_, body)| body);
    let body = body.ok_or_else(|| Failure(format!("{CHANGELOG} has no section `## [{version}]`")))?;
    Ok(body.split("\n## ").next().unwrap_or(body).trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notes_are_the_section_of_the_version() {
        let changelog = "# Changelog\n\n## [0.2.0] - 2027-01-01\n\nnew\n\n### Added\n\n- x\n\n## [0.1.0] - 2026-11-28\n\nold\n";
        assert_eq!(section(changelog, "0.2.0").unwrap(), "new\n\n### Added\n\n- x");
        assert_eq!(section(changelog, "0.1.0").unwrap(), "old");
        assert!(section(changelog, "0.3.0").is_err());
    }

    #[test]
    fn the_changelog_has_this_version() {
        check().unwrap();
    }
}
