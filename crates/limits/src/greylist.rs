//! Greylisting (RFC 6647): mail of an unknown origin is asked to come again, and is known then.

use crate::keyed::{Keyed, NoHash, SEED_BYTES, number};
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
};

/// What came once and has not come again is kept for at most so many senders and recipients of one network: strangers do not fill
/// the table by themselves.
const WAITING_OF_NETWORK: u32 = 10_000;
/// The begin of the bytes of [`Greylist::to_bytes`].
const MAGIC: &[u8; 8] = b"PRGREY1\n";
const ORIGIN_BYTES: usize = 8 + 8 + 8 + 8 + 1;
const NETWORK_BYTES: usize = 8 + 8 + 4;

/// How long an origin waits, and how long it is remembered. All times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GreylistTimes {
    /// Mail that comes again earlier is asked to come again.
    pub wait: u64,
    /// Mail that comes again later than this is new.
    pub retry: u64,
    /// An origin, or a network, that has sent nothing for so long is forgotten.
    pub keep: u64,
    /// A network is known when so many origins of it have come again. Zero: no network ever is.
    pub known_after: u32,
}

/// What becomes of mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Greeted {
    /// Its origin, or the client's network, is known.
    Known,
    /// It has to come again, in so many seconds or later.
    Wait(u64),
    /// It is not known, and there is no room to remember it.
    Full,
}

