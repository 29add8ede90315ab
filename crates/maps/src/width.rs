//! The width of networks: clients that may relay must not be those of half the Internet.

use ipnet::{IpNet, Ipv4Net};

/// Networks of more IPv4 addresses than this are not those of one site. 16 times 10.0.0.0/8.
const V4_MAX: u128 = 1 << 28;
/// As [`V4_MAX`], of the addresses in [`GLOBAL_V6`].
const V6_MAX: u128 = 1 << 120;
/// 2000::/3, of which all public IPv6 addresses are.
const GLOBAL_V6: (u128, u128) = (0x2 << 124, (0x4 << 124) - 1);

/// Returns whether the networks together have so many public addresses that they cannot be those of one site, so that they would
/// make a mail server an open relay: a sixteenth of IPv4, or a 32nd of 2000::/3.
pub fn are_too_wide(networks: &[IpNet]) -> bool {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for network in IpNet::aggregate(&networks.to_vec()) {
        match network {
            IpNet::V4(net) => v4.push((net.network().to_bits().into(), net.broadcast().to_bits().into())),
            IpNet::V6(net) => v6.push((net.network().to_bits(), net.broadcast().to_bits())),
        }
    }
    exceed(v4.into_iter(), v6.into_iter())
}

/// Returns whether ranges that do not overlap, from a first to a last address, are too wide.
pub(crate) fn exceed(v4: impl Iterator<Item = (u128, u128)>, v6: impl Iterator<Item = (u128, u128)>) -> bool {
    let count = |(first, last): (u128, u128)| last.checked_sub(first).map_or(0, |distance| distance + 1);
    let global = v6.map(|(first, last)| (first.max(GLOBAL_V6.0), last.min(GLOBAL_V6.1)));
    v4.map(count).sum::<u128>() > V4_MAX || global.map(count).sum::<u128>() > V6_MAX
}

/// Returns the IPv4 network that is written as a part of `::ffff:0:0/96`. No client has such an address: it has that of IPv4.
pub fn mapped_v4(network: IpNet) -> Option<Ipv4Net> {
    let IpNet::V6(net) = network else { return None };
    let (address, length) = net.network().to_ipv4_mapped().zip(net.prefix_len().checked_sub(96))?;
    Ipv4Net::new(address, length).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_site_can_have_is_not_too_wide() {
        let wide = |list: &[&str]| {
            are_too_wide(&list.iter().map(|network| network.parse().unwrap()).collect::<Vec<_>>())
        };
        let private =
            ["10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fe80::/10"];
        assert!(!wide(&[]) && !wide(&private) && !wide(&["44.0.0.0/8", "44.0.0.0/8", "2001:db8::/19"]));
        for list in [
            &["0.0.0.0/0"][..],
            &["::/0"],
            &["2000::/3"],
            &["0.0.0.0/1", "128.0.0.0/1"],
            &["::/1", "8000::/1"],
        ] {
            assert!(wide(list), "{list:?}");
        }
        let parts: Vec<String> = (0..32).map(|n| format!("{n}.0.0.0/8")).collect();
        assert!(wide(&parts.iter().map(String::as_str).collect::<Vec<_>>()));
        let mapped = |network: &str| mapped_v4(network.parse().unwrap()).map(|net| net.to_string());
        assert_eq!(mapped("::ffff:10.0.0.0/104").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(
            (mapped("::ffff:0:0/95"), mapped("::a00:0/104"), mapped("10.0.0.0/8")),
            (None, None, None)
        );
    }
}
