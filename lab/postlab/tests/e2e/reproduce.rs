//! `postlab reproduce`: findings beside the texts', with verdicts; what was done is not done twice, and nothing is lost.

use crate::common::run;
use serde_json::{Value, json};
use std::path::Path;

/// The rounds of the step `queuerun-sendmail`, each with these times to read the queue for priority, filename and host.
fn record(disk: &str, times: &[[u32; 3]], busy: f64) -> Value {
    let row = |(name, time, sort): (&str, u32, &str)| {
        format!("{name} 5000 {time} (1–1, N=1) {sort} (1–1, N=1) 1.02 (1–1, N=1) 1 (1–1, N=1)\n")
    };
    let round = |[priority, filename, host]: &[u32; 3]| {
        let rows = [
            ("priority", *priority, "1"),
            ("filename", *filename, "3.5"),
            ("host", *host, "1.7"),
            ("none", 99, "0.2"),
        ]
        .map(row);
        let output = format!("Sendmail 8 messages queue-read ms\n{}noise\n", rows.concat());
        json!({ "begin": "2026-01-01 00:00:00 +0000", "load_average": "0.10 0.1", "busy_share": busy, "busy_writes": 0.0,
            "runs": [{ "seconds": 1.0, "output": output }] })
    };
    json!({ "step": "queuerun-sendmail", "quick": true, "commands": [format!("postlab queuerun -m 5000 --rounds 1 {disk}")],
        "machine": { "build": "release", "commit": "0123456789ab", "cpu": "Testium" },
        "rounds": times.iter().map(round).collect::<Vec<_>>() })
}

fn keep(results: &Path, record: &Value) {
    let steps = results.join("steps");
    std::fs::create_dir_all(&steps).unwrap();
    let name = record["step"].as_str().unwrap();
    std::fs::write(steps.join(format!("{name}.json")), record.to_string()).unwrap();
}

/// The page in both forms, from what is kept.
fn page(results: &Path) -> (String, String) {
    let output = run(&["reproduce", "--page", "--results", results.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (
        String::from_utf8(output.stdout).unwrap(),
        std::fs::read_to_string(results.join("reproduce.html")).unwrap(),
    )
}

const FILENAME: &str = "Sendmail 8: filename to priority, reading |";

fn line<'t>(text: &'t str, what: &str) -> &'t str {
    text.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what}\n{text}"))
}

