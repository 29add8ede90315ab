//! Every configuration of the documents, each on a machine of its own: it delivers mail. Those of the guides are parts of the
//! set-ups of `examples/`.

use crate::{
    common::{
        BINARY, Postrider,
        client::Client,
        databases::{Postgres, Slapd},
        names::{NameServer, Record},
        sink::{Received, Sink},
        until,
    },
    examples::{LISTENERS, OUTSIDE, STRANGER, USER, folder, hook, rspamd, sink, start},
    migration::{machine::Machine, world::is_inside},
};
use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, UdpSocket},
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::{Path, PathBuf},
};

/// Pages with other files in TOML: scenarios of Postlab, rows of tables.
const OTHER_TOML: [&str; 2] = ["postlab.md", "seeds.md"];

/// An example with its page and line.
struct Example {
    place: String,
    text: String,
}

/// What becomes of a message that an example does not deliver at once.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    /// The reply to its recipient or content begins so.
    Reply(&'static str),
    /// It is accepted and not delivered: the example says so.
    Kept,
}

/// What examples refuse and keep: a part of the example, the recipient or the sender, and the outcome.
const NOT_DELIVERED: &[(&str, &str, Outcome)] = &[
    ("kind = \"relay\"", "ann@example.com", Outcome::Reply(CLOSED)),
    ("kind = \"relay\"", "postmaster@example.com", Outcome::Reply(CLOSED)),
    ("greylist = \"suspects\"", "ann@example.com", Outcome::Reply("451 4.7.1 Greylisted")),
    ("greylist = \"suspects\"", "postmaster@example.com", Outcome::Reply("451 4.7.1 Greylisted")),
    (
        "reject = \"550 5.1.2 closed",
        "ann@closed.example.com",
        Outcome::Reply("550 5.1.2 closed.example.com has no mail"),
    ),
    ("hold = true", "ann@review.example.com", Outcome::Kept),
    (
        "partner.example\"]\nunless = { tagged",
        "joe@partner.example",
        Outcome::Reply("550 5.7.20 Mail of partner"),
    ),
    (
        "from = [\"spam.example\"",
        "joe@spam.example",
        Outcome::Reply("550 5.7.1 joe@spam.example is not welcome"),
    ),
    ("to = [\"competitor.example\"]", "ann@competitor.example", Outcome::Reply("550 5.7.1")),
    ("from = [\"bank.example\"]", "joe@bank.example", Outcome::Reply("530 5.7.0 Send this over TLS")),
];

