//! A server that replies as each test wants.

use super::*;
use crate::source::Source;
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::net::{TcpListener, UnixListener};

fn settings(server: Server) -> NamedMap {
    NamedMap {
        name: "users".to_owned(),
        source: Source::Socketmap { server, remote_name: "virtual".to_owned() },
        timeout: Duration::from_secs(5),
        cache_ttl: Duration::ZERO,
        connections_max: 4,
    }
}

fn open(settings: &NamedMap) -> std::sync::Arc<dyn crate::Map> {
    crate::servers::open(settings)
}

/// Answers each request of a connection; an empty reply closes it.
async fn serve(mut stream: impl Stream, reply: impl Fn(&str) -> Vec<u8>) {
    let mut buffer = [0; 1024];
    loop {
        let Ok(count @ 1..) = stream.read(&mut buffer).await else { return };
        let request = String::from_utf8(buffer[..count].to_vec()).unwrap();
        let wire = reply(&request);
        if wire.is_empty() || stream.write_all(&wire).await.is_err() {
            return;
        }
    }
}

fn netstring(content: &str) -> Vec<u8> {
    let mut wire = Vec::new();
    Netstring::write(content.as_bytes(), &mut wire);
    wire
}

/// A server on a Unix socket; counts its connections.
fn unix(path: &Path, reply: impl Fn(&str) -> Vec<u8> + Clone + Send + 'static) -> Arc<AtomicUsize> {
    let listener = UnixListener::bind(path).unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(serve(stream, reply.clone()));
        }
    });
    count
}

fn socket(dir: &tempfile::TempDir) -> (std::path::PathBuf, Server) {
    let path = dir.path().join("socket");
    (path.clone(), Server::Unix(path))
}

#[tokio::test]
async fn a_key_is_asked_for_by_the_name_of_the_map_on_one_connection() {
    let dir = tempfile::tempdir().unwrap();
    let (path, server) = socket(&dir);
    let connections = unix(&path, |request| match request {
        "18:virtual joe@b.test," => netstring("OK jane@b.test "),
        "18:virtual ann@b.test," => netstring("NOTFOUND "),
        other => panic!("{other}"),
    });
    let map = open(&settings(server));
    for _ in 0..3 {
        assert_eq!(map.get("joe@b.test").wait().await.unwrap().as_deref(), Some("jane@b.test"));
        assert_eq!(map.get("ann@b.test").wait().await, Ok(None));
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    assert_eq!(map.get("a\nb").wait().await, Ok(None), "not sent");
}

#[tokio::test]
async fn look_ups_go_over_tcp_as_well() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        serve(stream, |_| netstring("OK x")).await;
    });
    let map = open(&settings(Server::Tcp(mail::HostPort::parse(&address).unwrap())));
    assert_eq!(map.get("a").wait().await.unwrap().as_deref(), Some("x"));
}

#[tokio::test]
async fn every_failure_is_an_error_and_never_a_missing_key() {
    for (reply, told) in [
        (netstring("TEMP database is down"), "TEMP database is down"),
        (netstring("TIMEOUT slow"), "TIMEOUT slow"),
        (netstring("PERM no such map"), "PERM no such map"),
        (netstring("MAYBE"), "none of OK"),
        (netstring("OK a\nb"), "control characters"),
        (b"200000:OK ".to_vec(), "longer than 100,000"),
        (b"no netstring".to_vec(), "does not begin with its length"),
        (b"2:OKx".to_vec(), "no comma"),
        (b"2:OK,2:OK,".to_vec(), "longer than it says"),
        (Vec::new(), "unexpected end of file"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (path, server) = socket(&dir);
        unix(&path, move |_| reply.clone());
        let error = open(&settings(server)).get("joe").wait().await.unwrap_err();
        assert!(error.what.contains(told), "{error}");
        assert_eq!(&*error.map, "map:users");
    }
    let dir = tempfile::tempdir().unwrap();
    let error = open(&settings(socket(&dir).1)).get("joe").wait().await.unwrap_err();
    assert!(error.what.contains("connect to unix:"), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let (path, server) = socket(&dir);
    let _listener = UnixListener::bind(&path).unwrap();
    let map = open(&NamedMap { timeout: Duration::from_millis(50), ..settings(server) });
    let error = map.get("joe").wait().await.unwrap_err();
    assert!(error.what.contains("no answer of unix:"), "{error}");
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (path, server) = socket(&dir);
    let count = Arc::new(AtomicUsize::new(0));
    // Every connection answers once, and closes at the second request.
    let listener = UnixListener::bind(&path).unwrap();
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                let _ = stream.read(&mut buffer).await;
                let _ = stream.write_all(&netstring("OK x")).await;
                let _ = stream.read(&mut buffer).await;
            });
        }
    });
    let map = open(&settings(server));
    for _ in 0..3 {
        assert_eq!(map.get("a").wait().await.unwrap().as_deref(), Some("x"));
    }
    assert_eq!(count.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn no_more_connections_are_open_than_permitted() {
    let dir = tempfile::tempdir().unwrap();
    let (path, server) = socket(&dir);
    let connections = unix(&path, |_| netstring("OK x"));
    let map = open(&NamedMap { connections_max: 2, ..settings(server) });
    let look_up = |_| {
        let map = map.clone();
        tokio::spawn(async move { map.get("a").wait().await })
    };
    let all: Vec<_> = (0..50).map(look_up).collect();
    for one in all {
        assert_eq!(one.await.unwrap().unwrap().as_deref(), Some("x"));
    }
    assert!(connections.load(Ordering::Relaxed) <= 2);
}
