//! Data bases and a directory that maps ask: programs of the machine, each started for one test, on its own port or socket.

use super::{free_address, program, until};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::{fs as unix, net::UnixStream, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// Ends a program when it is dropped.
pub struct Background(pub Child);

impl Drop for Background {
    fn drop(&mut self) {
        // Some have processes that end with the first, which has to be asked.
        let pid = rustix::process::Pid::from_child(&self.0);
        // One that a test has stopped ends when it continues.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        // MariaDB waits for this one.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
        let _ = self.0.wait();
    }
}

impl Background {
    /// Ends the program without a word.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Stops the program: it accepts connections, and does not answer.
    pub fn stop(&self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        // The signal reaches each thread by itself.
        let tasks = format!("/proc/{}/task", self.0.id());
        let is_stopped = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        };
        until("every thread is stopped", || fs::read_dir(&tasks).unwrap().flatten().all(is_stopped));
    }
}

fn run(command: &mut Command, input: &str) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(output.status.success(), "{command:?}: {said:?}");
}

/// Writes `server.pem` and `server.key`, which are for 127.0.0.1.
fn certificate(dir: &Path) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    fs::write(dir.join("server.pem"), cert.pem()).unwrap();
    fs::write(dir.join("server.key"), signing_key.serialize_pem()).unwrap();
    fs::set_permissions(dir.join("server.key"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

/// A user for servers that do not start as root.
const NOBODY: u32 = 65534;

/// Redis on a Unix socket, and with TLS on a port.
pub struct Redis {
    pub dir: tempfile::TempDir,
    pub tls: SocketAddr,
    options: Vec<String>,
    pub process: Background,
}

impl Redis {
    /// Starts the server with options; none if it is not installed.
    pub fn start(options: &[&str]) -> Option<Self> {
        let (dir, tls) = (tempfile::tempdir().unwrap(), free_address());
        certificate(dir.path());
        let port = tls.port().to_string();
        let with_tls = ["--tls-port", &port, "--tls-cert-file", "server.pem", "--tls-key-file", "server.key"];
        let more = ["--tls-ca-cert-file", "server.pem", "--tls-auth-clients", "no"];
        let options = with_tls.iter().chain(&more).chain(options);
        let options: Vec<String> = options.map(|&option| option.to_owned()).collect();
        let process = Self::launch(dir.path(), &options)?;
        Some(Self { dir, tls, options, process })
    }

    fn launch(dir: &Path, options: &[String]) -> Option<Background> {
        let socket = dir.join("redis.sock");
        let child = program("redis-server")?
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&socket)
            .args(options)
            .current_dir(dir)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let process = Background(child);
        until("Redis listens", || UnixStream::connect(&socket).is_ok());
        Some(process)
    }

    /// Starts the server again, with nothing in it.
    pub fn restart(&mut self) {
        self.process.kill();
        let _ = fs::remove_file(self.socket());
        self.process = Self::launch(self.dir.path(), &self.options).unwrap();
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    /// Sends commands, and expects `+OK` for each.
    pub fn say(&self, commands: &[&str]) {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        for command in commands {
            stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
            let mut reply = [0; 5];
            stream.read_exact(&mut reply).unwrap();
            assert_eq!(&reply, b"+OK\r\n", "{command}");
        }
    }
}

/// PostgreSQL on a port and a Unix socket, with the user `mail`, whose password is `s3cret` over TCP.
pub struct Postgres {
    pub dir: tempfile::TempDir,
    bin: PathBuf,
    pub address: SocketAddr,
    pub process: Background,
}

impl Postgres {
    /// Makes a database with the SQL, and starts it; none if it is not installed.
    pub fn start(sql: &str) -> Option<Self> {
        let Some(bin) = postgres_programs() else {
            println!("SKIPPED: postgresql is not installed (cargo xtask setup)");
            return None;
        };
        let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
        let at = dir.path();
        fs::write(at.join("password"), "s3cret\n").unwrap();
        certificate(at);
        if rustix::process::geteuid().is_root() {
            unix::chown(at, Some(NOBODY), Some(NOBODY)).unwrap();
            for name in ["password", "server.pem", "server.key"] {
                unix::chown(at.join(name), Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        run(
            as_nobody(&bin.join("initdb"))
                .args(["--no-sync", "--auth-local=trust", "--auth-host=scram-sha-256", "-U", "mail"])
                .arg(format!("--pwfile={}", at.join("password").display()))
                .arg(at.join("data"))
                .env("LC_ALL", "C.UTF-8")
                .current_dir(at),
            "",
        );
        let process = Self::launch(&bin, at, address);
        let mut postgres = Self { dir, bin, address, process };
        postgres.wait();
        run(&mut postgres.psql(), sql);
        Some(postgres)
    }

    fn launch(bin: &Path, dir: &Path, address: SocketAddr) -> Background {
        let file = |name: &str| dir.join(name).display().to_string();
        let mut command = as_nobody(&bin.join("postgres"));
        command.arg("-D").arg(dir.join("data")).arg("-k").arg(dir).arg("-p").arg(address.port().to_string());
        for setting in [
            "listen_addresses=127.0.0.1".to_owned(),
            "fsync=off".to_owned(),
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", file("server.pem")),
            format!("ssl_key_file={}", file("server.key")),
        ] {
            command.arg("-c").arg(setting);
        }
        let log = fs::File::create(dir.join("log")).unwrap();
        Background(command.current_dir(dir).stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    fn psql(&self) -> Command {
        let mut psql = Command::new(self.bin.join("psql"));
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "mail", "-d", "postgres", "-h"]);
        psql.arg(self.dir.path()).arg("-p").arg(self.address.port().to_string());
        psql
    }

    fn wait(&mut self) {
        let is_ready = |psql: &mut Command| {
            let asked = psql.args(["-c", "SELECT 1"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
            asked.is_ok_and(|status| status.success())
        };
        until("PostgreSQL answers", || is_ready(&mut self.psql()));
    }

    /// Kills the server, and starts it again.
    pub fn restart(&mut self) {
        self.process.kill();
        // Its other processes notice that it is gone, and hold the memory until then.
        until("PostgreSQL starts again", || {
            let _ = fs::remove_file(self.dir.path().join("data/postmaster.pid"));
            self.process = Self::launch(&self.bin, self.dir.path(), self.address);
            let mut ended = false;
            until("it answers or ends", || {
                ended = self.process.0.try_wait().unwrap().is_some();
                ended || UnixStream::connect(self.socket()).is_ok()
            });
            !ended
        });
        self.wait();
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join(format!(".s.PGSQL.{}", self.address.port()))
    }

    /// Returns the connection over the Unix socket, as `connection` of a map.
    pub fn here(&self) -> String {
        let (dir, port) = (self.dir.path().display(), self.address.port());
        format!("host={dir} port={port} user=mail dbname=postgres")
    }
}

/// Returns a command for a user other than root, whom these servers refuse.
fn as_nobody(file: &Path) -> Command {
    let mut command = Command::new(file);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// The programs of the newest release that is installed or unpacked.
fn postgres_programs() -> Option<PathBuf> {
    let unpacked = Path::new(super::BINARY).ancestors().nth(2)?.join("interop");
    let releases = [Path::new("/"), &unpacked]
        .into_iter()
        .filter_map(|tree| fs::read_dir(tree.join("usr/lib/postgresql")).ok());
    let bins = releases.flatten().flatten().map(|entry| entry.path().join("bin"));
    bins.filter(|bin| bin.join("initdb").is_file()).max()
}

/// MariaDB on a port with TLS and a Unix socket, with the database `mail` and the user `mail`, whose password is `s3cret` over TCP.
pub struct MariaDb {
    pub dir: tempfile::TempDir,
    socket: PathBuf,
    pub address: SocketAddr,
    pub process: Background,
}

impl MariaDb {
    /// Makes a database with these statements, and starts it; none if it is not installed.
    pub fn start(statements: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("maria.sock");
        Self::start_in(dir, socket, statements)
    }

    /// The same, where its files and its socket are to be.
    pub fn start_in(dir: tempfile::TempDir, socket: PathBuf, statements: &[&str]) -> Option<Self> {
        let address = free_address();
        let at = dir.path();
        certificate(at);
        let server = program("mariadbd")?;
        let base = Path::new(server.get_program()).ancestors().nth(2)?.to_owned();
        let first = [
            "CREATE DATABASE mail",
            "CREATE USER mail@localhost",
            "CREATE USER mail@127.0.0.1 IDENTIFIED BY 's3cret'",
            "GRANT SELECT ON *.* TO mail@localhost, mail@127.0.0.1",
            "USE mail",
        ];
        let lines = first.iter().chain(statements).map(|statement| format!("{statement};\n"));
        fs::write(at.join("first.sql"), lines.collect::<String>()).unwrap();
        if rustix::process::geteuid().is_root() {
            unix::chown(at, Some(NOBODY), Some(NOBODY)).unwrap();
            for name in ["first.sql", "server.pem", "server.key"] {
                unix::chown(at.join(name), Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        let mut install = as_nobody(&base.join("bin/mariadb-install-db"));
        install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        install.args(["--skip-name-resolve", "--force"]);
        install.arg(format!("--basedir={}", base.display()));
        install.arg(format!("--datadir={}", at.join("data").display()));
        run(libraries_of(&server, &mut install).current_dir(at), "");
        let first = format!("--init-file={}", at.join("first.sql").display());
        let process = Self::launch(at, &socket, address, &[&first]);
        Some(Self { dir, socket, address, process })
    }

    fn launch(dir: &Path, socket: &Path, address: SocketAddr, options: &[&str]) -> Background {
        let server = program("mariadbd").unwrap();
        let mut command = as_nobody(Path::new(server.get_program()));
        let base = Path::new(server.get_program()).ancestors().nth(2).unwrap();
        let file = |name: &str| dir.join(name).display().to_string();
        command.args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve"]);
        command.arg("--performance-schema=OFF");
        for (option, value) in [
            ("basedir", base.display().to_string()),
            ("datadir", file("data")),
            ("socket", socket.display().to_string()),
            ("pid-file", file("pid")),
            ("log-error", file("log")),
            ("port", address.port().to_string()),
            ("ssl-cert", file("server.pem")),
            ("ssl-key", file("server.key")),
        ] {
            command.arg(format!("--{option}={value}"));
        }
        command.args(options).current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Background(libraries_of(&server, &mut command).spawn().unwrap());
        // It listens when the statements are done.
        until("MariaDB listens", || UnixStream::connect(socket).is_ok());
        process
    }

    /// Kills the server, and starts it again.
    pub fn restart(&mut self) {
        self.process.kill();
        let _ = fs::remove_file(&self.socket);
        self.process = Self::launch(self.dir.path(), &self.socket, self.address, &[]);
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the connection over the Unix socket, as `connection` of a map.
    pub fn here(&self) -> String {
        format!("mysql://mail@localhost/mail?socket={}", self.socket().display())
    }
}

/// Lets a command find the libraries that a program has with it.
fn libraries_of<'c>(program: &Command, command: &'c mut Command) -> &'c mut Command {
    for (name, value) in program.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command
}

/// OpenLDAP's slapd on a port, with the suffix `dc=b,dc=test` and the administrator `cn=admin,dc=b,dc=test` (`s3cret`).
pub struct Slapd {
    pub dir: tempfile::TempDir,
    pub address: SocketAddr,
    /// The address with TLS.
    pub tls: SocketAddr,
    pub process: Background,
}

impl Slapd {
    /// Makes a directory with these people, each a name and its values of `mail` and `description`; none if it is not
    /// installed.
    pub fn start(people: &[(&str, &[&str])]) -> Option<Self> {
        let mut slapadd = program("slapadd")?;
        let (dir, address, tls) = (tempfile::tempdir().unwrap(), free_address(), free_address());
        certificate(dir.path());
        let at = dir.path().display();
        let schema = Path::new(super::BINARY)
            .ancestors()
            .nth(2)
            .map(|target| target.join("interop/etc/ldap/schema"))
            .filter(|unpacked| unpacked.is_dir())
            .unwrap_or_else(|| "/etc/ldap/schema".into());
        let includes: String = ["core", "cosine", "inetorgperson", "misc"]
            .map(|name| format!("include {}/{name}.schema\n", schema.display()))
            .concat();
        let config = format!(
            "{includes}pidfile {at}/pid\nTLSCertificateFile {at}/server.pem\nTLSCertificateKeyFile {at}/server.key\n\
             database ldif\nsuffix \"dc=b,dc=test\"\nrootdn \"cn=admin,dc=b,dc=test\"\n\
             rootpw s3cret\ndirectory {at}/entries\naccess to attrs=userPassword by anonymous auth by * none\naccess to * by users read by * none\n"
        );
        fs::create_dir(dir.path().join("entries")).unwrap();
        fs::write(dir.path().join("slapd.conf"), config).unwrap();
        let mut entries =
            "dn: dc=b,dc=test\nobjectClass: dcObject\nobjectClass: organization\no: b\ndc: b\n\n".to_owned();
        for (name, values) in people {
            entries +=
                &format!("dn: cn={name},dc=b,dc=test\nobjectClass: inetOrgPerson\ncn: {name}\nsn: {name}\n");
            for value in *values {
                entries += value;
                entries.push('\n');
            }
            entries.push('\n');
        }
        run(slapadd.arg("-f").arg(dir.path().join("slapd.conf")), &entries);
        let process = Self::launch(dir.path(), address, tls);
        Some(Self { dir, address, tls, process })
    }

    fn launch(dir: &Path, address: SocketAddr, tls: SocketAddr) -> Background {
        let log = fs::File::create(dir.join("log")).unwrap();
        let socket = dir.join("ldapi").display().to_string().replace('/', "%2F");
        let child = program("slapd")
            .unwrap()
            // With a level for messages it stays in the foreground.
            .args(["-d", "0", "-h", &format!("ldap://{address} ldaps://{tls} ldapi://{socket}"), "-f"])
            .arg(dir.join("slapd.conf"))
            .stderr(log)
            .spawn()
            .unwrap();
        let process = Background(child);
        until("slapd listens", || TcpStream::connect(address).is_ok());
        process
    }

    /// Kills the server, and starts it again.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = Self::launch(self.dir.path(), self.address, self.tls);
    }
}
