//! Reads an envelope file.

use super::{
    FACTS, Filed, MAGIC, PLAIN, Piece, Unreadable, VERSION,
    options::{self, OPTIONS, REQUIRE},
};
use crate::{
    RecipientState,
    dirs::{
        line::{Line, LineChecksum, hex, lines, number, unescape_text},
        note::{self, Append, Note},
    },
    format::{
        message::{NOWHERE, fold},
        wire::Malformed,
    },
};
use mail::{
    AliasTarget, BodyType, ChunkId, Content, ContentTraits, DeliveryOptions, Envelope, Expansion,
    ForwardPath, Mailbox, Message, Notify, Origin, Part, QueueId, Recipient, Ret, ReturnPath, ReversePath,
    UnixMillis,
};

/// Reads an envelope file.
pub(in crate::dirs) fn read(id: QueueId, bytes: &[u8], checksum: LineChecksum) -> Result<Filed, Unreadable> {
    let mut filed = Filed {
        message: Message {
            id,
            arrived: UnixMillis::default(),
            origin: "".into(),
            envelope: Envelope::new(ReversePath::Null),
            content: Content::new(ContentTraits::default(), []),
        },
        pieces: Vec::new(),
        states: Vec::new(),
        held: None,
        last: None,
        end: 0,
        torn_bytes: 0,
        damaged: Vec::new(),
    };
    let mut all = lines(bytes, checksum);
    read_accepted(&mut filed, &mut all)?;
    read_notes(&mut filed, all);
    Ok(filed)
}

/// The chunks a file names, also one of which no more can be read.
pub(in crate::dirs) fn chunk_ids(bytes: &[u8], checksum: LineChecksum) -> impl Iterator<Item = u64> {
    lines(bytes, checksum).filter_map(|line| hex(line.text?.strip_prefix("chunk ")?.split(' ').nth(2)?).ok())
}

/// Up to the line that says it is whole. Nothing here was ever written but before the file had its name.
fn read_accepted<'a>(filed: &mut Filed, all: &mut impl Iterator<Item = Line<'a>>) -> Result<(), Unreadable> {
    let (mut traits, mut count) = (ContentTraits::default(), 0u64);
    let mut delivery = DeliveryOptions::default();
    loop {
        let line = all.next().ok_or(Unreadable::Damaged(filed.end, "cut short"))?;
        let bad = |m: Malformed| Unreadable::Damaged(line.offset, m.0);
        let text = line.text.ok_or_else(|| bad(Malformed("wrong checksum")))?;
        let mut words = text.split(' ');
        let first = words.next().unwrap_or_default();
        filed.end = line.offset + line.length;
        count += 1;
        if (count == 1) != (first == MAGIC) {
            return Err(bad(Malformed("not a message")));
        }
        match first {
            MAGIC => {
                let version = words.next().ok_or(Malformed("no version")).and_then(number).map_err(bad)?;
                if !(PLAIN..=VERSION).contains(&version) {
                    return Err(Unreadable::Version(version));
                }
                if words.next() != Some(&filed.message.id.to_string()) {
                    return Err(bad(Malformed("another message's")));
                }
            }
            "facts" => traits = read_traits(words).map_err(bad)?,
            OPTIONS => options::read_options(&mut delivery, words).map_err(bad)?,
            REQUIRE => options::read_required(&mut delivery, words).map_err(bad)?,
            "accepted" => break,
            _ => read_field(filed, first, words).map_err(bad)?,
        }
    }
    let part = |piece: &Piece| match *piece {
        Piece::Here { length_bytes, .. } => Part::Stored { chunk_id: NOWHERE, length_bytes },
        Piece::Chunk { chunk_id, length_bytes, .. } => {
            Part::Stored { chunk_id: ChunkId(chunk_id), length_bytes }
        }
    };
    filed.message.content = Content::new(traits, filed.pieces.iter().map(part).collect::<Vec<_>>());
    filed.message.envelope.options = delivery.boxed();
    filed.states = vec![RecipientState::default(); filed.message.envelope.recipients.len()];
    Ok(())
}

fn read_field<'a>(
    filed: &mut Filed,
    first: &str,
    mut words: impl Iterator<Item = &'a str>,
) -> Result<(), Malformed> {
    let mut next = || words.next().ok_or(Malformed("a word is missing"));
    match first {
        "arrived" => filed.message.arrived = UnixMillis(number(next()?)?),
        "origin" => filed.message.origin = Origin::parse(&value("text", next()?)?),
        "from" => {
            let path = value("path", next()?)?;
            filed.message.envelope.reverse_path =
                ReversePath::parse(&path, true).map_err(|_| Malformed("reverse-path"))?;
            words.try_for_each(|word| read_parameter(&mut filed.message.envelope, word))?;
        }
        "to" => {
            let path = value("path", next()?)?;
            let path = ForwardPath::parse(&path, true).map_err(|_| Malformed("forward-path"))?;
            let mut recipient = Recipient::new(path);
            for word in words {
                match word.split_once('=') {
                    Some(("notify", set)) => recipient.notify = read_notify(set)?,
                    Some(("orcpt", text)) => recipient.orcpt = Some(unescape_text(text)?),
                    Some(("original", text)) => {
                        let (original, through) = (mailbox(text)?, Vec::new());
                        recipient.options.get_or_insert_default().expansion =
                            Some(Expansion { original, through });
                    }
                    Some(("through", text)) => {
                        let expansion =
                            recipient.options.as_mut().and_then(|options| options.expansion.as_mut());
                        let expansion = expansion.ok_or(Malformed("no original"))?;
                        expansion.through.push(mailbox(text)?);
                    }
                    Some((key @ ("list-owner" | "return-path"), text)) => {
                        let path = ReversePath::parse(&unescape_text(text)?, true);
                        let path = path.map_err(|_| Malformed("return path"))?;
                        let is_list = key == "list-owner";
                        recipient.set_return_path(ReturnPath { path, is_list });
                    }
                    Some(("copy", "yes")) => recipient.options.get_or_insert_default().is_copy = true,
                    Some(("program", text)) => {
                        let target = AliasTarget::Program(unescape_text(text)?);
                        recipient.options.get_or_insert_default().target = Some(target);
                    }
                    Some(("file", text)) => {
                        let target = AliasTarget::File(unescape_text(text)?);
                        recipient.options.get_or_insert_default().target = Some(target);
                    }
                    Some(("route", text)) => {
                        let target = AliasTarget::Route(unescape_text(text)?);
                        recipient.options.get_or_insert_default().target = Some(target);
                    }
                    Some(("expand", "later")) => {
                        recipient.options.get_or_insert_default().target = Some(AliasTarget::Later);
                    }
                    _ => return Err(Malformed("parameter")),
                }
            }
            filed.message.envelope.recipients.push(recipient);
        }
        "content" => {
            let (length_bytes, sum) = (number(next()?)?, hex(next()?)? as u32);
            filed.pieces.push(Piece::Here { length_bytes, sum });
        }
        "chunk" => {
            let (length_bytes, sum, chunk_id) = (number(next()?)?, hex(next()?)? as u32, hex(next()?)?);
            filed.pieces.push(Piece::Chunk { chunk_id, length_bytes, sum });
        }
        _ => return Err(Malformed("unknown line")),
    }
    Ok(())
}

