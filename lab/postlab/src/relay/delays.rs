//! The delays that Postfix logs for each delivery: before the queue manager (a), in the queue manager (b), connection
//! setup with DNS, HELO and TLS (c), transmission (d).

use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

/// Mean delays of the deliveries in a piece of a log, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Delays {
    pub(crate) deliveries: u64,
    pub(crate) before_queue_manager_ms: f64,
    pub(crate) queue_manager_ms: f64,
    pub(crate) connection_ms: f64,
    pub(crate) transmission_ms: f64,
}

/// A log that is read from where it ended at the beginning.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    begin: u64,
}

impl Log {
    /// From the present end of the file; the file may not exist yet.
    pub(super) fn from_now(path: &Path) -> Self {
        let begin = std::fs::metadata(path).map_or(0, |meta| meta.len());
        Self { path: path.to_owned(), begin }
    }

    /// Returns the delays logged since; none if there are none, or the file cannot be read.
    pub(super) fn delays(&self) -> Option<Delays> {
        let mut file = File::open(&self.path).ok()?;
        file.seek(SeekFrom::Start(self.begin)).ok()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        Delays::read(&String::from_utf8_lossy(&bytes))
    }
}

impl Delays {
    /// Adds up the `delays=a/b/c/d` of deliveries that succeeded.
    fn read(log: &str) -> Option<Self> {
        let mut sum = Self::default();
        for line in log.lines().filter(|line| line.contains("status=sent")) {
            let Some(text) = line.split("delays=").nth(1) else { continue };
            let text = text.split([',', ' ']).next().unwrap_or_default();
            let parts: Vec<f64> = text.split('/').filter_map(|word| word.parse().ok()).collect();
            let [a, b, c, d] = parts[..] else { continue };
            sum.deliveries += 1;
            sum.before_queue_manager_ms += a * 1e3;
            sum.queue_manager_ms += b * 1e3;
            sum.connection_ms += c * 1e3;
            sum.transmission_ms += d * 1e3;
        }
        let count = sum.deliveries as f64;
        (sum.deliveries > 0).then(|| Self {
            deliveries: sum.deliveries,
            before_queue_manager_ms: sum.before_queue_manager_ms / count,
            queue_manager_ms: sum.queue_manager_ms / count,
            connection_ms: sum.connection_ms / count,
            transmission_ms: sum.transmission_ms / count,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    const LINE: &str = "Nov 23 09:08:50 box postfix/smtp[7]: 4C9: to=<b@dst.test>, relay=127.0.0.1[127.0.0.1]:2600, \
                        delay=0.05, delays=0.01/0/0.02/0.04, dsn=2.0.0, status=sent (250 2.0.0 Ok)\n";

    #[test]
    fn the_delays_of_deliveries_after_the_beginning_are_averaged() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(LINE.replace("0.01/", "9/").as_bytes()).unwrap();
        let log = Log::from_now(file.path());
        assert_eq!(log.delays(), None);
        let deferred = LINE.replace("sent", "deferred");
        write!(file, "{LINE}{deferred}{}", LINE.replace("0.01/0/", "0.03/1/")).unwrap();
        let delays = log.delays().unwrap();
        assert_eq!((delays.deliveries, delays.queue_manager_ms), (2, 500.0));
        assert!((delays.before_queue_manager_ms - 20.0).abs() < 1e-9);
        assert!((delays.transmission_ms - 40.0).abs() < 1e-9);
    }
}
