//! OAUTHBEARER (RFC 7628) and XOAUTH2: a token instead of a password.

use crate::{
    scram::gs2::{Gs2, escaped},
    secret::Secret,
};
use std::str;

/// The parts of the first message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bearer {
    /// The user whom the client names; OAUTHBEARER need not name one.
    pub(crate) user: Option<Box<str>>,
    pub(crate) token: Secret,
}

/// Separates the fields.
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

/// The token in `^Aname=value^A...^A^A`.
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
