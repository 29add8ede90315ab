//! Passwords that were right a short time ago: a mail program that logs in for each message does not cost a hash each time.

use crate::secret::Secret;
use aws_lc_rs::hmac;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Time for which a password that was right is remembered.
const KEPT: Duration = Duration::from_secs(300);
/// Passwords that are remembered at most.
const MOST: usize = 50_000;

/// Remembers logins whose password was right, as keyed hashes: the memory of the process does not give passwords away.
#[derive(Debug)]
pub struct VerifiedPasswords {
    key: hmac::Key,
    until: HashMap<[u8; 32], Instant>,
}

impl VerifiedPasswords {
    /// Creates the memory. `key`: 32 random octets, new for each process.
    pub fn new(key: &[u8; 32]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), until: HashMap::new() }
    }

    /// Returns whether the password of a user was right a short time ago.
    pub fn knows(&self, user: &str, password: &Secret, now: Instant) -> bool {
        self.until.get(&self.tag(user, password)).is_some_and(|until| *until > now)
    }

    /// Remembers a password that was verified, so that the next login need not hash it again.
    pub fn remember(&mut self, user: &str, password: &Secret, now: Instant) {
        if self.until.len() >= MOST {
            self.until.retain(|_, until| *until > now);
        }
        if self.until.len() >= MOST {
            self.until.clear();
        }
        self.until.insert(self.tag(user, password), now + KEPT);
    }

    /// Forgets everything: passwords may have changed.
    pub fn clear(&mut self) {
        self.until.clear();
    }

    fn tag(&self, user: &str, password: &Secret) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&(user.len() as u64).to_le_bytes());
        context.update(user.as_bytes());
        context.update(password.bytes());
        let mut tag = [0; 32];
        tag.copy_from_slice(context.sign().as_ref());
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_remembered_for_five_minutes() {
        let (mut verified, now) = (VerifiedPasswords::new(&[7; 32]), Instant::now());
        let secret = Secret::new("secret");
        assert!(!verified.knows("joe", &secret, now));
        verified.remember("joe", &secret, now);
        assert!(verified.knows("joe", &secret, now + Duration::from_secs(299)));
        assert!(!verified.knows("joe", &secret, now + Duration::from_secs(300)));
        assert!(!verified.knows("joe", &Secret::new("Secret"), now));
        assert!(!verified.knows("jo", &Secret::new("esecret"), now));
        verified.clear();
        assert!(!verified.knows("joe", &secret, now));
    }

    #[test]
    fn the_memory_has_a_size() {
        let (mut verified, now) = (VerifiedPasswords::new(&[7; 32]), Instant::now());
        for number in 0..=MOST {
            verified.remember(&number.to_string(), &Secret::new("x"), now);
        }
        assert!(verified.until.len() <= MOST && verified.knows(&MOST.to_string(), &Secret::new("x"), now));
    }
}
