//! Files of maps, replies of socketmap servers, and lists of targets.

use ::maps::{
    FileFault, Netstring, Patterns, SocketmapReply, aliases::Aliases, cdb::Cdb, cidr::CidrTable,
    text::TextTable,
};
use rewrite::{Target, TargetList};
use std::{fs::File, io::Write as _};

/// Checks that a fault has a place inside the file.
fn place(file: &str, fault: &FileFault) {
    assert!((1..=file.lines().count() + 1).contains(&fault.line) && fault.column > 0, "{fault}");
    assert!(!fault.what.is_empty());
}

/// Files in the text formats: what is read can be looked up, and each target of an alias is read again.
pub fn map_files(bytes: &[u8]) {
    let Ok(file) = std::str::from_utf8(bytes) else { return };
    match TextTable::parse(file) {
        Ok(table) => {
            let lines = file.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
            // Others are comments, continuations, or have keys with blanks.
            let is_plain = |line: &&str| {
                let text = line.trim_start();
                !line.starts_with([' ', '\t'])
                    && !text.is_empty()
                    && !text.starts_with('#')
                    && !line.contains('"')
            };
            for line in lines.filter(is_plain) {
                let key = line.split([' ', '\t']).next().unwrap_or_default();
                assert!(table.get(key).is_some(), "{key:?}");
            }
        }
        Err(fault) => place(file, &fault),
    }
    match CidrTable::parse(file) {
        Ok(table) => {
            let _ = (table.get("10.1.2.3"), table.get("2001:db8::1"), table.get("x"));
        }
        Err(fault) => place(file, &fault),
    }
    match Patterns::parse(file) {
        Ok(patterns) => drop(patterns.get("joe@example.com")),
        Err(fault) => place(file, &fault),
    }
}

/// A file of aliases: each value that is taken is a list of targets.
pub fn aliases_file(bytes: &[u8]) {
    let Ok(file) = std::str::from_utf8(bytes) else { return };
    match Aliases::parse(file) {
        Ok(aliases) => {
            aliases.refused().iter().for_each(|one| place(file, &one.fault));
            for name in file.split([':', '\n']).map(str::trim) {
                if let Some(value) = aliases.get(name) {
                    assert!(TargetList::new(value).all(|target| target.is_ok()), "{value:?}");
                }
            }
        }
        Err(fault) => place(file, &fault),
    }
}

/// A list of targets: whatever is taken prints nothing dangerous, and a fault has a place in the text.
pub fn alias_targets(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for target in TargetList::new(text).placed().chain(TargetList::of_file(text)) {
        if let Ok((at, _)) = &target {
            assert!(*at < text.len() && text.is_char_boundary(*at), "{target:?}");
        }
        match target.map(|(_, target)| target) {
            Ok(Target::Mailbox(mailbox)) => assert!(!mailbox.as_str().contains(char::is_control)),
            Ok(Target::Include(path) | Target::File(path)) => {
                assert!(path.starts_with('/') && !path.contains(char::is_control));
            }
            Ok(Target::Command(command)) => {
                assert!(!command.is_empty() && !command.contains(char::is_control));
            }
            Ok(_) => {}
            Err(error) => assert!(error.at <= text.len() && text.is_char_boundary(error.at), "{error:?}"),
        }
    }
}

/// Bytes of a socketmap server, in pieces of a size that the first byte gives.
pub fn socketmap_reply(bytes: &[u8]) {
    let Some((split, wire)) = bytes.split_first() else { return };
    let mut netstring = Netstring::default();
    for piece in wire.chunks(usize::from(*split).max(1)) {
        match netstring.push(piece) {
            Ok(None) => {}
            Ok(Some(content)) => {
                if let Ok(SocketmapReply::Ok(value)) = SocketmapReply::parse(content) {
                    assert!(!value.contains(['\r', '\n', '\0']));
                }
            }
            Err(_) => return,
        }
    }
}

/// A damaged cdb file: a look-up ends, with an error or without.
pub fn cdb_file(bytes: &[u8]) {
    let Ok(mut file) = tempfile::tempfile() else { return };
    // The heads point to where the input says; most files would be too short without this.
    let mut whole = bytes.to_vec();
    whole.resize(bytes.len().max(2048 + 64), 0);
    if file.write_all(&whole).is_err() {
        return;
    }
    let file: File = file;
    if let Ok(cdb) = Cdb::open(file) {
        for key in ["", "joe", "joe@example.com"] {
            let _ = cdb.get(key);
        }
    }
}
