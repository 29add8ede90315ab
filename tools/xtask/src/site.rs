//! The documents as a site: mdBook makes it from docs/, the pages of the repository's root and the man pages. Pages keep their
//! places, so a link between them works in the repository and on the site; links to code lead to the repository. Each version has a folder
//! of its own, between which readers choose.

mod links;
mod roff;
mod summary;

use crate::{
    files::{copy, read, remove, tracked, write},
    project::{Project, VERSION},
    release::tools,
    shell::{Done, Failure, output, program, root, run, target_dir},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Pages outside of docs/.
const ROOT_PAGES: [&str; 5] =
    ["README.md", "CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"];
/// The folder of man pages, which become Markdown on the way.
const MAN: &str = "docs/man/";
/// The page that lists the man pages.
const MAN_INDEX: &str = "docs/man/README.md";

/// Pages by their paths in the repository; man pages by theirs with `.md`.
type Pages = BTreeMap<String, String>;

/// The choice of a version, and its element of each page.
const CHOICE: &str = include_str!("site/versions.js");

/// Builds the site, checks its links, and returns its folder.
pub(crate) fn build() -> Result<PathBuf, Failure> {
    tools::need_tool("mdbook")?;
    let project = Project::load()?;
    let (book, site) = (target_dir().join("site-source"), target_dir().join("site"));
    remove(&book)?;
    remove(&site)?;
    let pages = pages()?;
    for (name, text) in &pages {
        write(&book.join("src").join(placed(name)), rewritten(name, text, &pages, &project))?;
    }
    for name in tracked("docs")?.iter().filter(|name| is_attachment(name)) {
        copy(&root().join(name), &book.join("src").join(name), 0o644)?;
    }
    write(&book.join("src/SUMMARY.md"), summary::text(&pages)?)?;
    write(&book.join("book.toml"), configuration(&project))?;
    write(&book.join("versions.js"), CHOICE)?;
    write(
        &book.join("theme/head.hbs"),
        format!("<meta name=\"documents-version\" content=\"{VERSION}\">\n"),
    )?;
    let own = site.join(VERSION);
    run(program(target_dir().join("tools/bin/mdbook")).args(["build", "--dest-dir"]).arg(&own).arg(&book))?;
    let versions = versions(&String::from_utf8_lossy(&output(program("git").args(["tag", "--list", "v*"]))?));
    write(&site.join("versions.js"), format!("window.documentsVersions = {versions:?};\n"))?;
    write(&site.join("index.html"), front_page(&versions))?;
    let (checked, faults) = links::check(&own)?;
    if faults.is_empty() {
        println!(
            "site: {} pages of version {VERSION}, {checked} links are in order: {}",
            pages.len(),
            site.display()
        );
        return Ok(site);
    }
    Err(Failure(format!("site: links that lead nowhere:\n  {}", faults.join("\n  "))))
}

/// Returns the versions of these tags and this one, the newest first.
fn versions(tags: &str) -> Vec<String> {
    let number = |version: &str| -> Option<Vec<u64>> {
        version.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>()
    };
    let released = tags.lines().filter_map(|tag| tag.trim().strip_prefix('v'));
    let numbers =
        released.chain([VERSION]).filter_map(|version| Some((number(version)?, version.to_owned())));
    let numbers: BTreeMap<Vec<u64>, String> = numbers.collect();
    numbers.into_values().rev().collect()
}

/// Leads to the newest version.
fn front_page(versions: &[String]) -> String {
    let newest = versions.first().map_or(VERSION, |newest| newest);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Postrider</title>\n\
         <meta http-equiv=\"refresh\" content=\"0; url={newest}/index.html\">\n\
         <p><a href=\"{newest}/index.html\">Postrider {newest}</a></p>\n</html>\n"
    )
}

/// Builds the site, for `cargo xtask docs --site`.
pub(crate) fn run_build() -> Done {
    build().map(drop)
}

/// Builds the site if mdBook is installed, for CI.
pub(crate) fn check() -> Done {
    if let Err(failure) = tools::need_tool("mdbook") {
        eprintln!("site: SKIPPED: the links of the site: {failure}");
        return Ok(());
    }
    run_build()
}

fn configuration(project: &Project) -> String {
    format!(
        "[book]\ntitle = \"Postrider {VERSION}\"\nlanguage = \"en\"\nsrc = \"src\"\n\n[build]\ncreate-missing = false\n\n\
         [output.html]\ngit-repository-url = {:?}\nadditional-js = [\"versions.js\"]\nsmart-punctuation = false\nno-section-label = true\n\n\
         [output.html.fold]\nenable = true\nlevel = 0\n\n[output.html.search]\nlimit-results = 30\nboost-title = 4\n",
        project.repository
    )
}

