//! Keys as hashes with a secret seed, which are the same after a restart.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher};

/// Octets of a seed, which is random.
pub(crate) const SEED_BYTES: usize = 16;

/// Hashes keys. Nobody who does not know the seed can choose keys with the same hash.
#[derive(Debug, Clone)]
pub(crate) struct Keyed {
    seed: [u8; SEED_BYTES],
    /// Has hashed the seed: each key is hashed behind it.
    begun: DefaultHasher,
}

impl Keyed {
    pub(crate) fn new(seed: [u8; SEED_BYTES]) -> Self {
        let mut begun = DefaultHasher::new();
        seed.hash(&mut begun);
        Self { seed, begun }
    }

    pub(crate) fn seed(&self) -> [u8; SEED_BYTES] {
        self.seed
    }

    pub(crate) fn hash(&self, key: &impl Hash) -> u64 {
        let mut hasher = self.begun.clone();
        key.hash(&mut hasher);
        hasher.finish()
    }
}

/// For maps whose keys are hashes already.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NoHash;

/// Passes the key through, which is a hash already.
#[derive(Debug, Default)]
pub(crate) struct Same(u64);

impl BuildHasher for NoHash {
    type Hasher = Same;

    fn build_hasher(&self) -> Same {
        Same::default()
    }
}

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// Reads the number at a place in octets, counted in numbers.
pub(crate) fn number(bytes: &[u8], at: usize) -> u64 {
    bytes[at * 8..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
