//! Installs the programs that tests talk to. Tools are installed with apt as root; servers are only
//! unpacked, into target/interop, since installing one would start it and throw out the machine's
//! own. Whatever is missing in the end is said loudly: its tests are skipped.

use crate::shell::{Done, Failure, output, program, run, target_dir};
use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// A program or a library that some tests need.
struct Wanted {
    sign: Sign,
    package: &'static str,
    place: Place,
    purpose: &'static str,
}

/// Where a package has to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Installed on the machine.
    Machine,
    /// Unpacked into the tree of all servers.
    Servers,
    /// Unpacked into a tree of its own: its `sendmail` would replace that of another server.
    Own,
    /// As `Own`, together with the packages that it needs and the machine lacks: a mail server whose `sendmail` would
    /// replace that of another one.
    OwnServer,
    /// A package of PyPI, in an environment of its own.
    Python,
    /// Programs of a Go module, compiled here.
    Go,
}

/// How to see that something is installed.
enum Sign {
    File(&'static str),
    /// A module, by its path below Perl's folders.
    PerlModule(&'static str),
    /// A file in the directory of what is unpacked.
    Unpacked(&'static str),
    /// A header of C, as programs include it.
    Header(&'static str),
    /// `initdb` of any release of PostgreSQL, which has a folder for each.
    Postgres,
}

const fn tool(file: &'static str, package: &'static str, purpose: &'static str) -> Wanted {
    Wanted { sign: Sign::File(file), package, place: Place::Machine, purpose }
}

const fn perl_module(file: &'static str, package: &'static str, purpose: &'static str) -> Wanted {
    Wanted { sign: Sign::PerlModule(file), package, place: Place::Machine, purpose }
}

const fn server(file: &'static str, package: &'static str, purpose: &'static str) -> Wanted {
    Wanted { sign: Sign::File(file), package, place: Place::Servers, purpose }
}

const fn unpacked(file: &'static str, package: &'static str, purpose: &'static str) -> Wanted {
    Wanted { sign: Sign::Unpacked(file), package, place: Place::Servers, purpose }
}

const fn own(file: &'static str, package: &'static str, purpose: &'static str) -> Wanted {
    Wanted { sign: Sign::Unpacked(file), package, place: Place::Own, purpose }
}

const fn own_server(file: &'static str, package: &'static str, purpose: &'static str) -> Wanted {
    Wanted { sign: Sign::Unpacked(file), package, place: Place::OwnServer, purpose }
}

const fn go(file: &'static str, package: &'static str, purpose: &'static str) -> Wanted {
    Wanted { sign: Sign::Unpacked(file), package, place: Place::Go, purpose }
}

/// The module of those programs: the version that the tests were written for, and one that the Go of Debian 12 compiles.
const PEBBLE: &str = "github.com/letsencrypt/pebble/v2";
const PEBBLE_VERSIONS: [&str; 2] = ["v2.10.1", "v2.4.0"];

const WANTED: [Wanted; 50] = [
    tool("curl", "curl", "hands in the first mail, as the README does"),
    tool("python3", "python3", "a client and a server that are not ours: smtplib"),
    tool("swaks", "swaks", "a client that can misbehave"),
    perl_module("Net/SSLeay.pm", "libnet-ssleay-perl", "swaks' STARTTLS"),
    tool("msmtp", "msmtp", "a client with STARTTLS of its own"),
    tool("gsasl", "gsasl", "a client with SCRAM and channel binding"),
    tool("postgrey", "postgrey", "a policy server that greylists"),
    perl_module("Authen/SASL.pm", "libauthen-sasl-perl", "logins of swaks"),
    Wanted {
        sign: Sign::Header("libmilter/mfapi.h"),
        package: "libmilter-dev",
        place: Place::Machine,
        purpose: "the filter that the recorded dialogs are compared with",
    },
    tool("pflogsumm", "pflogsumm", "reads the log that looks like Postfix's"),
    tool("ministat", "ministat", "finds the same differences as `postlab stat`, or not"),
    tool("bonnie++", "bonnie++", "prints the fields that `postlab bonnie` prints"),
    tool("postal", "postal", "understands the options of `postlab postal`"),
    tool("cdb", "tinycdb", "reads and writes the same files of maps"),
    tool("valgrind", "valgrind", "counts instructions for `cargo xtask bench`"),
    tool("nmap", "nmap", "looks for an open relay"),
    tool("strace", "strace", "records system calls, for power cuts as strict as POSIX allows"),
    tool("mkfs.ext4", "e2fsprogs", "a file system to cut the power of"),
    tool("mkfs.xfs", "xfsprogs", "a file system to cut the power of"),
    tool("mkfs.btrfs", "btrfs-progs", "a file system to cut the power of"),
    tool("nbdkit", "nbdkit", "a disk that answers EIO when told to"),
    tool("nbdfuse", "libnbd-bin", "makes a file of that disk"),
    server("postfix/sbin/smtpd", "postfix", "a next hop, and a sender"),
    server("postfix/postfix-pcre.so", "postfix-pcre", "patterns of Perl in tables to import"),
    server("postfix/postfix-sqlite.so", "postfix-sqlite", "tables in SQLite to import"),
    server("postfix/postfix-pgsql.so", "postfix-pgsql", "tables in PostgreSQL to import"),
    server("postfix/postfix-mysql.so", "postfix-mysql", "tables in MariaDB to import"),
    server("dovecot/lmtp", "dovecot-lmtpd", "takes mail by LMTP"),
    server("dovecot/modules/libdriver_mysql.so", "dovecot-mysql", "users in MariaDB"),
    tool("openssl", "openssl", "a client with a certificate"),
    tool("go", "golang-go", "a client that is not ours: net/smtp"),
    tool("pip3", "python3-pip", "installs scramp"),
    own("nullmailer/usr/lib/nullmailer/smtp", "nullmailer", "a client of satellites"),
    own("dma/usr/sbin/dma", "dma", "a client of satellites"),
    own("prometheus/usr/bin/promtool", "prometheus", "judges metrics and alerts"),
    own(
        "libnss-extrausers/usr/lib/libnss_extrausers.so.2",
        "libnss-extrausers",
        "users that are not in /etc/passwd",
    ),
    own("fail2ban/usr/bin/fail2ban-regex", "fail2ban", "reads the log that looks like Postfix's"),
    own_server("exim4-daemon-light/usr/sbin/exim4", "exim4-daemon-light", "a queue to import"),
    own_server("sendmail-bin/usr/libexec/sendmail/sendmail", "sendmail-bin", "a queue to import"),
    Wanted {
        sign: Sign::Unpacked("python/bin/python"),
        package: "scramp",
        place: Place::Python,
        purpose: "SCRAM that is not ours, with channel binding",
    },
    Wanted {
        sign: Sign::Unpacked("python/bin/dkimverify"),
        package: "dkimpy[ed25519]",
        place: Place::Python,
        purpose: "verifies signatures of mail",
    },
    go("go/bin/pebble", "cmd/pebble", "an authority for certificates (ACME)"),
    go("go/bin/pebble-challtestsrv", "cmd/pebble-challtestsrv", "the DNS of that authority"),
    Wanted {
        sign: Sign::Postgres,
        package: "postgresql",
        place: Place::Servers,
        purpose: "maps in PostgreSQL",
    },
    // Both from the same tree: the script that makes the tables looks for a program of the client beside the server.
    unpacked("usr/sbin/mariadbd", "mariadb-server-core", "maps in MySQL and MariaDB"),
    unpacked("usr/bin/my_print_defaults", "mariadb-client-core", "makes tables in MariaDB"),
    server("redis-server", "redis-server", "maps in Redis"),
    server("slapd", "slapd", "maps in a directory"),
    server("rspamd", "rspamd", "a filter of spam"),
    server("opendkim", "opendkim", "a filter that signs and verifies"),
];

/// Directories of programs in distributions, below the root of a tree.
const FOLDERS: [&str; 7] =
    ["usr/local/go/bin", "usr/local/bin", "usr/bin", "usr/sbin", "bin", "sbin", "usr/lib"];

/// Returns the directory in which servers are unpacked; the interoperability tests look there.
fn interop_dir() -> PathBuf {
    target_dir().join("interop")
}

impl Sign {
    fn find(&self) -> Option<PathBuf> {
        match self {
            Self::File(file) => find(file),
            Self::Header(file) => Some(Path::new("/usr/include").join(file)).filter(|path| path.is_file()),
            Self::Unpacked(file) => Some(interop_dir().join(file)).filter(|path| path.exists()),
            Self::PerlModule(file) => {
                let folders = output(program("perl").args(["-e", "print join ':', @INC"])).ok()?;
                let folders = String::from_utf8_lossy(&folders);
                folders.split(':').map(|folder| Path::new(folder).join(file)).find(|path| path.is_file())
            }
            Self::Postgres => {
                let trees = [PathBuf::from("/"), interop_dir()];
                let releases =
                    trees.iter().filter_map(|tree| fs::read_dir(tree.join("usr/lib/postgresql")).ok());
                let programs = releases.flatten().flatten().map(|entry| entry.path().join("bin/initdb"));
                programs.filter(|path| path.is_file()).max()
            }
        }
    }
}

/// Returns the path of a program, if it is there.
fn find(file: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let trees = [PathBuf::from("/"), interop_dir()];
    let known = trees.iter().flat_map(|tree| FOLDERS.iter().map(|folder| tree.join(folder)));
    env::split_paths(&path).chain(known).map(|folder| folder.join(file)).find(|path| path.is_file())
}

/// Fails only where everything could have been installed and was not: offline is no fault.
pub(crate) fn setup() -> Done {
    let missing: Vec<&Wanted> = WANTED.iter().filter(|w| w.sign.find().is_none()).collect();
    if !missing.is_empty() {
        install(&missing);
    }
    let mut absent = Vec::new();
    for wanted in &WANTED {
        match wanted.sign.find() {
            Some(path) => eprintln!("setup: {:<18} {}", wanted.package, path.display()),
            None => absent.push(wanted),
        }
    }
    for wanted in &absent {
        eprintln!("setup: {:<18} NOT INSTALLED: {}; its tests are SKIPPED", wanted.package, wanted.purpose);
    }
    Ok(())
}

/// As far as it goes; the caller looks what is there afterwards.
fn install(missing: &[&Wanted]) {
    if find("apt-get").is_none() {
        eprintln!("setup: there is no apt here; install by hand what is missing below");
        return;
    }
    let tools: Vec<&str> = missing.iter().filter(|w| w.place == Place::Machine).map(|w| w.package).collect();
    let is_root = is_root();
    if is_root {
        say(run(program("apt-get").args(["update", "-qq"])));
    }
    if !tools.is_empty() && is_root {
        eprintln!(
            "setup: installs these packages of the system with apt-get, which may upgrade libraries that they need: {}",
            tools.join(" ")
        );
        say(install_tools(&tools));
    } else if !tools.is_empty() {
        eprintln!("setup: only root can install; try `sudo apt-get install {}`", tools.join(" "));
    }
    for wanted in missing {
        match wanted.place {
            Place::Machine => {}
            Place::Servers => say(unpack(wanted.package, &interop_dir())),
            Place::OwnServer => say(unpack(wanted.package, &interop_dir().join(wanted.package))),
            Place::Own => say(unpack_alone(wanted.package)),
            Place::Python => say(install_python(wanted.package)),
            Place::Go => say(install_go(wanted.package)),
        }
    }
}

fn say(done: Done) {
    if let Err(failure) = done {
        eprintln!("setup: {failure}");
    }
}

fn is_root() -> bool {
    let id = output(program("id").arg("-u"));
    id.is_ok_and(|id| id.trim_ascii() == b"0")
}

/// All at once, else one by one: one that is missing in this release must not keep the others out.
fn install_tools(packages: &[&str]) -> Done {
    let _guard = NoDaemons::new();
    let install = |packages: &[&str]| {
        let mut apt = program("apt-get");
        // Services that come with a package are not started in single-user mode.
        apt.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1").args([
            "install",
            "-y",
            "-qq",
            "--no-install-recommends",
            "--no-upgrade",
        ]);
        run(apt.args(packages))
    };
    if install(packages).is_err() {
        packages.iter().for_each(|package| say(install(&[package])));
    }
    Ok(())
}

/// Tells Debian's scripts to start nothing, as long as it lives (policy-rc.d answers 101: not allowed).
struct NoDaemons {
    made: bool,
}

const POLICY: &str = "/usr/sbin/policy-rc.d";

impl NoDaemons {
    fn new() -> Self {
        let made = !Path::new(POLICY).exists() && fs::write(POLICY, "#!/bin/sh\nexit 101\n").is_ok();
        let made = made && run(program("chmod").args(["755", POLICY])).is_ok();
        Self { made }
    }
}

impl Drop for NoDaemons {
    fn drop(&mut self) {
        if self.made {
            let _ = fs::remove_file(POLICY);
        }
    }
}

/// Compiles a program of the module, in the newest version that works.
fn install_go(package: &str) -> Done {
    let bin = interop_dir().join("go/bin");
    fs::create_dir_all(&bin).map_err(|error| Failure(format!("make {}: {error}", bin.display())))?;
    let go = find("go").ok_or_else(|| Failure("there is no Go".to_owned()))?;
    let install = |version: &str| {
        let module = format!("{PEBBLE}/{package}@{version}");
        run(program(&go).args(["install", &module]).env("GOBIN", &bin))
    };
    let [newest, older] = PEBBLE_VERSIONS;
    install(newest).or_else(|_| install(older))
}

/// A server and what it needs that this machine lacks. Nothing of it is run or configured.
fn unpack(package: &str, dir: &Path) -> Done {
    let plan =
        output(program("apt-get").args(["install", "--simulate", "--no-install-recommends", package]))?;
    let mut packages = planned(&String::from_utf8_lossy(&plan));
    // It may be installed, without what is to stand beside it.
    if !packages.iter().any(|planned| planned == package) {
        packages.push(package.to_owned());
    }
    let debs = dir.join("debs");
    fs::create_dir_all(&debs).map_err(|error| Failure(format!("make {}: {error}", debs.display())))?;
    run(program("apt-get").args(["download", "-qq"]).args(&packages).current_dir(&debs))?;
    let entries =
        fs::read_dir(&debs).map_err(|error| Failure(format!("read {}: {error}", debs.display())))?;
    for deb in entries.flatten() {
        run(program("dpkg-deb").arg("-x").arg(deb.path()).arg(dir))?;
        // Else the next server would be unpacked together with this one.
        let _ = fs::remove_file(deb.path());
    }
    Ok(())
}

/// A package without those it needs, in a directory of its own beside its version.
fn unpack_alone(package: &str) -> Done {
    let dir = interop_dir().join(package);
    fs::create_dir_all(&dir).map_err(|error| Failure(format!("make {}: {error}", dir.display())))?;
    run(program("apt-get").args(["download", "-qq", package]).current_dir(&dir))?;
    let entries = fs::read_dir(&dir).map_err(|error| Failure(format!("read {}: {error}", dir.display())))?;
    let is_package = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "deb");
    for deb in entries.flatten().map(|entry| entry.path()).filter(is_package) {
        let version = output(program("dpkg-deb").arg("-f").arg(&deb).arg("Version"))?;
        run(program("dpkg-deb").arg("-x").arg(&deb).arg(&dir))?;
        fs::write(dir.join("version"), version)
            .map_err(|error| Failure(format!("write into {}: {error}", dir.display())))?;
        let _ = fs::remove_file(&deb);
    }
    Ok(())
}

/// A package of PyPI in an environment of its own.
fn install_python(package: &str) -> Done {
    let dir = interop_dir().join("python");
    run(program("python3").args(["-m", "venv"]).arg(&dir))?;
    run(program(dir.join("bin/pip").to_string_lossy().as_ref()).args(["install", "-q", package]))
}

/// The packages that `apt-get install --simulate` would install.
fn planned(plan: &str) -> Vec<String> {
    let names = plan.lines().filter_map(|line| line.strip_prefix("Inst "));
    names.filter_map(|rest| rest.split(' ').next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_names_the_server_and_what_it_lacks() {
        let plan = "NOTE: This is only a simulation!\nReading package lists...\n\
                    Remv exim4 [4.96]\n\
                    Inst ssl-cert (1.1.2 Debian:12.11/stable [all])\n\
                    Inst postfix [3.7.10] (3.7.11 Debian:12.11/stable [amd64])\n\
                    Conf ssl-cert (1.1.2 Debian:12.11/stable [all])\n";
        assert_eq!(planned(plan), ["ssl-cert", "postfix"]);
    }
}
