//! A blocked Bloom filter: a key sets bits in one line of 64 bytes, so that a look-up reads one line. 20 bits a key, 5
//! probes: 1 of 1,000 look-ups of other keys succeeds. More probes cost more when a block is written than they save when
//! it is searched.

/// Octets of a line: the cache line of most processors.
pub(crate) const LINE_BYTES: usize = 64;
const LINE_BITS: u64 = LINE_BYTES as u64 * 8;
const KEY_BITS: usize = 20;
const PROBE_COUNT: u32 = 5;

/// Returns the filter of these hashes.
pub(crate) fn build(hashes: &[u64]) -> Vec<u8> {
    let line_count = (hashes.len() * KEY_BITS).div_ceil(LINE_BYTES * 8).max(1);
    let mut filter = vec![0; line_count * LINE_BYTES];
    for hash in hashes {
        let line = &mut filter.as_chunks_mut::<LINE_BYTES>().0[line_of(*hash, line_count)];
        for bit in bits_of(*hash) {
            line[bit / 8] |= 1 << (bit % 8);
        }
    }
    filter
}

/// Returns whether a filter may have been built from this hash, among others.
pub(crate) fn may_have(filter: &[u8], hash: u64) -> bool {
    let line_count = filter.len() / LINE_BYTES;
    if line_count == 0 {
        return false;
    }
    let line = &filter[line_of(hash, line_count) * LINE_BYTES..][..LINE_BYTES];
    bits_of(hash).all(|bit| line[bit / 8] & (1 << (bit % 8)) != 0)
}

fn line_of(hash: u64, line_count: usize) -> usize {
    ((u128::from(hash) * line_count as u128) >> 64) as usize
}

/// The line depends on the upper bits, these on the lower ones.
fn bits_of(hash: u64) -> impl Iterator<Item = usize> {
    (0..PROBE_COUNT).map(move |probe| (hash.rotate_right(7 * probe) % LINE_BITS) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::hash_of;

    #[test]
    fn each_key_is_found_and_few_others_are() {
        let hashes: Vec<u64> = (0..1300u32).map(|n| hash_of(1, &n.to_le_bytes())).collect();
        let filter = build(&hashes);
        assert!(hashes.iter().all(|hash| may_have(&filter, *hash)));
        let others = (2000..22_000u32).filter(|n| may_have(&filter, hash_of(1, &n.to_le_bytes()))).count();
        assert!((1..60).contains(&others), "{others} of 20,000");
        assert!(!may_have(&[], 1) && !may_have(&build(&[]), 1));
    }
}
