//! The small measurements as programs: lookup, format.

mod common;

use common::run;

fn ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn lookups_find_every_key_in_every_map() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let text = ok(&["map-lookup", "-n", "500", "-l", "9", "-m", "300", "--rounds", "2", path]);
    for name in [
        "hash map",
        "sorted vector",
        "cdb file",
        "SQLite, cache of 64 KB",
        "cdb file, sequential",
        "SQLite",
        "unix socket, 32 at once",
        "TCP socket",
    ] {
        assert!(text.contains(name), "{text}");
    }
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
}

#[test]
fn a_log_line_is_formatted_in_each_way() {
    let text = ok(&["log-format", "-n", "1000", "--rounds", "2"]);
    for name in ["format!", "write!", "by hand", "serde_json"] {
        assert!(text.contains(name) && text.contains("N=2"), "{text}");
    }
}

#[test]
fn each_command_has_a_man_page() {
    let directory = tempfile::tempdir().unwrap();
    ok(&["man", directory.path().to_str().unwrap()]);
    let help = ok(&["--help"]);
    let commands = help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    // Deeper lines go on with what a command does.
    let names: Vec<&str> =
        commands.filter_map(|l| l.strip_prefix("  ")?.split(' ').next().filter(|w| !w.is_empty())).collect();
    assert!(names.len() > 25, "{help}");
    for name in names.iter().filter(|name| **name != "help") {
        let page = std::fs::read_to_string(directory.path().join(format!("postlab-{name}.1"))).unwrap();
        assert!(page.contains(".SH OPTIONS"), "{name}");
    }
}
