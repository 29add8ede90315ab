//! The parameters of MAIL and RCPT (RFC 5321 §4.1.2).

use super::{
    Declared,
    schedule::{parse_by, parse_hold_for, parse_hold_until, parse_priority},
};
use crate::{server::replies, xtext};
use mail::{BodyType, Enhanced, Envelope, Mailbox, Notify, Recipient, Reply, Ret, ReversePath};

/// Longest keyword of a parameter.
const KEYWORD_MAX_BYTES: usize = 12;

/// Keywords of parameters. The number of each is its bit among those that were given.
const KEYWORDS: [&[u8]; 13] = [
    b"SIZE",
    b"BODY",
    b"SMTPUTF8",
    b"RET",
    b"ENVID",
    b"AUTH",
    b"REQUIRETLS",
    b"HOLDFOR",
    b"HOLDUNTIL",
    b"BY",
    b"MT-PRIORITY",
    b"NOTIFY",
    b"ORCPT",
];

/// A parameter: its keyword in capitals, and its value.
type Parameter<'a> = (&'static [u8], Option<&'a str>);

/// `KEY=value` or `KEY`. Refused if the keyword was there before, is not known, or has an empty value.
fn parameter<'a>(text: &'a str, seen: &mut u16) -> Result<Parameter<'a>, Reply> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (text, None),
    };
    let mut upper = [0; KEYWORD_MAX_BYTES];
    let number = upper.get_mut(..key.len()).and_then(|upper| {
        upper.copy_from_slice(key.as_bytes());
        upper.make_ascii_uppercase();
        KEYWORDS.iter().position(|keyword| *keyword == &*upper)
    });
    let Some(number) = number else {
        return Err(if value == Some("") { replies::BAD_PARAMETER } else { replies::UNKNOWN_PARAMETER });
    };
    if *seen & 1 << number != 0 {
        let text = format!("Parameter {} is given twice", key.to_ascii_uppercase());
        return Err(Reply::new(501, Enhanced(5, 5, 4), text));
    }
    if value == Some("") {
        return Err(replies::BAD_PARAMETER);
    }
    *seen |= 1 << number;
    Ok((KEYWORDS[number], value))
}

/// Adds the parameters of MAIL to the envelope, and returns those that are no part of it.
pub(super) fn of_mail(text: &str, envelope: &mut Envelope) -> Result<Declared, Reply> {
    let (mut declared, mut seen) = (Declared::default(), 0);
    for word in text.split_ascii_whitespace() {
        add_to_mail(word, &mut seen, envelope, &mut declared).map_err(|reply| named(reply, word))?;
    }
    Ok(declared)
}

fn add_to_mail(
    word: &str,
    seen: &mut u16,
    envelope: &mut Envelope,
    declared: &mut Declared,
) -> Result<(), Reply> {
    let (key, value) = parameter(word, seen)?;
    match key {
        b"SIZE" => declared.size = Some(parse_size(value)?),
        b"BODY" => envelope.body = parse_body(value)?,
        b"SMTPUTF8" if value.is_none() => envelope.smtputf8 = true,
        b"RET" => envelope.ret = Some(parse_ret(value)?),
        b"ENVID" => envelope.envid = Some(parse_xtext(value, 100)?),
        b"AUTH" => envelope.options.get_or_insert_default().auth = Some(parse_submitter(value)?),
        b"REQUIRETLS" if value.is_none() => envelope.options.get_or_insert_default().requiretls = true,
        b"HOLDFOR" => declared.schedule.get_or_insert_default().set_hold(parse_hold_for(value)?)?,
        b"HOLDUNTIL" => declared.schedule.get_or_insert_default().set_hold(parse_hold_until(value)?)?,
        b"BY" => declared.schedule.get_or_insert_default().deliver_by = Some(parse_by(value)?),
        b"MT-PRIORITY" => {
            envelope.options.get_or_insert_default().priority = Some(parse_priority(value)?);
        }
        b"SMTPUTF8" | b"REQUIRETLS" => return Err(replies::BAD_PARAMETER),
        _ => return Err(replies::UNKNOWN_PARAMETER),
    }
    Ok(())
}

/// Adds the parameters of RCPT to the recipient.
pub(super) fn of_rcpt(text: &str, recipient: &mut Recipient) -> Result<(), Reply> {
    let mut seen = 0;
    for word in text.split_ascii_whitespace() {
        add_to_rcpt(word, &mut seen, recipient).map_err(|reply| named(reply, word))?;
    }
    Ok(())
}

