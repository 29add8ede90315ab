//! The configuration of a site, and what is made of it to accept mail.

use super::{
    logins::LoginSettings,
    pipeline::{Pipeline, RuleSources, Rules},
};
use crate::{expansion::Expansion, routing::Routes};
use engine::ReportSettings;
use maps::Maps;
use policy::Policy;
use std::sync::Arc;

/// The settings, and everything made of them by which mail is accepted.
pub(crate) struct Site {
    pub(crate) settings: config::Settings,
    /// How notifications are written.
    pub(crate) reports: ReportSettings,
    pub(crate) routes: Routes,
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

impl Site {
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