/// There is no reply to a client that is let go.
const CLOSED: &str = ": 0 ";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Returns the examples of the pages of a folder, in their order.
fn examples(folder: &str) -> Vec<Example> {
    let mut pages: Vec<_> =
        fs::read_dir(docs().join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    let mut found = Vec::new();
    for page in pages.iter().filter(|page| page.extension().is_some_and(|end| end == "md")) {
        let name = page.file_name().unwrap().to_str().unwrap();
        if OTHER_TOML.contains(&name) {
            continue;
        }
        let text = fs::read_to_string(page).unwrap();
        let mut open = false;
        for (number, line) in text.lines().enumerate() {
            match line.trim() {
                "```toml" => {
                    let place =
                        format!("{}:{}", Path::new("docs").join(folder).join(name).display(), number + 1);
                    found.push(Example { place, text: String::new() });
                    open = true;
                }
                "```" => open = false,
                _ if open => found.last_mut().unwrap().text += &format!("{}\n", line.trim_start()),
                _ => {}
            }
        }
    }
    found
}

/// The files that examples name, each with what its page shows.
const FILES: &[(&str, &str)] = &[
    ("domains", "example.com\n"),
    ("virtual", "info@example.com info@far.example\n"),
    ("mailboxes", "ann@example.com x\npostmaster@example.com x\n"),
    ("relay_recipients", "ann@example.org x\n"),
    ("canonical", "j.smith@example.com joe.smith@example.com\n"),
    ("generic", "joe@host.example.com joe.smith@example.com\n"),
    ("sender_bcc", "boss@example.com legal@example.com\n"),
    ("recipient_bcc", "sales@example.com crm@example.com, boss@example.com\n"),
    ("executives", "cfo@example.com x\n"),
    ("blocked", "x@blocked.example he knows why\n"),
    ("senders", "x@blocked.example he knows why\n"),
    ("clients", "198.51.100.99/32 x\n"),
    ("users", "jane@example.com:{PLAIN}secret\n"),
    ("isp.secret", "secret\n"),
    ("mysql.secret", "secret\n"),
    ("ldap.secret", "s3cret\n"),
    ("hook.secret", "of both\n"),
    ("oauth.secret", "secret\n"),
    ("acme.key", "c2VjcmV0IG9mIHRoZSBhY2NvdW50\n"),
    ("texts/en.txt", "[failed]\nSubject: Your mail came back\n\n{recipients}\n"),
];

/// Users that examples name.
const USERS: [&str; 4] = ["tickets", "vacation", "dns-update", "bob"];

/// The machines that examples talk to.
struct World {
    _names: NameServer,
    sinks: Vec<Sink>,
    _provider: Postrider,
    certificate: String,
    _certificates: tempfile::TempDir,
}

/// Next hops that speak TLS, with a certificate for these names.
const VERIFIED: [&str; 4] = ["mail.isp.example", "secure.example.com", "mail.example.net", "partner.example"];

impl World {
    /// Returns every host that the examples name, at one address. None where no certificate can be made.
    fn start(examples: &[Example]) -> Option<Self> {
        let mut hosts: BTreeSet<String> =
            examples.iter().flat_map(|example| hosts_of(&example.text)).collect();
        hosts.extend(["far.example".to_owned(), "example.com".to_owned()]);
        let mut records = vec![
            ("9.113.0.203.in-addr.arpa", Record::Ptr("client.far.example")),
            ("client.far.example", Record::A(Ipv4Addr::new(203, 0, 113, 9))),
            ("1.0.0.127.in-addr.arpa", Record::Ptr("localhost")),
        ];
        for host in hosts.into_iter().filter(|host| !VERIFIED.contains(&&**host)) {
            // As long as the test; no list has anybody.
            if !host.ends_with("example.org") || host.matches('.').count() == 1 {
                records.push((host.leak(), Record::A(Ipv4Addr::new(203, 0, 113, 21))));
            }
        }
        records.extend(VERIFIED.map(|host| (host, Record::A(Ipv4Addr::new(203, 0, 113, 30)))));
        let names = NameServer::start(UdpSocket::bind("127.0.0.53:53").unwrap(), &records);
        let places = [
            "203.0.113.21:25",
            "203.0.113.21:587",
            "203.0.113.31:25",
            "203.0.113.50:10025",
            "127.0.0.1:25",
            "127.0.0.1:2424",
            "127.0.0.1:8024",
        ];
        let certificates = tempfile::tempdir().unwrap();
        let certificate = crate::migration::world::certificate_of(certificates.path(), &VERIFIED)?;
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("users"), "bob:{PLAIN}secret\n").unwrap();
        fs::write(dir.path().join("senders"), "bob *\n").unwrap();
        let text = format!(
            "hostname = \"mail.isp.example\"\ndata_dir = \"data\"\n[[listen]]\naddress = \"203.0.113.30:587\"\nkind = \"submission\"\n\
             [[listen]]\naddress = \"203.0.113.30:25\"\n[spool]\nsegment_size = \"4MiB\"\nmin_free = \"16MiB\"\n\
             [auth]\nusers = \"passwd:users\"\nsenders = \"text:senders\"\n\
             [relay]\nnetworks = [\"127.0.0.0/8\", \"198.51.100.0/24\", \"203.0.113.30/32\"]\n\
             [tls]\ncertificate = \"{certificate}.pem\"\nkey = \"{certificate}.key\"\n\
             [[route]]\ndomains = [\"*\"]\nsmarthost = \"203.0.113.31:25\"\ntls = \"off\"\n"
        );
        let provider = Postrider::start_from(dir, "203.0.113.30:25".parse().unwrap(), &text);
        Some(Self {
            _names: names,
            sinks: places.map(sink).into(),
            _provider: provider,
            certificate,
            _certificates: certificates,
        })
    }

    /// Returns whether a next hop has a message.
    fn has(&self, subject: &str) -> bool {
        let is_it = |message: &Received| crate::common::envelopes::has_subject(&message.content, subject);
        self.sinks.iter().any(|sink| sink.messages().iter().any(is_it))
    }
}

