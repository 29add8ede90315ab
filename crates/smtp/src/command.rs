//! Command lines into [`Command`]s (RFC 5321 §4.1.1). A line that is no command becomes the reply
//! the client reads.

mod parameters;
mod schedule;

use crate::{
    Limits,
    forwarded::{ClientAttributeSet, ClientAttributes},
    server::replies,
};
use mail::{AddressError, Domain, Envelope, ForwardPath, Mailbox, Recipient, Reply, ReversePath};
use std::borrow::Cow;

pub use schedule::{DeliverByRequest, Hold, Schedule};

/// Longest argument of EHLO and HELO. It is written into a line of the trace header, which has room for 998
/// octets (RFC 5322 §2.1.1).
const HELLO_MAX_BYTES: usize = 512;

/// One parsed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// HELO with the client's name.
    Helo(Box<str>),
    /// EHLO with the client's name.
    Ehlo(Box<str>),
    /// LHLO of LMTP with the client's name.
    Lhlo(Box<str>),
    /// MAIL: an envelope without recipients, and what is not a part of it.
    Mail(Envelope, Declared),
    /// RCPT.
    Rcpt(Recipient),
    /// DATA.
    Data,
    /// BDAT: this many octets follow (RFC 3030 §2).
    Bdat {
        /// Octets that follow the line.
        size_bytes: u64,
        /// True for the last chunk of the message (`BDAT … LAST`).
        last: bool,
    },
    /// STARTTLS (RFC 3207).
    StartTls,
    /// AUTH (RFC 4954).
    Auth {
        /// The mechanism's name, in capitals.
        mechanism: Box<str>,
        /// The initial response in base64, or `=` for an empty one.
        initial: Option<Box<str>>,
    },
    /// RSET.
    Rset,
    /// NOOP.
    Noop,
    /// VRFY: a user or mailbox.
    Vrfy(Box<str>),
    /// EXPN: a mailing list.
    Expn(Box<str>),
    /// ETRN (RFC 1985).
    Etrn(EtrnNode),
    /// XCLIENT: the attributes of the client for whom the peer speaks.
    XClient(Box<ClientAttributes>),
    /// XFORWARD: the attributes of the client from whom the peer has the mail.
    XForward(Box<ClientAttributes>),
    /// HELP.
    Help,
    /// QUIT.
    Quit,
}

/// The parameters of MAIL that are no part of the envelope.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Declared {
    /// `SIZE=`.
    pub size: Option<u64>,
    /// `HOLDFOR=`, `HOLDUNTIL=` and `BY=`, whose times count from now.
    pub schedule: Option<Box<Schedule>>,
}

/// The argument of ETRN (RFC 1985 §5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtrnNode {
    /// The domain, as [`mail::Domain::key`].
    pub domain: Box<str>,
    /// `@domain`: the subdomains, too.
    pub with_subdomains: bool,
}

/// Reads one line without its CRLF. `utf8` tells whether the open transaction has SMTPUTF8, which
/// RCPT inherits from MAIL (RFC 6531 §3.4).
///
/// # Errors
/// The reply to send: 500 for what is not a command, 501 for bad arguments, 502 for commands that exist
/// and do not offer.
pub fn parse(line: &[u8], limits: &Limits, utf8: bool) -> Result<Command, Reply> {
    parse_with(line, limits, utf8, false)
}

