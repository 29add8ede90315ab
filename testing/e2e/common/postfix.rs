//! Debian's Postfix with a configuration of its own, in a mount namespace of its own.

use super::{free_address, program, program_in_place, until};
use std::{
    fs,
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Stdio},
};

const SERVICES: &str = "\
cleanup unix n - n - 0 cleanup
pickup unix n - n 60 1 pickup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
smtp unix - - n - - smtp
relay unix - - n - - smtp
lmtp unix - - n - - lmtp
local unix - n n - - local
virtual unix - n n - - virtual
proxymap unix - - n - - proxymap
proxywrite unix - - n - 1 proxymap
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
tlsmgr unix - - n 1000? 1 tlsmgr
showq unix n - n - - showq
postlog unix-dgram n - n - 1 postlogd
";

/// The lines that the package's postinst makes of its template main.cf.debian for an internet site, without its listeners.
pub const DEBIAN_MAIN: &str = "smtpd_banner = $myhostname ESMTP $mail_name (Debian/GNU)\nbiff = no\nappend_dot_mydomain = no\nreadme_directory = no\n\
    compatibility_level = 3.6\nsmtpd_tls_cert_file=/etc/ssl/certs/ssl-cert-snakeoil.pem\n\
    smtpd_tls_key_file=/etc/ssl/private/ssl-cert-snakeoil.key\nsmtpd_tls_security_level=may\nsmtp_tls_CApath=/etc/ssl/certs\n\
    smtp_tls_security_level=may\nsmtp_tls_session_cache_database = btree:${data_directory}/smtp_scache\n\
    smtpd_relay_restrictions = permit_mynetworks permit_sasl_authenticated defer_unauth_destination\nmyhostname = mx.test\n\
    alias_maps = hash:/etc/aliases\nalias_database = hash:/etc/aliases\nmyorigin = /etc/mailname\n\
    mydestination = $myhostname, mx.test, localhost.test, localhost\nrelayhost = \n\
    mynetworks = 127.0.0.0/8 [::ffff:127.0.0.0]/104 [::1]/128\nmailbox_size_limit = 0\nrecipient_delimiter = +\n\
    inet_protocols = all\n";

/// Postfix's users, on a machine that has its programs only unpacked.
const USERS: [(&str, &str); 3] = [
    ("passwd", "postfix:x:64321:64321::/nonexistent:/usr/sbin/nologin\n"),
    ("group", "postfix:x:64321:\n"),
    ("group", "postdrop:x:64322:\n"),
];

/// A Postfix that runs until it is dropped.
pub struct Postfix {
    pub address: SocketAddr,
    dir: PathBuf,
    child: Child,
}

