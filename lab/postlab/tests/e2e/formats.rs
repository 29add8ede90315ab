//! JSON, CSV and Markdown of every command that measures.

use crate::common::{Sink, TOO_SHORT, run, run_timed};
use serde_json::Value;
use std::{collections::BTreeSet, fs, path::Path};

/// A command, and a figure of it that is the same in each run.
#[derive(Debug)]
struct Case {
    /// The command, and its other words.
    command: &'static str,
    words: Vec<String>,
    /// A column and a value of the row that is looked at.
    row: (&'static str, &'static str),
    /// The column of the figure; empty where the row is enough.
    figure: &'static str,
    /// Words of the text, among them `{}` for the figure.
    text: &'static str,
    /// The begin of a remark of the row.
    remark: &'static str,
}

impl Case {
    fn new(
        command: &'static str,
        words: &str,
        row: (&'static str, &'static str),
        text: &'static str,
    ) -> Self {
        let words = words.split_whitespace().map(str::to_owned).collect();
        Self { command, words, row, figure: "", text, remark: "" }
    }

    fn figure(self, figure: &'static str) -> Self {
        Self { figure, ..self }
    }

    fn remark(self, remark: &'static str) -> Self {
        Self { remark, ..self }
    }

    /// Returns standard output in this form, and the remark that it must have; `None` where the machine has not what the
    /// command needs.
    fn output(&self, form: &[&str]) -> Option<(String, &'static str)> {
        let own = self.words.iter().map(String::as_str);
        let words: Vec<&str> = self.command.split(' ').chain(form.iter().copied()).chain(own).collect();
        let (output, is_short) = run_timed(&words);
        let error = String::from_utf8_lossy(&output.stderr);
        if error.contains("strace: it is not installed") || error.contains("Operation not permitted") {
            eprintln!("SKIPPED: {}: {error}", self.command);
            return None;
        }
        assert!(output.status.code().is_some_and(|code| code < 2), "{words:?}: {output:?}");
        // A slow machine may have measured for long enough.
        let remark = if self.remark == TOO_SHORT && !is_short { "" } else { self.remark };
        Some((String::from_utf8(output.stdout).unwrap(), remark))
    }

    fn check(&self) {
        let [Some((plain, _)), Some(json), Some(csv), Some((markdown, remark))] =
            [&[][..], &["--json"], &["--csv"], &["--markdown"]].map(|form| self.output(form))
        else {
            return;
        };
        let (from_json, keys) = self.of_json(&json);
        let from_csv = self.of_csv(&csv, &keys);
        let in_text = matched(&plain, self.text);
        let in_text = in_text.unwrap_or_else(|| panic!("{}: `{}` in {plain}", self.command, self.text));
        if !self.figure.is_empty() {
            let text: f64 = in_text.parse().unwrap();
            let is_near = |value: f64| (value - text).abs() <= value.abs() * 0.01 + 0.05;
            assert!(
                is_near(from_json) && is_near(from_csv),
                "{}: {from_json}, {from_csv}: {plain}",
                self.command
            );
        }
        let cell = format!("| {} |", self.row.1);
        assert!(markdown.contains(&cell) && markdown.contains("| ---"), "{}: {markdown}", self.command);
        assert!(markdown.contains(remark), "{}: {markdown}", self.command);
    }

    /// Returns the figure in JSON, and the names of all columns.
    fn of_json(&self, (text, wanted): &(String, &str)) -> (f64, BTreeSet<String>) {
        let all: Value =
            serde_json::from_str(text).unwrap_or_else(|e| panic!("{}: {e}: {text}", self.command));
        assert_eq!(all["command"][1], *self.command.split(' ').next().unwrap());
        let rows = all["rows"].as_array().unwrap();
        let name = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let row = rows.iter().find(|row| name(&row[self.row.0]) == self.row.1);
        let row = row.unwrap_or_else(|| panic!("{}: no row {:?}: {text}", self.command, self.row));
        let is_there = |remark: &Value| remark.as_str().unwrap().starts_with(wanted);
        let mut remarks = row["remarks"].as_array().unwrap().iter().chain(all["notes"].as_array().unwrap());
        assert!(wanted.is_empty() || remarks.any(is_there), "{}: {text}", self.command);
        let keys = rows.iter().flat_map(|row| row.as_object().unwrap().keys().cloned()).collect();
        let value = &row[self.figure];
        let value = if value.is_object() { &value["median"] } else { value };
        (if self.figure.is_empty() { 0.0 } else { value.as_f64().unwrap() }, keys)
    }

