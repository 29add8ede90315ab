//! Sorting of hashes: they are spread evenly, so that a place near its own is computed for each.

/// Sorts numbers into buckets, and returns where each begins, and the end. `bucket` returns a number below `count`.
pub(crate) fn into_buckets(numbers: &mut Vec<u64>, count: usize, bucket: impl Fn(u64) -> usize) -> Vec<u32> {
    // The place behind each bucket, then of its first number.
    let mut places = vec![0u32; count + 1];
    for number in &*numbers {
        places[bucket(*number)] += 1;
    }
    let mut sum = 0;
    for place in &mut places {
        sum += *place;
        *place = sum;
    }
    let mut sorted = vec![0; numbers.len()];
    for number in &*numbers {
        let place = &mut places[bucket(*number)];
        *place -= 1;
        sorted[*place as usize] = *number;
    }
    *numbers = sorted;
    places
}

/// Sorts hashes, in linear time if they are spread evenly.
pub(crate) fn sort_hashes(hashes: &mut Vec<u64>) {
    /// So few are sorted fast in any order.
    const BUCKET_HASHES: usize = 8;
    let count = hashes.len().div_ceil(BUCKET_HASHES).max(1);
    let places = into_buckets(hashes, count, |hash| ((u128::from(hash) * count as u128) >> 64) as usize);
    // However they are spread, it does not become slow.
    for ends in places.windows(2) {
        hashes[ends[0] as usize..ends[1] as usize].sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_numbers_are_sorted(mut numbers: Vec<u64>, copies in 0usize..3, narrow: bool) {
            if narrow {
                numbers.iter_mut().for_each(|number| *number &= 0xff);
            }
            for _ in 0..copies {
                numbers.extend_from_within(..);
            }
            let mut sorted = numbers.clone();
            sorted.sort_unstable();
            sort_hashes(&mut numbers);
            prop_assert_eq!(numbers, sorted);
        }
    }
}
