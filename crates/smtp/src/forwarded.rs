//! The attributes of XCLIENT and XFORWARD (Postfix, XCLIENT_README and XFORWARD_README): a client that the peer names.

use crate::{server::replies, xtext};
use mail::Reply;
use std::net::{IpAddr, Ipv4Addr};

/// Longest value, decoded.
const VALUE_MAX_BYTES: usize = 255;

/// The command whose attributes are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAttributeSet {
    /// XCLIENT.
    XClient,
    /// XFORWARD.
    XForward,
}

impl ClientAttributeSet {
    /// The names of the attributes, as EHLO's reply lists them.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::XClient => &["NAME", "ADDR", "PORT", "PROTO", "HELO", "LOGIN", "DESTADDR", "DESTPORT"],
            Self::XForward => &["NAME", "ADDR", "PORT", "PROTO", "HELO", "IDENT", "SOURCE"],
        }
    }
}

/// One attribute of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Attribute<T> {
    /// The command does not have the attribute: what is known stays.
    #[default]
    NotGiven,
    /// `[UNAVAILABLE]` or `[TEMPUNAVAIL]`: not known to the peer.
    Unavailable,
    /// Given with this value, decoded from xtext.
    Is(T),
}

impl<T> Attribute<T> {
    /// Returns what is known with this attribute, where `before` was known without.
    pub fn or(self, before: Option<T>) -> Option<T> {
        match self {
            Self::NotGiven => before,
            Self::Unavailable => None,
            Self::Is(value) => Some(value),
        }
    }
}

/// The attributes of one command. Text has no control characters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientAttributes {
    /// NAME: the host name of the client.
    pub name: Attribute<Box<str>>,
    /// ADDR. An address that is not known is 0.0.0.0.
    pub address: Option<IpAddr>,
    /// PORT: the port of the client.
    pub port: Attribute<u16>,
    /// PROTO: true for ESMTP.
    pub is_extended: Option<bool>,
    /// HELO: the name that the client gave in HELO or EHLO.
    pub hello: Attribute<Box<str>>,
    /// LOGIN: the user name of the client's login.
    pub login: Attribute<Box<str>>,
    /// DESTADDR: the address to which the client connected.
    pub local_address: Option<IpAddr>,
    /// DESTPORT: the port to which the client connected.
    pub local_port: Option<u16>,
    /// IDENT: the message's id at the peer.
    pub ident: Attribute<Box<str>>,
    /// SOURCE: true if the message did not come through a network.
    pub is_local: Option<bool>,
}

