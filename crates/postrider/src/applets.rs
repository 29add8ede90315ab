//! The commands that the names `sendmail`, `mailq` and `newaliases` need.

use crate::{cli, own_address, routing::Routes};
use config::{Purpose, Settings};
use control::{CommandError, Exit, Selection};
use mail::ForwardPath;
use policy::Policy;
use std::{io::Write, path::Path};
use submission::sendmail;

/// The commands of this program.
pub(crate) struct Commands;

impl sendmail::Commands for Commands {
    fn load_config(&self, explicit: Option<&Path>) -> Result<Settings, CommandError> {
        cli::load_config(explicit, Purpose::Ask)
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
    fn route(&self, settings: &Settings, path: &ForwardPath) -> Option<String> {
        let policy = Policy::new(policy::Settings {
            local_domains: settings.local.domains.clone(),
            users: settings.local.users.clone(),
            ..policy::Settings::default()
        });
        let routes = Routes::from(settings);
        let own = own_address::resolve(path, settings, None);
        let path = own.as_ref().unwrap_or(path);
        if policy.is_for_postmaster(path) || policy.is_for_absent_root(path) {
            let postmaster = ForwardPath::Mailbox(settings.postmaster.clone());
            return Some(format!("{} by {}", settings.postmaster, routes.recipient(&postmaster)));
        }
        policy.knows(path).then(|| format!("by {}", routes.recipient(path)))
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
        let maildir = settings.local.maildir.as_str().to_owned();
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
