//! A configuration with everything that is derived from it; a reload replaces it as a whole.

use super::{
    logins::LoginSettings,
    pipeline::{Pipeline, RuleSources, Rules},
};
use crate::{expansion::Expansion, mailboxes, routing::Routes};
use delivery::Courier;
use engine::Routing;
use mail::{Destination, Envelope};
use maps::Maps;
use policy::Policy;
use queue::GroupId;
use std::sync::Arc;

/// The settings and everything made of them; a reload replaces it as a whole.
pub(crate) struct ConfigSnapshot {
    pub(crate) settings: config::Settings,
    /// The engine's part of the settings.
    pub(crate) engine: engine::EngineSettings,
    pub(crate) routes: Routes,
    pub(crate) courier: Arc<Courier>,
    pub(crate) policy: Policy,
    /// None: nothing is configured that changes addresses.
    pub(crate) expansion: Option<Expansion>,
    pub(crate) maps: Arc<Maps>,
    pub(crate) pipeline: Pipeline,
    pub(crate) sources: RuleSources,
    /// None: nobody can log in.
    pub(crate) logins: Option<LoginSettings>,
    /// Of the spool's space, what strangers leave to mail of this site.
    pub(crate) kept_bytes: u64,
}

impl ConfigSnapshot {
    /// Logs a warning if nobody reads the mail for the postmaster.
    pub(crate) async fn warn_of_unread_postmaster(&self) {
        let warning =
            mailboxes::unread_postmaster(&self.settings, &self.routes, self.expansion.as_ref()).await;
        warning.iter().for_each(|warning| tracing::warn!("{warning}"));
    }

    /// The part by which drafts are judged.
    pub(crate) fn rules(&self) -> Rules<'_> {
        Rules {
            settings: &self.settings,
            policy: &self.policy,
            routes: &self.routes,
            expansion: self.expansion.as_ref(),
            maps: &self.maps,
            sources: &self.sources,
        }
    }
}

impl Routing for ConfigSnapshot {
    fn route(&self, envelope: &Envelope) -> Vec<(Destination, GroupId)> {
        self.routes.envelope(envelope).collect()
    }
}
