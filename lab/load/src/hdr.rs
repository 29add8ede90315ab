//! HDR histograms in files of log format V2, which the HdrHistogram libraries of all languages read: one histogram for
//! each phase, in nanoseconds, with the phase as its tag. `postlab hdr merge` adds up those of several files.

use crate::{
    source::{Times, add_times, read_bounded, times_of},
    table::{Format, Table},
};
use clap::{Args, Subcommand};
use hdrhistogram::{
    Histogram,
    serialization::{
        Deserializer, V2DeflateSerializer,
        interval_log::{IntervalLogHistogram, IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag},
    },
};
use std::{
    collections::BTreeMap,
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Merge HDR histograms that `source --hdr` wrote
#[derive(Debug, Args)]
pub struct HdrArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Add up the histograms of several files by phase, and print percentiles
    Merge(MergeArgs),
}

#[derive(Debug, Args)]
struct MergeArgs {
    /// Write the sums to this file too
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    format: Format,
    /// Files in log format V2
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

/// Does what the command line says.
pub fn run(args: &HdrArgs) -> Result<(), String> {
    let Verb::Merge(args) = &args.verb;
    let mut sums = Sums::default();
    for path in &args.files {
        let bytes = read_bounded(path)?;
        sums.read(&bytes).map_err(|e| format!("read {}: {e}", path.display()))?;
    }
    if let Some(path) = &args.output {
        sums.append_to(path)?;
    }
    let mut table = Table::new(args.format, &[], None);
    table.fields(&sums.all_times().collect::<BTreeMap<_, _>>())?;
    add_times(&mut table, sums.all_times());
    table.finish();
    Ok(())
}

/// Appends one histogram for each tag to a file, which covers `duration` until now.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn append<'n, 'h>(
    path: &Path,
    histograms: impl Iterator<Item = (&'n str, &'h Histogram<u64>)>,
    duration: Duration,
) -> Result<(), String> {
    let text = log(histograms, duration).map_err(|e| format!("write {}: {e}", path.display()))?;
    let file = File::options().append(true).create(true).open(path);
    let written = file.and_then(|mut file| file.write_all(&text));
    written.map_err(|e| format!("write {}: {e}", path.display()))
}

/// Returns a log with one histogram for each tag, which covers `duration` until now.
///
/// # Errors
/// A histogram cannot be written.
pub(crate) fn log<'n, 'h>(
    histograms: impl Iterator<Item = (&'n str, &'h Histogram<u64>)>,
    duration: Duration,
) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let begin = SystemTime::now().checked_sub(duration).unwrap_or(SystemTime::UNIX_EPOCH);
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("Times in nanoseconds, by phase. Written by postlab.")
        .with_start_time(begin)
        .with_base_time(begin)
        .begin_log_with(&mut text, &mut serializer)
        .map_err(|e| e.to_string())?;
    for (tag, histogram) in histograms {
        log.write_histogram(histogram, Duration::ZERO, duration, Tag::new(tag))
            .map_err(|e| format!("{e:?}"))?;
    }
    Ok(text)
}

/// Histograms added up by tag.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    histograms: BTreeMap<String, Histogram<u64>>,
    /// Of the intervals.
    longest: Duration,
}

impl Sums {
    /// The times of a tag; none where there are none.
    pub(crate) fn times(&self, tag: &str) -> Option<Times> {
        self.histograms.get(tag).and_then(times_of)
    }

    /// Appends the sums to a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn append_to(&self, path: &Path) -> Result<(), String> {
        let rows = self.histograms.iter().map(|(tag, histogram)| (tag.as_str(), histogram));
        append(path, rows, self.longest)
    }

    /// Adds the histograms of a log.
    pub(crate) fn read(&mut self, log: &[u8]) -> Result<(), String> {
        let mut count = 0;
        for entry in IntervalLogIterator::new(log) {
            let entry =
                entry.map_err(|e| format!("no HDR log of format V2 behind {count} histograms: {e:?}"))?;
            if let LogEntry::Interval(interval) = entry {
                count += 1;
                self.add(&interval).map_err(|e| format!("histogram {count}: {e}"))?;
            }
        }
        if count == 0 { Err("it has no histogram".to_owned()) } else { Ok(()) }
    }

    fn add(&mut self, interval: &IntervalLogHistogram<'_>) -> Result<(), String> {
        let bytes = data_encoding::BASE64.decode(interval.encoded_histogram().as_bytes());
        let bytes = bytes.map_err(|e| e.to_string())?;
        let read = Deserializer::new().deserialize::<u64, _>(&mut &bytes[..]);
        let histogram = read.map_err(|e| format!("{e:?}"))?;
        let tag = interval.tag().map_or("all", |tag| tag.as_str()).to_owned();
        self.longest = self.longest.max(interval.duration());
        match self.histograms.get_mut(&tag) {
            Some(sum) => {
                sum.auto(true);
                sum.add(&histogram).map_err(|e| format!("{e:?}"))
            }
            None => {
                self.histograms.insert(tag, histogram);
                Ok(())
            }
        }
    }

    /// Returns the times of each tag that has any.
    fn all_times(&self) -> impl Iterator<Item = (&str, Times)> {
        self.histograms.iter().filter_map(|(tag, histogram)| Some((tag.as_str(), times_of(histogram)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(times_ns: &[u64]) -> Histogram<u64> {
        let mut histogram = Histogram::new(3).unwrap();
        times_ns.iter().for_each(|time| histogram.record(*time).unwrap());
        histogram
    }

    #[test]
    fn histograms_of_several_files_add_up_by_tag() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (few, many) = (histogram(&[1000]), histogram(&[2000, 3_000_000_000]));
        append(file.path(), [("MAIL", &few), ("QUIT", &few)].into_iter(), Duration::from_secs(2)).unwrap();
        append(file.path(), [("MAIL", &many)].into_iter(), Duration::from_secs(3)).unwrap();
        let mut sums = Sums::default();
        sums.read(&std::fs::read(file.path()).unwrap()).unwrap();
        assert_eq!((sums.histograms["MAIL"].len(), sums.histograms["QUIT"].len()), (3, 1));
        assert!((2_990_000_000..3_010_000_000).contains(&sums.histograms["MAIL"].max()));
        assert_eq!(sums.longest, Duration::from_secs(3));
        let counts: Vec<_> = sums.all_times().map(|(tag, times)| (tag, times.count)).collect();
        assert_eq!(counts, [("MAIL", 3), ("QUIT", 1)]);
    }

    #[test]
    fn a_file_without_histograms_is_refused() {
        for (text, words) in
            [("", "it has no histogram"), ("#x\n", "it has no histogram"), ("hello\n", "no HDR log")]
        {
            let error = Sums::default().read(text.as_bytes()).unwrap_err();
            assert!(error.contains(words), "{text:?}: {error}");
        }
    }
}
