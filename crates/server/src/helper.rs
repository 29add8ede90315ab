//! The processes of the delivery helper: `postrider deliver-helper`, started by the daemon before it gives up its rights, is
//! the supervisor; it starts `postrider deliver-helper --serve`, which delivers.

use super::sockets;
use accept::ForwardFiles;
use config::{DeliverAs, DeliveryUser, Group, ListenAt, Settings, Target, User};
use delivery::helper::{FileRoute, Helper, Permitted, RouteUser};
use machine::accounts::{self, Failed, Question};
use mail::{Answer, NextHop, RunAs};
use maps::Reference;
use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::{Uid, geteuid},
};
use std::{
    ffi::OsString,
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

/// The program itself, also after its file was replaced by a newer one.
const SELF: &str = "/proc/self/exe";
/// The name of the processes, in place of the path above.
const NAME: &str = "postrider";
/// The command of the supervisor, and the options of the helper and of a process that writes one message.
const COMMAND: &str = "deliver-helper";
const SERVE: &str = "--serve";
const WRITE: &str = "--write";
/// Variables that the helper gets: none of them is for the programs that it starts.
const VARIABLES: [&str; 2] = ["TZ", "RUST_BACKTRACE"];
/// For the helper to end by itself, before it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(2);
const END_INTERVAL: Duration = Duration::from_millis(5);

/// The helper process of this daemon. Dropping ends it.
pub struct HelperProcess {
    helper: Arc<Helper>,
    child: Child,
}

impl HelperProcess {
    /// Starts the helper, if the settings need one.
    ///
    /// # Errors
    /// The socket pair cannot be made, or the helper's program cannot be started.
    pub fn start_if_needed(settings: &Settings, source: Option<&Path>) -> Result<Option<Self>, String> {
        if !is_needed(settings) {
            return Ok(None);
        }
        Self::start(source)
            .map(Some)
            .map_err(|e| format!("start the delivery helper, {SELF} with /dev/null: {e}"))
    }

    fn start(source: Option<&Path>) -> std::io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let mut command = Command::new(SELF);
        if let Some(file) = source {
            command.arg("--config").arg(std::path::absolute(file)?);
        }
        command.arg0(NAME).arg(COMMAND).env_clear().stdin(Stdio::from(there)).stdout(Stdio::null());
        command.envs(VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        let child = command.spawn()?;
        Ok(Self { helper: Arc::new(Helper::new(here)), child })
    }

    /// Starts the thread that reads whether the helper runs.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn watch(&self) -> Result<(), String> {
        let helper = self.helper();
        let thread = std::thread::Builder::new().name("helper".to_owned());
        let started = thread.spawn(move || helper.watch());
        started.map(drop).map_err(|e| format!("start the thread for the delivery helper: {e}"))
    }

    /// Returns the helper, as deliveries use it.
    pub fn helper(&self) -> Arc<Helper> {
        self.helper.clone()
    }
}

/// From now on this process may run no program. What `/etc/passwd` and `/etc/group` do not have, the helper asks.
pub fn ask_accounts(helper: Option<&HelperProcess>) {
    let helper = helper.map(HelperProcess::helper);
    accounts::ask_through(Some(Arc::new(move |question: &Question| match &helper {
        Some(helper) => helper.account(question),
        None => {
            let text =
                "only /etc/passwd and /etc/group can be read without a delivery helper: restart the daemon";
            Err(Failed::Service(text.to_owned()))
        }
    })));
}

/// Has the helper read the `.forward` files of users.
pub struct Forwards(pub Arc<Helper>);

impl ForwardFiles for Forwards {
    fn read<'a>(&'a self, user: &'a str) -> Answer<'a, Result<Option<String>, String>> {
        // Only the names of people are asked for: what has an `@` is none.
        if user.contains('@') || !accounts::is_name(user) {
            return Answer::Ready(Ok(None));
        }
        Answer::later(self.0.forward(user))
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        self.helper.close();
        let until = Instant::now() + END_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(END_INTERVAL);
        }
    }
}

/// Returns the program and the arguments of the helper.
pub fn program(source: Option<&Path>) -> Vec<OsString> {
    let config = source.map(|file| ["--config".into(), file.into()]).into_iter().flatten();
    std::iter::once(SELF.into()).chain(config).chain([COMMAND, SERVE].map(OsString::from)).collect()
}

/// Returns whether deliveries need the helper: programs, and files of other users.
pub fn is_needed(settings: &Settings) -> bool {
    let needs = |route: &config::Route| route.deliver_as.is_some() || matches!(route.target, Target::Pipe(_));
    settings.acme.hook.is_some()
        || !settings.addresses.programs.is_empty()
        || settings.addresses.forward
        || settings.map_references().any(|(_, reference)| *reference == Reference::Accounts)
        || settings.routes.iter().any(needs)
}

