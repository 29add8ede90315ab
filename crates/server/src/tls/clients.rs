//! Certificates of clients: which are taken in a handshake, which are trusted, and what they say.

use aws_lc_rs::digest;
use config::{Settings, certificate};
use data_encoding::HEXLOWER;
use inbound::Identity;
use mail::ClientCertificate;
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use std::sync::Arc;
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, x509::X509Name};

/// The authorities whose certificates of clients are trusted.
#[derive(Debug, Clone)]
pub(super) struct ClientAuthorities {
    /// None: no authority is named.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// The configuration has a map of certificates.
    has_map: bool,
    provider: Arc<CryptoProvider>,
}

impl ClientAuthorities {
    /// Reads the authorities of the settings.
    ///
    /// # Errors
    /// The file cannot be used; the text names it.
    pub(super) fn read(settings: &Settings, provider: Arc<CryptoProvider>) -> Result<Self, String> {
        let verifier = match &settings.tls.client_ca_file {
            None => None,
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for authority in certificate::authorities(path).map_err(|e| e.to_string())? {
                    roots.add(authority).map_err(|e| format!("read {}: {e}", path.display()))?;
                }
                let built =
                    WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build();
                Some(built.map_err(|e| format!("use {}: {e}", path.display()))?)
            }
        };
        Ok(Self { verifier, has_map: settings.auth.certificates.is_some(), provider })
    }

    /// Returns what verifies clients' certificates in a handshake, required or not.
    pub(super) fn verifier(&self, is_required: bool) -> Arc<dyn ClientCertVerifier> {
        Arc::new(HandshakeVerifier { authorities: self.clone(), is_required })
    }

    /// Returns who a client is, by the certificates that it showed. Asked after each handshake: a resumed TLS session has the
    /// certificate of its first handshake, which may have expired since.
    pub(super) fn identify(&self, shown: &[CertificateDer<'static>]) -> Option<Identity> {
        let (own, others) = shown.split_first()?;
        let verified = self
            .verifier
            .as_ref()
            .is_some_and(|verifier| verifier.verify_client_cert(own, others, UnixTime::now()).is_ok());
        let certificate = read(own, verified)?;
        let may_log_in = self.has_map || certificate.is_trusted && !certificate.addresses.is_empty();
        Some(Identity { certificate: certificate.into(), may_log_in })
    }
}

/// Reads the names of a certificate; `None` if it is broken.
fn read(der: &CertificateDer<'_>, is_trusted: bool) -> Option<ClientCertificate> {
    let (_, parsed) = x509_parser::parse_x509_certificate(der).ok()?;
    let (addresses, hosts) = alternative_names(&parsed);
    Some(ClientCertificate {
        fingerprint: HEXLOWER.encode(digest::digest(&digest::SHA256, der).as_ref()).into(),
        is_trusted,
        addresses,
        hosts,
        common_name: common_name(parsed.subject()),
        issuer: common_name(parsed.issuer()),
    })
}

/// Returns the e-mail addresses and the host names of a certificate.
fn alternative_names(parsed: &X509Certificate<'_>) -> (Vec<Box<str>>, Vec<Box<str>>) {
    let (mut addresses, mut hosts): (Vec<Box<str>>, Vec<Box<str>>) = Default::default();
    let extension = parsed.subject_alternative_name().ok().flatten();
    for name in extension.iter().flat_map(|extension| &extension.value.general_names) {
        match name {
            // A name with a NUL or a line end in it is none.
            GeneralName::RFC822Name(text) if is_name(text) && text.contains('@') => {
                addresses.push((*text).into());
            }
            GeneralName::DNSName(text) if is_name(text) => hosts.push(text.to_ascii_lowercase().into()),
            _ => {}
        }
    }
    (addresses, hosts)
}

