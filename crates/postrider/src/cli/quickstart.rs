//! `postrider quickstart`: asks for the few facts that every site needs, and writes a commented configuration.

use super::{CliError, Ending, args::QuickstartArgs, complain};
use config::Purpose;
use console::settings::show_problems;
use control::Exit;
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
    process::geteuid,
};
use server::site_warnings::{self, unread_postmaster};
use std::{
    fmt::Write as _,
    fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};
use upkeep::replace_file;
use users::UsersFile;

mod questions;
mod users;

/// The socket unit of the package, which opens port 25 for a daemon that is not root.
const SOCKET_UNIT: &str = "/lib/systemd/system/postrider-smtp.socket";
/// Where the package lets the daemon write logs.
const LOG_DIR: &str = "/var/log/postrider";
/// Named in the configuration if it is there: `newaliases` checks it.
const ALIASES: &str = "/etc/aliases";
/// The user that the package makes for the daemon.
const USER: &str = "postrider";
/// Where commands look without `--config`.
const USUAL_FILE: &str = "/etc/postrider/postrider.toml";
/// The answer for a certificate that the daemon obtains.
const LETS_ENCRYPT: &str = "letsencrypt";

/// What is asked of the operator, or given by options.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answers {
    hostname: String,
    domains: Vec<String>,
    networks: Vec<String>,
    users: Vec<String>,
    certificate: Certificate,
}

/// Which certificate clients are shown.
#[derive(Debug, Default, PartialEq, Eq)]
enum Certificate {
    /// The daemon makes one at its start.
    #[default]
    SelfSigned,
    /// Files: the chain, and the key.
    Files(PathBuf, PathBuf),
    /// Let's Encrypt signs one.
    LetsEncrypt,
}

/// The ways in which the machine differs from another.
struct Machine {
    is_root: bool,
    /// systemd opens the ports.
    has_socket_units: bool,
    /// The kernel has IPv6.
    has_ipv6: bool,
    /// The group of the daemon's user, if there is one.
    user: Option<u32>,
    data_dir: PathBuf,
    /// The folder of the logs, if a package has made it.
    log_dir: Option<PathBuf>,
    /// The table of aliases that the mail servers of the machine share, if there is one.
    aliases: Option<PathBuf>,
}

impl Machine {
    /// Returns whether commands find this file by themselves.
    fn is_usual(&self, file: &Path) -> bool {
        self.is_root && file == Path::new(USUAL_FILE)
    }

    /// Returns the addresses of a listener: that of a socket unit, or all of the machine's, with port 25 written out.
    fn addresses(&self, unit: &str, is_mx: bool) -> Vec<String> {
        match (self.has_socket_units, is_mx) {
            (true, _) => vec![format!("systemd:{unit}")],
            (false, true) => ["0.0.0.0:25", "[::]:25"].map(str::to_owned).into(),
            (false, false) => ["0.0.0.0", "::"].map(str::to_owned).into(),
        }
        .into_iter()
        .filter(|address| self.has_ipv6 || !address.contains("::"))
        .collect()
    }

    fn here(folder: &Path) -> Self {
        let is_root = geteuid().is_root();
        let user = config::local_user(USER).ok().flatten().map(|user| user.gid);
        let data_dir =
            if is_root { PathBuf::from("/var/lib/postrider") } else { folder.join("postrider-data") };
        let existing = |path: &str| Some(PathBuf::from(path)).filter(|path| is_root && path.exists());
        Self {
            is_root,
            has_socket_units: existing(SOCKET_UNIT).is_some(),
            has_ipv6: fs::read("/proc/net/if_inet6").is_ok_and(|addresses| !addresses.is_empty()),
            user,
            data_dir,
            log_dir: existing(LOG_DIR),
            aliases: existing(ALIASES),
        }
    }
}

