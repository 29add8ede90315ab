//! A configuration with everything that is derived from it; a reload replaces it as a whole.

use accept::{self, AcceptConfig};
use delivery::Courier;
use engine::Routing;
use mail::{Destination, Envelope};
use queue::GroupId;
use std::{ops::Deref, sync::Arc};

/// The settings and everything made of them; a reload replaces it as a whole.
pub struct ConfigSnapshot {
    /// What accepting mail needs.
    pub accept: Arc<AcceptConfig>,
    /// What the engine needs.
    pub engine: engine::EngineSettings,
    /// Delivers as the settings say.
    pub courier: Arc<Courier>,
}

impl Deref for ConfigSnapshot {
    type Target = AcceptConfig;

    fn deref(&self) -> &AcceptConfig {
        &self.accept
    }
}

impl ConfigSnapshot {
    /// Logs a warning if nobody reads the mail for the postmaster.
    pub async fn warn_of_unread_postmaster(&self) {
        let warning = accept::unread_postmaster(&self.settings, &self.routes, self.expansion.as_ref()).await;
        warning.iter().for_each(|warning| tracing::warn!("{warning}"));
    }
}

impl Routing for ConfigSnapshot {
    fn route(&self, envelope: &Envelope) -> Vec<(Destination, GroupId)> {
        self.routes.envelope(envelope).collect()
    }
}