/// As [`parse`]; `loose`: a path may lack its brackets, or have more of them, as in [`LoosePaths`](crate::LoosePaths).
///
/// # Errors
/// As [`parse`].
pub(crate) fn parse_with(line: &[u8], limits: &Limits, utf8: bool, loose: bool) -> Result<Command, Reply> {
    if line.contains(&0) {
        return Err(replies::NUL_IN_COMMAND);
    }
    let line = match std::str::from_utf8(line) {
        Ok(line) => Cow::Borrowed(line),
        // What a client calls itself in some other encoding is no reason to turn it away.
        Err(_) if is_hello(line) => String::from_utf8_lossy(line),
        Err(_) => return Err(replies::INVALID_UTF8),
    };
    if line.chars().any(|c| c.is_control() && c != '\t') {
        return Err(replies::CONTROL_IN_COMMAND);
    }
    let line = line.trim_end_matches([' ', '\t']);
    let (verb, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let mut upper = [0; 8];
    let Some(upper) = upper.get_mut(..verb.len()) else { return Err(replies::UNKNOWN_COMMAND) };
    upper.copy_from_slice(verb.as_bytes());
    upper.make_ascii_uppercase();
    let alone = |command| if rest.is_empty() { Ok(command) } else { Err(replies::NO_ARGUMENT_ALLOWED) };
    match &*upper {
        b"MAIL" => parse_mail(rest, limits, loose),
        b"RCPT" => parse_rcpt(rest, limits, utf8, loose),
        b"DATA" => alone(Command::Data),
        b"BDAT" => parse_bdat(rest),
        b"EHLO" => parse_name(rest).map(Command::Ehlo),
        b"HELO" => parse_name(rest).map(Command::Helo),
        b"LHLO" => parse_name(rest).map(Command::Lhlo),
        b"QUIT" => alone(Command::Quit),
        b"RSET" => alone(Command::Rset),
        b"NOOP" => Ok(Command::Noop),
        b"STARTTLS" => alone(Command::StartTls),
        b"VRFY" => argument(rest).map(Command::Vrfy),
        b"EXPN" => argument(rest).map(Command::Expn),
        b"ETRN" => parse_etrn(rest).map(Command::Etrn),
        b"XCLIENT" => ClientAttributes::parse(rest, ClientAttributeSet::XClient).map(Command::XClient),
        b"XFORWARD" => ClientAttributes::parse(rest, ClientAttributeSet::XForward).map(Command::XForward),
        b"HELP" => Ok(Command::Help),
        b"AUTH" => parse_auth(rest),
        b"TURN" | b"ATRN" | b"SEND" | b"SOML" | b"SAML" => Err(replies::NOT_OFFERED),
        b"GET" | b"POST" | b"PUT" | b"CONNECT" | b"HEAD" | b"OPTIONS" => Err(replies::WRONG_PROTOCOL),
        _ => Err(replies::UNKNOWN_COMMAND),
    }
}

/// Reads EHLO's argument, which is shown and never trusted: any printable text is accepted, spaces included
/// (RFC 5321 §4.1.4 forbids to refuse mail because the argument is not the client's name).
fn parse_name(rest: &str) -> Result<Box<str>, Reply> {
    let name = rest.trim();
    let good = !name.is_empty() && name.len() <= HELLO_MAX_BYTES;
    if good { Ok(name.into()) } else { Err(replies::BAD_HELLO) }
}

fn argument(rest: &str) -> Result<Box<str>, Reply> {
    let argument = rest.trim();
    if argument.is_empty() { Err(replies::ARGUMENT_NEEDED) } else { Ok(argument.into()) }
}

/// `domain` or `@domain`; queues have no names here, so that `#queue` is no node.
fn parse_etrn(rest: &str) -> Result<EtrnNode, Reply> {
    let argument = argument(rest).map_err(|_| replies::BAD_NODE)?;
    let (domain, with_subdomains) = match argument.strip_prefix('@') {
        Some(domain) => (domain, true),
        None => (&*argument, false),
    };
    let domain = Domain::parse(domain).map_err(|_| replies::BAD_NODE)?;
    Ok(EtrnNode { domain: domain.key().into(), with_subdomains })
}

/// Is this EHLO, HELO or LHLO?
fn is_hello(line: &[u8]) -> bool {
    let is = |verb: &[u8; 5]| line.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(verb));
    is(b"EHLO ") || is(b"HELO ") || is(b"LHLO ")
}

