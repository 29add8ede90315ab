//! Replies that an operator writes, with places for facts.

use crate::Facts;
use mail::{Enhanced, Reply, ReversePath};
use std::fmt;

/// The class of a reply, which the verb of a rule fixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyClass {
    /// 5yz: the client gives up.
    Permanent,
    /// 4yz: the client tries again.
    Transient,
}

impl ReplyClass {
    fn digit(self) -> u8 {
        match self {
            Self::Permanent => 5,
            Self::Transient => 4,
        }
    }

    fn usual(self) -> (u16, Enhanced) {
        match self {
            Self::Permanent => (550, Enhanced(5, 7, 1)),
            Self::Transient => (450, Enhanced(4, 7, 1)),
        }
    }
}

/// A reply such as `550 5.7.1 {from} is not welcome here`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyText {
    code: u16,
    enhanced: Enhanced,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    Place(Place),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Client,
    From,
    To,
    Login,
    Hello,
    Text,
}

const PLACES: [(&str, Place); 6] = [
    ("client", Place::Client),
    ("from", Place::From),
    ("to", Place::To),
    ("login", Place::Login),
    ("hello", Place::Hello),
    ("text", Place::Text),
];

/// Octets of a fact in a reply: more is cut off.
const FACT_BYTES: usize = 200;
/// Octets of a whole text.
const TEXT_BYTES: usize = 400;

impl ReplyText {
    /// Reads a reply: text, with a code or without, and with an enhanced status code or without.
    ///
    /// # Errors
    /// The fault, in words.
    pub fn parse(text: &str, class: ReplyClass) -> Result<Self, String> {
        let (usual_code, usual_enhanced) = class.usual();
        let (mut code, mut enhanced, mut rest) = (usual_code, None, text.trim());
        let word = rest.split(' ').next().unwrap_or_default();
        if word.len() == 3 && word.bytes().all(|b| b.is_ascii_digit()) {
            code = word.parse().map_err(|_| "not a reply code".to_owned())?;
            rest = rest[3..].trim_start();
        }
        let digit = u16::from(class.digit());
        if code / 100 != digit {
            return Err(format!(
                "the code begins with {digit}: write \"{usual_code} {usual_enhanced} text\""
            ));
        }
        // 556 is about a domain, never about a client (RFC 7504 §4).
        if code == 556 {
            return Err(format!("write \"{usual_code} {usual_enhanced} text\""));
        }
        if let Some((found, behind)) = Enhanced::parse_prefix(rest) {
            if u16::from(found.0) != digit {
                return Err(format!(
                    "the enhanced code begins with {digit}: write \"{usual_code} {usual_enhanced} text\""
                ));
            }
            (enhanced, rest) = (Some(found), behind.trim_start());
        }
        if rest.is_empty() {
            return Err("the text is missing behind the codes".to_owned());
        }
        // RFC 5321 §4.2; RFC 6531 §3.7.4 permits others to some clients only.
        if !rest.is_ascii() {
            return Err("the text has letters outside of ASCII: not every client can read them".to_owned());
        }
        if rest.len() > TEXT_BYTES || rest.contains(char::is_control) {
            return Err(format!("the text has control characters, or more than {TEXT_BYTES} octets"));
        }
        Ok(Self { code, enhanced: enhanced.unwrap_or(usual_enhanced), pieces: pieces(rest)? })
    }

    /// The reply with its places filled. `text` is the value of the map that decided.
    pub fn fill(&self, facts: &Facts<'_>, text: &str) -> Reply {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Place(place) => push_clean(&mut out, &fact(*place, facts, text)),
            }
        }
        Reply::new(self.code, self.enhanced, out)
    }
}

fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some(open) = rest.find('{') {
        let Some(length) = rest[open..].find('}') else {
            return Err("a `{` without `}`".to_owned());
        };
        let name = &rest[open + 1..open + length];
        let Some((_, place)) = PLACES.iter().find(|(known, _)| *known == name) else {
            let known: Vec<String> = PLACES.iter().map(|(known, _)| format!("{{{known}}}")).collect();
            return Err(format!("there is no {{{name}}}: write one of {}", known.join(" ")));
        };
        if open > 0 {
            pieces.push(Piece::Text(rest[..open].into()));
        }
        pieces.push(Piece::Place(*place));
        rest = &rest[open + length + 1..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.into()));
    }
    Ok(pieces)
}

fn fact(place: Place, facts: &Facts<'_>, text: &str) -> String {
    match place {
        Place::Client => facts.session.client().map_or_else(String::new, |client| client.to_string()),
        Place::From => match facts.from {
            Some(ReversePath::Mailbox(mailbox)) => mailbox.to_string(),
            Some(ReversePath::Null) => "<>".to_owned(),
            None => String::new(),
        },
        Place::To => facts.to.first().map_or_else(String::new, |to| to.path.as_str().to_owned()),
        Place::Login => ascii(facts.session.login.as_deref().unwrap_or_default()),
        Place::Hello => ascii(facts.session.hello.as_deref().unwrap_or_default()),
        Place::Text => ascii(text),
    }
}

/// Returns a text of others as a reply can have it (RFC 5321 §4.2).
pub(crate) fn ascii(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect()
}

/// Appends a fact without what could be read as something else: control characters, and a text that is too long.
fn push_clean(out: &mut String, fact: &str) {
    let end = fact.floor_char_boundary(FACT_BYTES);
    out.extend(fact[..end].chars().map(|c| if mail::is_invisible(c) { '?' } else { c }));
}

impl fmt::Display for ReplyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.code, self.enhanced)?;
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => f.write_str(text)?,
                Piece::Place(place) => {
                    let (name, _) =
                        PLACES.iter().find(|(_, known)| known == place).expect("a place has a name");
                    write!(f, "{{{name}}}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SessionFacts, Source};
    use mail::ListenerKind;

    #[test]
    fn codes_may_be_left_out_and_places_are_filled() {
        let sender = ReversePath::parse("a@b.test", false).unwrap();
        let peer = "127.0.0.1:25".parse().unwrap();
        let source = Source::Smtp { peer, local: peer, listener: ListenerKind::Mx };
        let session = SessionFacts { hello: Some("x\u{7}\r\n250 y".into()), ..SessionFacts::new(source) };
        let facts = Facts { from: Some(&sender), ..Facts::new(&session) };
        for (text, class, reply) in [
            ("554 5.7.0 no {from}", ReplyClass::Permanent, "554 5.7.0 no a@b.test"),
            ("go away, {client}: {text}", ReplyClass::Permanent, "550 5.7.1 go away, 127.0.0.1: value"),
            ("later {hello}", ReplyClass::Transient, "450 4.7.1 later x???250 y"),
            ("451 later", ReplyClass::Transient, "451 4.7.1 later"),
            ("4.2.2 full {to}{login}.", ReplyClass::Transient, "450 4.2.2 full ."),
        ] {
            let parsed = ReplyText::parse(text, class).unwrap();
            assert_eq!(parsed.fill(&facts, "value").to_string(), reply);
            assert_eq!(ReplyText::parse(&parsed.to_string(), class).unwrap(), parsed);
        }
    }

    #[test]
    fn the_verb_fixes_the_class() {
        for (text, class) in [
            ("450 4.7.1 x", ReplyClass::Permanent),
            ("550 4.7.1 x", ReplyClass::Permanent),
            ("250 2.0.0 x", ReplyClass::Permanent),
            ("556 5.7.1 x", ReplyClass::Permanent),
            ("550 5.7.1 x", ReplyClass::Transient),
            ("550", ReplyClass::Permanent),
            ("x {who}", ReplyClass::Permanent),
            ("x {from", ReplyClass::Permanent),
            ("a\nb", ReplyClass::Permanent),
        ] {
            assert!(ReplyText::parse(text, class).is_err(), "{text}");
        }
    }
}
