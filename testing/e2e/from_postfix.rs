//! The set-ups of `docs/from-postfix.md`, each as it is written there, in Postfix and in Postrider: the same envelopes get the same
//! replies and arrive at the same places, but for the differences that the document explains.

mod content;
mod document;
mod envelopes;
mod paths;

use crate::common::{
    Postrider,
    envelopes::{Difference, Envelope, Treatment, differences, has_subject, named},
    free_address,
    names::{NameServer, Record},
    postfix::Postfix,
    session,
    sink::Sink,
    until,
};
use document::SetUp;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, UdpSocket},
    os::unix::net::UnixStream,
    path::Path,
    process::Child,
    sync::atomic::{AtomicU8, Ordering},
};

/// Where one of the two programs sends mail.
struct Hops {
    hub: Sink,
    local: Sink,
    lmtp: Sink,
    exchanger: Sink,
    /// The provider of the smarthost: takes mail of a login only, and sends all to the hub.
    isp: Postrider,
}

impl Hops {
    fn start(certificates: &Path) -> Self {
        // Both programs take 127.0.0.1 as a host of their own.
        let exchanger = Sink::listen(TcpListener::bind("127.0.0.2:0").unwrap(), |_| None);
        let hub = Sink::start();
        let isp = isp(certificates, &hub);
        Self { hub, local: Sink::start(), lmtp: Sink::start(), exchanger, isp }
    }

    /// Returns each delivery of a message with this subject: the next hop, the sender and a recipient.
    fn arrivals(&self, subject: &str) -> BTreeSet<String> {
        let all = [("hub", &self.hub), ("local", &self.local), ("lmtp", &self.lmtp), ("mx", &self.exchanger)];
        let mut arrivals = BTreeSet::new();
        for (name, sink) in all {
            for message in
                sink.messages().into_iter().filter(|message| has_subject(&message.content, subject))
            {
                for to in &message.to {
                    let local = to.rsplit_once('@').map_or(&**to, |(local, _)| local);
                    let to = if name == "local" { local } else { to };
                    arrivals.insert(format!("{name}: {} to {to}", named(&message.from)));
                }
            }
        }
        arrivals
    }
}

/// Returns each delivery to a Maildir of a message with this subject.
fn in_maildirs(daemon: &Postrider, subject: &str) -> BTreeSet<String> {
    let mut arrivals = BTreeSet::new();
    let users = fs::read_dir(daemon.dir.path().join("data/mail"));
    for user in users.into_iter().flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        for file in daemon.mailbox(&user) {
            let content = fs::read(file).unwrap();
            if has_subject(&content, subject) {
                let text = String::from_utf8_lossy(&content).into_owned();
                let sender = text.strip_prefix("Return-Path: <").and_then(|rest| rest.split('>').next());
                arrivals.insert(format!("local: {} to {user}", named(sender.unwrap())));
            }
        }
    }
    arrivals
}

/// What both programs ask or deliver to alike.
struct World {
    dir: tempfile::TempDir,
    names: NameServer,
    policy: SocketAddr,
    dovecot: Option<Dovecot>,
}

struct Dovecot(Child);

