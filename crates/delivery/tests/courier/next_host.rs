//! The servers of a destination one after the other: what one defers, the next is given (RFC 5321 §5.1).

use crate::support::{Queue, Server, TestWork, courier_with, lease, settings};
use delivery::{Courier, EightBit, Existence, RouteSettings};
use mail::{Destination, HostPort, LmtpServer, Mailbox, NextHop, TlsMode};
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

const MAY_HAVE_TAKEN: &str =
    "; message may be sent more than once: the server may have taken it, and it is tried again";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Mx,
    Smarthost,
    Lmtp,
}

/// Servers at addresses of their own and one port, in the order in which they are tried.
struct Hosts {
    servers: Vec<Server>,
    courier: Courier,
    destination: Destination,
}

impl Hosts {
    async fn start(transport: Transport, servers: Vec<Server>) -> Self {
        Self::with_fallback(transport, servers, &[]).await
    }

    /// The fallback servers follow the others in `servers`.
    async fn with_fallback(transport: Transport, servers: Vec<Server>, fallback: &[Server]) -> Self {
        static NET: AtomicU8 = AtomicU8::new(1);
        let net = NET.fetch_add(1, Ordering::Relaxed);
        let mut servers: Vec<Server> = servers
            .into_iter()
            .map(|server| Server { lmtp: transport == Transport::Lmtp, ..server })
            .collect();
        let (mut port, mut addresses): (u16, Vec<IpAddr>) = (0, Vec::new());
        for (n, server) in servers.iter().enumerate() {
            let ip = Ipv4Addr::new(127, 77, net, n as u8 + 1);
            port = server.start_at(SocketAddr::from((ip, port))).await;
            addresses.push(ip.into());
        }
        let mut route = RouteSettings::default();
        for server in fallback {
            let port = server.start().await;
            route.fallback.push(HostPort { host: "127.0.0.1".into(), port });
            servers.push(server.clone());
        }
        let to = HostPort { host: "site.test".to_owned(), port };
        let next_hop = match transport {
            Transport::Mx => NextHop::Mx("site.test".into()),
            Transport::Smarthost => NextHop::Smarthost(to.into()),
            Transport::Lmtp => NextHop::Lmtp(LmtpServer::Tcp(to).into()),
        };
        let hosts = HashMap::from([("site.test".to_owned(), addresses)]);
        let mut settings = settings(EightBit::Auto, Duration::from_millis(300));
        settings.routes.insert("own".into(), route);
        let name_servers = vec!["127.0.0.1:9".parse().unwrap()];
        let courier = courier_with(hosts, name_servers, port, settings, None);
        let mut destination = Destination::new(next_hop, TlsMode::Off);
        destination.route = Some("own".into());
        Self { servers, courier, destination }
    }

    /// Makes one attempt for a message to two recipients.
    async fn attempt(&self, id: u64, recipients: u32) -> std::sync::Arc<TestWork> {
        let work = TestWork::with([lease(id, recipients)]);
        *work.closing.lock().unwrap() = false;
        self.courier.serve(&self.destination, &Queue(work.clone())).await;
        work
    }

    fn content_counts(&self) -> Vec<usize> {
        self.servers.iter().map(|server| server.contents.lock().unwrap().len()).collect()
    }
}

/// A server that fails in this way at this stage.
fn failing(stage: &'static str, how: &'static str) -> Server {
    let mut server = Server::new(&[(stage, how)]);
    if stage == "EHLO" {
        server.answers.push(("LHLO", how));
    }
    server
}

#[tokio::test]
async fn a_failure_at_any_stage_leads_to_the_next_server_in_the_same_attempt() {
    let mut tests = tokio::task::JoinSet::new();
    let mut case_count = 0;
    for transport in [Transport::Mx, Transport::Smarthost, Transport::Lmtp] {
        for stage in ["CONNECT", "EHLO", "MAIL", "RCPT", "DATA", "."] {
            for how in ["451 4.7.1 greylisted", "421 4.3.2 closing", "CLOSE", "SILENT"] {
                for failing_count in [1, 2] {
                    for has_fallback in [false, true] {
                        case_count += 1;
                        tests.spawn(one_case(transport, stage, how, failing_count, has_fallback));
                    }
                }
            }
        }
    }
    assert!(case_count >= 200, "{case_count}");
    while let Some(result) = tests.join_next().await {
        result.unwrap();
    }
}

