//! The disk's measurements as programs: they print what they did and leave nothing behind.

use crate::common::run;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

fn ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn each_measurement_reports_and_cleans_up() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    for (arguments, words) in [
        (&["readwrite", "-f", "5", "-p", "3", "--threads"][..], " s, 3 threads"),
        (&["readwrite", "-f", "5", "-p", "3"], " s, 3 processes"),
        (&["readwrite", "-s", "-f", "3", "-p", "2", "--rounds", "2"], "12 times, p50 "),
        (&["log-buffering", "-n", "2000", "--rounds", "2"], "queue "),
        (&["fsperf1", "20", "5"], "20 operations on 5 files in "),
        (&["fsperf1", "-c", "-r", "-h", "1", "--rounds", "2", "12", "4"], "24 times, p50 "),
        (&["fsseq1", "-C", "10", "-f", "-n", "20", "--rounds", "2"], "24 octets: C=10 is "),
        (&["fsseq2", "-C", "5", "-s", "256,512", "-n", "10"], "     5    512       10"),
        (&["fsseq3", "-C", "7", "-s", "8192", "-n", "10", "--rounds", "1"], "N=1"),
        (
            &["fsseq3", "-C", "1,100", "-s", "512", "-n", "200"],
            "Window of Postrider's log for so many senders",
        ),
        (&["fsseq4", "-C", "1,3", "-s", "20", "-n", "9", "--limit", "1"], "synced (fsync) after every C"),
        (
            &["queuedirs", "-q", "1,3", "-s", "1,2", "-m", "20", "--rounds", "2"],
            "      2     3   flat         1       20",
        ),
        (
            &["queuedirs", "-q", "1", "-s", "1", "-m", "2500", "-S", "--slope", "--rounds", "1"],
            "µs an entry for each 1000",
        ),
        (&["queuerun", "-m", "50", "--rounds", "2"], "smallest "),
        (&["delete-cost", "-m", "30", "-s", "7", "--rounds", "1"], "queue-dirs  and settled behind"),
        (&["fsperf1", "-p", "-c", "-S", "-s", "10", "-h", "2", "9", "9"], "9 operations on 9 files in "),
    ] {
        let text = ok(&[arguments, &[path]].concat());
        assert!(text.contains(words), "{arguments:?}: {text}");
        assert_eq!(std::fs::read_dir(path).unwrap().count(), 0, "{arguments:?}");
    }
}

#[test]
fn only_a_store_with_a_log_of_its_own_puts_it_elsewhere() {
    let (directory, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let kv = |backends: &str| {
        let options =
            ["-n", "200", "-T", "50", "-C", "100", "--rounds", "1", "--backend", backends, "--log-directory"];
        let places = [logs.path(), directory.path()].map(|path| path.to_str().unwrap());
        let output = run(&[&["kv"], &options[..], &places].concat());
        let [text, said] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.success(), text, said)
    };
    let (_, _, said) = kv("sqlite");
    assert!(said.contains("--log-directory: sqlite has no log that could be elsewhere"), "{said}");
    let (is_good, text, said) = kv("berkeley-btree,berkeley-queue");
    if said.contains("install python3-bsddb3") || said.contains("run /usr/bin/python3") {
        eprintln!("SKIPPED: {said}");
        return;
    }
    assert!(is_good && text.contains("berkeley-queue      50     20      200"), "{text}{said}");
    assert_eq!([logs.path(), directory.path()].map(|path| std::fs::read_dir(path).unwrap().count()), [0, 0]);
}

#[test]
fn a_collector_that_waits_for_its_disk_loses_datagrams_and_no_line_of_a_stream() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let lost = |over: &str, lines: &str| {
        let options = ["--over", over, "-n", lines, "--rate", "0", "--sync", "--rounds", "1", "--csv"];
        let text = ok(&[&["syslog-loss"], &options[..], &[path]].concat());
        let mut rows = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(','));
        let column = rows.next().unwrap().position(|name| name == "lost_percent").unwrap();
        rows.next().unwrap().nth(column).unwrap().parse::<f64>().unwrap()
    };
    // As many as no buffer of a socket holds.
    assert!(lost("udp", "50000") > 0.0);
    assert!(lost("tcp", "200") == 0.0);
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
}

