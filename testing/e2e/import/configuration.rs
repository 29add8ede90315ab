//! Configurations of the other servers.

use super::*;

/// Imports a configuration into a new directory. Returns the directory and what the import says.
fn converted(server: &str, dir: &Path) -> (TempDir, String) {
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("postrider.toml");
    let output = Command::new(BINARY)
        .args(["import", server])
        .arg(dir)
        .arg("--output")
        .arg(&file)
        .env_remove("POSTRIDER_CONFIG")
        .output()
        .unwrap();
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    let checked = Command::new(BINARY).args(["config", "check"]).arg(&file).output().unwrap();
    assert!(checked.status.success(), "{}\n{}", said(&checked), fs::read_to_string(&file).unwrap());
    assert!(text.contains("checked        postrider config check accepts it"), "{text}");
    (out, text)
}

#[test]
fn each_configuration_of_postfix_in_the_manual_is_accepted() {
    let manual =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/from-postfix.md")).unwrap();
    let blocks: Vec<&str> = manual
        .split("\n```\n")
        .filter(|block| block.starts_with("# main.cf") || block.starts_with("# master.cf"))
        .collect();
    assert_eq!(blocks.len(), 8);
    for block in blocks {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display().to_string();
        let text = block.replace("/etc/postfix", &at);
        let is_master = |line: &&str| line.starts_with("submission") || line.trim_start().starts_with("-o");
        let (master, main): (Vec<&str>, Vec<&str>) = text.lines().partition(is_master);
        fs::write(dir.path().join("main.cf"), main.join("\n") + "\nmyhostname = mx.example.com\n").unwrap();
        let master = format!("smtp inet n - y - - smtpd\n{}\n", master.join("\n"));
        fs::write(dir.path().join("master.cf"), master).unwrap();
        for (name, table) in [
            ("sasl_passwd", "[mail.isp.example]:587 bob:secret\n"),
            ("virtual", "example.com x\nsales@example.com joe\n"),
            ("mailboxes", "joe@example.com x\n"),
            ("relay_recipients", "joe@example.org x\n"),
            ("clients", "192.0.2.66/32 REJECT\n"),
            ("senders", "bad@sender.example REJECT\n"),
            ("logins", "jane@example.com jane\n"),
        ] {
            fs::write(dir.path().join(name), table).unwrap();
        }
        let (_, text) = converted("postfix", dir.path());
        assert!(text.contains("0 without a counterpart") && !text.contains("unknown "), "{block}\n{text}");
    }
}

#[test]
fn the_defaults_of_debian_are_accepted() {
    let Some(tree) = crate::common::unpacked("exim4-daemon-light") else { return };
    let dir = tempfile::tempdir().unwrap();
    // What Debian's package writes when its questions are not answered.
    let answers = "dc_eximconfig_configtype='local'\ndc_other_hostnames='mx.test'\ndc_local_interfaces='127.0.0.1 ; ::1'\n\
        dc_readhost=''\ndc_relay_domains=''\ndc_minimaldns='false'\ndc_relay_nets=''\ndc_smarthost=''\nCFILEMODE='644'\n\
        dc_use_split_config='false'\ndc_hide_mailname=''\ndc_mailname_in_oh='true'\ndc_localdelivery='mail_spool'\n";
    fs::write(dir.path().join("update-exim4.conf.conf"), answers).unwrap();
    let (_, text) = converted("exim", dir.path());
    assert!(text.contains("0 without a counterpart"), "{text}");
    assert!(tree.join("etc/exim4/exim4.conf.template").is_file());

    let Some(tree) = crate::common::unpacked("sendmail-bin") else { return };
    let dir = tempfile::tempdir().unwrap();
    fs::copy(tree.join("usr/share/sendmail/cf/debian/sendmail.mc"), dir.path().join("sendmail.mc")).unwrap();
    let (_, text) = converted("sendmail", dir.path());
    assert!(!text.contains("unknown  "), "{text}");

    let dir = tempfile::tempdir().unwrap();
    let main = format!("{}inet_interfaces = all\n", crate::common::postfix::DEBIAN_MAIN);
    fs::write(dir.path().join("main.cf"), main).unwrap();
    fs::write(dir.path().join("master.cf"), "smtp inet n - y - - smtpd\npickup unix n - y 60 1 pickup\n")
        .unwrap();
    let (out, text) = converted("postfix", dir.path());
    assert!(!text.contains("unknown  "), "{text}");
    let toml = fs::read_to_string(out.path().join("postrider.toml")).unwrap();
    assert!(toml.contains("domains = [\"mx.test\", \"localhost.test\", \"localhost\"]"), "{toml}");
}