/// Returns what could be the name of a host in a text.
fn hosts_of(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || ".-".contains(c)));
    let is_host = |word: &&str| word.contains('.') && word.parse::<Ipv4Addr>().is_err();
    let hosts = words.map(|word| word.trim_matches('.')).filter(is_host);
    hosts.map(str::to_ascii_lowercase).collect()
}

/// Answers whatever is asked at a Unix socket.
fn answer(path: &Path, end: &'static str, reply: &'static str) {
    let listener = UnixListener::bind(path).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let (mut buffer, mut asked) = ([0; 4096], String::new());
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    asked += &String::from_utf8_lossy(&buffer[..count]);
                    if asked.ends_with(end) {
                        asked.clear();
                        let _ = stream.write_all(reply.as_bytes());
                    }
                }
            });
        }
    });
}

/// Makes a whole file of an example: what it leaves out is added, and what the package or another machine has is replaced.
fn whole(example: &str, servers: &[(&str, String)]) -> String {
    let mut text = example.to_owned();
    for (from, to) in LISTENERS {
        text = text.replace(from, to);
    }
    for (from, to) in [
        ("\"systemd:acme\"", "\"198.51.100.1:80\""),
        ("unix:/run/dovecot/lmtp", "127.0.0.1:2424"),
        ("10.0.0.5", "203.0.113.50"),
        ("\"/disk2/", "\"/var/disk2/"),
        ("unix:/run/rspamd/milter.sock", "127.0.0.1:11332"),
    ] {
        text = text.replace(from, to);
    }
    for (from, to) in servers {
        text = text.replace(from, to);
    }
    let mut above = String::new();
    for (key, value) in [("hostname", "mx.example.com"), ("data_dir", "/var/lib/postrider")] {
        if !text.lines().take_while(|line| !line.starts_with('[')).any(|line| line.starts_with(key)) {
            above += &format!("{key} = \"{value}\"\n");
        }
    }
    let host = above.lines().chain(text.lines()).find_map(|line| line.strip_prefix("hostname = "));
    let host = host.unwrap().trim_matches('"').to_owned();
    for (section, lines) in [
        ("[local]", &*format!("domains = [\"example.com\", \"{host}\", \"localhost\"]\n")),
        ("[process]", "user = \"postrider\"\n"),
        ("[spool]", "segment_size = \"4MiB\"\nmin_free = \"16MiB\"\n"),
        ("[tls]", "ca_file = \"/etc/postrider/isp.pem\"\n"),
    ] {
        let header = format!("{section}\n");
        let own = text.split(&*header).nth(1).and_then(|rest| rest.split("\n[").next()).map(str::to_owned);
        let lines = lines.split_inclusive('\n').filter(|line| {
            let key = line.split(' ').next().unwrap();
            !own.as_deref().is_some_and(|own| own.lines().any(|line| line.starts_with(key)))
        });
        let lines = lines.collect::<String>();
        text = match own {
            Some(_) => text.replacen(&*header, &format!("{header}{lines}"), 1),
            None => format!("{text}\n{header}{lines}"),
        };
    }
    if !text.contains(OUTSIDE) {
        text += &format!("\n[[listen]]\naddress = \"{OUTSIDE}\"\n");
    }
    above + &text
}

/// The literal items of the lists of a key in all sections of a name, which stand on one line each.
fn listed(text: &str, section: &str, key: &str) -> Vec<String> {
    let (mut found, mut is_meant) = (Vec::new(), false);
    for line in text.lines() {
        if line.starts_with('[') {
            is_meant = line.trim_matches(['[', ']']) == section;
        }
        let list = line.strip_prefix(key).and_then(|rest| rest.strip_prefix(" = ["));
        if let Some(list) = list.filter(|_| is_meant) {
            found.extend(list.split('"').skip(1).step_by(2).map(str::to_owned));
        }
    }
    found.retain(|word| !word.contains([':', '*', '<']));
    found
}

