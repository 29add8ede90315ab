//! PLAIN (RFC 4616).

use crate::secret::Secret;
use std::str;

/// Octets of a name or password at most (RFC 4616 §2).
pub(crate) const MAX_BYTES: usize = 255;

/// What the client says in its only message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plain<'m> {
    /// The identity to act as; empty: the user's own.
    pub(crate) authzid: &'m str,
    pub(crate) user: &'m str,
    pub(crate) password: Secret,
}

/// Reads `[authzid] NUL user NUL password`.
pub(crate) fn read(message: &[u8]) -> Option<Plain<'_>> {
    let mut parts = message.split(|b| *b == 0);
    let (authzid, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    let is_good = parts.next().is_none()
        && !user.is_empty()
        && !password.is_empty()
        && [authzid, user, password].iter().all(|part| part.len() <= MAX_BYTES);
    let password = str::from_utf8(password).ok()?;
    let parts = (str::from_utf8(authzid).ok()?, str::from_utf8(user).ok()?);
    is_good.then(|| Plain { authzid: parts.0, user: parts.1, password: Secret::new(password) })
}

/// Writes the message of a client.
pub(crate) fn write(user: &str, password: &Secret) -> Vec<u8> {
    let mut message = vec![0];
    message.extend_from_slice(user.as_bytes());
    message.push(0);
    message.extend_from_slice(password.bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_4616_are_read() {
        let read =
            |message: &'static [u8]| read(message).map(|p| (p.authzid, p.user, p.password.bytes().to_vec()));
        assert_eq!(read(b"\0tim\0tanstaaftanstaaf"), Some(("", "tim", b"tanstaaftanstaaf".to_vec())));
        assert_eq!(read(b"Ursel\0Kurt\0xipj3plmq"), Some(("Ursel", "Kurt", b"xipj3plmq".to_vec())));
        for bad in [&b""[..], b"\0tim", b"\0\0p", b"\0u\0", b"\0u\0p\0", b"\0u\0\xff"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let message = write("joe@example.com", &Secret::new("a b"));
        let plain = read(&message).unwrap();
        assert_eq!((plain.authzid, plain.user, plain.password.bytes()), ("", "joe@example.com", &b"a b"[..]));
    }
}