    /// Returns the figure in CSV; its head has the same columns.
    fn of_csv(&self, (text, wanted): &(String, &str), keys: &BTreeSet<String>) -> f64 {
        let records = records(text);
        let head = &records[0];
        let place = |key: &str| head.iter().position(|name| name == key);
        for key in keys {
            assert!(place(key).is_some(), "{}: {key} is missing: {text}", self.command);
            assert!(key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{key}");
        }
        assert_eq!(head[head.len() - 2..], ["conditions", "remarks"]);
        assert!(records.iter().all(|record| record.len() == head.len()), "{}: {text}", self.command);
        let column = place(self.row.0).unwrap();
        let row = records[1..].iter().find(|record| record[column] == self.row.1);
        let row = row.unwrap_or_else(|| panic!("{}: no row {:?}: {text}", self.command, self.row));
        assert!(row[head.len() - 1].contains(wanted), "{}: {text}", self.command);
        if self.figure.is_empty() {
            return 0.0;
        }
        if let Some(count) = place(&format!("{}_n", self.figure)) {
            assert!(row[count].parse::<u32>().unwrap() > 0, "{}: {text}", self.command);
        }
        row[place(self.figure).unwrap()].parse().unwrap()
    }
}

/// The word that stands for `{}` where the text has these words; white space and commas behind words do not count.
fn matched(text: &str, pattern: &str) -> Option<String> {
    let [words, pattern] = [text, pattern]
        .map(|text| text.split_whitespace().map(|word| word.trim_end_matches(',')).collect::<Vec<_>>());
    let fits = |(word, wanted): (&&str, &&str)| *wanted == "{}" || word == wanted;
    let found = words.windows(pattern.len()).find(|window| window.iter().zip(&pattern).all(fits))?;
    let place = pattern.iter().position(|word| *word == "{}").unwrap_or_default();
    Some(found[place].to_owned())
}

/// The records of a text in CSV (RFC 4180).
fn records(text: &str) -> Vec<Vec<String>> {
    let (mut records, mut record, mut field, mut is_quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => record.push(std::mem::take(&mut field)),
            '\n' if !is_quoted => {
                record.push(std::mem::take(&mut field));
                records.push(std::mem::take(&mut record));
            }
            other => field.push(other),
        }
    }
    assert!(field.is_empty() && record.is_empty() && !is_quoted, "the last record has no end: {text}");
    records
}

/// Commands that work on a disk. In their words `~` is a space within a word.
fn disk_cases(path: &str) -> Vec<Case> {
    let new = |command, words: &str, row, text| Case::new(command, &words.replace("PATH", path), row, text);
    vec![
        new("queuedirs", "-S -q 2 -s 3 -m 40 --rounds 2 PATH", ("senders", "3"), "3 2 flat 1 {}")
            .figure("messages")
            .remark("Durability: not synced"),
        new("queuerun", "-m 30 --rounds 2 --order filename,host PATH", ("order", "host"), "host")
            .remark("Why"),
        new("postmark", "--set number~10 --set transactions~20 --run", ("transactions", "20"), "{} created")
            .figure("files_created")
            .remark(TOO_SHORT),
        new("delete-cost", "-m 25 -s 5 --rounds 2 PATH", ("case", "stored"), "log stored")
            .remark("25 messages of 1024"),
        new(
            "kv",
            "-n 20 -T 10 -l 20 --backend log,file --rounds 2 PATH",
            ("backend", "file"),
            "file 10 20 {}",
        )
        .figure("records"),
        new("bonnie", "-r 0 -s 0 -n 1 -d PATH", ("phase", "random create"), "--------Random Create--------")
            .remark("Durability: the large file"),
        new("map-lookup", "-n 500 -m 300 --rounds 2 PATH", ("map", "hash map"), "hash map"),
        new("log-buffering", "-n 2000 --rounds 1 PATH", ("method", "line"), "line").remark("\"to block\""),
        new("ipc", "-R 20 -c 8 --over local --rounds 2", ("transport", "LOCAL"), "LOCAL 8 {}")
            .figure("trips"),
        new("syslog-loss", "-n 50 --rate 0 --over tcp --rounds 2 PATH", ("over", "tcp"), "tcp unlimited {}")
            .figure("lines")
            .remark("The collector does not sync"),
        new("commit-window", "-w 0 -s 2 -m 20 --rounds 2 PATH", ("window_us", "0"), "0 2 {}")
            .figure("messages")
            .remark("Durability: fdatasync"),
        new("log-format", "-n 1000 --rounds 2", ("method", "serde_json"), "serde_json"),
        new(
            "dd",
            "bs=4096 count=20 --rounds 2",
            ("until", "written and on the disk"),
            "written and on the disk",
        )
        .remark("TOO SMALL"),
        new("iostat", "-w 0.1 -m 1 -d PATH -- sh -c echo~spoken;~sleep~0.3", ("process", "sh"), "sh {}")
            .figure("count"),
        new("fsync-check", "-n 10 /dev/shm", ("syncs", "10"), "{} syncs of")
            .figure("syncs")
            .remark("NOT DURABLE"),
        new("readwrite", "-s -f 10 -p 2 --rounds 2 PATH", ("files", "40"), "{} times, p50")
            .figure("syncs")
            .remark("Durability: file and directory synced"),
        new("fsperf1", "-c -r --rounds 1 20 5 PATH", ("operations", "20"), "{} operations on 5 files")
            .figure("operations")
            .remark("Durability: each file synced"),
        new("fsseq1", "-C 10 -n 20 --rounds 1 PATH", ("commit", "10"), "10 24 {}").figure("records"),
        new("fsseq2", "-C 10 -n 20 --rounds 1 PATH", ("commit", "10"), "10 256").remark("Durability"),
        new("fsseq3", "-C 10 -n 20 --rounds 1 PATH", ("commit", "10"), "10 512").remark("Durability"),
        new("fsseq4", "-C 10 -n 20 --rounds 1 PATH", ("commit", "10"), "10").remark("Durability"),
    ]
}

