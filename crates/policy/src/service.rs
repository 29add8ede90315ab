//! The protocol of Postfix's policy servers (SMTPD_POLICY_README): attributes as lines, and an action.

use crate::{ReplyClass, ReplyText, reply_text::ascii};
use mail::{Enhanced, Field, Mailbox, Reply};
use std::fmt;

/// What a policy server answers, as access(5) of Postfix describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceAction {
    /// `DUNNO`, and what has no meaning here: the rules below run.
    Pass,
    /// `OK`: the rules below are not asked.
    Accept,
    /// `REJECT`, or a 5yz.
    Reject(Reply),
    /// `DEFER`, `DEFER_IF_PERMIT`, or a 4yz.
    Defer(Reply),
    /// `DISCARD`, with the text behind it.
    Discard(Box<str>),
    /// `HOLD`, with the text behind it.
    Hold(Box<str>),
    /// `PREPEND`: this field is added.
    Prepend(Field),
    /// `REDIRECT`: the message goes to this mailbox.
    Redirect(Mailbox),
    /// `BCC`: a copy to this mailbox.
    Bcc(Mailbox),
}

impl fmt::Display for ServiceAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("no verdict"),
            Self::Accept => f.write_str("accept"),
            Self::Reject(reply) => write!(f, "reject: {reply}"),
            Self::Defer(reply) => write!(f, "defer: {reply}"),
            Self::Discard(text) => write!(f, "discard: {text}"),
            Self::Hold(text) => write!(f, "hold: {text}"),
            Self::Prepend(_) => f.write_str("a header field is added"),
            Self::Redirect(mailbox) => write!(f, "redirect to {mailbox}"),
            Self::Bcc(mailbox) => write!(f, "a copy to {mailbox}"),
        }
    }
}

/// Reads the value of the attribute `action`, in the format of access(5).
///
/// # Errors
/// The action is not known, or its argument is wrong, in words.
pub fn parse_action(text: &str) -> Result<ServiceAction, String> {
    let text = text.trim();
    let (verb, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
    let (upper, rest) = (verb.to_ascii_uppercase(), rest.trim());
    let mailbox = || Mailbox::parse(rest, true).map_err(|_| format!("{upper} without an address"));
    Ok(match &*upper {
        "DUNNO" | "WARN" | "INFO" => ServiceAction::Pass,
        "OK" | "PERMIT" => ServiceAction::Accept,
        "REJECT" => ServiceAction::Reject(reply(554, Enhanced(5, 7, 1), rest, "Access denied")),
        "DEFER" | "DEFER_IF_PERMIT" | "DEFER_IF_REJECT" => {
            ServiceAction::Defer(reply(450, Enhanced(4, 7, 1), rest, "Service unavailable"))
        }
        "DISCARD" => ServiceAction::Discard(rest.into()),
        "HOLD" => ServiceAction::Hold(rest.into()),
        "REDIRECT" => ServiceAction::Redirect(mailbox()?),
        "BCC" => ServiceAction::Bcc(mailbox()?),
        "PREPEND" => {
            let (name, value) = rest.split_once(':').ok_or("PREPEND without a header field")?;
            ServiceAction::Prepend(
                Field::new(name.trim(), value.trim()).map_err(|e| format!("PREPEND: {e}"))?,
            )
        }
        code if code.len() == 3 && code.bytes().all(|b| b.is_ascii_digit()) => coded(text)?,
        _ => return Err(format!("the action {verb} is not known")),
    })
}

fn reply(code: u16, usual: Enhanced, text: &str, default: &str) -> Reply {
    let text = &*ascii(text);
    match Enhanced::parse_prefix(text).filter(|(enhanced, _)| enhanced.0 == usual.0) {
        Some((enhanced, text)) => Reply::new(code, enhanced, if text.is_empty() { default } else { text }),
        None => Reply::new(code, usual, if text.is_empty() { default } else { text }),
    }
}

/// Reads `450 4.7.1 text`. Braces have no meaning here.
fn coded(text: &str) -> Result<ServiceAction, String> {
    let code: u16 = text[..3].parse().map_err(|_| "not a code".to_owned())?;
    let (class, usual) = match code / 100 {
        4 => (ReplyClass::Transient, Enhanced(4, 7, 1)),
        5 => (ReplyClass::Permanent, Enhanced(5, 7, 1)),
        _ => return Err(format!("the code {code} is neither 4yz nor 5yz")),
    };
    // A code that a reply of ours may not have is refused in the same words as in a rule.
    ReplyText::parse(&format!("{code} x"), class)?;
    let reply = reply(code, usual, text[3..].trim(), "Access denied");
    Ok(if code < 500 { ServiceAction::Defer(reply) } else { ServiceAction::Reject(reply) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_of_access_tables_are_read() {
        let text = |action: &str| match parse_action(action) {
            Ok(ServiceAction::Reject(reply) | ServiceAction::Defer(reply)) => reply.to_string(),
            Ok(action) => format!("{action:?}"),
            Err(error) => format!("error: {error}"),
        };
        for (action, expected) in [
            ("DUNNO", "Pass"),
            ("dunno", "Pass"),
            ("OK", "Accept"),
            ("REJECT", "554 5.7.1 Access denied"),
            ("reject go away", "554 5.7.1 go away"),
            ("REJECT täxt", "554 5.7.1 t?xt"),
            ("REJECT 5.7.0 {no}", "554 5.7.0 {no}"),
            ("DEFER_IF_PERMIT Greylisted, see you", "450 4.7.1 Greylisted, see you"),
            ("450 4.2.0 later", "450 4.2.0 later"),
            ("550 no", "550 5.7.1 no"),
            ("521 5.7.0 no", "521 5.7.0 no"),
            ("HOLD spam?", "Hold(\"spam?\")"),
            ("BCC nobody", "error: BCC without an address"),
            ("FILTER smtp:x", "error: the action FILTER is not known"),
            ("250 ok", "error: the code 250 is neither 4yz nor 5yz"),
            ("", "error: the action  is not known"),
        ] {
            assert_eq!(text(action), expected, "{action}");
        }
        assert!(matches!(parse_action("PREPEND X-A: b"), Ok(ServiceAction::Prepend(_))));
        assert_eq!(parse_action("DEFER greylisted").unwrap().to_string(), "defer: 450 4.7.1 greylisted");
        assert!(parse_action("PREPEND X-A b").is_err() && parse_action("PREPEND a b: c").is_err());
    }
}