impl Postfix {
    /// Starts Postfix with its files in `dir`, one listener with these options in `master.cf`, and additions to `main.cf`; the last
    /// line of a parameter counts. `etc` has files that Postfix sees below `/etc`. None where it cannot be started.
    pub fn start(dir: &Path, main: &str, options: &str, etc: &[(&str, &str)]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: Postfix is started by root only");
            return None;
        }
        let mut master = program_in_place("postfix")?;
        let address = free_address();
        configure(dir, address, main, options);
        let mut binds = String::new();
        for (name, line) in USERS {
            let file = dir.join(name);
            let text =
                fs::read_to_string(&file).or_else(|_| fs::read_to_string(format!("/etc/{name}"))).unwrap();
            let user = line.split(':').next().unwrap();
            let is_there = text.lines().any(|line| line.split(':').next() == Some(user));
            fs::write(&file, if is_there { text } else { text + line }).unwrap();
        }
        for (name, text) in etc {
            fs::write(dir.join(name), text).unwrap();
        }
        for name in ["passwd", "group"].into_iter().chain(etc.iter().map(|(name, _)| *name)) {
            binds += &format!("mount --bind {} /etc/{name} && ", dir.join(name).display());
        }
        // The namespace ends with its first process, and everything in it.
        let at = dir.display();
        let inner = format!("{binds}chown postfix {at}/data && exec postfix -c {at} start-fg");
        let mut command = program("unshare")?;
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        let shell = master.get_program().to_owned();
        if shell == "unshare" {
            // The tree is laid over /usr first.
            let arguments: Vec<_> = master.get_args().map(ToOwned::to_owned).collect();
            let (_, before) = arguments.split_last().unwrap();
            command.arg("unshare").args(before).args(["sh", "-c", &inner]);
        } else {
            command.args(["sh", "-c", &inner]);
        }
        master = command;
        let log = fs::File::create(dir.join("start.log")).unwrap();
        master.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut child = master.spawn().unwrap();
        until("Postfix listens", || {
            let ended = child.try_wait().unwrap();
            let said = || fs::read_to_string(dir.join("start.log")).unwrap_or_default();
            assert!(ended.is_none(), "Postfix does not start: {}", said());
            std::net::TcpStream::connect(address).is_ok()
        });
        Some(Self { address, dir: dir.to_owned(), child })
    }

    /// Waits until each message was tried.
    pub fn wait_until_idle(&self) {
        let begun = std::time::Instant::now();
        let files = |name: &str| files(&self.dir.join("queue").join(name));
        while ["maildrop", "incoming", "active"].into_iter().map(files).sum::<usize>() > 0 {
            assert!(begun.elapsed() < super::wait_timeout(), "Postfix has not tried all: {}", self.log());
            std::thread::park_timeout(std::time::Duration::from_millis(5));
        }
    }

    /// Hands a message to Postfix's `sendmail` command.
    pub fn sendmail(&self, arguments: &[&str], content: &[u8]) {
        let mut command = program("nsenter").expect("unshare is there, too");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.first_process())).arg("/usr/sbin/sendmail");
        command.arg("-C").arg(&self.dir).args(arguments).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(content).unwrap();
        assert!(child.wait().unwrap().success(), "{}", self.log());
    }

    /// Returns the process with number 1 in the namespace.
    fn first_process(&self) -> i32 {
        let pid = self.child.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        children.split_whitespace().next().and_then(|pid| pid.parse().ok()).expect("Postfix runs")
    }

    /// Returns the number of messages that are tried again later.
    pub fn deferred_count(&self) -> usize {
        files(&self.dir.join("queue/deferred"))
    }

    /// Returns Postfix's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

impl Drop for Postfix {
    fn drop(&mut self) {
        // The kernel forgets --kill-child when Postfix changes its user: the first process of the namespace is killed, and
        // all others end with it.
        let pid = self.child.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            if let Some(child) = rustix::process::Pid::from_raw(child) {
                let _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn files(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().map_while(Result::ok);
    entries.map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { 1 }).sum()
}

fn configure(dir: &Path, address: SocketAddr, main: &str, options: &str) {
    // Its programs have users of their own.
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    ["queue", "data"].iter().for_each(|name| fs::create_dir_all(dir.join(name)).unwrap());
    let at = dir.display();
    let own = format!(
        "compatibility_level = 3.6\nqueue_directory = {at}/queue\ndata_directory = {at}/data\nmail_owner = postfix\n\
         setgid_group = postdrop\ncommand_directory = /usr/sbin\ndaemon_directory = /usr/lib/postfix/sbin\n\
         alias_maps =\ninet_interfaces = 127.0.0.1\ninet_protocols = ipv4\nmaillog_file = {at}/log\n\
         maillog_file_prefixes = {at}\n"
    );
    // Postfix warns of a parameter that is set twice.
    let mut lines: Vec<(String, String)> = Vec::new();
    for line in own.lines().chain(main.lines()).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with(' ') {
            lines.last_mut().unwrap().1.push_str(&format!("\n{line}"));
            continue;
        }
        let name = line.split('=').next().unwrap().trim().to_owned();
        lines.retain(|(other, _)| *other != name);
        lines.push((name, line.to_owned()));
    }
    let main: String = lines.into_iter().map(|(_, line)| line + "\n").collect();
    fs::write(dir.join("main.cf"), main).unwrap();
    fs::write(dir.join("master.cf"), format!("{address} inet n - n - - smtpd\n{options}{SERVICES}")).unwrap();
}