async fn one_case(
    transport: Transport,
    stage: &'static str,
    how: &'static str,
    failing_count: usize,
    has_fallback: bool,
) {
    let case = format!("{transport:?} {stage} {how} {failing_count} {has_fallback}");
    let mut servers: Vec<Server> = (0..failing_count).map(|_| failing(stage, how)).collect();
    let good = Server::new(&[]);
    let site = if has_fallback {
        let fallback = Server { lmtp: transport == Transport::Lmtp, ..good };
        Hosts::with_fallback(transport, servers, &[fallback]).await
    } else {
        servers.push(good);
        Hosts::start(transport, servers).await
    };
    let recipients = 1;
    let work = site.attempt(1, recipients).await;
    let may_have_it = stage == "." && matches!(how, "CLOSE" | "SILENT");
    if may_have_it {
        // No other server is given a message that one may have.
        assert_eq!(work.dispositions(1), ["deferred"], "{case}");
        let counts = site.content_counts();
        assert_eq!(counts.iter().sum::<usize>(), 1, "{case}");
        // Later attempts begin with another server, so the mail arrives.
        let mut attempt_count = 1;
        loop {
            attempt_count += 1;
            let work = site.attempt(attempt_count, recipients).await;
            if work.dispositions(attempt_count) == ["sent"] {
                break;
            }
            assert!(attempt_count <= failing_count as u64, "{case}");
        }
        return;
    }
    assert_eq!(work.dispositions(1), ["sent"], "{case}");
    assert!(work.unreachable.lock().unwrap().is_empty(), "{case}");
    assert_eq!(site.content_counts().last(), Some(&1), "{case}");
    assert_eq!(work.completed.lock().unwrap().len(), 1, "{case}");
}

#[tokio::test]
async fn only_the_recipients_that_were_deferred_go_to_the_next_server() {
    let first = Server::new(&[("RCPT TO:<r1@", "450 4.2.1 later"), ("RCPT TO:<r2@", "550 5.1.1 no")]);
    let site = Hosts::start(Transport::Mx, vec![first, Server::new(&[])]).await;
    let work = site.attempt(1, 4).await;
    assert_eq!(work.dispositions(1), ["sent", "sent", "bounced", "sent"]);
    assert_eq!((site.servers[1].count("RCPT"), site.servers[1].count("RCPT TO:<r1@")), (1, 1));
    assert_eq!(site.content_counts(), [1, 1]);
    // Each recipient's outcome has the server that gave it.
    let (_, outcomes, attempt) = work.completed.lock().unwrap()[0].clone();
    let by = |index| attempt.answered_by(index).0.split(']').next().unwrap().to_owned();
    let last = |relay: &str| relay.rsplit('.').next().unwrap().to_owned();
    assert_eq!(outcomes.len(), 4);
    assert_eq!([0, 1, 2, 3].map(|index| last(&by(index))), ["1", "2", "1", "1"], "{attempt:?}");
}

#[tokio::test]
async fn an_outcome_that_stands_has_the_server_that_gave_it() {
    // The second server answers about one recipient, the third about none.
    let first = Server::new(&[("RCPT TO:<r0@", "450 4.2.1 later"), ("RCPT TO:<r1@", "451 4.2.1 later")]);
    let second = Server::new(&[("RCPT TO:<r0@", "550 5.1.1 no"), ("RCPT TO:<r1@", "452 4.2.2 full")]);
    let servers = vec![first, second, failing("CONNECT", "CLOSE")];
    let work = Hosts::start(Transport::Mx, servers).await.attempt(1, 3).await;
    assert_eq!(work.dispositions(1), ["bounced", "deferred", "sent"]);
    let (_, outcomes, attempt) = work.completed.lock().unwrap()[0].clone();
    for (index, outcome) in outcomes {
        let (text, server) = [("550 5.1.1", ".2]"), ("452 4.2.2", ".2]"), ("250", ".1]")][index as usize];
        let by = attempt.answered_by(index).0;
        assert!(outcome.text.contains(text) && by.contains(server), "{index}: {outcome:?} by {by}");
    }
}

