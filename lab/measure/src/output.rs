//! Standard output that fails: a closed pipe, a full disk. `print!` panics there; the stack
//! unwinds, so that what was made is removed, and here it becomes an end like others.

use crate::command::Failure;
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind, set_hook, take_hook},
};

/// How std begins the message of a failed print.
const CANNOT_PRINT: &str = "failed printing to std";
/// EPIPE, as std shows it.
const CLOSED: &str = "(os error 32)";

/// Runs a command, so that a closed pipe ends it without a panic.
pub fn guarded(command: impl FnOnce() -> Result<bool, Failure>) -> Result<bool, Failure> {
    let told = take_hook();
    set_hook(Box::new(move |info| {
        if info.payload_as_str().is_none_or(|text| !text.starts_with(CANNOT_PRINT)) {
            told(info);
        }
    }));
    // Nothing of the command is used again.
    catch_unwind(AssertUnwindSafe(command)).unwrap_or_else(end)
}

fn end(payload: Box<dyn Any + Send>) -> Result<bool, Failure> {
    match payload.downcast::<String>() {
        // Who pipes into `head` has seen enough.
        Ok(text) if text.starts_with(CANNOT_PRINT) && text.ends_with(CLOSED) => Ok(true),
        Ok(text) if text.starts_with(CANNOT_PRINT) => Err(Failure::Failed(*text)),
        Ok(text) => resume_unwind(text),
        Err(other) => resume_unwind(other),
    }
}
