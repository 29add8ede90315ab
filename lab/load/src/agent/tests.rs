//! Keys, and messages between two ends of one connection.

use super::{
    channel::{Channel, Message},
    key::{self, Key},
};
use rustls::{ClientConnection, ServerConnection};
use std::{
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    thread,
};
use tempfile::TempDir;

fn key_file(directory: &TempDir, name: &str) -> PathBuf {
    let path = directory.path().join(name);
    key::create(&path).unwrap();
    path
}

/// Sends one message from a controller with one key to an agent with another; returns what each of both has seen.
fn spoken(controller: &Key, agent: &Key) -> (Result<(), String>, Result<Message, String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (config, name) = controller.client().unwrap();
    let server = agent.server().unwrap();
    thread::scope(|scope| {
        let heard = scope.spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            let mut channel = Channel::new(ServerConnection::new(server).unwrap(), socket).unwrap();
            loop {
                if let Some(message) = channel.receive()? {
                    channel.send(&Message::Ready)?;
                    return Ok(message);
                }
            }
        });
        let mut channel = Channel::new(ClientConnection::new(config, name).unwrap(), socket).unwrap();
        let mut speak = || {
            channel.send(&Message::Done(7))?;
            while channel.receive()?.is_none() {}
            Ok(())
        };
        (speak(), heard.join().unwrap())
    })
}

#[test]
fn two_sides_with_the_same_key_speak_with_each_other() {
    let directory = TempDir::new().unwrap();
    let key = Key::read(&key_file(&directory, "key")).unwrap();
    assert_eq!(spoken(&key, &key), (Ok(()), Ok(Message::Done(7))));
}

#[test]
fn a_side_with_another_key_is_refused() {
    let directory = TempDir::new().unwrap();
    let [one, other] = ["one", "other"].map(|name| Key::read(&key_file(&directory, name)).unwrap());
    let (spoke, heard) = spoken(&one, &other);
    assert!(spoke.unwrap_err().contains("have both sides the same key file?"));
    assert!(heard.is_err());
}

#[test]
fn a_key_that_others_can_read_is_refused_and_none_is_overwritten() {
    let directory = TempDir::new().unwrap();
    let path = key_file(&directory, "key");
    assert!(key::create(&path).unwrap_err().contains("File exists"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(Key::read(&path).unwrap_err().contains("others can read it; run chmod 600"));
}
