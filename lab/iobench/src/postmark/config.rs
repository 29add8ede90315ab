//! The settings of a run of PostMark: its `set` commands, and the output of `show`.

use std::{fmt::Write as _, path::PathBuf};

/// The data that is forced to the disk; PostMark itself never forces any, and a mail queue does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fsync {
    Nothing,
    /// Each file that was created or appended to.
    File,
    /// And the directory, when a name comes or goes.
    Directory,
}

/// Settings of a run of PostMark.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    pub(crate) files: usize,
    pub(crate) transactions: u64,
    pub(crate) low_bytes: u64,
    pub(crate) high_bytes: u64,
    pub(crate) location: PathBuf,
    pub(crate) subdirectories: usize,
    pub(crate) read_bytes: usize,
    pub(crate) write_bytes: usize,
    /// Of 10: how often reading is chosen over appending; none does neither.
    pub(crate) bias_read: Option<u8>,
    /// Of 10: how often creating is chosen over deleting.
    pub(crate) bias_create: Option<u8>,
    pub(crate) buffered: bool,
    pub(crate) seed: u64,
    pub(crate) verbose: bool,
    pub(crate) fsync: Fsync,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            files: 500,
            transactions: 500,
            low_bytes: 500,
            high_bytes: 10_000,
            location: ".".into(),
            subdirectories: 0,
            read_bytes: 512,
            write_bytes: 512,
            bias_read: Some(5),
            bias_create: Some(5),
            buffered: true,
            seed: 42,
            verbose: true,
            fsync: Fsync::Nothing,
        }
    }
}

/// The settings that can be named, and what they say of themselves.
pub(crate) const HELP: &[(&str, &str)] = &[
    ("size", "Sets low and high bounds of files"),
    ("number", "Sets number of simultaneous files"),
    ("seed", "Sets seed for random number generator"),
    ("transactions", "Sets number of transactions"),
    ("location", "Sets location of working files"),
    ("subdirectories", "Sets number of subdirectories"),
    ("read", "Sets read block size"),
    ("write", "Sets write block size"),
    ("buffering", "Sets usage of buffered I/O"),
    ("bias read", "Sets the chance of choosing read over append"),
    ("bias create", "Sets the chance of choosing create over delete"),
    ("report", "Choose verbose or terse report format"),
    ("fsync", "Sets what is forced to the disk: none, file or directory"),
];

impl Config {
    /// Takes the numbers of a test of S1, t1 to t4.
    pub(crate) fn preset(&mut self, name: &str) -> Result<(), String> {
        let (files, transactions, subdirectories) = match name {
            "t1" => (1000, 50_000, 0),
            "t2" => (20_000, 50_000, 0),
            "t3" => (20_000, 100_000, 0),
            "t4" => (20_000, 100_000, 100),
            _ => return Err("no such preset: t1, t2, t3 or t4".into()),
        };
        (self.files, self.transactions, self.subdirectories) = (files, transactions, subdirectories);
        Ok(())
    }