fn value(key: &str, word: &str) -> Result<Box<str>, Malformed> {
    let (found, text) = word.split_once('=').ok_or(Malformed("no value"))?;
    if found == key { unescape_text(text) } else { Err(Malformed("another key")) }
}

fn mailbox(text: &str) -> Result<Mailbox, Malformed> {
    Mailbox::parse(&unescape_text(text)?, true).map_err(|_| Malformed("expanded address"))
}

fn read_parameter(envelope: &mut Envelope, word: &str) -> Result<(), Malformed> {
    match word.split_once('=').unwrap_or((word, "")) {
        ("body", "7bit") => envelope.body = BodyType::SevenBit,
        ("body", "8bit") => envelope.body = BodyType::EightBit,
        ("body", "binary") => envelope.body = BodyType::Binary,
        ("smtputf8", "") => envelope.smtputf8 = true,
        ("ret", "full") => envelope.ret = Some(Ret::Full),
        ("ret", "headers") => envelope.ret = Some(Ret::Headers),
        ("envid", text) => envelope.envid = Some(unescape_text(text)?),
        _ => return Err(Malformed("parameter")),
    }
    Ok(())
}

fn read_notify(set: &str) -> Result<Notify, Malformed> {
    let mut n = Notify { success: false, failure: false, delay: false, explicit: false };
    for word in set.split(',').filter(|word| !word.is_empty()) {
        match word {
            "success" => n.success = true,
            "failure" => n.failure = true,
            "delay" => n.delay = true,
            "explicit" => n.explicit = true,
            _ => return Err(Malformed("notify")),
        }
    }
    Ok(n)
}

fn read_traits<'a>(words: impl Iterator<Item = &'a str>) -> Result<ContentTraits, Malformed> {
    let mut bits = [false; 6];
    for word in words {
        bits[FACTS.iter().position(|fact| *fact == word).ok_or(Malformed("fact"))?] = true;
    }
    let [has_dot_line, is_8bit, is_binary, lacks_final_crlf, has_utf8_header, has_long_line] = bits;
    Ok(ContentTraits { has_dot_line, is_8bit, is_binary, has_long_line, lacks_final_crlf, has_utf8_header })
}

/// No append begins behind its own lines, whatever one of them says. A bad line was proven when a later
/// append stands behind it; else it, and what stands behind it, is the torn end of the last append and was
/// never acknowledged. Batches grow: a line of an earlier one is what is left of an append that was cut.
fn read_notes<'a>(filed: &mut Filed, all: impl Iterator<Item = Line<'a>>) {
    let mut open: Vec<(Line<'a>, Option<(Append, Note)>)> = Vec::new();
    for line in all {
        let noted = line.text.and_then(|text| note::read(text).ok());
        let noted = noted.filter(|(append, _)| append.base <= line.offset);
        let is_proof = |append: &Append| {
            open.first().is_none_or(|(bad, _)| bad.offset < append.base)
                && filed.last.is_none_or(|last| last.batch <= append.batch)
        };
        if noted.as_ref().is_some_and(|(append, _)| is_proof(append)) {
            for (line, noted) in open.drain(..) {
                filed.take(line, noted);
            }
            filed.take(line, noted);
        } else {
            open.push((line, noted));
        }
    }
    filed.torn_bytes = open.iter().map(|(line, _)| line.length).sum();
}

impl Filed {
    fn take(&mut self, line: Line<'_>, noted: Option<(Append, Note)>) {
        self.end = line.offset + line.length;
        match noted {
            Some((append, note)) => {
                self.last = Some(append);
                self.apply(note);
            }
            None => self.damaged.push(line.offset),
        }
    }

    fn apply(&mut self, note: Note) {
        match note {
            Note::Held(held) => self.held = held,
            Note::Outcomes(at, results) => {
                for (index, outcome) in results {
                    if let Some(state) = self.states.get_mut(index as usize) {
                        fold(state, at, outcome);
                    }
                }
            }
            Note::Past(index, state) => {
                if let Some(own) = self.states.get_mut(index as usize) {
                    *own = state;
                }
            }
        }
    }
}
