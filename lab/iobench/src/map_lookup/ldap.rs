//! A map in an LDAP server: Debian's slapd, started here, or one that already runs. The client speaks as much of RFC 4511
//! as a lookup needs: a search for one attribute's value.

use std::{
    fmt::Write as _,
    fs,
    io::{self, BufReader, Read as _, Write as _},
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
    stream: BufReader<TcpStream>,
    base: String,
    next_id: u32,
    _server: Option<Server>,
}

/// A slapd of ours; killed when dropped.
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
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), base: base.to_owned(), next_id: 0, _server: None })
    }

    /// Searches for an entry whose `mail` is `key`; true if there is one.
    pub(super) fn get(&mut self, key: &str) -> io::Result<bool> {
        self.next_id += 1;
        let request = search(self.next_id, &self.base, key);
        self.stream.get_mut().write_all(&request)?;
        let mut found = false;
        loop {
            match self.message()? {
                ENTRY => found = true,
                DONE => return Ok(found),
                _ => {}
            }
        }
    }

    /// Reads a message; the tag of its operation. A search that failed is an error.
    fn message(&mut self) -> io::Result<u8> {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head)?;
        let mut length = usize::from(head[1]);
        if length & 0x80 != 0 {
            let mut octets = vec![0; length & 0x7f];
            self.stream.read_exact(&mut octets)?;
            length = octets.iter().fold(0, |n, octet| n << 8 | usize::from(*octet));
        }
        if head[0] != SEQUENCE || length > 1 << 24 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "this is no LDAP"));
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        // An integer of one octet of length, and the operation.
        let cut = || io::Error::new(io::ErrorKind::InvalidData, "an LDAP message is cut off");
        let at = 2 + usize::from(*body.get(1).ok_or_else(cut)?);
        let tag = *body.get(at).ok_or_else(cut)?;
        if tag == DONE {
            // The length of the operation, ENUMERATED, its length, and the code.
            let long = usize::from(*body.get(at + 1).ok_or_else(cut)?);
            let skip = if long & 0x80 != 0 { 1 + (long & 0x7f) } else { 1 };
            let code = *body.get(at + 1 + skip + 2).ok_or_else(cut)?;
            // 32 is noSuchObject.
            if code != 0 && code != 32 {
                return Err(io::Error::other(format!("the LDAP server replied with code {code}")));
            }
        }
        Ok(tag)
    }
}

const SEQUENCE: u8 = 0x30;
const ENTRY: u8 = 0x64;
const DONE: u8 = 0x65;

/// A value with its tag and its length.
fn tagged(tag: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match value.len() {
        length @ 0..128 => out.push(length as u8),
        length @ 128..256 => out.extend([0x81, length as u8]),
        length => out.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    out.extend(value);
    out
}

/// A search below `base` for the attribute `description` of the entry with this `mail`.
fn search(id: u32, base: &str, key: &str) -> Vec<u8> {
    let filter = tagged(0xa3, &[tagged(4, b"mail"), tagged(4, key.as_bytes())].concat());
    let body = [
        tagged(4, base.as_bytes()),
        // The whole subtree, aliases as they are, all entries, any time, with values.
        vec![10, 1, 2, 10, 1, 0, 2, 1, 0, 2, 1, 0, 1, 1, 0],
        filter,
        tagged(SEQUENCE, &tagged(4, b"description")),
    ]
    .concat();
    // slapd takes no more than four octets, and no negative number.
    let number = (id & 0x7fff_ffff).to_be_bytes();
    tagged(SEQUENCE, &[tagged(2, &number), tagged(0x63, &body)].concat())
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

    #[test]
    fn lengths_are_short_or_long() {
        assert_eq!(tagged(4, b"ab"), [4, 2, b'a', b'b']);
        assert_eq!(tagged(4, &[7; 200])[..3], [4, 0x81, 200]);
        assert_eq!(tagged(4, &[7; 300])[..4], [4, 0x82, 1, 44]);
    }
}
