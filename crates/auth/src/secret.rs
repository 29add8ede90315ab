//! Secrets that do not show in logs.

use std::fmt;
use zeroize::Zeroizing;

/// A password or token. Its bytes are overwritten when it is dropped, and `Debug` hides them.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes of a secret.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(bytes.into()))
    }

    /// Returns the secret itself. Never log it.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Compares in a time that does not depend on the bytes.
    pub fn is(&self, other: &[u8]) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.0, other).is_ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_a_secret() {
        let secret = Secret::new("tanstaaftanstaaf");
        assert_eq!(format!("{secret:?}"), "Secret");
        assert!(secret.is(b"tanstaaftanstaaf") && !secret.is(b"tanstaaftanstaag") && !secret.is(b"t"));
    }
}
