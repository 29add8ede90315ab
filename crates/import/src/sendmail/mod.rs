//! Sendmail: `sendmail.mc`, `sendmail.cf` and the files that they name; queue files.

//TMP mod cf;
//TMP mod convert;
//TMP mod mc;
pub mod queue;

//TMP pub use cf::{Cf, CfLine};
//TMP pub use convert::convert;
//TMP pub use mc::{Macro, macros};
