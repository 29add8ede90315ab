//! The files `.forward` that users have in their homes.

use crate::{Files, draft::Draft};
use std::path::Path;

/// Has the files of users obeyed, if somebody has one. Returns what is different then, in words.
pub(crate) fn obey(files: &dyn Files, draft: &mut Draft, from: &str) -> Option<String> {
    let home = |name: &str| if name == "root" { "/root".to_owned() } else { format!("/home/{name}") };
    let (mut any, mut beyond) = (false, Vec::new());
    for user in files.users() {
        let Some(text) = files.read(Path::new(&format!("{}/.forward", home(&user)))) else { continue };
        any = true;
        if user == "root" || names_more(&String::from_utf8_lossy(&text)) {
            beyond.push(user);
        }
    }
    if !any {
        return None;
    }
    draft.set("[addresses]", "forward", true, from);
    Some(if beyond.is_empty() {
        "a user's .forward file is read only if no alias has the user's name".to_owned()
    } else {
        let users = beyond.join(", ");
        format!(
            "programs, files and filters in .forward files are ignored, and so is root's file: write aliases for {users}"
        )
    })
}

/// Returns whether a file has more than addresses and names.
fn names_more(text: &str) -> bool {
    let items = text.lines().filter(|line| !line.starts_with("# ")).flat_map(|line| line.split(','));
    let mut items = items.map(|item| item.trim().trim_matches('"'));
    text.starts_with("# Exim filter")
        || items.any(|item| item.starts_with(['|', '/', ':', '#']) && item != "#")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_files::MemoryFiles;

    #[test]
    fn files_of_addresses_are_obeyed_and_users_with_programs_are_named() {
        let told = |files: &'static [(&'static str, &'static str)]| {
            let mut draft = Draft::default();
            let told = obey(&MemoryFiles(files), &mut draft, "x");
            (draft.as_toml().contains("forward = true"), told.unwrap_or_default())
        };
        assert_eq!(told(&[("/etc/passwd", "joe:x:1:1::/:\n")]), (false, String::new()));
        let files = &[("/etc/passwd", "joe:x:1:1::/:\n"), ("/home/joe/.forward", "\\joe, a@b.test\n# x\n")];
        let (is_set, text) = told(files);
        assert!(is_set && text.starts_with("a user's .forward file is read"), "{text}");
        let files = &[("/etc/passwd", "joe:x:1:1::/:\n"), ("/home/joe/.forward", "\\joe, \"|/bin/x joe\"\n")];
        assert!(told(files).1.ends_with("write aliases for joe"));
    }
}
