//! Reading a history that anybody may have written to.

use history::{Addresses, Entry, Folder as _, Key, MemoryFolder, Query, Reader, Settings, Store};
use mail::QueueId;
use report::UnixMicros;
use std::{collections::BTreeSet, time::Duration};

/// A segment of any bytes, one with right checksums around any frames, and plain frames: every look-up ends, and what is found can
/// be read. The next start takes the files as they are.
pub fn history_segment(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let (words, rest) = bytes.as_chunks::<8>();
    let count = words.len().min(usize::from(choice >> 2));
    let keys: Vec<u64> = words[..count].iter().map(|word| u64::from_le_bytes(*word)).collect();
    let frames = if choice & 2 == 0 { &bytes[8 * count..] } else { rest };
    let folder = MemoryFolder::default();
    folder.put("00000001.events", bytes.to_vec());
    folder.put("00000002.events", history::fuzz::segment(frames, &keys, choice & 1 == 0));
    folder.put("00000002.0.frames", history::fuzz::plain(1, frames));
    folder.put("00000002.1.frames", bytes.to_vec());
    folder.put("00000002.00002.open", bytes.to_vec());
    let reader = Reader::open(&folder).expect("a folder in memory can be listed");
    let id = QueueId(keys.first().copied().unwrap_or_default());
    let all = reader.query(&Query::new(Vec::new(), 100));
    for key in [Key::Id(id), Key::Sender("a@b".to_owned()), Key::Relay(String::new())] {
        let page = reader.query(&Query::new(vec![key], 100));
        for entry in page.entries {
            let stored = match entry {
                Entry::Message(_, events) => events,
                Entry::Event(event) => vec![event],
            };
            assert!(stored.iter().any(|stored| stored.event().is_some()));
        }
    }
    assert!(all.entries.len() <= 100);
    reader.timeline(id, &mut BTreeSet::new());
    let settings =
        Settings { keep: Duration::from_secs(60), max_bytes: 1 << 24, addresses: Addresses::Hashed };
    let now = || UnixMicros(u64::MAX / 2);
    let store = Store::open(folder.clone(), settings, Box::new(now), Box::new(|| [3; 32]));
    drop(store);
    assert!(folder.list().is_ok());
}
