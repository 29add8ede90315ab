//! The commands that the names `sendmail`, `mailq` and `newaliases` need.

use crate::cli;
use config::Settings;
use control::{CommandError, Exit, Selection};
use mail::ForwardPath;
use server::destinations::routes_of;
use std::{io::Write, path::Path};
use submission::sendmail::{self, Route};

/// What `sendmail`, `mailq` and `newaliases` need of the other crates.
pub(crate) struct Commands;

impl sendmail::Commands for Commands {
    fn load_config(&self, explicit: Option<&Path>) -> Result<Settings, CommandError> {
        cli::load_for_tools(explicit)
    }

    fn list_queue(&self, settings: &Settings, out: &mut dyn Write) -> Result<Exit, CommandError> {
        cli::queue::mailq(settings, out)
    }

    fn flush(&self, settings: &Settings, selection: Option<&Selection>) -> Result<Exit, CommandError> {
        match selection {
            None => cli::queue::flush(settings).map(|_| Exit::Ok),
            Some(selection) => cli::queue::retry(settings, selection),
        }
    }

    /// As the daemon does with what programs on this machine send.
    fn routes(&self, settings: &Settings, paths: &[ForwardPath]) -> Result<Vec<Route>, CommandError> {
        routes_of(settings, paths)
    }

    fn check_aliases(&self, settings: &Settings, out: &mut dyn Write) -> Result<Exit, CommandError> {
        cli::map::check_aliases(settings, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_with_its_route_and_a_stranger_by_the_exit_code() {
        let mut settings = config::load(None).unwrap();
        settings.hostname = "host.test".to_owned();
        settings.postmaster = mail::Mailbox::parse("jane@host.test", true).unwrap();
        settings.local.domains = vec!["host.test".to_owned()];
        settings.local.users = Some(vec!["jane".to_owned()]);
        let maildir = settings.local.maildir.as_str().replace("{local}", "jane");
        let ask = |given: &[&str]| {
            let mut out = Vec::new();
            let given: Vec<String> = given.iter().map(|&text| text.to_owned()).collect();
            let exit = sendmail::verify::run(&given, &settings, &Commands, &mut out).unwrap();
            (exit, String::from_utf8(out).unwrap())
        };
        let (exit, said) = ask(&["jane+x, root", "Bob <bob@b.test>"]);
        assert_eq!(exit, Exit::Ok);
        assert_eq!(
            said,
            format!(
                "jane+x@host.test: by maildir:{maildir}\nroot@host.test: jane@host.test by maildir:{maildir}\n\
                 bob@b.test: by mx:b.test\n"
            )
        );
        assert_eq!(ask(&["jane@[127.0.0.1]"]).1, format!("jane@[127.0.0.1]: by maildir:{maildir}\n"));
        let nobody = "joe@host.test: no such user here\nbob@b.test: by mx:b.test\n";
        assert_eq!(ask(&["joe", "bob@b.test"]), (Exit::DataErr, nobody.to_owned()));
        assert_eq!(
            sendmail::verify::run(&[], &settings, &Commands, &mut Vec::new()).unwrap_err().exit,
            Exit::Usage
        );
    }
}
