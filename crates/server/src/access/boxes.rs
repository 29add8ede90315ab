//! The places of mailboxes, as the daemon and its helper write them. Both refuse links, and files with several names.

use super::{Fault, Need, Needed, Whose, as_user, described, group_name, is_of_system};
use config::{DeliveryUser, Route, Settings, Target};
use rewrite::NULL_DEVICE;
use rustix::process::geteuid;
use sandbox::{Identity, fixed_folder};
use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// A user of this machine without rights, as an example of those to whom mail is delivered.
const SOMEBODY: u32 = 65534;

/// Returns what the daemon's own user writes: folders, and the files that aliases may name.
pub(super) fn own(settings: &Settings) -> Vec<Needed> {
    let own = settings.routes.iter().filter(|route| route.deliver_as.is_none());
    let templates = own.filter_map(template);
    let locals = (!settings.local.domains.is_empty()).then(|| settings.local.maildir.as_str());
    let folders = templates.chain(locals).map(|template| (fixed_folder(template), "folder of mailboxes"));
    let of_files = settings.addresses.files.iter().flat_map(|file| of_file(file));
    folders.map(|(path, noun)| Needed::new(path, noun, Need::WriteIn)).chain(of_files).collect()
}

/// Returns what the daemon's user writes for a file that aliases name: a lock file stands beside it.
pub(super) fn of_file(file: &Path) -> Vec<Needed> {
    let folder = fixed_folder(&file.to_string_lossy());
    let mut needs = vec![Needed::new(folder, "folder of a file in `addresses.files`", Need::WriteIn)];
    // A link is not followed, and its target is not the daemon's.
    if file.symlink_metadata().is_ok_and(|found| found.is_file()) {
        needs.push(Needed::new(file.to_owned(), "file in `addresses.files`", Need::Append));
    }
    needs
}

/// Returns the faults of mailbox files that are there, whoever writes them.
pub(super) fn files(settings: &Settings) -> Vec<Fault> {
    let mboxes = settings.routes.iter().filter_map(|route| match &route.target {
        Target::Mbox(file) if !file.as_str().contains('{') => Some(PathBuf::from(file.as_str())),
        _ => None,
    });
    settings.addresses.files.iter().cloned().chain(mboxes).filter_map(|file| file_fault(&file)).collect()
}

pub(super) fn file_fault(file: &Path) -> Option<Fault> {
    // Mail for it is discarded.
    if file == Path::new(NULL_DEVICE) {
        return None;
    }
    let found = file.symlink_metadata().ok()?;
    let shown = file.display();
    let (what, advice) = if found.is_symlink() {
        let advice = "name a file of the mailboxes' user instead of the link".to_owned();
        ("a symbolic link, which is not followed".to_owned(), advice)
    } else if !found.is_file() {
        ("no regular file".to_owned(), "name a file in the mbox format".to_owned())
    } else if found.nlink() > 1 {
        let what = format!("a file with {} names (hard links)", found.nlink());
        (what, format!("`cp -p {shown} {shown}.new`, and `mv {shown}.new {shown}`"))
    } else {
        return None;
    };
    Some(Fault { is_error: true, text: format!("mail for the file {shown} waits: it is {what}"), advice })
}

/// Returns what users may not do to whom the helper delivers. Only root can ask; for others there is nothing.
///
/// # Errors
/// A thread of another user cannot be started, in words.
pub(super) fn of_users(settings: &Settings) -> Result<Vec<Fault>, String> {
    let mut faults = Vec::new();
    if !geteuid().is_root() {
        return Ok(faults);
    }
    for route in &settings.routes {
        let (Some(own), Some(template)) = (&route.deliver_as, template(route)) else { continue };
        let folder = fixed_folder(template);
        if let Ok(real) = folder.canonicalize()
            && real != folder
        {
            let text = format!(
                "mail for {} waits: the delivery helper follows no symbolic links, and {} is {}",
                template,
                folder.display(),
                real.display()
            );
            faults.push(Fault { is_error: true, text, advice: format!("write {} there", real.display()) });
            continue;
        }
        let (identity, whose) = match &own.user {
            DeliveryUser::Fixed(user) => (Identity::of(user, own.group.as_ref())?, Whose::Own),
            // What is below the folder is each user's own, and may be missing.
            DeliveryUser::Recipient if !is_made_in(&folder, template) => {
                if !folder.is_dir() {
                    let noun = "folder of mailboxes";
                    faults.push(Needed::new(folder, noun, Need::Read).missing());
                }
                continue;
            }
            DeliveryUser::Recipient => {
                let gid = own.group.as_ref().map_or(SOMEBODY, |group| group.gid);
                let name = "each recipient".into();
                (Identity { name, uid: SOMEBODY, gid, groups: vec![gid] }, Whose::Recipients)
            }
        };
        let need = Needed::new(folder, "folder of mailboxes", Need::WriteIn);
        let advice = (whose == Whose::Recipients).then(|| advice_for_all(&need.path, own.group.as_ref()));
        for fault in as_user(&identity, vec![need], false)? {
            faults.push(Fault { advice: advice.clone().unwrap_or(fault.advice), ..fault });
        }
    }
    Ok(faults)
}

/// Returns whether the mailboxes are made in this folder, one beside the other.
fn is_made_in(folder: &Path, template: &str) -> bool {
    Path::new(template).parent() == Some(folder)
}

