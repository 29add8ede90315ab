//! The commit thread's scheduling class. With more busy threads than cores a thread of the default
//! class waits 3 to 10 ms for its turn after each sync (measured), and everybody waits for it.

#![allow(unsafe_code)] // two system calls that no safe wrapper covers

/// Real-time where we may, else a short slice; else it stays as it is.
pub(crate) fn raise() {
    if !real_time() {
        short_slice();
    }
}

fn real_time() -> bool {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the struct is complete and outlives the call; pid 0 is this thread.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameters) == 0
    }
}

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

/// A 0.1 ms slice (Linux 6.12 and later; older kernels ignore it).
fn short_slice() {
    let attributes = Attributes { size: 48, runtime_ns: 100_000, ..Attributes::default() };
    // SAFETY: the kernel reads `size` bytes of the struct, which is that long; pid 0 is this thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}
