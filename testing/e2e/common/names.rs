//! A name server with fixed answers.

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

/// What the name server answers for a name.
#[derive(Debug, Clone)]
pub enum Record {
    Mx(u16, &'static str),
    A(Ipv4Addr),
    Ptr(&'static str),
    Txt(String),
}

/// Answers until it is dropped.
pub struct NameServer {
    pub address: SocketAddr,
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// Listens on an address. A name that is not there has no records.
    pub fn start(socket: UdpSocket, records: &[(&'static str, Record)]) -> Self {
        let (address, records) = (socket.local_addr().unwrap(), records.to_vec());
        let is_ended = Arc::new(AtomicBool::new(false));
        let ended = is_ended.clone();
        let thread = std::thread::spawn(move || {
            let mut query = [0; 1500];
            while let Ok((len, client)) = socket.recv_from(&mut query) {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                if let Some(answer) = answer(&query[..len], &records) {
                    let _ = socket.send_to(&answer, client);
                }
            }
        });
        Self { address, is_ended, thread: Some(thread) }
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        if let Ok(socket) = UdpSocket::bind((self.address.ip(), 0)) {
            let _ = socket.send_to(&[0], self.address);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the answer to a query (RFC 1035 §4.1).
fn answer(query: &[u8], records: &[(&'static str, Record)]) -> Option<Vec<u8>> {
    let (mut name, mut at) = (String::new(), 12);
    loop {
        let len = usize::from(*query.get(at)?);
        at += 1;
        if len == 0 {
            break;
        }
        name += &String::from_utf8_lossy(query.get(at..at + len)?).to_ascii_lowercase();
        name.push('.');
        at += len;
    }
    let (kind, question) =
        (u16::from_be_bytes([*query.get(at)?, *query.get(at + 1)?]), query.get(12..at + 4)?);
    let name = name.trim_end_matches('.');
    let of_name: Vec<&Record> = records.iter().filter(|(owner, _)| *owner == name).map(|(_, r)| r).collect();
    let found: Vec<(u16, Vec<u8>)> =
        of_name.iter().map(|record| data(record)).filter(|(k, _)| *k == kind).collect();
    // Flags: an answer, recursion available; no such name if there is nothing of any type.
    let code = if of_name.is_empty() { 3 } else { 0 };
    let mut out =
        vec![query[0], query[1], 0x84 | query[2] & 1, 0x80 | code, 0, 1, 0, found.len() as u8, 0, 0, 0, 0];
    out.extend_from_slice(question);
    for (kind, data) in found {
        out.extend_from_slice(&[0xc0, 12]);
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&[0, 1, 0, 0, 0, 60]);
        out.extend_from_slice(&(data.len() as u16).to_be_bytes());
        out.extend_from_slice(&data);
    }
    Some(out)
}

/// Returns a record's type and its data in wire form.
fn data(record: &Record) -> (u16, Vec<u8>) {
    match record {
        Record::A(address) => (1, address.octets().to_vec()),
        Record::Mx(preference, host) => {
            let mut data = preference.to_be_bytes().to_vec();
            put_name(host, &mut data);
            (15, data)
        }
        Record::Txt(text) => {
            let strings = text.as_bytes().chunks(255);
            let data = strings.flat_map(|part| [&[part.len() as u8], part].concat());
            (16, data.collect())
        }
        Record::Ptr(host) => {
            let mut data = Vec::new();
            put_name(host, &mut data);
            (12, data)
        }
    }
}

fn put_name(name: &str, data: &mut Vec<u8>) {
    for label in name.split('.').filter(|label| !label.is_empty()) {
        data.push(label.len() as u8);
        data.extend_from_slice(label.as_bytes());
    }
    data.push(0);
}
