//! A network of its own for a test: the server, its clients, and the next hops, each at an address that a site could have.

use crate::common::{
    Postrider,
    envelopes::named,
    names::{NameServer, Record},
    sink::{Received, Sink},
};
use std::{
    collections::BTreeSet,
    env,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    path::Path,
    process::{Command, Stdio},
};

/// The server that is imported, and then Postrider in its place.
pub(crate) const SERVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 25);

const INSIDE: &str = "POSTRIDER_TEST_NETWORK";

/// The addresses of clients and next hops have local routes, and the server does not see them as its own.
const NETWORK: &str = "hostname mx.test && ip link set lo up && ip address add 198.51.100.1/32 dev lo && \
                       for net in 192.0.2.0/24 198.51.100.0/24 203.0.113.0/24; do ip route add local $net dev lo || exit 1; done";

/// Starts the test again in a network of its own, and returns false; returns true in there.
pub(crate) fn is_inside(test: &str) -> bool {
    if env::var_os(INSIDE).is_some() {
        return true;
    }
    let unshared = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--net", "--uts", "sh", "-c", &format!("{NETWORK} && {script}"), "sh"]);
        command
    };
    let probe = unshared("true").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("SKIPPED: no network of its own can be made here (root, unshare and ip are necessary)");
        return false;
    }
    let mut again = unshared("exec \"$@\"");
    again.arg(env::current_exe().unwrap()).args(["--exact", test, "--nocapture", "--test-threads=1"]);
    let output = again.env(INSIDE, "1").output().unwrap();
    let [said, complaints] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    println!("{said}{complaints}");
    // One line: the list of failed tests at the end of CI's output shows no more of a panic.
    let panic = complaints.split_once("panicked at ").map_or("", |(_, panic)| panic);
    let panic: String = panic.split('\n').take(8).collect::<Vec<_>>().join(" | ");
    assert!(output.status.success(), "in its network: {panic}");
    false
}

const NAMES: &[(&str, Record)] = &[
    ("mx.test", Record::A(Ipv4Addr::new(198, 51, 100, 1))),
    ("near.example", Record::A(Ipv4Addr::new(198, 51, 100, 7))),
    ("client.far.example", Record::A(Ipv4Addr::new(203, 0, 113, 9))),
    ("bad.net.example", Record::A(Ipv4Addr::new(192, 0, 2, 66))),
    ("1.100.51.198.in-addr.arpa", Record::Ptr("mx.test")),
    ("7.100.51.198.in-addr.arpa", Record::Ptr("near.example")),
    ("9.113.0.203.in-addr.arpa", Record::Ptr("client.far.example")),
    ("66.2.0.192.in-addr.arpa", Record::Ptr("bad.net.example")),
    ("66.2.0.192.bl.example", Record::A(Ipv4Addr::new(127, 0, 0, 2))),
    ("bad.example.dbl.example", Record::A(Ipv4Addr::new(127, 0, 1, 2))),
    ("sender.example.dbl.example", Record::A(Ipv4Addr::new(127, 0, 1, 99))),
    ("client.far.example.dbl.example", Record::A(Ipv4Addr::new(127, 0, 1, 3))),
    ("near.example.dbl.example", Record::A(Ipv4Addr::new(127, 0, 1, 3))),
    ("x.bad.example.dbl.example", Record::A(Ipv4Addr::new(127, 0, 1, 4))),
    // What lists of domains say of addresses.
    ("203.0.113.9.dbl.example", Record::A(Ipv4Addr::new(127, 0, 1, 5))),
    ("12.34.dbl.example", Record::A(Ipv4Addr::new(127, 0, 1, 5))),
    ("1.0.0.127.in-addr.arpa", Record::Ptr("localhost")),
    ("localhost", Record::A(Ipv4Addr::LOCALHOST)),
    ("mx.far.example", Record::A(Ipv4Addr::new(203, 0, 113, 20))),
    ("mx.example.org", Record::A(Ipv4Addr::new(203, 0, 113, 21))),
    ("hub.example.com", Record::A(Ipv4Addr::new(203, 0, 113, 22))),
    ("old.example.com", Record::A(Ipv4Addr::new(203, 0, 113, 23))),
    ("mail.isp.example", Record::A(Ipv4Addr::new(203, 0, 113, 30))),
    ("far.example", Record::Mx(10, "mx.far.example")),
    ("from.example", Record::Mx(10, "mx.far.example")),
    ("bad.example", Record::Mx(10, "mx.far.example")),
    ("sender.example", Record::Mx(10, "mx.far.example")),
    ("example.com", Record::Mx(10, "mx.test")),
    ("catch.example", Record::Mx(10, "mx.test")),
    ("partner.example", Record::Mx(10, "mx.far.example")),
    ("example.org", Record::Mx(10, "mx.example.org")),
    ("example.org", Record::Mx(20, "mx.test")),
    ("sub.example.org", Record::Mx(10, "mx.example.org")),
    ("relay.example", Record::Mx(10, "mx.example.org")),
    ("sub.relay.example", Record::Mx(10, "mx.far.example")),
];

