//! The transactions of a connection, from their first command to the last reply.

use super::{Connection, Event, Protocol, expected_reply::Expected};
use crate::client::{
    ProtocolViolation, RecipientResult, Transaction,
    replies::to_reply,
    transaction::{ContentCommand, TransactionState, answer_to, write_mail, write_rcpt},
};
use mail::{Enhanced, Outcome, ReplyStage};

/// A transaction on a connection that broke.
#[derive(Debug, PartialEq, Eq)]
pub struct LostTransaction {
    /// The id of the transaction.
    pub id: u64,
    /// The content was sent, whole or nearly: the server may have taken it (RFC 1047).
    pub content_sent: bool,
    /// The end of the content was sent, or may have been. Otherwise the server cannot have taken the message, and
    /// another server may be given it without delivering it twice.
    pub is_end_sent: bool,
    /// Outcomes of recipients that were refused before.
    pub refused: Vec<RecipientResult>,
    /// Recipients without an outcome.
    pub open: Vec<u32>,
    /// RCPT commands that the server accepted.
    pub accepted_count: usize,
    /// An RCPT was sent, or was to be sent, and not answered.
    pub lacks_rcpt_reply: bool,
    /// DATA was sent, or was to be sent, and not answered; each command before it was answered.
    pub lacks_data_reply: bool,
}

/// Returns the outcome that a refusal means. A 2yz where it does not fit is a fault of the server, and temporary.
fn refusal(code: u16, raw: &[u8], stage: ReplyStage) -> Outcome {
    let reply = to_reply(code, raw);
    let outcome = answer_to(&reply, stage);
    if code < 400 {
        let text = format!("unexpected reply to {}: {}", stage.as_str(), reply.excerpt());
        return Outcome::deferred(Enhanced(4, 5, 0), text).because(outcome.cause);
    }
    outcome
}

impl Connection {
    pub(super) fn open(&mut self, state: TransactionState) {
        let resets = std::mem::take(&mut self.needs_reset);
        if resets {
            self.command("RSET", Expected::Rset);
        }
        // Without PIPELINING the reply to RSET comes first.
        if !resets || self.capabilities.pipelining {
            self.send_commands(&state);
        }
        self.transactions.push_back(state);
        self.opening = true;
    }

    fn send_commands(&mut self, state: &TransactionState) {
        let content_command = self.content_command;
        write_mail(self.output.text(), state, &self.capabilities, content_command);
        self.mail_count += 1;
        self.expected.push_back(Expected::Mail);
        if self.capabilities.pipelining {
            let mut from = 0;
            while let Some(i) = state.next_open(from) {
                from = i + 1;
                let Transaction { message, recipients, .. } = &state.transaction;
                let recipient = &message.envelope.recipients[recipients[i] as usize];
                write_rcpt(self.output.text(), recipient, &self.capabilities);
                self.expected.push_back(Expected::Rcpt(i));
            }
            if content_command == ContentCommand::Data {
                self.command("DATA", Expected::Data);
            }
        }
    }

    pub(super) fn opening(&mut self) -> &mut TransactionState {
        debug_assert!(self.opening, "a transaction is opening");
        self.transactions.back_mut().expect("the opening transaction is the last")
    }

    pub(super) fn reset_reply(&mut self) {
        if self.capabilities.pipelining {
            return;
        }
        if let Some(state) = self.transactions.pop_back() {
            self.send_commands(&state);
            self.transactions.push_back(state);
        }
    }

    pub(super) fn mail_reply(&mut self, is_ok: bool, code: u16, raw: &[u8]) {
        if is_ok {
            self.opening().is_open = true;
        } else {
            let outcome = refusal(code, raw, ReplyStage::Mail);
            self.opening().answer_rest(&outcome);
        }
        self.next_in_lock_step(0);
    }

    pub(super) fn rcpt_reply(&mut self, i: usize, is_ok: bool, code: u16, raw: &[u8]) {
        let state = self.opening();
        if is_ok {
            state.accepted_count += 1;
        } else if state.answers[i].is_none() {
            state.answers[i] = Some(refusal(code, raw, ReplyStage::Rcpt));
        }
        self.next_in_lock_step(i + 1);
    }

    /// Sends the next command when the reply to the last one has come: without PIPELINING, and for BDAT.
    fn next_in_lock_step(&mut self, rcpt: usize) {
        let content_command = self.content_command;
        let is_pipelined = self.capabilities.pipelining;
        let state = self.opening();
        let next = state.next_open(rcpt);
        if is_pipelined {
            let are_answered = !matches!(self.expected.front(), Some(Expected::Rcpt(_)));
            if content_command == ContentCommand::Bdat && are_answered {
                self.after_recipients();
            }
            return;
        }
        if let Some(i) = next {
            let (message, index) = (state.transaction.message.clone(), state.transaction.recipients[i]);
            let recipient = &message.envelope.recipients[index as usize];
            write_rcpt(self.output.text(), recipient, &self.capabilities);
            self.expected.push_back(Expected::Rcpt(i));
        } else {
            self.after_recipients();
        }
    }

