//! `postlab run`: scenarios into result directories.

use crate::common::{run, wire};
use serde_json::json;
use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Returns the only result below a directory.
fn result_in(results: &Path) -> PathBuf {
    std::fs::read_dir(results).unwrap().next().unwrap().unwrap().path()
}

fn runs(results: &Path) -> Vec<serde_json::Value> {
    let directory = result_in(results);
    assert!(directory.join("scenario.toml").exists() && directory.join("machine.json").exists());
    let text = std::fs::read_to_string(directory.join("runs.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn write(directory: &Path, text: &str) -> String {
    let path = directory.join("scenario.toml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_ceiling_is_measured_for_each_number_of_sessions_and_round() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = write(
        directory.path(),
        "title = \"Ceiling!\"\nhypothesis = \"It is high.\"\nexperiment = \"ceiling\"\nrepeats = 2\n\
         [load]\nmessages = 50\nsessions = [1, 4]\noptions = \"-d\"\n",
    );
    let results = directory.path().join("results");
    let output = run(&["run", "--results", results.to_str().unwrap(), &scenario]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("It is high.") && text.contains("ceiling"), "{text}");
    let runs = runs(&results);
    assert_eq!(runs.len(), 4);
    let is_short = runs.iter().any(|run| run["source"]["accepted_seconds"].as_f64().unwrap() < 0.5);
    assert_eq!(text.contains(crate::common::TOO_SHORT), is_short, "{text}{runs:?}");
    assert!(runs.iter().all(|r| r["received"] == 50 && r["complete"] == true), "{runs:?}");
}

#[test]
fn a_relay_run_ends_when_the_sink_has_everything_and_has_its_ceiling_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let sink = crate::common::ports::free_address().to_string();
    let mta = wire(&sink);
    let started = directory.path().join("started").display().to_string();
    let scenario = write(
        directory.path(),
        &format!(
            "title = \"relay\"\nexperiment = \"relay\"\nrepeats = 1\n[load]\nmessages = 40\nsessions = [2]\n\
             warm_up = 3\n[sink]\nlisten = \"{sink}\"\noptions = \"-W .:0.01\"\n[mta]\nname = \"wire\"\n\
             endpoint = \"{mta}\"\nstart = \"echo $SINK_PORT >> {started}\"\n"
        ),
    );
    let results = directory.path().join("results");
    let output = run(&["run", "--results", results.to_str().unwrap(), &scenario]);
    assert!(output.status.success(), "{output:?}");
    let runs = runs(&results);
    assert_eq!((&runs[0]["kind"], &runs[1]["kind"]), (&"ceiling".into(), &"relay".into()));
    assert_eq!((&runs[1]["received"], &runs[1]["complete"]), (&40.into(), &true.into()));
    assert!(runs[1]["drained_seconds"].as_f64().unwrap() >= 0.2);
    assert!(runs[1]["moments"].as_array().unwrap().len() > 2);
    let port = sink.rsplit(':').next().unwrap();
    assert_eq!(std::fs::read_to_string(started).unwrap().trim(), port);
}

#[test]
fn what_cannot_run_is_one_clear_line() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results").display().to_string();
    let base = "title = \"x\"\nexperiment = \"relay\"\n[load]\nmessages = 1\nsessions = [1]\n";
    for (text, words) in [
        (base.to_owned(), "a relay experiment needs an [mta] table"),
        (
            format!("{base}[mta]\nname = \"m\"\nendpoint = \"127.0.0.1:1\"\nstart = \"exit 3\"\n"),
            "run `exit 3`: it ended with",
        ),
        (format!("{base}[mta]\nname = \"m\"\nendpoint = \"nonsense\"\n"), "nonsense"),
    ] {
        let output = run(&["run", "--results", &results, &write(directory.path(), &text)]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(words), "{error}");
    }
}

