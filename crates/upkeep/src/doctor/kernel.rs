//! The kernel: its version, and the restrictions that it offers to the sandbox.

use super::Finding;
use rustix::system::uname;
use std::fs;

const KERNEL: &str = "kernel";

/// Tries what the sandbox needs. A thread of its own takes the restrictions, and ends with them.
pub(super) fn check() -> Vec<Finding> {
    let release = uname().release().to_string_lossy().into_owned();
    let restricted = std::thread::Builder::new().name("landlock".to_owned()).spawn(|| {
        sandbox::forbid_new_privileges()?;
        sandbox::restrict(&sandbox::Rules::default())
    });
    let landlock = match restricted.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(None))) => {
            Finding::ok(KERNEL, format!("Linux {release}: Landlock restricts files, ports and signals"))
        }
        Ok(Ok(Ok(Some(lacking)))) => Finding::warning(
            KERNEL,
            format!("Linux {release}: {}", lacking.text),
            "the daemon runs with a smaller sandbox; a newer kernel has all of it",
        ),
        Ok(Ok(Err(text))) => {
            Finding::warning(KERNEL, text, "the daemon may not start with `process.sandbox`")
        }
        Ok(Err(_)) | Err(_) => Finding::warning(
            KERNEL,
            "Landlock could not be tried",
            "the daemon says at its start what is missing",
        ),
    };
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    vec![
        landlock,
        seccomp(&read("/proc/sys/kernel/seccomp/actions_avail")),
        io_uring(&read("/proc/sys/kernel/io_uring_disabled")),
    ]
}

fn seccomp(actions: &str) -> Finding {
    let has = |action: &str| actions.split_ascii_whitespace().any(|one| one == action);
    if has("errno") && has("log") {
        Finding::ok(KERNEL, "seccomp restricts system calls")
    } else {
        Finding::warning(
            KERNEL,
            "seccomp is not available",
            "the daemon runs without restricting system calls; use a kernel with CONFIG_SECCOMP_FILTER",
        )
    }
}

fn io_uring(disabled: &str) -> Finding {
    let state = match disabled.trim() {
        "0" => "permitted",
        "1" => "permitted to some users",
        "2" => "disabled",
        _ => "unknown",
    };
    Finding::ok(KERNEL, format!("io_uring: {state}; the daemon does not use it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn a_kernel_without_seccomp_is_a_warning() {
        assert_eq!(
            seccomp("kill_process kill_thread trap errno user_notif trace log allow\n").level,
            Level::Ok
        );
        assert_eq!(seccomp("").level, Level::Warning);
    }

    #[test]
    fn trying_the_sandbox_restricts_nobody_else() {
        let findings = check();
        assert!(findings.len() == 3 && findings[0].check == KERNEL, "{findings:?}");
        fs::read_to_string("/etc/passwd").expect("this thread is free");
    }
}
