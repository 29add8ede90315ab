//! Queue directories.

mod envelope;
mod intent;
mod line;
mod note;
