//! Packages: a Debian package, a static binary, a container.

use crate::shell::{ALL_MAPS, Done, Failure, cargo_command, output, program, root, run, target_dir};
use clap::Subcommand;
use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The kinds of packages.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum Package {
    /// Build the Debian package (needs `cargo install cargo-deb`)
    Deb {
        /// Take the binary of a debug build: for tests of the package
        #[arg(long)]
        debug: bool,
    },
    /// Build a binary that needs no libraries
    Static {
        /// A debug build: for tests
        #[arg(long)]
        debug: bool,
    },
    /// Build the container (needs podman, buildah or docker)
    Container {
        /// A debug build: for tests
        #[arg(long)]
        debug: bool,
    },
}

/// Other names of the binary, each a link beside it.
const NAMES: [&str; 4] = ["usr/sbin/sendmail", "usr/lib/sendmail", "usr/bin/mailq", "usr/bin/newaliases"];
/// Shells, with the place of their completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/postrider"),
    ("zsh", "usr/share/zsh/vendor-completions/_postrider"),
    ("fish", "usr/share/fish/vendor_completions.d/postrider.fish"),
];
/// Programs that build containers, the first one that is there.
const BUILDERS: [&str; 3] = ["podman", "buildah", "docker"];

/// Builds a package, and prints its path.
pub(crate) fn build(package: Package) -> Done {
    match package {
        Package::Deb { debug } => debian(debug),
        Package::Static { debug } => {
            println!("{}", static_binary(debug)?.display());
            Ok(())
        }
        Package::Container { debug } => container(debug),
    }
}

fn profile(debug: bool) -> (&'static str, &'static str) {
    if debug { ("dev", "debug") } else { ("release", "release") }
}

fn debian(debug: bool) -> Done {
    let (profile, folder) = profile(debug);
    run(&mut cargo_command(&[
        "build",
        "--locked",
        "--package",
        "postrider",
        ALL_MAPS,
        "--profile",
        profile,
    ]))?;
    let binaries = target_dir().join(folder);
    // cargo-deb takes what it installs from fixed places: crates/postrider/Cargo.toml has the list.
    let stage = root().join("target/package");
    remove(&stage)?;
    stage_files(&binaries, &stage)?;
    write_changelog(&stage.join("changelog"))?;
    let out = target_dir().join("debian");
    let mut deb = cargo_command(&["deb", "--no-build", "--locked", "--package", "postrider", "--output"]);
    run(deb.arg(&out))?;
    println!("{}", out.display());
    Ok(())
}

/// Writes the changelog of the package: one entry, with the time of the last commit, so that a build can be repeated.
fn write_changelog(path: &Path) -> Done {
    let date = output(program("git").args(["log", "-1", "--format=%aD"]))?;
    let date = String::from_utf8_lossy(&date).into_owned();
    let text = format!(
        "postrider ({}) unstable; urgency=medium\n\n  * The changes are in CHANGELOG.md of the repository.\n\n -- The contributors of \
         Postrider <postmaster@postrider.example>  {}\n",
        env!("CARGO_PKG_VERSION"),
        date.trim()
    );
    fs::write(path, text).map_err(|e| failed("write", path, &e))
}

/// Puts everything for /usr and /etc into a folder: the binaries with their names, man pages, completions.
fn stage_files(binaries: &Path, stage: &Path) -> Done {
    for name in ["postrider", "postrider-import"] {
        let installed = stage.join("usr/bin").join(name);
        copy(&binaries.join(name), &installed, 0o755)?;
        run(program("strip").arg(&installed))?;
    }
    let binary = &binaries.join("postrider");
    for name in NAMES {
        let link = stage.join(name);
        make_parent(&link)?;
        // Relative, as Debian wants links within /usr.
        let to = if name == "usr/bin/mailq" || name == "usr/bin/newaliases" {
            "postrider"
        } else {
            "../bin/postrider"
        };
        symlink(to, &link).map_err(|e| failed("link", &link, &e))?;
    }
    let pages = stage.join("man");
    run(Command::new(binary).arg("man").arg(&pages))?;
    for page in list(&pages)? {
        let section = page.extension().and_then(|end| end.to_str()).unwrap_or("1").to_owned();
        let name = page.file_name().unwrap_or_default().to_owned();
        let place = stage.join("usr/share/man").join(format!("man{section}")).join(name);
        copy(&page, &place, 0o644)?;
        run(program("gzip").args(["-9", "-n"]).arg(place))?;
    }
    remove(&pages)?;
    for (shell, place) in COMPLETIONS {
        let output = Command::new(binary).args(["completions", shell]).output();
        let output = output.map_err(|e| failed("run", binary, &e))?;
        let place = stage.join(place);
        make_parent(&place)?;
        fs::write(&place, output.stdout).map_err(|e| failed("write", &place, &e))?;
    }
    Ok(())
}

