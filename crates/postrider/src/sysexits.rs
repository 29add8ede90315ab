//! Exit codes as mail programs have them (sysexits.h).

use std::process::ExitCode;

/// Why a command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    Ok = 0,
    /// The command line is wrong.
    Usage = 64,
    /// What came in is wrong.
    DataErr = 65,
    /// What was asked for is not there.
    NoInput = 66,
    /// Something that is needed does not run.
    Unavailable = 69,
    /// The product itself is wrong.
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
