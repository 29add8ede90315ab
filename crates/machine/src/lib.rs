//! What this machine gives and has left: processor time, and disks whose syncs reach them or do not.

pub mod cpu;
pub mod disk;
