//! `/etc/nsswitch.conf`: which services are asked, and which of them are set up on this machine.

use std::{fs, io, path::Path};

const FILE: &str = "/etc/nsswitch.conf";
/// Folders with the modules of services; below these two, also those of an architecture such as `x86_64-linux-gnu`.
const LIBRARIES: [&str; 2] = ["/lib", "/usr/lib"];
const LIBRARIES_64: [&str; 2] = ["/lib64", "/usr/lib64"];
/// The socket of SSSD. Its package names it in `/etc/nsswitch.conf` on machines where nobody has configured it; then it has never run.
const SSSD: &str = "/var/lib/sss/pipes/nss";

/// Returns whether a database has services behind its files. A file that may not be read says nothing: then there may be some.
pub(super) fn has_services(database: &str) -> bool {
    match fs::read(FILE) {
        Ok(text) => !services_in(&String::from_utf8_lossy(&text), database).is_empty(),
        Err(e) => e.kind() != io::ErrorKind::NotFound,
    }
}

/// Returns the services that a database has behind its files. Without the file, or without a line, those are the files alone.
pub(super) fn services(database: &str) -> Vec<String> {
    let text = fs::read(FILE).unwrap_or_default();
    services_in(&String::from_utf8_lossy(&text), database)
}

/// Returns the services that a database has behind its files by this text: neither `files` nor `compat`.
pub fn services_in(text: &str, database: &str) -> Vec<String> {
    let line = |wanted: &str| {
        text.lines().find_map(|line| {
            let line = line.split('#').next().unwrap_or_default();
            let (name, services) = line.split_once(':')?;
            (name.trim() == wanted).then_some(services)
        })
    };
    let line = match database {
        "initgroups" => line(database).or_else(|| line("group")),
        _ => line(database),
    };
    let (mut services, mut is_action) = (Vec::new(), false);
    for word in line.unwrap_or_default().replace('[', " [").replace(']', "] ").split_whitespace() {
        is_action |= word.starts_with('[');
        if !is_action && !matches!(word, "files" | "compat") {
            services.push(word.to_owned());
        }
        is_action &= !word.ends_with(']');
    }
    services
}

/// Returns whether a service can answer on this machine: its module is installed and, for SSSD, it was configured. Others are passed
/// over, as by the C library.
pub(super) fn is_set_up(service: &str) -> bool {
    let module = format!("libnss_{service}.so.2");
    let is_in = |folder: &Path| folder.join(&module).exists();
    let of_architectures = |folder: &str| {
        let folders = fs::read_dir(folder).into_iter().flatten().flatten();
        folders
            .into_iter()
            .any(|one| one.file_name().to_string_lossy().contains("linux") && is_in(&one.path()))
    };
    let is_installed = LIBRARIES.iter().chain(&LIBRARIES_64).any(|folder| is_in(Path::new(folder)))
        || LIBRARIES.iter().any(|folder| of_architectures(folder));
    is_installed && (service != "sss" || Path::new(SSSD).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_behind_the_files_are_asked() {
        let text = "# comment\npasswd: files systemd  sss # sss is LDAP\n group :\tcompat[!UNAVAIL=return success = continue] ldap\n\
                    shadow: files winbind\n";
        assert_eq!(services_in(text, "passwd"), ["systemd", "sss"]);
        assert_eq!(services_in(text, "group"), ["ldap"]);
        assert_eq!(services_in(text, "initgroups"), ["ldap"]);
        assert_eq!(services_in(&format!("{text}initgroups: files"), "initgroups"), [""; 0]);
        for none in ["", "passwd: files", "passwd: compat\n", "passwd:", "hosts: files dns", "passwd"] {
            assert_eq!(services_in(none, "passwd"), [""; 0], "{none}");
        }
    }

    #[test]
    fn a_service_without_a_module_is_not_set_up() {
        assert!(!is_set_up("does_not_exist"));
    }
}
