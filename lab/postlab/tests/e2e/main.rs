//! The laboratory as users meet them: one program, because linking one for each module takes minutes.

mod agent;
mod common;
mod compat;
mod disk;
mod dns;
mod extensions;
mod formats;
mod ipc;
mod micro;
mod postmark;
mod published;
mod queues;
mod relay;
mod reproduce;
mod run;
mod sink;
mod source;
mod stat;
mod tracing;
