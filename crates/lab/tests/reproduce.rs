//! `postlab reproduce`: figures beside the seed's; and what was done is not done twice.

mod common;

use common::run;

#[test]
fn what_was_measured_is_kept_and_stands_beside_the_seed() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results");
    std::fs::create_dir(&results).unwrap();
    let row = |name: &str, sum: u32| format!("{name} 1 (1–1, N=1) 1 (1–1, N=1) {sum} (1–1, N=1)\n");
    let kept: String = [("priority", 400), ("filename", 100), ("host", 800), ("random", 120)]
        .map(|(n, s)| row(n, s))
        .concat();
    let disk = directory.path().canonicalize().unwrap().display().to_string();
    let queuerun = format!("$ postlab queuerun -m 10000 --rounds 5 {disk}\n{kept}");
    std::fs::write(results.join("queuerun.txt"), queuerun).unwrap();
    let kept = "priority warm - 9 (9–9, N=1) 1 (1–1, N=1) 10 (9–9, N=1)\nfilename warm - 4 (9–9, N=1) 1 (1–1, N=1) 5 (9–9, N=1)\n";
    let asked = "queuerun --mta postrider --backend log -m 3000 --rounds 3 --results runs";
    let through = results.join("queuerun-postrider.txt");
    std::fs::write(&through, format!("$ postlab {asked} {disk}\n{kept}")).unwrap();
    let output = run(&["reproduce", "S1", "--quick", "--results", results.to_str().unwrap(), "-d", &disk]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    for line in [
        "| S1 | filename, to priority | 0.36× | 0.25× | agrees | queuerun.txt |",
        "| S1 | host, to priority | 1.06× | 2.00× | differs: ",
        "| S1 | time, to priority | 1.00× | - | no figure in what was measured |",
        "| S1 | Postrider's log: filename, to priority | 0.36× | 0.50× | agrees | queuerun-postrider.txt |",
        "| S1 | priority, ms for 30,000 | 461 | 400 | another machine, another age |",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(text.starts_with(&std::fs::read_to_string(results.join("reproduce.md")).unwrap()));
    let page = std::fs::read_to_string(results.join("reproduce.html")).unwrap();
    assert!(
        page.contains("theirs 0.36×, here 0.25×") && page.contains("<summary>queuerun</summary>"),
        "{page}"
    );
    assert!(results.join("scenarios/models.toml").exists());
    // A step that has said something, and then could not go on, is not done.
    std::fs::remove_file(&through).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_postlab"));
    command.args(["reproduce", "S1", "--quick", "--results"]).arg(&results).args(["-d", &disk]);
    let output = command.env("POSTRIDER", "/no/postrider").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("| not run: find /no/postrider: No such file"), "{text}");
    assert!(!through.exists());
    let output = run(&["reproduce", "S9"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("[possible values: S0, S1, S2, S3, S4, all]"));
}
