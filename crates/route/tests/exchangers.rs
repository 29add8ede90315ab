//! Mail exchangers against a name server of our own that answers, lies, fails and stays silent.

use hickory_proto::{
    op::{Message, MessageType, ResponseCode},
    rr::{
        Name, RData, Record, RecordType,
        rdata::{A, AAAA, CNAME, MX, NS, SOA, TXT},
    },
};
use mail::{Disposition, Outcome};
use route::dns::{Dns, DnsSettings};
use route::{Host, Router, RouterSettings};
use std::{
    collections::HashMap,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Answers by zone; ends with the test's process.
struct FakeDns {
    address: SocketAddr,
    questions: Arc<AtomicUsize>,
}

fn name(text: &str) -> Name {
    Name::from_ascii(format!("{text}.")).unwrap()
}

fn mx(of: &str, preference: u16, host: &str) -> Record {
    let host = if host.is_empty() { Name::root() } else { name(host) };
    Record::from_rdata(name(of), 300, RData::MX(MX::new(preference, host)))
}

fn a(of: &str, ip: &str) -> Record {
    Record::from_rdata(name(of), 300, RData::A(A(ip.parse().unwrap())))
}

fn aaaa(of: &str, ip: &str) -> Record {
    Record::from_rdata(name(of), 300, RData::AAAA(AAAA(ip.parse().unwrap())))
}

fn zone() -> Vec<Record> {
    let mut zone: Vec<Record> = (1..=25).map(|n| aaaa("large.test", &format!("2001:db8::{n}"))).collect();
    zone.extend([a("large.test", "198.51.100.10"), a("large.test", "198.51.100.11")]);
    zone.extend(small_zones());
    zone.extend((0..3).map(|n| cname(&format!("circle{n}.test"), &format!("circle{}.test", (n + 1) % 3))));
    zone.extend((0..12).map(|n| cname(&format!("chain{n}.test"), &format!("chain{}.test", n + 1))));
    zone.extend((0..6).map(|n| cname(&format!("short{n}.test"), &format!("short{}.test", n + 1))));
    zone.extend([
        a("chain12.test", "198.51.100.12"),
        a("short6.test", "198.51.100.13"),
        cname("itself.test", "itself.test"),
        mx("to-circle.test", 10, "circle0.test"),
        cname("alias-of-nothing.test", "text.test"),
        Record::from_rdata(name("text.test"), 300, RData::TXT(TXT::new(vec!["x".to_owned()]))),
        cname("alias-of-gone.test", "gone.test"),
    ]);
    zone
}

fn cname(of: &str, to: &str) -> Record {
    Record::from_rdata(name(of), 300, RData::CNAME(CNAME(name(to))))
}

fn small_zones() -> Vec<Record> {
    vec![
        mx("plain.test", 20, "mx2.plain.test"),
        mx("plain.test", 10, "mx1.plain.test"),
        mx("plain.test", 20, "mx2.plain.test"),
        a("mx1.plain.test", "198.51.100.1"),
        a("mx2.plain.test", "198.51.100.2"),
        aaaa("mx2.plain.test", "2001:db8::2"),
        a("implicit.test", "198.51.100.3"),
        mx("null.test", 0, ""),
        mx("mixed.test", 0, ""),
        mx("mixed.test", 10, "mx1.plain.test"),
        mx("hostless.test", 10, "nowhere.test"),
        mx("half.test", 10, "broken.test"),
        mx("half.test", 20, "mx1.plain.test"),
        mx("stuck.test", 10, "broken.test"),
        mx("ours.test", 10, "mx1.plain.test"),
        mx("ours.test", 20, "here.test"),
        mx("ours.test", 30, "mx2.plain.test"),
        mx("loop.test", 10, "here.test"),
        mx("loop.test", 20, "mx2.plain.test"),
        mx("self.test", 10, "self-host.test"),
        a("self-host.test", "127.0.0.1"),
        Record::from_rdata(name("alias.test"), 300, RData::CNAME(CNAME(name("plain.test")))),
        a("empty.test", "198.51.100.9"),
    ]
}

fn answer(question: &Message, zone: &[Record]) -> Option<Message> {
    let query = question.queries.first()?.clone();
    let wanted = query.name().to_lowercase();
    let text = wanted.to_ascii();
    if text.starts_with("silent.") {
        return None;
    }
    let mut reply = Message::response(question.id, question.op_code);
    reply.metadata.message_type = MessageType::Response;
    reply.metadata.recursion_available = true;
    reply.add_query(query.clone());
    if text.starts_with("broken.") {
        reply.metadata.response_code = ResponseCode::ServFail;
        return Some(reply);
    }
    let of = |target: &Name, kind| -> Vec<Record> {
        zone.iter().filter(|r| r.name == *target && r.record_type() == kind).cloned().collect()
    };
    let mut target = wanted.clone();
    for alias in of(&wanted, RecordType::CNAME) {
        if let RData::CNAME(CNAME(to)) = &alias.data {
            target = to.clone();
        }
        reply.add_answer(alias);
    }
    if query.query_type() == RecordType::CNAME {
        return Some(reply);
    }
    if text.starts_with("referred.") {
        reply.add_authority(Record::from_rdata(name("test"), 60, RData::NS(NS(name("ns.elsewhere.test")))));
        return Some(reply);
    }
    if text.starts_with("bare.") {
        return Some(reply);
    }
    let found = of(&target, query.query_type());
    // Who does not follow a chain to its end says nothing of the end.
    if found.is_empty() && of(&target, RecordType::CNAME).is_empty() {
        let knows = zone.iter().any(|r| r.name == target);
        reply.metadata.response_code = if knows { ResponseCode::NoError } else { ResponseCode::NXDomain };
        let soa = SOA::new(name("ns.test"), name("root.test"), 1, 60, 60, 60, 60);
        reply.add_authority(Record::from_rdata(name("test"), 60, RData::SOA(soa)));
    }
    reply.add_answers(found);
    Some(reply)
}

fn fake_dns() -> FakeDns {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (address, questions) = (socket.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counter = questions.clone();
    std::thread::spawn(move || {
        let (zone, mut buffer) = (zone(), [0; 2048]);
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            counter.fetch_add(1, Ordering::Relaxed);
            let Ok(question) = Message::from_vec(&buffer[..length]) else { continue };
            if let Some(reply) = answer(&question, &zone) {
                let _ = socket.send_to(&reply.to_vec().unwrap(), from);
            }
        }
    });
    FakeDns { address, questions }
}

/// One whose questions are answered, however slow the machine is.
fn router(dns: &FakeDns) -> Router {
    router_with(dns, 1, Duration::from_secs(60))
}

fn router_with(dns: &FakeDns, attempts: usize, timeout: Duration) -> Router {
    let settings = DnsSettings {
        name_servers: vec![dns.address],
        timeout,
        attempts,
        hosts: HashMap::from([("fixed.test".to_owned(), vec!["198.51.100.7".parse().unwrap()])]),
        questions_max: 100,
        client_questions_max: 100,
    };
    let here = RouterSettings {
        hostname: "here.test".into(),
        listening: vec!["0.0.0.0:25".parse().unwrap()],
        mx_port: 25,
    };
    Router::new(Dns::new(settings).unwrap(), here)
}

fn names(hosts: &[Host]) -> Vec<&str> {
    hosts.iter().map(|host| host.name.as_str()).collect()
}

fn verdict(result: Result<Vec<Host>, Outcome>) -> (Disposition, String) {
    let outcome = result.unwrap_err();
    (outcome.disposition, outcome.status.to_string())
}

#[tokio::test]
async fn a_question_is_asked_as_often_as_it_says() {
    for attempts in [1, 2, 3] {
        let dns = fake_dns();
        router_with(&dns, attempts, Duration::from_secs(60)).exchangers("broken.test").await.unwrap_err();
        assert_eq!(dns.questions.load(Ordering::Relaxed), attempts);
    }
}

#[tokio::test]
async fn exchangers_come_best_first_and_each_once() {
    let dns = fake_dns();
    let hosts = router(&dns).exchangers("plain.test").await.unwrap();
    assert_eq!(names(&hosts), ["mx1.plain.test", "mx2.plain.test"]);
    let second: Vec<String> = hosts[1].addresses.iter().map(ToString::to_string).collect();
    assert_eq!(second, ["[2001:db8::2]:25", "198.51.100.2:25"]);
}

#[tokio::test]
async fn a_domain_without_mx_is_its_own_exchanger_and_aliases_are_followed() {
    let dns = fake_dns();
    let router = router(&dns);
    assert_eq!(names(&router.exchangers("implicit.test").await.unwrap()), ["implicit.test"]);
    assert_eq!(names(&router.exchangers("alias.test").await.unwrap()), ["mx1.plain.test", "mx2.plain.test"]);
    assert_eq!(names(&router.exchangers("mixed.test").await.unwrap()), ["mx1.plain.test"]);
    let literal = router.exchangers("[198.51.100.8]").await.unwrap();
    assert_eq!(literal[0].addresses, ["198.51.100.8:25".parse().unwrap()]);
    assert_eq!(
        router.exchangers("fixed.test").await.unwrap()[0].addresses,
        ["198.51.100.7:25".parse().unwrap()]
    );
}

#[tokio::test]
async fn a_host_with_many_ipv6_addresses_is_tried_by_ipv4_too() {
    let dns = fake_dns();
    let hosts = router(&dns).exchangers("large.test").await.unwrap();
    let is_v4: Vec<bool> = hosts[0].addresses.iter().map(SocketAddr::is_ipv4).collect();
    assert_eq!(is_v4.len(), 20);
    assert_eq!(is_v4[..5], [false, true, false, true, false]);
}

#[tokio::test]
async fn only_sure_answers_make_mail_fail() {
    let dns = fake_dns();
    let router = router(&dns);
    for (domain, disposition, status) in [
        ("null.test", Disposition::Failed, "5.1.10"),
        ("gone.test", Disposition::Failed, "5.1.2"),
        ("hostless.test", Disposition::Failed, "5.4.4"),
        ("broken.test", Disposition::Deferred, "4.4.3"),
        ("stuck.test", Disposition::Deferred, "4.4.3"),
        ("circle0.test", Disposition::Deferred, "4.4.3"),
        ("itself.test", Disposition::Deferred, "4.4.3"),
        ("chain0.test", Disposition::Deferred, "4.4.3"),
        ("referred.test", Disposition::Deferred, "4.4.3"),
        ("to-circle.test", Disposition::Deferred, "4.4.3"),
        ("alias-of-nothing.test", Disposition::Failed, "5.4.4"),
        ("alias-of-gone.test", Disposition::Failed, "5.1.2"),
        ("bare.test", Disposition::Failed, "5.4.4"),
    ] {
        assert_eq!(verdict(router.exchangers(domain).await), (disposition, status.to_owned()), "{domain}");
    }
    let followed = router.exchangers("short0.test").await.unwrap();
    assert_eq!(followed[0].addresses, ["198.51.100.13:25".parse().unwrap()]);
    let impatient = router_with(&dns, 1, Duration::from_millis(200));
    let deferred = (Disposition::Deferred, "4.4.3".to_owned());
    assert_eq!(verdict(impatient.exchangers("silent.test").await), deferred);
    // One host that can be found is enough.
    assert_eq!(names(&router.exchangers("half.test").await.unwrap()), ["mx1.plain.test"]);
}

#[tokio::test]
async fn mail_never_goes_to_hosts_that_would_send_it_back() {
    let dns = fake_dns();
    let router = router(&dns);
    assert_eq!(names(&router.exchangers("ours.test").await.unwrap()), ["mx1.plain.test"]);
    for domain in ["loop.test", "self.test", "[127.0.0.1]"] {
        assert_eq!(
            verdict(router.exchangers(domain).await),
            (Disposition::Failed, "5.4.6".to_owned()),
            "{domain}"
        );
    }
}

#[tokio::test]
async fn a_smarthost_that_cannot_be_found_defers() {
    let dns = fake_dns();
    let router = router(&dns);
    for host in ["gone.test", "broken.test"] {
        assert_eq!(verdict(router.host(host, 25).await).0, Disposition::Deferred, "{host}");
    }
    let found = router.host("mx1.plain.test", 587).await.unwrap();
    assert_eq!(found[0].addresses, ["198.51.100.1:587".parse().unwrap()]);
    assert!(router.host("localhost", 25).await.is_ok());
}

#[tokio::test]
async fn the_same_question_is_asked_once() {
    let dns = fake_dns();
    let router = Arc::new(router(&dns));
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let router = router.clone();
        asking.spawn(async move { router.exchangers("plain.test").await.map(|hosts| hosts.len()) });
    }
    let counts: Vec<_> = asking.join_all().await;
    assert!(counts.iter().all(|count| *count == Ok(2)));
    // MX, and A and AAAA of two hosts.
    let asked = dns.questions.load(Ordering::Relaxed);
    assert!(asked <= 5, "{asked} questions");
    router.exchangers("plain.test").await.unwrap();
    assert_eq!(dns.questions.load(Ordering::Relaxed), asked, "answers are kept for their TTL");
}