    /// `set`, with what stands behind it.
    pub(crate) fn set(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            ["size", low, high] => self.set_size(low, high)?,
            ["number", n] => self.files = between(n, 1, 100_000_000, "number of files")? as usize,
            ["seed", n] => self.seed = between(n, 0, u64::MAX, "seed for random number generator")?,
            ["transactions", n] => self.transactions = between(n, 1, u64::MAX, "number of transactions")?,
            ["location", path] => self.set_location(path)?,
            ["subdirectories", n] => {
                self.subdirectories = between(n, 0, 1_000_000, "number of subdirectories")? as usize;
            }
            ["read", n] => self.read_bytes = between(n, 1, 1 << 26, "block size")? as usize,
            ["write", n] => self.write_bytes = between(n, 1, 1 << 26, "block size")? as usize,
            ["buffering", word] => self.buffered = one_of(word, "true", "false")?,
            ["bias", "read", n] => self.bias_read = bias(n)?,
            ["bias", "create", n] => self.bias_create = bias(n)?,
            ["report", word] => self.verbose = one_of(word, "verbose", "terse")?,
            ["fsync", "none"] => self.fsync = Fsync::Nothing,
            ["fsync", "file"] => self.fsync = Fsync::File,
            ["fsync", "directory"] => self.fsync = Fsync::Directory,
            ["fsync", ..] => return Err("no fsync mode specified (none, file or directory)".into()),
            [name, ..] if HELP.iter().any(|(known, _)| known.split(' ').next() == Some(name)) => {
                return Err(format!("wrong number of values for {name}"));
            }
            _ => return Err(String::new()),
        }
        Ok(())
    }

    fn set_size(&mut self, low: &str, high: &str) -> Result<(), String> {
        let bound = |text| between(text, 1, 1 << 30, "size bounds (1 byte to 1 gigabyte)");
        let (low, high) = (bound(low)?, bound(high)?);
        if low > high {
            return Err("no valid size bounds specified: the low one is above the high one".into());
        }
        (self.low_bytes, self.high_bytes) = (low, high);
        Ok(())
    }

    fn set_location(&mut self, path: &str) -> Result<(), String> {
        let path = PathBuf::from(path);
        if !path.is_dir() {
            return Err(format!("no valid location: {} is not a directory", path.display()));
        }
        self.location = path;
        Ok(())
    }

    /// As `show` prints it.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "Current configuration is:");
        let _ = writeln!(out, "The base number of files is {}", self.files);
        let _ = writeln!(out, "Transactions: {}", self.transactions);
        let (low, high) = (scaled(self.low_bytes as f64), scaled(self.high_bytes as f64));
        let _ = match self.low_bytes == self.high_bytes {
            true => writeln!(out, "Files are {low} in size"),
            false => writeln!(out, "Files range between {low} and {high} in size"),
        };
        let _ = writeln!(out, "Working directory: {}", self.location.display());
        if self.subdirectories > 0 {
            let _ = writeln!(out, "{} subdirectories will be used", self.subdirectories);
        }
        let _ = writeln!(
            out,
            "Block sizes are: read={}, write={}",
            scaled(self.read_bytes as f64),
            scaled(self.write_bytes as f64)
        );
        let bias = |b: Option<u8>| b.map_or("disabled".to_owned(), |n| n.to_string());
        let _ = writeln!(
            out,
            "Biases are: read/append={}, create/delete={}",
            bias(self.bias_read),
            bias(self.bias_create)
        );
        let _ = writeln!(out, "{} Unix buffered file I/O", if self.buffered { "Using" } else { "Not using" });
        let _ = writeln!(
            out,
            "Forced to the disk: {}",
            match self.fsync {
                Fsync::Nothing => "nothing",
                Fsync::File => "each file written",
                Fsync::Directory => "each file written, and directories",
            }
        );
        let _ = writeln!(out, "Random number generator seed is {}", self.seed);
        let _ = writeln!(out, "Report format is {}.", if self.verbose { "verbose" } else { "terse" });
        out
    }
}

fn between(text: &str, least: u64, most: u64, what: &str) -> Result<u64, String> {
    text.parse().ok().filter(|n| (least..=most).contains(n)).ok_or_else(|| format!("invalid {what}"))
}

fn one_of(word: &str, yes: &str, no: &str) -> Result<bool, String> {
    if word == yes {
        Ok(true)
    } else if word == no {
        Ok(false)
    } else {
        Err(format!("neither {yes} nor {no} specified"))
    }
}

fn bias(text: &str) -> Result<Option<u8>, String> {
    match text.parse::<i8>() {
        Ok(-1) => Ok(None),
        Ok(n @ 0..=10) => Ok(Some(n as u8)),
        _ => Err("no bias specified (0-10 for greater chance,-1 to disable)".into()),
    }
}

/// `9.77 kilobytes`.
pub(crate) fn scaled(bytes: f64) -> String {
    const UNITS: [&str; 4] = ["bytes", "kilobytes", "megabytes", "gigabytes"];
    let power = (0..3).find(|p| bytes < 1024f64.powi(p + 1)).unwrap_or(3);
    let value = bytes / 1024f64.powi(power);
    let unit = UNITS[power as usize];
    if power == 0 { format!("{value:.0} {unit}") } else { format!("{value:.2} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_postmarks() {
        let mut config = Config::default();
        for line in [
            "number 1000",
            "transactions 50",
            "size 10 2000",
            "bias read -1",
            "buffering false",
            "fsync file",
        ] {
            config.set(&line.split(' ').collect::<Vec<_>>()).unwrap();
        }
        assert_eq!(
            (config.files, config.high_bytes, config.bias_read, config.buffered),
            (1000, 2000, None, false)
        );
        let error = |line: &str| Config::default().set(&line.split(' ').collect::<Vec<_>>()).unwrap_err();
        assert_eq!(error("number x"), "invalid number of files");
        assert_eq!(error("bias read 12"), "no bias specified (0-10 for greater chance,-1 to disable)");
        assert_eq!(error("foo"), "");
        assert!(error("size 5 4").contains("above the high one"));
        assert!(
            Config::default().text().contains("Files range between 500 bytes and 9.77 kilobytes in size")
        );
    }
}
