//! Destinations of the programs and files that aliases name.

use config::Settings;
use mail::{Argument, Destination, NextHop, Program, RunAs, TlsMode};
use rewrite::{NULL_DEVICE, split_command};
use std::{collections::HashSet, time::Duration};

/// The longest run of a program.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// The programs and files that aliases may name.
#[derive(Debug)]
pub(super) struct AliasTargets {
    programs: HashSet<Box<str>>,
    files: HashSet<Box<str>>,
    user: Option<RunAs>,
}

impl From<&Settings> for AliasTargets {
    fn from(settings: &Settings) -> Self {
        let addresses = &settings.addresses;
        let user = addresses.program_user.as_ref().map(|user| RunAs {
            name: user.name.as_str().into(),
            uid: user.uid,
            gid: user.gid,
            home: user.home.as_path().into(),
        });
        Self {
            programs: addresses.programs.iter().map(|path| path.to_string_lossy().into()).collect(),
            files: addresses.files.iter().map(|path| path.to_string_lossy().into()).collect(),
            user,
        }
    }
}

impl AliasTargets {
    /// Returns where mail for a file goes.
    pub(super) fn file(&self, path: &str) -> Destination {
        if path == NULL_DEVICE {
            return Destination::new(NextHop::Discard, TlsMode::Off);
        }
        if self.files.contains(path) {
            return Destination::new(NextHop::Mbox(path.into()), TlsMode::Off);
        }
        self.not_allowed()
    }

    /// Returns where mail for a program goes.
    pub(super) fn program(&self, command: &str) -> Destination {
        let argv = split_command(command).unwrap_or_default();
        if argv.first().is_some_and(|first| self.programs.contains(first)) {
            return self.pipe(argv.into_iter().map(Argument::Text).collect());
        }
        self.not_allowed()
    }

    /// Returns a program without arguments, for what the configuration does not allow any more: it is deferred until an
    /// operator decides.
    fn not_allowed(&self) -> Destination {
        self.pipe(Box::default())
    }

    fn pipe(&self, argv: Box<[Argument]>) -> Destination {
        let program = Program { argv, user: self.user.clone(), time_limit: TIME_LIMIT };
        Destination::new(NextHop::Pipe(program.into()), TlsMode::Off)
    }
}
