//! Policy: which client may send which message to which recipient. Pure: facts in, verdicts out; the reply is the verdict's
//! text. [`Policy`] decides who may relay; a [`Program`] is the rules of the operator, which only narrow that.
//!
//! Protocol rules are `smtp`'s; where accepted mail goes is `route`'s.

mod address_pattern;
mod certificate_pattern;
mod condition;
mod cover;
mod dns_list;
mod domain_pattern;
mod explain;
mod facts;
mod header_pattern;
mod hello;
mod limit;
mod program;
mod reach;
mod relay;
mod reply_text;
mod rule;
mod service;
mod session;
mod stage;
mod verdict;

pub use address_pattern::{AddressPattern, AddressPatterns};
pub use certificate_pattern::CertificatePattern;
pub use condition::{Addresses, Certificates, ClientNames, Condition, Finding, Hellos, Logins, Networks};
pub use dns_list::{DnsList, Listed, Listee};
pub use domain_pattern::DomainPattern;
pub use facts::{Answers, ClientName, Fact, Facts, LimitId, MapId, MapInfo, Question, Scope, ServiceId};
pub use header_pattern::HeaderPattern;
pub use limit::{Limit, Measure, Per};
pub use program::{Effects, Next, Program, Ruling, Step, Targets, Trace};
pub use reach::hidden_by;
pub use relay::{ClientTable, Policy, Settings, no_such_user};
pub use reply_text::{ReplyClass, ReplyText};
pub use rule::{Action, Audience, Line, Modifiers, Rule};
pub use service::{ServiceAction, parse_action};
pub use session::{NamedHost, SessionFacts, Source};
pub use stage::Stage;
pub use verdict::Verdict;
