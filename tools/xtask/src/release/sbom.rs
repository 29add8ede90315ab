//! A bill of materials in CycloneDX 1.5: every crate that is linked into a program, with version, licence, checksum and
//! dependencies.

use crate::{
    files::read,
    package::binaries,
    project::{Project, VERSION},
    shell::{ALL_MAPS, Failure, cargo_command, output, program, root},
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Name and version of a crate.
type Name = (String, String);

/// Returns the bill of a workspace's package, under the name of its program.
pub(crate) fn of(package: &str, name: &str, epoch: u64) -> Result<String, Failure> {
    let target = binaries::target();
    let features = if package == "postrider" { vec![ALL_MAPS] } else { Vec::new() };
    let mut tree =
        cargo_command(&["tree", "--locked", "--package", package, "--edges=normal", "--prefix=depth"]);
    tree.args(["--charset=ascii", "--no-dedupe", "--format", " {p}", "--target", &target]).args(&features);
    let tree = output(&mut tree)?;
    let edges = edges(&String::from_utf8_lossy(&tree));
    let metadata = output(&mut cargo_command(&["metadata", "--locked", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_slice(&metadata)
        .map_err(|error| Failure(format!("read cargo metadata: {error}")))?;
    let time =
        output(program("date").args(["--utc", "--date", &format!("@{epoch}"), "+%Y-%m-%dT%H:%M:%SZ"]))?;
    let project = Project::load()?;
    let main = edges.keys().find(|(crate_name, _)| crate_name == package).cloned();
    let main = main.ok_or_else(|| Failure(format!("cargo tree has no {package}")))?;
    let sums = checksums(&read(&root().join("Cargo.lock"))?);
    let components: Vec<Value> =
        edges.keys().filter(|key| **key != main).map(|key| component(key, &metadata, &sums)).collect();
    let dependencies: Vec<Value> = edges
        .iter()
        .map(
            |(key, below)| json!({"ref": purl(key), "dependsOn": below.iter().map(purl).collect::<Vec<_>>()}),
        )
        .collect();
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": String::from_utf8_lossy(&time).trim(),
            "tools": {"components": [{"type": "application", "name": "cargo xtask release", "version": VERSION}]},
            "component": {
                "type": "application", "name": name, "version": VERSION, "bom-ref": purl(&main),
                "licenses": [{"expression": "Apache-2.0 OR MIT"}],
                "externalReferences": [{"type": "vcs", "url": project.repository}],
            },
        },
        "components": components,
        "dependencies": dependencies,
    });
    serde_json::to_string_pretty(&bill)
        .map(|text| text + "\n")
        .map_err(|error| Failure(format!("write the SBOM: {error}")))
}

/// Reads `cargo tree --prefix=depth`: each crate with those that it depends on.
fn edges(tree: &str) -> BTreeMap<Name, BTreeSet<Name>> {
    let mut edges: BTreeMap<Name, BTreeSet<Name>> = BTreeMap::new();
    let mut above: Vec<Name> = Vec::new();
    for line in tree.lines() {
        let Some((depth, rest)) = line.split_once(' ') else { continue };
        let Ok(depth) = depth.parse::<usize>() else { continue };
        let Some((name, version)) = rest.trim().split_once(" v") else { continue };
        let key = (name.to_owned(), version.split(' ').next().unwrap_or_default().to_owned());
        above.truncate(depth);
        if let Some(parent) = above.last() {
            edges.entry(parent.clone()).or_default().insert(key.clone());
        }
        edges.entry(key.clone()).or_default();
        above.push(key);
    }
    edges
}

fn component(key: &Name, metadata: &Value, sums: &BTreeMap<Name, String>) -> Value {
    let (name, version) = key;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let package = packages.iter().find(|p| p["name"] == name.as_str() && p["version"] == version.as_str());
    let mut component = json!({"type": "library", "name": name, "version": version, "bom-ref": purl(key)});
    if let Some(licence) = package.and_then(|p| p["license"].as_str()) {
        // Old manifests divide by a stroke what SPDX joins with OR.
        let licence = licence.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ");
        component["licenses"] = json!([{"expression": licence}]);
    }
    if let Some(sum) = sums.get(key) {
        component["purl"] = json!(purl(key));
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    component
}

/// Reads the checksums of Cargo.lock; crates of this repository have none.
fn checksums(lock: &str) -> BTreeMap<Name, String> {
    let mut sums = BTreeMap::new();
    for entry in lock.split("[[package]]") {
        let value = |key: &str| {
            let line = entry.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
            Some(line.trim_end_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) = (value("name"), value("version"), value("checksum")) {
            sums.insert((name, version), sum);
        }
    }
    sums
}

fn purl((name, version): &Name) -> String {
    format!("pkg:cargo/{name}@{version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_names_who_depends_on_whom() {
        let tree = "0 a v0.1.0 (/work/a)\n1 b v1.0.0\n2 c v2.0.0\n1 c v2.0.0\n1 d v3.0.0 (proc-macro)\n";
        let edges = edges(tree);
        let key = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        let names = |of: Name| edges[&of].iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
        assert_eq!(names(key("a", "0.1.0")), ["b", "c", "d"]);
        assert_eq!(names(key("b", "1.0.0")), ["c"]);
        assert_eq!(names(key("c", "2.0.0")), [""; 0]);
    }

    #[test]
    fn a_crate_has_licence_checksum_and_address() {
        let lock = "[[package]]\nname = \"b\"\nversion = \"1.0.0\"\nchecksum = \"abc\"\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n";
        let metadata = json!({"packages": [{"name": "b", "version": "1.0.0", "license": "MIT/Apache-2.0"}]});
        let found = component(&("b".into(), "1.0.0".into()), &metadata, &checksums(lock));
        assert_eq!(found["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(found["hashes"][0]["content"], "abc");
        assert_eq!(found["purl"], "pkg:cargo/b@1.0.0");
        assert!(
            component(&("own".into(), "0.1.0".into()), &metadata, &checksums(lock)).get("hashes").is_none()
        );
    }
}
