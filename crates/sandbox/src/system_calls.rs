//! The system calls of the daemon, by seccomp. The list comes from the test suites under `strace -f`
//! (docs/decisions/sandbox.md): what is not in it fails with EPERM.

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter_all_threads,
};
use std::{collections::BTreeMap, env::consts::ARCH};

/// The treatment of a system call that is not permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The call fails with EPERM, and the process goes on.
    Fail,
    /// The call is made, and the kernel's audit log records it.
    Record,
}

/// The permitted system calls, ready for the kernel.
#[derive(Debug)]
pub struct SystemCalls {
    programs: Vec<BpfProgram>,
}

impl SystemCalls {
    /// Returns the system calls of the daemon.
    ///
    /// # Errors
    /// There are no filters for this kind of machine.
    pub fn new(refusal: Refusal) -> Result<Self, String> {
        let failed = |e: &dyn std::error::Error| format!("make a filter of system calls: {e}");
        let arch = TargetArch::try_from(ARCH).map_err(|e| failed(&e))?;
        let otherwise = match refusal {
            Refusal::Fail => SeccompAction::Errno(libc::EPERM as u32),
            Refusal::Record => SeccompAction::Log,
        };
        let permitted = permitted().map_err(|e| failed(&e))?;
        let main = SeccompFilter::new(permitted, otherwise, SeccompAction::Allow, arch);
        let mut programs = Vec::new();
        if refusal == Refusal::Fail {
            // Their flags are in memory, where no filter sees them. Callers take clone(2) and openat(2) instead.
            let unknown = [libc::SYS_clone3, libc::SYS_openat2].map(|call| (call, Vec::new())).into();
            let missing = SeccompAction::Errno(libc::ENOSYS as u32);
            let second = SeccompFilter::new(unknown, SeccompAction::Allow, missing, arch);
            programs.push(compile(second).map_err(|e| failed(&e))?);
        }
        // The last one: it permits no further filter.
        programs.push(compile(main).map_err(|e| failed(&e))?);
        Ok(Self { programs })
    }

    /// Restricts all threads of the process, and those that they start.
    ///
    /// # Errors
    /// The kernel has no such filters, or a thread has another one.
    pub fn restrict(&self) -> Result<(), String> {
        self.programs
            .iter()
            .try_for_each(|program| apply_filter_all_threads(program))
            .map_err(|e| format!("restrict system calls by seccomp: {e}"))
    }
}

fn compile(
    filter: Result<SeccompFilter, seccompiler::BackendError>,
) -> Result<BpfProgram, seccompiler::BackendError> {
    filter?.try_into()
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn permitted() -> Result<Rules, seccompiler::BackendError> {
    // No rules: with any arguments.
    let mut rules: Rules = PLAIN.iter().chain(OLD).map(|call| (*call, Vec::new())).collect();
    let value = |number, value: u64| condition(number, SeccompCmpOp::Eq, value);
    let bits = |number, mask: u64, value: u64| condition(number, SeccompCmpOp::MaskedEq(mask), value);
    // A thread in the namespaces of its process: no other process.
    let namespaces = libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET;
    let thread = libc::CLONE_THREAD as u32;
    let mask = namespaces as u32 | thread;
    rules.insert(libc::SYS_clone, vec![bits(0, mask.into(), thread.into())?]);
    // Memory with code comes from the program's file alone, before this filter.
    let no_code = || bits(2, libc::PROT_EXEC as u64, 0);
    rules.insert(libc::SYS_mmap, vec![no_code()?]);
    rules.insert(libc::SYS_mprotect, vec![no_code()?]);
    let any_of = |number, values: &[u64]| -> Result<Vec<_>, _> {
        values.iter().map(|one| value(number, *one)).collect()
    };
    rules.insert(libc::SYS_socket, sockets()?);
    // MSG_FASTOPEN connects without the check of the port that Landlock makes of connect(2).
    let no_fast_open = |number| bits(number, libc::MSG_FASTOPEN as u64, 0);
    rules.insert(libc::SYS_sendto, vec![no_fast_open(3)?]);
    rules.insert(libc::SYS_sendmsg, vec![no_fast_open(2)?]);
    rules.insert(libc::SYS_sendmmsg, vec![no_fast_open(3)?]);
    rules.insert(libc::SYS_socketpair, vec![value(0, libc::AF_UNIX as u64)?]);
    rules.insert(libc::SYS_prctl, any_of(0, PRCTL)?);
    rules.insert(libc::SYS_ioctl, any_of(1, IOCTL)?);
    // Of this process alone: a limit of CPU time would end another one.
    for call in [libc::SYS_prlimit64, libc::SYS_sched_setattr, libc::SYS_sched_setscheduler] {
        rules.insert(call, vec![value(0, 0)?]);
    }
    // A umask for one thread, by which a socket gets its permissions without chmod(2). No namespace.
    rules.insert(libc::SYS_unshare, vec![value(0, libc::CLONE_FS as u64)?]);
    modes(&mut rules)?;
    Ok(rules)
}

/// Permits no file that runs as its owner or its group, and takes from no open file the protection against changes by other users.
/// chmod(2) and its kin with a path are not permitted at all: Landlock does not restrict them, and root could change every file.
fn modes(rules: &mut Rules) -> Result<(), seccompiler::BackendError> {
    let without = |number, bits| {
        SeccompCondition::new(number, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(u64::from(bits)), 0)
    };
    let set_id = libc::S_ISUID | libc::S_ISGID;
    // Without these flags there is no mode, and its register has anything.
    let creating = (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;
    let open = |flags: u8| -> Result<_, _> {
        Ok(vec![
            SeccompRule::new(vec![without(flags, creating)?])?,
            SeccompRule::new(vec![without(flags + 1, set_id)?])?,
        ])
    };
    rules.insert(libc::SYS_openat, open(2)?);
    rules.insert(libc::SYS_mkdirat, vec![SeccompRule::new(vec![without(2, set_id)?])?]);
    rules.insert(libc::SYS_fchmod, vec![SeccompRule::new(vec![without(1, set_id | libc::S_IWOTH)?])?]);
    #[cfg(target_arch = "x86_64")]
    {
        rules.insert(libc::SYS_open, open(1)?);
        rules.insert(libc::SYS_mkdir, vec![SeccompRule::new(vec![without(1, set_id)?])?]);
    }
    Ok(())
}

/// Permits Unix sockets, TCP and UDP. Landlock checks the ports of TCP only: a stream of MPTCP, SMC or SCTP would reach any
/// port.
fn sockets() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let rule = |family: i32, kind: i32, protocol: i32| {
        let equal = |number, value: i32| {
            SeccompCondition::new(number, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value as u64)
        };
        // The type is in the lowest four bits; SOCK_NONBLOCK and SOCK_CLOEXEC are above.
        let of_type =
            SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(0xf), kind as u64);
        SeccompRule::new(vec![equal(0, family)?, of_type?, equal(2, protocol)?])
    };
    let mut rules = Vec::new();
    for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_SEQPACKET] {
        rules.push(rule(libc::AF_UNIX, kind, 0)?);
    }
    for family in [libc::AF_INET, libc::AF_INET6] {
        for (kind, own) in [(libc::SOCK_STREAM, libc::IPPROTO_TCP), (libc::SOCK_DGRAM, libc::IPPROTO_UDP)] {
            rules.push(rule(family, kind, 0)?);
            rules.push(rule(family, kind, own)?);
        }
    }
    Ok(rules)
}

