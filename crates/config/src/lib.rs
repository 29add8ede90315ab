//! The configuration file that operators write, checked into typed settings.
//!
//! A file is checked whole: every problem is found at once, each with file, line, column, what is
//! wrong and what would be right. One definition a key (its comment, type and default in
//! [`settings`]) feeds the reader, `postrider config show` and postrider.toml(5). What the
//! settings mean is the business of the crates that take them.
//!
//! Read first: [`Settings`] (what survived checking) and [`Problems`] (what did not).

mod account;
mod acme;
pub mod certificate;
mod check;
mod choice;
mod dns;
mod domain {
    pub use policy::DomainPattern;
}
mod extensions;
mod filter;
mod group;
mod history;
mod json_schema;
mod last_good;
mod listen_address;
mod listing;
mod load;
mod local;
mod log;
mod map;
mod metrics;
mod notifications;
mod oauth;
mod outbound;
mod problem;
mod process;
mod reload;
mod route;
mod rules;
mod schema;
mod section;
mod server_value;
pub mod settings;
mod sign;
mod sought;
mod sources;
mod state_file;
mod units;
mod users;
mod value;
mod workers;

// The types of the values of keys, from the crates that they configure.
pub use delivery::EightBit;
pub use inbound::{ClientCertificates, ListenTls};
pub use mail::{ListenerKind, TlsMode};
pub use queue::SortOrder;
pub use smtp::{LoosePaths, server::BareLf};
pub use spool::Placement;

pub use self::history::History;
pub use account::{Group, SocketMode, User, local_user};
pub use acme::{Acme, AcmeChallenge, AcmeDirectory, CertificateName, acme_key};
pub use choice::{
    Backend, Durability, EhloKeyword, ForClients, LogFormat, RouteDurability, RouteTls, SandboxMode,
    SaslMechanism, TlsVersion, did_you_mean,
};
pub use domain::DomainPattern;
pub use extensions::Extensions;
pub use filter::{Filter, FilterServer, Hook};
pub use group::{OwnSpool, QueueGroup};
pub use json_schema::json_schema;
pub use last_good::{keep_last_good, last_good};
pub use listen_address::{ListenAddress, ListenAt};
pub use listing::{Effective, Origin};
#[doc(hidden)]
pub use load::load_text;
pub use load::{Loaded, Purpose, load, load_built_in, load_with_origins, machine_name};
pub use log::Log;
pub use metrics::Metrics;
pub use notifications::{LanguageCode, TextsError};
pub use oauth::{HttpServer, HttpUrl, MetadataUrl, OAuth};
pub use problem::{Code, Problem, Problems};
pub use process::Process;
pub use reload::{Reloaded, reload};
pub use route::{
    DeliverAs, DeliveryUser, MaildirTemplate, MappedHop, RejectText, Route, RouteAddresses, RouteLogin,
    SecretSource, Target, named_by_map,
};
pub use rules::{Authentication, CheckMode, GreylistMode, Greylisting, OnFailure, PolicyService, RuleSet};
pub use schema::schema;
pub use section::{KeyDoc, SectionDoc};
pub use settings::{Addresses, Certificate, Listen, Settings, Spool};
pub use sign::{MappedKey, Sign, SignWith, is_selector, signing_key};
pub use sought::about_key;
pub use state_file::{open_below, read_regular_file, read_state_file, write_state_file};
pub use units::{ByteSize, parse_duration, show_duration};
pub use users::{PasswdFileError, UserStore, read_passwd};
pub use value::{HostName, NameServer, PolicyName, SubAddress, Word};

/// Returns the further files of a configuration file, those of `conf.d` next to it, in the order in which they are read after it.
pub fn further_files(path: &std::path::Path) -> Vec<std::path::PathBuf> {
    sources::further(path).unwrap_or_default()
}
