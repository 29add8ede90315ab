//! The bytes of the log, as pure functions; docs/spool-format.md has them byte by byte. Whatever is
//! read back is taken for hostile: no length is believed before it was compared with what is there.

pub(crate) mod block;
pub(crate) mod extension;
#[cfg(test)]
pub(crate) mod golden;
pub(crate) mod message;
pub(crate) mod record;
pub(crate) mod wire;