impl ClientAttributes {
    /// Reads `NAME=value …`.
    ///
    /// # Errors
    /// 501 for an attribute that the command does not have, a value that is not xtext, or one without a meaning.
    pub(crate) fn parse(text: &str, set: ClientAttributeSet) -> Result<Box<Self>, Reply> {
        let mut attributes = Box::<Self>::default();
        let mut is_any = false;
        for word in text.split_ascii_whitespace() {
            let (name, value) = word.split_once('=').ok_or(replies::BAD_ATTRIBUTE)?;
            let known = set.names().iter().find(|one| one.eq_ignore_ascii_case(name));
            let known = known.ok_or(replies::BAD_ATTRIBUTE)?;
            let value = xtext::decode(value).filter(|value| is_value(value)).ok_or(replies::BAD_ATTRIBUTE)?;
            attributes.set(known, &value).ok_or(replies::BAD_ATTRIBUTE)?;
            is_any = true;
        }
        if is_any { Ok(attributes) } else { Err(replies::BAD_ATTRIBUTE) }
    }

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let is_known = !["[UNAVAILABLE]", "[TEMPUNAVAIL]"].iter().any(|no| value.eq_ignore_ascii_case(no));
        let text = || if is_known { Attribute::Is(value.into()) } else { Attribute::Unavailable };
        let address = || if is_known { address(value) } else { Some(Ipv4Addr::UNSPECIFIED.into()) };
        let port = || value.parse().ok().filter(|_| value.bytes().all(|b| b.is_ascii_digit()));
        match name {
            "NAME" => self.name = text(),
            "HELO" => self.hello = text(),
            "LOGIN" => self.login = text(),
            "IDENT" => self.ident = text(),
            "ADDR" => self.address = Some(address()?),
            "DESTADDR" => self.local_address = Some(address()?),
            "PORT" => self.port = if is_known { Attribute::Is(port()?) } else { Attribute::Unavailable },
            "DESTPORT" => self.local_port = if is_known { Some(port()?) } else { None },
            "PROTO" if value.eq_ignore_ascii_case("ESMTP") => self.is_extended = Some(true),
            "PROTO" if value.eq_ignore_ascii_case("SMTP") => self.is_extended = Some(false),
            "PROTO" if !is_known => self.is_extended = None,
            "SOURCE" if value.eq_ignore_ascii_case("LOCAL") => self.is_local = Some(true),
            "SOURCE" if value.eq_ignore_ascii_case("REMOTE") => self.is_local = Some(false),
            "SOURCE" if !is_known => self.is_local = None,
            _ => return None,
        }
        Some(())
    }

    /// Adds the attributes of a later command.
    pub fn update(&mut self, later: Self) {
        fn replace<T>(old: &mut Attribute<T>, new: Attribute<T>) {
            if !matches!(new, Attribute::NotGiven) {
                *old = new;
            }
        }
        replace(&mut self.name, later.name);
        replace(&mut self.port, later.port);
        replace(&mut self.hello, later.hello);
        replace(&mut self.login, later.login);
        replace(&mut self.ident, later.ident);
        self.address = later.address.or(self.address);
        self.is_extended = later.is_extended.or(self.is_extended);
        self.local_address = later.local_address.or(self.local_address);
        self.local_port = later.local_port.or(self.local_port);
        self.is_local = later.is_local.or(self.is_local);
    }
}

fn is_value(value: &str) -> bool {
    !value.is_empty() && value.len() <= VALUE_MAX_BYTES
}

/// `192.0.2.1`, `IPV6:2001:db8::1`, or an IPv6 address without the prefix.
fn address(text: &str) -> Option<IpAddr> {
    match text.get(..5) {
        Some(prefix) if prefix.eq_ignore_ascii_case("IPV6:") => text[5..].parse().ok().map(IpAddr::V6),
        _ => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xclient(text: &str) -> Option<ClientAttributes> {
        ClientAttributes::parse(text, ClientAttributeSet::XClient).ok().map(|attributes| *attributes)
    }

    #[test]
    fn attributes_are_read_in_any_case_and_decoded() {
        let read = xclient(
            "name=spike.test ADDR=ipv6:2001:db8::1 PORT=25 proto=esmtp HELO=a+2Bb LOGIN=[unavailable]",
        )
        .unwrap();
        assert_eq!(read.name, Attribute::Is("spike.test".into()));
        assert_eq!(read.address, "2001:db8::1".parse().ok());
        assert_eq!((read.port, read.is_extended), (Attribute::Is(25), Some(true)));
        assert_eq!((read.hello, read.login), (Attribute::Is("a+b".into()), Attribute::Unavailable));
        assert_eq!(xclient("ADDR=[UNAVAILABLE]").unwrap().address, "0.0.0.0".parse().ok());
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        for bad in [
            "",
            "ADDR",
            "ADDR=",
            "ADDR=1.2.3",
            "ADDR=IPV6:1.2.3.4",
            "PORT=65536",
            "PORT=+1",
            "PROTO=LMTP",
            "NAME=a+0Ab",
            "NAME=+zz",
            "SOURCE=LOCAL",
            "FOO=1",
            "NAME=a FOO=1",
            "=x",
        ] {
            assert_eq!(xclient(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn later_attributes_replace_those_that_they_name() {
        let mut known = xclient("NAME=a HELO=b ADDR=192.0.2.1").unwrap();
        known.update(xclient("NAME=c HELO=[UNAVAILABLE]").unwrap());
        assert_eq!((&known.name, &known.hello), (&Attribute::Is("c".into()), &Attribute::Unavailable));
        assert_eq!(known.address, "192.0.2.1".parse().ok());
        assert_eq!(known.hello.or(Some("before".into())), None);
    }
}
