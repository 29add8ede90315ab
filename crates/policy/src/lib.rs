//! Relay policy: which client may send which message to which recipient. Pure: facts in, verdicts out; the reply is the verdict's text.
//!
//! Protocol rules are `smtp`'s; where accepted mail goes is `route`'s.

mod relay;

pub use relay::{Policy, SessionFacts, Settings, no_such_user};