#[test]
fn an_output_that_is_closed_or_full_ends_a_measurement_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    for arguments in [
        &["fsseq1", "--limit", "1", "-C", "10", "-n", "20", "--rounds", "1"][..],
        &["fsperf1", "-c", "--rounds", "1", "10", "10"],
        &["readwrite", "-f", "5", "-p", "3", "--rounds", "1"],
        &["log-buffering", "-n", "2000", "--rounds", "1"],
        &["kv", "-n", "20", "-T", "20", "-l", "20", "--rounds", "1"],
        &["queuedirs", "-q", "1", "-s", "1", "-m", "20", "--rounds", "1"],
        &["queuerun", "-m", "20", "--rounds", "1"],
        &["delete-cost", "-m", "20", "-s", "3", "--rounds", "1"],
        &["delete-cost", "-m", "20", "-s", "3", "--rounds", "1", "--json"],
    ] {
        let into = |stdout: Stdio| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_postlab"));
            let output = command.args(arguments).arg(path).stdout(stdout).output().unwrap();
            assert_eq!(std::fs::read_dir(path).unwrap().count(), 0, "{arguments:?}: {output:?}");
            (output.status.code(), String::from_utf8(output.stderr).unwrap())
        };
        // Nobody reads from this pipe.
        let (_, closed) = std::io::pipe().unwrap();
        assert_eq!(into(closed.into()), (Some(0), String::new()), "{arguments:?}");
        let (code, error) = into(std::fs::File::create("/dev/full").unwrap().into());
        assert_eq!(code, Some(2), "{arguments:?}: {error}");
        assert_eq!(error, "postlab: failed printing to stdout: No space left on device (os error 28)\n");
    }
}

#[test]
fn memory_is_not_durable_and_the_exit_code_says_so() {
    if !std::path::Path::new("/dev/shm").is_dir() {
        eprintln!("SKIPPED: there is no /dev/shm here");
        return;
    }
    let output = run(&["fsync-check", "-n", "10", "/dev/shm"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("NOT DURABLE: this file system is memory"));
    let json = run(&["fsync-check", "--json", "-n", "10", "/dev/shm"]);
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&value["verdict"], &value["evidence"]["syncs"]), (&"memory".into(), &10.into()));
}

#[test]
fn a_directory_that_is_not_there_is_one_clear_line() {
    for verb in [&["readwrite"][..], &["fsseq2"], &["iostat", "-d"], &["fsperf1", "1", "1"], &["fsync-check"]]
    {
        let output = run(&[verb, &["/no/dir"]].concat());
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "postlab: look at /no/dir: No such file or directory (os error 2)\n"
        );
    }
}

#[test]
fn dd_writes_its_file_twice_as_told_and_tells_cache_from_disk() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("incq");
    let of = format!("of={}", file.display());
    let text = ok(&["dd", "--rounds", "2", "ibs=8192", "if=/dev/zero", "obs=8192", "count=10", &of]);
    assert!(text.contains("0.08192 MB in blocks of 8192 octets") && text.contains("N=2) MB/s"), "{text}");
    assert!(!file.exists());
    std::fs::write(&file, "mine").unwrap();
    let output = run(&["dd", "count=1", &of]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("File exists"), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine", "what is there is not ours to remove");
}

