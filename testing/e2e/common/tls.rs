//! Certificates of clients, and a client that shows them.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, HandshakeKind, SignatureScheme,
    StreamOwned,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime},
};
use std::{
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// An authority that signs certificates of clients.
pub struct Authority(Issuer<'static, KeyPair>);

/// A certificate of a client, with its key.
pub struct Certified {
    pub certificate: CertificateDer<'static>,
    pub key: KeyPair,
    pub pem: String,
}

impl Authority {
    /// Makes an authority, and writes its certificate into a file.
    pub fn new(file: &Path) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Test Authority");
        fs::write(file, params.self_signed(&key).unwrap().pem()).unwrap();
        Self(Issuer::new(params, key))
    }

    /// A certificate for these mail addresses and this host name.
    pub fn certify(&self, common_name: &str, addresses: &[&str], host: &str) -> Certified {
        self.certify_until(common_name, addresses, host, SystemTime::now() + Duration::from_secs(3600))
    }

    pub fn certify_until(
        &self,
        common_name: &str,
        addresses: &[&str],
        host: &str,
        end: SystemTime,
    ) -> Certified {
        let (params, key) = (params(common_name, addresses, host, end), KeyPair::generate().unwrap());
        let made = params.signed_by(&key, &self.0).unwrap();
        Certified { certificate: made.der().clone(), key, pem: made.pem() }
    }
}

impl Certified {
    /// A certificate that only its owner has signed.
    pub fn self_signed(common_name: &str, addresses: &[&str]) -> Self {
        let end = SystemTime::now() + Duration::from_secs(3600);
        let (params, key) = (params(common_name, addresses, "self.test", end), KeyPair::generate().unwrap());
        let made = params.self_signed(&key).unwrap();
        Self { certificate: made.der().clone(), key, pem: made.pem() }
    }

    /// The SHA-256 of the certificate in hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &self.certificate);
        data_encoding::HEXLOWER.encode(digest.as_ref())
    }

    /// Writes certificate and key into files for other programs.
    pub fn write(&self, certificate: &Path, key: &Path) {
        fs::write(certificate, &self.pem).unwrap();
        fs::write(key, self.key.serialize_pem()).unwrap();
    }
}

fn params(common_name: &str, addresses: &[&str], host: &str, end: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
    params.not_after = end.into();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let name = |address: &&str| SanType::Rfc822Name((*address).try_into().unwrap());
    params.subject_alt_names.extend(addresses.iter().map(name));
    params
}

/// The settings of a client, with a certificate or without one. Sessions that begin by the same settings are resumed.
pub fn client_config(shown: Option<&Certified>) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)));
    Arc::new(match shown {
        None => builder.with_no_client_auth(),
        Some(shown) => {
            let key = PrivateKeyDer::Pkcs8(shown.key.serialize_der().into());
            builder.with_client_auth_cert(vec![shown.certificate.clone()], key).unwrap()
        }
    })
}

/// A client that speaks through TLS.
pub struct Client {
    reader: BufReader<StreamOwned<ClientConnection, TcpStream>>,
}

impl Client {
    /// Connected with STARTTLS, EHLO said again. The error is that of the handshake, or of the first octets behind it.
    pub fn starttls(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<(Self, String)> {
        Self::starttls_after(super::client::Client::connect(address)?, config)
    }

    /// As `starttls`, of a session that has begun.
    pub fn starttls_after(
        mut plain: super::client::Client,
        config: &Arc<ClientConfig>,
    ) -> io::Result<(Self, String)> {
        assert_eq!(plain.say("STARTTLS")?.0, 220);
        let mut client = Self::over(plain.into_stream(), config)?;
        let said = client.hello()?;
        Ok((client, said))
    }

    /// Connected with TLS from the first octet. Also returns the reply to EHLO.
    pub fn implicit(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<(Self, String)> {
        let mut client = Self::over(TcpStream::connect(address)?, config)?;
        client.reply()?;
        let said = client.hello()?;
        Ok((client, said))
    }

    fn over(stream: TcpStream, config: &Arc<ClientConfig>) -> io::Result<Self> {
        stream.set_read_timeout(Some(super::WAIT_TIMEOUT))?;
        let name = ServerName::try_from("mx.test").unwrap();
        let connection = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
        Ok(Self { reader: BufReader::new(StreamOwned::new(connection, stream)) })
    }

    /// Says EHLO, and returns the whole reply.
    pub fn hello(&mut self) -> io::Result<String> {
        self.reader.get_mut().write_all(b"EHLO client.test\r\n")?;
        let mut said = String::new();
        loop {
            let line = self.line()?;
            said += &line;
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(said);
            }
        }
    }

    pub fn is_resumed(&self) -> bool {
        self.reader.get_ref().conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Returns the certificate that the server has shown, in DER.
    pub fn certificate(&self) -> Vec<u8> {
        self.reader.get_ref().conn.peer_certificates().unwrap()[0].to_vec()
    }

    /// Says a line; returns the last line of the reply.
    pub fn say(&mut self, line: &str) -> io::Result<String> {
        self.reader.get_mut().write_all(format!("{line}\r\n").as_bytes())?;
        self.reply()
    }

    pub fn reply(&mut self) -> io::Result<String> {
        loop {
            let line = self.line()?;
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(line.trim_end().to_owned());
            }
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line)
    }
}

/// The server's certificate is made at its start.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
