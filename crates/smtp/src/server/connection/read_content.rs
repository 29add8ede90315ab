//! The content of a message, by DATA or in chunks.

use super::{Connection, Mode, Step};
use crate::server::{
    content::{BareLf, ChunkCheck, ChunkNormalizer, Piece},
    replies,
    session::{Input, Refused},
};
use mail::{BodyType, Reply};

/// The way in which the octets of chunks become content.
#[derive(Debug, Default)]
pub(super) enum ChunkText {
    /// As they are: BODY=BINARYMIME.
    #[default]
    Binary,
    /// As they are, where no CR or LF is bare.
    Checked(ChunkCheck),
    /// With bare CR and LF replaced.
    Normalized(ChunkNormalizer),
}

impl Connection {
    pub(super) fn start_content<'a>(&mut self, by_chunks: bool) -> Option<Step<'a>> {
        self.content_bytes = 0;
        self.refusal = None;
        self.chunks_begun = by_chunks;
        let is_text = self.session.envelope().is_some_and(|e| e.body != BodyType::Binary);
        self.chunk_text = match self.bare_lf {
            _ if !by_chunks || !is_text => ChunkText::Binary,
            BareLf::Reject => ChunkText::Checked(ChunkCheck::default()),
            BareLf::Normalize => ChunkText::Normalized(ChunkNormalizer::default()),
        };
        Some(Step::StartContent)
    }

    pub(super) fn data<'a>(&mut self, input: &mut &'a [u8]) -> Option<Step<'a>> {
        let Mode::Data(decoder) = &mut self.mode else { unreachable!() };
        match decoder.next(input) {
            Piece::More => Some(Step::NeedInput),
            Piece::Content { skip, length } => {
                let (piece, rest) = input[skip..].split_at(length);
                *input = rest;
                let bad = decoder.fault().is_some();
                self.content(piece, bad)
            }
            Piece::Instead(replacement) => {
                *input = &input[1..];
                let bad = decoder.fault().is_some();
                self.content(replacement, bad)
            }
            Piece::End(length) => {
                let fault = decoder.fault().cloned();
                *input = &input[length..];
                self.mode = Mode::Commands;
                let bad = fault.or_else(|| self.content_refusal());
                self.end(Input::ContentEnd(bad))
            }
        }
    }

    /// Passes content on, as long as it may still be accepted.
    pub(super) fn content<'a>(&mut self, piece: &'a [u8], bad: bool) -> Option<Step<'a>> {
        self.content_bytes += piece.len() as u64;
        if bad || self.refusal.is_some() || self.content_bytes > self.limits.message_bytes {
            return None;
        }
        Some(Step::Content(piece))
    }

    /// Returns the refusal of content that has no fault of form, if there is one: the driver's, or 552 for the size.
    fn content_refusal(&mut self) -> Option<Reply> {
        let too_large = self.content_bytes > self.limits.message_bytes;
        self.refusal.take().or(too_large.then_some(replies::TOO_LARGE))
    }

    pub(super) fn chunk<'a>(&mut self, input: &mut &'a [u8]) -> Option<Step<'a>> {
        let Mode::Chunk { left, last } = &mut self.mode else { unreachable!() };
        if *left > 0 {
            if input.is_empty() {
                return Some(Step::NeedInput);
            }
            let take = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
            let (piece, used, bad) = match &mut self.chunk_text {
                ChunkText::Binary => (&input[..take], take, false),
                ChunkText::Checked(check) => (&input[..take], take, check.check(&input[..take])),
                ChunkText::Normalized(normalizer) => {
                    let (piece, used) = normalizer.next(&input[..take]);
                    (piece, used, normalizer.fault().is_some())
                }
            };
            *left -= used as u64;
            *input = &input[used..];
            return self.content(piece, bad);
        }
        let last = *last;
        if last
            && let ChunkText::Normalized(normalizer) = &mut self.chunk_text
            && let Some(piece) = normalizer.finish()
        {
            return self.content(piece, false);
        }
        self.mode = Mode::Commands;
        let fault = match &mut self.chunk_text {
            ChunkText::Binary => None,
            ChunkText::Checked(check) if last => check.finish(),
            ChunkText::Checked(check) => check.fault.take(),
            ChunkText::Normalized(normalizer) => normalizer.fault(),
        };
        let bad = fault.or_else(|| self.content_refusal());
        if last {
            self.chunk_text = ChunkText::Binary;
            return self.end(Input::ContentEnd(bad));
        }
        self.end(Input::ChunkEnd(bad))
    }

    /// Passes the end of content to the session. Returns [`Step::DiscardContent`] if the content has a fault.
    pub(super) fn end<'a>(&mut self, input: Input) -> Option<Step<'a>> {
        let bad = match &input {
            Input::ContentEnd(bad) | Input::ChunkEnd(bad) => bad.clone(),
            _ => None,
        };
        let refused = bad.map(|reply| {
            let envelope = self.session.envelope().cloned();
            Box::new(Refused { stage: "DATA", reply, envelope })
        });
        let action = self.session.step(input, &self.limits, &self.profile);
        let step = self.act(action);
        refused.map_or(step, |refused| Some(Step::DiscardContent(refused)))
    }

    pub(super) fn skip_chunk<'a>(&mut self, input: &mut &'a [u8]) -> Option<Step<'a>> {
        let Mode::SkipChunk { left, reply } = &mut self.mode else { unreachable!() };
        let take = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
        *input = &input[take..];
        *left -= take as u64;
        if *left > 0 {
            return Some(Step::NeedInput);
        }
        reply.write_to(&mut self.output);
        self.mode = Mode::Commands;
        None
    }
}