#[test]
fn iostat_counts_a_command_and_ends_as_it_does() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let text = ok(&["iostat", "-d", path, "-m", "2", "--", "sh", "-c", "exit 0"]);
    assert!(text.contains("\nsh ") && text.contains("for one message"), "{text}");
    assert_eq!(run(&["iostat", "-d", path, "--", "false"]).status.code(), Some(1));
    let mut command = Command::new(env!("CARGO_BIN_EXE_postlab"));
    command.args(["iostat", "-d", path, "--", "sleep", "600"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // It says which disk that is when it watches for signals, and the command has its own name from its begin.
    lines.next().unwrap().unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(lines.any(|line| line.unwrap().starts_with("sleep ")), "its figures are told all the same");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let me = std::process::id().to_string();
    let text = ok(&["iostat", "-w", "0.01", "-c", "1", "-p", &me, "-d", path]);
    assert!(text.contains("oublock"), "{text}");
}

#[test]
fn what_has_no_room_is_refused_and_what_was_not_measured_is_no_zero() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let most = u32::MAX.to_string();
    for (arguments, words) in [
        (&["queuedirs", "-m", &most, "-l", "16777216", "--rounds", "1000"][..], " MB are free"),
        (&["map-lookup", "-n", "10000000", "-l", "65536"], "the memory has"),
        (&["map-lookup", "-m", &most], "is not in 1..=10000000"),
    ] {
        let output = run(&[arguments, &[path]].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(words), "{arguments:?}: {error}");
    }
    // A point has 500 messages.
    let text = ok(&["queuedirs", "-q", "1", "-s", "1", "-m", "20", "-S", "--rounds", "1", path]);
    assert!(text.contains("  - ") && !text.contains(" -0.00"), "{text}");
}

#[test]
fn bonnie_does_all_its_phases_and_removes_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let text = ok(&[
        "bonnie",
        "-d",
        path,
        "-r",
        "0",
        "-s",
        "1:4096:20:2",
        "-f",
        "4k",
        "-n",
        "1:100:0:3",
        "-m",
        "box",
        "-x",
        "2",
    ]);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("box,1M,")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(lines[0].split(',').count(), 2 + 24 + 1, "{text}");
    let fields: Vec<&str> = lines[0].split(',').collect();
    assert_eq!(fields[14], "1:100:0/3", "{text}");
    // The rate of the seeks: which are too short for one is tested where it is written.
    let is_rate = fields[12].parse::<f64>().is_ok() && fields[13].parse::<u32>().is_ok();
    assert!(fields[12..14] == ["+++++", "+++"] || is_rate, "{text}");
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
    let text = ok(&["bonnie", "-d", path, "-r", "0", "-s", "0", "-n", "1", "-b", "-q"]);
    assert_eq!(text.lines().count(), 1, "only the CSV line: {text}");
    let error = |arguments: &[&str]| {
        let output = run(&[&["bonnie", "-d", path], arguments].concat());
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(error(&["-r", "100", "-s", "150"]).contains("make it twice as large"));
    assert!(error(&["-r", "0", "-s", "1:1000"]).contains("no power of two"));
    assert!(error(&["-s", "x"]).contains("`x` is not a size"));
    assert!(error(&["-s", "0", "-n", "4294967297"]).contains("`4294967297` is too many"));
    assert!(error(&["-s", "0", "-n", "1:0:0:3000000"]).contains("at most 65536:1g:1g:65536"));
    assert!(error(&["-s", "1", "-r", "9000000000g"]).contains("make it twice as large"));
    ok(&["bonnie", "-d", path, "-r", "0", "-s", "1", "-n", "0", "-f", "-z", &u64::MAX.to_string()]);
}

#[test]
fn bonnie_prints_the_fields_of_the_original() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let words = ["-q", "-d", path, "-s", "2", "-f", "-n", "1", "-r", "0", "-m", "box", "-u", "root"];
    // Only root may become root; the original refuses to run as root without -u.
    let words = &words[..if rustix::process::geteuid().is_root() { words.len() } else { words.len() - 2 }];
    // Debian has it in /usr/sbin, where not everybody looks.
    let program = ["/usr/sbin/bonnie++", "bonnie++"]
        .into_iter()
        .find_map(|program| Command::new(program).args(words).stdin(Stdio::null()).output().ok());
    let Some(theirs) = program else {
        println!("SKIPPED: bonnie++ is not installed (Debian: apt-get install bonnie++)");
        return;
    };
    let theirs = String::from_utf8(theirs.stdout).unwrap();
    let ours = ok(&[&["bonnie", "--bonnie-csv", "1.98"], words].concat());
    // A figure is a number, with its unit, or plus signs where the time was too short.
    let shape = |line: &str| -> Vec<&'static str> {
        let kind = |field: &str| match field {
            "" => "",
            field if field.ends_with('s') => "time",
            _ => "figure",
        };
        line.trim_end().split(',').map(kind).collect()
    };
    assert_eq!(shape(&ours), shape(&theirs), "{ours}{theirs}");
    let given = |line: &str| -> Vec<String> {
        let fields: Vec<&str> = line.split(',').collect();
        [0, 1, 2, 3, 5, 7, 8, 21].map(|at| fields[at].to_owned()).to_vec()
    };
    assert_eq!(given(&ours), given(&theirs), "{ours}{theirs}");
}

