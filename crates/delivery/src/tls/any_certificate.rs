//! Takes any certificate that TLS itself can use, and checks the handshake's signature with its key.
//!
//! rustls' own verification reads the whole certificate and refuses much of what exists: X.509 version 1,
//! RSA keys under 2,048 bits. Where the certificate does not matter only the public key does.

use super::small_rsa;
use der::{Reader as _, SliceReader, Tag, TagNumber};
use rustls::{
    CertificateError, DigitallySignedStruct, Error, PeerMisbehaved, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::WebPkiSupportedAlgorithms,
    pki_types::{
        CertificateDer, ServerName, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer, UnixTime,
    },
};
use webpki::RawPublicKeyEntity;

/// Takes any certificate: encryption without knowing to whom beats clear text (RFC 7435 §3). The handshake's
/// signature is still checked.
#[derive(Debug)]
pub(super) struct AnyCertificate {
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl AnyCertificate {
    fn verify(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let mut known = self.algorithms.mapping.iter().filter(|(scheme, _)| *scheme == signed.scheme);
        let Some((_, algorithms)) = known.next() else {
            return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
        };
        let bad_encoding = |_| Error::InvalidCertificate(CertificateError::BadEncoding);
        let info = SubjectPublicKeyInfoDer::from(public_key_info(certificate).map_err(bad_encoding)?);
        let key = RawPublicKeyEntity::try_from(&info)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let own = small_rsa::algorithm(signed.scheme);
        let mut algorithms = algorithms.iter().copied().chain(own);
        let is_signed_by = |algorithm: &dyn SignatureVerificationAlgorithm| {
            key.verify_signature(algorithm, message, signed.signature()).is_ok()
        };
        if algorithms.any(is_signed_by) {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(Error::InvalidCertificate(CertificateError::BadSignature))
        }
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // RFC 8446 §4.2.3: PKCS #1 v1.5 is not for handshakes.
        if is_pkcs1(signed.scheme) {
            return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
        }
        self.verify(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn is_pkcs1(scheme: SignatureScheme) -> bool {
    use SignatureScheme::{RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512};
    matches!(scheme, RSA_PKCS1_SHA256 | RSA_PKCS1_SHA384 | RSA_PKCS1_SHA512)
}

/// Returns the SubjectPublicKeyInfo of a certificate of any version (RFC 5280 §4.1), and reads nothing else.
fn public_key_info(certificate: &[u8]) -> der::Result<&[u8]> {
    let certificate = content(&mut SliceReader::new(certificate)?)?;
    let to_be_signed = content(&mut SliceReader::new(certificate)?)?;
    let mut fields = SliceReader::new(to_be_signed)?;
    // Version 1 is the default, which is not written.
    let version = Tag::ContextSpecific { constructed: true, number: TagNumber::N0 };
    if fields.peek_tag()? == version {
        fields.tlv_bytes()?;
    }
    // Serial number, signature algorithm, issuer, validity, subject.
    for _ in 0..5 {
        fields.tlv_bytes()?;
    }
    fields.tlv_bytes()
}

/// The content of the next sequence.
fn content<'a>(reader: &mut SliceReader<'a>) -> der::Result<&'a [u8]> {
    let header = reader.peek_header()?;
    header.tag.assert_eq(Tag::Sequence)?;
    let whole = reader.tlv_bytes()?;
    let length = usize::try_from(header.length)?;
    Ok(&whole[whole.len() - length..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustls::pki_types::pem::PemObject as _;

    #[test]
    fn the_key_of_a_version_1_certificate_is_found() {
        for pem in [
            &include_bytes!("../../tests/tls/v1-ec.pem")[..],
            include_bytes!("../../tests/tls/v1-rsa1024.pem"),
        ] {
            let certificate = CertificateDer::from_pem_slice(pem).unwrap();
            let info = SubjectPublicKeyInfoDer::from(public_key_info(&certificate).unwrap());
            assert!(RawPublicKeyEntity::try_from(&info).is_ok());
        }
    }

    proptest! {
        #[test]
        fn no_certificate_makes_it_panic(bytes: Vec<u8>, at in 0usize..700, byte: u8) {
            let _ = public_key_info(&bytes);
            let pem = include_bytes!("../../tests/tls/v1-rsa1024.pem");
            let mut damaged = CertificateDer::from_pem_slice(pem).unwrap().to_vec();
            if let Some(here) = damaged.get_mut(at) {
                *here = byte;
            }
            let _ = public_key_info(&damaged);
            let _ = public_key_info(&damaged[..at.min(damaged.len())]);
        }
    }
}
