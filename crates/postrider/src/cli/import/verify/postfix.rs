//! Postfix: a copy of its configuration runs on the loopback interface, with a queue of its own in which all mail stays.

use super::{
    super::work_folder::WorkFolder,
    Answer, End, Resolved,
    dialog::{Dialog, Reply},
};
use crate::cli::CliError;
use control::Exit;
use import::{SeenEnvelope, postfix::MasterCf};
use std::{
    collections::HashMap,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};
use tokio::signal::unix::{SignalKind, signal};

/// Options of each `smtpd`: the client is the one that the envelope had, and the number of questions is no fault of it.
const SMTPD: &str = "smtpd_authorized_xclient_hosts=127.0.0.1 smtpd_tls_wrappermode=no smtpd_tls_security_level=none \
    smtpd_tls_auth_only=no smtpd_milters= smtpd_proxy_filter= smtpd_error_sleep_time=0 smtpd_soft_error_limit=100000 \
    smtpd_hard_error_limit=100000 smtpd_client_connection_count_limit=0 smtpd_client_connection_rate_limit=0 \
    smtpd_client_message_rate_limit=0 smtpd_client_recipient_rate_limit=0 smtpd_upstream_proxy_protocol=";

/// Delivery agents whose log lines tell where mail went.
const DELIVERS: [&str; 7] = ["smtp", "lmtp", "local", "virtual", "pipe", "error", "discard"];

/// Words of replies that wait for a probe.
const PROBES: [&str; 2] = ["unverified address", "Address verification in progress"];

/// A Postfix with a copy of the configuration, which delivers nothing. Dropping stops it.
struct Copy {
    folder: Arc<WorkFolder>,
    /// For strangers, and for logins.
    addresses: [Option<SocketAddr>; 2],
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = Command::new("postfix").arg("-c").arg(self.dir()).arg("stop").output();
    }
}

impl Copy {
    fn dir(&self) -> PathBuf {
        self.folder.path().join("etc")
    }

    /// Copies a configuration, and starts Postfix with it.
    fn start(configuration: &Path) -> Result<Self, CliError> {
        if !rustix::process::geteuid().is_root() {
            let text = "a second Postfix can be started by root only: run the command as root";
            return Err(CliError::new(Exit::NoPerm, text));
        }
        let folder = Arc::new(WorkFolder::new()?);
        end_with(&folder)?;
        let mut copy = Self { folder, addresses: [None; 2] };
        let dir = copy.dir();
        run(Command::new("cp").arg("-a").arg(configuration).arg(&dir))?;
        let failed =
            |what: &str, error: &std::io::Error| CliError::new(Exit::CantCreate, format!("{what}: {error}"));
        let queue = copy.folder.path().join("queue");
        fs::create_dir(&queue).map_err(|error| failed("create a queue", &error))?;
        let master = fs::read(dir.join("master.cf")).map_err(|error| failed("read master.cf", &error))?;
        let services = MasterCf::parse(&master);
        let mut text = without_listeners(&String::from_utf8_lossy(&master));
        let screened = services.services.iter().find(|one| one.kind == "pass" && one.program() == "smtpd");
        for service in services.services.iter().filter(|one| one.kind == "inet") {
            let port = service.name.rsplit(':').next().unwrap_or_default();
            let is_submission = matches!(port, "submission" | "submissions" | "smtps" | "587" | "465");
            let place = &mut copy.addresses[usize::from(is_submission)];
            let smtpd = match service.program() {
                "smtpd" => service,
                "postscreen" => screened.unwrap_or(service),
                _ => continue,
            };
            let is_usual = is_submission || matches!(port, "smtp" | "25");
            if !is_usual || place.is_some() {
                continue;
            }
            let address = free_address().map_err(|error| failed("find a free port", &error))?;
            *place = Some(address);
            let own = SMTPD.split_whitespace().filter_map(|option| option.split_once('='));
            let given = smtpd.overrides.iter().map(|(name, value)| (&**name, &**value));
            let options: String =
                given.chain(own).map(|(name, value)| format!(" -o {{ {name} = {value} }}")).collect();
            text += &format!("{address} inet n - n - - smtpd{options}\n");
        }
        // Without it, Postfix from 3.4 on cannot write a log of its own.
        if !services.services.iter().any(|one| one.program() == "postlogd") {
            text += "postlog unix-dgram n - n - 1 postlogd\n";
        }
        fs::write(dir.join("master.cf"), text).map_err(|error| failed("write master.cf", &error))?;
        let delivers = services.services.iter().filter(|one| DELIVERS.contains(&one.program()));
        let transports: Vec<&str> = delivers.map(|one| &*one.name).collect();
        let old_queue = asked(configuration, "queue_directory")?;
        let data = copy.folder.path().join("data");
        fs::create_dir(&data).map_err(|error| failed("create a folder", &error))?;
        run(Command::new("chown").arg(asked(configuration, "mail_owner")?).arg(&data))?;
        let log = copy.folder.path().join("log");
        run(Command::new("postconf").arg("-c").arg(&dir).arg("-e").args([
            format!("queue_directory = {}", queue.display()),
            format!("data_directory = {}", data.display()),
            format!("defer_transports = {}", transports.join(" ")),
            format!("maillog_file = {}", log.display()),
            format!("maillog_file_prefixes = {}", copy.folder.path().display()),
            "syslog_name = postfix-verify".to_owned(),
            // What the live server keeps must not learn of this one.
            "address_verify_map =".to_owned(),
            "smtpd_tls_session_cache_database =".to_owned(),
            "multi_instance_enable = no".to_owned(),
            "multi_instance_directories =".to_owned(),
            "non_smtpd_milters =".to_owned(),
            "delay_warning_time = 0h".to_owned(),
            "notify_classes =".to_owned(),
        ]))?;
        run(Command::new("postconf").arg("-c").arg(&dir).args(["-F", "*/*/chroot = n"]))?;
        run(Command::new("postfix").arg("-c").arg(&dir).arg("check"))?;
        link_sockets(Path::new(&old_queue), &queue).map_err(|error| failed("link sockets", &error))?;
        run(Command::new("postfix").arg("-c").arg(&dir).arg("start")).map_err(|error| {
            let log = fs::read_to_string(&log).unwrap_or_default();
            CliError::new(error.exit, format!("{}\n{log}", error.text))
        })?;
        Ok(copy)
    }