/// Builds the binary with the C library in it, and returns its path.
fn static_binary(debug: bool) -> Result<PathBuf, Failure> {
    let (profile, folder) = profile(debug);
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let given = std::env::var("RUSTFLAGS").unwrap_or_default();
    let mut build = cargo_command(&["build", "--locked", "--package", "postrider", "--profile", profile]);
    // With a target named, build scripts and macros are built without the flag.
    build.args(["--target", &host]).env("RUSTFLAGS", format!("{given} -Ctarget-feature=+crt-static"));
    run(&mut build)?;
    let binary = target_dir().join(host).join(folder).join("postrider");
    let shown =
        program("file").arg("-b").arg(&binary).output().map_err(|e| failed("look at", &binary, &e))?;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    if !shown.contains("static") {
        return Err(Failure(format!("{} is not static: {shown}", binary.display())));
    }
    try_start(&binary)?;
    Ok(binary)
}

/// Starts a daemon, and stops it when it listens. A static binary lacks parts of the C library, and some libraries find out at
/// run time.
fn try_start(binary: &Path) -> Done {
    let dir = root().join("target/package-check");
    remove(&dir)?;
    let config = dir.join("postrider.toml");
    make_parent(&config)?;
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let address = free.map_err(|e| failed("find a free port for", binary, &e))?;
    let text = format!(
        "hostname = \"localhost\"\ndata_dir = \"{}\"\n[spool]\nephemeral = true\n[[listen]]\naddress = \"{address}\"\n",
        dir.join("data").display()
    );
    fs::write(&config, text).map_err(|e| failed("write", &config, &e))?;
    let mut daemon = Command::new(binary)
        .args(["serve", "--config"])
        .arg(&config)
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| failed("start", binary, &e))?;
    let lines = daemon.stderr.take().into_iter().flat_map(|output| BufReader::new(output).lines());
    let mut said = String::new();
    let listens = lines.map_while(Result::ok).any(|line| {
        said.push_str(&line);
        said.push('\n');
        line.contains("listening on")
    });
    let _ = daemon.kill();
    let _ = daemon.wait();
    if listens {
        return Ok(());
    }
    Err(Failure(format!("{} does not start:\n{said}", binary.display())))
}

fn container(debug: bool) -> Done {
    let is_there =
        |name: &&&str| program(name).arg("--version").output().is_ok_and(|out| out.status.success());
    let Some(builder) = BUILDERS.iter().find(is_there) else {
        return Err(Failure(format!("none of {} is installed", BUILDERS.join(", "))));
    };
    let context = root().join("target/container");
    remove(&context)?;
    let installed = context.join("postrider");
    copy(&static_binary(debug)?, &installed, 0o755)?;
    run(program("strip").arg(&installed))?;
    let dist = root().join("dist");
    copy(&dist.join("container.toml"), &context.join("postrider.toml"), 0o644)?;
    for (name, text) in [
        ("passwd", "postrider:x:999:999::/var/lib/postrider:/usr/sbin/nologin\n"),
        ("group", "postrider:x:999:\n"),
    ] {
        let path = context.join(name);
        fs::write(&path, text).map_err(|e| failed("write", &path, &e))?;
    }
    run(program(builder)
        .args(["build", "--tag", "postrider", "--file"])
        .arg(dist.join("Containerfile"))
        .arg(&context))
}

fn list(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(dir).map_err(|e| failed("list", dir, &e))?;
    Ok(entries.filter_map(Result::ok).map(|entry| entry.path()).collect())
}

fn copy(from: &Path, to: &Path, mode: u32) -> Done {
    make_parent(to)?;
    fs::copy(from, to).map_err(|e| failed("copy", from, &e))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).map_err(|e| failed("change", to, &e))
}

fn make_parent(path: &Path) -> Done {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).map_err(|e| failed("make", parent, &e))
}

fn remove(dir: &Path) -> Done {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(failed("remove", dir, &e)),
        _ => Ok(()),
    }
}

fn failed(doing: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure(format!("{doing} {}: {error}", path.display()))
}
