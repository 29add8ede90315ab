//! A configuration with everything that is derived from it; a reload replaces it as a whole.

use super::acceptor::Pipeline;
use crate::routing::Routes;
use delivery::Courier;
use engine::Routing;
use mail::{Destination, Enhanced, Envelope, ForwardPath, NextHop, Reply};
use policy::Policy;
use queue::GroupId;
use std::sync::Arc;

/// The settings and everything made of them; a reload replaces it as a whole.
pub(crate) struct ConfigSnapshot {
    pub(crate) settings: config::Settings,
    pub(crate) routes: Routes,
    pub(crate) courier: Arc<Courier>,
    pub(crate) policy: Policy,
    pub(crate) pipeline: Pipeline,
}

impl ConfigSnapshot {
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
}