    fn ask(&self, envelope: &SeenEnvelope) -> Result<Asked, CliError> {
        let [strangers, logins] = self.addresses;
        let address = if envelope.is_submission { logins.or(strangers) } else { strangers.or(logins) };
        let Some(address) = address else {
            return Ok(Asked::Known(Answer::Unknown("master.cf has no listener for SMTP".to_owned())));
        };
        let (mut dialog, _) = Dialog::connect(address)?;
        dialog.command("EHLO localhost")?;
        let client = match envelope.client {
            client @ std::net::IpAddr::V6(_) => format!("IPV6:{client}"),
            client => client.to_string(),
        };
        let name = envelope.name.as_deref().unwrap_or("[UNAVAILABLE]");
        let login =
            envelope.login.as_deref().map(|login| format!(" LOGIN={}", xtext(login))).unwrap_or_default();
        let greeting =
            dialog.command(&format!("XCLIENT NAME={} ADDR={client} PORT=9{login}", xtext(name)))?;
        if greeting.code != 220 {
            return Ok(Asked::Known(refused(&greeting)));
        }
        let hello = envelope.hello.as_deref().or(envelope.name.as_deref());
        let hello = hello.map_or_else(|| format!("[{client}]"), str::to_owned);
        for command in [
            format!("EHLO {hello}"),
            format!("MAIL FROM:<{}>", envelope.from),
            format!("RCPT TO:<{}>", envelope.to),
            "DATA".to_owned(),
        ] {
            let reply = dialog.command(&command)?;
            // The copy sends no probe.
            if PROBES.iter().any(|words| reply.text.contains(words)) {
                let why = "recipients or senders that Postfix verifies by a probe (reject_unverified_…)";
                return Ok(Asked::Known(Answer::Unknown(why.to_owned())));
            }
            if reply.code >= 400 {
                return Ok(Asked::Known(refused(&reply)));
            }
        }
        let reply = dialog.command("Subject: postrider import --verify\r\n\r\n.")?;
        if reply.code >= 400 {
            return Ok(Asked::Known(refused(&reply)));
        }
        let id = reply.text.rsplit(' ').next().unwrap_or_default().to_owned();
        Ok(Asked::Queued(id))
    }

