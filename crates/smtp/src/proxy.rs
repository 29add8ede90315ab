//! The PROXY protocol, versions 1 and 2 (HAProxy, "The PROXY protocol"): the first bytes of a connection, in which a load balancer
//! names the client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The first octets of version 2.
pub const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Octets of the header of version 2 before the addresses.
pub const V2_HEAD_BYTES: usize = 16;
/// Octets of a header at most, with what is appended to the addresses of version 2.
pub const MAX_BYTES: usize = 536;
/// Octets of a line of version 1 at most, with its CRLF.
pub const V1_MAX_BYTES: usize = 107;

/// The ends of the connection between client and load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proxied {
    /// A client behind the load balancer, with both ends of its own connection.
    Client {
        /// Where the client connected from.
        peer: SocketAddr,
        /// The address to which the client connected.
        local: SocketAddr,
    },
    /// The load balancer itself: the connection's own ends count.
    Own,
    /// A client whose address is not known. It must have no right that the load balancer has.
    Unknown,
}

/// A fault of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// Reads the line of version 1, with its CRLF.
///
/// # Errors
/// The line is no header.
pub fn parse_v1(line: &[u8]) -> Result<Proxied, Malformed> {
    let text = line.strip_suffix(b"\r\n").filter(|_| line.len() <= V1_MAX_BYTES).ok_or(Malformed)?;
    let text = std::str::from_utf8(text).map_err(|_| Malformed)?;
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        ["PROXY", "UNKNOWN", ..] => Ok(Proxied::Unknown),
        ["PROXY", family @ ("TCP4" | "TCP6"), peer, local, peer_port, local_port] => {
            let end = |ip: &str, port: &str| {
                let ip: IpAddr = ip.parse().map_err(|_| Malformed)?;
                let is_number =
                    port.bytes().all(|b| b.is_ascii_digit()) && (port == "0" || !port.starts_with('0'));
                let port: u16 = port.parse().ok().filter(|_| is_number).ok_or(Malformed)?;
                if ip.is_ipv4() == (family == "TCP4") {
                    Ok(SocketAddr::new(ip, port))
                } else {
                    Err(Malformed)
                }
            };
            Ok(Proxied::Client { peer: end(peer, peer_port)?, local: end(local, local_port)? })
        }
        _ => Err(Malformed),
    }
}

/// Returns the octets that follow the first [`V2_HEAD_BYTES`] of version 2.
///
/// # Errors
/// It is no header of version 2, or longer than [`MAX_BYTES`].
pub fn v2_rest_bytes(head: &[u8; V2_HEAD_BYTES]) -> Result<usize, Malformed> {
    let length = usize::from(u16::from_be_bytes([head[14], head[15]]));
    let is_v2 = head[..12] == SIGNATURE && head[12] >> 4 == 2;
    if is_v2 && V2_HEAD_BYTES + length <= MAX_BYTES { Ok(length) } else { Err(Malformed) }
}

/// Reads a header of version 2. What follows the addresses (TLVs) has no effect.
///
/// # Errors
/// It is no header.
pub fn parse_v2(head: &[u8; V2_HEAD_BYTES], rest: &[u8]) -> Result<Proxied, Malformed> {
    if v2_rest_bytes(head)? != rest.len() {
        return Err(Malformed);
    }
    let port = |at: usize| Some(u16::from_be_bytes([*rest.get(at)?, *rest.get(at + 1)?]));
    match (head[12] & 15, head[13]) {
        // LOCAL: a health check of the load balancer.
        (0, _) => Ok(Proxied::Own),
        // PROXY over TCP with IPv4, with IPv6.
        (1, 0x11) => {
            let ip = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(rest.get(at..at + 4)?).ok()?));
            let end = |at, port_at| Some(SocketAddr::new(ip(at)?.into(), port(port_at)?));
            client(end(0, 8), end(4, 10))
        }
        (1, 0x21) => {
            let ip = |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(rest.get(at..at + 16)?).ok()?));
            let end = |at, port_at| Some(SocketAddr::new(ip(at)?.into(), port(port_at)?));
            client(end(0, 32), end(16, 34))
        }
        // PROXY over something else: no address that mail could be judged by.
        (1, 0) => Ok(Proxied::Unknown),
        _ => Err(Malformed),
    }
}

