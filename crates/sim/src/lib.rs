//! The real crates on a disk that fails as real disks do, replayed from a seed.
//!
//! [`disk::SimDisk`] keeps what was synced apart from what was only written, and loses any part of the
//! latter. It leaves real devices to the lab.

pub mod disk;
pub mod seed;
