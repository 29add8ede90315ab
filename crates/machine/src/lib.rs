//! What this machine gives and has left: its users and groups, processor time, and disks whose syncs reach them or do not.

pub mod accounts;
pub mod cpu;
pub mod disk;
