//! A session as every model drives it: bytes in, and then one of three wishes.

use super::{
    dump::Dump,
    hall::Hall,
    log,
    talk::{Next, Talk},
};
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

/// What the model does next, once the output is written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Read, and call [`Session::advance`] with the bytes.
    Read,
    /// Call [`Session::advance`] without bytes after this long.
    Pause(Duration),
    /// Close.
    Close,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Session {
    talk: Talk,
    peer: Box<str>,
    /// Read and not used yet; empty nearly always.
    left: Vec<u8>,
    dump: Option<Dump>,
    /// The message so far, where it will be verified.
    content: Vec<u8>,
}

impl Session {
    /// A session with `peer`, an address for the dump.
    pub(crate) fn new(hall: &Hall, peer: &str) -> Self {
        hall.opened();
        let peer = if hall.dump.is_some() { peer.into() } else { Box::default() };
        Self { talk: Talk::new(&hall.shared), peer, left: Vec::new(), dump: None, content: Vec::new() }
    }

    /// Replies to write; the model empties it.
    pub(crate) fn output(&mut self) -> &mut Vec<u8> {
        self.talk.output()
    }

    /// Says close_with to a silent client.
    pub(crate) fn timed_out(&mut self, hall: &Hall) {
        hall.counts.timeouts.fetch_add(1, Relaxed);
        self.talk.timed_out();
    }

    /// The connection is closed.
    pub(crate) fn closed(self, hall: &Arc<Hall>) {
        hall.closed(self.talk.has_quit());
    }

    /// Takes what was read, and goes as far as it leads.
    pub(crate) fn advance(&mut self, hall: &Hall, bytes: &[u8]) -> Wish {
        if !bytes.is_empty() {
            hall.counts.bytes.fetch_add(bytes.len() as u64, Relaxed);
        }
        if self.left.is_empty() {
            let mut input = bytes;
            let wish = self.walk(hall, &mut input);
            self.left.extend_from_slice(input);
            return wish;
        }
        let mut buffer = std::mem::take(&mut self.left);
        buffer.extend_from_slice(bytes);
        let mut input = &buffer[..];
        let wish = self.walk(hall, &mut input);
        let used = buffer.len() - input.len();
        buffer.drain(..used);
        self.left = buffer;
        wish
    }

    fn walk(&mut self, hall: &Hall, input: &mut &[u8]) -> Wish {
        loop {
            let next = self.talk.step(input);
            match next {
                Next::Content(bytes) => {
                    if hall.shared.rules().verifies {
                        self.content.extend_from_slice(bytes);
                    }
                    if hall.dump.is_some() {
                        self.dump(hall).content(bytes);
                    }
                }
                Next::Dropped => {
                    hall.counts.refused.fetch_add(1, Relaxed);
                    self.dump = None;
                    self.content.clear();
                }
                Next::Message(envelope) => {
                    if hall.dump.is_some() {
                        let is_kept = self.dump(hall).finish();
                        hall.counts.unwritten.fetch_add(u64::from(!is_kept), Relaxed);
                        self.dump = None;
                    }
                    if hall.shared.rules().verifies {
                        hall.verify(&self.content);
                        self.content.clear();
                    }
                    hall.took_message(envelope.recipients.len());
                }
                Next::Read => return self.wish(hall, Wish::Read),
                Next::Pause(time) => return self.wish(hall, Wish::Pause(time)),
                Next::Close => return self.wish(hall, Wish::Close),
            }
        }
    }

    fn wish(&mut self, hall: &Hall, wish: Wish) -> Wish {
        let rules = hall.shared.rules();
        if rules.verbose || !rules.log.is_empty() {
            log::write(self.talk.notes());
        }
        wish
    }

    /// The dump of the message in hand; it begins with the first octet.
    fn dump(&mut self, hall: &Hall) -> &mut Dump {
        let (talk, peer) = (&self.talk, &self.peer);
        self.dump.get_or_insert_with(|| Dump::begin(hall.dump.as_ref(), talk, peer))
    }
}
