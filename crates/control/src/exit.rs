//! The end of a command: exit codes as mail programs have them (sysexits.h), and the error that ends one.

use crate::{client::ClientError, protocol::Failure};
use std::{io, process::ExitCode};

/// Exit codes of commands, as in sysexits.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// The command line is wrong.
    Usage = 64,
    /// The input is wrong.
    DataErr = 65,
    /// The requested object does not exist.
    NoInput = 66,
    /// A required service does not run.
    Unavailable = 69,
    /// An internal error of Postrider.
    Software = 70,
    /// A file cannot be made.
    CantCreate = 73,
    /// Reading or writing failed.
    IoErr = 74,
    /// Try again later.
    TempFail = 75,
    /// Ask as another user.
    NoPerm = 77,
    /// The configuration is wrong.
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Ends a command: the exit code, and what standard error says.
#[derive(Debug)]
pub struct CommandError {
    /// Exit code of the process.
    pub exit: Exit,
    /// The text after the name of the program; empty when the error was printed already.
    pub text: String,
}

impl CommandError {
    /// The text names what failed and why.
    pub fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, text: text.into() }
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        // A reader such as `head` that closed the pipe wants no more output.
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Exit::Ok, "");
        }
        Self::new(Exit::IoErr, error.to_string())
    }
}

impl From<ClientError> for CommandError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::NotRunning => Self::new(
                Exit::Unavailable,
                "the daemon is not running: start it, or name its configuration with --config",
            ),
            ClientError::Broken(text) => Self::new(Exit::TempFail, text),
            ClientError::NotTaken(error) => error.into(),
            ClientError::Refused(failure) => {
                let exit = match failure {
                    Failure::Denied { .. } => Exit::NoPerm,
                    Failure::Missing { .. } => Exit::NoInput,
                    Failure::Bad { .. } => Exit::Usage,
                    Failure::Configuration { .. } => Exit::Config,
                    Failure::Failed { .. } => Exit::TempFail,
                };
                Self::new(exit, failure.text())
            }
        }
    }
}
