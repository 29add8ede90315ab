//! The interface to the routes of a configuration.

use mail::{Destination, Envelope};
use queue::GroupId;
use std::sync::Arc;

/// The routes of one configuration. Pure: no DNS, no disk.
pub trait Routing: Send + Sync {
    /// Returns the destination and the queue group of each recipient, in the order of the envelope.
    fn route(&self, envelope: &Envelope) -> Vec<(Destination, GroupId)>;
}

/// The destinations of a message, and the routing that returned them.
pub struct Routed {
    pub(crate) by: Arc<dyn Routing>,
    pub(crate) destinations: Vec<(Destination, GroupId)>,
}

impl Routed {
    /// Routes an envelope. A driver does this before it locks the engine. The engine routes again if a reload came
    /// between.
    pub fn new(by: Arc<dyn Routing>, envelope: &Envelope) -> Self {
        let destinations = by.route(envelope);
        Self { by, destinations }
    }
}

/// Returns whether both are the same object.
pub(crate) fn is_same(one: &Arc<dyn Routing>, other: &Arc<dyn Routing>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}