/// Asks what was not given, writes the files, and says what is left to do.
pub(super) fn run(args: &QuickstartArgs, explicit: Option<&Path>, out: &mut dyn Write) -> Ending {
    let usual = if geteuid().is_root() { USUAL_FILE } else { "postrider.toml" };
    let named = args.output.as_deref().or(explicit);
    let file = std::path::absolute(named.unwrap_or(Path::new(usual)))?;
    let folder = file.parent().unwrap_or(Path::new("/")).to_owned();
    if file.exists() && !args.replace {
        let text = format!(
            "{} exists: name another file by --output, or keep a copy of it by --replace",
            file.display()
        );
        return Err(CliError::new(Exit::CantCreate, text));
    }
    let users_file = UsersFile::read(folder.join("users"))?;
    if !users_file.names.is_empty() {
        writeln!(out, "The users in {} stay: {}", users_file.path.display(), users_file.names.join(", "))?;
    }
    let stdin = io::stdin();
    let asks = stdin.is_terminal() && !args.no_questions;
    let mut answers = Answers::find(args, asks.then_some(&mut stdin.lock()), out)?;
    let (known, new): (Vec<_>, Vec<_>) =
        answers.users.drain(..).partition(|user| users_file.names.contains(user));
    for user in known {
        writeln!(out, "The password of {user} stays as it is in {}.", users_file.path.display())?;
    }
    answers.users.extend(users_file.names.iter().chain(&new).cloned());
    let machine = Machine::here(&folder);
    fs::create_dir_all(&folder).map_err(|e| cannot_write(&folder, &e))?;
    let passwords = users_file.add(new, &machine)?;
    if file.exists() {
        let old = keep_old(&file).map_err(|e| cannot_write(&file, &e))?;
        writeln!(out, "The former configuration is {}.", old.display())?;
    }
    replace_file(&file, configuration(&answers, &machine).as_bytes()).map_err(|e| cannot_write(&file, &e))?;
    // What the answers make together, and files that are not there, show in the same words as later.
    let loaded = config::load_with_origins(Some(&file), Purpose::Ask);
    let loaded = loaded.map_err(|problems| show_problems(&problems))?;
    let unread = unread_postmaster(&loaded.settings)?;
    for warning in site_warnings::lasting_warnings(&loaded.settings).into_iter().chain(unread) {
        complain("postrider", &format!("warning: {warning}"));
    }
    writeln!(out, "Written: {}", file.display())?;
    for (user, password) in &passwords {
        writeln!(out, "The password of {user}: {password}")?;
    }
    writeln!(out, "\nDNS needs these records:\n\n{}", records(&answers))?;
    writeln!(out, "Next:\n\n{}", next_commands(&answers, &machine, &file))?;
    Ok(Exit::Ok)
}

