//! `postlab io-mix`: the kinds of file operations of a queue, from a trace of strace(1).

use crate::table::{Cell, Column, Format, Table};
use clap::Args;
use std::{collections::HashMap, fs, path::PathBuf};

/// Count reads, writes and syncs of a queue: their share, sizes, and how many are sequential
///
/// Reads what `strace -f -y -s 0 -o TRACE -p PID` wrote. Only files below --directory count. An access is sequential if
/// it begins at the start of a file, or where the previous one of the same kind in that file ended.
#[derive(Debug, Args)]
pub(crate) struct IoMixArgs {
    /// The directory of the queue
    #[arg(short = 'd', long, value_name = "DIRECTORY")]
    directory: PathBuf,
    /// Also show the count per message, for this number of messages
    #[arg(short = 'm', long = "messages", value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<u64>,
    #[command(flatten)]
    format: Format,
    /// The trace
    trace: PathBuf,
}

/// What a system call does with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Read,
    Write,
    Sync,
    Create,
    Rename,
    Remove,
}

impl Kind {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Read, "read"),
        (Self::Write, "write"),
        (Self::Sync, "sync"),
        (Self::Create, "create"),
        (Self::Rename, "rename"),
        (Self::Remove, "remove"),
    ];

    fn of(call: &str, arguments: &str) -> Option<Self> {
        Some(match call {
            "read" | "pread64" | "readv" | "preadv" | "preadv2" => Self::Read,
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" => Self::Write,
            "fsync" | "fdatasync" | "sync_file_range" | "syncfs" => Self::Sync,
            "openat" | "open" | "creat" if call == "creat" || arguments.contains("O_CREAT") => Self::Create,
            "rename" | "renameat" | "renameat2" => Self::Rename,
            "unlink" | "unlinkat" => Self::Remove,
            _ => return None,
        })
    }
}

/// Number, sizes and sequential accesses of one kind of operation.
#[derive(Debug, Clone, Default, PartialEq)]
struct Row {
    count: u64,
    bytes: Vec<u64>,
    sequential: u64,
}

type Operations = HashMap<Kind, Row>;

/// Reads the trace and prints the table.
pub(crate) fn run(args: &IoMixArgs) -> Result<(), String> {
    let text = fs::read(&args.trace).map_err(|e| format!("read {}: {e}", args.trace.display()))?;
    let directory = fs::canonicalize(&args.directory).unwrap_or_else(|_| args.directory.clone());
    let mix = parse(&String::from_utf8_lossy(&text), &directory.to_string_lossy());
    if mix.is_empty() {
        return Err(format!(
            "no operation below {} in {}: was it made with -y?",
            directory.display(),
            args.trace.display()
        ));
    }
    let all: u64 = mix.values().map(|row| row.count).sum();
    let mut table = Table::new(args.format, &COLUMNS, None);
    for (kind, name) in Kind::ALL {
        if let Some(row) = mix.get(&kind) {
            table.row(cells(name, row, all, args.messages));
        }
    }
    table.finish();
    Ok(())
}

/// Returns the lines of the trace, interrupted calls put together.
fn calls(text: &str) -> Vec<String> {
    let (mut begun, mut all) = (HashMap::new(), Vec::new());
    for line in text.lines() {
        let digits = line.bytes().take_while(u8::is_ascii_digit).count();
        let (process, call) = (&line[..digits], line[digits..].trim_start());
        if let Some(first) = call.strip_suffix(" <unfinished ...>") {
            begun.insert(process, first);
        } else if let Some((_, rest)) = call.split_once(" resumed>").filter(|_| call.starts_with("<... ")) {
            all.extend(begun.remove(process).map(|first| format!("{first}{rest}")));
        } else {
            all.push(call.to_owned());
        }
    }
    all
}

fn parse(text: &str, directory: &str) -> Operations {
    let mut mix = Operations::new();
    // The end of the last access, by file and kind.
    let mut ends: HashMap<(String, Kind), u64> = HashMap::new();
    for line in calls(text) {
        let Some((call, rest)) = line.split_once('(') else { continue };
        let Some((arguments, result)) = rest.rsplit_once(" = ") else { continue };
        let Some(kind) = Kind::of(call, arguments) else { continue };
        let arguments = arguments.trim_end().trim_end_matches(')');
        // `0x8001 (flags …)`, `-1 ENOENT (…)` and `4</path>` are results too.
        let number: String = result.trim().chars().take_while(char::is_ascii_digit).collect();
        let Ok(number) = number.parse::<u64>() else { continue };
        let is_data = matches!(kind, Kind::Read | Kind::Write);
        // A file that is created or removed is named below a directory, or by its path.
        let subject = if is_data || kind == Kind::Sync { first_path(arguments) } else { Some(&*line) };
        let Some(subject) = subject.filter(|text| is_below(text, directory, is_data || kind == Kind::Sync))
        else {
            continue;
        };
        let row = mix.entry(kind).or_default();
        row.count += 1;
        if is_data {
            let end = ends.entry((subject.to_owned(), kind)).or_default();
            let at = offset(call, arguments).unwrap_or(*end);
            row.sequential += u64::from(at == *end || at == 0);
            row.bytes.push(number);
            *end = at + number;
        }
    }
    mix
}

