//! Lines `network value`, as cidr_table(5) has them: the first network of the file that contains the address decides.

use crate::{
    fault::FileFault,
    lines::{key_and_value, logical_lines},
    width,
};
use ipnet::IpNet;
use std::net::IpAddr;

/// Networks with their values. Where networks overlap, the first one of the file wins, as in Postfix; so a narrow
/// network stands above a wider one.
///
/// The networks are cut into ranges that do not overlap, and a look-up is one binary search.
#[derive(Debug, Clone, Default)]
pub struct CidrTable {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
    values: Vec<Box<str>>,
}

/// Ranges of addresses, by their first address. Each ends where the next one begins.
#[derive(Debug, Clone, Default)]
struct Ranges<A> {
    firsts: Vec<A>,
    /// By range: the index of the value, or [`NONE`].
    values: Vec<u32>,
}

/// No network contains the range.
const NONE: u32 = u32::MAX;

/// A network: first and last address, and the line that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span<A> {
    first: A,
    last: A,
    value: u32,
}

impl<A: Copy + Ord> Ranges<A> {
    /// Cuts networks, which are nested or apart, into ranges. `next` adds one to an address.
    fn of(mut spans: Vec<Span<A>>, next: impl Fn(A) -> Option<A>) -> Self {
        // Of networks that begin at one address, the widest comes first: it contains the others.
        spans.sort_by(|a, b| {
            (a.first, std::cmp::Reverse(a.last), a.value).cmp(&(b.first, std::cmp::Reverse(b.last), b.value))
        });
        let mut ranges = Self { firsts: Vec::new(), values: Vec::new() };
        let mut open: Vec<Span<A>> = Vec::new();
        for span in spans {
            while let Some(inner) = open.pop_if(|inner| inner.last < span.first) {
                ranges.close(inner, &open, &next);
            }
            // A wider network that stands earlier in the file also decides here.
            let value = open.last().map_or(span.value, |outer| outer.value.min(span.value));
            ranges.begin(span.first, value);
            open.push(Span { value, ..span });
        }
        while let Some(inner) = open.pop() {
            ranges.close(inner, &open, &next);
        }
        ranges
    }

    fn close(&mut self, inner: Span<A>, open: &[Span<A>], next: &impl Fn(A) -> Option<A>) {
        if let Some(behind) = next(inner.last) {
            self.begin(behind, open.last().map_or(NONE, |outer| outer.value));
        }
    }

    fn begin(&mut self, first: A, value: u32) {
        if self.firsts.last() == Some(&first) {
            self.values.pop();
            self.firsts.pop();
        }
        if self.values.last().copied().unwrap_or(NONE) != value {
            self.firsts.push(first);
            self.values.push(value);
        }
    }

    fn find(&self, address: A) -> Option<u32> {
        let behind = self.firsts.partition_point(|first| *first <= address);
        let value = self.values[behind.checked_sub(1)?];
        (value != NONE).then_some(value)
    }
}

