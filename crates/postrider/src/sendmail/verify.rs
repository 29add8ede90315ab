//! `sendmail -bv`: where the configuration sends mail for an address. No name is looked up, and nothing
//! is sent, so the daemon need not run.

use super::{addresses, data_error, qualified};
use crate::{cli::CliError, own_address, routing::Routes, sysexits::Exit};
use config::Settings;
use mail::ForwardPath;
use policy::Policy;
use std::io::Write;

/// A line for each address; 65 when there is no such user for one.
pub(super) fn run(given: &[String], settings: &Settings, out: &mut dyn Write) -> Result<Exit, CliError> {
    if given.is_empty() {
        return Err(CliError::new(Exit::Usage, "addresses must be given as arguments"));
    }
    let policy = Policy::new(policy::Settings {
        local_domains: settings.local.domains.clone(),
        users: settings.local.users.clone(),
        ..policy::Settings::default()
    });
    let routes = Routes::from(settings);
    let mut exit = Exit::Ok;
    for argument in given {
        for address in addresses::parse(argument).map_err(data_error)? {
            let address = qualified(&address, settings);
            let path = ForwardPath::parse(&address, true)
                .map_err(|why| data_error(format!("recipient <{address}>: {why}")))?;
            let verdict = verdict(&path, &policy, settings, &routes);
            writeln!(out, "{address}: {}", verdict.as_deref().unwrap_or("no such user here"))?;
            if verdict.is_none() {
                exit = Exit::DataErr;
            }
        }
    }
    Ok(exit)
}

/// Where it goes; None for nobody.
fn verdict(path: &ForwardPath, policy: &Policy, settings: &Settings, routes: &Routes) -> Option<String> {
    // As the daemon does with what programs on this machine send.
    let own = own_address::resolve(path, settings, None);
    let path = own.as_ref().unwrap_or(path);
    if policy.is_for_postmaster(path) || policy.is_for_absent_root(path) {
        let postmaster = ForwardPath::Mailbox(settings.postmaster.clone());
        return Some(format!("{} by {}", settings.postmaster, routes.recipient(&postmaster)));
    }
    policy.knows(path).then(|| format!("by {}", routes.recipient(path)))
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
            let exit = run(&given, &settings, &mut out).unwrap();
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
        assert_eq!(run(&[], &settings, &mut Vec::new()).unwrap_err().exit, Exit::Usage);
    }
}
