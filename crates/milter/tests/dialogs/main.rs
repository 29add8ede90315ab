//! Dialogs with a filter on Debian's libmilter: recorded from it, and replayed without it.

mod live;
mod script;

use script::{Script, Transport};
use std::{fs, path::PathBuf};

/// The recorded dialogs, by name.
fn dialogs() -> Vec<(PathBuf, Script)> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/dialogs"));
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    let read = |path: PathBuf| {
        let script = Script::parse(&fs::read_to_string(&path).unwrap());
        (path, script)
    };
    paths.into_iter().map(read).collect()
}

/// The answers of a recording, in pieces of a size.
struct Recording<'a> {
    answers: std::vec::IntoIter<&'a [u8]>,
    size: usize,
}

impl Transport for Recording<'_> {
    fn exchange(&mut self, _: &[u8], take: &mut dyn FnMut(&[u8]) -> bool) {
        let answer = self.answers.next().expect("an answer that is awaited is in the recording");
        let mut is_done = false;
        for piece in answer.chunks(self.size) {
            assert!(!is_done, "an answer goes on behind its verdict");
            is_done = take(piece);
        }
        assert!(is_done, "a recorded answer has no verdict");
    }
}

#[test]
fn a_recorded_dialog_is_the_same_at_every_split() {
    for (path, script) in dialogs() {
        let longest = script.answers().map(<[u8]>::len).max().unwrap();
        let sizes = (1..=longest.min(64)).chain([longest / 2 + 1, longest]);
        for size in sizes {
            let answers = script.answers().collect::<Vec<_>>().into_iter();
            let replayed = script.run(&mut Recording { answers, size });
            assert_eq!(replayed, script.text, "{}: pieces of {size} octets", path.display());
        }
    }
}
