//! The history: events of messages, stored so that a message is found by its id, Message-ID, addresses, client, login or
//! next hop for weeks. The daemon writes with a [`Store`], which is a sink of the event stream. Commands read with a
//! [`Reader`], also while the daemon is down.
//!
//! The crate decides what stands where. A [`Folder`] reads and writes the files: [`DiskFolder`], or one in memory for tests. Times
//! and random keys are arguments.
//!
//! Read first: [`Store`] and [`Reader`].

mod block;
mod disk_folder;
mod filter;
mod folder;
mod frame;
#[doc(hidden)]
pub mod fuzz;
mod index;
mod key;
mod keys;
mod plain;
mod privacy;
mod problem;
mod reader;
mod retention;
mod sealing;
mod segment;
mod sort;
mod store;

pub use disk_folder::DiskFolder;
pub use folder::{Folder, MemoryFolder, ReadAt};
pub use key::{Key, id_of, is_of_history, recipient_of};
pub use privacy::Addresses;
pub use problem::Problem;
pub use reader::{Cursor, Entry, Page, Query, Reader, StoredEvent};
pub use store::{Settings, Store};

#[cfg(test)]
mod sealing_tests;
#[cfg(test)]
mod tests;
