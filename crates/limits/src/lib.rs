//! Rates: how many events of a key are permitted in a time, by the generic cell rate algorithm (GCRA; ITU-T I.371, annex
//! A). Greylisting: which mail has come again (RFC 6647). Pure: the time is an argument.

mod greylist;
mod keyed;
mod rate;
mod table;

pub use greylist::{Greeted, Greylist, GreylistTimes};
pub use rate::Rate;
pub use table::{Spent, Table};

use std::net::{IpAddr, Ipv6Addr};

/// Returns the IPv4 address, or the IPv6 network /64: a client that has one address of it has them all.
pub fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4(ip),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
    }
}