impl Drop for Dovecot {
    fn drop(&mut self) {
        // Dovecot's other processes end with the first, which has to be asked.
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

const FILES: &[(&str, &str)] = &[
    ("isp.secret", "secret\n"),
    (
        "virtual",
        "sales@example.com joe@far.example, ann@far.example\ninfo@example.com sales@example.com\n\
         @catch.example joe@far.example\nboss@example.com boss@example.com\n",
    ),
    ("mailboxes", "joe@example.com x\nann@example.com x\npostmaster@example.com x\n"),
    ("relay_recipients", "joe@example.org x\nann@example.org x\n"),
    ("clients", "192.0.2.66/32 REJECT\n198.51.100.0/24 REJECT\n"),
];

impl World {
    fn start() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        fs::set_permissions(at, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        for (name, text) in FILES {
            fs::write(at.join(name), text).unwrap();
        }
        // One key, two certificates: of the provider, and of the server itself.
        for name in ["mail.isp.example", "mx.test"] {
            let mut openssl = crate::common::program("openssl")?;
            openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj"]);
            openssl.args([&format!("/CN={name}"), "-addext", &format!("subjectAltName=DNS:{name}")]);
            openssl.args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"]);
            openssl.arg(at.join(format!("{name}.key"))).arg("-out").arg(at.join(format!("{name}.pem")));
            assert!(openssl.output().unwrap().status.success());
        }
        let names = NameServer::start(
            name_socket()?,
            &[
                ("example.org", Record::Mx(10, "mx1.example.org")),
                ("example.org", Record::Mx(20, "mx.test")),
                ("mx1.example.org", Record::A([127, 0, 0, 2].into())),
                ("mx.test", Record::A([127, 0, 0, 1].into())),
                ("far.example", Record::Mx(10, "mx1.example.org")),
            ],
        );
        let dovecot = dovecot(at);
        Some(Self { names, policy: policy_server(), dovecot, dir })
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }
}

/// Returns a socket on port 53, where Postfix asks.
fn name_socket() -> Option<UdpSocket> {
    static NEXT: AtomicU8 = AtomicU8::new(83);
    let pid = std::process::id().to_be_bytes();
    let net = NEXT.fetch_add(1, Ordering::Relaxed);
    let socket = UdpSocket::bind((std::net::Ipv4Addr::new(127, net, pid[2], pid[3]), 53));
    if let Err(error) = &socket {
        println!("SKIPPED: no name server on port 53: {error}");
    }
    socket.ok()
}

fn isp(certificates: &Path, hub: &Sink) -> Postrider {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("users"), "bob:{PLAIN}secret\n").unwrap();
    fs::write(dir.path().join("senders"), "bob @from.example @isp.example @mx.test <>\n").unwrap();
    let certificate = certificates.join("mail.isp.example").display().to_string();
    let tls = format!("[tls]\ncertificate = \"{certificate}.pem\"\nkey = \"{certificate}.key\"\n");
    let auth = "[auth]\nusers = \"passwd:users\"\nsenders = \"text:senders\"\n";
    let relay = "[relay]\nnetworks = [\"192.0.2.0/24\"]\n";
    Postrider::start_in(dir, free_address(), &format!("{}{tls}{auth}{relay}", hub.route()))
}

/// A policy server in Postfix's protocol, for this test's process: it refuses and defers some senders.
fn policy_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut out = stream.try_clone().unwrap();
                let mut action = "DUNNO";
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    match &*line {
                        "sender=bad@policy.example" => action = "REJECT by the policy server",
                        "sender=gray@policy.example" => action = "DEFER_IF_PERMIT greylisted",
                        "sender=odd@policy.example" => action = "521 5.7.1 go away",
                        "" => {
                            let action = std::mem::replace(&mut action, "DUNNO");
                            if write!(out, "action={action}\n\n").is_err() {
                                return;
                            }
                        }
                        _ => {}
                    }
                }
            });
        }
    });
    address
}

fn dovecot(dir: &Path) -> Option<Dovecot> {
    let mut dovecot = crate::common::program_in_place("dovecot")?;
    let at = dir.display();
    fs::write(dir.join("passwd-file"), "jane:{PLAIN}secret\njoe@mx.test:{PLAIN}other\n").unwrap();
    let config = format!(
        "base_dir = {at}/run\nstate_dir = {at}/run\nlog_path = {at}/dovecot.log\nprotocols =\nssl = no\n\
         default_internal_user = nobody\ndefault_internal_group = nogroup\ndefault_login_user = nobody\n\
         auth_mechanisms = plain login\nauth_failure_delay = 0\n\
         passdb {{\n  driver = passwd-file\n  args = {at}/passwd-file\n}}\n\
         userdb {{\n  driver = static\n  args = uid=nobody gid=nogroup home=/tmp allow_all_users=yes\n}}\n\
         service auth {{\n  unix_listener {at}/auth {{\n    mode = 0666\n  }}\n}}\n"
    );
    fs::write(dir.join("dovecot.conf"), config).unwrap();
    let child = dovecot.arg("-F").arg("-c").arg(dir.join("dovecot.conf")).spawn().unwrap();
    let running = Dovecot(child);
    until("Dovecot listens", || UnixStream::connect(dir.join("auth")).is_ok());
    Some(running)
}

