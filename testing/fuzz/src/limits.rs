//! Reading what limits and greylisting remember.

use limits::{Greylist, GreylistTimes, Rate, Table};

/// Files of any bytes: one that is read can be used, and what is written then is read again.
pub fn limit_files(bytes: &[u8]) {
    let times = GreylistTimes { wait: 60, retry: 3600, keep: 86_400, known_after: 2 };
    let client = "192.0.2.1".parse().expect("an address");
    // As a file that begins right, too.
    let headed = |magic: &[u8]| [magic, bytes].concat();
    for bytes in [bytes.to_vec(), headed(b"PRGREY1\n")] {
        if let Some(mut list) = Greylist::from_bytes(&bytes, 1000) {
            list.judge(client, "a", "b", u64::MAX / 2, times);
            list.forget(u64::MAX, times);
            list.note_change();
            let written = list.changed_bytes().expect("it has changed");
            assert!(Greylist::from_bytes(&written, 1000).is_some());
        }
    }
    for bytes in [bytes.to_vec(), headed(b"PRLIMIT1")] {
        if let Some(mut table) = Table::from_bytes(&bytes, 1000, u64::MAX / 2) {
            table.spend(&"a", Rate::parse("3/h").expect("a rate"), 1, u64::MAX / 2);
            table.note_change();
            let written = table.changed_bytes(u64::MAX / 2).expect("it has changed");
            assert!(Table::from_bytes(&written, 1000, u64::MAX / 2).is_some());
        }
    }
}
