//! The output of a client connection: commands and content, in order.

use super::transaction::ContentCommand;
use bytes::Bytes;
use mail::{
    ChunkId, Content, Part,
    seven_bit::{Converter, Plan},
};
use memchr::memchr;
use std::{collections::VecDeque, sync::Arc};

/// One thing to write, in the order in which the server has to get it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputPiece {
    /// Commands, or content that was changed.
    Text(Vec<u8>),
    /// Unchanged content from memory.
    Content(Bytes),
    /// A chunk of content in the spool: load it, pass it to [`super::Connection::loaded`], and ask again.
    Load(ChunkId),
}

/// Output that waits to be written.
#[derive(Debug)]
enum QueuedOutput {
    Text(Vec<u8>),
    /// The beginning of content: whether its dots are stuffed, and its conversion.
    Begin(bool, Option<Arc<Plan>>),
    /// Converted content is over: what the converter still holds is written.
    End,
    Content(Bytes),
    Load(ChunkId),
}

/// Commands and content that wait to be written.
#[derive(Debug, Default)]
pub(super) struct Output {
    queue: VecDeque<QueuedOutput>,
    dot_stuffer: DotStuffer,
    /// None while content is written unchanged.
    converter: Option<Box<Converter>>,
}

impl Output {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns whether content is still to be written.
    pub(super) fn has_content(&self) -> bool {
        self.queue.iter().any(|queued| !matches!(queued, QueuedOutput::Text(_)))
    }

    /// Returns the text at the end of the output, for commands.
    pub(super) fn text(&mut self) -> &mut Vec<u8> {
        if !matches!(self.queue.back(), Some(QueuedOutput::Text(_))) {
            self.queue.push_back(QueuedOutput::Text(Vec::with_capacity(128)));
        }
        match self.queue.back_mut() {
            Some(QueuedOutput::Text(text)) => text,
            _ => unreachable!("it was just pushed"),
        }
    }

    /// Appends content, converted to 7 bits if there is a plan, and the end that DATA needs.
    pub(super) fn push_content(
        &mut self,
        content: &Content,
        content_command: ContentCommand,
        conversion: Option<Arc<Plan>>,
    ) {
        let is_converted = conversion.is_some();
        let stuffs = content_command == ContentCommand::Data && (content.traits.has_dot_line || is_converted);
        self.queue.push_back(QueuedOutput::Begin(stuffs, conversion));
        self.queue.extend(content.parts().iter().map(|part| match part {
            Part::Memory(bytes) => QueuedOutput::Content(bytes.clone()),
            Part::Stored { chunk_id, .. } => QueuedOutput::Load(*chunk_id),
        }));
        if is_converted {
            self.queue.push_back(QueuedOutput::End);
        }
        if content_command == ContentCommand::Data {
            let end: &[u8] =
                if content.traits.lacks_final_crlf && !is_converted { b"\r\n.\r\n" } else { b".\r\n" };
            self.queue.push_back(QueuedOutput::Text(end.to_vec()));
        }
    }

    /// Returns the next piece to write; none when everything is written.
    pub(super) fn next_piece(&mut self) -> Option<OutputPiece> {
        loop {
            return match self.queue.pop_front()? {
                QueuedOutput::Text(text) => Some(OutputPiece::Text(text)),
                QueuedOutput::Content(bytes) => match &mut self.converter {
                    None => Some(self.dot_stuffer.pass(bytes)),
                    Some(converter) => match converter.push(&bytes) {
                        // A header or a line is not complete yet.
                        none if none.is_empty() => continue,
                        converted => Some(self.dot_stuffer.pass(converted.into())),
                    },
                },
                QueuedOutput::Begin(active, conversion) => {
                    self.dot_stuffer = DotStuffer { active, in_line: false };
                    self.converter = conversion.map(|plan| Box::new(Converter::new(plan)));
                    continue;
                }
                QueuedOutput::End => match self.converter.take().map(|converter| converter.finish()) {
                    Some(rest) if !rest.is_empty() => Some(self.dot_stuffer.pass(rest.into())),
                    _ => continue,
                },
                QueuedOutput::Load(chunk_id) => {
                    self.queue.push_front(QueuedOutput::Load(chunk_id));
                    Some(OutputPiece::Load(chunk_id))
                }
            };
        }
    }

    /// Passes the chunk that [`OutputPiece::Load`] asked for.
    pub(super) fn loaded(&mut self, bytes: Bytes) {
        let front = self.queue.front_mut();
        debug_assert!(matches!(front, Some(QueuedOutput::Load(_))), "nothing is to be loaded");
        if let Some(front) = front {
            *front = QueuedOutput::Content(bytes);
        }
    }
}

/// Puts a second dot before each line that begins with a dot (RFC 5321 §4.5.2), across pieces.
#[derive(Debug, Default)]
struct DotStuffer {
    active: bool,
    in_line: bool,
}

impl DotStuffer {
    fn pass(&mut self, bytes: Bytes) -> OutputPiece {
        if !self.active {
            return OutputPiece::Content(bytes);
        }
        let mut out = Vec::with_capacity(bytes.len() + 16);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            if !self.in_line && rest[0] == b'.' {
                out.push(b'.');
            }
            let end = memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
            out.extend_from_slice(&rest[..end]);
            self.in_line = rest[end - 1] != b'\n';
            rest = &rest[end..];
        }
        OutputPiece::Text(out)
    }
}
