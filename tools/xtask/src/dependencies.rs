//! Every crate that is linked in, on any platform: its licence, where it comes from, known vulnerabilities, and
//! those that must not be there.

use crate::{
    advisories, licence,
    shell::{ALL_MAPS, Done, Failure, cargo_command, output},
};
use serde_json::Value;
use std::collections::BTreeSet;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Crates that must not be linked in, and why.
const BANNED: [(&str, &str); 8] = [
    ("openssl", "TLS is rustls with aws-lc-rs; OpenSSL is a second TLS with its own bugs to patch"),
    ("openssl-sys", "see openssl"),
    ("native-tls", "what it speaks depends on the machine; TLS is rustls"),
    ("ring", "a second provider beside aws-lc-rs makes rustls' default builder panic"),
    ("rustls-pemfile", "unmaintained; rustls-pki-types reads PEM"),
    ("serde_yml", "unsound; the configuration is TOML"),
    ("bincode", "unmaintained; the spool's format is our own, byte by byte"),
    ("atty", "unsound and unmaintained; std::io::IsTerminal does it"),
];

/// Crates that hold data and not code, under a licence for data: crate, licence, and why.
const DATA: [(&str, &str, &str); 1] =
    [("webpki-roots", "CDLA-Permissive-2.0", "Mozilla's list of authorities; permissive, and for data only")];

/// Crates that must be there in one version at most: two would be two worlds that do not meet.
const SINGLE: [(&str, &str); 5] = [
    ("rustls", "a connection of one is no connection for the other"),
    ("aws-lc-rs", "the largest thing in the binary"),
    ("tokio", "a task of one cannot wait in the other's runtime"),
    ("bytes", "content would be copied between them"),
    ("toml", "spans of one mean nothing to the other"),
];

/// A crate that the workspace depends on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    licence: Option<String>,
    /// None: it lies in this repository.
    source: Option<String>,
}

/// Checks all of them and tells of every fault at once.
pub(crate) fn check() -> Done {
    let json = output(&mut cargo_command(&["metadata", "--locked", "--format-version", "1"]))?;
    let metadata: Value =
        serde_json::from_slice(&json).map_err(|error| Failure(format!("read cargo metadata: {error}")))?;
    let tree = output(&mut cargo_command(&TREE))?;
    let tree = reached(&String::from_utf8_lossy(&tree));
    let packages =
        linked(&metadata, &tree).ok_or(Failure("read cargo metadata: not the expected shape".into()))?;
    // Nobody should be told that nothing is in order.
    if packages.len() < tree.len() {
        return Err(Failure(format!("cargo tree has {} crates, metadata {}", tree.len(), packages.len())));
    }
    let mut faults = faults(&packages);
    let versions = packages.iter().map(|package| (package.name.as_str(), package.version.as_str()));
    let (vulnerable, list) = advisories::faults(versions)?;
    faults.extend(vulnerable);
    if faults.is_empty() {
        eprintln!("dependencies: {} crates, licences, sources, bans and {list} are in order", packages.len());
        return Ok(());
    }
    Err(Failure(format!("dependencies:\n  {}", faults.join("\n  "))))
}

/// Only `cargo tree` shows which features are on: metadata also follows those that somebody would
/// switch on if they were there (`ring?/std`), and has `ring` therefore.
const TREE: [&str; 11] = [
    "tree",
    "--locked",
    "--workspace",
    ALL_MAPS,
    "--target=all",
    "--edges=normal,build,dev",
    "--prefix=none",
    "--charset=ascii",
    "--quiet",
    "--format",
    "{p}",
];

/// Name and version, as in `ring v0.17.14 (*)`.
type Name = (String, String);

fn reached(tree: &str) -> BTreeSet<Name> {
    let lines = tree.lines().filter_map(|line| line.split_once(" v"));
    lines
        .map(|(name, rest)| (name.to_owned(), rest.split(' ').next().unwrap_or_default().to_owned()))
        .collect()
}

fn linked(metadata: &Value, reached: &BTreeSet<Name>) -> Option<Vec<Package>> {
    let packages: Vec<Package> =
        metadata["packages"].as_array()?.iter().map(package).collect::<Option<_>>()?;
    let is_reached = |p: &Package| reached.contains(&(p.name.clone(), p.version.clone()));
    Some(packages.into_iter().filter(is_reached).collect())
}