fn parse_mail(rest: &str, limits: &Limits, loose: bool) -> Result<Command, Reply> {
    let bad = (&replies::BAD_SENDER, &replies::SENDER_WITHOUT_BRACKETS);
    let (path, params) = split_path(rest, "FROM:", limits, bad, loose)?;
    let utf8 = params.split_ascii_whitespace().any(|p| p.eq_ignore_ascii_case("SMTPUTF8"));
    let reverse_path = if path.is_empty() {
        ReversePath::Null
    } else {
        let mailbox = Mailbox::parse(path, utf8).map_err(|e| address_reply(e, &replies::BAD_SENDER))?;
        if limits.strict_local_parts && !mailbox.is_strict() {
            return Err(replies::BAD_SENDER);
        }
        ReversePath::Mailbox(mailbox)
    };
    let mut envelope = Envelope::new(reverse_path);
    let declared = parameters::of_mail(params, &mut envelope)?;
    Ok(Command::Mail(envelope, declared))
}

fn parse_rcpt(rest: &str, limits: &Limits, utf8: bool, loose: bool) -> Result<Command, Reply> {
    let bad = (&replies::BAD_RECIPIENT, &replies::RECIPIENT_WITHOUT_BRACKETS);
    let (path, params) = split_path(rest, "TO:", limits, bad, loose)?;
    let path = ForwardPath::parse(path, utf8).map_err(|e| address_reply(e, &replies::BAD_RECIPIENT))?;
    if limits.strict_local_parts && path.mailbox().is_some_and(|mailbox| !mailbox.is_strict()) {
        return Err(replies::BAD_RECIPIENT);
    }
    let mut recipient = Recipient::new(path);
    parameters::of_rcpt(params, &mut recipient)?;
    Ok(Command::Rcpt(recipient))
}

fn address_reply(error: AddressError, bad: &Reply) -> Reply {
    match error {
        AddressError::NeedsSmtpUtf8 => replies::NEEDS_SMTPUTF8,
        AddressError::Syntax | AddressError::LocalPart | AddressError::Domain => bad.clone(),
    }
}

/// `FROM:<path> params` into path and params. A space behind the colon is let through, as every
/// server does; a source route is ignored (RFC 5321 §4.1.1.3). The second reply is for a path without brackets.
fn split_path<'a>(
    rest: &'a str,
    tag: &str,
    limits: &Limits,
    (bad, without_brackets): (&Reply, &Reply),
    loose: bool,
) -> Result<(&'a str, &'a str), Reply> {
    let rest = rest.trim_start();
    let head = rest.get(..tag.len()).filter(|head| head.eq_ignore_ascii_case(tag)).ok_or(replies::SYNTAX)?;
    let rest = rest[head.len()..].trim_start();
    let (path, params) = match rest.strip_prefix('<') {
        _ if loose => split_loose(rest).ok_or_else(|| bad.clone())?,
        None => return Err(without_brackets.clone()),
        Some(inner) => {
            let end = path_end(inner).ok_or_else(|| bad.clone())?;
            (&inner[..end], &inner[end + 1..])
        }
    };
    let separated = params.is_empty() || params.starts_with([' ', '\t']);
    if !separated || path.len() + 2 > limits.path_bytes {
        return Err(bad.clone());
    }
    Ok((without_source_route(path).ok_or_else(|| bad.clone())?, params))
}

/// Splits a path that Postfix takes by default: without brackets, with several around it, with blanks within, and with a `>` too
/// many.
fn split_loose(text: &str) -> Option<(&str, &str)> {
    let open = text.len() - text.trim_start_matches('<').len();
    let inner = &text[open..];
    let end = match open {
        0 => unquoted(inner, |b| matches!(b, b' ' | b'\t' | b'>')).unwrap_or(inner.len()),
        _ => path_end(inner)?,
    };
    let behind = inner[end..].trim_start_matches('>');
    let path = inner[..end].trim_matches([' ', '\t']);
    let closed = inner.len() - end - behind.len();
    (closed >= open && (open > 0 || !path.is_empty())).then_some((path, behind))
}

/// The `>` that ends the path, outside of quotes.
fn path_end(text: &str) -> Option<usize> {
    unquoted(text, |b| b == b'>')
}

/// The place of the first such octet outside of quotes.
fn unquoted(text: &str, is_meant: impl Fn(u8) -> bool) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    text.bytes().position(|b| {
        let here = !quoted && is_meant(b);
        (quoted, escaped) = match b {
            _ if escaped => (quoted, false),
            b'\\' if quoted => (quoted, true),
            b'"' => (!quoted, false),
            _ => (quoted, false),
        };
        here
    })
}