#[test]
fn passwords_are_read_beside_the_configuration_that_was_copied() {
    let dir = tempfile::tempdir().unwrap();
    let answers = "dc_eximconfig_configtype='satellite'\ndc_other_hostnames='mx.test'\ndc_local_interfaces='127.0.0.1'\n\
        dc_readhost='mx.test'\ndc_relay_domains=''\ndc_minimaldns='false'\ndc_relay_nets=''\ndc_smarthost='smtp.isp.example::587'\n";
    fs::write(dir.path().join("update-exim4.conf.conf"), answers).unwrap();
    fs::write(dir.path().join("passwd.client"), "*.isp.example:joe:secret\n").unwrap();
    let (out, _) = converted("exim", dir.path());
    let toml = fs::read_to_string(out.path().join("postrider.toml")).unwrap();
    assert!(toml.contains("user = \"joe\""), "{toml}");
    // A purge of the package removes what stands in this list.
    let list = fs::read_to_string(out.path().join("imported-files")).unwrap();
    let written = fs::read_dir(out.path()).unwrap().count() - 2;
    assert!(list.contains("smtp.isp.example.secret\n") && list.lines().count() == written, "{list}");
}

#[test]
fn a_fifo_or_a_hole_in_the_place_of_a_configuration_is_an_error_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("main.cf");
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    let output = Command::new(BINARY).args(["import", "postfix"]).arg(dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(66), "{}", said(&output));
    assert!(said(&output).contains("main.cf: it is not a file"), "{}", said(&output));
    fs::remove_file(&file).unwrap();
    fs::File::create(&file).unwrap().set_len(1 << 40).unwrap();
    let output = Command::new(BINARY).args(["import", "postfix"]).arg(dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(66), "{}", said(&output));
    assert!(
        said(&output).contains("main.cf: it is a file of more than 1073741824 octets"),
        "{}",
        said(&output)
    );
}

#[test]
fn nothing_is_overwritten() {
    let (dir, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("main.cf"), "relayhost = [hub.test]\n").unwrap();
    let file = out.path().join("postrider.toml");
    fs::write(&file, "mine").unwrap();
    let output = Command::new(BINARY)
        .args(["import", "postfix"])
        .arg(dir.path())
        .arg("--output")
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!((output.status.code(), fs::read_to_string(&file).unwrap()), (Some(73), "mine".to_owned()));
    let output = Command::new(BINARY).args(["import", "postfix", "/nonexistent"]).output().unwrap();
    assert_eq!(output.status.code(), Some(66), "{}", said(&output));
}

#[test]
fn a_configuration_of_which_nothing_was_read_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("sendmail.mc"), "divert(-1)dnl\ndnl nothing but comments\n").unwrap();
    let output =
        Command::new(BINARY).args(["import", "sendmail", "--dry-run"]).arg(dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(65), "{}", said(&output));
    fs::write(dir.path().join("sendmail.mc"), "divert(-1)dnl\ndefine(`SMART_HOST', `hub.example.net')dnl\n")
        .unwrap();
    let (out, _) = converted("sendmail", dir.path());
    let toml = fs::read_to_string(out.path().join("postrider.toml")).unwrap();
    assert!(toml.contains("smarthost = \"hub.example.net:25\""), "{toml}");
}

#[test]
fn domains_networks_and_users_in_any_table_give_a_result_that_the_check_accepts() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display().to_string();
    for (name, text) in [
        ("keys", "example.com x\njoe@example.com ann@example.com\n10.0.0.1 x\n"),
        ("patterns", "/^example\\.com$/ x\n"),
        ("networks", "10.0.0.0/8 x\n"),
        ("names", "example.com\n"),
        (
            "sql.cf",
            "hosts = localhost\nuser = u\npassword = p\ndbname = m\nquery = SELECT 1 FROM d WHERE n = '%s'\n",
        ),
        ("ldap.cf", "server_host = ldap://localhost\nsearch_base = dc=x\nquery_filter = (mail=%s)\n"),
    ] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    fs::write(dir.path().join("master.cf"), "smtp inet n - y - - smtpd\n").unwrap();
    let tables = [
        "hash:DIR/keys",
        "lmdb:DIR/keys",
        "cdb:DIR/keys",
        "proxy:texthash:DIR/keys",
        "regexp:DIR/patterns",
        "pcre:DIR/patterns",
        "cidr:DIR/networks",
        "inline:{example.com=x}",
        "static:x",
        "proxy:pgsql:DIR/sql.cf",
        "mysql:DIR/sql.cf",
        "ldap:DIR/ldap.cf",
        "sqlite:DIR/sql.cf",
        "memcache:DIR/sql.cf",
        "tcp:localhost:99",
        "socketmap:unix:/run/x:users",
        "unix:passwd.byname",
        "unionmap:{hash:DIR/keys, static:x}",
        "pipemap:{hash:DIR/keys, hash:DIR/keys}",
        "DIR/names",
        "/nonexistent",
        "hash:/nonexistent",
        "regexp:/nonexistent",
        "pgsql:/nonexistent",
        "!DIR/names, example.org",
        "!hash:DIR/keys, example.org",
    ];
    for parameter in [
        "mydestination",
        "relay_domains",
        "virtual_alias_domains",
        "virtual_mailbox_domains",
        "mynetworks",
        "local_recipient_maps",
        "virtual_mailbox_maps",
        "transport_maps",
    ] {
        for table in tables {
            let main = format!("myhostname = mx.test\n{parameter} = {}\n", table.replace("DIR", &at));
            fs::write(dir.path().join("main.cf"), main).unwrap();
            converted("postfix", dir.path());
        }
    }
}