fn condition(
    number: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(number, SeccompCmpArgLen::Dword, operator, value)?])
}

/// `PR_SET_VMA`, by which the allocator names its memory.
const PR_SET_VMA: u64 = 0x5356_4d41;

const PRCTL: &[u64] = &[
    libc::PR_SET_NAME as u64,
    libc::PR_GET_NAME as u64,
    libc::PR_GET_NO_NEW_PRIVS as u64,
    libc::PR_GET_DUMPABLE as u64,
    PR_SET_VMA,
];

/// Of terminals, since standard error may be one, and of sockets.
#[allow(clippy::unnecessary_cast)] // with another C library they have another type
const IOCTL: &[u64] = &[
    libc::TCGETS as u64,
    libc::TIOCGWINSZ as u64,
    libc::FIONBIO as u64,
    libc::FIOCLEX as u64,
    libc::FIONREAD as u64,
];

const PLAIN: &[c_long] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munmap,
    // Threads and time.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    // Signals: to the own threads only, to abort.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    // The process and the machine.
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getuid,
    libc::SYS_sysinfo,
    libc::SYS_umask,
    libc::SYS_uname,
    // The helper's end.
    libc::SYS_wait4,
    libc::SYS_waitid,
    // Files.
    libc::SYS_chdir,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_memfd_create,
    libc::SYS_newfstatat,
    libc::SYS_openat2,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_syncfs,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_write,
    libc::SYS_writev,
    // Events.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    // Sockets.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
];

/// Calls that only older architectures have beside the newer ones.
#[cfg(target_arch = "x86_64")]
const OLD: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_getdents,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[c_long] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_starts_programs_or_reaches_other_processes_is_permitted() {
        let rules = permitted().unwrap();
        for call in [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_ptrace,
            libc::SYS_mount,
            libc::SYS_bpf,
            libc::SYS_keyctl,
            libc::SYS_io_uring_setup,
            libc::SYS_setns,
            libc::SYS_setuid,
            libc::SYS_setresuid,
            libc::SYS_kill,
            libc::SYS_process_vm_readv,
            libc::SYS_userfaultfd,
            libc::SYS_perf_event_open,
            libc::SYS_init_module,
            libc::SYS_fchmodat,
            libc::SYS_fchownat,
            libc::SYS_setxattr,
            libc::SYS_mknodat,
        ] {
            assert!(!rules.contains_key(&call), "{call}");
        }
    }

    #[test]
    fn both_filters_can_be_compiled() {
        assert_eq!(SystemCalls::new(Refusal::Fail).unwrap().programs.len(), 2);
        assert_eq!(SystemCalls::new(Refusal::Record).unwrap().programs.len(), 1);
    }
}
