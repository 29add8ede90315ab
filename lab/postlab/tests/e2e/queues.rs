//! `queuedirs` and `queuerun` as programs: layouts, processes, stored results, runners and hosts.

use crate::common::run;

fn ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The words of the first line that begins with these.
fn row<'t>(text: &'t str, words: &[&str]) -> Vec<&'t str> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.into_iter().find(|line| line.starts_with(words)).unwrap_or_else(|| panic!("{words:?}: {text}"))
}

#[test]
fn a_layout_sweep_queues_all_messages_in_each_layout_and_number_of_processes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let sweep = ["--layout", "flat,hashed", "--processes", "1,3", "-q", "2", "-s", "3", "-m", "40"];
    let text = ok(&[&["queuedirs", "-S", "--rounds", "1"][..], &sweep, &[path]].concat());
    for layout in ["flat", "hashed"] {
        for processes in ["1", "3"] {
            let row = row(&text, &["3", "2", layout, processes]);
            assert_eq!(row[4], "40", "{text}");
        }
    }
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
    let output = run(&["queuedirs", "-s", "1", "--processes", "2", path]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("each process needs a sender"), "{error}");
}

#[test]
fn a_result_is_kept_drawn_and_compared() {
    let directory = tempfile::tempdir().unwrap();
    let (path, file) = (directory.path().to_str().unwrap(), directory.path().join("base.json"));
    let (file, svg) = (file.to_str().unwrap(), directory.path().join("slope.svg"));
    let case = ["queuedirs", "-q", "1", "-s", "1", "-m", "2000", "-S", "--rounds", "1", "-l", "10"];
    let drawn = ["--slope", "--svg", svg.to_str().unwrap(), "-o", file, path];
    let text = ok(&[&case[..], &drawn].concat());
    assert!(text.contains("x: entries that are there") && text.contains("(95 %, N=4)"), "{text}");
    assert_eq!(std::fs::read_to_string(&svg).unwrap().matches("<circle").count(), 4);
    // Faster or slower: both are results of a comparison.
    let output = run(&[&case[..], &["--baseline", file, path]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code().is_some_and(|code| code <= 1), "{text}");
    assert!(text.contains("1 directories, 1 senders, flat, 1 processes"), "{text}");
    let same = ok(&["compare", file, file]);
    assert!(same.contains("not compared: 1 and 1 rounds: three of each are needed"), "{same}");
    let output = run(&["compare", "--gate", file, file]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("--gate: it cannot be told of 1 case whether it became slower"), "{told}");
    let output = run(&["queuedirs", "-m", "1999", "--slope", path]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("3 points of 500 messages, 4 are needed: use -m 2000 or more"), "{error}");
    let output = run(&["queuedirs", "--baseline", svg.to_str().unwrap(), path]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("it is not written by `queuedirs -o`"));
}

#[test]
fn runners_deliver_all_messages_once_and_host_order_keeps_connections() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let case =
        ["queuerun", "-m", "60", "--rounds", "1", "--runners", "1,2", "--order", "priority,host,random"];
    // That the sinks have each message once is checked by the command.
    let text =
        ok(&[&case[..], &["--hosts", "3", "--latency", "*=0.001,host1=0.01", "--settle", "0.01", path]]
            .concat());
    // A connection for each host; in another order, one for most messages.
    let tail =
        |words: &[&str]| row(&text, words).iter().rev().nth(2).map(|n| n.parse::<f64>().unwrap()).unwrap();
    assert!((tail(&["1", "host"]) - 3.0).abs() < 0.1, "{text}");
    assert!(tail(&["1", "priority"]) > 10.0, "{text}");
    assert!(text.contains("1 runners: host against priority: "), "{text}");
    assert!(text.contains("Settled for 0.01 s.") && text.contains("host1 10.0 ms"), "{text}");
    assert!(text.contains("- host: tests the lock of each envelope"), "{text}");
    let output = run(&[&case[..], &["--hosts", "2", "--latency", "host2=1", path]].concat());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("the hosts are host0 to host1"), "{error}");
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
}
