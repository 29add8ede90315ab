//! The daemon as it is shipped on a device whose power is cut: mail that it accepted, or that `sendmail` left in
//! the drop directory, is afterwards in a Maildir, in the spool, or in the drop directory, and whole.
//!
//! Acknowledged mail is noted off the device. The notes need no clock: once the device is off every sync fails, so
//! that no reply of acceptance comes after the cut.

use super::{RESTARTS_OF_DAEMON as RESTARTS, client, mail, volume::run};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Sessions that send at a time.
const SESSIONS: usize = 4;
/// Messages of a run that nothing ends.
const ENOUGH: usize = 60;
/// Messages that `sendmail` leaves before the daemon starts.
const DROPPED: u64 = 2;
/// The library that leaves out syncs.
const FAULTS: &str = include_str!("../../../../e2e/common/faults.c");

/// Syncs that can be left out, which must be noticed: the call, and the end of the path, or a part of it.
const LEFT_OUT: [(&str, &str, &str); 5] = [
    ("mbox", "fdatasync", "/boxes/x"),
    ("maildir-file", "fdatasync", "*/mail/x/tmp/"),
    ("maildir-folder", "fsync", "/mail/x/new"),
    ("drop-file", "fsync", "*/data/drop/"),
    ("drop-folder", "fsync", "/data/drop"),
];

/// The mail that was acknowledged on this file system, by name, and how.
pub(crate) type Acknowledged = BTreeMap<String, &'static str>;

/// The daemon and what it needs off the device.
pub(crate) struct Deliveries {
    binary: PathBuf,
    dir: TempDir,
    is_broken: bool,
}

