//! Static binaries for packages, whose octets depend on the commit and the toolchain and not on the place of the build.

use crate::{
    files::{copy, make_parent, remove, write},
    shell::{ALL_MAPS, Done, Failure, cargo_command, output, program, root, run, target_dir},
};
use std::{
    env,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Programs that a release contains.
pub(crate) const PROGRAMS: [&str; 3] = ["postrider", "postrider-import", "postlab"];

/// Variables that would change what the compiler writes.
const UNSET: [&str; 6] = [
    "RUSTFLAGS",
    "CFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_PROFILE_DEV_DEBUG",
    "CARGO_PROFILE_RELEASE_DEBUG",
    "CARGO_PROFILE_RELEASE_LTO",
];

/// mimalloc has the time of its compilation inside, and Cargo would not compile it again when SOURCE_DATE_EPOCH changes.
const NO_TIME: &str = "-Wno-builtin-macro-redefined -D__DATE__=\"\" -D__TIME__=\"\"";

/// The target of the machine's architecture whose C library is linked statically.
pub(crate) fn target() -> String {
    format!("{}-unknown-linux-musl", env::consts::ARCH)
}

/// Returns the time of the last commit in seconds, or what `SOURCE_DATE_EPOCH` says.
pub(crate) fn epoch() -> Result<u64, Failure> {
    let given = env::var("SOURCE_DATE_EPOCH").ok();
    let text = match given {
        Some(text) => text,
        None => {
            String::from_utf8_lossy(&output(program("git").args(["log", "-1", "--format=%ct"]))?).into_owned()
        }
    };
    text.trim().parse().map_err(|_| Failure(format!("SOURCE_DATE_EPOCH: `{}` is not a number", text.trim())))
}

/// Returns the path of a tool of cargo: the pinned one that `cargo xtask setup` installs, else the machine's.
pub(crate) fn tool(name: &str) -> PathBuf {
    let own = target_dir().join("tools/bin").join(name);
    if own.is_file() { own } else { name.into() }
}

/// Builds all programs with a profile, strips them into a folder, and starts the daemon once.
pub(crate) fn build(profile: &str) -> Result<PathBuf, Failure> {
    need_toolchain()?;
    run(&mut command(profile)?)?;
    let folder = if profile == "dev" { "debug" } else { profile };
    let built = target_dir().join(target()).join(folder);
    let stripped = target_dir().join("package/bin");
    remove(&stripped)?;
    for name in PROGRAMS {
        let to = stripped.join(name);
        copy(&built.join(name), &to, 0o755)?;
        run(program("strip").arg(&to))?;
        assert_static(&to)?;
    }
    try_start(&stripped.join("postrider"))?;
    Ok(stripped)
}

/// `cargo auditable build`: the binary lists the crates that it was built from, and `cargo audit bin` reads the list.
fn command(profile: &str) -> Result<Command, Failure> {
    let target = target();
    let mut build =
        cargo_command(&["auditable", "build", "--locked", "--package=postrider", "--package=lab"]);
    build.args([ALL_MAPS, "--profile", profile, "--target", &target]);
    for name in UNSET {
        build.env_remove(name);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let tools = [target_dir().join("tools/bin")].into_iter().chain(env::split_paths(&path));
    let path = env::join_paths(tools).map_err(|error| Failure(format!("set PATH: {error}")))?;
    let places = places()?;
    let remap: Vec<String> =
        places.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())).collect();
    let prefix: Vec<String> =
        places.iter().map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display())).collect();
    build.env("PATH", path).env("CARGO_INCREMENTAL", "0").env("SOURCE_DATE_EPOCH", epoch()?.to_string());
    build.env("CARGO_ENCODED_RUSTFLAGS", remap.join("\x1f"));
    build.env(format!("CFLAGS_{}", target.replace('-', "_")), prefix.join(" ") + " " + NO_TIME);
    Ok(build)
}

/// Returns the folders that panics and assertions name, and what stands there instead. Later ones win.
fn places() -> Result<Vec<(PathBuf, &'static str)>, Failure> {
    let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cargo_home = env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let sysroot = output(program("rustc").args(["--print", "sysroot"]))?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&sysroot).trim());
    let target = target_dir();
    let target = target.canonicalize().unwrap_or(target);
    Ok(vec![(sysroot, "/rust"), (cargo_home, "/cargo"), (root(), "/postrider"), (target, "/target")])
}

fn need_toolchain() -> Done {
    let target = target();
    let library = output(program("rustc").args(["--print", "target-libdir", "--target", &target]))?;
    let library = PathBuf::from(String::from_utf8_lossy(&library).trim());
    let has_auditable =
        tool("cargo-auditable").is_file() || program("cargo-auditable").stdin(Stdio::null()).output().is_ok();
    let needs = [
        (library.is_dir(), format!("rustup target add {target}")),
        (program("musl-gcc").arg("--version").output().is_ok(), "apt install musl-tools".to_owned()),
        (has_auditable, "cargo xtask setup --release".to_owned()),
    ];
    let missing: Vec<&str> =
        needs.iter().filter(|(is_there, _)| !is_there).map(|(_, remedy)| remedy.as_str()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure(format!("a package needs tools that are not there; run:\n  {}", missing.join("\n  "))))
}

/// A binary without an interpreter needs no libraries.
fn assert_static(binary: &Path) -> Done {
    let headers = output(program("readelf").args(["--program-headers", "--wide"]).arg(binary))?;
    if String::from_utf8_lossy(&headers).contains("INTERP") {
        return Err(Failure(format!("{} needs libraries of the machine", binary.display())));
    }
    Ok(())
}

/// Starts a daemon, and stops it when it listens. A static binary lacks parts of the C library, and some libraries find out at
/// run time.
fn try_start(binary: &Path) -> Done {
    let dir = root().join("target/package-check");
    remove(&dir)?;
    let config = dir.join("postrider.toml");
    make_parent(&config)?;
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let address = free.map_err(|e| Failure(format!("find a free port: {e}")))?;
    let text = format!(
        "hostname = \"localhost\"\ndata_dir = \"{}\"\n[spool]\nephemeral = true\n[[listen]]\naddress = \"{address}\"\n",
        dir.join("data").display()
    );
    write(&config, text)?;
    let mut daemon = Command::new(binary)
        .args(["serve", "--config"])
        .arg(&config)
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Failure(format!("start {}: {e}", binary.display())))?;
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
