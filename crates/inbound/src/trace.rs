//! The `Received` field we put in front of what we accept (RFC 5321 §4.4).

use crate::{Client, UNIX_CLIENT};
use mail::{Envelope, QueueId, TransmissionType, UnixMillis};
use smtp::forwarded::{Attribute, ClientAttributes};
use std::{
    cell::RefCell,
    io::Write as _,
    net::{IpAddr, Ipv4Addr},
};

thread_local! {
    /// The date of the current second, since formatting it costs more than the rest of the field.
    static DATE: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
}

/// What a Received field says (RFC 5321 §4.4).
#[derive(Clone, Copy)]
pub(crate) struct Received<'a> {
    /// None: the field does not tell who the client is (RFC 6409 §8).
    pub(crate) client: Option<&'a Client>,
    pub(crate) hello: &'a str,
    pub(crate) hostname: &'a str,
    pub(crate) protocol: TransmissionType,
    pub(crate) id: QueueId,
    pub(crate) envelope: &'a Envelope,
    pub(crate) now: UnixMillis,
}

impl Received<'_> {
    /// Appends the field with its CRLF. The recipient is named only when there is no other one to
    /// betray (RFC 5321 §7.2).
    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Received: ");
        if let Some(client) = self.client {
            out.extend_from_slice(b"from ");
            out.extend(self.hello.bytes().map(|b| if is_plain(b) { b } else { b'?' }));
            if client.peer == UNIX_CLIENT {
                out.extend_from_slice(b" (local socket)");
            } else {
                let name = client.named.as_ref().and_then(|named| named_host(&named.name));
                write_address(out, name, client.peer.ip());
            }
            if let Some(source) = client.source() {
                write_source(out, source);
            }
            if let Some(cipher) = client.cipher() {
                let _ = write!(out, "\r\n\t(using {cipher})");
            }
            out.extend_from_slice(b"\r\n\t");
        }
        let _ = write!(out, "by {} (Postrider) with {} id {}", self.hostname, self.protocol, self.id);
        if let [only] = &self.envelope.recipients[..] {
            let _ = write!(out, "\r\n\tfor <{}>", only.path);
        }
        out.extend_from_slice(b";\r\n\t");
        DATE.with_borrow_mut(|(second, date)| {
            if *second != self.now.0 / 1000 {
                (*second, *date) = (self.now.0 / 1000, self.now.rfc5322());
            }
            out.extend_from_slice(date.as_bytes());
        });
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends ` (name [192.0.2.1])`.
fn write_address(out: &mut Vec<u8>, name: Option<&str>, ip: IpAddr) {
    out.extend_from_slice(b" (");
    if let Some(name) = name {
        write_name(out, name);
        out.push(b' ');
    }
    let _ = match ip.to_canonical() {
        IpAddr::V4(ip) => write!(out, "[{ip}])"),
        IpAddr::V6(ip) => write!(out, "[IPv6:{ip}])"),
    };
}

fn write_name(out: &mut Vec<u8>, name: &str) {
    out.extend(name.bytes().map(|b| if is_plain(b) { b } else { b'?' }));
}

fn named_host(name: &Attribute<Box<str>>) -> Option<&str> {
    match name {
        Attribute::Is(name) => Some(name),
        Attribute::NotGiven | Attribute::Unavailable => None,
    }
}

/// Appends a comment with the client that XFORWARD named.
fn write_source(out: &mut Vec<u8>, source: &ClientAttributes) {
    out.extend_from_slice(b"\r\n\t(forwarded for ");
    match &source.hello {
        Attribute::Is(hello) => write_name(out, hello),
        Attribute::NotGiven | Attribute::Unavailable => out.extend_from_slice(b"unknown"),
    }
    write_address(out, named_host(&source.name), source.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
    out.push(b')');
}

/// Returns whether a name in EHLO may have this octet: one of a domain or address literal. The name goes into a header.
fn is_plain(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-._:[]".contains(&b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientTls, NamedClient};
    use mail::{ForwardPath, ListenerKind, Recipient, ReversePath};

    #[test]
    fn the_field_tells_who_when_and_how() {
        let mut envelope = Envelope::new(ReversePath::Null);
        envelope.recipients.push(Recipient::new(ForwardPath::parse("b@c.test", false).unwrap()));
        let client = Client {
            peer: "192.0.2.1:25".parse().unwrap(),
            local: "192.0.2.2:25".parse().unwrap(),
            listener: ListenerKind::Mx,
            tls: Some(ClientTls {
                cipher: "TLSv1.3".into(),
                key_exchange: None,
                bindings: None,
                certificate: None,
            }),
            named: None,
        };
        let mut received = Received {
            client: Some(&client),
            hello: "a(evil)\u{e4}",
            hostname: "mx.test",
            protocol: TransmissionType::Esmtps,
            id: QueueId(1),
            envelope: &envelope,
            now: UnixMillis(1_795_242_354_048),
        };
        let mut out = Vec::new();
        received.write_to(&mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "Received: from a?evil??? ([192.0.2.1])\r\n\t(using TLSv1.3)\r\n\tby mx.test (Postrider) with ESMTPS id \
             0000000000001\r\n\tfor <b@c.test>;\r\n\tSat, 21 Nov 2026 06:25:54 +0000\r\n"
        );
        let source = ClientAttributes {
            name: Attribute::Is("spike(\r".into()),
            hello: Attribute::Is("h".into()),
            address: "2001:db8::1".parse().ok(),
            ..ClientAttributes::default()
        };
        let named =
            NamedClient { name: Attribute::Is("n.test".into()), login: None, source: Some(Box::new(source)) };
        let named = Client { named: Some(Box::new(named)), tls: None, ..client.clone() };
        let mut out = Vec::new();
        Received { client: Some(&named), ..received }.write_to(&mut out);
        let text = String::from_utf8(out).unwrap();
        let from = "Received: from a?evil??? (n.test [192.0.2.1])\r\n\t(forwarded for h (spike?? [IPv6:2001:db8::1]))\r\n\tby ";
        assert!(text.starts_with(from), "{text}");
        let mut two = envelope.clone();
        two.recipients.push(two.recipients[0].clone());
        received.envelope = &two;
        received.client = None;
        let mut out = Vec::new();
        received.write_to(&mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains("for <"));
        assert!(text.starts_with("Received: by mx.test (Postrider) with ESMTPS id 0000000000001;"), "{text}");
    }
}
