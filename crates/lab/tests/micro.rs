//! The small measurements as programs: net, lookup, format.

mod common;

use common::run;

fn ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn round_trips_go_over_all_four_ways() {
    let text = ok(&["net", "-R", "20", "-c", "32,9000", "-s", "100", "-b", "64", "--rounds", "2"]);
    let rows: Vec<&str> = text.lines().skip(1).map(|l| l.split_whitespace().next().unwrap()).collect();
    assert_eq!(rows, ["INET", "INET", "LOCAL", "LOCAL", "pipe", "pipe", "eventfd"]);
    assert!(text.matches("N=2)").count() == 14, "{text}");
    let text = ok(&["net", "-R", "5", "-u", "-c", "8", "--rounds", "1"]);
    assert!(text.contains("LOCAL      8        5") && !text.contains("INET"), "{text}");
}

#[test]
fn lookups_find_every_key_in_every_map() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let text = ok(&["lookup", "-n", "500", "-l", "9", "-m", "300", "--rounds", "2", path]);
    for name in ["hash map", "sorted vector", "cdb-like file", "unix socket, 32 at once", "TCP socket"] {
        assert!(text.contains(name), "{text}");
    }
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
}

#[test]
fn a_log_line_is_formatted_in_each_way() {
    let text = ok(&["format", "-n", "1000", "--rounds", "2"]);
    for name in ["format!", "write!", "by hand", "serde_json"] {
        assert!(text.contains(name) && text.contains("N=2"), "{text}");
    }
}