#[test]
fn a_verdict_needs_rounds_and_calm_and_names_the_count_that_was_measured() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path();
    let calm = [[400, 100, 390], [410, 110, 430], [405, 90, 405]];
    keep(results, &record("/d", &calm, 0.0));
    let (text, html) = page(results);
    let filename = line(&text, FILENAME);
    assert!(
        filename.starts_with("| S1 |")
            && filename
                .contains("| 0.31× | 0.25× (0.22–0.27) | agrees (expected < 1) | agrees (expected near the text's figure) |"),
        "{filename}"
    );
    // From 0.98 to 1.05 times: within a tenth of one, as the effect of the text is itself, and neither within 1.03 to 1.12 nor outside.
    assert!(line(&text, "Sendmail 8: host to priority, reading |").contains(
        "| cannot tell (expected > 1) | cannot tell (expected near the text's figure) | Open: the interval crosses an edge of the prediction. |"
    ));
    assert!(
        line(&text, "Sendmail 8: time to priority, reading |")
            .contains("| cannot tell (expected in 0.9..1.1) | Open: no figure in what was measured. |")
    );
    assert!(
        line(&text, "Sendmail 8, filename: files looked up for each message")
            .contains("| each (from the code) | 1.02 (1.02–1.02) | agrees (expected in 0.9..1.1) |")
    );
    let step = line(&text, "| queuerun-sendmail |");
    for part in
        ["3 rounds of 5,000 messages", "range of 3 rounds", "2026-01-01 00:00:00", "| 0.10 |", "0123456789ab"]
    {
        assert!(step.contains(part), "{part}: {step}");
    }
    assert!(!text.contains("30,000") && html.contains("3 rounds of 5,000 messages"), "{text}");
    let summary = html.split("In short").nth(1).unwrap().split("</table>").next().unwrap();
    assert!(summary.contains("S1: ") && !summary.contains("S2: "), "{summary}");
    assert!(
        html.contains("Rounds from 2026-01-01 00:00:00 +0000 to ") && html.contains("0123456789ab"),
        "{html}"
    );
    assert!(
        text.contains("Testium")
            && html.contains("Sendmail 8 reads its queue in filename order in 0.25 of the time"),
        "{text}"
    );
    // The cause of a figure of the other sign is nowhere.
    assert!(!html.contains("for filename in only") && !html.contains("Cause: "), "{html}");
    assert!(text.contains(
        "the statement of the text holds here for 5, does not hold for 0, has no effect that can be seen here for 0, and cannot be told for "
    ));

    keep(results, &record("/d", &calm[..1], 0.0));
    assert!(line(&page(results).0, FILENAME).contains(
        "| cannot tell (expected near the text's figure) | Open: one round: at least 3 are needed. |"
    ));
    keep(results, &record("/d", &calm, 0.9));
    assert!(
        line(&page(results).0, FILENAME).contains("Open: busy machine: others used 90 % of the processors.")
    );
    keep(results, &record("/d", &[[100, 400, 1], [100, 410, 1], [100, 390, 1]], 0.0));
    let slower = page(results).0;
    let filename = line(&slower, FILENAME);
    assert!(
        filename.contains(
            "| 4.00× (3.90–4.10) | differs (expected < 1) | differs (expected near the text's figure) |"
        ),
        "{filename}"
    );
    assert!(filename.contains("more than then (0.31). Cause: the order looks each file up"), "{filename}");
    // Nobody knows why host should take a hundredth.
    assert!(
        line(&slower, "Sendmail 8: host to priority, reading |").contains(" Cause: unknown. |"),
        "{slower}"
    );
    // Rounds that disagree tell nothing, however far they lie from what is predicted.
    keep(results, &record("/d", &[[100, 10, 300], [100, 30, 300], [100, 25, 300]], 0.0));
    let apart = page(results).0;
    assert!(line(&apart, FILENAME).contains("Open: REPEATS DISAGREE: 0.1"), "{apart}");
    assert!(
        line(&apart, "Sendmail 8: host to priority")
            .contains("| agrees (expected > 1) | differs (expected near the text's figure) |"),
        "{apart}"
    );
}

#[test]
fn figures_are_found_in_what_the_tools_print_now() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results");
    let disk = directory.path().to_str().unwrap();
    let output = run(&[
        "reproduce",
        "--quick",
        "--step",
        "queuedirs",
        "-d",
        disk,
        "--results",
        results.to_str().unwrap(),
    ]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("has no figure for"), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(line(&text, "| queuedirs |").contains("3 rounds of 400 messages by ten senders"), "{text}");
    // Its quick step takes a while in a build for tests.
    let output = run(&["queuerun", "-m", "200", "--rounds", "1", disk]);
    let output = String::from_utf8(output.stdout).unwrap();
    let mut kept = record(disk, &[[1, 1, 1]; 3], 0.0);
    kept["step"] = json!("queuerun");
    for round in kept["rounds"].as_array_mut().unwrap() {
        round["runs"][0]["output"] = json!(output);
    }
    keep(&results, &kept);
    let (text, _) = page(&results);
    assert!(line(&text, "| queuerun |").contains("3 rounds of 200 messages"), "{text}");
    assert!(
        !text.lines().any(|line| line.contains("| Postlab's reader") && line.contains("| - |")),
        "{text}"
    );
}

