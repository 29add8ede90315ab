//! The meaning of a reply for a recipient: accepted, refused, or one recipient too many.

use mail::{Disposition, Enhanced, Outcome, ReplyStage, ReplyTo};
use smtp::client::RecipientResult;

pub(crate) fn is_421_to(result: &RecipientResult, stage: ReplyStage) -> bool {
    result.outcome.reply().is_some_and(|reply| reply.code == 421 && reply.stage == stage)
}

/// Did the server accept its RCPT?
pub(crate) fn is_accepted(result: &RecipientResult) -> bool {
    result.outcome.reply().is_some_and(|reply| matches!(reply.stage, ReplyStage::Data | ReplyStage::Content))
}

/// Was it refused because the transaction had enough recipients? The code is 452, 552 in older servers (RFC
/// 5321 §4.5.3.1.10), 421 in those that close, or any other with the enhanced code of this meaning.
pub(crate) fn is_too_many(result: &RecipientResult) -> bool {
    let Some(ReplyTo { stage: ReplyStage::Rcpt, code, enhanced }) = result.outcome.reply() else {
        return false;
    };
    match enhanced {
        Some(Enhanced(_, 5, 3)) => true,
        None | Some(Enhanced(_, 0, 0)) => matches!(code, 421 | 452 | 552),
        Some(_) => code == 421,
    }
}

/// Does the server want a login, or TLS, before it takes mail (RFC 4954 §6, RFC 3207 §4)?
pub(crate) fn wants_login(outcome: &Outcome) -> bool {
    outcome.reply().is_some_and(|reply| reply.code == 530)
}

/// What a refusal says that a server gives in clear text, because TLS broke before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClearTextRefusal {
    /// It may be the wish for encryption, and no verdict.
    Wish,
    /// It gives no reason, or blames the protocol: a verdict only if TLS cannot be tried once more.
    Vague,
    /// It is about the mail or the mailbox.
    Verdict,
}

impl ClearTextRefusal {
    /// A wish is a reply about policy (RFC 3463 §3.8), or 530 and its kin (RFC 3207 §4), or a refusal of the sender that gives no
    /// reason.
    pub(crate) fn of(stage: ReplyStage, code: u16, enhanced: Option<Enhanced>) -> Self {
        let subject = enhanced.map_or(0, |Enhanced(_, subject, _)| subject);
        match subject {
            7 => Self::Wish,
            0 if matches!(code, 523 | 530 | 538) || stage == ReplyStage::Mail => Self::Wish,
            0 | 5 if code >= 500 => Self::Vague,
            _ => Self::Verdict,
        }
    }
}

/// The outcome of a recipient that is not tried again at once. "Too many recipients" is temporary, even if
/// there was one only; 552 without an enhanced code may mean a full mailbox, unless others came before it.
pub(crate) fn final_outcome(result: RecipientResult, is_split: bool) -> Outcome {
    let is_about_number =
        result.outcome.reply().is_some_and(|r| matches!(r.enhanced, Some(Enhanced(_, 5, 3))));
    if result.outcome.disposition == Disposition::Failed
        && is_too_many(&result)
        && (is_split || is_about_number)
    {
        return Outcome { disposition: Disposition::Deferred, status: Enhanced(4, 5, 3), ..result.outcome };
    }
    result.outcome
}
