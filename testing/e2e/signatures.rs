//! Mail of own domains is signed (DKIM), and a program that is not ours verifies it.

use crate::common::{
    BINARY, Postrider,
    client::Client,
    names::{NameServer, Record},
    python_with, record,
    sink::Sink,
    until,
};
use std::{
    fs,
    net::UdpSocket,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::Path,
    process::Command,
};

/// Verifies each signature of the files, with the records of a file: a line `FILE VERDICT VERDICT…` for each, in order.
const VERIFY: &str = r#"
import dkim, json, sys
records = json.load(open(sys.argv[1]))
def txt(name, timeout=5):
    name = (name.decode() if isinstance(name, bytes) else name).rstrip('.')
    return records.get(name, '').encode()
for path in sys.argv[2:]:
    message = open(path, 'rb').read()
    count = sum(1 for name, _ in dkim.DKIM(message).headers if name.lower() == b'dkim-signature')
    verdicts = []
    for index in range(count):
        try:
            verdicts.append('pass' if dkim.DKIM(message).verify(idx=index, dnsfunc=txt) else 'fail')
        except dkim.DKIMException as error:
            verdicts.append(type(error).__name__)
    print(' '.join([path.rsplit('/', 1)[1]] + verdicts))
"#;

/// Makes a key, and returns its record.
pub(crate) fn new_key(dir: &Path, domain: &str, selector: &str, kind: &str) -> (String, String) {
    let file = dir.join(format!("{selector}.pem"));
    let made = Command::new(BINARY)
        .args(["dkim", "new", domain, "--selector", selector, "--kind", kind, "--out"])
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8(made.stdout).unwrap();
    assert!(made.status.success(), "{said}{}", String::from_utf8_lossy(&made.stderr));
    let line = said.lines().find(|line| line.contains("_domainkey")).unwrap();
    let record: String = line.split('"').skip(1).step_by(2).collect();
    (format!("{selector}._domainkey.{domain}"), record)
}

