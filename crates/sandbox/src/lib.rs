//! The rights that the daemon's process gives up: its user ([`become_user`]), files and TCP ports ([`Rules`], by Landlock),
//! and system calls ([`SystemCalls`], by seccomp). The order in which the daemon does so is in `postrider::serve`.
//!
//! Landlock and the change of the user concern the calling thread only, and threads that it starts afterwards. So both
//! must come before any other thread begins.

mod landlock;
mod rules;
mod system_calls;
mod user;

pub use landlock::{Lacking, restrict};
pub use rules::{Needed, Rules, fixed_folder, included_lists};
pub use system_calls::{Refusal, SystemCalls};
pub use user::{Identity, become_user, drop_capabilities, forbid_new_privileges, keep_user_capabilities};
