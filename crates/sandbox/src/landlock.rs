//! Landlock: files and TCP ports.

use crate::Rules;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus, NetPort,
    PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, Scope,
};
use std::path::Path;

/// Rights that newer kernels can take away. Older ones leave those that they do not have.
const FILES: ABI = ABI::V5;
const PORTS: ABI = ABI::V4;

/// The restrictions that the kernel does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacking {
    /// The lacking part, and since when Linux has it.
    pub text: String,
    /// True if nothing at all is restricted.
    pub is_all: bool,
}

/// Restricts the calling thread, and those that it starts, to what the rules permit. Returns what the kernel cannot restrict.
///
/// # Errors
/// The kernel refuses the rules.
pub fn restrict(rules: &Rules) -> Result<Option<Lacking>, String> {
    let failed = |e: &dyn std::error::Error| format!("restrict the process by Landlock: {e}");
    let set = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(FILES))
        .map_err(|e| failed(&e))?
        .handle_access(AccessNet::from_all(PORTS))
        .map_err(|e| failed(&e))?
        .scope(Scope::Signal)
        .map_err(|e| failed(&e))?;
    let mut set = set.create().map_err(|e| failed(&e))?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    // Nothing may be started, and no device or FIFO made.
    let write = AccessFs::from_all(FILES)
        & !(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeFifo);
    for (paths, access) in [(&rules.read, read), (&rules.write, write)] {
        for path in paths {
            // A file that comes later is in a folder that is there, or needs a restart.
            let Ok(opened) = PathFd::new(path) else { continue };
            let rule = PathBeneath::new(opened, for_kind(path, access));
            set = set.add_rule(rule).map_err(|e| failed(&e))?;
        }
    }
    for (ports, access) in [(&rules.connect, AccessNet::ConnectTcp), (&rules.bind, AccessNet::BindTcp)] {
        for port in ports {
            set = set.add_rule(NetPort::new(*port, access)).map_err(|e| failed(&e))?;
        }
    }
    let status = set.restrict_self().map_err(|e| failed(&e))?;
    Ok(lacking(status.landlock))
}

/// Leaves out rights that only folders have, if the path is a file.
fn for_kind(path: &Path, access: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    if path.is_dir() { access } else { access & AccessFs::from_file(FILES) }
}

fn lacking(status: LandlockStatus) -> Option<Lacking> {
    let part = |text: &str| Some(Lacking { text: text.to_owned(), is_all: false });
    match status {
        LandlockStatus::Available { effective_abi, .. } => match effective_abi {
            abi if abi < ABI::V4 => {
                part("Landlock of this kernel has no rules for TCP ports (Linux 6.7 and later have)")
            }
            abi if abi < ABI::V6 => {
                part("Landlock of this kernel has no rules for signals (Linux 6.12 and later have)")
            }
            _ => None,
        },
        LandlockStatus::NotEnabled => {
            let text = "Landlock is not enabled: add it to `lsm=` on the kernel's command line".to_owned();
            Some(Lacking { text, is_all: true })
        }
        LandlockStatus::NotImplemented => Some(Lacking {
            text: "no Landlock: the kernel is older than Linux 5.13, or a filter of the container forbids it"
                .to_owned(),
            is_all: true,
        }),
    }
}