#[tokio::test]
async fn the_outcome_of_the_last_server_that_answered_stands() {
    let first = Server::new(&[("RCPT", "450 4.2.1 later")]);
    let site = Hosts::start(Transport::Mx, vec![first.clone(), failing("CONNECT", "CLOSE")]).await;
    let work = site.attempt(1, 2).await;
    assert_eq!(work.dispositions(1), ["deferred"; 2]);
    let completed = work.completed.lock().unwrap().clone();
    assert!(completed[0].1.iter().all(|(_, outcome)| outcome.text.contains("450 4.2.1 later")));
    assert!(completed[0].2.relay.starts_with("site.test[127.77."), "{}", completed[0].2.relay);
    assert!(work.unreachable.lock().unwrap().is_empty(), "a server answered: others may get mail there");
    let second = Server::new(&[("RCPT", "550 5.1.1 no such user")]);
    let site = Hosts::start(Transport::Mx, vec![first, second]).await;
    assert_eq!(site.attempt(1, 2).await.dispositions(1), ["bounced"; 2]);
}

#[tokio::test]
async fn further_messages_follow_over_the_server_that_works() {
    let first = Server::new(&[("MAIL", "451 4.3.0 broken")]);
    let site = Hosts::start(Transport::Mx, vec![first, Server::new(&[])]).await;
    let work = TestWork::with((1..=20).map(|id| lease(id, 1)));
    site.courier.serve(&site.destination, &Queue(work.clone())).await;
    // The connection was closing from the start, so no other server was tried: this is how a stop looks.
    assert_eq!((work.dispositions(1), site.content_counts()), (vec!["deferred"], vec![0, 0]));
    let work = TestWork::with((1..=20).map(|id| lease(id, 1)));
    *work.closing.lock().unwrap() = false;
    site.courier.serve(&site.destination, &Queue(work.clone())).await;
    for id in 1..=20 {
        assert_eq!(work.dispositions(id), ["sent"], "{id}");
    }
    assert_eq!((site.content_counts(), site.servers[1].count("EHLO")), (vec![0, 20], 1));
}

#[tokio::test]
async fn a_kept_connection_that_begins_to_defer_leads_to_the_next_server() {
    for how in ["451 4.7.1 enough", "SILENT"] {
        let first = Server::new(&[("RCPT TO:<r1@", how)]);
        let site = Hosts::start(Transport::Mx, vec![first, Server::new(&[])]).await;
        let work = TestWork::with([lease(1, 1), lease(2, 2), lease(3, 1)]);
        *work.closing.lock().unwrap() = false;
        // A silent connection gives its whole leases back to the queue.
        for _ in 0..3 {
            site.courier.serve(&site.destination, &Queue(work.clone())).await;
            let returned: Vec<u64> = std::mem::take(&mut *work.returned.lock().unwrap());
            let count = |id: &u64| if *id == 2 { 2 } else { 1 };
            work.waiting.lock().unwrap().extend(returned.iter().map(|id| lease(*id, count(id))));
        }
        for (id, count) in [(1, 1), (2, 2), (3, 1)] {
            assert_eq!(work.dispositions(id), vec!["sent"; count], "{how} {id}");
        }
    }
}

#[tokio::test]
async fn a_server_that_always_defers_stands_behind_the_others_after_three_attempts() {
    let first = Server::new(&[("RCPT", "451 4.3.0 broken")]);
    let site = Hosts::start(Transport::Smarthost, vec![first, Server::new(&[])]).await;
    for id in 1..=5 {
        assert_eq!(site.attempt(id, 1).await.dispositions(id), ["sent"]);
    }
    assert_eq!((site.servers[0].count("EHLO"), site.servers[1].count("EHLO")), (3, 5));
}

#[tokio::test]
async fn an_attempt_talks_to_five_servers_and_then_to_the_fallback() {
    let servers = vec![failing("MAIL", "451 4.3.0 broken"); 8];
    let site = Hosts::with_fallback(Transport::Mx, servers, &[Server::new(&[])]).await;
    // The servers of a clone share what they have seen.
    assert_eq!(site.attempt(1, 1).await.dispositions(1), ["sent"]);
    assert_eq!((site.servers[0].count("EHLO"), site.servers[8].count("EHLO")), (5, 1));
}