/// Commands that trace, and those that read files.
fn other_cases(path: &str) -> Vec<Case> {
    let new = |command, words: &str, row, text| Case::new(command, &words.replace("PATH", path), row, text);
    vec![
        new("syscalls", "--with strace -m 1 -- sh -c echo~spoken", ("syscall", "execve"), "execve {}")
            .figure("count")
            .remark("Times are strace's"),
        new(
            "syscalls",
            "--with strace --histogram -- true",
            ("syscall", "execve"),
            "command, execve: {} calls",
        )
        .figure("count"),
        new("io-mix", "-m 2 -d /q PATH/trace", ("operation", "write"), "write 3 {}").figure("share_percent"),
        new("io-mix", "-m 2 -d /q PATH/trace", ("operation", "write"), "write 3 75.0 1.500 {}")
            .figure("p50_bytes"),
        new("dns-packets", "-m 2 -- sh -c echo~spoken", ("type", "all"), "{} packets:").figure("queries"),
        new("stat", "--all PATH/few PATH/many", ("n", "3"), "x 3 10 14 12 {}").figure("mean"),
        new("stat", "--all PATH/few PATH/many", ("n", "4"), "+ 4 20 26 25 {}")
            .figure("mean")
            .remark("at 95 %"),
        new(
            "compare",
            "PATH/a.json PATH/a.json",
            ("case", "1 directories, 1 senders, flat, 1 processes"),
            "1 processes {}",
        )
        .figure("a_messages_per_second"),
        new("hdr merge", "PATH/times.hlog", ("phase", "QUIT"), "QUIT {}").figure("count"),
        new("hdr merge", "PATH/times.hlog", ("phase", "QUIT"), "QUIT 20 {}").figure("min_us"),
        new("run", "--results PATH/results PATH/scenario.toml", ("kind", "ceiling"), "1 ceiling {}")
            .remark(TOO_SHORT),
    ]
}

/// Commands that send mail.
fn mail_cases(path: &str, sink: &str) -> Vec<Case> {
    let new = |command, words: &str, row, text| {
        Case::new(command, &words.replace("PATH", path).replace("SINK", sink), row, text)
    };
    vec![
        new("source", "-m 20 -s 2 -c SINK", ("messages_sent", "20"), "{} messages sent in")
            .figure("connections")
            .remark(TOO_SHORT),
        new("source", "-m 20 -s 2 --percentiles SINK", ("phase", "QUIT"), "QUIT {}").figure("count"),
        new("hostile", "--idle 3 --for 0.1 SINK", ("clients", "idle"), "idle 3 {}").figure("reached"),
        new("slam", "-p 1 -t 2 -m 20 --rounds 2 SINK", ("sessions", "2"), "1 2 {} 0").figure("messages_sent"),
        new("smtpc", "-t 2 -s 20 --rounds 2 -r SINK", ("sessions", "2"), "{} messages, 0 failed")
            .figure("messages_sent")
            .remark(TOO_SHORT),
        new("gatling", "-m 2 -c 20 SINK", ("sessions", "2"), "Total messages: {}").figure("messages_sent"),
        new(
            "postal",
            "--minutes 0.005 SINK PATH/users",
            ("errors", "0"),
            "time,messages,data(K),errors,connections,SSL",
        ),
    ]
}