    /// Returns the recipients of each message of the queue.
    fn queued(&self) -> Result<HashMap<String, Vec<Resolved>>, CliError> {
        let list = run(Command::new("postqueue").arg("-c").arg(self.dir()).arg("-j"))?;
        let mut queued = HashMap::new();
        for line in list.lines() {
            let message: serde_json::Value = serde_json::from_str(line).map_err(|error| {
                CliError::new(Exit::Unavailable, format!("read what postqueue says: {error}"))
            })?;
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let recipients = message["recipients"].as_array().into_iter().flatten();
            let resolved = recipients
                .map(|one| Resolved { recipient: text(&one["address"]).to_lowercase(), end: End::Unknown });
            queued.insert(text(&message["queue_id"]), resolved.collect());
        }
        Ok(queued)
    }
}

/// Stops the second Postfix and removes its folder when a signal ends this process: nobody else knows of them.
fn end_with(folder: &Arc<WorkFolder>) -> Result<(), CliError> {
    let failed =
        |error: std::io::Error| CliError::new(Exit::Unavailable, format!("wait for signals: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let guard = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(failed)?;
    drop(guard);
    let dir = folder.path().to_owned();
    let wait = move || {
        let number = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => 2,
                _ = terminate.recv() => 15,
                _ = hang_up.recv() => 1,
            }
        });
        let _ = Command::new("postfix").arg("-c").arg(dir.join("etc")).arg("stop").output();
        WorkFolder::remove_all();
        std::process::exit(128 + number);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(failed)?;
    Ok(())
}

enum Asked {
    Known(Answer),
    /// The message with this id tells of the recipients.
    Queued(String),
}

/// Asks a copy of Postfix.
///
/// # Errors
/// It cannot be started, or ends.
pub(in super::super) fn ask(
    configuration: &Path,
    envelopes: &[SeenEnvelope],
) -> Result<Vec<Answer>, CliError> {
    let copy = Copy::start(configuration)?;
    let asked = envelopes.iter().map(|envelope| copy.ask(envelope)).collect::<Result<Vec<_>, _>>()?;
    let mut queued = copy.queued()?;
    let answers = asked.into_iter().map(|asked| match asked {
        Asked::Known(answer) => answer,
        Asked::Queued(id) => match queued.remove(&id) {
            Some(resolved) => Answer::Taken(resolved),
            // Nothing is left of mail that cleanup(8) discards.
            None => Answer::Taken(Vec::new()),
        },
    });
    Ok(answers.collect())
}

fn refused(reply: &Reply) -> Answer {
    Answer::Refused { is_transient: reply.code < 500, text: reply.text.clone() }
}

fn xtext(text: &str) -> String {
    let mut out = Vec::new();
    smtp::xtext::encode(text, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns master.cf without the services that listen to the network.
fn without_listeners(text: &str) -> String {
    let mut is_listener = false;
    let keeps = |line: &&str| {
        let is_more = line.starts_with([' ', '\t']) || line.starts_with('#') || line.trim().is_empty();
        if !is_more {
            is_listener = line.split_whitespace().nth(1) == Some("inet");
        }
        !is_listener
    };
    text.lines().filter(keeps).map(|line| format!("{line}\n")).collect()
}

/// Sockets of other programs, such as Dovecot and policy servers, are in the old queue directory.
fn link_sockets(old: &Path, new: &Path) -> std::io::Result<()> {
    for folder in ["private", "public"] {
        for entry in fs::read_dir(old.join(folder)).into_iter().flatten().flatten() {
            let own = new.join(folder).join(entry.file_name());
            let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
            if is_socket && own.symlink_metadata().is_err() {
                std::os::unix::fs::symlink(entry.path(), own)?;
            }
        }
    }
    Ok(())
}

fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn asked(configuration: &Path, name: &str) -> Result<String, CliError> {
    let value = run(Command::new("postconf").arg("-c").arg(configuration).args(["-h", name]))?;
    Ok(value.trim().to_owned())
}

/// Runs a program of Postfix, and returns what it says.
pub(super) fn run(command: &mut Command) -> Result<String, CliError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output();
    let output = output.map_err(|error| CliError::new(Exit::Unavailable, format!("run {name}: {error}")))?;
    if !output.status.success() {
        let said =
            [&*output.stderr, &*output.stdout].map(|text| String::from_utf8_lossy(text).trim().to_owned());
        let said =
            said.into_iter().find(|text| !text.is_empty()).unwrap_or_else(|| output.status.to_string());
        return Err(CliError::new(Exit::Unavailable, format!("{name}: {said}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
