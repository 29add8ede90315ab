//! Links of the finished site: each leads to a file, and each anchor to an element of that page.

use crate::{
    files::{read, walk},
    shell::Failure,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// mdBook's own pages, whose links are those of other pages again.
const ITS_OWN: [&str; 3] = ["print.html", "404.html", "toc.html"];

/// Returns how many links were followed, and each that leads nowhere as `page: link`.
pub(super) fn check(site: &Path) -> Result<(usize, Vec<String>), Failure> {
    let mut pages: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut files = BTreeSet::new();
    for file in walk(site)? {
        if file.extension().is_some_and(|end| end == "html") {
            pages.insert(file.clone(), read(&file)?);
        }
        files.insert(file);
    }
    let anchors: BTreeMap<&PathBuf, BTreeSet<&str>> =
        pages.iter().map(|(path, text)| (path, values(text, "id").collect())).collect();
    let (mut count, mut faults) = (0, Vec::new());
    for (path, text) in &pages {
        let name = path.strip_prefix(site).unwrap_or(path).display().to_string();
        if ITS_OWN.contains(&name.as_str()) {
            continue;
        }
        for link in values(text, "href").chain(values(text, "src")) {
            if link.contains(':') || link.starts_with("//") {
                continue;
            }
            count += 1;
            if !leads_somewhere(path, link, &files, &anchors) {
                faults.push(format!("{name}: {link}"));
            }
        }
    }
    faults.sort_unstable();
    faults.dedup();
    Ok((count, faults))
}

fn leads_somewhere(
    page: &Path,
    link: &str,
    files: &BTreeSet<PathBuf>,
    anchors: &BTreeMap<&PathBuf, BTreeSet<&str>>,
) -> bool {
    let (target, anchor) = link.split_once('#').map_or((link, ""), |(target, anchor)| (target, anchor));
    let target = target.split('?').next().unwrap_or_default();
    let path =
        if target.is_empty() { page.to_owned() } else { normal(&page.parent().unwrap_or(page).join(target)) };
    let path = if path.is_dir() { path.join("index.html") } else { path };
    let has_anchor = |ids: &BTreeSet<&str>| ids.contains(anchor) || ids.contains(decoded(anchor).as_str());
    files.contains(&path) && (anchor.is_empty() || anchors.get(&path).is_none_or(has_anchor))
}

/// Resolves `..` in a path without asking the disk.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        if part == std::path::Component::ParentDir {
            out.pop();
        } else {
            out.push(part);
        }
    }
    out
}

/// Returns text whose `%20` and others are the octets that they stand for.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the values of an attribute. mdBook writes them in double quotes, and escapes those in text.
fn values<'t>(html: &'t str, attribute: &str) -> impl Iterator<Item = &'t str> {
    let start = format!(" {attribute}=\"");
    let parts: Vec<&str> = html.split(start.as_str()).skip(1).collect();
    parts.into_iter().filter_map(|rest| rest.split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{remove, write};

    #[test]
    fn dead_files_and_anchors_are_found() {
        let dir = std::env::temp_dir().join(format!("xtask-links-{}", std::process::id()));
        write(
            &dir.join("a.html"),
            "<h1 id=\"top\">x</h1> <a href=\"b/c.html#part\"></a> <a href=\"#top\"></a>",
        )
        .unwrap();
        write(
            &dir.join("b/c.html"),
            "<p id=\"part\"> <a href=\"../a.html#none\"></a> <a href=\"../d.html\"></a> <img src=\"../a.html\"> <a href=\"https://example.com/\"></a>",
        )
        .unwrap();
        let (count, faults) = check(&dir).unwrap();
        remove(&dir).unwrap();
        assert_eq!(faults, ["b/c.html: ../a.html#none", "b/c.html: ../d.html"]);
        assert_eq!(count, 5);
    }
}
