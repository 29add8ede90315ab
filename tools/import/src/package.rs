//! A configuration for a machine with the package: its sockets, its logs, its user.

use crate::{
    draft::{Draft, Section, Value},
    report::{AS_DAEMON, Report, Verdict},
};

/// The folder of the package's data. Everything there belongs to its user.
const DATA_DIR: &str = "/var/lib/postrider";
/// The command that lets the daemon deliver as other users.
const AS_OTHERS: &str = "mkdir -p /etc/systemd/system/postrider.service.d && cp /usr/share/doc/postrider/examples/other-users.conf \
                         /etc/systemd/system/postrider.service.d/ && systemctl daemon-reload";

/// Folders of mailboxes in which the group mail may make files.
const SPOOLS: [&str; 2] = ["/var/mail/", "/var/spool/mail/"];

/// Fits the configuration to the package, and says in the report what the administrator has to do.
pub fn fit(draft: &mut Draft, report: &mut Report) {
    sockets(draft, report);
    if !draft.has("[log]") {
        draft.push(
            Section::new("[log]", "the package's logs, for pflogsumm, fail2ban and other programs")
                .with("file", "/var/log/postrider/mail.json")
                .with("format", "both")
                .with("postfix_file", "/var/log/postrider/mail.log"),
        );
    }
    mailboxes(draft, report);
}

/// systemd opens the ports below 1024: the service has no right to do it.
fn sockets(draft: &mut Draft, report: &mut Report) {
    let mut seen = Vec::new();
    let mut only = Vec::new();
    draft.sections_mut().retain_mut(|section| {
        let Some(Value::Text(address)) =
            section.value("address").filter(|_| section.header() == "[[listen]]")
        else {
            return true;
        };
        let Some((host, port)) =
            address.rsplit_once(':').map(|(host, port)| (host.to_owned(), port.to_owned()))
        else {
            return true;
        };
        let (name, unit) = match &*port {
            "25" => ("systemd:smtp", "postrider-smtp.socket"),
            "587" => ("systemd:submission", "postrider-submission.socket"),
            "465" => ("systemd:submissions", "postrider-submissions.socket"),
            _ => return true,
        };
        if !matches!(&*host, "0.0.0.0" | "[::]") {
            only.push((unit, format!("{host}:{port}")));
        }
        let is_new = !seen.contains(&(name, unit));
        if is_new {
            seen.push((name, unit));
            section.set("address", name, &format!("{address}, opened by {unit}"));
        }
        is_new
    });
    for (_, unit) in seen.iter().filter(|(name, _)| *name != "systemd:smtp") {
        report.notes.push(format!("enable this port before you start Postrider: systemctl enable {unit}"));
    }
    for (_, unit) in seen {
        let streams: Vec<String> = only
            .iter()
            .filter(|(of, _)| *of == unit)
            .map(|(_, address)| format!("ListenStream={address}"))
            .collect();
        if !streams.is_empty() {
            report.notes.push(format!(
                "{unit} opens the port on all addresses; for the same addresses as before, run systemctl edit {unit} and write the lines [Socket], ListenStream=, {}",
                streams.join(", ")
            ));
        }
    }
}

/// Mailboxes of the users of the machine are written as those users.
fn mailboxes(draft: &mut Draft, report: &mut Report) {
    // Also for a daemon without such mailboxes: root starts the service of a new package.
    draft.set("[process]", "user", "postrider", "the daemon runs as this user if root starts it");
    let mut is_any = false;
    for section in draft.sections_mut().iter_mut().filter(|section| section.header() == "[[route]]") {
        let path = ["mbox", "maildir"].into_iter().find_map(|key| match section.value(key) {
            Some(Value::Text(path)) => Some(path.clone()),
            _ => None,
        });
        let Some(path) = path else { continue };
        let is_of_users =
            !path.starts_with(DATA_DIR) && path.contains("{local}") && !path.contains("{domain}");
        if is_of_users && section.value("user").is_none() {
            section.set("user", "{local}", "each mailbox belongs to its user");
            if SPOOLS.iter().any(|spool| path.starts_with(spool)) && section.value("group").is_none() {
                section.set("group", "mail", "the group that may create files there");
            }
            is_any = true;
        }
    }
    if is_any {
        report.notes.retain(|note| !note.contains(AS_DAEMON));
        for entry in &mut report.entries {
            if matches!(&entry.verdict, Verdict::Note(note) if note.contains(AS_DAEMON)) {
                entry.verdict = Verdict::Mapped;
            }
        }
        report.notes.push(format!(
            "mailboxes are written as their users, for which the service needs more rights: {AS_OTHERS}"
        ));
        report.notes.push(
            "mail is never delivered as root: name the user who reads root's mail in /etc/aliases (`root: NAME`)"
                .to_owned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(address: &str) -> Section {
        Section::new("[[listen]]", "").with("address", address)
    }

    #[test]
    fn ports_logs_and_mailboxes_are_those_of_the_package() {
        let mut draft = Draft::new(&[]);
        for address in ["0.0.0.0:25", "[::]:25", "127.0.0.1:587", "127.0.0.1:2525", "unix:/run/x"] {
            draft.push(listen(address));
        }
        draft.push(Section::new("[[route]]", "").with("mbox", "/var/mail/{local}"));
        draft.push(Section::new("[[route]]", "").with("maildir", "/srv/{domain}/{local}"));
        let mut report = Report::default();
        fit(&mut draft, &mut report);
        let addresses = draft.values("[[listen]]", "address");
        let wanted = ["systemd:smtp", "systemd:submission", "127.0.0.1:2525", "unix:/run/x"];
        assert_eq!(addresses, wanted.map(Value::from));
        let toml = draft.as_toml();
        assert_eq!(toml.matches("user = \"{local}\"").count(), 1, "{toml}");
        assert!(toml.contains("group = \"mail\""), "{toml}");
        assert!(toml.contains("[process]\n") && toml.contains("user = \"postrider\""), "{toml}");
        assert!(toml.contains("postfix_file = \"/var/log/postrider/mail.log\""), "{toml}");
        let notes = report.notes.join("\n");
        assert!(notes.contains("systemctl enable postrider-submission.socket"), "{notes}");
        assert!(
            notes.contains("ListenStream=127.0.0.1:587") && notes.contains("other-users.conf"),
            "{notes}"
        );
    }
}
