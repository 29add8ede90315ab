//! `postlab sink`: takes mail and throws it away, with every letter of Postfix's smtp-sink(1).

mod rules;
mod talk;
mod verb;
