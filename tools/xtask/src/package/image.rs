//! Container images, each as a tar archive of an OCI layout (image-spec 1.0), written without a container program: `podman load`,
//! `skopeo copy oci-archive:…` and `docker load` read it.

use super::stage::Program;
use crate::{
    files::{copy, gzip, make_dir, normalise, remove, sha256, tar, write},
    project::{Project, VERSION},
    shell::{Done, Failure, output, program, root, target_dir},
};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The user in the image: no name service is asked for it.
const USER: &str = "999:999";

/// Builds the image of a program from a stripped static binary, and returns its path.
pub(crate) fn build(kind: Program, binaries: &Path, out: &Path, epoch: u64) -> Result<PathBuf, Failure> {
    let name = kind.name();
    let work = target_dir().join("package/image").join(name);
    remove(&work)?;
    let (tree, layout) = (work.join("tree"), work.join("layout"));
    stage(kind, binaries, &tree)?;
    normalise(&tree, epoch)?;
    let layer = work.join("layer.tar");
    // The data belong to the program's user, all else to root.
    let names = ["etc", "usr", "tmp"];
    tar(&tree, &names, &layer, epoch)?;
    let mut append = program("tar");
    append.args(["--append", "--format=gnu", "--numeric-owner", "--owner=0", "--group=0", "--no-recursion"]);
    append.arg(format!("--mtime=@{epoch}")).arg("--file").arg(&layer).arg("--directory").arg(&tree);
    crate::shell::run(append.args(["var", "var/lib"]))?;
    let mut append = program("tar");
    append.args(["--append", "--format=gnu", "--numeric-owner", "--owner=999", "--group=999"]);
    append.arg(format!("--mtime=@{epoch}")).arg("--file").arg(&layer).arg("--directory").arg(&tree);
    crate::shell::run(append.arg(data(kind).trim_start_matches('/')))?;
    let diff = sha256(&layer)?;
    let layer = blob(&layout, &gzip(&layer)?, "application/vnd.oci.image.layer.v1.tar+gzip")?;
    let config =
        text_blob(&work, &layout, &config(kind, &diff, epoch)?, "application/vnd.oci.image.config.v1+json")?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
    });
    let mut manifest = text_blob(&work, &layout, &manifest, "application/vnd.oci.image.manifest.v1+json")?;
    manifest["annotations"] = json!({
        "org.opencontainers.image.ref.name": VERSION,
        "io.containerd.image.name": format!("localhost/{name}:{VERSION}"),
    });
    write(&layout.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string())?;
    write(&layout.join("index.json"), json!({"schemaVersion": 2, "manifests": [manifest]}).to_string())?;
    normalise(&layout, epoch)?;
    let image = out.join(format!("{name}-{VERSION}-{}.oci.tar", std::env::consts::ARCH));
    tar(&layout, &["blobs", "index.json", "oci-layout"], &image, epoch)?;
    Ok(image)
}

/// Returns where the image keeps its data.
fn data(kind: Program) -> String {
    format!("/var/lib/{}", kind.name())
}

fn stage(kind: Program, binaries: &Path, tree: &Path) -> Done {
    let (name, data) = (kind.name(), data(kind));
    copy(&binaries.join(name), &tree.join("usr/bin").join(name), 0o755)?;
    if let Program::Postrider = kind {
        copy(&root().join("dist/container.toml"), &tree.join("etc/postrider/postrider.toml"), 0o644)?;
    }
    write(&tree.join("etc/passwd"), format!("{name}:x:999:999::{data}:/usr/sbin/nologin\n"))?;
    write(&tree.join("etc/group"), format!("{name}:x:999:\n"))?;
    make_dir(&tree.join(data.trim_start_matches('/')))?;
    make_dir(&tree.join("tmp"))
}

