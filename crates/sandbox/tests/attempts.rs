//! A process under the rules of the daemon tries what a captured daemon would try: each attempt fails. The same attempts
//! without the sandbox show that they could succeed. So does the daemon of an operator who lets it stay root.

#![allow(unsafe_code)] // system calls that no safe wrapper covers

use sandbox::{Identity, Refusal, Rules, SystemCalls, become_user, restrict};
use std::{
    collections::BTreeMap,
    fs, io,
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::{
        fd::AsRawFd as _,
        unix::{fs::PermissionsExt as _, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::Command,
};

/// In the environment of a child: the folder of the test, and the user in the sandbox, if there is one.
const FOLDER: &str = "SANDBOX_TEST_FOLDER";
const CONFINED_AS: &str = "SANDBOX_TEST_CONFINED_AS";
const OTHER_PORT: &str = "SANDBOX_TEST_OTHER_PORT";

fn main() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return child(&PathBuf::from(folder));
    }
    let folder = tempfile::tempdir().unwrap();
    for dir in ["data", "elsewhere", "etc"] {
        fs::create_dir(folder.path().join(dir)).unwrap();
        fs::set_permissions(folder.path().join(dir), fs::Permissions::from_mode(0o777)).unwrap();
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let permitted = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = permitted.local_addr().unwrap().port();
    let text = format!(
        "hostname = \"mx.test\"\ndata_dir = \"../data\"\n[[route]]\ndomains = [\"a.test\"]\n\
         smarthost = \"127.0.0.1:{port}\"\n"
    );
    fs::write(folder.path().join("etc/postrider.toml"), text).unwrap();
    fs::write(folder.path().join("elsewhere/secret"), "secret").unwrap();
    let message = folder.path().join("data/message");

    let run = |confined_as: Option<&str>| {
        fs::write(&message, "from another session").unwrap();
        fs::set_permissions(&message, fs::Permissions::from_mode(0o666)).unwrap();
        let made = fs::read_dir(folder.path().join("data")).unwrap().map(|entry| entry.unwrap().path());
        for path in made.filter(|path| *path != message) {
            fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).unwrap();
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(FOLDER, folder.path()).env(OTHER_PORT, other.local_addr().unwrap().port().to_string());
        command.envs(confined_as.map(|user| (CONFINED_AS, user)));
        let output = command.output().unwrap();
        let (said, errors) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{said}{errors}");
        if said.contains("SKIPPED") {
            print!("{said}");
        }
        let pairs = said.lines().filter_map(|line| line.split_once('='));
        pairs.map(|(name, result)| (name.to_owned(), result.to_owned())).collect::<BTreeMap<_, _>>()
    };

    let free = run(None);
    let set_ids = SET_ID_CALLS.iter().flat_map(|call| SET_IDS.map(|mode| set_id_name(call, mode)));
    let possible: Vec<String> = POSSIBLE.iter().map(|name| (*name).to_owned()).chain(set_ids).collect();
    for name in &possible {
        assert_eq!(free[name], "ok", "without the sandbox, {name} can be done: {free:#?}");
    }
    let users = if rustix::process::geteuid().is_root() { &["nobody", "root"][..] } else { &["nobody"] };
    for user in users {
        check_confined(&run(Some(user)), user, possible.len());
    }
}

fn check_confined(confined: &BTreeMap<String, String>, user: &str, possible: usize) {
    for name in NEEDED {
        assert_eq!(confined[*name], "ok", "the daemon needs this: {confined:#?}");
    }
    for name in REACHED {
        assert_eq!(
            confined[*name], "ok",
            "docs/decisions/sandbox.md says that a fault reaches this: {confined:#?}"
        );
    }
    let is_permitted = |name: &str| NEEDED.contains(&name) || REACHED.contains(&name);
    for (name, result) in confined.iter().filter(|(name, _)| !is_permitted(name)) {
        // Landlock has EXDEV for a link from another folder.
        let is_refused = ["EPERM", "EACCES", "ENOSYS", "EXDEV"].contains(&result.as_str());
        assert!(is_refused, "{name} was not refused to {user}: {confined:#?}");
    }
    assert_eq!(confined["make a file by openat2"], "ENOSYS", "libraries fall back");
    println!(
        "test each_attempt_of_a_captured_daemon_fails ... ok (as {user}: {} attempts, {possible} of which can succeed)",
        confined.len() - NEEDED.len() - REACHED.len()
    );
}

/// A request of ptrace(2) that does not stop the other process (0x4206 in linux/ptrace.h).
const PTRACE_WITHOUT_STOP: libc::c_uint = 0x4206;

/// Attempts that succeed without the sandbox, also for a user without rights.
const POSSIBLE: &[&str] = &[
    "execve",
    "start a program",
    "write outside of its folders",
    "read outside of its folders",
    "connect to another port",
    "listen on a port",
    "set its own user",
    "reach the limits of its parent",
    "schedule its parent",
    "schedule its parent by sched_setattr",
    "signal itself",
    "open a netlink socket",
    "map memory with code",
    "make a FIFO",
    "make a file by openat2",
    "open a file of others to all",
    "open its own file to all",
    "give away a file",
    "link from outside of its folders",
];

/// Permissions with which a file runs as its owner, or as its group.
const SET_IDS: [libc::c_uint; 2] = [0o4755, 0o2755];
/// System calls that give such permissions without the sandbox. mkdir(2) and mkdirat(2) succeed, too, and leave these bits out.
const SET_ID_CALLS: &[&str] = &[
    "openat",
    "openat of no name",
    "fchmod",
    "fchmodat",
    "mknodat",
    #[cfg(target_arch = "x86_64")]
    "open",
    #[cfg(target_arch = "x86_64")]
    "creat",
    #[cfg(target_arch = "x86_64")]
    "chmod",
    #[cfg(target_arch = "x86_64")]
    "mknod",
];

/// fchmodat2(2), which has the same number on all machines; libc does not know it for each.
const FCHMODAT2: libc::c_long = 452;

fn set_id_name(call: &str, mode: libc::c_uint) -> String {
    format!("{call} with mode {mode:o}")
}
/// Things that the daemon does.
const NEEDED: &[&str] = &[
    "write in its folder",
    "rename in its folder",
    "read its configuration",
    "connect to its port",
    "start a thread",
    "read /proc/stat",
    "read random numbers",
    "make a directory",
    "set permissions",
    "open without a mode",
    "have a umask of its own",
];

/// What a fault in TLS, the resolver or a session reaches, since all of them are one process: the mail of all others.
const REACHED: &[&str] = &[
    "read a queued message of another session",
    "change a queued message of another session",
    "delete a queued message of another session",
];

fn child(folder: &Path) {
    if let Ok(user) = std::env::var(CONFINED_AS) {
        confine(folder, &user);
    }
    let other: u16 = std::env::var(OTHER_PORT).unwrap().parse().unwrap();
    let own: u16 = {
        let text = fs::read_to_string(folder.join("etc/postrider.toml")).unwrap();
        text.split("127.0.0.1:").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
    };
    let (data, elsewhere) = (folder.join("data"), folder.join("elsewhere"));
    show("write in its folder", fs::write(data.join("new"), "x"));
    show("rename in its folder", fs::rename(data.join("new"), data.join("old")));
    show("read its configuration", fs::read(folder.join("etc/postrider.toml")));
    show("connect to its port", TcpStream::connect((Ipv4Addr::LOCALHOST, own)));
    show("start a thread", std::thread::Builder::new().spawn(|| ()).map(|thread| thread.join().unwrap()));
    show("read /proc/stat", fs::read("/proc/stat"));
    let random = fs::File::open("/dev/random").and_then(|_| fs::File::open("/dev/urandom"));
    show("read random numbers", random);
    show("make a directory", fs::create_dir(data.join("dir")));
    let old = fs::File::open(data.join("old")).unwrap();
    show("set permissions", old.set_permissions(fs::Permissions::from_mode(0o664)));
    let own_umask = || {
        // SAFETY: numbers, and a pointer to a constant.
        unsafe {
            let mode = SET_IDS[0];
            let opened =
                libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/proc/stat".as_ptr(), libc::O_RDONLY, mode);
            show("open without a mode", done(opened));
            show("have a umask of its own", done(libc::syscall(libc::SYS_unshare, libc::CLONE_FS)));
        }
    };
    std::thread::scope(|scope| scope.spawn(own_umask).join()).unwrap();

    let message = data.join("message");
    show("read a queued message of another session", fs::read(&message));
    show("change a queued message of another session", fs::write(&message, "forged"));
    show("delete a queued message of another session", fs::remove_file(&message));

    // Also on a thread that began before the filter, and on one that began later.
    let etc = folder.to_owned();
    std::thread::spawn(move || {
        attempts(&data, &elsewhere, other);
        slow_down_the_parent();
        for mode in SET_IDS {
            set_ids(&data, mode);
        }
        leave_behind(&etc, &data, &elsewhere);
    })
    .join()
    .unwrap();
    // The last one: without the sandbox, the process is another program afterwards.
    let error = Command::new("/bin/sh").args(["-c", "echo execve=ok"]).exec();
    show("execve", Err::<(), _>(error));
}

fn attempts(data: &Path, elsewhere: &Path, other: u16) {
    show("start a program", Command::new("/bin/true").status());
    show("read /etc/shadow", fs::read("/etc/shadow"));
    show("read outside of its folders", fs::read(elsewhere.join("secret")));
    show("write outside of its folders", fs::write(elsewhere.join("new"), "x"));
    show(
        "write in /tmp",
        fs::write(format!("/tmp/sandbox-test-{}", std::process::id()), "x").inspect(|()| {
            let _ = fs::remove_file(format!("/tmp/sandbox-test-{}", std::process::id()));
        }),
    );
    show(
        "link out of its folder",
        fs::hard_link(data.join("old"), elsewhere.join("link")).inspect(|()| {
            let _ = fs::remove_file(elsewhere.join("link"));
        }),
    );
    show("connect to another port", TcpStream::connect((Ipv4Addr::LOCALHOST, other)));
    show("listen on a port", TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let fifo = text(&data.join("fifo"));
    // SAFETY: each call below has only numbers, null pointers, or pointers to what outlives it.
    unsafe {
        let zero = 0_usize;
        show(
            "make a FIFO",
            done(libc::syscall(libc::SYS_mknodat, libc::AT_FDCWD, fifo.as_ptr(), libc::S_IFIFO | 0o600, 0)),
        );
        show(
            "set its own user",
            done(libc::syscall(libc::SYS_setresuid, libc::getuid(), libc::getuid(), libc::getuid())),
        );
        show("become root", done(libc::syscall(libc::SYS_setresuid, 0, 0, 0)));
        show(
            "set its own group",
            done(libc::syscall(libc::SYS_setresgid, libc::getgid(), libc::getgid(), libc::getgid())),
        );
        show("set groups", done(libc::syscall(libc::SYS_setgroups, 0, zero)));
        show("signal itself", done(libc::syscall(libc::SYS_kill, libc::getpid(), 0)));
        show("signal its parent", done(libc::syscall(libc::SYS_kill, libc::getppid(), 0)));
        show(
            "ptrace",
            done(libc::syscall(libc::SYS_ptrace, PTRACE_WITHOUT_STOP, libc::getppid(), zero, zero)),
        );
        show(
            "read memory of others",
            done(libc::syscall(libc::SYS_process_vm_readv, libc::getppid(), zero, 0, zero, 0, 0)),
        );
        show("mount", done(libc::syscall(libc::SYS_mount, zero, fifo.as_ptr(), zero, libc::MS_BIND, zero)));
        show("bpf", done(libc::syscall(libc::SYS_bpf, 5, zero, 0)));
        show("keyctl", done(libc::syscall(libc::SYS_keyctl, 0, -3, 0)));
        show("io_uring", done(libc::syscall(libc::SYS_io_uring_setup, 1, zero)));
        show("a new namespace", done(libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUSER)));
        show("a new process", done(fork()));
        show("clone3", done(libc::syscall(libc::SYS_clone3, zero, 0)));
        show("userfaultfd", done(libc::syscall(libc::SYS_userfaultfd, 0)));
        show("perf events", done(libc::syscall(libc::SYS_perf_event_open, zero, 0, -1, -1, 0)));
        show("load a module", done(libc::syscall(libc::SYS_init_module, zero, 0, fifo.as_ptr())));
        show("reboot", done(libc::syscall(libc::SYS_reboot, 0, 0, 0, 0)));
        show(
            "open a netlink socket",
            done(libc::syscall(libc::SYS_socket, libc::AF_NETLINK, libc::SOCK_RAW, 0)),
        );
        show(
            "open a packet socket",
            done(libc::syscall(libc::SYS_socket, libc::AF_PACKET, libc::SOCK_RAW, 0)),
        );
        // Landlock checks the ports of TCP by connect(2) and bind(2) only: these would reach every port.
        show(
            "open an MPTCP socket",
            done(libc::syscall(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP)),
        );
        show(
            "open an SCTP socket",
            done(libc::syscall(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP)),
        );
        show(
            "open a raw socket",
            done(libc::syscall(libc::SYS_socket, libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_TCP)),
        );
        show(
            "connect without connect(2)",
            done(libc::syscall(libc::SYS_sendto, -1, zero, 0, libc::MSG_FASTOPEN, zero, 0)),
        );
        show("the same by sendmsg(2)", done(libc::syscall(libc::SYS_sendmsg, -1, zero, libc::MSG_FASTOPEN)));
        let (rwx, anonymous) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        show("map memory with code", done(libc::syscall(libc::SYS_mmap, zero, 4096, rwx, anonymous, -1, 0)));
        // From a terminal, characters could be put into the input of its shell.
        show(
            "push input into a terminal",
            done(libc::syscall(libc::SYS_ioctl, 0, libc::TIOCSTI, fifo.as_ptr())),
        );
    }
}

/// Changes the limits and the turns of another process.
fn slow_down_the_parent() {
    // SAFETY: numbers, null pointers, and pointers to what outlives the calls, with its size.
    unsafe {
        let zero = 0_usize;
        let limit = libc::syscall(libc::SYS_prlimit64, libc::getppid(), libc::RLIMIT_CPU, zero, zero);
        show("reach the limits of its parent", done(limit));
        let priority = libc::sched_param { sched_priority: 0 };
        show(
            "schedule its parent",
            done(libc::syscall(
                libc::SYS_sched_setscheduler,
                libc::getppid(),
                libc::SCHED_BATCH,
                &raw const priority,
            )),
        );
        let attributes = [48_u32, libc::SCHED_BATCH as u32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        show(
            "schedule its parent by sched_setattr",
            done(libc::syscall(libc::SYS_sched_setattr, libc::getppid(), attributes.as_ptr(), 0)),
        );
    }
}

/// Makes files that run as their owner or their group, in each way that there is.
fn set_ids(data: &Path, mode: libc::c_uint) {
    let show = |call: &str, result: i64| show(&set_id_name(call, mode), done(result));
    let name = |call: &str| text(&data.join(format!("{call}-{mode:o}")));
    let (at, old, folder) = (libc::AT_FDCWD, text(&data.join("old")), text(data));
    let old_file = fs::File::open(data.join("old")).unwrap();
    let (create, regular) = (libc::O_CREAT | libc::O_WRONLY, libc::S_IFREG | mode);
    // SAFETY: numbers, and pointers to strings that outlive the calls.
    unsafe {
        show("openat", libc::syscall(libc::SYS_openat, at, name("openat").as_ptr(), create, mode));
        let unnamed = libc::O_TMPFILE | libc::O_WRONLY;
        show("openat of no name", libc::syscall(libc::SYS_openat, at, folder.as_ptr(), unnamed, mode));
        show("fchmod", libc::syscall(libc::SYS_fchmod, old_file.as_raw_fd(), mode));
        show("fchmodat", libc::syscall(libc::SYS_fchmodat, at, old.as_ptr(), mode));
        show("fchmodat2", libc::syscall(FCHMODAT2, at, old.as_ptr(), mode, 0));
        show("mkdirat", libc::syscall(libc::SYS_mkdirat, at, name("mkdirat").as_ptr(), mode));
        show("mknodat", libc::syscall(libc::SYS_mknodat, at, name("mknodat").as_ptr(), regular, 0));
        #[cfg(target_arch = "x86_64")]
        {
            show("open", libc::syscall(libc::SYS_open, name("open").as_ptr(), create, mode));
            show("creat", libc::syscall(libc::SYS_creat, name("creat").as_ptr(), mode));
            show("chmod", libc::syscall(libc::SYS_chmod, old.as_ptr(), mode));
            show("mkdir", libc::syscall(libc::SYS_mkdir, name("mkdir").as_ptr(), mode));
            show("mknod", libc::syscall(libc::SYS_mknod, name("mknod").as_ptr(), regular, 0));
        }
    }
}

/// Leaves rights behind, for the next start or for other users, without these permissions.
fn leave_behind(folder: &Path, data: &Path, elsewhere: &Path) {
    let (at, old, new) = (libc::AT_FDCWD, text(&data.join("old")), text(&data.join("openat2")));
    let (secret, capable) = (text(&elsewhere.join("secret")), data.join("capable"));
    let _ = fs::write(&capable, "");
    let (capable, device) = (text(&capable), text(&data.join("device")));
    let readable = fs::File::open(folder.join("etc/postrider.toml")).unwrap();
    // As struct open_how.
    let how = [(libc::O_CREAT | libc::O_WRONLY) as u64, 0o4755, 0];
    // A capability to become each user, in the second format of the kernel.
    let capability = [0x0200_0001_u32.to_le(), 1_u32.to_le() << 7, 0, 0, 0];
    // SAFETY: numbers, and pointers to what outlives the calls, with its size.
    unsafe {
        let how_bytes = size_of_val(&how);
        show(
            "make a file by openat2",
            done(libc::syscall(libc::SYS_openat2, at, new.as_ptr(), how.as_ptr(), how_bytes)),
        );
        show(
            "open a file of others to all",
            done(libc::syscall(libc::SYS_fchmodat, at, secret.as_ptr(), 0o666)),
        );
        show("open its own file to all", done(libc::syscall(libc::SYS_fchmod, readable.as_raw_fd(), 0o666)));
        show(
            "give away a file",
            done(libc::syscall(libc::SYS_fchownat, at, old.as_ptr(), libc::getuid(), libc::getgid(), 0)),
        );
        let (name, value) = (c"security.capability".as_ptr(), capability.as_ptr());
        let bytes = size_of_val(&capability);
        show(
            "give a file capabilities",
            done(libc::syscall(libc::SYS_setxattr, capable.as_ptr(), name, value, bytes, 0)),
        );
        // The device of the kernel's memory.
        let (kind, memory) = (libc::S_IFCHR | 0o666, libc::makedev(1, 1));
        show("make a device", done(libc::syscall(libc::SYS_mknodat, at, device.as_ptr(), kind, memory)));
    }
    show("link from outside of its folders", fs::hard_link(elsewhere.join("secret"), data.join("link")));
    let running = std::env::current_exe().and_then(|file| fs::hard_link(file, data.join("program")));
    show("link its own program", running);
}

fn text(path: &Path) -> std::ffi::CString {
    std::ffi::CString::new(path.to_str().unwrap()).unwrap()
}

/// Makes a process that ends at once, by the call that threads use, too.
fn fork() -> i64 {
    // SAFETY: the new process has its own copy of the memory, and does nothing but end.
    unsafe {
        let pid = libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0);
        if pid == 0 {
            libc::_exit(0);
        }
        pid
    }
}

fn done(result: i64) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn show<T>(name: &str, result: io::Result<T>) {
    let word = match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => match error.raw_os_error() {
            Some(libc::EPERM) => "EPERM".to_owned(),
            Some(libc::EACCES) => "EACCES".to_owned(),
            Some(libc::ENOSYS) => "ENOSYS".to_owned(),
            Some(libc::EXDEV) => "EXDEV".to_owned(),
            _ => error.to_string(),
        },
    };
    println!("{name}={word}");
}

/// Takes the steps of the daemon, in its order.
fn confine(folder: &Path, user: &str) {
    let source = folder.join("etc/postrider.toml");
    let settings = config::load(Some(&source)).unwrap();
    let stays_root = user == "root";
    if stays_root {
        sandbox::forbid_new_privileges().unwrap();
    } else if rustix::process::geteuid().is_root() {
        let nobody = config::local_user(user).unwrap().expect("the machine has the user nobody");
        become_user(&Identity::of(&nobody, None).unwrap()).unwrap();
    } else {
        println!("SKIPPED: only root can become another user; the other attempts are made");
    }
    let lacking = restrict(&Rules::of(&settings, Some(&source), stays_root)).unwrap();
    assert_eq!(lacking, None, "this kernel cannot show everything");
    SystemCalls::new(Refusal::Fail).unwrap().restrict().unwrap();
}
