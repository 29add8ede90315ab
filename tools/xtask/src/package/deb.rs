//! The Debian packages: one of the mail server, one of the laboratory. `dpkg-deb` packs the folders that are put together here.

use super::stage::{self, Program};
use crate::{
    files::{copy, copy_tracked, gzip, make_dir, normalise, read, remove, tracked, walk, write},
    project::{Project, VERSION},
    shell::{Done, Failure, output, program, root, run, target_dir},
};
use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// Revision of the package; raised for another package of one version.
const REVISION: u32 = 1;
/// Other names of the binary, each with what the link says: relative, as Debian wants links within /usr.
const NAMES: [(&str, &str); 4] = [
    ("usr/sbin/sendmail", "../bin/postrider"),
    ("usr/lib/sendmail", "../bin/postrider"),
    ("usr/bin/mailq", "postrider"),
    ("usr/bin/newaliases", "postrider"),
];
/// Files of the repository in the mail server's package.
const FILES: [(&str, &str); 16] = [
    ("dist/postrider.toml", "usr/share/postrider/postrider.toml"),
    ("dist/other-users.conf", "usr/share/postrider/other-users.conf"),
    ("dist/postrider.logrotate", "etc/logrotate.d/postrider"),
    ("dist/postrider.sysusers", "usr/lib/sysusers.d/postrider.conf"),
    ("dist/postrider.tmpfiles", "usr/lib/tmpfiles.d/postrider.conf"),
    ("dist/postrider.service", "usr/lib/systemd/system/postrider.service"),
    ("dist/postrider@.service", "usr/lib/systemd/system/postrider@.service"),
    ("dist/postrider-smtp.socket", "usr/lib/systemd/system/postrider-smtp.socket"),
    ("dist/postrider-submission.socket", "usr/lib/systemd/system/postrider-submission.socket"),
    ("dist/postrider-submissions.socket", "usr/lib/systemd/system/postrider-submissions.socket"),
    ("dist/postrider-acme.socket", "usr/lib/systemd/system/postrider-acme.socket"),
    ("dist/prometheus.rules.yml", "usr/share/doc/postrider/examples/prometheus.rules.yml"),
    ("dist/other-users.conf", "usr/share/doc/postrider/examples/other-users.conf"),
    ("dist/grafana.json", "usr/share/doc/postrider/examples/grafana.json"),
    ("README.md", "usr/share/doc/postrider/README.md"),
    ("CHANGELOG.md", "usr/share/doc/postrider/changelog"),
];
/// Folders of the repository in the mail server's package, below /usr/share/doc/postrider.
const FOLDERS: [&str; 6] =
    ["examples", "docs/operating", "docs/decisions", "docs/guides", "docs/pictures", "docs/probes"];
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Fields of the mail server's package.
const POSTRIDER: &str = "\
Section: mail
Priority: optional
Depends: adduser, init-system-helpers (>= 1.54~)
Recommends: logrotate, zstd
Suggests: mail-reader
Provides: mail-transport-agent
Conflicts: mail-transport-agent
Replaces: mail-transport-agent
Description: mail transfer agent that stores mail durably before it replies
 Accepts mail by SMTP, stores it durably before it replies 250, and delivers it:
 to other servers, into Maildirs and mailbox files, to LMTP servers and programs.
 It has the commands sendmail, mailq and newaliases.
";
/// Fields of the laboratory's package.
const POSTLAB: &str = "\
Section: mail
Priority: optional
Suggests: gnuplot-nox, postfix
Description: laboratory for mail servers, disks and stores
 Measures how fast a mail server accepts and delivers mail and names what limits
 it; sends and receives mail as load; measures disks, queue directories and
 stores; runs experiments with a hypothesis and compares their results.
";

/// Builds both packages from stripped binaries, and returns their paths.
pub(crate) fn build(binaries: &Path, out: &Path, epoch: u64) -> Result<Vec<PathBuf>, Failure> {
    let project = Project::load()?;
    make_dir(out)?;
    let stage = target_dir().join("package/postrider");
    remove(&stage)?;
    stage_postrider(binaries, &stage, &project)?;
    let postrider = pack("postrider", POSTRIDER, &stage, out, &project, epoch)?;
    let stage = target_dir().join("package/postlab");
    remove(&stage)?;
    stage_postlab(binaries, &stage)?;
    let postlab = pack("postlab", POSTLAB, &stage, out, &project, epoch)?;
    Ok(vec![postrider, postlab])
}

fn stage_postrider(binaries: &Path, stage: &Path, project: &Project) -> Done {
    for name in ["postrider", "postrider-import"] {
        copy(&binaries.join(name), &stage.join("usr/bin").join(name), 0o755)?;
    }
    for (name, to) in NAMES {
        let link = stage.join(name);
        crate::files::make_parent(&link)?;
        symlink(to, &link).map_err(|e| crate::files::failed("link", &link, &e))?;
    }
    stage::manuals(&binaries.join("postrider"), &stage.join("usr/share/man"))?;
    stage::completions(Program::Postrider, binaries, &stage.join("usr/share"))?;
    stage::schema(Program::Postrider, binaries, &stage.join("usr/share/postrider"))?;
    for (from, to) in FILES {
        copy(&root().join(from), &stage.join(to), 0o644)?;
    }
    let docs = stage.join("usr/share/doc/postrider");
    for folder in FOLDERS {
        copy_tracked(folder, &docs.join(folder))?;
    }
    let pages = tracked("docs")?.into_iter().filter(|name| belongs(name));
    pages.into_iter().try_for_each(|name| copy(&root().join(&name), &docs.join(&name), 0o644))?;
    scripts(stage)?;
    let copyright = project.fill(&read(&root().join("dist/debian/copyright"))?);
    write(&docs.join("copyright"), copyright)?;
    write(&stage.join("DEBIAN/conffiles"), "/etc/logrotate.d/postrider\n")
}