/// Envelopes that an example is about: each with a client, a sender and a recipient.
fn envelopes(text: &str) -> Vec<(&'static str, String, String)> {
    let local = listed(text, "local", "domains");
    let own = if text.contains("domains = [\"mx.example.com\", \"text:domains\"]") {
        "example.com"
    } else {
        &local[0]
    };
    let user = match text {
        _ if text.contains("\"alice\"") => "alice",
        _ if text.contains("virtual = [\"text:virtual\"]") => "info",
        _ => "ann",
    };
    let address = |name: &str, word: String| if word.contains('@') { word } else { format!("{name}@{word}") };
    let (from_outside, from_here) = ((STRANGER, "x@far.example"), ("127.0.0.1", "me@example.com"));
    let mut found = vec![
        (from_outside, format!("{user}@{own}")),
        (from_outside, format!("postmaster@{own}")),
        (from_here, "bob@far.example".to_owned()),
    ];
    let domains = listed(text, "route", "domains").into_iter().filter(|domain| !local.contains(domain));
    found.extend(domains.map(|domain| (from_here, format!("ann@{domain}"))));
    found.extend(listed(text, "route", "recipients").into_iter().map(|to| (from_here, to)));
    found.extend(listed(text, "rule", "to").into_iter().map(|to| (from_outside, address("ann", to))));
    let mut found: Vec<_> =
        found.into_iter().map(|((client, from), to)| (client, from.to_owned(), to)).collect();
    let senders = listed(text, "route", "senders").into_iter();
    found.extend(senders.map(|from| ("127.0.0.1", address("joe", from), "bob@far.example".to_owned())));
    let senders = listed(text, "rule", "from").into_iter();
    found.extend(senders.map(|from| (STRANGER, address("joe", from), format!("{user}@{own}"))));
    found
}

/// Returns whether a file of the machine has a message; the spool and the history do not count.
fn is_in_a_file(folder: &Path, subject: &str) -> bool {
    let line = format!("Subject: {subject}");
    fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).any(|entry| {
        let (path, name) = (entry.path(), entry.file_name());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => {
                !["spool", "history", "bulk"].iter().any(|own| name == *own) && is_in_a_file(&path, subject)
            }
            Ok(kind) if kind.is_file() => fs::read(&path)
                .is_ok_and(|text| String::from_utf8_lossy(&text).lines().any(|found| found == line)),
            _ => false,
        }
    })
}

/// Lays the machine of an example.
fn machine_of(world: &World, text: &str) -> Option<Machine> {
    let users: Vec<(&str, u32)> =
        [USER].into_iter().chain(USERS.into_iter().zip(1510..)).chain([("alice", 1520)]).collect();
    let machine = Machine::new(".", &users)?;
    for (name, id) in [("passwd", ":61002:61002:"), ("group", ":61002:")] {
        let text = fs::read_to_string(machine.etc(name)).unwrap();
        machine.write(name, &text.replace(id, &id.replace("61002", "1502")));
    }
    machine.own("lib/postrider", USER.1);
    machine.own("log/postrider", USER.1);
    machine.write("postrider/postrider.toml", text);
    for (name, text) in FILES {
        machine.write(&format!("postrider/{name}"), text);
    }
    let read = |end: &str| fs::read_to_string(format!("{}.{end}", world.certificate)).unwrap();
    for name in ["isp.pem", "partners.pem", "clients-ca.pem", "fullchain.pem", "mx.pem", "mx.example.com.pem"]
    {
        machine.write(&format!("postrider/{name}"), &read("pem"));
    }
    for name in ["privkey.pem", "mx.key", "mx.example.com.key", "example.com.2026a.pem"] {
        machine.write(&format!("postrider/{name}"), &read("key"));
    }
    for host in ["mx.example.com", "mail.example.org"] {
        machine.write(&format!("letsencrypt/live/{host}/fullchain.pem"), &read("pem"));
        machine.write(&format!("letsencrypt/live/{host}/privkey.pem"), &read("key"));
    }
    let program = |name: &str, script: &str| {
        let path = machine.dir.path().join("usr/local/bin").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    };
    program("ticket", "cat >/var/tmp/ticket");
    machine.write("postrider/dns-hook", "#!/bin/sh\n");
    let addresses = machine.var("lib/mailman3/data");
    fs::create_dir_all(&addresses).unwrap();
    fs::write(addresses.join("postfix_lmtp"), "talk@lists.example.com lmtp:[127.0.0.1]:8024\n").unwrap();
    let file = machine.var("lib/mail/mail.db");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let tables = "CREATE TABLE alias (address TEXT PRIMARY KEY, target TEXT)";
    rusqlite::Connection::open(file).unwrap().execute(tables, ()).unwrap();
    let sockets = machine.dir.path().join("run");
    for name in ["lib/mail", "disk2/bulk", "disk2/bulk/q1", "disk2/bulk/q2"] {
        machine.own(name, USER.1);
    }
    fs::create_dir_all(sockets.join("postrider")).unwrap();
    std::os::unix::fs::chown(sockets.join("postrider"), Some(USER.1), Some(USER.1)).unwrap();
    answer(&sockets.join("users.sock"), ",", "4:OK 1,");
    for name in ["postgrey.sock", "postfwd.sock"] {
        answer(&sockets.join(name), "\n\n", "action=DUNNO\n\n");
    }
    Some(machine)
}

