//! `postlab source`: sends mail, with every letter of Postfix's smtp-source(1), and measures.

mod caller;
mod letter;
mod tally;
