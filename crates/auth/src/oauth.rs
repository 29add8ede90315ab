//! OAUTHBEARER (RFC 7628) and XOAUTH2: a token instead of a password.

use crate::{
    mechanism::Mechanism,
    scram::gs2::{Gs2, escaped},
    secret::Secret,
};
use std::str;

/// What the client's first message says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bearer {
    /// The user whom the client names; OAUTHBEARER need not name one.
    pub(crate) user: Option<Box<str>>,
    pub(crate) token: Secret,
}

/// Why a token is refused, for the error that the client gets (RFC 7628 §3.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenFault {
    /// Nobody, or somebody else, has the token.
    Invalid,
    /// Valid, but without the scope that is needed.
    Scope,
}

/// The advice in the error that a client gets whose token is refused (RFC 7628 §3.2.2): it can get another token there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenAdvice {
    /// The scope that tokens need: names, separated by spaces.
    pub scope: Option<Box<str>>,
    /// The address of the metadata of the authorization server (OpenID Connect Discovery §4).
    pub openid_configuration: Option<Box<str>>,
}

impl TokenAdvice {
    /// Returns the error as JSON. XOAUTH2 has the status codes of HTTP in it.
    pub(crate) fn reason(&self, mechanism: Mechanism, fault: TokenFault) -> String {
        let status = match (mechanism, fault) {
            (Mechanism::Xoauth2, TokenFault::Invalid) => "401",
            (Mechanism::Xoauth2, TokenFault::Scope) => "403",
            (_, TokenFault::Invalid) => "invalid_token",
            (_, TokenFault::Scope) => "insufficient_scope",
        };
        let mut json = format!("{{\"status\":\"{status}\"");
        if mechanism == Mechanism::Xoauth2 {
            json.push_str(",\"schemes\":\"bearer\"");
        }
        for (name, value) in [("scope", &self.scope), ("openid-configuration", &self.openid_configuration)] {
            if let Some(value) = value {
                json.push_str(",\"");
                json.push_str(name);
                json.push_str("\":");
                push_quoted(&mut json, value);
            }
        }
        json.push('}');
        json
    }
}

/// Appends a string of JSON (RFC 8259 §7).
fn push_quoted(json: &mut String, text: &str) {
    json.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => json.extend(['\\', letter]),
            letter if letter.is_control() => json.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => json.push(letter),
        }
    }
    json.push('"');
}

/// Between key and value pairs (RFC 7628 §3.1).
const SEPARATOR: u8 = 1;
/// The answer of a client to the reason for a failure (RFC 7628 §3.2.3).
pub(crate) const DUMMY: &[u8] = b"\x01";

/// Reads `n,a=user@example.com,^Ahost=...^Aport=...^Aauth=Bearer TOKEN^A^A`.
pub(crate) fn read_bearer(message: &[u8]) -> Option<Bearer> {
    let (gs2, rest) = message.split_at(memchr::memchr(SEPARATOR, message)?);
    let gs2 = Gs2::read(str::from_utf8(gs2).ok()?)?;
    // There is no channel binding for it.
    (gs2.channel.is_none() && gs2.rest.is_empty()).then_some(())?;
    Some(Bearer { user: gs2.authzid, token: token(rest)? })
}

/// Reads `user=someuser@example.com^Aauth=Bearer TOKEN^A^A`.
pub(crate) fn read_xoauth2(message: &[u8]) -> Option<Bearer> {
    let fields = message.strip_prefix(b"user=")?;
    let (user, rest) = fields.split_at(memchr::memchr(SEPARATOR, fields)?);
    let user = str::from_utf8(user).ok().filter(|user| !user.is_empty())?;
    Some(Bearer { user: Some(user.into()), token: token(rest)? })
}