fn common_name(name: &X509Name<'_>) -> Option<Box<str>> {
    let text = name.iter_common_name().next()?.as_str().ok()?;
    (!text.is_empty() && text.len() <= NAME_MAX && !text.contains(char::is_control)).then(|| text.into())
}

/// Longer names go into no log.
const NAME_MAX: usize = 320;

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_MAX && text.bytes().all(|b| b.is_ascii_graphic())
}

/// The verifier of a handshake. Where a certificate is only asked for, each is taken of which the client has the key: a server
/// with a certificate of an unknown authority can still deliver mail. [`ClientAuthorities::identify`] says which are
/// trusted.
#[derive(Debug)]
struct HandshakeVerifier {
    authorities: ClientAuthorities,
    is_required: bool,
}

impl ClientCertVerifier for HandshakeVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.is_required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Clients that have certificates of other authorities, too, choose one by this; with a map any may be the right one.
        let verifier =
            self.authorities.verifier.as_ref().filter(|_| self.is_required || !self.authorities.has_map);
        verifier.map_or(&[], |verifier| verifier.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match &self.authorities.verifier {
            Some(verifier) if self.is_required => verifier.verify_client_cert(own, others, now),
            None if self.is_required => Err(Error::General("no authority of clients is trusted".to_owned())),
            _ => Ok(ClientCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.authorities.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.authorities.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, Issuer, KeyPair, SanType};

    /// An authority, and a certificate of it with a mail address and a host name.
    fn chain() -> (CertificateDer<'static>, CertificateDer<'static>) {
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::default();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "Authority");
        let signed = authority.self_signed(&authority_key).unwrap();
        let mut params = CertificateParams::new(vec!["MX.client.test".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::Rfc822Name("Jane@mx.test".try_into().unwrap()));
        params.distinguished_name.push(DnType::CommonName, "Jane Doe");
        let key = KeyPair::generate().unwrap();
        let own = params.signed_by(&key, &Issuer::new(authority, authority_key)).unwrap();
        (signed.der().clone(), own.der().clone())
    }

    fn authorities(root: Option<CertificateDer<'static>>, has_map: bool) -> ClientAuthorities {
        let provider = config::certificate::provider();
        let verifier = root.map(|root| {
            let mut roots = RootCertStore::empty();
            roots.add(root).unwrap();
            WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build().unwrap()
        });
        let verifier = verifier.map(|verifier| verifier as Arc<dyn ClientCertVerifier>);
        ClientAuthorities { verifier, has_map, provider }
    }

    #[test]
    fn a_certificate_is_trusted_by_its_authority_and_known_by_its_names() {
        let (root, own) = chain();
        let shown = [own];
        let Identity { certificate, may_log_in } = authorities(Some(root), false).identify(&shown).unwrap();
        assert!(may_log_in && certificate.is_trusted);
        assert_eq!(certificate.addresses, [Box::<str>::from("Jane@mx.test")]);
        assert_eq!(certificate.hosts, [Box::<str>::from("mx.client.test")]);
        assert_eq!(certificate.common_name.as_deref(), Some("Jane Doe"));
        assert_eq!(certificate.issuer.as_deref(), Some("Authority"));
        assert_eq!(certificate.fingerprint.len(), 64);
        for (other, has_map) in [(None, false), (Some(chain().0), false), (Some(chain().0), true)] {
            let identity = authorities(other, has_map).identify(&shown).unwrap();
            assert_eq!((identity.certificate.is_trusted, identity.may_log_in), (false, has_map));
        }
    }

    #[test]
    fn a_handshake_that_requires_a_certificate_takes_those_of_the_authority_only() {
        let (root, own) = chain();
        let verify = |root, is_required| {
            let verifier = authorities(root, true).verifier(is_required);
            verifier.verify_client_cert(&own, &[], UnixTime::now()).is_ok()
        };
        assert!(verify(Some(root), true) && !verify(Some(chain().0), true) && !verify(None, true));
        assert!(verify(Some(chain().0), false) && verify(None, false));
    }
}