#[test]
fn one_text_is_renewed_and_the_others_stay() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results");
    std::fs::create_dir(&results).unwrap();
    let disk = directory.path().canonicalize().unwrap();
    let kept = record("/another/disk", &[[400, 100, 390]; 3], 0.0);
    keep(&results, &kept);
    let arguments =
        ["reproduce", "S4", "--step", "log-buffering", "--quick", "-d", disk.to_str().unwrap(), "--results"];
    let output = run(&[&arguments[..], &[results.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("step 1 of 1: log-buffering"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(line(&text, FILENAME).contains("| agrees (expected < 1) |"), "{text}");
    assert!(line(&text, "| log-buffering |").contains("3 rounds"), "{text}");
    // What is done is not done again, but where it is asked for.
    let steps = results.join("steps/log-buffering.json");
    let first = std::fs::read(&steps).unwrap();
    run(&[&arguments[..], &[results.to_str().unwrap()]].concat());
    assert_eq!(std::fs::read(&steps).unwrap(), first);
    run(&[&arguments[..], &[results.to_str().unwrap(), "--again"]].concat());
    assert_ne!(std::fs::read(&steps).unwrap(), first);
    assert!(results.join("scenarios/models.toml").exists());
}

#[test]
fn a_step_that_cannot_run_says_why_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_postlab"));
    command.args(["reproduce", "--quick", "--step", "queuerun-postrider", "--results"]).arg(&results);
    let output = command.arg("-d").arg(directory.path()).env("POSTRIDER", "/no/postrider").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let open = line(&text, "Postrider's log: filename");
    assert!(open.contains("| - | Open: not measured: ") && open.contains("/no/postrider"), "{open}");
    let output = run(&["reproduce", "S9"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("[possible values: S0, S1, S2, S3, S4, all]"));
    let output = run(&["reproduce", "--step", "nosuch", "--results", results.to_str().unwrap()]);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("there is no step nosuch: write one of queuedirs, ")
    );
}

#[test]
fn a_page_of_nothing_replaces_none() {
    let directory = tempfile::tempdir().unwrap();
    let published = directory.path().join("reproduce.json");
    std::fs::write(&published, "{\"is\": \"published\"}").unwrap();
    let arguments = ["reproduce", "--page", "--results", directory.path().to_str().unwrap()];
    let output = run(&arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("has no record of a step, so nothing is written"), "{said}");
    assert_eq!(std::fs::read_to_string(published).unwrap(), "{\"is\": \"published\"}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    // What was not measured is not a finding that cannot be told.
    keep(directory.path(), &record(".", &[[100, 30, 105], [101, 31, 104], [100, 30, 105]], 0.0));
    let (text, _) = page(directory.path());
    let count = text.lines().find(|line| line.starts_with("Of ")).unwrap();
    assert!(count.contains(" more were not measured."), "{count}");
}

#[test]
fn notes_explain_what_cannot_be_told_and_are_kept_by_the_page() {
    let directory = tempfile::tempdir().unwrap();
    // With two rounds nothing can be told.
    keep(directory.path(), &record(".", &[[100, 30, 105], [101, 31, 104]], 0.0));
    let notes = directory.path().join("reproduce-notes.toml");
    let explained = "[open]\n\"Sendmail 8: host to priority, reading\" = \"Both open all files.\"\n";
    std::fs::write(&notes, format!("introduction = \"Run on a Monday.\"\n{explained}")).unwrap();
    for _ in 0..2 {
        let (text, html) = page(directory.path());
        let row = text.lines().find(|line| line.contains("Sendmail 8: host to priority")).unwrap();
        assert!(row.contains("Open: two rounds: at least 3 are needed. Both open all files."), "{row}");
        assert!(text.contains("\n\nRun on a Monday.\n\nOf "), "{text}");
        assert!(html.contains("Both open all files."));
    }
    let results = directory.path().to_str().unwrap();
    let output = run(&["reproduce", "--page", "--results", results]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no note explains why `Sendmail 8: filename to priority, reading`"), "{said}");
    // Where it can be told now, the note is left out; a name that is not there is refused.
    keep(directory.path(), &record(".", &[[100, 30, 300], [101, 31, 310], [99, 30, 305]], 0.0));
    let (text, _) = page(directory.path());
    assert!(!text.contains("Both open all files."), "{text}");
    std::fs::write(&notes, "[open]\n\"queue files\" = \"x\"\n").unwrap();
    let output = run(&["reproduce", "--page", "--results", results]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("there is no finding `queue files`"), "{said}");
}

#[test]
fn figures_of_another_day_stand_beside_those_of_this_one() {
    let directory = tempfile::tempdir().unwrap();
    let (then, now) = (directory.path().join("then"), directory.path().join("now"));
    keep(&then, &record(".", &[[400, 100, 390], [410, 110, 430], [405, 90, 405]], 0.0));
    page(&then);
    keep(&now, &record(".", &[[400, 104, 510], [400, 107, 520], [400, 102, 500]], 0.0));
    let published = then.join("reproduce.json");
    let arguments = ["reproduce", "--page", "--results", now.to_str().unwrap(), "--against"];
    let output = run(&[&arguments[..], &[published.to_str().unwrap()]].concat());
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    let counts = "Of 7 figures that were measured at 2026-01-01 00:00:00 +0000 too (build of 0123456789ab), 5 medians lie \
                  within the interval of then, 0 intervals overlap, 2 do not; ";
    assert!(text.contains(counts), "{text}");
    let (_, table) = text.split_once("## Beside another day").unwrap();
    let filename = line(table, FILENAME);
    assert!(filename.contains("| 0.25× (0.22–0.27) | 0.26× (0.26–0.27) | inside | agrees |"), "{filename}");
    let host = line(table, "Sendmail 8: host to priority, reading |");
    assert!(host.contains("| outside | ") && host.contains("cannot tell then |"), "{host}");
    let html = std::fs::read_to_string(now.join("reproduce.html")).unwrap();
    assert!(html.contains("Beside another day</h2>") && html.contains("5 medians lie within"), "{html}");
    // Another file is refused before anything is measured.
    let notes = now.join("reproduce.md");
    let output = run(&[&arguments[..], &[notes.to_str().unwrap()]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("name the reproduce.json that"), "{said}");
}

#[test]
fn a_published_page_is_made_again_from_the_records_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let (results, published) = (directory.path().join("results"), directory.path().join("published"));
    keep(&results, &record(".", &[[400, 100, 390], [410, 110, 430], [405, 90, 405]], 0.0));
    let arguments = ["reproduce", "--page", "--results", results.to_str().unwrap(), "--publish"];
    let output = run(&[&arguments[..], &[published.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!results.join("reproduce.md").exists());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("no record of them: ") && !told.contains("queuerun-sendmail"), "{told}");
    let read = |name: &str| std::fs::read_to_string(published.join(name)).unwrap();
    // All rounds are there in full.
    assert_eq!(read("steps/queuerun-sendmail.json").matches("noise").count(), 3);
    let names = ["reproduce.md", "reproduce.html", "reproduce.json"];
    let first = names.map(read);
    names.iter().for_each(|name| std::fs::remove_file(published.join(name)).unwrap());
    page(&published);
    assert_eq!(names.map(read), first);
}

/// The page is that of its records, and each finding that cannot be told has its note.
#[test]
fn the_published_page_is_that_of_its_records() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (pages, data) = (root.join("docs/results"), root.join("lab/results"));
    let notes = std::fs::read_to_string(data.join("reproduce-notes.toml")).unwrap();
    toml::from_str::<toml::Table>(&notes).unwrap();
    let made = tempfile::tempdir().unwrap();
    let against = data.join("reproduce-2026-11-28.json");
    let [data_text, made_text, against] =
        [data.as_path(), made.path(), against.as_path()].map(|path| path.to_str().unwrap());
    let arguments =
        ["reproduce", "--page", "--results", data_text, "--publish", made_text, "--against", against];
    let output = run(&arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    for (place, name) in [(&pages, "reproduce.md"), (&pages, "reproduce.html"), (&data, "reproduce.json")] {
        let [published, again] =
            [place.as_path(), made.path()].map(|place| std::fs::read_to_string(place.join(name)));
        assert!(published.unwrap() == again.unwrap(), "{name} is not made from lab/results/steps");
    }
}

#[test]
fn each_finding_of_a_row_of_the_texts_is_measured() {
    let rows = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/seeds/rows.toml");
    let rows: toml::Table = toml::from_str(&std::fs::read_to_string(rows).unwrap()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    keep(directory.path(), &record(".", &[[400, 100, 390]], 0.0));
    let (text, _) = page(directory.path());
    for row in rows["row"].as_array().unwrap() {
        let findings = row.get("findings").and_then(toml::Value::as_array).into_iter().flatten();
        for name in findings.filter_map(toml::Value::as_str) {
            assert!(
                text.contains(&format!("| {name} |")),
                "row {}: `{name}` is not a finding",
                row["number"]
            );
        }
    }
}