impl CidrTable {
    /// Reads lines `network value`. A network is `10.0.0.0/8`, `2001:db8::/32` or one address; the value may be empty.
    ///
    /// # Errors
    /// The first fault with its place: a text that is no network, or bits behind the prefix.
    pub fn parse(file: &str) -> Result<Self, FileFault> {
        let (mut v4, mut v6, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for line in logical_lines(file) {
            let (key, value, _) = key_and_value(&line.text);
            let fault = |what: String, help: String| FileFault::at(file, line.offset(0), what, help);
            if key.starts_with('!') || key.eq_ignore_ascii_case("if") || key.eq_ignore_ascii_case("endif") {
                let what = "`!`, `if` and `endif` are not supported".to_owned();
                return Err(fault(what, "write each network in full".to_owned()));
            }
            let net = network(key).map_err(|(what, help)| fault(what, help))?;
            let index = u32::try_from(values.len()).unwrap_or(NONE);
            if index == NONE {
                return Err(fault("too many networks".to_owned(), "write fewer".to_owned()));
            }
            values.push(value.into());
            match net {
                IpNet::V4(net) => {
                    let (first, last) = (net.network().to_bits(), net.broadcast().to_bits());
                    v4.push(Span { first, last, value: index });
                }
                IpNet::V6(net) => {
                    let (first, last) = (net.network().to_bits(), net.broadcast().to_bits());
                    v6.push(Span { first, last, value: index });
                }
            }
        }
        Ok(Self {
            v4: Ranges::of(v4, |a| a.checked_add(1)),
            v6: Ranges::of(v6, |a| a.checked_add(1)),
            values,
        })
    }

    /// As [`Self::parse`], for networks whose clients may relay.
    ///
    /// # Errors
    /// Those of [`Self::parse`], and networks that [are too wide](crate::are_too_wide), with the place of the widest one.
    pub fn parse_for_relaying(file: &str) -> Result<Self, FileFault> {
        let table = Self::parse(file)?;
        if !width::exceed(used(&table.v4, u32::MAX), used(&table.v6, u128::MAX)) {
            return Ok(table);
        }
        let width = |text: &str| network(key_and_value(text).0).map_or(u8::MAX, |net| net.prefix_len());
        let widest = logical_lines(file).min_by_key(|line| width(&line.text));
        let at = widest.map_or(0, |line| line.offset(0));
        let what = "these networks make this an open relay";
        Err(FileFault::at(file, at, what, "name the networks that may send anywhere"))
    }

    /// The value of the first network that contains the address; none for a text that is no address.
    pub fn get(&self, key: &str) -> Option<&str> {
        let key = key.strip_prefix('[').and_then(|key| key.strip_suffix(']')).unwrap_or(key);
        self.find(key.parse().ok()?)
    }

    /// The value of the first network that contains the address.
    pub fn find(&self, address: IpAddr) -> Option<&str> {
        let found = match address.to_canonical() {
            IpAddr::V4(address) => self.v4.find(address.to_bits()),
            IpAddr::V6(address) => self.v6.find(address.to_bits()),
        };
        Some(&self.values[found? as usize])
    }

    /// Number of networks.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns whether the table has no network.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// Returns the ranges that have a value, from the first to the last address.
fn used<A: Copy + Into<u128>>(ranges: &Ranges<A>, last: A) -> impl Iterator<Item = (u128, u128)> {
    let behind = ranges.firsts.iter().skip(1).map(|next| (*next).into() - 1).chain([last.into()]);
    let all = ranges.firsts.iter().map(|first| (*first).into()).zip(behind).zip(&ranges.values);
    all.filter(|(_, value)| **value != NONE).map(|(range, _)| range)
}

fn network(text: &str) -> Result<IpNet, (String, String)> {
    let inner = text.strip_prefix('[').map(|inner| inner.replacen(']', "", 1));
    let text = inner.as_deref().unwrap_or(text);
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(ip.to_canonical().into());
    }
    let help = "write a network such as 10.0.0.0/8 or 2001:db8::/32, or one address".to_owned();
    let net: IpNet = text.parse().map_err(|_| (format!("`{text}` is not a network"), help))?;
    // A client has the address of IPv4.
    let net = width::mapped_v4(net).map_or(net, IpNet::V4);
    if net == net.trunc() {
        return Ok(net);
    }
    Err((format!("{net} has bits set behind the prefix"), format!("write {}", net.trunc())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_network_of_the_file_decides() {
        let file = "10.1.2.3 one\n10.1.0.0/16 narrow\n10.0.0.0/8 wide\n10.9.0.0/16 never\n\
                    2001:db8::/32 six\n0.0.0.0/0 rest\n192.0.2.0/24 never\n";
        let table = CidrTable::parse(file).unwrap();
        for (address, value) in [
            ("10.1.2.3", Some("one")),
            ("10.1.2.4", Some("narrow")),
            ("10.1.255.255", Some("narrow")),
            ("10.2.0.0", Some("wide")),
            ("10.9.1.1", Some("wide")),
            ("::ffff:10.9.1.1", Some("wide")),
            ("11.0.0.0", Some("rest")),
            ("255.255.255.255", Some("rest")),
            ("192.0.2.1", Some("rest")),
            ("[2001:db8::1]", Some("six")),
            ("2001:db9::", None),
            ("example.com", None),
            ("", None),
        ] {
            assert_eq!(table.get(address), value, "{address}");
        }
        assert_eq!(table.len(), 7);
    }

    #[test]
    fn networks_for_relaying_are_not_the_whole_internet() {
        let fault = |file: &str| CidrTable::parse_for_relaying(file).err().map(|fault| fault.line);
        assert_eq!(fault(""), None);
        assert_eq!(
            fault("10.0.0.0/8 x\n# all private\n192.168.0.0/16 x\nfc00::/7 x\n2001:db8::/32 x\n"),
            None
        );
        assert_eq!(fault("10.0.0.0/8 x\n0.0.0.0/0 x\n"), Some(2));
        assert_eq!(fault("10.0.0.0/8 x\n\n128.0.0.0/1 x\n0.0.0.0/1 y\n"), Some(3));
        assert_eq!(fault("10.0.0.0/8 x\n::/0 x\n"), Some(2));
    }

    #[test]
    fn a_bad_network_is_told_with_its_place() {
        for (file, line) in [
            ("10.0.0.0/8 x\n10.1.2.3/8 x\n", 2),
            ("example.com x\n", 1),
            ("10.0.0.0/33 x\n", 1),
            ("!10.0.0.0/8 x\n", 1),
            ("if 10.0.0.0/8\n", 1),
        ] {
            let fault = CidrTable::parse(file).unwrap_err();
            assert_eq!((fault.line, fault.column), (line, 1), "{file}");
        }
        let fault = CidrTable::parse("10.1.2.3/8 x\n").unwrap_err();
        assert_eq!(fault.help, "write 10.0.0.0/8");
    }

    /// Networks in a small part of the address space, so that they are nested.
    fn networks() -> impl Strategy<Value = Vec<IpNet>> {
        let net = (0..64_u32, 24..=32_u8).prop_map(|(host, prefix)| {
            let address = IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 + host * 7));
            IpNet::new(address, prefix).unwrap().trunc()
        });
        proptest::collection::vec(net, 0..40)
    }

    proptest! {
        #[test]
        fn the_ranges_say_what_the_lines_say_in_their_order(nets in networks(), host in 0..600_u32) {
            let file: String = nets.iter().enumerate().map(|(n, net)| format!("{net} {n}\n")).collect();
            let table = CidrTable::parse(&file).unwrap();
            let address = IpAddr::from(std::net::Ipv4Addr::from(0x09ff_ff80 + host));
            let first = nets.iter().position(|net| net.contains(&address)).map(|n| n.to_string());
            prop_assert_eq!(table.find(address), first.as_deref());
        }
    }
}