/// Starts the name server of the network.
pub(crate) fn names() -> NameServer {
    NameServer::start(UdpSocket::bind("127.0.0.53:53").unwrap(), NAMES)
}

/// Address of the provider whose smarthost some sites use.
const ISP: &str = "203.0.113.30:587";

/// Every host that the machine can reach.
pub(crate) struct World {
    _names: NameServer,
    sinks: Vec<(&'static str, Sink)>,
    pub(crate) isp: Postrider,
}

/// Makes a certificate of the provider in a directory, and returns its path without an ending. None where openssl is missing.
pub(crate) fn certificate(directory: &Path) -> Option<String> {
    certificate_of(directory, &["mail.isp.example"])
}

/// Makes a certificate of its own authority for some hosts. None without openssl.
pub(crate) fn certificate_of(directory: &Path, hosts: &[&str]) -> Option<String> {
    let certificate = directory.join("isp").display().to_string();
    let mut openssl = crate::common::program("openssl")?;
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj"]);
    let names: Vec<String> = hosts.iter().map(|host| format!("DNS:{host}")).collect();
    openssl.args([&format!("/CN={}", hosts[0]), "-addext", &format!("subjectAltName={}", names.join(","))]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"]);
    openssl.args([&format!("{certificate}.key"), "-out", &format!("{certificate}.pem")]);
    assert!(openssl.output().unwrap().status.success());
    Some(certificate)
}

impl World {
    /// Returns the hosts, with the certificate of the provider in a directory. None where one cannot be started.
    pub(crate) fn start(certificates: &Path) -> Option<Self> {
        let names = names();
        let sink =
            |(name, address): (&'static str, &str)| (name, Sink::at(address.parse().unwrap(), |_| None));
        let sinks = [
            ("mx.far", "203.0.113.20:25"),
            ("mx.org", "203.0.113.21:25"),
            ("hub", "203.0.113.22:25"),
            ("old", "203.0.113.23:25"),
            ("hub:2525", "203.0.113.22:2525"),
            ("lmtp", "203.0.113.24:24"),
            ("isp", "203.0.113.31:25"),
        ];
        let certificate = certificate(certificates)?;
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("users"), "bob:{PLAIN}secret\n").unwrap();
        let senders =
            "bob <> @from.example @mx.test @example.com @bad.example @sender.example @nowhere.example\n";
        std::fs::write(dir.path().join("senders"), senders).unwrap();
        let text = format!(
            "hostname = \"mail.isp.example\"\ndata_dir = \"data\"\n[[listen]]\naddress = \"{ISP}\"\n\
             [spool]\nsegment_size = \"4MiB\"\nmin_free = \"16MiB\"\n\
             [relay]\nnetworks = [\"192.0.2.250\"]\n[auth]\nusers = \"passwd:users\"\nsenders = \"text:senders\"\n\
             [tls]\ncertificate = \"{certificate}.pem\"\nkey = \"{certificate}.key\"\n\
             [[route]]\ndomains = [\"*\"]\nsmarthost = \"203.0.113.31:25\"\ntls = \"off\"\n"
        );
        let isp = Postrider::start_from(dir, ISP.parse().unwrap(), &text);
        Some(Self { _names: names, sinks: sinks.map(sink).into(), isp })
    }

    /// Returns the messages that the next hops have got since the last time.
    pub(crate) fn take(&self) -> Vec<(&'static str, Received)> {
        self.sinks
            .iter()
            .flat_map(|(name, sink)| sink.take().into_iter().map(|message| (*name, message)))
            .collect()
    }

    /// Returns each delivery to a next hop of a message with this subject: the next hop, the sender and a recipient.
    pub(crate) fn arrivals(&self, subject: &str) -> BTreeSet<String> {
        let mut arrivals = BTreeSet::new();
        for (name, sink) in &self.sinks {
            for message in sink.messages() {
                if crate::common::envelopes::has_subject(&message.content, subject) {
                    let lines =
                        message.to.iter().map(|to| format!("{name}: {} to {to}", named(&message.from)));
                    arrivals.extend(lines);
                }
            }
        }
        arrivals
    }
}
