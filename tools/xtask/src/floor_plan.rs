//! The floor plan of ARCHITECTURE.md: a picture of the crates by what they build on, made from `cargo metadata`.

use crate::{
    shell::{Failure, output, program, root},
    tidy::PURE,
};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::{Path, PathBuf},
};

/// From the root of the repository.
pub(crate) const PLACE: &str = "docs/pictures/floor-plan.svg";

/// The folders of the repository, with what each is for.
const FOLDERS: [(&str, &str); 4] = [
    ("crates", "the mail server: each crate uses crates on lower floors only"),
    ("lab", "Postlab: load, disk and store benchmarks, peers and scenarios"),
    ("testing", "simulator, benches, fuzz targets, recordings; end-to-end tests of the daemon"),
    ("tools", "xtask, and what is no part of the daemon"),
];

const WIDTH: usize = 960;
const MARGIN: usize = 16;
const BOX_HEIGHT: usize = 26;
const GAP: usize = 8;
/// About the width of a letter of the boxes.
const LETTER: usize = 8;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<PathBuf>,
}

/// The crates of a folder, with those of the same folder that each uses.
type Crates = BTreeMap<String, BTreeSet<String>>;

/// Draws the crates and their dependencies as SVG.
pub(crate) fn picture() -> Result<Vec<u8>, Failure> {
    let metadata = metadata()?;
    let folders = FOLDERS.map(|(folder, purpose)| (folder, purpose, crates_in(&metadata, folder)));
    Ok(drawn(&folders).into_bytes())
}

fn metadata() -> Result<Metadata, Failure> {
    let arguments = ["metadata", "--no-deps", "--format-version", "1", "--locked", "--offline"];
    let told = output(program("cargo").args(arguments))?;
    serde_json::from_slice(&told).map_err(|e| Failure(format!("cargo metadata: {e}")))
}

fn crates_in(metadata: &Metadata, folder: &str) -> Crates {
    let is_here = |path: &Path| path.starts_with(root().join(folder));
    let here = metadata.packages.iter().filter(|package| is_here(&package.manifest_path));
    let uses = |package: &Package| {
        let all = package.dependencies.iter().filter(|one| one.kind.is_none());
        all.filter(|one| one.path.as_deref().is_some_and(is_here)).map(|one| one.name.clone()).collect()
    };
    here.map(|package| (package.name.clone(), uses(package))).collect()
}

/// Sorts crates into floors, the ground floor first: a crate stands on the floor above the highest that it uses.
fn floors(crates: &Crates) -> Vec<Vec<&str>> {
    let mut left: BTreeSet<&str> = crates.keys().map(String::as_str).collect();
    let mut floors = Vec::new();
    while !left.is_empty() {
        let stands = |name: &&str| crates[*name].iter().all(|used| !left.contains(used.as_str()));
        let floor: Vec<&str> = left.iter().copied().filter(stands).collect();
        assert!(!floor.is_empty(), "cargo has no circles");
        left.retain(|name| !floor.contains(name));
        floors.push(floor);
    }
    floors
}

/// Breaks a floor into rows that fit the picture: lists of names with their places and widths.
fn rows<'a>(floor: &[&'a str]) -> Vec<Vec<(&'a str, usize, usize)>> {
    let (mut rows, mut x) = (vec![Vec::new()], MARGIN);
    for name in floor {
        let width = name.len() * LETTER + 20;
        if x + width > WIDTH - MARGIN {
            rows.push(Vec::new());
            x = MARGIN;
        }
        let last = rows.len() - 1;
        rows[last].push((*name, x, width));
        x += width + GAP;
    }
    rows
}

fn drawn(folders: &[(&str, &str, Crates)]) -> String {
    let (mut body, mut y) = (String::new(), MARGIN);
    for (folder, purpose, crates) in folders {
        let _ = writeln!(
            body,
            "<text x=\"{MARGIN}\" y=\"{}\"><tspan class=\"folder\">{folder}/</tspan>  {purpose}</text>",
            y + 14
        );
        y += 26;
        // By floor where one stands on the other; the server's are the only ones where that says something.
        let floors = floors(crates);
        let floors: Vec<Vec<&str>> =
            if *folder == "crates" { floors } else { vec![crates.keys().map(String::as_str).collect()] };
        for floor in floors.iter().rev() {
            for row in rows(floor) {
                for (name, x, width) in row {
                    let class = if PURE.contains(&name) { "pure" } else { "acting" };
                    let _ = writeln!(
                        body,
                        "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{BOX_HEIGHT}\" rx=\"3\"/>\
                         <text class=\"name\" x=\"{}\" y=\"{}\">{name}</text>",
                        x + width / 2,
                        y + 17
                    );
                }
                y += BOX_HEIGHT + GAP;
            }
            if *folder == "crates" {
                let _ = writeln!(
                    body,
                    "<line x1=\"{MARGIN}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>",
                    WIDTH - MARGIN,
                    y - GAP / 2,
                    y - GAP / 2
                );
            }
        }
        y += 14;
    }
    let _ = writeln!(
        body,
        "<rect class=\"pure\" x=\"{MARGIN}\" y=\"{y}\" width=\"14\" height=\"14\"/><text x=\"{}\" y=\"{}\">pure: no \
         runtime, no I/O, no clock</text>",
        MARGIN + 22,
        y + 12
    );
    let height = y + 14 + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <style>.folder{{font-weight:bold;font-size:15px}}.name{{font-family:monospace;text-anchor:middle}}\
         .pure{{fill:#dcefe0;stroke:#4a8a5a}}.acting{{fill:#f2f2f2;stroke:#888}}line{{stroke:#ddd}}\
         text{{fill:#222;white-space:pre}}</style>\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_stands_above_all_that_it_uses() {
        let uses = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        let crates: Crates = [
            ("daemon", uses(&["smtp", "mail"])),
            ("mail", uses(&[])),
            ("smtp", uses(&["mail"])),
            ("dns", uses(&[])),
        ]
        .map(|(name, uses)| (name.to_owned(), uses))
        .into();
        assert_eq!(floors(&crates), [vec!["dns", "mail"], vec!["smtp"], vec!["daemon"]]);
    }

    #[test]
    fn each_folder_has_its_crates() {
        let picture = String::from_utf8(picture().unwrap()).unwrap();
        for name in ["accept", "postrider", "lab", "sim", "import"] {
            assert_eq!(picture.matches(&format!(">{name}<")).count(), 1, "{name}");
        }
    }

    #[test]
    fn the_server_uses_nothing_of_the_laboratory() {
        let metadata = metadata().unwrap();
        let laboratory = root().join("lab");
        let server = root().join("crates");
        for package in metadata.packages.iter().filter(|one| one.manifest_path.starts_with(&server)) {
            let uses = package.dependencies.iter().filter(|one| one.kind.is_none());
            let of_lab =
                uses.filter(|one| one.path.as_deref().is_some_and(|path| path.starts_with(&laboratory)));
            assert_eq!(of_lab.map(|one| one.name.as_str()).collect::<Vec<_>>(), [""; 0], "{}", package.name);
        }
    }
}