/// Returns the part of a path behind its source route, which is ignored (RFC 5321 §4.1.1.3). It must be a mailbox: neither
/// the null path nor a bare postmaster has a route. `None` if the route is none.
pub fn without_source_route(path: &str) -> Option<&str> {
    if !path.starts_with('@') {
        return Some(path);
    }
    let (route, mailbox) = path.split_once(':')?;
    let good =
        route.split(',').all(|hop| hop.strip_prefix('@').is_some_and(|d| mail::Domain::parse(d).is_ok()));
    (good && mailbox.contains('@')).then_some(mailbox)
}

/// `mechanism [initial-response]`; `=` is an empty response (RFC 4954 §4).
fn parse_auth(rest: &str) -> Result<Command, Reply> {
    let mut words = rest.split_ascii_whitespace();
    let (Some(mechanism), initial, None) = (words.next(), words.next(), words.next()) else {
        return Err(replies::AUTH_SYNTAX);
    };
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if mechanism.len() > 20 || !mechanism.bytes().all(is_name) {
        return Err(replies::AUTH_SYNTAX);
    }
    Ok(Command::Auth { mechanism: mechanism.to_ascii_uppercase().into(), initial: initial.map(Into::into) })
}

/// Decodes the initial response of AUTH, of which `=` is an empty one; `None` if it is not base64.
pub(crate) fn decode_initial(text: &str) -> Option<Vec<u8>> {
    if text == "=" { Some(Vec::new()) } else { decode_base64(text.as_bytes()) }
}

/// Decodes base64 with its padding; `None` for anything else.
pub(crate) fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    data_encoding::BASE64.decode(text).ok()
}