/// Starts Postfix with a set-up: the document's lines, with the addresses of this test in place of the document's.
fn start_postfix(world: &World, set_up: &SetUp, hops: &Hops, dir: &Path) -> Option<Postfix> {
    let resolver = format!("nameserver {}\n", world.names.address.ip());
    let hosts = "127.0.0.1 localhost mx.test mail.isp.example\n";
    let (local, lmtp) = (hops.local.address.port(), hops.lmtp.address.port());
    let frame = format!(
        "myhostname = mx.test\nmynetworks = 127.0.0.0/8\nsmtpd_authorized_xclient_hosts = 127.0.0.1\n\
         local_recipient_maps =\nlocal_transport = lmtp:inet:127.0.0.1:{local}\n\
         smtp_tls_CAfile = {isp}\nsmtpd_tls_cert_file = {own}.pem\nsmtpd_tls_key_file = {own}.key\n\
         smtpd_error_sleep_time = 0\nsmtpd_soft_error_limit = 100\nsmtpd_hard_error_limit = 100\n\
         smtp_dns_support_level = {dns}\nsmtp_host_lookup = {dns_hosts}\n{relay}",
        isp = world.path("mail.isp.example.pem"),
        own = world.path("mx.test"),
        dns = if set_up.number == 7 { "enabled" } else { "disabled" },
        dns_hosts = if set_up.number == 7 { "dns" } else { "native" },
        relay = if set_up.number == 7 {
            format!("smtp_tcp_port = {}\n", hops.exchanger.address.port())
        } else {
            format!("relayhost = [127.0.0.1]:{}\n", hops.hub.address.port())
        },
    );
    let text =
        set_up.postfix.replace("[hub.example.com]", &format!("[127.0.0.1]:{}", hops.hub.address.port()));
    let text = text.replace(":587", &format!(":{}", hops.isp.address.port()));
    let text =
        text.replace("hash:/etc/postfix/", &format!("texthash:{}/postfix.", world.dir.path().display()));
    let text = text.replace("cidr:/etc/postfix/", &format!("cidr:{}/", world.dir.path().display()));
    let text = text.replace("lmtp:unix:private/dovecot-lmtp", &format!("lmtp:inet:127.0.0.1:{lmtp}"));
    let text = text.replace("unix:private/greylist", &format!("inet:{}", world.policy));
    let text = text.replace("private/auth", &world.path("auth"));
    for name in ["virtual", "mailboxes", "relay_recipients"] {
        fs::copy(world.dir.path().join(name), world.dir.path().join(format!("postfix.{name}"))).unwrap();
    }
    let own =
        |name: &str, text: String| fs::write(world.dir.path().join(format!("postfix.{name}")), text).unwrap();
    own("sasl_passwd", format!("[mail.isp.example]:{} bob:secret\n", hops.isp.address.port()));
    own("logins", "jane@mx.test jane\njoe@mx.test joe@mx.test\n".to_owned());
    own("senders", "bad@sender.example REJECT\nbad.example REJECT\n".to_owned());
    let is_main = |line: &&str| !line.trim_start().starts_with("-o") && !line.starts_with("submission");
    let main: String = text.lines().filter(is_main).map(|line| format!("{line}\n")).collect();
    let options: String = text
        .lines()
        .filter(|line| line.trim_start().starts_with("-o"))
        .map(|line| format!("{line}\n"))
        .collect();
    Postfix::start(dir, &(frame + &main), &options, &[("resolv.conf", &resolver), ("hosts", hosts)])
}

/// Starts Postrider with the configuration of a set-up.
fn start_postrider(world: &World, set_up: &SetUp, hops: &Hops) -> (Postrider, SocketAddr) {
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    for (name, text) in FILES {
        fs::write(dir.path().join(name), text).unwrap();
    }
    fs::write(dir.path().join("senders"), "bad@sender.example REJECT\nbad.example REJECT\n").unwrap();
    fs::write(dir.path().join("clients"), "192.0.2.66/32\n198.51.100.0/24\n").unwrap();
    // What `relayhost` and `mydestination` of the frame are in Postfix.
    let local = if set_up.number == 5 { "\"example.com\", " } else { "" };
    let hub = format!(
        "[[route]]\ndomains = [{local}\"mx.test\", \"localhost\"]\nmaildir = \"data/mail/{{local}}\"\n{}",
        hops.hub.route()
    );
    let text = set_up.postrider.replace("hub.example.com:25", &hops.hub.address.to_string());
    let text = text.replace("mail.isp.example:587", &format!("mail.isp.example:{}", hops.isp.address.port()));
    let text =
        text.replace("lmtp = \"unix:/run/dovecot/lmtp\"", &format!("lmtp = \"{}\"", hops.lmtp.address));
    let text = text.replace("/run/dovecot/auth-client", &world.path("auth"));
    let text = text.replace("unix:/run/postgrey.sock", &world.policy.to_string());
    let text = text.replace("\"mx.example.com\"", "\"mx.test\"");
    // The first listener is that of the test's frame: only those that the set-up is about stay.
    let listen =
        |address: SocketAddr| format!("[[listen]]\naddress = \"{address}\"\nxclient = [\"127.0.0.1\"]\n");
    let listener = set_up.listener();
    let text = match listener {
        Some(block) => {
            let kind = block.lines().filter(|line| line.starts_with("kind")).map(|line| format!("{line}\n"));
            text.replace(block, &(listen(address) + &kind.collect::<String>()))
        }
        None => listen(address) + &text,
    };
    let text = document::without_other_listeners(&text, &address.to_string());
    let tls = format!(
        "[tls]\ncertificate = \"{own}.pem\"\nkey = \"{own}.key\"\nca_file = \"{isp}\"\n",
        own = world.path("mx.test"),
        isp = world.path("mail.isp.example.pem")
    );
    let hosts = "[hosts]\n\"mail.isp.example\" = [\"127.0.0.1\"]\n";
    let dns = format!(
        "[dns]\nnameservers = [\"{}\"]\n[delivery]\nmx_port = {}\n",
        world.names.address,
        hops.exchanger.address.port()
    );
    let relay = if set_up.number == 7 || text.contains("\"*\"") { "" } else { &hub };
    (Postrider::start_in(dir, free_address(), &format!("{text}{relay}{tls}{hosts}{dns}")), address)
}

