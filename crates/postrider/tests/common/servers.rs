//! Servers that are not ours, with configurations of their own.

use super::{free_address, until};
use std::{
    fs,
    net::SocketAddr,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::Path,
    process::{Child, Stdio},
};

/// Debian's Postfix with a configuration of its own.
pub struct Postfix {
    pub dir: tempfile::TempDir,
    pub address: SocketAddr,
}

impl Postfix {
    /// Starts with these lines of main.cf, too. None where it is not installed, or this user may not start it.
    pub fn start(more: &str) -> Option<Self> {
        super::program("postfix")?;
        if !rustix::process::geteuid().is_root() || !fs::exists("/usr/lib/postfix/sbin/master").ok()? {
            println!("SKIPPED: Postfix can be started by root only, and where it is installed");
            return None;
        }
        let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
        let path = dir.path();
        // Its programs have users of their own.
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        ["queue", "data"].iter().for_each(|name| fs::create_dir(path.join(name)).unwrap());
        let at = path.display();
        let main = format!(
            "compatibility_level = 3.6\nqueue_directory = {at}/queue\ndata_directory = {at}/data\n\
             mail_owner = postfix\nsetgid_group = postdrop\ncommand_directory = /usr/sbin\n\
             daemon_directory = /usr/lib/postfix/sbin\nmyhostname = postfix.test\nmydestination =\nalias_maps =\n\
             inet_interfaces = 127.0.0.1\ninet_protocols = ipv4\nmynetworks = 127.0.0.0/8 203.0.113.0/24\n\
             maillog_file = {at}/log\nmaillog_file_prefixes = {at}\n{more}"
        );
        let services = [
            "cleanup unix n - n - 0 cleanup",
            "qmgr unix n - n 300 1 qmgr",
            "rewrite unix - - n - - trivial-rewrite",
            "bounce unix - - n - 0 bounce",
            "defer unix - - n - 0 bounce",
            "trace unix - - n - 0 bounce",
            "error unix - - n - - error",
            "smtp unix - - n - - smtp",
            "proxymap unix - - n - - proxymap",
            "anvil unix - - n - 1 anvil",
            "tlsmgr unix - - n 1000? 1 tlsmgr",
            "postlog unix-dgram n - n - 1 postlogd",
        ];
        fs::write(path.join("main.cf"), main).unwrap();
        fs::write(
            path.join("master.cf"),
            format!("{address} inet n - n - - smtpd\n{}\n", services.join("\n")),
        )
        .unwrap();
        let chown = super::program("chown")?.arg("postfix").arg(path.join("data")).status().unwrap();
        let postfix = Self { dir, address };
        assert!(chown.success() && postfix.control("start"), "Postfix does not start");
        until("Postfix listens", || std::net::TcpStream::connect(address).is_ok());
        Some(postfix)
    }

    fn control(&self, verb: &str) -> bool {
        let Some(mut postfix) = super::program("postfix") else { return false };
        postfix.arg("-c").arg(self.dir.path()).arg(verb).stdin(Stdio::null()).stdout(Stdio::null());
        postfix.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }
}

impl Drop for Postfix {
    fn drop(&mut self) {
        self.control("stop");
    }
}

/// Dovecot with two users and an auth socket at `auth`; none where it cannot be started.
pub fn dovecot_auth(dir: &Path) -> Option<Running> {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: Dovecot starts as root only");
        return None;
    }
    let mut dovecot = super::program_in_place("dovecot")?;
    let at = dir.display();
    fs::write(dir.join("passwd"), "jane:{PLAIN}secret\njoe@mx.test:{PLAIN}other\n").unwrap();
    fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
    let config = format!(
        "base_dir = {at}/run\nstate_dir = {at}/run\nlog_path = {at}/log\nprotocols =\nssl = no\n\
         default_internal_user = nobody\ndefault_internal_group = nogroup\ndefault_login_user = nobody\n\
         auth_mechanisms = plain login scram-sha-256\nauth_failure_delay = 0\n\
         passdb {{\n  driver = passwd-file\n  args = {at}/passwd\n}}\n\
         userdb {{\n  driver = static\n  args = uid=nobody gid=nogroup home=/tmp allow_all_users=yes\n}}\n\
         service auth {{\n  unix_listener {at}/auth {{\n    mode = 0666\n  }}\n}}\n"
    );
    fs::write(dir.join("dovecot.conf"), config).unwrap();
    let child = dovecot.arg("-F").arg("-c").arg(dir.join("dovecot.conf")).spawn().unwrap();
    let running = Running(child);
    until("Dovecot listens", || UnixStream::connect(dir.join("auth")).is_ok());
    Some(running)
}

/// A program that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Dovecot's other processes end with the first, which has to be asked.
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}