impl Deliveries {
    /// With one sync left out, if it has a name.
    ///
    /// # Errors
    /// In words.
    pub(crate) fn new(binary: &str, left_out: Option<&str>) -> Result<Self, String> {
        let binary = fs::canonicalize(binary).map_err(|e| format!("{binary}: {e}"))?;
        let dir = tempfile::tempdir().map_err(|e| format!("make a folder: {e}"))?;
        if let Some(name) = left_out {
            let known = LEFT_OUT.iter().find(|(known, _, _)| *known == name);
            let (_, call, which) = known.ok_or_else(|| format!("--leave-out {name}: {LEFT_OUT:?}"))?;
            let written = fs::create_dir(dir.path().join("orders"))
                .and_then(|()| fs::write(dir.path().join("orders").join(call), format!("skip {which}\n")))
                .and_then(|()| fs::write(dir.path().join("faults.c"), FAULTS));
            written.map_err(|e| format!("write the library: {e}"))?;
            let mut cc = Command::new("cc");
            cc.current_dir(dir.path()).args(["-shared", "-fPIC", "-o", "faults.so", "faults.c"]);
            run(&mut cc)?;
        }
        Ok(Self { binary, dir, is_broken: left_out.is_some() })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments).env("POSTRIDER_CONFIG", self.dir.path().join("postrider.toml"));
        if self.is_broken {
            command.env("LD_PRELOAD", self.dir.path().join("faults.so"));
            command.env("POSTRIDER_TEST_FAULTS", self.dir.path().join("orders"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn configure(&self, at: &Path) -> io::Result<SocketAddr> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let data = at.join("site/data");
        let text = format!(
            "hostname = \"mx.test\"\ndata_dir = \"{}\"\n[[listen]]\naddress = \"{address}\"\n\
             [spool]\nsegment_size = \"1MiB\"\nmin_free = \"0B\"\n[local]\ndomains = [\"b.test\", \"mx.test\"]\n\
             [[route]]\ndomains = [\"box.test\"]\nmbox = \"{}\"\n",
            data.display(),
            data.join("boxes/x").display()
        );
        fs::write(self.dir.path().join("postrider.toml"), text)?;
        Ok(address)
    }

    /// One run on a mounted file system: what was acknowledged before must be there; then more is sent, until the
    /// power is gone or there is enough.
    ///
    /// # Errors
    /// A broken promise.
    pub(crate) fn live(
        &self,
        name: &str,
        at: &Path,
        acknowledged: &mut Acknowledged,
        is_off: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let checked = check(at, acknowledged);
        if is_off() {
            return Ok(());
        }
        checked?;
        let address = self.configure(at).map_err(|e| format!("write the configuration: {e}"))?;
        if at.join("site/data/drop").is_dir() {
            self.drop_some(name, acknowledged).map_err(|e| format!("start sendmail: {e}"))?;
        }
        let mut daemon =
            Ended(self.command(&["serve"]).spawn().map_err(|e| format!("start the daemon: {e}"))?);
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            let has_ended = daemon.0.try_wait().map_err(|e| e.to_string())?.is_some();
            if is_off() {
                return Ok(());
            }
            if has_ended || begun.elapsed() > crate::client::WAIT_TIMEOUT {
                return Err("the daemon does not start on what the cut left".to_owned());
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
        std::thread::scope(|scope| {
            let mut count = 0;
            for (name, code) in client::load(scope, SESSIONS, address, name) {
                if code == 250 {
                    acknowledged.insert(name, "answered 250");
                    count += 1;
                }
                // Sessions end with it.
                if count == ENOUGH {
                    daemon.end();
                }
            }
        });
        Ok(())
    }

    fn drop_some(&self, name: &str, acknowledged: &mut Acknowledged) -> io::Result<()> {
        for number in 0..DROPPED {
            let name = format!("{name}-dropped-{number}");
            let sender = format!("{name}@a.test");
            let mut sendmail = self.command(&["sendmail", "-i", "-f", &sender, "x@b.test"]);
            let mut sendmail = sendmail.stdin(Stdio::piped()).spawn()?;
            let content = mail::body(&name).replace('\r', "");
            // It may end before it has read all.
            let _ = io::Write::write_all(&mut sendmail.stdin.take().expect("piped"), content.as_bytes());
            if sendmail.wait()?.success() {
                acknowledged.insert(name, "left by sendmail");
            }
        }
        Ok(())
    }
}

/// Kills and reaps a process when it is dropped.
struct Ended(Child);

impl Ended {
    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.end();
    }
}

/// Is each of these somewhere, and whole?
fn check(at: &Path, acknowledged: &Acknowledged) -> Result<(), String> {
    let data = at.join("site/data");
    let mut found = BTreeSet::new();
    let files = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in files(data.join("mail/x/new")) {
        let text = text_of(&path);
        found.insert(whole(&text).ok_or_else(|| format!("{} is not whole", path.display()))?);
    }
    found.extend(whole_of_mbox(&data.join("boxes/x"))?);
    for path in files(data.join("drop")).filter(|path| path.extension().is_some_and(|end| end == "mail")) {
        let text = text_of(&path);
        found.insert(whole(&text).ok_or_else(|| format!("{} is not whole", path.display()))?);
    }
    let spool = data.join("spool");
    if spool.is_dir() {
        let inspected = spool::inspect(&spool, &mut |one| {
            let sender = one.message.envelope.reverse_path.as_str();
            found.insert(sender.split('@').next().unwrap_or_default().to_owned());
        });
        let report = inspected.map_err(|failure| format!("the spool cannot be read: {failure}"))?;
        if !report.corrupt.is_empty() {
            return Err(format!("nothing was damaged, but: {:?}", report.corrupt));
        }
    }
    let lost: Vec<String> = acknowledged
        .iter()
        .filter(|(name, _)| !found.contains(*name))
        .map(|(name, how)| format!("{name}, {how}"))
        .collect();
    if lost.is_empty() { Ok(()) } else { Err(format!("lost: {}", lost.join("; "))) }
}

/// Returns the names of the whole messages of an mbox. A cut may leave a part of one at the end of the file, which is separated from
/// the next one; no message before it may have changed.
fn whole_of_mbox(path: &Path) -> Result<BTreeSet<String>, String> {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let messages: Vec<&str> = text.strip_suffix('\n').unwrap_or(&text).split("\nFrom ").collect();
    let names: Vec<String> = messages.iter().filter_map(|text| whole(&text.replace('\n', "\r\n"))).collect();
    let torn = messages.len() - names.len();
    if torn as u64 > RESTARTS {
        return Err(format!("{torn} messages of the mbox are not whole"));
    }
    Ok(names.into_iter().collect())
}

/// With the line ends of the wire.
fn text_of(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().replace('\r', "").replace('\n', "\r\n")
}

/// The name of the message that ends here, if all of it is here. `sendmail` may have added to its header.
fn whole(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("Subject: ")?;
    let name = rest.split_once("\r\n")?.0;
    let body = mail::body(name);
    let (_, lines) = body.split_once("\r\n\r\n")?;
    text.ends_with(&format!("\r\n\r\n{lines}")).then(|| name.to_owned())
}