#[test]
fn a_key_that_root_makes_belongs_to_the_user_of_the_daemon() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can give a file away");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("postrider.toml"));
    fs::create_dir(&data).unwrap();
    chown(&data, Some(65534), None).unwrap();
    fs::write(&file, "hostname = \"mx.a.test\"\ndata_dir = \"data\"\n").unwrap();
    let made = Command::new(BINARY)
        .arg("--config")
        .arg(&file)
        .args(["dkim", "new", "a.test", "--selector", "s1", "--kind", "ed25519"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let key = dir.path().join("a.test.s1.pem").metadata().unwrap();
    assert_eq!((key.uid(), key.mode() & 0o777), (65534, 0o600));
}

/// Has dkimpy verify messages. Returns a line for each.
pub(crate) fn verify(
    python: &mut Command,
    dir: &Path,
    records: &[(String, String)],
    messages: &[Vec<u8>],
) -> Vec<String> {
    let object: serde_json::Map<_, _> =
        records.iter().map(|(name, text)| (name.clone(), text.clone().into())).collect();
    let names = dir.join("records.json");
    fs::write(&names, serde_json::to_string(&object).unwrap()).unwrap();
    python.args(["-c", VERIFY]).arg(&names);
    for (number, message) in messages.iter().enumerate() {
        let file = dir.join(number.to_string());
        fs::write(&file, message).unwrap();
        python.arg(file);
    }
    let out = python.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Messages of every shape: by a seed, beside those that were chosen.
fn messages() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = [
        "From: joe@own.test\r\n\r\n",
        "From: joe@own.test\r\nSubject: x\r\n\r\nbody\r\n",
        "From: joe@own.test\r\nSubject: x\r\n\r\nbody without an end",
        "from:   Joe\r\n\t<joe@own.test>\r\nSUBJECT:  a   b \t c  \r\nTo: x@far.test,\r\n y@far.test\r\n\r\na  b \t\r\n\r\n\r\n",
        "From: joe@own.test\r\nSubject: one\r\nSubject: two\r\nList-Unsubscribe: <https://own.test/x>\r\n\
         List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n\r\n \r\n.\r\n..\r\n",
        "From: joe@own.test\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\ngr\u{fc}n  \r\n",
        "From: joe@own.test\r\nSubject: no empty line\r\n",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect();
    let mut large = b"From: joe@own.test\r\nSubject: large\r\n\r\n".to_vec();
    (0..12_000)
        .for_each(|number| large.extend(format!("line {number}  with spaces \t and an end \r\n").bytes()));
    all.push(large);
    let mut state = 0x2026_1127_u64;
    let mut next = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let names =
        ["Subject", "To", "Cc", "Date", "X-Other", "Message-ID", "References", "Reply-To", "Comments"];
    let words = ["a", "b@c.test", " ", "  ", "\t", ".", "=3D", "<x>", "\r\n ", "\r\n\t", "(c)"];
    let body = ["x", "  ", "\t", "\r\n", "\r\n\r\n", ".", "=", "From ", "--"];
    for _ in 0..60 {
        let mut text = String::from("From: joe@own.test\r\n");
        for _ in 0..next(8) {
            text += names[next(names.len() as u64) as usize];
            text += ":";
            (0..next(8)).for_each(|_| text += words[next(words.len() as u64) as usize]);
            text += "z\r\n";
        }
        text += "\r\n";
        (0..next(40)).for_each(|_| text += body[next(body.len() as u64) as usize]);
        all.push(text.into_bytes());
    }
    all
}

/// As a client sends it: dots are doubled, and the last line has an end.
fn on_the_wire(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in message.split_inclusive(|octet| *octet == b'\n') {
        if line.starts_with(b".") {
            out.push(b'.');
        }
        out.extend_from_slice(line);
    }
    if !out.ends_with(b"\r\n") {
        out.extend_from_slice(b"\r\n");
    }
    out
}

#[test]
fn others_verify_the_signatures_of_own_domains_only() {
    let Some(mut python) = python_with("dkim") else { return };
    let dir = tempfile::tempdir().unwrap();
    let records =
        [new_key(dir.path(), "own.test", "r1", "rsa"), new_key(dir.path(), "own.test", "e1", "ed25519")];
    let sign = |selector: &str| {
        format!(
            "[[sign]]\ndomains = [\"own.test\", \"mx.test\"]\ndomain = \"own.test\"\nselector = \"{selector}\"\nkey = \"{}/{selector}.pem\"\n",
            dir.path().display()
        )
    };
    let sink = Sink::with(|command| command.contains("gone@").then(|| "550 5.1.1 no such user".to_owned()));
    let daemon = Postrider::start(&format!("{}{}{}", sign("r1"), sign("e1"), sink.route()));
    let sent = messages();
    for message in &sent {
        let mut client = Client::connect(daemon.address).unwrap();
        let reply = client.send("joe@own.test", &["x@far.test"], &on_the_wire(message)).unwrap();
        assert_eq!(reply.0, 250, "{}", reply.1);
    }
    until("all have arrived", || sink.count() == sent.len());
    let left: Vec<Vec<u8>> = sink.take().into_iter().map(|message| message.content).collect();
    for (line, message) in
        verify(&mut python_with("dkim").unwrap(), dir.path(), &records, &left).iter().zip(&left)
    {
        assert!(line.ends_with(" pass pass"), "{line}: {}", String::from_utf8_lossy(message));
    }
    // A notification of this server, and mail of a local program.
    let mut client = Client::connect(daemon.address).unwrap();
    client.send("joe@own.test", &["gone@far.test"], b"From: joe@own.test\r\n\r\nx\r\n").unwrap();
    until("the notification has arrived", || sink.count() == 1);
    let local = daemon
        .run(&["sendmail", "-f", "joe@own.test", "x@far.test"], "From: joe@own.test\nSubject: x\n\nx\n");
    assert!(local.status.success(), "{}", String::from_utf8_lossy(&local.stderr));
    until("mail of a program has arrived", || sink.count() == 2);
    // Others, and what only looks like own mail.
    for from in ["ann@far.test", "joe@own.test, ann@far.test", "joe@own.test.far.test", "x"] {
        let message = format!("From: {from}\r\n\r\nx\r\n");
        Client::connect(daemon.address)
            .unwrap()
            .send("joe@own.test", &["x@far.test"], message.as_bytes())
            .unwrap();
    }
    until("all have arrived", || sink.count() == 6);
    let mut left: Vec<Vec<u8>> = sink.take().into_iter().map(|message| message.content).collect();
    let changed = |from: &str, to: &str| String::from_utf8_lossy(&left[1]).replacen(from, to, 1).into_bytes();
    let forged = [
        changed("Subject: x", "Subject: y"),
        changed("Subject: x", "Subject: x\r\nSubject: y"),
        changed("\r\n\r\nx", "\r\n\r\ny"),
    ];
    left.extend(forged);
    let said = verify(&mut python, dir.path(), &records, &left);
    let verdicts: Vec<&str> =
        said.iter().map(|line| line.split_once(' ').map_or("", |(_, rest)| rest)).collect();
    // What dkimpy says of a body that has another hash.
    let body_changed = "ValidationError ValidationError";
    assert_eq!(verdicts, ["pass pass", "pass pass", "", "", "", "", "fail fail", "fail fail", body_changed]);
    record::seen(
        "dkimpy",
        "verify RSA and Ed25519 signatures",
        "valid, and invalid once the mail is changed",
    );
}

#[test]
fn keys_of_a_map_sign_and_mail_without_its_key_waits() {
    let Some(mut python) = python_with("dkim") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (name, record) = new_key(dir.path(), "tenant.test", "t1", "rsa");
    let pem = fs::read_to_string(dir.path().join("t1.pem")).unwrap();
    let key: String = pem.lines().filter(|line| !line.starts_with("--")).collect();
    let map = dir.path().join("keys");
    fs::write(&map, format!("tenant.test t1:{key}\nbad.test no key\n")).unwrap();
    let section = |more: &str| format!("[[sign]]\nkeys = \"text:{}\"\n{more}", map.display());
    let sink = Sink::start();
    let daemon = Postrider::start(&format!("{}{}", section(""), sink.route()));
    let send = |from: &str| {
        let message = format!("From: {from}\r\nSubject: x\r\n\r\nx\r\n");
        Client::connect(daemon.address).unwrap().send(from, &["x@far.test"], message.as_bytes()).unwrap()
    };
    assert_eq!(send("a@tenant.test").0, 250);
    assert_eq!(send("a@other.test").0, 250);
    let refused = send("a@bad.test");
    assert!(refused.1.starts_with("451 4.7.5"), "{}", refused.1);
    let mail = dir.path().join("mail");
    fs::write(&mail, "From: a@bad.test\r\nSubject: x\r\n\r\nx\r\n").unwrap();
    let words = ["test", "--client", "127.0.0.1", "--from", "a@bad.test", "--to", "x@far.test", "--file"];
    let output = daemon.run(&[&words[..], &[mail.to_str().unwrap()]].concat(), "");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("the signing key of bad.test: write SELECTOR:KEY"), "{said}");
    let checked = String::from_utf8_lossy(&daemon.run(&["map", "check"], "").stderr).into_owned();
    assert!(checked.contains("mail from bad.test cannot be signed"), "{checked}");
    until("both have arrived", || sink.count() == 2);
    let mut left = sink.take();
    left.sort_by_key(|message| message.from != "a@tenant.test");
    let left: Vec<Vec<u8>> = left.into_iter().map(|message| message.content).collect();
    assert_eq!(verify(&mut python, dir.path(), &[(name, record)], &left), ["0 pass", "1"]);
    // A domain that is named has to be signed.
    daemon.reconfigure(&format!("{}{}", section("domains = [\"other.test\"]\n"), sink.route()));
    daemon.ask(&["reload"]);
    assert!(send("a@other.test").1.starts_with("451 4.7.5"));
}

#[test]
fn a_client_signs_only_for_what_it_may_send_as() {
    let dir = tempfile::tempdir().unwrap();
    new_key(dir.path(), "own.test", "s1", "rsa");
    fs::write(dir.path().join("users"), "jane@own.test:{PLAIN}x\njoe@far.test:{PLAIN}x\n").unwrap();
    fs::write(dir.path().join("mail"), "From: jane@own.test\nSubject: x\n\nx\n").unwrap();
    let key = dir.path().join("s1.pem");
    let daemon = Postrider::start(&format!(
        "[auth]\nusers = \"passwd:{}\"\n[relay]\nnetworks = [\"192.0.2.0/24\"]\n\
         [[sign]]\ndomains = [\"own.test\"]\nselector = \"s1\"\nkey = \"{}\"\n",
        dir.path().join("users").display(),
        key.display()
    ));
    let mail = dir.path().join("mail");
    let test = |client: &str, more: &[&str]| {
        let from = if more.contains(&"--from") { &[][..] } else { &["--from", "jane@own.test"] };
        let usual = ["test", "--client", client, "--to", "x@mx.test", "--file", mail.to_str().unwrap()];
        let all: Vec<&str> = [&usual[..], from, more].concat();
        let output = daemon.run(&all, "");
        String::from_utf8(output.stdout).unwrap()
    };
    let signed = "signed: d=own.test s=s1 a=rsa-sha256";
    assert!(test("192.0.2.1", &[]).contains(signed), "{}", test("192.0.2.1", &[]));
    assert!(test("203.0.113.1", &["--login", "jane@own.test"]).contains(signed));
    let stranger = test("203.0.113.1", &[]);
    assert!(
        stranger.contains("not signed: the client is neither logged in nor in relay.networks"),
        "{stranger}"
    );
    let other = test("203.0.113.1", &["--login", "joe@far.test", "--from", "joe@far.test"]);
    assert!(other.contains("not signed: the client may not send as jane@own.test"), "{other}");
    fs::write(&mail, "From: jane@elsewhere.test\nSubject: x\n\nx\n").unwrap();
    let elsewhere = test("192.0.2.1", &[]);
    assert!(elsewhere.contains("not signed: no [[sign]] is for elsewhere.test"), "{elsewhere}");
    // What is published is compared.
    assert!(
        daemon.ask(&["dkim", "show"]).starts_with("s1._domainkey.own.test. IN TXT ( \"v=DKIM1; k=rsa; p=")
    );
    assert!(fs::metadata(&key).unwrap().permissions().mode() & 0o077 == 0);
}

#[test]
fn a_new_key_signs_when_its_record_can_be_seen_and_not_before() {
    let keys = tempfile::tempdir().unwrap();
    new_key(keys.path(), "own.test", "2026a", "rsa");
    let (old, new) = (keys.path().join("2026a.pem"), keys.path().join("own.test.2026b.pem"));
    let names = NameServer::start(UdpSocket::bind("127.0.0.1:0").unwrap(), &[]);
    let (address, sink) = (names.address, Sink::start());
    let daemon = Postrider::start(&format!(
        "[dns]\nnameservers = [\"{address}\"]\n{}[[sign]]\ndomains = [\"own.test\"] # ours\nselector = '2026a' # old\nkey = \"{}\"\n",
        sink.route(),
        old.display()
    ));
    let selector = || {
        let mut client = Client::connect(daemon.address).unwrap();
        let message = b"From: a@own.test\r\nSubject: x\r\n\r\nx\r\n";
        assert_eq!(client.send("a@own.test", &["x@far.test"], message).unwrap().0, 250);
        until("it has arrived", || sink.count() == 1);
        let text = String::from_utf8(sink.take().remove(0).content).unwrap();
        ["2026a", "2026b"].into_iter().find(|selector| text.contains(&format!("s={selector};")))
    };
    let rotate = |more: &[&str]| {
        let command =
            [&["dkim", "rotate", "own.test", "--selector", "2026b", "--interval", "20ms"], more].concat();
        let output = daemon.run(&command, "");
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (output.status.code(), said)
    };
    let before = fs::read_to_string(daemon.config()).unwrap();
    let (code, said) = rotate(&["--wait", "0s"]);
    assert!(code == Some(75) && said.contains("the old key still signs"), "{said}");
    assert_eq!(fs::read_to_string(daemon.config()).unwrap(), before);
    assert_eq!(selector(), Some("2026a"));
    let made = fs::read(&new).unwrap();
    assert_eq!(fs::metadata(&new).unwrap().permissions().mode() & 0o777, 0o600);
    let record: String = said.split('"').skip(1).step_by(2).take(2).collect();
    drop(names);
    // Another key's record is not its own.
    let told = |record: String| {
        let records = [("2026b._domainkey.own.test", Record::Txt(record))];
        NameServer::start(UdpSocket::bind(address).unwrap(), &records)
    };
    let names = told("v=DKIM1; k=rsa; p=AAAA".to_owned());
    let (code, said) = rotate(&["--wait", "0s"]);
    assert!(code == Some(75) && said.contains("2026b._domainkey.own.test: "), "{said}");
    drop(names);
    let _names = told(record);
    let (code, said) = rotate(&["--wait", "1m"]);
    assert!(
        code == Some(0) && said.contains("own.test signs with 2026b now") && said.contains("reloaded"),
        "{said}"
    );
    assert_eq!(fs::read(&new).unwrap(), made, "the key that was published");
    let after = before.replace("'2026a' # old", "\"2026b\" # old");
    let after = after.replace(&old.display().to_string(), &new.display().to_string());
    assert_eq!(fs::read_to_string(daemon.config()).unwrap(), after);
    assert_eq!(selector(), Some("2026b"));
    let (code, said) = rotate(&[]);
    assert!(code == Some(78) && said.contains("signs with 2026b already"), "{said}");
    let other = daemon.run(&["dkim", "rotate", "far.test", "--selector", "x"], "");
    assert!(String::from_utf8(other.stderr).unwrap().contains("no [[sign]] with a `key`"));
}
