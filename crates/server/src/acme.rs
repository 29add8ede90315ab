//! The certificate that the daemon obtains itself: sockets, thread, and the place from which listeners take it.

use super::{
    helper::HelperProcess,
    sockets::{self, Inherited},
};
use acme::{Answers, Bundle, ExternalAccount, Handle, Hook, HookCall, Method, Store, Worker};
use config::{AcmeChallenge, ListenAddress, Settings};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
};
use tokio::sync::watch;

/// The priority of the thread: mail goes first.
const NICE: i32 = 5;

/// The certificate that the daemon has obtained; none until then.
#[derive(Debug, Clone, Default)]
pub struct ObtainedCertificate(Arc<RwLock<Option<Bundle>>>);

impl ObtainedCertificate {
    /// Reads the stored certificate. One that cannot be read is as good as none: another one is obtained.
    pub fn read(settings: &Settings) -> Self {
        let path = certificate_file(settings);
        // Root reads the folder of the daemon's user, who could lead it to a key of somebody else.
        let stored = path.filter(|path| path.exists()).map(|path| {
            let bytes = config::read_state_file(&settings.data_dir, &path)
                .map_err(|e| format!("read the certificate {}: {e}", path.display()))?;
            Bundle::of(&bytes, &path)
        });
        let bundle = stored.and_then(|read| read.inspect_err(|why| tracing::warn!("acme: {why}")).ok());
        Self(Arc::new(RwLock::new(bundle)))
    }

    /// Returns the certificate, if one was obtained.
    pub fn get(&self) -> Option<Bundle> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, bundle: Bundle) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(bundle);
    }
}

/// Returns the file of the certificate that the daemon obtains; none if it obtains none.
pub fn certificate_file(settings: &Settings) -> Option<PathBuf> {
    let acme = &settings.acme;
    acme.is_used().then(|| Store::new(&folder(settings), &acme.directory.url).certificate())
}

/// Returns the folder of accounts and certificates.
fn folder(settings: &Settings) -> PathBuf {
    settings.data_dir.join("acme")
}

/// The parts that need the rights of the start.
pub(super) struct Prepared {
    settings: acme::Settings,
    sockets: Vec<TcpListener>,
}

/// Opens the socket for the authority, and reads keys. `None` if no certificate is wanted.
pub(super) fn prepare(settings: &Settings, inherited: &mut Inherited) -> Result<Option<Prepared>, String> {
    let acme = &settings.acme;
    if !acme.is_used() {
        return Ok(None);
    }
    let external_account = match (&acme.external_account, &acme.external_key) {
        (Some(id), Some(key)) => Some(ExternalAccount { key_id: id.0.clone(), key: config::acme_key(key)? }),
        _ => None,
    };
    let wanted = acme::Settings {
        directory: acme.directory.url.clone(),
        contact: acme.contact.as_ref().map(ToString::to_string),
        names: acme.names.iter().map(|name| name.0.clone()).collect(),
        method: match acme.challenge {
            AcmeChallenge::Http => Method::Http,
            AcmeChallenge::TlsAlpn => Method::TlsAlpn,
            AcmeChallenge::Dns => Method::Dns,
        },
        external_account,
        folder: folder(settings),
        roots: config::certificate::roots(acme.ca_file.as_deref())?,
    };
    let sockets = match acme.listen_address() {
        Some(address @ ListenAddress::Systemd(_)) => open(&address, false, inherited)?,
        // A web server that somebody has installed must not stop the mail.
        Some(address) => open(&address, acme.listen.is_none(), inherited).unwrap_or_else(|why| {
            tracing::error!("{why}; no certificate can be obtained until a restart");
            Vec::new()
        }),
        None => Vec::new(),
    };
    Ok(Some(Prepared { settings: wanted, sockets }))
}

/// Opens the sockets. The default address is that of all interfaces, also where the kernel has no IPv6.
fn open(
    address: &ListenAddress,
    is_default: bool,
    inherited: &mut Inherited,
) -> Result<Vec<TcpListener>, String> {
    let failed = |address: &dyn std::fmt::Display, e: std::io::Error| {
        format!("listen on {address} for the authority of [acme]: {e}")
    };
    match address {
        ListenAddress::Systemd(name) => inherited.take_tcp(name),
        ListenAddress::Ip(ip, port) => {
            let address = SocketAddr::new(*ip, port.unwrap_or_default());
            let bound = sockets::bind(address, &[address]).or_else(|e| {
                let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port());
                if is_default && e.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error()) {
                    sockets::bind(any, &[any])
                } else {
                    Err(e)
                }
            });
            bound.map(|socket| vec![socket]).map_err(|e| failed(&address, e))
        }
        // Refused by the check of the configuration.
        ListenAddress::Unix(_) => Ok(Vec::new()),
    }
}

/// Starts the thread that keeps the certificate valid.
pub(super) fn start(
    prepared: Prepared,
    obtained: &ObtainedCertificate,
    helper: Option<&HelperProcess>,
    mut closing: watch::Receiver<bool>,
) -> Result<Handle, String> {
    let Prepared { settings, sockets } = prepared;
    let answers = Answers::default();
    let method = settings.method;
    let (current, published) = (obtained.get(), obtained.clone());
    let worker =
        Worker::new(settings, answers.clone(), helper.map(hook), current, move |new| published.set(new))?;
    let handle = worker.handle();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| format!("start the client of ACME: {e}"))?;
    let serve = move || {
        // Of this thread only. Where it is not permitted, it is done all the same.
        let _ = rustix::process::setpriority_process(None, NICE);
        runtime.block_on(async {
            for socket in sockets {
                tokio::spawn(answer(socket, method, answers.clone()));
            }
            tokio::select! {
                () = worker.run() => {}
                _ = closing.wait_for(|closing| *closing) => {}
            }
        });
    };
    let thread = std::thread::Builder::new().name("acme".to_owned()).spawn(serve);
    thread.map_err(|e| format!("start the thread of ACME: {e}"))?;
    Ok(handle)
}

async fn answer(socket: TcpListener, method: Method, answers: Answers) {
    let listener = match tokio::net::TcpListener::from_std(socket) {
        Ok(listener) => listener,
        Err(e) => return tracing::error!("acme: listen for the authority: {e}"),
    };
    if method == Method::TlsAlpn {
        let Err(why) = acme::serve_tls(listener, answers).await;
        tracing::error!("acme: {why}");
    } else {
        acme::serve_http(listener, answers).await;
    }
}

/// Runs the program for `dns-01` in the delivery helper: the daemon itself starts no programs.
fn hook(process: &HelperProcess) -> Hook {
    let helper = process.helper();
    Arc::new(move |call: HookCall| {
        let helper = helper.clone();
        let action = if call.is_present { "present" } else { "cleanup" };
        Box::pin(async move { helper.run_hook([action.to_owned(), call.name, call.value]).await })
    })
}
