//! Sendmail: `sendmail.mc`, `sendmail.cf` and the files that they name; queue files.

mod cf;
mod convert;
mod mc;
pub mod queue;

pub use cf::{Cf, CfLine};
pub use convert::{Names, convert, names};
pub use mc::{Macro, macros};
