//! Lines for systemd's journal.

use crate::common::{BINARY, free_address, until};
use std::{fs, os::unix::fs::MetadataExt as _, path::Path, process::Command};

/// Starts a program whose standard error is a file that it is told to be the journal, and returns what is in the file in the end.
fn journal(dir: &Path, arguments: &[&str], wait_for: Option<&str>) -> String {
    let path = dir.join("journal");
    let file = fs::File::create(&path).unwrap();
    let about = file.metadata().unwrap();
    let mut child = Command::new(BINARY)
        .args(arguments)
        .current_dir(dir)
        .env("JOURNAL_STREAM", format!("{}:{}", about.dev(), about.ino()))
        .stderr(file)
        .spawn()
        .unwrap();
    let read = || fs::read_to_string(&path).unwrap();
    if let Some(text) = wait_for {
        until("the daemon has said it", || read().contains(text));
        child.kill().unwrap();
    }
    child.wait().unwrap();
    read()
}

#[test]
fn each_line_in_the_journal_has_a_priority_and_no_time() {
    let dir = tempfile::tempdir().unwrap();
    let address = free_address();
    let config =
        format!("hostname = \"mx.test\"\ndata_dir = \"data\"\n[[listen]]\naddress = \"{address}\"\n");
    fs::write(dir.path().join("good.toml"), config).unwrap();
    let said = journal(dir.path(), &["serve", "--config", "good.toml"], Some("listening on"));
    assert!(said.lines().all(|line| line.starts_with("<6>") || line.starts_with("<4>")), "{said}");
    assert!(said.lines().any(|line| line.starts_with("<6>listening on")), "{said}");
    fs::write(dir.path().join("bad.toml"), "hostnam = \"mx.test\"\n").unwrap();
    let said = journal(dir.path(), &["serve", "--config", "bad.toml"], None);
    assert!(said.starts_with("<3>error") && said.lines().all(|line| line.starts_with("<3>")), "{said}");
}
