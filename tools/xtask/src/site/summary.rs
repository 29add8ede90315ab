//! The table of contents: the pages in the order of README.md's *Read on*, with the title that each page gives itself.

use super::Pages;
use crate::shell::Failure;

/// A part of the site. Folders are listed after the pages that are named, their README first.
struct Part {
    title: &'static str,
    pages: &'static [&'static str],
    folder: Option<&'static str>,
}

const PARTS: [Part; 8] = [
    Part { title: "Begin", pages: &["README.md", "docs/install.md"], folder: Some("docs/guides/") },
    Part {
        title: "Set up",
        pages: &[
            "docs/configuration.md",
            "docs/submission.md",
            "docs/addresses.md",
            "docs/rules.md",
            "docs/tls.md",
            "docs/signing.md",
            "docs/authentication.md",
            "docs/filters.md",
            "docs/extensions.md",
            "docs/notifications.md",
            "docs/not.md",
        ],
        folder: None,
    },
    Part { title: "Move", pages: &["docs/migration.md", "docs/from-postfix.md"], folder: None },
    Part {
        title: "Run",
        pages: &[
            "docs/operating.md",
            "docs/monitoring.md",
            "docs/metrics.md",
            "docs/log.md",
            "docs/history.md",
            "docs/maintain.md",
        ],
        folder: Some("docs/operating/"),
    },
    Part { title: "Man pages", pages: &[], folder: Some("docs/man/") },
    Part {
        title: "Measure",
        pages: &["docs/postlab.md", "docs/scaling.md", "docs/seeds.md", "docs/bibliography.md"],
        folder: Some("docs/results/"),
    },
    Part {
        title: "Understand",
        pages: &[
            "ARCHITECTURE.md",
            "docs/glossary.md",
            "docs/spool-format.md",
            "docs/spool-directories.md",
            "docs/crash-testing.md",
            "docs/interop.md",
        ],
        folder: Some("docs/decisions/"),
    },
    Part {
        title: "Take part",
        pages: &["CONTRIBUTING.md", "docs/extending.md", "SECURITY.md", "CHANGELOG.md"],
        folder: Some("docs/"),
    },
];

/// Returns SUMMARY.md.
pub(super) fn text(pages: &Pages) -> Result<String, Failure> {
    let mut text = String::from("# Summary\n");
    let mut listed: Vec<&str> = Vec::new();
    for part in PARTS {
        text += &format!("\n# {}\n\n", part.title);
        for name in part.pages {
            let page = pages.get(*name);
            let page = page.ok_or_else(|| {
                Failure(format!("site: {name} does not exist; xtask's site/summary.rs names it"))
            })?;
            text += &entry(name, page, 0);
            listed.push(name);
        }
        let folder = part.folder.unwrap_or("none");
        // A folder's README leads its other pages. Folders of their own parts come first, and docs/ takes what is left.
        let readme = format!("{folder}README.md");
        if let Some((name, page)) = pages.get_key_value(&readme) {
            text += &entry(name, page, 0);
            listed.push(name);
        }
        let depth = usize::from(pages.contains_key(&readme));
        for (name, page) in pages.iter().filter(|(name, _)| name.starts_with(folder)) {
            if !listed.contains(&name.as_str()) {
                text += &entry(name, page, depth);
                listed.push(name);
            }
        }
    }
    Ok(text)
}

fn entry(name: &str, page: &str, depth: usize) -> String {
    let title = page.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(name);
    // A title in the table of contents is no link and has no code.
    let title = title.replace(['[', ']', '`'], "");
    format!("{}- [{title}]({})\n", "  ".repeat(depth), super::placed(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_in_the_table_once() {
        let pages = super::super::pages().unwrap();
        let text = text(&pages).unwrap();
        for name in pages.keys() {
            let link = format!("]({})\n", super::super::placed(name));
            assert_eq!(text.matches(&link).count(), 1, "{name}");
        }
    }

    #[test]
    fn every_page_has_a_title() {
        for (name, page) in super::super::pages().unwrap() {
            assert!(page.lines().any(|line| line.starts_with("# ")), "{name}");
        }
    }
}