/// Reads all pages of the documents.
fn pages() -> Result<Pages, Failure> {
    let mut pages = Pages::new();
    for name in ROOT_PAGES {
        pages.insert(name.to_owned(), read(&root().join(name))?);
    }
    let mut manuals = String::from("# Man pages\n\n");
    for name in tracked("docs")? {
        if name.starts_with(MAN) {
            let file = name.trim_start_matches(MAN);
            let page = roff::markdown(file, &read(&root().join(&name))?);
            manuals += &format!("- [{file}]({file}.md)\n");
            pages.insert(format!("{name}.md"), page);
        } else if name.ends_with(".md") {
            pages.insert(name.clone(), read(&root().join(&name))?);
        }
    }
    pages.insert(MAN_INDEX.to_owned(), manuals);
    Ok(pages)
}

/// Returns whether a file is shown or linked, and is not a page. One in HTML could have the name of a page that is made here.
fn is_attachment(name: &str) -> bool {
    name.starts_with("docs/")
        && !name.starts_with(MAN)
        && ![".md", ".html"].iter().any(|end| name.ends_with(end))
}

/// Returns the place of a page in the book: README.md of a folder becomes its first page.
fn placed(name: &str) -> String {
    match name.strip_suffix("README.md") {
        Some(folder) => format!("{folder}index.md"),
        None => name.to_owned(),
    }
}

/// Returns a page whose links lead to other pages of the book, or to the repository.
fn rewritten(name: &str, text: &str, pages: &Pages, project: &Project) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_code = false;
    for line in text.split_inclusive('\n') {
        is_code ^= line.trim_start().starts_with("```");
        if is_code {
            out.push_str(line);
            continue;
        }
        let mut rest = line;
        while let Some((before, after)) = rest.split_once("](") {
            out.push_str(before);
            out.push_str("](");
            let end = after.find([')', ' ']).unwrap_or(after.len());
            out.push_str(&target(name, &after[..end], pages, project));
            rest = &after[end..];
        }
        out.push_str(rest);
    }
    out
}

fn target(name: &str, link: &str, pages: &Pages, project: &Project) -> String {
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
        return link.to_owned();
    }
    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    let full = resolved(&folder.join(path));
    let readme = if full.is_empty() { "README.md".to_owned() } else { format!("{full}/README.md") };
    let page = [full.clone(), format!("{full}.md"), readme].into_iter().find(|name| pages.contains_key(name));
    let anchor = anchor.map_or_else(String::new, |anchor| format!("#{anchor}"));
    match page {
        Some(page) => relative(folder, &placed(&page)) + &anchor,
        None if is_attachment(&full) && root().join(&full).is_file() => link.to_owned(),
        None => project.file(&full) + &anchor,
    }
}

/// Returns a path of the repository without `..`.
fn resolved(path: &Path) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.iter().filter_map(|part| part.to_str()) {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the way from a folder to a file, both of the repository.
fn relative(folder: &Path, to: &str) -> String {
    let from: Vec<&str> = folder.iter().filter_map(|part| part.to_str()).collect();
    let to: Vec<&str> = to.split('/').collect();
    let same = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = from.len() - same;
    let parts: Vec<&str> = std::iter::repeat_n("..", up).chain(to[same..].iter().copied()).collect();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite(name: &str, text: &str) -> String {
        rewritten(name, text, &pages().unwrap(), &Project::load().unwrap())
    }

    #[test]
    fn links_between_pages_stay_and_those_to_code_lead_to_the_repository() {
        assert_eq!(
            rewrite("docs/tls.md", "[a](signing.md#keys) [b](#c)\n"),
            "[a](signing.md#keys) [b](#c)\n"
        );
        assert_eq!(rewrite("docs/tls.md", "[a](../README.md)"), "[a](../index.md)");
        assert_eq!(
            rewrite("README.md", "[a](docs/man) [b](docs/man/postrider.1)"),
            "[a](docs/man/index.md) [b](docs/man/postrider.1.md)"
        );
        assert_eq!(
            rewrite("docs/operating/run.md", "[a](../decisions/README.md)"),
            "[a](../decisions/index.md)"
        );
        assert_eq!(rewrite("docs/not.md", "[a](rfc.tsv)"), "[a](rfc.tsv)");
        let code = rewrite("docs/tls.md", "[a](../crates/smtp/src/lib.rs)");
        assert_eq!(code, format!("[a]({})", Project::load().unwrap().file("crates/smtp/src/lib.rs")));
    }

    #[test]
    fn versions_are_listed_with_the_newest_first_and_this_one_among_them() {
        assert_eq!(versions("v0.9.0\nv0.10.1\nresults\nvery-old\n"), ["0.10.1", "0.9.0", VERSION]);
        assert_eq!(versions(&format!("v{VERSION}\n")), [VERSION]);
        assert!(front_page(&["0.10.1".to_owned()]).contains("url=0.10.1/index.html"));
    }

    #[test]
    fn code_is_left_alone() {
        let text = "```toml\nx = \"[a](../README.md)\"\n```\n";
        assert_eq!(rewrite("docs/tls.md", text), text);
    }
}
