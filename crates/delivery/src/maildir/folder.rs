//! The path of a recipient's Maildir: a local part is never trusted to be a file name.

use mail::Mailbox;
use rewrite::Separator;
use std::path::PathBuf;

/// Longest name of a file or folder.
const NAME_MAX: usize = 255;

/// Returns whether a Maildir can be named after this mailbox. Mail for any other mailbox would fail, so it is rejected
/// before it is accepted.
pub fn can_have_maildir(mailbox: &Mailbox, separator: Option<Separator>) -> bool {
    let local = mailbox.local();
    // Few local parts have these characters, and only they can lead to an unsafe name. A character in lower case has
    // three times the octets at most.
    let is_odd = local.starts_with(['"', '.'])
        || local.contains('/')
        || local.len() > NAME_MAX / 3
        || !local.bytes().all(|byte| byte.is_ascii_graphic());
    !is_odd || folder("", mailbox, separator).is_some()
}

/// Returns the path of a Maildir or mailbox file, or another text with placeholders; `None` if no path can have the name.
pub fn mailbox_path(template: &str, mailbox: &Mailbox, separator: Option<Separator>) -> Option<String> {
    if !template.contains('{') {
        return Some(template.to_owned());
    }
    folder(template, mailbox, separator).map(|folder| folder.path.display().to_string())
}

/// The path of a Maildir. Its beginning was written by the operator; the rest may be under the control of the
/// Maildir's user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    /// Octets of the operator's beginning.
    pub(super) fixed_bytes: usize,
}

/// Returns the recipient's Maildir, or `None` when its name would lead anywhere else: a local part is never trusted to
/// be a file name. The part behind the separator is for the user (RFC 5233).
pub(crate) fn folder(template: &str, mailbox: &Mailbox, separator: Option<Separator>) -> Option<Folder> {
    let local = mailbox.local_name();
    let user = separator.and_then(|separator| separator.split(&local)).map_or(&*local, |(user, _)| user);
    let domain = mailbox.domain().key();
    let is_safe = |name: &str| {
        !name.is_empty()
            && name.len() <= NAME_MAX
            && !name.starts_with('.')
            && !name.contains('/')
            // Somebody who lists the folder would take the name for another one.
            && !name.chars().any(mail::is_invisible)
    };
    if !is_safe(user) || !is_safe(&domain) {
        return None;
    }
    // Both placeholders are replaced in one pass, so that inserted text is not searched for placeholders.
    let mut path = String::with_capacity(template.len() + user.len() + domain.len());
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, behind) = behind.split_once('}')?;
        path.push_str(before);
        path.push_str(if name == "local" { user } else { &domain });
        rest = behind;
    }
    path.push_str(rest);
    let fixed = template.split('{').next().unwrap_or_default();
    let fixed = if fixed.len() == template.len() { fixed.trim_end_matches('/') } else { fixed };
    let fixed_bytes = fixed.rfind('/').map_or(0, |at| at + 1);
    Some(Folder { path: PathBuf::from(path), fixed_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(address: &str) -> Option<String> {
        let mailbox = Mailbox::parse(address, true).unwrap();
        folder("/mail/{domain}/{local}", &mailbox, Separator::parse("+"))
            .map(|f| f.path.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_recipient_has_one_folder_whatever_its_case_and_extension() {
        for address in ["Jane@B.Test", "jane+lists@b.test", "\"jane\"@b.test"] {
            assert_eq!(path(address).as_deref(), Some("/mail/b.test/jane"), "{address}");
        }
        assert_eq!(path("+x@b.test").as_deref(), Some("/mail/b.test/+x"));
        assert_eq!(path("{domain}@b.test").as_deref(), Some("/mail/b.test/{domain}"));
    }

    #[test]
    fn no_recipient_leads_out_of_its_folder_or_names_one_that_looks_like_another() {
        for address in [
            "\"..\"@b.test",
            "\"../../etc\"@b.test",
            "a/b@b.test",
            "\".\"@b.test",
            "\".hidden\"@b.test",
            "jane\u{200b}@b.test",
            "j\u{202e}enaj@b.test",
            "\"jane\u{2066}\"@b.test",
            "jane\u{ad}+x@b.test",
        ] {
            assert_eq!(path(address), None, "{address}");
            assert!(
                !can_have_maildir(&Mailbox::parse(address, true).unwrap(), Separator::parse("+")),
                "{address}"
            );
        }
    }

    proptest! {
        #[test]
        fn whether_a_recipient_can_have_a_maildir_is_known_without_its_name(
            local in "[a./+ä\u{200b}\u{202e}]{1,8}|\"[a./+ ]{0,8}\"|a{60,64}",
            domain in "[a-z]{1,3}\\.test|\\[192\\.0\\.2\\.1\\]|bücher\\.test",
        ) {
            if let Ok(mailbox) = Mailbox::parse(&format!("{local}@{domain}"), true) {
                let plus = Separator::parse("+");
                let folder = folder("/m/{domain}/{local}", &mailbox, plus);
                prop_assert_eq!(can_have_maildir(&mailbox, plus), folder.is_some());
            }
        }
    }
}
