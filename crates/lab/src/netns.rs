//! A network namespace, as another machine: with interfaces, addresses and TCP of its own.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::{fs::File, os::fd::AsFd as _, path::Path, process::Command};

/// A network namespace with a pair of virtual interfaces to it, removed when dropped.
#[derive(Debug)]
pub(crate) struct Netns {
    name: String,
    near: String,
    far: String,
}

impl Netns {
    /// Makes a namespace and the interfaces; only root may.
    pub(crate) fn new() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("--netns: only root may make a network namespace".into());
        }
        // 198.18.0.0/15 is for benchmarks (RFC 2544); four addresses of it.
        let (name, block) = (format!("postlab{}", std::process::id()), fastrand::u32(..1 << 15) * 4);
        let address =
            |last: u32| format!("198.{}.{}.{}", 18 + (block >> 16), block >> 8 & 255, block & 255 | last);
        let netns = Self { name: name.clone(), near: address(1), far: address(2) };
        let (near, far) = (format!("pl{}a", std::process::id()), format!("pl{}b", std::process::id()));
        for words in [
            format!("netns add {name}"),
            format!("link add {near} type veth peer name {far} netns {name}"),
            format!("address add {}/30 dev {near}", netns.near),
            format!("link set {near} up"),
            format!("-n {name} address add {}/30 dev {far}", netns.far),
            format!("-n {name} link set {far} up"),
            format!("-n {name} link set lo up"),
        ] {
            ip(&words)?;
        }
        Ok(netns)
    }

    /// Returns the address of this side.
    pub(crate) fn near(&self) -> &str {
        &self.near
    }

    /// Returns the address of the other side.
    pub(crate) fn far(&self) -> &str {
        &self.far
    }

    /// Returns a command that runs `program` inside.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Does `work` in a thread inside; threads that it starts are inside, too.
    pub(crate) fn within<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, String> + Send,
    ) -> Result<T, String> {
        let path = Path::new("/run/netns").join(&self.name);
        let entered = move || {
            let say = |e: std::io::Error| format!("enter the network namespace {}: {e}", path.display());
            let namespace = File::open(&path).map_err(say)?;
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|e| say(e.into()))?;
            work()
        };
        std::thread::scope(|scope| match scope.spawn(entered).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        // The interfaces go with it. What is left is seen in `ip netns`.
        let _ = ip(&format!("netns delete {}", self.name));
    }
}

fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split(' ')).output();
    let output = output.map_err(|e| format!("--netns: run ip: {e}; it is in Debian's iproute2"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("--netns: ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