/// `size [LAST]`, decimal (RFC 3030 §2).
fn parse_bdat(rest: &str) -> Result<Command, Reply> {
    let mut words = rest.split_ascii_whitespace();
    let size = words.next().filter(|w| w.bytes().all(|b| b.is_ascii_digit())).and_then(|w| w.parse().ok());
    let last = match (words.next(), words.next()) {
        (None, _) => Some(false),
        (Some(word), None) if word.eq_ignore_ascii_case("LAST") => Some(true),
        _ => None,
    };
    match (size, last) {
        (Some(size_bytes), Some(last)) => Ok(Command::Bdat { size_bytes, last }),
        // Without a size the chunk cannot be skipped: the connection has to close.
        _ => Err(replies::BAD_CHUNK_SIZE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{BodyType, Notify, Ret};
    use proptest::prelude::*;

    fn code(line: &str) -> String {
        match parse(line.as_bytes(), &Limits::default(), false) {
            Ok(command) => panic!("{line:?} is {command:?}"),
            Err(reply) => format!("{} {}", reply.code, reply.enhanced.unwrap()),
        }
    }

    fn good(line: &str) -> Command {
        parse(line.as_bytes(), &Limits::default(), true).unwrap_or_else(|reply| panic!("{line:?}: {reply}"))
    }

    #[test]
    fn mail_takes_its_parameters() {
        let line = "mail from: <a@b> size=10 Body=8BITMIME SMTPUTF8 RET=HDRS ENVID=x+2By";
        let Command::Mail(e, declared) = good(line) else { panic!() };
        assert_eq!(
            (e.reverse_path.as_str(), declared.size, e.body, e.smtputf8),
            ("a@b", Some(10), BodyType::EightBit, true)
        );
        assert_eq!((e.ret, e.envid.as_deref()), (Some(Ret::Headers), Some("x+y")));
        let none = Declared::default();
        assert!(matches!(good("MAIL FROM:<>"), Command::Mail(e, d) if e.reverse_path.is_null() && d == none));
        assert!(
            matches!(good("MAIL FROM:<@a,@b:c@d>"), Command::Mail(e, _) if e.reverse_path.as_str() == "c@d")
        );
        assert!(
            matches!(good("MAIL FROM:<\"a>b\"@d>"), Command::Mail(e, _) if e.reverse_path.as_str() == "\"a>b\"@d")
        );
    }

    #[test]
    fn rcpt_takes_its_parameters() {
        let Command::Rcpt(r) = good("RCPT TO:<a@b> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;a+40b") else {
            panic!()
        };
        assert_eq!(r.notify, Notify { success: true, failure: false, delay: true, explicit: true });
        assert_eq!(r.orcpt.as_deref(), Some("rfc822;a@b"));
        let Command::Rcpt(r) = good("RCPT TO:<a@b> ORCPT=x400;/C=DE/S+3Dx/") else { panic!("RCPT") };
        assert_eq!(r.orcpt.as_deref(), Some("x400;/C=DE/S=x/"));
        assert!(
            matches!(good("RCPT TO:<Postmaster>"), Command::Rcpt(r) if r.path == ForwardPath::Postmaster)
        );
    }

    #[test]
    fn the_reply_to_a_bad_parameter_names_it() {
        for (line, text) in [
            ("RCPT TO:<a@b> NOTIFY=NEVER ORCPT=a@b", "501 5.5.4 Bad value of parameter ORCPT"),
            ("MAIL FROM:<a@b> size=x", "501 5.5.4 Bad value of parameter SIZE"),
            ("MAIL FROM:<a@b> RET=FULL RET=FULL", "501 5.5.4 Parameter RET is given twice"),
            ("MAIL FROM:<a@b> foo=1", "555 5.5.4 Parameter FOO not recognized"),
            ("MAIL FROM:<a@b> f\u{202e}=1", "555 5.5.4 Parameter not recognized"),
        ] {
            let reply = parse(line.as_bytes(), &Limits::default(), true).unwrap_err();
            assert_eq!(reply.to_string(), text, "{line}");
        }
    }

    #[test]
    fn bad_lines_get_the_reply_of_the_table() {
        for (line, reply) in [
            ("", "500 5.5.2"),
            ("XYZZY", "500 5.5.2"),
            ("MAILFROM:<a@b>", "500 5.5.2"),
            ("MAIL", "501 5.5.4"),
            ("MAIL a@b", "501 5.5.4"),
            ("MAIL FROM:a@b", "501 5.1.7"),
            ("MAIL FROM:<a@b", "501 5.1.7"),
            ("MAIL FROM:<;sleep 66;>", "501 5.1.7"),
            ("MAIL FROM:<a@b>SIZE=1", "501 5.1.7"),
            ("MAIL FROM:<ä@b>", "553 5.6.7"),
            ("RCPT TO:<ä@b>", "553 5.6.7"),
            ("RCPT TO:<>", "501 5.1.3"),
            ("MAIL FROM:<@a.test:>", "501 5.1.7"),
            ("MAIL FROM:<@a.test,@b.test:>", "501 5.1.7"),
            ("RCPT TO:<@a.test:>", "501 5.1.3"),
            ("RCPT TO:<@a.test:postmaster>", "501 5.1.3"),
            ("MAIL FROM:<a@b> SIZE=", "501 5.5.4"),
            ("MAIL FROM:<a@b> SIZE=-1", "501 5.5.4"),
            ("MAIL FROM:<a@b> SIZE=18446744073709551616", "552 5.3.4"),
            ("MAIL FROM:<a@b> SIZE=1 SIZE=1", "501 5.5.4"),
            ("MAIL FROM:<a@b> FOO=1", "555 5.5.4"),
            ("MAIL FROM:<a@b> AUTH=a+0Ab", "501 5.5.4"),
            ("MAIL FROM:<a@b> ENVID=x+0D+0AQUIT", "501 5.5.4"),
            ("RCPT TO:<a@b> ORCPT=rfc822;a+00b", "501 5.5.4"),
            ("RCPT TO:<a@b> ORCPT=x 400;a", "501 5.5.4"),
            ("RCPT TO:<a@b> ORCPT=;a", "501 5.5.4"),
            ("RCPT TO:<a@b> NOTIFY=NEVER,SUCCESS", "501 5.5.4"),
            ("RCPT TO:<a@b> NOTIFY=", "501 5.5.4"),
            ("BDAT", "501 5.5.4"),
            ("BDAT -1", "501 5.5.4"),
            ("BDAT 0x10", "501 5.5.4"),
            ("BDAT 1e3", "501 5.5.4"),
            ("BDAT 18446744073709551616", "501 5.5.4"),
            ("BDAT 1 FIRST", "501 5.5.4"),
            ("EHLO", "501 5.5.4"),
            ("DATA now", "501 5.5.4"),
            ("STARTTLS x", "501 5.5.4"),
            ("EXPN", "501 5.5.4"),
            ("ETRN", "501 5.5.4"),
            ("ETRN a b", "501 5.5.4"),
            ("ETRN @", "501 5.5.4"),
            ("ETRN #queue", "501 5.5.4"),
            ("XCLIENT", "501 5.5.4"),
            ("XCLIENT ADDR", "501 5.5.4"),
            ("XCLIENT FOO=1", "501 5.5.4"),
            ("XCLIENT IDENT=1", "501 5.5.4"),
            ("XCLIENT NAME=a+0D+0AQUIT", "501 5.5.4"),
            ("XFORWARD LOGIN=joe", "501 5.5.4"),
            ("MAIL FROM:<a@b> HOLDFOR=1 HOLDUNTIL=2026-11-24T00:00:00Z", "501 5.5.4"),
            ("MAIL FROM:<a@b> HOLDFOR=-1", "501 5.5.4"),
            ("MAIL FROM:<a@b> HOLDUNTIL=tomorrow", "501 5.5.4"),
            ("MAIL FROM:<a@b> BY=100", "501 5.5.4"),
            ("MAIL FROM:<a@b> BY=100;X", "501 5.5.4"),
            ("MAIL FROM:<a@b> BY=1234567890;N", "501 5.5.4"),
            ("MAIL FROM:<a@b> BY=5;N BY=5;N", "501 5.5.4"),
            ("MAIL FROM:<a@b> MT-PRIORITY=10", "501 5.5.4"),
            ("MAIL FROM:<a@b> MT-PRIORITY=+1", "501 5.5.4"),
            ("MAIL FROM:<a@b> MT-PRIORITY=", "501 5.5.4"),
            ("TURN x", "502 5.5.1"),
            ("AUTH", "501 5.5.4"),
            ("VRFY", "501 5.5.4"),
            ("NOOP\0", "500 5.5.2"),
            ("NOOP \x1b", "500 5.5.2"),
            ("GET / HTTP/1.1", "221 2.7.0"),
        ] {
            assert_eq!(code(line), reply, "{line:?}");
        }
        assert_eq!(parse(b"NOOP \xff", &Limits::default(), true), Err(replies::INVALID_UTF8));
        assert_eq!(code(&format!("EHLO {}", "x".repeat(513))), "501 5.5.4");
    }

    #[test]
    fn whatever_a_client_calls_itself_is_taken_if_it_can_be_shown() {
        let long = "x".repeat(512);
        for name in ["a_b", "a..b", ".", "-", "[::1", "my pc", "b\u{fc}cher", "a<b>\"c\"@d", &long] {
            assert_eq!(good(&format!("EHLO {name}")), Command::Ehlo(name.into()), "{name}");
            assert_eq!(good(&format!("HELO  {name} ")), Command::Helo(name.into()), "{name}");
        }
        let latin = parse(b"ehlo b\xfccher", &Limits::default(), false);
        assert_eq!(latin, Ok(Command::Ehlo("b\u{fffd}cher".into())));
        for name in ["a\rb", "a\x1b[2J", "a\u{85}b", "a\0b"] {
            assert_eq!(code(&format!("EHLO {name}")), "500 5.5.2", "{name:?}");
        }
    }

    #[test]
    fn odd_local_parts_are_taken_unless_the_limits_are_strict() {
        let strict = Limits { strict_local_parts: true, ..Limits::default() };
        let srs = format!("SRS0=abcd=12=a.test={}@b.test", "x".repeat(100));
        for path in [srs.as_str(), "a..b@c.test", ".a@c.test", "a.@c.test"] {
            let (mail, rcpt) = (format!("MAIL FROM:<{path}>"), format!("RCPT TO:<{path}>"));
            assert!(matches!(good(&mail), Command::Mail(e, _) if e.reverse_path.as_str() == path), "{path}");
            assert!(matches!(good(&rcpt), Command::Rcpt(r) if r.path.as_str() == path), "{path}");
            assert_eq!(parse(mail.as_bytes(), &strict, false), Err(replies::BAD_SENDER), "{path}");
            assert_eq!(parse(rcpt.as_bytes(), &strict, false), Err(replies::BAD_RECIPIENT), "{path}");
        }
        assert!(parse(b"RCPT TO:<a.b@c.test>", &strict, false).is_ok());
        assert!(parse(b"RCPT TO:<postmaster>", &strict, false).is_ok());
    }

    #[test]
    fn paths_up_to_the_limit_are_taken() {
        let path = |n: usize| {
            format!("RCPT TO:<{}@{}.{}.{}>", "l".repeat(60), "a".repeat(63), "b".repeat(63), "c".repeat(n))
        };
        assert!(matches!(good(&path(63)), Command::Rcpt(_)));
        let limits = Limits { path_bytes: path(63).len() - 8, ..Limits::default() };
        assert!(parse(path(63).as_bytes(), &limits, false).is_ok());
        let limits = Limits { path_bytes: path(63).len() - 9, ..Limits::default() };
        assert_eq!(parse(path(63).as_bytes(), &limits, false), Err(replies::BAD_RECIPIENT));
    }

    #[test]
    fn a_path_of_a_trusted_client_needs_no_brackets_and_another_one_is_told_how_to_write_it() {
        let loose = |line: &str| match parse_with(line.as_bytes(), &Limits::default(), false, true) {
            Ok(Command::Mail(envelope, declared)) => {
                format!("{} {:?}", envelope.reverse_path.as_str(), declared.size)
            }
            Ok(Command::Rcpt(recipient)) => recipient.path.as_str().to_owned(),
            Ok(other) => format!("{other:?}"),
            Err(reply) => reply.code.to_string(),
        };
        for (line, read) in [
            ("MAIL FROM:a@b.test", "a@b.test None"),
            ("MAIL FROM: a@b.test SIZE=10", "a@b.test Some(10)"),
            ("MAIL FROM:<<a@b.test>> SIZE=10", "a@b.test Some(10)"),
            ("MAIL FROM:\"x >y\"@b.test SIZE=1", "\"x >y\"@b.test Some(1)"),
            ("MAIL FROM:<>", " None"),
            ("MAIL FROM:", "501"),
            ("MAIL FROM:<a@b.test", "501"),
            ("MAIL FROM:<<a@b.test>", "501"),
            ("MAIL FROM:<a@b.test>SIZE=1", "501"),
            ("RCPT TO:< a@b.test >", "a@b.test"),
            ("RCPT TO:a@b.test>", "a@b.test"),
            ("RCPT TO:@x.test:a@b.test", "a@b.test"),
            ("RCPT TO:postmaster", "postmaster"),
            ("RCPT TO:Joe <a@b.test>", "501"),
        ] {
            assert_eq!(loose(line).to_lowercase(), read.to_lowercase(), "{line}");
        }
        for line in ["MAIL FROM:a@b.test", "RCPT TO: a@b.test"] {
            let refused = parse(line.as_bytes(), &Limits::default(), false).unwrap_err();
            assert!(refused.text().contains("<user@example.com>"), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line: Vec<u8>, loose: bool) {
            let _ = parse_with(&line, &Limits::default(), true, loose);
        }

        #[test]
        fn no_command_like_line_makes_it_panic(
            line in "(MAIL FROM:|RCPT TO:|BDAT )[<>@\"\\\\:, a-c0-9=+ä]{0,40}",
            loose: bool,
        ) {
            let _ = parse_with(line.as_bytes(), &Limits::default(), true, loose);
        }
    }
}