#[tokio::test]
async fn pipelined_commands_that_a_server_drops_cost_one_time_out() {
    for drops_packets in [false, true] {
        let server = Server { drops_pipelined: !drops_packets, drops_packets, ..Server::new(&[]) };
        let site = Hosts::start(Transport::Smarthost, vec![server]).await;
        for id in 1..=3 {
            assert_eq!(site.attempt(id, 2).await.dispositions(id), ["sent"; 2], "{drops_packets}");
        }
        assert_eq!((site.content_counts(), site.servers[0].count("EHLO")), (vec![3], 4), "{drops_packets}");
    }
}

#[tokio::test]
async fn a_route_without_login_waits_where_the_server_wants_one() {
    for stage in ["MAIL", "RCPT", "DATA"] {
        let server = failing(stage, "530 5.7.0 Authentication required");
        let site = Hosts::start(Transport::Smarthost, vec![server.clone()]).await;
        let work = site.attempt(1, 1).await;
        assert_eq!(work.dispositions(1), ["deferred"], "{stage}");
        let text = work.completed.lock().unwrap()[0].1[0].1.text.clone();
        assert!(text.contains("530 5.7.0") && text.contains("the route has no `login`"), "{text}");
        // At an exchanger nobody here has a login.
        let site = Hosts::start(Transport::Mx, vec![server]).await;
        assert_eq!(site.attempt(1, 1).await.dispositions(1), ["bounced"], "{stage}");
    }
}

#[tokio::test]
async fn a_mailbox_is_verified_at_the_next_server_if_the_first_does_not_say() {
    let mailbox = |text| Mailbox::parse(text, false).unwrap();
    for how in ["451 4.7.1 greylisted", "CLOSE", "SILENT", "421 4.3.2 closing"] {
        for stage in ["MAIL", "RCPT"] {
            let second = Server::new(&[("RCPT TO:<no@", "550 5.1.1 no")]);
            let site = Hosts::start(Transport::Smarthost, vec![failing(stage, how), second]).await;
            let found = site.courier.verify(&site.destination, &mailbox("yes@b.test")).await;
            assert_eq!(found, Existence::Exists, "{stage} {how}");
            let found = site.courier.verify(&site.destination, &mailbox("no@b.test")).await;
            assert!(matches!(found, Existence::Refused(_)), "{stage} {how} {found:?}");
        }
    }
}

#[tokio::test]
async fn the_text_of_a_lost_connection_names_the_command_that_was_not_answered() {
    let steps = [
        ("CONNECT", "receiving the initial server greeting"),
        ("EHLO", "performing the EHLO handshake"),
        ("MAIL", "sending MAIL FROM"),
        ("RCPT", "sending RCPT TO"),
        ("DATA", "sending DATA command"),
        (".", "sending end of data"),
    ];
    for transport in [Transport::Smarthost, Transport::Lmtp] {
        for (stage, step) in steps {
            for how in ["SILENT", "CLOSE"] {
                let site = Hosts::start(transport, vec![failing(stage, how)]).await;
                let work = site.attempt(1, 1).await;
                let completed = work.completed.lock().unwrap().clone();
                let unreachable = work.unreachable.lock().unwrap().clone();
                let outcome = completed.first().map(|row| &row.1[0].1).or(unreachable.first()).unwrap();
                let step = match transport {
                    Transport::Lmtp => step.replace("EHLO", "LHLO"),
                    _ => step.to_owned(),
                };
                let expected = if how == "SILENT" {
                    format!("timed out while {step}: no progress within ")
                } else {
                    format!(" while {step}: the server closed the connection")
                };
                assert!(outcome.text.contains(&expected), "{stage} {how}: {}", outcome.text);
                let is_told = outcome.text.ends_with(MAY_HAVE_TAKEN);
                assert_eq!(is_told, stage == ".", "{stage} {how}: {}", outcome.text);
            }
        }
    }
}