const TRACE: &str = "1 pwrite64(32</q/a>, \"\"..., 100, 0) = 100\n1 pwrite64(32</q/a>, \"\"..., 50, 100) = 50\n\
                     1 pwrite64(32</q/a>, \"\"..., 10, 4096) = 10\n1 fsync(32</q/a>) = 0\n";

/// Makes the files that [`other_cases`] read.
fn make_files(path: &Path, sink: &str) {
    let file = |name: &str| path.join(name).display().to_string();
    let write = |name: &str, text: &str| fs::write(file(name), text).unwrap();
    write("trace", TRACE);
    write("few", "10\n12\n14\n");
    write("many", "20\n24\n25\n26\n");
    write("users", "a@b.test\n");
    let load = "[load]\nmessages = 20\nsessions = [1]\noptions = \"-d\"\n";
    write("scenario.toml", &format!("title = \"x\"\nexperiment = \"ceiling\"\nrepeats = 2\n{load}"));
    let words = ["queuedirs", "-S", "-q", "1", "-s", "1", "-m", "40", "--rounds", "1", "-o"];
    assert!(run(&[&words[..], &[&file("a.json"), path.to_str().unwrap()]].concat()).status.success());
    assert!(run(&["source", "-m", "20", "--hdr", &file("times.hlog"), sink]).status.success());
}

fn cases(path: &str, sink: &str) -> Vec<Case> {
    let mut all = disk_cases(path);
    all.extend(other_cases(path));
    all.extend(mail_cases(path, sink));
    for case in &mut all {
        case.words.iter_mut().for_each(|word| *word = word.replace('~', " "));
    }
    all
}

#[test]
fn each_form_has_the_figures_of_the_text_and_its_remarks() {
    let directory = tempfile::tempdir().unwrap();
    let sink = Sink::start(&[]);
    make_files(directory.path(), &sink.address);
    let all = cases(directory.path().to_str().unwrap(), &sink.address);
    let failed: Vec<_> =
        all.iter().filter(|case| std::panic::catch_unwind(|| case.check()).is_err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn each_command_that_measures_has_a_case() {
    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    let commands =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    // These have tests of their own (agent, ipc, relay, sink), or measure nothing themselves.
    let others = [
        "agent",
        "relay",
        "sink",
        "flame",
        "help",
        "man",
        "completions",
        "schema",
        "chart",
        "report",
        "reproduce",
    ];
    let tested: Vec<&str> =
        cases("", "").iter().map(|case| case.command.split(' ').next().unwrap()).collect();
    let missing: Vec<&str> =
        names.filter(|name| !name.is_empty() && !others.contains(name) && !tested.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(tested.len() > 25, "{tested:?}");
}

#[test]
fn a_sink_prints_its_counters_in_each_form() {
    let output = |form: &str| {
        let sink = Sink::start(&[form, "-c", "--verify", "-n", "2"]);
        let sent = run(&["source", "-m", "4", "-s", "2", "-d", "--random-size", "10:20", &sink.address]);
        assert!(sent.status.success(), "{sent:?}");
        sink.output()
    };
    let json: Value = serde_json::from_str(&output("--json")).unwrap();
    assert_eq!((&json["messages"], &json["rows"][0]["intact"]), (&4.into(), &4.into()), "{json}");
    let records = records(&output("--csv"));
    let place = |name: &str| records[0].iter().position(|key| key == name).unwrap();
    assert_eq!((records.len(), records[1][place("messages")].as_str()), (2, "4"), "{records:?}");
    assert!(records[1][place("messages_per_second")].parse::<f64>().unwrap() > 0.0, "{records:?}");
    let markdown = output("--markdown");
    assert!(markdown.starts_with("| sessions | ended with QUIT | messages |"), "{markdown}");
}
