//! Comparison of conditions: which of them holds wherever others do, and which cannot hold together.

use crate::{AddressPattern, Addresses, CertificatePattern, Condition, DomainPattern, HeaderPattern, MapId};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use mail::ListenerKind;

/// Every kind, to prove that rules cover all.
const LISTENERS: [ListenerKind; 5] = [
    ListenerKind::Mx,
    ListenerKind::Relay,
    ListenerKind::Submission,
    ListenerKind::Submissions,
    ListenerKind::Lmtp,
];

/// Returns whether each narrow item is covered by one of the wide items.
fn each<'t, T: 't>(
    narrow: &[T],
    wide: &(impl Iterator<Item = &'t T> + Clone),
    covers: impl Fn(&T, &T) -> bool,
) -> bool {
    narrow.iter().all(|n| wide.clone().any(|w| covers(w, n)))
}

/// Returns whether no item of one list meets an item of the other one.
fn none_meet<T>(one: &[T], other: &[T], are_apart: impl Fn(&T, &T) -> bool) -> bool {
    one.iter().all(|a| other.iter().all(|b| are_apart(a, b)))
}

/// Returns the values of the conditions of one kind.
macro_rules! of_kind {
    ($conditions:expr, $kind:path) => {
        $conditions.iter().filter_map(|condition| match condition {
            $kind(value) => Some(value),
            _ => None,
        })
    };
}

impl Condition {
    /// Returns whether the condition holds for all mail.
    pub fn always_holds(&self) -> bool {
        one_always_holds(&[self], false)
    }

    /// Returns whether this condition holds wherever `narrow` does.
    pub fn covers(&self, narrow: &Self) -> bool {
        narrow.is_within(&[self])
    }

    /// Returns whether one of several conditions holds wherever this one does.
    pub(crate) fn is_within(&self, others: &[&Self]) -> bool {
        let has_maps = || {
            let maps: Vec<&MapId> =
                others.iter().filter(|one| one.is_kind_of(self)).flat_map(|one| one.maps()).collect();
            self.maps().iter().all(|map| maps.contains(&map))
        };
        match self {
            Self::Client(own) => {
                let wide: Vec<IpNet> =
                    of_kind!(others, Self::Client).flat_map(|one| &one.networks).copied().collect();
                // A map is asked for the address of a client.
                let has_all = || {
                    [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())]
                        .iter()
                        .all(|all| is_network_within(*all, &wide))
                };
                own.networks.iter().all(|network| is_network_within(*network, &wide))
                    && (has_maps() || has_all())
            }
            Self::ClientName(own) => {
                let wide = of_kind!(others, Self::ClientName);
                let patterns = wide.clone().flat_map(|one| &one.patterns);
                // Maps are asked for verified names.
                (!own.has_none || wide.clone().any(|one| one.has_none))
                    && each(&own.patterns, &patterns, DomainPattern::covers)
                    && (has_maps() || patterns.clone().any(|one| *one == DomainPattern::Any))
            }
            Self::Hello(own) => {
                let patterns = of_kind!(others, Self::Hello).flat_map(|one| &one.patterns);
                each(&own.patterns, &patterns, DomainPattern::covers)
                    && (has_maps() || patterns.clone().any(|one| *one == DomainPattern::Any))
            }
            Self::Certificate(own) => {
                let patterns = of_kind!(others, Self::Certificate).flat_map(|one| &one.patterns);
                has_maps() && each(&own.patterns, &patterns, CertificatePattern::covers)
            }
            Self::Login(own) => {
                let wide = of_kind!(others, Self::Login);
                wide.clone().any(|one| one.is_any)
                    || !own.is_any
                        && has_maps()
                        && each(&own.names, &wide.flat_map(|one| &one.names), |w, n| w == n)
            }
            Self::From(own) => {
                own.are_within(of_kind!(others, Self::From)) && has_maps() || has_all_senders(others)
            }
            Self::To(own) => {
                own.are_within(of_kind!(others, Self::To)) && has_maps() || has_all_recipients(others)
            }
            Self::Size(own) => of_kind!(others, Self::Size).any(|wide| wide <= own),
            Self::Score(own) => of_kind!(others, Self::Score).any(|wide| wide <= own),
            Self::Recipients(own) => of_kind!(others, Self::Recipients).any(|wide| wide <= own),
            Self::Listener(own) => each(own, &of_kind!(others, Self::Listener).flatten(), |w, n| w == n),
            Self::Header(own) => each(own, &of_kind!(others, Self::Header).flatten(), HeaderPattern::covers),
            Self::Tagged(own) => each(own, &of_kind!(others, Self::Tagged).flatten(), |w, n| w == n),
            Self::Over(own) => each(own, &of_kind!(others, Self::Over).flatten(), |w, n| w == n),
            Self::DnsList(of, own) => {
                let wide = others.iter().filter_map(|other| match other {
                    Self::DnsList(same, lists) if same == of => Some(lists),
                    _ => None,
                });
                each(own, &wide.flatten(), |w, n| w == n)
            }
            Self::Tls(_) | Self::BadHello | Self::NoReverseName | Self::ReverseNameUnknown => {
                others.contains(&self)
            }
        }
    }

    /// Returns whether this condition and another one never hold together. `has_one_recipient` says that both are judged by
    /// one recipient.
    pub fn excludes(&self, other: &Self, has_one_recipient: bool) -> bool {
        let has_maps = !self.maps().is_empty() || !other.maps().is_empty();
        match (self, other) {
            (Self::Tls(one), Self::Tls(other)) => one != other,
            // A certificate is shown in TLS.
            (Self::Certificate(shown), Self::Tls(false)) | (Self::Tls(false), Self::Certificate(shown)) => {
                !shown.patterns.contains(&CertificatePattern::None)
            }
            (Self::Listener(one), Self::Listener(other)) => none_meet(one, other, |a, b| a != b),
            _ if has_maps => false,
            (Self::Client(one), Self::Client(other)) => {
                none_meet(&one.networks, &other.networks, |a, b| !a.contains(b) && !b.contains(a))
            }
            (Self::ClientName(one), Self::ClientName(other)) => {
                !(one.has_none && other.has_none)
                    && none_meet(&one.patterns, &other.patterns, DomainPattern::is_apart_from)
            }
            (Self::Hello(one), Self::Hello(other)) => {
                none_meet(&one.patterns, &other.patterns, DomainPattern::is_apart_from)
            }
            (Self::Login(one), Self::Login(other)) => {
                !one.is_any && !other.is_any && none_meet(&one.names, &other.names, |a, b| a != b)
            }
            (Self::From(one), Self::From(other)) => {
                none_meet(&one.patterns, &other.patterns, AddressPattern::is_apart_from)
            }
            (Self::To(one), Self::To(other)) => {
                has_one_recipient && none_meet(&one.patterns, &other.patterns, AddressPattern::is_apart_from)
            }
            _ => false,
        }
    }

    /// Returns whether two conditions are about one fact, in one way.
    pub(crate) fn is_kind_of(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl Addresses {
    fn are_within<'a>(&self, others: impl Iterator<Item = &'a Self> + Clone) -> bool {
        each(&self.patterns, &others.flat_map(|one| &one.patterns), AddressPattern::covers)
    }
}

/// Returns whether one of several conditions holds for all mail; `has_listener` says that the mail came over a listener.
pub(crate) fn one_always_holds(conditions: &[&Condition], has_listener: bool) -> bool {
    let has =
        |kind: ListenerKind| of_kind!(conditions, Condition::Listener).any(|kinds| kinds.contains(&kind));
    has_all_senders(conditions)
        || has_all_recipients(conditions)
        || has_listener && LISTENERS.into_iter().all(has)
}

fn has_all_senders(conditions: &[&Condition]) -> bool {
    let has = |wanted| of_kind!(conditions, Condition::From).any(|one| one.patterns.contains(&wanted));
    has(AddressPattern::Domain(DomainPattern::Any)) && has(AddressPattern::Null)
}

fn has_all_recipients(conditions: &[&Condition]) -> bool {
    let any = AddressPattern::Domain(DomainPattern::Any);
    of_kind!(conditions, Condition::To).any(|one| one.patterns.contains(&any))
}

/// Returns whether each address of a network is in one of these networks.
fn is_network_within(network: IpNet, by: &[IpNet]) -> bool {
    if by.iter().any(|wide| wide.contains(&network)) {
        return true;
    }
    let inner: Vec<IpNet> = by.iter().copied().filter(|one| network.contains(one)).collect();
    if inner.is_empty() {
        return false;
    }
    let halves = network.subnets(network.prefix_len() + 1);
    halves.is_ok_and(|mut halves| halves.all(|half| is_network_within(half, &inner)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(all: &[&str]) -> Vec<IpNet> {
        all.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn networks_cover_another_one_together() {
        let within = |network: &str, by: &[&str]| is_network_within(network.parse().unwrap(), &nets(by));
        assert!(within("10.0.0.0/8", &["10.0.0.0/9", "10.128.0.0/10", "10.192.0.0/10"]));
        assert!(!within("10.0.0.0/8", &["10.0.0.0/9", "10.128.0.0/10", "10.192.0.0/11"]));
        assert!(within("192.0.2.1/32", &["192.0.2.0/24"]) && !within("192.0.2.0/24", &["192.0.2.1/32"]));
        assert!(within("0.0.0.0/0", &["0.0.0.0/1", "128.0.0.0/1"]) && !within("0.0.0.0/0", &["::/0"]));
        assert!(!within("::/0", &["::/128"]));
    }
}
