//! A daemon for tests: a queue in memory.

use super::{
    Action, Applied, CertificateInfo, CertificateOrigin, DestinationInfo, Failure, Gauges, Id, Matched,
    MessageCopy, MessageInfo, Operations, RecipientInfo, RedirectTo, RenewalInfo, Status, Summary, SummaryBy,
    serve_control, server::Access, socket,
};
use bytes::Bytes;
use mail::{ChunkId, Part, QueueId};
use report::RecipientCounters;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use tempfile::TempDir;
use tokio::{net::UnixListener, runtime::Runtime};

/// A message from alice@a.test to bob@b.test (waiting) and carol@c.test (held), accepted at `number` seconds.
pub fn message(number: u64) -> MessageInfo {
    let recipient = |address: &str, destination: &str, status| RecipientInfo {
        address: address.to_owned(),
        expanded_from: Vec::new(),
        return_path: None,
        destination: destination.to_owned(),
        status,
        attempt_count: 1,
        last: Some("deferred 4.4.1 (connect to b.test: Connection refused)".to_owned()),
        last_ms: Some(2000),
        next_ms: (status == Status::Waiting).then_some(302_000),
        reason: (status == Status::Waiting).then(|| "300 s after the last attempt".to_owned()),
        attempt: None,
        wait: None,
    };
    MessageInfo {
        id: Id(QueueId(number)),
        size_bytes: 1234,
        arrived_ms: number * 1000,
        sender: "alice@a.test".to_owned(),
        origin: "client=[127.0.0.1] helo=a.test proto=ESMTP".to_owned(),
        options: None,
        recipients: vec![
            recipient("bob@b.test", "mx:b.test", Status::Waiting),
            recipient("carol@c.test", "mx:c.test", Status::Held),
        ],
        hold_reason: None,
        damaged: None,
    }
}

/// Returns a message like [`message`] whose envelope the spool cannot give.
pub fn damaged(number: u64) -> MessageInfo {
    let mut message = message(number);
    (message.sender, message.origin) = (String::new(), String::new());
    message.recipients.iter_mut().for_each(|r| r.address = String::new());
    message.damaged = Some("0000.seg at 8216: record checksum".to_owned());
    message
}

/// Keeps messages in memory and notes what was done.
#[derive(Default)]
pub struct Memory {
    /// Messages by queue id; actions change them.
    pub queue: Mutex<BTreeMap<QueueId, MessageInfo>>,
    /// The actions that were done, with the messages they were done to.
    pub done: Mutex<Vec<(Action, Matched)>>,
    /// Recipients that got lost.
    pub lost: Mutex<u64>,
    /// The reason why the spool failed.
    pub failure: Mutex<Option<String>>,
}

impl Memory {
    /// Makes a queue with the messages 1 to `count`.
    pub fn with(count: u64) -> Self {
        let memory = Self::default();
        memory.queue.lock().unwrap().extend((1..=count).map(|n| (QueueId(n), message(n))));
        memory
    }
}

impl Operations for Memory {
    fn ids(&self) -> Vec<QueueId> {
        self.queue.lock().unwrap().keys().copied().collect()
    }

    async fn notified(&self) {}

    async fn messages(&self, ids: &[QueueId]) -> Vec<MessageInfo> {
        assert!(ids.len() <= crate::server::PAGE, "{} asked at once", ids.len());
        let queue = self.queue.lock().unwrap();
        ids.iter().filter_map(|id| queue.get(id).cloned()).collect()
    }

    async fn header(&self, id: QueueId, _: usize) -> Result<Option<Vec<u8>>, Failure> {
        let known = self.queue.lock().unwrap().contains_key(&id);
        Ok(known.then(|| b"Subject: \xff hi\r\n\r\n".to_vec()))
    }

    async fn apply(&self, action: Action, matched: &[Matched], _: u32) -> Result<Applied, Failure> {
        assert!(matched.len() <= crate::server::PAGE, "{} changed at once", matched.len());
        let mut queue = self.queue.lock().unwrap();
        let known: Vec<&Matched> = matched.iter().filter(|matched| queue.contains_key(&matched.id)).collect();
        if action == Action::Delete {
            known
                .iter()
                .filter(|matched| matched.recipients.is_none())
                .for_each(|m| drop(queue.remove(&m.id)));
        }
        self.done.lock().unwrap().extend(known.iter().map(|matched| (action, (*matched).clone())));
        // A message of this queue is never held: nothing is released.
        let mut applied = Applied { found: known.len() as u64, ..Applied::default() };
        known.iter().filter(|_| action == Action::Release).for_each(|_| applied.add_unchanged("not held"));
        Ok(applied)
    }