fn add_to_rcpt(word: &str, seen: &mut u16, recipient: &mut Recipient) -> Result<(), Reply> {
    let (key, value) = parameter(word, seen)?;
    match key {
        b"NOTIFY" => recipient.notify = parse_notify(value)?,
        b"ORCPT" => recipient.orcpt = Some(parse_orcpt(value)?),
        _ => return Err(replies::UNKNOWN_PARAMETER),
    }
    Ok(())
}

/// Names the parameter in the reply that refuses it: a command may have several.
fn named(reply: Reply, word: &str) -> Reply {
    let key = word.split('=').next().unwrap_or_default().to_ascii_uppercase();
    let is_keyword = key.len() <= KEYWORD_MAX_BYTES
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if is_keyword && reply == replies::BAD_PARAMETER {
        Reply::new(reply.code, reply.enhanced, format!("Bad value of parameter {key}"))
    } else if is_keyword && reply == replies::UNKNOWN_PARAMETER {
        Reply::new(reply.code, reply.enhanced, format!("Parameter {key} not recognized"))
    } else {
        reply
    }
}

/// Up to 20 digits (RFC 1870 §3); a number too large for us is simply too large a message.
fn parse_size(value: Option<&str>) -> Result<u64, Reply> {
    let digits = value.filter(|v| v.bytes().all(|b| b.is_ascii_digit())).ok_or(replies::BAD_PARAMETER)?;
    digits.parse().map_err(|_| replies::TOO_LARGE)
}

fn parse_body(value: Option<&str>) -> Result<BodyType, Reply> {
    match value {
        Some(word) if word.eq_ignore_ascii_case("7BIT") => Ok(BodyType::SevenBit),
        Some(word) if word.eq_ignore_ascii_case("8BITMIME") => Ok(BodyType::EightBit),
        Some(word) if word.eq_ignore_ascii_case("BINARYMIME") => Ok(BodyType::Binary),
        _ => Err(replies::BAD_PARAMETER),
    }
}

/// `AUTH=` of MAIL (RFC 4954 §5): a mailbox in xtext, or `<>`.
fn parse_submitter(value: Option<&str>) -> Result<ReversePath, Reply> {
    match value {
        Some("<>") => Ok(ReversePath::Null),
        value => {
            let mailbox = parse_xtext(value, 500)?;
            Mailbox::parse(&mailbox, true).map(ReversePath::Mailbox).map_err(|_| replies::BAD_PARAMETER)
        }
    }
}

fn parse_ret(value: Option<&str>) -> Result<Ret, Reply> {
    match value {
        Some(word) if word.eq_ignore_ascii_case("FULL") => Ok(Ret::Full),
        Some(word) if word.eq_ignore_ascii_case("HDRS") => Ok(Ret::Headers),
        _ => Err(replies::BAD_PARAMETER),
    }
}

fn parse_xtext(value: Option<&str>, max: usize) -> Result<Box<str>, Reply> {
    let text = value.and_then(xtext::decode).filter(|t| t.len() <= max).ok_or(replies::BAD_PARAMETER)?;
    Ok(text.into())
}

/// `NEVER`, or a list of the others (RFC 3461 §4.1).
fn parse_notify(value: Option<&str>) -> Result<Notify, Reply> {
    let value = value.ok_or(replies::BAD_PARAMETER)?;
    if value.eq_ignore_ascii_case("NEVER") {
        return Ok(Notify::NEVER);
    }
    value.split(',').try_fold(Notify::NEVER, |mut notify, word| {
        match word.to_ascii_uppercase().as_str() {
            "SUCCESS" => notify.success = true,
            "FAILURE" => notify.failure = true,
            "DELAY" => notify.delay = true,
            _ => return Err(replies::BAD_PARAMETER),
        }
        Ok(notify)
    })
}

/// `rfc822;xtext`, stored decoded. The type is any atom (RFC 3461 §4.2): `x400`, `x-local`, `unknown`.
fn parse_orcpt(value: Option<&str>) -> Result<Box<str>, Reply> {
    let (kind, address) = value.and_then(|v| v.split_once(';')).ok_or(replies::BAD_PARAMETER)?;
    let is_atom = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&b);
    let plain = !kind.is_empty() && kind.bytes().all(is_atom);
    // Addresses of X.400 have many equals signs, and not every client encodes them, as it must.
    let address =
        xtext::decode(&address.replace('=', "+3D")).filter(|a| plain && !a.is_empty() && a.len() <= 500);
    Ok(format!("{kind};{}", address.ok_or(replies::BAD_PARAMETER)?).into())
}
