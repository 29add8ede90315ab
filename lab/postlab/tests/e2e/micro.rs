//! The small measurements as programs: lookup, format.

use std::path::Path;

use crate::common::run;

fn ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn lookups_find_every_key_in_every_map() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let output = run(&["map-lookup", "-n", "500", "-l", "9", "-m", "300", "--rounds", "2", path]);
    let text = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let berkeley = "Berkeley DB, by Python";
    if said.contains("install python3-bsddb3") {
        println!("SKIPPED: {said}");
    } else {
        assert!(text.contains(berkeley), "{text}{said}");
    }
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
    for name in ["format!", "write!", "by hand", "snprintf", "serde_json"] {
        assert!(text.contains(name) && text.contains("N=2"), "{text}");
    }
}

#[test]
fn the_formatter_of_sendmail_is_measured_or_its_package_is_named() {
    let output = run(&["log-format", "--sendmail", "-n", "1000", "--rounds", "1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("install libmilter-dev") {
        println!("SKIPPED: {said}");
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("\nsm_snprintf, in C ") && text.contains("\nsnprintf, in C "), "{text}{said}");
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

#[test]
fn lookups_go_to_an_ldap_server_that_runs_already() {
    let port = crate::common::ports::free_address().port().to_string();
    let slapd = |keys: &str| {
        let postlab = env!("CARGO_BIN_EXE_postlab");
        let directory = tempfile::tempdir().unwrap();
        let lookup = format!(
            "{postlab} map-lookup -n 300 -m 300 --rounds 1 --ldap $LDAP {}",
            directory.path().display()
        );
        let mut command = std::process::Command::new("bash");
        command.args([
            concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/slapd.sh"),
            keys,
            "sh",
            "-c",
            &lookup,
        ]);
        // `cargo xtask setup` unpacks slapd there and does not install it.
        let unpacked = Path::new(postlab).ancestors().nth(2).unwrap().join("interop");
        if !Path::new("/usr/sbin/slapd").exists() && unpacked.join("usr/sbin/slapd").exists() {
            let path = format!("{}:{}", unpacked.join("usr/sbin").display(), std::env::var("PATH").unwrap());
            command.env("PATH", path).env("LD_LIBRARY_PATH", unpacked.join("usr/lib/x86_64-linux-gnu"));
            command
                .env("SCHEMA", unpacked.join("etc/ldap/schema"))
                .env("MODULES", unpacked.join("usr/lib/ldap"));
        }
        command.env("POSTLAB", postlab).env("LDAP_PORT", &port).output().unwrap()
    };
    let output = slapd("300");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    if error.contains("slapd is not installed") {
        println!("SKIPPED: {error}");
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("\nLDAP  "), "{text}{error}");
    let output = slapd("200");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("of 300 keys were not there; `postlab map-lookup -n 300 --keys`"), "{error}");
    // Nothing listens there now.
    let output = run(&["map-lookup", "-n", "300", "--ldap", &format!("127.0.0.1:{port}/dc=test"), "/tmp"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains(&format!("connect to the LDAP server 127.0.0.1:{port}: ")), "{error}");
}