    /// Continues when every RCPT was answered, and nothing else is on the wire.
    fn after_recipients(&mut self) {
        if self.opening().open_count() == 0 {
            self.fail_opening();
        } else if self.content_command == ContentCommand::Bdat {
            let size = self.opening().transaction.message.content.size_bytes();
            let line = format!("BDAT {size} LAST\r\n");
            self.output.text().extend_from_slice(line.as_bytes());
            self.send_content();
        } else {
            self.command("DATA", Expected::Data);
        }
    }

    pub(super) fn data_reply(&mut self, code: u16, raw: &[u8]) -> Result<(), ProtocolViolation> {
        match code {
            354 if self.opening().open_count() > 0 => self.send_content(),
            354 => {
                // All recipients were refused, and the server wants content: send none (RFC 2920 §3.1).
                self.output.text().extend_from_slice(b".\r\n");
                if self.settings.protocol == Protocol::Lmtp {
                    // No recipient, no reply (RFC 2033 §4.2).
                    self.fail_opening();
                } else {
                    self.expected.push_back(Expected::Final);
                    self.opening().content_sent = true;
                    self.opening = false;
                }
            }
            200..=399 => return Err(ProtocolViolation::WrongReply),
            _ => {
                let outcome = refusal(code, raw, ReplyStage::Data);
                self.opening().answer_rest(&outcome);
                self.fail_opening();
            }
        }
        Ok(())
    }

    /// Ends the opening transaction without content.
    fn fail_opening(&mut self) {
        let state = self.transactions.pop_back().expect("a transaction is opening");
        self.opening = false;
        // MAIL was accepted, so the server still has the transaction open.
        self.needs_reset = state.is_open;
        self.events.push_back(Event::TransactionEnded(state.transaction.id, state.results()));
    }

    fn send_content(&mut self) {
        let content_command = self.content_command;
        let state = self.opening();
        state.content_sent = true;
        let content = state.transaction.message.content.clone();
        let conversion = state.conversion.take();
        let mut open = Vec::new();
        let mut from = 0;
        while let Some(i) = state.next_open(from) {
            open.push(i);
            from = i + 1;
        }
        self.opening = false;
        self.output.push_content(&content, content_command, conversion);
        match self.settings.protocol {
            Protocol::Smtp => self.expected.push_back(Expected::Final),
            Protocol::Lmtp => self.expected.extend(open.into_iter().map(Expected::FinalFor)),
        }
    }

    /// Returns whether content of the oldest transaction is still to be written. The next content begins when the
    /// oldest transaction is answered.
    pub(super) fn has_unsent_content(&self) -> bool {
        self.output.has_content()
    }

    pub(super) fn final_reply(&mut self, recipient: Option<usize>, code: u16, raw: &[u8]) {
        let Some(state) = self.transactions.front_mut() else { return };
        let answer = answer_to(&to_reply(code, raw), ReplyStage::Content);
        match recipient {
            None => state.answer_rest(&answer),
            Some(i) => state.answers[i] = Some(answer),
        }
        if state.open_count() == 0 {
            let state = self.transactions.pop_front().expect("it was there");
            self.events.push_back(Event::TransactionEnded(state.transaction.id, state.results()));
        }
    }

    pub(super) fn end_unsent(&mut self, mut state: TransactionState, outcome: &Outcome) {
        state.answer_rest(outcome);
        self.events.push_back(Event::TransactionEnded(state.transaction.id, state.results()));
    }

    /// Ends all transactions of a broken connection.
    pub fn lost(&mut self) -> Vec<LostTransaction> {
        let mut left = Vec::new();
        let lacks_rcpt_reply = self.expected.iter().any(|expect| matches!(expect, Expected::Rcpt(_)));
        let lacks_data_reply = matches!(self.expected.front(), Some(Expected::Data));
        let has_unsent_content = self.has_unsent_content();
        // Content leaves in order, so only the last transaction with content can be incomplete.
        let last_sent = self.transactions.iter().rposition(|state| state.content_sent);
        for (at, state) in std::mem::take(&mut self.transactions).into_iter().enumerate() {
            let (mut refused, mut open) = (Vec::new(), Vec::new());
            for (index, answer) in state.transaction.recipients.iter().zip(state.answers) {
                match answer {
                    Some(outcome) => refused.push(RecipientResult { index: *index, outcome }),
                    None => open.push(*index),
                }
            }
            left.push(LostTransaction {
                id: state.transaction.id,
                content_sent: state.content_sent,
                is_end_sent: state.content_sent && !(has_unsent_content && last_sent == Some(at)),
                refused,
                open,
                accepted_count: state.accepted_count,
                lacks_rcpt_reply: lacks_rcpt_reply && !state.content_sent,
                lacks_data_reply: lacks_data_reply && !state.content_sent,
            });
        }
        left
    }
}
