//! `postrider spool salvage`: what can be proved out of damage, into files.

use crate::backup::output::replace_file;
use console::Ending;
use console::print::plain;
use control::{Exit, OptionsInfo};
use mail::{Envelope, counted};
use spool::{Salvaged, salvage};
use std::{
    fs,
    io::{self, Write},
    os::unix::fs::DirBuilderExt as _,
    path::Path,
};
use submission::maildrop;

pub(super) fn run(dir: &Path, into: &Path, out: &mut dyn Write) -> Ending {
    let mut written = Vec::new();
    let mut broken: Option<io::Error> = None;
    let report = salvage(dir, &mut |one| {
        if broken.is_none() {
            match write(into, &one) {
                Ok(line) => written.push(line),
                Err(error) => broken = Some(error),
            }
        }
    });
    let report = report.map_err(|failure| super::spool_error(&failure))?;
    if let Some(error) = broken {
        return Err(error.into());
    }
    let mut text = Vec::new();
    report.damage.iter().try_for_each(|what| writeln!(text, "damaged: {what}"))?;
    report.recovery.corrupt.iter().try_for_each(|what| writeln!(text, "corrupt: {what}"))?;
    report.recovery.unread.iter().try_for_each(|what| writeln!(text, "cannot be read: {what}"))?;
    written.iter().try_for_each(|line| writeln!(text, "{line}"))?;
    writeln!(
        text,
        "{} left as they are; {} written to files; {} found in damaged segments",
        counted(report.recovery.message_count as u64, "queued message"),
        counted(written.len() as u64, "message"),
        counted(report.loose_count as u64, "whole record")
    )?;
    if report.torn_count > 0 {
        writeln!(
            text,
            "left out, since they were never acknowledged: {} in a torn tail",
            counted(report.torn_count as u64, "message")
        )?;
    }
    out.write_all(&text)?;
    if !written.is_empty() {
        let path = into.join("report.txt");
        replace_file(&path, &text)?;
        fs::File::open(&path)?.sync_all()?;
        fs::File::open(into)?.sync_all()?;
        let again = "Whether they were delivered before the damage is not known: look for their ids in the log.\n\
                     To send one again: move its .mail file into the drop directory.";
        writeln!(out, "{again}")?;
    }
    Ok(Exit::Ok)
}

/// The form of the drop directory, so that handing it in again is moving a file. What misses a piece
/// gets another name, lest somebody moves all of them.
fn write(into: &Path, one: &Salvaged) -> io::Result<String> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(into)?;
    let message = &one.message;
    let left = message.envelope.recipients.iter().zip(&one.recipients).filter(|(_, state)| !state.settled);
    let recipients = left.map(|(recipient, _)| recipient.clone()).collect();
    let envelope = Envelope { recipients, ..message.envelope.clone() };
    // The form has no place for them, and the message must not leave without what was required.
    let options = message.envelope.options.as_deref().map(|options| OptionsInfo::from(options).to_string());
    let is_whole = one.lost_bytes == 0 && options.is_none();
    let suffix = if is_whole { "mail" } else { "incomplete" };
    let name = format!("{}.{suffix}", message.id);
    let content: Vec<u8> = message.content.parts().iter().flat_map(bytes).copied().collect();
    maildrop::write_named(&into.join(&name), &envelope, &content)?;
    let lost = match one.lost_bytes {
        0 => String::new(),
        lost => format!(", {lost} bytes of its content are lost"),
    };
    let options = options.map(|options| format!(", without its options: {}", plain(&options)));
    let options = options.unwrap_or_default();
    let recipients = counted(envelope.recipients.len() as u64, "recipient");
    Ok(format!("{}: {} bytes for {recipients}{lost}{options}", into.join(name).display(), content.len()))
}

fn bytes(part: &mail::Part) -> &[u8] {
    match part {
        mail::Part::Memory(bytes) => bytes,
        mail::Part::Stored { .. } => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{
        BodyType, Content, DeliveryOptions, ForwardPath, Message, QueueId, Recipient, ReversePath, UnixMillis,
    };
    use std::collections::HashMap;

    #[test]
    fn salvaged_mail_with_options_is_not_handed_in_again_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let mut envelope = Envelope::new(ReversePath::Null);
        envelope.recipients = vec![Recipient::new(ForwardPath::parse("c@d.test", false).unwrap())];
        envelope.options = DeliveryOptions { requiretls: true, ..DeliveryOptions::default() }.boxed();
        let (id, arrived, content) = (QueueId(7), UnixMillis(1), Content::from_bytes("x\r\n"));
        let message = Message { id, arrived, origin: "test".into(), envelope, content };
        let recipients = vec![spool::RecipientState::default()];
        let line = write(dir.path(), &Salvaged { message, recipients, lost_bytes: 0 }).unwrap();
        assert!(line.ends_with("for 1 recipient, without its options: requiretls"), "{line}");
        assert_eq!(maildrop::list(dir.path(), &HashMap::new(), 9).unwrap().len(), 0);
    }

    #[test]
    fn salvaged_binary_mime_keeps_its_nuls_when_it_is_handed_in_again() {
        let dir = tempfile::tempdir().unwrap();
        let content = &b"Subject: x\r\n\r\n\0binary\n\0\r\0"[..];
        let mut envelope = Envelope::new(ReversePath::Null);
        envelope.body = BodyType::Binary;
        envelope.recipients = vec![Recipient::new(ForwardPath::parse("c@d.test", false).unwrap())];
        let (id, arrived) = (QueueId(7), UnixMillis(1));
        let content_of = Content::from_bytes(content);
        let message = Message { id, arrived, origin: "test".into(), envelope, content: content_of };
        let recipients = vec![spool::RecipientState::default()];
        write(dir.path(), &Salvaged { message, recipients, lost_bytes: 0 }).unwrap();
        let files = maildrop::list(dir.path(), &HashMap::new(), 9).unwrap();
        let again = maildrop::read(&files[0].path, 1000).unwrap();
        assert_eq!((&again.content[..], again.envelope.body), (content, BodyType::Binary));
    }
}
