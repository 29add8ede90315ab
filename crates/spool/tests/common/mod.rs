//! Messages and outcomes for the tests of the spool.

use mail::{
    Content, Envelope, ForwardPath, Message, QueueId, Recipient, ReversePath, SharedMessage, UnixMillis,
};
use spool::Entry;

/// Returns the acceptance of a message with one recipient and `length` bytes.
pub(crate) fn accept(id: u64, length: usize) -> Vec<Entry> {
    let mut envelope = Envelope::new(ReversePath::parse("a@b.test", false).unwrap());
    envelope.recipients = vec![Recipient::new(ForwardPath::parse("c@d.test", false).unwrap())];
    let content = Content::from_bytes(vec![b'x'; length]);
    let (arrived, origin) = (UnixMillis(id), "test".into());
    vec![Entry::Accept(SharedMessage::new(Message { id: QueueId(id), arrived, origin, envelope, content }))]
}