fn config(kind: Program, diff: &str, epoch: u64) -> Result<Value, Failure> {
    let (name, data) = (kind.name(), data(kind));
    // Where the container begins; the laboratory measures there, and writes its results.
    let (command, ports) = match kind {
        Program::Postrider => {
            (json!(["serve", "--config", "/etc/postrider/postrider.toml"]), json!({"2525/tcp": {}}))
        }
        Program::Postlab => (json!(["--help"]), json!({})),
    };
    let project = Project::load()?;
    let created =
        output(program("date").args(["--utc", "--date", &format!("@{epoch}"), "+%Y-%m-%dT%H:%M:%SZ"]))?;
    Ok(json!({
        "created": String::from_utf8_lossy(&created).trim(),
        "architecture": if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" },
        "os": "linux",
        "config": {
            "User": USER,
            "ExposedPorts": ports,
            "Entrypoint": [format!("/usr/bin/{name}")],
            "Cmd": command,
            "WorkingDir": data,
            // The queue, and results, must survive the container.
            "Volumes": {data: {}},
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": name,
                "org.opencontainers.image.version": VERSION,
                "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
                "org.opencontainers.image.source": project.repository,
                "org.opencontainers.image.documentation": project.site,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{diff}")]},
    }))
}

fn text_blob(work: &Path, layout: &Path, json: &Value, kind: &str) -> Result<Value, Failure> {
    let file = work.join("blob.json");
    write(&file, json.to_string())?;
    blob(layout, &file, kind)
}

/// Puts a file below the name of its digest, and returns its descriptor.
fn blob(layout: &Path, file: &Path, kind: &str) -> Result<Value, Failure> {
    let digest = sha256(file)?;
    let place = layout.join("blobs/sha256").join(&digest);
    copy(file, &place, 0o644)?;
    let size = fs::metadata(&place).map_err(|e| crate::files::failed("look at", &place, &e))?.len();
    Ok(json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": size}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::read;

    #[test]
    fn every_blob_of_the_layout_has_the_name_of_its_digest() {
        let dir = std::env::temp_dir().join(format!("xtask-image-{}", std::process::id()));
        write(&dir.join("bin/postrider"), "no program").unwrap();
        write(&dir.join("bin/postlab"), "no program").unwrap();
        let lab = build(Program::Postlab, &dir.join("bin"), &dir, 1_700_000_000).unwrap();
        assert!(
            lab.ends_with(format!("postlab-{VERSION}-{}.oci.tar", std::env::consts::ARCH)) && lab.is_file()
        );
        let image = build(Program::Postrider, &dir.join("bin"), &dir, 1_700_000_000).unwrap();
        let unpacked = dir.join("unpacked");
        make_dir(&unpacked).unwrap();
        let mut tar = program("tar");
        output(tar.arg("--extract").arg("--file").arg(&image).arg("--directory").arg(&unpacked)).unwrap();
        let json = |path: &Path| serde_json::from_str::<Value>(&read(path).unwrap()).unwrap();
        let place = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap().to_owned();
            let path = unpacked.join("blobs/sha256").join(&digest);
            assert_eq!(sha256(&path).unwrap(), digest);
            assert_eq!(descriptor["size"], fs::metadata(&path).unwrap().len());
            path
        };
        let manifest = json(&place(&json(&unpacked.join("index.json"))["manifests"][0]));
        let config = json(&place(&manifest["config"]));
        assert_eq!(config["created"], "2023-11-14T22:13:20Z");
        assert_eq!(config["config"]["User"], USER);
        let layer = place(&manifest["layers"][0]);
        let listed =
            output(program("tar").args(["--list", "--verbose", "--gzip", "--file"]).arg(layer)).unwrap();
        let listed = String::from_utf8(listed).unwrap();
        let line = |name: &str| {
            listed.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{listed}"))
        };
        assert!(line(" var/lib/postrider/").contains(" 999/999 "), "{listed}");
        assert!(line(" usr/bin/postrider").starts_with("-rwxr-xr-x 0/0 "), "{listed}");
        remove(&dir).unwrap();
    }
}
