//! Tokens that were valid a short time ago: the server that issued them is not asked for each message.

use crate::secret::Secret;
use aws_lc_rs::hmac;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// The longest time for which a token is remembered: one that is revoked is valid for no longer.
const KEPT_MAX: Duration = Duration::from_secs(300);
/// Tokens that are remembered at most.
const MOST: usize = 50_000;

/// What the authorization server says of a valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedToken {
    /// The user that the token stands for.
    pub login: Box<str>,
    /// True if the token was issued for sending mail.
    pub is_for_mail: bool,
}

/// Remembers tokens as keyed hashes: the memory of the process does not give them away.
#[derive(Debug)]
pub struct VerifiedTokens {
    key: hmac::Key,
    known: HashMap<[u8; 32], (VerifiedToken, Instant)>,
}

impl VerifiedTokens {
    /// Creates the memory. `key`: 32 random octets, new for each process.
    pub fn new(key: &[u8; 32]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), known: HashMap::new() }
    }

    /// Returns what is known of a token.
    pub fn find(&self, token: &Secret, now: Instant) -> Option<&VerifiedToken> {
        self.known.get(&self.tag(token)).filter(|(_, until)| *until > now).map(|(verified, _)| verified)
    }

    /// Remembers a token until it expires, at most for five minutes. `expires_in`: `None` if the token does not say.
    pub fn remember(
        &mut self,
        token: &Secret,
        verified: VerifiedToken,
        expires_in: Option<Duration>,
        now: Instant,
    ) {
        if self.known.len() >= MOST {
            self.known.retain(|_, (_, until)| *until > now);
        }
        if self.known.len() >= MOST {
            self.known.clear();
        }
        let kept = expires_in.map_or(KEPT_MAX, |expires_in| expires_in.min(KEPT_MAX));
        self.known.insert(self.tag(token), (verified, now + kept));
    }

    fn tag(&self, token: &Secret) -> [u8; 32] {
        let mut tag = [0; 32];
        tag.copy_from_slice(hmac::sign(&self.key, token.bytes()).as_ref());
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified(login: &str) -> VerifiedToken {
        VerifiedToken { login: login.into(), is_for_mail: true }
    }

    #[test]
    fn a_token_is_remembered_until_it_expires_and_for_five_minutes_at_most() {
        let (mut tokens, now) = (VerifiedTokens::new(&[7; 32]), Instant::now());
        for (token, expires_in, known_for) in
            [("a", Some(10), 10), ("b", Some(10_000), 300), ("c", None, 300)]
        {
            let secret = Secret::new(token);
            tokens.remember(&secret, verified(token), expires_in.map(Duration::from_secs), now);
            let seconds = Duration::from_secs;
            assert_eq!(tokens.find(&secret, now + seconds(known_for - 1)), Some(&verified(token)));
            assert_eq!(tokens.find(&secret, now + seconds(known_for)), None);
        }
        assert_eq!(tokens.find(&Secret::new("d"), now), None);
    }

    #[test]
    fn the_memory_has_a_size_and_no_token_in_it() {
        let (mut tokens, now) = (VerifiedTokens::new(&[7; 32]), Instant::now());
        for number in 0..=MOST {
            tokens.remember(&Secret::new(format!("token-{number}")), verified("jane"), None, now);
        }
        assert!(tokens.known.len() <= MOST);
        assert!(!format!("{:?}", tokens.find(&Secret::new(format!("token-{MOST}")), now)).contains("token-"));
    }
}