fn client(peer: Option<SocketAddr>, local: Option<SocketAddr>) -> Result<Proxied, Malformed> {
    let (Some(peer), Some(local)) = (peer, local) else { return Err(Malformed) };
    Ok(Proxied::Client { peer, local })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxied(peer: &str, local: &str) -> Proxied {
        Proxied::Client { peer: peer.parse().unwrap(), local: local.parse().unwrap() }
    }

    #[test]
    fn a_line_of_version_1_names_both_ends() {
        for (line, expected) in [
            ("PROXY TCP4 192.0.2.1 192.0.2.2 1234 25\r\n", Ok(proxied("192.0.2.1:1234", "192.0.2.2:25"))),
            ("PROXY TCP6 2001:db8::1 ::1 1 0\r\n", Ok(proxied("[2001:db8::1]:1", "[::1]:0"))),
            ("PROXY UNKNOWN\r\n", Ok(Proxied::Unknown)),
            ("PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", Ok(Proxied::Unknown)),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 1234 25\n", Err(Malformed)),
            ("PROXY TCP4 2001:db8::1 192.0.2.2 1234 25\r\n", Err(Malformed)),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 01234 25\r\n", Err(Malformed)),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 +1234 25\r\n", Err(Malformed)),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 65536 25\r\n", Err(Malformed)),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 1234\r\n", Err(Malformed)),
            ("PROXY TCP4  192.0.2.1 192.0.2.2 1234 25\r\n", Err(Malformed)),
            ("proxy UNKNOWN\r\n", Err(Malformed)),
            ("EHLO x\r\n", Err(Malformed)),
            ("", Err(Malformed)),
        ] {
            assert_eq!(parse_v1(line.as_bytes()), expected, "{line:?}");
        }
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(V1_MAX_BYTES));
        assert_eq!(parse_v1(long.as_bytes()), Err(Malformed));
    }

    fn v2(command: u8, family: u8, rest: &[u8]) -> Result<Proxied, Malformed> {
        let mut head = [0; V2_HEAD_BYTES];
        head[..12].copy_from_slice(&SIGNATURE);
        (head[12], head[13]) = (command, family);
        head[14..].copy_from_slice(&(rest.len() as u16).to_be_bytes());
        parse_v2(&head, rest)
    }

    #[test]
    fn a_header_of_version_2_names_both_ends() {
        let v4 = [192, 0, 2, 1, 192, 0, 2, 2, 4, 210, 0, 25];
        let expected = Ok(proxied("192.0.2.1:1234", "192.0.2.2:25"));
        assert_eq!(v2(0x21, 0x11, &v4), expected);
        // A TLV follows.
        assert_eq!(v2(0x21, 0x11, &[&v4[..], &[4, 0, 1, 0]].concat()), expected);
        let mut v6 = [0; 36];
        (v6[15], v6[31], v6[33], v6[35]) = (1, 2, 3, 4);
        assert_eq!(v2(0x21, 0x21, &v6), Ok(proxied("[::1]:3", "[::2]:4")));
        assert_eq!(v2(0x20, 0x11, &v4), Ok(Proxied::Own), "LOCAL");
        assert_eq!(v2(0x21, 0, &[]), Ok(Proxied::Unknown));
        for (command, family, rest) in [
            (0x21, 0x11, &v4[..11]),
            (0x22, 0x11, &v4),
            (0x11, 0x11, &v4),
            (0x21, 0x21, &v6[..35]),
            (0x21, 0x12, &v4),
        ] {
            assert_eq!(v2(command, family, rest), Err(Malformed), "{command} {family}");
        }
        assert!(v2(0x21, 0x11, &[0; MAX_BYTES - V2_HEAD_BYTES]).is_ok());
        assert_eq!(v2(0x21, 0x11, &[0; MAX_BYTES]), Err(Malformed));
    }
}