fn send(address: SocketAddr, world: &World, set_up: &SetUp, envelopes: &[Envelope]) -> Vec<Vec<String>> {
    let ca = world.path("mx.test.pem");
    let one = |(index, envelope): (usize, &Envelope)| {
        session::send(address, set_up.number == 4, &ca, envelope, &subject(set_up, index))
    };
    envelopes.iter().enumerate().map(one).collect()
}

fn subject(set_up: &SetUp, index: usize) -> String {
    format!("envelope {}.{index}.", set_up.number)
}

/// The configuration of Postrider that is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    /// As the document has it.
    ByHand,
    /// The file that `postrider import` makes of Postfix's.
    ByImport,
}

/// Returns how each envelope is treated in Postfix, and in Postrider. None where Postfix cannot be started.
fn compare(
    world: &World,
    set_up: &SetUp,
    written: Written,
    envelopes: &[Envelope],
) -> Option<Vec<(Treatment, Treatment)>> {
    let (old, new) = (Hops::start(world.dir.path()), Hops::start(world.dir.path()));
    let dir = tempfile::tempdir().unwrap();
    let postfix = start_postfix(world, set_up, &old, dir.path())?;
    let (postrider, address) = match written {
        Written::ByHand => start_postrider(world, set_up, &new),
        Written::ByImport => start_imported(world, (dir.path(), &postfix), &old, &new),
    };
    let old_replies = send(postfix.address, world, set_up, envelopes);
    postfix.wait_until_idle();
    assert_eq!(postfix.deferred_count(), 0, "{}", postfix.log());
    let new_replies = send(address, world, set_up, envelopes);
    until("Postrider has delivered all", || postrider.counter("queued") == 0);
    for hops in [&old, &new] {
        until("the provider has sent all", || hops.isp.counter("queued") == 0);
    }
    let treatments =
        old_replies.into_iter().zip(new_replies).enumerate().map(|(index, (old_replies, new_replies))| {
            let subject = subject(set_up, index);
            let old_arrivals = old.arrivals(&subject);
            let mut new_arrivals = new.arrivals(&subject);
            new_arrivals.extend(in_maildirs(&postrider, &subject));
            (
                Treatment { replies: old_replies, arrivals: old_arrivals },
                Treatment { replies: new_replies, arrivals: new_arrivals },
            )
        });
    Some(treatments.collect())
}

/// Starts Postrider with what `postrider import` makes of this Postfix. The ports become those of the other next hops.
fn start_imported(
    world: &World,
    postfix: (&Path, &Postfix),
    old: &Hops,
    new: &Hops,
) -> (Postrider, SocketAddr) {
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    let file = dir.path().join("imported.toml");
    let mut import = std::process::Command::new(crate::common::BINARY);
    let output =
        import.args(["import", "postfix"]).arg(postfix.0).arg("--output").arg(&file).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let mut text = fs::read_to_string(&file).unwrap();
    let (names, mx_port) = (world.names.address, new.exchanger.address.port());
    for (from, to) in [
        ("/var/lib/postrider".to_owned(), "data".to_owned()),
        (postfix.1.address.to_string(), address.to_string()),
        (old.hub.address.to_string(), new.hub.address.to_string()),
        (old.local.address.to_string(), new.local.address.to_string()),
        (old.lmtp.address.to_string(), new.lmtp.address.to_string()),
        (
            format!("mail.isp.example:{}", old.isp.address.port()),
            format!("mail.isp.example:{}", new.isp.address.port()),
        ),
        (format!("mx_port = {}", old.exchanger.address.port()), format!("mx_port = {mx_port}")),
    ] {
        text = text.replace(&from, &to);
    }
    if !text.contains("mx_port") {
        text += &format!("[delivery]\nmx_port = {mx_port}\n");
    }
    text += &format!("[hosts]\n\"mail.isp.example\" = [\"127.0.0.1\"]\n[dns]\nnameservers = [\"{names}\"]\n");
    (Postrider::start_from(dir, address, &text), address)
}