#[test]
fn a_report_is_one_page_that_needs_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = write(
        directory.path(),
        "title = \"A <b> & C\"\nexperiment = \"ceiling\"\nrepeats = 2\n[load]\nmessages = 20\nsessions = [1, 3]\n",
    );
    let results = directory.path().join("results");
    assert!(run(&["run", "--results", results.to_str().unwrap(), &scenario]).status.success());
    let result = result_in(&results);
    let page = directory.path().join("page.html");
    let output = run(&["report", result.to_str().unwrap(), "-o", page.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("<h2>A &lt;b&gt; &amp; C</h2>"));
    assert_eq!(html.matches("class=\"round\"").count(), 4, "a dot for each run");
    for foreign in ["http://", "https://", "<script", "src=", "@import"] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    let output = run(&["report", "/no/dir"]);
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("postlab: /no/dir has no scenario.toml"));
}

#[test]
fn the_scenarios_that_come_with_the_lab_can_be_read() {
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        // Results cannot be made below a file: nothing runs, but the scenario was read by then.
        let output = run(&["run", "--results", "/dev/null/x", path.to_str().unwrap()]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.starts_with("postlab: create /dev/null/x/"), "{}: {error}", path.display());
    }
}

#[test]
fn two_results_are_compared_case_by_case() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = write(
        directory.path(),
        "title = \"ceiling\"\nexperiment = \"ceiling\"\nrepeats = 3\n[load]\nmessages = 30\nsessions = [1]\n\
         [[variant]]\nname = \"small\"\n[[variant]]\nname = \"large\"\noptions = \"-l 20000\"\n",
    );
    let results: Vec<String> = ["a", "b"]
        .iter()
        .map(|name| {
            let results = directory.path().join(name);
            let output = run(&["run", "--results", results.to_str().unwrap(), "--messages", "40", &scenario]);
            assert!(output.status.success(), "{output:?}");
            let result = result_in(&results);
            result.display().to_string()
        })
        .collect();
    let output = run(&["compare", &results[0], &results[1]]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "a ceiling that moves is no fault: {output:?}");
    assert!(
        text.contains("ceiling, small") && text.contains("ceiling, large") && text.contains("N=3)"),
        "{text}"
    );
    // A disk that was full has cut a line off: the others are runs all the same.
    let mut file = std::fs::File::options().append(true).open(format!("{}/runs.jsonl", results[1])).unwrap();
    file.write_all(b"{\"kind\":\"ceil").unwrap();
    let output = run(&["compare", &results[0], &results[1]]);
    assert!(output.status.success() && output.stdout == text.as_bytes(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).ends_with("runs.jsonl is cut off\n"), "{output:?}");
    let output = run(&["compare", &results[0], "/no/dir"]);
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("postlab: /no/dir has no scenario.toml"));
}

#[test]
fn a_result_names_the_server_with_version_and_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let sink = crate::common::Sink::start(&["-c"]);
    let relay = wire(&sink.address);
    let scenario = write(
        directory.path(),
        &format!(
            "title = \"wire\"\nexperiment = \"relay\"\nrepeats = 1\n[load]\nmessages = 10\nsessions = [1]\n[mta]\nname = \"MTA\"\n\
             endpoint = \"{relay}\"\nidle_timeout_seconds = 1\ndescribe = \"echo Wire; echo 1.0; echo $EXTRA\"\n\
             [[variant]]\nname = \"thin\"\nenv = {{ EXTRA = \"abcd\" }}\n"
        ),
    );
    let results = directory.path().join("results");
    // Its mail goes to the other sink: the run is incomplete, and named all the same.
    let output = run(&["run", "--results", results.to_str().unwrap(), &scenario]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("MTA: thin: Wire 1.0 (configuration abcd)"), "{output:?}");
    let result = result_in(&results);
    let page = directory.path().join("page.html");
    assert!(run(&["report", result.to_str().unwrap(), "-o", page.to_str().unwrap()]).status.success());
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<h2>wire: Wire 1.0</h2>") && page.contains("configuration abcd"), "{page}");
}