/// Starts an example and sends its mail. Returns what is not as the page says.
fn try_example(world: &World, example: &Example, servers: &[(&str, String)]) -> Option<Vec<String>> {
    let text = whole(&example.text, servers);
    let machine = machine_of(world, &text)?;
    let _rspamd = if text.contains("127.0.0.1:1133") { Some(rspamd(&machine, "")?) } else { None };
    let asks_hook = text.contains("127.0.0.1:8080/mail");
    let _hook = if asks_hook { Some(hook(8080, &machine.etc("postrider/hook.secret"))?) } else { None };
    let mut check = machine.tree.command(BINARY);
    check.args(["config", "check", "--config", "/etc/postrider/postrider.toml"]);
    let checked = check.output().unwrap();
    if !checked.status.success() {
        return Some(vec![format!("{}{}", String::from_utf8_lossy(&checked.stderr), text)]);
    }
    let _running = start(&machine, OUTSIDE);
    let (mut faults, mut sent) = (Vec::new(), Vec::new());
    for (number, (client, from, to)) in envelopes(&text).into_iter().enumerate() {
        let subject = format!("{} {number}", example.place);
        let expected = NOT_DELIVERED
            .iter()
            .find(|(part, about, _)| example.text.contains(part) && (*about == to || *about == from))
            .map(|(.., outcome)| *outcome);
        let (code, said) = send_as(client, &from, &to, &subject);
        let said = format!("{from} to {to}: {code} {said}");
        match expected {
            Some(Outcome::Reply(reply)) if said.contains(reply) => {}
            None | Some(Outcome::Kept) if code == 250 => sent.push((subject, said, expected)),
            _ => faults.push(said),
        }
    }
    let has_arrived =
        |subject: &str| world.has(subject) || is_in_a_file(&machine.dir.path().join("var"), subject);
    for (subject, said, _) in sent.iter().filter(|(.., expected)| expected.is_none()) {
        until(&format!("delivered is {}: {said}", example.place), || has_arrived(subject));
    }
    let kept = sent.iter().filter(|(subject, _, expected)| expected.is_some() && has_arrived(subject));
    faults.extend(kept.map(|(_, said, _)| format!("{said}, and delivered")));
    Some(faults)
}

fn send_as(client: &str, from: &str, to: &str, subject: &str) -> (u16, String) {
    let mut client = match Client::connect_from(client, OUTSIDE.parse().unwrap()) {
        Ok(client) => client,
        Err(error) => return (0, error.to_string()),
    };
    let content = format!("From: <{from}>\r\nTo: <{to}>\r\nSubject: {subject}\r\n\r\nHello.\r\n.");
    let commands = [
        "EHLO client.far.example",
        &format!("MAIL FROM:<{from}>"),
        &format!("RCPT TO:<{to}>"),
        "DATA",
        &content,
    ];
    let mut reply = (0, String::new());
    for command in commands {
        reply = client.say(command).unwrap_or_else(|error| (0, error.to_string()));
        if !matches!(reply.0, 250 | 354) {
            break;
        }
    }
    reply
}

