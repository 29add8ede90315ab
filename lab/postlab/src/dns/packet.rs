//! Questions and answers of DNS (RFC 1035), as far as a mail server needs them.

use std::net::Ipv4Addr;

/// The type of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    A,
    Aaaa,
    Cname,
    Mx,
    Ptr,
    Txt,
    Tlsa,
    Other,
}

impl Kind {
    pub(super) const ALL: [Self; 8] =
        [Self::Mx, Self::A, Self::Aaaa, Self::Cname, Self::Tlsa, Self::Txt, Self::Ptr, Self::Other];

    fn of(number: u16) -> Self {
        match number {
            1 => Self::A,
            5 => Self::Cname,
            12 => Self::Ptr,
            15 => Self::Mx,
            16 => Self::Txt,
            28 => Self::Aaaa,
            52 => Self::Tlsa,
            _ => Self::Other,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::Aaaa => "AAAA",
            Self::Cname => "CNAME",
            Self::Mx => "MX",
            Self::Ptr => "PTR",
            Self::Txt => "TXT",
            Self::Tlsa => "TLSA",
            Self::Other => "other",
        }
    }
}

/// A query with one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    id: [u8; 2],
    wants_recursion: bool,
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The question as it came, with type and class.
    section: Vec<u8>,
}

const HEADER: usize = 12;

impl Question {
    /// Nothing if it is no query, or not understood.
    pub(super) fn parse(packet: &[u8]) -> Option<Self> {
        let header = packet.get(..HEADER)?;
        // An answer, or another number of questions.
        if header[2] & 0x80 != 0 || header[4..6] != [0, 1] {
            return None;
        }
        let (mut at, mut labels) = (HEADER, Vec::new());
        loop {
            let length = usize::from(*packet.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            // A question has no pointer.
            if length > 63 {
                return None;
            }
            labels.push(String::from_utf8_lossy(packet.get(at..at + length)?).to_ascii_lowercase());
            at += length;
        }
        let kind = packet.get(at..at + 2)?;
        let section = packet.get(HEADER..at + 4)?.to_vec();
        Some(Self {
            id: [header[0], header[1]],
            wants_recursion: header[2] & 1 != 0,
            name: labels.join("."),
            kind: Kind::of(u16::from_be_bytes([kind[0], kind[1]])),
            section,
        })
    }

    /// Returns the answer: an exchanger for MX, an address for A, and no data for all else, with the SOA record without
    /// which a resolver must not keep such an answer (RFC 2308, section 5).
    pub(super) fn answer(&self, address: Ipv4Addr, ttl: u32) -> Vec<u8> {
        // A pointer to the name of the question.
        const NAME: [u8; 2] = [0xc0, HEADER as u8];
        let (is_answer, kind, data) = match self.kind {
            Kind::A => (true, 1u16, address.octets().to_vec()),
            // Preference 10, and `mx` before the name, unless that would be no name any more.
            Kind::Mx if self.name.len() < 240 => (true, 15, [&[0, 10, 2, b'm', b'x'][..], &NAME].concat()),
            // The root as server and mailbox; serial, refresh, retry and expire; the time for which there is no data.
            _ => (false, 6, [&[0; 2 + 16][..], &ttl.to_be_bytes()].concat()),
        };
        let mut out = self.id.to_vec();
        // An authoritative answer without an error; recursion is available.
        out.extend([
            0x84 | u8::from(self.wants_recursion),
            0x80,
            0,
            1,
            0,
            u8::from(is_answer),
            0,
            u8::from(!is_answer),
            0,
            0,
        ]);
        out.extend(&self.section);
        out.extend(NAME);
        out.extend(kind.to_be_bytes());
        out.extend([0, 1]);
        out.extend(ttl.to_be_bytes());
        out.extend((data.len() as u16).to_be_bytes());
        out.extend(data);
        out
    }
}

/// Returns the address in a label of a name, as in `ip-192-0-2-1.example`.
pub(super) fn address_in(name: &str) -> Option<Ipv4Addr> {
    name.split('.').find_map(|label| label.strip_prefix("ip-")?.replace('-', ".").parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(kind: u16) -> Vec<u8> {
        let mut packet = vec![7, 8, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'A', 4, b't', b'e', b's', b't', 0];
        packet.extend(kind.to_be_bytes());
        packet.extend([0, 1]);
        packet
    }

    #[test]
    fn a_domain_has_an_exchanger_and_a_name_has_an_address() {
        let question = Question::parse(&query(15)).unwrap();
        assert_eq!((question.name.as_str(), question.kind), ("a.test", Kind::Mx));
        let answer = question.answer(Ipv4Addr::new(127, 0, 0, 9), 60);
        assert_eq!(answer[..12], [7, 8, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(answer[12..24], query(15)[12..]);
        assert_eq!(answer[24..], [0xc0, 12, 0, 15, 0, 1, 0, 0, 0, 60, 0, 7, 0, 10, 2, b'm', b'x', 0xc0, 12]);
        let answer = Question::parse(&query(1)).unwrap().answer(Ipv4Addr::new(127, 0, 0, 9), 60);
        assert_eq!(answer[answer.len() - 6..], [0, 4, 127, 0, 0, 9]);
        // No data is an answer too.
        let answer = Question::parse(&query(28)).unwrap().answer(Ipv4Addr::LOCALHOST, 60);
        assert_eq!((answer[7], answer[9]), (0, 1), "no answer, and one record of the authority");
        assert_eq!(answer[24..36], [0xc0, 12, 0, 6, 0, 1, 0, 0, 0, 60, 0, 22]);
        assert_eq!((answer.len(), &answer[54..]), (58, &[0, 0, 0, 60][..]));
    }

    #[test]
    fn a_name_can_tell_its_address() {
        assert_eq!(address_in("mx.ip-127-2-0-255.slow.test"), Some(Ipv4Addr::new(127, 2, 0, 255)));
        for other in ["mx.slow.test", "ip-127-2-0.test", "ip-127-2-0-256.test", "127-2-0-1.test"] {
            assert_eq!(address_in(other), None, "{other}");
        }
    }

    #[test]
    fn nothing_else_is_answered_at_any_length() {
        let good = query(15);
        assert!((0..good.len()).all(|length| Question::parse(&good[..length]).is_none()));
        let mut answer = good.clone();
        answer[2] |= 0x80;
        assert_eq!(Question::parse(&answer), None);
        let mut pointer = good;
        pointer[12] = 0xc0;
        assert_eq!(Question::parse(&pointer), None);
    }
}
