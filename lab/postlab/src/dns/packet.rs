//! Questions and answers of DNS, as far as a mail server needs them.

use hickory_proto::{
    op::{Message, MessageType, OpCode, Query},
    rr::{
        Name, RData, Record, RecordType,
        rdata::{A, MX, SOA},
    },
};
use std::net::Ipv4Addr;

/// The types that are counted by themselves, and all others.
pub(super) const KINDS: [&str; 8] = ["MX", "A", "AAAA", "CNAME", "TLSA", "TXT", "PTR", "other"];

/// A query with one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    id: u16,
    wants_recursion: bool,
    query: Query,
    /// In lower case, without the final dot.
    pub(super) name: String,
}

impl Question {
    /// Nothing if it is no query, or not understood.
    pub(super) fn parse(packet: &[u8]) -> Option<Self> {
        let message = Message::from_vec(packet).ok()?;
        let [query] = &message.queries[..] else { return None };
        let name = query.name().to_ascii().trim_end_matches('.').to_ascii_lowercase();
        let metadata = &message.metadata;
        (metadata.message_type == MessageType::Query).then(|| Self {
            id: metadata.id,
            wants_recursion: metadata.recursion_desired,
            query: query.clone(),
            name,
        })
    }

    /// Returns the type, as it is counted.
    pub(super) fn kind(&self) -> &'static str {
        let own = self.query.query_type().to_string();
        KINDS.into_iter().find(|kind| **kind == *own).unwrap_or("other")
    }

    /// Returns the answer: an exchanger for MX, an address for A, and no data for all else, with the SOA record without
    /// which a resolver must not keep such an answer (RFC 2308, section 5).
    pub(super) fn answer(&self, address: Ipv4Addr, ttl: u32) -> Option<Vec<u8>> {
        let name = self.query.name().clone();
        let mut message = Message::response(self.id, OpCode::Query);
        message.metadata.authoritative = true;
        message.metadata.recursion_desired = self.wants_recursion;
        message.metadata.recursion_available = true;
        message.add_query(self.query.clone());
        let exchanger = name.prepend_label("mx").ok();
        let data = match (self.query.query_type(), exchanger) {
            (RecordType::A, _) => Some(RData::A(A(address))),
            (RecordType::MX, Some(exchanger)) => Some(RData::MX(MX::new(10, exchanger))),
            _ => None,
        };
        match data {
            Some(data) => message.add_answer(Record::from_rdata(name, ttl, data)),
            None => {
                let soa = SOA::new(Name::root(), Name::root(), 0, 0, 0, 0, ttl);
                message.add_authority(Record::from_rdata(name, ttl, RData::SOA(soa)))
            }
        };
        message.to_vec().ok()
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

    fn answer(kind: u16) -> Vec<u8> {
        Question::parse(&query(kind)).unwrap().answer(Ipv4Addr::new(127, 0, 0, 9), 60).unwrap()
    }

    #[test]
    fn a_domain_has_an_exchanger_and_a_name_has_an_address() {
        let question = Question::parse(&query(15)).unwrap();
        assert_eq!((question.name.as_str(), question.kind()), ("a.test", "MX"));
        let mx = answer(15);
        assert_eq!(mx[..12], [7, 8, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(mx[12..24], query(15)[12..]);
        assert_eq!(mx[24..], [0xc0, 12, 0, 15, 0, 1, 0, 0, 0, 60, 0, 7, 0, 10, 2, b'm', b'x', 0xc0, 12]);
        let address = answer(1);
        assert_eq!(address[address.len() - 6..], [0, 4, 127, 0, 0, 9]);
        // No data is an answer too.
        let nothing = answer(28);
        assert_eq!((nothing[7], nothing[9]), (0, 1), "no answer, and one record of the authority");
        assert_eq!(nothing[24..36], [0xc0, 12, 0, 6, 0, 1, 0, 0, 0, 60, 0, 22]);
        assert_eq!((nothing.len(), &nothing[54..]), (58, &[0, 0, 0, 60][..]));
        assert_eq!(Question::parse(&query(99)).unwrap().kind(), "other");
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
