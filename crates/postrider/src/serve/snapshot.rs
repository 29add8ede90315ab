//! One configuration and what was made of it: a reload replaces it as a whole.

use crate::{own_address, routing::Routes};
use delivery::Courier;
use engine::Routing;
use mail::{Destination, Enhanced, Envelope, ForwardPath, NextHop, Reply};
use policy::Policy;
use queue::GroupId;
use std::{net::IpAddr, sync::Arc};

/// The settings and everything made of them; a reload replaces it as a whole.
pub(crate) struct ConfigSnapshot {
    pub(crate) settings: config::Settings,
    pub(crate) routes: Routes,
    pub(crate) courier: Arc<Courier>,
    pub(crate) policy: Policy,
}

impl ConfigSnapshot {
    /// Rewrites recipients of a client: "postmaster" becomes the configured mailbox (RFC 5321 §4.5.1), and an address
    /// literal of this machine becomes the host name. `connected_to` is the
    /// address at which the client reached us.
    pub(crate) fn name_postmaster(&self, envelope: &mut Envelope, connected_to: IpAddr) {
        self.rename(envelope, Some(connected_to), |path| self.policy.is_for_postmaster(path));
    }

    /// Rewrites recipients of a message that begins on this machine, whose programs write to root as well.
    pub(crate) fn name_postmaster_and_root(&self, envelope: &mut Envelope) {
        let is_meant =
            |path: &ForwardPath| self.policy.is_for_postmaster(path) || self.policy.is_for_absent_root(path);
        self.rename(envelope, None, is_meant);
    }

    fn rename(
        &self,
        envelope: &mut Envelope,
        connected_to: Option<IpAddr>,
        is_meant: impl Fn(&ForwardPath) -> bool,
    ) {
        for recipient in &mut envelope.recipients {
            if let Some(path) = own_address::resolve(&recipient.path, &self.settings, connected_to) {
                recipient.path = path;
            }
            if is_meant(&recipient.path) {
                recipient.path = ForwardPath::Mailbox(self.settings.postmaster.clone());
            }
        }
    }

    /// Returns whether a Maildir can be named after the recipient, where its mail goes into one.
    ///
    /// # Errors
    /// The reply that refuses it. Mail for it would be returned later.
    pub(crate) fn is_deliverable(&self, path: &ForwardPath) -> Result<(), Reply> {
        let Some(mailbox) = path.mailbox().filter(|mailbox| !delivery::can_have_maildir(mailbox)) else {
            return Ok(());
        };
        if !matches!(self.routes.recipient(path).next_hop, NextHop::Maildir(_)) {
            return Ok(());
        }
        let text = format!("<{mailbox}>: no mailbox here can have this name");
        Err(Reply::new(550, Enhanced(5, 1, 1), text))
    }
}

impl Routing for ConfigSnapshot {
    fn route(&self, envelope: &Envelope) -> Vec<(Destination, GroupId)> {
        self.routes.envelope(envelope).collect()
    }

    fn address_report(&self, envelope: &mut Envelope) {
        self.name_postmaster_and_root(envelope);
    }
}