/// Gives a file the name `FILE.old`, or `FILE.old.2` and so on, if an older one has it. Returns the name.
pub(super) fn keep_old(file: &Path) -> io::Result<PathBuf> {
    let named = |suffix: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    for number in 1..=u32::MAX {
        let name = if number == 1 { named(".old") } else { named(&format!(".old.{number}")) };
        match renameat_with(CWD, file, CWD, &name, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(name),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn cannot_write(path: &Path, error: &io::Error) -> CliError {
    CliError::new(Exit::CantCreate, format!("write {}: {error}", path.display()))
}

fn list(items: &[String]) -> String {
    format!("{items:?}")
}

/// Returns the text of the configuration file.
fn configuration(answers: &Answers, machine: &Machine) -> String {
    let mut text = String::new();
    let mut section = |comment: &str, lines: &[String]| {
        let _ = writeln!(text, "# {comment}\n{}\n", lines.join("\n"));
    };
    section(
        "Postrider. Each key: postrider.toml(5), `postrider config explain KEY`. After a change: `postrider config check`,\n\
         # then `postrider reload`.\n\n# The name of this server. DNS must map it to this server's address, and the address back to it.",
        &[format!("hostname = {:?}", answers.hostname)],
    );
    section(
        "The queue, sockets and Maildirs.",
        &[format!("data_dir = {:?}", machine.data_dir.display().to_string())],
    );
    if let Some(user) = answers.users.first() {
        section(
            "Who gets the mail for postmaster.",
            &[format!("postmaster = {:?}", address_of(user, answers))],
        );
    }
    let listen = |unit: &str, kind: Option<&str>| {
        let mut lines = Vec::new();
        for address in machine.addresses(unit, kind.is_none()) {
            lines.extend(["[[listen]]".to_owned(), format!("address = {address:?}")]);
            lines.extend(kind.map(|kind| format!("kind = {kind:?}")));
        }
        lines
    };
    section("Mail from other servers. They may send to the domains of [local] only.", &listen("smtp", None));
    if !answers.users.is_empty() {
        section(
            "Mail from users, who log in: TLS from the first byte (port 465).",
            &listen("submissions", Some("submissions")),
        );
        section(
            "Mail from users, who log in: STARTTLS (port 587).",
            &listen("submission", Some("submission")),
        );
        section(
            "Names and hashes of passwords.",
            &["[auth]".to_owned(), "users = \"passwd:users\"".to_owned()],
        );
    }
    match &answers.certificate {
        Certificate::Files(chain, key) => section(
            "The certificate. It is read again at a reload.",
            &[
                "[tls]".to_owned(),
                format!("certificate = {:?}", chain.display().to_string()),
                format!("key = {:?}", key.display().to_string()),
            ],
        ),
        Certificate::LetsEncrypt => section(
            "The certificate that the daemon obtains and renews. The authority comes to port 80 of this name.",
            &acme(answers, machine),
        ),
        Certificate::SelfSigned => section(
            "Without this section a self-signed certificate is made, which mail programs of users refuse.",
            &[
                "#[tls]".to_owned(),
                "#certificate = \"/etc/…/fullchain.pem\"".to_owned(),
                "#key = \"/etc/…/privkey.pem\"".to_owned(),
            ],
        ),
    }
    let mut networks = vec!["127.0.0.0/8".to_owned(), "::1/128".to_owned()];
    networks.extend(answers.networks.iter().cloned());
    section(
        "Clients that may send to all domains without a login.",
        &["[relay]".to_owned(), format!("networks = {}", list(&networks))],
    );
    let mut domains = answers.domains.clone();
    domains.extend(
        [answers.hostname.clone(), "localhost".to_owned()]
            .into_iter()
            .filter(|name| !answers.domains.contains(name)),
    );
    let mut local = vec!["[local]".to_owned(), format!("domains = {}", list(&domains))];
    if answers.users.is_empty() {
        local.push("# Without this key, every address of these domains exists.".to_owned());
        local.push("#users = [\"jane\", \"joe\"]".to_owned());
    } else {
        let mut names: Vec<String> =
            answers.users.iter().map(|user| user.split('@').next().unwrap_or_default().to_owned()).collect();
        names.sort();
        names.dedup();
        local.push(format!("users = {}", list(&names)));
    }
    section("Domains whose mail is delivered here, into Maildirs below data_dir.", &local);
    for (comment, lines) in machine_sections(machine) {
        section(comment, &lines);
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// Returns the section for a certificate of Let's Encrypt.
fn acme(answers: &Answers, machine: &Machine) -> Vec<String> {
    let mut lines = vec![
        "[acme]".to_owned(),
        format!("names = {}", list(std::slice::from_ref(&answers.hostname))),
        "agree_to_terms = true".to_owned(),
    ];
    let domain = answers.domains.first().unwrap_or(&answers.hostname);
    lines.push(format!("contact = \"postmaster@{domain}\""));
    if machine.has_socket_units {
        lines.push("listen = \"systemd:acme\"".to_owned());
    }
    lines
}

/// Returns the sections that depend on the machine: a comment and the lines of each.
fn machine_sections(machine: &Machine) -> Vec<(&'static str, Vec<String>)> {
    let mut sections = Vec::new();
    if let Some(file) = &machine.aliases {
        let map = format!("aliases:{}", file.display());
        let lines = vec!["[addresses]".to_owned(), format!("aliases = [{map:?}]")];
        sections.push(("Other names of users, and lists: aliases(5).", lines));
    }
    if let Some(folder) = &machine.log_dir {
        let file = |name: &str| folder.join(name).display().to_string();
        let lines = vec![
            "[log]".to_owned(),
            format!("file = {:?}", file("mail.json")),
            "format = \"both\"".to_owned(),
            format!("postfix_file = {:?}", file("mail.log")),
        ];
        sections.push(("The log of all mail, as JSON and in Postfix's format.", lines));
    }
    // The service of the package may also start as this user: then nothing changes.
    if machine.user.is_some() && machine.is_root {
        let lines = vec!["[process]".to_owned(), format!("user = {USER:?}")];
        sections.push(("The user whom the daemon becomes after its start by root.", lines));
    }
    sections
}

/// Returns the address of a user, which is the name where that has a domain.
fn address_of(user: &str, answers: &Answers) -> String {
    match answers.domains.first() {
        Some(domain) if !user.contains('@') => format!("{user}@{domain}"),
        _ => user.to_owned(),
    }
}

/// Returns the DNS records that the site needs.
fn records(answers: &Answers) -> String {
    let host = &answers.hostname;
    let mut text = format!("{host}.  A     ADDRESS        (AAAA for IPv6)\n");
    let _ = writeln!(text, "ADDRESS  PTR   {host}.        (the provider of the address sets it)");
    for domain in &answers.domains {
        let _ = writeln!(text, "{domain}.  MX    10 {host}.");
        let _ = writeln!(text, "{domain}.  TXT   \"v=spf1 mx -all\"");
        if !answers.users.is_empty() {
            let _ = writeln!(text, "_submissions._tcp.{domain}.  SRV   0 1 465 {host}.");
        }
    }
    text
}

fn next_commands(answers: &Answers, machine: &Machine, file: &Path) -> String {
    let mut text = String::new();
    let config = file.display();
    // Commands find the usual file by themselves.
    let mut option = if machine.is_usual(file) { String::new() } else { format!(" --config {config}") };
    let _ = writeln!(text, "postrider{option} config check");
    if machine.has_socket_units {
        if !machine.is_usual(file) {
            text += &copies(answers, file);
            option.clear();
        }
        if answers.certificate == Certificate::LetsEncrypt {
            text += "systemctl enable postrider-acme.socket\n";
        }
        if !answers.users.is_empty() {
            // Without `--now`: systemd opens no socket while its service runs. The restart opens them.
            text += "systemctl enable postrider-submission.socket postrider-submissions.socket\n";
        }
        text += "systemctl restart postrider\n";
    } else {
        let _ = writeln!(text, "postrider serve --config {config}");
    }
    if !machine.is_root {
        text += "  (ports below 1024 need root: start it as root, or write other ports into the [[listen]] sections)\n";
    }
    if answers.certificate == Certificate::LetsEncrypt {
        let _ = writeln!(text, "postrider{option} certificate list");
        text += "  (the authority comes to port 80 of this name: the A record and the firewall have to be right before)\n";
    }
    let to = address_of(answers.users.first().map_or("postmaster", String::as_str), answers);
    let environment = if option.is_empty() { String::new() } else { format!("POSTRIDER_CONFIG={config} ") };
    // Another mail server may have the name without the package.
    let sendmail = if machine.has_socket_units { "sendmail" } else { "postrider sendmail" };
    let _ = writeln!(text, "printf 'Subject: test\\n\\nhello\\n' | {environment}{sendmail} -v {to}");
    if let Some(user) = answers.users.first() {
        let _ = writeln!(text, "postrider{option} auth test {user}");
    }
    text
}

/// Returns the commands that copy the files to where the unit reads them; `cp` keeps those that are there.
fn copies(answers: &Answers, file: &Path) -> String {
    let mut text = format!("cp --backup=numbered {} {USUAL_FILE}\n", file.display());
    let usual = Path::new(USUAL_FILE).with_file_name("users");
    let users = file.with_file_name("users");
    if !answers.users.is_empty() && users != usual {
        let _ = writeln!(text, "cp --backup=numbered -p {} {}", users.display(), usual.display());
    }
    let _ = writeln!(text, "  (postrider.service reads {USUAL_FILE} only)");
    text
}

#[cfg(test)]
mod tests;
