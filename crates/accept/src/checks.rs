//! The checks of the pipeline, each in a file of its own.

pub(crate) mod addresses;
mod authentication;
mod copies;
pub(crate) mod existence;
pub(crate) mod filters;
mod greylist;
pub(crate) mod rules;
mod sign;
mod submission;
pub(crate) mod targets;

pub use addresses::Addresses;
pub(crate) use authentication::Authenticated;
pub use authentication::ask_dns;
pub(crate) use copies::Copies;
pub(crate) use existence::KnownToNextHop;
pub(crate) use filters::Filters;
pub use filters::reach_hook;
pub(crate) use greylist::Greylisted;
pub(crate) use rules::RuleCheck;
pub(crate) use sign::Signatures;
pub(crate) use submission::{MissingFields, SenderOfLogin};
pub(crate) use targets::{MapsChooseRoute, RouteDecides};
