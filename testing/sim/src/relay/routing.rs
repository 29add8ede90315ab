//! ShardedSpool configurations of routes and queue groups, between which reloads change.

use mail::{Destination, Envelope, ForwardPath, HostPort, NextHop, TlsMode};
use queue::{Group, GroupId};

/// Takes mail for all domains.
pub(super) const HUB: &str = "hub.test";

/// A configuration, by its number below [`Routes::COUNT`].
pub(super) struct Routes(pub(super) u8);

/// All domains, and a group with few connections.
pub(super) fn groups() -> Vec<Group> {
    let few = Group { name: "few".to_owned(), connections_max: 2, ..Group::default() };
    vec![Group::default(), few]
}

impl Routes {
    /// By MX; some domains by a smarthost; some in the group with few connections; both.
    pub(super) const COUNT: u64 = 4;

    fn number(path: &ForwardPath) -> u64 {
        let domain = path.mailbox().map_or(String::new(), |mailbox| mailbox.domain().key().into_owned());
        domain.strip_prefix('d').and_then(|rest| rest.split('.').next()?.parse().ok()).unwrap_or(1)
    }

    pub(super) fn destination(&self, path: &ForwardPath) -> Destination {
        if self.0 & 1 == 1 && Self::number(path).is_multiple_of(3) {
            let hub = HostPort { host: HUB.to_owned(), port: 25 };
            return Destination::new(NextHop::Smarthost(hub.into()), TlsMode::May);
        }
        let target = path.mailbox().map_or("localhost".into(), |mailbox| mailbox.domain().key());
        Destination::mx(target.as_ref(), TlsMode::May)
    }
}

impl engine::Routing for Routes {
    fn route(&self, envelope: &Envelope) -> Vec<(Destination, GroupId)> {
        let is_few = |path: &ForwardPath| self.0 & 2 == 2 && Self::number(path).is_multiple_of(2);
        let paths = envelope.recipients.iter().map(|recipient| &recipient.path);
        paths.map(|path| (self.destination(path), GroupId(u8::from(is_few(path))))).collect()
    }
}