/// Sends envelopes to both programs with each set-up, and returns their number and the differences with their places. None where
/// Postfix cannot be started.
fn differences_of(
    document: &document::Document,
    written: Written,
    envelopes: fn(usize) -> Vec<Envelope>,
) -> Option<(usize, BTreeMap<Difference, Vec<String>>)> {
    let world = World::start()?;
    let mut count = 0;
    let mut found: BTreeMap<Difference, Vec<String>> = BTreeMap::new();
    for set_up in &document.set_ups {
        if set_up.number == 4 && world.dovecot.is_none() {
            return None;
        }
        let envelopes = envelopes(set_up.number);
        let treatments = compare(&world, set_up, written, &envelopes)?;
        for (envelope, (old, new)) in envelopes.iter().zip(&treatments) {
            count += 1;
            for difference in differences(old, new) {
                let place = format!("set-up {}, {envelope:?}: {old:?}, {new:?}", set_up.number);
                found.entry(difference).or_default().push(place);
            }
        }
    }
    Some((count, found))
}

/// Returns the rows that the document lacks.
fn unexplained(document: &document::Document, found: &BTreeMap<Difference, Vec<String>>) -> Vec<String> {
    let missing = found.iter().filter(|(difference, _)| !document.explained.contains(*difference));
    missing.map(|(difference, places)| difference.row(places)).collect()
}

#[test]
fn each_set_up_decides_as_that_of_postfix_but_for_what_the_document_explains() {
    let document = document::Document::read();
    let Some((count, found)) = differences_of(&document, Written::ByHand, envelopes::of) else { return };
    assert!(count >= 200, "{count} envelopes");
    let rows = unexplained(&document, &found);
    assert!(rows.is_empty(), "docs/from-postfix.md does not explain:\n{}", rows.join("\n"));
    let told: BTreeSet<_> = found.keys().cloned().collect();
    let past = document.explained.difference(&told);
    let past: Vec<_> = past.filter(|row| **row != of_imports()).collect();
    assert!(past.is_empty(), "docs/from-postfix.md explains differences that are not there: {past:#?}");
    println!("{count} envelopes, {} differences, each explained", found.len());
}

/// Returns the difference that only imported configurations have.
fn of_imports() -> Difference {
    Difference::new("550 5.1.1", "250")
}

#[test]
fn imported_configurations_decide_about_a_thousand_envelopes_as_postfix_does() {
    let document = document::Document::read();
    let envelopes = |set_up| envelopes::mixed(set_up, 125);
    let Some((count, mut found)) = differences_of(&document, Written::ByImport, envelopes) else { return };
    // Postfix removes quotes that an address does not need, which the document explains for one address of each kind.
    let is_more = |difference: &Difference| {
        let plain = |text: &str| text.replace("\"joe\"", "joe");
        let twice = difference.theirs == "nothing" && difference.ours.contains("to \"joe\"");
        !twice && plain(&difference.theirs) != plain(&difference.ours)
    };
    found.retain(|difference, _| is_more(difference));
    assert_eq!(count, 1000);
    let rows = unexplained(&document, &found);
    assert!(rows.is_empty(), "docs/from-postfix.md does not explain:\n{}", rows.join("\n"));
    assert!(found.contains_key(&of_imports()), "{found:?}");
    for (difference, places) in &found {
        println!(
            "{} recipients: {} in Postfix, {} in Postrider",
            places.len(),
            difference.theirs,
            difference.ours
        );
    }
    println!("{count} envelopes");
}

/// As the page says it: with its hostname in front, and the files that it names.
#[test]
fn each_file_of_the_page_passes_the_check() {
    for set_up in document::Document::read().set_ups {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("isp.secret", "secret\n"),
            ("virtual", "info@example.com jane@example.com\n"),
            ("mailboxes", "jane@example.com x\n"),
            ("relay_recipients", "jane@example.org x\n"),
            ("clients", "192.0.2.66/32 REJECT\n"),
            ("senders", "bad.example REJECT\n"),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let file = dir.path().join("postrider.toml");
        let hostname = "hostname = \"mx.example.com\"\n\n";
        fs::write(&file, format!("{hostname}{}", set_up.postrider)).unwrap();
        let mut postrider = std::process::Command::new(env!("CARGO_BIN_EXE_postrider"));
        let output = postrider.args(["config", "check"]).arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "set-up {}: {said}", set_up.number);
    }
}
