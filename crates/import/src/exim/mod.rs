//! Exim: its configuration and Debian's, and spool files.

//TMP mod conf;
//TMP mod convert;
pub mod queue;

//TMP pub use conf::{Conf, Driver, MainOption};
//TMP pub use convert::{DebianConf, convert};
