//! Destinations of the programs and files that aliases name.

use config::Settings;
use mail::{AliasTarget, Argument, Destination, NextHop, Program, RunAs, TlsMode};
use rewrite::split_command;
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
    /// Returns where mail for a target goes. What the configuration does not allow any more is a program without
    /// arguments, which is deferred until an operator decides.
    pub(super) fn destination(&self, target: &AliasTarget) -> Destination {
        let argv = match target {
            AliasTarget::File(path) if self.files.contains(path) => {
                return Destination::new(NextHop::Mbox(path.as_ref().into()), TlsMode::Off);
            }
            AliasTarget::File(_) => Vec::new(),
            AliasTarget::Program(command) => split_command(command).unwrap_or_default(),
        };
        let is_allowed = argv.first().is_some_and(|first| self.programs.contains(first));
        let argv = if is_allowed { argv.into_iter().map(Argument::Text).collect() } else { Box::default() };
        let program = Program { argv, user: self.user.clone(), time_limit: TIME_LIMIT };
        Destination::new(NextHop::Pipe(program.into()), TlsMode::Off)
    }
}