/// The tables of the examples, with a key that signs for example.com.
fn keys(world: &World) -> String {
    let pem = fs::read_to_string(format!("{}.key", world.certificate)).unwrap();
    let key: String = pem.lines().filter(|line| !line.starts_with("--")).collect();
    format!(
        "CREATE TABLE dkim (domain text, selector text, private_key text);\n\
         INSERT INTO dkim VALUES ('example.com', '2026a', '{key}');\n\
         CREATE TABLE mailbox (address text, password text, active boolean);\n\
         GRANT SELECT ON dkim, mailbox TO mail;\n"
    )
}

/// Tries the examples of a folder whose number leaves a remainder.
fn deliver(folder: &str, remainder: usize) {
    let mut all = examples(folder);
    assert!(!all.is_empty(), "docs/{folder} has no examples");
    all.retain(|example| !is_of_set_up(example));
    if all.is_empty() {
        return;
    }
    let Some(world) = World::start(&all) else { return };
    let directory = ("joe", &["objectClass: inetLocalMailRecipient", "mailHost: mail.far.example"][..]);
    let (slapd, postgres) = (Slapd::start(&[directory]), Postgres::start(&keys(&world)));
    let mut faults = Vec::new();
    for example in
        all.iter().enumerate().filter(|(number, _)| number % PARTS == remainder).map(|(_, one)| one)
    {
        let mut servers = Vec::new();
        if let Some(slapd) = &slapd {
            servers.push(("ldaps://ldap.example.com", format!("ldap://{}", slapd.address)));
            servers.push(("ou=people,dc=example,dc=com", "dc=b,dc=test".to_owned()));
            servers.push(("cn=postrider,dc=example,dc=com", "cn=admin,dc=b,dc=test".to_owned()));
        }
        if let Some(postgres) = &postgres {
            servers.push(("host=/run/postgresql dbname=mail user=postrider", postgres.here()));
        }
        let Some(found) = try_example(&world, example, &servers) else { continue };
        faults.extend(found.iter().map(|fault| format!("{}: {fault}", example.place)));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns whether an example of a guide is a part of its set-up in `examples/`, which has a test of its own.
fn is_of_set_up(example: &Example) -> bool {
    let (page, _) = example.place.split_once(".md").unwrap();
    let file = folder(page.rsplit('/').next().unwrap()).join("postrider.toml");
    let Ok(set_up) = fs::read_to_string(file) else { return false };
    let without_comment = |line: &str| line.split('#').next().unwrap().trim().to_owned();
    let has: BTreeSet<String> = set_up.lines().map(without_comment).collect();
    page.contains("/guides/") && example.text.lines().map(without_comment).all(|line| has.contains(&line))
}

/// The examples are tried by so many tests.
const PARTS: usize = 3;

#[test]
fn every_third_example_in_the_documents_delivers_from_the_first_on() {
    if is_inside("documents::every_third_example_in_the_documents_delivers_from_the_first_on") {
        deliver("", 0);
    }
}

#[test]
fn every_third_example_in_the_documents_delivers_from_the_second_on() {
    if is_inside("documents::every_third_example_in_the_documents_delivers_from_the_second_on") {
        deliver("", 1);
    }
}

#[test]
fn every_third_example_in_the_documents_delivers_from_the_third_on() {
    if is_inside("documents::every_third_example_in_the_documents_delivers_from_the_third_on") {
        deliver("", 2);
    }
}

#[test]
fn every_example_on_operating_delivers() {
    if is_inside("documents::every_example_on_operating_delivers") {
        (0..PARTS).for_each(|part| deliver("operating", part));
    }
}

#[test]
fn every_example_of_a_guide_delivers() {
    if is_inside("documents::every_example_of_a_guide_delivers") {
        (0..PARTS).for_each(|part| deliver("guides", part));
    }
}
