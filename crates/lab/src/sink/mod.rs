//! `postlab sink`: takes mail and throws it away, with every letter of Postfix's smtp-sink(1).

mod dump;
mod hall;
mod log;
mod rules;
mod session;
mod talk;
mod verb;
