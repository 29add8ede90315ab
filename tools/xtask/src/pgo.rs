//! A release build with profile-guided optimisation (PGO): an instrumented build relays mail, and the compiler lays out
//! the code by the counts.

use crate::shell::{Done, Failure, cargo, cargo_command, output, program, run, target_dir};
use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

/// The work, as options of `postlab source`: a connection a message, kept ones, large mail, a lone sender.
const LOADS: [&str; 4] =
    ["-s 50 -m 20000 -l 1024", "-d -s 50 -m 30000 -l 1024", "-s 50 -m 3000 -l 32768", "-s 1 -m 2000"];
/// For a start, or for a queue to become empty.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// Builds with the profile and prints the path of the program.
pub(crate) fn build() -> Done {
    let (host, merger) = toolchain()?;
    let dir = target_dir().join("pgo");
    let (counts, profile) = (dir.join("counts"), dir.join("postrider.profdata"));
    remove(&counts)?;
    cargo(&["build", "--locked", "--profile=dist", "--package", "lab"])?;
    let instrumented = compile(&dir.join("instrumented"), &host, "-Cprofile-generate=", &counts)?;
    work(&instrumented, &dir.join("work"))?;
    output(program(merger).args(["merge", "--output"]).arg(&profile).arg(&counts))?;
    let built = compile(&dir, &host, "-Cprofile-use=", &profile)?;
    println!("{}", built.display());
    Ok(())
}

/// The machine's name for the compiler, and the program that adds up the counts.
fn toolchain() -> Result<(String, PathBuf), Failure> {
    let rustc = || program(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let version = text(output(rustc().arg("-vV"))?);
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or_else(|| Failure("`rustc -vV` names no host".to_owned()))?;
    let sysroot = text(output(rustc().args(["--print", "sysroot"]))?);
    let merger = Path::new(sysroot.trim()).join("lib/rustlib").join(host).join("bin/llvm-profdata");
    if merger.exists() {
        return Ok((host.to_owned(), merger));
    }
    let why = "profile-guided optimisation needs the compiler's own tools: `rustup component add llvm-tools`";
    Err(Failure(format!("{} is not there; {why}", merger.display())))
}

/// With a target named, what runs at compile time is built without the flag.
fn compile(dir: &Path, host: &str, flag: &str, path: &Path) -> Result<PathBuf, Failure> {
    let given = std::env::var("RUSTFLAGS").unwrap_or_default();
    let own = format!("{flag}{}", path.display());
    let flags: Vec<&str> = given.split_whitespace().chain([&*own]).collect();
    let options = [
        "build",
        "--locked",
        "--profile=dist",
        "--package",
        "postrider",
        "--bin",
        "postrider",
        "--target",
        host,
    ];
    let mut build = cargo_command(&options);
    // A path may have spaces, which divide those of RUSTFLAGS.
    run(build.arg("--target-dir").arg(dir).env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")))?;
    Ok(dir.join(host).join("dist/postrider"))
}

/// Ends with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(command: &mut Command) -> Result<Self, Failure> {
        command.spawn().map(Self).map_err(|error| Failure(format!("start {command:?}: {error}")))
    }

    /// The counts are written at an orderly end only.
    fn stop(mut self) -> Done {
        output(program("sh").args(["-c", "kill $0"]).arg(self.0.id().to_string()))?;
        match self.0.wait() {
            Ok(status) if status.success() => Ok(()),
            ended => Err(Failure(format!("the daemon ended with {ended:?}"))),
        }
    }
}

fn work(daemon: &Path, dir: &Path) -> Done {
    remove(dir)?;
    let config = dir.join("postrider.toml");
    let (inward, outward) = (free_address()?, free_address()?);
    let text = format!(
        "hostname = \"pgo.test\"\ndata_dir = {:?}\n[[listen]]\naddress = \"{inward}\"\n[relay]\n\
         networks = [\"127.0.0.0/8\"]\n[[route]]\ndomains = [\"*\"]\nsmarthost = \"{outward}\"\ntls = \"off\"\n\
         [delivery]\nconnections_per_destination = 50\n[log]\nfile = {:?}\n",
        dir.join("data"),
        dir.join("mail.log"),
    );
    let written = fs::create_dir_all(dir).and_then(|()| fs::write(&config, text));
    written.map_err(|error| Failure(format!("write {}: {error}", config.display())))?;
    let postlab = target_dir().join("dist/postlab");
    let _sink = Running::start(program(&postlab).arg("sink").arg(outward.to_string()))?;
    until("the sink listens", || Ok(TcpStream::connect(outward).is_ok()))?;
    let running = Running::start(program(daemon).args(["serve", "--config"]).arg(&config))?;
    until("the daemon listens", || Ok(TcpStream::connect(inward).is_ok()))?;
    for load in LOADS {
        run(program(&postlab).arg("source").args(load.split(' ')).arg(inward.to_string()))?;
        let mut count = program(daemon);
        count.args(["queue", "count", "--config"]).arg(&config);
        until("all is delivered", || Ok(output(&mut count)?.trim_ascii() == b"0"))?;
    }
    running.stop()?;
    remove(dir)
}

fn until(what: &str, mut is_so: impl FnMut() -> Result<bool, Failure>) -> Done {
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > WAIT_MAX {
            return Err(Failure(format!("timed out: {what}")));
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn free_address() -> Result<SocketAddr, Failure> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    bound.map_err(|error| Failure(format!("find a free port: {error}")))
}

fn remove(dir: &Path) -> Done {
    match fs::remove_dir_all(dir) {
        Err(error) if dir.exists() => Err(Failure(format!("remove {}: {error}", dir.display()))),
        _ => Ok(()),
    }
}
