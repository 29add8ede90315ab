//! The daemon with the crate `accept`: a disk that does not answer, checks at each stage, and relaying.

mod accepting;
mod relaying;
