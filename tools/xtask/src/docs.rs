//! Documents that come from the code: docs/configuration.md, the man pages, the pictures of README.md and ARCHITECTURE.md. They are kept in the
//! repository so that they can be read there, and checked so that they stay true.

use crate::shell::{Done, Failure, build_as_tests, output, program, root, target_dir};
use crate::{floor_plan, project::Project, seeds, testing::without_proofs};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// Directory of the man pages. No other file is kept there.
const MAN: &str = "docs/man";

/// Binaries that write their man pages with `man DIR`.
const BINARIES: [&str; 2] = ["postrider", "postlab"];

/// Examples that write a page, and the page.
const MANUALS: [(&str, &str); 2] =
    [("configuration_page", "docs/configuration.md"), ("metrics_page", "docs/metrics.md")];

/// The picture of README.md, and the page with the table that it shows.
const PICTURE: (&str, &str) = ("docs/results/relay.svg", "docs/results/relay-peers.md");

/// Contents by path in the repository.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Makes the documents anew; with `check`, only tells which differ.
pub(crate) fn run(check: bool) -> Done {
    let wanted = made()?;
    let kept = kept().map_err(|error| Failure(format!("read docs: {error}")))?;
    let stale = stale(&wanted, &kept);
    if stale.is_empty() {
        eprintln!("docs: {} files are up to date", wanted.len());
        return Ok(());
    }
    let names: Vec<String> = stale.iter().map(|path| path.display().to_string()).collect();
    if check {
        let names = names.join("\n  ");
        return Err(Failure(format!("docs: not what the code says; run `cargo xtask docs`:\n  {names}")));
    }
    for (path, name) in stale.iter().zip(&names) {
        replace(path, wanted.get(*path)).map_err(|error| Failure(format!("write {name}: {error}")))?;
        eprintln!("docs: {name}");
    }
    Ok(())
}

/// Returns the line of CITATION.cff that names the repository, which a release adds.
pub(crate) fn citation_address() -> Result<String, Failure> {
    Ok(format!("repository-code: \"{}\"\n", Project::load()?.repository))
}

/// Returns files that are missing, different, or no longer generated.
fn stale<'f>(wanted: &'f Files, kept: &'f Files) -> Vec<&'f PathBuf> {
    let differ = wanted.iter().filter(|(path, text)| kept.get(*path) != Some(text)).map(|(path, _)| path);
    differ.chain(kept.keys().filter(|path| !wanted.contains_key(*path))).collect()
}

fn replace(path: &Path, text: Option<&Vec<u8>>) -> io::Result<()> {
    let path = root().join(path);
    let Some(text) = text else { return fs::remove_file(path) };
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    fs::write(path, text)
}

/// Builds the programs that write the documents.
fn build() -> Done {
    let binaries = BINARIES.iter().flat_map(|name| ["--bin", name]);
    let examples = MANUALS.iter().flat_map(|(name, _)| ["--example", name]);
    build_as_tests(&binaries.chain(examples).collect::<Vec<_>>(), without_proofs)
}

fn binary(name: &str) -> Command {
    program(target_dir().join("debug").join(name))
}

fn made() -> Result<Files, Failure> {
    build()?;
    let mut files = Files::new();
    for (example, page) in MANUALS {
        files.insert(page.into(), output(&mut program(target_dir().join("debug/examples").join(example)))?);
    }
    files.insert(seeds::PAGE.into(), seeds::page()?.into_bytes());
    files.insert(PICTURE.0.into(), picture()?);
    files.insert(floor_plan::PLACE.into(), floor_plan::picture()?);
    let dir = std::env::temp_dir().join(format!("postrider-man-{}", std::process::id()));
    let pages = BINARIES.iter().try_for_each(|name| output(binary(name).arg("man").arg(&dir)).map(drop));
    let pages = pages.and_then(|()| {
        folder(&dir, Path::new(MAN)).map_err(|error| Failure(format!("read {}: {error}", dir.display())))
    });
    // Nobody misses it, whatever became of it.
    let _ = fs::remove_dir_all(&dir);
    files.extend(pages?);
    Ok(files)
}

fn picture() -> Result<Vec<u8>, Failure> {
    let title = "Messages a second that reach the sink, each synced before its 250";
    let note =
        "Median of 3 runs of 5 s, with the smallest and the largest. Source, server and sink share 2 cores.";
    output(binary("postlab").args(["chart", PICTURE.1, "--title", title, "--note", note]))
}

fn kept() -> io::Result<Files> {
    let mut files = folder(&root().join(MAN), Path::new(MAN))?;
    for name in MANUALS.map(|(_, page)| page).into_iter().chain([seeds::PAGE, PICTURE.0, floor_plan::PLACE]) {
        match fs::read(root().join(name)) {
            Ok(text) => drop(files.insert(name.into(), text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

/// The files of a folder, under another name; none when it is missing.
fn folder(dir: &Path, name: &Path) -> io::Result<Files> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Files::new()),
        entries => entries?,
    };
    let read = |entry: io::Result<fs::DirEntry>| {
        let entry = entry?;
        Ok((name.join(entry.file_name()), fs::read(entry.path())?))
    };
    entries.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_missing_or_is_left_over_is_stale() {
        let files = |texts: &[(&str, &str)]| -> Files {
            texts.iter().map(|(path, text)| ((*path).into(), (*text).into())).collect()
        };
        let wanted = files(&[("same", "1"), ("changed", "2"), ("new", "3")]);
        let kept = files(&[("same", "1"), ("changed", "1"), ("old", "0")]);
        let names: Vec<_> = stale(&wanted, &kept).iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(names, ["changed", "new", "old"]);
        assert!(stale(&kept, &kept).is_empty());
    }
}