/// Which origins have come again: networks with a sender and a recipient. Names are kept as hashes of 64 bits with a secret seed.
#[derive(Debug, Clone)]
pub struct Greylist {
    keyed: Keyed,
    origins: HashMap<u64, Origin, NoHash>,
    networks: HashMap<u64, Network, NoHash>,
    max: usize,
    is_changed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Origin {
    network: u64,
    /// When the origin came first, in Unix seconds.
    first: u64,
    /// When the origin came last, in Unix seconds.
    last: u64,
    has_come_again: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Network {
    /// Origins that have not come again yet.
    waiting: u32,
    /// How often an origin came again for the first time.
    returned: u32,
    /// Unix seconds of the last mail.
    last: u64,
}

impl Origin {
    /// Does its mail have to wait still?
    fn waits(&self, now: u64, times: GreylistTimes) -> bool {
        !self.has_come_again && now < self.first.saturating_add(times.wait)
    }

    /// Is it remembered still?
    fn is_in_time(&self, now: u64, times: GreylistTimes) -> bool {
        let kept = if self.has_come_again { times.keep } else { times.retry };
        now <= self.last.saturating_add(kept)
    }
}

impl Greylist {
    /// An empty list of at most `max` origins. Nobody else knows the seed.
    pub fn new(seed: [u8; SEED_BYTES], max: usize) -> Self {
        Self {
            keyed: Keyed::new(seed),
            origins: HashMap::default(),
            networks: HashMap::default(),
            max,
            is_changed: false,
        }
    }

    /// Judges mail from a client at a time in Unix seconds, and remembers it. Sender and recipient are keys, with equal text for equal
    /// addresses; the null reverse-path is empty.
    pub fn judge(&mut self, client: IpAddr, from: &str, to: &str, now: u64, times: GreylistTimes) -> Greeted {
        let (network_key, key) = self.keys(client, from, to);
        let greeted = self.judged(network_key, key, now, times);
        if greeted == Greeted::Known {
            self.note_return(network_key, key, now);
        } else if self.origins.get(&key).is_none_or(|origin| !origin.waits(now, times)) {
            return self.begin(key, network_key, now, times);
        }
        greeted
    }

    /// Remembers mail of an origin that is known, or that has come again.
    fn note_return(&mut self, network_key: u64, key: u64, now: u64) {
        let network = self.networks.entry(network_key).or_default();
        self.is_changed |= network.last != now;
        network.last = now;
        if let Some(origin) = self.origins.get_mut(&key) {
            self.is_changed |= origin.last != now || !origin.has_come_again;
            origin.last = now;
            if !origin.has_come_again {
                origin.has_come_again = true;
                network.waiting = network.waiting.saturating_sub(1);
                network.returned = network.returned.saturating_add(1);
            }
        }
    }

    /// Remembers an origin that is new, or whose time is over.
    fn begin(&mut self, key: u64, network_key: u64, now: u64, times: GreylistTimes) -> Greeted {
        self.remove(key);
        if self.origins.len() >= self.max {
            self.forget(now, times);
            if self.origins.len() >= self.max {
                return Greeted::Full;
            }
        }
        let network = self.networks.entry(network_key).or_default();
        if network.waiting < WAITING_OF_NETWORK {
            network.waiting += 1;
            let origin = Origin { network: network_key, first: now, last: now, has_come_again: false };
            self.origins.insert(key, origin);
            self.is_changed = true;
        }
        Greeted::Wait(times.wait)
    }

    fn remove(&mut self, key: u64) {
        if let Some(origin) = self.origins.remove(&key)
            && !origin.has_come_again
            && let Some(network) = self.networks.get_mut(&origin.network)
        {
            network.waiting = network.waiting.saturating_sub(1);
        }
    }

    /// Removes what was kept long enough.
    pub fn forget(&mut self, now: u64, times: GreylistTimes) {
        let networks = &mut self.networks;
        self.origins.retain(|_, origin| {
            let is_kept = origin.is_in_time(now, times);
            if !is_kept
                && !origin.has_come_again
                && let Some(network) = networks.get_mut(&origin.network)
            {
                network.waiting = network.waiting.saturating_sub(1);
            }
            is_kept
        });
        networks.retain(|_, network| {
            network.waiting > 0 || network.returned > 0 && now <= network.last.saturating_add(times.keep)
        });
    }

    /// Number of origins.
    pub fn len(&self) -> usize {
        self.origins.len()
    }

    /// Returns whether no origin is kept.
    pub fn is_empty(&self) -> bool {
        self.origins.is_empty()
    }

    /// Returns everything, for [`Greylist::from_bytes`]; `None` if nothing has changed since the last call.
    pub fn changed_bytes(&mut self) -> Option<Vec<u8>> {
        std::mem::take(&mut self.is_changed).then(|| self.to_bytes())
    }

    /// The bytes could not be kept: they are to be returned once more.
    pub fn note_change(&mut self) {
        self.is_changed = true;
    }

    /// Judges as [`Greylist::judge`] does, and remembers nothing.
    pub fn look(&self, client: IpAddr, from: &str, to: &str, now: u64, times: GreylistTimes) -> Greeted {
        let (network_key, key) = self.keys(client, from, to);
        self.judged(network_key, key, now, times)
    }

    /// Returns the keys of the client's network, and of the origin.
    fn keys(&self, client: IpAddr, from: &str, to: &str) -> (u64, u64) {
        let network = network(client);
        (self.keyed.hash(&(network,)), self.keyed.hash(&(network, from, to)))
    }

    fn judged(&self, network_key: u64, key: u64, now: u64, times: GreylistTimes) -> Greeted {
        if self.is_known(network_key, now, times) {
            return Greeted::Known;
        }
        match self.origins.get(&key) {
            Some(origin) if origin.waits(now, times) => {
                Greeted::Wait(origin.first.saturating_add(times.wait) - now)
            }
            Some(origin) if origin.is_in_time(now, times) => Greeted::Known,
            _ => Greeted::Wait(times.wait),
        }
    }

    fn is_known(&self, network_key: u64, now: u64, times: GreylistTimes) -> bool {
        self.networks.get(&network_key).is_some_and(|network| {
            times.known_after > 0
                && network.returned >= times.known_after
                && now <= network.last.saturating_add(times.keep)
        })
    }

    fn to_bytes(&self) -> Vec<u8> {
        let size = self.origins.len() * ORIGIN_BYTES + self.networks.len() * NETWORK_BYTES;
        let mut bytes = Vec::with_capacity(size + 64);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.keyed.seed());
        bytes.extend_from_slice(&(self.origins.len() as u64).to_le_bytes());
        for (key, origin) in &self.origins {
            [*key, origin.network, origin.first, origin.last]
                .iter()
                .for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
            bytes.push(origin.has_come_again.into());
        }
        for (key, network) in self.networks.iter().filter(|(_, network)| network.returned > 0).take(self.max)
        {
            [*key, network.last].iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
            bytes.extend_from_slice(&network.returned.to_le_bytes());
        }
        bytes
    }

    /// Reads the bytes of [`Greylist::changed_bytes`]; `None` if they are others.
    pub fn from_bytes(bytes: &[u8], max: usize) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (seed, rest) = rest.split_first_chunk()?;
        let (count, rest) = rest.split_first_chunk()?;
        let count = usize::try_from(u64::from_le_bytes(*count)).ok()?;
        let (origins, networks) = rest.split_at_checked(count.checked_mul(ORIGIN_BYTES)?)?;
        if networks.len() % NETWORK_BYTES != 0 {
            return None;
        }
        let mut list = Self::new(*seed, max);
        for bytes in networks.chunks_exact(NETWORK_BYTES) {
            let returned = bytes[16..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            list.networks.insert(number(bytes, 0), Network { waiting: 0, returned, last: number(bytes, 1) });
        }
        for bytes in origins.chunks_exact(ORIGIN_BYTES).take(max) {
            let [network, first, last] = [1, 2, 3].map(|at| number(bytes, at));
            let has_come_again = bytes[32] != 0;
            list.origins.insert(number(bytes, 0), Origin { network, first, last, has_come_again });
            if !has_come_again {
                list.networks.entry(network).or_default().waiting += 1;
            }
        }
        Some(list)
    }
}

/// An IPv4 network /24 or an IPv6 network /64: a large site comes again from another address of its own (RFC 6647 §2.2).
fn network(client: IpAddr) -> IpAddr {
    match crate::network(client) {
        IpAddr::V4(ip) => IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() >> 8 << 8)),
        v6 => v6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIMES: GreylistTimes = GreylistTimes { wait: 300, retry: 3600, keep: 100_000, known_after: 2 };
    const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

