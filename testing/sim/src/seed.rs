//! Randomness that can be replayed: the same seed, the same run.

/// `SplitMix64`: small, fast, and every seed is a good one.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Below `end`, which is not zero; the bias is far too small to matter here.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    /// Below `end`, for lengths and indices.
    pub fn index(&mut self, end: usize) -> usize {
        self.below(end as u64) as usize
    }

    /// True `percent` times of a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A generator of its own for one purpose, so that using it more leaves the others as they are.
    pub fn fork(&mut self) -> Self {
        Self(self.bits())
    }
}