/// Returns the path in the first argument, as in `19</tmp/a>, …`.
fn first_path(arguments: &str) -> Option<&str> {
    arguments.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(path, _)| path)
}

fn is_below(text: &str, directory: &str, is_path: bool) -> bool {
    if is_path { text.starts_with(directory) } else { text.contains(directory) }
}

/// Returns the offset of calls that have one among their arguments.
fn offset(call: &str, arguments: &str) -> Option<u64> {
    let from_last = match call {
        "pread64" | "pwrite64" | "preadv" | "pwritev" => 0,
        "preadv2" | "pwritev2" => 1,
        _ => return None,
    };
    arguments.rsplit(", ").nth(from_last)?.trim().parse().ok()
}

const COLUMNS: [Column; 7] = [
    Column::left("operation", "operation", 9),
    Column::right("calls", "calls", 8),
    Column::right("share %", "share_percent", 8),
    Column::right("a message", "calls_per_message", 11),
    Column::right("p50 octets", "p50_bytes", 12),
    Column::right("max octets", "max_bytes", 12),
    Column::right("sequential %", "sequential_percent", 12),
];

fn cells(name: &str, row: &Row, all: u64, messages: Option<u64>) -> [Cell; 7] {
    let mut bytes = row.bytes.clone();
    bytes.sort_unstable();
    let percent = |count: u64, of: u64| count as f64 / of as f64 * 100.0;
    [
        name.into(),
        row.count.into(),
        Cell::Number(percent(row.count, all), 1),
        messages.map_or(Cell::Empty, |n| Cell::Number(row.count as f64 / n as f64, 3)),
        bytes.get(bytes.len() / 2).copied().into(),
        bytes.last().copied().into(),
        bytes.last().map_or(Cell::Empty, |_| Cell::Number(percent(row.sequential, row.count), 0)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
17 openat(15</q>, \"a.msg\", O_RDWR|O_CREAT|O_EXCL, 0600) = 32</q/a.msg>\n\
17 pwrite64(32</q/a.msg>, \"\"..., 100, 0) = 100\n\
17 pwrite64(32</q/a.msg>, \"\"..., 50, 100 <unfinished ...>\n\
18 fsync(33</q/b>)  = 0\n\
18 write(9</other/q/x>, \"\"..., 7) = 7\n\
17 <... pwrite64 resumed>) = 50\n\
17 pwrite64(32</q/a.msg>, \"\"..., 10, 4096) = 10\n\
18 write(34</q/c>, \"\"..., 5) = 5\n18 write(34</q/c>, \"\"..., 6) = 6\n\
17 pread64(32</q/a.msg>, \"\"..., 512, 512) = 512\n\
17 renameat(15</q>, \"a.new\", 15</q>, \"a.env\") = 0\n\
17 unlinkat(15</q>, \"gone\", 0) = -1 ENOENT (No such file or directory)\n\
17 unlink(\"/q/a.msg\") = 0\n17 read(3<socket:[1]>, \"\", 9) = 9\n";

    #[test]
    fn operations_below_the_directory_are_counted_by_kind() {
        let mix = parse(TRACE, "/q");
        let counts = Kind::ALL.map(|(kind, _)| mix.get(&kind).map_or(0, |row| row.count));
        assert_eq!(counts, [1, 5, 1, 1, 1, 1], "{mix:?}");
        // All writes but the one behind a gap.
        assert_eq!(mix[&Kind::Write], Row { count: 5, bytes: vec![100, 50, 10, 5, 6], sequential: 4 });
        assert_eq!(mix[&Kind::Read].sequential, 0);
        let cells = cells("write", &mix[&Kind::Write], 10, Some(2));
        let [
            _,
            Cell::Count(5),
            Cell::Number(share, 1),
            Cell::Number(each, 3),
            Cell::Count(10),
            Cell::Count(100),
            Cell::Number(sequential, 0),
        ] = cells
        else {
            panic!("{cells:?}");
        };
        assert!((share, each, sequential) == (50.0, 2.5, 80.0), "{cells:?}");
        assert!(parse(TRACE, "/nowhere").is_empty());
    }
}
