//! Rewriting of addresses: the expansion of one recipient by virtual aliases, aliases and `:include:` files, and the
//! changes of one address by canonical, masquerade and generic rules. Pure: look-ups are questions, whose answers are
//! arguments.
//!
//! Maps belong to `maps`; relaying belongs to `policy`.
//!
//! Read first: [`Expander`] and [`TargetList`].

mod address;
mod command;
mod dsn;
mod expander;
#[cfg(test)]
mod properties;
mod targets;

pub use address::{
    CANONICAL_STEPS_MAX, Separator, by_map, is_named, map_keys, masquerade, verp, with_detail,
};
pub use command::split_command;
pub use dsn::{Role, passed_on};
pub use expander::{Answers, Expanded, Expander, Found, Question, Settings, Step, Trouble};
pub use targets::{NULL_DEVICE, Target, TargetError, TargetList, line_and_column};
