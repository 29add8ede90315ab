//! Servers that are not ours, with configurations of their own.

use super::until;
use std::{
    fs,
    net::SocketAddr,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::Path,
    process::Child,
};

/// Debian's Postfix as a relay of this machine, with a directory of its own.
pub struct Postfix {
    pub address: SocketAddr,
    // Stopped before its directory goes.
    _running: super::postfix::Postfix,
    pub dir: tempfile::TempDir,
}

impl Postfix {
    /// Starts with these lines of main.cf, too. None where it cannot be started.
    pub fn start(more: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let main = format!(
            "myhostname = postfix.test\nmydestination =\nmynetworks = 127.0.0.0/8 203.0.113.0/24\n{more}"
        );
        let running = super::postfix::Postfix::start(dir.path(), &main, "", &[])?;
        Some(Self { address: running.address, _running: running, dir })
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

/// Ends a server when it is dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Dovecot's other processes end with the first, which has to be asked.
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}
