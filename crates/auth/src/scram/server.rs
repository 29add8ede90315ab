//! The server's side of SCRAM.

use super::{
    ScramHash, ScramKeys, attribute,
    gs2::{Gs2, unescaped},
    is_nonce, xor,
};
use crate::{channel::ChannelBindings, prep::prepared, secret::Secret, server::Failure};
use data_encoding::BASE64;
use std::str;

/// What the client's first message says.
#[derive(Debug)]
pub(crate) struct First {
    /// Prepared (RFC 4013).
    pub(crate) user: Box<str>,
    /// `client-first-message-bare`.
    bare: Box<str>,
    /// The bytes that `c=` of the last message has to encode.
    binding: Vec<u8>,
    client_nonce: Box<str>,
    /// The client wants to act as somebody else, which is refused as a wrong password is: behind the proof.
    pub(crate) names_another: bool,
}

impl First {
    /// Reads the first message. `is_plus` is the mechanism's; `bindings` are those of the connection, and `offers_plus` tells
    /// whether the server offered the mechanism that uses them. Bindings that do not fit are `Wrong` (RFC 5802 §6).
    pub(crate) fn read(
        message: &[u8],
        is_plus: bool,
        offers_plus: bool,
        bindings: &ChannelBindings,
    ) -> Result<Self, Failure> {
        let text = str::from_utf8(message).map_err(|_| Failure::Malformed)?;
        let gs2 = Gs2::read(text).ok_or(Failure::Malformed)?;
        let mut binding = gs2.text.as_bytes().to_vec();
        match (is_plus, gs2.channel) {
            (true, Some(_)) => {
                let bytes = gs2.kind().and_then(|kind| bindings.of(kind)).ok_or(Failure::Wrong)?;
                binding.extend_from_slice(bytes);
            }
            // Somebody between took the better mechanism out of the server's offer.
            (false, None) if gs2.is_downgrade && offers_plus => return Err(Failure::Wrong),
            (false, None) => {}
            _ => return Err(Failure::Wrong),
        }
        // `m=` is an extension that must be understood, and none is.
        let (name, rest) = attribute(gs2.rest, 'n').ok_or(Failure::Malformed)?;
        let (client_nonce, _) = attribute(rest, 'r').ok_or(Failure::Malformed)?;
        let name = unescaped(name).ok_or(Failure::Malformed)?;
        let user = prepared(&name).ok_or(Failure::Malformed)?;
        let names_another = gs2.authzid.as_deref().is_some_and(|id| *id != *user && *id != *name);
        if !is_nonce(client_nonce) {
            return Err(Failure::Malformed);
        }
        Ok(Self {
            user: user.into(),
            bare: gs2.rest.into(),
            binding,
            client_nonce: client_nonce.into(),
            names_another,
        })
    }
}

/// An exchange whose keys are known: the last message is awaited.
#[derive(Debug)]
pub(crate) struct Proof {
    first: First,
    keys: ScramKeys,
    nonce: String,
    server_first: String,
}

impl Proof {
    /// Returns the exchange, and the server's first message.
    pub(crate) fn ask(first: First, keys: ScramKeys, server_nonce: &str) -> (Self, Vec<u8>) {
        let nonce = format!("{}{server_nonce}", first.client_nonce);
        let server_first = format!("r={nonce},s={},i={}", BASE64.encode(&keys.salt), keys.iterations);
        let message = server_first.clone().into_bytes();
        (Self { first, keys, nonce, server_first }, message)
    }

    /// Returns the user of the exchange.
    pub(crate) fn user(&self) -> &str {
        &self.first.user
    }

    /// Judges the client's last message: the server's last message if the proof is right.
    pub(crate) fn judge(&self, message: &[u8]) -> Result<Vec<u8>, Failure> {
        let text = str::from_utf8(message).map_err(|_| Failure::Malformed)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(Failure::Malformed)?;
        let (binding, rest) = attribute(without_proof, 'c').ok_or(Failure::Malformed)?;
        let (nonce, _) = attribute(rest, 'r').ok_or(Failure::Malformed)?;
        let decode = |text: &str| BASE64.decode(text.as_bytes()).map_err(|_| Failure::Malformed);
        let (binding, proof) = (decode(binding)?, decode(proof)?);
        if binding != self.first.binding {
            return Err(Failure::Wrong);
        }
        let hash: ScramHash = self.keys.hash;
        if nonce != self.nonce || proof.len() != hash.key_bytes() {
            return Err(Failure::Wrong);
        }
        let said = format!("{},{},{without_proof}", self.first.bare, self.server_first);
        let signature = hash.hmac(&self.keys.stored_key, said.as_bytes());
        let client_key = Secret::new(xor(&proof, &signature));
        let stored = Secret::new(hash.of(client_key.bytes()));
        if !stored.is(&self.keys.stored_key) {
            return Err(Failure::Wrong);
        }
        let server = hash.hmac(self.keys.server_key.bytes(), said.as_bytes());
        Ok(format!("v={}", BASE64.encode(&server)).into_bytes())
    }
}
