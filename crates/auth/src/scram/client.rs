//! The client's side of SCRAM.

use super::{FEWEST_ITERATIONS, MOST_ITERATIONS, ScramHash, attribute, gs2::escaped, is_nonce, xor};
use crate::{channel::ChannelKind, prep::prepared, secret::Secret};
use data_encoding::BASE64;
use std::{num::NonZeroU32, str};

/// The client has sent its first message and waits for salt and iterations.
#[derive(Debug)]
pub(crate) struct First {
    hash: ScramHash,
    password: Secret,
    nonce: Box<str>,
    bare: String,
    /// The header of GS2 and the bytes of the channel, in base64.
    binding: String,
}

/// A client whose proof is sent; the server has to prove that it knows the user, too.
#[derive(Debug)]
pub(crate) struct Last {
    server_signature: Secret,
}

impl First {
    /// Returns the exchange and its first message; none if name or password have forbidden characters (RFC 4013).
    pub(crate) fn begin(
        hash: ScramHash,
        (user, password): (&str, &str),
        channel: Option<(ChannelKind, &[u8])>,
        nonce: &str,
    ) -> Option<(Self, Vec<u8>)> {
        let header = match channel {
            Some((kind, _)) => format!("p={},,", kind.as_str()),
            None => "n,,".to_owned(),
        };
        let bare = format!("n={},r={nonce}", escaped(&prepared(user)?));
        let message = format!("{header}{bare}").into_bytes();
        let mut binding = header.into_bytes();
        binding.extend_from_slice(channel.map_or(&[][..], |(_, bytes)| bytes));
        let password = Secret::new(prepared(password)?.as_bytes());
        let binding = BASE64.encode(&binding);
        Some((Self { hash, password, nonce: nonce.into(), bare, binding }, message))
    }

    /// Answers the server's first message with the proof; none if that message is bad.
    pub(crate) fn prove(self, message: &[u8]) -> Option<(Last, Vec<u8>)> {
        let server_first = str::from_utf8(message).ok()?;
        let (nonce, rest) = attribute(server_first, 'r')?;
        let (salt, rest) = attribute(rest, 's')?;
        let (iterations, _) = attribute(rest, 'i')?;
        // The server has to add to the nonce, and to take all of ours.
        if !nonce.starts_with(&*self.nonce) || nonce.len() == self.nonce.len() || !is_nonce(nonce) {
            return None;
        }
        let iterations: NonZeroU32 = iterations.parse().ok()?;
        if !(FEWEST_ITERATIONS..=MOST_ITERATIONS).contains(&iterations.get()) {
            return None;
        }
        let salt = BASE64.decode(salt.as_bytes()).ok()?;
        let hash = self.hash;
        let salted = hash.salted_password(&self.password, &salt, iterations);
        let client_key = Secret::new(hash.hmac(salted.bytes(), b"Client Key"));
        let stored_key = hash.of(client_key.bytes());
        let without_proof = format!("c={},r={nonce}", self.binding);
        let said = format!("{},{server_first},{without_proof}", self.bare);
        let proof = xor(client_key.bytes(), &hash.hmac(&stored_key, said.as_bytes()));
        let server_key = Secret::new(hash.hmac(salted.bytes(), b"Server Key"));
        let server_signature = Secret::new(hash.hmac(server_key.bytes(), said.as_bytes()));
        let message = format!("{without_proof},p={}", BASE64.encode(&proof)).into_bytes();
        Some((Last { server_signature }, message))
    }
}

impl Last {
    /// Returns whether the server's last message proves that it knows the user.
    pub(crate) fn is_proved_by(&self, message: &[u8]) -> bool {
        let signature = str::from_utf8(message).ok().and_then(|text| attribute(text, 'v'));
        let signature = signature.and_then(|(value, _)| BASE64.decode(value.as_bytes()).ok());
        signature.is_some_and(|signature| self.server_signature.is(&signature))
    }
}
