//! Random numbers: from a seed, or from a file of them.

use std::{fs, io::Read as _, path::Path};

/// Numbers are used again from the first, so that more would only take memory.
const FILE_MAX_BYTES: u64 = 64 << 20;

/// A source of random numbers: a seed, or a file of them.
#[derive(Debug, Clone)]
pub(super) enum Dice {
    Seeded(fastrand::Rng),
    /// Numbers that are used in turn, and the next one's place.
    Listed(Vec<u32>, usize),
}

impl Dice {
    /// Reads a file of numbers of four octets in network byte order, of at most 64 MiB.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        Self::read_at_most(path, FILE_MAX_BYTES)
    }

    fn read_at_most(path: &Path, max_bytes: u64) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("read {}: {e}", path.display());
        // A device may have no end, and opening a FIFO waits for its writer.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(format!(
                "read {}: it is not a regular file: write random numbers to a file, as in `head -c 1M /dev/urandom > FILE`",
                path.display()
            ));
        }
        let mut bytes = Vec::new();
        let file = fs::File::open(path).map_err(failed)?;
        file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > max_bytes {
            return Err(format!(
                "read {}: it has more than {max_bytes} octets: random numbers are used again from the first, so a smaller \
                 file will do",
                path.display()
            ));
        }
        let numbers: Vec<u32> =
            bytes.chunks_exact(4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]])).collect();
        match numbers.is_empty() {
            true => Err(format!(
                "read {}: a random number has four octets, the file has {}",
                path.display(),
                bytes.len()
            )),
            false => Ok(Self::Listed(numbers, 0)),
        }
    }

    /// Returns dice for a part of the work, which is the same whenever this is.
    pub(super) fn part(&self, number: u64) -> Self {
        match self {
            Self::Seeded(random) => {
                Self::Seeded(fastrand::Rng::with_seed(random.get_seed().wrapping_add(number)))
            }
            Self::Listed(numbers, _) => Self::Listed(numbers.clone(), number as usize * 101 % numbers.len()),
        }
    }

    /// Returns a number below `limit`, which is not 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        match self {
            Self::Seeded(random) => random.u64(..limit),
            Self::Listed(numbers, next) => {
                // Two numbers reach farther than 4 GB of blocks.
                let mut take = || {
                    *next = (*next + 1) % numbers.len();
                    u64::from(numbers[*next])
                };
                (take() << 32 | take()) % limit
            }
        }
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_file_come_in_turn() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("random");
        fs::write(&path, [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 9]).unwrap();
        let mut dice = Dice::read(&path).unwrap().part(0);
        let drawn = [dice.below(1 << 40), dice.below(1 << 40), dice.below(1 << 40)];
        assert_eq!(drawn, [2 << 32 | 3, 1 << 32 | 2, 3 << 32 | 1].map(|n: u64| n % (1 << 40)));
        fs::write(&path, [1, 2]).unwrap();
        assert!(Dice::read(&path).unwrap_err().contains("four octets, the file has 2"));
    }

    #[test]
    fn a_file_without_an_end_or_too_large_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("random");
        fs::write(&path, [7; 12]).unwrap();
        assert!(Dice::read_at_most(&path, 12).is_ok());
        assert!(Dice::read_at_most(&path, 11).unwrap_err().contains("more than 11 octets"));
        for endless in ["/dev/zero", "/dev/urandom"] {
            let error = Dice::read(Path::new(endless)).unwrap_err();
            assert!(error.starts_with(&format!("read {endless}: it is not a regular file")), "{error}");
        }
    }
}
