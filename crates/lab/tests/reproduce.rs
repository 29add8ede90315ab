//! `postlab reproduce`: a seed again, and what was done is not done twice.

mod common;

use common::run;

#[test]
fn a_seed_is_done_again_and_its_result_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results").display().to_string();
    let disk = directory.path().display().to_string();
    let reproduce = || {
        let output = run(&["reproduce", "S1", "--quick", "--results", &results, "-d", &disk]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let first = reproduce();
    assert!(
        first.contains("| S1 | filename, to priority | 0.36× | ") && first.contains("| queuerun.txt |"),
        "{first}"
    );
    let page = std::fs::read_to_string(format!("{results}/reproduce.md")).unwrap();
    assert!(first.starts_with(&page));
    // What is kept is believed.
    std::fs::write(format!("{results}/queuerun.txt"), "priority 1 (1–1, N=1) 1 (1–1, N=1) 400 (1–1, N=1)\n")
        .unwrap();
    assert!(
        reproduce().contains("| S1 | priority, ms for 30,000 | 461 | 400 | another machine, another age |")
    );
    let output = run(&["reproduce", "S9"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("[possible values: S0, S1, S2, S3, S4, all]"));
}
