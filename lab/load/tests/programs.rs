//! Source and sink as programs of their own.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Command, Stdio},
};

#[test]
fn the_source_sends_to_the_sink_without_the_rest_of_the_laboratory() {
    let mut sink = Command::new(env!("CARGO_BIN_EXE_postlab-sink"))
        .args(["-M", "20", "--json", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(sink.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap_or_default();
    let source = Command::new(env!("CARGO_BIN_EXE_postlab-source"))
        .args(["-m", "20", "-s", "2", "--json", address])
        .output()
        .unwrap();
    let mut counts = String::new();
    sink.stdout.take().unwrap().read_to_string(&mut counts).unwrap();
    assert!(sink.wait().unwrap().success() && source.status.success(), "{line}{source:?}");
    let number =
        |json: &str, key: &str| serde_json::from_str::<serde_json::Value>(json).unwrap()[key].as_u64();
    assert_eq!(number(&counts, "messages"), Some(20));
    assert_eq!(number(&String::from_utf8(source.stdout).unwrap(), "messages_sent"), Some(20));
}

#[test]
fn a_wrong_command_line_is_answered_with_64() {
    for program in [env!("CARGO_BIN_EXE_postlab-source"), env!("CARGO_BIN_EXE_postlab-sink")] {
        let output = Command::new(program).arg("--nonsense").output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{program}");
        assert!(String::from_utf8(output.stderr).unwrap().contains("--nonsense"));
    }
}
