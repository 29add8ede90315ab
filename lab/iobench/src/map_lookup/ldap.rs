//! A map in an LDAP server: Debian's slapd, started here, or one that already runs.

use ldap3::{LdapConn, Scope, SearchResult, ldap_escape};
use std::{
    fmt::Write as _,
    fs, io,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The suffix of the entries in a server of ours.
const BASE: &str = "dc=test";
/// For slapd to listen.
const START: Duration = Duration::from_secs(20);

/// A connection to a server, and the server if it is ours.
pub(super) struct Ldap {
    connection: LdapConn,
    base: String,
    _server: Option<Server>,
}

/// A slapd that was started for the measurement; killed when it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Ldap {
    /// Starts slapd with `pairs`; nothing where it is not installed.
    pub(super) fn start(directory: &Path, pairs: &[(String, String)]) -> io::Result<Option<Self>> {
        let Some(slapd) = program("slapd") else { return Ok(None) };
        let data = directory.join("slapd");
        fs::create_dir_all(data.join("db"))?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let config = data.join("slapd.conf");
        let schemas: String = ["core", "cosine", "inetorgperson"]
            .map(|name| format!("include /etc/ldap/schema/{name}.schema\n"))
            .concat();
        let text = format!(
            "{schemas}modulepath /usr/lib/ldap\nmoduleload back_mdb\npidfile {0}/pid\nsizelimit unlimited\n\
             database mdb\nsuffix \"{BASE}\"\ndirectory {0}/db\nmaxsize 8589934592\nindex mail,objectClass eq\n",
            data.display()
        );
        fs::write(&config, text)?;
        let mut ldif =
            format!("dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\no: test\ndc: test\n\n");
        for (key, value) in pairs {
            // Writing to a string cannot fail.
            let _ = writeln!(
                ldif,
                "dn: cn={key},{BASE}\nobjectClass: inetOrgPerson\ncn: {key}\nsn: x\nmail: {key}\ndescription: {value}\n"
            );
        }
        let entries = data.join("entries.ldif");
        fs::write(&entries, ldif)?;
        let add = Command::new(program("slapadd").ok_or(io::ErrorKind::NotFound)?)
            .args(["-q", "-f"])
            .arg(&config)
            .arg("-l")
            .arg(&entries)
            .stdin(Stdio::null())
            .output()?;
        if !add.status.success() {
            let said = String::from_utf8_lossy(&add.stderr).trim().to_owned();
            return Err(io::Error::other(format!("slapadd: {said}")));
        }
        let address = format!("127.0.0.1:{port}");
        let mut server = Command::new(slapd);
        server.args(["-d", "0", "-h", &format!("ldap://{address}"), "-f"]).arg(&config);
        let server = Server(server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        let begin = Instant::now();
        while TcpStream::connect(&address).is_err() {
            if begin.elapsed() > START {
                return Err(io::Error::other("slapd does not listen"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        let mut ldap = Self::connect(&address, BASE)?;
        ldap._server = Some(server);
        Ok(Some(ldap))
    }

    /// Connects to a server that runs.
    pub(super) fn connect(address: &str, base: &str) -> io::Result<Self> {
        let connection = LdapConn::new(&format!("ldap://{address}")).map_err(io::Error::other)?;
        Ok(Self { connection, base: base.to_owned(), _server: None })
    }

    /// Searches for an entry whose `mail` is `key`; true if there is one.
    pub(super) fn get(&mut self, key: &str) -> io::Result<bool> {
        let filter = format!("(mail={})", ldap_escape(key));
        let found = self.connection.search(&self.base, Scope::Subtree, &filter, vec!["description"]);
        let SearchResult(entries, outcome) = found.map_err(io::Error::other)?;
        // 32 is noSuchObject.
        match outcome.rc {
            0 | 32 => Ok(!entries.is_empty()),
            code => Err(io::Error::other(format!("the LDAP server replied with code {code}"))),
        }
    }
}

/// Finds a program that is often not in the PATH of users.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/lib/openldap"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slapd_finds_what_is_there_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let pairs: Vec<_> = (0..50).map(|i| (format!("user{i}@a.test"), "v".repeat(200))).collect();
        let Some(mut ldap) = Ldap::start(directory.path(), &pairs).unwrap() else {
            eprintln!("SKIPPED: slapd is not installed");
            return;
        };
        assert!(pairs.iter().all(|(key, _)| ldap.get(key).unwrap()));
        assert!(!ldap.get("user50@a.test").unwrap());
        ldap.base = "dc=other".into();
        assert!(!ldap.get("user1@a.test").unwrap());
    }
}