    fn list() -> Greylist {
        Greylist::new([7; 16], 100)
    }

    #[test]
    fn mail_that_comes_again_in_time_is_known_from_then_on() {
        let mut list = list();
        let mut at = |now| list.judge(FAR, "a@far.test", "b@near.test", now, TIMES);
        assert_eq!(at(1000), Greeted::Wait(300));
        assert_eq!(at(1299), Greeted::Wait(1));
        assert_eq!(at(1300), Greeted::Known);
        assert_eq!(at(101_300), Greeted::Known);
        assert_eq!(at(201_301), Greeted::Wait(300), "nothing came for too long");
        assert_eq!(at(201_301 + 3601), Greeted::Wait(300), "it came again too late");
    }

    #[test]
    fn sender_recipient_and_network_make_an_origin() {
        let mut list = list();
        let mut at = |client: &str, from, to, now| list.judge(client.parse().unwrap(), from, to, now, TIMES);
        at("192.0.2.7", "a", "b", 0);
        assert_eq!(at("192.0.3.7", "a", "b", 300), Greeted::Wait(300));
        assert_eq!(at("192.0.2.7", "", "b", 300), Greeted::Wait(300));
        assert_eq!(at("192.0.2.7", "a", "c", 300), Greeted::Wait(300));
        assert_eq!(at("::ffff:192.0.2.200", "a", "b", 300), Greeted::Known);
        at("2001:db8::1", "a", "b", 0);
        assert_eq!(at("2001:db8::ffff:1", "a", "b", 300), Greeted::Known);
    }

    #[test]
    fn a_network_is_known_when_enough_of_its_mail_came_again() {
        let mut list = list();
        for from in ["a", "b"] {
            list.judge(FAR, from, "x", 0, TIMES);
            assert_eq!(list.judge(FAR, "new", from, 1, TIMES), Greeted::Wait(300));
            assert_eq!(list.judge(FAR, from, "x", 300, TIMES), Greeted::Known);
        }
        assert_eq!(list.judge(FAR, "new", "y", 301, TIMES), Greeted::Known);
        let never = GreylistTimes { known_after: 0, ..TIMES };
        assert_eq!(list.judge(FAR, "new", "y", 301, never), Greeted::Wait(300));
    }

    #[test]
    fn one_network_does_not_fill_the_table() {
        let mut list = Greylist::new([7; 16], WAITING_OF_NETWORK as usize + 1);
        for number in 0..=WAITING_OF_NETWORK + 5 {
            assert_eq!(list.judge(FAR, &number.to_string(), "x", 0, TIMES), Greeted::Wait(300));
        }
        assert_eq!(list.len(), WAITING_OF_NETWORK as usize);
        let other = "198.51.100.1".parse().unwrap();
        assert_eq!(list.judge(other, "a", "x", 0, TIMES), Greeted::Wait(300));
        assert_eq!(list.judge(other, "b", "x", 0, TIMES), Greeted::Full);
        assert_eq!(
            list.judge(other, "b", "x", 3601, TIMES),
            Greeted::Wait(300),
            "what came once is forgotten"
        );
        assert_eq!(list.len(), 1);
    }

    #[test]
    fn other_bytes_are_no_list() {
        for bytes in [&b""[..], b"PRGREY1\n", b"PRGREY2\n0123456789abcdef\0\0\0\0\0\0\0\0"] {
            assert!(Greylist::from_bytes(bytes, 10).is_none());
        }
        let mut bytes = list().to_bytes();
        assert!(Greylist::from_bytes(&bytes, 10).is_some());
        bytes.push(0);
        assert!(Greylist::from_bytes(&bytes, 10).is_none());
    }

    proptest! {
        /// Whatever came, and whenever it is read back, the list judges as before.
        #[test]
        fn bytes_keep_what_the_list_knows(
            steps in proptest::collection::vec((0u8..4, 0u8..4, 0u8..4, 0u64..400), 0..60),
            next in (0u8..4, 0u8..4, 0u8..4, 0u64..400),
        ) {
            let (mut list, mut now) = (list(), 0);
            let judge = |list: &mut Greylist, (client, from, to, _): (u8, u8, u8, u64), now| {
                let client = IpAddr::V4(Ipv4Addr::new(192, 0, client, 1));
                list.judge(client, &from.to_string(), &to.to_string(), now, TIMES)
            };
            for step in steps {
                now += step.3;
                judge(&mut list, step, now);
                let waiting: u32 = list.networks.values().map(|network| network.waiting).sum();
                let counted = list.origins.values().filter(|origin| !origin.has_come_again).count();
                prop_assert_eq!(waiting as usize, counted);
            }
            let mut read = Greylist::from_bytes(&list.to_bytes(), 100).unwrap();
            now += next.3;
            prop_assert_eq!(judge(&mut read, next, now), judge(&mut list, next, now));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut all = MAGIC.to_vec();
            all.extend(bytes);
            let _ = Greylist::from_bytes(&all, 10);
        }
    }
}