/// Users share a folder by a group; nobody opens it to all.
fn advice_for_all(folder: &Path, group: Option<&config::Group>) -> String {
    let shown = folder.display();
    let Ok(found) = fs::metadata(folder) else {
        let group = group.map_or("mail", |group| &group.name);
        return format!(
            "`install -d -g {group} -m 2775 {shown}`, and write group = \"{group}\" beside `user`"
        );
    };
    // Debian's folder of mailboxes is meant for this.
    let is_mail = ["/var/mail", "/var/spool/mail"].iter().any(|mail| folder == Path::new(mail));
    if !is_mail && is_of_system(folder) {
        return "name another folder, such as /var/mail".to_owned();
    }
    let open =
        (found.permissions().mode() & 0o070 == 0o070 && found.gid() != 0).then(|| group_name(found.gid()));
    match (open.flatten(), group) {
        (Some(open), _) => format!("write group = \"{open}\" beside `user`: {}", described(folder)),
        (None, group) => {
            let group = group.map_or("mail", |group| &group.name);
            format!("`chgrp {group} {shown}`, `chmod g+rwx {shown}`, and group = \"{group}\" beside `user`")
        }
    }
}

fn template(route: &Route) -> Option<&str> {
    match &route.target {
        Target::Maildir(template) | Target::Mbox(template) => Some(template.as_str()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(dir: &Path, text: &str) -> Settings {
        let file = dir.join("postrider.toml");
        fs::write(&file, format!("hostname = \"mx.test\"\n{text}")).unwrap();
        config::load(Some(&file)).unwrap_or_else(|problems| panic!("{problems}"))
    }

    #[test]
    fn a_mailbox_file_that_is_a_link_or_has_two_names_is_a_fault() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display().to_string();
        for name in ["good", "two"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        fs::hard_link(dir.path().join("two"), dir.path().join("second")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("good"), dir.path().join("link")).unwrap();
        let text = format!(
            "[addresses]\nfiles = [\"{at}/good\", \"{at}/link\", \"{at}/none\"]\n\
             [[route]]\ndomains = [\"a.test\"]\nmbox = \"{at}/two\"\n[[route]]\ndomains = [\"b.test\"]\nmbox = \"{at}\"\n"
        );
        let settings = settings(dir.path(), &text);
        let told: Vec<String> = files(&settings).into_iter().map(|fault| fault.text).collect();
        assert_eq!(told.len(), 3, "{told:?}");
        for (text, what) in told.iter().zip([
            "link waits: it is a symbolic link",
            "two waits: it is a file with 2 names",
            "no regular file",
        ]) {
            assert!(text.contains(what), "{what}: {text}");
        }
        let named = own(&settings);
        assert!(
            named.iter().any(|need| need.path == dir.path() && need.noun.contains("addresses.files")),
            "{named:?}"
        );
    }

    #[test]
    fn a_folder_in_which_recipients_cannot_make_files_is_told_with_the_group_that_can() {
        if !geteuid().is_root() {
            println!("SKIPPED: this test is for root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let boxes = dir.path().join("boxes");
        fs::create_dir(&boxes).unwrap();
        std::os::unix::fs::symlink(&boxes, dir.path().join("link")).unwrap();
        let faults = |folder: &str, more: &str| {
            let place = format!("{}/{folder}/{{local}}", dir.path().display());
            let text = format!("[local]\nmbox = \"{place}\"\nuser = \"{{local}}\"\n{more}");
            of_users(&settings(dir.path(), &text)).unwrap()
        };
        let mode = |mode| fs::set_permissions(&boxes, fs::Permissions::from_mode(mode)).unwrap();
        let closed = faults("boxes", "").remove(0);
        assert!(
            closed.text.starts_with("each recipient may not write in the folder of mailboxes"),
            "{closed:?}"
        );
        assert!(closed.advice.contains("`chgrp mail ") && !closed.advice.contains("o+"), "{closed:?}");
        // The group mail of Debian.
        std::os::unix::fs::chown(&boxes, None, Some(8)).unwrap();
        mode(0o2775);
        let wrong = faults("boxes", "").remove(0);
        assert!(wrong.advice.starts_with("write group = \"mail\" beside `user`"), "{wrong:?}");
        assert_eq!(faults("boxes", "group = \"mail\"\n"), []);
        let system = advice_for_all(Path::new("/etc"), None);
        assert!(
            !system.contains("chgrp") && advice_for_all(Path::new("/var/mail"), None).contains("mail"),
            "{system}"
        );
        let linked = faults("link", "group = \"mail\"\n").remove(0);
        assert!(linked.text.contains("follows no symbolic links"), "{linked:?}");
    }

    #[test]
    fn nobody_is_told_to_give_away_what_a_link_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let (link, file) = (dir.path().join("link"), dir.path().join("file"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        let needs = |path: &Path| of_file(path).iter().any(|need| need.path == path);
        assert!(needs(&file) && !needs(&link));
        let fault = file_fault(&link).unwrap();
        assert!(fault.text.contains("symbolic link") && !fault.advice.contains("passwd"), "{}", fault.advice);
        assert!(file_fault(Path::new(NULL_DEVICE)).is_none(), "mail for it is discarded");
    }
}
