//! A session as every model drives it: bytes in, and then one of three options.

use super::{
    dialog::{Dialog, Next},
    dump::Dump,
    log,
    state::SinkState,
    store::Stored,
    tls,
};
use mail::Envelope;
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

/// The next action of the model, once the output is written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Read, and call [`Session::advance`] with the bytes.
    Read,
    /// Call [`Session::advance`] without bytes after this long.
    Pause(Duration),
    /// Wait for [`Session::storing`], call [`Session::stored`], and then [`Session::advance`] without bytes.
    Store,
    /// Close the connection.
    Close,
}

/// A session as every model of the sink drives it: bytes in, an action out.
pub(crate) struct Session {
    dialog: Dialog,
    peer: Box<str>,
    /// Read and not used yet; empty nearly always.
    left: Vec<u8>,
    dump: Option<Dump>,
    /// The message so far, where it will be verified or stored.
    content: Vec<u8>,
    /// The message that is being stored, and the number of its recipients.
    storing: Option<(Stored, usize)>,
    tls: Option<tls::Channel>,
    /// TLS failed: the session ends.
    is_broken: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("dialog", &self.dialog).finish_non_exhaustive()
    }
}

impl Session {
    /// A session with `peer`, an address for the dump.
    pub(crate) fn new(state: &SinkState, peer: &str) -> Self {
        state.opened();
        let peer = if state.dump.is_some() { peer.into() } else { Box::default() };
        let mut this = Self {
            dialog: Dialog::new(&state.shared),
            peer,
            left: Vec::new(),
            dump: None,
            content: Vec::new(),
            storing: None,
            tls: None,
            is_broken: false,
        };
        if state.tls.as_ref().is_some_and(|tls| tls.is_implicit) {
            this.start_tls(state);
        }
        this
    }

    /// Octets to write; the model empties it.
    pub(crate) fn output(&mut self) -> &mut Vec<u8> {
        match &mut self.tls {
            Some(channel) => channel.output(),
            None => self.dialog.output(),
        }
    }

    /// Begins TLS behind what is to be written in the clear.
    fn start_tls(&mut self, state: &SinkState) {
        let Some(settings) = &state.tls else { return };
        // What was sent behind STARTTLS is no part of the session (RFC 3207 §6).
        self.left.clear();
        match tls::Channel::new(settings, std::mem::take(self.dialog.output())) {
            Ok(channel) => {
                self.tls = Some(channel);
                self.dialog.secured();
                state.counts.tls_sessions.fetch_add(1, Relaxed);
            }
            Err(error) => {
                eprintln!("postlab: begin TLS: {error}");
                self.is_broken = true;
            }
        }
    }

    /// Says close_with to a silent client.
    pub(crate) fn timed_out(&mut self, state: &SinkState) {
        state.counts.timeouts.fetch_add(1, Relaxed);
        self.dialog.timed_out();
        if let Some(channel) = &mut self.tls {
            channel.seal(self.dialog.output());
            channel.end();
        }
    }

    /// Counts the end of the session.
    pub(crate) fn closed(self, state: &Arc<SinkState>) {
        state.closed(self.dialog.has_quit());
    }

    /// Takes what was read, and goes as far as it leads.
    pub(crate) fn advance(&mut self, state: &SinkState, bytes: &[u8]) -> Wish {
        let Some(channel) = &mut self.tls else { return self.advance_plain(state, bytes) };
        let Ok(plain) = channel.open(bytes) else { return Wish::Close };
        let wish = self.advance_plain(state, &plain);
        if let Some(channel) = &mut self.tls {
            channel.seal(self.dialog.output());
            if wish == Wish::Close {
                channel.end();
            }
        }
        wish
    }

    fn advance_plain(&mut self, state: &SinkState, bytes: &[u8]) -> Wish {
        if !bytes.is_empty() {
            state.counts.bytes.fetch_add(bytes.len() as u64, Relaxed);
        }
        if self.left.is_empty() {
            let mut input = bytes;
            let wish = self.walk(state, &mut input);
            self.left.extend_from_slice(input);
            return wish;
        }
        let mut buffer = std::mem::take(&mut self.left);
        buffer.extend_from_slice(bytes);
        let mut input = &buffer[..];
        let wish = self.walk(state, &mut input);
        let used = buffer.len() - input.len();
        buffer.drain(..used);
        self.left = buffer;
        wish
    }

    fn walk(&mut self, state: &SinkState, input: &mut &[u8]) -> Wish {
        loop {
            let next = self.dialog.step(input);
            match next {
                Next::Content(bytes) => {
                    if state.shared.rules().verifies || state.store.is_some() {
                        self.content.extend_from_slice(bytes);
                    }
                    if state.dump.is_some() {
                        self.dump(state).content(bytes);
                    }
                }
                Next::Dropped => {
                    state.counts.refused.fetch_add(1, Relaxed);
                    self.dump = None;
                    self.content.clear();
                }
                Next::Message(envelope) => {
                    if state.dump.is_some() {
                        let is_kept = self.dump(state).finish();
                        state.counts.unwritten.fetch_add(u64::from(!is_kept), Relaxed);
                        self.dump = None;
                    }
                    if state.shared.rules().verifies {
                        state.verify(&self.content);
                    }
                    if self.begin_to_store(state, *envelope) {
                        return self.wish(state, Wish::Store);
                    }
                }
                Next::Read => return self.wish(state, Wish::Read),
                Next::Pause(time) => return self.wish(state, Wish::Pause(time)),
                Next::StartTls => {
                    *input = &[];
                    self.start_tls(state);
                    return self.wish(state, if self.is_broken { Wish::Close } else { Wish::Read });
                }
                Next::Close => return self.wish(state, Wish::Close),
            }
        }
    }

    /// A message is complete: begins to store it; false if there is no store.
    fn begin_to_store(&mut self, state: &SinkState, envelope: Envelope) -> bool {
        let recipient_count = envelope.recipients.len();
        let Some(store) = &state.store else {
            self.content.clear();
            state.took_message(recipient_count);
            return false;
        };
        let content = std::mem::take(&mut self.content).into();
        let stored = store.store(envelope, content, state.may_block);
        self.storing = Some((stored, recipient_count));
        true
    }

    /// The message that [`Wish::Store`] waits for; resolves once it is durable or cannot be stored.
    pub(crate) fn storing(&mut self) -> Option<&mut Stored> {
        self.storing.as_mut().map(|(stored, _)| stored)
    }

    /// Replies to the message that was being stored.
    pub(crate) fn stored(&mut self, state: &SinkState, result: &Result<(), String>) {
        let Some((_, recipient_count)) = self.storing.take() else { return };
        if let Some(store) = &state.store {
            store.note(result);
        }
        match result {
            Ok(()) => state.took_message(recipient_count),
            Err(_) => {
                state.counts.refused.fetch_add(1, Relaxed);
                self.dialog.refuse_message(recipient_count);
            }
        }
    }

    fn wish(&mut self, state: &SinkState, wish: Wish) -> Wish {
        let rules = state.shared.rules();
        if rules.verbose || !rules.log.is_empty() {
            log::write(self.dialog.notes());
        }
        wish
    }

    /// The dump of the current message; it begins with the first octet.
    fn dump(&mut self, state: &SinkState) -> &mut Dump {
        let (dialog, peer) = (&self.dialog, &self.peer);
        self.dump.get_or_insert_with(|| Dump::begin(state.dump.as_ref(), dialog, peer))
    }
}