#[test]
fn records_go_into_each_store_and_none_stays_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let text = ok(&["kv", "-n", "50", "-T", "20,50", "-l", "20,100", "-C", "30", "--rounds", "2", path]);
    for backend in ["file", "log", "redb", "sqlite"] {
        let rows = text.lines().filter(|line| line.split(' ').next() == Some(backend));
        assert_eq!(rows.filter(|line| line.contains("N=2)")).count(), 4, "{backend}: {text}");
    }
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
    let output = run(&["kv", "--backend", "abacus"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("`abacus` is none of file, log, redb, sqlite"), "{error}");
}

#[test]
fn system_calls_of_a_command_are_counted() {
    let output = run(&["syscalls", "--csv", "--", "cat", "/dev/null"]);
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("strace: it is not installed") || error.contains("Operation not permitted") {
        eprintln!("SKIPPED: strace cannot be used here");
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("phase,syscall,count,total_us,average_us,errors,"), "{text}{error}");
    assert!(text.contains("command,openat,"), "{text}");
    let output = run(&["syscalls", "--with", "strace", "-m", "1", "--", "cat", "/dev/null"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("openat ") && text.contains("Times are strace's"), "{text}");
    // Beyond the largest process number there can be.
    let gone = run(&["syscalls", "-p", "4294967294", "--", "true"]);
    let error = String::from_utf8_lossy(&gone.stderr);
    assert!(!gone.status.success() && error.contains("process 4294967294: there is none"), "{error}");
}

/// The daemon that was built beside us; a lab that is built alone has none.
fn postrider() -> Option<std::path::PathBuf> {
    let path = std::path::Path::new(env!("CARGO_BIN_EXE_postlab")).with_file_name("postrider");
    let found = path.exists().then_some(path);
    if found.is_none() {
        eprintln!("SKIPPED: postrider is not built");
    }
    found
}

#[test]
fn a_real_daemon_queues_and_its_queue_is_gone_through() {
    let Some(binary) = postrider() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (path, results) = (directory.path().join("disk"), directory.path().join("results"));
    std::fs::create_dir(&path).unwrap();
    let common = ["--binary", binary.to_str().unwrap(), "--results", results.to_str().unwrap()];
    let words = ["queuedirs", "--mta", "postrider", "-m", "40", "-q", "1,3", "-s", "1,4", "--rounds", "1"];
    let text = ok(&[&words, &common[..], &[path.to_str().unwrap()]].concat());
    for row in ["log            1       4       40 ", "queue-dirs     3       1       40 "] {
        assert!(text.contains(row), "{row}\n{text}");
    }
    let words = ["queuerun", "--mta", "postrider", "-m", "60", "--rounds", "1", "--runners", "2"];
    let words = [&words, &["--order", "time,fair"][..], &common, &[path.to_str().unwrap()]].concat();
    let text = ok(&words);
    assert!(
        text.contains("\ntime            warm        - ")
            && text.contains("\nfair            warm        2 ")
    );
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    let kept = |name: &str| {
        let mut entries = std::fs::read_dir(&results).unwrap().map(|entry| entry.unwrap().path());
        let path = entries.find(|path| path.to_str().unwrap().ends_with(name)).unwrap();
        std::fs::read_to_string(path.join("runs.jsonl")).unwrap().lines().count()
    };
    assert_eq!((kept("queue-create"), kept("queue-run")), (6, 8));
}
