//! Whether a mail exchanger encrypts, and whom its certificate names.

use super::{TRY_AGAIN, in_time};
use crate::doctor::Finding;
use config::Settings;
use route::dns::{Dns, Lookup};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs, pki_types::ServerName};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

const TLS: &str = "TLS";
/// Time for the whole conversation with one exchanger.
const TIMEOUT: Duration = Duration::from_secs(20);
/// All replies of a server before the handshake.
const REPLIES_BYTES_MAX: u64 = 64 * 1024;

/// What a server did.
enum Seen {
    NoStartTls,
    /// The handshake failed: most often the certificate is at fault.
    Refused(String),
    Verified,
}

/// Connects to a mail exchanger, encrypts the connection and takes leave. Sends no mail.
pub(super) async fn check(dns: &Dns, settings: &Settings, host: &str) -> Finding {
    let addresses = match in_time(dns.addresses(host)).await {
        Lookup::Found(addresses) => addresses,
        Lookup::NoData | Lookup::NxDomain => {
            return Finding::warning(TLS, format!("{host} is not tried: it has no address"), TRY_AGAIN);
        }
        Lookup::Unknown(why) => return Finding::warning(TLS, why, TRY_AGAIN),
    };
    // IPv4 first: many machines have addresses of IPv6, and no way to them.
    let first = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
    let Some(address) = first else {
        return Finding::warning(TLS, format!("{host} is not tried: it has no address"), TRY_AGAIN);
    };
    let (seen, port) = (talk(*address, host, settings), settings.delivery.mx_port);
    match timeout(TIMEOUT, seen).await {
        Err(_) => {
            let seen = format!("{host}[{address}]:{port} does not answer within {} s", TIMEOUT.as_secs());
            Finding::warning(
                TLS,
                seen,
                "open the port, or run this on a machine whose provider does not close port 25",
            )
        }
        Ok(Err(error)) => {
            let seen = format!("{host}[{address}]:{port}: {}", mail::plain_text(&error.to_string()));
            Finding::warning(TLS, seen, "start the server there, or remove the host from the MX records")
        }
        Ok(Ok(Seen::NoStartTls)) => {
            let seen = format!("{host} does not offer STARTTLS: mail for it can be read on its way");
            Finding::error(TLS, seen, "give it a certificate: `certificate` and `key` in [tls], or [acme]")
        }
        Ok(Ok(Seen::Refused(why))) => {
            let seen = format!("{host} encrypts, and its certificate cannot be verified: {why}");
            let advice = "most senders encrypt all the same; those that insist (MTA-STS, REQUIRETLS) keep their mail. [acme] gets a \
                          certificate that everybody can verify";
            Finding::warning(TLS, seen, advice)
        }
        Ok(Ok(Seen::Verified)) => {
            Finding::ok(TLS, format!("{host} encrypts, and its certificate is valid for this name"))
        }
    }
}

async fn talk(address: IpAddr, host: &str, settings: &Settings) -> io::Result<Seen> {
    let stream = TcpStream::connect(SocketAddr::from((address, settings.delivery.mx_port))).await?;
    let mut stream = BufReader::new(stream.take(REPLIES_BYTES_MAX));
    reply(&mut stream, "220").await?;
    say(&mut stream, &format!("EHLO {}\r\n", settings.hostname)).await?;
    let offers = reply(&mut stream, "250").await?;
    let offers_tls = offers
        .lines()
        .any(|line| line.get(4..).is_some_and(|word| word.trim().eq_ignore_ascii_case("STARTTLS")));
    if !offers_tls {
        // Its answer does not matter.
        let _ = say(&mut stream, "QUIT\r\n").await;
        return Ok(Seen::NoStartTls);
    }
    say(&mut stream, "STARTTLS\r\n").await?;
    reply(&mut stream, "220").await?;
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    match connector()?.connect(name, stream.into_inner().into_inner()).await {
        Ok(mut stream) => {
            let _ = stream.write_all(b"QUIT\r\n").await;
            Ok(Seen::Verified)
        }
        Err(error) => Ok(Seen::Refused(error.to_string())),
    }
}

/// Verifies certificates as browsers do.
fn connector() -> io::Result<TlsConnector> {
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
}

type Stream = BufReader<tokio::io::Take<TcpStream>>;

async fn say(stream: &mut Stream, line: &str) -> io::Result<()> {
    stream.get_mut().get_mut().write_all(line.as_bytes()).await
}

/// Returns the lines of a reply.
///
/// # Errors
/// It has another code, or the connection ends.
async fn reply(stream: &mut Stream, code: &str) -> io::Result<String> {
    let mut all = String::new();
    loop {
        let begin = all.len();
        if stream.read_line(&mut all).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = &all[begin..];
        if !line.starts_with(code) {
            return Err(io::Error::other(format!("it says {:?}", line.trim_end())));
        }
        if !line[code.len()..].starts_with('-') {
            return Ok(all);
        }
    }
}