/// Returns the token of `^Aname=value^A...^A^A`; `None` if the form is wrong.
fn token(fields: &[u8]) -> Option<Secret> {
    let fields = fields.strip_suffix(&[SEPARATOR, SEPARATOR])?;
    let mut values = fields.split(|b| *b == SEPARATOR).filter_map(|field| {
        let at = memchr::memchr(b'=', field)?;
        field[..at].eq_ignore_ascii_case(b"auth").then(|| &field[at + 1..])
    });
    let (value, more) = (values.next()?, values.next());
    let (scheme, token) = value.split_at_checked(7)?;
    let is_good = more.is_none() && scheme.eq_ignore_ascii_case(b"Bearer ") && !token.is_empty();
    // RFC 6750 §2.1: b64token.
    let is_token = token.iter().all(|b| b.is_ascii_alphanumeric() || b"-._~+/=".contains(b));
    (is_good && is_token).then(|| Secret::new(token))
}

/// Writes the message of a client.
pub(crate) fn write_bearer(user: &str, token: &Secret) -> Vec<u8> {
    let mut message = format!("n,a={},\x01auth=Bearer ", escaped(user)).into_bytes();
    message.extend_from_slice(token.bytes());
    message.extend_from_slice(&[SEPARATOR, SEPARATOR]);
    message
}

/// Writes the message of a client.
pub(crate) fn write_xoauth2(user: &str, token: &Secret) -> Vec<u8> {
    let mut message = format!("user={user}\x01auth=Bearer ").into_bytes();
    message.extend_from_slice(token.bytes());
    message.extend_from_slice(&[SEPARATOR, SEPARATOR]);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_7628_is_read() {
        let message = b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01";
        let bearer = read_bearer(message).unwrap();
        assert_eq!(bearer.user.as_deref(), Some("user@example.com"));
        assert_eq!(bearer.token.bytes(), b"vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==");
    }

    #[test]
    fn the_error_of_rfc_7628_tells_where_to_get_a_better_token() {
        let advice = TokenAdvice {
            scope: Some("mail \"send\"".into()),
            openid_configuration: Some("https://id.example/.well-known/openid-configuration".into()),
        };
        assert_eq!(
            advice.reason(Mechanism::OauthBearer, TokenFault::Invalid),
            r#"{"status":"invalid_token","scope":"mail \"send\"","openid-configuration":"https://id.example/.well-known/openid-configuration"}"#
        );
        let none = TokenAdvice::default();
        assert_eq!(
            none.reason(Mechanism::OauthBearer, TokenFault::Scope),
            r#"{"status":"insufficient_scope"}"#
        );
        assert_eq!(
            none.reason(Mechanism::Xoauth2, TokenFault::Invalid),
            r#"{"status":"401","schemes":"bearer"}"#
        );
    }

    #[test]
    fn messages_that_are_no_bearer_tokens_are_refused() {
        for bad in [
            &b"n,,\x01auth=Basic abc\x01\x01"[..],
            b"n,,\x01auth=Bearer \x01\x01",
            b"n,,\x01auth=Bearer a b\x01\x01",
            b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
            b"n,,\x01host=x\x01\x01",
            b"n,,\x01auth=Bearer a\x01",
            b"p=tls-exporter,,\x01auth=Bearer a\x01\x01",
            b"n,,x\x01auth=Bearer a\x01\x01",
            b"",
        ] {
            assert_eq!(read_bearer(bad), None, "{bad:?}");
        }
        assert_eq!(read_xoauth2(b"user=\x01auth=Bearer a\x01\x01"), None);
    }

    #[test]
    fn what_is_written_is_read() {
        let token = Secret::new("ya29.vF9dft4qmTc2Nvb3RlckBhdHRhdmlzdGEuY29tCg");
        let xoauth2 = write_xoauth2("someuser@example.com", &token);
        assert_eq!(read_xoauth2(&xoauth2).unwrap().token, token);
        let bearer = write_bearer("a=b,c", &token);
        assert_eq!(read_bearer(&bearer).unwrap().user.as_deref(), Some("a=b,c"));
    }
}
