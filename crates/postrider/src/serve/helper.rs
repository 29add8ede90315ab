//! The process of the delivery helper: `postrider deliver-helper`, started by the daemon before it gives up its rights.

use config::{DeliverAs, DeliveryUser, Group, Settings, Target, User};
use delivery::helper::{FileRoute, Helper, Permitted, RouteUser};
use mail::{NextHop, RunAs};
use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::{geteuid, getuid},
};
use std::{
    ffi::OsString,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

/// The program itself, also after its file was replaced by a newer one.
const SELF: &str = "/proc/self/exe";
/// The command of the helper, and the option of a process that writes one message.
const COMMAND: &str = "deliver-helper";
const WRITE: &str = "--write";
/// Variables that the helper gets: none of them is for the programs that it starts.
const VARIABLES: [&str; 2] = ["TZ", "RUST_BACKTRACE"];
/// Time that the helper has to end.
const END_TIMEOUT: Duration = Duration::from_secs(2);
const END_INTERVAL: Duration = Duration::from_millis(5);

/// The helper of a daemon. Dropping ends it.
pub(crate) struct HelperProcess {
    helper: Arc<Helper>,
    child: Child,
}

impl HelperProcess {
    /// Starts the helper, if the settings need one.
    ///
    /// # Errors
    /// In words.
    pub(crate) fn start_if_needed(
        settings: &Settings,
        source: Option<&Path>,
    ) -> Result<Option<Self>, String> {
        if !is_needed(settings) {
            return Ok(None);
        }
        Self::start(source).map(Some).map_err(|e| format!("start the delivery helper: {e}"))
    }

    fn start(source: Option<&Path>) -> std::io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let mut command = Command::new(SELF);
        if let Some(file) = source {
            command.arg("--config").arg(std::path::absolute(file)?);
        }
        command.arg(COMMAND).env_clear().stdin(Stdio::from(there)).stdout(Stdio::null());
        command.envs(VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        let child = command.spawn()?;
        Ok(Self { helper: Arc::new(Helper::new(here)), child })
    }

    /// Returns the helper, as deliveries use it.
    pub(crate) fn helper(&self) -> Arc<Helper> {
        self.helper.clone()
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

/// Returns whether deliveries need the helper: programs, and files of other users.
pub(crate) fn is_needed(settings: &Settings) -> bool {
    let needs = |route: &config::Route| route.deliver_as.is_some() || matches!(route.target, Target::Pipe(_));
    !settings.addresses.programs.is_empty() || settings.routes.iter().any(needs)
}

/// Returns what the helper may do by these settings.
pub(crate) fn permitted(settings: &Settings) -> Permitted {
    let routes = &settings.routes;
    let program = |route: &config::Route| match &route.target {
        Target::Pipe(program) => Some(program.clone()),
        _ => None,
    };
    let addresses = &settings.addresses;
    let process = settings.process.clone();
    // Without `process.user`, a helper of root has no user for programs without one, and refuses them.
    let daemon = settings.process.user.as_ref().filter(|_| geteuid().is_root());
    Permitted {
        files: routes.iter().filter_map(file_route).collect(),
        programs: routes.iter().filter_map(program).collect(),
        alias_programs: addresses.programs.iter().map(|path| path.to_string_lossy().into()).collect(),
        alias_user: addresses.program_user.as_ref().map(|user| run_as(user, None)),
        daemon: daemon.map(|user| run_as(user, settings.process.group.as_ref())),
        hello: settings.delivery.ehlo_name.0.as_str().into(),
        separator: addresses.separator.0,
        may_deliver_as: Box::new(move |uid| process.may_deliver_as(uid)),
        user_by_name: |name| config::user_by_name(name).map(|user| run_as(&user, None)),
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

/// Warns of routes whose user this process cannot become.
pub(super) fn warn_of_users(settings: &Settings) {
    if geteuid().is_root() {
        return;
    }
    let own = getuid().as_raw();
    for route in &settings.routes {
        let is_other = match route.deliver_as.as_ref().map(|one| &one.user) {
            Some(DeliveryUser::Fixed(user)) => user.uid != own,
            Some(DeliveryUser::Recipient) => true,
            None => false,
        };
        if is_other && let Some(name) = route.name() {
            tracing::warn!(
                "mail of the route \"{name}\" waits: only a daemon that root has started can write it"
            );
        }
    }
}
