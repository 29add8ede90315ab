//! The files of a release, made from a clean tree into target/release-files: static binaries with everything around them, Debian
//! packages, a container image, the source, the site, an SBOM for each program, the release notes and checksums.

mod clones;
pub(crate) mod notes;
mod sbom;
pub(crate) mod tools;

use crate::{
    docs,
    files::{copy, copy_tracked, gzip, make_dir, normalise, read, remove, sha256, tar, walk, write},
    package::{binaries, deb, image, stage, stage::Program},
    project::{Project, VERSION},
    shell::{Done, Failure, output, program, root, run, target_dir},
    site,
};
use std::{
    env,
    path::{Path, PathBuf},
};

/// How a release is made.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Build a second time, from a clone in another folder, and fail unless every file is the same, bit for bit
    #[arg(long)]
    verify: bool,
    /// The folder for the files [default: target/release-files]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The profile of Cargo; files of another one than `dist` are for tests of the release only
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Build in this tree instead of a clone: what the command does in its clones
    #[arg(long, hide = true)]
    here: bool,
}

/// Files of the repository in the mail server's archive.
const POSTRIDER_FILES: [&str; 13] = [
    "README.md",
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "dist/postrider.toml",
    "dist/postrider.service",
    "dist/postrider@.service",
    "dist/postrider-smtp.socket",
    "dist/postrider-submission.socket",
    "dist/postrider-submissions.socket",
    "dist/postrider-acme.socket",
    "dist/postrider.sysusers",
    "dist/postrider.tmpfiles",
];
/// Files of the repository in the laboratory's archive.
const POSTLAB_FILES: [&str; 5] =
    ["docs/postlab.md", "CHANGELOG.md", "CITATION.cff", "LICENSE-APACHE", "LICENSE-MIT"];

/// Makes the files; with `--verify`, twice.
pub(crate) fn run_release(options: &Options) -> Done {
    need_clean_tree()?;
    let out = options.out.clone().unwrap_or_else(|| target_dir().join("release-files"));
    if options.here {
        return make(&out, &options.profile);
    }
    let commit = clones::commit()?;
    clones::build("release-build", &commit, &out, &options.profile)?;
    if options.verify { clones::verify(&commit, &out, &options.profile) } else { Ok(()) }
}

/// Files that are not committed would be in the release and in no commit.
fn need_clean_tree() -> Done {
    let changed = output(program("git").args(["status", "--porcelain"]))?;
    let changed = String::from_utf8_lossy(&changed).into_owned();
    if changed.is_empty() {
        return Ok(());
    }
    Err(Failure(format!("a release is made from a clean tree; commit or remove:\n{}", changed.trim_end())))
}

fn make(out: &Path, profile: &str) -> Done {
    let epoch = binaries::epoch()?;
    tools::need()?;
    notes::check()?;
    remove(out)?;
    make_dir(out)?;
    let built = binaries::build(profile)?;
    archive(Program::Postrider, &built, out, epoch)?;
    archive(Program::Postlab, &built, out, epoch)?;
    deb::build(&built, out, epoch)?;
    image::build(Program::Postrider, &built, out, epoch)?;
    image::build(Program::Postlab, &built, out, epoch)?;
    source(out)?;
    let pages = site::build()?;
    packed(&pages, &format!("postrider-{VERSION}-site"), out, epoch)?;
    for (package, name) in [("postrider", "postrider"), ("lab", "postlab")] {
        write(&out.join(format!("{name}-{VERSION}.cdx.json")), sbom::of(package, name, epoch)?)?;
    }
    let citation = read(&root().join("CITATION.cff"))? + &docs::citation_address()?;
    write(&out.join("CITATION.cff"), citation)?;
    write(&out.join("RELEASE-NOTES.md"), notes::text()?)?;
    checksums(out)?;
    println!("{}", out.display());
    Ok(())
}

/// Packs a program with its man pages, completions, schema and licences.
fn archive(kind: Program, built: &Path, out: &Path, epoch: u64) -> Done {
    let name = kind.name();
    let tree = target_dir().join("package/archive").join(name);
    remove(&tree)?;
    let (programs, files, folders): (&[&str], &[&str], &[&str]) = match kind {
        Program::Postrider => (&["postrider", "postrider-import"], &POSTRIDER_FILES, &["examples"]),
        Program::Postlab => (&["postlab"], &POSTLAB_FILES, &["lab/peers", "lab/scenarios"]),
    };
    for program in programs {
        copy(&built.join(program), &tree.join(program), 0o755)?;
    }
    for file in files {
        let place = file.strip_prefix("docs/").unwrap_or(file);
        copy(&root().join(file), &tree.join(place), 0o644)?;
    }
    folders.iter().try_for_each(|folder| copy_tracked(folder, &tree.join(folder)))?;
    stage::manuals(&built.join(name), &tree.join("share/man"))?;
    stage::completions(kind, built, &tree.join("share"))?;
    stage::schema(kind, built, &tree.join("share").join(name))?;
    packed(&tree, &format!("{name}-{VERSION}-{}-linux", env::consts::ARCH), out, epoch)
}

/// Packs a folder as `NAME.tar.gz` with everything below `NAME/`.
fn packed(tree: &Path, name: &str, out: &Path, epoch: u64) -> Done {
    let above = target_dir().join("package/packed");
    let inside = above.join(name);
    remove(&inside)?;
    for file in walk(tree)? {
        let below = file.strip_prefix(tree).unwrap_or(&file);
        let mode = if tree_has_program(&file) { 0o755 } else { 0o644 };
        copy(&file, &inside.join(below), mode)?;
    }
    normalise(&inside, epoch)?;
    let archive = out.join(format!("{name}.tar"));
    tar(&above, &[name], &archive, epoch)?;
    gzip(&archive).map(drop)
}

fn tree_has_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata().is_ok_and(|data| data.permissions().mode() & 0o100 != 0)
}

/// Packs what git has of this commit.
fn source(out: &Path) -> Done {
    let name = format!("postrider-{VERSION}-source");
    let archive = out.join(format!("{name}.tar"));
    run(program("git")
        .args(["archive", "--format=tar"])
        .arg(format!("--prefix={name}/"))
        .arg("--output")
        .arg(&archive)
        .arg("HEAD"))?;
    gzip(&archive).map(drop)
}

/// Writes SHA256SUMS, which `sha256sum --check` reads.
fn checksums(out: &Path) -> Done {
    let mut text = String::new();
    for file in walk(out)? {
        let name = file.strip_prefix(out).unwrap_or(&file);
        text += &format!("{}  {}\n", sha256(&file)?, name.display());
    }
    write(&out.join("SHA256SUMS"), text)
}

/// The text that replaces addresses in the notes.
fn fill(text: &str) -> Result<String, Failure> {
    Ok(Project::load()?.fill(text))
}
