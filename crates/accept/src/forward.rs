//! The files `.forward` in the homes of users, as a map of aliases behind those of the configuration.

use mail::Answer;
use maps::{Cached, Looked, LookupError, Map, Maps, Reference};
use rewrite::{Target, TargetList};
use std::{sync::Arc, time::Duration};

/// The reference of the map. No configuration can name it.
const NAME: &str = ".forward";
/// So long is a file remembered, and that there is none: each is read by a process of its own.
const TTL: Duration = Duration::from_secs(5);

/// Reads `.forward` files, of which the daemon's user may read few: in the daemon, the helper does.
pub trait ForwardFiles: Send + Sync {
    /// Returns the content of the file of a user of this machine; none if nobody has that name, has no such file, or others could have
    /// written it.
    fn read<'a>(&'a self, user: &'a str) -> Answer<'a, Result<Option<String>, String>>;
}

/// The name by which `Maps` knows the files.
pub(crate) fn reference() -> Reference {
    Reference::Named(NAME.into())
}

/// Adds the map. Without `files`, as in a command, nobody has one.
pub(crate) fn add_to(maps: &mut Maps, files: Option<Arc<dyn ForwardFiles>>) {
    maps.add(NAME, Arc::new(Cached::new(Forwards(files), TTL)));
}

struct Forwards(Option<Arc<dyn ForwardFiles>>);

impl Map for Forwards {
    fn get<'a>(&'a self, user: &'a str) -> Answer<'a, Looked> {
        let Some(files) = &self.0 else { return Answer::Ready(Ok(None)) };
        files.read(user).map(move |read| {
            let text = read.map_err(|what| LookupError::new(&".forward", format!("{user}: {what}")))?;
            Ok(text.and_then(|text| targets(user, &text)).map(Into::into))
        })
    }
}

/// Returns the targets as an alias has them. What only administrators may name, programs and files, is left out, as is what cannot be read:
/// the user's mailbox gets the mail then.
fn targets(user: &str, text: &str) -> Option<String> {
    let mut kept: Vec<String> = Vec::new();
    let mut refused = None;
    for target in TargetList::of_file(text) {
        match target {
            Ok((_, Target::Mailbox(mailbox))) => kept.push(mailbox.to_string()),
            Ok((_, Target::Local(name))) if is_plain(&name) => kept.push(name.into()),
            Ok((_, Target::Final(name))) if is_plain(&name) => kept.push(format!("\\{name}")),
            Ok(_) => refused = Some("it names a program, a file or another list".to_owned()),
            Err(error) => refused = Some(error.to_string()),
        }
    }
    if let Some(why) = refused {
        tracing::warn!("the file .forward of {user}: {why}; the mailbox gets the mail instead");
        kept.push(format!("\\{user}"));
    }
    (!kept.is_empty()).then(|| kept.join(", "))
}

/// Returns whether a name needs no quotes in a list.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._+-".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_kept_and_programs_leave_the_mail_in_the_mailbox() {
        for (text, kept) in [
            ("joe@b.test\n", Some("joe@b.test")),
            ("# away\n\\jane, ann\n  bob@b.test  \n", Some("\\jane, ann, bob@b.test")),
            ("\"|/usr/bin/vacation jane\"\njoe@b.test\n", Some("joe@b.test, \\jane")),
            ("/home/jane/mbox\n", Some("\\jane")),
            (":include:/etc/passwd\n", Some("\\jane")),
            ("joe@@b.test, ann\n", Some("\\jane")),
            ("# nothing\n\n", None),
            ("", None),
        ] {
            assert_eq!(targets("jane", text).as_deref(), kept, "{text:?}");
        }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_no_file_that_is_missing() {
        struct Files;
        impl ForwardFiles for Files {
            fn read<'a>(&'a self, user: &'a str) -> Answer<'a, Result<Option<String>, String>> {
                Answer::Ready(match user {
                    "jane" => Ok(Some("ann\n".to_owned())),
                    "joe" => Ok(None),
                    _ => Err("no answer".to_owned()),
                })
            }
        }
        let mut maps = Maps::default();
        add_to(&mut maps, Some(Arc::new(Files)));
        let get = |user: &'static str| maps.get_owned(&reference(), user.into()).wait();
        assert_eq!(get("jane").await, Ok(Some("ann".into())));
        assert_eq!(get("joe").await, Ok(None));
        assert!(get("eve").await.unwrap_err().to_string().contains("eve: no answer"));
    }
}
