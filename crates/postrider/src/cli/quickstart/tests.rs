use super::*;
use std::{io::Cursor, os::unix::fs::PermissionsExt as _};

fn args(words: &[&str]) -> QuickstartArgs {
    use crate::cli::args::{Cli, Command};
    use clap::Parser as _;
    let words = ["postrider", "quickstart"].iter().chain(words);
    match Cli::try_parse_from(words).unwrap().command {
        Command::Quickstart(args) => args,
        other => panic!("{other:?}"),
    }
}

fn machine(has_socket_units: bool, folder: &Path) -> Machine {
    Machine {
        is_root: true,
        has_socket_units,
        has_ipv6: true,
        user: None,
        data_dir: folder.join("data"),
        log_dir: has_socket_units.then(|| folder.to_owned()),
        aliases: has_socket_units.then(|| folder.join("aliases")),
    }
}

fn site() -> Answers {
    Answers {
        hostname: "mx.example.com".to_owned(),
        domains: vec!["example.com".to_owned()],
        networks: vec!["192.0.2.0/24".to_owned()],
        users: vec!["jane".to_owned(), "joe@example.com".to_owned()],
        certificate: Certificate::SelfSigned,
    }
}

#[test]
fn answers_are_asked_again_until_they_can_be_used() {
    let mut input = Cursor::new(
        "name!\nmx.example.com mx2.example.com\nMX.Example.com\n\n10.1.2.3/99\n10.1.2.3/8\njane, joe@example.com\n\n",
    );
    let mut said = Vec::new();
    let site = Answers::find(&args(&[]), Some(&mut input), &mut said).unwrap();
    let wanted = Answers {
        hostname: "mx.example.com".to_owned(),
        domains: vec!["example.com".to_owned()],
        networks: vec!["10.0.0.0/8".to_owned()],
        users: vec!["jane".to_owned(), "joe@example.com".to_owned()],
        certificate: Certificate::SelfSigned,
    };
    assert_eq!(site, wanted);
    let said = String::from_utf8(said).unwrap();
    for part in ["`name!` is not a host name", "[example.com]: ", "`10.1.2.3/99` is not a network"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_mistake_in_the_last_answer_and_a_doubtful_answer_are_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    let (chain, key) = (dir.path().join("chain.pem"), dir.path().join("key.pem"));
    let made = rcgen::generate_simple_self_signed(["mx.test".to_owned()]).unwrap();
    fs::write(&chain, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    // A short name is doubted and kept, root is doubted and replaced.
    let lines = format!(
        "mx\nmx\n\n\nroot\njane\n/none/a /none/b\n{0}\n{1} {0}\n{0} {1}\n",
        chain.display(),
        key.display()
    );
    let mut said = Vec::new();
    let site = Answers::find(&args(&[]), Some(&mut Cursor::new(lines)), &mut said).unwrap();
    assert_eq!(site.hostname, "mx");
    assert_eq!(site.users, ["jane"]);
    assert_eq!(site.certificate, Certificate::Files(chain, key));
    let said = String::from_utf8(said).unwrap();
    for part in [
        "`mx` has no dot",
        "`root`: strangers",
        "read /none/a: No such file",
        "name two files",
        "but a private key",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn users_are_added_to_those_of_the_file_and_its_mode_stays() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("users");
    fs::write(&file, "Jane:{PLAIN}secret\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let found = UsersFile::read(file.clone()).unwrap();
    assert_eq!(found.names, ["jane"]);
    let added = found.add(vec!["joe".to_owned()], &machine(false, dir.path())).unwrap();
    assert_eq!(added.len(), 1);
    assert!(fs::read_to_string(&file).unwrap().starts_with("Jane:{PLAIN}secret\njoe:{ARGON2ID}"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(UsersFile::read(file.clone()).unwrap().names, ["jane", "joe"]);
    fs::write(&file, "ann:{PLAIN}secret").unwrap();
    UsersFile::read(file.clone()).unwrap().add(vec!["joe".to_owned()], &machine(false, dir.path())).unwrap();
    assert!(fs::read_to_string(&file).unwrap().starts_with("ann:{PLAIN}secret\njoe:{ARGON2ID}"));
    fs::write(&file, "no user\n").unwrap();
    let refused = UsersFile::read(file).err().unwrap();
    assert!(refused.text.contains("line 1"), "{}", refused.text);
}

#[test]
fn wrong_options_are_told_and_nothing_is_asked() {
    for (words, why) in [
        (&["--hostname", "a b"][..], "`a b` is not a host name"),
        (&["--hostname", "mx.example.com", "--network", "10.0.0.0"], ""),
        (&["--hostname", "mx.example.com", "--network", "ten"], "`ten` is not a network"),
        (&["--hostname", "mx.example.com", "--user", "a:b"], "`a:b` cannot be a user"),
        (&["--hostname", "mx.example.com", "--certificate", "/none", "--key", "/none"], "read /none"),
    ] {
        let found = Answers::find(&args(words), None, &mut Vec::new());
        let text = found.err().map(|error| error.text).unwrap_or_default();
        assert!(text.starts_with(why) && text.is_empty() == why.is_empty(), "{words:?}: {text}");
    }
}

#[test]
fn every_configuration_that_is_written_can_be_used() {
    for has_socket_units in [false, true] {
        for users in [vec![], vec!["jane".to_owned(), "joe@example.com".to_owned()]] {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("postrider.toml");
            let site = Answers { users: users.clone(), ..site() };
            fs::write(&file, configuration(&site, &machine(has_socket_units, dir.path()))).unwrap();
            fs::write(dir.path().join("users"), "jane:{PLAIN}x\n").unwrap();
            fs::write(dir.path().join("aliases"), "postmaster: root\n").unwrap();
            let loaded = config::load_with_origins(Some(&file), Purpose::Serve).map_err(|e| e.to_string());
            let settings = loaded.unwrap().settings;
            let ports = if users.is_empty() { 1 } else { 3 };
            // Without socket units each has a listener for IPv4 and one for IPv6.
            assert_eq!(settings.listen.len(), if has_socket_units { ports } else { 2 * ports });
            assert_eq!(settings.relay.networks.len(), 3);
            assert_eq!(settings.auth.users.is_some(), !users.is_empty());
        }
    }
}

#[test]
fn a_certificate_of_lets_encrypt_is_asked_for_on_demand_only() {
    let find = |words: &[&str]| {
        let words = [&["--hostname", "mx.example.com"], words].concat();
        Answers::find(&args(&words), None, &mut Vec::new()).map_err(|error| error.text).unwrap()
    };
    assert_eq!(find(&[]).certificate, Certificate::SelfSigned);
    let site = find(&["--acme"]);
    assert_eq!(site.certificate, Certificate::LetsEncrypt);
    for has_socket_units in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (file, machine) = (dir.path().join("postrider.toml"), machine(has_socket_units, dir.path()));
        fs::write(&file, configuration(&site, &machine)).unwrap();
        let acme = config::load(Some(&file)).unwrap_or_else(|problems| panic!("{problems}")).acme;
        assert_eq!((acme.names.len(), acme.agree_to_terms), (1, true));
        assert_eq!(acme.listen.is_some(), has_socket_units);
        let next = next_commands(&site, &machine, &file);
        assert_eq!(next.contains("postrider-acme.socket"), has_socket_units, "{next}");
    }
}

#[test]
fn the_records_and_the_next_commands_name_the_site() {
    let records = records(&site());
    for part in [
        "mx.example.com.  A ",
        "example.com.  MX    10 mx.example.com.",
        "_submissions._tcp.example.com.  SRV",
    ] {
        assert!(records.contains(part), "{part}: {records}");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = Path::new("/etc/postrider/postrider.toml");
    let next = next_commands(&site(), &machine(true, dir.path()), file);
    for part in [
        "postrider-submissions.socket",
        "systemctl restart postrider",
        "sendmail -v jane@example.com",
        "auth test jane",
    ] {
        assert!(next.contains(part), "{part}: {next}");
    }
    assert!(!next.contains("--config") && !next.contains("cp "), "{next}");
}

#[test]
fn the_next_commands_copy_a_file_that_the_unit_does_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = Path::new("/tmp/q1.toml");
    let next = next_commands(&site(), &machine(true, dir.path()), file);
    let lines: Vec<&str> = next.lines().collect();
    assert_eq!(lines[0], "postrider --config /tmp/q1.toml config check");
    assert!(lines[1].ends_with(" /tmp/q1.toml /etc/postrider/postrider.toml"), "{next}");
    assert!(lines[2].ends_with(" /tmp/users /etc/postrider/users"), "{next}");
    let next = next_commands(&site(), &machine(false, dir.path()), file);
    for part in ["serve --config /tmp/q1.toml", "POSTRIDER_CONFIG=/tmp/q1.toml", "--config /tmp/q1.toml auth"]
    {
        assert!(next.contains(part), "{part}: {next}");
    }
}
