//! Queues and configurations of other mail servers.

use ::import::{
    Capabilities, Files, QueuedMessage, exim,
    postfix::{self, queue::Queue},
    sendmail,
};
use mail::UnixMillis;
use std::path::Path;

/// Checks a message that was taken: nothing that goes into envelopes and listings ends a line.
fn taken(message: &QueuedMessage) {
    let options = &message.options;
    let texts = [message.envid.as_deref(), options.login.as_deref()];
    let orcpts = message.recipients.iter().map(|one| one.recipient.orcpt.as_deref());
    for text in texts.into_iter().chain(orcpts).flatten() {
        assert!(!text.contains(char::is_control), "{text:?}");
    }
    message.notes.iter().for_each(|note| assert!(!note.contains(char::is_control), "{note:?}"));
    assert!(message.key().split(' ').count() == 2 || message.id.contains(' '));
}

/// A queue file of Postfix, and its log of deferrals.
pub fn postfix_queue(bytes: &[u8]) {
    for queue in Queue::ALL {
        if let Ok(message) = postfix::queue::read(bytes, "4A", queue, "mx.test") {
            taken(&message);
            assert_eq!(message.held, queue == Queue::Hold);
        }
    }
    for last in postfix::queue::deferrals(bytes, UnixMillis(0)).into_values() {
        assert!(last.status.0 == 4 && !last.text.contains(char::is_control));
    }
}

/// The files of a message of Exim: the first byte says where the header file ends.
pub fn exim_queue(bytes: &[u8]) {
    let Some((split, rest)) = bytes.split_first() else { return };
    let at = rest.len().min(usize::from(*split) * 16);
    let (header, data) = rest.split_at(at);
    let header = [b"1-H\nu 1 1\n<a@b.test>\n1 0\n", header].concat();
    for header in [&header[..], rest] {
        let data = [b"1-D\n", data].concat();
        let files = exim::queue::SpoolFiles { header, data: &data, journal: Some(rest) };
        if let Ok(message) = exim::queue::read(files, "1", "mx.test") {
            taken(&message);
        }
    }
}

/// Reads bytes as the files of a message of Sendmail.
pub fn sendmail_queue(bytes: &[u8]) {
    let framed = [b"V8\nT1\n", bytes, b"\n.\n"].concat();
    for control in [bytes, &framed] {
        if let Ok(message) = sendmail::queue::read(control, bytes, "1", false, "mx.test") {
            taken(&message);
            assert!(message.content.ends_with(b"\r\n"));
        }
    }
}

/// Each file that a configuration names has the same content.
struct Everywhere<'a>(&'a [u8]);

impl Files for Everywhere<'_> {
    fn read(&self, _path: &Path) -> Option<Vec<u8>> {
        Some(self.0.to_vec())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { sqlite: true, postgres: true, mysql: true, ldap: true }
    }
}

/// Checks that a text is TOML, whatever was read.
fn is_toml(text: &str) {
    if let Err(problems) = config::load_text(text) {
        let said = problems.render(false);
        assert!(!said.contains("TOML parse") && !said.contains("duplicate key"), "{said}\n{text}");
    }
}

/// `main.cf` and `master.cf`, and tables with the same content.
pub fn postfix_configuration(bytes: &[u8]) {
    let (draft, report) = postfix::convert(bytes, bytes, "/etc/postfix", &Everywhere(bytes));
    is_toml(&draft.as_toml());
    assert!(report.entries.len() >= report.mapped_count());
}

/// Exim's configuration, and Debian's answers.
pub fn exim_configuration(bytes: &[u8]) {
    for (monolithic, debian) in [(Some(bytes), None), (None, Some(bytes))] {
        if let Some((draft, _)) = exim::convert(monolithic, debian, &Everywhere(bytes)) {
            is_toml(&draft.as_toml());
        }
    }
}

/// `sendmail.mc` and `sendmail.cf`.
pub fn sendmail_configuration(bytes: &[u8]) {
    for (mc, cf) in [(Some(bytes), None), (None, Some(bytes))] {
        if let Some((draft, _)) = sendmail::convert(mc, cf, "/etc/mail", &Everywhere(bytes)) {
            is_toml(&draft.as_toml());
        }
    }
}
