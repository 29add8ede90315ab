//! Checks of `[notifications]`, with its files of templates, and of VERP.

use super::Check;
use crate::{load::Purpose, notifications::TextsError, settings::Settings};
use policy::{AddressPattern, DomainPattern};

impl Check<'_, '_> {
    pub(super) fn notifications(&mut self, s: &Settings) {
        if !s.addresses.verp.is_empty() && s.addresses.separator.0.is_none() {
            let help =
                "write separator = \"+\" in [addresses]: bounces would come back to users who do not exist";
            self.problem("addresses.verp", "`addresses.verp` needs a separator".to_owned(), "", help);
        }
        self.verp(s);
        let codes = &s.notifications.languages;
        let key = "notifications.languages";
        if codes.is_empty() && !self.has_failed(key) {
            self.problem(key, "notifications have no language".to_owned(), "empty", "write [\"en\"]");
        }
        let twice = codes.iter().enumerate().find(|(at, code)| codes[..*at].contains(code));
        if let Some((_, code)) = twice {
            self.problem(key, format!("the language `{}` is there twice", code.0), "twice", "remove one");
        }
        for error in s.notifications.texts().err().into_iter().flatten() {
            match error {
                TextsError::Io(_, error) if self.purpose != Purpose::Serve && is_denied(&error) => {}
                TextsError::Unknown(_) => {
                    let help = "write \"en\" or \"de\", or add the language to the directory `templates`";
                    self.problem(key, error.to_string(), "no such language", help);
                }
                TextsError::Io(..) => {
                    let help = "name a directory that this user may read";
                    self.problem("notifications.templates", error.to_string(), "cannot be read", help);
                }
                TextsError::Template(..) => {
                    let help = "correct this file; docs/notifications.md explains its format";
                    self.problem(
                        "notifications.templates",
                        error.to_string(),
                        "a file in this directory",
                        help,
                    );
                }
            }
        }
    }
}

impl Check<'_, '_> {
    /// A name without a domain would be a domain that nobody has; and notifications have no sender.
    fn verp(&mut self, s: &Settings) {
        let is_own = |name: &String| *name == s.hostname || s.local.domains.contains(name);
        for pattern in &s.addresses.verp {
            let (what, help) = match pattern {
                AddressPattern::Domain(DomainPattern::Exact(name))
                    if !name.contains('.') && !is_own(name) =>
                {
                    (
                        format!("`{name}` in `addresses.verp` is a domain, and not one of this server"),
                        format!(
                            "write \"{name}@{}\" for one sender, or \"lists.example.com\" for a domain",
                            s.hostname
                        ),
                    )
                }
                AddressPattern::Null => (
                    "`<>` in `addresses.verp`: notifications have no sender whose name could be changed"
                        .to_owned(),
                    "write \"news@example.com\", or \"lists.example.com\" for a domain".to_owned(),
                ),
                _ => continue,
            };
            self.problem("addresses.verp", what, "never matches", &help);
        }
    }
}

fn is_denied(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::PermissionDenied
}
