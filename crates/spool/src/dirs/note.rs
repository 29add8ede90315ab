//! Notes behind an envelope: outcomes, holds, releases. Each line says where the append began
//! that wrote it, so that a torn append can be distinguished from damage before a later one, and in which batch:
//! all batches but the last are proven.

use super::line::{LineChecksum, Lines, Words, line_at, number, unescape_text};
use crate::{
    RecipientState,
    format::{message::TEXT_MAX, wire::Malformed},
};
use mail::{Cause, Disposition, Enhanced, Outcome, UnixMillis};

/// What one line behind the envelope adds to the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Note {
    Outcomes(UnixMillis, Vec<(u32, Outcome)>),
    /// Held for a reason, or released.
    Held(Option<Box<str>>),
    /// Attempts that were made while another spool had the message.
    Past(u32, RecipientState),
}

/// Which append wrote a line: lines of one that is not whole do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Append {
    /// Offset in the file at which the append began.
    pub(super) base: u64,
    /// The batch it was part of, over all messages and lives of the spool.
    pub(super) batch: u64,
}

/// Appends a note as one line.
pub(super) fn write(to: &mut Lines<'_>, append: Append, note: &Note) {
    let word = match note {
        Note::Outcomes(..) => "outcome",
        Note::Held(Some(_)) => "hold",
        Note::Held(None) => "release",
        Note::Past(..) => "past",
    };
    to.line(word, |w| {
        w.word(format_args!("@{}", append.base)).word(format_args!("#{}", append.batch));
        match note {
            Note::Outcomes(at, results) => {
                w.word(at.0);
                results.iter().for_each(|(index, outcome)| write_outcome(w, *index, outcome));
            }
            Note::Held(Some(reason)) if !reason.is_empty() => {
                w.word("").escaped(reason.as_bytes());
            }
            Note::Held(_) => {}
            Note::Past(index, state) => {
                let settled = if state.settled { "settled" } else { "open" };
                w.word(index).word(settled).word(state.attempt_count);
                if let Some((at, outcome)) = &state.last {
                    w.word(at.0);
                    write_outcome(w, *index, outcome);
                }
            }
        }
    });
}

/// `0:deferred:remote:4.2.1:mailbox%20busy`
fn write_outcome(w: &mut Words<'_>, index: u32, outcome: &Outcome) {
    let who = if outcome.from_remote { "remote" } else { "local" };
    w.word(format_args!("{index}:{}:{who}:{}:", fate_word(outcome.disposition), outcome.status));
    // What was delivered or failed is told in the log; only what waits has to be explained again.
    let text = if outcome.disposition == Disposition::Deferred { &*outcome.text } else { "" };
    w.escaped(&text.as_bytes()[..text.floor_char_boundary(TEXT_MAX)]);
}

fn fate_word(disposition: Disposition) -> &'static str {
    match disposition {
        Disposition::Delivered => "delivered",
        Disposition::Deferred => "deferred",
        Disposition::Failed => "failed",
    }
}

/// Reads a line, without its checksum, as a note and the append that wrote it.
pub(super) fn read(text: &str) -> Result<(Append, Note), Malformed> {
    let mut words = text.split(' ');
    let mut next = || words.next().ok_or(Malformed("a word is missing"));
    let first = next()?;
    let base = number(next()?.strip_prefix('@').ok_or(Malformed("no base"))?)?;
    let batch = number(next()?.strip_prefix('#').ok_or(Malformed("no batch"))?)?;
    let note = match first {
        "hold" => Note::Held(Some(words.next().map_or(Ok(Box::default()), unescape_text)?)),
        "release" => Note::Held(None),
        "outcome" => {
            let at = UnixMillis(number(next()?)?);
            Note::Outcomes(at, words.map(read_outcome).collect::<Result<_, _>>()?)
        }
        "past" => {
            let index = number(next()?)?;
            let settled = match next()? {
                "settled" => true,
                "open" => false,
                _ => return Err(Malformed("past")),
            };
            let attempt_count = number(next()?)?;
            let last = match (words.next(), words.next()) {
                (Some(at), Some(outcome)) => Some((UnixMillis(number(at)?), read_outcome(outcome)?.1)),
                (None, _) => None,
                (Some(_), None) => return Err(Malformed("past")),
            };
            Note::Past(index, RecipientState { settled, attempt_count, last })
        }
        _ => return Err(Malformed("unknown line")),
    };
    Ok((Append { base, batch }, note))
}

/// Returns true if a later batch has written at the offset where an intent would append. The intent could not be read
/// for a while, and the message went on without the append.
pub(super) fn is_overtaken(file: &[u8], offset: u64, append: &[u8], checksum: LineChecksum) -> bool {
    let written = usize::try_from(offset).ok().and_then(|at| file.get(at..)).unwrap_or_default();
    let first = |bytes| Some(read(line_at(bytes, offset, checksum)?).ok()?.0);
    matches!((first(written), first(append)), (Some(there), Some(own)) if there.batch > own.batch)
}

fn read_outcome(word: &str) -> Result<(u32, Outcome), Malformed> {
    let mut fields = word.splitn(5, ':');
    let mut next = || fields.next().ok_or(Malformed("outcome"));
    let index = number(next()?)?;
    let disposition = match next()? {
        "delivered" => Disposition::Delivered,
        "deferred" => Disposition::Deferred,
        "failed" => Disposition::Failed,
        _ => return Err(Malformed("disposition")),
    };
    let from_remote = match next()? {
        "remote" => true,
        "local" => false,
        _ => return Err(Malformed("outcome")),
    };
    let status = read_status(next()?)?;
    Ok((
        index,
        Outcome { disposition, status, text: unescape_text(next()?)?, from_remote, cause: Cause::Local },
    ))
}

fn read_status(text: &str) -> Result<Enhanced, Malformed> {
    let mut numbers = text.splitn(3, '.');
    let mut next = || numbers.next().ok_or(Malformed("status"));
    let status = Enhanced(number(next()?)?, number(next()?)?, number(next()?)?);
    Ok(status)
}
