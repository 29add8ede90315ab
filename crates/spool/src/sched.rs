//! The commit thread's scheduling class. With more busy threads than cores a thread of the default
//! class waits 3 to 10 ms for its turn after each sync (measured), and everybody waits for it.

#![allow(unsafe_code)] // a system call that no safe wrapper covers

/// Real-time where we may, else a short slice; else it stays as it is.
pub(crate) fn raise() {
    // The kernel's own call: musl's `sched_setscheduler` does nothing, because POSIX means the process and Linux the thread.
    let real_time = Attributes {
        policy: libc::SCHED_FIFO.cast_unsigned(),
        flags: RESET_ON_FORK,
        priority: 1,
        ..Attributes::default()
    };
    // 0.1 ms, from Linux 6.12 on; older kernels ignore it.
    let short_slice = || Attributes { runtime_ns: 100_000, ..Attributes::default() };
    if !real_time.set() {
        short_slice().set();
    }
}

/// `SCHED_FLAG_RESET_ON_FORK`: threads and programs that this thread starts are of the default class.
const RESET_ON_FORK: u64 = 1;

/// `struct sched_attr` of the kernel, first version (48 bytes).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

impl Attributes {
    /// Sets them for this thread; returns whether the kernel permits it.
    fn set(self) -> bool {
        let attributes = Self { size: 48, ..self };
        // SAFETY: the kernel reads `size` bytes of the struct, which is that long; pid 0 is this thread.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
    }
}
