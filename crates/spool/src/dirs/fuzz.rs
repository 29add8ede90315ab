//! For fuzzing only: the readers of queue directories on arbitrary bytes, and on lines whose checksums
//! are right whatever they say.

use super::{
    envelope, intent,
    line::{LineChecksum, Lines},
};
use crate::mutant::ActiveMutant;
use mail::QueueId;

const NUMBER: u64 = 1;

/// An envelope file: what is read accounts for every byte, and is written and read as the same again.
pub(crate) fn envelope(bytes: &[u8]) {
    let checksum = LineChecksum::of(NUMBER, ActiveMutant::default());
    for file in [bytes.to_vec(), with_checksums(bytes, checksum)] {
        let Ok(filed) = envelope::read(QueueId(NUMBER), &file, checksum) else { continue };
        assert_eq!(filed.end + filed.torn_bytes, file.len() as u64);
        assert_eq!(filed.states.len(), filed.message.envelope.recipients.len());
        let mut out = Vec::new();
        envelope::write(&mut out, checksum, &filed.message, |_| 0);
        let again = envelope::read(QueueId(NUMBER), &out, checksum).expect("it was just written");
        assert_eq!(again.message.envelope, filed.message.envelope);
        assert_eq!(
            (again.message.origin, again.message.arrived),
            (filed.message.origin, filed.message.arrived)
        );
        assert_eq!(again.message.content.size_bytes(), filed.message.content.size_bytes());
    }
}

/// An intent is read as it would be written, or not at all.
pub(crate) fn intent(bytes: &[u8]) {
    let checksum = LineChecksum::of(NUMBER, ActiveMutant::default());
    for file in [bytes.to_vec(), with_checksums(bytes, checksum)] {
        let Ok(steps) = intent::read(NUMBER, &file, checksum) else { continue };
        let mut out = Vec::new();
        intent::write(&mut out, checksum, NUMBER, &steps);
        assert_eq!(intent::read(NUMBER, &out, checksum), Ok(steps));
    }
}

/// Each line with the checksum it should have.
fn with_checksums(bytes: &[u8], checksum: LineChecksum) -> Vec<u8> {
    let mut out = Vec::new();
    for line in bytes.split(|b| *b == b'\n') {
        let text = String::from_utf8_lossy(line);
        Lines::new(&mut out, checksum, 0).line(&text, |_| {});
    }
    out
}