/// Returns whether a page is for those who run the mail server; raw data of experiments is not.
fn belongs(name: &str) -> bool {
    let below = name.strip_prefix("docs/").unwrap_or(name);
    let is_page = |end: &str| below.ends_with(end);
    match below.split_once('/') {
        None => is_page(".md"),
        Some(("man", page)) => !page.starts_with("postlab"),
        Some(("results", _)) => is_page(".md") || is_page(".svg"),
        _ => false,
    }
}

fn scripts(stage: &Path) -> Done {
    for name in SCRIPTS {
        copy(&root().join("dist/debian").join(name), &stage.join("DEBIAN").join(name), 0o755)?;
    }
    Ok(())
}

fn stage_postlab(binaries: &Path, stage: &Path) -> Done {
    copy(&binaries.join("postlab"), &stage.join("usr/bin/postlab"), 0o755)?;
    stage::manuals(&binaries.join("postlab"), &stage.join("usr/share/man"))?;
    stage::completions(Program::Postlab, binaries, &stage.join("usr/share"))?;
    stage::schema(Program::Postlab, binaries, &stage.join("usr/share/postlab"))?;
    let docs = stage.join("usr/share/doc/postlab");
    for folder in ["lab/peers", "lab/scenarios"] {
        copy_tracked(folder, &stage.join("usr/share/postlab").join(folder))?;
    }
    copy(&root().join("docs/postlab.md"), &docs.join("postlab.md"), 0o644)?;
    copy(&root().join("CHANGELOG.md"), &docs.join("changelog"), 0o644)?;
    copy(&root().join("CITATION.cff"), &docs.join("CITATION.cff"), 0o644)?;
    let copyright = read(&root().join("dist/debian/copyright"))?.replace("postrider\n", "postlab\n");
    write(&docs.join("copyright"), Project::load()?.fill(&copyright))
}

/// Writes what dpkg wants to know, and packs the folder.
fn pack(
    name: &str,
    fields: &str,
    stage: &Path,
    out: &Path,
    project: &Project,
    epoch: u64,
) -> Result<PathBuf, Failure> {
    let docs = stage.join("usr/share/doc").join(name);
    write(&docs.join("changelog.Debian"), changelog(name, project, epoch)?)?;
    for file in ["changelog", "changelog.Debian"] {
        gzip(&docs.join(file))?;
    }
    let (mut size, mut sums) = (0, String::new());
    for file in walk(stage)?.into_iter().filter(|file| !file.starts_with(stage.join("DEBIAN"))) {
        size += fs::symlink_metadata(&file).map_or(0, |data| data.len().div_ceil(1024));
        if file.is_symlink() {
            continue;
        }
        let inside = file.strip_prefix(stage).unwrap_or(&file).display().to_string();
        let sum = output(program("md5sum").arg(&file))?;
        let sum = String::from_utf8_lossy(&sum).into_owned();
        // Writing to a string cannot fail.
        let _ = writeln!(sums, "{}  {inside}", sum.split(' ').next().unwrap_or_default());
    }
    write(&stage.join("DEBIAN/md5sums"), sums)?;
    let (version, architecture) = (format!("{VERSION}-{REVISION}"), architecture());
    let control = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {}\nHomepage: {}\n\
         Installed-Size: {size}\n{fields}",
        project.maintainer, project.site
    );
    write(&stage.join("DEBIAN/control"), control)?;
    normalise(stage, epoch)?;
    let package = out.join(format!("{name}_{version}_{architecture}.deb"));
    let mut deb = program("dpkg-deb");
    deb.args(["--root-owner-group", "-Zxz", "--uniform-compression", "--build"]).arg(stage).arg(&package);
    // With several threads the octets depend on the machine.
    run(deb.env("SOURCE_DATE_EPOCH", epoch.to_string()).env("DPKG_DEB_THREADS_MAX", "1"))?;
    Ok(package)
}

/// The changelog of a package: one entry, with the time of the commit.
fn changelog(name: &str, project: &Project, epoch: u64) -> Result<String, Failure> {
    let date = output(
        program("date").args(["--utc", "--rfc-email", "--date", &format!("@{epoch}")]).env("LC_ALL", "C"),
    )?;
    Ok(format!(
        "{name} ({VERSION}-{REVISION}) unstable; urgency=medium\n\n  * /usr/share/doc/{name}/changelog.gz has the changes.\n\n -- {}  {}\n",
        project.maintainer,
        String::from_utf8_lossy(&date).trim()
    ))
}

/// Debian's name of the machine's architecture.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_package_exists() {
        for (from, _) in FILES {
            assert!(root().join(from).is_file(), "{from}");
        }
        for folder in FOLDERS {
            assert!(!tracked(folder).unwrap().is_empty(), "{folder}");
        }
    }

    #[test]
    fn pages_for_operators_are_in_the_package_and_raw_data_is_not() {
        for name in ["docs/tls.md", "docs/man/postrider.1", "docs/man/sendmail.1", "docs/results/relay.svg"] {
            assert!(belongs(name), "{name}");
        }
        for name in ["docs/man/postlab.1", "docs/seeds/S0.toml", "docs/seeds/rows.toml"] {
            assert!(!belongs(name), "{name}");
        }
    }
}