fn package(json: &Value) -> Option<Package> {
    let text = |key: &str| json[key].as_str().map(str::to_owned);
    Some(Package {
        name: text("name")?,
        version: text("version")?,
        licence: text("license"),
        source: text("source"),
    })
}

fn faults(packages: &[Package]) -> Vec<String> {
    let mut faults: Vec<String> = packages.iter().flat_map(faults_of).collect();
    for (name, why) in SINGLE {
        let versions: Vec<&str> =
            packages.iter().filter(|p| p.name == name).map(|p| p.version.as_str()).collect();
        if versions.len() > 1 {
            faults.push(format!("{name} is there as {}: {why}", versions.join(" and ")));
        }
    }
    faults
}

fn faults_of(package: &Package) -> Vec<String> {
    let Package { name, version, .. } = package;
    let mut faults = Vec::new();
    if let Some((_, why)) = BANNED.iter().find(|(banned, _)| banned == name) {
        faults.push(format!("{name} {version} is banned: {why}; `cargo tree -i {name}` tells who wants it"));
    }
    if let Some(source) = package.source.as_deref().filter(|source| *source != CRATES_IO) {
        faults.push(format!("{name} {version} comes from {source}; only crates.io is allowed"));
    }
    let is_data =
        |(data, licence, _): &(&str, &str, &str)| data == name && package.licence.as_deref() == Some(licence);
    match package.licence.as_deref().map(licence::is_allowed) {
        Some(Ok(false)) if DATA.iter().any(is_data) => {}
        None => faults.push(format!("{name} {version} names no licence")),
        Some(Ok(true)) => {}
        Some(Ok(false)) => {
            let licence = package.licence.as_deref().unwrap_or_default();
            faults.push(format!("{name} {version} is under {licence}, which is not allowed"));
        }
        Some(Err(why)) => faults.push(format!("{name} {version}: its licence cannot be read: {why}")),
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(name: &str, version: &str, licence: Option<&str>, source: Option<&str>) -> Package {
        let own = |text: Option<&str>| text.map(str::to_owned);
        Package { name: name.into(), version: version.into(), licence: own(licence), source: own(source) }
    }

    #[test]
    fn a_crate_from_crates_io_under_mit_is_in_order() {
        assert_eq!(faults(&[of("bytes", "1.0.0", Some("MIT"), Some(CRATES_IO))]), [""; 0]);
        assert_eq!(faults(&[of("mail", "0.1.0", Some("Apache-2.0 OR MIT"), None)]), [""; 0]);
    }

    #[test]
    fn a_ban_a_licence_and_a_source_are_told_with_their_reason() {
        let git = of("openssl", "0.10.1", Some("GPL-3.0-only"), Some("git+https://example.com/x"));
        let told = faults(&[git]).join("\n");
        assert!(told.contains("openssl 0.10.1 is banned: TLS is rustls"), "{told}");
        assert!(told.contains("comes from git+https://example.com/x"), "{told}");
        assert!(told.contains("is under GPL-3.0-only, which is not allowed"), "{told}");
        assert_eq!(faults(&[of("x", "1.0.0", None, None)]), ["x 1.0.0 names no licence"]);
    }

    #[test]
    fn a_licence_for_data_is_for_that_crate_only() {
        let of = |name| of(name, "1.0.0", Some("CDLA-Permissive-2.0"), Some(CRATES_IO));
        assert_eq!(faults(&[of("webpki-roots")]), [""; 0]);
        assert_eq!(faults(&[of("other")]).len(), 1);
    }

    #[test]
    fn two_versions_of_a_single_one_are_a_fault() {
        let two = ["0.22.0", "0.23.0"].map(|v| of("rustls", v, Some("MIT"), Some(CRATES_IO)));
        assert_eq!(
            faults(&two),
            ["rustls is there as 0.22.0 and 0.23.0: a connection of one is no connection for the other"]
        );
    }

    #[test]
    fn only_what_is_reached_counts() {
        let of =
            |name: &str| json!({"name": name, "version": "1.0.0", "license": "MIT", "source": CRATES_IO});
        let metadata = json!({"packages": [of("a"), of("b"), of("ring")]});
        let tree = reached("a v1.0.0 (/work/a)\nb v1.0.0\nb v1.0.0 (*)\nring v0.9.0 (proc-macro)\n");
        let names: Vec<String> = linked(&metadata, &tree).unwrap().into_iter().map(|p| p.name).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(tree.len(), 3);
    }
}