    async fn check_redirect(&self, _: &RedirectTo) -> Result<Option<String>, Failure> {
        Ok(None)
    }

    async fn redirect(&self, _: &RedirectTo, matched: &[Matched], _: u32) -> Result<Applied, Failure> {
        Ok(Applied { found: matched.len() as u64, ..Applied::default() })
    }

    async fn summary(&self, by: SummaryBy) -> Vec<DestinationInfo> {
        let mut summary = Summary::default();
        for message in self.queue.lock().unwrap().values() {
            summary.add_message(by, message, 10_000_000);
        }
        summary.finish()
    }

    fn metrics(&self) -> String {
        "# EOF\n".to_owned()
    }

    fn flush(&self, _: u32) -> u64 {
        self.queue.lock().unwrap().len() as u64
    }

    fn counters(&self) -> RecipientCounters {
        let queued = self.queue.lock().unwrap().len() as u64 * 2;
        let lost = *self.lost.lock().unwrap();
        RecipientCounters {
            accepted: queued + lost + 5,
            delivered: 5,
            queued,
            ..RecipientCounters::default()
        }
    }

    fn gauges(&self) -> Gauges {
        Gauges { failure: self.failure.lock().unwrap().clone(), ..Gauges::default() }
    }

    async fn copy(&self, id: QueueId) -> Result<Option<MessageCopy>, Failure> {
        let Some(message) = self.queue.lock().unwrap().get(&id).cloned() else { return Ok(None) };
        match message.damaged {
            Some(text) => Err(Failure::Failed { text }),
            None => {
                let stored = Part::Stored { chunk_id: ChunkId(id.0), length_bytes: 5 };
                let parts = vec![Part::Memory("Subject: x\r\n\r\n".into()), stored];
                Ok(Some(MessageCopy { envelope: format!("envelope {id}").into_bytes(), parts }))
            }
        }
    }

    async fn chunk(&self, id: QueueId, _: ChunkId) -> Result<Option<Bytes>, Failure> {
        // The third message fails while it is copied, and so do the notification about it and the one about that.
        let next =
            [(3, 1000), (1000, 1001), (1001, 1002)].into_iter().find(|(number, _)| QueueId(*number) == id);
        let mut queue = self.queue.lock().unwrap();
        if let Some((_, next)) = next
            && queue.remove(&id).is_some()
        {
            queue.insert(QueueId(next), message(next));
            return Ok(None);
        }
        Ok(Some("body\n".into()))
    }

    fn certificates(&self) -> Vec<CertificateInfo> {
        let names = vec!["mx.test".to_owned()];
        vec![CertificateInfo { names, expires_seconds: 1_900_000_000, origin: CertificateOrigin::File }]
    }

    fn renewal(&self) -> Option<RenewalInfo> {
        None
    }

    fn renew(&self) -> Result<(), Failure> {
        Err(Failure::Failed { text: "the daemon obtains no certificate".to_owned() })
    }

    async fn reload(&self) -> Result<Vec<String>, Failure> {
        Ok(vec!["data_dir needs a restart".to_owned()])
    }

    fn set_drained(&self, listener: Option<&str>, _: bool) -> Result<Vec<String>, Failure> {
        Ok(vec![listener.unwrap_or("127.0.0.1:25").to_owned()])
    }
}

/// A daemon that listens on its control socket in a folder of its own, until it is dropped.
pub struct Daemon {
    /// What the daemon's operations work on.
    pub target: Arc<Memory>,
    /// The settings, of which the control socket is in use.
    pub settings: config::Settings,
    _runtime: Runtime,
    _dir: TempDir,
}

impl Daemon {
    /// Serves until the value is dropped.
    ///
    /// # Panics
    /// When the socket cannot be bound.
    pub fn serving(target: Memory) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("postrider.toml");
        std::fs::write(&file, "hostname = \"host.test\"\ndata_dir = \".\"\n").unwrap();
        let settings = config::load(Some(&file)).unwrap_or_else(|problems| panic!("{problems}"));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let target = Arc::new(target);
        let inside = runtime.enter();
        let listen = |path, mode| UnixListener::from_std(socket::bind(path, mode, None).unwrap()).unwrap();
        let control = listen(&settings.control.socket, 0o600);
        drop(inside);
        runtime.spawn(serve_control(control, Access::Owner, target.clone()));
        Self { target, settings, _runtime: runtime, _dir: dir }
    }

    /// Returns the actions that were done so far.
    pub fn done(&self) -> Vec<(Action, Matched)> {
        self.target.done.lock().unwrap().clone()
    }
}
