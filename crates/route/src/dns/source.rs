//! The name servers that are asked: those of the configuration, or those of /etc/resolv.conf, which change while the daemon runs
//! when a network, a VPN or a container changes.

use hickory_resolver::{ConnectionProvider, Resolver};
use std::{
    fs, io,
    net::IpAddr,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A changed file is noticed after this time. A look-up takes longer than a look at the file.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Makes a resolver of the text of a resolv.conf file.
type Build<P> = Box<dyn Fn(&str) -> Result<Resolver<P>, String> + Send + Sync>;

/// Where the resolver comes from.
pub(crate) enum Source<P: ConnectionProvider> {
    Fixed(Arc<Resolver<P>>),
    File(ResolvConf<P>),
}

impl<P: ConnectionProvider> Source<P> {
    /// # Errors
    /// There is no name server to ask now, in words.
    pub(crate) fn resolver(&self) -> Result<Arc<Resolver<P>>, String> {
        match self {
            Self::Fixed(resolver) => Ok(resolver.clone()),
            Self::File(file) => file.resolver(LOOK_INTERVAL),
        }
    }

    /// Returns why the file that names the servers cannot be used now, in words, if it cannot.
    pub(crate) fn fault(&self) -> Option<String> {
        match self {
            Self::Fixed(_) => None,
            Self::File(file) => {
                let _ = file.resolver(LOOK_INTERVAL);
                let state = file.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.as_ref().and_then(|state| state.fault.clone())
            }
        }
    }
}

/// Name servers from a resolv.conf file, which is read again when it changes.
pub(crate) struct ResolvConf<P: ConnectionProvider> {
    path: PathBuf,
    build: Build<P>,
    state: Mutex<Option<State<P>>>,
}

struct State<P: ConnectionProvider> {
    looked: Instant,
    seen: Option<Identity>,
    /// Why the file cannot be used.
    fault: Option<String>,
    resolver: Result<Arc<Resolver<P>>, String>,
}

/// Device, inode, size, and the time of the last change.
type Identity = (u64, u64, u64, i64, i64);

impl<P: ConnectionProvider> ResolvConf<P> {
    pub(crate) fn new(path: PathBuf, build: Build<P>) -> Self {
        Self { path, build, state: Mutex::default() }
    }

    fn resolver(&self, interval: Duration) -> Result<Arc<Resolver<P>>, String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = &mut *state {
            if state.looked.elapsed() < interval {
                return state.resolver.clone();
            }
            state.looked = Instant::now();
        }
        let identity =
            |meta: fs::Metadata| (meta.dev(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec());
        let seen = fs::metadata(&self.path).ok().map(identity);
        if let Some(state) = state.as_ref().filter(|state| state.seen == seen) {
            return state.resolver.clone();
        }
        let mut resolver = self.read();
        let mut fault = resolver.as_ref().err().cloned();
        // A file that is being written has no name server for a moment.
        if let (Err(why), Some(State { resolver: Ok(former), .. })) = (&resolver, &*state) {
            let text = format!("the name servers of before are asked, since {why}");
            tracing::warn!("{text}");
            (resolver, fault) = (Ok(former.clone()), Some(text));
        }
        *state = Some(State { looked: Instant::now(), seen, fault, resolver: resolver.clone() });
        resolver
    }

    fn read(&self) -> Result<Arc<Resolver<P>>, String> {
        let path = self.path.display();
        let text = fs::read(&self.path).map_err(|e| match e.kind() {
            // The sandbox of a process of root permits the file of the start, and none that takes its place.
            io::ErrorKind::PermissionDenied => format!(
                "{path} was replaced by a file that this process may not read: restart the daemon, or set `process.user` or \
                 `dns.nameservers`"
            ),
            _ => format!("read {path}: {e}"),
        })?;
        let text = String::from_utf8_lossy(&text);
        let text = without_faulty_servers(&text).map_err(|why| format!("{path} {why}"))?;
        (self.build)(&text).map(Arc::new).map_err(|why| format!("{path}: {why}"))
    }
}

/// Leaves out lines that name no address of a server, as the C library does. The parser would refuse the file for one.
fn without_faulty_servers(text: &str) -> Result<String, String> {
    let (mut kept, mut server_count, mut faulty) = (String::new(), 0, None);
    for (line, at) in text.lines().zip(1..) {
        let mut words = line.split_whitespace();
        if words.next() == Some("nameserver") {
            let server = words.next().unwrap_or_default();
            // A scope, as in `fe80::1%eth0`, follows the address.
            if server.split('%').next().unwrap_or_default().parse::<IpAddr>().is_err() {
                faulty.get_or_insert_with(|| format!("line {at} has `{server}`, which is not an address"));
                continue;
            }
            server_count += 1;
        }
        kept += line;
        kept.push('\n');
    }
    match (server_count, faulty) {
        (0, None) => Err("names no name server".to_owned()),
        (0, Some(why)) => Err(format!("names no name server: {why}")),
        _ => Ok(kept),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_resolver::{
        TokioResolver, net::runtime::TokioRuntimeProvider, system_conf::parse_resolv_conf,
    };

    fn build(text: &str) -> Result<TokioResolver, String> {
        let (config, _) = parse_resolv_conf(text).map_err(|e| e.to_string())?;
        let builder = Resolver::builder_with_config(config, TokioRuntimeProvider::default());
        builder.build().map_err(|e| e.to_string())
    }

    #[tokio::test]
    async fn a_changed_resolv_conf_is_used_and_one_without_servers_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("resolv.conf");
        let file = ResolvConf::new(path.clone(), Box::new(build));
        let now = || file.resolver(Duration::ZERO);
        assert!(now().err().unwrap().contains("No such file"));
        fs::write(&path, "search example.com\n").unwrap();
        assert!(now().err().unwrap().ends_with("resolv.conf names no name server"));
        fs::write(&path, "search example.com\nnameserver 999.1.1\n").unwrap();
        assert!(
            now()
                .err()
                .unwrap()
                .ends_with("names no name server: line 2 has `999.1.1`, which is not an address")
        );
        fs::write(&path, "nameserver 999.1.1\nnameserver 192.0.2.7\n").unwrap();
        assert!(now().is_ok(), "the other server is asked");
        fs::remove_file(&path).unwrap();
        let file = ResolvConf::new(path.clone(), Box::new(build));
        let now = || file.resolver(Duration::ZERO);
        fs::write(&path, "nameserver 192.0.2.1\n").unwrap();
        let first = now().unwrap();
        assert!(Arc::ptr_eq(&first, &now().unwrap()), "the file has not changed");
        fs::write(&path, "nameserver 192.0.2.1\nnameserver 192.0.2.2\n").unwrap();
        let second = now().unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        fs::write(&path, "").unwrap();
        assert!(Arc::ptr_eq(&second, &now().unwrap()), "the file is being written");
    }
}
