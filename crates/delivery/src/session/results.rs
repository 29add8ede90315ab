//! The results of transactions: outcomes of recipients, limits of the server, and what another connection continues.

use super::Session;
use crate::{
    WorkSource,
    active_lease::ActiveLease,
    reply_rules::{final_outcome, is_421_to, is_accepted, is_too_many},
};
use mail::{Disposition, Enhanced, Outcome, ReplyStage, ReplyTo};
use smtp::client::{LostTransaction, Protocol, RecipientResult};

/// What follows from content whose end was sent, and whose reply is missing. In part in Postfix's words.
const MAY_HAVE_TAKEN: &str =
    "message may be sent more than once: the server may have taken it, and it is tried again";

/// The certainty that a reply is about the number of recipients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Certainty {
    /// Its text or enhanced code says so.
    Certain,
    /// It may be about something else, so that fewer recipients may not help.
    Possible,
}

impl<J: WorkSource> Session<'_, J> {
    pub(super) fn on_transaction_ended(&mut self, id: u64, results: Vec<RecipientResult>) {
        let Some(at) = self.active.iter().position(|active| active.transaction_id == id) else { return };
        let mut active = self.active.swap_remove(at);
        let accepted_count = results.iter().filter(|result| is_accepted(result)).count();
        // Every accepted recipient has the same reply.
        let too_many = results.iter().find_map(|result| self.too_many_at_data(result));
        let is_cut = accepted_count > 0 && results.iter().any(|result| is_421_to(result, ReplyStage::Rcpt));
        let is_halved = accepted_count > 1 && too_many.is_some() && !is_cut;
        if !is_halved && self.is_connection_limit(&results) {
            self.is_used_up = true;
            return self.leave_to_next_connection(active, results.into_iter().map(|result| result.index));
        }
        if let Some(certainty) = too_many.filter(|_| is_halved) {
            self.halve(&mut active, accepted_count, certainty);
        }
        // One recipient alone was too many: the number is not the cause, and fewer recipients cannot help.
        let is_pointless = accepted_count == 1 && too_many.is_some() && active.recipients_max.is_some();
        let mut refused_alone = None;
        // "Too many recipients" says nothing about those that were too many.
        let is_split = !active.outcomes.is_empty();
        if is_cut {
            self.cut_at(accepted_count);
        }
        let some_fit = results.iter().any(|result| !is_too_many(result));
        let outcome_count = active.outcomes.len();
        active.outcomes.reserve(results.len());
        for result in results {
            let is_accepted = is_accepted(&result);
            let is_lost = is_cut && is_421_to(&result, ReplyStage::Data);
            if is_lost || (is_halved && is_accepted) || (some_fit && is_too_many(&result)) {
                active.remaining.push(result.index);
                continue;
            }
            match result.outcome.disposition {
                Disposition::Delivered => {
                    if !std::mem::replace(&mut self.has_delivered, true) {
                        self.source.progress().clear();
                    }
                    if let Some(unproven) = self.unproven.take() {
                        unproven.proven();
                    }
                    active.recipients_max.into_iter().for_each(|max| self.limit_recipients(max));
                }
                Disposition::Deferred if is_pointless && is_accepted => {
                    refused_alone = Some(result.outcome.clone());
                }
                Disposition::Deferred | Disposition::Failed => {}
            }
            self.record(&mut active, result.index, final_outcome(result, is_split));
        }
        self.has_outcome |= active.outcomes.len() > outcome_count;
        if let Some(outcome) = refused_alone {
            for index in std::mem::take(&mut active.remaining) {
                self.record(&mut active, index, outcome.clone());
            }
        }
        self.settle(active);
    }

    /// Do these refusals, if there are any, only say that the connection has lasted long enough or carried
    /// enough (RFC 5321 §3.8)? They do if each is 421, or 451 to MAIL that is not about the sender's address.
    /// On a connection that was of no use yet they are about the host or the message.
    fn is_connection_limit(&self, results: &[RecipientResult]) -> bool {
        let is_said = |result: &RecipientResult| match result.outcome.reply() {
            Some(ReplyTo { code: 421, stage, .. }) => stage != ReplyStage::Content,
            Some(ReplyTo { code: 451, stage: ReplyStage::Mail, .. }) => {
                self.has_delivered && result.outcome.status.1 != 1
            }
            _ => false,
        };
        self.was_of_use() && results.iter().all(is_said)
    }

    /// The server has answered for some transaction.
    pub(super) fn was_of_use(&self) -> bool {
        self.has_finished_some || self.has_delivered || self.has_split
    }

    /// Does this reply to DATA, or to the end of the content, say that the transaction has too many recipients?
    /// A server whose reply refuses the content has taken the content for no recipient, and the content can be
    /// sent again. LMTP servers answer for each recipient by itself behind the content.
    ///
    /// Any code with the enhanced code X.5.3 says so. 452 without an enhanced code may say so as well (RFC 5321
    /// §4.5.3.1.10), or that storage is short (§4.2.2). Fewer recipients are tried then, too: otherwise every
    /// attempt would repeat the transaction that is too large until the message expires. A server without storage
    /// sees the message `log2` of the number of recipients more often, because it refuses one recipient alone
    /// as well. 552 and 554 without an enhanced code are about the message.
    fn too_many_at_data(&self, result: &RecipientResult) -> Option<Certainty> {
        let ReplyTo { stage, code, enhanced } =
            result.outcome.reply().filter(|_| result.outcome.disposition != Disposition::Delivered)?;
        match stage {
            ReplyStage::Connect | ReplyStage::Mail | ReplyStage::Rcpt => return None,
            ReplyStage::Content if self.connection.protocol() == Protocol::Lmtp => return None,
            ReplyStage::Data | ReplyStage::Content => {}
        }
        match enhanced {
            Some(Enhanced(_, 5, 3)) => Some(Certainty::Certain),
            None | Some(Enhanced(_, 0, 0)) if code == 452 => Some(Certainty::Possible),
            _ => None,
        }
    }

    /// The next transactions of a lease have at most half of this number of recipients. Transactions of other leases
    /// have so, too, if the server has said that the number is the cause; otherwise once a smaller transaction was
    /// accepted.
    fn halve(&mut self, active: &mut ActiveLease, accepted_count: usize, certainty: Certainty) {
        let max = accepted_count / 2;
        self.has_split = true;
        active.recipients_max = Some(max);
        if certainty == Certainty::Certain {
            self.limit_recipients(max);
        }
    }

    fn limit_recipients(&mut self, max: usize) {
        self.recipients_max = Some(self.recipients_max.map_or(max, |before| before.min(max)));
    }

    /// The server took so many recipients of a transaction, and closed.
    fn cut_at(&mut self, accepted_count: usize) {
        self.is_used_up = true;
        self.limit_recipients(accepted_count);
    }

    /// Leaves recipients to another connection: at the queue's order, if the lease is still whole.
    fn leave_to_next_connection(
        &mut self,
        mut active: ActiveLease,
        recipients: impl IntoIterator<Item = u32>,
    ) {
        if active.is_whole() {
            self.source.return_lease(active.lease);
        } else {
            active.remaining.extend(recipients);
            self.to_resume.push(active);
        }
    }

    /// Each lease of the connection gets an outcome, or another connection.
    pub(super) fn fail_in_flight(&mut self, why: &Outcome, is_closed: bool) {
        for lost in self.connection.lost() {
            let Some(at) = self.active.iter().position(|active| active.transaction_id == lost.id) else {
                continue;
            };
            let active = self.active.swap_remove(at);
            self.end_lost(active, lost, why, is_closed);
        }
        if self.is_used_up || (is_closed && self.can_continue()) {
            return;
        }
        for mut active in std::mem::take(&mut self.to_resume) {
            for index in std::mem::take(&mut active.remaining) {
                self.record(&mut active, index, why.clone());
            }
            self.settle(active);
        }
    }

    /// Would another connection get further than this one, with the leases that this one leaves unfinished?
    fn can_continue(&self) -> bool {
        self.has_delivered || self.has_split
    }

    fn end_lost(&mut self, mut active: ActiveLease, lost: LostTransaction, why: &Outcome, is_closed: bool) {
        let LostTransaction {
            content_sent,
            is_end_sent,
            refused,
            open,
            accepted_count,
            lacks_rcpt_reply,
            lacks_data_reply,
            ..
        } = lost;
        // A server may close in reply to DATA because the transaction has too many recipients. A close behind one
        // recipient has another cause.
        let is_closed_at_data = is_closed && lacks_data_reply && accepted_count > 1;
        // A kept connection that had ended without our knowing says nothing about the message.
        let is_movable = active.is_whole() || (is_closed && self.can_continue());
        if !content_sent && self.is_connection_limit(&refused) && is_movable {
            let recipients = open.into_iter().chain(refused.into_iter().map(|result| result.index));
            if is_closed_at_data {
                // Another cause is as likely on a used connection. The next connection begins with this lease and
                // shows the cause. In the queue the lease could wait behind others each time.
                self.is_used_up = true;
                active.remaining.extend(recipients);
                return self.to_resume.push(active);
            }
            return self.leave_to_next_connection(active, recipients);
        }
        let is_refused = refused.iter().any(|result| is_421_to(result, ReplyStage::Rcpt));
        let is_cut = is_closed && !content_sent && accepted_count > 0 && (lacks_rcpt_reply || is_refused);
        let is_halved = is_closed_at_data && !is_cut;
        for result in refused {
            if (is_cut && is_421_to(&result, ReplyStage::Rcpt)) || (is_halved && is_too_many(&result)) {
                active.remaining.push(result.index);
            } else {
                self.record(&mut active, result.index, final_outcome(result, true));
            }
        }
        if is_cut {
            self.cut_at(accepted_count);
            active.remaining.extend(open);
            self.to_resume.push(active);
        } else if is_halved {
            self.is_used_up = true;
            self.halve(&mut active, accepted_count, Certainty::Possible);
            active.remaining.extend(open);
            self.to_resume.push(active);
        } else if self.is_out_of_step && !content_sent {
            self.is_used_up = true;
            active.remaining.extend(open);
            self.to_resume.push(active);
        } else {
            if is_end_sent {
                // The server may have the message: another server would deliver it twice (RFC 1047).
                self.has_lost_content = true;
                self.has_deferred = true;
                let text = format!("{}; {MAY_HAVE_TAKEN}", why.text).into();
                let why = Outcome { text, ..why.clone() };
                active.outcomes.extend(open.into_iter().map(|index| (index, why.clone())));
            } else {
                open.into_iter().for_each(|index| self.record(&mut active, index, why.clone()));
            }
            for index in std::mem::take(&mut active.remaining) {
                self.record(&mut active, index, why.clone());
            }
            self.settle(active);
        }
    }
}