#[test]
fn a_gate_fails_where_repeats_are_too_few_to_compare() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = write(
        directory.path(),
        "title = \"relay\"\nexperiment = \"relay\"\n[load]\nmessages = 10\nsessions = [1]\n[mta]\nname = \"x\"\nendpoint = \"127.0.0.1:1\"\n",
    );
    let run_with = |rate: f64| {
        json!({ "kind": "relay", "round": 1, "sessions": 1, "received": 10, "drained_seconds": 1.0, "drained_rate": rate,
            "backlog_peak": 0, "complete": true, "mta_cpu_us_per_message": null, "moments": [],
            "source": source() })
    };
    let keep = |name: &str, rates: &[f64]| {
        let result = directory.path().join(name);
        std::fs::create_dir(&result).unwrap();
        std::fs::copy(&scenario, result.join("scenario.toml")).unwrap();
        std::fs::write(result.join("machine.json"), "{}").unwrap();
        let runs: String = rates.iter().map(|rate| format!("{}\n", run_with(*rate))).collect();
        std::fs::write(result.join("runs.jsonl"), runs).unwrap();
        result.display().to_string()
    };
    let (old, new) = (keep("a", &[2602.0]), keep("b", &[319.0]));
    let output = run(&["compare", &old, &new]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("not compared: 1 and 1 runs"), "{output:?}");
    let output = run(&["compare", "--gate", "--max-slower", "5%", &old, &new]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("--gate: it cannot be told of 1 case whether it became slower"), "{text}");
    assert_eq!(run(&["compare", "--max-slower", "x", &old, &new]).status.code(), Some(64));
    // Noise proves nothing; it must not open the gate, with a limit or without.
    let (old, new) = (keep("c", &[1000.0, 850.0, 1150.0]), keep("d", &[700.0, 620.0, 920.0]));
    assert!(run(&["compare", &old, &new]).status.success());
    let output = run(&["compare", "--gate", &old, &new]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn a_gate_fails_where_there_are_only_ceilings() {
    let directory = tempfile::tempdir().unwrap();
    let results = ceiling(directory.path());
    let result = result_in(&results);
    let result = result.to_str().unwrap();
    assert!(run(&["compare", result, result]).status.success());
    let output = run(&["compare", "--gate", result, result]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("--gate: no case was compared: the results have only ceilings"), "{text}");
}

/// Runs a ceiling once; the directory of results.
fn ceiling(directory: &Path) -> PathBuf {
    let text =
        "title = \"ceiling\"\nexperiment = \"ceiling\"\nrepeats = 1\n[load]\nmessages = 10\nsessions = [1]\n";
    let results = directory.join("results");
    let output = run(&["run", "--results", results.to_str().unwrap(), &write(directory, text)]);
    assert!(output.status.success(), "{output:?}");
    results
}

/// A source's report, as a ceiling run keeps it.
fn source() -> serde_json::Value {
    let directory = tempfile::tempdir().unwrap();
    let results = ceiling(directory.path());
    runs(&results)[0]["source"].clone()
}

#[test]
fn a_run_that_is_cut_short_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("conversation");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let scenario = write(
        directory.path(),
        &format!(
            "title = \"cut\"\nexperiment = \"ceiling\"\n[load]\nmessages = 100\nsessions = [1]\n\
             options = \"-d -w 60 --transcript {}\"\n",
            fifo.display()
        ),
    );
    let results = directory.path().join("results");
    let mut command = Command::new(env!("CARGO_BIN_EXE_postlab"));
    command.arg("run").arg("--results").arg(&results).arg(&scenario);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Once something was said the run is under way, and the first rest takes a minute.
    let mut lines = BufReader::new(std::fs::File::open(&fifo).unwrap()).lines();
    while !lines.next().unwrap().unwrap().starts_with("<<< 354") {}
    let pid = rustix::process::Pid::from_child(&child);
    // `timeout` and a shell send both: they are one request, and the results are still written.
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    // Nothing is left to be read when it has ended.
    lines.for_each(drop);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let result = result_in(&results);
    assert_eq!(std::fs::read_to_string(result.join("runs.jsonl")).unwrap(), "");
}