/// Returns what the helper may do by these settings.
pub fn permitted(settings: &Settings) -> Permitted {
    let routes = &settings.routes;
    let program = |route: &config::Route| match &route.target {
        Target::Pipe(program) => Some(program.clone()),
        _ => None,
    };
    let addresses = &settings.addresses;
    let (process, recipients) = (settings.process.clone(), settings.process.clone());
    let listeners: Vec<SocketAddr> =
        settings.listen.iter().filter_map(|listen| listen.address.ip()).collect();
    // Without `process.user`, a helper of root has no user for programs without one, and refuses them.
    let daemon = settings.process.user.as_ref().filter(|_| geteuid().is_root());
    Permitted {
        files: routes.iter().filter_map(file_route).collect(),
        programs: routes.iter().filter_map(program).collect(),
        forwards: addresses.forward,
        hook: settings.acme.hook.clone(),
        alias_programs: addresses.programs.iter().map(|path| path.to_string_lossy().into()).collect(),
        alias_user: addresses.program_user.as_ref().map(|user| run_as(user, None)),
        daemon: daemon.map(|user| run_as(user, settings.process.group.as_ref())),
        hello: settings.delivery.ehlo_name.0.as_str().into(),
        separator: addresses.separator.0,
        may_deliver_as: Box::new(move |uid| process.may_deliver_as(uid)),
        has_mailbox: Box::new(move |uid| recipients.has_mailbox(uid)),
        user_by_name: |name| match config::local_user(name) {
            Ok(user) => Ok(user.map(|user| run_as(&user, None))),
            Err(failed) => Err(failed.to_string()),
        },
        listen: Box::new(move |address| {
            if !listeners.contains(&address) {
                return Err(format!(
                    "the delivery helper refuses: the configuration has no listener {address}"
                ));
            }
            sockets::bind(address, &listeners).map_err(|e| sockets::not_bound(&ListenAt::Ip(address), &e))
        }),
        writer: [SELF, COMMAND, WRITE].map(OsString::from).into(),
    }
}

fn file_route(route: &config::Route) -> Option<FileRoute> {
    let next_hop = match &route.target {
        Target::Maildir(template) => NextHop::Maildir(template.as_str().into()),
        Target::Mbox(template) => NextHop::Mbox(template.as_str().into()),
        _ => return None,
    };
    let DeliverAs { user, group } = route.deliver_as.as_ref()?;
    let user = match user {
        DeliveryUser::Recipient => RouteUser::Recipient(group.as_ref().map(|group| group.gid)),
        DeliveryUser::Fixed(user) => RouteUser::Fixed(run_as(user, group.as_ref())),
    };
    Some(FileRoute { name: route.name()?.into(), next_hop, user })
}

fn run_as(user: &User, group: Option<&Group>) -> RunAs {
    let gid = group.map_or(user.gid, |group| group.gid);
    RunAs { name: user.name.as_str().into(), uid: user.uid, gid, home: user.home.as_path().into() }
}

/// Returns what the settings ask of the helper and a daemon cannot do that `own` has started.
pub fn warnings(settings: &Settings, own: Uid) -> Vec<String> {
    let is_other = |uid: u32| !own.is_root() && uid != own.as_raw();
    let waits =
        |what: &str| format!("{what} waits: only a daemon that root has started can become another user");
    let mut warnings = Vec::new();
    for route in &settings.routes {
        let needs_root = match route.deliver_as.as_ref().map(|one| &one.user) {
            Some(DeliveryUser::Fixed(user)) => is_other(user.uid),
            Some(DeliveryUser::Recipient) => !own.is_root(),
            None => false,
        };
        if needs_root && let Some(name) = route.name() {
            warnings.push(waits(&format!("mail of the route \"{name}\"")));
        }
    }
    if settings.addresses.forward && !own.is_root() {
        let text = "`addresses.forward` counts for the daemon's user only: only a daemon that root has started can read the files of others";
        warnings.push(text.to_owned());
    }
    // Without a user of its own, a program runs as the daemon's user, which must not be root.
    let has_user = !own.is_root() || settings.process.user.is_some();
    let mut judge_program = |what: &str, user: Option<u32>| match user {
        Some(user) if is_other(user) => warnings.push(waits(what)),
        None if !has_user => warnings
            .push(format!("{what} waits: programs do not run as root: name a user there, or in [process]")),
        _ => {}
    };
    for (number, route) in settings.numbered_routes() {
        if let Target::Pipe(program) = &route.target {
            judge_program(
                &format!("mail of `route[{number}].pipe`"),
                program.user.as_ref().map(|user| user.uid),
            );
        }
    }
    if let Some(hook) = &settings.acme.hook {
        judge_program(
            "the renewal of certificates with `acme.hook`",
            hook.user.as_ref().map(|user| user.uid),
        );
    }
    if !settings.addresses.programs.is_empty() {
        judge_program(
            "mail of `addresses.program_user`",
            settings.addresses.program_user.as_ref().map(|user| user.uid),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_a_user_waits_only_where_the_daemon_stays_root() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("postrider.toml");
        let warnings = |process: &str, starter| {
            let text = format!(
                "hostname = \"mx.test\"\n[[route]]\nname = \"tee\"\ndomains = [\"b.test\"]\npipe = [\"/usr/bin/tee\"]\n{process}"
            );
            std::fs::write(&path, text).unwrap();
            let settings = config::load(Some(&path)).unwrap_or_else(|problems| panic!("{problems}"));
            super::warnings(&settings, starter)
        };
        let without = warnings("", Uid::ROOT);
        assert!(without.len() == 1 && without[0].contains("`route[0].pipe`"), "{without:?}");
        assert_eq!(warnings("", Uid::from_raw(65534)), [""; 0]);
        assert_eq!(warnings("[process]\nuser = \"nobody\"\n", Uid::ROOT), [""; 0]);
    }

    #[test]
    fn files_of_users_need_a_daemon_that_root_has_started() {
        let text = "hostname = \"mx.test\"\n[addresses]\nforward = true\n[process]\nuser = \"nobody\"\n";
        let settings = config::load_text(text).unwrap().settings;
        assert_eq!(super::warnings(&settings, Uid::ROOT), [""; 0]);
        let told = super::warnings(&settings, Uid::from_raw(65534));
        assert!(told.len() == 1 && told[0].contains("`addresses.forward`"), "{told:?}");
    }
}
